"""Regret among the metrics of a run, on text of a language with exact answers."""

import dataclasses

import numpy as np
import pytest
from tiny import make_config, prepare, slow_but

from jaxpt.judge.examples import means
from jaxpt.objectives import OBJECTIVES
from jaxpt.runs.exact_answers import (
    count_answer_places,
    explain_no_answer,
    is_beyond_training,
    list_answers,
)
from jaxpt.runs.program import Program
from jaxpt.training.check import check_measures
from jaxpt.training.measure import list_parts, measure, measure_exact
from jaxpt.training.regret import find_known, list_documents, measure_regret

HMM = "hmm:states=4,symbols=8,transitions=0.2,emissions=0.3,length=12"
QUIET = {"eval__pair_questions": 0, "eval__probe_passages": 0}


def load(path, objective="clm", explicit_names=(), **changes):
    settings = {"data__split": "auto", "tokenizer__kind": "char"} | QUIET | changes
    settings = {"eval__regret_documents": 10, "eval__regret_positions": 3} | settings
    config = make_config(path, objective, **settings)
    task, _, corpora = prepare(config, explicit_names)
    return Program(task), corpora


def test_regret_is_a_metric_of_documents():
    program, corpora = load(HMM, eval__regret_bayes_documents=4)
    params = program.init_params(0)
    names = check_measures(program, corpora)
    measured = measure(program, params, corpora, 0)
    assert set(measured.metrics) <= names
    left = measured.examples["regret_left_to_right"]
    assert left.weights.tolist() == [3] * 10 and len(set(left.groups)) == 10
    assert measured.metrics["regret_left_to_right"] == left.mean > 0
    assert measured.metrics["regret_left_to_right_random"] == left.mean
    assert 0 < measured.metrics["special_mass_regret_left_to_right"] < 1
    # By Bayes' rule of a few documents, once, and not for learning curves.
    bayes = measured.examples["regret_two_sided_bayes"]
    assert len(bayes.totals) == 4
    assert "regret_two_sided_bayes_random" not in measured.metrics
    assert "regret_two_sided" not in measured.metrics
    quick, _ = measure_exact(program, params, corpora, is_quick=True)
    assert set(quick) == {"regret_left_to_right"}


def test_regret_under_the_own_masks_is_a_metric():
    program, corpora = load(HMM, "mlm", mlm__mask_rate=0.3)
    names = check_measures(program, corpora)
    assert {"regret_own_masks", "regret_own_masks_random"} <= names
    params = program.init_params(0)
    for is_quick in (True, False):
        examples, _ = measure_exact(program, params, corpora, is_quick)
        own = examples["regret_own_masks"]
        assert own.weights.tolist() == [4] * 10  # of 12 tokens
        assert 0 < own.mean < examples["regret_two_sided"].mean + 1


def test_documents_of_all_objectives_are_the_same():
    first, corpora = load(HMM)
    other, corpora_of_other = load(HMM, "mlm")
    texts = [
        find_known(program.task, text).questions
        for program, text in ((first, corpora), (other, corpora_of_other))
    ]
    assert (texts[0].rows == texts[1].rows).all()
    assert (texts[0].positions == texts[1].positions).all()
    assert (texts[0].documents == texts[1].documents).all()


@pytest.mark.parametrize("path", [HMM, "speech"])
def test_without_exact_answers_there_is_none(path, speech):
    path = speech if path == "speech" else path
    program, corpora = load(path, eval__regret_documents=0 if path == HMM else 10)
    params = program.init_params(0)
    assert measure_exact(program, params, corpora) == ({}, {})


def test_documents_that_are_too_long_for_a_model(caplog):
    settings = {"model__max_len": 11, "data__row_length": 10}
    program, corpora = load(HMM, "clm", ["model.max_len"], **settings)
    params = program.init_params(0)
    assert measure_regret(program, params, corpora) == ({}, {})
    for metric in ("regret_left_to_right", "regret_two_sided_bayes"):
        assert (
            f"{metric} is not measured: documents have 12 tokens, and clm reads 11 at "
            "once (model.max_len=11)"
        ) in caplog.text


