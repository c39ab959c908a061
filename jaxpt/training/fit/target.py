"""Devices by description, for XLA's compilers, which need no device."""

import contextlib
import dataclasses
import importlib.util
import logging
import re
from collections.abc import Iterator
from importlib import resources
from types import SimpleNamespace
from typing import Any
from unittest import mock

import jax
from jax.experimental import topologies

from jaxpt import optional
from jaxpt.errors import ConfigError, DeviceError, argument

CUDNN = 91000  # the version of cuDNN in the descriptions of GPUs
EXTRA = "fit"  # of the compilers
PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")


@dataclasses.dataclass(frozen=True)
class Chip:
    """A kind of device.

    Attributes:
      name: for a reader.
      gib: memory in GiB that a program may use; None of a CPU, which is not described.
      num_dims: the axes of a TPU's topology; 0 of others.
      capability: of an NVIDIA GPU.
      changes: of a GPU that differs from the H200 in these parts of its description
        alone: {part: its value}.
      clock: of a TPU, in Hz, for the cycles that its compiler estimates.
    """

    name: str
    gib: float | None
    num_dims: int = 0
    capability: str = ""
    changes: tuple[tuple[str, str], ...] = ()
    clock: float | None = None


# An H100 SXM has the processors and the cache of an H200 (NVIDIA's data sheets).
H100 = (
    ("memory_bandwidth", "3350000000000"),
    ("device_memory_size", "84941864960"),
    ("name", '"NVIDIA H100 80GB HBM3"'),
    ("device_description_str", '"NVIDIA H100 80GB HBM3"'),
)
# Of v5e as libtpu reports, of the others nominal. The 4 units of 128 x 128 of a v5e at
# 1.5 GHz are its 197 TFLOP/s.
CHIPS = {
    "h100": Chip("NVIDIA H100 80 GB", 79.1, capability="9.0", changes=H100),
    "h200": Chip("NVIDIA H200", 140.4, capability="9.0"),
    "b200": Chip("NVIDIA B200", 178.4, capability="10.0"),
    "v5e": Chip("TPU v5e", 15.75, num_dims=2, clock=1.5e9),
    "v5p": Chip("TPU v5p", 95, num_dims=3, clock=1.75e9),
    "v6e": Chip("TPU v6e", 32, num_dims=2, clock=1.75e9),
    "tpu7x": Chip("TPU7x", 96, num_dims=3),
    "cpu": Chip("CPU", None),
}
MAX_GPUS = 8  # of one machine
MAX_CHIPS = 256
GPUS = ", ".join(name for name, chip in CHIPS.items() if chip.capability)
TPUS = ", ".join(name for name, chip in CHIPS.items() if chip.num_dims)
ALLOWED = (
    f"must be a GPU ({GPUS}) or a TPU ({TPUS}), alone or with a number that is a power "
    f"of 2 (h200:8, v5e:8), a TPU also with a topology (v5e:2x4); or cpu"
)


@dataclasses.dataclass(frozen=True)
class DeviceTarget:
    """Devices to compile for.

    Attributes:
      name: as the user wrote it.
      chip: the kind.
      shape: the topology: (8,) of GPUs, (2, 4) of TPUs.
    """

    name: str
    chip: Chip
    shape: tuple[int, ...]

    @property
    def platform(self) -> str:
        """The platform as JAX names it."""
        if self.chip.num_dims:
            return "tpu"
        return "gpu" if self.chip.capability else "cpu"


def read_target(name: str) -> DeviceTarget:
    """The target with a name.

    Raises:
      ConfigError: there is none.

    >>> [read_target(name).shape for name in ("h200", "h200:8", "v5e:8", "v5p:2x2x4")]
    [(1,), (8,), (2, 4), (2, 2, 4)]
    """
    kind, has_shape, text = name.partition(":")
    chip = CHIPS.get(kind)
    text = text if has_shape else "1"
    if chip is None or not re.fullmatch(r"[1-9]\d{0,3}(x[1-9]\d{0,3})*", text):
        raise _refuse(name)
    sizes = tuple(map(int, text.split("x")))
    if not chip.num_dims:
        most = MAX_GPUS if chip.capability else 1
        is_good = len(sizes) == 1 and sizes[0] <= most and not sizes[0] & (sizes[0] - 1)
        if not is_good or (has_shape and not chip.capability):
            raise _refuse(name)
        return DeviceTarget(name, chip, sizes)
    if len(sizes) == 1:
        sizes = _shape_topology(sizes[0], chip.num_dims)
    if len(sizes) != chip.num_dims:
        raise _refuse(name)
    return DeviceTarget(name, chip, sizes)


