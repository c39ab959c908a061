"""Every form of data is read as documents, as a table and as zero-shot pairs alike."""

import bz2
import csv
import gzip
import io
import json
import lzma
import sys
import tarfile
import types

import pyarrow as pa
import pytest
from pyarrow import parquet

from jaxpt import trust
from jaxpt.text.labelled.tables import TableSpec, read_table
from jaxpt.text.sources import tfds_datasets
from jaxpt.text.sources.files import PACKINGS
from jaxpt.text.sources.reading import KINDS
from jaxpt.text.sources.source import SourceSpec, read_documents
from jaxpt.zero_shot.pairs import read_pairs

ROWS = [
    {"text": f'a text, {i}; "so"', "kind": kind, "good": f"g{i}", "bad": f"b {i}é"}
    for i, kind in enumerate(["x", "y", "x"])
]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)


def write_table(delimiter):
    out = io.StringIO()
    writer = csv.DictWriter(out, ROWS[0], delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    writer.writerows(ROWS)
    return out.getvalue()


def write_parquet():
    out = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(ROWS), out)
    return out.getvalue()


PACK = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: pa.compress(data, "zstd", asbytes=True),
}
PLAIN_TSV = "\n".join("\t".join(row) for row in [ROWS[0], *(r.values() for r in ROWS)])
FORMS = {
    "jsonl": LINES,
    "ndjson": LINES,
    "json": json.dumps(ROWS),
    "csv": write_table(","),
    "tsv": PLAIN_TSV,
}
FILES = {
    f"a.{form}{packing}": pack(text.encode())
    for form, text in FORMS.items()
    for packing, pack in PACK.items()
} | {"a.parquet": write_parquet()}
USES = ("documents", "table", "pairs")


def test_every_form_is_listed():
    assert set(PACK) == {"", *PACKINGS}
    forms = {f".{form}" for form in (*FORMS, "parquet")}
    assert forms | {".conll", ".conllu"} == set(KINDS)


def check(use, path, times=1, **split):
    """A path has the rows, in their order."""
    if use == "documents":
        found = list(read_documents(SourceSpec(str(path), label_field="kind")))
        result = [{"text": doc.text, "kind": doc.label} for doc in found]
        assert len({doc.name for doc in found}) == len(found)
    elif use == "table":
        columns = read_table(TableSpec(str(path), **split), ("text", "kind")).columns
        result = [
            dict(zip(columns, row, strict=True)) for row in zip(*columns.values())
        ]
    else:
        result = [
            {"good": pair.good, "bad": pair.bad} for pair in read_pairs(str(path))
        ]
    names = list(result[0])
    assert result == [{name: row[name] for name in names} for row in ROWS] * times


def write_archive(path, files):
    mode = "w:" + {".tgz": "gz", ".tar": ""}.get(path.suffix, path.suffix[1:])
    with tarfile.open(path, mode) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", FILES)
def test_files(use, name, tmp_path):
    (tmp_path / name).write_bytes(FILES[name])
    check(use, tmp_path / name)
    check(use, tmp_path / "a.*")


# A folder's CSV and TSV are not taken for text; JSON is often about the data.
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", [n for n in FILES if ".json." not in f"{n}."])
def test_folders_and_archives(use, name, tmp_path):
    if use == "documents" and (".csv" in name or ".tsv" in name):
        pytest.skip("a folder's tables are not texts, unless they are named")
    data = FILES[name]
    files = {f"in/{name}": data, f"in/b/{name}": data, "README.md": b"x", "._x": b"\0"}
    for each, content in files.items():
        (tmp_path / "folder" / each).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "folder" / each).write_bytes(content)
    check(use, tmp_path / "folder", times=2)
    for suffix in (".tar", ".tar.xz", ".tar.gz", ".tar.bz2", ".tgz"):
        write_archive(tmp_path / f"all{suffix}", files)
        check(use, tmp_path / f"all{suffix}", times=2)
        check(use, tmp_path / f"all{suffix}" / "in" / "b")
        check(use, tmp_path / f"al*{suffix}", times=2)
        (tmp_path / f"all{suffix}").unlink()


@pytest.mark.parametrize("use", USES)
def test_missing_places_are_one_line(use, tmp_path, refuses):
    write_archive(tmp_path / "a.tar", {"b/README.md": b"x"})
    (tmp_path / "a.jsonl").write_text(LINES)
    for path, parts in {
        "gone.jsonl": ["gone.jsonl: No such file"],
        "gone-*.jsonl": ["gone-*.jsonl: no file matches"],
        "a.jsonl/b": ["a.jsonl is not an archive"],
        "a.tar/c": ["a.tar/c: the archive has no such folder; it has b"],
        "a.tar": ["a.tar: ", "skipped b/README.md: files must be .", ".jsonl"],
        "a\0b": ["NUL"],
    }.items():
        with refuses(*parts):
            check(use, tmp_path / path)


class Classes:
    """A field of classes, of TFDS or the Hub."""

    def int2str(self, number):
        return "xy"[number]


class Examples(list):
    """A data set: examples with the numbers of their classes."""

    def __init__(self):
        numbers = [row | {"kind": "xy".index(row["kind"])} for row in ROWS]
        super().__init__(numbers)
        self.features = dict.fromkeys(ROWS[0]) | {"kind": Classes()}
        self.dataset_info = types.SimpleNamespace(features=self.features)


@pytest.fixture
def data_sets(monkeypatch):
    """Both libraries have the rows; returns what was opened."""
    opened = []

    def open_tfds(path, data_dir, setting):
        opened.append(path)
        return Examples()

    class Builder:
        def download_and_prepare(self):
            pass

        def as_dataset(self, split):
            opened.append(split)
            return Examples()

    module = types.ModuleType("datasets")
    module.load_dataset_builder = lambda name, config: Builder()
    monkeypatch.setitem(sys.modules, "datasets", module)
    monkeypatch.setattr(tfds_datasets, "open_tfds", open_tfds)
    return opened


@pytest.mark.parametrize("use", USES)
def test_data_sets(use, data_sets):
    trust.trust("hf:a/b")
    for path, split in (("tfds:one:test", "test"), ("hf:a/b:config:test", "test")):
        check(use, path)
        assert data_sets.pop().endswith(split)
    if use == "table":
        for path in ("tfds:one", "hf:a/b", "hf:a/b:config"):
            check(use, path, split="dev")
            assert data_sets.pop().endswith("dev")


@pytest.mark.parametrize("path", ["tfds:one", "hf:a/b", "hf:a/b:config"])
def test_a_table_of_a_data_set_names_its_split(path, data_sets, refuses):
    trust.trust("hf:a/b")
    with refuses(path, "set split, such as 'train'"):
        read_table(TableSpec(path), ())
    full = (
        f"{path}:{'' if path == 'hf:a/b' else ''}x" if path != "hf:a/b" else "hf:a/b::x"
    )
    with refuses("not both"):
        read_table(TableSpec(full, split="y"), ())
    with refuses("no column 'name'; it has"):
        read_table(TableSpec(full), ("name",))


@pytest.mark.parametrize("use", USES)
def test_a_data_set_that_is_not_named_by_the_user_is_not_opened(use, refuses):
    with refuses("hf:not/named"):
        check(use, "hf:not/named:c:test")
