"""Prepares a part of a text, and merges all parts into the text's store.

The merge is a separate step: the scheduler knows when all parts are finished, a part
that is repeated cannot begin it twice, and no machine waits for others.
"""

import contextlib
import logging
import os
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from jaxpt.by_name import load_place
from jaxpt.errors import DataError, argument
from jaxpt.files import disk, lock, remote
from jaxpt.files.copies import with_urls
from jaxpt.languages import is_language
from jaxpt.text.library import (
    cache_root,
    check_languages,
    find_tokenizer,
    make_settings,
)
from jaxpt.text.sources.hashes import Hashes, stamp
from jaxpt.text.sources.source import (
    LANGUAGE_TEXTS,
    find_contents,
    identify_source,
    list_contents,
    list_spans,
    read_documents,
)
from jaxpt.text.sources.source_spec import SourceSpec
from jaxpt.text.sources.spans import count_bytes, is_divisible
from jaxpt.text.stores.parts import (
    MAX_PARTS,
    Share,
    pass_on,
    read_part_card,
    read_tasks,
    write_part,
)
from jaxpt.text.stores.pool import count_cores
from jaxpt.text.stores.prepare import (
    Reporter,
    check_unchanged,
    identify_store,
    list_tasks,
    make_encode,
    open_finished,
    write_tasks,
)
from jaxpt.text.stores.store import CARD, Store, is_store, open_store, read_card
from jaxpt.text.stores.tasks import Sizes, Tally
from jaxpt.text.text_spec import TextSpec
from jaxpt.text.tokens.tokenizer import Tokenizer, make_tokenizer

_log = logging.getLogger(__name__)
_MAX_NAMED = 8  # parts in a message
_COMPARED = ("settings", "tokenizer")


def place_parts(to: str) -> str:
    """The folder of a store's parts, or its URL.

    >>> place_parts("gs://bucket/text/")
    'gs://bucket/text.parts'
    """
    return to.rstrip("/") + ".parts"


@dataclass(frozen=True)
class _Text:
    """A text that is prepared in parts, and its tokenizer."""

    spec: TextSpec
    source: SourceSpec
    tokenizer: Tokenizer

    def identify(self, hash_file: Callable[[Path], str]) -> dict:
        """What its store is of (`prepare.identify_store`)."""
        contents = list_contents(self.source, hash_file)
        settings = make_settings(self.spec, self.source, True)
        own = self.tokenizer, self.spec.tokenizer
        return identify_store(self.source, settings, contents, *own)

    def list_paths(self) -> dict[str, str]:
        """The name of each file by its path."""
        return {str(file.path): file.name for file in find_contents(self.source)[1]}


def count_spans(spec: TextSpec) -> int:
    """The number of spans of a spec's text: no more parts than these have a text."""
    return len(list_spans(_find_source(spec)))


def prepare_part(
    spec: TextSpec,
    share: Share,
    to: str,
    *,
    tokenizer: Tokenizer | None = None,
    workers: int = 0,
    reporter: Reporter = Reporter(),
) -> None:
    """Prepares a part of a text's store, unless it is finished.

    Args:
      to: the folder of the store or its URL; the part is written to `place_parts`.
      tokenizer: None means the spec's, which must be a file, bytes, or trained already.
      workers: tokenizing processes; 0 means one per core.
    """
    text = _open_text(spec, tokenizer, reporter)
    spans = list_spans(text.source)
    sizes = [sum(map(count_bytes, files)) for files in spans]
    own = share.choose(sizes, spec.limit_chars > 0)
    wanted = set(range(len(spans))) if spec.limit_chars else own
    described, paths = identify_source(text.source), text.list_paths()
    if spans != [()]:  # else a data set, whose files are in no span
        read = {str(file.path) for number in wanted for file in spans[number]}
        paths = {path: name for path, name in paths.items() if path in read}
    about = text.identify(_hash_some(spec, share, paths if wanted else {}))
    stamps = {name: stamp(Path(path))[:2] for path, name in sorted(paths.items())}
    place = remote.fetch(f"{place_parts(to)}/{share.name}")
    title = f"part {share.index}/{share.num} of {text.source.path}"
    with _holding(place, reporter):
        if _is_prepared(to, about) or _is_finished(place, about):
            reporter.log(f"{title}: is prepared already")
            return
        used = sum(sizes[number] for number in own)
        reporter.log(
            f"preparing {title}: {len(own)} of {len(spans)} spans, {used / 1e6:,.1f} MB"
        )
        for note in _describe_large(spans, own, share.num):
            reporter.log(note)
        with _progress(reporter, f"preparing {title}", used) as progress:
            num_bytes = _write(
                text,
                (own, wanted),
                place,
                about,
                stamps if wanted else {},
                workers or count_cores(),
                progress,
                lambda: check_unchanged(text.source, described),
            )
        reporter.log(f"{title}: {num_bytes / 1e6:,.1f} MB of text are tokenized")


