"""Character and byte tokenizers.

The ids of both: the specials 0, 1, ... as listed, then the ordinary symbols in order,
then the sentinels, descending from the last id.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from jaxpt.text.tokens.encoding import Tokenizer, make_visible
from jaxpt.text.tokens.vocab import SPECIALS, Vocab

WHITESPACE = " \t\n\r\x0b\x0c"  # whitespace of one byte


class CharTokenizer(Tokenizer):
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

    def to_json(self) -> dict:
        return _describe("char", self.vocab) | {"characters": self.characters}


class ByteTokenizer(Tokenizer):
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

    def to_json(self) -> dict:
        is_whole = self.num_bytes == 256
        num_bytes = {} if is_whole else {"num_bytes": self.num_bytes}
        return _describe("byte", self.vocab) | num_bytes


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


def _describe(kind: str, vocab: Vocab) -> dict:
    ids = {name: getattr(vocab, name) for name in SPECIALS}
    specials = sorted(
        (name for name in ids if ids[name] is not None), key=lambda name: ids[name]
    )
    return {"kind": kind, "specials": specials, "num_sentinels": vocab.num_sentinels}
