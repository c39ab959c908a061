"""Costs in addition to training, and the operations that FLOPs leave out."""

import csv
import io

import pytest
from reports import make_report, make_run, vary
from tiny import make_config

from jaxpt.comparison import compare as comparison
from jaxpt.comparison import plan_runs
from jaxpt.config.plan import make_plan
from jaxpt.files.folder import write_config, write_json
from jaxpt.report import costs, figures, tables, terminal
from jaxpt.report.terminal import format_table
from jaxpt.report.types import load_report
from jaxpt.runs.workdir import load_task

EXTRA = {"teacher_flops": 8e13, "teacher_raw_tokens": 4e6, "teacher_seconds": 60.0}
FLOPS = {"kind": "flops", "amount": 1.67e14}
NONE = dict.fromkeys(EXTRA, 0.0)


def make_runs(*more):
    return [
        vary(make_run(name, seed), **columns)
        for name, columns in zip(("clm", "distillation"), more, strict=True)
        for seed in (0, 1)
    ]


def test_parameters_that_are_not_equal_are_told():
    runs = make_runs({"params": 1000}, {"params": 1500})
    (line,) = costs.list_costs(make_report(runs, budget=FLOPS))
    assert line == (
        "parameters are not equal: distillation has the most (1.5k), 1.50 times those "
        "of clm, which has the fewest (1k)"
    )
    assert line in " ".join(format_table(make_report(runs)).split()).replace("- ", "-")
    # A report of runs that were trained separately has them in its inequalities.
    report = make_report(runs, budget=FLOPS)
    output = ["parameters: 1,000 (clm); 1,500 (distillation)"]
    assert costs.list_costs(vary(report, inequalities=output)) == []
    assert costs.list_costs(vary(report, inequalities=["device: a; b"])) == [line]
    assert (
        costs.list_costs(
            make_report(make_runs({"params": 1000}, {"params": 1049}), budget=FLOPS)
        )
        == []
    )


def test_seconds_that_are_not_those_of_the_budget_are_told():
    """The runs took 120 and 121 seconds, or twice that."""
    runs = make_runs({}, {"train_seconds": 240.0})
    budget = {"kind": "seconds", "amount": 120.0}
    (line,) = costs.list_costs(make_report(runs, budget=budget))
    assert line.startswith("seconds differ from the budget, 120: distillation 240.0;")
    budget["amount"] = 126.0
    assert costs.list_costs(make_report(make_runs({}, {}), budget=budget)) == []
    assert costs.list_costs(make_report(runs, budget=FLOPS)) == []


def test_what_flops_leave_out_is_told():
    left_out = {"flops_left_out": 0.2}, {"flops_left_out": 0.36}
    (line,) = costs.list_costs(make_report(make_runs(*left_out), budget=FLOPS))
    assert "left out: clm 20.0%, distillation 36.0%; " in line
    assert "distillation spent the most, 1.25 times the FLOPs of clm" in line
    # Runs whose text is lost are not counted.
    (line,) = costs.list_costs(
        make_report(make_runs({"flops_left_out": 0.2}, {}), budget=FLOPS)
    )
    assert line.endswith("left out: clm 20.0%")


def test_what_teachers_cost_has_a_table():
    tuned = {"tuning_flops": 1.67e14, "tuning_raw_tokens": 8e6, "tuning_seconds": 9.0}
    runs = make_runs(NONE | tuned, EXTRA | tuned)
    teachers, tuning = terminal.tabulate_extras(runs)
    assert teachers[0][:4] == ["teacher of", "FLOPs", "raw tokens", "seconds"]
    assert teachers[1] == [["distillation", "8e13", "4M", "60.0", "0.48"]]  # not clm
    assert [row[-1] for row in tuning[1]] == ["1.00", "1.00"]
    assert terminal.tabulate_extras(make_runs({}, {})) == []
    unknown = dict.fromkeys(EXTRA)
    assert terminal.tabulate_extras(make_runs(NONE, unknown))[0][1][0][1:] == ["—"] * 4


