"""The optimizers' factors of muP and CompleteP, against AdamW written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import make_config

from jaxpt.config.plan import make_plan
from jaxpt.learn.optim_spec import OptimSpec
from jaxpt.learn.optimizer import make_optimizer
from jaxpt.learn.scales import Scales, make_scales
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.student_teacher import CausalStudent

# m_N = 4, m_L = 8.
SIZES = {"d_model": 16, "num_layers": 8, "base_width": 4, "base_depth": 1}
LR, DECAY, EPSILON = 0.1, 0.2, 0.5
# The factors of learning rate, weight decay and epsilon, as in the reference.
FACTORS = {
    "completep": {
        "embed/tokens": (1, 1, 1 / 32),
        "encoder/layer_0/mlp/up/kernel": (1 / 4, 4, 1 / 32),
        "encoder/layer_0/mlp/up/bias": (1, 0, 1 / 32),
        "encoder/layer_0/mlp_norm/scale": (1, 0, 1 / 32),
        "encoder/norm/scale": (1, 0, 1 / 32),
        "head/out/kernel": (1, 1, 1 / 32),
    },
    "depth_mup": {
        "embed/tokens": (1, 1, 0.088388),
        "encoder/layer_0/mlp/up/kernel": (0.088388, 4, 0.088388),
        "encoder/layer_0/mlp/up/bias": (0.353553, 0, 0.088388),
        "encoder/norm/scale": (1, 0, 0.088388),
    },
    "mup": {
        "encoder/layer_0/mlp/up/kernel": (1 / 4, 4, 1 / 4),
        "encoder/layer_0/mlp/up/bias": (1, 0, 1 / 4),
        "embed/tokens": (1, 1, 1 / 4),
    },
}


def draw(paths, seed):
    rng = np.random.default_rng(seed)
    tree = {}
    for path in paths:
        *above, last = path.split("/")
        place = tree
        for part in above:
            place = place.setdefault(part, {})
        shape = (3,) if last in ("bias", "scale") else (3, 5)
        place[last] = rng.normal(0, 1, shape).astype(np.float32)
    return tree


def get(tree, path):
    for name in path.split("/"):
        tree = tree[name]
    return np.asarray(tree)


def adamw(param, grads, lr, decay, epsilon, corrected=True):
    """The parameter after AdamW's steps with betas .9 and .95."""
    m = v = 0.0
    param = param.astype(np.float64)
    for t, grad in enumerate(grads, 1):
        m, v = 0.9 * m + 0.1 * grad, 0.95 * v + 0.05 * grad**2
        share = (1 - 0.9**t, 1 - 0.95**t) if corrected else (1, 1)
        update = (m / share[0]) / (np.sqrt(v / share[1]) + epsilon)
        param = param - lr * (update + decay * param)
    return param


def run(optimizer, params, grads):
    state, params = optimizer.init(params), jax.tree.map(jnp.asarray, params)
    for grad in grads:
        updates, state = optimizer.update(grad, state, params)
        params = jax.tree.map(lambda x, y: x + y, params, updates)
    return params, state


def make(parametrization, name="adamw", **values):
    spec = ModelSpec(**SIZES, parametrization=parametrization)
    values = {"weight_decay": DECAY, "beta2": 0.95, "clip_norm": 0.0} | values
    optim = OptimSpec(name=name, lr=LR, schedule="constant", epsilon=EPSILON, **values)
    return make_optimizer(optim, 3, (), Scales({"": spec}))


@pytest.mark.parametrize("corrected", [True, False])
@pytest.mark.parametrize("parametrization", FACTORS)
def test_adamw_has_the_factors_of_the_reference(parametrization, corrected):
    factors = FACTORS[parametrization]
    params, grads = draw(factors, 0), [draw(factors, seed) for seed in (1, 2, 3)]
    optimizer = make(parametrization, bias_correction=corrected)
    result, _ = run(optimizer, params, grads)
    for path, (lr, decay, epsilon) in factors.items():
        expected = adamw(
            get(params, path),
            [get(grad, path) for grad in grads],
            lr * LR,
            decay * DECAY,
            epsilon * EPSILON,
            corrected,
        )
        np.testing.assert_allclose(get(result, path), expected, 1e-4, 1e-5, path)


