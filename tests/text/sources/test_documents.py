import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from jaxpt.text.sources import documents
from jaxpt.text.sources.documents import (
    MAX_GROWTH,
    Document,
    cut_documents,
    cut_parts,
    make_documents,
    split_long,
)

# Whitespace of every sort: what is cut at, and what looks like it and is not.
NASTY = st.text(
    st.sampled_from(
        "abc'.\u00e9\U0001f600 \n\t\r\x0b\x0c\x1c\x85\xa0\u2028\u3000\u200b"
    )
)
WORDS = st.text(st.sampled_from("ab \n"))
SPACE = " \t\n\r"


def places(text: str) -> list[int]:
    """Where a text may be cut, one character after the other."""
    return [
        i for i in range(1, len(text)) if text[i] in SPACE and not text[i - 1].isspace()
    ]


def split_slowly(text: str, size: int) -> list[str]:
    parts = []
    while len(text) > size:
        inside = [i for i in places(text) if i <= size]
        after = [i for i in places(text) if size < i <= MAX_GROWTH * size]
        if inside:
            end = inside[-1]
        elif after:
            end = after[0]
        elif len(text) > MAX_GROWTH * size:
            end = MAX_GROWTH * size
        else:
            break
        parts.append(text[:end])
        text = text[end:]
    return [*parts, text]


def test_split_long():
    assert split_long("") == [""]
    assert split_long("one two", 7) == ["one two"]
    assert split_long("one two", 6) == ["one", " two"]
    assert split_long("one  two\n", 5) == ["one", "  two", "\n"]
    # The place right after `size` characters counts.
    assert split_long("one two three", 7) == ["one two", " three"]
    # No cut inside whitespace, nor before what only some take for whitespace.
    assert split_long("a\xa0 b\u3000c d", 2) == ["a\xa0 b\u3000c", " d"]
    assert split_long("x" * 40 + " y", 3) == ["x" * 40, " y"]
    assert split_long("x" * 50, 3) == ["x" * 48, "xx"]
    assert split_long("x" * 48, 3) == ["x" * 48]


@given(st.one_of(NASTY, WORDS), st.integers(1, 8))
@settings(max_examples=500)
def test_split_long_against_a_slow_one(text, size):
    parts = split_long(text, size)
    assert parts == split_slowly(text, size)
    assert "".join(parts) == text
    assert all(map(len, parts)) or text == ""


@given(st.one_of(NASTY, WORDS), st.integers(1, 5), st.integers(1, 9))
@settings(max_examples=500)
def test_parts_of_a_stream_are_those_of_the_whole(text, size, step):
    pieces = [text[i : i + step] for i in range(0, len(text), step)]
    assert list(cut_parts(pieces, size)) == (split_long(text, size) if text else [])


def test_a_far_place_is_found_in_a_large_part():
    text = "a " + "x" * 9000 + " " + "y" * 9000
    assert split_long(text, 10_000) == ["a " + "x" * 9000, " " + "y" * 9000]
    assert list(cut_parts(text, 10_000)) == split_long(text, 10_000)
    assert split_long("a " + "x" * 9000, 8000) == ["a", " " + "x" * 9000]


def test_a_place_is_not_looked_for_at_every_piece(monkeypatch):
    sizes = []

    def spy(text, size):
        sizes.append(len(text))
        return split_long(text, size)

    monkeypatch.setattr(documents, "split_long", spy)
    assert list(cut_parts(" " * 1600, 100)) == [" " * 1600]
    assert len(sizes) < 7


@given(NASTY, st.integers(1, 6))
@settings(max_examples=300)
def test_parts_are_split_as_the_whole(text, size):
    # A long run without a place is cut anyhow, which no pre-tokenizer knows of.
    bounds = [0, *places(text), len(text)]
    if max(end - start for start, end in zip(bounds, bounds[1:])) > 15 * size:
        return
    for pre_tokenizer in (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.BertPreTokenizer(),
        pre_tokenizers.WhitespaceSplit(),
    ):

        def split(text, pre_tokenizer=pre_tokenizer):
            return [token for token, _ in pre_tokenizer.pre_tokenize_str(text)]

        assert sum(map(split, split_long(text, size)), []) == split(text)


def test_make_documents(monkeypatch):
    assert make_documents("", "n", "l") == [Document("", "n", "l")]
    assert make_documents("a b", "n", "") == [Document("a b", "n")]
    monkeypatch.setattr(documents, "PART_CHARS", 3)
    assert make_documents("aaa b c", "n", "l") == [
        Document("aaa", "n", "l", True),
        Document(" b", "n", "l", False),
        Document(" c", "n", "l", False),
    ]


def cut(text: str, rule: str, step: int = 1000) -> list[tuple[str, str]]:
    blocks = [text[i : i + step] for i in range(0, len(text), step)]
    result = list(cut_documents(blocks, rule, "n", "l"))
    assert all(document.label == "l" for document in result)
    whole = []
    for document in result:
        if document.is_start:
            whole.append([document.name, ""])
        assert document.name == whole[-1][0]
        whole[-1][1] += document.text
    return [tuple(pair) for pair in whole]


TEXT = "\n one \r\n\n \t\ntwo\nthree\r\nfour\u2028five\n\n\nsix"


