"""Memory, kernels and communication of a run, from XLA's compilers without the device.

    make .venv-aot/ready   # once: an environment with libtpu and the CUDA plugin
    .venv-aot/bin/python tests/benchmarks/aot clm gpt2 1024 32 --target h200
    .venv-aot/bin/python tests/benchmarks/aot clm gpt2 1024 64 --target v5e:2x4 \\
        --set train.fsdp=8 --set model.scan_layers=True --json FILE

Compiles the call of `jaxpt train` for abstract arrays on a described device, and
reports whether it fits, the memory of each device, kernels and collectives, and the
bytes that the kernels read and write. It does not predict time: a GPU's products have
Triton's default sizes, because tuning needs a GPU, and the cycles that a TPU's compiler
estimates ignore Pallas kernels and waiting. One compilation takes 5 to 100 seconds on a
CPU.
"""

import argparse
import ast
import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # else libtpu looks for a machine
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # several may compile at once
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).resolve().parent))

import jax
import numpy as np
from program_text import analyse
from target import Target

from jaxpt.config.plan import make_plan
from jaxpt.config.settings import default_config
from jaxpt.errors import UserError
from jaxpt.nn.presets import get_preset
from jaxpt.runs import sharding
from jaxpt.runs.program import Program
from jaxpt.runs.task import Task, make_task
from jaxpt.text.rows.rows_spec import SEGMENTED
from jaxpt.text.tokens.vocab import Vocab

STEPS = 2  # in a call
NUM_SENTINELS = 100
MIB, GIB = 2**20, 2**30


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("objective", help="its name, as in --config.objective")
    parser.add_argument("preset", help="a published size, as in configs/family.py")
    parser.add_argument("length", type=int, help="tokens that the model reads at once")
    parser.add_argument("batch", type=int, help="rows in a step, over all devices")
    parser.add_argument(
        "--target",
        default="h200",
        help="h200, h200:8, b200, v5e:1x1, v5e:2x4, v6e:..., tpu7x:2x2x1, or cpu",
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="SECTION.FIELD=VALUE"
    )
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument(
        "--no_dropout", action="store_true", help="all three rates are 0"
    )
    parser.add_argument(
        "--top", type=int, default=0, help="show the operations that move most bytes"
    )
    parser.add_argument("--by_cycles", action="store_true", help="--top by cycles")
    parser.add_argument("--hlo", type=Path, help="file for the optimized program")
    parser.add_argument("--json", type=Path, help="file for the table")
    return parser.parse_args()


def make_case(args: argparse.Namespace) -> Task:
    """The task of the arguments, with ids as published sizes have them."""
    config, spec = default_config(), get_preset(args.preset)
    for name in config.model:
        config.model[name] = getattr(spec, name)
    config.model.dtype = args.dtype
    if args.no_dropout:
        for name in ("dropout", "embed_dropout", "attention_dropout"):
            config.model[name] = 0.0
    config.objective = args.objective
    config.data.seq_len = args.length
    if args.objective == "electra":
        config.electra.generator_size = 1 / 3
    config.optim.weight_decay = 0.01
    config.train.batch_size = args.batch
    explicit_names = {"train.batch_size", *(f"model.{name}" for name in config.model)}
    for setting in args.set:
        name, _, value = setting.partition("=")
        section, _, field = name.partition(".")
        if section not in config or field not in config[section]:
            raise UserError(f"--set={setting}: must be a setting, SECTION.FIELD=VALUE")
        try:
            value = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            pass
        config[section][field] = value
        explicit_names.add(name)
    plan = make_plan(config, explicit_names)
    size = plan.model.vocab_size
    sentinels = tuple(range(size - 1, size - 1 - NUM_SENTINELS, -1))
    specials = {"pad": 0, "eos": 1, "mask": 2, "cls": 3, "sep": 4, "bos": 5}
    return make_task(plan, Vocab(size, **specials, sentinels=sentinels))


def make_rows(task: Task, batch: int) -> dict:
    """Shapes of the rows of a call, with what their form carries."""
    shape = STEPS, batch, task.spec.row_length
    rows = {"tokens": shape, "index": shape[:2]}
    if task.plan.rows.rows in SEGMENTED:
        rows["segment_ids"] = shape
    if task.plan.rows.rows in ("pairs", "ordered_pairs"):
        rows |= {"type_ids": shape, "is_random_next": shape[:2]}
    return {k: jax.ShapeDtypeStruct(s, np.int32) for k, s in rows.items()}


