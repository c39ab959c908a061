"""Scanned layers: the parameters of a stack with a leading axis of layers, for a loop.

    unrolled                                scanned (`ModelSpec.scan_layers`)
    encoder/layer_0/mlp/up/kernel [D, F]    encoder/layers/mlp/up/kernel [L, D, F]
    encoder/layer_1/mlp/up/kernel [D, F]

A first layer with other parameters than the rest (`ModelSpec.embed_norm`) remains a
separate `layer_0`.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.tree_util import KeyPath
from jaxtyping import Array, PyTree

from jaxpt.nn.model_spec import ModelSpec

# The collection of keys by which the layers are initialized.
KEYS = "keys"


def stack_layers(params: PyTree) -> PyTree:
    """The scanned form of unrolled parameters, or of a similar tree (gradients).

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


def unstack_layers(params: PyTree) -> PyTree:
    """The unrolled form of parameters, scanned or not."""
    if not isinstance(params, dict):
        return params
    out = {n: unstack_layers(part) for n, part in params.items() if n != "layers"}
    if "layers" in params:
        stacked, first = params["layers"], int("layer_0" in params)
        for i in range(len(jax.tree.leaves(stacked)[0])):
            layer = jax.tree.map(lambda x, i=i: x[i], stacked)
            out[f"layer_{first + i}"] = layer
    return out


def _shapes(tree: PyTree) -> PyTree:
    return jax.tree.map(jnp.shape, tree)


def path_name(path: KeyPath) -> str:
    """A path of `jax.tree_util` as text.

    >>> path_name(jax.tree_util.tree_leaves_with_path({"a": {"b": 1}})[0][0])
    'a/b'
    """
    return jax.tree_util.keystr(path, simple=True, separator="/")


def is_stacked(path: KeyPath) -> bool:
    """Whether the leaf at a path has a leading axis of layers."""
    return "layers" in path_name(path).split("/")


def unroll(model: nn.Module) -> nn.Module:
    """The same model unrolled and without remat; its params are `unstack_layers`'."""
    plain = {
        name: dataclasses.replace(spec, scan_layers=False, remat="none")
        for name, spec in list_specs(model).items()
    }
    return model.clone(**plain)


def init_params(model: nn.Module, rng: Array, *args: Any, **kwargs: Any) -> PyTree:
    """Initial parameters of a model that is called with these arguments.

    Scanned and unrolled models get the same numbers: a loop draws each layer with its
    unrolled keys, because compiling the draws of many layers is slow.
    """
    specs = list_specs(model)
    if any(spec.value_embeddings or spec.keeps_results for spec in specs.values()):
        return unroll(model).init(rng, *args, **kwargs)["params"]
    is_scanned = any(spec.scan_layers for spec in specs.values())
    if not is_scanned:  # local and global layers have the same parameters
        model = model.clone(
            **{
                name: dataclasses.replace(
                    spec,
                    scan_layers=True,
                    global_every=0,
                    unrotated_every=0,
                    remat="none",
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
    """A parameter, drawn with the layer's key if `init_params` provides one."""
    key = module.get_variable(KEYS, name)
    if key is None:
        return module.param(name, init, shape)
    return module.param(name, lambda _: init(key, shape))


def _layer_keys(rng: Array, shapes: dict, path: tuple[str, ...] = ()) -> dict:
    """For each stacked parameter, the keys [L] of Flax for the unrolled layers."""
    keys = {}
    for name, part in shapes.items():
        if name == "layers":
            first = int("layer_0" in shapes)
            places = functools.partial(_fold_paths, rng, path, first)
            keys[name] = jax.tree_util.tree_map_with_path(places, part)
        elif isinstance(part, dict):
            keys[name] = _layer_keys(rng, part, (*path, name))
    return keys


def _fold_paths(
    rng: Array, above: tuple[str, ...], first: int, below: KeyPath, leaf: Array
) -> Array:
    """The keys of `flax.core.scope.LazyRng`: the root's, folded with a hash.

    The hash is of the path and of the parameter's place in its module: a Dense draws
    its kernel and then its bias; a Norm its scale and then its bias. A test compares
    them with Flax's. Flax itself could give them, to modules with the same names, but
    a fold for each layer and parameter takes XLA ten times longer to compile than a
    `vmap`.
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
    """The specs of a model by field name."""
    fields = {
        field.name: getattr(model, field.name) for field in dataclasses.fields(model)
    }
    return {name: spec for name, spec in fields.items() if isinstance(spec, ModelSpec)}
