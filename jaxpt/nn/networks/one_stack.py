"""Networks of one Transformer stack, which differ in attention masks and heads."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array

from jaxpt.nn import flops, scan
from jaxpt.nn.heads import BoundaryHead, PairScore
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.abilities import Gap, choose_by_fill, choose_by_likelihood
from jaxpt.nn.networks.network import TRANSFORMER_RULES, TransformerNetwork
from jaxpt.ops import edits, losses, masks

if TYPE_CHECKING:
    from jaxpt.nn.decoding import Decoder


class CausalLM(TransformerNetwork):
    """One stack in which each token attends to its past: GPT."""

    HEADS = ("causal",)
    READS_AHEAD = False
    GAP_BY_LIKELIHOOD = True
    SCORING: ClassVar[tuple[str, ...]] = ("causal",)
    scores_ratio = False

    @property
    def feature_mask(self) -> masks.Mask:
        return masks.causal()

    def task_mask(self, batch: dict) -> masks.Mask:
        return masks.causal(batch["segment_ids"])

    def next_logits(self, params: Any, tokens: Array) -> Array:
        return self._logits(params, tokens, masks.causal())

    def token_nll(self, params: Any, tokens: Array) -> Array:
        def predict(model: TransformerNetwork) -> Array:
            attn_mask = masks.causal()
            states = model.encode(tokens[:, :-1], attn_mask, deterministic=True)
            return model.nll(states, tokens[:, 1:])

        return self.apply({"params": params}, method=predict)

    def target_log_probs(
        self, params: Any, batch: dict, view: str, with_ranks: bool = False
    ) -> Any:
        """Causally: padding is after all positions that are read."""
        return self._target_log_probs(
            params, batch, {"self": masks.causal()}, with_ranks
        )

    def choice_scores(self, params: Any, gap: Gap) -> Array:
        return choose_by_likelihood(self, params, gap)

    def make_decoder(self, start_id: int | None = None) -> "Decoder":
        from jaxpt.nn.decoding import make_decoder

        return make_decoder(self)


class MaskedLM(TransformerNetwork):
    """One stack in which all tokens attend to each other, to fill [MASK]s: BERT."""

    HEADS = ("masked",)
    FILLS_BY: ClassVar[str] = ""
    SCORING: ClassVar[tuple[str, ...]] = ("pll", "pll_word_l2r")
    scores_ratio = False

    def fill_logits(self, params: Any, tokens: Array) -> Array:
        return self._logits(params, tokens, masks.full())

    def target_log_probs(
        self, params: Any, batch: dict, view: str, with_ranks: bool = False
    ) -> Any:
        """With attention to the whole row."""
        attn_masks = {"self": masks.segments(batch["segment_ids"])}
        return self._target_log_probs(params, batch, attn_masks, with_ranks)

    def choice_scores(self, params: Any, gap: Gap) -> Array:
        return choose_by_fill(self, params, gap)


class PrefixLM(TransformerNetwork):
    """One stack in which a prefix attends to all of itself, and the rest to its past.

    Features are those of a text that is all prefix, without the start token or an
    [EOS], so that each state is one token's.
    """

    HEADS = ("causal",)
    GAP_BY_LIKELIHOOD = True
    SCORING = ("prefix",)
    scores_ratio = False

    def task_mask(self, batch: dict) -> masks.Mask:
        """A text is all prefix, unless the batch has `is_prefix`."""
        return _prefix_mask(batch)

    def target_log_probs(
        self, params: Any, batch: dict, view: str, with_ranks: bool = False
    ) -> Any:
        """Padding is after all positions that are read."""
        attn_masks = {"self": masks.prefix(batch["prefix_lengths"])}
        return self._target_log_probs(params, batch, attn_masks, with_ranks)

    def choice_scores(self, params: Any, gap: Gap) -> Array:
        """By the likelihood of the text after the gap's left side, the prefix."""

        def score(tokens: Array) -> Array:
            inputs, targets = tokens[:, :-1], tokens[:, 1:]
            places, position = jnp.arange(inputs.shape[1]), gap.positions[:, None]
            is_prefix = places < position

            def read(model: TransformerNetwork) -> Array:
                attn_mask = masks.prefix_keys(is_prefix)
                states = model.encode(inputs, attn_mask, deterministic=True)
                return model.nll(states, targets)

            nll = self.apply({"params": params}, method=read)
            return -jnp.where(places >= position - 1, nll, 0).sum(1)

        return gap.score_each(score)

    def make_decoder(self, start_id: int | None = None) -> "Decoder":
        """Continues a prompt, which is the prefix."""
        from jaxpt.nn.decoding import make_prefix_decoder

        return make_prefix_decoder(self)


class CausalMaskedLM(CausalLM):
    """One stack for causal rows and for masked ones (GPT-BERT).

    A [MASK] is filled from the position before it, as the causal head predicts.
    """

    FILLS_BY: ClassVar[str] = ""
    SCORING = ("causal", "mntp", "mntp_word_l2r")
    READS_AHEAD = True
    GAP_BY_LIKELIHOOD = False

    def target_log_probs(
        self, params: Any, batch: dict, view: str, with_ranks: bool = False
    ) -> Any:
        """By the view: causally, or with attention to the whole row."""
        if view == "causal":
            return super().target_log_probs(params, batch, view, with_ranks)
        attn_masks = {"self": masks.segments(batch["segment_ids"])}
        return self._target_log_probs(params, batch, attn_masks, with_ranks)

    @property
    def feature_mask(self) -> masks.Mask:
        """As in masked rows: all tokens attend to each other."""
        return masks.full()

    def task_mask(self, batch: dict) -> masks.Mask:
        """As in masked rows, unless the batch has `is_prefix`."""
        return _prefix_mask(batch)

    def fill_logits(self, params: Any, tokens: Array) -> Array:
        """At the first position nothing predicts, and all tokens score 0."""
        logits = self._logits(params, tokens, masks.full())
        return jnp.pad(logits[:, :-1], ((0, 0), (1, 0), (0, 0)))

    def choice_scores(self, params: Any, gap: Gap) -> Array:
        return choose_by_fill(self, params, gap)


