"""The cost of a step by length, vocabulary, depth and number of devices.

    .venv/bin/python tests/benchmarks/curves.py
    .venv/bin/python tests/benchmarks/curves.py --curves depth --time

The causal model of 4 layers x 256 with one size increased at a time: counted FLOPs,
temporary memory of a step as planned by XLA (MiB on each device), seconds to compile,
and with --time seconds per step. On a CPU, devices are simulated, which is useful for
compilation and memory but not for time. Every point is a separate process without a
compilation cache.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "training"), str(HERE.parents[1])]

CURVES = {
    "length": (128, 512, 1024, 2048, 4096, 8192),
    "vocabulary": (1024, 8192, 32768, 131072),
    "depth": (12, 24, 48),
    "devices": (1, 2, 4, 8),
}


def measure_point(curve: str, value: int, args) -> dict:
    """Compiles one step, in this process."""
    import jax
    import numpy as np
    from ours import make_config, make_vocab
    from sizes import CASES

    from jaxpt.config.plan import make_plan
    from jaxpt.runs.program import Program
    from jaxpt.runs.task import make_task

    case = CASES["clm-4x256"]
    changes = dict(case.changes)
    if curve == "length":
        changes["max_len"] = value
        case = dataclasses.replace(case, length=value)
    if curve == "vocabulary":
        changes["vocab_size"] = value
    if curve == "depth":
        changes["num_layers"] = value
    settings = dict(pair.split("=", 1) for pair in args.set)
    booleans = {"True": True, "False": False}
    case = dataclasses.replace(
        case,
        changes=changes,
        settings={k: booleans.get(v, v) for k, v in settings.items()},
    )
    plan = make_plan(make_config(case, args.dtype, 0.0, 1))
    task = make_task(plan, make_vocab(plan.model.vocab_size))
    program = Program(task)
    state = program.run_form(program.init_state(0))
    shape = (1, case.batch, task.spec.row_length)
    rows = {"tokens": np.full(shape, 7, np.int32), "index": np.zeros(shape[:2], int)}
    rows["index"] = rows["index"].astype(np.int32)
    stack = program.place(rows)
    seconds = program.train_call.compile(state, stack)
    compiled = program.train_call[stack]
    result = {
        "flops": task.count_costs(1)["flops"],
        "temp": compiled.memory_analysis().temp_size_in_bytes,
        "compile_seconds": seconds,
        "devices": len(program.devices),
    }
    if args.time:
        times = []
        for _ in range(4):
            start = time.perf_counter()
            state, metrics = program.train_call(state, stack, 0)
            jax.block_until_ready(metrics)
            times.append(time.perf_counter() - start)
        result["seconds"] = min(times[1:])
    return result


def start_point(curve: str, value: int) -> dict:
    """The same in a process of its own."""
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    if curve == "devices" and not env.get("XLA_FLAGS"):
        env["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={value}"
        env["NPROC"] = "32"  # threads to spare: an all-reduce waits for all devices
    command = [sys.executable, __file__, *sys.argv[1:], "--point", curve, str(value)]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Prints a table for each curve."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--curves", nargs="+", default=list(CURVES), choices=CURVES)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--time", action="store_true", help="steps are timed, too")
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="SECTION.FIELD=VALUE", help="settings"
    )
    parser.add_argument("--point", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.point:
        curve, value = args.point
        print(json.dumps(measure_point(curve, int(value), args)))
        return
    for curve in args.curves:
        print(f"{curve:>11s}       FLOPs   temp memory   compile   step")
        for value in CURVES[curve]:
            result = start_point(curve, value)
            step = f"{result['seconds']:6.2f}s" if "seconds" in result else "     -"
            print(
                f"{value:11,d} {result['flops']:11.3g} "
                f"{result['temp'] / 2**20:10,.0f} M "
                f"{result['compile_seconds']:8.1f}s {step}",
                flush=True,
            )


if __name__ == "__main__":
    main()
