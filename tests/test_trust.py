"""Nothing that a stored file names is imported or executed unless the user names it."""

import dataclasses
import json
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from tiny import make_config, write_config

import jaxpt
from jaxpt import trust
from jaxpt.cli.main import FLAGS, main
from jaxpt.comparison.compare import Part
from jaxpt.comparison.compared_tasks import list_compare_tasks, make_task_plan
from jaxpt.comparison.on_ray import _do_part
from jaxpt.config.sections import CompareSpec
from jaxpt.config.settings import to_dict
from jaxpt.errors import spelled
from jaxpt.files import folder
from jaxpt.hub import onnx_files

EVIL = "evil.twin"
MARK = "was_here"
CODE = f"""
from pathlib import Path
Path({MARK!r}).write_text("executed")
"""
OBJECTIVE = """
import dataclasses
from typing import ClassVar
from jaxpt.objectives import mlm
from jaxpt.objectives.mlm import corrupt, loss, masks, train_step

@dataclasses.dataclass(frozen=True)
class Spec(mlm.Spec):
    SECTION: ClassVar[str] = "twin"
"""
TASK = """
from jaxpt.config.finetuning import default_finetune_config
def get_config():
    config = default_finetune_config("classification")
    config.data.train = "reviews.tsv"
    return config
"""


@pytest.fixture(scope="module")
def trained(speech, tmp_path_factory):
    """A finished masked run, of BERT's form."""
    place = tmp_path_factory.mktemp("trust") / "run"
    config = make_config(speech, "mlm", train__steps=2)
    config.model.update({"num_types": 1, "norm_position": "post"})
    config.model.update({"head_bias": True, "head_transform": True})
    jaxpt.train(config, place, quiet=True)
    return place


def disguise(config: dict) -> dict:
    """The config of a run whose objective is the planted module."""
    return config | {"objective": EVIL, "twin": config["mlm"]}


@pytest.fixture
def place(trained, speech, tmp_path, monkeypatch):
    """The current folder: a planted module, and stored files that name it.

    Checksums are right, as whoever plants a run would have them.
    """
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "__init__.py").write_text(CODE)
    (tmp_path / "evil" / "twin.py").write_text(OBJECTIVE)
    (tmp_path / "evil_task.py").write_text(CODE + TASK)
    shutil.copytree(trained, tmp_path / "run")
    stored = json.loads((trained / "config.json").read_text())
    stored.pop("version")
    folder.write_config(tmp_path / "run" / "config.json", disguise(stored))
    result = json.loads((trained / "result.json").read_text())
    folder.write_json(tmp_path / "run" / "result.json", result | {"objective": EVIL})
    compared = {"objectives": ["mlm", EVIL], "budget": "steps", "amount": 0}
    compared = {"compare": stored["compare"] | compared}
    folder.write_config(tmp_path / "compared" / "compare.json", stored | compared)
    tasks = {"objectives": ["mlm"], "tasks": ["finetune:evil_task.py"]}
    tasks = {"compare": compared["compare"] | tasks}
    folder.write_config(tmp_path / "tasks.json", stored | tasks)
    write_config(tmp_path / "mine.py", speech, train__steps=2)
    (tmp_path / "reviews.tsv").write_text("sentence\tlabel\n" + "good\t1\nbad\t0\n" * 8)
    (tmp_path / "pairs.tsv").write_text("good\tbad\nthe union is\tthe union are\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, ""])
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "evil"]:
        del sys.modules[name]


