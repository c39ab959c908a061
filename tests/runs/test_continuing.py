"""Continuations of prompts by every kind of network that writes."""

import jax
import numpy as np
import pytest
from tiny import MODELS, ROWS, make_config, prepare

from jaxpt.evaluation.scores import SampleSpec
from jaxpt.nn.networks.abilities import name_writing
from jaxpt.objectives import OBJECTIVES
from jaxpt.runs.continuing import TextContinuer
from jaxpt.runs.program import Program
from jaxpt.runs.workdir import LoadedRun
from jaxpt.runs.writer import Writer

PROMPTS = ["the people", "we have a union"]
TRUTHS = [" of men", " and just"]
SILENT = {"mlm", "electra", "bert", "spanbert", "distillation", "adaptive_mlm", "bilm"}
SILENT |= {"skip_gram"}


def open_run(path, name):
    settings = {f"model__{k}": v for k, v in MODELS.get(name, {}).items()}
    config = make_config(path, name, **settings | ROWS.get(name, {}))
    task, tokenizer, _ = prepare(config)
    params = task.model.init_params(jax.random.key(0))
    return LoadedRun(Program(task), tokenizer, params, 0)


@pytest.mark.slow_except("clm", "mlm", "bart", "span_corruption", "masked_diffusion")
@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_writes_or_says_that_it_does_not(name, labelled, refuses):
    run = open_run(labelled, name)
    if name in SILENT:
        with refuses(
            f"the run's objective={name}: must be that of a model that writes"
        ):
            TextContinuer(run)
        return
    assert name_writing(run.program.task.model)
    continuer = TextContinuer(run)
    pairs = continuer(PROMPTS, TRUTHS, SampleSpec(), 0, 0)
    assert [real for _, real in pairs] == TRUTHS
    for text, real in pairs:
        assert len(text) <= len(real)  # a character a token, so no name of a special
    assert continuer(PROMPTS, TRUTHS, SampleSpec(), 0, 0) == pairs
    assert continuer(PROMPTS, TRUTHS, SampleSpec(), 1, 0) != pairs


def test_long_truths_are_cut_to_the_models_room(labelled, refuses):
    run = open_run(labelled, "masked_diffusion")
    continuer = TextContinuer(run)
    ((text, real),) = continuer(
        ["the"], [" people of the union" * 9], SampleSpec(), 0, 0
    )
    task = run.program.task
    room = min(task.read_length, task.model_spec.max_len) - 3
    assert len(real) == room >= len(text)
    with refuses("prompt_words: the 76 tokens of the prompt leave no room"):
        continuer(["the people of union" * 4], [" a"], SampleSpec(), 0, 0)


def test_steps_of_unmasking_are_for_those_that_unmask(labelled, refuses):
    with refuses("num_steps=2: must be 0 for a clm run, which does not unmask"):
        TextContinuer(open_run(labelled, "clm"))(PROMPTS, TRUTHS, SampleSpec(), 0, 2)


@pytest.mark.parametrize(
    ("name", "answer", "expected"),
    [
        ("span_corruption", ("mark", "a", "b", "sentinel", "c"), "ab"),
        ("span_corruption", ("mark", "a", "eos", "b"), "a"),
        ("bart", ("t", "h", "e", "a", "b", "eos"), "ab"),
    ],
)
def test_an_answer_is_read_after_its_mark_or_prompt(
    name, answer, expected, labelled, monkeypatch
):
    run = open_run(labelled, name)
    vocab, form = run.program.task.vocab, run.program.task.text_form
    named = {"eos": form.ends[0]}
    if form.mark:
        named["mark"] = form.mark[0]
    if vocab.sentinels:
        named["sentinel"] = vocab.sentinels[1]
    ids = [named[x] if x in named else int(run.tokenizer.encode(x)[0]) for x in answer]
    shown = []

    def decode(self, params, prompts, num_tokens, first=None):
        shown.append((prompts, first))
        tokens = np.array([ids + [0] * (num_tokens - len(ids))], np.int32)
        return np.repeat(tokens, len(prompts), 0), np.full(len(prompts), len(ids))

    monkeypatch.setattr(Writer, "decode", decode)
    ((text, _),) = TextContinuer(run)(["the"], ["abc"], SampleSpec(), 0, 0)
    assert text == expected
    ((prompt,), first) = shown[0]
    the = run.tokenizer.encode("the").tolist()
    assert prompt.tolist() == [*form.lead, *the, *form.mark, *form.after]
    assert first == (form.mark[0] if name == "span_corruption" else None)
