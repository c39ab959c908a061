"""Networks of one Transformer stack: what differs is who sees whom, and the heads."""

from typing import Any, ClassVar

import jax.numpy as jnp

from jaxpt.nn import flops, scan
from jaxpt.nn.decoding import make_decoder, make_prefix_decoder
from jaxpt.nn.heads import BoundaryHead, PairScore
from jaxpt.nn.networks.network import TRANSFORMER_RULES, TransformerNetwork
from jaxpt.ops import edits, losses, masks


class CausalLM(TransformerNetwork):
    """One stack in which each token sees its past: GPT."""

    HEADS = ("causal",)
    ABILITIES = frozenset({"next_logits", "token_nll"})
    READS_AHEAD = False
    SCORING: ClassVar[tuple[str, ...]] = ("causal",)
    WRITES = "left_to_right"

    @property
    def feature_mask(self):
        return masks.causal()

    def task_mask(self, batch):
        return masks.causal(batch["segment_ids"])

    def next_logits(self, params, tokens):
        return self._logits(params, tokens, masks.causal())

    def token_nll(self, params, tokens):
        def predict(model):
            seen = masks.causal()
            states = model.encode(tokens[:, :-1], seen, deterministic=True)
            return model.nll(states, tokens[:, 1:])

        return self.apply({"params": params}, method=predict)

    def target_log_probs(self, params, batch, view, with_ranks=False):
        """Causally: what pads a row lies behind all that is read."""
        return self._target_log_probs(
            params, batch, {"self": masks.causal()}, with_ranks
        )

    def make_decoder(self, start_id=None):
        return make_decoder(self)


class MaskedLM(TransformerNetwork):
    """One stack in which all tokens see each other and [MASK]s are filled: BERT."""

    HEADS = ("masked",)
    ABILITIES = frozenset({"fill_logits"})
    SCORING: ClassVar[tuple[str, ...]] = ("pll", "pll_word_l2r")

    def fill_logits(self, params, tokens):
        return self._logits(params, tokens, masks.full())

    def target_log_probs(self, params, batch, view, with_ranks=False):
        """In full view of the row."""
        seen = {"self": masks.segments(batch["segment_ids"])}
        return self._target_log_probs(params, batch, seen, with_ranks)


class PrefixLM(TransformerNetwork):
    """One stack in which a prefix sees all of itself, and the rest its past.

    Features are of a text that is all prefix, without the start token or an [EOS], so
    that each state is one token's.
    """

    HEADS = ("causal",)
    SCORING = ("prefix",)
    WRITES = "left_to_right"

    def task_mask(self, batch):
        """A text is all prefix, but where the batch says what of it is."""
        return _prefix_mask(batch)

    def target_log_probs(self, params, batch, view, with_ranks=False):
        """What pads a row lies behind all that is read."""
        seen = {"self": masks.prefix(batch["prefix_lengths"])}
        return self._target_log_probs(params, batch, seen, with_ranks)

    @property
    def can_choose(self):
        return True

    def choice_scores(self, params, gap):
        """By the likelihood of what follows the text before the gap, its prefix."""

        def score(tokens):
            inputs, targets = tokens[:, :-1], tokens[:, 1:]
            places = jnp.arange(inputs.shape[1])
            is_prefix = jnp.broadcast_to(places < gap.position, inputs.shape)

            def read(model):
                seen = masks.prefix_keys(is_prefix)
                states = model.encode(inputs, seen, deterministic=True)
                return model.nll(states, targets)

            nll = self.apply({"params": params}, method=read)
            return -jnp.where(places >= gap.position - 1, nll, 0).sum(1)

        return gap.score_each(score)

    def make_decoder(self, start_id=None):
        """What follows a prompt, which is the prefix."""
        return make_prefix_decoder(self)


class CausalMaskedLM(CausalLM):
    """One stack for causal rows and for masked ones (GPT-BERT).

    A [MASK] is filled from the position before it, as the causal head predicts.
    """

    ABILITIES = CausalLM.ABILITIES | {"fill_logits"}
    SCORING = ("causal", "mntp", "mntp_word_l2r")
    READS_AHEAD = True

    def target_log_probs(self, params, batch, view, with_ranks=False):
        """By the view: causally, or in full view of the row."""
        if view == "causal":
            return super().target_log_probs(params, batch, view, with_ranks)
        seen = {"self": masks.segments(batch["segment_ids"])}
        return self._target_log_probs(params, batch, seen, with_ranks)

    @property
    def feature_mask(self):
        """As masked rows have it: all tokens see each other."""
        return masks.full()

    def task_mask(self, batch):
        """As masked rows have it, but where the batch says what is seen ahead."""
        return _prefix_mask(batch)

    def fill_logits(self, params, tokens):
        """Of the first position nothing is known, and all tokens score 0."""
        logits = self._logits(params, tokens, masks.full())
        return jnp.pad(logits[:, :-1], ((0, 0), (1, 0), (0, 0)))


