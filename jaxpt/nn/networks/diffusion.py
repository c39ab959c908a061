"""Networks that bound a text's likelihood by masked diffusion."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxpt.nn.networks.one_stack import MaskedLM
from jaxpt.ops import masks


class DiffusionLM(MaskedLM):
    """A masked model that bounds a text's likelihood, and writes by unmasking."""

    SCORING = (*MaskedLM.SCORING, "bound")

    mask_id: int = 0
    bound_samples: int = 8
    block_size: int = 0
    # Whether the slots of training are enough for evaluation, too.
    packs_evaluation: bool = True

    def nll_bound(
        self, params: Any, tokens: Array, is_text: Array, rngs: Array
    ) -> Array:
        read = functools.partial(self._read_nll, params, tokens)
        return bound_nll(read, tokens, is_text, rngs, self.mask_id, self.bound_samples)

    def _read_nll(self, params: Any, tokens: Array, inputs: Array) -> Array:
        """-log p [B, T] of each token, from inputs with masks."""

        def predict(model: MaskedLM) -> Array:
            states = model.encode(inputs, masks.full(), deterministic=True)
            return self.nll_at(model, states, tokens)

        nll: Array = self.apply({"params": params}, method=predict)
        return nll

    @staticmethod
    def nll_at(model: MaskedLM, states: Array, tokens: Array) -> Array:
        """-log p [B, T] of each token at the position that predicts it."""
        return model.nll(states, tokens)


class ShiftedDiffusionLM(DiffusionLM):
    """A diffusion model that predicts a token at the position before it.

    At the first position nothing predicts: its token is given.
    """

    HEADS = ("causal",)
    SCORING = ("mntp", "mntp_word_l2r")

    def fill_logits(self, params: Any, tokens: Array) -> Array:
        """At the first position all tokens score 0."""
        logits = super().fill_logits(params, tokens)
        return jnp.pad(logits[:, :-1], ((0, 0), (1, 0), (0, 0)))

    @staticmethod
    def nll_at(model: MaskedLM, states: Array, tokens: Array) -> Array:
        """0 at the first position."""
        nll = model.nll(states[:, :-1], tokens[:, 1:])
        return jnp.pad(nll, ((0, 0), (1, 0)))

    def nll_bound(
        self, params: Any, tokens: Array, is_text: Array, rngs: Array
    ) -> Array:
        """[B, T - 1]: of all tokens but the first."""
        is_text = is_text & (jnp.arange(tokens.shape[1]) > 0)
        return super().nll_bound(params, tokens, is_text, rngs)[:, 1:]


def bound_nll(
    read: Callable[[Array], Array],
    tokens: Array,
    is_text: Array,
    rngs: Array,
    mask_id: int,
    num_samples: int,
) -> Array:
    """LLaDA's equation 6: l of n tokens are masked, l in 1..n, weight n / l.

    Args:
      read: (tokens [B, T] with masks) -> -log p [B, T] of each token without them.
      tokens, is_text, rngs: as in `BoundsLikelihood.nll_bound`.
    """
    num_text = is_text.sum(1, keepdims=True)
    starts = jax.vmap(jax.random.uniform)(rngs)[:, None]

    def bound(sample: Array) -> Array:
        keys = jax.vmap(jax.random.fold_in, (0, None))(rngs, sample + 1)
        draw = lambda key: jax.random.uniform(key, tokens.shape[1:])  # noqa: E731
        draws = jax.vmap(draw)(keys)
        rank = jnp.argsort(jnp.argsort(jnp.where(is_text, draws, 2.0), 1), 1)
        share = (starts + sample) / num_samples
        num_masked = jnp.minimum(1 + jnp.floor(num_text * share), num_text)
        is_masked = is_text & (rank < num_masked)
        nll = read(jnp.where(is_masked, mask_id, tokens))
        return is_masked * nll * num_text / jnp.maximum(num_masked, 1)

    return jax.lax.map(bound, jnp.arange(num_samples)).mean(0)
