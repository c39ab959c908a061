"""XLA's count of operations of a training step, to check the count from sizes.

`jaxpt.nn.flops` counts only matrix products, as `jaxpt.learn.optimizer` does. XLA's
cost analysis counts every operation of a program: one for each element of a sum, a
comparison or a random bit's shift, two for each multiply-add. (Transcendental
functions such as exp are counted separately, and are in neither number.) The program is
analysed before XLA fuses or removes anything and as lowered for one platform, so the
count depends on the versions of jax and XLA but not on the machine.

XLA counts the body of a loop once, and nothing of a fused kernel. So the step is
counted with plain attention and without rematerialisation, and its loops and branches
are cut out and counted separately.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jaxlib
import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, jaxpr_as_fun
from jax.interpreters.partial_eval import dce_jaxpr

from jaxpt.rng import stream
from jaxpt.runs.task import Task, make_task
from jaxpt.runs.train_calls import make_train_call
from jaxpt.text.phases import split_steps

# A form of the model with the same products, each computed once and visible to XLA.
PLAIN = {"attention": "xla", "remat": "none", "loss_chunk": 0}
# Its random bits are lowered without a loop, whose rounds XLA would count once.
PLATFORM = "tpu"
# Equations that call another program once, with the parameter that has it.
CALLS = {
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}


class StepFlops(NamedTuple):
    """Operations of one training step.

    Attributes:
      counted: from the sizes, by `jaxpt.nn.flops` and `jaxpt.learn.optimizer`.
      by_xla: all operations, by XLA.
    """

    counted: float
    by_xla: float

    @property
    def left_out(self) -> float:
        """The share of XLA's count that the count from sizes lacks."""
        return 1 - self.counted / self.by_xla


# Earlier counts, by the settings that they depend on.
_known: dict[str, StepFlops] = {}


def count_operations(task: Task, num_steps: int) -> float:
    """XLA's count of the first steps of a run, without its text or training."""
    return add_phases(task, count_phases(task), num_steps)


def count_phases(task: Task) -> list[float]:
    """XLA's count of a step in each phase of training."""
    return [_count_phase(phase).by_xla for phase in _make_plain(task).phases]


def add_phases(task: Task, counts: Sequence[float], num_steps: int) -> float:
    """The cost of the first steps of a run.

    Args:
      counts: of a step in each phase.
    """
    numbers = split_steps(task.plan.train.phases, num_steps)
    return math.fsum(num * x for num, x in zip(numbers, counts, strict=True))


def describe_counter() -> str:
    """The versions on which `count_operations` depends."""
    return f"XLA of jaxlib {jaxlib.__version__}, jax {jax.__version__}"


def count_step(task: Task) -> StepFlops:
    """Both counts of one step of a task's last phase, neither compiled nor run."""
    return _count_phase(_make_plain(task).phases[-1])


def _make_plain(task: Task) -> Task:
    return make_task(task.plan.change({"model": PLAIN}), task.vocab)


def _count_phase(task: Task) -> StepFlops:
    """Both counts of one step of a phase's task."""
    plan = task.plan
    size = plan.train.batch_size, plan.train.num_microbatches
    # Rates change no operation, if they are not 0.
    optim = {
        name: bool(value) if isinstance(value, float) else value
        for name, value in dataclasses.asdict(plan.optim).items()
    }
    parts = task.model_spec, task.spec, optim, plan.rows.keys, size
    key = f"{plan.objective_name} {parts}"
    if key not in _known:
        _known[key] = _count_step(task)
    return _known[key]


def shape_rows(task: Task) -> dict[str, jax.ShapeDtypeStruct]:
    """The shapes of a call's rows for one step of a phase (`text.feed.Feed.stack`)."""
    by_row = 1, task.plan.train.batch_size
    by_token = *by_row, task.spec.row_length
    return {
        key: jax.ShapeDtypeStruct(
            by_row if key == "index" or key.startswith("is_") else by_token, np.int32
        )
        for key in (*task.plan.rows.keys, "index")
    }


def _count_step(task: Task) -> StepFlops:

    def init():
        params = task.model.init_params(stream(0, 0, "init"))
        return task.make_state(params)

    call, rows = make_train_call(task), shape_rows(task)
    by_xla = count_by_xla(call, jax.eval_shape(init), rows, np.int32(0))
    return StepFlops(task.count_costs(1)["flops"], by_xla)


def count_by_xla(function, *args) -> float:
    """XLA's count of operations of a function, with every iteration of its loops.

    Of branches the one with the most operations counts. A loop whose length depends on
    values counts once, with its condition. What does not contribute to the result does
    not count.

    Args:
      args: arrays or `jax.ShapeDtypeStruct`s.
    """
    closed = jax.jit(function).trace(*args).jaxpr
    jaxpr, _ = dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), True)
    return _count(ClosedJaxpr(jaxpr, closed.consts))


def _count(closed: ClosedJaxpr) -> float:
    """The operations of a program: those outside its loops, and those of each loop.

    For XLA the outputs of loops become inputs of the program, and their inputs become
    outputs, because XLA removes all values that are not used.
    """
    jaxpr = closed.jaxpr
    loops = [equation for equation in jaxpr.eqns if _has_loop(equation)]
    read = [v for each in loops for v in each.invars if not isinstance(v, Literal)]
    outside = jaxpr.replace(
        eqns=[equation for equation in jaxpr.eqns if not _has_loop(equation)],
        invars=[*jaxpr.invars, *(v for each in loops for v in each.outvars)],
        outvars=[*jaxpr.outvars, *read],
        debug_info=jaxpr.debug_info.with_unknown_names(),
    )
    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in outside.invars]
    function = jaxpr_as_fun(ClosedJaxpr(outside, closed.consts))
    lowered = jax.jit(function).trace(*shapes).lower(lowering_platforms=(PLATFORM,))
    total = max(lowered.cost_analysis().get("flops", 0.0), 0.0)
    return total + math.fsum(map(_count_loop, loops))


def _has_loop(equation: JaxprEqn) -> bool:
    """Whether an equation is a loop or a choice of branches, or calls one."""
    if called := _find_called(equation):
        return any(map(_has_loop, called.jaxpr.eqns))
    return equation.primitive.name in ("scan", "while", "cond")


def _find_called(equation: JaxprEqn) -> ClosedJaxpr | None:
    """The program that an equation calls once, if any."""
    if equation.primitive.name not in CALLS:
        return None
    called = equation.params[CALLS[equation.primitive.name]]
    return called if isinstance(called, ClosedJaxpr) else ClosedJaxpr(called, ())


def _count_loop(equation: JaxprEqn) -> float:
    """The operations of an equation for which `_has_loop` holds."""
    params = equation.params
    if called := _find_called(equation):
        return _count(called)
    if equation.primitive.name == "scan":
        return params["length"] * _count(params["jaxpr"])
    if equation.primitive.name == "while":
        return _count(params["cond_jaxpr"]) + _count(params["body_jaxpr"])
    return max(map(_count, params["branches"]))
