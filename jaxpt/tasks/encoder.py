"""Texts of a task to token ids, framed as the network's family frames them.

    one text     before  A  after                 [CLS] A [SEP]
    two texts    before  A  between  B  after     [CLS] A [SEP] B [SEP]

Host side, NumPy only. Special tokens in a text are plain text, as in pretraining.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from jaxpt.errors import UserError
from jaxpt.tasks.writing import Writing
from jaxpt.text.tokens.encoding import Tokenizer

Ids = Int[np.ndarray, "n"]


@dataclasses.dataclass(frozen=True)
class Frame:
    """The special ids around one text or two, and the segment type of the second.

    >>> frame = Frame((1,), (2,), (3,), second_type=1)
    >>> frame.num_special(is_pair=True)
    3
    """

    before: tuple[int, ...] = ()
    between: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    second_type: int = 0

    def num_special(self, is_pair: bool) -> int:
        """How many special ids stand in a row."""
        return len(self.before) + len(self.after) + len(self.between) * is_pair


@dataclasses.dataclass(frozen=True)
class Framed:
    """A row of ids, and where each came from.

    Attributes:
      tokens: int32 [n].
      type_ids: int32 [n], the segment types.
      sources: int8 [n]; 0 is a special id, 1 the first text, 2 the second.
      places: int32 [n], the place in its text's ids; -1 at special ids.
    """

    tokens: Ids
    type_ids: Ids
    sources: Int[np.ndarray, "n"]
    places: Ids


@dataclasses.dataclass(frozen=True)
class Words:
    """The ids of a list of words, and the word that each id is of.

    Attributes:
      ids: int32 [n].
      word_ids: int32 [n], rising.
    """

    ids: Ids
    word_ids: Ids


@dataclasses.dataclass(frozen=True)
class TextEncoder:
    """A tokenizer with the frame of a network, and the most tokens of a row.

    Attributes:
      max_len: the most tokens of a row, special ids included.
      pad: an id for padding, which no network looks at.
      writing: how the network writes an answer; None where it writes none.
    """

    tokenizer: Tokenizer
    frame: Frame
    max_len: int
    pad: int = 0
    writing: Writing | None = None

    def __post_init__(self):
        least = self.frame.num_special(is_pair=True) + 2
        if self.max_len < least:
            raise UserError(
                f"task.max_len={self.max_len}: must be at least {least}, for two texts "
                f"of one token and the special tokens around them"
            )

    def ids(self, text: str) -> Ids:
        """The ids of a text, nothing around them."""
        return self.tokenizer.encode(text)

    def answer(self, ids: Ids) -> str:
        """The text of an answer that was written."""
        if self.writing is not None:
            ids = self.writing.cut_answer(ids)
        return self.tokenizer.decode(ids).strip()

    def words(self, words: Sequence[str]) -> Words:
        """The ids of words that are given apart, as of a text with spaces between.

        A word of no ids (a character that the vocabulary strips) has none.
        """
        kind = self.tokenizer.kind
        # A WordPiece and a Unigram tokenizer begin every text as a word by itself.
        space = "" if kind in ("wordpiece", "unigram") else " "
        parts = [
            self.ids(word if i == 0 else space + word) for i, word in enumerate(words)
        ]
        counts = [len(part) for part in parts]
        empty = np.zeros(0, np.int32)
        ids = np.concatenate([empty, *parts]).astype(np.int32)
        return Words(ids, np.repeat(np.arange(len(words)), counts).astype(np.int32))

    def spans(self, text: str) -> tuple[Ids, Ids, Ids]:
        """The ids of a text, and where each begins and ends in it, in characters.

        Spaces before a token are not part of it.
        """
        ids, sizes = self.tokenizer.encode_sized(text)
        data = text.encode("utf-8", "surrogatepass")
        # Of each byte, the character that it is of; of the end, the text's length.
        starts = [byte & 0xC0 != 0x80 for byte in data]
        char_of = np.append(np.cumsum(starts) - 1, len(text)).astype(np.int32)
        ends = np.minimum(np.cumsum(sizes), len(data))
        begins = np.concatenate([[0], ends[:-1]]).astype(np.int64)
        # A character that is cut belongs to both tokens.
        stops = np.where(ends > 0, char_of[np.maximum(ends - 1, 0)] + 1, 0)
        first = char_of[begins]
        for i, (start, stop) in enumerate(zip(first, stops, strict=True)):
            piece = text[start:stop]
            first[i] = start + len(piece) - len(piece.lstrip())
        return ids, np.minimum(first, stops).astype(np.int32), stops.astype(np.int32)

    def row(self, first: Ids, second: Ids | None = None) -> Framed:
        """A row of one text or two, cut to `max_len`.

        Of two texts the longer one loses its last token, until both fit
        (google-research/bert: run_classifier.py, `_truncate_seq_pair`).
        """
        frame, is_pair = self.frame, second is not None
        room = self.max_len - frame.num_special(is_pair)
        if second is None:
            parts = [frame.before, first[:room], frame.after]
            sources, types = [0, 1, 0], [0, 0, 0]
        else:
            one, two = cut_pair(len(first), len(second), room)
            parts = [frame.before, first[:one], frame.between, second[:two]]
            parts.append(frame.after)
            kind = frame.second_type
            sources, types = [0, 1, 0, 2, 0], [0, 0, 0, kind, kind]
        sizes = [len(part) for part in parts]
        if not sum(sizes):
            raise UserError(
                "a text of a task is empty: this network's rows have no special "
                "tokens, and so must have some text"
            )
        places = [
            np.arange(size) if source else np.full(size, -1)
            for size, source in zip(sizes, sources, strict=True)
        ]
        return Framed(
            np.concatenate([np.asarray(part, np.int32) for part in parts]),
            np.repeat(types, sizes).astype(np.int32),
            np.repeat(sources, sizes).astype(np.int8),
            np.concatenate(places).astype(np.int32),
        )

    def texts(self, first: str, second: str | None = None) -> Framed:
        """`row` of the ids of texts."""
        return self.row(self.ids(first), None if second is None else self.ids(second))

    def rows(
        self,
        examples: Sequence[Any],
        targets: Sequence[np.ndarray],
        both_orders: bool = False,
    ) -> list[dict[str, np.ndarray]]:
        """The rows of examples of one text, or of a pair, each with its target.

        Args:
          examples: with `text` and `pair`, which is None where there is one text.
          both_orders: a pair is also read the other way round, in a row of its own.
        """
        found = []
        for number, example in enumerate(examples):
            orders = [(example.text, example.pair)]
            if both_orders and example.pair is not None:
                orders.append((example.pair, example.text))
            for first, second in orders:
                framed = self.texts(first, second)
                found.append(
                    {
                        "tokens": framed.tokens,
                        "type_ids": framed.type_ids,
                        "targets": targets[number],
                        "example": np.asarray(number, np.int32),
                    }
                )
        return found


def cut_pair(first: int, second: int, room: int) -> tuple[int, int]:
    """How much of two texts is kept: the longer one loses a token, the second of two.

    >>> cut_pair(7, 3, 8), cut_pair(9, 9, 9)
    ((5, 3), (5, 4))
    """
    while first + second > room:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second
