"""Multiple choice: the reference's vector, ties, and questions that do not fit."""

import numpy as np
import pytest

from jaxpt.zero_shot.continuations import ContinuationScores, SplitText
from jaxpt.zero_shot.multiple_choice import (
    count_ties,
    evaluate,
    find_hits,
    judge,
    trivial_answers,
)
from jaxpt.zero_shot.questions import Question, plain

# downstream.md, section E: per character -3, -.9, -1.4; per byte -3, -.9, -1.1667.
WORDS, SUMS = ["no", "definitely", "naïve"], np.array([-6.0, -9.0, -7.0])


@pytest.mark.parametrize("answer", range(3))
def test_the_reference_vector(answer):
    hits, _ = judge([plain("Is it?", WORDS, answer)], [SUMS], [SUMS + [0, 2, -4]])
    assert hits["acc"][0] == (answer == 0)
    assert hits["acc_norm"][0] == (answer == 1)
    assert hits["acc_bytes"][0] == (answer == 1)
    assert hits["acc_mutual_info"][0] == (answer == 2)  # 0, -2, 4
    assert hits["acc_empty"][0] == (answer == 0)  # -6, -7, -11


def test_characters_are_not_bytes():
    # naïve has 5 characters and 6 bytes: -1.4 and -1.1667 against -1.3.
    question = plain("Is it?", ["naïve", "n" * 10], 0)
    hits, _ = judge([question], [np.array([-7.0, -13.0])])
    assert (hits["acc_norm"][0], hits["acc_bytes"][0]) == (0, 1)


def test_the_space_before_an_option_has_no_length():
    question = plain("Is it?", ["a", "bb"], 0)
    hits, _ = judge([question], [np.array([-1.5, -2.9])])
    assert hits["acc_norm"][0] == 0  # -1.5 and -1.45; with a space -.75 and -.97


def test_ties_count_for_their_part_wherever_the_answer_stands():
    scores = [np.array([-2.0, -2.0, -3.0])] * 3
    assert find_hits(scores, [0, 1, 2]).tolist() == [0.5, 0.5, 0]
    assert count_ties([*scores, np.array([-1.0, -2.0])]) == 3


def test_a_model_that_knows_nothing_has_chance():
    questions = [plain("Who?", list("abcd"), 3)] * 5  # SciQ: the last is right
    hits, num_ties = judge(questions, [np.zeros(4)] * 5)
    assert hits["acc"].mean() == 0.25 and num_ties == 5


def test_trivial_answers():
    classes = [plain("x", ["no", "yes"], y) for y in (1, 1, 0)]
    assert trivial_answers(classes) == {"chance": 0.5, "majority": 2 / 3}
    # Separate options have no most frequent class, wherever the correct one is.
    others = [plain("x", ["a", "b"], 1), plain("x", ["c", "d", "e", "f"], 3)]
    assert trivial_answers(others) == {"chance": 0.375}


def score_by_length(pairs):
    """Longer options are likelier; a "huge" one does not fit."""
    assert all(type(pair) is SplitText for pair in pairs)
    return [
        None
        if "huge" in pair.continuation
        else ContinuationScores(
            np.full(3, len(pair.continuation) - len(pair.context)), np.ones(3)
        )
        for pair in pairs
    ]


def test_asking_leaves_out_what_does_not_fit(refuses):
    questions = [
        plain("x", ["a", "bbb"], 1),
        plain("x", ["huge", "b"], 0),
        Question(("long context", "x"), (" a", " a"), 0),
    ]
    result = evaluate(questions, score_by_length, has_empty=True)
    assert result.evaluated == [0, 2]
    assert result.hits["acc"].tolist() == [1, 0]
    # Without contexts the third question's options have equal scores.
    assert result.hits["acc_empty"].tolist() == [1, 0.5]
    assert result.hits["acc_mutual_info"].tolist() == [0.5, 0]
    assert "acc_empty" not in evaluate(questions, score_by_length, has_empty=False).hits
    with refuses("fit"):
        evaluate(questions[1:2], score_by_length, has_empty=True)
