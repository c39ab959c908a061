"""Verdicts on tables and samples: those of a comparison, in every form of output."""

import csv
import io
import itertools
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from external.samples import DATE, draw_rows, draw_seeds, write_csv, write_samples

import jaxpt
from jaxpt.cli.main import main
from jaxpt.comparison.studies import load_study
from jaxpt.external.score_rows import split_seed
from jaxpt.judge.examples import Examples
from jaxpt.judge.verdicts import Results, Side, estimate, judge, subtract
from jaxpt.report.summary import summarise
from jaxpt.report.types import read_runs

ROOT = Path(__file__).resolve().parents[2]
STUDY = ROOT / "results" / "orderings-1e12"


def pairs_of(result):
    return [pair for ranking in result.rankings for pair in ranking.metric.pairs]


def export_study(study):
    """The shared metrics of a study as rows of a table, and its runs with the same."""
    entries = {(r["name"], r["seed"]): r for r in study.stored["report"]["runs"]}
    shared = {m["metric"]: m for m in study.report["metrics"] if m["is_common"]}
    rows, runs = [], []
    for (name, seed), entry in entries.items():
        metrics = dict(entry["metrics"])
        for metric in shared.keys() & metrics.keys():
            run = {"system": name, "seed": seed, "metric": metric}
            examples = study.values.get((name, seed), {}).get(metric)
            if metrics[metric] is None:
                continue
            if examples is None:
                rows.append(run | {"score": metrics[metric]})
                continue
            metrics[metric] = examples.mean
            rows += [
                run
                | {"example": i, "group": g, "score": t / w if w else 0, "weight": w}
                for i, (t, w, g) in enumerate(zip(*map(np.ndarray.tolist, examples)))
            ]
        runs.append(entry | {"metrics": metrics})
    return shared, rows, runs


def test_an_archived_study_has_the_same_verdicts(tmp_path):
    study = load_study(STUDY)
    shared, rows, runs = export_study(study)
    keys = [(run["name"], run["seed"]) for run in runs]
    examples = {key: study.values.get(key, {}) for key in keys}
    # Bounds are one-sided pairs of a comparison alone; a table cannot state them.
    exact = [{**run, "metrics": {k: v for k, v in run["metrics"].items()
              if not k.endswith("_bound")}} for run in runs]  # fmt: skip
    expected = {m.metric: m for m in summarise(read_runs(exact), examples)}
    lower = [name for name, m in shared.items() if not m["higher_is_better"]]
    names = ("metric", "system", "seed", "example", "group", "score", "weight")
    columns = {name: [row.get(name) for row in rows] for name in names}
    by_span = {}
    for name, m in shared.items():
        by_span.setdefault((m["span"], m["margin"]), set()).add(name)
    result = jaxpt.verdict(columns, lower=lower)
    assert len(result.rankings) == len(shared) > 2
    num = 0
    for ranking in result.rankings:
        metric = expected[ranking.metric.metric]
        assert [line.system for line in ranking.lines] == metric.rank()
        for line in ranking.lines:
            stats = metric.by_name[line.system]
            assert line.mean == pytest.approx(stats.mean, rel=1e-12)
            assert line.std == pytest.approx(stats.std, rel=1e-9)
            assert line.high == pytest.approx(stats.high, rel=1e-12)
            assert max(line.low, 0) == pytest.approx(max(stats.low, 0), abs=1e-12)
        assert len(metric.pairs) == len(ranking.metric.pairs)
        for ours, theirs in zip(ranking.metric.pairs, metric.pairs, strict=True):
            num += 1
            assert ours.names == theirs.names
            assert ours.p == pytest.approx(theirs.p, rel=1e-9, abs=1e-12)
            assert ours.difference == pytest.approx(theirs.difference, abs=1e-12)
            assert ours.seeds_needed == theirs.seeds_needed or metric.margin
            low, high = ours.low, ours.high
            if low is None:
                assert theirs.outcome == ours.outcome == "untested"
                continue
            span = metric.span or math.inf
            assert max(low, -span) == pytest.approx(theirs.low, rel=1e-12, abs=1e-12)
            assert min(high, span) == pytest.approx(theirs.high, rel=1e-12, abs=1e-12)
            is_ahead = theirs.outcome == "ahead"
            assert (ours.outcome == "ahead") == is_ahead
            letters = {line.system: line.letters for line in ranking.lines}
            one, other = (set(letters[name] or "") for name in ours.names)
            assert bool(one & other) != is_ahead
    assert num > 20


