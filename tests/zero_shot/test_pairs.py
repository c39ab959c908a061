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

from jaxpt.zero_shot import pairs, tasks
from jaxpt.zero_shot.pairs import TextPair, find_hits, judge, read_pairs

ROWS = [
    {"sentence_good": "a b", "sentence_bad": "b a", "UID": "u1", "field": "x/y"},
    {"sentence_good": "c", "sentence_bad": "d", "linguistics_term": "t"},
]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
WANTED = [TextPair("a b", "b a", "u1", "", "x_y"), TextPair("c", "d", "file", "t", "")]


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
    assert read_pairs(str(tmp_path / name)) == [TextPair('say "a, b"', "b", "file")]


def test_between_tabs_quotation_marks_are_characters(tmp_path):
    (tmp_path / "a.tsv").write_text('good\tbad\n"a" b\tc\n"so\tb\n')
    assert read_pairs(str(tmp_path / "a.tsv")) == [
        TextPair('"a" b', "c", "a"),
        TextPair('"so', "b", "a"),
    ]


@pytest.mark.parametrize(
    "name, data, output",
    [
        ("gone", None, ("gone", "No such file")),
        (
            "a.txt",
            b"good\tbad\n",
            ("a.txt: files must be .jsonl, .tsv, .csv", "archive .tar"),
        ),
        ("a.jsonl", b"", ("holds no pair",)),
        ("a.jsonl", b"\n[1]\n", ("a.jsonl line 2: not a JSON object",)),
        ("a.jsonl", b"{", ("a.jsonl line 1: not JSON",)),
        ("a.jsonl", b"\xff\xfe", ("a.jsonl line 1: not utf-8",)),
        (
            "a.jsonl",
            b'{"good": "a"}',
            ("a.jsonl line 1: bad must be a text", "are good"),
        ),
        ("a.jsonl", b'{"good": "a", "bad": " "}', ("bad must be a text",)),
        ("a.jsonl", b'{"x": 1}', ("sentence_good must be a text", "fields are x")),
        ("a.tsv", b"good\tbad\na\n", ("a.tsv line 2: has 1 fields",)),
        ("a.tsv", b"good\tbad\na\t \n", ("a.tsv line 2: bad must be a text",)),
        ("a.jsonl.xz", b"no xz", ("a.jsonl.xz: truncated .xz data",)),
        ("a.tar.xz", b"no tar", ("a.tar.xz: cannot be read",)),
    ],
)
def test_what_is_no_file_of_pairs_is_one_line(name, data, output, tmp_path, refuses):
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with refuses(*output):
        read_pairs(str(tmp_path / name))


def test_json_lines_end_at_newlines_alone(tmp_path):
    """U+2028, U+2029 and U+0085 are characters of a text in JSON and in tables."""
    odd = "a\u2028b\u2029c\x85d"
    row = json.dumps({"good": odd, "bad": "x"}, ensure_ascii=False)
    (tmp_path / "a.jsonl").write_text(f"{row}\r\n{row}\n", encoding="utf-8", newline="")
    table = f"good\tbad\n{odd}\tx\n"
    (tmp_path / "a.tsv").write_text(table, encoding="utf-8")
    (tmp_path / "a.csv").write_text(table.replace("\t", ","), encoding="utf-8")
    assert read_pairs(str(tmp_path / "a.jsonl")) == [TextPair(odd, "x", "a")] * 2
    assert read_pairs(str(tmp_path / "a.tsv")) == [TextPair(odd, "x", "a")]
    assert read_pairs(str(tmp_path / "a.csv")) == [TextPair(odd, "x", "a")]


def test_a_field_of_a_table_may_be_long(tmp_path):
    """csv's own limit is 131,072 characters."""
    (tmp_path / "a.tsv").write_text(f"good\tbad\n{'a' * 140_000}\tb\n")
    assert len(read_pairs(str(tmp_path / "a.tsv"))[0].good) == 140_000


def test_leftovers_of_folders_and_archives_are_no_pairs(tmp_path):
    good = b'{"sentence_good": "a", "sentence_bad": "b"}\n'
    bad = b"\0\5\x16\7"  # AppleDouble
    leftovers = ("._p.jsonl", "__MACOSX/._p.jsonl", ".x/p.jsonl", "README.tsv")
    files = {"p.jsonl": good} | dict.fromkeys(leftovers, bad)
    for name, data in files.items():
        (tmp_path / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "folder" / name).write_bytes(data)
    write_archive(tmp_path / "a.tar", files)
    for name in ("folder", "a.tar"):
        assert len(read_pairs(str(tmp_path / name))) == 1


