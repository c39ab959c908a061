"""A folder of transformers as the start of a run."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from jaxpt.errors import UserError
from jaxpt.hub.convert import flatten, from_hf, refine_spec
from jaxpt.hub.choice import add_settings, choose_objective
from jaxpt.hub.families import Family, read_config
from jaxpt.hub.files import read_json, read_tensors
from jaxpt.hub.specials import read_framing
from jaxpt.learn.state import make_state
from jaxpt.nn.spec import COMPUTING, ModelSpec
from jaxpt.run.build import make_plan, make_task
from jaxpt.run.checkpoint import Checkpointer
from jaxpt.run.framing import NAME
from jaxpt.run.parallel import Program
from jaxpt.run.workdir import write_json
from jaxpt.text.tokens import tokenizer as tokenizers


def import_run(
    folder: Path, workdir: Path, config: ml_collections.ConfigDict
) -> list[str]:
    """Makes a run whose step 0 holds the parameters of a checkpoint of transformers.

    Args:
      folder: with config.json, model.safetensors and tokenizer files; of ELECTRA with
        folders `generator` and `discriminator` that have those.
      config: all settings; objective, model and tokenizer are set here.

    Returns:
      Lines to say.

    Raises:
      UserError: something is not supported, lacking or contradictory, or the workdir is
        not empty; nothing has been written then.
    """
    if workdir.exists() and any(workdir.iterdir()):
        raise UserError(f"--workdir={workdir}: must be a new or an empty folder")
    parts = _read_parts(folder)
    family, spec, _ = parts.get("discriminator") or next(iter(parts.values()))
    tokenizer = _read_tokenizer(folder, parts, spec)
    objective = choose_objective(next(iter(parts)), tokenizer.vocab)
    config = ml_collections.ConfigDict(config)
    config.objective = objective
    add_settings(config)
    for field in dataclasses.fields(ModelSpec):
        if field.name not in COMPUTING:
            config.model[field.name] = getattr(spec, field.name)
    if "generator" in parts:
        # What jaxpt needs of the generator's width is its share of the other's.
        config.electra.generator_size = parts["generator"][1].width / spec.width
    config.tokenizer.kind = "file"
    config.tokenizer.path = str((workdir / "tokenizer.json").absolute())
    framing = _read_framing(folder, parts, family, spec, tokenizer)
    vocab = dataclasses.replace(tokenizer.vocab, framing=framing)
    task = make_task(make_plan(config), vocab)
    program = Program(task, is_training=False)
    wanted = program.abstract_state().params
    like = task.module.networks(wanted, task.model_spec, task.spec)
    found = {}
    for head, (kind, read, tensors) in parts.items():
        if head not in like:
            raise UserError(
                f"--from={folder}: holds a {head} model: must be one of "
                f"{', '.join(like)}, as the settings of {objective} are"
            )
        mine, shapes = like[head]
        _check_same(mine, read, head)
        found[head] = from_hf(tensors, kind, read, head, shapes)
    _check_shared(found)
    params = task.module.join_networks(found)
    params = jax.tree.map(jnp.asarray, params)
    state = make_state(params, task.optimizer, task.has_ema)
    workdir.mkdir(parents=True, exist_ok=True)
    tokenizers.save(tokenizer, workdir / "tokenizer.json")
    with Checkpointer(workdir / "checkpoints") as checkpointer:
        checkpointer.save(0, state)
    write_json(workdir / NAME, framing.to_json())
    write_json(workdir / "config.json", task.plan.config)
    size = sum(x.size for x in jax.tree.leaves(params))
    return [f"{workdir}: {objective} from {family.name}, {size:,} parameters"]


def _read_parts(folder: Path) -> dict[str, tuple[Family, ModelSpec, object]]:
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
        head = head or _find_head(family, config)
        if head in heads and not inner:
            raise UserError(
                f"--from={folder}: holds ELECTRA's {head} alone; must be a folder with "
                "folders 'generator' and 'discriminator'"
            )
        if head not in family.heads:
            raise UserError(f"{place}: a {family.name} has no {head}")
        tensors = read_tensors(place)
        parts[head] = family, refine_spec(spec, family, tensors), tensors
    return parts


def _find_head(family: Family, config: dict) -> str:
    names = config.get("architectures") or list(family.heads.values())[:1]
    for head, name in family.heads.items():
        if name in names:
            return head
    raise UserError(
        f"config.json: architectures={names}: must hold one of "
        f"{', '.join(family.heads.values())}"
    )


def _read_framing(folder: Path, parts, family: Family, spec: ModelSpec, tokenizer):
    """What stands around the texts of the model, by the folder of its tokenizer."""
    place = folder if "discriminator" not in parts else folder / "discriminator"
    config = read_json(place, "config.json")
    return read_framing(place, family.name, config, tokenizer, spec.vocab_size)


def _read_tokenizer(folder: Path, parts, spec: ModelSpec):
    """The tokenizer of a folder, its vocabulary not larger than the model's."""
    place = folder if "discriminator" not in parts else folder / "discriminator"
    own = place / "jaxpt_tokenizer.json"
    tokenizer = tokenizers.load(own if own.exists() else place)
    if tokenizer.vocab.size > spec.vocab_size:
        raise UserError(
            f"{place}: its tokenizer has {tokenizer.vocab.size} ids, its config "
            f"vocab_size={spec.vocab_size}, which must be at least as many"
        )
    return tokenizer


def _check_shared(found: dict) -> None:
    """Refuses networks that are trained on one table of embeddings and have two."""
    tables = [flatten(params["embed"]) for params in found.values()]
    for path, value in tables[0].items():
        if any(not np.array_equal(value, other[path]) for other in tables[1:]):
            raise UserError(
                f"--from: the embeddings ({path}) of {' and '.join(found)} differ; "
                "they must be the same"
            )


def _check_same(mine: ModelSpec, read: ModelSpec, head: str) -> None:
    """Refuses a generator that is not the discriminator made narrower."""
    free = ("vocab_size", "embed_width", *COMPUTING)
    for field in dataclasses.fields(ModelSpec):
        one, two = getattr(mine, field.name), getattr(read, field.name)
        if one != two and field.name not in free:
            raise UserError(
                f"the {head}'s config: {field.name}={two!r}: must be {one!r} beside "
                "the discriminator's"
            )
