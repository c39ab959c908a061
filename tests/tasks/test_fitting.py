"""A few examples of each task are learned by heart, by networks of several kinds."""

import pytest
from tiny import slow_but

from tests.tasks.tuned import fit, make_run, write_lines

SENTENCES = [
    ("the slowest cat sat", "O B-X I-X O"),
    ("wider mat", "O B-Y"),
    ("on the mat the cat", "O O B-Y O B-X"),
    ("lower", "O"),
]
QUESTIONS = [
    ("cat", "the slowest cat sat on the mat", "slowest"),
    ("mat", "the cat sat on the wide mat", "the wide mat"),
    ("lowest", "the cat sat", None),
    ("newer", "newest wider slower", "slower"),
]


def write_sentences(path):
    lines = [
        "\n".join(map("\t".join, zip(words.split(), tags.split())))
        for words, tags in SENTENCES
    ]
    path.write_text("\n\n".join(lines))
    return path


def write_questions(path):
    rows = []
    for question, context, answer in QUESTIONS:
        texts = [answer] if answer else []
        starts = [context.index(text) for text in texts]
        answers = {"text": texts, "answer_start": starts}
        rows.append({"question": question, "context": context, "answers": answers})
    return write_lines(path, rows)


@pytest.mark.slow_cases("clm")
@pytest.mark.parametrize("objective", slow_but(["clm"], ["mlm", "clm", "bilm"]))
def test_tagging(objective, tmp_path):
    run = make_run(tmp_path, objective)
    path = write_sentences(tmp_path / "a.conll")
    result = fit(run, "tagging", path, tmp_path / "tuned", task__max_len=24)
    assert result["picked"]["test"]["entity_f1"]["median"] == 1.0
    assert result["picked"]["dev"]["entity_f1_strict"]["median"] == 1.0
    assert result["constant"]["dev"]["entity_f1"] == 0.0
    assert result["labels"] == ["O", "B-X", "B-Y", "I-X"]


@pytest.mark.slow_cases("mlm")
@pytest.mark.parametrize("objective", slow_but(["mlm"], ["mlm", "span_corruption"]))
def test_span_qa(objective, tmp_path):
    changes = {"model__num_decoder_layers": 1} if "span" in objective else {}
    run = make_run(tmp_path, objective, **changes)
    path = write_questions(tmp_path / "a.jsonl")
    settings = {"task__has_null": True, "task__max_len": 48, "task__max_question": 8}
    result = fit(run, "span_qa", path, tmp_path / "tuned", **settings)
    assert result["picked"]["test"]["exact_match"]["median"] == 1.0
    assert result["picked"]["test"]["no_answer_f1"]["median"] == 1.0
    assert result["constant"]["dev"]["f1"] == 0.25  # that there is no answer


WORDS = [
    ("the slowest cat sat", "slowest"),
    ("wider mat", "wider"),
    ("on the mat the cat", "slowest"),
    ("lower", "wider"),
]


@pytest.mark.slow_cases("prefix_lm")
@pytest.mark.parametrize(
    "objective",
    slow_but(["prefix_lm"], ["prefix_lm", "clm", "clm_mlm", "span_corruption", "bart"]),
)
def test_text_to_text(objective, tmp_path):
    is_two = objective in ("span_corruption", "bart")
    changes = {"model__num_decoder_layers": 1} if is_two else {}
    run = make_run(tmp_path, objective, **changes)
    rows = [{"sentence": text, "label": label} for text, label in WORDS]
    path = write_lines(tmp_path / "a.jsonl", rows)
    settings = {"task__max_target": 8, "task__max_len": 32}
    result = fit(run, "text_to_text", path, tmp_path / "tuned", **settings)
    test = {name: x["median"] for name, x in result["picked"]["test"].items()}
    assert test["accuracy"] == test["f1"] == test["mcc"] == 1.0
    assert test["invalid"] == 0 and result["constant"]["dev"]["accuracy"] == 0.5
