"""Shortens the absolute paths in a study's files to their last parts.

A text /home/me/data/wiki.txt becomes wiki.txt, and the run of a comparison
/home/me/both/runs/mlm-seed0 becomes both/runs/mlm-seed0.
"""

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from jaxpt.files import checksums
from jaxpt.files.folder import write_json

UNCHANGED = (checksums.FILE, "tokenizer.json")


def shorten_paths(folder: Path, settings: Iterable[str], command: str) -> None:
    """Shortens the absolute paths in the JSON files of a study.

    The paths are those of the comparison's folder, of settings and of the command; the
    same text is replaced wherever a file has it.

    Args:
      folder: of the study.
      settings: names of the files with the settings.
      command: that made the comparison.
    """
    paths = [path for path in folder.rglob("*.json") if path.name not in UNCHANGED]
    files = {path: json.loads(path.read_bytes()) for path in paths}
    texts = [*shlex.split(command), *_list_texts([files[folder / x] for x in settings])]
    # FILE=WEIGHT and finetune:FILE:FOLDER,FOLDER are several parts.
    named = {part for text in texts for part in re.split("[:=,]", text)}
    runs = [value for path, value in files.items() if path.name == "result.json"]
    named |= {str(Path(run["workdir"]).parents[1]) for run in runs}
    short = shorten(path for path in named if Path(path).is_absolute())
    if not short:
        return
    known = "|".join(map(re.escape, sorted(short, key=len, reverse=True)))
    pattern = re.compile(rf"(?<![\w./])({known})(?![\w.-])")

    def change(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: change(each) for key, each in value.items()}
        if isinstance(value, list):
            return [change(each) for each in value]
        if isinstance(value, str):
            return pattern.sub(lambda match: short[match[0]], value)
        return value

    for path, value in files.items():
        if (changed := change(value)) != value:
            write_json(path, changed)


def shorten(paths: Iterable[str]) -> dict[str, str]:
    """The last parts of each absolute path, enough to distinguish it from the others.

    A path within another one is left out, as its beginning is that of the other.

    >>> shorten(["/me/a/text", "/me/b/text", "/data", "/data/wiki"])
    {'/me/a/text': 'a/text', '/me/b/text': 'b/text', '/data': 'data'}
    """
    parts = {path: Path(path).parts[1:] for path in paths}
    outer = {each for each in parts.values() if each}
    parts = {
        path: each
        for path, each in parts.items()
        if not any(each[:i] in outer for i in range(1, len(each)))
    }
    distinct = set(parts.values())
    short = {}
    for path, each in parts.items():
        num = 1
        while sum(other[-num:] == each[-num:] for other in distinct) > 1:
            num += 1
        if each:  # not the root
            short[path] = "/".join(each[-num:])
    return short


def _list_texts(value: Any) -> Iterator[str]:
    """Every text in a JSON value, but keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _list_texts(each)
