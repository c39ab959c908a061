"""Memory and time of cross-entropy over a vocabulary: all logits at once, in chunks.

    .venv/bin/python tests/benchmarks/loss.py

Loss, hits and the gradients of hidden states [M, E] and of the table [V, E]. Memory is
the temporary memory of the compiled program (`memory_analysis().temp_size_in_bytes`),
time the median of the rounds, in which both alternate. A program that needs more than
--max_gib is compiled and not run. Without --chunk, the chunks are those of
`model.loss_chunk=0`.
"""

import argparse
import functools
import json
import statistics
import time
from pathlib import Path

import jax
import jax.numpy as jnp

from jaxpt.ops import chunked_loss, losses


def mean_loss(kernel, x, targets, weights, chunk):
    """The mean loss, and the top-1 and top-5 hits."""
    scores = chunked_loss.score(x, kernel.T, None, targets, weights, chunk)
    total, weight = scores.loss
    hits = [losses.rank_hits(scores.ranks, weights, k)[0] for k in (1, 5)]
    return total / weight, hits


def compile_both(num_rows, width, vocab_size, dtype, chunk):
    """{name: compiled}; "whole" has all logits at once."""
    shapes = {
        "kernel": ((vocab_size, width), jnp.float32),
        "x": ((num_rows, width), dtype),
        "targets": ((num_rows,), jnp.int32),
        "weights": ((num_rows,), jnp.float32),
    }
    args = [jax.ShapeDtypeStruct(*shape) for shape in shapes.values()]
    result = {}
    for name, rows in (("whole", num_rows), ("chunks", chunk)):
        grad = jax.grad(functools.partial(mean_loss, chunk=rows), (0, 1), has_aux=True)
        result[name] = jax.jit(grad).lower(*args).compile()
    return result


def make_inputs(num_rows, width, vocab_size, dtype):
    """A table, hidden states, targets and weights."""
    keys = jax.random.split(jax.random.key(0), 3)
    return (
        jax.random.normal(keys[0], (vocab_size, width)) * 0.05,
        jax.random.normal(keys[1], (num_rows, width)).astype(dtype),
        jax.random.randint(keys[2], (num_rows,), 0, vocab_size),
        jnp.ones(num_rows),
    )


def measure(num_rows, width, vocab_size, dtype, chunk, rounds, max_gib) -> dict:
    """One line of the table."""
    programs = compile_both(num_rows, width, vocab_size, dtype, chunk)
    line = {"vocab_size": vocab_size}
    for name, program in programs.items():
        needed = program.memory_analysis().temp_size_in_bytes / 2**30
        line[f"{name}_gib"] = needed
    inputs = make_inputs(num_rows, width, vocab_size, dtype)
    chosen = {k: p for k, p in programs.items() if line[f"{k}_gib"] <= max_gib}
    seconds = {name: [] for name in chosen}
    for i in range(rounds + 1):
        for name, program in chosen.items():
            start = time.perf_counter()
            jax.block_until_ready(program(*inputs))
            if i:  # the first warms up
                seconds[name].append(time.perf_counter() - start)
    return line | {f"{k}_ms": 1e3 * statistics.median(v) for k, v in seconds.items()}


def main():
    """Prints the table, and writes it as JSON where it is told to."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument(
        "--vocab", type=int, nargs="*", default=[2**i for i in range(10, 18)]
    )
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--chunk", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--max_gib", type=float, default=4.0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    device = jax.devices()[0].device_kind
    print(f"M {args.rows}, E {args.width}, {args.dtype}, {device}")
    print("      V   whole GiB  chunks GiB    whole ms   chunks ms   speed")
    lines = []
    for vocab_size in args.vocab:
        sizes = args.rows, args.width, vocab_size, jnp.dtype(args.dtype)
        line = measure(*sizes, args.chunk, args.rounds, args.max_gib)
        lines.append(line)
        times = [line.get(f"{name}_ms") for name in ("whole", "chunks")]
        cells = [f"{ms:11.1f}" if ms else f"{'-':>11}" for ms in times]
        speed = f"{times[0] / times[1]:7.2f}" if all(times) else f"{'-':>7}"
        memory = f"{line['whole_gib']:11.3f} {line['chunks_gib']:11.3f}"
        print(f"{vocab_size:7d} {memory} {' '.join(cells)} {speed}", flush=True)
    if args.json:
        about = vars(args) | {"json": str(args.json), "device": device}
        args.json.write_text(json.dumps({"about": about, "lines": lines}, indent=2))


if __name__ == "__main__":
    main()
