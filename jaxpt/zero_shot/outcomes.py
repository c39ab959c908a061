"""What zero-shot tasks are asked with, and what they give."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from jaxpt.zero_shot.scoring import TextScorer


class Options(NamedTuple):
    """How some tasks ask; a task names those that it reads.

    Attributes:
      window, stride: of long texts, tokens that are read at once, and by how many the
        next window lies further; 0 is the model's limit, and half a window.
      shots: a file of the training data; "" is none.
      num_shots: solved questions of it before each question.
      num_draws, num_orders: how often they are drawn, and each draw shown in an order.
      shot_seed: of the draws.
    """

    window: int = 0
    stride: int = 0
    shots: str = ""
    num_shots: int = 0
    num_draws: int = 1
    num_orders: int = 1
    shot_seed: int = 0


class Asker(NamedTuple):
    """What a task asks with: texts are encoded and then scored.

    Attributes:
      scorer: of texts as ids.
      encode: the ids of a text, without what a run puts around it.
      encode_sized: these, and the bytes of each.
      options: how the task asks.
      shots: solved items of the training data.
      count_unknown: how much of a text the vocabulary lacks.
    """

    scorer: TextScorer
    encode: Callable[[str], np.ndarray]
    encode_sized: Callable[[str], tuple[np.ndarray, np.ndarray]]
    options: Options = Options()
    shots: Sequence = ()
    count_unknown: Callable[[str], int] = lambda text: 0


class Figure(NamedTuple):
    """A number with the ends of its 95 % interval, and how that was found."""

    value: float
    low: float
    high: float
    method: str


class Outcome(NamedTuple):
    """What a task found by one rule.

    Attributes:
      figures: by name, the main one first.
      trivial: what answers without the network would have, by name.
      groups: by kind of group and its name, numbers by name.
      columns: by name a number of each item.
      notes: whole sentences on what one should know.
    """

    figures: dict[str, Figure]
    trivial: dict[str, float]
    groups: dict[str, dict[str, dict[str, float]]]
    columns: dict[str, np.ndarray]
    notes: list[str]


class Task(NamedTuple):
    """A downstream task without training.

    Attributes:
      read: a path -> its items, in an order of which any evenly spaced part is fair.
      evaluate: (asker, items, rules) -> by rule, what was found.
      options: the names of the options that it reads.
      read_shots: a path -> items of the training data; None where `read` reads them.
    """

    read: Callable[[str], Sequence]
    evaluate: Callable[[Asker, Sequence, Sequence[str]], dict[str, Outcome]]
    options: tuple[str, ...] = ()
    read_shots: Callable[[str], Sequence] | None = None
