"""Makes tokenizers from settings, and reads and writes tokenizer files.

A file is jaxpt's own JSON, which lists every special id, or a `tokenizer.json` of
Hugging Face. The roles of its special tokens are in the files next to it; in a file
alone, special tokens are recognized by their usual names.
"""

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeGuard

from jaxpt.errors import DataError, UserError
from jaxpt.files import checksums, disk, schema
from jaxpt.files.remote import fetch
from jaxpt.setting_types import Length, Limits, OneOf, Settings
from jaxpt.text.tokens.accents import STRIP_ACCENTS
from jaxpt.text.tokens.encoding import Tokenizer
from jaxpt.text.tokens.folder_options import read_options
from jaxpt.text.tokens.framing import (
    Framing,
    Pair,
    read_pair_template,
    read_template,
    write_template,
)
from jaxpt.text.tokens.published import name_specials, read_json, read_published
from jaxpt.text.tokens.subword import VERSION, SubwordTokenizer
from jaxpt.text.tokens.symbols import ByteTokenizer, CharTokenizer, make_byt5
from jaxpt.text.tokens.training import train_subword
from jaxpt.text.tokens.vocab import SPECIALS

SUBWORDS = ("bpe", "wordpiece", "unigram")
KINDS = ("char", "byte", *SUBWORDS, "file")
MAX_VOCAB, MAX_SENTINELS = 2**24, 2**16


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

    Raises:
      UserError: a setting is not allowed.
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
    """Makes the tokenizer of a spec; a trained one reads the texts once.

    Raises:
      UserError: the file is not a tokenizer, or the texts are empty.
    """
    if spec.kind == "file":
        return _load_with(fetch(spec.path), spec.specials, spec.num_sentinels)
    if spec.kind == "byte":
        return ByteTokenizer(spec.specials, spec.num_sentinels)
    if spec.kind in SUBWORDS:
        return train_subword(
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


def from_json(data: dict) -> Tokenizer:
    """Restores a tokenizer from its `to_json`.

    Raises:
      UserError: `to_json` does not write such values.
    """
    if not isinstance(data, dict) or "kind" not in data:
        raise DataError("not a jaxpt tokenizer: it names no kind")
    if "core" in data:
        return _make_subword(data)
    if not {"specials", "num_sentinels"} <= set(data):
        raise DataError("not a jaxpt tokenizer: needs kind, specials, num_sentinels")
    return _make_symbols(data)


def save(tokenizer: Tokenizer, path: str | os.PathLike) -> None:
    """Writes a tokenizer as jaxpt's own JSON, atomically."""
    disk.replace(path, dump(tokenizer))


def dump(tokenizer: Tokenizer) -> bytes:
    """The bytes that `save` writes."""
    return (_to_text(tokenizer.to_json()) + "\n").encode("ascii")


def load(path: str | os.PathLike) -> Tokenizer:
    """Reads a tokenizer that `save` or `export` wrote, or any of `read_published`.

    Raises:
      UserError: the file is missing, not a tokenizer, or does not match its checksum.
    """
    return _load_with(fetch(path), (), 0)


def export(
    tokenizer: Tokenizer,
    path: str | os.PathLike,
    framing: Framing | None = None,
    has_types: bool = False,
    pair: Pair | None = None,
) -> None:
    """Writes a tokenizer as a Hugging Face `tokenizer.json`.

    It encodes a text like `encode_prompt`, with the framing around it, if specials in
    the text have their names in the vocabulary. Char and byte tokenizers have no such
    form and are written by `save`.

    Args:
      framing: None keeps the post-processor of the tokenizer's original file.
      has_types: whether the second of two texts has type ids 1.
      pair: the ids around two texts; None is the original file's, or the default of
        `write_template`.
    """
    if not isinstance(tokenizer, SubwordTokenizer):
        return save(tokenizer, path)
    core = tokenizer.to_json()["core"]
    if framing is not None:
        core |= {"truncation": None, "padding": None}
        is_same = _template_or_none(core) == (framing.before, framing.after)
        if pair is not None:
            is_same = is_same and read_pair_template(core["post_processor"]) == pair
        if not is_same:
            used = {*framing.before, *framing.after}
            for ids in (pair or ())[:3]:
                used.update(ids)
            names = {id_: tokenizer.token_name(id_) for id_ in used}
            template = write_template(framing, names, has_types, pair)
            core["post_processor"] = template
    text = json.dumps(core, ensure_ascii=False, indent=1) + "\n"
    disk.replace(path, text.encode())


def _template_or_none(core: dict) -> tuple | None:
    try:
        return read_template(core["post_processor"])
    except UserError:
        return None


def fingerprint(tokenizer: Tokenizer) -> str:
    """The sha256, in hex, of everything that determines the ids of plain text.

    The framing and the recognition of specials in a prompt are not part of it.
    """
    data = tokenizer.to_json()
    if isinstance(tokenizer, SubwordTokenizer):
        del data["version"]
        data["core"] |= {"post_processor": None, "truncation": None, "padding": None}
        for token in data["core"]["added_tokens"]:
            if token["special"]:
                token |= {"lstrip": False, "rstrip": False}
    return hashlib.sha256(_to_text(data).encode("ascii")).hexdigest()


def _load_with(path: Path, specials: tuple[str, ...], num_sentinels: int) -> Tokenizer:
    """Reads a tokenizer and adds missing specials and sentinels."""
    if (path / "tokenizer.json").is_file():
        path /= "tokenizer.json"
    if path.is_dir() and _names_byt5(path) and not num_sentinels and not specials:
        return make_byt5()
    if path.is_dir() or path.suffix not in ("", ".json"):
        return read_published(path, specials, num_sentinels)
    try:
        data = schema.parse(checksums.read(path))
        if isinstance(data, dict) and "model" in data:
            is_standard = path.name == "tokenizer.json"
            options = read_options(path.parent) if is_standard else None
            core = read_json(data)
            return name_specials(core, specials, num_sentinels, options=options)
        if isinstance(data, dict) and {"kind", "core"} <= set(data):
            return _make_subword(data, specials, num_sentinels)
        tokenizer = from_json(data)
        vocab = tokenizer.vocab
        missing = [role for role in specials if getattr(vocab, role) is None]
        if missing or vocab.num_sentinels < num_sentinels:
            raise DataError(
                f"lacks {', '.join(map(repr, missing)) or 'sentinels'}: a "
                f"{tokenizer.kind} tokenizer must be made with all its specials"
            )
        return tokenizer
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


def _make_subword(
    data: dict, specials: tuple[str, ...] = (), num_sentinels: int = 0
) -> SubwordTokenizer:
    """Restores a subword tokenizer from its `to_json` and adds missing specials."""
    if (version := data.get("version")) != VERSION:
        raise DataError(f"version={version!r}: this jaxpt reads version {VERSION}")
    roles, sentinels = data.get("specials"), data.get("sentinels")
    if not (
        isinstance(roles, dict)
        and isinstance(sentinels, list)
        and isinstance(data["core"], dict)
        and set(roles) <= set(SPECIALS)
        and all(type(id_) is int for id_ in [*roles.values(), *sentinels])
    ):
        raise DataError("not a jaxpt tokenizer: specials and sentinels must be ids")
    core = read_json(data["core"])
    size = core.get_vocab_size(with_added_tokens=True)
    if not all(0 <= id_ < size for id_ in [*roles.values(), *sentinels]):
        raise DataError(f"specials and sentinels must be ids below {size}")
    tokenizer = name_specials(core, specials, num_sentinels, roles, tuple(sentinels))
    if tokenizer.kind != data["kind"]:
        raise DataError(
            f"kind is {data['kind']!r}: the tokenizer is a {tokenizer.kind}"
        )
    return tokenizer


def _make_symbols(data: dict) -> Tokenizer:
    """Restores a char or byte tokenizer from its `to_json`."""
    specials, num_sentinels = data["specials"], data["num_sentinels"]
    if not _is_list_of_text(specials):
        raise DataError(f"specials is {specials!r}: must be a list of names")
    if type(num_sentinels) is not int:
        raise DataError(f"num_sentinels is {num_sentinels!r}: must be a whole number")
    if data["kind"] not in ("char", "byte"):
        raise DataError(f"kind is {data['kind']!r}: must be char, byte or have a core")
    specials = tuple(specials)
    TokenizerSpec(data["kind"], specials=specials, num_sentinels=num_sentinels)
    if data["kind"] == "byte":
        num_bytes = data.get("num_bytes", 256)
        if num_bytes not in (245, 256):
            raise DataError(f"num_bytes is {num_bytes!r}: must be 245 or 256")
        return ByteTokenizer(specials, num_sentinels, num_bytes)
    characters = data.get("characters")
    if (
        not _is_list_of_text(characters)
        or any(len(c) != 1 for c in characters)
        or characters != sorted(set(characters))
    ):
        raise DataError("characters must be single characters sorted by code point")
    return CharTokenizer(characters, specials, num_sentinels)


def _is_list_of_text(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _to_text(data: dict) -> str:
    """Canonical JSON in ASCII, which can also represent a lone surrogate."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"))
