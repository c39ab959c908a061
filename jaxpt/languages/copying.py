"""Repeated text: w SEP w, or w SEP reversed(w), with w uniform over V letters.

    letters 0..V-1, SEP = V;  T = 2 n + 1 with n letters in w

A letter is known if its twin is visible, and uniform over the letters otherwise; SEP is
at a known position. So the exact loss left to right is ln V a letter in the first half,
and 0 in the second.

>>> task = Copying(letters=8, size=2)
>>> x = np.array([[2, 0, 8, 2, 0]])
>>> hidden = np.array([[0, 1, 1, 1, 1]], bool)
>>> int(task.given_visible(x, hidden)[0, 0].argmax())
2
>>> hidden[0, 3] = False
>>> float(-np.log(task.given_visible(x, hidden)[0, 0, 2]).round(6))
2.079442
>>> np.round(-np.log(np.take_along_axis(
...     task.left_to_right(x), x[..., None], 2))[0, :, 0] + 0, 6).tolist()
[2.079442, 2.079442, 0.0, 0.0, 0.0]
"""

import dataclasses

import numpy as np

from jaxpt.languages.language import Language, one_hot
from jaxpt.languages.spec import LanguageSpec, Length, NumSymbols


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec(LanguageSpec):
    """The parameters of "copy:".

    Attributes:
      letters: the number of letters.
      size: letters in w, the part that is repeated.
      reversed: whether the second part is w backwards.
    """

    letters: NumSymbols = 64
    size: Length = 24
    reversed: bool = False

    @property
    def document_length(self) -> int:
        return 2 * self.size + 1

    def make(self, rng: np.random.Generator) -> "Copying":
        """The task, which has nothing to draw."""
        return Copying(self.letters, self.size, self.reversed)


class Copying(Language):
    """Documents that repeat their first half.

    Args:
      letters: the number of letters.
      size: letters in the first half.
      is_reversed: whether the second half is the first one backwards.
    """

    def __init__(self, letters: int, size: int, is_reversed: bool = False):
        self.letters, self.size, self.is_reversed = letters, size, is_reversed
        self.num_symbols, self.length = letters + 1, 2 * size + 1

    def count_draws(self, length: int) -> int:
        """A letter for each position of the first half."""
        return self.size

    def build(self, draws: np.ndarray, length: int) -> np.ndarray:
        """Documents from uniform numbers, int32 [N, 2 n + 1]."""
        self.check_length(length)
        letters = (draws * self.letters).astype(np.int32)
        rows = np.full((len(draws), length), self.letters, np.int32)
        rows[:, : self.size] = letters
        rows[:, self.size + 1 :] = letters[:, ::-1] if self.is_reversed else letters
        return rows

    def given_visible(self, rows: np.ndarray, visible: np.ndarray) -> np.ndarray:
        """p(x_i = v | the visible symbols other than x_i), float64 [N, T, V + 1]."""
        twins = self._twins()
        is_known = np.where(twins < 0, True, visible[:, twins])
        values = np.where(twins < 0, self.letters, rows[:, twins])
        uniform = np.append(np.full(self.letters, 1 / self.letters), 0.0)
        return np.where(
            is_known[..., None],
            one_hot(np.where(is_known, values, 0), self.num_symbols),
            uniform,
        )

    def _twins(self) -> np.ndarray:
        """The position of each letter's twin, -1 for SEP, int [T]."""
        first, second = np.arange(self.size), np.arange(self.size) + self.size + 1
        if self.is_reversed:
            return np.concatenate([second[::-1], [-1], first[::-1]])
        return np.concatenate([second, [-1], first])
