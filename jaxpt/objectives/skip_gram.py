"""word2vec: each word's one vector tells which words stand near it.

Mikolov et al. 2013b, skip-gram with negative sampling; `word2vec.c` of
code.google.com/archive/p/word2vec. The static baseline: a token has the same vector
wherever it stands.

    the cat sat on the mat     of `sat`, 2 to either side (a random 1 to `window`):
    pairs      sat-the sat-cat sat-on sat-the       log s(v u)
    negatives  5 words for each pair, by count^0.75  log s(-v u)

Frequent words are left out of a row before its windows are laid, so that these reach
further. Departures: a word's negatives are drawn once for all of its pairs, each time
anew (the expected loss is the same; the gradient costs a tenth); special tokens are no
words; rows and optimizer are everyone's, not one pass of SGD. Sums of products of two
vectors are float32 whatever `model.dtype` is. Of `model`, `width` alone is read.
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxpt.errors import UserError
from jaxpt.learn import update
from jaxpt.nn import flops, scan
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.ops import edits
from jaxpt.rng import row_keys
from jaxpt.text.tokens.vocab import Vocab

# The keys of rows that this objective can read (`jaxpt.dims.ROW_KEYS`).
READS = frozenset({"tokens", "index", "segment_ids"})
# transformers has no such network.
HEADS = ()
# Its vocabulary must say how often each id stands in the text to train on.
COUNTS = True


@dataclasses.dataclass(frozen=True)
class Spec:
    """How far words reach, which are left out, and what they are told from.

    Attributes:
      window: the most places to either side; each word's own is drawn from 1 to it.
      num_negatives: words drawn beside each pair.
      negative_power: they are drawn by their count to this power.
      subsample: t; a word of frequency f is kept with chance sqrt(t / f) + t / f, as in
        word2vec.c (the paper prints the first part alone); 0 keeps all.
    """

    row_length: int
    window: int = 5
    num_negatives: int = 5
    negative_power: float = 0.75
    subsample: float = 1e-3

    def __post_init__(self):
        if self.row_length < 2:
            raise UserError(
                f"data.row_length={self.row_length}: skip_gram needs at least 2"
            )
        for name, is_good, allowed in (
            ("window", self.window >= 1, "at least 1"),
            ("num_negatives", self.num_negatives >= 1, "at least 1"),
            ("negative_power", self.negative_power >= 0, "at least 0"),
            ("subsample", 0 <= self.subsample < 1, "at least 0 and below 1"),
        ):
            if not is_good:
                raise UserError(
                    f"skip_gram.{name}={getattr(self, name)}: must be {allowed}"
                )

    @property
    def num_neighbours(self) -> int:
        """The most pairs of one word."""
        return 2 * self.window


class SkipGram(nn.Module):
    """A vector [D] of each word as itself, and one as another's neighbour."""

    spec: ModelSpec

    def setup(self):
        shape = self.spec.vocab_size, self.spec.d_model
        self.words = self.param("words", _draw, shape)
        self.contexts = self.param("contexts", nn.initializers.zeros, shape)

    def embed(self, ids: Int[Array, "B T"]) -> Float[Array, "B T D"]:
        """What each token is, wherever it stands."""
        return self.words[ids]

    def score(
        self, ids: Int[Array, "B T"], others: Int[Array, "B T C"]
    ) -> Float[Array, "B T C"]:
        """v u of each word with each of its others."""
        vectors = self.words[ids][:, :, None]
        return jnp.sum(vectors * self.contexts[others], axis=-1)

    def __call__(self, ids: Int[Array, "B T"]):
        return self.score(ids, ids[..., None])


def _draw(rng, shape, dtype=jnp.float32):
    """word2vec.c's: uniform in [-0.5, 0.5] / D; what it is scored with begins at 0."""
    return jax.random.uniform(rng, shape, dtype, -0.5, 0.5) / shape[1]


