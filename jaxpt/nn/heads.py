"""Embeddings and output heads: from ids to vectors, from vectors to logits."""

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxpt.errors import ConfigError
from jaxpt.nn.layers import Dense, Dropout, Norm, Smear, add_table, table_init
from jaxpt.nn.model_spec import LIMITED, ModelSpec
from jaxpt.nn.positions import LearnedPositions, sinusoidal
from jaxpt.ops import chunked_loss, kernels, losses
from jaxpt.ops.layout import keep_rows

# Of [MASK] in ESM's training: 80 % of 15 %.
MASK_SHARE = 0.12


class Embedder(nn.Module):
    """Token, position and type embeddings of width E, with an optional norm.

    A decoder's embedder has separate positions and a separate norm, and shares the
    token table of the encoder's embedder, `encoders`, unless the spec has
    `decoder_tokens`. With `base`, every table is the
    sum of that embedder's, without gradient, and of a parameter, 0 at first; norm and
    smear are separate (gradient-disentangled embedding sharing, DeBERTa-v3, He et al.
    2021).
    """

    spec: ModelSpec
    encoders: "Embedder | None" = None
    base: "Embedder | None" = None

    def setup(self) -> None:
        spec, base = self.spec, self.base
        if self.encoders is None or spec.decoder_tokens:
            shape = (spec.vocab_size, spec.embedding_dim)
            tokens: Array | None = base and base.tokens
            self.tokens: Array = add_table(self, "tokens", spec, shape, tokens)
        else:
            self.tokens = self.encoders.tokens
        if spec.num_types and self.encoders is None:
            shape = (spec.num_types, spec.embedding_dim)
            types: Array | None = base and base.types
            self.types: Array = add_table(self, "types", spec, shape, types)
        if spec.positions == "learned":
            positions: LearnedPositions | None = base and base.positions
            self.positions: LearnedPositions = LearnedPositions(spec, positions)
        if spec.smear:
            self.smear = Smear()
        if spec.norms_embeddings:
            self.norm = Norm(spec)
        self.dropout = Dropout(spec.embed_dropout)

    def look_up(self, ids: Int[Array, "B T"]) -> Float[Array, "B T E"]:
        """The token embeddings, before positions and types are added."""
        return jnp.take(self.tokens, ids, axis=0)

    def __call__(
        self,
        ids: Int[Array, "B T"],
        position_ids: Int[Array, "B T"] | None = None,
        types: Int[Array, "B T"] | None = None,
        is_previous_seen: Bool[Array, "B T"] | None = None,
        previous_ids: Int[Array, "B"] | None = None,
        mask_share: Float[Array, "B T"] | None = None,
        *,
        deterministic: bool,
    ) -> Float[Array, "B T E"]:
        """Embeds ids at positions 0, 1, ..., or at `position_ids`, all below `max_len`.

        Args:
          types: segment types; None means 0.
          is_previous_seen: whether each token attends to the one before it, for
            `smear`.
          previous_ids: the tokens before the first ones, which may attend to them.
          mask_share: that of [MASK] in each token's text, for `token_dropout`.
        """
        spec, length = self.spec, ids.shape[1]
        # The length is symbolic in an export for any length.
        is_long = isinstance(length, int) and length > spec.max_len
        if is_long and spec.positions in LIMITED:
            raise ConfigError(
                f"a sequence of {length} tokens: model.max_len={spec.max_len} allows "
                f"no more"
            )
        x = self.look_up(ids)
        if spec.smear:
            assert is_previous_seen is not None, "smear needs the mask"
            before = jnp.pad(x[:, :-1], ((0, 0), (1, 0), (0, 0)))
            if previous_ids is not None:
                before = before.at[:, 0].set(self.look_up(previous_ids))
            x = self.smear(x, before, is_previous_seen)
        if spec.token_dropout >= 0:
            assert mask_share is not None, "token_dropout needs the mask"
            x = drop_masks(x, ids == spec.token_dropout, mask_share)
        if spec.scale_embeddings:
            x = x * spec.d_model**0.5
        if spec.positions == "learned":
            x = x + self.positions(length, position_ids)
        elif spec.positions == "sinusoidal":
            num = length if position_ids is None else spec.max_len
            table = make_sinusoids(spec, num)
            x = x + (table if position_ids is None else table[position_ids])
        if spec.num_types and self.encoders is None:
            x = x + (self.types[0] if types is None else self.types[types])
        if spec.multipliers:
            x = x * spec.multipliers[0]
        if spec.norms_embeddings:
            x = self.norm(x)
        x = keep_rows(x)
        return self.dropout(x, deterministic=deterministic).astype(spec.compute_dtype)


