"""Converts heads of downstream tasks to transformers' and back.

    family      classification of texts     tokens          choice
    bert        bert                        any             bert
    roberta     roberta                     any             -
    distilbert  distilbert                  any             distilbert
    electra     electra_dense               any             electra_dense
    bart        bart                        -               -
    gpt2        gpt2                        any             -

Each cell is the form of head (`jaxpt.nn.task_heads.FORMS`) that computes the same as
transformers' class. The heads of ELECTRA's and GPT's original code ("electra", "gpt")
are one linear layer and cannot be exported: transformers' ELECTRA class has a dense
layer and a GELU before it, and its GPT-2 class has no bias. Fine-tuning has separate
forms for these two.
"""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxpt.errors import DataError
from jaxpt.files import checksums
from jaxpt.hub.convert import HEAD, flatten, join
from jaxpt.hub.families import Family
from jaxpt.hub.names import BODIES, TABLES, Entry
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.scan import unstack_layers

TEXTS, TOKENS = "SequenceClassification", "TokenClassification"
QUESTIONS, CHOICES = "QuestionAnswering", "MultipleChoice"


class HeadNames(NamedTuple):
    """The tensor names of a head of one family.

    Attributes:
      form: of the head; "" for any.
      layers: names in transformers -> jaxpt's names.
      has_bias: whether the layers have biases.
      settings: the fields of config.json with which the class computes this head.
      finds_last: the id of config.json by which the class finds a text's last token,
        without regard to the attention mask: "pad", the last token with another id;
        "eos", the last token with this id; "" for a class that reads no last token.
    """

    form: str
    layers: dict[str, str]
    has_bias: bool = True
    settings: tuple[tuple[str, Any], ...] = ()
    finds_last: str = ""


def _pooled(form: str, pool: str, out: str) -> HeadNames:
    return HeadNames(form, {pool: "pool", out: "out"})


_TAGS = HeadNames("", {"classifier": "out"})
_ANSWERS = HeadNames("", {"qa_outputs": "out"})
# How transformers' ElectraSequenceSummary pools the states of an option.
_SUMMARY = (
    ("summary_type", "first"),
    ("summary_use_proj", True),
    ("summary_activation", "gelu"),
)
TASK_NAMES: dict[tuple[str, str], HeadNames] = {
    ("bert", TEXTS): _pooled("bert", "bert.pooler.dense", "classifier"),
    ("bert", CHOICES): _pooled("bert", "bert.pooler.dense", "classifier"),
    ("roberta", TEXTS): _pooled("roberta", "classifier.dense", "classifier.out_proj"),
    ("distilbert", TEXTS): _pooled("distilbert", "pre_classifier", "classifier"),
    ("distilbert", CHOICES): _pooled("distilbert", "pre_classifier", "classifier"),
    ("bart", TEXTS): _pooled(
        "bart", "classification_head.dense", "classification_head.out_proj"
    )._replace(finds_last="eos"),
    ("electra", TEXTS): _pooled(
        "electra_dense", "classifier.dense", "classifier.out_proj"
    ),
    ("electra", CHOICES): HeadNames(
        "electra_dense",
        {"sequence_summary.summary": "pool", "classifier": "out"},
        settings=_SUMMARY,
    ),
    ("gpt2", TEXTS): HeadNames(
        "gpt2", {"score": "out"}, has_bias=False, finds_last="pad"
    ),
} | {
    (family, class_suffix): names
    for family in ("bert", "roberta", "distilbert", "electra", "gpt2")
    for class_suffix, names in ((TOKENS, _TAGS), (QUESTIONS, _ANSWERS))
}


def find_names(family: Family, class_suffix: str, form: str) -> HeadNames:
    """The names of a head's tensors.

    Raises:
      UserError: transformers has no such class, or one with another head.
    """
    names = TASK_NAMES.get((family.form, class_suffix))
    if names is not None and names.form in ("", form):
        return names
    reason = (
        f"a {family.name} with task.head={form} has no {class_suffix} class in "
        f"transformers with the same numbers; "
    )
    if names is not None:
        raise DataError(
            f"{reason}must be fine-tuned with task.head={names.form}, the head of "
            f"{name_class(family, class_suffix)}"
        )
    forms = sorted(
        f"{name} ({each.form or 'any head'})"
        for (name, other), each in TASK_NAMES.items()
        if other == class_suffix
    )
    raise DataError(f"{reason}there are {', '.join(forms)}")