def test_every_input_has_the_same_verdicts(tmp_path):
    """A table in memory, CSV, TSV, semicolons, Parquet, pandas and samples."""
    pandas = pytest.importorskip("pandas")
    rows = draw_rows()
    frame = pandas.DataFrame(rows)
    frame.to_parquet(tmp_path / "a.parquet")
    quoted = [row | {"system": f'"{row["system"]}"'} for row in rows]
    text = "system,seed,example,group,score\n" + "".join(
        ",".join(map(str, row.values())) + "\r\n\r\n" for row in quoted
    )
    (tmp_path / "quoted.csv").write_text(text, encoding="utf-8-sig")
    shuffled = [rows[i] for i in np.random.default_rng(1).permutation(len(rows))]
    expected = jaxpt.verdict(rows)
    assert [line.letters for line in expected.rankings[0].lines] == ["a", "a", "b"]
    for table in (
        frame,
        {name: frame[name].to_numpy() for name in frame},
        write_csv(tmp_path / "a.csv", rows),
        write_csv(tmp_path / "b.tsv", rows, "\t"),
        write_csv(tmp_path / "c.csv", rows, ";"),
        str(tmp_path / "quoted.csv"),
        tmp_path / "a.parquet",
        write_csv(tmp_path / "d.csv", shuffled),
    ):
        assert jaxpt.verdict(table).list_lines() == [
            pytest.approx(line) for line in expected.list_lines()
        ]
    folder = write_samples(tmp_path / "out", rows)
    samples = jaxpt.verdict(folder, group="speech")
    assert samples.rankings[0].metric.metric == "order/acc"
    drop = {"metric"}
    ours, theirs = (
        [{k: v for k, v in line.items() if k not in drop} for line in each.list_lines()]
        for each in (samples, expected)
    )
    assert ours == [pytest.approx(line) for line in theirs]
    assert samples.notes == (
        "order: acc is compared; score chooses among acc, acc_norm",
    )


def test_groups_of_examples_are_drawn_together():
    alone = [{**row, "group": row["example"]} for row in draw_rows(per_group=20)]
    grouped = draw_rows(per_group=20)
    errors = [pairs_of(jaxpt.verdict(rows))[0].documents for rows in (alone, grouped)]
    assert errors == [60, 3]


def test_scores_of_runs_alone(tmp_path):
    rows = draw_seeds()
    result = jaxpt.verdict(write_csv(tmp_path / "a.csv", rows))
    ranking = result.rankings[0]
    values = {n: {r["seed"]: r["score"] for r in rows if r["system"] == n}
              for n in ("good", "same", "poor")}  # fmt: skip
    expected = judge([Results("score", True, 0.0, values, {})])
    for pair, theirs in zip(ranking.metric.pairs, expected, strict=True):
        assert (pair.p, pair.low) == pytest.approx((theirs.p, theirs.low), rel=1e-12)
    assert [line.cost for line in ranking.lines] == [1e9] * 3
    assert "seeds" in ranking.metric.warnings[0]
    text = result.format()
    assert "1.00B" in text or "1B" in text


def test_intervals_of_means_are_simultaneous():
    rows = draw_seeds()
    values = {r["seed"]: r["score"] for r in rows if r["system"] == "good"}
    low, high = estimate(Side(values)).interval(0.05 / 3)
    line = jaxpt.verdict(rows).rankings[0].lines[0]
    assert (line.low, line.high) == pytest.approx((low, high), rel=1e-12)
    # Student's t of one sample.
    from scipy import stats

    own = np.array(list(values.values()))
    expected = stats.t.interval(1 - 0.05 / 3, 4, own.mean(), stats.sem(own))
    assert (low, high) == pytest.approx(expected)


def test_a_history_gives_its_last_score(tmp_path):
    """A long history, and the chart that Weights & Biases exports."""
    final = draw_seeds()
    rows = [
        row | {"step": step, "score": row["score"] - (9 - step)}
        for step in (9, 0, 5)
        for row in final
    ]
    rows += [row | {"step": 12, "score": None} for row in final]
    expected = jaxpt.verdict(final).list_lines()
    assert jaxpt.verdict(rows).list_lines() == expected
    assert jaxpt.verdict(write_csv(tmp_path / "a.csv", rows)).list_lines() == expected
    chart = []
    for step in (0, 5, 9):
        row = {"Step": step}
        for each in final:
            name = f"{each['system']}-seed{each['seed']} - eval/acc"
            row |= {
                name: each["score"] - (9 - step),
                f"{name}__MIN": 0,
                f"{name}__MAX": 9,
            }
        chart.append(row)
    chart[-1] |= {"Step": 9}
    result = jaxpt.verdict(write_csv(tmp_path / "chart.csv", chart))
    assert result.rankings[0].metric.metric == "eval/acc"
    for ours, theirs in zip(result.list_lines(), expected, strict=True):
        assert ours["system"] == theirs["system"]
        assert ours["low"] == pytest.approx(theirs["low"], rel=1e-9)


