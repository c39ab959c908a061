"""The multiple-choice cloze: which of N tokens was taken out of a text?

Nothing is trained for the answer: each network scores the candidates in the form it was
trained in.

    masked models            log p at the [MASK] in the gap
    causal and prefix models the likelihood of the whole text with each candidate
    T5, BART                 the decoder's likelihood of the whole answer
    ELECTRA                  how original its discriminator finds each candidate

The true token comes from the text, hence from p(c | context). The N - 1 wrong ones are
drawn without replacement by q, the smoothed frequencies of the training text. Let S be
the set of all N candidates. By Bayes' rule, the probability that c is the true one is

    P(c | S, context)  ~  p(c | context) P(S without c | c)

The second factor needs no network. To draw without replacement is a race in which token
x arrives after a time of rate q(x) (the Gumbel-top-k trick, see `_draw`). The wrong
candidates are those that arrive before all tokens outside S, whose rate together is r:

    P(S without c | c) = integral over s > 0 of exp(-s) prod (1 - exp(-s q(x) / r)) ds
    r = 1 - sum of q(x) over S; the product is over the x in S other than c

For small q the product is that of the q(x), which is 1 / q(c) up to a constant. Then
the answer is the largest log p(c | context) - log q(c), the pointwise mutual
information of token and context. With few kinds of tokens, or a model that knows little
of the context, that rule can be worse than log p alone; the exact posterior is not.

So no model is rewarded or punished for how it weighs frequencies against context. What
frequencies alone can answer remains, p = q: the most frequent candidate is right in
0.32 of the questions with 29 kinds of tokens and N = 4. `measure_frequency` is this
baseline. A model that has learnt from contexts is better than it.

A score that compares p with another distribution already, as a discriminator's does, is
taken as it is (`ScoresCandidates.scores_ratio`).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jaxpt.statistics.examples import Examples
from jaxpt.text.dataset import Split, split_count
from jaxpt.text.rows.forms import window_starts
from jaxpt.text.tokens.vocab import Vocab

SEED = 0  # every run gets the same questions
SMOOTHING = 0.1  # added to each count, of tokens and of bigrams
MAX_TOKENS = 4_000_000  # of each part of the training text, whose bigrams are counted
PIECE = 64  # questions whose candidates are drawn at a time
ROUNDING = 1e-12  # the least frequency of all other tokens together
NODES = 64  # of the Gauss-Laguerre quadrature


class Choices(NamedTuple):
    """Texts with a gap, and candidates for it.

    Attributes:
      left, right: the C tokens before the gap and behind it.
      candidates: ids for the gap; the first one is the true one.
      documents: that each is from.
      log_frequencies: log q of each candidate, by which the wrong ones were drawn.
      log_draws: log P(all other candidates are drawn | this one is true).
    """

    left: Int[np.ndarray, "Q C"]
    right: Int[np.ndarray, "Q C"]
    candidates: Int[np.ndarray, "Q N"]
    documents: Int[np.ndarray, "Q"]
    log_frequencies: Float[np.ndarray, "Q N"]
    log_draws: Float[np.ndarray, "Q N"]


def find_choices(
    valid: Split,
    counts: Int[np.ndarray, "V"],
    vocab: Vocab,
    num_choices: int,
    num_questions: int,
    context: int,
) -> Choices | None:
    """Questions spread evenly over the validation text; None if there are none.

    Args:
      counts: of each id in the training text.
      num_choices: N.
      num_questions: the most; a gap with a special token is left out.
      context: C.
    """
    length = 2 * context + 1
    numbers, rows, documents, before = (
        split_count(num_questions, valid.fractions),
        [],
        [],
        0,
    )
    for part, num in zip(valid.parts, numbers, strict=True):
        room = part.num_tokens - length + 1
        if room > 0 and num:
            starts = np.unique(window_starts(part, length, min(num, room)))
            rows.append(part.gather(starts, length))
            found = np.searchsorted(part.doc_starts, starts + context, "right") - 1
            documents.append(found + before)
        before += len(part.labels)
    if not rows:
        return None
    tokens, owners = np.concatenate(rows), np.concatenate(documents)
    is_asked = ~vocab.is_special[tokens[:, context]]
    tokens, owners = tokens[is_asked], owners[is_asked]
    counts = np.where(vocab.is_special, 0, counts[: vocab.size])
    if not len(tokens) or (counts > 0).sum() <= num_choices:
        return None
    weights = np.where(vocab.is_special, 0, counts + SMOOTHING)
    with np.errstate(divide="ignore"):
        logits = np.log(weights / weights.sum())
    candidates = _draw(tokens[:, context], logits, num_choices)
    sides = tokens[:, :context], tokens[:, context + 1 :]
    found = logits[candidates]
    return Choices(*sides, candidates, owners, found, find_log_draws(found))


def _draw(
    truths: Int[np.ndarray, "Q"], logits: Float[np.ndarray, "V"], num_choices: int
) -> Int[np.ndarray, "Q N"]:
    """Each truth, and behind it other ids drawn by exp(logits), none of them twice.

    The Gumbel-top-k trick: the largest of logits + Gumbel noise.
    """
    rng = np.random.default_rng(SEED)
    found = []
    for start in range(0, len(truths), PIECE):
        piece = truths[start : start + PIECE]
        noisy = logits + rng.gumbel(size=(len(piece), len(logits)))
        noisy[np.arange(len(piece)), piece] = -np.inf
        others = np.argpartition(-noisy, num_choices - 1, axis=1)[:, : num_choices - 1]
        found.append(np.concatenate([piece[:, None], others], axis=1))
    return np.concatenate(found).astype(np.int32)


def find_log_draws(log_q: Float[np.ndarray, "Q N"]) -> Float[np.ndarray, "Q N"]:
    """log P(all other candidates are drawn | this one is true), in nats.

    Args:
      log_q: of the candidates.

    >>> q = np.array([[0.5, 0.2]])  # of two, the other is drawn with q / (1 - own q)
    >>> np.exp(find_log_draws(np.log(q))).round(6).tolist()
    [[0.4, 0.625]]
    """
    nodes, weights = np.polynomial.laguerre.laggauss(NODES)
    found = []
    for start in range(0, len(log_q), PIECE):
        q = np.exp(log_q[start : start + PIECE])
        rest = np.maximum(1 - q.sum(1), ROUNDING)
        scaled = q[:, :, None] / rest[:, None, None] * nodes
        arrived = np.log(-np.expm1(-scaled))
        others = arrived.sum(1, keepdims=True) - arrived + np.log(weights)
        found.append(np.logaddexp.reduce(others, axis=2))
    return np.concatenate(found)


def measure_choices(
    choice_scores: Callable,
    params,
    asked: Choices,
    batch_size: int,
    is_ratio: bool = False,
) -> dict[str, Examples]:
    """The share of questions whose true token has the best score.

    Args:
      choice_scores: (params, {"left", "right", "candidates"}) -> scores [B, N].
      is_ratio: the scores are taken as they are; else they are log p of each candidate
        up to a constant, of which the posterior is made.

    Returns:
      choice_bayes_accuracy of each question; if several candidates share the best
      score, the true one gets its share of the credit.
    """
    scores, num = [], len(asked.documents)
    for start in range(0, num, batch_size):
        index = np.minimum(np.arange(start, start + batch_size), num - 1)
        names = ("left", "right", "candidates")
        rows = {name: getattr(asked, name)[index] for name in names}
        scores.append(np.asarray(choice_scores(params, rows), np.float32))
    found = np.concatenate(scores)[:num]
    return _judge(found if is_ratio else found + asked.log_draws, asked)


def _judge(scores: np.ndarray, asked: Choices) -> dict[str, Examples]:
    is_best = scores == scores.max(1, keepdims=True)
    hits = is_best[:, 0] / is_best.sum(1)
    return {
        "choice_bayes_accuracy": Examples(hits, np.ones(len(hits)), asked.documents)
    }


def measure_frequency(asked: Choices) -> dict[str, Examples]:
    """The same choice by token frequencies alone: p = q in any context."""
    return _judge(asked.log_frequencies + asked.log_draws, asked)


def measure_bigrams(train: Split, asked: Choices) -> dict[str, Examples]:
    """The same choice by the bigrams that a candidate forms on either side.

    p = p(c | left) p(right | c), from smoothed counts of the training text's bigrams.
    """
    size = 1 + max(int(x.max()) for x in (asked.left, asked.right, asked.candidates))
    singles, pairs = np.zeros(size), []
    for part in train.parts:
        tokens = part.read(0, min(part.num_tokens, MAX_TOKENS)).astype(np.int64)
        tokens = np.where(tokens < size, tokens, size)  # occurs in no question
        singles += np.bincount(tokens, minlength=size + 1)[:size]
        pairs.append(tokens[:-1] * (size + 1) + tokens[1:])
    keys, counts = np.unique(np.concatenate(pairs), return_counts=True)

    def count(first, second):
        wanted = first.astype(np.int64) * (size + 1) + second
        index = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[index] == wanted, counts[index], 0) + SMOOTHING

    candidates = asked.candidates
    beside = count(asked.left[:, -1:], candidates) * count(
        candidates, asked.right[:, :1]
    )
    log_p = np.log(beside / (singles[candidates] + SMOOTHING * size))
    return _judge(log_p + asked.log_draws, asked)
