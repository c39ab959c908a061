"""Every form of a text file is read as what it is, or refused in a line."""

import bz2
import csv
import gzip
import io
import json
import lzma

import pyarrow as pa
import pytest
from pyarrow import parquet

from jaxpt.text.sources import files, source
from jaxpt.text.sources.files import PACKINGS, find_binary
from jaxpt.text.sources.leftovers import is_leftover
from jaxpt.text.sources.missing import WORDS
from jaxpt.text.sources.source import (
    RECORDS,
    SourceSpec,
    describe_skipped,
    read_documents,
)

PACK = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: pa.compress(data, "zstd", asbytes=True),
}
# Texts with all that a format could take for its own syntax.
TEXTS = [
    'He said "no",\nthen; left.',
    "a\tb, c\r\n\r\nd",
    "plain",
    "'1' | 2",
    'ends with "',
    "नमस्ते\u2028中\u0085文\xa0x",
]
ROWS = [{"id": i, "text": text, "kind": "ab"[i % 2]} for i, text in enumerate(TEXTS)]


def write_table(delimiter: str, end: str) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, ROWS[0], delimiter=delimiter, lineterminator=end)
    writer.writeheader()
    writer.writerows(ROWS)
    return out.getvalue()


LINES = [json.dumps(row, ensure_ascii=False) for row in ROWS]
FORMS = {
    "lines.jsonl": "\n".join(LINES),
    "lines.ndjson": "\r\n\n".join(LINES) + "\n",
    "lines.json": "\n" + "\n".join(LINES) + "\n",
    "array.json": json.dumps(ROWS),
    "indented.json": "\n " + json.dumps(ROWS, indent=2) + "\n",
    "array of lines.json": "[" + ",\n".join(LINES) + "\n]\n",
    "unix.csv": write_table(",", "\n"),
    "dos.csv": write_table(",", "\r\n"),
    "quoted.tsv": write_table("\t", "\n"),
    "dos quoted.tsv": write_table("\t", "\r\n"),
}


def read(path, **settings):
    return list(read_documents(SourceSpec(str(path), **settings)))


def test_every_packing_and_format_is_listed():
    assert set(PACK) == {"", *PACKINGS}
    assert {"." + name.rpartition(".")[2] for name in FORMS} == set(RECORDS)


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_records_of_every_format(name, packing, mark, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BLOCK_BYTES", 64 if name.endswith("json") else 1 << 16)
    path = tmp_path / (name + packing)
    path.write_bytes(PACK[packing]((mark + FORMS[name]).encode()))
    documents = read(path, label_field="kind")
    assert [document.text for document in documents] == TEXTS
    assert [document.label for document in documents] == [*"ababab"]
    assert len({document.name for document in documents}) == len(TEXTS)
    with pytest.raises(
        Exception, match=r"no field 'body' \(data.text_field\)"
    ) as error:
        read(path, text_field="body")
    assert "'id', 'text', 'kind'" in str(error.value)


def test_a_tsv_without_quoting(tmp_path):
    """As IMDB and GLUE have it: a quote is a character."""
    (tmp_path / "a.tsv").write_text('id\ttext\n1\t"No," he said.\n2\tsaid "a"\n3\t"\n')
    assert [d.text for d in read(tmp_path / "a.tsv")] == [
        '"No," he said.',
        'said "a"',
        '"',
    ]


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("a.csv", "id,text\n1,a,b\n", "line 2: has 3 fields, the first line has 2"),
        ("a.csv", 'id,text\n1,"a\nb\n', "line 2: unexpected end of data"),
        ("a.csv", "text,text\n1,a\n", "the header has 'text' twice"),
        ("a.csv", "id,text\n", "the file has no document"),
        ("a.csv", "id;text\n1;a\n", "no field 'text' (data.text_field); it has 'id;t"),
        ("a.tsv", "id\ttext\n1\ta\tb\n", "line 2: has 3 fields"),
        ("a.json", '{"text": "x"', "not JSON"),
        ("a.json", '[{"text": "x"}, 3]', "record 2: not a JSON object"),
        ("a.json", '[{"text": "x"}, {"text": null}]', "record 2: 'text'"),
        ("a.json", '["x"]', "record 1: not a JSON object"),
        ("a.json", '{"data": [{"text": "x"}]}', "'text' (data.text_field); it has 'da"),
        ("a.json", "plain text", "not JSON"),
        ("a.json", "[]", "the file has no document"),
        ("a.json", '[{"text": "\\ud800"}]', "half a surrogate pair"),
        ("a.ndjson", '{"text": "x"}\n["x"]', "line 2: not a JSON object"),
        ("a.txt", '{"text": "x"}\n{"text": "y"}\n', "has JSON, not plain text"),
        ("a.txt", '\n {"text": "x"}', "has JSON, not plain text"),
        ("a.log", '[{"text": "x"},\n{"text": "y"}]', "has JSON, not plain text"),
        ("a", '{\n  "text": "x"\n}', "has JSON, not plain text"),
        ("a.txt", "one\0two", "not text: byte 3 is a NUL"),
        *((f"a{s}", "x", "is not plain text") for s in (".pdf", ".html", ".conllu")),
        *((f"a{s}", "x", "is not plain text") for s in (".docx", ".ipynb", ".srt")),
        *((f"a{s}", "x", "is not read; convert") for s in (".arrow", ".yaml", ".pkl")),
        *((f"a{s}", "x", "an archive") for s in (".zip", ".7z")),
        *((f"a{s}", "x", "cannot be read") for s in (".tar", ".tar.zst")),
        # The lists as a whole.
        *((f"a{s}", "x", f"{s} is not plain text") for s in source._DOCUMENTS),
        *((f"a{s}", "x", f"{s} is not read; convert") for s in source._OTHER_RECORDS),
        *((f"a{s}", "x", "an archive; unpack it") for s in source._ARCHIVES),
    ],
)
def test_what_is_refused(name, text, message, tmp_path, refuses):
    (tmp_path / name).write_text(text)
    with refuses(f"data.path={tmp_path}/{name}", message):
        read(tmp_path / name)


