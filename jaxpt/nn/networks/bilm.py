"""ELMo's network: two LSTM language models over character-level words."""

import dataclasses
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxpt.nn import flops, recurrent, scan
from jaxpt.nn.heads import VocabHead
from jaxpt.nn.layers import Dropout
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.abilities import Gap, choose_by_likelihood
from jaxpt.nn.networks.network import TRANSFORMER_RULES, Network
from jaxpt.nn.recurrent import CharCnn, LstmStack
from jaxpt.ops import edits, losses
from jaxpt.ops import masks as attention_masks
from jaxpt.ops.masks import Mask


def make_masks(length: int, segment_ids: Array | None = None) -> dict[str, Mask]:
    """Forward, each position sees itself and its past; backward, its future."""
    return {
        "forward": attention_masks.causal(segment_ids),
        "backward": attention_masks.anticausal(length, segment_ids),
    }


class BiLm(Network, nn.Module):
    """Both directions over the same vectors of the words.

    Attributes:
      pieces: the text of each id.
      marks: ids that are a single character.
      num_chars, char_width, filters, num_highway: of the network of characters.
      cell_clip, proj_clip: the largest absolute value in a cell, in a projection.
    """

    SPLITS_LENGTH = False
    GAP_BY_LIKELIHOOD = True
    SCORING = ("both", "forward", "backward")
    scores_ratio = False
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

    def setup(self) -> None:
        spec = self.spec
        self.words = CharCnn(spec, self.char_width, self.filters, self.num_highway)
        clips = self.cell_clip, self.proj_clip
        self.ahead = LstmStack(spec, *clips, is_reversed=False)
        self.back = LstmStack(spec, *clips, is_reversed=True)
        # Their softmax: normal with std 1 / sqrt(D); zero bias.
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

        A token's state passes on to the next if the mask lets the next attend to it.
        """
        table = recurrent.spell_table(
            self.pieces, self.spec.vocab_size, self.num_chars, dict(self.marks)
        )
        x = self.words(jnp.asarray(table)[ids])
        starts = [
            ~attention_masks.sees_neighbour(masks[name], ids.shape, offset)
            for name, offset in (("forward", -1), ("backward", 1))
        ]
        ahead = self.ahead(x, starts[0], deterministic=deterministic)
        back = self.back(x, starts[1], deterministic=deterministic)
        return x, ahead, back

    def score(
        self, states: Array, targets: Array, weights: Array, *, deterministic: bool
    ) -> losses.Scores:
        """One direction's scores of its targets."""
        states = self.dropout(states, deterministic=deterministic)
        return self.head.score(states, None, targets, weights)

    def layers(
        self,
        ids: Int[Array, "B T"],
        segment_ids: Int[Array, "B T"] | None = None,
        *,
        deterministic: bool = True,
    ) -> Float[Array, "L B T C"]:
        """ELMo's layers [L, B, T, 2 D]; the lowest is the words' vectors, twice."""
        attn_masks = make_masks(ids.shape[1], segment_ids)
        x, ahead, back = self.read(ids, attn_masks, deterministic=deterministic)
        pairs = zip([x, *ahead], [x, *back], strict=True)
        return jnp.stack([jnp.concatenate(pair, axis=-1) for pair in pairs])

    def __call__(self, ids: Int[Array, "B T"]) -> Array:
        *_, back = self.read(ids, make_masks(ids.shape[1]), deterministic=True)
        return self.head(back[-1], None)

    def init_params(self, rng: Array) -> Any:
        """As bilm-tf draws them."""
        return scan.init_params(self, rng, jnp.zeros((1, 2), jnp.int32))

    @property
    def task_width(self) -> int:
        return 2 * self.spec.d_model

    def read_task(self, batch: dict, *, deterministic: bool) -> Array:
        """The average of all layers."""
        layers = self.read_task_layers(batch, deterministic=deterministic)
        return recurrent.mix_layers(layers, jnp.zeros(len(layers)), 1.0)

    def read_task_layers(self, batch: dict, *, deterministic: bool) -> Array:
        """The layers, whose mix a task can train."""
        ids, segment_ids = batch["inputs"], batch["segment_ids"]
        return self.layers(ids, segment_ids, deterministic=deterministic)

    def task_layers(self, params: Any, batch: dict, *, rngs: Any = None) -> Array:
        return self._apply_task("read_task_layers", params, batch, rngs)

    def features(self, params: Any, tokens: Array) -> Array:
        """ELMo's vectors [B, T, 2 D]: the average of all layers.

        A task trains the mix (`recurrent.ScalarMix`), starting from the average.
        """
        layers = self.layer_features(params, tokens)
        return recurrent.mix_layers(layers, jnp.zeros(len(layers)), 1.0)

    def layer_features(self, params: Any, tokens: Array) -> Array:
        """ELMo's layers, both directions concatenated; `features` is their mean."""
        return self.apply({"params": params}, tokens, method="layers")

    def token_nll(self, params: Any, tokens: Array) -> Array:
        """By the forward direction."""

        def predict(model: BiLm) -> Array:
            ids = tokens[:, :-1]
            attn_masks = make_masks(ids.shape[1])
            _, forward, _ = model.read(ids, attn_masks, deterministic=True)
            return model.head.nll(forward[-1], None, tokens[:, 1:])

        return self.apply({"params": params}, method=predict)

    def choice_scores(self, params: Any, gap: Gap) -> Array:
        return choose_by_likelihood(self, params, gap)

    def target_log_probs(
        self, params: Any, batch: dict, view: str, with_ranks: bool = False
    ) -> Any:
        """By the direction that the view names."""

        def predict(model: BiLm) -> Any:
            segments = batch["segment_ids"]
            attn_masks = make_masks(segments.shape[1], segments)
            _, *ways = model.read(batch["inputs"], attn_masks, deterministic=True)
            states = ways[view == "backward"][-1]
            states = edits.gather(states, batch["positions"])
            if with_ranks:
                nll, ranks = model.head.token_scores(states, None, batch["targets"])
                return -nll, ranks
            return -model.head.nll(states, None, batch["targets"])

        return self.apply({"params": params}, method=predict)

    def count_flops(self, lengths: dict[str, int], num_predictions: float) -> float:
        width, cells = self.spec.d_model, self.spec.d_ff
        size = sum(self.filters)
        word = sum(
            2 * (self.num_chars - w + 1) * w * self.char_width * number
            for w, number in enumerate(self.filters, 1)
        )
        word += self.num_highway * 4 * size**2 + 2 * size * width
        # Each layer: gates from its input and from its state, the projection.
        layer = 2 * (2 * width * 4 * cells + cells * width)
        direction = self.spec.num_layers * layer + 2 * width * self.spec.vocab_size
        return flops.TRAIN_FACTOR * lengths["forward"] * (word + 2 * direction)
