"""The settings of `jaxpt finetune`: a task, its data, what is trained, and a grid."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import ml_collections

from jaxpt.config.settings import to_dict
from jaxpt.errors import ConfigError
from jaxpt.learn.groups import GroupSpec
from jaxpt.learn.optim_spec import OptimSpec
from jaxpt.nn.adaptation.adapt_spec import AdaptSpec
from jaxpt.nn.task_heads import FORMS
from jaxpt.tasks import TASKS
from jaxpt.tasks.task import Task, TaskSpec
from jaxpt.text.labelled.tables import TableSpec

KEEPS = ("last", "best")
# The learning rate is the grid's and the warm-up a share of the steps; Muon is for
# pretraining, and a mean of the parameters for long runs.
HIDDEN = {"lr", "warmup_steps", "muon_lr", "momentum", "ema_decay"}
MOST = 3.4028234e38  # the largest float32


@dataclasses.dataclass(frozen=True)
class DataSpec(TableSpec):
    """Where the labelled examples are; all splits are written alike.

    Attributes:
      train, dev, test: as `TableSpec.path`. Without `dev` a share of the training data
        is held out; without `test` nothing is tested.
      train_split, dev_split, test_split: of a TFDS data set whose path names none.
      dev_share: of the training data, where there is no `dev`.
      num_train: examples of the training data, as many of each label as there are, the
        smaller numbers within the larger; 0 takes all.
    """

    train: str = ""
    dev: str = ""
    test: str = ""
    train_split: str = ""
    dev_split: str = ""
    test_split: str = ""
    dev_share: float = 0.1
    num_train: int = 0

    def __post_init__(self):
        _check("data", self, "train", bool(self.train), "a file, or tfds:NAME")
        _check("data", self, "dev_share", 0 < self.dev_share < 1, "between 0 and 1")
        _check("data", self, "num_train", self.num_train >= 0, "at least 0")

    def table(self, split: str) -> TableSpec | None:
        """Where a split is, if there is one."""
        path = getattr(self, split)
        if not path:
            return None
        name, value = f"{split}_split", getattr(self, f"{split}_split")
        is_good = not value or path.startswith("tfds:")
        _check("data", self, name, is_good, f"'' with the file data.{split}={path}")
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(TableSpec)}
        fields |= {"path": path, "split": value}
        return TableSpec(**fields)


@dataclasses.dataclass(frozen=True)
class TuneSpec:
    """The grid, and how each run of it goes.

    Attributes:
      lr, batch_size, epochs, seeds: lists; every combination is a run. A seed draws the
        head, the order of the examples, dropout, and the examples of `data.num_train`.
        With 0 epochs a model is only measured, as one that came with a head.
      min_steps: the fewest steps of a run; its epochs are repeated until it has them.
      warmup_share: of the steps, in which the learning rate rises.
      evals: how often a run is measured, evenly spaced; 0 at the end of every epoch.
      keep: which of a run's measurements counts: the "last", or the "best" by the dev
        metric, whose parameters are kept then.
      dropout: of the network; -1 is the one that it was trained with.
      lm_weight: of a causal model's own loss beside the task's; -1 is 0.5 with the head
        "gpt", as in Radford et al. 2018, and 0 with others ("gpt2" too).
      eval_batch_size: rows of a batch that is only read.
      num_lengths: the most lengths that batches are padded to, each compiled once; 0 is
        1 to 6, the more the more batches there are.
      checkpoint_every: steps between two saves; 0 saves where a run is measured.
      log_seconds: between two lines of progress.
    """

    lr: tuple[float, ...] = (2e-5,)
    batch_size: tuple[int, ...] = (32,)
    epochs: tuple[int, ...] = (3,)
    seeds: tuple[int, ...] = (0,)
    min_steps: int = 0
    warmup_share: float = 0.1
    evals: int = 0
    keep: str = "last"
    dropout: float = -1.0
    lm_weight: float = -1.0
    eval_batch_size: int = 64
    num_lengths: int = 0
    checkpoint_every: int = 0
    log_seconds: float = 10.0

    def __post_init__(self):
        for name, least in (("batch_size", 1), ("epochs", 0), ("seeds", 0)):
            values = getattr(self, name)
            is_good = all(type(x) is int and least <= x < 2**31 for x in values)
            _check_list(self, name, is_good, f"whole numbers from {least}")
        is_good = all(type(x) in (int, float) and x > 0 for x in self.lr)
        _check_list(self, "lr", is_good, "numbers above 0")
        for name in (
            "min_steps",
            "evals",
            "num_lengths",
            "checkpoint_every",
            "log_seconds",
        ):
            _check("train", self, name, getattr(self, name) >= 0, "at least 0")
        _check(
            "train", self, "eval_batch_size", self.eval_batch_size >= 1, "at least 1"
        )
        is_good = 0 <= self.warmup_share < 1
        _check("train", self, "warmup_share", is_good, "at least 0 and below 1")
        _check("train", self, "keep", self.keep in KEEPS, f"one of {', '.join(KEEPS)}")
        is_good = self.dropout == -1 or 0 <= self.dropout < 1
        _check("train", self, "dropout", is_good, "-1, or at least 0 and below 1")
        is_good = self.lm_weight == -1 or self.lm_weight >= 0
        _check("train", self, "lm_weight", is_good, "-1, or at least 0")


# The grid's lists: a folder goes on when they grow. The last two change no number.
GRID = ("lr", "batch_size", "epochs", "seeds")
HARMLESS = (*GRID, "log_seconds", "checkpoint_every")


@dataclasses.dataclass(frozen=True)
class FinetunePlan:
    """A whole config, checked. `optim` has the learning rate 1: the grid's is put in.

    Attributes:
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
    def task(self) -> Task:
        """The task's module."""
        return TASKS[self.task_name]


