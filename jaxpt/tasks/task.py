"""What a downstream task is: a module of functions, as an objective is one.

    table -> read -> examples -> encode -> rows -> outputs -> loss
                                              outputs -> predict -> metrics

`Task` states it as a type, which the modules of this folder satisfy. A task knows no
network: how texts are framed is the encoder's (`jaxpt.tasks.encoder`), which vector a
head reads is the family's (`jaxpt.nn.task_heads`).
"""

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any, ClassVar, Protocol

import jax
import numpy as np

from jaxpt.errors import UserError
from jaxpt.tasks.encoder import TextEncoder
from jaxpt.tasks.model import TaskModel
from jaxpt.text.labelled.tables import Table

# Loss terms: name -> (sum, weight).
Sums = dict[str, tuple[jax.Array, jax.Array]]
# What a network reads at once, without padding: "tokens" int32 [n], and what else is as
# long ("type_ids", and a task's own, which its PADS names); "example" int32 [], the
# example that it is of; and a task's targets, of the same shape in all rows. Where an
# example is several texts at once (the options of a choice) "tokens" is [k, n].
Row = dict[str, np.ndarray]
Labels = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Described:
    """What is stored of a split's predictions; all of it as JSON has it.

    Attributes:
      records: of each example its "gold" answer, the "prediction", and where a metric
        is a mean over examples the example's "score" in it; more as a task has it.
      report: of the whole split; {} for none.
    """

    records: list[dict[str, Any]]
    report: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class TaskSpec:
    """The base of every task's settings.

    Attributes:
      max_len: the most tokens of a row, special ones included; 0 is the model's.
      head: how a text becomes one vector, one of `jaxpt.nn.task_heads.FORMS`; "auto"
        is that of the checkpoint, where it came with a head, or else what the source of
        the network's family has. Where transformers' class has another head than the
        source, "electra_dense" and "gpt2" are transformers': they can be exported.
      dropout: before the outputs; -1 is the family's.
    """

    # What a head reads: "text", one vector of a row; "tokens", all of its states; ""
    # where there is no head, and the vocabulary is asked.
    READS: ClassVar[str] = "text"
    # The metric that chooses between runs.
    MAIN: ClassVar[str]
    # What transformers' classes for such a task end with; "" where it has none.
    EXPORT: ClassVar[str] = ""
    # Whether a text that is too long for a row loses its end.
    CUTS: ClassVar[bool] = True
    # Whether `tune` has something to choose.
    TUNES: ClassVar[bool] = False

    max_len: int = 128
    head: str = "auto"
    dropout: float = -1.0

    def __post_init__(self):
        self.check("max_len", self.max_len >= 0, "at least 0")
        is_good = self.dropout == -1 or 0 <= self.dropout < 1
        self.check("dropout", is_good, "-1, or at least 0 and below 1")

    def check(self, name: str, is_good: bool, allowed: str) -> None:
        """Raises UserError, naming the setting, unless its value is good."""
        if not is_good:
            raise UserError(f"task.{name}={getattr(self, name)}: must be {allowed}")

    @property
    def columns(self) -> Collection[str]:
        """The columns that are read of a table."""
        raise NotImplementedError

    @property
    def problem_type(self) -> str:
        """What a config of transformers calls a task on texts."""
        return "single_label_classification"

    @property
    def main_metric(self) -> str:
        """The metric that chooses between runs; more of it is better."""
        return self.MAIN

    def tune(self, predictions: list[Any], examples: list[Any]) -> "TaskSpec":
        """The settings that are best on development data, for test data, too."""
        return self


class Task(Protocol):
    """All that a task is; a module of functions, or anything that has them.

    Attributes:
      Spec: its settings.
      PADS: of what is as long as a row's tokens, and is neither "tokens" nor
        "type_ids", the value at padding.
    """

    PADS: dict[str, int]

    @property
    def Spec(self) -> type[TaskSpec]: ...

    def read(
        self, table: Table, spec: Any, labels: Labels | None
    ) -> tuple[list[Any], Labels]:
        """A table's examples, checked, and the labels.

        Args:
          labels: those of the training data; None for the training data itself.

        Raises:
          UserError: a value that is no label, or a label that training has not.
        """

    def num_outputs(self, spec: Any, labels: Labels) -> int:
        """Outputs of the head for each vector that it reads; 0 for no head."""

    def encode(
        self, examples: list[Any], encoder: TextEncoder, spec: Any, *, is_training: bool
    ) -> list[Row]:
        """The rows of examples; one example may give several."""

    def outputs(self, model: TaskModel, params: Any, batch: dict, rngs: Any) -> Any:
        """What the network says of a batch: arrays [B, ...]; inside the compiled step.

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
        """The prediction of each example.

        Args:
          outputs: as `outputs` gives, of each row in turn: a list of NumPy trees;
            where there is no head, of the texts that were written.
        """

    def metrics(
        self, predictions: list[Any], examples: list[Any], spec: Any
    ) -> dict[str, float]:
        """Each metric by its name, between 0 and 1 where it is a share."""

    def describe(
        self,
        outputs: Any,
        predictions: list[Any],
        examples: list[Any],
        spec: Any,
        labels: Labels,
    ) -> Described:
        """A record of each example, and a report of all of them.

        Args:
          outputs: as `predict` takes them.
          spec: as `TaskSpec.tune` gives it.
        """

    def constant(self, train: list[Any], examples: list[Any], spec: Any) -> list[Any]:
        """The best prediction that looks at no input, for each example."""
