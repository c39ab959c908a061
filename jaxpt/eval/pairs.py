"""Minimal pairs: which of two texts a network finds likelier, the good or the bad one.

    good   Who should Derek hug after shocking Richard?
    bad    Who should Derek hug Richard after shocking?

BLiMP (Warstadt et al. 2020) has 67 paradigms of 1,000 pairs, named by their UID; the
BabyLM challenge has a part of them and a supplement of five files. A score is the sum
over a text's tokens. Where both are equal the pair counts one half: the constant answer
then has 0.5. (BLiMP's own script counts a tie as wrong, lm-eval and BabyLM as right.)
BLiMP holds seven pairs of two identical texts.
"""

import csv
import gzip
import io
import json
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jaxpt.errors import UserError
from jaxpt.eval.scoring import TextScorer

DRAWS, SEED, LEVEL = 2000, 0, 0.95  # of the bootstrap
METHOD = "bootstrap over the pairs of each paradigm"
FIELDS = (("sentence_good", "sentence_bad"), ("good", "bad"))
ENDINGS = (".jsonl", ".tsv", ".csv")
OPENERS: dict[str, Callable] = {".xz": lzma.decompress, ".gz": gzip.decompress}


class Pair(NamedTuple):
    """Two texts, and the groups that they belong to; "" is none."""

    good: str
    bad: str
    paradigm: str
    phenomenon: str = ""
    field: str = ""


def read_pairs(path: str) -> list[Pair]:
    """The pairs of a file, or of all files of a folder or an archive.

    JSON lines, or tables with a header (.tsv, .csv), each also as .xz or .gz; archives
    are .tar, .tar.xz and the like, of which a path may name a folder:
    `zeroshot.tar.xz/blimp_filtered`. The texts are the fields `sentence_good` and
    `sentence_bad`, or `good` and `bad`; a paradigm is named by `UID`, else by its file.

    Raises:
      UserError: there is no such file, no pair in it, or one lacks a text.
    """
    found = []
    for name, data in _read_files(path):
        found += _parse(name, data)
    if not found:
        raise UserError(f"{path}: holds no pair of texts")
    return found


