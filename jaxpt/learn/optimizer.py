"""Optimizers of optax, with rules for weight decay, LAMB's ratio and Muon's matrices.

The rules depend on parameter names: the layers of a stack are `layer_0`, `layer_1`, ...
or, if scanned, `layers`, whose arrays have a leading axis of layers. All rules apply to
single layers, scanned or not.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import KeyPath
from jaxtyping import Array, PyTree

from jaxpt.learn.frozen import is_frozen
from jaxpt.learn.optim_spec import OptimSpec
from jaxpt.learn.schedules import make_schedules
from jaxpt.nn.scan import is_stacked

# T5X's: the smallest side of a matrix with a factored second moment, the exponent of
# the moment's decay, and the maximum RMS of an update.
FACTOR_FROM = 128
ADAFACTOR_DECAY = 0.8
ADAFACTOR_CLIP = 1.0
# Keller Jordan's, added to the norm before the Newton-Schulz iterations.
MUON_EPSILON = 1e-7


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


def make_adamw(spec: OptimSpec, schedules: dict) -> optax.GradientTransformation:
    """Adam's update, weight decay and learning rate, in that order (AdamW).

    Loshchilov & Hutter 2019.
    """
    return optax.chain(
        scale_by_adam(spec),
        optax.add_decayed_weights(spec.weight_decay, decay_mask),
        optax.scale_by_learning_rate(schedules["lr"]),
    )


def make_lamb(spec: OptimSpec, schedules: dict) -> optax.GradientTransformation:
    """AdamW's update times norm(parameters) / norm(update), by tensor.

    You et al. 2020; as in tensorflow/addons, the ratio is not applied to tensors
    without weight decay.
    """
    ratio = by_layer(optax.scale_by_trust_ratio())
    return optax.chain(
        scale_by_adam(spec),
        optax.add_decayed_weights(spec.weight_decay, decay_mask),
        optax.masked(ratio, decay_mask),
        optax.scale_by_learning_rate(schedules["lr"]),
    )


def make_lion(spec: OptimSpec, schedules: dict) -> optax.GradientTransformation:
    """The sign of the momentum (Chen et al. 2023)."""
    return optax.lion(
        schedules["lr"],
        b1=spec.beta1,
        b2=spec.beta2,
        weight_decay=spec.weight_decay,
        mask=decay_mask,
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
    if spec.weight_decay:
        decay = lambda step: spec.weight_decay * lr(step)  # noqa: E731
        steps.append(optax.add_decayed_weights(decay, decay_mask))
    return optax.chain(*steps, optax.scale(-1.0))


def make_muon(spec: OptimSpec, schedules: dict) -> optax.GradientTransformation:
    """Orthogonalised momentum for the layers' matrices, AdamW for the rest.

    Keller Jordan's: 5 Newton-Schulz iterations, Nesterov momentum, steps multiplied by
    sqrt(max(1, out / in)). Departure: optax corrects the momentum's bias.
    """
    # Axes before the last two are those of layers, which are independent.
    last_two = optax.contrib.MuonDimensionNumbers(-2, -1)

    def shape(update: Array, _: Any) -> Array:
        return update * max(1, update.shape[-1] / update.shape[-2]) ** 0.5

    def label(path: KeyPath, leaf: Array) -> str:
        return "muon" if is_layer_matrix(path, leaf) else "adamw"

    muon = optax.chain(
        optax.contrib.scale_by_muon(
            beta=spec.momentum,
            eps=MUON_EPSILON,
            weight_dimension_numbers=lambda tree: jax.tree.map(
                lambda _: last_two, tree
            ),
        ),
        optax.stateless_with_tree_map(shape),
        optax.add_decayed_weights(spec.weight_decay),
        optax.scale_by_learning_rate(schedules["muon_lr"]),
    )
    return optax.partition(
        {"muon": muon, "adamw": make_adamw(spec, schedules)},
        functools.partial(jax.tree_util.tree_map_with_path, label),
    )


MAKERS = {
    "adamw": make_adamw,
    "adafactor": make_adafactor,
    "lamb": make_lamb,
    "lion": make_lion,
    "muon": make_muon,
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


def make_optimizer(
    spec: OptimSpec, num_steps: int, frozen: tuple[str, ...] = ()
) -> optax.GradientTransformation:
    """Gradient clipping followed by the optimizer.

    Args:
      frozen: paths of parameters without updates and moments.

    Raises:
      UserError: the schedule does not fit `num_steps`.
    """
    parts = [optax.clip_by_global_norm(spec.clip_norm)] if spec.clip_norm else []
    maker = MAKERS[spec.name]
    optimizer = optax.chain(*parts, maker(spec, make_schedules(spec, num_steps)))
    if not frozen:
        return optimizer

    def label(path: KeyPath, leaf: Array) -> str:
        return "frozen" if is_frozen(path, frozen) else "trained"

    return optax.partition(
        {"trained": optimizer, "frozen": optax.set_to_zero()},
        functools.partial(jax.tree_util.tree_map_with_path, label),
    )
