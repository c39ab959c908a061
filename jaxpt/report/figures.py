"""Computes the data of the report's plots, and draws them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxpt.distributed import processes
from jaxpt.errors import CheckpointError, UserError
from jaxpt.evaluation.scores import SampleSpec, next_distribution
from jaxpt.evaluation.unmasking import fill_masks
from jaxpt.report import passage, plots
from jaxpt.report.answer import find_levels, list_shared
from jaxpt.report.formats import first_runs, group_by_name
from jaxpt.report.tuned_curves import list_tuned
from jaxpt.report.tuned_plot import finetuning_curves
from jaxpt.runs.program import Program
from jaxpt.runs.task import Task
from jaxpt.runs.workdir import load_run
from jaxpt.text.dataset import Split
from jaxpt.text.rows.corpus import Corpus
from jaxpt.text.rows.forms import windows
from jaxpt.text.tokens.tokenizer import Tokenizer

TEMPERATURES = (0.5, 1.0, 1.5)
NUM_EXAMPLES = 4
CONTEXT = 40  # tokens of a prompt
# The row lengths to try for a plot of attention masks, before the run's own length.
MASK_LENGTHS = (12, 24, 48)


def draw(
    report: dict,
    corpora_of: Mapping[str, dict[str, Split]],
    workdir: Path,
    look: Callable = lambda *run: None,
) -> dict[str, str]:
    """Writes the plots that apply to these runs as PNGs; returns {name: file name}.

    A plot that needs a model uses the first run of each name.

    Args:
      corpora_of: the text of each name; without it a model has no plot.
      look: called with (entry, program, tokenizer, parameters) of each run drawn.
    """
    drawn = {}

    def save(name: str, plot: Callable, *data: Any, **options: Any) -> None:
        drawn[name] = f"{name}.png"
        path = workdir / drawn[name]
        try:
            if processes.is_first():
                plot(*data, path, **options)
        except OSError as error:
            raise CheckpointError(
                f"{path}: cannot be written: {error.strerror}"
            ) from error

    shared = list_shared(report)
    levels = {entry["metric"]: find_levels(report, entry) for entry in shared}
    save("learning_curves", plots.learning_curves, report["runs"], levels=levels)
    if shared:
        save("shared_metrics", plots.shared_metrics, report["metrics"])
    groups = group_by_name(report["runs"])
    if tasks := list_tuned(groups):
        save("finetuning_curves", finetuning_curves, groups, tasks)
    masks = {}
    for entry in first_runs(report["runs"]).values():
        if entry["name"] not in corpora_of:
            continue
        corpora = corpora_of[entry["name"]]
        program, tokenizer, params, _ = load_run(workdir / entry["workdir"])
        look(entry, program, tokenizer, params)
        name = entry["name"]
        masks[name] = show_mask(program, corpora["train"])
        text = corpora.get("heldout", corpora["valid"]).parts[0]
        if "next_logits" in program.readers:
            data = temperature_effect(program, tokenizer, params, text)
            save(f"temperature_effect_{name}", plots.temperature_effect, *data)
        if "fill_logits" in program.readers:
            examples = mask_examples(program, tokenizer, params, text)
            save(f"mask_fill_{name}", plots.mask_fill, examples)
        if "masked_accuracy" in entry["metrics"]:
            rows = {
                label: {
                    "top-1": entry["metrics"][f"masked_accuracy{suffix}"],
                    "top-5": entry["metrics"][f"masked_top5_accuracy{suffix}"],
                }
                for label, suffix in (("pretrained", ""), ("random init", "_random"))
            }
            save(f"pretrained_vs_random_{name}", plots.pretrained_vs_random, rows)
    if masks:
        save("attention_masks", plots.attention_masks, masks)
    return drawn


def show_mask(program: Program, train: Split) -> dict:
    """A row's attention mask, of the first of `MASK_LENGTHS` that is possible."""
    task = program.task
    for length in MASK_LENGTHS:
        try:
            task = passage.shorten(program.task.plan, program.task.vocab, length)
        except UserError:  # rows too short for the objective
            continue
        break
    _, batch = passage.corrupt_row(task, train, step=0)
    return passage.compose_mask(task, batch)


def _fit(task: Task, corpus: Corpus) -> int:
    """An example's length in tokens, which the model can read and the text has."""
    return min(CONTEXT, task.read_length, corpus.num_tokens)


def temperature_effect(
    program: Program, tokenizer: Tokenizer, params, corpus: Corpus, num_tokens: int = 12
):
    """The likeliest next tokens after a prompt from the text.

    Returns:
      tokens, {temperature: their probabilities}, prompt.
    """
    task = program.task
    ids = windows(corpus, _fit(task, corpus), 1)
    logits = program.readers["next_logits"](params, ids)[0, -1, : task.vocab.size]
    best = np.argsort(-np.asarray(logits), kind="stable")[:num_tokens]
    probabilities = {
        t: np.asarray(next_distribution(logits, SampleSpec(temperature=t)))[best]
        for t in TEMPERATURES
    }
    names = [tokenizer.token_name(int(i)) for i in best]
    return names, probabilities, tokenizer.decode(ids[0])


def mask_examples(
    program: Program, tokenizer: Tokenizer, params, corpus: Corpus, k: int = 5
) -> list[dict]:
    """Rows of the text with the middle token masked, and the k likeliest tokens."""
    mask, examples = tokenizer.vocab.require("mask"), []
    length = _fit(program.task, corpus)
    for ids in windows(corpus, length, NUM_EXAMPLES):
        position = length // 2
        masked = ids.copy()
        masked[position] = mask
        fill_logits, banned = program.readers["fill_logits"], program.task.nonwords
        (best,) = fill_masks(fill_logits, params, masked, mask, banned, k)
        examples.append(
            {
                "text": tokenizer.decode(ids[:position])
                + "_"
                + tokenizer.decode(ids[position + 1 :]),
                "candidates": [(tokenizer.token_name(i), p) for i, p in best],
                "truth": tokenizer.token_name(int(ids[position])),
            }
        )
    return examples
