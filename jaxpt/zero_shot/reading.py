"""Reading times: how much better surprisal predicts them than frequency and length.

    time ~ frequency + length + position + their products               R2 of baseline
    time ~ frequency + length + position + their products + surprisal   R2 of model
    score = 100 (R2 of model - R2 of baseline) / (1 - R2 of baseline)

The regressions are those of babylm/evaluation-pipeline-2025
(evaluation_pipeline/reading/run.py) on the data of de Varda et al. 2023:

- `eye_tracking`: the mean over four fixation times (RTfirstfix, RTfirstpass, RTgopast,
  RTrightbound) of the score above.
- `self_paced_reading`: the score for self_paced_reading_time with spillover: the
  baseline also has length and surprisal of the previous word and their products.

Surprisal is in nats, summed over the tokens of a word. A network that reads to the left
scores each token given those before it. A masked network reads three masks in place of
the token and of all that follows (Samuel 2024), an encoder-decoder one gap. The other
networks score the word at the end of the text.

The word follows its context after a space. The pipeline encodes both separately and
without a space: with a tokenizer that does not add one itself, it scores a token that
continues a word. The figures `eye_tracking_pipeline` and `self_paced_reading_pipeline`
are those of these ids, if they differ.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jaxpt.errors import DataError
from jaxpt.judge.bootstrap import Interval, draw_counts, percentile_interval
from jaxpt.text.labelled.tables import TableSpec, read_table
from jaxpt.zero_shot.continuations import hide_rest
from jaxpt.zero_shot.outcomes import EvalContext, Outcome, ZeroShotTask, make_figures
from jaxpt.zero_shot.pairs import check_finite
from jaxpt.zero_shot.scoring import TextScorer

EYE = ("RTfirstfix", "RTfirstpass", "RTgopast", "RTrightbound")
SELF_PACED = "self_paced_reading_time"
NUMBERS = ("Subtlex_log10", "length", "context_length")
SPILLOVER = ("prev_length",)
TEXTS = ("item", "word", "prev_item", "prev_word")
NUM_MASKS = 3
# The rule that hides all tokens from one on, for rules that mask one token.
HIDING = {
    "pll": "pll_word_l2r",
    "pll_word_l2r": "pll_word_l2r",
    "mntp": "mntp_word_l2r",
    "mntp_word_l2r": "mntp_word_l2r",
}
MISSING = ("", "NA", "NaN", "nan")
NO_CONTEXT = "None"  # the pipeline's text before a first word


class WordReading(NamedTuple):
    """A word that was read.

    Attributes:
      context, word: the text before it, and the word.
      prev_context, prev_word: those of the word before; "" if there is none.
      sentence: the words of one sentence are resampled together.
      numbers: by column, frequency, lengths and times; NaN if missing.
    """

    context: str
    word: str
    prev_context: str
    prev_word: str
    sentence: str
    numbers: dict[str, float]


def read_readings(path: str) -> list[WordReading]:
    """The words of the pipeline's reading_data.csv."""
    spec = TableSpec(path)
    names = (*TEXTS, *NUMBERS, *SPILLOVER, *EYE, SELF_PACED)
    table = read_table(spec, ())
    if missing := [name for name in names if name not in table.columns]:
        raise DataError(f"{path}: has no column {missing[0]}; must have {list(names)}")
    sentences = table.columns.get("sentence", [""] * len(table))
    readings = []
    for i in range(len(table)):
        numbers = {}
        for name in names[len(TEXTS) :]:
            text = str(table.columns[name][i] or "").strip()
            try:
                numbers[name] = np.nan if text in MISSING else float(text)
            except ValueError:
                raise DataError(
                    f"{table.where(i)}: {name}={text!r:.40}: must be a number"
                ) from None
        texts = [_clean(table.columns[name][i]) for name in TEXTS]
        if not texts[1]:
            raise DataError(f"{table.where(i)}: word must be a text")
        sentence = str(sentences[i] or f"row {i}")
        context, word, prev_context, prev_word = texts
        readings.append(
            WordReading(context, word, prev_context, prev_word, sentence, numbers)
        )
    return readings


def _clean(value: object) -> str:
    text = "" if value is None else str(value).strip()
    return "" if text in MISSING else text


def evaluate_readings(
    eval_context: EvalContext, items: Sequence[WordReading], rules: Sequence[str]
) -> dict[str, Outcome]:
    """The scores by each rule."""
    encode = eval_context.encode
    places = [(item.context, item.word) for item in items]
    places += [(item.prev_context, item.prev_word) for item in items]
    spaced = [_join(encode, context, word) for context, word in places]
    apart = [_join_apart(encode, context, word) for context, word in places]
    outcomes = {}
    for rule in rules:
        surprisals = {"": find_surprisals(eval_context.scorer, rule, spaced)}
        differs = any(
            a is not None and not np.array_equal(a[0], b[0])
            for a, b in zip(spaced, apart, strict=True)
            if b is not None
        )
        if differs:
            values = find_surprisals(eval_context.scorer, rule, apart)
            surprisals["_pipeline"] = values
        figures, notes = {}, []
        columns: dict[str, np.ndarray] = {}
        for suffix, values in surprisals.items():
            now, before = values[: len(items)], values[len(items) :]
            # The first word of a text has no score in some networks.
            check_finite(values[~np.isnan(values)], "words")
            for name, each in judge_readings(items, now, before).items():
                figures[f"{name}{suffix}"] = each
            columns |= {f"surprisal{suffix}": now, f"previous{suffix}": before}
        if differs:
            notes.append(
                "The figures of the pipeline are for words without a space before them."
            )
        outcomes[rule] = Outcome(make_figures(figures), {}, {}, columns, notes)
    return outcomes


