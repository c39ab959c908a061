"""`jaxpt finetune` and `jaxpt export` as typed."""

import contextlib
import io
import json
import re

import pytest

from jaxpt.cli.main import main
from jaxpt.errors import UserError

CONFIG = "configs/tasks/cola.py"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def config(tmp_path, splits):
    path = tmp_path / "task.py"
    lines = [
        "from jaxpt.config.finetuning import default_finetune_config",
        "def get_config():",
        "    config = default_finetune_config('classification')",
        f"    config.data.train = {str(splits / 'train.tsv')!r}",
        f"    config.data.dev = {str(splits / 'dev.tsv')!r}",
        "    config.task.max_len, config.train.num_lengths = 32, 1",
        "    return config",
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


def fail(capsys, *args):
    """What a refused command says: one line."""
    assert main(["finetune", *args]) == 2
    output = capsys.readouterr().err.strip().splitlines()
    assert len(output) == 1
    return output[0]


@pytest.mark.parametrize(
    "args, output",
    [
        ((), "--config: must name a file or a task such as tasks/sst2"),
        (("--config", CONFIG), "--from: must name a run's folder"),
        (("--config", CONFIG, "--from=a", "--workdir=b"), "not both"),
        (("--config", CONFIG, "--from=a"), "--to: must name the folder"),
        (("--config", CONFIG, "--config.task.color=red"), "unknown setting"),
        (
            ("--config", CONFIG, "--from=a", "--to=b", "--config.task.name=baking"),
            "task.name=baking: must be one of classification,",
        ),
        (
            ("--config", CONFIG, "--from=a", "--to=b", "--config.train.lr=-1.0"),
            "train.lr=(-1.0,)",
        ),
    ],
)
def test_what_is_refused(args, output, capsys):
    assert output in fail(capsys, *args)


def test_no_run_is_refused(capsys, config, tmp_path):
    to = tmp_path / "to"
    line = fail(capsys, "--config", config, "--from", str(tmp_path / "x"), f"--to={to}")
    assert str(tmp_path / "x") in line
    assert not (to / "config.json").exists()


@pytest.mark.slow
def test_a_grid_of_two(capsys, config, make_base, tmp_path, monkeypatch):
    to = tmp_path / "to"
    args = ["--workdir", str(make_base("mlm")), "--config", config, "--to", str(to)]
    args += ["--config.train.epochs=1", "--config.train.lr=1e-2,1e-3"]
    again = ["--to", str(tmp_path / "again")]
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert main(["finetune", *args]) == 0
    stdout = capsys.readouterr().out
    assert re.search(r"run 1 of 2: lr\S+\n", stdout)
    assert re.search(r"run 2 of 2: lr0.001-b32-e1-s0, \d+:\d\d left for all", stdout)
    assert "trained: " in stdout and "baseline" in stdout
    assert "of 1 run 0." in stdout and ", 2 runs 0." in stdout
    assert "\x1b" not in stdout  # a bar only on a terminal
    result = json.loads((to / "result.json").read_text())
    assert [cell["lr"] for cell in result["cells"]] == [0.01, 0.001]
    with contextlib.redirect_stdout(Terminal()) as terminal:
        assert (
            main(["finetune", *args[:-1], "--config.train.lr=2e-2,3e-2", *again]) == 0
        )
    shown = re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue())
    assert re.search(r"━ \[run 2 of 2, 0:\d\d left for all\]  lr0.03-\S+ step", shown)
    assert main(["finetune", *args]) == 0  # all is done: nothing is trained
    assert "run 1 of 2" not in capsys.readouterr().out
    assert main(["export", "--workdir", str(to), "--to", str(tmp_path / "out")]) == 2
    assert UserError.__name__ not in capsys.readouterr().err
