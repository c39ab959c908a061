"""Block diffusion: who sees whom, both limits, the bound, unmasking by blocks."""

import dataclasses
import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_refusals import check_refusal

from jaxpt.errors import UserError
from jaxpt.evaluation.scores import SampleSpec
from jaxpt.evaluation.unmasking import cut_blocks, plan_steps, unmask
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.abilities import Gap
from jaxpt.nn.networks.diffusion import DiffusionLM
from jaxpt.objectives import block_diffusion, masked_diffusion
from jaxpt.ops import masks as attention_masks
from jaxpt.text.tokens.vocab import Vocab

TINY = Vocab(size=6, mask=4)
ROW = jnp.array([[0, 3, 1, 2, 5]])
SIZES = {"num_layers": 2, "d_model": 8, "num_heads": 2, "d_ff": 8, "max_len": 5}


def make_tiny(block_size, **sizes):
    """A network on five words and [MASK], far from uniform."""
    spec = block_diffusion.Spec(row_length=5, block_size=block_size, bound_samples=3)
    model_spec = ModelSpec(vocab_size=6, init_std=1.0, **(SIZES | sizes))
    model = spec.make_network(model_spec, TINY)
    return spec, model, jax.jit(model.init_params)(jax.random.key(1))


def many_rows(count, num, vocab_size=40):
    tokens = np.random.default_rng(0).integers(7, 32, (count, num))
    return {"tokens": jnp.asarray(tokens, jnp.int32), "index": jnp.arange(count)}


def test_the_rates_of_blocks_are_uniform_and_evenly_spread(vocab):
    spec = block_diffusion.Spec(row_length=32, block_size=4)
    batch = block_diffusion.corrupt(jax.random.key(0), many_rows(64, 32), vocab, spec)
    inverse = np.asarray(batch["inverse_rates"]).reshape(64, 8, 4)
    most = inverse.max(-1)
    # Each block has one rate, of which all its masked tokens have the inverse.
    assert ((inverse == 0) | np.isclose(inverse, most[..., None])).all()
    rates = 1 / most[most > 0]
    assert spec.min_rate <= rates.min() and rates.max() <= 1
    for row in most:  # within a row, too
        own = 1 / row[row > 0]
        assert len(own) < 5 or own.max() - own.min() > 0.4
    # Unbiased: every token counts 1 in mean.
    assert inverse.mean() == pytest.approx(1, abs=0.1)
    np.testing.assert_array_equal(batch["weights"]["loss"], 1)


@pytest.mark.parametrize("size", [20, 64])
def test_one_block_is_masked_diffusion(size, make_case):
    case = make_case("block_diffusion", block_size=size)
    rows = many_rows(4, 20)
    batch = case.corrupt(rows)
    other = DiffusionLM(
        case.model.spec, packed=case.model.packed, mask_id=case.model.mask_id
    )

    def losses(module, model, batch):
        def total(params):
            terms, metrics = module.loss(params, model, batch, module.masks(batch), {})
            return terms["loss"][0], (terms, metrics)

        return jax.jit(jax.value_and_grad(total, has_aux=True))(case.params)

    alone = {
        key: batch[key]
        for key in ("index", "inputs", "targets", "inverse_rates", "weights")
    }
    result = losses(block_diffusion, case.model, batch)
    expected = losses(masked_diffusion, other, alone)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)  # noqa: E731
    jax.tree.map(close, result, expected)