def test_several_metrics_are_one_family():
    rows = [row | {"other": 1 - row["score"]} for row in draw_seeds()]
    result = jaxpt.verdict(rows, score=("score", "other"), lower="other")
    alone = jaxpt.verdict(rows)
    assert result.num_tested == 6 and alone.num_tested == 3
    for both, one in zip(pairs_of(result)[:3], pairs_of(alone), strict=True):
        assert both.p == pytest.approx(min(1, 2 * one.p), rel=1e-6)
    first, second = result.rankings
    assert [x.system for x in first.lines] == [x.system for x in second.lines]
    long = [
        {"metric": m, "system": row["system"], "seed": row["seed"], "score": row[m]}
        for m in ("score", "other")
        for row in rows
    ]
    again = jaxpt.verdict(long, lower=["other"])
    assert again.list_pairs() == result.list_pairs()


def test_runs_alone_are_judged_over_examples():
    """One run of each: McNemar's test without its correction, nearly."""
    rows = [row for row in draw_rows(examples=400) if row["seed"] == 0]
    rows = [row | {"group": row["example"]} for row in rows]
    result = jaxpt.verdict(rows, fixed=True)
    pair = pairs_of(result)[-1]
    scores = {n: np.array([r["score"] for r in rows if r["system"] == n])
              for n in pair.names}  # fmt: skip
    from scipy import stats

    reference = stats.ttest_rel(*(scores[name] for name in pair.names))
    assert pair.p == pytest.approx(min(1, 3 * reference.pvalue), rel=1e-6)
    assert "These runs alone" in result.format()
    sides = [
        Side({0: x}, {0: Examples(np.full(12, x), np.ones(12), np.arange(12))}, True)
        for x in (1.0, 0.0)
    ]
    assert subtract(*sides).p == pytest.approx(2 / 2**12)  # of signs


def test_too_few_seeds_give_means_and_no_verdict():
    rows = draw_seeds(seeds=3)
    result = jaxpt.verdict(rows)
    assert (
        result.rankings[0].sentence == "score: no verdict from 3 seeds (4 are needed)"
    )
    assert [line.letters for line in result.rankings[0].lines] == [None] * 3
    assert [line.low for line in result.rankings[0].lines] == [None] * 3
    mixed = [row for row in draw_seeds() if (row["system"], row["seed"]) != ("poor", 0)]
    mixed = [row for row in mixed if row["system"] != "same" or row["seed"] < 2]
    lines = {x.system: x for x in jaxpt.verdict(mixed).rankings[0].lines}
    assert lines["same"].letters is None and lines["same"].low is None
    assert lines["good"].low is not None
    assert lines["good"].rank_to == 2 and lines["poor"].rank == 2


def test_ranks_are_those_that_the_pairs_allow():
    for ranking in jaxpt.verdict(draw_rows()).rankings:
        for line in ranking.lines:
            ahead = [p for p in ranking.metric.pairs if p.outcome == "ahead"]
            better = sum(p.worse == line.system for p in ahead)
            worse = sum(p.better == line.system for p in ahead)
            assert (line.rank, line.rank_to) == (1 + better, 3 - worse)


def test_the_detectable_difference_is_that_of_the_needed_seeds():
    """A pair needs more seeds exactly if its difference is not detectable."""
    result = jaxpt.verdict(draw_seeds({"a": 0.5, "b": 0.512}, 4, seed=3))
    (pair,) = pairs_of(result)
    low, high = result.rankings[0].metric.detectable
    assert low == high
    assert pair.outcome == "ahead" or (pair.difference < low and pair.seeds_needed > 4)


