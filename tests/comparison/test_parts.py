"""A comparison in parts: its figures are those of one process, whoever trains what."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from reports import without_times
from tiny import make_config, write_config

from jaxpt.cli import main as cli
from jaxpt.comparison import compare as comparison
from jaxpt.comparison import plan_runs, train_runs
from jaxpt.comparison.collect_runs import collect_runs, write_report
from jaxpt.comparison.compare import Part, do_part
from jaxpt.comparison.plan_runs import list_runs, load_plans, run_name, write_plans
from jaxpt.config.plan import make_compare_spec, make_plans
from jaxpt.config.settings import to_dict
from jaxpt.files.folder import LOCK, write_json
from jaxpt.objectives import OBJECTIVES
from jaxpt.report import figures
from jaxpt.runs.workdir import load_examples

ROOT = Path(__file__).resolve().parents[2]
# One objective: most of a run's time here is compiling.
SETTINGS = {
    "train__checkpoint_every": 4,
    "compare__objectives": ("clm",),
    "compare__overrides": {},
    "compare__seeds": (0, 1, 2),
    "compare__amount": 4e7,
}
RUNS = ["clm-seed0", "clm-seed1", "clm-seed2"]
# A worker that is killed when it has saved the step that is named first, 0 for none.
WORKER = """
import os, signal, sys
from jaxpt.cli import main as cli
from jaxpt.runs.checkpoint import Checkpointer

last, save = int(sys.argv[1]), Checkpointer.save

def save_and_die(self, step, *args, **kwargs):
    save(self, step, *args, **kwargs)
    if step == last:
        self.wait()
        os.kill(os.getpid(), signal.SIGKILL)

