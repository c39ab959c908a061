"""Fast encoding with a cache: text is cut into chunks, each encoded once.

The cache maps a chunk to its ids and to the number of bytes of text of each id. As
words repeat, it is faster than the `tokenizers` library (3 to 6 MB/s on one core). A
chunk must have the same ids alone as inside the text. This is true of chunks that the
tokenizer's pre-tokenizer separates, so the pattern of a chunk depends on the tokenizer;
the tests compare chunked ids with those of the whole text.
"""

import re
from array import array
from collections.abc import Callable

import numpy as np
from tokenizers import Tokenizer

from jaxpt.text.tokens.core import flatten_steps

_SPACE = r" \t\n\r"
_ASCII = r"!-/:-@\[-`{-~"
_DASHES = "\u2010-\u2027"  # and typographic quotes, all of category P
# Characters that no normalizer in use removes or turns into whitespace, so that the
# text after them is never joined to the text before them.
_SAFE = rf"\w{_ASCII}\xa1-\xac\xae-\xff{_DASHES}\u3001-\u3029\uff01-\uff5e"
_TAIL = rf"(?:(?<![{_SAFE}])[{_SPACE}]++[^{_SPACE}]*+)*+"

# A chunk that ends before whitespace, and after a safe character.
_WORD = rf"[^{_SPACE}]++{_TAIL}"
# An ASCII word that ends before punctuation, and punctuation that ends before
# whitespace. Without these, English has three times the number of distinct chunks.
_FINE = (
    rf"[A-Za-z0-9]++(?![^{_SPACE}{_ASCII}{_DASHES}])",
    rf"[{_ASCII}]++(?![^{_SPACE}])",
)

# Chunks with the whitespace before them, where tokens include it, as in GPT-2.
WITH_SPACE = "|".join(
    [*(rf"[{_SPACE}]*+{each}" for each in (*_FINE, _WORD)), rf"[{_SPACE}]++"]
)
# Chunks without it: split by whitespace only, as in T5, or also by punctuation (BERT).
WORDS = _WORD
FINE_WORDS = "|".join([*_FINE, _WORD])

MAX_CACHED = 64  # characters; longer chunks hardly ever repeat
MAX_ENTRIES = 1 << 18  # about 60 MB; the 78 MB of a hundred novels have 200,000 chunks
_PIECE = 1 << 14  # characters cut at a time, to fit into the processor's caches
_NO_ID = (1 << 32) - 1  # the "id" of a chunk's bytes after its last token

# Normalizers that may precede a pre-tokenizer by whitespace and do not affect it.
_FOLDS = {"Lowercase", "NFC"}
_REWRITES = _FOLDS | {"NFKC", "Nmt", "Precompiled"}


class ChunkEncoder:
    """Encodes text through a cache of chunks.

    A chunk includes the whitespace before it, so the chunks contain all bytes of text.

    Args:
      core: the tokenizer that encodes a chunk, without special tokens.
      cut: the pattern of a chunk, from `choose_cut`; "" encodes texts whole.
      prefix: put before a text that does not begin with it.
    """

    def __init__(self, core: Tokenizer, cut: str, prefix: str = ""):
        self._core = core
        self._prefix = prefix
        spaced = rf"[{_SPACE}]*+(?:{cut})|[{_SPACE}]++"
        self._cut = re.compile(spaced) if cut else None
        self._place = re.compile(rf"(?<=[{_SAFE}])(?=[{_SPACE}])")
        self._cache = _Cache(self._encode_alone)

    def encode(self, text: str) -> np.ndarray:
        """The int32 ids [n] of a text."""
        return self.encode_sized(text)[0]

    def encode_sized(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """See `Tokenizer.encode_sized`."""
        prefix = "" if not text or text.startswith(self._prefix) else self._prefix
        pairs = np.frombuffer(self._encode(prefix + text), np.uint32).reshape(-1, 2)
        ids, sizes = pairs.T
        is_token = ids != _NO_ID
        ends = np.cumsum(sizes, dtype=np.int64)[is_token] - len(prefix)
        return ids[is_token].astype(np.int32), np.diff(ends, prepend=0)

    def _encode(self, text: str) -> bytes:
        if self._cut is None:
            return self._encode_alone(text)
        get, find, parts, start = self._cache.__getitem__, self._cut.findall, [], 0
        while start < len(text):
            end = self._place.search(text, start + _PIECE)
            stop = end.start() if end else len(text)
            parts.append(b"".join(map(get, find(text, start, stop))))
            start = stop
        return b"".join(parts)

    def _encode_alone(self, text: str) -> bytes:
        """Pairs of uint32, id and number of bytes, which add up to the text's."""
        try:
            encoding = self._core.encode(text, add_special_tokens=False)
        except TypeError:
            text = replace_surrogates(text)
            encoding = self._core.encode(text, add_special_tokens=False)
        # The bytes of a character that tokens share count for the last token: in the
        # library, a T5 word's "▁" covers the word's first letter.
        ends, later = [], len(text)
        for start, end in reversed(encoding.offsets):
            ends.append(min(end, later))
            later = min(later, start)
        pairs, done, is_ascii = array("I"), 0, text.isascii()
        ids, stops = [*encoding.ids, _NO_ID], [*reversed(ends), len(text)]
        for id_, end in zip(ids, stops, strict=True):
            pairs.append(id_)
            pairs.append(end - done if is_ascii else len(text[done:end].encode()))
            done = end
        return (pairs if pairs[-1] else pairs[:-2]).tobytes()


def replace_surrogates(text: str) -> str:
    """A text that the library accepts: U+FFFD for lone surrogates, byte for byte."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


class _Cache(dict):
    """A cache of encoded chunks; emptied when full, to bound the memory."""

    def __init__(self, encode: Callable[[str], bytes]):
        self._encode = encode

    def __missing__(self, chunk: str) -> bytes:
        data = self._encode(chunk)
        if len(chunk) <= MAX_CACHED:
            if len(self) >= MAX_ENTRIES:
                self.clear()
            self[chunk] = data
        return data


def choose_cut(core: dict) -> str:
    """The pattern of a tokenizer's chunks, or "" if it is not known how to cut text.

    Args:
      core: a Hugging Face `tokenizer.json`.
    """
    if any(not token["special"] for token in core["added_tokens"]):
        return ""  # such tokens are matched before the text is split
    before, split = flatten_steps(core["normalizer"]), core["pre_tokenizer"]
    names = {step["type"] for step in before}
    steps = flatten_steps(split)
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"] and names <= _FOLDS:
        # add_prefix_space would also put a space before chunks inside a text.
        is_plain = steps[0].get("use_regex", True) and not steps[0]["add_prefix_space"]
        return WITH_SPACE if is_plain else ""
    if kinds == ["BertPreTokenizer"] and names <= {"BertNormalizer"}:
        return FINE_WORDS
    if kinds == ["WhitespaceSplit", "Metaspace"] and names <= _REWRITES:
        return WORDS if steps[1]["prepend_scheme"] == "always" else ""
    return ""
