"""Evaluation over held-out rows: an objective's metrics, and bits per byte."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from jaxpt.ops import metrics as sums
from jaxpt.rng import stream
from jaxpt.statistics.examples import Examples
from jaxpt.text.tokens.vocab import Vocab

# Held-out rows are corrupted in the same way at every evaluation of every run.
EVAL_SEED = 0


def batches(rows: dict[str, np.ndarray], batch_size: int) -> Iterator[dict]:
    """Batches of `batch_size` rows, each row with its "index" and its "row_weights".

    The last batch is filled up with copies of the last row, whose weight is 0: all
    batches then have one shape, which compiles once and divides among the devices.

    Args:
      rows: "tokens" [n, R], and other arrays [n, ...].
    """
    num_rows = len(rows["tokens"])
    for start in range(0, num_rows, batch_size):
        index = np.arange(start, start + batch_size, dtype=np.int32)
        row_ids = np.minimum(index, num_rows - 1)
        weights = (index < num_rows).astype(np.float32)
        part = {key: values[row_ids] for key, values in rows.items()}
        yield part | {"index": index, "row_weights": weights}


def evaluate(
    eval_step: Callable, params, rows: dict[str, np.ndarray], batch_size: int
) -> dict[str, float]:
    """Means over the rows of every metric of `eval_step(params, rows, rng)`."""
    return sums.divide(add_up(eval_step, params, rows, batch_size))


def add_up(
    eval_step: Callable, params, rows: dict[str, np.ndarray], batch_size: int
) -> dict:
    """`evaluate` before dividing: {name: (sum, weight)}."""
    rng = stream(EVAL_SEED, 0, "evaluate")
    total: Any = None
    for batch in batches(rows, batch_size):
        found = eval_step(params, batch, rng)
        total = found if total is None else sums.add(total, found)
    return total


def measure_nll_bound(
    nll_bound: Callable,
    params,
    tokens: np.ndarray,
    num_bytes: np.ndarray,
    batch_size: int,
    vocab: Vocab,
    documents: np.ndarray | None = None,
) -> dict[str, Examples]:
    """What the bits per UTF-8 byte are at most, of a model whose likelihood is bounded.

    Every token of a row but special ones is predicted, its first too.

    Args:
      nll_bound: (params, {"tokens", "is_text"} of [B, R], key) -> nats [B, R], an
        unbiased estimate of the bound.
      tokens, num_bytes, documents: as of `measure_likelihood`.

    Returns:
      bits_per_byte_bound of each row; nothing where no byte is predicted.
    """
    is_text = ~vocab.is_special[tokens] | (num_bytes > 0)
    parts, nll = {"tokens": tokens, "is_text": is_text}, []
    rng = stream(EVAL_SEED, 1, "evaluate")
    for batch in batches(parts, batch_size):
        rows = {key: batch[key] for key in ("tokens", "is_text", "index")}
        found = np.asarray(nll_bound(params, rows, rng), np.float64)
        nll.append(np.where(batch["is_text"], found, 0).sum(1))
    return _bits_per_byte("bits_per_byte_bound", nll, num_bytes, documents)


def _bits_per_byte(
    name: str, nll: list[np.ndarray], num_bytes: np.ndarray, documents
) -> dict[str, Examples]:
    """Of batches of each row's nats, the last of them filled up with other rows."""
    sizes = num_bytes.sum(1, dtype=np.int64)
    if not sizes.any():
        return {}
    bits = np.concatenate(nll)[: len(sizes)] / math.log(2)
    groups = np.arange(len(sizes)) if documents is None else documents
    return {name: Examples(bits, sizes.astype(np.float64), groups)}


def measure_likelihood(
    token_nll: Callable,
    params,
    tokens: np.ndarray,
    num_bytes: np.ndarray,
    batch_size: int,
    vocab: Vocab,
    documents: np.ndarray | None = None,
) -> dict[str, Examples]:
    """Bits per UTF-8 byte of the predicted text; the ends of documents are given.

    The loss at special tokens such as [EOS], which have no bytes, is left out: every
    tokenizer's loss is thus divided by the same number of bytes. An [UNK] counts with
    all bytes of the text it replaces, although the model does not predict that text.

    Args:
      token_nll: (params, tokens [B, R]) -> nll [B, R - 1] of all but the first.
      tokens: int32 [n, R].
      num_bytes: int [n, R]; the bytes of the text of each token.
      documents: int [n], that each row is from; None has all rows apart.

    Returns:
      bits_per_byte of each row; an empty dict where no byte is predicted.
    """
    is_text = ~vocab.is_special[tokens] | (num_bytes > 0)
    parts = {"tokens": tokens, "is_text": is_text[:, 1:]}
    nll = []
    for batch in batches(parts, batch_size):
        found = np.asarray(token_nll(params, batch["tokens"]), np.float64)
        nll.append(np.where(batch["is_text"], found, 0).sum(1))
    return _bits_per_byte("bits_per_byte", nll, num_bytes[:, 1:], documents)
