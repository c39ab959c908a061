"""Exact conditionals of each language, against an enumeration of all documents."""

import itertools

import numpy as np
import pytest

from jaxpt.languages.anchors import count_tables, divergence, entropy, tables_of
from jaxpt.languages.copying import Copying
from jaxpt.languages.facts import Facts
from jaxpt.languages.hmm import Hmm
from jaxpt.languages.pcfg import Pcfg
from jaxpt.languages.recall import Recall
from jaxpt.languages.star import PathStar


def draw(seed=0):
    return np.random.default_rng(seed)


def enumerate_rows(num_symbols: int, length: int) -> np.ndarray:
    return np.array(list(itertools.product(range(num_symbols), repeat=length)))


def condition(rows, probabilities, row, visible, num_symbols):
    """p(x_i = v | visible symbols other than x_i), [T, V], from all documents."""
    answers = np.zeros((len(row), num_symbols))
    for at in range(len(row)):
        seen = visible.copy()
        seen[at] = False
        fits = (rows == row)[:, seen].all(1)
        weights = np.bincount(
            rows[fits, at], probabilities[fits], minlength=num_symbols
        )
        answers[at] = weights / weights.sum()
    return answers


def hmm_of(length):
    language = Hmm.draw(draw(), 3, 3, 0.5, 0.5)
    rows = enumerate_rows(3, length)
    return language, rows, np.exp(language.log_probability(rows))


def hmm_by_definition(language, row):
    """p(row) as the sum over all paths of states."""
    states = range(len(language.initial))
    total = 0.0
    for path in itertools.product(states, repeat=len(row)):
        p = language.initial[path[0]]
        for before, after in itertools.pairwise(path):
            p *= language.transitions[before, after]
        for state, symbol in zip(path, row):
            p *= language.emissions[state, symbol]
        total += p
    return total


def pcfg_of(length):
    language = Pcfg.draw(draw(3), 3, 3, 0.5)
    rows = enumerate_rows(3, length)
    return language, rows, np.exp(language.log_probability(rows))


def pcfg_by_definition(language, row, symbol=0):
    """p(symbol derives row), by the rules."""
    if len(row) == 1:
        return language.leaves[symbol, row[0]]
    size = range(len(language.rules))
    return sum(
        language.rules[symbol, left, right]
        * pcfg_by_definition(language, row[:at], left)
        * pcfg_by_definition(language, row[at:], right)
        for at in range(1, len(row))
        for left in size
        for right in size
        if language.rules[symbol, left, right]
    )


def copying_of(is_reversed):
    language = Copying(3, 2, is_reversed)
    words = enumerate_rows(3, 2)
    second = words[:, ::-1] if is_reversed else words
    rows = np.concatenate([words, np.full((9, 1), 3), second], 1)
    return language, rows, np.full(9, 1 / 9)


def facts_of():
    language = Facts.draw(draw(1), pairs=5, symbols=3)
    return language, language.table, np.full(15, 1 / 15)


def star_of(**options):
    """All rows of graphs with 2 arms of 3 nodes, of 5 names."""
    language = PathStar(2, 3, 5, **options)
    rows = []
    for names in itertools.permutations(range(5)):
        centre, arms = names[0], (names[1:3], names[3:5])
        edges = [e for a, b in arms for e in ((centre, a), (a, b))]
        for order in itertools.permutations(edges):
            for arm in arms:
                path = [centre, *arm]
                goal = arm[-1] if language.shows_goal else 8
                answer = path[::-1] if language.is_reversed else path
                prefix = [x for edge in order for x in (*edge, 5)]
                prefix[-1] = 7
                rows.append([*prefix, centre, goal, 6, *answer])
    rows = np.unique(rows, axis=0)  # arms may be exchanged
    return language, rows, np.full(len(rows), 1 / len(rows))


def recall_of():
    """3 keys, 4 values, 2 pairs in rows of 10."""
    language, rows, weights = Recall(8, 2, 10, 0.5), [], []
    rates = np.arange(1, 4) ** -0.5
    for keys in itertools.permutations(range(1, 4), 2):
        for values in itertools.permutations(range(4, 8), 2):
            for places in itertools.permutations(range(3), 2):
                row = np.zeros(10, int)
                row[0:4:2], row[1:4:2] = keys, values
                for place, key, value in zip(places, keys, values):
                    row[4 + 2 * place : 6 + 2 * place] = key, value
                first, second = rates[list(places)]
                rows.append(row)
                weights.append(
                    first / rates.sum() * second / (rates.sum() - first) / 6 / 12
                )
    return language, np.array(rows), np.array(weights)


