"""Multiple-choice cloze: the questions, and that only the text answers them."""

import itertools

import numpy as np
import pytest

from jaxpt.evaluation import choices
from jaxpt.evaluation.choices import Choices
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
    questions = ask(tokens)
    text = tokens.tolist()
    rows = {tuple(text[i : i + 7]) for i in range(len(text) - 6)}
    for left, right, candidates in zip(
        questions.left, questions.right, questions.candidates, strict=True
    ):
        assert (*left, candidates[0], *right) in rows
    assert 400 < len(questions.documents) <= 500
    assert not VOCAB.is_special[questions.candidates].any()
    # None of them twice.
    assert all(len(set(row)) == 4 for row in questions.candidates.tolist())


def test_each_question_knows_the_document_of_its_gap():
    tokens = np.tile(np.arange(1, 21), 10)
    questions = ask(
        tokens, doc_starts=np.arange(0, 201, 20), context=2, num_questions=999
    )
    # Each token occurs once in a document, at the same place.
    assert len(questions.documents) == 196
    places = 20 * questions.documents + questions.candidates[:, 0] - 1
    np.testing.assert_array_equal(places, np.arange(2, 198))


def test_token_frequencies_are_a_baseline():
    """The most frequent candidate is right in more than a quarter of the questions.

    A model that knows only frequencies is exactly as good, and a uniform one is not.
    """
    questions = ask(sample(40_000), num_questions=20_000, context=1)
    result = choices.measure_frequency(questions)["choice_bayes_accuracy"]
    assert result.mean == pytest.approx(0.32, abs=0.02)
    np.testing.assert_array_equal(result.groups, questions.documents)

    most = questions.log_frequencies.argmax(1) == 0
    assert result.mean == pytest.approx(most.mean(), abs=1e-3)
    table = np.zeros(30)
    table[questions.candidates] = questions.log_frequencies

    def know(params, rows):
        return params * table[rows["candidates"]]

    same = choices.measure_choices(know, 1.0, questions, 64)["choice_bayes_accuracy"]
    assert same.mean == pytest.approx(result.mean, abs=1e-3)
    none = choices.measure_choices(know, 0.0, questions, 64)["choice_bayes_accuracy"]
    assert none.mean < 0.25  # it takes all tokens for equally likely


def list_draws(truth, q, num):
    """Each way to draw the others without replacement, and its probability."""
    rest = [x for x in range(len(q)) if x != truth]
    for others in itertools.permutations(rest, num):
        left, probability = 1 - q[truth], 1.0
        for x in others:
            probability *= q[x] / left
            left -= q[x]
        yield others, probability


def test_no_answer_is_better_than_the_posterior():
    """All questions of a text of two contexts; few tokens, of which one is frequent."""
    joint_probabilities = np.array(
        [[0.4, 0.4, 0.1, 0.06, 0.04], [0.3, 0.1, 0.1, 0.1, 0.4]]
    )
    q = joint_probabilities.mean(0)
    log_p, log_q = np.log(joint_probabilities), np.log(q)
    drawn_questions, chances, joint = [], [], {}
    for context, truth in itertools.product(range(2), range(5)):
        for others, chance in list_draws(truth, q, 2):
            drawn_questions.append([context, truth, *others])
            chances.append(joint_probabilities[context, truth] * chance / 2)
            of_set = joint.setdefault((context, frozenset([truth, *others])), {})
            of_set[truth] = of_set.get(truth, 0.0) + chances[-1]
    context, *candidates = np.array(drawn_questions).T
    candidates, chances = np.stack(candidates, 1), np.array(chances)
    assert chances.sum() == pytest.approx(1)
    log_draws = choices.find_log_draws(log_q[candidates])
    # P(S | c) is the sum over both orders, and S here has either order.
    for row, draws in zip(candidates, np.exp(log_draws), strict=True):
        for i, truth in enumerate(row):
            ways = [p for x, p in list_draws(truth, q, 2) if {*x, truth} == {*row}]
            assert len(ways) == 2 and draws[i] == pytest.approx(sum(ways), rel=1e-6)
    left, known = context[:, None], (log_q[candidates], log_draws)
    questions = Choices(left, left, candidates, context, *known)

    def measure(log_scores, is_ratio=False):
        def score(params, rows):
            return log_scores[rows["left"], rows["candidates"]]

        result = choices.measure_choices(score, None, questions, 7, is_ratio)
        return chances @ result["choice_bayes_accuracy"].totals

    best = sum(max(of_set.values()) for of_set in joint.values())
    assert measure(log_p) == pytest.approx(best)
    assert measure(log_p, is_ratio=True) < best - 0.005
    assert measure(log_p - log_q, is_ratio=True) < best - 0.005


def test_for_rare_tokens_the_posterior_is_log_p_minus_log_q():
    log_q = np.log(np.array([[1e-4, 3e-5, 2e-6], [1e-6, 1e-4, 1e-5]]))
    result = choices.find_log_draws(log_q) + log_q
    np.testing.assert_allclose(result - result[:, :1], 0, atol=1e-3)


def test_a_token_that_the_training_text_lacks_has_a_frequency():
    counts = np.bincount(sample(seed=1), minlength=30)
    counts[29] = 0
    split = make_split(np.tile([5, 6, 29], 60))
    questions = choices.find_choices(split, counts, VOCAB, 4, 90, 3)
    assert (questions.candidates[:, 0] == 29).any()
    assert np.isfinite(questions.log_frequencies).all()
    rare = questions.log_frequencies[questions.candidates == 29]
    assert (rare < questions.log_frequencies[questions.candidates == 28].min()).all()


def test_who_knows_is_right_and_who_guesses_shares():
    questions = ask(sample())

    def know(params, rows):
        return -np.abs(rows["candidates"] - rows["candidates"][:, :1]) * params

    result = choices.measure_choices(know, 99.0, questions, 64)["choice_bayes_accuracy"]
    assert result.mean == 1 and result.weights.sum() == len(questions.documents)
    np.testing.assert_array_equal(result.groups, questions.documents)
    # Four equal scores get a quarter of the credit each, wherever the true one is.
    result = choices.measure_choices(know, 0.0, questions, 64, is_ratio=True)
    assert result["choice_bayes_accuracy"].mean == 0.25


def test_bigrams_are_those_of_the_training_text():
    """In which 3 occurs between 1 and 2, and 4 never, at equal frequency."""
    train = make_split(np.array(40 * [1, 3, 2] + 40 * [4, 5]))
    questions = Choices(
        np.array([[9, 1], [9, 4]]),
        np.array([[2, 9], [4, 9]]),
        np.array([[3, 4], [5, 3]]),
        np.array([0, 1]),
        *(2 * [np.zeros((2, 2))]),
    )
    result = choices.measure_bigrams(train, questions)["choice_bayes_accuracy"]
    assert result.totals.tolist() == [1, 1]
    swapped = questions._replace(candidates=questions.candidates[:, ::-1])
    result = choices.measure_bigrams(train, swapped)["choice_bayes_accuracy"]
    assert result.totals.tolist() == [0, 0]


def test_too_little_text_is_no_question():
    assert ask(np.arange(1, 6)) is None  # 7 tokens are read
    assert ask(np.zeros(100, int)) is None  # all of it special
    assert ask(sample(), num_choices=29) is None  # no wrong candidates left
