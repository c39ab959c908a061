"""Plans the runs of a comparison: teachers, tuning, and the steps that the budget buys.

    <folder>/compare.json    the config of the comparison
    <folder>/registration.json  what is expected, if anything is (`registration`)
    <folder>/plans.json      {"plans": {name: {"config", "filled"}}, "tuning": {name: }}
    <folder>/runs/NAME-seedN    each run, as `jaxpt train` writes it

Decisions that are made once for all runs are stored in plans.json, so other processes
and machines train the same runs.
"""

import contextlib
import functools
import logging
import numbers
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from jaxpt.comparison import budgets
from jaxpt.comparison.budget import (
    fit_warmup,
    steps_for_budget,
    without_schedule,
    write_steps,
)
from jaxpt.comparison.compared_tasks import check_networks, identify_tasks
from jaxpt.comparison.registration import check_expected, keep_registration
from jaxpt.comparison.shared_metrics import list_notes
from jaxpt.comparison.tuning import TrainingText, check_choice, check_trials, tune
from jaxpt.config.plan import Plan, make_compare_spec, make_plan, make_plans, named_by
from jaxpt.config.sections import CompareSpec
from jaxpt.distributed import processes
from jaxpt.errors import CheckpointError, ConfigError, UserError, argument
from jaxpt.files import folder as folders
from jaxpt.files import remote
from jaxpt.files.folder import REPORT, load_config, load_json, write_config, write_json
from jaxpt.finetuning.reuse import Reuse
from jaxpt.objectives import OBJECTIVES
from jaxpt.runs.data import with_token_counts
from jaxpt.runs.program import Program
from jaxpt.runs.task import Task, make_task
from jaxpt.runs.workdir import flatten, with_defaults
from jaxpt.text.dataset import Split, load_text
from jaxpt.text.text_spec import TextSpec
from jaxpt.text.tokens.tokenizer import Tokenizer
from jaxpt.text.tokens.vocab import Vocab
from jaxpt.training.check import check_run
from jaxpt.training.measure import explain_no_pairs
from jaxpt.training.teacher import with_teacher

_log = logging.getLogger(__name__)
CONFIG, PLANS = "compare.json", "plans.json"
# The schema of plans.json: the config of each objective, and how it was tuned.
PLANS_FORM = {
    "plans": {str: {"config": folders.CONFIG, "filled": str}},
    "tuning": {
        str: {
            "by": str,
            "chosen": {str: object},
            "at_edge": [str],
            "at_limit?": [str],
            "until?": str,
            "flops?": float,
            "trials": [{"settings": {str: object}, "value": (numbers.Real, None)}],
        }
    },
}
MAX_NAMED = 8  # run names in a message
# Settings that may change later: finished runs need not be trained again.
CHANGEABLE = (
    "compare.control",
    "compare.tasks",
    "compare.task_sizes",
    "compare.task_items",
    "compare.task_settings",
)


class ComparisonPlan(NamedTuple):
    """The plan of all runs of a comparison.

    Attributes:
      config: the user's config, plain values.
      plans: of each name, complete but for the seed.
      vocabs: of each name.
      tuning: the record of `tuning.tune` for each name; empty without tuning.
      smaller: the plans at the smaller ones of `compare.amounts`, rising; this is the
        one at the largest.
    """

    config: dict
    spec: CompareSpec
    plans: dict[str, Plan]
    vocabs: dict[str, Vocab]
    tokenizer: Tokenizer
    corpora: dict[str, Split]
    tuning: dict[str, dict]
    smaller: tuple["ComparisonPlan", ...] = ()

    def make_task(self, name: str, seed: int) -> Task:
        """The pretraining task of a run."""
        plan = self.plans[name].change({"train": {"seed": seed}})
        return make_task(plan, self.vocabs[name])


def list_runs(spec: CompareSpec) -> list[tuple[str, int]]:
    """The name and the seed of each run, in the order of the report."""
    return [(name, seed) for name in spec.objectives for seed in spec.seeds]


def run_name(name: str, seed: int) -> str:
    """The name of a run and of its folder.

    >>> run_name("mlm", 3)
    'mlm-seed3'
    """
    return f"{name}-seed{seed}"


def run_path(workdir: Path, name: str, seed: int) -> Path:
    """The folder of a run."""
    return workdir / "runs" / run_name(name, seed)


