"""OptimSpec: the settings of the optimizer and the learning rate schedule."""

import dataclasses
import math
from typing import Annotated, Any, ClassVar

from jaxpt.by_name import load_place
from jaxpt.setting_types import (
    BelowOne,
    Fraction,
    Limits,
    NonNegativeFloat,
    NonNegativeInt,
    OneOf,
    PositiveFloat,
    PositiveFraction,
    Rule,
    Settings,
)

SCHEDULES = (
    "cosine",
    "linear",
    "inverse_sqrt",
    "constant",
    "wsd",
    "bert_linear",
    "electra_linear",
    "slanted_triangle",
)
WARMUP_SHAPES = ("linear", "flat")
DECAY_SHAPES = ("sqrt", "linear", "exponential")
OwnDecay = Annotated[float, Limits(least=0, below=1, other=-1)]

# The optimizers' defaults of the settings whose value is -1; an optimizer does not use
# the settings that are missing here. Sources: optax's AdamW and Lion (Chen et al.
# 2023); T5X's Adafactor; LAMB of You et al. 2020; the AdamW inside Keller Jordan's
# Muon.
OPTIMIZER_DEFAULTS = {
    "adamw": {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8},
    "adafactor": {"beta1": 0.0, "epsilon": 1e-30},
    "lamb": {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-6},
    "lion": {"beta1": 0.9, "beta2": 0.99},
    "muon": {"beta1": 0.9, "beta2": 0.95, "epsilon": 1e-10},
    "normuon": {"beta1": 0.9, "beta2": 0.95, "epsilon": 1e-10},
}
NAMED = "optax."  # begins the names of other optimizers (`jaxpt.learn.optax_names`)
OptimizerName = Rule(
    lambda name: name in OPTIMIZER_DEFAULTS or name.startswith(NAMED),
    f"one of {', '.join(OPTIMIZER_DEFAULTS)}, or an optimizer of optax, such as "
    "optax.adan or optax.contrib.prodigy",
)
# Settings that only some optimizers or only some schedules use.
OPTIMIZERS_READING = {
    "bias_correction": ("adamw", "lamb"),
    "parameter_scale": ("adafactor",),
    "muon_lr": ("muon", "normuon"),
    "momentum": ("muon", "normuon"),
    "normuon_beta": ("normuon",),
}
SCHEDULES_READING = {
    "min_lr_ratio": ("cosine", "linear", "wsd"),
    "decay_fraction": ("wsd",),
    "decay_shape": ("wsd",),
    "slant_ratio": ("slanted_triangle",),
    "slant_cut": ("slanted_triangle",),
}


