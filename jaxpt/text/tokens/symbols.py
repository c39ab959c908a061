r"""Character and byte tokenizers.

The ids of both: the specials 0, 1, ... as listed, then the ordinary symbols in order,
then the sentinels, descending from the last id.

As a `tokenizer.json`, characters are a WordLevel model of a text that is split at every
character (`[\s\S]`, isolated), and bytes a byte-level BPE without merges. The library's
ids are those of `encode`, which NumPy computes more than fifty times faster.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

from jaxpt.text.tokens.encoding import Tokenizer, list_byte_chars, make_visible
from jaxpt.text.tokens.vocab import SPECIALS, Vocab

NUM_BYTES = (245, 256)  # of UTF-8, and all
WHITESPACE = " \t\n\r\x0b\x0c"  # whitespace of one byte


class _Symbols(Tokenizer):
    """Symbols between special tokens.

    Attributes:
      post_processor: of the `tokenizer.json` that it was read from, or None.
    """

    post_processor: dict[str, Any] | None = None
    _specials: tuple[str, ...]

    def _describe(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "specials": list(self._specials),
            "num_sentinels": self.vocab.num_sentinels,
        }

    def _complete(self, core: tokenizers.Tokenizer) -> dict[str, Any]:
        """The JSON of a tokenizer of the library, with our special tokens."""
        specials = sorted(self.vocab.special_names.items())
        added = [AddedToken(text, normalized=False) for _, text in specials]
        core.add_special_tokens(added)
        return json.loads(core.to_str()) | {"post_processor": self.post_processor}


class CharTokenizer(_Symbols):
    """Each character (Unicode code point) is a token; ids are sorted by code point.

    An unknown character becomes [UNK], or is dropped if there is no [UNK].
    """

    kind = "char"

    def __init__(
        self,
        characters: Iterable[str],
        specials: tuple[str, ...] = (),
        num_sentinels: int = 0,
    ):
        self.characters = sorted(set(characters))
        symbols = [c.encode("utf-8", "surrogatepass") for c in self.characters]
        self._specials = specials
        vocab = _make_vocab(
            specials, num_sentinels, symbols, [c.isspace() for c in self.characters]
        )
        # Unknown characters may have any number of bytes.
        self.vocab = replace(vocab, token_bytes=())
        self._texts = _list_texts(self.vocab, self.characters)
        self._id_of_code = np.full(0x110000, -1, np.int32)
        codes = _to_codes("".join(self.characters))
        self._id_of_code[codes] = self.vocab.ordinary_ids

    def encode(self, text: str) -> np.ndarray:
        ids = self._id_of_code[_to_codes(text)]
        if self.vocab.unk is None:
            return ids[ids >= 0]
        return np.where(ids >= 0, ids, np.int32(self.vocab.unk))

    def encode_sized(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        codes = _to_codes(text)
        sizes = 1 + (codes > 0x7F) + (codes > 0x7FF) + (codes > 0xFFFF)
        if self.vocab.unk is None:
            ends = np.cumsum(sizes)[self._id_of_code[codes] >= 0]
            sizes = np.diff(ends, prepend=0)
        return self.encode(text), sizes

    def count_unknown(self, text: str) -> int:
        return int(np.count_nonzero(self._id_of_code[_to_codes(text)] < 0))

    def decode(self, ids: np.ndarray) -> str:
        return "".join(self._texts[i] for i in np.asarray(ids).tolist())

    def token_name(self, id_: int) -> str:
        return make_visible(self._texts[id_])

    def to_json(self) -> dict[str, Any]:
        return self._describe() | {"characters": self.characters}

    def to_core(self) -> dict[str, Any]:
        """See `Tokenizer.to_core`; a lone surrogate is named by its code, <0xD83D>."""
        symbols = [_name_surrogate(c) for c in self.characters]
        names = _list_texts(self.vocab, symbols)
        ids = {name: id_ for id_, name in enumerate(names)}
        core = tokenizers.Tokenizer(models.WordLevel(ids, SPECIALS["unk"]))
        if self.vocab.unk is None:
            known = _make_ranges(self.characters)
            unknown = tokenizers.Regex(f"[^{known}]" if known else r"[\s\S]")
            core.normalizer = normalizers.Replace(unknown, "")
        each = tokenizers.Regex(r"[\s\S]")
        core.pre_tokenizer = pre_tokenizers.Split(each, "isolated")
        core.decoder = decoders.Fuse()
        return self._complete(core)


class ByteTokenizer(_Symbols):
    """Each byte of UTF-8 is a token, so no text is unknown.

    With `num_bytes=245`, the bytes that no UTF-8 has, 0xF5 to 0xFF, have no ids.
    """

    kind = "byte"

    def __init__(
        self,
        specials: tuple[str, ...] = (),
        num_sentinels: int = 0,
        num_bytes: int = 256,
    ):
        self.num_bytes = num_bytes
        self._specials = specials
        self.vocab = _make_vocab(
            specials,
            num_sentinels,
            [bytes([b]) for b in range(num_bytes)],
            [chr(b) in WHITESPACE for b in range(num_bytes)],
        )
        self._first = len(specials)
        names = {i: name.encode() for i, name in self.vocab.special_names.items()}
        self._bytes = [
            names.get(i) or bytes([i - self._first]) for i in range(self.vocab.size)
        ]

    def encode(self, text: str) -> np.ndarray:
        data = np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)
        return data.astype(np.int32) + np.int32(self._first)

    def count_unknown(self, text: str) -> int:
        return 0

    def decode(self, ids: np.ndarray) -> str:
        """See `Tokenizer.decode`; invalid UTF-8 becomes U+FFFD."""
        data = b"".join(self._bytes[i] for i in np.asarray(ids).tolist())
        return data.decode("utf-8", "replace")

    def token_name(self, id_: int) -> str:
        return make_visible(self._bytes[id_].decode("utf-8", "surrogateescape"))

    def to_json(self) -> dict[str, Any]:
        is_whole = self.num_bytes == 256
        num_bytes = {} if is_whole else {"num_bytes": self.num_bytes}
        return self._describe() | num_bytes

    def to_core(self) -> dict[str, Any]:
        names = _list_texts(self.vocab, list_byte_chars()[: self.num_bytes])
        ids = {name: id_ for id_, name in enumerate(names)}
        core = tokenizers.Tokenizer(models.BPE(ids, []))
        core.pre_tokenizer = pre_tokenizers.ByteLevel(
            add_prefix_space=False, use_regex=False
        )
        core.decoder = decoders.ByteLevel()
        return self._complete(core)


def make_byt5() -> ByteTokenizer:
    """ByT5's ids: <pad>, </s>, <unk>, and each byte plus 3.

    ByT5 was pretrained with a vocabulary of 259 ids, whose last ones are the sentinels:
    258, 257, ..., in place of bytes that no UTF-8 has. transformers' further ids, 259
    to 383 (`<extra_id_*>`), were not trained.

    >>> make_byt5().encode("A").tolist(), make_byt5().vocab.sentinels[:2]
    ([68], (258, 257))
    """
    return ByteTokenizer(("pad", "eos", "unk"), 11, 245)


def is_byt5(tokenizer: Tokenizer) -> bool:
    """Whether the ids are ByT5's."""
    is_bytes = isinstance(tokenizer, ByteTokenizer)
    return is_bytes and tokenizer.to_json() == make_byt5().to_json()


