"""A run's folder: one process writes into it, no link leads out, damage is found."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny import make_config, slow_but, write_config, write_stored

from jaxpt.cli.main import main
from jaxpt.comparison.runs_report import report_runs
from jaxpt.files import checksums, disk
from jaxpt.files.folder import READABLE, _take, hold, new_folder
from jaxpt.runs.checkpoint import Checkpointer
from jaxpt.runs.workdir import load_task
from jaxpt.version import __version__

ROOT = Path(__file__).resolve().parents[2]
BUSY = "another process is writing into this folder"


def start(command, config, workdir):
    argv = [sys.executable, "-m", "jaxpt", command, "--config", str(config)]
    return subprocess.Popen(
        [*argv, "--workdir", str(workdir)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for(path, process):
    for _ in range(2400):
        if path.exists():
            return
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.05)
    raise AssertionError(f"{path} never came")


def snapshot(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def fails(argv, capsys):
    """Runs a command that must fail; its one line of complaint."""
    capsys.readouterr()
    code, err = main([str(arg) for arg in argv]), capsys.readouterr().err
    assert code == 2, err
    assert err.startswith("jaxpt: error: ") and err.count("\n") == 1, err
    return err


ENDS = signal.SIGCONT, signal.SIGKILL


@pytest.mark.slow_cases("9")
@pytest.mark.parametrize("end", slow_but(ENDS[1:], ENDS))
def test_the_second_train_is_told_and_the_first_is_whole(end, speech, tmp_path, capsys):
    changes = {
        "train__steps": 80,
        "train__eval_every": 20,
        "train__checkpoint_every": 20,
    }
    run = tmp_path / "run"
    write_config(tmp_path / "config.py", speech, **changes)
    config_path = write_stored(tmp_path / "given.json", make_config(speech, **changes))
    command = ["train", f"--config={config_path}", f"--workdir={run}"]
    first = start("train", tmp_path / "config.py", run)
    try:
        wait_for(run / "checkpoints" / "20.manifest.json", first)
        first.send_signal(signal.SIGSTOP)
        before = snapshot(run)
        assert BUSY in fails(command, capsys)
        assert BUSY in fails(["train", f"--workdir={run}"], capsys)
        refusal = fails(["import", "--from=x", f"--workdir={run}"], capsys)
        assert "must be a new or an empty folder" in refusal
        compare = ["compare", f"--config={config_path}", f"--workdir={run}"]
        assert BUSY in fails(compare, capsys)
        assert snapshot(run) == before
        if end == signal.SIGCONT:  # reading continues
            assert main(["generate", f"--workdir={run}", "--num_tokens=2"]) == 0
        first.send_signal(end)
        first.communicate()
    finally:
        first.kill()
    if end == signal.SIGKILL:
        assert first.returncode == -signal.SIGKILL
        assert main(command) == 0
        assert re.search("resuming from step [2468]0", capsys.readouterr().out)
    lines = (run / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines]
    measured = [0, 20, 40, 60, 80]
    assert steps == sorted([*range(2, 82, 2), *measured])
    result = json.loads((run / "result.json").read_text())
    assert [point["step"] for point in result["curve"]] == measured
    assert not (run / ".lock").exists()


@pytest.mark.slow
def test_a_comparison_has_its_runs_for_itself(speech, tmp_path, capsys):
    config = make_config(
        speech,
        train__steps=10**6,
        compare__budget="steps",
        compare__objectives=("clm", "mlm"),
        compare__seeds=(0,),
    )
    config_path, folder = write_stored(tmp_path / "given.json", config), tmp_path / "c"
    process = start("compare", config_path, folder)
    try:
        wait_for(folder / "runs" / "clm-seed0" / "metrics.jsonl", process)
        process.send_signal(signal.SIGSTOP)
        before = snapshot(folder)
        runs = [folder, folder / "runs" / "clm-seed0", folder / "runs" / "mlm-seed0"]
        for place in runs:
            train = ["train", f"--config={config_path}", f"--workdir={place}"]
            assert BUSY in fails(train, capsys)
        compare = ["compare", f"--config={config_path}", f"--workdir={folder}"]
        assert BUSY in fails(compare, capsys)
        assert snapshot(folder) == before
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("is_remote", [False, True])
@pytest.mark.parametrize("is_alone", [False, True])
def test_several_processes_share_a_disk_and_no_bucket(
    is_remote, is_alone, tmp_path, monkeypatch, refuses
):
    monkeypatch.setattr("jaxpt.files.remote.is_remote", lambda path: is_remote)
    monkeypatch.setattr("jaxpt.distributed.processes.is_alone", lambda: is_alone)
    with contextlib.ExitStack() as stack:
        if is_remote and not is_alone:
            with refuses(str(tmp_path), "several processes", "NFS"):
                _take(tmp_path, stack, False)
        else:
            assert _take(tmp_path, stack, False)
    assert os.listdir(tmp_path) == []


def test_what_is_refused_leaves_no_folder(speech, tmp_path, capsys):
    config_path = write_stored(
        tmp_path / "given.json", make_config(tmp_path / "gone.txt")
    )
    run = tmp_path / "new" / "run"
    for command in ("train", "compare"):
        fails([command, f"--config={config_path}", f"--workdir={run}"], capsys)
        fails(["import", "--from=nowhere", f"--workdir={run}"], capsys)
    assert os.listdir(tmp_path) == ["given.json"]


# Links.


@pytest.fixture
def victim(tmp_path):
    path = tmp_path / "victim"
    path.write_bytes(b"dear diary")
    return path


def test_no_link_in_a_runs_folder_is_written_through(speech, tmp_path, victim):
    run = tmp_path / "run"
    run.mkdir()
    names = ["tokenizer.json", "data.json", "result.json", "metrics.jsonl"]
    partial = [f"{name}.partial" for name in ("config.json", *names)]
    for name in [*names, *partial, "metrics.jsonl.tmp"]:
        (run / name).symlink_to(victim)
    nowhere = run / "checksums.json", run / "counts.json"
    for path in nowhere:
        path.symlink_to(tmp_path / "nowhere")
    config = make_config(speech, train__steps=2)
    config_path = write_stored(tmp_path / "given.json", config)
    assert main(["train", f"--config={config_path}", f"--workdir={run}"]) == 0
    assert victim.read_bytes() == b"dear diary"
    assert not (tmp_path / "nowhere").exists()
    for name in names:
        assert not (run / name).is_symlink() and (run / name).stat().st_size > 10
    assert main(["train", f"--workdir={run}"]) == 0


@pytest.mark.slow_cases("checksums.json", "tensorboard/events")
@pytest.mark.parametrize(
    "name",
    [
        *(".lock", "config.json", "checksums.json"),
        *("checkpoints", "tensorboard", "tensorboard/events"),
    ],
)
def test_a_link_that_cannot_be_replaced_is_refused(
    name, speech, tmp_path, victim, capsys
):
    folder, run = tmp_path / "folder", tmp_path / "run"
    folder.mkdir()
    (run / name).parent.mkdir(parents=True)
    is_folder = name in ("checkpoints", "tensorboard")
    (run / name).symlink_to(folder if is_folder else victim)
    config = make_config(speech, train__steps=2)
    config_path = write_stored(tmp_path / "given.json", config)
    output = fails(["train", f"--config={config_path}", f"--workdir={run}"], capsys)
    assert name in output
    assert victim.read_bytes() == b"dear diary" and not os.listdir(folder)


# Damage.


@pytest.fixture(scope="module")
def trained(tmp_path_factory, speech):
    """A finished run with a BPE tokenizer."""
    folder = tmp_path_factory.mktemp("trained")
    config = make_config(
        speech,
        train__steps=4,
        train__eval_every=2,
        train__checkpoint_every=2,
        tokenizer__kind="bpe",
        tokenizer__vocab_size=300,
    )
    config_path = write_stored(folder / "given.json", config)
    argv = ["train", f"--config={config_path}", f"--workdir={folder / 'run'}"]
    assert main(argv) == 0
    return folder / "run"


def flips(data, num=10**6):
    """The bytes with one digit or letter changed, at some places."""
    places = [m.start() for m in re.finditer(rb"[0-9A-Za-z]", data)]
    for place in places[:: max(1, len(places) // num)]:
        changed = bytearray(data)
        changed[place] ^= 1
        yield bytes(changed)


@pytest.fixture
def damaged(trained):
    """Gives each flip of a file of the run in turn, and puts the file back."""
    kept = {}

    def damage(name, num=10**6):
        path = trained / name
        kept[path] = path.read_bytes()
        for data in flips(kept[path], num):
            path.write_bytes(data)
            yield path
        path.write_bytes(kept[path])

    yield damage
    for path, data in kept.items():
        path.write_bytes(data)


@pytest.mark.slow
def test_one_digit_of_a_config_is_another_model(trained, capsys):
    path = trained / "config.json"
    whole = path.read_text()
    changed = whole.replace('"norm_epsilon": 1e-05', '"norm_epsilon": 5e-05')
    assert changed != whole
    path.write_text(changed)
    try:
        output = fails(["generate", f"--workdir={trained}", "--num_tokens=2"], capsys)
    finally:
        path.write_text(whole)
    assert f"{path}: was altered" in output and "restore it" in output


# What reads each file; RUN is the run and NEW a folder that there is not.
USES = {
    "config.json": [
        "generate --workdir=RUN --num_tokens=2",
        "evaluate --workdir=RUN",
        "fill --workdir=RUN --text=[MASK]",
        "export --workdir=RUN --to=NEW",
        "train --workdir=RUN",
        "train --config=GIVEN --workdir=RUN",
        "train --config=RUN/config.json --workdir=NEW",
        "train --config=GIVEN --workdir=NEW --config.train.init_from=RUN",
        "train --config=GIVEN --workdir=NEW --config.objective=causal_distillation "
        "--config.causal_distillation.teacher=RUN",
    ],
    "tokenizer.json": [
        "generate --workdir=RUN --num_tokens=2",
        "evaluate --workdir=RUN",
        "export --workdir=RUN --to=NEW",
        "train --workdir=RUN",
        "train --config=GIVEN --workdir=NEW --config.train.init_from=RUN",
        "prepare --config=GIVEN --config.tokenizer.kind=file "
        "--config.tokenizer.vocab_size=8192 "
        "--config.tokenizer.path=RUN/tokenizer.json",
    ],
    "data.json": ["evaluate --workdir=RUN", "train --workdir=RUN"],
    "result.json": ["train --workdir=RUN", "export --workdir=RUN --to=NEW"],
    "metrics.jsonl": ["train --workdir=RUN"],
    "checksums.json": ["generate --workdir=RUN --num_tokens=2", "train --workdir=RUN"],
}


@pytest.mark.slow_cases(
    "data.json*",
    "result.json-train --workdir=RUN",
    "metrics.jsonl*",
    "*GIVEN --workdir=RUN",
    "tokenizer.json-train --workdir*",
    "config.json-train --config=GIVEN --workdir=NEW --config.train.init_from=RUN",
)
@pytest.mark.parametrize("name, use", [(n, use) for n in USES for use in USES[n]])
def test_a_flip_is_found_by_whoever_reads_the_file(
    name, use, trained, damaged, tmp_path, capsys
):
    config_path = trained.parent / "given.json"
    for part, path in (
        ("RUN", trained),
        ("NEW", tmp_path / "new"),
        ("GIVEN", config_path),
    ):
        use = use.replace(part, str(path))
    for path in damaged(name, 2):
        output = fails(use.split(), capsys)
        assert f"{path}: was altered" in output, output
    assert not (tmp_path / "new").exists()


@pytest.mark.slow_except("config.json")
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "checksums.json"])
def test_each_flip_of_what_says_what_the_model_is_is_found(
    name, trained, damaged, refuses
):
    for number, path in enumerate(damaged(name, 300)):
        with refuses(f"{path}: was altered"):
            load_task(trained)
    assert number > 250


def test_what_can_be_measured_again_is(trained, damaged, capsys):
    whole = json.loads((trained / "result.json").read_text())
    for path in damaged("result.json", 1):
        assert "delete it" in fails(["train", f"--workdir={trained}"], capsys)
        path.unlink()
        assert main(["train", f"--workdir={trained}"]) == 0
        again = json.loads(path.read_text())
        assert again["metrics"] == pytest.approx(whole["metrics"])
        assert again["curve"] == whole["curve"]
        assert main(["train", f"--workdir={trained}"]) == 0


@pytest.mark.slow
def test_a_log_that_lost_lines_is_refused(trained, capsys):
    """Each way that two runs at once have been seen to harm it, result.json or not."""
    path, result = trained / "metrics.jsonl", trained / "result.json"
    lines, kept = path.read_bytes().splitlines(keepends=True), result.read_bytes()
    assert len(lines) > 3
    try:
        for some in (lines[:1], lines[1:], lines[:1] + lines[2:], [], None):
            path.unlink()
            if some is not None:
                path.write_bytes(b"".join(some))
            for _ in range(2):
                output = fails(["train", f"--workdir={trained}"], capsys)
                assert f"{path}: was altered" in output and "init_from" in output
                result.unlink(missing_ok=True)
            path.touch()
            result.write_bytes(kept)
    finally:
        path.write_bytes(b"".join(lines))
        if not result.exists():
            result.write_bytes(kept)


def test_this_version_reads_its_own_folders():
    minor = __version__.rpartition(".")[0]
    assert minor in READABLE, "jaxpt.files.folder.READABLE lacks this version"


def test_a_run_without_checksums_is_used_with_a_warning(trained, tmp_path, capsys):
    run = Path(shutil.copytree(trained, tmp_path / "old"))
    (run / "checksums.json").unlink()
    capsys.readouterr()
    assert main(["generate", f"--workdir={run}", "--num_tokens=2"]) == 0
    err = capsys.readouterr().err
    assert f"{run}: has no checksums.json" in err and err.count("\n") == 1


def test_evaluating_writes_nothing(trained):
    before = snapshot(trained)
    assert main(["evaluate", f"--workdir={trained}"]) == 0
    assert snapshot(trained) == before
    assert Checkpointer(trained / "checkpoints").steps() == [2, 4]


def write_new(folder, last=-1):
    """Writes a new folder; ends the process before its `last`th change, if any."""
    num = 0

    def count(event, args):
        nonlocal num
        is_change = event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir")
        if is_change and str(folder) in str(args[0]):
            num += 1
            if num == last:
                os._exit(9)

    sys.addaudithook(count)  # cannot be removed: only in a process of its own
    with new_folder(folder) as place:
        (place / "inner").mkdir()
        for name in ("a", "inner/b", "c"):
            (place / name).write_text(name)


def in_child(function, *args):
    """The exit code of a function that runs in a process of its own."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        function(*args)
    except BaseException:
        os._exit(1)
    os._exit(0)


