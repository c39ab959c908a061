"""Selects the documents of a store and groups them into encoding tasks."""

import hashlib
import itertools
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jaxpt.errors import DataError
from jaxpt.text.sources.documents import Document
from jaxpt.text.stores.layout import Pieces
from jaxpt.text.stores.sentences import begins_sentence


@dataclass(frozen=True)
class Sizes:
    """Sizes of the units of work; only `shard_tokens` affects the store.

    Attributes:
      task_chars: the approximate number of characters of a task.
      task_texts: the maximum number of texts of a task.
      commit_bytes: the number of bytes of text between two journal entries.
      shard_tokens: the number of tokens of a shard.
    """

    task_chars: int = 1 << 20
    task_texts: int = 1 << 16
    commit_bytes: int = 1 << 25
    shard_tokens: int = 1 << 26


@dataclass
class Tally:
    """Counts documents without text, and documents cut by a limit."""

    dropped: int = 0
    truncated: int = 0


@dataclass(frozen=True, eq=False)
class EncodingJob:
    """Texts that are encoded together.

    Attributes:
      texts: the pieces' texts.
      is_sentence: bool [p], whether each text begins a sentence.
      span: the number of the span that the texts are from.
      digest: the sha256 of the span's text up to the end of this task.
    """

    texts: list[str]
    pieces: Pieces
    is_sentence: np.ndarray
    span: int
    digest: str


def take(
    documents: Iterable[Document],
    limit_chars: int,
    heldout_chars: int,
    source: str,
    tally: Tally | None = None,
) -> Iterator[tuple[Document, bool]]:
    """Yields the documents up to a limit, each with whether it is held out.

    Documents without text are left out. A document that a limit cuts becomes two, the
    second of which is held out or left out.

    Args:
      limit_chars: the number of characters that are not held out; 0 means all.
      heldout_chars: the number of characters after those that are held out.
      source: the name of the text in errors, "data.path=...".
      tally: counts the documents that are left out or cut.
    """
    tally, num_needed = tally or Tally(), limit_chars + heldout_chars
    if limit_chars:
        num_read = yield from _take_some(documents, limit_chars, num_needed, tally)
    else:
        num_read = 0
        for doc in _drop_empty(documents, tally):
            yield doc, False
    if num_read < num_needed:
        raise DataError(
            f"{source}: has {num_read} characters; must have data.limit_chars + "
            f"data.heldout_chars = {limit_chars} + {heldout_chars}"
        )


def _drop_empty(documents: Iterable[Document], tally: Tally) -> Iterator[Document]:
    """The parts with text; the first of each document is its start."""
    is_due = False  # the document has no part with text so far
    for doc in documents:
        if doc.is_start:
            tally.dropped += is_due
            is_due = True
        if doc.text:
            # The usual case without a slow copy.
            yield doc if doc.is_start == is_due else replace(doc, is_start=is_due)
            is_due = False
    tally.dropped += is_due


def _take_some(
    documents: Iterable[Document], limit_chars: int, num_needed: int, tally: Tally
) -> Generator[tuple[Document, bool], None, int]:
    """`take` up to a limit; returns the number of characters that were read."""
    num_read, num_cut = 0, 0
    is_heldout: bool | None = False  # the last part of this document; None: no part yet
    for doc in documents:
        if doc.is_start:
            tally.dropped += is_heldout is None
            is_heldout, num_cut = None, 0
        if num_read >= num_needed and is_heldout is None:
            return num_read
        end = max(0, limit_chars - num_read)
        head, rest = doc.text[:end], doc.text[end : max(0, num_needed - num_read)]
        if head:
            yield replace(doc, text=head, is_start=is_heldout is None), False
            is_heldout = False
        is_across = is_heldout is False and len(head) < len(doc.text)
        is_short = len(head) + len(rest) < len(doc.text)
        num_cut += is_across or is_short
        tally.truncated += num_cut == 1 and (is_across or is_short)
        if rest:
            yield replace(doc, text=rest, is_start=not is_heldout), True
            is_heldout = True
        num_read += len(doc.text)
        if is_short:
            return num_read
    tally.dropped += is_heldout is None
    return num_read


def make_tasks(
    taken: Iterable[tuple[Document, bool]], sentences: str, sizes: Sizes
) -> Iterator[EncodingJob]:
    """Groups the documents of `take` into tasks, independent of anything else.

    A task has documents of one span.
    """
    digest, tail = hashlib.sha256(), ""
    batch: list[tuple] = []
    num_chars = span = 0
    for doc, is_heldout in taken:
        if doc.span != span:
            if batch:
                yield _make_task(batch, span, digest)
            batch, num_chars, span, digest = [], 0, doc.span, hashlib.sha256()
        data = doc.text.encode("utf-8", "surrogatepass")
        is_sentence = bool(sentences) and (
            doc.is_start or begins_sentence(doc.before or tail, doc.text, sentences)
        )
        tail = doc.text
        head = f"{doc.is_start:d}{is_heldout:d} {len(data)} {doc.label!a}\n"
        batch.append((doc, is_heldout, data, is_sentence, head.encode()))
        num_chars += len(doc.text)
        if num_chars >= sizes.task_chars or len(batch) == sizes.task_texts:
            yield _make_task(batch, span, digest)
            batch, num_chars = [], 0
    if batch:
        yield _make_task(batch, span, digest)


def _make_task(batch: list[tuple], span: int, digest: Any) -> EncodingJob:
    docs, is_heldout, data, is_sentence, heads = zip(*batch, strict=True)
    digest.update(
        b"".join(itertools.chain.from_iterable(zip(heads, data, strict=True)))
    )
    pieces = Pieces(
        is_start=np.array([doc.is_start for doc in docs]),
        is_heldout=np.array(is_heldout),
        labels=[doc.label for doc in docs],
        num_bytes=np.array(list(map(len, data)), np.int64),
    )
    texts = [doc.text for doc in docs]
    flags = np.array(is_sentence)
    return EncodingJob(texts, pieces, flags, span, digest.hexdigest())
