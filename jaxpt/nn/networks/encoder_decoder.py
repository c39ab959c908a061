"""An encoder that reads a text, and a decoder that writes another: T5, BART."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxpt.nn.decoding import Decoder, make_decoder
from jaxpt.nn.networks.abilities import Gap
from jaxpt.nn.networks.network import TransformerNetwork
from jaxpt.ops import masks


class EncoderDecoder(TransformerNetwork):
    """Two stacks on one table of tokens; features are the encoder's."""

    HEADS = ("seq2seq",)
    HAS_DECODER = True
    SCORING = ("infill", "suffix")
    scores_ratio = False

    def answer_states(self, params: Any, tokens: Array, dec_tokens: Array) -> Array:
        """The decoder's states [B, S, D] at the written part of an answer."""
        attn_masks = {
            "self": masks.full(),
            "dec_self": masks.causal(),
            "cross": masks.full(),
        }
        return self.apply(
            {"params": params},
            tokens,
            attn_masks,
            dec_tokens,
            deterministic=True,
            method="states",
        )

    def target_log_probs(
        self, params: Any, batch: dict, view: str, with_ranks: bool = False
    ) -> Any:
        """By the decoder."""
        source, target = batch["segment_ids"], batch["dec_segment_ids"]
        attn_masks = {
            "self": masks.segments(source),
            "dec_self": masks.causal(),
            "cross": masks.segments(jnp.ones_like(target), source),
        }
        return self._target_log_probs(params, batch, attn_masks, with_ranks)

    def choice_scores(self, params: Any, gap: Gap) -> Array:
        """By the likelihood of the whole answer, not only of its first token.

        A gap may hide a span of any length, so log p(c | answer so far) alone also
        counts longer spans that begin with c. The score adds log p(end | answer, c).

        Raises:
          ValueError: the gap has no answer, as its training shows no gaps.
        """
        if gap.answer is None or gap.ends is None:
            raise ValueError("the gap must have an answer and its ends")
        answer, ends = gap.answer, gap.ends
        first = answer.shape[1] - 1  # the state that predicts the candidate

        def score(candidate: Array) -> Array:
            token = candidate[:, None]
            dec_inputs = jnp.concatenate([answer, token, ends[:, :-1, 0]], axis=1)
            states = self.answer_states(params, gap.gapped, dec_inputs)[:, first:]

            def find_log_probs(ids: Array) -> Array:
                targets = jnp.concatenate([token, ids], axis=1)
                return -self.apply({"params": params}, states, targets, method="nll")

            ways = [find_log_probs(ends[:, :, a]) for a in range(ends.shape[2])]
            log_probs = jnp.stack(ways, axis=2)
            ending = jax.nn.logsumexp(log_probs[:, 1:], axis=2)
            return log_probs[:, 0, 0] + ending.sum(1)

        return jax.lax.map(score, gap.candidates.T).T

    def make_decoder(self, start_id: int | None) -> Decoder:
        """Answers a prompt, which the encoder reads."""
        return make_decoder(self, start_id=start_id)
