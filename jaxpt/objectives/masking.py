"""Which tokens a masked objective hides: tokens, whole words or spans of words.

What MLM, ELECTRA and what is built on them share: the settings, and one draw for a row.
"""

import dataclasses
import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxpt.errors import UserError
from jaxpt.objectives.objective import (
    Needs,
    ObjectiveSpec,
    get_segments,
    keep_keys,
)
from jaxpt.ops import noise, word_masking
from jaxpt.rng import row_keys
from jaxpt.text.tokens.vocab import Vocab


@dataclasses.dataclass(frozen=True)
class Masking(ObjectiveSpec):
    """How much to hide, in what pieces, and how the choice changes over a run.

    Attributes:
      mask_rate: share of a row's real tokens that is hidden, an exact count.
      masking: "tokens", each by itself; "words", whole words (BERT's later models): a
        word that does not fit into what is left of the count is passed over, so it may
        be undershot; or "spans" (SpanBERT), whose last span is cut to an exact count.
      span_p: of the geometric law that the number of words in a span is drawn from.
      max_span_length: words at which that law is cut off and renormalised.
      static_masks: n masks for each row, of which every visit draws one; 0 draws a new
        one. A row is known by its tokens, so it has the same n masks in any epoch and
        any run. BERT's data held 10 passes over the text (`data.dupe_factor` makes such
        passes of sentence pairs), each row of which was masked once for all; RoBERTa's
        static masks are those: with 10 for 40 epochs each is seen four times, here on
        average.
      mask_rate_end: the rate at the end of a run, reached in a straight line from
        `mask_rate` (0.3 to 0.15 in GPT-BERT); 0 keeps the rate. What is evaluated is
        hidden at the end's rate.
    """

    READS: ClassVar[frozenset[str]] = ObjectiveSpec.READS | {"progress"}

    mask_rate: float = 0.15
    _: dataclasses.KW_ONLY
    masking: str = "tokens"
    span_p: float = 0.2
    max_span_length: int = 10
    static_masks: int = 0
    mask_rate_end: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        self.check_rate("mask_rate")
        if self.mask_rate_end != 0:
            self.check_rate("mask_rate_end")
        is_good = not (self.static_masks and self.mask_rate_end)
        end = f"{self.SECTION}.mask_rate_end={self.mask_rate_end}"
        self.check_all(
            (
                ("masking", self.masking in SAMPLERS, f"one of {', '.join(SAMPLERS)}"),
                ("span_p", 0 < self.span_p < 1, "above 0 and below 1"),
                ("max_span_length", self.max_span_length >= 1, "at least 1"),
                ("static_masks", self.static_masks >= 0, "at least 0"),
                ("static_masks", is_good, f"0 with {end}, under which masks change"),
            )
        )

    @property
    def needs(self):
        return Needs(specials=("mask",))

    @property
    def last_rate(self) -> float:
        """The rate at the end of a run, and of what is evaluated."""
        return self.mask_rate_end or self.mask_rate

    @property
    def num_masked(self) -> int:
        """P: masked tokens of a full row, at the larger of the rates."""
        return int(self.count_table(max(self.mask_rate, self.last_rate))[-1])

    @property
    def num_predictions(self) -> int:
        """The masked positions, which alone meet the vocabulary."""
        return self.num_masked

    def count_table(self, rate: float) -> np.ndarray:
        """How many of n tokens are hidden, for n = 0..row_length.

        n is BERT's for tokens and words, all of the row's real tokens, special ones
        included, be they one document or several (as in RoBERTa's packed rows). For
        spans it is SpanBERT's, which masks before it adds special tokens.
        """
        is_spans = self.masking == "spans"
        make = noise.ceil_table if is_spans else noise.count_table
        return make(self.row_length, rate)

    def check_network(self, model_spec, vocab):
        kind = super().check_network(model_spec, vocab)
        if self.masking != "tokens" and not vocab.word_starts:
            raise UserError(
                f"{self.SECTION}.masking={self.masking}: must be tokens with a "
                f"tokenizer that does not tell where words begin"
            )
        return kind


