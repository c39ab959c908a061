"""Layer-wise learning rate decay, and gradual unfreezing.

The parameters of a network form groups by depth: the embeddings (depth 0), the layers
(1, 2, ..., n; those of a decoder after those of the encoder) and the head (n + 1). The
learning rate of a group is that of the schedule times

    plain      decay^(n + 1 - depth)       Howard & Ruder 2018 (decay 1 / 2.6), BEiT
    electra    decay^(n + 2 - depth), and 1 for the head
               (google-research/electra: model/optimization.py)

ELECTRA's form reserves a depth for a pooler between the last layer and the head, which
its fine-tuning does not use: the last layer has decay^2. Its published results use it.
"""

import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import KeyPath
from jaxtyping import PyTree

from jaxpt.learn.frozen import is_frozen
from jaxpt.learn.held import HeldState
from jaxpt.learn.optim_spec import OptimSpec
from jaxpt.learn.optimizer import make_optimizer, set_schedule_step
from jaxpt.nn.scan import path_name
from jaxpt.setting_types import NonNegativeInt, OneOf, PositiveFraction, Settings

FORMS = ("plain", "electra")
# A layer of a Transformer or an LSTM.
LAYER = re.compile(r"(?:layer|lstm)_(\d+)")
# Modules before the first layer of a stack.
EMBEDDING_MODULES = ("embed", "decoder_embed", "project", "words", "contexts")


@dataclasses.dataclass(frozen=True)
class GroupSpec(Settings):
    """Layer-wise learning rate decay and gradual unfreezing.

    Attributes:
      decay: the factor of the learning rate from a group to the one below it; 1 is the
        same rate for all. ELECTRA uses 0.8, ULMFiT 1 / 2.6.
      form: the count of depths, "plain" or "electra".
      unfreeze: the number of epochs in which groups are unfrozen one after the other:
        the head in the first, the last layer in the second, ...; then all others. 0
        trains all groups from the start.
    """

    SECTION: ClassVar[str] = "groups"

    decay: PositiveFraction = 1.0
    form: Annotated[str, OneOf(*FORMS)] = "plain"
    unfreeze: NonNegativeInt = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        is_good = self.form == "plain" or self.decay < 1
        self.check("form", is_good, "plain with groups.decay=1")

    def check_epochs(self, num_epochs: float) -> None:
        """Raises UserError if some groups would not be trained within the run."""
        is_good = self.unfreeze == 0 or self.unfreeze < num_epochs
        allowed = f"below the run's {num_epochs} epochs, or some would never be trained"
        self.check("unfreeze", is_good, allowed)


class Depths(NamedTuple):
    """The numbers of layers; n is their sum."""

    encoder: int
    decoder: int = 0

    @property
    def head(self) -> int:
        """The depth of the head."""
        return self.encoder + self.decoder + 1

    def find(self, path: str) -> int:
        """The depth of a parameter of {"network", "head", "extra"} by its path.

        A stack's relative positions belong to its first layer, its final norm to its
        last.

        >>> depths = Depths(2)
        >>> paths = "embed/tokens", "encoder/layer_0/mlp/up/bias", "encoder/norm/scale"
        >>> [depths.find(f"network/{path}") for path in paths], depths.find("head/out")
        ([0, 1, 2], 3)
        """
        part, *names = path.split("/")
        if part == "head":
            return self.head
        is_second = "decoder" in names
        below = self.encoder if is_second else 0
        for match in filter(None, map(LAYER.fullmatch, names)):
            return below + int(match[1]) + 1
        if "relative" in names or "disentangled" in names:
            return below + 1
        if "encoder" in names or is_second:
            return below + (self.decoder if is_second else self.encoder)
        return 0 if names[0] in EMBEDDING_MODULES else self.head


def count_layers(state: dict) -> Depths:
    """The numbers of layers of the unrolled parameters {"network", "head", "extra"}."""
    counts = {False: 0, True: 0}
    for path, _ in jax.tree_util.tree_leaves_with_path(state["network"]):
        names = path_name(path).split("/")
        for match in filter(None, map(LAYER.fullmatch, names)):
            is_second = "decoder" in names
            counts[is_second] = max(counts[is_second], int(match[1]) + 1)
    return Depths(counts[False], counts[True])


