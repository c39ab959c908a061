"""Flags, settings, values and configs of the documentation's commands exist."""

import re
import shlex
from collections import defaultdict
from pathlib import Path

import pytest

from jaxpt.cli.commands import COMMANDS
from jaxpt.cli.flags import SETTING, expand, parse, parse_config
from jaxpt.config.settings import SECTIONS
from jaxpt.config.shipped import list_configs
from jaxpt.errors import UserError
from jaxpt.objectives import OBJECTIVES

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
BLOCK = re.compile(r"^ *```\w*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
# A command, or a script of `launch` that passes its words on.
COMMAND = re.compile(r"(?:^|[\s/])(?:jaxpt|launch/local_processes\.sh) ([a-z-]+ .*)")
SCRIPTS = {"compare": r"launch/compare_\w+\.sh (?:.* -- )?(--config.*)"}
SCRIPTS |= {"prepare": r"launch/prepare_slurm\.sh .* -- (.*)"}
INLINE = re.compile(r"`(?:\.venv/bin/)?jaxpt ([a-z-]+ -[^`]*)`")
# Rows of a table of commands with their errors.
REFUSED = re.compile(r"^\| `jaxpt [^|]*\| `.*", re.MULTILINE)
# What ends a command or joins it to another.
END = {"|", "&", "&&", ">", "done", "|| exit"}
# The flag that names the folder or file that a command writes.
WRITTEN = dict.fromkeys(
    ("train", "compare", "import", "report", "reproduce"), "workdir"
)
WRITTEN |= dict.fromkeys(
    ("tokenizer", "prepare", "finetune", "export", "archive"), "to"
)
WRITTEN |= dict.fromkeys(("applet", "analyse", "fit-scaling"), "to")
SHIPPED = re.compile(r"^((?:--config=)?)configs/(\w+)\.py")
PLACES = {"RUN", "DIR", "run"}  # of the reader
# What a command may add when it is repeated on the same folder.
ADDED = re.compile(
    r"--(part|merge|ray\w*|run|run_index|register|push|config\.compare\.task\w*)\b"
)
OWN = re.compile(r"[=,]\w+\.\w+$")  # an objective outside the package


def list_commands(text):
    """The words of each command of a page."""
    for command in INLINE.findall(REFUSED.sub("", BLOCK.sub("", text))):
        yield shlex.split(command.replace("\n", " "))
    for block in BLOCK.findall(text):
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            line = line.partition(" # ")[0]
            if (match := COMMAND.search(line)) and match[1].split()[0] in COMMANDS:
                yield cut(shlex.split(match[1].replace(";", " ; ")))
            for name, pattern in SCRIPTS.items():
                if match := re.search(pattern, line):
                    yield cut([name, *shlex.split(match[1])])


def cut(words):
    """The words before the end of a command."""
    ends = [i for i, word in enumerate(words) if word in {*END, ";"}]
    return words[: ends[0]] if ends else words


def find_fault(words):
    """What is wrong with a command; "" if nothing is."""
    command = COMMANDS[words[0]]
    flags = [w for w in expand(command, words[1:]) if w.startswith("--")]
    flags = [w for w in flags if "$" not in w]
    last = flags[-1][2:] if flags else ""
    if last in command.all_flags:  # a sentence leaves its value out
        flags[-1] += "" if isinstance(command.all_flags[last][0], bool) else "="
    config = next((w for w in flags if w.startswith("--config=")), "")
    if names := [*find_unknown(command, flags)]:
        return ", ".join(names)
    is_own = [bool(OWN.search(w) and re.search(r"objectives?=", w)) for w in flags]
    flags = [w for w, own in zip(flags, is_own, strict=True) if not own]
    can_load = config.removeprefix("--config=").partition(":")[0] in list_configs()
    try:
        if can_load:
            parse_config(command, flags)
        else:
            parse(command, [w for w in flags if not SETTING.match(w)])
    except UserError as error:
        return str(error)
    return ""


def find_unknown(command, flags):
    """The settings, configs and objectives of a command that jaxpt lacks."""
    compare = {f"compare.{name}" for name in SECTIONS["compare"][0].__annotations__}
    settings = command.describe_settings().values() if command.config else []
    known = compare | {s.name for section in settings for s in section} | {"objective"}
    for word in flags:
        flag, _, value = word.partition("=")
        name = flag.partition(".")[2]
        if SETTING.match(word):
            if name not in known and command.config != "finetuning":
                yield flag
            if name in ("objective", "compare.objectives") and "(" not in value:
                for each in value.split(","):
                    if "." not in each and each not in OBJECTIVES:
                        yield f"{flag}={each}"
        elif flag == "--config" and re.match(r"[a-z]", value):
            config, _, rest = value.partition(":")
            is_file = "." in config or config.startswith("runs/")
            if not is_file and config not in list_configs():
                yield word
            if config == "quickstart" and rest and rest not in OBJECTIVES:
                yield word


def find_faults(path):
    for words in list_commands(path.read_text(encoding="utf-8")):
        if fault := find_fault(words):
            yield f"{shlex.join(words)}: {fault}"


def list_written(pages):
    """For each folder or file: the different commands that write it, with the page."""
    written = defaultdict(dict)
    for path in pages:
        for name, *words in list_commands(path.read_text(encoding="utf-8")):
            words = [SHIPPED.sub(r"\1\2", word) for word in words]
            flags = expand(COMMANDS[name], words)
            place = dict(flag[2:].partition("=")[::2] for flag in flags).get(
                WRITTEN.get(name)
            )
            is_reading = name in ("train", "compare") and not any(
                flag.startswith("--config=") for flag in flags
            )
            is_reading |= "--dry_run" in flags
            if place and place not in PLACES and not is_reading:
                kept = sorted(w for w in flags if not ADDED.match(w))
                written[place].setdefault((name, *kept), path.name)
    return written


def test_there_are_commands():
    assert sum(len([*list_commands(path.read_text())]) for path in PAGES) > 220


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_commands_of_a_page_are_parsed(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert [*find_faults(path)] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_tables_and_headings_are_separate_blocks(path):
    """MkDocs takes a line directly below a table for a row of it."""
    text = BLOCK.sub("", path.read_text(encoding="utf-8"))
    assert re.findall(r"^\|.*\n(?!\||\n).+", text, re.MULTILINE) == []
    assert re.findall(r".+\n#+ .*", text) == []


def test_no_two_commands_write_one_folder():
    """A reader of several pages would be refused, or would lose files."""
    written = list_written(PAGES)
    assert len(written) > 80
    assert {place: made for place, made in written.items() if len(made) > 1} == {}


def test_two_commands_for_one_folder_are_found(tmp_path):
    lines = {
        "a.md": "jaxpt train --config quickstart:mlm --data a.txt --workdir runs/a",
        "b.md": "jaxpt train --config quickstart:mlm --config.data.path=a.txt "
        "--workdir=runs/a\njaxpt train --workdir runs/a",
        "c.md": "jaxpt train --config quickstart:clm --workdir runs/a",
    }
    for name, line in lines.items():
        (tmp_path / name).write_text(f"```\n{line}\n```\n")
    written = list_written(sorted(tmp_path.iterdir()))
    assert sorted(written["runs/a"].values()) == ["a.md", "c.md"]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("jaxpt train --config quickstrat:mlm --workdir a", "config=quickstrat:mlm"),
        ("jaxpt train --config quickstart:mml --workdir a", "config=quickstart:mml"),
        ("jaxpt train --config recipe:bert-bse", "bert-bse"),
        ("jaxpt train --config quickstart --config.optim.rate=1", "optim.rate"),
        ("jaxpt train --config quickstart --config.train.steps=ten", "steps=ten"),
        ("jaxpt train --config quickstart --config.objective=mml", "objective=mml"),
        ("jaxpt compare --config a.py --config.compare.seed=1", "compare.seed"),
        ("jaxpt compare --config.compare.objectives=clm,mml", "objectives=mml"),
        ("jaxpt finetune --config tasks/sst2 --config.train.epoch=1", "train.epoch"),
        ("jaxpt export --workdir a --into b", "--into"),
        ("jaxpt generate --workdir a --num_tokens few", "num_tokens=few"),
        ("PROCESSES=2 launch/local_processes.sh train --config none", "config=none"),
        ("launch/compare_slurm.sh --gpus=1 -- --config none", "config=none"),
        ("launch/prepare_slurm.sh --time=1 -- --data a --into b", "--into"),
    ],
)
def test_a_fault_is_found(line, fault, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"```\n{line}\n```\n")
    (found,) = find_faults(page)
    assert fault in found.partition(": ")[2]


def test_a_fault_in_a_sentence_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("A run is written by `jaxpt export --workdir a\n--into b`.\n")
    (found,) = find_faults(page)
    assert "--into" in found.partition(": ")[2]
