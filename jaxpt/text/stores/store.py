"""Stores: tokenized text on disk, memory-mapped, with its documents and labels.

    <folder>/card.json         metadata; written last, so a store with it is complete
             tokenizer.json    as `tokenizer.save` writes it
             tokens-00000.bin  and following shards: uint16 or uint32 ids
             documents.bin     int64 [D+1], each document's first token; the end
             doc_bytes.bin     int64 [D], bytes of each document's text in UTF-8
             token_bytes.bin   uint32 [T], bytes of each token's text; only if
                               `Vocab.token_bytes` is empty
             labels.bin        int32 [D], indices into the card's label_names, or -1
             sentences.bin     int64 [S+1], each sentence's first token; the end; only
                               if data.sentences is set

All numbers are little endian.
"""

import hashlib
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxpt.errors import DataError, UserError
from jaxpt.files import disk, schema
from jaxpt.files.remote import fetch
from jaxpt.text.stores.stream import TokenStream
from jaxpt.text.tokens.tokenizer import Tokenizer, fingerprint, identify, load

FORMAT = 2  # format 1 had no token_bytes.bin
CARD = "card.json"
TOKENIZER = "tokenizer.json"
_SHARD = "tokens-"
_SHARD_NAME = re.compile(rf"{_SHARD}\d{{5,}}\.bin")
_SCAN_BYTES = 1 << 20
DOC_STARTS = "documents.bin"
DOC_BYTES = "doc_bytes.bin"
TOKEN_BYTES = "token_bytes.bin"
LABELS = "labels.bin"
SENTENCE_STARTS = "sentences.bin"
FILES = {str: {"bytes": int, "sha256": str}}
# The schema of a card.
SCHEMA = {
    "format": range(FORMAT, FORMAT + 1),
    "path": str,
    "sha256": str,
    "settings": {str: object},
    "sources": [{str: object}],
    "files": FILES,
    "tokenizer": {"sha256": str, "spec": {str: object}},
    "text_sha256": str,
    "vocab_size": int,
    "dtype": {"<u2", "<u4"},
    "num_sentences": (int, None),
    **dict.fromkeys(("num_tokens", "num_documents", "num_main", "num_bytes"), int),
    "num_unknown": int,
    "dropped": int,
    "truncated": int,
    "label_names": [str],
}
DTYPES = {
    DOC_STARTS: "<i8",
    DOC_BYTES: "<i8",
    TOKEN_BYTES: "<u4",
    LABELS: "<i4",
    SENTENCE_STARTS: "<i8",
}


@dataclass(frozen=True, eq=False)
class Store:
    """A prepared text, whose arrays are read-only memory maps.

    Attributes:
      card: the content of card.json: format, path, settings, sources, tokenizer
        {"sha256", "spec"}, vocab_size, dtype, num_tokens, num_documents, num_main
        (documents not held out), num_sentences (None: not cut), num_bytes, num_unknown
        (characters), dropped (documents without a token), truncated (documents cut by
        data.limit_chars), label_names (in order of appearance), text_sha256, and each
        file's bytes and sha256.
      doc_starts: int64 [D+1]; document i is tokens doc_starts[i] to doc_starts[i+1].
      doc_bytes: int64 [D], the bytes of each document's raw text in UTF-8.
      token_bytes: the bytes of each token's text (`Tokenizer.encode_sized`; text after
        a document's last token counts for that token, [EOS] has 0), which sum to the
        document's doc_bytes. None if the vocabulary determines them.
      labels: int32 [D], indices into the card's label_names, -1 for none.
      sentence_starts: int64 [S+1], including the end and all document starts; None if
        the text was not cut into sentences.
      fingerprint: the sha256 of the content of all files, in hex, without the card and
        token_bytes.bin; of the tokenizer, that of `identify`.
    """

    card: dict
    tokenizer: Tokenizer
    tokens: TokenStream
    doc_starts: np.ndarray
    doc_bytes: np.ndarray
    token_bytes: TokenStream | None
    labels: np.ndarray
    sentence_starts: np.ndarray | None
    fingerprint: str


