"""Chunked ids are those of the whole text."""

import json
import re
from typing import NamedTuple

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, normalizers, pre_tokenizers

from jaxpt.text.tokens import chunks
from jaxpt.text.tokens.chunks import (
    FINE_WORDS,
    WITH_SPACE,
    WORDS,
    ChunkEncoder,
    choose_cut,
)
from jaxpt.text.tokens.training import train_subword

TEXT = (
    "It's the \"first\" of (many) lines, isn't it? The cat's 3rd: 1,234.5 - don't!\n"
    "Another line; café naïve, résumé. “Quoted” — and ‘so on’… they'll we're I'm\n\n"
) * 3
SPECIALS = ("pad", "unk")


def make_core(kind, normalizer=None, prefix=False):
    """The library's tokenizer of a form, trained on TEXT."""
    lowercase = kind == "uncased"
    if kind in ("cased", "uncased"):
        kind = "wordpiece"
    made = train_subword(kind, [TEXT], 400, SPECIALS, 0, lowercase)
    data = made.to_json()["core"]
    data["added_tokens"] = []
    core = tokenizers.Tokenizer.from_str(json.dumps(data))
    if normalizer is not None:
        core.normalizer = normalizer
    return core


WIDE = normalizers.Sequence(
    [
        normalizers.Nmt(),
        normalizers.NFKC(),
        normalizers.Lowercase(),
    ]
)
SPACES = normalizers.Replace(Regex(" {2,}"), "▁")  # hides a space from the split
FORMS = {
    "gpt2": lambda: make_core("bpe"),
    "lowercase bpe": lambda: make_core("bpe", normalizers.Lowercase()),
    "nfc bpe": lambda: make_core("bpe", normalizers.NFC()),
    "bert cased": lambda: make_core("cased"),
    "bert uncased": lambda: make_core("uncased"),
    "t5": lambda: make_core("unigram"),
    "nmt unigram": lambda: make_core("unigram", WIDE),
}
CUTS = {"gpt2": WITH_SPACE, "bert cased": FINE_WORDS, "t5": WORDS}

# Where a cut could go wrong: whitespace of every sort, what normalizers turn into it or
# drop, combining marks, what joins graphemes, quotes, letters of one or more bytes.
ODD = (
    " \t\n\r\x0b\x0c\x1c\x1f\x85\xa0\u1680\u2003\u2028\u2029\u202f\u205f\u3000"
    "\x00\x01\x7f\xad\u200b\u200c\u200d\u200e\u2060\ufeff\ufffd"
    "\u0301\u0338\u0345\u064b\u0600\u06dd\u093f\u0d4e\u20e3\ufe0f"
    "aZſıİßéÉΣςᾳ中日ไהع가가０²½ª_▁#'’“”‘—–…‐·«»-.,;:!?()[]{}<>\"`~=/*&%$@|\\^+0129"
    "\U0001f600\U0001f468\U0001f3fd\U0001f1e9\U000e0067\u3164\uffa0"
)
WORD = st.sampled_from(["the", " cat", "'s", "'ll", "It", "don", "\n\n", "  ", "1,2"])
NASTY = st.lists(
    st.one_of(
        WORD,
        st.sampled_from(ODD),
        st.characters(exclude_categories=["Cs"]),
        st.builds(lambda c, n: c * n, st.sampled_from(ODD), st.integers(2, 70)),
    ),
    max_size=24,
).map("".join)


@pytest.fixture(scope="module", params=FORMS)
def pair(request):
    """A form with its cut, and the same without."""
    core = FORMS[request.param]()
    cut = choose_cut(json.loads(core.to_str()))
    assert cut == CUTS.get(request.param, cut) and cut
    return ChunkEncoder(core, cut), ChunkEncoder(core, "")


@pytest.mark.slow_except("nmt unigram")
@settings(max_examples=150, deadline=None)
@given(NASTY)
def test_chunked_is_whole(pair, text):
    chunked, whole = pair
    ids, sizes = chunked.encode_sized(text)
    assert ids.tolist() == whole.encode(text).tolist()
    assert sizes.min(initial=0) >= 0 and sizes.sum() <= len(text.encode())
    # The library does not report what it drops at a text's beginning.
    behind = f"x {text}"
    sizes, expected = chunked.encode_sized(behind)[1], whole.encode_sized(behind)[1]
    assert sizes.tolist() == expected.tolist()


def test_the_bytes_of_a_shared_character_go_to_its_last_token():
    # The bytes of a character that the text had not: each token has its offsets.
    core = FORMS["gpt2"]()
    encoder = ChunkEncoder(core, choose_cut(json.loads(core.to_str())))
    for text, sizes in (("aไ", [1, 0, 0, 3]), ("😀b", [0, 0, 0, 4, 1])):
        assert encoder.encode_sized(text)[1].tolist() == sizes
    # A token for "▁" alone covers the first letter of its word.
    unigram = FORMS["t5"]()
    for cut in (choose_cut(json.loads(unigram.to_str())), ""):
        _, sizes = ChunkEncoder(unigram, cut).encode_sized("😀 😀")
        assert unigram.encode("😀 😀").tokens == ["▁", "😀", "▁", "😀"]
        assert sizes.tolist() == [0, 4, 1, 4]


