"""What is exact about the text of a language: baselines, floors, and how models answer.

The text has exact conditionals (`jaxpt.evaluation.regret`), so its entropy and the
regret of n-gram tables need no training. One text serves all objectives of a report, or
nothing is described.
"""

import math
from collections.abc import Mapping

from jaxpt.evaluation.regret import TABLES, list_floors
from jaxpt.evaluation.whole_answers import best_accuracy
from jaxpt.judge.examples import Examples
from jaxpt.languages import BOTH, LEFT, REGRETS
from jaxpt.report.formats import format_flops
from jaxpt.report.metrics import METRICS
from jaxpt.report.types import KnownTruth
from jaxpt.runs.exact_answers import (
    NetworkAnswer,
    count_price,
    explain_no_answer,
    is_beyond_training,
    list_answers,
)
from jaxpt.runs.task import Task
from jaxpt.text.dataset import Split
from jaxpt.training.regret import Known, find_known

UNIGRAM = "unigram"
WORDS = {LEFT: "left to right", BOTH: "two-sided"}


def measure_exact_baselines(
    task: Task, corpora: dict[str, Split]
) -> tuple[dict[str, Examples], dict[str, Examples]]:
    """By metric of regret, the exact table that it must beat, and the exact unigram."""
    known = find_known(task, corpora)
    if known is None:
        return {}, {}
    tables, unigrams = (
        {
            REGRETS[q]: of[chosen[q]]
            for q, of in known.anchors.items()
            if chosen[q] in of
        }
        for chosen in (TABLES, dict.fromkeys(TABLES, UNIGRAM))
    )
    return tables, unigrams


def find_truth(
    tasks: Mapping[str, Task], corpora_of: Mapping[str, dict[str, Split]]
) -> KnownTruth | None:
    """The floors and the baselines of a report's text; None if it has no exact ones."""
    found = {name: find_known(tasks[name], x) for name, x in corpora_of.items()}
    texts = set(map(id, found.values()))
    known = next(iter(found.values()), None)
    if known is None or len(texts) != 1:
        return None
    floors = list_floors(known.questions)
    uniform = math.log(known.language.num_symbols)
    anchors = {
        question: {name: examples.mean for name, examples in of.items()}
        for question, of in known.anchors.items()
    }
    lines = [_word_floors(known, floors, uniform)]
    lines += [
        f"regret without training, {WORDS[question]}: "
        + ", ".join(f"{name} {value:.4f}" for name, value in of.items())
        for question, of in anchors.items()
    ]
    lines += _word_chances(known)
    num = known.language.num_symbols
    length = known.questions.rows.shape[1]
    lines += [_word_answers(name, tasks[name], num, length) for name in found]
    chances = known.language.chances()
    return KnownTruth(floors, uniform, anchors, tuple(lines), chances)


def _word_floors(known: Known, floors: Mapping[str, float], uniform: float) -> str:
    num, width = known.questions.positions.shape
    listed = ", ".join(f"{WORDS[q]} {value:.4f}" for q, value in floors.items())
    return (
        f"exact entropies in nats, the floors of every loss: {listed}; of the uniform "
        f"distribution over {known.language.num_symbols} symbols {uniform:.4f}; regret "
        f"is the mean over {width} positions in each of {num} validation documents"
    )


def _word_chances(known: Known) -> list[str]:
    """A line with the chance levels of a task's answers, and what exact ones reach."""
    chances = known.language.chances()
    if not chances or known.answers is None:
        return []
    listed = ", ".join(f"{METRICS[m].label} {x:.4f}" for m, x in chances.items())
    most, num = best_accuracy(known.answers)
    line = f"chance: {listed}, of {known.language.guess}; exact answers reach "
    return [f"{line}{most:.4f} of {num} whole answers"]


def _word_answers(name: str, task: Task, num_symbols: int, length: int) -> str:
    """How a model answers each question, and the price of answers not compared."""
    answers = list_answers(task, num_symbols)
    if not answers:
        return f"{name} answers neither question"
    parts = [_word_answer(task, answer, length) for answer in answers]
    for question, words in WORDS.items():
        if not any(a.is_direct and a.question == question for a in answers):
            parts.append(f"{words}: no direct answer")
    return f"{name} answers {'; '.join(parts)}"


def _word_answer(task: Task, answer: NetworkAnswer, length: int) -> str:
    if reason := explain_no_answer(task, answer, length):
        return f"{WORDS[answer.question]} nothing: {reason}"
    passes = "one pass for a whole text"
    if answer.passes:
        price = format_flops(count_price(task, answer))
        number = f"{answer.passes} pass{'es' * (answer.passes > 1)}"
        passes = f"{number}, {price} FLOPs a position"
    note = "" if answer.is_direct else "; not compared"
    is_far = answer.is_far or is_beyond_training(task, answer, length)
    note += "; far from its training" if is_far else ""
    return f"{WORDS[answer.question]} {answer.how} ({passes}{note})"
