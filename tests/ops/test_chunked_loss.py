"""Cross-entropy in chunks against all logits at once: values, gradients, samples."""

import functools
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AbstractMesh, AxisType
from tiny import many_devices, slow

from jaxpt.ops import chunked_loss, kernels, losses

TESTS = Path(__file__).resolve().parents[1]

E, V = 8, 37


def make(shape, dtype=jnp.float32, with_bias=True, seed=0):
    """x, W, b, targets and weights, some of which are zero."""
    draw = np.random.default_rng(seed)
    kernel, bias = draw.normal(size=(E, V)), draw.normal(size=V)
    weights = draw.random(shape) * (np.arange(shape[-1]) % 3 != 1)
    return (
        jnp.asarray(draw.normal(size=(*shape, E)), dtype),
        jnp.asarray(kernel, jnp.float32),
        jnp.asarray(bias, jnp.float32) if with_bias else None,
        jnp.asarray(draw.integers(0, V, shape), jnp.int32),
        jnp.asarray(weights, jnp.float32),
    )


def plain(x, kernel, bias, targets, weights, sampling=None):
    logits = kernels.product("...E,EV->...V", x, kernel)
    logits = logits if bias is None else logits + bias
    return losses.score(logits, targets, weights, sampling)


def pull(function, x, kernel, bias, targets, weights, *rest):
    """What the function gives, and the gradient of the mean loss."""

    def mean(x, kernel, bias, weights):
        scores = function(x, kernel, bias, targets, weights, *rest)
        return 7 * scores.loss[0] / scores.loss[1], scores

    argnums = (0, 1, 3) if bias is None else (0, 1, 2, 3)
    grads, scores = jax.grad(mean, argnums, has_aux=True)(x, kernel, bias, weights)
    return grads, scores


def assert_alike(result, expected, rtol=1e-5):
    """Equal to a share of the largest entry."""
    for one, two in zip(
        jax.tree.leaves(result), jax.tree.leaves(expected), strict=True
    ):
        assert one.shape == two.shape and one.dtype == two.dtype
        if jnp.issubdtype(one.dtype, jnp.integer):
            np.testing.assert_array_equal(one, two)
        else:
            one, two = np.asarray(one, np.float64), np.asarray(two, np.float64)
            scale = np.abs(two).max() + 1e-30
            assert np.abs(one - two).max() <= rtol * scale


# Chunks of one row, ones that divide the rows and do not, and one of all.
CHUNKS = (1, 4, 5, 100)


@pytest.mark.parametrize(
    "shape, with_bias",
    [slow((24,), True), slow((23,), False), slow((3, 7), True), ((2, 2, 5), True)],
)
def test_chunks_change_nothing(shape, with_bias):
    args = make(shape, with_bias=with_bias)

    @jax.jit
    def run(*args):
        expected = pull(plain, *args)
        functions = [
            functools.partial(chunked_loss.score, chunk_rows=chunk) for chunk in CHUNKS
        ]
        values = [function(*args) for function in functions]
        nll = [chunked_loss.nll(*args[:4], chunk) for chunk in CHUNKS]
        logits = kernels.dense(*args[:3])
        wanted_nll = losses.token_nll(logits, args[3])
        return [pull(f, *args) for f in functions], expected, values, nll, wanted_nll

    founds, expected, values, nll, wanted_nll = run(*args)
    for result, value, chunk_nll in zip(founds, values, nll, strict=True):
        assert_alike(result, expected)
        assert_alike(value, expected[1])  # without a gradient
        np.testing.assert_allclose(chunk_nll, wanted_nll, rtol=1e-5)


def make_several(shape, num_targets=4):
    """x, W, b, and targets and weights of K targets a position, some of them twice."""
    x, kernel, bias, targets, weights = make((*shape, num_targets))
    targets = targets.at[..., 2].set(jnp.where(targets[..., 0] % 2, 5, targets[..., 1]))
    return x[..., 0, :], kernel, bias, targets, weights


