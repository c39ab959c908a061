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


@pytest.mark.slow_except("4")
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
    """Reports the dropout and the samples of each row."""
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


RNGS = dict(
    zip(("corrupt", "dropout", "sample"), jax.random.split(jax.random.key(0), 3))
)


def linear(params, batch, rngs):
    """One term whose gradient is read off the batch, and a second of another weight."""
    weights = batch["weights"]
    a, b = params["a"] * batch["a"], params["b"] * batch["b"]
    terms = {
        "a_loss": ((a.sum(1) * weights["a_loss"]).sum(), weights["a_loss"].sum()),
        "b_loss": ((b * weights["b_loss"]).sum(), weights["b_loss"].sum()),
    }
    return terms, {"rows": (jnp.float32(len(a)), jnp.ones(()))}


@pytest.mark.slow
def test_the_norm_is_of_the_whole_gradient_and_so_is_the_clip():
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(1.0))
    state = make_state({"a": jnp.zeros(2), "b": jnp.zeros(())}, optimizer)
    step = update.Update(optimizer, num_microbatches=2, axis="devices")

    def one(batch):
        ones = {"a_loss": jnp.full(2, 0.25), "b_loss": jnp.full(2, 0.25)}
        coefficients = {"a_loss": 1.0, "b_loss": 2.0}
        batch = batch | {"weights": ones}
        moved, metrics = step(state, batch, linear, RNGS, coefficients)
        return moved, metrics["grad_norm"]

    # Two devices, two microbatches of one row; in all a = (3, 0) and b = 2 * 2, each
    # row weighing a quarter of the whole batch.
    a = 4 * jnp.array([[[1.0, 5.0], [1.0, -5.0]], [[2.0, 0.0], [-1.0, 0.0]]])
    b = 4 * jnp.array([[4.0, 0.0], [0.0, -2.0]])
    moved, (norm, weight) = jax.vmap(one, axis_name="devices")({"a": a, "b": b})
    np.testing.assert_allclose(norm, [5.0, 5.0], rtol=1e-6)
    assert weight.tolist() == [1, 1]
    np.testing.assert_allclose(moved.params["a"][0], [-0.6, 0.0], rtol=1e-6)
    np.testing.assert_allclose(moved.params["b"], [-0.8, -0.8], rtol=1e-6)
    assert moved.step.tolist() == [1, 1]


@pytest.mark.slow_except("2-4")
@pytest.mark.parametrize("num_microbatches", [1, 2, 4])
@pytest.mark.parametrize("num_devices", [1, 2])
def test_a_step_is_of_the_terms_means_however_the_batch_is_cut(
    num_microbatches, num_devices
):
    """Each term by its own whole weight, times its coefficient: by hand."""
    draw = np.random.default_rng(0).normal
    a, b = draw(size=(8, 2)).astype("f4"), draw(size=8).astype("f4")
    # Some microbatches and devices carry nothing of a term.
    of_a = np.float32([0, 1, 5, 0, 0, 2, 1, 7])
    of_b = np.float32([3, 0, 0, 0, 0, 0, 0, 1])
    coefficients = {"a_loss": 3.0, "b_loss": 50.0}
    params = {"a": jnp.ones(2), "b": jnp.full((), 2.0)}
    expected = {"a": 3 * of_a @ a / 16, "b": 50 * of_b @ b / 4}
    optimizer = optax.trace(decay=0.0)
    state = make_state(params, optimizer)
    step = update.Update(optimizer, num_microbatches, axis="devices")
    batch = {"a": a, "b": b, "weights": {"a_loss": of_a, "b_loss": of_b}}
    pieces = jax.tree.map(lambda x: x.reshape(num_devices, -1, *x.shape[1:]), batch)
    run = functools.partial(
        step, state, loss_fn=linear, rngs=RNGS, coefficients=coefficients
    )
    moved, metrics = jax.vmap(run, axis_name="devices")(pieces)
    for i in range(num_devices):
        for key, value in expected.items():
            np.testing.assert_allclose(moved.opt_state.trace[key][i], value, rtol=1e-5)
            result = moved.params[key][i] - params[key]
            np.testing.assert_allclose(result, value, rtol=1e-4)
    # Sums and weights of the whole batch, the same on every device.
    total = 2 * of_b @ b
    np.testing.assert_allclose(metrics["b_loss"][0], num_devices * [total], rtol=1e-5)
    assert metrics["b_loss"][1].tolist() == num_devices * [4]
    assert metrics["a_loss"][1].tolist() == num_devices * [16]
    assert metrics["rows"][0].tolist() == num_devices * [8]
    size = np.sqrt(sum((x**2).sum() for x in expected.values()))
    np.testing.assert_allclose(metrics["grad_norm"][0], num_devices * [size], rtol=1e-5)
    assert metrics["grad_norm"][1].tolist() == num_devices * [1]


