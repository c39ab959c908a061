"""SpanBERT: hide spans of words, predict each token in place and from the span's edges.

Joshi et al. 2020; facebookresearch/SpanBERT, `data/masking.py`, `models/pair_bert.py`;
one stretch of text a row and no next-sentence prediction, as there. Departures: the
edges' loss is divided by its own count (theirs by that and 1, of each device), random
words come from the same document (theirs from all text), and in both special tokens,
which the source adds after it has hidden, are no edge of a span.
"""

import dataclasses
import typing

import jax
import jax.numpy as jnp

from jaxpt.errors import UserError
from jaxpt.learn import update
from jaxpt.nn import flops, scan
from jaxpt.nn.heads import BoundaryHead
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.transformer import Transformer
from jaxpt.objectives import mlm
from jaxpt.objectives.masking import choose, map_rows
from jaxpt.ops import edits, losses, word_masking
from jaxpt.ops import masks as attention_masks
from jaxpt.ops.segments import segment_positions
from jaxpt.text.tokens.vocab import Vocab

# The keys of rows that this objective can read (`jaxpt.dims.ROW_KEYS`).
READS = frozenset({"tokens", "index", "segment_ids", "progress"})
# What its networks are for, as `jaxpt.hub.families` names it.
HEADS = ("masked",)


@dataclasses.dataclass(frozen=True)
class Spec(mlm.Spec):
    """What is hidden (see `Masking`), what stands there, and what the edges tell.

    Attributes:
      replace_mask: of the spans, the share shown as [MASK]s; replace_random: as random
        tokens; the rest are shown as they are. Drawn once for each span.
      max_targets: tokens of a span that its edges tell, from its first on.
      place_width: of the embedding of a token's place in its span.
      boundary_weight: of the edges' loss.
    """

    SECTION: typing.ClassVar[str] = "spanbert"

    _: dataclasses.KW_ONLY
    masking: str = "spans"
    max_targets: int = 15
    place_width: int = 200
    boundary_weight: float = 1.0

    def __post_init__(self):
        super().__post_init__()
        self.check("max_targets", self.max_targets >= 1, "at least 1")
        self.check("place_width", self.place_width >= 1, "at least 1")
        self.check("boundary_weight", self.boundary_weight > 0, "above 0")


class SpanBert(Transformer):
    """A Transformer, and a second head that reads the edges of spans."""

    num_places: int = 15
    place_width: int = 200

    def setup(self):
        super().setup()
        self.boundary = BoundaryHead(self.spec, self.num_places, self.place_width)

    def score_spans(self, hidden, batch: dict) -> losses.Scores:
        """What the states [B, T, D] beside the spans tell of the hidden tokens."""
        positions, starts = batch["positions"], batch["span_starts"]
        last = hidden.shape[1] - 1
        return self.boundary.score(
            edits.gather(hidden, jnp.maximum(starts - 1, 0)),
            edits.gather(hidden, jnp.minimum(batch["span_ends"] + 1, last)),
            jnp.minimum(positions - starts, self.num_places - 1),
            self.embed.tokens,
            batch["targets"],
            batch["boundary_weights"],
        )

    def read(self, ids, attn_mask, batch: dict, places=None, *, deterministic):
        """The scores of the hidden positions by their own states, and by the edges."""
        hidden = self.encode(ids, attn_mask, places, deterministic=deterministic)
        own = edits.gather(hidden, batch["positions"])
        scores = self.score(own, batch["targets"], batch["loss_weights"])
        return scores, self.score_spans(hidden, batch)


def make_spec(seq_len: int, **settings) -> Spec:
    """The spec whose rows let the model read `seq_len` tokens."""
    return Spec(row_length=seq_len, **settings)


def model_lengths(spec: Spec) -> dict[str, int]:
    """Positions each stack works on."""
    return {"encoder": spec.row_length}


def count_flops(model_spec: ModelSpec, spec: Spec) -> float:
    """Training operations for one row (convention: `jaxpt.nn.flops`)."""
    length, width, table = spec.row_length, model_spec.d_model, model_spec.embedding_dim
    forward = flops.project_flops(model_spec, length)
    forward += flops.stack_flops(model_spec, model_spec.num_layers, length)
    forward += flops.head_flops(model_spec, spec.num_slots)
    edges = (2 * width + spec.place_width) * width + width * table
    edges += table * model_spec.vocab_size
    return flops.TRAIN_FACTOR * (forward + 2 * spec.num_slots * edges)


def make_model(model_spec: ModelSpec, spec: Spec, vocab: Vocab) -> SpanBert:
    """One stack, and the head of the edges.

    Raises:
      UserError: the vocabulary has no [MASK] or does not tell of words, or the model
        has a second stack.
    """
    spec.check_vocab(vocab)
    if model_spec.num_decoder_layers:
        raise UserError(
            f"model.num_decoder_layers={model_spec.num_decoder_layers}: must be 0 for "
            f"spanbert, which has one stack (model.num_layers)"
        )
    sizes = {"num_places": spec.max_targets, "place_width": spec.place_width}
    return SpanBert(model_spec, **sizes)


