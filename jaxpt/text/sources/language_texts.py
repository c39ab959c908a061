"""Reads the documents of artificial languages: "hmm:states=64", "star:degree=5:valid".

Each symbol is a character, so that a tokenizer of characters has the symbols as ids.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from jaxpt.errors import DataError
from jaxpt.languages.parameters import (
    FINITE,
    VALID,
    NamedLanguage,
    is_language,
    read_language,
    split_path,
)
from jaxpt.text.sources.documents import Document, make_documents

_BLOCK = 1024  # documents that are drawn together


def read_language_documents(path: str) -> Iterator[Document]:
    """The documents of the finite text of a split, named "hmm:states=64:NUMBER"."""
    named, (name, split) = read_language(path), split_path(path)
    stream, num = VALID if split == "valid" else FINITE, named.count_documents(split)
    for start in range(0, num, _BLOCK):
        numbers = np.arange(start, min(start + _BLOCK, num))
        texts = named.write(named.read(stream, numbers))
        for number, text in zip(numbers.tolist(), texts, strict=True):
            yield from make_documents(text, f"{name}:{number}", "")


def describe_language(path: str) -> dict[str, str]:
    """The identity of a language's text: it changes if the language does."""
    named, (_, split) = read_language(path), split_path(path)
    about = {"language": named.path, "split": split}
    return about | {"sha256": named.fingerprint}


def find_fresh(path: str) -> NamedLanguage | None:
    """The language whose documents are drawn for each row of training, if any."""
    if not is_language(path) or split_path(path)[1] != "train":
        return None
    named = read_language(path)
    return named if named.spec.fresh else None


def find_valid_path(path: str) -> str:
    """The validation text of a path; "" if it is not the training text of a language.

    >>> find_valid_path("hmm:states=8"), find_valid_path("my.txt")
    ('hmm:states=8:valid', '')
    """
    if not is_language(path) or split_path(path)[1] != "train":
        return ""
    return f"{split_path(path)[0]}:valid"


def list_characters(path: str) -> str:
    """The characters of a language, which are its vocabulary."""
    return read_language(path).characters


def check_settings(path: str, settings: dict[str, Any]) -> None:
    """Raises DataError for the first setting that a language cannot have.

    Args:
      settings: by full name, those that must be empty.
    """
    for name, value in settings.items():
        if value:
            default = repr(type(value)())
            raise DataError(
                f"{name}={value}: must be {default} with the language data.path={path}"
            )
