"""Objectives outside this package: the user's own modules."""

import importlib

from jaxpt import trust, user_code
from jaxpt.errors import ConfigError
from jaxpt.objectives import OBJECTIVES, find_section
from jaxpt.objectives.objective import Objective

PARTS = ("Spec", "corrupt", "masks", "loss", "train_step")


def load(name: str) -> Objective:
    """The module of this dotted name, in the current folder or installed."""
    trust.check(name, f"objective={name}")
    with (
        user_code.explain(f"objective={name}", "cannot be imported"),
        user_code.importable(""),  # as with `python -m`
    ):
        module = importlib.import_module(name)
    section = find_section(name)
    if missing := [part for part in PARTS if not hasattr(module, part)]:
        raise ConfigError(f"objective={name}: must have {', '.join(missing)}")
    if getattr(module.Spec, "SECTION", "") != section:
        raise ConfigError(f"objective={name}: its Spec must have SECTION = {section!r}")
    if section in OBJECTIVES.names:
        raise ConfigError(
            f"objective={name}: must not be called {section}, as one of jaxpt's is"
        )
    return module
