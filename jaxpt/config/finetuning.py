"""Settings of `jaxpt finetune`: task, labelled data, trained parameters and grid."""

import dataclasses
from collections.abc import Collection, Iterable
from typing import Annotated, Any, ClassVar

import ml_collections

from jaxpt.config.described import Setting, describe_section
from jaxpt.config.settings import AnyConfig, to_dict
from jaxpt.errors import ConfigError, suggest
from jaxpt.learn.groups import GroupSpec
from jaxpt.learn.optim_spec import OptimSpec
from jaxpt.nn.adaptation.adapt_spec import AdaptSpec
from jaxpt.nn.task_heads import FORMS
from jaxpt.setting_types import (
    BelowOne,
    InnerFraction,
    Length,
    Limits,
    NonNegativeFloat,
    NonNegativeInt,
    OneOf,
    PositiveFloat,
    PositiveInt,
    Settings,
    check_value,
    list_types,
    refuse,
)
from jaxpt.tasks import TASKS
from jaxpt.tasks.task import OwnDropout, TaskModule, TaskSpec
from jaxpt.text.labelled.tables import TableSpec

KEEPS = ("last", "best")
# The grid sets the learning rate, and `warmup_share` the warm-up; Muon and a moving
# mean of the parameters are for pretraining.
HIDDEN = {
    "lr",
    "lr_width",
    "lr_tokens",
    "warmup_steps",
    "muon_lr",
    "momentum",
    "normuon_beta",
    "ema_decay",
}


@dataclasses.dataclass(frozen=True)
class DataSpec(Settings, TableSpec):
    """Where the labelled examples are; all splits have the same format.

    Attributes:
      train, dev, test: as `TableSpec.path`. Without `dev` a share of the training data
        is held out; without `test` there is no test.
      train_split, dev_split, test_split: of a data set, if its path names none.
      dev_share: fraction of the training data for dev, if `dev` is "".
      num_train: number of training examples, balanced over labels; a smaller set is
        contained in each larger one. 0: all.
    """

    SECTION: ClassVar[str] = "data"

    train: str = ""
    dev: str = ""
    test: str = ""
    train_split: str = ""
    dev_split: str = ""
    test_split: str = ""
    dev_share: InnerFraction = 0.1
    num_train: NonNegativeInt = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check("train", bool(self.train), "a file, tfds:NAME or hf:NAME")

    def table(self, split: str) -> TableSpec | None:
        """The table of a split; None if the split has no path."""
        path = getattr(self, split)
        if not path:
            return None
        name, value = f"{split}_split", getattr(self, f"{split}_split")
        is_good = not value or path.startswith(("tfds:", "hf:"))
        self.check(name, is_good, f"'' with the file data.{split}={path}")
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(TableSpec)}
        fields |= {"path": path, "split": value}
        return TableSpec(**fields)


@dataclasses.dataclass(frozen=True)
class TuneSpec(Settings):
    """The grid of runs, and the training of each.

    Attributes:
      lr, batch_size, epochs, seeds: lists; every combination is a run. A seed draws the
        head, the order of the examples, dropout, and the examples of `data.num_train`.
        With 0 epochs a model that has a head is only evaluated.
      min_steps: least number of steps of a run; epochs are repeated to reach it.
      warmup_share: fraction of the steps in which the learning rate rises.
      evals: number of evaluations, evenly spaced; 0: at the end of every epoch.
      keep: which evaluation of a run counts: the "last", or the "best" by the dev
        metric, whose parameters are then kept.
      dropout: of the network; -1: as in pretraining.
      lm_weight: weight of a causal model's language modelling loss, added to the
        task's; -1 is 0.5 with the head "gpt", as in Radford et al. 2018, and 0 with
        others ("gpt2" too).
      eval_batch_size: rows in a batch of evaluation.
      num_lengths: at most this many lengths that batches are padded to, each compiled
        once; 0: 1 to 6, by the number of batches.
      checkpoint_every: steps between two checkpoints; 0: at each evaluation.
      log_seconds: between two lines of progress.
    """

    SECTION: ClassVar[str] = "train"

    lr: Annotated[tuple[PositiveFloat, ...], Length(1, is_distinct=True)] = (2e-5,)
    batch_size: Annotated[tuple[PositiveInt, ...], Length(1, is_distinct=True)] = (32,)
    epochs: Annotated[tuple[NonNegativeInt, ...], Length(1, is_distinct=True)] = (3,)
    seeds: Annotated[tuple[NonNegativeInt, ...], Length(1, is_distinct=True)] = (0,)
    min_steps: NonNegativeInt = 0
    warmup_share: BelowOne = 0.1
    evals: NonNegativeInt = 0
    keep: Annotated[str, OneOf(*KEEPS)] = "last"
    dropout: OwnDropout = -1.0
    lm_weight: Annotated[float, Limits(least=0, other=-1)] = -1.0
    eval_batch_size: PositiveInt = 64
    num_lengths: NonNegativeInt = 0
    checkpoint_every: NonNegativeInt = 0
    log_seconds: NonNegativeFloat = 10.0


# The grid's lists, which may grow in a folder. The last two do not affect results.
GRID = ("lr", "batch_size", "epochs", "seeds")
CHANGEABLE = (*GRID, "log_seconds", "checkpoint_every")


