"""UL2's mixture of denoisers: short spans, long or many spans, and continuations.

Tay et al. 2022; the listing in its appendix (google-research#1405). Each document draws
one denoiser, and its input begins with the denoiser's mode token:

    R  [NLU]  spans of mean 3 or 8, 15 % noise      T5's span corruption
    S  [S2S]  all after a prefix, uniform in [1, L - 1]           prefix LM
    X  [NLG]  spans of mean 3 or 8, 50 %; of mean 64, 15 or 50 %

With an encoder and a decoder the first reads `[NLU] the <s0> sat [EOS]`, the second
writes `<s0> cat [EOS]`; one stack reads both, `[NLU] the <s0> sat <s0> cat [EOS]`, the
input as a prefix. S has no sentinel, as in the listing.

    loss = mean over t of -log p(y_t | y_1 ... y_t-1, input), y the targets

Departures: all denoisers read rows of one length (theirs cut the text again for each),
so shapes are those of the denoiser that needs most, and others are padded; spans may be
anywhere (`random_roll`), while theirs always end the text: 15 % of 512 tokens in spans
of mean 64 is one span, which would be the suffix in every row.

Controls: each denoiser alone, such as `rates=(1,0,0)`, and `span_corruption`.
"""

import dataclasses
import functools
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxpt.dims import Batch, Rows
from jaxpt.errors import ConfigError
from jaxpt.objectives import prefix_lm
from jaxpt.objectives.objective import get_segments, make_train_step, target_loss
from jaxpt.objectives.spec import Needs, Predictions, Term, filled_by
from jaxpt.ops import edits, noise
from jaxpt.ops.packing import exactly, mix, uniform
from jaxpt.ops.prefixes import join_halves, prefix_lengths
from jaxpt.ops.segments import segment_lengths, segment_positions, segment_starts
from jaxpt.rng import row_keys
from jaxpt.setting_types import (
    InnerFraction,
    Length,
    Limits,
    NonNegativeFloat,
    Rule,
    show_value,
)
from jaxpt.text.tokens.vocab import Vocab
from jaxpt.text_form import TextForm


