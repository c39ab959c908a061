"""Reads the networks of a folder of transformers, and where its tokenizer is."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxpt.errors import DataError, argument
from jaxpt.hub.configs import read_config
from jaxpt.hub.convert import check_names, modernise, refine_spec
from jaxpt.hub.family import Family, find_family
from jaxpt.hub.fields import Config
from jaxpt.hub.files import read_json, read_tensors
from jaxpt.hub.peft_adapter import Adapter
from jaxpt.nn.model_spec import ModelSpec

# Classes of transformers that have no language model's head: none, or a task's.
BODY = re.compile(
    r"\w+(Model|For(SequenceClassification|TokenClassification|QuestionAnswering"
    r"|MultipleChoice))"
)
PARTS = ("generator", "discriminator")


class SourceNetwork(NamedTuple):
    """A network of a folder.

    Attributes:
      is_body: it has no language model's head.
    """

    family: Family
    spec: ModelSpec
    tensors: Mapping[str, np.ndarray]
    config: Config
    is_body: bool


def read_networks(
    folder: Path, adapter: Adapter | None = None
) -> dict[str, SourceNetwork]:
    """The networks of a folder by purpose, a key of `Family.heads`.

    Args:
      adapter: is merged into the weights.
    """
    inner = {head: folder / head for head in PARTS if (folder / head).is_dir()}
    if len(inner) == 1:
        (other,) = set(PARTS) - set(inner)
        (place,) = inner.values()
        raise DataError(
            f"{argument('from')}={folder}: lacks the folder {other!r}; to import one "
            f"network alone, name its folder, {place}"
        )
    networks = {}
    for head, place in (inner or {"": folder}).items():
        config = read_json(place, "config.json")
        family, spec = read_config(config)
        read = read_tensors(place)
        if other := family.find_other(read):
            family = find_family(other)
            spec = family.read(config)
        tensors = modernise(read, family.renamed)
        if adapter is not None:
            tensors = adapter.merge(tensors)
        tensors = family.fold(config, tensors)
        head = head or _find_head(family, config, tensors)
        if head not in family.heads:
            raise DataError(f"{place}: a {family.name} has no {head}")
        without_head = not inner and is_body(config, family)
        spec = refine_spec(spec, family, tensors)
        check_names(tensors, family, spec, head, is_body=without_head)
        networks[head] = SourceNetwork(family, spec, tensors, config, without_head)
    return networks


def main_folder(folder: Path) -> Path:
    """The folder of the network that is used after training, and of the tokenizer."""
    inner = folder / "discriminator"
    return inner if inner.is_dir() else folder


def is_body(config: Config, family: Family) -> bool:
    """Whether a folder's model has no language model's head."""
    names = config.get("architectures") or []
    classes = family.heads.values()  # Dream's model with a head is a DreamModel
    return any(BODY.fullmatch(name) and name not in classes for name in names)


def _find_head(
    family: Family, config: Config, tensors: Mapping[str, np.ndarray]
) -> str:
    """The purpose of a model; without a head, one that its body could have.

    BERT's body with a pooler is that of a model with BERT's sentence head; ELECTRA's
    is the discriminator, as that is kept after training. ELECTRA's generator alone is a
    masked language model.
    """
    possible = family.list_purposes(config)
    default = possible[0]
    for head, prefix in family.marks.items():
        if any(name.startswith(prefix) for name in tensors):
            default = head
    names = config.get("architectures") or [family.heads[default]]
    older = {family.older_classes.get(name) for name in names}
    for head in possible:
        if family.heads[head] in names or head in older:
            return head
    if is_body(config, family) and family.body:
        has_pooler = any("pooler.dense." in name for name in tensors)
        if has_pooler and "pretraining" in family.heads:
            return "pretraining"
        if "discriminator" in family.heads:
            return "discriminator"
        return possible[0]
    raise DataError(
        f"config.json: architectures={names}: must be one of "
        f"{', '.join(dict.fromkeys(family.heads.values()))}"
    )
