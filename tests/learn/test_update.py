"""Sums, weights and microbatches: cutting a batch never changes its gradient."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpt.learn import update


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
