"""Converts heads of downstream tasks to transformers' and back.

    family      classification of texts     tokens          choice
    bert        bert                        any             bert
    roberta     roberta                     any             -
    distilbert  distilbert                  any             distilbert
    electra     electra_dense               any             electra_dense
    bart        bart                        -               -
    gpt2        gpt2                        any             -
    modernbert  modernbert, modernbert_mean (each of the three)

Each cell is a form of head (`jaxpt.nn.task_heads.FORMS`) that computes the same as
transformers' class; "any" is any without a language model's head. The heads of
ELECTRA's and GPT's original code ("electra", "gpt") are one linear layer and cannot be
exported: transformers' ELECTRA class has a dense layer and a GELU before it, and its
GPT-2 class has no bias. Fine-tuning has separate forms for these two.
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
from jaxpt.hub.entries import Entry
from jaxpt.hub.families import Family
from jaxpt.hub.names import BODIES, TABLES
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.scan import unstack_layers
from jaxpt.nn.task_heads import FORMS

TEXTS, TOKENS = "SequenceClassification", "TokenClassification"
QUESTIONS, CHOICES = "QuestionAnswering", "MultipleChoice"


class HeadNames(NamedTuple):
    """The tensor names of a head of one family.

    Attributes:
      form: of the head; "" for any.
      layers: names in transformers -> jaxpt's names; "norm" is a norm.
      unbiased: jaxpt's names of those without a bias.
      settings: the fields of config.json with which the class computes this head.
      finds_last: the id of config.json by which the class finds a text's last token,
        without regard to the attention mask: "pad", the last token with another id;
        "eos", the last token with this id; "" for a class that reads no last token.
    """

    form: str
    layers: dict[str, str]
    unbiased: tuple[str, ...] = ()
    settings: tuple[tuple[str, Any], ...] = ()
    finds_last: str = ""

    def computes(self, form: str) -> bool:
        """Whether a head of this form (`jaxpt.nn.task_heads.FORMS`) is the same."""
        return computes(self.form, form)

    def list_entries(self) -> list[Entry]:
        """The tensors, whose paths are task/LAYER/NAME."""
        entries = []
        for hf_name, layer in self.layers.items():
            is_norm = layer == "norm"
            path = f"task/{layer}/{'scale' if is_norm else 'kernel'}"
            entries.append(Entry(f"{hf_name}.weight", (path,), not is_norm))
            if layer not in self.unbiased:
                entries.append(Entry(f"{hf_name}.bias", (f"task/{layer}/bias",)))
        return entries


def computes(head: str, form: str) -> bool:
    """Whether a head is of this form; "" is any of one linear layer for tokens.

    >>> computes("", "bert"), computes("", "modernbert"), computes("bert", "gpt2")
    (True, False, False)
    """
    return form == head or not (head or FORMS[form].has_lm_head)


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
_NAMES: dict[tuple[str, str], HeadNames] = {
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
        "gpt2", {"score": "out"}, unbiased=("out",), finds_last="pad"
    ),
} | {
    (family, class_suffix): names
    for family in ("bert", "roberta", "distilbert", "electra", "gpt2")
    for class_suffix, names in ((TOKENS, _TAGS), (QUESTIONS, _ANSWERS))
}
_MODERNBERT = tuple(
    HeadNames(
        form,
        {"head.dense": "pool", "head.norm": "norm", "classifier": "out"},
        unbiased=("pool", "norm"),
        settings=(("classifier_pooling", pooling),),
    )
    for form, pooling in (("modernbert", "cls"), ("modernbert_mean", "mean"))
)
# By family and class, the heads that the class can have; the first is the default's.
TASK_NAMES: dict[tuple[str, str], tuple[HeadNames, ...]] = {
    key: (names,) for key, names in _NAMES.items()
} | {
    ("modernbert", class_suffix): _MODERNBERT
    for class_suffix in (TEXTS, TOKENS, QUESTIONS, CHOICES)
}


def find_names(family: Family, class_suffix: str, form: str) -> HeadNames:
    """The names of a head's tensors.

    Raises:
      UserError: transformers has no such class, or one with another head.
    """
    known = TASK_NAMES.get((family.form, class_suffix), ())
    for names in known:
        if names.computes(form):
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
        f"{name} ({' or '.join(each.form or 'any head' for each in heads)})"
        for (name, other), heads in sorted(TASK_NAMES.items())
        if other == class_suffix
    )
    raise DataError(f"{reason}there are {forms}")


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
    return body + names.list_entries()


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
    """The head of a fine-tuned checkpoint; None if it has none.

    Raises:
      UserError: one of its tensors is missing, or a setting makes it another head.
    """
    class_suffix = find_task(config)
    known = TASK_NAMES.get((family.form, class_suffix))
    if known is None:
        return None
    names = _find_set(known, config, name_class(family, class_suffix))
    prefix = BODIES.get(family.form, "")
    head_tensors = {
        name: tensors[name]
        for name in tensors
        if not name.startswith(prefix) or "pooler" in name
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
    """The head that a config's settings make; a missing setting is the first's.

    Raises:
      UserError: a setting has another value.
    """
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


# The schema of what a kept head is.
_ABOUT = {"what": str, "labels": [str], "form": str}


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
        about = schema.parse(str(arrays["about"]), _ABOUT)
        for key in arrays.files:
            layer, _, name = key.partition("/")
            if name:
                params.setdefault(layer, {})[name] = arrays[key]
    return KeptHead(about["what"], tuple(about["labels"]), params, about["form"])
