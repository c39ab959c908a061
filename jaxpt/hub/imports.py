"""Imports a folder of transformers as a run that can be trained further."""

import dataclasses
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from jaxpt.config.plan import make_plan
from jaxpt.errors import UserError
from jaxpt.files import checksums
from jaxpt.files.folder import hold, is_new, write_config, write_json
from jaxpt.hub.choice import choose_objective
from jaxpt.hub.convert import flatten, from_hf, list_unread, modernise, refine_spec
from jaxpt.hub.families import Family, read_config
from jaxpt.hub.files import read_json, read_tensors
from jaxpt.hub.import_settings import ImportSettings
from jaxpt.hub.names import BODIES
from jaxpt.hub.origin import Origin, read_origin
from jaxpt.hub.specials import read_framing
from jaxpt.hub.task_heads import find_task, keep_head
from jaxpt.learn.state import make_state
from jaxpt.nn.model_spec import COMPUTING, LIMITED, ModelSpec
from jaxpt.nn.networks.student_teacher import begin
from jaxpt.objectives import OBJECTIVES
from jaxpt.objectives.spec import Teacher
from jaxpt.text.tokens import tokenizer as tokenizers
from jaxpt.text.tokens.vocab import Vocab
from jaxpt.training.checkpoint import Checkpointer
from jaxpt.training.initial_state import check_start
from jaxpt.training.program import Program
from jaxpt.training.random_parts import write_random_parts
from jaxpt.training.run_framing import NAME
from jaxpt.training.task import make_task
from jaxpt.training.workdir import load_run

TOKENIZER = "tokenizer.json"


def import_run(
    folder: Path,
    workdir: Path,
    config: ml_collections.ConfigDict,
    flags: Collection[str] = (),
) -> list[str]:
    """Makes a run whose step 0 holds the parameters of a checkpoint of transformers.

    The folder overrides the config, except the settings in `flags`: those are applied,
    or refused if they contradict the folder.

    Args:
      folder: has config.json, model.safetensors and tokenizer files; for ELECTRA, the
        folders `generator` and `discriminator` have those, or the one folder of a
        fine-tuned discriminator; an export also has the files of `jaxpt.hub.origin`.
      config: all settings; objective, model and tokenizer are set here.
      flags: full names of the settings that flags have set.

    Returns:
      Lines to print.

    Raises:
      UserError: something is unsupported, missing or contradictory, or the workdir is
        not empty; nothing has been written then.
    """
    with hold(workdir):
        return _import(folder, workdir, config, flags)


def _import(
    folder: Path,
    workdir: Path,
    config: ml_collections.ConfigDict,
    flags: Collection[str],
) -> list[str]:
    if not is_new(workdir):
        raise UserError(f"--workdir={workdir}: must be a new or an empty folder")
    parts, origin = _read_parts(folder), read_origin(folder)
    settings = ImportSettings(config, flags, folder)
    if not _has_parts(folder) and is_body(read_json(folder, "config.json")):
        settings.bodies = tuple(parts)
    family, spec, _ = parts.get("discriminator") or next(iter(parts.values()))
    place = _find_tokenizer(folder)
    tokenizer = settings.resolve_tokenizer(place, spec.vocab_size)
    family.check_pad(spec, tokenizer.vocab.pad)
    objective = _find_objective(settings, parts, origin, tokenizer.vocab)
    settings.resolve_objective(objective, origin)
    settings.resolve_model(spec)
    _fit_rows(settings, spec)
    settings.take("train.init_from", "")  # it begins with the folder's parameters
    if "generator" in parts:
        _resolve_generator(settings, parts["generator"][1], spec, origin)
    own = {"path": str(workdir / TOKENIZER)}
    config = settings.config | {"tokenizer": settings.config["tokenizer"] | own}
    framing = _read_framing(folder, family, spec, tokenizer)
    vocab = dataclasses.replace(tokenizer.vocab, framing=framing)
    program = _make_program(config, vocab, parts, settings)
    task = program.task
    params = task.model.join_parts(_read_networks(program, parts, settings))
    params, drawn = _complete(program, params, origin, tokenizer)
    params = jax.tree.map(jnp.asarray, params)
    state = make_state(params, task.optimizer, task.has_ema)
    checksums.write(workdir / TOKENIZER, tokenizers.dump(tokenizer))
    with Checkpointer(workdir / "checkpoints") as checkpointer:
        checkpointer.save(0, state)
    write_json(workdir / NAME, framing.to_json())
    write_random_parts(workdir, drawn)
    for kind, _, tensors in parts.values() if settings.bodies else ():
        keep_head(workdir, read_json(folder, "config.json"), kind, tensors)
    # No path: a run's tokenizer is the file beside its config, even if it is moved.
    section = task.plan.config["tokenizer"] | {"path": ""}
    write_config(workdir / "config.json", task.plan.config | {"tokenizer": section})
    size = sum(x.size for x in jax.tree.leaves(params))
    return [
        *settings.list_replaced(),
        *(
            f"{workdir}: {name} is not in {folder}: initialised at random"
            for name in drawn
        ),
        *_list_unread(parts, settings),
        f"{workdir}: {objective} from {family.name}, {size:,} parameters",
    ]


