"""The names of the zero-shot tasks, whose code `jaxpt.zero_shot.tasks` imports.

Also of the metrics of those that every evaluation of a run scores (`eval.tasks`).
"""

NAMES = (
    "blimp",
    "pairs",
    "lambada",
    "text",
    "choice",
    "cloze",
    "arc",
    "boolq",
    "cb",
    "copa",
    "openbookqa",
    "piqa",
    "sciq",
    "winogrande",
    "entity_tracking",
    "comps",
    "ewok",
    "wug",
    "reading",
    "sts",
    "retrieval",
    "generation",
    "sentence_pairs",
    "prompted_choices",
)
# Those for which the run writes texts that another model judges.
WRITTEN = ("generation",)
CURVE_PREFIX = "zero_shot_"


def is_curve(metric: str) -> bool:
    """Whether a metric is that of a task of `eval.tasks`."""
    return metric.startswith(CURVE_PREFIX)