def test_a_file_is_a_document():
    assert cut(TEXT, "file") == [("n", TEXT)]


def test_lines():
    assert cut(TEXT, "line") == [
        ("n:2", " one "),
        ("n:5", "two"),
        ("n:6", "three"),
        ("n:7", "four\u2028five"),
        ("n:10", "six"),
    ]


def test_paragraphs():
    assert cut(TEXT, "paragraph") == [
        ("n:2", " one "),
        ("n:5", "two\nthree\r\nfour\u2028five"),
        ("n:10", "six"),
    ]


WIKI = " \n = A = \n \n one\n = = B = = \n two\n = C = \n = D = \n three"


def test_starts():
    assert cut(WIKI, "start:^ = [^=]") == [
        ("n:1", " \n = A = \n \n one\n = = B = = \n two\n"),
        ("n:7", " = C = \n"),
        ("n:8", " = D = \n three"),
    ]
    # The text before the first start is a document, and `$` ends a line.
    assert cut("x\r\ny z\r\nz\r\nw", "start:z$") == [
        ("n:1", "x\r\n"),
        ("n:2", "y z\r\n"),
        ("n:3", "z\r\nw"),
    ]


def test_headings():
    text = "= A =\n\nof\n= b =\n \r\n= C =\n\n= D =\nx\n\ny"
    assert cut(text, "heading:^=") == [
        ("n:1", "= A =\n\nof\n= b =\n \r\n"),
        ("n:6", "= C =\n\n"),
        ("n:8", "= D =\nx\n\ny"),
    ]
    assert [name for name, _ in cut("\n\nx\n\n= A", "heading:^=")] == ["n:1", "n:5"]
    assert cut("\n\n= A", "heading:^=") == [("n:1", "\n\n= A")]


@pytest.mark.parametrize("rule", ["line", "paragraph", "start:b"])
def test_nothing_in_it(rule):
    assert cut("", rule) == []
    blank = cut(" \n\n", rule)
    assert blank == ([("n:1", " \n\n")] if rule == "start:b" else [])


RULES = ["file", "line", "paragraph", "start:b$", "heading:b"]


@pytest.mark.parametrize("rule", RULES)
@given(text=st.text(st.sampled_from("ab \n\r"), max_size=80), step=st.integers(1, 9))
@settings(max_examples=200)
def test_documents_whatever_the_blocks(rule, text, step):
    whole = cut(text, rule)
    assert cut(text, rule, step) == whole
    with pytest.MonkeyPatch.context() as patch:
        # Lines far longer than a part; "b$" is beyond what is matched of such a line.
        patch.setattr(documents, "PART_CHARS", 6)
        small = cut(text, rule, step)
        # Only where lines are short are they known to be blank, or to match.
        if max(map(len, text.split("\n"))) < 6:
            assert small == whole
        assert cut(text, rule, 1) == small


@given(text=st.text(st.sampled_from("ab \n\r"), max_size=60))
@settings(max_examples=300)
def test_rules_against_plain_ones(text):
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    # split leaves the "\r" of a last line alone, which no newline follows.
    lines[-1] = text.split("\n")[-1]
    assert [t for _, t in cut(text, "line")] == [x for x in lines if x.strip()]
    results = [t for _, t in cut(text, "paragraph")]
    assert [x for t in results for x in re.split("\r?\n", t)] == [
        x for x in lines if x.strip()
    ]
    assert all(not re.search(r"\n\s*\n", t) for t in results)
    starts = [""]
    for line in re.findall("[^\n]*\n|[^\n]+", text):
        if line.startswith("b") and "".join(starts).strip():
            starts.append("")
        starts[-1] += line
    assert [t for _, t in cut(text, "start:^b")] == (starts if text else [])


def test_a_long_line_comes_in_parts(monkeypatch):
    monkeypatch.setattr(documents, "PART_CHARS", 6)
    blocks = ["x\nab cd ef gh\n", *["   "] * 5, "y\nz"]
    assert list(cut_documents(blocks, "line", "n", "")) == [
        Document("x", "n:1"),
        Document("ab cd", "n:2"),
        Document(" ef gh", "n:2", is_start=False),
        # Blank as far as it was seen, but not blank.
        Document(" " * 15 + "y", "n:3"),
        Document("z", "n:4"),
    ]


def test_only_the_beginning_of_a_long_line_is_matched(monkeypatch):
    monkeypatch.setattr(documents, "PART_CHARS", 6)
    text = "x\naaaaaab\naaaaab\naaaaaabaaaaa\n"
    for step in (1, 3, 100):
        assert [name for name, _ in cut(text, "start:b", step)] == ["n:1", "n:3"]


@pytest.mark.parametrize(
    "rule, parts",
    [
        ("", ["'file'"]),
        ("files", ["'file'", "'start:REGEX'"]),
        ("start:", ["'start:REGEX'"]),
        ("line:x", ["'start:REGEX'"]),
        ("start:[", ["not a regular expression", "position 0"]),
        ("start:x{99999999999}", ["not a regular expression"]),
    ],
)
def test_bad_rules(rule, parts, refuses):
    with refuses(f"data.documents={rule!r}: ", *parts):
        list(cut_documents(["x"], rule, "n", ""))
