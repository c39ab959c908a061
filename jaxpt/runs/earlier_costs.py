"""The costs of the runs before a run: its teacher, and the source of its parameters.

A run's own cost is what it *added*; with the cost of its source (`train.init_from`) it
is the *total* cost of its parameters. Every cost includes all runs before it.
"""

from collections.abc import Callable
from pathlib import Path

from jaxpt.config.plan import Plan, make_plan
from jaxpt.errors import UserError
from jaxpt.files.folder import load_config, load_measured
from jaxpt.files.remote import fetch
from jaxpt.runs import stored_form
from jaxpt.runs.result import RESULT, SCHEMA

# The names of a run's costs in its result.json; operations are counted for a report.
NAMES = ("flops", "operations", "raw_tokens", "train_seconds")
Costs = dict[str, float | None]
Count = Callable[[Plan, int], float] | None


def find_teacher_costs(plan: Plan, count: Count = None) -> Costs:
    """The cost of a plan's teacher, with all runs before it.

    Args:
      count: the operations of a plan's first steps; without it they are unknown.

    Returns:
      the costs by their names in a result.json, None if the teacher's folder does not
      have them; {} for a plan without a teacher.
    """
    teacher = plan.spec.needs.teacher
    if teacher is None:
        return {}
    return _sum_costs(Path(teacher.run), count) if teacher.run else _unknown()


def find_source_costs(plan: Plan, count: Count = None) -> Costs:
    """The cost of a plan's `train.init_from`, with all runs before it.

    That of an imported model is unknown, also if it was trained further. Args and
    Returns as for `find_teacher_costs`.
    """
    if not plan.train.init_from:
        return {}
    try:
        folder = fetch(plan.train.init_from)
        is_imported = (folder / stored_form.NAME).exists()
        return _unknown() if is_imported else _sum_costs(folder, count)
    except UserError:  # no longer there, or not readable
        return _unknown()


def record_source(plan: Plan) -> dict[str, object]:
    """The "source" of a run's result.json: its folder and its costs.

    It is stored because the source may be removed or trained further.
    """
    known = find_source_costs(plan)
    costs = {name: known[name] for name in NAMES if name != "operations"}
    return {"source": {"run": plan.train.init_from} | costs}


def _sum_costs(folder: Path, count: Count) -> Costs:
    """The cost of a run, with its teacher's and its source's."""
    path = folder / RESULT
    if not path.exists():  # of an imported model, or no longer there
        return _unknown()
    result = load_measured(path, SCHEMA)
    stored = load_config(folder / "config.json", "the teacher's run")
    plan = make_plan(stored, is_stored=True)
    source = {k: v for k, v in result.get("source", {}).items() if k != "run"}
    before = find_teacher_costs(plan, count), find_source_costs(plan, count) | source
    if count:
        result = result | {"operations": count(plan, result["steps"])}
    costs: Costs = {}
    for name in NAMES:
        parts = [result.get(name), *(each.get(name, 0.0) for each in before)]
        known = [part for part in parts if part is not None]
        costs[name] = sum(known) if len(known) == len(parts) else None
    return costs


def _unknown() -> Costs:
    return dict.fromkeys(NAMES)
