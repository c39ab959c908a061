"""The trials of tests/trials, each in part."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxpt.runs.checkpoint import Checkpointer

sys.path.append(str(Path(__file__).parents[1] / "trials"))

import faults
import forged
import hostile
import killed
import long

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location(
    "groups", ROOT / "tests" / "trials" / "__main__.py"
)
groups = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(groups)


@pytest.fixture
def saved(tmp_path):
    """`saved(name, arrays)`: the folder of a run with a checkpoint of step 3."""

    def save(name, arrays):
        with Checkpointer(tmp_path / name / "checkpoints") as checkpointer:
            checkpointer.save(3, arrays)
            checkpointer.wait()
        (tmp_path / name / "config.json").write_text("{}")
        return tmp_path / name

    return save


ARRAYS = {
    "params": {"a": np.arange(6.0, dtype=np.float32), "b": np.ones((2, 3), np.int32)}
}


def test_the_snapshot_of_a_repeated_command_is_the_same(saved):
    first, second = saved("a", ARRAYS), saved("b", ARRAYS)
    before = killed.snapshot(first)
    assert before == killed.snapshot(second)
    arrays = {"checkpoints/3: params/a", "checkpoints/3: params/b"}
    assert before.keys() == arrays | {"config.json"}


@pytest.mark.parametrize(
    "changed",
    [
        {"params": {"a": np.zeros(6, np.float32), "b": ARRAYS["params"]["b"]}},
        {"params": {"a": np.arange(6.0, dtype=np.float32)}},
        {"params": ARRAYS["params"] | {"c": np.ones(1)}},
        {"params": ARRAYS["params"] | {"b": np.ones((3, 2), np.int32)}},
        {"params": ARRAYS["params"] | {"b": np.ones((2, 3), np.float32)}},
        {"other": ARRAYS["params"]},
    ],
    ids=["zeroed", "removed", "added", "reshaped", "cast", "renamed"],
)
def test_a_snapshot_sees_other_arrays(changed, saved):
    assert killed.snapshot(saved("a", ARRAYS)) != killed.snapshot(saved("b", changed))


def test_a_snapshot_sees_what_is_damaged_unfinished_or_another_file(saved):
    folder = saved("a", ARRAYS)
    before = killed.snapshot(folder)
    place = folder / "checkpoints"
    (part,) = (place / "3" / "default" / "d").iterdir()
    whole = part.read_bytes()
    part.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert killed.snapshot(folder)["checkpoints/3"] == "damaged"
    part.write_bytes(whole)
    assert killed.snapshot(folder) == before
    (place / "4").mkdir()
    assert killed.snapshot(folder)["checkpoints/4"] == "unfinished"
    (place / "4").rmdir()
    (place / "3.manifest.json").unlink()
    assert killed.snapshot(folder)["checkpoints/3"] == "unfinished"
    (folder / "config.json").write_text("[]")
    assert killed.snapshot(folder)["config.json"] != before["config.json"]


def test_a_checkpoint_that_was_not_touched_is_not_read_and_any_other_is(saved):
    folder = saved("a", ARRAYS)
    shutil.copytree(folder, copy := folder.with_name("copy"))
    arrays = killed.snapshot(copy, folder)
    assert arrays["checkpoints/"] == "untouched"
    (part,) = (copy / "checkpoints" / "3" / "default" / "d").iterdir()
    part.write_bytes(part.read_bytes())
    assert killed.snapshot(copy, folder) == killed.snapshot(folder)


def test_the_values_of_json_are_compared_one_by_one(tmp_path):
    """So that a time in a file does not hide its other values."""
    (tmp_path / "result.json").write_text('{"seconds": 1.5, "loss": [2, {"a": null}]}')
    values = killed.snapshot(tmp_path)
    del values["result.json"]  # its crc32
    assert values == {
        "result.json: /seconds": "1.5",
        "result.json: /loss/0": "2",
        "result.json: /loss/1/a": "None",
    }


def test_what_is_missing_too_much_or_different_is_named():
    files, steady = {"a": 1, "b": 2, "time": 3}, {"a", "b"}
    assert killed.differ(files | {"time": 4}, files, steady) == []
    assert killed.differ(files | {"a": 0, ".x.partial": 0}, files, steady) == [
        ".x.partial",
        "a",
    ]
    assert killed.differ({"a": 1, "time": 3}, files, steady) == ["b"]


def test_one_line_of_a_command_is_an_error_and_nothing_else():
    line = "jaxpt: error: new: cannot be written\n"
    for text in (line, f"jaxpt: warning: slow\n{line}"):
        assert faults.is_line(text)
    for text in ("", line * 2, line + "more\n", "Traceback\n" + line, "Killed\n"):
        assert not faults.is_line(text)


@pytest.mark.parametrize("name", ["bytes", "files", "threads"])
def test_what_grows_in_a_long_run_is_seen(name):
    """After its first half, in which it may compile and open files."""
    growth = 1 << 20 if name == "bytes" else 1

    def list_samples(rises):
        for step in range(1, 31):
            base = long.Sample(step, 10**9, 12, 9)
            value = getattr(base, name) + growth * rises(step)
            yield base._replace(**{name: value})

    assert long.is_flat([*list_samples(lambda step: min(step, 14))])
    assert not long.is_flat([*list_samples(lambda step: step)])


def test_the_groups_of_trials_name_tests_that_exist():
    for _, names in groups.GROUPS.values():
        for name in names:
            path, _, test = name.partition("::")
            text = (ROOT / path).read_text(encoding="utf-8")
            assert not test or f"def {test.partition('[')[0]}(" in text, name


@pytest.mark.slow
def test_forged_files():
    tried, held = forged.try_all(4)
    assert tried == held > 90


@pytest.mark.slow
def test_hostile_files():
    tried, held = hostile.try_all()
    assert tried == held > 300


@pytest.mark.slow
def test_killed_writers():
    tried, held = killed.try_all(1000)
    assert tried == held >= len(killed.CASES)


@pytest.mark.slow
def test_locks_that_fail_and_runs_that_move():
    command = [sys.executable, ROOT / "tests" / "trials" / "faults.py", "0"]
    done = subprocess.run([*command, "locks", "moved"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tried 14, held 14" in done.stdout


@pytest.mark.slow
def test_a_run_with_readers():
    command = [sys.executable, ROOT / "tests" / "trials" / "long.py", "8000", "8"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
