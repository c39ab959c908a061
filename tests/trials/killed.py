"""Trials of commands that are killed: `python tests/trials/killed.py EVERY NAME...`.

Each command is killed (without any cleanup) at every EVERYth change that it
makes to the disk: before a file is opened to write, in the middle of its content, and
before a file is renamed, linked or removed. The same command must then leave exactly
the files of a command that was not killed, and no others: it succeeds or, after a kill
at the very end, finds its output complete. Of files with times in them, only what two
undisturbed commands agree on is compared. What replaces an earlier output must be the
earlier or the new one after a kill, too. NAME selects cases. ONNX graphs and pages need
jax2onnx (`make test-onnx`).
"""

import importlib.util
import json
import logging
import os
import pkgutil
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from forged import BOTH, TUNE, make_folders
from forked import SERVER

ROOT = Path(__file__).resolve().parents[2]
# Of `os`, as audit events; `open` has flags instead.
CHANGES = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
KILLED = 9
# Locks, logs, and the inodes of texts that were not just written.
UNSTEADY = re.compile(r".*lock|.*run\.log|.*tfevents.*|cache/hashes/\w+\.json")
COMPLETE = ("a new or an empty folder", "exists already", "must be a new file")
ARCHIVE = ["archive", "--workdir=both", "--to=new", "--title=A", "--question=B"]
FIT = ["fit-scaling", "--csv=sizes.csv", "--to=new", "--num_draws=20"]
REPORT = ["report", "--runs=run", "--workdir=new"]
INSPECT = ["inspect", "--config=config.py", "--objectives=clm,mlm", "--to=new"]
PREPARE = ["prepare", "--data=text.txt", "--config.tokenizer.kind=bpe", "--workers=1"]
PREPARE += ["--config.tokenizer.vocab_size=300"]
COMPARE = ["compare", "--config=config.py", "--workdir=new", *BOTH[1:]]
EXPECTED, REGISTER = "pair_accuracy: clm > mlm", ["--register"]
REGISTER += [
    "--config.compare.objectives=('clm','mlm')",
    "--config.eval.word_context=4",
]
TWO = [*COMPARE, "--config.compare.objectives=('clm','mlm')"]
TWO += ["--config.compare.seeds=(0,)", "--config.train.checkpoint_every=2"]
TRAIN = ["train", "--config=config.py", "--workdir=new", "--quiet"]
TRAIN += ["--config.train.checkpoint_every=2", "--config.train.checkpoint_words=(1,)"]
TRAIN += ["--config.train.trackers=()"]


class Case(NamedTuple):
    """A command that is killed.

    Attributes:
      before: the command that writes an earlier output, if any.
      is_whole: its output `new` is the earlier one or the new one after a kill.
      times: how many changes more are skipped, of a command that makes very many.
    """

    command: list[str]
    before: list[str] | None = None
    is_whole: bool = False
    times: int = 1


