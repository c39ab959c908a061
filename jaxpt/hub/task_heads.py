"""Converts heads of downstream tasks to transformers' and back.

A family lists the heads that each of its classes can have (`Family.task_heads`), by
forms of head (`jaxpt.nn.task_heads.FORMS`) that compute the same as transformers'
class. The heads of ELECTRA's and GPT's original code ("electra", "gpt") are one linear
layer and cannot be exported: transformers' ELECTRA class has a dense layer and a GELU
before it, and its GPT-2 class has no bias. Fine-tuning has separate forms for both.
"""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxpt.errors import DataError
from jaxpt.files import checksums, schema
from jaxpt.hub.convert import HEAD, flatten, join
from jaxpt.hub.entries import TensorEntry
from jaxpt.hub.family import Family, list_families
from jaxpt.hub.task_names import CHOICES, QUESTIONS, TEXTS, TOKENS, HeadNames
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.scan import unstack_layers
from jaxpt.nn.task_heads import FORMS


def find_names(family: Family, class_suffix: str, form: str) -> HeadNames:
    """The names of a head's tensors."""
    known = family.task_heads.get(class_suffix, ())
    for names in known:
        if computes(names.form, form):
            return names
    reason = (
        f"a {family.name} with task.head={form} has no {class_suffix} class in "
        f"transformers with the same numbers; "
    )
    if known:
        forms = " or ".join(each.form or "auto" for each in known)
        raise DataError(
            f"{reason}must be fine-tuned with task.head={forms}, the head of "
            f"{name_class(family, class_suffix)}"
        )
    forms = ", ".join(
        f"{each.name} ({' or '.join(head.form or 'any head' for head in heads)})"
        for each in sorted(list_families(), key=lambda family: family.name)
        if (heads := each.task_heads.get(class_suffix))
    )
    raise DataError(f"{reason}there are {forms}")


def computes(head: str, form: str) -> bool:
    """Whether a head is of this form; "" is any of one linear layer for tokens.

    >>> computes("", "bert"), computes("", "modernbert"), computes("bert", "gpt2")
    (True, False, False)
    """
    return form == head or not (head or FORMS[form].has_lm_head)


def name_class(family: Family, class_suffix: str) -> str:
    """The class of transformers.

    >>> from jaxpt.hub.family import find_family
    >>> name_class(find_family("distilbert"), TEXTS)
    'DistilBertForSequenceClassification'
    """
    return f"{family.class_prefix}For{class_suffix}"


def list_entries(
    family: Family, spec: ModelSpec, head: str, names: HeadNames
) -> list[TensorEntry]:
    """The tensors of a network with a task head instead of its pretraining head."""
    body = [
        entry
        for entry in family.tensors(spec, head)
        if not any(HEAD.match(path) for path in entry.paths)
    ]
    return body + names.list_entries()


def task_to_hf(
    network: Any,
    task_head: Any,
    family: Family,
    spec: ModelSpec,
    head: str,
    names: HeadNames,
) -> dict[str, np.ndarray]:
    """The tensors of a fine-tuned checkpoint."""
    flat = flatten(unstack_layers(network)) | {
        f"task/{path}": leaf for path, leaf in flatten(task_head).items()
    }
    entries = list_entries(family, spec, head, names)
    return {entry.hf_name: join(entry, flat) for entry in entries}


def task_from_hf(
    tensors: Mapping[str, np.ndarray], names: HeadNames
) -> dict[str, dict[str, np.ndarray]]:
    """The head's parameters of a fine-tuned checkpoint."""
    params: dict[str, dict[str, np.ndarray]] = {}
    for entry in names.list_entries():
        if entry.hf_name not in tensors:
            raise DataError(f"tensor {entry.hf_name}: is missing")
        value = np.asarray(tensors[entry.hf_name], np.float32)
        value = np.ascontiguousarray(value.T) if entry.is_transposed else value
        _, layer, name = entry.paths[0].split("/")
        params.setdefault(layer, {})[name] = value
    return params


