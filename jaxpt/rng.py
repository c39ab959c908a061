"""Random keys as functions of (seed, step, purpose), so that no key is ever stored.

A run resumes exactly from its `TrainState`, and any single step can be replayed.
"""

import jax

Scalar = int | jax.Array  # int32

# Never change a number: old runs would no longer be reproducible.
PURPOSES = {"init": 0, "train": 1, "evaluate": 2, "sample": 3, "probe": 4}


def stream(seed: Scalar, step: Scalar, purpose: str) -> jax.Array:
    """The key of one step for one purpose.

    Args:
      seed: may be traced, so that all seeds share a compiled step.
      step: 0 for the first.
      purpose: a name in `PURPOSES`.

    Raises:
      KeyError: the purpose is not in the table.

    >>> bool(stream(0, 5, "train") == stream(0, 5, "train"))
    True
    """
    key = jax.random.fold_in(jax.random.key(seed), PURPOSES[purpose])
    return jax.random.fold_in(key, step)


# The purposes of a training step's keys.
STEP_PURPOSES = ("corrupt", "dropout", "sample")


def split_step(rng: jax.Array) -> dict[str, jax.Array]:
    """The keys of one step by purpose: corruption, dropout, a generator's samples.

    >>> list(split_step(stream(0, 5, "train")))
    ['corrupt', 'dropout', 'sample']
    """
    keys = jax.random.split(rng, len(STEP_PURPOSES))
    return dict(zip(STEP_PURPOSES, keys, strict=True))


def row_keys(rng: jax.Array, index: jax.Array) -> jax.Array:
    """One key per row, from the row's index in the global batch.

    A row is thus corrupted in the same way on any number of devices and in any
    microbatch.

    Args:
      rng: one key.
      index: int32 [B], each row's index in the global batch.

    Returns:
      keys [B].
    """
    return jax.vmap(jax.random.fold_in, (None, 0))(rng, index)
