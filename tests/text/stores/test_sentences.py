"""Sentences: where the cuts are, and that a cut text loses nothing."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpt.text.sources.documents import split_long
from jaxpt.text.stores.sentences import (
    _MARKS,
    begins_sentence,
    cut_sentences,
    join_unsafe,
)

MIXED = st.text(st.sampled_from("aひ .!?。？！」，,।\n\u3000９．5"), max_size=40)
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


@pytest.mark.parametrize(
    "text, expected",
    [
        # Chinese, Japanese: no space; quotes and brackets after the mark; full width.
        ("你好。我是！真的吗？是", ["你好。", "我是！", "真的吗？", "是"]),
        ("他说：“好。”我们走。", ["他说：“好。”", "我们走。"]),
        (
            "（是。）「行く！」『え？』はい｡",
            ["（是。）", "「行く！」", "『え？』", "はい｡"],
        ),
        ("“不！”，他说。是", ["“不！”，他说。", "是"]),
        ("什么？！！对。。。好", ["什么？！！", "对。。。", "好"]),
        ("是。\u3000不。\n好", ["是。", "\u3000不。", "\n好"]),
        ("３．１４です．そう", ["３．１４です．", "そう"]),
        ("你好!真的吗?版本3.5是", ["你好!", "真的吗?", "版本3.5是"]),
        # Hindi and other scripts with a danda; Urdu, Arabic, Armenian, Ethiopic.
        ("यह है। वह है।तीन॥", ["यह है।", " वह है।", "तीन॥"]),
        ("هل أنت؟ نعم! لا. حسنا", ["هل أنت؟", " نعم!", " لا.", " حسنا"]),
        ("یہ ہے۔ وہ ہے۔", ["یہ ہے۔", " وہ ہے۔"]),
        ("Բարև։ Ոչ։", ["Բարև։", " Ոչ։"]),
        ("ይህ። እሺ፧ አዎ።", ["ይህ።", " እሺ፧", " አዎ።"]),
        ("မင်္ဂလာပါ။နေကောင်းလား။", ["မင်္ဂလာပါ။", "နေကောင်းလား။"]),
        ("សួស្តី។ខ្ញុំ៕", ["សួស្តី។", "ខ្ញុំ៕"]),
        ("བོད། སྐད།", ["བོད།", " སྐད།"]),
        # Scripts with European marks need the space, as English does.
        ("Привет. Как? Да!", ["Привет.", " Как?", " Да!"]),
        ("Γεια. Τι\u037e Ναι", ["Γεια.", " Τι\u037e", " Ναι"]),
        ("안녕. 네? v1.2입니다", ["안녕.", " 네?", " v1.2입니다"]),
        # Thai has no mark.
        ("สวัสดี ผมชื่อ", ["สวัสดี ผมชื่อ"]),
        # English is as before: abbreviations, decimals, ellipses, quotes.
        (
            "Dr. Smith (U.S.) paid $3.14… “Why?” he—J. R.—asked.",
            ["Dr.", " Smith (U.S.)", " paid $3.14… “Why?”", " he—J.", " R.—asked."],
        ),
    ],
)
def test_marks_of_other_scripts(text, expected):
    assert cut_sentences(text, "punctuation") == expected


def test_each_mark_of_another_script_ends_a_sentence():
    """Those of Unicode's Sentence_Terminal, one by one, with and without a space."""
    marks = [c for c in map(chr, range(0x80, 0x20000)) if re.match(f"[{_MARKS}]", c)]
    assert len(marks) >= 100 and {*"。！？｡।॥؟۔።။។։"} <= {*marks}
    for mark in marks:
        assert "Po" in {unicodedata.category(mark)} or mark == "\u037e"
        for after in ("x", " x", "\nx"):
            for end in (f"x{mark}", f"x{mark}”"):
                assert cut_sentences(end + after, "punctuation") == [end, after]
            assert begins_sentence(f"x{mark}", after, "punctuation")


def test_no_sentence_begins_after_whitespace_between_parts():
    for mode, before, after in (
        ("punctuation", "One. ", " Two"),
        ("punctuation", "One.\n", "\nTwo"),
        ("punctuation", "是。\u3000", "不"),
        ("lines", "One\n", "\nTwo"),
        ("lines", "One \xa0", "\nTwo"),
    ):
        assert cut_sentences(before + after, mode)[0] != before
        assert not begins_sentence(before, after, mode)
        assert not begins_sentence("", after, mode)
    assert begins_sentence("One.", " Two", "punctuation")
    assert begins_sentence("One", "\nTwo", "lines")


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
@given(text=NASTY | MIXED, size=st.integers(3, 20))
def test_parts_have_the_sentences_of_the_whole(mode, text, size):
    result, before = [], ""
    for part in split_long(text, size):
        sentences = cut_sentences(part, mode)
        if before and sentences and not begins_sentence(before, part, mode):
            result[-1] += sentences.pop(0)
        result += sentences
        before = part
    assert result == cut_sentences(text, mode)


@given(text=MIXED)
def test_a_mixed_text_loses_nothing(text):
    parts = cut_sentences(text, "punctuation")
    assert "".join(parts) == text and all(parts)
    groups = join_unsafe(parts)
    assert [part for group in groups for part in group] == parts
    assert all("".join(group)[0] in " \t\n\r" for group in groups[1:])


@pytest.mark.parametrize(
    "text",
    ["." * 300_000, "。" * 300_000, "。」" * 150_000, " " * 300_000, ".)" * 150_000],
)
def test_a_long_run_takes_no_long_time(text):
    assert cut_sentences(text, "punctuation") == [text]
    assert cut_sentences(text + "\n", "lines")[0][:9] == text[:9]