def drop_masks(
    x: Float[Array, "B T E"], is_mask: Bool[Array, "B T"], share: Float[Array, "B T"]
) -> Float[Array, "B T E"]:
    """The embeddings of `ModelSpec.token_dropout`.

    Source: fairseq's and transformers' ESM (Lin et al. 2023). Departure: a text of
    [MASK] alone has embeddings of 0, there 0 / 0.

    >>> x, is_mask = jnp.full((1, 2, 1), 0.5), jnp.array([[False, True]])
    >>> drop_masks(x, is_mask, jnp.full((1, 2), 0.12)).tolist()
    [[[0.5], [0.0]]]
    """
    factor = (1 - MASK_SHARE) / jnp.where(share < 1, 1 - share, 1)
    return jnp.where(is_mask, 0, factor)[..., None] * x


def make_sinusoids(spec: ModelSpec, num: int) -> Float[Array, "{num} E"]:
    """The vectors of the first `num` positions."""
    first = spec.position_offset
    table = sinusoidal(first + num, spec.embedding_dim, spec.sinusoids)
    return jnp.asarray(table[first:])


def scale_state(x: Float[Array, "*B D"], spec: ModelSpec) -> Float[Array, "*B D"]:
    """x / m_N: what the product with a head's weights reads, but not its bias."""
    return x if spec.width_ratio == 1 else x / spec.width_ratio


class VocabHead(nn.Module):
    """Hidden states to float32 logits of the vocabulary, and their losses.

    With tied embeddings the weights are the token table. The optional transform before
    them is that of BERT and ELECTRA, with output width E.
    """

    spec: ModelSpec

    @nn.compact
    def read(
        self, x: Float[Array, "*B D"], tokens: Float[Array, "V E"] | None
    ) -> tuple[Float[Array, "*B E"], Float[Array, "E V"], Float[Array, "V"] | None]:
        """x, W and b of the logits x W + b; `tokens` is for tied embeddings only."""
        spec = self.spec
        if spec.head_transform:
            use_bias = spec.has_transform_bias
            x = Dense(spec.transform_width, spec, use_bias, name="transform")(x)
            x = kernels.activate(spec.transform_activation, x)
            x = Norm(spec, name="norm")(x)
        elif x.shape[-1] != spec.embedding_dim and spec.tie_embeddings:
            x = Dense(spec.embedding_dim, spec, name="transform")(x)
        x = scale_state(x, spec).astype(spec.compute_dtype)
        if not spec.tie_embeddings:
            how = {"use_bias": spec.head_bias, "is_head": True}
            out = Dense(spec.vocab_size, spec, **how, name="out")
            return x, *out.read(x.shape[-1])
        if tokens is None:
            raise ValueError("tied embeddings need the token table")
        bias = None
        if spec.head_bias:
            bias = self.param("bias", nn.initializers.zeros, (spec.vocab_size,))
        return x, tokens.T, bias

    def __call__(
        self, x: Float[Array, "*B D"], tokens: Float[Array, "V E"] | None
    ) -> Float[Array, "*B V"]:
        """The logits."""
        return chunked_loss.find_logits(self.read(x, tokens), self.spec.logit_options)

    def score(
        self,
        x: Float[Array, "B *T D"],
        tokens: Float[Array, "V E"] | None,
        targets: Int[Array, "B *T"] | Int[Array, "B *T K"],
        weights: Float[Array, "B *T"] | Float[Array, "B *T K"],
        draw: losses.Sampling | None = None,
    ) -> losses.Scores:
        """`losses.score` of the logits, in chunks of at most `loss_chunk` rows."""
        x, kernel, bias = self.read(x, tokens)
        how = self.spec.loss_chunk, draw, self.spec.logit_options
        return chunked_loss.score(x, kernel, bias, targets, weights, *how)

    def nll(
        self,
        x: Float[Array, "B *T D"],
        tokens: Float[Array, "V E"] | None,
        targets: Int[Array, "B *T"],
    ) -> Float[Array, "B *T"]:
        """-log p of each target, in the same chunks, without gradient."""
        x, kernel, bias = self.read(x, tokens)
        how = self.spec.loss_chunk, self.spec.logit_options
        return chunked_loss.nll(x, kernel, bias, targets, *how)

    def token_scores(
        self,
        x: Float[Array, "B *T D"],
        tokens: Float[Array, "V E"] | None,
        targets: Int[Array, "B *T"],
    ) -> tuple[Float[Array, "B *T"], Int[Array, "B *T"]]:
        """-log p and rank of each target, in the same chunks, differentiable."""
        x, kernel, bias = self.read(x, tokens)
        how = self.spec.loss_chunk, self.spec.logit_options
        return chunked_loss.token_scores(x, kernel, bias, targets, *how)


