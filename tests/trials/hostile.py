"""Trials of files that are no files: `python tests/trials/hostile.py`.

FIFOs, devices, sockets, folders, files without end, packed files that unpack to 6 GB,
names that no system allows and codecs that do not exist are given to everything that
reads. Each must be refused in one line, with exit code 2, in less than `SECONDS`, with
less than `MOST_BYTES` more memory than before, and nothing may be written.
"""

import gzip
import lzma
import os
import resource
import signal
import socket
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from forged import call, make_folders

SECONDS, MOST_BYTES = 10, 3 << 30
BOMB_BYTES = 6 << 30
LONG = "x" * 300


class TooSlow(Exception):
    """A command takes longer than `SECONDS`."""


def make_bombs(root: Path) -> None:
    """Packed files of 6 GB of zeros, and sparse ones."""
    zeros = bytes(1 << 24)
    parts = {
        "gz": gzip.compress(zeros),
        "xz": lzma.compress(zeros, preset=0),
    }
    for packing, part in parts.items():
        with open(root / f"bomb.txt.{packing}", "wb") as file:
            file.write(part * (BOMB_BYTES // len(zeros)))
        for suffix in ("jsonl", "tsv", "csv", "json"):
            os.link(root / f"bomb.txt.{packing}", root / f"bomb.{suffix}.{packing}")
    for suffix in ("jsonl", "tsv", "json", "parquet", "model", "safetensors"):
        with open(root / f"sparse.{suffix}", "wb") as file:
            file.truncate(1 << 40)
    with lzma.open(root / "bomb.tar.xz", "wb", preset=0) as file:
        member = tarfile.TarInfo("pairs.jsonl")
        member.size = BOMB_BYTES
        file.write(member.tobuf() + zeros)


def make_odd(root: Path) -> list[str]:
    """Names of what is not a regular file."""
    os.mkfifo(root / "fifo")
    (root / "to_fifo").symlink_to("fifo")
    (root / "to_itself").symlink_to("to_itself")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(root / "socket"))
    names = ["fifo", "to_fifo", "to_itself", "socket", "folder", LONG, f"{LONG}/x"]
    (root / "folder").mkdir()
    return [*names, "/dev/zero", "/dev/stdin", "/proc/kcore", "/dev/tty", "missing"]


def list_commands(root: Path) -> Iterator[list[str]]:
    """A command for each thing that reads, and each odd file."""
    odd = make_odd(root)
    make_bombs(root)
    (root / "cloze.json").write_text("{}")
    bombs = [f"bomb.txt.{packing}" for packing in ("gz", "xz")]
    tables = [
        *(
            f"bomb.{s}.{p}"
            for s in ("jsonl", "tsv", "csv", "json")
            for p in ("gz", "xz")
        ),
        *("sparse.jsonl", "sparse.tsv", "sparse.json", "sparse.parquet"),
    ]
    for path in [*odd, *bombs, "bomb.jsonl.gz", "bomb.jsonl.xz"]:
        yield ["prepare", "--data", path, "--to=new"]
        yield ["train", "--config=config.py", "--data", path, "--workdir=new"]
    for path in [*odd, *tables]:
        name = "tsv" if path in odd else "auto"
        yield [
            *("finetune", "--from=run", "--to=new", "--config=task.py"),
            *(f"--config.data.train={path}", f"--config.data.format={name}"),
        ]
        yield ["evaluate", "--workdir=run", f"--tasks=pairs:{path}"]
        yield ["evaluate", "--workdir=run", f"--tasks=questions:{path}"]
        if "sparse" not in path:  # a long text
            yield ["evaluate", "--workdir=run", f"--tasks=text:{path}"]
    yield ["evaluate", "--workdir=run", "--tasks=pairs:bomb.tar.xz"]
    for path in [*odd, "sparse.json", "sparse.model"]:
        yield ["generate", "--workdir=run", "--prompt_file", path]
        yield ["train", "--config", path, "--workdir=new"]
        yield ["train", f"--config={path}.json", "--workdir=new"]
        yield [
            *("prepare", "--data=text.txt", "--to=new"),
            *("--config.tokenizer.kind=file", f"--config.tokenizer.path={path}"),
        ]
        yield ["import", "--from", f"./{path}", "--workdir=new"]
        yield ["report", "--runs", path, "--workdir=new"]
        yield ["export", "--workdir", path, "--to=new"]
        yield ["fit-scaling", "--csv", path, "--to=new"]
    for codec in ("none", "hex", "undefined", "zlib", "a\0b", "x" * 10_000):
        yield [
            *("finetune", "--from=run", "--to=new", "--config=task.py"),
            f"--config.data.encoding={codec}",
        ]
    for path in ("a\0b", "a\0*"):
        yield ["prepare", "--data", path, "--to=new"]
        yield ["evaluate", "--workdir=run", f"--tasks=pairs:{path}"]
        yield ["generate", "--workdir", path, "--prompt=a"]
        yield [
            *("finetune", "--from=run", "--to=new", "--config=task.py"),
            f"--config.data.train={path}",
        ]
    for path in (LONG, "/proc/x", "/proc/x/y", "/dev/null/x", "text.txt", "text.txt/x"):
        yield ["prepare", "--data=text.txt", "--to", path]
        yield ["train", "--config=config.py", "--workdir", path]
        yield ["export", "--workdir=run", "--to", path]
        yield ["import", "--from=export", "--workdir", path]
        yield ["report", "--runs=run", "--workdir", path]
        yield ["finetune", "--from=run", "--config=task.py", "--to", path]


def list_damages() -> Iterator[tuple[str, str]]:
    """A file of a run, a store or an export, and the command that reads it."""
    generate = "generate --workdir=run --prompt=the --num_tokens=1"
    for name in ("config.json", "tokenizer.json", "checksums.json"):
        yield f"run/{name}", generate
    yield "run/checkpoints/4.manifest.json", generate
    yield "run/checkpoints/4/_CHECKPOINT_METADATA", generate
    yield "run/result.json", "report --runs=run --workdir=new"
    yield "run/examples.npz", "report --runs=run --workdir=new"
    for name in ("card.json", "tokenizer.json", "documents.bin", "tokens-00000.bin"):
        yield f"store/{name}", "inspect --config=config.py --data=store"
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        yield f"export/{name}", "import --from=export --workdir=new"


def try_command(root: Path, command: list[str]) -> str:
    """What did not hold; "" if all did."""

    def stop(*args):
        raise TooSlow

    before, start = snapshot_small(root), time.monotonic()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(2 * SECONDS)
    try:
        code, text = call(root, command)
    finally:
        signal.alarm(0)
    seconds = time.monotonic() - start
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    faults = []
    if code != 2:
        faults.append(f"exit code {code}")
    lines = [line for line in text.splitlines() if "jaxpt: warning: " not in line]
    if len(lines) != 1:
        faults.append("not one line")
    if seconds > SECONDS:
        faults.append(f"{seconds:.0f} s")
    if more * 1024 > MOST_BYTES:
        faults.append(f"{more / 2**20:.1f} GiB")
    if snapshot_small(root) != before:
        faults.append("wrote something")
    words = " ".join(word[:60] for word in command)
    return f"{words}: {', '.join(faults)}: {text[-300:]}" if faults else ""


def snapshot_small(root: Path) -> dict[str, int]:
    """The names and sizes of all files."""
    return {
        str(path): path.lstat().st_size
        for path in root.rglob("*")
        if path.name != "run.log"
    }


def try_all(only: str = "") -> tuple[int, int]:
    """How many were tried, and how many held."""
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_folders(root)
        commands = list(list_commands(root))
        for command in commands:
            if only in " ".join(command):
                outcomes.append(try_command(root, command))
                if outcomes[-1]:
                    print(outcomes[-1], flush=True)
        for file, command in list_damages():
            for odd in ("fifo", "/dev/zero", "sparse.json"):
                if only not in file:
                    continue
                kept = (root / file).rename(root / "kept")
                (root / file).symlink_to(root / odd)
                outcomes.append(try_command(root, command.split()))
                if outcomes[-1]:
                    print(f"{file}: {odd}: {outcomes[-1]}", flush=True)
                kept.replace(root / file)
    return len(outcomes), outcomes.count("")


if __name__ == "__main__":
    tried, held = try_all("".join(sys.argv[1:]))
    print(f"tried {tried}, held {held}")
    sys.exit(tried != held)
