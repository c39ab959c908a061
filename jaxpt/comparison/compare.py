"""Several objectives on the same rows and seeds, at one budget; then the report."""

import contextlib
import logging
from collections.abc import Collection
from pathlib import Path

from jaxpt.comparison.assembly import (
    add_parts,
    assemble,
    describe_rows,
    describe_text,
    measure_references,
    publish,
)
from jaxpt.comparison.budget import (
    fit_warmup,
    steps_for_budget,
    without_schedule,
    write_steps,
)
from jaxpt.comparison.compared_tasks import (
    ask_run,
    check_networks,
    describe_tasks,
    has_answered,
    identify_tasks,
)
from jaxpt.comparison.inequalities import word_difference
from jaxpt.comparison.prepared import Prepared, list_runs, run_path, write_prepared
from jaxpt.comparison.tuning import Text, check_choice, check_trials, tune
from jaxpt.config.plan import Plan, make_compare_spec, make_plans, named_by
from jaxpt.config.sections import CompareSpec
from jaxpt.config.settings import to_dict
from jaxpt.distributed import processes
from jaxpt.errors import DivergedError, UserError
from jaxpt.files.folder import REPORT, hold, load_config, write_config
from jaxpt.finetuning.reuse import Reuse
from jaxpt.objectives import OBJECTIVES
from jaxpt.report.costs import add_costs
from jaxpt.report.diverged import check_any_finished, split_runs
from jaxpt.report.summary import summarise
from jaxpt.statistics.assumptions import describe_seeds
from jaxpt.text.dataset import Split, load_text
from jaxpt.text.text_spec import TextSpec
from jaxpt.text.tokens.tokenizer import Tokenizer
from jaxpt.text.tokens.vocab import Vocab
from jaxpt.training.check import check_measures, check_run
from jaxpt.training.data import with_token_counts
from jaxpt.training.loop import train
from jaxpt.training.program import Program
from jaxpt.training.task import make_task
from jaxpt.training.teacher import lacks_teacher, with_teacher
from jaxpt.training.text_progress import SILENT, make_reporter
from jaxpt.training.workdir import (
    DIVERGED,
    flatten,
    load_divergence,
    load_examples,
    with_defaults,
)

# Runs that are trained are asked more, or less, without being trained again.
ASKED_AFTER = (
    "compare.tasks",
    "compare.task_sizes",
    "compare.task_items",
    "compare.task_settings",
)


def compare(config, workdir: Path, given: Collection[str] = ()) -> dict:
    """Trains every objective with every seed and writes a report, its tables and PNGs.

    Runs that are finished are not repeated, so it resumes where it was stopped. A run
    that diverges is reported as diverged, and the others are trained.

    Args:
      given: full names of the settings that the user has set (`config.plan.make_plan`).

    Raises:
      UserError: the config is wrong, `workdir` holds another comparison, another
        process writes there, or every run diverged.
    """
    with contextlib.ExitStack() as held:
        held.enter_context(hold(workdir))
        prepared = _prepare(to_dict(config), workdir, given)
        # Its runs are its own also while others of them train.
        for name, seed in list_runs(prepared.spec):
            held.enter_context(hold(run_path(workdir, name, seed)))
        _write_prepared(workdir, prepared)
        trainer = Trainer(prepared, workdir)
        entries = [trainer.train(*run) for run in list_runs(prepared.spec)]
        return write_report(prepared, entries, workdir)


def prepare(config: dict, workdir: Path, given: Collection[str] = ()) -> Prepared:
    """Does what the runs have in common; what is done already is not repeated.

    Args: as of `compare`.

    Raises:
      UserError: as `compare`.
    """
    with hold(workdir):
        prepared = _prepare(config, workdir, given)
        _write_prepared(workdir, prepared)
    return prepared


