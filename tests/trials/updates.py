"""Trials of bad updates: how many were tried, and how many passed.

    python tests/trials/updates.py

Every run has eight simulated devices and tiny models. Losses, and so gradients, are
multiplied by NaN, infinity or 10,000 at chosen steps, or with chosen rows.

18. Bad updates at random steps: each is skipped and counted, and parameters are those
    before it. Three in a row end the run, with exit code 3 on the command line; no
    checkpoint has a number that is not finite. The other runs of a comparison are
    finished.
19. Bad rows: the run goes back at least n steps and skips m batches; its checkpoint has
    the list. Stopped at random calls and resumed, and replayed from the start with the
    list, it ends with the same bits.

Exit code 1 if anything did not hold.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ.setdefault("NPROC", "32")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import dataclasses
import functools
import json
import logging
import random
import tempfile
import traceback
from collections.abc import Callable
from unittest import mock

import jax
import numpy as np
from poison import poison
from stops import stop_after
from tiny import make_config, prepare, write_stored

from jaxpt.cli import main as cli
from jaxpt.distributed.processes import set_up_jax
from jaxpt.errors import DivergedError
from jaxpt.learn import skips
from jaxpt.runs.checkpoint import Checkpointer
from jaxpt.runs.program import Program
from jaxpt.runs.signals import Stopped
from jaxpt.text.feed import find_batch, unpad_ranges
from jaxpt.training import loop, rewind, setup

NAN, INF = float("nan"), float("inf")
STEPS = 20
# An objective each with another optimizer and another layout of its devices.
CASES = {
    "clm": {"optim__name": "muon", "train__fsdp": 4, "train__tensor": 2},
    "mlm": {"optim__ema_decay": 0.9, "model__dropout": 0.1, "train__backend": "pmap"},
    "span_corruption": {
        "optim__name": "adafactor",
        "optim__clip_norm": 0.0,
        "train__batch_size": 16,
        "train__num_microbatches": 2,
    },
    "electra": {"optim__name": "lamb", "train__fsdp": 0},
    "adaptive_mlm": {"adaptive_mlm__update_every": 1, "model__dtype": "bfloat16"},
}
BACK, NUM = 5, 9
SETTINGS = {
    "train__steps": STEPS,
    "train__steps_per_call": 1,
    "train__checkpoint_every": 1,
    "train__keep_checkpoints": STEPS,
    "train__rewind": (BACK, NUM),
    "train__trackers": (),
    "optim__max_skips": 3,
    "optim__spike_deviations": 20.0,
}


class Study:
    """A configuration whose program is compiled once, and its runs."""

    def __init__(self, text: Path, folder: Path, objective: str):
        self.objective, self.folder, self.count = objective, folder, 0
        settings = SETTINGS | CASES[objective]
        self.parts = prepare(make_config(text, objective, **settings))
        # For rewinds: the last checkpoint is seldom the one that they need.
        few = {"train__checkpoint_every": 2, "train__keep_checkpoints": 5}
        self.few_parts = prepare(make_config(text, objective, **settings | few))
        with poison(objective, {}):
            self.program = Program(self.parts[0])

    def train(self, factors, by="step", folder=None, num_calls=None):
        """Trains; the folder and the result. With `num_calls` it is stopped there."""
        self.count += 1
        folder = folder or self.folder / str(self.count)
        task, tokenizer, corpora = self.few_parts if by == "batch" else self.parts
        go = functools.partial(
            loop.train, task, tokenizer, corpora, folder, self.program
        )
        with poison(self.objective, factors, by):
            if num_calls is None:
                return folder, go()
            with mock.patch.object(loop, "SignalWatch", stop_after(num_calls)):
                try:
                    go()
                except Stopped:
                    return folder, None
        raise AssertionError("the run was not stopped")

    def restore(self, folder, step=None):
        template = self.program.abstract_state()
        with Checkpointer(folder / "checkpoints") as checkpointer:
            state, _ = checkpointer.restore(template, step)
        return state


def to_bytes(tree) -> bytes:
    return b"".join(np.asarray(x).tobytes() for x in jax.tree.leaves(tree))


def is_finite(tree) -> bool:
    leaves = map(np.asarray, jax.tree.leaves(tree))
    return all(np.isfinite(x.astype(np.float32)).all() for x in leaves)


def list_steps(folder: Path) -> list[int]:
    return Checkpointer(folder / "checkpoints").steps()


class Trials:
    """Counts what was tried and what held."""

    def __init__(self):
        self.tried = self.held = 0

    def check(self, name: str, test: Callable[[], bool]) -> None:
        self.tried += 1
        try:
            holds = test()
        except Exception:
            traceback.print_exc()
            holds = False
        self.held += bool(holds)
        print("held" if holds else "did not hold", name, sep=": ", flush=True)

    def summarise(self, title: str) -> bool:
        print(f"{title}: tried {self.tried}, held {self.held}", flush=True)
        return self.tried == self.held


def is_skipped(study: Study, bad: dict[int, float]) -> bool:
    """Whether just the bad updates change nothing, and are counted."""
    folder, result = study.train(bad)
    if result["skipped_updates"] != len(bad) or not is_finite(study.restore(folder)):
        return False
    states = [study.program.init_state(0)]
    states += [study.restore(folder, step) for step in range(1, STEPS + 1)]
    for step, (old, new) in enumerate(zip(states, states[1:])):
        params = to_bytes(old.params) == to_bytes(new.params)
        kept = to_bytes(old.objective_state) == to_bytes(new.objective_state)
        if params != (step in bad) or (step in bad and not kept):
            return False
        if int(new.skips.total) != sum(at <= step for at in bad):
            return False
    return True


def ends(study: Study, first: int, value: float) -> bool:
    """Whether three bad updates in a row end the run, and no bad checkpoint is kept."""
    try:
        with mock.patch.object(rewind, "MAX_RANGES", 0):  # it must not go back
            study.train(dict.fromkeys(range(first, first + 3), value))
    except DivergedError:
        folder = study.folder / str(study.count)
        record = json.loads((folder / "diverged.json").read_text())
        is_good = all(is_finite(study.restore(folder, n)) for n in list_steps(folder))
        latest = max(list_steps(folder), default=0)
        return record["diverged_at"] == first + 1 and is_good and latest <= first + 2
    return False


def rewinds(study: Study, bad: int, values: list[float], draw: random.Random) -> bool:
    """Whether a run with bad rows goes back, and has the same bits however repeated."""
    factors = {bad + i: value for i, value in enumerate(values)}
    seen: list[int] = []
    restore = loop.restore

    def watched(run, rewind):
        restored = restore(run, rewind)
        if rewind is not None:
            seen.append(rewind.bad_step - 1 - restored.step)
        return restored

    with mock.patch.object(loop, "restore", watched):
        folder, result = study.train(factors, "batch")
    first = max(bad - BACK, 0)
    whole = to_bytes(study.restore(folder))
    ranges = unpad_ranges(np.asarray(study.restore(folder).skipped_batches))
    holds = result["skipped_batches"] == [list(pair) for pair in ranges]
    holds &= ranges == ((first, first + NUM),)
    holds &= len(seen) == 1 and seen[0] >= min(BACK, bad)
    holds &= find_batch(first, ranges) == first + NUM
    stopped, _ = study.train(factors, "batch", num_calls=draw.randrange(1, 10))
    study.train(factors, "batch", stopped)
    holds &= to_bytes(study.restore(stopped)) == whole
    # The same program, whose state begins with the list.
    padded = study.restore(folder).skipped_batches
    make_feed, init = setup.check_run, study.program.init_state

    def check_run(*args):
        program, feed = make_feed(*args)
        return program, feed.without(ranges)

    def init_state(seed):
        return dataclasses.replace(init(seed), skipped_batches=padded)

    with (
        mock.patch.object(setup, "check_run", check_run),
        mock.patch.object(study.program, "init_state", init_state),
    ):
        replayed, _ = study.train(factors, "batch")
    return holds and to_bytes(study.restore(replayed)) == whole


def exit_code(text: Path, folder: Path) -> int:
    """Of `jaxpt train` with a learning rate at which the loss is soon infinite."""
    config = make_config(text, "clm", optim__lr=1e25, optim__schedule="constant")
    write_stored(folder / "hot.json", config)
    flags = ["--config", str(folder / "hot.json"), "--quiet"]
    return cli.main(["train", *flags, "--workdir", str(folder / "hot")])


def compares(text: Path, folder: Path) -> bool:
    """Whether a comparison with an objective that diverges finishes the others."""
    hot = {"optim": {"lr": 1e25, "schedule": "constant", "max_skips": 2}}
    config = make_config(
        text,
        "clm",
        optim__max_skips=2,
        train__checkpoint_every=0,
        compare__objectives=("mlm", "hot"),
        compare__overrides={"hot": {"objective": "clm"} | hot},
        compare__seeds=(0, 1),
        compare__amount=8e7,
    )
    write_stored(folder / "compare.json", config)
    flags = ["--config", str(folder / "compare.json"), "--quiet"]
    with poison("mlm", {3: NAN}):
        code = cli.main(["compare", *flags, "--workdir", str(folder / "compare")])
    report = json.loads((folder / "compare" / "report.json").read_text())
    skipped = [run["skipped_updates"] for run in report["runs"]]
    lost = {(run["name"], run["seed"]) for run in report["diverged"]}
    return code == 0 and skipped == [1, 1] and lost == {("hot", 0), ("hot", 1)}


def try_skips(study: Study, draw: random.Random, trials: Trials) -> None:
    """Trial 18, in training."""
    first, *steps = sorted(draw.sample(range(1, STEPS - 3), 4))
    for value in draw.sample((NAN, INF, -INF), 2):
        bad = dict.fromkeys({first, first + 1, steps.pop()}, value)
        test = functools.partial(is_skipped, study, bad)
        trials.check(f"{study.objective}: skips {bad}", test)
    bad = {draw.randrange(10, STEPS): 1e5}
    test = functools.partial(is_skipped, study, bad)
    trials.check(f"{study.objective}: skips the spike {bad}", test)
    test = functools.partial(ends, study, first, value)
    trials.check(f"{study.objective}: ends, {value} from step {first} on", test)


def try_rewinds(study: Study, draw: random.Random, trials: Trials) -> None:
    """Trial 19."""
    for values in ([1e5] * 3, [NAN, INF, 1e5]):
        bad = draw.randrange(10, STEPS - 3)
        test = functools.partial(rewinds, study, bad, values, draw)
        trials.check(f"{study.objective}: rewinds, {values} from batch {bad}", test)


def main() -> int:
    """Runs all trials; the exit code."""
    set_up_jax()
    draw = random.Random(0)
    logging.getLogger("jaxpt").setLevel(logging.CRITICAL)  # not each update
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = folder / "text.txt"
        words = (
            "the cat sat on a mat and the dog ran to it, what a good or bad day".split()
        )
        text.write_text(" ".join(draw.choices(words, k=3000)), encoding="utf-8")
        skipped, rewound = Trials(), Trials()
        with mock.patch.object(skips, "MIN_NORMS", 6):
            for objective in CASES:
                study = Study(text, folder / objective, objective)
                try_skips(study, draw, skipped)
                try_rewinds(study, draw, rewound)
        for time in ("first", "second"):
            test = lambda: exit_code(text, folder) == 3  # noqa: E731
            skipped.check(f"the exit code, the {time} time", test)
        skipped.check("a comparison", lambda: compares(text, folder))
        results = skipped.summarise("18 bad updates"), rewound.summarise("19 bad rows")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
