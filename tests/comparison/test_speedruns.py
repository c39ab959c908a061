"""Records of speedruns and the folders of results/: rules, checks, the page."""

import functools
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import speedruns
from redraw import redraw
from results_page import make_results_page
from speedruns import check_folder, check_record, list_records

from jaxpt.comparison.studies import (
    check_study,
    list_runs,
    list_studies,
    load_study,
)
from jaxpt.comparison.study_files import write_study
from jaxpt.config.config_files import read_config_file
from jaxpt.config.settings import to_dict
from jaxpt.errors import UserError
from jaxpt.runs.workdir import flatten

OBJECTIVES = ("clm", "mlm", "span_corruption", "electra")
ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
SPEEDRUNS = RESULTS / "speedruns"
MOST_FILES, MOST_BYTES = 160, 9_000_000
RECORDS = sorted(path.parent for path in SPEEDRUNS.glob("*/*/*/study.json"))
STUDIES = sorted(path.parent for path in RESULTS.glob("*/study.json"))


def test_the_results_are_few_small_files():
    """Of those that git tracks: a study is three files."""
    command = ["git", "ls-files", "-z", "--", str(RESULTS)]
    listed = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if listed.returncode:
        pytest.skip("is no checkout of git")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    assert 90 < len(paths) <= MOST_FILES
    assert sum(path.stat().st_size for path in paths) <= MOST_BYTES
    for folder in [*STUDIES, *RECORDS]:
        names = {path.name for path in paths if path.parent == folder}
        assert names == {"study.json", "runs.json.gz", "values.npz"}


def test_the_package_does_not_need_the_tools_of_results():
    names = {path.stem for path in (RESULTS / "tools").glob("*.py")}
    assert {"check", "redraw", "speedruns", "results_page"} <= names
    for path in (ROOT / "jaxpt").rglob("*.py"):
        imported = re.findall(r"^\s*(?:from|import) (\S+)", path.read_text(), re.M)
        assert not names & {name.partition(".")[0] for name in imported}, path


@pytest.mark.parametrize("folder", [*STUDIES, *RECORDS], ids=lambda path: path.name)
def test_the_folders_of_the_repository_are_valid(folder):
    assert "valid" in check_folder(folder)


@pytest.fixture
def submitted(tmp_path):
    """A copy of the record of mlm, with the targets."""
    root = tmp_path / "speedruns"
    shutil.copytree(SPEEDRUNS / "cpu" / "mlm" / "adamw", root / "cpu" / "mlm" / "adamw")
    for name in ("targets.json", "accepted.json", "curve.json"):
        shutil.copy(SPEEDRUNS / name, root)
    return root / "cpu" / "mlm" / "adamw"


def set_rules(folder, **changes):
    """Changes the rules, and those of the scale."""
    path = folder.parents[2] / "targets.json"
    rules = json.loads(path.read_text())
    for name, value in changes.items():
        (rules if name in rules else rules["scales"]["cpu"])[name] = value
    path.write_text(json.dumps(rules))


def accept(folder):
    """Lists a folder as an accepted record."""
    root = folder.parents[2]
    names = json.loads((root / "accepted.json").read_text())
    names[folder.relative_to(root).as_posix()] = load_study(folder).facts["sha256"]
    (root / "accepted.json").write_text(json.dumps(names))


def refuse(folder, words):
    with pytest.raises(UserError, match=words):
        check_record(folder)


def test_a_record_has_its_cost(submitted):
    record = check_record(submitted)
    runs = load_study(submitted).report["runs"]
    assert record.flops == pytest.approx(sum(r["flops"] for r in runs) / len(runs))
    assert len(record.values) == len(runs) >= 3 and record.p < 0.01
    assert f"{len(runs)} seeds, target above 0.6" in record.describe()
    (listed,) = list_records(submitted.parents[2], "cpu")["mlm"]
    assert listed.describe() == record.describe()


def test_a_records_flops_include_the_optimizers():
    """The products of Muon."""
    folder = SPEEDRUNS / "cpu" / "mlm" / "muon-rotary"
    runs = load_study(folder).report["runs"]
    run = list_runs(load_study(folder))[0]
    added = run.result["steps"] * run.task.update_flops
    whole = check_record(folder).flops
    assert {r["flops"] for r in runs} == {whole}  # all seeds take equal steps
    assert added > 0.05 * (whole - added)


