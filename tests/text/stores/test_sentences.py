"""Sentences: where the cuts are, and that a cut text loses nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpt.text.sources.documents import split_long
from jaxpt.text.stores.sentences import begins_sentence, cut_sentences

NASTY = st.text(st.sampled_from("ab .!?\n\t\r\"')”\xa0\u2028\x85é"), max_size=40)


@pytest.mark.parametrize(
    "mode, text, expected",
    [
        ("lines", "", []),
        ("lines", "one", ["one"]),
        ("lines", "one\ntwo", ["one", "\ntwo"]),
        ("lines", "one\n\n two. Three\n", ["one", "\n\n two. Three", "\n"]),
        ("lines", "\n\none\n", ["\n\none", "\n"]),  # never before the first word
        ("lines", "one \t\n two", ["one", " \t\n two"]),  # all whitespace goes along
        ("lines", "a\r\nb", ["a", "\r\nb"]),
        ("lines", "a\xa0\nb\nc", ["a\xa0\nb", "\nc"]),  # after whitespace: no cut
        ("punctuation", "", []),
        ("punctuation", "No stop", ["No stop"]),
        ("punctuation", "One. Two! Three?", ["One.", " Two!", " Three?"]),
        ("punctuation", '"Go!" he said. (So.) "Why?"', None),
        ("punctuation", "Wait... what?! Yes.\n", ["Wait...", " what?!", " Yes.", "\n"]),
        ("punctuation", "3.14 and a.b.c", ["3.14 and a.b.c"]),
        ("punctuation", "He said (so.)] Then", ["He said (so.)]", " Then"]),
        ("punctuation", "“Yes.” “No.”", ["“Yes.”", " “No.”"]),
        ("punctuation", "One.\xa0Two", ["One.\xa0Two"]),  # not all know this space
        ("punctuation", "One. ", ["One.", " "]),
    ],
)
def test_by_hand(mode, text, expected):
    if expected is None:
        expected = ['"Go!"', " he said.", " (So.)", ' "Why?"']
    assert cut_sentences(text, mode) == expected


@pytest.mark.parametrize("mode", ["lines", "punctuation"])
@given(text=NASTY)
def test_cuts_lie_where_every_tokenizer_cuts(mode, text):
    parts = cut_sentences(text, mode)
    assert "".join(parts) == text
    assert all(parts)
    for before, after in zip(parts, parts[1:], strict=False):
        assert not before[-1].isspace()
        assert after[0] in " \t\n\r"


@pytest.mark.parametrize("mode", ["lines", "punctuation"])
@given(text=NASTY, size=st.integers(3, 20))
def test_parts_have_the_sentences_of_the_whole(mode, text, size):
    result, before = [], ""
    for part in split_long(text, size):
        sentences = cut_sentences(part, mode)
        if before and sentences and not begins_sentence(before, part, mode):
            result[-1] += sentences.pop(0)
        result += sentences
        before = part
    assert result == cut_sentences(text, mode)


@pytest.mark.parametrize("text", ["." * 300_000, " " * 300_000, ".)" * 150_000])
def test_a_long_run_takes_no_long_time(text):
    assert cut_sentences(text, "punctuation") == [text]
    assert cut_sentences(text + "\n", "lines")[0][:9] == text[:9]
