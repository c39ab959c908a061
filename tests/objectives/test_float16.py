"""In float16 with a scaled loss the gradients are near those of float32."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiny import CORE, slow_but

from jaxpt.learn.optim_spec import OptimSpec
from jaxpt.learn.skips import make_rule
from jaxpt.learn.state import make_state
from jaxpt.learn.update import Update
from jaxpt.objectives import OBJECTIVES
from tests.objectives.conftest import KEEP, make_step, module_of
from tests.objectives.test_bfloat16 import MODELS, dtypes, equations

QUICK = ("clm", "electra")
# Its products are of two vectors each, in float32.
LOOKED_UP = ("skip_gram",)


def make_scaled(name, case, optimizer, vocab, num_microbatches=1):
    """step(state, rows, rng) with a scaled loss, and its first state."""
    rule = make_rule(OptimSpec(), 1000, case.model_spec.compute_dtype)
    update = Update(optimizer, num_microbatches, None, case.model.frozen, rule)
    own = case.spec.init_state(vocab, case.params)
    skips = rule.init() if rule else None
    state = make_state(case.params, optimizer, objective_state=own, skips=skips)
    return make_step(module_of(name), case.model, case.spec, update), state


def find_gradient(name, case, vocab, rows):
    """The gradient at the first scale that is not too large.

    ELECTRA's discriminator has the weight 50, so that 2^15 is.
    """
    step, state = make_scaled(name, case, KEEP, vocab)
    step = jax.jit(step)
    for _ in range(6):
        state, metrics = step(state, rows, jax.random.key(0))
        if state.skips is None or not state.skips.is_last:
            break
    return state.opt_state.trace, metrics


@pytest.mark.parametrize("name", slow_but(QUICK, OBJECTIVES))
def test_gradients_are_near_those_of_float32(name, make_case, make_rows, vocab):
    grads = {}
    for dtype in ("float32", "float16"):
        case = make_case(name, (("dtype", dtype),))
        rows = make_rows(case, 8)
        grads[dtype], metrics = find_gradient(name, case, vocab, rows)
        assert np.isfinite(metrics["grad_norm"][0])
    wide, low = grads["float32"], grads["float16"]
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(low))
    gap = optax.tree.norm(jax.tree.map(jnp.subtract, low, wide))
    assert gap / optax.tree.norm(wide) < 0.02


@pytest.mark.parametrize("model", slow_but(("plain",), MODELS))
@pytest.mark.parametrize("name", slow_but(("electra",), CORE))
def test_products_multiply_low_and_nothing_else_sums_low(
    name, model, make_case, make_rows, vocab
):
    case = make_case(name, (("dtype", "float16"), *MODELS[model]))
    step, state = make_scaled(name, case, optax.adamw(1e-3), vocab)
    rows = make_rows(case, 4)
    traced = jax.make_jaxpr(step)(state, rows, jax.random.key(0))
    result = list(equations(traced.jaxpr))
    products = [eq for eq in result if eq.primitive.name == "dot_general"]
    products = [eq for eq in products if len(eq.invars[0].aval.shape) > 1]
    assert len(products) >= 20
    assert all(dtypes(eq) == {"float16"} for eq in products)
    # Sums, softmax, norms, losses, and what is within an activation.
    others = ("reduce_sum", "reduce_max", "cumsum", "rsqrt", "log", "sqrt", "div")
    others += ("integer_pow", "square", "tanh", "exp", "erf", "erfc")
    sums = [eq for eq in result if eq.primitive.name in others]
    assert len(sums) >= 10
    assert not any("float16" in dtypes(eq) for eq in sums)


@pytest.mark.parametrize("name", slow_but(("electra",), CORE))
def test_it_trains_as_float32_does(name, make_case, make_rows, vocab):
    losses = {}
    for dtype in ("float32", "float16"):
        case = make_case(name, (("dtype", dtype),))
        rows = make_rows(case, 8)
        step, state = make_scaled(name, case, optax.adam(3e-3), vocab, 2)

        num_skipped = 4 if (name, dtype) == ("electra", "float16") else 0

        @jax.jit
        def run(state, rows, step=step, num_steps=40 + num_skipped):
            def body(state, i):
                return step(state, rows, jax.random.key(3))

            return jax.lax.scan(body, state, jnp.arange(num_steps))

        state, sums = run(state, rows)
        terms = case.spec.coefficients
        losses[dtype] = np.array([sums[term][0] / sums[term][1] for term in terms])
    assert state.skips.total == num_skipped
    low, wide = losses["float16"], losses["float32"]
    np.testing.assert_allclose(low[:, 0], wide[:, 0], rtol=0.003)  # the first step
    assert (wide[:, -1] < 0.9 * wide[:, 0]).all()
    last = (losses[:, -8:].mean(1) for losses in (low, wide))
    np.testing.assert_allclose(*last, rtol=0.03, atol=0.01)
