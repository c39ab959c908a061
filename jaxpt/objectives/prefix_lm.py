"""Prefix language modelling: read a prefix freely, write what follows it.

Raffel et al. 2019; t5/data/preprocessors.py (`prefix_lm`) and SeqIO's
`PrefixLMFeatureConverter` (seqio/feature_converters.py). The prefix of each document is
uniform in [1, L - 1].

On one stack the row is read behind a start token, `a b | c d` as inputs `[PAD] a b c`:
all of [PAD] a b sees all of itself, hence one place more than the prefix, and the loss
is read where c and d are the targets. On an encoder and a decoder the first reads
`a b [EOS]`, the second writes `c d [EOS]`.

Departures: on one stack no [EOS] is put between the two, so the text stays as it is;
relative positions tell both directions apart (T5X's decoder takes all that lies ahead
for the same distance).
"""

import dataclasses

import jax
import jax.numpy as jnp

from jaxpt.errors import UserError
from jaxpt.learn import update
from jaxpt.nn import decoding, flops, scan
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.transformer import Transformer
from jaxpt.ops import edits, losses
from jaxpt.ops import masks as attention_masks
from jaxpt.ops.prefixes import prefix_lengths
from jaxpt.ops.segments import is_last, segment_lengths, segment_positions
from jaxpt.rng import row_keys
from jaxpt.text.tokens.vocab import Vocab

# The keys of rows that this objective can read (`jaxpt.dims.ROW_KEYS`).
READS = frozenset({"tokens", "index", "segment_ids"})
# What its networks are for, as `jaxpt.hub.families` names it.
HEADS = ("causal", "seq2seq")
# The special behind which it reads a text, or writes one.
START = "pad"


@dataclasses.dataclass(frozen=True)
class Spec:
    """Every prefix length is as likely as any other, so there is nothing to set.

    Attributes:
      is_seq2seq: whether the model has an encoder and a decoder
        (`model.num_decoder_layers`).
    """

    row_length: int
    is_seq2seq: bool = False

    def __post_init__(self):
        if self.row_length < 2:
            raise UserError(
                f"data.row_length={self.row_length}: prefix_lm needs at least 2"
            )


def make_spec(seq_len: int, **settings) -> Spec:
    """The spec whose rows let the model read `seq_len` tokens, the start included."""
    return Spec(row_length=seq_len, **settings)


def model_lengths(spec: Spec) -> dict[str, int]:
    """Positions each stack works on; the halves of a row may both be almost all of it.

    A prefix of L - 1 tokens and its [EOS] are L, as is what follows one token.
    """
    names = ("encoder", "decoder") if spec.is_seq2seq else ("decoder",)
    return dict.fromkeys(names, spec.row_length)


def count_flops(model_spec: ModelSpec, spec: Spec) -> float:
    """Training operations for one row (convention: `jaxpt.nn.flops`)."""
    length = spec.row_length
    forward = flops.project_flops(model_spec, length * (1 + spec.is_seq2seq))
    forward += flops.stack_flops(model_spec, model_spec.num_layers, length)
    if spec.is_seq2seq:
        layers = model_spec.num_decoder_layers
        forward += flops.stack_flops(model_spec, layers, length, length)
    forward += flops.head_flops(model_spec, length)
    return flops.TRAIN_FACTOR * forward


def make_model(model_spec: ModelSpec, spec: Spec, vocab: Vocab) -> Transformer:
    """One stack, or an encoder and a decoder.

    Raises:
      UserError: the vocabulary has no [PAD], with which the model starts, or for a
        decoder no [EOS]; or the spec is one of another kind of model.
    """
    vocab.require("pad")
    if spec.is_seq2seq:
        vocab.require("eos")
    if bool(model_spec.num_decoder_layers) != spec.is_seq2seq:
        raise UserError(
            f"model.num_decoder_layers={model_spec.num_decoder_layers}: must be "
            f"{'at least 1' if spec.is_seq2seq else 0} with is_seq2seq="
            f"{spec.is_seq2seq}"
        )
    return Transformer(model_spec)


