"""Classification, regression and choice: examples, rows, losses, predictions."""

import jax.numpy as jnp
import numpy as np
import pytest
from tasks.encoders import make_encoder, show

from jaxpt.tasks import choice, classification, regression
from jaxpt.tasks.metrics import class_metrics, label_set_metrics, number_metrics
from jaxpt.text.labelled.tables import Table


def table(**columns):
    return Table("made.tsv", columns)


def test_labels_are_those_of_training():
    spec = classification.Spec()
    made = table(sentence=["ab", "c", "d"], label=["yes", "no", "yes"])
    examples, labels = classification.read(made, spec, None)
    assert labels == ("no", "yes")
    assert [x.labels for x in examples] == [(1,), (0,), (1,)]
    dev, _ = classification.read(table(sentence=["a"], label=["no"]), spec, labels)
    assert dev[0].labels == (0,)


def test_the_order_of_labels_is_the_one_given():
    spec = classification.Spec(labels=("2", "0", "1"))
    made = table(sentence=["a", "b", "c"], label=[0, 1, 2])
    examples, labels = classification.read(made, spec, None)
    assert labels == ("2", "0", "1")
    assert [x.labels for x in examples] == [(1,), (2,), (0,)]


def test_unknown_labels_are_refused_with_their_place(refuses):
    spec = classification.Spec()
    train = table(sentence=["a", "b"], label=["x", "y"])
    _, labels = classification.read(train, spec, None)
    with refuses("made.tsv row 1", "label='z'", "the training data has 'x', 'y'"):
        bad = table(sentence=["a", "b"], label=["x", "z"])
        classification.read(bad, spec, labels)
    spec = classification.Spec(labels=("x", "y", "z"))
    with refuses("no example has the label 'z'"):
        classification.read(train, spec, None)
    with refuses("two at least"):
        one = table(sentence=["a"], label=["x"])
        classification.read(one, classification.Spec(), None)


def test_rows_of_pairs_in_both_orders():
    spec = classification.Spec(text="a", pair="b", both_orders=True)
    made = table(a=["ab", "c"], b=["d", "e"], label=["0", "1"])
    examples, _ = classification.read(made, spec, None)
    encoder = make_encoder()
    rows = classification.encode(examples, encoder, spec, is_training=True)
    assert [show(row["tokens"]) for row in rows] == [
        "[ab|d|",
        "[d|ab|",
        "[c|e|",
        "[e|c|",
    ]
    assert [int(row["example"]) for row in rows] == [0, 0, 1, 1]
    encoded = classification.encode(examples, encoder, spec, is_training=False)
    assert len(encoded) == 2


def test_the_loss_is_the_mean_over_rows_that_count():
    logits = jnp.log(jnp.array([[0.5, 0.5], [0.9, 0.1], [0.2, 0.8]]))
    batch = {
        "targets": jnp.array([0, 0, 0]),
        "row_weights": jnp.array([1.0, 1.0, 0.0]),
    }
    total, weight = classification.loss(logits, batch, classification.Spec())["loss"]
    np.testing.assert_allclose(total, -np.log(0.5) - np.log(0.9), rtol=1e-5)
    assert weight == 2


def test_several_labels_to_an_example():
    spec = classification.Spec(separator=",", metric="micro_f1")
    made = table(sentence=["a", "b", "c"], label=["x,y", "", "y"])
    examples, labels = classification.read(made, spec, None)
    assert labels == ("x", "y")
    assert [x.labels for x in examples] == [(0, 1), (), (1,)]
    rows = classification.encode(examples, make_encoder(), spec, is_training=True)
    assert [row["targets"].tolist() for row in rows] == [[1, 1], [0, 0], [0, 1]]
    logits = np.array([[1.0, -1.0], [-1.0, -1.0], [-1.0, 2.0]])
    result = classification.predict(list(logits), rows, examples, spec)
    assert result == [(0,), (), (1,)]
    output = classification.metrics(result, examples, spec)
    assert output["accuracy"] == pytest.approx(2 / 3)
    assert output["micro_f1"] == pytest.approx(2 * 2 / (2 + 3))
    batch = {"targets": jnp.array([[1.0, 0.0]]), "row_weights": jnp.ones(1)}
    total, _ = classification.loss(jnp.array([[0.0, 1.0]]), batch, spec)["loss"]
    right = (np.log(2) + np.log(1 + np.e)) / 2
    np.testing.assert_allclose(total, right, rtol=1e-5)


