"""Downstream tasks of a comparison: each run is asked, and fine-tuned, when it is done.

`compare.tasks` names them:

    blimp:FOLDER                     zero-shot, as `jaxpt evaluate --tasks` (each run by
                                     the first rule of its network)
    finetune:configs/tasks/sst2.py   fine-tuned as `jaxpt finetune` does, from the run
                                     and from fresh parameters of its network; at each
                                     number of labels in `compare.task_sizes`

What is found is a yardstick that all objectives share, on the same data for all. A
fine-tuning's seed is that of the run, which also draws the labelled examples, so that
runs of one seed learn from the same ones. What a run answered is kept in its folder:

    tasks.json, task_examples.npz    what the report reads
    evaluations, finetune            all of it; what is finished there is not done again
"""

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

from jaxpt import trust
from jaxpt.config.config_files import read_config_file
from jaxpt.config.finetuning import FinetunePlan, make_finetune_plan
from jaxpt.config.sections import FINETUNE, CompareSpec
from jaxpt.config.settings import override, to_dict
from jaxpt.config.shipped import find_config, is_shipped
from jaxpt.distributed import processes
from jaxpt.errors import DivergedError, UserError
from jaxpt.files.folder import load_measured, write_json
from jaxpt.finetuning.base import SCRATCH, make_fresh_base
from jaxpt.finetuning.evaluation import Examples as TuneExamples
from jaxpt.finetuning.grid import finetune, make_program
from jaxpt.finetuning.reuse import Reuse
from jaxpt.inference.zero_shot_results import evaluate_tasks, load_main
from jaxpt.nn.networks.abilities import ScoresTexts
from jaxpt.statistics.examples import Examples
from jaxpt.text.tokens.tokenizer import Tokenizer
from jaxpt.training.task import Task
from jaxpt.training.workdir import load_examples, load_task, write_examples
from jaxpt.zero_shot.scoring import AUTO
from jaxpt.zero_shot.tasks import TASKS, list_tasks

PREFIX = "task"  # of the metrics' names
MARGIN = 0.01  # objectives that are surely nearer to each other are equivalent
ANSWERS, EXAMPLES = "tasks.json", "task_examples.npz"


@dataclasses.dataclass(frozen=True)
class CompareTask:
    """A task that is put to every run.

    Attributes:
      name: as its metrics and folders are called.
      told: as `compare.tasks` names it.
      path: of the data, or of the config file.
      sizes: numbers of labelled examples, 0 for all; () of a zero-shot task.
    """

    name: str
    told: str
    path: str
    sizes: tuple[int, ...] = ()

    @property
    def is_zero_shot(self) -> bool:
        """Whether nothing is trained for it."""
        return not self.sizes

    def metric(self, size: int = 0) -> str:
        """What a run's metrics call it.

        >>> CompareTask("sst2", "", "", (0, 32)).metric(32)
        'task_sst2_32'
        """
        return f"{PREFIX}_{self.name}" + (f"_{size}" if size else "")


def list_compare_tasks(spec: CompareSpec) -> list[CompareTask]:
    """The tasks of a comparison, each with a name of its own.

    Raises:
      UserError: one of them is none.
    """
    found: dict[str, CompareTask] = {}
    for told in spec.tasks:
        kind, _, path = told.partition(":")
        if kind == FINETUNE and path:
            name, sizes = Path(path.partition(":")[0]).stem, spec.task_sizes
        elif kind in TASKS and path:
            name, sizes = kind, ()
        else:
            allowed = ", ".join(f"{each}:PATH" for each in (*TASKS, FINETUNE))
            raise UserError(f"compare.tasks={told}: must be one of {allowed}")
        if name in found:
            raise UserError(
                f"compare.tasks={told}: {name} is named twice; must be named once"
            )
        found[name] = CompareTask(name, told, path, sizes)
    return list(found.values())


