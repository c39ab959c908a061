"""SpanBERT: mask spans of words, predict each token in place and from the span's edges.

    loss = mean over masked i of -log p(x_i | row) - log p(x_i | states at the edges of
           i's span, and i's place in it)

Joshi et al. 2020; facebookresearch/SpanBERT, `data/masking.py`, `models/pair_bert.py`;
one stretch of text per row and no next-sentence prediction, as there. Departures: the
edges' loss is divided by its count (theirs by the count plus 1, on each device), random
words come from the same document (theirs from all text). In both, special tokens, which
the source adds after masking, are not edges of a span.

Control: `mlm` with `masking=spans`, without the loss at the edges.
"""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxpt.dims import Batch, Rows
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.objectives import mlm
from jaxpt.objectives.masking import MASKED, MASKINGS, choose, map_masked_rows
from jaxpt.objectives.objective import Keys, Masks, Sums, make_train_step
from jaxpt.objectives.spec import Term
from jaxpt.ops import edits, losses, word_masking
from jaxpt.setting_types import OneOf, PositiveFloat, PositiveInt
from jaxpt.text.tokens.vocab import Vocab

if TYPE_CHECKING:
    from jaxpt.nn.networks.network import Network
    from jaxpt.nn.networks.one_stack import SpanMaskedLM


@dataclasses.dataclass(frozen=True)
class Spec(mlm.Spec):
    """What is hidden (see `Masking`), what replaces it, and the loss of the edges.

    Attributes:
      replace_mask: of the spans, the fraction replaced by [MASK]s. Drawn once per span.
      replace_random: of the spans, the fraction replaced by random tokens; the rest
        stay as they are.
      max_targets: the first tokens of a span, which its edges predict.
      place_width: of the embedding of a token's place in its span.
      boundary_weight: of the edges' loss.
    """

    SECTION: ClassVar[str] = "spanbert"
    NETWORKS: ClassVar = ("one_stack.SpanMaskedLM",)
    LOSS_FREE: ClassVar = frozenset({"place_width"})

    _: dataclasses.KW_ONLY
    masking: Annotated[str, OneOf(*MASKINGS)] = "spans"
    max_targets: PositiveInt = 15
    place_width: PositiveInt = 200
    boundary_weight: PositiveFloat = 1.0

    @property
    def terms(self) -> dict[str, Term]:
        edges = dataclasses.replace(
            MASKED, label="from the edges", coefficient=self.boundary_weight
        )
        return {"mlm_loss": MASKED, "boundary_loss": edges}

    def controls(self) -> dict[str, dict[str, Any]]:
        return {"mlm-spans": {"objective": "mlm", "mlm": {"masking": "spans"}}}

    def make_network(
        self, model_spec: ModelSpec, vocab: Vocab, **fields: Any
    ) -> "Network":
        sizes = {"num_places": self.max_targets, "place_width": self.place_width}
        return super().make_network(model_spec, vocab, **sizes, **fields)


def corrupt(rng: Array, rows: Rows, vocab: Vocab, spec: Spec) -> Batch:
    """Masks spans of each row: 80 % [MASK]s, 10 % random words, 10 % unchanged.

    A span at the edge of its document, or next to a special token, lacks an edge and is
    not predicted from its edges; of the others the first `max_targets` tokens are.

    >>> vocab = Vocab(size=10, mask=0, word_starts=(True,) * 10)
    >>> rows = {"tokens": jnp.arange(4, 10)[None], "index": jnp.array([8])}
    >>> batch = corrupt(jax.random.key(0), rows, vocab, Spec(6, 0.3, 1.0, 0.0))
    >>> batch["inputs"].tolist(), batch["targets"].tolist()
    ([[4, 5, 0, 0, 8, 9]], [[6, 7]])
    >>> [batch[f"span_{key}"].tolist() for key in ("starts", "ends")]
    [[[2, 2]], [[3, 3]]]
    >>> batch["weights"]["boundary_loss"].tolist()
    [[1.0, 1.0]]
    """
    is_special, mask_id = jnp.asarray(vocab.is_special), vocab.require("mask")

    def corrupt_row(
        rng: Array,
        tokens: Array,
        segments: Array,
        progress: Array | None,
    ) -> Batch:
        rng_choose, rng_kind, rng_word = jax.random.split(rng, 3)
        positions, weights = choose(rng_choose, tokens, segments, vocab, spec, progress)
        targets = tokens[positions]
        zeros = jnp.zeros_like(tokens)
        noise_mask = edits.put(zeros, positions, jnp.ones_like(targets), weights) > 0
        firsts, lasts = word_masking.find_spans(noise_mask, segments)
        starts, ends = firsts[positions], lasts[positions]

        # "Sample random token according to input distribution."
        text = (segments > 0) & ~is_special[tokens]
        visible = text & ~noise_mask
        words = word_masking.sample_visible(
            rng_word, tokens, visible, segments, positions, mask_id
        )
        kind = jax.random.uniform(rng_kind, tokens.shape)[starts]
        fractions = spec.replace_mask, spec.replace_random
        replaced = edits.replace_by(kind, targets, mask_id, words, *fractions)

        def is_edge(place: Array) -> Array:
            is_in = (place >= 0) & (place < len(tokens))
            same = segments[place] == segments[positions]
            return is_in & same & text[place]

        has_edges = is_edge(starts - 1) & is_edge(ends + 1)
        has_edges &= positions - starts < spec.max_targets
        return {
            "inputs": edits.put(tokens, positions, replaced, weights),
            "targets": targets,
            "masked_positions": positions,
            "span_starts": starts,
            "span_ends": ends,
            "weights": {"mlm_loss": weights, "boundary_loss": weights * has_edges},
        }

    return map_masked_rows(corrupt_row, rng, rows, spec)


masks = mlm.masks


def loss(
    params: Any, model: "SpanMaskedLM", batch: Batch, masks: Masks, rngs: Keys
) -> tuple[Sums, Sums]:
    """Cross-entropy of the masked tokens: by their own states, and by the edges."""
    weights = batch["weights"]
    masked, edges = model.apply(
        {"params": params},
        batch,
        masks,
        (weights["mlm_loss"], weights["boundary_loss"]),
        deterministic="dropout" not in rngs,
        rngs=rngs,
        method="score_both",
    )
    hits = losses.rank_hits(edges.ranks, weights["boundary_loss"])
    metrics = mlm.fill_metrics(masked.ranks, weights["mlm_loss"])
    terms = {"mlm_loss": masked.loss, "boundary_loss": edges.loss}
    return terms, metrics | {"boundary_accuracy": hits}


train_step = make_train_step(corrupt, masks, loss)
