"""Pretrain Transformers under any objective and compare them at equal cost.

import jaxpt

run = jaxpt.load("runs/mine")    # or a folder or a name of transformers
run.fill("the [MASK] of the union")
run.generate("the ")
run.nll(["a text", "another"])   # nats
run.embed(["a text", "another"])
run.params, run.model, run.tokenizer, run.config.train.steps

jaxpt.train("configs/quickstart.py", "runs/mine", {"objective": "mlm"})

Progress is logged to the logger "jaxpt"; importing jaxpt installs no handler.
"""

import importlib
from typing import TYPE_CHECKING, Any

from jaxpt.version import __version__

if TYPE_CHECKING:
    from jaxpt.api.commands import compare, evaluate, finetune, judge_text, train
    from jaxpt.api.preparing import Prepared, prepare, read_config
    from jaxpt.api.results import Comparison, FineTuning, load_comparison
    from jaxpt.api.runs import Run, load
    from jaxpt.config.finetuning import default_finetune_config
    from jaxpt.config.settings import default_config
    from jaxpt.errors import (
        CheckpointError,
        ConfigError,
        DataError,
        DeviceError,
        DivergedError,
        RandomWeightsWarning,
        UserError,
    )
    from jaxpt.external.verdict import verdict
    from jaxpt.rng import split_step, stream

# The names of each module, which is imported when one of them is used: most import jax.
_MODULES = {
    "jaxpt.api.commands": ("compare", "evaluate", "finetune", "judge_text", "train"),
    "jaxpt.api.preparing": ("Prepared", "prepare", "read_config"),
    "jaxpt.api.results": ("Comparison", "FineTuning", "load_comparison"),
    "jaxpt.api.runs": ("Run", "load"),
    "jaxpt.config.finetuning": ("default_finetune_config",),
    "jaxpt.config.settings": ("default_config",),
    "jaxpt.errors": (
        *("CheckpointError", "ConfigError", "DataError", "DeviceError"),
        *("DivergedError", "RandomWeightsWarning", "UserError"),
    ),
    "jaxpt.external.verdict": ("verdict",),
    "jaxpt.rng": ("split_step", "stream"),
}
PLACES: dict[str, str] = {
    name: module for module, names in _MODULES.items() for name in names
}

__all__ = [
    "CheckpointError",
    "Comparison",
    "ConfigError",
    "DataError",
    "DeviceError",
    "DivergedError",
    "FineTuning",
    "Prepared",
    "RandomWeightsWarning",
    "Run",
    "UserError",
    "__version__",
    "compare",
    "default_config",
    "default_finetune_config",
    "evaluate",
    "finetune",
    "judge_text",
    "load",
    "load_comparison",
    "prepare",
    "read_config",
    "split_step",
    "stream",
    "train",
    "verdict",
]


def __getattr__(name: str) -> Any:
    if name not in PLACES:
        raise AttributeError(f"module 'jaxpt' has no attribute {name!r}")
    return getattr(importlib.import_module(PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
