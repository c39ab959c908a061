"""Reports finished runs that were trained separately (`jaxpt report`)."""

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from jaxpt.comparison.assembly import assemble, make_text_facts, note_rows, publish
from jaxpt.comparison.inequalities import (
    find_tests,
    is_equal_cost,
    list_inequalities,
    mean_costs,
)
from jaxpt.comparison.naming import name_runs
from jaxpt.comparison.studies import check_study, load_all_runs
from jaxpt.errors import CheckpointError, ConfigError, UserError, argument
from jaxpt.files import checksums, disk, remote, schema
from jaxpt.files.folder import CHECKPOINTS, REPORT, hold, is_new, write_config
from jaxpt.judge import ALPHA
from jaxpt.judge.assumptions import MERGED
from jaxpt.report.diverged import check_any_finished, split_runs
from jaxpt.report.types import Report
from jaxpt.runs import manifest
from jaxpt.runs.finished_runs import FoundRun, is_same_text
from jaxpt.runs.xla_flops import add_phases, count_phases, describe_counter
from jaxpt.text.dataset import Split, load_text

Groups = Mapping[str, Sequence[FoundRun]]
# Kinds of budget; a report has the first one of which all runs spent the same amount.
BUDGETS = {
    "flops": "flops",
    "raw_tokens": "raw_tokens",
    "operations": "operations",
    "seconds": "train_seconds",
    "steps": "steps",
}


def report_runs(
    folders: Iterable[Path], workdir: Path, alpha: float = ALPHA, control: str = ""
) -> dict:
    """Writes the report of finished runs, with its tables; returns report.json.

    Runs that differ only in their seed share a name. "inequalities" lists the
    differences between the names, one sentence each. Runs that diverged are in
    "diverged" and excluded from all statistics.

    Args:
      folders: of the runs, each once.
      workdir: a new or empty folder, or one with an earlier report of this function,
        which is replaced.
      alpha: the family-wise error rate of the verdicts.
      control: the name that all others are compared with; "": all pairs are compared.
    """
    if not 0 < alpha < 1:
        raise ConfigError(
            f"{argument('alpha')}={alpha:g}: must be between 0 and 1, both excluded"
        )
    with hold(workdir):
        _check_folder(workdir)
        named = name_runs(load_all_runs(folders, takes_diverged=True))
        runs, diverged = split_runs(
            {"name": name} | run.result | {"workdir": _relative_path(run, workdir)}
            for name, group in named.items()
            for run in group
        )
        check_any_finished(runs, diverged, argument("runs"))
        if control and control not in named:
            raise ConfigError(
                f"{argument('control')}={control}: must be among {', '.join(named)}"
            )
        groups = _count_operations(_drop_diverged(named))
        corpora_of, left_out = _load_texts(groups)
        examples = {
            (name, run.seed): run.examples
            for name, group in groups.items()
            for run in group
        }
        report = assemble(
            config=_describe_settings(groups),
            budget=_describe_budget(groups),
            data=_describe_data(groups, corpora_of),
            runs=runs,
            diverged=diverged,
            examples=examples,
            tasks={name: group[0].task for name, group in groups.items()},
            corpora_of=corpora_of,
            alpha=alpha,
            control=control,
            tests=find_tests(groups),
        )
        drawable, undrawn = _find_drawable(groups, corpora_of)
        report = dataclasses.replace(
            report,
            seeds_note=MERGED,
            inequalities=tuple(list_inequalities(groups)),
            left_out=tuple(left_out + undrawn),
        )
        # All checks are done; only now is anything written.
        workdirs = [run["workdir"] for run in [*runs, *diverged]]
        drawn = {name: corpora_of[name] for name in drawable}
        return _write(report, drawn, workdir, {"runs": workdirs}).to_json()


def report_study(folder: Path, workdir: Path) -> dict:
    """Writes the report of an archived study, as `report_runs` does.

    Pictures that need the parameters of a model are left out.

    Args:
      folder: of the study.
      workdir: as of `report_runs`.
    """
    with hold(workdir):
        _check_folder(workdir)
        report = Report.from_json(check_study(folder).report)
        return _write(report, {}, workdir, {"study": str(folder)}).to_json()


def _write(
    report: Report,
    corpora_of: Mapping[str, dict[str, Split]],
    workdir: Path,
    source: dict,
) -> Report:
    """Publishes a report and removes the pictures of the report before it.

    Args:
      source: what the report is of.
    """
    before = _list_figures(workdir)
    write_config(workdir / REPORT, source)
    report = publish(report, corpora_of, workdir)
    for name in before - set(report.figures.values()):
        checksums.remove(workdir / name)
    return report


def _drop_diverged(named: Groups) -> dict[str, list[FoundRun]]:
    """The finished runs by name; names without any are dropped."""
    finished = {
        name: [run for run in group if not run.has_diverged]
        for name, group in named.items()
    }
    return {name: group for name, group in finished.items() if group}


def _count_operations(groups: Groups) -> dict[str, list[FoundRun]]:
    """The runs with their "operations", which no result.json has."""
    counted = {}
    for name, group in groups.items():
        counts = count_phases(group[0].task)
        counted[name] = [
            run._replace(
                result=run.result
                | {"operations": add_phases(run.task, counts, run.result["steps"])}
            )
            for run in group
        ]
    return counted


def _check_folder(workdir: Path) -> None:
    """Raises UserError if the folder contains anything but such a report."""
    for name, content in (
        ("config.json", "a training run"),
        ("compare.json", "a comparison"),
    ):
        if (workdir / name).exists():
            raise CheckpointError(
                f"{argument('workdir')}={workdir}: holds {content}; use another folder"
            )
    if not (workdir / REPORT).exists() and not is_new(workdir):
        raise CheckpointError(
            f"{argument('workdir')}={workdir}: holds files other than a report; must "
            "be a new or empty folder, or one that jaxpt report has written"
        )


