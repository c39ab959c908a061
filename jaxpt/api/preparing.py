"""What a training loop of one's own begins with, and configs in Python."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxpt import trust as trust_list
from jaxpt.config.config_files import read_config_file
from jaxpt.config.plan import make_plan
from jaxpt.config.settings import (
    default_section,
    list_code,
    list_outside,
    override,
    to_dict,
)
from jaxpt.errors import UserError
from jaxpt.learn.state import TrainState, make_state
from jaxpt.objectives import find, find_section
from jaxpt.rng import split_step, stream
from jaxpt.text.dataset import Split, load_text
from jaxpt.text.feed import Feed
from jaxpt.text.tokens.tokenizer import Tokenizer
from jaxpt.training.data import make_feed, with_token_counts
from jaxpt.training.task import Task, make_task
from jaxpt.training.teacher import lacks_teacher

# A config, or the file that makes one: "configs/quickstart.py", "FILE.py:ARGUMENT".
Config = Any


class Prepared(NamedTuple):
    """What a training loop of one's own begins with; `jaxpt.prepare` makes it.

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

    def init_state(self, seed: int = 0) -> TrainState:
        """Fresh parameters and the optimizer's state."""
        params = self.task.model.init_params(stream(seed, 0, "init"))
        return make_state(params, self.task.optimizer, self.task.has_ema)

    def train_step(
        self, state: TrainState, rows: dict, seed: int = 0
    ) -> tuple[TrainState, dict]:
        """The objective's own train step, to be jitted: the state one step later.

        Its keys come from the seed and the state's step, as in `jaxpt train`.

        Returns:
          The state, and metrics: name -> (sum, weight).
        """
        task, rngs = self.task, split_step(stream(seed, state.step, "train"))
        if "progress" in task.spec.READS:
            share = state.step / task.plan.train.steps
            rows = rows | {"progress": jnp.full(rows["index"].shape, share)}
        parts: dict[str, Any] = {"rows": rows, "model": task.model}
        parts |= {"vocab": task.vocab, "spec": task.spec}
        parts |= {"update": task.make_update()}
        return task.objective.train_step(state, rngs=rngs, **parts)


def read_config(
    config: Config,
    settings: Mapping[str, Any] | None = None,
    trust: str | Sequence[str] = (),
) -> dict:
    """A config's settings, plain values by section.

    Args:
      config: a ConfigDict, a dict, or the file that makes one, as `--config` has it;
        a run's config.json too.
      settings: full names and values that are put in, as flags do:
        {"train.steps": 100}.
      trust: code outside jaxpt that the config names and that may be executed, such as
        "my_package.my_objective". What `settings` or a .py file name is trusted, what
        a run's config.json or a dict names is not.

    Raises:
      UserError: there is no such file or setting, or the config names code that is not
        trusted.

    >>> read_config({"objective": "clm", "train": {"steps": 5}}, {"train.steps": 9})
    {'objective': 'clm', 'train': {'steps': 9}}
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
        told = os.fspath(config)
        config = read_json_config(told) if told.endswith(".json") else None
        config = read_config_file(told) if config is None else config
    return override(_with_outside(to_dict(config), changes), changes, "settings")


def _with_outside(config: dict, changes: dict) -> dict:
    """The config with the settings of objectives of the user's own, at their defaults.

    Raises:
      UserError: one that is named cannot be loaded.
    """
    compare = config.get("compare", {}), changes.get("compare", {})
    named = {"objective": changes.get("objective", config.get("objective"))}
    parts = [part for part in compare if isinstance(part, dict)]
    named["compare"] = {k: v for part in parts for k, v in part.items()}
    for name in list_outside(named):
        section, default = find_section(name), default_section(find(name).Spec)
        config = config | {section: to_dict(default) | config.get(section, {})}
    return config


def read_json_config(told: str) -> dict:
    """The config of a run's config.json: every setting there is."""
    from jaxpt.config.stored import get_config

    return get_config(told)


def prepare(
    config: Config,
    settings: Mapping[str, Any] | None = None,
    trust: str | Sequence[str] = (),
) -> Prepared:
    """The task, the text and the batches of a config, for a loop of one's own.

    Args:
      config, settings, trust: as of `read_config`.

    Raises:
      UserError: a setting is wrong, or the objective needs a teacher and names none.

    >>> task, tokenizer, corpora, feed = jaxpt.prepare("runs/clm/config.json")
    >>> corpora["train"].num_documents
    1
    """
    plan = make_plan(
        read_config(config, settings, trust), list(settings or ()), is_run=True
    )
    if lacks_teacher(plan):
        name = f"{plan.objective_name}.teacher"
        raise UserError(f"{name}='': must name a run's folder")
    tokenizer, corpora = load_text(plan.text)
    vocab = with_token_counts(plan, tokenizer.vocab, corpora["train"])
    task = make_task(plan, vocab)
    return Prepared(task, tokenizer, corpora, make_feed(task, corpora["train"]))
