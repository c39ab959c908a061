"""Choice from any table: task files, the questions they give, and their faults."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from shared import find_shared

from jaxpt.zero_shot import multiple_choice, tasks
from jaxpt.zero_shot.continuations import ContinuationScores
from jaxpt.zero_shot.questions import Question, read_questions
from jaxpt.zero_shot.table_choice import read_choice_shots, read_choices

ROWS = [
    {"q": "Ice is", "a": "cold", "b": "hot", "list": ["cold", "hot"], "right": 0},
    {"q": "Fire is", "a": "wet", "b": "hot", "list": ["wet", "hot", "red"], "right": 1},
]
TASK = {
    "table": {"path": "dev.jsonl"},
    "context": "{q}",
    "options": ["a", "b"],
    "label": "right",
}


@pytest.fixture
def write(tmp_path):
    def write(rows=ROWS, **changes):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "dev.jsonl").write_text(lines)
        path = tmp_path / "task.json"
        values = {k: v for k, v in (TASK | changes).items() if v is not None}
        path.write_text(json.dumps(values))
        return str(path)

    return write


def test_options_are_columns_or_one_column_of_lists(write):
    expected = [
        Question(("Ice is",) * 2, (" cold", " hot"), 0),
        Question(("Fire is",) * 2, (" wet", " hot"), 1),
    ]
    assert read_choices(write()) == expected
    choices = read_choices(write(options="list", context="Say: {q} "))
    assert choices[1] == Question(("Say: Fire is",) * 3, (" wet", " hot", " red"), 1)
    choices = read_choices(write(context="{q}...\n"))
    assert choices[0] == Question(("Ice is...\n",) * 2, ("cold", "hot"), 0)


@pytest.mark.parametrize(
    "values, first",
    [((0, 1), 0), (("0", "1"), 0), ((1, 2), 1), (("A", "b"), 0), (("A", "B"), 1)],
)
def test_labels_are_numbers_or_letters(values, first, write):
    rows = [row | {"right": value} for row, value in zip(ROWS, values)]
    assert [x.answer for x in read_choices(write(rows, first=first))] == [0, 1]


def test_labels_of_arc_are_its_keys(write):
    options = {"text": ["x", "y", "z"], "label": ["1", "2", "3"]}
    rows = [{"q": "Q", "choices": options, "right": key} for key in ("3", "1")]
    choices = read_choices(write(rows, options="choices"))
    assert [x.answer for x in choices] == [2, 0]
    assert choices[0].options == (" x", " y", " z")


def test_shots_are_a_second_table(write, refuses):
    path = write(shots={"path": "dev.jsonl"})
    assert read_choice_shots(path) == read_choices(path)
    with refuses("shots=", "must have shots"):
        read_choice_shots(write())


@pytest.mark.parametrize(
    "changes, part",
    [
        ({"context": "Say:"}, "context='Say:': must name a column"),
        ({"context": 1}, "context=1"),
        ({"options": []}, "options=[]"),
        ({"options": ["a", 1]}, "options="),
        ({"first": "1"}, "first='1'"),
        ({"label": None}, "must be an object with table, context, options, label"),
        ({"lable": "x"}, "lable: must be one of table, context"),
        ({"table": {"path": "dev.jsonl", "form": 1}}, "form"),
        ({"context": "{z}"}, "dev.jsonl line 1: no column 'z'"),
        ({"options": ["a"]}, "dev.jsonl line 1: a: must be at least two texts"),
        ({"label": "q"}, "q='Ice is': must be the number of an option, from 0 to 1"),
        ({"first": 1}, "right=0: must be the number of an option, from 1 to 2"),
    ],
)
def test_faults_are_one_line(changes, part, write, refuses):
    with refuses(part):
        read_choices(write(**changes))


def test_it_is_scored_as_other_questions(write):
    """log p is minus the option's length without its space: acc takes the shortest."""

    def score(pairs):
        lengths = [float(len(pair.continuation.strip())) for pair in pairs]
        return [ContinuationScores(np.array([-n]), np.array([False])) for n in lengths]

    result = multiple_choice.evaluate(read_choices(write(options="list")), score, False)
    # Of cold, hot it is hot (wrong); of wet, hot, red a tie of three.
    assert result.hits["acc"].tolist() == [0, pytest.approx(1 / 3)]
    assert result.trivial["chance"] == pytest.approx((1 / 2 + 1 / 3) / 2)
    task = tasks.TASKS["choice"]
    assert task.read(write()) == read_choices(write()) and "shots" in task.options


@pytest.mark.parametrize(
    "name, file, changes",
    [
        (
            "openbookqa",
            "openbookqa.validation.jsonl",
            {"context": "{question_stem}", "options": "choices", "label": "answerKey"},
        ),
        (
            "arc",
            "arc-easy.validation.jsonl",
            {
                "context": "Question: {question}\nAnswer:",
                "options": "choices",
                "label": "answerKey",
            },
        ),
    ],
)
def test_real_tables_give_the_questions_of_their_own_tasks(name, file, changes, write):
    path = find_shared(
        f"downstream/choice-dev/{file}", "that a task file asks the same"
    )
    output = write(**({"label": "label"} | changes | {"table": {"path": str(path)}}))
    choices = read_choices(output)
    assert choices == read_questions(name, str(path)) and len(choices) >= 500


def test_the_example_of_the_docs_gives_piqas_questions(tmp_path):
    page = Path(__file__).resolve().parents[2] / "docs" / "downstream.md"
    (output,) = re.findall(r'`(\{"table": \{"path": "piqa[^`]*)`', page.read_text())
    values = json.loads(output)
    name = "piqa.validation.jsonl"
    assert values["table"] == {"path": name}
    row = {"goal": "To open a jar", "sol1": "twist it", "sol2": "eat it", "label": 0}
    (tmp_path / name).write_text(json.dumps(row))
    (tmp_path / "choice.json").write_text(output)
    task = str(tmp_path / "choice.json")
    assert read_choices(task) == read_questions("piqa", str(tmp_path / name))
    path = find_shared(f"downstream/choice-dev/{name}", "the same of all of PIQA")
    values["table"]["path"] = str(path)
    (tmp_path / "choice.json").write_text(json.dumps(values))
    choices = read_choices(task)
    assert choices == read_questions("piqa", str(path)) and len(choices) == 1838