def _write(
    text: _Text,
    numbers: tuple[set[int], set[int]],
    place: Path,
    about: dict,
    stamps: dict[str, list[int]],
    workers: int,
    progress: Callable | None,
    check: Callable[[], None],
) -> int:
    """Writes a part; the bytes of its text.

    Args:
      numbers: of the spans that are tokenized, and of those that are read.
      stamps: the size and time of each file that is read.
    """
    own, wanted = numbers
    tally = Tally()
    documents = read_documents(text.source, wanted)
    tasks = list_tasks(documents, about, Sizes(), tally)
    card = {name: about[name] for name in (*_COMPARED, "sources")}
    return write_part(
        (task for task in tasks if task.span in own),
        make_encode(text.tokenizer, about["settings"], workers),
        text.tokenizer,
        place,
        card=card | {"stamps": stamps},
        tally=tally,
        progress=progress,
        check=check,
    )


def merge_parts(
    spec: TextSpec,
    num: int,
    to: str,
    *,
    tokenizer: Tokenizer | None = None,
    reporter: Reporter = Reporter(),
) -> Store:
    """Merges all parts of a text into its store, and removes the parts.

    The store has the same bytes as one that `prepare` writes. If the process is killed,
    the same call resumes.

    Args:
      num: of parts.
    """
    if not 1 <= num <= MAX_PARTS:
        raise DataError(f"{argument('merge')}={num}: must be from 1 to {MAX_PARTS}")
    text = _open_text(spec, tokenizer, reporter)
    root, folder = remote.fetch(place_parts(to)), remote.fetch(to)
    with _holding(folder, reporter):
        if is_store(folder):
            _is_prepared(to, text.identify(lambda path: ""))
            open_finished(folder)
        else:
            folders = [root / Share(index, num).name for index in range(num)]
            cards = _read_cards(root, folders)
            about = _join(text, cards)
            _merge(folders, cards, text, about, folder, reporter)
    with remote.hold_output(root):
        for path in sorted(root.glob("part-*-of-*")):
            disk.remove(path)
    with contextlib.suppress(OSError):
        root.rmdir()
    return open_store(folder, verify=False)


def _merge(
    folders: list[Path],
    cards: list[dict],
    text: _Text,
    about: dict,
    folder: Path,
    reporter: Reporter,
) -> None:
    reporter.log(f"merging {len(cards)} parts as {folder}")
    # With a limit, each part has counted the documents of all.
    counted = cards[:1] if text.spec.limit_chars else cards
    names = ("dropped", "truncated")
    tally = Tally(*(sum(card[name] for card in counted) for name in names))
    with _progress(reporter, f"merging {text.source.path}", 0) as progress:
        write_tasks(
            read_tasks(folders, cards),
            pass_on,
            text.tokenizer,
            folder,
            about=about,
            tally=tally,
            workers=1,
            progress=progress,
            log=reporter.log,
        )


def _find_source(spec: TextSpec) -> SourceSpec:
    check_languages(spec)
    sources = spec.sources
    if len(sources) > 1 or spec.valid_path:
        raise DataError(
            f"{argument('to')}: can hold one text; prepare the sources of data.mixture "
            "and data.valid_path one by one"
        )
    source = sources[0][0]
    if is_store(source.path):
        raise DataError(f"data.path={source.path}: is prepared already")
    return source


def _open_text(
    spec: TextSpec, tokenizer: Tokenizer | None, reporter: Reporter
) -> _Text:
    source = _find_source(spec)
    if tokenizer is None and spec.tokenizer.kind in ("file", "byte"):
        tokenizer = make_tokenizer(spec.tokenizer, ())
    elif tokenizer is None:
        tokenizer = find_tokenizer(spec, reporter, trains=False)
    if is_language(source.path):
        load_place(f"{LANGUAGE_TEXTS}:check_tokenizer")(source.path, tokenizer)
    return _Text(spec, source, tokenizer)


@contextlib.contextmanager
def _holding(place: Path, reporter: Reporter) -> Iterator[None]:
    """Keeps other processes from writing a folder; waits for one of this machine."""
    path = place.with_name(place.name + ".lock")
    waiting = f"{path}: another process prepares this text; waiting for it"
    with remote.hold_output(place), lock.hold(path, lambda: reporter.log(waiting)):
        yield


@contextlib.contextmanager
def _progress(
    reporter: Reporter, title: str, num_bytes: int
) -> Iterator[Callable | None]:
    progress = reporter.progress and reporter.progress(title, num_bytes)
    try:
        yield progress
    finally:
        if progress:
            progress(None)


