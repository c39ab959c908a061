"""Targets: what their names mean, bad names, and devices without a compiler."""

import importlib.util
import os
import re

import pytest

from jaxpt.cli.main import main
from jaxpt.errors import ConfigError, DeviceError
from jaxpt.training.fit import environment, target
from jaxpt.training.fit.target import CHIPS, describe_gpu, make_devices, read_target


@pytest.mark.parametrize("kind", CHIPS)
def test_every_chip_is_a_target(kind):
    one = read_target(kind)
    assert one.chip is CHIPS[kind] and set(one.shape) == {1}
    assert one.platform == ("cpu" if kind == "cpu" else one.platform)
    if kind != "cpu":
        eight = read_target(f"{kind}:8")
        assert sorted(eight.shape) in ([8], [2, 4], [2, 2, 2])
        assert eight.platform == ("gpu" if len(eight.shape) == 1 else "tpu")


@pytest.mark.parametrize(
    "name",
    [
        *("", "h300", "H200", "h200:", "h200:0", "h200:3", "h200:16", "h200:2x4"),
        *("v5e:3", "v5e:512", "v5e:2x2x2", "v5p:2x2", "v5e:0x1", "v5e:2x", "cpu:1"),
        *("h200:8:8", "h200 ", "h200:-1", "h200:08"),
    ],
)
def test_a_bad_target_is_one_line_with_all_good_ones(name):
    with pytest.raises(ConfigError) as error:
        read_target(name)
    text = str(error.value)
    assert text.startswith(f"target={name}: must be a GPU (h100, h200, b200) or a TPU")
    assert "\n" not in text and all(kind in text for kind in CHIPS)


def test_a_bad_target_is_refused_before_anything_is_compiled(capsys):
    assert main(["fit", "--config=quickstart:mlm", "--target=h300"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("jaxpt: error: --target=h300: must be")


@pytest.mark.parametrize(
    "name, package", [("h200", "jax-cuda12-plugin"), ("v5e", "libtpu")]
)
def test_a_missing_compiler_is_one_line_with_the_extra(name, package, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    needed = f"target={name}: needs {package}: pip install 'jaxpt[fit]'"
    with pytest.raises(DeviceError, match=re.escape(needed)):
        make_devices(read_target(name))


def test_a_plugin_of_cuda_13_is_enough(monkeypatch):
    installed = {"jax_cuda13_plugin"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda x: x in installed or None)
    monkeypatch.setattr(target.topologies, "get_topology_desc", refuse_topology)
    with pytest.raises(DeviceError, match=r"^target=h200:8: UNKNOWN: no compiler$"):
        make_devices(read_target("h200:8"))


def refuse_topology(**options):
    assert options["topology"] == "1x8x1" and "cuda_compute" in options["target_config"]
    raise RuntimeError("UNKNOWN:\n no compiler")


def test_a_gpu_is_described_by_its_own_file_or_by_differences():
    h200, h100 = describe_gpu("h200"), describe_gpu("h100")
    assert "device_memory_size: 151397597184" in h200 and "NVIDIA B200" not in h200
    assert "device_memory_size: 84941864960" in h100 and '"NVIDIA H200' not in h100
    lines = zip(h200.splitlines(), h100.splitlines(), strict=True)
    assert sum(a != b for a, b in lines) == 3  # bandwidth with size, name, description
    assert "NVIDIA B200" in describe_gpu("b200")


def test_the_environment_leaves_what_the_user_has_set(monkeypatch):
    for name in environment.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("JAX_PLATFORMS", "tpu")
    environment.set_up()
    assert os.environ["JAX_PLATFORMS"] == "tpu"
    assert os.environ["TPU_SKIP_MDS_QUERY"] == "1"
