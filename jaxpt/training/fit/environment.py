"""The environment in which compilers work without their devices; imports no JAX."""

import os

VARIABLES = {
    "JAX_PLATFORMS": "cpu",  # where arrays are; the devices are described
    "TPU_SKIP_MDS_QUERY": "1",  # otherwise libtpu asks the network for its machine
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",  # and reports that it does not know these
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # several may compile at once
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


def set_up() -> None:
    """Sets what the user has not set. Must be called before JAX is imported."""
    for name, value in VARIABLES.items():
        os.environ.setdefault(name, value)
