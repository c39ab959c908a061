"""ELMo: two LSTM language models, one reading ahead and one back, of spelt words.

Peters et al. 2018; allenai/bilm-tf, `bilm/training.py`. The directions share the
characters' network and the softmax, and nothing else:

    row       the  cat  sat
    forward   cat  sat   -       predicts what follows, having read up to here
    backward   -   the  cat      predicts what came before, having read from the end
    loss = mean over t of -log p(x_t | x_1 ... x_t-1) - log p(x_t | x_t+1 ... x_T)

Departures: rows are independent (theirs carry the state on, 20 tokens at a time); the
softmax is in full, in chunks of `model.loss_chunk` (theirs is of 8,192 samples); a word
is a token of the tokenizer, spelt as it stands in the text. Their Adagrad, lr 0.2, is
not among the optimizers. Of `model`: `d_model` is the projection (512), `d_ff` the
cells (4,096), `num_layers` those of each direction (2); `dropout` (0.1) is on what
every layer reads and on what is scored.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from jaxpt.errors import UserError
from jaxpt.nn.networks.bilm import BiLm, make_masks
from jaxpt.nn.recurrent import BEGIN_TEXT, END_TEXT
from jaxpt.objectives.objective import ObjectiveSpec, get_segments, keep_keys
from jaxpt.ops import losses
from jaxpt.text.tokens.vocab import Vocab


@dataclasses.dataclass(frozen=True)
class Spec(ObjectiveSpec):
    """The characters' network, and where states are cut.

    Attributes:
      num_chars: of a word, its two marks counted; longer ones are cut.
      char_width: of a character's vector.
      filters: how many filters are 1, 2, ... characters wide.
      num_highway: layers after them.
      cell_clip, proj_clip: the greatest size of a number in a cell, in a projection.
    """

    SECTION: ClassVar[str] = "bilm"
    NETWORKS: ClassVar = (BiLm,)
    MIN_LENGTH: ClassVar[int] = 2
    LOSS_FREE: ClassVar = frozenset(
        {"num_chars", "char_width", "filters", "num_highway", "cell_clip", "proj_clip"}
    )

    num_chars: int = 50
    char_width: int = 16
    filters: tuple[int, ...] = (32, 32, 64, 128, 256, 512, 1024)
    num_highway: int = 2
    cell_clip: float = 3.0
    proj_clip: float = 3.0

    def __post_init__(self):
        super().__post_init__()
        widest = len(self.filters)
        is_good = widest > 0 and min(self.filters) >= 1
        self.check_all(
            (
                ("char_width", self.char_width >= 1, "at least 1"),
                ("filters", is_good, "numbers of at least 1"),
                ("num_chars", self.num_chars >= max(widest, 3), "as long as filters"),
                ("num_highway", self.num_highway >= 0, "at least 0"),
                ("cell_clip", self.cell_clip > 0, "above 0"),
                ("proj_clip", self.proj_clip > 0, "above 0"),
            )
        )

    @property
    def lengths(self):
        return {"forward": self.row_length, "backward": self.row_length}

    @property
    def coefficients(self):
        """The mean of both directions, as in bilm-tf."""
        return {"forward_loss": 0.5, "backward_loss": 0.5}

    def check_network(self, model_spec, vocab):
        kind = super().check_network(model_spec, vocab)
        if not vocab.pieces:
            raise UserError(
                "tokenizer: must say what its ids are spelt as, which bilm reads"
            )
        return kind

    def network_fields(self, vocab):
        marks = {vocab.bos: BEGIN_TEXT} | {vocab.eos: END_TEXT}
        marks.pop(None, None)
        sizes = dataclasses.asdict(self)
        sizes.pop("row_length")
        return sizes | {"pieces": vocab.pieces, "marks": tuple(sorted(marks.items()))}


def corrupt(rng: jax.Array, rows: dict, vocab: Vocab, spec: Spec) -> dict:
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
    is_same = is_same.astype(jnp.float32)
    return keep_keys(rows) | {
        "inputs": tokens,
        "targets": jnp.roll(tokens, -1, axis=1),
        "back_targets": jnp.roll(tokens, 1, axis=1),
        "weights": {
            "forward_loss": jnp.pad(is_same, ((0, 0), (0, 1))),
            "backward_loss": jnp.pad(is_same, ((0, 0), (1, 0))),
        },
    }


def masks(batch: dict) -> dict:
    """Forward, each position sees itself and its past; backward, what follows it."""
    return make_masks(batch["inputs"].shape[1], batch.get("segment_ids"))


def loss(params, model: BiLm, batch: dict, masks: dict, rngs: dict):
    """Cross-entropy of what follows and of what came before, at every position."""
    mode = {"deterministic": "dropout" not in rngs}
    weights = [batch["weights"][f"{way}_loss"] for way in ("forward", "backward")]
    targets = batch["targets"], batch["back_targets"]

    def predict(model):
        _, *ways = model.read(batch["inputs"], masks, **mode)
        return [
            model.score(layers[-1], *asked, **mode)
            for layers, *asked in zip(ways, targets, weights, strict=True)
        ]

    scores = model.apply({"params": params}, rngs=rngs, method=predict)
    terms = {"forward_loss": scores[0].loss, "backward_loss": scores[1].loss}
    pairs = zip(scores, weights, strict=True)
    hits = [losses.rank_hits(score.ranks, read) for score, read in pairs]
    return terms, {"accuracy": jax.tree.map(jnp.add, *hits)}


def train_step(state, rows: dict, rngs: dict, *, model, vocab, spec, update):
    """Read from both ends, predict each token's neighbours."""
    batch = corrupt(rngs["corrupt"], rows, vocab, spec)

    def loss_fn(params, batch, rngs):
        return loss(params, model, batch, masks(batch), rngs)

    return update(state, batch, loss_fn, rngs, spec.coefficients)
