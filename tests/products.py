"""What the matrix products of a function cost, read from what jax makes of it."""

import math

import jax
from jax.interpreters import partial_eval


def count_products(function, *args) -> float:
    """Two operations a multiply-add of every product, those of loops each time.

    Without products that nothing reads, which XLA leaves out: a custom gradient also
    computes that of a factor which has none.
    """
    jaxpr = jax.make_jaxpr(function)(*args).jaxpr
    return _count(partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[0])


def _count(jaxpr) -> float:
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            inner = math.prod(shape[axis] for axis in contracted)
            total += 2 * inner * math.prod(equation.outvars[0].aval.shape)
        times = equation.params.get("length", 1)  # of a scan
        for value in equation.params.values():
            for part in value if isinstance(value, (tuple, list)) else (value,):
                inner = getattr(part, "jaxpr", part)
                total += times * _count(inner) if hasattr(inner, "eqns") else 0
    return total
