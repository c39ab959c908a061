"""ELMo: two LSTM language models, one reading ahead and one back, of spelt words.

Peters et al. 2018; allenai/bilm-tf, `bilm/training.py`. The directions share the
characters' network and the softmax, and nothing else:

    row       the  cat  sat
    forward   cat  sat   -       predicts what follows, having read up to here
    backward   -   the  cat      predicts what came before, having read from the end

Departures: rows are independent (theirs carry the state on, 20 tokens at a time); the
softmax is in full, in chunks of `model.loss_chunk` (theirs is of 8,192 samples); a word
is a token of the tokenizer, spelt as it stands in the text. Their Adagrad, lr 0.2, is
not among the optimizers. Of `model`: `width` is the projection (512), `d_ff` the
cells (4,096), `num_layers` those of each direction (2); `dropout` (0.1) is on what
every layer reads and on what is scored.
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxpt.errors import UserError
from jaxpt.learn import update
from jaxpt.nn import flops, recurrent, scan
from jaxpt.nn.heads import VocabHead
from jaxpt.nn.layers import Dropout
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.recurrent import BEGIN_TEXT, END_TEXT, CharCnn, LstmStack
from jaxpt.ops import losses
from jaxpt.ops import masks as attention_masks
from jaxpt.ops.masks import Mask
from jaxpt.text.tokens.vocab import Vocab

# The keys of rows that this objective can read (`jaxpt.dims.ROW_KEYS`).
READS = frozenset({"tokens", "index", "segment_ids"})
# transformers has no such network.
HEADS = ()
# Fields of the spec without which its parameters do not say what the network gives.
NETWORK = ("num_chars", "cell_clip", "proj_clip")


@dataclasses.dataclass(frozen=True)
class Spec:
    """The characters' network, and where states are cut.

    Attributes:
      num_chars: of a word, its two marks counted; longer ones are cut.
      char_width: of a character's vector.
      filters: how many filters are 1, 2, ... characters wide.
      num_highway: layers after them.
      cell_clip, proj_clip: the greatest size of a number in a cell, in a projection.
    """

    row_length: int
    num_chars: int = 50
    char_width: int = 16
    filters: tuple[int, ...] = (32, 32, 64, 128, 256, 512, 1024)
    num_highway: int = 2
    cell_clip: float = 3.0
    proj_clip: float = 3.0

    def __post_init__(self):
        if self.row_length < 2:
            raise UserError(f"data.row_length={self.row_length}: bilm needs at least 2")
        widest = len(self.filters)
        for name, is_good, allowed in (
            ("char_width", self.char_width >= 1, "at least 1"),
            ("filters", widest and min(self.filters) >= 1, "numbers of at least 1"),
            (
                "num_chars",
                self.num_chars >= max(widest, 3),
                "as long as filters",
            ),
            ("num_highway", self.num_highway >= 0, "at least 0"),
            ("cell_clip", self.cell_clip > 0, "above 0"),
            ("proj_clip", self.proj_clip > 0, "above 0"),
        ):
            if not is_good:
                raise UserError(f"bilm.{name}={getattr(self, name)}: must be {allowed}")


class BiLm(nn.Module):
    """Both directions over one reading of the words."""

    spec: ModelSpec
    sizes: Spec
    pieces: tuple[bytes, ...]  # what each id is written as
    marks: tuple[tuple[int, int], ...]  # ids that are one character of their own

    def setup(self):
        spec, sizes = self.spec, self.sizes
        self.words = CharCnn(spec, sizes.char_width, sizes.filters, sizes.num_highway)
        clips = sizes.cell_clip, sizes.proj_clip
        self.ahead = LstmStack(spec, *clips, is_reversed=False)
        self.back = LstmStack(spec, *clips, is_reversed=True)
        # Their softmax: normal, of std 1 / sqrt(D); a bias of zeros.
        softmax = {"tie_embeddings": False, "head_transform": False, "init": "t5"}
        self.head = VocabHead(
            dataclasses.replace(spec, head_bias=True, scale_logits=False, **softmax)
        )
        self.dropout = Dropout(spec.dropout)

    def read(
        self, ids: Int[Array, "B T"], masks: dict[str, Mask], *, deterministic: bool
    ) -> tuple[Array, list[Array], list[Array]]:
        """The words [B, T, D], and the layers of both directions [B, T, D] each.

        A state goes on from one token to the next where the mask lets that see it.
        """
        sizes = self.sizes
        table = recurrent.spell_table(
            self.pieces, self.spec.vocab_size, sizes.num_chars, dict(self.marks)
        )
        x = self.words(jnp.asarray(table)[ids])
        starts = [
            ~attention_masks.sees_beside(masks[name], ids.shape, offset)
            for name, offset in (("forward", -1), ("backward", 1))
        ]
        ahead = self.ahead(x, starts[0], deterministic=deterministic)
        back = self.back(x, starts[1], deterministic=deterministic)
        return x, ahead, back

    def score(
        self, hidden: Array, targets: Array, weights: Array, *, deterministic: bool
    ) -> losses.Scores:
        """What one direction says of its targets."""
        hidden = self.dropout(hidden, deterministic=deterministic)
        return self.head.score(hidden, None, targets, weights)

    def nll(self, hidden: Array, targets: Array) -> Array:
        """-log p of each target; no gradient passes."""
        return self.head.nll(hidden, None, targets)

    def layers(self, ids: Int[Array, "B T"]) -> Float[Array, "L B T C"]:
        """ELMo's layers [L, B, T, 2 D]; the lowest is the words, twice."""
        x, ahead, back = self.read(ids, masks({"inputs": ids}), deterministic=True)
        pairs = zip([x, *ahead], [x, *back], strict=True)
        return jnp.stack([jnp.concatenate(pair, axis=-1) for pair in pairs])

    def __call__(self, ids: Int[Array, "B T"]):
        *_, back = self.read(ids, masks({"inputs": ids}), deterministic=True)
        return self.head(back[-1], None)


