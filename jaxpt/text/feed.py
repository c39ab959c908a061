"""The rows of any step, a pure function of (seed, step): there is no iterator state."""

import operator
import queue
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from jaxpt.errors import UserError
from jaxpt.text.rows import Corpus, check_length

# Fixed for ever: a number here is part of what makes an old run repeatable.
SAMPLINGS = {"chunks": 0, "windows": 1}


@dataclass(frozen=True)
class FeedSpec:
    """How a split becomes batches.

    Attributes:
      row_length: tokens in a row.
      batch_size: rows in a step.
      sampling: "chunks" reads consecutive rows, each once an epoch, in a new order
        every epoch; "windows" starts each row at any token, uniformly, as nanoGPT does.
    """

    row_length: int
    batch_size: int
    seed: int
    sampling: str = "chunks"


class Feed:
    """`feed[step]` is {"tokens": int32 [B, R], "index": int32 [B]}.

    Rows depend on the seed and the row length, never on the objective that reads them.

    Attributes:
      num_rows: consecutive rows in the split, so rows an epoch.

    Raises:
      UserError: a setting is not allowed, or the split is shorter than one row.
    """

    def __init__(self, corpus: Corpus, spec: FeedSpec):
        if spec.sampling not in SAMPLINGS:
            raise UserError(
                f"data.sampling={spec.sampling!r}: one of {', '.join(SAMPLINGS)}"
            )
        for name in ("row_length", "batch_size"):
            if getattr(spec, name) < 1:
                raise UserError(f"{name} is {getattr(spec, name)}: must be 1 or more")
        check_length(corpus, spec.row_length)
        self.corpus = corpus
        self.spec = spec
        self.num_rows = len(corpus.tokens) // spec.row_length
        self._order = (-1, None)  # the last epoch's, kept only to save time

    def __getitem__(self, step: int) -> dict[str, np.ndarray]:
        step = operator.index(step)
        if step < 0:
            raise IndexError(f"step {step}: the first is 0")
        is_random = self.spec.sampling == "windows"
        starts = self._draw(step) if is_random else self._look_up(step)
        tokens = self.corpus.tokens[starts[:, None] + np.arange(self.spec.row_length)]
        return {"tokens": tokens, "index": np.arange(len(starts), dtype=np.int32)}

    def stack(self, step: int, num_steps: int) -> dict[str, np.ndarray]:
        """K steps from `step`: {"tokens": int32 [K, B, R], "index": int32 [K, B]}."""
        batches = [self[step + k] for k in range(num_steps)]
        return {key: np.stack([b[key] for b in batches]) for key in ("tokens", "index")}

    def _draw(self, step: int) -> np.ndarray:
        """Where each row of a step starts, uniformly; int64 [B]."""
        num_starts = len(self.corpus.tokens) - self.spec.row_length + 1
        bits = self._draw_bits(step, self.spec.batch_size)
        # 2**64 exceeds num_starts so far that the bias of the remainder is nothing.
        return (bits % np.uint64(num_starts)).astype(np.int64)

    def _look_up(self, step: int) -> np.ndarray:
        """Where each row of a step starts, int64 [B].

        Row k of the run is place k % num_rows of epoch k // num_rows, so an epoch may
        end inside a batch.
        """
        first = step * self.spec.batch_size
        epochs, places = np.divmod(
            first + np.arange(self.spec.batch_size), self.num_rows
        )
        rows = np.empty_like(places)
        for epoch in np.unique(epochs).tolist():
            is_here = epochs == epoch
            rows[is_here] = self._shuffle(epoch)[places[is_here]]
        return rows * self.spec.row_length

    def _shuffle(self, epoch: int) -> np.ndarray:
        """The order of the rows in one epoch, int64 [num_rows]."""
        last, order = self._order
        if last != epoch:
            bits = self._draw_bits(epoch, self.num_rows)
            order = np.argsort(bits, kind="stable")
            self._order = (epoch, order)
        return order

    def _draw_bits(self, number: int, size: int) -> np.ndarray:
        """The random bits of one step or epoch, uint64 [size].

        Raw bits, as NumPy promises the same ones in every version (NEP 19), which it
        does not for `Generator.permutation` or `integers`.
        """
        purpose = number * len(SAMPLINGS) + SAMPLINGS[self.spec.sampling]
        key = np.array([self.spec.seed % 2**64, purpose], np.uint64)
        return np.random.Philox(key=key).random_raw(size)


def prefetch(
    feed: Feed, first_step: int, counts: Iterable[int], depth: int = 2
) -> Iterator[dict[str, np.ndarray]]:
    """Yield `feed.stack` of each count of steps, read ahead in a thread.

    Close the generator to end the thread; an exception of the thread is raised here.

    Args:
      counts: steps in each stack, one stack after the other from `first_step`.
      depth: stacks to hold ready.
    """
    slots, ready = threading.Semaphore(depth), queue.SimpleQueue()
    is_closed = threading.Event()

    def read():
        step = first_step
        try:
            for count in counts:
                slots.acquire()
                if is_closed.is_set():
                    return
                ready.put((feed.stack(step, count), None))
                step += count
            ready.put((None, None))
        except BaseException as error:  # whatever it is, the consumer must not wait on
            ready.put((None, error))

    thread = threading.Thread(target=read, daemon=True, name="jaxpt-feed")
    thread.start()
    try:
        while True:
            stack, error = ready.get()
            if error is not None:
                raise error
            if stack is None:
                return
            slots.release()
            yield stack
    finally:
        is_closed.set()
        slots.release()
        thread.join()
