"""Adapters: bottleneck networks between the sublayers of a frozen network.

    Houlsby     h + up(gelu(down(h))), where h is the output of a sublayer after
    dropout,
                before the residual and the norm; down and up are initialized near zero
                (google-research/adapter-bert: modeling.py, gelu by its tanh form)
    Pfeiffer    h + up(relu(down(n))) after the MLP alone; n is the layer's output
    without
                the adapter: norm(x + h) with post-norm, which is then applied to the
                sum again, and x + h with pre-norm (adapter-hub/adapters: "seq_bn",
                methods/modeling.py, configuration/adapter_config.py)

Houlsby's source has no decoder; here cross-attention is a sublayer, too. Pfeiffer's
adapters are not applied to it ("cross_adapter": False).
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxpt.errors import ConfigError
from jaxpt.nn.adaptation.adapt_spec import AdaptSpec
from jaxpt.nn.adaptation.watch import Places, Sublayer, draw_key, get, put
from jaxpt.nn.layers import Norm
from jaxpt.ops import kernels

INITS = {
    "houlsby": nn.initializers.truncated_normal(1e-3),
    "pfeiffer": nn.initializers.normal(0.02),
}
ACTIVATIONS = {"houlsby": "gelu_tanh", "pfeiffer": "relu"}


def init(spec: AdaptSpec, places: Places, rng: jax.Array) -> dict:
    """The parameters of every adapter, by the path of its sublayer."""
    extra: dict = {}
    for path, width in places.sublayers:
        if spec.method == "pfeiffer" and path[-1] != "mlp":
            continue
        size = spec.bottleneck(width)
        shapes = {"down": (width, size), "up": (size, width)}
        keys = (draw_key(rng, (*path, name)) for name in shapes)
        adapter = {
            name: {
                "kernel": INITS[spec.method](key, shape),
                "bias": jnp.zeros(shape[1]),
            }
            for key, (name, shape) in zip(keys, shapes.items(), strict=True)
        }
        put(extra, path, adapter)
    if not extra:
        raise ConfigError(
            f"adapt.method={spec.method}: this network has no layers of attention and "
            f"MLP; must be one of full, linear_probe, bitfit, lora"
        )
    return extra


def change(spec: AdaptSpec, extra: dict) -> Callable[[Sublayer], Array]:
    """Applies adapters to the outputs of sublayers (`watch.Changes.sublayer`)."""

    def add(sublayer: Sublayer) -> Array:
        adapter = get(extra, sublayer.path)
        if not adapter:
            return sublayer.output
        x = _finish(sublayer) if spec.method == "pfeiffer" else sublayer.output
        hidden = kernels.dense(x, adapter["down"]["kernel"], adapter["down"]["bias"])
        hidden = kernels.activate(ACTIVATIONS[spec.method], hidden)
        added = kernels.dense(hidden, adapter["up"]["kernel"], adapter["up"]["bias"])
        return sublayer.output + added

    return add


def _finish(sublayer: Sublayer) -> Array:
    """The layer's output without an adapter: residual and, with post-norm, norm."""
    spec, scale = sublayer.layer.spec, sublayer.layer.residual_scale
    total = sublayer.residual + scale * sublayer.output
    if spec.norm_position != "post":
        return total
    params = sublayer.layer.variables["params"][f"{sublayer.path[-1]}_norm"]
    return Norm(spec, parent=None).apply({"params": params}, total)
