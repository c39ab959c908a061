"""Texts to rows: frames, pairs, cutting, words, and places in the text."""

import numpy as np
import pytest
from tasks.encoders import TOKENIZER, make_encoder, show

from jaxpt.tasks.encoder import Frame, TextEncoder, cut_pair


def test_a_text_and_a_pair_are_framed():
    encoder = make_encoder()
    one = encoder.texts("abc")
    assert show(one.tokens) == "[abc|"
    assert one.type_ids.tolist() == [0] * 5
    assert one.places.tolist() == [-1, 0, 1, 2, -1]
    two = encoder.texts("ab", "c")
    assert show(two.tokens) == "[ab|c|"
    assert two.type_ids.tolist() == [0, 0, 0, 0, 1, 1]
    assert two.sources.tolist() == [0, 1, 1, 0, 2, 0]
    assert two.places.tolist() == [-1, 0, 1, -1, 0, -1]


def test_a_long_text_is_cut_and_its_frame_kept():
    encoder = make_encoder(max_len=6)
    assert show(encoder.texts("abcdefgh").tokens) == "[abcd|"
    assert show(encoder.texts("abcdef", "gh").tokens) == "[ab|g|"
    assert show(encoder.texts("a", "bcdefgh").tokens) == "[a|bc|"


def test_the_longer_text_loses_its_last_token():
    """As `_truncate_seq_pair` of google-research/bert, token by token."""
    for first in range(12):
        for second in range(12):
            for room in range(12):
                one, two = first, second
                while one + two > room:
                    one, two = (one - 1, two) if one > two else (one, two - 1)
                assert cut_pair(first, second, room) == (one, two)


def test_rows_too_short_for_a_pair_are_refused(refuses):
    with refuses("task.max_len=4", "at least 5"):
        make_encoder(max_len=4)


def test_an_empty_row_is_refused(refuses):
    encoder = make_encoder(frame=Frame())
    assert show(encoder.texts("a", "b").tokens) == "ab"
    with refuses("empty"):
        encoder.texts("")
    assert show(make_encoder().texts("").tokens) == "[|"


def test_words_have_the_ids_of_their_text():
    encoder = make_encoder()
    words = encoder.words(["ab", "c", "d."])
    assert show(words.ids) == "ab c d."
    assert words.word_ids.tolist() == [0, 0, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("text", ["ab c.", "é aé", " a  b"])
def test_spans_cut_the_text_at_its_tokens(text):
    ids, starts, ends = make_encoder().spans(text)
    results = [text[a:b] for a, b in zip(starts, ends)]
    assert results == [x.strip() for x in text]
    np.testing.assert_array_equal(ids, TOKENIZER.encode(text))


def test_frames_of_roberta():
    encoder = TextEncoder(TOKENIZER, Frame((0,), (1, 1), (1,)), 32)
    assert show(encoder.texts("a", "b").tokens) == "[a||b|"
