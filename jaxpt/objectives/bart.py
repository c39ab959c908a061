"""BART: a noised text goes into the encoder; the decoder writes the clean one.

Lewis et al. 2020; fairseq, `denoising_dataset.py`. In the source's order: sentences
change places; spans are replaced by one [MASK] each, or single tokens behind their
own, or deleted; [MASK]s are inserted; the text is rotated. Each can be had alone. The
default is the paper's recipe: spans over 30 % of the tokens with lengths of Poisson's
distribution around 3, and all sentences permuted.

    one two. three four.  ->  three [MASK]. one two.  ->  one two. three four.
    loss = mean over t of -log p(x_t | x_1 ... x_t-1, the noised text)

A text is what lies between special tokens ([UNK] is text) in one document of the row:
each is corrupted by itself, and the special tokens stay where they are. Departures:
lengths count tokens (fairseq's words, where it knows them), spans do not overlap, the
budget is exact, and the decoder begins with [PAD], as T5's, but a model that came
with another start keeps its own.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from jaxpt.errors import UserError
from jaxpt.nn.networks.encoder_decoder import EncoderDecoder
from jaxpt.objectives.objective import (
    Needs,
    ObjectiveSpec,
    get_segments,
    target_loss,
)
from jaxpt.ops import bart_noise, edits, noise
from jaxpt.ops import masks as attention_masks
from jaxpt.rng import row_keys
from jaxpt.text.tokens.vocab import Vocab


@dataclasses.dataclass(frozen=True)
class Spec(ObjectiveSpec):
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

    SECTION: ClassVar[str] = "bart"
    READS: ClassVar = ObjectiveSpec.READS | {"sentence_ids"}
    NETWORKS: ClassVar = (EncoderDecoder,)
    REWRITES: ClassVar[bool] = True

    permute_sentences: float = 1.0
    infill_rate: float = 0.3
    poisson_mean: float = 3.0
    mask_rate: float = 0.0
    delete_rate: float = 0.0
    insert_rate: float = 0.0
    rotate: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        noised = ("infill_rate", "mask_rate", "delete_rate")
        for name in ("permute_sentences", "rotate", "insert_rate", *noised):
            self.check(name, 0 <= getattr(self, name) <= 1, "from 0 to 1")
        total = sum(getattr(self, name) for name in noised)
        if not total < 1:
            told = ", ".join(f"bart.{name}={getattr(self, name)}" for name in noised)
            raise UserError(f"{told}: must be less than 1 together, not {total:g}")
        mean = self.poisson_mean
        self.check("poisson_mean", 0 < mean <= 100, "above 0, at most 100")

    @classmethod
    def for_seq_len(cls, seq_len: int, **settings) -> "Spec":
        """The spec whose rows let the encoder read `seq_len`, inserted ones too."""
        length = seq_len
        while length > 1 and cls(length, **settings).lengths["encoder"] > seq_len:
            length -= 1
        return cls(length, **settings)

    @property
    def lengths(self):
        """The encoder has room for a row none of which is noise, and for insertions.

        A row that gets more (by lengths of 0, and by rounding up in many short texts)
        is not given the last of it: at the paper's rates, no text of 64 tokens is.
        """
        inserted = noise.ceil_table(self.row_length, self.insert_rate)[-1]
        return {"encoder": self.row_length + int(inserted), "decoder": self.row_length}

    def answer_start(self, vocab, left):
        """All of the text before the gap, which is written again."""
        return jnp.pad(left, ((0, 0), (1, 0)), constant_values=vocab.start)

    def answer_ends(self, vocab, right):
        """All of the text behind the gap, which is written again."""
        return right[:, :, None]

    @property
    def needs(self):
        fraction = self.permute_sentences
        return Needs(
            specials=("pad", "mask"),
            sentence_ids=fraction > 0,
            asked_by=f"bart.permute_sentences={fraction}",
        )


def corrupt(rng: jax.Array, rows: dict, vocab: Vocab, spec: Spec) -> dict:
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
    segments = get_segments(rows)
    fixed_ids = vocab.is_special
    if vocab.unk is not None:
        fixed_ids[vocab.unk] = False
    is_fixed = jnp.asarray(fixed_ids)[tokens]

    def corrupt_row(rng, tokens, is_fixed, segments, sentences):
        row = tokens, is_fixed, segments, sentences
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
            "weights": {"loss": (segments > 0).astype(jnp.float32)},
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
        tokens = jnp.where(first, vocab.mask, tokens)
        clean, keep = clean & ~noise_mask, ~noise_mask | first
    if spec.mask_rate:
        noise_mask = bart_noise.sample_tokens(
            rng_mask, texts, clean, budget(spec.mask_rate)
        )
        tokens, clean = jnp.where(noise_mask, vocab.mask, tokens), clean & ~noise_mask
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
        spec.lengths["encoder"],
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


def loss(params, model: EncoderDecoder, batch: dict, masks: dict, rngs: dict):
    """Cross-entropy of every token of the clean text."""
    return target_loss(params, model, batch, masks, rngs)


def train_step(state, rows: dict, rngs: dict, *, model, vocab, spec, update):
    """Noise the text, read it, write the clean one."""
    batch = corrupt(rngs["corrupt"], rows, vocab, spec)

    def loss_fn(params, batch, rngs):
        return loss(params, model, batch, masks(batch), rngs)

    return update(state, batch, loss_fn, rngs, spec.coefficients)
