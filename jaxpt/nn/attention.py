"""Multi-head attention; what may be seen is a required argument, never inferred."""

import flax.linen as nn
from jaxtyping import Array, Float

from jaxpt.nn.layers import Dense
from jaxpt.nn.spec import ModelSpec
from jaxpt.ops import kernels
from jaxpt.ops.masks import Mask


class Attention(nn.Module):
    """Queries from x, keys and values from `source` (x itself for self-attention)."""

    spec: ModelSpec

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B T D"],
        source: Float[Array, "B S D"],
        attn_mask: Mask,
        bias: Float[Array, "1 N T S"] | None = None,
        *,
        deterministic: bool,
    ) -> Float[Array, "B T D"]:
        spec = self.spec

        def heads(name: str, inputs: Array) -> Float[Array, "B L N H"]:
            flat = Dense(spec.width, spec, name=name)(inputs)
            return flat.reshape(*flat.shape[:2], spec.num_heads, spec.head_width)

        rate = 0.0 if deterministic else spec.attention_dropout
        out_BTNH = kernels.attend(
            heads("query", x),
            heads("key", source),
            heads("value", source),
            attn_mask,
            bias,
            dropout_rate=rate,
            rng=self.make_rng("dropout") if rate else None,
        )
        return Dense(spec.width, spec, name="out")(out_BTNH.reshape(x.shape))
