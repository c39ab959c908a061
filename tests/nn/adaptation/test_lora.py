"""LoRA: where it begins, what it adds, and that it can be added up."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nn.adaptation.networks import T5, make, make_batch, make_model, paths_of, shake
from tiny import slow_but

from jaxpt.nn.adaptation import lora
from jaxpt.nn.adaptation.adapt import adapted, init_extra, merge
from jaxpt.nn.adaptation.adapt_spec import AdaptSpec

LORA = AdaptSpec("lora", rank=2)
KINDS = ("encoder", "causal", "prefix", "encoder_decoder", "electra", "student")
every_kind = pytest.mark.parametrize("kind", slow_but(("encoder_decoder",), KINDS))


def add_all(kind, spec=LORA, **values):
    network, params = make(kind, **values)
    batch = make_batch()
    if kind == "encoder_decoder":
        batch |= {"dec_inputs": batch["inputs"]}
        batch |= {"dec_segment_ids": batch["segment_ids"]}
    read = lambda params: network.task_states(params, batch)  # noqa: E731
    return network, params, batch, init_extra(spec, read, params, jax.random.key(0))


def test_the_merged_matrix_by_hand():
    """W, A, B as in loralib: of which ours are the transposes."""
    kernel = jnp.array([[1.0, 2.0], [3.0, 4.0]]).T
    extra = {"x": {"a": jnp.array([[1.0], [-1.0]]), "b": jnp.array([[0.5, 2.0]])}}
    spec = AdaptSpec("lora", rank=1, alpha=16)
    merged = lora.merge(spec, {"x": {"kernel": kernel, "bias": jnp.ones(2)}}, extra)
    assert merged["x"]["kernel"].T.tolist() == [[9, -6], [35, -28]]
    assert merged["x"]["bias"].tolist() == [1, 1]


@pytest.mark.parametrize("rslora, scale", [(False, 16 / 8), (True, 16 / math.sqrt(8))])
def test_the_scale(rslora, scale):
    spec = AdaptSpec("lora", rank=8, alpha=16, rslora=rslora)
    assert spec.scale == pytest.approx(scale)


def test_a_is_uniform_in_one_over_the_root_of_the_inputs_and_b_is_zero():
    spec = AdaptSpec("lora", rank=512)
    _, _, _, extra = add_all("encoder", spec)
    own = extra["encoder"]["layer_1"]["attention"]["value"]
    assert own["a"].shape == (16, 512) and own["b"].shape == (512, 16)
    a = np.asarray(own["a"])
    assert np.abs(a).max() <= 0.25 and np.abs(a).max() > 0.249
    assert a.std() == pytest.approx(0.25 / math.sqrt(3), rel=0.02)
    assert not np.any(np.asarray(own["b"]))
    other = extra["encoder"]["layer_0"]["attention"]["value"]["a"]
    assert np.any(np.asarray(other) != a)


@every_kind
def test_at_step_0_it_is_the_network_bit_for_bit(kind):
    network, params, batch, extra = add_all(kind, dropout=0.5, num_layers=1)

    @jax.jit
    def read(extra):
        with adapted(LORA, extra):
            return [network.task_states(params, batch, rngs=rngs) for rngs in KEYS]

    base = jax.jit(
        lambda: [network.task_states(params, batch, rngs=rngs) for rngs in KEYS]
    )()
    for one, two, other in zip(read(extra), base, read(shake(extra))):
        np.testing.assert_array_equal(one, two)
        assert np.abs(other - two).max() > 1e-2


KEYS = (None, {"dropout": jax.random.key(3)})


@every_kind
def test_merged_is_unmerged(kind):
    spec = AdaptSpec("lora", rank=3, rslora=True, targets=("query", "value", "down"))
    network, params, batch, extra = add_all(kind, spec, num_layers=1)
    extra = shake(extra)

    @jax.jit
    def read(params, extra):
        with adapted(spec, extra):
            return network.task_states(params, batch)

    merged, unmerged = read(merge(spec, params, extra), {}), read(params, extra)
    np.testing.assert_allclose(merged, unmerged, atol=1e-5, rtol=1e-5)


@settings(max_examples=8)
@given(
    st.integers(1, 6),
    st.integers(1, 6),
    st.integers(1, 4),
    st.floats(0.5, 32),
    st.booleans(),
)
def test_a_merged_matrix_gives_what_both_give(fan_in, fan_out, rank, alpha, rslora):
    spec = AdaptSpec("lora", rank=rank, alpha=alpha, rslora=rslora)
    draw = np.random.default_rng(rank).normal
    w, a, b, x = (
        draw(size=shape).astype(np.float32)
        for shape in ((fan_in, fan_out), (fan_in, rank), (rank, fan_out), (3, fan_in))
    )
    merged = lora.merge(spec, {"m": {"kernel": w}}, {"m": {"a": a, "b": b}})
    expected = x @ w + spec.scale * (x @ a) @ b
    np.testing.assert_allclose(
        x @ merged["m"]["kernel"], expected, rtol=1e-3, atol=1e-3
    )


def test_targets_name_whole_ends_of_paths():
    spec = AdaptSpec("lora", rank=2, targets=("attention/out", "up"))
    _, _, _, extra = add_all("encoder_decoder", spec)
    result = {path.rpartition("/")[0] for path in paths_of(extra)}
    assert result == {
        *(f"encoder/layer_{i}/{name}" for i in (0, 1) for name in ENDS),
        *(f"decoder/layer_0/{name}" for name in ENDS),
    }


ENDS = ("attention/out", "mlp/up")


def test_only_what_a_task_calls_is_added_to():
    """A classifier that reads the encoder alone has no addition in the decoder."""
    network, params = make("encoder_decoder")
    read = lambda params: network.task_states(params, make_batch())  # noqa: E731
    extra = init_extra(LORA, read, params, jax.random.key(0))
    assert list(extra) == ["encoder"]


def test_a_target_that_there_is_not_is_refused(refuses):
    spec = AdaptSpec("lora", targets=("query", "gate"))
    with refuses("adapt.targets", "gate", "down, key, out, query, up, value"):
        add_all("encoder", spec)
    with refuses("adapt.targets", "query", "it has none"):
        add_all("skip_gram")
    with refuses("adapt.targets", "query", "carry_0"):
        add_all("bilm")


def test_the_lstms_of_a_bilm_can_be_added_to():
    spec = AdaptSpec("lora", rank=2, targets=("input",))
    network, params, batch, extra = add_all("bilm", spec)
    assert len(paths_of(extra)) == 2 * 2 * 2

    @jax.jit
    def read(params, extra):
        with adapted(spec, extra):
            return network.task_states(params, batch)

    base = read(params, {})
    np.testing.assert_array_equal(read(params, extra), base)
    extra = shake(extra)
    result = read(params, extra)
    assert np.abs(result - base).max() > 1e-2
    merged = read(merge(spec, params, extra), {})
    np.testing.assert_allclose(result, merged, atol=1e-5, rtol=1e-5)


def test_dropout_is_of_what_the_addition_reads_and_in_training_alone():
    network, params, batch, extra = add_all("encoder")
    extra, spec = shake(extra), dataclasses.replace(LORA, dropout=0.5)

    @functools.partial(jax.jit, static_argnums=0)
    def read(spec, extra, rngs):
        with adapted(spec, extra):
            return network.task_states(params, batch, rngs=rngs)

    keys = [{"dropout": jax.random.key(i)} for i in (0, 1)]
    base = read(LORA, extra, None)
    np.testing.assert_array_equal(read(LORA, extra, keys[0]), base)
    np.testing.assert_array_equal(read(spec, extra, None), base)
    dropped = [np.asarray(read(spec, extra, key)) for key in keys]
    assert np.abs(dropped[0] - base).max() > 1e-2
    assert np.abs(dropped[0] - dropped[1]).max() > 1e-2
    # The network's own input is not dropped: with B = 0 nothing is.
    zeros = jax.tree.map(jnp.zeros_like, extra)
    np.testing.assert_array_equal(read(spec, zeros, keys[0]), read(spec, zeros, None))


def test_in_bfloat16_states_keep_their_type():
    network, params, batch, extra = add_all("encoder", dtype="bfloat16")

    @jax.jit
    def read(extra):
        with adapted(LORA, extra):
            return network.task_states(params, batch)

    states = read(extra)
    assert states.dtype == jnp.bfloat16
    np.testing.assert_array_equal(states, read({}))


def test_the_first_gradient_is_of_b_alone():
    model, state, _ = make_model("encoder", LORA, **T5)
    batch = make_batch()
    grads = jax.jit(
        jax.grad(
            lambda extra: jnp.square(
                model.outputs(state | {"extra": extra}, batch, None)
            ).sum()
        )
    )(state["extra"])
    for path, grad in paths_of(grads).items():
        assert np.any(np.asarray(grad)) == path.endswith("/b"), path
