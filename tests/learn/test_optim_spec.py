"""Every setting is checked, and unused settings are refused."""

import pytest

from jaxpt.config.plan import make_plan
from jaxpt.learn.optim_spec import OPTIMIZER_DEFAULTS, SCHEDULES, OptimSpec

# By hand: what each optimizer reads of these.
READ = {
    "beta1": {"adamw", "adafactor", "lamb", "lion", "muon", "normuon"},
    "beta2": {"adamw", "lamb", "lion", "muon", "normuon"},
    "epsilon": {"adamw", "adafactor", "lamb", "muon", "normuon"},
    "bias_correction": {"adamw", "lamb"},
    "parameter_scale": {"adafactor"},
    "muon_lr": {"muon", "normuon"},
    "momentum": {"muon", "normuon"},
    "normuon_beta": {"normuon"},
}


@pytest.mark.parametrize("optimizer", OPTIMIZER_DEFAULTS)
@pytest.mark.parametrize("name", READ)
def test_a_setting_is_read_or_refused(optimizer, name, refuses):
    value = False if name in ("bias_correction", "parameter_scale") else 0.5
    if optimizer in READ[name]:
        spec = OptimSpec(name=optimizer, **{name: value})
        assert spec.settings()[name] == value
    else:
        with refuses(f"optim.{name}={value}", f"as {optimizer} does not use it"):
            OptimSpec(name=optimizer, **{name: value})
        assert name not in OptimSpec(name=optimizer).settings()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_schedules_setting_is_read_or_refused(schedule, refuses):
    for name, value, readers in (
        ("min_lr_ratio", 0.5, {"cosine", "linear", "wsd"}),
        ("decay_fraction", 0.5, {"wsd"}),
        ("decay_shape", "linear", {"wsd"}),
    ):
        if schedule in readers:
            spec = OptimSpec(schedule=schedule, **{name: value})
            assert spec.settings()[name] == value
        else:
            with refuses(
                f"optim.{name}={value}", f"as schedule {schedule} does not use it"
            ):
                OptimSpec(schedule=schedule, **{name: value})


def test_minus_one_is_the_optimizers_own():
    result = {}
    for name in OPTIMIZER_DEFAULTS:
        spec = OptimSpec(name=name)
        result[name] = spec.beta1, spec.beta2, spec.epsilon
    assert result == {
        "adamw": (0.9, 0.999, 1e-8),
        "adafactor": (0.0, -1.0, 1e-30),
        "lamb": (0.9, 0.999, 1e-6),
        "lion": (0.9, 0.99, -1.0),
        "muon": (0.9, 0.95, 1e-10),
        "normuon": (0.9, 0.95, 1e-10),
    }


@pytest.mark.parametrize("value", ["embed", "embed=", "=0", "embed=-1", "a=nan, b=0"])
def test_bad_overrides_of_the_decay_are_refused(value, refuses):
    with refuses(f"optim.decay_overrides={value}", "such as embed=0, head=0.1"):
        OptimSpec(decay_overrides=value)
    assert OptimSpec(name="muon", beta2=0.99).beta2 == 0.99
    assert OptimSpec(**vars(OptimSpec(name="lion"))) == OptimSpec(name="lion")


def test_rates_are_scaled_by_width_and_tokens_once():
    changes = {"data": {"row_length": 32}, "train": {"batch_size": 8}}
    changes |= {"model": {"d_model": 64}, "objective": "clm"}
    optim = {"name": "muon", "lr": 0.1, "lr_width": 16, "lr_tokens": 64}
    plan = make_plan(changes | {"optim": optim})
    assert (plan.optim.lr, plan.optim.muon_lr) == (0.1 * 0.5 * 2, 0.02 * 2)
    # The stored config has the rate before the scaling, so that a run resumes with it.
    again = make_plan(plan.config, is_stored=True)
    assert again.optim == plan.optim and again.config == plan.config
    plain = make_plan(changes | {"optim": {"name": "muon", "lr": 0.1}})
    assert (plain.optim.lr, plain.optim.muon_lr) == (0.1, 0.02)
