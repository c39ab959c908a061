"""Collects the finished runs of a comparison and writes their report."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path

from jaxpt.comparison.assembly import assemble, make_text_facts, note_rows, publish
from jaxpt.comparison.budgets import make_budgets
from jaxpt.comparison.compared_tasks import load_task_results
from jaxpt.comparison.inequalities import describe_difference
from jaxpt.comparison.plan_runs import (
    ComparisonPlan,
    list_runs,
    list_smaller,
    list_some,
    run_name,
    run_path,
)
from jaxpt.comparison.registration import judge_registration, keep_registration
from jaxpt.config.sections import CompareSpec
from jaxpt.distributed import processes
from jaxpt.errors import CheckpointError, argument
from jaxpt.files.folder import load_measured
from jaxpt.files.stored import to_plain
from jaxpt.judge.assumptions import describe_seeds
from jaxpt.judge.examples import Examples
from jaxpt.report.diverged import check_any_finished, split_runs
from jaxpt.report.ratios import compare_budgets
from jaxpt.report.types import Report, RunEntry, Tuning, read_runs
from jaxpt.runs.result import SCHEMA
from jaxpt.runs.task import make_task
from jaxpt.runs.workdir import DIVERGED, check_same, load_divergence, load_examples
from jaxpt.runs.xla_flops import describe_counter

ENDS = ("result.json", DIVERGED)  # the folder of a run that has ended has one of them


def collect_runs(prepared: ComparisonPlan, workdir: Path) -> list[dict]:
    """The entries of all runs in the report, including those that diverged."""
    runs = list_runs(prepared.spec)
    missing = [
        run_name(*run)
        for run in runs
        if not any((run_path(workdir, *run) / name).exists() for name in ENDS)
    ]
    if missing:
        raise CheckpointError(
            f"{argument('workdir')}={workdir}: {len(missing)} of {len(runs)} runs are "
            f"not finished: {list_some(missing)}; train them with "
            f"{argument('part')}=runs"
        )
    return [collect_run(prepared, workdir, *run) for run in runs]


def collect_run(prepared: ComparisonPlan, workdir: Path, name: str, seed: int) -> dict:
    """The entry of a run that is finished or has diverged, from its files."""
    folder = run_path(workdir, name, seed)
    plan = prepared.make_task(name, seed).plan
    check_same(folder, plan, prepared.tokenizer, prepared.corpora)
    if record := load_divergence(folder):
        return make_diverged_entry(record, name, folder, workdir)
    result = load_measured(folder / "result.json", SCHEMA)
    return make_entry(result, name, folder, workdir, prepared.spec)


def make_entry(
    run: dict, name: str, folder: Path, workdir: Path, spec: CompareSpec
) -> dict:
    """A run's entry in the report: its result.json, with its downstream tasks."""
    entry = {"name": name} | run | {"workdir": str(folder.relative_to(workdir))}
    tasks, metrics, _ = load_task_results(spec, folder)
    if tasks:
        entry |= {"tasks": tasks, "metrics": run["metrics"] | metrics}
        seconds = [t["finetune_seconds"] for t in tasks if "finetune_seconds" in t]
        entry |= {"finetune_seconds": sum(seconds)} if seconds else {}
    return entry


def make_diverged_entry(record: dict, name: str, folder: Path, workdir: Path) -> dict:
    """The entry of a run that diverged: its diverged.json."""
    return {"name": name} | record | {"workdir": str(folder.relative_to(workdir))}


def write_report(
    prepared: ComparisonPlan, entries: list[dict], workdir: Path
) -> Report:
    """Writes the report of all runs, its tables and figures.

    With several budgets, that of each, and a table over budgets in that of the largest.
    """
    spec, plans, tuning = prepared.spec, prepared.plans, prepared.tuning
    smaller = [
        (write_report(x, processes.on_all(collect_runs, x, folder), folder), folder)
        for folder, x in list_smaller(prepared, workdir)
    ]
    runs, diverged = split_runs(entries)
    check_any_finished(runs, diverged, f"{argument('workdir')}={workdir}")
    examples = _load_examples(spec, read_runs(runs), workdir)
    corpora_of = dict.fromkeys(plans, prepared.corpora)
    tasks = {n: make_task(plan, prepared.vocabs[n]) for n, plan in plans.items()}
    report = assemble(
        config=prepared.config,
        budget=_describe_budget(prepared),
        data=make_text_facts(
            next(iter(plans.values())).text, prepared.tokenizer, prepared.corpora
        ),
        runs=runs,
        diverged=diverged,
        examples=examples,
        tasks=tasks,
        corpora_of=corpora_of,
        alpha=spec.alpha,
        control=spec.control,
        tuning=tuning,
        counts_source=spec.source_cost == "total",
    )
    # Runs may have been trained on several machines, or resumed on another one.
    devices = ((run["name"], run.get("device")) for run in runs)
    unequal = describe_difference("device", devices)
    unequal += list_unequal_tuning(spec, tuning)
    records = {n: Tuning.from_json(to_plain(each)) for n, each in tuning.items()}
    kept = prepared.config, spec, workdir
    text = processes.on_first(keep_registration, *kept)
    report = dataclasses.replace(
        report,
        registration=judge_registration(text, report.metrics) if text else None,
        seeds_note=describe_seeds(spec.seeds, spec.earlier_seeds, spec.alpha),
        tuning=records or None,
        inequalities=tuple(unequal) or None,
    )
    if smaller:
        over = make_budgets([*smaller, (report, workdir)], tasks)
        of_each = [_load_examples(spec, r.runs, folder) for r, folder in smaller]
        metrics = compare_budgets([r for r, _ in smaller], report, [*of_each, examples])
        report = dataclasses.replace(report, budgets=over, metrics=tuple(metrics))
    return publish(report, corpora_of, workdir)


def _load_examples(
    spec: CompareSpec, runs: Iterable[RunEntry], workdir: Path
) -> dict[tuple[str, int], dict[str, Examples]]:
    """By name and seed, the test examples of each metric of a run."""
    return {
        (run.name, run.seed): load_examples(workdir / run.workdir)
        | load_task_results(spec, workdir / run.workdir)[2]
        for run in runs
    }


def list_unequal_tuning(spec: CompareSpec, tuning: dict[str, dict]) -> list[str]:
    """The differences in the trials of the objectives, if any."""
    nums = {n: len(tuning.get(n, {}).get("trials", [])) for n in spec.objectives}
    settings = {name: spec.find_tune(name)[0] or "nothing" for name in spec.objectives}
    trials = ((name, f"{num}") for name, num in nums.items())
    return [
        *describe_difference("compare.tune", settings.items()),
        *describe_difference("trials of tuning", trials),
    ]


def _describe_budget(prepared: ComparisonPlan) -> dict:
    """The budget of every run, as in report.json."""
    spec, plans = prepared.spec, prepared.plans.values()
    lengths = {plan.spec.row_length for plan in plans}
    rows = note_rows(lengths, {plan.rows.rows for plan in plans})
    if spec.budget == "steps":
        note = f"steps as each objective's settings say, not matched; {rows}"
    else:
        by_clock = " by its own clock" if spec.budget == "seconds" else ""
        source = " with the run it started from" * (spec.source_cost == "total")
        note = f"for every run{source}{by_clock}, in whole calls; {rows}"
    if spec.budget == "operations":
        note = f"by {describe_counter()}, before compilation; {note}"
    return {"kind": spec.budget, "amount": spec.amount, "note": note}
