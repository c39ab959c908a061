"""The scale of a float16 loss: its changes, its limits, and the steps that it skips."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.training import dynamic_scale

from jaxpt.learn import loss_scale
from jaxpt.learn.loss_scale import INTERVAL, LEAST, MIN_SKIPS, MOST, START
from jaxpt.learn.optim_spec import OptimSpec
from jaxpt.learn.skips import SkipRule, make_rule
from jaxpt.learn.state import make_state
from jaxpt.learn.update import Update
from jaxpt.ops import kernels

KEYS = {name: jax.random.key(0) for name in ("dropout", "sample")}


def follow(pattern, value=START):
    """The scale after each step of a pattern: whether its gradient is finite."""
    first = loss_scale.init_scale()._replace(value=jnp.float32(value))

    def step(scale, is_finite):
        scale = loss_scale.adjust(scale, is_finite)
        return scale, scale.value

    return np.asarray(jax.lax.scan(step, first, jnp.array(pattern))[1]).tolist()


def test_an_overflow_halves_the_scale_and_2000_finite_steps_double_it():
    pattern = [True] * 1500 + [False] + [True] * (2 * INTERVAL + 10)
    values = follow(pattern)
    assert values[:1500] == [2.0**15] * 1500
    # The finite steps before an overflow do not count.
    assert values[1500 : 1500 + INTERVAL] == [2.0**14] * INTERVAL
    assert values[1500 + INTERVAL : 1500 + 2 * INTERVAL] == [2.0**15] * INTERVAL
    assert values[1500 + 2 * INTERVAL :] == [2.0**16] * 11


def test_the_scale_has_limits_between_which_no_run_ends():
    down = follow([False] * MIN_SKIPS, MOST)
    assert down[-2:] == [LEAST, LEAST] and down[-3] > LEAST
    up = follow([True] * (3 * INTERVAL), MOST / 4)
    assert up[INTERVAL - 1 :: INTERVAL] == [MOST / 2, MOST, MOST]


def test_it_changes_as_flax_does():
    """flax doubles one step later: at the first after the interval."""
    pattern = np.random.default_rng(0).random(400) < 0.9
    theirs = dynamic_scale.DynamicScale(
        growth_interval=4, scale=jnp.float32(START), minimum_scale=LEAST
    )
    expected = []
    for is_finite in pattern:
        grad_fn = theirs.value_and_grad(lambda x, is_good: x * is_good)
        theirs, *_ = grad_fn(1.0, 1.0 if is_finite else jnp.inf)
        expected.append(float(theirs.scale))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss_scale, "INTERVAL", 5)
        patch.setattr(loss_scale, "MOST", 2.0**40)
        assert follow(pattern) == expected


def test_only_float16_has_a_scale():
    for dtype in ("float32", "bfloat16"):
        assert make_rule(OptimSpec(), 10, dtype) is None
        rule = make_rule(OptimSpec(max_skips=3), 10, dtype)
        assert rule == SkipRule(3) and rule.init().scale is None
        assert len(jax.tree.leaves(rule.init())) == 2
    rule = make_rule(OptimSpec(), 1000, "float16")
    assert rule == SkipRule(MIN_SKIPS, has_scale=True)
    assert rule.init().scale.value == START
    assert make_rule(OptimSpec(max_skips=40), 1000, "float16").max_skips == 40
    assert make_rule(OptimSpec(), 7, "float16").max_skips == 7
    spec = OptimSpec(max_skips=3, spike_deviations=6.0)
    norms = make_rule(spec, 1000, "float16").init().norms
    assert norms is not None and norms.shape == (128,)


def loss_fn(params, batch, rngs):
    """The products are float16, as in a model."""
    x, w = batch["x"].astype(jnp.float16), params["w"].astype(jnp.float16)
    values = (x * w).sum(-1).astype(jnp.float32) * batch["weights"]["loss"]
    return {"loss": (values.sum(), batch["weights"]["loss"].sum())}, {}


def make_step(num_microbatches=1, axis=None):
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.1))
    rule = make_rule(OptimSpec(), 1000, "float16")
    update = Update(optimizer, num_microbatches, axis, skip_rule=rule)
    state = make_state({"w": jnp.ones(3)}, optimizer, skips=rule.init())

    def step(state, x):
        batch = {"x": x, "weights": {"loss": jnp.ones(len(x))}}
        return update(state, batch, loss_fn, KEYS, {"loss": 1.0})

    return step, state


@pytest.mark.parametrize("num_microbatches", [1, 4])
def test_an_overflow_skips_its_update(num_microbatches):
    step, state = make_step(num_microbatches)
    step = jax.jit(step)
    bad = np.full((8, 3), 0.5, np.float32)
    bad[5, 1] = 600.0  # finite, but not times 2^15 / 8
    after, metrics = step(state, bad)
    assert not np.isfinite(metrics["grad_norm"][0])
    assert np.isfinite(metrics["loss"][0])
    for old, new in ((state.params, after.params), (state.opt_state, after.opt_state)):
        same = jax.tree.map(lambda a, b: bool((a == b).all()), old, new)
        assert all(jax.tree.leaves(same))
    assert after.skips.total == 1 and after.skips.scale.value == START / 2
    assert after.step == 1
    # The scale is halved until the gradient fits.
    for num in range(2, 20):
        after, metrics = step(after, bad)
        if not after.skips.is_last:
            break
    assert after.skips.scale.value == START / 2 ** (num - 1) and num > 2
    assert (after.params["w"] != state.params["w"]).all()
    expected = np.sqrt(((bad.sum(0) / 8) ** 2).sum())
    assert float(metrics["grad_norm"][0]) == pytest.approx(expected, rel=2e-3)


def test_a_gradient_below_float16_is_not_lost():
    """1e-8 is 0 in float16, and 1e-8 * 2^15 is not."""
    x = np.full((8, 3), 1.0, np.float32)

    def tiny_loss(params, batch, rngs):
        terms, metrics = loss_fn(params, batch, rngs)
        return {"loss": (terms["loss"][0] * 1e-8, terms["loss"][1])}, metrics

    def norm(state):
        update = Update(optax.sgd(0.1), skip_rule=SkipRule(3, has_scale=True))
        batch = {"x": x, "weights": {"loss": jnp.ones(8)}}
        return update(state, batch, tiny_loss, KEYS, {"loss": 1.0})[1]["grad_norm"][0]

    optimizer = optax.sgd(0.1)
    params = {"w": jnp.ones(3)}
    plain = make_state(params, optimizer, skips=SkipRule(3).init())
    scaled = make_state(params, optimizer, skips=SkipRule(3, has_scale=True).init())
    assert norm(plain) == 0
    assert float(norm(scaled)) == pytest.approx(1e-8 * np.sqrt(3), rel=2e-3)


def test_a_step_without_a_scale_computes_as_before():
    """No operation and no leaf of the state is added."""
    optimizer = optax.sgd(0.1)
    texts = []
    for rule in (None, SkipRule(3)):
        state = make_state({"w": jnp.ones(3)}, optimizer)
        state = dataclasses.replace(state, skips=rule and rule.init())
        update = Update(optimizer, skip_rule=rule)
        batch = {"x": jnp.ones((8, 3)), "weights": {"loss": jnp.ones(8)}}
        run = lambda s, b, u=update: u(s, b, loss_fn, KEYS, {"loss": 1.0})  # noqa: E731
        texts.append(str(jax.make_jaxpr(run)(state, batch)))
        assert len(jax.tree.leaves(state)) == (2 if rule is None else 4)
    assert not any(str(START) in text or "32768" in text for text in texts)


@pytest.mark.parametrize("name", ["gelu_tanh", "relu2", "silu", "gelu"])
def test_activations_do_not_overflow_within(name):
    x = jnp.array([-200.0, -2.0, 0.5, 200.0], jnp.float16)
    half = jnp.ones(4, jnp.float16) / 2

    def total(x, gated):
        return kernels.activate(name, x, gated).astype(jnp.float32).sum()

    assert kernels.activate(name, x).dtype == jnp.float16
    for args in ((x, None), (x, half)):
        grad = jax.grad(total)(*args)
        wide = [None if a is None else a.astype(jnp.float32) for a in args]
        assert grad.dtype == jnp.float16 and jnp.isfinite(grad).all()
        np.testing.assert_allclose(grad, jax.grad(total)(*wide), rtol=2e-3, atol=2e-3)
