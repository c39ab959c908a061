"""Imports a model of transformers as a run that can be trained further."""

import dataclasses
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from jaxpt.config.plan import make_plan
from jaxpt.errors import DataError, argument
from jaxpt.files import checksums
from jaxpt.files.folder import new_folder, write_config
from jaxpt.files.remote import fetch
from jaxpt.hub.chat_templates import keep_templates, read_templates
from jaxpt.hub.continued import suggest_settings
from jaxpt.hub.convert import flatten, from_hf, hide_token, list_unread
from jaxpt.hub.download import find_folder
from jaxpt.hub.import_settings import ImportSettings, choose_objective
from jaxpt.hub.new_tokenizer import change_tokenizer
from jaxpt.hub.origin import Origin, read_origin, write_base_model
from jaxpt.hub.peft_adapter import is_adapter, read_adapter
from jaxpt.hub.source_folder import (
    SourceNetwork,
    main_folder,
    read_networks,
)
from jaxpt.hub.specials import read_generation, read_text_form
from jaxpt.hub.task_heads import keep_head, read_head
from jaxpt.nn.model_differences import COMPUTING
from jaxpt.nn.model_spec import LIMITED, ModelSpec
from jaxpt.nn.networks.student_teacher import begin
from jaxpt.objectives import OBJECTIVES
from jaxpt.objectives.spec import Teacher
from jaxpt.runs.checkpoint import Checkpointer
from jaxpt.runs.generation_defaults import Defaults, write_defaults
from jaxpt.runs.initial_state import check_start
from jaxpt.runs.program import Program
from jaxpt.runs.random_parts import write_random_parts
from jaxpt.runs.stored_form import write_text_form
from jaxpt.runs.task import Task, make_task
from jaxpt.runs.workdir import load_run
from jaxpt.text.tokens import tokenizer as tokenizers
from jaxpt.text.tokens.symbols import is_byt5
from jaxpt.text.tokens.tokenizer import Tokenizer
from jaxpt.text.tokens.vocab import Vocab
from jaxpt.text_form import TextForm

TOKENIZER = "tokenizer.json"
Networks = dict[str, SourceNetwork]
Params = dict[str, Any]


def import_run(
    source: str | Path,
    workdir: Path,
    config: ml_collections.ConfigDict,
    flags: Collection[str] = (),
    new_tokenizer: str = "",
) -> list[str]:
    """Makes a run from a checkpoint of transformers, whose parameters are its step 0.

    The folder overrides the config, except the settings in `flags`: those are applied,
    or refused if they contradict the folder.

    Args:
      source: a folder, or a name on the Hugging Face Hub (`jaxpt.hub.download`). The
        folder has config.json, model.safetensors and tokenizer files; for both networks
        of ELECTRA, the folders `generator` and `discriminator` have those; an export
        also has the files of `jaxpt.hub.origin`. Or the folder of a LoRA adapter of
        PEFT, which is merged into its base model.
      config: all settings; objective, model and tokenizer are set here.
      flags: full names of the settings that flags have set.
      new_tokenizer: the file or folder of a tokenizer that replaces the folder's
        (`jaxpt.hub.new_tokenizer`).

    Returns:
      Lines to print.
    """
    with new_folder(workdir, "workdir") as place:
        return _import(os.fspath(source), workdir, place, config, flags, new_tokenizer)