def token_dtype(vocab_size: int) -> str:
    """The dtype of a store's ids."""
    return "<u2" if vocab_size <= 1 << 16 else "<u4"


def shard_name(number: int) -> str:
    """The file name of a shard of the tokens."""
    return f"{_SHARD}{number:05d}.bin"


def is_part(name: str) -> bool:
    """Whether a store may have a file of this name in addition to its card."""
    return name == TOKENIZER or name in DTYPES or bool(_SHARD_NAME.fullmatch(name))


def is_store(folder: str | os.PathLike) -> bool:
    """Whether a folder has a complete store; files are not checked."""
    return os.path.isfile(os.path.join(fetch(folder), CARD))


def open_store(folder: str | os.PathLike, verify: bool = True) -> Store:
    """Opens a store without loading it.

    Args:
      verify: whether to compare each file with its checksum (about 2 GB/s per core);
        False compares sizes only.
    """
    folder = fetch(folder)
    card = read_card(folder)
    _check_files(folder, card, verify)
    tokenizer = _load_tokenizer(folder, card)
    arrays = {
        name: _map(folder / name, dtype)
        for name, dtype in DTYPES.items()
        if name in card["files"]
    }
    names = sorted(name for name in card["files"] if name.startswith(_SHARD))
    tokens = TokenStream([_map(folder / name, card["dtype"]) for name in names])
    ends = DOC_STARTS, SENTENCE_STARTS  # these have one entry more, the end
    lengths = {name: len(array) - (name in ends) for name, array in arrays.items()}
    num_sized = None if tokenizer.vocab.token_bytes else card["num_tokens"]
    for name, length, expected in (
        (names[0] if names else shard_name(0), tokens.num_tokens, card["num_tokens"]),
        (DOC_STARTS, lengths.get(DOC_STARTS), card["num_documents"]),
        (DOC_BYTES, lengths.get(DOC_BYTES), card["num_documents"]),
        (TOKEN_BYTES, lengths.get(TOKEN_BYTES), num_sized),
        (LABELS, lengths.get(LABELS), card["num_documents"]),
        (SENTENCE_STARTS, lengths.get(SENTENCE_STARTS), card["num_sentences"]),
    ):
        if length != expected:
            raise _fault(folder / name, f"has {length} entries, its card {expected}")
    files = {name: card["files"][name] for name in card["files"] if name != TOKEN_BYTES}
    known = identify(tokenizer)
    digest = hashlib.sha256(known).hexdigest()
    files[TOKENIZER] = {"bytes": len(known), "sha256": digest}
    return Store(
        card=card,
        tokenizer=tokenizer,
        tokens=tokens,
        doc_starts=arrays[DOC_STARTS],
        doc_bytes=arrays[DOC_BYTES],
        token_bytes=TokenStream([arrays[TOKEN_BYTES]]) if num_sized else None,
        labels=arrays[LABELS],
        sentence_starts=arrays.get(SENTENCE_STARTS),
        fingerprint=_digest([files, card["label_names"]]),
    )


def seal_card(card: dict) -> bytes:
    """The content of card.json, with its checksum."""
    sealed = {**card, "sha256": _digest(card)}
    return (json.dumps(sealed, indent=1, sort_keys=True) + "\n").encode("ascii")