def test_metrics_of_classes():
    """downstream evaluation's vector: MCC .466667, F1 .8, macro .733333."""
    result = class_metrics([1, 0, 1, 0, 1, 1, 0, 1], [1, 1, 1, 0, 0, 1, 0, 1], 2, 1)
    assert {k: round(v, 6) for k, v in result.items()} == {
        "accuracy": 0.75,
        "mcc": 0.466667,
        "f1": 0.8,
        "macro_f1": 0.733333,
    }
    constant = class_metrics([1] * 4, [1, 0, 1, 0], 2, 1)
    assert constant["mcc"] == 0
    assert "f1" not in class_metrics([0, 1, 2], [0, 1, 2], 3, 1)
    other = class_metrics([0, 0, 1], [0, 1, 1], 2, 0)
    assert other["f1"] == pytest.approx(2 / 3)
    sets = np.eye(2, dtype=bool)
    assert label_set_metrics(sets, sets)["macro_f1"] == 1


def test_metrics_of_numbers():
    result = number_metrics([0.1, 0.9, 2.5, 2.4, 5], [0, 1, 2, 3, 5])
    assert round(result["pearson"], 6) == 0.97856
    assert round(result["spearman"], 6) == 0.9
    tied = number_metrics([1, 3, 2, 4], [1, 2, 2, 4])
    assert round(tied["spearman"], 6) == 0.948683
    assert number_metrics([2.0, 2.0], [1.0, 3.0])["pearson"] == 0


def test_constant_answers():
    spec = classification.Spec()
    made = table(sentence=list("abcd"), label=["x", "y", "y", "y"])
    examples, _ = classification.read(made, spec, None)
    predictions = classification.constant(examples, examples[:2], spec)
    assert predictions == [1, 1]
    assert classification.metrics(predictions, examples[:2], spec)["accuracy"] == 0.5


def test_regression_reads_numbers(refuses):
    spec = regression.Spec(text="a", pair="", label="s", low=0.0, high=5.0)
    made = table(a=["a", "b"], s=["1.5", 5])
    examples, labels = regression.read(made, spec, None)
    assert [x.value for x in examples] == [1.5, 5.0] and labels == ()
    batch = {"targets": jnp.array([1.5, 9]), "row_weights": jnp.array([1.0, 0.0])}
    total, weight = regression.loss(jnp.array([1.0, 5.0]), batch, spec)["loss"]
    assert (float(total), float(weight)) == (0.25, 1.0)
    assert regression.constant(examples, examples, spec) == [3.25, 3.25]
    for bad in ("6", "nan", "x"):
        with refuses("row 0", f"s={bad!r}", "from 0.0 to 5.0"):
            regression.read(table(a=["a"], s=[bad]), spec, None)


def test_choice_reads_options_in_columns_and_in_lists(refuses):
    listed = choice.Spec(question="q", options=("o",), answer="y")
    made = table(q=["ab"], o=[["c", "d", "ef"]], y=["B"])
    (example,), _ = choice.read(made, listed, None)
    assert example.options == ("c", "d", "ef") and example.right == 1
    apart = choice.Spec(question="q", options=("a", "b"), answer="y", first=1)
    made = table(q=["h"], a=["c"], b=["d"], y=[2])
    (other,), _ = choice.read(made, apart, None)
    assert other.right == 1
    with refuses("row 0", "y=3", "from 1 to 2"):
        choice.read(table(q=["h"], a=["c"], b=["d"], y=[3]), apart, None)
    rows = choice.encode([example, other], make_encoder(), listed, is_training=True)
    assert [show(x) for x in rows[0]["tokens"]] == [
        "[ab|c|[PAD]",
        "[ab|d|[PAD]",
        "[ab|ef|",
    ]
    assert rows[1]["segment_ids"].sum(1).tolist() == [5, 5, 0]
    logits = np.array([[0.0, 2.0, 1.0], [0.0, 1.0, choice.PAD_LOGIT]])
    assert choice.predict(list(logits), rows, [example, other], listed) == [1, 1]
