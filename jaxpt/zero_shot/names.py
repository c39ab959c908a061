"""The names of the zero-shot tasks, whose code `jaxpt.zero_shot.tasks` imports."""

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
)
