"""Evaluation on held-out rows: metrics of the objective, and bits per byte."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jaxtyping import PyTree

from jaxpt.judge.examples import Examples
from jaxpt.ops import metrics as sums
from jaxpt.rng import stream
from jaxpt.text.tokens.vocab import Vocab

# Held-out rows have the same corruption at every evaluation of every run.
EVAL_SEED = 0


def batches(rows: dict[str, np.ndarray], batch_size: int) -> Iterator[dict]:
    """Batches of `batch_size` rows, each row with its "index" and its "row_weights".

    The last batch is padded with copies of the last row, which have weight 0: all
    batches then have the same shape, which compiles once and divides among the devices.

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


def map_batches(
    function: Callable[[dict], Any], arrays: dict[str, np.ndarray], batch_size: int
) -> Iterator[np.ndarray]:
    """The float32 results of `function` for batches of the arrays [n, ...], in order.

    All batches have the same shape: the last one is padded with copies of the last row,
    whose results are dropped.
    """
    num = len(next(iter(arrays.values())))
    for start in range(0, num, batch_size):
        index = np.minimum(np.arange(start, start + batch_size), num - 1)
        batch = {name: values[index] for name, values in arrays.items()}
        yield np.asarray(function(batch), np.float32)[: num - start]


def evaluate(
    eval_step: Callable, params: PyTree, rows: dict[str, np.ndarray], batch_size: int
) -> dict[str, float]:
    """The means over rows of every metric of `eval_step(params, rows, rng)`."""
    return sums.divide(add_up(eval_step, params, rows, batch_size))


def add_up(
    eval_step: Callable, params: PyTree, rows: dict[str, np.ndarray], batch_size: int
) -> dict:
    """`evaluate` before dividing: {name: (sum, weight)}."""
    rng = stream(EVAL_SEED, 0, "evaluate")
    total: Any = None
    for batch in batches(rows, batch_size):
        metrics = eval_step(params, batch, rng)
        total = metrics if total is None else sums.add(total, metrics)
    return total


def measure_nll_bound(
    nll_bound: Callable,
    params: PyTree,
    tokens: np.ndarray,
    num_bytes: np.ndarray,
    batch_size: int,
    vocab: Vocab,
    documents: np.ndarray | None = None,
) -> dict[str, Examples]:
    """An upper bound of the bits per UTF-8 byte, for models with a likelihood bound.

    All tokens of a row except special ones are predicted. If the model must be given
    the first, its bytes do not count.

    Args:
      nll_bound: (params, {"tokens", "is_text"} of [B, R], key) -> nats [B, R], or
        [B, R - 1] of all but the first, an unbiased estimate of the bound.
      tokens, num_bytes, documents: as in `measure_likelihood`.

    Returns:
      bits_per_byte_bound of each row; an empty dict if no byte is predicted.
    """
    is_text = ~vocab.is_special[tokens] | (num_bytes > 0)
    parts, nll = {"tokens": tokens, "is_text": is_text}, []
    rng = stream(EVAL_SEED, 1, "evaluate")
    for batch in batches(parts, batch_size):
        rows = {key: batch[key] for key in ("tokens", "is_text", "index")}
        nats = np.asarray(nll_bound(params, rows, rng), np.float64)
        num_given = tokens.shape[1] - nats.shape[1]
        nll.append(np.where(batch["is_text"][:, num_given:], nats, 0).sum(1))
    predicted = tokens[:, num_given:], num_bytes[:, num_given:]
    return _bits_per_byte("bits_per_byte_bound", nll, *predicted, vocab, documents)


def _bits_per_byte(
    name: str,
    nll: list[np.ndarray],
    tokens: np.ndarray,
    num_bytes: np.ndarray,
    vocab: Vocab,
    documents: np.ndarray | None,
) -> dict[str, Examples]:
    """Bits per byte from batches of each row's nats, the last of them padded.

    Args:
      tokens, num_bytes: of the predicted tokens.
    """
    sizes = num_bytes.sum(1, dtype=np.int64)
    if not sizes.any():
        return {}
    bits = np.concatenate(nll)[: len(sizes)] / math.log(2)
    bits = bits + vocab.unknown_bits(tokens, num_bytes).sum(1)
    groups = np.arange(len(sizes)) if documents is None else documents
    return {name: Examples(bits, sizes.astype(np.float64), groups)}


def measure_likelihood(
    token_nll: Callable,
    params: PyTree,
    tokens: np.ndarray,
    num_bytes: np.ndarray,
    batch_size: int,
    vocab: Vocab,
    documents: np.ndarray | None = None,
) -> dict[str, Examples]:
    """Bits per UTF-8 byte of the predicted text.

    The loss at special tokens such as [EOS], which have no bytes, is excluded: the loss
    of every tokenizer is thus divided by the same number of bytes. The model does not
    predict the text that an [UNK] replaces, which is charged as raw bytes
    (`Vocab.unknown_bits`): with [UNK]s, the result is an upper bound.

    Args:
      token_nll: (params, tokens [B, R]) -> nll [B, R - 1] of all but the first.
      tokens: int32 [n, R].
      num_bytes: int [n, R]; the bytes of the text of each token.
      documents: int [n], the document of each row; None treats rows as independent.

    Returns:
      bits_per_byte of each row; an empty dict if no byte is predicted.
    """
    is_text = ~vocab.is_special[tokens] | (num_bytes > 0)
    parts = {"tokens": tokens, "is_text": is_text[:, 1:]}
    nll = []
    for batch in batches(parts, batch_size):
        nats = np.asarray(token_nll(params, batch["tokens"]), np.float64)
        nll.append(np.where(batch["is_text"], nats, 0).sum(1))
    predicted = tokens[:, 1:], num_bytes[:, 1:]
    return _bits_per_byte("bits_per_byte", nll, *predicted, vocab, documents)


def unknown_share(tokens: np.ndarray, num_bytes: np.ndarray, vocab: Vocab) -> float:
    """The share of the predicted text's bytes that unknown tokens replace.

    Args:
      tokens, num_bytes: as in `measure_likelihood`.
    """
    is_unknown = vocab.unknown_bits(tokens, num_bytes)[:, 1:] > 0
    total = num_bytes[:, 1:].sum(dtype=np.int64)
    return float(num_bytes[:, 1:][is_unknown].sum() / total) if total else 0.0
