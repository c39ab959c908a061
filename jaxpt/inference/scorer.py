"""A run as a scorer of texts."""

from typing import Any

from jaxpt.training.program import Program
from jaxpt.training.random_parts import check_language_model
from jaxpt.training.run_framing import find_form
from jaxpt.zero_shot.scoring import TextScorer


def make_scorer(program: Program, params: Any) -> TextScorer:
    """Scores texts by a run's network, in the form of its training.

    Raises:
      UserError: no rule applies to the network, or its head is random.
    """
    task = program.task
    check_language_model(task, "the likelihood of a text")
    form, name = find_form(task), task.plan.objective_name
    return TextScorer(task.model, params, form, name, program.compile_reader)
