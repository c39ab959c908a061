"""HeldState: of an optimizer that begins at a later step than the run."""

from typing import NamedTuple

import jax
import optax


class HeldState(NamedTuple):
    """An optimizer's state, and the step of the run for its schedules."""

    inner: optax.OptState
    num_steps: jax.Array
