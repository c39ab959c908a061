"""The downstream tasks of a comparison, and what it shows of a zero-shot one."""

import dataclasses
from pathlib import Path

from jaxpt.config.sections import FINETUNE, CompareSpec
from jaxpt.judge.examples import Examples
from jaxpt.report.wording import NGRAMS_SUFFIX
from jaxpt.runs.task_names import name_tasks
from jaxpt.runs.workdir import load_task
from jaxpt.runs.zero_shot_results import has_ability, load_main
from jaxpt.zero_shot.tasks import TASKS

PREFIX = "task"  # of the metrics' names
RANDOM_SUFFIX = "_random"  # of metrics of a random initialization
CORRELATIONS = ("mcc", "pearson", "spearman")
MARGIN = 0.01  # of equivalence: see `jaxpt.judge.verdicts`


@dataclasses.dataclass(frozen=True)
class CompareTask:
    """A task that every run is evaluated on.

    Attributes:
      name: of its metrics and folders.
      setting: its entry in `compare.tasks`.
      path: of the data, or of the config file.
      sizes: numbers of labelled examples, 0 for all; () for a zero-shot task.
    """

    name: str
    setting: str
    path: str
    sizes: tuple[int, ...] = ()

    @property
    def is_zero_shot(self) -> bool:
        """Whether the task needs no training."""
        return not self.sizes

    @property
    def kind(self) -> str:
        """The name of a zero-shot task, or "finetune"."""
        return self.setting.partition(":")[0]

    def metric(self, size: int = 0, figure: str = "") -> str:
        """The name of its metric.

        >>> CompareTask("sst2", "", "", (0, 32)).metric(32)
        'task_sst2_32'
        """
        parts = (PREFIX, self.name, str(size) if size else "", figure)
        return "_".join(filter(None, parts))


def list_compare_tasks(spec: CompareSpec) -> list[CompareTask]:
    """The tasks of a comparison, with unique names."""

    def find_sizes(setting: str) -> tuple[int, ...]:
        return spec.task_sizes if setting.startswith(f"{FINETUNE}:") else ()

    def make_task(setting: str, name: str) -> CompareTask:
        path = setting.partition(":")[2]
        return CompareTask(name, setting, path, find_sizes(setting))

    def list_metrics(setting: str, name: str) -> list[str]:
        task = make_task(setting, name)
        if task.is_zero_shot:
            return [task.metric(figure=figure) for figure in list_compared(task)]
        metrics = [task.metric(size) for size in task.sizes]
        suffixes = ("", RANDOM_SUFFIX, NGRAMS_SUFFIX)
        return [metric + suffix for metric in metrics for suffix in suffixes]

    return list(map(make_task, spec.tasks, name_tasks(spec.tasks, list_metrics)))


def list_compared(task: CompareTask) -> list[str]:
    """The figures of a zero-shot task that are compared; "" is the main one."""
    return list(TASKS[task.kind].compared) or [""]


def can_evaluate(task: CompareTask, folder: Path) -> bool:
    """Whether a task is zero-shot and the run's network has what it reads."""
    return task.is_zero_shot and has_ability(load_task(folder)[0].model, task.kind)


def read_zero_shot(
    task: CompareTask, result: dict, folder: Path, figure: str
) -> tuple[dict, float, Examples | None] | None:
    """A figure's entry, its value, and the scores it is the mean of, if it is one.

    None if the figure is not defined, as of texts that are too short for it.

    Args:
      figure: its name; "" is the main one.
    """
    ((rule, scored),) = result["results"].items()
    name = figure or next(iter(scored["figures"]))
    if name not in scored["figures"]:
        return None
    is_higher = TASKS[task.kind].compared.get(figure, "perplexity" not in name)
    words = name.replace("_", " ")
    entry = {
        "task": task.name,
        "metric": task.metric(figure=figure),
        "label": f"{task.name} zero-shot {words}",
        "title": f"{task.name} {words}" if figure else task.name,
        "higher_is_better": is_higher,
        "margin": MARGIN,
        "reference": "",
        "span": find_span(name),
        "rule": rule,
        "items": result["num_items"],
    }
    value = scored["figures"][name]["value"]
    return entry, value, load_main(folder, result, rule, figure)


def find_span(name: str) -> float | None:
    """The range of a metric's values; None if it has no largest one.

    Correlations are between -1 and 1, all others between 0 and 1.
    """
    if "perplexity" in name or name == "entropy":
        return None
    return 2.0 if name in CORRELATIONS else 1.0
