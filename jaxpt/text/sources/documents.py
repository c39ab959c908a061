"""Splits plain text into documents, and long documents into parts.

blocks of a file -> mark_documents -> cut_parts -> Document(is_start), Document, ...
                    1 "= A =\\n"        at most PART_CHARS each, cut only
                    1 "text\\n"         where every tokenizer cuts
                    3 "= B =\\n"
"""

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter

from jaxpt.errors import DataError
from jaxpt.text.sources.files import read_lines

PART_CHARS = 1 << 18
# A part without a possible cut may grow to this multiple of PART_CHARS.
MAX_GROWTH = 16

# Pre-tokenizers that split on whitespace split here. \S is by Unicode; the whitespace
# is one of these four, the only ones that all tokenizers know.
CUT = re.compile(r"\S(?=[ \t\n\r])")


@dataclass(frozen=True)
class Document:
    """A document, or a part of a long one.

    Attributes:
      label: the same in all parts; "" means none.
      is_start: False if the text continues that of the `Document` before.
      span: the number of the span of the text that it was read from
        (`jaxpt.text.sources.spans`).
      before: of the first part of a span that continues a document, the end of the text
        before it.
    """

    text: str
    name: str
    label: str = ""
    is_start: bool = True
    span: int = 0
    before: str = ""


def split_long(text: str, size: int = PART_CHARS) -> list[str]:
    """Splits a text into parts whose tokens are those of the whole text; [""] for "".

    Cuts are before a space, tab or newline that does not follow whitespace. A part has
    at most `size` characters; if it has no possible cut, it extends to the next one, or
    to 16 times `size`.

    >>> split_long("one two  three", 8)
    ['one two', '  three']
    """
    parts, start = [], 0
    while len(text) - start > size and (end := _find_cut(text, start, size)):
        parts.append(text[start:end])
        start = end
    return [*parts, text[start:]]


def _find_cut(text: str, start: int, size: int) -> int:
    """The end of the part that begins at `start`; 0 if more text is needed."""
    stop = start + size + 1
    for low in (max(start, stop - 4096), start):  # usually the last ones suffice
        cuts = [match.end() for match in CUT.finditer(text, low, stop)]
        if cuts:
            return cuts[-1]
    most = start + MAX_GROWTH * size
    if match := CUT.search(text, start + size, most):
        return match.end()
    return most if len(text) > most else 0


def cut_parts(pieces: Iterable[str], size: int) -> Iterator[str]:
    """The parts of `split_long` of the joined pieces, in bounded memory."""
    buffer: list[str] = []
    num_chars, min_chars = 0, size
    for piece in pieces:
        buffer.append(piece)
        num_chars += len(piece)
        if num_chars > min_chars:
            *parts, rest = split_long("".join(buffer), size)
            yield from parts
            buffer, num_chars = [rest], len(rest)
            # If no cut was found, wait for much more text before searching again.
            min_chars = (
                size if num_chars <= size else min(2 * num_chars, MAX_GROWTH * size)
            )
    if num_chars:
        yield from split_long("".join(buffer), size)


def make_documents(text: str, name: str, label: str, span: int = 0) -> list[Document]:
    """One document, in several parts if it is long; an empty text is one part."""
    parts = split_long(text, PART_CHARS)
    return [Document(part, name, label, i == 0, span) for i, part in enumerate(parts)]


def cut_documents(
    blocks: Iterable[str], rule: str, name: str, label: str, span: int = 0
) -> Iterator[Document]:
    """Splits a plain text file into documents.

    Args:
      blocks: the file's characters.
      rule: `SourceSpec.documents`.
      name: the file's name; unless the rule is "file", the number of a document's first
        line is added, "name:1".
    """
    marked = mark_documents(blocks, rule)
    for number, group in itertools.groupby(marked, itemgetter(0)):
        own_name = f"{name}:{number}" if number else name
        is_start = True
        for part in cut_parts(map(itemgetter(1), group), PART_CHARS):
            yield Document(part, own_name, label, is_start, span)
            is_start = False


def mark_documents(blocks: Iterable[str], rule: str) -> Iterator[tuple[int, str]]:
    """Pieces of text with the number of their document's first line (file: 0)."""
    if rule == "file":
        return ((0, block) for block in blocks)
    return mark_lines(read_lines(blocks, PART_CHARS), rule)


def mark_lines(
    lines: Iterable[tuple[str, bool]], rule: str
) -> Iterator[tuple[int, str]]:
    """As `mark_documents`, of the lines of `read_lines`, for any rule but "file".

    A line is marked before the next one is read.
    """
    pattern = check_rule(rule)
    if rule == "line":
        return _mark_lines(lines)
    if pattern is None:
        return _mark_paragraphs(lines)
    return _mark_starts(lines, pattern, rule.startswith("heading:"))


def check_rule(rule: str) -> re.Pattern | None:
    """The pattern of "start:REGEX" and "heading:REGEX"; None for the other rules."""
    if rule in ("file", "line", "paragraph"):
        return None
    kind, _, pattern = rule.partition(":")
    if kind not in ("start", "heading") or not pattern:
        raise DataError(
            f"data.documents={rule!r}: must be 'file', 'line', 'paragraph', "
            "'start:REGEX' or 'heading:REGEX'"
        )
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise DataError(
            f"data.documents={rule!r}: not a regular expression: {error}"
        ) from error


def _is_blank(line: str) -> bool:
    # Only the first piece of a longer line is known here, so it counts as not blank.
    return len(line) <= PART_CHARS and line.isspace()


def _strip_newline(line: str) -> str:
    return line[:-2] if line.endswith("\r\n") else line.removesuffix("\n")


def _mark_lines(lines: Iterable[tuple[str, bool]]) -> Iterator[tuple[int, str]]:
    number, is_blank = 0, False
    for line, begins in lines:
        if begins:
            number += 1
            is_blank = _is_blank(line)
        if not is_blank:
            yield number, _strip_newline(line)


def _mark_paragraphs(lines: Iterable[tuple[str, bool]]) -> Iterator[tuple[int, str]]:
    number, start, newline = 0, 0, ""
    for line, begins in lines:
        if begins:
            number += 1
            if _is_blank(line):
                start = 0
            elif not start:
                start, newline = number, ""
        if start:
            body = _strip_newline(line)
            yield start, newline + body
            newline = line[len(body) :]


def _mark_starts(
    lines: Iterable[tuple[str, bool]], pattern: re.Pattern, after_blank: bool
) -> Iterator[tuple[int, str]]:
    number, start, has_text, may_start = 0, 1, False, False
    for line, begins in lines:
        if begins:
            number += 1
            # Blank lines at the top belong to the first document. Only the part of a
            # line that is always in its first piece is matched.
            if may_start and pattern.search(_strip_newline(line)[:PART_CHARS]):
                start = number
            is_blank = _is_blank(line)
        has_text = has_text or not line.isspace()
        may_start = has_text and (is_blank or not after_blank)
        yield start, line