@dataclasses.dataclass(frozen=True)
class FinetunePlan:
    """A config of fine-tuning as checked specs.

    Attributes:
      optim: with the learning rate 1, which the grid's multiply.
      config: plain values.
    """

    task_name: str
    spec: TaskSpec
    data: DataSpec
    optim: OptimSpec
    groups: GroupSpec
    adapt: AdaptSpec
    train: TuneSpec
    config: dict

    @property
    def task(self) -> TaskModule:
        """The task's module."""
        return TASKS[self.task_name]


def default_finetune_config(task: str) -> ml_collections.ConfigDict:
    """All settings of a task's fine-tuning at their defaults.

    AdamW as BERT's and transformers': a weight decay of 0.01, a linear schedule.

    Raises:
      ConfigError: an unknown task.

    >>> config = default_finetune_config("classification")
    >>> config.optim.weight_decay, config.optim.schedule
    (0.01, 'linear')
    """
    config: dict[str, dict] = {"task": {"name": task}}
    for name, spec in list_sections(task).items():
        config.setdefault(name, {})
        for field in _fields(name, spec):
            default: Any = field.default
            if name == "optim":
                default = {"schedule": "linear", "weight_decay": 0.01}.get(
                    field.name, default
                )
            config[name][field.name] = default
    return ml_collections.ConfigDict(config)


def list_sections(task: str) -> dict[str, type]:
    """The sections of a task's config and their dataclasses."""
    if task not in TASKS:
        raise ConfigError(f"task.name={task}: must be one of {', '.join(TASKS)}")
    return {
        "task": TASKS[task].Spec,
        "data": DataSpec,
        "optim": OptimSpec,
        "groups": GroupSpec,
        "adapt": AdaptSpec,
        "train": TuneSpec,
    }


def describe_finetuning(task: str = "") -> dict[str, list[Setting]]:
    """All settings of a task's fine-tuning, by section.

    Args:
      task: "" omits the section "task", which differs between tasks.

    Raises:
      ConfigError: an unknown task.
    """
    if not task:
        sections = describe_finetuning("classification")
        return {name: fields for name, fields in sections.items() if name != "task"}
    config = default_finetune_config(task)
    sections = {}
    for name, spec in list_sections(task).items():
        defaults = config[name]
        settings = [
            (each, each.name.partition(".")[2])
            for each in describe_section(name, (spec,))
        ]
        sections[name] = [
            each._replace(default=repr(defaults[field]))
            for each, field in settings
            if field in defaults
        ]
    return sections


def find_types(config: dict) -> dict[str, dict[str, Any]]:
    """The declared types of a plain config's settings, by section.

    Raises:
      ConfigError: the config names no task.
    """
    for name, section in config.items():
        if not isinstance(section, dict):
            raise refuse(name, section, "a section of settings")
    task = config.get("task", {}).get("name", "")
    check_value("task.name", task, str)
    return {name: list_types(spec) for name, spec in list_sections(task).items()}


def _fields(name: str, spec: type) -> list[dataclasses.Field]:
    hidden = {"optim": HIDDEN, "data": {"path", "split"}}.get(name, set())
    return [f for f in dataclasses.fields(spec) if f.name not in hidden]


def make_finetune_plan(config: AnyConfig) -> FinetunePlan:
    """Makes the checked specs of a config.

    Raises:
      ConfigError: an unknown section or setting, or a value that is not allowed.
    """
    config = to_dict(config)
    find_types(config)
    task, made = config["task"]["name"], {}
    sections = list_sections(task)
    _check_names("config", config, sections)
    for name, spec in sections.items():
        values = dict(config.get(name, {}))
        if name == "task":
            del values["name"]
        _check_names(name, values, [field.name for field in _fields(name, spec)])
        made[name] = spec(**(values | ({"lr": 1.0} if name == "optim" else {})))
    plan = FinetunePlan(task, made.pop("task"), config=config, **made)
    _check_plan(plan)
    return plan


def _check_plan(plan: FinetunePlan) -> None:
    """Raises ConfigError if settings contradict each other."""
    if "muon_lr" in plan.optim.settings():
        raise ConfigError(
            f"optim.name={plan.optim.name}: must be adamw, adafactor, lamb or lion in "
            f"fine-tuning"
        )
    if plan.optim.is_schedule_free:
        raise ConfigError(
            f"optim.name={plan.optim.name}: must have no average of the parameters in "
            "fine-tuning, which evaluates the trained ones"
        )
    if plan.spec.head not in ("auto", *FORMS):
        raise ConfigError(
            f"task.head={plan.spec.head}: must be one of auto, {', '.join(FORMS)}"
        )
    if plan.optim.schedule == "slanted_triangle" and plan.train.warmup_share:
        raise ConfigError(
            f"train.warmup_share={plan.train.warmup_share}: must be 0 with "
            f"optim.schedule=slanted_triangle, which rises by itself"
        )
    if plan.adapt.is_frozen and plan.groups != GroupSpec():
        raise ConfigError(
            f"adapt.method={plan.adapt.method}: trains the head alone, which has one "
            f"learning rate from the start; groups.decay must be 1, groups.unfreeze 0"
        )
    for num in plan.train.epochs:
        plan.groups.check_epochs(num)


def _check_names(place: str, names: Iterable[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            suggestion = suggest(name, known)
            raise ConfigError(
                f"{place}.{name}: unknown setting{suggestion}; {place} has "
                f"{', '.join(known)}"
            )
