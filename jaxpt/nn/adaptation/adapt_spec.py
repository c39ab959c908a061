"""AdaptSpec: the fine-tuning method and its settings (full, LoRA, adapters, ...)."""

import dataclasses
from typing import Annotated, ClassVar

from jaxpt.setting_types import (
    BelowOne,
    NonNegativeInt,
    OneOf,
    PositiveFloat,
    PositiveInt,
    Rule,
    Settings,
)

METHODS = (
    "full",
    "linear_probe",
    "exact_probe",
    "lora",
    "houlsby",
    "pfeiffer",
    "bitfit",
    "prompt",
)
ADAPTERS = ("houlsby", "pfeiffer")
PROMPT_INITS = ("vocab", "labels")

# The methods that use a setting; with other methods it must keep its default.
METHODS_READING = {
    "rank": ("lora",),
    "alpha": ("lora",),
    "rslora": ("lora",),
    "targets": ("lora",),
    "dropout": ("lora",),
    "size": ADAPTERS,
    "prompt_length": ("prompt",),
    "prompt_init": ("prompt",),
}
# Houlsby et al. 2019 use a constant; Pfeiffer et al. divide the width.
HOULSBY_SIZE = 64
PFEIFFER_REDUCTION = 16
TARGETS = "names of matrices without repeats, not empty"


def _are_targets(names: tuple[str, ...]) -> bool:
    is_list = len(names) > 0 and len(set(names)) == len(names)
    return is_list and all(name.strip("/") for name in names)


@dataclasses.dataclass(frozen=True)
class AdaptSpec(Settings):
    """Which parameters are trained and added in fine-tuning, in addition to the head.

    Attributes:
      method: "full" trains all parameters; "linear_probe" none, without dropout in the
        network; "exact_probe" none, and fits the head to convergence
        (`evaluation.linear_probe`); "lora" low-rank updates of matrices (Hu et al.
        2022); "houlsby" adapters after attention and MLP, and the norms (Houlsby et al.
        2019); "pfeiffer" adapters after the MLP (Pfeiffer et al. 2021); "bitfit" the
        biases (Ben Zaken et al. 2022); "prompt" vectors before the text (Lester et al.
        2021).
      rank: r of LoRA.
      alpha: LoRA's update is multiplied by alpha / rank.
      rslora: multiply by alpha / sqrt(rank) instead (Kalajdzievski 2023).
      targets: the ends of the paths of the matrices that LoRA updates: "query" and
        "value" (the paper's), or "key", "attention/out", "up", "gate", "down", ...
      dropout: dropout of the input of LoRA's update.
      size: the width of an adapter; 0 means 64 (houlsby) or a sixteenth of the model's
        width (pfeiffer).
      prompt_length: the number of vectors of a prompt, which count towards
        `model.max_len`.
      prompt_init: initial vectors: "vocab", those of random tokens; "labels", the names
        of the labels first, and then those of random tokens.
    """

    SECTION: ClassVar[str] = "adapt"

    method: Annotated[str, OneOf(*METHODS)] = "full"
    rank: PositiveInt = 8
    alpha: PositiveFloat = 16.0
    rslora: bool = False
    targets: Annotated[tuple[str, ...], Rule(_are_targets, TARGETS)] = (
        *("query", "value"),
    )
    dropout: BelowOne = 0.0
    size: NonNegativeInt = 0
    prompt_length: PositiveInt = 20
    prompt_init: Annotated[str, OneOf(*PROMPT_INITS)] = "vocab"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, methods in METHODS_READING.items():
            default = type(self).__dataclass_fields__[name].default
            is_good = self.method in methods or getattr(self, name) == default
            allowed = f"{default}, as adapt.method={self.method} does not use it"
            self.check(name, is_good, allowed)

    @property
    def scale(self) -> float:
        """The factor of LoRA's update.

        >>> [AdaptSpec("lora", rank=4, rslora=x).scale for x in (False, True)]
        [4.0, 8.0]
        """
        return self.alpha / (self.rank**0.5 if self.rslora else self.rank)

    @property
    def num_prompts(self) -> int:
        """The number of positions of a prompt before the text."""
        return self.prompt_length if self.method == "prompt" else 0

    @property
    def is_frozen(self) -> bool:
        """Whether the network is not trained, so that it runs without dropout."""
        return self.method in ("linear_probe", "exact_probe")

    def bottleneck(self, d_model: int) -> int:
        """The width of an adapter.

        >>> AdaptSpec("houlsby").bottleneck(512), AdaptSpec("pfeiffer").bottleneck(512)
        (64, 32)
        """
        if self.size or self.method != "pfeiffer":
            return self.size or HOULSBY_SIZE
        return max(d_model // PFEIFFER_REDUCTION, 1)
