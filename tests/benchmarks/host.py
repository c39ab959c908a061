"""What the machine can do at best, printed beside the ratios measured on it.

A CPU with AVX-512 imitates one with AVX2 if both sides are restricted:

    export XLA_FLAGS=--xla_cpu_max_isa=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 \\
        ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 OPENBLAS_CORETYPE=Haswell
"""

import os
import time

import numpy as np

from jaxpt.training.machine import read_machine

# Variables that restrict XLA, oneDNN, PyTorch, MKL and OpenBLAS.
RESTRICTIONS = (
    "XLA_FLAGS",
    "ONEDNN_MAX_CPU_ISA",
    "ATEN_CPU_CAPABILITY",
    "MKL_ENABLE_INSTRUCTIONS",
    "OPENBLAS_CORETYPE",
)

SIZE = 1536  # of the matrices
NUM = 2**26  # float32 numbers that are copied, 256 MiB
ROUNDS = 7


def describe_host() -> str:
    """CPU, cores, GFLOP/s of a float32 product and GB/s of a copy, read and written.

    By NumPy, whose product uses all cores and whose copy one; the best of some rounds.
    """
    a = np.ones((SIZE, SIZE), np.float32)
    source = np.ones(NUM, np.float32)
    target = np.empty_like(source)
    product = _best_seconds(lambda: a @ a)
    copy = _best_seconds(lambda: np.copyto(target, source))
    speed, stream = 2 * SIZE**3 / product / 1e9, 2 * source.nbytes / copy / 1e9
    machine = read_machine()
    restrictions = [
        f"{name}={os.environ[name]}" for name in RESTRICTIONS if os.environ.get(name)
    ]
    return (
        f"host: {machine['cpu']}, {machine['instructions']}, {machine['cores']} cores, "
        f"{speed:,.0f} GFLOP/s in a product of {SIZE} x {SIZE}, {stream:.1f} GB/s in a "
        f"copy" + "".join(f"\n  with {each}" for each in restrictions)
    )


def _best_seconds(call) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best
