"""Configs in Python, and the parts of a custom training loop."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxpt import trust as trust_list
from jaxpt.api.arguments import SettingsDict, name_arguments
from jaxpt.config import finetuning
from jaxpt.config.config_files import load_stored, read_config_file
from jaxpt.config.plan import make_plan
from jaxpt.config.settings import (
    default_section,
    list_code,
    list_outside,
    override,
    to_dict,
)
from jaxpt.errors import ConfigError
from jaxpt.learn.state import TrainState
from jaxpt.logs import terminal
from jaxpt.objectives import find, find_section
from jaxpt.runs.data import make_feed, with_token_counts
from jaxpt.runs.initial_state import check_start, make_start
from jaxpt.runs.program import Program
from jaxpt.runs.task import Task, make_task
from jaxpt.runs.train_calls import make_step
from jaxpt.text.dataset import Split, load_text
from jaxpt.text.feed import Feed
from jaxpt.text.tokens.tokenizer import Tokenizer

# A config, or its file: "configs/quickstart.py", "FILE.py:ARGUMENT", "config.json".
Config = Any


class Prepared(NamedTuple):
    """The parts of a custom training loop; `jaxpt.prepare` makes it.

    Attributes:
      task: `objective` (corrupt, masks, loss, train_step), `spec`, `vocab`, `model`,
        `optimizer`, `make_update()`.
      corpora: "train" and "valid".
      feed: `feed[step]` is the batch of a step, {"tokens": int32 [B, R], ...}.

    >>> import jax
    >>> prepared = jaxpt.prepare("runs/clm/config.json")
    >>> prepared.feed[0]["tokens"].shape
    (8, 24)
    >>> state = prepared.init_state(seed=0)
    >>> step = jax.jit(prepared.train_step)
    >>> state, metrics = step(state, prepared.feed[0])
    >>> int(state.step), sorted(metrics)
    (1, ['accuracy', 'grad_norm', 'loss'])
    """

    task: Task
    tokenizer: Tokenizer
    corpora: dict[str, Split]
    feed: Feed

    def init_state(self, seed: int | None = None) -> TrainState:
        """The state before the first step, as in `jaxpt train`.

        Its parameters are random, or those of `train.init_from` and of the teacher.

        Args:
          seed: None is the config's `train.seed`.

        Raises:
          UserError: a run to start from, or to learn from, has no good checkpoint.
        """
        train = self.task.plan.train
        if seed is not None:
            train = dataclasses.replace(train, seed=seed)
        program = Program(self.task, jax.local_devices()[:1], is_training=False)
        state = jax.device_get(make_start(program, train))
        return jax.tree.map(jnp.asarray, state)  # may be put on any device

    def train_step(
        self, state: TrainState, rows: dict[str, Any], seed: int | None = None
    ) -> tuple[TrainState, dict[str, Any]]:
        """A step of `jaxpt train`, to be jitted: the state one step later.

        Skips of updates (`optim.max_skips`) and the moving average of the parameters
        (`optim.ema_decay`, `state.eval_params`) are part of it. Its random keys come
        from the seed and the state's step.

        Args:
          seed: None is the config's `train.seed`.

        Returns:
          The state, and metrics: name -> (sum, weight).
        """
        task = self.task.for_batch(*rows["tokens"].shape)
        seed = task.plan.train.seed if seed is None else seed
        state, metrics = make_step(task)(state, (rows, None), seed)
        for name in ("skips", "loss_scale"):  # of the state, no sums and weights
            metrics.pop(name, None)
        return state, metrics


@name_arguments()
def read_config(
    config: Config,
    settings: Mapping[str, Any] | None = None,
    trust: str | Sequence[str] = (),
) -> SettingsDict:
    """A config's settings by section: a dict whose items are attributes, too.

    Args:
      config: a ConfigDict, a dict, or text: a Python file, the name of
        a config that comes with jaxpt, or a run's config.json.
      settings: values by full name that replace the config's: {"train.steps": 100}.
      trust: code outside jaxpt that the config names and that may be executed, such as
        "my_package.my_objective", and remote places that may be read, such as
        "gs://bucket/text". What `settings` or a .py file names is trusted, of a
        ConfigDict the remote places; what a run's config.json or a dict names is not.

    Raises:
      ConfigError: the file is missing, a setting is unknown, or the config names code
        that is not trusted.

    >>> config = {"objective": "clm", "train": {"steps": 5}}
    >>> jaxpt.read_config(config, {"train.steps": 9})
    {'objective': 'clm', 'train': {'steps': 9}}
    >>> jaxpt.read_config("quickstart:mlm").objective
    'mlm'
    """
    changes: dict[str, Any] = {}
    for name, value in to_dict(dict(settings or {})).items():
        section, _, field = name.partition(".")
        if field:
            changes.setdefault(section, {})[field] = value
        else:
            changes[section] = value
    trust_list.trust(trust)
    trust_list.trust(list_code(changes))
    if isinstance(config, str | os.PathLike):
        source = os.fspath(config)
        is_stored = source.endswith(".json")
        config = load_stored(source) if is_stored else read_config_file(source)
        trust_list.trust_places(() if is_stored else to_dict(config))
    whole = _with_outside(to_dict(config), changes)
    types = finetuning.find_types(whole) if "task" in whole else None
    return SettingsDict(override(whole, changes, "settings", types))


def _with_outside(config: dict, changes: dict) -> dict:
    """The config with the settings of objectives outside jaxpt at their defaults.

    Raises:
      UserError: one that is named cannot be loaded.
    """
    compare = config.get("compare", {}), changes.get("compare", {})
    named = {k: v for k, v in (config | changes).items() if k == "objective"}
    parts = [part for part in compare if isinstance(part, dict)]
    named["compare"] = {k: v for part in parts for k, v in part.items()}
    for name in list_outside(named):
        section, default = find_section(name), default_section(find(name).Spec)
        config = config | {section: to_dict(default) | config.get(section, {})}
    return config


@name_arguments()
def prepare(
    config: Config,
    settings: Mapping[str, Any] | None = None,
    trust: str | Sequence[str] = (),
) -> Prepared:
    """The task, the text and the batches of a config, for a custom training loop.

    Args:
      config, settings, trust: as of `read_config`.

    Raises:
      UserError: a setting is wrong; the objective needs a teacher and names none; or
        the teacher or `train.init_from` has another network.

    >>> task, tokenizer, corpora, feed = jaxpt.prepare("runs/clm/config.json")
    >>> corpora["train"].num_documents
    1
    """
    plan = make_plan(
        read_config(config, settings, trust), list(settings or ()), is_run=True
    )
    if plan.lacks_teacher:
        name = f"{plan.objective_name}.teacher"
        raise ConfigError(f"{name}='': must name a run's folder")
    with terminal():
        tokenizer, corpora = load_text(plan.text)
    vocab = with_token_counts(plan, tokenizer.vocab, corpora["train"])
    task = make_task(plan, vocab)
    check_start(task, tokenizer)
    return Prepared(task, tokenizer, corpora, make_feed(task, corpora["train"]))
