"""Text of a probabilistic context-free grammar in Chomsky normal form.

    rules N -> L R  [N, L, R]      rules N -> v  [N, V]      nonterminal 0 is the start

    inside    I(i, k, N) = sum P(N -> L R) I(i, m, L) I(m, k, R)
              of a leaf: sum_v P(N -> v) e_i(v), e_i one-hot, or all ones if hidden
    outside   O(i, k, N), the probability of all that is outside i..k, below N
    Q2        p(x_i = v | others) ~ sum_N O(i, i+1, N) P(N -> v)
    Q1        x_i..x_{n-1} hidden; documents have one length, which is known

A leaf's outside does not contain the leaf's own symbol, so one pass answers for all
positions. O(n^3) for a row, vectorised over rows and starts.

Vectors: S -> A B .6 | B A .4; A -> A B .3 | a .7; B -> B A .2 | b .5 | c .3

>>> rules = np.zeros((3, 3, 3))
>>> rules[0, 1, 2], rules[0, 2, 1], rules[1, 1, 2], rules[2, 2, 1] = .6, .4, .3, .2
>>> tiny = Pcfg(rules, [[0, 0, 0], [.7, 0, 0], [0, .5, .3]])
>>> np.round(tiny.length_probabilities(8)[2:], 6).tolist()
[0.56, 0.2128, 0.09968, 0.052179, 0.029243, 0.017164, 0.010416]
>>> abac = np.array([[0, 1, 0, 2]])
>>> round(float(tiny.log_probability(abac)[0]), 6)
-5.241559
>>> print(np.round(tiny.given_others(abac)[0], 6))
[[1.       0.       0.      ]
 [0.       0.625    0.375   ]
 [0.538462 0.288462 0.173077]
 [0.225806 0.483871 0.290323]]
>>> print(np.round(tiny.left_to_right(abac)[0], 6))
[[0.6      0.25     0.15    ]
 [0.       0.625    0.375   ]
 [0.48764  0.320225 0.192135]
 [0.225806 0.483871 0.290323]]
"""

import dataclasses
from typing import Annotated, Any

import numpy as np

from jaxpt.languages.language import TINY, Language, choose, normalise
from jaxpt.languages.spec import Concentration, LanguageSpec, NumSymbols
from jaxpt.setting_types import InnerFraction, Limits

# From this spectral radius on, the expected length is too large, or infinite.
MAX_RADIUS = 0.9


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec(LanguageSpec):
    """The parameters of "pcfg:".

    Attributes:
      nonterminals, symbols: their numbers.
      concentration: of the Dirichlet distributions from which the rules of a
        nonterminal are drawn, those with two nonterminals and those with a symbol.
      leaf: the probability that a nonterminal becomes a symbol.
      length: the symbols of a document, an exact number.
    """

    nonterminals: Annotated[int, Limits(least=1, most=64)] = 10
    symbols: NumSymbols = 48
    concentration: Concentration = 0.3
    leaf: InnerFraction = 0.6
    length: Annotated[int, Limits(least=2, most=256)] = 28

    @property
    def document_length(self) -> int:
        return self.length

    def make(self, rng: np.random.Generator) -> "Pcfg":
        """Draws the grammar; refuses one of infinite mass, or without such a length."""
        sizes = self.nonterminals, self.symbols
        grammar = Pcfg.draw(rng, *sizes, self.concentration, self.leaf)
        radius = spectral_radius(grammar.rules)
        self.check(
            "leaf",
            radius < MAX_RADIUS,
            f"above {1 - MAX_RADIUS / 2:g}: a nonterminal becomes {radius:.3g} others "
            "on average (the spectral radius), so documents do not end",
        )
        mass = grammar.length_probabilities(self.length)[-1]
        self.check("length", mass > 0, "a length of some string of the grammar")
        return grammar


