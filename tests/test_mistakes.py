"""The FAQ's table of natural mistakes: each command prints the line next to it."""

import re
import shlex
from pathlib import Path

import pytest

from jaxpt.cli.main import main

FAQ = Path(__file__).resolve().parents[1] / "docs" / "faq.md"
ROW = re.compile(r"\| `jaxpt ([^`]+)` \| `([^`]+)` \|")
DOTS = "--config=quickstart:mlm --workdir=run --data=good.txt"
MISTAKES = ROW.findall(FAQ.read_text(encoding="utf-8"))
FILES = {
    "good.txt": b"the people of the united states and the union. " * 50,
    "latin.txt": "caf\xe9 ".encode("latin-1") * 500,
    "paper.pdf": b"%PDF-1.7\n%\xe2\xe3",
    "texts.zip": b"PK\x03\x04" + b"0" * 50,
    "empty.txt": b"",
    "two.txt": b"one line\nand another\n",
    "field.jsonl": b'{"content": "a b c"}\n' * 20,
    "field.csv": b"model,score\na,1\nb,0\n",
    "semicolons.csv": b"text;label\nsome text;a\n",
    "broken.jsonl": b'{"text": "a"}\n{"text": \n',
}


def test_the_table_has_the_mistakes_that_people_make():
    assert len(MISTAKES) >= 25
    assert len({message for _, message in MISTAKES}) >= 25


@pytest.mark.parametrize("command, message", MISTAKES, ids=lambda text: text[:60])
def test_a_mistake_is_answered_in_a_line(
    command, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        Path(name).write_bytes(content)
    Path("nothing").mkdir()
    before = sorted(tmp_path.rglob("*"))
    # A flag that is given twice has its last value.
    assert main(shlex.split(command.replace("...", DOTS))) == 2
    err = capsys.readouterr().err.splitlines()
    assert message in err[-1] and err[-1].startswith("jaxpt: error: ")
    assert all(line.startswith("jaxpt: ") for line in err)
    assert sorted(tmp_path.rglob("*")) == before
