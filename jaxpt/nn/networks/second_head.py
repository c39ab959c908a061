"""A causal language model with a second head over the vocabulary, for training."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxpt.dims import Batch
from jaxpt.nn import flops, scan
from jaxpt.nn.layers import Dense
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.network import TRANSFORMER_RULES
from jaxpt.nn.networks.one_stack import CausalLM
from jaxpt.ops import chunked_loss
from jaxpt.ops import masks as attention_masks


class FutureSummaryLM(CausalLM):
    """A causal model whose second head says which tokens come later.

    Attributes:
      is_mean: the loss of the second head is a mean over the vocabulary, not a sum.
    """

    RULES = ((r"summary/kernel", ("fsdp", "tensor")), *TRANSFORMER_RULES)

    is_mean: bool = True

    def setup(self) -> None:
        super().setup()
        self.summary = Dense(self.spec.vocab_size, self.spec, use_bias=False)

    def summary_losses(
        self, states: Float[Array, "B T D"], bag: tuple, weights: Float[Array, "B T"]
    ) -> Float[Array, "B T"]:
        """The weighted binary cross-entropies of positions.

        Args:
          bag: the tokens [B, T, K] of each position, and 1 where one counts, else 0.
        """
        x = states.astype(self.spec.compute_dtype)
        kernel, _ = self.summary.read(x.shape[-1])
        if self.is_mean:
            weights /= kernel.shape[1]
        tokens, is_counted = bag
        chunk = self.spec.loss_chunk
        return chunked_loss.bag_losses(x, kernel, tokens, is_counted, weights, chunk)

    def call_heads(self, batch: Batch, masks: dict) -> tuple[Array, Array]:
        """The logits of both heads."""
        states = self.batch_states(batch, masks, deterministic=True)
        return self.logits(states), self.summary(states)

    def init_params(self, rng: Array) -> Any:
        batch = {"inputs": jnp.zeros((1, 1), jnp.int32)}
        attn_masks = {"self": attention_masks.causal()}
        return scan.init_params(self, rng, batch, attn_masks, method="call_heads")

    def count_flops(self, lengths: dict[str, int], num_predictions: float) -> float:
        """With the second head, which makes half of the predictions."""
        num = num_predictions / 2
        summary = 2 * self.spec.d_model * self.spec.vocab_size * num
        return super().count_flops(lengths, num) + flops.TRAIN_FACTOR * summary

    def export_parts(self, params: Any) -> dict[str, tuple[ModelSpec, Any]]:
        """Without the second head."""
        base = {name: part for name, part in params.items() if name != "summary"}
        return {"causal": (self.spec, base)}
