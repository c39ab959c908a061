"""BART: the encoder reads a noised text; the decoder writes the clean one.

Lewis et al. 2020; fairseq, `denoising_dataset.py`. In the source's order: sentences are
permuted; spans are replaced by one [MASK] each, or single tokens by one each, or
deleted; [MASK]s are inserted; the text is rotated. Each can be used alone. The default
is the paper's recipe: spans over 30 % of the tokens with Poisson-distributed lengths of
mean 3, and all sentences permuted.

    one two. three four.  ->  three [MASK]. one two.  ->  one two. three four.
    loss = mean over t of -log p(x_t | x_1 ... x_t-1, the noised text)

A text is a stretch between special tokens ([UNK] is text) in one document of the row.
Texts are corrupted independently, and special tokens keep their places. Departures:
lengths count tokens (fairseq's count words, if it knows them), spans do not overlap,
the budget is exact, and the decoder begins with [PAD], as T5's, except that an imported
model keeps its own start.

Control: `span_corruption`, whose decoder writes the hidden spans alone.
"""

import dataclasses
import functools
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxpt.dims import Batch, Rows
from jaxpt.errors import ConfigError
from jaxpt.objectives import span_corruption
from jaxpt.objectives.objective import (
    Masks,
    get_segments,
    make_train_step,
    target_loss,
)
from jaxpt.objectives.spec import Needs, ObjectiveSpec, Term
from jaxpt.ops import bart_noise, edits, noise
from jaxpt.ops import masks as attention_masks
from jaxpt.rng import row_keys
from jaxpt.setting_types import Fraction, Limits
from jaxpt.text.tokens.vocab import Vocab
from jaxpt.text_form import TextForm


@dataclasses.dataclass(frozen=True)
class Spec(ObjectiveSpec):
    """The corruptions of a text; rates are fractions of its n tokens, rounded up.

    Attributes:
      permute_sentences: fraction of its sentences that change places.
      infill_rate: tokens hidden in spans, each replaced by one [MASK].
      poisson_mean: mean length of the spans; a span of length 0 only inserts a [MASK].
      mask_rate: further tokens that are replaced by a [MASK] each.
      delete_rate: further tokens that are deleted.
      insert_rate: [MASK]s that replace nothing, in addition to spans of length 0.
      rotate: fraction of texts that are rotated to begin with a random token.
    """

    SECTION: ClassVar[str] = "bart"
    READS: ClassVar = ObjectiveSpec.READS | {"sentence_ids"}
    NETWORKS: ClassVar = ("encoder_decoder.EncoderDecoder",)

    permute_sentences: Fraction = 1.0
    infill_rate: Fraction = 0.3
    poisson_mean: Annotated[float, Limits(above=0, most=100)] = 3.0
    mask_rate: Fraction = 0.0
    delete_rate: Fraction = 0.0
    insert_rate: Fraction = 0.0
    rotate: Fraction = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        noised = ("infill_rate", "mask_rate", "delete_rate")
        total = sum(getattr(self, name) for name in noised)
        if not total < 1:
            rates = ", ".join(f"bart.{name}={getattr(self, name)}" for name in noised)
            raise ConfigError(f"{rates}: must be less than 1 together, not {total:g}")

    @classmethod
    def for_seq_len(cls, seq_len: int, **settings: Any) -> "Spec":
        """The longest rows for an encoder of `seq_len`, insertions included."""
        length = seq_len
        while length > 1 and cls(length, **settings).lengths["encoder"] > seq_len:
            length -= 1
        return cls(length, **settings)

    @property
    def lengths(self) -> dict[str, int]:
        """The encoder has room for a whole row without noise, and for insertions.

        A row that grows more (by spans of length 0, and by rounding up in many short
        texts) is cut: at the paper's rates, no text of 64 tokens is.
        """
        inserted = noise.ceil_table(self.row_length, self.insert_rate)[-1]
        return {"encoder": self.row_length + int(inserted), "decoder": self.row_length}

    @property
    def terms(self) -> dict[str, Term]:
        return {"loss": Term("the clean text")}

    def controls(self) -> dict[str, dict[str, Any]]:
        return {"span_corruption": {"objective": "span_corruption"}}

    def text_form(self, vocab: Vocab) -> TextForm:
        """A gap is a [MASK]; the decoder writes the whole text again."""
        return dataclasses.replace(super().text_form(vocab), rewrites=True)

    @property
    def needs(self) -> Needs:
        fraction = self.permute_sentences
        return Needs(
            specials=("pad", "mask"),
            sentence_ids=fraction > 0,
            asked_by=f"bart.permute_sentences={fraction}",
        )


