"""The interface of zero-shot tasks: options, inputs and results."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxpt.judge.bootstrap import Interval
from jaxpt.zero_shot.scoring import TextScorer

# What a task reads of a run: the likelihood of texts, hidden states, or its own texts.
LIKELIHOOD, STATES, SAMPLES = "likelihood", "states", "samples"


class TaskOptions(NamedTuple):
    """Options of tasks; a task names those that it reads.

    Attributes:
      window, stride: for long texts, the tokens of a window and the offset of the next
        window; 0 means the model's limit, and half a window.
      shots: a file of training data; "" for none.
      num_shots: the number of solved questions before each question.
      num_draws, num_orders: the number of draws of shots, and of orders per draw.
      shot_seed: the seed of the draws.
    """

    window: int = 0
    stride: int = 0
    shots: str = ""
    num_shots: int = 0
    num_draws: int = 1
    num_orders: int = 1
    shot_seed: int = 0


class EvalContext(NamedTuple):
    """The encoder and scorer of texts for a task.

    Attributes:
      scorer: scores texts as ids.
      encode: the ids of a text, without special tokens.
      encode_sized: the ids of a text, and the bytes of each.
      options: the options of the task.
      shots: solved items of the training data.
      count_unknown: the number of parts of a text that are not in the vocabulary.
      unknown_bits: of ids and their bytes (`Vocab.unknown_bits`).
      trained_len: the most positions of a row in training; 0 is unknown.
    """

    scorer: TextScorer
    encode: Callable[[str], np.ndarray]
    encode_sized: Callable[[str], tuple[np.ndarray, np.ndarray]]
    options: TaskOptions = TaskOptions()
    shots: Sequence = ()
    count_unknown: Callable[[str], int] = lambda text: 0
    unknown_bits: Callable[[np.ndarray, np.ndarray], np.ndarray] = lambda ids, sizes: (
        np.zeros(len(ids))
    )
    trained_len: int = 0


class Figure(NamedTuple):
    """A number with the ends of its 95 % interval, and the method of the interval."""

    value: float
    low: float
    high: float
    method: str


def make_figures(values: Mapping[str, tuple[float, Interval]]) -> dict[str, Figure]:
    """Figures of values with their intervals, by name."""
    return {
        name: Figure(value, *interval) for name, (value, interval) in values.items()
    }


def to_numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values, in which NaN becomes None, JSON's null.

    >>> to_numbers({"low": np.nan, "method": "none"})
    {'low': None, 'method': 'none'}
    """
    return {name: None if value != value else value for name, value in values.items()}


class Outcome(NamedTuple):
    """The results of a task by one rule.

    Attributes:
      figures: metrics by name, the main one first.
      trivial: baselines by name.
      groups: by kind and name of a group, numbers by name.
      columns: by name, one number per item.
      notes: remarks in whole sentences.
    """

    figures: dict[str, Figure]
    trivial: dict[str, float]
    groups: dict[str, dict[str, dict[str, float]]]
    columns: dict[str, np.ndarray]
    notes: list[str]


class ZeroShotTask(NamedTuple):
    """A downstream task without training.

    Attributes:
      read: path -> items, in an order in which evenly spaced items are representative.
      evaluate: (context, items, rules) -> results by rule. The context of LIKELIHOOD
        is an `EvalContext`, that of STATES an `embedded.Embed`, that of SAMPLES a
        `generation.WritingContext`.
      options: the names of the options that it reads.
      read_shots: path -> items of the training data; None to use `read`.
      reads: what it reads of a run, of the three above.
      own_rules: its rules and the description of each, the default first; {}: those
        by which the run scores texts.
      compared: the figures that a comparison shows, and whether more is better; {}: the
        main one.
    """

    read: Callable[[str], Sequence]
    evaluate: Callable[[Any, Sequence, Sequence[str]], dict[str, Outcome]]
    options: tuple[str, ...] = ()
    read_shots: Callable[[str], Sequence] | None = None
    reads: str = LIKELIHOOD
    own_rules: Mapping[str, str] = {}
    compared: Mapping[str, bool] = {}