@pytest.mark.parametrize(
    "text", ["{a} is a set, as {b}.\n", '{ "a" } or so\n', "[1] First\n", "{\n", "[{]"]
)
def test_prose_that_begins_with_a_bracket_is_text(text, tmp_path):
    (tmp_path / "a.txt").write_text(text)
    assert [document.text for document in read(tmp_path / "a.txt")] == [text]


@pytest.mark.parametrize("suffix", ["", ".txt", ".md", ".rst", ".tex", ".py", ".c"])
def test_text_of_any_other_suffix_is_plain(suffix, tmp_path):
    (tmp_path / f"a{suffix}").write_text("# a\n<b>\n")
    assert [document.text for document in read(tmp_path / f"a{suffix}")] == [
        "# a\n<b>\n"
    ]


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a", "a.json", "a.md"])
@pytest.mark.parametrize("packing", [p for p in PACK if p])
def test_packed_data_under_another_name(name, packing, tmp_path, refuses):
    (tmp_path / name).write_bytes(PACK[packing](b"text\nabc\n"))
    with refuses(f"data.path={tmp_path}/{name}: has ", " data, not text"):
        read(tmp_path / name)
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(PACK[packing](b"text\nabc\n")))
    with refuses(" data, not text"):
        read(tmp_path / f"{name}.gz")


def test_a_parquet_under_another_name(tmp_path, refuses):
    parquet.write_table(pa.table({"text": ["a"]}), tmp_path / "a.txt")
    with refuses("has Parquet data, not text"):
        read(tmp_path / "a.txt")


@pytest.mark.parametrize("kind, mark", files._SIGNATURES)
def test_each_signature(kind, mark, tmp_path, refuses):
    assert find_binary(mark + b"rest") == kind
    (tmp_path / "a.txt").write_bytes(mark + b"rest")
    with refuses(f"has {kind} data, not text"):
        read(tmp_path / "a.txt")


LEFTOVERS = [
    *(".DS_Store", "._a.txt", ".a.txt", "Thumbs.db", "desktop.ini", "_SUCCESS"),
    *("_metadata.txt", ".part-0.txt.crc", "a.txt.crc", "a.txt.sha256", "SHA256SUMS"),
    *("__MACOSX/._a.txt", "__MACOSX/a.txt", ".git/a.txt", "b/.cache/a.txt"),
    *("README.md", "README.txt", "readme.txt", "LICENSE", "LICENSE.txt", "COPYING"),
    *("a.txt~", "a.txt.tmp", "a.txt.part", ".ipynb_checkpoints/a.txt"),
]
DATA = ["a.txt", "b/a.txt", "reader.txt", "licenses-of-poetry.txt", "thumbs.txt"]


def test_leftovers_of_folders_and_globs_are_no_text(tmp_path):
    root = tmp_path / "texts"
    for name in [*LEFTOVERS, *DATA]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    assert sorted(map(is_leftover, LEFTOVERS)) == [True] * len(LEFTOVERS)
    for path in (root, f"{root}/**/*", f"{root}/**"):
        assert [d.text for d in read(path)] == sorted(DATA)
        line = describe_skipped(SourceSpec(str(path)))
        assert "files are not read: " in line
    assert f"{len(LEFTOVERS)} files" in describe_skipped(SourceSpec(str(root)))
    # A name that is spelt out is read.
    for name in ("README.md", "_SUCCESS", ".a.txt", "a.txt.crc"):
        assert [d.text for d in read(root / name)] == [name]
    assert [d.text for d in read(f"{root}/README*")] == ["README.md", "README.txt"]
    assert [d.text for d in read(f"{root}/_S*")] == ["_SUCCESS"]
    assert describe_skipped(SourceSpec("sotu")) == ""


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.parquet"])
def test_a_missing_label_is_none_or_refused(name, tmp_path, refuses):
    def write(labels):
        rows = {"text": ["x"] * len(labels), "kind": labels}
        if name == "a.parquet":
            parquet.write_table(pa.table(rows), tmp_path / name)
        elif name == "a.jsonl":
            lines = [json.dumps({"text": "x", "kind": kind}) for kind in labels]
            (tmp_path / name).write_text("\n".join(lines))
        else:
            end = "," if name == "a.csv" else "\t"
            lines = [f"x{end}{kind}" for kind in ["kind", *labels]]
            lines[0] = f"text{end}kind"
            (tmp_path / name).write_text("\n".join(lines))
        return read(tmp_path / name, label_field="kind")

    assert [document.label for document in write(["a", "", " "])] == ["a", "", ""]
    for word in sorted(WORDS):
        with refuses(
            f"data.path={tmp_path}/{name} ", "'kind' (data.label_field)", word
        ):
            write(["a", word])