@pytest.mark.filterwarnings("ignore:os.fork")  # the child does without JAX
@pytest.mark.parametrize("is_there", [False, True])
def test_a_new_folder_is_written_again_after_a_kill(tmp_path, is_there):
    whole = {"a": b"a", "c": b"c", "inner/b": b"inner/b"}
    for last in range(1, 100):
        folder = tmp_path / f"{last}"
        if is_there:
            folder.mkdir()
        if in_child(write_new, folder, last) == 0:
            break
        if in_child(write_new, folder):  # it was complete, but for its lock
            (folder / ".lock").unlink(missing_ok=True)
        assert snapshot(folder) == whole, last
        assert sorted(os.listdir(folder)) == ["a", "c", "inner"], last
    assert last > 8 and snapshot(folder) == whole


def test_a_new_folder_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError):
        with new_folder(tmp_path / "new" / "deep") as place:
            (place / "a").touch()
            raise ZeroDivisionError
    assert os.listdir(tmp_path) == []


@pytest.mark.filterwarnings("ignore:os.fork")
def test_what_is_not_ours_is_kept(tmp_path, refuses):
    """Files that came after a kill are not removed, and are no new folder."""
    in_child(write_new, tmp_path / "new", 5)
    (tmp_path / "new" / "mine").touch()
    for name in ("to", "workdir"):
        with refuses(f"{name}={tmp_path / 'new'}: must be a new or an empty folder"):
            with new_folder(tmp_path / "new", name):
                pass
    assert os.listdir(tmp_path / "new") == ["mine"]


