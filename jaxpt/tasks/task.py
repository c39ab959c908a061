"""The interface of a downstream task: a module of functions, like an objective.

    table -> read -> examples -> encode -> rows -> outputs -> loss
                                              outputs -> predict -> metrics

The protocol `TaskModule` states it, and the modules of this folder satisfy it. A task
does not know the network: the encoder adds special tokens (`jaxpt.tasks.encoder`), and
the head chooses the vector to read (`jaxpt.nn.task_heads`).
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Annotated, Any, ClassVar, Protocol

import jax
import numpy as np

from jaxpt.errors import DataError
from jaxpt.judge.examples import Examples
from jaxpt.setting_types import Limits, NonNegativeInt, Rule, Settings
from jaxpt.tasks.encoder import TextEncoder
from jaxpt.tasks.model import TaskModel
from jaxpt.text.labelled.tables import HOW_TO_DROP, Table
from jaxpt.text.sources.delimited import BLANKS
from jaxpt.text.sources.missing import is_empty, is_missing

# Loss terms: name -> (sum, weight).
Sums = dict[str, tuple[jax.Array, jax.Array]]
# One input of the network, without padding: "tokens" int32 [n]; other arrays of that
# length ("type_ids", and those in the task's PADS); "example" int32 [], the number of
# its example; the targets, of one shape in all rows. If an example is several texts
# (the options of a question), "tokens" is [k, n].
Row = dict[str, np.ndarray]
Labels = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Described:
    """The stored predictions of a split, as JSON values.

    Attributes:
      records: for each example its "gold" answer, the "prediction", a "score" if the
        metric is a mean over examples, and further entries of the task.
      report: of the whole split; {} for none.
    """

    records: list[dict[str, Any]]
    report: dict[str, Any] = dataclasses.field(default_factory=dict)


OwnDropout = Annotated[float, Limits(least=0, below=1, other=-1)]
LabelNames = Annotated[
    tuple[str, ...],
    Rule(
        lambda labels: len(set(labels)) == len(labels) != 1,
        "two labels or more, each once; or ()",
    ),
]


@dataclasses.dataclass(frozen=True)
class TaskSpec(Settings):
    """The settings that all tasks share.

    Attributes:
      max_len: the maximum number of tokens in a row, special tokens included; 0 is the
        model's maximum.
      head: how a text becomes one vector, one of `jaxpt.nn.task_heads.FORMS`; "auto"
        takes the head of the checkpoint if it has one, else the head of the paper of
        the network's family, or, in `jaxpt finetune`, one that can be exported
        (`jaxpt.finetuning.heads`).
      dropout: before the outputs; -1 is the family's.
    """

    SECTION: ClassVar[str] = "task"
    # Input of the head: "text" is one vector a row; "tokens" all hidden states; "" for
    # no head: the network generates the answer.
    READS: ClassVar[str] = "text"
    # The settings that name a column, and those of them that may be "".
    COLUMNS: ClassVar[tuple[str, ...]] = ()
    OPTIONAL: ClassVar[tuple[str, ...]] = ()
    # The allowed values of `metric`; () if the task checks them itself.
    METRICS: ClassVar[tuple[str, ...]] = ()
    # The padding value of each array of a row that has the length of the tokens, other
    # than "tokens" and "type_ids".
    PADS: ClassVar[dict[str, int]] = {}
    # Outputs of the head for each vector; None for one a label, 0 for no head.
    NUM_OUTPUTS: ClassVar[int | None] = None
    # The end of the names of transformers' classes for the task; "" if there are none.
    EXPORT: ClassVar[str] = ""
    # Whether a text that is too long is truncated.
    CUTS: ClassVar[bool] = True
    # Whether `tune` chooses anything.
    TUNES: ClassVar[bool] = False

    max_len: NonNegativeInt = 128
    head: str = "auto"
    dropout: OwnDropout = -1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.COLUMNS:
            is_good = name in self.OPTIONAL or bool(getattr(self, name))
            self.check(name, is_good, "a column")
        if self.METRICS:
            is_good = self.main_metric in self.METRICS
            self.check("metric", is_good, f"one of {', '.join(self.METRICS)}")

    @property
    def columns(self) -> Collection[str]:
        """The columns of a table that are read."""
        return [name for x in self.COLUMNS if (name := getattr(self, x))]

    @property
    def problem_type(self) -> str:
        """`problem_type` in the config of transformers, of tasks on texts."""
        return "single_label_classification"

    @property
    def main_metric(self) -> str:
        """The metric that selects the best run; higher is better."""
        return getattr(self, "metric", "accuracy")

    def num_outputs(self, labels: Labels) -> int:
        """Outputs of the head for each vector that it reads; 0 for no head."""
        return len(labels) if self.NUM_OUTPUTS is None else self.NUM_OUTPUTS

    def tune(self, predictions: list[Any], examples: list[Any]) -> "TaskSpec":
        """The settings that are best on development data; used on test data, too."""
        return self


class TaskModule(Protocol):
    """The functions of a task: a module, or any object that has them."""

    @property
    def Spec(self) -> type[TaskSpec]:
        """Its settings."""

    def read(
        self, table: Table, spec: Any, labels: Labels | None
    ) -> tuple[list[Any], Labels]:
        """The checked examples of a table, and the labels.

        Args:
          labels: those of the training data; None for the training data itself.
        """

    def encode(
        self, examples: list[Any], encoder: TextEncoder, spec: Any, *, is_training: bool
    ) -> list[Row]:
        """The rows of examples; one example may have several."""

    def outputs(
        self, model: TaskModel, params: dict, batch: dict, rngs: dict | None
    ) -> Any:
        """The network's outputs for a batch, arrays [B, ...]; runs when compiled.

        Args:
          params: {"network": ..., "head": ..., "extra": ...}.
          batch: rows padded to [B, ...], "tokens" as "inputs", with "segment_ids" and
            "row_weights" [B] (0 in rows that only fill a batch).
          rngs: {"dropout": key} in training, else None.
        """

    def loss(self, outputs: Any, batch: dict, spec: Any) -> Sums:
        """The loss terms, sums over the batch and their weights."""

    def predict(
        self, outputs: Any, rows: Sequence[Row], examples: list[Any], spec: Any
    ) -> list[Any]:
        """The prediction for each example.

        Args:
          outputs: of `outputs` for each row, a list of NumPy trees; of a task without a
            head, the generated texts.
        """

    def metrics(
        self, predictions: list[Any], examples: list[Any], spec: Any
    ) -> dict[str, float]:
        """Each metric by name; shares are between 0 and 1."""

    def item_scores(
        self, predictions: list[Any], examples: list[Any], spec: Any
    ) -> dict[str, Examples]:
        """The scores of each example for the metrics that are means over examples.

        The others (correlations, F1 of labels or entities, BLEU) are left out.
        """

    def make_records(
        self,
        outputs: Any,
        predictions: list[Any],
        examples: list[Any],
        spec: Any,
        labels: Labels,
    ) -> Described:
        """A record of each example, and a report of all of them.

        Args:
          outputs: as in `predict`.
          spec: the result of `TaskSpec.tune`.
        """

    def constant(self, train: list[Any], examples: list[Any], spec: Any) -> list[Any]:
        """The majority baseline: the best prediction that ignores the input."""


def most_common(values: Iterable[Any], key: Callable | None = None) -> Any:
    """The most frequent value; of equally frequent ones the smallest.

    >>> most_common([2, 1, 1, 2, 3])
    1
    """
    counts = Counter(values)
    return min(counts, key=lambda x: (-counts[x], key(x) if key else x))


def read_label(value: Any) -> str:
    """A label of a table as text.

    >>> read_label(True), read_label(" 01 ")
    ('true', '01')
    """
    return str(value).lower() if isinstance(value, bool) else str(value).strip(BLANKS)


def read_labels(table: Table, column: str, listed: Labels = ()) -> list[str]:
    """The labels of a column as text.

    Args:
      listed: labels that the user lists, which may be words for a missing value.
    """
    return [
        check_label(table, column, row, value, listed)
        for row, value in enumerate(table.columns[column])
    ]


def check_label(
    table: Table, column: str, row: int, value: Any, listed: Labels = ()
) -> str:
    """One label of a row as text; see `read_labels`."""
    where = f"{table.where(row)}: {column}={value!r:.40}"
    if isinstance(value, list | dict):
        raise DataError(f"{where}: must be a label, a text or a number")
    text = read_label(value)
    if is_missing(value) and not (isinstance(value, str) and text in listed):
        more = "" if is_empty(value) else "; task.labels may list it as a label"
        raise DataError(f"{where}: the label is missing; {HOW_TO_DROP}{more}")
    return text


def check_labels(table: Table, column: str, labels: Labels, kind: str) -> None:
    """Raises UserError unless the training data has two labels or more."""
    if len(labels) < 2:
        raise DataError(
            f"{table.name}: {column} has the one {kind} {', '.join(labels)!r}; must "
            f"have two at least"
        )


def number_labels(
    table: Table, column: str, rows: Sequence[Sequence[str]], labels: Labels, spec: Any
) -> list[tuple[int, ...]]:
    """The numbers of each row's labels."""
    index = {name: i for i, name in enumerate(labels)}
    for row, names in enumerate(rows):
        for name in names:
            if name not in index:
                source = "task.labels" if spec.labels else "the training data"
                raise DataError(
                    f"{table.where(row)}: {column}={name!r}: {source} has "
                    f"{', '.join(map(repr, labels))}"
                )
    return [tuple(index[name] for name in names) for names in rows]


def score_items(totals: Sequence[float], weights: Sequence[float] = ()) -> Examples:
    """The scores of a metric that is a mean over examples, each one a document.

    >>> score_items([1.0, 0.0], [2.0, 2.0]).mean
    0.25
    """
    scores = np.asarray(totals, np.float64)
    sizes = np.asarray(weights, np.float64) if weights else np.ones(len(scores))
    return Examples(scores, sizes, np.arange(len(scores)))


def pair_records(golds: Iterable[Any], predictions: Iterable[Any]) -> list[dict]:
    """The plain record of each example: its "gold" answer and the "prediction"."""
    pairs = zip(golds, predictions, strict=True)
    return [{"gold": gold, "prediction": predicted} for gold, predicted in pairs]
