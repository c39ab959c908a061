"""Text to text: T5's strings and numbers, the rows of each network, the metrics."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from jaxpt.errors import UserError
from jaxpt.tasks import text_to_text
from jaxpt.tasks.answers import round_fifth
from jaxpt.tasks.model import align_right
from jaxpt.tasks.text_to_text import Spec
from jaxpt.tasks.writing import Writing
from jaxpt.text.labelled.tables import Table
from jaxpt.text_form import TextForm
from tests.tasks.framed import make_encoder

ONE = Writing(
    has_decoder=False,
    sees_all=True,
    form=TextForm((0,), (4,), ends=(4,)),
    end=4,
    max_len=40,
)
FORM = TextForm((), (4,), start=7, ends=(4,))
TWO = dataclasses.replace(ONE, has_decoder=True, form=FORM)


def read(columns, known=None, **settings):
    table = Table("a.tsv", columns)
    return text_to_text.read(table, Spec(**settings), known)


def encode(columns, writing, is_training=True, max_len=40, **settings):
    encoder = dataclasses.replace(make_encoder(max_len=max_len), writing=writing)
    spec = Spec(**settings)
    examples, _ = text_to_text.read(Table("a.tsv", columns), spec, None)
    return encoder, text_to_text.encode(
        examples, encoder, spec, is_training=is_training
    )


def test_t5s_strings():
    columns = {"hypothesis": ["B ."], "premise": ["A ."], "label": ["1"]}
    settings = {"prefix": "rte", "inputs": ("hypothesis", "premise")}
    settings |= {"labels": ("0", "1"), "words": ("entailment", "not_entailment")}
    (example,), labels = read(columns, **settings)
    assert example.source == "rte hypothesis: B . premise: A ."
    assert example.target == "not_entailment" and labels == ("0", "1")
    columns = {"dialogue": ["Hi"], "summary": ["A greets."]}
    settings = {"kind": "text", "target": "summary", "prefix": "summarize:"}
    (example,), _ = read(columns, inputs=("dialogue",), keys=("",), **settings)
    assert (example.source, example.golds) == ("summarize: Hi", ("A greets.",))


def test_numbers_are_rounded_to_a_fifth_half_to_even():
    # shared/reference/downstream.md, section A.
    output = {2.57: "2.6", 0.5: "0.4", 2.5: "2.4", 3.5: "3.6", 4.5: "4.4", 5.0: "5.0"}
    assert {value: round_fifth(value) for value in output} == output
    spec = Spec(kind="number")
    examples, _ = read({"sentence": ["a", "b"], "label": ["2.57", 4]}, kind="number")
    assert [x.target for x in examples] == ["2.6", "4.0"]
    rows = [{"example": i} for i in range(2)]
    predictions = text_to_text.predict(["2 . 6", "much"], rows, examples, spec)
    assert predictions == [2.6, -1.0]


def test_any_other_answer_is_wrong():
    columns = {"sentence": ["a", "b", "c"], "label": [0, 1, 1]}
    settings = {"labels": ("0", "1"), "words": ("unacceptable", "acceptable")}
    examples, _ = read(columns, **settings)
    rows = [{"example": i} for i in (0, 2, 1)]
    texts = ["Un acceptable", "acceptable indeed", "acceptable"]
    predictions = text_to_text.predict(texts, rows, examples, Spec(**settings))
    assert predictions == [0, 1, -1]
    result = text_to_text.metrics(predictions, examples, Spec(**settings))
    assert result["accuracy"] == pytest.approx(2 / 3)
    assert result["invalid"] == pytest.approx(1 / 3)
    assert result["f1"] == pytest.approx(2 / 3)  # 0 1 0 of 0 1 1
    constant = text_to_text.constant(examples, examples, Spec(**settings))
    assert constant == [1, 1, 1]


def test_references_are_all_columns_that_match():
    columns = {"sentence": ["a"], "gold2": ["a cat"], "gold1": ["the dog"]}
    settings = {"kind": "text", "target": "gold*"}
    assert Spec(**settings).columns == []
    (example,), _ = read(columns, **settings)
    assert example.target == "the dog" and example.golds == ("the dog", "a cat")
    best = text_to_text.metrics(["a cat"], [example], Spec(**settings))
    mean = Spec(over_references="mean", **settings)
    assert best["rouge1"] == 1.0
    assert text_to_text.metrics(["a cat"], [example], mean)["rouge1"] == 0.5
    columns = {"sentence": ["a"], "label": ["A . <::::> B ."]}
    (example,), _ = read(columns, kind="text", drop=" <::::>")
    assert example.golds == ("A . B .",)


def test_rows_may_differ_in_their_references():
    """Columns that are null or empty, and lists; the first one is learnt."""
    columns = {
        "sentence": ["a", "b", "c"],
        "gold1": ["a cat", "a dog", ["a mat", "mats", "the mat"]],
        "gold2": ["cats", None, ""],
    }
    settings = {"kind": "text", "target": "gold*"}
    examples, _ = read(columns, **settings)
    assert [x.golds for x in examples] == [
        ("a cat", "cats"),
        ("a dog",),
        ("a mat", "mats", "the mat"),
    ]
    assert [x.target for x in examples] == ["a cat", "a dog", "a mat"]
    predictions = ["cats", "a dog", "the mat"]
    result = text_to_text.metrics(predictions, examples, Spec(**settings))
    assert result["rouge1"] == result["rougeL"] == 1.0
    mean = Spec(over_references="mean", **settings)
    # cats: (0 + 1) / 2 stemmed 2/3 of "a cat"; a dog: 1; the mat: (1/2 + 2/3 + 1) / 3.
    result = text_to_text.metrics(predictions, examples, mean)
    expected = ((2 / 3 + 1) / 2 + 1 + (1 / 2 + 2 / 3 + 1) / 3) / 3
    assert result["rouge1"] == pytest.approx(expected)


def test_bleu_of_ragged_references_is_sacrebleus():
    import sacrebleu

    golds = [["the cat sat on the mat", "a cat sat on a mat"], ["he read the book"]]
    examples, _ = read({"sentence": ["a", "b"], "label": golds}, kind="text")
    predictions = ["the cat sat on a mat", "he has read the book"]
    result = text_to_text.metrics(predictions, examples, Spec(kind="text"))["bleu"]
    streams = [[golds[0][0], golds[1][0]], [golds[0][1], None]]
    assert result == pytest.approx(
        sacrebleu.corpus_bleu(predictions, streams).score / 100
    )


def test_rows_of_a_group_are_references_of_one_text():
    """As E2E's files have them; in training each row is an example."""
    columns = {
        "mr": ["a", "b", "a", "a"],
        "ref": ["a cat", "a dog", "cats", "the cat"],
    }
    settings = {"kind": "text", "inputs": ("mr",), "target": "ref", "group": "mr"}
    assert Spec(**settings).columns == ["mr", "ref"]
    train, labels = read(columns, **settings)
    assert [x.golds for x in train] == [("a cat",), ("a dog",), ("cats",), ("the cat",)]
    dev, _ = read(columns, known=labels, **settings)
    assert [(x.source, x.golds) for x in dev] == [
        ("mr: a", ("a cat", "cats", "the cat")),
        ("mr: b", ("a dog",)),
    ]
    columns["id"] = ["1", "2", "1", "2"]
    with pytest.raises(UserError, match="row 3: id='2': rows of one group must have"):
        read(columns, known=(), **settings | {"group": "id"})


