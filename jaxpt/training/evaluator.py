"""Evaluations of a run: before, during and after its training."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxpt.judge.examples import means
from jaxpt.learn.state import TrainState
from jaxpt.runs.program import Program
from jaxpt.runs.task import Task
from jaxpt.text.dataset import Split
from jaxpt.training.hooks import Hooks
from jaxpt.training.measure import (
    NO_RESULTS,
    Measured,
    measure,
    measure_exact,
    measure_frozen,
    measure_text,
    measure_valid,
)
from jaxpt.training.result import list_curves
from jaxpt.training.run_log import RunLog


class Evaluator:
    """Measures a run with its evaluated parameters (`TrainState.eval_params`).

    Args:
      take_samples: (params) -> lines of text, logged with each evaluation, if any.
      score_tasks: (params) -> the metrics of `eval.tasks`, if there are any.
    """

    def __init__(
        self,
        task: Task,
        program: Program,
        corpora: dict[str, Split],
        log: RunLog,
        take_samples: Callable[[Any], list[str]] | None,
        score_tasks: Callable[[Any], dict[str, float]] | None,
        hooks: Hooks,
    ):
        self._task, self._program, self._corpora = task, program, corpora
        self._log, self._hooks = log, hooks
        self._take_samples = take_samples
        self._score_tasks = score_tasks or (lambda params: {})
        self._measured: dict[int, Measured] = {}  # by step, in this process
        # What step 0 measured of random parameters. A run may start from others, those
        # of another run, a teacher or an imported model.
        self._control = NO_RESULTS

    def evaluate(self, state: TrainState, step: int) -> None:
        """Logs the validation metrics and samples of a state in its saved form."""
        if step == 0:
            self._log.announce("evaluating the initial parameters")
        params = state.eval_params
        values = measure_valid(self._program, params, self._corpora)
        frozen = NO_RESULTS
        if self._task.plan.eval.probe_every_eval:
            frozen = measure_frozen(self._program, params, self._corpora)
            valid = self._corpora["valid"]
            values |= means(measure_text(self._program, params, valid))
            run = self._program, params, self._corpora
            values |= means(measure_exact(*run, is_quick=True)[0])
        values |= frozen.metrics | self._score_tasks(params)
        self._measured[step] = frozen._replace(metrics=values)
        is_start = step == 0 and self._task.plan.eval.probe_every_eval
        if is_start and _are_equal(params, self._init_random()):
            self._control = self._measured[0]
        samples = self._take_samples(params) if self._take_samples else []
        decay = self._task.plan.optim.ema_decay
        ema = {"ema_decay": decay} if decay else {}
        self._log.write(step, values | ema, "\n".join(samples))
        curves = "  ".join(f"{k} {values[k]:.4f}" for k in list_curves(values))
        for line in (curves, *samples):
            self._log.info(f"step {step}{' (EMA)' if ema else ''}  {line}")
        self._hooks.on_evaluation(step, values, params)

    def measure(self, state: TrainState, step: int, only_valid: bool) -> Measured:
        """The run's final metrics, without measuring again what evaluations did."""
        self._log.announce(f"measuring the run after step {step}")
        params, seed = state.eval_params, self._task.plan.train.seed
        known = self._measured.get(step, NO_RESULTS)
        if not only_valid:
            run = self._program, params, self._corpora, seed
            measured = measure(*run, known, self._control)
            scores = {} if known.metrics else self._score_tasks(params)
            return measured._replace(metrics=measured.metrics | scores)
        if known.metrics:
            return known
        return Measured(measure_valid(self._program, params, self._corpora), {}, {})

    def _init_random(self) -> Any:
        return self._program.init_params(self._task.plan.train.seed)


def _are_equal(first: Any, second: Any) -> bool:
    """Whether two trees of arrays have the same values."""

    @jax.jit
    def compare(first, second):
        same = jax.tree.map(lambda a, b: (a == b).all(), first, second)
        return jax.tree.reduce(jnp.logical_and, same)

    return bool(compare(first, second))
