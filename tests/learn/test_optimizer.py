"""Every optimizer against its formula in NumPy, and on stacked layers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiny import run_on_devices, slow

from jaxpt.learn.optim_spec import OPTIMIZER_DEFAULTS, OptimSpec
from jaxpt.learn.optimizer import (
    MUON_EPSILON,
    decay_mask,
    is_layer_matrix,
    make_optimizer,
    scale_by_muon,
)
from jaxpt.learn.state import make_state
from jaxpt.learn.update import Update
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.scan import stack_layers
from jaxpt.nn.transformer import Transformer
from jaxpt.ops import masks


def apply_gradients(state, grads, optimizer):
    """The state one step later, whose gradient is given: that of a linear loss."""

    def loss_fn(params, batch, rngs):
        products = jax.tree.map(lambda p, g: jnp.sum(p * g), params, grads)
        return {"loss": (sum(jax.tree.leaves(products)), jnp.ones(()))}, {}

    batch = {"weights": {"loss": jnp.ones(1)}}
    rngs = dict.fromkeys(("dropout", "sample"), jax.random.key(0))
    return Update(optimizer)(state, batch, loss_fn, rngs, {"loss": 1.0})[0]


def test_kernels_and_tables_decay_and_nothing_else():
    # The names of a real model, with everything that a family may have.
    spec = ModelSpec(vocab_size=7, d_model=8, num_heads=2, d_ff=8, num_layers=1)
    spec = ModelSpec(
        **(
            vars(spec)
            | {"num_decoder_layers": 1, "embedding_size": 4, "head_bias": True}
        )
    )
    kinds = set()
    for positions in ("relative", "learned"):
        model = Transformer(ModelSpec(**(vars(spec) | {"positions": positions})))
        ids = jnp.zeros((1, 2), jnp.int32)
        seen = {name: masks.full() for name in ("self", "dec_self", "cross")}
        init = functools.partial(model.init, deterministic=True)
        params = jax.eval_shape(init, jax.random.key(0), ids, seen, ids)["params"]
        mask = decay_mask(params)
        for path, is_decayed in jax.tree_util.tree_leaves_with_path(mask):
            names = [key.key for key in path]
            is_table = "embed" in names[0] and names[-1] in ("tokens", "table")
            assert is_decayed == (names[-1] == "kernel" or is_table), names
            kinds.add(".".join(names[-2:]))
        # A first axis for the layer is none of a parameter's own.
        stacked = decay_mask(jax.eval_shape(stack_layers, params))
        layers = [stacked[name].pop("layers") for name in ("encoder", "decoder")]
        for stack, result in zip(("encoder", "decoder"), layers):
            assert result == mask[stack].pop("layer_0")
        assert stacked == mask
    assert {"relative.table", "positions.table", "norm.scale", "head.bias"} <= kinds


def adamw(params, grads, spec, lrs, decayed):
    """Loshchilov & Hutter 2019, algorithm 2, with clipping first; float64."""
    first = {name: np.zeros_like(x) for name, x in params.items()}
    second = {name: np.zeros_like(x) for name, x in params.items()}
    for t, (grad, lr) in enumerate(zip(grads, lrs), start=1):
        norm = np.sqrt(sum((g**2).sum() for g in grad.values()))
        scale = min(1.0, spec.clip_norm / norm) if spec.clip_norm else 1.0
        for name, x in params.items():
            g = grad[name] * scale
            first[name] = spec.beta1 * first[name] + (1 - spec.beta1) * g
            second[name] = spec.beta2 * second[name] + (1 - spec.beta2) * g**2
            mean = first[name] / (1 - spec.beta1**t)
            var = second[name] / (1 - spec.beta2**t)
            decay = spec.weight_decay * x if name in decayed else 0.0
            params[name] = x - lr * (mean / (np.sqrt(var) + spec.epsilon) + decay)
    return params


@pytest.mark.parametrize("clip_norm", [0.0, 0.5])
@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
def test_five_steps_are_adamws(clip_norm, weight_decay):
    spec = OptimSpec(
        lr=0.1,
        schedule="linear",
        beta1=0.8,
        beta2=0.9,
        epsilon=1e-3,
        weight_decay=weight_decay,
        clip_norm=clip_norm,
    )
    draw = np.random.default_rng(0).normal
    params = {"kernel": draw(size=(3, 2)), "bias": draw(size=2)}
    # The middle one is small, so that it passes the clip as it is.
    grads = [
        {"kernel": size * draw(size=(3, 2)), "bias": size * draw(size=2)}
        for size in (1.0, 2.0, 1e-2, 1.0, 3.0)
    ]
    result = run(spec, params, grads)
    expected = adamw(params, grads, spec, LRS, {"kernel"})
    for name, value in result.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-5)


def test_the_first_step_of_a_warm_up_moves_nothing():
    spec = OptimSpec(lr=1.0, warmup_steps=2, weight_decay=0.1)
    optimizer = make_optimizer(spec, 10)
    params = {"kernel": jnp.ones((2, 2))}
    state = make_state(params, optimizer)
    state = apply_gradients(state, params, optimizer)
    np.testing.assert_array_equal(state.params["kernel"], 1)
    state = apply_gradients(state, params, optimizer)
    assert (state.params["kernel"] < 1).all()


def to_float32(tree):
    return jax.tree.map(jnp.float32, tree)


def run(spec, params, grads, num_steps=10):
    """Parameters after the steps, in float32."""
    optimizer = make_optimizer(spec, num_steps)
    state = make_state(to_float32(params), optimizer)
    step = jax.jit(lambda state, grad: apply_gradients(state, grad, optimizer))
    for grad in grads:
        state = step(state, to_float32(grad))
    return state.params


def draw_tree(seed, shapes, scale=1.0):
    draw = np.random.default_rng(seed).normal
    return {name: scale * draw(size=shape) for name, shape in shapes.items()}


SHAPES = {"kernel": (5, 3), "bias": (3,)}
PLAIN = {"lr": 0.1, "schedule": "linear", "clip_norm": 0.0, "weight_decay": 0.3}
LRS = [0.1 - 0.01 * t for t in range(5)]


def check_steps(values, rule, shapes=SHAPES, scale=1.0, rtol=1e-4):
    """`rule(name, param, grad, memory, t, lr)` -> param, against five steps."""
    spec = OptimSpec(**(PLAIN | values))
    params = draw_tree(0, shapes, scale)
    grads = [draw_tree(t, shapes) for t in range(1, 6)]
    result = run(spec, params, grads)
    memory = {name: {} for name in shapes}
    for t, (grad, lr) in enumerate(zip(grads, LRS), start=1):
        for name in shapes:
            params[name] = rule(name, params[name], grad[name], memory[name], t, lr)
    for name, value in params.items():
        np.testing.assert_allclose(result[name], value, rtol=rtol, atol=1e-5)


def moments(memory, g, b1, b2):
    memory["m"] = b1 * memory.get("m", 0) + (1 - b1) * g
    memory["v"] = b2 * memory.get("v", 0) + (1 - b2) * g**2
    return memory["m"], memory["v"]


def test_berts_adam_has_no_bias_correction():
    def rule(name, p, g, memory, t, lr):
        m, v = moments(memory, g, 0.9, 0.999)
        decay = 0.3 * p * (name == "kernel")
        return p - lr * (m / (np.sqrt(v) + 1e-6) + decay)

    check_steps({"bias_correction": False, "epsilon": 1e-6}, rule)


@pytest.mark.parametrize("bias_correction", [True, False])
def test_lambs_ratio_is_of_kernels_only(bias_correction):
    def rule(name, p, g, memory, t, lr):
        m, v = moments(memory, g, 0.9, 0.999)
        if bias_correction:
            m, v = m / (1 - 0.9**t), v / (1 - 0.999**t)
        u = m / (np.sqrt(v) + 1e-6)
        if name == "kernel":
            u = u + 0.3 * p
            u = u * np.linalg.norm(p) / np.linalg.norm(u)
        return p - lr * u

    check_steps({"name": "lamb", "bias_correction": bias_correction}, rule)


def test_lion_is_a_sign():
    def rule(name, p, g, memory, t, lr):
        m = memory.get("m", 0)
        memory["m"] = 0.99 * m + 0.01 * g
        return p - lr * (np.sign(0.9 * m + 0.1 * g) + 0.3 * p * (name == "kernel"))

    check_steps({"name": "lion"}, rule)


@pytest.mark.slow_cases("True--1.0")
@pytest.mark.parametrize("beta1", [-1.0, 0.7])
@pytest.mark.parametrize("parameter_scale", [True, False])
def test_adafactor_factors_matrices_from_128_on(beta1, parameter_scale):
    rms = lambda x: np.sqrt((x**2).mean())  # noqa: E731

    def rule(name, p, g, memory, t, lr):
        keep = 1 - t**-0.8
        square = g**2 + 1e-30
        if name == "kernel":
            rows, columns = square.mean(1), square.mean(0)
            rows = memory["r"] = keep * memory.get("r", 0) + (1 - keep) * rows
            columns = memory["c"] = keep * memory.get("c", 0) + (1 - keep) * columns
            v = np.outer(rows, columns) / rows.mean()
        else:
            v = memory["v"] = keep * memory.get("v", 0) + (1 - keep) * square
        u = g / np.sqrt(v)
        u = lr * u / max(1, rms(u))
        if parameter_scale:
            u = u * max(1e-3, rms(p))
        if beta1 > 0:
            u = memory["m"] = beta1 * memory.get("m", 0) + (1 - beta1) * u
        return p - u - lr * 0.3 * p * (name in ("kernel", "thin_kernel"))

    shapes = {"kernel": (129, 130), "thin_kernel": (127, 200), "bias": (200,)}
    values = {"name": "adafactor", "parameter_scale": parameter_scale, "beta1": beta1}
    check_steps(values, rule, shapes)
    # Its memory is rows and columns, not a matrix.
    params = to_float32(draw_tree(0, shapes))
    state = make_optimizer(OptimSpec(name="adafactor"), 9).init(params)
    sizes = sorted(x.size for x in jax.tree.leaves(state) if x.size > 1)
    assert sizes == [129, 130, 200, 127 * 200]


def orthogonalise(x):
    """Keller Jordan's five Newton-Schulz iterations."""
    x = x / (np.linalg.norm(x) + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x


MESH = """
import re, jax, numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxpt.learn.optimizer import orthogonalise
from jaxpt.runs.sharding import make_mesh
x = np.random.default_rng(0).normal(size=(6, 16, 48)).astype("f4") / 28
expected = orthogonalise(x)
for shape in ((1, 8, 1, 1), (2, 4, 1, 1), (1, 4, 1, 2), (8, 1, 1, 1)):
    mesh = make_mesh(shape, jax.devices())
    split = NamedSharding(mesh, PartitionSpec(None, "fsdp", "tensor"))
    placed = jax.device_put(x, split)
    call = jax.jit(orthogonalise, out_shardings=split)
    with jax.set_mesh(mesh):
        compiled = call.lower(placed).compile()
        result = compiled(placed)
    np.testing.assert_allclose(result, expected, atol=1e-5)
    text = compiled.as_text()
    collectives = re.findall(r"(all-\\w+|reduce-scatter)(?:-start)?\\(", text)
    assert len(collectives) <= 6, collectives
print("good")
"""


def test_muon_gathers_sharded_matrices_once():
    """Not in each of the 5 iterations, which have 3 products each."""
    assert run_on_devices(8, MESH).strip() == "good"


@pytest.mark.parametrize("shape", [(4, 16, 48), (4, 48, 16), (24, 24)])
def test_muon_is_bit_for_bit_that_of_optax_on_one_device(shape):
    last_two = optax.contrib.MuonDimensionNumbers(-2, -1)
    expected = optax.contrib.scale_by_muon(
        beta=0.95,
        eps=MUON_EPSILON,
        weight_dimension_numbers=lambda tree: jax.tree.map(lambda _: last_two, tree),
    )
    draw = np.random.default_rng(0).normal
    grads = [{"kernel": jnp.asarray(draw(size=shape), "f4")} for _ in range(3)]
    states = [each.init(grads[0]) for each in (scale_by_muon(0.95), expected)]
    assert jax.tree.structure(states[0]) == jax.tree.structure(states[1])
    updates = [scale_by_muon(0.95).update, expected.update]
    for grad in grads:
        results = [
            jax.jit(update)(grad, state)
            for update, state in zip(updates, states, strict=True)
        ]
        (first, second), states = zip(*[(r[0], r[1]) for r in results], strict=True)
        np.testing.assert_array_equal(first["kernel"], second["kernel"])


@pytest.mark.parametrize("shape", [slow((3, 12)), (12, 3)])
def test_muon_orthogonalises_the_layers_and_has_adamw_for_the_rest(shape):
    draw = np.random.default_rng(0).normal

    def tree():
        layer = {"mlp": {"kernel": draw(size=shape), "bias": draw(size=shape[1])}}
        head = {"transform": {"kernel": draw(size=shape)}}
        return {"embed": {"tokens": draw(size=shape)}, "head": head, "layer_0": layer}

    params, grads = tree(), [tree() for _ in range(5)]
    values = PLAIN | {"name": "muon", "muon_lr": 0.2}
    result = run(OptimSpec(**values), params, grads)
    # What is not a layer's kernel has the same steps as under AdamW with muon's betas.
    values = PLAIN | {"beta2": 0.95, "epsilon": 1e-10}
    adamw = run(OptimSpec(**values), params, grads)
    kernel = result["layer_0"]["mlp"].pop("kernel")
    adamw["layer_0"]["mlp"].pop("kernel")
    assert jax.tree.all(jax.tree.map(lambda a, b: (a == b).all(), result, adamw))

    m, expected = 0.0, params["layer_0"]["mlp"]["kernel"]
    for t, (grad, lr) in enumerate(zip(grads, LRS), start=1):
        g = grad["layer_0"]["mlp"]["kernel"]
        m = 0.95 * m + 0.05 * g
        mixed = 0.95 * m / (1 - 0.95 ** (t + 1)) + 0.05 * g / (1 - 0.95**t)
        u = orthogonalise(mixed) * max(1, shape[1] / shape[0]) ** 0.5
        expected = expected - 2 * lr * (u + 0.3 * expected)
        # Its claim: singular values near 1.
        sizes = np.linalg.svd(u)[1] / max(1, shape[1] / shape[0]) ** 0.5
        assert (0.6 < sizes).all() and (sizes < 1.3).all()
    np.testing.assert_allclose(kernel, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shape", [(3, 12), slow((12, 3)), (4, 4)])
def test_normuon_divides_by_the_rms_of_each_output_or_input(shape):
    draw = np.random.default_rng(0).normal
    params = {"layer_0": {"kernel": draw(size=shape)}}
    grads = [{"layer_0": {"kernel": draw(size=shape)}} for _ in range(5)]
    result = run(OptimSpec(**PLAIN, name="normuon", muon_lr=0.2), params, grads)
    axis = 0 if shape[0] <= shape[1] else 1
    m, second, expected = 0.0, 0.0, params["layer_0"]["kernel"]
    for t, (grad, lr) in enumerate(zip(grads, LRS), start=1):
        g = grad["layer_0"]["kernel"]
        m = 0.95 * m + 0.05 * g
        mixed = 0.95 * m / (1 - 0.95 ** (t + 1)) + 0.05 * g / (1 - 0.95**t)
        o = orthogonalise(mixed)
        second = 0.9 * second + 0.1 * (o**2).mean(axis, keepdims=True)
        u = o / np.sqrt(second)
        u = (
            u
            * np.linalg.norm(o)
            / np.linalg.norm(u)
            * max(1, shape[1] / shape[0]) ** 0.5
        )
        expected = expected - 2 * lr * (u + 0.3 * expected)
    np.testing.assert_allclose(
        result["layer_0"]["kernel"], expected, rtol=1e-3, atol=1e-4
    )


@pytest.mark.slow_except("adamw", "muon")
@pytest.mark.parametrize("name", OPTIMIZER_DEFAULTS)
def test_cautious_decay_only_reduces(name):
    draw = np.random.default_rng(0).normal
    params = {"layer_0": {"kernel": draw(size=(20, 20)), "bias": draw(size=20)}}
    grads = [{"layer_0": {"kernel": draw(size=(20, 20)), "bias": draw(size=20)}}]
    steps = {
        key: run(OptimSpec(**(PLAIN | {"name": name} | more)), params, grads)["layer_0"]
        for key, more in {
            "none": {"weight_decay": 0.0},
            "all": {},
            "cautious": {"cautious_decay": True},
        }.items()
    }
    kernel = params["layer_0"]["kernel"].astype(np.float32)
    moved = steps["none"]["kernel"] - kernel
    shrinks = moved * kernel <= 0
    assert 0.2 < shrinks.mean() < 0.8
    for where, key in ((shrinks, "all"), (~shrinks, "none")):
        cautious, expected = (steps[k]["kernel"][where] for k in ("cautious", key))
        if name == "lamb":  # its trust ratio scales the update with its decay
            factor = (cautious - kernel[where]) / (expected - kernel[where])
            np.testing.assert_allclose(factor, np.median(factor), rtol=1e-3)
            assert 0.5 < np.median(factor) < 2
        else:
            np.testing.assert_array_equal(cautious, expected)
    np.testing.assert_array_equal(steps["cautious"]["bias"], steps["all"]["bias"])


@pytest.mark.slow_except("adamw", "muon")
@pytest.mark.parametrize("name", OPTIMIZER_DEFAULTS)
def test_overrides_of_the_decay_are_by_path(name, refuses):
    def tree(draw):
        layer = {"up": {"kernel": draw(size=(3, 4)), "bias": draw(size=4)}}
        return {
            "embed": {"tokens": draw(size=(7, 3))},
            "encoder": {"layer_0": layer, "layer_1": jax.tree.map(np.array, layer)},
            "head": {"out": {"kernel": draw(size=(3, 7))}},
        }

    draw = np.random.default_rng(0).normal
    params, grads = tree(draw), [tree(draw) for _ in range(2)]

    def final(decay, overrides=""):
        more = {"name": name, "weight_decay": decay, "decay_overrides": overrides}
        return run(OptimSpec(**(PLAIN | more)), params, grads)

    # The bias has none, whatever the override; the first text counts.
    result = final(0.3, "embed=0, layer_1=0.7, encoder=0.5")
    expected = final(0.3) | {"embed": final(0)["embed"]}
    half, more = final(0.5)["encoder"], final(0.7)["encoder"]
    expected["encoder"] = {"layer_0": half["layer_0"], "layer_1": more["layer_1"]}
    jax.tree.map(np.testing.assert_array_equal, result, expected)
    assert (final(0.3)["embed"]["tokens"] != result["embed"]["tokens"]).any()
    with refuses("optim.decay_overrides=embd=0", "embd", "such as embed/tokens"):
        final(0.3, "embd=0")


def stack(tree, num_layers):
    """The same tree with its `layer_i` as one `layers` of stacked arrays."""
    layers = [tree["encoder"][f"layer_{i}"] for i in range(num_layers)]
    rest = {k: v for k, v in tree["encoder"].items() if not k.startswith("layer_")}
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *layers)
    return tree | {"encoder": rest | {"layers": stacked}}


@pytest.mark.slow_except("lamb False")
@pytest.mark.parametrize(
    "values",
    [{"name": name} for name in OPTIMIZER_DEFAULTS]
    + [{"name": "adafactor", "beta1": 0.9}, {"name": "lamb", "bias_correction": False}],
    ids=lambda values: " ".join(map(str, values.values())),
)
def test_stacked_layers_step_as_unrolled_ones(values):
    num_layers, draw = 3, np.random.default_rng(0).normal

    def tree():
        # Sizes and norms that differ from layer to layer; large enough to factor.
        layers = {
            f"layer_{i}": {
                "mlp": {
                    "up": {"kernel": 4.0**-i * draw(size=(128, 130))},
                    "down": {"kernel": draw(size=(3, 128)), "bias": draw(size=128)},
                },
                "norm": {"scale": 3.0**i * draw(size=128)},
            }
            for i in range(num_layers)
        }
        encoder = layers | {"relative": {"table": draw(size=(8, 2))}}
        return {"embed": {"tokens": draw(size=(131, 128))}, "encoder": encoder}

    params, grads = tree(), [tree() for _ in range(3)]
    spec = OptimSpec(lr=0.1, weight_decay=0.3, clip_norm=5.0, **values)
    expected = stack(run(spec, params, grads), num_layers)
    stacked = [stack(grad, num_layers) for grad in grads]
    result = run(spec, stack(params, num_layers), stacked)
    for (path, one), other in zip(
        jax.tree_util.tree_leaves_with_path(result),
        jax.tree.leaves(expected),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5, err_msg=str(path))


def test_stacked_kernels_decay_and_stacked_biases_do_not():
    layers = {"up": {"kernel": np.ones((3, 2, 2)), "bias": np.ones((3, 2))}}
    tree = {"encoder": {"layers": layers, "norm": {"scale": np.ones(2)}}}
    assert decay_mask(tree) == {
        "encoder": {
            "layers": {"up": {"kernel": True, "bias": False}},
            "norm": {"scale": False},
        }
    }


def test_the_matrices_of_the_layers_are_found_by_name():
    spec = ModelSpec(
        vocab_size=7,
        d_model=8,
        num_heads=2,
        d_ff=8,
        num_layers=2,
        num_decoder_layers=1,
        embedding_size=4,
        gated_mlp=True,
        tie_embeddings=False,
        head_transform=True,
        positions="relative",
    )
    model, ids = Transformer(spec), jnp.zeros((1, 2), jnp.int32)
    seen = {name: masks.full() for name in ("self", "dec_self", "cross")}
    init = functools.partial(model.init, deterministic=True)
    params = jax.eval_shape(init, jax.random.key(0), ids, seen, ids)["params"]
    results = [
        [key.key for key in path]
        for path, leaf in jax.tree_util.tree_leaves_with_path(params)
        if is_layer_matrix(path, leaf)
    ]
    # Four of each attention and three of each gated MLP; a decoder's layer has two.
    assert len(results) == 2 * 7 + 11
    assert all(names[1].startswith("layer_") for names in results)
    outside = set(params) - {names[0] for names in results}
    assert outside == {"embed", "project", "head"}


@pytest.mark.slow_cases("0.0")
@pytest.mark.parametrize("clip_norm", [0.0, 0.5])
def test_the_default_is_optaxs_adamw_to_the_bit(clip_norm):
    spec = OptimSpec(lr=0.1, weight_decay=0.01, clip_norm=clip_norm)
    params = to_float32(draw_tree(0, SHAPES))
    grads = [to_float32(draw_tree(t, SHAPES)) for t in range(1, 4)]
    parts = [optax.clip_by_global_norm(clip_norm)] if clip_norm else []
    lr = optax.cosine_decay_schedule(0.1, 10, 0.0)
    plain = optax.chain(*parts, optax.adamw(lr, weight_decay=0.01, mask=decay_mask))
    ours, state = make_optimizer(spec, 10), make_state(params, plain)
    other = make_state(params, ours)
    assert jax.tree.structure(state) == jax.tree.structure(other)
    for grad in grads:
        state = apply_gradients(state, grad, plain)
        other = apply_gradients(other, grad, ours)
    pairs = zip(jax.tree.leaves(state), jax.tree.leaves(other), strict=True)
    assert all((a == b).all() for a, b in pairs)