CASES = {
    "tokenizer": Case(
        ["tokenizer", "train", *PREPARE[1:3], PREPARE[4], "--to=new/tokenizer.json"]
    ),
    "prepare": Case([*PREPARE, "--to=new"]),
    "prepare in the cache": Case(PREPARE),
    "inspect": Case(INSPECT),
    "inspect again": Case(INSPECT, [*INSPECT, "--length=8"]),
    "train": Case(TRAIN),
    "finetune": Case([part.replace("tuned", "new") for part in TUNE]),
    "evaluate": Case(["evaluate", "--workdir=run", "--tasks=pairs:pairs.tsv"]),
    "report": Case(REPORT),
    "report of a study": Case(["report", "--study=study", "--workdir=new"]),
    "fit-scaling": Case(FIT),
    "fit-scaling again": Case(FIT, [*FIT, "--num_draws=25"], is_whole=True),
    "archive": Case(ARCHIVE, is_whole=True),
    "archive again": Case([*ARCHIVE, "--note=new"], ARCHIVE, is_whole=True),
    # A reproduction makes many changes, in two runs.
    "reproduce": Case(
        ["reproduce", "study", "--workdir=new", "--data=text.txt", "--quiet"], times=10
    ),
    "analyse": Case(["analyse", "--runs=run", "--to=new", "--num_tokens=64"]),
    "analyse again": Case(
        ["analyse", "--runs=run", "--to=new", "--num_tokens=64"],
        ["analyse", "--runs=run", "--to=new", "--num_tokens=128"],
        is_whole=True,
    ),
    "babylm": Case(["babylm", "--workdir=run", "--data=suites", "--quiet"]),
    "register": Case(
        [*COMPARE, f"--config.compare.expected=({EXPECTED!r},)"] + REGISTER
    ),
    "compare": Case(TWO, times=6),
    "import": Case(["import", "--from=export", "--workdir=new"]),
    "export": Case(["export", "--workdir=run", "--to=new"]),
    "export of a fine-tuning": Case(["export", "--workdir=tuned", "--to=new"]),
}
GRAPHS = {
    "ONNX": Case(["export", "--workdir=run", "--to=new", "--format=onnx"]),
    "applet": Case(["applet", "--workdir=run", "--to=new"]),
}


class Outcome(NamedTuple):
    """A command's exit code, errors, number of changes and what it left."""

    code: int
    errors: str
    changes: int
    files: dict[str, Any]


