"""Expected outcomes: registered before the first run, and found or not."""

import hashlib
import json
import shutil

import pytest
from comparison.conftest import draw_nothing
from tiny import make_config, write_stored

from jaxpt.cli import main as cli
from jaxpt.comparison import compare as comparison
from jaxpt.comparison.archive import archive
from jaxpt.comparison.registration import FILE, judge_registration
from jaxpt.comparison.studies import check_study
from jaxpt.comparison.study_files import read_files, write_study
from jaxpt.errors import UserError
from jaxpt.report import figures
from jaxpt.report.terminal import format_table
from jaxpt.report.types import Mean, Metric, Report, Verdict

EXPECTED = ("pair_accuracy: mlm > clm", "pair_accuracy: clm = mlm")


def make(path, *expected, **changes):
    """A comparison of two objectives that expects something."""
    compared = {
        "compare__objectives": ("clm", "mlm"),
        "compare__seeds": (0, 1, 2, 3),
        "compare__amount": 1e7,
        "compare__expected": expected,
        "train__checkpoint_every": 0,
        "eval__word_context": 4,
    }
    return make_config(path, **(compared | changes))


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("some words. more of them, and others.\n" * 200)
    return path


@pytest.fixture(scope="module")
def compared(text, tmp_path_factory):
    """The folder of a registered comparison, its SHA-256 and its report."""
    folder = tmp_path_factory.mktemp("registered") / "runs"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "draw", draw_nothing)
        line = comparison.register(make(text, *EXPECTED), folder)
        assert not (folder / "runs").exists()  # nothing was trained
        first = (folder / FILE).read_bytes()
        report = comparison.compare(make(text, *EXPECTED), folder)
    assert (folder / FILE).read_bytes() == first
    return folder, line.split()[0], report


def test_the_report_has_what_was_registered(compared):
    folder, sha256, report = compared
    content = (folder / FILE).read_bytes()
    assert hashlib.sha256(content).hexdigest() == sha256
    stated = report["registration"]
    assert (stated["sha256"], stated["text"]) == (sha256, content.decode())
    registered = json.loads(content)
    assert registered["seeds"] == [0, 1, 2, 3] and registered["alpha"] == 0.05
    assert registered["expected"] == list(EXPECTED)
    # Exactly one of "mlm is ahead" and "no difference" can be found.
    assert sorted(stated["outcomes"]) == sorted(EXPECTED)
    assert list(stated["outcomes"].values()).count("found") <= 1
    words = " ".join(format_table(Report.from_json(report)).split())
    assert sha256 in words and f"expected {EXPECTED[0]}: " in words


def test_another_registration_is_refused(compared, text, tmp_path):
    folder, _, _ = compared
    copy = shutil.copytree(folder, tmp_path / "copy")
    with pytest.raises(UserError, match="compare.expected"):
        comparison.compare(make(text, EXPECTED[1]), copy)
    # A control may be set later, but not where the verdicts were registered.
    with pytest.raises(UserError, match=f"{FILE}: was registered with other settings"):
        comparison.compare(make(text, *EXPECTED, compare__control="clm"), copy)
    (copy / FILE).unlink()
    with pytest.raises(UserError, match=f"{FILE}: does not exist, but .*runs does"):
        comparison.compare(make(text, *EXPECTED), copy)


def test_an_altered_registration_is_refused(compared, text, tmp_path):
    copy = shutil.copytree(compared[0], tmp_path / "copy")
    altered = (copy / FILE).read_text().replace("mlm > clm", "clm > mlm")
    (copy / FILE).write_text(altered)
    with pytest.raises(UserError, match=FILE):
        comparison.compare(make(text, *EXPECTED), copy)


