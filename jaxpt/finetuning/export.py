"""A fine-tuned model as a folder that transformers loads, with its head and labels."""

import dataclasses
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxpt.config.finetuning import make_finetune_plan
from jaxpt.errors import UserError
from jaxpt.finetuning.base import load_base
from jaxpt.finetuning.grid import find_model
from jaxpt.finetuning.program import TuneProgram
from jaxpt.folder import is_new, load_config, load_json
from jaxpt.hub.convert import move_places, to_hf
from jaxpt.hub.export import name_ids, write_tokenizer
from jaxpt.hub.families import write_config
from jaxpt.hub.files import write_file, write_json, write_tensors
from jaxpt.hub.task_heads import find_names, name_class, task_to_hf, write_labels
from jaxpt.nn.adaptation.adapt import merge
from jaxpt.run.checkpoint import Checkpointer
from jaxpt.run.run_framing import find_framing

IDENTITY = "identity.json"


def is_finetuned(folder: Path) -> bool:
    """Whether a folder is of `jaxpt finetune`."""
    return (folder / IDENTITY).is_file()


@dataclasses.dataclass(frozen=True)
class Finetuned:
    """The kept model of a fine-tuning.

    Attributes:
      params: {"network", "head", "extra"}.
      result: of the run that trained it.
    """

    program: TuneProgram
    params: Any
    result: dict


def load_finetuned(folder: Path) -> Finetuned:
    """The model with the best dev metric of a fine-tuning's folder.

    Raises:
      UserError: nothing is finished there, or its base is not what it was.
    """
    identity = load_json(folder / IDENTITY, "must be a fine-tuning's folder")
    config = load_config(folder / "config.json", "must be a fine-tuning's folder")
    plan = make_finetune_plan(config)
    result = find_model(folder)
    spec = plan.spec
    base = load_base(identity["source"], spec.head, spec.max_len, plan.train.dropout)
    if base.fingerprint() != identity["network"]:
        raise UserError(
            f"{folder}: was fine-tuned from {identity['source']}, which is another "
            f"network now; put it back as it was"
        )
    labels = tuple(identity["labels"])
    ids = jnp.ones((1, 8), jnp.int32)
    batch = {"inputs": ids, "segment_ids": ids, "type_ids": 0 * ids}
    if not spec.READS:
        batch |= {"targets": ids, "answer": ids, "is_prefix": 0 * ids}
        batch["row_weights"] = jnp.ones(1)
    program = TuneProgram(plan, base, labels, batch)
    params = program.init_params(result["seed"])
    _, kept = program.split(params)
    template, _ = program.split(program.abstract)
    with Checkpointer(folder / "model") as checkpointer:
        restored = checkpointer.restore(
            {"trained": template}, step=result["model_step"]
        )
    if restored is None:
        raise UserError(f"{folder}: its model is missing")
    trained = restored[0]["trained"]
    return Finetuned(program, program.join(trained, kept), result)


