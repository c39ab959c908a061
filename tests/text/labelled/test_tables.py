"""Tables of labelled examples: real files as they are, and every format made here."""

import gzip
import json
import lzma

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from shared import find_shared

from jaxpt.errors import UserError
from jaxpt.files import disk
from jaxpt.text.labelled.tables import TableSpec, read_table


def read(path, columns=(), **settings):
    return read_table(TableSpec(str(path), **settings), columns)


def shared(path):
    return find_shared(f"downstream/{path}", "that tables of real tasks are read whole")


# Counts of shared/reference/downstream.md, section 0.
@pytest.mark.parametrize(
    "path, num, column, counts, settings",
    [
        ("cola/in_domain_train.tsv", 8551, "1", {"1": 6023}, {"header": False}),
        ("cola/*_domain_dev.tsv", 1043, "1", {}, {"header": False}),
        ("sst2/train.tsv.xz", 67349, "label", {"1": 37569}, {}),
        ("sst2/dev.tsv", 872, "label", {"1": 444}, {}),
        ("mrpc/msr-para-train.tsv", 3576, "Quality", {"1": 2407}, {}),
        ("mrpc/msr-para-val.tsv", 500, "Quality", {"1": 346}, {}),
        ("mrpc/msr-para-test.tsv", 1725, "Quality", {"1": 1147}, {}),
        ("ag-news/train-10k.tsv.xz", 10001, "1", {}, {"header": False}),
        ("ag-news/test.csv.xz", 7600, "0", {"1": 1900, "4": 1900}, {"header": False}),
        ("boolq/validation.jsonl.xz", 3270, "answer", {True: 2033}, {}),
        ("babylm-glue/rte.valid.jsonl.xz", 139, "label", {}, {}),
        ("wnli/val.tsv", 117, "3", {}, {"header": False}),
        ("sentence-classification/TREC.train.all", 5452, "label", {}, "latin-1"),
        ("sentence-classification/rt-polarity.all.xz", 10662, "label", {}, "latin-1"),
        ("wikisplit/tune.tsv.xz", 5000, "0", {}, {"header": False}),
        ("dialogsum/dialogsum.test.jsonl.xz", 500, "summary3", {}, {}),
    ],
)
def test_real_files(path, num, column, counts, settings):
    shared(path.replace("*", "in"))
    if settings == "latin-1":
        settings = {"format": "label_text", "encoding": "latin-1"}
    place = shared(path.partition("/")[0]) / path.partition("/")[2]
    table = read(place, [column], **settings)
    assert len(table) == num == len(table.places)
    assert list(table.columns) == [column]
    for value, count in counts.items():
        assert table.columns[column].count(value) == count


def test_mrpc_keeps_quotes_and_drops_the_byte_order_mark_and_carriage_returns():
    table = read(shared("mrpc/msr-para-train.tsv"))
    assert list(table.columns) == [
        "Quality",
        "#1 ID",
        "#2 ID",
        "#1 String",
        "#2 String",
    ]
    assert '"the witness", of' in table.columns["#1 String"][0]
    assert not any(text.endswith("\r") for text in table.columns["#2 String"])


def test_wnut17_ends_sentences_at_lone_tabs():
    for name, num in (
        ("wnut17train.conll", 3394),
        ("emerging.dev.conll", 1009),
        ("emerging.test.annotated", 1287),
    ):
        table = read(shared(f"wnut17/{name}"), ["0", "1"], format="conll")
        assert len(table) == num
        tags = {tag for sentence in table.columns["1"] for tag in sentence}
        assert len(tags - {"O"}) == 12
        pairs = zip(*table.columns.values(), strict=True)
        assert all(len(words) == len(tags) for words, tags in pairs)


def test_formats_give_the_same_table(tmp_path):
    texts, labels = ["a\tb", 'said "no"', "p\u00e9, x"], ["1", "0", "1"]
    rows = [{"text": t, "label": y} for t, y in zip(texts, labels)]
    quoted = ['"' + t.replace('"', '""') + '"' for t in texts]
    lines = {
        "a.tsv": "\n".join(["text\tlabel", *map("\t".join, zip(quoted, labels))]),
        "a.csv": "\r\n".join(["text,label", *map(",".join, zip(quoted, labels)), ""]),
        "a.jsonl": "\n".join(json.dumps(row) for row in rows) + "\n\n",
    }
    made = {name: text.encode() for name, text in lines.items()}
    made["b.csv.gz"] = gzip.compress(made["a.csv"])
    made["b.jsonl.xz"] = lzma.compress(b"\xef\xbb\xbf" + made["a.jsonl"])
    for name, data in made.items():
        (tmp_path / name).write_bytes(data)
    pyarrow.parquet.write_table(
        pyarrow.table({"text": texts, "label": labels}), tmp_path / "a.parquet"
    )
    for name in [*made, "a.parquet"]:
        settings = {"quoting": True} if name == "a.tsv" else {}
        table = read(tmp_path / name, ["label", "text"], **settings)
        assert table.columns == {"label": labels, "text": texts}, name
    both = read(tmp_path / "*.jsonl*")
    assert both.columns["text"] == [*texts, *texts]
    assert both.where(3) == f"{tmp_path}/b.jsonl.xz line 1"