@pytest.mark.parametrize(
    "positions",
    [
        *({"positions": name} for name in ("learned", "rotary", "relative")),
        {"positions": "none", "disentangled": "both"},
    ],
    ids=lambda values: " ".join(values.values()),
)
def test_blocks_of_one_token_at_rate_1_are_the_causal_factorisation(positions):
    """-log p of each token at its own [MASK], after the clean tokens before it."""
    _, model, params = make_tiny(1, **positions)
    noised = jnp.full_like(ROW, TINY.mask)
    result = jax.jit(model.read_noised)(params, noised, ROW)[0]
    # The [MASK] sees the past; the past never sees the [MASK], nor what is after it.
    inputs = jnp.where(jnp.eye(5, dtype=bool), TINY.mask, ROW)
    seen = jnp.tril(jnp.ones((5, 5), bool))[None, None]
    read = jax.jit(functools.partial(model.apply, deterministic=True))
    logits = read({"params": params}, inputs, {"self": seen})
    log_p = np.array(jax.nn.log_softmax(logits))
    for place, target in enumerate(ROW[0].tolist()):
        expected = -log_p[place, place, target]
        assert result[place] == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize("size, has_values", [(1, False), (2, True), (5, False)])
def test_a_tokens_loss_reads_its_noised_block_and_the_clean_past(size, has_values):
    _, model, params = make_tiny(size, value_embeddings=has_values)
    noised = jnp.array([[0, 4, 4, 2, 4]])
    run = jax.jit(lambda noised, clean: model.read_noised(params, noised, clean)[0])
    before = np.asarray(run(noised, ROW))
    targets = np.asarray(ROW[0])
    for place in range(5):
        # Another noised token; another clean one, whose own target is left aside.
        others = run(noised.at[0, place].set((noised[0, place] + 1) % 4), ROW)
        clean = run(noised, ROW.at[0, place].set((targets[place] + 1) % 4))
        block, blocks = place // size, np.arange(5) // size
        is_noised, is_clean = np.asarray(others) != before, np.asarray(clean) != before
        np.testing.assert_array_equal(is_noised, blocks == block)
        expected = (blocks > block) | (np.arange(5) == place)
        np.testing.assert_array_equal(is_clean, expected)


