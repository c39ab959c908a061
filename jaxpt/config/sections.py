"""Settings of row lengths, training, evaluation and comparisons."""

import dataclasses
import functools
import re
from typing import Any

from jaxpt.config.checks import check, check_least
from jaxpt.config.trials import has_range, list_trials
from jaxpt.errors import ConfigError
from jaxpt.objectives import OBJECTIVES
from jaxpt.statistics import ALPHA
from jaxpt.text.phases import Phases, is_schedule, make_phases

BUDGETS = ("flops", "raw_tokens", "seconds", "steps")
BACKENDS = ("jit", "pmap")
TRACKERS = ("tensorboard", "wandb", "mlflow")
FINETUNE = "finetune"  # the kind of `compare.tasks` that names a config file
# A name is also a folder's, and a part of flags; so it has no dots.
NAME = re.compile(r"\w[\w-]*", re.ASCII)
# Compared by default: one objective of each kind, all of which read any rows.
COMPARED = ("clm", "mlm", "span_corruption", "electra")


@dataclasses.dataclass(frozen=True)
class LengthSpec:
    """The length of rows; `text.rows.forms.RowsSpec` has their other settings.

    Attributes:
      seq_len: positions that the model (T5: its encoder) reads; each objective derives
        its row length from it.
      row_length: tokens in a row before corruption, the same for every objective; it
        takes precedence over `seq_len`. 0: derived from `seq_len`.
    """

    seq_len: int = 128
    row_length: int = 0

    def __post_init__(self) -> None:
        check_least("data", self, 1, "seq_len")
        check_least("data", self, 0, "row_length")