def _prepare(config: dict, workdir: Path, given: Collection[str]) -> Prepared:
    spec, plans, text = processes.on_all(lambda: _make_plans(config, given))
    labelled = Reuse()
    processes.on_all(lambda: identify_tasks(spec, labelled))
    tokenizer, corpora = processes.first_then_rest(lambda: load_text(text))
    vocabs = {
        name: with_token_counts(plan, tokenizer.vocab, corpora["train"])
        for name, plan in plans.items()
    }
    processes.on_first(lambda: check_folder(workdir, config))
    taught = {name: plan for name, plan in plans.items() if lacks_teacher(plan)}
    others = {name: plan for name, plan in plans.items() if name not in taught}
    processes.on_all(lambda: _check_runs(others, spec, vocabs, tokenizer, corpora))
    if taught:
        processes.on_first(lambda: write_config(workdir / "compare.json", config))
    for name, plan in taught.items():
        folder = workdir / "teachers" / name
        plans[name] = with_teacher(plan, tokenizer, corpora, folder, given)
        taught[name] = plans[name]
    processes.on_all(lambda: _check_runs(taught, spec, vocabs, tokenizer, corpora))
    tuning = {}
    if tuned := [name for name in plans if spec.list_trials(name)]:
        processes.on_first(lambda: write_config(workdir / "compare.json", config))
        for name in tuned:
            plans[name], tuning[name] = _tune(
                name,
                plans[name],
                spec,
                vocabs[name],
                tokenizer,
                corpora,
                workdir,
                given,
            )
    plans = {
        name: steps_for_budget(name, plan, spec, vocabs[name], corpora, workdir)
        for name, plan in plans.items()
    }
    plans = {
        name: fit_warmup(plan, _list_given(name, spec, given))
        for name, plan in plans.items()
    }
    processes.on_all(lambda: _check_steps(plans, vocabs))
    made = {name: make_task(plan, vocabs[name]) for name, plan in plans.items()}
    processes.on_all(lambda: check_networks(spec, made, tokenizer, labelled))
    return Prepared(config, spec, plans, vocabs, tokenizer, corpora, tuning)


def _write_prepared(workdir: Path, prepared: Prepared) -> None:
    """What is wrong has been found by now; only then is anything written."""
    if processes.is_first():
        write_config(workdir / "compare.json", prepared.config)
        for name, plan in prepared.plans.items():
            write_steps(workdir, name, plan)
        write_prepared(workdir, prepared)


class Trainer:
    """Trains runs of a comparison; what was compiled for one seed serves the next."""

    def __init__(self, prepared: Prepared, workdir: Path):
        self._prepared, self._workdir = prepared, workdir
        self._name, self._program = "", None
        self._labelled = Reuse()
        self._identity = identify_tasks(prepared.spec, self._labelled)

    def train(self, name: str, seed: int) -> dict:
        """A run's entry in the report, also of one that diverges (`report.diverged`).

        A run that is finished or has diverged is not repeated.

        Raises:
          UserError, Stopped: as `loop.train`.
        """
        prepared = self._prepared
        task = prepared.make_task(name, seed)
        if self._program is None or self._name != name:
            self._program = processes.on_all(lambda: Program(task))
            self._name = name
        folder = run_path(self._workdir, name, seed)
        text, label = (prepared.tokenizer, prepared.corpora), f"{name} seed {seed}"
        try:
            run = train(task, *text, folder, self._program, label)
        except DivergedError as error:
            if processes.is_first():
                logging.getLogger(__name__).warning(f"{label}: {error}")
            record = processes.on_first(lambda: load_divergence(folder))
            return describe_divergence(record, name, folder, self._workdir)
        if self._identity:
            say = make_reporter().say if processes.is_first() else SILENT.say
            asked = prepared.spec, self._identity, folder, seed
            ask_run(*asked, say, self._labelled)
        return describe_run(run, name, folder, self._workdir, prepared.spec)

    def is_finished(self, name: str, seed: int) -> bool:
        """Whether a run is trained and has answered all tasks, or has diverged."""
        folder = run_path(self._workdir, name, seed)
        is_trained = (folder / "result.json").exists() and (
            not self._identity or has_answered(folder, self._identity)
        )
        return is_trained or (folder / DIVERGED).exists()


