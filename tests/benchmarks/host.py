"""What the machine can do at best, printed beside the ratios measured on it."""

import os
import time

import numpy as np

SIZE = 1536  # of the matrices
NUM = 2**26  # float32 numbers that are copied, 256 MiB
ROUNDS = 7


def describe_host() -> str:
    """Its cores, GFLOP/s of a float32 product and GB/s of a copy, read and written.

    By NumPy, whose product uses all cores and whose copy one; the best of some rounds.
    """
    a = np.ones((SIZE, SIZE), np.float32)
    source = np.ones(NUM, np.float32)
    target = np.empty_like(source)
    product = _best_seconds(lambda: a @ a)
    copy = _best_seconds(lambda: np.copyto(target, source))
    speed, stream = 2 * SIZE**3 / product / 1e9, 2 * source.nbytes / copy / 1e9
    return (
        f"host: {os.cpu_count()} cores, {speed:,.0f} GFLOP/s in a product of {SIZE} x "
        f"{SIZE}, {stream:.1f} GB/s in a copy"
    )


def _best_seconds(call) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best
