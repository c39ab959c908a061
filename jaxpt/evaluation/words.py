"""Word identity: which word was taken out, read linearly from states beside the gap.

It needs no label, so any text will do, and it asks every objective the same: the word
is not among what the model reads. Where the objective's training shows that something
is hidden, one such token stands for the whole word, however long it is; else the text
closes up. Of a decoder the state is read with which it would write the word:

    a b [MASK] d e     masked models
    a b d e            causal models, ELECTRA's discriminator
    a b <extra_id_0> d e, decoder <extra_id_0>     T5

Each of the words is asked for equally often, so that guessing is right once in as many
times as there are words.
"""

import functools
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from jaxpt.statistics.examples import Examples
from jaxpt.text.dataset import Split
from jaxpt.text.rows.corpus import Corpus
from jaxpt.text.tokens.vocab import Vocab

MAX_TOKENS = 2_000_000  # of each part of a split, in which words are looked for
FEWEST = 8, 2  # occurrences in either split, of a word that is asked for
BESIDE = (-1, 0, 1, 2)  # from the gap, of the states that are read
ALPHAS = (1.0, 10.0, 100.0, 1000.0)  # of the ridge; on standardised states


class Questions(NamedTuple):
    """Texts around a word that was taken out of them.

    Attributes:
      left, right: the C tokens before it and behind it.
      words: which word it was, 0 to the number of words - 1.
      documents: that each is from.
    """

    left: Int[np.ndarray, "N C"]
    right: Int[np.ndarray, "N C"]
    words: Int[np.ndarray, "N"]
    documents: Int[np.ndarray, "N"]


@functools.lru_cache(maxsize=2)  # every measurement of a comparison asks the same
def find_questions(
    train: Split,
    valid: Split,
    vocab: Vocab,
    num_words: int,
    num_each: int,
    context: int,
) -> tuple[Questions, Questions] | None:
    """Questions of the training text, to learn from, and of the validation text.

    The words are the training text's most frequent ones, of letters alone, that both
    splits have often enough.

    Args:
      num_words: the most words that are asked for.
      num_each: the most questions of each word in either split.
      context: C, tokens on either side, all of the word's own document.

    Returns:
      None where fewer than two words are found, or the tokenizer marks no words.
    """
    if not vocab.word_starts:
        return None
    found = [
        _find_places(split, vocab, context, fewest)
        for split, fewest in zip((train, valid), FEWEST, strict=True)
    ]
    both = [word for word in found[0] if word in found[1]]
    both.sort(key=lambda word: (-len(found[0][word]), word))
    words = both[:num_words]
    if len(words) < 2:
        return None
    asked = [
        _gather(split, words, places, num_each, context)
        for split, places in zip((train, valid), found, strict=True)
    ]
    return asked[0], asked[1]


Place = tuple[int, int, int, int]  # part, first token, end, document


def _find_places(
    split: Split, vocab: Vocab, context: int, fewest: int
) -> dict[bytes, list[Place]]:
    """Where each word stands that stands somewhere often enough."""
    places: dict[bytes, list[Place]] = defaultdict(list)
    before = 0
    for number, part in enumerate(split.parts):
        for word, start, end, document in _list_words(part, vocab, context):
            places[word].append((number, start, end, document + before))
        before += len(part.labels)
    return {word: found for word, found in places.items() if len(found) >= fewest}


def _list_words(part: Corpus, vocab: Vocab, context: int):
    """(text, first token, end, document) of the words with room on either side."""
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
    texts = [b"" if is_special else piece for piece, is_special in _pieces(vocab)]
    for i in np.flatnonzero(has_room):
        start, end = int(starts[i]), int(ends[i])
        text = b"".join(texts[token] for token in tokens[start:end]).strip()
        if text.decode(errors="replace").isalpha():
            yield text, start, end, int(documents[i])


def _pieces(vocab: Vocab) -> list[tuple[bytes, bool]]:
    """Each id's text, without what WordPiece writes before a word's later pieces."""
    pieces = [piece.removeprefix(b"##") for piece in vocab.pieces]
    return list(zip(pieces, vocab.is_special.tolist(), strict=True))


def _gather(
    split: Split,
    words: list[bytes],
    places: dict[bytes, list[Place]],
    num_each: int,
    context: int,
) -> Questions:
    """Evenly spaced occurrences of each word, with the text around them."""
    rows: list[tuple[int, Place]] = []
    for number, word in enumerate(words):
        found = places[word]
        count = min(num_each, len(found))
        rows += [(number, found[i * len(found) // count]) for i in range(count)]
    parts = np.array([place[0] for _, place in rows])
    starts = np.array([place[1] for _, place in rows])
    ends = np.array([place[2] for _, place in rows])
    left, right = (np.empty((len(rows), context), np.int32) for _ in range(2))
    for number, part in enumerate(split.parts):
        own = parts == number
        left[own] = part.gather(starts[own] - context, context)
        right[own] = part.gather(ends[own], context)
    return Questions(
        left,
        right,
        np.array([number for number, _ in rows]),
        np.array([place[3] for _, place in rows]),
    )


def measure_words(
    read_gap: Callable,
    params,
    questions: tuple[Questions, Questions],
    batch_size: int,
) -> dict[str, Examples]:
    """How often a linear layer tells the word that was taken out.

    Ridge regression of one column for each word on the states beside the gap, its
    penalty chosen among `ALPHAS` by leaving out single training questions.

    Args:
      read_gap: (params, {"left", "right"} of [B, C]) -> states [B, D].

    Returns:
      word_accuracy, of each question of the validation text.
    """
    from sklearn.linear_model import RidgeClassifierCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    train, valid = (_read(read_gap, params, part, batch_size) for part in questions)
    model = make_pipeline(StandardScaler(), RidgeClassifierCV(ALPHAS))
    model.fit(train, questions[0].words)
    asked = questions[1]
    hits = (model.predict(valid) == asked.words).astype(np.float64)
    return {"word_accuracy": Examples(hits, np.ones(len(hits)), asked.documents)}


def _read(read_gap: Callable, params, asked: Questions, size: int) -> np.ndarray:
    """The states [N, D] beside each gap, in batches of one shape."""
    found, num = [], len(asked.words)
    for start in range(0, num, size):
        index = np.minimum(np.arange(start, start + size), num - 1)
        sides = {"left": asked.left[index], "right": asked.right[index]}
        found.append(np.asarray(read_gap(params, sides), np.float32))
    return np.concatenate(found)[:num]


def measure_beside(questions: tuple[Questions, Questions]) -> dict[str, Examples]:
    """The same question to naive Bayes on the n-grams of tokens that touch the gap."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline

    train, valid = (_list_beside(part) for part in questions)
    model = make_pipeline(CountVectorizer(analyzer=list), MultinomialNB(alpha=0.1))
    model.fit(train, questions[0].words)
    asked = questions[1]
    hits = (model.predict(valid) == asked.words).astype(np.float64)
    return {"word_accuracy": Examples(hits, np.ones(len(hits)), asked.documents)}


def _list_beside(asked: Questions, longest: int = 6) -> list[list[tuple]]:
    found = []
    for left, right in zip(asked.left.tolist(), asked.right.tolist(), strict=True):
        sizes = range(1, min(longest, len(left)) + 1)
        found.append(
            [("left", *left[-size:]) for size in sizes]
            + [("right", *right[:size]) for size in sizes]
        )
    return found


def count_words(questions: tuple[Questions, Questions]) -> int:
    """How many words are asked for; guessing is right once in as many times."""
    return len(Counter(questions[0].words.tolist()))
