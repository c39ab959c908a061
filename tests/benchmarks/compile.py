"""What depth costs the compiler, and what a loop over layers and remat cost a step.

    .venv/bin/python tests/benchmarks/compile.py [--json FILE]

A GPT of width 256 (4 heads, V 512, rows of 128 tokens, batches of 8, AdamW), in the
very call that `jaxpt train` compiles. Seconds to trace, lower and compile it, and to
draw fresh parameters, without the persistent cache and with JAX's own caches cleared;
the least of some rounds, by the clock and of all threads together (which a busy machine
does not change). Then milliseconds of a step at 4 layers. The goal is that 48 scanned
layers compile in at most 1.3 times the seconds of 12.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import numpy as np

from jaxpt.config.plan import make_plan
from jaxpt.config.settings import default_config
from jaxpt.runs.program import Program
from jaxpt.runs.task import make_task
from jaxpt.text.tokens.vocab import Vocab

VOCAB = Vocab(size=512, pad=0)
LENGTH, BATCH, STEPS = 128, 8, 4
FORMS = {"unrolled": False, "scanned": True}
REMATS = ("none", "dots", "full")


def make_program(num_layers: int, is_scanned: bool, remat: str = "none") -> Program:
    """A causal run of that depth, ready to be compiled."""
    config = default_config()
    config.data.row_length = LENGTH + 1
    config.model.update(
        {
            "num_layers": num_layers,
            "d_model": 256,
            "d_ff": 1024,
            "max_len": LENGTH,
            "activation": "gelu_tanh",
            "init": "gpt2",
            "scan_layers": is_scanned,
            "remat": remat,
        }
    )
    config.optim.weight_decay = 0.1
    config.train.batch_size = BATCH
    return Program(make_task(make_plan(config), VOCAB))


def make_rows() -> dict[str, np.ndarray]:
    """Random rows for one call."""
    draw = np.random.default_rng(0)
    shape = (STEPS, BATCH, LENGTH + 1)
    tokens = draw.integers(1, VOCAB.size, shape).astype(np.int32)
    index = np.arange(STEPS * BATCH).reshape(STEPS, BATCH)
    return {"tokens": tokens, "index": index}


def time_call(call) -> np.ndarray:
    """Seconds of a call: by the clock, and of all threads together."""
    start = time.perf_counter(), time.process_time()
    jax.block_until_ready(call())
    return np.array([time.perf_counter(), time.process_time()]) - start


def time_compiling(num_layers: int, is_scanned: bool) -> np.ndarray:
    """[2, 2] seconds: for the train call, and for fresh parameters."""
    program = make_program(num_layers, is_scanned)
    state, rows = program.abstract_state(), program.place(make_rows())
    times = []
    for call in (
        lambda: program.train_call.compile(state, rows),
        lambda: program.init_state(0),
    ):
        jax.clear_caches()
        times.append(time_call(call))
    return np.array(times)


def time_steps(is_scanned: bool, remat: str, num_calls: int = 8) -> np.ndarray:
    """[2] milliseconds of a step at 4 layers, the least of some calls."""
    program = make_program(4, is_scanned, remat)
    state, rows = program.init_state(0), program.place(make_rows())

    def call():
        nonlocal state
        state, result = program.train_call(state, rows, 0)
        return result

    call()
    times = [time_call(call) for _ in range(num_calls)]
    return 1000 * np.min(times, axis=0) / STEPS


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, nargs="+", default=[12, 24, 48])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    jax.config.update("jax_enable_compilation_cache", False)
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}")
    out = {}
    for form, is_scanned in FORMS.items():
        for depth in args.layers:
            rounds = [time_compiling(depth, is_scanned) for _ in range(args.rounds)]
            (step, step_cpu), (init, init_cpu) = np.min(rounds, axis=0).tolist()
            out[f"{form} {depth} layers"] = {
                "compile_s": step,
                "compile_cpu_s": step_cpu,
                "init_s": init,
                "init_cpu_s": init_cpu,
            }
            first = out[f"{form} {args.layers[0]} layers"]
            print(
                f"{form:8s} {depth:3d} layers: train call {step:6.1f} s "
                f"({step_cpu:.1f} of CPU), {step / first['compile_s']:.2f} "
                f"({step_cpu / first['compile_cpu_s']:.2f}) times {args.layers[0]}; "
                f"fresh parameters {init:6.1f} s ({init_cpu:.1f})",
                flush=True,
            )
    for form, is_scanned in FORMS.items():
        for remat in REMATS:
            ms, cpu = time_steps(is_scanned, remat).tolist()
            out[f"{form} remat {remat}"] = {"step_ms": ms, "step_cpu_ms": cpu}
            print(
                f"{form:8s} remat {remat}: {ms:6.1f} ms a step ({cpu:.1f} of CPU)",
                flush=True,
            )
    if args.json:
        args.json.write_text(json.dumps(out, indent=2) + "\n")


if __name__ == "__main__":
    main()