@pytest.mark.slow_except("t5")
def test_every_odd_pair(pair):
    chunked, whole = pair
    for a in ODD:
        text = "".join(f"x{a}{b} {b}{a}y,{b} \n{a}'s." for b in ODD)
        assert chunked.encode(text).tolist() == whole.encode(text).tolist(), a


NORMALIZERS = [
    *(normalizers.Lowercase(), normalizers.NFC(), normalizers.NFKC()),
    # Spaces around Chinese characters, which it adds, are cuts of its pre-tokenizer.
    *(normalizers.Nmt(), normalizers.BertNormalizer(handle_chinese_chars=False)),
]


@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_safe_characters_stay_what_they_are(normalizer):
    """None is removed, and none ends as whitespace, so that no cut behind it moves."""
    safe = re.compile(f"[{chunks._SAFE}]")
    for char in filter(safe.match, map(chr, range(0x10000))):
        written = normalizer.normalize_str(char)
        assert written and not written[-1].isspace(), hex(ord(char))
    assert safe.match("é") and safe.match("中") and safe.match("-")


@pytest.mark.slow_except("bert cased")
def test_every_character(pair):
    # Each second one of the basic plane, in all the places of a chunk.
    chunked, whole = pair
    codes = [i for i in range(0, 0x10000, 2) if not 0xD800 <= i < 0xE000]
    for start in range(0, len(codes), 256):
        chars = map(chr, codes[start : start + 256])
        text = "".join(f"a{c} {c}b,{c} {c}{c}'s\n" for c in chars)
        assert np.array_equal(chunked.encode(text), whole.encode(text)), start


@pytest.mark.slow_except("bert cased")
def test_long_texts_are_taken_in_pieces(pair):
    chunked, whole = pair
    for text in (TEXT * 300, "ab" * 20_000, "a b\x85 " * 9_000, " " * 40_000, ""):
        assert np.array_equal(chunked.encode(text), whole.encode(text))


def test_chunks_by_hand():
    def cut(pattern, text):
        return re.findall(pattern, text)

    text = " It's a “test”,\n\nno\x85 1"
    assert cut(WITH_SPACE, text) == [*(" It", "'s", " a", " “test”,", "\n\nno\x85 1")]
    assert cut(FINE_WORDS, text) == ["It", "'s", "a", "“test”,", "no\x85 1"]
    assert cut(WORDS, text) == ["It's", "a", "“test”,", "no\x85 1"]
    assert cut(WITH_SPACE, "end.  ") == ["end", ".", "  "]


class Encoding(NamedTuple):
    ids: list
    offsets: list


class Core:
    """Counts its calls; a chunk's id is its length."""

    def __init__(self, size=9):
        self.asked, self.size = [], size

    def get_vocab(self, with_added_tokens):
        return {str(i): i for i in range(self.size)}

    def encode(self, text, add_special_tokens):
        assert not add_special_tokens
        self.asked.append(text)
        return Encoding([len(text)], [(0, len(text))])


def test_cache_asks_once():
    core = Core()
    encoder = ChunkEncoder(core, WITH_SPACE)
    assert encoder.encode("a bb a bb").tolist() == [1, 3, 2, 3]
    assert encoder.encode("a bb").tolist() == [1, 3]
    assert core.asked == ["a", " bb", " a"]
    assert encoder.encode("a").dtype == np.int32


def test_cache_is_bounded(monkeypatch):
    monkeypatch.setattr(chunks, "MAX_ENTRIES", 3)
    core = Core()
    encoder = ChunkEncoder(core, WITH_SPACE)
    encoder.encode("a b c")
    encoder.encode("a d")  # the fourth: all are let go
    encoder.encode("a d")
    assert core.asked == ["a", " b", " c", " d", "a"]
    long = "x" * 65
    encoder.encode(long)
    encoder.encode(long)
    assert core.asked[-2:] == [long, long]
    short = long[: chunks.MAX_CACHED]
    encoder.encode(short)
    encoder.encode(short)
    assert core.asked[-2:] == [long, short]


def test_ids_above_16_bits():
    encoder = ChunkEncoder(Core(size=(1 << 16) + 1), "")
    assert encoder.encode("x" * 65_536).tolist() == [65_536]
    encoder = ChunkEncoder(Core(size=1 << 16), "")
    assert encoder.encode("x" * 65_535).tolist() == [65_535]


