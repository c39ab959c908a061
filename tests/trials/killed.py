"""Trials of writers that are killed: `python tests/trials/killed.py [EVERY]`.

A command is killed (without any cleanup) at every EVERYth change that it makes to its
folder. The same command must then leave exactly the files of a command that was not
killed: it succeeds or, after a kill at the very end, finds the folder complete. ONNX
graphs and pages need jax2onnx (`make test-onnx`) and `web/node_modules` (`make web`).
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

# What `npm ci` installs of onnxruntime-web.
WASM = Path(__file__).resolve().parents[2] / "web/node_modules/onnxruntime-web"
WASM /= "dist/ort-wasm-simd-threaded.wasm"
# Runs a command, and ends the process at its Nth change below a folder; N=0 never.
DRIVER = """
import os, sys
folder, last, num = sys.argv[1], int(sys.argv[2]), 0
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
NAMES = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link")
beside = f"/.{os.path.basename(folder)}."  # where its new content is written

def count(event, args):
    global num
    if event == "open":
        is_change = isinstance(args[2], int) and args[2] & WRITES
    else:
        is_change = event in NAMES
    is_named = is_change and not isinstance(args[0], int)
    path = os.path.abspath(os.fspath(args[0])) if is_named else ""
    if folder in path or beside in path:
        num += 1
        if num == last:
            os._exit(9)

from jaxpt.cli.main import main
sys.addaudithook(count)
code = main(sys.argv[3:])
print("changes:", num)
sys.exit(code)
"""
CASES = {
    "export": ["export", "--workdir=run", "--to=new"],
    "import": ["import", "--from=export", "--workdir=new"],
    "fine-tuning": ["export", "--workdir=tuned", "--to=new"],
}
ARCHIVE = ["archive", "--workdir=both", "--to=new", "--title=A", "--question=B"]
STUDIES = {
    "archive": ARCHIVE,
    "archive again": [*ARCHIVE, "--note=new"],
    "report": ["report", "--runs=run", "--workdir=new"],
    "report of a study": ["report", "--study=study", "--workdir=new"],
    "reproduce": ["reproduce", "study", "--workdir=new", "--data=text.txt", "--quiet"],
}
TIMED = ("report", "reproduce")
GRAPHS = {
    "ONNX": ["export", "--workdir=run", "--to=new", "--format=onnx"],
    "applet": ["applet", "--workdir=run", "--to=new", f"--runtime={WASM}"],
}


def run(root: Path, last: int, command: list[str]) -> subprocess.CompletedProcess:
    place = str(root / "new")
    args = [sys.executable, "-c", DRIVER, place, str(last), *command]
    return subprocess.run(args, cwd=root, capture_output=True, text=True)


def snapshot(folder: Path) -> dict[str, int | str]:
    """The crc32 of each file, and of checkpoints that of each array.

    Of a checkpoint no two saves have the same files: Orbax names them at random.
    """
    found: dict[str, int | str] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.name == "checkpoints" and path.is_dir():
            arrays = snapshot_arrays(path)
            found |= {f"{name}/{each}": value for each, value in arrays.items()}
        is_saved = "checkpoints" in Path(name).parent.parts
        if path.is_file() and not is_saved and not name.endswith(".lock"):
            found[name] = zlib.crc32(path.read_bytes())
    return found


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


def start(root: Path, name: str) -> None:
    """Makes what the folder has before the command."""
    for path in (root / "new", *root.glob(".new.*")):
        shutil.rmtree(path, ignore_errors=True)
    if name == "archive again":
        shutil.copytree(root / "study", root / "new")


def try_case(root: Path, name: str, command: list[str], every: int) -> list[bool]:
    """Kills a command at each point; whether the next one held."""
    start(root, name)
    old = snapshot(root / "new")
    whole = run(root, 0, command)
    assert whole.returncode == 0, whole.stderr
    num = int(whole.stdout.rsplit("changes:", 1)[1])
    expected = snapshot(root / "new")
    held = []
    for last in range(1, num + 1, every):
        start(root, name)
        killed = run(root, last, command)
        assert killed.returncode == 9, killed.stderr
        left = snapshot(root / "new")
        again = run(root, 0, command)
        if name in TIMED:
            is_done, difference = again.returncode == 0, set()
        else:
            difference = set(snapshot(root / "new").items()) ^ set(expected.items())
            is_done = (
                again.returncode == 0 or "a new or an empty folder" in again.stderr
            )
        if name.startswith("archive"):
            is_done &= left in (old, expected) and not list(root.glob(".new.*"))
        held.append(is_done and not difference)
        if not held[-1]:
            print(f"{name}, killed at {last} of {num}: {again.stderr} {difference}")
    start(root, "")
    return held


def try_all(every: int) -> tuple[int, int]:
    """How many were tried, and how many held."""
    from forged import make_folders

    cases = CASES
    if importlib.util.find_spec("jax2onnx") and WASM.exists():
        cases = CASES | GRAPHS
    else:
        print(f"without jax2onnx or {WASM}: ONNX graphs and pages are left out")
    held = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_folders(root)
        study = [part.replace("--to=new", "--to=study") for part in ARCHIVE]
        assert run(root, 0, study).returncode == 0
        for name, command in STUDIES.items():
            # A reproduction makes many changes, in two runs.
            times = 10 if name == "reproduce" else 1
            held += try_case(root, name, command, times * every)
        for name, command in cases.items():
            held += try_case(root, name, command, every)
    return len(held), sum(held)


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    sys.path.insert(0, str(Path(__file__).parents[1]))
    tried, held = try_all(int(sys.argv[1]) if sys.argv[1:] else 1)
    print(f"tried {tried}, held {held}")
    sys.exit(tried != held)
