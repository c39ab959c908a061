"""TrainState: parameters, optimizer state, step and objective state of a run."""

import dataclasses

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PyTree


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """Parameters, optimizer state and number of steps; random keys are not stored.

    Attributes:
      ema: the float32 exponential moving average of the parameters, or None.
      objective_state: arrays that the objective's train step updates, replicated over
        all devices (`ObjectiveSpec.init_state`); None for most objectives.
    """

    params: PyTree
    opt_state: optax.OptState
    step: Int[Array, ""]
    ema: PyTree = None
    objective_state: PyTree = None

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
) -> TrainState:
    """The state before the first step; the EMA is initialized by the parameters."""
    # A copy, because parameters and EMA are donated separately.
    ema = jax.tree.map(lambda x: jnp.array(x, jnp.float32), params) if has_ema else None
    step = jnp.zeros((), jnp.int32)
    return TrainState(params, optimizer.init(params), step, ema, objective_state)
