"""The studies of known winners: what their page says of them."""

import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jaxpt.comparison.studies import check_study

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results" / "known-truth.md"
TEXTS = ("hmm-0", "hmm-1", "hmm-2", "pcfg", "copy", "facts", "facts-again")
QUESTIONS = {
    "left to right": "regret_left_to_right",
    "two-sided": "regret_two_sided",
    "whole answers": "answer_accuracy",
}


@functools.cache
def load_report(text):
    return check_study(ROOT / "results" / f"known_winners-{text}").report


def find_metric(text, name):
    (metric,) = [m for m in load_report(text)["metrics"] if m["metric"] == name]
    return metric


def word_expected(text, question, pair):
    """A cell of the page: the lead of the first, bold if it was found."""
    name = QUESTIONS[question]
    outcome = load_report(text)["registration"]["outcomes"][f"{name}: {pair}"]
    first, second = re.split(" [>=] ", pair)
    (verdict,) = [
        p
        for p in find_metric(text, name)["pairs"]
        if {p["better"], p["worse"]} == {first, second}
    ]
    sign = 1 if verdict["better"] == first else -1
    low, high = sorted((sign * verdict["low"], sign * verdict["high"]))
    lead = f"{sign * verdict['difference']:+.3f} [{low:.3f}, {high:.3f}]"
    return f"**{lead}**" if outcome == "found" else f"{lead} ({outcome})"


def test_the_page_has_every_expected_outcome():
    page = PAGE.read_text(encoding="utf-8")
    listed = 0
    for question, pair, *cells in re.findall(
        r"^\| ([\w -]+): `(.+?)` \| (.+?) \| (.+?) \| (.+?) \|$", page, re.M
    ):
        assert cells == [word_expected(t, question, pair) for t in TEXTS[:3]], pair
        listed += 3
    for text, question, pair, cell in re.findall(
        r"^\| `([\w-]+)` \| ([\w -]+): `(.+?)` \| (.+?) \|$", page, re.M
    ):
        assert cell == word_expected(text, question, pair), (text, pair)
        listed += 1
    registered = [load_report(text)["registration"] for text in TEXTS]
    outcomes = [o for each in registered for o in each["outcomes"].values()]
    assert listed == len(outcomes)
    # Without the follow-up, which repeats one of them.
    own = [o for r in registered[:-1] for o in r["outcomes"].values()]
    assert f"{own.count('found')} of {len(own)} were found" in page
    assert list(registered[-1]["outcomes"].values()) == ["found"]
    assert "reversed" not in outcomes
    for each in registered:
        assert each["sha256"] in page


@pytest.mark.parametrize("question", ["left to right", "two-sided"])
def test_the_page_has_the_regrets(question):
    part = PAGE.read_text(encoding="utf-8").partition(f"| {question} | language 0")[2]
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", part.partition("\n\n")[0], re.M)
    assert len(rows) >= 6
    for name, cells in rows:
        for text, cell in zip(TEXTS, cells.split(" | "), strict=False):
            stats = find_metric(text, QUESTIONS[question])["by_name"].get(name)
            wanted = f"{stats['mean']:.3f} ± {stats['std']:.3f}" if stats else ""
            assert cell.strip() == wanted, (text, name)


def test_the_page_has_the_planted_names():
    """In the hidden Markov languages the exact answer wins, and frequencies lose."""
    command = [sys.executable, "results/tools/planted.py"]
    folders = [f"results/known_winners-{text}" for text in TEXTS]
    done = subprocess.run(
        [*command, *folders], capture_output=True, text=True, cwd=ROOT
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = [
        line
        for line in done.stdout.splitlines()
        if "-hmm-" in line or "divisions" in line
    ]
    page = PAGE.read_text(encoding="utf-8")
    assert len(lines) == 14 and all(line in page for line in lines)
    found = re.findall(
        r"-hmm-\d: .*exact answer ahead of (\d+) of (\d+) \(p at most ([\d.]+)\); "
        r"frequencies behind (\d+) of \d+, ahead of (\d+)$",
        done.stdout,
        re.M,
    )
    assert len(found) == 6
    for won, num, p, lost, wins in found:
        assert won == num and float(p) <= 0.01
        assert int(lost) >= 5 and wins == "0"
    for name, seeds, wrong, num in re.findall(
        r": (\w+): (\d+) seeds, (\d+) of (\d+) random", done.stdout
    ):
        assert int(wrong) <= 0.05 * int(num), name
