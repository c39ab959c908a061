"""Facts: statements of key-value pairs, and queries in both directions.

    fact       [fact]      key : value        of every pair
    forward    [value of]  key : value        of some pairs; the others are validation
    backward   [key of]    value : key        of some pairs; the others are validation

Keys and values are entities of `width` symbols, different and without a common symbol.
A network that has learned the facts answers the queries that it has not seen.

    symbols: of keys 0..n-1, of values n..2n-1, `:` 2n, [fact], [value of], [key of]

Source: the retrieval task of Kitouni et al. 2024 (https://arxiv.org/abs/2406.05183).
Departure: there a fact has no mark before it; here it has one, so that all documents
have one length.

The exact answers are of a document of any kind about any pair, all equally likely; the
queries of the validation set are among them.

>>> task = Facts([[0, 1], [1, 0]], [[2, 2], [2, 3]], 2)
>>> task.table.tolist()[0], task.table.tolist()[2], task.table.tolist()[4]
([5, 0, 1, 4, 2, 2], [6, 0, 1, 4, 2, 2], [7, 2, 2, 4, 0, 1])
>>> x = task.table[4:5]
>>> task.left_to_right(x)[0, 4].round(6).tolist()
[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
>>> task.given_visible(x, np.array([[1, 1, 0, 1, 0, 0]], bool))[0, 4, :2].tolist()
[0.5, 0.5]
"""

import dataclasses
from typing import Annotated, Any, ClassVar

import numpy as np

from jaxpt.languages import ACCURACY, SECOND
from jaxpt.languages.language import Language, normalise, one_hot
from jaxpt.languages.spec import LanguageSpec
from jaxpt.setting_types import Fraction, Limits, OneOf

DIRECTIONS = ("both", "forward", "backward")

_ROWS = 64  # of a batch, to bound memory


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec(LanguageSpec):
    """The parameters of "facts:".

    Attributes:
      pairs: the number of facts.
      symbols: of which keys are made; values are made of the same number of others.
      width: the symbols of a key, and of a value.
      queries: of each direction that is trained, the share of the pairs whose query is
        in the training text; all other queries are for validation.
      directions: the directions of the queries in the training text.
    """

    HAS_ANSWERS: ClassVar[bool] = True

    pairs: Annotated[int, Limits(least=1, most=10_000)] = 500
    symbols: Annotated[int, Limits(least=1, most=4096)] = 128
    width: Annotated[int, Limits(least=1, most=4)] = 2
    queries: Fraction = 0.5
    directions: Annotated[str, OneOf(*DIRECTIONS)] = "both"

    @property
    def document_length(self) -> int:
        return 2 * self.width + 2

    def make(self, rng: np.random.Generator) -> "Facts":
        """Draws the facts; refuses more than there are keys."""
        keys = self.symbols**self.width
        self.check(
            "pairs",
            self.pairs <= keys,
            f"at most {keys}, the keys of width={self.width} with "
            f"symbols={self.symbols}",
        )
        sizes = self.pairs, self.symbols, self.width
        facts = Facts.draw(rng, *sizes, self.queries, self.directions)
        self.check(
            "queries",
            not facts.is_trained.all(),
            f"such that one of pairs={self.pairs} is left for validation",
        )
        return facts