def find_multiplier(spec: GroupSpec, depths: Depths, path: str) -> float:
    """The factor of a parameter's learning rate.

    >>> spec, depths = GroupSpec(0.8, "electra"), Depths(12)
    >>> paths = "head/out", "network/encoder/layer_11/mlp", "network/embed/tokens"
    >>> [round(find_multiplier(spec, depths, path), 5) for path in paths]
    [1.0, 0.64, 0.04398]
    """
    depth, top = depths.find(path), depths.head
    if spec.form == "electra":
        depth, top = depth + (depth == top), top + 1
    return spec.decay ** (top - depth)


def _map_by_path(function: Callable[[str, Any], Any], tree: PyTree) -> PyTree:
    """Maps (path, leaf) -> leaf over a tree."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: function(path_name(path), leaf), tree
    )


def scale_groups(spec: GroupSpec, depths: Depths) -> optax.GradientTransformation:
    """Multiplies updates, weight decay included, by the factors of their groups."""
    return optax.stateless(
        lambda updates, _: _map_by_path(
            lambda path, x: x * find_multiplier(spec, depths, path), updates
        )
    )


def find_start(spec: GroupSpec, depths: Depths, path: str, epoch_steps: int) -> int:
    """The step from which on a parameter is trained.

    >>> spec, depths = GroupSpec(unfreeze=2), Depths(12)
    >>> paths = "head/out", "network/encoder/layer_11/mlp", "network/embed/tokens"
    >>> [find_start(spec, depths, path, 100) for path in paths]
    [0, 100, 200]
    """
    return min(depths.head - depths.find(path), spec.unfreeze) * epoch_steps


def gate(starts: Callable[[str], int]) -> optax.GradientTransformation:
    """Zeroes gradients before their start, so that the global norm excludes them."""

    def update(
        grads: PyTree, state: optax.OptState, params: PyTree = None
    ) -> tuple[PyTree, optax.OptState]:
        gated = _map_by_path(
            lambda path, x: jnp.where(state.count >= starts(path), x, 0), grads
        )
        return gated, optax.ScaleByScheduleState(state.count + 1)

    def init(params: PyTree) -> optax.OptState:
        return optax.ScaleByScheduleState(jnp.zeros((), jnp.int32))

    return optax.GradientTransformation(init, update)


def delay(
    inner: optax.GradientTransformation, start: int
) -> optax.GradientTransformation:
    """An optimizer whose updates, moments and bias correction begin at a step."""

    def init(params: PyTree) -> HeldState:
        return HeldState(inner.init(params), jnp.zeros((), jnp.int32))

    def update(
        grads: PyTree, state: HeldState, params: PyTree = None
    ) -> tuple[PyTree, HeldState]:
        old = set_schedule_step(state.inner, state.num_steps)
        updates, new = inner.update(grads, old, params)
        pick = functools.partial(jnp.where, state.num_steps >= start)
        updates = jax.tree.map(lambda x: pick(x, jnp.zeros_like(x)), updates)
        return updates, HeldState(jax.tree.map(pick, new, old), state.num_steps + 1)

    return optax.GradientTransformation(init, update)


def make_grouped_optimizer(
    optim: OptimSpec,
    groups: GroupSpec,
    state: dict,
    num_steps: int,
    epoch_steps: int,
    frozen: tuple[str, ...] = (),
) -> optax.GradientTransformation:
    """The optimizer of a task's parameters; `make_optimizer` if all groups are equal.

    Departure: ULMFiT's source restarts its schedule whenever it unfreezes a group; here
    the run has one schedule.

    Args:
      state: {"network", "head", "extra"}, whose paths determine the depths.
      epoch_steps: the steps of an epoch.
      frozen: paths of parameters without updates and moments.
    """
    depths = count_layers(state)
    if not groups.unfreeze:
        made = make_optimizer(optim, num_steps, frozen)
        if groups.decay == 1:
            return made
        return optax.chain(made, scale_groups(groups, depths))

    def starts(path: str) -> int:
        return find_start(groups, depths, path, epoch_steps)

    def label(path: KeyPath, leaf: Any) -> int:
        return -1 if is_frozen(path, frozen) else starts(path_name(path))

    unclipped = dataclasses.replace(optim, clip_norm=0.0)
    steps = {epoch * epoch_steps for epoch in range(groups.unfreeze + 1)}
    parts = {step: delay(make_optimizer(unclipped, num_steps), step) for step in steps}
    labels = functools.partial(jax.tree_util.tree_map_with_path, label)
    clip = [optax.clip_by_global_norm(optim.clip_norm)] if optim.clip_norm else []
    return optax.chain(
        gate(starts),
        *clip,
        optax.partition(parts | {-1: optax.set_to_zero()}, labels),
        scale_groups(groups, depths),
    )
