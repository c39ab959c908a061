"""Documents to a store: what it holds, and that nothing on the way can spoil it."""

import errno
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpt.errors import UserError
from jaxpt.files import lock
from jaxpt.text.library import Reporter
from jaxpt.text.sources.documents import Document, split_long
from jaxpt.text.sources.source import SourceSpec, identify_source, list_contents
from jaxpt.text.stores import prepare
from jaxpt.text.stores.prepare import Sizes, write_store
from jaxpt.text.stores.sentences import cut_sentences
from jaxpt.text.stores.store import open_store
from jaxpt.text.tokens.published import read_published
from jaxpt.text.tokens.symbols import ByteTokenizer, CharTokenizer
from jaxpt.text.tokens.tokenizer import TokenizerSpec, fingerprint
from jaxpt.text.tokens.training import train_subword

ROOT = Path(__file__).resolve().parents[3]
SMALL = Sizes(task_chars=1000, task_texts=9, commit_bytes=3000, shard_tokens=2500)
BYTES = ByteTokenizer(("eos",))


def about(tokenizer=BYTES, **changes):
    settings = {"limit_chars": 0, "heldout_chars": 0, "sentences": "punctuation"}
    return {
        "path": "x",
        "settings": settings | changes,
        "sources": [],
        "tokenizer": {"sha256": fingerprint(tokenizer), "spec": {}},
    }


def write(documents, folder, tokenizer=BYTES, *, sizes=SMALL, workers=1, **rest):
    """`write_store` with what these tests have in common; and the lines it says."""
    settings = rest.pop("settings", {})
    lines = []
    store = write_store(
        documents,
        tokenizer,
        folder,
        about=about(tokenizer, **settings),
        workers=workers,
        log=lines.append,
        sizes=sizes,
        **rest,
    )
    return store, lines


def make_documents(num=60, seed=0):
    """Documents of all lengths, some in parts, some empty, some with odd characters."""
    rng = random.Random(seed)
    words = ["one", "two.", "drei!", "viér", '"So."', "\n", "\n\n", "6", "\ud800", "😀"]
    documents = []
    for number in range(num):
        length = rng.choice([0, 1, 3, 30, 200])
        text = " ".join(rng.choice(words) for _ in range(length))
        label = rng.choice(["", "b", "a"])
        for place, part in enumerate(split_long(text, 300)):
            documents.append(Document(part, f"{number}", label, is_start=not place))
    return documents


