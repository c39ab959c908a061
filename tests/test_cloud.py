"""Commands on an object store: moto's S3 server on loopback."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time

import fsspec
import jax
import numpy as np
import pytest
from stores import Killed, killed_at, machine, read_all
from tiny import write_config

import jaxpt
from jaxpt.cli import main as cli
from jaxpt.files import lease
from jaxpt.finetuning import grid

TEXT = "the cat sat on the mat and the dog ran to the red house by the sea. "


@pytest.fixture(scope="module")
def server():
    """The URL of a server with no buckets."""
    from moto.server import ThreadedMotoServer

    threaded = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    threaded.start()
    host, port = threaded.get_host_and_port()
    yield f"http://{host}:{port}"
    threaded.stop()


@pytest.fixture
def s3(server, monkeypatch, tmp_path):
    """The URL of a new bucket; the process is of a machine with an empty cache."""
    variables = {
        "AWS_ENDPOINT_URL": server,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    bucket = f"s3://{tmp_path.name.lower().replace('_', '-')[:60]}"
    files = open_store()
    files.mkdir(bucket)
    files.pipe(f"{bucket}/text/a.txt", (TEXT * 60).encode())
    files.pipe(f"{bucket}/text/b.txt", (TEXT.upper() * 60).encode())
    with machine(monkeypatch, tmp_path / "home"):
        yield bucket


def open_store():
    return fsspec.filesystem("s3", skip_instance_cache=True, use_listings_cache=False)


def refused(capfd, *argv):
    """The one line of a command that ends with exit code 2."""
    capfd.readouterr()
    assert cli.main([*argv]) == 2
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def train(bucket, tmp_path, run, **changes):
    """The arguments that train a run of a second."""
    path = tmp_path / "config.py"
    write_config(path, f"{bucket}/text", **changes)
    return ["train", "--config", str(path), "--workdir", run]


@pytest.fixture
def work(monkeypatch, tmp_path, capfd):
    """Runs a command on a new machine; what it prints, with no path of a copy."""
    numbers = itertools.count()

    def run(*argv):
        with machine(monkeypatch, tmp_path / f"machine{next(numbers)}"):
            code = cli.main([*argv])
        out, err = capfd.readouterr()
        assert code == 0, (argv, err)
        assert "/remote/" not in out
        return out

    return run


def test_a_run_is_trained_read_and_exported(s3, tmp_path, monkeypatch, work):
    run = f"{s3}/runs/a"
    work(*train(s3, tmp_path, run))
    files = read_all(run)
    assert {"config.json", "result.json", "metrics.jsonl"} < files.keys()
    assert "checkpoints/12.manifest.json" in files
    assert json.loads(files["result.json"])["workdir"] == run
    # Nothing that a command reads names the machine's copy.
    texts = {name for name, data in files.items() if b"/remote/" in data}
    assert all(n == "run.log" or n.endswith("commit_success.txt") for n in texts), texts
    assert f"{run}: training run, whole" in work("doctor", run)
    assert json.loads(work("evaluate", "--workdir", run, "--json"))
    work("export", "--workdir", run, "--to", f"{s3}/export")
    assert "model.safetensors" in read_all(f"{s3}/export")
    with machine(monkeypatch, tmp_path / "python"):
        assert repr(jaxpt.load(run)).endswith(f"step 12 of {run}>")
    assert not [n for n in open_store().find(s3) if lease.is_lease(n)]


@pytest.mark.slow
def test_every_command(s3, tmp_path, monkeypatch, work):
    """Everything on the store; each command on another machine."""
    config = train(s3, tmp_path, "")[1:3]
    store, run = f"{s3}/store", f"{s3}/runs/a"
    for _ in range(2):  # the second verifies the first
        work("prepare", *config, "--to", store)
    work("train", *config, "--data", store, "--workdir", run)
    seed = "--config.train.seed=1"
    work("train", *config, "--data", store, seed, "--workdir", f"{s3}/runs/b")
    work("evaluate", "--workdir", run)
    assert work("generate", "--workdir", run, "--prompt", "the cat")
    work("inspect", *config, "--to", f"{s3}/page", "--objectives", "clm,mlm")
    work("tokenizer", "train", *config, "--to", f"{s3}/tokenizer.json")
    tokenizer = ["--config.tokenizer.kind=file"]
    tokenizer.append(f"--config.tokenizer.path={s3}/tokenizer.json")
    start_from = f"--config.train.init_from={run}"
    work("train", *config, *tokenizer, start_from, "--workdir", f"{s3}/more")
    out = work("report", "--runs", f"{s3}/runs/*", "--workdir", f"{s3}/report")
    assert f"report: {s3}/report/report.html" in out
    page = read_all(f"{s3}/report")["report.html"].decode()
    assert run in page and "/remote/" not in page
    work("export", "--workdir", run, "--to", f"{s3}/export")
    work("import", "--from", f"{s3}/export", "--workdir", f"{s3}/imported")
    with machine(monkeypatch, tmp_path / "python"):
        for name in ("runs/a", "imported", "export"):
            assert jaxpt.load(f"{s3}/{name}").generate("the", 2)
    assert not [n for n in open_store().find(s3) if lease.is_lease(n)]


@pytest.mark.slow
@pytest.mark.skipif(
    "STORAGE_EMULATOR_HOST" not in os.environ, reason="needs gcsfs and fake-gcs-server"
)
def test_google_cloud_storage(tmp_path, monkeypatch, work):
    """On the server at $STORAGE_EMULATOR_HOST, such as http://127.0.0.1:4443."""
    monkeypatch.setenv("NO_GCE_CHECK", "true")  # for which it waits without credentials
    files = fsspec.filesystem("gs", skip_instance_cache=True, use_listings_cache=False)
    bucket = f"gs://bucket{time.time_ns()}"
    run = f"{bucket}/runs/a"
    files.mkdir(bucket)
    files.pipe(f"{bucket}/text/a.txt", (TEXT * 120).encode())
    for _ in range(2):  # the second reads the result
        work(*train(bucket, tmp_path, run))
    assert "whole" in work("doctor", run)
    work("export", "--workdir", run, "--to", f"{bucket}/export")
    with machine(monkeypatch, tmp_path / "python"):
        assert jaxpt.load(run).step == 12
        assert jaxpt.load(f"{bucket}/export").generate("the", 2)
    assert not [name for name in files.find(bucket) if lease.is_lease(name)]