def one_by_one(x, kernel, bias, targets, weights, sampling=None):
    """The sum of losses of one target each; autodiff gives the gradient."""
    logits = kernels.product("...E,EV->...V", x, kernel) + bias
    log_p = jax.nn.log_softmax(logits)
    nll = -jnp.take_along_axis(log_p, targets, axis=-1)
    ranks = losses.target_ranks(logits, targets[..., 0])
    loss = jnp.sum(nll * weights), jnp.sum(weights)
    return losses.Scores(loss, ranks, None, jax.lax.stop_gradient(nll))


@pytest.mark.parametrize("num_targets", [1, 4])
@pytest.mark.parametrize("cap, z_loss", [(2.0, 0.0), (0.0, 0.1), (2.0, 0.1)])
def test_soft_cap_and_z_loss_are_those_of_autodiff(cap, z_loss, num_targets):
    """The gradients include the z-loss; the values are -log p of capped logits."""
    args = make((12,)) if num_targets == 1 else make_several((12,))
    options = losses.LogitOptions(cap, z_loss)

    def expect(x, kernel, bias, targets, weights):
        logits = x @ kernel + bias
        logits = cap * jnp.tanh(logits / cap) if cap else logits
        log_total = jax.nn.logsumexp(logits, axis=-1)
        ids = targets if num_targets > 1 else targets[:, None]
        each = weights if num_targets > 1 else weights[:, None]
        picked = jnp.take_along_axis(logits, ids, axis=-1)
        nll = log_total[:, None] - picked
        z = z_loss * (log_total**2)[:, None]
        total = (
            jnp.sum(each * nll),
            jnp.sum(each * (nll + z - jax.lax.stop_gradient(z))),
        )
        return total

    def grad_of(function):
        def total(x, kernel, bias):
            return function(x, kernel, bias, *args[3:])

        return jax.jit(jax.grad(total, (0, 1, 2)))(*args[:3])

    value, _ = expect(*args)
    expected = grad_of(lambda *args: expect(*args)[1])
    for chunk in (4, 100):
        score = functools.partial(chunked_loss.score, chunk_rows=chunk, options=options)
        scores = score(*args)
        np.testing.assert_allclose(scores.loss[0], value, rtol=1e-5)
        assert_alike(grad_of(lambda *args: score(*args).loss[0]), expected)
        if num_targets == 1:
            how = {"chunk_rows": chunk, "options": options}
            nll = chunked_loss.nll(*args[:4], **how)
            np.testing.assert_allclose(nll @ args[4], value, rtol=1e-5)

            def each(*args, how=how):
                return chunked_loss.token_scores(*args[:4], **how)[0] @ args[4]

            np.testing.assert_allclose(each(*args), value, rtol=1e-5)
            assert_alike(grad_of(each), expected)


def test_the_z_loss_of_a_uniform_model():
    """By its gradient: all logits one larger add 1e-4 of (ln 8192)^2 's slope."""
    target, weight = jnp.zeros(1, int), jnp.ones(1)

    def loss(logits):
        return losses.score(logits, target, weight, z_loss=1e-4).loss[0]

    slope = jax.grad(loss)(jnp.zeros((1, 8192))).sum()
    log_total = math.log(8192)
    assert 1e-4 * log_total**2 == pytest.approx(0.00812, abs=5e-6)
    assert slope == pytest.approx(2e-4 * log_total, rel=1e-3)


@pytest.mark.parametrize("shape", [slow((23,)), (2, 2, 5)])
def test_several_targets_are_the_sum_of_one_each(shape):
    """Values, and gradients by states, kernel, bias and weights."""
    args = make_several(shape)

    @jax.jit
    def run(*args):
        functions = [
            functools.partial(chunked_loss.score, chunk_rows=chunk) for chunk in CHUNKS
        ]
        values = [function(*args) for function in functions]
        return [pull(f, *args) for f in functions], values, pull(one_by_one, *args)

    results, values, expected = run(*args)
    assert expected[1].nll.shape == (*shape, 4) and expected[1].ranks.shape == shape
    for result, value in zip(results, values, strict=True):
        assert_alike(result, expected)
        assert_alike(value, expected[1])  # without a gradient


