"""Entities by seqeval in both modes, and SQuAD's answers: vectors by hand."""

import itertools
import sys

import numpy as np
import pytest

from jaxpt.errors import UserError
from jaxpt.tasks.span_metrics import (
    SCHEMES,
    answer_metrics,
    answer_scores,
    best_null_threshold,
    entity_metrics,
    find_scheme,
)


def split(text):
    return text.split()


# shared/reference/downstream.md, section B: gold, predicted, default, strict.
ENTITIES = [
    ("B-PER I-PER O B-LOC", "I-PER I-PER O B-LOC", 1.0, 2 / 3),
    ("O B-PER I-PER", "O I-PER I-PER", 1.0, 0.0),
    ("B-PER B-PER", "B-PER I-PER", 0.0, 0.0),
    ("B-PER I-PER O", "B-PER O O", 0.0, 0.0),  # its last word is wrong
    ("B-PER I-PER O", "B-PER I-PER O", 1.0, 1.0),
    ("B-PER O", "B-LOC O", 0.0, 0.0),
    ("O O", "O O", 0.0, 0.0),
]


@pytest.mark.parametrize("right, predicted, default, strict", ENTITIES)
def test_entities_in_both_modes(right, predicted, default, strict):
    result = entity_metrics([split(predicted)], [split(right)])
    assert result["entity_f1"] == pytest.approx(default)
    assert result["entity_f1_strict"] == pytest.approx(strict)


def test_sentences_stay_apart():
    right, predicted = [["B-PER"], ["B-PER"]], [["B-PER"], ["I-PER"]]
    assert entity_metrics(predicted, right)["entity_f1"] == 1.0
    joined = [sum(tags, []) for tags in (predicted, right)]
    assert entity_metrics([joined[0]], [joined[1]])["entity_f1"] == 0.0


def test_entities_count_alike_whatever_their_type_and_sentence():
    """Micro: of 4 predicted 3 are right, of 6 there are 3 found."""
    right = [split("B-A O B-A"), split("B-A B-A"), split("B-B O B-B")]
    predicted = [split("B-A O B-A"), split("B-A O"), split("O B-B O")]
    result = entity_metrics(predicted, right)
    assert result["entity_precision"] == pytest.approx(3 / 4)
    assert result["entity_recall"] == pytest.approx(3 / 6)
    assert result["entity_f1"] == pytest.approx(0.6)
    # Of one sentence each, 1, 2/3 and 0.
    assert result["entity_f1"] != pytest.approx((1 + 2 / 3) / 3)


def test_precision_and_recall_are_not_swapped():
    result = entity_metrics([split("B-A B-A B-A")], [split("B-A O O")])
    assert result["entity_precision"] == pytest.approx(1 / 3)
    assert result["entity_recall"] == 1.0


# gold, predicted, default, strict; by hand. BILOU spells E- as L- and S- as U-.
OTHER_SCHEMES = [
    ("IOBES", "B-P I-P E-P O S-L", "B-P I-P E-P O S-L", 1, 1),
    ("IOBES", "B-P E-P O S-L", "B-P I-P O S-L", 1, 2 / 3),  # without its end
    ("IOBES", "S-P O", "B-P O", 1, 0),
    ("IOBES", "S-P S-P", "B-P E-P", 0, 0),
    ("IOBES", "B-P E-P B-P E-P", "B-P I-P I-P E-P", 0, 0),
    ("IOBES", "B-P E-P S-P O", "B-P E-P O S-P", 0.5, 0.5),
    ("IOBES", "S-P S-L", "S-P S-P", 0.5, 0.5),
    ("IOE2", "I-P E-P O E-L", "I-P I-P O E-L", 1, 2 / 3),
    ("IOE2", "E-P E-P", "I-P E-P", 0, 0),
    ("IOB1", "I-P I-P O", "I-P I-P O", 1, 1),
]
OTHER_SCHEMES += [
    ("BILOU", *(tags.replace("E-", "L-").replace("S-", "U-") for tags in row[1:3]))
    + row[3:]
    for row in OTHER_SCHEMES
    if row[0] == "IOBES"
]


@pytest.mark.parametrize("scheme, right, predicted, default, strict", OTHER_SCHEMES)
def test_entities_of_other_schemes(scheme, right, predicted, default, strict):
    result = entity_metrics([split(predicted)], [split(right)], scheme)
    assert result["entity_f1"] == pytest.approx(default)
    assert result["entity_f1_strict"] == pytest.approx(strict)


