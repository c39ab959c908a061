"""What is printed and written: no control characters, no passwords."""

import ast
import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import write_config

import jaxpt
from jaxpt.cli.main import main
from jaxpt.errors import ConfigError, UserError
from jaxpt.files import copies
from jaxpt.files.objects import check_url
from jaxpt.logs import LOGGER
from jaxpt.runs.log_file import RUN_LOG, run_log

ESCAPE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"
OBJECTIVES = f"--config.compare.objectives=mlm,{ESCAPE}"
# Files whose calls of `print` have no stored values: constants, numbers, settings.
PRINTERS = {
    *("logs.py", "__main__.py", "cli/running.py", "hub/lm_eval.py"),
    *("cli/main.py", "cli/discovery.py", "cli/flags.py", "cli/train.py"),
}


def list_control(text):
    """The control characters of a text that a terminal would obey."""
    return [c for c in text if unicodedata.category(c) == "Cc" and c not in "\n\t"]


@given(st.text(st.characters(categories=("Cc", "Cf", "Cs", "Zl", "L", "Zs"))))
def test_nothing_moves_a_cursor_or_turns_a_text(text):
    shown = copies.printable(text)
    shown.encode()
    assert not list_control(shown)
    assert not {unicodedata.category(c) for c in shown} & {"Cs", "Zl"}
    turning = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    assert not [c for c in shown if unicodedata.bidirectional(c) in turning]
    assert copies.printable(shown) == shown


def test_letters_of_all_scripts_are_printed():
    text = "naïve 猫 \N{NO-BREAK SPACE}a\u200db עברית 🙂\n\tx"
    assert copies.printable(text) == text


def test_results_are_printed_by_one_function():
    root = Path(jaxpt.__file__).parent
    callers = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print"
    }
    assert callers <= PRINTERS


@pytest.fixture(scope="module")
def hostile(speech, tmp_path_factory):
    """A run in a folder with escape sequences, which its files hold as well."""
    folder = tmp_path_factory.mktemp("hostile")
    write_config(folder / "config.py", speech, objective="mlm", train__steps=2)
    run = folder / f"run{ESCAPE}"
    arguments = ["--config", str(folder / "config.py"), "--workdir", str(run)]
    assert main(["train", *arguments]) == 0
    result = json.loads((run / "result.json").read_text())
    result["versions"] = {"jax": ESCAPE, ESCAPE: "1"}
    (run / "result.json").write_text(json.dumps(result))
    return run


COMMANDS = {
    "evaluate": ["--workdir={}"],
    "evaluate pairs": ["--workdir={}", f"--tasks=pairs:missing{ESCAPE}.jsonl"],
    "generate": ["--workdir={}", f"--prompt=the{ESCAPE}"],
    "fill": ["--workdir={}", f"--text=the [MASK]{ESCAPE}"],
    "neighbours": ["--workdir={}", f"--word={ESCAPE}"],
    "inspect": ["--workdir={}"],
    "report": ["--runs={}", "--workdir={}-report"],
    "export": ["--workdir={}", "--to={}-export"],
    "doctor": ["--workdir={}"],
    "verdict": ["{}"],
    "train": ["--config={}/config.json", f"--data={ESCAPE}", "--workdir={}-again"],
    "compare": ["--config={}/config.json", "--workdir={}-all", OBJECTIVES],
    "reproduce": ["{}", "--workdir={}-again"],
    "archive": ["--workdir={}", *(f"--{x}=a" for x in ("to", "title", "question"))],
    ESCAPE: [],
    f"train --{ESCAPE}": [],
}

# Commands that print nothing that is stored here.
WITHOUT = ("evaluate", "inspect", "doctor", "generate", "export")


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_prints_control_characters(hostile, command, capsys):
    words = [word.replace("{}", str(hostile)) for word in COMMANDS[command]]
    name, *rest = command.split(" --") if "--" in command else command.split()[:1]
    capsys.readouterr()  # of the fixture
    main([name, *(f"--{each}" for each in rest), *words])
    out, err = capsys.readouterr()
    assert not list_control(out + err)
    assert "\\x1b" in out + err or command in WITHOUT


def test_the_log_of_a_run_has_no_control_characters(hostile):
    with run_log(hostile):
        LOGGER.info(f"opened {ESCAPE}")
    text = (hostile / RUN_LOG).read_text()
    assert "opened \\x1b" in text and not list_control(text)