def read_symbols(
    core: dict[str, Any], roles: dict[str, int], sentinels: tuple[int, ...]
) -> CharTokenizer | ByteTokenizer | None:
    """The tokenizer whose `to_core` is this `tokenizer.json`, or None.

    Args:
      core: as the library writes it; its post-processor is kept.
      roles: ids by keys of `vocab.SPECIALS`; several may share an id.
      sentinels: their ids, `<extra_id_0>` first.
    """
    ids, kind = core["model"].get("vocab"), core["model"].get("type")
    is_bytes = kind == "BPE" and not core["model"]["merges"]
    if not is_bytes and kind != "WordLevel":
        return None
    named = {role for role, id_ in roles.items() if ids.get(SPECIALS[role]) == id_}
    specials = tuple(sorted(named, key=lambda role: roles[role]))
    symbols = sorted(ids.keys() - _list_names(specials, len(sentinels)))
    made: CharTokenizer | ByteTokenizer
    if is_bytes:
        if len(symbols) not in NUM_BYTES:
            return None
        made = ByteTokenizer(specials, len(sentinels), len(symbols))
    else:
        characters = [_read_surrogate(name) for name in symbols]
        if any(len(c) != 1 for c in characters):
            return None
        made = CharTokenizer(characters, specials, len(sentinels))
    made.post_processor = core["post_processor"]
    around = {"truncation": None, "padding": None}
    if made.to_core() | around != core | around or made.vocab.sentinels != sentinels:
        return None
    shared: dict[str, Any] = {k: id_ for k, id_ in roles.items() if k not in named}
    if shared:
        names = sorted(made.vocab.special_names.items())
        made.vocab = replace(made.vocab, **shared, special_texts=tuple(names))
    return made


