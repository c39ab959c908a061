"""Prefix language modelling: read a prefix freely, write what follows it.

Raffel et al. 2019; t5/data/preprocessors.py (`prefix_lm`) and SeqIO's
`PrefixLMFeatureConverter` (seqio/feature_converters.py). The prefix of each document is
uniform in [1, L - 1].

On one stack the row is read behind a start token, `a b | c d` as inputs `[PAD] a b c`:
all of [PAD] a b sees all of itself, hence one place more than the prefix, and the loss
is read where c and d are the targets. On an encoder and a decoder the first reads
`a b [EOS]`, the second writes `c d [EOS]`.

    loss = mean over t behind the prefix of -log p(x_t | x_1 ... x_t-1)

Departures: on one stack no [EOS] is put between the two, so the text stays as it is;
relative positions tell both directions apart (T5X's decoder takes all that lies ahead
for the same distance).
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from jaxpt.errors import UserError
from jaxpt.nn.networks.encoder_decoder import EncoderDecoder
from jaxpt.nn.networks.one_stack import PrefixLM
from jaxpt.objectives.objective import Needs, ObjectiveSpec, target_loss
from jaxpt.ops import edits
from jaxpt.ops import masks as attention_masks
from jaxpt.ops.packing import uniform
from jaxpt.ops.prefixes import prefix_lengths
from jaxpt.ops.segments import is_last, segment_lengths, segment_positions
from jaxpt.rng import row_keys
from jaxpt.text.tokens.vocab import Vocab


@dataclasses.dataclass(frozen=True)
class PrefixSpec(ObjectiveSpec):
    """What reads a text and then writes one, on one stack or on two.

    Attributes:
      is_seq2seq: whether the model has an encoder and a decoder
        (`model.num_decoder_layers`).
    """

    NETWORKS: ClassVar = (PrefixLM, EncoderDecoder)
    MIN_LENGTH: ClassVar[int] = 2

    _: dataclasses.KW_ONLY
    is_seq2seq: bool = False

    @property
    def stacks(self) -> tuple[str, ...]:
        """The names of its stacks."""
        return ("encoder", "decoder") if self.is_seq2seq else ("decoder",)

    def check_network(self, model_spec, vocab):
        kind = super().check_network(model_spec, vocab)
        wanted = "at least 1" if self.is_seq2seq else "0"
        if kind.HAS_DECODER != self.is_seq2seq:
            raise UserError(
                f"model.num_decoder_layers={model_spec.num_decoder_layers}: must be "
                f"{wanted} with is_seq2seq={self.is_seq2seq}"
            )
        return kind

    def frame(self, vocab):
        """Around a prefix: the start that one stack reads, or the encoder's [EOS]."""
        return ((), (vocab.eos,)) if self.is_seq2seq else ((vocab.pad,), ())


@dataclasses.dataclass(frozen=True)
class Spec(PrefixSpec):
    """Every prefix length is as likely as any other, so there is nothing to set."""

    SECTION: ClassVar[str] = "prefix_lm"

    @property
    def lengths(self):
        """The halves of a row may both be almost all of it.

        A prefix of L - 1 tokens and its [EOS] are L, as is what follows one token.
        """
        return dict.fromkeys(self.stacks, self.row_length)

    @property
    def prediction_laws(self):
        """On one stack, of one text; of several a row has as many, and varies less.

        A decoder's are all that it reads.
        """
        return {} if self.is_seq2seq else {"loss": uniform(1, self.row_length - 1)}

    @property
    def needs(self):
        """[PAD], with which the model starts, and for a decoder [EOS]."""
        return Needs(specials=("pad", "eos") if self.is_seq2seq else ("pad",))

    def describe_mask(self):
        return (
            "Trained as a prefix LM: a text is read behind a [PAD], which sees with "
            "the prompt all of the prompt, while what follows sees its past."
        )


def corrupt(rng: jax.Array, rows: dict, vocab: Vocab, spec: Spec) -> dict:
    """Cuts every document in two; nothing is hidden but what follows.

    >>> rows = {"tokens": jnp.array([[7, 8]]), "index": jnp.array([0])}
    >>> batch = corrupt(jax.random.key(0), rows, Vocab(size=9, pad=0), Spec(2))
    >>> [batch[key].astype(int).tolist() for key in ("inputs", "targets")]
    [[[0, 7]], [[7, 8]]]
    >>> batch["is_prefix"].astype(int).tolist(), batch["weights"]["loss"].tolist()
    ([[1, 1]], [[0.0, 1.0]])
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
        "weights": {"loss": ((place >= lengths) & (ids > 0)).astype(jnp.float32)},
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
        "weights": {"loss": (dec_segment_ids > 0).astype(jnp.float32)},
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


def loss(params, model, batch: dict, masks: dict, rngs: dict):
    """Cross-entropy at what follows the prefix, [EOS] included."""
    return target_loss(params, model, batch, masks, rngs)


def train_step(state, rows: dict, rngs: dict, *, model, vocab, spec, update):
    """Cut each document in two, read the prefix freely, predict the rest."""
    batch = corrupt(rngs["corrupt"], rows, vocab, spec)

    def loss_fn(params, batch, rngs):
        return loss(params, model, batch, masks(batch), rngs)

    return update(state, batch, loss_fn, rngs, spec.coefficients)
