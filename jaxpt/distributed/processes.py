"""Several processes of one run (`jax.distributed`): start, agreement and errors.

Every process makes the same calls in the same order, each on its own devices. Process 0
alone reads and writes the run's files, prints, and decides what depends on files. With
one process, these functions do nothing.
"""

import contextlib
import ctypes
import functools
import json
import logging
import os
import platform
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxpt.distributed import compilation_cache
from jaxpt.errors import DeviceError, Ended, UserError, argument

VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
M_TOP_PAD = -2  # of glibc's malloc.h
KEPT_BYTES = 2**30
MESSAGE_BYTES = 2000  # of an error message that is sent to the other processes


class FailedElsewhere(UserError):
    """An error that another process has raised and prints."""

    def __init__(self, message: str, exit_code: int = 2):
        super().__init__(message)
        self.exit_code = exit_code


def set_up_jax() -> None:
    """Sets JAX's compilation cache, which all runs of this user share.

    On a CPU also sets the number of threads, and the freed memory that the process
    keeps. Must be called before anything touches a device.
    """
    _widen_cpu_pool()
    _keep_freed_memory()
    compilation_cache.set_up()


def _widen_cpu_pool() -> None:
    """Gives several devices on one CPU more threads (XLA reads NPROC).

    Each device blocks a thread while it waits for the others in a collective. With one
    thread per device, XLA's default, the last device may wait forever for a thread:
    this happened in two runs of ten with two devices on two cores.
    """
    flag = r"--xla_force_host_platform_device_count=(\d+)"
    matches = re.findall(flag, os.environ.get("XLA_FLAGS", ""))
    num_devices = max(
        [jax.config.values["jax_num_cpu_devices"], *map(int, matches[-1:])]
    )
    if num_devices > 1:
        os.environ.setdefault("NPROC", str(4 * num_devices))


def _keep_freed_memory() -> None:
    """Lets glibc keep up to 1 GiB of freed memory for the next call.

    On a CPU, XLA allocates a call's temporary memory each time. If it were returned to
    the system, every page would be mapped and zeroed again, which is 5 % of a small
    model's step. `MALLOC_TOP_PAD_` (bytes) overrides this.
    """
    if platform.libc_ver()[0] == "glibc" and "MALLOC_TOP_PAD_" not in os.environ:
        ctypes.CDLL(None).mallopt(M_TOP_PAD, KEPT_BYTES)


def start(heartbeat_seconds: int) -> None:
    """Joins the other processes of the run, before anything touches a device.

    They are found by the three `VARIABLES` if those are set, else as
    `jax.distributed.initialize` does: SLURM, Open MPI, Cloud TPU, GKE.

    Args:
      heartbeat_seconds: if a process is silent for longer, the others end.
    """
    if heartbeat_seconds < 1:
        raise DeviceError(
            f"{argument('heartbeat_seconds')}={heartbeat_seconds}: must be at least 1"
        )
    # JAX's service would take over SIGTERM; the loop handles signals itself.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            **_read_variables(), heartbeat_timeout_seconds=heartbeat_seconds
        )
    except (ValueError, RuntimeError) as error:
        reason = (str(error) or repr(error)).splitlines()[0]
        raise DeviceError(
            f"{argument('distributed')}: cannot join the other processes: {reason} Set "
            f"{', '.join(VARIABLES)}, or start under SLURM, Open MPI, on a TPU pod or "
            f"on GKE"
        ) from error
    # Now, while all are here: some back ends time out at a late first collective.
    multihost_utils.sync_global_devices("start")


def _read_variables() -> dict[str, Any]:
    """Arguments of `jax.distributed.initialize`, none if no variable is set."""
    variables = {name: os.environ.get(name) for name in VARIABLES}
    if not any(variables[name] for name in VARIABLES[1:]):
        return {}  # JAX completes an address alone
    values = []
    for name, value in variables.items():
        if not value:
            raise DeviceError(f"{name}: must be set with the others of {VARIABLES}")
        if name != VARIABLES[0] and not value.isdecimal():
            raise DeviceError(f"{name}={value}: must be a whole number")
        values.append(value)
    address, number, index = values[0], int(values[1]), int(values[2])
    if ":" not in address:
        raise DeviceError(f"{VARIABLES[0]}={address}: must be HOST:PORT")
    if not index < number:
        raise DeviceError(f"{VARIABLES[2]}={index}: must be below {VARIABLES[1]}")
    return {
        "coordinator_address": address,
        "num_processes": number,
        "process_id": index,
        "cluster_detection_method": "deactivate",
    }


def check_alone() -> None:
    """Raises UserError if the environment is that of one of several processes."""
    for name in (VARIABLES[1], "SLURM_STEP_NUM_TASKS"):
        number = os.environ.get(name, "")
        if number.isdecimal() and int(number) > 1:
            raise DeviceError(
                f"{name}={number}: this is one process of several: add "
                f"{argument('distributed')}, or each of them does the same run"
            )


