"""The distribution of a token given those before it, by the scoring rules of a network.

    causal, forward                read at the token before; one pass for all positions
    suffix                         the decoder continues the text before it
    prefix                         the text before it is the prefix
    pll_word_l2r, mntp_word_l2r    the token and all after it are masked

The rows are those that score the token itself (`score_rows`); here every id of the
vocabulary is its target.
"""

import dataclasses
from collections.abc import Collection

import numpy as np
from jaxtyping import Float, Int

from jaxpt.text_form import TextForm
from jaxpt.zero_shot.score_rows import RULES, ScoredRows, ScoredText
from jaxpt.zero_shot.scoring import ROW_NAMES, RowBatches, TextScorer

# The rules that give such a distribution, the best first, and how each reads a text.
LEFT_RULES = {
    "causal": "at the token before it",
    "forward": "at the token before it, by the forward direction",
    "prefix": "after a prefix of all tokens before it",
    "suffix": "by the decoder; the encoder reads all tokens before it",
    "pll_word_l2r": "with it and all tokens after it masked",
    "mntp_word_l2r": "with it and all tokens after it masked, one position before",
}
ONE_PASS = frozenset({"causal", "forward"})  # which read all positions at once


def find_left_rule(rules: Collection[str]) -> str:
    """The first of `LEFT_RULES` among the rules of a network; "" if none is."""
    return next((rule for rule in LEFT_RULES if rule in rules), "")


def count_places(form: TextForm, rule: str, length: int) -> int:
    """Positions of the longest stack where the last token of a text is read.

    Args:
      rule: one of `LEFT_RULES`.
      length: of the text, without special tokens.

    >>> form = TextForm(after=(1,), gap=(2,), start=0)
    >>> [count_places(form, rule, 8) for rule in ("causal", "suffix", "pll_word_l2r")]
    [7, 8, 9]
    """
    text = ScoredText(np.zeros(length, np.int32), length - 1, form, (rule,), 0)
    return max(
        each.arrays[name].shape[1]
        for each in RULES[rule][0](text)
        for name in ROW_NAMES
        if name in each.arrays
    )


def read_left_to_right(
    scorer: TextScorer,
    texts: Int[np.ndarray, "N T"],
    positions: Int[np.ndarray, "N P"],
    rule: str,
) -> Float[np.ndarray, "N P V"]:
    """log p of every id at positions of texts, given the tokens before each.

    Args:
      texts: without special tokens.
      positions: above 0.
      rule: one of `LEFT_RULES`.
    """
    size, rows, offset = scorer.network.spec.vocab_size, [], 0
    for text, places in zip(texts, positions, strict=True):
        if rule in ONE_PASS:
            (scored,) = RULES[rule][0](ScoredText(text, 0, scorer.form, (rule,), 0))
            columns = (scored.places[0] == places[:, None]).argmax(1)
            asked = [_ask_all_ids(scored, columns, size)]
        else:
            asked = [_ask_place(scorer, text, i, rule, size) for i in places.tolist()]
        for each in asked:
            rows.append((each, offset))
            offset += each.places.shape[1]
    return _sum_rows(scorer, rows, rule, offset).reshape(*positions.shape, size)


def _sum_rows(
    scorer: TextScorer, rows: list[tuple[ScoredRows, int]], rule: str, size: int
) -> Float[np.ndarray, "size"]:
    """The scores of rows by place, float64; all rows are padded to one shape.

    Args:
      rows: with the offset of their places in the result.
      size: of the result.
    """
    sums = {rule: np.zeros(size + 1)}
    least = {
        name: max(each.arrays[name].shape[1] for each, _ in rows)
        for name in ROW_NAMES
        if rows and name in rows[0][0].arrays
    }
    run = RowBatches(scorer, sums, least=least)
    for each, offset in rows:
        scorer.check(each, each.arrays["inputs"].shape[1], rule)
        run.add(each, offset)
    run.finish()
    return sums[rule][:-1]


def _ask_place(
    scorer: TextScorer, text: Int[np.ndarray, "T"], place: int, rule: str, size: int
) -> ScoredRows:
    """The row from which one position is read."""
    asked = ScoredText(text, place, scorer.form, (rule,), 0)
    if rule.endswith("word_l2r"):  # the whole text is one word
        form = dataclasses.replace(scorer.form, is_word_start=np.zeros(size, bool))
        asked = asked._replace(form=form)
    else:
        asked = asked._replace(tokens=text[: place + 1])
    for rows in RULES[rule][0](asked):
        index = np.flatnonzero((rows.places == place).any(1))
        if len(index):
            return _ask_all_ids(rows.pick(slice(index[0], index[0] + 1)), [0], size)
    raise ValueError(f"the rule {rule} does not score position {place}")


def _ask_all_ids(rows: ScoredRows, columns: Collection[int], size: int) -> ScoredRows:
    """One row of which every id is a target at each of its positions `columns`."""
    positions = rows.arrays["positions"][:, list(columns)]
    places = np.arange(positions.shape[1] * size)[None]
    arrays = rows.arrays | {
        "positions": np.repeat(positions, size, axis=1),
        "targets": (places % size).astype(np.int32),
    }
    return rows._replace(arrays=arrays, places=places, weights=np.ones(places.shape))
