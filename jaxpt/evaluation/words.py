"""Masked-word probe: a linear classifier of a removed word, on states around the gap.

It needs no labels and is the same task for every objective: the model does not read the
word. If the objective has a mask token, one such token replaces the whole word;
otherwise the text closes up. For a decoder the state is read that would generate the
word:

    a b [MASK] d e     masked models
    a b d e            causal models, ELECTRA's discriminator
    a b <extra_id_0> d e, decoder <extra_id_0>     T5

All words are equally frequent in the questions, so that the chance level is 1 / number
of words.
"""

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Int, PyTree

from jaxpt.evaluation.likelihood import map_batches
from jaxpt.judge.examples import Examples
from jaxpt.text.rows.corpus import Corpus
from jaxpt.text.tokens.vocab import Vocab

if TYPE_CHECKING:
    from jaxpt.text.dataset import Split

MAX_TOKENS = 2_000_000  # of each part of a split that are searched for words
MIN_COUNTS = 8, 2  # the minimum occurrences of a word in the two splits
ALPHAS = (1.0, 10.0, 100.0, 1000.0)  # of the ridge regression, on standardised states


class Questions(NamedTuple):
    """Texts from which a word was removed.

    Attributes:
      left, right: the C tokens before and after the word.
      words: the index of the word.
      documents: the document of each text.
    """

    left: Int[np.ndarray, "N C"]
    right: Int[np.ndarray, "N C"]
    words: Int[np.ndarray, "N"]
    documents: Int[np.ndarray, "N"]


@functools.lru_cache(maxsize=2)  # all measurements of a comparison share them
def find_questions(
    train: "Split",
    valid: "Split",
    vocab: Vocab,
    num_words: int,
    num_each: int,
    context: int,
) -> tuple[Questions, Questions] | None:
    """Questions from the training text and from the validation text.

    The words are the most frequent words of letters in the training text that occur
    often enough in both splits.

    Args:
      num_words: the maximum number of words.
      num_each: the maximum number of questions per word and split.
      context: C, the tokens on either side, all from the word's document.

    Returns:
      None if there are fewer than two words, or the tokenizer does not mark words.
    """
    if not vocab.word_starts:
        return None
    in_train, in_valid = (
        _find_places(split, vocab, context, min_count)
        for split, min_count in zip((train, valid), MIN_COUNTS, strict=True)
    )
    both = [word for word in in_train if word in in_valid]
    words = sorted(both, key=lambda word: (-len(in_train[word]), word))[:num_words]
    if len(words) < 2:
        return None
    return (
        _gather(train, words, in_train, num_each, context),
        _gather(valid, words, in_valid, num_each, context),
    )


Place = tuple[int, int, int, int]  # part, first token, end, document


def _find_places(
    split: "Split", vocab: Vocab, context: int, min_count: int
) -> dict[bytes, list[Place]]:
    """The occurrences of each word that has at least `min_count`."""
    places: dict[bytes, list[Place]] = defaultdict(list)
    before = 0
    for number, part in enumerate(split.parts):
        for word, start, end, document in _list_words(part, vocab, context):
            places[word].append((number, start, end, document + before))
        before += len(part.labels)
    return {
        word: occurrences
        for word, occurrences in places.items()
        if len(occurrences) >= min_count
    }


def _list_words(
    part: Corpus, vocab: Vocab, context: int
) -> Iterator[tuple[bytes, int, int, int]]:
    """(text, first token, end, document) of the words with context on both sides."""
    size = min(part.num_tokens, MAX_TOKENS)
    tokens = part.read(0, size)
    is_start = np.array(vocab.word_starts)[tokens]
    borders = part.doc_starts[part.doc_starts < size]
    is_start[borders] = True
    starts = np.flatnonzero(is_start)
    ends = np.append(starts[1:], size)
    documents = np.searchsorted(part.doc_starts, starts, "right") - 1
    first, last = part.doc_starts[documents], part.doc_starts[documents + 1]
    has_room = (starts - context >= first) & (ends + context <= np.minimum(last, size))
    texts = [
        b"" if is_special else piece.removeprefix(b"##")  # WordPiece's later pieces
        for piece, is_special in zip(vocab.pieces, vocab.is_special, strict=True)
    ]
    for i in np.flatnonzero(has_room):
        start, end = int(starts[i]), int(ends[i])
        text = b"".join(texts[token] for token in tokens[start:end]).strip()
        if text.decode(errors="replace").isalpha():
            yield text, start, end, int(documents[i])


