"""Makes tokenizers from settings, and reads and writes tokenizer files.

A file of any kind is a `tokenizer.json` of the `tokenizers` library. One that jaxpt
wrote has the roles of its special tokens, too, in a field of its model that the library
does not read. Those of other files are in the files next to it (tokenizer_config.json);
in a file alone, special tokens are recognized by their usual names.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import tokenizers

from jaxpt.by_name import ByName
from jaxpt.errors import DataError, UserError
from jaxpt.files import checksums, disk, schema
from jaxpt.files.remote import fetch
from jaxpt.setting_types import Length, Limits, OneOf, Settings
from jaxpt.text.tokens.core import dump_core
from jaxpt.text.tokens.encoding import Tokenizer
from jaxpt.text.tokens.special_names import name_specials, read_json
from jaxpt.text.tokens.symbols import (
    ByteTokenizer,
    CharTokenizer,
    make_byt5,
)
from jaxpt.text.tokens.vocab import SPECIALS, Vocab

SUBWORDS = ("bpe", "wordpiece", "unigram")
KINDS = ("char", "byte", *SUBWORDS, "file")
STRIP_ACCENTS = ("auto", "yes", "no")
# What makes tokenizers of other sources than files of jaxpt; loaded when used.
MAKERS: ByName[Callable[..., Tokenizer]] = ByName(
    {
        "trained": "jaxpt.text.tokens.training:train_subword",
        "published": "jaxpt.text.tokens.published:read_published",
        "folder": "jaxpt.text.tokens.folder_options:read_named",
    }
)
MAX_VOCAB, MAX_SENTINELS = 2**24, 2**16
# The field of a model that has the roles, and its form. Version 2 was a JSON of jaxpt.
ROLES, VERSION = "jaxpt", 3
ROLES_SCHEMA = {
    "version": range(VERSION, VERSION + 1),
    "specials": {str: int},
    "sentinels": [int],
}


@dataclass(frozen=True)
class TokenizerSpec(Settings):
    """The settings `tokenizer.*`.

    Attributes:
      kind: char, byte, bpe, wordpiece and unigram are made from the text; file is read
        from `path`.
      path: a `tokenizer.json`, BERT's `vocab.txt`, a SentencePiece `.model` (Unigram),
        or a folder with a `tokenizer.json` (such as a prepared store), with
        encoder.json and vocab.bpe, or with vocab.json and merges.txt. Files next to
        these apply, too: tokenizer_config.json, special_tokens_map.json,
        added_tokens.json and config.json.
      vocab_size: of bpe, wordpiece and unigram, including specials and sentinels.
      specials: keys of `vocab.SPECIALS`, in id order; missing ones of a file are added
        at its end.
      num_sentinels: the number of `<extra_id_*>`; missing ones of a file are
        added at its end.
      lowercase: whether wordpiece lowercases text; a vocab.txt determines it itself.
      strip_accents: whether wordpiece strips accents and other marks, "yes" or "no";
        "auto" does with `lowercase`, as BERT, unless at least 0.1 % of the characters
        are marks of letters that are not Latin, such as the vowels of Hindi and Thai.
    """

    SECTION: ClassVar[str] = "tokenizer"

    kind: Annotated[str, OneOf(*KINDS)] = "char"
    path: str = ""
    vocab_size: Annotated[int, Limits(least=1, most=MAX_VOCAB)] = 8192
    specials: Annotated[
        tuple[Annotated[str, OneOf(*SPECIALS)], ...], Length(is_distinct=True)
    ] = ()
    num_sentinels: Annotated[int, Limits(least=0, most=MAX_SENTINELS)] = 0
    lowercase: bool = False
    strip_accents: Annotated[str, OneOf(*STRIP_ACCENTS)] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        is_file = self.kind == "file"
        allowed = "the name of a file" if is_file else "''"
        self.check(
            "path",
            bool(self.path) == is_file,
            f"{allowed} with tokenizer.kind={self.kind}",
        )
        is_good = self.kind == "wordpiece" or not self.lowercase
        self.check("lowercase", is_good, f"False with tokenizer.kind={self.kind}")
        is_good = self.kind == "wordpiece" or self.strip_accents == "auto"
        self.check("strip_accents", is_good, f"auto with tokenizer.kind={self.kind}")


def make_tokenizer(spec: TokenizerSpec, texts: Iterable[str]) -> Tokenizer:
    """Makes the tokenizer of a spec; a trained one reads the texts once."""
    if spec.kind == "file":
        return _load_with(fetch(spec.path), spec.specials, spec.num_sentinels)
    if spec.kind == "byte":
        return ByteTokenizer(spec.specials, spec.num_sentinels)
    if spec.kind in SUBWORDS:
        return MAKERS["trained"](
            spec.kind,
            texts,
            spec.vocab_size,
            spec.specials,
            spec.num_sentinels,
            spec.lowercase,
            spec.strip_accents,
        )
    characters = set().union(*texts)
    if not characters:
        raise DataError("data.path holds no text: tokenizer.kind 'char' needs some")
    return CharTokenizer(characters, spec.specials, spec.num_sentinels)


def save(tokenizer: Tokenizer, path: str | os.PathLike) -> None:
    """Writes a tokenizer and the roles of its special tokens, atomically."""
    disk.replace(path, dump(tokenizer))


def dump(tokenizer: Tokenizer) -> bytes:
    """The bytes that `save` writes."""
    return dump_core(add_roles(tokenizer.to_core(), tokenizer.vocab))


def add_roles(core: dict, vocab: Vocab) -> dict:
    """A `tokenizer.json` with the roles of its special tokens."""
    ids = {role: getattr(vocab, role) for role in SPECIALS}
    roles = {
        "version": VERSION,
        "specials": {role: id_ for role, id_ in ids.items() if id_ is not None},
        "sentinels": list(vocab.sentinels),
    }
    return core | {"model": core["model"] | {ROLES: roles}}


def from_json(
    data: dict, specials: tuple[str, ...] = (), num_sentinels: int = 0
) -> Tokenizer:
    """Restores a tokenizer from the JSON that `save` writes.

    Args:
      specials, num_sentinels: are added if it lacks them.
    """
    try:
        schema.check(data, {"model": {ROLES: ROLES_SCHEMA, str: object}, str: object})
    except ValueError as error:
        raise DataError(str(error)) from error
    model = dict(data["model"])
    stored = model.pop(ROLES)
    return _name(read_json(data | {"model": model}), stored, specials, num_sentinels)


def load(path: str | os.PathLike) -> Tokenizer:
    """Reads a file of `save` or `export_tokenizer`, or any of `read_published`."""
    return _load_with(fetch(path), (), 0)


def fingerprint(tokenizer: Tokenizer) -> str:
    """The sha256, in hex, of everything that determines the ids of plain text.

    The special tokens around a text and the recognition of specials in a prompt are not
    part of it.
    """
    return hashlib.sha256(_to_text(tokenizer.identity()).encode("ascii")).hexdigest()


def _load_with(path: Path, specials: tuple[str, ...], num_sentinels: int) -> Tokenizer:
    """Reads a tokenizer and adds missing specials and sentinels."""
    if (path / "tokenizer.json").is_file():
        path /= "tokenizer.json"
    if path.is_dir() and _names_byt5(path) and not num_sentinels and not specials:
        return make_byt5()
    if path.is_dir() or path.suffix not in ("", ".json"):
        return MAKERS["published"](path, specials, num_sentinels)
    try:
        data = schema.parse(checksums.read(path), {str: object})
        model = data.get("model")
        if isinstance(model, dict) and ROLES in model:
            return from_json(data, specials, num_sentinels)
        if "model" in data:
            core = read_json(data)
            if path.name == "tokenizer.json":
                return MAKERS["folder"](core, path.parent, specials, num_sentinels)
            return name_specials(core, specials, num_sentinels)
        raise DataError("not a tokenizer: it has no model")
    except OSError as error:
        raise DataError(f"tokenizer file {path}: {error.strerror}") from error
    except ValueError as error:
        raise DataError(f"tokenizer file {path}: {error}") from error
    except UserError as error:
        raise DataError(f"tokenizer file {path}: {error}") from error


def _names_byt5(folder: Path) -> bool:
    """Whether the tokenizer of a folder is ByT5's, which has no file."""
    try:
        data = disk.read(folder / "tokenizer_config.json")
        settings = schema.parse(data, {str: object})
    except (OSError, ValueError):
        return False
    return settings.get("tokenizer_class") == "ByT5Tokenizer"


def _name(
    core: tokenizers.Tokenizer,
    stored: dict,
    specials: tuple[str, ...],
    num_sentinels: int,
) -> Tokenizer:
    """A tokenizer with stored roles, to which missing specials are added."""
    roles, sentinels = stored["specials"], stored["sentinels"]
    if unknown := roles.keys() - SPECIALS:
        raise DataError(
            f"specials: {', '.join(map(repr, sorted(unknown)))}: must be of "
            f"{', '.join(SPECIALS)}"
        )
    size = core.get_vocab_size(with_added_tokens=True)
    if not all(0 <= id_ < size for id_ in [*roles.values(), *sentinels]):
        raise DataError(f"specials and sentinels must be ids below {size}")
    return name_specials(core, specials, num_sentinels, roles, tuple(sentinels))


def identify(tokenizer: Tokenizer) -> bytes:
    """The canonical text of a tokenizer, by which prepared texts are compared.

    It does not depend on the format of its file, so that texts of other versions agree.
    """
    return (_to_text(tokenizer.to_json()) + "\n").encode("ascii")


def _to_text(data: dict) -> str:
    """Canonical JSON in ASCII, which can also represent a lone surrogate."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"))
