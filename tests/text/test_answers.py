"""Losses in the answers of a task only, and nothing else hidden."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from languages_text import HMM, SMALL, spec_of, task_of
from tiny import make_config

from jaxpt.config.plan import make_plan
from jaxpt.errors import UserError
from jaxpt.languages.parameters import (
    read_language,
)
from jaxpt.objectives import OBJECTIVES
from jaxpt.runs.data import held_rows, make_feed
from jaxpt.text.dataset import load_text
from jaxpt.text.library import open_stores
from jaxpt.text.rows.corpus import of_answers

# What reads a task's answers only; the others read the whole text.
UNABLE = {"span_corruption", "bart", "ul2", "fill_in_the_middle", "skip_gram"}
TASKS = {
    "star": (SMALL["star"], 18),
    "facts": (SMALL["facts"], 6),
    "recall": (SMALL["recall"], 24),
}


def corrupt(task, rows):
    module = OBJECTIVES[task.plan.objective_name]
    rows = {key: jnp.asarray(value) for key, value in rows.items()}
    rows["progress"] = jnp.full(len(rows["tokens"]), 0.5)
    read = {key: value for key, value in rows.items() if key in task.spec.READS}
    batch = module.corrupt(jax.random.key(3), read, task.vocab, task.spec)
    return jax.tree.map(np.asarray, batch)


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("rows", ["chunks", "packed"])
@pytest.mark.parametrize("name", TASKS)
def test_answers_are_those_of_the_language(name, rows, fresh, tmp_path):
    path, length = TASKS[name]
    path = path.replace(":", f":fresh={fresh},", 1)
    task, _, corpora = task_of(
        path,
        tmp_path,
        data__rows=rows,
        data__row_length=length,
        data__long_documents="truncate",
        tokenizer__specials=("pad", "mask"),
    )
    language = read_language(path).language
    for batch in (
        make_feed(task, corpora["train"])[0],
        held_rows(task, corpora["valid"], 8),
    ):
        symbols = batch["tokens"][:, :length] - 2
        assert symbols.min() >= 0
        assert (batch["answers"][:, :length] == language.asked(symbols)).all()
        assert 0 < batch["answers"].mean() < 1


@pytest.mark.parametrize("objective", sorted(OBJECTIVES.keys() - {"prefix_lm"}))
def test_only_answers_are_hidden_and_predicted(objective, tmp_path):
    """All else is read as it is; what cannot do so says so."""
    settings = {"data__documents": "file", "data__rows": "packed"}
    if objective == "bert":
        settings["bert__sentence_task"] = "none"
    task, _, corpora = task_of(
        SMALL["star"],
        tmp_path,
        objective,
        data__row_length=40,
        model__max_len=40,
        **settings,
    )
    feed = make_feed(task, corpora["train"])
    rows = feed[0]
    if objective in UNABLE:
        assert "answers" not in rows and "whole text" in feed.parts[0].notes[0]
        return
    batch, answers = corrupt(task, rows), rows["answers"]
    inputs = batch["inputs"]
    width = inputs.shape[1]  # the last token may be a target only
    is_changed = inputs != rows["tokens"][:, :width]
    assert not (is_changed & (answers[:, :width] == 0)).any()
    ids = {*rows["tokens"][answers > 0].tolist()}
    total = 0
    for name, weights in batch["weights"].items():
        if not weights.any():
            continue
        term = task.spec.terms[name]
        where = weights > 0
        # The prefix of an answer's token is another token.
        is_answer = term.targets and term.targets != "prefix_targets"
        if is_answer and batch[term.targets].shape == where.shape:
            assert {*batch[term.targets][where].tolist()} <= ids
        total += where.sum()
        assert weights.sum() <= answers.sum()
    assert total > 0


@pytest.mark.parametrize("decoder", [0, 1])
def test_the_prefix_of_a_task_is_all_before_its_answer(decoder, tmp_path):
    task, _, corpora = task_of(
        SMALL["star"],
        tmp_path,
        "prefix_lm",
        data__row_length=40,
        model__max_len=48,
        data__rows="packed",
        model__num_decoder_layers=decoder,
    )
    rows = make_feed(task, corpora["train"])[0]
    batch = corrupt(task, rows)
    weights = batch["weights"]["loss"] > 0
    if decoder:
        eos = task.vocab.eos
        for inputs, targets, row, keep in zip(
            batch["inputs"], batch["targets"], rows["tokens"], weights
        ):
            assert inputs[:16].tolist() == [*row[:15], eos]
            assert targets[keep][:4].tolist() == [*row[15:18], eos]
        return
    assert (weights == (rows["answers"] > 0)).all()
    assert batch["is_prefix"][0, :16].all() and not batch["is_prefix"][0, 16:18].any()


def test_answers_are_refused_where_there_are_none(tmp_path):
    for path in (HMM, tmp_path / "my.txt"):
        (tmp_path / "my.txt").write_text("the state of the union\n" * 50)
        task, _, corpora = task_of(path, tmp_path, data__answers_only=True)
        with pytest.raises(UserError, match="data.answers_only=True: must be False"):
            make_feed(task, corpora["train"])[0]


def test_the_whole_text_is_read_on_request(tmp_path):
    config = make_config(SMALL["star"], data__answers_only=False)
    config.data.cache_dir = str(tmp_path)
    plan = make_plan(config, explicit_names={"data.answers_only"})
    assert not plan.rows.answers_only
    assert make_plan(config).rows.answers_only


def test_a_prepared_task_has_its_answers(tmp_path):
    spec = spec_of(SMALL["star"], tmp_path)
    open_stores(spec, folder=tmp_path / "store")
    _, splits = load_text(spec_of(str(tmp_path / "store"), tmp_path))
    (corpus,) = splits["train"].parts
    (whole,) = load_text(spec)[1]["train"].parts
    answers = of_answers(whole).read(0, corpus.num_tokens)
    assert (of_answers(corpus).read(0, corpus.num_tokens) == answers).all()
    assert answers.reshape(-1, 18)[:, 15:].all() and answers.sum() * 6 == answers.size