Checkpointer.save = save_and_die
sys.exit(cli.main(sys.argv[2:]))
"""
HOLD = """
import sys, time
from pathlib import Path
from jaxpt.files import lock
with lock.hold(Path(sys.argv[1]), print):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True, scope="module")
def quick():
    """No pictures, and no look ahead at what will be measured: both compile much."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "draw", lambda *args: {})
        patch.setattr(plan_runs, "check_run", lambda *args: None)
        yield


@pytest.fixture(scope="module")
def config(speech):
    return make_config(speech, **SETTINGS)


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory):
    """The folder of the comparison in one process."""
    workdir = tmp_path_factory.mktemp("whole")
    comparison.compare(config, workdir)
    return workdir


@pytest.fixture(scope="module")
def prepared(config, tmp_path_factory):
    """A folder where nothing is done but the first part."""
    workdir = tmp_path_factory.mktemp("prepared")
    output = do_part(Part("prepare"), config, workdir)
    assert output == f"prepared 3 runs in {workdir}"
    return workdir


def start(code, *arguments, **more):
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        **more,
    )


def read_figures(workdir):
    return without_times(json.loads((workdir / "report.json").read_text()))


def list_trained(out):
    """The runs that a worker has begun or gone on with, as its log has them."""
    begun = re.findall(r"^(\w+) seed (\d)  clm: [\d,]+ parameters", out, re.M)
    return [run_name(*run) for run in begun]


def check_two_workers(config, whole, workdir):
    """Trains in two processes, one of which is killed; compares with one process."""
    do_part(Part("prepare"), config, workdir)
    worker = ("compare", "--part=runs", "--workdir", workdir)
    both = [start(WORKER, last, *worker) for last in (4, 0)]
    outs = [process.communicate(timeout=400)[0] for process in both]
    assert [process.returncode for process in both] == [-signal.SIGKILL, 0]
    runs = [run_name(*run) for run in list_runs(make_compare_spec(to_dict(config)))]
    (victim,) = list_trained(outs[0])
    assert f"resuming from step 4 in {workdir / 'runs' / victim}\n" in outs[1]
    assert sorted(list_trained(outs[1])) == sorted(runs)  # each once, in one process
    assert f"\nfinished: {runs[0]}, {runs[1]}" in outs[1]
    output = do_part(Part("report"), config, workdir)
    assert output.endswith(f"report: {workdir / 'report.html'}")
    assert read_figures(workdir) == read_figures(whole)
    for name in runs:
        one, other = (load_examples(path / "runs" / name) for path in (whole, workdir))
        assert one.keys() == other.keys() and one
        for metric in one:
            for value, reference in zip(one[metric], other[metric]):
                np.testing.assert_array_equal(value, reference)


def test_two_workers_of_which_one_is_killed(whole, config, tmp_path):
    """What it leaves behind is taken up by the other one, to the same bits."""
    check_two_workers(config, whole, tmp_path / "spread")


def test_a_comparison_of_another_number_is_another_one(whole):
    """So that the test above can fail."""
    figures = read_figures(whole)
    changed = json.loads(json.dumps(figures))
    changed["runs"][2]["metrics"]["valid_loss"] += 1e-12
    assert changed != figures
    assert "train_seconds" not in str(figures) and "valid_loss" in str(figures)


def test_a_run_that_another_process_has_is_waited_for(
    config, prepared, monkeypatch, capsys
):
    folder = prepared / "runs" / "clm-seed0"
    holder = start(HOLD, folder / LOCK)
    assert holder.stdout.readline() == "held\n"
    waits = []

    def wait(seconds):
        waits.append(seconds)
        if len(waits) == 2:  # printed only once
            assert not (folder / "config.json").exists()
            holder.kill()
            holder.communicate()

    monkeypatch.setattr(train_runs.time, "sleep", wait)
    output = do_part(Part("runs", "clm-seed0"), config, prepared)
    assert output == "finished: clm-seed0" and len(waits) >= 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "waiting for other processes, which train clm-seed0 (" in line
    assert str(folder / LOCK) in line
    assert (folder / "result.json").exists()
    before = (folder / "result.json").read_bytes()
    do_part(Part("runs", run_index=0), config, prepared)  # nothing is left to do
    assert (folder / "result.json").read_bytes() == before
    assert list_trained(capsys.readouterr().out) == []


def test_no_report_before_all_runs_are_there(config, prepared, refuses):
    do_part(Part("runs", "clm-seed0"), config, prepared)
    names = "clm-seed1, clm-seed2;"
    with refuses(f"workdir={prepared}: 2 of 3 runs", names, "part=runs"):
        do_part(Part("report"), config, prepared)
    assert not (prepared / "report.json").exists()


@pytest.mark.slow
def test_one_process_goes_on_with_what_others_began(whole, config, prepared):
    """And the report of finished runs is the same again."""
    do_part(Part("runs", "clm-seed2"), config, prepared)
    do_part(Part(), config, prepared)
    assert read_figures(prepared) == read_figures(whole)
    again = json.loads((prepared / "report.json").read_text())["runs"]
    do_part(Part("report"), config, prepared)
    assert json.loads((prepared / "report.json").read_text())["runs"] == again


def test_the_report_reads_what_is_vouched_for(whole, config, refuses):
    for name in ("runs/clm-seed2/result.json", "plans.json"):
        path = whole / name
        kept = path.read_bytes()
        path.write_bytes(kept.replace(b"0", b"1", 1))
        try:
            with refuses(f"{path}: was altered"):
                do_part(Part("report"), config, whole)
        finally:
            path.write_bytes(kept)


def test_plans_of_no_objective_are_refused(whole, config, tmp_path, refuses):
    again = tmp_path / "again"
    shutil.copytree(whole, again)
    stored = json.loads((again / "plans.json").read_text())
    write_json(again / "plans.json", stored | {"plans": {}})
    with refuses("plans.json: has a plan of no objective", "part=prepare"):
        do_part(Part("report"), config, again)


def test_the_report_refuses_another_run_in_a_runs_folder(
    whole, config, tmp_path, refuses
):
    again = tmp_path / "again"
    shutil.copytree(whole, again)
    shutil.rmtree(again / "runs" / "clm-seed2")
    shutil.copytree(again / "runs" / "clm-seed1", again / "runs" / "clm-seed2")
    with refuses("clm-seed2: holds a run with train.seed=1, not 2"):
        do_part(Part("report"), config, again)


def test_devices_that_differ_are_said(whole, config):
    prepared = load_plans(to_dict(config), whole)
    runs = collect_runs(prepared, whole)
    for run, device in zip(runs, ["1 x cpu", "1 x cpu", "1 x H100"]):
        run["device"] = device
    report = write_report(prepared, runs, whole)
    assert report.inequalities == ("device: 1 x cpu (clm); 1 x H100 (clm)",)
    output = do_part(Part("report"), config, whole)
    assert "not equal" not in output


@pytest.mark.parametrize("name", OBJECTIVES)
def test_what_is_kept_is_the_plan(name, speech, tmp_path):
    config = to_dict(make_config(speech, compare__amount=1e9))
    (plan,) = make_plans(config, [name]).values()
    plan = plan.change({"train": {"steps": 6}}).add_filled("a line")
    kept = plan_runs.ComparisonPlan(
        config, make_compare_spec(config), {name: plan}, *[{}] * 4
    )
    write_plans(tmp_path, kept)
    again = load_plans(config, tmp_path).plans[name]
    assert again == plan and again.filled.endswith("a line")


# What a user may have got wrong.


def fails(argv, capsys):
    capsys.readouterr()
    assert cli.main(["compare", *map(str, argv)]) == 2
    err = capsys.readouterr().err
    assert err.startswith("jaxpt: error: ") and err.count("\n") == 1, err
    return err


@pytest.fixture(scope="module")
def arguments(speech, tmp_path_factory):
    path = tmp_path_factory.mktemp("config") / "config.py"
    write_config(path, speech, **SETTINGS)
    return ["--config", path]


@pytest.mark.parametrize(
    "flags, named",
    [
        ("--part=train", "--part=train: must be one of prepare, runs, report, list"),
        ("--part=prepare --run=clm-seed0", "--run=clm-seed0: is for --part=runs"),
        ("--run_index=0", "--run_index=0: is for --part=runs"),
        ("--part=runs --run=mlm", "--run=mlm: must be one of clm-seed0, clm-seed1"),
        ("--part=runs --run_index=3", "--run_index=3: must be from 0 to 2"),
        ("--part=runs --run_index=-1", "--run_index=-1: must be from 0 to 2"),
        ("--part=runs --run_index=x", "run_index"),
        ("--part=runs --run=clm-seed0 --run_index=0", "must be one of the two"),
        ("--part=runs", "holds no prepared comparison; prepare it first"),
        ("--part=report", "holds no prepared comparison; prepare it first"),
        ("--ray=auto --part=runs", "--ray: must be without --part"),
        ("--ray=auto --distributed", "--ray: must be without --part and --distributed"),
        ("--ray_gpus=0", "--ray_gpus=0: is for --ray"),
        ("--ray_resources=TPU=4", "--ray_resources=TPU=4: is for --ray"),
        ("--ray=auto --ray_gpus=-1", "--ray_gpus=-1: must be at least 0"),
        ("--ray=auto --ray_resources=TPU", "--ray_resources=TPU: must be NAME=NUMBER"),
    ],
)
def test_bad_flags(flags, named, arguments, tmp_path, capsys):
    argv = [*arguments, "--workdir", tmp_path / "new", *flags.split()]
    assert named in fails(argv, capsys)
    assert not (tmp_path / "new").exists()


def test_a_folder_that_holds_none_or_another(whole, arguments, tmp_path, capsys):
    err = fails(["--part=report", "--workdir", tmp_path], capsys)
    assert f"--workdir={tmp_path}: holds no comparison; prepare it first" in err
    argv = [*arguments, "--config.compare.amount=6e7", "--part=runs"]
    assert "compare.amount=" in fails([*argv, "--workdir", whole], capsys)
    assert "--config: must" in fails(["--part=prepare", "--workdir", whole], capsys)


def test_without_ray_it_says_what_to_install(arguments, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    argv = [*arguments, "--workdir", tmp_path / "new", "--ray=local"]
    assert "pip install 'jaxpt[ray]'" in fails(argv, capsys)


def test_the_runs_are_listed_without_reading_text(arguments, tmp_path, capsys):
    argv = ["compare", *map(str, arguments), "--config.data.path=nowhere.txt"]
    assert cli.main([*argv, "--workdir", str(tmp_path / "new"), "--part=list"]) == 0
    assert capsys.readouterr().out.splitlines() == RUNS
    spec = make_compare_spec(to_dict(make_config("", **SETTINGS)))
    assert [run_name(*run) for run in list_runs(spec)] == RUNS