@pytest.mark.parametrize("chunk", [4, 100])
def test_further_targets_of_weight_zero_change_no_bit(chunk):
    x, kernel, bias, targets, weights = make_several((12,))
    weights = jnp.pad(jnp.sign(weights[:, :1]), ((0, 0), (0, 3)))

    @jax.jit
    def run(targets, weights):
        return pull(chunked_loss.score, x, kernel, bias, targets, weights, chunk)

    (grads, scores) = run(targets, weights)
    (expected_grads, expected) = run(targets[:, 0], weights[:, 0])
    assert_equal = functools.partial(jax.tree.map, np.testing.assert_array_equal)
    assert_equal((grads[:3], scores[:2]), (expected_grads[:3], expected[:2]))
    np.testing.assert_array_equal(grads[3][:, 0], expected_grads[3])
    assert expected.nll is None and (scores.nll[:, 1:] > 0).all()


def test_the_loss_of_each_target_has_no_gradient():
    x, *args = make_several((12,))
    for chunk in (4, 100):
        grad = jax.grad(lambda x, c=chunk: chunked_loss.score(x, *args, c).nll.sum())
        assert not grad(x).any()


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40))
def test_what_is_cut_up_is_joined_again(num_rows, num_chunks):
    rows = np.arange(2 * num_rows).reshape(num_rows, 2)
    pieces = chunked_loss._cut(rows, min(num_chunks, num_rows))
    assert len(pieces) == min(num_chunks, num_rows)
    assert pieces.shape[1] == -(-num_rows // len(pieces))
    np.testing.assert_array_equal(chunked_loss._join(pieces, num_rows), rows)


def test_the_gradient_is_scaled_by_what_follows():
    x, kernel, bias, targets, weights = make((12,))

    def total(x, factor):
        scores = chunked_loss.score(x, kernel, bias, targets, weights, 4)
        return factor * scores.loss[0]

    one, five = jax.grad(total)(x, 1.0), jax.grad(total)(x, 5.0)
    np.testing.assert_allclose(five, 5 * one, rtol=1e-6)
    np.testing.assert_array_equal(jax.grad(total)(x, 0.0), 0)


def test_weight_zero_counts_for_nothing():
    x, kernel, bias, targets, weights = make((13,))
    others = jnp.where(weights > 0, targets, (targets + 5) % V)
    run = jax.jit(lambda t: pull(chunked_loss.score, x, kernel, bias, t, weights, 4))
    (grads, scores), (other_grads, other_scores) = run(targets), run(others)
    assert_alike((grads[:3], scores.loss), (other_grads[:3], other_scores.loss))
    assert not np.asarray(grads[0])[np.asarray(weights) == 0].any()


def test_no_gradient_passes_nll():
    x, kernel, bias, targets, _ = make((12,))
    for chunk in (0, 4):
        grad = jax.grad(
            lambda x: chunked_loss.nll(x, kernel, bias, targets, chunk).sum()
        )
        assert not grad(x).any()


@pytest.mark.slow_except("1000")
@pytest.mark.parametrize("chunk", [1, 11, 20, 1000])
def test_samples_are_those_of_all_logits_at_once(chunk):
    args = make((6, 5))
    keys = jax.random.split(jax.random.key(9), 6)

    @jax.jit
    def run(temperature):
        sampling = keys, temperature
        options = {"chunk_rows": chunk, "sampling": sampling}
        chunked = functools.partial(chunked_loss.score, **options)
        return pull(chunked, *args), pull(plain, *args, sampling)

    for temperature in (0.7, 3.0):
        result, expected = run(temperature)
        assert result[1].samples.shape == (6, 5)
        assert_alike(result, expected)


def test_ties_are_misses_in_chunks_too():
    x, kernel, _, targets, weights = make((12,))
    scores = chunked_loss.score(x, 0 * kernel, None, targets, weights + 1, 4)
    np.testing.assert_array_equal(scores.ranks, V)
    assert losses.rank_hits(scores.ranks, weights + 1, k=5)[0] == 0
    spoilt = chunked_loss.score(x * jnp.nan, kernel, None, targets, weights, 4)
    np.testing.assert_array_equal(spoilt.ranks, 0)
    assert not np.isfinite(spoilt.loss[0])


def test_large_logits_stay_finite():
    x, kernel, bias, targets, weights = make((12,))
    args = 1e3 * x, kernel, bias, targets, weights
    result, expected = pull(chunked_loss.score, *args, 4), pull(plain, *args)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(result))
    assert_alike(result, expected)


