"""Minimal pairs: files of all forms, ties, means by paradigm, intervals."""

import gzip
import io
import json
import lzma
import tarfile
from pathlib import Path

import numpy as np
import pytest
from shared import find_shared

from jaxpt.eval import pairs, zero_shot
from jaxpt.eval.pairs import Pair, find_hits, judge, read_pairs

ROWS = [
    {"sentence_good": "a b", "sentence_bad": "b a", "UID": "u1", "field": "x/y"},
    {"sentence_good": "c", "sentence_bad": "d", "linguistics_term": "t"},
]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
WANTED = [Pair("a b", "b a", "u1", "", "x_y"), Pair("c", "d", "file", "t", "")]


def write_archive(path, files):
    with tarfile.open(path, "w:xz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def test_pairs_are_read_from_files_folders_and_archives(tmp_path):
    for name, data in (
        ("file.jsonl", LINES),
        ("file.jsonl.xz", lzma.compress(LINES)),
        ("file.jsonl.gz", gzip.compress(LINES)),
    ):
        (tmp_path / name).write_bytes(data)
        assert read_pairs(str(tmp_path / name)) == WANTED
    (tmp_path / "some" / "deep").mkdir(parents=True)
    (tmp_path / "some" / "deep" / "file.jsonl").write_bytes(LINES)
    (tmp_path / "some" / "SOURCE.md").write_text("not a table")
    assert read_pairs(str(tmp_path / "some")) == WANTED
    other = b'{"prompt": "no pair"}\n'
    files = {"b/file.jsonl": LINES, "other/x.jsonl": other, "bb/file.jsonl": LINES}
    write_archive(tmp_path / "all.tar.xz", files)
    assert read_pairs(str(tmp_path / "all.tar.xz" / "b")) == WANTED


@pytest.mark.parametrize(
    "name, text",
    [
        ("file.tsv", '\ufeffgood\tbad\r\nsay "a, b"\tb\r\n'),
        ("file.csv", 'bad,good,note\nb,"say ""a, b""",1\n'),
    ],
)
def test_tables_are_pairs_too(name, text, tmp_path):
    (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    assert read_pairs(str(tmp_path / name)) == [Pair('say "a, b"', "b", "file")]


def test_between_tabs_quotation_marks_are_characters(tmp_path):
    (tmp_path / "a.tsv").write_text('good\tbad\n"a" b\tc\n"so\tb\n')
    assert read_pairs(str(tmp_path / "a.tsv")) == [
        Pair('"a" b', "c", "a"),
        Pair('"so', "b", "a"),
    ]


@pytest.mark.parametrize(
    "name, data, told",
    [
        ("gone", None, ("gone", "no such file")),
        ("a.txt", b"good\tbad\n", ("a.txt: must be .jsonl, .tsv, .csv",)),
        ("a.jsonl", b"", ("holds no pair",)),
        ("a.jsonl", b"\n[1]\n", ("a.jsonl:2", "object")),
        ("a.jsonl", b"{", ("a.jsonl:1: must be JSON",)),
        ("a.jsonl", b"\xff\xfe", ("must be UTF-8",)),
        ("a.jsonl", b'{"good": "a"}', ("a.jsonl:1: bad must be a text", "are good")),
        ("a.jsonl", b'{"good": "a", "bad": " "}', ("bad must be a text",)),
        ("a.jsonl", b'{"x": 1}', ("sentence_good must be a text", "fields are x")),
        ("a.tsv", b"good\tbad\na\n", ("a.tsv:2: bad must be a text",)),
        ("a.jsonl.xz", b"no xz", ("a.jsonl.xz: cannot be read",)),
        ("a.tar.xz", b"no tar", ("a.tar.xz: cannot be read",)),
    ],
)
def test_what_is_no_file_of_pairs_is_one_line(name, data, told, tmp_path, refuses):
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with refuses(*told):
        read_pairs(str(tmp_path / name))


def test_blimp_whole():
    path = find_shared("downstream/blimp/blimp.tar.xz", "67 paradigms of 1,000 pairs")
    found = read_pairs(str(path))
    assert len(found) == 67_000 and len({pair.paradigm for pair in found}) == 67
    assert {pair.field for pair in found} == {
        "morphology",
        "semantics",
        "syntax",
        "syntax_semantics",
    }
    same = [pair.paradigm for pair in found if pair.good == pair.bad]
    assert sorted(same) == ["passive_1"] * 2 + ["principle_A_case_2"] * 5
    # What gives every text the same score has one half of everything.
    judged = judge(found, np.zeros((67_000, 2)))
    assert judged.figures["accuracy"] == (0.5, 0.5, 0.5)
    assert judged.num_ties == 67_000
    # A perfect model's accuracy.
    best = np.array([(0.0, 0.0 if pair.good == pair.bad else -1.0) for pair in found])
    assert judge(found, best).figures["accuracy"][0] == pytest.approx(
        0.9999478, abs=1e-7
    )


def test_babylm_whole():
    name = "downstream/babylm-zeroshot/zeroshot.tar.xz"
    path = find_shared(name, "the BabyLM form and its supplement")
    assert len(read_pairs(str(Path(path) / "blimp_filtered"))) == 59_875
    supplement = read_pairs(str(Path(path) / "supplement_filtered"))
    assert len(supplement) == 5_218
    assert len({pair.paradigm for pair in supplement}) == 5


def make_pairs(*paradigms):
    return [Pair("g", "b", name, name[0]) for name in paradigms]


def test_ties_are_one_half_and_paradigms_count_alike():
    """Of three pairs two are right; of the other paradigm's one there is a tie."""
    scores = np.array([[-1.0, -2], [-1, -2], [-3, -2], [-5, -5]])
    assert find_hits(scores).tolist() == [1, 1, 0, 0.5]
    judged = judge(make_pairs("a1", "a1", "a1", "b1"), scores)
    assert judged.figures["accuracy"][0] == pytest.approx((2 / 3 + 0.5) / 2)
    assert judged.figures["accuracy_of_pairs"][0] == pytest.approx(2.5 / 4)
    assert judged.num_ties == 1
    assert judged.groups["paradigm"]["a1"]["accuracy"] == pytest.approx(2 / 3)
    assert judged.groups["phenomenon"]["b"] == {
        "accuracy": 0.5,
        "low": 0.5,
        "high": 0.5,
        "ties": 1.0,
        "pairs": 1.0,
    }
    assert "field" not in judged.groups


def test_the_interval_is_that_of_independent_paradigms():
    """2 x 200 pairs of which half are right: a standard error of 0.5 / 20."""
    hits = np.tile([[0.0, -1.0], [-1.0, 0.0]], (200, 1))
    names = ["a"] * 200 + ["b"] * 200
    value, low, high = judge(make_pairs(*names), hits).figures["accuracy"]
    assert value == 0.5
    assert (high - low) / 2 == pytest.approx(1.96 * 0.025, rel=0.1)


def test_a_score_that_is_no_number_is_refused(refuses):
    with refuses("1 pairs", "not finite"):
        judge(make_pairs("a", "a"), np.array([[0.0, np.nan], [0, 1]]))


class Spelling:
    """Scores a text by minus the sum of its ids; is asked once for all."""

    def score(self, texts, starts, rules, seeds):
        assert seeds == [i // 2 for i in range(len(texts))] and starts is None
        return {rule: [-text.astype(np.float32) for text in texts] for rule in rules}


def encode(text):
    return np.array([ord(c) for c in text])


def test_a_task_finds_figures_baselines_and_columns(refuses):
    items = [Pair("ab", "b", "p"), Pair("a", "b", "p"), Pair("a", "a", "p")]
    asker = zero_shot.Asker(Spelling(), encode, encode)
    found = zero_shot.evaluate_pairs(asker, items, ("pll", "x"))
    assert list(found) == ["pll", "x"]
    outcome = found["pll"]
    assert outcome.figures["accuracy"].value == pytest.approx(1.5 / 3)
    assert outcome.figures["accuracy"].method == pairs.METHOD
    # The shorter one: wrong, and twice neither.
    assert outcome.trivial["accuracy_of_the_shorter"] == pytest.approx(1 / 3)
    assert outcome.columns["good"].tolist() == [-195.0, -97.0, -97.0]
    assert "1 pairs are two identical texts." in outcome.notes
    assert "Ties: 1; each counts one half." in outcome.notes
    with refuses("''", "has no token"):
        pairs.score_pairs(asker.scorer, asker.encode, [Pair("", "b", "p")], ("pll",))


def test_tasks_are_named_with_paths(refuses):
    assert zero_shot.list_tasks(["blimp:a", "pairs:a:b"]) == [
        ("blimp", "a"),
        ("pairs", "a:b"),
    ]
    for told in ("glue:a", "blimp", "blimp:"):
        with refuses(f"--tasks={told}", "blimp:PATH"):
            zero_shot.list_tasks([told])
    with refuses("--tasks=blimp:a", "twice"):
        zero_shot.list_tasks(["blimp:a", "blimp:a"])
    assert zero_shot.spread_items("abc", 0) == [0, 1, 2]
    assert zero_shot.spread_items("abc", 5) == [0, 1, 2]
