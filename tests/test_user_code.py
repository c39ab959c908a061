"""A user's Python files: what they raise, what they import, what stays behind."""

import sys
import types

import pytest
from tiny import make_config, write_stored

import jaxpt
from jaxpt import user_code
from jaxpt.cli.main import main
from jaxpt.config.config_files import read_config_file

EXITS = {
    'sys.exit("no data here")': "sys.exit: no data here",
    'sys.exit("two\\nlines")': "sys.exit: two lines",
    "sys.exit(0)": "sys.exit(0)",
    "sys.exit(3)": "sys.exit(3)",
    "sys.exit()": "sys.exit(None)",
    "raise SystemExit": "sys.exit(None)",
    "quit()": "sys.exit(None)",
    "raise GeneratorExit": "GeneratorExit:",
    "raise type('Own', (BaseException,), {})('odd')": "Own: odd",
    "1 / 0": "ZeroDivisionError: division by zero",
}
OBJECTIVE = """
import dataclasses, sys
from typing import ClassVar
from jaxpt.objectives import clm
from jaxpt.objectives.objective import make_train_step
{on_import}

@dataclasses.dataclass(frozen=True)
class Spec(clm.Spec):
    SECTION: ClassVar[str] = "{name}"

def corrupt(rng, rows, vocab, spec):
    {on_call}
    return clm.corrupt(rng, rows, vocab, spec)

masks, loss = clm.masks, clm.loss
train_step = make_train_step(corrupt, masks, loss)
"""


def errors(argv, capsys, code=2):
    """The error of a command: one line, and its exit code."""
    capsys.readouterr()
    assert main([str(arg) for arg in argv]) == code
    (line,) = [
        x for x in capsys.readouterr().err.splitlines() if x.startswith("jaxpt: error")
    ]
    return line


@pytest.mark.parametrize("code", EXITS)
@pytest.mark.parametrize("place", ["import", "call"])
def test_a_config_that_exits_is_an_error(code, place, tmp_path, capsys):
    body = {"import": ("pass", code), "call": (code, "pass")}[place]
    text = "import sys\ndef get_config():\n    {}\n{}\n".format(*body)
    (tmp_path / "my.py").write_text(text)
    line = errors(["train", "--config", tmp_path / "my.py", "--workdir=a"], capsys)
    assert line.startswith(f"jaxpt: error: --config={tmp_path / 'my.py'}: cannot be")
    assert EXITS[code] in line


@pytest.mark.parametrize("command", ["compare", "prepare", "finetune", "inspect"])
def test_every_command_with_a_config_says_so(command, tmp_path, capsys):
    (tmp_path / "my.py").write_text("import sys\nsys.exit('no data here')\n")
    argv = [command, "--config", tmp_path / "my.py"]
    assert "sys.exit: no data here" in errors(argv, capsys)


def test_an_interrupt_in_a_config_is_one(tmp_path, capsys):
    (tmp_path / "my.py").write_text("raise KeyboardInterrupt\n")
    argv = ["train", "--config", tmp_path / "my.py", "--workdir=a"]
    assert errors(argv, capsys, 130) == "jaxpt: error: interrupted"


def test_the_config_of_a_task_that_exits_is_an_error(speech, tmp_path, capsys):
    (tmp_path / "task.py").write_text("import sys\nsys.exit(0)\n")
    config = make_config(speech, "mlm")
    config.compare.objectives = ("clm", "mlm")
    config.compare.amount = 1e9
    path = write_stored(tmp_path / "my.json", config)
    tasks = f"('finetune:{tmp_path / 'task.py'}',)"
    argv = ["compare", "--config", path, f"--config.compare.tasks={tasks}"]
    line = errors([*argv, "--workdir", tmp_path / "out"], capsys)
    assert "task.py: cannot be loaded: sys.exit(0)" in line


