"""No value that is missing becomes a label, a tag or a text, in any format."""

import json

import pyarrow
import pyarrow.parquet
import pytest

from jaxpt.errors import UserError
from jaxpt.tasks import (
    choice,
    classification,
    regression,
    span_qa,
    tagging,
    text_to_text,
)
from jaxpt.text.labelled.tables import Table, TableSpec, read_table
from jaxpt.text.sources.missing import WORDS, is_missing

NULLS = [None, float("nan")]
BLANKS = ["", " ", "\t", "\r\n"]
TAGS = {"words": "words", "tags": "tags"}
MISSING = [*NULLS, *BLANKS, *sorted(WORDS)]


def table(**columns):
    return Table("made.tsv", columns, [("made.tsv", f"line {i}") for i in range(2, 9)])


@pytest.mark.parametrize("value", MISSING, ids=repr)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_missing_label_is_no_class(value, place, refuses):
    labels = ["a", "b", "a"]
    labels[place] = value
    made = table(sentence=["x", "y", "z"], label=labels)
    with refuses(f"made.tsv line {place + 2}: label=", "the label is missing", "drop"):
        classification.read(made, classification.Spec(), None)
    spec = text_to_text.Spec(inputs=("sentence",), target="label", kind="classes")
    with refuses(f"made.tsv line {place + 2}: label=", "the label is missing"):
        text_to_text.read(made, spec, None)
    made = table(words=[["x"]] * 3, tags=[[label] for label in labels])
    spec = tagging.Spec(words="words", tags="tags", metric="accuracy")
    with refuses(f"made.tsv line {place + 2}: "):
        tagging.read(made, spec, None)


@pytest.mark.parametrize("word", sorted(WORDS))
def test_a_word_for_a_missing_value_is_a_label_if_it_is_listed(word):
    made = table(sentence=["x", "y"], label=["a", word])
    spec = classification.Spec(labels=("a", word))
    assert classification.read(made, spec, None)[1] == ("a", word)
    made = table(words=[["x"], ["y"]], tags=[["a"], [word]])
    spec = tagging.Spec(
        words="words", tags="tags", labels=("a", word), metric="accuracy"
    )
    assert tagging.read(made, spec, None)[1] == ("a", word)


def test_null_is_not_the_listed_label_none(refuses):
    spec = classification.Spec(labels=("a", "None"))
    with refuses("the label is missing"):
        classification.read(
            table(sentence=["x"] * 3, label=["a", "None", None]), spec, None
        )


@pytest.mark.parametrize("value", ["none", "neutral", "-", "0", 0, False, "n", "nano"])
def test_other_values_are_labels(value):
    made = table(sentence=["x", "y"], label=["a", value])
    assert len(classification.read(made, classification.Spec(), None)[1]) == 2
    assert not is_missing(value)


@pytest.mark.parametrize("value", [["a"], {"a": 1}, []])
def test_a_label_is_no_list(value, refuses):
    with refuses("line 3: label=", "must be a label"):
        made = table(sentence=["x", "y"], label=["a", value])
        classification.read(made, classification.Spec(), None)


def test_several_labels_may_be_none_but_not_null(refuses):
    spec = classification.Spec(separator=",", labels=("a", "b"))
    made = table(sentence=["x", "y", "z"], label=["a,b", "", "b, "])
    examples, _ = classification.read(made, spec, None)
    assert [example.labels for example in examples] == [(0, 1), (), (1,)]
    for value in (None, float("nan"), "a,nan"):
        with refuses("line 4: label=", "the label is missing"):
            made = table(sentence=["x", "y", "z"], label=["a", "b", value])
            classification.read(made, spec, None)


@pytest.mark.parametrize("value", [*MISSING, "inf", "-inf", float("inf"), True, "one"])
def test_a_number_is_finite(value, refuses):
    made = table(sentence1=["x"] * 2, sentence2=["y"] * 2, score=[1, value])
    with refuses("made.tsv line 3: score="):
        regression.read(made, regression.Spec(), None)


