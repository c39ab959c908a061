"""TextForm: how a text, a gap in it and a continuation are written for a network."""

import dataclasses

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int


@dataclasses.dataclass(frozen=True)
class TextForm:
    """The special tokens that a network reads around a text and in place of a gap.

    An objective declares the first group (`ObjectiveSpec.text_form`), a run adds the
    second (`jaxpt.runs.run_framing.find_form`).

    Attributes:
      before, after: ids around a text that is read in both directions, or by an
        encoder.
      mode: ids between `before` and a text whose states or gaps are read (UL2's mode);
        a run's form has them in `before`.
      gap: ids in place of missing tokens, such as a [MASK] or a sentinel; () if no
        input shows that something is missing.
      reads_gap: False if the network whose states are read has never seen the gap
        (ELECTRA's discriminator).
      ends: ids of which one ends the decoder's answer for a gap; () if a decoder does
        not write the gap alone.
      rewrites: a decoder writes the whole text, not only what is missing (BART).
      lead, mark: ids before a text that is to be continued, and in place of its
        continuation. A decoder that does not rewrite begins with the mark.
      block_size: tokens of the blocks in which a text is masked, each after the clean
        ones before it (block diffusion); 0 if the whole text is one block.
      mask_note: the attention mask of the only stack, in words, for users of an
        exported causal model; "" if it is causal.

      left, right: ids before a text of which only the past is seen, and after one that
        is read backward; () if the run has none.
      tail: ids after a text that is to be continued.
      start: the decoder's first input.
      is_word_start: by id, whether a word begins with it; None if that is not known.
      max_len: the most positions of a stack; 0 is any number.
    """

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    mode: tuple[int, ...] = ()
    gap: tuple[int, ...] = ()
    reads_gap: bool = True
    ends: tuple[int, ...] = ()
    rewrites: bool = False
    lead: tuple[int, ...] = ()
    mark: tuple[int, ...] = ()
    block_size: int = 0
    mask_note: str = ""

    left: tuple[int, ...] = ()
    right: tuple[int, ...] = ()
    tail: tuple[int, ...] = ()
    start: int = 0
    is_word_start: Bool[np.ndarray, "V"] | None = None
    max_len: int = 0

    @property
    def shown_gap(self) -> tuple[int, ...]:
        """The gap as the network whose states are read sees it."""
        return self.gap if self.reads_gap else ()

    def words(self, tokens: Int[np.ndarray, "T"]) -> Int[np.ndarray, "T"]:
        """The number of each token's word; without `is_word_start` each is a word.

        The first token always begins a word.
        """
        if self.is_word_start is None:
            return np.arange(len(tokens))
        return np.cumsum(self.is_word_start[tokens])

    def answer_before(self, left: Int[Array, "B C"]) -> Int[Array, "B S"] | None:
        """The decoder's inputs up to the missing token; None if it writes no answer.

        Args:
          left: the text before the gap.

        >>> form = TextForm(gap=(9,), ends=(1,))
        >>> form.answer_before(jnp.array([[5, 6]])).tolist()
        [[0, 9]]
        >>> TextForm(rewrites=True).answer_before(jnp.array([[5, 6]])).tolist()
        [[0, 5, 6]]
        """
        if self.rewrites:
            return jnp.pad(left, ((0, 0), (1, 0)), constant_values=self.start)
        return _repeat((self.start, *self.gap), left) if self.ends else None

    def whole_answer(
        self, tokens: Int[Array, "B T"], position: int | Int[Array, "B"]
    ) -> tuple[Int[Array, "B S"], int | Int[Array, "B"]] | None:
        """The decoder's answer for a gap of one token, and the gap's position in it.

        The answer is `Gap.answer`, after which one of `ends` follows, if there are any.

        Args:
          tokens: the text with any token in the gap.
          position: of the gap in the text.

        Returns:
          None if a decoder writes no answer.

        >>> form, tokens = TextForm(gap=(9,), ends=(1,)), jnp.array([[5, 6, 7]])
        >>> answer, position = form.whole_answer(tokens, 1)
        >>> answer.tolist(), position
        ([[0, 9, 5]], 2)
        >>> answer, position = TextForm(rewrites=True).whole_answer(tokens, 1)
        >>> answer.tolist(), position
        ([[0, 5, 6, 7]], 2)
        """
        if self.rewrites:
            answer = jnp.pad(tokens, ((0, 0), (1, 0)), constant_values=self.start)
            return answer, position + 1
        if not self.ends:
            return None
        before = _repeat((self.start, *self.gap), tokens)
        return jnp.concatenate([before, tokens[:, :1]], axis=1), before.shape[1]


def _repeat(ids: tuple[int, ...], rows: Array) -> Array:
    """The ids [B, S], once for each of the rows."""
    return jnp.broadcast_to(jnp.array(ids), (len(rows), len(ids)))


def mark_words(
    word_starts: tuple[bool, ...], pieces: tuple[bytes, ...], size: int
) -> Bool[np.ndarray, "V"] | None:
    """By id, whether a token begins a word; punctuation does, too.

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
