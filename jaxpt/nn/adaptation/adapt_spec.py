"""AdaptSpec: how much of a pretrained network a downstream task trains."""

import dataclasses

from jaxpt.errors import UserError

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

# Which methods use a setting; with the others it must keep its default.
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
# Houlsby et al. 2019; Pfeiffer et al. divide the width.
HOULSBY_SIZE = 64
PFEIFFER_REDUCTION = 16


@dataclasses.dataclass(frozen=True)
class AdaptSpec:
    """What is trained of a network, and what is added to it; the head always is.

    Attributes:
      method: "full" trains all of it; "linear_probe" none of it, and leaves out its
        dropout; "exact_probe" neither, and the head is not trained by steps but fitted
        (`evaluation.linear_probe`); "lora" low-rank additions to matrices (Hu et al.
        2022); "houlsby" bottlenecks after attention and MLP, and the norms (Houlsby et
        al. 2019); "pfeiffer" bottlenecks after the MLP alone (Pfeiffer et al. 2021);
        "bitfit" the biases (Ben Zaken et al. 2022); "prompt" vectors before the text
        (Lester et al. 2021).
      rank: r of LoRA.
      alpha: LoRA's addition is multiplied by alpha / rank.
      rslora: by alpha / sqrt(rank) instead (Kalajdzievski 2023).
      targets: the ends of the paths of the matrices that LoRA adds to: "query" and
        "value" (the paper's), or "key", "attention/out", "up", "gate", "down", ...
      dropout: of what LoRA's addition reads.
      size: the width of a bottleneck; 0 is 64 (houlsby) or a sixteenth of the model's
        width (pfeiffer).
      prompt_length: vectors of a prompt. They take places of `model.max_len`.
      prompt_init: vectors begin as those of tokens drawn from the vocabulary, "vocab",
        or, as far as there are any, as those of the names of the labels, "labels".
    """

    method: str = "full"
    rank: int = 8
    alpha: float = 16.0
    rslora: bool = False
    targets: tuple[str, ...] = ("query", "value")
    dropout: float = 0.0
    size: int = 0
    prompt_length: int = 20
    prompt_init: str = "vocab"

    def __post_init__(self):
        _check(self, "method", self.method in METHODS, f"one of {', '.join(METHODS)}")
        for name, methods in METHODS_READING.items():
            default = type(self).__dataclass_fields__[name].default
            is_good = self.method in methods or getattr(self, name) == default
            allowed = f"{default}, as adapt.method={self.method} does not use it"
            _check(self, name, is_good, allowed)
        is_list = len(self.targets) > 0 and len(set(self.targets)) == len(self.targets)
        is_list &= all(isinstance(x, str) and x.strip("/") for x in self.targets)
        for name, is_good, allowed in (
            ("rank", self.rank >= 1, "at least 1"),
            ("alpha", self.alpha > 0, "above 0"),
            ("targets", is_list, "names of matrices without repeats, not empty"),
            ("dropout", 0 <= self.dropout < 1, "at least 0 and below 1"),
            ("size", self.size >= 0, "at least 0 (0 is the method's own)"),
            ("prompt_length", self.prompt_length >= 1, "at least 1"),
            (
                "prompt_init",
                self.prompt_init in PROMPT_INITS,
                f"one of {', '.join(PROMPT_INITS)}",
            ),
        ):
            _check(self, name, is_good, allowed)

    @property
    def scale(self) -> float:
        """What LoRA's addition is multiplied by.

        >>> [AdaptSpec("lora", rank=4, rslora=x).scale for x in (False, True)]
        [4.0, 8.0]
        """
        return self.alpha / (self.rank**0.5 if self.rslora else self.rank)

    @property
    def num_prompts(self) -> int:
        """Positions that a prompt takes before a text."""
        return self.prompt_length if self.method == "prompt" else 0

    @property
    def is_frozen(self) -> bool:
        """Whether the network is only read, so that its dropout is left out."""
        return self.method in ("linear_probe", "exact_probe")

    def bottleneck(self, d_model: int) -> int:
        """The width of an adapter.

        >>> AdaptSpec("houlsby").bottleneck(512), AdaptSpec("pfeiffer").bottleneck(512)
        (64, 32)
        """
        own = HOULSBY_SIZE
        if self.method == "pfeiffer":
            own = max(d_model // PFEIFFER_REDUCTION, 1)
        return self.size or own


def _check(spec: AdaptSpec, name: str, is_good: bool, allowed: str) -> None:
    if not is_good:
        raise UserError(f"adapt.{name}={getattr(spec, name)}: must be {allowed}")