def _import(
    source: str,
    workdir: Path,
    place: Path,
    config: ml_collections.ConfigDict,
    flags: Collection[str],
    new_tokenizer: str,
) -> list[str]:
    """Writes the content of a run's folder to another place."""
    folder, base = find_folder(source)
    adapter = read_adapter(folder) if is_adapter(folder) else None
    if adapter:
        folder, base = find_folder(adapter.base)
    networks, origin = read_networks(folder, adapter), read_origin(folder)
    settings = ImportSettings(config, flags, source)
    main = networks.get("discriminator") or next(iter(networks.values()))
    tokenizer = settings.resolve_tokenizer(main_folder(folder), main.spec.vocab_size)
    form, advice = _resolve(settings, networks, main, folder, origin, tokenizer)
    defaults, ignored = _read_generation(folder, main, bool(new_tokenizer))
    path_setting = {"path": str(workdir / TOKENIZER)}
    values = settings.config | {
        "tokenizer": settings.config["tokenizer"] | path_setting
    }
    vocab = dataclasses.replace(tokenizer.vocab, text_form=form)
    program = _make_program(values, vocab, networks, settings)
    task = program.task
    bodies = [network for network in networks.values() if network.is_body]
    heads = [read_head(each.config, each.family, each.tensors) for each in bodies]
    params = task.model.join_parts(_read_params(program, networks, settings))
    params, random_parts = _complete(program, params, origin, tokenizer)
    params = jax.tree.map(jnp.asarray, params)
    if new_tokenizer:
        other = tokenizers.load(new_tokenizer)
        params, task = change_tokenizer(
            params, task, tokenizer, other, values, settings.fixed
        )
        main.family.check_pad(task.model_spec, other.vocab.pad)
        tokenizer = other
    _write_run(place, task, params, tokenizer)
    write_random_parts(place, random_parts)
    write_defaults(place, dict(defaults))
    templates = read_templates(main_folder(folder))
    if not new_tokenizer:  # they have special tokens of the old one
        keep_templates(place, templates)
    if known_base := base or (origin and origin.base):
        write_base_model(place, known_base)
    for head in filter(None, heads):
        keep_head(place, head)
    size = sum(x.size for x in jax.tree.leaves(params))
    source_name = f"{task.plan.objective_name} from {main.family.name}"
    return [
        *([f"{base.repository}: commit {base.commit}"] if base else []),
        *([f"{source}: LoRA, merged into {adapter.base}"] if adapter else []),
        *settings.list_replaced(),
        *_list_random(workdir, random_parts, source),
        *_list_unread(networks, source),
        *ignored,
        *(
            [f"{source}: chat templates are left out"]
            if new_tokenizer and templates
            else []
        ),
        f"{workdir}: {source_name}, {size:,} parameters",
        *(advice if networks.keys() == _list_parts(program).keys() else ()),
    ]


def _resolve(
    settings: ImportSettings,
    networks: Networks,
    main: SourceNetwork,
    folder: Path,
    origin: Origin | None,
    tokenizer: Tokenizer,
) -> tuple[TextForm, list[str]]:
    """Sets what the folder determines, and what continued pretraining needs.

    Returns:
      The special tokens around texts, and lines about continued pretraining.
    """
    family, spec = main.family, main.spec
    family.check_pad(spec, tokenizer.vocab.pad)
    objective = _find_objective(settings, networks, origin, tokenizer.vocab)
    settings.resolve_objective(objective, origin)
    if objective == family.objective:
        for name, value in family.list_settings(main.config).items():
            settings.prefer(name, value)
    settings.resolve_model(spec)
    form = read_text_form(
        main_folder(folder), family.ids, main.config, tokenizer, spec.vocab_size
    )
    if family.starts_with_last and form.start is None and form.after:
        form = dataclasses.replace(form, start=form.after[-1])
    advice = suggest_settings(settings, family, spec, form, is_byt5(tokenizer))
    _fit_rows(settings, spec)
    settings.take("train.init_from", "")  # the run begins with the folder's parameters
    if main is networks.get("discriminator"):
        _resolve_generator(settings, networks.get("generator"), spec, origin)
    return form, advice


def _write_run(workdir: Path, task: Task, params: Params, tokenizer: Tokenizer) -> None:
    """Writes the run at step 0."""
    checksums.write(workdir / TOKENIZER, tokenizers.dump(tokenizer))
    with Checkpointer(workdir / "checkpoints") as checkpointer:
        checkpointer.save(0, task.make_state(params))
    assert task.vocab.text_form is not None
    write_text_form(workdir, task.vocab.text_form)
    # No path: a run's tokenizer is the file next to its config, even if it is moved.
    section = task.plan.config["tokenizer"] | {"path": ""}
    write_config(workdir / "config.json", task.plan.config | {"tokenizer": section})


