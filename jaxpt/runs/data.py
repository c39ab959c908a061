"""The rows of a task, for training and for evaluation."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from jaxpt.by_name import load_place
from jaxpt.config.plan import Plan
from jaxpt.runs.task import Task
from jaxpt.text.feed import Feed, FeedSpec
from jaxpt.text.mixing import Stage, place_stages
from jaxpt.text.rows.corpus import Corpus, as_dict, split_count
from jaxpt.text.rows.forms import (
    PlannedRows,
    make_rows,
    window_starts,
    windows,
)
from jaxpt.text.tokens.vocab import Vocab

if TYPE_CHECKING:
    from jaxpt.text.dataset import Split

HELD_SEED = 0  # every run draws the same held-out pairs


def with_token_counts(plan: Plan, vocab: Vocab, train: "Split") -> Vocab:
    """The vocabulary, with the token counts of the text if the objective needs them."""
    if not plan.spec.needs.counts:
        return vocab
    counts = train.count_tokens(vocab.size).tolist()
    return dataclasses.replace(vocab, counts=tuple(counts))


def make_feed(task: Task, train: "Split", choose: Callable | None = None) -> Feed:
    """The batches of a run, step by step.

    Args:
      choose: the rows of a batch to read (`Program.choose_rows`); None for all.
    """
    spec = task.plan.train
    rows = _make_rows(task, train, spec.seed, is_training=True)
    stages: tuple[Stage, ...] = ()
    if train.stages:
        stages = place_stages(train.stages, spec.steps, spec.phases)
    return Feed(
        list(zip(rows, train.fractions, strict=True)),
        FeedSpec(spec.phases, spec.seed, stages),
        choose,
    ).without(spec.skip_batches)


def held_rows(task: Task, split: "Split", num: int) -> dict[str, np.ndarray]:
    """Rows spread evenly over a split, in the form of training.

    Args:
      num: number of rows, divided over the parts by their shares; 0 for all that do not
        overlap.

    Returns:
      "tokens" int32 [n, R], and the other keys of the form.
    """
    row_sources = _make_rows(task, split, HELD_SEED)
    form = task.plan.rows.text_form(task.vocab)
    length = task.spec.row_length - form.num_special()
    numbers = split_count(num, split.fractions)
    arrays: list[dict[str, np.ndarray]] = []
    for rows, part, n in zip(row_sources, split.parts, numbers, strict=True):
        if rows.keys == ("tokens",):
            arrays.append({"tokens": form.wrap(windows(part, length, n))})
            continue
        n = min(n, rows.num_rows) or rows.num_rows
        indices = np.arange(n) * (rows.num_rows - 1) // max(n - 1, 1)
        arrays.append(as_dict(rows.read(indices)))
    return {key: np.concatenate([rows[key] for rows in arrays]) for key in arrays[0]}


def likelihood_rows(task: Task, split: "Split", num: int) -> np.ndarray:
    """Rows of running text, int32 [n, R], independent of the form of training."""
    numbers = split_count(num, split.fractions)
    length = task.spec.row_length
    pairs = zip(split.parts, numbers, strict=True)
    return np.concatenate([windows(part, length, n) for part, n in pairs])


def likelihood_documents(task: Task, split: "Split", num: int) -> np.ndarray:
    """The document in which each of `likelihood_rows` begins, [n]."""
    numbers, documents, before = split_count(num, split.fractions), [], 0
    for part, n in zip(split.parts, numbers, strict=True):
        starts = window_starts(part, task.spec.row_length, n)
        documents.append(np.searchsorted(part.doc_starts, starts, "right") - 1 + before)
        before += len(part.labels)
    return np.concatenate(documents)


def likelihood_bytes(task: Task, split: "Split", num: int) -> np.ndarray:
    """The number of UTF-8 bytes of each token of `likelihood_rows`, [n, R]."""
    if task.vocab.token_bytes:
        return np.array(task.vocab.token_bytes)[likelihood_rows(task, split, num)]
    parts = []
    for part in split.parts:
        if part.byte_stream is None:
            raise ValueError("neither the vocabulary nor the text has byte counts")
        parts.append(dataclasses.replace(part, stream=part.byte_stream))
    return likelihood_rows(task, dataclasses.replace(split, parts=tuple(parts)), num)


def describe_rows(task: Task, feed: Feed) -> list[str]:
    """A line for each stage of a mixture, and for each part of a feed's rows.

    None for the parts that are chunks of running text.
    """
    lines = _describe_stages(task)
    for rows in feed.parts:
        if rows.fill_rate < 1 or rows.notes:
            notes = "".join(f"; {note}" for note in rows.notes)
            num = "sampled" if rows.is_sampled else f"{rows.num_rows:,}"
            lines.append(
                f"data.rows={task.plan.rows.rows}: {num} rows, "
                f"{rows.fill_rate:.2%} of their places filled{notes}"
            )
    return lines


def _describe_stages(task: Task) -> list[str]:
    """A line for each of `data.mixture_stages`, with the step at which it begins."""
    text, lines = task.plan.text, []
    is_linear = text.mixture_change == "linear"
    for start, weights in text.mixture_stages:
        step = int(start * task.plan.train.steps + 0.5)
        pairs = zip(text.sources, weights, strict=True)
        named = ", ".join(f"{source.path}={weight:g}" for (source, _), weight in pairs)
        verb = "at" if is_linear else "from"
        lines.append(f"data.mixture_stages: {verb} step {step:,}: {named}")
    return lines


def _make_rows(
    task: Task, split: "Split", seed: int, is_training: bool = False
) -> list[PlannedRows]:
    """The rows of each part; in training fresh ones, if the part has them."""
    spec = dataclasses.replace(task.plan.rows, seed=seed)

    def plan(part: Corpus) -> PlannedRows:
        if is_training and part.fresh is not None:
            make_fresh = load_place("jaxpt.text.rows.fresh:FreshRows")
            rows: PlannedRows = make_fresh(part.fresh, spec, task.vocab)
            return rows
        return make_rows(part, spec, task.vocab)

    return [plan(part) for part in split.parts]
