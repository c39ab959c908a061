"""Several processes as one run: how they meet, who speaks, and what all agree on.

Every process makes the same calls in the same order, each on its own devices. Files and
the terminal belong to process 0, and so does whatever is decided by looking at files.
With one process, all of this is nothing.
"""

import ctypes
import json
import logging
import os
import platform
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxpt.errors import UserError

VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
M_TOP_PAD = -2  # of glibc's malloc.h
KEPT_BYTES = 2**30
MESSAGE_BYTES = 2000  # of an error that is told to the other processes


class FailedElsewhere(UserError):
    """An error that another process has raised, and says."""


def set_up_jax() -> None:
    """Sets JAX's compilation cache, shared by all runs of this user.

    Also, for a CPU, the threads of its devices and the memory that stays with the
    process. Must be called before anything touches a device.
    """
    _widen_cpu_pool()
    _keep_freed_memory()
    given = jax.config.values["jax_compilation_cache_dir"]  # or its variable
    cache = given or str(Path.home() / ".cache" / "jaxpt" / "xla")
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)


def _widen_cpu_pool() -> None:
    """Gives several devices on one CPU threads to spare (XLA reads NPROC).

    Each holds one while it waits for the others in a collective; with no more threads
    than devices, XLA's default, the last one may wait for ever for a thread to compute
    in, which happened to two runs in ten on two devices and two cores.
    """
    flag = r"--xla_force_host_platform_device_count=(\d+)"
    found = re.findall(flag, os.environ.get("XLA_FLAGS", ""))
    num_devices = max([jax.config.values["jax_num_cpu_devices"], *map(int, found[-1:])])
    if num_devices > 1:
        os.environ.setdefault("NPROC", str(4 * num_devices))


def _keep_freed_memory() -> None:
    """Lets glibc keep up to 1 GiB of freed memory for the next call.

    XLA takes a call's temporary memory anew each time on a CPU; given back in between,
    every page of it is mapped and zeroed once more, 5 % of a small model's step. Who
    sets `MALLOC_TOP_PAD_` (bytes) has decided otherwise.
    """
    if platform.libc_ver()[0] == "glibc" and "MALLOC_TOP_PAD_" not in os.environ:
        ctypes.CDLL(None).mallopt(M_TOP_PAD, KEPT_BYTES)


def start(heartbeat_seconds: int) -> None:
    """Joins the other processes of the run, before anything touches a device.

    They are found by the three `VARIABLES` if those are set, else as
    `jax.distributed.initialize` does: SLURM, Open MPI, Cloud TPU, GKE.

    Args:
      heartbeat_seconds: a process not heard of for so long is dead; the others end.

    Raises:
      UserError: there is nothing to join, or it did not answer.
    """
    if heartbeat_seconds < 1:
        raise UserError(f"--heartbeat_seconds={heartbeat_seconds}: must be at least 1")
    # JAX's own would take SIGTERM from us, and only that: the loop asks all processes.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            **_read_variables(), heartbeat_timeout_seconds=heartbeat_seconds
        )
    except (ValueError, RuntimeError) as error:
        reason = (str(error) or repr(error)).splitlines()[0]
        raise UserError(
            f"--distributed: cannot join the other processes: {reason} Set "
            f"{', '.join(VARIABLES)}, or start under SLURM, Open MPI, on a TPU pod or "
            f"on GKE"
        ) from error
    # Now, while all are here: some back ends give up if the first one comes late.
    multihost_utils.sync_global_devices("start")


def _read_variables() -> dict[str, Any]:
    """Arguments of `jax.distributed.initialize`, none if no variable is set."""
    given = {name: os.environ.get(name) for name in VARIABLES}
    if not any(given[name] for name in VARIABLES[1:]):
        return {}  # an address alone is JAX's to complete
    found = []
    for name, value in given.items():
        if not value:
            raise UserError(f"{name}: must be set with the others of {VARIABLES}")
        if name != VARIABLES[0] and not value.isdecimal():
            raise UserError(f"{name}={value}: must be a whole number")
        found.append(value)
    address, number, index = found[0], int(found[1]), int(found[2])
    if ":" not in address:
        raise UserError(f"{VARIABLES[0]}={address}: must be HOST:PORT")
    if not index < number:
        raise UserError(f"{VARIABLES[2]}={index}: must be below {VARIABLES[1]}")
    return {
        "coordinator_address": address,
        "num_processes": number,
        "process_id": index,
        "cluster_detection_method": "deactivate",
    }


def check_alone() -> None:
    """Raises UserError where the environment is that of one of several processes."""
    for name in (VARIABLES[1], "SLURM_STEP_NUM_TASKS"):
        number = os.environ.get(name, "")
        if number.isdecimal() and int(number) > 1:
            raise UserError(
                f"{name}={number}: this is one process of several: add --distributed, "
                f"or each of them does the same run"
            )


def is_alone() -> bool:
    """Whether this is the only process; does not touch a device to know."""
    return not jax.distributed.is_initialized() or jax.process_count() == 1


