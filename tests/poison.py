"""Losses that become NaN, infinite or far too large at chosen steps or batches."""

import contextlib
from collections.abc import Iterator, Mapping
from unittest import mock

import jax.numpy as jnp
import numpy as np

from jaxpt.finetuning.program import TuneProgram
from jaxpt.objectives import OBJECTIVES
from jaxpt.text.feed import Feed, find_batch


def find_factor(at, factors: Mapping[int, float]):
    """What the loss is multiplied by at a traced number; 1 where nothing is said."""
    factor = jnp.ones(())
    for number, value in factors.items():
        factor = jnp.where(at == number, value, factor)
    return factor


@contextlib.contextmanager
def poison(
    objective: str, factors: Mapping[int, float], by: str = "step"
) -> Iterator[None]:
    """Multiplies each loss term, and so the gradient, of programs traced inside.

    Args:
      factors: by step of the run (0 is the first), or by batch.
      by: "step", or "batch": then it is the rows that are bad, in whichever step.
    """
    module = OBJECTIVES[objective]
    train_step, stack = module.train_step, Feed.stack

    def with_numbers(self, step, num_steps):
        rows = stack(self, step, num_steps)
        batches = [find_batch(step + i, self.skipped) for i in range(num_steps)]
        shape = rows["index"].shape
        numbers = np.broadcast_to(np.array(batches, np.int32)[:, None], shape)
        return rows | {"batch": np.ascontiguousarray(numbers)}

    def poisoned_step(state, rows, *args, update, **keywords):
        at = state.step if by == "step" else rows["batch"].max()
        rows = {name: x for name, x in rows.items() if name != "batch"}
        factor = find_factor(at, factors)

        def poisoned_update(state, batch, loss_fn, rngs, coefficients):
            def poisoned_loss(*args):
                terms, metrics = loss_fn(*args)
                return {k: (a * factor, b) for k, (a, b) in terms.items()}, metrics

            return update(state, batch, poisoned_loss, rngs, coefficients)

        return train_step(state, rows, *args, update=poisoned_update, **keywords)

    with contextlib.ExitStack() as open_:
        patch = mock.patch.object(module, "train_step", poisoned_step)
        open_.enter_context(patch)
        if by == "batch":
            open_.enter_context(mock.patch.object(Feed, "stack", with_numbers))
        yield


@contextlib.contextmanager
def poison_tuning(factors: Mapping[int, float]) -> Iterator[None]:
    """As `poison`, for the steps of fine-tuning."""
    step, terms = TuneProgram._step, TuneProgram._terms

    def poisoned_step(self, donated, frozen, batch, numbers, **sizes):
        factor = find_factor(numbers[2], factors)

        def poisoned_terms(self, *args):
            made, coefficients = terms(self, *args)
            return {k: (a * factor, b) for k, (a, b) in made.items()}, coefficients

        with mock.patch.object(TuneProgram, "_terms", poisoned_terms):
            return step(self, donated, frozen, batch, numbers, **sizes)

    with mock.patch.object(TuneProgram, "_step", poisoned_step):
        yield
