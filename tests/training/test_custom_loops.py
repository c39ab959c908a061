"""A loop over `Prepared.train_step` gives the state of `jaxpt train`, bit for bit."""

import contextlib

import jax
import numpy as np
import pytest
from poison import poison
from stops import last_state
from tiny import make_config, prepare, slow_but, write_run

import jaxpt

PHASES = {
    "train__batch_schedule": ((1 / 3, 0.5),),
    "train__length_schedule": ((1 / 3, 2),),
    "optim__lr_tokens": 8 * 24,
}
THREE_PHASES = PHASES | {"train__length_schedule": ((2 / 3, 2),)}
EMA, DROPOUT = {"optim__ema_decay": 0.9}, {"model__dropout": 0.1}
PARTS, SKIPS = {"train__num_microbatches": 2}, {"optim__max_skips": 3}
# What a step may have in addition to the objective's: settings, and bad steps.
CASES = {
    "plain": ("mlm", {}, {}),
    "average": ("clm", EMA, {}),
    "parts": ("mlm", EMA | PARTS | DROPOUT, {}),
    "skips": ("clm", EMA | SKIPS, {2: float("nan"), 5: float("inf")}),
    "spikes": ("clm", EMA | SKIPS | {"optim__spike_deviations": 6.0}, {2: np.nan}),
    "state": (
        "adaptive_mlm",
        EMA | SKIPS | {"adaptive_mlm__update_every": 1},
        {4: np.nan},
    ),
    "phases": ("mlm", EMA | DROPOUT | PHASES, {}),
    "three phases": ("mlm", EMA | DROPOUT | THREE_PHASES, {}),
    "progress": ("clm_mlm", {"clm_mlm__mlm_schedule": ((0.5, 0.0), (0.75, 1.0))}, {}),
    "schedule": ("clm", {"optim__warmup_steps": 2, "optim__name": "muon"}, {}),
    "two networks": ("electra", EMA | PARTS | DROPOUT, {}),
    "batches": ("mlm", {"train__skip_batches": ((1, 3),)}, {}),
}


def loop_over(made, num_steps):
    """The state after steps of a custom loop with no argument but what it needs."""
    state, step = made.init_state(), jax.jit(made.train_step)
    for at in range(num_steps):
        state, _ = step(state, made.feed[at])
    return state


def assert_same(left, right):
    for pair in zip(
        *map(jax.tree_util.tree_leaves_with_path, (left, right)), strict=True
    ):
        (path, one), (_, other) = pair
        np.testing.assert_array_equal(one, other, err_msg=jax.tree_util.keystr(path))


@pytest.mark.parametrize("case", slow_but(("skips", "phases"), CASES))
def test_a_custom_loop_gives_the_state_of_a_run(case, speech, tmp_path):
    objective, changes, factors = CASES[case]
    # The seed of a config is that of its loop, too.
    config = make_config(speech, objective, train__seed=3, **changes)
    with poison(objective, factors) if factors else contextlib.nullcontext():
        jaxpt.train(config, tmp_path / "run", quiet=True)
        state = loop_over(jaxpt.prepare(config), config.train.steps)
    whole = last_state(prepare(config)[0], tmp_path / "run")
    assert_same(state, whole)
    assert (whole.ema is not None) == ("optim__ema_decay" in changes)
    if whole.ema is not None:  # it has moved
        initial = jaxpt.prepare(config).init_state().eval_params
        moved = jax.tree.map(
            lambda a, b: bool((a != b).any()), state.eval_params, initial
        )
        assert all(jax.tree.leaves(moved))


def test_a_custom_loop_starts_where_a_run_would(speech, tmp_path):
    """From another run's parameters, with a teacher's."""
    layers = {"model__num_layers": 2}
    first = write_run(
        make_config(speech, "mlm", train__seed=5, **layers), tmp_path / "a"
    )
    config = make_config(speech, "mlm", train__init_from=str(first), **layers)
    assert_same(jaxpt.prepare(config).init_state().params, jaxpt.load(first).params)
    student = {
        "distillation__teacher": str(first),
        "distillation__student_layers": (0,),
    }
    state = jaxpt.prepare(make_config(speech, "distillation", **student)).init_state()
    assert_same(state.params["teacher"], jaxpt.load(first).params)


def test_what_a_loop_cannot_start_from_is_refused(speech, tmp_path, refuses):
    other = write_run(make_config(speech, "mlm", model__d_ff=64), tmp_path / "other")
    with refuses(f"train.init_from={other}", "must have the same parameters"):
        jaxpt.prepare(make_config(speech, "mlm", train__init_from=str(other)))
