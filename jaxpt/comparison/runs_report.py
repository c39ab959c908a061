"""The report of a comparison, of finished runs that exist; nothing is trained."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from jaxpt.comparison.assembly import (
    add_parts,
    assemble,
    describe_rows,
    describe_text,
    measure_references,
    publish,
)
from jaxpt.comparison.inequalities import (
    find_tests,
    is_equal_cost,
    list_inequalities,
    mean_costs,
)
from jaxpt.comparison.naming import name_runs
from jaxpt.errors import UserError
from jaxpt.files.folder import CHECKPOINTS, REPORT, hold, is_new, write_config
from jaxpt.report.costs import add_costs
from jaxpt.report.diverged import check_any_finished, split_runs
from jaxpt.report.summary import summarise
from jaxpt.statistics import ALPHA
from jaxpt.statistics.assumptions import MERGED
from jaxpt.statistics.examples import Examples
from jaxpt.text.dataset import Split
from jaxpt.training import manifest
from jaxpt.training.finished_runs import FoundRun, is_same_text, load_runs
from jaxpt.training.workdir import load_corpora

Groups = Mapping[str, Sequence[FoundRun]]
# A report's kinds of budget, the first of which that all runs spent alike is its own.
BUDGETS = {
    "flops": "flops",
    "raw_tokens": "raw_tokens",
    "seconds": "train_seconds",
    "steps": "steps",
}


def report_runs(folders: Iterable[Path], workdir: Path, alpha: float = ALPHA) -> dict:
    """Writes report.json, report.html, tables and PNGs of finished runs.

    Runs that differ in their seed alone are under one name. What is not equal between
    the names is in "inequalities", a sentence for each thing. Runs that diverged are
    named in "diverged" and left out of all statistics.

    Args:
      folders: of the runs, each once.
      workdir: a new or empty folder, or one with an earlier report of this function,
        which is replaced.
      alpha: the family-wise error rate of the verdicts.

    Raises:
      UserError: `alpha` is not between 0 and 1, a folder holds no finished run or was
        altered, two runs are the same, every run diverged, or `workdir` holds something
        else; nothing has been written.
    """
    if not 0 < alpha < 1:
        raise UserError(f"--alpha={alpha:g}: must be between 0 and 1, both excluded")
    with hold(workdir):
        _check_folder(workdir)
        named = name_runs(load_runs(folders, takes_diverged=True))
        runs, diverged = split_runs(
            {"name": name} | run.result | {"workdir": _place(run, workdir)}
            for name, group in named.items()
            for run in group
        )
        check_any_finished(runs, diverged, "--runs")
        groups = _drop_diverged(named)
        corpora_of, left_out = _load_texts(groups)
        examples = {
            (name, run.seed): run.examples
            for name, group in groups.items()
            for run in group
        }
        tasks = {name: group[0].task for name, group in groups.items()}
        runs = add_parts(add_costs(runs, tasks, corpora_of), tasks)
        references = _measure_references(groups, corpora_of)
        yardsticks = summarise(runs, examples, references, find_tests(groups), alpha)
        budget, data = _describe_budget(groups), _describe_data(groups, corpora_of)
        settings = _describe_settings(groups)
        report = assemble(settings, budget, data, runs, yardsticks, alpha, diverged)
        report["seeds_note"] = MERGED
        report["inequalities"] = list_inequalities(groups)
        drawable, undrawn = _find_drawable(groups, corpora_of)
        report["left_out"] = left_out + undrawn
        # What is wrong has been found by now; only then is anything written.
        before = _list_pictures(workdir)
        places = [run["workdir"] for run in [*runs, *diverged]]
        write_config(workdir / REPORT, {"runs": places})
        publish(report, {name: corpora_of[name] for name in drawable}, workdir)
        for name in before - set(report["figures"].values()):
            (workdir / name).unlink(missing_ok=True)
    return report


def _drop_diverged(named: Groups) -> dict[str, list[FoundRun]]:
    """The runs that finished, by name; a name without any is left out."""
    kept = {
        name: [run for run in group if not run.has_diverged]
        for name, group in named.items()
    }
    return {name: group for name, group in kept.items() if group}


def _check_folder(workdir: Path) -> None:
    """Raises UserError where the folder holds something else than such a report."""
    for name, what in (
        ("config.json", "a training run"),
        ("compare.json", "a comparison"),
    ):
        if (workdir / name).exists():
            raise UserError(f"--workdir={workdir}: holds {what}; use another folder")
    if not (workdir / REPORT).exists() and not is_new(workdir):
        raise UserError(
            f"--workdir={workdir}: holds files that are no report; must be a new or "
            f"empty folder, or one that jaxpt report has written"
        )


def _place(run: FoundRun, workdir: Path) -> str:
    """The run's folder relative to the report's."""
    return os.path.relpath(os.path.realpath(run.folder), os.path.realpath(workdir))


def _list_pictures(workdir: Path) -> set[str]:
    """The PNGs of the report that is replaced, as far as it can be read."""
    try:
        names = json.loads((workdir / "report.json").read_bytes())["figures"].values()
        return {name for name in names if Path(name).name == name and ".png" in name}
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return set()


def _load_texts(groups: Groups) -> tuple[dict[str, dict[str, Split]], list[str]]:
    """The text of each name that can still be read, and a line for the others."""
    found: dict[str, dict[str, Split]] = {}
    failed: dict[str, list[str]] = {}
    for name, group in groups.items():
        run = group[0]
        same = [
            other
            for other in found
            if groups[other][0].tokenizer_sha256 == run.tokenizer_sha256
            and is_same_text(groups[other][0], run)
        ]
        if same:
            found[name] = found[same[0]]
            continue
        try:
            found[name] = load_corpora(run.folder, run.task, run.tokenizer)
        except UserError as error:
            failed.setdefault(str(error), []).append(name)
    lines = [
        f"left out: references and pictures of {', '.join(names)}: the text cannot be "
        f"read again ({reason})"
        for reason, names in failed.items()
    ]
    return found, lines


def _find_drawable(
    groups: Groups, corpora_of: Mapping[str, dict[str, Split]]
) -> tuple[list[str], list[str]]:
    """The names whose first run has text and parameters; a line for those without.

    Raises:
      UserError: the parameters of a first run were altered.
    """
    drawable, without = [], []
    for name in corpora_of:
        run = groups[name][0]
        folder, step = run.folder / CHECKPOINTS, run.result["steps"]
        if step not in manifest.list_finished(folder):
            without.append(name)
            continue
        try:
            manifest.verify(folder, step)
        except manifest.Damaged as fault:
            raise UserError(
                f"--runs={run.folder}: its checkpoint of step {step} is damaged "
                f"({fault}); put it back as it was, or leave the run out"
            ) from None
        drawable.append(name)
    lines = []
    if without:
        lines.append(
            f"left out: pictures of {', '.join(without)}: the checkpoint of the last "
            f"step is not in the run's folder"
        )
    return drawable, lines


def _measure_references(
    groups: Groups, corpora_of: Mapping[str, dict[str, Split]]
) -> dict[str, dict[str, Examples]]:
    """`measure_references` of each text with the names that read it."""
    texts = {id(corpora): corpora for corpora in corpora_of.values()}
    found: dict[str, dict[str, Examples]] = {}
    for key, corpora in texts.items():
        names = [name for name, held in corpora_of.items() if id(held) == key]
        tasks = {name: groups[name][0].task for name in names}
        found |= measure_references(tasks, corpora)
    return found


def _describe_budget(groups: Groups) -> dict:
    """What all runs spent alike, to one call of steps, as report.json has it."""
    runs = [run for group in groups.values() for run in group]
    if all(is_same_text(runs[0], run) for run in runs):
        lengths = {run.result["row_length"] for run in runs}
        rows = describe_rows(lengths, {run.task.plan.rows.rows for run in runs})
    else:
        rows = "the runs do not read the same text"
    equal = [kind for kind, key in BUDGETS.items() if is_equal_cost(groups, key)]
    if not equal:
        note = f"runs that were trained apart, at costs that are not matched; {rows}"
        return {"kind": "steps", "amount": 0.0, "note": note}
    kind = equal[0]
    amount = max(mean_costs(groups, BUDGETS[kind]).values())
    note = f"the most that a run spent, all others to one call; {rows}"
    return {"kind": kind, "amount": amount, "note": note}


def _describe_data(groups: Groups, corpora_of: Mapping[str, dict[str, Split]]) -> dict:
    """Facts about the text, or about each if there are several."""
    facts: dict[str, dict] = {}
    for name, group in groups.items():
        run = group[0]
        if name in corpora_of:
            text = run.task.plan.text
            own = describe_text(text, run.tokenizer, corpora_of[name])
        else:
            own = {
                "path": run.settings["data.path"],
                "vocab_size": run.tokenizer.vocab.size,
                "tokenizer": run.settings["tokenizer.kind"],
            }
        for key, value in own.items():
            facts.setdefault(key, {})[value] = None
    return {
        key: next(iter(values)) if len(values) == 1 else "; ".join(map(str, values))
        for key, values in facts.items()
    }


def _describe_settings(groups: Groups) -> dict:
    """The settings that all runs share, and of each name what it has otherwise."""
    settings = {name: group[0].settings for name, group in groups.items()}
    first = next(iter(settings.values()))
    shared = {
        key: value
        for key, value in first.items()
        if key != "train.seed"
        and all(key in own and own[key] == value for own in settings.values())
    }
    return {"shared": shared} | {
        name: {k: v for k, v in own.items() if k not in {*shared, "train.seed"}}
        for name, own in settings.items()
    }
