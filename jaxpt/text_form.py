"""TextForm: the special tokens around a text, and how gaps and answers are written.

A and B are tokens of text, X what a decoder writes.

    a text              before A after
    two texts           before A between B after
    states, a gap       before mode A gap B after     decoder: start gap X gap_ends
    a continuation      lead A mark after             decoder: start mark X
    read from the left  left A
    a generated answer                                decoder: start first X last

An objective declares its part (`ObjectiveSpec.text_form`), so do the rows of training
(`RowsSpec.text_form`) and an imported model (`Vocab.text_form`). `Task.text_form`
(`jaxpt.runs.task`) joins them: it is how a text is written for a run's network.
"""

import dataclasses
import json
from typing import Any

import numpy as np

from jaxpt.errors import DataError

Ids = tuple[int, ...]
Tokens = Any  # ids [..., T], of NumPy or JAX
# What an imported model stores: the ids around its texts and in its generation.
STORED = ("before", "after", "bos", "start", "first", "last", "ends")


@dataclasses.dataclass(frozen=True)
class TextForm:
    """How texts, pairs of texts, gaps, continuations and answers are written; hashable.

    Attributes:
      before, after: ids around a text.
      mode: ids between `before` and a text whose states or gaps are read (UL2's mode).
      between: ids between two texts; None is `after`, as in BERT.
      second_type: the segment type of the second text and of the ids after it.

      gap: ids in place of missing tokens, such as a [MASK] or a sentinel; () if no
        input shows that something is missing.
      reads_gap: False if the network whose states are read has never seen the gap
        (ELECTRA's discriminator).
      gap_ends: ids of which one ends the decoder's answer for a gap; () if a decoder
        does not write the gap alone.
      rewrites: a decoder writes the whole text, not only what is missing (BART).
      block_size: tokens of the blocks in which a text is masked, each after the clean
        ones before it (block diffusion); 0 if the whole text is one block.
      lead, mark: ids before a text that is to be continued, and in place of its
        continuation. A decoder that does not rewrite begins with the mark. Of a run,
        `lead` includes `before`.
      mask_note: the attention mask of the only stack, in words, for users of an
        exported causal model; "" if it is causal.

      bos: the first id of a text that is scored, or generated without a prompt.
      start: a decoder's first input; None means [PAD], as in T5.
      first, last: a decoder's forced first output, and its forced output at the last
        position (`forced_bos_token_id`, `forced_eos_token_id` of transformers).
      ends: ids that end generation.

      left, right: ids before a text of which only the past is read, and after one that
        is read backward; () if the run has none.
      is_word_start: bool [V], whether a word begins with an id; None if that is not
        known.
      max_len: the most positions of a stack; 0 is any number.
    """

    before: Ids = ()
    after: Ids = ()
    _: dataclasses.KW_ONLY
    mode: Ids = ()
    between: Ids | None = None
    second_type: int = 0

    gap: Ids = ()
    reads_gap: bool = True
    gap_ends: Ids = ()
    rewrites: bool = False
    block_size: int = 0
    lead: Ids = ()
    mark: Ids = ()
    mask_note: str = ""

    bos: int | None = None
    start: int | None = None
    first: int | None = None
    last: int | None = None
    ends: Ids = ()

    left: Ids = ()
    right: Ids = ()
    is_word_start: np.ndarray | None = dataclasses.field(
        default=None, compare=False, repr=False
    )
    max_len: int = 0

    @property
    def opening(self) -> Ids:
        """The ids before a text whose states or gaps are read: `before` and `mode`."""
        return self.before + self.mode

    @property
    def separator(self) -> Ids:
        """The ids between two texts."""
        return self.after if self.between is None else self.between

    @property
    def pair(self) -> tuple[Ids, Ids, Ids, int]:
        """The ids before, between and after two texts, and the type of the second."""
        return self.before, self.separator, self.after, self.second_type

    @property
    def shown_gap(self) -> Ids:
        """The gap as the network whose states are read sees it."""
        return self.gap if self.reads_gap else ()

    def num_special(self, is_pair: bool = False) -> int:
        """The number of ids that `wrap_read` adds; `is_pair` counts the separator, too.

        >>> TextForm((1,), (2,), mode=(5,), between=(3, 4)).num_special(is_pair=True)
        5
        """
        between = self.separator if is_pair else ()
        return len(self.opening) + len(between) + len(self.after)

    def wrap(self, tokens: Tokens) -> Tokens:
        """A text with `before` and `after` around it, in its dtype.

        >>> TextForm(before=(1,), after=(2, 3)).wrap(np.array([7, 8])).tolist()
        [1, 7, 8, 2, 3]
        """
        return _put_around(self.before, tokens, self.after)

    def wrap_read(self, tokens: Tokens) -> Tokens:
        """A text whose states or gaps are read: `wrap`, with the mode before the text.

        >>> TextForm(before=(1,), mode=(5,)).wrap_read(np.array([[7], [8]])).tolist()
        [[1, 5, 7], [1, 5, 8]]
        """
        return _put_around(self.opening, tokens, self.after)

    def words(self, tokens: np.ndarray) -> np.ndarray:
        """The number of each token's word [T]; without `is_word_start` each is a word.

        The first token always begins a word.
        """
        if self.is_word_start is None:
            return np.arange(len(tokens))
        return np.cumsum(self.is_word_start[tokens])

    def answer_before(self, left: Tokens) -> Tokens | None:
        """The decoder's inputs [B, S] up to the missing token.

        None if it writes no answer.

        Args:
          left: the text before the gap [B, C].

        >>> form = TextForm(gap=(9,), gap_ends=(1,), start=0)
        >>> form.answer_before(np.array([[5, 6]])).tolist()
        [[0, 9]]
        >>> TextForm(rewrites=True, start=0).answer_before(np.array([[5, 6]])).tolist()
        [[0, 5, 6]]
        """
        if self.start is None or not (self.rewrites or self.gap_ends):
            return None
        if self.rewrites:
            return _put_around((self.start,), left, ())
        return _put_around((self.start, *self.gap), left[:, :0], ())

    def whole_answer(self, tokens: Tokens, position: Any) -> tuple[Tokens, Any] | None:
        """The decoder's answer for a gap of one token, and the gap's position in it.

        The answer is `Gap.answer`, after which one of `gap_ends` follows, if there are
        any. None if the decoder writes no answer.

        Args:
          tokens: the text [B, T] with any token in the gap.
          position: of the gap in the text, a number or [B].

        >>> tokens = np.array([[5, 6]])
        >>> form = TextForm(gap=(9,), gap_ends=(1,), start=0)
        >>> answer, position = form.whole_answer(tokens, 1)
        >>> answer.tolist(), position
        ([[0, 9, 5]], 2)
        >>> answer, position = TextForm(rewrites=True, start=0).whole_answer(tokens, 1)
        >>> answer.tolist(), position
        ([[0, 5, 6]], 2)
        """
        if self.start is None or not (self.rewrites or self.gap_ends):
            return None
        if self.rewrites:
            return _put_around((self.start,), tokens, ()), position + 1
        before = self.start, *self.gap
        return _put_around(before, tokens[:, :1], ()), len(before)

    def cut_answer(self, ids: np.ndarray) -> np.ndarray:
        """A generated answer without the forced first token and without its end.

        >>> TextForm(first=4, ends=(1,)).cut_answer(np.array([4, 7, 8, 1])).tolist()
        [7, 8]
        """
        if len(ids) and ids[0] == self.first:
            ids = ids[1:]
        return ids[:-1] if len(ids) and int(ids[-1]) in (*self.ends, self.last) else ids

    def to_json(self) -> dict[str, Any]:
        """The `STORED` attributes as plain values, tuples as lists."""
        return json.loads(json.dumps({name: getattr(self, name) for name in STORED}))


