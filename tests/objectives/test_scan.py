"""Every objective trains the same whether its layers run in a loop or not."""

import dataclasses

import jax
import numpy as np
import optax
import pytest
from tiny import CORE, slow_but

from jaxpt.learn.state import make_state
from jaxpt.nn.scan import stack_layers

SHAPES = {
    "clm": {"activation": "gelu_tanh"},
    "mlm": {"norm_position": "post", "head_transform": True},
    "span_corruption": {
        "norm": "rmsnorm",
        "positions": "relative",
        "use_bias": False,
        "num_layers": 1,
        "num_decoder_layers": 2,
        "init": "t5",
    },
    "electra": {"norm_position": "post", "embedding_size": 16, "init": "torch"},
    "bert": {
        "norm_position": "post",
        "head_transform": True,
        "init": "truncated",
        "disentangled": "both",
        "disentangled_norm": True,
        "disentangled_projections": True,
    },
    "distillation": {"norm_position": "post"},
}
KEY = jax.random.key(0)
# Its first part keeps the gradients.
OPTIMIZER = optax.chain(optax.trace(0.0), optax.scale(-0.02))


@pytest.fixture
def make_models(make_case, vocab):
    """An objective's case of that shape, and its model unrolled and scanned."""

    def make(name):
        case = make_case(name)
        values = {"num_layers": 2, "num_heads": 4} | SHAPES[name]
        spec = dataclasses.replace(case.model_spec, **values)
        specs = spec, dataclasses.replace(spec, scan_layers=True)
        return case, [case.spec.make_network(s, vocab) for s in specs]

    return make


# The others' layers are these ones' layers, or (bilm, skip_gram) there are none.
SCANNED = (*CORE, "bert", "distillation")


@pytest.mark.slow_cases("span_corruption")
@pytest.mark.parametrize("name", slow_but(("clm", "span_corruption"), SCANNED))
def test_a_run_is_the_same_scanned(name, make_models, make_rows):
    case, models = make_models(name)
    rows = make_rows(case, 4)
    shapes = [jax.eval_shape(model.init_params, KEY) for model in models]
    draw = np.random.default_rng(0).normal
    plain = jax.tree.map(
        lambda x: draw(x.ndim == 1, 0.1, x.shape).astype(np.float32), shapes[0]
    )

    def go(model, params):
        step = jax.jit(dataclasses.replace(case, model=model).make_step(OPTIMIZER))
        state, losses = make_state(params, OPTIMIZER), []
        for i in range(5):
            state, metrics = step(state, rows, jax.random.key(i))
            terms = [metrics[term] for term in case.spec.coefficients]
            losses.append([total / weight for total, weight in terms])
            if i == 0:
                grads = state.opt_state[0].trace
        return np.array(losses), grads

    losses, grads = go(models[0], plain)
    scanned_losses, scanned_grads = go(models[1], stack_layers(plain))
    assert np.isfinite(losses).all() and losses[0, 0] - losses[4, 0] > 0.01
    np.testing.assert_allclose(scanned_losses, losses, rtol=1e-5)
    expected = stack_layers(grads)
    apart = jax.tree.map(lambda a, b: a - b, scanned_grads, expected)
    assert optax.tree.norm(apart) < 1e-6 * optax.tree.norm(expected)
    # What is counted is the same, too.
    args = case.spec.lengths, case.spec.predictions.most
    flops = [model.count_flops(*args) for model in models]
    sizes = [sum(x.size for x in jax.tree.leaves(each)) for each in shapes]
    assert flops[0] == flops[1] and sizes[0] == sizes[1]


FRESH = ("span_corruption", "electra")


@pytest.mark.slow_except("electra")
@pytest.mark.parametrize("name", slow_but(("span_corruption",), FRESH))
def test_fresh_parameters_are_the_same_numbers(name, make_models):
    _, models = make_models(name)
    plain, scanned = (jax.jit(model.init_params)(KEY) for model in models)
    expected = stack_layers(plain)
    assert jax.tree.structure(plain) != jax.tree.structure(expected)
    assert jax.tree.structure(scanned) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, scanned, expected)
