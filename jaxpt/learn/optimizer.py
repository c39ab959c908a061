"""Optimizers of optax, with rules for weight decay, LAMB's ratio and Muon's matrices.

The rules depend on parameter names: the layers of a stack are `layer_0`, `layer_1`, ...
or, if scanned, `layers`, whose arrays have a leading axis of layers. All rules apply to
single layers, scanned or not.
"""

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import KeyPath
from jaxtyping import Array, Float, PyTree

from jaxpt.by_name import load_place
from jaxpt.errors import ConfigError
from jaxpt.learn.frozen import is_frozen, split_trained
from jaxpt.learn.optim_spec import OptimSpec
from jaxpt.learn.schedules import make_schedules
from jaxpt.nn.scan import is_stacked, path_name
from jaxpt.ops import layout

if TYPE_CHECKING:
    from jaxpt.learn.scales import Scales

# T5X's: the smallest side of a matrix with a factored second moment, the exponent of
# the moment's decay, and the maximum RMS of an update.
FACTOR_FROM = 128
ADAFACTOR_DECAY = 0.8
ADAFACTOR_CLIP = 1.0
# Keller Jordan's, added to the norm before the Newton-Schulz iterations.
MUON_EPSILON = 1e-7
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NUM_ITERATIONS = 5
# NorMuon's smallest second moment (modded-nanogpt).
NORMUON_EPSILON = 1e-10


def _names(path: KeyPath) -> list[str]:
    return [key.key for key in path]


def is_decayed(path: KeyPath, leaf: Array) -> bool:
    """Whether a leaf is a kernel or table, not a bias, norm or T5's relative bias."""
    return leaf.ndim - is_stacked(path) >= 2 and "relative" not in _names(path)


def is_layer_matrix(path: KeyPath, leaf: Array) -> bool:
    """Whether a leaf is a kernel of a layer, not of an embedding or a head."""
    names = _names(path)
    is_inside = any(n == "layers" or n.startswith("layer_") for n in names)
    return is_inside and names[-1] == "kernel" and is_decayed(path, leaf)


def decay_mask(params: PyTree) -> PyTree:
    """True where weight decay and LAMB's ratio apply, by name and rank."""
    return jax.tree_util.tree_map_with_path(is_decayed, params)


def make_decay(
    spec: OptimSpec, lr: Callable[[Array], Array] | None = None
) -> optax.GradientTransformation:
    """Adds the weight decay to updates; `optim.decay_overrides` are by path.

    Args:
      lr: the learning rate, if the updates already have that factor.
    """
    overrides = spec.list_decays()

    def rate(decay: float) -> Any:
        return decay if lr is None else lambda step: decay * lr(step)

    def has(decay: float, path: KeyPath, leaf: Array) -> bool:
        return is_decayed(path, leaf) and find(path_name(path)) == decay

    def find(name: str) -> float:
        own = [overrides[text] for text in overrides if text in name]
        return [*own, spec.weight_decay][0]

    def mask(decay: float) -> Callable[[PyTree], PyTree]:
        own = functools.partial(has, decay)
        return functools.partial(jax.tree_util.tree_map_with_path, own)

    decays = dict.fromkeys([spec.weight_decay, *overrides.values()])
    parts = [optax.add_decayed_weights(rate(d), mask(d)) for d in decays]
    add = parts[0] if len(parts) == 1 else optax.chain(*parts)
    return be_cautious(add) if spec.cautious_decay else add


def be_cautious(decay: optax.GradientTransformation) -> optax.GradientTransformation:
    """Decays a weight only where its update reduces its magnitude too.

    >>> decay = be_cautious(optax.add_decayed_weights(0.5))
    >>> weights, updates = jnp.array([1.0, -1.0]), jnp.array([0.2, 0.2])
    >>> updates, _ = decay.update(updates, decay.init(weights), weights)
    >>> [round(x, 2) for x in (weights - 0.1 * updates).tolist()]
    [0.93, -1.02]
    """

    def update(
        updates: PyTree, state: optax.OptState, params: PyTree = None
    ) -> tuple[PyTree, optax.OptState]:
        decayed, state = decay.update(updates, state, params)

        def choose(update: Array, decayed: Array, param: Array) -> Array:
            return jnp.where(update * param >= 0, decayed, update)

        return jax.tree.map(choose, updates, decayed, params), state

    return optax.GradientTransformation(decay.init, update)