def is_first() -> bool:
    """Whether this process writes and speaks."""
    return is_alone() or jax.process_index() == 0


def guard(function: Callable[[], int]) -> int:
    """What `function` gives, or 2 for an error that another process says.

    An error of which the others may not know ends this process at once: as usual it
    would wait for them at the end, and they for it wherever they are. So they learn by
    its silence.
    """
    try:
        return function()
    except FailedElsewhere:
        return 2
    except BaseException as error:
        is_known = getattr(error, "is_known", False)
        if is_known and isinstance(error, UserError) and not is_first():
            return 2  # process 0 prints it
        if is_alone() or is_known:
            raise
        _leave(error)


def _leave(error: BaseException) -> NoReturn:
    name, code = f"process {jax.process_index()}", 1
    log = logging.getLogger(__name__)
    if isinstance(error, UserError):
        code = 2
        log.error(f"{name}: {error}")
    elif isinstance(error, KeyboardInterrupt):
        code = 130
        log.error(f"{name}: interrupted")
    elif isinstance(error, jax.errors.JaxRuntimeError):
        what = "its devices failed, or another process is gone"
        log.error(f"{name}: {what}: {error}")
    else:
        traceback.print_exception(error)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def on_first(function: Callable[[], Any]) -> Any:
    """What `function` gives on process 0, on all; it must be plain JSON values.

    Raises:
      FailedElsewhere: on the others, what `function` raises on process 0.
    """
    if is_alone():
        return function()
    if not is_first():
        failure, value = json.loads(_broadcast(""))
        if failure:
            raise FailedElsewhere(failure)
        return value
    try:
        value = function()
        message = json.dumps(["", value])
    except Exception as error:
        _broadcast(json.dumps([_describe(error), None]))
        error.is_known = True  # type: ignore[attr-defined]
        raise
    _broadcast(message)
    return value


def on_all(function: Callable[[], Any]) -> Any:
    """What `function` gives on each; where it fails on one process, it does on all.

    Raises:
      FailedElsewhere: on all but the first to fail, in order of the processes.
    """
    if is_alone():
        return function()
    value = None
    failure: Any = None
    try:
        value = function()
    except Exception as error:
        failure = error
    told = gather("" if failure is None else _describe(failure))
    failed = [index for index, text in enumerate(told) if text]
    if not failed:
        return value
    if failed[0] == jax.process_index():
        failure.is_known = True
        raise failure
    raise FailedElsewhere(told[failed[0]]) from failure


def first_then_rest(function: Callable[[], Any]) -> Any:
    """What `function` gives on each, which the others begin when process 0 is done.

    So what it leaves on a shared disk is there for them; where each has a disk of its
    own, they do it again.
    """
    value = on_all(lambda: function() if is_first() else None)
    return on_all(lambda: value if is_first() else function())


def check_same(what: str, value: str) -> None:
    """Raises UserError unless a text is the same on every process."""
    values = [value] if is_alone() else gather(value)

    def check():
        for index, other in enumerate(values):
            if other != values[0]:
                raise UserError(f"process {index} has another {what} than process 0")

    on_all(check)


def greatest(number: int) -> int:
    """The greatest of a number that each process gives; all wait for all."""
    if is_alone():
        return number
    return int(multihost_utils.process_allgather(np.int32(number)).max())


def gather(text: str) -> list[str]:
    """A text of each process, at most MESSAGE_BYTES of it, in order."""
    given = text.encode()[:MESSAGE_BYTES]
    padded = np.zeros(MESSAGE_BYTES, np.uint8)
    padded[: len(given)] = np.frombuffer(given, np.uint8)
    rows = np.asarray(multihost_utils.process_allgather(padded))
    return [bytes(row).rstrip(b"\0").decode(errors="replace") for row in rows]


def _broadcast(text: str) -> str:
    """Process 0's text, on all."""
    given = np.frombuffer(text.encode(), np.uint8)
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(given))))
    if not is_first():
        given = np.zeros(size, np.uint8)
    return bytes(np.asarray(multihost_utils.broadcast_one_to_all(given))).decode()


def _describe(error: Exception) -> str:
    if isinstance(error, UserError):
        return str(error)
    return f"{type(error).__name__}: {error}"


class Vote:
    """The greatest of a number that each process gives, without waiting for it."""

    def __init__(self):
        mesh = Mesh(np.array(jax.devices()), ("devices",))
        self._by_device = NamedSharding(mesh, PartitionSpec("devices"))
        whole = NamedSharding(mesh, PartitionSpec())
        self._greatest = jax.jit(jnp.max, out_shardings=whole)

    def cast(self, number: int) -> jax.Array:
        """The result, which all processes have when all have cast; `int` fetches it."""

        def read(index):
            return np.full(1, number, np.int32)

        shape = (jax.device_count(),)
        return self._greatest(
            jax.make_array_from_callback(shape, self._by_device, read)
        )
