"""A text prepared in parts: the same bytes as on one machine, whatever happens."""

import dataclasses
import functools
import gzip
import hashlib
import json
import os
import random
import subprocess
import sys
import tarfile
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from stores import killed_at, machine, new_url, read_all

from jaxpt.cli.main import main
from jaxpt.errors import UserError
from jaxpt.files import lock, remote
from jaxpt.text import library, parts
from jaxpt.text.library import open_stores
from jaxpt.text.parts import merge_parts, place_parts, prepare_part
from jaxpt.text.sources import source, spans
from jaxpt.text.sources.documents import PART_CHARS, Document
from jaxpt.text.sources.source_spec import SourceSpec
from jaxpt.text.stores.parts import Share
from jaxpt.text.stores.prepare import Reporter, prepare, write_tasks
from jaxpt.text.stores.store import open_store
from jaxpt.text.stores.tasks import Sizes, make_tasks
from jaxpt.text.stores.writing import TextDigest
from jaxpt.text.text_spec import TextSpec
from jaxpt.text.tokens.tokenizer import TokenizerSpec

ROOT = Path(__file__).resolve().parents[2]
SMALL = Sizes(task_chars=300, task_texts=9, commit_bytes=900, shard_tokens=2500)
WORDS = ["one", "two.", "drei!", "viér", '"So."', "6", "😀", "中文。", "= A =", "b\t"]
BYTES = TokenizerSpec("byte", specials=("eos",))
BPE = TokenizerSpec("bpe", vocab_size=300, specials=("eos", "unk"))
COUNTS = (1, 2, 3, 7, 20)  # of parts; the last are more than there are spans


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    """Small spans, tasks and shards, and a cache of the test's own."""
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("JAXPT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(spans, "SPAN_BYTES", 700)
    monkeypatch.setattr(parts, "Sizes", lambda: SMALL)
    monkeypatch.setattr(
        parts, "write_tasks", functools.partial(write_tasks, sizes=SMALL)
    )
    monkeypatch.setattr(library, "prepare", functools.partial(prepare, sizes=SMALL))


def make_text(rng, num):
    spaces = [" ", " ", "  ", "\n", "\n\n", " \n", "\r\n", "\n= B =\n", "\n \n"]
    pairs = ((rng.choice(WORDS), rng.choice(spaces)) for _ in range(num))
    return "".join(word + space for word, space in pairs)


def make_records(rng, num):
    lengths = [0, 1, 3, 30, 200]
    return [
        {
            "text": make_text(rng, rng.choice(lengths)),
            "label": rng.choice(["", "b", "a"]),
        }
        for _ in range(num)
    ]


def write_plain(folder, rng):
    """Files of all sizes, of which some share a span and one has many."""
    folder.mkdir()
    for name, num in {"a": 1, "b": 900, "c": 3, "d": 2, "e": 150, "f": 40}.items():
        text = make_text(rng, num).encode()
        (folder / f"{name}.txt").write_bytes(text)
    return str(folder)


def write_records(folder, rng):
    folder.mkdir()
    for name, num in {"a": 1, "b": 60, "c": 3}.items():
        lines = [json.dumps(record) for record in make_records(rng, num)]
        lines.insert(num // 2, "")
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n" * (num % 2))
    packed = "\n".join(json.dumps(record) for record in make_records(rng, 30))
    (folder / "d.jsonl.gz").write_bytes(gzip.compress(packed.encode()))
    table = pyarrow.Table.from_pylist(make_records(rng, 50))
    pyarrow.parquet.write_table(table, folder / "e.parquet", row_group_size=7)
    return str(folder)


def write_table(folder, rng):
    path = folder.with_name("t.csv")
    rows = (f'"{make_text(rng, 20)}"'.replace('"So."', "So") for _ in range(30))
    path.write_text("text\n" + "\n".join(rows))
    return str(path)


def write_archive(folder, rng):
    write_plain(folder, rng)
    path = folder.with_name("t.tar.gz")
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, ".")
    return str(path)


LABELS = {"label_field": "label"}
CASES = {
    "one long document": (write_plain, {"sentences": "punctuation"}),
    "lines": (write_plain, {"documents": "line", "sentences": "lines"}),
    "paragraphs": (write_plain, {"documents": "paragraph"}),
    "matches": (write_plain, {"documents": "start:^= . =$"}),
    "headings": (write_plain, {"documents": "heading:^= . =$"}),
    "a document in few matches": (write_plain, {"documents": "start:^Z"}),
    "records": (write_records, LABELS | {"sentences": "punctuation"}),
    "a table": (write_table, {}),
    "an archive": (write_archive, {"documents": "line"}),
    "a limit": (write_plain, {"limit_chars": 3000, "heldout_chars": 700}),
    "a limit on records": (
        write_records,
        LABELS | {"limit_chars": 4000, "heldout_chars": 3, "sentences": "lines"},
    ),
}


def make_spec(tmp_path, case, tokenizer=BYTES):
    write, settings = CASES[case]
    path = write(tmp_path / "text", random.Random(case))
    return TextSpec(path=path, tokenizer=tokenizer, **settings)


def read_folder(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def prepare_alone(spec, folder):
    open_stores(spec, folder=folder, workers=1)
    return read_folder(folder)


def prepare_all(spec, num, to, order=None, **rest):
    for index in order or range(num):
        prepare_part(spec, Share(index, num), str(to), workers=1, **rest)
    return merge_parts(spec, num, str(to), **rest)


def list_documents(spec):
    """The texts and labels of all documents, joined if they are in parts."""
    documents = []
    for doc in source.read_documents(spec):
        if doc.is_start:
            documents.append([doc.text, doc.label])
        else:
            documents[-1][0] += doc.text
    return documents


# Spans: no document is lost, doubled or cut.


@pytest.mark.parametrize("case", CASES)
def test_spans_have_all_documents(tmp_path, monkeypatch, case):
    path, kept = CASES[case][0], {"documents", "label_field"}
    rng = random.Random(case)
    settings = {k: v for k, v in CASES[case][1].items() if k in kept}
    for number in range(3):
        place = tmp_path / str(number) / "text"
        place.parent.mkdir()
        spec = SourceSpec(path(place, rng), **settings)
        monkeypatch.setattr(spans, "SPAN_BYTES", 1 << 30)
        (whole,) = source.list_spans(spec)
        expected = list_documents(spec)
        assert all(file.stop is None for file in whole)
        for size in (61, 300, 2000):
            monkeypatch.setattr(spans, "SPAN_BYTES", size)
            assert list_documents(spec) == expected, f"{number} {size}"
            together = []
            for span in range(len(source.list_spans(spec))):
                read = source.read_documents(spec, {span})
                together += [(doc.text, doc.is_start, doc.before) for doc in read]
            alone = source.read_documents(spec)
            assert together == [(doc.text, doc.is_start, doc.before) for doc in alone]


def test_spans_are_small_and_have_neighbours(tmp_path):
    spec = make_spec(tmp_path, "lines")
    listed = source.list_spans(spec.source(spec.path))
    sizes = [sum(map(spans.count_bytes, files)) for files in listed]
    total = sum(path.stat().st_size for path in (tmp_path / "text").iterdir())
    assert sum(sizes) == total and max(sizes) <= 700 and len(sizes) > 8
    assert max(map(len, listed)) > 1  # of small files
    for num in COUNTS:
        chosen = [Share(index, num).choose(sizes, False) for index in range(num)]
        assert sorted(n for numbers in chosen for n in numbers) == [*range(len(sizes))]
        held = [sum(sizes[n] for n in numbers) for numbers in chosen]
        assert max(held) <= total / num + 700


def test_a_document_cut_between_spans_has_the_same_tokens(tmp_path, monkeypatch):
    for tokenizer in (BYTES, BPE):
        case = "one long document"
        (tmp_path / tokenizer.kind).mkdir()
        spec = make_spec(tmp_path / tokenizer.kind, case, tokenizer)
        prepare_alone(spec, tmp_path / tokenizer.kind / "cut")
        with monkeypatch.context() as patch:
            patch.setattr(spans, "SPAN_BYTES", PART_CHARS)
            prepare_alone(spec, tmp_path / tokenizer.kind / "whole")
        one, other = (
            open_store(tmp_path / tokenizer.kind / name) for name in ("cut", "whole")
        )
        assert one.fingerprint == other.fingerprint


def test_faults_of_a_piece_name_its_place(tmp_path, refuses):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a b"}\n' * 100 + "{]\n")
    spec = SourceSpec(str(path))
    with refuses(f"data.path={path} from byte 1400 line 13"):
        list_documents(spec)
    path = tmp_path / "b.txt"
    path.write_bytes(b"a b " * 400 + b"\xff")
    with refuses(f"data.path={path}: not UTF-8 at byte 1600"):
        list_documents(SourceSpec(str(path)))
    path.write_bytes(b"a b " * 400 + b"\0")
    with refuses(f"data.path={path}: not text: byte 1600 is a NUL"):
        list_documents(SourceSpec(str(path)))


def test_the_digest_of_a_text_has_all_spans():
    texts = ["one", "two", "three", "four"]
    documents = [
        Document(text, "", span=span)
        for text, span in zip(texts, (0, 0, 2, 5), strict=True)
    ]
    total = TextDigest()
    for task in make_tasks(((doc, False) for doc in documents), "", SMALL):
        total.add(task)
    heads = [f"10 {len(text)} ''\n{text}" for text in texts]
    expected = ""
    for part in ("".join(heads[:2]), heads[2], heads[3]):
        digest = hashlib.sha256(part.encode()).hexdigest()
        pair = expected + digest
        expected = hashlib.sha256(pair.encode()).hexdigest() if expected else digest
    assert total.value == expected


# Parts and their merge: the bytes of the store of one machine.


@pytest.mark.parametrize("case", CASES)
def test_any_number_of_parts_gives_the_same(tmp_path, case):
    spec = make_spec(tmp_path, case)
    expected = prepare_alone(spec, tmp_path / "alone")
    for num in COUNTS:
        order = random.Random(num).sample(range(num), num)
        prepare_all(spec, num, tmp_path / f"s{num}", order)
        assert read_folder(tmp_path / f"s{num}") == expected, num
        assert {path.name for path in tmp_path.glob("s*")} == {f"s{num}"}
        assert prepare_alone(spec, tmp_path / f"s{num}") == expected  # opens it
        os.rename(tmp_path / f"s{num}", tmp_path / "cache" / f"s{num}")


@pytest.mark.parametrize(
    "tokenizer",
    [
        TokenizerSpec("char", specials=("eos",)),
        BPE,
        TokenizerSpec("wordpiece", vocab_size=200, specials=("unk",), lowercase=True),
        TokenizerSpec("unigram", vocab_size=200, specials=("unk", "eos")),
    ],
    ids=lambda tokenizer: tokenizer.kind,
)
@pytest.mark.parametrize("case", ["one long document", "records"])
def test_any_tokenizer_gives_the_same(tmp_path, tokenizer, case):
    spec = make_spec(tmp_path, case, tokenizer)
    with pytest.raises(UserError, match="is not trained yet"):
        prepare_part(spec, Share(0, 2), str(tmp_path / "s"))
    expected = prepare_alone(spec, tmp_path / "alone")  # trains it into the cache
    prepare_all(spec, 3, tmp_path / "s")
    assert read_folder(tmp_path / "s") == expected


def test_workers_give_the_same(tmp_path):
    spec = make_spec(tmp_path, "records")
    expected = prepare_alone(spec, tmp_path / "alone")
    for index in range(2):
        prepare_part(spec, Share(index, 2), str(tmp_path / "s"), workers=2)
    merge_parts(spec, 2, str(tmp_path / "s"))
    assert read_folder(tmp_path / "s") == expected


def test_a_finished_part_is_not_repeated(tmp_path, monkeypatch):
    spec, lines = make_spec(tmp_path, "lines"), []
    to, reporter = str(tmp_path / "s"), Reporter(lines.append)
    prepare_part(spec, Share(0, 2), to, workers=1)
    with monkeypatch.context() as patch:
        patch.setattr(parts, "write_part", None)
        prepare_part(spec, Share(0, 2), to, reporter=reporter)
    assert lines == [f"part 0/2 of {spec.path}: is prepared already"]
    # Unless it is of something else.
    other = dataclasses.replace(spec, sentences="punctuation")
    expected = prepare_alone(other, tmp_path / "other")
    prepare_all(other, 2, to)
    assert read_folder(tmp_path / "s") == expected
    # After the merge no part is prepared.
    with monkeypatch.context() as patch:
        patch.setattr(parts, "write_part", None)
        prepare_part(other, Share(1, 2), to, reporter=reporter)
        merge_parts(other, 2, to)
    assert not Path(place_parts(to)).exists()


def test_files_are_hashed_by_the_parts_that_read_them(tmp_path, monkeypatch):
    spec, to = make_spec(tmp_path, "lines"), tmp_path / "s"
    for index in range(7):
        prepare_part(spec, Share(index, 7), str(to), workers=1)
    cards = [
        json.loads(path.read_text())
        for path in sorted(Path(place_parts(str(to))).glob("*/card.json"))
    ]
    hashed = [
        [each["name"] for each in card["sources"] if each["sha256"]] for card in cards
    ]
    assert sum(map(len, hashed)) < 20 and {"a.txt", "f.txt"} <= set(sum(hashed, []))
    # The merge hashes only files that seem to have changed.
    monkeypatch.setattr(parts, "Hashes", None)
    merge_parts(spec, 7, str(to))


# Refusals, each a line.


def test_a_merge_without_all_parts(tmp_path, refuses):
    spec, to = make_spec(tmp_path, "lines"), str(tmp_path / "s")
    with refuses("merge=3", "no finished part 0, 1, 2 of 3", "part=0/3"):
        merge_parts(spec, 3, to)
    prepare_part(spec, Share(1, 3), to, workers=1)
    with refuses(f"{to}.parts has no finished part 0, 2 of 3", "part=0/3"):
        merge_parts(spec, 3, to)
    with refuses("no finished part 0, 1, 2, 3 of 4, but parts of 3"):
        merge_parts(spec, 4, to)
    with refuses("part 0, 1, 2, 3, 4, 5, 6, 7 and 92 more of 100"):
        merge_parts(spec, 100, to)
    for num in (0, -1, 10_001):
        with refuses(f"merge={num}: must be from 1 to 10000"):
            merge_parts(spec, num, to)
    assert not (tmp_path / "s").exists()


def test_a_merge_of_parts_of_other_things(tmp_path, refuses):
    spec, to = make_spec(tmp_path, "lines"), str(tmp_path / "s")
    for index in range(2):
        prepare_part(spec, Share(index, 2), to, workers=1)
    with refuses("merge=2: part 0 is of other settings", "part=0/2"):
        merge_parts(dataclasses.replace(spec, sentences=""), 2, to)
    tokenizer = TokenizerSpec("byte", specials=("eos", "pad"))
    with refuses("merge=2: part 0 is of other tokenizer"):
        merge_parts(dataclasses.replace(spec, tokenizer=tokenizer), 2, to)
    name = "part 1 is of other sources: another version of f.txt; prepare it"
    path = tmp_path / "text/f.txt"
    data = path.read_bytes()
    path.write_bytes(data[::-1].swapcase())  # of the same size
    with refuses(name, "part=1/2"):
        merge_parts(spec, 2, to)
    path.write_bytes(data)  # another time, the same content
    (tmp_path / "text/g.txt").write_text("more")
    with refuses("part 0 is of other sources: files came or went"):
        merge_parts(spec, 2, to)
    os.remove(tmp_path / "text/g.txt")
    merge_parts(spec, 2, to)
    assert read_folder(tmp_path / "s") == prepare_alone(spec, tmp_path / "alone")
    with refuses("has a store of other settings"):
        merge_parts(dataclasses.replace(spec, sentences=""), 2, to)
    with refuses("has a store of other settings"):
        prepare_part(dataclasses.replace(spec, sentences=""), Share(0, 2), to)


def test_a_part_of_another_version_of_a_file(tmp_path, refuses):
    """Both parts read the large file, which was changed between them."""
    spec, to = make_spec(tmp_path, "lines"), str(tmp_path / "s")
    prepare_part(spec, Share(0, 2), to, workers=1)
    path = tmp_path / "text/b.txt"
    path.write_bytes(path.read_bytes().swapcase())
    prepare_part(spec, Share(1, 2), to, workers=1)
    with refuses("part 0 is of other sources: another version of b.txt"):
        merge_parts(spec, 2, to)
    prepare_all(spec, 2, to)
    assert read_folder(tmp_path / "s") == prepare_alone(spec, tmp_path / "alone")


def test_a_file_that_changes_as_its_part_is_read(tmp_path, refuses, monkeypatch):
    spec, to = make_spec(tmp_path, "lines"), str(tmp_path / "s")
    read = parts.read_documents

    def change(*arguments):
        yield from read(*arguments)
        (tmp_path / "text/f.txt").write_text("other")

    monkeypatch.setattr(parts, "read_documents", change)
    with refuses("was changed while it was read"):
        prepare_part(spec, Share(1, 2), to, workers=1)
    assert not list(Path(place_parts(to)).glob("*"))


def test_altered_parts(tmp_path, refuses):
    spec, to = make_spec(tmp_path, "lines"), str(tmp_path / "s")
    place = Path(place_parts(to)) / Share(0, 2).name
    rng = random.Random(0)
    for index in range(2):
        prepare_part(spec, Share(index, 2), to, workers=1)
    tasks = (place / "tasks.bin").read_bytes()
    places = [0, 7, 8, len(tasks) - 1, *rng.sample(range(len(tasks)), 30)]
    for at in places:
        altered = bytearray(tasks)
        altered[at] ^= 1 << rng.randrange(8)
        (place / "tasks.bin").write_bytes(altered)
        with refuses(f"{place / 'tasks.bin'}: was altered"):
            merge_parts(spec, 2, to)
    for data in (b"", tasks[:-1], tasks[:100], tasks + b"x"):
        (place / "tasks.bin").write_bytes(data)
        with refuses(f"{place / 'tasks.bin'}: was altered"):
            merge_parts(spec, 2, to)
    (place / "tasks.bin").write_bytes(tasks)
    card = (place / "card.json").read_bytes()
    for old, new in ((b'"spans"', b'"spanz"'), (b"lines", b"linez"), (b"{", b"")):
        (place / "card.json").write_bytes(card.replace(old, new, 1))
        with refuses(f"{place / 'card.json'}: was altered"):
            merge_parts(spec, 2, to)
    (place / "card.json").write_bytes(card)
    merge_parts(spec, 2, to)
    assert read_folder(tmp_path / "s") == prepare_alone(spec, tmp_path / "alone")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--part=2/2"], "--part=2/2: I must be from 0 to 1"),
        (["--part=-1/2"], "--part=-1/2: must be I/N, such as 0/8"),
        (["--part=1"], "--part=1: must be I/N"),
        (["--part=a/b"], "--part=a/b: must be I/N"),
        (["--part=0/0"], "--part=0/0: N must be from 1 to 10000"),
        (["--part=0/10001"], "--part=0/10001: N must be from 1"),
        (["--part=1/2/3"], "--part=1/2/3: must be I/N"),
        (["--part=١/٢"], "must be I/N"),
        (["--part=0/9999999999999"], "must be I/N"),
        (["--part=0/2", "--merge=2"], "--merge=2: must be without --part"),
        (["--merge=2", "--workers=2"], "--workers=2: is for the parts"),
        (["--part=0/2", "--workers=-1"], "--workers=-1: must be at least 0"),
        (["--merge=0"], "--merge=0: must be from 1"),
        (["--merge=x"], "--merge=x"),
    ],
)
def test_hostile_flags(tmp_path, capsys, flags, message):
    (tmp_path / "a.txt").write_text("one two")
    data = ["prepare", f"--data={tmp_path / 'a.txt'}", f"--to={tmp_path / 's'}"]
    kind = "--config.tokenizer.kind=byte"
    assert main([*data, kind, *flags]) == 2
    err = capsys.readouterr().err
    assert message in err and len(err.splitlines()) == 1 and "Traceback" not in err
    left = {path.name for path in tmp_path.iterdir()}
    assert left <= {"a.txt", "cache"}


