"""The objectives: one module each, and a dict of them by name.

`jaxpt.objectives.objective` defines what such a module contains. An objective outside
this package is named by its module, "my_package.my_objective", which is imported only
if the user names it (`jaxpt.trust`).
"""

import importlib
from typing import TypeGuard

from jaxpt import trust, user_code
from jaxpt.errors import ConfigError, suggest
from jaxpt.objectives import (
    adaptive_mlm,
    bart,
    bert,
    bilm,
    block_diffusion,
    causal_distillation,
    clm,
    clm_mlm,
    distillation,
    dual,
    electra,
    fill_in_the_middle,
    masked_diffusion,
    masked_input_clm,
    mlm,
    multi_token,
    multi_token_heads,
    prefix_lm,
    skip_gram,
    span_corruption,
    spanbert,
    token_order,
    ul2,
)
from jaxpt.objectives.objective import Objective

PARTS = ("Spec", "corrupt", "masks", "loss", "train_step")


class Objectives(dict[str, Objective]):
    """The objectives of this package by name, any other module by its dotted name.

    Iteration gives only the former.
    """

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        return super().__contains__(name) or (is_outside(name) and bool(load(name)))

    def __missing__(self, name: str) -> Objective:
        if not is_outside(name):
            raise KeyError(name)
        return load(name)


def is_outside(name: object) -> TypeGuard[str]:
    """Whether a name is that of the user's own module."""
    return isinstance(name, str) and "." in name


def find_section(name: str) -> str:
    """The config's section of an objective's settings.

    >>> find_section("mlm"), find_section("my_package.my_objective")
    ('mlm', 'my_objective')
    """
    return name.rpartition(".")[2]


def load(name: str) -> Objective:
    """The module of this dotted name, in the current folder or installed.

    Raises:
      UserError: the user has not named it, it cannot be imported, or it is not an
        objective.
    """
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
    if section in list(OBJECTIVES):
        raise ConfigError(
            f"objective={name}: must not be called {section}, as one of jaxpt's is"
        )
    return module


def find(name: str) -> Objective:
    """The objective of this name.

    Raises:
      UserError: it does not exist.
    """
    if name not in OBJECTIVES:
        listed = ", ".join(OBJECTIVES)
        raise ConfigError(
            f"objective={name}: must be one of {listed}, or your own module, such "
            f"as my_package.my_objective{suggest(name, OBJECTIVES)}"
        )
    return OBJECTIVES[name]


OBJECTIVES: Objectives = Objectives(
    {
        "clm": clm,
        "mlm": mlm,
        "span_corruption": span_corruption,
        "electra": electra,
        "bert": bert,
        "spanbert": spanbert,
        "bart": bart,
        "prefix_lm": prefix_lm,
        "clm_mlm": clm_mlm,
        "ul2": ul2,
        "distillation": distillation,
        "causal_distillation": causal_distillation,
        "adaptive_mlm": adaptive_mlm,
        "multi_token": multi_token,
        "multi_token_heads": multi_token_heads,
        "token_order": token_order,
        "fill_in_the_middle": fill_in_the_middle,
        "bilm": bilm,
        "skip_gram": skip_gram,
        "masked_input_clm": masked_input_clm,
        "dual": dual,
        "masked_diffusion": masked_diffusion,
        "block_diffusion": block_diffusion,
    }
)
