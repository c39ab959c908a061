"""The cloze task: masked-token accuracy on the same masks for every objective.

The corruptions of objectives differ in difficulty (whole words are harder to predict
than single tokens). Here the same tokens of the same rows are replaced by [MASK] for
all objectives that can fill masks.
"""

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Int, PyTree

from jaxpt.evaluation.likelihood import batches
from jaxpt.judge.examples import Examples

CLOZE_RATE = 0.15
CLOZE_SEED = 0
MAX_LOGITS = 1 << 28  # in memory at once: 1 GiB


def sample_positions(
    tokens: Int[np.ndarray, "N R"], specials: Int[np.ndarray, "S"]
) -> tuple[Int[np.ndarray, "N P"], Bool[np.ndarray, "N P"]]:
    """The positions to mask: 15 % of each row, rounded, but at least 1.

    The first and the last position and special tokens are excluded: an objective that
    predicts a token from the position before has no prediction for the first, and need
    not read the last.

    Returns:
      positions, and whether each counts: a row may have too few eligible tokens.
    """
    num = min(max(1, round(tokens.shape[1] * CLOZE_RATE)), tokens.shape[1])
    order = np.random.default_rng(CLOZE_SEED).random(tokens.shape)
    order[np.isin(tokens, specials)] = 2
    order[:, [0, -1]] = 2
    positions = np.argsort(order, axis=1, kind="stable")[:, :num].astype(np.int32)
    return positions, np.take_along_axis(order, positions, 1) < 2


def measure_cloze(
    fill_scores: Callable,
    params: PyTree,
    tokens: Int[np.ndarray, "N R"],
    mask_id: int,
    banned: list[int],
    num_ids: int,
    batch_size: int,
    length: int,
    documents: Int[np.ndarray, "N"] | None = None,
) -> dict[str, Examples]:
    """The accuracy of a model on masked tokens of running text.

    Args:
      fill_scores: (params, {"tokens", "positions", "targets"}, allowed) -> the results
        of `readings.score_masked` on the logits of these tokens.
      banned: ids that are neither predicted nor masked.
      num_ids: the number of ids with logits.
      length: the number of tokens of a row that the model reads: all, or all but the
        last.
      documents: the document of each row; None treats rows as independent.

    Returns:
      cloze_accuracy (of k tokens that are equally likely, the true one counts 1 / k)
      and cloze_bits, -log2 p of the true one, for each row; an empty dict if no token
      can be masked.

    Raises:
      ValueError: the model reads fewer tokens.
    """
    if length < tokens.shape[1] - 1:
        raise ValueError(
            f"{length} of {tokens.shape[1]} tokens: must be all, or all but the last"
        )
    positions, counts = sample_positions(tokens, np.array(banned, np.int32))
    targets = np.take_along_axis(tokens, positions, 1)
    masked = tokens.copy()
    rows, columns = np.nonzero(counts)
    masked[rows, positions[rows, columns]] = mask_id
    allowed = ~np.isin(np.arange(num_ids), banned)
    arrays = {"tokens": masked[:, :length], "positions": positions}
    arrays |= {"targets": targets, "counts": counts}
    size = max(1, min(batch_size, MAX_LOGITS // (tokens.shape[1] * num_ids)))
    sums = []
    for batch in batches(arrays, size):
        counts = batch.pop("counts") & (batch.pop("row_weights") > 0)[:, None]
        del batch["index"]
        scores = fill_scores(params, batch, allowed)
        nll, hits = (np.where(counts, np.asarray(x, np.float64), 0) for x in scores)
        sums.append(np.stack([nll.sum(1) / math.log(2), hits.sum(1), counts.sum(1)]))
    bits, hits, num_masked = np.concatenate(sums, axis=1)[:, : len(tokens)]
    if not num_masked.any():
        return {}
    groups = np.arange(len(tokens)) if documents is None else documents
    return {
        "cloze_accuracy": Examples(hits, num_masked, groups),
        "cloze_bits": Examples(bits, num_masked, groups),
    }
