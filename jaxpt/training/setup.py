"""What a run trains with: all is checked, and its folder written, before any step."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxpt.by_name import load_place
from jaxpt.distributed import processes
from jaxpt.files.folder import CHECKPOINTS
from jaxpt.runs.checkpoint import Checkpointer
from jaxpt.runs.program import Program
from jaxpt.runs.random_parts import check_networks, read_random_parts
from jaxpt.runs.task import Task
from jaxpt.runs.workdir import check_shared, fingerprint, lock_workdir
from jaxpt.text.dataset import Split
from jaxpt.text.feed import Feed
from jaxpt.text.tokens.tokenizer import Tokenizer
from jaxpt.training.check import check_run
from jaxpt.training.clock import Branching, Stopwatch
from jaxpt.training.evaluator import Evaluator
from jaxpt.training.hooks import Hooks
from jaxpt.training.rewind import Rewinder
from jaxpt.training.run_log import RunLog
from jaxpt.training.saver import Saver


@dataclasses.dataclass(frozen=True)
class Setup:
    """A run's task, compiled functions and rows, and the objects that the loop calls.

    Attributes:
      feed: its rows; the loop may leave out batches (`train.rewind`).
      watch: its training time.
      evaluator: measures it.
      saver: writes checkpoints and milestones.
      rewinder: ends it, or sends it back, after a bad update.
      branching: the states that it shares with other runs.
    """

    task: Task
    program: Program
    feed: Feed
    workdir: Path
    hooks: Hooks
    log: RunLog
    watch: Stopwatch
    checkpointer: Checkpointer
    evaluator: Evaluator
    saver: Saver
    rewinder: Rewinder
    branching: Branching

    def read(self, function: Callable, *args: Any) -> Any:
        """`function(workdir, *args)`, read by process 0 for all; plain JSON."""
        return processes.on_first(function, self.workdir, *args)


def set_up(
    task: Task,
    tokenizer: Tokenizer,
    corpora: dict[str, Split],
    workdir: Path,
    program: Program | None,
    label: str,
    hooks: Hooks,
    branching: Branching,
) -> Setup:
    """Checks a run, and writes its config, tokenizer and text's fingerprint.

    Args:
      as `jaxpt.training.loop.train`.
    """
    spec, watch = task.plan.train, Stopwatch(begun=time.perf_counter())
    parts = processes.on_first(read_random_parts, workdir)
    with_parts = dataclasses.replace(task, random_parts=parts)
    processes.on_all(check_networks, with_parts, "train")
    # A run that has begun no longer needs the checkpoint it was initialised from.
    has_begun = processes.on_first((workdir / CHECKPOINTS).is_dir)
    program, feed = processes.on_all(
        check_run, task, tokenizer, corpora, program, has_begun
    )
    score_tasks = None
    if task.plan.eval.tasks:
        make_scores = load_place("jaxpt.training.task_scores:make_scores")
        is_compared = bool(label)
        score_tasks = processes.on_all(make_scores, program, tokenizer, is_compared)
    milestones: dict[int, list[str]] = {}
    if spec.checkpoint_words:
        args = corpora["train"], feed, tokenizer, task.spec.row_length
        module = load_place("jaxpt.training.milestones")
        milestones = processes.on_all(
            lambda: module.plan_milestones(spec, module.count_words_of_row(*args))
        )
    processes.check_same("config or text", fingerprint(task.plan, tokenizer, corpora))
    processes.on_first(lock_workdir, workdir, task.plan, tokenizer, corpora)
    processes.on_all(check_shared, workdir)
    checkpointer = Checkpointer(workdir / CHECKPOINTS, keep=spec.keep_checkpoints)
    take_samples = None
    num = 0 if label else task.plan.eval.samples  # a comparison's report has them
    if num:
        make_lines = load_place("jaxpt.runs.passage_samples:make_lines")
        take_samples = make_lines(program, tokenizer, corpora["valid"], num)
    log = RunLog(program, feed, corpora, workdir, label, watch)
    rewinder = Rewinder(task, workdir, checkpointer, log)
    saver = Saver(
        task, workdir, checkpointer, log, milestones, rewinder, hooks, branching.kept
    )
    return Setup(
        task=task,
        program=program,
        feed=feed,
        workdir=workdir,
        hooks=hooks,
        log=log,
        watch=watch,
        checkpointer=checkpointer,
        evaluator=Evaluator(
            task, program, corpora, log, take_samples, score_tasks, hooks
        ),
        saver=saver,
        rewinder=rewinder,
        branching=branching,
    )
