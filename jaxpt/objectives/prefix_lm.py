"""Prefix language modelling: read a prefix in both directions, write its continuation.

Raffel et al. 2019; t5/data/preprocessors.py (`prefix_lm`) and SeqIO's
`PrefixLMFeatureConverter` (seqio/feature_converters.py). The prefix of each document is
uniform in [1, L - 1]; of a task with answers (`data.answers_only`), all before these.

One stack reads the row after a start token, `a b | c d` as inputs `[PAD] a b c`: the
positions [PAD] a b attend to each other, one more than the prefix has tokens, and the
loss is computed where c and d are the targets. With an encoder and a decoder the first
reads `a b [EOS]`, the second writes `c d [EOS]`.

    loss = mean over t after the prefix of -log p(x_t | x_1 ... x_t-1)

Departures: with one stack no [EOS] separates the two, so the text is unchanged;
relative positions distinguish both directions (T5X's decoder gives everything ahead the
same distance).

Control: `clm`, which reads the prefix causally.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxpt.dims import Batch, Rows
from jaxpt.errors import ConfigError
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.objectives import span_corruption
from jaxpt.objectives.objective import Masks, make_train_step, target_loss
from jaxpt.objectives.spec import (
    Needs,
    ObjectiveSpec,
    Predictions,
    Term,
    filled_by,
)
from jaxpt.ops import edits
from jaxpt.ops import masks as attention_masks
from jaxpt.ops.packing import uniform
from jaxpt.ops.prefixes import lengths_before, prefix_lengths
from jaxpt.ops.segments import is_last, segment_lengths, segment_positions
from jaxpt.rng import row_keys
from jaxpt.text.tokens.vocab import Vocab
from jaxpt.text_form import TextForm

if TYPE_CHECKING:
    from jaxpt.nn.networks.network import Network


@dataclasses.dataclass(frozen=True)
class PrefixSpec(ObjectiveSpec):
    """The base of objectives that read a text and then write one.

    Attributes:
      is_seq2seq: whether the model has an encoder and a decoder
        (`model.num_decoder_layers`).
    """

    NETWORKS: ClassVar = (
        "one_stack.PrefixLM",
        "encoder_decoder.EncoderDecoder",
    )
    ADDS_START: ClassVar[bool] = True
    MIN_LENGTH: ClassVar[int] = 2

    _: dataclasses.KW_ONLY
    is_seq2seq: bool = filled_by("has_decoder", False)

    @property
    def stacks(self) -> tuple[str, ...]:
        """The names of the stacks."""
        return ("encoder", "decoder") if self.is_seq2seq else ("decoder",)

    @property
    def terms(self) -> dict[str, Term]:
        return {"loss": Term("continuation")}

    def text_form(self, vocab: Vocab) -> TextForm:
        """Around a prefix: the start that one stack reads, or the encoder's [EOS]."""
        form = super().text_form(vocab)
        if self.is_seq2seq:
            return dataclasses.replace(form, after=(vocab.require("eos"),))
        return dataclasses.replace(form, before=(vocab.require("pad"),))

    def make_network(
        self, model_spec: ModelSpec, vocab: Vocab, **fields: Any
    ) -> "Network":
        network = super().make_network(model_spec, vocab, **fields)
        if network.HAS_DECODER != self.is_seq2seq:
            allowed = "at least 1" if self.is_seq2seq else "0"
            raise ConfigError(
                f"model.num_decoder_layers={model_spec.num_decoder_layers}: must be "
                f"{allowed} with is_seq2seq={self.is_seq2seq}"
            )
        return network


@dataclasses.dataclass(frozen=True)
class Spec(PrefixSpec):
    """Prefix lengths are uniform, hence without settings."""

    SECTION: ClassVar[str] = "prefix_lm"
    READS: ClassVar = ObjectiveSpec.READS | {"answers"}

    @property
    def lengths(self) -> dict[str, int]:
        """Each half of a row of L tokens may have L - 1 of them, and an [EOS]."""
        return dict.fromkeys(self.stacks, self.row_length)

    @property
    def predictions(self) -> Predictions:
        """All that a decoder reads; with one stack, the positions after the prefix.

        Their distribution is that of one text: several in a row have the same mean and
        vary less.
        """
        laws = {} if self.is_seq2seq else {"loss": uniform(1, self.row_length - 1)}
        return Predictions(self.row_length, laws)

    @property
    def needs(self) -> Needs:
        """[PAD], with which the model starts, and for a decoder [EOS]."""
        return Needs(specials=("pad", "eos") if self.is_seq2seq else ("pad",))

    def controls(self) -> dict[str, dict[str, Any]]:
        other = "span_corruption" if self.is_seq2seq else "clm"
        return {other: {"objective": other}}

    def text_form(self, vocab: Vocab) -> TextForm:
        note = (
            "Trained as a prefix LM: a text begins with a [PAD], which attends with "
            "the prompt to all of the prompt, while later tokens attend to their past."
        )
        return dataclasses.replace(super().text_form(vocab), mask_note=note)