def test_without_names_rows_may_lack_a_column(tmp_path):
    """As JSON lines with one to several references have it."""
    (tmp_path / "a.jsonl").write_text('{"a": 1, "b": 2}\n{"a": 3}\n{"a": 4, "c": 5}')
    assert read(tmp_path / "a.jsonl").columns == {
        "a": [1, 3, 4],
        "b": [2, None, None],
        "c": [None, None, 5],
    }


def test_conll_of_several_columns(tmp_path):
    text = "-DOCSTART- -X- O\n\nEU NNP B-ORG\nrejects VBZ O\n \nPeter NNP B-PER"
    (tmp_path / "a.conll").write_text(text)
    table = read(tmp_path / "a.conll", ["0", "2"])
    assert table.columns == {
        "0": [["EU", "rejects"], ["Peter"]],
        "2": [["B-ORG", "O"], ["B-PER"]],
    }
    assert [table.where(i)[-6:] for i in (0, 1)] == ["line 3", "line 6"]


def test_squad(tmp_path):
    answers = [{"text": "b", "answer_start": 2}, {"text": "b c", "answer_start": 2}]
    first = {"id": "q1", "question": "What?", "answers": answers}
    second = {"id": "q2", "question": "Who?", "answers": [], "is_impossible": True}
    article = {
        "title": "T",
        "paragraphs": [{"context": "a b c", "qas": [first, second]}],
    }
    (tmp_path / "a.json").write_text(json.dumps({"version": "v2.0", "data": [article]}))
    table = read(tmp_path / "a.json")
    assert table.columns["answers"][0] == {"text": ["b", "b c"], "answer_start": [2, 2]}
    assert table.columns["context"] == ["a b c"] * 2
    assert table.columns["is_impossible"] == [False, True]


@pytest.fixture(scope="module")
def tfds_data_dir(tmp_path_factory) -> str:
    """A folder with the data set `tiny_tags` of two splits."""
    import tensorflow_datasets as tfds

    kind = tfds.features.ClassLabel(names=["O", "B-PER"])
    features = {
        "tokens": tfds.features.Sequence(tfds.features.Text()),
        "tags": tfds.features.Sequence(kind),
        "kind": kind,
        "score": tfds.features.Scalar(np.float32),
        "answers": tfds.features.Sequence({"text": tfds.features.Text()}),
    }

    class TinyTags(tfds.core.GeneratorBasedBuilder):
        """Three sentences."""

        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            made = tfds.features.FeaturesDict(features)
            return tfds.core.DatasetInfo(builder=self, features=made)

        def _split_generators(self, dl_manager):
            make = self._generate_examples
            return {"train": make(2), "validation": make(1)}

        def _generate_examples(self, num):
            for i in range(num):
                yield (
                    i,
                    {
                        "tokens": ["p\u00e9", "b"],
                        "tags": ["O", "B-PER"],
                        "kind": -1 if i else "B-PER",
                        "score": 0.5,
                        "answers": [{"text": "x"}, {"text": "y"}],
                    },
                )

    path = str(tmp_path_factory.mktemp("tfds"))
    TinyTags(data_dir=path, file_format="array_record").download_and_prepare()
    return path


def test_tfds(tfds_data_dir):
    table = read("tfds:tiny_tags", split="train", data_dir=tfds_data_dir)
    assert table.columns == {
        "tokens": [["p\u00e9", "b"]] * 2,
        "tags": [["O", "B-PER"]] * 2,
        "kind": ["B-PER", None] if table.columns["kind"][0] else [None, "B-PER"],
        "score": [0.5, 0.5],
        "answers": [{"text": ["x", "y"]}] * 2,
    }
    part = read("tfds:tiny_tags:train[:50%]", ["kind"], data_dir=tfds_data_dir)
    assert len(part) == 1 and part.where(0) == "tfds:tiny_tags:train[:50%] record 0"
    with pytest.raises(UserError, match="'kind' must be text, is null"):
        table.texts("kind")
    for settings, column, message in (
        ({}, "kind", "set split"),
        ({"split": "test"}, "kind", "'test'"),
        ({"split": "train"}, "label", "no column 'label'; it has 'answers', 'kind'"),
    ):
        with pytest.raises(UserError, match=message) as caught:
            read("tfds:tiny_tags", [column], data_dir=tfds_data_dir, **settings)
        assert "data.path" not in str(caught.value)


