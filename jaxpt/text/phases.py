"""Phases of training: the number of rows that a step reads, and their length.

    4 rows in a batch, 8 steps, train.batch_schedule=((0.5, 0.25),),
    train.length_schedule=((0.75, 2),)

    steps 0-3    1 row, cut in two:      2 pieces of half a row
    steps 4-5    4 rows, cut in two:     8 pieces
    steps 6-7    4 whole rows

Rows are read in the order that they have without schedules, and all pieces of a row in
one step. So an epoch reads the same text, once, wherever phases begin. The batch of a
step is a function of the seed and the step.

Source: GPT-BERT (https://arxiv.org/abs/2410.24159), which raises the batch from a
quarter, and doubles the length after .7 and .9 of the training, with the same tokens in
a batch. Departures: it raises the batch linearly, here a phase has one size; it draws
the short rows of a batch one by one, here the pieces of a row come together.
"""

import bisect
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

MAX_RANGES = 32  # of batches that a run does not read
# Pairs (until, value): the value applies until this fraction of the training.
Schedule = Sequence[tuple[float, float]]


class Phase(NamedTuple):
    """Steps with the same number and length of rows, up to the next phase.

    Attributes:
      start: the first step.
      num_rows: rows that a step reads.
      pieces: into how many rows of a batch each of them is cut.
    """

    start: int
    num_rows: int
    pieces: int = 1

    @property
    def batch_size(self) -> int:
        """The number of rows in a batch."""
        return self.num_rows * self.pieces


Phases = tuple[Phase, ...]


def make_phases(
    num_steps: int,
    unit: int,
    num_rows: int,
    shares: Schedule = (),
    pieces: Schedule = (),
) -> Phases:
    """The phases of a run; after a schedule's last pair, rows are all and whole.

    Args:
      unit: phases begin at multiples of this number of steps, at the nearest one. A
        phase may have no steps.
      num_rows: rows that a step reads, of which `shares` are fractions.

    >>> make_phases(8, 2, 4, ((0.5, 0.25),), ((0.75, 2),))[1:]
    (Phase(start=4, num_rows=4, pieces=2), Phase(start=6, num_rows=4, pieces=1))
    >>> make_phases(10, 1, 4)
    (Phase(start=0, num_rows=4, pieces=1),)
    """
    ends = sorted({1.0, *(until for until, _ in (*shares, *pieces))})
    starts = [unit * int(x * num_steps / unit + 0.5) for x in (0.0, *ends[:-1])]
    return tuple(
        Phase(
            start,
            max(1, int(value_until(shares, end) * num_rows + 0.5)),
            int(value_until(pieces, end)),
        )
        for start, end in zip(starts, ends, strict=True)
    )


def value_until(schedule: Schedule, end: float) -> float:
    """The value of a schedule just before a fraction of the training; 1 after it.

    >>> [value_until(((0.5, 0.25),), end) for end in (0.2, 0.5, 0.6)]
    [0.25, 0.25, 1]
    """
    return next((value for until, value in schedule if end <= until), 1)


def find_phase(phases: Phases, step: int) -> int:
    """The index of a step's phase.

    >>> phases = Phase(0, 2), Phase(4, 3), Phase(4, 8)
    >>> [find_phase(phases, step) for step in (0, 3, 4, 99)]
    [0, 0, 2, 2]
    """
    return bisect.bisect_right(phases, step, key=lambda phase: phase.start) - 1


def split_steps(phases: Phases, num_steps: int) -> list[int]:
    """How many of the first steps each phase has.

    >>> split_steps((Phase(0, 2), Phase(4, 8)), 7), split_steps((Phase(0, 2),), 7)
    ([4, 3], [7])
    """
    starts = [*(phase.start for phase in phases), math.inf]
    bounds = [int(min(start, num_steps)) for start in starts]
    return [stop - start for start, stop in itertools.pairwise(bounds)]


def count_rows(phases: Phases, num_steps: int) -> int:
    """How many whole rows the first steps read.

    >>> count_rows((Phase(0, 2), Phase(4, 8)), 7)
    32
    """
    numbers = zip(phases, split_steps(phases, num_steps), strict=True)
    return sum(num * phase.num_rows for phase, num in numbers)


def cut_rows(key: str, rows: np.ndarray, pieces: int) -> np.ndarray:
    """Cuts rows [..., B, R] into pieces [..., B * pieces, R / pieces].

    The ids of documents and sentences begin with 1 in every piece.

    Args:
      key: of `jaxpt.text.rows.corpus.RowArrays`.

    >>> cut_rows("segment_ids", np.array([[1, 1, 1, 2, 3, 0]]), 3).tolist()
    [[1, 1], [1, 2], [1, 0]]
    """
    if pieces == 1:
        return rows
    *before, num_rows, length = rows.shape
    cut = rows.reshape(*before, num_rows * pieces, length // pieces)
    if key in ("tokens", "answers"):
        return cut
    return np.where(cut > 0, cut - cut[..., :1] + 1, 0)