def _list_names(specials: tuple[str, ...], num_sentinels: int) -> set[str]:
    sentinels = {f"<extra_id_{i}>" for i in range(num_sentinels)}
    return sentinels | {SPECIALS[role] for role in specials}


def _make_ranges(characters: list[str]) -> str:
    """The characters (sorted, without surrogates) inside a regular expression's [].

    >>> _make_ranges(["a", "b", "c", "é"])
    '\\\\x{61}-\\\\x{63}\\\\x{e9}-\\\\x{e9}'
    """
    codes = [ord(c) for c in characters if not _is_surrogate(c)]
    firsts = [code for i, code in enumerate(codes) if not i or codes[i - 1] < code - 1]
    lasts = [code for i, code in enumerate(codes) if codes[i + 1 : i + 2] != [code + 1]]
    pairs = zip(firsts, lasts, strict=True)
    return "".join(f"\\x{{{first:x}}}-\\x{{{last:x}}}" for first, last in pairs)


def _is_surrogate(char: str) -> bool:
    return "\ud800" <= char <= "\udfff"


def _name_surrogate(char: str) -> str:
    """A character as the library can hold it, which has no lone surrogates."""
    return f"<0x{ord(char):04X}>" if _is_surrogate(char) else char


def _read_surrogate(name: str) -> str:
    """The character of a name of `_name_surrogate`."""
    match = re.fullmatch("<0x(D[89A-F][0-9A-F]{2})>", name)
    return chr(int(match[1], 16)) if match else name


def _make_vocab(
    specials: tuple[str, ...],
    num_sentinels: int,
    symbols: list[bytes],
    begin_words: list[bool],
) -> Vocab:
    """The vocabulary of specials, sentinels and symbols, given as bytes."""
    widths = tuple(map(len, symbols))
    token_bytes = (0,) * len(specials) + widths + (0,) * num_sentinels
    size = len(token_bytes)
    starts = (True,) * len(specials) + tuple(begin_words) + (True,) * num_sentinels
    ids: dict[str, Any] = {name: id_ for id_, name in enumerate(specials)}
    vocab = Vocab(
        size=size,
        sentinels=tuple(range(size - 1, size - 1 - num_sentinels, -1)),
        token_bytes=token_bytes,
        word_starts=starts,
        **ids,
    )
    names, ordinary = vocab.special_names, iter(symbols)
    pieces = [names[i].encode() if i in names else next(ordinary) for i in range(size)]
    return replace(vocab, pieces=tuple(pieces))


def _list_texts(vocab: Vocab, symbols: list[str]) -> list[str]:
    """The text of each id."""
    names, ordinary = vocab.special_names, iter(symbols)
    return [names[i] if i in names else next(ordinary) for i in range(vocab.size)]


def _to_codes(text: str) -> np.ndarray:
    """The code points of a text, including lone surrogates."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
