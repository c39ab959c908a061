"""The training loop: compiled calls, logs, evaluations, checkpoints, resume.

`train` prepares a run and catches a rewind; `_train` is the loop. What it calls:

    setup        what is checked and built before it
    restore      the state from which it starts
    clock        the end of the run, and the actions that are due
    call_reader  the metrics of a call: bad updates, the log
    evaluator    metrics and samples, by step and at the end
    saver        checkpoints and milestones
    rewind       bad updates
"""

import contextlib
from pathlib import Path

from jaxpt.files.folder import hold
from jaxpt.runs.initial_state import make_start
from jaxpt.runs.program import Program
from jaxpt.runs.result import load_result
from jaxpt.runs.signals import SignalWatch, Stopped
from jaxpt.runs.task import Task
from jaxpt.text.dataset import Split
from jaxpt.text.feed import prefetch
from jaxpt.text.tokens.tokenizer import Tokenizer
from jaxpt.training.call_reader import Call, CallReader
from jaxpt.training.clock import ALONE, Branching, make_clock
from jaxpt.training.hooks import NO_HOOKS, Hooks
from jaxpt.training.profile import Profiler
from jaxpt.training.restore import restore
from jaxpt.training.result import write_result
from jaxpt.training.rewind import Rewind
from jaxpt.training.setup import Setup, set_up


def train(
    task: Task,
    tokenizer: Tokenizer,
    corpora: dict[str, Split],
    workdir: Path,
    program: Program | None = None,
    label: str = "",
    only_valid: bool = False,
    hooks: Hooks = NO_HOOKS,
    branching: Branching = ALONE,
) -> dict:
    """Trains a run to its end, from its last checkpoint if there is one.

    Args:
      program: a compiled one of the same task, whose seed may differ.
      label: shown before each line of progress.
      only_valid: the final metrics are only the objective's own validation metrics.
      branching: the states that the run shares with runs of other lengths.

    A run that diverges writes `diverged.json` (`workdir.load_divergence`). It is not
    trained again while its folder has that record.

    Returns:
      the run's entry in a report, which is also written to `result.json`.

    Raises:
      UserError: the folder holds another run, or no good checkpoint among several; its
        files were altered; or another process writes there.
      DivergedError: a loss or parameter is not finite, now or at an earlier start; on
        all processes.
      Stopped: a signal came; the state is saved.
    """
    workdir, signals = Path(workdir), SignalWatch()
    rewind: Rewind | None = None
    with signals.pass_on(), hold(workdir):
        text = tokenizer, corpora
        run = set_up(task, *text, workdir, program, label, hooks, branching)
        with run.checkpointer, signals:
            while True:
                try:
                    result = _train(run, rewind, signals, only_valid)
                    break
                except Rewind as bad_update:
                    rewind = bad_update
    hooks.on_end(result)
    return result


def _train(
    run: Setup, rewind: Rewind | None, signals: SignalWatch, only_valid: bool
) -> dict:
    """Trains from the last checkpoint to the end of the run; returns its result.

    Args:
      rewind: of a bad update, before which training continues.
    """
    program, spec, log, watch = run.program, run.task.plan.train, run.log, run.watch
    also_evaluated = run.branching.evaluated
    restored = restore(run, rewind)
    state, step, feed, _ = restored
    clock = make_clock(spec, step, watch.seconds)
    if clock.is_over and (result := run.read(load_result)):
        return result
    reader, counts = CallReader(run, clock, restored), clock.list_calls(step)
    if not clock.is_over:  # compiles while the start and its evaluation are made
        program.train_call.begin(feed[step], next(iter(counts)))
    state = state or make_start(program, spec)
    with contextlib.ExitStack() as open_:
        open_.enter_context(log.open(step))
        if not rewind:
            log.introduce()
        if step:
            log.info(f"resuming from step {step} in {run.workdir}")
        if step == 0:
            run.evaluator.evaluate(state, step)
        rows = prefetch(feed, step, counts, place=program.place)
        open_.enter_context(contextlib.closing(rows))
        profiler = Profiler(run.workdir, spec.profile_steps)
        open_.enter_context(contextlib.closing(profiler))
        state, pending = program.run_form(state), None
        for count, stack in zip(counts, rows, strict=True):
            if stack not in program.train_call:
                log.info(f"compiling a call of {count} steps")
            watch.run(program.train_call.compile(state, stack))
            schedule = clock.begin_call(watch.agree)
            with profiler.begin(step):
                state, metrics = program.train_call(state, stack, spec.seed, *schedule)
            profiler.end(count, metrics)
            reader.read(pending)  # the call before, while this one runs
            step += count
            pending = Call(step, count, metrics)
            log.time_first_call(*pending)
            if clock.waits_for_calls:
                reader.read(pending)
                pending = None
            clock.end_call(step, watch.agree)
            signum, is_saved = signals.ask(), clock.is_due(spec.checkpoint_every)
            is_evaluated = clock.is_due(spec.eval_every) or step in also_evaluated
            if signum or is_evaluated or is_saved or step in run.saver.steps:
                reader.read(pending)
                pending = None
                watch.pause(clock.reading)
                saved = program.save_form(state)
                if is_evaluated:
                    run.evaluator.evaluate(saved, step)
                run.saver.save(saved, reader.count_cost(step), is_saved, signum)
                del saved  # with pmap a copy, whose memory the next call needs
            if clock.is_over:
                break
            if signum:
                run.checkpointer.wait()
                raise Stopped(step, signum)
        state = program.save_form(state)
        measured = run.evaluator.measure(state, step, only_valid)
    run.checkpointer.wait()  # a run with a result has its last checkpoint
    cost = reader.count_cost(step)
    return write_result(run.workdir, run.task, program, state.params, cost, measured)
