"""Tokenizes documents into a store on disk, on all cores; resumes after a kill.

    documents -> take -> tasks -> workers -> layout -> <folder>.partial/ -> <folder>/

The store's bytes are the same for any number of workers and interruptions.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxpt.errors import DataError, UserError
from jaxpt.files import lock
from jaxpt.text.sources.documents import Document
from jaxpt.text.sources.files import PACKINGS
from jaxpt.text.sources.source import (
    describe_skipped,
    identify_source,
    read_documents,
)
from jaxpt.text.sources.source_spec import SourceSpec
from jaxpt.text.stores.draft import JOURNAL, Draft, Unusable, publish
from jaxpt.text.stores.pool import (
    EncodedTasks,
    WorkerDied,
    count_cores,
    encode_tasks,
)
from jaxpt.text.stores.store import (
    FORMAT,
    Store,
    is_store,
    open_store,
    token_dtype,
)
from jaxpt.text.stores.tasks import EncodingJob, Sizes, Tally, make_tasks, take
from jaxpt.text.stores.writing import StoreWriter
from jaxpt.text.tokens.tokenizer import Tokenizer, TokenizerSpec, fingerprint

_log = logging.getLogger(__name__)

# From this share of bytes that the tokenizer does not know on, `prepare` warns.
UNKNOWN_SHARE = 0.01


@dataclass(frozen=True)
class Reporter:
    """How the preparation of text reports: lines of text, and a progress callback.

    Attributes:
      log: called with each line.
      progress: given a title and the expected bytes (0: not known), makes a callback
        that is called with (bytes, documents, tokens), and with None at the end.
    """

    log: Callable[[str], None] = _log.info
    progress: Callable | None = None


def prepare(
    source: SourceSpec,
    described: dict,
    contents: list[dict],
    tokenizer: Tokenizer,
    tokenizer_spec: TokenizerSpec,
    folder: Path,
    *,
    settings: dict,
    workers: int = 0,
    reporter: Reporter,
    is_keyed: bool = False,
    sizes: Sizes = Sizes(),
) -> Store:
    """Opens the store of a source in `folder`, or writes it there.

    Waits while another process prepares the same folder.

    Args:
      described: `identify_source(source)`.
      contents: `list_contents(source)`, computed after `described`.
      settings: further settings that the store depends on, in JSON; sentences,
        limit_chars and heldout_chars are used here.
      workers: tokenizing processes; 0 means one per core.
      is_keyed: whether the folder's name is a hash of all settings, so that an existing
        store is not compared with them.
    """
    folder, log = Path(folder), reporter.log
    if folder.name in ("", ".."):
        raise DataError(f"{str(folder)!r}: must be the name of a new folder")
    path = folder.with_name(folder.name + ".lock")
    waiting = f"{path}: another process prepares this text; waiting for it"
    with lock.hold(path, lambda: log(waiting)):
        if is_keyed and is_store(folder):
            return open_finished(folder)
        about = identify_store(source, settings, contents, tokenizer, tokenizer_spec)
        if is_store(folder):
            _check_same(folder, about)
            return open_finished(folder)
        log(f"preparing {source.path} as {folder}")
        if skipped := describe_skipped(source):
            log(skipped)
        progress = reporter.progress and reporter.progress(
            f"preparing {source.path}", _guess_bytes(contents, settings)
        )
        try:
            return write_store(
                read_documents(source),
                tokenizer,
                folder,
                about=about,
                workers=workers,
                progress=progress,
                log=log,
                check=lambda: check_unchanged(source, described),
                sizes=sizes,
            )
        finally:
            if progress:
                progress(None)


def identify_store(
    source: SourceSpec,
    settings: dict,
    contents: list[dict],
    tokenizer: Tokenizer,
    tokenizer_spec: TokenizerSpec,
) -> dict:
    """What a store is of, as its card has it; the arguments are those of `prepare`."""
    about = {
        "path": source.path,
        "settings": settings,
        "sources": contents,
        "tokenizer": {
            "sha256": fingerprint(tokenizer),
            "spec": dataclasses.asdict(tokenizer_spec),
        },
    }
    return json.loads(json.dumps(about))


def write_store(
    documents: Iterable[Document],
    tokenizer: Tokenizer,
    folder: Path,
    *,
    about: dict,
    workers: int = 0,
    progress: Callable | None = None,
    log: Callable[[str], None] = _log.info,
    check: Callable[[], None] | None = None,
    sizes: Sizes = Sizes(),
) -> Store:
    """Writes the store of documents; no other process may write to the folder.

    Args:
      about: the card's entries for settings, sources and tokenizer (`prepare`).
      progress: called repeatedly with (bytes of text, documents, tokens).
      check: called before the store is completed; may raise.
    """
    tally, workers = Tally(), workers or count_cores()
    encode = make_encode(tokenizer, about["settings"], workers)
    return write_tasks(
        list_tasks(documents, about, sizes, tally),
        encode,
        tokenizer,
        folder,
        about=about,
        tally=tally,
        workers=workers,
        progress=progress,
        log=log,
        check=check,
        sizes=sizes,
    )


def list_tasks(
    documents: Iterable[Document], about: dict, sizes: Sizes, tally: Tally
) -> Iterator[EncodingJob]:
    """The tasks of a text, as the settings want it.

    Args:
      about: as of `write_store`.
      tally: counts the documents that are left out or cut.
    """
    settings = about["settings"]
    limits = settings.get("limit_chars", 0), settings.get("heldout_chars", 0)
    taken = take(documents, *limits, f"data.path={about['path']}", tally)
    return make_tasks(taken, settings.get("sentences", ""), sizes)


def make_encode(tokenizer: Tokenizer, settings: dict, workers: int) -> Callable:
    """A function that encodes tasks with a tokenizer's file."""
    return functools.partial(
        encode_tasks,
        tokenizer=tokenizer,
        sentences=settings.get("sentences", ""),
        dtype=token_dtype(tokenizer.vocab.size),
        workers=workers,
    )