def list_some(names: list[str]) -> str:
    """A list of names, shortened after the first few.

    >>> list_some([f"mlm-seed{i}" for i in range(10)])[-31:]
    'mlm-seed6, mlm-seed7 and 2 more'
    """
    rest = len(names) - MAX_NAMED
    text = ", ".join(names[:MAX_NAMED])
    return f"{text} and {rest} more" if rest > 0 else text


def plan_runs(
    config: dict, workdir: Path, explicit_names: Collection[str] = ()
) -> ComparisonPlan:
    """Plans all runs; finished teachers and trials are not repeated.

    The caller holds `workdir`.

    Args:
      explicit_names: full names of the settings that the user has set
        (`config.plan.make_plan`).
    """
    return _Planner(config, workdir, explicit_names).plan()


def register_runs(
    config: dict, workdir: Path, explicit_names: Collection[str] = ()
) -> str:
    """Registers what is expected of the runs; trains nothing.

    The caller holds `workdir`; arguments as of `plan_runs`.

    Returns:
      The text of registration.json; "" if nothing is expected.
    """
    return _Planner(config, workdir, explicit_names).register()


class _Planner:
    """The steps of planning; each uses the results of the earlier ones."""

    def __init__(
        self, config: dict, workdir: Path, explicit_names: Collection[str]
    ) -> None:
        self.config, self.workdir, self.explicit_names = config, workdir, explicit_names
        self.spec, self.plans, text = processes.on_all(
            make_compared_plans, config, explicit_names
        )
        self.amounts = self.spec.amounts
        if self.amounts:
            self.spec = budgets.spec_at(self.spec, self.amounts[-1])
        self.reuse = Reuse()
        processes.on_all(identify_tasks, self.spec, self.reuse)
        self.tokenizer, self.corpora = processes.first_then_rest(
            lambda: load_text(text)
        )
        self.vocabs = _count_tokens(self.plans, self.tokenizer, self.corpora)
        # By name: the metrics that it will have, and why no bigram-matched cloze.
        self.measured: dict[str, set[str]] = {}
        self.reasons: dict[str, str] = {}

    def register(self) -> str:
        """Checks what can be checked before the first run, then registers."""
        processes.on_first(check_folder, self.workdir, self.config)
        self._check_runs(n for n, plan in self.plans.items() if not plan.lacks_teacher)
        processes.on_all(check_expected, self.spec, self.measured)
        if self.spec.expected:
            self._write_config()
        kept = self.config, self.spec, self.workdir
        return processes.on_first(keep_registration, *kept)

    def plan(self) -> ComparisonPlan:
        """Trains the teachers and the trials, then fits the steps to the budget."""
        self.register()
        students = [name for name, plan in self.plans.items() if plan.lacks_teacher]
        for name in students:
            self._write_config()
            self.plans[name] = with_teacher(
                self.plans[name],
                self.tokenizer,
                self.corpora,
                self.workdir / "teachers" / name,
                self.explicit_names,
            )
        self._check_runs(students)
        if processes.is_first():
            has_tasks = bool(self.spec.tasks)
            for line in list_notes(self.measured, self.reasons, has_tasks):
                _log.warning(line)
        tuning = {
            name: self._tune(name) for name in self.plans if self.spec.list_trials(name)
        }
        for name in self.plans:
            self.plans[name] = self._fit_steps(name, self.plans[name], name)
        processes.on_all(self._check_networks)
        text = self.vocabs, self.tokenizer, self.corpora
        plan = ComparisonPlan(self.config, self.spec, self.plans, *text, tuning)
        return plan._replace(smaller=tuple(map(self._plan_smaller, self.amounts[:-1])))

    def _plan_smaller(self, amount: float) -> ComparisonPlan:
        """The plans at a smaller amount: those of the largest with fewer steps."""
        config = budgets.config_at(self.config, amount)
        folder = budgets.folder_of(self.workdir, amount)
        spec, plans = make_compare_spec(config), {}
        for name, plan in self.plans.items():
            with _naming(f"{name} at {amount:g} of compare.amounts"):
                args = self.vocabs[name], self.corpora, folder
                plans[name] = steps_for_budget(name, plan, spec, *args)
                budgets.check_branch(plans[name])
        text = self.vocabs, self.tokenizer, self.corpora
        return ComparisonPlan(config, spec, plans, *text, {})

    def _write_config(self) -> None:
        path = self.workdir / CONFIG
        processes.on_first(write_config, path, self.config)

    def _check_runs(self, names: Iterable[str]) -> None:
        """Raises UserError for faults that do not depend on the number of steps."""

        def check() -> None:
            for name in names:
                with _naming(name):
                    plan = without_schedule(self.plans[name])
                    task = make_task(plan, self.vocabs[name])
                    if self.amounts:
                        budgets.check_progress(self.amounts, task)
                    text = self.tokenizer, self.corpora
                    record = functools.partial(self._record, name)
                    check_run(task, *text, None, False, record)
                    by = self.spec.tune_by
                    is_known = by in ("valid_loss", "valid_accuracy")
                    if self.spec.list_trials(name) and not is_known:
                        check_choice(self.measured[name], self.spec)

        processes.on_all(check)

    def _record(self, name: str, program: Program, metrics: set[str]) -> None:
        self.measured[name] = metrics
        self.reasons[name] = explain_no_pairs(program, self.corpora)

    def _tune(self, name: str) -> dict:
        """Sets the plan with the tuned settings; the record of the trials."""
        self._write_config()

        def fit_steps(trial: Plan, index: int) -> Plan:
            key = f"{name}-trial{index}"
            fitted = self._fit_steps(name, trial, key, self.spec.tune_share)
            processes.on_first(write_steps, self.workdir, key, fitted)
            return fitted

        text = TrainingText(self.vocabs[name], self.tokenizer, self.corpora)
        folder = self.workdir / "tuning" / name
        self.plans[name], record = tune(
            name, self.plans[name], self.spec, fit_steps, text, folder
        )
        return record

    def _fit_steps(self, name: str, plan: Plan, key: str, share: float = 1.0) -> Plan:
        """The plan with the steps that its share of the budget buys, and a warm-up.

        The warm-up is not changed if the user or the name's own settings or the trials
        set it.
        """
        vocab = self.vocabs[name]
        plan = steps_for_budget(
            key, plan, self.spec, vocab, self.corpora, self.workdir, share
        )
        tuned = {setting for trial in self.spec.list_trials(name) for setting in trial}
        override_names = named_by(self.spec.overrides.get(name, {}))
        return fit_warmup(plan, {*self.explicit_names, *override_names, *tuned})

    def _check_networks(self) -> None:
        """Raises UserError for faults of the final plans."""
        tasks = {}
        for name, plan in self.plans.items():
            with _naming(name):
                tasks[name] = make_task(plan, self.vocabs[name])
        check_networks(self.spec, tasks, self.tokenizer, self.reuse)


