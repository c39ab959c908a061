"""A sequence of token ids in several arrays, on disk or in memory."""

from collections.abc import Sequence

import numpy as np


def check_range(start: int, stop: int, num_tokens: int) -> None:
    """Raises IndexError if tokens start..stop-1 are not among `num_tokens`."""
    if not 0 <= start <= stop <= num_tokens:
        raise IndexError(f"tokens {start} to {stop} of {num_tokens}")


class TokenStream:
    """The concatenated tokens of shards, read by position.

    Args:
      shards: 1-D arrays of an unsigned or signed integer dtype, memory-mapped or not.
    """

    def __init__(self, shards: Sequence[np.ndarray]):
        # Plain arrays, as slices of np.memmap are two to three times slower.
        self.shards = [np.asarray(shard) for shard in shards]
        self.starts = np.cumsum([0, *map(len, self.shards)], dtype=np.int64)

    @property
    def num_tokens(self) -> int:
        """The number of tokens of all shards."""
        return int(self.starts[-1])

    def read(self, start: int, stop: int) -> np.ndarray:
        """A copy of tokens start..stop-1, int32.

        Raises:
          IndexError: some of them do not exist.
        """
        check_range(start, stop, self.num_tokens)
        out = np.empty(stop - start, np.int32)
        self._copy(int(start), out)
        return out

    def gather(self, starts: np.ndarray, length: int) -> np.ndarray:
        """Rows of `length` tokens that begin at `starts` [n], int32 [n, length].

        Raises:
          IndexError: a row reaches past the end.
        """
        starts = np.asarray(starts, np.int64)
        if len(starts):
            check_range(starts.min(), starts.max() + length, self.num_tokens)
        out = np.empty((len(starts), length), np.int32)
        # By slices, not one index array, to read memory maps contiguously.
        for row, start in zip(out, starts.tolist(), strict=True):
            self._copy(start, row)
        return out

    def _copy(self, start: int, out: np.ndarray) -> None:
        if not len(out):
            return
        shard, done = 0, 0
        if len(self.shards) > 1:
            shard = int(np.searchsorted(self.starts, start, "right")) - 1
            start -= int(self.starts[shard])
        while done < len(out):
            piece = self.shards[shard][start : start + len(out) - done]
            out[done : done + len(piece)] = piece
            done += len(piece)
            shard, start = shard + 1, 0
