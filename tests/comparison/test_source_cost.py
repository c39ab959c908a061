"""The cost of the run that a compared run started from."""

import json

import pytest
from stops import run
from tiny import make_config, write_run

from jaxpt.comparison.budget import steps_for_budget
from jaxpt.comparison.compare import compare
from jaxpt.config.plan import make_compare_spec, make_plan
from jaxpt.config.sections import CompareSpec
from jaxpt.report import figures
from jaxpt.runs import stored_form
from jaxpt.runs.earlier_costs import find_source_costs
from jaxpt.text.dataset import load_text

QUICK = {"train__checkpoint_every": 0, "eval__pair_questions": 0, "train__steps": 4}


@pytest.fixture(scope="module")
def source(tmp_path_factory, speech):
    """The folder and the result of a short causal run."""
    folder = tmp_path_factory.mktemp("source") / "run"
    _, result = run(make_config(speech, "clm", **QUICK), folder)
    return folder, result


def compared(speech, folder, amount, **changes):
    """Masked runs, one from a source and one from scratch."""
    start = {
        "mlm": {"train": {"init_from": str(folder)}},
        "scratch": {"objective": "mlm"},
    }
    changes = {"compare__source_cost": "total"} | changes
    return make_config(
        speech,
        **QUICK,
        compare__objectives=("mlm", "scratch"),
        compare__overrides=start,
        compare__seeds=(0,),
        compare__amount=amount,
        compare__num_evals=2,
        **changes,
    )


def test_a_result_has_the_cost_of_its_source(source, speech, tmp_path):
    """And of the source's source, even when both are gone."""
    folder, result = source
    start = {"train__init_from": str(folder)}
    config = make_config(speech, "mlm", **QUICK, **start)
    _, second = run(config, tmp_path / "second")
    costs = {key: result[key] for key in ("flops", "raw_tokens", "train_seconds")}
    assert second["source"] == {"run": str(folder)} | costs
    start = {"train__init_from": str(tmp_path / "second")}
    plan = make_plan(make_config(speech, "clm", **QUICK, **start))
    found = find_source_costs(plan)
    assert found["flops"] == second["flops"] + result["flops"]
    assert found["operations"] is None
    counted = find_source_costs(plan, lambda plan, steps: 10.0 * steps)
    assert counted["operations"] == 80
    # The result of the second run has what the first one cost.
    moved = json.loads((tmp_path / "second" / "config.json").read_text())
    moved["train"]["init_from"] = str(tmp_path / "gone")
    (tmp_path / "second" / "config.json").write_text(json.dumps(moved))
    (tmp_path / "second" / "checksums.json").unlink(missing_ok=True)
    assert find_source_costs(plan)["flops"] == found["flops"]


def test_a_total_budget_pays_for_the_source(source, speech, tmp_path):
    folder, result = source
    for budget, key in (("flops", "flops"), ("raw_tokens", "raw_tokens")):
        amount = 3.0 * result[key]
        steps = {}
        for count in ("total", "added"):
            changes = {"compare__source_cost": count, "compare__budget": budget}
            config = compared(speech, folder, amount, **changes)
            spec = make_compare_spec(config)
            start = {"train__init_from": str(folder)}
            plan = make_plan(make_config(speech, "clm", **QUICK, **start))
            tokenizer, corpora = load_text(plan.text)
            where = tmp_path / budget / count
            fitted = steps_for_budget(
                "clm", plan, spec, tokenizer.vocab, corpora, where
            )
            steps[count] = fitted.train.steps
        assert steps == {"total": 8, "added": 12}


def test_a_comparison_at_equal_total_cost(source, speech, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "draw", lambda *args: {})
    folder, result = source
    amount = 3.0 * result["flops"]
    report = compare(compared(speech, folder, amount), tmp_path / "compared")
    by_name = {entry["name"]: entry for entry in report["runs"]}
    started, scratch = by_name["mlm"], by_name["scratch"]
    assert started["source_flops"] == result["flops"] and scratch["source_flops"] == 0
    assert started["steps"] < scratch["steps"]
    assert started["flops"] + result["flops"] <= amount >= scratch["flops"]
    assert started["source_operations"] > 0 and started["counts_source"]
    assert "whole_cost" not in report
    assert report["budget"]["note"].startswith("for every run with the run it started")
    conventions = report["conventions"]["costs"] if "conventions" in report else {}
    for kind in ("flops", "raw_tokens"):
        assert conventions.get(kind, {"read": {"mlm": 1}})["read"]["mlm"] >= 0.9
    text = (tmp_path / "compared" / "report.html").read_text()
    assert "costs are equal by the total cost" in text


@pytest.mark.parametrize("kind", ["imported", "unfinished", "gone"])
def test_an_unknown_cost_cannot_be_part_of_a_budget(
    kind, source, speech, tmp_path, refuses
):
    folder = write_run(make_config(speech, "clm"), tmp_path / "start")
    if kind == "imported":
        for name in ("result.json",):
            (folder / name).write_bytes((source[0] / name).read_bytes())
        (folder / stored_form.NAME).write_text("{}")
    start = {"train__init_from": str(folder if kind != "gone" else tmp_path / "gone")}
    plan = make_plan(make_config(speech, "clm", **QUICK, **start))
    assert set(find_source_costs(plan).values()) == {None}
    spec = CompareSpec(amount=1e12, source_cost="total")
    tokenizer, corpora = load_text(plan.text)
    with refuses(
        "compare.source_cost=total: must be added, because the cost of", "is not known"
    ):
        steps_for_budget("clm", plan, spec, tokenizer.vocab, corpora, tmp_path / "w")


def test_a_budget_that_the_source_has_spent_is_refused(
    source, speech, tmp_path, refuses
):
    folder, result = source
    config = compared(speech, folder, result["flops"] / 2)
    with refuses(f"compare.amount={result['flops'] / 2}: buys mlm fewer than"):
        compare(config, tmp_path / "new")


def test_a_number_of_steps_has_no_total(refuses):
    with refuses("compare.source_cost=total: must be added for compare.budget=steps"):
        CompareSpec(budget="steps", source_cost="total")
    with refuses("compare.source_cost=all: must be one of added, total"):
        CompareSpec(amount=1.0, source_cost="all")
