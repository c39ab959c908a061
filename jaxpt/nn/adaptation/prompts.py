"""Prompt tuning: trained embeddings before the tokens of a text.

Lester et al. 2021; google-research/prompt-tuning (prompts.py). The only stack or the
encoder reads a prompt. Its vectors replace rows of the token table: positions, segment
types and norms are applied to them as to any other token. They have no value
embeddings.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from jaxpt.errors import ConfigError
from jaxpt.nn.adaptation.adapt_spec import AdaptSpec
from jaxpt.nn.adaptation.watch import Path, Places, draw_key, get, put
from jaxpt.nn.model_spec import ModelSpec

# Initial vectors are drawn from the first ids, which many tokenizers sort by frequency.
POPULATION = 5000


def init(
    spec: AdaptSpec,
    places: Places,
    params: PyTree,
    rng: jax.Array,
    label_ids: list[list[int]] | None = None,
) -> dict:
    """The prompt, by the path of the token table.

    Args:
      label_ids: the tokens of each label's name; with `prompt_init` "labels" the first
        vectors are the means of their rows; the others are drawn at random.
    """
    if not places.tables:
        raise ConfigError(
            "adapt.method=prompt: this network has no table of token embeddings with "
            "positions; must be one of full, linear_probe, bitfit, lora"
        )
    (path,) = places.tables
    tokens = jnp.asarray(get(params, (*path, "tokens")))
    population = min(POPULATION, len(tokens))
    token_ids = jax.random.choice(
        draw_key(rng, path),
        population,
        (spec.prompt_length,),
        replace=spec.prompt_length > population,
    )
    vectors = tokens[token_ids]
    if spec.prompt_init == "labels":
        if not label_ids or not all(label_ids):
            raise ConfigError(
                "adapt.prompt_init=labels: must be vocab, as labels have no names here"
            )
        for i, ids in enumerate(label_ids[: spec.prompt_length]):
            vectors = vectors.at[i].set(tokens[jnp.array(ids)].mean(0))
    extra: dict = {}
    put(extra, (*path, "prompt"), vectors)
    return extra


def change(extra: dict) -> Callable[[Path, Array, Array], Array]:
    """Puts a prompt at the positions of `make_room` (`watch.Changes.table`)."""

    def replace(path: Path, ids: Array, vectors: Array) -> Array:
        prompt = get(extra, (*path, "prompt"))
        if isinstance(prompt, dict):
            return vectors
        rows = jnp.take(prompt, ids + len(prompt), axis=0, mode="clip")
        return jnp.where((ids < 0)[..., None], rows.astype(vectors.dtype), vectors)

    return replace


def check_length(spec: AdaptSpec, model: ModelSpec, longest: int) -> None:
    """Raises UserError if the prompt and the longest text exceed `model.max_len`.

    Args:
      longest: the number of tokens of the longest text.
    """
    has_places = model.positions in ("learned", "sinusoidal")
    if has_places and spec.num_prompts + longest > model.max_len:
        raise ConfigError(
            f"adapt.prompt_length={spec.prompt_length}: must leave {longest} "
            f"(task.max_len) of model.max_len={model.max_len} places to the text"
        )


def make_room(batch: dict, num: int) -> dict:
    """A batch of texts with `num` more positions before each.

    Their ids are -num, ..., -1, by which the prompt's vectors are looked up.

    Args:
      batch: as in `Network.task_states`: one text per row, from its first position on.

    >>> batch = {"inputs": jnp.array([[7, 8]]), "segment_ids": jnp.array([[1, 0]])}
    >>> {key: x.tolist() for key, x in make_room(batch, 2).items()}
    {'inputs': [[-2, -1, 7, 8]], 'segment_ids': [[1, 1, 1, 0]]}
    """
    if not num:
        return batch
    # A prompt has the text's segment and first type and is visible to the whole text.
    places = jnp.arange(-num, 0)
    ahead = {
        "inputs": lambda x: jnp.broadcast_to(places, (len(x), num)).astype(x.dtype),
        "segment_ids": lambda x: jnp.repeat(x[:, :1], num, axis=1),
        "type_ids": lambda x: jnp.repeat(x[:, :1], num, axis=1),
        "is_prefix": lambda x: jnp.ones((len(x), num), x.dtype),
    }
    room = {
        name: jnp.concatenate([make(batch[name]), batch[name]], axis=1)
        for name, make in ahead.items()
        if name in batch
    }
    return batch | room