class PairMaskedLM(MaskedLM):
    """A masked model with BERT's head, which reads the first state of a pair."""

    HEADS = ("pretraining",)
    RULES = (
        (r"pair_score/(pool|out)/kernel", ("fsdp", None)),
        (r"pair_score/(pool|out)/bias", (None,)),
        *TRANSFORMER_RULES,
    )

    has_pairs: bool = True

    def setup(self):
        super().setup()
        if self.has_pairs:
            self.pair_score = PairScore(self.spec)

    def __call__(self, ids, masks, *, deterministic):
        """Logits [B, T, V] at every position, and [B, 2] of the pair, if any."""
        states = self.encode(ids, masks["self"], deterministic=deterministic)
        pairs = self.pair_score(states) if self.has_pairs else None
        return self.logits(states), pairs

    def count_flops(self, lengths, num_predictions):
        d_model = self.spec.d_model
        pairs = 2 * d_model * (d_model + 2) * self.has_pairs  # of one state
        total = super().count_flops(lengths, num_predictions)
        return total + flops.TRAIN_FACTOR * pairs

    def export_parts(self, params):
        """Pooled head and all; without it, what a masked model is."""
        head = "pretraining" if self.has_pairs else "masked"
        return {head: (self.spec, params)}


class SpanMaskedLM(MaskedLM):
    """A masked model with SpanBERT's head, which reads the edges of spans."""

    RULES = (
        (r"boundary/positions", (None, "fsdp")),
        (r"boundary/transform_\d/kernel", ("fsdp", None)),
        (r"boundary/transform_\d/bias", (None,)),
        (r"boundary/bias", ("tensor",)),
        *TRANSFORMER_RULES,
    )

    num_places: int = 15
    place_width: int = 200

    def setup(self):
        super().setup()
        self.boundary = BoundaryHead(self.spec, self.num_places, self.place_width)

    def score_spans(self, states, batch: dict) -> losses.Scores:
        """What the states [B, T, D] beside the spans tell of the masked tokens."""
        positions, starts = batch["masked_positions"], batch["span_starts"]
        last = states.shape[1] - 1
        return self.boundary.score(
            edits.gather(states, jnp.maximum(starts - 1, 0)),
            edits.gather(states, jnp.minimum(batch["span_ends"] + 1, last)),
            jnp.minimum(positions - starts, self.num_places - 1),
            self.embed.tokens,
            batch["targets"],
            batch["weights"]["boundary_loss"],
        )

    def score_both(self, batch: dict, masks: dict, *, deterministic: bool):
        """The scores of the masked tokens by their own states, and by the edges."""
        states = self.batch_states(batch, masks, deterministic=deterministic)
        own = edits.gather(states, batch["masked_positions"])
        scores = self.score(own, batch["targets"], batch["weights"]["mlm_loss"])
        return scores, self.score_spans(states, batch)

    def init_params(self, rng):
        one, weight = jnp.zeros((1, 1), jnp.int32), jnp.zeros((1, 1))
        keys = ("masked_positions", "targets", "span_starts", "span_ends")
        batch: dict[str, Any] = dict.fromkeys(keys, one)
        batch["inputs"] = jnp.zeros((1, 2), jnp.int32)
        batch["weights"] = {"mlm_loss": weight, "boundary_loss": weight}
        seen = {"self": masks.full()}
        return scan.init_params(
            self, rng, batch, seen, deterministic=True, method="score_both"
        )

    def count_flops(self, lengths, num_predictions):
        d_model, table = self.spec.d_model, self.spec.embedding_dim
        edges = (2 * d_model + self.place_width) * d_model + d_model * table
        edges = 2 * num_predictions * (edges + table * self.spec.vocab_size)
        total = super().count_flops(lengths, num_predictions)
        return total + flops.TRAIN_FACTOR * edges

    def export_parts(self, params):
        """Without the head of the edges: nothing but pretraining reads it."""
        kept = {name: part for name, part in params.items() if name != "boundary"}
        return {"masked": (self.spec, kept)}


def _prefix_mask(batch: dict) -> masks.Mask:
    """All of a text sees its prefix, which is the whole text where none is named."""
    segment_ids = batch["segment_ids"]
    if "is_prefix" not in batch:
        return masks.segments(segment_ids)
    return masks.prefix_keys(batch["is_prefix"], segment_ids)
