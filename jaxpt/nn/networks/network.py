"""The interface that all networks share, whatever they were trained to do.

The classes in this folder contain all that depends on the architecture: initial
parameters, features, scores of tokens, likelihoods, decoding, FLOPs, exported parts,
and how parameters are split over devices.
"""

import abc
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array

from jaxpt.nn import flops, scan
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.stacks import INTERMEDIATES, list_states
from jaxpt.nn.transformer import Transformer
from jaxpt.ops import edits, masks
from jaxpt.ops.losses import Scores, SumWeight
from jaxpt.ops.packing import PredictionCounts, pack

# The end of a parameter's path -> the mesh axis over which each of its axes is split.
Rules = tuple[tuple[str, tuple[str | None, ...]], ...]
TRANSFORMER_RULES: Rules = (
    # Tables [rows, width]: of the vocabulary, of segment types, of positions.
    (r"(decoder_)?embed/tokens", ("tensor", "fsdp")),
    (r"embed/types", (None, "fsdp")),
    (r"value_embed/table", ("fsdp", "tensor")),  # [vocabulary, heads x width]
    (r"value_embed/gate", (None, "tensor")),
    (r"smear/(gate|scale)", (None,)),
    (r"positions/table", (None, "fsdp")),
    (r"relative/table", (None, "tensor")),  # [buckets, heads]
    (r"disentangled/table", (None, "fsdp")),  # [buckets, width]
    # Into the heads or the hidden width, and out of them again.
    (r"((position|out)_)?(query|key|value|up|gate)/kernel", ("fsdp", "tensor")),
    (r"((position|out)_)?(query|key|value|up|gate)/bias", ("tensor",)),
    (r"(attention|cross)/out/kernel|mlp/down/kernel", ("tensor", "fsdp")),
    (r"(attention|cross)/out/bias|mlp/down/bias", (None,)),
    # Scores of the vocabulary, and the layers before them.
    (r"head/out/kernel", ("fsdp", "tensor")),
    (r"head/(out/)?bias", ("tensor",)),
    (r"(project|head/transform)/kernel", ("fsdp", None)),
    (r"(project|head/transform)/bias", (None,)),
    (r"(\w+_)?norm/(scale|bias)", (None,)),
    (r"(attention|mlp|input)_sum/weights", (None,)),
)


class Network(abc.ABC):
    """The base of all networks: functions of parameters, next to a Linen module.

    `tokens` are int32 [B, T]. Every function is pure and can be compiled. What only
    some networks can do is a protocol of `networks.abilities`.
    """

    # The keys of `export_parts`, as `jaxpt.hub.families` names them.
    HEADS: ClassVar[tuple[str, ...]] = ()
    HAS_DECODER: ClassVar[bool] = False  # an encoder and a decoder
    READS_AHEAD: ClassVar[bool] = True  # a token may attend to later ones
    SPLITS_LENGTH: ClassVar[bool] = True  # positions of a row may be on several devices
    # Scores a token in a text by the likelihood of the whole text, by Bayes' rule.
    GAP_BY_LIKELIHOOD: ClassVar[bool] = False
    # By scoring rule, the parameters that it reads; a rule that is not here reads all.
    RULE_PARTS: ClassVar[dict[str, tuple[str, ...]]] = {}
    RULES: ClassVar[Rules] = TRANSFORMER_RULES
    # Fields that change its numbers and no parameter's shape.
    CONSTANTS: ClassVar[tuple[str, ...]] = ()

    @property
    def has_equal_embeddings(self) -> bool:
        """Whether all networks of `export_parts` have the same embeddings."""
        return True

    @property
    def frozen(self) -> tuple[str, ...]:
        """Paths of the parameters that no step changes."""
        return ()

    @abc.abstractmethod
    def init_params(self, rng: Array) -> Any:
        """Random initial parameters."""

    @abc.abstractmethod
    def features(self, params: Any, tokens: Array) -> Array:
        """Frozen hidden states, float [B, T, D], of plain text."""

    @abc.abstractmethod
    def layer_features(self, params: Any, tokens: Array) -> Array:
        """The first layer's input and each layer's output, [L + 1, B, T, D]."""

    @property
    @abc.abstractmethod
    def task_width(self) -> int:
        """The width of `task_states`."""

    def task_part(self, params: Any) -> "tuple[Network, Any]":
        """The network that is fine-tuned, and its parameters.

        Networks that only helped to train it (a generator, a teacher) are left out. The
        method `read_task` of its bound module gives `task_states`.
        """
        return self, params

    def task_states(
        self, params: Any, batch: dict[str, Any], *, rngs: Any = None
    ) -> Array:
        """Hidden states [B, T, W] of a task's texts, through which gradients pass.

        Padding never changes a number of a text.

        Args:
          params: only those that a task reads.
          batch: "inputs" [B, T] and "segment_ids" [B, T] (0 at padding); "type_ids"
            [B, T], if any; "is_prefix" [B, T], for a network that can read in both
            directions, marks the tokens to which all attend; and with "dec_inputs" and
            "dec_segment_ids" [B, S] the states are the decoder's.
          rngs: {"dropout": key}; without them there is no dropout.
        """
        network, part_params = self.task_part(params)
        return network._apply_task("read_task", part_params, batch, rngs)

    def _apply_task(
        self, method: str, params: Any, batch: dict[str, Any], rngs: Any, **more: Any
    ) -> Any:
        return self.apply(  # type: ignore[attr-defined]
            {"params": params},
            batch,
            deterministic=rngs is None,
            rngs=rngs,
            method=method,
            **more,
        )

    def task_layers(
        self, params: Any, batch: dict[str, Any], *, rngs: Any = None
    ) -> Array:
        """As `task_states`, of the first layer's input and each layer's output.

        [L + 1, B, T, W]; only `task_states` if its layers cannot be read separately.
        """
        network, part_params = self.task_part(params)
        if network is not self:
            return network.task_layers(part_params, batch, rngs=rngs)
        return self.task_states(params, batch, rngs=rngs)[None]

    @abc.abstractmethod
    def count_flops(self, lengths: dict[str, int], num_predictions: float) -> float:
        """Training operations for one row (convention: `jaxpt.nn.flops`).

        Args:
          lengths: positions that each stack reads.
          num_predictions: of those, the positions that meet the vocabulary; a mean if
            the predictions of several rows are packed.
        """

    def count_batch_flops(self) -> float:
        """FLOPs of training on a batch that do not depend on its number of rows."""
        specs = scan.list_specs(self).values()
        return flops.TRAIN_FACTOR * sum(map(flops.batch_flops, specs))

    def export_parts(self, params: Any) -> dict[str, tuple[ModelSpec, Any]]:
        """The networks to export: a key of `HEADS` -> (its sizes, its parameters)."""
        return {}

    def join_parts(self, parts: dict[str, Any]) -> Any:
        """The parameters of a run from its exported parts; others are absent."""
        return {}


