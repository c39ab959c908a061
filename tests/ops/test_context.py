"""Attention over spans of rows on several devices against attention on one."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun
from jax.sharding import AbstractMesh, AxisType, use_abstract_mesh
from ops.alike import naive_attend, normal
from tiny import many_devices, slow

from jaxpt.ops import attention, context, kernels, layout, masks
from jaxpt.runs.sharding import AXES

TESTS = Path(__file__).resolve().parents[1]


def on_mesh(*shape):
    return use_abstract_mesh(
        AbstractMesh(shape, AXES, axis_types=len(AXES) * (AxisType.Auto,))
    )


@pytest.mark.parametrize(
    "mesh",
    [
        "data 2, context 4",
        slow("context 4"),
        slow("fsdp 2, context 2, tensor 2"),
    ],
)
def test_spans_change_nothing(mesh):
    """Outputs and gradients of all masks, biases and options, and of a single row."""
    path = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    printed = subprocess.run(
        [sys.executable, TESTS / "ops" / "attention_by_spans.py", mesh],
        env=os.environ | many_devices(8) | {"PYTHONPATH": path},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    output = [json.loads(line) for line in printed.splitlines()]
    assert len(output) == 2 and all(each["exchanged"] for each in output)
    assert [len(each["differences"]) for each in output] == [24, 4]
    for each in output:
        for case, difference in each["differences"].items():
            assert difference < 1e-5, (each["case"], case)


NUM, SIZE = 4, 3  # spans of a row, and their lengths
SEGMENTS = jnp.array([[1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 0, 0], [1] * NUM * SIZE])
# Without a mesh, `vmap` with the name of the axis is the devices.
EACH = {
    "causal": masks.causal(),
    "causal segments": masks.causal(SEGMENTS),
    "prefix keys": masks.prefix_keys(SEGMENTS == 2, SEGMENTS),
    "window": masks.local(masks.segments(SEGMENTS), 4, NUM * SIZE),
}


def cut(x):
    """[B, T, ...] -> [spans, B, T / spans, ...]."""
    return x.reshape(len(x), NUM, SIZE, *x.shape[2:]).swapaxes(0, 1)


def join(x):
    return x.swapaxes(0, 1).reshape(x.shape[1], -1, *x.shape[3:])


def pull_on_spans(run, mask, inputs, cotangent):
    """run(mask, *inputs) of each span and the gradients, for arrays [B, T, ...]."""

    def pull(mask, inputs, cotangent):
        out, transpose = jax.vjp(lambda *inputs: run(mask, *inputs), *inputs)
        return out, *transpose(cotangent)

    each = jax.vmap(pull, axis_name=layout.LENGTH_AXIS)
    cuts = jax.tree.map(cut, (mask, inputs, cotangent))
    return jax.tree.map(join, each(*cuts))


def attend_ring(mask, q, k, v):
    own = q.reshape(*q.shape[:2], k.shape[2], -1, q.shape[3])
    return context._ring(own, k, v, None, mask, 0.0).reshape(q.shape)


def attend_gathered(mask, q, k, v):
    """The function that `context.attend_gathered` gives each device."""
    plain = functools.partial(attention.attend_cudnn, implementation="xla")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context, "_on_spans", lambda run, *args: run(*args))
        return context.attend_gathered(
            lambda q, k, v, mask, bias: plain(q, k, v, mask, bias), q, k, v, mask
        )


@pytest.mark.parametrize("name", EACH)
def test_spans_of_one_device(name):
    mask = EACH[name]
    length = NUM * SIZE
    visible = masks.materialise(mask, length, length)
    sees = visible.any(-1)[:, 0, :, None, None]
    inputs = [normal(i, 2, length, n, 8) for i, n in enumerate((4, 2, 2))]

    cotangent = jnp.where(sees, normal(9, *inputs[0].shape), 0)

    def naive(q, k, v):
        k, v = (jnp.repeat(x, 2, 2) for x in (k, v))
        return naive_attend(q, k, v, visible)

    @jax.jit  # one program for all, since most of a test's time is compiling
    def run_all(*inputs):
        out, transpose = jax.vjp(naive, *inputs)
        others = [
            pull_on_spans(run, mask, inputs, cotangent)
            for run in (attend_ring, attend_gathered)
        ]
        return (out, *transpose(cotangent)), *others

    expected, *others = run_all(*inputs)
    for out, *grads in others:
        first = jnp.where(sees, out - expected[0], 0)
        np.testing.assert_allclose(first, jnp.zeros_like(first), atol=2e-5)
        for own, other in zip(grads, expected[1:], strict=True):
            np.testing.assert_allclose(own, other, rtol=2e-5, atol=2e-5)


def make_sums(logits, values):
    """The softmax of spans of keys in this order: [B, K, G, T, S] and [B, S, K, H]."""
    shape = logits[0].shape[:4]
    width = values[0].shape[-1]
    sums = context._Sums(
        jnp.zeros((shape[0], shape[3], *shape[1:3], width)),
        jnp.full(shape, -jnp.inf),
        jnp.zeros(shape),
    )
    for pair in zip(logits, values, strict=True):
        sums = context._add(sums, *pair)
    return sums.out / context._by_query(sums.total)


def test_a_softmax_by_spans_by_hand():
    """Logits 0, ln 3 and then ln 4 have the weights 1/8, 3/8 and 4/8."""
    logits = [jnp.log(jnp.array(x)).reshape(1, 1, 1, 1, -1) for x in ([1.0, 3], [4.0])]
    values = [jnp.array(x).reshape(1, -1, 1, 1) for x in ([8.0, 16], [32.0])]
    expected = 1 + 6 + 16
    for order in (1, -1):
        result = make_sums(logits[::order], values[::order])
        assert result.item() == pytest.approx(expected, rel=1e-6)


def test_greater_logits_later_do_not_overflow():
    sizes = (-500.0, 0.0, 500.0)
    logits = [size + normal(1, 1, 2, 2, 3, 4) for size in sizes]
    values = [normal(i, 1, 4, 2, 5) for i in range(3)]
    last = jnp.einsum("BKGTS,BSKH->BTKGH", jax.nn.softmax(logits[2], -1), values[2])
    np.testing.assert_allclose(make_sums(logits, values), last, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        make_sums(logits[::-1], values[::-1]), last, rtol=1e-5, atol=1e-6
    )


def test_a_query_that_sees_no_key_gets_the_mean():
    hidden = [jnp.full((1, 1, 1, 1, 2), masks.MASK_VALUE)] * 2
    values = [jnp.array(x).reshape(1, 2, 1, 1) for x in ([1.0, 3], [5.0, 7])]
    assert make_sums(hidden, values).item() == 4


def test_spans_of_lengths():
    assert layout.count_spans(8) == 1  # no mesh
    with on_mesh(2, 1, 4, 1):
        assert layout.count_spans(8) == layout.count_spans(8, 12) == 4
        assert layout.count_spans(8, 6) == layout.count_spans() == 1
        parts = [layout.count_parts(x) for x in ((2, 8, 3), (2, 6), (3, 8), (2,))]
        assert parts == [8, 2, 1, 2]
        assert kernels.count_devices() == 8
    with on_mesh(2, 1, 1, 4):
        assert layout.count_spans(8) == 1


def trace(*shapes, **how):
    """The program of causal attention to T queries and S keys."""
    inputs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    mask = masks.full() if shapes[0][1] != shapes[1][1] else masks.causal()
    run = jax.make_jaxpr(lambda q, k, v: attention.attend(q, k, v, mask, **how))
    return str(run(*inputs, inputs[1]))


def test_which_attention_goes_round():
    q = (2, 8, 4, 8)
    with on_mesh(2, 1, 4, 1):
        assert "ppermute" in trace(q, (2, 8, 2, 8))
        assert "ppermute" in trace(q, (2, 12, 4, 8))  # cross-attention
        # Keys that four devices do not divide, and dropout of weights.
        dropped = {"dropout_rate": 0.5, "rng": jax.random.key(0)}
        others = trace(q, (2, 6, 4, 8)), trace(q, q, **dropped)
    with on_mesh(4, 1, 1, 2):
        others += (trace(q, q),)
    assert not any("ppermute" in program for program in (*others, trace(q, q)))


def test_a_device_never_has_the_keys_of_a_whole_row():
    with on_mesh(1, 1, 4, 1):
        program = trace((1, 64, 2, 8), (1, 64, 2, 8))
    assert "1,16,2,8" in program  # a span of keys
    assert "16,16]" in program and "64,64]" not in program  # logits


def test_products_keep_rows_and_positions_apart():
    """In one axis they could not be sharded by both."""
    x, kernel, bias = normal(0, 2, 8, 3), normal(1, 3, 5), normal(2, 5)
    for dtype in (jnp.float32, jnp.bfloat16):
        low = x.astype(dtype)

        def total(low, kernel, bias):
            return kernels.dense(low, kernel, bias).astype(jnp.float32).sum()

        pull = jax.value_and_grad(total, (0, 1, 2))
        expected = pull(low, kernel, bias)
        with on_mesh(2, 1, 4, 1):
            program = jax.make_jaxpr(pull)(low, kernel, bias)
        assert "[16,3]" not in str(program)
        result = jaxpr_as_fun(program)(low, kernel, bias)
        pairs = zip(result, jax.tree.leaves(expected), strict=True)
        for own, other in pairs:
            np.testing.assert_allclose(
                own.astype(jnp.float32), other.astype(jnp.float32), rtol=2e-2, atol=1e-5
            )