@dataclasses.dataclass(frozen=True)
class OptimSpec(Settings):
    """An optimizer, gradient clipping, a schedule, and an EMA of the parameters.

    A setting that the optimizer or the schedule does not use must keep its default.

    Attributes:
      name: "adamw"; "adafactor" (T5's: factored second moments of matrices from
        128 x 128 on, updates clipped to an RMS of 1); "lamb" (Adam's update times the
        ratio of each tensor's norm to the update's norm); "lion"; "muon" (for the
        layers' matrices; embeddings, heads, norms and biases use AdamW); or "normuon"
        (Muon with steps divided by their RMS for each output or input). An optimizer
        of optax by its name, "optax.adan" or "optax.contrib.prodigy"
        (`jaxpt.learn.optax_names`).
      args: arguments of an optimizer of optax, "b1=0.95, nesterov=True". The learning
        rate, its schedule and the weight decay are settings as for the others.
      lr: the peak learning rate.
      lr_width: the width for which `lr` is set: `lr` is multiplied by
        sqrt(lr_width / model.d_model), Muon's rate is not (nanochat: 768); 0: no
        scaling.
      lr_tokens: the tokens of a batch (rows times their length) for which the rates are
        set: both are multiplied by sqrt(tokens / lr_tokens) (nanochat: 2^19); 0: no
        scaling.
      schedule: after the warm-up, "cosine" and "linear" decay to the end of the run,
        "inverse_sqrt" as 1 / sqrt(step), "wsd" is constant and decays at the end (runs
        of several lengths share steps: `compare.amounts`). "linear" decays from the
        warm-up's end, as in transformers. In BERT's code the line starts at step 0, and
        the warm-up replaces its first part, "bert_linear"; ELECTRA's code multiplies
        the two, "electra_linear". "slanted_triangle" is ULMFiT's, with a rise.
      warmup_steps: steps before the schedule starts; 0 for none.
      warmup_type: "linear" from 0 to `lr`, or "flat" at `lr` (T5).
      min_lr_ratio: the final value of cosine, linear and wsd, as a fraction of `lr`.
      decay_fraction: the fraction of all steps in which wsd decays.
      decay_shape: wsd's decay at the fraction x of those steps: "sqrt" is 1 - sqrt(x)
        (Haegele et al. 2024) and "linear" 1 - x, both down to `min_lr_ratio`;
        "exponential" is min_lr_ratio^x (MiniCPM).
      slant_ratio: `lr` divided by the first rate of the slanted triangle (32; fastai's
        classifier 8).
      slant_cut: the fraction of all steps in which it rises (0.1; fastai's classifier
        1/3, then 1/8).
      beta1: the decay rate of the first moment, of Lion's interpolation before the
        sign, or of Adafactor's momentum (0: none). -1 is the optimizer's default
        (`OPTIMIZER_DEFAULTS`), also for beta2 and epsilon. With muon all three are
        those of its AdamW.
      beta2: the decay rate of the second moment, or of Lion's momentum.
      epsilon: added to the root of Adam's second moment, or to Adafactor's squared
        gradient.
      bias_correction: whether Adam's moments are corrected (BERT, ELECTRA: False).
      parameter_scale: whether Adafactor multiplies its steps by the RMS of each tensor,
        so that `lr` is relative to it.
      muon_lr: Muon's peak learning rate, as a spectral norm; `lr` is that of its AdamW.
      momentum: Muon's momentum.
      normuon_beta: the decay rate of NorMuon's mean squares (nanochat: 0.9; paper:
        0.95).
      weight_decay: decoupled, multiplied by the learning rate. Not applied to biases,
        norms and T5's relative bias (nor is LAMB's ratio).
      decay_overrides: other weight decays for the kernels and tables with a text in
        their path, "embed=0" or "embed=0, head=0.1"; the first such text counts.
      cautious_decay: weights decay only where the update reduces their magnitude too
        (modded-nanogpt, nanochat).
      clip_norm: the maximum global norm of the gradient; 0 does not clip (T5).
      max_skips: the number of updates in a row that are skipped because the loss or the
        gradient is not finite, or because of a spike (`jaxpt.learn.skips`); then the
        run has diverged. 0: no update is skipped, and a run diverges at once.
      spike_deviations: an update is a spike if the norm of its gradient is more than
        this number of standard deviations above the mean of the last 128 updates
        (MaxText, OLMo-core: 6); 0: only updates that are not finite are skipped.
      ema_decay: the decay rate of an exponential moving average of the parameters, with
        which a run evaluates, exports and generates; 0 is off.
    """

    SECTION: ClassVar[str] = "optim"

    name: Annotated[str, OptimizerName] = "adamw"
    args: str = ""
    lr: PositiveFloat = 1e-3
    lr_width: NonNegativeInt = 0
    lr_tokens: NonNegativeInt = 0
    schedule: Annotated[str, OneOf(*SCHEDULES)] = "cosine"
    warmup_steps: NonNegativeInt = 0
    warmup_type: Annotated[str, OneOf(*WARMUP_SHAPES)] = "linear"
    min_lr_ratio: Fraction = 0.0
    decay_fraction: PositiveFraction = 0.2
    decay_shape: Annotated[str, OneOf(*DECAY_SHAPES)] = "sqrt"
    slant_ratio: Annotated[float, Limits(least=1)] = 32.0
    slant_cut: BelowOne = 0.1
    beta1: OwnDecay = -1.0
    beta2: OwnDecay = -1.0
    epsilon: Annotated[float, Limits(above=0, other=-1)] = -1.0
    bias_correction: bool = True
    parameter_scale: bool = True
    muon_lr: PositiveFloat = 0.02
    momentum: BelowOne = 0.95
    normuon_beta: BelowOne = 0.9
    weight_decay: NonNegativeFloat = 0.0
    decay_overrides: str = ""
    cautious_decay: bool = False
    clip_norm: NonNegativeFloat = 1.0
    max_skips: NonNegativeInt = 0
    spike_deviations: NonNegativeFloat = 0.0
    ema_decay: BelowOne = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, reader in _list_unread(self).items():
            default = type(self).__dataclass_fields__[name].default
            is_good = getattr(self, name) == default
            shown = default if default != "" else "''"
            self.check(name, is_good, f"{shown}, as {reader} does not use it")
        for name, value in OPTIMIZER_DEFAULTS.get(self.name, {}).items():
            if getattr(self, name) == -1:
                object.__setattr__(self, name, value)
        _check_together(self)
        self.list_decays()
        if self.is_named:
            load_place("jaxpt.learn.optax_names:check")(self)

    def scale_rates(self, width: int, tokens: int) -> "OptimSpec":
        """The spec with the rates of a model's width and of a batch's tokens.

        >>> spec = OptimSpec(name="muon", lr=0.1, lr_width=768, lr_tokens=1024)
        >>> scaled = spec.scale_rates(width=192, tokens=4096)
        >>> scaled.lr, scaled.muon_lr, scaled.lr_width
        (0.4, 0.04, 0)
        """
        by_width = math.sqrt(self.lr_width / width) if self.lr_width else 1.0
        by_tokens = math.sqrt(tokens / self.lr_tokens) if self.lr_tokens else 1.0
        scaled = dataclasses.replace(
            self, lr=self.lr * by_width * by_tokens, lr_width=0, lr_tokens=0
        )
        if "muon_lr" not in self.settings():
            return scaled
        return dataclasses.replace(scaled, muon_lr=self.muon_lr * by_tokens)

    @property
    def is_named(self) -> bool:
        """Whether the optimizer is one of optax, by its name there."""
        return self.name.startswith(NAMED)

    @property
    def is_schedule_free(self) -> bool:
        """Whether an average of the parameters is evaluated, which the optimizer has.

        Defazio et al. 2024.
        """
        return self.name.startswith("optax.contrib.schedule_free_")

    @property
    def has_products(self) -> bool:
        """Whether an update may have matrix products, such as Muon's iterations."""
        return self.is_named or "muon_lr" in self.settings()

    def list_decays(self) -> dict[str, float]:
        """`decay_overrides` by text.

        >>> OptimSpec(decay_overrides="embed=0, head=0.1").list_decays()
        {'embed': 0.0, 'head': 0.1}
        """
        decays = {}
        for entry in filter(None, self.decay_overrides.split(",")):
            text, _, number = entry.partition("=")
            decays[text.strip()] = value = _read_number(number)
            is_good = bool(text.strip()) and 0 <= value < math.inf
            allowed = "texts with a decay of at least 0 each, such as embed=0, head=0.1"
            self.check("decay_overrides", is_good, allowed)
        return decays

    def settings(self) -> dict[str, Any]:
        """The settings that this optimizer and this schedule use, by name."""
        unread = _list_unread(self)
        return {k: v for k, v in dataclasses.asdict(self).items() if k not in unread}