def make_spec(seq_len: int, **settings) -> Spec:
    """The spec whose rows let the model read `seq_len` tokens."""
    return Spec(row_length=seq_len, **settings)


def model_lengths(spec: Spec) -> dict[str, int]:
    """Positions each stack works on."""
    return {"forward": spec.row_length, "backward": spec.row_length}


def count_flops(model_spec: ModelSpec, spec: Spec) -> float:
    """Training operations for one row (convention: `jaxpt.nn.flops`)."""
    width, cells = model_spec.d_model, model_spec.d_ff
    size = sum(spec.filters)
    word = sum(
        2 * (spec.num_chars - w + 1) * w * spec.char_width * number
        for w, number in enumerate(spec.filters, 1)
    )
    word += spec.num_highway * 4 * size**2 + 2 * size * width
    # Of each layer: gates from its input and from its state, the projection.
    layer = 2 * (2 * width * 4 * cells + cells * width)
    direction = model_spec.num_layers * layer + 2 * width * model_spec.vocab_size
    return flops.TRAIN_FACTOR * spec.row_length * (word + 2 * direction)


def make_model(model_spec: ModelSpec, spec: Spec, vocab: Vocab) -> BiLm:
    """Both directions.

    Raises:
      UserError: the model has a second stack, or nothing is known of how words are
        spelt.
    """
    if model_spec.num_decoder_layers:
        raise UserError(
            f"model.num_decoder_layers={model_spec.num_decoder_layers}: must be 0 for "
            f"bilm, whose directions have model.num_layers each"
        )
    if not vocab.pieces:
        raise UserError(
            "tokenizer: must say what its ids are spelt as, which bilm reads"
        )
    marks = {vocab.bos: BEGIN_TEXT} | {vocab.eos: END_TEXT}
    marks.pop(None, None)
    return BiLm(model_spec, spec, vocab.pieces, tuple(sorted(marks.items())))


def init_params(rng, model: BiLm, spec: Spec):
    """Fresh parameters, as bilm-tf draws them."""
    return scan.init_params(model, rng, jnp.zeros((1, spec.row_length), jnp.int32))