@dataclasses.dataclass(frozen=True)
class Denoiser:
    """A denoiser: its mode token, its rate, and its spans (S has none)."""

    mode: str
    rate: float
    density: float = 0.0
    mean_span: float = 0.0

    def count(self, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Hidden tokens and spans of texts of 0..length tokens; 0 for S."""
        if self.mode == "s2s":
            zeros = np.zeros(length + 1, np.int32)
            return zeros, zeros
        return noise.span_tables(length, self.density, self.mean_span)

    def count_marks(self, length: int, is_rolled: bool) -> np.ndarray:
        """The maximum number of sentinels of texts of 0..length tokens.

        One more than spans if a rolled text may begin within a span.
        """
        num_noise, num_spans = (table.astype(int) for table in self.count(length))
        return num_spans + (is_rolled & (num_noise > num_spans))


Densities = Annotated[tuple[InnerFraction, ...], Length(1)]
MeanSpans = Annotated[tuple[Annotated[float, Limits(least=1)], ...], Length(1)]


@dataclasses.dataclass(frozen=True)
class Spec(prefix_lm.PrefixSpec):
    """The denoisers, and how often each is drawn.

    Attributes:
      rates: weights of R, S and X, each divided evenly among its denoisers. The default
        draws all seven with the same probability.
      r_densities, r_mean_spans, x_densities, x_mean_spans: of the denoisers of R and of
        X, in order.
      random_roll: spans may begin anywhere in the text; otherwise a text begins with a
        shown span and ends with a hidden one (T5's default).
      max_documents: the most that are packed into a row; 0 if a row is one text.
    """

    SECTION: ClassVar[str] = "ul2"
    NETWORKS: ClassVar = ("encoder_decoder.EncoderDecoder", "one_stack.PrefixLM")

    rates: Annotated[
        tuple[NonNegativeFloat, NonNegativeFloat, NonNegativeFloat],
        Rule(any, "three weights, of R, S and X, none below 0 and one above"),
    ] = (2.0, 1.0, 4.0)
    r_densities: Densities = (0.15, 0.15)
    r_mean_spans: MeanSpans = (3.0, 8.0)
    x_densities: Densities = (0.5, 0.5, 0.15, 0.5)
    x_mean_spans: MeanSpans = (3.0, 8.0, 64.0, 64.0)
    random_roll: bool = True
    max_documents: int = filled_by("max_documents", 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        for kind in "rx":
            self._check_spans(f"{kind}_densities", f"{kind}_mean_spans")

    def _check_spans(self, densities: str, means: str) -> None:
        of_densities, of_means = getattr(self, densities), getattr(self, means)
        is_good = len(of_densities) == len(of_means)
        shown = show_value(of_densities)
        self.check(means, is_good, f"the same number as ul2.{densities}={shown}")
        for density, mean in zip(of_densities, of_means, strict=True):
            num_noise, num_spans = noise.count_spans(self.row_length, density, mean)
            num_clean = self.row_length - num_noise
            if num_spans > min(num_noise, num_clean):
                raise ConfigError(
                    f"ul2.{densities}={of_densities}: {num_spans} spans do not fit "
                    f"{num_noise} noise and {num_clean} clean tokens; raise "
                    f"ul2.{means}"
                )

    @property
    def denoisers(self) -> tuple[Denoiser, ...]:
        """The denoisers with a rate above 0."""
        r, s, x = self.rates
        r_spans = list(zip(self.r_densities, self.r_mean_spans, strict=True))
        x_spans = list(zip(self.x_densities, self.x_mean_spans, strict=True))
        denoisers = [Denoiser("nlu", r / len(r_spans), *each) for each in r_spans]
        denoisers.append(Denoiser("s2s", s))
        denoisers += [Denoiser("nlg", x / len(x_spans), *each) for each in x_spans]
        return tuple(each for each in denoisers if each.rate > 0)

    @property
    def max_spans(self) -> int:
        """The maximum number of hidden spans of a text, hence of sentinels."""
        length, is_rolled = self.row_length, self.random_roll
        marks = [each.count_marks(length, is_rolled).max() for each in self.denoisers]
        return int(max(marks))

    @classmethod
    def for_seq_len(cls, seq_len: int, **settings: Any) -> "Spec":
        """The longest rows for a first stack of `seq_len` positions."""
        longest = cls(row_length=max(seq_len, 2), **settings)
        most = next(iter(most_places(longest).values()))
        length = int((most <= seq_len).sum()) - 1
        if length < 2:
            raise ConfigError(f"data.seq_len={seq_len}: ul2 needs at least {most[2]}")
        return dataclasses.replace(longest, row_length=length)

    @property
    def lengths(self) -> dict[str, int]:
        """The maximum, padding included."""
        return {name: int(most[-1]) for name, most in most_places(self).items()}

    @property
    def predictions(self) -> Predictions:
        """An upper bound of each denoiser's number.

        Rows of several texts are not packed: their number of texts is unknown.
        """
        most = self.lengths["decoder"]
        if self.max_documents:
            return Predictions(most)
        length, parts = self.row_length, []
        for each in self.denoisers:
            num_noise, marks = each.count(length)[0], each.count_marks(length, True)
            count = uniform(2, length)  # S: the continuation, and [EOS]
            if each.mode != "s2s":
                count = exactly(int(num_noise[-1] + marks[-1] + 1))
            parts.append((each.rate, count))
        return Predictions(most, {"loss": mix(parts)})

    @property
    def terms(self) -> dict[str, Term]:
        return {"loss": Term("hidden spans or continuation")}

    @property
    def needs(self) -> Needs:
        """A mode token for each denoiser, and sentinels for the most spans."""
        modes = dict.fromkeys(each.mode for each in self.denoisers)
        return Needs(
            specials=("pad", "eos", *modes),
            num_sentinels=self.max_spans,
        )

    def controls(self) -> dict[str, dict[str, Any]]:
        short = {self.SECTION: {"rates": (1.0, 0.0, 0.0)}}
        controls: dict[str, dict[str, Any]] = {"short-spans": short}
        if self.is_seq2seq:
            controls["span_corruption"] = {"objective": "span_corruption"}
        return controls

    def text_form(self, vocab: Vocab) -> TextForm:
        """Texts are read in the mode of the first denoiser: R's, if it is drawn.

        S, if it is drawn, continues a text without any mark.
        """
        mode = (vocab.require(self.denoisers[0].mode),)
        form = dataclasses.replace(
            super().text_form(vocab),
            mode=mode,
            lead=mode,
            mask_note="Trained as UL2: a text begins with a [PAD], which attends with "
            "the input, mode token first, to all of the input, while later tokens "
            "attend to their past.",
        )
        if any(each.mode == "s2s" for each in self.denoisers):
            return dataclasses.replace(form, lead=(vocab.require("s2s"),), mark=())
        return form


@functools.lru_cache
def most_places(spec: Spec) -> dict[str, np.ndarray]:
    """The most positions that texts of r tokens in total take, for r = 0..row_length.

    In each stack, for at most `max_documents` texts, each with the denoiser that takes
    the most.
    """
    size = np.arange(spec.row_length + 1)
    inputs, targets = [], []
    for each in spec.denoisers:
        if each.mode == "s2s":
            # Any split: the maximum of either half, and of both together.
            inputs.append((size - 1, size))
            targets.append(size - 1)
            continue
        num_noise, _ = each.count(spec.row_length)
        marks = each.count_marks(spec.row_length, spec.random_roll)
        inputs.append((size - num_noise + marks, size + 2 * marks))
        targets.append(num_noise + marks)
    is_text = size > 1
    # A mode token before the input, [EOS] after each half (one stack: the last).
    places = {
        "encoder": (np.max([encoder for encoder, _ in inputs], 0) + 2) * is_text,
        "decoder": (np.max(targets, 0) + 1) * is_text,
    }
    if not spec.is_seq2seq:
        places = {"decoder": (np.max([both for _, both in inputs], 0) + 2) * is_text}
    rising = {name: np.maximum.accumulate(most) for name, most in places.items()}
    num = max(spec.max_documents, 1)
    return {name: noise.max_total(most, num) for name, most in rising.items()}


def corrupt(rng: Array, rows: Rows, vocab: Vocab, spec: Spec) -> Batch:
    """Corrupts each document by its denoiser; one of a single token is left out.

    With S alone, two tokens can only be split in the middle:

    >>> rows = {"tokens": jnp.array([[7, 8]]), "index": jnp.array([0])}
    >>> spec = Spec(2, rates=(0, 1, 0), is_seq2seq=True)
    >>> batch = corrupt(jax.random.key(0), rows, Vocab(9, pad=0, eos=1, s2s=2), spec)
    >>> batch["inputs"].tolist(), batch["targets"].tolist()
    ([[2, 7, 1]], [[8, 1]])

    Raises:
      ValueError: packed rows, and a spec whose `max_documents` is 0.
    """
    if "segment_ids" in rows and not spec.max_documents:
        raise ValueError("rows with segment_ids need a Spec with max_documents > 0")
    tokens = rows["tokens"]
    segments = get_segments(rows)
    lengths = spec.lengths
    eos, pad = vocab.require("eos"), vocab.require("pad")
    sentinels = jnp.asarray(vocab.sentinels or (pad,), jnp.int32)
    modes = jnp.array([vocab.require(each.mode) for each in spec.denoisers])
    is_plain = jnp.array([each.mode == "s2s" for each in spec.denoisers])

    def corrupt_row(
        rng: Array, tokens: Array, texts: Array
    ) -> tuple[prefix_lm.IdsAndSegments, prefix_lm.IdsAndSegments]:
        rng_kind, rng_noise = jax.random.split(rng)
        kind = sample_kinds(rng_kind, texts, spec)
        noise_mask = noise_documents(rng_noise, texts, kind, spec)
        # S leaves no sentinel for hidden tokens, in neither half.
        marked, keep = edits.mark_spans(tokens, noise_mask, texts, sentinels)
        keep &= ~(is_plain[kind] & noise_mask)
        close = eos if spec.is_seq2seq else None
        length = lengths["encoder" if spec.is_seq2seq else "decoder"]
        inputs = edits.lay_out(marked, keep, texts, length, close, pad, modes[kind])
        hidden, keep, opening = edits.mark_targets(tokens, noise_mask, texts, sentinels)
        keep &= ~is_plain[kind] | noise_mask
        opening = jnp.where(is_plain[kind], -1, opening)
        length = lengths["decoder"]
        targets = edits.lay_out(hidden, keep, texts, length, eos, pad, opening)
        return inputs, targets

    keys = row_keys(rng, rows["index"])
    texts = prefix_lm.find_texts(tokens, segments, vocab)
    inputs, targets = jax.vmap(corrupt_row)(keys, tokens, texts)
    make_batch = prefix_lm.pair if spec.is_seq2seq else join
    return make_batch(inputs, targets, vocab) | {"index": rows["index"]}


def sample_kinds(rng: Array, texts: Array, spec: Spec) -> Array:
    """The index in `spec.denoisers` of each token's document, [R]."""
    rates = np.array([each.rate for each in spec.denoisers])
    edges = jnp.asarray(np.cumsum(rates / rates.sum())[:-1], jnp.float32)
    drawn = jax.random.uniform(rng, texts.shape)
    return jnp.searchsorted(edges, drawn[segment_starts(texts)], side="right")


def noise_documents(rng: Array, texts: Array, kind: Array, spec: Spec) -> Array:
    """Each document's noise mask [R]: an exact count, or all after a prefix."""
    rng_spans, rng_roll, rng_prefix = jax.random.split(rng, 3)
    size, place = segment_lengths(texts), segment_positions(texts)
    tables = np.array([each.count(len(texts)) for each in spec.denoisers])
    num_noise, num_spans = (jnp.asarray(tables[:, i])[kind, size] for i in (0, 1))
    most = int(tables[:, 1].max())
    noise_mask = noise.spans_by_counts(rng_spans, texts, num_noise, num_spans, most)
    if spec.random_roll:
        noise_mask = noise.roll_documents(rng_roll, noise_mask, texts)
    is_plain = jnp.array([each.mode == "s2s" for each in spec.denoisers])[kind]
    follows = place >= prefix_lengths(rng_prefix, texts, size)
    return jnp.where(is_plain, follows, noise_mask) & (texts > 0)


def join(
    inputs: prefix_lm.IdsAndSegments, targets: prefix_lm.IdsAndSegments, vocab: Vocab
) -> Batch:
    """The batch of one stack, which reads each document's target after its input."""
    rows, ids, is_target = join_halves(inputs, targets)
    follows = edits.shift_right(is_target.astype(jnp.int32), 0, ids)
    return {
        "inputs": edits.shift_right(rows, vocab.require("pad"), ids),
        "segment_ids": ids,
        "targets": rows,
        "weights": {"loss": is_target.astype(jnp.float32)},
        "is_prefix": (follows == 0) & (ids > 0),  # of inputs, one position later
    }


masks = prefix_lm.masks
loss = target_loss  # at every target, sentinels and [EOS] included
train_step = make_train_step(corrupt, masks, loss)
