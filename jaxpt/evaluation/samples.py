"""Samples of model outputs on passages: hidden tokens, continuations, detected fakes.

A sample is a tuple of pieces in the order of the text, each with a kind:

    given    input of the model             the sta
    right    correct output for hidden text [t]
    wrong    wrong output, and the truth    [a≠e]
    written  generated continuation         >> of the union
    truth    true continuation              (text: of war)
    caught   a fake that was detected       [x≠t]
    missed   a fake that was not detected   (x≠t)
    alarm    a false alarm                  !t!
"""

import difflib
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from jaxpt.text.tokens.tokenizer import Tokenizer

EVERY = 7  # one token in seven is hidden: 14 %, similar to BERT's training
SPAN = 3  # tokens of a hidden span, T5's mean
LINE = 160  # the maximum number of characters of a sample in one line


class Piece(NamedTuple):
    """A part of a sample.

    Attributes:
      kind: as above.
      truth: the original text, if the text is wrong or fake.
    """

    text: str
    kind: str
    truth: str = ""


Sample = tuple[Piece, ...]
# A part of a sample before decoding: ids, kind, true ids.
Part = tuple[Iterable[int], str, Iterable[int]]


def hide_tokens(is_special: Bool[np.ndarray, "T"]) -> Bool[np.ndarray, "T"]:
    """The hidden tokens of a passage: every seventh that is not special.

    >>> np.flatnonzero(hide_tokens(np.arange(20) == 10)).tolist()
    [3, 17]
    """
    hidden = np.zeros(len(is_special), bool)
    hidden[EVERY // 2 : -1 : EVERY] = True
    return hidden & ~is_special


def hide_spans(is_special: Bool[np.ndarray, "T"], most: int) -> list[tuple[int, int]]:
    """(start, stop) of the hidden spans of a passage, evenly spread.

    Args:
      most: the maximum number; spans with a special token are dropped.

    >>> hide_spans(np.zeros(19, bool), 3), hide_spans(np.arange(19) == 9, 3)
    ([(3, 6), (8, 11), (13, 16)], [(3, 6), (13, 16)])
    """
    length = len(is_special)
    num = max(min(most, (length - 1) // (2 * SPAN)), 0)
    middles = (np.arange(num) + 1) * length // (num + 1)
    starts = [int(middle) - SPAN // 2 for middle in middles]
    return [
        (start, start + SPAN)
        for start in starts
        if not is_special[start : start + SPAN].any()
    ]


def split_answer(
    ids: Int[np.ndarray, "L"], sentinels: Iterable[int], ends: Iterable[int]
) -> dict[int, list[int]]:
    """The tokens after each sentinel of an answer, up to its end.

    >>> split_answer(np.array([90, 5, 6, 91, 7, 1, 8]), [90, 91], [1])
    {90: [5, 6], 91: [7]}
    """
    marks, stops = set(sentinels), set(ends)
    spans: dict[int, list[int]] = {}
    span: list[int] = []
    for id_ in map(int, ids):
        if id_ in stops:
            break
        if id_ in marks:
            span = spans.setdefault(id_, [])
        else:
            span.append(id_)
    return spans


def align(
    truth: Int[np.ndarray, "T"],
    written: Int[np.ndarray, "L"],
    is_hidden: Bool[np.ndarray, "T"],
) -> list[Part]:
    """Aligns a reconstructed text with the original.

    Returns:
      parts: "given" if copied, "right" if hidden and restored, "wrong" if different.

    >>> truth, hidden = np.array([5, 6, 7, 8]), np.array([0, 1, 1, 0]) > 0
    >>> align(truth, np.array([5, 6, 9, 8]), hidden)
    [([5], 'given', []), ([6], 'right', []), ([9], 'wrong', [7]), ([8], 'given', [])]
    """
    parts: list[Part] = []
    old, new = truth.tolist(), written.tolist()
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for kind, start, stop, first, last in matcher.get_opcodes():
        if kind != "equal":
            parts.append((new[first:last], "wrong", old[start:stop]))
            continue
        for i in range(start, stop):
            parts.append(([old[i]], "right" if is_hidden[i] else "given", []))
    return parts


def spell(tokenizer: Tokenizer, parts: Iterable[Part]) -> Sample:
    """Decodes the parts; adjacent parts that are given, right or written are joined.

    Each piece is the text that its ids add to the preceding ids, because the decoding
    of a token depends on its context.
    """
    pieces: list[Piece] = []
    ids: list[int] = []
    for part_ids, kind, true in parts:
        before = len(tokenizer.decode(np.array(ids, np.int32)))
        truth = tokenizer.decode(np.array([*ids, *true], np.int32))[before:]
        ids = [*ids, *part_ids]
        text = tokenizer.decode(np.array(ids, np.int32))[before:]
        is_same = pieces and pieces[-1].kind == kind and not truth
        if is_same and kind in ("given", "right", "written"):
            pieces[-1] = Piece(pieces[-1].text + text, kind)
        else:
            pieces.append(Piece(text, kind, truth))
    return tuple(pieces)


def show_blank(text: str) -> str:
    """Replaces a text of spaces only by visible marks."""
    return text if text.strip() else text.replace(" ", "␣").replace("\n", "⏎")


def write_line(sample: Iterable[Piece]) -> str:
    """A sample as one short line, with the marks of its kinds."""
    marks = {
        "given": "{0}",
        "right": "[{0}]",
        "wrong": "[{0}≠{1}]",
        "written": " >> {0}",
        "truth": " (text: {0})",
        "caught": "[{0}≠{1}]",
        "missed": "({0}≠{1})",
        "alarm": "!{0}!",
    }
    pieces = [
        marks[p.kind].format(
            p.text if p.kind == "given" else show_blank(p.text), show_blank(p.truth)
        )
        for p in sample
    ]
    text = " ".join("".join(pieces).split())
    text = text.encode(errors="replace").decode()  # bytes that are not UTF-8
    return text if len(text) <= LINE else text[: LINE - 1] + "…"
