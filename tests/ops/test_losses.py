"""Losses and metrics against log_softmax, optax and hand-made cases."""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpt.ops import edits, losses, metrics

LOGITS = jax.random.normal(jax.random.key(0), (3, 4, 7)) * 3
TARGETS = jax.random.randint(jax.random.key(1), (3, 4), 0, 7)
WEIGHTS = jax.random.uniform(jax.random.key(2), (3, 4)).at[0].set(0)


def test_cross_entropy_is_the_weighted_negative_log_softmax():
    log_p = np.asarray(jax.nn.log_softmax(LOGITS))
    nll = -np.take_along_axis(log_p, np.asarray(TARGETS)[..., None], -1)[..., 0]
    np.testing.assert_allclose(losses.token_nll(LOGITS, TARGETS), nll, rtol=1e-5)
    other = optax.softmax_cross_entropy_with_integer_labels(LOGITS, TARGETS)
    np.testing.assert_allclose(losses.token_nll(LOGITS, TARGETS), other, rtol=1e-5)
    total, weight = losses.cross_entropy(LOGITS, TARGETS, WEIGHTS)
    np.testing.assert_allclose(total, (nll * WEIGHTS).sum(), rtol=1e-5)
    np.testing.assert_allclose(weight, WEIGHTS.sum(), rtol=1e-6)


def test_gradient_of_cross_entropy_is_softmax_minus_one_hot():
    grad = jax.grad(lambda x: losses.cross_entropy(x, TARGETS, WEIGHTS)[0])(LOGITS)
    expected = jax.nn.softmax(LOGITS) - jax.nn.one_hot(TARGETS, 7)
    np.testing.assert_allclose(grad, expected * WEIGHTS[..., None], atol=1e-6)


def test_binary_cross_entropy_is_optaxs():
    logits, labels = LOGITS[..., 0], (TARGETS > 3).astype(jnp.float32)
    total, weight = losses.binary_cross_entropy(logits, labels, WEIGHTS)
    expected = optax.sigmoid_binary_cross_entropy(logits, labels)
    np.testing.assert_allclose(total, (expected * WEIGHTS).sum(), rtol=1e-5)
    np.testing.assert_allclose(weight, WEIGHTS.sum(), rtol=1e-6)


def test_huge_logits_stay_finite():
    logits = jnp.array([[1e4, -1e4]])
    assert float(losses.token_nll(logits, jnp.array([1]))[0]) == 2e4
    one = jnp.ones(1)
    value_and_grad = jax.value_and_grad(
        lambda x: losses.binary_cross_entropy(x, 0 * one, one)[0]
    )
    value, grad = value_and_grad(jnp.array([1e4]))
    assert value == 1e4 and grad[0] == 1
    assert losses.binary_cross_entropy(jnp.array([-1e4]), 0 * one, one)[0] == 0


@pytest.mark.parametrize("name", ["cross_entropy", "binary_cross_entropy"])
def test_losses_are_float32_whatever_the_logits_are(name):
    if name == "cross_entropy":
        low = LOGITS.astype(jnp.bfloat16)
        args = TARGETS, WEIGHTS
    else:
        low = LOGITS[..., 0].astype(jnp.bfloat16)
        args = (TARGETS > 3).astype(jnp.float32), WEIGHTS
    function = getattr(losses, name)
    total, _ = function(low, *args)
    assert total.dtype == jnp.float32
    # Only the logits themselves are rounded, nothing after them.
    np.testing.assert_allclose(total, function(low.astype(jnp.float32), *args)[0])


def hits_of(logits, targets, weights, k=1):
    return losses.rank_hits(losses.target_ranks(logits, targets), weights, k)


def test_hits_count_the_highest_k_and_weigh():
    logits = jnp.array([[3.0, 2.0, 1.0, 0.0]] * 4)
    targets, weights = jnp.array([0, 1, 2, 3]), jnp.array([1.0, 2.0, 4.0, 8.0])
    for k, hits in ((1, 1), (2, 3), (3, 7), (4, 15)):
        assert hits_of(logits, targets, weights, k) == (hits, 15)


def test_ties_are_misses():
    logits, one = jnp.array([[1.0, 1.0, 0.0]]), jnp.ones(1)
    for target in (0, 1):
        assert hits_of(logits, jnp.array([target]), one)[0] == 0
        assert hits_of(logits, jnp.array([target]), one, k=2)[0] == 1
    constant = jnp.zeros((1, 9))
    assert hits_of(constant, jnp.array([0]), one, k=5)[0] == 0


