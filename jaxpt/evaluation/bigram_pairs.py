"""Bigram-matched cloze: which of two tokens was removed from a text?

Bigrams answer most questions whose wrong candidates are drawn by frequency
(`jaxpt.evaluation.choices`). Here they cannot answer any. Let q be the distribution of
a gap's token by the bigrams of the training text,

    q(c | left, right)  ~  p(c | left) p(right | c)

with Witten-Bell smoothing (`Bigrams`). The wrong candidate b of the true token a is
drawn from q without a, which has the probability q(b) / (1 - q(a)), and the question
has the weight

    w = min(1, (1 - q(a)) / (1 - q(b)))

Under q, the weighted probability that a is true and b is drawn is then

    q(a) q(b) / (1 - q(a)) w  =  q(a) q(b) / max(1 - q(a), 1 - q(b))

It is the same if a and b are exchanged, so whoever knows q and nothing else is right in
half of the (weighted) questions. This is importance weighting of a proposal, as in the
acceptance ratio of Metropolis and Hastings, with weights in the place of rejections.

By Bayes' rule, a model with p(c | context) gives the two candidates the odds

    p(a) q(b) / max(1 - q(a), 1 - q(b))  :  p(b) q(a) / max(1 - q(a), 1 - q(b))
                               p(a) / q(a)  :  p(b) / q(b)

Its answer is the larger gain log p(c | context) - log q(c) over bigrams. This is exact;
no approximation for rare tokens is made. Accuracy has chance 0.5. The log score is
-log of the probability that the model gives to the true candidate: log 2 = 0.693 nats
for bigrams, more for a model that is confident and wrong.

A discriminator's score is the ratio of p to what its generator writes. ELECTRA gives p
by Bayes' rule from both of its networks (`Electra.gap_log_probs`). A network whose
generator is not known (`ScoresCandidates.scores_ratio` without `ResolvesRatio`) uses
its ratio as the gain, which is exact if that generator fills gaps as bigrams do, and
otherwise a departure from Bayes' rule.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Int, PyTree
from scipy import sparse

from jaxpt.evaluation.choices import (
    MAX_TOKENS,
    SEED,
    SMOOTHING,
    find_gaps,
    score_candidates,
)
from jaxpt.judge.examples import Examples
from jaxpt.text.tokens.vocab import Vocab

if TYPE_CHECKING:
    from jaxpt.text.dataset import Split

ACCURACY, NATS = "pair_accuracy", "pair_nats"
MAX_FLOATS = 1 << 22  # of probabilities at once, of some questions and all tokens
DTYPE = np.float32  # of stored values


class Pairs(NamedTuple):
    """Texts with a gap, and two candidates for it.

    Attributes:
      left, right: the C tokens before and after the gap.
      candidates: ids for the gap; the first one is the true one.
      documents: the document of each text.
      log_bigrams: log q of each candidate.
      log_frequencies: log of its frequency in the training text.
      weights: w of each question, from 0 to 1.
    """

    left: Int[np.ndarray, "Q C"]
    right: Int[np.ndarray, "Q C"]
    candidates: Int[np.ndarray, "Q 2"]
    documents: Int[np.ndarray, "Q"]
    log_bigrams: Float[np.ndarray, "Q 2"]
    log_frequencies: Float[np.ndarray, "Q 2"]
    weights: Float[np.ndarray, "Q"]


class Bigrams(NamedTuple):
    """The bigrams of a training text, with Witten-Bell smoothing.

    p(y | x) = (n(x, y) + t(x) f(y)) / (n(x) + t(x)), where t(x) is the number of
    distinct tokens that follow x, at least 1, and f their frequencies: a token that
    was rarely seen falls back to frequencies (Witten and Bell 1991, method C).

    Attributes:
      after: n(x, y), by x in rows.
      before: the same, by y in columns.
      counts: n(x).
      kinds: t(x).
      frequencies: f(y).
    """

    after: sparse.csr_array
    before: sparse.csc_array
    counts: Float[np.ndarray, "V"]
    kinds: Float[np.ndarray, "V"]
    frequencies: Float[np.ndarray, "V"]

    @classmethod
    def read(cls, train: "Split", size: int) -> "Bigrams":
        """Counts the first `MAX_TOKENS` of each part.

        Args:
          size: V, the number of ids.
        """
        after = sparse.csr_array((size, size), dtype=np.float64)
        singles = np.zeros(size)
        for part in train.parts:
            tokens = part.read(0, min(part.num_tokens, MAX_TOKENS))
            singles += np.bincount(tokens, minlength=size)
            ones = np.ones(max(0, len(tokens) - 1))
            pairs = sparse.coo_array((ones, (tokens[:-1], tokens[1:])), (size, size))
            after = sparse.csr_array(after + pairs.tocsr())
        kinds = np.maximum(np.diff(after.indptr), 1).astype(np.float64)
        smooth = singles + SMOOTHING
        counts = np.asarray(after.sum(axis=1)).ravel()
        before = sparse.csc_array(after)
        return cls(after, before, counts, kinds, smooth / smooth.sum())

    def fill(
        self, left: Int[np.ndarray, "Q"], right: Int[np.ndarray, "Q"]
    ) -> Float[np.ndarray, "Q V"]:
        """p(c | left) p(right | c) of every id, up to a factor for each question."""
        after = self.after[left].toarray()
        after += self.kinds[left][:, None] * self.frequencies
        before = self.before[:, right].toarray().T
        before = before + self.frequencies[right][:, None] * self.kinds
        return after * before / (self.counts + self.kinds)


def find_pairs(
    train: "Split", valid: "Split", vocab: Vocab, num_questions: int, context: int
) -> Pairs | None:
    """Questions spread evenly over the validation text; None if it has none.

    Args:
      num_questions: the maximum; gaps with a special token are skipped.
      context: C.
    """
    gaps = find_gaps(valid, vocab, num_questions, context)
    is_plain = ~vocab.is_special
    bigrams = Bigrams.read(train, vocab.size)
    if gaps is None or ((bigrams.counts > 0) & is_plain).sum() < 2:
        return None
    tokens, owners = gaps
    truths = tokens[:, context]
    uniform = np.random.default_rng(SEED).random(len(truths))
    distractors, log_q, weights = [], [], []
    step = max(1, MAX_FLOATS // vocab.size)
    for start in range(0, len(truths), step):
        part = slice(start, start + step)
        beside = tokens[part, context - 1], tokens[part, context + 1]
        q = _normalise(bigrams.fill(*beside) * is_plain)
        drawn, pair_weights = draw_distractors(q, truths[part], uniform[part])
        distractors.append(drawn)
        chosen = np.stack([truths[part], drawn], axis=1)
        log_q.append(np.log(np.take_along_axis(q, chosen, axis=1)))
        weights.append(pair_weights)
    candidates = np.stack([truths, np.concatenate(distractors)], 1).astype(np.int32)
    all_weights = np.concatenate(weights).astype(DTYPE)
    if not all_weights.any():
        return None
    return Pairs(
        tokens[:, :context],
        tokens[:, context + 1 :],
        candidates,
        owners,
        np.concatenate(log_q),
        np.log(bigrams.frequencies[candidates]),
        all_weights,
    )


def _normalise(q: Float[np.ndarray, "Q V"]) -> Float[np.ndarray, "Q V"]:
    return q / q.sum(1, keepdims=True)


def draw_distractors(
    q: Float[np.ndarray, "Q V"],
    truths: Int[np.ndarray, "Q"],
    uniform: Float[np.ndarray, "Q"],
) -> tuple[Int[np.ndarray, "Q"], Float[np.ndarray, "Q"]]:
    """A wrong candidate of each question, and the question's weight.

    Args:
      q: probabilities of all tokens. The weight is 0 if only the truth is possible.
      uniform: a number in [0, 1) for each question, by which its token is chosen.

    >>> q = np.array([[0.6, 0.3, 0.1]])  # 1 is drawn with 0.3 / 0.4
    >>> [draw_distractors(q, np.array([0]), np.array([u])) for u in (0.7, 0.8)]
    [(array([1]), array([0.57142857])), (array([2]), array([0.44444444]))]
    """
    rest = _leave_out(q, truths)
    totals = rest.cumsum(1)
    drawn = (totals <= (uniform * totals[:, -1])[:, None]).sum(1)
    # Rounding must not choose what has no probability.
    drawn = np.minimum(drawn, q.shape[1] - 1 - (rest[:, ::-1] > 0).argmax(1))
    weights = find_weights(rest.sum(1), _leave_out(q, drawn).sum(1))
    is_possible = np.take_along_axis(rest, drawn[:, None], 1)[:, 0] > 0
    return drawn, np.where(is_possible, weights, 0.0)


def _leave_out(
    q: Float[np.ndarray, "Q V"], ids: Int[np.ndarray, "Q"]
) -> Float[np.ndarray, "Q V"]:
    rest = q.copy()
    rest[np.arange(len(ids)), ids] = 0
    return rest


def find_weights(
    rest_true: Float[np.ndarray, "..."], rest_drawn: Float[np.ndarray, "..."]
) -> Float[np.ndarray, "..."]:
    """w = min(1, (1 - q(a)) / (1 - q(b))).

    Args:
      rest_true, rest_drawn: 1 - q of the true and of the wrong candidate, as the sum of
        q over all others: near 1 the difference would be rounded.

    >>> find_weights(np.array([0.4, 0.7]), np.array([0.7, 0.4])).round(3).tolist()
    [0.571, 1.0]
    """
    least = np.minimum(rest_true, rest_drawn)
    return np.divide(least, rest_drawn, out=np.zeros_like(least), where=rest_drawn > 0)


def measure_pairs(
    pair_scores: Callable,
    params: PyTree,
    pairs: Pairs,
    batch_size: int,
    is_ratio: bool = False,
) -> dict[str, Examples]:
    """Whether the true token has the larger gain over bigrams, and the log score.

    Args:
      pair_scores: (params, {"left", "right", "candidates"}) -> scores [B, 2].
      is_ratio: whether scores are used as gains; otherwise they are log p of each
        candidate up to a constant.

    Returns:
      pair_accuracy (equal gains share the credit) and pair_nats of each question, times
      its weight.
    """
    scores = score_candidates(pair_scores, params, pairs, batch_size)
    return _judge(scores if is_ratio else scores - pairs.log_bigrams, pairs)


def _judge(gains: Float[np.ndarray, "Q 2"], pairs: Pairs) -> dict[str, Examples]:
    lead = gains[:, 0] - gains[:, 1]
    hits = np.where(lead == 0, 0.5, lead > 0)
    values = {ACCURACY: hits, NATS: np.logaddexp(0, -lead)}
    weights, documents = pairs.weights, pairs.documents
    return {
        name: Examples((x * weights).astype(DTYPE), weights, documents)
        for name, x in values.items()
    }


def measure_pair_frequency(pairs: Pairs) -> dict[str, Examples]:
    """The baseline of token frequencies: p is the same in any context."""
    return _judge(pairs.log_frequencies - pairs.log_bigrams, pairs)


def measure_pair_bigrams(pairs: Pairs) -> dict[str, Examples]:
    """The baseline of bigrams, p = q: they give both candidates one half."""
    return _judge(np.zeros_like(pairs.log_bigrams), pairs)


@functools.lru_cache(maxsize=2)
def recall_pairs(
    train: "Split", valid: "Split", vocab: Vocab, num_questions: int, context: int
) -> Pairs | None:
    """`find_pairs`, which the evaluations of one text share."""
    return find_pairs(train, valid, vocab, num_questions, context)
