"""The objectives: one module each, imported when its name is looked up.

`jaxpt.objectives.objective` defines what such a module contains. An objective outside
this package is named by its module, "my_package.my_objective", which is imported only
if the user names it (`jaxpt.trust`).
"""

from typing import TYPE_CHECKING, TypeGuard

from jaxpt.by_name import ByName, load_place
from jaxpt.errors import ConfigError, suggest

if TYPE_CHECKING:
    from jaxpt.objectives.objective import Objective


class Objectives(ByName["Objective"]):
    """The objectives of this package by name, any other module by its dotted name.

    Iteration gives only the former.
    """

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (is_outside(name) and bool(_load(name)))

    def __getitem__(self, name: str) -> "Objective":
        return _load(name) if is_outside(name) else super().__getitem__(name)


def is_outside(name: object) -> TypeGuard[str]:
    """Whether a name is that of the user's own module."""
    return isinstance(name, str) and "." in name


def find_section(name: str) -> str:
    """The config's section of an objective's settings.

    >>> find_section("mlm"), find_section("my_package.my_objective")
    ('mlm', 'my_objective')
    """
    return name.rpartition(".")[2]


def _load(name: str) -> "Objective":
    """As `jaxpt.objectives.outside.load`."""
    objective: Objective = load_place("jaxpt.objectives.outside:load")(name)
    return objective


def find(name: str) -> "Objective":
    """The objective of this name."""
    if name not in OBJECTIVES:
        listed = ", ".join(OBJECTIVES)
        raise ConfigError(
            f"objective={name}: unknown{suggest(name, OBJECTIVES)}; must be one of "
            f"{listed}, or your own module, such as my_package.my_objective"
        )
    return OBJECTIVES[name]


# In the order in which they are listed.
OBJECTIVES = Objectives(
    {
        "clm": "jaxpt.objectives.clm",
        "mlm": "jaxpt.objectives.mlm",
        "span_corruption": "jaxpt.objectives.span_corruption",
        "electra": "jaxpt.objectives.electra",
        "bert": "jaxpt.objectives.bert",
        "spanbert": "jaxpt.objectives.spanbert",
        "bart": "jaxpt.objectives.bart",
        "prefix_lm": "jaxpt.objectives.prefix_lm",
        "clm_mlm": "jaxpt.objectives.clm_mlm",
        "ul2": "jaxpt.objectives.ul2",
        "distillation": "jaxpt.objectives.distillation",
        "causal_distillation": "jaxpt.objectives.causal_distillation",
        "selective_clm": "jaxpt.objectives.selective_clm",
        "adaptive_mlm": "jaxpt.objectives.adaptive_mlm",
        "multi_token": "jaxpt.objectives.multi_token",
        "multi_token_heads": "jaxpt.objectives.multi_token_heads",
        "prefix_token": "jaxpt.objectives.prefix_token",
        "token_order": "jaxpt.objectives.token_order",
        "next_latent": "jaxpt.objectives.next_latent",
        "future_summary": "jaxpt.objectives.future_summary",
        "latent_prediction": "jaxpt.objectives.latent_prediction",
        "fill_in_the_middle": "jaxpt.objectives.fill_in_the_middle",
        "bilm": "jaxpt.objectives.bilm",
        "skip_gram": "jaxpt.objectives.skip_gram",
        "masked_input_clm": "jaxpt.objectives.masked_input_clm",
        "dual": "jaxpt.objectives.dual",
        "masked_diffusion": "jaxpt.objectives.masked_diffusion",
        "block_diffusion": "jaxpt.objectives.block_diffusion",
        "hybrid_diffusion": "jaxpt.objectives.hybrid_diffusion",
        "mixture": "jaxpt.objectives.mixture",
    }
)