def by_layer(inner: optax.GradientTransformation) -> optax.GradientTransformation:
    """Applies `inner` to each tensor separately, and to each layer of stacked ones.

    Norms, RMS and factored moments are thus those of single layers' tensors.
    """

    def lift(function: Callable, path: KeyPath) -> Callable:
        return jax.vmap(function) if is_stacked(path) else function

    def init(params: PyTree) -> optax.OptState:
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: lift(inner.init, path)(leaf), params
        )

    def update(
        grads: PyTree, state: optax.OptState, params: PyTree = None
    ) -> tuple[PyTree, optax.OptState]:
        tree: Any
        leaves, tree = jax.tree_util.tree_flatten_with_path(grads)
        parts = zip(leaves, *map(tree.flatten_up_to, (state, params)), strict=True)
        done = [
            lift(inner.update, path)(grad, part, param)
            for (path, grad), part, param in parts
        ]
        updates, states = zip(*done, strict=True) if done else ((), ())
        return tree.unflatten(updates), tree.unflatten(states)

    return optax.GradientTransformation(init, update)


def scale_by_adam(spec: OptimSpec) -> optax.GradientTransformation:
    """Adam's update; without bias correction it is that of google-research/bert."""
    b1, b2, epsilon = spec.beta1, spec.beta2, spec.epsilon
    corrected = optax.scale_by_adam(b1, b2, epsilon)
    if spec.bias_correction:
        return corrected

    def update(
        grads: PyTree, state: optax.OptState, params: PyTree = None
    ) -> tuple[PyTree, optax.OptState]:
        _, state = corrected.update(grads, state, params)
        updates = jax.tree.map(
            lambda m, v: m / (jnp.sqrt(v) + epsilon), state.mu, state.nu
        )
        return updates, state

    return optax.GradientTransformation(corrected.init, update)


def make_adamw(
    spec: OptimSpec, schedules: dict, scales: "Scales | None" = None
) -> optax.GradientTransformation:
    """Adam's update, weight decay and learning rate, in that order (AdamW).

    Loshchilov & Hutter 2019.
    """
    rate = optax.scale_by_learning_rate(schedules["lr"])
    parts = scale_by_adam(spec), make_decay(spec), rate
    return scales.scale_adamw(*parts) if scales else optax.chain(*parts)


def make_lamb(spec: OptimSpec, schedules: dict) -> optax.GradientTransformation:
    """AdamW's update times norm(parameters) / norm(update), by tensor.

    You et al. 2020; as in tensorflow/addons, the ratio is not applied to tensors
    without weight decay.
    """
    ratio = by_layer(optax.scale_by_trust_ratio())
    return optax.chain(
        scale_by_adam(spec),
        make_decay(spec),
        optax.masked(ratio, decay_mask),
        optax.scale_by_learning_rate(schedules["lr"]),
    )


def make_lion(spec: OptimSpec, schedules: dict) -> optax.GradientTransformation:
    """The sign of the momentum (Chen et al. 2023)."""
    return optax.chain(
        optax.scale_by_lion(b1=spec.beta1, b2=spec.beta2),
        make_decay(spec),
        optax.scale_by_learning_rate(schedules["lr"]),
    )


def make_adafactor(spec: OptimSpec, schedules: dict) -> optax.GradientTransformation:
    """Shazeer & Stern 2018, in T5X's order.

    Departure: weight decay is multiplied by the learning rate, as in all optimizers
      here
    (T5 uses none).
    """
    parts = [
        optax.scale_by_factored_rms(
            decay_rate=ADAFACTOR_DECAY,
            min_dim_size_to_factor=FACTOR_FROM,
            epsilon=spec.epsilon,
        ),
        optax.clip_by_block_rms(ADAFACTOR_CLIP),
    ]
    if spec.parameter_scale:
        parts.append(optax.scale_by_param_block_rms())
    lr = schedules["lr"]
    steps = [by_layer(optax.chain(*parts))]
    steps.append(optax.scale_by_learning_rate(lr, flip_sign=False))
    if spec.beta1:
        steps.append(optax.ema(spec.beta1, debias=False))
    if spec.weight_decay or spec.decay_overrides:
        steps.append(make_decay(spec, lr))
    return optax.chain(*steps, optax.scale(-1.0))


