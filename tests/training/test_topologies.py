"""One run on several meshes and numbers of processes, in turn: the losses go on."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny import many_devices, write_config

from jaxpt.cli import main as cli
from jaxpt.files.folder import hold, load_json
from jaxpt.runs.metrics_file import read_metrics
from jaxpt.runs.result import SCHEMA
from jaxpt.runs.workdir import check_shared

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests" / "training" / "train_part.py"
NEVER = 10**6


def start(command, num_devices=1, num_processes=1, differences=((), ())):
    """The command as so many processes, each with so many devices.

    Args:
      differences: arguments that only one of the processes is given.
    """
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    base = {**os.environ, **many_devices(num_devices), "PYTHONPATH": path}
    command = [sys.executable, *map(str, command)]
    several = {}
    if num_processes > 1:
        command += ["--distributed", "--heartbeat_seconds=10"]
        with socket.socket() as free:
            free.bind(("localhost", 0))
            several["JAX_COORDINATOR_ADDRESS"] = f"localhost:{free.getsockname()[1]}"
        several["JAX_NUM_PROCESSES"] = str(num_processes)
    return [
        subprocess.Popen(
            [*command, *differences[i]],
            env=base | several | ({"JAX_PROCESS_ID": str(i)} if several else {}),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(num_processes)
    ]


def end(processes):
    """Exit codes, standard outputs and standard errors of processes."""
    try:
        ends = [process.communicate(timeout=150) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [p.returncode for p in processes], *map(list, zip(*ends, strict=True))


# What gloo's threads say about each other, in pieces, now and then one within another.
GLOO = "Gloo Rank is connected to peer ranks Expected number of connected"


def without_gloo(out):
    """The words of a process' standard output that are not gloo's."""
    return [word for word in re.findall("[A-Za-z]+", out) if word not in GLOO.split()]


def curve(workdir):
    return {
        line["step"]: line["loss"] for line in read_metrics(workdir) if "loss" in line
    }


# Calls of two steps until the signal; devices in a process, processes, mesh. Of two
# processes a signal is known to both one call later.
PARTS = [
    (2, 8, 1, {"fsdp": 2, "tensor": 2}),
    (2, 2, 2, {"fsdp": 2}),
    (NEVER, 1, 1, {}),
]


@pytest.fixture(scope="module")
def moved(speech, tmp_path_factory):
    """The folders of a run on one device and of one that was moved about."""
    folder = tmp_path_factory.mktemp("moved")
    changes = {"train__steps": 20, "model__dropout": 0.1, "train__eval_every": 20}
    # A phase begins in the second part, at step 6, and one in the third.
    changes["train__batch_schedule"] = ((0.3, 0.5),)
    changes["train__length_schedule"] = ((0.7, 2),)
    write_config(folder / "config.py", speech, **changes)
    train = ["train", "--config", folder / "config.py", "--workdir"]
    whole = start(["-m", "jaxpt", *train, folder / "whole"])
    for calls, devices, processes, mesh in PARTS:
        command = [SCRIPT, calls, *train, folder / "parts"]
        command += [f"--config.train.{axis}={size}" for axis, size in mesh.items()]
        codes, outs, errors = end(start(command, devices, processes))
        code = 0 if calls == NEVER else 128 + signal.SIGTERM
        assert codes == [code] * processes, errors
        assert "loss" in outs[0]
        if processes == 2:  # the other says nothing, but what gloo says
            assert not without_gloo(outs[1]) and "loss" in without_gloo(outs[0])
            assert "2 processes" in outs[0] and "stopped" not in errors[1]
    assert end(whole)[0] == [0]
    return folder


@pytest.mark.slow
def test_losses_go_on_as_on_one_device(moved):
    one, many = curve(moved / "whole"), curve(moved / "parts")
    assert list(one) == list(many) == list(range(2, 21, 2))
    for step, loss in one.items():
        assert abs(many[step] - loss) < 1e-5 * loss, step


@pytest.mark.slow
def test_each_part_began_where_the_last_one_had_ended(moved):
    ends = {line["step"] for line in read_metrics(moved / "parts")}
    assert ends >= {0, 4, 10, 20}
    names = {p.name for p in (moved / "parts" / "checkpoints").iterdir()}
    assert names == {"16", "16.manifest.json", "20", "20.manifest.json"}


USES = """
import sys
from jaxpt.cli import main as cli
workdir, folder = sys.argv[1:]
assert cli.main(["evaluate", "--workdir", workdir]) == 0
writing = ["--prompt", "the ", "--num_tokens=12", "--temperature=0", "--num_samples=2"]
assert cli.main(["generate", "--workdir", workdir, *writing]) == 0
assert cli.main(["export", "--workdir", workdir, "--to", folder]) == 0
"""


@pytest.mark.slow
def test_a_split_run_is_used_as_a_whole_one(moved, tmp_path, capsys):
    """Measured, continued and exported alike on eight devices and on one."""
    workdir = moved / "parts"
    codes, (used,), errors = end(
        start(["-c", USES, workdir, tmp_path / "eight"], num_devices=8)
    )
    assert codes == [0], errors
    assert cli.main(["evaluate", "--workdir", str(workdir)]) == 0
    result = load_json(workdir / "result.json", SCHEMA, "")["metrics"]
    for line in capsys.readouterr().out.splitlines()[1:]:
        name, value = line.split()
        (other,) = [o.split()[1] for o in used.splitlines() if o.startswith(f"{name} ")]
        for value_there in (other, result[name]):
            assert abs(float(value) - float(value_there)) <= 1.1e-4, name
    writing = ["--prompt", "the ", "--num_tokens=12", "--temperature=0"]
    assert cli.main(["generate", "--workdir", str(workdir), *writing]) == 0
    assert used.count(capsys.readouterr().out) == 2
    cli.main(["export", "--workdir", str(workdir), "--to", str(tmp_path / "one")])
    one, eight = tmp_path / "one", tmp_path / "eight"
    tensors = "model.safetensors"
    assert (one / tensors).read_bytes() == (eight / tensors).read_bytes()


WRITES = """
import sys
from jaxpt.cli import main as cli
workdir, folder = sys.argv[1:]
writing = ["--prompt", "the ", "--num_tokens=12", "--temperature=0"]
assert cli.main(["generate", "--workdir", workdir, *writing]) == 0
assert cli.main(["export", "--workdir", workdir, "--to", folder]) == 0
"""


@pytest.mark.slow
def test_a_run_of_divided_rows_goes_on_and_is_used_on_one_device(speech, tmp_path):
    changes = {"data__row_length": 25, "model__dropout": 0.1}
    write_config(tmp_path / "config.py", speech, **changes)
    train = ["train", "--config", tmp_path / "config.py", "--workdir"]
    whole = start(["-m", "jaxpt", *train, tmp_path / "whole"])
    spans = [SCRIPT, 2, *train, tmp_path / "parts", "--config.train.context=4"]
    codes, outs, errors = end(start(spans, 8))
    assert codes == [128 + signal.SIGTERM], errors
    assert "mesh: data 2 x fsdp 1 x context 4 x tensor 1" in outs[0]
    (code,), (out,), errors = end(start(["-m", "jaxpt", *train, tmp_path / "parts"]))
    assert code == 0 and "resuming from step 4" in out, errors
    assert end(whole)[0] == [0]
    one, many = curve(tmp_path / "whole"), curve(tmp_path / "parts")
    assert list(one) == list(many) == list(range(2, 13, 2))
    for step, loss in one.items():
        assert abs(many[step] - loss) < 1e-5 * loss, step
    used = [
        end(start(["-c", WRITES, tmp_path / "parts", tmp_path / f"on_{num}"], num))
        for num in (1, 8)
    ]
    assert [codes for codes, *_ in used] == [[0], [0]], used
    tensors = [tmp_path / f"on_{num}" / "model.safetensors" for num in (1, 8)]
    assert tensors[0].read_bytes() == tensors[1].read_bytes()


def wait_for_step(workdir, step, processes):
    for _ in range(2400):
        if (workdir / "metrics.jsonl").exists():
            if any(line["step"] >= step for line in read_metrics(workdir)):
                return
        assert all(process.poll() is None for process in processes), end(processes)
        time.sleep(0.05)
    raise AssertionError("the run never got there")


@pytest.fixture
def endless(speech, tmp_path):
    """The command of a run that nobody waits for."""
    changes = {"train__steps": 100_000, "train__fsdp": 0, "train__checkpoint_every": 10}
    write_config(tmp_path / "config.py", speech, **changes)
    command = ["-m", "jaxpt", "train", "--config", tmp_path / "config.py"]
    return [*command, "--workdir", tmp_path / "run"]


@pytest.mark.slow
def test_a_signal_to_one_process_stops_both(endless, tmp_path):
    both = start(endless, 1, 2)
    wait_for_step(tmp_path / "run", 6, both)
    both[1].send_signal(signal.SIGTERM)
    codes, _, errors = end(both)
    assert codes == [128 + signal.SIGTERM] * 2, errors
    step = int(errors[0].split("stopped at step ")[1].split(";")[0])
    assert "stopped" not in errors[1] and "Traceback" not in errors[0] + errors[1]
    assert (tmp_path / "run" / "checkpoints" / f"{step}.manifest.json").exists()


@pytest.mark.slow
def test_a_kill_of_one_process_ends_both_and_one_alone_resumes(endless, tmp_path):
    both = start(endless, 1, 2)
    wait_for_step(tmp_path / "run", 30, both)
    both[1].kill()
    begin = time.monotonic()
    codes, _, _ = end(both)
    assert codes[0] != 0 and time.monotonic() - begin < 10 + 10

    (alone,) = start(endless)
    wait_for_step(tmp_path / "run", 60, [alone])
    alone.kill()
    _, (out,), _ = end([alone])
    assert "resuming from step" in out


@pytest.mark.slow
def test_an_error_of_all_is_said_once(speech, tmp_path):
    write_config(tmp_path / "config.py", speech, train__batch_size=3)
    command = ["-m", "jaxpt", "train", "--config", tmp_path / "config.py"]
    codes, _, errors = end(start([*command, "--workdir", tmp_path / "run"], 1, 2))
    assert codes == [2, 2]
    assert "train.batch_size=3: must be a multiple of 2 devices" in errors[0]
    assert "jaxpt" not in errors[1] and not (tmp_path / "run").exists()


@pytest.mark.slow
def test_processes_with_other_settings_are_refused(speech, tmp_path):
    write_config(tmp_path / "config.py", speech)
    command = ["-m", "jaxpt", "train", "--config", tmp_path / "config.py"]
    command += ["--workdir", tmp_path / "run"]
    codes, _, errors = end(start(command, 1, 2, ([], ["--config.train.seed=7"])))
    assert codes == [2, 2]
    assert "process 1 has another config or text than process 0" in errors[0]
    assert not (tmp_path / "run").exists()


ALONE = """
import sys
from jaxpt.distributed import processes
processes.start(10)

