"""Peak memory and time of a report of many runs, which are copies of a small one.

    .venv/bin/python tests/benchmarks/many_runs.py --num 200

The copies differ in their seeds and, by a little, in their values by example.
"""

import argparse
import json
import resource
import shutil
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np

import jaxpt
from jaxpt.comparison import runs_report
from jaxpt.files import checksums
from jaxpt.files.folder import write_json
from jaxpt.runs.workdir import load_examples, write_examples

RELEASES = Path(__file__).resolve().parents[1] / "releases"


def copy_run(source: Path, to: Path, seed: int) -> None:
    """A copy of a run, without checkpoints, with another seed and other values."""
    shutil.copytree(source, to, ignore=shutil.ignore_patterns("checkpoints"))
    draw = np.random.default_rng(seed)
    for name, change in (("config.json", {}), ("result.json", {"seed": seed})):
        values = json.loads((to / name).read_text()) | change
        if name == "config.json":
            values["train"]["seed"] = seed
        write_json(to / name, values)
    examples = {
        name: columns._replace(
            totals=columns.totals * draw.normal(1, 0.02, len(columns.totals))
        )
        for name, columns in load_examples(to).items()
    }
    write_examples(to, examples)
    checksums.record(to, ["metrics.jsonl"])


def peak() -> float:
    """The peak memory of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def watch(name: str) -> None:
    """Prints the peak memory and the time after each call of a step of the report."""
    function = getattr(runs_report, name)

    def call(*args, **options):
        begun = time.process_time()
        result = function(*args, **options)
        seconds = time.process_time() - begun
        print(f"{name}: {seconds:.1f} s, peak {peak():.0f} MB", flush=True)
        return result

    setattr(runs_report, name, call)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--num", type=int, default=200, help="runs, of two objectives")
    num = parser.parse_args().num
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        with tarfile.open(RELEASES / f"{jaxpt.__version__}.tar.xz") as archive:
            archive.extractall(root, filter="data")
        folders = []
        for i in range(num):
            name = ("clm", "mlm")[i % 2]
            folders.append(root / "runs" / f"{name}-seed{i // 2}")
            copy_run(root / f"{name}-seed0", folders[-1], i // 2)
        print(f"imports and copies: peak {peak():.0f} MB", flush=True)
        for step in ("load_runs", "_load_texts", "assemble", "publish"):
            watch(step)
        begun = time.process_time()
        runs_report.report_runs(folders, root / "page")
        seconds = time.process_time() - begun
        print(f"{num} runs: {seconds:.1f} s, peak {peak():.0f} MB")


if __name__ == "__main__":
    sys.exit(main())
