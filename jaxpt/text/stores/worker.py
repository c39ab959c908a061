"""A process that tokenises: reads frames at stdin and writes frames to stdout.

    python -m jaxpt.text.stores.worker TOKENIZER.json SENTENCES DTYPE

A frame is its length in bytes (uint64, little endian) and those bytes; nothing is
pickled. The process ends with its stdin, so it never outlives its parent.
"""

import os
import signal
import struct
import sys
import traceback
from collections.abc import Sequence
from typing import IO

import numpy as np

from jaxpt.errors import UserError
from jaxpt.text.stores.layout import Encoded
from jaxpt.text.stores.sentences import cut_sentences
from jaxpt.text.tokens.tokenizer import Tokenizer, load

_LENGTH = struct.Struct("<Q")
_TASK = struct.Struct("<Q")
_REPLY = struct.Struct("<QQQQ")
_BEFORE = "a"
DONE, REFUSED, FAILED = b"D", b"R", b"F"


def encode_texts(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    is_start: np.ndarray,
    is_sentence: np.ndarray,
    sentences: str,
    dtype: str,
) -> Encoded:
    """The ids of texts, concatenated.

    Args:
      is_start: bool [p], False where a text continues the one before, at a position
        where every tokenizer splits.
      is_sentence: bool [p], whether a sentence begins with each text.
      sentences: one of `sentences.SENTENCES`.
      dtype: of the ids.
    """
    # Some tokenizers add or remove a space at the start of a text; not after this one.
    before, num_before = _BEFORE, len(tokenizer.encode(_BEFORE))
    # Whether ids do not determine the bytes of their text.
    is_sized = not tokenizer.vocab.token_bytes

    def encode(text: str, continues: bool) -> tuple[np.ndarray, np.ndarray]:
        start, put = (num_before, before) if continues else (0, "")
        if not is_sized:
            return tokenizer.encode(put + text)[start:], no_sizes
        ids, of_ids = tokenizer.encode_sized(put + text)
        ends = np.cumsum(of_ids)[start:] - len(put)
        return ids[start:], np.diff(ends, prepend=0)

    no_sizes = np.zeros(0, np.int64)
    arrays, sizes, counts, begins = [], [no_sizes], [], []
    flags = zip(is_start.tolist(), is_sentence.tolist(), strict=True)
    for text, (is_first, is_begin) in zip(texts, flags, strict=True):
        parts = cut_sentences(text, sentences) if sentences else [text]
        both = [encode(part, bool(i) or not is_first) for i, part in enumerate(parts)]
        found = [ids for ids, _ in both]
        arrays += found
        sizes += _carry(parts, [of_ids for _, of_ids in both]) if is_sized else []
        counts.append(sum(map(len, found)))
        begins += [is_begin, *[True] * (len(found) - 1)][: len(found)]
    lengths = np.array(list(map(len, arrays)), np.int64)
    starts = (np.cumsum(lengths) - lengths)[np.array(begins, bool)]
    tokens = np.concatenate([np.zeros(0, np.int32), *arrays])
    unk = tokenizer.vocab.unk
    if unk is None:
        num_unknown = sum(map(tokenizer.count_unknown, texts))
    else:  # the same number, without encoding again
        num_unknown = int(np.count_nonzero(tokens == unk))
    return Encoded(
        tokens=tokens.astype(dtype),
        counts=np.array(counts, np.int64),
        sentence_starts=starts if sentences else starts[:0],
        num_unknown=num_unknown,
        sizes=np.concatenate(sizes).astype("<u4"),
    )


def _carry(parts: list[str], sizes: list[np.ndarray]) -> list[np.ndarray]:
    """Each token's bytes; text after a part's last token counts to the next token.

    Args:
      sizes: the bytes by token of each part alone; they are modified.
    """
    rest = 0
    for part, found in zip(parts, sizes, strict=True):
        num_bytes = len(part.encode("utf-8", "surrogatepass"))
        if not len(found):
            rest += num_bytes
            continue
        left = num_bytes - int(found.sum())
        found[0] += rest
        rest = left
    return sizes


def send(file: IO[bytes], *parts: bytes) -> None:
    """Writes one frame."""
    file.write(_LENGTH.pack(sum(map(len, parts))))
    for part in parts:
        file.write(part)
    file.flush()


def receive(file: IO[bytes]) -> memoryview | None:
    """Reads one frame; None if the other process has ended."""
    head = file.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    data = file.read(length)
    return memoryview(data) if len(data) == length else None


def pack_task(
    texts: Sequence[bytes], is_start: np.ndarray, is_sentence: np.ndarray
) -> list[bytes]:
    """A frame of texts, in UTF-8."""
    lengths = np.array(list(map(len, texts)), "<i8")
    flags = is_start.astype("u1") + 2 * is_sentence.astype("u1")
    return [_TASK.pack(len(texts)), lengths.tobytes(), flags.tobytes(), *texts]


def unpack_task(data: memoryview) -> tuple[list[str], np.ndarray, np.ndarray]:
    """What `pack_task` packed."""
    (num,) = _TASK.unpack_from(data)
    lengths = np.frombuffer(data, "<i8", num, _TASK.size)
    flags = np.frombuffer(data, "u1", num, _TASK.size + 8 * num)
    ends = (np.cumsum(lengths) + _TASK.size + 9 * num).tolist()
    texts = [
        str(data[end - length : end], "utf-8", "surrogatepass")
        for end, length in zip(ends, lengths.tolist(), strict=True)
    ]
    return texts, (flags & 1) > 0, (flags & 2) > 0


def pack_reply(encoded: Encoded) -> list[bytes]:
    """A frame of ids."""
    arrays = encoded.counts, encoded.sentence_starts, encoded.sizes, encoded.tokens
    numbers = *map(len, arrays[:3]), encoded.num_unknown
    return [DONE, _REPLY.pack(*numbers), *(array.tobytes() for array in arrays)]


def unpack_reply(data: memoryview, dtype: str) -> Encoded:
    """What `pack_reply` packed."""
    place = len(DONE)
    *numbers, num_unknown = _REPLY.unpack_from(data, place)
    place += _REPLY.size
    found = []
    for kind, number in zip(("<i8", "<i8", "<u4"), numbers, strict=True):
        found.append(np.frombuffer(data, kind, number, place))
        place += found[-1].nbytes
    counts, starts, sizes = found
    tokens = np.frombuffer(data[place:], dtype)
    return Encoded(tokens, counts, starts, num_unknown, sizes)


def main(arguments: Sequence[str]) -> None:
    """Replies to every frame of texts with one of ids, or of an error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when to end
    path, sentences, dtype = arguments
    # Anything printed goes to stderr, not into the frames.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    tokenizer = None
    while (data := receive(sys.stdin.buffer)) is not None:
        try:
            tokenizer = tokenizer or load(path)
            task = unpack_task(data)
            reply = pack_reply(encode_texts(tokenizer, *task, sentences, dtype))
        except UserError as error:
            reply = [REFUSED, str(error).encode()]
        except Exception:
            reply = [FAILED, traceback.format_exc().encode("utf-8", "replace")]
        send(out, *reply)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except BrokenPipeError:  # the parent was killed
        os._exit(1)