def test_logits_that_are_no_numbers_are_misses():
    logits = jnp.full((1, 3), jnp.nan)
    assert hits_of(logits, jnp.array([0]), jnp.ones(1))[0] == 0


ODD = [-math.inf, math.inf, math.nan, 0.0, 3e38, -3e38]


@given(
    st.lists(
        st.lists(
            st.one_of(st.sampled_from(ODD), st.floats(-50, 50, width=32)),
            min_size=5,
            max_size=5,
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 4),
)
def test_one_read_of_the_logits_gives_what_several_give(rows, target):
    """Whatever they are: infinite, no numbers, ties, or columns that are all -inf."""
    logits, targets = jnp.array(rows, jnp.float32), jnp.full(len(rows), target)
    picked = jnp.take_along_axis(logits, targets[:, None], axis=-1)
    expected = jax.nn.logsumexp(logits, axis=-1)
    for read in (losses.read_once, losses.read_twice):
        log_total, ranks = jax.jit(read)(logits, picked)
        np.testing.assert_allclose(log_total, expected, rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(ranks, losses.target_ranks(logits, targets))


@pytest.mark.parametrize("platform, num_reads", [("gpu", 1), ("tpu", 2)])
def test_accelerators_read_the_logits_seldom(platform, num_reads, monkeypatch):
    def read(logits):
        return losses.nll_and_ranks(logits, TARGETS)

    several = jnp.stack([TARGETS, 6 - TARGETS], axis=-1)
    expected, of_several = read(LOGITS), losses.read_logits(LOGITS, several)
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    program = str(jax.make_jaxpr(lambda x: losses.read_logits(x, TARGETS))(LOGITS))
    assert len(re.findall(r"= reduce\w*\[", program)) == num_reads
    result = *read(LOGITS), *losses.read_logits(LOGITS, several)
    for one, two in zip(result, (*expected, *of_several), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5)


def test_the_gradient_keeps_the_logits_and_nothing_as_large():
    expected = jax.grad(lambda x: _plain_nll(x).sum())(LOGITS)
    _, pull = jax.vjp(lambda x: losses.nll_and_ranks(x, TARGETS)[0], LOGITS)
    np.testing.assert_allclose(pull(jnp.ones((3, 4)))[0], expected, atol=1e-6)
    sizes = [x.size for x in jax.tree.leaves(pull)]
    assert sum(size >= LOGITS.size for size in sizes) == 1


def _plain_nll(logits):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), TARGETS[..., None], -1)


def test_scores_are_loss_ranks_and_samples():
    loss, ranks, samples, *_ = losses.score(LOGITS, TARGETS, WEIGHTS)
    assert loss == losses.cross_entropy(LOGITS, TARGETS, WEIGHTS)
    np.testing.assert_array_equal(ranks, losses.target_ranks(LOGITS, TARGETS))
    assert samples is None
    keys = jax.random.split(jax.random.key(3), 3)

    def total(logits, temperature):
        result = losses.score(logits, TARGETS, WEIGHTS, (keys, temperature))
        return result.loss[0], result.samples

    grad, samples = jax.grad(total, has_aux=True)(LOGITS, 0.5)
    expected = [edits.sample_gumbel(key, x, 0.5) for key, x in zip(keys, LOGITS)]
    np.testing.assert_array_equal(samples, expected)
    alone = jax.grad(lambda x: losses.cross_entropy(x, TARGETS, WEIGHTS)[0])(LOGITS)
    np.testing.assert_array_equal(grad, alone)
    assert (samples != total(LOGITS, 50.0)[1]).any()


def test_sums_add_before_they_divide():
    both = metrics.add({"a": (1.0, 1.0)}, {"a": (3.0, 9.0)})
    assert metrics.divide(both) == {"a": 0.4}  # not the mean of 1 and 1/3
    assert math.isnan(metrics.divide({"a": (0.0, 0.0)})["a"])


def test_perplexity_and_bits():
    assert metrics.perplexity(math.log(5)) == pytest.approx(5)
    assert metrics.perplexity(1e4) == math.inf
    assert metrics.bits_per_byte(math.log(2) * 24, 4) == pytest.approx(6)
