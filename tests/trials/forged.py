"""Trials of JSON that says what it must not: `python tests/trials/forged.py [SHARE]`.

Every JSON file of a run, a fine-tuning, a prepared text, an export and a comparison is
changed in many ways, and its checksum with it. A command that reads it must succeed or
refuse it: exit code 2, one line, nothing written.
"""

import contextlib
import copy
import io
import json
import math
import os
import random
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from tiny import write_config

from jaxpt.cli.main import main
from jaxpt.files import checksums

# What stands for a whole file; the last is nested deeper than a parser may go.
WHOLES = (b"[]", b"3", b"null", b'"x"', b"{}", b"", b"\xff\xfe", b"[" * 100_000)
# What stands for a value in it.
VALUES = (None, [], {}, "x", "", -1, 10**30, math.nan, 1e308, True, [[[["x"]]]])
TEXT = "the state of the union is strong and the people are free. " * 60


TASK = """
from jaxpt.config.finetuning import default_finetune_config
def get_config():
    config = default_finetune_config("classification")
    config.data.train = config.data.dev = "labelled.tsv"
    config.task.text = "text"
    config.task.max_len, config.train.num_lengths = 16, 1
    config.train.epochs, config.train.lr, config.train.seeds = (1,), (1e-3,), (0,)
    return config
"""


BOTH = [
    *("--workdir=both", "--quiet"),
    *("--config.compare.budget=steps", "--config.compare.amount=0"),
    *("--config.compare.objectives=('clm',)", "--config.compare.seeds=(0,1)"),
]


class Case(NamedTuple):
    """A file below the folder of all, and the command that reads it.

    Attributes:
      depth: of the values that are changed; those below a config's sections are
        settings, of which `settings.py` has trials.
    """

    file: str
    command: list[str]
    depth: int = 99


def make_folders(root: Path) -> None:
    """Makes what is changed later: each as small as it can be."""
    (root / "text.txt").write_text(TEXT)
    (root / "labelled.tsv").write_text(
        "text\tlabel\n"
        + "".join(f"{w} film {i}\t{w}\n" for i in range(8) for w in "ab")
    )
    (root / "task.py").write_text(TASK)
    write_config(root / "config.py", root / "text.txt", train__steps=4)
    run_all(
        root,
        ["train", "--config=config.py", "--workdir=run"],
        ["prepare", "--data=text.txt", "--to=store"],
        ["export", "--workdir=run", "--to=export"],
        [
            *TUNE,
        ],
        [
            *("compare", "--config=config.py", *BOTH),
        ],
    )


def run_all(root: Path, *commands: list[str]) -> None:
    for command in commands:
        code, text = call(root, command)
        assert code == 0, f"{command}: {text}"


def call(root: Path, command: list[str]) -> tuple[int, str]:
    """The exit code of a command, and what it printed as errors; -1 for a traceback."""
    out, err, before = io.StringIO(), io.StringIO(), Path.cwd()
    os.chdir(root)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            return main(command), err.getvalue()
    except Exception as error:
        return -1, f"{type(error).__name__}: {error}"
    finally:
        os.chdir(before)


GENERATE = ["generate", "--workdir=run", "--prompt=the", "--num_tokens=1"]
REPORT = ["report", "--runs=run", "--workdir=new"]
IMPORT = ["import", "--from=export", "--workdir=new"]
COMPARE = ["compare", "--part=report", "--workdir=both"]
TUNE = ["finetune", "--from=run", "--to=tuned", "--config=task.py", "--quiet"]
EXPORT = ["export", "--workdir=tuned", "--to=new"]
CASES = (
    Case("run/config.json", ["train", "--workdir=run"], 1),
    Case("run/config.json", GENERATE, 1),
    Case("run/config.json", REPORT, 1),
    Case("run/data.json", REPORT),
    Case("run/result.json", REPORT),
    Case("run/result.json", ["train", "--workdir=run"]),
    Case("run/result.json", ["export", "--workdir=run", "--to=new"]),
    Case("run/tokenizer.json", GENERATE),
    Case("run/checksums.json", GENERATE),
    Case("run/checkpoints/4.manifest.json", GENERATE),
    Case("run/metrics.jsonl", ["train", "--workdir=run"]),
    Case("store/card.json", ["inspect", "--config=config.py", "--data=store"]),
    Case("export/config.json", IMPORT),
    Case("export/tokenizer.json", IMPORT),
    Case("export/tokenizer_config.json", IMPORT),
    Case("export/jaxpt/run.json", IMPORT),
    Case("export/generation_config.json", IMPORT),
    Case("tuned/identity.json", EXPORT),
    Case("tuned/config.json", EXPORT, 1),
    Case("tuned/result.json", EXPORT),
    Case("tuned/config.json", TUNE, 1),
    Case("tuned/cells/lr0.001-b32-e1-s0/result.json", TUNE),
    Case("both/compare.json", COMPARE, 1),
    Case("both/plans.json", COMPARE, 3),
    Case("both/runs/clm-seed0/result.json", COMPARE),
    Case("both/runs/clm-steps.json", ["compare", "--config=config.py", *BOTH]),
    Case("both/report.json", ["archive", "--workdir=both", "--to=new", "--title=A"]),
)