def is_alone() -> bool:
    """Whether this is the only process; does not touch a device."""
    return not jax.distributed.is_initialized() or jax.process_count() == 1


def is_first() -> bool:
    """Whether this process writes files and prints."""
    return is_alone() or jax.process_index() == 0


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Within it, an error that another process prints becomes `Ended`.

    An error that the others may not know of ends this process immediately. Otherwise it
    would wait for them at its end, and they for it. They notice its missing heartbeat.
    """
    try:
        yield
    except FailedElsewhere as error:
        raise Ended(error.exit_code) from None
    except BaseException as error:
        is_known = getattr(error, "is_known", False)
        if is_known and isinstance(error, UserError) and not is_first():
            raise Ended(error.exit_code) from None  # process 0 prints it
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
        cause = "its devices failed, or another process is gone"
        log.error(f"{name}: {cause}: {error}")
    else:
        traceback.print_exception(error)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def on_first(function: Callable, *args: Any) -> Any:
    """Calls `function(*args)` on process 0 and returns its value on all.

    The value must be plain JSON.

    Raises:
      FailedElsewhere: on the others, the error of `function` on process 0.
    """
    if is_alone():
        return function(*args)
    if not is_first():
        failure, value = json.loads(_broadcast(""))
        if failure:
            raise FailedElsewhere(failure, exit_code=value)
        return value
    try:
        value = function(*args)
        message = json.dumps(["", value])
    except Exception as error:
        exit_code = getattr(error, "exit_code", 2)
        _broadcast(json.dumps([_describe(error), exit_code]))
        error.is_known = True  # type: ignore[attr-defined]
        raise
    _broadcast(message)
    return value


def from_first(function: Callable) -> Callable:
    """A function that process 0 calls for all (`on_first`): a decorator of writers."""

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return on_first(function, *args)

    return call


def on_all(function: Callable, *args: Any) -> Any:
    """Calls `function(*args)` on each process; if it fails on one, it fails on all.

    Raises:
      FailedElsewhere: on all but the first to fail, in order of the processes.
    """
    if is_alone():
        return function(*args)
    value = None
    failure: Any = None
    try:
        value = function(*args)
    except Exception as error:
        failure = error
    messages = gather("" if failure is None else _describe(failure))
    failed = [index for index, text in enumerate(messages) if text]
    if not failed:
        return value
    if failed[0] == jax.process_index():
        failure.is_known = True
        raise failure
    raise FailedElsewhere(messages[failed[0]]) from failure


def first_then_rest(function: Callable[[], Any]) -> Any:
    """Calls `function` on process 0, then on the others; returns its value.

    So the others find the files that it writes on a shared disk; with local disks, each
    writes them again.
    """
    value = on_all(lambda: function() if is_first() else None)
    return on_all(lambda: value if is_first() else function())


def check_same(label: str, value: str) -> None:
    """Raises UserError unless `value` is the same on every process."""
    values = [value] if is_alone() else gather(value)

    def check():
        for index, other in enumerate(values):
            if other != values[0]:
                raise DeviceError(f"process {index} has another {label} than process 0")

    on_all(check)


def greatest(number: int) -> int:
    """The maximum of a number over all processes, which wait for each other."""
    if is_alone():
        return number
    return int(multihost_utils.process_allgather(np.int32(number)).max())


def gather(text: str) -> list[str]:
    """A text of each process, in order, cut to MESSAGE_BYTES."""
    data = text.encode()[:MESSAGE_BYTES]
    padded = np.zeros(MESSAGE_BYTES, np.uint8)
    padded[: len(data)] = np.frombuffer(data, np.uint8)
    rows = np.asarray(multihost_utils.process_allgather(padded))
    return [bytes(row).rstrip(b"\0").decode(errors="replace") for row in rows]


def _broadcast(text: str) -> str:
    """Process 0's text, on all."""
    data = np.frombuffer(text.encode(), np.uint8)
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(data))))
    if not is_first():
        data = np.zeros(size, np.uint8)
    return bytes(np.asarray(multihost_utils.broadcast_one_to_all(data))).decode()


def _describe(error: Exception) -> str:
    if isinstance(error, UserError):
        return str(error)
    return f"{type(error).__name__}: {error}"


class Vote:
    """The maximum of a number over all processes, without waiting for it."""

    def __init__(self):
        mesh = Mesh(np.array(jax.devices()), ("devices",))
        self._by_device = NamedSharding(mesh, PartitionSpec("devices"))
        whole = NamedSharding(mesh, PartitionSpec())
        self._greatest = jax.jit(jnp.max, out_shardings=whole)

    def cast(self, number: int) -> jax.Array:
        """The maximum, ready when all processes have called this; `int` fetches it."""

        def read(index):
            return np.full(1, number, np.int32)

        shape = (jax.device_count(),)
        return self._greatest(
            jax.make_array_from_callback(shape, self._by_device, read)
        )
