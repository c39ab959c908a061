"""Trains the runs of a comparison as tasks of a Ray cluster (https://docs.ray.io).

Ray assigns runs to machines, and restarts a run whose machine or process was lost; it
then resumes from its last checkpoint (`train_runs`). All machines must have jaxpt, and
share the comparison's folder and the current folder.
"""

import dataclasses
import logging
import os
import re
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Optional

from jaxpt import logs, optional, trust
from jaxpt.comparison.compare import Part, do_part
from jaxpt.comparison.plan_runs import list_runs, load_compared_config, run_name
from jaxpt.config.plan import make_compare_spec
from jaxpt.config.settings import to_dict
from jaxpt.distributed import processes
from jaxpt.errors import (
    PYTHON,
    DeviceError,
    Spelling,
    UserError,
    argument,
    current_spelling,
    spelled,
)
from jaxpt.runs.signals import Stopped

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The Ray cluster, and the resources of each run.

    Attributes:
      address: "local" starts Ray on this machine, "auto" takes the cluster that this
        machine belongs to; or the cluster's address.
      cpus: of each run.
      gpus: of each run; None is 1 if the cluster has any.
      resources: custom resources of each run, such as {"TPU": 4}.
      retries: how often a run may lose its process or machine.
    """

    address: str
    cpus: int = 1
    gpus: int | None = None
    resources: dict[str, float] = dataclasses.field(default_factory=dict)
    retries: int = 3

    FLAGS: ClassVar[tuple[str, ...]] = ("cpus", "gpus", "resources", "retries")

    def __post_init__(self) -> None:
        for name in ("cpus", "gpus", "retries"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise DeviceError(
                    f"{argument(f'ray_{name}')}={value}: must be at least 0"
                )

    @classmethod
    def read(cls, address: str, flags: Mapping[str, Any]) -> Optional["Cluster"]:
        """The cluster from the command's flags; None or "" is an absent flag."""
        options = {name: v for name, v in flags.items() if v not in (None, "")}
        if not address:
            for name, value in options.items():
                raise DeviceError(
                    f"{argument(f'ray_{name}')}={value}: is for {argument('ray')}"
                )
            return None
        if "resources" in options:
            options["resources"] = _read_resources(options["resources"])
        return cls(address, **options)


def _read_resources(text: str) -> dict[str, float]:
    """Custom resources by name.

    >>> _read_resources("TPU=4,big=0.5")
    {'TPU': 4.0, 'big': 0.5}
    """
    resources = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*([^=\s]+)\s*=\s*(\d+\.?\d*)\s*", part)
        if not match:
            raise DeviceError(
                f"{argument('ray_resources')}={text}: must be NAME=NUMBER, with commas "
                "between"
            )
        resources[match[1]] = float(match[2])
    return resources


def compare_on_ray(
    cluster: Cluster,
    config: Mapping[str, Any],
    workdir: Path,
    explicit_names: Collection[str] = (),
) -> str:
    """Does `compare.compare` in a cluster, a task for each run; the text to print."""
    config = to_dict(config)
    runs = [run_name(*run) for run in list_runs(make_compare_spec(config))]
    ray = connect(cluster)
    try:
        options = make_options(ray, cluster)
        task, here = ray.remote(**options)(_do_part), os.getcwd()
        more = here, trust.list_trusted(), logs.is_quiet(), current_spelling()
        wait = partial(wait_for, ray, cluster)

        def start(part: Part, config: dict | None = None) -> Any:
            return task.remote(part, config, str(workdir), list(explicit_names), *more)

        wait({start(Part("prepare"), config): "what the runs share"})
        wait({start(Part("runs", run)): run for run in runs})
        (text,) = wait({start(Part("report")): "the report"})
        return text
    finally:
        ray.shutdown()


def connect(cluster: Cluster) -> ModuleType:
    """Connects to the cluster, or starts it; the module `ray`."""
    ray = optional.need("ray", "ray", argument("ray"), DeviceError)
    try:
        ray.init(cluster.address, logging_level="warning")
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = (str(error) or repr(error)).splitlines()[0]
        raise DeviceError(
            f"{argument('ray')}={cluster.address}: no cluster: {reason}"
        ) from error
    return ray


def _do_part(
    part: Part,
    config: dict | None,
    workdir: str,
    explicit_names: list[str],
    folder: str,
    trusted: list[str],
    is_quiet: bool = False,
    spelling: Spelling = PYTHON,
) -> tuple[str, str]:
    """Runs in a process of Ray: the text to print, and the message of a UserError."""
    try:
        enter(folder)
        trust.trust(trusted)
        processes.set_up_jax()
        config = config or load_compared_config(Path(workdir))
        with logs.terminal(is_quiet), spelled(spelling):
            return do_part(part, config, Path(workdir), explicit_names), ""
    except UserError as error:
        return "", str(error)
    except Stopped as stop:  # preempted: Ray restarts it on another machine
        raise InterruptedError(str(stop)) from None


def enter(folder: str) -> None:
    """Changes to the folder of the command: paths may be relative to it."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise DeviceError(
            f"{folder}: cannot be entered on {os.uname().nodename}: {error.strerror}; "
            f"give the command in a folder that all machines share"
        ) from None


def make_options(ray: ModuleType, cluster: Cluster) -> dict[str, Any]:
    """Ray's options of a task: its resources and retries."""
    gpus = cluster.gpus
    if gpus is None:
        gpus = int(ray.cluster_resources().get("GPU", 0) > 0)
    taken = {"CPU": cluster.cpus, "GPU": gpus} | cluster.resources
    listed = ", ".join(f"{number:g} {name}" for name, number in taken.items() if number)
    _log.info(f"each task takes {listed}")
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(
        all(machine.get(name, 0) >= number for name, number in taken.items())
        for machine in machines
    ):
        _log.info("no machine of the cluster has that now; waiting for one")
    return {
        "num_cpus": cluster.cpus,
        "num_gpus": gpus,
        "resources": cluster.resources,
        "max_retries": cluster.retries,
        "retry_exceptions": [InterruptedError],
        "max_calls": 1,  # the end of the process frees the device's memory
        "runtime_env": {"env_vars": {"OMP_NUM_THREADS": _count_threads()}},
    }


def _count_threads() -> str:
    """The number of BLAS threads in one process of this machine.

    Ray sets it to the number of a task's CPUs, and sums in another order have other
    bits.
    """
    is_linux = hasattr(os, "sched_getaffinity")
    num_cores = len(os.sched_getaffinity(0)) if is_linux else os.cpu_count()
    return os.environ.get("OMP_NUM_THREADS") or str(num_cores)


def wait_for(ray: ModuleType, cluster: Cluster, tasks: dict[Any, str]) -> list[str]:
    """Waits for all tasks and returns their texts; the first fault is raised."""
    pending, texts = list(tasks), []
    while pending:
        (done,), pending = ray.wait(pending)
        name = tasks[done]
        try:
            text, fault = ray.get(done)
        except ray.exceptions.RayTaskError as error:
            if not isinstance(error.cause, InterruptedError):
                raise
            raise DeviceError(
                f"{name}: {error.cause} ({argument('ray_retries')})"
            ) from None
        except ray.exceptions.RayError as error:
            raise DeviceError(
                f"{name}: lost its process or machine more than "
                f"{argument('ray_retries')}={cluster.retries} times "
                f"({type(error).__name__}); repeat the command to resume"
            ) from None
        if fault:
            raise UserError(fault)
        texts.append(text)
        end = "diverged" if text.startswith("diverged") else "done"
        _log.info(f"{name}: {end} ({len(tasks) - len(pending)} of {len(tasks)})")
    return texts
