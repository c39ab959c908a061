"""Reads the documents of artificial languages: "hmm:states=64", "star:degree=5:valid".

Each symbol is a character, so that a tokenizer of characters has the symbols as ids.
"""

from collections.abc import Iterator

import numpy as np

from jaxpt.errors import DataError
from jaxpt.languages import is_language
from jaxpt.languages.parameters import (
    FINITE,
    VALID,
    read_language,
    split_path,
)
from jaxpt.text.sources.documents import Document, make_documents
from jaxpt.text.tokens.tokenizer import Tokenizer

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


def identify_language(path: str) -> dict[str, str]:
    """The identity of a language's text: it changes if the language does."""
    named, (_, split) = read_language(path), split_path(path)
    about = {"language": named.path, "split": split}
    return about | {"sha256": named.fingerprint}


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


def check_settings(
    path: str, label_field: str, limit_chars: int, heldout_chars: int, kind: str
) -> None:
    """Raises DataError for parameters without a language, and settings without use.

    Args:
      label_field, limit_chars, heldout_chars: of `TextSpec`.
      kind: of the tokenizer.
    """
    read_language(path)
    for name, value in (
        ("label_field", label_field),
        ("limit_chars", limit_chars),
        ("heldout_chars", heldout_chars),
    ):
        if value:
            raise DataError(
                f"data.{name}={value}: must be {type(value)()!r} with the language "
                f"data.path={path}"
            )
    if kind not in ("char", "file"):
        raise DataError(
            f"tokenizer.kind={kind}: must be char, or file, with the language "
            f"data.path={path}, whose symbols are characters"
        )


def check_tokenizer(path: str, tokenizer: Tokenizer) -> None:
    """Raises DataError unless each symbol of a language has its own id."""
    characters = list_characters(path)
    ids = [tokenizer.encode(character).tolist() for character in characters]
    known = {each[0] for each in ids if len(each) == 1} - {tokenizer.vocab.unk}
    if len(known) < len(characters):
        raise DataError(
            f"tokenizer: must have an id for each of the {len(characters)} symbols of "
            f"data.path={path}; it has {len(known)}"
        )
