"""Learning rates by depth, and layers that begin to be trained one after the other.

A network's parameters are groups by how far they are from its input: the embeddings
(depth 0), its layers from the first (1, 2, ..., n; a decoder's after the encoder's),
and what stands on them, the head (n + 1). A group's rate is the schedule's times

    plain      decay^(n + 1 - depth)       Howard & Ruder 2018 (decay 1 / 2.6), BEiT
    electra    decay^(n + 2 - depth), the head's as if of depth n + 2
               (google-research/electra: model/optimization.py)

ELECTRA's leaves the place of a pooler between the last layer and the head, which its
fine-tuning lacks: the last layer has decay^2. Its published numbers have it.
"""

import dataclasses
import functools
import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxpt.errors import UserError
from jaxpt.learn.frozen import is_frozen
from jaxpt.learn.optim_spec import OptimSpec
from jaxpt.learn.optimizer import make_optimizer, set_schedule_step

FORMS = ("plain", "electra")
# A stack's layer, a Transformer's or an LSTM's.
LAYER = re.compile(r"(?:layer|lstm)_(\d+)")
# What a text goes through before the first layer, whichever stack's.
BELOW = ("embed", "decoder_embed", "project", "words", "contexts")


@dataclasses.dataclass(frozen=True)
class GroupSpec:
    """How groups of parameters differ in training.

    Attributes:
      decay: of the learning rate from a group to the one below it; 1 is the same rate
        for all. ELECTRA's is 0.8, ULMFiT's 1 / 2.6.
      form: how the depths are counted, "plain" or "electra".
      unfreeze: epochs in which groups begin to be trained one after the other: the head
        alone in the first, the last layer with it in the second, ...; all that are left
        begin after them. 0 trains all from the start.
    """

    decay: float = 1.0
    form: str = "plain"
    unfreeze: int = 0

    def __post_init__(self):
        _check(self, "decay", 0 < self.decay <= 1, "above 0, at most 1")
        _check(self, "form", self.form in FORMS, f"one of {', '.join(FORMS)}")
        is_good = self.form == "plain" or self.decay < 1
        _check(self, "form", is_good, "plain with groups.decay=1")
        _check(self, "unfreeze", self.unfreeze >= 0, "at least 0")

    def check_epochs(self, num_epochs: float) -> None:
        """Raises UserError where some groups would not begin within the run."""
        is_good = self.unfreeze == 0 or self.unfreeze < num_epochs
        allowed = f"below the run's {num_epochs} epochs, or some would never be trained"
        _check(self, "unfreeze", is_good, allowed)


def _check(spec: GroupSpec, name: str, is_good: bool, allowed: str) -> None:
    if not is_good:
        raise UserError(f"groups.{name}={getattr(spec, name)}: must be {allowed}")


class Depths(NamedTuple):
    """How many layers there are: n is their sum."""

    encoder: int
    decoder: int = 0

    @property
    def head(self) -> int:
        """The depth of what stands on the layers."""
        return self.encoder + self.decoder + 1

    def find(self, path: str) -> int:
        """The depth of a parameter of {"network", "head", "extra"} by its path.

        A stack's relative bias belongs to its first layer, its last norm to its last.

        >>> depths = Depths(2)
        >>> paths = "embed/tokens", "encoder/layer_0/mlp/up/bias", "encoder/norm/scale"
        >>> [depths.find(f"network/{path}") for path in paths], depths.find("head/out")
        ([0, 1, 2], 3)
        """
        part, *names = path.split("/")
        if part == "head":
            return self.head
        is_second = "decoder" in names
        found = [LAYER.fullmatch(name) for name in names]
        below = self.encoder if is_second else 0
        for match in filter(None, found):
            return below + int(match[1]) + 1
        if "relative" in names:
            return below + 1
        if "encoder" in names or is_second:
            return below + (self.decoder if is_second else self.encoder)
        return 0 if names[0] in BELOW else self.head


def count_layers(state) -> Depths:
    """How many layers the parameters {"network", "head", "extra"} have, unrolled."""
    counts = {False: 0, True: 0}
    for path, _ in jax.tree_util.tree_leaves_with_path(state["network"]):
        names = _name(path).split("/")
        for match in filter(None, map(LAYER.fullmatch, names)):
            is_second = "decoder" in names
            counts[is_second] = max(counts[is_second], int(match[1]) + 1)
    return Depths(counts[False], counts[True])


