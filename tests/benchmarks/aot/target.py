"""Devices that are not here, as XLA's compilers for them need them described."""

import contextlib
import logging
import re
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import jax
from jax.experimental import topologies

HERE = Path(__file__).resolve().parent
# GiB that a program may use: of v5e as libtpu says, of the others nominal. Clock in Hz:
# the 4 units of 128 x 128 of a v5e at 1.5 GHz are its 197 TFLOP/s.
CHIPS = {
    "v4": (32, 1.05e9),
    "v5e": (15.75, 1.5e9),
    "v5p": (95, 1.75e9),
    "v6e": (32, 1.75e9),
    "tpu7x": (96, None),
    "h200": (140.4, None),
    "b200": (178.4, None),
}
CAPABILITIES = {"h200": "9.0", "b200": "10.0"}  # of GPUs
CUDNN = 91000  # its version


class Target:
    """Devices of "h200:8", "v5e:1x1", "v5e:2x4" or "tpu7x:2x2x1", or this "cpu".

    Attributes:
      devices: to compile for.
      gib: memory of each that a program may use, None of a CPU.
      clock: of a TPU, in Hz.
    """

    def __init__(self, name: str):
        self.name = name
        chip, _, shape = name.partition(":")
        self.gib, self.clock = CHIPS.get(chip, (None, None))
        self.capability = CAPABILITIES.get(chip)
        self.platform = "cpu" if chip == "cpu" else "gpu" if self.capability else "tpu"
        if self.platform == "cpu":
            self.devices = jax.devices()
        elif self.platform == "gpu":
            from jax._src import xla_bridge  # nothing public registers the plugin

            # It is found in two ways, and the second is logged as an error.
            logging.getLogger(xla_bridge.__name__).setLevel(logging.CRITICAL)
            xla_bridge.discover_pjrt_plugins()
            result = topologies.get_topology_desc(
                platform="cuda",
                target_config=(HERE / f"{chip}.txtpb").read_text(),
                topology=f"1x{shape or 1}x1" if int(shape or 1) > 1 else "1x1x1",
            )
            self.devices = list(result.devices)
        else:
            is_one = re.fullmatch(r"1x1(x1)?", shape)
            one = {"chips_per_host_bounds": (1, 1, 1)} if is_one else {}
            result = topologies.get_topology_desc(
                platform="tpu", topology_name=name, **one
            )
            self.devices = list(result.devices)

    @contextlib.contextmanager
    def in_place(self):
        """What is traced believes that it runs on these devices."""
        if self.platform == "cpu":
            yield
            return
        output = list(self.devices)
        with contextlib.ExitStack() as stack:
            put = stack.enter_context
            if self.platform == "gpu":
                from jax._src.cudnn import fused_attention_stablehlo as fused

                output = [
                    SimpleNamespace(platform="gpu", compute_capability=self.capability)
                ]
                put(mock.patch.object(fused, "check_cudnn_version", lambda: CUDNN))
                put(mock.patch.object(fused, "check_compute_capability", self._allows))
                put(
                    mock.patch.object(
                        fused,
                        "is_cuda_compute_capability_equal",
                        self.capability.__eq__,
                    )
                )
            put(mock.patch.object(jax, "default_backend", lambda: self.platform))
            count = len(self.devices)
            put(mock.patch.object(jax, "device_count", lambda *_: count))
            put(mock.patch.object(jax, "local_devices", lambda *_, **__: output))
            yield

    def _allows(self, needed: str) -> bool:
        own, least = ([int(n) for n in x.split(".")] for x in (self.capability, needed))
        return least <= own
