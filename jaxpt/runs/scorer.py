"""A run as a scorer of texts."""

from typing import Any

from jaxpt.runs.program import Program
from jaxpt.runs.random_parts import check_language_model, list_predicting
from jaxpt.zero_shot.scoring import TextScorer, list_rules


def make_scorer(program: Program, params: Any) -> TextScorer:
    """Scores texts by a run's network, in the form of its training.

    Rules that read a random part of the parameters are left out.
    """
    task = program.task
    form, name = task.text_form, task.plan.objective_name
    random_parts, read = list_predicting(task), task.model.RULE_PARTS
    unusable = [
        rule
        for rule in list_rules(task.model, form)
        if set(random_parts).intersection(read.get(rule, random_parts))
    ]
    if unusable and not list_rules(task.model, form, unusable):
        check_language_model(task, "the likelihood of a text")
    compile_reader = program.compile_reader
    return TextScorer(task.model, params, form, name, compile_reader, unusable=unusable)