def test_a_mean_that_is_not_surely_better_is_refused(submitted):
    target = {"metric": "choice_bayes_accuracy", "above": 0.68}
    set_rules(submitted, objectives={"mlm": target})
    refuse(
        submitted, "missed-target: .*must be above 0.68 with p below 0.01, but p is 0."
    )
    set_rules(submitted, objectives={"mlm": {"metric": "nothing", "above": 0.1}})
    refuse(submitted, "other-metric: a run has no nothing")
    set_rules(submitted, objectives={"mlm": {"metric": "choice_bayes_accuracy"}})
    assert "the first baseline" in check_record(submitted).describe()
    set_rules(submitted, objectives={})
    refuse(submitted, "must be in a folder of one of")


def test_seeds_settings_and_objective_are_checked(submitted):
    set_rules(submitted, min_seeds=10)
    refuse(submitted, "at least 10")
    settings = speedruns.load_targets(SPEEDRUNS)["scales"]["cpu"]["settings"]
    fewer = {k: v for k, v in settings.items() if k != "eval.choice_questions"}
    set_rules(submitted, min_seeds=3, settings=fewer)
    refuse(submitted, "eval.choice_questions=2000; must be 1000")
    other = submitted.parents[1] / "clm" / "adamw"
    shutil.copytree(submitted, other)
    accept(other)
    refuse(other, "must have runs of clm and no other")


def test_a_gap_in_the_seeds_is_refused(submitted, monkeypatch):
    """Whoever leaves out the worst seed cannot hide it."""
    study = load_study(submitted)
    report = study.stored["report"]
    report["runs"] = [run for run in report["runs"] if run["seed"] != 1]
    monkeypatch.setattr(speedruns, "load_study", lambda folder: study)
    refuse(submitted, "without a gap")


def forge(folder, change):
    """Writes a study again, with new checksums, after a change of what it stores."""
    study = load_study(folder)
    change(study.stored, study.values)
    write_study(folder, study.facts, study.stored, study.values)


def test_results_without_their_values_are_refused(submitted):
    """Better numbers, with new checksums."""

    def change(stored, values):
        for run in stored["report"]["runs"]:
            run["metrics"]["choice_bayes_accuracy"] += 0.1

    forge(submitted, change)
    with pytest.raises(UserError, match="its choice_bayes_accuracy is 0.*by example"):
        check_study(submitted)


def test_costs_are_counted_again(submitted):
    """Those of another version; the verdicts at other equal costs change with them."""
    before = load_study(submitted).stored

    def change(stored, values):
        for run in stored["report"]["runs"]:
            run["flops"] *= 2
            del run["operations"]

    forge(submitted, change)
    old, new = redraw(submitted)
    assert old["runs"][0]["flops"] == 2 * new["runs"][0]["flops"]
    after = load_study(submitted).stored["report"]["runs"]
    for one, other in zip(after, before["report"]["runs"], strict=True):
        assert one["operations"] == pytest.approx(other["operations"])
        assert one["curve"] == other["curve"]
        assert one.keys() == other.keys()


@pytest.mark.parametrize(
    ("name", "scale"),
    [
        ("config.py:{}", "cpu"),
        ("muon_rotary.py:{}", "cpu"),
        ("large.py:{},gpu", "gpu"),
        ("large.py:{},node", "node"),
    ],
)
def test_targets_and_configs_agree(name, scale):
    rules = speedruns.load_targets(SPEEDRUNS)["scales"][scale]
    for objective in rules["objectives"]:
        path = f"{SPEEDRUNS}/{name.format(objective)}"
        settings = flatten(json.loads(json.dumps(to_dict(read_config_file(path)))))
        assert {n: settings[n] for n in rules["settings"]} == rules["settings"]
        assert settings["compare.objectives"] == [objective]