def make_compared_plans(
    config: dict, explicit_names: Collection[str]
) -> tuple[CompareSpec, dict[str, Plan], TextSpec]:
    """The comparison's settings, each objective's plan, and the text they share."""
    spec = make_compare_spec(config)
    for name, sections in spec.overrides.items():
        # Overrides of objectives that are not compared this time are ignored.
        is_named = isinstance(sections, dict) and "objective" in sections
        if name not in (*spec.objectives, *OBJECTIVES) and not is_named:
            raise ConfigError(
                f"compare.overrides.{name}: must be one of compare.objectives="
                f"{', '.join(spec.objectives)}, or another objective"
            )
    plans = make_plans(config, spec.objectives, explicit_names)
    if spec.amounts:
        budgets.check_plans(spec.amounts, plans)
    text = next(iter(plans.values())).text
    for name, plan in plans.items():
        if spec.list_trials(name):
            with _naming(name):
                check_trials(name, plan, spec)
        if plan.train.seconds and spec.budget != "steps":
            raise ConfigError(
                f"train.seconds={plan.train.seconds}: must be 0 with compare.budget="
                f"{spec.budget}, by which runs end (for {name})"
            )
        if plan.text != text:
            raise ConfigError(
                f"compare.overrides.{name}: must leave the text and tokenizer as they "
                f"are, so that all read the same rows"
            )
    return spec, plans, text


def _count_tokens(
    plans: dict[str, Plan], tokenizer: Tokenizer, corpora: dict[str, Split]
) -> dict[str, Vocab]:
    return {
        name: with_token_counts(plan, tokenizer.vocab, corpora["train"])
        for name, plan in plans.items()
    }


@contextlib.contextmanager
def _naming(name: str) -> Iterator[None]:
    """Adds the objective's name to an error, because settings differ by objective."""
    try:
        yield
    except UserError as error:
        raise type(error)(f"{error} (for {name})") from error


