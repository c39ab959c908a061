"""Losses that become NaN, infinite or far too large at chosen steps or batches."""

import contextlib
from collections.abc import Iterator, Mapping
from unittest import mock

import jax.numpy as jnp
import numpy as np

from jaxpt.finetuning.program import TuneProgram
from jaxpt.objectives import OBJECTIVES
from jaxpt.text.feed import Feed, find_batch


@contextlib.contextmanager
def poison(
    objective: str, factors: Mapping[int, float], by: str = "step"
) -> Iterator[None]:
    """Multiplies each loss term, and so the gradient, by a number that rows have.

    The program is the same for all factors, so it is compiled once.

    Args:
      factors: by step of the run (0 is the first), or by batch; 1 for all others.
      by: "step", or "batch": then it is the rows that are bad, in whichever step.
    """
    module = OBJECTIVES[objective]
    train_step, stack = module.train_step, Feed.stack

    def stack_with_factors(self, step, num_steps):
        rows = stack(self, step, num_steps)
        at = range(step, step + num_steps)
        if by == "batch":
            at = [find_batch(each, self.skipped) for each in at]
        column = np.array([[factors.get(each, 1.0)] for each in at], np.float32)
        return rows | {"factor": np.repeat(column, rows["index"].shape[1], axis=1)}

    def poisoned_step(state, rows, *args, update, **keywords):
        if "factor" not in rows:  # rows that stand for others: operations are counted
            return train_step(state, rows, *args, update=update, **keywords)
        factor = rows["factor"][0]
        rows = {name: x for name, x in rows.items() if name != "factor"}

        def poisoned_update(state, batch, loss_fn, rngs, coefficients):
            def poisoned_loss(*args):
                terms, metrics = loss_fn(*args)
                return {k: (a * factor, b) for k, (a, b) in terms.items()}, metrics

            return update(state, batch, poisoned_loss, rngs, coefficients)

        return train_step(state, rows, *args, update=poisoned_update, **keywords)

    with (
        mock.patch.object(module, "train_step", poisoned_step),
        mock.patch.object(Feed, "stack", stack_with_factors),
    ):
        yield


@contextlib.contextmanager
def poison_tuning(factors: Mapping[int, float]) -> Iterator[None]:
    """As `poison` by step, for fine-tuning; a program has its factors."""
    step, terms = TuneProgram._step, TuneProgram._terms

    def poisoned_step(self, donated, frozen, batch, numbers, **sizes):
        factor = jnp.ones(())
        for at, value in factors.items():
            factor = jnp.where(numbers[2] == at, value, factor)

        def poisoned_terms(self, *args):
            made, coefficients = terms(self, *args)
            return {k: (a * factor, b) for k, (a, b) in made.items()}, coefficients

        with mock.patch.object(TuneProgram, "_terms", poisoned_terms):
            return step(self, donated, frozen, batch, numbers, **sizes)

    with mock.patch.object(TuneProgram, "_step", poisoned_step):
        yield