@pytest.mark.parametrize(
    "url, shown",
    [
        ("s3://me:secret/a@bucket/b", "s3://me:secret/a@bucket/b"),  # not a password
        ("s3://me:se%2Fcret@bucket/b", "s3://***@bucket/b"),
        ("https://hf_token@host/b", "https://***@host/b"),
        ("http:/me:secret@host", "http:/***@host"),
        ("sftp://:secret@host/b?x=a@b", "sftp://***@host/b?x=a@b"),
        ("abfs://container@account.net/b", "abfs://container@account.net/b"),
        ("write to me@host or a:b@c", "write to me@host or a:b@c"),
    ],
)
def test_passwords_of_urls_are_masked(url, shown):
    assert copies.with_urls(f"{url}: is empty") == f"{shown}: is empty"


@pytest.mark.parametrize("scheme", ["s3", "gs", "abfs", "http", "ftp"])
def test_urls_with_passwords_are_refused(scheme):
    with pytest.raises(ConfigError) as error:
        check_url(f"{scheme}://me:hunter2222@bucket/b")
    assert "hunter2222" not in str(error.value)


@pytest.mark.parametrize("name", copies.SECRETS)
def test_tokens_of_the_environment_are_masked(name, monkeypatch):
    monkeypatch.setenv(name, "abcdefgh12")
    assert copies.with_urls("401 for abcdefgh12") == "401 for ***"
    monkeypatch.setenv(name, "short")
    assert copies.with_urls("a short text") == "a short text"


def test_no_file_of_a_run_has_a_token(speech, tmp_path, monkeypatch, capsys):
    """Also not if a message of a library, here of the text's path, repeats it."""
    monkeypatch.setenv("HF_TOKEN", "hf_verysecret")
    data = tmp_path / "hf_verysecret.txt"
    data.write_bytes(Path(speech).read_bytes())
    write_config(tmp_path / "config.py", str(data), train__steps=2)
    arguments = ["--config", str(tmp_path / "config.py"), "--config.train.steps=3"]
    main(["train", *arguments, "--workdir", str(tmp_path / "run")])
    logged = (tmp_path / "run" / RUN_LOG).read_text()
    assert "hf_verysecret" not in "".join([*capsys.readouterr(), logged])


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
@pytest.mark.parametrize(
    "command", ["train --config=quickstart:mlm --workdir=run --data=", "verdict "]
)
def test_a_table_of_many_columns_is_refused_in_a_short_line(
    suffix, command, capsys, tmp_path, monkeypatch
):
    """In linear time: comparing all pairs of 100,000 names would take minutes."""
    monkeypatch.chdir(tmp_path)
    row = (",", "\t")[suffix == "tsv"].join
    names = [f"c{i}" for i in range(100_000)]
    Path(f"wide.{suffix}").write_text(f"{row(names)}\n{row(['1'] * 100_000)}\n")
    assert main(f"{command}wide.{suffix}".split()) == 2
    err = capsys.readouterr().err
    assert len(err) < 3000 and "c1, " in err.replace("'", "") and " [...] " in err


def test_two_columns_of_one_name_are_refused(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("text,a,b,a\nx,1,2,3\n")
    data = f"--data={tmp_path}/a.csv"
    assert main(["train", "--config=quickstart:mlm", f"--workdir={tmp_path}/b", data])
    assert main(["verdict", f"{tmp_path}/a.csv"]) == 2
    *_, first, second = capsys.readouterr().err.splitlines()
    assert "the header has 'a' twice" in first and "two columns 'a'" in second


LONG = "a" * 5000
CALLS = {
    "load": lambda: jaxpt.load(LONG),
    "train": lambda: jaxpt.train("quickstart:mlm", LONG),
    "a config": lambda: jaxpt.train(LONG, "run"),
    "evaluate": lambda: jaxpt.evaluate(LONG),
    "compare": lambda: jaxpt.compare("quickstart", LONG),
    "finetune": lambda: jaxpt.finetune(LONG, "tasks/sst2", "run"),
    "a task": lambda: jaxpt.finetune("run", LONG, "run"),
    "verdict": lambda: jaxpt.verdict(LONG),
    "read_config": lambda: jaxpt.read_config(LONG),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_name_that_no_file_can_have_is_a_user_error(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as error:
        CALLS[call]()
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())
