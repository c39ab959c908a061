"""Sums, weights and microbatches: cutting a batch never changes its gradient."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxpt.learn import update
from jaxpt.learn.state import TrainState, make_state


def test_terms_are_divided_by_the_whole_batchs_weight():
    terms = {"a": (6.0, 1.0), "b": (5.0, 2.0)}
    totals, coefficients = {"a": 3.0, "b": 10.0}, {"a": 1.0, "b": 50.0}
    assert update.weigh(terms, totals, coefficients) == 6 / 3 + 50 * 5 / 10
    assert update.weigh({"a": (0.0, 0.0)}, {"a": 0.0}, {"a": 1.0}) == 0


def squared(params, batch, rngs, total):
    """A weighted squared error; its weights differ from row to row."""
    out = batch["x"] @ params["w"]
    error = ((out - batch["y"]) ** 2 * batch["weights"]).sum()
    return error / total, {"loss": (error, batch["weights"].sum())}


@pytest.mark.parametrize("num_microbatches", [1, 2, 4, 8])
def test_microbatches_add_up_to_the_batchs_gradient(num_microbatches):
    draw = np.random.default_rng(0).normal
    batch = {
        "x": jnp.array(draw(size=(8, 3)), jnp.float32),
        "y": jnp.array(draw(size=8), jnp.float32),
        "weights": jnp.array([0, 1, 5, 0, 0, 2, 1, 7.0]),
    }
    params = {"w": jnp.array(draw(size=3), jnp.float32)}
    grads, metrics = update.accumulate(
        functools.partial(squared, total=16.0),
        params,
        batch,
        {"dropout": jax.random.key(0)},
        num_microbatches,
    )
    x, y, w = (np.asarray(batch[k], np.float64) for k in ("x", "y", "weights"))
    error = x @ np.asarray(params["w"], np.float64) - y
    np.testing.assert_allclose(grads["w"], 2 * x.T @ (error * w) / 16, rtol=1e-5)
    np.testing.assert_allclose(metrics["loss"][0], (error**2 * w).sum(), rtol=1e-5)
    assert metrics["loss"][1] == 16


def noise(params, batch, rngs):
    """Reports what each row would drop, and what it would sample."""
    index, sample = batch["index"], jax.random.uniform(rngs["sample"])
    drop = jax.random.uniform(rngs["dropout"], index.shape)
    metrics = {
        f"drop_{i}": (jnp.where(index == i, drop, 0).sum(), 1.0) for i in range(4)
    }
    return params.sum(), metrics | {"sample": (sample, 1.0)}


def test_microbatches_drop_apart_and_sample_alike():
    rngs = {"dropout": jax.random.key(0), "sample": jax.random.key(1)}
    batch = {"index": jnp.arange(4)}
    _, metrics = update.accumulate(noise, jnp.ones(2), batch, rngs, 4)
    drops = {float(metrics[f"drop_{i}"][0]) for i in range(4)}
    assert len(drops) == 4 and 0.0 not in drops
    np.testing.assert_allclose(
        metrics["sample"][0], 4 * jax.random.uniform(rngs["sample"]), rtol=1e-6
    )


def test_every_nth_row_makes_a_microbatch():
    batch = {"index": jnp.arange(6)}

    def loss_fn(params, micro, rngs):
        first = micro["index"][0]
        return params * first, {"spread": (micro["index"][-1] - first, 1)}

    _, metrics = update.accumulate(
        loss_fn, jnp.float32(1), batch, {"dropout": jax.random.key(0)}, 2
    )
    assert metrics["spread"] == (8, 2)  # 0 2 4 and 1 3 5: four apart, twice


def test_devices_drop_apart_and_sums_add_over_them():
    def one(index):
        rngs = {"dropout": jax.random.key(0), "sample": jax.random.key(1)}
        batch = {"index": index[None]}
        _, metrics = update.accumulate(noise, jnp.ones(2), batch, rngs, 1, axis="batch")
        return metrics["drop_0"][0], update.add_devices(index, "batch")

    # vmap names an axis as pmap does, on one device.
    drops, totals = jax.vmap(one, axis_name="batch")(jnp.zeros(3, jnp.int32))
    assert len(set(np.asarray(drops).tolist())) == 3
    _, totals = jax.vmap(one, axis_name="batch")(jnp.arange(3))
    assert totals.tolist() == [3, 3, 3]
    assert update.add_devices({"a": 2}, None) == {"a": 2}


def test_the_norm_is_of_the_whole_gradient_and_so_is_the_clip():
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(1.0))
    state = make_state({"a": jnp.zeros(2), "b": jnp.zeros(())}, optimizer)

    def loss_fn(params, micro, rngs):
        return (params["a"] * micro["a"] + params["b"] * micro["b"]).sum(), {}

    def one(batch):
        rngs = {"dropout": jax.random.key(0)}
        grads, _ = update.accumulate(loss_fn, state.params, batch, rngs, 2, "devices")
        grads = update.add_devices(grads, "devices")
        moved = update.apply_gradients(state, grads, optimizer)
        return moved, update.gradient_norm(grads)["grad_norm"]

    # Two devices, two microbatches of one row; in all a = (3, 0) and b = 2 * 2.
    a = jnp.array([[[1.0, 5.0], [1.0, -5.0]], [[2.0, 0.0], [-1.0, 0.0]]])
    b = jnp.array([[[4.0], [0.0]], [[0.0], [-2.0]]])
    moved, (norm, weight) = jax.vmap(one, axis_name="devices")({"a": a, "b": b})
    np.testing.assert_allclose(norm, [5.0, 5.0], rtol=1e-6)
    assert weight.tolist() == [1, 1]
    np.testing.assert_allclose(moved.params["a"][0], [-0.6, 0.0], rtol=1e-6)
    np.testing.assert_allclose(moved.params["b"], [-0.8, -0.8], rtol=1e-6)
    assert moved.step.tolist() == [1, 1]


@pytest.mark.parametrize("decay", [0.5, 0.9, 0.99999])
def test_the_mean_weighs_a_step_back_by_the_decay(decay):
    draw = np.random.default_rng(0).normal
    steps = [draw(size=3) for _ in range(6)]
    # What was there before the first step is no part of it.
    params = {"w": jnp.full(3, 1e3), "half": jnp.full(3, 1e3, jnp.bfloat16)}
    state = make_state(params, optax.identity(), has_ema=True)
    assert state.ema["half"].dtype == jnp.float32 and (state.ema["w"] == 1e3).all()
    assert state.eval_name == "ema" and state.eval_params is state.ema
    for t, value in enumerate(steps, start=1):
        now = {"w": jnp.float32(value), "half": jnp.bfloat16(value)}
        state = TrainState(now, state.opt_state, state.step + 1, state.ema)
        state = jax.jit(lambda state: update.average_params(state, decay))(state)
        weights = decay ** np.arange(t)[::-1]
        wanted = np.average(steps[:t], axis=0, weights=weights)
        np.testing.assert_allclose(state.ema["w"], wanted, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(state.params["w"], jnp.float32(value))
    assert state.ema["half"].dtype == jnp.float32


def test_without_a_mean_there_is_none():
    state = make_state({"w": jnp.ones(2)}, optax.identity())
    assert update.average_params(state, 0.0) is state
    assert state.eval_name == "params" and state.eval_params is state.params
    # A checkpoint of it has no more leaves than before there was such a thing.
    assert len(jax.tree.leaves(state)) == 2
