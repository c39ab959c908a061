"""The Transformer: embeddings, one or two stacks, a vocabulary head.

The attention masks determine whether it is a causal, masked or sequence-to-sequence
model; it never inspects token ids.
"""

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
from jaxtyping import Array, Float, Int

from jaxpt.nn.heads import Embedder, VocabHead
from jaxpt.nn.layers import Dense
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.stacks import LayerCache, Stack
from jaxpt.ops.chunked_loss import HeadInputs
from jaxpt.ops.losses import Sampling, Scores
from jaxpt.ops.masks import Mask, seen_share, sees_previous
from jaxpt.ops.segments import segment_positions


class Transformer(nn.Module):
    """`encode` returns hidden states, `decode` attends to them, `logits` scores tokens.

    `score` computes losses without all logits in memory.

    With `num_decoder_layers=0` the model is one stack: a decoder-only model is `encode`
    under a causal mask. `position_ids` [B, T] are the positions of tokens within the
    documents packed into a row; without them a row is one text. T5's relative bias
    and ALiBi need none, as they depend on distances only. `types` [B, T] are segment
    types, if the spec has a table of them.
    """

    spec: ModelSpec
    # Another network's embeddings (ELECTRA): used as they are, or the base of new ones.
    embedder: Embedder | None = None
    base: Embedder | None = None

    def setup(self) -> None:
        spec = self.spec
        own = Embedder(spec, base=self.base) if self.embedder is None else self.embedder
        self.embed = own
        if spec.embedding_dim != spec.d_model:
            self.project = Dense(spec.d_model, spec)
        self.encoder = Stack(spec, spec.num_layers, spec.is_bidirectional)
        if spec.num_decoder_layers:
            num = spec.num_decoder_layers
            self.decoder = Stack(spec.of_decoder, num, is_bidirectional=False)
            self.decoder_embed = Embedder(spec, self.embed)
        self.head = VocabHead(spec)

    def encode(
        self,
        ids: Int[Array, "B T"],
        attn_mask: Mask,
        position_ids: Int[Array, "B T"] | None = None,
        types: Int[Array, "B T"] | None = None,
        *,
        deterministic: bool,
    ) -> Float[Array, "B T D"]:
        """Hidden states of the only stack or of the encoder."""
        hidden, _ = self.encoder(
            self._embed(ids, attn_mask, position_ids, types, deterministic),
            ids,
            attn_mask,
            position_ids=position_ids,
            deterministic=deterministic,
        )
        return hidden

    def decode(
        self,
        ids: Int[Array, "B T"],
        attn_mask: Mask,
        source: Float[Array, "B S D"],
        cross_mask: Mask,
        position_ids: Int[Array, "B T"] | None = None,
        *,
        deterministic: bool,
    ) -> Float[Array, "B T D"]:
        """Hidden states of the decoder, given the encoder's output `source`."""
        seen = self._find_seen(ids, attn_mask)
        x = self.decoder_embed(
            ids, position_ids, is_previous_seen=seen, deterministic=deterministic
        )
        hidden, _ = self.decoder(
            self._project(x),
            ids,
            attn_mask,
            source,
            cross_mask,
            position_ids,
            deterministic=deterministic,
        )
        return hidden

    def extend(
        self,
        ids: Int[Array, "B T"],
        kv_cache: tuple[LayerCache, ...],
        cache_index: Int[Array, ""] | int,
        attn_mask: Mask,
        position_ids: Int[Array, "B T"],
        previous_ids: Int[Array, "B"],
        source: Float[Array, "B S D"] | None = None,
        cross_mask: Mask | None = None,
    ) -> tuple[Float[Array, "B T D"], tuple[LayerCache, ...]]:
        """Hidden states of T more tokens of a text, and the extended cache.

        Runs the decoder, or the only stack, without dropout.

        Args:
          kv_cache: that of the stack's layers; slots before `cache_index` are filled.
          attn_mask: [B, 1, T, all slots].
          previous_ids: the tokens before `ids`; any, if there are none.
          source: the encoder's output, for the first tokens; then it is in the cache.
        """
        is_two = self.spec.num_decoder_layers > 0
        embed = self.decoder_embed if is_two else self.embed
        stack = self.decoder if is_two else self.encoder
        seen = self._find_seen(ids, attn_mask, cache_index)
        x = embed(ids, position_ids, None, seen, previous_ids, deterministic=True)
        return stack(
            self._project(x),
            ids,
            attn_mask,
            source,
            cross_mask,
            position_ids,
            kv_cache,
            cache_index,
            deterministic=True,
        )

    def logits(self, hidden: Float[Array, "*B D"]) -> Float[Array, "*B V"]:
        """float32 logits of the vocabulary."""
        return self.head(self._scale(hidden), self._tokens)

    def read(self, hidden: Float[Array, "B *T D"]) -> HeadInputs:
        """x, W and b of the logits x W + b of hidden states."""
        return self.head.read(self._scale(hidden), self._tokens)

    def score(
        self,
        hidden: Float[Array, "B *T D"],
        targets: Int[Array, "B *T"] | Int[Array, "B *T K"],
        weights: Float[Array, "B *T"] | Float[Array, "B *T K"],
        draw: Sampling | None = None,
    ) -> Scores:
        """Loss and ranks of targets, and samples, computed in chunks of rows.

        Equal to `losses.score(self.logits(hidden), targets, weights, draw)`.
        """
        tokens = self._tokens
        return self.head.score(self._scale(hidden), tokens, targets, weights, draw)

    def nll(
        self, hidden: Float[Array, "B *T D"], targets: Int[Array, "B *T"]
    ) -> Float[Array, "B *T"]:
        """-log p of each target, as in `score`, without gradient."""
        return self.head.nll(self._scale(hidden), self._tokens, targets)

    def token_scores(
        self, hidden: Float[Array, "B *T D"], targets: Int[Array, "B *T"]
    ) -> tuple[Float[Array, "B *T"], Int[Array, "B *T"]]:
        """-log p and rank of each target, differentiable."""
        return self.head.token_scores(self._scale(hidden), self._tokens, targets)

    def states(
        self,
        ids: Int[Array, "B S"],
        masks: dict[str, Mask],
        dec_ids: Int[Array, "B T"] | None = None,
        position_ids: Int[Array, "B S"] | None = None,
        dec_places: Int[Array, "B T"] | None = None,
        types: Int[Array, "B S"] | None = None,
        *,
        deterministic: bool,
    ) -> Float[Array, "B T D"]:
        """The last hidden states: the decoder's if it has ids, else the encoder's.

        Args:
          masks: "self", and for an encoder-decoder "dec_self" and "cross".
        """
        hidden = self.encode(
            ids, masks["self"], position_ids, types, deterministic=deterministic
        )
        if dec_ids is not None:
            hidden = self.decode(
                dec_ids,
                masks["dec_self"],
                hidden,
                masks["cross"],
                dec_places,
                deterministic=deterministic,
            )
        return hidden

    def batch_states(
        self, batch: Mapping[str, Any], masks: dict[str, Mask], *, deterministic: bool
    ) -> Float[Array, "B T D"]:
        """`states` of a corrupted batch (`jaxpt.dims.BATCH_KEYS`).

        Positions are relative to each packed document; segment types are the batch's.
        """
        return self.states(
            batch["inputs"],
            masks,
            batch.get("dec_inputs"),
            segment_positions(batch.get("segment_ids")),
            segment_positions(batch.get("dec_segment_ids")),
            batch.get("type_ids"),
            deterministic=deterministic,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Float[Array, "B T V"]:
        """The logits of `states` for these arguments, at every position."""
        return self.logits(self.states(*args, **kwargs))

    def _embed(
        self,
        ids: Array,
        attn_mask: Mask,
        position_ids: Array | None,
        types: Array | None,
        deterministic: bool,
    ) -> Float[Array, "B T D"]:
        """What the first layer of the only stack or of the encoder reads."""
        seen, mask_id = self._find_seen(ids, attn_mask), self.spec.token_dropout
        share = seen_share(attn_mask, ids == mask_id) if mask_id >= 0 else None
        args = ids, position_ids, types, seen, None, share
        return self._project(self.embed(*args, deterministic=deterministic))

    @property
    def _tokens(self) -> Float[Array, "V E"]:
        """The token table that a tied head reuses."""
        return (self.decoder_embed if self.spec.decoder_tokens else self.embed).tokens

    def _find_seen(
        self, ids: Array, attn_mask: Mask, first: Array | int = 0
    ) -> Array | None:
        return sees_previous(attn_mask, ids.shape, first) if self.spec.smear else None

    def _scale(self, hidden: Array) -> Array:
        spec = self.spec
        hidden = hidden * spec.d_model**-0.5 if spec.scale_logits else hidden
        return hidden / spec.multipliers[2] if spec.multipliers else hidden

    def _project(self, x: Array) -> Array:
        return self.project(x) if self.spec.embedding_dim != self.spec.d_model else x
