"""Attention weights of every head of a network, on plain text."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from jaxpt.nn import scan
from jaxpt.nn.attention import WEIGHTS
from jaxpt.nn.networks.abilities import HasTransformer
from jaxpt.ops import masks

# By name of an attention: the stack that contains it, and its name there.
PLACES = {
    "self": ("encoder", "attention"),
    "dec_self": ("decoder", "attention"),
    "cross": ("decoder", "cross"),
}


def attention_weights(
    network: HasTransformer,
    params: PyTree,
    tokens: Int[Array, "B T"],
    start_id: int | None = None,
) -> dict[str, Float[Array, "L B N T S"]]:
    """The attention weights of all heads of a network's feature Transformer.

    The network runs as in `features`, under the same mask. The decoder of an
    encoder-decoder reads the same text as the encoder, shifted right behind its start
    token: its position t predicts token t. BART reads a text to classify in this way.

    Args:
      params: scanned or unrolled.
      start_id: the first id of a decoder; required for an encoder-decoder.

    Returns:
      "self", and for an encoder-decoder "dec_self" and "cross".

    Raises:
      ValueError: a decoder has no start id.
    """
    part, part_params = network.find_transformer(params)
    call: dict[str, Any] = {"deterministic": True, "mutable": [WEIGHTS]}
    variables = {"params": scan.unstack_layers(part_params)}
    model = scan.unroll(part)
    if part.HAS_DECODER:
        if start_id is None:
            raise ValueError("a decoder needs a start_id")
        before = jnp.full_like(tokens[:, :1], start_id)
        shifted = jnp.concatenate([before, tokens[:, :-1]], axis=1)
        args: tuple = (tokens, _list_masks(part), shifted)
        _, captured = model.apply(variables, *args, method="states", **call)
    else:
        args = (tokens, part.feature_mask)
        _, captured = model.apply(variables, *args, method="encode", **call)
    return collect_weights(captured[WEIGHTS])


def collect_weights(captured: Mapping) -> dict[str, Float[Array, "L B N T S"]]:
    """The sown weights by attention, layers first."""
    weights = {}
    for name, (stack, attention) in PLACES.items():
        layers = captured.get(stack, {})
        if layers:
            parts = [layers[f"layer_{i}"][attention] for i in range(len(layers))]
            weights[name] = jnp.stack([part["weights"][0] for part in parts])
    return weights


def attention_masks(
    network: HasTransformer, params: PyTree, length: int
) -> dict[str, Bool[Array, "T S"]]:
    """The attention masks under which `attention_weights` runs."""
    part, _ = network.find_transformer(params)
    return {
        name: masks.materialise(mask, length, length)[0, 0]
        for name, mask in _list_masks(part).items()
    }


def _list_masks(part: Any) -> dict[str, masks.Mask]:
    masks_by_kind = {"self": part.feature_mask}
    if part.HAS_DECODER:
        masks_by_kind |= {"dec_self": masks.causal(), "cross": masks.full()}
    return masks_by_kind