@dataclasses.dataclass(frozen=True)
class TrainSpec:
    """Training of one run.

    Attributes:
      steps: optimizer steps.
      seconds: time limit of training; 0 is no limit. The learning rate schedule,
        `eval_every` and `checkpoint_every`, which are in steps, are then spread over
        this time (`jaxpt.training.clock`).
      batch_size: rows (sequences) in a step, over all devices and microbatches.
      batch_schedule: pairs (until, share): until this fraction of the steps, a step
        reads this share of `batch_size`, rounded; then all. ((0.25, 0.25), (0.5, 0.5))
        begins with a quarter of the batch. Microbatches are fewer in proportion.
      length_schedule: pairs (until, pieces): until this fraction of the steps, each row
        is cut into this number of rows; then rows are whole. ((0.7, 4), (0.9, 2))
        doubles the length twice. The tokens in a batch stay the same. Evaluation reads
        whole rows.
      seed: of the parameters, the order of the rows, corruption and dropout.
      num_microbatches: gradient accumulation: the parts that a batch is split into.
      steps_per_call: steps in one dispatch (`lax.scan`).
      backend: "jit" over a mesh of devices, or "pmap", which is only data-parallel.
      fsdp: devices that every matrix is sharded over and gathered from when it is used;
        0: all that `tensor` leaves.
      tensor: devices that heads, MLPs and the vocabulary are sharded over (tensor
        parallelism). All remaining devices are data-parallel.
      init_from: folder of a run whose newest parameters (or their moving mean, if it
        keeps one) this run starts from, at step 0 with a new optimizer state; "":
        random initialization.
      log_every: steps between two lines of progress.
      eval_every, checkpoint_every: in steps, multiples of steps_per_call; 0 is only at
        the end.
      keep_checkpoints: number of newest checkpoints to keep.
      checkpoint_words: numbers of words; when the run has read one of them, its
        parameters are written to `<workdir>/words/`, as a separate run such as
        `words/1M` (`jaxpt.training.milestones`).
      trackers: where the log is written in addition to metrics.jsonl: any of
        "tensorboard", "wandb" (Weights & Biases) and "mlflow"
        (`jaxpt.training.trackers`).
      profile_steps: steps to profile, in whole calls, after the first call has
        compiled; JAX writes a trace to `<workdir>/profile`. 0 writes none.
    """

    steps: int = 1000
    seconds: float = 0.0
    batch_size: int = 64
    batch_schedule: tuple[tuple[float, float], ...] = ()
    length_schedule: tuple[tuple[float, int], ...] = ()
    seed: int = 0
    num_microbatches: int = 1
    steps_per_call: int = 10
    backend: str = "jit"
    fsdp: int = 1
    tensor: int = 1
    init_from: str = ""
    log_every: int = 50
    eval_every: int = 0
    checkpoint_every: int = 500
    keep_checkpoints: int = 2
    checkpoint_words: tuple[int, ...] = ()
    trackers: tuple[str, ...] = ("tensorboard",)
    profile_steps: int = 0

    def __post_init__(self) -> None:
        check_least("train", self, 1, "steps", "batch_size", "num_microbatches")
        check_least("train", self, 1, "steps_per_call", "log_every", "tensor")
        check_least("train", self, 1, "keep_checkpoints")
        check_least("train", self, 0, "seconds", "profile_steps", "fsdp")
        for name in ("eval_every", "checkpoint_every"):
            every = getattr(self, name)
            is_good = every >= 0 and every % self.steps_per_call == 0
            allowed = f"0 or a multiple of train.steps_per_call={self.steps_per_call}"
            check("train", self, name, is_good, allowed)
        words = self.checkpoint_words
        is_good = all(type(x) is int and x > 0 for x in words)
        is_good &= list(words) == sorted(set(words)) and not (words and self.seconds)
        allowed = "rising whole numbers above 0; () with train.seconds"
        check("train", self, "checkpoint_words", is_good, allowed)
        is_good = self.batch_size % self.num_microbatches == 0
        allowed = f"a divisor of train.batch_size={self.batch_size}"
        check("train", self, "num_microbatches", is_good, allowed)
        until = "until above 0, rising, at most 1"
        is_good = is_schedule(self.batch_schedule, lambda share: 0 < share <= 1)
        allowed = f"pairs (until, share) such as ((0.5, 0.25),): {until}; share above 0"
        check("train", self, "batch_schedule", is_good, f"{allowed}, at most 1")
        is_good = is_schedule(
            self.length_schedule, lambda pieces: type(pieces) is int and pieces >= 1
        )
        allowed = f"pairs (until, pieces) such as ((0.7, 4), (0.9, 2)): {until}; pieces"
        check("train", self, "length_schedule", is_good, f"{allowed} a whole number")
        is_good = 0 <= self.seed < 2**31
        check("train", self, "seed", is_good, "from 0 to 2147483647")
        is_good = self.backend in BACKENDS
        check("train", self, "backend", is_good, f"one of {', '.join(BACKENDS)}")
        is_good = len(set(self.trackers)) == len(self.trackers)
        is_good &= set(self.trackers) <= set(TRACKERS)
        allowed = f"any of {', '.join(TRACKERS)}, each once"
        check("train", self, "trackers", is_good, allowed)
        for name in ("fsdp", "tensor"):
            is_good = getattr(self, name) == 1 or self.backend == "jit"
            check("train", self, name, is_good, f"1 with train.backend={self.backend}")

    @functools.cached_property
    def phases(self) -> Phases:
        """The phases of training, which begin with a call of steps."""
        sizes = self.steps, self.steps_per_call, self.batch_size
        return make_phases(*sizes, self.batch_schedule, self.length_schedule)


@dataclasses.dataclass(frozen=True)
class EvalSpec:
    """Evaluation on held-out text.

    Attributes:
      num_rows: validation rows, evenly spaced; 0: all that do not overlap.
      batch_size: rows that are evaluated at once.
      probe_length: tokens in a window of a probed passage.
      probe_windows: windows of a passage.
      probe_passages: at most this many passages of each split for the linear probe of
        labels; 0: no probe. With 2,500 the binomial standard error of an accuracy is at
        most 0.01.
      num_words: masked-word probe: the number of most frequent words, one of which is
        removed from a text and predicted (`jaxpt.evaluation.words`); 0: none.
      word_context: tokens on either side of a gap.
      word_questions: at most this many gaps for each word in either split.
      num_choices: multiple-choice cloze: candidate tokens for a gap
        (`jaxpt.evaluation.choices`), with word_context tokens on either side; 0: none.
      choice_questions: number of such gaps.
      probe_every_eval: run the probes and the multiple-choice cloze at every
        evaluation, for the learning curves.
      samples: number of held-out passages on which each evaluation shows what the model
        predicts (`jaxpt.training.passage_samples`). No result depends on it. The runs
        of a comparison show their samples in the report.
    """

    num_rows: int = 0
    batch_size: int = 64
    probe_length: int = 64
    probe_windows: int = 1
    probe_passages: int = 3000
    num_words: int = 0
    word_context: int = 16
    word_questions: int = 20
    num_choices: int = 0
    choice_questions: int = 1000
    probe_every_eval: bool = False
    samples: int = 1

    def __post_init__(self) -> None:
        for name in ("num_words", "num_choices"):
            is_good = getattr(self, name) == 0 or getattr(self, name) >= 2
            check("eval", self, name, is_good, "0, or at least 2")
        check_least("eval", self, 0, "num_rows", "samples", "probe_passages")
        check_least("eval", self, 1, "choice_questions", "word_questions")
        check_least("eval", self, 1, "batch_size", "probe_length", "probe_windows")
        check_least("eval", self, 3, "word_context")


