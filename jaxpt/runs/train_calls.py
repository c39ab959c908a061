"""Compiled training calls of K steps each: jit over a mesh, or pmap."""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from jaxpt.learn.optimizer import set_schedule_step
from jaxpt.learn.state import TrainState, keep_objective_state
from jaxpt.objectives.objective import Sums
from jaxpt.rng import split_step, stream
from jaxpt.runs import sharding
from jaxpt.runs.task import Task

Shape = tuple[int, int, int]
Step = Callable[..., tuple[TrainState, Sums]]


def make_step(task: Task, axis: str | None = None) -> Step:
    """step(state, (rows, at), seed) -> state, metrics: a whole step of training.

    That is the objective's train step with the step's keys and progress, and after it
    the objective's state of a skipped update and the parameters' moving average.

    Args:
      axis: pmap's, if any.

    `at` is the step of the schedule, if it is not the state's (a budget of seconds);
    None otherwise.
    """
    train_step = functools.partial(
        task.objective.train_step,
        model=task.model,
        vocab=task.vocab,
        spec=task.spec,
        update=task.make_update(axis),
    )
    reads_progress = "progress" in task.spec.READS

    def step(state: TrainState, inputs: tuple[Any, Any], seed):
        rows, at = inputs
        if at is None:
            at = state.step
        else:
            opt_state = set_schedule_step(state.opt_state, at)
            state = dataclasses.replace(state, opt_state=opt_state)
        rngs = split_step(stream(seed, state.step, "train"))
        if reads_progress:
            share = at / task.plan.train.steps
            rows = rows | {"progress": jnp.full(rows["index"].shape, share)}
        after, metrics = train_step(state, rows, rngs)
        after = keep_objective_state(state, after)
        if after.skips is not None:
            metrics |= {"skips": (after.skips.total, after.skips.in_a_row)}
            if after.skips.scale is not None:  # the next step's
                metrics |= {"loss_scale": (after.skips.scale.value, jnp.ones(()))}
        return task.average_params(after), metrics

    return step


def make_train_call(task: Task, axis: str | None = None) -> Step:
    """call(state, stack, seed) -> state, metrics [K]: K steps in one dispatch.

    `stack` is K batches of rows; the key of each step comes from the seed and the
    state's step. A run with a budget of seconds (`jaxpt.training.clock`) also passes
    the steps of the schedule at which the call begins and ends.
    """
    step = make_step(task, axis)

    def call(state: TrainState, stack: dict[str, Any], seed, begin=None, end=None):
        num_steps, at = len(stack["tokens"]), None
        if begin is not None:
            at = begin + jnp.arange(num_steps) * (end - begin) // num_steps
        return jax.lax.scan(functools.partial(step, seed=seed), state, (stack, at))

    return call


class TrainCalls:
    """A task's training calls by the shape of their rows, compiled on demand.

    Args:
      shapes: of the saved state, with shardings.
      rows, whole: shardings of a call's rows and of its metrics.
      devices: of a pmap; None for a jit over `mesh`.
    """

    def __init__(
        self,
        task: Task,
        shapes: TrainState,
        mesh: Mesh,
        rows: NamedSharding,
        whole: NamedSharding,
        devices: Sequence[Any] | None = None,
    ):
        self._task, self._shapes, self._mesh = task, shapes, mesh
        self._rows, self._whole = rows, whole
        self._pmap_devices = devices
        self._done: dict[Shape, Any] = {}
        self._begun: dict[Shape, Future] = {}

    def _find_shape(self, stack: dict[str, Any]) -> Shape:
        """(K, B, R) of a placed stack of rows; B is over all devices."""
        *devices, num_steps, num_rows, length = stack["tokens"].shape
        return num_steps, math.prod(devices) * num_rows, length

    def __contains__(self, stack: dict[str, Any]) -> bool:
        return self._find_shape(stack) in self._done

    def __getitem__(self, stack: dict[str, Any]) -> Any:
        """The compiled call for a placed stack of rows."""
        return self._done[self._find_shape(stack)]

    def begin(self, batch: dict[str, Any], num_steps: int) -> None:
        """Starts compiling a call in a thread; `compile` waits for it.

        Only with one process, because several must compile in the same order, and not
        with pmap, whose state has other shapes than the saved one.

        Args:
          batch: all host rows of one step.
        """
        is_alone = self._pmap_devices is None and jax.process_count() == 1
        stack = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(
                (num_steps, *x.shape), jax.dtypes.canonicalize_dtype(x.dtype)
            ),
            batch,
        )
        shape = self._find_shape(stack)
        if shape in self._done or shape in self._begun or not is_alone:
            return
        threads = ThreadPoolExecutor(1, "jaxpt-compile")
        self._begun[shape] = threads.submit(self._make, self._shapes, stack)
        threads.shutdown(wait=False)  # the thread ends with its work

    def compile(self, state: TrainState, stack: dict[str, Any]) -> float:
        """Compiles the call for such rows; returns the seconds that took."""
        shape, start = self._find_shape(stack), time.perf_counter()
        if shape in self._done:
            return 0.0
        future = self._begun.pop(shape, None)
        program = future.result() if future else self._make(state, stack)
        self._done[shape] = program
        return time.perf_counter() - start

    def _make(self, state: TrainState, stack: dict[str, Any]) -> jax.stages.Compiled:
        task = self._task.for_batch(*self._find_shape(stack)[1:])
        rest = (None, None) if self._task.plan.train.seconds else ()
        numbers = (np.int32(0),) * (1 + len(rest))
        if self._pmap_devices is not None:
            call: Any = jax.pmap(
                make_train_call(task, "devices"),
                axis_name="devices",
                in_axes=(0, 0, None, *rest),
                donate_argnums=0,
                devices=self._pmap_devices,
            )
            return call.lower(state, stack, *numbers).compile()
        layout = jax.tree.map(lambda x: x.sharding, self._shapes)
        call = jax.jit(
            make_train_call(task),
            in_shardings=(layout, self._rows, None, *rest),
            out_shardings=(layout, self._whole),
            donate_argnums=0,
        )
        with jax.set_mesh(self._mesh):
            return call.lower(state, stack, *numbers).compile()

    def memory(self, stack: dict[str, Any]) -> dict[str, int]:
        """Bytes that the compiled call for such rows needs on each device.

        By XLA's plan: "state_bytes" and "rows_bytes" are its arguments, and
        "temporary_bytes" is additional. The new state reuses the old one's memory.
        """
        analysis = self[stack].memory_analysis()
        state = analysis.alias_size_in_bytes
        return {
            "state_bytes": state,
            "rows_bytes": analysis.argument_size_in_bytes - state,
            "temporary_bytes": analysis.temp_size_in_bytes,
        }

    def collectives(self, stack: dict[str, Any]) -> dict[str, tuple[int, int]]:
        """The collectives of the compiled call for such rows.

        For each kind their number and the bytes of their results on a device. The call
        is a loop over its steps, whose body counts once.
        """
        return sharding.count_collectives(self[stack].as_text())

    def __call__(
        self, state: TrainState, stack: dict[str, Any], *numbers: int
    ) -> tuple[TrainState, Sums]:
        """K steps; the given state is donated. Metrics come as (sum, weight) of [K].

        Args:
          numbers: the seed; with a budget of seconds, also the first and the last
            schedule step of the call.
        """
        self.compile(state, stack)
        call = self[stack]
        state, metrics = call(state, stack, *map(np.int32, numbers))
        if self._pmap_devices is not None:  # already summed: all copies are equal
            metrics = jax.tree.map(lambda x: x.addressable_data(0)[0], metrics)
        return state, metrics