def init_params(rng, model: Transformer, spec: Spec):
    """Fresh parameters."""
    ids = jnp.zeros((1, spec.row_length), jnp.int32)
    seen = {"self": attention_masks.full()}
    if not spec.is_seq2seq:
        return scan.init_params(model, rng, ids, seen, deterministic=True)
    seen |= {"dec_self": attention_masks.causal(), "cross": attention_masks.full()}
    return scan.init_params(model, rng, ids, seen, ids, deterministic=True)


def corrupt(rng, rows: dict, vocab: Vocab, spec: Spec) -> dict:
    """Cuts every document in two; nothing is hidden but what follows.

    >>> rows = {"tokens": jnp.array([[7, 8]]), "index": jnp.array([0])}
    >>> batch = corrupt(jax.random.key(0), rows, Vocab(size=9, pad=0), Spec(2))
    >>> [batch[key].astype(int).tolist() for key in ("inputs", "targets")]
    [[[0, 7]], [[7, 8]]]
    >>> [batch[key].astype(int).tolist() for key in ("is_prefix", "loss_weights")]
    [[[1, 1]], [[0, 1]]]
    """
    tokens, segments = rows["tokens"], rows.get("segment_ids")
    texts = jnp.ones_like(tokens) if segments is None else segments
    if spec.is_seq2seq:
        texts = find_texts(tokens, texts, vocab)
    keys = row_keys(rng, rows["index"])
    lengths = jax.vmap(prefix_lengths)(keys, texts, segment_lengths(texts))
    if spec.is_seq2seq:
        batch = split_seq2seq(tokens, lengths, texts, vocab)
    else:
        batch = split_causal(tokens, lengths, segments, vocab)
    return batch | {"index": rows["index"]}


def find_texts(tokens, segment_ids, vocab: Vocab):
    """Segment ids [B, R] of texts that can be cut in two, closing [EOS]s left out."""
    is_close = is_last(segment_ids) & (tokens == vocab.eos)
    texts = jnp.where(is_close, 0, segment_ids)
    return jnp.where(segment_lengths(texts) > 1, texts, 0)


def split_causal(tokens, lengths, segment_ids, vocab: Vocab) -> dict:
    """The batch of one stack, whose prefixes have so many tokens: SeqIO's converter.

    Args:
      lengths: int32 [B, R], at each token the prefix length of its document.
      segment_ids: int32 [B, R], or None where a row is one text.
    """
    ids = jnp.ones_like(tokens) if segment_ids is None else segment_ids
    place = segment_positions(ids)
    batch = {
        "inputs": edits.shift_right(tokens, vocab.pad, segment_ids),
        "targets": tokens,
        "loss_weights": ((place >= lengths) & (ids > 0)).astype(jnp.float32),
        # The start stands before the prefix, which is so one place further on.
        "is_prefix": (place <= lengths) & (ids > 0),
    }
    return batch if segment_ids is None else batch | {"segment_ids": segment_ids}


def split_seq2seq(tokens, lengths, texts, vocab: Vocab) -> dict:
    """The batch of an encoder and a decoder, each half closed by [EOS]."""
    is_prefix = segment_positions(texts) < lengths

    def split(tokens, keep, ids):
        return edits.lay_out(tokens, keep, ids, len(tokens), vocab.eos, vocab.pad)

    inputs = jax.vmap(split)(tokens, is_prefix, texts)
    return pair(inputs, jax.vmap(split)(tokens, ~is_prefix, texts), vocab)


def pair(inputs, targets, vocab: Vocab) -> dict:
    """The batch of an encoder and a decoder from their rows and segment ids."""
    (inputs, segment_ids), (targets, dec_segment_ids) = inputs, targets
    return {
        "inputs": inputs,
        "segment_ids": segment_ids,
        "targets": targets,
        "dec_inputs": edits.shift_right(targets, vocab.start, dec_segment_ids),
        "dec_segment_ids": dec_segment_ids,
        "loss_weights": (dec_segment_ids > 0).astype(jnp.float32),
    }


def masks(batch: dict) -> dict:
    """A document's prefix sees all of itself; what follows sees that and its past."""
    inputs, targets = batch.get("segment_ids"), batch.get("dec_segment_ids")
    if "is_prefix" in batch:
        return {"self": attention_masks.prefix_keys(batch["is_prefix"], inputs)}
    return {
        "self": attention_masks.segments(inputs),
        "dec_self": attention_masks.causal(targets),
        "cross": attention_masks.segments(targets, inputs),
    }