def _relative_path(run: FoundRun, workdir: Path) -> str:
    """The run's folder relative to the report's; absolute if one is on a store."""
    if remote.is_remote(run.folder) or remote.is_remote(workdir):
        return os.path.abspath(run.folder)
    return os.path.relpath(os.path.realpath(run.folder), os.path.realpath(workdir))


def _list_figures(workdir: Path) -> set[str]:
    """The pictures of the report to be replaced, if it can be read."""
    try:
        data = disk.read(workdir / "report.json")
        names = schema.parse(data, {"figures": {str: str}})["figures"].values()
        own = [name for name in names if Path(name).name == name]
        return {name for name in own if Path(name).suffix in (".svg", ".png")}
    except (OSError, ValueError):
        return set()


def _load_texts(groups: Groups) -> tuple[dict[str, dict[str, Split]], list[str]]:
    """The text of each name if it can still be read, and lines about the others."""
    corpora_of: dict[str, dict[str, Split]] = {}
    failed: dict[str, list[str]] = {}
    for name, group in groups.items():
        run = group[0]
        same = [
            other
            for other in corpora_of
            if groups[other][0].tokenizer_sha256 == run.tokenizer_sha256
            and is_same_text(groups[other][0], run)
        ]
        if same:
            corpora_of[name] = corpora_of[same[0]]
            continue
        try:
            corpora_of[name] = _load_text(run)
        except UserError as error:
            failed.setdefault(str(error), []).append(name)
    lines = [
        f"left out: references and pictures of {', '.join(names)}: the text cannot be "
        f"read again ({reason})"
        for reason, names in failed.items()
    ]
    return corpora_of, lines


def _load_text(run: FoundRun) -> dict[str, Split]:
    """The text of a run, read again."""
    text = run.task.plan.text
    _, corpora = load_text(text, run.tokenizer)
    if {name: split.fingerprint for name, split in corpora.items()} != run.text:
        raise CheckpointError(
            f"{argument('runs')}={run.folder}: is of other text than "
            f"data.path={text.path} is now"
        )
    return corpora


def _find_drawable(
    groups: Groups, corpora_of: Mapping[str, dict[str, Split]]
) -> tuple[list[str], list[str]]:
    """Names whose first run has text and parameters, and a line about the others."""
    drawable, without = [], []
    for name in corpora_of:
        run = groups[name][0]
        folder, step = run.folder / CHECKPOINTS, run.result["steps"]
        if step not in manifest.list_finished(folder):
            without.append(name)
            continue
        try:
            manifest.verify(folder, step)
        except manifest.Damaged as error:
            raise CheckpointError(
                f"{argument('runs')}={run.folder}: its checkpoint of step {step} is "
                f"damaged ({error}); put it back as it was, or leave the run out"
            ) from None
        drawable.append(name)
    lines = []
    if without:
        lines.append(
            f"left out: pictures of {', '.join(without)}: the checkpoint of the last "
            f"step is not in the run's folder"
        )
    return drawable, lines


def _describe_budget(groups: Groups) -> dict:
    """The budget of report.json: the cost that is equal for all runs, to one call."""
    runs = [run for group in groups.values() for run in group]
    if all(is_same_text(runs[0], run) for run in runs):
        lengths = {run.result["row_length"] for run in runs}
        rows = note_rows(lengths, {run.task.plan.rows.rows for run in runs})
    else:
        rows = "the runs do not read the same text"
    equal = [kind for kind, key in BUDGETS.items() if is_equal_cost(groups, key)]
    if not equal:
        note = f"runs that were trained separately, at costs that differ; {rows}"
        return {"kind": "steps", "amount": 0.0, "note": note}
    kind = equal[0]
    amount = max(mean_costs(groups, BUDGETS[kind]).values())
    note = f"the most that a run spent; all others are within one call; {rows}"
    if kind == "operations":
        note = f"by {describe_counter()}, before compilation; {note}"
    return {"kind": kind, "amount": amount, "note": note}


def _describe_data(groups: Groups, corpora_of: Mapping[str, dict[str, Split]]) -> dict:
    """The "data" of report.json: facts about the text, or about each of several."""
    facts: dict[str, dict] = {}
    for name, group in groups.items():
        run = group[0]
        if name in corpora_of:
            text = run.task.plan.text
            text_facts = make_text_facts(text, run.tokenizer, corpora_of[name])
        else:
            text_facts = {
                "path": run.settings["data.path"],
                "vocab_size": run.tokenizer.vocab.size,
                "tokenizer": run.settings["tokenizer.kind"],
            }
        for key, value in text_facts.items():
            facts.setdefault(key, {})[value] = None
    return {
        key: next(iter(values)) if len(values) == 1 else "; ".join(map(str, values))
        for key, values in facts.items()
    }


def _describe_settings(groups: Groups) -> dict:
    """The settings that all runs share, and the other settings of each name."""
    settings = {name: group[0].settings for name, group in groups.items()}
    first = next(iter(settings.values()))
    shared = {
        key: value
        for key, value in first.items()
        if key != "train.seed"
        and all(
            key in run_settings and run_settings[key] == value
            for run_settings in settings.values()
        )
    }
    return {"shared": shared} | {
        name: {
            k: v for k, v in run_settings.items() if k not in {*shared, "train.seed"}
        }
        for name, run_settings in settings.items()
    }
