"""Masked diffusion: rates, weights, the bound of the likelihood, unmasking."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpt.evaluation.likelihood import measure_nll_bound
from jaxpt.evaluation.scores import SampleSpec
from jaxpt.evaluation.unmasking import unmask
from jaxpt.judge.examples import means
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.objectives import masked_diffusion
from jaxpt.text.tokens.vocab import Vocab


def corrupt_many(make_case, num_rows, **settings):
    case = make_case("masked_diffusion", **settings)
    tokens = np.random.default_rng(0).integers(7, 32, (num_rows, 20))
    rows = {"tokens": jnp.asarray(tokens, jnp.int32), "index": jnp.arange(num_rows)}
    return case, rows, case.corrupt(rows)


def test_rates_are_uniform_and_spread_evenly_over_a_batch(vocab):
    spec = masked_diffusion.Spec(row_length=2000)
    rows = {"tokens": jnp.full((64, 2000), 8), "index": jnp.arange(64)}
    batch = masked_diffusion.corrupt(jax.random.key(0), rows, vocab, spec)
    rates = 1 / np.asarray(batch["inverse_rates"]).max(1)  # every row has one masked
    # Each row's tokens are masked at its rate.
    share = (np.asarray(batch["inputs"]) == vocab.mask).mean(1)
    np.testing.assert_allclose(share, rates, atol=0.06)
    # Of 64 independent rates the largest distance is .08 in mean; of these it is less
    # than three even ones.
    assert rates.min() > 0 and rates.max() <= 1
    assert np.diff(np.sort([0, *rates, 1])).max() < 3 / 64


def test_masked_tokens_are_shown_as_masks_and_count_one_over_their_rate(
    make_case, vocab
):
    _, rows, batch = corrupt_many(make_case, 4096)
    inputs, tokens = np.asarray(batch["inputs"]), np.asarray(rows["tokens"])
    inverse = np.asarray(batch["inverse_rates"])
    is_masked = inputs == vocab.mask
    np.testing.assert_array_equal(inputs[~is_masked], tokens[~is_masked])
    np.testing.assert_array_equal(inverse > 0, is_masked)
    np.testing.assert_array_equal(batch["targets"], tokens)
    # Unbiased: each token counts 1 in mean, and half of all are masked.
    assert inverse.mean() == pytest.approx(1, abs=0.03)
    assert is_masked.mean() == pytest.approx(0.5, abs=0.01)
    assert float(batch["weights"]["loss"].min()) == 1


def test_special_tokens_and_padding_are_given(make_case, make_rows, vocab):
    case = make_case("masked_diffusion", min_rate=0.999)
    rows = make_rows(case, 4, lengths=[20, 12, 6, 0], specials=0.3)
    batch = case.corrupt(rows)
    is_text = np.asarray(rows["segment_ids"] > 0) & ~vocab.is_special[rows["tokens"]]
    np.testing.assert_array_equal(batch["weights"]["loss"], is_text)
    assert not np.asarray(batch["inverse_rates"])[~is_text].any()
    assert (np.asarray(batch["inputs"])[is_text] == vocab.mask).mean() > 0.95


TINY = Vocab(size=5, mask=4)
ROW = np.array([[0, 3, 1]], np.int32)


@pytest.fixture(scope="module")
def tiny():
    """A network on four words and [MASK], and rows of three: far from uniform."""
    spec = masked_diffusion.Spec(row_length=3, bound_samples=3)
    sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8, "max_len": 4}
    model = spec.make_network(ModelSpec(vocab_size=5, init_std=1.0, **sizes), TINY)
    return spec, model, jax.jit(model.init_params)(jax.random.key(1))


def exact_bound(model, params):
    """The NELBO of the row as a sum over all masks.

    With a rate uniform in (0, 1), m of L tokens masked have the weight 1 / t in mean
    (m - 1)! (L - m)! / L!.
    """
    total, length = 0.0, ROW.shape[1]
    for chosen in itertools.product([False, True], repeat=length):
        num = sum(chosen)
        if num:
            inputs = np.where(chosen, TINY.mask, ROW)
            logits = model.fill_logits(params, jnp.asarray(inputs))[0]
            nll = -np.asarray(jax.nn.log_softmax(logits))[np.arange(length), ROW[0]]
            count = math.factorial(num - 1) * math.factorial(length - num)
            total += count / math.factorial(length) * nll[list(chosen)].sum()
    return total


@pytest.mark.slow
def test_the_loss_is_the_exact_bound_in_mean(tiny):
    spec, model, params = tiny
    num = 20_000
    rows = {"tokens": jnp.repeat(jnp.asarray(ROW), num, 0), "index": jnp.arange(num)}

    @jax.jit
    def run(rows):
        batch = masked_diffusion.corrupt(jax.random.key(0), rows, TINY, spec)
        masks = masked_diffusion.masks(batch)
        terms, _ = masked_diffusion.loss(params, model, batch, masks, {})
        return terms["loss"]

    total, weight = run(rows)
    assert weight == 3 * num
    assert total / num == pytest.approx(exact_bound(model, params), rel=0.02)


def test_the_bound_is_the_exact_one_in_mean(tiny):
    _, model, params = tiny
    rngs = jax.random.split(jax.random.key(0), 4000)
    rows = jnp.repeat(jnp.asarray(ROW), len(rngs), 0)
    bound = jax.jit(model.nll_bound)(params, rows, jnp.ones(rows.shape, bool), rngs)
    expected = exact_bound(model, params)
    assert bound.sum(1).mean() == pytest.approx(expected, rel=0.01)
    # Tokens that are given are not predicted, and are not masked.
    is_text = jnp.array([[True, False, True]]).repeat(len(rngs), 0)
    part = jax.jit(model.nll_bound)(params, rows, is_text, rngs)
    assert not part[:, 1].any() and 0 < part.sum(1).mean() < expected


def test_a_uniform_model_is_bounded_by_the_size_of_its_vocabulary(tiny):
    _, model, params = tiny
    flat = jax.tree.map(jnp.zeros_like, params)
    rows = np.repeat(ROW, 5, 0)
    sizes = np.tile([1, 2, 3], (5, 1))

    def bound(params, rows, rng):
        rngs = jax.random.split(rng, len(rows["tokens"]))
        return model.nll_bound(params, rows["tokens"], rows["is_text"], rngs)

    result = means(measure_nll_bound(bound, flat, rows, sizes, 2, TINY))
    expected = math.log2(5) * 3 / 6
    assert result == {"bits_per_byte_bound": pytest.approx(expected, rel=1e-5)}


@pytest.mark.slow
def test_a_row_that_was_learnt_is_unmasked(make_case, make_rows, learn_rows, vocab):
    case = make_case("masked_diffusion")
    rows = make_rows(case, 4)
    rows["tokens"] = rows["tokens"].at[:, 0].set(jnp.arange(4) + 10)
    params = learn_rows(case, rows, 2000)
    for num_steps in (0, 5):
        written = unmask(
            case.model.fill_logits,
            params,
            rows["tokens"][:, :4],
            16,
            jax.random.key(1),
            SampleSpec(temperature=0.0),
            vocab.mask,
            tuple(vocab.special_ids.tolist()),
            num_steps,
        )
        right = np.asarray(written == rows["tokens"][:, 4:]).mean()
        assert right > 0.95, num_steps
