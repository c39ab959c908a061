"""The folder of a run: its config, tokenizer, text and metrics by example.

`config.json`, `tokenizer.json` and `data.json` are written once. A later start compares
them and refuses a folder that holds another run. Stored configs are JSON; nothing in
them is executed.
"""

import dataclasses
import hashlib
import io
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxpt.by_name import load_place
from jaxpt.config.plan import Plan, make_plan
from jaxpt.config.settings import (
    SECTIONS,
    SHARED,
    default_section,
    list_derived,
    list_parts,
    to_dict,
)
from jaxpt.distributed import processes
from jaxpt.errors import CheckpointError, ConfigError, argument
from jaxpt.files import checksums, remote
from jaxpt.files.folder import REPORT, load_config, load_json, write_config, write_json
from jaxpt.judge.examples import Examples
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.objectives import OBJECTIVES
from jaxpt.objectives.spec import ObjectiveSpec
from jaxpt.runs import generation_defaults, random_parts, stored_form
from jaxpt.runs.checkpoint import Checkpointer
from jaxpt.runs.data import with_token_counts
from jaxpt.runs.program import Program
from jaxpt.runs.task import Task, make_task
from jaxpt.text.tokens import tokenizer as tokenizers
from jaxpt.text.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    from jaxpt.text.dataset import Split

EXAMPLES = "examples.npz"
DATA = {str: str}  # the schema of data.json: the sha256 of each split
COUNTS = {"counts": [int]}  # of counts.json
DIVERGENCE = {"objective": str, "seed": int, "diverged_at": int, "reason": str}
DIVERGENCE |= {
    f"{name}?": float for name in ("flops", "raw_tokens", "model_tokens")
} | {"train_seconds?": float}
DIVERGED = "diverged.json"  # of a run whose loss was not finite
BASE_MODEL = "base_model.json"  # of a run imported from the Hugging Face Hub
CHAT_TEMPLATES = "chat_templates.json"  # of an imported run
# Files that say what a run is.
IDENTITY_NAMES = (
    "config.json",
    "tokenizer.json",
    "data.json",
    "counts.json",
    stored_form.NAME,
    random_parts.NAME,
    generation_defaults.NAME,
    BASE_MODEL,
    CHAT_TEMPLATES,
)
# Files whose checksums are recorded; that of the log is, too.
NAMES = (*IDENTITY_NAMES, "result.json", DIVERGED, EXAMPLES)
# Settings that may change when a run is resumed; no result depends on them.
CHANGEABLE = {
    "train.log_every",
    "train.checkpoint_every",
    "train.keep_checkpoints",
    "train.checkpoint_words",
    "train.fsdp",
    "train.context",
    "train.tensor",
    "train.trackers",
    "train.profile_steps",
    "eval.samples",
    "tokenizer.path",  # the tokenizer itself is compared
}


