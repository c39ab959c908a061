"""Zero-shot tasks that every evaluation of a run scores (`eval.tasks`).

    zero_shot_blimp_accuracy    the main figure of `jaxpt evaluate` for the task
                                blimp:PATH and 200 items: the same, by the same rule

The items are read before training, and evenly spaced, so that those of every step, run
and objective are the same.
"""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from jaxpt.distributed import processes
from jaxpt.errors import ConfigError
from jaxpt.files.remote import localise
from jaxpt.runs.embedding import TextEmbedder
from jaxpt.runs.program import Program
from jaxpt.runs.task_names import name_tasks
from jaxpt.runs.workdir import LoadedRun
from jaxpt.runs.zero_shot_results import has_ability, make_likelihood
from jaxpt.text.tokens.tokenizer import Tokenizer
from jaxpt.zero_shot.names import CURVE_PREFIX
from jaxpt.zero_shot.outcomes import STATES
from jaxpt.zero_shot.scoring import AUTO
from jaxpt.zero_shot.tasks import TASKS, find_own_rules, find_rules, spread_items

_log = logging.getLogger(__name__)


class ScoredTask(NamedTuple):
    """A task with its items.

    Attributes:
      name: of its metric, without the figure.
      kind: a key of `zero_shot.tasks.TASKS`.
    """

    name: str
    kind: str
    items: Sequence


def read_tasks(settings: Sequence[str]) -> list[ScoredTask]:
    """The tasks of `eval.tasks`, with all their items; names are unique."""

    def list_metrics(setting: str, name: str) -> list[str]:
        return [name]

    names = name_tasks(settings, list_metrics, "eval.tasks")
    tasks = []
    for name, setting in zip(names, settings, strict=True):
        kind, _, path = setting.partition(":")
        tasks.append(ScoredTask(name, kind, TASKS[kind].read(localise(path))))
    return tasks


class TaskScores:
    """Scores the tasks with a run's parameters of any step.

    Compiled functions are kept from one evaluation to the next.

    Args:
      num_items: of each task; 0 for all.
    """

    def __init__(
        self,
        program: Program,
        tokenizer: Tokenizer,
        tasks: Sequence[ScoredTask],
        num_items: int,
    ):
        self._tasks = [
            each._replace(
                items=[each.items[i] for i in spread_items(each.items, num_items)]
            )
            for each in tasks
        ]
        reads = {TASKS[each.kind].reads for each in tasks}
        run = LoadedRun(program, tokenizer, None, 0)
        self._embedder = TextEmbedder.of_run(run) if STATES in reads else None
        self._context = make_likelihood(run) if reads - {STATES} else None

    def __call__(self, params: Any) -> dict[str, float]:
        """The main figure of each task, by the name of its metric."""
        return dict(self._score(task, params) for task in self._tasks)

    def _score(self, task: ScoredTask, params: Any) -> tuple[str, float]:
        reader, (rule, *_) = self._prepare(task, params)
        evaluate = TASKS[task.kind].evaluate
        outcome = processes.on_all(evaluate, reader, task.items, (rule,))[rule]
        figure, *_ = outcome.figures
        return f"{CURVE_PREFIX}{task.name}_{figure}", outcome.figures[figure].value

    def _prepare(self, task: ScoredTask, params: Any) -> tuple[Any, tuple[str, ...]]:
        """What the task reads of the run, and the rule."""
        if TASKS[task.kind].reads == STATES:
            assert self._embedder is not None
            reader: Any = self._embedder.with_params(params).embed_pools
        else:
            assert self._context is not None
            scorer = self._context.scorer.with_params(params)
            reader = self._context._replace(scorer=scorer)
        if TASKS[task.kind].own_rules:
            return reader, find_own_rules(task.kind, AUTO)
        return reader, find_rules(reader.scorer, AUTO)


def make_scores(
    program: Program, tokenizer: Tokenizer, is_compared: bool
) -> TaskScores:
    """The scores of a run's `eval.tasks`.

    Args:
      is_compared: a task that its network cannot score is left out, with a line in the
        log; otherwise it is an error.
    """
    task, kept = program.task, []
    spec = task.plan.eval
    for setting, each in zip(spec.tasks, read_tasks(spec.tasks), strict=True):
        if has_ability(task.model, each.kind):
            kept.append(each)
            continue
        line = (
            f"eval.tasks={setting}: must be left out for {task.plan.objective_name}, "
            f"which cannot score texts"
        )
        if not is_compared:
            raise ConfigError(line)
        _log.info(f"not measured: {line}")
    return TaskScores(program, tokenizer, kept, spec.task_items)