def name_class(family: Family, class_suffix: str) -> str:
    """The class of transformers.

    >>> from jaxpt.hub.families import FAMILIES
    >>> name_class(FAMILIES["distilbert"], TEXTS)
    'DistilBertForSequenceClassification'
    """
    return f"{family.class_prefix}For{class_suffix}"


def list_entries(
    family: Family, spec: ModelSpec, head: str, names: HeadNames
) -> list[Entry]:
    """The tensors of a network with a task head instead of its pretraining head."""
    body = [
        entry
        for entry in TABLES[family.form](spec, head)
        if not any(HEAD.match(path) for path in entry.paths)
    ]
    for hf_name, module in names.layers.items():
        body.append(Entry(f"{hf_name}.weight", (f"task/{module}/kernel",), True))
        if names.has_bias:
            body.append(Entry(f"{hf_name}.bias", (f"task/{module}/bias",)))
    return body


def task_to_hf(
    network: Any,
    task_head: Any,
    family: Family,
    spec: ModelSpec,
    head: str,
    names: HeadNames,
) -> dict[str, np.ndarray]:
    """The tensors of a fine-tuned checkpoint.

    Raises:
      UserError: a tensor has a value that is not finite.
    """
    flat = flatten(unstack_layers(network)) | {
        f"task/{path}": leaf for path, leaf in flatten(task_head).items()
    }
    entries = list_entries(family, spec, head, names)
    return {entry.hf_name: join(entry, flat) for entry in entries}


def task_from_hf(
    tensors: Mapping[str, np.ndarray], names: HeadNames
) -> dict[str, dict[str, np.ndarray]]:
    """The head's parameters of a fine-tuned checkpoint.

    Raises:
      UserError: one of its tensors is missing.
    """
    params: dict[str, dict[str, np.ndarray]] = {}
    for hf_name, module in names.layers.items():
        for name in ("weight", "bias")[: 1 + names.has_bias]:
            if f"{hf_name}.{name}" not in tensors:
                raise DataError(f"tensor {hf_name}.{name}: is missing")
        weight = np.asarray(tensors[f"{hf_name}.weight"], np.float32)
        params[module] = {"kernel": np.ascontiguousarray(weight.T)}
        if names.has_bias:
            params[module]["bias"] = np.asarray(tensors[f"{hf_name}.bias"], np.float32)
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


def keep_head(
    workdir: Path, config: dict, family: Family, tensors: Mapping[str, np.ndarray]
) -> bool:
    """Writes the head of a fine-tuned checkpoint; False if it has none.

    Raises:
      UserError: one of its tensors is missing, or a setting makes it another head.
    """
    class_suffix = find_task(config)
    names = TASK_NAMES.get((family.form, class_suffix))
    if names is None:
        return False
    for name, value in names.settings:
        if config.get(name, value) != value:
            raise DataError(
                f"config.json: {name}={config[name]!r}: must be {value!r} for the head "
                f"of {name_class(family, class_suffix)}"
            )
    prefix = BODIES.get(family.form, "")
    head_tensors = {
        name: tensors[name]
        for name in tensors
        if not name.startswith(prefix) or "pooler" in name
    }
    params = task_from_hf(head_tensors, names)
    label_names = config.get("id2label") or {}
    labels = [label_names[key] for key in sorted(label_names, key=int)]
    arrays = {
        f"{layer}/{name}": x for layer in params for name, x in params[layer].items()
    }
    data = io.BytesIO()
    text = json.dumps({"what": class_suffix, "labels": labels, "form": names.form})
    np.savez(data, allow_pickle=False, about=np.array(text), **arrays)
    checksums.write(workdir / FILE, data.getvalue())
    return True


def load_head(workdir: Path) -> KeptHead | None:
    """Reads the head that `keep_head` wrote; None if there is none.

    Raises:
      UserError: the file was altered.
    """
    path = workdir / FILE
    if not path.exists():
        return None
    params: dict[str, dict[str, np.ndarray]] = {}
    with np.load(io.BytesIO(checksums.read(path)), allow_pickle=False) as arrays:
        about = json.loads(str(arrays["about"]))
        for key in arrays.files:
            layer, _, name = key.partition("/")
            if name:
                params.setdefault(layer, {})[name] = arrays[key]
    # Files of older versions have no form.
    form = about.get("form", "")
    return KeptHead(about["what"], tuple(about["labels"]), params, form)
