"""Means of an objective's own metrics, and of a likelihood, over held-out rows."""

from collections.abc import Callable, Iterator

import numpy as np

from jaxpt.ops import metrics as sums
from jaxpt.rng import stream
from jaxpt.text.tokens.vocab import Vocab

# Held-out rows are corrupted alike at every evaluation of every run.
EVAL_SEED = 0


def batches(rows: dict[str, np.ndarray], batch_size: int) -> Iterator[dict]:
    """Batches of `batch_size` rows, each row with its "index" and its "row_weights".

    The last batch is filled up with copies of the last row, whose weight is 0: one
    shape is one compiled program, and a batch that devices share out stays so.

    Args:
      rows: "tokens" [n, R], and the form's other keys [n, ...].
    """
    num_rows = len(rows["tokens"])
    for start in range(0, num_rows, batch_size):
        index = np.arange(start, start + batch_size, dtype=np.int32)
        places = np.minimum(index, num_rows - 1)
        weights = (index < num_rows).astype(np.float32)
        part = {key: values[places] for key, values in rows.items()}
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
    rng, total = stream(EVAL_SEED, 0, "evaluate"), None
    for batch in batches(rows, batch_size):
        found = eval_step(params, batch, rng)
        total = found if total is None else sums.add(total, found)
    return total


def measure_likelihood(
    token_nats: Callable,
    params,
    tokens: np.ndarray,
    batch_size: int,
    vocab: Vocab,
    bytes_per_token: float,
) -> dict[str, float]:
    """Bits per UTF-8 byte of the predicted text.

    Args:
      token_nats: (params, tokens [B, R]) -> nats [B, R - 1] of all but the first.
      tokens: int32 [n, R].
      bytes_per_token: of the whole split's raw text; taken where the tokens do not say
        how many bytes they stand for (`Vocab.token_bytes` is empty).
    """
    token_bytes = np.array(vocab.token_bytes)
    nats = num_bytes = 0.0
    for rows in batches({"tokens": tokens}, batch_size):
        counts = rows["row_weights"] > 0
        found = np.asarray(token_nats(params, rows["tokens"]), np.float64)[counts]
        nats += float(found.sum())
        if vocab.token_bytes:
            num_bytes += int(token_bytes[rows["tokens"][counts, 1:]].sum())
        else:
            num_bytes += found.size * bytes_per_token
    return {"bits_per_byte": sums.bits_per_byte(nats, num_bytes)}