# By name, the form of rows: as long as a document, or as the model's inputs, or a
# document with its [EOS].
ROWS = {
    "row": {"data__row_length": 16},
    "inputs": {"data__row_length": 0, "data__seq_len": 16},
    "packed": {"data__row_length": 17, "data__rows": "packed"},
}
LONGER = HMM.replace("length=12", "length=16")
STACKS = ("prefix_lm", "ul2")  # objectives of networks with or without a decoder


@pytest.mark.parametrize("rows", slow_but(["row"], ROWS))
@pytest.mark.parametrize("name", [*OBJECTIVES, *(f"{x}/other" for x in STACKS)])
def test_a_model_has_positions_for_every_question(name, rows):
    """Its table is enlarged for documents and the ids around them."""
    objective, _, other = name.partition("/")
    settings = {"model__max_len": 1} | ROWS[rows]
    settings |= {"latent_prediction__horizon": 4}  # within these rows
    explicit_names = ["model.num_decoder_layers"] * bool(other)
    if other and objective == "prefix_lm":
        settings["model__num_decoder_layers"] = 1
    program, _ = load(LONGER, objective, explicit_names, **settings)
    answers = list_answers(program.task, 8)
    assert bool(answers) == (objective != "skip_gram")
    for answer in answers:
        assert explain_no_answer(program.task, answer, 16) == "", answer


COUNTED = "fill_in_the_middle", "clm", "mlm", "span_corruption", "bart", "ul2"


@pytest.mark.parametrize("name", slow_but(COUNTED[:1], COUNTED))
def test_positions_of_every_question_are_counted(name):
    """A model of so many positions is measured; one with a position less is not."""
    short = {"data__row_length": 6, "model__max_len": 30}
    program, corpora = load(HMM, name, ["model.max_len"], **short)
    answers = list_answers(program.task, 8)
    places = {a: count_answer_places(program.task, a, 12) for a in answers}
    for size in set(places.values()):
        for max_len in (size - 1, size):
            settings = short | {"model__max_len": max_len}
            program, corpora = load(HMM, name, ["model.max_len"], **settings)
            fits = [a for a in answers if places[a] <= max_len]
            expected = {answer.metric for answer in fits}
            if any(answer.reads == "gap_fill_scores" for answer in fits):
                expected |= {"regret_own_masks"}
            names = check_measures(program, corpora)
            found = {x for x in names if x.startswith("regret_")}
            assert {x for x in found if not x.endswith("_random")} == expected


@pytest.mark.parametrize(
    ("rows", "positions", "is_beyond"),
    [
        ("row", "learned", True),  # its inputs have 11 tokens, sentinels and [EOS]
        ("packed", "learned", True),
        ("packed", "rotary", False),
    ],
)
def test_positions_that_training_does_not_read(rows, positions, is_beyond):
    """The inputs of span corruption are shorter than the document that is asked."""
    settings = {"model__positions": positions} | ROWS[rows]
    task = load(LONGER, "span_corruption", **settings)[0].task
    for answer in list_answers(task, 8):
        assert is_beyond_training(task, answer, 16) == is_beyond
    task = load(LONGER, "clm", **ROWS["packed"])[0].task
    assert not any(is_beyond_training(task, a, 16) for a in list_answers(task, 8))


def test_tasks_have_whole_answers():
    program, corpora = load("star:degree=2,arm=3,names=8", "masked_diffusion")
    examples, _ = measure_regret(program, program.init_params(0), corpora)
    values = means(examples)
    assert 0 <= values["answer_accuracy"] <= values["second_token_accuracy"] <= 1
    assert examples["answer_accuracy"].weights.tolist() == [1] * 10


def test_the_part_of_electra_that_answers_left_to_right(speech):
    program, _ = load(HMM, "electra")
    parts = list_parts(program.task)
    assert parts["regret_left_to_right"] == "its generator"
    assert parts["regret_own_masks"] == "its generator"
    assert "regret_two_sided" not in parts  # by both networks
    assert "regret_left_to_right" not in list_parts(load(speech, "electra")[0].task)


def test_documents_of_another_length_are_left_out():
    program, corpora = load(HMM)
    known = find_known(program.task, corpora)
    valid = corpora["valid"]
    part = valid.parts[0]
    cut = dataclasses.replace(valid, parts=(part,))
    rows, numbers = list_documents(cut, known.questions.ids, 10_000)
    assert rows.shape == (len(part.labels), 12)
    assert (np.diff(numbers) == 1).all()
