"""The settings that belong to a run and not to its model: rows, steps, measurements."""

import dataclasses
import re
from typing import Any

from jaxpt.config.trials import has_range, list_trials
from jaxpt.errors import ConfigError
from jaxpt.objectives import OBJECTIVES
from jaxpt.statistics import ALPHA

BUDGETS = ("flops", "raw_tokens", "seconds", "steps")
BACKENDS = ("jit", "pmap")
TRACKERS = ("tensorboard", "wandb", "mlflow")
FINETUNE = "finetune"  # the kind of `compare.tasks` that names a config file
# Of a folder too; a config's names, whose settings flags reach by them, have no dots.
NAME = re.compile(r"\w[\w-]*", re.ASCII)
# What is compared unless the config says otherwise: one of each kind, on any rows.
COMPARED = ("clm", "mlm", "span_corruption", "electra")


@dataclasses.dataclass(frozen=True)
class LengthSpec:
    """How long rows are; the other settings of rows are `text.rows.forms.RowsSpec`'s.

    Attributes:
      seq_len: positions the model (T5: its encoder) reads; each objective's row length
        follows from it.
      row_length: raw tokens in a row, the same for every objective; 0 leaves it to
        `seq_len`, which it otherwise overrules.
    """

    seq_len: int = 128
    row_length: int = 0

    def __post_init__(self):
        _check("data", self, "seq_len", self.seq_len >= 1, "at least 1")
        _check("data", self, "row_length", self.row_length >= 0, "at least 0")


@dataclasses.dataclass(frozen=True)
class TrainSpec:
    """One run.

    Attributes:
      steps: of the optimizer.
      seconds: of training, after which the run ends, whatever its steps; the schedule
        of `steps` steps is spread over that time, and so are `eval_every` and
        `checkpoint_every` (`jaxpt.training.clock`). 0 is no limit.
      batch_size: rows in a step, over all devices and microbatches.
      seed: of the parameters, the order of the rows, corruption and dropout.
      num_microbatches: gradients are summed over so many parts of the batch.
      steps_per_call: steps in one dispatch (`lax.scan`).
      backend: "jit" over a mesh of devices, or "pmap", which only shares out the rows.
      fsdp: devices that every matrix is split over, to be gathered when it is used; 0
        takes all that `tensor` leaves.
      tensor: devices that heads, MLPs and the vocabulary are split over, on the same
        rows. What both leave shares out the rows alone.
      init_from: folder of a run whose newest parameters (or their mean, if it keeps
        one) this one begins with, at step 0 with a fresh optimizer; "" draws them.
      log_every: steps between two lines of progress.
      eval_every, checkpoint_every: in steps, multiples of steps_per_call; 0 is only at
        the end.
      keep_checkpoints: the newest so many are kept.
      trackers: where the log goes beside metrics.jsonl: any of "tensorboard", "wandb"
        (Weights & Biases) and "mlflow" (`jaxpt.training.trackers`).
      profile_steps: of so many steps, in whole calls, after the first call of a start
        has compiled, JAX writes a trace to `<workdir>/profile`; 0 writes none.
    """

    steps: int = 1000
    seconds: float = 0.0
    batch_size: int = 64
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
    trackers: tuple[str, ...] = ("tensorboard",)
    profile_steps: int = 0

    def __post_init__(self):
        for name in ("steps", "batch_size", "num_microbatches", "steps_per_call"):
            _check("train", self, name, getattr(self, name) >= 1, "at least 1")
        for name in ("log_every", "keep_checkpoints"):
            _check("train", self, name, getattr(self, name) >= 1, "at least 1")
        for name in ("eval_every", "checkpoint_every"):
            every = getattr(self, name)
            is_good = every >= 0 and every % self.steps_per_call == 0
            allowed = f"0 or a multiple of train.steps_per_call={self.steps_per_call}"
            _check("train", self, name, is_good, allowed)
        is_good = self.batch_size % self.num_microbatches == 0
        allowed = f"a divisor of train.batch_size={self.batch_size}"
        _check("train", self, "num_microbatches", is_good, allowed)
        _check("train", self, "seconds", self.seconds >= 0, "at least 0")
        is_good = 0 <= self.seed < 2**31
        _check("train", self, "seed", is_good, "from 0 to 2147483647")
        is_good = self.backend in BACKENDS
        _check("train", self, "backend", is_good, f"one of {', '.join(BACKENDS)}")
        _check("train", self, "profile_steps", self.profile_steps >= 0, "at least 0")
        is_good = len(set(self.trackers)) == len(self.trackers)
        is_good &= set(self.trackers) <= set(TRACKERS)
        allowed = f"any of {', '.join(TRACKERS)}, each once"
        _check("train", self, "trackers", is_good, allowed)
        _check("train", self, "fsdp", self.fsdp >= 0, "at least 0")
        _check("train", self, "tensor", self.tensor >= 1, "at least 1")
        for name in ("fsdp", "tensor"):
            is_good = getattr(self, name) == 1 or self.backend == "jit"
            _check("train", self, name, is_good, f"1 with train.backend={self.backend}")


