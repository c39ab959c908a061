"""What a run is, between two steps."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """Parameters, optimizer state and the steps taken; keys are never stored.

    `ema` is the float32 mean of the parameters, None where none is kept.
    """

    params: Any
    opt_state: Any
    step: Int[Array, ""]
    ema: Any = None

    @property
    def eval_params(self):
        """What is evaluated, exported and generated from: the mean where there is one.

        A checkpoint has it under `eval_name`.
        """
        return getattr(self, self.eval_name)

    @property
    def eval_name(self) -> str:
        """The field of `eval_params`."""
        return "params" if self.ema is None else "ema"


def make_state(
    params, optimizer: optax.GradientTransformation, has_ema: bool = False
) -> TrainState:
    """The state before the first step; a mean starts as the parameters."""
    # A copy: the two are donated apart.
    ema = jax.tree.map(lambda x: jnp.array(x, jnp.float32), params) if has_ema else None
    return TrainState(params, optimizer.init(params), jnp.zeros((), jnp.int32), ema)