def _list_unread(parts: dict, settings: ImportSettings) -> list[str]:
    """A line for each network with weights that are not imported, such as NSP's."""
    lines = []
    for head, (family, spec, tensors) in parts.items():
        names = list_unread(tensors, family, spec, head)
        if names and head not in settings.bodies:
            told = ", ".join(names)
            lines.append(f"{settings.folder}: a {head} model does not use {told}")
    return lines


def _find_objective(
    settings: ImportSettings, parts: dict, origin: Origin | None, vocab: Vocab
) -> str:
    """The objective of a flag, else of the export, else of `choose_objective`."""
    if "objective" not in settings:
        if origin:
            return origin.objective
        return choose_objective(next(iter(parts)), vocab)
    objective = settings.get("objective")
    if objective not in OBJECTIVES:
        raise _misfit(settings, parts)
    return objective


def _misfit(settings: ImportSettings, parts: dict) -> UserError:
    """That a flag names an objective whose networks are not the folder's."""
    fitting = [n for n, m in OBJECTIVES.items() if parts.keys() <= m.Spec.heads()]
    held = " and a ".join(parts)
    allowed = f"must be one of {', '.join(fitting)}, whose runs have a {held} model,"
    return settings.refusal("objective", allowed)


def _fit_rows(settings: ImportSettings, spec: ModelSpec) -> None:
    """Shortens rows that are longer than the model can read, unless flags ask so."""
    length = settings.get("data.row_length") or settings.get("data.seq_len")
    is_asked = "data.seq_len" in settings or "data.row_length" in settings
    if spec.positions in LIMITED and length > spec.max_len and not is_asked:
        settings.take("data.seq_len", spec.max_len)
        settings.take("data.row_length", 0)


def _resolve_generator(
    settings: ImportSettings,
    generator: ModelSpec,
    spec: ModelSpec,
    origin: Origin | None,
) -> None:
    """Sets the generator's width as a fraction of the discriminator's."""
    name = "electra.generator_size"
    is_told = name in settings or origin is not None
    if not is_told or round(spec.d_model * settings.get(name)) != generator.d_model:
        settings.take(name, generator.d_model / spec.d_model)


def _make_program(
    config: dict, vocab: Vocab, parts: dict, settings: ImportSettings
) -> Program:
    """The program of the final config, whose networks are those of the folder.

    Raises:
      UserError: its networks differ from the folder's, or the config does not fit the
        objective.
    """
    objective = config["objective"]
    is_given = "objective" in settings
    try:
        task = make_task(make_plan(config, settings.fixed), vocab)
        program = Program(task, is_training=False)
        heads = _list_networks(program).keys()
    except UserError:
        if is_given and not parts.keys() <= OBJECTIVES[objective].Spec.heads():
            raise _misfit(settings, parts) from None
        raise
    if heads == parts.keys() or (settings.bodies and parts.keys() <= heads):
        return program
    if is_given and not parts.keys() <= OBJECTIVES[objective].Spec.heads():
        raise _misfit(settings, parts)
    raise UserError(
        f"--from={settings.folder}: holds a {' and a '.join(parts)} model: must be "
        f"{' and '.join(heads) or 'none'}, as the settings of {objective} are"
    )


def _list_networks(program: Program) -> dict[str, tuple[ModelSpec, object]]:
    """The networks of a task by purpose: their specs and shapes."""
    task, shapes = program.task, program.abstract_state().params
    return task.model.export_parts(shapes)


def _read_networks(program: Program, parts: dict, settings: ImportSettings) -> dict:
    """The parameters of each network of a folder, by purpose."""
    like, found = _list_networks(program), {}
    for head, (kind, read, tensors) in parts.items():
        mine, shapes = like[head]
        _check_same(mine, read, head, settings.model)
        is_body = head in settings.bodies
        found[head] = from_hf(tensors, kind, read, head, shapes, is_body=is_body)
    _check_shared(found)
    return found


def _complete(
    program: Program, params, origin: Origin | None, tokenizer
) -> tuple[dict, list[str]]:
    """A run's parameters from those of its networks, and which are newly initialised.

    Parameters that are in no network come from the export, a teacher's from its run as
    it is now.

    Raises:
      UserError: the export's parameters do not fit, or there is no such teacher.
    """
    task, wanted = program.task, flatten(program.abstract_state().params)
    flat = flatten(params)
    missing = {path: leaf for path, leaf in wanted.items() if path not in flat}
    if origin and origin.objective == task.plan.objective_name:
        for path, value in origin.rest.items():
            if path not in missing or value.shape != missing[path].shape:
                raise UserError(
                    f"{origin.path.parent}: {path} {list(value.shape)}: must be a "
                    f"parameter of {task.plan.objective_name} with these settings"
                )
            flat[path] = value
    if teacher := task.spec.needs.teacher:
        check_start(task, tokenizer)
        flat = flatten(_add_teacher(teacher, _nest(missing | flat)))
    drawn = sorted(missing.keys() - flat.keys())
    had: set[str] = set()
    if drawn:
        had = {path.split("/")[0] for path in flat}
        fresh = flatten(program.init_state(task.plan.train.seed).params)
        flat |= {path: fresh[path] for path in drawn}
    return _nest(flat), sorted({_name_part(path, had) for path in drawn})


