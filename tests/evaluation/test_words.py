"""Masked-word probe: the questions, and who can answer them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpt.evaluation import words
from jaxpt.text.dataset import Split
from jaxpt.text.rows.corpus import Corpus
from jaxpt.text.tokens.vocab import Vocab

# Words of one and of two tokens; one of them holds a digit.
PIECES = (
    b"[EOS]",
    b" the",
    b" cat",
    b"s",
    b" r2",
    b" sat",
    b"x",
    b" of",
    b"\xc3",
    b"y",
)
VOCAB = Vocab(
    size=len(PIECES),
    eos=0,
    pieces=PIECES,
    word_starts=tuple(p.startswith((b" ", b"[")) for p in PIECES),
)
EOS, THE, CAT, S, R2, SAT = range(6)


def make_split(documents):
    starts = np.cumsum([0, *map(len, documents)])
    return Split((Corpus.from_arrays(np.concatenate(documents), starts),), (1.0,))


def ask(train, valid, num_words=10, num_each=100, context=3):
    words.find_questions.cache_clear()
    return words.find_questions(
        make_split(train), make_split(valid), VOCAB, num_words, num_each, context
    )


TEXT = 12 * [THE, CAT, S, R2, SAT] + [EOS]


def test_questions_are_of_whole_words_of_letters():
    train, valid = ask([TEXT], [TEXT])
    # By frequency, then by name: cats, sat, the; r2 is not a word of letters.
    assert words.count_words((train, valid)) == 3
    contexts = {}
    for left, right, word in zip(train.left, train.right, train.words, strict=True):
        contexts.setdefault(int(word), set()).add((*left.tolist(), *right.tolist()))
    around = [
        (R2, SAT, THE, R2, SAT, THE),  # of cats, both of whose tokens are gone
        (CAT, S, R2, THE, CAT, S),
        (S, R2, SAT, CAT, S, R2),
    ]
    result = {key for keys in contexts.values() for key in keys}
    assert set(around) <= result
    for number, key in enumerate(around):
        assert key in contexts[number]


def test_questions_stay_within_their_document_and_split():
    documents = [[THE, CAT, SAT, THE, CAT, SAT, THE, EOS] for _ in range(20)]
    train, valid = ask(documents, documents[:12], context=3)
    for part, num in ((train, 20), (valid, 12)):
        # The fourth word alone has three tokens on either side, and [EOS] is not a
        # word.
        assert set(part.documents) <= set(range(num))
        rows = np.concatenate([part.left, part.right], axis=1)
        middle = (rows == [THE, CAT, SAT, CAT, SAT, THE]).all(1)
        later = (rows == [CAT, SAT, THE, SAT, THE, EOS]).all(1)
        assert (middle | later).all() and middle.sum() == later.sum() == num


def test_each_word_is_asked_for_equally_often_as_far_as_it_occurs():
    train, _ = ask([TEXT], [TEXT], num_words=2, num_each=9)
    assert np.bincount(train.words).tolist() == [9, 9]
    assert ask([TEXT], [[THE, CAT]]) is None


def test_the_words_are_the_most_frequent_ones():
    """In the training text; not the first by name. Their numbers are their ranks."""
    document = [*(20 * [THE, SAT, THE]), EOS]
    train, _ = ask([[*TEXT, *document]], [[*TEXT, *document]], num_words=2)
    last = {n: set(train.right[train.words == n][:, 0].tolist()) for n in (0, 1)}
    assert last == {0: {SAT, THE, CAT}, 1: {THE, EOS}}  # of the, and of sat


def test_documents_of_further_parts_have_numbers_of_their_own():
    one, two = make_split([TEXT] * 3), make_split([TEXT] * 2)
    split = Split(one.parts + two.parts, (0.5, 0.5))
    words.find_questions.cache_clear()
    train, _ = words.find_questions(split, one, VOCAB, 3, 1000, 3)
    assert set(train.documents) == set(range(5))


def test_the_last_word_that_is_read_is_whole(monkeypatch):
    """No word and no context goes beyond the tokens that are searched."""
    (part,) = make_split([TEXT]).parts
    for size in range(12, 25):
        monkeypatch.setattr(words, "MAX_TOKENS", size)
        listed = list(words._list_words(part, VOCAB, 3))
        assert {text for text, *_ in listed} == {b"the", b"cats", b"sat"}
        assert all(3 <= start < end <= size - 3 for _, start, end, _ in listed)


def test_no_words_no_questions():
    words.find_questions.cache_clear()
    split = make_split([TEXT])
    bare = Vocab(size=len(PIECES), eos=0, pieces=PIECES)
    assert words.find_questions(split, split, bare, 10, 10, 3) is None


@pytest.fixture(scope="module")
def questions():
    """Which of three words was taken out shows three tokens before it, or nowhere."""
    rng = np.random.default_rng(0)
    parts = []
    for num in (600, 300):
        left, right = rng.integers(6, 10, (2, num, 4))
        answers = rng.integers(0, 3, num)
        left[:, -1] = answers + 1
        parts.append(words.Questions(left, right, answers, np.arange(num) // 3))
    return tuple(parts)


def read_gap(params, sides):
    """The one-hot tokens on either side of the gap."""
    beside = jnp.stack([sides["left"][:, -1], sides["right"][:, 0]], axis=1)
    return (jax.nn.one_hot(beside, 12) * params).reshape(len(beside), -1)


def test_a_linear_layer_tells_what_the_states_beside_the_gap_say(questions):
    _, valid = questions
    examples = words.measure_words(read_gap, 1.0, questions, 128)["word_accuracy"]
    assert examples.mean == 1
    np.testing.assert_array_equal(examples.groups, valid.documents)
    assert examples.weights.sum() == len(valid.words) == 300
    # States that say nothing are guesses, one right in three.
    nothing = words.measure_words(read_gap, 0.0, questions, 128)["word_accuracy"]
    assert nothing.mean == pytest.approx(1 / 3, abs=0.1)
    output = words.measure_ngram_baseline(questions)["word_accuracy"]
    assert output.mean == 1
    np.testing.assert_array_equal(output.groups, valid.documents)


def test_the_answer_is_not_learnt_from_what_is_asked(questions):
    """Answers that are independent of the text are not predicted."""
    rng = np.random.default_rng(1)
    train, valid = questions
    other = valid._replace(words=rng.permutation(valid.words))
    result = words.measure_words(read_gap, 1.0, (train, other), 128)
    assert result["word_accuracy"].mean == pytest.approx(1 / 3, abs=0.1)
