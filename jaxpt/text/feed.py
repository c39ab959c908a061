"""The data feed: the rows of a step as a pure function of (seed, step).

    row k of the run = rows of the steps before + index in the batch
    one part:         epoch k // num_rows, row shuffle(epoch)[k % num_rows]
    several parts:    every 4096 rows hold each part's fraction, shuffled; each part
                      counts its rows and epochs separately (`jaxpt.text.mixing`)

The rows are independent of the number of processes and of resuming. Batches that are
not read (`Feed.without`) move all later ones forward: step s reads the s-th of the
others.
"""

import atexit
import copy
import operator
import queue
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxpt.errors import DataError
from jaxpt.text.mixing import Mixture, Stage, check_weights
from jaxpt.text.phases import MAX_RANGES, Phases, count_rows, cut_rows, find_phase
from jaxpt.text.rows.corpus import as_dict
from jaxpt.text.rows.forms import PlannedRows

ROUNDS = 16  # with 8 rounds, the orders of 5 rows were not equally likely

# Purposes of random bits: (last bit of the key, word of the counter). If these numbers
# changed, old runs could not be repeated.
EPOCH, WINDOW, MIX = (0, 0), (1, 0), (0, 1)


Ranges = tuple[tuple[int, int], ...]  # (first, end), `end` excluded


@dataclass(frozen=True)
class FeedSpec:
    """The rows of each step, over all processes, and the seed of their order.

    `stages` are those of a mixture whose weights change; () for constant ones.
    """

    phases: Phases
    seed: int
    stages: tuple[Stage, ...] = ()


