"""Skipped updates: gradients that are not finite, and spikes of their norm.

A skipped update changes no parameter and no moment. Its step still counts, so later
steps have the same rows, random draws and learning rates as without it. Departure:
optax.apply_if_finite and Accelerate's scheduler hold the learning rate until an update
is applied. Here a decay ends with the last step however many updates were skipped, and
everything that depends on the step can be replayed from it alone. An update is skipped
if

    the loss or the global norm of the gradient is not finite, or
    norm - mean > optim.spike_deviations * deviation

with the mean and the sample standard deviation of the norms of the last 128 applied
updates, once there are 64 (MaxText and OLMo-core: 128 steps, 6 deviations; OLMo-core
begins at 64, too). Departure: both also keep the norms of skipped updates, so that a
spike raises the limit of the next ones. Here a rise that lasts ends the run.

After `optim.max_skips` skipped updates in a row no update is applied any more: the run
has diverged. With `model.dtype=float16` updates are always skipped, because that is how
the scale of the loss is found (`jaxpt.learn.loss_scale`), and at least 25 in a row.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from jaxpt.learn.held import HeldState
from jaxpt.learn.loss_scale import MIN_SKIPS, LossScale, adjust, init_scale

if TYPE_CHECKING:
    from jaxpt.learn.optim_spec import OptimSpec

WINDOW = 128  # norms of the last applied updates
MIN_NORMS = 64  # norms from which on spikes are skipped


class Skips(NamedTuple):
    """The skipped updates of a run so far, replicated over all devices.

    Attributes:
      total: the number of skipped updates.
      in_a_row: the number of skipped updates since the last applied one.
      norms: of the last applied updates, in a ring; None without a limit for spikes.
      num_norms: the number of applied updates; None without a limit for spikes.
      scale: of the loss; None if it is not scaled.
    """

    total: Int[Array, ""]
    in_a_row: Int[Array, ""]
    norms: Float[Array, " N"] | None = None
    num_norms: Int[Array, ""] | None = None
    scale: LossScale | None = None

    @property
    def is_last(self) -> Bool[Array, ""]:
        """Whether the last update was skipped."""
        return self.in_a_row > 0


@dataclasses.dataclass(frozen=True)
class SkipRule:
    """Decides which updates are skipped (see the module).

    Attributes:
      max_skips: the number of skipped updates in a row after which none is applied.
      deviations: the limit for spikes, in standard deviations; 0 is none.
      has_scale: whether the loss is scaled.
    """

    max_skips: int
    deviations: float = 0.0
    has_scale: bool = False

    def init(self) -> Skips:
        """The state before the first step."""
        total, in_a_row, num = (jnp.zeros((), jnp.int32) for _ in range(3))
        scale = init_scale() if self.has_scale else None
        if not self.deviations:
            return Skips(total, in_a_row, scale=scale)
        return Skips(total, in_a_row, jnp.zeros(WINDOW), num, scale)

    def judge(
        self, skips: Skips, loss: Float[Array, ""], norm: Float[Array, ""]
    ) -> Skips:
        """The state after an update; `is_last` says whether it is skipped.

        Args:
          loss, norm: of the whole batch, equal on all devices.
        """
        is_good = jnp.isfinite(loss) & jnp.isfinite(norm)
        if skips.scale is not None:
            skips = skips._replace(scale=adjust(skips.scale, is_good))
        is_good &= skips.in_a_row < self.max_skips
        if skips.norms is not None and skips.num_norms is not None:
            is_good &= ~_is_spike(skips.norms, skips.num_norms, norm, self.deviations)
            is_place = jnp.arange(WINDOW) == skips.num_norms % WINDOW
            skips = skips._replace(
                norms=jnp.where(is_place & is_good, norm, skips.norms),
                num_norms=skips.num_norms + is_good,
            )
        return skips._replace(
            total=skips.total + ~is_good,
            in_a_row=jnp.where(is_good, 0, skips.in_a_row + 1),
        )


def make_rule(spec: "OptimSpec", num_steps: int, dtype: str) -> SkipRule | None:
    """The rule of a run; None if no update is skipped.

    A run that skips all of its updates has diverged, even if there are few.

    Args:
      dtype: of the model's products (`ModelSpec.compute_dtype`).
    """
    has_scale = dtype == "float16"
    max_skips = max(spec.max_skips, MIN_SKIPS) if has_scale else spec.max_skips
    if not max_skips:
        return None
    return SkipRule(min(max_skips, num_steps), spec.spike_deviations, has_scale)


def _is_spike(
    norms: Float[Array, " N"],
    num_norms: Int[Array, ""],
    norm: Float[Array, ""],
    deviations: float,
) -> Bool[Array, ""]:
    num = jnp.minimum(num_norms, WINDOW)
    mean = norms.sum() / jnp.maximum(num, 1)  # unused places are 0
    squares = jnp.where(jnp.arange(WINDOW) < num, (norms - mean) ** 2, 0.0)
    deviation = jnp.sqrt(squares.sum() / jnp.maximum(num - 1, 1))
    return (num >= MIN_NORMS) & (norm - mean > deviations * deviation)


def keep_if(is_skipped: Bool[Array, ""], old: PyTree, new: PyTree) -> PyTree:
    """`old` if the update is skipped, else `new`; the steps of schedules are new."""
    clocks = optax.ScaleByScheduleState, HeldState

    def pick(before: Any, after: Any) -> Any:
        if isinstance(after, optax.ScaleByScheduleState):
            return after
        if isinstance(after, HeldState):
            inner = keep_if(is_skipped, before.inner, after.inner)
            return HeldState(inner, after.num_steps)
        return jnp.where(is_skipped, before, after)

    return jax.tree.map(pick, old, new, is_leaf=lambda x: isinstance(x, clocks))
