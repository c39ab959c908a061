"""Splits text into sentences without changing its token ids.

Cuts by line, and after . ! ? and a space, are before whitespace that follows other
characters. There every tokenizer begins a new word, so encoding sentence by sentence
gives the ids of the whole text. The marks of other scripts need no space after them;
`join_unsafe` tells where a cut may be inside a word of a tokenizer.
"""

import re
from collections.abc import Sequence

SENTENCES = ("", "lines", "punctuation")
_SPACES = " \t\n\r"
_CLOSERS = "\"'”’»)\\]}›」』）】》〉］｝〕〗〙〛﹂﹄｣"
# Unicode's Sentence_Terminal beyond ASCII, with the Tibetan shads, the Greek question
# mark and vertical forms. They end a sentence with or without a space after them.
_MARKS = (
    "\u037e\u0589\u061d-\u061f\u06d4\u0700-\u0702\u07f9\u0837\u0839\u083d\u083e\u0964\u0965"
    "\u0f0d\u0f0e\u104b\u1362\u1367\u1368\u166e\u1735\u1736\u17d4\u17d5\u1803\u1809\u1944\u1945"
    "\u1aa8-\u1aab\u1b5a\u1b5b\u1b5e\u1b5f\u1b7d\u1b7e\u1c3b\u1c3c\u1c7e\u1c7f\u203c\u203d"
    "\u2047-\u2049\u2cf9-\u2cfb\u2e2e\u2e3c\u2e53\u2e54\u3002\ua4ff\ua60e\ua60f\ua6f3\ua6f7"
    "\ua876\ua877\ua8ce\ua8cf\ua92f\ua9c8\ua9c9\uaa5d-\uaa5f\uaaf0\uaaf1\uabeb\ufe12\ufe15\ufe16"
    "\ufe52\ufe56\ufe57\uff01\uff0e\uff1f\uff61\U00011047\U00011048\U000110be-\U000110c1"
    "\U00011141-\U00011143\U000111c5\U000111c6\U000111cd\U000111de\U000111df"
)
# Chinese and Japanese, in which . ! ? need no space either.
_CJK = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
_CJK += "\U00020000-\U0003ffff"
# What continues a sentence after a quoted one: a comma, or another mark.
_CONTINUES = rf"[,;:、，；：،؛.!?{_MARKS}]"
_LINE = re.compile(r"\n[ \t\n\r]*")
_LINE_BEGIN = re.compile(r"[ \t\r]*\n")
# A match begins at the first mark of a run, or a run of n dots would take n attempts.
_STOP = re.compile(rf"(?<![.!?])[.!?]++[{_CLOSERS}]*+(?=[{_SPACES}])")
_ANY_STOP = re.compile(
    rf"(?<![.!?{_MARKS}])(?:"
    rf"[.!?]++[{_CLOSERS}]*+(?=[{_SPACES}])"
    rf"|(?<=[{_CJK}])[.!?]++[{_CLOSERS}]*+(?=[{_CJK}])"
    rf"|(?=[.!?]*+[{_MARKS}])[.!?{_MARKS}]++[{_CLOSERS}]*+"
    rf"(?!{_CONTINUES})(?<!\uff0e(?=[0-9\uff10-\uff19]))"
    rf")"
)
_TAIL_CHARS = 64


def cut_sentences(text: str, mode: str) -> list[str]:
    r"""Splits a text into sentences that concatenate to it; [] for "".

    Args:
      mode: "lines" cuts before each line break; "punctuation" after . ! ? before a
        space, or between Chinese or Japanese characters, and after the marks of other
        scripts (。！？ । ۔ ؟ ։ ። and all of Unicode's Sentence_Terminal), with any
        closing quotes and brackets.

    >>> cut_sentences('He said "No!" Why?\nWell.', "punctuation")
    ['He said "No!"', ' Why?', '\nWell.']
    >>> cut_sentences("他说：“好。”我们走吧！", "punctuation")
    ['他说：“好。”', '我们走吧！']
    >>> cut_sentences("One. Two\n\nThree", "lines")
    ['One. Two', '\n\nThree']
    """
    cuts = _find_lines(text) if mode == "lines" else _find_stops(text)
    borders = [0, *cuts, len(text)]
    pairs = zip(borders[:-1], borders[1:], strict=True)
    return [text[start:stop] for start, stop in pairs if stop > start]


def begins_sentence(before: str, after: str, mode: str) -> bool:
    """Whether `cut_sentences` of the whole text would cut between two parts."""
    if not before or before[-1].isspace() or not after:
        return False
    if mode == "lines":
        return bool(_LINE_BEGIN.match(after))
    tail = before[-_TAIL_CHARS:]
    return len(tail) in _find_stops(tail + after[:_TAIL_CHARS])


def join_unsafe(sentences: Sequence[str]) -> list[list[str]]:
    """Groups sentences between which a tokenizer may have a token across the cut.

    >>> join_unsafe(["是。", "不。", " 好。"])
    [['是。', '不。'], [' 好。']]
    """
    groups: list[list[str]] = []
    for sentence in sentences:
        if groups and sentence[0] not in _SPACES:
            groups[-1].append(sentence)
        else:
            groups.append([sentence])
    return groups


def _find_stops(text: str) -> list[int]:
    stop = _STOP if text.isascii() else _ANY_STOP
    return [match.end() for match in stop.finditer(text)]


def _find_lines(text: str) -> list[int]:
    cuts = []
    for match in _LINE.finditer(text):
        start = match.start()
        while start and text[start - 1] in " \t\r":
            start -= 1
        if start and not text[start - 1].isspace():
            cuts.append(start)
    return cuts
