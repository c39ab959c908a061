"""How likely a model finds a text behind another one: ids, windows, sums.

    context         continuation    after
    The cat sat on  _the mat        .

Ids are those of the whole text, cut where the context's own ids end; white space at the
context's end goes to the continuation (both as EleutherAI/lm-evaluation-harness has it,
lm_eval/api/model.py). A context that does not fit the model's window loses its
beginning; where the continuation alone does not fit, there is no answer.

What follows (`after`) counts only where the rule does not see it: by a causal model the
options of a question are compared with all that stands behind them, a masked model
reads it.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxpt.zero_shot.scoring import TextScorer

# Rules that score a text behind another one, the first that a network has is used.
# Where a text is to be continued, an encoder-decoder reads the first in its encoder.
PREFERRED = ("causal", "prefix", "suffix", "pll_word_l2r", "mntp_word_l2r", "both")
# Rules by which a token is scored without what follows it.
LEFT_TO_RIGHT = frozenset({"causal", "prefix", "suffix", "forward"})


class Pair(NamedTuple):
    """A text that is scored behind another one, and before a third."""

    context: str
    continuation: str
    after: str = ""


class Answer(NamedTuple):
    """What a model says of the tokens of a continuation.

    Attributes:
      log_probs: of each token, in nats.
      is_best: whether each is the one likeliest token in its place, as far as asked.
      is_cut: whether the context has lost its beginning.
    """

    log_probs: Float[np.ndarray, "N"]
    is_best: Bool[np.ndarray, "N"]
    is_cut: bool = False

    @property
    def total(self) -> float:
        """log p of all of them, summed in float64."""
        return float(self.log_probs.sum(dtype=np.float64))


# Texts -> answers; None where a text does not fit.
Score = Callable[[Sequence[Pair]], list[Answer | None]]


class Cut(NamedTuple):
    """Ids of a pair: those from `start` to `stop` are the continuation's."""

    ids: Int[np.ndarray, "T"]
    start: int
    stop: int


def cut_pair(encode: Callable[[str], np.ndarray], pair: Pair) -> Cut:
    """The ids of a pair's whole text, and which of them are the continuation's.

    Where tokens reach over the border the continuation begins behind as many ids as the
    context has alone, but has at least one.
    """
    bare = pair.context.rstrip()
    text = pair.context + pair.continuation
    ids = encode(text + pair.after)
    start = len(encode(bare)) if bare else 0
    stop = len(encode(text)) if pair.after else len(ids)
    stop = max(1, min(stop, len(ids)))
    return Cut(ids, min(start, stop - 1), stop)


def fit(cut: Cut, room: int) -> Cut | None:
    """The last ids that a window of `room` has (0: any number); None without them all.

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
    """The rule by which a text behind another one is scored, if none is asked for."""
    return next((rule for rule in PREFERRED if rule in rules), rules[0])


def make_score(
    scorer: TextScorer,
    encode: Callable[[str], np.ndarray],
    rule: str,
    with_best: bool = False,
) -> Score:
    """What scores pairs by a rule of the scorer's.

    Args:
      encode: text -> ids.
      with_best: also find out which tokens are the likeliest ones.
    """
    room = scorer.room(rule)

    def score(pairs: Sequence[Pair]) -> list[Answer | None]:
        whole = [cut_pair(encode, pair) for pair in pairs]
        cuts = [fit(cut, room) for cut in whole]
        held = [cut for cut in cuts if cut is not None]
        found = _score_ids(scorer, held, rule, with_best)
        answers: list[Answer | None] = []
        for cut, full in zip(cuts, whole, strict=True):
            if cut is None:
                answers.append(None)
                continue
            log_probs, is_best = next(found)
            num = cut.stop - cut.start
            count = None if rule in LEFT_TO_RIGHT else num
            is_cut = len(cut.ids) < len(full.ids)
            answers.append(Answer(log_probs[:count], is_best[:num], is_cut))
        return answers

    return score


def _score_ids(scorer: TextScorer, cuts: list[Cut], rule: str, with_best: bool):
    """log p of each token from a text's start on, and whether it is the likeliest."""
    texts, starts = [cut.ids for cut in cuts], [cut.start for cut in cuts]
    found = scorer.score(texts, starts, (rule,), with_best=with_best)
    best = found.get("best", found[rule])
    return iter(zip(found[rule], best, strict=True))


def hide_rest(scorer: TextScorer) -> TextScorer:
    """The scorer with all that follows a masked token masked, in each rule of words.

    As if no token began a word: what is left for the text's end is a prediction of its
    first token that does not see its others.
    """
    size = scorer.network.spec.vocab_size
    form = dataclasses.replace(scorer.form, is_word_start=np.zeros(size, bool))
    return scorer.with_form(form)
