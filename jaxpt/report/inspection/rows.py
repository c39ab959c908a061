"""Shows the rows of a training step before and after corruption (`jaxpt inspect`).

`inspect_rows` prints them as text with their attention masks; `inspect_passage` writes
one passage under several objectives as a page. Both show exactly what training reads:
the same rows, corrupted with the same random key as at that step.
"""

import os
import shutil
from collections.abc import Collection
from pathlib import Path

import jax
import numpy as np

from jaxpt.config.plan import make_plans
from jaxpt.config.settings import read_sections, to_dict
from jaxpt.dims import BATCH_KEYS, ROW_KEYS, TOKEN_KEYS
from jaxpt.errors import CheckpointError, ConfigError, argument
from jaxpt.files import disk
from jaxpt.ops.masks import Mask, materialise
from jaxpt.report import pages
from jaxpt.report.drawing import show_token
from jaxpt.report.inspection import passage, passage_drawing
from jaxpt.report.inspection.passage import View, describe_costs
from jaxpt.report.inspection.passage_drawing import COLORS, draw_views
from jaxpt.runs.data import describe_rows, make_feed
from jaxpt.runs.progress_bars import make_reporter
from jaxpt.runs.task import Task
from jaxpt.text.dataset import Split, load_text
from jaxpt.text.tokens.tokenizer import Tokenizer

MASK_COLUMNS = 40


def inspect_passage(
    config,
    names: list[str],
    folder: Path,
    length: int,
    step: int = 0,
    explicit_names: Collection[str] = (),
) -> list[str]:
    """Writes one passage under several objectives as a page; returns lines to print.

    Args:
      names: objectives or names of a comparison; an empty list is all of a comparison.
      explicit_names: full names of the settings that the user has set.
    """
    config = to_dict(config)
    _check_step(step)
    # A config of one run need not have a budget, so this reads only the sections.
    names = names or list(read_sections(config)["compare"]["objectives"])
    passage.check_names(config, names)
    plans = make_plans(config, names, explicit_names)
    text = next(iter(plans.values())).text
    tokenizer, corpora = load_text(text, reporter=make_reporter())
    views = [
        passage.view(name, plan, tokenizer, corpora["train"], length, step)
        for name, plan in plans.items()
    ]
    heading = f"One passage, {len(views)} objectives" if len(views) > 1 else names[0]
    lines = [f"{view.name}: {describe_costs(view)}" for view in views]
    return [*lines, *map(str, write_views(views, heading, folder))]