def test_flags_without_a_folder_or_with_several_texts(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("one two")
    kind = "--config.tokenizer.kind=byte"
    for flag in ("--part=0/2", "--merge=2"):
        assert main(["prepare", f"--data={tmp_path / 'a.txt'}", kind, flag]) == 2
        assert f"{flag}: needs --to" in capsys.readouterr().err
    mixture = f"--config.data.mixture=('{tmp_path / 'a.txt'}=1','sotu=2')"
    flags = [kind, "--config.data.path=", mixture, f"--to={tmp_path / 's'}"]
    assert main(["prepare", *flags, "--part=0/2"]) == 2
    assert "can hold one text" in capsys.readouterr().err


# Killed, and crowded.

DRIVER = """
import functools, os, sys
from jaxpt.text import library, parts
from jaxpt.text.sources import spans
from jaxpt.text.stores.tasks import Sizes
from text.test_parts import SMALL

spans.SPAN_BYTES = 700
parts.Sizes = lambda: SMALL
parts.write_tasks = functools.partial(parts.write_tasks, sizes=SMALL)
folder, last, num = sys.argv[1], int(sys.argv[2]), 0
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
NAMES = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.truncate")

def spend():
    global num
    num += 1
    if num == last:
        os._exit(9)

def count(event, args):
    if event == "open":
        is_change = isinstance(args[2], int) and args[2] & WRITES
    else:
        is_change = event in NAMES
    if is_change and not isinstance(args[0], int) and folder in os.fspath(args[0]):
        spend()

write = os.write
def write_half(handle, data):
    spend()  # before it, and after half of it
    half = len(data) // 2
    write(handle, bytes(data)[:half])
    spend()
    return half + write(handle, bytes(data)[half:])

os.write = write_half
sys.addaudithook(count)
from jaxpt.cli.main import main
code = main(sys.argv[3:])
print("changes:", num)
sys.exit(code)
"""


def run(to, last, spec, *flags):
    flags = [f"--data={spec.path}", "--config.tokenizer.kind=byte", *flags]
    names = ("documents", "label_field", "sentences", "limit_chars", "heldout_chars")
    flags += [f"--config.data.{name}={getattr(spec, name)}" for name in names]
    flags += ["--config.tokenizer.specials=('eos',)", f"--to={to}"]
    command = [sys.executable, "-c", DRIVER, str(to), str(last), "prepare", *flags]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )


