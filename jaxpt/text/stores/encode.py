"""Encodes the texts of a task, sentence by sentence, with the byte count of each id."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxpt.text.stores.sentences import cut_sentences, join_unsafe
from jaxpt.text.tokens.tokenizer import Tokenizer

_BEFORE = "a"


@dataclass(frozen=True, eq=False)
class Encoded:
    """The ids of pieces.

    Attributes:
      tokens: [n], in the store's dtype.
      counts: int64 [p], the number of tokens of each piece.
      sentence_starts: int64 [s], where sentences begin, ascending, in 0..n.
      num_unknown: the number of [UNK]s; without [UNK], of characters that are dropped.
      sizes: uint32 [n], bytes of the pieces' text from the end of the token before, or
        the piece's beginning, to each token's end; [0] if ids determine them.
      unknown_bytes: the bytes of text that the [UNK]s replace, or that are dropped.
    """

    tokens: np.ndarray
    counts: np.ndarray
    sentence_starts: np.ndarray
    num_unknown: int
    sizes: np.ndarray
    unknown_bytes: int = 0


def encode_texts(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    is_start: np.ndarray,
    is_sentence: np.ndarray,
    sentences: str,
    dtype: str,
) -> Encoded:
    """Encodes texts; their ids are concatenated.

    Args:
      is_start: bool [p], False if a text continues the previous one, at a position
        where every tokenizer splits.
      is_sentence: bool [p], whether a sentence begins with each text.
      sentences: one of `sentences.SENTENCES`.
      dtype: of the ids.
    """
    # Some tokenizers add or remove a space at the start of a text, but not after this.
    before, num_before = _BEFORE, len(tokenizer.encode(_BEFORE))
    # Whether ids do not determine the bytes of their text.
    is_sized = not tokenizer.vocab.token_bytes

    def encode(
        text: str, continues: bool, is_sized: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        start, put = (num_before, before) if continues else (0, "")
        if not is_sized:
            return tokenizer.encode(put + text)[start:], no_sizes
        ids, of_ids = tokenizer.encode_sized(put + text)
        ends = np.cumsum(of_ids)[start:] - len(put)
        return ids[start:], np.diff(ends, prepend=0)

    no_sizes = np.zeros(0, np.int64)
    arrays, sizes, counts = [], [no_sizes], []
    starts: list[int] = []
    num_tokens = 0
    flags = zip(is_start.tolist(), is_sentence.tolist(), strict=True)
    for text, (is_first, is_begin) in zip(texts, flags, strict=True):
        cut = cut_sentences(text, sentences) if sentences else [text]
        groups = join_unsafe(cut) if sentences else [cut]
        parts, sizes_of_parts, num_before_text = [], [], num_tokens
        for i, group in enumerate(groups):
            part = "".join(group)
            needs_sizes = is_sized or len(group) > 1
            ids, of_ids = encode(part, bool(i) or not is_first, needs_sizes)
            starts += [num_tokens] if (i or is_begin) and part else []
            starts += (num_tokens + _find_inner(group, of_ids)).tolist()
            parts.append(part)
            arrays.append(ids)
            sizes_of_parts.append(of_ids)
            num_tokens += len(ids)
        sizes += _carry(parts, sizes_of_parts) if is_sized else []
        counts.append(num_tokens - num_before_text)
    tokens = np.concatenate([np.zeros(0, np.int32), *arrays])
    unk = tokenizer.vocab.unk
    all_sizes, unknown_bytes = np.concatenate(sizes), 0
    if unk is None:
        num_unknown = sum(map(tokenizer.count_unknown, texts))
        if num_unknown:
            num_bytes = sum(len(t.encode("utf-8", "surrogatepass")) for t in texts)
            known = np.array(list(map(len, tokenizer.vocab.pieces)))[tokens]
            unknown_bytes = num_bytes - int(known.sum())
    else:  # the same number, without encoding again
        num_unknown = int(np.count_nonzero(tokens == unk))
        unknown_bytes = int(all_sizes[tokens == unk].sum()) if is_sized else 0
    return Encoded(
        tokens=tokens.astype(dtype),
        counts=np.array(counts, np.int64),
        sentence_starts=np.array(starts if sentences else [], np.int64),
        num_unknown=num_unknown,
        sizes=all_sizes.astype("<u4"),
        unknown_bytes=unknown_bytes,
    )


def _find_inner(group: list[str], sizes: np.ndarray) -> np.ndarray:
    """The first token of each sentence but the first, among the tokens of a group.

    A token across a cut belongs to the sentence before it.

    Args:
      sizes: the bytes of each token.
    """
    if len(group) < 2:
        return np.zeros(0, np.int64)
    lengths = [len(sentence.encode("utf-8", "surrogatepass")) for sentence in group]
    token_starts = np.cumsum(sizes) - sizes
    return np.searchsorted(token_starts, np.cumsum(lengths)[:-1])


def _carry(parts: list[str], sizes: list[np.ndarray]) -> list[np.ndarray]:
    """Adds the bytes of text after a part's last token to the next token.

    Args:
      sizes: the bytes of each token of each part; they are modified.
    """
    rest = 0
    for part, of_ids in zip(parts, sizes, strict=True):
        num_bytes = len(part.encode("utf-8", "surrogatepass"))
        if not len(of_ids):
            rest += num_bytes
            continue
        num_left = num_bytes - int(of_ids.sum())
        of_ids[0] += rest
        rest = num_left
    return sizes