def corrupt(rng, rows: dict, vocab: Vocab, spec: Spec) -> dict:
    """Each token's neighbours as its targets; nothing is drawn.

    >>> rows = {"tokens": jnp.array([[7, 8, 9]]), "index": jnp.array([0])}
    >>> batch = corrupt(None, rows, None, Spec(row_length=3))
    >>> batch["targets"].tolist(), batch["loss_weights"].tolist()
    ([[8, 9, 7]], [[1.0, 1.0, 0.0]])
    >>> batch["back_targets"].tolist(), batch["back_weights"].tolist()
    ([[9, 7, 8]], [[0.0, 1.0, 1.0]])
    """
    tokens = rows["tokens"]
    segments = rows.get("segment_ids", jnp.ones_like(tokens))
    is_same = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
    is_same = is_same.astype(jnp.float32)
    batch = {
        "index": rows["index"],
        "inputs": tokens,
        "targets": jnp.roll(tokens, -1, axis=1),
        "loss_weights": jnp.pad(is_same, ((0, 0), (0, 1))),
        "back_targets": jnp.roll(tokens, 1, axis=1),
        "back_weights": jnp.pad(is_same, ((0, 0), (1, 0))),
    }
    kept = {name: rows[name] for name in ("segment_ids",) if name in rows}
    return batch | kept


def masks(batch: dict) -> dict:
    """Ahead, each position sees itself and its past; back, itself and what follows."""
    segments, shape = batch.get("segment_ids"), batch["inputs"].shape
    return {
        "forward": attention_masks.causal(segments),
        "backward": attention_masks.anticausal(shape[1], segments),
    }


def coefficients(spec: Spec) -> dict[str, float]:
    """What each loss term counts for: the mean of both directions, as in bilm-tf."""
    return {"forward_loss": 0.5, "backward_loss": 0.5}


def weights(batch: dict) -> dict:
    """What each loss term is divided by."""
    return {
        "forward_loss": batch["loss_weights"].sum(),
        "backward_loss": batch["back_weights"].sum(),
    }


def loss(params, model: BiLm, batch: dict, masks: dict, rngs: dict):
    """Cross-entropy of what follows and of what came before, at every position."""
    mode = {"deterministic": "dropout" not in rngs}
    ahead = batch["targets"], batch["loss_weights"]
    back = batch["back_targets"], batch["back_weights"]

    def predict(model):
        _, forward, backward = model.read(batch["inputs"], masks, **mode)
        scores = model.score(forward[-1], *ahead, **mode)
        return scores, model.score(backward[-1], *back, **mode)

    forward, backward = model.apply({"params": params}, rngs=rngs, method=predict)
    terms = {"forward_loss": forward.loss, "backward_loss": backward.loss}
    hits = [
        losses.rank_hits(scores.ranks, read)
        for scores, (_, read) in ((forward, ahead), (backward, back))
    ]
    return terms, terms | {"accuracy": jax.tree.map(jnp.add, *hits)}


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
    """step(params, rows, rng) -> {name: (sum, weight)}, without dropout."""

    def eval_step(params, rows, rng):
        batch = update.weigh_rows(corrupt(rng, rows, vocab, spec), rows)
        return loss(params, model, batch, masks(batch), {})[1]

    return eval_step


def features(params, model: BiLm, tokens):
    """ELMo's vectors [B, T, 2 D] of plain text [B, T]: all layers mixed evenly.

    A later task trains the mix itself (`recurrent.ScalarMix`, which begins so).
    """
    layers = model.apply({"params": params}, tokens, method="layers")
    return recurrent.mix_layers(layers, jnp.zeros(len(layers)), 1.0)


def token_nll(params, model: BiLm, tokens):
    """-log p in nats [B, R - 1] of what follows, by the direction that reads ahead."""

    def predict(model):
        ids = tokens[:, :-1]
        _, forward, _ = model.read(ids, masks({"inputs": ids}), deterministic=True)
        return model.nll(forward[-1], tokens[:, 1:])

    return model.apply({"params": params}, method=predict)


def networks(params, model_spec: ModelSpec, spec: Spec) -> dict:
    """What is kept of a run for others: nothing, for transformers has no such model."""
    return {}


def join_networks(parts: dict):
    """No run can be made from networks that there are not."""
    raise UserError("bilm: no network of transformers is one of its parts")