@dataclasses.dataclass(frozen=True)
class CompareSpec:
    """A comparison: its objectives and the cost that is equal for all of them.

    Attributes:
      objectives: names of objectives, or other names (letters, digits, "_", "-") with
        an `objective` in `overrides`, to compare one objective in several settings.
      seeds: every objective is trained with each. Choose them before you see any
        result: adding seeds after a tie raises the error rate of verdicts.
      earlier_seeds: seeds of the comparison that this one follows up, if any. `seeds`
        must be disjoint from them, so that these verdicts rest on new seeds only; with
        an `alpha` of at most half of 0.05 they may overlap.
      alpha: the family-wise error rate of verdicts and intervals. If several
        comparisons of the same objectives are planned, share 0.05 among them.
      budget: what is equal for every run: "flops", "raw_tokens" or "seconds" (the
        clock of each run, `train.seconds`). With "steps" each objective trains for its
        train.steps, and costs are not matched.
      amount: of the budget; 0 if it is "steps".
      num_evals: evaluations of each run, evenly spaced over its cost (in whole calls);
        0: as train.eval_every.
      overrides: name -> sections -> settings that differ for it
        ({"words": {"objective": "mlm", "mlm": {"masking": "words"}}}).
      tune: settings that are tuned for every objective before the comparison, with
        their values: "optim.lr=1e-3,3e-3,6e-3" or "optim.lr=1e-3,3e-3;
        optim.weight_decay=0.01,0.1", which are four trials; or a range that values are
        drawn from log-uniformly, "optim.lr=1e-4..1e-2"; "": no tuning. One objective
        can have other values in `overrides` ({"mlm": {"compare": {"tune": "..."}}}).
      tune_trials: number of trials for every objective with a range.
      tune_share: fraction of the budget (of train.steps if the budget is steps) that a
        trial trains for.
      tune_by: the metric that chooses a trial: valid_loss, the objective's loss, or
        another one. It must be a shared metric if a tuned setting defines the
        objective's loss.
      tune_seed: seed of the trials and of drawn values; no compared run may have it.
      tune_fraction: fraction of the training text that trials do not train on and are
        chosen by; the validation text does not influence the choice.
      tasks: downstream tasks that every trained run is evaluated on
        (`comparison.compared_tasks`): zero-shot tasks such as "blimp:FOLDER", as in
        `jaxpt evaluate --tasks`, and "finetune:FILE.py" or "finetune:FILE.py:ARGUMENT",
        a config of `jaxpt finetune`.
      task_sizes: numbers of labelled examples for fine-tuning, nested and balanced over
        labels; 0: all.
      task_items: number of items of a zero-shot task, evenly spaced; 0: all.
      task_settings: sections of settings that replace those of every fine-tuning
        config, such as {"train": {"lr": (5e-4,)}} for small networks.
    """

    objectives: tuple[str, ...] = COMPARED
    seeds: tuple[int, ...] = (0, 1, 2)
    earlier_seeds: tuple[int, ...] = ()
    alpha: float = ALPHA
    budget: str = "flops"
    amount: float = 0.0
    num_evals: int = 0
    overrides: dict = dataclasses.field(default_factory=dict)
    tune: str = ""
    tune_trials: int = 0
    tune_share: float = 0.25
    tune_by: str = "valid_loss"
    tune_seed: int = 1_000_000
    tune_fraction: float = 0.1
    tasks: tuple[str, ...] = ()
    task_sizes: tuple[int, ...] = (0,)
    task_items: int = 0
    task_settings: dict = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, sections in self.overrides.items():
            if not isinstance(sections, dict):
                raise ConfigError(
                    f"compare.overrides.{name}={sections!r}: must be sections of "
                    f"settings"
                )
        known = OBJECTIVES
        for name in self.objectives:
            objective = self.overrides.get(name, {}).get("objective", name)
            is_own = name in known and objective == name
            is_new = name not in known and objective in known
            is_good = is_own or (is_new and bool(NAME.fullmatch(name)))
            allowed = (
                f"among {', '.join(known)}; or other names (letters, digits, _ "
                f"and -) whose compare.overrides.{name}.objective is among these"
            )
            check("compare", self, "objectives", is_good, allowed)
        for name in ("objectives", "seeds"):
            values = getattr(self, name)
            is_good = len(values) > 0 and len(set(values)) == len(values)
            check("compare", self, name, is_good, "a list without repeats, not empty")
        for name in ("seeds", "earlier_seeds"):
            values = getattr(self, name)
            is_good = all(type(n) is int and 0 <= n < 2**31 for n in values)
            check("compare", self, name, is_good, "whole numbers from 0 to 2147483647")
        is_good = 0 < self.alpha < 1
        check("compare", self, "alpha", is_good, "between 0 and 1, both excluded")
        is_new = set(self.seeds).isdisjoint(self.earlier_seeds)
        allowed = (
            f"without those of compare.earlier_seeds={self.earlier_seeds}, or "
            f"compare.alpha={self.alpha:g} at most {ALPHA / 2:g} in each comparison"
        )
        is_good = is_new or self.alpha <= ALPHA / 2
        check("compare", self, "seeds", is_good, allowed)
        check_least("compare", self, 0, "num_evals", "task_items")
        is_good = self.budget in BUDGETS
        check("compare", self, "budget", is_good, f"one of {', '.join(BUDGETS)}")
        is_good = (self.amount > 0) != (self.budget == "steps")
        check(
            "compare", self, "amount", is_good, "above 0 (for budget=steps, exactly 0)"
        )
        for name in ("tune_share", "tune_fraction"):
            is_good = 0 < getattr(self, name) < 1
            check("compare", self, name, is_good, "between 0 and 1, both excluded")
        self._check_tuning()
        sizes = self.task_sizes
        is_good = 0 < len(sizes) == len(set(sizes))
        is_good = is_good and all(type(n) is int and n >= 0 for n in sizes)
        allowed = "whole numbers from 0 (all labels), each once"
        check("compare", self, "task_sizes", is_good, allowed)

    def list_trials(self, name: str) -> list[dict[str, Any]]:
        """The settings of a name's trials, by their full names; none if not tuned.

        Raises:
          UserError: they are not written as settings and values.

        >>> CompareSpec(amount=1, tune="optim.lr=1e-3,3e-3").list_trials("clm")
        [{'optim.lr': 0.001}, {'optim.lr': 0.003}]
        """
        text, place = self.find_tune(name)
        return list_trials(text, self.tune_trials, self.tune_seed, place)

    def find_tune(self, name: str) -> tuple[str, str]:
        """The values to try for a name, as `tune` has them, and the setting's name."""
        section = self.overrides.get(name, {}).get("compare", {})
        if "tune" in section:
            return section["tune"], f"compare.overrides.{name}.compare.tune"
        return self.tune, "compare.tune"

    def _check_tuning(self) -> None:
        for name, sections in self.overrides.items():
            section = sections.get("compare", {})
            if not isinstance(section, dict) or section.keys() - {"tune"}:
                raise ConfigError(
                    f"compare.overrides.{name}.compare={section}: must have only "
                    f"tune; the other settings are the same for all"
                )
        is_good = 0 <= self.tune_seed < 2**31 and self.tune_seed not in self.seeds
        allowed = f"from 0 to 2147483647, and none of compare.seeds={self.seeds}"
        check("compare", self, "tune_seed", is_good, allowed)
        for name in self.objectives:
            self.list_trials(name)
        is_good = self.tune_trials == 0 or any(
            has_range(*self.find_tune(name)) for name in self.objectives
        )
        allowed = "0 without a range such as optim.lr=1e-4..1e-2 in compare.tune"
        check("compare", self, "tune_trials", is_good, allowed)