def work():
    if not processes.is_first():
        raise OSError("its own disk")
    processes.gather("waiting for the other")
    return 0

with processes.guarded():
    work()
"""


def test_an_error_of_one_process_ends_the_other(tmp_path):
    (tmp_path / "work.py").write_text(ALONE)
    begin = time.monotonic()
    codes, _, errors = end(start([tmp_path / "work.py"], 1, 2))
    assert codes[1] == 1 and "OSError: its own disk" in errors[1]
    assert codes[0] not in (0, None) and time.monotonic() - begin < 60


@pytest.mark.slow
def test_a_folder_that_another_run_writes_is_refused_by_all(speech, tmp_path):
    write_config(tmp_path / "config.py", speech, train__steps=2)
    command = ["-m", "jaxpt", "train", "--config", tmp_path / "config.py"]
    with hold(tmp_path / "run"):
        before = os.listdir(tmp_path / "run")
        codes, _, errors = end(start([*command, "--workdir", tmp_path / "run"], 1, 2))
        assert codes == [2, 2]
        output = [
            line for text in errors for line in text.splitlines() if "jaxpt" in line
        ]
        assert len(output) == 1 and "another process is writing" in output[0]
        assert os.listdir(tmp_path / "run") == before


def test_a_folder_that_is_not_shared_is_refused(tmp_path, refuses):
    (tmp_path / "config.json").touch()
    check_shared(tmp_path, seconds=0)
    with refuses("workdir=", "must be on a disk that all processes share"):
        check_shared(tmp_path / "elsewhere", seconds=0.2)


@pytest.mark.parametrize(
    "variables, words",
    [
        ({"JAX_NUM_PROCESSES": "2"}, "JAX_COORDINATOR_ADDRESS: must be set"),
        (
            {"JAX_COORDINATOR_ADDRESS": "here", "JAX_PROCESS_ID": "0"},
            "JAX_NUM_PROCESSES: must be set",
        ),
        ({"JAX_PROCESS_ID": "2"}, "JAX_PROCESS_ID=2: must be below"),
        ({"JAX_PROCESS_ID": "-1"}, "JAX_PROCESS_ID=-1: must be a whole number"),
        ({"JAX_COORDINATOR_ADDRESS": "host"}, "=host: must be HOST:PORT"),
    ],
)
def test_incomplete_variables_are_one_line(variables, words, monkeypatch, refuses):
    from jaxpt.distributed import processes

    several = {
        "JAX_COORDINATOR_ADDRESS": "localhost:1",
        "JAX_NUM_PROCESSES": "2",
        "JAX_PROCESS_ID": "1",
    }
    if "must be set" in words:
        several = {}
    for name, value in (several | variables).items():
        monkeypatch.setenv(name, value)
    with refuses(words):
        processes.start(10)