def check_folder(workdir: Path, config: dict) -> None:
    """Raises UserError if the folder contains anything but this comparison."""
    path = workdir / CONFIG
    if (workdir / "config.json").exists():
        raise CheckpointError(
            f"{argument('workdir')}={workdir}: holds a training run; use another"
        )
    if (workdir / REPORT).exists():
        raise CheckpointError(
            f"{argument('workdir')}={workdir}: holds a report of other runs; use "
            "another"
        )
    if not path.exists():
        return
    earlier = load_config(path, f"use another {argument('workdir')}")
    stored = flatten(with_defaults(earlier, config))
    expected = flatten(with_defaults(config, earlier))
    # Settings of the user come before those derived from them.
    for name in sorted(stored.keys() | expected.keys(), key=_by_importance):
        if stored.get(name) != expected.get(name) and not name.startswith(CHANGEABLE):
            raise CheckpointError(
                f"{argument('workdir')}={workdir}: holds a comparison with {name}="
                f"{stored.get(name)}, not {expected.get(name)}; use another folder"
            )


def _by_importance(name: str) -> tuple[bool, bool, str]:
    return name != "data.path", not name.startswith(("compare.", "data.")), name


def write_plans(workdir: Path, prepared: ComparisonPlan) -> None:
    """Writes the comparison's config and plans, after all checks."""
    if not processes.is_first():
        return
    write_config(workdir / CONFIG, prepared.config)
    for name, plan in prepared.plans.items():
        write_steps(workdir, name, plan)
    plans = {
        name: {"config": plan.config, "filled": plan.filled}
        for name, plan in prepared.plans.items()
    }
    write_json(workdir / PLANS, {"plans": plans, "tuning": prepared.tuning})
    for folder, smaller in list_smaller(prepared, workdir):
        write_plans(folder, smaller)
    remote.push(workdir)  # before the runs, which depend on them


def list_smaller(
    prepared: ComparisonPlan, workdir: Path
) -> list[tuple[Path, ComparisonPlan]]:
    """The comparisons at the smaller ones of `compare.amounts`, with their folders."""
    return [
        (budgets.folder_of(workdir, smaller.spec.amount), smaller)
        for smaller in prepared.smaller
    ]


def load_plans(config: dict, workdir: Path) -> ComparisonPlan:
    """The plans that `write_plans` has written, with the text.

    Args:
      config: of the comparison in `workdir`.
    """
    prepared = restore_plans(config, processes.on_first(_load_stored, workdir))
    smaller = []
    for amount in make_compare_spec(config).amounts[:-1]:
        part = budgets.config_at(config, amount)
        folder = budgets.folder_of(workdir, amount)
        plans = _read_plans(processes.on_first(_load_stored, folder))
        spec = make_compare_spec(part)
        smaller.append(prepared._replace(config=part, spec=spec, plans=plans))
    return prepared._replace(smaller=tuple(smaller))


def _read_plans(stored: dict) -> dict[str, Plan]:
    if not stored["plans"]:
        raise CheckpointError(f"{PLANS}: has a plan of no objective; {_advise()}")
    return {
        name: make_plan(part["config"], is_stored=True).add_filled(part["filled"])
        for name, part in stored["plans"].items()
    }


def restore_plans(config: dict, stored: dict) -> ComparisonPlan:
    """As `load_plans`, from the content of plans.json, without smaller budgets."""
    plans = _read_plans(stored)
    text = next(iter(plans.values())).text
    tokenizer, corpora = processes.first_then_rest(lambda: load_text(text))
    vocabs = _count_tokens(plans, tokenizer, corpora)
    spec = make_compare_spec(config)
    if spec.amounts:
        spec = budgets.spec_at(spec, spec.amounts[-1])
    tuning = stored["tuning"]
    return ComparisonPlan(config, spec, plans, vocabs, tokenizer, corpora, tuning)


def _advise() -> str:
    """How a comparison that is not prepared gets there."""
    part = f"{argument('part')}=prepare"
    return f"prepare it first, with {part}, in a folder that all machines share"


def _load_stored(workdir: Path) -> dict:
    path = workdir / PLANS
    if not path.exists():
        raise CheckpointError(
            f"{argument('workdir')}={workdir}: holds no prepared comparison; "
            f"{_advise()}"
        )
    return load_json(path, PLANS_FORM, _advise())


def load_compared_config(workdir: Path) -> dict:
    """The config of the comparison in a folder."""
    path = workdir / CONFIG
    if not path.exists():
        raise CheckpointError(
            f"{argument('workdir')}={workdir}: holds no comparison; {_advise()}"
        )
    return load_config(path, _advise())