def finish(process, code):
    out = process.communicate(timeout=300)[0]
    assert process.returncode == code, out
    return out


class Killed(BaseException):
    """What stands for SIGKILL."""


def count_changes(monkeypatch, folder, last):
    """Raises Killed before the nth change that this process makes below a folder."""
    calls = [0]
    names = ("write", "fsync", "replace", "mkdir", "unlink", "rmdir", "open")
    real = {name: getattr(os, name) for name in names}

    def wrap(name):
        def call(*arguments, **rest):
            is_handle = isinstance(arguments[0], int)
            is_named = not is_handle and str(folder) in os.fspath(arguments[0])
            is_read = name == "open" and not arguments[1] & (os.O_WRONLY | os.O_RDWR)
            if (is_handle or is_named or name in ("unlink", "rmdir")) and not is_read:
                calls[0] += 1
                if calls[0] >= last > 0:  # and nothing after it
                    raise Killed
            return real[name](*arguments, **rest)

        return call

    for name in names:
        monkeypatch.setattr(os, name, wrap(name))
    return calls


@pytest.mark.slow_except("part")
@pytest.mark.parametrize("what", ["part", "merge"])
def test_killed_at_any_change(tmp_path, monkeypatch, what):
    """The same command, repeated, gives the same bytes after each of the kills."""
    spec = make_spec(tmp_path, "a limit" if what == "part" else "headings")
    expected = prepare_alone(spec, tmp_path / "alone")
    last, lines = 0, []
    while True:
        last += 1
        to = tmp_path / f"s{last}"
        if what == "merge":
            for index in range(2):
                prepare_part(spec, Share(index, 2), str(to), workers=1)
        with monkeypatch.context() as patch:
            calls = count_changes(patch, to, last)
            try:
                if what == "part":
                    prepare_part(spec, Share(0, 2), str(to), workers=1)
                else:
                    merge_parts(spec, 2, str(to))
                is_killed = False
            except Killed:
                is_killed = True
                lock._release_in_fork()  # as the system does
        if not is_killed:
            break
        reporter = Reporter(lines.append)
        if what == "merge":
            merge_parts(spec, 2, str(to), reporter=reporter)
        else:
            prepare_all(spec, 2, to, reporter=reporter)
        assert read_folder(to) == expected, last
        left = {path.name for path in tmp_path.glob("s*")}
        assert left == {to.name}, last
        os.rename(to, tmp_path / "cache" / to.name)
    assert calls[0] == last - 1 > (20 if what == "part" else 60)
    if what == "merge":
        assert any("resuming after" in line for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["--part=1/2", "--merge=2"])