def coefficients(spec: Spec) -> dict[str, float]:
    """What each loss term counts for."""
    return {"loss": 1.0}


def weights(batch: dict) -> dict:
    """What each loss term is divided by."""
    return {"loss": batch["loss_weights"].sum()}


def loss(params, model: Transformer, batch: dict, masks: dict, rngs: dict):
    """Cross-entropy at what follows the prefix, [EOS] included."""
    deterministic = "dropout" not in rngs
    targets, loss_weights = batch["targets"], batch["loss_weights"]
    texts = batch["inputs"], masks, batch.get("dec_inputs")
    places = [segment_positions(batch.get(f"{x}segment_ids")) for x in ("", "dec_")]

    def predict(model):
        hidden = model.states(*texts, *places, deterministic=deterministic)
        return model.score(hidden, targets, loss_weights)

    scores = model.apply({"params": params}, rngs=rngs, method=predict)
    terms = {"loss": scores.loss}
    return terms, terms | {"accuracy": losses.rank_hits(scores.ranks, loss_weights)}


def make_train_step(
    model, vocab: Vocab, spec: Spec, optimizer, num_microbatches=1, axis=None
):
    """step(state, rows, rng) -> state, {name: (sum, weight)}; `axis` names pmap's."""

    def train_step(state, rows, rng):
        rng_corrupt, rng_dropout = jax.random.split(rng)
        batch = corrupt(rng_corrupt, rows, vocab, spec)
        totals = update.add_devices(weights(batch), axis)

        def loss_fn(params, micro, rngs):
            terms, metrics = loss(params, model, micro, masks(micro), rngs)
            return update.weigh(terms, totals, coefficients(spec)), metrics

        rngs = {"dropout": rng_dropout}
        grads, metrics = update.accumulate(
            loss_fn, state.params, batch, rngs, num_microbatches, axis
        )
        grads, metrics = update.add_devices((grads, metrics), axis)
        state = update.apply_gradients(state, grads, optimizer)
        return state, metrics | update.gradient_norm(grads)

    return train_step


def make_eval_step(model, vocab: Vocab, spec: Spec):
    """step(params, rows, rng) -> {name: (sum, weight)}, without dropout."""

    def eval_step(params, rows, rng):
        batch = update.weigh_rows(corrupt(rng, rows, vocab, spec), rows)
        return loss(params, model, batch, masks(batch), {})[1]

    return eval_step


def features(params, model: Transformer, tokens):
    """Frozen hidden states [B, T, D] of plain text [B, T], all of it a prefix.

    Without the start token or an [EOS], so that each state is one token's.
    """
    return model.apply(
        {"params": params},
        tokens,
        attention_masks.full(),
        deterministic=True,
        method="encode",
    )


def make_decoder(model: Transformer, vocab: Vocab) -> decoding.Decoder:
    """What follows a prompt, which is the prefix."""
    if model.spec.num_decoder_layers:
        return decoding.make_decoder(model, start_id=vocab.start)
    return decoding.make_prefix_decoder(model)


def around(vocab: Vocab, spec: Spec) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids before and after a prefix: the start that one stack reads, or [EOS]."""
    return ((), (vocab.eos,)) if spec.is_seq2seq else ((vocab.pad,), ())


def networks(params, model_spec: ModelSpec, spec: Spec) -> dict:
    """What is kept of a run: for what use -> (its spec, its parameters).

    The classes of transformers for one stack read a prompt causally and without a
    start: there the mask has to be given to them (`describe_mask`).
    """
    kind = "seq2seq" if spec.is_seq2seq else "causal"
    return {kind: (model_spec, params)}


def describe_mask(spec: Spec) -> str:
    """What one stack was trained to see, for those who use it elsewhere."""
    return (
        "Trained as a prefix LM: a text is read behind a [PAD], which sees with the "
        "prompt all of the prompt, while what follows sees its past."
    )


def join_networks(parts: dict):
    """The parameters of a run from those of its networks."""
    return next(iter(parts.values()))
