"""Hidden states and attention weights of a run's network, on rows of plain text.

Rows are framed as in training.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from jaxpt.nn import inspection
from jaxpt.nn.networks.abilities import HasTransformer
from jaxpt.runs.program import Program


def read_layers(
    program: Program, params, rows: Int[np.ndarray, "N T"], batch_size: int = 16
) -> Float[np.ndarray, "L N T D"]:
    """The input of the first layer and the output of each layer, float32."""
    before, length = len(program.task.text_form.opening), rows.shape[1]

    def read(params, tokens):
        states = program.task.model.layer_features(params, tokens)
        return states[:, :, before : before + length].astype("float32").swapaxes(0, 1)

    call = program.compile_reader(read)
    batches = [
        np.asarray(call(params, batch))[:num]
        for batch, num in _cut(frame_rows(program, rows), batch_size)
    ]
    return np.concatenate(batches).swapaxes(0, 1)


def read_attention(
    program: Program, params, rows: Int[np.ndarray, "N T"], batch_size: int = 4
) -> Iterator[tuple[dict[str, Float[np.ndarray, "L B N T S"]], np.ndarray]]:
    """The attention weights of every head, and the framed rows [B, T].

    None if the network has no attention.
    """
    model = program.task.model
    if not isinstance(model, HasTransformer):
        return
    start_id = program.task.vocab.start if model.HAS_DECODER else None
    read_weights = partial(inspection.attention_weights, model, start_id=start_id)
    call = program.compile_reader(lambda params, tokens: read_weights(params, tokens))
    for batch, num in _cut(frame_rows(program, rows), batch_size):
        weights = jax.device_get(call(params, batch))
        names = [name for name in inspection.PLACES if name in weights]
        yield {name: weights[name][:, :num] for name in names}, batch[:num]


def read_visible(program: Program, length: int) -> dict[str, Bool[np.ndarray, "T S"]]:
    """The attention mask of the rows of `read_attention`."""
    params = program.abstract_state().params
    whole = length + program.task.text_form.num_special()
    model: Any = program.task.model
    masks = inspection.attention_masks(model, params, whole)
    return {name: np.asarray(mask) for name, mask in masks.items()}


def frame_rows(
    program: Program, rows: Int[np.ndarray, "N T"]
) -> Int[np.ndarray, "N R"]:
    """The rows, framed as in training."""
    return program.task.text_form.wrap_read(rows)


def _cut(rows: np.ndarray, batch_size: int) -> Iterator[tuple[np.ndarray, int]]:
    """Batches of one size, and the number of rows in each that are not padding."""
    size = min(batch_size, len(rows))
    for start in range(0, len(rows), size):
        piece = rows[start : start + size]
        missing = size - len(piece)
        yield np.concatenate([piece, np.repeat(piece[:1], missing, axis=0)]), len(piece)