def test_check_prints_a_line_and_exits_with_1_for_an_invalid_folder(submitted):
    def check(*folders):
        command = [sys.executable, RESULTS / "tools" / "check.py", *map(str, folders)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        assert not done.stderr
        return done.returncode, done.stdout

    code, out = check(submitted)
    assert (code, out.count("\n")) == (0, 1) and "valid record. mlm:" in out
    (submitted / "values.npz").unlink()
    code, out = check(submitted)
    assert (code, out.count("\n")) == (1, 1) and "NOT valid" in out


def test_the_page_shows_studies_and_records(submitted, tmp_path):
    """A record is a study, so it also serves as one here."""
    shutil.copytree(submitted, tmp_path / "first")
    files = make_results_page(tmp_path)
    page = files.pop("results.md")
    (study,) = list_studies(tmp_path)
    assert study.facts["command"] in page and study.facts["machines"][0]["cpu"] in page
    assert "[mlm to 0.6 in the multiple-choice cloze with AdamW](#first)" in page
    assert "| 1 | mlm | 0.691 | " in page and "Costs of a run" in page
    assert "`speedruns/cpu/mlm/adamw`" in page
    assert "| `span_corruption` |" in page  # without a record
    pictures = [f"results/first/{x}.svg" for x in ("learning_curves", "shared_metrics")]
    assert list(files) == pictures
    for path, data in files.items():
        assert f'src="{path.removeprefix("results/")}"' in page
        assert data.startswith(b"<svg")
    assert "None is archived yet" in make_results_page(submitted)["results.md"]


def test_the_documentation_has_the_differences_of_the_study():
    """The table of docs/downstream.md, in bold where the verdict is significant."""
    study = RESULTS / "pretraining_pays"
    metrics = load_report(study.name)["metrics"]
    by_name = {metric["metric"]: metric["baselines"] for metric in metrics}
    text = (ROOT / "docs" / "downstream.md").read_text(encoding="utf-8")
    table = text.partition("### Does pretraining pay?")[2].partition("\n- ")[0]
    cells = [[c.strip(" `") for c in x.split("|")[1:-1]] for x in table.splitlines()]
    (header,) = [row[2:] for row in cells if row[:2] == ["task", "labels"]]
    rows = [row for row in cells if row and row[0] in ("ag_news", "upos")]
    rows += [row for row in cells if row and row[0] == "ag_news_frozen"]
    assert len(rows) == 15 and len(header) == 5
    for task, labels, *values in rows:
        baselines = by_name[f"task_{task}_{labels.replace(',', '')}"]
        for name, value in zip(header, values, strict=True):
            own = {name, "(untrained)"}
            (each,) = [b for b in baselines if {b["better"], b["worse"]} == own]
            sign = 1 if each["better"] == name else -1
            expected = f"{sign * each['difference']:+.3f}"
            if each["outcome"] == "ahead" and sign > 0:
                expected = f"**{expected}**"
            assert value == expected, (task, labels, name)


BUDGETS = ("1e12", "3e12", "9e12")
ORDERINGS = tuple(f"orderings-{flops}" for flops in BUDGETS)
SIZES = tuple(f"sizes-{flops}" for flops in BUDGETS)
REPETITIONS = tuple(f"repetition-{epochs}" for epochs in (1, 4, 16, 64))
FLOPS, SECONDS = (
    tuple(f"multi_token-{width}-{budget}" for width in (32, 64, 96))
    for budget in ("flops", "seconds")
)


@pytest.mark.parametrize(
    ("page", "section", "studies", "name", "count"),
    [
        ("orderings", "Bigram-matched cloze", ORDERINGS, "pair_accuracy", 18),
        ("orderings", "Log score", ORDERINGS, "pair_nats", 12),
        ("orderings", "Multiple-choice cloze", ORDERINGS, "choice_bayes_accuracy", 18),
        ("orderings", "Masked tokens", ORDERINGS, "cloze_accuracy", 7),
        ("orderings", "Bits per byte", ORDERINGS, "bits_per_byte", 2),
        ("orderings", "Sizes", SIZES, "choice_bayes_accuracy", 10),
        ("orderings", "Validation loss of the sizes", SIZES, "valid_loss", 10),
        (
            "repetition",
            "Multiple-choice cloze",
            REPETITIONS,
            "choice_bayes_accuracy",
            15,
        ),
        ("repetition", "Bits per byte", REPETITIONS, "bits_per_byte", 6),
        ("repetition", "Bits per masked token", REPETITIONS, "cloze_bits", 6),
        ("multi-token", "Equal FLOPs", FLOPS, "bits_per_byte", 9),
        ("multi-token", "Equal seconds", SECONDS, "bits_per_byte", 9),
    ],
)
def test_the_documentation_has_the_values_of_the_studies(
    page, section, studies, name, count
):
    """A column for each study: means, and differences, bold where significant."""
    text = (ROOT / "docs" / "results" / f"{page}.md").read_text(encoding="utf-8")
    part = re.split(r"\n##+ ", text.partition(f"# {section}\n")[2])[0]
    rows = re.findall(r"^\| `([\w-]+)`(?: - `(\w+)`)? \| (.*) \|$", part, re.M)
    assert len(rows) == count
    metrics = [read_metric(study, name) for study in studies]
    for first, second, cells in rows:
        expected = [word_cell(metric, first, second) for metric in metrics]
        assert cells.split(" | ") == expected, (first, second)


@pytest.mark.parametrize(
    ("section", "family", "second"),
    [
        ("Added to causal language modelling", "causal", "bits_per_byte"),
        ("Kinds of masked language modelling", "masked", "cloze_bits"),
        ("Diffusion", "diffusion", "cloze_bits"),
        ("Encoder and decoder", "seq2seq", "pair_nats"),
        ("Both kinds of rows", "both", "bits_per_byte"),
    ],
)
def test_the_documentation_has_the_study_of_thirty_objectives(section, family, second):
    """For each of two metrics the mean, and the lead over the family's control."""
    text = (ROOT / "docs" / "results" / "objectives.md").read_text(encoding="utf-8")
    part = re.split(r"\n##+ ", text.partition(f"## {section}\n")[2])[0]
    rows = re.findall(r"^\| `([\w-]+)` \| (.*) \|$", part, re.M)
    study = f"objectives-30-{family}"
    metrics = [read_metric(study, name) for name in ("pair_accuracy", second)]
    assert {name for name, _ in rows} == {
        *metrics[0]["by_name"],
        *metrics[1]["by_name"],
    }
    control = rows[0][0]
    assert control == load_report(study)["control"]
    for name, cells in rows:
        expected = []
        for metric in metrics:
            has_value = name in metric["by_name"]
            expected.append(word_cell(metric, name, "") if has_value else "")
            is_judged = has_value and name != control
            expected.append(word_cell(metric, name, control) if is_judged else "")
        assert [cell.strip() for cell in f"{cells} ".split("|")] == expected, name


def test_the_documentation_has_the_options_of_the_studies():
    """Means and differences of docs/results/options.md, bold where significant."""
    text = (ROOT / "docs" / "results" / "options.md").read_text(encoding="utf-8")
    tables = [
        ("Multiple-choice cloze", "choice_bayes_accuracy", OBJECTIVES),
        ("Bits per byte", "bits_per_byte", OBJECTIVES[:1]),
        ("Bits per masked token", "cloze_bits", OBJECTIVES[1::2]),
    ]
    for section, name, objectives in tables:
        part = text.partition(f"## {section}\n")[2].partition("\n## ")[0]
        rows = re.findall(r"^\| `?(\w+)`? \| (.*[\d\]]) \|$", part, re.M)
        assert len(rows) == 12, section
        for option, cells in rows:
            expected = []
            for objective in objectives:
                metric = read_metric(f"options-{objective}", name)
                names = (f"{objective}-{option}", objective)
                names = (objective, "") if option == "none" else names
                expected.append(word_cell(metric, *names))
            assert cells.split(" | ") == expected, (section, option)


def test_the_documentation_has_the_accuracies_beyond_bigrams():
    """Printed by results/tools/beyond_bigrams.py, for each budget of the orderings."""
    text = (ROOT / "docs" / "results" / "orderings.md").read_text(encoding="utf-8")
    part = text.partition("| accuracy beyond bigrams |")[2].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", part, re.M))
    command = [sys.executable, RESULTS / "tools" / "beyond_bigrams.py"]
    folders = [RESULTS / name for name in ORDERINGS]
    done = subprocess.run([*command, *folders], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(rows) == 6 and done.stdout.count("bigrams 0.862") == 3
    for name, cells in rows.items():
        found = re.findall(rf"  {name}: ([\d.]+) if", done.stdout)
        assert cells.split(" | ") == found, name


@functools.cache
def load_report(study):
    return load_study(RESULTS / study).report


def read_metric(study, name):
    metrics = load_report(study)["metrics"]
    (metric,) = [metric for metric in metrics if metric["metric"] == name]
    return metric


def word_cell(metric, first, second):
    if not second:
        values = metric["by_name"][first]
        return f"{values['mean']:.3f} ± {values['std']:.3f}"
    (pair,) = [
        p for p in metric["pairs"] if {p["better"], p["worse"]} == {first, second}
    ]
    sign = 1 if pair["better"] == first else -1
    low, high = sorted((sign * pair["low"], sign * pair["high"]))
    mark = "**" if pair["outcome"] == "ahead" else ""
    return f"{mark}{sign * pair['difference']:+.3f}{mark} [{low:.3f}, {high:.3f}]"
