"""TrainState: parameters, optimizer state, step and objective state of a run."""

import dataclasses

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from jaxpt.dims import PyTree
from jaxpt.learn.skips import Skips, keep_if


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """Parameters, optimizer state and number of steps; random keys are not stored.

    Attributes:
      ema: the float32 exponential moving average of the parameters, or None.
      objective_state: arrays that the objective's train step updates, replicated or
        sharded as parameters (`ObjectiveSpec.init_state`); None for most objectives.
      skips: the skipped updates; None if none may be skipped.
      skipped_batches: ranges (first, end) of batches that are not read, then zeros
        (`text.feed`); None if all are read.
    """

    params: PyTree
    opt_state: optax.OptState
    step: Int[Array, ""]
    ema: PyTree = None
    objective_state: PyTree = None
    skips: Skips | None = None
    skipped_batches: Int[Array, "N 2"] | None = None

    @property
    def eval_params(self) -> PyTree:
        """The parameters for evaluation, export and generation: the EMA, if any.

        Their name in a checkpoint is `eval_name`.
        """
        return getattr(self, self.eval_name)

    @property
    def eval_name(self) -> str:
        """The field of `eval_params`."""
        return "params" if self.ema is None else "ema"


def make_state(
    params: PyTree,
    optimizer: optax.GradientTransformation,
    has_ema: bool = False,
    objective_state: PyTree = None,
    skips: Skips | None = None,
    skipped_batches: Int[Array, "N 2"] | None = None,
) -> TrainState:
    """The state before the first step; the EMA is initialized by the parameters."""
    # A copy, because parameters and EMA are donated separately.
    ema = jax.tree.map(lambda x: jnp.array(x, jnp.float32), params) if has_ema else None
    step = jnp.zeros((), jnp.int32)
    parts = ema, objective_state, skips, skipped_batches
    return TrainState(params, optimizer.init(params), step, *parts)


def keep_objective_state(old: TrainState, new: TrainState) -> TrainState:
    """The state after a step; a skipped update leaves the objective's as it was."""
    if new.skips is None or new.objective_state is None:
        return new
    pair = old.objective_state, new.objective_state
    return dataclasses.replace(new, objective_state=keep_if(new.skips.is_last, *pair))