def test_on_one_device_no_axis_is_needed():
    state = make_state({"a": jnp.zeros(2), "b": jnp.zeros(())}, optax.sgd(1.0))
    batch = {"a": jnp.ones((4, 2)), "b": jnp.ones(4)}
    batch["weights"] = {"a_loss": jnp.ones(4), "b_loss": jnp.zeros(4)}
    step = update.Update(optax.sgd(1.0))
    coefficients = {"a_loss": 1.0, "b_loss": 1.0}
    moved, metrics = step(state, batch, linear, RNGS, coefficients)
    assert moved.params["a"].tolist() == [-1, -1] and moved.params["b"] == 0
    assert metrics["b_loss"] == (0, 0) and int(moved.step) == 1


@pytest.mark.slow_cases("1")
@pytest.mark.parametrize("num_microbatches", [1, 2])
def test_frozen_parameters_get_no_gradient_and_never_move(num_microbatches):
    """Nor weight decay or moments; and they are not differentiated."""
    optimizer = optax.adamw(0.1, weight_decay=0.5)
    params = {"teacher": {"w": jnp.full(2, 3.0)}, "student": jnp.ones(2), "c": 1.0}
    params = jax.tree.map(jnp.asarray, params)
    state = make_state(params, optimizer)
    step = update.Update(optimizer, num_microbatches, frozen=("teacher", "c"))
    batch = {"x": jnp.arange(8.0).reshape(4, 2), "weights": {"loss": jnp.ones(4)}}
    seen = []

    def loss_fn(params, batch, rngs):
        frozen = params["teacher"]["w"], params["c"]
        seen.extend(isinstance(x, jax.core.Tracer) for x in frozen)
        product = batch["x"] * params["student"] * frozen[0] * frozen[1]
        return {"loss": (product.sum(), batch["weights"]["loss"].sum())}, {}

    for _ in range(2):
        state, metrics = step(state, batch, loss_fn, RNGS, {"loss": 1.0})
    # Eagerly, differentiated arrays are traced, and frozen ones are not.
    assert seen and not any(seen)
    np.testing.assert_array_equal(state.params["teacher"]["w"], 3)
    assert state.params["c"] == 1 and (state.params["student"] < 1).all()
    moments = state.opt_state[0]
    for kind in (moments.mu, moments.nu):
        assert not kind["teacher"]["w"].any() and kind["c"] == 0
        assert (kind["student"] > 0).all()
    # Of the trained parameters only: x sums to (12, 16), is a mean of 4 rows, times 3.
    np.testing.assert_allclose(metrics["grad_norm"][0], np.hypot(9, 12), rtol=1e-6)


def test_rows_that_only_fill_up_a_batch_weigh_nothing():
    """Each term's weights, whatever their shape; all else of the batch stays."""
    weights = {
        "mlm_loss": jnp.arange(12.0).reshape(3, 4),
        "nsp_loss": jnp.array([1.0, 1.0, 0.0]),
    }
    batch = {"inverse_rates": jnp.ones((3, 4)), "weights": weights}
    assert update.weigh_rows(batch, {"tokens": jnp.ones((3, 4))}) is batch
    rows = {"row_weights": jnp.array([1.0, 0.0, 1.0])}
    result = update.weigh_rows(batch, rows)
    assert result["inverse_rates"] is batch["inverse_rates"]
    rest = [0, 1, 2, 3], [0, 0, 0, 0], [8, 9, 10, 11]
    assert result["weights"]["mlm_loss"].tolist() == list(rest)
    assert result["weights"]["nsp_loss"].tolist() == [1, 0, 0]
    assert batch["weights"] is weights and weights["mlm_loss"][1].any()


@pytest.mark.slow_cases("0.5")
@pytest.mark.parametrize("decay", [0.5, 0.9, 0.99999])
def test_the_mean_weighs_a_step_back_by_the_decay(decay):
    draw = np.random.default_rng(0).normal
    steps = [draw(size=3) for _ in range(6)]
    # The initial parameters are not included.
    params = {"w": jnp.full(3, 1e3), "half": jnp.full(3, 1e3, jnp.bfloat16)}
    state = make_state(params, optax.identity(), has_ema=True)
    assert state.ema["half"].dtype == jnp.float32 and (state.ema["w"] == 1e3).all()
    assert state.eval_name == "ema" and state.eval_params is state.ema
    for t, value in enumerate(steps, start=1):
        now = {"w": jnp.float32(value), "half": jnp.bfloat16(value)}
        state = TrainState(now, state.opt_state, state.step + 1, state.ema)
        state = jax.jit(lambda state: update.average_params(state, decay))(state)
        weights = decay ** np.arange(t)[::-1]
        expected = np.average(steps[:t], axis=0, weights=weights)
        np.testing.assert_allclose(state.ema["w"], expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(state.params["w"], jnp.float32(value))
    assert state.ema["half"].dtype == jnp.float32


def test_without_a_mean_there_is_none():
    state = make_state({"w": jnp.ones(2)}, optax.identity())
    assert update.average_params(state, 0.0) is state
    assert state.eval_name == "params" and state.eval_params is state.params
    # A checkpoint of it has no more leaves than before there was such a thing.
    assert len(jax.tree.leaves(state)) == 2
