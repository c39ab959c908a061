"""The last word: where a passage is cut, and its two conventions."""

import json
import math

import numpy as np
import pytest
from shared import find_shared

from jaxpt.zero_shot.continuations import ContinuationScores
from jaxpt.zero_shot.last_word import (
    Passage,
    evaluate,
    judge,
    read_passages,
    split_passage,
)


def test_words_and_tokens_are_told_apart():
    answers = [
        ContinuationScores(np.array([-1.0, -2.0]), np.array([False, True])),
        ContinuationScores(np.array([-0.5]), np.array([True])),
        ContinuationScores(np.array([-3.0, -1.5]), np.array([False, False])),
    ]
    result = {name: value for name, (value, _) in judge(answers).items()}
    assert result["accuracy"] == pytest.approx(1 / 3)
    assert result["perplexity"] == pytest.approx(math.exp((3 + 0.5 + 4.5) / 3))
    assert result["last_token_accuracy"] == pytest.approx(2 / 3)
    assert result["last_token_perplexity"] == pytest.approx(
        math.exp((2 + 0.5 + 1.5) / 3)
    )
    for value, interval in judge(answers).values():
        assert interval.low <= value <= interval.high


def test_a_hopeless_model_has_no_number():
    answers = [ContinuationScores(np.array([-2000.0]), np.array([False]))]
    assert judge(answers)["perplexity"][0] == math.inf


def test_the_target_brings_its_space():
    assert split_passage("a bc d") == Passage("a bc", " d")


@pytest.mark.parametrize("text", ["word", "a ", " a", ""])
def test_no_last_word(text, refuses):
    with refuses("must end with a word"):
        split_passage(text)


def test_faults_name_their_line(tmp_path, refuses):
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join(json.dumps({"text": t}) for t in ("a b", "word")))
    with refuses("p.jsonl line 2", "'word'"):
        read_passages(str(path))


def test_real_passages():
    path = find_shared("corpora/lambada/lambada_test.jsonl.xz", "real last words")
    passages = read_passages(str(path))
    assert len(passages) == 5153
    assert passages[0].target == " signs"
    # Seven have a line end behind their last space.
    assert sum(len(p.target.split()) > 1 or "\n" in p.target for p in passages) == 7


def test_a_passage_that_does_not_fit_counts_nowhere():
    """Its target alone would fit, and would be right."""
    passages = [Passage("the cat", " sat"), Passage("much too long", " end")]

    def score(pairs):
        return [
            None
            if pair.context == "much too long"
            else ContinuationScores(
                np.array([-1.0]), np.array(["end" in pair.continuation])
            )
            for pair in pairs
        ]

    result = evaluate(passages, score, True)
    assert result.evaluated == [0] and result.words.tolist() == [0]
    assert result.trivial["accuracy_empty"] == result.figures["accuracy"][0] == 0


def test_asking():
    passages = [Passage("the cat", " sat"), Passage("a", " enormous")]

    def score(pairs):
        return [
            None
            if "enormous" in pair.continuation
            else ContinuationScores(
                np.full(2, -0.5 if pair.context else -1.0), np.array([True, False])
            )
            for pair in pairs
        ]

    result = evaluate(passages, score, has_empty=True)
    assert result.evaluated == [0] and result.words.tolist() == [0]
    assert result.trivial["perplexity_empty"] == pytest.approx(math.e**2)
    assert result.figures["perplexity"][0] == pytest.approx(math.e)
    assert evaluate(passages, score, has_empty=False).trivial == {}
