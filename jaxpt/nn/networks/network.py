"""What can be asked of a network, whatever it was trained to do.

The kinds of networks in this folder own all that depends on the architecture: how
parameters begin, features, scores of tokens, likelihoods, decoding, the operations of a
step, what is exported, and how parameters are split over devices.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxpt.nn import flops, scan
from jaxpt.nn.decoding import Decoder
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.stacks import KEPT, list_states
from jaxpt.nn.transformer import Transformer
from jaxpt.ops import edits, masks
from jaxpt.ops.losses import Scores, SumWeight
from jaxpt.ops.packing import Law, pack

# How a parameter's path ends -> the mesh axis that each of its axes is split over.
Rules = tuple[tuple[str, tuple[str | None, ...]], ...]
TRANSFORMER_RULES: Rules = (
    # Tables [rows, width]: of the vocabulary, of segment types, of positions.
    (r"embed/tokens", ("tensor", "fsdp")),
    (r"embed/types", (None, "fsdp")),
    (r"positions/table", (None, "fsdp")),
    (r"relative/table", (None, "tensor")),  # [buckets, heads]
    # Into the heads or the hidden width, and out of them again.
    (r"(query|key|value|up|gate)/kernel", ("fsdp", "tensor")),
    (r"(query|key|value|up|gate)/bias", ("tensor",)),
    (r"(attention|cross)/out/kernel|mlp/down/kernel", ("tensor", "fsdp")),
    (r"(attention|cross)/out/bias|mlp/down/bias", (None,)),
    # Scores of the vocabulary, and what stands before them.
    (r"head/out/kernel", ("fsdp", "tensor")),
    (r"head/(out/)?bias", ("tensor",)),
    (r"(project|head/transform)/kernel", ("fsdp", None)),
    (r"(project|head/transform)/bias", (None,)),
    (r"(\w+_)?norm/(scale|bias)", (None,)),
)


class Gap(NamedTuple):
    """A text with a gap in it, and candidates for the one token that is missing.

    Attributes:
      tokens: int32 [B, T], the text with any token in the gap.
      position: where the gap is.
      gapped: int32 [B, T], with what stands for a gap in training; or [B, T - 1].
      candidates: int32 [B, N].
      answer: int32 [B, S], what a decoder has written when it comes to the gap.
      ends: int32 [B, E, A], what it writes behind the missing token: at each of E
        positions one of A tokens, whose probabilities are added.
    """

    tokens: Array
    position: int
    gapped: Array
    candidates: Array
    answer: Array | None = None
    ends: Array | None = None

    def score_each(self, score: Callable[[Array], Array]) -> Array:
        """Scores [B, N] from those [B] of the text with a candidate in its gap."""

        def put(candidate):
            return score(self.tokens.at[:, self.position].set(candidate))

        return jax.lax.map(put, self.candidates.T).T

    def pick(self, logits: Array) -> Array:
        """The candidates' scores [B, N] of logits [B, V]."""
        return jnp.take_along_axis(logits, self.candidates, axis=1)