@pytest.mark.parametrize("scheme, prefixes", SCHEMES.items())
def test_strict_scores_are_those_of_seqevals_scheme(scheme, prefixes):
    """Of random tags, most of which are invalid sequences, and their corruptions."""
    import seqeval.metrics
    import seqeval.scheme

    rng = np.random.default_rng(0)
    tags = ["O", *(f"{prefix}-{kind}" for prefix in prefixes for kind in "XY")]
    right = [rng.choice(tags, size=12).tolist() for _ in range(40)]
    predicted = [
        [tag if rng.random() < 0.8 else str(rng.choice(tags)) for tag in sentence]
        for sentence in right
    ]
    assert find_scheme(tags) == scheme
    expected = seqeval.metrics.f1_score(
        right, predicted, mode="strict", scheme=getattr(seqeval.scheme, scheme)
    )
    assert 0.1 < expected < 0.9
    result = entity_metrics(predicted, right, scheme)["entity_f1_strict"]
    assert result == pytest.approx(expected)


@pytest.mark.parametrize(
    "labels, scheme",
    [
        ("O B-creative-work I-creative-work", "IOB2"),
        ("B-P", "IOB2"),
        ("O I-P", "IOB1"),
        ("O I-P E-P", "IOE2"),
        ("O S-P", "IOBES"),
        ("O B-P E-P", "IOBES"),
        ("O B-P L-P", "BILOU"),
        ("O B-P U-P", "BILOU"),
        ("O B-P E-P L-P", ""),
        ("O NN", ""),
        ("O B", ""),
        ("X-PER", ""),
    ],
)
def test_the_scheme_follows_from_the_labels(labels, scheme):
    assert find_scheme(split(labels)) == scheme


# gold, prediction, exact match, F1 (section B).
ANSWERS = [
    ("The Denver Broncos", "denver broncos", 1, 1),
    ("$1,234.50", "123450", 1, 1),
    ("well-known", "well known", 0, 0),
    ("Santa Clara, California", "Santa Clara", 0, 0.8),
    ("the cat sat on a mat", "cat on mat", 0, 6 / 7),
    ("a", "the", 1, 1),  # T5's qa_utils gives F1 0
    ("", "x", 0, 0),
    ("x", "", 0, 0),
    ("a a b", "b b", 0, 2 / 3),  # the articles go; b counts once
    ("no no yes", "no yes yes", 0, 2 / 3),
    ("b b c", "b b d", 0, 2 / 3),  # a word counts as often as it occurs in both
]


@pytest.mark.parametrize("right, predicted, exact, f1", ANSWERS)
def test_answers(right, predicted, exact, f1):
    assert answer_scores(predicted, [right]) == (exact, pytest.approx(f1))


def test_the_best_of_several_answers():
    assert answer_scores("Santa Clara", ["California", "Santa Clara, CA"])[1] == 0.8
    # Exact match and F1 are each the best by themselves.
    assert answer_scores("b c", ["b c d", "b c"]) == (1, 1)
    # An answer of articles alone is none where there is another one.
    assert answer_scores("", ["the", "x"]) == (0, 0)
    assert answer_scores("", []) == (1, 1)


def test_means_over_both_kinds_of_question():
    result = answer_metrics(["x", "", "y"], [["x", "z"], [], []])
    assert result == {
        "exact_match": pytest.approx(2 / 3),
        "f1": pytest.approx(2 / 3),
        "has_answer_f1": 1.0,
        "no_answer_f1": 0.5,
    }
    assert set(answer_metrics(["x"], [["x"]])) == {"exact_match", "f1"}


def search_threshold(odds, scores, is_null):
    """The best mean over every threshold that separates the questions."""

    def mean(threshold):
        values = [
            float(null) if odd > threshold else (0.0 if null else score)
            for odd, score, null in zip(odds, scores, is_null)
        ]
        return sum(values) / len(values)

    return max(mean(t) for t in [float("-inf"), *odds]), mean


@pytest.mark.parametrize("is_null", list(itertools.product([False, True], repeat=4)))
def test_the_threshold_is_the_best_there_is(is_null):
    odds, scores = [0.5, -1.0, 0.5, 2.0], [0.9, 0.2, 0.4, 1.0]
    best, mean = search_threshold(odds, scores, is_null)
    threshold, result = best_null_threshold(odds, scores, is_null)
    assert result == pytest.approx(best) == pytest.approx(mean(threshold))


def test_seqeval_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "seqeval.metrics", None)
    with pytest.raises(UserError, match="pip install 'jaxpt.eval.'"):
        entity_metrics([["O"]], [["O"]])