def map_masked_rows(corrupt_row, rng, rows: dict, spec: Masking) -> dict:
    """`objective.map_rows`, which also knows static masks and a changing rate.

    A row's key is that of its place in the batch; with static masks, that of what it
    holds and of which of its masks is drawn.

    Args:
      corrupt_row: (key, tokens [R], segment ids [R], progress or None) -> the row's
        part of the batch.
    """
    tokens, segments = rows["tokens"], get_segments(rows)
    keys = row_keys(rng, rows["index"])
    if spec.static_masks:
        fix = functools.partial(_fix_key, num_masks=spec.static_masks)
        keys = jax.vmap(fix)(keys, tokens, segments > 0)
    batch = jax.vmap(corrupt_row)(keys, tokens, segments, rows.get("progress"))
    return batch | keep_keys(rows)


def _fix_key(rng, tokens, real, num_masks: int):
    copy = jax.random.randint(rng, (), 0, num_masks)
    key = jax.random.key(0)
    for part in (*word_masking.hash_tokens(tokens, real), copy):
        key = jax.random.fold_in(key, part)
    return key


def choose(rng, tokens, segments, vocab: Vocab, spec: Masking, progress=None):
    """P positions of one row and their weights: real tokens, none of them special.

    Args:
      segments: int [R], 1.. the documents and 0 padding; words and spans end with
        their document. Bool, for a row that is one text.
      progress: the share of the run that is done; None is its end.

    Returns:
      positions [P], all distinct, and weights [P], 0 for slots that are left over.
    """
    segments = segments.astype(jnp.int32)
    real = segments > 0
    eligible = real & ~jnp.asarray(vocab.is_special)[tokens]
    count = _count(eligible if spec.masking == "spans" else real, spec, progress)
    count = jnp.minimum(count, spec.num_masked)  # which BERT may cap
    return SAMPLERS[spec.masking](rng, tokens, segments, eligible, count, vocab, spec)


def _count(counted, spec: Masking, progress):
    num = counted.sum()
    if progress is None or not spec.mask_rate_end:
        return jnp.asarray(spec.count_table(spec.last_rate))[num]
    rate = spec.mask_rate + (spec.last_rate - spec.mask_rate) * progress
    exact = num * rate
    # What float32 adds to a whole number is not to be counted.
    found = jnp.ceil(exact - 1e-4) if spec.masking == "spans" else jnp.round(exact)
    most = jnp.minimum(num, spec.num_masked)
    return jnp.clip(found.astype(jnp.int32), jnp.minimum(num, 1), most)


def _choose_tokens(rng, tokens, segments, eligible, count, vocab, spec):
    return noise.sample_positions(rng, eligible, count, spec.num_masked)


def _choose_words(rng, tokens, segments, eligible, count, vocab, spec):
    starts = jnp.asarray(np.array(vocab.word_starts))[tokens]
    words, _ = word_masking.find_words(starts, eligible, segments)
    hidden = word_masking.sample_words(rng, eligible, words, count, spec.num_masked)
    return word_masking.find_masked_positions(hidden, spec.num_masked)


def _choose_spans(rng, tokens, segments, eligible, count, vocab, spec):
    starts = jnp.asarray(np.array(vocab.word_starts))[tokens]
    found = word_masking.find_words(starts, eligible, segments)
    lengths = word_masking.span_length_probabilities(spec.span_p, spec.max_span_length)
    hidden = word_masking.sample_spans(
        rng, eligible, *found, count, spec.num_masked, lengths
    )
    return word_masking.find_masked_positions(hidden, spec.num_masked)


# The strategies: (rng, tokens, segments, eligible, count, vocab, spec) -> what `choose`
# returns.
SAMPLERS = {
    "tokens": _choose_tokens,
    "words": _choose_words,
    "spans": _choose_spans,
}
