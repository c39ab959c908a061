"""Branches of a trunk: their bits are those of runs that were trained alone."""

import jax
import numpy as np
import pytest
from stops import last_state
from tiny import make_config, prepare, slow

from jaxpt.runs.metrics_file import read_metrics
from jaxpt.training import loop
from jaxpt.training.branches import find_branch_step, load_shared, plan_trunk
from jaxpt.training.clock import ALONE, Branching
from jaxpt.training.hooks import Hooks

SHORT, LONG, AT = 12, 24, 8  # steps of the branch and of the trunk; where it branches
WSD = {
    "optim__schedule": "wsd",
    "optim__decay_fraction": 1 / 3,
    "optim__warmup_steps": 2,
}
# What a state has next to parameters and an optimizer, and parts of a step.
RICH = {
    "model__dropout": 0.1,
    "optim__ema_decay": 0.9,
    "optim__max_skips": 2,
    "train__num_microbatches": 2,
}
TIMED = {"train_seconds", "first_step_seconds", "steps_per_second", "seconds"}
# Two decays of 4 steps each, at 8 and at 16.
BRANCHES = Branching((AT,), frozenset({2, 4, 6, 8}))


class Killed(Exception):
    """Stands for the end of a process."""


def prepare_run(path, objective, steps, **changes):
    every = {SHORT: 2, LONG: 8}[steps]
    settings = {"train__steps": steps, "train__eval_every": every}
    return prepare(make_config(path, objective, **WSD, **settings, **changes))


def train(prepared, folder, branching, kills=()):
    """The result of a run that is killed at each of these steps, and repeated.

    And the steps that it has logged after the last kill.
    """
    for step in kills:

        def kill(at, values, step=step):
            if at == step:
                raise Killed

        with pytest.raises(Killed):
            hooks = Hooks(on_log=kill)
            loop.train(*prepared, folder, hooks=hooks, branching=branching)
    seen = []
    hooks = Hooks(on_log=lambda step, values: seen.append(step))
    return loop.train(*prepared, folder, hooks=hooks, branching=branching), seen


def drop_times(result):
    kept = {k: v for k, v in result.items() if k not in TIMED | {"workdir"}}
    return kept | {"curve": [drop_curve(point) for point in result["curve"]]}


def drop_curve(point):
    return {key: value for key, value in point.items() if key not in TIMED}


def check_same(task, one, other):
    """Asserts that two runs of a task, each a result and a folder, are the same."""
    states = [last_state(task, folder) for _, folder in (one, other)]
    jax.tree.map(np.testing.assert_array_equal, *states)
    assert drop_times(one[0]) == drop_times(other[0])
    losses = [
        {line["step"]: line["loss"] for line in read_metrics(folder) if "loss" in line}
        for _, folder in (one, other)
    ]
    assert losses[0] == losses[1] and len(losses[0]) == task.plan.train.steps // 2


@pytest.mark.parametrize(
    "objective, changes",
    [
        ("mlm", RICH),
        slow("clm", RICH | {"optim__name": "muon"}),
        slow("electra", RICH | {"optim__name": "lamb", "train__backend": "pmap"}),
        slow(
            "adaptive_mlm",
            {"adaptive_mlm__update_every": 3, "adaptive_mlm__mask_rate_end": 0.0},
        ),
        slow("span_corruption", {"optim__name": "adafactor", "optim__beta1": 0.9}),
    ],
)
def test_a_branch_has_the_bits_of_a_run_of_its_length(
    objective, changes, speech, tmp_path
):
    """Also if both were killed; and the trunk has those of a run without branches."""
    folders = [tmp_path / name for name in ("trunk", "whole", "branch", "alone")]
    changes = {"train__checkpoint_every": 6} | changes
    long = prepare_run(speech, objective, LONG, **changes)
    changes["train__checkpoint_every"] = 2
    short = prepare_run(speech, objective, SHORT, **changes)
    assert find_branch_step(short[0].plan) == AT
    assert plan_trunk([short[0].plan]) == BRANCHES
    # The second time it begins before the state that it has kept.
    trunk, _ = train(long, folders[0], BRANCHES, kills=(10,))
    whole, _ = train(long, folders[1], ALONE)
    check_same(long[0], (trunk, folders[0]), (whole, folders[1]))
    branching = Branching(trunk=folders[0], until=AT)
    # Before its first checkpoint, and after it.
    branch, seen = train(short, folders[2], branching, kills=(10, 12))
    assert seen == [12]
    # Without a state of the trunk it is trained from the start.
    branching = Branching(trunk=tmp_path / "none", until=AT)
    alone, seen = train(short, folders[3], branching)
    assert seen == [2, 4, 6, 8, 10, 12]
    check_same(short[0], (branch, folders[2]), (alone, folders[3]))
    shared = load_shared(folders[2])
    assert shared["step"] == AT and 0 < shared["seconds"] < branch["train_seconds"]
    assert load_shared(folders[3]) == {"step": 0, "seconds": 0.0}
    assert [point["step"] for point in branch["curve"]] == [0, 2, 4, 6, 8, 10, 12]
    assert [point["step"] for point in trunk["curve"]] == [0, 8, 16, 24]