def make_spec(seq_len: int, **settings) -> Spec:
    """The spec whose rows let the model read `seq_len` tokens."""
    return Spec(row_length=seq_len, **settings)


def model_lengths(spec: Spec) -> dict[str, int]:
    """Positions that are looked up; there is no stack."""
    return {"words": spec.row_length}


def count_flops(model_spec: ModelSpec, spec: Spec) -> float:
    """Training operations for one row (convention: `jaxpt.nn.flops`).

    Each product of two vectors, those of pairs that are left out too.
    """
    pairs = spec.row_length * (spec.num_neighbours + spec.num_negatives)
    return flops.TRAIN_FACTOR * 2 * pairs * model_spec.d_model


def make_model(model_spec: ModelSpec, spec: Spec, vocab: Vocab) -> SkipGram:
    """Two tables.

    Raises:
      UserError: the model has a decoder, or no count of the text's words is known.
    """
    if model_spec.num_decoder_layers:
        raise UserError(
            f"model.num_decoder_layers={model_spec.num_decoder_layers}: must be 0 for "
            f"skip_gram, which has no layers"
        )
    if not any(np.array(vocab.counts)[vocab.ordinary_ids] if vocab.counts else ()):
        raise UserError(
            "skip_gram: must know how often each token stands in the text, and some do"
        )
    return SkipGram(model_spec)


def init_params(rng, model: SkipGram, spec: Spec):
    """Fresh parameters, as word2vec.c begins."""
    return scan.init_params(model, rng, jnp.zeros((1, spec.row_length), jnp.int32))


def keep_chances(vocab: Vocab, spec: Spec) -> np.ndarray:
    """The chance [V] that a word is not left out of its row; 0 of special tokens.

    >>> vocab = Vocab(size=3, pad=0, counts=(5, 900, 100))
    >>> keep_chances(vocab, Spec(4, subsample=0.1)).round(4).tolist()
    [0.0, 0.4444, 1.0]
    """
    counts = _word_counts(vocab)
    if not spec.subsample:
        return (counts > 0).astype(np.float32)
    share = spec.subsample / np.maximum(counts / counts.sum(), 1e-30)
    return np.where(counts > 0, np.minimum(np.sqrt(share) + share, 1), 0)


def noise_borders(vocab: Vocab, spec: Spec) -> np.ndarray:
    """uint32 [V]: a draw of 32 bits is the first word whose border is above it."""
    weights = _word_counts(vocab) ** spec.negative_power * (_word_counts(vocab) > 0)
    shares = np.cumsum(weights) / weights.sum()
    return np.minimum(np.round(shares * 2.0**32), 2.0**32 - 1).astype(np.uint32)


def _word_counts(vocab: Vocab) -> np.ndarray:
    return np.where(vocab.is_special, 0, np.array(vocab.counts, np.float64))