def flatten(config: dict, prefix: str = "") -> dict:
    """Nested settings by their full names.

    >>> flatten({"train": {"steps": 5}, "objective": "clm"})
    {'train.steps': 5, 'objective': 'clm'}
    """
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def fingerprint(plan: Plan, tokenizer: Tokenizer, corpora: "dict[str, Split]") -> str:
    """sha256 in hex of everything that a run's results depend on, except devices."""
    parts = [tokenizers.fingerprint(tokenizer)]
    parts += [f"{name} {split.fingerprint}" for name, split in corpora.items()]
    text = json.dumps([plan.config, parts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def lock_workdir(
    workdir: Path, plan: Plan, tokenizer: Tokenizer, corpora: "dict[str, Split]"
) -> None:
    """Claims the folder for this run, or checks that the run already owns it."""
    if (workdir / "config.json").exists():
        check_same(workdir, plan, tokenizer, corpora)
        if not (workdir / "data.json").exists():  # an imported run: text not read yet
            write_json(workdir / "data.json", _describe(corpora))
        return
    for name, content in (("compare.json", "a comparison"), (REPORT, "a report")):
        if (workdir / name).exists():
            raise CheckpointError(
                f"{argument('workdir')}={workdir}: holds {content}; use another folder"
            )
    if (workdir / "checkpoints").exists():
        raise CheckpointError(
            f"{argument('workdir')}={workdir}: holds checkpoints but no config.json; "
            "use another folder"
        )
    workdir.mkdir(parents=True, exist_ok=True)
    checksums.write(workdir / "tokenizer.json", tokenizers.dump(tokenizer))
    write_json(workdir / "data.json", _describe(corpora))
    known = with_token_counts(plan, tokenizer.vocab, corpora["train"])
    if known.counts:
        write_json(workdir / "counts.json", {"counts": known.counts})
    write_config(
        workdir / "config.json", plan.config
    )  # last: its presence says claimed


def check_same(
    workdir: Path, plan: Plan, tokenizer: Tokenizer, corpora: "dict[str, Split]"
) -> None:
    """Raises UserError if the folder holds another config, tokenizer or text."""
    _compare_configs(workdir, plan)
    stored = tokenizers.load(workdir / "tokenizer.json")
    if tokenizers.fingerprint(stored) != tokenizers.fingerprint(tokenizer):
        raise CheckpointError(
            f"{argument('workdir')}={workdir}: holds a run with another tokenizer; use "
            "another folder"
        )
    path = workdir / "data.json"
    if not path.exists():  # an imported run: text not read yet
        return
    if load_json(path, DATA, f"use another {argument('workdir')}") != _describe(
        corpora
    ):
        raise CheckpointError(
            f"{argument('workdir')}={workdir}: holds a run on other text than "
            f"data.path={plan.text.path} is now; use another folder"
        )


def _describe(corpora: "dict[str, Split]") -> dict[str, str]:
    return {name: corpus.fingerprint for name, corpus in corpora.items()}


def check_shared(workdir: Path, seconds: float = 30.0) -> None:
    """Raises UserError if this process does not see the folder of process 0.

    Args:
      seconds: to wait, because a network disk may show a new file late.
    """
    last = time.monotonic() + seconds
    while not (workdir / "config.json").exists():
        if time.monotonic() > last:
            raise CheckpointError(
                f"{argument('workdir')}={workdir}: is on a local disk of process 0; "
                "must be on a disk that all processes share"
            )
        time.sleep(0.1)


def _compare_configs(workdir: Path, plan: Plan) -> None:
    stored = load_config(workdir / "config.json", f"use another {argument('workdir')}")
    old, new = (list_settings(each) for each in (stored, plan.config))
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            raise CheckpointError(
                f"{argument('workdir')}={workdir}: holds a run with "
                f"{name}={old.get(name)}, not {new.get(name)}; use another folder or "
                "the same settings"
            )


def with_defaults(config: dict, sections: Iterable[str] = ()) -> dict:
    """A stored config in the present settings; those that it lacks have defaults.

    Args:
      sections: of objectives, to add if the config lacks them.
    """
    whole = dict(config)
    for name in dict.fromkeys((*SHARED, *config, *sections)):
        if name in SECTIONS:
            specs = SECTIONS[name]
            whole[name] = to_dict(default_section(*specs)) | config.get(name, {})
        if name in OBJECTIVES.names:
            whole[name] = _resolve_models(OBJECTIVES[name].Spec, whole[name])
    return whole


def _resolve_models(spec: type[ObjectiveSpec], section: dict) -> dict:
    """The section with other runs' models (`model_of`) in the present settings."""
    for field in list_derived(spec) & section.keys():
        if model := section[field]:
            model = ModelSpec(**model).direct(spec.networks()[0].READS_AHEAD)
            section = section | {field: dataclasses.asdict(model)}
    return section


def list_settings(config: dict) -> dict:
    """The settings by full name that a run's results depend on.

    A setting that was added after the config was stored has its default.
    """
    name = config.get("objective", "")
    parts = list_parts(config, name) if name in OBJECTIVES.names else []
    unread = {"compare", *OBJECTIVES} - {name, *parts}
    read = {k: v for k, v in config.items() if k not in unread}
    read = with_defaults(read, [name, *parts])
    del read["compare"]
    return {k: v for k, v in flatten(read).items() if k not in CHANGEABLE}


def load_task(workdir: Path) -> tuple[Task, Tokenizer]:
    """The task of a finished or running run."""
    config = load_config(
        workdir / "config.json", f"{argument('workdir')} must be a training run's"
    )
    if "task" in config:
        raise CheckpointError(
            f"{argument('workdir')}={workdir}: holds a fine-tuned model; must be the "
            "folder of a training run"
        )
    tokenizer = tokenizers.load(workdir / "tokenizer.json")
    plan = make_plan(config, is_stored=True)
    vocab = stored_form.with_text_form(tokenizer.vocab, workdir)
    if plan.spec.needs.counts:
        stored_counts = load_json(
            workdir / "counts.json", COUNTS, "the run's own; train it again"
        )
        vocab = dataclasses.replace(vocab, counts=tuple(stored_counts["counts"]))
    task = dataclasses.replace(
        make_task(plan, vocab),
        random_parts=random_parts.read_random_parts(workdir),
        generation=generation_defaults.read_defaults(workdir),
    )
    return task, tokenizer


def load_divergence(workdir: Path) -> dict | None:
    """The record of a run that has diverged; None for any other run.

    Returns:
      "objective", "seed", "diverged_at" (the step), "reason", and the cost so far:
      "flops", "raw_tokens", "model_tokens", "train_seconds".
    """
    path = workdir / DIVERGED
    if not path.exists():
        return None
    hint = "remove the run's folder, and it is trained again"
    return load_json(path, DIVERGENCE, hint)


class LoadedRun(NamedTuple):
    """A run ready for use.

    Attributes:
      program: its compiled functions.
      params: with `optim.ema_decay`, their moving average.
      step: of the checkpoint.
    """

    program: Program
    tokenizer: Tokenizer
    params: Any
    step: int


def load_run(workdir: Path) -> LoadedRun:
    """A run from its last good checkpoint."""
    task, tokenizer = processes.on_all(load_task, workdir)
    program = processes.on_all(lambda: Program(task, is_training=False))
    with Checkpointer(workdir / "checkpoints") as checkpointer:
        state = program.abstract_state()
        restored = checkpointer.restore(state.eval_params, under=state.eval_name)

    def check():
        if restored is None:
            raise CheckpointError(
                f"{argument('workdir')}={workdir}: holds no finished checkpoint"
            )
        return restored

    params, step = processes.on_all(check)
    return LoadedRun(program, tokenizer, params, step)


def load_corpora(workdir: Path, task: Task, tokenizer: Tokenizer) -> "dict[str, Split]":
    """The text that a run was trained and is evaluated on, read again."""
    load_text = load_place("jaxpt.text.dataset:load_text")
    _, corpora = load_text(task.plan.text, tokenizer)
    check_same(workdir, task.plan, tokenizer, corpora)
    return corpora


def check_workdir(workdir: str, leaves_out: str = "") -> Path:
    """The folder as a path; of a URL the local copy, which is brought up to date.

    Args:
      leaves_out: a subfolder of a URL that is not brought up to date.
    """
    if not workdir:
        raise ConfigError(f"{argument('workdir')}: must name a folder")
    folder = remote.fetch(workdir, leaves_out)
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise CheckpointError(
            f"{argument('workdir')}={workdir}: is a file; must be a folder"
        )
    return folder


def write_examples(
    workdir: Path, examples: dict[str, Examples], name: str = EXAMPLES
) -> None:
    """Writes the value of each metric on each test example, for later verdicts."""
    arrays = {
        f"{metric}/{field}": values
        for metric, columns in examples.items()
        for field, values in columns._asdict().items()
    }
    data = io.BytesIO()
    np.savez_compressed(data, allow_pickle=False, **arrays)
    checksums.write(workdir / name, data.getvalue())


def load_examples(workdir: Path, name: str = EXAMPLES) -> dict[str, Examples]:
    """Reads the file of `write_examples`; {} if the run has none."""
    path = workdir / name
    if not path.exists():
        return {}
    with np.load(io.BytesIO(checksums.read(path)), allow_pickle=False) as arrays:
        metrics = dict.fromkeys(key.rpartition("/")[0] for key in arrays.files)
        return {
            metric: Examples(
                *(arrays[f"{metric}/{field}"] for field in Examples._fields)
            )
            for metric in metrics
        }
