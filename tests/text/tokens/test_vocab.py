import numpy as np
import pytest

from jaxpt.text.tokens.vocab import Vocab


@pytest.fixture
def vocab() -> Vocab:
    # 0 [PAD], 1 [MASK], 2 .. 4 ordinary, 5 <extra_id_1>, 6 <extra_id_0>
    return Vocab(size=7, pad=0, mask=1, sentinels=(6, 5))


def test_parts(vocab):
    assert vocab.sentinels == (6, 5)
    assert vocab.special_ids.tolist() == [0, 1, 5, 6]
    assert vocab.special_ids.dtype == vocab.ordinary_ids.dtype == "int32"
    assert vocab.ordinary_ids.tolist() == [2, 3, 4]
    assert vocab.is_special.tolist() == [True, True, False, False, False, True, True]
    assert vocab.special_names == {
        0: "[PAD]",
        1: "[MASK]",
        5: "<extra_id_1>",
        6: "<extra_id_0>",
    }


def test_without_specials():
    vocab = Vocab(size=2)
    assert vocab.special_ids.tolist() == []
    assert vocab.ordinary_ids.tolist() == [0, 1]


def test_names_of_shared_and_other_ids():
    # GPT-2's <|endoftext|> is both; id 3 has no role, id 4 no known text.
    vocab = Vocab(
        size=5,
        bos=0,
        eos=0,
        mask=1,
        others=(3, 4),
        special_texts=((0, "<|endoftext|>"), (3, "<|im_start|>")),
    )
    assert vocab.special_names == {
        0: "<|endoftext|>",
        1: "[MASK]",
        3: "<|im_start|>",
        4: "<special_4>",
    }
    assert vocab.special_ids.tolist() == [0, 1, 3, 4]
    assert vocab.ordinary_ids.tolist() == [2]
    assert vocab.require("bos") == vocab.require("eos") == 0


def test_sentinels_in_any_place():
    vocab = Vocab(size=6, sentinels=(2, 5))
    assert vocab.num_sentinels == 2
    assert vocab.special_names == {2: "<extra_id_0>", 5: "<extra_id_1>"}
    assert vocab.ordinary_ids.tolist() == [0, 1, 3, 4]


def test_tables_count_in_equality():
    # They are left out of the hash alone.
    one = Vocab(size=1, token_bytes=(1,), word_starts=(True,))
    assert hash(one) == hash(Vocab(size=1))
    assert one != Vocab(size=1, token_bytes=(2,), word_starts=(True,))
    assert one != Vocab(size=1, token_bytes=(1,), word_starts=(False,))


def test_hashable(vocab):
    assert hash(vocab) == hash(Vocab(size=7, pad=0, mask=1, sentinels=(6, 5)))
    assert vocab != Vocab(size=7, pad=0, mask=1, sentinels=(6,))


def test_require(vocab, refuses):
    assert vocab.require("pad") == 0  # an id of 0 is not a missing one
    assert vocab.require("mask") == 1
    with refuses("tokenizer.specials", "'eos'", "[EOS]", "pad, mask"):
        vocab.require("eos")


def test_lost_characters_are_charged_only_where_all_pieces_are_characters():
    """In bits: 8 a byte; their place in the row is charged as well."""
    ids, sizes = np.array([1, 0]), np.array([1, 4])
    lost = Vocab(size=2, pieces=(b"a", b"b")).unknown_bits(ids, sizes)
    assert lost[0] == 0 and lost[1] >= 8 * 3
    for pieces in ((b"a", b"bc"), ()):
        assert not Vocab(size=2, pieces=pieces).unknown_bits(ids, sizes).any()
    sized = Vocab(size=2, pieces=(b"a", b"b"), token_bytes=(1, 1))
    assert not sized.unknown_bits(ids, sizes).any()
