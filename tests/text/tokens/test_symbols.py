import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jaxpt.text.tokens import tokenizer as tok
from jaxpt.text.tokens.symbols import ByteTokenizer, CharTokenizer
from jaxpt.text.tokens.tokenizer import TokenizerSpec
from jaxpt.text.tokens.vocab import SPECIALS

ANY_TEXT = st.text(st.characters())  # lone surrogates too


def test_char_by_hand():
    char = tok.make_tokenizer(
        TokenizerSpec(specials=("mask", "eos"), num_sentinels=2), ["ba", "é b"]
    )
    # [MASK] [EOS] then ' ' a b é then <extra_id_1> <extra_id_0>
    assert char.vocab.size == 8
    assert (char.vocab.mask, char.vocab.eos, char.vocab.pad) == (0, 1, None)
    assert char.vocab.token_bytes == ()  # of a text with other characters
    ids = char.encode("baé ")
    assert ids.tolist() == [4, 3, 5, 2]
    assert ids.dtype == np.int32
    assert char.decode(ids) == "baé "
    assert char.decode([7, 3, 0, 6, 1]) == "<extra_id_0>a[MASK]<extra_id_1>[EOS]"
    assert [char.token_name(i) for i in range(8)] == [
        *("[MASK]", "[EOS]", "␣", "a", "b", "é", "<extra_id_1>", "<extra_id_0>")
    ]


def test_byte_by_hand():
    byte = tok.make_tokenizer(
        TokenizerSpec("byte", specials=("pad",), num_sentinels=1), []
    )
    assert byte.vocab.size == 258
    assert byte.vocab.token_bytes == (0,) + (1,) * 256 + (0,)
    ids = byte.encode("a\u00e9")  # 61 C3 A9
    assert ids.tolist() == [0x61 + 1, 0xC3 + 1, 0xA9 + 1]
    assert ids.dtype == np.int32
    assert byte.decode([257, 0x62, 0]) == "<extra_id_0>a[PAD]"
    assert byte.decode([0xC3 + 1, 0x62]) == "\ufffda"  # a character cut in two
    names = [byte.token_name(i) for i in (0, 11, 33, 0x62, 0xC4, 257)]
    assert names == ["[PAD]", "\\n", "␣", "a", "<0xC3>", "<extra_id_0>"]
    assert byte.count_unknown("\u4e2d") == 0


@given(ANY_TEXT, st.sets(st.sampled_from(sorted(SPECIALS))), st.integers(0, 3))
def test_char_round_trip(text, specials, num_sentinels):
    char = CharTokenizer(text, tuple(specials), num_sentinels)
    ids = char.encode(text)
    assert len(ids) == len(text)
    assert char.decode(ids) == text
    assert char.count_unknown(text) == 0
    assert not char.vocab.is_special[ids].any()
    again, sizes = char.encode_sized(text)
    assert again.tolist() == ids.tolist()
    assert sizes.tolist() == [len(c.encode("utf-8", "surrogatepass")) for c in text]


@given(st.text(), st.sets(st.sampled_from(sorted(SPECIALS))), st.integers(0, 3))
def test_byte_round_trip(text, specials, num_sentinels):
    byte = ByteTokenizer(tuple(specials), num_sentinels)
    ids = byte.encode(text)
    assert len(ids) == len(text.encode())
    assert byte.decode(ids) == text
    assert not byte.vocab.is_special[ids].any()


@given(ANY_TEXT)
def test_lone_surrogates_do_not_crash(text):
    for tokenizer in (ByteTokenizer(), CharTokenizer("ab", ("unk",))):
        tokenizer.decode(tokenizer.encode(text))


@given(ANY_TEXT, ANY_TEXT)
def test_unknown_characters(known, text):
    num_unknown = sum(c not in known for c in text)
    without = CharTokenizer(known)
    assert without.count_unknown(text) == num_unknown
    assert without.decode(without.encode(text)) == "".join(
        c for c in text if c in known
    )
    with_unk = CharTokenizer(known, ("unk",))
    ids = with_unk.encode(text)
    assert len(ids) == len(text)
    assert np.count_nonzero(ids == with_unk.vocab.unk) == num_unknown


def test_plain_text_has_no_specials():
    char = CharTokenizer("[MASK]", ("mask",))
    assert char.vocab.mask not in char.encode("[MASK]")
    assert char.decode(char.encode("[MASK]")) == "[MASK]"


def test_pieces_are_what_ids_are_written_as():
    char = CharTokenizer("aé", ("pad",), 1)
    assert char.vocab.pieces == (b"[PAD]", b"a", "é".encode(), b"<extra_id_0>")
    byte = ByteTokenizer(("pad",), 1)
    assert byte.vocab.pieces == (
        b"[PAD]",
        *(bytes([i]) for i in range(256)),
        b"<extra_id_0>",
    )


def test_word_starts():
    # [PAD], then "\n", " ", "a", NBSP, then a sentinel
    char = CharTokenizer(" a\n\xa0", ("pad",), 1)
    assert char.vocab.word_starts == (True, True, True, False, True, True)
    starts = ByteTokenizer(("pad",), 1).vocab.word_starts
    assert len(starts) == 258
    marked = {i - 1 for i in range(258) if starts[i]}
    assert marked == {-1, 256, *b" \t\n\r\x0b\x0c"}