def make_muon(
    spec: OptimSpec, schedules: dict, scales: "Scales | None" = None
) -> optax.GradientTransformation:
    """Orthogonalised momentum for the layers' matrices, AdamW for the rest.

    Keller Jordan's: 5 Newton-Schulz iterations, Nesterov momentum, steps multiplied by
    sqrt(max(1, out / in)). Departure: optax corrects the momentum's bias. "normuon"
    divides the orthogonalised momentum by its RMS (`scale_by_normuon`).
    """

    def shape(update: Array, _: Any) -> Array:
        return update * max(1, update.shape[-1] / update.shape[-2]) ** 0.5

    def label(path: KeyPath, leaf: Array) -> str:
        return "muon" if is_layer_matrix(path, leaf) else "adamw"

    parts = [
        scale_by_muon(spec.momentum),
        *([scale_by_normuon(spec.normuon_beta)] if spec.name == "normuon" else []),
        optax.stateless_with_tree_map(shape),
        make_decay(spec),
        optax.scale_by_learning_rate(schedules["muon_lr"]),
    ]
    muon = scales.scale_muon(parts) if scales else optax.chain(*parts)
    return optax.partition(
        {"muon": muon, "adamw": make_adamw(spec, schedules, scales)},
        functools.partial(jax.tree_util.tree_map_with_path, label),
    )


def scale_by_muon(momentum: float) -> optax.GradientTransformation:
    """`optax.contrib.scale_by_muon`, with `orthogonalise` for its iterations."""
    # Axes before the last two are those of layers, which are independent.
    last_two = optax.contrib.MuonDimensionNumbers(-2, -1)
    normed = optax.contrib.scale_by_muon(
        beta=momentum,
        eps=MUON_EPSILON,
        ns_steps=0,  # momentum over its norm
        weight_dimension_numbers=lambda tree: jax.tree.map(lambda _: last_two, tree),
    )

    def update(
        updates: PyTree, state: optax.OptState, params: PyTree = None
    ) -> tuple[PyTree, optax.OptState]:
        updates, state = normed.update(updates, state, params)
        return jax.tree.map(orthogonalise, updates), state

    return optax.GradientTransformation(normed.init, update)


def orthogonalise(x: Float[Array, "*layers I O"]) -> Float[Array, "*layers I O"]:
    """Newton-Schulz iterations on each matrix, whose norm is at most 1."""
    a, b, c = NEWTON_SCHULZ

    def iterate(x: Array) -> Array:
        is_tall = x.shape[0] > x.shape[1]
        x = x.T if is_tall else x
        for _ in range(NUM_ITERATIONS):
            gram = x @ x.T
            x = a * x + (b * gram + c * gram @ gram) @ x
        return x.T if is_tall else x

    matrices = x.reshape(-1, *x.shape[-2:])
    return layout.map_matrices(iterate, matrices).reshape(x.shape)


def scale_by_normuon(beta: float) -> optax.GradientTransformation:
    """Divides a matrix by its RMS along the shorter side, and keeps its norm.

    NorMuon (Li et al. 2025), as in modded-nanogpt: the mean square along the shorter
    side (of a square matrix, along its inputs) has an exponential moving average.

    >>> normalise = scale_by_normuon(beta=0.9)
    >>> updates = jnp.array([[1.0, 0.5], [1.0, 0.5]])  # [in, out]
    >>> updates, _ = normalise.update(updates, normalise.init(updates))
    >>> [[round(x, 4) for x in row] for row in updates.tolist()]
    [[0.7906, 0.7906], [0.7906, 0.7906]]
    """

    def mean_square(x: Array) -> Array:
        shorter = -2 if x.shape[-2] <= x.shape[-1] else -1
        return jnp.square(x).mean(shorter, keepdims=True)

    def norm(x: Array) -> Array:
        return jnp.sqrt(jnp.square(x).sum((-2, -1), keepdims=True))

    def init(params: PyTree) -> optax.OptState:
        return jax.tree.map(lambda x: jnp.zeros_like(mean_square(x)), params)

    def update(
        updates: PyTree, state: optax.OptState, params: PyTree = None
    ) -> tuple[PyTree, optax.OptState]:
        def average(old: Array, x: Array) -> Array:
            return beta * old + (1 - beta) * mean_square(x)

        def divide(x: Array, second: Array) -> Array:
            scaled = x / jnp.sqrt(jnp.maximum(second, NORMUON_EPSILON))
            return scaled * norm(x) / jnp.maximum(norm(scaled), NORMUON_EPSILON)

        state = jax.tree.map(average, state, updates)
        return jax.tree.map(divide, updates, state), state

    return optax.GradientTransformation(init, update)


