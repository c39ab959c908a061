"""Records of examples and reports of classification, against scikit-learn."""

import json

import numpy as np
import pytest
from sklearn import metrics as sk

from jaxpt.tasks import choice, classification, regression, span_qa, text_to_text
from jaxpt.tasks.metrics import calibration_error, class_report
from jaxpt.text.labelled.tables import Table


def draw_logits(num, num_labels, seed=0):
    draw = np.random.default_rng(seed)
    return draw.normal(size=(num, num_labels)), draw.integers(num_labels, size=num)


def read_classes(right, names, **settings):
    label = [",".join(x) if isinstance(x, list) else x for x in right]
    table = Table("a.tsv", {"sentence": ["a"] * len(right), "label": label})
    spec = classification.Spec(labels=names, **settings)
    return classification.read(table, spec, None)[0], spec


def test_records_and_report_of_three_labels():
    names = ("no", "maybe", "yes")
    logits, right = draw_logits(60, 3)
    examples, spec = read_classes([names[i] for i in right], names)
    predictions = classification.predict(list(logits), None, examples, spec)
    result = classification.make_records(
        list(logits), predictions, examples, spec, names
    )
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    first = result.records[0]
    assert (
        first["gold"] == names[right[0]]
        and first["prediction"] == names[predictions[0]]
    )
    assert first["score"] == float(right[0] == predictions[0])
    np.testing.assert_allclose(first["probabilities"], probabilities[0], atol=1e-8)
    report = result.report
    assert report["confusion"] == sk.confusion_matrix(right, predictions).tolist()
    assert report["auc"] == pytest.approx(
        sk.roc_auc_score(right, probabilities, multi_class="ovr")
    )
    output = sk.classification_report(
        right, predictions, target_names=names, output_dict=True, zero_division=0
    )
    for name in names:
        own = report["per_label"][name]
        assert own["f1"] == pytest.approx(output[name]["f1-score"])
        assert own["precision"] == pytest.approx(output[name]["precision"])
        assert own["support"] == output[name]["support"]
    json.dumps(result.report | {"records": result.records}, allow_nan=False)


def test_two_labels_have_the_area_of_either():
    logits, right = draw_logits(40, 2)
    margin = logits[:, 1] - logits[:, 0]
    one = 1 / (1 + np.exp(-margin))
    report = class_report(np.stack([1 - one, one], 1), margin > 0, right, ("0", "1"))
    assert report["auc"] == pytest.approx(sk.roc_auc_score(right, margin))


def test_a_label_that_no_example_has():
    logits, _ = draw_logits(8, 3)
    right = np.array([0, 1] * 4)
    report = class_report(np.abs(logits), logits.argmax(1), right, ("a", "b", "c"))
    assert np.shape(report["confusion"]) == (3, 3) and report["auc"] is not None
    assert report["per_label"]["c"]["support"] == 0
    alone = class_report(np.abs(logits), logits.argmax(1), 0 * right, ("a", "b", "c"))
    assert alone["auc"] is None
    json.dumps([report, alone], allow_nan=False)


def test_sets_of_labels():
    logits, _ = draw_logits(30, 3)
    output = np.random.default_rng(1).integers(2, size=(30, 3)) > 0
    names = ("a", "b", "c")
    right = [[n for n, has in zip(names, row) if has] for row in output]
    settings = {"separator": ",", "metric": "micro_f1"}
    examples, spec = read_classes(right, names, **settings)
    predictions = classification.predict(list(logits), None, examples, spec)
    result = classification.make_records(
        list(logits), predictions, examples, spec, names
    )
    assert [record["gold"] for record in result.records] == right
    scores = [record["score"] for record in result.records]
    metrics = classification.metrics(predictions, examples, spec)
    assert np.mean(scores) == pytest.approx(metrics["accuracy"])
    ours = sk.multilabel_confusion_matrix(output, logits > 0)
    assert result.report["confusion"] == ours.tolist()
    assert result.report["auc"] == pytest.approx(sk.roc_auc_score(output, logits))


def test_calibration_by_hand():
    sure = np.array([1.0, 1.0, 1.0, 1.0])
    is_right = np.array([True, True, True, False])
    assert calibration_error(sure, is_right) == pytest.approx(0.25)
    # Bins of a tenth: (.5, .6] has .55 and .6, of which one is right; (.9, 1] has .95.
    result = calibration_error(
        np.array([0.55, 0.6, 0.95]), np.array([True, False, True]), 10
    )
    assert result == pytest.approx((abs(1 - 1.15) + abs(1 - 0.95)) / 3)
    exact = np.array([0.5, 0.5])
    assert calibration_error(exact, np.array([True, False])) == 0


def test_other_tasks():
    options = [choice.Example("q", ("a", "b"), 1), choice.Example("q", ("a", "b"), 0)]
    result = choice.make_records(None, [1, 1], options, choice.Spec(), ())
    assert result.records[1] == {"gold": 0, "prediction": 1, "score": 0.0}
    number = regression.Example("a", None, 2.5)
    result = regression.make_records(None, [2.0], [number], regression.Spec(), ())
    assert result.records == [{"gold": 2.5, "prediction": 2.0}]


def read_target(kind, *targets, **settings):
    columns = {"sentence": ["a"] * len(targets), "label": list(targets)}
    spec = text_to_text.Spec(kind=kind, **settings)
    examples, labels = text_to_text.read(Table("a.tsv", columns), spec, None)
    return examples, spec, labels


def describe_texts(kind, texts, *targets, **settings):
    examples, spec, labels = read_target(kind, *targets, **settings)
    rows = [{"example": i} for i in range(len(texts))]
    predictions = text_to_text.predict(texts, rows, examples, spec)
    result = text_to_text.make_records(texts, predictions, examples, spec, labels)
    json.dumps(result.records, allow_nan=False)
    metrics = text_to_text.metrics(predictions, examples, spec)
    return result.records, metrics


def test_written_answers():
    names = {"labels": ("0", "1"), "words": ("bad", "good")}
    result, _ = describe_texts("classes", ["Good", "well"], 1, 0, **names)
    assert result[0] == {"gold": "1", "prediction": "1", "text": "Good", "score": 1.0}
    assert result[1]["prediction"] is None and result[1]["text"] == "well"
    result, _ = describe_texts("number", ["2 . 6", "much"], "2.5", "1")
    assert [x["prediction"] for x in result] == [2.6, None]
    result, metrics = describe_texts("text", ["a cat", "dog"], "the cat", "a dog sat")
    assert np.mean([x["score"] for x in result]) == pytest.approx(metrics["rougeL"])
    result, metrics = describe_texts("answer", ["cat", "mat"], "a cat", "a mat sat")
    assert np.mean([x["score"] for x in result]) == pytest.approx(metrics["f1"])


def test_spans():
    spec = span_qa.Spec(has_null=True)
    examples = [
        span_qa.Example("q", "the cat", ("cat",), ((4, 7),)),
        span_qa.Example("q", "the cat", (), ()),
    ]
    predictions = [
        span_qa.Prediction("the cat", 2.0, 0.0),
        span_qa.Prediction("x", 0.0, 9.0),
    ]
    result = span_qa.make_records(None, predictions, examples, spec, ())
    assert result.records[0] == {"gold": ["cat"], "prediction": "the cat", "score": 1.0}
    assert result.records[1]["prediction"] == "" and result.records[1]["score"] == 1.0
    bare = [span_qa.Prediction("", float("-inf"), 0.0)] * 2  # no span could be read
    json.dumps(
        span_qa.make_records(None, bare, examples, spec, ()).records, allow_nan=False
    )