def test_chunks_under_vmap_scan_and_pmap():
    args = [make((12,), seed=seed) for seed in range(2)]
    stack = jax.tree.map(lambda *leaves: jnp.stack(leaves), *args)
    one = functools.partial(pull, functools.partial(chunked_loss.score, chunk_rows=4))

    @jax.jit
    def run(args, stack):
        expected = [one(*a) for a in args]
        _, scanned = jax.lax.scan(lambda carry, a: (carry, one(*a)), 0, stack)
        return expected, jax.vmap(one)(*stack), scanned

    expected, *founds = run(args, stack)
    expected = jax.tree.map(lambda *leaves: jnp.stack(leaves), *expected)
    for result in founds:
        assert_alike(result, expected)
    alone = jax.tree.map(lambda leaf: leaf[:1], (stack, expected))
    assert_alike(jax.pmap(one)(*alone[0]), alone[1])


def test_bfloat16_multiplies_low_and_sums_high():
    low = make((64,), jnp.bfloat16)
    # Only the factors are rounded: of the forward pass, that is the inputs themselves.
    rounded = [x.astype(jnp.bfloat16).astype(jnp.float32) for x in low[:2]]
    chunked = functools.partial(chunked_loss.score, chunk_rows=16)

    @jax.jit
    def run(low, wide):
        return pull(chunked, *low), pull(chunked_loss.score, *low), pull(plain, *wide)

    (grads, scores), (whole_grads, whole), (wide_grads, wide) = run(
        low, (*rounded, *low[2:])
    )
    assert [grad.dtype.name for grad in grads] == ["bfloat16"] + 3 * ["float32"]
    np.testing.assert_allclose(scores.loss, wide.loss, rtol=1e-5)
    np.testing.assert_allclose(scores.loss, whole.loss, rtol=1e-5)
    for ours in (grads, whole_grads):
        for grad, wide_grad in zip(ours, wide_grads, strict=True):
            gap = np.abs(grad.astype(jnp.float32) - wide_grad).max()
            assert gap < 0.01 * np.abs(wide_grad).max()
    # XLA may leave out a rounding between products and sums, so the values do not show
    # it.
    program = str(jax.make_jaxpr(functools.partial(pull, chunked))(*low))
    made = re.findall(r":(\w+)\[[0-9,]*\] = dot_general", program)
    assert len(made) == 3 and set(made) == {"f32"}