class Network:
    """The base of every kind: a Linen module's other side, functions of its parameters.

    `tokens` are int32 [B, T]. Every function is pure and can be compiled. What a kind
    cannot do is not in its `ABILITIES`, and raises NotImplementedError.
    """

    # What `export_parts` gives, as `jaxpt.hub.families` names it.
    HEADS: ClassVar[tuple[str, ...]] = ()
    # Which of the functions below there are, beside `features`.
    ABILITIES: ClassVar[frozenset[str]] = frozenset()
    HAS_DECODER: ClassVar[bool] = False  # an encoder and a decoder
    HAS_ATTENTION: ClassVar[bool] = False  # its features are a Transformer's
    READS_AHEAD: ClassVar[bool] = True  # a token may see what follows it
    # The rules by which tokens of a text are scored (`zero_shot.score_rows`), the best
    # known first; () where no rule would depend on the order of a text's tokens.
    SCORING: ClassVar[tuple[str, ...]] = ()
    # How it writes text: "left_to_right", "unmasking", or "" (not at all).
    WRITES: ClassVar[str] = ""
    RULES: ClassVar[Rules] = TRANSFORMER_RULES
    # The part that fills [MASK]s, if it is not the trained result.
    FILLS_BY: ClassVar[str] = ""
    # Fields that change its numbers and no parameter's shape.
    CONSTANTS: ClassVar[tuple[str, ...]] = ()

    @property
    def frozen(self) -> tuple[str, ...]:
        """Paths of the parameters that no step changes."""
        return ()

    def init_params(self, rng: jax.Array) -> Any:
        """Fresh parameters."""
        raise NotImplementedError

    def features(self, params, tokens):
        """Frozen hidden states, float [B, T, D], of plain text."""
        raise NotImplementedError

    def layer_features(self, params, tokens):
        """Of plain text what the first layer reads and each gives, [L + 1, B, T, D]."""
        raise NotImplementedError

    def find_transformer(self, params) -> "tuple[TransformerNetwork, Any]":
        """The Transformer that features are read from, and its parameters."""
        raise NotImplementedError

    @property
    def can_choose(self) -> bool:
        """Whether it can score candidates for a gap."""
        return bool(self.ABILITIES & {"fill_logits", "token_nll"})

    @property
    def scores_ratio(self) -> bool:
        """Whether `choice_scores` compare a candidate's probability with another one.

        Else they are log p of each candidate, up to a constant.
        """
        return False

    def choice_scores(self, params, gap: Gap):
        """How well each candidate fits the gap, [B, N]; the best is the largest.

        By the logits at a mask in it, or else by the likelihood of the whole text.
        """
        if "fill_logits" in self.ABILITIES:
            return gap.pick(self.fill_logits(params, gap.gapped)[:, gap.position])
        return gap.score_each(lambda tokens: -self.token_nll(params, tokens).sum(1))

    @property
    def can_spot(self) -> bool:
        """Whether it can say which tokens of a text are not the original ones."""
        return False

    def replaced_logits(self, params, tokens):
        """Logits [B, T] that each token of a text has replaced another."""
        raise NotImplementedError

    def answer_states(self, params, tokens, dec_tokens):
        """A decoder's states [B, S, D] behind an encoder that reads the tokens."""
        raise NotImplementedError

    def fill_logits(self, params, tokens):
        """Scores [B, T, V] of every token, at every position of text with [MASK]s."""
        raise NotImplementedError

    def next_logits(self, params, tokens):
        """Scores [B, T, V] of the token that follows each position."""
        raise NotImplementedError

    def token_nll(self, params, tokens):
        """-log p in nats, [B, T - 1], of every token after the first of its row."""
        raise NotImplementedError

    def target_log_probs(
        self, params, batch: dict, view: str, with_ranks: bool = False
    ):
        """log p of targets in nats, float32 [B, P], each read at its position.

        Only these positions meet the vocabulary; what pads a row changes no number.

        Args:
          batch: "inputs" int32 [B, T] and "segment_ids" (1, on padding behind it 0),
            "positions" and "targets" int32 [B, P]. Of a decoder "dec_inputs" and
            "dec_segment_ids" [B, S], where the positions are then; of a prefix LM
            "prefix_lengths" [B].
          view: how the rows are read; which there are, the rules of `SCORING` say.
          with_ranks: give their ranks (`ops.losses.target_ranks`) beside.
        """
        raise NotImplementedError

    def nll_bound(self, params, tokens, is_text, rngs):
        """An upper bound of -log p, estimated by Monte Carlo: nats [B, T].

        Args:
          is_text: bool [B, T], the tokens that are predicted; the others are given.
          rngs: a key for each row.
        """
        raise NotImplementedError

    def make_decoder(self, start_id: int | None) -> Decoder:
        """What writes text from left to right, token by token.

        Args:
          start_id: what a decoder beside an encoder begins with.
        """
        raise NotImplementedError

    @property
    def task_width(self) -> int:
        """The width of what `task_states` gives."""
        raise NotImplementedError

    def task_part(self, params) -> "tuple[Network, Any]":
        """The network that a downstream task is asked of, and its parameters.

        What helped to train it (a generator, a teacher) is left behind.
        """
        return self, params

    def read_task(self, batch: dict, *, deterministic: bool) -> Array:
        """`task_states`, as a method of the bound module."""
        raise NotImplementedError

    def task_states(self, params, batch: dict, *, rngs=None) -> Array:
        """Hidden states [B, T, W] of a task's texts, through which gradients pass.

        Padding never changes a number of a text.

        Args:
          params: as far as a task reads them.
          batch: "inputs" [B, T] and "segment_ids" [B, T] (0 at padding); "type_ids"
            [B, T], where there are; "is_prefix" [B, T], where the network can read
            both ways, says which tokens all see; and with "dec_inputs" and
            "dec_segment_ids" [B, S] the states are the decoder's.
          rngs: {"dropout": key}; without them there is no dropout.
        """
        network, own = self.task_part(params)
        return network._apply_task("read_task", own, batch, rngs)

    def _apply_task(self, method: str, params, batch: dict, rngs, **more):
        return self.apply(  # type: ignore[attr-defined]
            {"params": params},
            batch,
            deterministic=rngs is None,
            rngs=rngs,
            method=method,
            **more,
        )

    def task_layers(self, params, batch: dict, *, rngs=None) -> Array:
        """As `task_states`, of what the first layer reads and each gives.

        [L + 1, B, T, W]; the last are `task_states`, where it has no layers alone.
        """
        network, own = self.task_part(params)
        if network is not self:
            return network.task_layers(own, batch, rngs=rngs)
        return self.task_states(params, batch, rngs=rngs)[None]

    def count_flops(self, lengths: dict[str, int], num_predictions: float) -> float:
        """Training operations for one row (convention: `jaxpt.nn.flops`).

        Args:
          lengths: positions that each stack works on.
          num_predictions: of those, the positions that meet the vocabulary; a mean
            where the predictions of several rows are packed.
        """
        raise NotImplementedError

    def export_parts(self, params) -> dict[str, tuple[ModelSpec, Any]]:
        """What others can use: a head of `HEADS` -> (its sizes, its parameters)."""
        return {}

    def join_parts(self, parts: dict[str, Any]) -> Any:
        """The parameters of a run from those of its parts, as far as they have them."""
        raise NotImplementedError


