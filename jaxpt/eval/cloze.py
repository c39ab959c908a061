"""The cloze: one question to every objective that fills masks, whatever it trained on.

Each objective's own corruption makes its own question (whole words are harder to
restore than tokens are). Here all get the same tokens of the same rows hidden, by
[MASK] alone.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxpt.eval.evaluation import batches

CLOZE_RATE = 0.15
CLOZE_SEED = 0
MAX_LOGITS = 1 << 28  # scores that exist at once: 1 GiB


def hide(
    tokens: Int[np.ndarray, "N R"], specials: Int[np.ndarray, "S"]
) -> tuple[Int[np.ndarray, "N P"], Bool[np.ndarray, "N P"]]:
    """The places that are asked for: 15 % of each row, rounded, but 1 at least.

    Neither the first place nor the last is among them: objectives that read a token
    from the place before know nothing of the first, and need not read the last. Nor are
    special tokens.

    Returns:
      Places, and whether each counts: a row may have too few tokens to ask for.
    """
    num = min(max(1, round(tokens.shape[1] * CLOZE_RATE)), tokens.shape[1])
    draws = np.random.default_rng(CLOZE_SEED).random(tokens.shape)
    draws[np.isin(tokens, specials)] = 2
    draws[:, [0, -1]] = 2
    places = np.argsort(draws, axis=1, kind="stable")[:, :num].astype(np.int32)
    return places, np.take_along_axis(draws, places, 1) < 2


def score_hidden(
    logits: Float[Array, "B R V"],
    places: Int[Array, "B P"],
    targets: Int[Array, "B P"],
    allowed: Bool[Array, "V"],
) -> tuple[Float[Array, "B P"], Bool[Array, "B P"]]:
    """-log p of the hidden tokens in nats, and whether each is the likeliest answer."""
    found = jnp.take_along_axis(logits, places[:, :, None], axis=1)
    found = jnp.where(allowed, found.astype(jnp.float32), -jnp.inf)
    nll = -jnp.take_along_axis(jax.nn.log_softmax(found), targets[:, :, None], 2)
    return nll[..., 0], found.argmax(-1) == targets


def measure_cloze(
    fill_scores: Callable,
    params,
    tokens: Int[np.ndarray, "N R"],
    mask_id: int,
    banned: list[int],
    num_ids: int,
    batch_size: int,
    length: int,
) -> dict[str, float]:
    """How well hidden tokens of running text are filled in.

    Args:
      fill_scores: (params, {"tokens", "places", "targets"}, allowed) -> `score_hidden`
        of the logits for these tokens.
      banned: ids that are no answer; they are not asked for either.
      num_ids: that the model scores.
      length: tokens of a row that the model reads, all or all but the last.

    Returns:
      cloze_accuracy, of the likeliest answer, and cloze_bits, -log2 p of the true one;
      nothing where no row has a token to ask for.

    Raises:
      ValueError: the model reads less.
    """
    if length < tokens.shape[1] - 1:
        raise ValueError(f"{length} of {tokens.shape[1]} tokens: all but one are asked")
    places, counts = hide(tokens, np.array(banned, np.int32))
    targets = np.take_along_axis(tokens, places, 1)
    hidden = tokens.copy()
    rows, columns = np.nonzero(counts)
    hidden[rows, places[rows, columns]] = mask_id
    allowed = ~np.isin(np.arange(num_ids), banned)
    hidden = hidden[:, :length]
    parts = {"tokens": hidden, "places": places, "targets": targets, "counts": counts}
    size = max(1, min(batch_size, MAX_LOGITS // (tokens.shape[1] * num_ids)))
    nll = hits = asked = 0.0
    for batch in batches(parts, size):
        counts = batch.pop("counts") & (batch.pop("row_weights") > 0)[:, None]
        del batch["index"]
        found = fill_scores(params, batch, allowed)
        of_nll, of_hits = (np.asarray(x)[counts] for x in found)
        nll += float(of_nll.astype(np.float64).sum())
        hits += int(of_hits.sum())
        asked += int(counts.sum())
    if not asked:
        return {}
    return {"cloze_accuracy": hits / asked, "cloze_bits": nll / asked / math.log(2)}
