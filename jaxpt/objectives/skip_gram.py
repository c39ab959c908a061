"""word2vec: each word has one vector, which predicts the words near it.

Mikolov et al. 2013b, skip-gram with negative sampling; `word2vec.c` of
code.google.com/archive/p/word2vec. The static baseline: a token has the same vector in
every context.

    the cat sat on the mat     of `sat`, 2 to either side (a random 1 to `window`):
    pairs      sat-the sat-cat sat-on sat-the       log s(v u)
    negatives  5 words for each pair, by count^0.75  log s(-v u)

    loss = -mean over pairs of [log s(v u) + sum over 5 words u' of log s(-v u')]

Frequent words are dropped from a row before its windows are formed, so that these
reach further. Departures: a word's negatives are drawn once per step for all of its
pairs (the expected loss is the same; the gradient costs a tenth); special tokens are
not words; rows and optimizer are those of other objectives, not one pass of SGD. Sums
of products of two vectors are float32 for any `model.dtype`. Of `model`, only `d_model`
is used.

Control: none; it is the static control of networks that read a context.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxpt.dims import Batch, Rows
from jaxpt.objectives.objective import (
    Keys,
    Masks,
    Sums,
    get_segments,
    keep_keys,
    make_train_step,
)
from jaxpt.objectives.spec import Needs, ObjectiveSpec, Predictions, Term
from jaxpt.ops import edits
from jaxpt.rng import row_keys
from jaxpt.setting_types import BelowOne, NonNegativeFloat, PositiveInt
from jaxpt.text.tokens.vocab import Vocab

if TYPE_CHECKING:
    from jaxpt.nn.networks.skip_gram import SkipGram


@dataclasses.dataclass(frozen=True)
class Spec(ObjectiveSpec):
    """The windows, the words that are dropped, and the negatives.

    Attributes:
      window: the most positions to either side; each word's is drawn from 1 to it.
      num_negatives: random words for each pair.
      negative_power: they are drawn by their count to this power.
      subsample: t; a word of frequency f is kept with probability sqrt(t / f) + t / f,
        as in word2vec.c (the paper prints only the first part); 0 keeps all.
    """

    SECTION: ClassVar[str] = "skip_gram"
    NETWORKS: ClassVar = ("skip_gram.SkipGram",)
    MIN_LENGTH: ClassVar[int] = 2

    window: PositiveInt = 5
    num_negatives: PositiveInt = 5
    negative_power: NonNegativeFloat = 0.75
    subsample: BelowOne = 1e-3

    @property
    def lengths(self) -> dict[str, int]:
        """Positions that are looked up, without any stack."""
        return {"words": self.row_length}

    @property
    def predictions(self) -> Predictions:
        """The most pairs of a row's words, and their negatives."""
        return Predictions(self.row_length * (2 * self.window + self.num_negatives))

    @property
    def terms(self) -> dict[str, Term]:
        pair = Term("neighbour", positions="masked_positions", is_in_place=False)
        return {"loss": pair}

    @property
    def needs(self) -> Needs:
        return Needs(counts=True)


def keep_probabilities(vocab: Vocab, spec: Spec) -> np.ndarray:
    """The probability [V] that a word is kept in its row; 0 for special tokens.

    >>> vocab = Vocab(size=3, pad=0, counts=(5, 900, 100))
    >>> keep_probabilities(vocab, Spec(4, subsample=0.1)).round(4).tolist()
    [0.0, 0.4444, 1.0]
    """
    counts = _word_counts(vocab)
    if not spec.subsample:
        return (counts > 0).astype(np.float32)
    ratio = spec.subsample / np.maximum(counts / counts.sum(), 1e-30)
    return np.where(counts > 0, np.minimum(np.sqrt(ratio) + ratio, 1), 0)


def noise_borders(vocab: Vocab, spec: Spec) -> np.ndarray:
    """uint32 [V]: 32 random bits draw the first word whose border is above them."""
    weights = _word_counts(vocab) ** spec.negative_power * (_word_counts(vocab) > 0)
    fractions = np.cumsum(weights) / weights.sum()
    return np.minimum(np.round(fractions * 2.0**32), 2.0**32 - 1).astype(np.uint32)


def _word_counts(vocab: Vocab) -> np.ndarray:
    return np.where(vocab.is_special, 0, np.array(vocab.counts, np.float64))


