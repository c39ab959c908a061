"""Regret among the metrics of a run, on text of a language with exact answers."""

import dataclasses

import numpy as np
import pytest
from tiny import make_config, prepare

from jaxpt.judge.examples import means
from jaxpt.runs.program import Program
from jaxpt.training.check import check_measures
from jaxpt.training.measure import list_parts, measure, measure_exact
from jaxpt.training.regret import find_known, list_documents, measure_regret

HMM = "hmm:states=4,symbols=8,transitions=0.2,emissions=0.3,length=12"
QUIET = {"eval__pair_questions": 0, "eval__probe_passages": 0}


def load(path, objective="clm", **changes):
    settings = {"data__split": "auto", "tokenizer__kind": "char"} | QUIET | changes
    settings = {"eval__regret_documents": 10, "eval__regret_positions": 3} | settings
    task, _, corpora = prepare(make_config(path, objective, **settings))
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
    program, corpora = load(HMM, model__max_len=11, data__row_length=10)
    params = program.init_params(0)
    assert measure_regret(program, params, corpora) == ({}, {})
    assert "documents have 12 tokens, and clm reads 11 at once" in caplog.text


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