def corrupt(rng: Array, rows: Rows, vocab: Vocab, spec: Spec) -> Batch:
    """Splits every document into a prefix and a continuation.

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
    if "answers" in rows:
        lengths = jax.vmap(lengths_before)(texts, rows["answers"])
    else:
        keys = row_keys(rng, rows["index"])
        lengths = jax.vmap(prefix_lengths)(keys, texts, segment_lengths(texts))
    if spec.is_seq2seq:
        batch = split_seq2seq(tokens, lengths, texts, vocab)
    else:
        batch = split_causal(tokens, lengths, segments, vocab)
    if "answers" in rows:
        batch["weights"] = {"loss": _weigh_answers(batch, rows, lengths, texts, spec)}
    return batch | {"index": rows["index"]}


def _weigh_answers(
    batch: Batch, rows: Rows, lengths: Array, texts: Array, spec: Spec
) -> Array:
    """The weights of targets that are answers, and of a decoder's last [EOS]."""
    answers, weights = rows["answers"], batch["weights"]["loss"]
    if not spec.is_seq2seq:
        return weights * (answers > 0)
    is_target = segment_positions(texts) >= lengths

    def lay_out(answers: Array, keep: Array, ids: Array) -> Array:
        return edits.lay_out(answers, keep, ids, len(answers), 1, 0)[0]

    return weights * (jax.vmap(lay_out)(answers, is_target, texts) > 0)


def find_texts(tokens: Array, segment_ids: Array, vocab: Vocab) -> Array:
    """Segment ids [B, R] of texts that can be split, without their closing [EOS]s."""
    is_close = is_last(segment_ids) & (tokens == vocab.require("eos"))
    texts = jnp.where(is_close, 0, segment_ids)
    return jnp.where(segment_lengths(texts) > 1, texts, 0)


def split_causal(
    tokens: Array, lengths: Array, segment_ids: Array | None, vocab: Vocab
) -> Batch:
    """The batch of one stack, by prefix lengths: SeqIO's converter.

    Args:
      lengths: int32 [B, R], at each token the prefix length of its document.
      segment_ids: int32 [B, R], or None if a row is one text.
    """
    ids = jnp.ones_like(tokens) if segment_ids is None else segment_ids
    place = segment_positions(ids)
    batch: Batch = {
        "inputs": edits.shift_right(tokens, vocab.require("pad"), segment_ids),
        "targets": tokens,
        "weights": {"loss": ((place >= lengths) & (ids > 0)).astype(jnp.float32)},
        # The start token moves the prefix by one position.
        "is_prefix": (place <= lengths) & (ids > 0),
    }
    return batch if segment_ids is None else batch | {"segment_ids": segment_ids}


def split_seq2seq(tokens: Array, lengths: Array, texts: Array, vocab: Vocab) -> Batch:
    """The batch of an encoder and a decoder, each half closed by [EOS]."""
    is_prefix = segment_positions(texts) < lengths
    closes = vocab.require("eos"), vocab.require("pad")

    def split(tokens: Array, keep: Array, ids: Array) -> tuple:
        return edits.lay_out(tokens, keep, ids, len(tokens), *closes)

    inputs = jax.vmap(split)(tokens, is_prefix, texts)
    return pair(inputs, jax.vmap(split)(tokens, ~is_prefix, texts), vocab)


# Tokens [B, T] and their segment ids.
IdsAndSegments = tuple[Array, Array]


def pair(inputs: IdsAndSegments, targets: IdsAndSegments, vocab: Vocab) -> Batch:
    """The batch of an encoder and a decoder from their rows and segment ids."""
    ids, dec_segment_ids = targets
    return {
        "inputs": inputs[0],
        "segment_ids": inputs[1],
        "targets": ids,
        "dec_inputs": edits.shift_right(ids, vocab.start, dec_segment_ids),
        "dec_segment_ids": dec_segment_ids,
        "weights": {"loss": (dec_segment_ids > 0).astype(jnp.float32)},
    }


def masks(batch: Batch) -> Masks:
    """A document's prefix attends to all of itself; the rest to that and its past."""
    if "is_prefix" not in batch:
        return span_corruption.masks(batch)
    segment_ids = batch.get("segment_ids")
    return {"self": attention_masks.prefix_keys(batch["is_prefix"], segment_ids)}


loss = target_loss  # after the prefix, [EOS] included
train_step = make_train_step(corrupt, masks, loss)