class PairMaskedLM(MaskedLM):
    """A masked model with BERT's head on the first state of a pair."""

    HEADS = ("pretraining",)
    RULES = (
        (r"pair_score/(pool|out)/kernel", ("fsdp", None)),
        (r"pair_score/(pool|out)/bias", (None,)),
        *TRANSFORMER_RULES,
    )

    has_pairs: bool = True

    def setup(self) -> None:
        super().setup()
        if self.has_pairs:
            self.pair_score = PairScore(self.spec)

    def __call__(  # type: ignore[override]  # which is never called on the base
        self, ids: Array, masks: dict, *, deterministic: bool
    ) -> tuple[Array, Array | None]:
        """Logits [B, T, V] at every position, and [B, 2] of the pair, if any."""
        states = self.encode(ids, masks["self"], deterministic=deterministic)
        pairs = self.pair_score(states) if self.has_pairs else None
        return self.logits(states), pairs

    def count_flops(self, lengths: dict[str, int], num_predictions: float) -> float:
        d_model = self.spec.d_model
        pairs = 2 * d_model * (d_model + 2) * self.has_pairs  # of one state
        total = super().count_flops(lengths, num_predictions)
        return total + flops.TRAIN_FACTOR * pairs

    def export_parts(self, params: Any) -> dict[str, tuple[ModelSpec, Any]]:
        """With the pooled head; without a sentence task, a masked model."""
        head = "pretraining" if self.has_pairs else "masked"
        return {head: (self.spec, params)}


class SpanMaskedLM(MaskedLM):
    """A masked model with SpanBERT's head on the edges of spans."""

    RULES = (
        (r"boundary/positions", (None, "fsdp")),
        (r"boundary/transform_\d/kernel", ("fsdp", None)),
        (r"boundary/transform_\d/bias", (None,)),
        (r"boundary/bias", ("tensor",)),
        *TRANSFORMER_RULES,
    )

    num_places: int = 15
    place_width: int = 200

    def setup(self) -> None:
        super().setup()
        self.boundary = BoundaryHead(self.spec, self.num_places, self.place_width)

    def score_spans(
        self, states: Array, batch: Mapping[str, Any], weights: Array
    ) -> losses.Scores:
        """The scores of the masked tokens by the states [B, T, D] next to spans."""
        positions, starts = batch["masked_positions"], batch["span_starts"]
        last = states.shape[1] - 1
        return self.boundary.score(
            edits.gather(states, jnp.maximum(starts - 1, 0)),
            edits.gather(states, jnp.minimum(batch["span_ends"] + 1, last)),
            jnp.minimum(positions - starts, self.num_places - 1),
            self.embed.tokens,
            batch["targets"],
            weights,
        )

    def score_both(
        self,
        batch: Mapping[str, Any],
        masks: dict,
        weights: tuple[Array, Array],
        *,
        deterministic: bool,
    ) -> tuple[losses.Scores, losses.Scores]:
        """The scores of the masked tokens by their own states, and by the edges."""
        states = self.batch_states(batch, masks, deterministic=deterministic)
        masked_states = edits.gather(states, batch["masked_positions"])
        scores = self.score(masked_states, batch["targets"], weights[0])
        return scores, self.score_spans(states, batch, weights[1])

    def init_params(self, rng: Array) -> Any:
        one, weight = jnp.zeros((1, 1), jnp.int32), jnp.zeros((1, 1))
        keys = ("masked_positions", "targets", "span_starts", "span_ends")
        batch = dict.fromkeys(keys, one) | {"inputs": jnp.zeros((1, 2), jnp.int32)}
        call = {"deterministic": True, "method": "score_both"}
        attn_masks = {"self": masks.full()}
        return scan.init_params(self, rng, batch, attn_masks, (weight, weight), **call)

    def count_flops(self, lengths: dict[str, int], num_predictions: float) -> float:
        d_model, table = self.spec.d_model, self.spec.embedding_dim
        edges = (2 * d_model + self.place_width) * d_model + d_model * table
        total_edges = 2 * num_predictions * (edges + table * self.spec.vocab_size)
        total = super().count_flops(lengths, num_predictions)
        return total + flops.TRAIN_FACTOR * total_edges

    def export_parts(self, params: Any) -> dict[str, tuple[ModelSpec, Any]]:
        """Without the head of the edges, which only pretraining uses."""
        base_params = {
            name: part for name, part in params.items() if name != "boundary"
        }
        return {"masked": (self.spec, base_params)}


def _prefix_mask(batch: dict) -> masks.Mask:
    """All of a text attends to its prefix; without `is_prefix` that is the text."""
    segment_ids = batch["segment_ids"]
    if "is_prefix" not in batch:
        return masks.segments(segment_ids)
    return masks.prefix_keys(batch["is_prefix"], segment_ids)
