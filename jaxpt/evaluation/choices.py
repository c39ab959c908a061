"""Multiple-choice cloze: which of N tokens was removed from a text?

Nothing is trained for this task: each network scores the candidates in its training
format.

    masked models            log p at the [MASK] in the gap
    causal and prefix models the likelihood of the whole text with each candidate
    models that write gaps   log p of the candidate and its end, after both sides
    T5, BART                 the decoder's likelihood of the whole answer
    ELECTRA                  how original its discriminator finds each candidate

The true token is distributed as p(c | context). The N - 1 wrong ones are drawn without
replacement from q, the smoothed frequencies of the training text. Let S be the set of
all N candidates. By Bayes' rule, the probability that c is the true one is

    P(c | S, context)  ~  p(c | context) P(S without c | c)

The second factor needs no network. Drawing without replacement is a race in which token
x arrives after an exponential time of rate q(x) (the Gumbel-top-k trick, see `_draw`).
The wrong candidates are those that arrive before all tokens outside S, whose total rate
is r:

    P(S without c | c) = integral over s > 0 of exp(-s) prod (1 - exp(-s q(x) / r)) ds
    r = 1 - sum of q(x) over S; the product is over the x in S other than c

For small q the factor is 1 / q(c) up to a constant. The answer is then the largest
log p(c | context) - log q(c), the pointwise mutual information of token and context.
With few distinct tokens, or a model that hardly uses the context, this rule can be
worse than log p alone; the exact posterior is not.

A model is thus neither rewarded nor penalised for its weighting of frequencies against
context. Frequencies alone, p = q, remain informative: the most frequent candidate is
correct in 0.32 of the questions with 29 distinct tokens and N = 4. `measure_frequency`
is this baseline, and a model that has learnt from context is better.

A score that is already a ratio of distributions, such as a discriminator's, is used
directly (`ScoresCandidates.scores_ratio`).
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, PyTree

from jaxpt.evaluation.likelihood import map_batches
from jaxpt.judge.examples import Examples
from jaxpt.text.rows.corpus import split_count
from jaxpt.text.rows.forms import window_starts
from jaxpt.text.tokens.vocab import Vocab

if TYPE_CHECKING:
    from jaxpt.text.dataset import Split

SEED = 0  # the same questions for every run
SMOOTHING = 0.1  # added to each count, of tokens and of bigrams
MAX_TOKENS = 4_000_000  # of each part of the training text, for counts of bigrams
PIECE = 64  # questions whose candidates are drawn at once
ROUNDING = 1e-12  # the minimum total frequency of all other tokens
NODES = 64  # of the Gauss-Laguerre quadrature


class Choices(NamedTuple):
    """Texts with a gap, and candidates for it.

    Attributes:
      left, right: the C tokens before and after the gap.
      candidates: ids for the gap; the first one is the true one.
      documents: the document of each text.
      log_frequencies: log q of each candidate.
      log_draws: log P(all other candidates are drawn | this one is true).
    """

    left: Int[np.ndarray, "Q C"]
    right: Int[np.ndarray, "Q C"]
    candidates: Int[np.ndarray, "Q N"]
    documents: Int[np.ndarray, "Q"]
    log_frequencies: Float[np.ndarray, "Q N"]
    log_draws: Float[np.ndarray, "Q N"]


def find_choices(
    valid: "Split",
    counts: Int[np.ndarray, "V"],
    vocab: Vocab,
    num_choices: int,
    num_questions: int,
    context: int,
) -> Choices | None:
    """Questions spread evenly over the validation text; None if it has none.

    Args:
      counts: the count of each id in the training text.
      num_choices: N.
      num_questions: the maximum; gaps with a special token are skipped.
      context: C.
    """
    gaps = find_gaps(valid, vocab, num_questions, context)
    counts = np.where(vocab.is_special, 0, counts[: vocab.size])
    if gaps is None or (counts > 0).sum() <= num_choices:
        return None
    tokens, owners = gaps
    weights = np.where(vocab.is_special, 0, counts + SMOOTHING)
    with np.errstate(divide="ignore"):
        logits = np.log(weights / weights.sum())
    candidates = _draw(tokens[:, context], logits, num_choices)
    sides = tokens[:, :context], tokens[:, context + 1 :]
    log_q = logits[candidates]
    return Choices(*sides, candidates, owners, log_q, find_log_draws(log_q))


def find_gaps(
    valid: "Split", vocab: Vocab, num_questions: int, context: int
) -> tuple[Int[np.ndarray, "Q L"], Int[np.ndarray, "Q"]] | None:
    """Pieces of text with an ordinary token in the middle, and their documents.

    Spread evenly over the validation text; None if it has none. L is 2 C + 1. Arguments
    as of `find_choices`.
    """
    length = 2 * context + 1
    numbers = split_count(num_questions, valid.fractions)
    rows, documents, before = [], [], 0
    for part, num in zip(valid.parts, numbers, strict=True):
        room = part.num_tokens - length + 1
        if room > 0 and num:
            starts = np.unique(window_starts(part, length, min(num, room)))
            rows.append(part.gather(starts, length))
            in_part = np.searchsorted(part.doc_starts, starts + context, "right") - 1
            documents.append(in_part + before)
        before += len(part.labels)
    if not rows:
        return None
    tokens, owners = np.concatenate(rows), np.concatenate(documents)
    is_plain = ~vocab.is_special[tokens[:, context]]
    return (tokens[is_plain], owners[is_plain]) if is_plain.any() else None


def _draw(
    truths: Int[np.ndarray, "Q"], logits: Float[np.ndarray, "V"], num_choices: int
) -> Int[np.ndarray, "Q N"]:
    """Each truth, followed by distinct other ids that are drawn from exp(logits).

    The Gumbel-top-k trick: the largest of logits + Gumbel noise.
    """
    rng = np.random.default_rng(SEED)
    candidates = []
    for start in range(0, len(truths), PIECE):
        piece = truths[start : start + PIECE]
        noisy = logits + rng.gumbel(size=(len(piece), len(logits)))
        noisy[np.arange(len(piece)), piece] = -np.inf
        distractors = np.argpartition(-noisy, num_choices - 1, axis=1)
        distractors = distractors[:, : num_choices - 1]
        candidates.append(np.concatenate([piece[:, None], distractors], axis=1))
    return np.concatenate(candidates).astype(np.int32)


def find_log_draws(log_q: Float[np.ndarray, "Q N"]) -> Float[np.ndarray, "Q N"]:
    """log P(all other candidates are drawn | this one is true), in nats.

    Args:
      log_q: log q of the candidates.

    >>> q = np.array([[0.5, 0.2]])  # of two, the other is drawn with q / (1 - own q)
    >>> np.exp(find_log_draws(np.log(q))).round(6).tolist()
    [[0.4, 0.625]]
    """
    nodes, weights = np.polynomial.laguerre.laggauss(NODES)
    log_draws = []
    for start in range(0, len(log_q), PIECE):
        q = np.exp(log_q[start : start + PIECE])
        rest = np.maximum(1 - q.sum(1), ROUNDING)
        scaled = q[:, :, None] / rest[:, None, None] * nodes
        arrived = np.log(-np.expm1(-scaled))
        others = arrived.sum(1, keepdims=True) - arrived + np.log(weights)
        log_draws.append(np.logaddexp.reduce(others, axis=2))
    return np.concatenate(log_draws)


def measure_choices(
    choice_scores: Callable,
    params: PyTree,
    choices: Choices,
    batch_size: int,
    is_ratio: bool = False,
) -> dict[str, Examples]:
    """The share of questions whose true token has the best score.

    Args:
      choice_scores: (params, {"left", "right", "candidates"}) -> scores [B, N].
      is_ratio: whether scores are used directly; otherwise they are log p of each
        candidate up to a constant, from which the posterior is computed.

    Returns:
      choice_bayes_accuracy of each question; if k candidates share the best score, the
      true one counts 1 / k.
    """
    scores = score_candidates(choice_scores, params, choices, batch_size)
    return _judge(scores if is_ratio else scores + choices.log_draws, choices)


def score_candidates(
    choice_scores: Callable, params: PyTree, questions: Any, batch_size: int
) -> Float[np.ndarray, "Q N"]:
    """The scores of all candidates of `Choices` or of another kind of questions."""
    names = ("left", "right", "candidates")
    arrays = {name: getattr(questions, name) for name in names}
    score = functools.partial(choice_scores, params)
    return np.concatenate(list(map_batches(score, arrays, batch_size)))


def _judge(scores: np.ndarray, choices: Choices) -> dict[str, Examples]:
    is_best = scores == scores.max(1, keepdims=True)
    hits = is_best[:, 0] / is_best.sum(1)
    examples = Examples(hits, np.ones(len(hits)), choices.documents)
    return {"choice_bayes_accuracy": examples}


def measure_frequency(choices: Choices) -> dict[str, Examples]:
    """The baseline of token frequencies: p = q in any context."""
    return _judge(choices.log_frequencies + choices.log_draws, choices)


def measure_bigrams(train: "Split", choices: Choices) -> dict[str, Examples]:
    """The baseline of bigrams, p = p(c | left) p(right | c).

    The bigrams of the training text are counted and smoothed.
    """
    left, right, candidates = choices.left, choices.right, choices.candidates
    size = 1 + max(int(x.max()) for x in (left, right, candidates))
    singles, pairs = np.zeros(size), []
    for part in train.parts:
        tokens = part.read(0, min(part.num_tokens, MAX_TOKENS)).astype(np.int64)
        tokens = np.where(tokens < size, tokens, size)  # not in any question
        singles += np.bincount(tokens, minlength=size + 1)[:size]
        pairs.append(tokens[:-1] * (size + 1) + tokens[1:])
    keys, numbers = np.unique(np.concatenate(pairs), return_counts=True)

    def count(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        pairs = first.astype(np.int64) * (size + 1) + second
        index = np.minimum(np.searchsorted(keys, pairs), len(keys) - 1)
        return np.where(keys[index] == pairs, numbers[index], 0) + SMOOTHING

    counts = count(left[:, -1:], candidates) * count(candidates, right[:, :1])
    log_p = np.log(counts / (singles[candidates] + SMOOTHING * size))
    return _judge(log_p + choices.log_draws, choices)
