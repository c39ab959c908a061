import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from jaxpt import trust
from jaxpt.text.sources import documents
from jaxpt.text.sources import parquet as parquet_rows
from jaxpt.text.sources.documents import Document
from jaxpt.text.sources.source import (
    SourceSpec,
    identify_source,
    list_contents,
    read_documents,
)

ROOT = Path(__file__).resolve().parents[3]


def read(path, **settings) -> list[Document]:
    return list(read_documents(SourceSpec(str(path), **settings)))


def test_json_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b'\xef\xbb\xbf{"text": "one", "kind": "x"}\r\n\n  \n'
        + '{"text": "\u2028two\\ud83d\\ude00", "kind": ""}'.encode()
    )
    assert read(path) == [
        Document("one", "a.jsonl:1"),
        Document("\u2028two\U0001f600", "a.jsonl:4"),
    ]
    result = read(path, text_field="kind", label_field="text")
    assert result[0] == Document("x", "a.jsonl:1", "one")
    assert result[1].text == ""  # comes too: whoever drops it counts it


def test_long_records_come_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "PART_CHARS", 4)
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one two", "kind": "x"}\n{"text": "six", "kind": "y"}')
    assert read(path, label_field="kind") == [
        Document("one", "a.jsonl:1", "x"),
        Document(" two", "a.jsonl:1", "x", is_start=False),
        Document("six", "a.jsonl:2", "y"),
    ]


@pytest.mark.parametrize(
    "line, parts",
    [
        ("{", ["line 2: not JSON", "column 2"]),
        ("[" * 100_000, ["line 2: not JSON"]),
        ('{"text": "x", "kind": "k", "n": ' + "1" * 5000 + "}", ["line 2: not JSON"]),
        ("3", ["line 2", "object"]),
        ('{"body": "x"}', ["line 2", "'text'", "data.text_field", "'body'"]),
        ("{}", ["line 2", "'text'", "data.text_field", "none"]),
        ('{"text": 3}', ["line 2", "'text'", "string", "int"]),
        ('{"text": "x"}', ["line 2", "'kind'", "data.label_field"]),
        ('{"text": "x", "kind": null}', ["line 2", "'kind'", "string"]),
        ('{"text": "x\\ud800y", "kind": "k"}', ["line 2: \\ud800 is half a surrog"]),
        ('{"text": "x", "kind": "\\udc00"}', ["line 2: \\udc00 is half a surrog"]),
    ],
)
def test_bad_json_lines(line, parts, tmp_path, refuses):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "x", "kind": "k"}) + "\n" + line)
    with refuses(f"data.path={path} ", *parts):
        read(path, label_field="kind")


def test_surrogates_of_other_fields_do_not_matter(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "x", "kind": "\\udc00"}')
    assert read(path) == [Document("x", "a.jsonl:1")]


def test_json_lines_without_documents(tmp_path, refuses):
    (tmp_path / "a.jsonl").write_text("\n \n")
    with refuses(f"data.path={tmp_path}/a.jsonl: the file has no document"):
        read(tmp_path / "a.jsonl")


@pytest.fixture
def write_parquet(tmp_path):
    """`write_parquet({"text": [...]}, ...)`: the path of a file with these columns."""

    def write(columns, name="a.parquet", **settings):
        table = columns if isinstance(columns, pa.Table) else pa.table(columns)
        parquet.write_table(table, tmp_path / name, **settings)
        return tmp_path / name

    return write