def corrupt(rng: Array, rows: Rows, vocab: Vocab, spec: Spec) -> Batch:
    """The noised row and the clean one; the inputs end in [PAD]s, segment 0.

    >>> rows = {"tokens": jnp.array([[6, 7, 8, 9]]), "index": jnp.array([0])}
    >>> vocab = Vocab(size=10, pad=0, mask=4, eos=6)
    >>> spec = Spec(4, 0.0, infill_rate=0.6, poisson_mean=3.0)
    >>> batch = corrupt(jax.random.key(0), rows, vocab, spec)
    >>> batch["inputs"].tolist(), batch["dec_inputs"].tolist()
    ([[6, 4, 9, 0]], [[0, 6, 7, 8]])

    Raises:
      ValueError: sentences are to be permuted and the rows have none.
    """
    tokens = rows["tokens"]
    sentences = rows.get("sentence_ids")
    if sentences is None:
        if spec.permute_sentences:
            raise ValueError("rows lack sentence_ids")
        sentences = jnp.zeros_like(tokens)
    segments = get_segments(rows)
    fixed_ids = vocab.is_special
    if vocab.unk is not None:
        fixed_ids[vocab.unk] = False
    is_fixed = jnp.asarray(fixed_ids)[tokens]

    noise_row = functools.partial(_noise, vocab=vocab, spec=spec)
    keys = row_keys(rng, rows["index"])
    batch: Batch = jax.vmap(noise_row)(keys, tokens, is_fixed, segments, sentences)
    if "segment_ids" in rows:
        batch["dec_segment_ids"] = segments
    dec_segment_ids = batch.get("dec_segment_ids")
    return batch | {
        "index": rows["index"],
        "targets": tokens,
        "dec_inputs": edits.shift_right(tokens, vocab.start, dec_segment_ids),
        "weights": {"loss": (segments > 0).astype(jnp.float32)},
    }


def _noise(
    rng: Array,
    tokens: Array,
    is_fixed: Array,
    segments: Array,
    sentences: Array,
    vocab: Vocab,
    spec: Spec,
) -> Batch:
    """One row's inputs and their segments: permute, infill, mask, delete, insert."""
    length, mask_id = spec.row_length, vocab.require("mask")
    texts = bart_noise.find_texts(segments, is_fixed)
    rng_permute, rng_infill, rng_mask, rng_delete, rng_write = jax.random.split(rng, 5)

    def budget(rate: float) -> Array:
        return jnp.asarray(noise.ceil_table(length, rate))

    if spec.permute_sentences:
        fraction = spec.permute_sentences
        tokens = tokens[
            bart_noise.permute_sentences(rng_permute, sentences, texts, fraction)
        ]
    clean, keep = texts > 0, jnp.ones(length, bool)
    inserts = jnp.zeros(length, jnp.int32)
    if spec.infill_rate:
        probabilities = bart_noise.poisson_table(spec.poisson_mean)
        noise_mask, first, inserts = bart_noise.infill_spans(
            rng_infill, texts, budget(spec.infill_rate), probabilities
        )
        tokens = jnp.where(first, mask_id, tokens)
        clean, keep = clean & ~noise_mask, ~noise_mask | first
    if spec.mask_rate:
        noise_mask = bart_noise.sample_tokens(
            rng_mask, texts, clean, budget(spec.mask_rate)
        )
        tokens, clean = jnp.where(noise_mask, mask_id, tokens), clean & ~noise_mask
    if spec.delete_rate:
        budgets = budget(spec.delete_rate)
        keep &= ~bart_noise.sample_tokens(rng_delete, texts, clean, budgets)
    if spec.insert_rate:
        inserts += bart_noise.budgets_at_starts(texts, budget(spec.insert_rate))
    inputs, segment_ids = bart_noise.insert_and_rotate(
        rng_write,
        tokens,
        keep,
        texts,
        segments,
        inserts,
        mask_id,
        spec.rotate,
        spec.lengths["encoder"],
        vocab.require("pad"),
    )
    return {"inputs": inputs, "segment_ids": segment_ids}


def masks(batch: Batch) -> Masks:
    """Per document the encoder attends to all, the decoder to its past and to that."""
    inputs = batch.get("segment_ids")
    if inputs is not None and "dec_segment_ids" not in batch:  # one text, now shorter
        self_mask = attention_masks.key_padding((inputs > 0).sum(-1))
        return {
            "self": self_mask,
            "dec_self": attention_masks.causal(),
            "cross": self_mask,
        }
    return span_corruption.masks(batch)


loss = target_loss  # of every token of the clean text
train_step = make_train_step(corrupt, masks, loss)
