"""The objectives: one module each, whole, and this dict of their names.

`jaxpt.objectives.objective` says what such a module is.
"""

from jaxpt.objectives import (
    bart,
    bert,
    bilm,
    causal_distillation,
    clm,
    clm_mlm,
    distillation,
    electra,
    masked_diffusion,
    mlm,
    prefix_lm,
    skip_gram,
    span_corruption,
    spanbert,
    ul2,
)
from jaxpt.objectives.objective import Objective

OBJECTIVES: dict[str, Objective] = {
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
    "bilm": bilm,
    "skip_gram": skip_gram,
    "masked_diffusion": masked_diffusion,
}
