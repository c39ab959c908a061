"""Span corruption: spans of the text become sentinels; the decoder writes them out.

Raffel et al. 2020; t5/data/preprocessors.py. `Thank you for inviting me` may become
inputs `Thank <s0> inviting me </s>` and targets `<s0> you for </s>`. Sentinels descend
from the top of the vocabulary, and no sentinel closes the targets.

A row is one text, or packed documents (`segment_ids`). Those are corrupted one by one,
each as if it stood alone, and closed by [EOS] on both sides; the [EOS] that ends a raw
document is never hidden, it is that close.
"""

import dataclasses

import jax
import jax.numpy as jnp

from jaxpt.errors import UserError
from jaxpt.learn import update
from jaxpt.nn import decoding, flops, scan
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.transformer import Transformer
from jaxpt.objectives.masking import check_rate
from jaxpt.ops import edits, losses, noise
from jaxpt.ops import masks as attention_masks
from jaxpt.ops.segments import is_last, segment_lengths, segment_positions
from jaxpt.rng import row_keys
from jaxpt.text.tokens.vocab import Vocab

# The keys of rows that this objective can read (`jaxpt.dims.ROW_KEYS`).
READS = frozenset({"tokens", "index", "segment_ids"})
# What its networks are for, as `jaxpt.hub.families` names it.
HEADS = ("seq2seq",)


@dataclasses.dataclass(frozen=True)
class Spec:
    """How much to hide, in spans of which mean length (T5: 0.15 and 3).

    Attributes:
      max_documents: the most that are packed into a row; 0 where rows are one text.
    """

    row_length: int
    noise_density: float = 0.15
    mean_span_length: float = 3.0
    max_documents: int = 0

    def __post_init__(self):
        if self.max_documents < 0:
            raise UserError(
                f"data.max_documents={self.max_documents}: must be at least 0"
            )
        check_noise(self.noise_density, self.mean_span_length)
        if self.row_length < 2:
            raise UserError(
                f"data.row_length={self.row_length}: span_corruption needs at least 2"
            )
        if self.mean_span_length > self.row_length:
            raise UserError(
                f"span_corruption.mean_span_length={self.mean_span_length}: must be at "
                f"most {self.row_length}, the tokens of a row"
            )
        num_noise, num_spans = noise.count_spans(*self.noise)
        num_clean = self.row_length - num_noise
        if num_spans > min(num_noise, num_clean):
            raise UserError(
                f"span_corruption.noise_density={self.noise_density}: {num_spans} "
                f"spans do not fit {num_noise} hidden and {num_clean} clean tokens; "
                f"raise span_corruption.mean_span_length"
            )

    @property
    def noise(self) -> tuple[int, float, float]:
        """The arguments of `ops.noise`'s functions."""
        return self.row_length, self.noise_density, self.mean_span_length


def check_noise(density: float, mean_span: float) -> None:
    """Raises UserError where T5's arithmetic would have no answer."""
    check_rate("span_corruption.noise_density", density)
    if not mean_span >= 1:
        raise UserError(
            f"span_corruption.mean_span_length={mean_span}: must be at least 1"
        )


def make_spec(
    seq_len: int,
    noise_density: float = 0.15,
    mean_span_length: float = 3.0,
    max_documents: int = 0,
) -> Spec:
    """The spec whose rows fill an encoder of `seq_len` places: T5's helper.

    Packed rows are shorter, so that even the documents that grow most fit.
    """
    check_noise(noise_density, mean_span_length)
    if seq_len < 3:
        raise UserError(f"data.seq_len={seq_len}: span_corruption needs at least 3")
    length = noise.raw_length(seq_len, noise_density, mean_span_length)
    if max_documents > 0:
        most, _ = noise.packed_lengths(
            length, noise_density, mean_span_length, max_documents
        )
        length = int((most <= seq_len).sum()) - 1  # `most` begins at 0 and never falls
    return Spec(length, noise_density, mean_span_length, max_documents)