def describe_run(
    run: dict, name: str, folder: Path, workdir: Path, spec: CompareSpec
) -> dict:
    """A run's result.json as the report has it, with what it answered."""
    entry = {"name": name} | run | {"workdir": str(folder.relative_to(workdir))}
    tasks, metrics, _ = describe_tasks(spec, folder)
    if tasks:
        entry |= {"tasks": tasks, "metrics": run["metrics"] | metrics}
        seconds = [t["finetune_seconds"] for t in tasks if "finetune_seconds" in t]
        entry |= {"finetune_seconds": sum(seconds)} if seconds else {}
    return entry


def describe_divergence(record: dict, name: str, folder: Path, workdir: Path) -> dict:
    """A run's diverged.json as the report has it."""
    return {"name": name} | record | {"workdir": str(folder.relative_to(workdir))}


def write_report(prepared: Prepared, entries: list[dict], workdir: Path) -> dict:
    """The report of all runs, which is written with all that belongs to it.

    Raises:
      UserError: every run diverged; or a file cannot be written.
    """
    config, spec, plans, vocabs, tokenizer, corpora, tuning = prepared
    runs, diverged = split_runs(entries)
    check_any_finished(runs, diverged, f"--workdir={workdir}")
    examples = {
        (run["name"], run["seed"]): load_examples(workdir / run["workdir"])
        | describe_tasks(spec, workdir / run["workdir"])[2]
        for run in runs
    }
    tasks = {name: make_task(plan, vocabs[name]) for name, plan in plans.items()}
    references = measure_references(tasks, corpora)
    runs = add_costs(runs, tasks, dict.fromkeys(plans, corpora), tuning)
    runs = add_parts(runs, tasks)
    yardsticks = summarise(runs, examples, references, alpha=spec.alpha)
    budget = _describe_budget(spec, plans)
    data = describe_text(next(iter(plans.values())).text, tokenizer, corpora)
    report = assemble(config, budget, data, runs, yardsticks, spec.alpha, diverged)
    report["seeds_note"] = describe_seeds(spec.seeds, spec.earlier_seeds, spec.alpha)
    if tuning:
        report["tuning"] = tuning
    # Those that were spread over machines (`parts`), or went on on another one.
    unequal = word_difference("device", ((r["name"], r.get("device")) for r in runs))
    unequal += _list_unequal_tuning(spec, tuning)
    if unequal:
        report["inequalities"] = unequal
    publish(report, dict.fromkeys(plans, corpora), workdir)
    return report


def _list_unequal_tuning(spec: CompareSpec, tuning: dict[str, dict]) -> list[str]:
    """What each objective tried, unless it was the same for all."""
    nums = {n: len(tuning.get(n, {}).get("trials", [])) for n in spec.objectives}
    told = {name: spec.find_tune(name)[0] or "nothing" for name in spec.objectives}
    return [
        *word_difference("compare.tune", told.items()),
        *word_difference("trials of tuning", ((n, f"{k}") for n, k in nums.items())),
    ]


def _describe_budget(spec: CompareSpec, plans: dict[str, Plan]) -> dict:
    """What every run was given to spend, as report.json has it."""
    lengths = {plan.spec.row_length for plan in plans.values()}
    rows = describe_rows(lengths, {plan.rows.rows for plan in plans.values()})
    if spec.budget == "steps":
        note = f"steps as each objective's settings say, not matched; {rows}"
    else:
        by_clock = " by its own clock" if spec.budget == "seconds" else ""
        note = f"for every run{by_clock}, in whole calls; {rows}"
    return {"kind": spec.budget, "amount": spec.amount, "note": note}


