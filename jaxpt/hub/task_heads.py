"""Heads of downstream tasks as transformers has them, there and back.

    family      classification of texts     tokens          choice
    bert        bert                        any             bert
    roberta     roberta                     any             -
    distilbert  distilbert                  any             distilbert
    electra     electra_dense               any             electra_dense
    bart        bart                        -               -
    gpt2        gpt2                        any             -

Each names the form (`jaxpt.nn.task_heads.FORMS`) whose numbers transformers' class
gives. The heads of ELECTRA's and GPT's own sources ("electra", "gpt") are one linear
layer. transformers' class of ELECTRA's name has a dense layer and a GELU before it, and
GPT-2's has no bias, so these heads cannot be said there, and fine-tuning offers
transformers' as forms of their own.
"""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxpt.errors import UserError
from jaxpt.files import checksums
from jaxpt.hub.convert import HEAD, flatten
from jaxpt.hub.families import Family
from jaxpt.hub.names import BODIES, TABLES, Entry
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.scan import unstack_layers

TEXTS, TOKENS = "SequenceClassification", "TokenClassification"
QUESTIONS, CHOICES = "QuestionAnswering", "MultipleChoice"


class HeadNames(NamedTuple):
    """A head of a family: its form, "" for any, and the names of its layers.

    Attributes:
      layers: of transformers -> ours.
      has_bias: whether the layers have biases.
      settings: of config.json, by which the class computes this head.
      finds_last: by which id of config.json the class finds a text's last token,
        whatever the attention mask says: "pad", the last token that is not it; "eos",
        the last one of it; "" for a class that does not look for one.
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
# How transformers' ElectraSequenceSummary makes one vector of an option.
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
    (family, what): names
    for family in ("bert", "roberta", "distilbert", "electra", "gpt2")
    for what, names in ((TOKENS, _TAGS), (QUESTIONS, _ANSWERS))
}
# How transformers' classes begin, where not as the family is called.
CLASSES = {
    "bert": "Bert",
    "roberta": "Roberta",
    "distilbert": "DistilBert",
    "electra": "Electra",
    "bart": "Bart",
    "gpt2": "GPT2",
}


def find_names(family: Family, what: str, form: str) -> HeadNames:
    """The names of a head.

    Raises:
      UserError: transformers has no such class, or one with another head.
    """
    found = TASK_NAMES.get((family.name, what))
    if found is not None and found.form in ("", form):
        return found
    told = (
        f"a {family.name} with task.head={form} has no {what} class in transformers "
        f"with the same numbers; "
    )
    if found is not None:
        raise UserError(
            f"{told}must be fine-tuned with task.head={found.form}, the head of "
            f"{name_class(family, what)}"
        )
    forms = sorted(
        f"{name} ({names.form or 'any head'})"
        for (name, other), names in TASK_NAMES.items()
        if other == what
    )
    raise UserError(f"{told}there are {', '.join(forms)}")


def name_class(family: Family, what: str) -> str:
    """The class of transformers.

    >>> from jaxpt.hub.families import FAMILIES
    >>> name_class(FAMILIES["distilbert"], TEXTS)
    'DistilBertForSequenceClassification'
    """
    return f"{CLASSES[family.name]}For{what}"


def list_entries(
    family: Family, spec: ModelSpec, head: str, names: HeadNames
) -> list[Entry]:
    """The tensors of a network without its own head, and of a task's."""
    body = [
        entry
        for entry in TABLES[family.name](spec, head)
        if not any(HEAD.match(path) for path in entry.ours)
    ]
    for theirs, ours in names.layers.items():
        body.append(
            Entry(f"{theirs}.weight", (f"task/{ours}/kernel",), is_transposed=True)
        )
        if names.has_bias:
            body.append(Entry(f"{theirs}.bias", (f"task/{ours}/bias",)))
    return body