def _name_part(path: str, had: Collection[str]) -> str:
    """The part of a network that a parameter is of; a part of it, where it has others.

    >>> [_name_part("pair/out/bias", had) for had in ((), ("pair",))]
    ['pair', 'pair/out']
    """
    first, *rest = path.split("/")
    return f"{first}/{rest[0]}" if first in had else first


def _add_teacher(teacher: Teacher, params):
    """The student with its teacher, without copying any of the teacher's layers."""
    program, _, taught, _ = load_run(Path(teacher.run))
    theirs = program.task
    parts = theirs.model.export_parts(taught)
    return begin(params, parts[teacher.head][1], student_layers=())


def _nest(flat: dict[str, object]) -> dict:
    return flax.traverse_util.unflatten_dict(flat, sep="/")


def _read_parts(folder: Path) -> dict[str, tuple[Family, ModelSpec, Any]]:
    """The networks of a folder: what for -> (family, spec, tensors)."""
    heads = ("generator", "discriminator")
    inner = {head: folder / head for head in heads if (folder / head).is_dir()}
    if len(inner) == 1:
        (other,) = set(heads) - set(inner)
        raise UserError(f"--from={folder}: lacks the folder {other!r}")
    parts = {}
    for head, place in (inner or {"": folder}).items():
        config = read_json(place, "config.json")
        family, spec = read_config(config)
        tensors = modernise(read_tensors(place))
        head = head or _find_head(family, config, tensors)
        is_tuned = head == "discriminator" and bool(find_task(config))
        if head in heads and not inner and not is_tuned:
            raise UserError(
                f"--from={folder}: holds ELECTRA's {head} alone; must be a folder with "
                "folders 'generator' and 'discriminator'"
            )
        if head not in family.heads:
            raise UserError(f"{place}: a {family.name} has no {head}")
        parts[head] = family, refine_spec(spec, family, tensors), tensors
    return parts


# Classes of transformers that have no language model's head: none, or a task's.
BODY = re.compile(
    r"\w+(Model|For(SequenceClassification|TokenClassification|QuestionAnswering"
    r"|MultipleChoice))"
)


def is_body(config: dict) -> bool:
    """Whether a folder's model has no language model's head."""
    names = config.get("architectures") or []
    return any(BODY.fullmatch(name) for name in names)


def _find_head(family: Family, config: dict, tensors) -> str:
    """What a model is for; without a head, what its body could be for.

    BERT's body with a pooler is that of a model with BERT's sentence head; ELECTRA's
    with a task's head is the discriminator, which alone is fine-tuned.
    """
    names = config.get("architectures") or list(family.heads.values())[:1]
    for head, name in family.heads.items():
        if name in names:
            return head
    if is_body(config) and family.name in BODIES:
        has_pooler = any("pooler.dense." in name for name in tensors)
        if has_pooler and "pretraining" in family.heads:
            return "pretraining"
        if find_task(config) and "discriminator" in family.heads:
            return "discriminator"
        return next(iter(family.heads))
    raise UserError(
        f"config.json: architectures={names}: must hold one of "
        f"{', '.join(family.heads.values())}"
    )


def _read_framing(folder: Path, family: Family, spec: ModelSpec, tokenizer):
    """The framing of the model's texts, from the folder of its tokenizer."""
    place = folder / "discriminator" if _has_parts(folder) else folder
    config = read_json(place, "config.json")
    return read_framing(place, family.name, config, tokenizer, spec.vocab_size)


def _has_parts(folder: Path) -> bool:
    """Whether the folder has a folder for each network."""
    return (folder / "discriminator").is_dir()


def _find_tokenizer(folder: Path) -> Path:
    """The folder that holds a model's tokenizer."""
    place = folder / "discriminator" if _has_parts(folder) else folder
    own = place / "jaxpt_tokenizer.json"
    return own if own.exists() else place


def _check_shared(found: dict) -> None:
    """Raises UserError if networks that share embeddings have different ones."""
    tables = [flatten(params["embed"]) for params in found.values()]
    for path, value in tables[0].items():
        if any(not np.array_equal(value, other[path]) for other in tables[1:]):
            raise UserError(
                f"--from: the embeddings ({path}) of {' and '.join(found)} differ; "
                "they must be the same"
            )


def _check_same(
    mine: ModelSpec, read: ModelSpec, head: str, given: Collection[str]
) -> None:
    """Raises UserError if a generator is not a narrower copy of the discriminator.

    Args:
      given: fields that flags have set, which are checked elsewhere.
    """
    free = ("vocab_size", "embedding_size", *COMPUTING, *given)
    read = read.direct(mine.is_bidirectional)  # no config of transformers says it
    for field in dataclasses.fields(ModelSpec):
        one, two = getattr(mine, field.name), getattr(read, field.name)
        if one != two and field.name not in free:
            raise UserError(
                f"the {head}'s config: {field.name}={two!r}: must be {one!r} beside "
                "the discriminator's"
            )