def corrupt(rng: Array, rows: Rows, vocab: Vocab, spec: Spec) -> Batch:
    """Pairs each word that is kept with its neighbours, and draws its negatives.

    >>> rows = {"tokens": jnp.array([[1, 2, 3]]), "index": jnp.array([0])}
    >>> vocab = Vocab(size=4, pad=0, counts=(0, 1, 1, 1))
    >>> spec = Spec(row_length=3, window=1, num_negatives=1, subsample=0.0)
    >>> batch = corrupt(jax.random.key(0), rows, vocab, spec)
    >>> keys = "masked_positions", "targets"
    >>> pairs = zip(*(batch[key][0].tolist() for key in keys))
    >>> [p for p, w in zip(pairs, batch["weights"]["loss"][0]) if w]
    [(0, 2), (1, 1), (1, 3), (2, 2)]
    """
    probabilities, borders = keep_probabilities(vocab, spec), noise_borders(vocab, spec)
    away = np.arange(1, spec.window + 1)
    offsets = np.concatenate([-away[::-1], away])
    length, last = spec.row_length, int(np.flatnonzero(_word_counts(vocab))[-1])

    def corrupt_row(rng: Array, tokens: Array, segments: Array) -> Batch:
        rng_keep, rng_window, rng_noise = jax.random.split(rng, 3)
        probability = jnp.asarray(probabilities)[tokens]
        is_kept = (jax.random.uniform(rng_keep, tokens.shape) < probability) & (
            segments > 0
        )
        reach = jax.random.randint(rng_window, (length, 1), 1, spec.window + 1)
        kept_tokens = edits.compact(tokens, is_kept, length)  # without gaps
        kept_segments = edits.compact(segments, is_kept, length)
        place = (jnp.cumsum(is_kept) - 1)[:, None] + offsets
        is_there = (place >= 0) & (place < length) & (jnp.abs(offsets) <= reach)
        place = jnp.clip(place, 0, length - 1)
        is_pair = (
            is_there & is_kept[:, None] & (kept_segments[place] == segments[:, None])
        )
        bits = jax.random.bits(rng_noise, (length, spec.num_negatives))
        negatives = jnp.searchsorted(jnp.asarray(borders), bits, side="right")
        return {
            "inputs": tokens,
            "targets": kept_tokens[place].ravel(),
            "masked_positions": jnp.repeat(jnp.arange(length), len(offsets)),
            "weights": {"loss": is_pair.astype(jnp.float32).ravel()},
            "negatives": jnp.minimum(negatives, last).astype(jnp.int32).ravel(),
        }

    keys, segments = row_keys(rng, rows["index"]), get_segments(rows)
    batch: Batch = jax.vmap(corrupt_row)(keys, rows["tokens"], segments)
    return batch | keep_keys(rows)


def masks(batch: Batch) -> Masks:
    """Each position sees only itself; its neighbours are predicted, not read."""
    return {"self": jnp.eye(batch["inputs"].shape[1], dtype=bool)[None, None]}


def loss(
    params: Any, model: "SkipGram", batch: Batch, masks: Masks, rngs: Keys
) -> tuple[Sums, Sums]:
    """-log s(v u) of each pair and -log s(-v u) of each of its negatives.

    A negative that equals the pair's neighbour is left out, as in word2vec.c.
    """
    ids = batch["inputs"]
    shape = (*ids.shape, -1)
    targets, negatives = (batch[k].reshape(shape) for k in ("targets", "negatives"))
    is_pair = batch["weights"]["loss"].reshape(shape)

    def predict(model: "SkipGram") -> tuple[Array, Array]:
        return model.score(ids, targets), model.score(ids, negatives)

    scores, noise = model.apply({"params": params}, method=predict)
    is_other = targets[..., None] != negatives[:, :, None]  # [B, T, C, K]
    times = jnp.sum(is_pair[..., None] * is_other, axis=2)
    total = jnp.sum(is_pair * jax.nn.softplus(-scores))
    total += jnp.sum(times * jax.nn.softplus(noise))
    num_pairs = jnp.sum(is_pair)
    accepted = jnp.sum(is_pair * (scores > 0)), num_pairs
    rejected = jnp.sum(times * (noise < 0)), jnp.sum(times)
    return {"loss": (total, num_pairs)}, {"recall": accepted, "rejected": rejected}


train_step = make_train_step(corrupt, masks, loss)