def test_parquet(write_parquet):
    texts = [f"p\u00e9 {i}\n" for i in range(10)]
    kinds = [f"k{i}" for i in range(10)]
    path = write_parquet(
        {"n": range(10), "kind": kinds, "body": texts}, row_group_size=4
    )
    result = read(path, text_field="body", label_field="kind")
    assert result == [Document(texts[i], f"a.parquet:{i}", kinds[i]) for i in range(10)]
    assert read(path, text_field="kind")[3] == Document("k3", "a.parquet:3")
    same = read(path, text_field="kind", label_field="kind")
    assert same[9] == Document("k9", "a.parquet:9", "k9")


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "brotli"])
def test_parquet_as_others_write_it(compression, write_parquet):
    texts = ["a", "", "b"] * 700  # more rows than are read at a time
    columns = {
        "text": pa.array(texts, pa.large_string()),
        "kind": pa.array(texts).dictionary_encode(),
        "a.b": pa.array(texts, pa.string_view()),
    }
    path = write_parquet(
        columns,
        compression=compression,
        data_page_version="2.0",
        write_page_checksum=True,
    )
    for field in columns:
        assert [d.text for d in read(path, text_field=field)] == texts
    names = [d.name for d in read(path, label_field="kind")]
    assert names == [f"a.parquet:{i}" for i in range(2100)]


def test_parquet_rows_at_a_time(write_parquet, monkeypatch):
    rows = []
    list_rows = parquet_rows._list_rows

    def spy(batch, *args):
        rows.append(batch.num_rows)
        return list_rows(batch, *args)

    monkeypatch.setattr(parquet_rows, "_list_rows", spy)
    long = [f"{i}" + "x" * 400_000 for i in range(10)]
    read(write_parquet({"text": long}))
    assert sum(rows) == 10 and max(rows) <= 2
    rows.clear()
    read(write_parquet({"text": ["x"] * 3000}))
    assert rows == [1024, 1024, 952]


@pytest.mark.parametrize(
    "columns, settings, parts",
    [
        (
            {"body": ["x"], "n": [1]},
            {},
            ["no field 'text' (data.text_field)", "'body'"],
        ),
        ({"text": ["x"]}, {"label_field": "k"}, ["no field 'k' (data.label_field)"]),
        ({"text": [1]}, {}, ["'text' (data.text_field) must be a string, is int64"]),
        ({"text": [b"x"]}, {}, ["must be a string, is binary"]),
        ({"text": [["x"]]}, {}, ["must be a string, is list"]),
        ({"text": ["x"], "k": [1.5]}, {"label_field": "k"}, ["'k'", "is double"]),
        (
            {"text": ["x", "y", None]},
            {},
            ["row 2: 'text'", "must be a string, is null"],
        ),
        ({"text": [None]}, {}, ["'text'", "must be a string, is null"]),
    ],
)
def test_bad_parquet_columns(columns, settings, parts, write_parquet, refuses):
    path = write_parquet(columns, row_group_size=2)
    with refuses(f"data.path={path}", *parts):
        read(path, **settings)


def test_more_bad_parquet(write_parquet, tmp_path, refuses):
    twice = pa.table([pa.array(["x"]), pa.array(["y"])], names=["text", "text"])
    with refuses("data.path", "more than one 'text' (data.text_field)"):
        read(write_parquet(twice))
    with refuses("a.parquet: the file has no document"):
        read(write_parquet({"text": pa.array([], pa.string())}))
    bytes_ = [b"ok", b"ok", b"", b"\xff"]
    wrong = pa.array(bytes_).view(pa.string())  # as writers do that never look
    path = write_parquet({"text": ["ok"] * 4, "kind": wrong}, row_group_size=2)
    with refuses(f"data.path={path} row 3: 'kind' (data.label_field) is not UTF-8"):
        read(path, label_field="kind")
    packed = tmp_path / "b.parquet.gz"
    packed.write_bytes(b"")
    with refuses(f"data.path={packed}: Parquet has its own compression; remove .gz"):
        read(packed)


