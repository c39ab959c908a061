"""Fine-tuning from end to end: learned, killed at any moment, gone on with, refused."""

import os
import shutil
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
from tiny import slow, slow_but

from jaxpt.finetuning import cell as cells
from jaxpt.finetuning import grid, results
from jaxpt.finetuning.base import load_base
from jaxpt.finetuning.data import read_data
from jaxpt.finetuning.grid import finetune
from jaxpt.finetuning.reuse import Reuse
from jaxpt.finetuning.summary import format_summary
from jaxpt.runs.checkpoint import Checkpointer
from jaxpt.runs.signals import Stopped
from tests.finetuning.folders import read_all, silent

FORMS = {
    "mlm": "mean",
    "clm": "gpt",
    "bert": "bert",
    "electra": "mean",
    "bart": "bart",
    "span_corruption": "mean",
    "prefix_lm": "mean",
    "clm_mlm": "mean",
    "masked_diffusion": "mean",
    "bilm": "elmo",
    "skip_gram": "mean",
    "ul2": "mean",
    "spanbert": "mean",
}


class Killed(BaseException):
    """As a kill -9: nothing may be done about it."""


@pytest.mark.parametrize("objective", slow_but(("mlm", "clm"), FORMS))
def test_every_kind_of_network_learns(objective, make_base, make_tune, tmp_path):
    lines = []
    plan = make_tune(train__epochs=(8,), train__evals=2)
    result = finetune(plan, str(make_base(objective)), tmp_path / "to", lines.append)
    assert result["head"] == FORMS[objective]
    (cell,) = result["cells"]
    assert cell["steps"] == 40
    first, second = cell["history"]
    assert second["loss"] < first["loss"] - 0.02
    assert result["parameters"]["trained"] <= result["parameters"]["total"]
    assert any("trained: " in line for line in lines)
    text = format_summary(result)
    assert "baseline" in text and "test, the picked setting" in text


def run_whole(plan, base, folder):
    finetune(plan, base, folder, silent)
    return read_all(folder)


def read_model(plan, base, folder):
    """The parameters that are kept."""
    program = load_program(plan, base)
    trained, _ = program.split(program.abstract)
    with Checkpointer(folder / "model") as checkpointer:
        result, _ = checkpointer.restore({"trained": trained})
    return jax.device_get(result["trained"])


def load_program(plan, base):
    data = read_data(plan)
    made = load_base(base, plan.spec.head, plan.spec.max_len, plan.train.dropout)
    splits = Reuse().encode_splits(plan, data, made.encoder)
    return grid.make_program(plan, made, data.labels, splits["train"])


def kill_at(monkeypatch, where, count):
    """Has the `count`th call of a function raise, before or after its work."""
    owner, name, is_before = where
    function, calls = getattr(owner, name), []

    def call(*args, **kwargs):
        calls.append(name)
        if is_before and len(calls) == count:
            raise Killed
        result = function(*args, **kwargs)
        if not is_before and len(calls) == count:
            raise Killed
        return result

    monkeypatch.setattr(owner, name, call)


MOMENTS = {
    "in the first epoch": ((cells.TuneProgram, "train", False), 2),
    "between two saves": ((cells.TuneProgram, "train", False), 7),
    "measured, not yet saved": ((cells, "write_json", False), 1),
    "trained, nothing written": ((results, "write_json", True), 1),
    "in the second run": ((cells.TuneProgram, "train", False), 14),
    "before the result": ((grid, "summarise", True), 1),
}


QUICK = ("between two saves", "trained, nothing written")


@pytest.fixture(scope="module")
def whole():
    """What a fine-tuning has found that nothing has stopped."""
    return {}


@pytest.mark.parametrize("moment", slow_but(QUICK, MOMENTS))
def test_a_kill_at_any_moment_changes_nothing(
    moment, make_base, make_tune, tmp_path, monkeypatch, whole
):
    base = str(make_base("mlm"))
    changes = {"train__seeds": (0, 1), "train__keep": "best"}
    plan = make_tune(**changes, train__checkpoint_every=3)
    if not whole:
        whole["found"] = run_whole(plan, base, tmp_path / "whole")
        whole["model"] = read_model(plan, base, tmp_path / "whole")
    folder, (where, count) = tmp_path / "killed", MOMENTS[moment]
    with monkeypatch.context() as patch:
        kill_at(patch, where, count)
        with pytest.raises(Killed):
            finetune(plan, base, folder, silent)
    assert not (folder / "result.json").exists()
    assert run_whole(plan, base, folder) == whole["found"]
    model = read_model(plan, base, folder)
    assert model.keys() == whole["model"].keys()
    for name, leaf in model.items():
        np.testing.assert_array_equal(leaf, whole["model"][name], err_msg=name)


@pytest.mark.parametrize("seeds", [(0, 1), (0,)], ids=["between runs", "at the end"])
def test_a_signal_during_an_exact_probe_stops(
    seeds, make_base, make_tune, tmp_path, monkeypatch
):
    """It takes no steps, between which a signal is looked for."""
    base, received = str(make_base("mlm")), []
    plan = make_tune(adapt__method="exact_probe", task__head="mean", train__seeds=seeds)
    probe = grid.run_exact_probe

    def disturbed(*args):
        os.kill(os.getpid(), signal.SIGTERM)
        return probe(*args)

    before = signal.signal(signal.SIGTERM, lambda *args: received.append(args[0]))
    try:
        with monkeypatch.context() as patch:
            patch.setattr(grid, "run_exact_probe", disturbed)
            if len(seeds) > 1:
                with pytest.raises(Stopped):
                    finetune(plan, base, tmp_path / "to", silent)
            else:
                finetune(plan, base, tmp_path / "to", silent)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert received == [signal.SIGTERM] * (len(seeds) == 1)
    assert len(list((tmp_path / "to/cells").iterdir())) == 1
    result = finetune(plan, base, tmp_path / "to", silent)
    assert len(result["cells"]) == len(seeds)


