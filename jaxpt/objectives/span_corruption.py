"""Span corruption: spans of the text become sentinels; the decoder writes them out.

Raffel et al. 2020; t5/data/preprocessors.py. `Thank you for inviting me` may become
inputs `Thank <s0> inviting me </s>` and targets `<s0> you for </s>`. Sentinels descend
from the top of the vocabulary, and no sentinel closes the targets.

    loss = mean over t of -log p(y_t | y_1 ... y_t-1, inputs), y the targets

A row is one text, or packed documents (`segment_ids`). Packed documents are corrupted
independently, and closed by [EOS] on both sides; the [EOS] that ends a raw document is
never noise, as it is this close.

Control: `prefix_lm` with the same encoder and decoder, which writes a continuation.
"""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxpt.dims import Batch, Rows
from jaxpt.errors import ConfigError
from jaxpt.learn.state import TrainState
from jaxpt.learn.update import Update
from jaxpt.objectives.objective import Keys, Masks, Sums, target_loss
from jaxpt.objectives.spec import Needs, ObjectiveSpec, Term, filled_by
from jaxpt.ops import edits, noise
from jaxpt.ops import masks as attention_masks
from jaxpt.ops.segments import is_last, segment_lengths
from jaxpt.rng import row_keys
from jaxpt.setting_types import InnerFraction, Limits
from jaxpt.text.tokens.vocab import Vocab
from jaxpt.text_form import TextForm

if TYPE_CHECKING:
    from jaxpt.nn.networks.encoder_decoder import EncoderDecoder


