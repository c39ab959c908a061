"""BabyLM's tasks by hand: forms of files, ties, ranks, paradigms."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from shared import find_shared

from jaxpt.zero_shot import babylm
from jaxpt.zero_shot.babylm import BabyLMQuestion, Wug
from jaxpt.zero_shot.continuations import ContinuationScores
from jaxpt.zero_shot.outcomes import EvalContext
from jaxpt.zero_shot.questions import Question
from jaxpt.zero_shot.tasks import TASKS


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


ENTITY = {"input_prefix": "Box 0 has ", "numops": 2, "options": ["a.", "b.", "c."]}
EWOK = {"Context1": "It rains.", "Target1": "Wet.", "Target2": "Dry.", "Domain": "d"}
COMPS = {
    "prefix_acceptable": "A bird",
    "prefix_unacceptable": "A bee",
    "property_phrase": "has a beak.",
}


def test_each_form_of_file_is_read(tmp_path):
    path = write(tmp_path / "regular.jsonl", ENTITY)
    question = Question(("Box 0 has ",) * 3, ("a.", "b.", "c."), 0)
    assert TASKS["entity_tracking"].read(path) == [
        BabyLMQuestion(question, "regular_2_ops", "regular")
    ]
    question = Question(("It rains.",) * 2, (" Wet.", " Dry."), 0)
    assert TASKS["ewok"].read(write(tmp_path / "x.jsonl", EWOK)) == [
        BabyLMQuestion(question, "d")
    ]
    question = Question(("A bird", "A bee"), (" has a beak.",) * 2, 0)
    path = write(tmp_path / "comps_wugs_dist-before.jsonl", COMPS)
    assert TASKS["comps"].read(path) == [BabyLMQuestion(question, "wugs_dist_before")]
    path = write(tmp_path / "wug.jsonl", {"sentences": "ab\tb", "ratio": 0.25})
    assert TASKS["wug"].read(path) == [Wug("ab", "b", 0.25)]


@pytest.mark.parametrize(
    "task, row, output",
    [
        ("entity_tracking", ENTITY | {"options": ["a."]}, "options must be a list"),
        ("entity_tracking", ENTITY | {"numops": "2"}, "numops must be a whole number"),
        ("entity_tracking", ENTITY | {"input_prefix": ""}, "input_prefix must be a"),
        ("ewok", EWOK | {"Target2": 1}, "Target2 must be a text, is 1"),
        ("comps", {"sentence_good": "a"}, "prefix_acceptable must be a text, is None"),
        ("wug", {"sentences": "ab", "ratio": 1}, "two texts with a tab"),
        ("wug", {"sentences": "a\tb", "ratio": 2}, "ratio=2: must be from 0 to 1"),
        ("wug", {"sentences": "a\tb", "ratio": None}, "ratio=None: must be"),
        ("wug", {"sentences": "a\tb"}, "ratio=None: must be"),
    ],
)
def test_a_bad_row_is_refused(task, row, output, tmp_path, refuses):
    with refuses("a.jsonl line 1: ", output):
        TASKS[task].read(write(tmp_path / "a.jsonl", row))


class Sums:
    """Scores each pair by a number that its continuation spells; "-" does not fit."""

    def score(self, pairs):
        return [
            None
            if pair.continuation == "-"
            else ContinuationScores(
                np.array([float(pair.continuation)]), np.array([False])
            )
            for pair in pairs
        ]


def ask(paradigm, *options):
    return BabyLMQuestion(Question(("",) * len(options), options, 0), paradigm)


@pytest.fixture
def evaluate(monkeypatch):
    monkeypatch.setattr(babylm, "make_score", lambda *args: Sums().score)
    context = EvalContext(None, None, None)
    return lambda items: babylm.evaluate_choices(context, items, ("pll",))["pll"]


def test_the_first_option_must_be_the_likeliest(evaluate):
    items = [
        ask("a", "-1", "-2", "-3"),  # right
        ask("a", "-2", "-1", "-3"),  # wrong
        ask("a", "-1", "-1", "-1"),  # a tie of three
        ask("b", "-2", "-2", "-1"),  # wrong
        ask("b", "-1", "-2"),  # right
        ask("b", "-1", "-"),  # does not fit
    ]
    outcome = evaluate(items)
    accuracy = outcome.figures["accuracy"]
    assert accuracy.value == pytest.approx(((1 + 0 + 1 / 3) / 3 + (0 + 1) / 2) / 2)
    assert accuracy.low < accuracy.value < accuracy.high
    assert outcome.figures["accuracy_of_questions"].value == pytest.approx(7 / 3 / 5)
    np.testing.assert_allclose(outcome.columns["hit"], [1, 0, 1 / 3, 0, 1, np.nan])
    # The pipeline takes the first of the best, which is right in a tie.
    np.testing.assert_array_equal(outcome.columns["choice"], [0, 1, 0, 2, 0, np.nan])
    thirds, half = 1 / 3, 1 / 2
    np.testing.assert_allclose(
        outcome.columns["weight"], [thirds, thirds, thirds, half, half, np.nan]
    )
    assert outcome.trivial["accuracy_of_chance"] == pytest.approx((1 / 3 + 5 / 12) / 2)
    assert outcome.groups["paradigm"]["a"]["ties"] == 1
    assert outcome.notes == [
        "Ties: 1; a tie of k options counts 1 / k.",
        "1 questions are left out: an option is too long.",
    ]


def test_a_model_without_knowledge_has_chance(evaluate):
    outcome = evaluate([ask("a", *["-1"] * 5)] * 4)
    accuracy = outcome.figures["accuracy"]
    assert accuracy[:3] == pytest.approx((0.2, 0.2, 0.2))


def test_no_fitting_question_or_a_diverged_run_is_refused(evaluate, refuses):
    with refuses("no question has options that fit"):
        evaluate([ask("a", "-1", "-")])
    with refuses("1 questions have a score that is not finite"):
        evaluate([ask("a", "-1", "nan"), ask("a", "-1", "-2")])


def test_ranks_and_their_interval():
    # Ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4: 4.5 / sqrt(4.5 * 5).
    values, others = np.array([0.0, 1, 1, 2]), np.array([0.1, 0.2, 0.3, 0.9])
    assert babylm.spearman(values, others) == pytest.approx(4.5 / np.sqrt(4.5 * 5))
    assert babylm.spearman(values, np.ones(4)) == 0
    rng = np.random.default_rng(1)
    x = rng.normal(size=200)
    y = np.round(x + 2 * rng.normal(size=200), 1)
    rho = stats.spearmanr(x, y).statistic
    assert babylm.spearman(x, y) == pytest.approx(rho)
    low, high, _ = babylm.spread(x, y)
    half = 1.96 * np.sqrt((1 + rho**2 / 2) / 197) * (1 - rho**2)
    assert low < rho < high and (high - low) / 2 == pytest.approx(half, rel=0.15)
    assert np.isnan(babylm.spread(x[:1], y[:1])[:2]).all()


class Spelling:
    """Scores a text by minus the sum of its ids."""

    def score(self, texts, starts, rules, seeds):
        return {rule: [-text.astype(np.float32) for text in texts] for rule in rules}


def test_preferences_are_correlated_with_humans():
    def encode(text):
        return np.array([ord(c) for c in text])

    context = EvalContext(Spelling(), encode, encode)
    items = [Wug("a", "b", 0.9), Wug("a", "d", 0.7), Wug("a", "c", 0.8)]
    outcome = babylm.evaluate_wugs(context, items, ("pll",))["pll"]
    assert outcome.columns["margin"].tolist() == [1, 3, 2]
    assert outcome.figures["spearman"].value == pytest.approx(-1)
    same = [Wug("a", "a", 0.9), Wug("b", "b", 0.7)]
    outcome = babylm.evaluate_wugs(context, same, ("pll",))["pll"]
    assert outcome.figures["spearman"].value == 0
    assert outcome.notes == ["All values are equal; the correlation is then 0."]


def test_the_challenge_whole():
    name = "downstream/babylm-zeroshot/zeroshot.tar.xz"
    path = Path(find_shared(name, "entity tracking and wug"))
    items = TASKS["entity_tracking"].read(str(path / "entity_tracking"))
    assert len(items) == 9_483 and len({item.paradigm for item in items}) == 18
    assert {len(item.question.options) for item in items} == {5}
    wugs = TASKS["wug"].read(str(path / "wug_adj_nominalization"))
    assert len(wugs) == 200 and {0.0, 1.0} <= {wug.ratio for wug in wugs}
