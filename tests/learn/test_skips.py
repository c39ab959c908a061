"""Which updates are skipped, against the same rule in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxpt.learn import skips
from jaxpt.learn.held import HeldState
from jaxpt.learn.optim_spec import OptimSpec
from jaxpt.learn.skips import SkipRule, keep_if, make_rule
from jaxpt.learn.state import make_state
from jaxpt.learn.update import Update

NAN, INF = float("nan"), float("inf")


def run_rule(rule, norms, losses=None):
    """Whether each update is skipped, and the state after the last."""

    def step(state, pair):
        state = rule.judge(state, *pair)
        return state, state.is_last

    losses = np.zeros(len(norms)) if losses is None else losses
    pairs = jnp.array(losses, jnp.float32), jnp.array(norms, jnp.float32)
    state, skipped = jax.lax.scan(step, rule.init(), pairs)
    return np.flatnonzero(skipped).tolist(), state


def expect(norms, max_skips, deviations):
    """The same in NumPy, float64."""
    kept, skipped, in_a_row = [], [], 0
    for i, norm in enumerate(norms):
        recent = np.array(kept[-skips.WINDOW :])
        is_good = np.isfinite(norm) and in_a_row < max_skips
        if is_good and len(kept) >= skips.MIN_NORMS:
            is_good = norm - recent.mean() <= deviations * recent.std(ddof=1)
        in_a_row = 0 if is_good else in_a_row + 1
        (kept.append(norm) if is_good else skipped.append(i))
    return skipped


@pytest.mark.parametrize("deviations", [2.0, 6.0])
def test_spikes_are_those_of_the_last_norms(deviations):
    draw = np.random.default_rng(0)
    norms = draw.gamma(9.0, 0.1, size=400)
    norms[[10, 70, 71, 300]] *= 20  # the first before there are enough norms
    norms[200:] *= 1.5  # the ring has forgotten the norms before
    found, state = run_rule(SkipRule(5, deviations), norms)
    assert found == expect(norms, 5, deviations)
    assert {70, 71, 300} <= set(found) and 10 not in found
    assert int(state.total) == len(found)
    assert int(state.num_norms) == 400 - len(found)


def test_few_norms_have_a_sample_deviation(monkeypatch):
    """Of 1 and 2 it is 0.707 and not 0.5: the limit of 2 deviations is 2.914."""
    monkeypatch.setattr(skips, "MIN_NORMS", 2)
    assert run_rule(SkipRule(5, 2.0), [1, 2, 2.9])[0] == []
    assert run_rule(SkipRule(5, 2.0), [1, 2, 2.93])[0] == [2]
    assert run_rule(SkipRule(5, 0.5), [3, 3, 3, 3.1])[0] == [3]  # no deviation at all


def test_what_is_not_finite_is_skipped_and_a_streak_never_ends():
    norms = [1, NAN, 1, 1, INF, -INF, 1, NAN, NAN, NAN, 1, 1]
    losses = [0, 0, INF, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    found, state = run_rule(SkipRule(3), norms, losses)
    assert found == [1, 2, 4, 5, 7, 8, 9, 10, 11]
    assert int(state.in_a_row) == 5 and int(state.total) == 9
    assert state.norms is None


def test_a_norm_that_is_not_finite_is_never_remembered(monkeypatch):
    monkeypatch.setattr(skips, "MIN_NORMS", 2)
    found, state = run_rule(SkipRule(9, 6.0), [1, 1.5, NAN, INF, 1e6, 1.2])
    assert found == [2, 3, 4]
    assert state.norms[:4].tolist() == pytest.approx([1, 1.5, 1.2, 0])


def test_no_rule_without_skips():
    assert make_rule(OptimSpec(), 10, "float32") is None
    spec = OptimSpec(max_skips=20, spike_deviations=6.0)
    assert make_rule(spec, 10, "bfloat16") == SkipRule(10, 6.0)
    state = make_state({"w": jnp.ones(2)}, optax.adam(1e-3))
    assert state.skips is None and state.skipped_batches is None


def test_the_steps_of_schedules_go_on():
    schedule = optax.ScaleByScheduleState
    old = {"a": HeldState((jnp.zeros(2), schedule(jnp.int32(1))), jnp.int32(3))}
    new = {"a": HeldState((jnp.ones(2), schedule(jnp.int32(2))), jnp.int32(4))}
    kept = keep_if(jnp.array(True), old, new)["a"]
    assert kept.inner[0].tolist() == [0, 0] and kept.inner[1].count == 2
    assert kept.num_steps == 4
    assert keep_if(jnp.array(False), old, new)["a"].inner[0].tolist() == [1, 1]


@pytest.mark.parametrize("num_microbatches", [1, 4])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_one_bad_row_of_a_batch_skips_its_update(dtype, num_microbatches):
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.1))
    rule = SkipRule(3)
    update = Update(optimizer, num_microbatches, skip_rule=rule)
    state = make_state({"w": jnp.ones(3, dtype)}, optimizer, skips=rule.init())
    keys = {name: jax.random.key(0) for name in ("dropout", "sample")}

    def loss_fn(params, batch, rngs):
        values = (batch["x"] * params["w"]).sum(-1) * batch["weights"]["loss"]
        total = values.sum(), batch["weights"]["loss"].sum()
        return {"loss": total}, {}

    @jax.jit
    def step(state, x):
        batch = {"x": x, "weights": {"loss": jnp.ones(8)}}
        return update(state, batch, loss_fn, keys, {"loss": 1.0})

    good = np.ones((8, 3), np.float32)
    for bad in (NAN, INF, -INF):
        before, (after, _) = state, step(state, jnp.array(good).at[5, 1].set(bad))
        assert (after.params["w"] == before.params["w"]).all()
        assert jax.tree.leaves(after.opt_state)[0] == 0  # Adam's count
        assert after.skips.total == 1 and after.step == 1
    after, _ = step(after, jnp.array(good))
    assert (after.params["w"] != state.params["w"]).all()
    assert after.skips.in_a_row == 0 and after.skips.total == 1 and after.step == 2