def count_flops(spec: OptimSpec, params: PyTree, frozen: tuple[str, ...] = ()) -> float:
    """Operations of an update's matrix products, 2 for each multiply-add.

    Of the built-in optimizers only Muon and NorMuon have products, those of
    `orthogonalise`; those of optax's are counted in their updates. With m the smaller
    and n the larger side of a matrix, an iteration has two products of m, n and m, and
    one of m, m and m: 4 m^2 n + 2 m^3 operations.

    Args:
      params: arrays or shapes.
      frozen: paths of parameters without updates.

    >>> kernel = jax.ShapeDtypeStruct((3, 64, 16), jnp.float32)  # of 3 scanned layers
    >>> params = {"layers": {"mlp": {"kernel": kernel}}}
    >>> count_flops(OptimSpec(name="muon"), params)  # 3 x 5 x (4 x 256 x 64 + 2 x 4096)
    1105920.0
    """
    if not spec.has_products:
        return 0.0
    if spec.is_named:
        trained, _ = split_trained(params, frozen)
        return load_place("jaxpt.learn.optax_names:count_products")(spec, trained)
    total = 0.0
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if is_layer_matrix(path, leaf) and not is_frozen(path, frozen):
            *layers, rows, columns = leaf.shape
            m, n = sorted((rows, columns))
            total += math.prod(layers) * NUM_ITERATIONS * (4 * m * m * n + 2 * m**3)
    return total


def make_named(spec: OptimSpec, schedules: dict) -> optax.GradientTransformation:
    """An optimizer of optax by its name; decay is added if it has none."""
    names = load_place("jaxpt.learn.optax_names")
    named = names.make_named(spec, schedules["lr"])
    if not names.adds_decay(spec.name):
        return named
    if not (spec.weight_decay or spec.decay_overrides):
        return named
    flip = optax.scale(-1.0)  # its updates already have the factor -lr
    return optax.chain(named, flip, make_decay(spec, schedules["lr"]), flip)


MAKERS = {
    "adamw": make_adamw,
    "adafactor": make_adafactor,
    "lamb": make_lamb,
    "lion": make_lion,
    "muon": make_muon,
    "normuon": make_muon,
}


def set_schedule_step(opt_state: optax.OptState, step: Array | int) -> optax.OptState:
    """An optimizer's state whose learning rate schedules continue from `step`."""

    def is_schedule(part: Any) -> bool:
        return isinstance(part, optax.ScaleByScheduleState)

    def put(part: Any) -> Any:
        if not is_schedule(part):
            return part
        count = jnp.asarray(step, part.count.dtype)
        return part._replace(count=jnp.broadcast_to(count, part.count.shape))

    return jax.tree.map(put, opt_state, is_leaf=is_schedule)


def check_overrides(
    optimizer: optax.GradientTransformation, spec: OptimSpec
) -> optax.GradientTransformation:
    """The optimizer, after a check that each of `decay_overrides` has a parameter."""

    def init(params: PyTree) -> optax.OptState:
        leaves = jax.tree_util.tree_leaves_with_path(params)
        names = [path_name(path) for path, leaf in leaves if is_decayed(path, leaf)]
        for text in spec.list_decays():
            if not any(text in name for name in names):
                raise ConfigError(
                    f"optim.decay_overrides={spec.decay_overrides}: {text} must be in "
                    f"the path of a kernel or table, such as {names[0]}"
                )
        return optimizer.init(params)

    return optax.GradientTransformation(init, optimizer.update)


def make_optimizer(
    spec: OptimSpec,
    num_steps: int,
    frozen: tuple[str, ...] = (),
    scales: "Scales | None" = None,
) -> optax.GradientTransformation:
    """Gradient clipping followed by the optimizer.

    Args:
      frozen: paths of parameters without updates and moments.
      scales: the factors of `jaxpt.nn.parametrization`; None for 1.
    """
    parts = [optax.clip_by_global_norm(spec.clip_norm)] if spec.clip_norm else []
    maker = make_named if spec.is_named else MAKERS[spec.name]
    more = () if scales is None else (scales,)
    optimizer = optax.chain(*parts, maker(spec, make_schedules(spec, num_steps), *more))
    if spec.decay_overrides:
        optimizer = check_overrides(optimizer, spec)
    if not frozen:
        return optimizer

    def label(path: KeyPath, leaf: Array) -> str:
        return "frozen" if is_frozen(path, frozen) else "trained"

    return optax.partition(
        {"trained": optimizer, "frozen": optax.set_to_zero()},
        functools.partial(jax.tree_util.tree_map_with_path, label),
    )