@pytest.mark.parametrize(
    "values, part",
    [
        ([None], "row 0: 'label' must be a text, or several; is null"),
        ([[]], "row 0: 'label' must be a text, or several; is null"),
        ([3], "row 0: 'label' must be text or a list of texts, is 3"),
        ([["a", None]], "must be text or a list of texts"),
    ],
)
def test_faults_of_references(values, part):
    with pytest.raises(UserError, match=part):
        read({"sentence": ["a"], "label": values}, kind="text")


def test_answers_of_squad():
    answers = [{"text": ["a cat", "cat"], "answer_start": [0, 2]}, "mat"]
    examples, _ = read({"sentence": ["x", "y"], "label": answers}, kind="answer")
    assert [x.golds for x in examples] == [("a cat", "cat"), ("mat",)]
    result = text_to_text.metrics(["Cat.", "dog"], examples, Spec(kind="answer"))
    assert result == {"exact_match": 0.5, "f1": 0.5}


COLUMNS = {"sentence": ["the cat", "lower mat sat"], "label": ["wide", "slower cat"]}
PLAIN = {"keys": ("",), "max_target": 12}


def test_one_stack_reads_the_answer_behind_the_text():
    encoder, rows = encode(COLUMNS, ONE, **PLAIN)
    ids = encoder.ids("the cat").tolist()
    answer = encoder.ids("wide").tolist()
    row = rows[0]
    assert row["tokens"].tolist() == [0, *ids, 4, *answer]
    # Each target is the next token: the answer's first is predicted at the last mark.
    ignored = [-1] * (len(ids) + 1)
    assert row["targets"].tolist() == [*ignored, *answer, 4]
    num = len(ids) + 2
    assert row["is_prefix"].tolist() == [1] * num + [0] * len(answer)
    causal = dataclasses.replace(ONE, sees_all=False)
    _, rows = encode(COLUMNS, causal, **PLAIN)
    assert not rows[0]["is_prefix"].any()
    _, rows = encode(COLUMNS, ONE, is_training=False, **PLAIN)
    assert rows[0]["tokens"].tolist() == [0, *ids, 4] and "targets" not in rows[0]