def test_processes_killed(tmp_path, flag):
    """Real processes, ended at every third change of the disk, without any cleanup."""
    spec = make_spec(tmp_path, "a limit")
    expected = prepare_alone(spec, tmp_path / "alone")
    num, last = 10**9, 1
    while last <= num:
        to = tmp_path / "s"
        done = ["--part=0/2"] if flag == "--part=1/2" else ["--part=0/2", "--part=1/2"]
        for each in done:
            prepare_part(spec, Share.read(each.removeprefix("--part=")), str(to))
        if last == 1:
            num = int(finish(run(to, 0, spec, flag), 0).rsplit("changes:", 1)[1])
        else:
            finish(run(to, last, spec, flag), 9)
            finish(run(to, 0, spec, flag), 0)
        if flag != "--merge=2":
            merge_parts(spec, 2, str(to))
        assert read_folder(to) == expected
        assert not list(tmp_path.glob("s.*"))
        os.rename(to, tmp_path / "cache" / f"s{last}")
        last += 3
    assert num > 20


def test_two_processes_with_the_same_part(tmp_path):
    spec, to = make_spec(tmp_path, "records"), tmp_path / "s"
    expected = prepare_alone(spec, tmp_path / "alone")
    processes = [run(to, 0, spec, f"--part={i}/2") for i in (0, 1, 0, 1)]
    outputs = [finish(process, 0) for process in processes]
    assert sum("text are tokenized" in out for out in outputs) == 2
    assert sum("is prepared already" in out for out in outputs) == 2
    merges = [run(to, 0, spec, "--merge=2") for _ in range(2)]
    outputs = [finish(process, 0) for process in merges]
    assert sum("merging 2 parts" in out for out in outputs) == 1
    assert read_folder(to) == expected
    assert not list(tmp_path.glob("s.*"))


