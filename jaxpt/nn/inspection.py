"""What every attention head of a network looks at, on plain text."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxpt.nn import scan
from jaxpt.nn.attention import WEIGHTS
from jaxpt.nn.networks.abilities import HasTransformer
from jaxpt.ops import masks

# The attentions of a network by name: the module that holds each, and its name there.
PLACES = {
    "self": ("encoder", "attention"),
    "dec_self": ("decoder", "attention"),
    "cross": ("decoder", "cross"),
}


def attention_weights(
    network: HasTransformer,
    params,
    tokens: Int[Array, "B T"],
    start_id: int | None = None,
) -> dict[str, Float[Array, "L B N T S"]]:
    """The weights of all heads, of the Transformer that features are read from.

    The network runs as `features` has it, under the same mask. The decoder of an
    encoder-decoder reads the text that the encoder reads, one place later and behind
    its start token; so its place t is where token t is written, and has read token
    t - 1. A text in both is how BART reads a text that it is to classify.

    Args:
      params: scanned or unrolled.
      start_id: what a decoder begins with; read only where there is one.

    Returns:
      "self", and of an encoder-decoder "dec_self" and "cross".

    Raises:
      ValueError: a decoder has no start id.
    """
    part, own = network.find_transformer(params)
    call: dict[str, Any] = {"deterministic": True, "mutable": [WEIGHTS]}
    variables = {"params": scan.unstack_layers(own)}
    model = scan.unroll(part)
    if part.HAS_DECODER:
        if start_id is None:
            raise ValueError("a decoder needs the id that it begins with")
        before = jnp.full_like(tokens[:, :1], start_id)
        shifted = jnp.concatenate([before, tokens[:, :-1]], axis=1)
        seen = {
            "self": part.feature_mask,
            "dec_self": masks.causal(),
            "cross": masks.full(),
        }
        args: tuple = (tokens, seen, shifted)
        _, kept = model.apply(variables, *args, method="states", **call)
    else:
        args = (tokens, part.feature_mask)
        _, kept = model.apply(variables, *args, method="encode", **call)
    return collect_weights(kept[WEIGHTS])


def collect_weights(kept: Mapping) -> dict[str, Float[Array, "L B N T S"]]:
    """The sown weights by attention, layers first."""
    found = {}
    for name, (stack, attention) in PLACES.items():
        layers = kept.get(stack, {})
        if layers:
            parts = [layers[f"layer_{i}"][attention] for i in range(len(layers))]
            found[name] = jnp.stack([part["weights"][0] for part in parts])
    return found


def attention_masks(
    network: HasTransformer, params, length: int
) -> dict[str, Bool[Array, "T S"]]:
    """Which keys each query may attend to, of `attention_weights`."""
    part, _ = network.find_transformer(params)
    seen = {"self": part.feature_mask}
    if part.HAS_DECODER:
        seen |= {"dec_self": masks.causal(), "cross": masks.full()}
    return {
        name: masks.materialise(mask, length, length)[0, 0]
        for name, mask in seen.items()
    }
