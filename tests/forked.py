"""Code in a process of its own without the seconds that importing JAX takes.

A server that has imported JAX, but not started it, forks for each. It begins with the
first, and ends with the process of the tests.
"""

import multiprocessing
import os
import sys
import tempfile
import types
from pathlib import Path

SERVER = multiprocessing.get_context("forkserver")
# Not huggingface_hub, which reads its variables when it is imported.
SERVER.set_forkserver_preload(
    ["jax", "flax.linen", "optax", "orbax.checkpoint", "tokenizers", "jaxpt.cli.main"]
)


def _execute(code, given, env, cwd, folder):
    """In the new process: its streams are the files of `folder`."""
    (folder / "in").write_text(given)
    for number, name in enumerate(("in", "out", "err")):
        place = os.open(folder / name, os.O_RDWR | os.O_CREAT)
        os.dup2(place, number)
        os.close(place)
    sys.stdin = open(0, closefd=False)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    exec(compile(code, "<test>", "exec"), {"__name__": "__main__"})


def run_forked(code, given="", env=None, cwd="."):
    """Runs code; raises if it fails.

    Args:
      given: what it reads from stdin.
      env: all of its environment variables. Those that JAX reads when it is imported
        are the ones of the first call's process.

    Returns:
      What it wrote to `stdout` and `stderr`.
    """
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        env = dict(os.environ if env is None else env)
        process = SERVER.Process(
            target=_execute, args=(code, given, env, str(cwd), folder)
        )
        process.start()
        process.join()
        out, err = ((folder / name).read_text() for name in ("out", "err"))
    assert process.exitcode == 0, f"exit code {process.exitcode}: {err}"
    return types.SimpleNamespace(stdout=out, stderr=err)