def find_multiplier(spec: GroupSpec, depths: Depths, path: str) -> float:
    """What the learning rate of a parameter is multiplied by.

    >>> spec, depths = GroupSpec(0.8, "electra"), Depths(12)
    >>> paths = "head/out", "network/encoder/layer_11/mlp", "network/embed/tokens"
    >>> [round(find_multiplier(spec, depths, path), 5) for path in paths]
    [1.0, 0.64, 0.04398]
    """
    depth, top = depths.find(path), depths.head
    if spec.form == "electra":
        depth, top = depth + (depth == top), top + 1
    return spec.decay ** (top - depth)


def _name(path) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _map_by_path(function, tree):
    """(path, leaf) -> leaf over a tree."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: function(_name(path), leaf), tree
    )


def scale_groups(spec: GroupSpec, depths: Depths) -> optax.GradientTransformation:
    """Updates times their groups' multipliers; decay of weights is scaled as well."""
    return optax.stateless(
        lambda updates, _: _map_by_path(
            lambda path, x: x * find_multiplier(spec, depths, path), updates
        )
    )


def find_start(spec: GroupSpec, depths: Depths, path: str, epoch_steps: int) -> int:
    """The step in which a parameter begins to be trained.

    >>> spec, depths = GroupSpec(unfreeze=2), Depths(12)
    >>> paths = "head/out", "network/encoder/layer_11/mlp", "network/embed/tokens"
    >>> [find_start(spec, depths, path, 100) for path in paths]
    [0, 100, 200]
    """
    return min(depths.head - depths.find(path), spec.unfreeze) * epoch_steps


def gate(starts) -> optax.GradientTransformation:
    """Gradients of what has not begun become zero, so that no norm counts them."""

    def update(grads, state, params=None):
        gated = _map_by_path(
            lambda path, x: jnp.where(state.count >= starts(path), x, 0), grads
        )
        return gated, optax.ScaleByScheduleState(state.count + 1)

    def init(params):
        return optax.ScaleByScheduleState(jnp.zeros((), jnp.int32))

    return optax.GradientTransformation(init, update)


class HeldState(NamedTuple):
    """An optimizer's state, and the steps of the run, which its schedules follow."""

    inner: optax.OptState
    num_steps: jax.Array


def hold(inner: optax.GradientTransformation, start: int):
    """An optimizer that begins in a step, its moments and their correction with it."""

    def init(params):
        return HeldState(inner.init(params), jnp.zeros((), jnp.int32))

    def update(grads, state, params=None):
        was = set_schedule_step(state.inner, state.num_steps)
        updates, now = inner.update(grads, was, params)
        has_begun = state.num_steps >= start
        pick = functools.partial(jnp.where, has_begun)
        updates = jax.tree.map(lambda x: pick(x, jnp.zeros_like(x)), updates)
        return updates, HeldState(jax.tree.map(pick, now, was), state.num_steps + 1)

    return optax.GradientTransformation(init, update)


def make_grouped_optimizer(
    optim: OptimSpec,
    groups: GroupSpec,
    state: dict,
    num_steps: int,
    epoch_steps: int,
    frozen: tuple[str, ...] = (),
) -> optax.GradientTransformation:
    """The optimizer of a task's parameters, `make_optimizer`'s where groups are alike.

    Departure: ULMFiT's source begins its schedule anew whenever it unfreezes a group;
    here the one schedule of the run goes on.

    Args:
      state: {"network", "head", "extra"}; their paths say the depths.
      epoch_steps: steps of an epoch.
      frozen: paths of parameters that have neither updates nor moments.
    """
    depths = count_layers(state)
    if not groups.unfreeze:
        made = make_optimizer(optim, num_steps, frozen)
        if groups.decay == 1:
            return made
        return optax.chain(made, scale_groups(groups, depths))

    def starts(path: str) -> int:
        return find_start(groups, depths, path, epoch_steps)

    def label(path, leaf):
        return -1 if is_frozen(path, frozen) else starts(_name(path))

    alone = dataclasses.replace(optim, clip_norm=0.0)
    begun = {epoch * epoch_steps for epoch in range(groups.unfreeze + 1)}
    parts = {start: hold(make_optimizer(alone, num_steps), start) for start in begun}
    labels = functools.partial(jax.tree_util.tree_map_with_path, label)
    clip = [optax.clip_by_global_norm(optim.clip_norm)] if optim.clip_norm else []
    return optax.chain(
        gate(starts),
        *clip,
        optax.partition(parts | {-1: optax.set_to_zero()}, labels),
        scale_groups(groups, depths),
    )
