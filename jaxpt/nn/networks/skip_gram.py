"""word2vec's two tables: a vector of each word, and one of it as a neighbour."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxpt.nn import flops, scan
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.network import Network


class SkipGram(Network, nn.Module):
    """A vector [D] of each word, and one of it as another word's neighbour."""

    SPLITS_LENGTH = False
    RULES = ((r"words|contexts", ("tensor", "fsdp")),)

    spec: ModelSpec

    def setup(self) -> None:
        shape = self.spec.vocab_size, self.spec.d_model
        self.words = self.param("words", _init_words, shape)
        self.contexts = self.param("contexts", nn.initializers.zeros, shape)

    def embed(self, ids: Int[Array, "B T"]) -> Float[Array, "B T D"]:
        """Each token's vector, the same in every context."""
        return self.words[ids]

    def score(
        self, ids: Int[Array, "B T"], neighbours: Int[Array, "B T C"]
    ) -> Float[Array, "B T C"]:
        """v u of each word with each of the others."""
        vectors = self.words[ids][:, :, None]
        return jnp.sum(vectors * self.contexts[neighbours], axis=-1)

    def __call__(self, ids: Int[Array, "B T"]) -> Array:
        return self.score(ids, ids[..., None])

    def init_params(self, rng: Array) -> Any:
        """As in word2vec.c."""
        return scan.init_params(self, rng, jnp.zeros((1, 1), jnp.int32))

    @property
    def task_width(self) -> int:
        return self.spec.d_model

    def read_task(self, batch: dict, *, deterministic: bool) -> Array:
        """Each token's one vector."""
        return self.embed(batch["inputs"])

    def features(self, params: Any, tokens: Array) -> Array:
        """Each token's one vector."""
        return self.apply({"params": params}, tokens, method="embed")

    def layer_features(self, params: Any, tokens: Array) -> Array:
        """The vectors: there are no layers above them."""
        return self.features(params, tokens)[None]

    def count_flops(self, lengths: dict[str, int], num_predictions: float) -> float:
        """Each product of two vectors, also of pairs without weight."""
        return flops.TRAIN_FACTOR * 2 * num_predictions * self.spec.d_model


def _init_words(rng: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
    """As in word2vec.c: uniform in [-0.5, 0.5] / D; the other table starts at 0."""
    return jax.random.uniform(rng, shape, dtype, -0.5, 0.5) / shape[1]
