"""BART: a noised text goes into the encoder; the decoder writes the clean one.

Lewis et al. 2020; fairseq, `denoising_dataset.py`. In the source's order: sentences
change places; spans are hidden behind one [MASK] each, or single tokens behind their
own, or deleted; [MASK]s are inserted; the text is rotated. Each can be had alone. The
default is the paper's recipe: spans over 30 % of the tokens with lengths of Poisson's
distribution around 3, and all sentences permuted.

    one two. three four.  ->  three [MASK]. one two.  ->  one two. three four.

A text is what lies between special tokens ([UNK] is text) in one document of the row:
each is corrupted by itself, and the special tokens stay where they are. Departures:
lengths count tokens (fairseq's words, where it knows them), spans do not overlap, the
budget is exact, and the decoder begins with [PAD], as T5's, but that of a model that
came with another start goes on with its own.
"""

import dataclasses

import jax
import jax.numpy as jnp

from jaxpt.errors import UserError
from jaxpt.learn import update
from jaxpt.nn import decoding, flops, scan
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.transformer import Transformer
from jaxpt.ops import bart_noise, edits, losses, noise
from jaxpt.ops import masks as attention_masks
from jaxpt.ops.segments import segment_positions
from jaxpt.rng import row_keys
from jaxpt.text.tokens.vocab import Vocab

# The keys of rows that this objective can read (`jaxpt.dims.ROW_KEYS`).
READS = frozenset({"tokens", "index", "segment_ids", "sentence_ids"})
# What its networks are for, as `jaxpt.hub.families` names it.
HEADS = ("seq2seq",)


@dataclasses.dataclass(frozen=True)
class Spec:
    """What is done to a text, each rate of its n tokens and rounded up.

    Attributes:
      permute_sentences: share of its sentences that change places.
      infill_rate: tokens hidden in spans, each shown as one [MASK].
      poisson_mean: of the spans' lengths, of which 0 only inserts a [MASK].
      mask_rate: further tokens that are shown as a [MASK] each.
      delete_rate: further tokens that are left out.
      insert_rate: [MASK]s that stand for nothing, beside those of lengths 0.
      rotate: share of texts that begin with another token than their first.
    """

    row_length: int
    permute_sentences: float = 1.0
    infill_rate: float = 0.3
    poisson_mean: float = 3.0
    mask_rate: float = 0.0
    delete_rate: float = 0.0
    insert_rate: float = 0.0
    rotate: float = 0.0

    def __post_init__(self):
        hidden = ("infill_rate", "mask_rate", "delete_rate")
        for name in ("permute_sentences", "rotate", "insert_rate", *hidden):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(
                    f"bart.{name}={getattr(self, name)}: must be from 0 to 1"
                )
        total = sum(getattr(self, name) for name in hidden)
        if not total < 1:
            told = ", ".join(f"bart.{name}={getattr(self, name)}" for name in hidden)
            raise UserError(f"{told}: must be less than 1 together, not {total:g}")
        if not 0 < self.poisson_mean <= 100:
            raise UserError(
                f"bart.poisson_mean={self.poisson_mean}: must be above 0, at most 100"
            )


def needs(spec: Spec) -> dict[str, str]:
    """Keys that rows must have -> the setting that asks for them."""
    share = spec.permute_sentences
    return {"sentence_ids": f"bart.permute_sentences={share}"} if share else {}


def make_spec(seq_len: int, **settings) -> Spec:
    """The spec whose rows let the encoder read `seq_len` tokens, inserted ones too."""
    length = seq_len
    while length > 1 and model_lengths(Spec(length, **settings))["encoder"] > seq_len:
        length -= 1
    return Spec(length, **settings)


def model_lengths(spec: Spec) -> dict[str, int]:
    """Positions each stack works on.

    The encoder has room for a row that nothing is hidden of, and what `insert_rate`
    adds to it. A row that gets more (by lengths of 0, and by rounding up in many short
    texts) is not given the last of it: at the paper's rates, no text of 64 tokens is.
    """
    inserted = noise.ceil_table(spec.row_length, spec.insert_rate)[-1]
    return {"encoder": spec.row_length + int(inserted), "decoder": spec.row_length}


def count_flops(model_spec: ModelSpec, spec: Spec) -> float:
    """Training operations for one row (convention: `jaxpt.nn.flops`)."""
    source, target = model_lengths(spec).values()
    forward = flops.project_flops(model_spec, source + target)
    forward += flops.stack_flops(model_spec, model_spec.num_layers, source)
    forward += flops.stack_flops(
        model_spec, model_spec.num_decoder_layers, target, source
    )
    forward += flops.head_flops(model_spec, target)
    return flops.TRAIN_FACTOR * forward


def make_model(model_spec: ModelSpec, spec: Spec, vocab: Vocab) -> Transformer:
    """An encoder and a decoder.

    Raises:
      UserError: no decoder, or the vocabulary lacks [PAD] or [MASK].
    """
    if not model_spec.num_decoder_layers:
        raise UserError("model.num_decoder_layers=0: must be at least 1 for bart")
    vocab.require("pad"), vocab.require("mask")
    return Transformer(model_spec)


def init_params(rng, model: Transformer, spec: Spec):
    """Fresh parameters."""
    lengths = model_lengths(spec)
    inputs, targets = (
        jnp.zeros((1, lengths[n]), jnp.int32) for n in ("encoder", "decoder")
    )
    return scan.init_params(model, rng, inputs, masks({}), targets, deterministic=True)


