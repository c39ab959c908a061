"""An encoder that reads a text, and a decoder that writes another: T5, BART."""

import jax
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
        """By the likelihood of the whole answer, not only of its first token.

        A gap may hide a span of any length, so log p(c | answer so far) alone also
        counts spans that only begin with c. The score adds log p(end | answer, c).

        Raises:
          NotImplementedError: its training shows it no gap.
        """
        if gap.answer is None or gap.ends is None:
            raise NotImplementedError
        answer, ends = gap.answer, gap.ends
        first = answer.shape[1] - 1  # the state that predicts the candidate

        def score(candidate):
            own = candidate[:, None]
            written = jnp.concatenate([answer, own, ends[:, :-1, 0]], axis=1)
            states = self.answer_states(params, gap.gapped, written)[:, first:]

            def find_log_probs(ids):
                targets = jnp.concatenate([own, ids], axis=1)
                return -self.apply({"params": params}, states, targets, method="nll")

            ways = [find_log_probs(ends[:, :, a]) for a in range(ends.shape[2])]
            log_probs = jnp.stack(ways, axis=2)
            ending = jax.nn.logsumexp(log_probs[:, 1:], axis=2)
            return log_probs[:, 0, 0] + ending.sum(1)

        return jax.lax.map(score, gap.candidates.T).T

    def make_decoder(self, start_id):
        """What answers a prompt, which the encoder reads."""
        return make_decoder(self, start_id=start_id)
