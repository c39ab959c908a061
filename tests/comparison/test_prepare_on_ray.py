"""A text prepared on a Ray cluster, of which a worker is killed on the way.

Run by `make test-ray`: Ray is an optional extra.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jaxpt.cli.main import main

pytestmark = pytest.mark.ray
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def needs_ray(monkeypatch, tmp_path):
    pytest.importorskip("ray", reason="ray is not installed")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("JAXPT_CACHE", str(tmp_path / "cache"))


def make_flags(tmp_path, num_words, to):
    text = tmp_path / "text"
    text.mkdir(exist_ok=True)
    for name, num in (("a", num_words), ("b", 3), ("c", num_words // 3)):
        (text / f"{name}.txt").write_text("one two. Three?\n" * num)
    kind = "--config.tokenizer.kind=char"
    return ["prepare", f"--data={text}", kind, f"--to={tmp_path / to}"]


def start(*flags):
    return subprocess.Popen(
        [sys.executable, "-m", "jaxpt", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"RAY_DEDUP_LOGS": "0"},
    )


def read_folder(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def find_workers():
    """The processes of Ray that prepare a part."""
    results = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"ray::_prepare_part" in path.read_bytes():
                results.append(int(path.parent.name))
        except OSError:
            continue
    return results


def test_a_worker_is_killed(tmp_path):
    """The tokenizer is trained first; the store has the bytes of one machine."""
    num = 2_500_000  # 40 MB and 13 MB: 4 spans
    process = start(*make_flags(tmp_path, num, "s"), "--ray=local", "--ray_parts=3")
    place, killed = tmp_path / "s.parts", []
    while process.poll() is None and not killed:
        begun = list(place.glob("*.partial/tasks.bin"))
        if any(path.stat().st_size for path in begun if path.exists()):
            killed = find_workers()[:1]
        for number in killed:
            os.kill(number, signal.SIGKILL)
        time.sleep(0.02)
    out, _ = process.communicate(timeout=900)
    assert process.returncode == 0, out
    assert killed, out
    # Ray may end before it has forwarded the last lines of a worker.
    assert "text are tokenized" in out and "merging 3 parts" in out
    assert out.count("preparing part") > 3, out  # one began again
    assert main(make_flags(tmp_path, num, "alone")) == 0
    assert read_folder(tmp_path / "s") == read_folder(tmp_path / "alone")
    assert not place.exists()


def test_a_fault_ends_it_in_one_line(tmp_path):
    flags = make_flags(tmp_path, 10, "s")
    (tmp_path / "text" / "d.jsonl").write_text("{]\n")
    flags[2] = "--config.tokenizer.kind=byte"
    process = start(*flags, "--ray=local", "--ray_parts=2")
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 2, out
    (line,) = [line for line in out.splitlines() if "jaxpt: error" in line]
    assert "d.jsonl line 1" in line and "Traceback" not in out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--ray_parts=2"], "--ray_parts=2: is for --ray"),
        (["--ray=local", "--ray_parts=0"], "--ray_parts=0: must be from 1"),
        (["--ray=local", "--part=0/2"], "--ray=local: must be without --part"),
        (["--ray=local", "--workers=2"], "--workers=2: must be without --ray"),
        (["--ray=local", "--ray_retries=-1"], "--ray_retries=-1: must be at least 0"),
    ],
)
def test_flags(tmp_path, capsys, flags, message):
    assert main([*make_flags(tmp_path, 1, "s"), *flags]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "s").exists()
