"""SIGKILL at random times, in saves of checkpoints and in training.

    python tests/trials/kills.py --repeat 50 --seed 7

Each repetition kills a process that only saves checkpoints; a tenth of them also kill a
training run. A kill in saves holds if the same command finds the last finished step or
a later one, with the values of that step. A killed run holds if, repeated, it ends with
the bits of an undisturbed run.
"""

import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from counting import ROOT, Count, read_arguments


def kill_saves(repeat: int, seed: int, count: Count) -> None:
    """Kills a process that saves; it checks what it restores at its next start."""
    from training.test_checkpoint import kill_and_resume

    with tempfile.TemporaryDirectory() as place:
        for i in range(repeat):
            failures: list = []
            kill_and_resume(Path(place) / "saves", seed + i, failures, 1)
            count.add(not failures, f"a kill in a save, --seed {seed + i}: {failures}")


def kill_training(repeat: int, seed: int, count: Count) -> None:
    """Kills a run at random times until it ends; its parameters are then compared."""
    from tiny import write_config
    from training.test_loop import final_hash

    from jaxpt.runs.workdir import load_task

    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        (root / "text.txt").write_text("the state of the union is strong. " * 400)
        changes = {"train__steps": 400, "train__checkpoint_every": 10}
        write_config(root / "config.py", root / "text.txt", objective="mlm", **changes)

        def start(name: str) -> subprocess.Popen:
            command = [sys.executable, "-m", "jaxpt", "train", "--quiet"]
            command += ["--config", root / "config.py", "--workdir", root / name]
            return subprocess.Popen(
                list(map(str, command)), cwd=ROOT, stdout=subprocess.DEVNULL
            )

        begun = time.monotonic()
        assert start("whole").wait() == 0
        longest = time.monotonic() - begun
        task, _ = load_task(root / "whole")
        expected = final_hash(task, root / "whole")
        for i in range(repeat):
            name, num_kills = f"run{i}", 0
            for _ in range(3):
                process = start(name)
                try:
                    process.wait(draw.uniform(0.3, 1) * longest)
                    break
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                    num_kills += 1
            code = start(name).wait()
            what = f"a run killed {num_kills} times, --seed {seed}: exit code {code}"
            is_same = code == 0 and final_hash(task, root / name) == expected
            count.add(is_same, what)


if __name__ == "__main__":
    values = read_arguments(__doc__, 20)
    counted = Count()
    kill_saves(values.repeat, values.seed, counted)
    kill_training(max(1, values.repeat // 10), values.seed, counted)
    sys.exit(counted.close())
