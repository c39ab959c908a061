"""Which tokens a masked objective hides: single tokens, whole words or spans of words.

The settings and the draw that MLM, ELECTRA and the objectives built on them share.
"""

import dataclasses
import functools
import logging
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxpt.dims import Batch, Rows
from jaxpt.errors import ConfigError
from jaxpt.objectives.objective import get_scored, get_segments, keep_keys
from jaxpt.objectives.spec import Needs, ObjectiveSpec, Predictions, Term
from jaxpt.ops import noise, word_masking
from jaxpt.rng import row_keys
from jaxpt.setting_types import BelowOne, InnerFraction, Limits, NonNegativeInt, OneOf
from jaxpt.text.tokens.vocab import Vocab

# The loss term of masked tokens.
MASKED = Term("masked token", positions="masked_positions")
MASKINGS = ("tokens", "words", "spans")
NUM_CHECKED = 64  # rows in which words are measured before training
# The least share of tokens in words that can be hidden, and of `mask_rate` that is
# hidden without a warning.
LEAST_SHARE, NEAR = 0.1, 0.8
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Masking(ObjectiveSpec):
    """How much to hide, in what units, and how the choice changes over a run.

    Attributes:
      mask_rate: fraction of a row's real tokens that is hidden, an exact count.
      masking: "tokens", drawn one by one; "words", whole words (BERT's later models): a
        word that does not fit into the rest of the count is skipped, so the count may
        be undershot; or "spans" (SpanBERT), whose last span is cut to an exact count.
      span_p: of the geometric distribution of the number of words in a span.
      max_span_length: words at which that distribution is cut off and renormalised.
      static_masks: n masks for each row, one of which is drawn at every visit; 0 draws
        a new one. A row is identified by its tokens, so it has the same n masks in any
        epoch and any run. BERT's data held 10 passes over the text
        (`data.dupe_factor` makes such passes of sentence pairs), each masked once.
        RoBERTa's static masks are the same: with 10 for 40 epochs each is seen four
        times, here four times on average.
      mask_rate_end: the rate at the end of a run, reached linearly from `mask_rate`
        (0.3 to 0.15 in GPT-BERT); 0 keeps the rate. Evaluation uses the final rate.
    """

    READS: ClassVar[frozenset[str]] = ObjectiveSpec.READS | {"progress", "answers"}

    mask_rate: InnerFraction = 0.15
    _: dataclasses.KW_ONLY
    masking: Annotated[str, OneOf(*MASKINGS)] = "tokens"
    span_p: InnerFraction = 0.2
    max_span_length: Annotated[int, Limits(least=1, most=2**20)] = 10
    static_masks: NonNegativeInt = 0
    mask_rate_end: BelowOne = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        is_good = not (self.static_masks and self.mask_rate_end)
        end = f"{self.SECTION}.mask_rate_end={self.mask_rate_end}"
        self.check("static_masks", is_good, f"0 with {end}, under which masks change")

    @property
    def needs(self) -> Needs:
        words = f"{self.SECTION}.masking={self.masking}: must be tokens"
        return Needs(specials=("mask",), word_starts=words * (self.masking != "tokens"))

    def check_rows(self, rows: Mapping[str, np.ndarray], vocab: Vocab) -> None:
        """Measures whether rows have words that can be hidden, and warns if few."""
        if self.masking == "tokens":
            return
        few = {key: jnp.asarray(rows[key][:NUM_CHECKED]) for key in rows}
        tokens = few["tokens"]
        segments = get_segments(cast(Rows, few)).astype(jnp.int32)
        real = segments > 0
        row = _Row(tokens, segments, real & ~jnp.asarray(vocab.is_special)[tokens])
        words = jax.vmap(lambda *parts: _Row(*parts).find_words(vocab)[0])(*row)
        count = jax.vmap(lambda at, own: jnp.bincount(at, own, length=at.size + 1))
        sizes = count(words, row.eligible.astype(jnp.int32))
        size_of = jnp.take_along_axis(sizes, words, 1)
        fits = row.eligible & (size_of <= self.num_masked)
        share = float(fits.sum() / jnp.maximum(row.eligible.sum(), 1))
        setting = f"{self.SECTION}.masking={self.masking}"
        if share < LEAST_SHARE:
            raise ConfigError(
                f"{setting}: {1 - share:.0%} of the tokens of {len(tokens)} rows are "
                f"in words of more than the {self.num_masked} tokens that a row hides, "
                "as the text has no spaces, the rows are short, or the tokenizer's "
                "tokens do not mark where words begin; must be tokens for this text "
                "and tokenizer"
            )
        keys = row_keys(jax.random.key(0), jnp.arange(len(tokens)))
        draw = functools.partial(choose, vocab=vocab, spec=self)
        num = float(jax.vmap(draw)(keys, tokens, segments)[1].sum())
        rate = num / max(float(real.sum()), 1.0)
        if rate < NEAR * self.last_rate:
            _log.warning(
                f"{setting}: hides {rate:.1%} of the tokens of {len(tokens)} rows, "
                f"fewer than {self.SECTION}.mask_rate={self.last_rate}: many words "
                f"are longer than the {self.num_masked} tokens that a row hides"
            )

    @property
    def last_rate(self) -> float:
        """The rate at the end of a run, and in evaluation."""
        return self.mask_rate_end or self.mask_rate

    def rate_at(self, progress: Array | float) -> Array | float:
        """The rate when this fraction of the run is done."""
        if not self.mask_rate_end:
            return self.mask_rate
        return self.mask_rate + (self.last_rate - self.mask_rate) * progress

    @property
    def num_masked(self) -> int:
        """P: masked tokens of a full row, at the larger of the rates."""
        return int(self.count_table(max(self.mask_rate, self.last_rate))[-1])

    @property
    def predictions(self) -> Predictions:
        """The masked positions, which alone meet the vocabulary."""
        return Predictions(self.num_masked)

    def count_table(self, rate: float) -> np.ndarray:
        """How many of n tokens are hidden, for n = 0..row_length.

        For tokens and words n counts all real tokens of the row, special ones included,
        in one document or several (as in RoBERTa's packed rows); the count is BERT's.
        For spans it is that of SpanBERT, which masks before it adds special tokens.
        """
        is_spans = self.masking == "spans"
        make = noise.ceil_table if is_spans else noise.count_table
        return make(self.row_length, rate)


