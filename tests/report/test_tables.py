"""The tables of a report: CSV that reads back as it was, LaTeX that shows any name."""

import csv
import io
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reports import make_report, read_run

from jaxpt.report import tables
from jaxpt.report.summary import summarise

ODD = 'a_b,5% & "c" \\ d'


def make_run(name, seed=0, **metrics):
    costs = {"params": 3_412_345, "steps": 1000, "raw_tokens": 8_192_000}
    costs |= {"flops": 1.67e14, "train_seconds": 120.0 + seed}
    content = {"name": name, "objective": "clm", "seed": seed, "metrics": metrics}
    return read_run(content | costs)


def make_runs(values, metric="probe_accuracy"):
    return [
        make_run(name, seed, **{metric: value})
        for name, seeds in values.items()
        for seed, value in enumerate(seeds)
    ]


def read(text):
    rows = list(csv.reader(io.StringIO(text, newline="")))
    return rows[0], [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def test_a_line_for_each_run_in_full_precision():
    runs = [
        make_run("clm", 0, valid_loss=0.1 + 0.2, bits_per_byte=2.5),
        make_run("mlm", 3, valid_loss=math.nan, cloze_bits=1 / 3),
    ]
    text = tables.format_results(make_report(runs))
    header, lines = read(text)
    costs = ["params", "steps", "raw_tokens", "flops", "train_seconds"]
    metrics = ["valid_loss", "bits_per_byte", "cloze_bits"]
    assert header == ["name", "objective", "seed", *costs, *metrics]
    assert text.endswith("\r\n") and text.count("\r\n") == 3
    first, second = lines
    assert float(first["valid_loss"]) == 0.1 + 0.2
    output = (first["name"], first["objective"], first["seed"], first["cloze_bits"])
    assert output == ("clm", "clm", "0", "")
    assert (second["valid_loss"], second["bits_per_byte"]) == ("", "")
    assert float(second["cloze_bits"]) == 1 / 3
    assert int(second["params"]) == 3_412_345 and float(second["flops"]) == 1.67e14


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_any_name_reads_back(name):
    runs = make_runs({name: [0.5, 0.6], f"{name}'": [0.1, 0.2]})
    report = make_report(runs)
    _, lines = read(tables.format_results(report))
    assert [line["name"] for line in lines] == [run.name for run in runs]
    _, lines = read(tables.format_differences(report))
    assert (lines[0]["better"], lines[0]["worse"]) == (name, f"{name}'")


def test_a_line_for_each_pair_and_baseline():
    values = {
        "clm": [0.90, 0.91, 0.92, 0.91],
        "mlm": [0.51, 0.50, 0.52, 0.51],
        ODD: [0.7],
    }
    runs = make_runs(values)
    for run in runs:
        run.metrics["probe_accuracy_random"] = 0.25
    report = make_report(runs)
    _, lines = read(tables.format_differences(report))
    (probe,) = report.metrics
    assert len(lines) == len(probe.pairs + probe.baselines) == 3 + 3
    assert {line["metric"] for line in lines} == {"probe_accuracy"}
    (pair,) = (x for x in lines if (x["better"], x["worse"]) == ("clm", "mlm"))
    assert pair["outcome"] == "ahead" and pair["seeds"] == "4"
    assert float(pair["difference"]) == pytest.approx(0.4)
    assert pair["documents"] == "0"
    (single,) = (x for x in lines if (x["better"], x["worse"]) == ("clm", ODD))
    # An interval without bounds is an empty cell.
    assert (single["outcome"], single["low"], single["high"]) == ("untested", "", "")


@pytest.mark.parametrize(
    "text, escaped",
    [
        ("a_b", r"a\_b"),
        ("5% & $3 #1 {x}", r"5\% \& \$3 \#1 \{x\}"),
        ("\\~^", r"\textbackslash{}\textasciitilde{}\textasciicircum{}"),
        ("<a|b>", r"\textless{}a\textbar{}b\textgreater{}"),
        ("a\nb\tc", "a b c"),
        ("ä ± —", r"ä $\pm$ ---"),
    ],
)
def test_latex_shows_the_text(text, escaped):
    assert tables.escape(text) == escaped


def find_rows(text):
    """The cells of each row of the table's body, by its first cell."""
    body = text.split(r"\midrule")[1].split(r"\bottomrule")[0]
    rows = [line.removesuffix(r" \\").split(" & ") for line in body.strip().split("\n")]
    return {cells[0]: cells[1:] for cells in rows}


def test_bold_is_ahead_of_all_others_and_ties_are_marked():
    values = {"best": [0.90, 0.91, 0.92, 0.91], "mid": [0.51, 0.5, 0.52, 0.51]}
    values |= {"low_one": [0.498, 0.512, 0.521, 0.508]}
    text = tables.format_latex(make_report(make_runs(values)))
    rows = find_rows(text)
    assert rows["best"][:2] == ["4", r"$\mathbf{0.910}_{\pm 0.008}$"]
    assert rows["mid"][1] == r"$0.510_{\pm 0.008}$"  # behind: no mark, not bold
    assert rows[r"low\_one"][1].startswith("$0.510")
    assert "Bold: ahead of all others" in text and r"\dagger" not in text
    header = text.split(r"\toprule")[1].split(r"\midrule")[0]
    assert header.count("&") == 2 + 1 + 5 - 1 and r"features $\uparrow$" in header
    assert rows["best"][2:] == ["3.41M", "1,000", "8.19M", "1.67e14", "121.5"]


def test_bold_is_ahead_of_the_control_and_ties_with_it_are_marked():
    values = {"off": [0.50, 0.51, 0.52, 0.51], "up": [0.91, 0.9, 0.92, 0.91]}
    values |= {"near": [0.44, 0.56, 0.60, 0.5], "higher": [0.95, 0.951, 0.952, 0.95]}
    runs = make_runs(values)
    metrics = summarise(runs, control="off")
    text = tables.format_latex(make_report(runs, metrics=metrics, control="off"))
    rows = find_rows(text)
    assert r"\mathbf" in rows["up"][1] and r"\mathbf" in rows["higher"][1]
    assert r"\dagger" in rows["near"][1] and "^" not in rows["off"][1]
    assert "Bold: ahead of off, that is, significantly better." in text
    assert "no significant difference from off" in text
    for run in runs[4:]:  # a metric that the control lacks
        run.metrics["bits_per_byte"] = run.metrics["probe_accuracy"]
    metrics = summarise(runs, control="off")
    rows = find_rows(tables.format_latex(make_report(runs, metrics=metrics)))
    assert "^" not in rows["near"][2] and r"\mathbf" not in rows["up"][2]


def test_what_is_no_verdict_is_not_bold():
    close = {"a": [0.50, 0.52, 0.51, 0.51], "b": [0.51, 0.50, 0.515, 0.5]}
    text = tables.format_latex(make_report(make_runs(close)))
    assert r"\mathbf" not in text and "Bold" not in text
    assert r"^{\dagger}" in find_rows(text)["b"][1]
    single = tables.format_latex(make_report(make_runs({"a": [0.9], "b": [0.1]})))
    assert r"\mathbf" not in single and "no verdict" in single
    assert find_rows(single)["a"][1] == "$0.900$"
    alone = tables.format_latex(make_report(make_runs({"a": [0.9, 0.91]})))
    assert r"\mathbf" not in alone
    apart = make_runs({"a": [0.9, 0.91] * 2, "b": [0.11, 0.1] * 2})
    assert r"\mathbf" in tables.format_latex(make_report(apart))
    tests = {"probe_accuracy": [{"a"}, {"b"}]}
    judged = summarise(apart, tests=tests)
    text = tables.format_latex(make_report(apart, metrics=judged))
    assert r"\mathbf" not in text and "other test examples" in text


def test_lower_is_better_where_it_is():
    runs = make_runs(
        {"a": [2.01, 2.0] * 2, "b": [1.0, 1.01, 1.01, 1.02]}, "bits_per_byte"
    )
    text = tables.format_latex(make_report(runs))
    assert r"\mathbf{1.010}" in text and r"bits per byte $\downarrow$" in text


def test_ahead_of_some_is_not_bold():
    values = {"top": [0.90, 0.91, 0.925, 0.91], "near": [0.91, 0.89, 0.92, 0.9]}
    values |= {"low": [0.11, 0.1, 0.12, 0.11]}
    report = make_report(make_runs(values))
    outcomes = {p.worse: p.outcome for p in report.metrics[0].pairs[:2]}
    assert outcomes == {"near": "tie", "low": "ahead"}
    text = tables.format_latex(report)
    assert r"\mathbf" not in text
    rows = find_rows(text)
    assert r"\dagger" in rows["near"][1]
    assert "^" not in rows["top"][1] + rows["low"][1]


def test_the_worse_of_a_tie_is_marked_where_lower_is_better():
    values = {"high": [2.5, 2.4, 2.6, 2.5], "less": [2.4, 2.45, 2.5, 2.45]}
    text = tables.format_latex(make_report(make_runs(values, "bits_per_byte")))
    rows = find_rows(text)
    assert r"\dagger" in rows["high"][1] and "^" not in rows["less"][1]


def test_latex_is_whole_whatever_the_names_are():
    runs = make_runs({ODD: [0.5, 0.6], "b}\\end{table}": [0.1, 0.2]})
    report = make_report(runs, title="50 % of {all}", version="0_1")
    text = tables.format_latex(report)
    plain = re.sub(r"\\[\\%&#$_{}]", "", text)  # without escaped characters
    depth = 0
    for character in plain.split("\n", 1)[1]:
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert depth >= 0
    assert depth == 0 and plain.count("$") % 2 == 0
    assert text.count(r"\begin{table}") == text.count("\n\\end{table}") == 1
    for line in plain.split(r"\midrule")[1].split(r"\bottomrule")[0].split("\n"):
        assert "%" not in line
    widths = {len(cells) for cells in find_rows(text).values()}
    assert widths == {1 + 1 + 5}


def test_a_table_without_shared_metrics_says_so():
    text = tables.format_latex(make_report(make_runs({"a": [2.0]}, "valid_loss")))
    assert "No shared metric was measured" in text and "validation" not in text


def test_the_files_are_written_and_vouched_for(tmp_path, refuses):
    report = make_report(make_runs({"a": [0.5, 0.6], "b": [0.1, 0.2]}))
    tables.write_tables(report, tmp_path)
    names = {"results.csv", "differences.csv", "results.tex"}
    assert {path.name for path in tmp_path.iterdir()} == {*names, "checksums.json"}
    written = (tmp_path / "results.csv").read_bytes()
    assert written.decode() == tables.format_results(report)
    (tmp_path / "results.tex").unlink()
    (tmp_path / "results.tex").mkdir()
    with refuses("results.tex"):
        tables.write_tables(report, tmp_path)