def test_a_refused_archive_names_the_files_that_were_skipped(tmp_path, refuses):
    files = {f"b/{name}.txt": LINES for name in "abcdefg"} | {"README.md": b"text"}
    write_archive(tmp_path / "all.tar.xz", files)
    with refuses(
        "all.tar.xz: holds no pair of texts; skipped README.md, b/a.txt, b/b.txt",
        "b/d.txt and 3 more: files must be .jsonl, .tsv, .csv",
    ):
        read_pairs(str(tmp_path / "all.tar.xz"))
    with refuses("all.tar.xz/c: ", "no such folder; it has README.md, b"):
        read_pairs(str(tmp_path / "all.tar.xz" / "c"))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "blimp.zip").write_bytes(b"")
    with refuses("folder: holds no pair of texts; skipped blimp.zip: files must be"):
        read_pairs(str(tmp_path / "folder"))
    (tmp_path / "a.tar.zst").write_bytes(b"no tar")
    with refuses("a.tar.zst: cannot be read"):
        read_pairs(str(tmp_path / "a.tar.zst"))


def test_blimp_whole():
    path = find_shared("downstream/blimp/blimp.tar.xz", "67 paradigms of 1,000 pairs")
    result = read_pairs(str(path))
    assert len(result) == 67_000 and len({pair.paradigm for pair in result}) == 67
    assert {pair.field for pair in result} == {
        "morphology",
        "semantics",
        "syntax",
        "syntax_semantics",
    }
    same = [pair.paradigm for pair in result if pair.good == pair.bad]
    assert sorted(same) == ["passive_1"] * 2 + ["principle_A_case_2"] * 5
    # What gives every text the same score has one half of everything.
    judged = judge(result, np.zeros((67_000, 2)))
    value, (low, high, method) = judged.figures["accuracy"]
    assert (value, low, high) == (0.5, 0.5, 0.5) and method == pairs.METHOD
    assert judged.num_ties == 67_000
    # A perfect model's accuracy.
    best = np.array([(0.0, 0.0 if pair.good == pair.bad else -1.0) for pair in result])
    assert judge(result, best).figures["accuracy"][0] == pytest.approx(
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
    return [TextPair("g", "b", name, name[0]) for name in paradigms]


def test_ties_are_one_half_and_paradigms_count_alike():
    """Of three pairs two are right; of the other paradigm's one there is a tie."""
    scores = np.array([[-1.0, -2], [-1, -2], [-3, -2], [-5, -5]])
    assert find_hits(scores).tolist() == [1, 1, 0, 0.5]
    judged = judge(make_pairs("a1", "a1", "a1", "b1"), scores)
    assert judged.figures["accuracy"][0] == pytest.approx((2 / 3 + 0.5) / 2)
    assert judged.figures["accuracy_of_pairs"][0] == pytest.approx(2.5 / 4)
    assert judged.num_ties == 1
    assert judged.groups["paradigm"]["a1"]["accuracy"] == pytest.approx(2 / 3)
    only = judged.groups["phenomenon"]["b"]
    assert np.isnan([only.pop("low"), only.pop("high")]).all()  # of one pair
    assert only == {"accuracy": 0.5, "ties": 1.0, "pairs": 1.0}
    assert "field" not in judged.groups


def test_an_interval_of_one_pair_is_unknown():
    """The pair counts in the mean, and its spread is that of the other single pairs."""
    wrong = judge(make_pairs("a1"), np.array([[0.0, 1.0]]))
    for _, interval in wrong.figures.values():
        assert np.isnan(interval[:2]).all() and interval.method == "none: one item"
    # 40 paradigms of one pair, half of them right: as one sample of 40 pairs.
    scores = np.tile([[0.0, -1.0], [-1.0, 0.0]], (20, 1))
    judged = judge(make_pairs(*(f"a{i}" for i in range(40))), scores)
    value, (low, high, _) = judged.figures["accuracy"]
    assert value == 0.5
    assert (high - low) / 2 == pytest.approx(1.96 * 0.5 / 40**0.5, rel=0.1)
    groups = judged.groups["paradigm"]
    assert all(np.isnan(groups[f"a{i}"]["low"]) for i in range(40))
    assert judged.groups["phenomenon"]["a"]["low"] == pytest.approx(low)


def test_a_single_pair_widens_the_interval_around_its_own_value():
    """100 pairs of which 98 are right, and a paradigm of a single wrong pair."""
    scores = np.array([[0.0, -1.0]] * 98 + [[-1.0, 0.0]] * 3)
    names = ["a"] * 100 + ["b"]
    value, (low, high, _) = judge(make_pairs(*names), scores).figures["accuracy"]
    assert value == pytest.approx(0.49)
    assert 0 <= low < value < high <= 1
    assert high - low > 0.05 and low < 0.47


def test_a_paradigm_that_is_all_right_has_a_width():
    judged = judge(make_pairs("a1", "a1"), np.array([[0.0, -1.0]] * 2))
    assert judged.groups["paradigm"]["a1"]["low"] == pytest.approx(0.3424, abs=1e-4)


def test_the_interval_is_that_of_independent_paradigms():
    """2 x 200 pairs of which half are right: a standard error of 0.5 / 20."""
    hits = np.tile([[0.0, -1.0], [-1.0, 0.0]], (200, 1))
    names = ["a"] * 200 + ["b"] * 200
    value, (low, high, _) = judge(make_pairs(*names), hits).figures["accuracy"]
    assert value == 0.5
    assert (high - low) / 2 == pytest.approx(1.96 * 0.025, rel=0.1)


def test_a_score_that_is_no_number_is_refused(refuses):
    with refuses("1 pairs", "not finite"):
        judge(make_pairs("a", "a"), np.array([[0.0, np.nan], [0, 1]]))


class Spelling:
    """Scores a text by minus the sum of its ids; is called once for all."""

    def score(self, texts, starts, rules, seeds):
        assert seeds == [i // 2 for i in range(len(texts))] and starts is None
        return {rule: [-text.astype(np.float32) for text in texts] for rule in rules}


def encode(text):
    return np.array([ord(c) for c in text])


def test_a_task_finds_figures_baselines_and_columns(refuses):
    items = [TextPair("ab", "b", "p"), TextPair("a", "b", "p"), TextPair("a", "a", "p")]
    asker = tasks.EvalContext(Spelling(), encode, encode)
    result = tasks.evaluate_pairs(asker, items, ("pll", "x"))
    assert list(result) == ["pll", "x"]
    outcome = result["pll"]
    assert outcome.figures["accuracy"].value == pytest.approx(1.5 / 3)
    assert outcome.figures["accuracy"].method == "bootstrap over items"
    # The shorter one: wrong, and twice neither.
    assert outcome.trivial["accuracy_of_the_shorter"] == pytest.approx(1 / 3)
    assert outcome.columns["good"].tolist() == [-195.0, -97.0, -97.0]
    assert "1 pairs are two identical texts." in outcome.notes
    assert "Ties: 1; each counts one half." in outcome.notes
    two = [TextPair("ab", "b", "p"), TextPair("a", "b", "q")]
    (outcome,) = tasks.evaluate_pairs(asker, two, ("pll",)).values()
    assert outcome.figures["accuracy"].method == pairs.METHOD
    output = tasks.to_json(outcome)
    assert output["groups"]["paradigm"]["q"]["low"] is None
    assert output["figures"]["accuracy"]["low"] is not None
    json.dumps(output, allow_nan=False)
    with refuses("''", "has no token"):
        pairs.score_pairs(
            asker.scorer, asker.encode, [TextPair("", "b", "p")], ("pll",)
        )


def test_tasks_are_named_with_paths(refuses):
    assert tasks.list_tasks(["blimp:a", "pairs:a:b"]) == [
        ("blimp", "a"),
        ("pairs", "a:b"),
    ]
    for output in ("glue:a", "blimp", "blimp:"):
        with refuses(f"tasks={output}", "blimp:PATH"):
            tasks.list_tasks([output])
    with refuses("tasks=blimp:a", "twice"):
        tasks.list_tasks(["blimp:a", "blimp:a"])
    assert tasks.spread_items("abc", 0) == [0, 1, 2]
    assert tasks.spread_items("abc", 5) == [0, 1, 2]