def corrupt(rng, rows: dict, vocab: Vocab, spec: Spec) -> dict:
    """The noised row and the clean one; the inputs end in [PAD]s, segment 0.

    >>> rows = {"tokens": jnp.array([[6, 7, 8, 9]]), "index": jnp.array([0])}
    >>> vocab = Vocab(size=10, pad=0, mask=4, eos=6)
    >>> spec = Spec(4, 0.0, infill_rate=0.6, poisson_mean=3.0)
    >>> batch = corrupt(jax.random.key(0), rows, vocab, spec)
    >>> batch["inputs"].tolist(), batch["dec_inputs"].tolist()
    ([[6, 4, 9, 0]], [[0, 6, 7, 8]])

    Raises:
      ValueError: rows without sentences whose sentences are to be permuted.
    """
    tokens = rows["tokens"]
    sentences = rows.get("sentence_ids")
    if sentences is None:
        if spec.permute_sentences:
            raise ValueError("rows lack sentence_ids")
        sentences = jnp.zeros_like(tokens)
    segments = rows.get("segment_ids", jnp.ones_like(tokens))
    is_fixed = vocab.is_special
    if vocab.unk is not None:
        is_fixed[vocab.unk] = False
    is_fixed = jnp.asarray(is_fixed)[tokens]

    def corrupt_row(rng, *row):
        inputs, segment_ids = _noise(rng, *row, vocab, spec)
        return {"inputs": inputs, "segment_ids": segment_ids}

    keys = row_keys(rng, rows["index"])
    batch = jax.vmap(corrupt_row)(keys, tokens, is_fixed, segments, sentences)
    decoder = {"dec_segment_ids": segments} if "segment_ids" in rows else {}
    return (
        batch
        | decoder
        | {
            "index": rows["index"],
            "targets": tokens,
            "dec_inputs": edits.shift_right(
                tokens, vocab.start, decoder.get("dec_segment_ids")
            ),
            "loss_weights": (segments > 0).astype(jnp.float32),
        }
    )


def _noise(rng, tokens, is_fixed, segments, sentences, vocab: Vocab, spec: Spec):
    """One row's inputs and their segments: permute, infill, mask, delete, insert."""
    length = spec.row_length
    texts = bart_noise.find_texts(segments, is_fixed)
    rng_permute, rng_infill, rng_mask, rng_delete, rng_write = jax.random.split(rng, 5)

    def budget(rate):
        return jnp.asarray(noise.ceil_table(length, rate))

    if spec.permute_sentences:
        share = spec.permute_sentences
        tokens = tokens[
            bart_noise.permute_sentences(rng_permute, sentences, texts, share)
        ]
    clean, keep = texts > 0, jnp.ones(length, bool)
    inserts = jnp.zeros(length, jnp.int32)
    if spec.infill_rate:
        chances = bart_noise.poisson_table(spec.poisson_mean)
        hidden, first, inserts = bart_noise.infill_spans(
            rng_infill, texts, budget(spec.infill_rate), chances
        )
        tokens = jnp.where(first, vocab.mask, tokens)
        clean, keep = clean & ~hidden, ~hidden | first
    if spec.mask_rate:
        hidden = bart_noise.sample_tokens(
            rng_mask, texts, clean, budget(spec.mask_rate)
        )
        tokens, clean = jnp.where(hidden, vocab.mask, tokens), clean & ~hidden
    if spec.delete_rate:
        budgets = budget(spec.delete_rate)
        keep &= ~bart_noise.sample_tokens(rng_delete, texts, clean, budgets)
    if spec.insert_rate:
        inserts += bart_noise.budgets_at_starts(texts, budget(spec.insert_rate))
    return bart_noise.insert_and_rotate(
        rng_write,
        tokens,
        keep,
        texts,
        segments,
        inserts,
        vocab.mask,
        spec.rotate,
        model_lengths(spec)["encoder"],
        vocab.pad,
    )


def masks(batch: dict) -> dict:
    """In each document the encoder sees all, the decoder its past and the encoder."""
    inputs, targets = batch.get("segment_ids"), batch.get("dec_segment_ids")
    if inputs is not None and targets is None:  # rows of one text, shorter now
        seen = attention_masks.key_padding((inputs > 0).sum(-1))
        return {"self": seen, "dec_self": attention_masks.causal(), "cross": seen}
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
    """Cross-entropy of every token of the clean text."""
    deterministic = "dropout" not in rngs
    targets, loss_weights = batch["targets"], batch["loss_weights"]
    texts = batch["inputs"], masks, batch["dec_inputs"]
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
    """Frozen hidden states [B, T, D] of the encoder on plain text [B, T]."""
    return model.apply(
        {"params": params},
        tokens,
        attention_masks.full(),
        deterministic=True,
        method="encode",
    )


def make_decoder(model: Transformer, vocab: Vocab) -> decoding.Decoder:
    """What writes the clean text of a noised prompt."""
    return decoding.make_decoder(model, start_id=vocab.start)


def networks(params, model_spec: ModelSpec, spec: Spec) -> dict:
    """What is kept of a run: for what use -> (its spec, its parameters)."""
    return {"seq2seq": (model_spec, params)}


def join_networks(parts: dict):
    """The parameters of a run from those of its networks."""
    return parts["seq2seq"]