@dataclasses.dataclass(frozen=True)
class EvalSpec:
    """What is measured on held-out text.

    Attributes:
      num_rows: rows of validation, evenly spaced; 0 takes all that do not overlap.
      batch_size: rows that are evaluated at once.
      probe_length: tokens the model reads at once of a probed passage.
      probe_windows: how many of these a passage has.
      probe_passages: the most passages each split gives, 0 to probe for no labels. Of
        2,500 a share of answers has a binomial standard error of 0.01 at most.
      num_words: the most frequent words, of which one is asked for where it was taken
        out of a text (`jaxpt.evaluation.words`); 0 asks for none.
      word_context: tokens on either side that the model reads.
      word_questions: the most of each word in either split.
      num_choices: tokens of which one stood in a gap (`jaxpt.evaluation.choices`), with
        word_context tokens on either side; 0 asks for none.
      choice_questions: how many such gaps.
      probe_every_eval: probe, and ask for words and choices, at every evaluation too,
        for the learning curves.
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

    def __post_init__(self):
        is_good = self.num_words == 0 or self.num_words >= 2
        _check("eval", self, "num_words", is_good, "0, or at least 2")
        is_good = self.num_choices == 0 or self.num_choices >= 2
        _check("eval", self, "num_choices", is_good, "0, or at least 2")
        is_good = self.choice_questions >= 1
        _check("eval", self, "choice_questions", is_good, "at least 1")
        is_good = self.word_context >= 3
        _check("eval", self, "word_context", is_good, "at least 3")
        is_good = self.word_questions >= 1
        _check("eval", self, "word_questions", is_good, "at least 1")
        for name in ("num_rows", "samples"):
            _check("eval", self, name, getattr(self, name) >= 0, "at least 0")
        for name in ("batch_size", "probe_length", "probe_windows"):
            _check("eval", self, name, getattr(self, name) >= 1, "at least 1")
        _check("eval", self, "probe_passages", self.probe_passages >= 0, "at least 0")


@dataclasses.dataclass(frozen=True)
class CompareSpec:
    """Which objectives are compared, and at what equal cost.

    Attributes:
      objectives: names of objectives, or other names (letters, digits, "_", "-")
        whose `overrides` say the `objective`, so that one is compared with itself in
        other settings.
      seeds: every objective is trained with each. Choose them before you see any
        result: adding seeds after a tie raises the error rate of verdicts.
      earlier_seeds: of the comparison that this one follows up, if any. `seeds` must
        be other ones, so that these verdicts rest on new seeds alone; seeds of both
        are allowed only with an `alpha` of at most half of 0.05.
      alpha: the family-wise error rate of verdicts and intervals. If several
        comparisons of the same objectives are planned, share 0.05 among them.
      budget: "flops", "raw_tokens" or "seconds" of training for every run, `amount` of
        them (of seconds by the clock of each run, `train.seconds`); or "steps", which
        takes each objective's train.steps and matches nothing.
      amount: of the budget; 0 where it is "steps".
      num_evals: measurements along each run, at the same shares of what it costs (in
        whole calls); 0 leaves them to train.eval_every.
      overrides: name -> sections -> settings that differ for it
        ({"words": {"objective": "mlm", "mlm": {"masking": "words"}}}).
      tune: settings and the values of each that every objective tries before it is
        compared, such as "optim.lr=1e-3,3e-3,6e-3" or "optim.lr=1e-3,3e-3;
        optim.weight_decay=0.01,0.1", which are four trials; or a range that values are
        drawn from log-uniformly, "optim.lr=1e-4..1e-2"; "" tunes nothing. A name has
        values of its own by `overrides` ({"mlm": {"compare": {"tune": "..."}}}).
      tune_trials: how many trials are drawn for every objective with a range.
      tune_share: of the budget (of each objective's train.steps where the budget is
        steps) that a trial trains for.
      tune_by: the metric that chooses a trial: valid_loss, the objective's own, or
        another one. It must be a shared metric if a tuned setting defines the
        objective's loss.
      tune_seed: the trials' seed, also of values that are drawn; no compared run may
        have it.
      tune_fraction: of the training text, which trials do not train on and are chosen
        by; the validation text has no say in the choice.
      tasks: downstream tasks that are put to every run when it is trained
        (`comparison.compared_tasks`): "blimp:FOLDER" and its like, as `jaxpt evaluate
        --tasks` has them, and "finetune:FILE.py" or "finetune:FILE.py:ARGUMENT", a
        config of `jaxpt finetune`.
      task_sizes: numbers of labelled examples that runs are fine-tuned with, nested and
        with as many of each label; 0 is all of them.
      task_items: of a zero-shot task, how many of its items are asked, spread evenly; 0
        is all.
      task_settings: sections of settings that every fine-tuning has in place of its
        config file's, such as {"train": {"lr": (5e-4,)}} for small networks.
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

    def __post_init__(self):
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
            _check("compare", self, "objectives", is_good, allowed)
        for name in ("objectives", "seeds"):
            values = getattr(self, name)
            is_good = len(values) > 0 and len(set(values)) == len(values)
            _check("compare", self, name, is_good, "a list without repeats, not empty")
        for name in ("seeds", "earlier_seeds"):
            values = getattr(self, name)
            is_good = all(type(n) is int and 0 <= n < 2**31 for n in values)
            _check("compare", self, name, is_good, "whole numbers from 0 to 2147483647")
        is_good = 0 < self.alpha < 1
        _check("compare", self, "alpha", is_good, "between 0 and 1, both excluded")
        is_new = set(self.seeds).isdisjoint(self.earlier_seeds)
        allowed = (
            f"without those of compare.earlier_seeds={self.earlier_seeds}, or "
            f"compare.alpha={self.alpha:g} at most {ALPHA / 2:g} in each comparison"
        )
        is_good = is_new or self.alpha <= ALPHA / 2
        _check("compare", self, "seeds", is_good, allowed)
        _check("compare", self, "num_evals", self.num_evals >= 0, "at least 0")
        is_good = self.budget in BUDGETS
        _check("compare", self, "budget", is_good, f"one of {', '.join(BUDGETS)}")
        is_good = (self.amount > 0) != (self.budget == "steps")
        _check(
            "compare", self, "amount", is_good, "above 0 (for budget=steps, exactly 0)"
        )
        for name in ("tune_share", "tune_fraction"):
            is_good = 0 < getattr(self, name) < 1
            _check("compare", self, name, is_good, "between 0 and 1, both excluded")
        self._check_tuning()
        sizes = self.task_sizes
        is_good = 0 < len(sizes) == len(set(sizes))
        is_good = is_good and all(type(n) is int and n >= 0 for n in sizes)
        allowed = "whole numbers from 0 (all labels), each once"
        _check("compare", self, "task_sizes", is_good, allowed)
        _check("compare", self, "task_items", self.task_items >= 0, "at least 0")

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
        """What a name is to try, as `tune` has it, and the setting that says so."""
        own = self.overrides.get(name, {}).get("compare", {})
        if "tune" in own:
            return own["tune"], f"compare.overrides.{name}.compare.tune"
        return self.tune, "compare.tune"

    def _check_tuning(self) -> None:
        for name, sections in self.overrides.items():
            own = sections.get("compare", {})
            if not isinstance(own, dict) or own.keys() - {"tune"}:
                raise ConfigError(
                    f"compare.overrides.{name}.compare={own}: must have no setting but "
                    f"tune; the others are the same for all"
                )
        is_good = 0 <= self.tune_seed < 2**31 and self.tune_seed not in self.seeds
        allowed = f"from 0 to 2147483647, and none of compare.seeds={self.seeds}"
        _check("compare", self, "tune_seed", is_good, allowed)
        for name in self.objectives:
            self.list_trials(name)
        is_good = self.tune_trials == 0 or any(
            has_range(*self.find_tune(name)) for name in self.objectives
        )
        allowed = "0 without a range such as optim.lr=1e-4..1e-2 in compare.tune"
        _check("compare", self, "tune_trials", is_good, allowed)


def _check(section: str, spec, name: str, is_good: bool, allowed: str) -> None:
    if not is_good:
        raise ConfigError(f"{section}.{name}={getattr(spec, name)}: must be {allowed}")