@pytest.mark.slow_cases("values0")
@pytest.mark.parametrize("values", [(), (("value_embeddings", True),)])
def test_packed_documents_are_isolated_and_start_blocks_and_positions(
    values, make_case
):
    case = make_case("block_diffusion", values, block_size=4)
    tokens = many_rows(1, 20)["tokens"]
    segments = jnp.array([[1] * 7 + [2] * 10 + [0] * 3])
    rows = {"tokens": tokens, "index": jnp.arange(1), "segment_ids": segments}
    batch = case.corrupt(rows)
    expected = [0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 0, 0, 0]
    assert batch["blocks"][0, :17].tolist() == expected[:17]

    @jax.jit
    def states(batch):
        return case.model.apply(
            {"params": case.params},
            batch,
            block_diffusion.masks(batch),
            deterministic=True,
            method="batch_states",
        )[0]

    whole = states(batch)
    for document in (1, 2):
        own = np.asarray(segments[0] == document)
        keys = ("inputs", "original", "blocks")
        alone = states({key: batch[key][:, own] for key in keys})
        np.testing.assert_allclose(whole[own], alone, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize(
    "name, value", [("smear", True), ("window", 2), ("token_dropout", 4)]
)
def test_what_reads_neighbours_in_the_array_is_refused(name, value, refuses):
    start = f"model.{name}={value}: must be"
    check_refusal(lambda: make_tiny(2, **{name: value}), [start], refuses)


def exact_bound(model, params, block_size):
    """The sum over blocks and over all masks of a block, with their mean weights."""
    total = 0.0
    for start in range(0, 5, block_size):
        places = range(start, min(start + block_size, 5))
        length = len(places)
        for chosen in itertools.product([False, True], repeat=length):
            if num := sum(chosen):
                hidden = [p for p, is_hidden in zip(places, chosen) if is_hidden]
                noised = ROW.at[0, jnp.array(hidden)].set(TINY.mask)
                nll = model.read_noised(params, noised, ROW)[0]
                count = math.factorial(num - 1) * math.factorial(length - num)
                total += count / math.factorial(length) * sum(nll[p] for p in hidden)
    return float(total)


@pytest.mark.slow_except("2")
@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_bound_is_the_exact_one_in_mean(size):
    _, model, params = make_tiny(size)
    rngs = jax.random.split(jax.random.key(0), 3000)
    rows = jnp.repeat(ROW, len(rngs), 0)
    bound = jax.jit(model.nll_bound)(params, rows, jnp.ones(rows.shape, bool), rngs)
    expected = exact_bound(model, params, size)
    assert bound.sum(1).mean() == pytest.approx(expected, rel=0.02)
    is_text = jnp.array([[True, True, False, True, True]]).repeat(len(rngs), 0)
    part = jax.jit(model.nll_bound)(params, rows, is_text, rngs)
    assert not part[:, 2].any() and 0 < part.sum(1).mean() < expected


def test_choices_are_by_likelihood_with_single_tokens_and_by_fill_with_one_block():
    candidates, place = jnp.array([[0, 1, 2]]), 2
    gap = Gap(ROW, place, ROW.at[0, place].set(TINY.mask), candidates)
    _, model, params = make_tiny(1)
    masked = jnp.full_like(ROW, TINY.mask)
    # Of the whole text, up to what is the same for all candidates.
    exact = [
        -model.read_noised(params, masked, ROW.at[0, place].set(c))[0, place:].sum()
        for c in range(3)
    ]
    np.testing.assert_allclose(
        model.choice_scores(params, gap)[0], jnp.array(exact), rtol=1e-4
    )
    _, model, params = make_tiny(5)
    logits = model.fill_logits(params, gap.gapped)[0, place]
    expected = jax.nn.log_softmax(logits)[:3]
    np.testing.assert_allclose(
        model.choice_scores(params, gap)[0], expected, rtol=1e-4, atol=1e-5
    )


def test_a_mask_is_filled_from_its_block_and_the_past():
    _, model, params = make_tiny(2)
    text = jnp.array([[0, 3, 4, 2, 5]])
    logits = model.fill_logits(params, text)
    mask = jnp.arange(5)[:, None] // 2 >= jnp.arange(5) // 2
    attn_masks = {"self": mask[None, None]}
    expected = model.apply({"params": params}, text, attn_masks, deterministic=True)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)
    one = attention_masks.materialise(attention_masks.causal_blocks(2), 5, 5)
    np.testing.assert_array_equal(one[0, 0], mask)


@pytest.mark.parametrize(
    "start, num, size, blocks",
    [(4, 8, 4, [4, 4]), (5, 2, 4, [2]), (0, 3, 1, [1, 1, 1]), (7, 5, 0, [5])],
)
def test_new_tokens_are_cut_at_the_ends_of_blocks(start, num, size, blocks):
    assert cut_blocks(start, num, size) == blocks
    for num_steps in range(len(blocks), num + 1):
        plan = plan_steps(num, num_steps, blocks)
        assert len(plan) == num_steps and sum(n for n, _ in plan) == num
        ends = [end for _, end in plan]
        assert ends == sorted(ends) and set(ends) == set(np.cumsum(blocks).tolist())
    if len(blocks) > 1:
        with pytest.raises(UserError, match=f"must be at least {len(blocks)}"):
            plan_steps(num, len(blocks) - 1, blocks)


def test_a_block_is_filled_before_the_next_one():
    seen = []

    def fill_logits(params, tokens):
        jax.debug.callback(
            lambda t: seen.append(np.asarray(t[0])), tokens, ordered=True
        )
        # Most confident at the end of the row.
        sizes = jnp.arange(tokens.shape[1])[None, :, None] / 4
        return sizes * jax.nn.one_hot(1 + 0 * tokens, 6)

    prompt = jnp.zeros((1, 1), jnp.int32)
    how = {"rng": jax.random.key(0), "spec": SampleSpec(temperature=0.0)}
    result = unmask(fill_logits, None, prompt, 6, mask_id=4, block_size=4, **how)
    jax.effects_barrier()
    assert result.tolist() == [[1] * 6]
    left = [sorted(np.flatnonzero(row == 4).tolist()) for row in seen]
    assert left == [
        [1, 2, 3, 4, 5, 6],
        [1, 2, 4, 5, 6],
        [1, 4, 5, 6],
        [4, 5, 6],
        [4, 5],
        [4],
    ]


