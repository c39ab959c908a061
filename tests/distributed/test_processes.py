"""What is set up before JAX touches a device."""

import os
import platform
import subprocess
import sys
import types

import jax
import pytest

from jaxpt.distributed import processes
from jaxpt.errors import DivergedError, Ended

FLAG = "--xla_force_host_platform_device_count"


@pytest.mark.parametrize(
    "flags, num_devices, threads",
    [
        ("", -1, None),
        (f"{FLAG}=1", -1, None),
        (f"--xla_dump_to=a {FLAG}=8 --b", -1, "32"),
        (f"{FLAG}=8 {FLAG}=2", -1, "8"),  # XLA takes the last
        ("", 3, "12"),
    ],
)
def test_several_devices_on_a_cpu_get_threads_to_spare(
    flags, num_devices, threads, monkeypatch
):
    monkeypatch.setenv("XLA_FLAGS", flags)
    monkeypatch.setenv("NPROC", "")
    monkeypatch.delenv("NPROC")
    config = types.SimpleNamespace(values={"jax_num_cpu_devices": num_devices})
    with monkeypatch.context() as patch:  # JAX itself takes the number only once
        patch.setattr(jax, "config", config)
        processes._widen_cpu_pool()
    assert os.environ.get("NPROC") == threads


def test_given_number_of_threads_stays(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", f"{FLAG}=8")
    monkeypatch.setenv("NPROC", "9")
    processes._widen_cpu_pool()
    assert os.environ["NPROC"] == "9"


TWICE = """
import ctypes, resource, sys
from jaxpt.distributed.processes import set_up_jax

set_up_jax()
small = [bytes(1000) for _ in range(100_000)]  # the heap grows: 100 MB are not free
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    place = libc.malloc(ctypes.c_size_t(40 * 2**20))
    ctypes.memset(place, 1, 40 * 2**20)
    libc.free(place)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="no glibc")
@pytest.mark.parametrize("padding, is_kept", [(None, True), ("131072", False)])
def test_freed_memory_is_kept_for_the_next_call(padding, is_kept):
    """Else each of the 10,240 pages is mapped once more; the user's own word stays."""
    env = {n: v for n, v in os.environ.items() if n != "MALLOC_TOP_PAD_"}
    env |= {"MALLOC_TOP_PAD_": padding} if padding else {}
    done = subprocess.run(
        [sys.executable, "-c", TWICE], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (int(done.stdout) < 1000) == is_kept


@pytest.mark.parametrize("is_first", [True, False])
def test_an_error_that_all_processes_raise_is_printed_by_the_first(
    is_first, monkeypatch
):
    """And ends none of them at once: each may go on, as a comparison does."""
    monkeypatch.setattr(processes, "is_alone", lambda: False)
    monkeypatch.setattr(processes, "is_first", lambda: is_first)

    expected = DivergedError if is_first else Ended
    with pytest.raises(expected) as raised, processes.guarded():
        raise DivergedError("the loss is nan")
    assert raised.value.exit_code == 3