class Pcfg(Language):
    """A grammar; documents of a length are its strings of that length.

    Args:
      rules: P(N -> L R), [N, N, N].
      leaves: P(N -> v), [N, V]. All rules of a nonterminal sum to 1.
    """

    def __init__(self, rules: Any, leaves: Any):
        self.rules = np.asarray(rules, np.float64)
        self.leaves = np.asarray(leaves, np.float64)
        self.num_symbols = self.leaves.shape[1]

    @classmethod
    def draw(
        cls,
        rng: np.random.Generator,
        nonterminals: int,
        symbols: int,
        concentration: float,
        leaf: float = 0.6,
    ) -> "Pcfg":
        """A grammar whose rules are drawn from symmetric Dirichlet distributions.

        Args:
          leaf: the probability that a nonterminal becomes a symbol. Above one half, the
            expected length is finite.
        """
        pairs = rng.dirichlet([concentration] * nonterminals**2, nonterminals)
        leaves = rng.dirichlet([concentration] * symbols, nonterminals)
        rules = (1 - leaf) * pairs.reshape([nonterminals] * 3)
        return cls(rules, leaf * leaves)

    def count_draws(self, length: int) -> int:
        """A rule with its split for each inner node of the tree, a symbol a leaf."""
        return 2 * length - 1

    def build(self, draws: np.ndarray, length: int) -> np.ndarray:
        """Documents from uniform numbers, int32 [N, T], top down, of one length.

        A rule and a split are drawn in proportion to P(N -> L R) p(m | L) p(n - m | R),
        with p(m | N) the probability that N derives m symbols. So nothing is rejected.
        """
        sizes = self._sizes(length)
        rows = np.empty((len(draws), length), np.int32)
        for row, numbers in enumerate(draws):
            todo = [(0, 0, length)]
            for draw in numbers:
                symbol, start, end = todo.pop()
                size = end - start
                if size == 1:
                    rows[row, start] = choose(self.leaves[symbol], draw)
                    continue
                weights = self._splits(sizes, symbol, size)
                split, left, right = np.unravel_index(
                    choose(weights.ravel(), draw), weights.shape
                )
                middle = start + int(split) + 1
                todo.append((int(right), middle, end))
                todo.append((int(left), start, middle))
        return rows

    def given_visible(self, rows: np.ndarray, visible: np.ndarray) -> np.ndarray:
        """p(x_i = v | the visible symbols other than x_i, T), float64 [N, T, V]."""
        inside, _ = self._inside(rows, visible)
        outside = self._outside(inside)
        spots = np.arange(rows.shape[1])
        return normalise(outside[:, spots, spots + 1] @ self.leaves)

    def log_probability(self, rows: np.ndarray) -> np.ndarray:
        """ln p of each row, float64 [N], its length being random, too."""
        inside, scales = self._inside(rows, np.ones(rows.shape, bool))
        with np.errstate(divide="ignore"):
            return np.log(inside[:, 0, -1, 0]) + scales.sum(axis=1)

    def length_probabilities(self, longest: int) -> np.ndarray:
        """p(length = n) for n = 0..longest, float64."""
        return self._sizes(longest)[:, 0]

    def _sizes(self, longest: int) -> np.ndarray:
        """The probability that N derives n symbols, [longest + 1, N]."""
        sizes = np.zeros((longest + 1, len(self.rules)))
        if longest:
            sizes[1] = self.leaves.sum(1)
        for size in range(2, longest + 1):
            left, right = sizes[1:size], sizes[size - 1 : 0 : -1]
            sizes[size] = np.einsum("nlr,lr->n", self.rules, left.T @ right)
        return sizes

    def _splits(self, sizes: np.ndarray, symbol: int, size: int) -> np.ndarray:
        """The weight of each split and rule of N over n symbols, [n - 1, L, R]."""
        left, right = sizes[1:size], sizes[size - 1 : 0 : -1]
        return left[:, :, None] * self.rules[symbol] * right[:, None, :]

    def _inside(
        self, rows: np.ndarray, visible: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """I(i, k, N), [B, T, T+1, N], and the logarithm of each leaf's scale, [B, T].

        A leaf is divided by its scale, and a longer span by those of its leaves.
        """
        num, length = rows.shape
        symbols = np.where(visible, rows, 0)
        leaf = np.where(visible[..., None], self.leaves.T[symbols], self.leaves.sum(1))
        scales = np.maximum(leaf.max(-1), TINY)
        inside = np.zeros((num, length, length + 1, len(self.rules)))
        spots = np.arange(length)
        inside[:, spots, spots + 1] = leaf / scales[..., None]
        for size in range(2, length + 1):
            starts = np.arange(length - size + 1)[:, None]
            middles = starts + np.arange(1, size)
            left = inside[:, starts, middles]  # [B, starts, splits, N]
            right = inside[:, middles, starts + size]
            pairs = left.swapaxes(-1, -2) @ right  # [B, starts, L, R]
            spans = np.tensordot(pairs, self.rules, ([2, 3], [1, 2]))
            inside[:, starts[:, 0], starts[:, 0] + size] = spans
        return inside, np.log(scales)

    def _outside(self, inside: np.ndarray) -> np.ndarray:
        """O(i, k, N), [B, T, T+1, N], up to a factor for each row."""
        length = inside.shape[1]
        outside = np.zeros_like(inside)
        outside[:, 0, length, 0] = 1.0
        for size in range(length, 1, -1):
            starts = np.arange(length - size + 1)
            above = outside[:, starts, starts + size]  # [B, starts, N]
            pairs = np.tensordot(above, self.rules, ([2], [0]))  # [B, starts, L, R]
            starts = starts[:, None]
            middles = starts + np.arange(1, size)
            left, right = inside[:, starts, middles], inside[:, middles, starts + size]
            # A span is a child of parents of several starts: one at a time for each
            # split, so each (start, middle) is written once.
            outside[:, starts, middles] += right @ pairs.swapaxes(-1, -2)
            outside[:, middles, starts + size] += left @ pairs
        return outside


def spectral_radius(rules: np.ndarray) -> float:
    """Of the mean number of nonterminals that one rewrites to; below 1: finite length.

    Args:
      rules: P(N -> L R), [N, N, N].

    >>> round(spectral_radius(np.full((1, 1, 1), 0.4)), 6)
    0.8
    """
    means = rules.sum(2) + rules.sum(1)  # [N, L] + [N, R]
    return float(np.abs(np.linalg.eigvals(means)).max())
