"""Settings of row lengths, training, evaluation and comparisons."""

import dataclasses
import functools
import re
from typing import Annotated, Any, ClassVar

from jaxpt.by_name import load_place
from jaxpt.errors import ConfigError, suggest
from jaxpt.judge import ALPHA
from jaxpt.objectives import OBJECTIVES
from jaxpt.setting_types import (
    Fraction,
    InnerFraction,
    Length,
    Limits,
    NonNegativeFloat,
    NonNegativeInt,
    OneOf,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    Rule,
    Settings,
    is_schedule,
)
from jaxpt.text.phases import MAX_RANGES, Phases, make_phases
from jaxpt.zero_shot.names import NAMES, WRITTEN

TRIALS = "jaxpt.config.trials"  # of comparisons that tune
BUDGETS = ("flops", "operations", "raw_tokens", "seconds", "steps")
BACKENDS = ("jit", "pmap")
TRACKERS = ("tensorboard", "wandb", "mlflow")
SCORED = tuple(name for name in NAMES if name not in WRITTEN)  # kinds of `eval.tasks`
FINETUNE = "finetune"  # the kind of `compare.tasks` that names a config file
# A name is also a folder's, and a part of flags; so it has no dots.
NAME = re.compile(r"\w[\w-]*", re.ASCII)
# Compared by default: one objective of each kind, all of which read any rows.
COMPARED = ("clm", "mlm", "span_corruption", "electra")
MAX_LENGTH = 2**20  # tokens of a row
MAX_SAMPLES = 1000  # of an evaluation, each generated and stored
UNTIL = "until above 0, rising, at most 1"
BatchSchedule = Annotated[
    tuple[tuple[Fraction, PositiveFraction], ...],
    Rule(
        is_schedule,
        f"pairs (until, share) such as ((0.5, 0.25),): {UNTIL}; share above 0, at most "
        f"1",
    ),
]
LengthSchedule = Annotated[
    tuple[tuple[Fraction, PositiveInt], ...],
    Rule(
        is_schedule,
        f"pairs (until, pieces) such as ((0.7, 4), (0.9, 2)): {UNTIL}; pieces a whole "
        f"number",
    ),
]

Seeds = Annotated[tuple[NonNegativeInt, ...], Length(1, is_distinct=True)]
RisingInts = Annotated[
    tuple[PositiveInt, ...],
    Rule(
        lambda values: list(values) == sorted(set(values)),
        "rising whole numbers above 0",
    ),
]


def _is_range(pair: tuple[int, ...]) -> bool:
    return len(pair) == 2 and pair[0] < pair[1]


RisingAmounts = Annotated[
    tuple[PositiveFloat, ...],
    Rule(
        lambda values: len(values) != 1 and list(values) == sorted(set(values)),
        "(), or two or more rising numbers above 0, such as (1e12, 2e12, 4e12)",
    ),
]
Rewind = Annotated[
    tuple[NonNegativeInt, ...],
    Rule(
        lambda pair: not pair or _is_range(pair),
        "(), or (steps, batches) such as (100, 300), with more batches than steps",
    ),
]
Ranges = Annotated[
    tuple[tuple[NonNegativeInt, NonNegativeInt], ...],
    Rule(
        lambda pairs: len(pairs) <= MAX_RANGES and all(map(_is_range, pairs)),
        f"at most {MAX_RANGES} ranges (first, end) such as ((80, 120),), first below "
        f"end",
    ),
]


def is_task(name: str) -> bool:
    """Whether an entry of `compare.tasks` names a known task and a path."""
    kind, _, path = name.partition(":")
    return kind in (*NAMES, FINETUNE) and bool(path)


def is_scored(name: str) -> bool:
    """Whether an entry of `eval.tasks` names a task that a run scores, and a path."""
    return is_task(name) and name.partition(":")[0] in SCORED


def are_sections(sections: dict) -> bool:
    """Whether a dict has sections of settings, and the name of an objective at most."""
    return all(
        isinstance(value, str if name == "objective" else dict)
        for name, value in sections.items()
    )


def are_overrides(overrides: dict) -> bool:
    """Whether a dict has sections of settings for each of its names."""
    values = overrides.values()
    return all(isinstance(each, dict) and are_sections(each) for each in values)


def are_controls(controls: dict) -> bool:
    """Whether a dict has lists of other names by name."""
    return all(
        isinstance(each, list | tuple) and name not in each and all(map(_is_name, each))
        for name, each in controls.items()
    )