class Feed:
    """`feed[step]` is {"tokens": int32 [B, R], "index": int32 [B], ...} of a process.

    The keys are those of the rows (`RowArrays`) and "index", each row's index in the
    global batch. Each row is read once per epoch, in a new order every epoch; sampled
    rows (`PlannedRows.is_sampled`) are drawn uniformly with replacement. The batch of
    a phase may have fewer rows, or pieces of them (`jaxpt.text.phases`).

    Args:
      parts: rows and their weight, if it is constant; weights need not sum to 1, and
        all rows have the same keys.
      choose: of a batch of n rows, those that this process reads, ascending; None means
        all.
    """

    def __init__(
        self,
        parts: Sequence[tuple[PlannedRows, float]],
        spec: FeedSpec,
        choose: Callable[[int], Sequence[int] | np.ndarray] | None = None,
    ):
        sizes = [phase.batch_size for phase in spec.phases]
        if min(sizes) < 1:
            raise DataError(f"train.batch_size={min(sizes)}: must be at least 1")
        self.parts: list[PlannedRows] = [rows for rows, _ in parts]
        self.spec = spec
        self.keys: tuple[str, ...] = self.parts[0].keys
        if any(rows.keys != self.keys for rows in self.parts):
            raise ValueError("all parts must have the same keys")
        weights = tuple(weight for _, weight in parts)
        check_weights(weights)
        self._mixture = Mixture(spec.stages or (Stage(0, weights),))
        self._indices = [_choose(choose or np.arange, size) for size in sizes]
        self._round_key_cache: dict[tuple, np.ndarray] = {}
        self.skipped: Ranges = ()

    def without(self, ranges: Ranges) -> "Feed":
        """This feed, without ranges (first, end) of batches.

        Their numbers are those of steps that read all. With `train.batch_schedule`, a
        skipped batch has the number of rows of the largest batch.
        """
        other = copy.copy(self)
        other.skipped = tuple(ranges)
        return other

    def __getitem__(self, step: int) -> dict[str, np.ndarray]:
        return {key: values[0] for key, values in self.stack(step, 1).items()}

    def stack(self, step: int, num_steps: int) -> dict[str, np.ndarray]:
        """Reads K steps: {"tokens": int32 [K, B, R], "index": int32 [K, B], ...}.

        Raises:
          IndexError: the step is negative.
          ValueError: the steps are of several phases.
        """
        step, num_steps = operator.index(step), operator.index(num_steps)
        if step < 0:
            raise IndexError(f"step {step}: the first is 0")
        steps = np.arange(step, step + num_steps)
        first, last = (find_phase(self.spec.phases, int(at)) for at in steps[[0, -1]])
        if first != last:
            raise ValueError(f"steps {step} to {steps[-1]}: are of several phases")
        (_, num_rows, pieces), index = self.spec.phases[first], self._indices[first]
        # A process may read some pieces of a row and not the others.
        whole, places = np.unique(index // pieces, return_inverse=True)
        arrays = self._read_steps(steps, num_rows, whole)
        if pieces > 1:
            places = places * pieces + index % pieces
            arrays = {k: cut_rows(k, v, pieces)[:, places] for k, v in arrays.items()}
        return arrays | {"index": np.tile(index.astype(np.int32), (num_steps, 1))}

    def _read_steps(
        self, steps: np.ndarray, size: int, whole: np.ndarray
    ) -> dict[str, np.ndarray]:
        """The rows at the indices `whole` among the `size` rows of each step."""
        first = count_rows(self.spec.phases, int(steps[0]))
        batches = np.array([find_batch(at, self.skipped) for at in steps.tolist()])
        before = (batches - steps) * max(phase.num_rows for phase in self.spec.phases)
        numbers = first + ((steps - steps[0]) * size + before)[:, None] + whole
        bits = self._draw(batches, size)[:, whole].ravel()
        parts, numbers = self._mix(numbers.ravel())
        arrays: dict[str, np.ndarray] = {}
        for part, rows in enumerate(self.parts):
            here = np.flatnonzero(parts == part)
            if rows.is_sampled:  # the bias of the remainder is negligible
                indices = (bits[here] % np.uint64(rows.num_rows)).astype(np.int64)
            else:
                indices = self._shuffle(part, numbers[here])
            for key, values in as_dict(rows.read(indices)).items():
                if len(here) == len(parts):
                    arrays[key] = values
                    continue
                shape = len(parts), *values.shape[1:]
                arrays.setdefault(key, np.empty(shape, values.dtype))[here] = values
        shape = len(steps), len(whole)
        return {k: v.reshape(*shape, *v.shape[1:]) for k, v in arrays.items()}

    def _draw(self, steps: np.ndarray, size: int) -> np.ndarray:
        """Random bits for each row of the steps, uint64 [K, size]."""
        seed = self.spec.seed
        if not any(rows.is_sampled for rows in self.parts):
            return np.zeros((len(steps), size), np.uint64)
        return np.stack([random_bits(seed, WINDOW, at, size) for at in steps.tolist()])

    def _mix(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Each row's part and its number among the rows of that part, int64 [n]."""
        if len(self.parts) == 1:
            return np.zeros_like(numbers), numbers
        return self._mixture.find(numbers, self._shuffle_block)

    def _shuffle_block(self, places: np.ndarray, size: int, block: int) -> np.ndarray:
        return permute(places, size, self._round_keys(MIX, block, 0))

    def _shuffle(self, part: int, numbers: np.ndarray) -> np.ndarray:
        """The index of a part's row for each of its rows of the run, int64 [n]."""
        num_rows = self.parts[part].num_rows
        epochs, rows = np.divmod(numbers, num_rows)
        for epoch in np.unique(epochs).tolist():
            is_here = epochs == epoch
            keys = self._round_keys(EPOCH, epoch, part)
            rows[is_here] = permute(rows[is_here], num_rows, keys)
        return rows

    def _round_keys(
        self, purpose: tuple[int, int], number: int, part: int
    ) -> np.ndarray:
        name = purpose, number, part
        keys = self._round_key_cache.get(name)
        if keys is None:
            keys = random_bits(self.spec.seed, purpose, number, ROUNDS, part)
            if len(self._round_key_cache) > 100:
                self._round_key_cache.clear()
            self._round_key_cache[name] = keys
        return keys


def find_batch(step: int, ranges: Ranges) -> int:
    """The batch that a step reads, if ranges (first, end) of batches are not read.

    >>> [find_batch(step, ((4, 6), (1, 3), (2, 5))) for step in (0, 1, 2)]
    [0, 6, 7]
    """
    batch = step
    for first, end in merge(ranges):
        if first <= batch:
            batch += end - first
    return batch


def merge(ranges: Ranges) -> Ranges:
    """The same numbers in ranges that ascend and do not overlap.

    >>> merge(((4, 6), (1, 3), (2, 5), (9, 10)))
    ((1, 6), (9, 10))
    """
    merged: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if merged and first <= merged[-1][1]:
            first, last = merged.pop()
            end = max(last, end)
        merged.append((first, end))
    return tuple(merged)


def add_range(ranges: Ranges, step: int, num: int) -> Ranges:
    """The ranges, with those of the batches that `num` steps from `step` on read.

    >>> add_range(((4, 6),), 2, 3)
    ((4, 6), (2, 7))
    """
    return *ranges, (find_batch(step, ranges), find_batch(step + num, ranges))


def pad_ranges(ranges: Ranges) -> np.ndarray:
    """Ranges as an array of fixed shape, int32 [MAX_RANGES, 2], filled with zeros."""
    padded = np.zeros((MAX_RANGES, 2), np.int32)
    padded[: len(ranges)] = np.reshape(ranges, (-1, 2))
    return padded


def unpad_ranges(padded: np.ndarray) -> Ranges:
    """The inverse of `pad_ranges`.

    >>> unpad_ranges(pad_ranges(((3, 5), (1, 2))))
    ((3, 5), (1, 2))
    """
    return tuple((first, end) for first, end in padded.tolist() if end)


def _choose(choose: Callable, size: int) -> np.ndarray:
    """The indices that a process reads of a batch, checked, int64 [n]."""
    index = np.array(choose(size), np.int64)
    if not (len(index) and index[0] >= 0 and index[-1] < size):
        raise ValueError(f"indices {index} of a batch of {size} rows")
    if (np.diff(index) < 1).any():
        raise ValueError(f"indices {index}: must ascend")
    return index


def permute(indices: np.ndarray, size: int, keys: np.ndarray) -> np.ndarray:
    """Maps indices by a permutation of range(size), in time and memory O(n).

    A Feistel network on pairs (a, b) below (A, B), with A * B just above size: a round
    adds a function of one side to the other, modulo its limit, which subtraction
    inverts. Results of at least `size` are mapped again until they are below it
    (https://web.cs.ucdavis.edu/~rogaway/papers/subset.pdf).

    Args:
      indices: int64 [n], each below size.
      keys: uint64, one per round; they determine the permutation.

    Returns:
      int64 [n].
    """
    high = int(np.ceil(np.sqrt(size)))
    limits = np.array([high, -(-size // high)], np.uint64)
    out = np.asarray(indices).astype(np.uint64)
    todo = np.arange(len(out))
    while len(todo):
        left, right = np.divmod(out[todo], limits[1])
        for i, key in enumerate(keys):
            if i % 2:
                right = (right + _scramble(left, key)) % limits[1]
            else:
                left = (left + _scramble(right, key)) % limits[0]
        out[todo] = left * limits[1] + right
        todo = todo[out[todo] >= size]
    return out.astype(np.int64)


def _scramble(values: np.ndarray, key: np.uint64) -> np.ndarray:
    """A hash of values, uint64 below 2**62 (the finalizer of MurmurHash3)."""
    values = values ^ key
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        values = (values ^ (values >> np.uint64(33))) * np.uint64(factor)
    # Adding a value below the limit must not overflow.
    return (values ^ (values >> np.uint64(33))) >> np.uint64(2)


def random_bits(
    seed: int, purpose: tuple[int, int], number: int, size: int, part: int = 0
) -> np.ndarray:
    """The random bits of one step, epoch or block, uint64 [size].

    Raw bits are the same in every version of NumPy (NEP 19), unlike the results of
    `Generator.permutation` or `integers`.
    """
    bit, word = purpose
    key = np.array([seed % 2**64, number * 2 + bit], np.uint64)
    counter = np.array([0, 0, word, part], np.uint64)
    return np.random.Philox(key=key, counter=counter).random_raw(size)


def prefetch(
    feed: Feed,
    first_step: int,
    counts: Iterable[int],
    depth: int = 2,
    place: Callable[[dict[str, np.ndarray]], object] | None = None,
) -> Generator:
    """Yields `feed.stack` of each count of steps, read ahead by a thread.

    Closing the generator ends the thread; the thread's exceptions are raised here.

    Args:
      counts: the numbers of steps of consecutive stacks.
      depth: the number of stacks to read ahead.
      place: a function that the thread applies to every stack, for example to send it
        to the device; its result is yielded.
    """
    slots, end = threading.Semaphore(depth), object()
    ready: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
    is_closed = threading.Event()

    def read() -> None:
        step = first_step
        try:
            for count in counts:
                slots.acquire()
                if is_closed.is_set():
                    return
                stack = feed.stack(step, count)
                ready.put((stack if place is None else place(stack), None))
                step += count
            ready.put((end, None))
        except BaseException as error:  # any, or the consumer would wait forever
            ready.put((None, error))

    thread = threading.Thread(target=read, daemon=True, name="jaxpt-feed")

    def close() -> None:
        is_closed.set()
        slots.release()
        thread.join()

    # If the generator is never closed, a thread that still runs while Python shuts down
    # can abort the process.
    atexit.register(close)
    thread.start()
    try:
        while True:
            stack, error = ready.get()
            if error is not None:
                raise error
            if stack is end:
                return
            slots.release()
            yield stack
    finally:
        close()
        atexit.unregister(close)