def write_labels(
    labels: tuple[str, ...], class_suffix: str, kind: str
) -> dict[str, Any]:
    """The fields of a config.json that describe a task's labels.

    Args:
      kind: "single_label_classification", "multi_label_classification" or "regression".
    """
    if class_suffix in (QUESTIONS, CHOICES):
        return {}  # the defaults are right: starts, ends and options have no names
    fields: dict[str, Any] = {"problem_type": kind} if class_suffix == TEXTS else {}
    names = labels or ("LABEL_0",)
    return fields | {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }


# The head of an imported fine-tuned checkpoint, in the folder of the run.
FILE = "task_head.npz"


class KeptHead(NamedTuple):
    """The task head of an imported checkpoint.

    Attributes:
      class_suffix: the end of the name of transformers' class, such as `TEXTS`.
      labels: the names of the labels, in order.
      params: of the modules of `jaxpt.nn.task_heads`.
      form: of `jaxpt.nn.task_heads.FORMS`; "" if any form computes it.
    """

    class_suffix: str
    labels: tuple[str, ...]
    params: dict[str, dict[str, np.ndarray]]
    form: str = ""


def find_task(config: dict) -> str:
    """The task that a checkpoint was fine-tuned for; "" for no known one."""
    names = config.get("architectures") or []
    known = (TEXTS, TOKENS, QUESTIONS, CHOICES)
    tasks = (
        class_suffix
        for class_suffix in known
        for name in names
        if name.endswith(f"For{class_suffix}")
    )
    return next(tasks, "")


def read_head(
    config: dict, family: Family, tensors: Mapping[str, np.ndarray]
) -> KeptHead | None:
    """The head of a fine-tuned checkpoint; None if it has none."""
    class_suffix = find_task(config)
    known = family.task_heads.get(class_suffix)
    if known is None:
        return None
    names = _find_set(known, config, name_class(family, class_suffix))
    head_tensors = {
        name: tensors[name]
        for name in tensors
        if not name.startswith(family.body) or "pooler" in name
    }
    params = task_from_hf(head_tensors, names)
    label_names = config.get("id2label") or {}
    labels = [label_names[key] for key in sorted(label_names, key=int)]
    return KeptHead(class_suffix, tuple(labels), params, names.form)


def keep_head(workdir: Path, head: KeptHead) -> None:
    """Writes a head into the folder of a run."""
    arrays = {
        f"{layer}/{name}": x
        for layer, values in head.params.items()
        for name, x in values.items()
    }
    data = io.BytesIO()
    about = {"what": head.class_suffix, "labels": head.labels, "form": head.form}
    np.savez(data, allow_pickle=False, about=np.array(json.dumps(about)), **arrays)
    checksums.write(workdir / FILE, data.getvalue())


def _find_set(known: tuple[HeadNames, ...], config: dict, class_name: str) -> HeadNames:
    """The head that a config's settings make; a missing setting is the first's."""
    defaults = dict(known[0].settings)
    values = {name: config.get(name, default) for name, default in defaults.items()}
    for names in known:
        if dict(names.settings) == values:
            return names
    for name, value in values.items():
        allowed = list(dict.fromkeys(dict(names.settings)[name] for names in known))
        if value not in allowed:
            text = " or ".join(map(repr, allowed))
            raise DataError(
                f"config.json: {name}={value!r}: must be {text} for the head of "
                f"{class_name}"
            )
    raise ValueError(f"no head of {class_name} has the settings {values}")


# The schema of a stored head's description.
_ABOUT = {"what": str, "labels": [str], "form": str}


def load_head(workdir: Path) -> KeptHead | None:
    """Reads the head that `keep_head` wrote; None if there is none."""
    path = workdir / FILE
    if not path.exists():
        return None
    params: dict[str, dict[str, np.ndarray]] = {}
    with np.load(io.BytesIO(checksums.read(path)), allow_pickle=False) as arrays:
        about = schema.parse(str(arrays["about"]), _ABOUT)
        for key in arrays.files:
            layer, _, name = key.partition("/")
            if name:
                params.setdefault(layer, {})[name] = arrays[key]
    return KeptHead(about["what"], tuple(about["labels"]), params, about["form"])
