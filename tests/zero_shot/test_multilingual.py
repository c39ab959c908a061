"""Questions as the harness asks them: fields, delimiter, mean over questions."""

import json

import numpy as np
import pytest

from jaxpt.errors import DataError
from jaxpt.zero_shot import multilingual
from jaxpt.zero_shot.multilingual import ask_prompt, ask_sentences
from jaxpt.zero_shot.outcomes import EvalContext
from jaxpt.zero_shot.tasks import TASKS


@pytest.mark.parametrize("names", multilingual.SENTENCES)
def test_a_sentence_follows_the_delimiter(names):
    """One space before every choice, without context and in Chinese, too."""
    row = dict(zip(names, ("好的。", "的好。"), strict=True))
    item = ask_sentences(row | {"UID": "u", "phenomenon": "order"}, "file", "")
    assert item.question.contexts == ("", "") and item.question.answer == 0
    assert item.question.options == (" 好的。", " 的好。")
    assert (item.paradigm, item.phenomenon) == ("u", "order")
    assert ask_sentences(row, "file", "").paradigm == "file"


@pytest.mark.parametrize("label", [1, "1", "b"])
def test_a_label_is_an_index_or_a_choice(label):
    row = {"prompt": "p", "choices": ["a", "b"], "label": label}
    question = ask_prompt(row, "file", "").question
    assert question.answer == 1 and question.options == (" a", " b")


@pytest.mark.parametrize(
    ("ask", "row", "words"),
    [
        (
            ask_sentences,
            {"good": "a", "bad": "b"},
            "must have the fields sen, wrong_sen",
        ),
        (ask_sentences, {"sen": "a", "wrong_sen": " "}, "wrong_sen must be a text"),
        (ask_prompt, {"choices": ["a", "b"], "label": 0}, "prompt must be a text"),
        (ask_prompt, {"prompt": "p", "choices": ["a"], "label": 0}, "at least 2"),
        (
            ask_prompt,
            {"prompt": "p", "choices": ["a", "b"], "label": 2},
            "label must be",
        ),
        (
            ask_prompt,
            {"prompt": "p", "choices": ["a", "b"], "label": True},
            "label must",
        ),
        (ask_prompt, {"prompt": "p", "choices": ["a", "b"]}, "label must be"),
    ],
)
def test_other_rows_are_refused(ask, row, words):
    with pytest.raises(DataError, match=words) as error:
        ask(row, "file", "file.jsonl line 3")
    assert "file.jsonl line 3" in str(error.value)


class Scorer:
    """Prefers the option with the smaller sum of ids."""

    rules = ("causal",)

    def room(self, rule):
        return 0

    def score(self, texts, starts, rules, with_best=False):
        return {rules[0]: [-np.asarray(x[s:], float) for x, s in zip(texts, starts)]}


def encode(text):
    return np.array([ord(c) for c in text], np.int64)


def test_accuracy_is_the_mean_over_questions(tmp_path):
    """Three questions of one paradigm are wrong, one of another is right."""
    rows = [("b", "a", "x")] * 3 + [("a", "b", "y")]
    lines = [{"sen": g, "wrong_sen": b, "UID": u} for g, b, u in rows]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    task = TASKS["sentence_pairs"]
    context = EvalContext(Scorer(), encode, lambda text: (encode(text), encode(text)))
    outcome = task.evaluate(context, task.read(str(path)), ("causal",))["causal"]
    assert next(iter(outcome.figures)) == "accuracy"
    assert outcome.figures["accuracy"].value == 0.25
    assert outcome.figures["accuracy_of_paradigms"].value == 0.5
    assert outcome.columns["weight"].tolist() == [1.0] * 4
    assert outcome.trivial == {"accuracy_of_chance": 0.5}


def test_any_choice_can_be_the_correct_one(tmp_path):
    row = {"prompt": "p", "choices": ["c", "a", "b"], "label": 1}
    path = tmp_path / "story.jsonl"
    path.write_text(json.dumps(row) + "\n" + json.dumps(row | {"label": 0}) + "\n")
    task = TASKS["prompted_choices"]
    context = EvalContext(Scorer(), encode, lambda text: (encode(text), encode(text)))
    outcome = task.evaluate(context, task.read(str(path)), ("causal",))["causal"]
    assert outcome.columns["hit"].tolist() == [1.0, 0.0]
    assert outcome.trivial["accuracy_of_chance"] == pytest.approx(1 / 3)
