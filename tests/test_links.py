"""No command writes through a link, FIFO or device in a folder that it continues."""

import contextlib
import os
import shutil

import pytest
from tiny import make_config, write_config

import jaxpt
from jaxpt.cli.main import main


@pytest.fixture(scope="module")
def made(speech, tmp_path_factory):
    """A folder of each kind: a run, a comparison, a report, a fine-tuning, a study."""
    place = tmp_path_factory.mktemp("links")
    (place / "pairs.tsv").write_text("good\tbad\nthe union is\tthe union are\n")
    rows = "sentence\tlabel\n" + "good\t1\nbad\t0\n" * 8
    (place / "reviews.tsv").write_text(rows)
    run = make_config(speech, "mlm", train__steps=2, eval__samples=1)
    run.train.checkpoint_words = (60,)
    jaxpt.train(run, place / "run", quiet=True)
    tasks = f"pairs:{place}/pairs.tsv"
    jaxpt.evaluate(place / "run", tasks)
    config = make_config(speech, train__steps=2)
    config.compare.update({"objectives": ("clm", "mlm"), "seeds": (0,)})
    config.compare.update({"budget": "steps", "tasks": (tasks,)})
    jaxpt.compare(config, place / "compared", quiet=True)
    write_config(place / "mine.py", speech, train__steps=2)
    with contextlib.chdir(place):
        for argv in (REPORT, ARCHIVE, TUNE):
            assert main(argv) == 0
    return place


REPORT = ["report", "--runs=run", "--workdir=reported"]
ARCHIVE = ["archive", "--title=a", "--question=b", "--workdir=compared", "--to=study"]
TUNE = ["finetune", "--config=tasks/sst2:data", "--from=run", "--to=tuned"]
TUNE += ["--config.data.train=reviews.tsv", "--config.data.dev=reviews.tsv"]
TUNE += ["--config.data.test=", "--config.task.max_len=16"]
TUNE += ["--config.train.epochs=(1,)", "--config.train.lr=(1e-3,)"]
TUNE += ["--config.train.seeds=(0,)"]
# By folder: commands that write into it, and results without which they do so again.
COMMANDS = {
    "run": (
        [
            ["train", "--workdir=run"],
            ["evaluate", "--workdir=run", "--tasks=pairs:pairs.tsv"],
        ],
        ["result.json", "evaluations/*"],
    ),
    "compared": (
        [
            ["compare", "--workdir=compared", "--part=runs"],
            ["compare", "--workdir=compared", "--part=report"],
        ],
        ["runs/*/result.json", "runs/*/evaluations/*", "report.*"],
    ),
    "reported": ([REPORT], ["report.*"]),
    "study": ([ARCHIVE], []),
    "tuned": ([TUNE], ["result.json", "cells/*/result.json"]),
}


@pytest.fixture
def place(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path / "here", symlinks=True)
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def read_tree(root):
    """Every file below a folder with its content and time, and every folder."""
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns)
        if path.is_file()
        else None
        for path in sorted(root.rglob("*"))
    }


def list_places(root, is_folder):
    """What is below a folder, except the inside of checkpoints."""
    inner = [p for p in sorted(root.rglob("*")) if p.is_dir() == is_folder]
    return [p for p in inner if "checkpoints" not in p.relative_to(root).parent.parts]


def read_error(capsys):
    """The line that a command ends with, after warnings."""
    lines = capsys.readouterr().err.splitlines()
    (line,) = [line for line in lines if line.startswith("jaxpt: error: ")]
    assert line == lines[-1]
    return line


def clear(root, patterns):
    for pattern in patterns:
        for path in root.glob(pattern):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


CASES = [(kind, argv) for kind, (commands, _) in COMMANDS.items() for argv in commands]
for_each = pytest.mark.parametrize(
    ("kind", "argv"),
    CASES,
    ids=lambda value: value if isinstance(value, str) else " ".join(value[:3]),
)


@pytest.mark.slow_except("compared-*--part=runs")
@for_each
def test_every_folder_may_be_a_link(kind, argv, place, tmp_path, capsys):
    names = [path.relative_to(place) for path in list_places(place / kind, True)]
    assert names or kind in ("reported", "study")  # which have files only
    for number, name in enumerate(names):
        outside = tmp_path / f"outside{number}"
        shutil.move(place / name, outside)
        (place / name).symlink_to(outside)
        before = read_tree(outside)
        code = main(argv)
        line = read_error(capsys)
        assert code == 2 and " is a link" in line, (name, line)
        assert str(name.relative_to(kind)) in line
        assert read_tree(outside) == before
        (place / name).unlink()
        shutil.move(outside, place / name)


@pytest.mark.slow
@for_each
def test_every_file_may_be_a_link(kind, argv, made, place, tmp_path, capsys):
    """To a copy of the file, or to none; links are replaced or refused."""
    results = COMMANDS[kind][1]
    names = [path.relative_to(place) for path in list_places(place / kind, False)]
    outside = tmp_path / "outside"
    by_name = {path.name: path for path in reversed(names)}
    for number, name in enumerate(by_name.values()):
        shutil.rmtree(place / kind)
        shutil.copytree(made / kind, place / kind)
        (place / name).unlink()
        clear(place / kind, results)
        outside.mkdir()
        if number % 2:  # else the link leads to no file
            shutil.copy(made / name, outside / "file")
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).symlink_to(outside / "file")
        before = read_tree(outside)
        code = main(argv)
        assert code in (0, 2), name
        assert not code or read_error(capsys), name
        assert read_tree(outside) == before, name
        shutil.rmtree(outside)


@pytest.mark.slow_except("run-train*")
@for_each
def test_no_fifo_is_waited_for(kind, argv, place, capsys):
    names = [path.relative_to(place) for path in list_places(place / kind, False)]
    for name in names:
        (place / name).rename(place / "kept")
        os.mkfifo(place / name)
        assert main(argv) == 2, name
        assert name.name in read_error(capsys)
        (place / name).unlink()
        (place / "kept").rename(place / name)


@pytest.mark.parametrize("argv", [REPORT, ["train", "--workdir=run"]], ids=" ".join)
def test_the_folder_itself_may_be_a_link(argv, place):
    name = argv[-1].partition("=")[2]
    (place / name).rename(place / "elsewhere")
    (place / name).symlink_to(place / "elsewhere")
    argv = [
        each.replace("--runs=run", "--runs=compared/runs/clm-seed0") for each in argv
    ]
    assert main(argv) == 0