# On an object store.


def test_parts_of_machines_with_an_object_store(tmp_path, monkeypatch):
    spec, url = make_spec(tmp_path, "records"), new_url("text")
    expected = prepare_alone(spec, tmp_path / "alone")
    for index in range(3):
        with machine(monkeypatch, tmp_path / f"cache{index}"):
            prepare_part(spec, Share(index, 3), url, workers=1)
    assert {name.split("/")[0] for name in read_all(f"{url}.parts")} == {
        Share(index, 3).name for index in range(3)
    }
    with machine(monkeypatch, tmp_path / "cache4"):
        merge_parts(spec, 3, url)
    assert read_all(url) == expected
    assert not read_all(f"{url}.parts")
    lines = []
    with machine(monkeypatch, tmp_path / "cache5"):
        prepare_part(spec, Share(1, 3), url, reporter=Reporter(lines.append))
        merge_parts(spec, 3, url)
        assert remote.fetch(url).is_dir()
    assert len(lines) == 1 and "is prepared already" in lines[0]


def test_killed_before_any_change_of_an_object_store(tmp_path, monkeypatch):
    spec = make_spec(tmp_path, "a limit")
    expected = prepare_alone(spec, tmp_path / "alone")
    number, is_done = 0, False
    while not is_done:
        url = new_url("text")
        with machine(monkeypatch, tmp_path / "one"):
            prepare_part(spec, Share(0, 2), url, workers=1)
        with machine(monkeypatch, tmp_path / f"killed{number}"):
            with killed_at(monkeypatch, number):
                prepare_part(spec, Share(1, 2), url, workers=1)
                merge_parts(spec, 2, url)
                is_done = True
        with machine(monkeypatch, tmp_path / f"killed{number}"):
            prepare_part(spec, Share(1, 2), url, workers=1)
            merge_parts(spec, 2, url)
        assert read_all(url) == expected, number
        assert not read_all(f"{url}.parts"), number
        number += 1
    assert number > 8