def describe(
    program: Program, task: Task, rows: dict, target: Target, seconds: float
) -> dict:
    """The table of a compiled call, per step and per device."""
    compiled = program.train_call[rows]
    memory, result = compiled.memory_analysis(), analyse(compiled.as_text())
    held, whole = sharding.count_bytes(program.abstract_state())
    peak = (
        memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        - memory.alias_size_in_bytes
        + memory.temp_size_in_bytes
        + memory.generated_code_size_in_bytes
    )
    ours = task.count_costs(STEPS)["flops"] / len(target.devices)
    products = sum(product[0] for product in result["products"])
    wide = [p for p in result["products"] if "f32" in p[1] and p[0] > 1e-3 * products]
    cycles = sum(result["cycles"].values())
    output = {
        "attention": task.list_kernels(),
        "compile_seconds": seconds,
        "state_mib": held / MIB,
        "whole_state_mib": whole / MIB,
        "donated_mib": memory.alias_size_in_bytes / MIB,
        "temporary_gib": memory.temp_size_in_bytes / GIB,
        "peak_gib": peak / GIB,
        "device_gib": target.gib,
        "our_flops": ours / STEPS,
        "product_flops": products / STEPS,
        "float32_products": sorted({(p[1], p[2], p[3][-60:]) for p in wide}),
        "kernels": {k: n / STEPS for k, n in result["kernels"].items()},
        "collectives": {k: n / STEPS for k, n in result["collectives"].items()},
        "collective_mib": {
            k: n / STEPS / MIB for k, n in result["collective_bytes"].items()
        },
        "collective_part_mib": {
            k: n / STEPS / MIB for k, n in result["collective_parts"].items()
        },
        "moved_gib": {k: n / STEPS / GIB for k, n in result["moved"].most_common()},
    }
    if cycles and target.clock:
        output["cycles_ms"] = {
            k: n / STEPS / target.clock * 1e3 for k, n in result["cycles"].most_common()
        }
    output["ops"] = result["ops"]
    return output


def print_table(output: dict) -> None:
    """One line for each thing."""

    def line(name: str, value: str) -> None:
        print(f"  {name:26}{value}")

    def list_numbers(numbers: dict, form: str) -> str:
        return ", ".join(f"{k} {n:{form}}" for k, n in numbers.items() if n) or "none"

    line("attention", "; ".join(output["attention"]))
    line("compiled in", f"{output['compile_seconds']:.0f} s")
    of = (
        f"of {output['whole_state_mib']:,.0f} MiB; donated {output['donated_mib']:,.0f}"
    )
    line("state of a device", f"{output['state_mib']:,.0f} {of}")
    line("temporaries", f"{output['temporary_gib']:.2f} GiB")
    room = f" of {output['device_gib']} GiB" if output["device_gib"] else " GiB"
    line("peak", f"{output['peak_gib']:.2f}{room}")
    share = output["product_flops"] / output["our_flops"]
    counted = f"{output['our_flops']:.4g} counted by jaxpt, {share:.1%} in the program"
    line("FLOPs of a step", counted)
    wide = "; ".join(" ".join(each) for each in output["float32_products"])
    line("float32 products", wide or "none")
    line("kernels a step", list_numbers(output["kernels"], "g"))
    line("collectives a step", list_numbers(output["collectives"], "g"))
    line("MiB that they exchange", list_numbers(output["collective_mib"], ",.1f"))
    line("of them", list_numbers(output["collective_part_mib"], ",.1f"))
    moved = output["moved_gib"]
    total = f"{sum(moved.values()):.2f}: "
    line("GiB moved by kernels", total + list_numbers(moved, ".2f"))
    if "cycles_ms" in output:
        total = f"{sum(output['cycles_ms'].values()):.1f}: "
        line("ms by cycles", total + list_numbers(output["cycles_ms"], ".1f"))


def main() -> int:
    args = read_arguments()
    target = Target(args.target)
    print(" ".join(sys.argv[1:]), flush=True)
    with target.in_place():
        task = make_case(args)
        program = Program(task, target.devices)
        state, rows = program.abstract_state(), make_rows(task, args.batch)
        start = time.perf_counter()
        try:
            seconds = program.train_call.compile(state, rows)
        except jax.errors.JaxRuntimeError as error:
            message = str(error).split("\n")[0][:400]
            print(f"  refused after {time.perf_counter() - start:.0f} s: {message}")
            return 1
        output = describe(program, task, rows, target, seconds)
    if args.hlo:
        args.hlo.write_text(program.train_call[rows].as_text())
    ops = output.pop("ops")
    print_table(output)
    by = 1 if args.by_cycles else 0
    for op in sorted(ops, key=lambda op: -op[by])[: args.top]:
        moved, cycles, times, *rest = op
        print(f"  {moved / STEPS / MIB:10,.1f} MiB {cycles:12,} x{times:<5}", *rest)
    if args.json:
        args.json.write_text(json.dumps(vars(args) | output, default=str, indent=1))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(f"error: {error}")
