"""The parameters that a run takes from another one (`train.init_from`).

A network of the same parameters takes them as they are, whatever trained them. An
encoder-decoder also takes those of one stack, name by name (T5Gemma, Zhang et al. 2025,
arXiv 2504.06225):

    encoder/...                   encoder/..., read in both directions from now on
    decoder/layer_i/attention     encoder/layer_i/attention
    decoder/layer_i/cross         encoder/layer_i/attention, too
    decoder/layer_i/mlp           encoder/layer_i/mlp, and so are all norms
    embed/tokens, head            the same: one table for both stacks

Departure: T5Gemma also pairs stacks of different sizes, whose cross-attention is random
and at first trained alone. Here the decoder has the layers of the encoder.
"""

import re

import flax.traverse_util
import jax.numpy as jnp
from jaxtyping import PyTree

from jaxpt.errors import CheckpointError
from jaxpt.nn.model_spec import LIMITED
from jaxpt.runs.task import Task

STACKS = {"decoder": "encoder", "decoder_embed": "embed"}


def find_source(path: str) -> str:
    """The parameter of the only stack from which that of two stacks starts.

    >>> find_source("decoder/layer_0/cross_norm/scale")
    'encoder/layer_0/attention_norm/scale'
    >>> find_source("encoder/layer_0/mlp/up/kernel")
    'encoder/layer_0/mlp/up/kernel'
    """
    first, *rest = path.split("/")
    names = (re.sub("^cross", "attention", name) for name in rest)
    return "/".join([STACKS.get(first, first), *names])


def align_shapes(
    shapes: dict[str, list[int]], other_shapes: dict[str, list[int]]
) -> dict[str, list[int]]:
    """The shapes of one stack by the paths of the parameters that start from them.

    What nothing starts from keeps its path.
    """
    sources = {path: find_source(path) for path in shapes}
    used = {*sources.values()}
    kept = {path: shape for path, shape in other_shapes.items() if path not in used}
    known = {k: path for k, path in sources.items() if path in other_shapes}
    return kept | {path: other_shapes[source] for path, source in known.items()}


def split_stack(params: PyTree, paths: list[str]) -> PyTree:
    """The parameters of an encoder-decoder from those of one stack.

    Args:
      paths: of the encoder-decoder's parameters.
    """
    flat = flax.traverse_util.flatten_dict(params, sep="/")
    split = {path: jnp.copy(flat[find_source(path)]) for path in paths}
    return flax.traverse_util.unflatten_dict(split, sep="/")


def check_split(task: Task, name: str) -> None:
    """Raises UserError unless an encoder-decoder can compute what one stack does.

    Args:
      name: the setting that names the other run, with its value.
    """
    spec = task.model_spec
    refused = (
        (
            "num_decoder_layers",
            spec.num_decoder_layers != spec.num_layers,
            f"model.num_layers={spec.num_layers}",
            "both stacks start from its layers",
        ),
        (
            "positions",
            spec.positions in LIMITED,
            "rotary, relative, alibi or none",
            "the positions of a decoder begin at 0 again",
        ),
        (
            "relative_directions",
            spec.has_relative_bias and spec.is_bidirectional,
            "past",
            "the distances of a decoder are those of the past",
        ),
    )
    for key, is_refused, allowed, reason in refused:
        if is_refused:
            raise CheckpointError(
                f"{name}: holds a model of one stack; model.{key}="
                f"{getattr(spec, key)} must be {allowed} to start an encoder and a "
                f"decoder from it, because {reason}"
            )