def read_folder(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The files of the store of `make_documents`."""
    folder = tmp_path_factory.mktemp("undisturbed") / "store"
    write(make_documents(), folder)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["store"]
    return read_folder(folder)


# What a store must hold, said again as plainly as possible.


def expect(texts, tokenizer, limit, heldout, mode):
    taken, seen, dropped, truncated = {False: [], True: []}, 0, 0, 0
    for text, label in texts:
        if limit and seen >= limit + heldout:
            break
        head = text[: limit - seen if seen < limit else 0] if limit else text
        rest = text[len(head) :][: limit + heldout - seen - len(head)] if limit else ""
        seen += len(text)
        dropped += not text
        truncated += bool(head and rest) or len(head + rest) < len(text)
        for is_out, piece in ((False, head), (True, rest)):
            if piece:
                taken[is_out].append((piece, label))
    if limit and seen < limit + heldout:
        return None
    unknown = sum(tokenizer.count_unknown(t) for out in taken.values() for t, _ in out)
    kept = {
        is_out: [(t, label) for t, label in docs if len(tokenizer.encode(t))]
        for is_out, docs in taken.items()
    }
    dropped += sum(len(taken[out]) - len(kept[out]) for out in taken)
    eos = [] if tokenizer.vocab.eos is None or len(kept[False]) < 2 else [0]
    tokens, starts, sentences, sizes = [], [], set(), []
    for text, _ in kept[False] + kept[True]:
        waiting = 0
        for char in text:
            waiting += len(char.encode())
            if len(tokenizer.encode(char)):
                sizes.append(waiting)
                waiting = 0
        sizes[-1] += waiting  # what follows the last token is that one's
        sizes += [0 for _ in eos]
        starts.append(len(tokens))
        for sentence in cut_sentences(text, mode) if mode else [text]:
            ids = tokenizer.encode(sentence).tolist()
            sentences |= {len(tokens)} if ids else set()
            tokens += ids
        tokens += eos
    docs = kept[False] + kept[True]
    return {
        "tokens": tokens,
        "starts": [*starts, len(tokens)],
        "bytes": [len(text.encode()) for text, _ in docs],
        "sizes": sizes,
        "labels": [label for _, label in docs],
        "sentences": [*sorted(sentences), len(tokens)] if mode else None,
        "counts": [len(kept[False]), dropped, truncated, unknown],
    }


def describe(store):
    names = [*store.card["label_names"], ""]
    card = store.card
    sentences = store.sentence_starts
    return {
        "tokens": store.tokens.read(0, store.tokens.num_tokens).tolist(),
        "starts": store.doc_starts.tolist(),
        "bytes": store.doc_bytes.tolist(),
        "sizes": store.token_bytes.read(0, store.tokens.num_tokens).tolist(),
        "labels": [names[i] for i in store.labels],
        "sentences": None if sentences is None else sentences.tolist(),
        "counts": [
            card[name] for name in ("num_main", "dropped", "truncated", "num_unknown")
        ],
    }


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    texts=st.lists(
        st.tuples(
            st.text(st.sampled_from("ab .!\n?é"), max_size=30),
            st.sampled_from(["", "x", "y"]),
        ),
        min_size=1,
        max_size=8,
    ),
    size=st.integers(3, 40),
    specials=st.sampled_from([(), ("eos",), ("eos", "unk")]),
    limits=st.one_of(
        st.just((0, 0)), st.tuples(st.integers(1, 40), st.integers(0, 40))
    ),
    mode=st.sampled_from(["", "lines", "punctuation"]),
    task_chars=st.integers(1, 60),
    shard_tokens=st.integers(1, 30),
    known=st.sampled_from(["ab .\n", "b .\n"]),
)
def test_holds_what_it_must(
    tmp_path_factory,
    texts,
    size,
    specials,
    limits,
    mode,
    task_chars,
    shard_tokens,
    known,
):
    tokenizer = CharTokenizer(known, specials)
    documents = [
        Document(part, "name", label, is_start=not place)
        for text, label in texts
        for place, part in enumerate(split_long(text, size))
    ]
    expected = expect(texts, tokenizer, *limits, mode)
    folder = tmp_path_factory.mktemp("any") / "store"
    named = {"limit_chars": limits[0], "heldout_chars": limits[1], "sentences": mode}
    sizes = Sizes(task_chars, 3, commit_bytes=20, shard_tokens=shard_tokens)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", lambda handle: None)  # only to save time
            store, _ = write(documents, folder, tokenizer, sizes=sizes, settings=named)
    except UserError as error:
        word = "no token" if expected else "data.limit_chars"
        assert word in str(error) and (expected is None or not expected["tokens"])
        assert not list(folder.parent.iterdir())
        return
    result = describe(store)
    assert result == expected
    assert store.card["num_documents"] == len(expected["labels"])
    assert store.card["num_bytes"] == sum(expected["bytes"])


LEARNT = "The cat's hat isn't that flat; the other cats sat. Café one two drei " * 9
SPECIALS = ("pad", "unk", "eos")
SHARED = ROOT / "../shared/data/tokenizers"
KINDS = {
    "char": lambda: CharTokenizer("ETahinot.! \n", SPECIALS),
    "char without unk": lambda: CharTokenizer("ETahinot.! \n", ("eos",)),
    "byte": lambda: BYTES,
    "bpe": lambda: train_subword("bpe", [LEARNT], 330, SPECIALS),
    "wordpiece": lambda: train_subword("wordpiece", [LEARNT], 200, SPECIALS),
    "uncased": lambda: train_subword("wordpiece", [LEARNT], 200, SPECIALS, 0, True),
    "unigram": lambda: train_subword("unigram", [LEARNT], 90, SPECIALS),
    **{
        path: lambda path=path: find_tokenizer(SHARED / path)
        for path in (
            "bert/bert-base-uncased-vocab.txt",
            "t5/sentencepiece.model",
            "babyberta/babyberta.json",
            "gpt2",
        )
    },
}


def find_tokenizer(path):
    if not path.exists():
        pytest.skip("shared/data is not next to this checkout")
    return read_published(path, ("eos",))


@pytest.mark.slow_cases(
    "gpt2", "t5/sentencepiece.model", "babyberta/babyberta.json", "bert/bert*"
)
@pytest.mark.parametrize("kind", KINDS)
def test_the_bytes_of_a_documents_tokens_are_the_documents(tmp_path, kind):
    tokenizer = KINDS[kind]()
    odd = [
        "a" * 3000 + "  \u2003 ",
        "x" + " \n" * 500,
        "\u200b\x00 Ünïcode ﬁne ½ … 中文",
        " \t ",
        "\x00",
        "no end \x00\x00",
    ]
    documents = make_documents() + [
        Document(part, f"odd {number}", is_start=not place)
        for number, text in enumerate(odd)
        for place, part in enumerate(split_long(text, 300))
    ]
    store, _ = write(documents, tmp_path / "s", tokenizer, sizes=SMALL)
    tokens = store.tokens.read(0, store.tokens.num_tokens)
    if tokenizer.vocab.token_bytes:
        assert store.token_bytes is None
        sizes = np.array(tokenizer.vocab.token_bytes)[tokens]
    else:
        sizes = store.token_bytes.read(0, len(tokens))
    assert (sizes[tokens == tokenizer.vocab.eos] == 0).all()
    result = np.add.reduceat(sizes, store.doc_starts[:-1])
    assert result.tolist() == store.doc_bytes.tolist()
    # Every text without a token is left out; all bytes of the others are there.
    whole = {}
    for doc in documents:
        whole[doc.name] = whole.get(doc.name, "") + doc.text
    kept = [text for text in whole.values() if len(tokenizer.encode(text))]
    expected = [len(text.encode("utf-8", "surrogatepass")) for text in kept]
    assert store.doc_bytes.tolist() == expected and len(expected) > 40


@pytest.mark.slow_except("1")
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_any_number_of_workers_gives_the_same(tmp_path, undisturbed, workers):
    counts = []
    write(make_documents(), tmp_path / "s", workers=workers, progress=counts.append)
    assert read_folder(tmp_path / "s") == undisturbed
    num_bytes, num_documents, num_tokens = zip(*counts, strict=True)
    for numbers in (num_bytes, num_documents, num_tokens):
        assert list(numbers) == sorted(numbers) and len(set(numbers)) > 3


def test_workers_leave_nothing_behind(tmp_path):
    before = set(Path("/proc/self/fd").iterdir())
    write(make_documents(), tmp_path / "s", workers=2)
    assert set(Path("/proc/self/fd").iterdir()) == before
    assert not find_processes(tmp_path)


def test_little_is_read_ahead(tmp_path):
    pulled = 0

    def read():
        nonlocal pulled
        for number in range(100):
            pulled += 1
            yield Document("a b. " * 200, f"{number}")

    ahead = []
    write(
        read(),
        tmp_path / "s",
        workers=2,
        progress=lambda done: ahead.append(pulled - done[0] // 1000),
    )
    assert 1 < max(ahead) <= 5  # 2 busy, 2 waiting, 1 being made


def test_workers_find_modules_from_any_folder(tmp_path, monkeypatch, undisturbed):
    # Modules of the user's own must not be taken for those of the same name.
    for name in ("jaxpt", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    write(make_documents(), tmp_path / "s", workers=2)
    assert read_folder(tmp_path / "s") == undisturbed


# Interrupted and resumed.


class Interrupted(Exception):
    pass


def interrupted(documents, num):
    yield from documents[:num]
    raise Interrupted


def test_goes_on_where_it_was(tmp_path, undisturbed, monkeypatch):
    documents, folder = make_documents(), tmp_path / "s"
    encoded = 0
    encode = ByteTokenizer.encode

    def count(self, text):
        nonlocal encoded
        encoded += len(text)
        return encode(self, text)

    monkeypatch.setattr(ByteTokenizer, "encode", count)
    for num in range(0, len(documents), 3):
        with pytest.raises(Interrupted):
            write(interrupted(documents, num), folder)
        assert not folder.exists()
    _, lines = write(documents, folder)
    assert read_folder(folder) == undisturbed
    assert "resuming after" in lines[0]
    # At most the work between two journal entries was repeated.
    total = sum(len(doc.text) for doc in documents)
    assert encoded < total + len(documents) / 3 * (3000 + 2 * 1000)
    assert not list(tmp_path.glob("*.partial"))


def leave_partial(folder, num=50):
    with pytest.raises(Interrupted):
        write(interrupted(make_documents(), num), folder)
    partial = folder.with_name(folder.name + ".partial")
    assert (partial / "journal.json").exists()
    return partial


@pytest.mark.parametrize(
    "name",
    ["tokens-00000.bin", "tokens-00001.bin", "labels.bin", "sentences.bin", "*.json"],
)
@pytest.mark.parametrize("how", ["flipped", "cut", "missing", "longer"])
def test_a_damaged_partial_is_no_danger(tmp_path, undisturbed, name, how):
    partial = leave_partial(tmp_path / "s")
    for path in partial.glob(name):
        data = path.read_bytes()
        path.unlink()
        if how != "missing":
            path.write_bytes(
                {
                    "flipped": bytes([data[0] ^ 1]) + data[1:],
                    "cut": data[:9],
                    "longer": data + b"killed while it was writ",
                }[how]
            )
    (partial / "more.bin").write_text("of another version")
    _, lines = write(make_documents(), tmp_path / "s")
    assert read_folder(tmp_path / "s") == undisturbed
    is_sound = how == "longer" and name != "*.json"
    word = "resuming" if is_sound else "starting from the beginning"
    if not (how == "missing" and name == "*.json"):
        assert word in lines[0]


@pytest.mark.parametrize(
    "name",
    ["../victim", "ABSOLUTE", "tokens-00000.bin/../../victim", "victim", "card.json"],
)
def test_a_journal_that_names_no_file_of_a_store(tmp_path, undisturbed, name):
    """It would be cut to its length in the journal."""
    partial, victim = leave_partial(tmp_path / "s"), tmp_path / "victim"
    victim.write_text("dear diary")
    (partial / "victim").write_text("dear diary")
    journal = json.loads((partial / "journal.json").read_text())
    journal.pop("sha256")
    output = {"bytes": 4, "sha256": hashlib.sha256(b"dear").hexdigest()}
    journal["files"][name.replace("ABSOLUTE", str(victim))] = output
    digest = hashlib.sha256(json.dumps(journal, sort_keys=True).encode()).hexdigest()
    (partial / "journal.json").write_text(json.dumps({"sha256": digest, **journal}))
    _, lines = write(make_documents(), tmp_path / "s")
    assert victim.read_text() == "dear diary"
    assert "not a file of a store; starting from the beginning" in lines[0]
    assert read_folder(tmp_path / "s") == undisturbed


@pytest.mark.parametrize("how", ["symlink_to", "hardlink_to"])
@pytest.mark.parametrize("name", ["tokens-00000.bin", "labels.bin", "journal.json.tmp"])
def test_no_link_in_a_partial_is_written_through(tmp_path, undisturbed, how, name):
    """To a file with the content in the journal, and more."""
    partial, victim = leave_partial(tmp_path / "s"), tmp_path / "victim"
    path = partial / name
    data = (path.read_bytes() if path.exists() else b"") + b"dear diary"
    victim.write_bytes(data)
    path.unlink(missing_ok=True)
    getattr(path, how)(victim)
    write(make_documents(), tmp_path / "s")
    assert victim.read_bytes() == data
    assert read_folder(tmp_path / "s") == undisturbed


def test_a_partial_that_is_a_link(tmp_path, undisturbed):
    partial = leave_partial(tmp_path / "s")
    (partial / "notes.txt").write_text("mine")
    partial.rename(tmp_path / "elsewhere")
    partial.symlink_to(tmp_path / "elsewhere")
    before = read_folder(tmp_path / "elsewhere")
    _, lines = write(make_documents(), tmp_path / "s")
    assert "it is a link; starting from the beginning" in lines[0]
    assert read_folder(tmp_path / "elsewhere") == before
    assert read_folder(tmp_path / "s") == undisturbed


@pytest.mark.parametrize(
    "changes",
    [
        {"settings": {"sentences": "lines"}},
        {"tokenizer": ByteTokenizer(("eos", "pad"))},
        {"sizes": Sizes(task_chars=500, commit_bytes=3000, shard_tokens=2500)},
    ],
)
def test_a_partial_of_other_settings(tmp_path, changes):
    write(make_documents(), tmp_path / "other", **changes)
    leave_partial(tmp_path / "s")
    _, lines = write(make_documents(), tmp_path / "s", **changes)
    assert "other settings" in lines[0] and "starting from the beginning" in lines[0]
    assert read_folder(tmp_path / "s") == read_folder(tmp_path / "other")


def test_a_partial_of_another_text(tmp_path, refuses, undisturbed):
    partial = leave_partial(tmp_path / "s")
    with refuses("data.path=x", "has changed since", str(partial)):
        write(make_documents(seed=1), tmp_path / "s")
    assert not partial.exists()
    leave_partial(tmp_path / "s")
    with refuses("data.path=x", "has changed since"):
        write(make_documents()[:3], tmp_path / "s")
    write(make_documents(), tmp_path / "s")
    assert read_folder(tmp_path / "s") == undisturbed


def test_killed_as_it_got_its_name(tmp_path, undisturbed, monkeypatch):
    def stop(path, folder):
        raise Interrupted

    folder = tmp_path / "s"
    with monkeypatch.context() as patch:
        patch.setattr(prepare, "publish", stop)
        with pytest.raises(Interrupted):
            write(make_documents(), folder)
    assert (tmp_path / "s.partial" / "card.json").exists() and not folder.exists()
    _, lines = write(make_documents(), folder)
    assert "resuming" in lines[0]
    assert read_folder(folder) == undisturbed


# A disk that is full, or broken.


def fail_at(number, code):
    """Makes the number-th system call that writes fail, like a real one, half done."""
    calls = 0
    real = {name: getattr(os, name) for name in ("write", "fsync", "replace", "mkdir")}

    def wrap(name):
        def call(*arguments, **rest):
            nonlocal calls
            calls += 1
            if calls > number:
                raise OSError(code, os.strerror(code))
            if calls == number and name == "write":
                handle, data = arguments
                return real[name](handle, bytes(data)[: max(1, len(data) // 2)])
            return real[name](*arguments, **rest)

        return call

    return {name: wrap(name) for name in real}


@pytest.mark.slow_except("28")
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_disk_full(tmp_path, undisturbed, monkeypatch, code):
    number = 0
    while True:
        number += 1 if number < 12 else 7
        folder = tmp_path / f"{number}" / "s"
        folder.parent.mkdir()
        with monkeypatch.context() as patch:
            for name, call in fail_at(number, code).items():
                patch.setattr(os, name, call)
            try:
                write(make_documents(), folder)
                break  # this number of calls is never reached
            except UserError as error:
                message = str(error)
        assert len(message.splitlines()) == 1
        assert os.strerror(code) in message and f"{folder}.partial" in message
        assert "bytes" in message
        assert not list(folder.parent.iterdir()), f"call {number}"
        if number % 5 == 0:
            write(make_documents(), folder)
            assert read_folder(folder) == undisturbed
    assert number > 60


def test_a_real_small_disk(tmp_path, undisturbed):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a file system is not permitted here")
    try:
        with pytest.raises(UserError, match="No space left on device after [1-9]"):
            write(make_documents(200), disk / "s", workers=2)
        assert not list(disk.iterdir())
        write(make_documents(), disk / "s")
        assert read_folder(disk / "s") == undisturbed
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_other_faults_of_the_disk(tmp_path, refuses, monkeypatch):
    def fail(*arguments):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with refuses(str(tmp_path / "s.partial"), "Input/output error"):
            write(make_documents(), tmp_path / "s")
    (tmp_path / "file").write_text("")
    with refuses(str(tmp_path / "file"), "Not a directory"):
        write(make_documents(), tmp_path / "file" / "s")


def test_a_folder_that_is_something_else(tmp_path, refuses):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("dear diary")
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("mine", "file", "link"):
        with refuses(str(tmp_path / name)):
            write(make_documents(), tmp_path / name)
    assert (tmp_path / "mine" / "notes.txt").read_text() == "dear diary"
    (tmp_path / "empty").mkdir()
    store, _ = write(make_documents(), tmp_path / "empty")
    assert store.card["num_documents"] > 1


# Whole processes: `prepare` from files, killed, crowded, and its workers.


def prepare_file(path, folder, workers=1, documents="file", say=None, **rest):
    """`prepare` of a file, and the lines it says."""
    settings = rest.pop("settings", {})
    lines = []
    source = SourceSpec(str(path), documents=documents)
    store = prepare.prepare(
        source,
        identify_source(source),
        list_contents(source),
        BYTES,
        TokenizerSpec("byte", specials=("eos",)),
        folder,
        settings=about(**settings)["settings"] | {"documents": documents},
        workers=workers,
        reporter=Reporter(
            say or lines.append,
            progress=say and (lambda title, size: lambda done: say(f"done {done}")),
        ),
        **rest,
    )
    return store, lines


# Paragraphs in some 80 tasks.
SHAKESPEARE = {
    "documents": "paragraph",
    "sizes": Sizes(1 << 14, 999, commit_bytes=1 << 16, shard_tokens=1 << 17),
}


def start(path, folder, workers=1):
    """A process that prepares a file and prints what it says, last the fingerprint."""
    code = (
        "import sys; from text.stores import test_prepare; "
        "test_prepare.run_alone(*sys.argv[1:])"
    )
    command = [sys.executable, "-c", code, str(path), str(folder), str(workers)]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def run_alone(path, folder, workers):
    def say(line):
        print(line, flush=True)

    store, _ = prepare_file(path, Path(folder), int(workers), say=say, **SHAKESPEARE)
    say(store.fingerprint)


def find_processes(folder):
    """The processes whose command line names a folder."""
    results = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if os.fsencode(folder) in path.read_bytes():
                results.append(int(path.parent.name))
        except OSError:
            continue  # it has just ended
    return results


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path, tinyshakespeare):
    whole = start(tinyshakespeare, tmp_path / "whole", 2)
    lines = whole.communicate()[0].splitlines()
    assert whole.returncode == 0
    num = sum(line.startswith("done (") for line in lines)
    assert num > 60
    expected = read_folder(tmp_path / "whole")
    rng = random.Random()
    continued = 0
    for number, workers in enumerate((1, 2, 2, 2, 2)):
        folder = tmp_path / f"killed-{number}"
        process = start(tinyshakespeare, folder, workers)
        for _ in range(rng.randrange(num) + 1):
            process.stdout.readline()
        time.sleep(rng.random() * 0.01)
        process.kill()
        rest = process.communicate()[0].splitlines()
        if folder.exists():  # it was about to end
            open_store(folder)
        elif not rest or rest[-1] != lines[-1]:
            assert process.returncode == -signal.SIGKILL
        store, messages = prepare_file(tinyshakespeare, folder, 1, **SHAKESPEARE)
        assert store.fingerprint == lines[-1]
        continued += any("resuming after" in line for line in messages)
        assert read_folder(folder) == expected
        assert not list(tmp_path.glob("*.partial"))
        assert not list(tmp_path.glob("*.lock"))
    assert continued
    deadline = time.monotonic() + 10
    while find_processes(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not find_processes(tmp_path), "a worker has outlived its parent"


def test_two_processes_at_once(tmp_path, tinyshakespeare):
    processes = [start(tinyshakespeare, tmp_path / "s", 2) for _ in range(2)]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert outputs[0].splitlines()[-1] == outputs[1].splitlines()[-1]
    assert sum("preparing" in text for text in outputs) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_the_second_waits_for_the_first(tmp_path):
    text, folder = tmp_path / "text.txt", tmp_path / "out" / "s"
    text.write_text("One. Two.")
    with lock.hold(folder.with_name("s.lock"), print):
        second = start(text, folder)
        assert "waiting" in second.stdout.readline()
        time.sleep(0.1)
        assert second.poll() is None
    assert second.communicate(timeout=60)[0].startswith("preparing")
    assert [path.name for path in folder.parent.iterdir()] == ["s"]
    # Killed, the first holds nothing.
    folder = tmp_path / "out" / "t"
    code = (
        "import sys, time; from pathlib import Path\n"
        "from jaxpt.files.lock import hold\n"
        "with hold(Path(sys.argv[1]), print): print(flush=True); time.sleep(600)"
    )
    first = subprocess.Popen(
        [sys.executable, "-c", code, f"{folder}.lock"],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    first.stdout.readline()
    second = start(text, folder)
    assert "waiting" in second.stdout.readline()
    first.kill()
    first.communicate()
    assert second.communicate(timeout=60)[0].startswith("preparing")
    assert not list(folder.parent.glob("*.lock"))


def test_ctrl_c_ends_the_workers_and_keeps_the_work(tmp_path, tinyshakespeare):
    process = start(tinyshakespeare, tmp_path / "s", 2)
    for _ in range(20):
        process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode != 0
    assert not find_processes(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["s.partial"]
    assert (tmp_path / "s.partial" / "journal.json").exists()


def test_a_killed_worker(tmp_path, refuses):
    documents, folder, killed = make_documents(200), tmp_path / "s", []

    def kill(done):
        if done[0] > 5000 and not killed:
            killed.extend(find_processes(tmp_path))
            for number in killed:
                os.kill(number, signal.SIGKILL)

    with refuses("signal 9", "run the same command to resume"):
        write(documents, folder, workers=2, progress=kill)
    assert killed
    _, lines = write(documents, folder, workers=2)
    assert "resuming" in lines[0]
    write(documents, tmp_path / "whole")
    assert read_folder(folder) == read_folder(tmp_path / "whole")


def test_what_is_there_is_opened(tmp_path, refuses, monkeypatch):
    text, folder = tmp_path / "text.txt", tmp_path / "s"
    text.write_text("One. Two.")
    first, lines = prepare_file(text, folder)
    assert len(lines) == 2 and str(text) in lines[0] and "MB/s" in lines[1]
    sources = [
        {"name": "text.txt", "bytes": 9, "sha256": first.card["sources"][0]["sha256"]}
    ]
    assert first.card["sources"] == sources and len(sources[0]["sha256"]) == 64
    monkeypatch.setattr(prepare, "read_documents", None)
    again, lines = prepare_file(text, folder)
    assert again.fingerprint == first.fingerprint and not lines
    with refuses(str(folder), "other settings"):
        prepare_file(text, folder, settings={"sentences": "lines"})
    text.write_text("One. 2wo.")
    with refuses(str(folder), "other sources"):
        prepare_file(text, folder)
    assert prepare_file(text, folder, is_keyed=True)[0].fingerprint
    (folder / "tokens-00000.bin").write_bytes(b"")
    with refuses(str(folder / "tokens-00000.bin"), "empty"):
        prepare_file(text, folder, is_keyed=True)


@pytest.mark.parametrize("name", ["", ".", "/", ".."])
def test_a_folder_without_a_name(refuses, name):
    with refuses("new folder"):
        prepare_file(__file__, Path(name))


def test_a_text_that_changes_as_it_is_read(tmp_path, refuses, monkeypatch):
    text, folder = tmp_path / "text.txt", tmp_path / "out" / "s"
    text.write_text("One. Two.")
    read = prepare.read_documents

    def change(source):
        yield from read(source)
        text.write_text("One. Two. Three.")

    with monkeypatch.context() as patch:
        patch.setattr(prepare, "read_documents", change)
        with refuses(f"data.path={text}", "changed"):
            prepare_file(text, folder)
    assert not folder.parent.exists()


def test_bad_text_leaves_nothing(tmp_path, refuses):
    text, folder = tmp_path / "text.txt", tmp_path / "out" / "s"
    text.write_bytes(b"a" * 3_000_000 + b"\xff")
    with refuses(f"data.path={text}", "3000000"):
        prepare_file(text, folder, workers=2)
    assert not folder.parent.exists()


def test_the_closing_line(tmp_path):
    settings = {"limit_chars": 5, "heldout_chars": 2}
    tokenizer = CharTokenizer("ab")
    documents = [Document(t, "n") for t in ("aXb", "", "YYb", "ba")]
    _, lines = write(documents, tmp_path / "s", tokenizer, settings=settings)
    # Taken are aXb, YY and, held out, b, b.
    assert f"{tmp_path / 's'}: 3 documents, 4 tokens of 0.0 MB text" in lines[-1]
    assert "; documents without a token, dropped: 2; " in lines[-1]
    assert "documents cut by data.limit_chars: 2; " in lines[-1]
    unknown = "3 unknown characters are dropped, for 3 bytes of text (42.86%)"
    assert lines[-1].endswith(unknown)
