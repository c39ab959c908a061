"""A comparison of which only its runs are left to do, kept for whoever does them.

    <folder>/compare.json    what was asked for
    <folder>/plans.json      {"plans": {name: {"config", "filled"}}, "tuning": {name: }}
    <folder>/runs/NAME-seedN    each run, as `jaxpt train` leaves one

What is decided once and for all runs (the teachers, what was tuned, the steps that the
budget buys) is in plans.json, so that other processes and machines train the same runs.
"""

from pathlib import Path
from typing import NamedTuple

from jaxpt.config.plan import Plan, make_compare_spec, make_plan
from jaxpt.config.sections import CompareSpec
from jaxpt.distributed import processes
from jaxpt.errors import UserError
from jaxpt.files.folder import load_json, write_json
from jaxpt.text.dataset import Split, load_text
from jaxpt.text.tokens.tokenizer import Tokenizer
from jaxpt.text.tokens.vocab import Vocab
from jaxpt.training.data import with_token_counts
from jaxpt.training.task import Task, make_task

PLANS = "plans.json"
FIRST = "prepare it first, with --part=prepare, in a folder that all machines share"


class Prepared(NamedTuple):
    """What is the same for all runs of a comparison.

    Attributes:
      config: as it was given, plain values.
      plans: of each name, whole but for the seed.
      vocabs: of each name.
      tuning: of each name, what `tuning.tune` records; empty if nothing was tuned.
    """

    config: dict
    spec: CompareSpec
    plans: dict[str, Plan]
    vocabs: dict[str, Vocab]
    tokenizer: Tokenizer
    corpora: dict[str, Split]
    tuning: dict[str, dict]

    def make_task(self, name: str, seed: int) -> Task:
        """What a run trains."""
        plan = self.plans[name].change({"train": {"seed": seed}})
        return make_task(plan, self.vocabs[name])


def list_runs(spec: CompareSpec) -> list[tuple[str, int]]:
    """The name and the seed of each run, in the order of the report."""
    return [(name, seed) for name in spec.objectives for seed in spec.seeds]


def run_name(name: str, seed: int) -> str:
    """What a run and its folder are called.

    >>> run_name("mlm", 3)
    'mlm-seed3'
    """
    return f"{name}-seed{seed}"


def run_path(workdir: Path, name: str, seed: int) -> Path:
    """The folder of a run."""
    return workdir / "runs" / run_name(name, seed)


def write_prepared(workdir: Path, prepared: Prepared) -> None:
    """Keeps what was decided.

    Raises:
      UserError: it cannot be written.
    """
    plans = {
        name: {"config": plan.config, "filled": plan.filled}
        for name, plan in prepared.plans.items()
    }
    write_json(workdir / PLANS, {"plans": plans, "tuning": prepared.tuning})


def load_prepared(config: dict, workdir: Path) -> Prepared:
    """What `write_prepared` has kept, with the text.

    Args:
      config: of `workdir`'s own comparison.

    Raises:
      UserError: nothing was prepared there, it was altered, or the text is gone.
    """
    spec = make_compare_spec(config)
    held = processes.on_first(lambda: _load_plans(workdir))
    plans = {
        name: make_plan(part["config"], is_stored=True).add_filled(part["filled"])
        for name, part in held["plans"].items()
    }
    text = next(iter(plans.values())).text
    tokenizer, corpora = processes.first_then_rest(lambda: load_text(text))
    vocabs = {
        name: with_token_counts(plan, tokenizer.vocab, corpora["train"])
        for name, plan in plans.items()
    }
    tuning = held["tuning"]
    return Prepared(config, spec, plans, vocabs, tokenizer, corpora, tuning)


def _load_plans(workdir: Path) -> dict:
    path = workdir / PLANS
    if not path.exists():
        raise UserError(f"--workdir={workdir}: holds no prepared comparison; {FIRST}")
    return load_json(path, FIRST)