def _is_name(value: Any) -> bool:
    return isinstance(value, str)


def is_expected(text: str) -> bool:
    """Whether an entry of `compare.expected` has its form."""
    return bool(_EXPECTED.fullmatch(text))


def parse_expected(text: str) -> list[str]:
    """The metric and the two names of an entry of `compare.expected`.

    >>> parse_expected("pair_accuracy: clm > mlm")
    ['pair_accuracy', 'clm', 'mlm']
    >>> [is_expected(f"bits: {pair}") for pair in ("own.a > clm", "clm = own.a")]
    [True, True]
    """
    return [part.strip() for part in re.split("[:>=]", text)]


_EXPECTED = re.compile(r"\w+: *([\w.-]+) *[>=] *(?!\1$)[\w.-]+", re.ASCII)
Expected = Annotated[
    str,
    Rule(is_expected, '"METRIC: A > B" (A is ahead of B) or "METRIC: A = B"'),
]
TaskName = Annotated[
    str,
    Rule(is_task, f"one of {', '.join(f'{n}:PATH' for n in (*NAMES, FINETUNE))}"),
]
ScoredTask = Annotated[
    str, Rule(is_scored, f"one of {', '.join(f'{n}:PATH' for n in SCORED)}")
]
CONTROLS = 'names with lists of other names, such as {"multi_token": ("clm",)}'
SECTIONS = 'sections of settings, such as {"train": {"lr": (5e-4,)}}'
OVERRIDES = (
    'names with sections of settings, such as {"words": {"objective": "mlm", "mlm": '
    '{"masking": "words"}}}'
)


@dataclasses.dataclass(frozen=True)
class LengthSpec(Settings):
    """The length of rows; `text.rows.forms.RowsSpec` has their other settings.

    Attributes:
      seq_len: positions that the model (T5: its encoder) reads; each objective derives
        its row length from it.
      row_length: tokens in a row before corruption, the same for every objective; it
        takes precedence over `seq_len`. 0: derived from `seq_len`.
    """

    SECTION: ClassVar[str] = "data"

    seq_len: Annotated[int, Limits(least=1, most=MAX_LENGTH)] = 128
    row_length: Annotated[int, Limits(least=0, most=MAX_LENGTH)] = 0