@pytest.mark.parametrize("value", [*NULLS, *BLANKS])
def test_a_missing_text_is_no_text(value, refuses):
    for column in ("sentence", "pair"):
        columns = {"sentence": ["x", "y"], "pair": ["x", "y"], "label": ["a", "b"]}
        columns[column] = ["x", value]
        with refuses(f"made.tsv line 3: '{column}' must be text", "missing=drop"):
            classification.read(
                table(**columns), classification.Spec(pair="pair"), None
            )
    made = table(a=["x", value], b=["x", value], label=["a", "b"])
    with refuses("made.tsv line 3: "):
        classification.read(made, classification.Spec(text="{a} {b}"), None)
    with refuses("made.tsv line 3: "):
        spec = text_to_text.Spec(inputs=("a", "b"), target="label", kind="classes")
        text_to_text.read(made, spec, None)
    with refuses("made.tsv line 3: 'words' has no value for word 2 of 2"):
        made = table(words=[["x", "y"], ["x", value]], tags=[["A", "B"]] * 2)
        tagging.read(
            made, tagging.Spec(words="words", tags="tags", metric="accuracy"), None
        )
    with refuses("made.tsv line 3: "):
        made = table(question=["x", value], a=["1", "2"], b=["3", "4"], answer=[0, 1])
        spec = choice.Spec(question="question", options=("a", "b"), answer="answer")
        choice.read(made, spec, None)
    with refuses("made.tsv line 3: a, b"):
        made = table(question=["x", "y"], a=["1", "2"], b=["3", value], answer=[0, 1])
        choice.read(made, spec, None)


@pytest.mark.parametrize("value", [*NULLS, *BLANKS, "nan", "None"])
def test_a_missing_answer_is_refused(value, refuses):
    made = table(question=["x", "y"], a=["1", "2"], b=["3", "4"], answer=[0, value])
    spec = choice.Spec(question="question", options=("a", "b"), answer="answer")
    with refuses("made.tsv line 3: answer="):
        choice.read(made, spec, None)
    for has_null in (True, False):
        made = table(question=["x"], context=["y"], answers=[value])
        with refuses("made.tsv line 2: answers="):
            span_qa.read(made, span_qa.Spec(has_null=has_null), None)
    # Without an answer, the lists are empty.
    made = table(
        question=["x"], context=["y"], answers=[{"text": [], "answer_start": []}]
    )
    (example,), _ = span_qa.read(made, span_qa.Spec(has_null=True), None)
    assert example.golds == ()


TEXTS, LABELS = ["x0", "x1", "x2"], ["a", None, "b"]
ROWS = [{"sentence": x, "label": y} for x, y in zip(TEXTS, LABELS, strict=True)]
FILES = {
    "a.jsonl": ROWS,
    "a.json": ROWS,
    "a.csv": "sentence,label\nx0,a\nx1,\nx2,b\n",
    "nan.csv": "sentence,label\nx0,a\nx1,nan\nx2,b\n",
    "a.tsv": "sentence\tlabel\nx0\ta\nx1\t\nx2\tb\n",
    "a.parquet": pyarrow.table({"sentence": TEXTS, "label": LABELS}),
    "number.parquet": pyarrow.table(
        {"sentence": TEXTS, "label": [0.0, float("nan"), 1.0]}
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_every_format_refuses_or_drops(name, tmp_path, caplog):
    path, data = tmp_path / name, FILES[name]
    if isinstance(data, pyarrow.Table):
        pyarrow.parquet.write_table(data, path)
    elif isinstance(data, list):
        lines = list(map(json.dumps, data))
        is_array = name.endswith(".json")
        path.write_text(f"[{','.join(lines)}]" if is_array else "\n".join(lines))
    else:
        path.write_text(data)
    spec, columns = classification.Spec(), ["sentence", "label"]
    with pytest.raises(UserError, match="the label is missing") as error:
        classification.read(read_table(TableSpec(str(path)), columns), spec, None)
    assert str(error.value).startswith(f"{path} ") and "label=" in str(error.value)
    made = read_table(TableSpec(str(path), missing="drop"), columns)
    examples, labels = classification.read(made, spec, None)
    assert len(labels) == 2 and [example.text for example in examples] == ["x0", "x2"]
    assert made.where(1).split()[-1] in ("3", "4", "2")
    assert "1 of 3 rows lack a value and are left out" in caplog.text


def test_dropping_leaves_something(tmp_path, refuses):
    (tmp_path / "a.csv").write_text("sentence,label\nx,\n")
    with refuses("each row lacks a value"):
        read_table(TableSpec(str(tmp_path / "a.csv"), missing="drop"), ["label"])
    with refuses("missing='skip': must be refuse or drop"):
        read_table(TableSpec(str(tmp_path / "a.csv"), missing="skip"), ["label"])