def test_what_is_no_new_folder_is_one_line(tmp_path, refuses):
    with new_folder(tmp_path / "new") as place:
        with hold(tmp_path / "new"):  # by the same process: nothing is removed
            assert place.is_dir()
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "x", tmp_path / ("x" * 300)):
        with refuses(str(path)):
            with new_folder(path):
                pass


@pytest.mark.parametrize(
    "name, content",
    [
        ("config.json", "[]"),
        ("config.json", "3"),
        ("config.json", "null"),
        ("config.json", '{"train": 3}'),
        ("data.json", '{"train": null}'),
        ("result.json", '{"metrics": {"valid_loss": null}}'),
    ],
)
def test_a_forged_file_is_one_line(trained, tmp_path, capsys, name, content):
    """Also if its checksum is right."""
    shutil.copytree(trained, tmp_path / "run")
    value = json.loads(content)
    if name != "config.json":
        value = json.loads((trained / name).read_text()) | value
    checksums.write(tmp_path / "run" / name, json.dumps(value).encode())
    new = tmp_path / "new"
    err = fails(["report", "--runs", tmp_path / "run", "--workdir", new], capsys)
    assert f"{name}: " in err and not new.exists()
    if name == "config.json":
        for command in ("train", "evaluate"):
            err = fails([command, "--workdir", tmp_path / "run"], capsys)
            assert f"{name}: " in err


def test_a_command_that_was_killed_before_its_first_file_is_repeated(
    trained, tmp_path, monkeypatch
):
    """The checksum of the first file is written before the file."""
    new, replace = tmp_path / "new", disk.replace

    def stop(path, data):
        if Path(path).name != checksums.FILE:
            raise KeyboardInterrupt
        replace(path, data)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(disk, "replace", stop)
        report_runs([trained], new)
    assert [path.name for path in new.iterdir()] == [checksums.FILE]
    assert report_runs([trained], new)["runs"]
    assert checksums.find_faults(new) == {}