class TransformerNetwork(Network, Transformer):
    """What all kinds of one Transformer share.

    Attributes:
      packed: the loss terms with packed predictions, and the law of their number in a
        row.
    """

    HAS_ATTENTION = True

    packed: tuple[tuple[str, Law], ...] = ()

    def score_term(
        self, term: str, states: Array, targets: Array, weights: Array
    ) -> tuple[Scores, Array, dict[str, SumWeight]]:
        """`score` of what a loss term predicts, the weights of its ranks, and overflow.

        Where the term is packed, only positions that have a weight meet the vocabulary;
        the shapes of ranks and weights are those of the slots then, and what had no
        slot is counted in the metric "overflow".
        """
        law = dict(self.packed).get(term)
        if law is None:
            return self.score(states, targets, weights), weights, {}
        found = pack(states, targets, weights, law)
        scores = self.score(found.states, found.targets, found.weights)
        return scores, found.weights, {"overflow": found.overflow}

    def init_params(self, rng):
        ids, full = jnp.zeros((1, 2), jnp.int32), masks.full()
        seen = {"self": full}
        more: tuple[jax.Array, ...] = ()
        if self.spec.num_decoder_layers:
            seen |= {"dec_self": masks.causal(), "cross": full}
            more = (ids,)
        return scan.init_params(self, rng, ids, seen, *more, deterministic=True)

    def find_transformer(self, params):
        return self, params

    @property
    def feature_mask(self) -> masks.Mask:
        """Who sees whom where features are read."""
        return masks.full()

    def features(self, params, tokens):
        call = {"deterministic": True, "method": "encode"}
        return self.apply({"params": params}, tokens, self.feature_mask, **call)

    def layer_features(self, params, tokens):
        """The last of them are `features`."""
        last, found = self.apply(
            {"params": params},
            tokens,
            self.feature_mask,
            deterministic=True,
            method="encode",
            mutable=[KEPT],
        )
        return list_states(found[KEPT]["encoder"], last)

    @property
    def task_width(self):
        return self.spec.d_model

    def task_mask(self, batch: dict) -> masks.Mask:
        """Who sees whom in a task's texts: all of a text, and nobody the padding."""
        return masks.segments(batch["segment_ids"])

    def read_task(self, batch, *, deterministic):
        seen = {"self": self.task_mask(batch)}
        if "dec_inputs" in batch:
            own, source = batch["dec_segment_ids"], batch["segment_ids"]
            seen |= {
                "dec_self": masks.causal(own),
                "cross": masks.segments(own, source),
            }
        return self.batch_states(batch, seen, deterministic=deterministic)

    def task_layers(self, params, batch, *, rngs=None):
        """Those of the only stack, or of the encoder; the last of them normed."""
        own = {name: x for name, x in batch.items() if not name.startswith("dec_")}
        last, found = self._apply_task("read_task", params, own, rngs, mutable=[KEPT])
        return list_states(found[KEPT]["encoder"], last)

    def _logits(self, params, tokens, mask):
        def predict(model):
            return model.logits(model.encode(tokens, mask, deterministic=True))

        return self.apply({"params": params}, method=predict)

    def _target_log_probs(
        self, params, batch: dict, seen: dict[str, Any], with_ranks: bool
    ):
        def predict(model):
            states = model.batch_states(batch, seen, deterministic=True)
            states = edits.gather(states, batch["positions"])
            if with_ranks:
                nll, ranks = model.token_scores(states, batch["targets"])
                return -nll, ranks
            return -model.nll(states, batch["targets"])

        return self.apply({"params": params}, method=predict)

    def count_flops(self, lengths, num_predictions):
        forward = flops.transformer_flops(self.spec, lengths, num_predictions)
        return flops.TRAIN_FACTOR * forward

    def export_parts(self, params):
        return {self.HEADS[0]: (self.spec, params)}

    def join_parts(self, parts):
        (params,) = parts.values()
        return params
