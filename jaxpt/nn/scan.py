"""A stack's layers as one set of parameters with a first axis, for a loop to run over.

    unrolled                                scanned (`ModelSpec.scan_layers`)
    encoder/layer_0/mlp/up/kernel [D, F]    encoder/layers/mlp/up/kernel [L, D, F]
    encoder/layer_1/mlp/up/kernel [D, F]

A first layer with other parameters than the rest (`ModelSpec.embed_norm`) stays
`layer_0`, beside the others.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxpt.nn.model_spec import ModelSpec

# The collection of keys that fresh layers are drawn with.
KEYS = "keys"


def stack_layers(params):
    """The scanned form of unrolled parameters, or of a tree like them (gradients).

    >>> stack = {f"layer_{i}": {"bias": jnp.array([i, i + 1])} for i in (0, 1)}
    >>> stack_layers({"encoder": stack})["encoder"]["layers"]["bias"].tolist()
    [[0, 1], [1, 2]]
    """
    if not isinstance(params, dict):
        return params
    out = dict(params)
    layers: list[dict] = []
    while f"layer_{len(layers)}" in out:
        layers.append(out.pop(f"layer_{len(layers)}"))
    out = {name: stack_layers(part) for name, part in out.items()}
    if len(layers) > 1 and _shapes(layers[0]) != _shapes(layers[1]):
        out["layer_0"], *layers = layers
    if layers:
        out["layers"] = jax.tree.map(lambda *parts: jnp.stack(parts), *layers)
    return out


def unstack_layers(params):
    """The unrolled form of scanned parameters, which others are already."""
    if not isinstance(params, dict):
        return params
    out = {n: unstack_layers(part) for n, part in params.items() if n != "layers"}
    if "layers" in params:
        stacked, first = params["layers"], int("layer_0" in params)
        for i in range(len(jax.tree.leaves(stacked)[0])):
            layer = jax.tree.map(lambda x, i=i: x[i], stacked)
            out[f"layer_{first + i}"] = layer
    return out


def _shapes(tree):
    return jax.tree.map(jnp.shape, tree)


def is_stacked(path) -> bool:
    """Whether the leaf at a path of `jax.tree_util` has a first axis for the layer."""
    return "layers" in jax.tree_util.keystr(path, simple=True, separator="/").split("/")


def unroll(model: nn.Module) -> nn.Module:
    """The same model unrolled, without remat; it reads `unstack_layers(params)`."""
    plain = {
        name: dataclasses.replace(spec, scan_layers=False, remat="none")
        for name, spec in list_specs(model).items()
    }
    return model.clone(**plain)


def init_params(model: nn.Module, rng, *args, **kwargs):
    """Fresh parameters of a model that is called with these arguments.

    The same numbers scanned and unrolled: a loop draws each layer with the keys that it
    would have by itself, for to compile the draws of many layers takes long.
    """
    specs = list_specs(model)
    is_scanned = any(spec.scan_layers for spec in specs.values())
    if not is_scanned:  # with no layers of two kinds, which have the same parameters
        model = model.clone(
            **{
                name: dataclasses.replace(
                    spec, scan_layers=True, global_every=0, remat="none"
                )
                for name, spec in specs.items()
            }
        )
    shapes = jax.eval_shape(lambda: model.init(rng, *args, **kwargs)["params"])
    variables = {KEYS: _layer_keys(rng, shapes)}
    rest = {"rngs": {"params": rng}, "mutable": ["params"], **kwargs}
    params = model.apply(variables, *args, **rest)[1]["params"]
    return params if is_scanned else unstack_layers(params)


def draw(module: nn.Module, name: str, init: Callable, shape: tuple[int, ...]) -> Array:
    """A parameter, drawn with its layer's own key where `init_params` gave one."""
    key = module.get_variable(KEYS, name)
    if key is None:
        return module.param(name, init, shape)
    return module.param(name, lambda _: init(key, shape))


def _layer_keys(rng, shapes: dict, path: tuple[str, ...] = ()) -> dict:
    """For each stacked parameter, the keys [L] that Flax gives it unrolled."""
    keys = {}
    for name, part in shapes.items():
        if name == "layers":
            first = int("layer_0" in shapes)
            places = functools.partial(_fold_paths, rng, path, first)
            keys[name] = jax.tree_util.tree_map_with_path(places, part)
        elif isinstance(part, dict):
            keys[name] = _layer_keys(rng, part, (*path, name))
    return keys


def _fold_paths(rng, above: tuple[str, ...], first: int, below, leaf):
    """Flax's keys (`flax.core.scope`): the root's folded with a hash of path and count.

    A Dense draws its kernel, then its bias; a Norm its scale, then its bias.
    """
    *modules, name = (key.key for key in below)
    count = bytes([2 if name == "bias" else 1])
    hashes = []
    for i in range(first, first + leaf.shape[0]):
        names = "".join((*above, f"layer_{i}", *modules)).encode()
        hashes.append(int.from_bytes(hashlib.sha1(names + count).digest()[:4]))
    fold = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
    return fold(rng, jnp.array(hashes, jnp.uint32))


def list_specs(model: nn.Module) -> dict[str, ModelSpec]:
    """The specs of a model's networks, by field."""
    fields = {
        field.name: getattr(model, field.name) for field in dataclasses.fields(model)
    }
    return {name: spec for name, spec in fields.items() if isinstance(spec, ModelSpec)}