def _hash_some(
    spec: TextSpec, share: Share, paths: Collection[str]
) -> Callable[[Path], str]:
    """Hashes files as `list_contents` does; "" for those that a part does not read."""
    name = re.sub(r"\W+", "-", os.path.abspath(spec.path))[-80:]
    hashes = Hashes(cache_root(spec) / "hashes" / f"{name}-{share.name}.json")

    def hash_file(path: Path) -> str:
        if str(path) not in paths:
            return ""
        digest = hashes(path)
        hashes.save()
        return digest

    return hash_file


def _describe_large(
    spans: list[tuple], own: Collection[int], num_parts: int
) -> Iterator[str]:
    """Lines on files that are not divided although the parts become uneven."""
    share = sum(count_bytes(file) for files in spans for file in files) / num_parts
    for number in sorted(own):
        for file in spans[number]:
            size = count_bytes(file)
            if size > share and not is_divisible(file.path):
                yield (
                    f"{file.path}: {size / 1e6:,.1f} MB in one part, as files of this "
                    "form are not divided; split the file for more even parts"
                )
    if spans == [()] and own and num_parts > 1:
        yield "a data set is not divided: part 0 has all of it"


def _is_prepared(to: str, about: dict) -> bool:
    """Whether the store is written; raises UserError if it is of another text."""
    path = remote.fetch(f"{to.rstrip('/')}/{CARD}")
    if not path.is_file():
        return False
    if name := _find_difference(read_card(path.parent), about):
        raise DataError(
            f"{with_urls(to)}: has a store of other {name}; use another folder or "
            "remove this one"
        )
    return True


def _is_finished(folder: Path, about: dict) -> bool:
    """Whether a part is finished; one of another text is prepared again."""
    card = read_part_card(folder)
    return card is not None and not _find_difference(card, about)


def _find_difference(card: dict, about: dict) -> str:
    """What is different in two descriptions of a text: "settings" or so; "" for none.

    A checksum that one of them lacks counts as the same.
    """
    for name in _COMPARED:
        if card[name] != about[name]:
            return name
    pairs = list(zip(card["sources"], about["sources"], strict=False))
    is_same = len(card["sources"]) == len(about["sources"])
    return "" if is_same and all(_agree(*pair) for pair in pairs) else "sources"


def _agree(one: dict, other: dict) -> bool:
    digests = {one.get("sha256"), other.get("sha256")} - {""}
    return one | {"sha256": ""} == other | {"sha256": ""} and len(digests) < 2


def _read_cards(root: Path, folders: list[Path]) -> list[dict]:
    """The cards of all parts; raises UserError if one is missing."""
    cards = [read_part_card(folder) for folder in folders]
    missing = [i for i, card in enumerate(cards) if card is None]
    if missing:
        num, listed = len(cards), ", ".join(map(str, missing[:_MAX_NAMED]))
        more = len(missing) - _MAX_NAMED
        listed += f" and {more} more" if more > 0 else ""
        raise DataError(
            f"{argument('merge')}={num}: {with_urls(root)} has no finished part "
            f"{listed} of {num}{_describe_others(root, num)}; prepare with "
            f"{argument('part')}={missing[0]}/{num}"
        )
    return [card for card in cards if card is not None]


def _describe_others(root: Path, num: int) -> str:
    names = [path.name for path in root.glob("part-*-of-*")] if root.is_dir() else []
    found = {int(m[1]) for name in names if (m := re.search(r"-of-(\d+)$", name))}
    others = sorted(found - {num})
    return f", but parts of {', '.join(map(str, others))}" if others else ""


def _join(text: _Text, cards: list[dict]) -> dict:
    """What the store of all parts is of; raises UserError if one is of another text."""
    stamps = {name: pair for card in cards for name, pair in card["stamps"].items()}
    known = {
        entry["name"]: entry["sha256"]
        for card in cards
        for entry in card["sources"]
        if entry.get("sha256")
    }
    names = text.list_paths()

    def hash_file(path: Path) -> str:
        """The checksum, which a file with the size and time of its part still has."""
        name = names[str(path)]
        is_same = stamp(path)[:2] == stamps.get(name)
        return known[name] if is_same else _hash_some(text.spec, all_, names)(path)

    all_ = Share(0, len(cards))
    about = text.identify(hash_file)
    for index, card in enumerate(cards):
        if name := _find_difference(card, about):
            which = _name_changed(card, about) if name == "sources" else ""
            raise DataError(
                f"{argument('merge')}={len(cards)}: part {index} is of other {name}"
                f"{which}; prepare it with {argument('part')}={index}/{len(cards)}"
            )
    return about


def _name_changed(card: dict, about: dict) -> str:
    pairs = zip(card["sources"], about["sources"], strict=False)
    changed = [str(new.get("name", "")) for old, new in pairs if not _agree(old, new)]
    return f": another version of {changed[0]}" if changed else ": files came or went"