def _gather(
    split: "Split",
    words: list[bytes],
    places: dict[bytes, list[Place]],
    num_each: int,
    context: int,
) -> Questions:
    """Evenly spaced occurrences of each word, with their context."""
    rows: list[tuple[int, Place]] = []
    for number, word in enumerate(words):
        occurrences = places[word]
        count = min(num_each, len(occurrences))
        rows += [
            (number, occurrences[i * len(occurrences) // count]) for i in range(count)
        ]
    parts = np.array([place[0] for _, place in rows])
    starts = np.array([place[1] for _, place in rows])
    ends = np.array([place[2] for _, place in rows])
    left, right = (np.empty((len(rows), context), np.int32) for _ in range(2))
    for number, part in enumerate(split.parts):
        is_own = parts == number
        left[is_own] = part.gather(starts[is_own] - context, context)
        right[is_own] = part.gather(ends[is_own], context)
    return Questions(
        left,
        right,
        np.array([number for number, _ in rows]),
        np.array([place[3] for _, place in rows]),
    )


def measure_words(
    read_gap: Callable,
    params: PyTree,
    questions: tuple[Questions, Questions],
    batch_size: int,
) -> dict[str, Examples]:
    """The accuracy of a linear classifier of the removed word.

    Ridge regression on the states around the gap, with one output per word; the penalty
    is chosen among `ALPHAS` by leave-one-out cross-validation.

    Args:
      read_gap: (params, {"left", "right"} of [B, C]) -> states [B, D].

    Returns:
      word_accuracy of each question of the validation text.
    """
    from sklearn.linear_model import RidgeClassifierCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    read = functools.partial(read_gap, params)
    train, valid = (
        np.concatenate(
            list(map_batches(read, {"left": x.left, "right": x.right}, batch_size))
        )
        for x in questions
    )
    model = make_pipeline(StandardScaler(), RidgeClassifierCV(ALPHAS))
    return _judge(model, train, valid, questions)


def _judge(
    model: Any, train: Any, valid: Any, questions: tuple[Questions, Questions]
) -> dict[str, Examples]:
    """Fits a classifier on the training inputs; its hits on the validation inputs."""
    model.fit(train, questions[0].words)
    hits = (model.predict(valid) == questions[1].words).astype(np.float64)
    ones = np.ones(len(hits))
    return {"word_accuracy": Examples(hits, ones, questions[1].documents)}


def measure_ngram_baseline(
    questions: tuple[Questions, Questions],
) -> dict[str, Examples]:
    """The baseline: naive Bayes on the n-grams of tokens next to the gap."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline

    train, valid = (_list_ngrams(part) for part in questions)
    model = make_pipeline(CountVectorizer(analyzer=list), MultinomialNB(alpha=0.1))
    return _judge(model, train, valid, questions)


def _list_ngrams(questions: Questions, longest: int = 6) -> list[list[tuple]]:
    sizes = range(1, min(longest, questions.left.shape[1]) + 1)
    return [
        [("left", *left[-size:]) for size in sizes]
        + [("right", *right[:size]) for size in sizes]
        for left, right in zip(
            questions.left.tolist(), questions.right.tolist(), strict=True
        )
    ]


def count_words(questions: tuple[Questions, Questions]) -> int:
    """The number of words, whose inverse is the chance level."""
    return len(Counter(questions[0].words.tolist()))
