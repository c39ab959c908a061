"""The n-gram baseline of classification and tagging: logistic regression, no network.

    classification   TF-IDF of the words and pairs of words of a text
    tagging          for each word: itself, its two neighbours on each side, its pairs
                     with them, its first and last characters, its shape

It learns from the labelled examples alone, as a network from random initialization
does. The penalty is chosen among `STRENGTHS` on the dev split.
"""

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from jaxpt.tasks import classification, tagging
from jaxpt.tasks.task import TaskSpec

STRENGTHS = (1.0, 10.0, 100.0)  # scikit-learn's C
MAX_STEPS = 200
LONGEST_AFFIX = 4
WORD = re.compile(r"\w+|[^\w\s]")  # a punctuation mark is a word
EDGE = "\N{NULL}"  # the neighbour of a sentence's first and last word


def has_ngrams(spec: TaskSpec) -> bool:
    """Whether a task has this baseline: tagging, and classification with one label."""
    is_single = isinstance(spec, classification.Spec) and not spec.separator
    return is_single or isinstance(spec, tagging.Spec)


def measure_ngrams(
    splits: Mapping[str, list], spec: TaskSpec
) -> dict[str, dict[str, float]]:
    """The metrics of the baseline on each split except "train".

    Args:
      splits: examples; "train" are those to learn from, "dev" chooses the penalty.
      spec: of a task that `has_ngrams`. Its `main_metric` chooses.
    """
    is_tagging = isinstance(spec, tagging.Spec)
    task = tagging if is_tagging else classification
    fit = fit_tags if is_tagging else fit_classes
    best: dict[str, dict[str, float]] = {}
    for predict in fit(splits["train"]):
        metrics = {
            name: task.metrics(predict(items), items, spec)
            for name, items in splits.items()
            if name != "train"
        }
        main = metrics["dev"][spec.main_metric]
        if not best or main > best["dev"][spec.main_metric]:
            best = metrics
    return best


def fit_classes(train: list) -> Iterable[Callable[[list], list[int]]]:
    """A classifier of texts, or pairs of texts, for each of `STRENGTHS`."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(
        analyzer=lambda example: [
            (place, *gram)
            for place, text in enumerate((example.text, example.pair or ""))
            for gram in list_grams(WORD.findall(text.lower()))
        ],
        sublinear_tf=True,
    )
    vectors = vectorizer.fit_transform(train)
    labels = [example.labels[0] for example in train]
    for model in _fit(vectors, labels):

        def predict(items: list, model: Callable = model) -> list[int]:
            return [int(label) for label in model(vectorizer.transform(items))]

        yield predict


def list_grams(words: Sequence[str]) -> list[tuple[str, ...]]:
    """The words and the pairs of adjacent words.

    >>> list_grams(["it", "works", "."])
    [('it',), ('works',), ('.',), ('it', 'works'), ('works', '.')]
    """
    return [(word,) for word in words] + list(zip(words, words[1:], strict=False))


def fit_tags(train: list) -> Iterable[Callable[[list], list[list[str]]]]:
    """A classifier of words in sentences for each of `STRENGTHS`."""
    from sklearn.feature_extraction.text import CountVectorizer

    vectorizer = CountVectorizer(analyzer=lambda features: features, binary=True)
    vectors = vectorizer.fit_transform(_list_all(train))
    labels = [tag for example in train for tag in example.tags]
    for model in _fit(vectors, labels):

        def predict(items: list, model: Callable = model) -> list[list[str]]:
            tags = iter(model(vectorizer.transform(_list_all(items))))
            return [[str(next(tags)) for _ in example.words] for example in items]

        yield predict


def _list_all(examples: list) -> Iterable[list[tuple]]:
    """The features of each word of all sentences, in order."""
    for example in examples:
        yield from list_features(example.words)


def list_features(words: Sequence[str]) -> list[list[tuple]]:
    """The features of each word of a sentence.

    >>> first, _ = list_features(["Paris", "2024"])
    >>> ("word", "paris") in first and ("1", "2024") in first and ("end", "is") in first
    True
    """
    lower = [word.lower() for word in words]
    padded = [EDGE, EDGE, *lower, EDGE, EDGE]
    features = []
    for i, word in enumerate(words):
        own: list[tuple] = [("word", lower[i]), ("shape", _shape(word), i == 0)]
        own += [(f"{step}", padded[i + 2 + step]) for step in (-2, -1, 1, 2)]
        own += [(f"{step}", padded[i + 2 + step], lower[i]) for step in (-1, 1)]
        for size in range(1, min(LONGEST_AFFIX, len(word)) + 1):
            own += [("start", lower[i][:size]), ("end", lower[i][-size:])]
        features.append(own)
    return features


def _shape(word: str) -> str:
    """The kinds of characters in a word, repeated ones once: "Xx" of "Paris"."""
    kinds = (
        "X" if c.isupper() else "x" if c.islower() else "0" if c.isdigit() else c
        for c in word
    )
    shape = ""
    for kind in kinds:
        shape += kind * (not shape.endswith(kind))
    return shape


def _fit(vectors: Any, labels: Sequence) -> Iterable[Callable[[Any], Sequence]]:
    """The predictions of a regression of each strength; a single label is constant."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    if len(set(labels)) == 1:
        yield lambda vectors: [labels[0]] * vectors.shape[0]
        return
    for strength in STRENGTHS:
        model = LogisticRegression(C=strength, max_iter=MAX_STEPS)
        # A weak penalty converges slowly and changes no prediction by then.
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(vectors, labels)
        yield model.predict
