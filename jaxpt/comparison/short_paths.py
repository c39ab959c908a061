"""Shortens the absolute paths of a study to their last parts.

A text /home/me/data/wiki.txt becomes wiki.txt, and the teacher of a comparison
/home/me/both/teachers/mlm becomes both/teachers/mlm.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any


def shorten_paths(value: Any, settings: Any) -> Any:
    """A JSON value without the absolute paths that settings have.

    Args:
      value: in which the paths are shortened, wherever they are.
      settings: any JSON value with the paths.

    >>> shorten_paths("of /me/d/wiki.txt", {"path": "/me/d/wiki.txt"})
    'of wiki.txt'
    """
    # FILE=WEIGHT and finetune:FILE:FOLDER,FOLDER are several parts.
    named = {part for text in _list_texts(settings) for part in re.split("[:=,]", text)}
    short = shorten(path for path in named if Path(path).is_absolute())
    if not short:
        return value
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

    return change(value)


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
    elif isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _list_texts(each)
