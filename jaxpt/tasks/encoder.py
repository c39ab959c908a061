"""Encodes the texts of a task to token ids, with the special tokens of the network.

    one text     before  A  after                 [CLS] A [SEP]
    two texts    before  A  between  B  after     [CLS] A [SEP] B [SEP]

NumPy, on the host. Special tokens inside a text are plain text, as in pretraining.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from jaxpt.errors import ConfigError, DataError
from jaxpt.tasks.writing import Writing
from jaxpt.text.tokens.encoding import Tokenizer
from jaxpt.text_form import TextForm

Ids = Int[np.ndarray, "n"]


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
      is_first: bool [n], the first token of each word; a space alone is not one.
    """

    ids: Ids
    word_ids: Ids
    is_first: Bool[np.ndarray, "n"]


@dataclasses.dataclass(frozen=True)
class TextEncoder:
    """A tokenizer with the special tokens of a network, and the length of a row.

    Attributes:
      form: with the special tokens around one text and two.
      max_len: the maximum number of tokens in a row, special tokens included.
      pad: the id of padding, which is never attended to.
      writing: how the network generates an answer; None if it cannot.
    """

    tokenizer: Tokenizer
    form: TextForm
    max_len: int
    pad: int = 0
    writing: Writing | None = None

    def __post_init__(self) -> None:
        least = self.form.num_special(is_pair=True) + 2
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
            ids = self.writing.form.cut_answer(ids)
        return self.tokenizer.decode(ids).strip()

    def words(self, words: Sequence[str]) -> Words:
        """The ids of the words joined by spaces, and the word of each.

        The word of a token is that of its first character that is not a space, so a
        space alone belongs to the word after it. A word may have no ids: its characters
        are stripped by the vocabulary, or are in a token of the word before it.
        """
        text = " ".join(words)
        ids, sizes = self.tokenizer.encode_sized(text)
        data = text.encode("utf-8", "surrogatepass")
        lengths = [len(word.encode("utf-8", "surrogatepass")) for word in words]
        # The word of each byte; a space's is the next one. The end has the last word.
        numbers = np.arange(len(words))
        word_of = np.repeat(numbers, np.array(lengths, int) + (numbers > 0))
        word_of = np.append(word_of, max(len(words) - 1, 0))
        ends = np.minimum(np.cumsum(sizes), len(data)).astype(np.int64)
        begins = np.append(0, ends[:-1])[: len(ids)]
        # Text that the vocabulary strips precedes the token that it is counted for.
        pieces = [self.tokenizer.vocab.pieces[i].lstrip() for i in ids.tolist()]
        widths = np.array([max(len(piece), 1) for piece in pieces], int)
        starts = np.where(ends > begins, np.maximum(begins, ends - widths), begins)
        word_ids = np.maximum.accumulate(word_of[starts]).astype(np.int32)
        is_first = _mark_first(word_ids, np.array([bool(piece) for piece in pieces]))
        return Words(ids, word_ids, is_first)

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
        form, is_pair = self.form, second is not None
        room = self.max_len - form.num_special(is_pair)
        if second is None:
            parts = [form.opening, first[:room], form.after]
            sources, types = [0, 1, 0], [0, 0, 0]
        else:
            one, two = cut_pair(len(first), len(second), room)
            parts = [form.opening, first[:one], form.separator, second[:two]]
            parts.append(form.after)
            kind = form.second_type
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


def _mark_first(word_ids: Ids, is_text: Bool[np.ndarray, "n"]) -> Bool[np.ndarray, "n"]:
    """The first token of each word that is not only a space; else its first token.

    Tokenizers of characters, and some of SentencePiece's form, have a token for the
    space before a word.

    >>> _mark_first(np.array([0, 0, 1, 1]), np.array([True, True, False, True]))
    array([ True, False, False,  True])
    """
    is_first = np.zeros(len(word_ids), bool)
    texts = np.flatnonzero(is_text)
    found, places = np.unique(word_ids[texts], return_index=True)
    is_first[texts[places]] = True
    words, places = np.unique(word_ids, return_index=True)
    is_first[places[~np.isin(words, found)]] = True
    return is_first


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