def task_to_hf(
    network, task_head, family: Family, spec: ModelSpec, head: str, names: HeadNames
) -> dict[str, np.ndarray]:
    """The tensors of a fine-tuned checkpoint.

    Raises:
      UserError: a tensor has a value that is not finite.
    """
    flat = flatten(unstack_layers(network)) | {
        f"task/{path}": leaf for path, leaf in flatten(task_head).items()
    }
    out = {}
    for entry in list_entries(family, spec, head, names):
        value = np.concatenate([np.asarray(flat[path]) for path in entry.ours], -1)
        if not np.isfinite(value).all():
            raise UserError(f"tensor {entry.theirs}: has numbers that are not finite")
        value = value.T if entry.is_transposed else value
        out[entry.theirs] = np.ascontiguousarray(value)
    return out


def task_from_hf(
    tensors: Mapping[str, np.ndarray], names: HeadNames
) -> dict[str, dict[str, np.ndarray]]:
    """The head's parameters of a fine-tuned checkpoint.

    Raises:
      UserError: one of its tensors is missing.
    """
    found: dict[str, dict[str, np.ndarray]] = {}
    for theirs, ours in names.layers.items():
        for name in ("weight", "bias")[: 1 + names.has_bias]:
            if f"{theirs}.{name}" not in tensors:
                raise UserError(f"tensor {theirs}.{name}: is missing")
        weight = np.asarray(tensors[f"{theirs}.weight"], np.float32)
        found[ours] = {"kernel": np.ascontiguousarray(weight.T)}
        if names.has_bias:
            found[ours]["bias"] = np.asarray(tensors[f"{theirs}.bias"], np.float32)
    return found


def write_labels(labels: tuple[str, ...], what: str, kind: str) -> dict[str, Any]:
    """What a config says of the labels.

    Args:
      kind: "single_label_classification", "multi_label_classification" or "regression".
    """
    if what == QUESTIONS:
        return {}  # a start and an end have no names; two outputs are the default
    told: dict[str, Any] = {"problem_type": kind} if what == TEXTS else {}
    if what in (QUESTIONS, CHOICES):
        return told
    names = labels or ("LABEL_0",)
    return told | {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }


# A fine-tuned checkpoint's head, beside the run that its network was imported as.
FILE = "task_head.npz"


class KeptHead(NamedTuple):
    """A head that came with a checkpoint.

    Attributes:
      what: what the class of transformers ends with, such as `TEXTS`.
      labels: as the checkpoint calls them, in order.
      params: as of the modules of `jaxpt.nn.task_heads`.
      form: of `jaxpt.nn.task_heads.FORMS`; "" where any computes it.
    """

    what: str
    labels: tuple[str, ...]
    params: dict[str, dict[str, np.ndarray]]
    form: str = ""


def find_task(config: dict) -> str:
    """What task a checkpoint was fine-tuned for; "" for none that is known."""
    names = config.get("architectures") or []
    known = (TEXTS, TOKENS, QUESTIONS, CHOICES)
    found = [what for what in known for name in names if name.endswith(f"For{what}")]
    return found[0] if found else ""


def keep_head(
    workdir: Path, config: dict, family: Family, tensors: Mapping[str, np.ndarray]
) -> bool:
    """Writes the head of a fine-tuned checkpoint; False where it has none.

    Raises:
      UserError: one of its tensors is missing, or a setting makes it another head.
    """
    what = find_task(config)
    names = TASK_NAMES.get((family.name, what))
    if names is None:
        return False
    for name, value in names.settings:
        if config.get(name, value) != value:
            raise UserError(
                f"config.json: {name}={config[name]!r}: must be {value!r} for the head "
                f"of {name_class(family, what)}"
            )
    prefix = BODIES.get(family.name, "")
    named = {
        name: value
        for name, value in tensors.items()
        if not name.startswith(prefix) or "pooler" in name
    }
    params = task_from_hf(named, names)
    told = config.get("id2label") or {}
    labels = [told[key] for key in sorted(told, key=int)]
    arrays = {
        f"{layer}/{name}": x for layer in params for name, x in params[layer].items()
    }
    data = io.BytesIO()
    text = json.dumps({"what": what, "labels": labels, "form": names.form})
    np.savez(data, allow_pickle=False, about=np.array(text), **arrays)
    checksums.write(workdir / FILE, data.getvalue())
    return True


def load_head(workdir: Path) -> KeptHead | None:
    """What `keep_head` has written, if it has.

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
    # A head that was kept before forms were has none.
    form = about.get("form", "")
    return KeptHead(about["what"], tuple(about["labels"]), params, form)
