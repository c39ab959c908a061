"""Text of a hidden Markov model.

    S states, V symbols    A [S, S] transitions, B [S, V] emissions, pi the first state

    filter      a_t ~ (a_{t-1} A) * B[:, x_t]
    backward    b_{T-1} = 1,  b_t ~ A (B[:, x_{t+1}] * b_{t+1})
    Q1          p(x_t | x_<t)    = (a_{t-1} A) B,  at t = 0: pi B
    Q2          p(x_i | others)  ~ ((a_{i-1} A) * b_i) B
    hidden      B[:, x] becomes all ones

Each document starts from pi. Both passes are scaled at every step, so that long
documents do not underflow; O(T S^2) for a row.

Vectors, from an enumeration of all 243 rows of five symbols:

>>> tiny = Hmm([[.9, .1], [.2, .8]], [[.7, .2, .1], [.1, .3, .6]])
>>> x = np.array([[0, 0, 2, 1, 2]])
>>> np.round(tiny.initial, 6).tolist(), round(float(tiny.log_probability(x)[0]), 6)
([0.666667, 0.333333], -5.563179)
>>> print(np.round(tiny.left_to_right(x)[0], 6))
[[0.5      0.233333 0.266667]
 [0.612    0.214667 0.173333]
 [0.629935 0.211678 0.158388]
 [0.454206 0.240966 0.304828]
 [0.425792 0.245701 0.328506]]
>>> print(np.round(tiny.given_others(x)[0], 6))
[[0.522977 0.229504 0.247519]
 [0.410978 0.24817  0.340852]
 [0.529601 0.2284   0.241999]
 [0.2811   0.269817 0.449084]
 [0.425792 0.245701 0.328506]]
>>> hidden = tiny.given_visible(x, np.array([[1, 0, 1, 0, 1]], bool))[0]
>>> print(np.round(hidden[[1, 3]], 6))
[[0.424207 0.245966 0.329828]
 [0.228988 0.278502 0.49251 ]]
>>> print(np.round(tiny.given_span(x[0], 1, 3), 6))
[[0.284497 0.122694 0.13    ]
 [0.092049 0.056584 0.078501]
 [0.063871 0.063985 0.107818]]
"""

import dataclasses
from typing import Annotated, Any

import numpy as np

from jaxpt.languages.language import TINY, Language, choose, normalise
from jaxpt.languages.spec import Concentration, LanguageSpec, Length, NumSymbols
from jaxpt.setting_types import BelowOne, Limits

# From this second eigenvalue on, some states are left so rarely that they absorb.
MAX_EIGENVALUE = 0.98


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec(LanguageSpec):
    """The parameters of "hmm:".

    Attributes:
      states, symbols: their numbers, S and V.
      transitions, emissions: concentrations of the Dirichlet distributions from which
        each row of A and B is drawn; small ones give few likely states and symbols.
      stay: the share of each row of A that is given to its own state.
      length: the symbols of a document.
    """

    states: Annotated[int, Limits(least=2, most=1024)] = 64
    symbols: NumSymbols = 128
    transitions: Concentration = 0.02
    emissions: Concentration = 0.2
    stay: BelowOne = 0.0
    length: Length = 128

    @property
    def document_length(self) -> int:
        return self.length

    def make(self, rng: np.random.Generator) -> "Hmm":
        """Draws the model; refuses one with absorbing states."""
        concentrations = self.transitions, self.emissions
        model = Hmm.draw(rng, self.states, self.symbols, *concentrations, self.stay)
        eigenvalue = second_eigenvalue(model.transitions)
        self.check(
            "stay" if self.stay else "transitions",
            eigenvalue < MAX_EIGENVALUE,
            f"such that no states absorb: with seed={self.seed} the second eigenvalue "
            f"is {eigenvalue:.4f}, the limit {MAX_EIGENVALUE}; take "
            + ("a smaller one" if self.stay else "a larger one, or another seed"),
        )
        return model


