"""A stack of layers: self-attention, cross-attention where there is a source, MLP."""

import flax.linen as nn
from jaxtyping import Array, Float

from jaxpt.nn.attention import Attention
from jaxpt.nn.layers import Dropout, Mlp, Norm
from jaxpt.nn.positions import RelativeBias
from jaxpt.nn.spec import ModelSpec
from jaxpt.ops.masks import Mask


class Layer(nn.Module):
    """One layer: x + f(norm(x)) before each part, or norm(x + f(x)) after it."""

    spec: ModelSpec

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B T D"],
        attn_mask: Mask,
        bias: Float[Array, "1 N T S"] | None,
        source: Float[Array, "B S D"] | None,
        cross_mask: Mask | None,
        *,
        deterministic: bool,
    ) -> Float[Array, "B T D"]:
        spec = self.spec

        def residual(name: str, x: Array, part) -> Array:
            norm = Norm(spec, name=f"{name}_norm")
            y = part(norm(x) if spec.norm_position == "pre" else x)
            y = x + Dropout(spec.dropout)(y, deterministic=deterministic)
            return y if spec.norm_position == "pre" else norm(y)

        attention = Attention(spec, name="attention")
        x = residual(
            "attention",
            x,
            lambda y: attention(y, y, attn_mask, bias, deterministic=deterministic),
        )
        if source is not None:
            cross = Attention(spec, name="cross")
            x = residual(
                "cross",
                x,
                lambda y: cross(y, source, cross_mask, deterministic=deterministic),
            )
        return residual("mlp", x, Mlp(spec, name="mlp"))


class Stack(nn.Module):
    """`num_layers` layers; with a `source` it is a decoder that reads it.

    `is_bidirectional` only says how T5's relative bias spends its buckets; who may see
    whom is `attn_mask` alone.
    """

    spec: ModelSpec
    num_layers: int
    is_bidirectional: bool = True

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B T D"],
        attn_mask: Mask,
        source: Float[Array, "B S D"] | None = None,
        cross_mask: Mask | None = None,
        *,
        deterministic: bool,
    ) -> Float[Array, "B T D"]:
        bias = None
        if self.spec.positions == "relative":
            relative = RelativeBias(self.spec, self.is_bidirectional, name="relative")
            bias = relative(x.shape[1], x.shape[1])
        for i in range(self.num_layers):
            x = Layer(self.spec, name=f"layer_{i}")(
                x, attn_mask, bias, source, cross_mask, deterministic=deterministic
            )
        if self.spec.norm_position == "pre":
            x = Norm(self.spec, name="norm")(x)
        return x
