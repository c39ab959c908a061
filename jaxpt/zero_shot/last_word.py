"""LAMBADA: prediction of the last word of a passage, which needs a long context.

    ... I can make it there on my own,   context
     Shane                               target, with the space before it

Two conventions are reported, which differ by about 13 points for GPT-2 small:

    accuracy, perplexity               of the whole word, as in EleutherAI's harness
                                       (lm_eval/tasks/lambada): correct if each of its
                                       tokens is the likeliest; the perplexity is per
                                       word, exp of minus the mean log p of passages
    last_token_accuracy, ..._perplexity   of the last token alone, given the others
                                       (as in the GPT-2 paper)

The target is the text after the last space; it contains a line end in seven of the
5,153 passages. Paperno et al. 2016; the text is OpenAI's detokenised form.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxpt.errors import DataError, UserError
from jaxpt.judge.bootstrap import Interval
from jaxpt.judge.intervals import map_interval, mean_interval
from jaxpt.text.labelled.tables import TableSpec, read_table
from jaxpt.zero_shot.continuations import ContinuationScores, Score, SplitText


class Passage(NamedTuple):
    """A passage without its last word, and this word with its space."""

    context: str
    target: str


def split_passage(text: str) -> Passage:
    """Splits a passage before its last space.

    >>> split_passage("to the\\nend\\n\\nShane")
    Passage(context='to', target=' the\\nend\\n\\nShane')
    """
    context, space, word = text.rpartition(" ")
    if not space or not word.strip() or not context.strip():
        raise DataError(f"{text[-20:]!r}: must end with a word after a space")
    return Passage(context, space + word)


def read_passages(path: str) -> list[Passage]:
    """The passages of a table with the column "text", such as LAMBADA's JSONL."""
    table, passages = read_table(TableSpec(path), ("text",)), []
    for i, text in enumerate(table.texts("text")):
        try:
            passages.append(split_passage(text))
        except UserError as error:
            raise DataError(f"{table.where(i)}: text: {error}") from None
    return passages


class LastWordResults(NamedTuple):
    """The results on last words.

    Attributes:
      figures: metrics with their intervals.
      trivial: the values of the same metrics without context.
      words: for each evaluated passage, 1 if its word is correct.
      evaluated: the indices of the evaluated passages.
      num_cut: the number of truncated passages.
    """

    figures: dict[str, tuple[float, Interval]]
    trivial: dict[str, float]
    words: np.ndarray
    evaluated: list[int]
    num_cut: int


def evaluate(
    passages: Sequence[Passage], score: Score, has_empty: bool
) -> LastWordResults:
    """Evaluates the last words of all passages.

    Args:
      score: must determine the likeliest tokens.
      has_empty: whether a text can be scored without context.
    """
    scores = score([SplitText(passage.context, passage.target) for passage in passages])
    evaluated = [i for i, answer in enumerate(scores) if answer is not None]
    answers = [answer for answer in scores if answer is not None]
    if not answers:
        raise DataError("no last word fits the model's window (model.max_len)")
    trivial = {}
    if has_empty:
        empty = score([SplitText("", passages[i].target) for i in evaluated])
        alone = judge([answer for answer in empty if answer is not None])
        trivial = {f"{name}_empty": value for name, (value, _) in alone.items()}
    words = np.array([float(answer.is_best.all()) for answer in answers])
    num_cut = sum(answer.is_cut for answer in answers)
    return LastWordResults(judge(answers), trivial, words, evaluated, num_cut)


def judge(answers: Sequence[ContinuationScores]) -> dict[str, tuple[float, Interval]]:
    """The metrics of the answers, with their intervals."""
    sums = np.array([answer.total for answer in answers])
    last = np.array([float(a.log_probs[-1]) for a in answers])
    words = np.array([float(a.is_best.all()) for a in answers])
    tokens = np.array([float(a.is_best[-1]) for a in answers])

    def perplexity(values: np.ndarray) -> tuple[float, Interval]:
        interval = map_interval(mean_interval(values), _invert)
        return _invert(float(values.mean())), interval

    return {
        "accuracy": (float(words.mean()), mean_interval(words)),
        "perplexity": perplexity(sums),
        "last_token_accuracy": (float(tokens.mean()), mean_interval(tokens)),
        "last_token_perplexity": perplexity(last),
    }


def _invert(log_prob: float) -> float:
    """exp(-x), infinite on overflow."""
    with np.errstate(over="ignore"):
        return float(np.exp(-np.float64(log_prob)))