def export_finetuned(folder: Path, to: Path, family: str = "") -> list[str]:
    """Writes the kept model of a fine-tuning.

    Args:
      family: a model_type of transformers; "" is the first that fits.

    Returns:
      Lines to print.

    Raises:
      UserError: transformers has no class with these numbers, or the folder to write
        is not empty.
    """
    if not is_new(to):
        raise UserError(f"--to={to}: must be a new or an empty folder")
    found = load_finetuned(folder)
    program, base = found.program, found.program.base
    plan, task = program.plan, program.base.task
    what = plan.spec.EXPORT
    if not plan.spec.READS:
        return _export_writer(found, to, family)
    if not what:
        raise UserError(
            f"--workdir={folder}: transformers has no class for {plan.task_name}"
        )
    network = merge(plan.adapt, found.params["network"], found.params["extra"])
    head = _find_head(base)
    network_of: Any = base.network
    spec = network_of.spec
    kind, config = write_config(spec, head, family, base.tokenizer.vocab)
    names = find_names(kind, what, base.form)
    laid = kind.lay_out(spec, base.tokenizer.vocab.pad)
    moved = move_places(network, spec, laid)
    tensors = task_to_hf(moved, found.params["head"], kind, laid, head, names)
    framing = find_framing(task)
    config |= name_ids(task.vocab, framing, "masked")
    config |= write_labels(
        getattr(plan.spec, "label_names", ()) or program.labels,
        what,
        plan.spec.problem_type,
    )
    config |= {"architectures": [name_class(kind, what)], "dtype": "float32"}
    to.mkdir(parents=True, exist_ok=True)
    write_tensors(to, tensors)
    write_json(to, "config.json", config)
    has_tokenizer = write_tokenizer(base.tokenizer, to, laid, framing)
    write_file(to, "README.md", _write_card(found, config).encode())
    size = sum(int(np.size(tensor)) for tensor in tensors.values())
    lines = [f"{to}: {config['architectures'][0]}, {size:,} numbers"]
    if not has_tokenizer:
        lines.append(
            f"{to}: no tokenizer: transformers has none of kind {base.tokenizer.kind}"
        )
    return lines


def _export_writer(found: Finetuned, to: Path, family: str) -> list[str]:
    """A network that writes answers, as what it was: transformers generates with it."""
    program, base = found.program, found.program.base
    task, head = base.task, _find_head(base)
    network_of: Any = base.network
    spec, vocab = network_of.spec, base.tokenizer.vocab
    params = found.params
    network = merge(program.plan.adapt, params["network"], params["extra"])
    kind, config = write_config(spec, head, family, vocab)
    laid = kind.lay_out(spec, vocab.pad)
    tensors = to_hf(move_places(network, spec, laid), kind, laid, head)
    framing = find_framing(task)
    ids = name_ids(task.vocab, framing, head)
    config |= ids | {"dtype": "float32"}
    to.mkdir(parents=True, exist_ok=True)
    write_tensors(to, tensors)
    write_json(to, "config.json", config)
    write_json(to, "generation_config.json", ids)
    has_tokenizer = write_tokenizer(base.tokenizer, to, laid, framing)
    write_file(to, "README.md", _write_card(found, config).encode())
    size = sum(int(np.size(tensor)) for tensor in tensors.values())
    lines = [f"{to}: {config['architectures'][0]}, {size:,} numbers"]
    if note := task.spec.describe_mask():
        lines.append(f"{to}: {note}")
    if not has_tokenizer:
        lines.append(
            f"{to}: no tokenizer: transformers has none of kind {base.tokenizer.kind}"
        )
    return lines


def _find_head(base) -> str:
    """What the network is for, whose table has the names of its body."""
    heads = type(base.network).HEADS
    if not heads:
        raise UserError(
            f"{base.source}: holds a {base.task.plan.objective_name} run, of which "
            f"transformers has no model"
        )
    return heads[0]


def _write_card(found: Finetuned, config: dict) -> str:
    """The model card: what was fine-tuned, how, and its dev metrics."""
    plan, cell = found.program.plan, found.result
    source = Path(found.program.base.source).name
    lines = [
        "---",
        "library_name: transformers",
        "tags: [jaxpt]",
        "---",
        "",
        f"# {config['architectures'][0]} fine-tuned with jaxpt",
        "",
        f"- Base: {source}, a {found.program.base.task.plan.objective_name} run",
        f"- Task: {plan.task_name}, labels {', '.join(found.program.labels) or 'none'}",
        f"- Data: {Path(plan.data.train).name}",
        f"- Trained: {plan.adapt.method}, learning rate {cell['lr']:g}, batch "
        f"{cell['batch_size']}, {cell['epochs']} epochs, seed {cell['seed']}",
        "",
        "| metric (dev) | value |",
        "|---|---|",
        *(f"| {name} | {value:.4f} |" for name, value in cell["dev"].items()),
    ]
    return "\n".join(lines) + "\n"