def make_plan_of(
    task: CompareTask, size: int, seed: int, settings: dict
) -> FinetunePlan:
    """How a run with this seed is fine-tuned, with so many labels.

    Args:
      settings: `compare.task_settings`.

    Raises:
      UserError: the config file is wrong or not the user's, or a setting is wrong.
    """
    if not is_shipped(find_config(task.path)):
        trust.check(task.path.partition(":")[0], f"compare.tasks={task.told}")
    config = to_dict(read_config_file(task.path))
    config = override(config, settings, "compare.task_settings")
    config["data"] = config.get("data", {}) | {"num_train": size}
    config["train"] = config.get("train", {}) | {"seeds": (seed,)}
    return make_finetune_plan(config)


def identify_tasks(spec: CompareSpec, reuse: Reuse) -> dict[str, str]:
    """Each task and size with the sha256 of its data, once all of it was read.

    Args:
      reuse: keeps what was read for `ask_run`.

    Raises:
      UserError: a file is missing or wrong, or has fewer labels than are asked for; or
        there are several processes, of which each would fine-tune.
    """
    tasks = list_compare_tasks(spec)
    if tasks and not processes.is_alone():
        raise UserError(
            f"compare.tasks={','.join(spec.tasks)}: must be empty with --distributed; "
            f"spread the runs with --part instead"
        )
    found = {}
    for task in tasks:
        if task.is_zero_shot:
            for name, path in list_tasks([task.told]):
                found[f"{task.told} {spec.task_items}"] = _digest(
                    TASKS[name].read(path)
                )
        for size in task.sizes:
            plan = make_plan_of(task, size, spec.seeds[0], spec.task_settings)
            found[f"{task.told} {size}"] = _digest(
                [plan.config, reuse.read_data(plan).fingerprint]
            )
    return found


def check_networks(
    spec: CompareSpec,
    tasks: Mapping[str, Task],
    tokenizer: Tokenizer,
    reuse: Reuse,
) -> None:
    """Finds before anything is trained which network cannot be fine-tuned as asked.

    Args:
      tasks: of each name that is compared.

    Raises:
      UserError: one cannot.
    """
    for asked in list_compare_tasks(spec):
        if asked.is_zero_shot:
            continue
        plan = make_plan_of(asked, max(asked.sizes), spec.seeds[0], spec.task_settings)
        data = reuse.read_data(plan)
        items = data.splits["train"][:2]
        settings = plan.spec.head, plan.spec.max_len, plan.train.dropout
        for name, task in tasks.items():
            try:
                base = make_fresh_base(task, tokenizer, *settings)
                rows = plan.task.encode(
                    items, base.encoder, plan.spec, is_training=True
                )
                make_program(plan, base, data.labels, TuneExamples(items, rows))
            except UserError as error:
                raise UserError(f"{error} (for {name}, {asked.told})") from error


def _digest(value) -> str:
    text = repr(value)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def ask_run(
    spec: CompareSpec,
    identity: dict[str, str],
    folder: Path,
    seed: int,
    say: Callable[[str], None],
    reuse: Reuse,
) -> None:
    """Puts every task to a finished run; what is done already is not repeated.

    Args:
      identity: as of `identify_tasks`.
      reuse: of the runs before, what this one has in common with them.

    Raises:
      UserError, Stopped: as `run.zero_shot.evaluate_tasks` and
        `finetune.grid.finetune`.
    """
    if has_answered(folder, identity):
        return
    entries: list[dict] = []
    metrics: dict[str, float | None] = {}
    examples: dict[str, Examples] = {}
    tasks = list_compare_tasks(spec)
    zero_shot = [task for task in tasks if task.is_zero_shot]
    if zero_shot and _can_score(folder):
        told = [task.told for task in zero_shot]
        results = evaluate_tasks(folder, told, AUTO, spec.task_items)
        for task, result in zip(zero_shot, results, strict=True):
            entry, value, kept = _describe_answer(task, result, folder)
            entries.append(entry)
            metrics[task.metric()] = value
            if kept is not None:
                examples[task.metric()] = kept
    for task in tasks:
        for size in task.sizes:
            plan = make_plan_of(task, size, seed, spec.task_settings)
            found = [
                _finetune(plan, source, place, say, reuse)
                for source, place in _list_sources(task, size, folder)
            ]
            entry, values = _describe_tuned(task, size, *found)
            entries.append(entry)
            metrics |= values
    write_examples(folder, examples, EXAMPLES)
    answers = {"asked": identity, "tasks": entries, "metrics": metrics}
    write_json(folder / ANSWERS, answers)


