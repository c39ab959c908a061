"""Documents of a language, masked as in the training of an objective.

    regret under the own masks = mean over hidden positions of KL(p || q),
    with p(x_i | the visible tokens) and the network's q for the same input

The two-sided question hides one token alone. A network that was trained with more
hidden tokens may answer it badly although it has learned its own task; this regret is
of that task. It separates what a network has not learned from what it was not trained
to answer.

Departure from training: every hidden token is a [MASK]. Training also replaces some by
random tokens and keeps others, whose exact answers are not known.
"""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, PyTree

from jaxpt.evaluation.likelihood import map_batches
from jaxpt.evaluation.regret import (
    MAX_FLOATS,
    ExactQuestions,
    exact_regret,
    renormalise,
)
from jaxpt.judge.examples import Examples
from jaxpt.languages.language import Language
from jaxpt.nn.networks.abilities import FillsMasks
from jaxpt.rng import stream
from jaxpt.runs.program import Program
from jaxpt.runs.random_parts import list_predicting
from jaxpt.runs.task import Task
from jaxpt.text.rows.rows_spec import PAIRS

# The same masks at every evaluation of every run.
SEED, STREAM = 0, 2
ALL_MASKS = {"replace_mask": 1.0, "replace_random": 0.0}


def measure_own_masks(
    program: Program, params: PyTree, language: Language, questions: ExactQuestions
) -> Examples | None:
    """The regret of each document, over all tokens that its masks hide.

    None if the network fills no masks, or its masks hide what has no exact answer.
    """
    rows, ids = questions.rows, questions.ids
    masks = draw_masks(program.task, questions, language.asked(rows))
    if masks is None or not masks.any():
        return None
    totals, start = np.zeros(len(masks)), 0
    for logits in _fill_documents(program, params, questions, masks):
        part = slice(start, start + len(logits))
        hidden = masks[part]
        truth = language.given_visible(rows[part], ~hidden)[hidden]
        log_q, _ = renormalise(logits[hidden], ids)
        owners = start + np.nonzero(hidden)[0]
        np.add.at(totals, owners, exact_regret(truth, log_q))
        start += len(logits)
    weights = masks.sum(1).astype(np.float64)
    used = weights > 0
    return Examples(totals[used], weights[used], questions.documents[used])


def draw_masks(
    task: Task, questions: ExactQuestions, asked: Bool[np.ndarray, "N T"]
) -> Bool[np.ndarray, "N T"] | None:
    """Which tokens of each document are hidden; none of a document without an answer.

    None if the network fills no masks, or fills them block by block.

    Args:
      asked: the positions that have an exact answer.
    """
    model: Any = task.model
    if not isinstance(model, FillsMasks) or list_predicting(task):
        return None
    if getattr(model, "block_size", 0):
        return None
    form = task.text_form
    tokens = form.wrap_read(questions.tokens)
    names = {field.name for field in dataclasses.fields(task.spec)}
    changes = {k: x for k, x in ALL_MASKS.items() if k in names}
    spec = dataclasses.replace(task.spec, row_length=tokens.shape[1], **changes)
    rows = _make_rows(task, tokens, asked)
    rng = stream(SEED, STREAM, "evaluate")
    batch = task.objective.corrupt(rng, rows, task.vocab, spec)
    is_mask = np.asarray(batch["inputs"]) == task.vocab.require("mask")
    # The last token is no input of a network that reads one position before.
    is_mask = np.pad(is_mask, ((0, 0), (0, tokens.shape[1] - is_mask.shape[1])))
    first = len(form.opening)
    hidden = is_mask[:, first : first + asked.shape[1]]
    # A task's prefix must be visible.
    return hidden & ~(hidden & ~asked).any(1, keepdims=True)


def _make_rows(task: Task, tokens: np.ndarray, asked: np.ndarray) -> Any:
    """Rows as those of training: every document is a row, with the keys it has."""
    num, ones = len(tokens), np.ones(tokens.shape, np.int32)
    first = len(task.text_form.opening)
    answers = np.zeros(tokens.shape, np.int32)
    answers[:, first : first + asked.shape[1]] = asked
    known: dict[str, np.ndarray] = {"segment_ids": ones, "answers": answers}
    known |= {"type_ids": 0 * ones, "sentence_ids": 0 * ones}
    known |= {key: np.zeros(num, np.int32) for key in PAIRS.values()}
    rows = {"tokens": tokens, "index": np.arange(num, dtype=np.int32)}
    rows |= {key: known[key] for key in task.plan.rows.keys if key in known}
    return {key: jnp.asarray(values) for key, values in rows.items()}


def _fill_documents(
    program: Program,
    params: PyTree,
    questions: ExactQuestions,
    hidden: Bool[np.ndarray, "N T"],
) -> Iterator[Float[np.ndarray, "B T A"]]:
    """Scores of all ids at every position of masked documents, some at a time."""
    task, length = program.task, hidden.shape[1]
    masked = np.where(hidden, task.vocab.require("mask"), questions.tokens)
    tokens = task.text_form.wrap_read(masked.astype(np.int32))
    first = len(task.text_form.opening)
    read = functools.partial(program.readers["fill_logits"], params)
    most = max(1, MAX_FLOATS // (length * task.model_spec.vocab_size))
    batch_size = min(task.plan.eval.batch_size, most)
    batches = map_batches(lambda x: read(x["tokens"]), {"tokens": tokens}, batch_size)
    for logits in batches:
        yield logits[:, first : first + length]