def write_tasks(
    tasks: Iterator[EncodingJob],
    encode: Callable[[Iterator[EncodingJob], Path], EncodedTasks],
    tokenizer: Tokenizer,
    folder: Path,
    *,
    about: dict,
    tally: Tally,
    workers: int,
    progress: Callable | None = None,
    log: Callable[[str], None] = _log.info,
    check: Callable[[], None] | None = None,
    sizes: Sizes = Sizes(),
) -> Store:
    """Writes the store of tasks; the other arguments are those of `write_store`.

    Args:
      encode: called with the tasks that are not written yet, and a tokenizer's file.
      tally: of the documents, complete at the end of the tasks.
    """
    _check_folder(folder)
    start = time.perf_counter()
    content = {name: value for name, value in about.items() if name != "path"}
    key = _digest([FORMAT, content, dataclasses.asdict(sizes)])
    draft, state = _open_draft(folder, key, log)
    try:
        writing = StoreWriter(draft, key, tokenizer, about["settings"], sizes, state)
        done = writing.num_bytes
        if done:
            log(f"{draft.path}: resuming after {done / 1e6:.1f} MB")
        writing.run(tasks, encode, about["path"], progress)
        if check:
            check()
        card = writing.make_card(about, tally, tokenizer.vocab.size)
        draft.seal(card)
        with draft.writing():
            publish(draft.path, folder)
    except WorkerDied:
        raise
    except UserError:
        draft.discard()
        raise
    finally:
        draft.close()
    seconds, cores = time.perf_counter() - start, min(workers, writing.num_encoded or 1)
    line = _conclude(folder, card, writing.num_bytes - done, seconds, cores)
    unknown, share = writing.describe_unknown()
    log(f"{line}; {unknown}" if unknown else line)
    if share >= UNKNOWN_SHARE:
        _log.warning("data.path=%s: %s", about["path"], unknown)
    return open_store(folder)


def _open_draft(
    folder: Path, key: str, log: Callable[[str], None]
) -> tuple[Draft, dict | None]:
    """Opens the draft of a folder and its state, or begins an empty one."""
    path = folder.with_name(folder.name + ".partial")
    if (path / JOURNAL).exists():
        try:
            return Draft.resume(path, key)
        except Unusable as reason:
            log(f"{path}: {reason}; starting from the beginning")
    return Draft.begin(path), None


def _check_folder(folder: Path) -> None:
    try:
        is_free = not os.path.lexists(folder)
        is_free = is_free or not (folder.is_symlink() or any(folder.iterdir()))
    except OSError as error:
        raise DataError(f"{folder}: {error.strerror}") from error
    if not is_free:
        raise DataError(
            f"{folder}: must be a new folder; it is not empty and not a store (it has "
            "no card.json)"
        )


def open_finished(folder: Path) -> Store:
    """Opens a store; removes the journal that a killed process has left."""
    with contextlib.suppress(OSError):
        (folder / JOURNAL).unlink()  # left by a killed process
    return open_store(folder)


def _check_same(folder: Path, about: dict) -> None:
    card = open_store(folder, verify=False).card
    for part in ("settings", "sources", "tokenizer"):
        if card[part] != about[part]:
            raise DataError(
                f"{folder}: has a store of other {part}; use another folder or remove "
                "this one"
            )


def check_unchanged(source: SourceSpec, described: dict) -> None:
    """Raises UserError if a source has changed since `identify_source`."""
    if identify_source(source) != described:
        raise DataError(f"data.path={source.path}: was changed while it was read")


def _guess_bytes(contents: list[dict], settings: dict) -> int:
    """Estimates the bytes of text; 0 if unknown."""
    if settings["limit_chars"]:
        return settings["limit_chars"] + settings["heldout_chars"]
    packed = (*PACKINGS, ".parquet")
    if any(entry.get("name", "").lower().endswith(packed) for entry in contents):
        return 0
    if any({"tfds", "hf", "language"} & entry.keys() for entry in contents):
        return 0
    return sum(entry["bytes"] for entry in contents)


def _conclude(
    folder: Path, card: dict, num_bytes: int, seconds: float, cores: int
) -> str:
    """The log line about the finished store."""
    mb = num_bytes / 1e6
    speed = mb / max(seconds, 1e-9)
    notes = [
        f"{label}: {card[name]:,}"
        for name, label in (
            ("dropped", "documents without a token, dropped"),
            ("truncated", "documents cut by data.limit_chars"),
        )
        if card[name]
    ]
    num = card["num_documents"]
    line = (
        f"{folder}: {num:,} document{'s' * (num != 1)}, {card['num_tokens']:,} tokens "
        f"of {card['num_bytes'] / 1e6:,.1f} MB text; {mb:,.1f} MB in {seconds:.1f} s, "
        f"{speed:.1f} MB/s, {speed / cores:.1f} MB/s per core of {cores}"
    )
    return "; ".join([line, *notes])


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
