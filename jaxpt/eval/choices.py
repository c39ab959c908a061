"""A choice among tokens for a gap: the one question that every objective answers as is.

Which of N tokens stood in the gap? Nothing is trained for the answer: each objective's
network scores the candidates in the form it was trained in.

    masked models            the scores of the [MASK] in the gap
    causal and prefix models the likelihood of the whole text with each candidate
    T5, BART                 the decoder's scores where it comes to the gap
    ELECTRA                  how original its discriminator finds each candidate there

The wrong candidates are drawn by how often they stand in the training text, as the true
one is, so that frequency alone tells little: with 29 kinds of tokens and N = 4 it is
right in 0.32 of the questions, and less with more kinds.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from jaxpt.eval.examples import Examples
from jaxpt.text.dataset import Split, split_count
from jaxpt.text.rows.forms import window_starts
from jaxpt.text.tokens.vocab import Vocab

SEED = 0  # every run is asked the same
SMOOTHING = 0.1  # added to each count of the bigrams
MAX_TOKENS = 4_000_000  # of each part of the training text, whose bigrams are counted
PIECE = 64  # questions whose candidates are drawn at a time


class Choices(NamedTuple):
    """Texts with a gap, and candidates for it.

    Attributes:
      left, right: the C tokens before the gap and behind it.
      candidates: what may stand there; the first one did.
      documents: that each is from.
    """

    left: Int[np.ndarray, "Q C"]
    right: Int[np.ndarray, "Q C"]
    candidates: Int[np.ndarray, "Q N"]
    documents: Int[np.ndarray, "Q"]


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
      num_questions: the most; where a special token stands in the gap none is asked.
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
    weights = np.where(vocab.is_special, 0, counts[: vocab.size]).astype(np.float64)
    if not len(tokens) or (weights > 0).sum() <= num_choices:
        return None
    candidates = _draw(tokens[:, context], weights, num_choices)
    return Choices(tokens[:, :context], tokens[:, context + 1 :], candidates, owners)


def _draw(
    truths: Int[np.ndarray, "Q"], weights: np.ndarray, num_choices: int
) -> Int[np.ndarray, "Q N"]:
    """Each truth, and behind it other ids drawn by their weights, none of them twice.

    The Gumbel-top-k trick: the largest of log weight + Gumbel noise.
    """
    rng = np.random.default_rng(SEED)
    with np.errstate(divide="ignore"):
        logits = np.log(weights)
    found = []
    for start in range(0, len(truths), PIECE):
        piece = truths[start : start + PIECE]
        noisy = logits + rng.gumbel(size=(len(piece), len(logits)))
        noisy[np.arange(len(piece)), piece] = -np.inf
        others = np.argpartition(-noisy, num_choices - 1, axis=1)[:, : num_choices - 1]
        found.append(np.concatenate([piece[:, None], others], axis=1))
    return np.concatenate(found).astype(np.int32)


def measure_choices(
    choice_scores: Callable, params, asked: Choices, batch_size: int
) -> dict[str, Examples]:
    """How often the token that stood in the gap has the best score.

    Args:
      choice_scores: (params, {"left", "right", "candidates"}) -> scores [B, N].

    Returns:
      choice_accuracy, of each question; where several candidates share the best score,
      the true one counts for its part.
    """
    scores, num = [], len(asked.documents)
    for start in range(0, num, batch_size):
        index = np.minimum(np.arange(start, start + batch_size), num - 1)
        names = ("left", "right", "candidates")
        rows = {name: getattr(asked, name)[index] for name in names}
        scores.append(np.asarray(choice_scores(params, rows), np.float32))
    return _judge(np.concatenate(scores)[:num], asked)


def _judge(scores: np.ndarray, asked: Choices) -> dict[str, Examples]:
    is_best = scores == scores.max(1, keepdims=True)
    hits = is_best[:, 0] / is_best.sum(1)
    return {"choice_accuracy": Examples(hits, np.ones(len(hits)), asked.documents)}


def measure_bigrams(train: Split, asked: Choices) -> dict[str, Examples]:
    """The same choice by the pairs of tokens that it makes on either side.

    p(c | left) p(right | c), from smoothed counts of the training text's bigrams.
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
    return _judge(beside / (singles[candidates] + SMOOTHING * size), asked)