def test_damaged_parquet(write_parquet, refuses):
    path = write_parquet(
        {"text": [f"text {i}" for i in range(1000)]}, write_page_checksum=True
    )
    data = path.read_bytes()
    flipped = bytearray(data)
    flipped[200] ^= 1
    for wrong in (b"", b"text", data[:-1], data[: len(data) // 2], flipped):
        path.write_bytes(wrong)
        with refuses(f"data.path={path}: damaged .parquet data: "):
            read(path)


def test_parquet_missing(tmp_path, monkeypatch, refuses):
    with refuses(f"data.path={tmp_path}/gone.parquet: No such file"):
        read(tmp_path / "gone.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with refuses("gone.parquet", "pip install pyarrow"):
        read(tmp_path / "gone.parquet")


@pytest.fixture(scope="module")
def tfds_data_dir(tmp_path_factory) -> str:
    """A folder with the data set `tiny_poems`; the builder `gone_poems` fails."""
    import tensorflow_datasets as tfds

    class TinyPoems(tfds.core.GeneratorBasedBuilder):
        """Ten short texts."""

        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {
                "text": tfds.features.Text(),
                "kind": tfds.features.ClassLabel(names=["even", "odd"]),
                "author": tfds.features.Text(),
                "number": tfds.features.Scalar(np.int64),
            }
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features)
            )

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for i in range(10):
                kind = -1 if i == 9 else i % 2
                text = f"p\u00e9 {i}"
                yield i, {"text": text, "kind": kind, "author": "A", "number": i}

    class GonePoems(TinyPoems):
        """Whose download fails."""

        def _split_generators(self, dl_manager):
            raise OSError("no network\nno poems")

    path = str(tmp_path_factory.mktemp("tfds"))
    TinyPoems(data_dir=path, file_format="array_record").download_and_prepare()
    return path


def test_tfds(tfds_data_dir):
    documents = read("tfds:tiny_poems", label_field="kind", tfds_data_dir=tfds_data_dir)
    assert sorted((d.text, d.label) for d in documents) == [
        *((f"p\u00e9 {i}", ["even", "odd"][i % 2]) for i in range(9)),
        ("p\u00e9 9", ""),
    ]
    assert documents[3].name == "tiny_poems:train:3"
    part = read("tfds:tiny_poems:train[:20%]", tfds_data_dir=tfds_data_dir)
    assert [d.text for d in part] == [d.text for d in documents[:2]]
    assert part[0].label == ""
    authors = read("tfds:tiny_poems", label_field="author", tfds_data_dir=tfds_data_dir)
    assert {d.label for d in authors} == {"A"}


def test_tfds_without_tensorflow_or_its_builder(tfds_data_dir):
    code = """
import sys
from jaxpt import trust
from jaxpt.text.sources.source import SourceSpec, read_documents
trust.trust("tfds:tiny_poems")
spec = SourceSpec("tfds:tiny_poems", tfds_data_dir=sys.argv[1])
print(len(list(read_documents(spec))))
print("tensorflow" in sys.modules, "jax" in sys.modules)
"""
    command = [sys.executable, "-c", code, tfds_data_dir]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["10", "False False"], done.stderr


def test_tfds_imports_no_module_that_a_data_set_names(
    tfds_data_dir, tmp_path, monkeypatch, refuses
):
    """A field's class in features.json, which TFDS would import."""
    import tensorflow_datasets as tfds

    data = tmp_path / "data"
    shutil.copytree(tfds_data_dir, data)
    (path,) = data.rglob("features.json")
    text = path.read_text()
    known = "tensorflow_datasets.core.features.text_feature.Text"
    assert known in text
    path.write_text(text.replace(known, "planted_features.Text", 1))
    code = "import pathlib\npathlib.Path('was_here').write_text('executed')\n"
    code += f"from {known.rpartition('.')[0]} import Text as Own\n"
    code += "class Text(Own): pass\n"
    (tmp_path / "planted_features.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    # As in a process that has the data alone, not its builder.
    monkeypatch.delitem(tfds.core.registered._DATASET_REGISTRY, "tiny_poems")
    with refuses("data.path=tfds:tiny_poems: planted_features is code outside jaxpt"):
        read("tfds:tiny_poems", tfds_data_dir=str(data))
    assert not (tmp_path / "was_here").exists()
    trust.trust("planted_features")
    assert len(read("tfds:tiny_poems", tfds_data_dir=str(data))) == 10
    assert (tmp_path / "was_here").exists()


def test_tfds_message_is_short(tfds_data_dir, refuses):
    # TFDS then lists all data sets.
    with refuses("nonesuch") as caught:
        read("tfds:nonesuch", tfds_data_dir=tfds_data_dir)
    assert "mnist" not in str(caught.value)


@pytest.mark.parametrize(
    "path, settings, parts",
    [
        ("tfds:", {}, ["data.path=tfds:"]),
        ("tfds:nonesuch", {}, ["data.path=tfds:nonesuch", "not found"]),
        ("tfds:tiny_poems:test", {}, ["data.path", "'test'", "train"]),
        ("tfds:tiny_poems:train[", {}, ["data.path", "train["]),
        ("tfds:gone_poems", {}, ["data.path=tfds:gone_poems", "no network"]),
        ("tfds:tiny_poems", {"text_field": "body"}, ["data.text_field", "author"]),
        ("tfds:tiny_poems", {"label_field": "body"}, ["data.label_field", "author"]),
        ("tfds:tiny_poems", {"text_field": "kind"}, ["data.text_field", "string"]),
        ("tfds:tiny_poems", {"label_field": "number"}, ["data.label_field", "string"]),
    ],
)
def test_bad_tfds(path, settings, parts, tfds_data_dir, refuses):
    with refuses(*parts):
        read(path, tfds_data_dir=tfds_data_dir, **settings)


def test_tfds_names_of_the_text_package(tfds_data_dir):
    # glue is registered only by `import tensorflow_datasets.text`.
    import tensorflow_datasets as tfds

    with tfds.testing.mock_data(num_examples=3):
        documents = read(
            "tfds:glue/sst2:validation",
            text_field="sentence",
            label_field="label",
            tfds_data_dir=tfds_data_dir,
        )
    assert len(documents) == 3
    assert {d.label for d in documents} <= {"negative", "positive"}


def test_tfds_missing(monkeypatch, refuses):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with refuses("data.path=tfds:glue", "pip install tensorflow-datasets"):
        read("tfds:glue")


def test_tfds_described(tfds_data_dir, refuses):
    spec = SourceSpec("tfds:tiny_poems:train[:30%]", tfds_data_dir=tfds_data_dir)
    about = {"tfds": "tiny_poems/1.0.0", "split": "train[:30%]", "records": 3}
    described, contents = identify_source(spec), list_contents(spec)
    files = described.pop("files")
    assert described == {"path": spec.path} | about and contents[0] == about
    names = [file["name"] for file in files]
    assert "features.json" in names and any("array_record" in name for name in names)
    assert names == [file["name"] for file in contents[1:]]
    folder = Path(tfds_data_dir) / "tiny_poems" / "1.0.0"
    for file in contents[1:]:
        data = (folder / file["name"]).read_bytes()
        assert file["bytes"] == len(data)
        assert file["sha256"] == hashlib.sha256(data).hexdigest()
    with refuses("data.path=tfds:nonesuch", "not found"):
        identify_source(SourceSpec("tfds:nonesuch", tfds_data_dir=tfds_data_dir))


def test_tfds_built_again_is_another_text(tfds_data_dir, tmp_path):
    """Of the same name, version and number of records."""
    root = Path(tfds_data_dir) / "tiny_poems" / "1.0.0"
    shutil.copytree(root, tmp_path / "tiny_poems" / "1.0.0")
    one = SourceSpec("tfds:tiny_poems", tfds_data_dir=tfds_data_dir)
    two = SourceSpec("tfds:tiny_poems", tfds_data_dir=str(tmp_path))
    assert list_contents(one) == list_contents(two)
    described = identify_source(two)
    (path,) = (tmp_path / "tiny_poems" / "1.0.0").glob("*array_record*")
    data = path.read_bytes()
    path.write_bytes(data.replace("p\u00e9 3".encode(), "q\u00e9 3".encode()))
    assert list_contents(one) != list_contents(two)
    assert identify_source(two) != described


def test_long_tfds_records_come_in_parts(tfds_data_dir, monkeypatch):
    monkeypatch.setattr(documents, "PART_CHARS", 2)
    result = read("tfds:tiny_poems:train[:1]", tfds_data_dir=tfds_data_dir)
    assert [d.text[:2] for d in result] == ["p\u00e9", result[1].text]
    assert [d.is_start for d in result] == [True, False]
    assert {d.name for d in result} == {"tiny_poems:train[:1]:0"}