def test_the_size_of_blocks_is_checked(refuses):
    with refuses("block_diffusion.block_size=0", "at least 1"):
        block_diffusion.Spec(row_length=8, block_size=0)
    spec = block_diffusion.Spec(row_length=10, block_size=4)
    # Two blocks of four tokens and one of two.
    (law,) = spec.predictions.laws.values()
    assert law.most == 10
    means = [sum(k * p for k, p in enumerate(law.probabilities))]
    assert means == [pytest.approx(10 * (1 + spec.min_rate) / 2)]
    assert dataclasses.replace(spec, block_size=99).predictions.most == 10


GROWING = ((0.25, 1), (0.5, 2))


@pytest.mark.parametrize(
    "progress, size", [(0.0, 1), (0.24, 1), (0.25, 2), (0.5, 4), (1.0, 4), (None, 4)]
)
def test_blocks_grow_during_training(progress, size, vocab):
    """The batch is that of blocks of this size; in evaluation of the last one."""
    spec = block_diffusion.Spec(20, block_size=4, block_schedule=GROWING)
    rows = many_rows(8, 20) | {"segment_ids": jnp.repeat(jnp.array([[1, 2]]), 10, 1)}
    rows["segment_ids"] = jnp.broadcast_to(rows["segment_ids"], (8, 20))
    key = jax.random.key(0)
    plain = dataclasses.replace(spec, block_size=size, block_schedule=())
    expected = block_diffusion.corrupt(key, rows, vocab, plain)
    if progress is not None:
        rows["progress"] = jnp.full(8, progress, jnp.float32)
    result = block_diffusion.corrupt(key, rows, vocab, spec)
    jax.tree.map(np.testing.assert_array_equal, result, expected)


def test_at_first_a_token_is_predicted_from_its_past_alone():
    """With single tokens, all masked: -log p from left to right, as clm's loss is.

    Each token is read at a [MASK] after the clean tokens before it.
    """
    spec, model, params = make_tiny(4)
    spec = dataclasses.replace(spec, block_schedule=GROWING, min_rate=1 - 1e-6)
    rows = {"tokens": jnp.array([[0, 3, 1, 2, 0]]), "index": jnp.arange(1)}

    def measure(progress):
        more = rows | {"progress": jnp.full(1, progress, jnp.float32)}
        batch = block_diffusion.corrupt(jax.random.key(0), more, TINY, spec)
        assert (batch["inputs"] == TINY.mask).all()
        masks = block_diffusion.masks(batch)
        total, weight = block_diffusion.loss(params, model, batch, masks, {})[0]["loss"]
        return float(total / weight)

    total, causal = 0.0, {"self": attention_masks.causal()}
    for i, token in enumerate(rows["tokens"][0].tolist()):
        text = rows["tokens"][:, : i + 1].at[0, i].set(TINY.mask)
        logits = model.apply({"params": params}, text, causal, deterministic=True)
        total -= float(jax.nn.log_softmax(logits)[0, i, token])
    assert measure(0.0) == pytest.approx(total / 5, rel=1e-4)
    assert measure(0.5) != pytest.approx(total / 5, rel=1e-2)


@pytest.mark.parametrize("schedule", [((0.5, 0),), ((0.0, 1),), ((0.5, 1), (0.25, 2))])
def test_the_growth_of_blocks_is_checked(schedule, refuses):
    with refuses("block_diffusion.block_schedule"):
        block_diffusion.Spec(8, block_schedule=schedule)
    spec = block_diffusion.Spec(12, block_size=2, block_schedule=((0.5, 6),))
    expected = block_diffusion.Spec(12, block_size=6).predictions
    assert spec.predictions == expected  # slots for the largest blocks
