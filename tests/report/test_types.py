"""A report as typed data: a stored one is written the same, a wrong one is refused."""

import dataclasses
import json
from pathlib import Path

import pytest
from reports import make_full_report, make_report, make_runs, vary

from jaxpt.comparison.studies import load_study
from jaxpt.report.metrics import METRICS
from jaxpt.report.types import Report, load_report
from jaxpt.report.wording import count, join, word_outcome, word_pair

RESULTS = Path(__file__).parents[2] / "results"
STUDIES = sorted(path.parent for path in RESULTS.rglob("study.json"))


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.name)
def test_a_studys_report_is_written_as_it_was_read(path):
    content = load_study(path).report
    assert Report.from_json(content).to_json() == content


def test_a_report_reads_back_equal():
    report = make_full_report()
    assert Report.from_json(json.loads(json.dumps(report.to_json()))) == report


def test_a_report_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        make_full_report().title = "another"


@pytest.mark.parametrize(
    "change, message",
    [
        ({"format": 2}, "format is 2; this version reads 1"),
        ({"format": "new"}, "format is 'new'; this version reads 1"),
        ({"alpha": "5 %"}, "alpha is '5 %'; must be a finite number"),
        ({"runs": [{"name": "a", "seed": 0}]}, "runs[0] has no objective"),
        ({"metrics": {}}, "metrics is {}; must be a list"),
        ({"budget": {"kind": "flops"}}, "budget has no amount"),
        ({"diverged": [{"name": "a", "seed": -1}]}, "diverged[0].seed is -1"),
    ],
)
def test_a_file_that_is_not_a_report_gets_one_line(change, message, tmp_path, refuses):
    content = make_full_report().to_json() | change
    with pytest.raises(ValueError) as error:
        Report.from_json(content)
    assert str(error.value).startswith(message) and "\n" not in str(error.value)
    path = tmp_path / "report.json"
    path.write_text(json.dumps(content))
    with refuses(f"{path}: {message}", "made by jaxpt compare"):
        load_report(path, "must be made by jaxpt compare")


def test_other_names_of_a_run_are_kept():
    run = vary(make_runs({"clm": [0.5]})[0], device="1 x cpu", later=[1])
    assert run.to_json()["device"] == "1 x cpu" and run.cost("later") == [1]


def test_each_outcome_has_one_wording():
    """The phrase of a pair has the words of its outcome, whatever it is."""
    values = {
        "a": [0.9, 0.901, 0.902, 0.9],
        "b": [0.5, 0.501, 0.5, 0.502],
        "c": [0.501, 0.5, 0.502, 0.5],
        "d": [0.5, 0.7, 0.4, 0.6],
    }
    (metric,) = make_report(make_runs(values)).metrics
    kinds = set()
    for pair in metric.pairs:
        kinds.add(pair.outcome)
        phrase = word_pair(pair, metric.margin)
        assert word_outcome(pair, metric.margin).partition(",")[0] in phrase
    assert {"ahead", "equivalent", "tie"} <= kinds


def test_names_of_metrics_have_no_commas_and_lists_of_others_are_clear():
    assert not any("," in metric.label for metric in METRICS.values())
    assert join(["accuracy, 8 labels", "bits"]) == "accuracy, 8 labels; and bits"


@pytest.mark.parametrize("num", range(1, 8))
def test_all_are_said_to_be_behind_only_if_all_are(num):
    names = [f"n{i}" for i in range(num)]
    assert ("all" in count(names, num)) == (num > 3)
    assert "all" not in count(names, num + 1)
    assert join(names).count("n") + ("more" in join(names)) >= min(num, 4)
