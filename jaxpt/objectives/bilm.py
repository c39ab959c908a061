"""ELMo: a forward and a backward LSTM language model over character-level words.

Peters et al. 2018; allenai/bilm-tf, `bilm/training.py`. The directions share only the
network of characters and the softmax:

    row       the  cat  sat
    forward   cat  sat   -       predicts the next token, having read from the start
    backward   -   the  cat      predicts the previous token, having read from the end
    loss = mean over t of -log p(x_t | x_1 ... x_t-1) - log p(x_t | x_t+1 ... x_T)

Departures: rows are independent (theirs keep the state, 20 tokens at a time); the
softmax is complete, in chunks of `model.loss_chunk` (theirs has 8,192 samples); a word
is a token of the tokenizer, with its spelling in the text. Their Adagrad, lr 0.2, is
not among the optimizers. Of `model`: `d_model` is the projection (512), `d_ff` the
cells (4,096), `num_layers` those of each direction (2); `dropout` (0.1) is applied to
the input of every layer and of the softmax.

Control: `clm`, one direction with attention in place of an LSTM.
"""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxpt.dims import Batch, Rows
from jaxpt.nn.model_spec import MAX_LAYERS, ModelSpec
from jaxpt.nn.networks.bilm import (
    make_masks,
)
from jaxpt.nn.recurrent import BEGIN_TEXT, END_TEXT
from jaxpt.objectives.objective import (
    Keys,
    Masks,
    Sums,
    get_scored,
    get_segments,
    keep_keys,
    make_train_step,
)
from jaxpt.objectives.spec import Needs, ObjectiveSpec, Term
from jaxpt.ops import losses
from jaxpt.setting_types import Length, Limits, PositiveFloat, PositiveInt
from jaxpt.text.tokens.vocab import Vocab

if TYPE_CHECKING:
    from jaxpt.nn.networks.bilm import BiLm
    from jaxpt.nn.networks.network import Network


@dataclasses.dataclass(frozen=True)
class Spec(ObjectiveSpec):
    """The network of characters, and the clipping of states.

    Attributes:
      num_chars: of a word, with its two boundary marks; longer words are cut.
      char_width: of a character's vector.
      filters: numbers of filters that are 1, 2, ... characters wide.
      num_highway: layers after them.
      cell_clip, proj_clip: the largest absolute value in a cell, in a projection.
    """

    SECTION: ClassVar[str] = "bilm"
    READS: ClassVar = ObjectiveSpec.READS | {"answers"}
    NETWORKS: ClassVar = ("bilm.BiLm",)
    MIN_LENGTH: ClassVar[int] = 2
    LOSS_FREE: ClassVar = frozenset(
        {"num_chars", "char_width", "filters", "num_highway", "cell_clip", "proj_clip"}
    )

    num_chars: Annotated[int, Limits(least=3, most=1000)] = 50
    char_width: PositiveInt = 16
    filters: Annotated[tuple[PositiveInt, ...], Length(1)] = (
        *(32, 32, 64, 128, 256, 512, 1024),
    )
    num_highway: Annotated[int, Limits(least=0, most=MAX_LAYERS)] = 2
    cell_clip: PositiveFloat = 3.0
    proj_clip: PositiveFloat = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        least = max(len(self.filters), 3)  # a filter must fit, and the two marks
        self.check("num_chars", self.num_chars >= least, f"at least {least}")

    @property
    def lengths(self) -> dict[str, int]:
        return {"forward": self.row_length, "backward": self.row_length}

    @property
    def terms(self) -> dict[str, Term]:
        """The mean of both directions, as in bilm-tf."""
        ahead = Term("next token", 0.5, is_likelihood=True)
        back = Term("previous token", 0.5, True, targets="back_targets")
        return {"forward_loss": ahead, "backward_loss": back}

    @property
    def needs(self) -> Needs:
        return Needs(pieces=True)

    def controls(self) -> dict[str, dict[str, Any]]:
        return {"clm": {"objective": "clm"}}

    def make_network(
        self, model_spec: ModelSpec, vocab: Vocab, **fields: Any
    ) -> "Network":
        marks = {vocab.bos: BEGIN_TEXT} | {vocab.eos: END_TEXT}
        items = sorted((id_, mark) for id_, mark in marks.items() if id_ is not None)
        sizes = dataclasses.asdict(self)
        sizes.pop("row_length")
        sizes |= {"pieces": vocab.pieces, "marks": tuple(items)}
        return super().make_network(model_spec, vocab, **sizes, **fields)


def corrupt(rng: Array, rows: Rows, vocab: Vocab, spec: Spec) -> Batch:
    """Each token's neighbours as its targets; nothing is drawn.

    >>> rows = {"tokens": jnp.array([[7, 8, 9]]), "index": jnp.array([0])}
    >>> batch = corrupt(None, rows, None, Spec(row_length=3))
    >>> batch["targets"].tolist(), batch["weights"]["forward_loss"].tolist()
    ([[8, 9, 7]], [[1.0, 1.0, 0.0]])
    >>> batch["back_targets"].tolist(), batch["weights"]["backward_loss"].tolist()
    ([[9, 7, 8]], [[0.0, 1.0, 1.0]])
    """
    tokens, segments = rows["tokens"], get_segments(rows)
    is_same = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
    scored = get_scored(rows) > 0
    forward, backward = is_same & scored[:, 1:], is_same & scored[:, :-1]
    return keep_keys(rows) | {
        "inputs": tokens,
        "targets": jnp.roll(tokens, -1, axis=1),
        "back_targets": jnp.roll(tokens, 1, axis=1),
        "weights": {
            "forward_loss": jnp.pad(forward, ((0, 0), (0, 1))).astype(jnp.float32),
            "backward_loss": jnp.pad(backward, ((0, 0), (1, 0))).astype(jnp.float32),
        },
    }


def masks(batch: Batch) -> Masks:
    """Forward, each position sees itself and its past; backward, its future."""
    return make_masks(batch["inputs"].shape[1], batch.get("segment_ids"))


def loss(
    params: Any, model: "BiLm", batch: Batch, masks: Masks, rngs: Keys
) -> tuple[Sums, Sums]:
    """Cross-entropy of the next and of the previous token, at every position."""
    deterministic = "dropout" not in rngs
    weights = [
        batch["weights"][f"{direction}_loss"] for direction in ("forward", "backward")
    ]
    targets = batch["targets"], batch["back_targets"]

    def predict(model: "BiLm") -> list[losses.Scores]:
        _, *ways = model.read(batch["inputs"], masks, deterministic=deterministic)
        return [
            model.score(layers[-1], *args, deterministic=deterministic)
            for layers, *args in zip(ways, targets, weights, strict=True)
        ]

    scores = model.apply({"params": params}, rngs=rngs, method=predict)
    terms = {"forward_loss": scores[0].loss, "backward_loss": scores[1].loss}
    pairs = zip(scores, weights, strict=True)
    hits = [losses.rank_hits(score.ranks, weight) for score, weight in pairs]
    return terms, {"accuracy": jax.tree.map(jnp.add, *hits)}


train_step = make_train_step(corrupt, masks, loss)
