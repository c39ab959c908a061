"""Parts of a store, which several machines write, and the order in which they merge.

    <store>.parts/part-00003-of-00008/card.json       what the part is of; written last
                                      tasks.bin       its encoded tasks
                                      tokenizer.json

A part has the tasks of some spans of the text (`jaxpt.text.sources.spans`), before
anything that depends on other spans: positions, [EOS], numbers of labels, shards. The
merge passes the tasks of all parts, in the order of the text, to the same code that
writes the store on one machine (`jaxpt.text.stores.writing`). So the store has the same
bytes.
"""

import contextlib
import hashlib
import io
import itertools
import re
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from jaxpt.errors import DataError, UserError, argument
from jaxpt.files import disk, schema
from jaxpt.text.stores.draft import Draft, publish
from jaxpt.text.stores.encode import Encoded
from jaxpt.text.stores.layout import Pieces
from jaxpt.text.stores.pool import EncodedTasks
from jaxpt.text.stores.store import CARD, FILES, TOKENIZER, seal_card
from jaxpt.text.stores.tasks import EncodingJob, Tally
from jaxpt.text.tokens.tokenizer import Tokenizer, save

FORMAT = "part 1"
TASKS = "tasks.bin"
MAX_PARTS = 10_000
_ARRAYS = 10  # of a task
_HEAD = struct.Struct("<QI")  # before each task: its bytes, their crc32
_MAX_BYTES = 1 << 31
_SCHEMA = {
    "format": {FORMAT},
    "sha256": str,
    "settings": {str: object},
    "sources": [{str: object}],
    "tokenizer": {"sha256": str, "spec": {str: object}},
    "stamps": {str: [int]},
    "spans": [[int]],
    "label_names": [str],
    "dropped": int,
    "truncated": int,
    "files": FILES,
}


@dataclass(frozen=True)
class Share:
    """One of `num` parts of a text, numbered from 0."""

    index: int
    num: int

    @classmethod
    def read(cls, text: str) -> "Share":
        """The part of a flag.

        >>> Share.read("3/8")
        Share(index=3, num=8)
        """
        match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text, re.ASCII)
        if not match:
            raise DataError(f"{argument('part')}={text}: must be I/N, such as 0/8")
        share = cls(int(match[1]), int(match[2]))
        if not 1 <= share.num <= MAX_PARTS:
            raise DataError(
                f"{argument('part')}={text}: N must be from 1 to {MAX_PARTS}"
            )
        if share.index >= share.num:
            raise DataError(
                f"{argument('part')}={text}: I must be from 0 to {share.num - 1}"
            )
        return share

    @property
    def name(self) -> str:
        """Of the part's folder."""
        return f"part-{self.index:05d}-of-{self.num:05d}"

    def choose(self, sizes: Sequence[int], is_limited: bool) -> set[int]:
        """The numbers of the part's spans: neighbours, of about equal sizes together.

        Args:
          sizes: the bytes of each span.
          is_limited: only the beginning of the text is used; then its spans are dealt
            out in turn.

        >>> [sorted(Share(i, 3).choose([5, 5, 2, 2, 2, 2], False)) for i in range(3)]
        [[0], [1, 2], [3, 4, 5]]
        """
        if is_limited:
            return set(range(self.index, len(sizes), self.num))
        total, chosen = max(sum(sizes), 1), set()
        for number, (size, end) in enumerate(
            zip(sizes, itertools.accumulate(sizes), strict=True)
        ):
            middle = (2 * end - size) * self.num // (2 * total)
            if min(middle, self.num - 1) == self.index:
                chosen.add(number)
        return chosen


@dataclass(frozen=True, eq=False)
class EncodedJob(EncodingJob):
    """A task of a part, without its texts."""

    encoded: Encoded = field(kw_only=True)


def pass_on(tasks: Iterator[EncodingJob], path: Path) -> EncodedTasks:
    """The tasks of parts with their ids, where `pool.encode_tasks` would encode."""
    for task in tasks:
        assert isinstance(task, EncodedJob)
        yield task, task.encoded


def write_part(
    tasks: Iterator[EncodingJob],
    encode: Callable[[Iterator[EncodingJob], Path], EncodedTasks],
    tokenizer: Tokenizer,
    folder: Path,
    *,
    card: dict,
    tally: Tally,
    progress: Callable | None,
    check: Callable[[], None],
) -> int:
    """Writes a part, in place of an old one, and returns the bytes of its text.

    Args:
      card: what the part is of.
      tally: of the documents, complete at the end of the tasks.
      progress: called with (bytes of text, documents, tokens).
      check: called before the part is completed; may raise.
    """
    draft = Draft.begin(folder.with_name(folder.name + ".partial"))
    label_names: dict[str, int] = {}
    done, spans = np.zeros(3, np.int64), Counter[int]()
    try:
        with draft.writing():
            save(tokenizer, draft.path / TOKENIZER)
        draft.take(TOKENIZER)
        draft.append(TASKS, b"")
        with contextlib.closing(encode(tasks, draft.path / TOKENIZER)) as encoded:
            for task, result in encoded:
                draft.append(TASKS, _pack(task, result, label_names))
                spans[task.span] += 1
                pieces = task.pieces
                done += (
                    pieces.num_bytes.sum(),
                    pieces.is_start.sum(),
                    len(result.tokens),
                )
                if progress:
                    progress(tuple(done.tolist()))
        check()
        written = {
            "format": FORMAT,
            "spans": [list(pair) for pair in sorted(spans.items())],
            "label_names": list(label_names),
            "dropped": tally.dropped,
            "truncated": tally.truncated,
        }
        draft.seal(card | written)
        with draft.writing():
            disk.remove(folder)
            publish(draft.path, folder)
    except UserError:
        draft.discard()
        raise
    finally:
        draft.close()
    return int(done[0])


