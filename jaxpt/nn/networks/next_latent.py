"""A causal language model that also predicts its next hidden states, for training."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxpt.dims import Batch
from jaxpt.nn import flops, scan
from jaxpt.nn.layers import Dense, Norm
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.network import TRANSFORMER_RULES
from jaxpt.nn.networks.one_stack import CausalLM
from jaxpt.ops import chunked_loss, kernels
from jaxpt.ops import masks as attention_masks
from jaxpt.ops.edits import shift_left


class LatentStep(nn.Module):
    """h + f([h; e(x)]): the next state by a state and the next token's embedding.

    f is a norm, three linear layers and GELU; the last layer is 0 at first.
    """

    spec: ModelSpec
    width: int

    @nn.compact
    def __call__(
        self, h: Float[Array, "B T D"], embedded: Float[Array, "B T E"]
    ) -> Float[Array, "B T D"]:
        spec = self.spec
        x = jnp.concatenate([h, embedded.astype(h.dtype)], axis=-1)
        x = Norm(spec, name="norm")(x)
        for name in ("first", "second"):
            x = jax.nn.gelu(Dense(self.width, spec, name=name)(x))
        shape = self.width, spec.d_model
        kernel = self.param("last", nn.initializers.zeros, shape)
        return h + kernels.dense(x.astype(h.dtype), kernel, None)


class NextLatentLM(CausalLM):
    """A causal model with a step from state to state, which only training uses.

    Attributes:
      step_width: of the step's layers.
      horizon: the number of steps.
      has_divergence: whether the predictions by the states are compared, too.
      stops_gradient: whether the states that are predicted get no gradient.
    """

    RULES = (
        (r"latent/(first|second)/kernel", ("fsdp", "tensor")),
        (r"latent/(first|second)/bias", ("tensor",)),
        (r"latent/last", ("tensor", "fsdp")),
        *TRANSFORMER_RULES,
    )

    step_width: int = 1
    horizon: int = 1
    has_divergence: bool = True
    stops_gradient: bool = True

    def setup(self) -> None:
        super().setup()
        self.latent = LatentStep(self.spec, self.step_width)

    def roll_out(
        self, states: Float[Array, "B T D"], targets: Int[Array, "B T"]
    ) -> Float[Array, "B T K D"]:
        """The predicted states 1 ... K positions ahead of each one.

        Args:
          targets: the next token of each position, which the step reads.
        """
        steps, x = [], states
        for k in range(self.horizon):
            embedded = self.embed.look_up(shift_left(targets, k))
            x = self.latent(x, embedded)
            steps.append(x)
        return jnp.stack(steps, axis=2)

    def divergences(
        self, predicted: Float[Array, "B T K D"], states: Float[Array, "B T K D"]
    ) -> Float[Array, "B T K"]:
        """KL(p(. | state) || p(. | predicted state)); `states` have no gradient."""
        student, teacher = (
            self.head.read(self._scale(x), self.embed.tokens)
            for x in (predicted, states)
        )
        none = jnp.zeros(states.shape[:-1], jnp.int32)
        chunk, options = self.spec.loss_chunk, self.spec.logit_options
        scores = chunked_loss.distillation_loss(
            student, teacher, none, 1.0, chunk, (options, options)
        )
        return scores.divergences

    def call_all(self, batch: Batch, masks: dict) -> tuple[Array, Array]:
        """The logits, and the predicted states."""
        states = self.batch_states(batch, masks, deterministic=True)
        return self.logits(states), self.roll_out(states, batch["targets"])

    def init_params(self, rng: Array) -> Any:
        batch = dict.fromkeys(("inputs", "targets"), jnp.zeros((1, 1), jnp.int32))
        attn_masks = {"self": attention_masks.causal()}
        return scan.init_params(self, rng, batch, attn_masks, method="call_all")

    def count_flops(self, lengths: dict[str, int], num_predictions: float) -> float:
        """With the steps and, of each, the head twice, frozen.

        The head's products are two ahead and one back, to the predicted states.
        """
        spec, width = self.spec, self.step_width
        (length,) = lengths.values()
        sizes = (spec.d_model + spec.embedding_dim, width, width, spec.d_model)
        pairs = zip(sizes, sizes[1:], strict=False)
        step: float = 2 * length * sum(a * b for a, b in pairs)
        if self.has_divergence:
            step += flops.head_flops(spec, length)
        total = super().count_flops(lengths, num_predictions)
        return total + flops.TRAIN_FACTOR * self.horizon * step

    def export_parts(self, params: Any) -> dict[str, tuple[ModelSpec, Any]]:
        """Without the step."""
        base = {name: part for name, part in params.items() if name != "latent"}
        return {"causal": (self.spec, base)}