class Killer:
    """Counts the changes below a folder, and ends the process at one of them.

    Attributes:
      last: the number of that change; 0 is none.
    """

    def __init__(self, folder: str, last: int) -> None:
        self.folder, self.last, self.num = folder, last, 0

    def audit(self, event: str, args: tuple) -> None:
        """Counts an event of Python that changes the disk."""
        if event == "open":
            is_change = isinstance(args[2], int) and args[2] & WRITES
        else:
            is_change = event in CHANGES
        if not is_change or isinstance(args[0], int):
            return
        if os.path.abspath(os.fspath(args[0])).startswith(self.folder):
            self.count()

    def count(self) -> bool:
        self.num += 1
        if self.num == self.last:
            os._exit(KILLED)
        return self.num + 1 == self.last

    def install(self) -> None:
        """Watches this process, which cannot be undone."""
        from jaxpt.files import disk

        exchange, write_all = disk.exchange, disk.write_all

        def watched_exchange(one: Path, other: Path) -> None:
            self.count()
            exchange(one, other)

        def watched_write(handle: int, data: bytes | memoryview) -> int:
            if self.last and self.num + 1 == self.last:
                write_all(handle, memoryview(data)[: len(data) // 2])
            self.count()
            return write_all(handle, data)

        disk.exchange, disk.write_all = watched_exchange, watched_write
        sys.addaudithook(self.audit)


def execute(
    root: str,
    last: int,
    command: list[str],
    results: str,
    before: str,
    disturb: Callable[[], None] | None,
) -> None:
    """In a new process: runs a command in a folder, and writes its `Outcome`."""
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{results}/{name}", os.O_WRONLY | os.O_CREAT), number)
    os.environ |= {"JAXPT_CACHE": f"{root}/cache", "TMPDIR": results}
    os.chdir(root)
    from jaxpt.cli.main import main

    if command[0] == "applet":
        from jaxpt.hub.applets import site

        site.load_runtime = lambda *args: b"WebAssembly"  # which need not be here
    # A command of a user has no handlers of modules that the server has imported.
    logging.getLogger().handlers.clear()
    if disturb:
        disturb()
    killer = Killer(f"{root}/", last)
    killer.install()
    code = main(command)
    files = snapshot(Path(root), Path(before))
    outcome = {"code": code, "changes": killer.num, "files": files}
    Path(results, "outcome.json").write_text(json.dumps(outcome))
    sys.stdout.flush()
    os._exit(0)  # whatever threads there are


def preload() -> None:
    """Lets the server of new processes import all of jaxpt, once for all of them."""
    found = pkgutil.walk_packages([str(ROOT / "jaxpt")], "jaxpt.")
    names = [module.name for module in found if not module.name.endswith("__main__")]
    SERVER.set_forkserver_preload(["jax", "flax.linen", "optax", *names])


def run(
    root: Path,
    last: int,
    command: list[str],
    before: Path,
    disturb: Callable[[], None] | None = None,
) -> Outcome:
    """Runs a command in a folder, and ends it at its change number `last`, if any.

    Args:
      before: what the folder was copied from.
      disturb: is called first in the process of the command.
    """
    with tempfile.TemporaryDirectory() as results:
        args = str(root), last, command, results, str(before), disturb
        process = SERVER.Process(target=execute, args=args)
        process.start()
        process.join()
        errors = Path(results, "err").read_text()
        if process.exitcode == KILLED and last:
            return Outcome(KILLED, errors, last, {})
        assert process.exitcode == 0, f"{command}, {last}: {errors}"
        values = json.loads(Path(results, "outcome.json").read_text())
        return Outcome(errors=errors, **values)


def snapshot(folder: Path, before: Path | None = None) -> dict[str, Any]:
    """The crc32 of each file, of checkpoints of each array, of JSON each value.

    Of a checkpoint no two saves have the same files: Orbax names them at random.

    Args:
      before: what the folder was copied from; its checkpoints that no command has
        touched are not read.
    """
    found: dict[str, Any] = {}
    saved: set[Path] = set()  # folders of checkpoints
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() and not saved & {*path.parents}:
            if path.name == "checkpoints" or [*path.glob("*.manifest.json")]:
                saved.add(path)
                old = before and list_stamps(before / name)
                is_same = old == list_stamps(path)
                arrays = {"": "untouched"} if is_same else snapshot_arrays(path)
                found |= {f"{name}/{each}": value for each, value in arrays.items()}
        is_saved = saved & {*path.parents}
        if is_saved or not path.is_file() or UNSTEADY.fullmatch(name):
            continue
        data = path.read_bytes()
        found[name] = zlib.crc32(data)
        if path.suffix == ".json" and path.name != "checksums.json":
            found |= {f"{name}: {key}": each for key, each in list_values(data)}
    return found


def list_stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """The size and the time of the last change of each file."""
    stats = {p.relative_to(folder).as_posix(): p.stat() for p in folder.rglob("*")}
    return {name: (x.st_size, x.st_mtime_ns) for name, x in stats.items()}


def list_values(data: bytes) -> Iterator[tuple[str, Any]]:
    """The values of JSON, each with its place."""
    try:
        open_values = [("", json.loads(data))]
    except ValueError:
        return
    while open_values:
        place, value = open_values.pop()
        if isinstance(value, dict):
            open_values += [(f"{place}/{key}", each) for key, each in value.items()]
        elif isinstance(value, list):
            open_values += [(f"{place}/{i}", each) for i, each in enumerate(value)]
        else:
            yield place, repr(value)


def snapshot_arrays(folder: Path) -> dict[str, int | str]:
    """The crc32 of each array of the finished steps; what else is there by name."""
    import numpy as np
    from jax import ShapeDtypeStruct

    from jaxpt.runs import manifest
    from jaxpt.runs.checkpoint import Checkpointer

    finished = manifest.list_finished(folder)
    known = {part for s in finished for part in (str(s), f"{s}.manifest.json")}
    found: dict[str, int | str] = {
        path.name: "unfinished" for path in folder.iterdir() if path.name not in known
    }
    for step in finished:
        try:
            leaves = manifest.verify(folder, step)
        except manifest.Damaged:
            found[str(step)] = "damaged"
            continue
        template = {
            name: ShapeDtypeStruct(leaf["shape"], leaf["dtype"])
            for name, leaf in leaves.items()
        }
        with Checkpointer(folder) as checkpointer:
            arrays, _ = checkpointer.restore(template, step)
        for name, array in arrays.items():
            values = np.asarray(array)
            head = f"{values.dtype} {values.shape} ".encode()
            found[f"{step}: {name}"] = zlib.crc32(head + values.tobytes())
    return found


def start(made: Path, root: Path) -> None:
    """Makes what the folder has before a command."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(made, root, symlinks=True)


def differ(files: dict, expected: dict, steady: set[str]) -> list[str]:
    """The names of what is missing, too much, or of another content."""
    names = files.keys() ^ expected.keys()
    names |= {n for n in steady & files.keys() if files[n] != expected[n]}
    return sorted(names)


def try_case(made: Path, root: Path, name: str, case: Case, every: int) -> list[bool]:
    """Kills a command at each point; whether the next one held."""
    before = made
    start(made, root)
    if case.before:
        assert run(root, 0, case.before, made).code == 0
        before = made.with_name("before")
        start(root, before)
    old = snapshot(root / "new") if case.is_whole else {}
    whole = run(root, 0, case.command, before)
    assert whole.code == 0, f"{name}: {whole.errors}"
    start(before, root)
    again = run(root, 0, case.command, before).files
    new = snapshot(root / "new") if case.is_whole else {}
    steady = {n for n, value in whole.files.items() if again.get(n) == value}
    assert not whole.files.keys() ^ again.keys(), whole.files.keys() ^ again.keys()
    held = []
    for last in range(1, whole.changes + 1, every * case.times):
        start(before, root)
        killed = run(root, last, case.command, before)
        left = snapshot(root / "new") if case.is_whole else new
        done = run(root, 0, case.command, before)
        difference = differ(done.files, whole.files, steady)
        is_done = done.code == 0 or any(text in done.errors for text in COMPLETE)
        held.append(is_done and not difference and left in (old, new))
        if not held[-1]:
            what = f"{name}, killed at {last} of {whole.changes}, {killed.code}"
            print(f"{what}: {done.errors[-300:]} {difference[:9]} {left in (old, new)}")
    print(f"{name}: {whole.changes} changes; tried {len(held)}, held {sum(held)}")
    sys.stdout.flush()
    return held


def make_all(root: Path) -> None:
    """Makes what the commands read, each as small as it can be."""
    make_folders(root)
    (root / "pairs.tsv").write_text("good\tbad\nthe state\tstate the\n")
    pair = {"sentence_good": "the state is", "sentence_bad": "the is state"}
    (root / "suites" / "blimp_filtered").mkdir(parents=True)
    lines = json.dumps(pair | {"UID": "order"}) + "\n"
    (root / "suites" / "blimp_filtered" / "order.jsonl").write_text(lines)
    lines = [f"{n},{d},{3 + 9 / n + 7 / d}" for n in (1, 2, 4) for d in (1, 3, 9)]
    (root / "sizes.csv").write_text("\n".join(["params,tokens,loss", *lines, ""]))
    study = [part.replace("--to=new", "--to=study") for part in ARCHIVE]
    assert run(root, 0, study, root).code == 0


def try_all(every: int, names: list[str] | None = None) -> tuple[int, int]:
    """How many were tried, and how many held.

    Args:
      names: of cases; None or empty are all.
    """
    preload()
    cases = CASES
    if importlib.util.find_spec("jax2onnx"):
        cases = CASES | GRAPHS
    else:
        print("without jax2onnx: ONNX graphs and pages are left out")
    held = []
    with tempfile.TemporaryDirectory() as folder:
        made, root = Path(folder, "made"), Path(folder, "root")
        root.mkdir()
        os.environ["JAX_COMPILATION_CACHE_DIR"] = f"{folder}/compiled"
        make_all(root)  # here, as stored paths may be absolute
        start(root, made)
        for name in names or cases:
            held += try_case(made, root, name, cases[name], every)
    return len(held), sum(held)


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    every = int(sys.argv[1]) if sys.argv[1:] else 1
    tried, held = try_all(every, sys.argv[2:])
    print(f"tried {tried}, held {held}")
    sys.exit(tried != held)