class Hmm(Language):
    """A hidden Markov model.

    Args:
      transitions: A, [S, S], rows that sum to 1.
      emissions: B, [S, V], rows that sum to 1.
      initial: pi, [S]; None for the stationary distribution of A.
    """

    def __init__(self, transitions: Any, emissions: Any, initial: Any = None):
        self.transitions = np.asarray(transitions, np.float64)
        self.emissions = np.asarray(emissions, np.float64)
        if initial is None:
            initial = find_stationary(self.transitions)
        self.initial = np.asarray(initial, np.float64)
        self.num_symbols = self.emissions.shape[1]

    @classmethod
    def draw(
        cls,
        rng: np.random.Generator,
        states: int,
        symbols: int,
        transition_concentration: float,
        emission_concentration: float,
        stay: float = 0.0,
    ) -> "Hmm":
        """A model whose rows are drawn from symmetric Dirichlet distributions.

        Args:
          stay: the share of each transition row that is given to its own state.
        """
        transitions = rng.dirichlet([transition_concentration] * states, states)
        transitions = (1 - stay) * transitions + stay * np.eye(states)
        emissions = rng.dirichlet([emission_concentration] * symbols, states)
        return cls(transitions, emissions)

    def count_draws(self, length: int) -> int:
        """A state and a symbol for each position."""
        return 2 * length

    def build(self, draws: np.ndarray, length: int) -> np.ndarray:
        """Documents from uniform numbers, int32 [N, T]."""
        rows = np.empty((len(draws), length), np.int32)
        weights = np.broadcast_to(self.initial, (len(draws), len(self.initial)))
        for at in range(length):
            states = choose(weights, draws[:, 2 * at])
            rows[:, at] = choose(self.emissions[states], draws[:, 2 * at + 1])
            weights = self.transitions[states]
        return rows

    def given_visible(self, rows: np.ndarray, visible: np.ndarray) -> np.ndarray:
        """p(x_i = v | the visible symbols other than x_i), float64 [N, T, V]."""
        evidence = self._evidence(rows, visible)
        before, _ = self._forward(evidence)
        return normalise((before * self._backward(evidence)) @ self.emissions)

    def left_to_right(self, rows: np.ndarray) -> np.ndarray:
        """p(x_t = v | x_<t), float64 [N, T, V]."""
        before, _ = self._forward(self._evidence(rows, np.ones(rows.shape, bool)))
        return normalise(before @ self.emissions)

    def log_probability(self, rows: np.ndarray) -> np.ndarray:
        """ln p of each row, float64 [N]; -inf for a row that cannot occur."""
        _, scales = self._forward(self._evidence(rows, np.ones(rows.shape, bool)))
        with np.errstate(divide="ignore"):
            return np.log(scales).sum(axis=1)

    def _evidence(self, rows: np.ndarray, visible: np.ndarray) -> np.ndarray:
        """p(what is visible at t | state), [N, T, S]."""
        symbols = np.where(visible, rows, 0)
        return np.where(visible[..., None], self.emissions.T[symbols], 1.0)

    def _forward(self, evidence: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """p(state t | what is visible before t), [N, T, S], and the scales, [N, T]."""
        before = np.empty_like(evidence)
        scales = np.empty(evidence.shape[:2])
        state = np.broadcast_to(self.initial, evidence[:, 0].shape)
        for at in range(evidence.shape[1]):
            before[:, at] = state
            joint = state * evidence[:, at]
            scales[:, at] = joint.sum(-1)
            state = normalise(joint) @ self.transitions
        return before, scales

    def _backward(self, evidence: np.ndarray) -> np.ndarray:
        """p(what is visible after t | state t), up to a factor each, [N, T, S]."""
        after = np.ones_like(evidence)
        for at in range(evidence.shape[1] - 2, -1, -1):
            message = (evidence[:, at + 1] * after[:, at + 1]) @ self.transitions.T
            after[:, at] = message / np.maximum(message.max(-1, keepdims=True), TINY)
        return after


def find_stationary(transitions: np.ndarray) -> np.ndarray:
    """The distribution pi with pi A = pi, float64 [S].

    >>> np.round(find_stationary(np.array([[0.9, 0.1], [0.2, 0.8]])), 6).tolist()
    [0.666667, 0.333333]
    """
    size = len(transitions)
    system = np.vstack([transitions.T - np.eye(size), np.ones(size)])
    solution = np.linalg.lstsq(system, np.append(np.zeros(size), 1.0), rcond=None)[0]
    solution = np.maximum(solution, 0.0)
    return solution / solution.sum()


def second_eigenvalue(transitions: np.ndarray) -> float:
    """The second largest modulus of the eigenvalues: 1 if states are absorbing.

    >>> round(second_eigenvalue(np.array([[0.9, 0.1], [0.2, 0.8]])), 6)
    0.7
    >>> second_eigenvalue(np.eye(2))
    1.0
    """
    return float(np.sort(np.abs(np.linalg.eigvals(transitions)))[-2])
