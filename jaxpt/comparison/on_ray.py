"""A comparison whose runs are tasks of a Ray cluster (https://docs.ray.io).

Ray says which machine trains which run, and starts a run anew whose machine or process
was lost; it then resumes from its last checkpoint (`parts`). All machines must share
the comparison's folder and the one that the command is given in, and have jaxpt.
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

from jaxpt import logs, trust
from jaxpt.comparison.parts import Part, do_part, load_compared
from jaxpt.comparison.prepared import list_runs, run_name
from jaxpt.config.plan import make_compare_spec
from jaxpt.config.settings import to_dict
from jaxpt.distributed import processes
from jaxpt.errors import UserError
from jaxpt.training.signals import Stopped

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Where the runs go, and what each takes.

    Attributes:
      address: "local" starts Ray on this machine, "auto" takes the cluster that this
        machine belongs to; or the cluster's own.
      cpus: of each run.
      gpus: of each run; None is 1 where the cluster has any.
      resources: custom ones of each run, such as {"TPU": 4}.
      retries: how often a run may lose its process or machine.
    """

    address: str
    cpus: int = 1
    gpus: int | None = None
    resources: dict[str, float] = dataclasses.field(default_factory=dict)
    retries: int = 3

    FLAGS: ClassVar[tuple[str, ...]] = ("cpus", "gpus", "resources", "retries")

    def __post_init__(self):
        for name in ("cpus", "gpus", "retries"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise UserError(f"--ray_{name}={value}: must be at least 0")

    @classmethod
    def read(cls, address: str, asked: Mapping[str, Any]) -> Optional["Cluster"]:
        """By the command's flags, of which those that are not given are None or "".

        Raises:
          UserError: one that cannot be, or one of them without an address.
        """
        given = {name: v for name, v in asked.items() if v not in (None, "")}
        if not address:
            for name, value in given.items():
                raise UserError(f"--ray_{name}={value}: is for --ray")
            return None
        if "resources" in given:
            given["resources"] = _read_resources(given["resources"])
        return cls(address, **given)


def _read_resources(text: str) -> dict[str, float]:
    """Custom resources by name.

    >>> _read_resources("TPU=4,big=0.5")
    {'TPU': 4.0, 'big': 0.5}
    """
    found = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*([^=\s]+)\s*=\s*(\d+\.?\d*)\s*", part)
        if not match:
            raise UserError(
                f"--ray_resources={text}: must be NAME=NUMBER, with commas between"
            )
        found[match[1]] = float(match[2])
    return found


def compare_on_ray(
    cluster: Cluster, config, workdir: Path, given: Collection[str] = ()
) -> str:
    """Does `compare.compare` in a cluster, a task for each run; gives what it tells.

    Raises:
      UserError: as `compare.compare`; Ray is not installed or not there; or a run has
        lost its machine too often.
    """
    config = to_dict(config)
    runs = [run_name(*run) for run in list_runs(make_compare_spec(config))]
    ray = _import_ray()
    try:
        ray.init(cluster.address, logging_level="warning")
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = (str(error) or repr(error)).splitlines()[0]
        raise UserError(f"--ray={cluster.address}: no cluster: {reason}") from error
    try:
        options = _make_options(ray, cluster)
        task, here = ray.remote(**options)(_do_part), os.getcwd()
        more = here, trust.list_trusted(), logs.is_quiet()
        wait = partial(_wait, ray, cluster)

        def start(part: Part, config: dict | None = None):
            return task.remote(part, config, str(workdir), list(given), *more)

        wait({start(Part("prepare"), config): "what the runs share"})
        wait({start(Part("runs", run)): run for run in runs})
        (told,) = wait({start(Part("report")): "the report"})
        return told
    finally:
        ray.shutdown()


def _do_part(
    part: Part,
    config: dict | None,
    workdir: str,
    given: list[str],
    folder: str,
    trusted: list[str],
    is_quiet: bool = False,
) -> tuple[str, str]:
    """In a process of Ray's: what there is to tell, and a fault that stays one."""
    try:
        _enter(folder)
        trust.trust(trusted)
        processes.set_up_jax()
        config = config or load_compared(Path(workdir))
        with logs.terminal(is_quiet):
            return do_part(part, config, Path(workdir), given), ""
    except UserError as error:
        return "", str(error)
    except Stopped as stop:  # the machine is taken away: to be done on another
        raise InterruptedError(str(stop)) from None


def _enter(folder: str) -> None:
    """Goes where the command was given: paths may be relative to that."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise UserError(
            f"{folder}: cannot be entered on {os.uname().nodename}: {error.strerror}; "
            f"give the command in a folder that all machines share"
        ) from None


def _make_options(ray: ModuleType, cluster: Cluster) -> dict[str, Any]:
    """What a task takes of its machine, and when it is started anew."""
    gpus = cluster.gpus
    if gpus is None:
        gpus = int(ray.cluster_resources().get("GPU", 0) > 0)
    taken = {"CPU": cluster.cpus, "GPU": gpus} | cluster.resources
    told = ", ".join(f"{number:g} {name}" for name, number in taken.items() if number)
    _log.info(f"each run takes {told}")
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
        "max_calls": 1,  # a device's memory is given back with its process
        "runtime_env": {"env_vars": {"OMP_NUM_THREADS": _count_threads()}},
    }


def _count_threads() -> str:
    """What BLAS would have in one process here.

    Ray gives it as many as a task has CPUs, and sums in another order have other bits.
    """
    is_linux = hasattr(os, "sched_getaffinity")
    own = len(os.sched_getaffinity(0)) if is_linux else os.cpu_count()
    return os.environ.get("OMP_NUM_THREADS") or str(own)


def _wait(ray: ModuleType, cluster: Cluster, tasks: dict[Any, str]) -> list[str]:
    """What tasks have to tell when all are done; the first fault ends it."""
    left, told = list(tasks), []
    while left:
        (done,), left = ray.wait(left)
        name = tasks[done]
        try:
            text, fault = ray.get(done)
        except ray.exceptions.RayTaskError as error:
            if not isinstance(error.cause, InterruptedError):
                raise
            raise UserError(f"{name}: {error.cause} (--ray_retries)") from None
        except ray.exceptions.RayError as error:
            raise UserError(
                f"{name}: lost its process or machine more than --ray_retries="
                f"{cluster.retries} times ({type(error).__name__}); start again to go "
                f"on from its last checkpoint"
            ) from None
        if fault:
            raise UserError(fault)
        told.append(text)
        end = "diverged" if text.startswith("diverged") else "done"
        _log.info(f"{name}: {end} ({len(tasks) - len(left)} of {len(tasks)})")
    return told


def _import_ray() -> ModuleType:
    try:
        import ray
    except ImportError:
        raise UserError("--ray: needs Ray: pip install 'jaxpt[ray]'") from None
    return ray
