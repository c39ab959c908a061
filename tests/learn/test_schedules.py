"""Learning rates at hand-computed points."""

import jax.numpy as jnp
import pytest

from jaxpt.errors import UserError
from jaxpt.learn.optim_spec import OptimSpec
from jaxpt.learn.schedules import make_schedule, make_schedules

WARM_UP = {"warmup_steps": 20}


@pytest.mark.parametrize(
    "values, points",
    [
        ({"schedule": "constant"}, {0: 2.0, 99: 2.0}),
        ({"schedule": "cosine"}, {0: 2.0, 25: 1.7071068, 50: 1.0, 100: 0.0, 150: 0.0}),
        ({"schedule": "cosine", "min_lr_ratio": 0.1}, {0: 2.0, 50: 1.1, 100: 0.2}),
        ({"schedule": "linear"}, {0: 2.0, 25: 1.5, 75: 0.5, 100: 0.0, 150: 0.0}),
        ({"schedule": "linear", "min_lr_ratio": 0.5}, {50: 1.5, 100: 1.0}),
        ({"schedule": "inverse_sqrt"}, {0: 2.0, 3: 1.0, 99: 0.2}),
        # After a warm-up from 0 over 20 steps, the schedule has the 80 that remain.
        ({"schedule": "constant"} | WARM_UP, {0: 0.0, 5: 0.5, 20: 2.0}),
        ({"schedule": "cosine"} | WARM_UP, {10: 1.0, 20: 2.0, 60: 1.0, 100: 0.0}),
        ({"schedule": "linear"} | WARM_UP, {1: 0.1, 20: 2.0, 40: 1.5, 100: 0.0}),
        ({"schedule": "inverse_sqrt"} | WARM_UP, {19: 1.9, 20: 2.0, 80: 1.0}),
    ],
)
def test_schedules_by_hand(values, points):
    schedule = make_schedule(OptimSpec(lr=2.0, **values), 100)
    for step, expected in points.items():
        assert float(schedule(jnp.int32(step))) == pytest.approx(expected, abs=1e-6), (
            step
        )


def test_berts_rate_jumps_down_at_the_end_of_the_warm_up():
    """As in google-research/bert: the warm-up's last step is the one before its end."""
    spec = OptimSpec(lr=2.0, schedule="bert_linear", warmup_steps=20)
    schedule = make_schedule(spec, 100)
    rates = [float(schedule(jnp.int32(step))) for step in (0, 10, 19, 20, 60, 100)]
    assert rates == pytest.approx([0.0, 1.0, 1.9, 1.6, 0.8, 0.0], abs=1e-6)


def test_a_warm_up_as_long_as_the_run_is_refused():
    make_schedule(OptimSpec(warmup_steps=9), 10)
    with pytest.raises(UserError, match="optim.warmup_steps=10: .* 10 steps"):
        make_schedule(OptimSpec(warmup_steps=10), 10)


T5 = {"schedule": "inverse_sqrt", "warmup_type": "flat"}
WSD = {"schedule": "wsd", "decay_fraction": 0.5}


@pytest.mark.parametrize(
    "values, points",
    [
        # T5's 1 / sqrt(max(step, 10)), of which 1 / sqrt(10) is the highest.
        (T5 | {"lr": 10**-0.5, "warmup_steps": 10}, {0: 10**-0.5, 10: 10**-0.5}),
        (T5 | {"lr": 10**-0.5, "warmup_steps": 10}, {40: 40**-0.5, 90: 90**-0.5}),
        ({"warmup_type": "flat"} | WARM_UP, {0: 1.0, 20: 1.0, 60: 0.5, 100: 0.0}),
        # Haegele et al.: 1 - sqrt(x) over the last half.
        (WSD, {0: 1.0, 50: 1.0, 58: 0.6, 68: 0.4, 82: 0.2, 100: 0.0, 150: 0.0}),
        (WSD | {"min_lr_ratio": 0.5}, {50: 1.0, 58: 0.8, 68: 0.7, 100: 0.5}),
        # modded-nanogpt: (steps - step) / warm-down.
        (WSD | {"decay_shape": "linear"}, {50: 1.0, 75: 0.5, 99: 0.02, 100: 0.0}),
        # MiniCPM: halved every 10 steps, five times.
        (
            WSD | {"decay_shape": "exponential", "min_lr_ratio": 0.5**5},
            {50: 1.0, 60: 0.5, 70: 0.25, 100: 0.5**5},
        ),
        # The share is of all steps, whatever the warm-up.
        (WSD | WARM_UP, {10: 0.5, 20: 1.0, 50: 1.0, 58: 0.6, 100: 0.0}),
        ({"schedule": "wsd"}, {79: 1.0, 80: 1.0, 85: 0.5, 100: 0.0}),
    ],
)
def test_flat_warm_ups_and_falls_by_hand(values, points):
    schedule = make_schedule(OptimSpec(**({"lr": 1.0} | values)), 100)
    for step, expected in points.items():
        assert float(schedule(jnp.int32(step))) == pytest.approx(expected, abs=1e-6), (
            step
        )


@pytest.mark.parametrize(
    "values, steps",
    [({"decay_fraction": 0.05}, 19), ({"decay_fraction": 0.9, "warmup_steps": 3}, 20)],
)
def test_a_fall_that_does_not_fit_is_refused(values, steps, refuses):
    with refuses("optim.decay_fraction", f"{steps} steps"):
        make_schedule(OptimSpec(schedule="wsd", **values), steps)
    make_schedule(OptimSpec(schedule="wsd", **values), 30)


def test_muons_two_learning_rates_rise_and_fall_together():
    spec = OptimSpec(name="muon", lr=1.0, muon_lr=4.0, **WARM_UP)
    schedules = make_schedules(spec, 100)
    assert set(schedules) == {"lr", "muon_lr"}
    for step in (0, 10, 20, 60, 99):
        lr, muon_lr = (float(schedules[name](step)) for name in ("lr", "muon_lr"))
        assert muon_lr == pytest.approx(4 * lr)
    assert set(make_schedules(OptimSpec(), 100)) == {"lr"}
