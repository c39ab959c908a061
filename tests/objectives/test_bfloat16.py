"""In bfloat16 the products are bfloat16 and all else that adds up is float32."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.extend.core import ClosedJaxpr, Jaxpr
from tiny import CORE, slow_but

from jaxpt.errors import DeviceError
from jaxpt.objectives import OBJECTIVES

every = pytest.mark.parametrize("name", OBJECTIVES)
LOW = ("dtype", "bfloat16")
# Their masks are arrays, which cuDNN does not take beside relative positions.
WITH_AN_ARRAY = ("prefix_lm", "ul2", "clm_mlm", "dual", "block_diffusion")
MODELS = {
    "plain": (),
    "relative": (
        ("positions", "relative"),
        ("dropout", 0.1),
        ("attention_dropout", 0.1),
        ("head_bias", True),
    ),
    "llama": (
        ("positions", "rotary"),
        ("norm", "rmsnorm"),
        ("gated_mlp", True),
        ("num_kv_heads", 1),
        ("tie_embeddings", False),
        ("loss_chunk", 5),
    ),
}


def equations(jaxpr):
    """All of a program's, those of loops and calls within it too."""
    for equation in jaxpr.eqns:
        yield equation
        inner = jax.tree.leaves(
            equation.params, is_leaf=lambda x: isinstance(x, Jaxpr | ClosedJaxpr)
        )
        for value in inner:
            if isinstance(value, ClosedJaxpr):
                yield from equations(value.jaxpr)
            elif isinstance(value, Jaxpr):
                yield from equations(value)


def trace(case, vocab, make_rows):
    """The equations of a training step."""
    optimizer = optax.adamw(1e-3)
    step = case.make_step(optimizer)
    state, rows = case.init_state(optimizer), make_rows(case, 4)
    return equations(jax.make_jaxpr(step)(state, rows, jax.random.key(0)).jaxpr)


def dtypes(equation) -> set[str]:
    return {v.aval.dtype.name for v in equation.invars if v.aval.dtype != jnp.int32}


# Its products are of two vectors each, in float32; it is as fast as memory is.
LOOKED_UP = ("skip_gram",)


ALL = [(m, n) for m in MODELS for n in OBJECTIVES if n not in LOOKED_UP]
QUICK = [(m, n) for m, n in ALL if m == "plain" or n in ("clm", "span_corruption")]


@pytest.mark.slow_cases(
    "plain-clm",
    "plain-mlm",
    "plain-ul2",
    "llama-clm",
    "plain-bert",
    "plain-bart",
    "plain-bilm",
    "relative-clm",
    "plain-electra",
    "plain-clm_mlm",
    "plain-spanbert",
    "plain-prefix_lm",
    "plain-distillation",
    "plain-span_corruption",
    "llama-span_corruption",
    "relative-span_corruption",
    "plain-causal_distillation",
)
@pytest.mark.parametrize("model, name", slow_but(QUICK, ALL))
def test_products_multiply_low_and_nothing_else_sums_low(
    name, model, make_case, make_rows, vocab
):
    case = make_case(name, (LOW, *MODELS[model]))
    result = list(trace(case, vocab, make_rows))
    products = [eq for eq in result if eq.primitive.name == "dot_general"]
    # A product with a vector of ones is the sum of a bias's gradient.
    products = [eq for eq in products if len(eq.invars[0].aval.shape) > 1]
    assert len(products) >= 20
    assert all(dtypes(eq) == {"bfloat16"} for eq in products)
    # Sums, softmax, norms, losses.
    others = ("reduce_sum", "reduce_max", "cumsum", "rsqrt", "log", "sqrt", "div")
    sums = [eq for eq in result if eq.primitive.name in others]
    assert len(sums) >= 10
    assert not any("bfloat16" in dtypes(eq) for eq in sums)


@pytest.mark.slow_except("clm", "prefix_lm", "skip_gram")
@every
def test_in_float32_no_product_is_low(name, make_case, make_rows, vocab):
    case = make_case(name, (("dtype", "float32"),))
    result = trace(case, vocab, make_rows)
    products = [eq for eq in result if eq.primitive.name == "dot_general"]
    assert all(dtypes(eq) == {"float32"} for eq in products)


@pytest.mark.slow_except(
    "clm_mlm", "prefix_lm", "skip_gram", "masked_diffusion", "causal_distillation"
)
@every
def test_gradients_and_state_are_float32(name, make_case, make_rows, vocab):
    case = make_case(name, (LOW,))
    optimizer = optax.adamw(1e-3)
    step = case.make_step(optimizer)
    before = case.init_state(optimizer)
    after, metrics = jax.eval_shape(step, before, make_rows(case, 4), jax.random.key(0))
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        assert old.dtype == new.dtype in (jnp.float32, jnp.int32)
    assert {x.dtype.name for x in jax.tree.leaves(metrics)} == {"float32"}


# The others' layers are these ones' layers.
TRAINED = (*CORE, "distillation", "bilm", "skip_gram")


@pytest.mark.slow_cases("electra")
@pytest.mark.parametrize("name", slow_but(("clm", "electra"), TRAINED))
def test_it_trains_as_float32_does(name, make_case, make_rows, make_taught, vocab):
    optimizer, losses = optax.adam(3e-3), {}
    for dtype in ("float32", "bfloat16"):
        case = make_case(name, (("dtype", dtype),))
        rows = make_rows(case, 8)
        case = make_taught(name, case, rows)
        step = case.make_step(optimizer)

        @jax.jit
        def run(state, rows, step=step):
            def body(state, i):
                return step(state, rows, jax.random.key(3))

            return jax.lax.scan(body, state, jnp.arange(40))[1]

        sums = run(case.init_state(optimizer), rows)
        terms = case.spec.coefficients
        losses[dtype] = np.array([sums[term][0] / sums[term][1] for term in terms])
    low, wide = losses["bfloat16"], losses["float32"]
    np.testing.assert_allclose(low[:, 0], wide[:, 0], rtol=0.01)  # the first step
    assert (wide[:, -1] < 0.9 * wide[:, 0]).all()
    # Over several steps, for in few bits a generator draws other tokens now and then.
    last = (losses[:, -8:].mean(1) for losses in (low, wide))
    np.testing.assert_allclose(*last, rtol=0.03, atol=0.01)


@pytest.mark.gpu
@every
@pytest.mark.parametrize("positions", ["learned", "relative"])
def test_fused_attention_gives_the_gradient_of_the_plain_one(
    name, positions, make_case, make_rows
):
    grads = {}
    for kernel in ("xla", "cudnn"):
        values = LOW, ("positions", positions), ("attention", kernel)
        case = make_case(name, values)
        if kernel == "cudnn" and positions == "relative" and name in WITH_AN_ARRAY:
            with pytest.raises(DeviceError, match="only with a full or causal mask"):
                case.gradients(make_rows(case, 8))
            return
        grads[kernel], _ = case.gradients(make_rows(case, 8))
    gap = jax.tree.map(jnp.subtract, grads["cudnn"], grads["xla"])
    assert optax.tree.norm(gap) / optax.tree.norm(grads["xla"]) < 0.03
