"""Prompt tuning: trained vectors in the places of a text's first tokens.

Lester et al. 2021; google-research/prompt-tuning (prompts.py). A prompt is read by the
only stack or by the encoder, and its vectors take the place of the token table's rows:
positions, segment types and norms are those of any other token.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxpt.errors import UserError
from jaxpt.nn.adaptation.adapt_spec import AdaptSpec
from jaxpt.nn.adaptation.trees import draw_key, get, put
from jaxpt.nn.adaptation.watch import Path, Places
from jaxpt.nn.model_spec import ModelSpec

# Prompts begin as vectors of the first ids, which many tokenizers sort by frequency.
POPULATION = 5000


def init(
    spec: AdaptSpec,
    places: Places,
    params,
    rng: jax.Array,
    label_ids: list[list[int]] | None = None,
) -> dict:
    """The prompt, by the path of the token table.

    Args:
      label_ids: the tokens of each label's name; with `prompt_init` "labels" the first
        vectors are the means of their rows, and the rest are drawn.

    Raises:
      UserError: the network reads no token table, or there are no labels' names.
    """
    if not places.tables:
        raise UserError(
            "adapt.method=prompt: this network reads no table of token vectors that "
            "places are added to; must be one of full, linear_probe, bitfit, lora"
        )
    (path,) = places.tables
    tokens = jnp.asarray(get(params, (*path, "tokens")))
    population = min(POPULATION, len(tokens))
    drawn = jax.random.choice(
        draw_key(rng, path),
        population,
        (spec.prompt_length,),
        replace=spec.prompt_length > population,
    )
    vectors = tokens[drawn]
    if spec.prompt_init == "labels":
        if not label_ids or not all(label_ids):
            raise UserError(
                "adapt.prompt_init=labels: must be vocab, as the task has no names of "
                "labels"
            )
        for i, ids in enumerate(label_ids[: spec.prompt_length]):
            vectors = vectors.at[i].set(tokens[jnp.array(ids)].mean(0))
    extra: dict = {}
    put(extra, (*path, "prompt"), vectors)
    return extra


def change(extra: dict):
    """Puts a prompt in its places, those of `make_room` (`watch.Changes.table`)."""

    def replace(path: Path, ids: Array, vectors: Array) -> Array:
        prompt = get(extra, (*path, "prompt"))
        if isinstance(prompt, dict):
            return vectors
        own = jnp.take(prompt, ids + len(prompt), axis=0, mode="clip")
        return jnp.where((ids < 0)[..., None], own.astype(vectors.dtype), vectors)

    return replace


def check_length(spec: AdaptSpec, model: ModelSpec, longest: int) -> None:
    """Refuses a prompt that does not fit before the longest text.

    Args:
      longest: tokens of the longest text.

    Raises:
      UserError: it does not.
    """
    has_places = model.positions in ("learned", "sinusoidal")
    if has_places and spec.num_prompts + longest > model.max_len:
        raise UserError(
            f"adapt.prompt_length={spec.prompt_length}: must leave {longest} "
            f"(task.max_len) of model.max_len={model.max_len} places to the text"
        )


def make_room(batch: dict, num: int) -> dict:
    """A batch of texts with `num` more positions before each.

    Their ids are -num, ..., -1, so that the prompt's vectors are found wherever a row
    is moved to.

    Args:
      batch: as of `Network.task_states`: one text in a row, from its first position on.

    >>> batch = {"inputs": jnp.array([[7, 8]]), "segment_ids": jnp.array([[1, 0]])}
    >>> {key: x.tolist() for key, x in make_room(batch, 2).items()}
    {'inputs': [[-2, -1, 7, 8]], 'segment_ids': [[1, 1, 1, 0]]}
    """
    if not num:
        return batch
    # A prompt is of the text's segment and of its first type, and is seen by all of it.
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