@pytest.mark.parametrize("parametrization, depth", [("completep", 1), ("depth_mup", 8)])
def test_muon_steps_depend_on_the_depth_alone(parametrization, depth):
    """Others have AdamW's factors; a kernel outside of layers is AdamW's."""
    kernel, bias = "encoder/layer_0/mlp/up/kernel", "encoder/layer_0/mlp/up/bias"
    head = "head/transform/kernel"
    paths = (kernel, bias, head, "embed/tokens")
    params, grads = draw(paths, 0), [draw(paths, seed) for seed in (1, 2)]
    optimizer = make(parametrization, "muon", muon_lr=0.3)
    result, _ = run(optimizer, params, grads)
    rest = {"weight_decay": DECAY, "clip_norm": 0.0, "beta2": 0.95, "epsilon": EPSILON}
    rate = 0.3 * depth**-0.5
    plain = OptimSpec(name="muon", lr=LR, schedule="constant", muon_lr=rate, **rest)
    expected, _ = run(make_optimizer(plain, 3), params, grads)
    np.testing.assert_allclose(get(result, kernel), get(expected, kernel), 1e-4, 1e-6)
    epsilon = EPSILON * depth**-0.5 / 4 if depth > 1 else EPSILON / 32
    for path, lr, decay in ((bias, depth**-0.5, 0), (head, 1 / 4, 4)):
        each = [get(grad, path) for grad in grads]
        ours = adamw(get(params, path), each, lr * LR, decay * DECAY, epsilon)
        np.testing.assert_allclose(get(result, path), ours, 1e-4, 1e-5, path)


@pytest.mark.parametrize("name", ["adamw", "muon", "normuon"])
def test_base_sizes_are_standard_bit_for_bit(name):
    paths = (*FACTORS["completep"], "encoder/layers/mlp/down/kernel")
    params, grads = draw(paths, 0), [draw(paths, seed) for seed in (1, 2, 3)]
    base = SIZES | {"base_width": 16, "base_depth": 8}
    spec = ModelSpec(**base, parametrization="completep")
    optim = OptimSpec(name=name, lr=LR, weight_decay=DECAY, cautious_decay=True)
    ours, _ = run(make_optimizer(optim, 9, (), Scales({"": spec})), params, grads)
    expected, _ = run(make_optimizer(optim, 9), params, grads)
    jax.tree.map(np.testing.assert_array_equal, ours, expected)


def test_a_standard_optimizer_keeps_the_form_of_its_state():
    """Stored runs have it."""
    params = draw(FACTORS["completep"], 0)
    optim = OptimSpec(lr=LR)
    _, state = run(make_optimizer(optim, 3), params, [])
    assert len(state) == 2 and len(state[1]) == 3


def test_scanned_layers_have_the_same_factors():
    apart = [f"encoder/layer_{i}/mlp/up/kernel" for i in range(2)]
    params, grads = draw(apart, 0), [draw(apart, seed) for seed in (1, 2)]

    def stack(tree):
        layers = [tree["encoder"][f"layer_{i}"] for i in range(2)]
        return {"encoder": {"layers": jax.tree.map(lambda *x: np.stack(x), *layers)}}

    optimizer = make("depth_mup")
    expected, _ = run(optimizer, params, grads)
    result, _ = run(optimizer, stack(params), [stack(grad) for grad in grads])
    jax.tree.map(np.testing.assert_allclose, result, stack(expected))


COMPLETEP = {"model__parametrization": "completep"}


@pytest.mark.parametrize(
    "changes, parts",
    [
        ({"optim__name": "lamb"}, ("optim.name=lamb", "adamw, muon or normuon")),
        ({"optim__name": "adafactor"}, ("optim.name=adafactor", "completep")),
        ({"optim__name": "lion"}, ("optim.name=lion", "completep")),
        ({"optim__lr_width": 64}, ("optim.lr_width=64", "must be 0", "completep")),
        ({"model__norm_position": "post"}, ("model.norm_position=post", "pre")),
    ],
)
def test_settings_that_contradict_the_factors_are_refused(changes, parts, refuses):
    with refuses(*parts):
        make_plan(make_config("no.txt", **COMPLETEP | changes))
    make_plan(make_config("no.txt", **COMPLETEP))
    if "model__norm_position" not in changes:  # alone they are not
        make_plan(make_config("no.txt", **changes))


def test_networks_without_rules_are_refused(refuses):
    spec = ModelSpec(vocab_size=9, parametrization="completep", positions="none")
    student = CausalStudent(spec, spec, 1.0)
    with refuses("model.parametrization=completep", "a student"):
        make_scales(student)
    for path in ("ahead/lstm_0/input/kernel", "words/table", "latent/last"):
        with refuses("model.parametrization=completep", "do not cover its", path):
            make("completep").init(draw((path,), 0))