def _refuse(name: str) -> ConfigError:
    return ConfigError(f"{argument('target')}={name}: {ALLOWED}")


def _shape_topology(num: int, num_dims: int) -> tuple[int, ...]:
    """The topology of a number of chips: the most even one; () if there is none.

    >>> [_shape_topology(num, 2) for num in (1, 4, 8, 32)], _shape_topology(4, 3)
    ([(1, 1), (2, 2), (2, 4), (4, 8)], (2, 2, 1))
    """
    if num & (num - 1) or num > MAX_CHIPS:
        return ()
    sizes = [1] * num_dims
    for _ in range(num.bit_length() - 1):
        sizes[sizes.index(min(sizes))] *= 2
    return tuple(sizes) if num < 2**num_dims else tuple(sorted(sizes))


def make_devices(target: DeviceTarget) -> list[Any]:
    """The devices of a target, for which arrays are abstract.

    Raises:
      DeviceError: a compiler is not installed, or knows no such topology.
    """
    if target.platform == "cpu":
        return jax.devices("cpu")[:1]
    make = _make_gpus if target.platform == "gpu" else _make_tpus
    try:
        return make(target)
    except (jax.errors.JaxRuntimeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DeviceError(f"{argument('target')}={target.name}: {reason}") from error


def _make_gpus(target: DeviceTarget) -> list[Any]:
    from jax._src import xla_bridge  # nothing public registers the plugin

    purpose = f"{argument('target')}={target.name}"
    installed = [name for name in PLUGINS if importlib.util.find_spec(name)]
    optional.check((*installed, PLUGINS[0])[0], EXTRA, purpose, DeviceError)
    # It is found in two ways, and the second is logged as an error.
    logging.getLogger(xla_bridge.__name__).setLevel(logging.CRITICAL)
    xla_bridge.discover_pjrt_plugins()
    (num,) = target.shape
    described = topologies.get_topology_desc(
        platform="cuda",
        target_config=describe_gpu(target.name.partition(":")[0]),
        topology=f"1x{num}x1",
    )
    return list(described.devices)


def describe_gpu(kind: str) -> str:
    """The description of a GPU for XLA, a `GpuTargetConfigProto` as text."""
    changes = dict(CHIPS[kind].changes)
    name = f"{'h200' if changes else kind}.txtpb"
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    for part, value in changes.items():
        text, num = re.subn(rf'\b{part}: ("[^"]*"|\d+)', f"{part}: {value}", text)
        if num != 1:
            raise ValueError(f"{name} has {num} parts {part}")
    return text


def _make_tpus(target: DeviceTarget) -> list[Any]:
    purpose = f"{argument('target')}={target.name}"
    optional.check("libtpu", EXTRA, purpose, DeviceError)
    shape = "x".join(map(str, target.shape))
    kind = target.name.partition(":")[0]
    # One chip of a host of several.
    is_one = set(target.shape) == {1}
    one: dict[str, Any] = {"chips_per_host_bounds": (1, 1, 1)} if is_one else {}
    described = topologies.get_topology_desc(
        platform="tpu", topology_name=f"{kind}:{shape}", **one
    )
    return list(described.devices)


@contextlib.contextmanager
def in_place(target: DeviceTarget, devices: list[Any]) -> Iterator[None]:
    """Within it, what is traced takes these devices for those of this machine."""
    if target.platform == "cpu":
        yield
        return
    local, capability = list(devices), target.chip.capability
    patches = []
    if target.platform == "gpu":
        from jax._src.cudnn import fused_attention_stablehlo as fused

        def allows(needed: str) -> bool:
            own, least = (tuple(map(int, x.split("."))) for x in (capability, needed))
            return least <= own

        local = [SimpleNamespace(platform="gpu", compute_capability=capability)]
        patches = [
            (fused, "check_cudnn_version", lambda: CUDNN),
            (fused, "check_compute_capability", allows),
            (fused, "is_cuda_compute_capability_equal", capability.__eq__),
        ]
    patches += [
        (jax, "default_backend", lambda: target.platform),
        (jax, "device_count", lambda *_: len(devices)),
        (jax, "local_devices", lambda *_, **__: local),
    ]
    with contextlib.ExitStack() as stack:
        for owner, name, value in patches:
            stack.enter_context(mock.patch.object(owner, name, value))
        yield
