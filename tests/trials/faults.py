"""Trials of disks that fill, clocks that jump, locks that fail and folders that move.

    python tests/trials/faults.py [SEED] [full | clock | locks | moved]...

full: the disk is a small one (tmpfs), on which an undisturbed command would need more
than there is: at each of several amounts, whatever is written then. clock: the time of
the day jumps by years, back and forth, in a command that is killed and repeated. locks:
`flock` fails, as on a file system without locks. moved: the folder of a killed run is
copied to another place, and resumed there. A command must succeed, or fail in one line
with exit code 2; without the fault it then leaves the files of an undisturbed command.
"""

import contextlib
import errno
import fcntl
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from counting import Count
from killed import (
    CASES,
    COMPLETE,
    KILLED,
    TRAIN,
    Outcome,
    differ,
    make_all,
    preload,
    run,
    snapshot,
    start,
)

YEARS = 10 * 365 * 86_400.0  # seconds
BYTES = 64 << 20  # of the small disk
# Commands on the small disk, and at how many amounts of free space.
FULL = {"train": 10, "prepare": 4, "export": 4, "report": 4, "import": 4}
# What needs a lock, and what only reads.
LOCKED = ("prepare", "train", "finetune", "export", "import", "report", "archive")
GENERATE = ["generate", "--workdir=run", "--prompt=the", "--num_tokens=2"]


class Whole(NamedTuple):
    """What a command leaves that nothing disturbs.

    Attributes:
      steady: the names of the files that two such commands agree on.
    """

    outcome: Outcome
    steady: set[str]


def find_whole(made: Path, root: Path, command: list[str]) -> Whole:
    """Runs a command twice, each time in a new copy."""
    outcomes = []
    for _ in range(2):
        clear(root)
        fill(made, root)
        outcomes.append(run(root, 0, command, made))
        assert outcomes[-1].code == 0, outcomes[-1].errors
    one, other = outcomes
    return Whole(one, {n for n, x in one.files.items() if other.files.get(n) == x})


def clear(root: Path) -> None:
    """Empties a folder, which may be where a disk is mounted."""
    for path in root.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def fill(made: Path, root: Path) -> None:
    shutil.copytree(made, root, symlinks=True, dirs_exist_ok=True)


def is_line(errors: str) -> bool:
    """Whether a command has ended with one line, after any warnings of its own."""
    lines = errors.splitlines()
    lines = [line for line in lines if not line.startswith("jaxpt: warning: ")]
    return len(lines) == 1 and lines[0].startswith("jaxpt: error: ")


def is_told(outcome: Outcome) -> bool:
    """Whether a command has succeeded, or failed in one line."""
    return outcome.code == 0 or (outcome.code == 2 and is_line(outcome.errors))


def check(root: Path, made: Path, command: list[str], whole: Whole) -> str:
    """Repeats a command without the fault; "" if it then left what it should."""
    done = run(root, 0, command, made)
    if done.code and not any(text in done.errors for text in COMPLETE):
        return f"repeated: {done.errors[-300:]}"
    return " ".join(differ(done.files, whole.outcome.files, whole.steady)[:9])


