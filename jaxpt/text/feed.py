"""The rows of any step, a pure function of (seed, step): there is no iterator state.

    row k of the run = step * batch_size + place in the batch
    one part:     epoch k // num_rows, row shuffle(epoch)[k % num_rows]
    several:      every 4096 rows hold each part's share, shuffled; each part counts its
                  own rows and epochs

Nothing depends on the number of processes, nor on where a run is resumed.
"""

import atexit
import operator
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from jaxpt.errors import UserError
from jaxpt.text.rows.forms import Rows

BLOCK = 4096  # rows in which parts have their exact shares
ROUNDS = 16  # of 8, the orders of 5 rows were not equally likely

# What random bits are for: (last bit of the key, word of the counter). Fixed for ever:
# a number here is part of what makes an old run repeatable.
EPOCH, WINDOW, MIX = (0, 0), (1, 0), (0, 1)


@dataclass(frozen=True)
class FeedSpec:
    """How rows become batches.

    Attributes:
      batch_size: rows in a step, over all processes.
    """

    batch_size: int
    seed: int


class Feed:
    """`feed[step]` is {"tokens": int32 [B, R], "index": int32 [B], ...} of a process.

    Of several processes each reads the rows that stand at its `places` of the same
    global batch. The keys are those of the rows, and "index", each row's place in the
    global batch.

    Rows are read once an epoch, in a new order every epoch, or where they are drawn
    (`Rows.is_drawn`) at any place at any time, uniformly.

    Args:
      parts: rows and their share of every batch, which need not sum to 1; all with the
        same keys.
      places: of the rows to read, ascending, below `spec.batch_size`; None is all.

    Raises:
      UserError: a setting is not allowed.
    """

    def __init__(
        self,
        parts: Sequence[tuple[Rows, float]],
        spec: FeedSpec,
        places: Sequence[int] | None = None,
    ):
        if spec.batch_size < 1:
            raise UserError(f"train.batch_size={spec.batch_size}: must be at least 1")
        size = spec.batch_size
        index = np.arange(size) if places is None else np.array(places, np.int64)
        if not (len(index) and index[0] >= 0 and index[-1] < size):
            raise ValueError(f"places {places} in a batch of {size} rows")
        if (np.diff(index) < 1).any():
            raise ValueError(f"places {places}: must ascend")
        self.parts = [rows for rows, _ in parts]
        self.spec = spec
        self.keys = self.parts[0].keys
        if any(rows.keys != self.keys for rows in self.parts):
            raise ValueError("all parts must have the same keys")
        self._quotas = share_block([share for _, share in parts])
        self._index = index
        self._known: dict[tuple, np.ndarray] = {}  # round keys, only to save time

    def __getitem__(self, step: int) -> dict[str, np.ndarray]:
        return {key: values[0] for key, values in self.stack(step, 1).items()}

    def stack(self, step: int, num_steps: int) -> dict[str, np.ndarray]:
        """K steps from `step`: {"tokens": int32 [K, B, R], "index": int32 [K, B], ...}.

        Raises:
          IndexError: the step is negative.
        """
        step, num_steps = operator.index(step), operator.index(num_steps)
        if step < 0:
            raise IndexError(f"step {step}: the first is 0")
        steps = np.arange(step, step + num_steps)
        numbers = (steps[:, None] * self.spec.batch_size + self._index).ravel()
        parts, numbers = self._mix(numbers)
        found = {}
        for part in range(len(self.parts)):
            here = np.flatnonzero(parts == part)
            for key, values in self._read(part, steps, numbers, here).items():
                if len(here) == len(parts):
                    found[key] = values
                    continue
                shape = len(parts), *values.shape[1:]
                found.setdefault(key, np.empty(shape, values.dtype))[here] = values
        index = self._index.astype(np.int32)
        shape = num_steps, len(index)
        found = {
            key: rows.reshape(*shape, *rows.shape[1:]) for key, rows in found.items()
        }
        return found | {"index": np.tile(index, (num_steps, 1))}

    def _read(self, part: int, steps, numbers, here) -> dict[str, np.ndarray]:
        """A part's rows of some steps: those that stand `here` among all."""
        rows = self.parts[part]
        if rows.is_drawn:
            return rows.read(self._draw(steps, rows.num_rows)[here])
        return rows.read(self._shuffle(part, numbers[here]))

    def _mix(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Each row's part and its number among the rows of that part, int64 [n]."""
        if len(self.parts) == 1:
            return np.zeros_like(numbers), numbers
        blocks, places = np.divmod(numbers, BLOCK)
        for block in np.unique(blocks).tolist():
            is_here = blocks == block
            keys = self._round_keys(MIX, block, 0)
            places[is_here] = permute(places[is_here], BLOCK, keys)
        ends = np.cumsum(self._quotas)
        parts = np.searchsorted(ends, places, "right")
        places -= (ends - self._quotas)[parts]
        return parts, blocks * self._quotas[parts] + places

    def _shuffle(self, part: int, numbers: np.ndarray) -> np.ndarray:
        """Which of a part's rows its rows of the run are, int64 [n]."""
        num_rows = self.parts[part].num_rows
        epochs, places = np.divmod(numbers, num_rows)
        for epoch in np.unique(epochs).tolist():
            is_here = epochs == epoch
            keys = self._round_keys(EPOCH, epoch, part)
            places[is_here] = permute(places[is_here], num_rows, keys)
        return places

    def _draw(self, steps: np.ndarray, num_rows: int) -> np.ndarray:
        """Any of the rows for each place of each step, uniformly, int64 [K * B]."""
        bits = [
            draw_bits(self.spec.seed, WINDOW, step, self.spec.batch_size)[self._index]
            for step in steps.tolist()
        ]
        # 2**64 exceeds num_rows so far that the bias of the remainder is nothing.
        return (np.concatenate(bits) % np.uint64(num_rows)).astype(np.int64)

    def _round_keys(self, purpose: tuple[int, int], number: int, part: int):
        name = purpose, number, part
        keys = self._known.get(name)
        if keys is None:
            keys = draw_bits(self.spec.seed, purpose, number, ROUNDS, part)
            if len(self._known) > 100:
                self._known.clear()
            self._known[name] = keys
        return keys


def share_block(shares: Sequence[float]) -> np.ndarray:
    """How many of BLOCK rows each part gets, int64: its share, largest remainders up.

    Raises:
      UserError: one would get none.
    """
    weights = np.array(shares, np.float64)
    if not ((weights > 0) & np.isfinite(weights)).all():
        raise UserError(f"data.mixture={list(shares)}: every weight must be above 0")
    exact = weights / weights.sum() * BLOCK
    quotas = np.floor(exact).astype(np.int64)
    order = np.argsort(quotas - exact, kind="stable")
    quotas[order[: BLOCK - int(quotas.sum())]] += 1
    if not quotas.all():
        part = int(np.argmin(quotas))
        raise UserError(
            f"data.mixture: source {part + 1} of {len(quotas)} has "
            f"{exact[part] / BLOCK:.2g} of the rows: must be at least 1 in {BLOCK}"
        )
    return quotas


def permute(places: np.ndarray, size: int, keys: np.ndarray) -> np.ndarray:
    """Where a permutation of range(size) takes each place, in time and memory O(n).

    A Feistel network on pairs (a, b) below (A, B), with A * B just above size: a round
    adds a function of one side to the other, modulo its limit, which is undone by
    subtracting it. Places beyond size go through again until they lie within
    (https://web.cs.ucdavis.edu/~rogaway/papers/subset.pdf).

    Args:
      places: int64 [n], each below size.
      keys: uint64, one a round; they are the permutation.

    Returns:
      int64 [n].
    """
    high = int(np.ceil(np.sqrt(size)))
    limits = np.array([high, -(-size // high)], np.uint64)
    out = np.asarray(places).astype(np.uint64)
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
    """A random-looking function of values, uint64 below 2**62 (MurmurHash3's end)."""
    values = values ^ key
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        values = (values ^ (values >> np.uint64(33))) * np.uint64(factor)
    # The sum with a value below the limit must not overflow.
    return (values ^ (values >> np.uint64(33))) >> np.uint64(2)


def draw_bits(
    seed: int, purpose: tuple[int, int], number: int, size: int, part: int = 0
) -> np.ndarray:
    """The random bits of one step, epoch or block, uint64 [size].

    Raw bits, as NumPy promises the same ones in every version (NEP 19), which it does
    not for `Generator.permutation` or `integers`.
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
) -> Iterator:
    """Yield `feed.stack` of each count of steps, read ahead in a thread.

    Close the generator to end the thread; an exception of the thread is raised here.

    Args:
      counts: steps in each stack, one stack after the other from `first_step`.
      depth: stacks to hold ready.
      place: called in the thread on every stack, such as to send it to the device; what
        it returns is yielded.
    """
    slots, end = threading.Semaphore(depth), object()
    ready: queue.SimpleQueue = queue.SimpleQueue()
    is_closed = threading.Event()

    def read():
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
        except BaseException as error:  # whatever it is, the consumer must not wait on
            ready.put((None, error))

    thread = threading.Thread(target=read, daemon=True, name="jaxpt-feed")

    def close():
        is_closed.set()
        slots.release()
        thread.join()

    # Where the generator is not closed: a thread that still runs while Python shuts
    # down can abort the process.
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
