"""Likelihood of a continuation given a context: ids, windows, sums.

    context         continuation    after
    The cat sat on  _the mat        .

The whole text is encoded and cut where the ids of the context end; white space at the
end of the context belongs to the continuation (both as in
EleutherAI/lm-evaluation-harness, lm_eval/api/model.py). A context that does not fit the
model's window is truncated on the left; if the continuation does not fit, there is no
answer.

The text after the continuation (`after`) is scored only by rules that do not read it: a
causal model scores it together with the continuation, a masked model reads it.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxpt.zero_shot.scoring import TextScorer

# Rules for continuations; the first that a network supports is used. The encoder of an
# encoder-decoder reads the context.
PREFERRED = ("causal", "prefix", "suffix", "pll_word_l2r", "mntp_word_l2r", "both")
# Rules by which a token is scored without the text after it.
LEFT_TO_RIGHT = frozenset({"causal", "prefix", "suffix", "forward"})


class SplitText(NamedTuple):
    """A continuation with the texts before and after it."""

    context: str
    continuation: str
    after: str = ""


class ContinuationScores(NamedTuple):
    """The scores of the tokens of a continuation.

    Attributes:
      log_probs: log p of each token, in nats.
      is_best: whether each is the single likeliest token (if requested).
      is_cut: whether the context was truncated.
    """

    log_probs: Float[np.ndarray, "N"]
    is_best: Bool[np.ndarray, "N"]
    is_cut: bool = False

    @property
    def total(self) -> float:
        """The sum of log p in float64."""
        return float(self.log_probs.sum(dtype=np.float64))


# Texts -> answers; None if a text does not fit.
Score = Callable[[Sequence[SplitText]], list[ContinuationScores | None]]


class Cut(NamedTuple):
    """Ids of a pair: those from `start` to `stop` are the continuation's."""

    ids: Int[np.ndarray, "T"]
    start: int
    stop: int


def cut_pair(encode: Callable[[str], np.ndarray], pair: SplitText) -> Cut:
    """The ids of the whole text of a pair, and the range of the continuation.

    If a token spans the border, the continuation begins after the number of ids that
    the context alone has. It has at least one id.
    """
    bare = pair.context.rstrip()
    text = pair.context + pair.continuation
    ids = encode(text + pair.after)
    start = len(encode(bare)) if bare else 0
    stop = len(encode(text)) if pair.after else len(ids)
    stop = max(1, min(stop, len(ids)))
    return Cut(ids, min(start, stop - 1), stop)


def fit(cut: Cut, room: int) -> Cut | None:
    """Truncates the context to `room` ids in all (0: unlimited); None if impossible.

    >>> fit(Cut(np.arange(6), 4, 5), 3)[1:]
    (1, 2)
    """
    extra = len(cut.ids) - room if room else 0
    if extra <= 0:
        return cut
    if extra > cut.start:
        return None
    return Cut(cut.ids[extra:], cut.start - extra, cut.stop - extra)


def pick_rule(rules: Sequence[str]) -> str:
    """The default rule for continuations."""
    return next((rule for rule in PREFERRED if rule in rules), rules[0])


def make_score(
    scorer: TextScorer,
    encode: Callable[[str], np.ndarray],
    rule: str,
    with_best: bool = False,
) -> Score:
    """A function that scores pairs by a rule of the scorer.

    Args:
      encode: text -> ids.
      with_best: also determine which tokens are the likeliest.
    """
    room = scorer.room(rule)

    def score(pairs: Sequence[SplitText]) -> list[ContinuationScores | None]:
        whole = [cut_pair(encode, pair) for pair in pairs]
        cuts = [fit(cut, room) for cut in whole]
        fitting = [cut for cut in cuts if cut is not None]
        scores = _score_ids(scorer, fitting, rule, with_best)
        answers: list[ContinuationScores | None] = []
        for cut, full in zip(cuts, whole, strict=True):
            if cut is None:
                answers.append(None)
                continue
            log_probs, is_best = next(scores)
            num = cut.stop - cut.start
            count = None if rule in LEFT_TO_RIGHT else num
            is_cut = len(cut.ids) < len(full.ids)
            answers.append(ContinuationScores(log_probs[:count], is_best[:num], is_cut))
        return answers

    return score


def _score_ids(
    scorer: TextScorer, cuts: list[Cut], rule: str, with_best: bool
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """log p of each token from the start on, and whether it is the likeliest."""
    texts, starts = [cut.ids for cut in cuts], [cut.start for cut in cuts]
    scores = scorer.score(texts, starts, (rule,), with_best=with_best)
    return iter(zip(scores[rule], scores.get("best", scores[rule]), strict=True))


def hide_rest(scorer: TextScorer) -> TextScorer:
    """A scorer whose word rules mask everything after a masked token.

    It treats the whole text as one word, so that the prediction of a token does not see
    later tokens.
    """
    size = scorer.network.spec.vocab_size
    form = dataclasses.replace(scorer.form, is_word_start=np.zeros(size, bool))
    return scorer.with_form(form)
