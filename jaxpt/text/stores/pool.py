"""Tokenizes texts in several processes and yields the results in order.

A thread of `concurrent.futures.ThreadPoolExecutor` sends each task to a worker process
over a `multiprocessing` connection. `ProcessPoolExecutor` misses two requirements:
if the parent is killed (SIGKILL), its workers wait forever, as each holds the writing
end of the queue that it reads; and each worker imports the caller's main module,
so a script that calls `jaxpt.train` without `if __name__ == "__main__"` fails.
"""

import itertools
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

from jaxpt.errors import UserError
from jaxpt.text.stores.encode import Encoded, encode_texts
from jaxpt.text.stores.tasks import EncodingJob
from jaxpt.text.tokens.tokenizer import Tokenizer, load

_LOOK_AHEAD = 2  # tasks in memory in addition to one per worker
_ONE_THREAD = {
    "TOKENIZERS_PARALLELISM": "false",
    "RAYON_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}


EncodedTasks = Generator[tuple[EncodingJob, Encoded], None, None]


class WorkerDied(UserError):
    """A worker process ended before it replied; finished work remains valid."""


def count_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def encode_tasks(
    tasks: Iterable[EncodingJob],
    path: Path,
    *,
    tokenizer: Tokenizer,
    sentences: str,
    dtype: str,
    workers: int,
) -> EncodedTasks:
    """Yields each task with its ids, in order, independent of the number of workers.

    Only a few tasks are in memory at a time. Closing the generator ends the workers.

    Args:
      path: the tokenizer's file, written by `tokenizer.save`, which the workers load.
      tokenizer: used in this process if there is only one worker or one task.
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
            yield task, encode_texts(tokenizer, task.texts, *flags, sentences, dtype)
        return
    pool = _Pool([str(path), sentences, dtype])
    threads = ThreadPoolExecutor(workers, "jaxpt-encode")
    pending: deque[tuple[EncodingJob, Future[Encoded]]] = deque()
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

    def __init__(self, arguments: list[str]):
        self._arguments = arguments
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._all: list[_Worker] = []
        self._lock = threading.Lock()
        self._is_closed = False

    def encode(self, task: EncodingJob) -> Encoded:
        """The ids of a task."""
        try:
            process, connection = worker = self._idle.get_nowait()
        except queue.Empty:
            process, connection = worker = self._start()
        try:
            _send(connection, (task.texts, task.pieces.is_start, task.is_sentence))
            reply = connection.recv()
        except (EOFError, OSError) as error:
            code = process.wait()
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise WorkerDied(
                f"a tokenizing process ended with {how} (out of memory?): finished "
                "work is kept, run the same command to resume"
            ) from error
        if isinstance(reply, Exception):
            raise reply
        self._idle.put(worker)
        return reply

    def kill(self) -> None:
        """Kills all workers; a thread that waits for one then fails."""
        with self._lock:
            self._is_closed = True
        for process, _ in self._all:
            process.kill()

    def close(self) -> None:
        """Frees the workers' resources, once no thread uses them."""
        for process, connection in self._all:
            process.wait()
            connection.close()

    def _start(self) -> "_Worker":
        # The worker imports modules from the same paths.
        paths = os.pathsep.join(map(os.path.abspath, sys.path))
        with self._lock:
            if self._is_closed:
                raise WorkerDied("the tokenizing processes have been ended")
            parent_end, child_end = Pipe()
            handle = child_end.fileno()
            command = [sys.executable, "-P", "-m", __name__, *self._arguments]
            # Only the worker keeps its end, so that each sees the other's end.
            with child_end:
                process = subprocess.Popen(
                    [*command, str(handle)],
                    stdin=subprocess.DEVNULL,
                    stdout=2,  # stderr
                    env=os.environ | _ONE_THREAD | {"PYTHONPATH": paths},
                    pass_fds=[handle],
                    process_group=0,  # so that Ctrl-C reaches this process alone
                )
            self._all.append((process, parent_end))
        return process, parent_end


_Worker = tuple[subprocess.Popen[bytes], Connection]


def _send(connection: Connection, message: Any) -> None:
    """As `connection.send`, but an error holds no buffer of a BytesIO.

    CPython 3.12.1 ends with a segmentation fault when it collects such a buffer.
    """
    connection.send_bytes(pickle.dumps(message))


def serve(connection: Connection, path: str, sentences: str, dtype: str) -> None:
    """Replies to each task with its ids or an exception, until the parent ends."""
    tokenizer = None
    reply: Encoded | Exception
    while True:
        try:
            texts, is_start, is_sentence = connection.recv()
        except (EOFError, OSError):
            return
        try:
            tokenizer = tokenizer or load(path)
            flags = is_start, is_sentence
            reply = encode_texts(tokenizer, texts, *flags, sentences, dtype)
        except UserError as error:
            reply = error
        except Exception:
            reply = RuntimeError(traceback.format_exc())
        try:
            _send(connection, reply)
        except OSError:
            return


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to end
    *arguments, number = sys.argv[1:]
    serve(Connection(int(number)), *arguments)