class TransformerNetwork(Network, Transformer):
    """The base of networks of one Transformer.

    Attributes:
      packed: the loss terms with packed predictions, and the distribution of their
        number in a row.
    """

    packed: tuple[tuple[str, PredictionCounts], ...] = ()

    def score_term(
        self, term: str, states: Array, targets: Array, weights: Array
    ) -> tuple[Scores, Array, dict[str, SumWeight]]:
        """`score` of a loss term's predictions, the weights of its ranks, and overflow.

        If the term is packed, only positions with a weight meet the vocabulary. Ranks
        and weights then have the shape of the slots, and predictions without a slot
        are counted in the metric "overflow".
        """
        law = dict(self.packed).get(term)
        if law is None:
            return self.score(states, targets, weights), weights, {}
        slots = pack(states, targets, weights, law)
        scores = self.score(slots.states, slots.targets, slots.weights)
        return scores, slots.weights, {"overflow": slots.overflow}

    def init_params(self, rng: Array) -> Any:
        ids, full = jnp.zeros((1, 2), jnp.int32), masks.full()
        attn_masks = {"self": full}
        more: tuple[Array, ...] = ()
        if self.spec.num_decoder_layers:
            attn_masks |= {"dec_self": masks.causal(), "cross": full}
            more = (ids,)
        return scan.init_params(self, rng, ids, attn_masks, *more, deterministic=True)

    def find_transformer(self, params: Any) -> "tuple[TransformerNetwork, Any]":
        return self, params

    @property
    def feature_mask(self) -> masks.Mask:
        """The attention mask of features."""
        return masks.full()

    def features(self, params: Any, tokens: Array) -> Array:
        call = {"deterministic": True, "method": "encode"}
        return self.apply({"params": params}, tokens, self.feature_mask, **call)

    def layer_features(self, params: Any, tokens: Array) -> Array:
        """The last of them are `features`."""
        last, captured = self.apply(
            {"params": params},
            tokens,
            self.feature_mask,
            deterministic=True,
            method="encode",
            mutable=[INTERMEDIATES],
        )
        return list_states(captured[INTERMEDIATES]["encoder"], last)

    @property
    def task_width(self) -> int:
        return self.spec.d_model

    def task_mask(self, batch: dict[str, Any]) -> masks.Mask:
        """The attention mask of a task's texts: full, without the padding."""
        return masks.segments(batch["segment_ids"])

    def read_task(self, batch: dict[str, Any], *, deterministic: bool) -> Array:
        attn_masks = {"self": self.task_mask(batch)}
        if "dec_inputs" in batch:
            target, source = batch["dec_segment_ids"], batch["segment_ids"]
            attn_masks |= {
                "dec_self": masks.causal(target),
                "cross": masks.segments(target, source),
            }
        return self.batch_states(batch, attn_masks, deterministic=deterministic)

    def task_layers(
        self, params: Any, batch: dict[str, Any], *, rngs: Any = None
    ) -> Array:
        """Those of the only stack, or of the encoder; the last of them normed."""
        encoder_batch = {
            name: x for name, x in batch.items() if not name.startswith("dec_")
        }
        last, captured = self._apply_task(
            "read_task", params, encoder_batch, rngs, mutable=[INTERMEDIATES]
        )
        return list_states(captured[INTERMEDIATES]["encoder"], last)

    def _logits(self, params: Any, tokens: Array, mask: masks.Mask) -> Array:
        def predict(model: TransformerNetwork) -> Array:
            return model.logits(model.encode(tokens, mask, deterministic=True))

        return self.apply({"params": params}, method=predict)

    def _target_log_probs(
        self,
        params: Any,
        batch: dict[str, Any],
        attn_masks: dict[str, Any],
        with_ranks: bool,
    ) -> Any:
        def predict(model: TransformerNetwork) -> Any:
            states = model.batch_states(batch, attn_masks, deterministic=True)
            states = edits.gather(states, batch["positions"])
            if with_ranks:
                nll, ranks = model.token_scores(states, batch["targets"])
                return -nll, ranks
            return -model.nll(states, batch["targets"])

        return self.apply({"params": params}, method=predict)

    def count_flops(self, lengths: dict[str, int], num_predictions: float) -> float:
        forward = flops.transformer_flops(self.spec, lengths, num_predictions)
        return flops.TRAIN_FACTOR * forward

    def export_parts(self, params: Any) -> dict[str, tuple[ModelSpec, Any]]:
        return {self.HEADS[0]: (self.spec, params)}

    def join_parts(self, parts: dict[str, Any]) -> Any:
        (params,) = parts.values()
        return params