@dataclasses.dataclass(frozen=True)
class TrainSpec(Settings):
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
        0: all that `context` and `tensor` leave.
      context: devices that the positions of each row are divided over (context
        parallelism); must divide the lengths that the stacks read.
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
      rewind: a pair (steps, batches), such as (100, 300): a run that would diverge goes
        back at least this number of steps before its first bad update, to its last
        checkpoint there, and does not read this number of batches again, from that
        number of steps before the update (PaLM: about 100, and 200 to 500). (): the run
        ends.
      skip_batches: ranges (first, end) of batches that are not read, `end` excluded, as
        `skipped_batches` of a result lists them; replays a run with `rewind`.
      trackers: where the log is written in addition to metrics.jsonl: any of
        "tensorboard", "wandb" (Weights & Biases) and "mlflow"
        (`jaxpt.training.trackers`).
      profile_steps: steps to profile, in whole calls, after the first call has
        compiled; JAX writes a trace to `<workdir>/profile`. 0 writes none.
    """

    SECTION: ClassVar[str] = "train"

    steps: PositiveInt = 1000
    seconds: NonNegativeFloat = 0.0
    batch_size: PositiveInt = 64
    batch_schedule: BatchSchedule = ()
    length_schedule: LengthSchedule = ()
    seed: NonNegativeInt = 0
    num_microbatches: PositiveInt = 1
    steps_per_call: PositiveInt = 10
    backend: Annotated[str, OneOf(*BACKENDS)] = "jit"
    fsdp: NonNegativeInt = 1
    context: PositiveInt = 1
    tensor: PositiveInt = 1
    init_from: str = ""
    log_every: PositiveInt = 50
    eval_every: NonNegativeInt = 0
    checkpoint_every: NonNegativeInt = 500
    keep_checkpoints: PositiveInt = 2
    checkpoint_words: RisingInts = ()
    rewind: Rewind = ()
    skip_batches: Ranges = ()
    trackers: Annotated[
        tuple[Annotated[str, OneOf(*TRACKERS)], ...], Length(is_distinct=True)
    ] = ("tensorboard",)
    profile_steps: NonNegativeInt = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("eval_every", "checkpoint_every"):
            is_good = getattr(self, name) % self.steps_per_call == 0
            allowed = f"0 or a multiple of train.steps_per_call={self.steps_per_call}"
            self.check(name, is_good, allowed)
        is_good = not (self.checkpoint_words and self.seconds)
        self.check("checkpoint_words", is_good, "() with a budget of seconds")
        is_good = not (self.checkpoint_words and (self.rewind or self.skip_batches))
        allowed = "() with train.rewind or train.skip_batches"
        self.check("checkpoint_words", is_good, allowed)
        is_good = self.batch_size % self.num_microbatches == 0
        allowed = f"a divisor of train.batch_size={self.batch_size}"
        self.check("num_microbatches", is_good, allowed)
        is_good = not (self.rewind and self.seconds)
        self.check("rewind", is_good, "() with a budget of seconds")
        for name in ("fsdp", "context", "tensor"):
            is_good = getattr(self, name) == 1 or self.backend == "jit"
            self.check(name, is_good, f"1 with train.backend={self.backend}")

    @functools.cached_property
    def phases(self) -> Phases:
        """The phases of training, which begin with a call of steps."""
        sizes = self.steps, self.steps_per_call, self.batch_size
        return make_phases(*sizes, self.batch_schedule, self.length_schedule)


@dataclasses.dataclass(frozen=True)
class EvalSpec(Settings):
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
      pair_questions: bigram-matched cloze: the maximum number of gaps
        (`jaxpt.evaluation.bigram_pairs`), with word_context tokens on either side; 0:
        none. A run whose model reads fewer tokens at once has no such metric, and
        reports why.
      num_choices: multiple-choice cloze: candidate tokens for a gap
        (`jaxpt.evaluation.choices`), with word_context tokens on either side; 0: none.
        Bigrams answer most of these questions.
      choice_questions: number of such gaps.
      regret_documents: held-out documents of a language with exact answers
        (`data.path=hmm:...`) on which regret is measured (`jaxpt.evaluation.regret`);
        0: none.
      regret_positions: at most this many positions of each. An answer that needs a pass
        of the network for each symbol (ELECTRA's discriminator, encoder-decoders) takes
        regret_documents x regret_positions x symbols passes.
      regret_bayes_documents: of these documents, the number on which causal models also
        answer the two-sided question, by Bayes' rule; 0: none.
      probe_every_eval: measure the shared metrics at every evaluation, for the learning
        curves: probes, both questions of gaps, likelihood, cloze of masked tokens and
        regret where it needs at most one pass for each position. The runs of a
        comparison do so with `compare.num_evals`.
      tasks: zero-shot tasks that every evaluation scores, for the learning curves, such
        as "blimp:FOLDER", as in `jaxpt evaluate --tasks`; by the first scoring rule of
        the network (`training.task_scores`).
      task_items: number of items of each, evenly spaced, and so the same at every step
        and for every run; 0: all.
      samples: number of held-out passages on which each evaluation shows what the model
        predicts (`jaxpt.runs.passage_samples`). No result depends on it. The runs
        of a comparison show their samples in the report.
    """

    SECTION: ClassVar[str] = "eval"

    num_rows: NonNegativeInt = 0
    batch_size: PositiveInt = 64
    probe_length: Annotated[int, Limits(least=1, most=MAX_LENGTH)] = 64
    probe_windows: PositiveInt = 1
    probe_passages: NonNegativeInt = 3000
    num_words: Annotated[int, Limits(least=2, other=0)] = 0
    word_context: Annotated[int, Limits(least=3, most=MAX_LENGTH)] = 16
    word_questions: PositiveInt = 20
    pair_questions: NonNegativeInt = 1000
    num_choices: Annotated[int, Limits(least=2, other=0)] = 0
    choice_questions: PositiveInt = 1000
    regret_documents: NonNegativeInt = 128
    regret_positions: PositiveInt = 8
    regret_bayes_documents: NonNegativeInt = 8
    probe_every_eval: bool = False
    tasks: Annotated[tuple[ScoredTask, ...], Length(is_distinct=True)] = ()
    task_items: NonNegativeInt = 200
    samples: Annotated[int, Limits(least=0, most=MAX_SAMPLES)] = 1


