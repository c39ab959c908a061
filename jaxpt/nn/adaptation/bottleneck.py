"""Adapters: small networks between the sublayers of a frozen one.

    Houlsby     h + up(gelu(down(h))) of what each sublayer gives after its dropout,
                before the residual and the norm; down and up begin near zero
                (google-research/adapter-bert: modeling.py, gelu by its tanh form)
    Pfeiffer    h + up(relu(down(n))) after the MLP alone; n is what the layer gave
                without it: norm(x + h) with post-norm, which is then taken again of the
                sum, and x + h with pre-norm (adapter-hub/adapters: "seq_bn",
                methods/modeling.py, configuration/adapter_config.py)

Houlsby's source has no decoder; here attention to an encoder is a sublayer as well.
Pfeiffer's have none there either ("cross_adapter": False).
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxpt.errors import UserError
from jaxpt.nn.adaptation.adapt_spec import AdaptSpec
from jaxpt.nn.adaptation.trees import draw_key, get, put
from jaxpt.nn.adaptation.watch import Places, Sublayer
from jaxpt.nn.layers import Norm
from jaxpt.ops import kernels

INITS = {
    "houlsby": nn.initializers.truncated_normal(1e-3),
    "pfeiffer": nn.initializers.normal(0.02),
}
ACTIVATIONS = {"houlsby": "gelu_tanh", "pfeiffer": "relu"}


def init(spec: AdaptSpec, places: Places, rng: jax.Array) -> dict:
    """The matrices and biases of every adapter, by its sublayer's path.

    Raises:
      UserError: the network has no layers of attention and MLP.
    """
    extra: dict = {}
    for path, width in places.sublayers:
        if spec.method == "pfeiffer" and path[-1] != "mlp":
            continue
        size = spec.bottleneck(width)
        shapes = {"down": (width, size), "up": (size, width)}
        keys = (draw_key(rng, (*path, name)) for name in shapes)
        own = {
            name: {
                "kernel": INITS[spec.method](key, shape),
                "bias": jnp.zeros(shape[1]),
            }
            for key, (name, shape) in zip(keys, shapes.items(), strict=True)
        }
        put(extra, path, own)
    if not extra:
        raise UserError(
            f"adapt.method={spec.method}: this network has no layers of attention and "
            f"MLP; must be one of full, linear_probe, bitfit, lora"
        )
    return extra


def change(spec: AdaptSpec, extra: dict):
    """What an adapter makes of a sublayer's output (`watch.Changes.sublayer`)."""

    def add(found: Sublayer) -> Array:
        own = get(extra, found.path)
        if not own:
            return found.output
        read = found.output
        if spec.method == "pfeiffer":
            read = _finish(found)
        hidden = kernels.dense(read, own["down"]["kernel"], own["down"]["bias"])
        hidden = kernels.activate(ACTIVATIONS[spec.method], hidden)
        added = kernels.dense(hidden, own["up"]["kernel"], own["up"]["bias"])
        return found.output + added

    return add


def _finish(found: Sublayer) -> Array:
    """What the layer makes of a sublayer's output: the residual, a norm behind it."""
    total = found.residual + found.output
    spec = found.layer.spec
    if spec.norm_position == "pre":
        return total
    params = found.layer.variables["params"][f"{found.path[-1]}_norm"]
    return Norm(spec, parent=None).apply({"params": params}, total)
