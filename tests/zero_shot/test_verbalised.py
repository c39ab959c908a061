"""Task files: templates, words for labels, and their faults."""

import json

import pytest

from jaxpt.zero_shot.questions import Question
from jaxpt.zero_shot.verbalised import ask_all, read_cloze

TASK = {
    "table": {"path": "dev.tsv", "header": False},
    "label": "1",
    "template": "{0} It was {answer}.",
    "words": {"0": "terrible", "1": "really great"},
}


@pytest.fixture
def write(tmp_path):
    (tmp_path / "dev.tsv").write_text("A dull film.\t0\nFun!\t1\n")

    def write(**changes):
        path = tmp_path / "task.json"
        values = {k: v for k, v in (TASK | changes).items() if v is not None}
        path.write_text(json.dumps(values))
        return str(path)

    return write


def test_rows_become_questions(write):
    spec = read_cloze(write())
    options = (" terrible", " really great")
    assert ask_all(spec, spec.table) == [
        Question(("A dull film. It was",) * 2, options, 0, "."),
        Question(("Fun! It was",) * 2, options, 1, "."),
    ]
    assert spec.shots is None


def test_columns_may_stand_behind_the_words(write):
    spec = read_cloze(write(template="Is it ({answer}) {0}?"))
    result = ask_all(spec, spec.table)[1]
    assert result == Question(
        ("Is it (",) * 2, ("terrible", "really great"), 1, ") Fun!?"
    )
    assert result.solved == "Is it (really great) Fun!?"


def test_shots_are_a_table_of_their_own(write):
    spec = read_cloze(write(shots={"path": "dev.tsv", "header": False}))
    assert spec.shots == spec.table


@pytest.mark.parametrize(
    "changes, part",
    [
        ({"template": "{0} It was."}, "{answer} once"),
        ({"template": "{answer}: {0}"}, "before {answer}"),
        ({"words": {"0": "bad"}}, "words="),
        ({"words": {"0": "bad", "1": " "}}, "words="),
        ({"label": None}, "label"),
        ({"wrods": {}}, "wrods"),
        ({"table": "dev.tsv"}, "table"),
        ({"table": {"path": "dev.tsv", "headers": 1}}, "headers"),
    ],
)
def test_faults_of_a_task_file(write, changes, part, refuses):
    with refuses("task.json", part):
        read_cloze(write(**changes))


def test_faults_of_its_table(write, refuses):
    spec = read_cloze(write(words={"0": "bad", "2": "good"}))
    with refuses("dev.tsv line 2", "1='1'", "0, 2"):
        ask_all(spec, spec.table)
    spec = read_cloze(write(template="{7} It was {answer}"))
    with refuses("dev.tsv", "'7'"):
        ask_all(spec, spec.table)


def test_no_json(tmp_path, refuses):
    path = tmp_path / "task.json"
    path.write_text("{")
    with refuses("task.json", "JSON"):
        read_cloze(str(path))
    with refuses("nothing.json"):
        read_cloze(str(tmp_path / "nothing.json"))