def _list_unread(spec: OptimSpec) -> dict[str, str]:
    """The unused settings, each with the optimizer or schedule that does not use it."""
    readers = {
        name: [
            optimizer
            for optimizer, names in OPTIMIZER_DEFAULTS.items()
            if name in names
        ]
        for name in ("beta1", "beta2", "epsilon")
    } | OPTIMIZERS_READING
    unread = {n: spec.name for n, names in readers.items() if spec.name not in names}
    if not spec.is_named:
        unread["args"] = spec.name
    return unread | {
        name: f"schedule {spec.schedule}"
        for name, schedules in SCHEDULES_READING.items()
        if spec.schedule not in schedules
    }


def _check_together(spec: OptimSpec) -> None:
    """Raises UserError for settings that exclude each other."""
    is_exponential = spec.schedule == "wsd" and spec.decay_shape == "exponential"
    spec.check_all(
        (
            (
                "warmup_type",
                spec.warmup_steps > 0 or spec.warmup_type == "linear",
                "linear with optim.warmup_steps=0",
            ),
            (
                "min_lr_ratio",
                spec.min_lr_ratio > 0 or not is_exponential,
                "above 0 with optim.decay_shape=exponential",
            ),
            (
                "warmup_steps",
                spec.warmup_steps == 0 or spec.schedule != "slanted_triangle",
                "0 with optim.schedule=slanted_triangle, which includes a rise",
            ),
            (
                "warmup_type",
                spec.warmup_type == "linear" or not spec.schedule.endswith("_linear"),
                f"linear with optim.schedule={spec.schedule}",
            ),
            (
                "spike_deviations",
                spec.spike_deviations == 0 or spec.max_skips > 0,
                "0 with optim.max_skips=0",
            ),
        )
    )


def _read_number(text: str) -> float:
    """The number that a text is, or NaN."""
    try:
        return float(text)
    except ValueError:
        return math.nan