def init_params(rng, model: SpanBert, spec: Spec):
    """Fresh parameters."""
    ids = jnp.zeros((1, spec.row_length), jnp.int32)
    slots = jnp.zeros((1, spec.num_slots), jnp.int32)
    batch = dict.fromkeys(("positions", "targets", "span_starts", "span_ends"), slots)
    batch |= dict.fromkeys(("loss_weights", "boundary_weights"), slots * 0.0)
    mask = attention_masks.full()
    return scan.init_params(
        model, rng, ids, mask, batch, deterministic=True, method="read"
    )


def corrupt(rng, rows: dict, vocab: Vocab, spec: Spec) -> dict:
    """Hides spans of each row, 80 % as [MASK]s, 10 % as random words, 10 % as they are.

    A span at the edge of its document, or beside a special token, has no edge to be
    told from; the others carry their first `max_targets` tokens as targets.

    >>> vocab = Vocab(size=10, mask=0, word_starts=(True,) * 10)
    >>> rows = {"tokens": jnp.arange(4, 10)[None], "index": jnp.array([8])}
    >>> batch = corrupt(jax.random.key(0), rows, vocab, Spec(6, 0.3, 1.0, 0.0))
    >>> batch["inputs"].tolist(), batch["targets"].tolist()
    ([[4, 5, 0, 0, 8, 9]], [[6, 7]])
    >>> [batch[f"span_{key}"].tolist() for key in ("starts", "ends")]
    [[[2, 2]], [[3, 3]]]
    >>> batch["boundary_weights"].tolist()
    [[1.0, 1.0]]
    """
    is_special = jnp.asarray(vocab.is_special)

    def corrupt_row(rng, tokens, segments, progress):
        rng_choose, rng_kind, rng_word = jax.random.split(rng, 3)
        positions, weights = choose(rng_choose, tokens, segments, vocab, spec, progress)
        targets = tokens[positions]
        nowhere = jnp.zeros_like(tokens)
        hidden = edits.put(nowhere, positions, jnp.ones_like(targets), weights) > 0
        firsts, lasts = word_masking.find_spans(hidden, segments)
        starts, ends = firsts[positions], lasts[positions]

        # "Sample random token according to input distribution."
        text = (segments > 0) & ~is_special[tokens]
        visible = text & ~hidden
        words = word_masking.sample_visible(
            rng_word, tokens, visible, segments, positions, vocab.mask
        )
        kind = jax.random.uniform(rng_kind, tokens.shape)[starts]
        shares = spec.replace_mask, spec.replace_random
        shown = edits.replace_by(kind, targets, vocab.mask, words, *shares)

        def is_edge(place):
            is_in = (place >= 0) & (place < len(tokens))
            same = segments[place] == segments[positions]
            return is_in & same & text[place]

        has_edges = is_edge(starts - 1) & is_edge(ends + 1)
        has_edges &= positions - starts < spec.max_targets
        return {
            "inputs": edits.put(tokens, positions, shown, weights),
            "targets": targets,
            "positions": positions,
            "loss_weights": weights,
            "span_starts": starts,
            "span_ends": ends,
            "boundary_weights": weights * has_edges,
        }

    return map_rows(corrupt_row, rng, rows, spec)


def masks(batch: dict) -> dict:
    """Everything sees everything, within its document."""
    return {"self": attention_masks.segments(batch.get("segment_ids"))}


def coefficients(spec: Spec) -> dict[str, float]:
    """What each loss term counts for."""
    return {"mlm_loss": 1.0, "boundary_loss": spec.boundary_weight}


def weights(batch: dict) -> dict:
    """What each loss term is divided by."""
    return {
        "mlm_loss": batch["loss_weights"].sum(),
        "boundary_loss": batch["boundary_weights"].sum(),
    }


def loss(params, model: SpanBert, batch: dict, masks: dict, rngs: dict):
    """Cross-entropy at the hidden positions: by their own states, and by the edges."""
    deterministic = "dropout" not in rngs
    places = segment_positions(batch.get("segment_ids"))
    own, edges = model.apply(
        {"params": params},
        batch["inputs"],
        masks["self"],
        batch,
        places,
        deterministic=deterministic,
        rngs=rngs,
        method="read",
    )
    terms = {"mlm_loss": own.loss, "boundary_loss": edges.loss}
    hits = losses.rank_hits(own.ranks, batch["loss_weights"])
    return terms, terms | {
        "accuracy": hits,
        "fill_top1": hits,
        "fill_top5": losses.rank_hits(own.ranks, batch["loss_weights"], k=5),
        "boundary_accuracy": losses.rank_hits(edges.ranks, batch["boundary_weights"]),
    }


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


def features(params, model: SpanBert, tokens):
    """Frozen hidden states [B, T, D] of plain text [B, T]."""
    return mlm.features(params, model, tokens)


def fill_logits(params, model: SpanBert, tokens):
    """Scores [B, T, V] of every token at every position of text with [MASK]s in it."""
    return mlm.fill_logits(params, model, tokens)


def networks(params, model_spec: ModelSpec, spec: Spec) -> dict:
    """What is kept of a run: for what use -> (its spec, its parameters).

    The head of the edges is left out: nothing but pretraining reads it.
    """
    kept = {name: part for name, part in params.items() if name != "boundary"}
    return {"masked": (model_spec, kept)}


def join_networks(parts: dict):
    """The parameters of a run from those of its networks, but for the edges' head."""
    return parts["masked"]
