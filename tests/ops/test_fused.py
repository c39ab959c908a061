"""Fused attention against the plainest jnp, for every kind of mask.

Splash runs interpreted on CPU. What is handed to cuDNN is computed by XLA here, and by
cuDNN with `-m gpu`.
"""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.cudnn import fused_attention_stablehlo
from ops.alike import naive_attend, normal

from jaxpt.nn.stacks import POLICIES
from jaxpt.ops import attention, masks

B, N, K, H = 2, 4, 2, 64


def make_masks(length, num_keys):
    """Every kind, for rows of two documents and some padding."""
    places, half, end = np.arange(length), length // 2 - 3, length - 5
    ids = [np.where(places < cut, 1, 2) * (places < end) for cut in (half, 9)]
    ids = jnp.array(ids, jnp.int32)
    key_ids = jnp.array([[1, 2], [2, 1]]).repeat(num_keys // 2, axis=1)
    lengths = jnp.array([num_keys - 7, num_keys // 3], jnp.int32)
    if length != num_keys:
        return {
            "full": masks.full(),
            "padded": masks.key_padding(lengths),
            "segments": masks.segments(ids, key_ids),
        }
    return {
        "full": masks.full(),
        "causal": masks.causal(),
        "padded": masks.key_padding(lengths),
        "causal padded": masks.AttnMask(causal=True, key_lengths=lengths),
        "segments": masks.segments(ids),
        "causal segments": masks.causal(ids),
        "segments padded": masks.AttnMask(
            query_segments=ids, key_segments=ids, key_lengths=lengths
        ),
        "prefix": masks.prefix(lengths // 2),
        "prefixes": masks.prefix_keys(jnp.arange(length) % 5 < ids, ids),
        "window": masks.local(masks.full(), 3, length),
        "causal window": masks.local(masks.causal(), 3, length),
        "causal segments window": masks.local(masks.causal(ids), 9, length),
        "array": jax.random.bernoulli(jax.random.key(5), 0.5, (B, 1, length, length)),
        "one array": jax.random.bernoulli(
            jax.random.key(6), 0.5, (1, 1, length, length)
        ),
    }


def make_inputs(length, num_keys, dtype=jnp.float32):
    shapes = (B, length, N, H), (B, num_keys, K, H), (B, num_keys, K, H)
    return [normal(i, *shape, dtype=dtype) for i, shape in enumerate(shapes)]


def compare(function, mask, inputs, bias=None, tolerance=2e-5):
    """Values and gradients, but of queries that see nothing and carry no loss."""
    q, k, v = inputs
    visible = masks.materialise(mask, q.shape[1], k.shape[1])
    sees = visible.any(-1)[:, 0, :, None, None]
    cotangent = jnp.where(sees, normal(9, *q.shape), 0)
    inputs = (q, k, v) if bias is None else (q, k, v, bias)

    def naive(q, k, v, bias=0.0):
        wide = [x.astype(jnp.float32) for x in (q, k, v)]
        wide[1:] = [jnp.repeat(x, N // K, 2) for x in wide[1:]]
        return naive_attend(*wide, visible, bias)

    def run(function):
        def total(*inputs):
            out = jnp.where(sees, function(*inputs), 0)
            return (out * cotangent).sum(), out

        (_, out), grads = jax.value_and_grad(
            total, tuple(range(len(inputs))), has_aux=True
        )(*inputs)
        return out, grads

    result, expected = jax.jit(lambda: (run(function), run(naive)))()
    for one, two in zip(
        jax.tree.leaves(result), jax.tree.leaves(expected), strict=True
    ):
        one, two = (np.asarray(x, np.float32) for x in (one, two))
        assert np.isfinite(one).all()
        np.testing.assert_allclose(one, two, rtol=tolerance, atol=tolerance)


LENGTHS = [(16, 16), (16, 24)]
KINDS = [(*sizes, kind) for sizes in LENGTHS for kind in make_masks(*sizes)]


@pytest.mark.slow_cases(
    "16-16-full",
    "16-24-full",
    "16-16-causal",
    "16-16-padded",
    "16-24-padded",
    "16-16-segments",
)
@pytest.mark.parametrize("length, num_keys, kind", KINDS)
def test_what_cudnn_is_handed_says_what_the_mask_says(length, num_keys, kind):
    mask = make_masks(length, num_keys)[kind]
    run = functools.partial(attention.attend_cudnn, mask=mask, implementation="xla")
    compare(run, mask, make_inputs(length, num_keys))


@pytest.mark.parametrize("kind", ["full", "causal", "padded"])
def test_cudnn_is_handed_the_bias(kind):
    mask, bias = make_masks(16, 16)[kind], normal(3, 1, N, 16, 16)

    def run(q, k, v, bias):
        return attention.attend_cudnn(q, k, v, mask, bias, implementation="xla")

    compare(run, mask, make_inputs(16, 16), bias)


@pytest.mark.parametrize(
    "kind, with_array, is_causal, with_lengths",
    [
        ("full", False, False, False),
        ("causal", False, True, False),
        ("padded", False, False, True),
        ("causal padded", False, True, True),
        ("segments", True, False, False),
        ("causal segments", True, True, False),
        ("prefix", True, False, False),
        ("prefixes", True, False, False),
        ("array", True, False, False),
        ("one array", True, False, False),
    ],
)
def test_cudnn_gets_flags_and_lengths_before_arrays(
    kind, with_array, is_causal, with_lengths, monkeypatch
):
    calls = []

    def record(q, k, v, bias, mask, **rest):
        calls.append((mask, rest, bias))
        return q

    monkeypatch.setattr(jax.nn, "dot_product_attention", record)
    inputs = make_inputs(16, 16, jnp.bfloat16)
    attention.attend_cudnn(*inputs, make_masks(16, 16)[kind], jnp.zeros((1, N, 16, 16)))
    ((mask, rest, bias),) = calls
    assert rest["implementation"] == "cudnn" and rest["is_causal"] == is_causal
    assert (rest["key_value_seq_lengths"] is not None) == with_lengths
    assert (mask is not None) == with_array
    if with_array:  # what it takes: bool, over the whole batch, one head
        assert mask.dtype == jnp.bool_ and mask.shape == (B, 1, 16, 16)
    assert bias.dtype == jnp.bfloat16


def test_cudnn_gets_no_query_without_keys(monkeypatch):
    # Found on an H200: the gradient of such a query was NaN, also without a loss.
    calls = []

    def record(q, k, v, mask, **rest):
        calls.append(mask)
        return q

    monkeypatch.setattr(jax.nn, "dot_product_attention", record)
    mask = make_masks(16, 24)["segments"]  # of padding, which no key has
    attention.attend_cudnn(*make_inputs(16, 24, jnp.bfloat16), mask)
    visible = masks.materialise(mask, 16, 24)
    sees = visible.any(-1, keepdims=True)
    assert not sees.all()
    np.testing.assert_array_equal(calls[0], jnp.where(sees, visible, True))


def test_no_keys_at_all_give_cudnn_a_length_of_one():
    mask = masks.key_padding(jnp.array([0, 3]))
    q, k, v = make_inputs(16, 16)
    run = functools.partial(attention.attend_cudnn, mask=mask, implementation="xla")
    out, pull = jax.vjp(run, q, k, v)
    assert all(np.isfinite(x).all() for x in (out, *pull(out)))


SPLASH = [
    (256, 256, "causal"),
    (256, 256, "segments"),
    (256, 256, "causal segments"),
    (128, 256, "full"),
    (128, 128, "segments padded"),
    (256, 256, "window"),
    (256, 256, "causal window"),
    (256, 256, "causal segments window"),
]


@pytest.mark.slow_cases(
    "256-256-causal",
    "256-256-segments",
    "256-256-causal segments",
    "128-128-segments padded",
)
@pytest.mark.parametrize("length, num_keys, kind", SPLASH)
def test_splash(length, num_keys, kind):
    mask = make_masks(length, num_keys)[kind]
    run = functools.partial(attention.attend_splash, mask=mask, interpret=True)
    compare(run, mask, make_inputs(length, num_keys))


@pytest.mark.slow_except("xla")
@pytest.mark.parametrize("kernel", ["cudnn", "splash", "xla"])
def test_packed_documents_do_not_leak(kernel):
    length = 128
    mask = make_masks(length, length)["causal segments"]
    functions = {
        "cudnn": functools.partial(attention.attend_cudnn, implementation="xla"),
        "splash": functools.partial(attention.attend_splash, interpret=True),
        "xla": functools.partial(attention.attend, kernel="xla"),
    }
    is_first = (mask.query_segments == 1)[:, :, None, None]

    @jax.jit
    def run(*inputs):
        def total(*inputs):
            out = jnp.where(is_first, functions[kernel](*inputs, mask=mask), 0)
            return (out**2).sum(), out

        return jax.grad(total, (0, 1, 2), has_aux=True)(*inputs)

    inputs = make_inputs(length, length)
    grads, out = run(*inputs)
    noisy_grads, noisy_out = run(*(jnp.where(is_first, x, 50 * x + 7) for x in inputs))
    np.testing.assert_array_equal(out, noisy_out)
    for grad, noisy_grad in zip(grads, noisy_grads, strict=True):
        np.testing.assert_array_equal(grad, noisy_grad)
        assert not np.where(is_first, 0, grad).any()
        assert np.abs(np.where(is_first, grad, 0)).max() > 1e-3


@pytest.mark.slow_cases("64")
@pytest.mark.parametrize("width", [64, 128])
def test_splash_is_accepted_by_the_tpu_compilers_front_end(width):
    mask = make_masks(256, 256)["causal segments"]

    def total(q, k, v):
        return attention.attend_splash(q, k, v, mask).astype(jnp.float32).sum()

    shapes = [(B, 256, heads, width) for heads in (N, K, K)]
    args = [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in shapes]
    step = jax.jit(jax.grad(total, (0, 1, 2)))
    program = jax.export.export(step, platforms=["tpu"])(*args).mlir_module()
    assert program.count("tpu_custom_call") >= 2  # forward, and one for all gradients


@pytest.mark.parametrize("kernel", ["cudnn", "splash"])
def test_remat_of_all_but_products_keeps_what_fused_attention_gives(
    kernel, monkeypatch
):
    """Its forward kernel runs once, because its custom call is not a product."""
    fused = fused_attention_stablehlo
    monkeypatch.setattr(fused, "check_cudnn_version", lambda: 91000)
    monkeypatch.setattr(fused, "check_compute_capability", lambda least: True)
    monkeypatch.setattr(fused, "is_cuda_compute_capability_equal", lambda it: False)
    attend = {
        "cudnn": functools.partial(attention.attend_cudnn, mask=masks.causal()),
        "splash": functools.partial(attention.attend_splash, mask=masks.causal()),
    }[kernel]
    shapes = [(B, 256, heads, 64) for heads in (N, K, K)]
    args = [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in shapes]

    def count(policy) -> int:
        def total(*args):
            return attend(*args).astype(jnp.float32).sum()

        kept = jax.checkpoint(total, policy=policy)
        program = str(jax.make_jaxpr(jax.grad(kept, (0, 1, 2)))(*args))
        names = {
            "cudnn": r"= dot_product_attention_fwd\w*\[",
            "splash": r"name=splash_mha_fwd",
        }
        return len(re.findall(names[kernel], program))

    assert count(POLICIES["full"]) > count(POLICIES["dots"]) == 1


@pytest.mark.gpu
@pytest.mark.parametrize(
    "length, num_keys, kind",
    [
        (*n, kind)
        for n in ((128, 128), (128, 64))
        for kind in make_masks(*n)
        if kind != "window"  # on both sides, which cuDNN has not
    ],
)
def test_cudnn(length, num_keys, kind):
    mask = make_masks(length, num_keys)[kind]
    run = functools.partial(attention.attend, mask=mask, kernel="cudnn")
    compare(run, mask, make_inputs(length, num_keys, jnp.bfloat16), tolerance=0.03)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["full", "causal", "padded"])
def test_cudnn_with_a_bias(kind):
    mask, bias = make_masks(128, 128)[kind], normal(3, 1, N, 128, 128)

    def run(q, k, v, bias):
        return attention.attend(q, k, v, mask, bias, kernel="cudnn")

    compare(run, mask, make_inputs(128, 128, jnp.bfloat16), bias, tolerance=0.03)


@pytest.mark.gpu
def test_cudnn_keeps_packed_documents_apart():
    mask = make_masks(128, 128)["causal segments"]
    is_first = (mask.query_segments == 1)[:, :, None, None]

    def total(*inputs):
        out = attention.attend(*inputs, mask, kernel="cudnn").astype(jnp.float32)
        return (jnp.where(is_first, out, 0) ** 2).sum()

    for grad in jax.grad(total, (0, 1, 2))(*make_inputs(128, 128, jnp.bfloat16)):
        assert not np.where(is_first, 0, grad).any()