def default_finetune_config(task: str) -> ml_collections.ConfigDict:
    """Every setting of a task's fine-tuning, at its default.

    AdamW as BERT's and transformers': a weight decay of 0.01, a linear schedule.

    Raises:
      UserError: there is no such task.

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


def _fields(name: str, spec: type) -> list[dataclasses.Field]:
    hidden = {"optim": HIDDEN, "data": {"path", "split"}}.get(name, set())
    return [f for f in dataclasses.fields(spec) if f.name not in hidden]


def make_finetune_plan(config) -> FinetunePlan:
    """The config as specs.

    Raises:
      UserError: an unknown section or setting, or a value that no spec allows.
    """
    config = to_dict(config)
    task = config.get("task", {}).get("name", "")
    sections, made = list_sections(task), {}
    _check_names("config", config, sections)
    for name, spec in sections.items():
        given = dict(config.get(name, {}))
        if name == "task":
            del given["name"]
        _check_names(name, given, [field.name for field in _fields(name, spec)])
        values = {k: tuple(v) if type(v) is list else v for k, v in given.items()}
        for field, value in values.items():
            _check_finite(f"{name}.{field}", value)
        made[name] = spec(**(values | ({"lr": 1.0} if name == "optim" else {})))
    plan = FinetunePlan(
        task,
        made.pop("task"),
        config=config,
        **made,
    )
    _check_plan(plan)
    return plan


def _check_plan(plan: FinetunePlan) -> None:
    """Raises UserError for settings that others forbid."""
    if plan.optim.name == "muon":
        raise ConfigError(
            "optim.name=muon: must be adamw, adafactor, lamb or lion in fine-tuning"
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


def _check_names(place: str, given: Iterable[str], known: Iterable[str]) -> None:
    for name in given:
        if name not in known:
            raise ConfigError(
                f"{place}.{name}: unknown setting; {place} has {', '.join(known)}"
            )


def _check_finite(name: str, value: Any) -> None:
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, int | float) and not abs(number) <= MOST:
            raise ConfigError(f"{name}={value}: must be finite in float32")


def _check_list(spec, name: str, is_good: bool, allowed: str) -> None:
    values = getattr(spec, name)
    is_good = is_good and 0 < len(values) == len(set(values))
    _check("train", spec, name, is_good, f"a list of {allowed}, each once")


def _check(section: str, spec, name: str, is_good: bool, allowed: str) -> None:
    if not is_good:
        raise ConfigError(f"{section}.{name}={getattr(spec, name)}: must be {allowed}")