def read_card(folder: Path) -> dict:
    """Reads the card of a store."""
    path = folder / CARD
    try:
        card = schema.parse(disk.read(path))
    except FileNotFoundError as error:
        is_partial = folder.is_dir()
        problem = (
            "is missing: the store is incomplete" if is_partial else "does not exist"
        )
        raise _fault(path, problem) from error
    except OSError as error:
        raise _fault(path, f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise _fault(path, f"was altered: {error}") from error
    if not isinstance(card, dict) or "format" not in card:
        raise _fault(path, "is not the card of a store")
    if card["format"] != FORMAT:
        problem = f"is of format {card['format']!r}: this jaxpt reads format {FORMAT}"
        raise _fault(path, f"{problem}; prepare the text again")
    try:
        schema.check(card, SCHEMA)
    except ValueError as error:
        raise _fault(path, f"was altered: {error}") from error
    if card.pop("sha256") != _digest(card):
        raise _fault(path, "was altered: its checksum differs")
    if foreign := [name for name in card["files"] if not is_part(name)]:
        raise _fault(path, f"names {foreign[0]!r}, not a file of a store")
    return card


def _fault(path: Path, problem: str) -> UserError:
    return DataError(f"store file {path}: {problem}")


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def list_faults(folder: Path) -> list[UserError]:
    """What is damaged in a store, a line for each file; [] if it is whole."""
    try:
        card = read_card(folder)
    except UserError as error:
        return [error]
    faults = []
    for name in sorted(card["files"]):
        try:
            _check_size(folder, card, name)
            _check_content(folder, card, name)
        except UserError as error:
            faults.append(error)
    if not faults:
        try:
            open_store(folder, verify=False)
        except UserError as error:
            faults.append(error)
    return faults


def _check_files(folder: Path, card: dict, verify: bool) -> None:
    names = sorted(card["files"])
    for name in names:
        _check_size(folder, card, name)
    if not verify:
        return
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        list(threads.map(lambda name: _check_content(folder, card, name), names))


def _check_size(folder: Path, card: dict, name: str) -> None:
    path, expected = folder / name, card["files"][name]["bytes"]
    try:
        size = path.stat().st_size
    except FileNotFoundError as error:
        raise _fault(path, "is missing") from error
    except OSError as error:
        raise _fault(path, f"cannot be read: {error.strerror}") from error
    if size != expected:
        problem = "empty" if not size else f"{size} bytes"
        raise _fault(path, f"is {problem}, was written with {expected} bytes")


def _check_content(folder: Path, card: dict, name: str) -> None:
    path = folder / name
    try:
        digest, highest = _scan(path, card["dtype"])
    except OSError as error:
        raise _fault(path, f"cannot be read: {error.strerror}") from error
    if digest != card["files"][name]["sha256"]:
        raise _fault(path, "was altered: its checksum differs")
    if name.startswith(_SHARD) and highest >= card["vocab_size"]:
        raise _fault(
            path, f"has id {highest}, outside its vocabulary of {card['vocab_size']}"
        )


def _scan(path: Path, dtype: str) -> tuple[str, int]:
    """A file's sha256, and its largest number, at least 0.

    The file is not mapped, as a map would count as this process's memory.
    """
    digest, highest = hashlib.sha256(), 0
    buffer = memoryview(bytearray(_SCAN_BYTES))
    with disk.open_regular(path) as file:
        while num := file.readinto(buffer):
            digest.update(buffer[:num])
            numbers = np.frombuffer(buffer, dtype, num // np.dtype(dtype).itemsize)
            highest = int(numbers.max(initial=highest))
    return digest.hexdigest(), highest


def _load_tokenizer(folder: Path, card: dict) -> Tokenizer:
    path = folder / TOKENIZER
    tokenizer = load(path)
    if fingerprint(tokenizer) != card["tokenizer"]["sha256"]:
        raise _fault(path, "is not the tokenizer that the store was made with")
    if tokenizer.vocab.size != card["vocab_size"]:
        raise _fault(
            path, f"has {tokenizer.vocab.size} ids, the card says {card['vocab_size']}"
        )
    return tokenizer


def _map(path: Path, dtype: str) -> np.ndarray:
    """A file as a memory-mapped array."""
    try:
        # As a plain array: slices of np.memmap's own class are slower.
        return np.memmap(path, dtype, mode="r").view(np.ndarray)
    except (OSError, ValueError) as error:
        raise _fault(path, f"cannot be mapped: {error}") from error