def _list_random(workdir: Path, names: list[str], source: str) -> Iterator[str]:
    """A line for each part of a run that the checkpoint lacks."""
    for name in names:
        yield f"{workdir}: {name} is not in {source}: initialised at random"


def _list_unread(networks: Networks, source: str) -> Iterator[str]:
    """A line for each network with weights that are not imported, such as NSP's."""
    for head, network in networks.items():
        names = list_unread(network.tensors, network.family, network.spec, head)
        if names and not network.is_body:
            yield f"{source}: a {head} model does not use {', '.join(names)}"


def _read_generation(
    folder: Path, network: SourceNetwork, has_other_ids: bool
) -> tuple[Defaults, list[str]]:
    """The settings of generation that are kept, and a line about those that are not.

    Args:
      has_other_ids: the run has another tokenizer, to which ids of tokens do not apply.
    """
    heads, place = network.family.heads.keys(), main_folder(folder)
    if not heads & {"causal", "seq2seq"}:
        return (), []
    defaults, names = read_generation(place, network.config, "seq2seq" in heads)
    if has_other_ids:
        ids = dict(defaults).get("suppress_tokens", ())
        names += [f"suppress_tokens={list(ids)}"] if ids else []
        defaults = tuple(each for each in defaults if each[0] != "suppress_tokens")
    lines = [f"{place}: jaxpt generate does not apply {', '.join(names)}"]
    return defaults, lines if names else []


def _find_objective(
    settings: ImportSettings, networks: Networks, origin: Origin | None, vocab: Vocab
) -> str:
    """The objective of a flag, of the export, of the family, or the first that fits."""
    if "objective" not in settings:
        if origin:
            return origin.objective
        head, network = next(iter(networks.items()))
        return network.family.objective or choose_objective(head, vocab)
    objective = settings.get("objective")
    names = [n for n, m in OBJECTIVES.items() if networks.keys() <= m.Spec.heads()]
    if objective in names:
        return objective
    heads = " and a ".join(networks)
    allowed = f"must be one of {', '.join(names)}, whose runs have a {heads} model,"
    raise settings.refusal("objective", allowed)


def _fit_rows(settings: ImportSettings, spec: ModelSpec) -> None:
    """Shortens rows that are longer than the model can read, unless flags set them."""
    length = settings.get("data.row_length") or settings.get("data.seq_len")
    is_set = "data.seq_len" in settings or "data.row_length" in settings
    if spec.positions in LIMITED and length > spec.max_len and not is_set:
        settings.take("data.seq_len", spec.max_len)
        settings.take("data.row_length", 0)


def _resolve_generator(
    settings: ImportSettings,
    generator: SourceNetwork | None,
    spec: ModelSpec,
    origin: Origin | None,
) -> None:
    """Sets the generator's width as a fraction of the discriminator's.

    A generator that is missing is the smallest possible one, as nothing reads it.
    """
    name = "electra.generator_size"
    if generator is None:
        settings.prefer(name, 1 / spec.num_heads)
        return
    is_set, width = name in settings or origin is not None, generator.spec.d_model
    if not is_set or round(spec.d_model * settings.get(name)) != width:
        settings.take(name, width / spec.d_model)


def _make_program(
    config: dict[str, Any], vocab: Vocab, networks: Networks, settings: ImportSettings
) -> Program:
    """The program of the final config, whose networks are those of the folder."""
    task = make_task(make_plan(config, settings.fixed), vocab)
    program = Program(task, is_training=False)
    heads = _list_parts(program).keys()
    if networks.keys() <= heads:  # a network that is missing is drawn at random
        return program
    raise DataError(
        f"{argument('from')}={settings.source}: holds a {' and a '.join(networks)} "
        f"model: must be {' and '.join(heads) or 'none'}, as the settings of "
        f"{config['objective']} are"
    )


def _list_parts(program: Program) -> dict[str, tuple[ModelSpec, Any]]:
    """The networks of a task by purpose: their specs and shapes."""
    task, shapes = program.task, program.abstract_state().params
    return task.model.export_parts(shapes)