@dataclasses.dataclass(frozen=True)
class CompareSpec(Settings):
    """A comparison: its objectives and the cost that is equal for all of them.

    Attributes:
      objectives: names of objectives, or other names (letters, digits, "_", "-") with
        an `objective` in `overrides`, to compare one objective in several settings.
      seeds: every objective is trained with each; verdicts need at least four. Choose
        them before you see any result: adding seeds after a comparison without a
        significant difference raises the error rate of verdicts.
      earlier_seeds: seeds of the comparison that this one follows up, if any. `seeds`
        must be disjoint from them, so that these verdicts rest on new seeds only; with
        an `alpha` of at most half of 0.05 they may overlap.
      alpha: the family-wise error rate of verdicts and intervals. If several
        comparisons of the same objectives are planned, share 0.05 among them.
      control: the one of `objectives` that all others are compared with, for on/off
        comparisons: only pairs with it have verdicts, which share `alpha` among fewer.
        Choose it before you see any result. "": every two objectives are compared.
      controls: name -> the names among `objectives` that are its own controls, as
        `jaxpt compare --controls` adds them ({"multi_token": ("clm",)}). The report
        lists these pairs first; verdicts are the same.
      expected: outcomes that are registered before anything is trained, such as
        ("regret_left_to_right: clm > mlm",): clm will be ahead of mlm. "=" instead of
        ">" expects no significant difference. The report says which were found
        (`comparison.registration`).
      budget: what is equal for every run: "flops" (matrix products of the network and
        the optimizer, counted from sizes), "operations" (all that XLA counts of a step,
        `training.xla_flops`), "raw_tokens" or "seconds" (the clock of each run,
        `train.seconds`). With "steps" each objective trains for its train.steps, and
        costs are not matched. Every verdict is also given at equal FLOPs, operations,
        tokens and seconds, from learning curves.
      amount: of the budget; 0 if it is "steps".
      amounts: several amounts instead of one, rising. The runs of an objective and a
        seed share the steps before their decay (`optim.schedule=wsd`): the longest is
        the trunk, and the others branch from it (`jaxpt.training.branches`). Each
        amount has its own report, with an equal share of `alpha`.
      source_cost: the cost of a run that starts from another one (`train.init_from`):
        "added", its own, or "total", with that of its source and all runs before. Equal
        costs, also along learning curves, are by this count; reports state both.
      num_evals: evaluations of each run, evenly spaced over its cost (in whole calls),
        with the shared metrics, from which verdicts at other equal costs are read;
        0: as train.eval_every and eval.probe_every_eval.
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
      tune_until: "interior" extends the values of every objective by the same rule
        (`comparison.extending`): if a number of the best trial is the smallest or the
        largest value tried, the next value beyond it is tried, until a smaller and a
        larger one were tried. "": the listed or drawn trials only.
      tune_extensions: at most this many such trials for every objective.
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

    SECTION: ClassVar[str] = "compare"

    objectives: Annotated[tuple[str, ...], Length(1, is_distinct=True)] = COMPARED
    seeds: Seeds = (0, 1, 2, 3, 4)
    earlier_seeds: tuple[NonNegativeInt, ...] = ()
    alpha: InnerFraction = ALPHA
    control: str = ""
    controls: Annotated[dict, Rule(are_controls, CONTROLS)] = dataclasses.field(
        default_factory=dict
    )
    expected: Annotated[tuple[Expected, ...], Length(is_distinct=True)] = ()
    budget: Annotated[str, OneOf(*BUDGETS)] = "flops"
    amount: NonNegativeFloat = 0.0
    amounts: RisingAmounts = ()
    source_cost: Annotated[str, OneOf("added", "total")] = "added"
    num_evals: NonNegativeInt = 8
    overrides: Annotated[dict, Rule(are_overrides, OVERRIDES)] = dataclasses.field(
        default_factory=dict
    )
    tune: str = ""
    tune_trials: NonNegativeInt = 0
    tune_until: Annotated[str, OneOf("", "interior")] = ""
    tune_extensions: PositiveInt = 8
    tune_share: InnerFraction = 0.25
    tune_by: str = "valid_loss"
    tune_seed: NonNegativeInt = 1_000_000
    tune_fraction: InnerFraction = 0.1
    tasks: Annotated[tuple[TaskName, ...], Length(is_distinct=True)] = ()
    task_sizes: Annotated[tuple[NonNegativeInt, ...], Length(1, is_distinct=True)] = (
        0,
    )
    task_items: NonNegativeInt = 0
    task_settings: Annotated[dict, Rule(are_sections, SECTIONS)] = dataclasses.field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        known = OBJECTIVES
        for name in self.objectives:
            objective = self.overrides.get(name, {}).get("objective", name)
            is_own = name in known and objective == name
            is_new = name not in known and objective in known
            is_good = is_own or (is_new and bool(NAME.fullmatch(name)))
            allowed = (
                f"among {', '.join(known)}; or other names (letters, digits, _ "
                f"and -) whose compare.overrides.{name}.objective is among these"
                f"{suggest(objective, known)}"
            )
            self.check("objectives", is_good, allowed)
        allowed = f'one of compare.objectives={self.objectives}, or "" for all pairs'
        self.check("control", self.control in ("", *self.objectives), allowed)
        named = {*self.controls, *(n for each in self.controls.values() for n in each)}
        allowed = f"of names among compare.objectives={self.objectives}"
        self.check("controls", named <= {*self.objectives}, allowed)
        for expected in self.expected:
            names = parse_expected(expected)[1:]
            allowed = f"of two names among compare.objectives={self.objectives}"
            self.check("expected", {*names} <= {*self.objectives}, allowed)
        is_new = set(self.seeds).isdisjoint(self.earlier_seeds)
        allowed = (
            f"without those of compare.earlier_seeds={self.earlier_seeds}, or "
            f"compare.alpha={self.alpha:g} at most {ALPHA / 2:g} in each comparison"
        )
        is_good = is_new or self.alpha <= ALPHA / 2
        self.check("seeds", is_good, allowed)
        if self.amounts:
            self._check_amounts()
        else:
            is_good = (self.amount > 0) != (self.budget == "steps")
            self.check("amount", is_good, "above 0 (for budget=steps, exactly 0)")
        is_good = self.source_cost == "added" or self.budget != "steps"
        self.check("source_cost", is_good, "added for compare.budget=steps")
        self._check_tuning()

    def _check_amounts(self) -> None:
        self.check("amount", not self.amount, f"0 with compare.amounts={self.amounts}")
        allowed = f"() with compare.amounts={self.amounts}; register one budget alone"
        self.check("expected", not self.expected, allowed)
        allowed = f"added with compare.amounts={self.amounts}"
        self.check("source_cost", self.source_cost == "added", allowed)
        kinds = "flops", "operations", "raw_tokens"
        allowed = f"one of {', '.join(kinds)} with compare.amounts={self.amounts}"
        self.check("budget", self.budget in kinds, allowed)
        for name in ("", *self.overrides):
            tune, place = self.find_tune(name)
            if tune:
                raise ConfigError(
                    f"{place}={tune}: must be '' with compare.amounts={self.amounts}, "
                    f"whose runs share one trunk; tune at one amount first"
                )

    def list_trials(self, name: str) -> list[dict[str, Any]]:
        """The settings of a name's trials, by their full names; none if not tuned.

        >>> CompareSpec(amount=1, tune="optim.lr=1e-3,3e-3").list_trials("clm")
        [{'optim.lr': 0.001}, {'optim.lr': 0.003}]
        """
        text, place = self.find_tune(name)
        list_trials = load_place(f"{TRIALS}:list_trials")
        listed: list[dict[str, Any]] = list_trials(
            text, self.tune_trials, self.tune_seed, place
        )
        return listed

    def find_tune(self, name: str) -> tuple[str, str]:
        """The values to try for a name, as `tune` has them, and the setting's name."""
        section = self.overrides.get(name, {}).get("compare", {})
        if "tune" in section:
            return section["tune"], f"compare.overrides.{name}.compare.tune"
        return self.tune, "compare.tune"

    def _check_tuning(self) -> None:
        for name, sections in self.overrides.items():
            section = sections.get("compare", {})
            if section.keys() - {"tune"}:
                raise ConfigError(
                    f"compare.overrides.{name}.compare={section}: must have only "
                    f"tune; the other settings are the same for all"
                )
        is_good = self.tune_seed not in self.seeds
        self.check("tune_seed", is_good, f"none of compare.seeds={self.seeds}")
        for name in self.objectives:
            self.list_trials(name)
        has_range = load_place(f"{TRIALS}:has_range")
        is_good = self.tune_trials == 0 or any(
            has_range(*self.find_tune(name)) for name in self.objectives
        )
        allowed = "0 without a range such as optim.lr=1e-4..1e-2 in compare.tune"
        self.check("tune_trials", is_good, allowed)
