"""Reads records: of files, globs, folders, archives, TFDS and the Hub.

    read_records("dev-*.tsv.gz")                 rows of several files
    read_records("blimp.tar.xz/filtered")        files below a folder of an archive
    read_records("tfds:glue/sst2:validation")    a data set, here and of the Hub (hf:)

Documents, labelled tables and zero-shot data are made of these records; they differ in
`Reading` alone.
"""

import codecs
import itertools
from collections.abc import Callable, Iterable, Iterator

from jaxpt.by_name import ByName, load_place
from jaxpt.errors import DataError
from jaxpt.files import schema
from jaxpt.text.sources.delimited import (
    has_quoted_fields,
    name_fields,
    split_csv,
    split_tsv,
)
from jaxpt.text.sources.files import read_lines, read_text, read_whole, reading
from jaxpt.text.sources.json_records import read_json, read_json_lines
from jaxpt.text.sources.places import File, find_files, open_files
from jaxpt.text.sources.reading import Reading, Record, find_data_set, is_data_set
from jaxpt.text.sources.spans import find_bounds


def read_records(path: str, how: Reading) -> Iterator[Record]:
    """Reads the records of a path, always in the same order.

    Args:
      path: a file, a glob, a folder, a tar archive or a folder in one, "tfds:NAME" or
        "hf:NAME". Files are decompressed by their suffix.
    """
    if is_data_set(path):
        yield from _check_some(find_data_set(path).read(path, how), path, how)
    else:
        for file in find_files(path, how)[0]:
            for each in open_files(file, how):
                yield from read_file(each, how)


def read_file(file: File, how: Reading) -> Iterator[Record]:
    """Reads the records of one file."""
    try:
        kind = how.find_kind(str(file.path))
    except DataError:
        if file.data is None:
            with reading(file.path, how.setting):
                file.path.stat()  # that it is missing says more
        raise
    if kind == "parquet":
        records = load_place("jaxpt.text.sources.parquet:read_parquet")(file, how)
    else:
        parse = FORMATS[kind] if kind in FORMATS else _parse_whole(ANNOTATED[kind])
        place = f"{how.setting}{file.path}"
        if file.start:  # its line numbers are not known
            place += f" from byte {file.start}"
        records = parse(_read_text(file, how), place, how)
    path, name = str(file.path), file.name
    named = (record._replace(file=path, name=name) for record in records)
    yield from named if file.stop is not None else _check_some(named, path, how)


def _check_some(records: Iterator[Record], path: str, how: Reading) -> Iterator[Record]:
    """Yields the records; raises UserError if there are none."""
    first = next(records, None)
    if first is None:
        raise DataError(f"{how.setting}{path}: {how.nothing}")
    yield first
    yield from records


def _read_text(file: File, how: Reading) -> Iterator[str]:
    """A file as text: in blocks, or as a whole in an encoding."""
    if how.is_strict:
        yield from read_text(file.path, file.data, find_bounds(file, "line"))
        return
    encoding, where, data = how.encoding, f"{how.setting}{file.path}", file.data
    try:
        codecs.lookup(encoding)
        if data is None:
            data = read_whole(file.path, how.setting)
        yield data.decode(encoding).removeprefix("\ufeff")
    except LookupError as error:
        raise DataError(f"encoding={encoding!r}: must be a codec of Python") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{where} line {line}: not {encoding} ({error.reason}): set encoding, "
            "such as 'latin-1'"
        ) from error
    except ValueError as error:  # of a name with NUL, or of a codec such as idna
        raise DataError(f"{where}: encoding={encoding!r}: {error}") from error


def _read_json(blocks: Iterable[str], where: str, how: Reading) -> Iterator[Record]:
    """Objects; in tables also SQuAD's JSON."""
    if how.is_strict:
        yield from read_json(blocks, where)
        return
    text = "".join(blocks)
    for record in read_json([text], where):
        if isinstance(record.fields.get("data"), list):
            yield from ANNOTATED["squad"](text, where)
            return
        yield record


def _read_csv(blocks: Iterable[str], where: str, how: Reading) -> Iterator[Record]:
    return _name(split_csv(_list_lines(blocks), where, ","), where, how)


def _read_tsv(blocks: Iterable[str], where: str, how: Reading) -> Iterator[Record]:
    """The rows of a TSV, in which fields may be in quotes if `how.quoting`."""
    blocks = iter(blocks)
    is_quoted, head = how.quoting, next(blocks, "")
    if is_quoted is None:
        is_quoted = has_quoted_fields(head)
    lines = _list_lines(itertools.chain([head], blocks))
    rows = split_csv(lines, where, "\t") if is_quoted else split_tsv(lines)
    return _name(rows, where, how)


def _list_lines(blocks: Iterable[str]) -> Iterator[str]:
    return (line for line, _ in read_lines(blocks, schema.MAX_BYTES))


def _name(
    rows: Iterable[tuple[int, list[str]]], where: str, how: Reading
) -> Iterator[Record]:
    """Rows of fields as records; the first must have all columns."""
    is_first = True
    for number, fields in name_fields(rows, where, how.header):
        if is_first:
            try:
                how.choose_columns(fields, where)
            except DataError as error:
                hint = "" if how.header else " (header=False numbers them)"
                raise DataError(f"{error}{hint}") from None
        is_first = False
        yield Record(number, f"line {number}", fields)


Parse = Callable[[Iterable[str], str, Reading], Iterator[Record]]


def _parse_whole(parse: Callable[[str, str], Iterator[Record]]) -> Parse:
    """A parser of blocks, from a parser of a whole text."""
    return lambda blocks, where, how: parse("".join(blocks), where)


# The parsers of text files by format, and those of whole annotated texts.
FORMATS: dict[str, Parse] = {
    "tsv": _read_tsv,
    "csv": _read_csv,
    "jsonl": lambda blocks, where, how: read_json_lines(blocks, where),
    "json": _read_json,
}
ANNOTATED: ByName[Callable[[str, str], Iterator[Record]]] = ByName(
    {
        "squad": "jaxpt.text.sources.annotated:read_squad",
        "conll": "jaxpt.text.sources.annotated:read_conll",
        "conllu": "jaxpt.text.sources.annotated:read_conllu",
        "label_text": "jaxpt.text.sources.annotated:split_labels",
        "sts": "jaxpt.text.sources.annotated:name_sts",
    }
)
