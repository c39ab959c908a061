"""The state of a run between two steps."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """Parameters, optimizer state and number of steps; random keys are not stored.

    `ema` is the float32 exponential moving average of the parameters, or None.
    """

    params: Any
    opt_state: Any
    step: Int[Array, ""]
    ema: Any = None

    @property
    def eval_params(self):
        """The parameters that a run evaluates, exports and generates with.

        They are the EMA if there is one.
        A checkpoint holds them under the name `eval_name`.
        """
        return getattr(self, self.eval_name)

    @property
    def eval_name(self) -> str:
        """The field of `eval_params`."""
        return "params" if self.ema is None else "ema"


def make_state(
    params, optimizer: optax.GradientTransformation, has_ema: bool = False
) -> TrainState:
    """The state before the first step; the EMA starts as the parameters."""
    # A copy, as parameters and EMA are donated separately.
    ema = jax.tree.map(lambda x: jnp.array(x, jnp.float32), params) if has_ema else None
    return TrainState(params, optimizer.init(params), jnp.zeros((), jnp.int32), ema)