def corrupt(rng, rows: dict, vocab: Vocab, spec: Spec) -> dict:
    """Pairs each word that is kept with its neighbours, and draws its negatives.

    >>> rows = {"tokens": jnp.array([[1, 2, 3]]), "index": jnp.array([0])}
    >>> vocab = Vocab(size=4, pad=0, counts=(0, 1, 1, 1))
    >>> spec = Spec(row_length=3, window=1, num_negatives=1, subsample=0.0)
    >>> batch = corrupt(jax.random.key(0), rows, vocab, spec)
    >>> pairs = zip(*(batch[key][0].tolist() for key in ("positions", "targets")))
    >>> [p for p, w in zip(pairs, batch["loss_weights"][0]) if w]
    [(0, 2), (1, 1), (1, 3), (2, 2)]
    """
    chances, borders = keep_chances(vocab, spec), noise_borders(vocab, spec)
    away = np.arange(1, spec.window + 1)
    offsets = np.concatenate([-away[::-1], away])
    length, last = spec.row_length, int(np.flatnonzero(_word_counts(vocab))[-1])

    def corrupt_row(rng, tokens, segments):
        rng_keep, rng_window, rng_noise = jax.random.split(rng, 3)
        chance = jnp.asarray(chances)[tokens]
        kept = (jax.random.uniform(rng_keep, tokens.shape) < chance) & (segments > 0)
        reach = jax.random.randint(rng_window, (length, 1), 1, spec.window + 1)
        left = edits.compact(tokens, kept, length)  # what stands beside what, then
        whose = edits.compact(segments, kept, length)
        place = (jnp.cumsum(kept) - 1)[:, None] + offsets
        is_there = (place >= 0) & (place < length) & (jnp.abs(offsets) <= reach)
        place = jnp.clip(place, 0, length - 1)
        is_pair = is_there & kept[:, None] & (whose[place] == segments[:, None])
        draw = jax.random.bits(rng_noise, (length, spec.num_negatives))
        drawn = jnp.searchsorted(jnp.asarray(borders), draw, side="right")
        return {
            "inputs": tokens,
            "targets": left[place].ravel(),
            "positions": jnp.repeat(jnp.arange(length), len(offsets)),
            "loss_weights": is_pair.astype(jnp.float32).ravel(),
            "negatives": jnp.minimum(drawn, last).astype(jnp.int32).ravel(),
        }

    tokens = rows["tokens"]
    segments = rows.get("segment_ids", jnp.ones_like(tokens))
    keys = row_keys(rng, rows["index"])
    batch = jax.vmap(corrupt_row)(keys, tokens, segments)
    kept = {name: rows[name] for name in ("index", "segment_ids") if name in rows}
    return batch | kept


def masks(batch: dict) -> dict:
    """Each position sees itself alone; what stands near it is asked, not read."""
    return {"self": jnp.eye(batch["inputs"].shape[1], dtype=bool)[None, None]}


def coefficients(spec: Spec) -> dict[str, float]:
    """What each loss term counts for."""
    return {"loss": 1.0}


def weights(batch: dict) -> dict:
    """What each loss term is divided by: pairs."""
    return {"loss": batch["loss_weights"].sum()}


def loss(params, model: SkipGram, batch: dict, masks: dict, rngs: dict):
    """-log s(v u) of each pair and -log s(-v u) of each of its negatives.

    A negative that is the pair's own neighbour is left out, as in word2vec.c.
    """
    ids = batch["inputs"]
    shape = (*ids.shape, -1)
    near, far = batch["targets"].reshape(shape), batch["negatives"].reshape(shape)
    is_pair = batch["loss_weights"].reshape(shape)

    def predict(model):
        return model.score(ids, near), model.score(ids, far)

    scores, noise = model.apply({"params": params}, method=predict)
    is_other = near[..., None] != far[:, :, None]  # [B, T, C, K]
    times = jnp.sum(is_pair[..., None] * is_other, axis=2)
    total = jnp.sum(is_pair * jax.nn.softplus(-scores))
    total += jnp.sum(times * jax.nn.softplus(noise))
    num_pairs = jnp.sum(is_pair)
    terms = {"loss": (total, num_pairs)}
    is_right = jnp.sum(is_pair * (scores > 0)), num_pairs
    is_told = jnp.sum(times * (noise < 0)), jnp.sum(times)
    return terms, terms | {"recall": is_right, "rejected": is_told}


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
    """step(params, rows, rng) -> {name: (sum, weight)}."""

    def eval_step(params, rows, rng):
        batch = update.weigh_rows(corrupt(rng, rows, vocab, spec), rows)
        return loss(params, model, batch, masks(batch), {})[1]

    return eval_step


def features(params, model: SkipGram, tokens):
    """Each token's one vector, at every position: [B, T, D]."""
    return model.apply({"params": params}, tokens, method="embed")


def networks(params, model_spec: ModelSpec, spec: Spec) -> dict:
    """What is kept of a run for others: nothing, for transformers has no such model."""
    return {}


def join_networks(parts: dict):
    """No run can be made from networks that there are not."""
    raise UserError("skip_gram: no network of transformers is one of its parts")
