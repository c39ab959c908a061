"""Exports a fine-tuned model to transformers, with its head and labels."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax.numpy as jnp

from jaxpt.config.finetuning import FinetunePlan, make_finetune_plan
from jaxpt.errors import CheckpointError, ConfigError
from jaxpt.files import checksums
from jaxpt.files.folder import load_config, load_json, new_folder
from jaxpt.files.remote import fetch
from jaxpt.finetuning.base import SCRATCH, Base, load_base
from jaxpt.finetuning.heads import find_purpose
from jaxpt.finetuning.program import TuneProgram
from jaxpt.finetuning.results import find_model
from jaxpt.finetuning.summary import show_rate
from jaxpt.hub.card import TASKS, Card
from jaxpt.hub.configs import write_config
from jaxpt.hub.convert import move_places, to_hf
from jaxpt.hub.export import (
    DEFAULT_OPTIONS,
    ExportOptions,
    Model,
    check_range,
    name_ids,
    write_model,
)
from jaxpt.hub.family import Family
from jaxpt.hub.origin import read_base_model
from jaxpt.hub.task_heads import (
    HeadNames,
    find_names,
    name_class,
    task_to_hf,
    write_labels,
)
from jaxpt.nn.adaptation.adapt import merge
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.parametrization import fold, standardise
from jaxpt.nn.task_heads import FORMS
from jaxpt.runs.checkpoint import Checkpointer

IDENTITY = "identity.json"
# Its schema: the base and the data of a fine-tuning.
IDENTITY_FORM = {
    "source": str,
    "network": str,
    "step": int,
    "head": set(FORMS),
    "labels": [str],
    "data": {str: str},
}
# The Hub's names of tasks, by the suffix of transformers' class.
CLASS_TASKS = {
    "SequenceClassification": "text-classification",
    "TokenClassification": "token-classification",
    "QuestionAnswering": "question-answering",
    "MultipleChoice": "multiple-choice",
}


def is_finetuned(folder: Path) -> bool:
    """Whether `jaxpt finetune` has written the folder."""
    return (folder / IDENTITY).is_file()


@dataclasses.dataclass(frozen=True)
class Finetuned:
    """The best model of a fine-tuning.

    Attributes:
      params: {"network", "head", "extra"}.
      result: of the run that trained it.
    """

    program: TuneProgram
    params: Any
    result: dict


def load_finetuned(folder: Path) -> Finetuned:
    """The model with the best dev metric of a fine-tuning's folder."""
    hint = "must be a fine-tuning's folder"
    identity = load_json(folder / IDENTITY, IDENTITY_FORM, hint)
    config = load_config(folder / "config.json", hint)
    plan = make_finetune_plan(config)
    result = find_model(folder)
    spec = plan.spec
    # The head that was chosen then: that of "auto" may be another one by now.
    head = identity["head"]
    base = load_base(identity["source"], head, spec.max_len, plan.train.dropout)
    if base.fingerprint() != identity["network"]:
        raise ConfigError(
            f"{folder}: was fine-tuned from {identity['source']}, which has changed; "
            f"restore that run"
        )
    labels = tuple(identity["labels"])
    ids = jnp.ones((1, 8), jnp.int32)
    batch = {"inputs": ids, "segment_ids": ids, "type_ids": 0 * ids}
    if not spec.READS:
        batch |= {"targets": ids, "answer": ids, "is_prefix": 0 * ids}
        batch["row_weights"] = jnp.ones(1)
    program = TuneProgram(plan, base, labels, batch)
    params = program.init_params(result["seed"])
    _, frozen = program.split(params)
    template, _ = program.split(program.abstract)
    with Checkpointer(folder / "model") as checkpointer:
        restored = checkpointer.restore(
            {"trained": template}, step=result["model_step"]
        )
    if restored is None:
        raise ConfigError(f"{folder}: its model is missing")
    trained = restored[0]["trained"]
    return Finetuned(program, program.join(trained, frozen), result)


def export_finetuned(
    folder: Path,
    to: Path,
    family: str = "",
    options: ExportOptions = DEFAULT_OPTIONS,
) -> list[str]:
    """Writes the best model of a fine-tuning.

    Args:
      family: a model_type of transformers; "" is the first that fits.

    Returns:
      Lines to print.
    """
    with new_folder(to) as place:
        facts = _export(folder, place, to.name, family, options)
    return [f"{to}: {fact}" for fact in facts]


def _export(
    folder: Path, place: Path, name: str, family: str, options: ExportOptions
) -> list[str]:
    """Writes the best model of a fine-tuning, of this name; facts to print."""
    tuned = load_finetuned(folder)
    plan, base = tuned.program.plan, tuned.program.base
    target = find_target(plan, base, family)
    network: Any = base.network
    merged = merge(plan.adapt, tuned.params["network"], tuned.params["extra"])
    # A task's head reads the states, whose size must not change.
    spec, merged = fold(network.spec, merged, "" if target.names else target.purpose)
    export_spec = target.family.lay_out(spec, base.tokenizer.vocab.pad)
    moved = move_places(merged, spec, export_spec)
    make = _make_reader if target.names else _make_writer
    model = make(tuned, target, export_spec, moved)
    check_range({target.purpose: model}, options.dtype)
    card = _make_card(tuned, model.config, target.purpose, name)
    lines = write_model(model, base.tokenizer, card, place, options)
    checksums.record_tree(place)
    return lines


