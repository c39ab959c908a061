"""Figures of the README and of the guides are those of results/."""

import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from comparison.test_speedruns import BUDGETS, REPETITIONS, load_report, read_metric

ROOT = Path(__file__).parents[2]
README = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
NAMES = {
    "causal LM": "clm",
    "masked LM": "mlm",
    "ELECTRA": "electra",
    "span corruption": "span_corruption",
}


def read_lead(study, name, first="clm", second="mlm"):
    """How far the first is ahead, and the interval, as the README writes them."""
    pairs = read_metric(study, name)["pairs"]
    (pair,) = [p for p in pairs if (p["better"], p["worse"]) == (first, second)]
    low, high = pair["low"], pair["high"]
    return f"{pair['difference']:.3f}", f"[{low:.3f}, {high:.3f}]"


@pytest.mark.parametrize("label", NAMES)
def test_the_readme_has_the_quickstarts_table(label):
    name = NAMES[label]
    accuracy, nats = (
        read_metric("quickstart", metric)["by_name"][name]
        for metric in ("pair_accuracy", "pair_nats")
    )
    random = np.mean(
        [
            run["metrics"]["pair_accuracy_random"]
            for run in load_report("quickstart")["runs"]
            if run["name"] == name
        ]
    )
    cells = [f"{x['mean']:.3f} ± {x['std']:.3f}" for x in (accuracy, nats)]
    assert f"| {label} | {cells[0]} | {random:.3f} | {cells[1]} |" in README


def test_the_readme_has_the_leads_of_the_studies():
    steps = zip(list(NAMES)[:-1], list(NAMES)[1:], strict=True)
    for first, second in steps:
        lead = " ".join(
            read_lead("quickstart", "pair_accuracy", NAMES[first], NAMES[second])
        )
        assert re.search(rf"(of|and) {second} by {re.escape(lead)}", README, re.I)
    pairs = [read_lead(f"orderings-{flops}", "pair_accuracy") for flops in BUDGETS]
    (a, _), (b, _), (c, interval) = pairs
    assert f"by {a} at 1e12 FLOPs, {b} at 3e12 and {c} {interval} at 9e12" in README
    choice = [
        read_lead(f"orderings-{flops}", "choice_bayes_accuracy")[0] for flops in BUDGETS
    ]
    assert f"falls from {choice[0]} to {choice[-1]}" in README
    leads = [read_lead(study, "choice_bayes_accuracy") for study in REPETITIONS]
    a, b, c, (d, interval) = [lead[0] for lead in leads[:-1]] + leads[-1:]
    assert f"this lead is {a}, {b}, {c} and {d} {interval}" in README


def test_the_readme_says_what_pretraining_pays():
    baselines = read_metric("pretraining_pays", "task_ag_news_frozen_1000")["baselines"]
    gains = [b["difference"] for b in baselines if b["worse"] == "(untrained)"]
    assert len(gains) == 5 and all(b["outcome"] == "ahead" for b in baselines)
    assert f"by {min(gains):.3f} to {max(gains):.3f} in accuracy at 1,000" in README


@pytest.mark.parametrize("objective", ["clm", "mlm"])
@pytest.mark.parametrize("form", ["completep", "standard"])
def test_the_best_learning_rates_of_each_width_are_those_of_the_study(objective, form):
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    (cells,) = re.findall(rf"^\| {objective} \| `{form}` \| (.*) \|$", text, re.M)
    tried = defaultdict(list)
    for study in ("completep", "completep-512"):
        for run in load_report(study)["runs"]:
            name, kind, width, number = run["name"].split("-")
            # At the base width both are one model, which was trained once.
            if name == objective and (kind == form or width == "64"):
                rate = 1e-3 * 1.5 ** int(number)
                tried[int(width)].append((run["metrics"]["valid_loss"], rate))
    best = [min(tried[width]) for width in sorted(tried)]
    expected = [f"{rate:.4f} ({loss:.3f})" for loss, rate in best]
    expected += ["—"] * (4 - len(best))
    rates = [rate for _, rate in best]
    assert cells.split(" | ") == [*expected, f"{max(rates) / min(rates):.1f}"]
