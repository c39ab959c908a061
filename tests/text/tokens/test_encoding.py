import dataclasses
from functools import partial

import numpy as np
import pytest

from jaxpt.text.tokens import tokenizer as tok
from jaxpt.text.tokens.encoding import make_visible
from jaxpt.text.tokens.special_names import name_specials, read_json
from jaxpt.text.tokens.symbols import ByteTokenizer, CharTokenizer
from jaxpt.text.tokens.training import train_subword


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


def test_unknown_characters_of_a_prompt_are_unk_with_a_warning(caplog, refuses):
    char = CharTokenizer("ab", ("unk",))
    a, b = char.encode("ab")
    unk = char.vocab.unk
    assert char.encode_prompt("aé\nb[UNK]").tolist() == [a, unk, unk, b, unk]
    line = "prompt has '\\n', 'é': not in the tokenizer's vocabulary, read as [UNK]"
    assert set(caplog.messages) == {line}
    assert char.encode_prompt("\ud800").tolist() == [unk]
    with refuses("prompt has 'é': not in the tokenizer's vocabulary"):
        char.encode_prompt("aé", allow_unknown=False)


def test_without_unk_unknown_characters_of_a_prompt_are_refused(refuses):
    """Their ids would be missing."""
    char = CharTokenizer("ab", ("mask",))
    with refuses("prompt has 'c'"):
        char.encode_prompt("a[MASK]bc")
    with refuses("prompt has 'E'"):
        char.encode_prompt("[EOS]")  # this vocabulary has no such special
    with refuses("prompt has '\\ud800'"):
        char.encode_prompt("\ud800")


@pytest.fixture(scope="module")
def bpe():
    return train_subword(
        "bpe", ["the cat sat on the mat. " * 9], 300, ("mask", "eos"), 2
    )


def test_prompt_of_words_that_carry_their_space(bpe):
    vocab = bpe.vocab
    ids = bpe.encode_prompt("the cat  [MASK] on<extra_id_0> the [EOS] mat").tolist()
    the, cat, on = (bpe.encode(t).tolist() for t in ("the", " cat", " on"))
    the_again, mat = (bpe.encode(t).tolist() for t in (" the ", " mat"))
    # The spaces before a hole are gone, those before [EOS] are not.
    assert ids == [
        *(*the, *cat, vocab.mask, *on, vocab.sentinels[0]),
        *(*the_again, vocab.eos, *mat),
    ]


@pytest.mark.parametrize("space", [" ", "\n", " \t\r\n", "\x85", "\xa0\u3000"])
def test_whitespace_before_a_hole_is_what_the_library_strips(bpe, space):
    vocab, cat = bpe.vocab, bpe.encode("cat").tolist()
    for name, id_ in (("[MASK]", vocab.mask), ("<extra_id_1>", vocab.sentinels[1])):
        assert bpe.encode_prompt(f"cat{space}{name}").tolist() == [*cat, id_]
    kept = bpe.encode("cat\x1c").tolist()  # str.isspace, and not White_Space
    assert bpe.encode_prompt("cat\x1c[MASK]").tolist() == [*kept, vocab.mask]


def test_flags_of_a_file_hold(bpe, tmp_path):
    """A mask of others takes the spaces that its flags say, to either side."""
    core = bpe.to_json()["core"]
    for left, right in ((False, False), (True, False), (False, True)):
        flags = {"lstrip": left, "rstrip": right}
        tokens = [t | flags if t["id"] == 0 else t for t in core["added_tokens"]]
        result = name_specials(read_json(core | {"added_tokens": tokens}))
        text = "the" + " " * (not left) + "\0" + " " * (not right) + "cat"
        before, after = (bpe.encode(part).tolist() for part in text.split("\0"))
        assert result.encode_prompt("the [MASK] cat").tolist() == [*before, 0, *after]
        tok.save(result, tmp_path / "kept.json")
        kept = tok.load(tmp_path / "kept.json")
        ids = kept.encode_prompt("the [MASK] cat").tolist()
        assert ids == [*before, 0, *after]
        # Nothing of this is in the ids of a text.
        assert tok.fingerprint(result) == tok.fingerprint(bpe)


def test_prompt_takes_both_names(bpe):
    # Spelt as the vocabulary does, or as jaxpt does.
    odd = train_subword("bpe", ["ab"], 300, ("mask",))
    odd.vocab = dataclasses.replace(odd.vocab, special_texts=((0, "<mask>"),))
    assert odd.encode_prompt("<mask>").tolist() == [0]
    assert odd.encode_prompt("[MASK]").tolist() == [0]


def test_visible():
    assert make_visible(" a\n\té") == "␣a\\n\\té"
    assert (
        make_visible(b"\xe2\x80".decode("utf-8", "surrogateescape")) == "<0xE2><0x80>"
    )