class TokenScore(nn.Module):
    """ELECTRA's discriminator head: dense, activation, one logit per token."""

    spec: ModelSpec

    @nn.compact
    def __call__(self, x: Float[Array, "B T D"]) -> Float[Array, "B T"]:
        x = Dense(self.spec.d_model, self.spec)(x)
        x = kernels.activate(self.spec.transform_activation, x)
        x = scale_state(x, self.spec)
        kernel, bias = Dense(1, self.spec, is_head=True, name="out").read(x.shape[-1])
        return kernels.dense(x, kernel, bias, jnp.float32)[..., 0]


class PairScore(nn.Module):
    """BERT's sentence-pair head: the first state, dense, tanh, two logits per row."""

    spec: ModelSpec

    @nn.compact
    def __call__(self, x: Float[Array, "B T D"]) -> Float[Array, "B 2"]:
        pooled = jnp.tanh(Dense(self.spec.d_model, self.spec, name="pool")(x[:, 0]))
        pooled = scale_state(pooled, self.spec)
        kernel, bias = Dense(2, self.spec, is_head=True, name="out").read(x.shape[-1])
        return kernels.dense(pooled, kernel, bias, jnp.float32)


class BoundaryHead(nn.Module):
    """SpanBERT's head: predicts a masked token from its span's boundary and its place.

    Two layers of dense, activation and norm, then the token table and a separate bias.
    The output width of the second layer is that of the table; in the source it is the
    model's.
    """

    spec: ModelSpec
    num_places: int
    place_width: int

    @nn.compact
    def score(
        self,
        left: Float[Array, "B P D"],
        right: Float[Array, "B P D"],
        position_ids: Int[Array, "B P"],
        tokens: Float[Array, "V E"],
        targets: Int[Array, "B P"],
        weights: Float[Array, "B P"],
    ) -> losses.Scores:
        """`losses.score` of the targets, each at its place in its span."""
        spec, shape = self.spec, (self.num_places, self.place_width)
        table = self.param("positions", table_init(spec), shape)
        embedded = jnp.take(table, position_ids, axis=0).astype(left.dtype)
        x = jnp.concatenate([left, right, embedded], axis=-1)
        for i, width in enumerate((spec.d_model, spec.embedding_dim)):
            x = Dense(width, spec, name=f"transform_{i}")(x)
            x = kernels.activate(spec.transform_activation, x)
            x = Norm(spec, name=f"out_{i}_norm")(x)
        bias = self.param("bias", nn.initializers.zeros, (spec.vocab_size,))
        head = scale_state(x, spec).astype(spec.compute_dtype), tokens.T, bias
        how = spec.loss_chunk, None, spec.logit_options
        return chunked_loss.score(*head, targets, weights, *how)
