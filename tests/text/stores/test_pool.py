"""Encodes texts in other processes."""

import itertools
import os
import subprocess
import sys
import threading
import traceback
from multiprocessing import Pipe
from pathlib import Path

import numpy as np
import pytest

from jaxpt.text.stores.layout import Pieces
from jaxpt.text.stores.pool import WorkerDied, _Pool, encode_tasks, serve
from jaxpt.text.stores.tasks import EncodingJob
from jaxpt.text.tokens.symbols import ByteTokenizer
from jaxpt.text.tokens.tokenizer import save

ROOT = Path(__file__).resolve().parents[3]


def make_task(*texts):
    data = [text.encode("utf-8", "surrogatepass") for text in texts]
    flags = np.ones(len(texts), bool)
    num_bytes = np.array(list(map(len, data)))
    pieces = Pieces(flags, ~flags, [""] * len(texts), num_bytes)
    return EncodingJob(list(texts), pieces, flags, 0, "")


def encode_all(tasks, path, dtype="<u2"):
    return list(
        encode_tasks(
            tasks,
            path,
            tokenizer=ByteTokenizer(),
            sentences="",
            dtype=dtype,
            workers=2,
        )
    )


def test_results_come_in_order(tmp_path):
    path = tmp_path / "tokenizer.json"
    save(ByteTokenizer(), path)
    texts = [chr(97 + i) * (1 if i % 2 else 100_000) for i in range(20)]
    result = encode_all([make_task(text) for text in texts], path)
    assert [task.texts[0] for task, _ in result] == texts
    assert [
        bytes(encoded.tokens.astype("u1")).decode() for _, encoded in result
    ] == texts


def test_workers_are_used_again_and_few_tasks_are_read_ahead(tmp_path, monkeypatch):
    path, started, num_read = tmp_path / "tokenizer.json", [], itertools.count()
    save(ByteTokenizer(), path)

    def start(*args, **keywords):
        started.append(popen(*args, **keywords))
        return started[-1]

    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", start)
    tasks = (make_task(f"{next(num_read)}") for _ in range(12))
    results = encode_tasks(
        tasks,
        path,
        tokenizer=ByteTokenizer(),
        sentences="",
        dtype="<u2",
        workers=2,
    )
    next(results)
    assert next(num_read) == 4  # one for each worker, and two
    # In a group of its own, a worker gets no Ctrl-C.
    assert all(os.getpgid(each.pid) == each.pid for each in started)
    assert len(list(results)) == 11
    assert len(started) <= 2 and all(each.returncode < 0 for each in started)


def test_errors_of_a_worker(tmp_path, refuses):
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


def test_a_killed_pool_starts_no_worker(tmp_path):
    workers = _Pool([str(tmp_path / "tokenizer.json"), "", "<u2"])
    workers.kill()
    with pytest.raises(WorkerDied, match="have been ended"):
        workers.encode(make_task("a"))


def test_an_error_of_a_dead_worker_holds_no_buffer_of_a_bytesio(tmp_path):
    """That of `Connection.send` does, and CPython 3.12.1 dies when it collects it."""
    ours, other = Pipe()
    other.close()
    workers = _Pool([str(tmp_path), "", "<u2"])
    workers._idle.put((subprocess.Popen(["false"]), ours))
    with ours, pytest.raises(WorkerDied, match="exit code 1") as caught:
        workers.encode(make_task("a"))
    frames = traceback.walk_tb(caught.value.__cause__.__traceback__)
    values = [value for frame, _ in frames for value in frame.f_locals.values()]
    views = [value for value in values if isinstance(value, memoryview)]
    assert views and {type(view.obj) for view in views} == {bytes}


def make_pair(tmp_path):
    """A pipe's end, and a thread that serves the other one."""
    path = tmp_path / "tokenizer.json"
    save(ByteTokenizer(), path)
    ours, reference = Pipe()
    worker = threading.Thread(target=serve, args=(reference, str(path), "", "<u2"))
    worker.start()
    return ours, worker


def test_a_worker_ends_with_its_connection(tmp_path):
    ours, worker = make_pair(tmp_path)
    flags = np.ones(1, bool)
    ours.send((["\ud800\0é"], flags, flags))
    reply = ours.recv()
    assert bytes(reply.tokens.astype("u1")) == "\ud800\0é".encode(
        "utf-8", "surrogatepass"
    )
    assert reply.tokens.dtype == "<u2" and reply.counts.tolist() == [6]
    ours.close()
    worker.join(30)
    assert not worker.is_alive()


def test_a_worker_ends_in_the_middle_of_a_message(tmp_path):
    ours, worker = make_pair(tmp_path)
    os.write(ours.fileno(), (100).to_bytes(4, "big") + b"half a message")
    ours.close()
    worker.join(30)
    assert not worker.is_alive()


def test_a_worker_whose_reply_is_not_read(tmp_path):
    ours, worker = make_pair(tmp_path)
    flags = np.ones(1, bool)
    ours.send((["a" * 1_000_000], flags, flags))
    ours.close()
    worker.join(30)
    assert not worker.is_alive()


def test_a_script_without_a_main_guard(tmp_path):
    """Workers must not import the caller's main module."""
    path, script = tmp_path / "tokenizer.json", tmp_path / "script.py"
    save(ByteTokenizer(), path)
    script.write_text(
        f"""
import sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests" / "text" / "stores")!r}]
from pathlib import Path
from test_pool import encode_all, make_task
tasks = [make_task("a"), make_task("bc")]
print([len(ids.tokens) for _, ids in encode_all(tasks, Path({str(path)!r}))])
"""
    )
    command = [sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("[1, 2]\n", "")
