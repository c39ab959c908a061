"""Filling masks: the likeliest tokens for each [MASK] of a text."""

from collections.abc import Callable

import jax
import numpy as np

from jaxpt.errors import UserError


def fill_masks(
    fill_logits: Callable, params, ids: np.ndarray, mask_id: int, banned, k: int
) -> list[list[tuple[int, float]]]:
    """For each [MASK] in order, its k likeliest ids with their probabilities.

    Args:
      fill_logits: (params, tokens [1, T]) -> logits [1, T, V].
      ids: int32 [T].
      banned: ids that are never predicted (special tokens); probabilities are among
        the other ids.

    Raises:
      UserError: the text holds no [MASK].
    """
    masked_positions = np.flatnonzero(ids == mask_id)
    if not len(masked_positions):
        raise UserError("--text: must hold at least one [MASK]")
    logits = np.array(fill_logits(params, ids[None])[0, masked_positions], np.float32)
    logits[:, list(banned)] = -np.inf
    probabilities = np.asarray(jax.nn.softmax(logits, axis=-1))
    order = np.argsort(-probabilities, axis=-1, kind="stable")[:, :k]
    return [
        [(int(i), float(row[i])) for i in best if row[i] > 0]
        for row, best in zip(probabilities, order, strict=True)
    ]
