"""Encodes the texts of a task to token ids, with the special tokens of the network.

    one text     before  A  after                 [CLS] A [SEP]
    two texts    before  A  between  B  after     [CLS] A [SEP] B [SEP]

NumPy, on the host. Special tokens inside a text are plain text, as in pretraining.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from jaxpt.errors import ConfigError, DataError
from jaxpt.tasks.writing import Writing
from jaxpt.text.tokens.encoding import Tokenizer

Ids = Int[np.ndarray, "n"]


@dataclasses.dataclass(frozen=True)
class Frame:
    """The special tokens around one text or two, and the segment type of the second.

    >>> frame = Frame((1,), (2,), (3,), second_type=1)
    >>> frame.num_special(is_pair=True)
    3
    """

    before: tuple[int, ...] = ()
    between: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    second_type: int = 0

    def num_special(self, is_pair: bool) -> int:
        """The number of special tokens in a row."""
        return len(self.before) + len(self.after) + len(self.between) * is_pair


@dataclasses.dataclass(frozen=True)
class Framed:
    """A row of ids, and the origin of each.

    Attributes:
      tokens: int32 [n].
      type_ids: int32 [n], the segment types.
      sources: int8 [n]; 0 is a special token, 1 the first text, 2 the second.
      places: int32 [n], the position in its text's ids; -1 at special tokens.
    """

    tokens: Ids
    type_ids: Ids
    sources: Int[np.ndarray, "n"]
    places: Ids

    def row(self, example: int, **arrays: np.ndarray) -> dict[str, np.ndarray]:
        """The `Row` of a task, with the number of its example and further arrays."""
        row = {"tokens": self.tokens, "type_ids": self.type_ids} | arrays
        return row | {"example": np.array(example, np.int32)}


@dataclasses.dataclass(frozen=True)
class Words:
    """The ids of a list of words, and the number of the word of each id.

    Attributes:
      ids: int32 [n].
      word_ids: int32 [n], ascending.
    """

    ids: Ids
    word_ids: Ids


@dataclasses.dataclass(frozen=True)
class TextEncoder:
    """A tokenizer with the special tokens of a network, and the length of a row.

    Attributes:
      max_len: the maximum number of tokens in a row, special tokens included.
      pad: the id of padding, which is never attended to.
      writing: how the network generates an answer; None if it cannot.
    """

    tokenizer: Tokenizer
    frame: Frame
    max_len: int
    pad: int = 0
    writing: Writing | None = None

    def __post_init__(self) -> None:
        least = self.frame.num_special(is_pair=True) + 2
        if self.max_len < least:
            raise ConfigError(
                f"task.max_len={self.max_len}: must be at least {least}, for two texts "
                f"of one token and the special tokens around them"
            )

    def ids(self, text: str) -> Ids:
        """The ids of a text, without special tokens."""
        return self.tokenizer.encode(text)

    def answer(self, ids: Ids) -> str:
        """The text of a generated answer."""
        if self.writing is not None:
            ids = self.writing.cut_answer(ids)
        return self.tokenizer.decode(ids).strip()

    def words(self, words: Sequence[str]) -> Words:
        """The ids of a list of words, as in a text with spaces between them.

        A word may have no ids (a character that the vocabulary strips).
        """
        kind = self.tokenizer.kind
        # WordPiece and Unigram tokenizers start every text as a new word.
        space = "" if kind in ("wordpiece", "unigram") else " "
        parts = [
            self.ids(word if i == 0 else space + word) for i, word in enumerate(words)
        ]
        counts = [len(part) for part in parts]
        empty = np.zeros(0, np.int32)
        ids = np.concatenate([empty, *parts]).astype(np.int32)
        return Words(ids, np.repeat(np.arange(len(words)), counts).astype(np.int32))

    def spans(self, text: str) -> tuple[Ids, Ids, Ids]:
        """The ids of a text, and the start and end of each in characters.

        Spaces before a token are not part of it.
        """
        ids, sizes = self.tokenizer.encode_sized(text)
        data = text.encode("utf-8", "surrogatepass")
        # The character of each byte; at the end, the text's length.
        starts = [byte & 0xC0 != 0x80 for byte in data]
        char_of = np.append(np.cumsum(starts) - 1, len(text)).astype(np.int32)
        ends = np.minimum(np.cumsum(sizes), len(data))
        begins = np.concatenate([[0], ends[:-1]]).astype(np.int64)
        # A character that is split belongs to both tokens.
        stops = np.where(ends > 0, char_of[np.maximum(ends - 1, 0)] + 1, 0)
        first = char_of[begins]
        for i, (start, stop) in enumerate(zip(first, stops, strict=True)):
            piece = text[start:stop]
            first[i] = start + len(piece) - len(piece.lstrip())
        return ids, np.minimum(first, stops).astype(np.int32), stops.astype(np.int32)

    def row(self, first: Ids, second: Ids | None = None) -> Framed:
        """A row of one text or two, truncated to `max_len`.

        The longer of two texts loses its last token until both fit
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
            raise DataError(
                "a text of a task is empty: this network adds no special tokens, so "
                "the text must not be empty"
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
        """The rows of examples of one text or a pair, each with its target.

        Args:
          examples: with `text` and `pair`, which is None for one text.
          both_orders: adds a row with the texts of a pair swapped.
        """
        rows = []
        for number, example in enumerate(examples):
            orders = [(example.text, example.pair)]
            if both_orders and example.pair is not None:
                orders.append((example.pair, example.text))
            for first, second in orders:
                framed = self.texts(first, second)
                rows.append(framed.row(number, targets=targets[number]))
        return rows


def cut_pair(first: int, second: int, room: int) -> tuple[int, int]:
    """The lengths of two truncated texts: the longer one loses a token, or the second.

    >>> cut_pair(7, 3, 8), cut_pair(9, 9, 9)
    ((5, 3), (5, 4))
    """
    while first + second > room:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second
