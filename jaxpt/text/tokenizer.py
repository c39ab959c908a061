"""Text to ids and back: one character, or one UTF-8 byte, is one token.

Ids of either kind: the specials at 0, 1, ... as listed, then the ordinary symbols in
order, then the sentinels at the top, descending.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from jaxpt.errors import UserError
from jaxpt.text.vocab import SPECIALS, Vocab

KINDS = ("char", "byte")


@dataclass(frozen=True)
class TokenizerSpec:
    """Which tokenizer to make; `specials` are keys of `vocab.SPECIALS`, in id order."""

    kind: str = "char"
    specials: tuple[str, ...] = ()
    num_sentinels: int = 0


class Tokenizer(Protocol):
    """What every tokenizer can do; a kind inherits from it."""

    vocab: Vocab

    def encode(self, text: str) -> np.ndarray:
        """The int32 ids [n] of plain text: a special's name is ordinary characters."""
        ...

    def count_unknown(self, text: str) -> int:
        """How many characters of the text the vocabulary lacks."""
        ...

    def decode(self, ids: np.ndarray) -> str:
        """The text of ids; ordinary text comes back exactly, specials by their name."""
        ...

    def token_name(self, id_: int) -> str:
        """A visible name of one id, for plots and tables."""
        ...

    def to_json(self) -> dict:
        """All that `from_json` needs to make this tokenizer again."""
        ...

    def encode_prompt(self, text: str) -> np.ndarray:
        """The int32 ids [n] of a prompt, where `[MASK]` or `<extra_id_0>` are tokens.

        Raises:
          UserError: a character is outside the vocabulary.
        """
        ids = {name: id_ for id_, name in self.vocab.special_names.items()}
        names = "|".join(map(re.escape, ids))
        parts = re.split(f"({names})", text) if names else [text]
        # re.split alternates: plain text, a special, plain text, ...
        unknown = {c for part in parts[::2] for c in part if self.count_unknown(c)}
        if unknown:
            raise UserError(
                f"prompt holds {', '.join(map(repr, sorted(unknown)))}: "
                "not in the tokenizer's vocabulary"
            )
        pieces = [
            np.array([ids[part]]) if i % 2 else self.encode(part)
            for i, part in enumerate(parts)
        ]
        return np.concatenate(pieces).astype(np.int32)


class CharTokenizer(Tokenizer):
    """A token is a character (Unicode code point), sorted by code point.

    A character it was not made with becomes [UNK], or is left out without one.
    """

    def __init__(
        self,
        characters: Iterable[str],
        specials: tuple[str, ...] = (),
        num_sentinels: int = 0,
    ):
        self.characters = sorted(set(characters))
        widths = [len(c.encode("utf-8", "surrogatepass")) for c in self.characters]
        self.vocab = _make_vocab(specials, num_sentinels, widths)
        self._texts = _list_texts(self.vocab, self.characters)
        self._id_of_code = np.full(0x110000, -1, np.int32)
        codes = _to_codes("".join(self.characters))
        self._id_of_code[codes] = self.vocab.ordinary_ids

    def encode(self, text: str) -> np.ndarray:
        """See `Tokenizer.encode`."""
        ids = self._id_of_code[_to_codes(text)]
        is_known = ids >= 0
        if self.vocab.unk is None:
            return ids[is_known]
        return np.where(is_known, ids, np.int32(self.vocab.unk))

    def count_unknown(self, text: str) -> int:
        """See `Tokenizer.count_unknown`."""
        return int(np.count_nonzero(self._id_of_code[_to_codes(text)] < 0))

    def decode(self, ids: np.ndarray) -> str:
        """See `Tokenizer.decode`."""
        return "".join(self._texts[i] for i in np.asarray(ids).tolist())

    def token_name(self, id_: int) -> str:
        """See `Tokenizer.token_name`."""
        return _make_visible(self._texts[id_])

    def to_json(self) -> dict:
        """See `Tokenizer.to_json`."""
        return _describe("char", self.vocab) | {"characters": self.characters}


class ByteTokenizer(Tokenizer):
    """A token is one of the 256 bytes of UTF-8, so no text is unknown."""

    def __init__(self, specials: tuple[str, ...] = (), num_sentinels: int = 0):
        self.vocab = _make_vocab(specials, num_sentinels, [1] * 256)
        self._first = len(specials)
        names = {i: name.encode() for i, name in self.vocab.special_names.items()}
        self._bytes = [
            names.get(i) or bytes([i - self._first]) for i in range(self.vocab.size)
        ]

    def encode(self, text: str) -> np.ndarray:
        """See `Tokenizer.encode`."""
        data = np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)
        return data.astype(np.int32) + np.int32(self._first)

    def count_unknown(self, text: str) -> int:
        """Always 0."""
        return 0

    def decode(self, ids: np.ndarray) -> str:
        """See `Tokenizer.decode`; bytes that are not UTF-8 are shown as U+FFFD."""
        data = b"".join(self._bytes[i] for i in np.asarray(ids).tolist())
        return data.decode("utf-8", "replace")

    def token_name(self, id_: int) -> str:
        """See `Tokenizer.token_name`."""
        data = self._bytes[id_]
        return _make_visible(data.decode()) if data.isascii() else f"<0x{data[0]:02X}>"

    def to_json(self) -> dict:
        """See `Tokenizer.to_json`."""
        return _describe("byte", self.vocab)


