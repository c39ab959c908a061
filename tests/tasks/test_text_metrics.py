"""ROUGE, BLEU and classes told in words: vectors of the reference sheet."""

import sys

import pytest

from jaxpt.errors import UserError
from jaxpt.tasks.text_metrics import (
    bleu_metrics,
    rouge_metrics,
    split_into_lines,
    written_class_metrics,
)

FOX = "The quick brown fox jumps over the lazy dog"
LOG = "The quick brown dog jumps on the log."


def test_rouge():
    result = rouge_metrics([LOG], [[FOX]])
    assert result["rouge1"] == pytest.approx(0.705882, abs=1e-6)
    assert result["rouge2"] == pytest.approx(0.266667, abs=1e-6)
    assert result["rougeL"] == pytest.approx(0.588235, abs=1e-6)


def test_the_stemmer():
    texts = ["Cats were running quickly"], [["The cat runs quick"]]
    assert rouge_metrics(*texts)["rouge1"] == 0.5
    assert rouge_metrics(*texts, stemmer=False)["rouge1"] == 0.0


def test_rouge_lsum_is_of_lines():
    lines = ["first sentence here.\nsecond one follows."]
    swapped = ["second one follows.\nfirst sentence here."]
    result = rouge_metrics(lines, [swapped])
    assert result["rougeL"] == 0.5 and result["rougeLsum"] == 1.0
    # Sentences on one line are split, too.
    flat = [text.replace("\n", " ") for text in swapped]
    assert rouge_metrics(lines, [flat])["rougeLsum"] == 1.0
    assert split_into_lines('He said "No!" Why?') == 'He said "No!"\nWhy?'


def test_several_references():
    golds = [[FOX, "A cat."], [LOG]]
    texts = [FOX, LOG]
    best = rouge_metrics(texts, golds)
    mean = rouge_metrics(texts, golds, over_references="mean")
    assert best["rouge1"] == 1.0
    assert mean["rouge1"] == 0.75  # (1 + 0) / 2 and 1


def test_bleu():
    texts = ["The cat is on the mat", "He read the book"]
    golds = [["The cat sat on the mat"], ["He has read the book"]]
    assert bleu_metrics(texts, golds)["bleu"] == pytest.approx(0.35403677, abs=1e-7)


def test_bleu_of_several_references():
    """As sacrebleu's streams, one of which ends early."""
    import sacrebleu

    texts = ["The cat is on the mat", "He read the book"]
    golds = [
        ["The cat sat on the mat", "A cat is on the mat"],
        ["He has read the book"],
    ]
    streams = [[gold[0] for gold in golds], [golds[0][1], None]]
    result = bleu_metrics(texts, golds)["bleu"]
    assert result == pytest.approx(sacrebleu.corpus_bleu(texts, streams).score / 100)
    assert result > 0.36
    with_intl = bleu_metrics(
        ["a\u2014b c d e"], [["a \u2014 b c d e"]], tokenize="intl"
    )
    assert with_intl["bleu"] == pytest.approx(1.0)


def test_an_invalid_answer_is_wrong_in_every_metric():
    right = [1, 1, 0, 0]
    result = written_class_metrics([1, -1, 0, -1], right, 2, 1)
    assert result["accuracy"] == 0.5 and result["invalid"] == 0.5
    # Flipped, the predictions are 1 0 0 1.
    assert result["f1"] == pytest.approx(0.5)
    assert result["macro_f1"] == pytest.approx(2 / 3)
    valid = written_class_metrics([1, 0, 0, 1], right, 2, 1)
    assert valid["f1"] == result["f1"] and valid["invalid"] == 0
    assert written_class_metrics([-1] * 4, right, 2, 1)["f1"] == 0
    three = written_class_metrics([0, 1, -1], [0, 1, 2], 3, 1)
    assert three["macro_f1"] == pytest.approx(2 / 3) and "f1" not in three


@pytest.mark.parametrize(
    "module, call",
    [
        ("rouge_score.rouge_scorer", lambda: rouge_metrics(["a"], [["a"]])),
        ("sacrebleu", lambda: bleu_metrics(["a"], [["a"]])),
    ],
)
def test_missing_libraries(module, call, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match="pip install 'jaxpt.eval.'"):
        call()
