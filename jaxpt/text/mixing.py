"""Which source each row of a run is from: mixtures with exact counts, in stages.

    data.mixture_stages=((0, (1, 0)), (0.8, (0.2, 0.8)))

    rows of the run    0 ............ 0.8 ........ end
    stage              all of source 0   0.2 : 0.8

A stage is cut into blocks of 4096 rows, each with every source's exact fraction of
them, in a random order; the last block of a stage has the rest of its rows. So the
counts of a stage are those of its fractions, up to one row in each block. A source
counts its rows and epochs over all stages. Everything is a pure function of the row's
number, the run's length and the seed.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from jaxpt.errors import DataError
from jaxpt.text.phases import Phases, count_rows

BLOCK = 4096  # rows of a block, of which each part has its exact fraction
RAMP = 64  # steps of a linear change, each with constant fractions

# (places in a block, its size, its number) -> the places in a random order
Shuffle = Callable[[np.ndarray, int, int], np.ndarray]
# Pairs (from this fraction of the run on, a weight for each source).
Stages = Sequence[tuple[float, tuple[float, ...]]]


class Stage(NamedTuple):
    """Rows of a run with the same mixture, up to the next stage.

    Attributes:
      start: the number of the first row.
      fractions: of each source; they sum to 1.
    """

    start: int
    fractions: tuple[float, ...]


def make_quotas(weights: Sequence[float], size: int = BLOCK) -> np.ndarray:
    """Each part's number of `size` rows, int64, by the largest remainder method.

    >>> make_quotas([3, 1]).tolist(), make_quotas([0.5, 0, 0.5], 3).tolist()
    ([3072, 1024], [2, 0, 1])
    """
    values = np.array(weights, np.float64)
    exact = values / values.sum() * size
    quotas = np.floor(exact).astype(np.int64)
    order = np.argsort(quotas - exact, kind="stable")
    quotas[order[: size - int(quotas.sum())]] += 1
    return quotas


def check_weights(
    weights: Sequence[float], setting: str = "data.mixture", is_stage: bool = False
) -> None:
    """Raises DataError for weights with which a source has no row in a block.

    Args:
      is_stage: whether a weight may be 0, as another stage reads the source.
    """
    values = np.array(weights, np.float64)
    is_good = (values > 0) | (is_stage & (values == 0))
    if not (is_good & np.isfinite(values)).all():
        raise DataError(f"{setting}={list(weights)}: every weight must be above 0")
    for part in np.flatnonzero((values > 0) & (make_quotas(weights) == 0)):
        raise DataError(
            f"{setting}: source {part + 1} of {len(values)} has "
            f"{values[part] / values.sum():.2g} of the rows: must be at least 1 in "
            f"{BLOCK}"
        )


def expand(stages: Stages, is_linear: bool) -> list[tuple[float, tuple[float, ...]]]:
    """The stages, with each linear change as `RAMP` stages of constant fractions.

    A change begins with its stage and ends where the next one begins; the last stage
    is constant. Weights are those in the middle of their piece.

    >>> pieces = expand(((0, (1, 0)), (0.5, (0, 1))), is_linear=True)
    >>> len(pieces), pieces[0], pieces[-1]
    (65, (0.0, (0.9921875, 0.0078125)), (0.5, (0, 1)))
    """
    if not is_linear:
        return list(stages)
    pieces: list[tuple[float, tuple[float, ...]]] = []
    for (start, first), (end, last) in itertools.pairwise(stages):
        for number in range(RAMP):
            share = (number + 0.5) / RAMP
            weights = tuple(
                (1 - share) * a + share * b for a, b in zip(first, last, strict=True)
            )
            pieces.append((start + (end - start) * number / RAMP, weights))
    return [*pieces, stages[-1]]


def place_stages(stages: Stages, num_steps: int, phases: Phases) -> tuple[Stage, ...]:
    """The stages by the row at which they begin, the nearest step's first row.

    The last stage ends with the run; rows after it are of another with the same
    fractions. Stages without rows are left out.

    >>> from jaxpt.text.phases import Phase
    >>> place_stages(((0, (1, 0)), (0.75, (1, 3))), 10, (Phase(0, 8),))
    (Stage(start=0, fractions=(1.0, 0.0)), Stage(start=64, fractions=(0.25, 0.75)), \
Stage(start=80, fractions=(0.25, 0.75)))
    """
    placed: dict[int, Stage] = {}
    for start, weights in (*stages, (1.0, stages[-1][1])):
        row = count_rows(phases, int(start * num_steps + 0.5))
        total = sum(weights)
        placed[row] = Stage(row, tuple(weight / total for weight in weights))
    return tuple(placed.values())


class Mixture:
    """The part of each row of a run, and the row's number among those of the part.

    Args:
      stages: the first begins at row 0; the last has no end.
    """

    def __init__(self, stages: Sequence[Stage]):
        self._starts = np.array([stage.start for stage in stages], np.int64)
        self._stages = stages
        self._quotas = [make_quotas(stage.fractions) for stage in stages]
        lengths = np.diff(self._starts)
        # Of each stage: the blocks and each part's rows in the stages before it.
        self._blocks = np.cumsum([0, *-(-lengths // BLOCK)])
        counts = [self._count(stage, int(num)) for stage, num in enumerate(lengths)]
        self._before = np.cumsum([np.zeros_like(self._quotas[0]), *counts], axis=0)

    def _count(self, stage: int, num_rows: int) -> np.ndarray:
        """Each part's rows of a stage of this length, int64 [parts]."""
        num_blocks, rest = divmod(num_rows, BLOCK)
        last = make_quotas(self._stages[stage].fractions, rest)
        return num_blocks * self._quotas[stage] + last

    def find(
        self, numbers: np.ndarray, shuffle: Shuffle
    ) -> tuple[np.ndarray, np.ndarray]:
        """The part and the number in the part of rows by their numbers, int64 [n]."""
        stages = np.searchsorted(self._starts, numbers, "right") - 1
        blocks, inside = np.divmod(numbers - self._starts[stages], BLOCK)
        parts = np.zeros_like(numbers)
        for stage, block in np.unique(np.stack([stages, blocks]), axis=1).T.tolist():
            here = np.flatnonzero((stages == stage) & (blocks == block))
            size, quotas = self._size_block(stage, block)
            order = shuffle(inside[here], size, int(self._blocks[stage]) + block)
            ends = np.cumsum(quotas)
            parts[here] = np.searchsorted(ends, order, "right")
            inside[here] = order - (ends - quotas)[parts[here]]
            inside[here] += self._before[stage][parts[here]]
            inside[here] += block * self._quotas[stage][parts[here]]
        return parts, inside

    def _size_block(self, stage: int, block: int) -> tuple[int, np.ndarray]:
        """The rows of a block, and those of each part."""
        size = BLOCK
        if stage + 1 < len(self._starts):
            length = int(self._starts[stage + 1] - self._starts[stage])
            size = min(BLOCK, length - block * BLOCK)
        if size == BLOCK:
            return size, self._quotas[stage]
        return size, make_quotas(self._stages[stage].fractions, size)