def write_views(
    views: list[View], heading: str, folder: str | os.PathLike
) -> list[Path]:
    """Writes inspect.svg and inspect.html; returns their paths."""
    folder = Path(folder)
    paths = [folder / "inspect.svg", folder / "inspect.html"]
    page = pages.render(
        "inspect.html",
        title=heading,
        colors=COLORS,
        views=[_describe_view(view) for view in views],
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        disk.replace(paths[0], draw_views(views, heading).encode())
        disk.replace(paths[1], page.encode())
    except OSError as error:
        raise CheckpointError(
            f"{argument('to')}={folder}: cannot be written: {error.strerror}"
        ) from None
    return paths


def _describe_view(view: View) -> dict:
    """A view as inspect.html shows it."""
    strips = [
        {"name": strip.name, "cells": [*zip(tokens, strip.kinds, strict=True)]}
        for strip in view.strips
        for tokens in [map(show_token, strip.tokens)]
    ]
    return {
        "name": view.name,
        "title": view.title,
        "strips": strips,
        "costs": describe_costs(view),
        "mask": pages.inline_picture(passage_drawing.draw_mask(view.mask).encode()),
        "visible": f"{np.asarray(view.mask['mask']).mean():.0%}",
    }


def _check_step(step: int) -> None:
    if step < 0:
        raise ConfigError(f"{argument('step')}={step}: must be at least 0")


def inspect_rows(
    task: Task,
    tokenizer: Tokenizer,
    corpora: dict[str, Split],
    step: int = 0,
    num_rows: int = 2,
    width: int = 0,
) -> list[str]:
    """The first rows of a step as lines of text.

    Args:
      width: of a line in characters; 0 is the terminal's width.
    """
    _check_step(step)
    feed = make_feed(task, corpora["train"])
    rows = feed[step]
    task = task.for_batch(*rows["tokens"].shape)
    batch_size = len(rows["tokens"])
    if not 1 <= num_rows <= batch_size:
        raise ConfigError(
            f"{argument('num_rows')}={num_rows}: must be from 1 to {batch_size}, the "
            "rows of the step"
        )
    width = width or shutil.get_terminal_size((100, 24)).columns
    batch = passage.corrupt_batch(task, rows, step)
    batch = jax.tree.map(np.asarray, batch)
    terms = task.spec.terms
    lines = [
        f"{task.plan.objective_name}, step {step}: {batch_size} rows of "
        f"{task.spec.row_length} tokens ({task.plan.rows.rows})",
        *describe_rows(task, feed),
    ]
    for i in range(num_rows):
        row, corrupted = (
            jax.tree.map(lambda x, i=i: x[i], each) for each in (rows, batch)
        )
        lines += ["", f"row {i}", *_show_row(row, tokenizer, width)]
        lines += [f"after {task.plan.objective_name}'s corruption"]
        lines += _show_corrupted(corrupted, tokenizer, width, terms)
        one = jax.tree.map(lambda x, i=i: x[i : i + 1], batch)
        masks = task.objective.masks(one)
        for name, mask in masks.items():
            num_queries, num_keys = _find_shape(name, mask, corrupted)
            visible = np.asarray(materialise(mask, num_queries, num_keys))[0, 0]
            lines.append(
                f"  {name} mask, {num_queries} queries down, {num_keys} keys across, "
                f"{visible.mean():.0%} visible"
            )
            lines += ["    " + line for line in draw_mask(visible)]
    return lines


def _find_shape(name: str, mask: Mask, row: dict) -> tuple[int, ...]:
    """The numbers of queries and keys of a row's mask."""
    if isinstance(mask, jax.Array):  # also of a row that is read twice
        return mask.shape[2:]
    source = len(row["inputs"])
    if name != "cross" and not name.startswith("dec_"):
        return source, source
    target = len(row["dec_inputs"])
    return target, source if name == "cross" else target


def _show_row(row: dict, tokenizer: Tokenizer, width: int) -> list[str]:
    """A row before corruption: its text, one paragraph per document."""
    tokens = row["tokens"]
    segments = row.get("segment_ids", np.ones_like(tokens))
    lines = []
    for segment in [s for s in np.unique(segments) if s > 0]:
        positions = np.flatnonzero(segments == segment)
        lines += _wrap(
            f"document {segment}" if "segment_ids" in row else "tokens",
            f"[{positions[0]}:{positions[-1] + 1}]  "
            + tokenizer.decode(tokens[positions]),
            width,
        )
    if num_padding := int((segments == 0).sum()):
        lines.append(f"  padding          {num_padding} positions")
    for key in ROW_KEYS:
        if key in row and key not in ("tokens", "index", "segment_ids"):
            lines += _wrap(key, _runs(np.atleast_1d(row[key])), width)
    if tokenizer.vocab.word_starts:
        starts = np.array(tokenizer.vocab.word_starts)[tokens[segments > 0]]
        line = f"{int(starts.sum())} begin in {len(starts)} tokens"
    else:
        line = "not known: the tokenizer's tokens do not mark where words begin"
    lines.append(f"  words            {line}")
    return lines


def _show_corrupted(
    row: dict, tokenizer: Tokenizer, width: int, terms: passage.Terms
) -> list[str]:
    """A row after corruption: its arrays in the order of `dims.BATCH_KEYS`."""
    lines = []
    for key in BATCH_KEYS:
        if key not in row or key in ("index", "parts"):  # whose keys are in the row
            continue
        value = row[key]
        if key == "weights":
            for term, weights in value.items():
                lines += _show_numbers(f"{term} weights", weights, width)
        elif key == "targets" and passage.has_gathered_targets(row):
            is_read = passage.main_weights(row, terms) > 0
            positions = row["masked_positions"]
            read = positions[is_read].tolist(), value[is_read].tolist()
            pairs = sorted(zip(*read, strict=True))
            listing = "  ".join(f"{p}:{tokenizer.token_name(i)}" for p, i in pairs)
            lines += _wrap(key, listing, width)
        elif key in TOKEN_KEYS:
            for name, column in _list_columns(key, value):
                lines += _wrap(name, _decode(tokenizer, column), width)
        elif key != "masked_positions":
            lines += _show_numbers(key, value, width)
    return lines


def _show_numbers(key: str, value: np.ndarray, width: int) -> list[str]:
    return [
        line
        for name, column in _list_columns(key, value)
        for line in _wrap(name, _runs(column), width)
    ]


def _list_columns(key: str, value: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """A row's array by name; one of K values a position, [T, K], as K arrays."""
    if value.ndim < 2:
        return [(key, np.atleast_1d(value))]
    return [(f"{key}[{k}]", column) for k, column in enumerate(value.T)]


def _decode(tokenizer: Tokenizer, ids: np.ndarray) -> str:
    """The text of ids, and the number of padding positions after it."""
    pad = tokenizer.vocab.pad
    num_padding = 0
    if pad is not None and (ids == pad).any():
        num_padding = int(np.argmin(np.append(ids[::-1] == pad, False)))
    text = tokenizer.decode(ids[: len(ids) - num_padding])
    return text + (f" + {num_padding} padding" if num_padding else "")


def _runs(values: np.ndarray) -> str:
    """A row of numbers, each run of equal ones as "value x count".

    >>> _runs(np.array([1, 1, 2, 0, 0]))
    '1x2 2 0x2'
    """
    borders = np.flatnonzero(np.diff(values)) + 1
    starts = np.concatenate([[0], borders])
    counts = np.diff(np.append(starts, len(values)))
    pairs = zip(values[starts].tolist(), counts.tolist(), strict=True)
    return " ".join(f"{v:g}x{n}" if n > 1 else f"{v:g}" for v, n in pairs)


def _wrap(name: str, text: str, width: int) -> list[str]:
    """`name  text`, wrapped to the width, with control characters made visible."""
    text = "".join(
        c
        if c.isprintable()
        else "⏎"
        if c == "\n"
        else c.encode("unicode_escape").decode()
        for c in text
    )
    head = f"  {name:16s} "
    room = max(width - len(head), 20)
    pieces = [text[i : i + room] for i in range(0, len(text), room)] or [""]
    return [head + pieces[0]] + [" " * 19 + piece for piece in pieces[1:]]


def draw_mask(mask: np.ndarray) -> list[str]:
    """A bool mask [T, S] in half blocks, filled where a key is visible.

    A mask wider than `MASK_COLUMNS` is subsampled: a block shows the middle query and
    key of those that it covers.

    >>> draw_mask(np.tri(4, dtype=bool))
    ['█▄  ', '███▄']
    """
    step = -(-max(mask.shape) // MASK_COLUMNS)
    small = mask[step // 2 :: step, step // 2 :: step]
    if len(small) % 2:
        small = np.concatenate([small, np.zeros((1, small.shape[1]), bool)])
    blocks = " ▄▀█"
    upper, lower = small[::2], small[1::2]
    codes = 2 * upper.astype(int) + lower
    return ["".join(blocks[c] for c in line) for line in codes]