def _read_params(
    program: Program, networks: Networks, settings: ImportSettings
) -> dict[str, Params]:
    """The parameters of each network of a folder, by purpose."""
    like, params = _list_parts(program), {}
    for head, (family, spec, tensors, _, is_body) in networks.items():
        own_spec, shapes = like[head]
        _check_same(own_spec, spec, head, settings.model)
        params[head] = from_hf(tensors, family, spec, head, shapes, is_body=is_body)
        mask = program.task.vocab.mask
        if family.hides_mask and mask is not None:
            params[head] = hide_token(params[head], mask)
    if program.task.model.has_equal_embeddings:
        _check_shared(params)
    return params


def _complete(
    program: Program, params: Params, origin: Origin | None, tokenizer: Tokenizer
) -> tuple[Params, list[str]]:
    """All parameters of a run, and the names of the parts that are drawn at random.

    Parameters that are in no network come from the export, a teacher's from its run as
    it is now.
    """
    task, expected = program.task, flatten(program.abstract_state().params)
    flat = flatten(params)
    missing = {path: leaf for path, leaf in expected.items() if path not in flat}
    if origin and origin.objective == task.plan.objective_name:
        for path, value in origin.rest.items():
            if path not in missing or value.shape != missing[path].shape:
                raise DataError(
                    f"{origin.path.parent}: {path} {list(value.shape)}: must be a "
                    f"parameter of {task.plan.objective_name} with these settings"
                )
            flat[path] = value
    if teacher := task.spec.needs.teacher:
        check_start(task, tokenizer)
        flat = flatten(_add_teacher(teacher, _nest(missing | flat)))
    random_paths = sorted(missing.keys() - flat.keys())
    present = {path.split("/")[0] for path in flat}
    if random_paths:
        initial = flatten(program.init_params(task.plan.train.seed))
        flat |= {path: initial[path] for path in random_paths}
    return _nest(flat), sorted({_name_part(path, present) for path in random_paths})


def _name_part(path: str, present: Collection[str]) -> str:
    """The part of a run that a parameter is in; of a part with others, which of it.

    >>> [_name_part("pair/out/bias", present) for present in ((), ("pair",))]
    ['pair', 'pair/out']
    """
    first, *rest = path.split("/")
    return f"{first}/{rest[0]}" if first in present else first


def _add_teacher(teacher: Teacher, params: Params) -> Params:
    """The student with its teacher, without copying any of the teacher's layers."""
    program, _, teacher_params, _ = load_run(fetch(teacher.run))
    parts = program.task.model.export_parts(teacher_params)
    return begin(params, parts[teacher.head][1], student_layers=())


def _nest(flat: dict[str, Any]) -> Params:
    return flax.traverse_util.unflatten_dict(flat, sep="/")


def _check_shared(params: dict[str, Params]) -> None:
    """Raises UserError if networks that share embeddings have different ones."""
    tables = [flatten(part["embed"]) for part in params.values()]
    for path, value in tables[0].items():
        if any(not np.array_equal(value, other[path]) for other in tables[1:]):
            raise DataError(
                f"{argument('from')}: the embeddings ({path}) of "
                f"{' and '.join(params)} differ; they must be the same"
            )


def _check_same(
    own_spec: ModelSpec, read: ModelSpec, head: str, free_names: Collection[str]
) -> None:
    """Raises UserError if a generator is not a narrower copy of the discriminator.

    Args:
      free_names: fields that flags have set, which are checked elsewhere.
    """
    free = ("vocab_size", "embedding_size", *COMPUTING, *free_names)
    read = read.direct(own_spec.is_bidirectional)  # no config of transformers has it
    for field in dataclasses.fields(ModelSpec):
        one, two = getattr(own_spec, field.name), getattr(read, field.name)
        if one != two and field.name not in free:
            raise DataError(
                f"the {head}'s config: {field.name}={two!r}: must be {one!r}, as in "
                "the discriminator's"
            )