def test_a_study_keeps_the_registration(compared, tmp_path):
    folder, sha256, report = compared
    archive(folder, tmp_path / "study", "Two objectives", "Which is better?")
    assert (
        check_study(tmp_path / "study").report["registration"]
        == (report["registration"])
    )
    # The hash, and what is registered, must be those of the study.
    facts, stored, values = read_files(tmp_path / "study")
    text = stored["report"]["registration"]["text"]
    other = text.replace("0.05", "0.04")
    for kept, fault in (
        ({"text": other, "sha256": sha256}, "does not have the SHA-256"),
        (
            {"text": other, "sha256": hashlib.sha256(other.encode()).hexdigest()},
            "has alpha 0.04; the comparison 0.05",
        ),
        ({"text": "{", "sha256": hashlib.sha256(b"{").hexdigest()}, FILE),
    ):
        stored["report"]["registration"] = kept
        place = tmp_path / "altered"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        write_study(place, facts, stored, values)
        with pytest.raises(UserError, match=fault):
            check_study(place)


def make_metric(*pairs):
    stats = Mean(0.5, 0.1, 5)
    info = ("cloze", ".3f", True, True, 0.01, "", "", 1.0)
    return Metric(
        *info, "pair_accuracy", {"clm": stats, "mlm": stats}, {}, pairs, (), (), "x"
    )


@pytest.mark.parametrize(
    ("outcome", "better", "found"),
    [
        ("ahead", "clm", {">": "found", "=": "not found"}),
        ("ahead", "mlm", {">": "reversed", "=": "not found"}),
        ("tie", "clm", {">": "not found", "=": "found"}),
        ("equivalent", "mlm", {">": "not found", "=": "found"}),
        ("untested", "clm", {">": "not tested", "=": "not tested"}),
    ],
)
def test_outcomes(outcome, better, found, compared):
    worse = {"clm": "mlm", "mlm": "clm"}[better]
    metric = make_metric(Verdict(better, worse, outcome, 0.1, 0.0, 0.2, 0.2, seeds=5))
    content = json.loads((compared[0] / FILE).read_text())
    content["expected"] = [f"pair_accuracy: clm {sign} mlm" for sign in found]
    judged = judge_registration(json.dumps(content), [metric])
    assert list(judged.outcomes.values()) == list(found.values())
    num = list(found.values()).count("found")
    assert f"{num} of 2 expected outcomes found" in judged.lines[0]
    # A metric that was not measured finds nothing.
    missing = judge_registration(json.dumps(content), [])
    assert set(missing.outcomes.values()) == {"not tested"}


@pytest.mark.parametrize(
    "expected",
    ["cloze", "pair_accuracy: clm", "pair_accuracy: clm < mlm", "x: clm > clm"],
)
def test_a_malformed_expectation_is_one_line(expected, text, tmp_path):
    with pytest.raises(UserError, match=r'compare.expected.*"METRIC: A > B"'):
        comparison.register(make(text, expected), tmp_path / "runs")


@pytest.mark.parametrize(
    ("expected", "changes", "fault"),
    [
        ("pair_accuracy: clm > bert", {}, "of two names among compare.objectives"),
        ("valid_loss: clm > mlm", {}, "the metric must be one of pair_accuracy"),
        ("regret_two_sided: clm > mlm", {}, "clm will not have this metric"),
        (
            "pair_accuracy: clm > mlm",
            {"compare__objectives": ("clm", "mlm", "dual"), "compare__control": "dual"},
            "only pairs with dual have verdicts",
        ),
    ],
)
def test_what_no_report_can_say_is_refused(expected, changes, fault, text, tmp_path):
    with pytest.raises(UserError, match=fault):
        comparison.register(make(text, expected, **changes), tmp_path / "runs")


def test_the_command(text, tmp_path, capsys):
    path = tmp_path / "compare.json"
    write_stored(path, make(text, EXPECTED[1]))
    flags = [f"--config={path}", f"--workdir={tmp_path}/runs", "--register"]
    assert cli.main(["compare", *flags]) == 0
    sha256, place = capsys.readouterr().out.splitlines()[-1].split()
    assert place == f"{tmp_path}/runs/{FILE}" and len(sha256) == 64
    # The same again: the file is kept.
    assert cli.main(["compare", *flags]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[0] == sha256
    assert cli.main(["compare", *flags, "--part=list"]) == 2
    assert "--part=list: must be without --register" in capsys.readouterr().err
    assert cli.main(["compare", *flags, "--config.compare.expected=()"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
