"""Records of data, and how they are read, whatever the format."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from jaxpt.by_name import ByName
from jaxpt.errors import DataError
from jaxpt.text.sources.files import split_suffixes

# The formats of files of records, by suffix.
KINDS = {
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".conll": "conll",
    ".conllu": "conllu",
}
# The kinds of data sets, with which their paths begin ("tfds:NAME"). Each module has
# `read(path, how)`, the records, and `describe(path, data_dir)`: what identifies the
# content, and its files.
DATA_SETS: ByName[Any] = ByName(
    {
        "tfds": "jaxpt.text.sources.tfds_datasets",
        "hf": "jaxpt.text.sources.hub_datasets",
    }
)


class Record(NamedTuple):
    """A record: an object of JSON, a row of a table, an example of a data set.

    Attributes:
      number: of its line (from 1), its row (from 0) or its place in an array (from 1).
      place: the same in words, for error messages.
      fields: its values by name.
      has_escapes: whether a text may have half of a surrogate pair.
      file: the path of its file or data set.
      name: the same, independent of the location.
    """

    number: int
    place: str
    fields: dict[str, Any]
    has_escapes: bool = False
    file: str = ""
    name: str = ""

    @property
    def where(self) -> str:
        """The file and the place, for error messages."""
        return f"{self.file} {self.place}"


def find_kind(name: str) -> str:
    """The format of a file by its suffix, compressed or not; "" if it has no records.

    >>> find_kind("a.jsonl.gz"), find_kind("a.txt")
    ('jsonl', '')
    """
    return KINDS.get(split_suffixes(Path(name))[0], "")


def is_data_set(path: str) -> bool:
    """Whether a path is a TFDS or Hub data set."""
    kind, colon, _ = path.partition(":")
    return bool(colon) and kind in DATA_SETS


def find_data_set(path: str) -> Any:
    """The module of `DATA_SETS` for the path of a data set."""
    return DATA_SETS[path.partition(":")[0]]


@dataclass(frozen=True)
class Reading:
    """How records are read.

    Attributes:
      setting: the text before a path in error messages, such as "data.path=".
      columns: the columns to read, each with the text after its name in error messages;
        if empty, all.
      noun: what a column is called in error messages.
      nothing: the error message for a file without a record.
      find_kind: returns the format of a file; raises UserError for one without.
      suffixes: of the files of a folder or archive that are read; if empty, all.
      is_strict: columns must be texts; text is UTF-8 without NUL, and is streamed.
      names_classes: the columns whose classes become their names; None for all.
      encoding: a Python codec, unless `is_strict`.
      header: whether the first line of a TSV or CSV names the columns.
      quoting: whether a TSV may have fields in quotes; None: its beginning decides.
      data_dir: the folder of TFDS's data sets; "" is its default.
      is_partial: only the first records are read, so that the Hub's are streamed.
    """

    setting: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    noun: str = "column"
    nothing: str = "the table has no row"
    find_kind: Callable[[str], str] = find_kind
    suffixes: tuple[str, ...] = tuple(s for s in KINDS if s != ".json")
    is_strict: bool = False
    names_classes: tuple[str, ...] | None = None
    encoding: str = "utf-8"
    header: bool = True
    quoting: bool | None = False
    data_dir: str = ""
    is_partial: bool = False

    def choose_columns(self, names: Iterable[str], where: str) -> list[str]:
        """The columns that are read, in their order in the data."""
        names = list(names)
        for column, note in self.columns.items():
            if column not in names:
                listed = ", ".join(map(repr, names)) or "none"
                if len(names) == 1 and any(mark in names[0] for mark in ",;|\t"):
                    listed += "; commas separate the columns of .csv, tabs of .tsv"
                raise DataError(
                    f"{where}: no {self.noun} {column!r}{note}; it has {listed}"
                )
        return [name for name in names if not self.columns or name in self.columns]

    def to_plain(self, value: Any, feature: Any, column: str, where: str) -> Any:
        """The built-in types of a field of a TFDS or Hub data set.

        Args:
          feature: of the field. Class -1 (no class) becomes None.
        """
        if isinstance(value, dict):
            return {
                key: self.to_plain(item, _get_part(feature, key), column, where)
                for key, item in value.items()
            }
        if isinstance(value, list) or getattr(value, "ndim", 0) > 0:
            inner = getattr(feature, "feature", feature)
            return [self.to_plain(item, inner, column, where) for item in value]
        names = self.names_classes
        if hasattr(feature, "int2str") and (names is None or column in names):
            if value is None or isinstance(value, str):
                return value
            return feature.int2str(int(value)) if value >= 0 else None
        if isinstance(value, bytes):
            try:
                return value.decode("utf-8")
            except UnicodeDecodeError as error:
                note = self.columns.get(column, "")
                raise DataError(
                    f"{where}: {column!r}{note} is not UTF-8 at byte {error.start}"
                ) from error
        return value.item() if hasattr(value, "item") else value


def _get_part(feature: Any, key: str) -> Any:
    try:
        return feature[key]
    except (KeyError, TypeError):  # a list of objects has one for each name
        return _get_part(feature.feature, key) if hasattr(feature, "feature") else None
