"""Minimal pairs: whether the acceptable text is likelier than the unacceptable one.

    good   Who should Derek hug after shocking Richard?
    bad    Who should Derek hug Richard after shocking?

BLiMP (Warstadt et al. 2020) has 67 paradigms of 1,000 pairs, named by their UID; the
BabyLM challenge has a part of them and a supplement of five files. The score of a text
is the sum over its tokens. A tie counts one half, so that constant scores have 0.5.
(BLiMP's script counts a tie as wrong, lm-eval and BabyLM as correct.) BLiMP contains
seven pairs of identical texts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Float, Int

from jaxpt.errors import DataError
from jaxpt.judge.bootstrap import SEED, Interval, draw_counts, find_ends
from jaxpt.judge.intervals import mean_interval
from jaxpt.text.sources.places import TARS
from jaxpt.text.sources.reading import Reading, find_kind
from jaxpt.text.sources.records import read_records
from jaxpt.zero_shot.scoring import TextScorer

METHOD = "bootstrap over the pairs of each paradigm"
FIELDS = (("sentence_good", "sentence_bad"), ("good", "bad"))


class TextPair(NamedTuple):
    """Two texts and their groups; "" for none."""

    good: str
    bad: str
    paradigm: str
    phenomenon: str = ""
    field: str = ""


class Grouped(Protocol):
    """An item of a paradigm; "" for no phenomenon or field."""

    @property
    def paradigm(self) -> str:
        """The name of its paradigm."""
        ...

    @property
    def phenomenon(self) -> str:
        """A group of paradigms."""
        ...

    @property
    def field(self) -> str:
        """A group of phenomena."""
        ...


def read_pairs(path: str) -> list[TextPair]:
    """The pairs of a file, a glob, a folder, an archive, or a data set.

    JSON lines, Parquet, or tables with a header (.tsv, .csv), compressed or not;
    archives are .tar, .tar.xz and the like. A path may name a folder within an archive,
    `zeroshot.tar.xz/blimp_filtered`, or a data set, `hf:nyu-mll/blimp:adjunct_island`.
    The texts are the fields `sentence_good` and `sentence_bad`, or `good` and `bad`; a
    paradigm is named by `UID`, else by its file.
    """
    return [_make_pair(*each) for each in read_rows(path, "pair of texts")]


def read_rows(path: str, kind: str) -> list[tuple[Mapping, str, str]]:
    """The rows of a file, folder, archive or data set (`read_pairs`).

    Args:
      kind: of item, for the error.

    Returns:
      for each row its fields, the name of its file without suffixes, and its location.
    """
    how = Reading(nothing=f"holds no {kind}", find_kind=_find_kind, suffixes=_SUFFIXES)
    return [
        (record.fields, Path(record.name).name.split(".")[0], record.where)
        for record in read_records(path, how)
    ]


# Of the files of a folder or archive; a single file may be .json, too.
_SUFFIXES = (".jsonl", ".tsv", ".csv", ".ndjson", ".parquet")


def _find_kind(name: str) -> str:
    kind = find_kind(name)
    if not kind:
        raise DataError(
            f"{name}: files must be {', '.join(_SUFFIXES)}, compressed or not; or a "
            f"folder, or an archive {TARS}"
        )
    return kind


def _make_pair(row: Mapping, stem: str, where: str) -> TextPair:
    names = next((names for names in FIELDS if names[0] in row), FIELDS[0])
    for field in names:
        if not isinstance(row.get(field), str) or not row[field].strip():
            fields = ", ".join(str(each) for each in row)
            raise DataError(
                f"{where}: {field} must be a text; the fields are {fields} (a path may "
                f"name one file, or a folder of an archive)"
            )
    # BLiMP has two spellings of one field.
    field = str(row.get("field") or "").replace("/", "_")
    return TextPair(
        row[names[0]],
        row[names[1]],
        str(row.get("UID") or stem),
        str(row.get("linguistics_term") or ""),
        field,
    )


class Judged(NamedTuple):
    """The accuracies of pairs scored by one rule.

    Attributes:
      figures: by name, a value and its 95 % interval.
      groups: by kind of group and its name, accuracy, low, high, ties and pairs; low
        and high are NaN for a group of one pair.
      num_ties: pairs with two equal scores.
    """

    figures: dict[str, tuple[float, Interval]]
    groups: dict[str, dict[str, dict[str, float]]]
    num_ties: int


def score_pairs(
    scorer: TextScorer,
    encode: Callable[[str], np.ndarray],
    pairs: Sequence[TextPair],
    rules: Sequence[str],
) -> tuple[dict[str, Float[np.ndarray, "N 2"]], Float[np.ndarray, "N 2"]]:
    """The scores of the good and the bad text of each pair by rule, and their lengths.

    Random rules score both texts of a pair with the same draws.
    """
    texts = [encode(text) for pair in pairs for text in (pair.good, pair.bad)]
    for i, text in enumerate(texts):
        if not len(text):
            empty_text = pairs[i // 2][i % 2]
            raise DataError(f"{empty_text!r}: has no token of the run's tokenizer")
    seeds = [i // 2 for i in range(len(texts))]
    by_rule = scorer.score(texts, None, rules, seeds)
    sums = {
        rule: np.array([each.sum(dtype=np.float64) for each in scores]).reshape(-1, 2)
        for rule, scores in by_rule.items()
    }
    lengths = np.array([len(text) for text in texts], np.float64).reshape(-1, 2)
    return sums, lengths


def find_hits(scores: Float[np.ndarray, "N 2"]) -> Float[np.ndarray, "N"]:
    """1 if the good text has the higher score, 0.5 for a tie, else 0.

    >>> find_hits(np.array([[-1.0, -2.0], [-2.0, -1.0], [-1.0, -1.0]])).tolist()
    [1.0, 0.0, 0.5]
    """
    good, bad = scores[:, 0], scores[:, 1]
    return (good > bad) + 0.5 * (good == bad)


def judge(pairs: Sequence[TextPair], scores: Float[np.ndarray, "N 2"]) -> Judged:
    """The accuracy of pairs, overall and by group (`judge_hits`)."""
    check_finite(scores, "pairs")
    return judge_hits(pairs, find_hits(scores))


def check_finite(scores: Float[np.ndarray, "N *k"], kind: str) -> None:
    """Raises UserError if a score of an item is not finite."""
    if not np.isfinite(scores).all():
        num = int((~np.isfinite(scores)).reshape(len(scores), -1).any(1).sum())
        raise DataError(
            f"{num} {kind} have a score that is not finite: the run diverged"
        )


def judge_hits(items: Sequence[Grouped], hits: Float[np.ndarray, "N"]) -> Judged:
    """The accuracy of items, overall and by group.

    Metrics: accuracy, the mean over paradigms (as in BLiMP and BabyLM);
    accuracy_of_pairs, the mean over items.

    Args:
      hits: the credit of each item, from 0 to 1; a tie of k options counts 1 / k.
    """
    names, codes = _number(item.paradigm for item in items)
    of_each = [hits[codes == code] for code in range(len(names))]
    draws = _draw_paradigms(of_each)
    sizes = np.array([len(paradigm_hits) for paradigm_hits in of_each], np.float64)
    means = np.array([paradigm_hits.mean() for paradigm_hits in of_each])

    def find_interval(paradigms: np.ndarray, weights: np.ndarray) -> Interval:
        """The interval of a weighted mean of some `paradigms`."""
        if len(paradigms) == 1:
            return mean_interval(of_each[paradigms[0]])
        low, high = find_ends(
            weights[paradigms] @ draws[paradigms] / weights[paradigms].sum()
        )
        return Interval(max(low, 0.0), min(high, 1.0), METHOD)

    all_paradigms, equal = np.arange(len(names)), np.ones(len(names))
    figures = {
        "accuracy": (float(means.mean()), find_interval(all_paradigms, equal)),
        "accuracy_of_pairs": (float(hits.mean()), find_interval(all_paradigms, sizes)),
    }
    groups, is_tie = {}, (hits > 0) & (hits < 1)
    for kind in ("field", "phenomenon", "paradigm"):
        labels, label_codes = _number(getattr(item, kind) for item in items)
        by_label = {}
        for code, label in enumerate(labels):
            is_own = label_codes == code
            # The accuracy of a group is the mean of its paradigms, too.
            group = np.unique(codes[is_own])
            interval = find_interval(group, equal)
            by_label[label] = {
                "accuracy": float(means[group].mean()),
                "low": interval.low,
                "high": interval.high,
                "ties": float(is_tie[is_own].sum()),
                "pairs": float(is_own.sum()),
            }
        by_label.pop("", None)
        if by_label:
            groups[kind] = by_label
    return Judged(figures, groups, int(is_tie.sum()))


def _number(labels: Iterable[str]) -> tuple[list[str], Int[np.ndarray, "N"]]:
    """The distinct labels, sorted, and the index of each label."""
    listed = list(labels)
    names = sorted(set(listed))
    index = {name: i for i, name in enumerate(names)}
    return names, np.array([index[label] for label in listed])


def weigh_hits(
    pairs: Sequence[TextPair], scores: Float[np.ndarray, "N 2"]
) -> tuple[Float[np.ndarray, "N"], Float[np.ndarray, "N"]]:
    """The hit and weight of each pair; their weighted mean is the mean of paradigms.

    >>> pairs = [TextPair("", "", name) for name in "aab"]
    >>> hits, weights = weigh_hits(pairs, np.array([[1.0, 0], [0, 1], [1, 0]]))
    >>> float((hits * weights).sum() / weights.sum())
    0.75
    """
    return find_hits(scores), weigh(pairs)


def weigh(items: Sequence[Grouped]) -> Float[np.ndarray, "N"]:
    """The weight of each item: the inverse of the size of its paradigm."""
    paradigms = np.array([item.paradigm for item in items])
    _, index, counts = np.unique(paradigms, return_inverse=True, return_counts=True)
    return 1.0 / counts[index]


def _draw_paradigms(
    of_each: Sequence[Float[np.ndarray, "N"]],
) -> Float[np.ndarray, "K S"]:
    """Bootstrap means of each paradigm's hits, stratified by paradigm.

    A paradigm of one pair has no variance. As in surveys with strata of one unit, the
    variance of all such pairs is used, or that of all pairs if it is the only one.
    """
    rng = np.random.default_rng(SEED)
    alone = [paradigm_hits for paradigm_hits in of_each if len(paradigm_hits) == 1]
    pool = np.concatenate(alone if len(alone) > 1 else of_each)
    return np.stack(
        [
            _draw_means(paradigm_hits, len(paradigm_hits), rng)
            if len(paradigm_hits) > 1
            else paradigm_hits + _draw_means(pool, 1, rng) - pool.mean()
            for paradigm_hits in of_each
        ]
    )


def _draw_means(
    hits: Float[np.ndarray, "N"], num: int, rng: np.random.Generator
) -> Float[np.ndarray, "S"]:
    """Means of `num` items drawn with replacement, by a multinomial of counts."""
    credits = np.array(sorted({1.0, 0.5, 0.0, *hits.tolist()}, reverse=True))
    shares = np.array([(hits == value).mean() for value in credits])
    return draw_counts(num, shares, rng) @ credits / num