def model_lengths(spec: Spec) -> dict[str, int]:
    """Positions each stack works on, EOS included; of packed rows, the most there are.

    The most is exact: some row of `max_documents` documents fills it.
    """
    if spec.max_documents:
        inputs, targets = (
            int(most[-1])
            for most in noise.packed_lengths(*spec.noise, spec.max_documents)
        )
    else:
        inputs, targets = noise.corrupted_lengths(*spec.noise)
    return {"encoder": inputs, "decoder": targets}


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
      UserError: no decoder; or the vocabulary lacks [PAD], [EOS] or enough sentinels.
    """
    if not model_spec.num_decoder_layers:
        raise UserError(
            "model.num_decoder_layers=0: must be at least 1 for span_corruption"
        )
    vocab.require("pad"), vocab.require("eos")
    vocab.require_sentinels(noise.count_spans(*spec.noise)[1])
    return Transformer(model_spec)


def init_params(rng, model: Transformer, spec: Spec):
    """Fresh parameters."""
    lengths = model_lengths(spec)
    inputs, targets = (
        jnp.zeros((1, lengths[n]), jnp.int32) for n in ("encoder", "decoder")
    )
    return scan.init_params(model, rng, inputs, masks({}), targets, deterministic=True)


def corrupt(rng, rows: dict, vocab: Vocab, spec: Spec) -> dict:
    """A text becomes an input with sentinels and a target with the spans behind them.

    The decoder starts from [PAD], as T5's does, in every document.

    Raises:
      ValueError: packed rows, and a spec whose `max_documents` is 0.
    """
    if "segment_ids" in rows:
        return _corrupt_packed(rng, rows, vocab, spec)
    sentinels = jnp.asarray(vocab.sentinels, jnp.int32)
    num_inputs, num_targets = noise.corrupted_lengths(*spec.noise)

    def corrupt_row(rng, tokens):
        hidden = noise.random_spans(rng, *spec.noise)
        return {
            # What is left over behind the text is one place, filled with [EOS].
            "inputs": edits.spans_to_sentinels(
                tokens, hidden, sentinels, num_inputs, vocab.eos
            ),
            "targets": edits.spans_to_sentinels(
                tokens, ~hidden, sentinels, num_targets, vocab.eos
            ),
        }

    batch = jax.vmap(corrupt_row)(row_keys(rng, rows["index"]), rows["tokens"])
    return batch | {
        "index": rows["index"],
        "dec_inputs": edits.shift_right(batch["targets"], vocab.start),
        "loss_weights": jnp.ones(batch["targets"].shape, jnp.float32),
    }


def _corrupt_packed(rng, rows: dict, vocab: Vocab, spec: Spec) -> dict:
    """`corrupt` of packed rows, whose documents may end in [EOS] or not."""
    if not spec.max_documents:
        raise ValueError("rows with segment_ids need a Spec with max_documents > 0")
    sentinels = jnp.asarray(vocab.sentinels, jnp.int32)
    lengths = model_lengths(spec)

    def corrupt_row(rng, tokens, segments):
        is_close = is_last(segments) & (tokens == vocab.eos)
        texts = jnp.where(is_close, 0, segments)
        hidden = noise.random_spans_packed(rng, texts, *spec.noise[1:])
        inputs, segment_ids = edits.spans_to_sentinels_packed(
            tokens, hidden, texts, sentinels, lengths["encoder"], vocab.eos, vocab.pad
        )
        # One token has nothing hidden, hence nothing to predict.
        texts = jnp.where(segment_lengths(texts) > 1, texts, 0)
        targets, dec_segment_ids = edits.spans_to_sentinels_packed(
            tokens, ~hidden, texts, sentinels, lengths["decoder"], vocab.eos, vocab.pad
        )
        return {
            "inputs": inputs,
            "segment_ids": segment_ids,
            "targets": targets,
            "dec_segment_ids": dec_segment_ids,
            "loss_weights": (dec_segment_ids > 0).astype(jnp.float32),
        }

    keys = row_keys(rng, rows["index"])
    batch = jax.vmap(corrupt_row)(keys, rows["tokens"], rows["segment_ids"])
    return batch | {
        "index": rows["index"],
        "dec_inputs": edits.shift_right(
            batch["targets"], vocab.start, batch["dec_segment_ids"]
        ),
    }


def masks(batch: dict) -> dict:
    """In each document the encoder sees all, the decoder its past and the encoder."""
    inputs, targets = batch.get("segment_ids"), batch.get("dec_segment_ids")
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
    """Cross-entropy at every target position, sentinels and [EOS] included (T5)."""
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
    """What fills a prompt's sentinels: `<extra_id_0>`, its span, `<extra_id_1>` ..."""
    return decoding.make_decoder(model, start_id=vocab.start)


def around(vocab: Vocab, spec: Spec) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids before and after a text that the encoder reads: [EOS] closes it."""
    return (), (vocab.eos,)


def networks(params, model_spec: ModelSpec, spec: Spec) -> dict:
    """What is kept of a run: for what use -> (its spec, its parameters)."""
    return {"seq2seq": (model_spec, params)}


def join_networks(parts: dict):
    """The parameters of a run from those of its networks."""
    return parts["seq2seq"]
