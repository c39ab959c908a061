"""Length bucketing: batches of rows of any length, padded to few shapes.

Rows are sorted by length within a window of shuffled rows and split into batches, and
each batch is padded to the smallest of a few lengths that fits. The batches of an epoch
are a function of the seed and the epoch.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from jaxpt.tasks.task import Row

# Lengths are multiples of it, so that few differ.
STEP = 8
# Batches whose rows are sorted together: the rows of a batch have similar lengths, and
# the batches of two epochs differ.
WINDOW = 50
# Each takes seconds to compile.
MAX_LENGTHS = 6


@dataclasses.dataclass(frozen=True)
class TaskBatch:
    """The rows of a batch, and the length that they are padded to."""

    rows: tuple[int, ...]
    length: int


def row_length(row: Row) -> int:
    """The number of tokens in a row; of several texts, in the longest."""
    return row["tokens"].shape[-1]


def count_lengths(num_batches: int, worth: int) -> int:
    """The number of lengths to pad to: one for each `worth` batches, at most 6.

    >>> [count_lengths(n, 32) for n in (3, 64, 10_000)]
    [1, 2, 6]
    """
    return min(max(num_batches // worth, 1), MAX_LENGTHS)


def choose_lengths(
    lengths: Sequence[int], num: int, most: int | None = None
) -> tuple[int, ...]:
    """The lengths to pad to: at most `num`, with the least total padding.

    Args:
      most: the maximum length; no length is rounded up beyond it.

    >>> choose_lengths([5, 6, 7, 8, 30, 31, 90], 3)
    (8, 32, 96)
    >>> choose_lengths([5, 6, 7, 8, 30, 31, 90], 2)
    (32, 96)
    """
    rounded = -(-np.asarray(lengths) // STEP) * STEP
    if most is not None:
        rounded = np.minimum(rounded, most)
    sizes, counts = np.unique(rounded, return_counts=True)
    num = min(num, len(sizes))
    total = np.concatenate([[0], np.cumsum(counts)])
    # cost[k][j]: of the j smallest sizes with k lengths, the last being size j-1.
    cost = np.full((num + 1, len(sizes) + 1), np.inf)
    cost[0, 0] = 0
    last = np.zeros(cost.shape, int)
    for k in range(1, num + 1):
        for j in range(1, len(sizes) + 1):
            candidates = cost[k - 1, :j] + (total[j] - total[:j]) * sizes[j - 1]
            last[k, j] = int(np.argmin(candidates))
            cost[k, j] = candidates[last[k, j]]
    chosen, j = [], len(sizes)
    for k in range(num, 0, -1):
        chosen.append(int(sizes[j - 1]))
        j = last[k, j]
    return tuple(reversed(chosen))


def cut_epoch(
    lengths: Int[np.ndarray, "N"],
    batch_size: int,
    allowed: tuple[int, ...],
    seed: int,
    epoch: int,
) -> list[TaskBatch]:
    """The batches of an epoch: every row once, the last batch may be short.

    Args:
      lengths: of the rows.
      allowed: the lengths to pad to, ascending.
    """
    draw = np.random.default_rng([seed, epoch])
    order = draw.permutation(len(lengths))
    batches: list[np.ndarray] = []
    for start in range(0, len(order), WINDOW * batch_size):
        window = order[start : start + WINDOW * batch_size]
        window = window[np.argsort(lengths[window], kind="stable")]
        batches += _split(window, batch_size)
    turns = draw.permutation(len(batches))
    return [_make(batches[i], lengths, allowed) for i in turns]


def cut_all(
    lengths: Int[np.ndarray, "N"], batch_size: int, allowed: tuple[int, ...]
) -> list[TaskBatch]:
    """The batches of an evaluation: every row once, sorted by length."""
    pieces = _split(np.argsort(lengths, kind="stable"), batch_size)
    return [_make(piece, lengths, allowed) for piece in pieces]


def _split(order: np.ndarray, batch_size: int) -> list[np.ndarray]:
    return [order[i : i + batch_size] for i in range(0, len(order), batch_size)]


def _make(rows: np.ndarray, lengths: np.ndarray, allowed: tuple[int, ...]) -> TaskBatch:
    longest = int(lengths[rows].max())
    length = next((size for size in allowed if size >= longest), longest)
    return TaskBatch(tuple(rows.tolist()), length)


def collate(
    rows: Sequence[Row], length: int, batch_size: int, pads: dict[str, int], pad: int
) -> dict[str, np.ndarray]:
    """Pads rows to a length and to `batch_size` rows: arrays [B, ...].

    "tokens" become "inputs", with "segment_ids" (0 at padding) and "row_weights" (0 in
    rows that only fill the batch).

    Args:
      pads: see `TaskSpec.PADS`.
      pad: the id of padding.
    """
    fills = {"tokens": pad, "type_ids": 0, "segment_ids": 0} | pads
    batch = {}
    first = rows[0] | {"segment_ids": rows[0].get("segment_ids", _ones(rows[0]))}
    for name, like in first.items():
        is_long = name in fills
        shape = (*like.shape[:-1], length) if is_long else like.shape
        padded = np.full((batch_size, *shape), fills.get(name, 0), like.dtype)
        for i, row in enumerate(rows):
            value = row[name] if name in row else _ones(row)
            if is_long:
                padded[i, ..., : value.shape[-1]] = value
            else:
                padded[i] = value
        batch[name] = padded
    batch["inputs"] = batch.pop("tokens")
    batch["row_weights"] = (np.arange(batch_size) < len(rows)).astype(np.float32)
    # A row that only fills the batch has one token, so no softmax is empty.
    batch["segment_ids"][len(rows) :, ..., 0] = 1
    return batch


def _ones(row: Row) -> np.ndarray:
    return np.ones(row["tokens"].shape, np.int32)
