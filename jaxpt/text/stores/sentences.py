"""Splits text into sentences without changing its token ids.

Cuts are before whitespace that follows other characters. There every tokenizer begins a
new word, so encoding sentence by sentence gives the ids of the whole text.
"""

import re

SENTENCES = ("", "lines", "punctuation")
_CLOSERS = "\"'”’»)\\]}"
_LINE = re.compile(r"\n[ \t\n\r]*")
_LINE_BEGIN = re.compile(r"[ \t\r]*\n")
# A match begins at the first mark of a run, or a run of n dots would take n attempts.
_STOP = re.compile(rf"(?<![.!?])[.!?]++[{_CLOSERS}]*+(?=[ \t\n\r])")
_STOP_END = re.compile(rf"[.!?][{_CLOSERS}]*\Z")
_TAIL_CHARS = 64


def cut_sentences(text: str, mode: str) -> list[str]:
    r"""Splits a text into sentences that concatenate to it; [] for "".

    Args:
      mode: "lines" cuts before each line break, "punctuation" after . ! ? and any
        closing quotes and brackets.

    >>> cut_sentences('He said "No!" Why?\nWell.', "punctuation")
    ['He said "No!"', ' Why?', '\nWell.']
    >>> cut_sentences("One. Two\n\nThree", "lines")
    ['One. Two', '\n\nThree']
    """
    cuts = _find_lines(text) if mode == "lines" else _find_stops(text)
    borders = [0, *cuts, len(text)]
    pairs = zip(borders[:-1], borders[1:], strict=True)
    return [text[start:stop] for start, stop in pairs if stop > start]


def begins_sentence(before: str, after: str, mode: str) -> bool:
    """Whether `cut_sentences` of the whole text would cut between two parts."""
    if not before or before[-1].isspace():
        return False
    if mode == "lines":
        return bool(_LINE_BEGIN.match(after))
    is_word_begin = after[:1] in (" ", "\t", "\n", "\r")
    return is_word_begin and bool(_STOP_END.search(before[-_TAIL_CHARS:]))


def _find_stops(text: str) -> list[int]:
    return [match.end() for match in _STOP.finditer(text)]


def _find_lines(text: str) -> list[int]:
    cuts = []
    for match in _LINE.finditer(text):
        start = match.start()
        while start and text[start - 1] in " \t\r":
            start -= 1
        if start and not text[start - 1].isspace():
            cuts.append(start)
    return cuts
