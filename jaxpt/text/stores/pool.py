"""Tokenises texts in several processes at once and yields the results in order."""

import contextlib
import itertools
import os
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jaxpt.errors import UserError
from jaxpt.text.stores.layout import Encoded
from jaxpt.text.stores.tasks import Task
from jaxpt.text.stores.worker import (
    DONE,
    REFUSED,
    encode_texts,
    pack_task,
    receive,
    send,
    unpack_reply,
)
from jaxpt.text.tokens.tokenizer import Tokenizer

_LOOK_AHEAD = 2


class WorkerDied(UserError):
    """A worker process ended before it replied; finished work remains valid."""


def count_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def encode_tasks(
    tasks: Iterable[Task],
    tokenizer: Tokenizer,
    path: Path,
    *,
    sentences: str,
    dtype: str,
    workers: int,
) -> Generator[tuple[Task, Encoded], None, None]:
    """Each task with its ids, in order, independent of the number of workers.

    Only a few tasks are in memory at a time. Closing the generator ends the workers.

    Args:
      tokenizer: used in this process if there is only one worker or one task.
      path: its file, written by `tokenizer.save`, which the workers load.
      workers: the number of worker processes.

    Raises:
      WorkerDied: a worker was killed.
      UserError: a text cannot be encoded.
    """
    tasks = iter(tasks)
    first = list(itertools.islice(tasks, 2))
    tasks = itertools.chain(first, tasks)
    if workers == 1 or len(first) < 2:
        for task in tasks:
            flags = task.pieces.is_start, task.is_sentence
            encoded = encode_texts(tokenizer, task.texts, *flags, sentences, dtype)
            yield task, encoded
        return
    pool = _Pool([str(path), sentences, dtype], dtype)
    threads = ThreadPoolExecutor(workers, "jaxpt-encode")
    pending: deque = deque()
    try:
        for task in tasks:
            pending.append((task, threads.submit(pool.encode, task)))
            if len(pending) == workers + _LOOK_AHEAD:
                task, future = pending.popleft()
                yield task, future.result()
        for task, future in pending:
            yield task, future.result()
    finally:
        pool.kill()
        threads.shutdown(cancel_futures=True)
        pool.close()


class _Pool:
    """Worker processes, started when needed, one for each busy thread."""

    def __init__(self, arguments: list[str], dtype: str):
        self._command = [
            sys.executable,
            "-P",
            "-m",
            "jaxpt.text.stores.worker",
            *arguments,
        ]
        self._dtype = dtype
        self._idle: queue.SimpleQueue[subprocess.Popen] = queue.SimpleQueue()
        self._all: list[subprocess.Popen] = []
        self._lock = threading.Lock()
        self._is_closed = False

    def encode(self, task: Task) -> Encoded:
        """The ids of a task."""
        try:
            worker = self._idle.get_nowait()
        except queue.Empty:
            worker = self._start()
        try:
            send(
                worker.stdin,
                *pack_task(task.data, task.pieces.is_start, task.is_sentence),
            )
            reply = receive(worker.stdout)
        except BrokenPipeError:
            reply = None
        if reply is None:
            code = worker.wait()
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise WorkerDied(
                f"a process that tokenises ended with {how} (out of memory?): finished "
                "work is kept, run the same command to resume"
            )
        kind = bytes(reply[:1])
        if kind == DONE:
            self._idle.put(worker)
            return unpack_reply(reply, self._dtype)
        message = str(reply[1:], "utf-8")
        raise UserError(message) if kind == REFUSED else RuntimeError(message)

    def kill(self) -> None:
        """Kills all workers; a thread that waits for one then fails."""
        with self._lock:
            self._is_closed = True
        for worker in self._all:
            worker.kill()

    def close(self) -> None:
        """Frees the workers' resources, once no thread uses them."""
        for worker in self._all:
            worker.wait()
            worker.stdout.close()
            with contextlib.suppress(BrokenPipeError):  # of data that was not sent
                worker.stdin.close()

    def _start(self) -> subprocess.Popen:
        # The worker imports modules from the same paths, and uses one thread.
        one = ("TOKENIZERS_PARALLELISM", "RAYON_NUM_THREADS", "OMP_NUM_THREADS")
        environment = os.environ | dict(zip(one, ("false", "1", "1"), strict=True))
        environment["PYTHONPATH"] = os.pathsep.join(
            os.path.abspath(p) for p in sys.path
        )
        with self._lock:
            if self._is_closed:
                raise WorkerDied("the processes that tokenise have been ended")
            worker = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                process_group=0,  # so that Ctrl-C reaches this process alone
            )
            self._all.append(worker)
        return worker
