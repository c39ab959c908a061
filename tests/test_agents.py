"""AGENTS.md: its commands, targets, flags and paths exist, and it is short."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from jaxpt.cli.commands import COMMANDS
from jaxpt.config.shipped import find_config

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
MOST_LINES = 100
# The folders and files at the top level, by which a word is recognized as a path.
TOP = {path.name for path in ROOT.iterdir()}


def list_code():
    """The code of blocks by line without comments, and of spans."""
    blocks = re.findall(r"```\n(.*?)```", TEXT, re.S)
    lines = [line for block in blocks for line in block.splitlines()]
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", TEXT, flags=re.S))
    return [x.partition("  #")[0].strip() for x in (*lines, *spans)]


CODE = list_code()
MAKE = [code for code in CODE if code.startswith("make ")]
JAXPT = [code for code in CODE if re.match(r"(\.venv/bin/)?jaxpt [a-z]", code)]


def test_it_is_short():
    assert len(TEXT.splitlines()) <= MOST_LINES
    assert len(MAKE) >= 5 and len(JAXPT) >= 4


def list_targets():
    text = "".join(
        (ROOT / name).read_text(encoding="utf-8")
        for name in ("Makefile", ".github/maintainers.mk")
    )
    text = text.replace("$(VENV)", ".venv")
    return set(re.findall(r"^([\w./-]+):", text, re.M))


@pytest.mark.parametrize("code", MAKE)
def test_targets_exist(code):
    words = [word for word in shlex.split(code)[1:] if "=" not in word]
    assert words and set(words) <= list_targets()


@pytest.mark.parametrize("code", JAXPT)
def test_commands_and_flags_exist(code):
    words = shlex.split(code.removeprefix(".venv/bin/"))
    command = COMMANDS[words[1]]
    flags = {w[2:].partition("=")[0] for w in words if w.startswith("--")}
    assert flags <= set(command.all_flags)
    if "--config" in words:
        name = words[words.index("--config") + 1].partition(":")[0]
        assert Path(find_config(name)).exists()


def list_paths():
    """Words with a slash, or files with a suffix, that begin at the top level."""
    words = [word for code in CODE for word in code.split()]
    words += re.findall(r"\]\(([^)#]+)\)", TEXT)
    paths = {word.rstrip(".,;") for word in words}
    return sorted(
        path for path in paths if path.split("/")[0] in TOP - {".venv", "runs"}
    )


def test_paths_are_recognized():
    assert {"jaxpt/judge/", "docs/own-objective.md", "Makefile"} & set(list_paths())
    assert len(list_paths()) > 30


@pytest.mark.parametrize("path", list_paths())
def test_paths_exist(path):
    assert (ROOT / path).exists()


def test_it_is_tracked():
    listed = subprocess.run(
        ["git", "ls-files", "AGENTS.md"], capture_output=True, text=True, cwd=ROOT
    )
    if listed.returncode:
        pytest.skip("is no checkout of git")
    assert listed.stdout.strip() == "AGENTS.md"