@pytest.mark.slow
def test_a_fine_tuning_resumes_on_another_machine(s3, tmp_path, monkeypatch, work):
    run, to = f"{s3}/run", f"{s3}/tuned"
    work(*train(s3, tmp_path, run))
    table = "".join(f"{w}\t{i % 2}\n" for i, w in enumerate(TEXT.split() * 4))
    open_store().pipe(f"{s3}/labels.tsv", f"sentence\tlabel\n{table}".encode())
    config = tmp_path / "tune.py"
    config.write_text(
        "from jaxpt.config.finetuning import default_finetune_config\n"
        "def get_config():\n"
        "    config = default_finetune_config('classification')\n"
        f"    config.data.train = config.data.dev = '{s3}/labels.tsv'\n"
        "    config.train.epochs, config.train.lr = (1,), (1e-3,)\n"
        "    config.train.seeds, config.task.max_len = (0, 1), 16\n"
        "    return config\n"
    )
    argv = ["finetune", "--from", run, "--to", to, "--config", str(config)]
    run_cell, num_cells = grid._run_cell, []

    def stop_in_the_second(*args):
        num_cells.append(args)
        if len(num_cells) == 2:
            raise Killed
        return run_cell(*args)

    with monkeypatch.context() as patch, killed_at(patch, 10_000):
        patch.setattr(grid, "_run_cell", stop_in_the_second)
        with machine(patch, tmp_path / "killed"):
            assert cli.main(argv) == 0
    assert len(num_cells) == 2 and "result.json" not in read_all(to)
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.0)
    monkeypatch.setattr(
        grid, "_run_cell", lambda *a: num_cells.append(a) or run_cell(*a)
    )
    work(*argv)
    assert len(num_cells) == 3  # the first is not repeated
    result = json.loads(read_all(to)["result.json"])
    assert result["source"] == run and len(result["cells"]) == 2
    work("export", "--workdir", to, "--to", f"{s3}/classifier")


@pytest.mark.parametrize(
    ("changes", "meaning"),
    [
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "cannot be reached"),
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "access is denied"),
    ],
)
def test_stores_that_cannot_be_used(s3, tmp_path, monkeypatch, capfd, changes, meaning):
    for name, value in changes.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("s3fs.core.S3FileSystem.retries", 1)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")  # botocore waits between attempts
    line = refused(capfd, *train(s3, tmp_path, f"{s3}/runs/a"))
    assert line.startswith(f"jaxpt: error: {s3}/runs/a: {meaning}")


def test_wrong_credentials(s3, server, tmp_path, capfd):
    import requests

    reset = f"{server}/moto-api/reset-auth"
    requests.post(reset, data=b"0", timeout=10)
    try:
        line = refused(capfd, *train(s3, tmp_path, f"{s3}/runs/a"))
    finally:
        requests.post(reset, data=b"inf", timeout=10)
    assert f"{s3}/runs/a: access is denied" in line


