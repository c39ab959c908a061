"""Messages of the library name arguments; the command line alone writes flags."""

import ast
import re
from pathlib import Path

import pytest
from tiny import make_config, write_run

import jaxpt
from jaxpt.cli.commands import COMMANDS
from jaxpt.cli.main import FLAGS, main
from jaxpt.errors import UserError, argument, spelled

PACKAGE = Path(jaxpt.__file__).parent
LIBRARY = [
    path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.relative_to(PACKAGE).parts[0] != "cli"
]
FLAG = re.compile(r"(?<![\w-])--(?=[a-z]|$|\0)")  # \\0 is a value in an f-string
# A command line to be typed into a shell, up to the end of its line or sentence.
COMMAND = re.compile(r"(?:jaxpt [a-z-]+|python -m [\w.]+)(?: (?!;)(?:\\\n|[^`;\n])*)")
# Text with dashes that is not a flag of jaxpt, by file.
ALLOWED = {
    "comparison/archive.py": {"--config"},  # looked for in a study's command
    "distributed/processes.py": {"--xla_force_host_platform_device_count"},  # XLA's
    "errors.py": {"--top_k", "--"},  # the example of `spelled`
    "report/drawing.py": None,  # CSS variables
    "report/scaling_charts.py": None,  # CSS variables
    "training/metrics_log.py": {"--:--"},  # a time that is not known
}
TUNE = """
from jaxpt.config.finetuning import default_finetune_config

def get_config():
    config = default_finetune_config("classification")
    config.data.train = config.data.dev = "a.tsv"
    return config
"""


def list_texts(path):
    """The file's string literals; an f-string is one, with \\0 in place of values."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parts = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts |= {id(part) for part in node.values}
            yield "".join(
                getattr(part, "value", "\0") if isinstance(part, ast.Constant) else "\0"
                for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in parts:
                yield node.value


def find_flags(text):
    """The lines of a text that have a flag outside a shell command."""
    return [line for line in COMMAND.sub("", text).splitlines() if FLAG.search(line)]


def test_the_library_writes_no_flags():
    wrong = []
    for path in LIBRARY:
        name = str(path.relative_to(PACKAGE))
        allowed = ALLOWED.get(name, ())
        for text in list_texts(path) if allowed is not None else ():
            for line in find_flags(text):
                if not any(part in line for part in allowed):
                    wrong.append((name, line))
    assert not wrong


def test_what_counts_as_a_flag():
    for text in ("--a", "use --to", "(--ray_retries)", "--\0=\0: must", "with --"):
        assert find_flags(text), text
    for text in ("a--b", "finish it with jaxpt train --workdir=\0, or leave it", "---"):
        assert not find_flags(text), text


def list_named(path):
    """The literal names in calls of `argument`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "argument":
            if isinstance(node.args[0], ast.Constant):
                yield node.args[0].value


def list_calls(node, is_inside=False):
    """(whether it is inside a function, call) of all calls of `argument`."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "argument":
        yield is_inside, node
    is_function = isinstance(node, ast.FunctionDef | ast.Lambda)
    body = getattr(node, "body", ()) if is_function else ()
    body = body if isinstance(body, list) else [body]
    for child in ast.iter_child_nodes(node):
        yield from list_calls(child, is_inside or (is_function and child in body))


def test_no_message_is_spelled_when_a_module_is_imported():
    for path in LIBRARY:
        for is_inside, call in list_calls(ast.parse(path.read_text(encoding="utf-8"))):
            assert is_inside, f"{path}:{call.lineno}: as a constant or a default value"


def test_an_argument_is_a_flag_of_a_command():
    flags = {name for command in COMMANDS.values() for name in command.all_flags}
    flags |= {name for command in COMMANDS.values() for name in command.short_forms}
    named = {name for path in LIBRARY for name in list_named(path)}
    assert len(named) > 40
    assert {name for name in named - flags if not name.startswith("config.")} == set()


def test_messages_are_spelled_for_the_caller():
    names = "top_k", "config.data.path"
    assert [argument(name) for name in names] == ["top_k", "data.path"]
    assert argument("trust", "a'b") == """trust="a'b\""""
    with spelled(FLAGS):
        assert [argument(name) for name in names] == ["--top_k", "--config.data.path"]
        assert argument("trust", "a;b") == "--trust='a;b'"
        with pytest.raises(UserError, match="^top_k=0: must be"):
            jaxpt.load("demo:mlm").fill("[MASK]", top_k=0)
    assert argument("top_k") == "top_k"


@pytest.fixture(scope="module")
def folders(speech, tmp_path_factory):
    """A masked and a causal run, and a file where a folder should be."""
    place = tmp_path_factory.mktemp("arguments")
    (place / "file").write_text("")
    (place / "tune.py").write_text(TUNE)
    for name in ("mlm", "clm"):
        write_run(make_config(speech, name), place / name)
    return place


CALLS = [
    (
        ["train", "--config=quickstart", "--workdir=file"],
        lambda: jaxpt.train("quickstart", "file"),
        "{}workdir=file: is a file",
    ),
    (
        ["compare", "--config=quickstart", "--workdir=file"],
        lambda: jaxpt.compare("quickstart", "file"),
        "{}workdir=file: is a file",
    ),
    (
        ["evaluate", "--workdir=file"],
        lambda: jaxpt.evaluate("file"),
        "{}workdir=file: is ",
    ),
    (
        ["evaluate", "--workdir=mlm", "--tasks=no:x"],
        lambda: jaxpt.evaluate("mlm", "no:x"),
        "{}tasks=no:x: must be one of",
    ),
    (
        ["evaluate", "--workdir=mlm", "--tasks=pairs:x", "--num_items=-1"],
        lambda: jaxpt.evaluate("mlm", "pairs:x", num_items=-1),
        "{}num_items=-1: must be",
    ),
    (
        ["evaluate", "--workdir=mlm", "--tasks=text:x", "--num_shots=2"],
        lambda: jaxpt.evaluate("mlm", "text:x", num_shots=2),
        "{}num_shots=2",
    ),
    (
        ["fill", "--workdir=mlm", "--text=none"],
        lambda: jaxpt.load("mlm").fill("none"),
        "{}text: must hold",
    ),
    (
        ["fill", "--workdir=mlm", "--text=[MASK]", "--top_k=0"],
        lambda: jaxpt.load("mlm").fill("[MASK]", top_k=0),
        "{}top_k=0: must be",
    ),
    (
        ["generate", "--workdir=clm", "--prompt=a", "--num_beams=2", "--top_k=3"],
        lambda: jaxpt.load("clm").generate("a", num_beams=2, top_k=3),
        "{0}num_beams=2: must be 1 with {0}temperature, {0}top_k or {0}top_p",
    ),
    (
        ["generate", "--workdir=clm", "--prompt=a", "--num_tokens=-1"],
        lambda: jaxpt.load("clm").generate("a", num_tokens=-1),
        "{}num_tokens=-1: must be",
    ),
    (
        ["finetune", "--config=tune.py", "--from=clm", "--to=mlm"],
        lambda: jaxpt.finetune("tune.py", "clm", "mlm", quiet=True),
        "{}to=mlm: holds something else",
    ),
]


@pytest.mark.parametrize("argv, call, message", CALLS)
def test_a_shell_reads_flags_and_python_arguments(
    argv, call, message, folders, monkeypatch, capsys
):
    monkeypatch.chdir(folders)
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert message.format("--") in error and len(error.splitlines()) == 1
    with pytest.raises(UserError) as caught:
        call()
    assert message.format("") in str(caught.value)
    assert "--" not in str(caught.value)