def test_a_doubtful_table_has_warnings():
    rows = draw_seeds({"a": 0.5, "b": 0.4}, 8)
    rows[0]["score"] = 0.1
    (ranking,) = jaxpt.verdict(rows).rankings
    assert any(
        "seed 0 of a" in line and "Grubbs" in line for line in ranking.metric.warnings
    )
    one = [row | {"group": "g"} for row in draw_rows()]
    (ranking,) = jaxpt.verdict(one).rankings
    assert any("one group" in line for line in ranking.metric.warnings)
    assert ranking.metric.pairs[0].blocks
    equal = draw_rows({"a": 0.5, "b": 0.5, "c": 0.5}, 4, seed=5)
    (ranking,) = jaxpt.verdict(equal).rankings
    assert any("does not rank" in line for line in ranking.metric.warnings)


def test_a_margin_makes_systems_equivalent():
    rows = draw_rows({"a": 0.5, "b": 0.5}, 5, 2000)
    (pair,) = pairs_of(jaxpt.verdict(rows, margin=0.2))
    assert pair.outcome == "equivalent"
    assert "equivalent within 0.2" in jaxpt.verdict(rows, margin=0.2).format(
        "text", True
    )


def test_shares_stay_within_0_and_1():
    rows = draw_rows({"a": 0.95, "b": 0.1}, 4, 12)
    result = jaxpt.verdict(rows)
    for line in result.rankings[0].lines:
        assert 0 <= line.low <= line.high <= 1
    assert all(-1 <= pair.low <= pair.high <= 1 for pair in pairs_of(result))


FORMS = ("text", "markdown", "latex", "html", "csv", "json")


@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_the_same_table(form, tmp_path, capsys):
    rows = [row | {"system": row["system"] + "_<&|>"} for row in draw_seeds()]
    path = write_csv(tmp_path / "a.csv", rows)
    assert main(["verdict", path, "--format", form]) == 0
    out = capsys.readouterr().out
    result = jaxpt.verdict(path)
    assert out == result.format(form) + "\n"
    (ranking,) = result.rankings
    for cells in ranking.grid().rows:
        if form == "text":
            assert any(
                line.split() == " ".join(cells).split() for line in out.splitlines()
            )
        mean, interval = cells[2], cells[3]
        if form not in ("csv", "json"):
            assert mean in out and interval in out
    if form == "csv":
        table = list(csv.DictReader(io.StringIO(out)))
        assert [row["system"] for row in table] == [x.system for x in ranking.lines]
        assert [float(row["low"]) for row in table] == [x.low for x in ranking.lines]
    elif form == "json":
        (metric,) = json.loads(out)["metrics"]
        assert [x["letters"] for x in metric["systems"]] == ["a", "a", "b"]
        assert metric["pairs"] == [
            {k: v for k, v in pair.items() if k != "metric"}
            for pair in result.list_pairs()
        ]
    else:
        escaped = {"text": "<&|>", "html": "&lt;&amp;|&gt;"}
        escaped |= {"markdown": r"\_\<&\|>", "latex": r"\textless{}\&\textbar{}"}
        assert out.count(escaped[form]) >= 3
        num = {"markdown": "\n| ---: |", "latex": r"\begin{tabular}", "html": "<table>"}
        assert out.count(num.get(form, "letters")) == 1
    with_pairs = result.format(form, with_pairs=True)
    if form == "csv":
        assert with_pairs.splitlines()[0].startswith("metric,better,worse,outcome")
    elif form != "json":
        assert "better mean" in with_pairs and with_pairs.startswith(out[:20])


def test_the_result_is_a_table_for_notebooks():
    pandas = pytest.importorskip("pandas")
    result = jaxpt.verdict(draw_seeds())
    assert result._repr_html_() == result.format("html")
    assert str(result) == repr(result) == result.format()
    frame = result.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["letters"].tolist() == ["a", "a", "b"]
    assert result.to_pandas(pairs=True)["p"].max() <= 1
    assert len(result.to_pandas(pairs=True)) == 3


def test_there_is_one_sentence_above_and_one_note_below(tmp_path, capsys):
    path = write_csv(tmp_path / "a.csv", draw_rows())
    assert main(["verdict", path]) == 0
    sentence, table, note = capsys.readouterr().out.rstrip().split("\n\n")
    assert sentence.count("\n") == 0 and note.count("\n") == 0
    assert re.fullmatch(
        r"score: (good|same) is ahead of poor, no significant difference from "
        r"(good|same) \(at most 0\.\d+\)",
        sentence,
    )
    assert len(table.splitlines()) == 4
    assert "family-wise error rate 0.05 over 3 pairs" in note


