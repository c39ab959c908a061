"""The n-gram baseline: what it learns from a few examples, and how it is chosen."""

import numpy as np
import pytest

from jaxpt.tasks import classification, ngrams, regression, tagging


def make_texts(pairs, num_labels=2):
    return [
        classification.Example(text, None, (label,), num_labels)
        for text, label in pairs
    ]


def make_sentence(text, tags):
    return tagging.Example(tuple(text.split()), tuple(tags.split()), ("N", "V"))


def test_texts_are_classified_by_their_words():
    train = make_texts(
        [("a good film", 1), ("good!", 1), ("a bad film", 0), ("Bad", 0)]
    )
    test = make_texts([("how good, really", 1), ("BAD acting", 0)])
    metrics = ngrams.measure_ngrams(
        {"train": train, "dev": test, "test": train}, classification.Spec()
    )
    assert metrics["dev"]["accuracy"] == metrics["test"]["accuracy"] == 1.0
    assert set(metrics["dev"]) == {"accuracy", "mcc", "f1", "macro_f1"}


def test_the_order_of_two_words_is_seen():
    train = make_texts([("dog bites man", 0), ("man bites dog", 1)])
    metrics = ngrams.measure_ngrams(
        {"train": train, "dev": train}, classification.Spec()
    )
    assert metrics["dev"]["accuracy"] == 1.0


def test_a_pair_is_two_places_for_the_same_word():
    def pair(text, other, label):
        return classification.Example(text, other, (label,), 2)

    train = [pair("yes", "no", 0), pair("no", "yes", 1)]
    metrics = ngrams.measure_ngrams(
        {"train": train, "dev": train}, classification.Spec(pair="b")
    )
    assert metrics["dev"]["accuracy"] == 1.0


@pytest.mark.parametrize(
    "train, test",
    [
        ([("the run", "N N"), ("they run", "N V")],) * 2,
        (
            [("walked", "V"), ("jumped", "V"), ("dogs", "N"), ("cats", "N")],
            [("talked", "V"), ("birds", "N")],
        ),
    ],
    ids=["neighbours", "ends"],
)
def test_words_are_tagged_by_their_neighbours_and_ends(train, test):
    train, test = ([make_sentence(*pair) for pair in own] for own in (train, test))
    spec = tagging.Spec(metric="accuracy")
    metrics = ngrams.measure_ngrams({"train": train, "dev": test}, spec)
    assert metrics["dev"] == {"accuracy": 1.0}


def test_the_dev_split_chooses_the_penalty(monkeypatch):
    """The first of the best; the test split is not looked at."""
    answers = {1.0: [0, 0, 1], 10.0: [0, 1, 0], 100.0: [0, 1, 1]}

    def fit(train):
        return [lambda items, own=own: own[: len(items)] for own in answers.values()]

    monkeypatch.setattr(ngrams, "fit_classes", fit)
    dev, test = (
        make_texts([("a", 0), ("b", 1)]),
        make_texts([("a", 0), ("b", 1), ("c", 1)]),
    )
    splits = {"train": dev, "dev": dev, "test": test}
    metrics = ngrams.measure_ngrams(splits, classification.Spec())
    assert metrics["dev"]["accuracy"] == 1.0
    assert metrics["test"]["accuracy"] == pytest.approx(2 / 3)


def test_a_single_label_is_always_predicted():
    train, dev = make_texts([("a", 1), ("b", 1)]), make_texts([("a", 0), ("b", 1)])
    metrics = ngrams.measure_ngrams({"train": train, "dev": dev}, classification.Spec())
    assert metrics["dev"]["accuracy"] == 0.5


def test_features_of_a_word():
    _, second, _ = ngrams.list_features(["I", "McD-42", "."])
    assert ("word", "mcd-42") in second and ("shape", "XxX-0", False) in second
    assert (
        ("-2", ngrams.EDGE) in second and ("-1", "i") in second and ("1", ".") in second
    )
    assert ("start", "mcd-") in second and ("end", "42") in second
    assert ("-1", "i", "mcd-42") in second and ("2", ngrams.EDGE) in second
    assert len(second) == len(set(second)) == 2 + 4 + 2 + 2 * ngrams.LONGEST_AFFIX


@pytest.mark.parametrize(
    "spec, has",
    [
        (classification.Spec(), True),
        (tagging.Spec(), True),
        (classification.Spec(separator=","), False),
        (regression.Spec(), False),
    ],
)
def test_tasks_with_a_baseline(spec, has):
    assert ngrams.has_ngrams(spec) is has


def test_it_is_the_same_every_time():
    random = np.random.default_rng(0)
    pairs = [(" ".join(random.choice(list("abcdef"), 5)), i % 3) for i in range(60)]
    splits = {"train": make_texts(pairs[:40], 3), "dev": make_texts(pairs[40:], 3)}
    one, two = (ngrams.measure_ngrams(splits, classification.Spec()) for _ in range(2))
    assert one == two