@contextlib.contextmanager
def small_disk(place: Path) -> Iterator[None]:
    place.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={BYTES}", "none", str(place)]
    subprocess.run(mount, check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def try_full(made: Path, root: Path, draw: random.Random, count: Count) -> None:
    """Leaves less space than a command needs: a random amount of each n-th of it."""
    with small_disk(root):
        for name, num in FULL.items():
            command = CASES[name].command
            whole = find_whole(made, root, command)
            clear(root)
            fill(made, root)
            needed = measure_peak(root, made, command)
            for i in range(num):
                clear(root)
                fill(made, root)
                free = int(needed * (i + draw.random()) / num) >> 12 << 12
                ballast = root / "ballast"
                with open(ballast, "wb") as file:
                    os.posix_fallocate(file.fileno(), 0, count_free(root) - free)
                failed = run(root, 0, command, made)
                ballast.unlink()
                what = f"{name}, {free} of {needed} bytes free: {failed.errors[:1500]}"
                fault = check(root, made, command, whole)
                count.add(is_told(failed) and not fault, f"{what} {fault}")


def count_free(place: Path) -> int:
    stat = os.statvfs(place)
    return stat.f_bavail * stat.f_frsize


def measure_peak(root: Path, made: Path, command: list[str]) -> int:
    """The bytes of the disk that a command needs at the end, in whole pages."""
    before = count_free(root)
    assert run(root, 0, command, made).code == 0
    return before - count_free(root)


def jump_clock() -> None:
    """In the new process: each call of `time.time` is years away from the last."""
    draw, true = random.Random(os.getpid()), time.time
    time.time = lambda: true() + draw.choice((-1, 1)) * draw.random() * YEARS


def age_files(root: Path, draw: random.Random) -> None:
    """Gives every file of `new` a time of years before or after now."""
    for path in (root / "new").rglob("*"):
        then = time.time() + draw.uniform(-1, 1) * YEARS
        os.utime(path, (then, then), follow_symlinks=False)


def refuse_locks() -> None:
    """In the new process: `flock` fails as on NFS without a lock server."""

    def refuse(*args: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    fcntl.flock = refuse  # type: ignore[assignment]


def try_clock(made: Path, root: Path, draw: random.Random, count: Count) -> None:
    """A run is killed and repeated while the time jumps."""
    start(made, root)
    whole = find_whole(made, root, TRAIN)
    for _ in range(6):
        start(made, root)
        last = draw.randrange(1, whole.outcome.changes)
        killed = run(root, last, TRAIN, made, jump_clock)
        if (root / "new").exists():
            age_files(root, draw)
        done = run(root, 0, TRAIN, made, jump_clock)
        # Orbax's saves have a limit of time, by the clock that jumps.
        fault = check(root, made, TRAIN, whole)
        ends = killed.code == KILLED or is_told(killed)
        holds = ends and is_told(done) and not fault
        errors = f"{killed.code} {killed.errors[-900:]} {done.errors[-900:]}"
        count.add(holds, f"clock, killed at {last}: {errors} {fault}")


def try_locks(made: Path, root: Path, draw: random.Random, count: Count) -> None:
    """What writes is refused, and has changed nothing; what reads goes on."""
    for name in LOCKED:
        command = CASES[name].command
        start(made, root)
        before = snapshot(root)
        refused = run(root, 0, command, made, refuse_locks)
        # A text that was prepared for a command is kept in the cache.
        after = {n: x for n, x in snapshot(root).items() if n in before or "new" in n}
        holds = refused.code == 2 and is_line(refused.errors)
        holds &= "No locks available" in refused.errors
        count.add(holds and after.items() <= before.items(), f"{name}: {refused[:3]}")
    start(made, root)
    done = run(root, 0, GENERATE, made, refuse_locks)
    count.add(done.code == 0, f"generate: {done.errors}")


def try_moved(made: Path, root: Path, draw: random.Random, count: Count) -> None:
    """A killed run goes on in another folder, whose files have other times."""
    start(made, root)
    whole = find_whole(made, root, TRAIN)
    again = ["train", "--workdir=elsewhere", "--quiet"]
    tried = 0
    while tried < 6:
        start(made, root)
        last = draw.randrange(1, whole.outcome.changes)
        run(root, last, TRAIN, made)
        if not (root / "new" / "config.json").exists():  # no run yet
            continue
        tried += 1
        shutil.copytree(root / "new", root / "elsewhere", copy_function=shutil.copy)
        shutil.rmtree(root / "new")
        done = run(root, 0, again, made)
        (root / "elsewhere").rename(root / "new")
        steady = whole.steady - {"new/result.json: /workdir"}
        fault = differ(snapshot(root, made), whole.outcome.files, steady)
        holds = done.code == 0 and not fault
        count.add(holds, f"moved, killed at {last}: {done.errors[-300:]} {fault[:9]}")


TRIALS = {
    "full": try_full,
    "clock": try_clock,
    "locks": try_locks,
    "moved": try_moved,
}


def main() -> int:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    seed = int(sys.argv[1]) if sys.argv[1:] else 0
    total = Count()
    preload()
    with tempfile.TemporaryDirectory() as folder:
        made, root = Path(folder, "made"), Path(folder, "root")
        root.mkdir()
        os.environ["JAX_COMPILATION_CACHE_DIR"] = f"{folder}/compiled"
        make_all(root)  # here, as stored paths may be absolute
        start(root, made)
        for name in sys.argv[2:] or TRIALS:
            count = Count()
            shutil.rmtree(root)
            root.mkdir()
            try:
                TRIALS[name](made, root, random.Random(seed), count)
            except subprocess.CalledProcessError:
                print("full: left out, as mounting is not permitted here")
            print(f"{name}: tried {count.tried}, held {count.held}", flush=True)
            total.tried += count.tried
            total.held += count.held
    return total.close()


if __name__ == "__main__":
    sys.exit(main())
