"""What is hidden of a passage, and how an answer reads."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpt.evaluation import samples
from jaxpt.evaluation.samples import Piece
from jaxpt.text.tokens.symbols import CharTokenizer

TOKENIZER = CharTokenizer(sorted(set("the cat sat.")), ("pad", "mask", "eos"), 2)


def encode(text):
    return TOKENIZER.encode(text).tolist()


def test_neighbours_of_a_kind_are_one_piece_and_wrong_ones_are_not():
    parts = [(encode(c), "given", []) for c in "the"]
    parts += [(encode("c"), "wrong", encode("a")), (encode(" "), "wrong", encode("t"))]
    parts += [([], "wrong", encode("sa")), (encode("t"), "right", [])]
    assert samples.spell(TOKENIZER, parts) == (
        Piece("the", "given"),
        Piece("c", "wrong", "a"),
        Piece(" ", "wrong", "t"),
        Piece("", "wrong", "sa"),
        Piece("t", "right"),
    )


@pytest.mark.parametrize(
    "pieces, line",
    [
        ([("th", "given"), ("e", "right"), ("a", "wrong", "e")], "th[e][a≠e]"),
        ([("a\n b", "given"), ("c", "written"), ("d", "truth")], "a b >> c (text: d)"),
        ([("a", "caught", "b"), ("c", "missed", "d"), ("e", "alarm")], "[a≠b](c≠d)!e!"),
        ([("\udc80", "given")], "?"),
        ([("  ", "right"), ("\n", "wrong", " "), (" a", "right")], "[␣␣][⏎≠␣][ a]"),
    ],
)
def test_a_sample_in_a_line(pieces, line):
    assert samples.write_line([Piece(*piece) for piece in pieces]) == line


def test_a_line_has_an_end():
    line = samples.write_line([Piece("a" * 1000, "given")])
    assert len(line) == samples.LINE and line.endswith("…")


def test_what_is_hidden_is_a_seventh_and_never_special():
    is_special = np.arange(64) == 17
    hidden = samples.hide_tokens(is_special)
    assert hidden.sum() == 8 and not hidden[17] and not hidden[[0, -1]].any()
    spans = samples.hide_spans(np.zeros(64, bool), 3)
    assert spans == [(15, 18), (31, 34), (47, 50)]
    assert samples.hide_spans(is_special, 3) == spans[1:]
    assert samples.hide_spans(np.zeros(64, bool), 1) == [(31, 34)]
    assert samples.hide_spans(np.zeros(6, bool), 3) == []


@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 3)))
def test_what_was_written_again_and_the_truth_are_both_in_the_parts(truth, written):
    is_hidden = np.arange(len(truth)) % 2 == 0
    parts = samples.align(np.array(truth, int), np.array(written, int), is_hidden)
    assert [i for own, _, _ in parts for i in own] == written
    output = [true if kind == "wrong" else own for own, kind, true in parts]
    assert [i for own in output for i in own] == truth


def test_an_answer_is_split_at_its_sentinels():
    split = samples.split_answer
    assert split(np.array([5, 90, 6]), [90, 91], []) == {90: [6]}
    assert split(np.array([90, 91, 7, 90, 8]), [90, 91], []) == {90: [8], 91: [7]}
    assert split(np.array([1, 90, 5]), [90], [1]) == {}
