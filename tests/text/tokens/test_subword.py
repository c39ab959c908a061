import json

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpt.text.tokens import tokenizer as tok
from jaxpt.text.tokens.exported import export_tokenizer
from jaxpt.text.tokens.special_names import name_specials, read_json
from jaxpt.text.tokens.subword import SubwordTokenizer
from jaxpt.text.tokens.training import train_subword

TEXT = "The cat's hat isn't that flat; the other cats sat. Café!\n\nA mat? " * 9
ROLES = ("pad", "unk", "cls", "sep", "mask", "eos")
KINDS = ("bpe", "wordpiece", "unigram")
ANY_TEXT = st.text(st.characters(), max_size=40)  # lone surrogates too


@pytest.fixture(scope="module")
def made():
    return {kind: train_subword(kind, [TEXT], 330, ROLES, 3) for kind in KINDS}


def make(vocab, merges=(), **model):
    """A tokenizer.json of a BPE, as a dictionary."""
    pre = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": pre | {"use_regex": True},
        "post_processor": None,
        "decoder": pre | {"use_regex": True},
        "model": {"type": "BPE", "vocab": vocab, "merges": list(merges)} | model,
    }


def byte_vocab(*more):
    """The 256 bytes' characters, then more tokens."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    return {name: id_ for id_, name in enumerate([*alphabet, *more])}


@given(text=ANY_TEXT)
@settings(max_examples=100, deadline=None)
def test_bpe_is_exact(made, text):
    bpe = made["bpe"]
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    ids = bpe.encode(text)
    assert ids.dtype == np.int32
    assert bpe.decode(ids) == text
    assert sum(bpe.vocab.token_bytes[i] for i in ids) == len(text.encode())
    assert bpe.count_unknown(text) == 0


@given(
    st.lists(
        st.sampled_from(
            "[PAD] [UNK] [MASK] [EOS] <extra_id_0> <extra_id_2> special 0 2 \0".split()
            + [" ", "a", "[", "_", "▁", "cat", "中", "\ud800"]
        )
    ).map("".join)
)
@settings(max_examples=150, deadline=None)
def test_plain_text_has_no_specials(made, text):
    for tokenizer in made.values():
        ids = tokenizer.encode(text)
        special = set(ids[tokenizer.vocab.is_special[ids]].tolist())
        assert special <= {tokenizer.vocab.unk}
        assert np.count_nonzero(ids == 1) == tokenizer.count_unknown(text)


def test_a_piece_named_as_a_special():
    # SentencePiece's pieces hold "</s>" with the best score of all; a text that spells
    # it is six characters.
    pieces = [["<unk>", 0.0], ["</s>", 0.0]] + [[c, -2.0] for c in "▁</s>a"]
    data = make({}) | {
        "pre_tokenizer": {
            "type": "Metaspace",
            "replacement": "▁",
            "prepend_scheme": "always",
            "split": True,
        },
        "decoder": None,
        "model": {
            "type": "Unigram",
            "unk_id": 0,
            "vocab": pieces,
            "byte_fallback": False,
        },
    }
    data["added_tokens"] = [make_special(1, "</s>")]
    result = name_specials(read_json(data))
    assert (result.vocab.unk, result.vocab.eos) == (0, 1)
    assert result.encode("a</s>").tolist() == [2, 7, 3, 4, 5, 6]
    assert result.encode_prompt("a</s>").tolist() == [2, 7, 1]


def test_a_special_that_merges_spell():
    merges = [["<", "s"], ["<s", ">"]]
    data = make(byte_vocab("<s", "<s>", "<unk>"), merges)
    data["pre_tokenizer"] = None
    data["model"]["unk_token"] = "<unk>"
    data["added_tokens"] = [make_special(257, "<s>")]
    result = name_specials(read_json(data))
    assert result.vocab.bos == 257
    assert result.encode("<s>").tolist() == [256, byte_vocab()[">"]]
    # A merge of the unknown token, which is special.
    data["model"]["unk_token"] = "<s"
    result = name_specials(read_json(data))
    ids = byte_vocab()
    assert result.vocab.unk == 256
    assert result.encode("<s>").tolist() == [ids["<"], ids["s"], ids[">"]]


def make_special(id_, content):
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": id_, "content": content, "special": True} | flags


def test_nothing_is_cut_off_or_added():
    data = make(byte_vocab("[CLS]"))
    data["added_tokens"] = [make_special(256, "[CLS]")]
    data["truncation"] = {
        "max_length": 2,
        "strategy": "LongestFirst",
        "stride": 0,
        "direction": "Right",
    }
    data["padding"] = {
        "strategy": {"Fixed": 8},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 256,
        "pad_type_id": 0,
        "pad_token": "[CLS]",
    }
    data["post_processor"] = {
        "type": "BertProcessing",
        "sep": ["[CLS]", 256],
        "cls": ["[CLS]", 256],
    }
    result = name_specials(read_json(data))
    ids = byte_vocab()
    assert result.encode("abc").tolist() == [ids["a"], ids["b"], ids["c"]]


def test_lone_surrogates_are_replaced(made):
    for tokenizer in made.values():
        odd = tokenizer.encode("cat \ud83d cat \udc00").tolist()
        assert odd == tokenizer.encode("cat \ufffd cat \ufffd").tolist()


def test_vocab_of_bpe(made):
    bpe = made["bpe"]
    vocab = bpe.vocab
    assert (vocab.pad, vocab.unk, vocab.cls, vocab.eos) == (0, 1, 2, 5)
    assert vocab.sentinels == (vocab.size - 1, vocab.size - 2, vocab.size - 3)
    assert vocab.others == vocab.special_texts == ()
    for id_ in range(6, vocab.size - 3):
        text = bpe.decode([id_])
        if "\ufffd" not in text:
            assert vocab.token_bytes[id_] == len(text.encode())
            assert vocab.word_starts[id_] == text[0].isspace()
    assert vocab.token_bytes[:6] == (0,) * 6
    assert all(vocab.word_starts[:6]) and all(vocab.word_starts[-3:])
    (cat,) = set(bpe.encode(" cat").tolist()) - set(bpe.encode(" ").tolist())
    assert vocab.word_starts[cat] and vocab.token_bytes[cat] == 4
    assert vocab.pieces[cat] == b" cat" and vocab.pieces[0] == b"[PAD]"
    assert bpe.token_name(cat) == "␣cat"
    assert bpe.token_name(bpe.encode("\n")[0]) == "\\n"
    assert bpe.token_name(bpe.encode("é")[-1]) in ("é", "<0xA9>")
    assert bpe.token_name(0) == "[PAD]"


def test_vocab_of_wordpiece(made):
    wordpiece = made["wordpiece"]
    vocab = wordpiece.vocab
    names = [wordpiece.token_name(i) for i in range(vocab.size)]
    for id_ in range(6, vocab.size - 3):
        assert vocab.word_starts[id_] == (not names[id_].startswith("##"))
        assert vocab.pieces[id_].decode() == names[id_].removeprefix("##")
    assert vocab.token_bytes == ()  # spaces are in no token
    assert "##a" in names and "é" not in names[6:] or "##é" in names
    assert wordpiece.decode(wordpiece.encode("the  cat \n sat .")) == "the cat sat."
    assert wordpiece.count_unknown("the 中 cat ✓") == 2
    assert wordpiece.encode("✓").tolist() == [vocab.unk]


def test_vocab_of_unigram(made):
    unigram = made["unigram"]
    vocab = unigram.vocab
    for id_ in range(6, vocab.size - 3):
        name = unigram.token_name(id_)
        assert vocab.word_starts[id_] == name.startswith("▁")
    assert vocab.token_bytes == ()
    assert unigram.decode(unigram.encode("the  cat \n sat.")) == "the cat sat."
    ids = unigram.encode_prompt("the cat <extra_id_0> mat")
    assert unigram.decode(ids) == "the cat<extra_id_0> mat"
    assert unigram.count_unknown("the 中 cat ✓") == 2


@pytest.mark.parametrize("kind", KINDS)
def test_save_load_export(made, kind, tmp_path):
    one = made[kind]
    tok.save(one, tmp_path / "own.json")
    export_tokenizer(one, tmp_path / "hub.json")
    # The library reads what was exported, and both give back the same.
    hub = tokenizers.Tokenizer.from_file(str(tmp_path / "hub.json"))
    text = "The flat cat's mat [MASK] isn't."
    assert hub.encode("The flat cat's").ids == one.encode("The flat cat's").tolist()
    for name in ("own.json", "hub.json"):
        again = tok.load(tmp_path / name)
        assert again.vocab == one.vocab
        assert again.kind == kind
        assert tok.fingerprint(again) == tok.fingerprint(one)
        assert again.encode(text).tolist() == one.encode(text).tolist()
        assert again.encode_prompt(text).tolist() == one.encode_prompt(text).tolist()
    assert len({tok.fingerprint(each) for each in made.values()}) == 3


def test_own_file_with_more_specials(made, tmp_path):
    one = made["bpe"]
    tok.save(one, tmp_path / "own.json")
    spec = tok.TokenizerSpec(
        "file", str(tmp_path / "own.json"), specials=("mask", "bos"), num_sentinels=5
    )
    more = tok.make_tokenizer(spec, [])
    size = one.vocab.size
    assert more.vocab.mask == one.vocab.mask
    assert more.vocab.bos == size
    # <extra_id_4> is added before <extra_id_3>: ids descend.
    assert more.vocab.sentinels == (*one.vocab.sentinels, size + 2, size + 1)
    assert more.vocab.size == size + 3
    again = tok.make_tokenizer(spec, [])
    assert tok.fingerprint(again) == tok.fingerprint(more)


@pytest.mark.parametrize(
    "change, parts",
    [
        ({"specials": []}, ["specials"]),
        ({"specials": {"msk": 0}}, ["specials"]),
        ({"specials": {"mask": "0"}}, ["specials"]),
        ({"specials": {"mask": 330}}, ["below 298"]),
        ({"sentinels": [-1]}, ["sentinels[0] is -1", "at least 0"]),
        ({"sentinels": [298]}, ["below 298"]),
        ({"sentinels": {"0": 1}}, ["sentinels"]),
        ({"sentinels": [297, 297]}, ["297, 297", "once"]),
        ([], ["model.jaxpt is []", "an object"]),
    ],
)
def test_bad_own_file(made, change, parts, tmp_path, refuses):
    assert made["bpe"].vocab.size == 298
    path = tmp_path / "own.json"
    tok.save(made["bpe"], path)
    data = json.loads(path.read_text())
    data["model"]["jaxpt"] = change and data["model"]["jaxpt"] | change
    path.write_text(json.dumps(data))
    with refuses("own.json", *parts):
        tok.load(path)


@pytest.mark.parametrize(
    "data, parts",
    [
        (make({"a": 0, "b": 1}), ["lacks 254 of the 256 bytes"]),
        (make(byte_vocab(), dropout=0.1), ["dropout=0.1"]),
        (make({"a": 0, "b": 2}, unk_token="a"), ["hole", "no token is 1"]),
        (make({"a": 0, "b": 10**9}, unk_token="a"), ["hole", "no token is 1"]),
        (make({"a": 0, "b": 0}, unk_token="a"), ["two tokens share one"]),
        (
            make({}) | {"model": {"type": "WordLevel", "vocab": {}, "unk_token": "a"}},
            ["WordLevel", "BPE, WordPiece, Unigram"],
        ),
        (
            make({})
            | {
                "model": {
                    "type": "WordPiece",
                    "vocab": {"a": 0},
                    "unk_token": "[UNK]",
                    "continuing_subword_prefix": "##",
                    "max_input_chars_per_word": 100,
                }
            },
            ["lacks [UNK]"],
        ),
        (
            make({})
            | {"model": {"type": "Unigram", "unk_id": None, "vocab": [["a", -1.0]]}},
            ["unk_id"],
        ),
        (
            make({})
            | {
                "model": {
                    "type": "Unigram",
                    "unk_id": 0,
                    "vocab": [["a", -1.0], ["a", -1.0]],
                }
            },
            ["a piece twice"],
        ),
    ],
)
def test_bad_core(data, parts, refuses):
    with refuses(*parts):
        name_specials(read_json(data))


def test_specials_must_be_special_to_the_library(refuses):
    core = read_json(make(byte_vocab()))
    with refuses("'mask': 7", "one of its special tokens"):
        SubwordTokenizer(core, {"mask": 7})


def test_added_tokens_that_are_no_specials():
    # They represent text, and are recognized in it.
    data = make(byte_vocab("<think>"))
    token = {"single_word": False, "lstrip": False, "rstrip": False}
    data["added_tokens"] = [
        token | {"id": 256, "content": "<think>", "special": False, "normalized": False}
    ]
    result = name_specials(read_json(data))
    assert 256 in result.encode("a <think> b").tolist()
    assert result.decode(result.encode("a <think> b")) == "a <think> b"
    assert result.vocab.token_bytes[256] == 7
    assert result.vocab.special_ids.tolist() == []


def test_other_special_ids():
    data = make(byte_vocab("<|im_start|>", "<|endoftext|>"))
    token = {"single_word": False, "lstrip": False, "rstrip": False}
    token |= {"special": True, "normalized": False}
    data["added_tokens"] = [
        token | {"id": 256, "content": "<|im_start|>"},
        token | {"id": 257, "content": "<|endoftext|>"},
    ]
    result = name_specials(read_json(data))
    assert result.vocab.others == (256,)
    assert result.vocab.bos == result.vocab.eos == 257
    assert result.vocab.special_names == {256: "<|im_start|>", 257: "<|endoftext|>"}
    assert result.vocab.word_starts[256] and result.vocab.token_bytes[256] == 0
    assert result.encode_prompt("<|im_start|>[EOS]").tolist() == [256, 257]