def test_names_that_are_not_there(s3, tmp_path, capfd):
    nowhere = "s3://no-such-bucket-here/a"
    line = refused(capfd, *train(s3, tmp_path, nowhere))
    assert line.startswith(f"jaxpt: error: {nowhere}: ") and "create the bucket" in line
    arguments = train(f"{s3}/none", tmp_path, f"{s3}/runs/a")
    assert f"{s3}/none/text" in refused(capfd, *arguments)
    assert f"{s3}/none" in refused(capfd, "generate", "--workdir", f"{s3}/none")
    assert f"{s3}/none" in refused(capfd, "doctor", f"{s3}/none")
    assert not [n for n in open_store().find(s3) if "/text/" not in n]


def start(argv, cache):
    """A process of another machine, which writes its output to CACHE.log."""
    environment = os.environ | {"JAXPT_CACHE": str(cache), "PYTHONFAULTHANDLER": "1"}
    command = [sys.executable, "-m", "jaxpt", *argv]
    with open(f"{cache}.log", "w") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


def params_of(url):
    run = jaxpt.load(url)
    return run.step, jax.tree.leaves(run.params)


@pytest.mark.slow
def test_killed_and_resumed_on_another_machine(s3, tmp_path, monkeypatch):
    """SIGKILL at several moments; the end has the bits of a run that was not killed."""
    changes = {"train__steps": 400, "train__checkpoint_every": 40}
    assert cli.main(train(s3, tmp_path, f"{s3}/whole", **changes)) == 0
    argv = train(s3, tmp_path, f"{s3}/killed", **changes)
    num_killed, files = 0, open_store()
    for number in range(6):
        process = start(argv, tmp_path / f"cache{number}")
        limit = time.monotonic() + 100
        while process.poll() is None and time.monotonic() < limit:
            # From the second checkpoint on, also while one is uploaded.
            names = files.glob(f"{s3}/killed/checkpoints/*.manifest.json")
            if names and max(map(step_of, names)) >= 40 * (2 * number + 1):
                time.sleep(0.05 * number)
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.05)
        process.wait()
        num_killed += process.returncode == -signal.SIGKILL
        for name in files.find(s3):  # what the next machine would wait a minute for
            if lease.is_lease(name):
                files.rm(name)
    assert num_killed >= 3
    with machine(monkeypatch, tmp_path / "last"):
        assert cli.main(argv) == 0
    (step, params), (whole_step, whole) = map(
        params_of, (f"{s3}/killed", f"{s3}/whole")
    )
    assert step == whole_step == 400
    for one, other in zip(params, whole, strict=True):
        np.testing.assert_array_equal(one, other)


def step_of(name):
    return int(name.rpartition("/")[2].partition(".")[0])


@pytest.mark.slow
def test_two_processes_train_one_comparison(s3, tmp_path, work):
    path = tmp_path / "compare.py"
    write_config(
        path,
        f"{s3}/text",
        compare__objectives=("clm", "mlm"),
        compare__seeds=(0, 1, 2),
        compare__budget="raw_tokens",
        compare__amount=4000.0,
    )
    study = ["compare", "--config", str(path), "--workdir"]
    assert cli.main([*study, f"{s3}/alone"]) == 0
    assert cli.main([*study, f"{s3}/both", "--part=prepare"]) == 0
    trusted = f"--trust={s3}/text"  # the stored config names it, not this command
    argv = ["compare", "--workdir", f"{s3}/both", "--part=runs", trusted]
    workers = [start(argv, tmp_path / f"worker{i}") for i in range(2)]
    codes = [worker.wait() for worker in workers]
    outputs = [(tmp_path / f"worker{i}.log").read_text() for i in range(2)]
    assert codes == [0, 0], outputs
    assert cli.main(["compare", "--workdir", f"{s3}/both", "--part=report"]) == 0
    alone, both = (
        json.loads(read_all(f"{s3}/{name}")["report.json"])["runs"]
        for name in ("alone", "both")
    )
    assert len(both) == 6
    for one, other in zip(alone, both, strict=True):
        assert one["metrics"] == other["metrics"] and one["name"] == other["name"]
    words = ["--title", "Study", "--question", "Which?"]
    work("archive", "--workdir", f"{s3}/both", "--to", f"{s3}/study", *words)
    for name in ("both", "study"):
        assert f"{s3}/{name}: " in work("doctor", f"{s3}/{name}")
