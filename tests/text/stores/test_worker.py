"""Texts to ids in another process: the ids, and the frames they travel in."""

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpt.text.sources.documents import split_long
from jaxpt.text.stores.layout import Encoded, Pieces
from jaxpt.text.stores.pool import WorkerDied, encode_tasks
from jaxpt.text.stores.tasks import Task
from jaxpt.text.stores.worker import (
    encode_texts,
    pack_reply,
    pack_task,
    receive,
    send,
    unpack_reply,
    unpack_task,
)
from jaxpt.text.tokens.symbols import ByteTokenizer, CharTokenizer
from jaxpt.text.tokens.tokenizer import TokenizerSpec, make_tokenizer, save

ROOT = Path(__file__).resolve().parents[3]


def make_task(*texts):
    data = [text.encode("utf-8", "surrogatepass") for text in texts]
    flags = np.ones(len(texts), bool)
    num_bytes = np.array(list(map(len, data)))
    pieces = Pieces(flags, ~flags, [""] * len(texts), num_bytes)
    return Task(list(texts), data, pieces, flags, "")


def test_encode_by_hand():
    tokenizer = CharTokenizer("ab. ", ("unk",))
    found = encode_texts(
        tokenizer,
        ["a. b", " X.", "", "b"],
        np.array([True, False, True, True]),
        np.array([True, False, True, True]),
        "punctuation",
        "<u2",
    )
    assert found.tokens.dtype == np.uint16
    assert tokenizer.decode(found.tokens) == "a. b [UNK].b"
    assert found.counts.tolist() == [4, 3, 0, 1]
    assert found.sentence_starts.tolist() == [0, 2, 7]
    assert found.num_unknown == 1
    assert found.sizes.tolist() == [1] * 8 and found.sizes.dtype == np.uint32


@pytest.mark.slow_except("babyberta/babyberta.json")
@pytest.mark.parametrize(
    "path",
    [
        "gpt2",
        "t5/sentencepiece.model",
        "bert/bert-base-uncased-vocab.txt",
        "babyberta/babyberta.json",  # puts a space before a text
    ],
)
def test_parts_and_sentences_change_no_id(tinyshakespeare, path):
    file = tinyshakespeare.parents[2] / "tokenizers" / path
    tokenizer = make_tokenizer(TokenizerSpec("file", path=str(file)), ())
    text = tinyshakespeare.read_text(encoding="utf-8")[:60_000]
    text += "  \n . ! \xa0\n¿Qué? ... (“So.”) 家。\n\t\u2028\n😀. \r\n" * 20
    wanted = tokenizer.encode(text).tolist()
    parts = split_long(text, 5000)
    assert len(parts) > 10
    is_start = np.arange(len(parts)) == 0
    num_sentences = set()
    for mode in ("", "lines", "punctuation"):
        found = encode_texts(tokenizer, parts, is_start, is_start, mode, "<u2")
        assert found.tokens.tolist() == wanted
        assert found.num_unknown == tokenizer.count_unknown(text)
        num_sentences.add(len(found.sentence_starts))
    assert len(num_sentences) == 3 and max(num_sentences) > 500


@given(st.lists(st.tuples(st.text(), st.booleans(), st.booleans()), max_size=5))
def test_tasks_travel_whole(items):
    texts = [text for text, _, _ in items] + ["\ud800\0é"]
    flags = np.array([flags for _, *flags in items] + [[True, False]])
    frame = pack_task(
        [text.encode("utf-8", "surrogatepass") for text in texts], *flags.T
    )
    found = unpack_task(memoryview(b"".join(frame)))
    assert found[0] == texts
    np.testing.assert_array_equal(np.stack(found[1:], 1), flags)


@pytest.mark.parametrize("dtype", ["<u2", "<u4"])
@given(
    tokens=st.lists(st.integers(0, 65535)),
    counts=st.lists(st.integers(0, 2**60)),
    starts=st.lists(st.integers(0, 2**60)),
    num=st.integers(0, 2**60),
    sizes=st.lists(st.integers(0, 2**32 - 1)),
)
def test_replies_travel_whole(dtype, tokens, counts, starts, num, sizes):
    sent = Encoded(
        np.array(tokens, dtype),
        np.array(counts, np.int64),
        np.array(starts, np.int64),
        num,
        np.array(sizes, "<u4"),
    )
    found = unpack_reply(memoryview(b"".join(pack_reply(sent))), dtype)
    assert found.tokens.tolist() == tokens and found.tokens.dtype == dtype
    assert found.counts.tolist() == counts
    assert found.sentence_starts.tolist() == starts
    assert found.num_unknown == num
    assert found.sizes.tolist() == sizes


def test_frames_that_end_too_early():
    file = io.BytesIO()
    send(file, b"ab", b"", b"c")
    send(file)
    data = file.getvalue()
    file = io.BytesIO(data)
    assert bytes(receive(file)) == b"abc"
    assert bytes(receive(file)) == b""
    assert receive(file) is None
    for length in range(11):
        assert receive(io.BytesIO(data[:length])) is None


def encode_all(tasks, path, dtype="<u2"):
    return list(
        encode_tasks(tasks, ByteTokenizer(), path, sentences="", dtype=dtype, workers=2)
    )


def test_results_come_in_order(tmp_path):
    path = tmp_path / "tokenizer.json"
    save(ByteTokenizer(), path)
    texts = [chr(97 + i) * (1 if i % 2 else 100_000) for i in range(20)]
    found = encode_all([make_task(text) for text in texts], path)
    assert [task.texts[0] for task, _ in found] == texts
    assert [
        bytes(encoded.tokens.astype("u1")).decode() for _, encoded in found
    ] == texts


def test_what_a_worker_refuses_and_what_fails(tmp_path, refuses):
    tasks = [make_task("a"), make_task("b")]
    with refuses(str(tmp_path / "gone.json")):
        encode_all(tasks, tmp_path / "gone.json")
    path = tmp_path / "tokenizer.json"
    save(ByteTokenizer(), path)
    with pytest.raises(RuntimeError, match="Traceback(.|\n)*nonsense"):
        encode_all(tasks, path, dtype="nonsense")


def test_a_worker_that_cannot_start(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(WorkerDied, match="exit code 1"):
        encode_all([make_task("a"), make_task("b")], tmp_path)


def test_a_worker_ends_with_its_input(tmp_path):
    path = tmp_path / "tokenizer.json"
    save(ByteTokenizer(), path)
    worker = subprocess.Popen(
        [sys.executable, "-m", "jaxpt.text.stores.worker", str(path), "", "<u2"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    task = make_task("ab")
    send(worker.stdin, *pack_task(task.data, task.pieces.is_start, task.is_sentence))
    assert unpack_reply(receive(worker.stdout), "<u2").tokens.tolist() == [97, 98]
    worker.stdin.write((100).to_bytes(8, "little") + b"half a frame")
    # Who reads its answers goes first, as when the parent is killed.
    worker.stdout.close()
    worker.stdin.close()
    assert worker.stderr.read() == b""
    worker.stderr.close()
    assert worker.wait(timeout=30) == 0