class Facts(Language):
    """Documents about a fixed set of pairs.

    Args:
      keys, values: entities [P, width], symbols of keys below n, of values from n on.
      symbols: n.
      asked_forward, asked_backward: bool [P], the pairs whose query is in the training
        text; None for all.
    """

    guess = "the answer about a random pair"

    def __init__(
        self,
        keys: Any,
        values: Any,
        symbols: int,
        asked_forward: np.ndarray | None = None,
        asked_backward: np.ndarray | None = None,
    ):
        keys, values = np.asarray(keys, np.int32), np.asarray(values, np.int32)
        self.pairs, self.width = keys.shape
        self.num_symbols, self.length = 2 * symbols + 4, 2 * self.width + 2
        mark = 2 * symbols
        parts = (mark + 1, keys, values), (mark + 2, keys, values)
        blocks = []
        for sign, first, second in (*parts, (mark + 3, values, keys)):
            column = np.full((self.pairs, 1), sign, np.int32)
            colon = np.full_like(column, mark)
            blocks.append(np.concatenate([column, first, colon, second], 1))
        self.table = np.concatenate(blocks)  # [3 P, T]: facts, forward, backward
        everything = np.ones(self.pairs, bool)
        forward = everything if asked_forward is None else asked_forward
        backward = everything if asked_backward is None else asked_backward
        self.is_trained = np.concatenate([everything, forward, backward])
        self._choices = np.flatnonzero(self.is_trained)

    @classmethod
    def draw(
        cls,
        rng: np.random.Generator,
        pairs: int,
        symbols: int,
        width: int = 2,
        queries: float = 0.5,
        directions: str = "both",
    ) -> "Facts":
        """Random pairs, and the random share of them that is queried in training.

        Args:
          queries: of each direction that is trained, the share of the pairs.
          directions: the queries of the training text: "both", "forward", ...
        """
        entities = [rng.choice(symbols**width, pairs, False) for _ in range(2)]
        powers = symbols ** np.arange(width)
        keys, values = (e[:, None] // powers % symbols for e in entities)
        num = round(queries * pairs)
        asked = []
        for direction in ("forward", "backward"):
            order = rng.permutation(pairs)
            is_used = directions in ("both", direction)
            asked.append(order < num if is_used else np.zeros(pairs, bool))
        return cls(keys, values + symbols, symbols, *asked)

    def for_validation(self) -> "Facts":
        """The same facts; `build` draws the queries that training leaves out."""
        other = object.__new__(Facts)
        other.__dict__.update(self.__dict__)
        other._choices = np.flatnonzero(~self.is_trained)
        return other

    def chances(self) -> dict[str, float]:
        """One in `pairs`; of second symbols, how often those of two pairs are equal.

        >>> task = Facts([[0, 1], [1, 0]], [[2, 2], [2, 3]], 2)
        >>> task.chances()
        {'answer_accuracy': 0.5, 'second_token_accuracy': 0.5}
        """
        chances = {ACCURACY: 1 / self.pairs}
        if self.width > 1:
            columns = self.table[: self.pairs, [2, self.width + 3]]
            is_equal = columns[:, None] == columns
            chances[SECOND] = float(is_equal.mean())
        return chances

    def count_draws(self, length: int) -> int:
        """One: which document."""
        return 1

    def build(self, draws: np.ndarray, length: int) -> np.ndarray:
        """Documents from uniform numbers, int32 [N, T], all equally likely."""
        self.check_length(length)
        return self.table[self._choices[(draws[:, 0] * len(self._choices)).astype(int)]]

    def asked(self, rows: np.ndarray) -> np.ndarray:
        """The positions of answers, and of a fact's key and value, bool [N, T]."""
        spots = np.arange(self.length)
        is_fact = rows[:, :1] == self.table[0, 0]
        is_entity = (spots > 0) & (spots != self.width + 1)
        return np.where(is_fact, is_entity, spots > self.width + 1)

    def given_visible(self, rows: np.ndarray, visible: np.ndarray) -> np.ndarray:
        """p(x_i = v | the visible symbols other than x_i), float64 [N, T, V]."""
        shown = one_hot(self.table, self.num_symbols)  # [M, T, V]
        parts = []
        for start in range(0, len(rows), _ROWS):
            some, seen = rows[start : start + _ROWS], visible[start : start + _ROWS]
            clashes = (some[:, None] != self.table) & seen[:, None]  # [n, M, T]
            fits = clashes.sum(2, keepdims=True) == clashes
            parts.append(np.einsum("nmt,mtv->ntv", fits.astype(float), shown))
        if not parts:
            return np.zeros((*rows.shape, self.num_symbols))
        return normalise(np.concatenate(parts))
