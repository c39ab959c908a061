"""Runs of families of transformers, fine-tuned for each task and exported."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxpt.files.folder import write_json
from jaxpt.finetuning import export
from jaxpt.finetuning.data import read_data
from jaxpt.finetuning.evaluation import read_outputs
from jaxpt.finetuning.export import Finetuned, export_finetuned, load_finetuned
from jaxpt.finetuning.reuse import encode_split
from jaxpt.nn.presets import get_preset
from jaxpt.runs.stored_form import NAME
from jaxpt.runs.workdir import load_run
from jaxpt.text_form import TextForm
from tests.tasks.tuned import fit, make_run, write_lines

SMALL = {"num_layers": 1, "d_model": 32, "num_heads": 2, "d_ff": 64, "max_len": 128}
FAMILIES = {
    "electra": ("electra", "electra-small", {"embedding_size": 16}),
    "gpt2": ("clm", "gpt2", {}),
    "roberta": ("mlm", "roberta-base", {}),
    "distilbert": ("mlm", "distilbert", {}),
    "bart": ("bart", "bart-base", {"num_decoder_layers": 1}),
    "modernbert": ("mlm", "modern-base", {"window": 0, "global_every": 0}),
}
TEXTS = [
    ("the cat sat", "wide"),
    ("the lower mat", "the slowest newest cat sat on the mat"),
    ("newer", "wider"),
    ("the newest wide mat sat on the cat", "slower"),
]
# Of each task: examples, settings.
TASKS: dict[str, tuple[list[dict], dict]] = {
    "classification": (
        [{"a": a, "b": b, "label": str(i % 3)} for i, (a, b) in enumerate(TEXTS)],
        {
            "task__text": "a",
            "task__pair": "b",
            "task__labels": ("0", "1", "2"),
            "task__label_names": ("no", "maybe", "yes"),
        },
    ),
    "regression": (
        [{"a": a, "score": 1.0 + i} for i, (a, _) in enumerate(TEXTS)],
        {"task__text": "a", "task__pair": ""},
    ),
    "choice": (
        [{"question": a, "choices": [b, a], "answer": 0} for a, b in TEXTS],
        {},
    ),
    "tagging": (
        [
            {"0": b.split(), "1": ["B-X" if w == "wide" else "O" for w in b.split()]}
            for _, b in TEXTS
        ],
        {},
    ),
    "span_qa": (
        [
            {"question": a, "context": b, "answers": {"text": [b], "answer_start": [0]}}
            for a, b in TEXTS
        ],
        {},
    ),
}


@dataclasses.dataclass(frozen=True)
class Exported:
    """A fine-tuning's kept model, its rows and outputs, and its export."""

    finetuned: Finetuned
    rows: list[dict]
    outputs: list[Any]
    out: Path
    lines: list[str]


def make_family(folder: Path, family: str, *, framed: bool, **changes) -> Path:
    """A run of a family's form before its first step.

    Args:
      framed: whether it reads [CLS] a text [SEP], as an imported one does.
    """
    objective, preset, more = FAMILIES[family]
    spec = get_preset(preset, **SMALL, **more, vocab_size=0)
    model = {f"model__{k}": v for k, v in dataclasses.asdict(spec).items()}
    run = make_run(folder, objective, **(model | changes))
    if framed:
        vocab = load_run(run)[1].vocab
        form = TextForm((vocab.require("cls"),), (vocab.require("sep"),))
        write_json(run / NAME, form.to_json())
    return run


def tune(run: Path, task: str, head: str, folder: Path) -> Path:
    """A fine-tuning of no steps: the folder that there is of one."""
    read_result(run, task, head, folder)
    return folder


def read_result(run: Path, task: str, head: str, folder: Path, **changes) -> dict:
    """The result of a fine-tuning of no steps, with the "lines" that it printed."""
    examples, settings = TASKS[task]
    path = write_lines(folder.with_suffix(".jsonl"), examples)
    defaults = {"task__max_len": 48, "task__head": head}
    return fit(run, task, path, folder, epochs=0, **(defaults | settings | changes))


def stir(result: Finetuned) -> Finetuned:
    """Changes every parameter, so that each one affects the outputs."""
    draw = np.random.default_rng(0)

    def move(x):
        return np.asarray(x + 0.3 * draw.normal(size=x.shape), np.float32)

    return dataclasses.replace(result, params=jax.tree.map(move, result.params))


def make_export(folder: Path, family: str, task: str, head: str) -> Exported:
    """A run, its fine-tuning, and, with drawn parameters, the export."""
    run = make_family(folder, family, framed=family != "gpt2")
    tuned = tune(run, task, head, folder / "tuned")
    result = stir(load_finetuned(tuned))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "load_finetuned", lambda folder: result)
        lines = export_finetuned(tuned, folder / "out")
    plan, encoder = result.program.plan, result.program.base.encoder
    split = encode_split(plan, read_data(plan).splits["dev"], encoder)
    outputs = read_outputs(result.program, result.params, split)
    return Exported(result, split.rows, outputs, folder / "out", lines)


def same(one, two):
    """Asserts that two trees are equal, bit by bit."""
    jax.tree.map(np.testing.assert_array_equal, one, two)
