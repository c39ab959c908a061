"""Regret and its baselines, by enumeration of a tiny language."""

import itertools

import numpy as np
import pytest

from jaxpt.evaluation.regret import (
    EXACT_LEFT,
    UNIFORM,
    ExactQuestions,
    exact_regret,
    find_questions,
    list_anchors,
    list_floors,
    renormalise,
    sampled_regret,
)
from jaxpt.evaluation.whole_answers import (
    ACCURACY,
    SECOND,
    best_accuracy,
    score_by_confidence,
    score_left_to_right,
)
from jaxpt.languages import BOTH, LEFT
from jaxpt.languages.anchors import entropy
from jaxpt.languages.facts import Facts
from jaxpt.languages.hmm import Hmm
from jaxpt.languages.recall import Recall
from jaxpt.languages.star import PathStar

TINY = Hmm([[0.9, 0.1], [0.2, 0.8]], [[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
ROWS = np.array(list(itertools.product(range(3), repeat=5)))
P = np.exp(TINY.log_probability(ROWS))


def ask_all():
    return find_questions(TINY, ROWS, np.arange(3) + 4, np.arange(len(ROWS)), 5)


def average(examples):
    """Over the language, by the probability of each row."""
    return float(P @ (examples.totals / examples.weights))


def test_baselines_over_the_language():
    """The best bigram at the positions 1 to 4, as computed elsewhere by enumeration."""
    questions = ask_all()
    assert questions.positions.tolist() == [[1, 2, 3, 4]] * len(ROWS)
    assert questions.counts.all()
    anchors = list_anchors(TINY, questions)
    assert average(anchors[LEFT]["bigram"]) == pytest.approx(0.008012, abs=1e-6)
    # Of positions with two neighbours alone.
    inner = questions._replace(
        positions=questions.positions[:, :3],
        counts=questions.counts[:, :3],
        truth={q: x[:, :3] for q, x in questions.truth.items()},
    )
    anchors = list_anchors(TINY, inner)
    found = average(anchors[BOTH]["two neighbours"])
    assert found == pytest.approx(0.010125, abs=1e-6)
    assert average(anchors[LEFT]["trigram"]) < average(anchors[LEFT]["bigram"])


def test_each_question_has_its_baselines():
    """Over the language, the regret of what reads less is a difference of entropies."""
    questions = ask_all()
    anchors = list_anchors(TINY, questions)
    assert set(anchors[LEFT]) == {"unigram", "bigram", "trigram", UNIFORM}
    # A position at the end has one neighbour, which "two neighbours" takes.
    names = {"unigram", "two neighbours", EXACT_LEFT, UNIFORM}
    assert set(anchors[BOTH]) == names
    floors = {
        q: average(questions.average(entropy(questions.truth[q]))) for q in anchors
    }
    for question in anchors:
        found = average(anchors[question][UNIFORM])
        assert found == pytest.approx(np.log(3) - floors[question], abs=1e-12)
    found = average(anchors[BOTH][EXACT_LEFT])
    assert found == pytest.approx(floors[LEFT] - floors[BOTH], abs=1e-12)
    assert found > 0.01


def test_floors_are_entropies():
    floors = list_floors(ask_all())
    assert floors[LEFT] > floors[BOTH] > 0.5


def test_both_estimators_have_the_same_mean_over_the_language():
    """Exactly: by the probability of every row."""
    questions = ask_all()
    log_q = np.log(
        np.random.default_rng(0).dirichlet(np.ones(3), questions.counts.shape)
    )
    # A model's answer depends only on what it is shown: here only on the position.
    log_q = np.broadcast_to(log_q[:1], log_q.shape)
    truth = questions.truth[LEFT]
    exact = questions.average(exact_regret(truth, log_q))
    sampled = questions.average(sampled_regret(truth, log_q, questions.symbols))
    assert average(exact) == pytest.approx(average(sampled), abs=1e-12)
    assert average(exact) > 0.1


def test_an_impossible_symbol_costs_everything_and_is_not_asked_for():
    truth = np.array([0.5, 0.5, 0.0])
    with np.errstate(divide="ignore"):
        assert exact_regret(truth, np.log([0.5, 0.5, 0.0])) == pytest.approx(0)
        assert exact_regret(truth, np.log([1.0, 0.0, 0.0])) == np.inf


def test_the_mass_of_special_ids():
    log_q, mass = renormalise(
        np.log([[0.1, 0.6, 0.3], [0.8, 0.1, 0.1]]), np.array([1, 2])
    )
    np.testing.assert_allclose(mass, [0.1, 0.8])
    np.testing.assert_allclose(np.exp(log_q), [[2 / 3, 1 / 3], [0.5, 0.5]])


STAR = PathStar(degree=2, arm=3, names=10)


def ask_paths(language, num=60):
    rows = language.sample(np.random.default_rng(0), num, language.length)
    ids = np.arange(language.num_symbols)
    return find_questions(language, rows, ids, np.arange(num), language.length)


def test_the_exact_answers_write_every_path():
    questions = ask_paths(STAR)
    with np.errstate(divide="ignore"):
        log_p = np.log(questions.truth[LEFT])
    found = score_left_to_right(questions, log_p)
    assert found[ACCURACY].mean == found[SECOND].mean == 1
    assert best_accuracy(questions) == (1, 60)

    def fill(rows, is_hidden):
        places = questions.positions[..., None]
        answers = STAR.given_visible(rows, ~is_hidden)
        with np.errstate(divide="ignore"):
            return np.log(np.take_along_axis(answers, places, 1))

    found = score_by_confidence(questions, fill)
    assert found[ACCURACY].mean == found[SECOND].mean == 1


def test_without_the_goal_an_arm_is_guessed():
    """The leak test: chance for everybody, by both ways of writing."""
    blind = PathStar(degree=2, arm=3, names=10, shows_goal=False)
    questions = ask_paths(blind, 200)
    assert best_accuracy(questions) == (0.5, 200)
    with np.errstate(divide="ignore"):
        log_p = np.log(questions.truth[LEFT])
    found = score_left_to_right(questions, log_p)
    assert found[ACCURACY].mean == found[SECOND].mean
    assert 0.35 < found[ACCURACY].mean < 0.65


def test_a_wrong_token_spoils_the_answer_and_what_is_filled_after_it():
    questions = ask_paths(STAR, 8)
    right = questions.symbols
    log_q = np.full((*right.shape, STAR.num_symbols), -9.0)
    np.put_along_axis(log_q, right[..., None], 0.0, 2)
    log_q[:3, 1] = -np.arange(STAR.num_symbols)[None]  # the second token of three
    found = score_left_to_right(questions, log_q)
    assert found[ACCURACY].mean == 5 / 8 and found[SECOND].mean == 5 / 8
    shown = []

    def fill(rows, is_hidden):
        shown.append(is_hidden.sum(1))
        return log_q

    assert score_by_confidence(questions, fill)[ACCURACY].mean == 5 / 8
    assert [x.tolist() for x in shown] == [[3] * 8, [2] * 8, [1] * 8]
    assert isinstance(questions, ExactQuestions)


@pytest.mark.parametrize(
    "language",
    [
        PathStar(degree=3, arm=4, names=12),
        Facts.draw(np.random.default_rng(0), pairs=12, symbols=4),
        Facts.draw(np.random.default_rng(0), pairs=6, symbols=8, width=1),
        Recall(symbols=12, pairs=3, length=16),
    ],
)
def test_chance_is_the_accuracy_of_a_guess(language):
    """A random arm of the graph, the answer about a random pair, a random value."""
    rng, num = np.random.default_rng(1), 4000
    rows = language.sample(rng, num, language.length)
    if isinstance(language, Facts):  # not the facts, which have two entities
        rows = language.table[rng.integers(language.pairs, len(language.table), num)]
    if isinstance(language, PathStar):
        arms = language.list_arms(rows)
        guessed = arms[np.arange(num), rng.integers(language.degree, size=num)]
    elif isinstance(language, Facts):
        block = (rows[:, 0] - rows[:, 0].min() + 1) * language.pairs
        guessed = language.table[block + rng.integers(language.pairs, size=num)]
        guessed = guessed[:, language.asked(rows)[0]]
    else:
        guessed = rng.integers(6, 12, (num, 3))
    questions = find_questions(
        language, rows, np.arange(language.num_symbols), np.arange(num), rows.shape[1]
    )
    log_q = np.full((*guessed.shape, language.num_symbols), -9.0)
    np.put_along_axis(log_q, guessed[..., None], 0.0, 2)
    found = score_left_to_right(questions, log_q)
    chances = language.chances()
    assert set(found) == set(chances) and language.guess
    for metric, chance in chances.items():
        assert found[metric].mean == pytest.approx(chance, abs=0.03), metric


def test_text_without_answers_has_no_chance_level():
    assert TINY.chances() == {}
