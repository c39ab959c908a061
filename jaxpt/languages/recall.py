"""Associative recall: key-value pairs, then each key once more, before its value.

    symbol 0 fills; keys 1..V/2-1; values V/2..V-1; both without replacement in a row

    2 8 4 7  0 0 4 7 0 0 0 0 2 8 0 0      V = 12, 2 pairs, 16 symbols

A key returns i = 1, 2, ... places of two symbols after the pairs, with probability in
proportion to i^(power - 1). Only the values after these keys have an exact answer.

Source: MQAR of Arora et al. 2023 (https://arxiv.org/abs/2312.04927; zoology@d88d6f5).
Departure: there the value is a label and not in the row; here it follows its key, so
that any objective has it as a target.

>>> task = Recall(symbols=12, pairs=2, length=16)
>>> x = np.array([[2, 8, 4, 7, 0, 0, 4, 7, 0, 0, 0, 0, 2, 8, 0, 0]])
>>> np.flatnonzero(task.asked(x)[0]).tolist()
[7, 13]
>>> task.left_to_right(x)[0, [7, 13]].argmax(-1).tolist()
[7, 8]
"""

import dataclasses
from typing import Annotated, ClassVar

import numpy as np

from jaxpt.languages import ACCURACY
from jaxpt.languages.language import Language, choose_distinct, hash_rows, one_hot
from jaxpt.languages.spec import LanguageSpec, Length
from jaxpt.setting_types import Limits, PositiveFraction, PositiveInt


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec(LanguageSpec):
    """The parameters of "recall:".

    Attributes:
      symbols: the filler, the keys and the values; even.
      pairs: key-value pairs in a document.
      length: the symbols of a document.
      power: of the power law of the distances at which keys return; 1 is uniform.
    """

    HAS_ANSWERS: ClassVar[bool] = True

    symbols: Annotated[int, Limits(least=4, most=8192)] = 128
    pairs: PositiveInt = 4
    length: Length = 64
    power: PositiveFraction = 0.01

    @property
    def document_length(self) -> int:
        return self.length

    def make(self, rng: np.random.Generator) -> "Recall":
        """The task, which has nothing to draw; refuses more pairs than keys."""
        keys = self.symbols // 2 - 1
        with_symbols = f"the keys of symbols={self.symbols}"
        with_pairs = f"even and at least {4 * self.pairs} with pairs={self.pairs}"
        is_long = self.length % 2 == 0 and self.length >= 4 * self.pairs
        self.check("symbols", self.symbols % 2 == 0, "even")
        self.check("pairs", self.pairs <= keys, f"at most {keys}, {with_symbols}")
        self.check("length", is_long, with_pairs)
        return Recall(self.symbols, self.pairs, self.length, self.power)


class Recall(Language):
    """Rows of multi-query associative recall.

    Args:
      symbols: V, even.
      pairs: key-value pairs in a row, at most V/2 - 1.
      length: symbols in a row, even and at least 4 * pairs.
      power: of the power law of the distances, above 0; 1 is uniform.
    """

    guess = "a random value"

    def __init__(self, symbols: int, pairs: int, length: int, power: float = 0.01):
        self.num_symbols, self.pairs, self.length = symbols, pairs, length
        self.power = power
        self.num_places = (length - 2 * pairs) // 2

    def chances(self) -> dict[str, float]:
        """One of all values."""
        return {ACCURACY: 2 / self.num_symbols}

    def count_draws(self, length: int) -> int:
        """An order of the keys, of the values and of the places."""
        half = self.num_symbols // 2
        return half - 1 + half + self.num_places

    def build(self, draws: np.ndarray, length: int) -> np.ndarray:
        """Documents from uniform numbers, int32 [N, T]."""
        self.check_length(length)
        half, num = self.num_symbols // 2, self.pairs
        keys = choose_distinct(draws[:, : half - 1], num) + 1
        values = choose_distinct(draws[:, half - 1 : 2 * half - 1], num) + half
        # The least of exponential clocks is a choice without replacement.
        rates = np.arange(1, self.num_places + 1) ** (self.power - 1.0)
        clocks = -np.log1p(-draws[:, 2 * half - 1 :]) / rates
        places = 2 * num + 2 * choose_distinct(clocks, num)
        rows = np.zeros((len(draws), length), np.int32)
        rows[:, 0 : 2 * num : 2], rows[:, 1 : 2 * num : 2] = keys, values
        np.put_along_axis(rows, places, keys.astype(np.int32), 1)
        np.put_along_axis(rows, places + 1, values.astype(np.int32), 1)
        return rows

    def asked(self, rows: np.ndarray) -> np.ndarray:
        """The positions of the values that the keys retrieve, bool [N, T]."""
        spots = np.arange(self.length)
        before = np.concatenate([np.zeros_like(rows[:, :1]), rows[:, :-1]], 1)
        is_after_key = (before > 0) & (before < self.num_symbols // 2)
        return is_after_key & (spots % 2 == 1) & (spots > 2 * self.pairs)

    def identify(self, rows: np.ndarray) -> np.ndarray:
        """The pairs, in their order."""
        return hash_rows(rows[:, : 2 * self.pairs])

    def given_visible(self, rows: np.ndarray, visible: np.ndarray) -> np.ndarray:
        """p(x_i = v | the visible symbols other than x_i), float64 [N, T, V].

        NaN outside `asked`, and where the key or some of the pairs are hidden.
        """
        end = 2 * self.pairs
        keys, values = rows[:, 0:end:2], rows[:, 1:end:2]
        before = np.concatenate([rows[:, :1], rows[:, :-1]], 1)
        key_visible = np.concatenate([visible[:, :1], visible[:, :-1]], 1)
        pair = (keys[:, None] == before[..., None]).argmax(2)  # [N, T]
        answers = one_hot(np.take_along_axis(values, pair, 1), self.num_symbols)
        is_shown = visible[:, :end].all(1, keepdims=True)
        is_known = self.asked(rows) & key_visible & is_shown
        return np.where(is_known[..., None], answers, np.nan)