class Target(NamedTuple):
    """The class of transformers that a fine-tuning is exported as.

    Attributes:
      purpose: of the network, a key of `Family.heads`.
      config: of config.json, without special ids and labels.
      names: of the head; None for a network that generates answers.
    """

    family: Family
    purpose: str
    config: dict
    names: HeadNames | None = None


def find_target(plan: FinetunePlan, base: Base, family: str = "") -> Target:
    """The class of transformers for a fine-tuning, which need not have begun.

    Args:
      family: a model_type of transformers; "" is the first that fits.
    """
    task, class_suffix, network = base.task, plan.spec.EXPORT, base.network
    if plan.spec.READS and not class_suffix:
        raise CheckpointError(f"transformers has no class for {plan.task_name}")
    purpose, vocab = find_purpose(task, network, family), base.tokenizer.vocab
    spec = standardise(cast(Any, network).spec)
    kind, config = write_config(spec, purpose, family, vocab)
    if not plan.spec.READS:
        return Target(kind, purpose, config)
    names = find_names(kind, class_suffix, base.form)
    if purpose == "causal" and network.READS_AHEAD:
        raise ConfigError(
            f"{base.source}: a {task.plan.objective_name} run reads a task's text in "
            f"both directions, and {kind.name} in transformers only to the left"
        )
    if by := names.finds_last:
        last = _find_last_by(base, by, name_class(kind, class_suffix))
        config |= {f"{by}_token_id": last}
    return Target(kind, purpose, config, names)


def _make_reader(
    tuned: Finetuned, target: Target, export_spec: ModelSpec, network: Any
) -> Model:
    """A network with a task's head: transformers' class for the task.

    The tokenizer adds the same special tokens as in fine-tuning.
    """
    program, base = tuned.program, tuned.program.base
    class_suffix, task = program.plan.spec.EXPORT, base.task
    kind, purpose, config, names = target
    assert names is not None
    form = base.encoder.form
    config = name_ids(task.vocab, form, purpose, kind.ids) | config
    labels = getattr(program.plan.spec, "label_names", ()) or program.labels
    config |= write_labels(labels, class_suffix, program.plan.spec.problem_type)
    config |= dict(names.settings) | {"architectures": [name_class(kind, class_suffix)]}
    tensors = task_to_hf(
        network, tuned.params["head"], kind, export_spec, purpose, names
    )
    return Model(config, tensors, export_spec, form)


def _make_writer(
    tuned: Finetuned, target: Target, export_spec: ModelSpec, network: Any
) -> Model:
    """A network that generates answers, as transformers' class of its pretraining."""
    task = tuned.program.base.task
    form, note = task.text_form, task.text_form.mask_note
    kind, purpose, config, _ = target
    ids = name_ids(task.vocab, form, purpose, kind.ids)
    tensors = to_hf(network, kind, export_spec, purpose)
    return Model(config | ids, tensors, export_spec, form, (note,) if note else (), ids)


def _find_last_by(base: Base, kind: str, name: str) -> int:
    """The id by which a class of transformers finds a text's last token.

    For "pad" it is an id that no text ends with: [PAD], or [EOS] if there is no [PAD],
    as is common for GPT-2. Special tokens inside a text are plain text, so a text ends
    with one only if the encoder adds it. For "eos" it is the id that all texts end
    with.
    """
    vocab, after = base.tokenizer.vocab, base.encoder.form.after
    if kind == "eos":
        if not after:
            raise ConfigError(
                f"{name} finds a text's last token as its last [EOS], and the texts "
                f"of {base.source} end without one"
            )
        return after[-1]
    pad = vocab.eos if vocab.pad is None else vocab.pad
    if pad is None or pad in after[-1:]:
        raise ConfigError(
            f"{name} finds a text's last token by the padding after it, and the "
            f"tokenizer has no [PAD] that a text does not end with: "
            f"tokenizer.specials must list 'pad' before a run is trained"
        )
    return pad


def _make_card(tuned: Finetuned, config: dict, purpose: str, name: str) -> Card:
    """The model card: base, task, training settings and dev metrics."""
    plan, cell = tuned.program.plan, tuned.result
    source, task = tuned.program.base.source, tuned.program.base.task
    data = Path(plan.data.train).name
    facts = [
        f"Base: {Path(source).name}, a {task.plan.objective_name} run",
        f"Task: {plan.task_name}, labels {', '.join(tuned.program.labels) or 'none'}",
        f"Data: {data}",
        f"Trained: {plan.adapt.method}, learning rate {show_rate(cell['lr'])}, "
        f"batch {cell['batch_size']}, {cell['epochs']} epochs, seed {cell['seed']}",
    ]
    is_scratch = source.startswith(SCRATCH)
    return Card(
        title=f"{config['architectures'][0]} fine-tuned with jaxpt",
        name=name,
        task=CLASS_TASKS.get(plan.spec.EXPORT) or TASKS[purpose],
        data=data,
        facts=facts,
        metrics=cell["dev"],
        split="dev",
        base=None if is_scratch else read_base_model(fetch(source)),
        tags=(plan.task_name,),
    )
