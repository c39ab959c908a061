"""The rule `bound` is the bound of masked and of block diffusion, token by token."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import make_config, write_run

import jaxpt
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.objectives import block_diffusion, masked_diffusion
from jaxpt.ops import masks
from jaxpt.text.tokens.vocab import Vocab
from jaxpt.text_form import TextForm
from jaxpt.zero_shot import score_rows
from jaxpt.zero_shot.pairs import TextPair, score_pairs
from jaxpt.zero_shot.scoring import TextScorer

VOCAB = Vocab(size=8, mask=4)
SIZES = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8, "max_len": 12}
TEXT = np.array([0, 3, 1, 2, 5])
FULL = 0  # the whole text is one block: masked diffusion


@functools.cache
def make_network(size):
    """A network far from uniform, on six words, [MASK] and a frame's two ids."""
    module = block_diffusion if size else masked_diffusion
    blocks = {"block_size": size} if size else {}
    spec = module.Spec(row_length=5, bound_samples=3, **blocks)
    model = spec.make_network(ModelSpec(vocab_size=8, init_std=1.0, **SIZES), VOCAB)
    return model, jax.jit(model.init_params)(jax.random.key(1)), spec.text_form(VOCAB)


def enumerate_bound(model, params, tokens, scored, size):
    """The bound of each scored position: its mean over all masks of its block.

    With a rate uniform in (0, 1), m of n tokens masked have the weight 1 / t in mean
    (m - 1)! (n - m)! / n!. What follows a block is cut off.
    """
    size, total = size or len(tokens), np.zeros(len(tokens))

    @jax.jit
    def log_probs(inputs):
        mask = {"self": masks.causal_blocks(size)}
        logits = model.apply({"params": params}, inputs, mask, deterministic=True)
        return jax.nn.log_softmax(logits)

    for begin in range(0, len(tokens), size):
        places = [p for p in range(begin, begin + size) if p in scored]
        for hidden in itertools.chain.from_iterable(
            itertools.combinations(places, m + 1) for m in range(len(places))
        ):
            inputs = tokens[: begin + size].copy()
            inputs[list(hidden)] = VOCAB.mask
            rows = log_probs(inputs[None])[0]
            n, m = len(places), len(hidden)
            weight = math.factorial(m - 1) * math.factorial(n - m) / math.factorial(n)
            for place in hidden:
                total[place] -= weight * rows[place, tokens[place]]
    return total[list(scored)]


@pytest.mark.parametrize("size", [1, 2, 3, 5, FULL])
@pytest.mark.parametrize("start, frame", [(0, ()), (2, ()), (1, (6, 7))])
def test_the_rule_is_the_bound_over_all_masks(size, start, frame, monkeypatch):
    """Also after given tokens, and where special tokens begin the first block."""
    model, params, form = make_network(size)
    before, after = frame[:1], frame[1:]
    form = TextForm(before, after, gap=form.gap, block_size=form.block_size)
    monkeypatch.setattr(score_rows, "BOUND_SAMPLES", 3000)
    scorer = TextScorer(model, params, form, "a")
    (result,) = scorer.token_log_probs([TEXT], [start], "bound")
    around = np.array([*before, *TEXT, *after])
    scored = range(len(before) + start, len(before) + len(TEXT))
    expected = enumerate_bound(model, params, around, scored, size)
    np.testing.assert_allclose(-result, expected, rtol=0.1)
    assert -result.sum() == pytest.approx(expected.sum(), rel=0.02)


@pytest.mark.parametrize("size", [1, 2, 3, 5, FULL])
def test_the_rule_is_the_networks_own_bound(size, monkeypatch):
    model, params, form = make_network(size)
    monkeypatch.setattr(score_rows, "BOUND_SAMPLES", 3000)
    scorer = TextScorer(model, params, form, "a")
    (result,) = scorer.token_log_probs([TEXT], rule="bound")
    rngs = jax.random.split(jax.random.key(0), 2000)
    rows = jnp.repeat(jnp.asarray(TEXT[None], jnp.int32), len(rngs), 0)
    bound = jax.jit(model.nll_bound)(params, rows, jnp.ones(rows.shape, bool), rngs)
    assert -result.sum() == pytest.approx(float(bound.sum(1).mean()), rel=0.02)


def test_with_blocks_of_one_token_it_is_the_exact_likelihood():
    """Whatever the seed, and whatever texts are scored in the same batch."""
    model, params, form = make_network(1)
    scorer = TextScorer(model, params, form, "a")
    texts, starts = [TEXT, TEXT[:3], np.array([5, 5, 1, 0]), TEXT], [0, 0, 1, 3]
    for seed in (0, 1):
        results = scorer.token_log_probs(texts, starts, "bound", [seed] * 4)
        for text, start, result in zip(texts, starts, results, strict=True):
            scored = range(start, len(text))
            expected = enumerate_bound(model, params, text, scored, 1)
            np.testing.assert_allclose(-result, expected, rtol=1e-4)


@pytest.mark.parametrize("size", [2, 3, FULL])
def test_both_texts_of_a_pair_are_scored_under_the_same_masks(size):
    """Whatever their tokens are; other pairs have other masks."""
    rows = {}

    class Recorder:
        SCORING = ("bound",)
        spec = type("Spec", (), {"vocab_size": 50})

        def target_log_probs(self, params, batch, view):
            for inputs in batch["inputs"]:
                text = tuple(np.where(inputs == VOCAB.mask, -1, inputs).tolist())
                first = next((t // 10 for t in text if t > 0), None)
                rows.setdefault(first, []).append(tuple(t < 0 for t in text))
            return np.zeros(batch["positions"].shape)

    form = TextForm(gap=(VOCAB.mask,), block_size=size)
    scorer = TextScorer(Recorder(), {}, form, "a", lambda function: function)
    # The tokens of a text have its number as their first digit.
    texts = [np.arange(10 * i, 10 * i + 8) for i in range(1, 5)]
    pairs = [TextPair(*pair, "a") for pair in (("0", "1"), ("2", "3"))]
    score_pairs(scorer, lambda text: texts[int(text)], pairs, ["bound"])
    masked = [sorted(rows[i]) for i in range(1, 5)]
    assert masked[0] == masked[1] and masked[2] == masked[3]
    assert masked[0] != masked[2]


@pytest.mark.parametrize("size", [1, 2])
def test_a_runs_likelihood_by_the_rule_is_its_programs(size, speech, tmp_path):
    changes = {"block_diffusion__block_size": size, "model__init_std": 0.5}
    config = make_config(speech, "block_diffusion", **changes)
    run = jaxpt.load(write_run(config, tmp_path))
    text = "the men speak of a union"
    tokens = np.asarray(run.tokenizer.encode(text))[None].repeat(64, 0)
    rows = {"tokens": tokens, "is_text": tokens > -1, "index": np.arange(64)}
    bound = run._loaded.program.readers["nll_bound"](
        run.params, rows, jax.random.key(0)
    )
    (result,) = run.nll(text, rule="bound")
    near = 1e-4 if size == 1 else 0.02
    assert result == pytest.approx(float(bound.sum(1).mean()), rel=near)