CASES = {
    "hmm": lambda: hmm_of(5),
    "pcfg": lambda: pcfg_of(4),
    "copying": lambda: copying_of(False),
    "reversed copying": lambda: copying_of(True),
    "facts": facts_of,
    "star": star_of,
    "star, goal hidden": lambda: star_of(shows_goal=False),
    "star, reversed": lambda: star_of(is_reversed=True),
    "recall": recall_of,
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    return CASES[request.param]()


def some_rows(rows, probabilities, num=20):
    """Rows that can occur, evenly spaced."""
    possible = np.flatnonzero(probabilities > 0)
    return rows[possible[np.linspace(0, len(possible) - 1, num).astype(int)]]


def test_the_documents_of_a_case_are_all_documents(case):
    _, rows, probabilities = case
    assert len(np.unique(rows, axis=0)) == len(rows)
    if len(rows) != 81:  # strings of one length are a part of a grammar's
        assert abs(probabilities.sum() - 1) < 1e-9


@pytest.mark.parametrize("question", ["given_others", "left_to_right", "given_visible"])
def test_answers_are_those_of_an_enumeration(case, question):
    language, rows, probabilities = case
    size, rng = language.num_symbols, draw(7)
    chosen = some_rows(rows, probabilities)
    asked = language.asked(chosen)
    visible = rng.random(chosen.shape) < 0.5
    visible |= ~asked  # the prefix of a task is visible
    if question == "given_visible":
        answers = language.given_visible(chosen, visible)
    else:
        answers = getattr(language, question)(chosen)
    num_compared = 0
    for number, row in enumerate(chosen):
        for at in np.flatnonzero(asked[number]):
            seen = {
                "given_others": np.ones(len(row), bool),
                "left_to_right": np.arange(len(row)) < at,
                "given_visible": visible[number],
            }[question]
            exact = condition(rows, probabilities, row, seen, size)[at]
            np.testing.assert_allclose(answers[number, at], exact, atol=1e-6)
            num_compared += 1
    assert num_compared >= 20


def test_a_fact_asks_for_both_entities_and_a_query_for_its_answer():
    """Never for a sign or the colon, which every document has in the same place."""
    language = Facts.draw(draw(), 5, 4, 2)
    is_asked = language.asked(language.table)
    fact, query = [0, 1, 1, 0, 1, 1], [0, 0, 0, 0, 1, 1]
    np.testing.assert_array_equal(is_asked, [fact] * 5 + [query] * 10)


def test_own_symbol_does_not_enter_its_answer(case):
    """A position's own symbol and its visibility make no difference to its answer."""
    language, rows, probabilities = case
    chosen = some_rows(rows, probabilities, 5)
    everything = np.ones(chosen.shape, bool)
    reference = language.given_others(chosen)
    for at in range(chosen.shape[1]):
        if not language.asked(chosen)[:, at].all():
            continue
        visible = everything.copy()
        visible[:, at] = False
        answers = language.given_visible(chosen, visible)
        np.testing.assert_allclose(answers[:, at], reference[:, at], atol=1e-12)


def test_samples_have_the_probabilities_of_the_enumeration(case):
    language, rows, probabilities = case
    probabilities = probabilities / probabilities.sum()
    samples = language.sample(draw(5), 20_000, rows.shape[1])
    assert samples.shape == (20_000, rows.shape[1]) and samples.dtype == np.int32
    codes = {row.tobytes(): i for i, row in enumerate(rows.astype(np.int32))}
    counts = np.zeros(len(rows))
    for row in samples:
        counts[codes[row.tobytes()]] += 1
    if isinstance(language, Facts):
        probabilities = language.is_trained / language.is_trained.sum()
    errors = np.sqrt(probabilities * (1 - probabilities) / 20_000)
    assert (np.abs(counts / 20_000 - probabilities) < 5 * errors + 1e-9).all()


@pytest.mark.parametrize("name", ["hmm", "pcfg", "copying", "facts"])
def test_spans_are_those_of_an_enumeration(name):
    language, rows, probabilities = CASES[name]()
    for row in some_rows(rows, probabilities, 5):
        joint = language.given_span(row, 1, 3)
        fits = (np.delete(rows == row, [1, 2], axis=1)).all(1)
        exact = np.zeros_like(joint)
        np.add.at(exact, (rows[fits, 1], rows[fits, 2]), probabilities[fits])
        np.testing.assert_allclose(joint, exact / exact.sum(), atol=1e-6)


def test_probabilities_of_rows_are_those_of_the_definition():
    language, rows, probabilities = hmm_of(4)
    for row, p in zip(rows[::9], probabilities[::9]):
        assert abs(hmm_by_definition(language, row) - p) < 1e-9
    language, rows, probabilities = pcfg_of(4)
    for row, p in zip(rows[::9], probabilities[::9]):
        assert abs(pcfg_by_definition(language, row) - p) < 1e-9
    assert abs(language.length_probabilities(4)[4] - probabilities.sum()) < 1e-9


def test_every_order_of_revealing_gives_the_probability_of_the_row():
    language, rows, probabilities = hmm_of(5)
    row, p = rows[77], probabilities[77]
    for order in itertools.permutations(range(5)):
        visible, log = np.zeros((1, 5), bool), 0.0
        for at in order:
            log += np.log(language.given_visible(row[None], visible)[0, at, row[at]])
            visible[0, at] = True
        assert abs(log - np.log(p)) < 1e-9


def test_the_span_costs_a_parallel_fill_its_mutual_information():
    tiny = Hmm([[0.9, 0.1], [0.2, 0.8]], [[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
    joint = tiny.given_span(np.array([0, 0, 2, 1, 2]), 1, 3)
    marginals = joint.sum(1), joint.sum(0)
    assert abs(marginals[0][0] - 0.537192) < 1e-6
    assert abs(np.outer(*marginals)[0, 2] - 0.169924) < 1e-6
    information = divergence(joint.ravel(), np.outer(*marginals).ravel())
    assert abs(information - 0.026350) < 1e-6


def test_long_documents_do_not_underflow():
    rng = draw(2)
    hmm = Hmm.draw(rng, 8, 32, 0.1, 0.2)
    rows = hmm.sample(rng, 2, 2048)
    for answers in (hmm.left_to_right(rows), hmm.given_others(rows)):
        np.testing.assert_allclose(answers.sum(-1), 1, atol=1e-9)
    pcfg = Pcfg.draw(rng, 3, 64, 0.3)
    rows = pcfg.sample(rng, 2, 100)
    np.testing.assert_allclose(pcfg.given_others(rows).sum(-1), 1, atol=1e-9)
    assert np.isfinite(pcfg.log_probability(rows)).all()


def test_anchors_of_the_published_language():
    """64 states, 128 symbols: the figures that the sizes were chosen by."""
    language = Hmm.draw(draw(0), 64, 128, 0.02, 0.2)
    rows = language.sample(draw(1), 100, 128)
    inner = slice(8, 120)
    first, both = language.left_to_right(rows), language.given_others(rows)
    tables = tables_of(language)

    def cost(truth, answers):
        return float(divergence(truth, answers)[:, inner].mean())

    assert abs(entropy(tables.unigram) - 4.794) < 0.01
    assert abs(entropy(first)[:, inner].mean() - 4.500) < 0.05
    assert abs(entropy(both)[:, inner].mean() - 4.096) < 0.05
    assert abs(cost(first, tables.answer_bigram(rows)) - 0.213) < 0.02
    assert abs(cost(first, tables.answer_trigram(rows)) - 0.136) < 0.02
    assert abs(cost(both, tables.answer_neighbours(rows)) - 0.497) < 0.03
    assert abs(cost(both, first) - 0.405) < 0.03


def test_counted_tables_approach_the_exact_ones():
    language = Hmm.draw(draw(0), 3, 4, 0.5, 0.5)
    exact = tables_of(language)
    counted = count_tables(language.sample(draw(1), 4000, 40), 4)
    for name in ("unigram", "bigram", "backward", "trigram", "neighbours"):
        ours, theirs = getattr(counted, name), getattr(exact, name)
        np.testing.assert_allclose(ours.sum(-1), 1, atol=1e-12)
        # A rare context has few observations.
        assert np.median(np.abs(ours - theirs)) < 0.01
        assert (ours > 0).all()


def test_a_star_without_its_goal_is_a_guess_for_everybody():
    for degree in (2, 5, 7):
        language = PathStar(degree, 4, 50, shows_goal=False)
        rows = language.sample(draw(0), 50, language.length)
        answers = language.left_to_right(rows)[:, language.num_prefix + 1]
        symbols = rows[:, language.num_prefix + 1]
        losses = -np.log(answers[np.arange(50), symbols])
        np.testing.assert_allclose(losses, np.log(degree), atol=1e-9)


def test_validation_queries_are_not_in_the_training_text():
    language = Facts.draw(draw(4), pairs=50, symbols=16, queries=0.5)
    train = {r.tobytes() for r in language.sample(draw(0), 5000, 6)}
    valid = {r.tobytes() for r in language.for_validation().sample(draw(0), 5000, 6)}
    assert len(train) == 100 and len(valid) == 50 and not train & valid
    one_way = Facts.draw(draw(4), 50, 16, directions="forward")
    assert not one_way.is_trained[100:].any()


def test_a_row_depends_on_its_own_draws_only():
    for make in CASES.values():
        language, rows, _ = make()
        length = rows.shape[1]
        draws = draw(8).random((6, language.count_draws(length)))
        together = language.build(draws, length)
        alone = [language.build(draws[i : i + 1], length)[0] for i in range(6)]
        assert (together == np.array(alone)).all()