TRAIN = ["train", "--config", "mine.py", "--workdir", "new"]
DATA = ["--config.data.train=reviews.tsv", "--config.data.dev=reviews.tsv"]
DATA += ["--config.data.test="]
TUNE = ["finetune", "--config", "tasks/sst2:data", *DATA]
COMMANDS = [
    ["generate", "--workdir=run"],
    ["fill", "--workdir=run", "--text=the [MASK]en"],
    ["neighbours", "--workdir=run", "--word=the"],
    ["evaluate", "--workdir=run"],
    ["evaluate", "--workdir=run", "--tasks=pairs:pairs.tsv"],
    ["export", "--workdir=run", "--to=out"],
    ["export", "--workdir=run", "--to=out", "--format=onnx"],
    ["applet", "--workdir", "run", "--to=out"],
    ["report", "--runs", "run", "--workdir=out"],
    ["analyse", "--runs", "run", "--to=out"],
    ["fit-scaling", "--runs", "run"],
    ["inspect", "--config=run/config.json"],
    ["inspect", "--config=run/config.json", "--to=out", "--objectives=clm"],
    ["tokenizer", "train", "--config=run/config.json", "--to=out.json"],
    ["prepare", "--config=run/config.json", "--to=out"],
    ["import", "--config=run/config.json", "--from=out", "--workdir=new"],
    ["train", "--workdir=run"],
    ["train", "--config=run/config.json", "--workdir=new"],
    ["train", "--config=run/config.json", "--workdir=new", "--config.objective=mlm"],
    ["train", "--config=run/config.json", "--dry_run"],
    [*TRAIN, "--config.objective=mlm", "--config.train.init_from=run"],
    [*TRAIN, "--config.objective=distillation", "--config.distillation.teacher=run"],
    ["compare", "--config=run/config.json", "--workdir=new"],
    ["compare", "--config=compared/compare.json", "--workdir=new"],
    ["compare", "--workdir=compared", "--part=list"],
    ["compare", "--workdir=compared", "--part=runs"],
    ["compare", "--workdir=compared", "--part=report"],
    [*TUNE, "--from=run", "--to=out"],
    [*TUNE, "--from=scratch:run", "--to=out"],
]


@pytest.mark.parametrize("argv", COMMANDS, ids=" ".join)
def test_no_command_imports_what_a_stored_file_names(argv, place, capsys, monkeypatch):
    monkeypatch.setattr(onnx_files, "require", lambda precision: None)  # not installed
    assert main(argv) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"objective={EVIL}: {EVIL} is code outside jaxpt" in line
    assert f"add --trust={EVIL} " in line
    assert not (place / MARK).exists() and "evil" not in sys.modules


CALLS = {
    "load": lambda: jaxpt.load("run"),
    "evaluate": lambda: jaxpt.evaluate("run"),
    "evaluate_tasks": lambda: jaxpt.evaluate("run", "pairs:pairs.tsv"),
    "finetune": lambda: jaxpt.finetune(
        jaxpt.default_finetune_config("classification"),
        "run",
        "out",
        {"data.train": "reviews.tsv", "data.dev": "reviews.tsv"},
        quiet=True,
    ),
    "train": lambda: jaxpt.train("run/config.json", "new"),
    "train_dict": lambda: jaxpt.train(
        json.loads(Path("compared/compare.json").read_text()) | {"objective": EVIL},
        "new",
    ),
    "compare": lambda: jaxpt.compare("compared/compare.json", "new"),
    "prepare": lambda: jaxpt.prepare("run/config.json"),
    "read_config": lambda: jaxpt.read_config("run/config.json"),
    "init_from": lambda: jaxpt.train("mine.py", "new", {"train.init_from": "run"}),
}


@pytest.mark.parametrize("name", CALLS)
def test_no_call_imports_what_a_stored_file_names(name, place, refuses):
    with refuses(f"objective={EVIL}", f"trust={EVIL!r}"):
        CALLS[name]()
    assert not (place / MARK).exists() and "evil" not in sys.modules


def test_an_export_names_no_code(place, trained, capsys):
    """The `jaxpt` folder of an export is read by name from the package's own."""
    assert main(["export", f"--workdir={trained}", "--to=hf"]) == 0
    about = json.loads((place / "hf" / "jaxpt" / "run.json").read_text())
    text = json.dumps(about | {"objective": EVIL})
    (place / "hf" / "jaxpt" / "run.json").write_text(text)
    capsys.readouterr()
    assert main(["import", "--from=hf", "--workdir=new"]) == 2
    assert f"objective='{EVIL}': must be one of" in capsys.readouterr().err
    assert not (place / MARK).exists() and "evil" not in sys.modules