FAULTS = [
    ("a.tsv", "text\tlabel\nx\t1\ny\n", {}, "a.tsv line 3: has 1 fields, .* has 2"),
    ("a.tsv", "text\tlabel\nx\t1\t2\n", {}, "a.tsv line 2: has 3 fields"),
    (
        "a.tsv",
        "text\tclass\nx\t1\n",
        {},
        "a.tsv: no column 'label'; it has 'text', '",
    ),
    (
        "a.tsv",
        "x\t1\n",
        {"header": False},
        "no column 'text'; .*'0', '1' .header",
    ),
    ("a.tsv", "text\ttext\nx\t1\n", {}, "the header has 'text' twice"),
    ("a.tsv", "text\tlabel\n\n", {}, "a.tsv: the table has no row"),
    ("a.tsv", "", {}, "a.tsv: the table has no row"),
    ("a.csv", 'text,label\n"x\n\n1",2\n"y,3\n', {}, "a.csv line 5: unexpected end"),
    ("a.csv", "text,label\n", {"quoting": True}, "quoting=True is a setting of tsv"),
    ("a.jsonl", '{"text": "x", "label": 1}\n[1]', {}, "line 2: not a JSON object"),
    ("a.jsonl", '{"text": "x", "label": 1}\n{', {}, "line 2: not JSON"),
    ("a.jsonl", '{"text": "x", "label": 1}\n{"text": 1}', {}, "2: no column 'label'"),
    ("a.jsonl", "{}", {"header": False}, "header=False is a setting of tsv, csv only"),
    ("a.json", '{"text": "x"}', {}, "a.json line 1: no column 'label'; it has 'te"),
    ("a.json", '{"text": "x"}', {"format": "squad"}, "0: not SQuAD's .*='json'"),
    ("a.json", '{"data": [{"text": "x"}]}', {}, "question 0: not SQuAD's JSON"),
    ("a.json", '[{"text": "x", "label": 1}, 3]', {}, "record 2: not a JSON object"),
    ("a.json", '{"text": "x"}\n{"text": "x"}', {}, "line 1: no column 'label'"),
    ("a.json", '{"text": \n"x"}\n{"text": "x"}', {}, "a.json: not JSON"),
    ("a.ndjson", '{"text": "x"', {}, "a.ndjson line 1: not JSON"),
    ("a.conll", "a B\nc\n", {}, "a.conll line 2: must have 2 fields"),
    ("a.conll", "a\tB\n\tc\n", {}, "a.conll line 2: must have 2 fields"),
    ("a.txt", "1 x\n0\n", {"format": "label_text"}, "a.txt line 2: must be a label"),
    ("a.csv", "a\tb\n", {"format": "sts"}, "a.csv line 1: has 2 fields between tabs"),
    ("a.txt", "1 x", {}, "set format, the suffix is none of .tsv"),
    ("a.tsv", "x", {"format": "excel"}, "format='excel': must be one of auto, tsv"),
    ("a.tsv", "x", {"format": "tfds"}, "format='tfds' does not go with"),
    ("a.tsv", "x", {"encoding": "klingon"}, "encoding='klingon': must be a codec"),
    ("a.tsv", b"text\tlabel\nx\t\xe9\n", {}, "a.tsv line 2: not utf-8 .*latin-1"),
    ("a.tsv.xz", b"no", {}, "a.tsv.xz: (truncated|damaged) .xz data"),
    ("a.parquet", b"no", {}, "a.parquet: damaged .parquet data"),
]


@pytest.mark.parametrize("name, text, settings, message", FAULTS)
def test_faults_are_one_line(tmp_path, name, text, settings, message):
    data = text if isinstance(text, bytes) else text.encode()
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError, match=message) as caught:
        read(tmp_path / name, ["text", "label"], **settings)
    assert "data.path" not in str(caught.value)


def test_missing_files(tmp_path):
    with pytest.raises(UserError, match="No such file"):
        read(tmp_path / "a.tsv")
    with pytest.raises(UserError, match="no file matches"):
        read(tmp_path / "*.tsv")
    with pytest.raises(UserError, match="path=''"):
        read_table(TableSpec(), [])


def test_a_parquet_that_is_too_large_is_refused(tmp_path, monkeypatch, refuses):
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": ["x"] * 1000}), path)
    assert len(read_table(TableSpec(str(path)), ["text"])) == 1000
    monkeypatch.setattr(disk, "WHOLE_BYTES", 50)
    with refuses(f"{path}: is larger than"):
        read_table(TableSpec(str(path)), ["text"])
