"""LoRA: to a matrix W [I, O] of a frozen network is added s A B, of rank r.

    y = x W + b + s ((dropout(x) A) B)        A [I, r], B [r, O]

Hu et al. 2022; microsoft/LoRA (loralib/layers.py), whose A and B are the transposes of
these. s is alpha / r, or alpha / sqrt(r) (rsLoRA, Kalajdzievski 2023). A begins as
PyTorch's kaiming_uniform(a=sqrt(5)) does, uniform in +-1 / sqrt(I), and B with zeros:
the network begins as it was, and the first step moves B alone. (The paper's text draws
A from a Gaussian.)
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxpt.errors import UserError
from jaxpt.nn.adaptation.adapt_spec import AdaptSpec
from jaxpt.nn.adaptation.trees import draw_key, get, put
from jaxpt.nn.adaptation.watch import Path, Places
from jaxpt.ops import kernels
from jaxpt.ops.dropout import dropout

INIT = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")


def is_target(path: Path, targets: tuple[str, ...]) -> bool:
    """Whether a matrix's path ends with a target, whole names of it.

    >>> path = ("encoder", "layer_0", "attention", "out")
    >>> [is_target(path, (name,)) for name in ("out", "attention/out", "ut")]
    [True, True, False]
    """
    joined = "/" + "/".join(path)
    return any(joined.endswith("/" + name.strip("/")) for name in targets)


def init(spec: AdaptSpec, places: Places, params, rng: jax.Array) -> dict:
    """A and B of every matrix that is a target, by the matrix's path.

    Raises:
      UserError: a target that no matrix of the network has.
    """
    extra: dict = {}
    for name in spec.targets:
        if not any(is_target(path, (name,)) for path in places.dense):
            known = sorted({path[-1] for path in places.dense})
            raise UserError(
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


def change(spec: AdaptSpec, extra: dict):
    """What LoRA makes of a matrix's output (`watch.Changes.dense`)."""

    def add(module, path: Path, x: Array, output: Array) -> Array:
        own = get(extra, path)
        if not own:
            return output
        x = x.astype(module.spec.compute_dtype)
        # A matrix does not know whether it is trained: keys are handed on in training.
        if spec.dropout and module.has_rng("dropout"):
            x = dropout(module.make_rng("dropout"), x, spec.dropout)
        added = kernels.dense(kernels.dense(x, own["a"]), own["b"])
        return output + (spec.scale * added).astype(output.dtype)

    return add


def merge(spec: AdaptSpec, params, extra: dict):
    """The parameters with W + s A B in the place of W; the additions are then none."""

    def add(path, leaf):
        *above, name = (key.key for key in path)
        own = get(extra, tuple(above)) if name == "kernel" else None
        if not own:
            return leaf
        added = jnp.matmul(own["a"], own["b"], precision="highest")
        return leaf + (spec.scale * added).astype(leaf.dtype)

    return jax.tree_util.tree_map_with_path(add, params)