def test_columns_of_other_programs_tables():
    runs = make_runs(NONE, EXTRA | {"flops_left_out": 0.5})
    header, *rows = csv.reader(io.StringIO(tables.format_results(make_report(runs))))
    assert header[-4:] == ["flops_left_out", *EXTRA]
    assert rows[0][-4:] == ["", "0.0", "0.0", "0.0"]
    assert rows[-1][-4:] == ["0.5", "80000000000000.0", "4000000.0", "60.0"]
    latex = tables.format_latex(make_report(runs))
    assert r"& teacher FLOPs \\" in latex and r"& 8e13 \\" in latex
    assert "FLOPs" in latex and "tuning" not in latex


def claim(folder, objective, teacher="", flops=None):
    """The folder of a finished run, with the files that have its costs."""
    folder.mkdir()
    changes = {f"{objective}__teacher": str(teacher)} if teacher else {}
    plan = make_plan(make_config("none.txt", objective, **changes))
    write_config(folder / "config.json", plan.config)
    if flops:
        result = {"objective": objective, "metrics": {}, "curve": []}
        result |= dict.fromkeys(("seed", "params", "steps", "row_length"), 1)
        sums = {"flops": flops, "raw_tokens": 2 * flops, "train_seconds": 3 * flops}
        write_json(folder / "result.json", result | sums)
    return plan


def test_a_teachers_cost_holds_that_of_its_own(tmp_path):
    first = claim(tmp_path / "first", "mlm", flops=5.0)
    assert costs.find_teacher_costs(first) == {}
    second = claim(tmp_path / "second", "distillation", tmp_path / "first", 7.0)
    assert costs.find_teacher_costs(second)["flops"] == 5.0
    third = claim(tmp_path / "third", "distillation", tmp_path / "second")
    output = {"flops": 12.0, "raw_tokens": 24.0, "train_seconds": 36.0}
    output["operations"] = None  # not counted
    assert costs.find_teacher_costs(third) == output
    counted = costs.find_teacher_costs(third, lambda plan, steps: 10.0 * steps)
    assert counted == output | {"operations": 20.0}
    # What is not told is not known, and so is all that rests on it.
    (tmp_path / "first" / "result.json").unlink()
    assert costs.find_teacher_costs(third) == dict.fromkeys(output)


@pytest.mark.slow  # three programs, and probes all along
def test_a_comparison_with_a_teacher(labelled, tmp_path, monkeypatch):
    """The teacher that it trains first is in the columns and in a second verdict."""
    monkeypatch.setattr(figures, "draw", lambda *args: {})
    monkeypatch.setattr(plan_runs, "check_run", lambda *args: None)
    config = make_config(
        labelled,
        data__label_field="era",
        data__split="documents",
        data__valid_fraction=0.25,
        train__checkpoint_every=0,
        train__steps=6,
        eval__probe_every_eval=True,
        compare__objectives=("mlm", "distillation"),
        compare__seeds=(0,),
        compare__amount=5e7,
        compare__num_evals=10,
    )
    comparison.compare(config, tmp_path)
    report = load_report(tmp_path / "report.json", "")
    teacher, _ = load_task(tmp_path / "teachers" / "distillation")
    for run in report.runs:
        assert 0 < run.facts["flops_left_out"] < 0.5
        teacher_flops = teacher.count_costs(6)["flops"] * (run.name == "distillation")
        assert (
            run.facts["teacher_flops"] == teacher_flops
            and "tuning_flops" not in run.facts
        )
        assert (run.facts["teacher_operations"] > teacher_flops) == (teacher_flops > 0)
        assert run.facts["operations"] > run.facts["flops"]
        assert run.curve[-1].values["operations"] == run.facts["operations"]
    whole = report.whole_cost
    of_mlm = next(run.facts["flops"] for run in report.runs if run.name == "mlm")
    assert whole.amount == of_mlm and whole.read["mlm"] == 1
    run = next(run for run in report.runs if run.name == "distillation")
    left = of_mlm - run.facts["teacher_flops"]
    assert whole.read["distillation"] == pytest.approx(left / run.facts["flops"])
    (probe,) = (y for y in whole.metrics if y.metric == "probe_accuracy")
    (pair,) = probe.pairs
    assert {pair.better, pair.worse} == {"mlm", "distillation"}
    page, text = (tmp_path / "report.html").read_text(), format_table(report)
    for output in (page, " ".join(text.split())):
        assert "with teachers and tuning, at" in output and "teacher of" in output
        assert "count left out: mlm" in output