def _make_plans(
    config: dict, given: Collection[str]
) -> tuple[CompareSpec, dict[str, Plan], TextSpec]:
    """The comparison, each objective's plan, and the text that all read.

    Raises:
      UserError: one of them is wrong.
    """
    spec = make_compare_spec(config)
    for name, sections in spec.overrides.items():
        # Of what is not compared this time nothing is read.
        is_named = isinstance(sections, dict) and "objective" in sections
        if name not in (*spec.objectives, *OBJECTIVES) and not is_named:
            raise UserError(
                f"compare.overrides.{name}: must be one of compare.objectives="
                f"{', '.join(spec.objectives)}, or another objective"
            )
    plans = make_plans(config, spec.objectives, given)
    text = next(iter(plans.values())).text
    for name, plan in plans.items():
        if spec.list_trials(name):
            with _naming(name):
                check_trials(name, plan, spec)
        if plan.train.seconds and spec.budget != "steps":
            raise UserError(
                f"train.seconds={plan.train.seconds}: must be 0 with compare.budget="
                f"{spec.budget}, by which runs end (for {name})"
            )
        if plan.text != text:
            raise UserError(
                f"compare.overrides.{name}: must leave the text and tokenizer as they "
                f"are, so that all read the same rows"
            )
    return spec, plans, text


@contextlib.contextmanager
def _naming(name: str):
    """Says of an error whose it is: each may have settings of its own."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{error} (for {name})") from error


def _check_runs(
    plans: dict[str, Plan],
    spec: CompareSpec,
    vocabs: dict[str, Vocab],
    tokenizer: Tokenizer,
    corpora: dict[str, Split],
) -> None:
    """Raises UserError for what no number of steps mends: they are not known yet."""
    for name, plan in plans.items():
        with _naming(name):
            task = make_task(without_schedule(plan), vocabs[name])
            checked = check_run(task, tokenizer, corpora)
            if spec.list_trials(name) and not spec.tune_by.startswith("valid_"):
                check_choice(check_measures(checked[0], corpora), spec)


def _list_given(name: str, spec: CompareSpec, given: Collection[str]) -> set[str]:
    """Settings that are never changed: the user's, the name's own, those tuned."""
    tuned = {key for trial in spec.list_trials(name) for key in trial}
    return {*given, *named_by(spec.overrides.get(name, {})), *tuned}


def _tune(
    name: str,
    plan: Plan,
    spec: CompareSpec,
    vocab: Vocab,
    tokenizer: Tokenizer,
    corpora: dict[str, Split],
    workdir: Path,
    given: Collection[str],
) -> tuple[Plan, dict]:
    """`tuning.tune` with the steps and the warm-up of this comparison."""
    folder = workdir / "tuning" / name

    def fit_steps(trial: Plan, index: int) -> Plan:
        key = f"{name}-trial{index}"
        share = spec.tune_share
        fitted = steps_for_budget(key, trial, spec, vocab, corpora, workdir, share)
        processes.on_first(lambda: write_steps(workdir, key, fitted))
        return fit_warmup(fitted, _list_given(name, spec, given))

    text = Text(vocab, tokenizer, corpora)
    return tune(name, plan, spec, fit_steps, text, folder)


def _check_steps(plans: dict[str, Plan], vocabs: dict[str, Vocab]) -> None:
    """Raises UserError for what the steps that a budget buys forbid."""
    for name, plan in plans.items():
        with _naming(name):
            make_task(plan, vocabs[name])


def _by_importance(name: str) -> tuple[bool, bool, str]:
    return name != "data.path", not name.startswith(("compare.", "data.")), name


def check_folder(workdir: Path, config: dict) -> None:
    """Raises UserError where the folder holds something else than this comparison."""
    path = workdir / "compare.json"
    if (workdir / "config.json").exists():
        raise UserError(f"--workdir={workdir}: holds a training run; use another")
    if (workdir / REPORT).exists():
        raise UserError(
            f"--workdir={workdir}: holds a report of other runs; use another"
        )
    if not path.exists():
        return
    stored = flatten(with_defaults(load_config(path, "use another --workdir")))
    wanted = flatten(with_defaults(config))
    # What the user named comes before what follows from it.
    for name in sorted(stored.keys() | wanted.keys(), key=_by_importance):
        if stored.get(name) != wanted.get(name) and not name.startswith(ASKED_AFTER):
            raise UserError(
                f"--workdir={workdir}: holds a comparison with {name}="
                f"{stored.get(name)}, not {wanted.get(name)}; use another folder"
            )
