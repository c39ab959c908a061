"""An encoder that reads a text, and a decoder that writes another: T5, BART."""

import jax.numpy as jnp

from jaxpt.nn.decoding import make_decoder
from jaxpt.nn.networks.network import TransformerNetwork
from jaxpt.ops import masks


class EncoderDecoder(TransformerNetwork):
    """Two stacks on one table of tokens; features are the encoder's."""

    HEADS = ("seq2seq",)
    HAS_DECODER = True
    SCORING = ("infill", "suffix")
    WRITES = "left_to_right"

    def answer_states(self, params, tokens, dec_tokens):
        """The decoder's states [B, S, D], of what it has written of an answer."""
        seen = {"self": masks.full(), "dec_self": masks.causal(), "cross": masks.full()}
        return self.apply(
            {"params": params},
            tokens,
            seen,
            dec_tokens,
            deterministic=True,
            method="states",
        )

    def target_log_probs(self, params, batch, view, with_ranks=False):
        """Read in the decoder."""
        source, written = batch["segment_ids"], batch["dec_segment_ids"]
        seen = {
            "self": masks.segments(source),
            "dec_self": masks.causal(),
            "cross": masks.segments(jnp.ones_like(written), source),
        }
        return self._target_log_probs(params, batch, seen, with_ranks)

    @property
    def can_choose(self):
        return True

    def choice_scores(self, params, gap):
        """By the decoder's scores where it comes to the gap.

        Raises:
          NotImplementedError: its training shows it no gap.
        """
        if gap.answer is None:
            raise NotImplementedError
        states = self.answer_states(params, gap.gapped, gap.answer)[:, -1]
        logits = self.apply({"params": params}, states, method="logits")
        return gap.pick(logits)

    def make_decoder(self, start_id):
        """What answers a prompt, which the encoder reads."""
        return make_decoder(self, start_id=start_id)