def test_prefix():
    core = Core()
    encoder = ChunkEncoder(core, WITH_SPACE, prefix=" ")
    encoder.encode("a\nb")
    encoder.encode(" c")
    encoder.encode("\nd")
    encoder.encode("")
    assert core.asked == [" a", "\nb", " c", " \nd"]
    # Its bytes are none of the text's.
    for text, sizes in (("a\nbb", [1, 3]), (" c", [2]), ("", [])):
        assert encoder.encode_sized(text)[1].tolist() == sizes


def test_lone_surrogates_are_replacement_characters():
    core = FORMS["bert uncased"]()
    encoder = ChunkEncoder(core, choose_cut(json.loads(core.to_str())))
    for first, last in ("\ud800\udbff", "\udc00\udfff", "\udabc\udeff"):
        lone = f"it{first} is {last}its a{first}{first}b."
        ids, sizes = encoder.encode_sized(lone)
        text = re.sub("[^a-z .]", "\ufffd", lone)
        expected = encoder.encode_sized(text)
        assert ids.tolist() == expected[0].tolist()
        assert sizes.tolist() == expected[1].tolist()
        assert sizes.sum() == len(text.encode())


@given(st.lists(st.tuples(*[st.integers(0, 9)] * 2).map(sorted), max_size=9))
def test_each_byte_belongs_to_one_token(offsets):
    """Also where tokens share characters, or have them in another order."""

    class Shuffled:
        def encode(self, text, add_special_tokens):
            return Encoding(list(range(len(offsets))), offsets)

    for text in ("aé中😀bcdef", "abcdefghi"):
        data = ChunkEncoder(Shuffled(), "")._encode_alone(text)
        ids, sizes = np.frombuffer(data, np.uint32).reshape(-1, 2).T
        assert sizes.sum() == len(text.encode())
        assert [i for i in ids if i != chunks._NO_ID] == [*range(len(offsets))]
        # A token has no bytes beyond its last character.
        ends = np.cumsum(sizes)[: len(offsets)]
        last = [len(text[:end].encode()) for _, end in offsets]
        assert (ends <= last).all()


@pytest.mark.parametrize(
    "name, change",
    [
        ("gpt2", {"pre_tokenizer": None}),
        ("gpt2", {"normalizer": {"type": "StripAccents"}}),
        ("gpt2", {"normalizer": {"type": "Prepend", "prepend": "▁"}}),
        ("bert cased", {"normalizer": {"type": "Lowercase"}}),
        ("t5", {"normalizer": {"type": "NFKD"}}),
        ("t5", {"normalizer": json.loads(SPACES.__getstate__())}),
        (
            "t5",
            {"pre_tokenizer": json.loads(pre_tokenizers.Metaspace().__getstate__())},
        ),
        ("gpt2", {"added_tokens": [{"id": 9, "content": "a b", "special": False}]}),
    ],
)
def test_other_forms_are_not_cut(name, change):
    data = json.loads(FORMS[name]().to_str())
    assert choose_cut(data)
    assert choose_cut(data | change) == ""


KEEP_CUTS = {
    "gpt2": {"Lowercase", "NFC"},
    "bert cased": {"BertNormalizer"},
    "t5": {"Lowercase", "NFC", "NFKC", "Nmt", "Precompiled"},
}


@pytest.mark.parametrize("name", KEEP_CUTS)
def test_normalizers_that_keep_the_cuts(name):
    """Of all that the library has, by what each does to chunks; see `KEEP_CUTS`."""
    data = json.loads(FORMS[name]().to_str())
    kinds = {n for n, kind in vars(normalizers).items() if isinstance(kind, type)}
    assert {"NFD", "StripAccents", "Prepend", "Replace"} <= kinds
    for kind in kinds - {"Normalizer", "Sequence"}:
        steps = {"type": "Sequence", "normalizers": [{"type": kind}]}
        is_cut = choose_cut(data | {"normalizer": steps}) != ""
        assert is_cut == (kind in KEEP_CUTS[name]), kind


def test_byte_levels_of_old_files_use_the_pattern():
    core = FORMS["gpt2"]()
    data = json.loads(core.to_str())
    del data["pre_tokenizer"]["use_regex"]
    assert choose_cut(data) == WITH_SPACE
    old = tokenizers.Tokenizer.from_str(json.dumps(data))
    assert old.encode(TEXT).ids == core.encode(TEXT).ids


@pytest.mark.parametrize(
    "step",
    [
        {"add_prefix_space": True},
        {"use_regex": False},
    ],
)
def test_other_byte_levels_are_not_cut(step):
    data = json.loads(FORMS["gpt2"]().to_str())
    data["pre_tokenizer"] |= step
    assert choose_cut(data) == ""


def test_other_metaspaces_are_not_cut():
    data = json.loads(FORMS["t5"]().to_str())
    data["pre_tokenizer"]["pretokenizers"][1]["prepend_scheme"] = "first"
    assert choose_cut(data) == ""
