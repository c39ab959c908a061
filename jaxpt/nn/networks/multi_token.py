"""A causal language model with extra layers, each for a token further ahead.

    parallel                      sequential
    head 1   head 2   head 3      head 1   head 2       head 3
      |        |        |           |        |            |
    layer L  layer    layer       layer L -> W, layer -> W, layer
      \\________|________/           |        |            |
          layers < L              layers   E(x_t+1)     E(x_t+2)

The vocabulary head and the embeddings E are shared. The extra layers are like layer L,
but have no value embeddings. They are the parameters `extra`, which only training uses.
"""

import dataclasses
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxpt.dims import Batch
from jaxpt.nn import flops, scan
from jaxpt.nn.layers import Dense, Norm
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.network import TRANSFORMER_RULES
from jaxpt.nn.networks.one_stack import CausalLM
from jaxpt.nn.positions import Distances
from jaxpt.nn.stacks import Layer, make_bias, remat
from jaxpt.ops import masks
from jaxpt.ops.masks import Mask
from jaxpt.ops.segments import segment_positions


class ExtraHead(nn.Module):
    """One Transformer layer, whose input may be merged with embeddings of tokens."""

    spec: ModelSpec

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B T D"],
        embedded: Float[Array, "B T D"] | None,
        attn_mask: Mask,
        bias: Float[Array, "1 N T T"] | Distances | None,
        position_ids: Int[Array, "#B T"] | None,
        *,
        deterministic: bool,
    ) -> tuple[Float[Array, "B T D"], Float[Array, "B T D"]]:
        """The state, and the same with the norm that the vocabulary head needs."""
        spec = self.spec
        if embedded is not None:
            state, token = (Norm(spec, name=f"{n}_norm") for n in ("state", "token"))
            merge = Dense(spec.d_model, spec, use_bias=False, name="merge")
            x = merge(jnp.concatenate([state(x), token(embedded)], axis=-1))

        is_rotated = spec.is_rotated(spec.num_layers - 1)

        def run(layer: Layer, x: Array) -> Array:
            rest = attn_mask, bias, None, None, position_ids if is_rotated else None
            return layer(x, *rest, deterministic=deterministic)[0]

        is_local = spec.is_local(spec.num_layers - 1)
        scale = spec.branch_scale(spec.num_layers)
        ways = {"is_local": is_local, "is_bidirectional": spec.is_bidirectional}
        layer = Layer(spec, residual_scale=scale, **ways, name="layer")
        x = remat(run, spec)(layer, x)
        return x, Norm(spec, name="norm")(x) if spec.has_last_norm else x


class ExtraHeads(nn.Module):
    """The extra layers `layer_2`, `layer_3`, ..., each for the token at that offset.

    They are never scanned: no name is `layer_0` (`jaxpt.nn.scan`).
    """

    spec: ModelSpec
    num_extra: int
    is_sequential: bool

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B T D"],
        embedded: Float[Array, "B T D"],
        attn_mask: Mask,
        segment_ids: Int[Array, "B T"] | None,
        *,
        deterministic: bool,
    ) -> list[Float[Array, "B T D"]]:
        """The states that predict the tokens at the offsets 2, 3, ...

        Args:
          x: the state from which the extra layers start.
          embedded: the embeddings of the row's tokens, as its first layer reads them.
        """
        length = x.shape[1]
        spec = self.spec.choose_factors(length)
        bias = make_bias(spec, spec.is_bidirectional, length, length)
        position_ids = None
        if spec.positions == "rotary":  # of which only distances matter
            position_ids = jnp.arange(length)[None]
        states = []
        for offset in range(2, 2 + self.num_extra):
            ahead = None
            if self.is_sequential:
                ahead = look_ahead(embedded, segment_ids, offset - 1)
            head = ExtraHead(spec, name=f"layer_{offset}")
            rest = ahead, attn_mask, bias, position_ids
            state, normed = head(x, *rest, deterministic=deterministic)
            states.append(normed)
            x = state if self.is_sequential else x
        return states


class MultiTokenLM(CausalLM):
    """A causal model with extra heads, which generation, scores and exports omit.

    Attributes:
      num_extra: their number.
      is_sequential: each continues from the previous one and reads one more token of
        the text; otherwise all start from the input of the last layer.
    """

    RULES = ((r"merge/kernel", ("tensor", "fsdp")), *TRANSFORMER_RULES)

    num_extra: int = 1
    is_sequential: bool = True

    def setup(self) -> None:
        super().setup()
        self.extra = ExtraHeads(self.spec, self.num_extra, self.is_sequential)

    def all_states(
        self, batch: Batch, attn_masks: dict[str, Mask], *, deterministic: bool
    ) -> list[Float[Array, "B T D"]]:
        """The states [B, T, D] that predict the tokens at the offsets 1, 2, ..."""
        attn_mask, segment_ids = attn_masks["self"], batch.get("segment_ids")
        position_ids, ids = segment_positions(segment_ids), batch["inputs"]
        x = self._embed(ids, attn_mask, position_ids, None, deterministic)
        hidden, trunk = self.encoder(
            x,
            ids,
            attn_mask,
            position_ids=position_ids,
            deterministic=deterministic,
            with_trunk=not self.is_sequential,
        )
        start = hidden if self.is_sequential else trunk
        rest = x, attn_mask, segment_ids
        return [hidden, *self.extra(start, *rest, deterministic=deterministic)]

    def init_params(self, rng: Array) -> Any:
        def read(model: MultiTokenLM, batch: Batch) -> Array:
            attn_masks: dict[str, Mask] = {"self": masks.causal()}
            states = model.all_states(batch, attn_masks, deterministic=True)
            return model.logits(states[0])

        batch = {"inputs": jnp.zeros((1, 2), jnp.int32)}
        return scan.init_params(self, rng, batch, method=read)

    def count_flops(self, lengths: dict[str, int], num_predictions: float) -> float:
        """With the extra layers; the predictions are those of all heads."""
        spec = dataclasses.replace(
            self.spec, value_embeddings=False, depth_sums=False, layer_sums=False
        )
        (length,) = lengths.values()
        num_layers, width = spec.num_layers, spec.d_model
        layer = flops.stack_flops(spec, num_layers, length)
        layer -= flops.stack_flops(spec, num_layers - 1, length)
        if self.is_sequential:
            layer += 2 * length * 2 * width * width
        total = super().count_flops(lengths, num_predictions)
        return total + flops.TRAIN_FACTOR * self.num_extra * layer

    def export_parts(self, params: Any) -> dict[str, tuple[ModelSpec, Any]]:
        """Without the extra layers."""
        base = {name: part for name, part in params.items() if name != "extra"}
        return {"causal": (self.spec, base)}


def look_ahead(
    x: Float[Array, "B T D"], segment_ids: Int[Array, "B T"] | None, by: int
) -> Float[Array, "B T D"]:
    """The vectors `by` positions later; 0 if the document ends before.

    >>> x, segment_ids = jnp.arange(1.0, 6)[None, :, None], jnp.array([[1, 1, 1, 2, 2]])
    >>> look_ahead(x, segment_ids, 1)[0, :, 0].tolist()
    [2.0, 3.0, 0.0, 5.0, 0.0]
    """

    def shift(x: Array) -> Array:
        return jnp.pad(x, [(0, 0), (0, by)] + [(0, 0)] * (x.ndim - 2))[:, by:]

    if segment_ids is None:
        return shift(x)
    is_same = shift(segment_ids) == segment_ids
    return jnp.where(is_same[..., None], shift(x), 0)
