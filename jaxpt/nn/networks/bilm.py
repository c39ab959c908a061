"""ELMo's network: two LSTM language models over one reading of spelt words."""

import dataclasses
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxpt.nn import flops, recurrent, scan
from jaxpt.nn.heads import VocabHead
from jaxpt.nn.layers import Dropout
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.network import TRANSFORMER_RULES, Network
from jaxpt.nn.recurrent import CharCnn, LstmStack
from jaxpt.ops import edits, losses
from jaxpt.ops import masks as attention_masks
from jaxpt.ops.masks import Mask


def make_masks(length: int, segment_ids=None) -> dict[str, Mask]:
    """Forward, each position sees itself and its past; backward, what follows it."""
    return {
        "forward": attention_masks.causal(segment_ids),
        "backward": attention_masks.anticausal(length, segment_ids),
    }


class BiLm(Network, nn.Module):
    """Both directions over one reading of the words.

    Attributes:
      pieces: what each id is written as.
      marks: ids that are one character of their own.
      num_chars, char_width, filters, num_highway: of the characters' network.
      cell_clip, proj_clip: the greatest size of a number in a cell, in a projection.
    """

    ABILITIES = frozenset({"token_nll"})
    SCORING = ("both", "forward", "backward")
    CONSTANTS = ("num_chars", "cell_clip", "proj_clip")
    RULES = (
        # Characters, filters and highway layers; gates of the cells, projections.
        (r"words/table", (None, "fsdp")),
        (r"words/(filter|carry|transform)_\d+/kernel", ("fsdp", "tensor")),
        (r"words/(filter|carry|transform)_\d+/bias", ("tensor",)),
        (r"lstm_\d+/(input/kernel|state)", ("fsdp", "tensor")),
        (r"lstm_\d+/input/bias", ("tensor",)),
        (r"lstm_\d+/project", ("tensor", "fsdp")),
        *TRANSFORMER_RULES,
    )

    spec: ModelSpec
    pieces: tuple[bytes, ...]
    marks: tuple[tuple[int, int], ...]
    num_chars: int
    char_width: int
    filters: tuple[int, ...]
    num_highway: int
    cell_clip: float
    proj_clip: float

    def setup(self):
        spec = self.spec
        self.words = CharCnn(spec, self.char_width, self.filters, self.num_highway)
        clips = self.cell_clip, self.proj_clip
        self.ahead = LstmStack(spec, *clips, is_reversed=False)
        self.back = LstmStack(spec, *clips, is_reversed=True)
        # Their softmax: normal, of std 1 / sqrt(D); a bias of zeros.
        softmax: dict[str, Any] = {
            "tie_embeddings": False,
            "head_transform": False,
            "init": "t5",
        }
        self.head = VocabHead(
            dataclasses.replace(spec, head_bias=True, scale_logits=False, **softmax)
        )
        self.dropout = Dropout(spec.dropout)

    def read(
        self, ids: Int[Array, "B T"], masks: dict[str, Mask], *, deterministic: bool
    ) -> tuple[Array, list[Array], list[Array]]:
        """The words [B, T, D], and the layers of both directions [B, T, D] each.

        A state is handed on from one token to the next where the mask lets that see it.
        """
        table = recurrent.spell_table(
            self.pieces, self.spec.vocab_size, self.num_chars, dict(self.marks)
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
        self, states: Array, targets: Array, weights: Array, *, deterministic: bool
    ) -> losses.Scores:
        """What one direction says of its targets."""
        states = self.dropout(states, deterministic=deterministic)
        return self.head.score(states, None, targets, weights)

    def layers(
        self,
        ids: Int[Array, "B T"],
        segment_ids: Int[Array, "B T"] | None = None,
        *,
        deterministic: bool = True,
    ) -> Float[Array, "L B T C"]:
        """ELMo's layers [L, B, T, 2 D]; the lowest is the words, twice."""
        seen = make_masks(ids.shape[1], segment_ids)
        x, ahead, back = self.read(ids, seen, deterministic=deterministic)
        pairs = zip([x, *ahead], [x, *back], strict=True)
        return jnp.stack([jnp.concatenate(pair, axis=-1) for pair in pairs])

    def __call__(self, ids: Int[Array, "B T"]):
        *_, back = self.read(ids, make_masks(ids.shape[1]), deterministic=True)
        return self.head(back[-1], None)

    def init_params(self, rng):
        """As bilm-tf draws them."""
        return scan.init_params(self, rng, jnp.zeros((1, 2), jnp.int32))

    @property
    def task_width(self):
        return 2 * self.spec.d_model

    def read_task(self, batch, *, deterministic):
        """All layers mixed evenly."""
        layers = self.read_task_layers(batch, deterministic=deterministic)
        return recurrent.mix_layers(layers, jnp.zeros(len(layers)), 1.0)

    def read_task_layers(self, batch, *, deterministic):
        """The layers themselves, of which a task can train the mix."""
        ids, segment_ids = batch["inputs"], batch["segment_ids"]
        return self.layers(ids, segment_ids, deterministic=deterministic)

    def task_layers(self, params, batch, *, rngs=None):
        return self._apply_task("read_task_layers", params, batch, rngs)

    def features(self, params, tokens):
        """ELMo's vectors [B, T, 2 D]: all layers mixed evenly.

        A later task trains the mix itself (`recurrent.ScalarMix`, which begins so).
        """
        layers = self.layer_features(params, tokens)
        return recurrent.mix_layers(layers, jnp.zeros(len(layers)), 1.0)

    def layer_features(self, params, tokens):
        """ELMo's layers, both directions side by side; `features` is their mean."""
        return self.apply({"params": params}, tokens, method="layers")

    def token_nll(self, params, tokens):
        """By the direction that reads ahead."""

        def predict(model):
            ids = tokens[:, :-1]
            seen = make_masks(ids.shape[1])
            _, forward, _ = model.read(ids, seen, deterministic=True)
            return model.head.nll(forward[-1], None, tokens[:, 1:])

        return self.apply({"params": params}, method=predict)

    def target_log_probs(self, params, batch, view, with_ranks=False):
        """By the direction that the view names."""

        def predict(model):
            segments = batch["segment_ids"]
            seen = make_masks(segments.shape[1], segments)
            _, *ways = model.read(batch["inputs"], seen, deterministic=True)
            states = ways[view == "backward"][-1]
            states = edits.gather(states, batch["positions"])
            if with_ranks:
                nll, ranks = model.head.token_scores(states, None, batch["targets"])
                return -nll, ranks
            return -model.head.nll(states, None, batch["targets"])

        return self.apply({"params": params}, method=predict)

    def count_flops(self, lengths, num_predictions):
        width, cells = self.spec.d_model, self.spec.d_ff
        size = sum(self.filters)
        word = sum(
            2 * (self.num_chars - w + 1) * w * self.char_width * number
            for w, number in enumerate(self.filters, 1)
        )
        word += self.num_highway * 4 * size**2 + 2 * size * width
        # Of each layer: gates from its input and from its state, the projection.
        layer = 2 * (2 * width * 4 * cells + cells * width)
        direction = self.spec.num_layers * layer + 2 * width * self.spec.vocab_size
        return flops.TRAIN_FACTOR * lengths["forward"] * (word + 2 * direction)
