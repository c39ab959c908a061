"""Training speed compared with transformers in PyTorch, of the same sizes and settings.

    make test-peers   # once, for an environment with torch
    .venv-peers/bin/python tests/benchmarks/training
    .venv-peers/bin/python tests/benchmarks/training --group gpu --dtype bfloat16 \\
        --compile

Both sides run complete training steps (forward, backward, clipping, AdamW) on prepared
rows; jaxpt corrupts them in the step, the peer gets corrupted rows. Each side is a
separate process for all rounds, and jaxpt's is set up as by `jaxpt train`. Rounds
alternate; the ratio is the better peer's time divided by jaxpt's, the median over
rounds. The first steps, compilation included, have a separate column; `--starts`
measures only them, from the start of the process, for jaxpt with an empty compilation
cache and then with a full one. Tokens are raw tokens (T5: of encoder and decoder), the
same for both sides. MFU is the FLOP count of `jaxpt.nn.flops` (every product, attention
not halved for causality, the head at predicted positions only) divided by the device's
dense bfloat16 peak. Memory is the device's peak; on a CPU that of the process.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.append(str(HERE.parent))
from host import describe_host  # noqa: E402
from sizes import CASES, GROUPS  # noqa: E402

HEADER = (
    f"{'case':24s} {'side':14s} {'params':>12s} {'ms/step':>9s} {'tokens/s':>10s} "
    f"{'MFU':>6s} {'memory':>8s} {'first':>7s} {'ratio':>6s}"
)


class Side:
    """A process that makes steps when it is told to."""

    def __init__(self, script: str, settings: dict, peers: bool, **variables: str):
        env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **variables}
        env["PYTHONPATH"] = os.pathsep.join(
            [str(HERE.parents[2]), str(HERE), env.get("PYTHONPATH", "")]
        )
        if peers:  # all sides must find room on one device
            env["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.4"
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / script), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )
        self.rounds, self._start = [], time.perf_counter()

    def wait(self) -> "Side":
        """Reads what it says after its first steps."""
        self.about = self.read()
        self.start_seconds = time.perf_counter() - self._start
        return self

    def read(self) -> dict:
        """The next line that it says."""
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise SystemExit(f"{self.process.args[1]} ended without an answer")

    def go(self, steps: int) -> float:
        """Seconds a step."""
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        self.rounds.append(self.read())
        return self.rounds[-1]["seconds"]

    def close(self) -> None:
        """Ends the process."""
        self.process.stdin.close()
        self.process.wait()


def make_given(name: str, args) -> dict:
    """What both sides are told of a case."""
    settings = {
        "case": name,
        "dtype": args.dtype,
        "dropout": args.dropout,
        "steps_per_call": args.steps_per_call,
        "settings": dict(pair.split("=", 1) for pair in args.set),
        "precision": args.precision,
        "trace": args.trace and str(args.trace / name),
    }
    for key, value in settings["settings"].items():
        settings["settings"][key] = {"True": True, "False": False}.get(value, value)
    return settings


def list_peers(args, lengths: dict) -> dict[str, dict]:
    """What each form of the peer is told beside."""
    forms = [(a, c) for a in args.attention for c in (False, True)[: 1 + args.compile]]
    return {
        f"torch {attention}{'+c' if is_compiled else ''}": {
            "attention": attention,
            "compile": is_compiled,
            "lengths": lengths,
        }
        for attention, is_compiled in forms
    }


def measure_starts(name: str, args) -> dict:
    """Seconds from the start of a process to the end of its first steps, by side."""
    settings, result = make_given(name, args), {"case": name}
    with tempfile.TemporaryDirectory() as cache:
        for label in ("jaxpt cold", "jaxpt warm"):
            side = Side("ours.py", settings, False, JAX_COMPILATION_CACHE_DIR=cache)
            lengths = side.read()["lengths"]
            side.wait()
            result[label] = side.start_seconds
            side.close()
    for label, more in list_peers(args, lengths).items():
        side = Side("peer.py", settings | more, True).wait()
        result[label] = side.start_seconds
        side.close()
    return result


def measure(name: str, args, cache: str) -> list[dict]:
    """Both sides of a case, round by round; `cache` is an empty folder."""
    settings = make_given(name, args)
    ours = Side(
        "ours.py", settings, bool(args.attention), JAX_COMPILATION_CACHE_DIR=cache
    )
    sides = {"jaxpt": ours}
    lengths = ours.read()["lengths"]
    if not args.together:
        ours.wait()
    for label, more in list_peers(args, lengths).items():
        sides[label] = Side("peer.py", settings | more, True)
        if not args.together:
            sides[label].wait()
    if args.together:
        for side in sides.values():
            side.wait()
    about = ours.about
    times = {label: [] for label in sides}
    for _ in range(args.rounds):
        for label, side in sides.items():
            time.sleep(args.rest)
            times[label].append(side.go(args.steps))
    peers = [label for label in sides if label != "jaxpt"]
    lines = []
    for label, side in sides.items():
        seconds = statistics.median(times[label])
        line = {
            "case": name,
            "side": label,
            "params": side.about["params"],
            "ms_per_step": 1000 * seconds,
            "tokens_per_second": about["tokens"] / seconds,
            "mfu": about["peak"] and about["flops"] / seconds / about["peak"],
            "memory": side.rounds[-1]["memory"],
            "first_seconds": side.about["compile_seconds"],
            "device": side.about["device"],
            "times": times[label],
        }
        if label == "jaxpt" and peers:
            best = [min(each) for each in zip(*(times[p] for p in peers), strict=True)]
            pairs = zip(best, times[label], strict=True)
            line["ratio"] = statistics.median(a / b for a, b in pairs)
        lines.append(line)
        side.close()
    return lines


def show(line: dict) -> str:
    """A line of the table."""
    mfu = f"{line['mfu']:.1%}" if line["mfu"] else "-"
    ratio = f"{line['ratio']:.2f}" if "ratio" in line else ""
    return (
        f"{line['case']:24s} {line['side']:14s} {line['params']:12,d} "
        f"{line['ms_per_step']:9.1f} {line['tokens_per_second']:10,.0f} {mfu:>6s} "
        f"{line['memory'] / 2**30:7.2f}G {line['first_seconds']:6.1f}s {ratio:>6s}"
    )


def main() -> None:
    """Prints the table, and writes it as JSON where it is asked for."""
    parser = argparse.ArgumentParser(
        "training", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--group", default="cpu", choices=GROUPS)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=[])
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument(
        "--attention", nargs="*", default=["sdpa"], choices=("eager", "sdpa")
    )
    parser.add_argument("--compile", action="store_true", help="torch.compile, too")
    parser.add_argument(
        "--precision", default="high", help="torch's float32 matmul precision on a GPU"
    )
    parser.add_argument(
        "--together", action="store_true", help="all sides start at the same time"
    )
    parser.add_argument(
        "--trace", type=Path, help="folder for a trace of jaxpt's steps"
    )
    parser.add_argument("--starts", action="store_true", help="the first steps alone")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="a round")
    parser.add_argument("--steps_per_call", type=int, default=5, help="jaxpt's")
    parser.add_argument("--rest", type=float, default=0.5, help="seconds, between")
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="SECTION.FIELD=VALUE", help="jaxpt's"
    )
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    args = parser.parse_args()
    print(describe_host())
    if not args.starts:
        print(HEADER)
    lines = []
    for name in args.cases or GROUPS[args.group]:
        if args.starts:
            lines.append(measure_starts(name, args))
            output = "  ".join(
                f"{label} {seconds:.1f} s"
                for label, seconds in lines[-1].items()
                if label != "case"
            )
            print(f"{name:24s} {output}", flush=True)
        else:
            with tempfile.TemporaryDirectory() as cache:
                result = measure(name, args, cache)
            lines += result
            print("\n".join(show(line) for line in result), flush=True)
        if args.json:
            args.json.write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    main()
