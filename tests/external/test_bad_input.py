"""Bad tables, samples and arguments: one line that says where, what and what may be."""

import json
import re

import numpy as np
import pytest
from external.samples import draw_rows, draw_seeds, write_csv, write_samples

import jaxpt
from jaxpt.cli.main import main

HEAD = "system,seed,score\n"
GOOD = HEAD + "".join(
    f"{name},{seed},{0.5 + seed / 100 + lead}\n"
    for name, lead in (("a", 0.2), ("b", 0.0))
    for seed in range(4)
)
EXAMPLES = "system,seed,example,group,score\n" + "".join(
    f"{name},{seed},e{e},g{e // 2},{(e + seed) % 2}\n"
    for name in "ab"
    for seed in range(4)
    for e in range(4)
)


def fails(capsys, *argv):
    """Runs the command, which must fail with one line; the line."""
    capsys.readouterr()
    assert main(["verdict", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("jaxpt: error: ") and err.count("\n") == 1, err
    assert "Traceback" not in err
    return err.removeprefix("jaxpt: error: ").strip()


def change(text, old, new):
    assert old in text
    return text.replace(old, new, 1)


# {name: (the text of a CSV file, flags, what the line must match)}
TABLES = {
    "empty": ("", [], r"t.csv: is empty; must have a header and rows"),
    "blank": ("\n \n", [], r"t.csv: is empty; must have a header and rows"),
    "header alone": (HEAD, [], r"t.csv: has a header but no rows"),
    "no system": (
        change(GOOD, "system", "model"),
        [],
        r"no column 'system'; its columns are model, seed, score.*--system names",
    ),
    "no score": (
        change(GOOD, "score", "skore"),
        [],
        r"no column 'score' \(did you mean skore\?\).*--score names",
    ),
    "no such score": (GOOD, ["--score=f1"], r"t.csv: has no column 'f1'; its columns"),
    "no such group": (GOOD, ["--group=doc"], r"no column 'doc'.*--group names"),
    "no such seed": (GOOD, ["--seed=sed"], r"no column 'sed' \(did you mean seed\?\)"),
    "no such step": (GOOD, ["--step=s"], r"no column 's'.*--step names"),
    "no such cost": (GOOD, ["--cost=flops"], r"no column 'flops'.*--cost names"),
    "two columns": (
        change(GOOD, "seed", "score"),
        [],
        r"t.csv: has two columns 'score'; must have one",
    ),
    "short row": (
        change(GOOD, "a,1,0.71", "a,1"),
        [],
        r"t.csv: line 3: has 2 fields; must have 3, as the header",
    ),
    "long row": (
        change(GOOD, "b,3,", "b,3,4,"),
        [],
        r"t.csv: line 9: has 4 fields; must have 3, as the header",
    ),
    "long quoted row": (
        change(change(GOOD, "b,3,", "b,3,4,"), "a,0", '"a",0'),
        [],
        r"t.csv: line 9: has 4 fields; must have 3",
    ),
    "open quote": (
        change(GOOD, "b,3", '"b,3'),
        [],
        r"t.csv: line 9: is not CSV: unexpected end of data",
    ),
    "text for a score": (
        change(GOOD, "0.71", "high"),
        [],
        r"t.csv: line 3: score is 'high'; must be a number, finite",
    ),
    "no score in a row": (
        change(GOOD, "0.71", ""),
        [],
        r"t.csv: line 3: score is empty; must be a number, finite",
    ),
    "comma for a point": (
        change(GOOD, "0.71", '"0,71"'),
        [],
        r"t.csv: line 3: score is '0,71'; must be a number",
    ),
    "nan": (change(GOOD, "0.71", "nan"), [], r"line 3: score is 'nan'; must be a num"),
    "inf": (change(GOOD, "0.71", "-inf"), [], r"line 3: score is '-inf'; must be a nu"),
    "huge": (change(GOOD, "0.71", "1e999"), [], r"line 3: score is '1e999'; must be"),
    "no name": (
        change(GOOD, "a,2", ",2"),
        [],
        r"t.csv: line 4: system is empty; must name a system",
    ),
    "twice": (
        GOOD + "a,1,0.9\n",
        [],
        r"t.csv: line 10: repeats a, seed 1 of line 3; must be once",
    ),
    "twice, as numbers": (
        GOOD + "a,1.0,0.9\n",
        [],
        r"t.csv: line 10: repeats a, seed 1 of line 3; must be once",
    ),
    "example twice": (
        EXAMPLES + "b,2,e3,g1,1\n",
        [],
        r"line 34: repeats b, seed 2, example e3, of line 29; must be once",
    ),
    "example missing": (
        change(change(EXAMPLES, "b,2,e3,g1,1\n", ""), "b,2,e0,g0,0\n", ""),
        [],
        r"t.csv: b, seed 2, has no score of 2 of 4 examples: e0, e3; every run must",
    ),
    "other examples": (
        re.sub(r"(b,\d),e", r"\1,x", EXAMPLES),
        [],
        r"a, seed 0, has no score of 4 of 8 examples: x0, x1, x2 and 1 more; every",
    ),
    "example empty": (
        change(EXAMPLES, "b,2,e3", "b,2,"),
        [],
        r"t.csv: line 29: example is empty; must be given in all rows of score or in",
    ),
    "other group": (
        change(EXAMPLES, "b,2,e3,g1", "b,2,e3,g0"),
        [],
        r"line 29: example e3 has the group g0, and g1 in line 5; must be the same",
    ),
    "other weight": (
        EXAMPLES.replace("group", "weight").replace("g0", "1").replace("g1", "2")
        + "c,0,e0,9,1\n",
        [],
        r"t.csv: c, seed 0, has no score of 3 of 4 examples|weight 9, and 1 in line 2",
    ),
    "weight below 0": (
        EXAMPLES.replace("group", "weight").replace("g0", "1").replace("g1", "-2"),
        [],
        r"t.csv: line 4: weight is -2; must be >= 0",
    ),
    "no weight": (
        EXAMPLES.replace("group", "weight").replace("g0", "0").replace("g1", "0"),
        [],
        r"t.csv: all weights are 0; one must be above 0",
    ),
    "other cost": (
        EXAMPLES.replace("group", "cost").replace("g0", "1").replace("g1", "2"),
        [],
        r"line 4: a, seed 0, has the cost 2, and 1 before; must be one cost for each",
    ),
    "text for a cost": (
        EXAMPLES.replace("group", "cost").replace("g0", "1").replace("g1", "much"),
        [],
        r"t.csv: line 4: cost is 'much'; must be a number, finite",
    ),
    "one system": (
        GOOD.replace("b,", "a,1").replace("a,13", "a,9"),
        [],
        r"t.csv: has one system, a; must have at least two",
    ),
    "one seed": (
        HEAD + "a,0,0.5\nb,0,0.4\n",
        [],
        r"t.csv: score has one seed of each system; must have at least 4 \(5 are rec",
    ),
    "no seeds": (
        "system,score\na,0.5\nb,0.4\n",
        [],
        r"t.csv: score has one seed of each system; must have at least 4",
    ),
    "fixed without examples": (
        GOOD,
        ["--fixed"],
        r"score has 0 examples or groups of them; --fixed needs at least 10",
    ),
    "fixed with few": (
        EXAMPLES,
        ["--fixed"],
        r"score has 2 examples or groups of them; --fixed needs at least 10",
    ),
    "step and example": (
        change(EXAMPLES, "group", "step"),
        [],
        r"has the columns 'step' and 'example'; a history must be without examples",
    ),
    "text for a step": (
        change(GOOD, "seed", "step"),
        ["--step=system"],
        r"t.csv: line 2: system is 'a'; must be a number, finite",
    ),
    "step twice": (
        "system,step,score\na,1,0.5\na,1,0.4\n",
        [],
        r"line 3: repeats step 1 of a, seed 0, of line 2; must be once",
    ),
    "history without scores": (
        "system,step,score\na,1,\nb,1,\n",
        [],
        r"t.csv: column 'score' is empty in all rows",
    ),
    "metric empty": (
        change(GOOD, "seed", "metric").replace("a,2", "a,"),
        [],
        r"t.csv: line 4: metric is empty; must name a metric",
    ),
    "metric and scores": (
        change(GOOD, "seed", "metric"),
        ["--score=score,system"],
        r"--score=score,system: must be one column, as the metric of each row is in",
    ),
    "no such metric": (
        GOOD,
        ["--lower=skore"],
        r"--lower=skore: no such metric \(did you mean score\?\); must be of score",
    ),
    "alpha 0": (GOOD, ["--alpha=0"], r"--alpha=0: must be between 0 and 1"),
    "alpha 5": (GOOD, ["--alpha=5"], r"--alpha=5: must be between 0 and 1"),
    "margin": (GOOD, ["--margin=-1"], r"--margin=-1: must be at least 0, finite"),
    "span": (GOOD, ["--span=-1"], r"--span=-1: must be at least 0, finite"),
    "span inf": (GOOD, ["--span=inf"], r"--span=inf: must be at least 0, finite"),
    "form": (GOOD, ["--format=xml"], r"format"),
    "flag": (GOOD, ["--scor=a"], r"--scor: unknown flag.*did you mean --score\?"),
    "word after a flag": (GOOD, ["--pairs", "t.csv"], r"t.csv: unexpected"),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_bad_table_is_one_line(name, tmp_path, monkeypatch, capsys):
    text, flags, expected = TABLES[name]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    assert re.search(expected, fails(capsys, "t.csv", *flags))


def test_the_tables_are_good_without_their_faults(tmp_path, capsys):
    for text in (GOOD, EXAMPLES):
        (tmp_path / "t.csv").write_text(text)
        assert main(["verdict", str(tmp_path / "t.csv")]) == 0
    assert "letters" in capsys.readouterr().out


BYTES = {
    "latin1.csv": (
        GOOD.replace("b,", "\xe9,").encode("latin1"),
        "line 6: has the byte",
    ),
    "utf16.csv": (GOOD.encode("utf-16"), "line 1: has the byte 0xff, which is not UTF"),
    "t.parquet": (b"PAR1 not", "damaged .parquet data"),
    "t.csv.gz": (b"\x1f\x8b\x08 not", "damaged .gz data|truncated"),
    "t.xlsx": (b"PK", r"must be one file of .csv, .tsv, .tab, .parquet, .pq; or fold"),
    "table": (b"a", r"must be one file of .csv"),
}


@pytest.mark.parametrize("name", BYTES)
def test_a_damaged_file_is_one_line(name, tmp_path, monkeypatch, capsys):
    data, expected = BYTES[name]
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(data)
    line = fails(capsys, name)
    assert line.startswith(f"{name}: ") and re.search(expected, line), line


def test_missing_files_are_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert fails(capsys, "no.csv") == "no.csv: not found"
    assert fails(capsys, "m=no") == "m=no: not found"
    assert fails(capsys) == "verdict: must be followed by a file, or by folders"
    (tmp_path / "a.csv").write_text(GOOD)
    (tmp_path / "b.csv").write_text(GOOD)
    assert "must be one file" in fails(capsys, "a.csv", "b.csv")
    (tmp_path / "out").mkdir()
    assert fails(capsys, "out").startswith("out: no samples_*.jsonl below it; must be")
    assert fails(capsys, "m=out").startswith("out: no samples_*.jsonl below it")
    (tmp_path / "out.jsonl").write_text("{}")
    assert "must be named samples_TASK_DATE.jsonl" in fails(capsys, "out.jsonl")


def find_samples(folder):
    return sorted(folder.rglob("samples_*.jsonl"))


def edit(change_lines):
    """A fault of the last file of samples, by its lines."""

    def spoil(folder):
        path = find_samples(folder)[-1]
        lines = path.read_text().splitlines()
        path.write_text("\n".join(change_lines(lines)))

    return spoil


def edit_sample(**changes):
    def alter(lines):
        sample = json.loads(lines[2]) | changes
        sample = {key: value for key, value in sample.items() if value is not ...}
        return [*lines[:2], json.dumps(sample), *lines[3:]]

    return edit(alter)


def lose_task(folder):
    write_samples(folder, draw_rows(), "other")
    next(p for p in find_samples(folder) if "other" in p.name).unlink()


def add_twin(folder):
    write_samples(folder / "more", draw_rows({"good": 0.5}, 1))


# {name: (what is done to the samples, flags, what the line must match)}
SAMPLES = {
    "empty": (edit(lambda _: []), [], r"same-seed4/samples_.*: is empty; must have"),
    "truncated": (
        edit(lambda lines: [*lines[:5], lines[5][:40]]),
        [],
        r"same-seed4/samples_.*: line 6: .*; must be a sample, as lm_eval writes",
    ),
    "not JSON": (edit(lambda x: ["a", *x]), [], r"line 1: .*; must be a sample"),
    "a list": (edit(lambda x: ["[]", *x]), [], r"line 1: .*; must be a sample"),
    "no doc_id": (edit_sample(doc_id=...), [], r"line 3: its doc_id is None; must be"),
    "doc_id 1.5": (edit_sample(doc_id=1.5), [], r"line 3: its doc_id is 1.5; must be"),
    "no score": (edit_sample(acc=...), [], r"line 3: has no 'acc', as the samples bef"),
    "text": (edit_sample(acc="yes"), [], r"line 3: acc is 'yes'; must be a number"),
    "null": (edit_sample(acc=None), [], r"line 3: acc is empty; must be a number"),
    "NaN": (edit_sample(acc=float("nan")), [], r"line 3: acc is nan; must be a number"),
    "list": (edit_sample(acc=[1, 2]), [], r"line 3: acc is \[1, 2\]; must be a number"),
    "twice": (
        edit(lambda x: [*x, x[0]]),
        [],
        r"line 61: repeats same, seed 4, example 0, of .*line 1; must be once",
    ),
    "fewer": (
        edit(lambda x: x[:-2]),
        [],
        r"order: same, seed 4, has no order/acc of 2 of 60 examples: 58, 59; every run",
    ),
    "a task missing": (
        lose_task,
        [],
        r"good, seed 0, has no samples of other, as .*; every run must have the same t",
    ),
    "no such task": (
        lambda _: None,
        ["--tasks=ordre"],
        r"--tasks=ordre: not among the samples \(did you mean order\?\); must be of o",
    ),
    "no such metric": (
        lambda _: None,
        ["--score=f1"],
        r"--score=f1: order has no such score of each document; must be of acc, acc_n",
    ),
    "no such filter": (
        lambda _: None,
        ["--filter=strict"],
        r"has no samples of the filter 'strict'; --filter must be of none",
    ),
    "no such group": (
        lambda _: None,
        ["--group=page"],
        r"line 1: its doc has no text or number 'page'; --group must be a key of every",
    ),
    "two of one name": (
        add_twin,
        [],
        r"is good, seed 0, as is .*; must be named apart, by NAME:SEED=PATH",
    ),
    "other metrics": (
        edit(lambda lines: [x.replace('"acc"', '"f1"') for x in lines]),
        [],
        r"same-seed4/.* has no 'acc', as .* has; every run must have the same metrics",
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_bad_samples_are_one_line(name, tmp_path, monkeypatch, capsys):
    spoil, flags, expected = SAMPLES[name]
    monkeypatch.chdir(tmp_path)
    write_samples(tmp_path / "out", draw_rows())
    spoil(tmp_path / "out")
    line = fails(capsys, "out", *flags)
    assert re.search(expected, line), line


def test_samples_without_means_are_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_samples(tmp_path / "out", draw_rows(), metrics=["acc"], acc=[-3.5, 7])
    assert "has no metric that is a number for each document" in fails(capsys, "out")


def test_one_model_of_each_is_refused_unless_fixed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_samples(tmp_path / "out", draw_rows(seeds=1))
    line = fails(capsys, "out")
    assert "one seed of each system" in line and "or --fixed, for a verdict on" in line
    assert main(["verdict", "out", "--fixed"]) == 0


# {name: (a table in memory, what the message must match)}
MEMORY = {
    "a number": (5, r"table: is a int; must be a pandas DataFrame, a mapping of col"),
    "nothing": (None, r"table: is a NoneType; must be"),
    "no rows": ([], r"table: has no rows"),
    "no columns": ({}, r"table: has no rows"),
    "lists": ([[1, 2]], r"table: is a list; must be a pandas DataFrame"),
    "lengths": (
        {"system": ["a"], "score": [1, 2]},
        r"unequal length: system 1, score 2",
    ),
    "a text": ({"system": "ab", "score": [1, 2]}, r"column 'system' is a str; must be"),
    "a scalar": ({"system": ["a"], "score": 1}, r"column 'score' is a int; must be"),
    "2 axes": (
        {"system": ["a", "b"], "score": np.ones((2, 2))},
        r"table: row 0: score is \[1.0, 1.0\]; must be a number",
    ),
    "none": (
        [{"system": "a", "score": 1}, {"system": "b"}],
        r"table: row 1: score is empty; must be a number",
    ),
    "no system": ([{"model": "a", "score": 1}], r"table: has no column 'system'"),
}


@pytest.mark.parametrize("name", MEMORY)
def test_a_bad_table_in_memory_is_one_line(name):
    table, expected = MEMORY[name]
    with pytest.raises(jaxpt.UserError) as error:
        jaxpt.verdict(table)
    assert "\n" not in str(error.value) and re.search(expected, str(error.value))


def test_a_bad_pandas_table_is_one_line(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(draw_seeds())
    frame.loc[3, "score"] = None
    with pytest.raises(jaxpt.UserError, match="table: row 3: score is nan; must be a"):
        jaxpt.verdict(frame)
    frame.loc[3, "score"] = 0.5
    frame["system"] = frame["system"].where(frame.index != 2)
    with pytest.raises(jaxpt.UserError, match="table: row 2: system is empty"):
        jaxpt.verdict(frame)
    with pytest.raises(jaxpt.UserError, match="score has no column|no column 'f1'"):
        jaxpt.verdict(draw_seeds(), score="f1")
    path = write_csv(tmp_path / "a.csv", draw_seeds())
    with pytest.raises(jaxpt.ConfigError, match=r"^alpha=2: must be between 0 and 1"):
        jaxpt.verdict(path, alpha=2)
