"""What is set up before JAX touches a device."""

import os
import types

import jax
import pytest

from jaxpt import processes

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
