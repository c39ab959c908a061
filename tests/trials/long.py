"""A long run with many readers: `python tests/trials/long.py [STEPS [READERS]]`.

A tiny model is trained for 50,000 steps with a checkpoint every 100. Its memory, open
files and threads are sampled and printed. Over the second half, only memory may grow,
by `MOST_BYTES` for each checkpoint. At the same time 64 processes read the run: they
restore its newest checkpoint, generate, verify its files and report. Each must succeed,
or be refused in one line because the run is not finished; none may write into its
folder. The run must log each step once.
"""

import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from counting import ROOT, Count
from faults import is_line
from forked import SERVER
from killed import preload
from tiny import write_config

TEXT = "the state of the union is strong and the people are free. " * 60
EVERY = 100  # steps between checkpoints
# By which memory may grow for each checkpoint: some objects of tensorstore's specs and
# metrics, which Orbax makes for a save, stay in memory.
MOST_BYTES = 100_000
NUM_LOADS = 3  # by a reader, one after another


class Sample(NamedTuple):
    """What a process has at a step."""

    step: int
    bytes: int
    files: int
    threads: int


def sample(process: subprocess.Popen, run: Path) -> Sample | None:
    """None if the process has ended, or has logged nothing yet."""
    folder = Path("/proc", str(process.pid))
    try:
        lines = (run / "metrics.jsonl").read_text().splitlines()
        step = json.loads(lines[-1])["step"]
        pages = int((folder / "statm").read_text().split()[1])
        files, threads = (len(os.listdir(folder / x)) for x in ("fd", "task"))
    except (OSError, ValueError, IndexError):
        return None
    return Sample(step, pages * os.sysconf("SC_PAGESIZE"), files, threads)


def load_often(run: str) -> int:
    """Restores the newest checkpoint again and again; 0 if its step never falls."""
    import jax
    import numpy as np

    from jaxpt.runs.workdir import load_run

    last = 0
    for _ in range(NUM_LOADS):
        _, _, params, step = load_run(Path(run))
        if step < last or not all(
            np.isfinite(x).all() for x in jax.tree.leaves(params)
        ):
            return 1
        last = step
    return 0


def read(number: int, run: str, place: str) -> None:
    """In a new process: reads the run in one of four ways."""
    folder = Path(place, str(number))
    folder.mkdir()
    os.chdir(folder)
    for handle, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), handle)
    os.environ["JAXPT_CACHE"] = str(folder / "cache")
    logging.getLogger().handlers.clear()  # of modules that the server has imported
    from jaxpt.cli.main import main

    commands = (
        ["generate", "--workdir", run, "--prompt=the", "--num_tokens=2"],
        ["doctor", run],
        ["report", "--runs", run, "--workdir=new"],
    )
    way = number % (1 + len(commands))
    code = main(commands[way - 1]) if way else load_often(run)
    sys.stdout.flush()
    os._exit(code)


def is_good(number: int, code: int | None, place: Path) -> str:
    """What a reader did wrong; "" if nothing."""
    output, errors = ((place / str(number) / x).read_text() for x in ("out", "err"))
    is_refused = code == 2 and is_line(errors) and number % 4 == 3
    if (code == 0 and "Traceback" not in errors) or is_refused:
        return ""
    return f"reader {number}: exit code {code}: {output[-500:]} {errors[-500:]}"


def is_flat(samples: list[Sample]) -> bool:
    """Whether nothing grows over the second half, but memory within `MOST_BYTES`.

    A save has threads and files open, so at the end there may be as many as before.
    """
    half = [each for each in samples if each.step >= samples[-1].step / 2]
    first, last = half[: len(half) // 3 or 1], half[-(len(half) // 3 or 1) :]

    def list_values(name: str, part: list[Sample]) -> list[int]:
        return [getattr(each, name) for each in part]

    def is_steady(name: str) -> bool:
        return min(list_values(name, last)) <= max(list_values(name, first))

    grown = min(list_values("bytes", last)) - min(list_values("bytes", first))
    num_saves = (last[-1].step - first[0].step) / EVERY
    return (
        is_steady("files") and is_steady("threads") and grown < MOST_BYTES * num_saves
    )


def watch(
    process: subprocess.Popen, run: Path, steps: int, place: Path, num: int
) -> tuple[list[Sample], list]:
    """Samples the run until its last step; starts all readers at its third checkpoint.

    Returns:
      The samples, and the processes of the readers.
    """
    samples: list[Sample] = []
    readers: list = []
    while process.poll() is None:
        if (found := sample(process, run)) and 0 < found.step < steps and found.bytes:
            samples.append(found)
        if not readers and samples and samples[-1].step >= 300:
            args = [(i, str(run), str(place)) for i in range(num)]
            readers = [SERVER.Process(target=read, args=each) for each in args]
            for reader in readers:
                reader.start()
        time.sleep(0.5)
    for reader in readers:
        reader.join()
    return samples, readers


def main() -> int:
    steps, num = (
        int(x) for x in [*sys.argv[1:], *("50000", "64")[len(sys.argv) - 1 :]]
    )
    preload()
    count = Count()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        run, place = root / "run", root / "readers"
        place.mkdir()
        os.environ["JAX_COMPILATION_CACHE_DIR"] = f"{folder}/compiled"
        os.environ["JAXPT_CACHE"] = f"{folder}/cache"
        (root / "text.txt").write_text(TEXT)
        changes = {"train__steps": steps, "train__steps_per_call": 50}
        changes |= {"train__checkpoint_every": EVERY, "train__log_every": 100}
        write_config(root / "config.py", root / "text.txt", **changes)
        command = [sys.executable, "-m", "jaxpt", "train", "--quiet"]
        command += ["--config", str(root / "config.py"), "--workdir", str(run)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        samples, readers = watch(process, run, steps, place, num)
        for each in samples[:: max(1, len(samples) // 12)] + samples[-1:]:
            print(
                f"step {each.step}: {each.bytes / 1e6:.1f} MB, {each.files} files, "
                f"{each.threads} threads"
            )
        count.add(process.returncode == 0, f"training: {process.returncode}")
        count.add(is_flat(samples), "memory, open files or threads grow")
        for number, reader in enumerate(readers):
            fault = is_good(number, reader.exitcode, place)
            count.add(not fault, fault)
        lines = (run / "metrics.jsonl").read_text().splitlines()
        logged = [x["step"] for x in map(json.loads, lines) if "loss" in x]
        count.add(logged == [*range(100, steps + 1, 100)], "steps are logged once")
        left = {path.name for path in run.iterdir()}
        count.add(not any("partial" in name for name in left), f"left: {left}")
    return count.close()


if __name__ == "__main__":
    sys.exit(main())
