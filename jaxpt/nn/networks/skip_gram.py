"""word2vec's two tables: each word as itself, and as another's neighbour."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxpt.nn import flops, scan
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.network import Network


class SkipGram(Network, nn.Module):
    """A vector [D] of each word as itself, and one as another's neighbour."""

    RULES = ((r"words|contexts", ("tensor", "fsdp")),)

    spec: ModelSpec

    def setup(self):
        shape = self.spec.vocab_size, self.spec.d_model
        self.words = self.param("words", _init_words, shape)
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

    def init_params(self, rng):
        """As word2vec.c begins."""
        return scan.init_params(self, rng, jnp.zeros((1, 1), jnp.int32))

    @property
    def task_width(self):
        return self.spec.d_model

    def read_task(self, batch, *, deterministic):
        """Each token's one vector."""
        return self.embed(batch["inputs"])

    def features(self, params, tokens):
        """Each token's one vector, at every position."""
        return self.apply({"params": params}, tokens, method="embed")

    def layer_features(self, params, tokens):
        """There is no layer above the vectors."""
        return self.features(params, tokens)[None]

    def count_flops(self, lengths, num_predictions):
        """Each product of two vectors, those of pairs that are left out too."""
        return flops.TRAIN_FACTOR * 2 * num_predictions * self.spec.d_model


def _init_words(rng, shape, dtype=jnp.float32):
    """word2vec.c's: uniform in [-0.5, 0.5] / D; what it is scored with begins at 0."""
    return jax.random.uniform(rng, shape, dtype, -0.5, 0.5) / shape[1]