@dataclasses.dataclass(frozen=True)
class Spec(ObjectiveSpec):
    """How much is noise, and the mean length of its spans (T5: 0.15 and 3).

    Attributes:
      noise_density: fraction of a row's tokens that is noise.
      mean_span_length: tokens of a noise span, on average.
      max_documents: the most that are packed into a row; 0 if a row is one text.
    """

    SECTION: ClassVar[str] = "span_corruption"
    NETWORKS: ClassVar = ("encoder_decoder.EncoderDecoder",)
    MIN_LENGTH: ClassVar[int] = 2

    noise_density: InnerFraction = 0.15
    mean_span_length: Annotated[float, Limits(least=1)] = 3.0
    max_documents: int = filled_by("max_documents", 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        most = f"at most {self.row_length}, the tokens of a row"
        self.check("mean_span_length", self.mean_span_length <= self.row_length, most)
        num_noise, num_spans = noise.count_spans(*self.noise)
        num_clean = self.row_length - num_noise
        if num_spans > min(num_noise, num_clean):
            raise ConfigError(
                f"span_corruption.noise_density={self.noise_density}: {num_spans} "
                f"spans do not fit {num_noise} noise and {num_clean} clean tokens; "
                f"raise span_corruption.mean_span_length"
            )

    @property
    def noise(self) -> tuple[int, float, float]:
        """The arguments of `ops.noise`'s functions."""
        return self.row_length, self.noise_density, self.mean_span_length

    @classmethod
    def for_seq_len(
        cls,
        seq_len: int,
        noise_density: float = 0.15,
        mean_span_length: float = 3.0,
        max_documents: int = 0,
        **settings: Any,
    ) -> "Spec":
        """The spec whose rows fill an encoder of `seq_len` positions: T5's helper.

        Packed rows are shorter, so that even the documents that grow most fit.
        """
        cls.check_types(
            {"noise_density": noise_density, "mean_span_length": mean_span_length}
        )
        if seq_len < 3:
            raise ConfigError(
                f"data.seq_len={seq_len}: span_corruption needs at least 3"
            )
        length = noise.raw_length(seq_len, noise_density, mean_span_length)
        if max_documents > 0:
            most, _ = noise.packed_lengths(
                length, noise_density, mean_span_length, max_documents
            )
            length = int((most <= seq_len).sum()) - 1  # `most` begins at 0, never falls
        spans = noise_density, mean_span_length
        return cls(length, *spans, max_documents, **settings)

    @property
    def lengths(self) -> dict[str, int]:
        """With [EOS]; of packed rows the maximum, which some row reaches."""
        if self.max_documents:
            inputs, targets = (
                int(most[-1])
                for most in noise.packed_lengths(*self.noise, self.max_documents)
            )
        else:
            inputs, targets = noise.corrupted_lengths(*self.noise)
        return {"encoder": inputs, "decoder": targets}

    @property
    def terms(self) -> dict[str, Term]:
        return {"loss": Term("hidden spans")}

    @property
    def needs(self) -> Needs:
        num_spans = noise.count_spans(*self.noise)[1]
        return Needs(specials=("pad", "eos"), num_sentinels=num_spans)

    def controls(self) -> dict[str, dict[str, Any]]:
        return {"prefix_lm": {"objective": "prefix_lm"}}

    def text_form(self, vocab: Vocab) -> TextForm:
        """[EOS] closes a text that the encoder reads; sentinels are its gaps."""
        after = (vocab.require("eos"),)
        return dataclasses.replace(super().text_form(vocab), after=after)


def corrupt(rng: Array, rows: Rows, vocab: Vocab, spec: Spec) -> Batch:
    """A text becomes an input with sentinels, and a target with the spans after them.

    In every document the decoder starts from [PAD], as T5's does.

    Raises:
      ValueError: packed rows, and a spec whose `max_documents` is 0.
    """
    if "segment_ids" in rows:
        return _corrupt_packed(rng, rows, vocab, spec)
    sentinels = jnp.asarray(vocab.sentinels, jnp.int32)
    num_inputs, num_targets = noise.corrupted_lengths(*spec.noise)
    eos = vocab.require("eos")

    def corrupt_row(rng: Array, tokens: Array) -> Batch:
        noise_mask = noise.random_spans(rng, *spec.noise)
        return {
            # One position remains after the text, for [EOS].
            "inputs": edits.spans_to_sentinels(
                tokens, noise_mask, sentinels, num_inputs, eos
            ),
            "targets": edits.spans_to_sentinels(
                tokens, ~noise_mask, sentinels, num_targets, eos
            ),
        }

    batch: Batch = jax.vmap(corrupt_row)(row_keys(rng, rows["index"]), rows["tokens"])
    return batch | {
        "index": rows["index"],
        "dec_inputs": edits.shift_right(batch["targets"], vocab.start),
        "weights": {"loss": jnp.ones(batch["targets"].shape, jnp.float32)},
    }


def _corrupt_packed(rng: Array, rows: Rows, vocab: Vocab, spec: Spec) -> Batch:
    """`corrupt` of packed rows, whose documents may or may not end in [EOS]."""
    if not spec.max_documents:
        raise ValueError("rows with segment_ids need a Spec with max_documents > 0")
    sentinels = jnp.asarray(vocab.sentinels, jnp.int32)
    lengths, eos, pad = spec.lengths, vocab.require("eos"), vocab.require("pad")

    def corrupt_row(rng: Array, tokens: Array, segments: Array) -> Batch:
        is_close = is_last(segments) & (tokens == eos)
        texts = jnp.where(is_close, 0, segments)
        noise_mask = noise.random_spans_packed(rng, texts, *spec.noise[1:])
        inputs, segment_ids = edits.spans_to_sentinels_packed(
            tokens, noise_mask, texts, sentinels, lengths["encoder"], eos, pad
        )
        # A text of one token has no noise, hence nothing to predict.
        texts = jnp.where(segment_lengths(texts) > 1, texts, 0)
        targets, dec_segment_ids = edits.spans_to_sentinels_packed(
            tokens, ~noise_mask, texts, sentinels, lengths["decoder"], eos, pad
        )
        return {
            "inputs": inputs,
            "segment_ids": segment_ids,
            "targets": targets,
            "dec_segment_ids": dec_segment_ids,
            "weights": {"loss": (dec_segment_ids > 0).astype(jnp.float32)},
        }

    keys = row_keys(rng, rows["index"])
    batch: Batch = jax.vmap(corrupt_row)(keys, rows["tokens"], rows["segment_ids"])
    return batch | {
        "index": rows["index"],
        "dec_inputs": edits.shift_right(
            batch["targets"], vocab.start, batch["dec_segment_ids"]
        ),
    }


def masks(batch: Batch) -> Masks:
    """Per document the encoder attends to all, the decoder to its past and to that."""
    inputs, targets = batch.get("segment_ids"), batch.get("dec_segment_ids")
    return {
        "self": attention_masks.segments(inputs),
        "dec_self": attention_masks.causal(targets),
        "cross": attention_masks.segments(targets, inputs),
    }


def loss(
    params: Any, model: "EncoderDecoder", batch: Batch, masks: Masks, rngs: Keys
) -> tuple[Sums, Sums]:
    """Cross-entropy at every target position, sentinels and [EOS] included (T5)."""
    return target_loss(params, model, batch, masks, rngs)


def train_step(
    state: TrainState,
    rows: Rows,
    rngs: Keys,
    *,
    model: "EncoderDecoder",
    vocab: Vocab,
    spec: Spec,
    update: Update,
) -> tuple[TrainState, Sums]:
    """Replace spans by sentinels; the decoder writes the spans."""
    batch = corrupt(rngs["corrupt"], rows, vocab, spec)

    def loss_fn(params: Any, batch: Batch, rngs: Keys) -> tuple[Sums, Sums]:
        return loss(params, model, batch, masks(batch), rngs)

    return update(state, batch, loss_fn, rngs, spec.coefficients)