@pytest.mark.parametrize("place", ["import", "call"])
def test_an_objective_that_exits_is_an_error(
    place, speech, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    code = "sys.exit('no data here')"
    parts = {"on_import": "", "on_call": "pass", f"on_{place}": code}
    name = f"exits_on_{place}"
    (tmp_path / f"{place}s").mkdir()
    text = OBJECTIVE.format(name=name, **parts)
    (tmp_path / f"{place}s" / f"{name}.py").write_text(text)
    path = write_stored(tmp_path / "my.json", make_config(speech))
    argv = ["train", "--config", path, f"--objective={place}s.{name}", "--workdir=out"]
    line = errors(argv, capsys)
    assert line.endswith("sys.exit: no data here")
    names = f"objective={place}s.{name}: cannot be imported", "code outside jaxpt"
    assert names[place == "call"] in line


DATACLASS = """
from __future__ import annotations
import dataclasses, typing

@dataclasses.dataclass
class Mine:
    steps: int = 7
    more: typing.ClassVar[int] = 1

def get_config():
    from jaxpt.config.settings import default_config
    assert typing.get_type_hints(Mine)["steps"] is int
    config = default_config()
    config.train.steps = Mine().steps
    return config
"""


def test_a_config_may_have_a_dataclass(tmp_path):
    (tmp_path / "my.py").write_text(DATACLASS)
    before = list(sys.path)
    assert read_config_file(str(tmp_path / "my.py")).train.steps == 7
    assert jaxpt.read_config(tmp_path / "my.py").train.steps == 7
    modules = set(sys.modules)
    assert jaxpt.read_config(tmp_path / "my.py").train.steps == 7
    assert set(sys.modules) == modules and sys.path == before
    assert not any(name.startswith("jaxpt_config") for name in modules)


def write_neighbours(folder, steps):
    """A config that reads its number of steps from modules next to it."""
    (folder / "parts").mkdir(parents=True)
    (folder / "common.py").write_text(f"STEPS = {steps}\n")
    (folder / "parts" / "__init__.py").write_text("")
    (folder / "parts" / "more.py").write_text(DATACLASS + f"\nSTEPS = {steps}\n")
    (folder / "my.py").write_text(
        "from jaxpt.config.settings import default_config\n"
        "import common\n"
        "def get_config(argument='0'):\n"
        "    from parts import more\n"
        "    config = default_config()\n"
        "    assert more.STEPS == common.STEPS\n"
        "    config.train.steps = common.STEPS + int(argument)\n"
        "    return config\n"
    )


def test_configs_and_neighbours_of_one_name_are_not_mixed_up(tmp_path):
    before = set(sys.modules), list(sys.path)
    for name, steps in (("a", 1), ("b", 2)):
        write_neighbours(tmp_path / name, steps)
    for name, steps in (("a", 1), ("b", 2), ("a", 1)):
        path = tmp_path / name / "my.py"
        assert read_config_file(str(path)).train.steps == steps
        assert read_config_file(f"{path}:10").train.steps == steps + 10
    added = {name for name in set(sys.modules) - before[0] if "jaxpt." not in name}
    assert not added & {"common", "parts", "parts.more", "my"}
    assert list(sys.path) == before[1]


@pytest.mark.parametrize(
    "change",
    [
        "sys.path.insert(0, OTHER)",
        "sys.path.append(OTHER)",
        "sys.path[:0] = [OTHER, HERE]",
        "sys.path.remove(HERE)",
        "sys.path[:] = [OTHER, *sys.path]",
        "sys.path = [OTHER, *sys.path]",
        "sys.exit('no')",
    ],
)
def test_only_the_entry_of_the_config_is_removed_from_the_path(
    change, tmp_path, monkeypatch
):
    """Its own changes stay, such as the folder of an objective."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before, other = list(sys.path), str(tmp_path / "other")
    head = f"import sys\nOTHER, HERE = {other!r}, {str(tmp_path)!r}\n{change}\n"
    text = "from jaxpt.config.settings import default_config as get_config\n"
    (tmp_path / "my.py").write_text(head + text)
    if "exit" in change:
        with pytest.raises(jaxpt.ConfigError):
            read_config_file(str(tmp_path / "my.py"))
        assert sys.path == before
        return
    read_config_file(str(tmp_path / "my.py"))
    assert [
        entry for entry in sys.path if entry not in (other, str(tmp_path))
    ] == before
    assert (other in sys.path) == ("OTHER" in change)
    assert sys.path.count(str(tmp_path)) == ("HERE]" in change)


def test_the_path_is_as_before_an_objective_was_loaded(speech, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    text = OBJECTIVE.format(name="plain_clm", on_import="", on_call="pass")
    (tmp_path / "mine" / "plain_clm.py").write_text(text)
    before = list(sys.path)
    changes = {"objective": "mine.plain_clm"}
    assert jaxpt.read_config(make_config(speech), changes).plain_clm is not None
    assert sys.path == before


def test_only_new_modules_of_the_folder_are_listed(tmp_path, monkeypatch):
    """Neither those of other folders nor what was imported before."""
    for name in ("jaxpt_new", "jaxpt_old", "jaxpt_far"):
        module = types.ModuleType(name)
        folder = "elsewhere" if name == "jaxpt_far" else ""
        module.__file__ = str(tmp_path / folder / f"{name}.py")
        monkeypatch.setitem(sys.modules, name, module)
    known = {*sys.modules} - {"jaxpt_new", "jaxpt_far"}
    assert user_code._list_new(known, tmp_path) == ["jaxpt_new"]
