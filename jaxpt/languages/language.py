"""The interface of a language: text of a known distribution, and its exact answers.

    symbols 0..V-1; a document is T of them
    left to right    p(x_t = v | x_<t)             [N, T, V]
    given others     p(x_i = v | all others)       [N, T, V]
    given visible    p(x_i = v | visible others)   [N, T, V]
    given span       p(x_i..x_j | all others)      [V] * length, a joint

All probabilities are float64. A symbol's own value never enters its answer, whether it
is visible or not, so answers to visible and to hidden positions are read from the same
array.
"""

import numpy as np

TINY = np.finfo(np.float64).tiny


class Language:
    """The base of all languages: a subclass defines `build` and `given_visible`.

    Attributes:
      num_symbols: the size of the alphabet, V.
      length: the length T of all documents; 0 if they may have any.
      guess: of a task, the random answer whose accuracy is the chance level.
    """

    num_symbols: int
    length: int = 0
    guess: str = ""

    def count_draws(self, length: int) -> int:
        """How many uniform numbers a document of this length is built of."""
        raise NotImplementedError

    def build(self, draws: np.ndarray, length: int) -> np.ndarray:
        """Documents from uniform numbers in [0, 1).

        Args:
          draws: float64 [N, K], with K of `count_draws`.

        Returns:
          Symbols, int32 [N, T]. A row depends on its own draws only.
        """
        raise NotImplementedError

    def given_visible(self, rows: np.ndarray, visible: np.ndarray) -> np.ndarray:
        """p(x_i = v | the visible symbols other than x_i), float64 [N, T, V].

        Args:
          rows: symbols, int [N, T]; those that are hidden are not read.
          visible: bool [N, T].

        Returns:
          NaN at positions that `asked` excludes.
        """
        raise NotImplementedError

    def asked(self, rows: np.ndarray) -> np.ndarray:
        """The positions with an exact answer, bool [N, T]; all by default.

        A task has exact answers only after its prefix, which must be visible.
        """
        return np.ones(rows.shape, bool)

    def for_validation(self) -> "Language":
        """The language of the validation text: the same, unless a task has its own."""
        return self

    def identify(self, rows: np.ndarray) -> np.ndarray | None:
        """A number for what each document is about, uint64 [N].

        Training does not read documents about the same as one of validation; None if
        all documents may be read.
        """
        return None

    def chances(self) -> dict[str, float]:
        """By metric of whole answers, the accuracy of `guess`; {} without a task."""
        return {}

    def check_length(self, length: int) -> None:
        """Raises ValueError unless documents can have this length."""
        if self.length and length != self.length:
            raise ValueError(f"length {length}: documents have {self.length} symbols")

    def sample(
        self, rng: np.random.Generator, num_rows: int, length: int
    ) -> np.ndarray:
        """Documents, int32 [N, T]."""
        return self.build(rng.random((num_rows, self.count_draws(length))), length)

    def given_others(self, rows: np.ndarray) -> np.ndarray:
        """p(x_i = v | all others), float64 [N, T, V]."""
        return self.given_visible(rows, np.ones(rows.shape, bool))

    def left_to_right(self, rows: np.ndarray) -> np.ndarray:
        """p(x_t = v | x_<t), float64 [N, T, V]; the length T is known.

        One pass for each position; a language with a faster way overrides it.
        """
        num, length = rows.shape
        before = np.tri(length, k=-1, dtype=bool)  # [T, T]: row t sees 0..t-1
        wide = np.repeat(rows, length, axis=0)
        answers = self.given_visible(wide, np.tile(before, (num, 1)))
        answers = answers.reshape(num, length, length, self.num_symbols)
        return answers[:, np.arange(length), np.arange(length)]

    def given_span(self, row: np.ndarray, start: int, end: int) -> np.ndarray:
        """p(x_start..x_end-1 | all others), a joint, float64 [V] * (end - start).

        By the chain rule: the span is hidden, its first symbol read, set, and so on;
        V ** (length - 1) rows.

        Args:
          row: symbols, int [T]; those of the span are not read.
        """
        rows = np.array(row)[None]
        joint = np.ones(1)
        for at in range(start, end):
            visible = np.ones(rows.shape, bool)
            visible[:, at:end] = False
            # Rows that cannot occur have no answer, and joint probability 0.
            possible = joint > 0
            answers = np.zeros((len(rows), self.num_symbols))
            answers[possible] = self.given_visible(rows[possible], visible[possible])[
                :, at
            ]
            joint = (joint[:, None] * answers).ravel()
            rows = np.repeat(rows, self.num_symbols, axis=0)
            rows[:, at] = np.tile(np.arange(self.num_symbols), len(answers))
        return joint.reshape([self.num_symbols] * (end - start))


def hash_rows(rows: np.ndarray) -> np.ndarray:
    """A hash of each row, uint64 [N]: equal rows have equal ones.

    >>> a, b, c = hash_rows(np.array([[1, 2], [1, 2], [2, 1]]))
    >>> a == b, a == c
    (np.True_, np.False_)
    """
    hashes = np.zeros(len(rows), np.uint64)
    for column in rows.T:
        hashes = (hashes ^ column.astype(np.uint64)) * np.uint64(0x100000001B3)
        hashes ^= hashes >> np.uint64(29)
    return hashes


def one_hot(rows: np.ndarray, num_symbols: int) -> np.ndarray:
    """Probability 1 on each symbol, float64 [..., V].

    >>> one_hot(np.array([1, 0]), 2).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    return np.eye(num_symbols)[rows]


def normalise(weights: np.ndarray) -> np.ndarray:
    """Divides by the sum of the last axis.

    >>> normalise(np.array([1.0, 3.0])).tolist()
    [0.25, 0.75]
    """
    return weights / np.maximum(weights.sum(-1, keepdims=True), TINY)


def choose(weights: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """The index that a uniform number chooses, in proportion to weights [..., K].

    >>> choose(np.array([[1.0, 0.0, 3.0]] * 2), np.array([0.2, 0.3])).tolist()
    [0, 2]
    """
    ends = np.cumsum(weights, axis=-1)
    return (ends <= (draws * ends[..., -1])[..., None]).sum(-1)


def choose_distinct(draws: np.ndarray, num: int) -> np.ndarray:
    """`num` different indices of K in random order, from draws [N, K]: int64 [N, num].

    >>> choose_distinct(np.array([[0.3, 0.1, 0.2]]), 2).tolist()
    [[1, 2]]
    """
    return np.argsort(draws, axis=1, kind="stable")[:, :num]
