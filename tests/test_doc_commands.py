"""Commands of the documentation name only flags, settings and configs that exist."""

import re
import shlex
from pathlib import Path

import pytest

from jaxpt.cli.commands import COMMANDS
from jaxpt.cli.flags import SETTING, expand
from jaxpt.config.settings import SECTIONS
from jaxpt.config.shipped import list_configs

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
BLOCK = re.compile(r"^ *```\w*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"(?:^|[\s/])jaxpt ([a-z-]+ .*)")


def list_commands(text):
    """The words of each command in the code blocks of a page."""
    for block in BLOCK.findall(text):
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            match = COMMAND.search(line.partition(" # ")[0])
            if match and match[1].split()[0] in COMMANDS:
                yield shlex.split(match[1])


def find_unknown(words):
    """The flags, settings and configs of a command that jaxpt lacks."""
    command, unknown = COMMANDS[words[0]], []
    compare = {f"compare.{name}" for name in SECTIONS["compare"][0].__annotations__}
    settings = command.describe_settings().values() if command.config else []
    known = compare | {s.name for section in settings for s in section} | {"objective"}
    for word in expand(command, words[1:]):
        flag, _, value = word.partition("=")
        if SETTING.match(word):
            name = flag.partition(".")[2]
            is_known = name in known or command.config == "finetuning"
            unknown += [] if is_known else [flag]
        elif flag.startswith("--"):
            name = flag.removeprefix("--")
            unknown += [] if name in {*command.all_flags, "help"} else [flag]
            is_file = "." in value.partition(":")[0] or not re.match(r"[a-z]", value)
            if name == "config" and not is_file:
                config = value.partition(":")[0]
                unknown += [] if config in list_configs() else [word]
    return unknown


def test_there_are_commands():
    assert sum(len([*list_commands(path.read_text())]) for path in PAGES) > 150


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_commands_of_a_page_name_what_there_is(path):
    for words in list_commands(path.read_text(encoding="utf-8")):
        assert not find_unknown(words), shlex.join(words)


@pytest.mark.parametrize(
    "command, unknown",
    [
        ("train --config quickstrat:mlm --workdir a", "--config=quickstrat:mlm"),
        ("train --config quickstart --config.optim.rate=1", "--config.optim.rate"),
        ("compare --config a.py --config.compare.seed=1", "--config.compare.seed"),
        ("export --workdir a --into b", "--into"),
    ],
)
def test_what_there_is_not_is_found(command, unknown):
    assert find_unknown(shlex.split(command)) == [unknown]
