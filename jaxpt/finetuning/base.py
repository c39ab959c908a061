"""Loads the network to fine-tune: parameters, special tokens, form of the head."""

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxpt.config.settings import default_config
from jaxpt.errors import ConfigError, argument
from jaxpt.files import disk
from jaxpt.files.remote import fetch
from jaxpt.finetuning.heads import choose_form
from jaxpt.hub.download import is_name, split_name
from jaxpt.hub.files import read_json
from jaxpt.hub.imports import import_run
from jaxpt.hub.origin import read_base_model
from jaxpt.hub.shipped import find_model
from jaxpt.hub.task_heads import KeptHead, load_head
from jaxpt.nn.networks.network import Network
from jaxpt.nn.scan import list_specs, unroll, unstack_layers
from jaxpt.nn.task_heads import FORMS
from jaxpt.rng import stream
from jaxpt.runs.task import Task
from jaxpt.runs.text_encoder import make_encoder
from jaxpt.runs.workdir import load_run, load_task
from jaxpt.tasks.encoder import TextEncoder
from jaxpt.text.tokens.tokenizer import Tokenizer

SCRATCH = "scratch:"
BASE = "base"  # in a fine-tuning's folder: the run imported from transformers


@dataclasses.dataclass(frozen=True)
class Base:
    """A network to fine-tune.

    Attributes:
      task: of pretraining.
      network: unrolled, the part that is fine-tuned.
      params: its parameters, in NumPy; None if each seed initializes its own.
      pooler: layers of the head that pretraining has trained, by name, or None: the
        dense layer of BERT's sentence head, or what is before ModernBERT's logits.
      form: of the head.
      source: the folder, as the user named it.
      head: of an imported fine-tuned checkpoint.
      unfinished: the progress of a run whose training has not ended; else "".
    """

    task: Task
    tokenizer: Tokenizer
    network: Network
    params: Any
    pooler: Any
    form: str
    encoder: TextEncoder
    source: str
    step: int
    head: KeptHead | None = None
    unfinished: str = ""

    def draw(self, seed: int) -> tuple[Any, Any]:
        """The network's parameters for a seed, and its pooler, if there is one."""
        if self.params is not None:
            return self.params, self.pooler
        params = self.task.model.init_params(stream(seed, 0, "init"))
        return _task_part(self.task, params)[1], None

    def fingerprint(self) -> str:
        """sha256 of the network's settings and parameters, in hex.

        Settings are those that differ from their defaults, so that a new setting of a
        later version changes no fingerprint.
        """
        specs = {n: spec.changed() for n, spec in list_specs(self.network).items()}
        digest = hashlib.sha256(repr(specs).encode())
        if self.params is not None:
            head = self.head.params if self.head else None
            tree = self.params, self.pooler, head
            for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
                digest.update(jax.tree_util.keystr(path).encode())
                digest.update(np.ascontiguousarray(leaf).tobytes())
        return digest.hexdigest()


def load_base(
    source: str, head: str, max_len: int, dropout: float, class_suffix: str = ""
) -> Base:
    """The network of a run, with `task.head`, `task.max_len` and `train.dropout`.

    Args:
      class_suffix: as for `choose_form`.
      source: a run's folder, or "scratch:" and a run's folder for a random
        initialization of the same network.
    """
    is_scratch = source.startswith(SCRATCH)
    folder = fetch(source.removeprefix(SCRATCH))
    if is_scratch:
        base = make_fresh_base(*load_task(folder), head, max_len, dropout, class_suffix)
        return dataclasses.replace(base, source=source)
    program, tokenizer, params, step = load_run(folder)
    task = program.task
    own_head = load_head(folder)
    if head == "auto" and own_head and own_head.form:
        head = own_head.form
    base = make_fresh_base(task, tokenizer, head, max_len, dropout, class_suffix)
    _, params = _task_part(task, jax.device_get(params))
    pooler = None
    if base.form == "bert" and "pair_score" in params:
        pooler = {"pool": params["pair_score"]["pool"]}
    if FORMS[base.form].has_lm_head and "transform" in params.get("head", {}):
        layers = params["head"]
        pooler = {"pool": layers["transform"], "norm": layers["norm"]}
    return dataclasses.replace(
        base,
        params=params,
        pooler=pooler,
        source=source,
        step=step,
        head=own_head,
        unfinished=_find_unfinished(folder, task, step),
    )


def _find_unfinished(folder: Path, task: Task, step: int) -> str:
    """The progress of a run whose training has not ended; else "".

    An imported run without further training has no data.json.
    """
    spec = task.plan.train
    if not (folder / "data.json").exists():
        return ""
    if spec.seconds:
        is_over = (folder / "result.json").exists()
        return "" if is_over else f"step {step}, before train.seconds={spec.seconds:g}"
    return "" if step >= spec.steps else f"step {step} of train.steps={spec.steps}"


def make_fresh_base(
    task: Task,
    tokenizer: Tokenizer,
    head: str,
    max_len: int,
    dropout: float,
    class_suffix: str = "",
) -> Base:
    """The network of a task with random initialization.

    Args: as for `load_base`.
    """
    shapes = jax.eval_shape(lambda: task.model.init_params(jax.random.key(0)))
    network, _ = _task_part(task, shapes)
    form = choose_form(task, head, network, class_suffix)
    return Base(
        task=task,
        tokenizer=tokenizer,
        network=_with_dropout(network, dropout) if dropout >= 0 else network,
        params=None,
        pooler=None,
        form=form,
        encoder=make_encoder(task, tokenizer, form, max_len),
        source=SCRATCH,
        step=0,
    )


def import_source(source: str, folder: Path) -> str:
    """The run to fine-tune: the source, or the import of a model of transformers.

    It is imported once, into `folder`/base.

    Args:
      source: as for `load_base`; or a folder of transformers, or a name on the Hugging
        Face Hub.
    """
    name = find_model(source.removeprefix(SCRATCH))
    place, imported = fetch(name), folder / BASE
    if place.is_dir():
        config = place / "config.json"
        if not config.is_file() or "model_type" not in read_json(place, config.name):
            return source
    elif not is_name(name):
        return source
    if not (imported / "config.json").exists():
        disk.remove(imported)  # of an import that was killed
        import_run(name, imported, default_config())
    elif not place.is_dir():
        _check_imported(name, imported)
    return f"{SCRATCH}{imported}" if source.startswith(SCRATCH) else str(imported)


def _check_imported(name: str, imported: Path) -> None:
    """Raises UserError if an import is not of this name on the Hub."""
    base = read_base_model(imported)
    if base is None or split_name(name) != (base.repository, base.revision):
        raise ConfigError(
            f"{argument('from')}={name}: {imported} was imported from another model; "
            "fine-tune in another folder"
        )


def _task_part(task: Task, params: Any) -> tuple[Network, Any]:
    """The unrolled network that is fine-tuned, and its parameters."""
    return unroll(task.model).task_part(unstack_layers(params))


def _with_dropout(network: Any, rate: float) -> Any:
    rates: Any = dict.fromkeys(("dropout", "embed_dropout", "attention_dropout"), rate)
    changed = {
        name: dataclasses.replace(spec, **rates)
        for name, spec in list_specs(network).items()
    }
    return network.clone(**changed)
