"""LoRA: low-rank updates s A B of the matrices W [I, O] of a frozen network.

    y = x W + b + s ((dropout(x) A) B)        A [I, r], B [r, O]

Hu et al. 2022; microsoft/LoRA (loralib/layers.py), whose A and B are the transposes of
these. s is alpha / r, or alpha / sqrt(r) (rsLoRA, Kalajdzievski 2023). A is initialized
by PyTorch's kaiming_uniform(a=sqrt(5)), uniform in +-1 / sqrt(I), and B by zeros: the
network is unchanged at first, and the first step changes B only. (The paper's text
draws A from a Gaussian.)
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from jaxpt.errors import ConfigError
from jaxpt.nn.adaptation.adapt_spec import AdaptSpec
from jaxpt.nn.adaptation.watch import Path, Places, draw_key, get, put
from jaxpt.ops import kernels
from jaxpt.ops.dropout import dropout

INIT = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")


def is_target(path: Path, targets: tuple[str, ...]) -> bool:
    """Whether the path of a matrix ends with a target, by whole names.

    >>> path = ("encoder", "layer_0", "attention", "out")
    >>> [is_target(path, (name,)) for name in ("out", "attention/out", "ut")]
    [True, True, False]
    """
    joined = "/" + "/".join(path)
    return any(joined.endswith("/" + name.strip("/")) for name in targets)


def init(spec: AdaptSpec, places: Places, params: PyTree, rng: jax.Array) -> dict:
    """A and B of every target matrix, by the path of the matrix."""
    extra: dict = {}
    for name in spec.targets:
        if not any(is_target(path, (name,)) for path in places.dense):
            known = sorted({path[-1] for path in places.dense})
            raise ConfigError(
                f"adapt.targets={spec.targets}: {name} must be the end of the path of "
                f"a matrix that this network reads: "
                f"{', '.join(known) or 'it has none'}"
            )
    for path in places.dense:
        if is_target(path, spec.targets):
            fan_in, fan_out = get(params, path)["kernel"].shape
            a = INIT(draw_key(rng, path), (fan_in, spec.rank))
            put(extra, path, {"a": a, "b": jnp.zeros((spec.rank, fan_out))})
    return extra


def change(
    spec: AdaptSpec, extra: dict
) -> Callable[[nn.Module, Path, Array, Array], Array]:
    """Adds LoRA's updates to the outputs of matrices (`watch.Changes.dense`)."""

    def add(module: nn.Module, path: Path, x: Array, output: Array) -> Array:
        update = get(extra, path)
        if not update:
            return output
        x = x.astype(module.spec.compute_dtype)
        # Only training passes keys for dropout.
        if spec.dropout and module.has_rng("dropout"):
            x = dropout(module.make_rng("dropout"), x, spec.dropout)
        added = kernels.dense(kernels.dense(x, update["a"]), update["b"])
        return output + (spec.scale * added).astype(output.dtype)

    return add


def merge(spec: AdaptSpec, params: PyTree, extra: dict) -> PyTree:
    """The parameters with W + s A B in place of W."""

    def add(path: jax.tree_util.KeyPath, leaf: Array) -> Array:
        *above, name = (key.key for key in path)
        update = get(extra, tuple(above)) if name == "kernel" else None
        if not update:
            return leaf
        added = jnp.matmul(update["a"], update["b"], precision="highest")
        return leaf + (spec.scale * added).astype(leaf.dtype)

    return jax.tree_util.tree_map_with_path(add, params)
