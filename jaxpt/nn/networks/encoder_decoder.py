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
        if gap.answer is None:
            raise ValueError("the gap must have an answer")
        answer, ends = gap.answer, gap.ends
        position = jnp.broadcast_to(jnp.asarray(gap.answer_position), len(answer))
        # From the candidate on, the decoder's outputs are scored.
        is_scored = jnp.arange(1, answer.shape[1]) >= position[:, None]
        full = masks.full()

        def read(model: EncoderDecoder) -> Array:
            source = model.encode(gap.gapped, full, deterministic=True)

            def score(candidate: Array) -> Array:
                outputs = answer.at[jnp.arange(len(answer)), position].set(candidate)
                inputs = outputs if ends else outputs[:, :-1]
                states = model.decode(
                    inputs, masks.causal(), source, full, deterministic=True
                )
                nll = model.nll(states[:, : answer.shape[1] - 1], outputs[:, 1:])
                total = -jnp.where(is_scored, nll, 0).sum(1)
                if not ends:
                    return total
                last = jnp.repeat(states[:, -1:], len(ends), axis=1)
                targets = jnp.broadcast_to(jnp.array(ends), last.shape[:2])
                return total + jax.nn.logsumexp(-model.nll(last, targets), axis=1)

            return jax.lax.map(score, gap.candidates.T).T

        return self.apply({"params": params}, method=read)

    def make_decoder(self, start_id: int | None) -> Decoder:
        """Answers a prompt, which the encoder reads."""
        return make_decoder(self, start_id=start_id)
