"""Fast encoding: text is cut into chunks, and each distinct chunk is encoded once.

Beside its ids it is remembered how many bytes of the text each of them stands for.

The `tokenizers` library encodes 3 to 6 MB/s on one core. Words repeat, so a cache from
a chunk to its ids does better, if what is cut apart never changes an id: a chunk's ids
in the text are those it has alone. That holds between pieces that a tokenizer's own
pre-tokenizer keeps apart, so the cut goes by the tokenizer's structure; the tests hold
chunked ids to those of the whole text.
"""

import re
from array import array

import numpy as np
from tokenizers import Tokenizer

_SPACE = r" \t\n\r"
_ASCII = r"!-/:-@\[-`{-~"
_DASHES = "\u2010-\u2027"  # and typographic quotes, all of category P
# Characters that no normalizer in use turns into whitespace or into nothing: whatever
# follows them is not joined to what stands before them.
_SAFE = rf"\w{_ASCII}\xa1-\xac\xae-\xff{_DASHES}\u3001-\u3029\uff01-\uff5e"
_TAIL = rf"(?:(?<![{_SAFE}])[{_SPACE}]++[^{_SPACE}]*+)*+"

# A chunk that ends before whitespace, and after a safe character.
_WORD = rf"[^{_SPACE}]++{_TAIL}"
# An ASCII word that ends before punctuation, and punctuation that ends before
# whitespace: English has three times as many distinct chunks without them.
_FINE = (
    rf"[A-Za-z0-9]++(?![^{_SPACE}{_ASCII}{_DASHES}])",
    rf"[{_ASCII}]++(?![^{_SPACE}])",
)

# With the whitespace before each chunk, where tokens hold it: GPT-2's way of splitting.
WITH_SPACE = "|".join(
    [*(rf"[{_SPACE}]*+{each}" for each in (*_FINE, _WORD)), rf"[{_SPACE}]++"]
)
# Without it, where tokens do not: T5's way, by whitespace alone, and BERT's.
WORDS = _WORD
FINE_WORDS = "|".join([*_FINE, _WORD])

MAX_CACHED = 64  # characters: longer chunks hardly ever come again
MAX_ENTRIES = 1 << 18  # some 60 MB; the 78 MB of a hundred novels have 200,000
_PIECE = 1 << 14  # characters cut at a time: what is at work stays in the processor
_NO_ID = (1 << 32) - 1  # stands before the bytes of a chunk that follow its last token

# What may stand before a pre-tokenizer that goes by whitespace, and leaves it alone.
_FOLDS = {"Lowercase", "NFC"}
_REWRITES = _FOLDS | {"NFKC", "Nmt", "Precompiled"}


class ChunkEncoder:
    """Text to ids through a cache.

    A chunk is looked up with the whitespace before it, so that all of the text is in
    one: its bytes are counted.

    Args:
      core: what encodes a chunk, without any special token.
      cut: what a chunk matches, as `choose_cut` says; "" encodes texts whole.
      prefix: what is put before a text that does not begin with it.
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
        """The ids, and the bytes of the text that each stands for: int32, int64 [n].

        See `Tokenizer.encode_sized`.
        """
        prefix = "" if not text or text.startswith(self._prefix) else self._prefix
        found = np.frombuffer(self._encode(prefix + text), np.uint32).reshape(-1, 2)
        ids, sizes = found.T
        is_token = ids != _NO_ID
        ends = np.cumsum(sizes, dtype=np.int64)[is_token] - len(prefix)
        return ids[is_token].astype(np.int32), np.diff(ends, prepend=0)

    def _encode(self, text: str) -> bytes:
        if self._cut is None:
            return self._encode_alone(text)
        get, find, parts, start = self._cache.__getitem__, self._cut.findall, [], 0
        while start < len(text):
            place = self._place.search(text, start + _PIECE)
            stop = place.start() if place else len(text)
            parts.append(b"".join(map(get, find(text, start, stop))))
            start = stop
        return b"".join(parts)

    def _encode_alone(self, text: str) -> bytes:
        """Pairs of uint32: ids and bytes of the text, which add up to all of it."""
        try:
            found = self._core.encode(text, add_special_tokens=False)
        except TypeError:  # a lone surrogate is no text; what is has as many bytes
            text = re.sub("[\ud800-\udfff]", "\ufffd", text)
            found = self._core.encode(text, add_special_tokens=False)
        # Of tokens that share a character the last has its bytes: a T5 word's "▁" alone
        # is said to stand for the word's first letter.
        ends, later = [], len(text)
        for start, end in reversed(found.offsets):
            ends.append(min(end, later))
            later = min(later, start)
        pairs, place, is_ascii = array("I"), 0, text.isascii()
        ids, stops = [*found.ids, _NO_ID], [*reversed(ends), len(text)]
        for id_, end in zip(ids, stops, strict=True):
            end = max(end, place)
            pairs.append(id_)
            pairs.append(end - place if is_ascii else len(text[place:end].encode()))
            place = end
        return (pairs if pairs[-1] else pairs[:-2]).tobytes()


class _Cache(dict):
    """Chunks to what is kept of them; emptied when full, to bound the memory."""

    def __init__(self, encode):
        self._encode = encode

    def __missing__(self, chunk: str) -> bytes:
        data = self._encode(chunk)
        if len(chunk) <= MAX_CACHED:
            if len(self) >= MAX_ENTRIES:
                self.clear()
            self[chunk] = data
        return data


def choose_cut(core: dict) -> str:
    """What the chunks of a text match, or "" where it is not known how to cut it.

    Args:
      core: a Hugging Face `tokenizer.json`.
    """
    if any(not token["special"] for token in core["added_tokens"]):
        return ""  # these are found in the text before it is split
    before, split = flatten_steps(core["normalizer"]), core["pre_tokenizer"]
    names = {step["type"] for step in before}
    steps = flatten_steps(split)
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"] and names <= _FOLDS:
        # add_prefix_space would put a space before chunks inside a text, too.
        is_plain = steps[0].get("use_regex", True) and not steps[0]["add_prefix_space"]
        return WITH_SPACE if is_plain else ""
    if kinds == ["BertPreTokenizer"] and names <= {"BertNormalizer"}:
        return FINE_WORDS
    if kinds == ["WhitespaceSplit", "Metaspace"] and names <= _REWRITES:
        return WORDS if steps[1]["prepend_scheme"] == "always" else ""
    return ""


def flatten_steps(step: dict | None) -> list[dict]:
    """The steps of a normalizer or pre-tokenizer, with sequences taken apart."""
    if step is None:
        return []
    if step["type"] != "Sequence":
        return [step]
    inner = step.get("normalizers", step.get("pretokenizers", []))
    return [each for part in inner for each in flatten_steps(part)]
