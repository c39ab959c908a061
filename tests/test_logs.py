"""Logging: which stream has what, `run.log`, and nothing for those who only import."""

import errno
import io
import json
import logging
import re
import subprocess
import sys

import pytest
from tiny import make_config, write_config

import jaxpt
from jaxpt import logs
from jaxpt.cli.main import main
from jaxpt.errors import CheckpointError, DivergedError
from jaxpt.runs.log_file import RUN_LOG, run_log


def test_importing_installs_no_handler(speech, tmp_path):
    write_config(tmp_path / "config.py", speech, train__steps=2)
    code = """
import logging, sys
import jaxpt, jaxpt.api.commands
logger = logging.getLogger("jaxpt")
state = lambda: (list(logger.handlers), logger.level, logger.propagate)
before = state()
jaxpt.train("config.py", "run", quiet=True)
print(before == state() == ([], 0, True))
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr


def test_progress_is_on_stdout_and_warnings_on_stderr(capsys):
    logger = logging.getLogger("jaxpt.test")
    with logs.terminal():
        logger.info("step 1 of 100%")
        logger.warning("slow")
        with logs.terminal(is_quiet=True):
            logger.info("step 2")
            logger.error("wrong")
        logger.info("step 3")
    out, err = capsys.readouterr()
    assert out == "step 1 of 100%\nstep 3\n"
    assert err == "jaxpt: warning: slow\njaxpt: error: wrong\n"


@pytest.mark.parametrize(
    "level, of_handler, expected",
    [("INFO", 0, ["a", "b"]), ("WARNING", 0, ["b"]), ("INFO", logging.ERROR, [])],
)
def test_handlers_of_the_user_get_what_they_asked_for(level, of_handler, expected):
    stream = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        handlers = [logging.StreamHandler(stream)]
        handlers[0].setLevel(of_handler)
        patch.setattr(logging.getLogger(), "handlers", handlers)
        patch.setattr(logs, "LOGGER", logging.getLogger("jaxpt_of_a_user"))
        patch.setattr(logs, "_terminal", None)
        logs.LOGGER.setLevel(level)
        with logs.terminal(is_quiet=True):
            logs.LOGGER.info("a")
            logs.LOGGER.warning("b")
    assert stream.getvalue().split() == expected


def test_a_run_keeps_its_log(speech, tmp_path, capsys):
    config, run = make_config(speech, "mlm", train__steps=4), tmp_path / "run"
    jaxpt.train(config, run, quiet=True)
    assert capsys.readouterr().out == ""
    lines = (run / RUN_LOG).read_text().splitlines()
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d INFO "
    assert all(re.match(stamp, line) for line in lines)
    assert any("INFO mlm: " in line and "parameters" in line for line in lines)
    assert any("INFO step 4/4 " in line for line in lines)
    jaxpt.train(config, run, quiet=True)  # finished: nothing is added
    assert (run / RUN_LOG).read_text().splitlines() == lines


def test_a_runs_log_ends_with_the_error(speech, tmp_path):
    config = make_config(speech, "mlm", train__steps=8, optim__lr=1e30)
    with pytest.raises(DivergedError) as caught:
        jaxpt.train(config, tmp_path / "run", quiet=True)
    last = (tmp_path / "run" / RUN_LOG).read_text().splitlines()[-1]
    assert last.endswith(f"ERROR DivergedError: {caught.value}")


def test_a_log_is_never_written_through_a_link(tmp_path):
    (tmp_path / "victim").write_text("dear diary")
    (tmp_path / RUN_LOG).symlink_to(tmp_path / "victim")
    with pytest.raises(CheckpointError, match=r"run\.log: cannot be written"):
        with run_log(tmp_path):
            pass
    assert (tmp_path / "victim").read_text() == "dear diary"


def test_evaluate_prints_json_alone(speech, tmp_path, capsys, monkeypatch):
    """Also where the text is prepared again, which is progress."""
    write_config(tmp_path / "config.py", speech, train__steps=2)
    run = f"--workdir={tmp_path / 'run'}"
    assert main(["train", f"--config={tmp_path / 'config.py'}", run, "--quiet"]) == 0
    monkeypatch.setenv("JAXPT_CACHE", str(tmp_path / "cache"))
    capsys.readouterr()
    assert main(["evaluate", run, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step"] == 2


def test_a_handler_that_a_library_adds_to_the_root_prints_no_line_again(capsys):
    root, stream = logging.getLogger(), io.StringIO()
    handler = logging.StreamHandler(stream)
    try:
        with logs.terminal():
            root.addHandler(handler)
            logging.getLogger("jaxpt.test").error("wrong")
    finally:
        root.removeHandler(handler)
    assert capsys.readouterr().err == "jaxpt: error: wrong\n"
    assert stream.getvalue() == ""


class Full(io.StringIO):
    """A stream that cannot be written."""

    def write(self, text):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_run_goes_on_if_nobody_can_read_it(speech, tmp_path, monkeypatch, capsys):
    """But the command says that its output is lost."""
    write_config(tmp_path / "config.py", speech, train__steps=2)
    command = ["train", "--config", str(tmp_path / "config.py"), "--workdir"]
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", Full())
        assert main([*command, str(tmp_path / "run")]) == 2
    assert (tmp_path / "run" / "result.json").exists()
    err = capsys.readouterr().err
    assert err == "jaxpt: error: standard output: No space left on device\n"
    assert main([*command, str(tmp_path / "run")]) == 0


@pytest.mark.parametrize(
    "shell, code",
    [
        ("settings train >/dev/full", 2),
        ("settings --help >/dev/full", 2),
        ("settings train >&-", 0),
        ("settings train >&- 2>&-", 0),
        ("list nothing >&- 2>&- <&-", 2),
    ],
)
def test_standard_streams_may_be_closed_or_full(shell, code):
    command = f"{sys.executable} -m jaxpt {shell}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert len(done.stderr.splitlines()) == ("full" in shell)


# As libffi 3.5 does, which ctypes loads.
KEEPS_A_FILE_OPEN = """
import os, sys

class Finder:
    def find_spec(name, path=None, target=None):
        if name == "jaxpt.cli":
            os.open(os.devnull, os.O_RDONLY)

sys.meta_path.insert(0, Finder)
from jaxpt.__main__ import main
sys.argv = ["jaxpt", "settings", "train"]
sys.exit(main())
"""


def test_no_file_that_an_import_opens_takes_the_place_of_a_closed_stream():
    command = f"{sys.executable} -c '{KEEPS_A_FILE_OPEN}' >&-"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