@pytest.mark.slow
def test_a_process_that_is_killed_goes_on(make_base, make_tune, tmp_path, splits):
    base = str(make_base("mlm"))
    config = tmp_path / "config.py"
    config.write_text(
        "from jaxpt.config.finetuning import default_finetune_config\n"
        "def get_config():\n"
        "    config = default_finetune_config('classification')\n"
        f"    config.data.train = {str(splits / 'train.tsv')!r}\n"
        f"    config.data.dev = {str(splits / 'dev.tsv')!r}\n"
        "    config.task.max_len = 32\n"
        "    config.train.epochs = (40,)\n"
        "    config.train.batch_size = (8,)\n"
        "    config.train.checkpoint_every = 2\n"
        "    return config\n"
    )

    def start(folder):
        command = [sys.executable, "-m", "jaxpt", "finetune", "--from", base]
        command += ["--config", str(config), "--to", str(folder)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL)

    assert start(tmp_path / "whole").wait() == 0
    process = start(tmp_path / "killed")
    history = tmp_path / "killed/cells/lr2e-05-b8-e40-s0/history.json"
    while not history.exists():
        time.sleep(0.05)
        assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert start(tmp_path / "killed").wait() == 0
    one, two = (read_all(tmp_path / name) for name in ("whole", "killed"))
    assert one == two


@pytest.mark.slow
def test_a_grid_grows_and_finished_runs_are_kept(make_base, make_tune, tmp_path):
    base, folder = str(make_base("mlm")), tmp_path / "to"
    first = finetune(make_tune(), base, folder, silent)
    grown = make_tune(train__lr=(1e-2, 1e-3), train__seeds=(0, 1))
    result = finetune(grown, base, folder, silent)
    assert len(result["cells"]) == 4
    assert result["cells"][0] == first["cells"][0]
    assert len(result["settings"]) == 2
    picked = result["picked"]
    best = max(x["dev"]["accuracy"]["median"] for x in result["settings"])
    assert picked["dev"]["accuracy"]["median"] == best
    assert picked["test"]["accuracy"]["num"] == 2
    values = sorted(cell["dev"]["accuracy"] for cell in result["cells"])
    assert result["expected_best"]["4"] == pytest.approx(values[-1])
    assert result["expected_best"]["1"] == pytest.approx(np.mean(values))


def test_other_work_in_the_folder_is_refused(
    make_base, make_tune, tmp_path, refuses, splits
):
    base, folder = str(make_base("mlm")), tmp_path / "to"
    dev = tmp_path / "dev.tsv"
    shutil.copy(splits / "dev.tsv", dev)
    changes = {"train__epochs": (1,), "data__dev": str(dev)}
    plan = make_tune(**changes)
    finetune(plan, base, folder, silent)
    with refuses("to=", "optim.weight_decay=0.01, not 0.5"):
        finetune(make_tune(**changes, optim__weight_decay=0.5), base, folder, silent)
    with refuses("another network"):
        finetune(plan, f"scratch:{base}", folder, silent)
    lines = dev.read_text().splitlines(keepends=True)
    dev.write_text("".join(lines[:-1]))
    with refuses("another examples"):
        finetune(plan, base, folder, silent)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes.txt").write_text("mine")
    with refuses("to=", "holds something else"):
        finetune(plan, base, tmp_path / "full", silent)


def test_scratch_has_fresh_parameters_of_each_seed(make_base, make_tune):
    base = f"scratch:{make_base('mlm')}"
    program = load_program(make_tune(), base)
    one, two, again = (program.init_params(seed)["network"] for seed in (0, 1, 0))
    table = lambda params: np.asarray(params["embed"]["tokens"])  # noqa: E731
    assert not np.array_equal(table(one), table(two))
    np.testing.assert_array_equal(table(one), table(again))


def test_bert_begins_with_the_pooler_of_its_pretraining(make_base, make_tune):
    base = str(make_base("bert"))
    program = load_program(make_tune(), base)
    pooled = program.base.pooler["pool"]["kernel"]
    np.testing.assert_array_equal(
        program.init_params(0)["head"]["pool"]["kernel"], pooled
    )
    other = load_program(make_tune(task__head="roberta"), base)
    assert other.base.pooler is None


def test_what_no_task_reads_is_not_trained(make_base, make_tune):
    base = make_base("mlm", model__head_bias=True)
    program = load_program(make_tune(), str(base))
    _, kept = program.split(program.abstract)
    assert kept and all(name.startswith("network/head") for name in kept)
    causal = load_program(make_tune(), str(make_base("clm")))
    assert causal.lm_weight == 0.5 and not causal.split(causal.abstract)[1]
    alone = load_program(make_tune(train__lm_weight=0.0), str(make_base("clm")))
    assert alone.lm_weight == 0


@pytest.mark.parametrize(
    "changes, output",
    [
        slow({"task__head": "bart"}, "task.head=bart"),
        ({"task__max_len": 100}, "task.max_len=100"),
        ({"train__lm_weight": 0.5}, "train.lm_weight=0.5"),
        ({"data__num_train": 41}, "data.num_train=41"),
        ({"task__text": "review"}, "review"),
        ({"data__dev": "nowhere.tsv"}, "nowhere.tsv"),
    ],
)
def test_what_does_not_fit_is_refused(changes, output, make_base, make_tune, refuses):
    base = str(make_base("mlm", model__positions="learned"))
    with refuses(output):
        load_program(make_tune(**changes), base)