def test_a_decoder_writes_the_answer():
    encoder, rows = encode(COLUMNS, TWO, **PLAIN)
    assert rows[0]["tokens"].tolist() == [*encoder.ids("the cat"), 4]
    expected = [*encoder.ids("wide"), 4]
    assert rows[0]["answer"][: len(expected)].tolist() == expected
    assert set(rows[0]["answer"][len(expected) :]) <= {-1}
    assert len({len(row["answer"]) for row in rows}) == 1
    # BART's answers open with a token that is forced.
    forced = dataclasses.replace(FORM, first=9)
    writing = dataclasses.replace(TWO, form=forced)
    _, rows = encode(COLUMNS, writing, **PLAIN)
    assert rows[0]["answer"][: len(expected) + 1].tolist() == [9, *expected]
    assert forced.cut_answer(np.array([9, 5, 4])).tolist() == [5]
    assert ONE.form.cut_answer(np.array([5, 6])).tolist() == [5, 6]


def test_long_texts_and_answers_are_cut():
    columns = {"sentence": ["the cat sat on the mat " * 9], "label": ["wide " * 20]}
    settings = {"kind": "text", "keys": ("",), "max_target": 6}
    _, (row,) = encode(columns, ONE, max_len=20, **settings)
    assert len(row["tokens"]) == 19 and (row["targets"] >= 0).sum() == 6
    assert row["targets"][-1] == 4  # the end is kept
    _, (row,) = encode(columns, TWO, max_len=20, **settings)
    assert len(row["tokens"]) == 20 and len(row["answer"]) == 6


def test_rows_are_aligned_for_generation():
    ids = jnp.array([[5, 6, 7], [8, 0, 0]])
    aligned, lengths = align_right(ids, jnp.array([[1, 1, 1], [1, 0, 0]]))
    assert aligned.tolist() == [[5, 6, 7], [0, 0, 8]] and lengths.tolist() == [3, 1]


@pytest.mark.parametrize(
    "columns, settings, message",
    [
        ({"text": ["a"], "label": ["x"]}, {}, "no column 'sentence'; it has 'text'"),
        ({"sentence": ["a"], "label": ["x"]}, {}, "has the one label 'x'"),
        (COLUMNS, {"labels": ("a", "b")}, "label='wide': task.labels has 'a', 'b'"),
        (COLUMNS, {"kind": "number"}, "row 0: label='wide': must be a number"),
        (COLUMNS, {"kind": "text", "target": "gold*"}, "no column 'gold.'; it has"),
        ({"sentence": ["a"], "label": [[]]}, {"kind": "answer"}, "must be an answer"),
        (
            COLUMNS,
            {"labels": ("wide", "slower cat"), "words": ("Yes", "yes")},
            "task.words=.'Yes', 'yes'.: must differ",
        ),
    ],
)
def test_faults(columns, settings, message):
    with pytest.raises(UserError, match=message):
        read(columns, **settings)


def test_networks_that_do_not_write_and_rows_without_room():
    with pytest.raises(UserError, match="generates from left to right"):
        encode(COLUMNS, None)
    with pytest.raises(UserError, match="task.max_len=12: must be above"):
        encode(COLUMNS, ONE, max_len=12, max_target=10)
    with pytest.raises(UserError, match="task.max_target=41: must be at most the"):
        encode(COLUMNS, TWO, max_target=41)