def _read_files(path: str) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each file of pairs, in the order of their names."""
    place = Path(path)
    try:
        if place.is_dir():
            for each in sorted(place.rglob("*")):
                if each.is_file() and _ending(each.name):
                    yield str(each), each.read_bytes()
            return
        archive = next((p for p in (place, *place.parents) if p.is_file()), None)
        if archive is None:
            raise UserError(f"{path}: there is no such file or folder")
        if ".tar" in archive.suffixes or archive.suffix == ".tgz":
            yield from _read_archive(archive, place.relative_to(archive).as_posix())
            return
        if archive != place:
            raise UserError(f"{path}: {archive} is no archive")
        if not _ending(place.name):
            allowed = ", ".join(ENDINGS)
            raise UserError(f"{path}: must be {allowed}, a folder or an archive")
        yield path, place.read_bytes()
    except (OSError, tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None


def _read_archive(archive: Path, folder: str) -> Iterator[tuple[str, bytes]]:
    """The members below a folder of an archive; "." is all of them."""
    with tarfile.open(archive) as members:
        for member in sorted(members.getmembers(), key=lambda each: each.name):
            inside = f"{member.name.removeprefix('./')}/".startswith(f"{folder}/")
            if member.isfile() and _ending(member.name) and (inside or folder == "."):
                held = members.extractfile(member)
                assert held is not None
                yield f"{archive}/{member.name}", held.read()


def _ending(name: str) -> str:
    """Which of `ENDINGS` a name has, compressed or not; "" for another."""
    parts = Path(name).suffixes
    if parts and parts[-1] in OPENERS:
        parts = parts[:-1]
    return parts[-1] if parts and parts[-1] in ENDINGS else ""


def _parse(name: str, data: bytes) -> list[Pair]:
    """The pairs of one file."""
    stem, ending = Path(name).name.split(".")[0], _ending(name)
    try:
        if opener := OPENERS.get(Path(name).suffix):
            data = opener(data)
    except (OSError, lzma.LZMAError, EOFError, zlib.error) as error:
        raise UserError(f"{name}: cannot be read: {error}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"{name}: must be UTF-8 text") from None
    if ending == ".jsonl":
        lines = ((i, line) for i, line in enumerate(text.splitlines(), 1))
        rows = [(i, _load(line, f"{name}:{i}")) for i, line in lines if line.strip()]
    else:
        # Between tabs a quotation mark is a character, as in `jaxpt finetune`'s tables.
        is_tabbed = ending == ".tsv"
        table = csv.DictReader(
            io.StringIO(text, newline=""),
            delimiter="\t" if is_tabbed else ",",
            quoting=csv.QUOTE_NONE if is_tabbed else csv.QUOTE_MINIMAL,
        )
        rows = [(i, dict(row)) for i, row in enumerate(table, 2)]
    return [_make_pair(row, stem, f"{name}:{i}") for i, row in rows]


def _load(line: str, where: str) -> dict:
    try:
        row = json.loads(line)
    except ValueError:
        raise UserError(f"{where}: must be JSON") from None
    if not isinstance(row, dict):
        raise UserError(f"{where}: must be an object with fields")
    return row


def _make_pair(row: Mapping, stem: str, where: str) -> Pair:
    names = next((names for names in FIELDS if names[0] in row), FIELDS[0])
    for field in names:
        if not isinstance(row.get(field), str) or not row[field].strip():
            held = ", ".join(str(each) for each in row)
            raise UserError(
                f"{where}: {field} must be a text; the fields are {held} (a path may "
                f"name one file, or a folder of an archive)"
            )
    # Two spellings of one field occur in BLiMP.
    field = str(row.get("field") or "").replace("/", "_")
    return Pair(
        row[names[0]],
        row[names[1]],
        str(row.get("UID") or stem),
        str(row.get("linguistics_term") or ""),
        field,
    )


class Judged(NamedTuple):
    """What came of pairs by one rule.

    Attributes:
      figures: by name (value, low, high) of a 95 % interval.
      groups: by kind of group and its name, accuracy, low, high, ties and pairs.
      num_ties: pairs whose two scores are equal.
    """

    figures: dict[str, tuple[float, float, float]]
    groups: dict[str, dict[str, dict[str, float]]]
    num_ties: int


def score_pairs(
    scorer: TextScorer,
    encode: Callable[[str], np.ndarray],
    pairs: Sequence[Pair],
    rules: Sequence[str],
) -> tuple[dict[str, Float[np.ndarray, "N 2"]], Float[np.ndarray, "N 2"]]:
    """Of each pair the scores of the good and the bad text, by rule; and their lengths.

    Both texts of a pair are scored under the same draws, where a rule draws.

    Raises:
      UserError: a text has no token, or is longer than the model reads.
    """
    texts = [encode(text) for pair in pairs for text in (pair.good, pair.bad)]
    for i, text in enumerate(texts):
        if not len(text):
            shown = pairs[i // 2][i % 2]
            raise UserError(f"{shown!r}: has no token of the run's tokenizer")
    seeds = [i // 2 for i in range(len(texts))]
    found = scorer.score(texts, None, rules, seeds)
    sums = {
        rule: np.array([each.sum(dtype=np.float64) for each in scores]).reshape(-1, 2)
        for rule, scores in found.items()
    }
    lengths = np.array([len(text) for text in texts], np.float64).reshape(-1, 2)
    return sums, lengths


def find_hits(scores: Float[np.ndarray, "N 2"]) -> Float[np.ndarray, "N"]:
    """1 where the good text's score is the larger one, 0.5 where they are equal.

    >>> find_hits(np.array([[-1.0, -2.0], [-2.0, -1.0], [-1.0, -1.0]])).tolist()
    [1.0, 0.0, 0.5]
    """
    good, bad = scores[:, 0], scores[:, 1]
    return (good > bad) + 0.5 * (good == bad)


def judge(pairs: Sequence[Pair], scores: Float[np.ndarray, "N 2"]) -> Judged:
    """How often the good text has the better score, overall and by group.

    Figures: accuracy, the mean of the paradigms' accuracies (BLiMP's and BabyLM's);
    accuracy_of_pairs, that of all pairs.

    Raises:
      UserError: a score is not a number.
    """
    if not np.isfinite(scores).all():
        num = int((~np.isfinite(scores)).any(1).sum())
        raise UserError(
            f"{num} pairs have a score that is not finite: the run diverged"
        )
    hits = find_hits(scores)
    names, codes = _number(pair.paradigm for pair in pairs)
    of_each = [hits[codes == code] for code in range(len(names))]
    rng = np.random.default_rng(SEED)
    draws = np.stack([_draw_means(own, rng) for own in of_each])
    sizes = np.array([len(own) for own in of_each], np.float64)
    means = np.array([own.mean() for own in of_each])
    figures = {
        "accuracy": (float(means.mean()), *_ends(draws.mean(0))),
        "accuracy_of_pairs": (float(hits.mean()), *_ends(sizes @ draws / sizes.sum())),
    }
    groups = {}
    for kind in ("field", "phenomenon", "paradigm"):
        labels, label_codes = _number(getattr(pair, kind) for pair in pairs)
        found = {}
        for code, label in enumerate(labels):
            is_own = label_codes == code
            # As overall: a group's accuracy is the mean of its paradigms'.
            own = np.unique(codes[is_own])
            low, high = _ends(draws[own].mean(0))
            found[label] = {
                "accuracy": float(means[own].mean()),
                "low": low,
                "high": high,
                "ties": float((hits[is_own] == 0.5).sum()),
                "pairs": float(is_own.sum()),
            }
        found.pop("", None)
        if found:
            groups[kind] = found
    return Judged(figures, groups, int((hits == 0.5).sum()))


def _number(labels: Iterable[str]) -> tuple[list[str], Int[np.ndarray, "N"]]:
    """The kinds of labels, sorted, and which of them each is."""
    listed = list(labels)
    names = sorted(set(listed))
    index = {name: i for i, name in enumerate(names)}
    return names, np.array([index[label] for label in listed])


def weigh_hits(
    pairs: Sequence[Pair], scores: Float[np.ndarray, "N 2"]
) -> tuple[Float[np.ndarray, "N"], Float[np.ndarray, "N"]]:
    """Each pair's hit and its weight, by which their mean is the mean of paradigms.

    >>> found = [Pair("", "", name) for name in "aab"]
    >>> hits, weights = weigh_hits(found, np.array([[1.0, 0], [0, 1], [1, 0]]))
    >>> float((hits * weights).sum() / weights.sum())
    0.75
    """
    paradigms = np.array([pair.paradigm for pair in pairs])
    _, index, counts = np.unique(paradigms, return_inverse=True, return_counts=True)
    return find_hits(scores), 1.0 / counts[index]


def _draw_means(hits: Float[np.ndarray, "N"], rng) -> Float[np.ndarray, "S"]:
    """Means of as many pairs drawn with replacement; a multinomial of three counts."""
    shares = np.array([(hits == value).mean() for value in (1.0, 0.5, 0.0)])
    counts = rng.multinomial(len(hits), shares, size=DRAWS)
    return counts @ np.array([1.0, 0.5, 0.0]) / len(hits)


def _ends(draws: Float[np.ndarray, "S"]) -> tuple[float, float]:
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return low, high