Place = tuple[Int[np.ndarray, "T"], int]  # the ids, and where the word begins


def _join(encode: Callable, context: str, word: str) -> Place | None:
    """The ids of a word after its context; None without a word."""
    if not word:
        return None
    if not context:
        return encode(word), 0
    ids, start = encode(f"{context} {word}"), len(encode(context))
    return ids, min(start, len(ids) - 1)


def _join_apart(encode: Callable, context: str, word: str) -> Place | None:
    """The same as the pipeline encodes them."""
    if not word or not context:
        return None if not word else _join_apart(encode, NO_CONTEXT, word)
    before = encode(context)
    return np.concatenate([before, encode(word)]), len(before)


def find_surprisals(
    scorer: TextScorer, rule: str, places: Sequence[Place | None]
) -> Float[np.ndarray, "N"]:
    """The surprisal of each word in nats; NaN for None and words without a score."""
    masked, texts, starts, owners = rule in HIDING, [], [], []
    if masked:
        scorer, rule = hide_rest(scorer), HIDING[rule]
    room = scorer.room(rule)
    has_first = scorer.is_first_scored(rule)
    sums = np.zeros(len(places))
    for i, place in enumerate(places):
        if place is None or not (place[1] or has_first):
            sums[i] = np.nan
            continue
        ids, start = place
        one_by_one = masked or rule == "infill"
        for stop in range(start + 1, len(ids) + 1) if one_by_one else (len(ids),):
            text, first = ids[:stop], stop - 1 if one_by_one else start
            if masked:  # their ids are not read, as all from `first` on are masked
                text = np.concatenate([text, [text[-1]] * (NUM_MASKS - 1)])
            cut = max(0, len(text) - room) if room else 0
            texts.append(text[min(cut, first) :])
            starts.append(first - min(cut, first))
            owners.append(i)
    if texts:
        scores = scorer.score(texts, starts, (rule,))[rule]
        for i, values in zip(owners, scores, strict=True):
            sums[i] -= values[:1].sum() if masked else values.sum(dtype=np.float64)
    return sums


def judge_readings(
    items: Sequence[WordReading],
    surprisals: Float[np.ndarray, "N"],
    previous: Float[np.ndarray, "N"],
) -> dict[str, tuple[float, Interval]]:
    """The two scores with their intervals."""
    columns = {
        name: np.array([item.numbers[name] for item in items])
        for name in (*NUMBERS, *SPILLOVER, *EYE, SELF_PACED)
    }
    columns["previous"] = previous
    names = list(dict.fromkeys(item.sentence for item in items))
    codes = {name: code for code, name in enumerate(names)}
    groups = np.array([codes[item.sentence] for item in items])
    num = len(names)
    weights = np.concatenate([np.ones((1, num)), draw_counts(num, [1 / num] * num)])
    of_eye = [
        explain(columns, NUMBERS, time, surprisals, groups, weights) for time in EYE
    ]
    spilled = (*NUMBERS, *SPILLOVER, "previous")
    of_self = explain(columns, spilled, SELF_PACED, surprisals, groups, weights)
    values = {"eye_tracking": np.mean(of_eye, 0), "self_paced_reading": of_self}
    return {
        name: (float(x[0]), percentile_interval(x[1:], num, "sentences"))
        for name, x in values.items()
    }


def explain(
    columns: dict[str, Float[np.ndarray, "N"]],
    predictors: Sequence[str],
    time: str,
    surprisals: Float[np.ndarray, "N"],
    groups: Int[np.ndarray, "N"],
    weights: Float[np.ndarray, "S G"],
) -> Float[np.ndarray, "S"]:
    """100 times the share of the unexplained variance that surprisal explains.

    Words with a missing value are left out of both regressions.

    Args:
      predictors: columns, which the baseline has with all their products of two.
      groups, weights: the group of each word, and how often a draw has each group.
    """
    used = [columns[name] for name in (*predictors, time)] + [surprisals]
    is_whole = np.isfinite(used).all(0)
    x = np.stack([columns[name][is_whole] for name in predictors], 1)
    y, s = columns[time][is_whole], surprisals[is_whole]
    num = x.shape[1]
    if len(y) <= 2 + num + num * (num - 1) // 2:
        raise DataError(
            f"{time}: {len(y)} words have all values, which are too few for a "
            f"regression on {', '.join(predictors)}"
        )
    products = [x[:, i] * x[:, j] for i in range(num) for j in range(i + 1, num)]
    terms = np.column_stack([x, *products, s, y])
    terms = (terms - terms.mean(0)) / np.maximum(terms.std(0), 1e-12)
    terms = np.column_stack([np.ones(len(y)), terms])
    # Sums of products by group: a draw of groups is a weighted sum of them.
    grams = np.zeros((weights.shape[1], terms.shape[1], terms.shape[1]))
    np.add.at(grams, groups[is_whole], terms[:, :, None] * terms[:, None, :])
    residuals = [_residual(gram) for gram in np.tensordot(weights, grams, 1)]
    base, model = np.transpose(residuals)
    return 100 * (base - model) / base


def _residual(gram: Float[np.ndarray, "K K"]) -> tuple[float, float]:
    """Sums of squares of the last column that the others leave, without and with the
    one before it."""
    size = len(gram) - 1
    rests = []
    for num in (size - 1, size):
        coefficients = np.linalg.lstsq(gram[:num, :num], gram[:num, size], rcond=None)[
            0
        ]
        rests.append(gram[size, size] - gram[:num, size] @ coefficients)
    return float(rests[0]), float(rests[1])


def make_tasks() -> dict[str, ZeroShotTask]:
    """The task of this module by name."""
    return {"reading": ZeroShotTask(read_readings, evaluate_readings)}
