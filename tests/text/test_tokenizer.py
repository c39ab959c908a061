import json
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpt.text import tokenizer as tok
from jaxpt.text.tokenizer import ByteTokenizer, CharTokenizer, TokenizerSpec
from jaxpt.text.vocab import SPECIALS

ANY_TEXT = st.text(st.characters())  # lone surrogates too


def test_char_by_hand():
    char = tok.make_tokenizer(
        TokenizerSpec(specials=("mask", "eos"), num_sentinels=2), ["ba", "é b"]
    )
    # [MASK] [EOS] then ' ' a b é then <extra_id_1> <extra_id_0>
    assert char.vocab.size == 8
    assert (char.vocab.mask, char.vocab.eos, char.vocab.pad) == (0, 1, None)
    assert char.vocab.token_bytes == (0, 0, 1, 1, 1, 2, 0, 0)
    ids = char.encode("baé ")
    assert ids.tolist() == [4, 3, 5, 2]
    assert ids.dtype == np.int32
    assert char.decode(ids) == "baé "
    assert char.decode([7, 3, 0, 6, 1]) == "<extra_id_0>a[MASK]<extra_id_1>[EOS]"
    assert [char.token_name(i) for i in range(8)] == [
        *("[MASK]", "[EOS]", "␣", "a", "b", "é", "<extra_id_1>", "<extra_id_0>")
    ]


def test_byte_by_hand():
    byte = tok.make_tokenizer(TokenizerSpec("byte", ("pad",), 1), [])
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
    num_bytes = sum(char.vocab.token_bytes[i] for i in ids)
    assert num_bytes == len(text.encode("utf-8", "surrogatepass"))
    assert len(char.vocab.token_bytes) == char.vocab.size


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


@pytest.mark.parametrize("make", [partial(CharTokenizer, "ab"), ByteTokenizer])
def test_prompt(make):
    tokenizer = make(specials=("mask",), num_sentinels=11)
    vocab = tokenizer.vocab
    a, b = tokenizer.encode("ab")
    ids = tokenizer.encode_prompt("[MASK]ab<extra_id_10><extra_id_1>b")
    first, last = vocab.sentinels[10], vocab.sentinels[1]
    assert ids.tolist() == [vocab.mask, a, b, first, last, b]
    assert ids.dtype == np.int32
    assert tokenizer.encode_prompt("").tolist() == []


def test_prompt_refuses_unknown(refuses):
    # Even where [UNK] could stand for them: the user should know.
    char = CharTokenizer("ab", ("unk",))
    with refuses("prompt", "'é'", "'\\n'"):
        char.encode_prompt("aé\nb")
    with refuses("prompt", "'M'"):
        char.encode_prompt("[MASK]")  # this vocabulary has no such special
    with refuses("prompt", "'c'"):
        CharTokenizer("ab", ("mask",)).encode_prompt("a[MASK]bc")
    with refuses("prompt", "'\\ud800'"):
        char.encode_prompt("\ud800")


@pytest.mark.parametrize(
    "tokenizer",
    [
        CharTokenizer("aé\n\ud83d\ude00", ("unk", "mask"), 2),
        ByteTokenizer(("eos", "bos"), 1),
    ],
)
def test_save_and_load(tokenizer, tmp_path):
    path = tmp_path / "tokenizer.json"
    tok.save(tokenizer, path)
    again = tok.load(path)
    assert again.vocab == tokenizer.vocab
    assert again.to_json() == tokenizer.to_json()
    assert tok.fingerprint(again) == tok.fingerprint(tokenizer)
    assert again.encode("aé\ud83d\ude00").tolist() == (
        tokenizer.encode("aé\ud83d\ude00").tolist()
    )


def test_fingerprint():
    # Stored, so that it stays the same from version to version.
    assert tok.fingerprint(CharTokenizer("ab", ("mask",))) == (
        "8a28cd7eaac75cbcb2ee4ae0426f762c4d979f1809ba04c7b3041e13066b700a"
    )
    prints = {
        tok.fingerprint(tokenizer)
        for tokenizer in (
            CharTokenizer("ab"),
            CharTokenizer("abc"),
            CharTokenizer("ab", ("mask",)),
            CharTokenizer("ab", ("mask", "unk")),
            CharTokenizer("ab", ("unk", "mask")),
            CharTokenizer("ab", (), 1),
            ByteTokenizer(),
        )
    }
    assert len(prints) == 7


@pytest.mark.parametrize(
    "spec, parts",
    [
        (TokenizerSpec("word"), ["tokenizer.kind='word'", "char, byte"]),
        (TokenizerSpec(specials=("msk",)), ["tokenizer.specials", "'msk'", "mask"]),
        (TokenizerSpec(specials=("eos", "eos")), ["tokenizer.specials", "once"]),
        (TokenizerSpec(num_sentinels=-1), ["tokenizer.num_sentinels=-1"]),
    ],
)
def test_bad_spec(spec, parts, refuses):
    with refuses(*parts):
        tok.make_tokenizer(spec, ["ab"])


def test_no_text(refuses):
    with refuses("data.path"):
        tok.make_tokenizer(TokenizerSpec(), [""])


GOOD = {"kind": "char", "specials": [], "num_sentinels": 0, "characters": ["a", "b"]}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 100_000,
        "[]",
        "{}",
        '{"model": {"type": "BPE"}}',
        json.dumps(GOOD | {"kind": ["char"]}),
        json.dumps(GOOD | {"kind": "bpe"}),
        json.dumps(GOOD | {"specials": "mask"}),
        json.dumps(GOOD | {"specials": [["mask"]]}),
        json.dumps(GOOD | {"specials": ["nope"]}),
        json.dumps(GOOD | {"num_sentinels": "2"}),
        json.dumps(GOOD | {"num_sentinels": True}),
        json.dumps(GOOD | {"characters": ["b", "a"]}),
        json.dumps(GOOD | {"characters": ["ab"]}),
        json.dumps(GOOD | {"characters": "ab"}),
        json.dumps({key: GOOD[key] for key in ("kind", "specials", "num_sentinels")}),
    ],
)
def test_bad_file(text, tmp_path, refuses):
    path = tmp_path / "tokenizer.json"
    path.write_text(text)
    with refuses("tokenizer.json"):
        tok.load(path)


def test_good_file(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(GOOD))
    assert tok.load(path).encode("ba").tolist() == [1, 0]


def test_unreadable_file(tmp_path, refuses):
    with refuses("gone.json"):
        tok.load(tmp_path / "gone.json")
    with refuses(tmp_path.name):
        tok.load(tmp_path)
    (tmp_path / "latin.json").write_bytes(b'{"kind": "\xe9"}')
    with refuses("latin.json"):
        tok.load(tmp_path / "latin.json")