def test_the_newest_samples_of_a_run_are_read(tmp_path):
    rows = draw_rows()
    folder = write_samples(tmp_path, rows)
    worse = [row | {"score": 0} for row in rows]
    write_samples(tmp_path, worse, date="2026-11-27T10-00-00.000001")
    result = jaxpt.verdict(folder)
    assert result.rankings[0].lines[0].mean > 0.5
    assert any("is left out" in note and DATE in note for note in result.notes)


def test_directions_of_samples_are_read_from_the_results(tmp_path):
    folder = write_samples(tmp_path, draw_rows())
    for place in tmp_path.iterdir():
        text = json.dumps({"higher_is_better": {"order": {"acc": False}}})
        (place / f"results_{DATE}.json").write_text(text)
    (ranking,) = jaxpt.verdict(folder).rankings
    assert not ranking.metric.higher_is_better
    assert ranking.lines[0].system == "poor"


def test_tasks_metrics_and_filters_of_samples_are_chosen(tmp_path):
    rows = draw_rows()
    write_samples(tmp_path, rows)
    write_samples(tmp_path, rows, "other")
    names = [r.metric.metric for r in jaxpt.verdict(str(tmp_path)).rankings]
    assert names == ["order/acc", "other/acc"]
    both = jaxpt.verdict(str(tmp_path), tasks="other", score=("acc", "acc_norm"))
    assert [r.metric.metric for r in both.rankings] == ["other/acc", "other/acc_norm"]
    assert both.notes == ()
    place = tmp_path / "filtered"
    write_samples(place, rows, filter="strict")
    for path in place.rglob("*.jsonl"):
        lines = (
            path.read_text().replace("strict", "loose").replace('"acc": 1', '"acc": 0')
        )
        path.write_text(path.read_text() + lines)
    assert jaxpt.verdict(str(place)).rankings[0].lines[0].mean > 0.5
    loose = jaxpt.verdict(str(place), filter="loose").rankings[0]
    assert {line.mean for line in loose.lines} == {0.0}


def test_runs_are_named_in_words(tmp_path, capsys):
    rows = draw_rows(seeds=4)
    write_samples(tmp_path / "out", rows)
    words = []
    for i, place in enumerate(sorted((tmp_path / "out").iterdir())):
        place = place.rename(tmp_path / f"random{i}")
        words.append(f"s{i // 4}:{i % 4}={place}")
    result = jaxpt.verdict(words)
    assert {line.system: line.seeds for line in result.rankings[0].lines} == {
        "s0": 4, "s1": 4, "s2": 4
    }  # fmt: skip
    assert main(["verdict", *words]) == 0
    assert "s0" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name, expected",
    [
        ("google__multiberts-seed_0", ("google__multiberts", 0)),
        ("EleutherAI__pythia-160m-seed1", ("EleutherAI__pythia-160m", 1)),
        ("mlm seed 12 final", ("mlm final", 12)),
        ("clm.s3", ("clm", 3)),
        ("seed3", ("seed3", 3)),
        ("gpt2-xl", ("gpt2-xl", None)),
        ("birdseed5", ("birdseed5", None)),
        ("llama-3-8b", ("llama-3-8b", None)),
    ],
)
def test_a_seed_is_read_from_a_name(name, expected):
    assert split_seed(name) == expected


def test_neither_jax_nor_pandas_is_imported(tmp_path):
    rows = draw_rows()
    path, folder = (
        write_csv(tmp_path / "a.csv", rows),
        write_samples(tmp_path / "o", rows),
    )
    code = f"""
import sys
from jaxpt.cli.main import main
assert main(["verdict", {path!r}]) == 0
assert main(["verdict", {folder!r}, "--format", "html"]) == 0
assert main(["verdict", "--help"]) == 0
import jaxpt
jaxpt.verdict({path!r}).format("latex")
heavy = "jax", "jaxlib", "flax", "pandas", "pyarrow", "scipy.stats", "tensorflow"
assert not [name for name in heavy if name in sys.modules]
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_large_tables_take_no_loop_over_pairs_of_examples():
    """The influence of documents is found once for each system, not for each pair."""
    calls = []
    original = Examples.influence_by_group
    rows = draw_rows({f"n{i}": 0.5 for i in range(6)}, 4, 12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Examples,
            "influence_by_group",
            lambda self: (calls.append(1), original(self))[1],
        )
        jaxpt.verdict(rows)
    assert len(calls) <= 2 * 6 * 4 < len(list(itertools.combinations(range(6), 2))) * 8