def map_masked_rows(
    corrupt_row: Callable[..., Any], rng: Array, rows: Rows, spec: Masking
) -> Batch:
    """`objective.map_rows` with static masks and a changing rate.

    A row's key depends on its place in the batch; with static masks, on its tokens and
    the number of the mask that is drawn.

    Args:
      corrupt_row: (key, tokens [R], segment ids [R] of `get_scored`, progress or None)
        -> the row's part of the batch.
    """
    tokens, segments = rows["tokens"], get_segments(rows)
    keys = row_keys(rng, rows["index"])
    if spec.static_masks:
        fix = functools.partial(_fix_key, num_masks=spec.static_masks)
        keys = jax.vmap(fix)(keys, tokens, segments > 0)
    scored, progress = get_scored(rows), rows.get("progress")
    batch: Batch = jax.vmap(corrupt_row)(keys, tokens, scored, progress)
    return batch | keep_keys(rows)


def _fix_key(rng: Array, tokens: Array, real: Array, num_masks: int) -> Array:
    copy = jax.random.randint(rng, (), 0, num_masks)
    key = jax.random.key(0)
    for part in (*word_masking.hash_tokens(tokens, real), copy):
        key = jax.random.fold_in(key, part)
    return key


# Positions [P] of one row, and their weights.
Choice = tuple[Array, Array]


class _Row(NamedTuple):
    """A row [R], and which of its tokens may be hidden."""

    tokens: Array
    segments: Array
    eligible: Array

    def find_words(self, vocab: Vocab) -> tuple[Array, Array]:
        """The word of each token, and each word's first position."""
        starts = jnp.asarray(np.array(vocab.word_starts))[self.tokens]
        return word_masking.find_words(starts, self.eligible, self.segments)


def choose(
    rng: Array,
    tokens: Array,
    segments: Array,
    vocab: Vocab,
    spec: Masking,
    progress: Array | None = None,
) -> Choice:
    """P positions of one row and their weights: real tokens, none of them special.

    Args:
      segments: int [R], 1.. the documents and 0 padding; words and spans end with
        their document. Bool for a row that is one text.
      progress: the fraction of the run that is done; None is its end.

    Returns:
      positions [P], all distinct, and weights [P], 0 for unused slots.
    """
    segments = segments.astype(jnp.int32)
    real = segments > 0
    eligible = real & ~jnp.asarray(vocab.is_special)[tokens]
    count = count_hidden(eligible if spec.masking == "spans" else real, spec, progress)
    row = _Row(tokens, segments, eligible)
    return SAMPLERS[spec.masking](rng, row, count, vocab, spec)


def count_hidden(counted: Array, spec: Masking, progress: Array | None) -> Array:
    """How many tokens of a row are hidden, at most P.

    Args:
      counted: bool [R], the tokens of which `mask_rate` is a fraction.
      progress: as of `choose`.
    """
    num = counted.sum()
    if progress is None or not spec.mask_rate_end:
        count = jnp.asarray(spec.count_table(spec.last_rate))[num]
        return jnp.minimum(count, spec.num_masked)  # which BERT may cap
    exact = num * spec.rate_at(progress)
    # A whole number may be slightly more in float32, which must not count.
    count = jnp.ceil(exact - 1e-4) if spec.masking == "spans" else jnp.round(exact)
    most = jnp.minimum(num, spec.num_masked)
    return jnp.clip(count.astype(jnp.int32), jnp.minimum(num, 1), most)


def _choose_tokens(
    rng: Array, row: _Row, count: Array, vocab: Vocab, spec: Masking
) -> Choice:
    return noise.sample_positions(rng, row.eligible, count, spec.num_masked)


def _choose_words(
    rng: Array, row: _Row, count: Array, vocab: Vocab, spec: Masking
) -> Choice:
    words, _ = row.find_words(vocab)
    hidden = word_masking.sample_words(rng, row.eligible, words, count, spec.num_masked)
    return word_masking.find_masked_positions(hidden, spec.num_masked)


def _choose_spans(
    rng: Array, row: _Row, count: Array, vocab: Vocab, spec: Masking
) -> Choice:
    words = row.find_words(vocab)
    lengths = word_masking.span_length_probabilities(spec.span_p, spec.max_span_length)
    hidden = word_masking.sample_spans(
        rng, row.eligible, *words, count, spec.num_masked, lengths
    )
    return word_masking.find_masked_positions(hidden, spec.num_masked)


# The strategies: (rng, row, count, vocab, spec) -> the result of `choose`.
SAMPLERS: dict[str, Callable[..., Choice]] = dict(
    zip(MASKINGS, (_choose_tokens, _choose_words, _choose_spans), strict=True)
)
