"""A gap and tokens for it: what is asked, and that only the text tells."""

import numpy as np
import pytest

from jaxpt.eval import choices
from jaxpt.eval.choices import Choices
from jaxpt.text.dataset import Split
from jaxpt.text.rows.corpus import Corpus
from jaxpt.text.tokens.vocab import Vocab

VOCAB = Vocab(size=30, eos=0)


def make_split(tokens, doc_starts=None):
    return Split((Corpus.from_arrays(tokens, doc_starts),), (1.0,))


def sample(num=4000, seed=0):
    """Tokens of which some are frequent, with an [EOS] now and then."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, 30)
    tokens = rng.choice(np.arange(1, 30), num, p=weights / weights.sum())
    tokens[::50] = 0
    return tokens


def ask(tokens, num_choices=4, num_questions=500, context=3, doc_starts=None):
    counts = np.bincount(sample(seed=1), minlength=30)
    split = make_split(tokens, doc_starts)
    return choices.find_choices(
        split, counts, VOCAB, num_choices, num_questions, context
    )


def test_the_first_candidate_stood_in_the_gap():
    tokens = sample()
    asked = ask(tokens)
    text = tokens.tolist()
    rows = {tuple(text[i : i + 7]) for i in range(len(text) - 6)}
    for left, right, candidates in zip(
        asked.left, asked.right, asked.candidates, strict=True
    ):
        assert (*left, candidates[0], *right) in rows
    assert 400 < len(asked.documents) <= 500
    assert not VOCAB.is_special[asked.candidates].any()
    # None of them twice.
    assert all(len(set(row)) == 4 for row in asked.candidates.tolist())


def test_each_question_knows_the_document_of_its_gap():
    tokens = np.tile(np.arange(1, 21), 10)
    asked = ask(tokens, doc_starts=np.arange(0, 201, 20), context=2, num_questions=999)
    # Each token occurs once in a document, at the same place.
    assert len(asked.documents) == 196
    places = 20 * asked.documents + asked.candidates[:, 0] - 1
    np.testing.assert_array_equal(places, np.arange(2, 198))


def test_frequency_alone_tells_little():
    """A quarter and what the most frequent tokens, which are never wrong, add."""
    counts = np.bincount(sample(seed=1), minlength=30)
    asked = ask(sample(40_000), num_questions=20_000, context=1)
    found = choices._judge(counts[asked.candidates].astype(float), asked)
    assert found["choice_accuracy"].mean == pytest.approx(0.32, abs=0.02)


def test_who_knows_is_right_and_who_guesses_shares():
    asked = ask(sample())

    def know(params, rows):
        return -np.abs(rows["candidates"] - rows["candidates"][:, :1]) * params

    found = choices.measure_choices(know, 1.0, asked, 64)["choice_accuracy"]
    assert found.mean == 1 and found.weights.sum() == len(asked.documents)
    np.testing.assert_array_equal(found.groups, asked.documents)
    # All scores alike are a quarter of an answer each, wherever the true one stands.
    assert choices.measure_choices(know, 0.0, asked, 64)["choice_accuracy"].mean == 0.25


def test_bigrams_are_those_of_the_training_text():
    """In which 3 stands between 1 and 2, and 4 never, though it is as frequent."""
    train = make_split(np.array(40 * [1, 3, 2] + 40 * [4, 5]))
    asked = Choices(
        np.array([[9, 1], [9, 4]]),
        np.array([[2, 9], [4, 9]]),
        np.array([[3, 4], [5, 3]]),
        np.array([0, 1]),
    )
    found = choices.measure_bigrams(train, asked)["choice_accuracy"]
    assert found.totals.tolist() == [1, 1]
    swapped = asked._replace(candidates=asked.candidates[:, ::-1])
    found = choices.measure_bigrams(train, swapped)["choice_accuracy"]
    assert found.totals.tolist() == [0, 0]


def test_too_little_text_is_no_question():
    assert ask(np.arange(1, 6)) is None  # 7 tokens are read
    assert ask(np.zeros(100, int)) is None  # all of it special
    assert ask(sample(), num_choices=29) is None  # no wrong candidates left