def test_the_user_names_it(place, capsys):
    """On the command line, by --trust or a setting; in the call; in a config file."""
    assert main(["fill", "--workdir=run", "--text=t[MASK]e", f"--trust={EVIL}"]) == 0
    assert (place / MARK).exists()
    trust._trusted.clear()
    jaxpt.load("run", trust=EVIL)
    trust._trusted.clear()
    jaxpt.load("run", trust=["a.b", EVIL])
    trust._trusted.clear()
    argv = ["inspect", "--config=run/config.json", f"--config.objective={EVIL}"]
    assert main(argv) == 0
    trust._trusted.clear()
    settings = {"objective": EVIL}
    assert jaxpt.read_config("run/config.json", settings)["objective"] == EVIL
    trust._trusted.clear()
    lines = (place / "mine.py").read_text() + "\nbefore = get_config"
    lines += "\ndef get_config():\n    config = before()"
    lines += f"\n    config.objective = {EVIL!r}\n    return config"
    (place / "mine.py").write_text(lines)
    assert main(["inspect", "--config=mine.py"]) == 0
    assert jaxpt.read_config("mine.py")["objective"] == EVIL


def test_a_name_trusts_no_other(place, capsys):
    for other in ("evil", "evil.twins", "mlm"):
        argv = ["evaluate", "--workdir=run", "--trust", other]
        assert main(argv) == 2
    argv = ["compare", "--config=compared/compare.json", "--workdir=new"]
    assert main([*argv, "--config.compare.objectives=('mlm','own.half')"]) == 2
    assert not (place / MARK).exists()


def test_no_setting_of_a_file_trusts(place, capsys):
    stored = json.loads((place / "run" / "config.json").read_text())
    stored |= {"trust": [EVIL]}
    folder.write_json(place / "run" / "config.json", stored)
    assert main(["evaluate", "--workdir=run"]) == 2
    assert main(["train", "--config=run/config.json", "--workdir=new"]) == 2
    assert not (place / MARK).exists()


def test_a_stored_comparison_executes_no_config_file(place, capsys):
    """`compare.tasks` names the config files of fine-tunings."""
    argv = ["compare", "--config=tasks.json", "--workdir=new"]
    assert main(argv) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "compare.tasks=finetune:evil_task.py: evil_task.py is code" in line
    assert "add --trust=evil_task.py " in line
    assert not (place / MARK).exists()


def test_the_user_names_a_config_file_of_a_task(place, refuses):
    spec = CompareSpec(budget="steps", tasks=("finetune:evil_task.py",))
    (task,) = list_compare_tasks(spec)
    with refuses("trust='evil_task.py'"):
        make_task_plan(task, 2, 0, {})
    config = to_dict(make_config("a", "mlm"))
    jaxpt.read_config(config, {"compare.tasks": ("finetune:evil_task.py",)})
    assert make_task_plan(task, 2, 0, {}).data.num_train == 2
    shipped = dataclasses.replace(spec, tasks=("finetune:tasks/sst2:data",))
    (task,) = list_compare_tasks(shipped)
    assert make_task_plan(task, 2, 0, {}).task_name == "classification"


def test_a_flag_names_a_config_file_of_a_task(place, capsys):
    """Up to the next fault, which is found after it was executed."""
    argv = ["compare", "--config=mine.py", "--workdir=new", "--config.objective=mlm"]
    argv += ["--config.compare.tasks=('finetune:evil_task.py',)"]
    argv += ["--config.compare.budget=steps", "--config.compare.task_sizes=(999,)"]
    assert main(argv) == 2
    assert "--trust" not in capsys.readouterr().err and (place / MARK).exists()


def test_a_worker_of_ray_trusts_what_the_command_did(place):
    args = Part("list"), None, "compared", [], str(place)
    output, fault = _do_part(*args, [], False, FLAGS)
    assert not output and f"--trust={EVIL}" in fault
    assert not (place / MARK).exists()
    output, fault = _do_part(*args, [EVIL])
    assert f"{EVIL}-seed0" in output and not fault


def test_a_hostile_name_stays_one_harmless_line(refuses):
    for name, quoted in (("a.b; rm x\n", "'a.b; rm x\\n'"), ("$(rm '`x`')", None)):
        quoted = quoted or shlex.quote(name)
        with spelled(FLAGS), refuses(f"add --trust={quoted}"):
            trust.check(name, "objective=a.b")
        with refuses(f"add trust={name!r}"):
            trust.check(name, "objective=a.b")
