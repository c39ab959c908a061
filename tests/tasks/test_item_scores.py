"""Scores of examples: their mean is the metric, for every metric that is a mean."""

from types import SimpleNamespace

import pytest

from jaxpt.tasks import (
    TASKS,
    choice,
    classification,
    regression,
    span_qa,
    tagging,
    text_to_text,
)
from jaxpt.tasks.task import TaskSpec
from jaxpt.tasks.text_metrics import INVALID

GOLDS = (("the red house",), ("Rome", "roma"), ("",), ("four",))
ANSWERS = ["red house", "Rome", "", "five"]


def make(**columns):
    """One object for each row of the columns."""
    return [
        SimpleNamespace(**dict(zip(columns, row, strict=True)))
        for row in zip(*columns.values(), strict=True)
    ]


def classes(right, num_labels=3):
    return make(labels=right, num_labels=[num_labels] * len(right))


def written(kind, **settings):
    return text_to_text.Spec(kind=kind, **settings)


# task, settings, predictions, examples, the metrics that are means over examples
CASES = {
    "choice": (choice, choice.Spec(), [0, 1, 1], make(right=[0, 1, 2]), "accuracy"),
    "classes": (
        *(classification, classification.Spec(), [0, 1, 1, 2]),
        *(classes([(0,), (1,), (2,), (2,)]), "accuracy"),
    ),
    "label sets": (
        *(classification, classification.Spec(separator=","), [(0, 2), (), (1,)]),
        *(classes([(0, 2), (), (0, 1)]), "accuracy"),
    ),
    "numbers": (
        *(regression, regression.Spec(), [0.1, 0.5, 0.2]),
        *(make(value=[0.0, 1.0, 0.5]), ""),
    ),
    "tags": (
        *(tagging, tagging.Spec(), [["B-x", "O"], ["O", "O", "B-x"]]),
        make(
            tags=[["B-x", "O"], ["B-x", "O", "O"]],
            labels=[("B-x", "O")] * 2,
            words=[["a", "b"], ["c", "d", "e"]],
        ),
        "accuracy",
    ),
    "written classes": (
        *(text_to_text, written("classes"), [0, 1, INVALID]),
        *(make(label=[0, 0, 1], words=[("no", "yes")] * 3), "accuracy"),
    ),
    "written answers": (
        *(text_to_text, written("answer"), ANSWERS, make(golds=GOLDS)),
        "exact_match f1",
    ),
    "written numbers": (
        *(text_to_text, written("number"), [0.1, 0.5, 0.2]),
        *(make(value=[0.0, 1.0, 0.5]), ""),
    ),
    "written texts": (
        *(text_to_text, written("text"), ["a red house", "no"]),
        *(make(golds=[("the house", "a red home"), ("yes", "no")]),),
        "rouge1 rouge2 rougeL rougeLsum",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_mean_of_the_scores_is_the_metric(case):
    task, spec, predictions, examples, names = CASES[case]
    if "text" in case:
        pytest.importorskip("rouge_score")
        pytest.importorskip("sacrebleu")
    scores = task.item_scores(predictions, examples, spec)
    metrics = task.metrics(predictions, examples, spec)
    assert set(scores) == set(names.split())
    for name, items in scores.items():
        assert items.mean == pytest.approx(metrics[name]) and 0 < items.mean < 1
        assert items.groups.tolist() == list(range(len(examples)))


def test_answers_in_a_text_are_scored_as_written_ones(monkeypatch):
    monkeypatch.setattr(span_qa, "answer", lambda prediction, spec: prediction)
    examples = make(golds=GOLDS)
    scores = span_qa.item_scores(ANSWERS, examples, span_qa.Spec())
    metrics = span_qa.metrics(ANSWERS, examples, span_qa.Spec())
    assert {name: items.mean for name, items in scores.items()} == pytest.approx(
        {name: metrics[name] for name in ("exact_match", "f1")}
    )


def test_every_task_gives_scores():
    covered = {task for task, *_ in CASES.values()} | {span_qa}
    assert covered == set(TASKS.values())
    assert all(issubclass(task.Spec, TaskSpec) for task in covered)