def from_json(values: dict) -> TextForm:
    """Restores what `to_json` stored."""
    if not isinstance(values, dict) or set(values) != set(STORED):
        raise DataError(f"must have {', '.join(STORED)}")
    parsed: dict[str, Any] = {}
    for name in STORED:
        value = values[name]
        is_list = isinstance(getattr(TextForm, name), tuple)
        ids = value if isinstance(value, list) else [value] * (value is not None)
        if is_list != isinstance(value, list) or not all(
            type(id_) is int and id_ >= 0 for id_ in ids
        ):
            allowed = "a list of ids" if is_list else "an id or null"
            raise DataError(f"{name} is {value!r}: must be {allowed}")
        parsed[name] = tuple(value) if is_list else value
    return TextForm(**parsed)


def _put_around(before: Ids, tokens: Tokens, after: Ids) -> Tokens:
    xp = tokens.__array_namespace__()  # numpy or jax.numpy
    first, last = (
        xp.broadcast_to(
            xp.asarray(ids, dtype=tokens.dtype), (*tokens.shape[:-1], len(ids))
        )
        for ids in (before, after)
    )
    return xp.concatenate([first, tokens, last], axis=-1)


def mark_words(
    word_starts: tuple[bool, ...], pieces: tuple[bytes, ...], size: int
) -> np.ndarray | None:
    """By id, whether a token begins a word, bool [V]; punctuation does, too.

    The words are those of the tokenizer (`word_ids` of the `tokenizers` library) as far
    as ids determine them; a letter after punctuation does not begin a word.

    Args:
      word_starts, pieces: those of the vocabulary; the result is None without the
        first.
      size: the ids of the model; ids outside the vocabulary begin a word.
    """
    if not word_starts:
        return None
    is_start = np.ones(size, bool)
    is_start[: len(word_starts)] = word_starts
    for id_, piece in enumerate(pieces):
        text = piece.decode("utf-8", "replace").removeprefix("##").strip()
        if text and not any(c.isalnum() or c == "\ufffd" for c in text):
            is_start[id_] = True
    return is_start
