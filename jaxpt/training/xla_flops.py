"""XLA's count of operations of a training step, to check the count from sizes.

`jaxpt.nn.flops` counts only matrix products. XLA's cost analysis counts every operation
of a program: one for each element of a sum, a comparison or a random bit's shift, two
for each multiply-add. (Transcendental functions such as exp are counted separately, and
are in neither number.) The program is analysed before XLA fuses or removes anything, so
the count hardly depends on the machine.

XLA counts the body of a loop once, and nothing of a fused kernel. So the step is
counted with plain attention and without rematerialisation, and the body of each loop of
known length is counted separately and multiplied.
"""

import math
from typing import NamedTuple

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun

from jaxpt.rng import stream
from jaxpt.text.dataset import Split
from jaxpt.training.data import make_feed
from jaxpt.training.task import Task, make_task
from jaxpt.training.train_calls import make_train_call

# A form of the model with the same products, each computed once and visible to XLA.
PLAIN = {"attention": "xla", "remat": "none", "loss_chunk": 0}


class StepFlops(NamedTuple):
    """Operations of one training step.

    Attributes:
      counted: from the sizes, by `jaxpt.nn.flops`.
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


def count_step(task: Task, train: Split) -> StepFlops:
    """Both counts of one step of a task's last phase, neither compiled nor run.

    Args:
      train: text; only the form of its rows matters.
    """
    task = make_task(task.plan.change({"model": PLAIN}), task.vocab).phases[-1]
    plan = task.plan
    size = plan.train.batch_size, plan.train.num_microbatches
    parts = task.model_spec, task.spec, plan.optim, plan.rows.keys, size
    key = f"{plan.objective_name} {parts}"
    if key not in _known:
        _known[key] = _count_step(task, train)
    return _known[key]


def _count_step(task: Task, train: Split) -> StepFlops:

    def init():
        params = task.model.init_params(stream(0, 0, "init"))
        return task.make_state(params)

    rows = make_feed(task, train).stack(0, 1)
    call = make_train_call(task)
    by_xla = count_by_xla(call, jax.eval_shape(init), rows, np.int32(0))
    return StepFlops(task.count_costs(1)["flops"], by_xla)


def count_by_xla(function, *args) -> float:
    """XLA's count of operations of a function, with loops multiplied by their length.

    A loop whose length depends on values counts once.

    Args:
      args: arrays or `jax.ShapeDtypeStruct`s.
    """
    traced = jax.jit(function).trace(*args)
    return _count_lowered(traced.lower()) + _count_repeats(traced.jaxpr.jaxpr)


def _count_lowered(lowered) -> float:
    return max(lowered.cost_analysis().get("flops", 0.0), 0.0)


def _count_repeats(jaxpr: Jaxpr) -> float:
    """The operations of all loop iterations after the first of each loop."""
    total = 0.0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "scan":
            body = equation.params["jaxpr"]
            length = equation.params["length"]
            shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in body.in_avals]
            once = _count_lowered(jax.jit(jaxpr_as_fun(body)).lower(*shapes))
            total += (length - 1) * once + length * _count_repeats(body.jaxpr)
            continue
        repeats = [_count_repeats(each) for each in _list_inner(equation)]
        # XLA counts the most expensive branch.
        is_choice = equation.primitive.name == "cond"
        total += max(repeats, default=0.0) if is_choice else math.fsum(repeats)
    return total


def _list_inner(equation) -> list[Jaxpr]:
    """The programs inside an equation: a loop's body or a called function."""
    jaxprs: list[Jaxpr] = []
    for value in equation.params.values():
        for part in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(part, ClosedJaxpr):
                jaxprs.append(part.jaxpr)
            elif isinstance(part, Jaxpr):
                jaxprs.append(part)
    return jaxprs