def read_part_card(folder: Path) -> dict | None:
    """The card of a finished part; None if it is not finished."""
    path = folder / CARD
    try:
        data = disk.read(path)
        card = schema.parse(data, _SCHEMA)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise DataError(f"{path}: was altered: {error}; delete it") from error
    del card["sha256"]
    if seal_card(card) != data:
        raise DataError(f"{path}: was altered: its checksum differs; delete it")
    return card


def read_tasks(folders: Sequence[Path], cards: Sequence[dict]) -> Iterator[EncodedJob]:
    """The tasks of all parts, in the order of the text.

    Raises:
      UserError: a part was altered. Then its tasks may have been yielded.
    """
    pairs = zip(folders, cards, strict=True)
    parts = [_read_part(folder, card) for folder, card in pairs]
    order = [
        (span, part, num_tasks)
        for part, card in enumerate(cards)
        for span, num_tasks in card["spans"]
    ]
    with contextlib.ExitStack() as stack:
        for part in parts:
            stack.callback(part.close)
        for _, number, num_tasks in sorted(order):
            yield from itertools.islice(parts[number], num_tasks)
        for part in parts:
            assert next(part, None) is None  # compares the checksum


def _read_part(folder: Path, card: dict) -> Generator[EncodedJob, None, None]:
    path = folder / TASKS
    try:
        with disk.open_regular(path) as raw:
            file = _Hashed(raw)
            for span, num_tasks in card["spans"]:
                for _ in range(num_tasks):
                    data = _read_checked(file)
                    yield _unpack(io.BytesIO(data), span, card["label_names"])
            rest = file.read(1)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise _altered(path) from error
    if rest or file.digest.hexdigest() != card["files"][TASKS]["sha256"]:
        raise _altered(path)


def _altered(path: Path) -> DataError:
    return DataError(
        f"{path}: was altered; delete its folder and prepare the part again"
    )


class _Hashed:
    """A file that is read once, with the sha256 of the bytes read so far."""

    def __init__(self, file: io.BufferedReader):
        self._file, self.digest = file, hashlib.sha256()

    def read(self, size: int) -> bytes:
        """The next bytes."""
        data = self._file.read(size)
        self.digest.update(data)
        return data


def _read_checked(file: _Hashed) -> bytes:
    """The bytes of the next task, which are compared before they are used."""
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        raise ValueError("the file is too short")
    num_bytes, checksum = _HEAD.unpack(head)
    data = file.read(num_bytes) if num_bytes <= _MAX_BYTES else b""
    if len(data) != num_bytes or zlib.crc32(data) != checksum:
        raise ValueError("a task was altered")
    return data


def _pack(task: EncodingJob, encoded: Encoded, label_names: dict[str, int]) -> bytes:
    """A task as arrays; new labels are added to the names."""
    pieces = task.pieces
    labels = [label_names.setdefault(n, len(label_names)) for n in pieces.labels]
    numbers = [task.span, encoded.num_unknown, encoded.unknown_bytes]
    buffer = io.BytesIO()
    for array in (
        np.array(numbers, "<i8"),
        np.frombuffer(bytes.fromhex(task.digest), np.uint8),
        pieces.is_start,
        pieces.is_heldout,
        np.array(labels, "<i4"),
        pieces.num_bytes.astype("<i8"),
        encoded.tokens,
        encoded.counts.astype("<i8"),
        encoded.sentence_starts.astype("<i8"),
        encoded.sizes,
    ):
        np.lib.format.write_array(buffer, array, allow_pickle=False)
    data = buffer.getvalue()
    return _HEAD.pack(len(data), zlib.crc32(data)) + data


def _unpack(file: Any, span: int, label_names: list[str]) -> EncodedJob:
    def read() -> np.ndarray:
        return np.lib.format.read_array(file, allow_pickle=False)

    numbers, digest, is_start, is_heldout, labels, num_bytes, *rest = (
        read() for _ in range(_ARRAYS)
    )
    stored_span, num_unknown, unknown_bytes = numbers.tolist()
    if stored_span != span:
        raise ValueError("a task of another span")
    tokens, counts, sentence_starts, sizes = rest
    names = [label_names[i] for i in labels.tolist()]
    return EncodedJob(
        texts=[],
        pieces=Pieces(is_start, is_heldout, names, num_bytes),
        is_sentence=np.zeros(0, bool),
        span=span,
        digest=digest.tobytes().hex(),
        encoded=Encoded(
            tokens, counts, sentence_starts, num_unknown, sizes, unknown_bytes
        ),
    )