@pytest.mark.parametrize(
    "num_rows, limit, num_devices, expected",
    [
        (8, 80, 1, 1),
        (8, 79, 1, 2),
        (8, 40, 1, 2),
        (8, 39, 1, 4),  # three would not divide them
        (7, 20, 1, 7),
        (11, 20, 1, 11),
        (11, 40, 1, 3),  # nor would any number up to five
        (7, 9, 1, 7),
        (1, 1, 1, 1),
        (48, 160, 8, 3),  # of 16 rows, two a device
        (48, 80, 8, 6),
        (40, 160, 8, 5),
        (24, 10, 8, 24),  # of one row, which no two devices can share
    ],
)
def test_the_number_of_chunks(num_rows, limit, num_devices, expected):
    chunks = chunked_loss.count_chunks(num_rows, 10, limit, num_devices)
    assert chunks == expected
    assert chunks == 1 or -(-num_rows // chunks) * 10 <= max(limit, 10)


def test_few_logits_are_taken_at_once_and_many_are_not(monkeypatch):
    monkeypatch.setattr(chunked_loss, "CPU_LIMIT", 12 * V)
    monkeypatch.setattr(chunked_loss, "MIN_ROWS", 3)

    def count_loops(num_rows, chunk=0, sampling=None):
        args = make(num_rows)

        def score(*args):
            return chunked_loss.score(*args, chunk, sampling)

        return str(jax.make_jaxpr(score)(*args)).count("scan[")

    assert count_loops((12,)) == 0 and count_loops((13,)) == 1
    assert count_loops((13,), chunk=13) == 0 and count_loops((12,), chunk=11) == 1
    keys = jax.random.split(jax.random.key(0), 2)
    assert count_loops((2, 6), sampling=(keys, 1.0)) == 0
    assert count_loops((2, 7), sampling=(keys, 1.0)) == 1
    monkeypatch.setattr(chunked_loss, "MIN_ROWS", 13)
    assert count_loops((13,)) == 0 and count_loops((14,)) == 1


@pytest.fixture(scope="module")
def by_shares():
    """What loss_by_shares.py prints, by case."""
    path = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    env = os.environ | many_devices(8) | {"PYTHONPATH": path}
    command = [sys.executable, TESTS / "ops" / "loss_by_shares.py"]
    printed = subprocess.run(
        command, env=env, check=True, capture_output=True, text=True, timeout=300
    ).stdout
    output = [json.loads(line) for line in printed.splitlines()]
    return {each.pop("case"): each for each in output}


def test_meshes_change_nothing(by_shares):
    assert len(by_shares) == 6 * 2 * 4
    for case, output in by_shares.items():
        assert output["difference"] < 2e-6, case


def test_rows_that_are_shared_out_need_one_exchange(by_shares):
    """Not one in each chunk, whatever the kernel is split over; tensor has its own."""
    for case, output in by_shares.items():
        if "16 rows" in case and "tensor" not in case:
            assert output["in_loops"] == [], case
    assert by_shares["score, 13 rows, fsdp 8"]["in_loops"]  # these do not divide


def test_the_kernels_gradient_stays_where_the_kernel_lies():
    """Of a matrix each device of fsdp gets its part, of a vector all have the sum."""
    names = ("data", "fsdp", "tensor")
    mesh = AbstractMesh((2, 4, 1), names, axis_types=(AxisType.Auto,) * 3)
    x, kernel, bias, targets, weights = make((16, 6))

    def total(kernel, bias):
        return chunked_loss.score(x, kernel, bias, targets, weights, 3).loss[0]

    with jax.sharding.use_abstract_mesh(mesh):
        program = str(jax.make_jaxpr(jax.grad(total, (0, 1)))(kernel, bias))
    assert program.count("reduce_scatter[") == 1 and "axes=('data', 'fsdp')" in program
    assert "float32[2,37]" in program or "f32[2,37]" in program  # E / 4


@pytest.mark.parametrize("names", [("data",), ("rows", "columns")])
def test_a_mesh_of_other_axes_is_none_of_ours(names):
    x, kernel, bias, targets, weights = make((16, 6))
    automatic = (AxisType.Auto,) * len(names)
    mesh = AbstractMesh((2,) * len(names), names, axis_types=automatic)
    with jax.sharding.use_abstract_mesh(mesh):
        program = str(
            jax.make_jaxpr(
                lambda x: chunked_loss.score(x, kernel, bias, targets, weights, 3).loss
            )(x)
        )
    assert "shard_map" not in program
