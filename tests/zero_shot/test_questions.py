"""Each data set's prompts, and what their files hold that one trips over."""

import json

import pytest
from shared import find_shared

from jaxpt.zero_shot.questions import (
    FORMS,
    Question,
    QuestionRow,
    ask_arc,
    ask_boolq,
    ask_cb,
    ask_copa,
    ask_openbookqa,
    ask_piqa,
    ask_sciq,
    ask_winogrande,
    cut_titles,
    read_questions,
)

ARC = {
    "question": "Which is a gas?",
    "choices": {"text": ["ice", "steam", "dew"], "label": ["1", "2", "3"]},
    "answerKey": "2",
}


def test_arc_has_letters_or_numbers():
    question = "Question: Which is a gas?\nAnswer:"
    result = ask_arc(QuestionRow(ARC, ""))
    assert result == Question((question,) * 3, (" ice", " steam", " dew"), 1)
    letters = ARC | {"answerKey": "C"}
    letters["choices"] = ARC["choices"] | {"label": ["A", "B", "C"]}
    assert ask_arc(QuestionRow(letters, "")).answer == 2
    assert result.solved == question + " steam"


def test_a_key_that_no_choice_has(refuses):
    with refuses("a.jsonl line 3", "answerKey='B'", "1, 2, 3"):
        ask_arc(QuestionRow(ARC | {"answerKey": "B"}, "a.jsonl line 3"))


def test_openbookqa_ends_its_stem():
    row = {"question_stem": "Ice is"} | ARC
    assert ask_openbookqa(QuestionRow(row, "")).contexts[0] == "Ice is"


def test_piqa():
    row = {"goal": "dresser", "sol1": "glue ", "sol2": "nails", "label": 1}
    result = ask_piqa(QuestionRow(row, ""))
    assert result.contexts[0] == "Question: dresser\nAnswer:"
    # The trailing space stays, as in the harness, and counts as a character.
    assert result.bare_options == ("glue ", "nails") and result.answer == 1


def make_sciq(support):
    names = ("distractor1", "distractor2", "distractor3", "correct_answer")
    words = ("Linnaeus", "shaw", "Scopes", "darwin")
    row = dict(zip(names, words))
    return row | {"question": "Who?", "support": support}


def test_sciq_without_a_support_has_no_empty_line():
    assert (
        ask_sciq(QuestionRow(make_sciq(""), "")).contexts[0]
        == "Question: Who?\nAnswer:"
    )
    with_it = ask_sciq(QuestionRow(make_sciq(" He wrote it. "), ""))
    assert with_it.contexts[0] == "He wrote it.\nQuestion: Who?\nAnswer:"
    assert with_it.options[with_it.answer] == " darwin"


def test_boolq_gets_its_question_mark():
    row = {"passage": "It is.", "question": "is it", "answer": True}
    result = ask_boolq(QuestionRow(row, ""))
    assert result.contexts[0] == "It is.\nQuestion: is it?\nAnswer:"
    assert result.options == (" no", " yes") and result.answer == 1
    assert ask_boolq(QuestionRow(row | {"answer": False}, "")).answer == 0


def test_dashes_are_no_titles():
    one = ["Mary II (1662 -- 1694) was Queen.", "Jazz is music.", "Tea is a drink."]
    assert cut_titles(one) == one
    late = ["x" * 200 + " -- end"] * 2
    assert cut_titles(late) == late
    titled = ["Jazz -- Music -- is it."] * 2
    assert cut_titles(titled) == ["Music -- is it."] * 2


@pytest.mark.parametrize("asks, word", [("cause", "because"), ("effect", "therefore")])
def test_copa_goes_on_with_one_space(asks, word):
    row = {"premise": "The man fell.", "question": asks, "label": 0}
    row |= {"choice1": "He slipped.", "choice2": "It rained."}
    result = ask_copa(QuestionRow(row, ""))
    assert result.solved == f"The man fell {word} he slipped."


def test_winogrande_scores_what_follows_either_name():
    row = {"option1": "Sam", "option2": "Max", "answer": "2"}
    result = ask_winogrande(QuestionRow(row | {"sentence": "So _ won."}, ""))
    assert result.contexts == ("So Sam", "So Max")
    assert result.options == (" won.", " won.") and result.answer == 1
    result = ask_winogrande(QuestionRow(row | {"sentence": "It was _'s hat."}, ""))
    assert result.solved == "It was Max's hat."


def test_cb_by_words_and_by_numbers():
    row = {"premise": "He may.", "hypothesis": "he will"}
    for label in (1, "contradiction"):
        result = ask_cb(QuestionRow(row | {"label": label}, ""))
        assert result.options[result.answer] == " False"
    assert result.contexts[0].endswith(
        "He may.\nQuestion: he will. True, False, or Neither?\nAnswer:"
    )


def test_a_file_without_a_column(tmp_path, refuses):
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps({"goal": "x", "sol1": "y", "label": 0}) + "\n")
    with refuses("q.jsonl", "sol2"):
        read_questions("piqa", str(path))
    path.write_text(json.dumps({"goal": 3, "sol1": "y", "sol2": "z", "label": 0}))
    with refuses("q.jsonl line 1", "goal=3", "text"):
        read_questions("piqa", str(path))


# Rows, and how often each place is right.
COUNTS = {
    "arc-easy.validation.jsonl": ("arc", 570),
    "arc-challenge.validation.jsonl": ("arc", 299),
    "piqa.validation.jsonl": ("piqa", 1838),
    "openbookqa.validation.jsonl": ("openbookqa", 500),
    "sciq.validation.jsonl.xz": ("sciq", 1000),
    "winogrande.validation.jsonl": ("winogrande", 1267),
    "copa.validation.jsonl": ("copa", 100),
    "cb.validation.jsonl": ("cb", 56),
    "cb.fewglue-train32.jsonl": ("cb", 32),
}


@pytest.mark.parametrize("file", COUNTS)
def test_real_files(file):
    path = find_shared(f"downstream/choice-dev/{file}", "that real questions are read")
    name, count = COUNTS[file]
    questions = read_questions(name, str(path))
    assert name in FORMS and len(questions) == count
    for question in questions:
        assert not any(c.endswith((" ", "\n")) for c in question.contexts)
        assert all(o[0] == " " and o[1:].strip() for o in question.options)
        assert "\n\nQuestion" not in question.contexts[0]


def test_real_passages_of_boolq():
    """All of train have titles, and the dashes of 88 of validation are none."""
    folder = find_shared("downstream/boolq", "that real titles are cut off")
    valid = read_questions("boolq", str(folder / "validation.jsonl.xz"))
    assert len(valid) == 3270
    assert sum(" -- " in question.contexts[0] for question in valid) == 88
    right = sum(question.answer for question in valid)
    assert round(right / len(valid), 3) == 0.622
    train = read_questions("boolq", str(folder / "train.jsonl.xz"))
    assert len(train) == 9427
    assert train[0].contexts[0].startswith("Persian (")
