"""Runs of several lengths that share a trunk: branches of a wsd schedule.

    learning rate   /-------------------\\      the trunk, which is the longest run
                   /    \\       \\        \\     branches: the decays of shorter runs
    step           0    s1      s2       s3

Until it decays, a run with `optim.schedule=wsd` has the same states as any longer one
of the same seed. So the longest run keeps its state (parameters, optimizer, moving
average, step) where shorter ones branch, and each of them continues from there as a
stopped run resumes: its bits are those of a run that was trained alone. It branches at
the last end of a training call before its decay.

    <trunk>/branches/STEP    the states, as in checkpoints/
    <branch>/branch.json     the step and the seconds that it shares with the trunk

Source: branches of the schedule are those of Haegele et al. 2024
(https://arxiv.org/abs/2405.18392). WSD-S (https://arxiv.org/abs/2410.05192) instead
continues with the decayed parameters, so that its later budgets are other runs.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jaxpt.config.plan import Plan
from jaxpt.distributed import processes
from jaxpt.files import checksums, disk
from jaxpt.files.folder import load_json, write_json
from jaxpt.learn.schedules import count_decay
from jaxpt.learn.state import TrainState
from jaxpt.runs.checkpoint import Checkpointer
from jaxpt.runs.metrics_file import METRICS_FILE, keep_until, read_last_line
from jaxpt.training.clock import Branching

FOLDER, RECORD = "branches", "branch.json"
FORM = {"step": int, "seconds": float}  # the schema of branch.json


def find_branch_step(plan: Plan) -> int:
    """The last end of a call before a wsd run decays."""
    train = plan.train
    start = train.steps - count_decay(plan.optim, train.steps)
    return start - start % train.steps_per_call


def plan_trunk(branches: Iterable[Plan]) -> Branching:
    """What the trunk of these runs does for them."""
    kept, evaluated = set(), set()
    for plan in branches:
        step, every = find_branch_step(plan), plan.train.eval_every
        kept |= {step} - {0}
        evaluated |= {*range(every, step + 1, every)} if every else set()
    return Branching(tuple(sorted(kept)), frozenset(evaluated))


def keep_state(workdir: Path, step: int, state: TrainState, num: int) -> None:
    """Keeps a state for branches; all processes call it together.

    Args:
      state: in the form that is saved.
      num: the number of states that the run keeps.
    """
    with Checkpointer(workdir / FOLDER, keep=num) as checkpointer:
        checkpointer.save(step, state)


def begin_branch(
    workdir: Path, trunk: Path, last: int, template: Any, until: int | None = None
) -> tuple[TrainState, int] | None:
    """The newest state of the trunk that a branch shares, with the log up to it.

    Args:
      last: the last step that it shares.
      until: the last step to try, if it is earlier.

    Returns:
      (state, step), or None if there is none: the run then begins at step 0.
    """
    last = last if until is None else min(until, last)
    with Checkpointer(trunk / FOLDER) as checkpointer:
        restored: tuple | None = checkpointer.restore(template, until=last)
    if restored is not None:
        processes.on_first(_copy_log, trunk, workdir, restored[1])
    return restored


def _copy_log(trunk: Path, workdir: Path, step: int) -> None:
    """Begins the branch's log with that of the trunk, and records what they share."""
    path = workdir / METRICS_FILE
    data = b"".join(line + b"\n" for line, _ in keep_until(trunk / METRICS_FILE, step))
    checksums.record_prefix(path, len(data), hashlib.sha256(data).hexdigest())
    disk.replace(path, data)
    seconds = read_last_line(workdir, step).get("seconds", 0.0)
    write_json(workdir / RECORD, {"step": step, "seconds": float(seconds)})


def load_shared(workdir: Path) -> dict[str, Any]:
    """The "step" and the "seconds" that a run shares with a trunk; 0 of one alone."""
    path = workdir / RECORD
    if not path.exists():
        return {"step": 0, "seconds": 0.0}
    return load_json(path, FORM, "train the run again")