def has_answered(folder: Path, identity: dict[str, str]) -> bool:
    """Whether a run was asked just these tasks, on these data."""
    path = folder / ANSWERS
    return path.exists() and load_measured(path)["asked"] == identity


def _can_score(folder: Path) -> bool:
    """Whether the order of words has a say in what the run's network finds likely."""
    task, _ = load_task(folder)
    return isinstance(task.model, ScoresTexts)


def _list_sources(task: CompareTask, size: int, folder: Path) -> list[tuple[str, Path]]:
    """What is fine-tuned, the run and its network with fresh parameters, and where."""
    place = folder / FINETUNE / f"{task.name}-{size or 'all'}"
    return [
        (str(folder), place / "pretrained"),
        (f"{SCRATCH}{folder}", place / "scratch"),
    ]


def _finetune(plan: FinetunePlan, source: str, place: Path, say, reuse: Reuse) -> dict:
    """As `finetune`; if every run diverged, its stored result, which picks none."""
    try:
        return finetune(plan, source, place, say, reuse)
    except DivergedError as error:
        say(str(error))
        return load_measured(place / "result.json")


def _describe_answer(
    task: CompareTask, result: dict, folder: Path
) -> tuple[dict, float, Examples | None]:
    """A zero-shot task's entry, its main figure, and what that is the mean of."""
    ((rule, found),) = result["results"].items()
    main = next(iter(found["figures"]))
    entry = {
        "task": task.name,
        "metric": task.metric(),
        "label": f"{task.name}, zero-shot {main.replace('_', ' ')}",
        "title": task.name,
        "higher_is_better": "perplexity" not in main,
        "margin": MARGIN,
        "reference": "",
        "rule": rule,
        "items": result["num_items"],
    }
    return entry, found["figures"][main]["value"], load_main(folder, result, rule)


def _describe_tuned(
    task: CompareTask, size: int, tuned: dict, scratch: dict
) -> tuple[dict, dict[str, float | None]]:
    """A fine-tuning's entry, and its metric with that of fresh parameters.

    The test split's, of the setting with the best dev metric; without one, dev's. It is
    None where every run diverged.
    """
    name = tuned["metric"]
    split = "test" if "test" in tuned["constant"] else "dev"
    values = {
        task.metric(size) + suffix: picked and picked[split][name]["median"]
        for suffix, picked in (("", tuned["picked"]), ("_random", scratch["picked"]))
    }
    measure = f"{split} {name.replace('_', ' ')}"
    labels = f"{size:,} labels" if size else "all labels"
    entry = {
        "task": task.name,
        "metric": task.metric(size),
        "label": f"{task.name}, {measure}, {labels}",
        "title": f"{task.name} {size or 'all'}",
        "higher_is_better": True,
        "margin": MARGIN,
        "reference": "",
        "measure": measure,
        "num_labels": size or tuned["examples"]["train"],
        "constant": tuned["constant"][split][name],
        "finetune_seconds": sum(cell["seconds"] for cell in tuned["cells"]),
    }
    return entry, values


def describe_tasks(
    spec: CompareSpec, folder: Path
) -> tuple[list[dict], dict[str, float | None], dict[str, Examples]]:
    """The entries, metrics and examples of the tasks that were put to a run.

    A metric that ends in _random is of fresh parameters.

    Raises:
      UserError: not all of them were, or a file was altered.
    """
    if not spec.tasks:
        return [], {}, {}
    path = folder / ANSWERS
    if not path.exists():
        raise UserError(f"{path}: is missing; do the comparison's runs again")
    answers = load_measured(path)
    return answers["tasks"], answers["metrics"], load_examples(folder, EXAMPLES)