def make_tokenizer(spec: TokenizerSpec, texts: Iterable[str]) -> Tokenizer:
    """Make the tokenizer of a spec, with the characters of the texts if it needs them.

    Raises:
      UserError: a setting is not allowed, or the texts have no character to learn.
    """
    _check_spec(spec)
    if spec.kind == "byte":
        return ByteTokenizer(spec.specials, spec.num_sentinels)
    characters = set().union(*texts)
    if not characters:
        raise UserError("data.path holds no text: tokenizer.kind 'char' needs some")
    return CharTokenizer(characters, spec.specials, spec.num_sentinels)


def from_json(data: dict) -> Tokenizer:
    """Make a tokenizer again from its `to_json`.

    Raises:
      UserError: the value is not one that `to_json` wrote.
    """
    keys = {"kind", "specials", "num_sentinels"}
    if not isinstance(data, dict) or not keys <= set(data):
        raise UserError("not a jaxpt tokenizer: needs kind, specials, num_sentinels")
    specials, num_sentinels = data["specials"], data["num_sentinels"]
    if not _is_list_of_text(specials):
        raise UserError(f"specials is {specials!r}: must be a list of names")
    if type(num_sentinels) is not int:
        raise UserError(f"num_sentinels is {num_sentinels!r}: must be a whole number")
    _check_spec(TokenizerSpec(data["kind"], tuple(specials), num_sentinels))
    if data["kind"] == "byte":
        return ByteTokenizer(tuple(specials), num_sentinels)
    characters = data.get("characters")
    if (
        not _is_list_of_text(characters)
        or any(len(c) != 1 for c in characters)
        or characters != sorted(set(characters))
    ):
        raise UserError("characters must be single characters sorted by code point")
    return CharTokenizer(characters, tuple(specials), num_sentinels)


def save(tokenizer: Tokenizer, path: str | os.PathLike) -> None:
    """Write a tokenizer as JSON."""
    with open(path, "w", encoding="ascii") as file:
        file.write(_to_text(tokenizer) + "\n")


def load(path: str | os.PathLike) -> Tokenizer:
    """Read a tokenizer that `save` wrote.

    Raises:
      UserError: the file is missing, not JSON, or not a tokenizer.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return from_json(json.load(file))
    except OSError as error:
        raise UserError(f"tokenizer file {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"tokenizer file {path}: not JSON: {error}") from error
    except UserError as error:
        raise UserError(f"tokenizer file {path}: {error}") from error


def fingerprint(tokenizer: Tokenizer) -> str:
    """The sha256 of a tokenizer's canonical JSON, in hex."""
    return hashlib.sha256(_to_text(tokenizer).encode("ascii")).hexdigest()


def _make_vocab(specials, num_sentinels: int, symbol_bytes: list[int]) -> Vocab:
    """Lay out the ids of ordinary symbols that stand for so many bytes each."""
    token_bytes = (0,) * len(specials) + tuple(symbol_bytes) + (0,) * num_sentinels
    return Vocab(
        size=len(token_bytes),
        num_sentinels=num_sentinels,
        token_bytes=token_bytes,
        **{name: id_ for id_, name in enumerate(specials)},
    )


def _check_spec(spec: TokenizerSpec) -> None:
    if spec.kind not in KINDS:
        raise UserError(f"tokenizer.kind={spec.kind!r}: one of {', '.join(KINDS)}")
    for name in spec.specials:
        if name not in SPECIALS:
            raise UserError(
                f"tokenizer.specials has {name!r}: any of {', '.join(SPECIALS)}"
            )
    if len(set(spec.specials)) < len(spec.specials):
        raise UserError(f"tokenizer.specials={spec.specials}: each at most once")
    if spec.num_sentinels < 0:
        raise UserError(
            f"tokenizer.num_sentinels={spec.num_sentinels}: must be 0 or more"
        )


def _is_list_of_text(value) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _list_texts(vocab: Vocab, symbols: list[str]) -> list[str]:
    """What each id is written as."""
    names, ordinary = vocab.special_names, iter(symbols)
    return [names[i] if i in names else next(ordinary) for i in range(vocab.size)]


def _to_codes(text: str) -> np.ndarray:
    """The code points of a text; a lone surrogate is one like any other."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


def _make_visible(text: str) -> str:
    if text == " ":
        return "␣"
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def _describe(kind: str, vocab: Vocab) -> dict:
    ids = {name: getattr(vocab, name) for name in SPECIALS}
    specials = sorted((name for name in ids if ids[name] is not None), key=ids.get)
    return {"kind": kind, "specials": specials, "num_sentinels": vocab.num_sentinels}


def _to_text(tokenizer: Tokenizer) -> str:
    """Canonical JSON: ASCII, so that a lone surrogate can be written too."""
    return json.dumps(tokenizer.to_json(), sort_keys=True, separators=(",", ":"))
