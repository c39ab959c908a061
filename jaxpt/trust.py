"""Code and remote places that this process may use, by the names that the user gave.

A run's files can name a module (an objective, a class of a TFDS data set), a config
file (a fine-tuning of a comparison), or a remote place (a URL, a data set of TFDS or of
the Hugging Face Hub). To import or execute the first two is to run their code, and to
read the third is to contact a network address; the run may come from someone else. So
`check` and `check_place` refuse every name that the user has not given: on the command
line, in an argument in Python, or in a config file, which is code itself. Nothing in a
stored file adds a name.
"""

import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

from jaxpt.errors import ConfigError, argument

# hf:/data/set is a local data set of the library datasets (`data.path`), not hf://...
URL = re.compile(r"(?!hf:/(?!/))([A-Za-z][A-Za-z0-9+.-]+):/+")
_NAMES = ("tfds:", "hf:")  # data sets, which their libraries download
# A place in a longer text: "blimp:s3://a/b", "('gs://a/b=2', 'tfds:c')", "a,gs://b".
_INNER = re.compile(r"(?:tfds:|hf:|[A-Za-z][A-Za-z0-9+.-]+:/)[^\s'\",;()\[\]{}]+")

_trusted: set[str] = set()


def is_url(path: object) -> bool:
    """Whether a path is a URL, which no local function can open.

    >>> [is_url(path) for path in ("gs://a/b", "runs/a", "tfds:c4", "/a", "hf:a/b")]
    [True, False, False, False, False]
    >>> [is_url(path) for path in ("gs:/a/b", "hf:/a/b", "hf://datasets/a/b")]
    [True, False, True]
    """
    return bool(URL.match(str(path)))


def trust(names: str | Iterable[str]) -> None:
    """Lets this process execute the code, or read the places, with these names."""
    _trusted.update([names] if isinstance(names, str) else names)


def trust_places(*values: Any) -> None:
    """Lets this process read the remote places in what the user has written.

    Args:
      values: texts, paths, lists or dicts of them; other values are ignored. A text may
        have several places, as a flag has. Below a folder, all is trusted; of a path
        with wildcards, the folder before the first of them.
    """
    for text in _list_texts(values):
        for place in [text, *_INNER.findall(text)]:
            # Without the weight of a mixture's entry, too.
            _trusted.update(
                normalise(re.split(r"/[^/]*[*?[]", each, maxsplit=1)[0])
                for each in (place, place.rpartition("=")[0])
                if is_place(each)
            )


def _list_texts(value: Any) -> Iterable[str]:
    """The texts in nested lists, tuples and dicts."""
    if isinstance(value, str | PurePath):
        yield str(value)
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _list_texts(each)
    elif isinstance(value, list | tuple | set):
        for each in value:
            yield from _list_texts(each)


def is_place(path: str) -> bool:
    """Whether a path is remote: a URL, or a data set's name that is downloaded.

    >>> [is_place(path) for path in ("gs://a/b", "tfds:c4", "hf:a/b", "runs/a", "sotu")]
    [True, True, True, False, False]
    """
    return is_url(path) or path.startswith(_NAMES)


def normalise(place: str) -> str:
    """A place without a final slash; `Path` has removed one of a URL's first two.

    >>> normalise("gs:/a/b/"), normalise("tfds:c4")
    ('gs://a/b', 'tfds:c4')
    """
    match = URL.match(place)
    return f"{match[1]}://{place[match.end() :].rstrip('/')}" if match else place


def list_trusted() -> list[str]:
    """The names, sorted, to be passed to another process of the same command."""
    return sorted(_trusted)


def check(name: str, setting: str) -> None:
    """Refuses code that the user has not named.

    Args:
      name: a dotted module or the path of a config file.
      setting: where the name is from, as "objective=mine.shuffled".

    >>> check("own.half", "objective=own.half")
    Traceback (most recent call last):
    jaxpt.errors.ConfigError: objective=own.half: own.half is code outside jaxpt, ...
    """
    if name not in _trusted:
        quoted = _quote(name)
        raise ConfigError(
            f"{setting}: {quoted} is code outside jaxpt, and a stored file cannot have "
            f"it executed; {_advise(name)}"
        )


def check_place(place: str) -> None:
    """Refuses a remote place that the user has not named, nor a folder above it.

    >>> trust_places("gs://mine/runs")
    >>> check_place("gs://mine/runs/a/config.json")
    >>> check_place("gs://other/a")
    Traceback (most recent call last):
    jaxpt.errors.ConfigError: gs://other/a: only a stored file names this place, ...
    """
    place = normalise(place)
    end = "/" if URL.match(place) else ":"  # tfds:NAME:SPLIT
    is_below = any(place.startswith(f"{each}{end}") for each in _trusted)
    if place in _trusted or (is_below and ".." not in place.split("/")):
        return
    raise ConfigError(
        f"{ascii(place)[1:-1]}: only a stored file names this place, and it is read "
        f"only if you name it, too; {_advise(place)}"
    )


def _advise(name: str) -> str:
    advice, in_python = argument("trust", name), f"trust={ascii(name)}"
    if advice != in_python:
        advice += f" (in Python: {in_python})"
    return f"if you trust it, add {advice}"


def _quote(name: str) -> str:
    return shlex.quote(ascii(name)[1:-1])  # a stored name may hold anything