def list_paths(value: Any, depth: int, path: tuple = ()) -> Iterator[tuple]:
    """The places of all values within a value, down to a depth."""
    if isinstance(value, dict):
        parts = list(value.items())
    else:
        parts = list(enumerate(value[:2])) if isinstance(value, list) else []
    for key, part in parts:
        yield (*path, key)
        if depth > 1:
            yield from list_paths(part, depth - 1, (*path, key))


def list_forgeries(
    data: bytes, is_lines: bool, depth: int
) -> Iterator[tuple[str, bytes]]:
    """A description of each change of a file, and its content then."""
    for whole in WHOLES:
        yield repr(whole[:9]), whole + b"\n" * is_lines
    if is_lines:
        data = data.splitlines()[-1]
    value = json.loads(data)
    for path in list_paths(value, depth):
        for other in ("removed", *VALUES):
            forged = copy.deepcopy(value)
            *above, key = path
            place = forged
            for part in above:
                place = place[part]
            if other == "removed":
                del place[key]
            else:
                place[key] = other
            yield f"{path}: {other!r}", json.dumps(forged).encode() + b"\n" * is_lines


def forge(path: Path, data: bytes) -> None:
    """Writes a file with the checksum that belongs to it, where it has one."""
    try:
        value = json.loads(data)
        if path.name.endswith(".manifest.json"):
            value.pop("crc32", None)
            crc = zlib.crc32(json.dumps(value, sort_keys=True).encode())
            data = json.dumps({"crc32": crc, **value}).encode()
        elif path.name == "card.json":
            from jaxpt.text.stores.store import seal_card

            value.pop("sha256", None)
            data = seal_card(value)
    except (ValueError, AttributeError, TypeError, RecursionError):
        pass
    if path.name != checksums.FILE and (path.parent / checksums.FILE).exists():
        files = checksums._load(path.parent)
        files[path.name] = [checksums._measure(data)]
        checksums._store(path.parent, files)
    path.write_bytes(data)


def try_case(made: Path, case: Case, most: int, dice: random.Random) -> list[str]:
    """Tries some of a file's changes; one line for each: "" where it held."""
    outcomes = []
    path = made / case.file
    forgeries = list(
        list_forgeries(path.read_bytes(), path.suffix == ".jsonl", case.depth)
    )
    for name, data in dice.sample(forgeries, min(most, len(forgeries))):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder, "root")
            shutil.copytree(made, root, symlinks=True)
            forge(root / case.file, data)
            before = snapshot(root)
            code, text = call(root, case.command)
            after = snapshot(root)
            is_line = len(text.splitlines()) == 1
            fault = ""
            if code not in (0, 2):
                fault = f"exit code {code}: {text}"
            elif code == 2 and not is_line:
                fault = f"not one line: {text}"
            elif code == 2 and after != before:
                changed = {name for name, _ in after.items() ^ before.items()}
                fault = f"wrote before it refused: {changed}: {text}"
            outcomes.append(fault and f"{case.file} {name}: {case.command[0]}: {fault}")
            if fault:
                print(outcomes[-1], flush=True)
    return outcomes


def snapshot(root: Path) -> dict[str, int]:
    """The crc32 of each file, but for the log of all that was said."""
    return {
        path.relative_to(root).as_posix(): zlib.crc32(path.read_bytes())
        for path in root.rglob("*")
        if path.is_file() and path.name != "run.log"
    }


def try_all(most: int, seed: int = 0, only: str = "") -> tuple[int, int]:
    """Tries at most so many changes for each case; how many were tried, how many held.

    Args:
      only: cases whose files have this in their names.
    """
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder)
        make_folders(made)
        outcomes = []
        for case in CASES:
            if only in case.file:
                outcomes += try_case(made, case, most, dice)
    return len(outcomes), outcomes.count("")


if __name__ == "__main__":
    words = [*sys.argv[1:], *("100", "0", "")[len(sys.argv) - 1 :]]
    tried, held = try_all(int(words[0]), int(words[1]), words[2])
    print(f"tried {tried}, held {held}")
    sys.exit(tried != held)
