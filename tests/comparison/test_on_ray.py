"""A comparison on a Ray cluster of two machines, of which one is lost on the way.

Run by `make test-ray`: Ray is an optional extra.
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from reports import without_times
from tiny import make_config, write_config

from jaxpt.comparison import compare as comparison

pytestmark = pytest.mark.ray
ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {
    "train__checkpoint_every": 2,
    "compare__objectives": ("clm",),
    "compare__seeds": (0, 1),
    "compare__amount": 3e8,
}


@pytest.fixture
def cluster(monkeypatch):
    """A head that trains nothing, to which machines of one CPU are added."""
    utils = pytest.importorskip("ray.cluster_utils", reason="ray is not installed")
    # What starts in the cluster imports this checkout, and sends nothing anywhere.
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    made = utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        yield made
    finally:
        made.shutdown()


def start(config, workdir, *flags):
    argv = ["compare", "--config", config, "--workdir", workdir, *flags]
    return subprocess.Popen(
        [sys.executable, "-m", "jaxpt", *map(str, argv)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"RAY_DEDUP_LOGS": "0"},
    )


def wait_until(is_so, process, seconds=400):
    end = time.monotonic() + seconds
    while not is_so():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.02)


def list_begun(workdir):
    """Runs that are on their way, with a checkpoint and no result."""
    runs = sorted((workdir / "runs").glob("*-seed*"))
    return [
        run.name
        for run in runs
        if any((run / "checkpoints").glob("[4-9]*"))
        and not (run / "result.json").exists()
    ]


def test_a_machine_is_lost(cluster, speech, tmp_path):
    """Two runs are on their way, one on each machine, when one machine is killed."""
    config = make_config(speech, **SETTINGS)
    comparison.compare(config, tmp_path / "one")
    write_config(tmp_path / "config.py", speech, **SETTINGS)
    machines = [cluster.add_node(num_cpus=1) for _ in range(2)]
    cluster.wait_for_nodes()
    workdir = tmp_path / "spread"
    process = start(tmp_path / "config.py", workdir, f"--ray={cluster.address}")
    wait_until(lambda: len(list_begun(workdir)) == 2, process)
    cluster.remove_node(machines[1], allow_graceful=False)
    begun = list_begun(workdir)
    out, _ = process.communicate(timeout=900)
    assert process.returncode == 0, out
    assert len(begun) == 2, out  # so the machine was killed on the way
    resumed = re.findall(r"resuming from step \d+ in (\S+)", out)
    (lost,) = {Path(path).name for path in resumed}
    assert lost in begun
    one, other = (
        without_times(json.loads((path / "report.json").read_text()))
        for path in (tmp_path / "one", workdir)
    )
    assert one == other
    for name in ("clm-seed0", "clm-seed1"):
        assert f"\n{name}: done" in out
    assert out.endswith(f"report: {workdir / 'report.html'}\n")


def test_a_fault_ends_it_in_one_line(cluster, speech, tmp_path):
    """And is not tried again on another machine, where it would be the same."""
    cluster.add_node(num_cpus=1)
    changes = SETTINGS | {"data__path": "nowhere.txt"}
    write_config(tmp_path / "config.py", speech, **changes)
    workdir = tmp_path / "spread"
    process = start(tmp_path / "config.py", workdir, f"--ray={cluster.address}")
    out, _ = process.communicate(timeout=200)
    assert process.returncode == 2
    (line,) = [line for line in out.splitlines() if "jaxpt: error" in line]
    assert "data.path=nowhere.txt" in line and "Traceback" not in out
    assert not (workdir / "compare.json").exists()


def test_no_cluster_is_there(speech, tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="ray is not installed")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))  # where it looks for one
    write_config(tmp_path / "config.py", speech, **SETTINGS)
    process = start(tmp_path / "config.py", tmp_path / "w", "--ray=auto")
    out, _ = process.communicate(timeout=200)
    assert process.returncode == 2
    assert "jaxpt: error: --ray=auto: no cluster: " in out.splitlines()[-1]
