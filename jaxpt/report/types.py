"""A report's data: what report.json holds, as frozen dataclasses.

    Report         a comparison, or finished runs that were trained separately
      Budget       the cost that is held equal
      RunEntry     result.json of a run with its costs; Point of its learning curve
      Diverged     a run without a result
      Metric       all objectives on one metric: Mean over seeds, Verdict of pairs with
                   its CostRatio
      Conventions  the costs at which verdicts are also given (CostLevel)
      WholeCost    the verdicts with teachers and tuning
      Tuning       the trials of an objective
      KnownTruth   floors and baselines of text with exact answers
      Registration expected outcomes, and which of them were found
      Budgets      the means and leaders at each of several budgets (BudgetLevel)

`Report.from_json` reads what `Report.to_json` writes. The file has no number of its
format: format 1 is a file without one, and any other is refused.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from jaxpt.errors import CheckpointError
from jaxpt.files.stored import Stored, rest, to_plain

FORMAT = 1
Groups = Mapping[str, list["RunEntry"]]  # the runs of each name, in a report's order


@dataclasses.dataclass(frozen=True)
class Budget(Stored):
    """The cost that every run has: FLOPs, seconds, tokens, operations or steps."""

    kind: str
    amount: float
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Point(Stored):
    """An evaluation during training: the costs so far and the metrics there."""

    step: int
    values: dict[str, float | None] = rest()


@dataclasses.dataclass(frozen=True)
class Downstream(Stored):
    """A downstream task of a run (`jaxpt.comparison.compared_tasks`).

    Attributes:
      measure, constant, num_labels: of a task with fine-tuning.
      other: "span", the largest difference of two values, among others.
    """

    metric: str
    label: str
    higher_is_better: bool
    margin: float
    reference: str
    task: str = ""
    title: str = ""
    measure: str = ""
    num_labels: int | None = None
    constant: float | None = None
    other: dict[str, Any] = rest()


@dataclasses.dataclass(frozen=True)
class Probe(Stored):
    """The layer that a probe read (`jaxpt.evaluation.probe`)."""

    layer: int
    num_layers: int
    pooling: str
    is_chosen: bool
    test_passages: int = 0
    poolings: tuple[str, ...] = ()
    accuracies: tuple[tuple[float | None, ...], ...] | None = None
    other: dict[str, Any] = rest()


@dataclasses.dataclass(frozen=True)
class RunEntry(Stored):
    """A finished run.

    Attributes:
      facts: its costs and other columns of its result.json (`report.costs`).
      parts: by metric, the part of its network that is measured, if only a part.
      probe: by "trained" and "untrained".
    """

    name: str
    objective: str
    seed: int
    facts: dict[str, Any] = rest()
    metrics: dict[str, float | None] = dataclasses.field(default_factory=dict)
    workdir: str = ""
    curve: tuple[Point, ...] = ()
    parts: dict[str, str] = dataclasses.field(default_factory=dict)
    tasks: tuple[Downstream, ...] = ()
    probe: dict[str, Probe] = dataclasses.field(default_factory=dict)

    def cost(self, key: str) -> Any:
        """A cost by its name in report.json, such as "flops"; None if it has none."""
        return self.facts.get(key)


@dataclasses.dataclass(frozen=True)
class Diverged(Stored):
    """A run whose loss was not finite, at the step `diverged_at`."""

    name: str
    seed: int
    diverged_at: int
    reason: str
    workdir: str = ""
    facts: dict[str, Any] = rest()


@dataclasses.dataclass(frozen=True)
class Mean(Stored):
    """The mean over seeds.

    Attributes:
      std: the sample standard deviation; None of one seed.
      low, high: of the mean's interval, simultaneous for all means of shared metrics;
        None if it is not known, such as with too few seeds.
    """

    mean: float | None
    std: float | None
    n: int
    low: float | None = None
    high: float | None = None


@dataclasses.dataclass(frozen=True)
class CostRatio(Stored):
    """The cost that `worse` of a pair needs for the quality, over that of `better`.

    Attributes:
      value: the estimate; the end of the curves if it is beyond them.
      basis: "curves" within runs, or "budgets", of which each is a separate run.
      low, high: of the simultaneous interval; None beyond the curves.
      least, most: what the curves can show.
      is_beyond: the estimate is more than `value` = `most`, or less than it = `least`.
    """

    value: float
    basis: str
    low: float | None
    high: float | None
    least: float
    most: float
    is_beyond: bool = False


@dataclasses.dataclass(frozen=True)
class Verdict(Stored):
    """A difference of two objectives, or of an objective and a baseline, with its test.

    Attributes:
      outcome: "ahead" (`better` is significantly better), "tie", "equivalent" (the
        interval is within the margin), "untested" (too few seeds); of a bound, "open".
      low, high: of the simultaneous interval; None if it has no end.
      at_most: the largest difference that the interval includes.
      p: adjusted for the family.
      documents: of the test text; `blocks` if they are blocks of a single one.
      seeds_needed: of a new comparison.
      under: by convention of cost, the outcome as seen from `better`: those above or
        "behind"; None if one of the two has no value there.
      ratios: by convention of cost, those that are known (`jaxpt.report.ratios`).
    """

    better: str
    worse: str
    outcome: str
    difference: float | None
    low: float | None = None
    high: float | None = None
    at_most: float | None = None
    p: float = 1.0
    seeds: int = 0
    documents: int = 0
    blocks: bool = False
    seeds_error: float | None = None
    examples_error: float = 0.0
    seeds_needed: int | None = None
    under: dict[str, str | None] | None = None
    ratios: dict[str, CostRatio] | None = None

    def to_json(self) -> dict[str, Any]:
        """Every part, of those by convention of cost the ones that there are."""
        value = to_plain(dataclasses.asdict(self))
        some = ("under", "ratios")
        return {k: v for k, v in value.items() if k not in some or v is not None}

    @property
    def names(self) -> tuple[str, str]:
        """Both sides, the better one first."""
        return self.better, self.worse

    @property
    def is_same(self) -> bool:
        """Whether the two do not differ significantly."""
        return self.outcome in ("tie", "equivalent")

    def other(self, name: str) -> str:
        """The side that is not `name`."""
        return self.worse if self.better == name else self.better


@dataclasses.dataclass(frozen=True)
class Metric(Stored):
    """A metric of all objectives, with the verdicts on it if it is shared.

    Attributes:
      label, format, ..., span: of its definition (`report.metrics.MetricInfo`).
      metric: its name.
      parts: by name, the part of its network that is measured, if only a part.
      pairs: every two objectives, or the control and each other one.
      bounds: objectives of which only an upper bound is known (`jaxpt.judge.bounds`).
      warnings: values that are unsuitable for the test (`jaxpt.judge.assumptions`).
      verdict: which objectives the best one is ahead of, and what follows from bounds;
        "" if it is not shared or was measured for one objective.
      detectable: the smallest and the largest true difference of a pair that is found
        with a probability of 0.8; None if no pair was tested.
    """

    label: str
    format: str
    higher_is_better: bool
    is_common: bool
    margin: float
    reference: str
    description: str
    span: float | None
    metric: str
    by_name: dict[str, Mean]
    parts: dict[str, str]
    pairs: tuple[Verdict, ...]
    baselines: tuple[Verdict, ...]
    warnings: tuple[str, ...]
    verdict: str
    bounds: tuple[Verdict, ...] = ()
    control: str = ""
    detectable: tuple[float, ...] | None = None

    def rank(self) -> list[str]:
        """The names that it was measured for, the best mean first."""
        sign = -1 if self.higher_is_better else 1
        means = {name: stats.mean or 0.0 for name, stats in self.by_name.items()}
        return sorted(means, key=lambda name: (sign * means[name], name))

    def list_verdicts(self) -> list[Verdict]:
        """All of them: of two objectives, of bounds and of baselines."""
        return [*self.pairs, *self.bounds, *self.baselines]


@dataclasses.dataclass(frozen=True)
class CostLevel(Stored):
    """An equal cost under one convention.

    Attributes:
      read: by name, the share of its run at which it is read; 1 is the end.
      per_operation: of seconds, by name.
      num_tested: the number of pairs that share the error rate there.
    """

    amount: float
    read: dict[str, float]
    per_operation: dict[str, float] | None = None
    num_tested: int = 0


@dataclasses.dataclass(frozen=True)
class Conventions(Stored):
    """The verdicts at equal FLOPs, operations, tokens and seconds.

    Attributes:
      budget: the convention of the budget; "" if there is none.
      costs: by convention.
    """

    budget: str
    costs: dict[str, CostLevel]
    lines: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class WholeCost(Stored):
    """The verdicts at equal cost including teachers and tuning.

    Attributes:
      amount: the total cost.
      extra: by name, the cost in addition to the run; None if it is unknown.
      read: by name, the share of the run at which it is evaluated.
      lines: all of it in sentences.
    """

    kind: str
    lines: tuple[str, ...]
    amount: float | None = None
    extra: dict[str, float | None] | None = None
    read: dict[str, float] | None = None
    metrics: tuple[Metric, ...] | None = None


@dataclasses.dataclass(frozen=True)
class Trial(Stored):
    """A trial of a tuning: its settings and its value, None if it diverged."""

    settings: dict[str, Any]
    value: float | None
    other: dict[str, Any] = rest()


@dataclasses.dataclass(frozen=True)
class Tuning(Stored):
    """The trials of an objective (`jaxpt.comparison.tuning.tune`).

    Attributes:
      by: the metric that chooses.
      at_edge: the settings whose best value is the least or the greatest tried.
      at_limit: those of them that have no further value there.
      drawn: the distribution of the settings; "" for a grid.
      until: "interior" if the values were extended.
      other: the costs of all trials.
    """

    by: str
    chosen: dict[str, Any]
    trials: tuple[Trial, ...]
    at_edge: tuple[str, ...]
    at_limit: tuple[str, ...] | None = None
    drawn: str | None = None
    until: str | None = None
    other: dict[str, Any] = rest()


@dataclasses.dataclass(frozen=True)
class Samples(Stored):
    """What a network writes: by form, the (text, kind, truth) of each passage."""

    seed: int
    forms: dict[str, tuple[tuple[tuple[str, ...], ...], ...]]


@dataclasses.dataclass(frozen=True)
class KnownTruth(Stored):
    """What is exact about the text of a language (`jaxpt.evaluation.regret`).

    Attributes:
      floors: by question, the mean entropy of the exact answers, in nats.
      uniform: ln V, the entropy of the uniform distribution.
      anchors: by question, the regret of each baseline without training.
      lines: all of it in sentences, and how each objective answers.
      chances: of a task, the chance level of each metric of its answers.
    """

    floors: dict[str, float]
    uniform: float
    anchors: dict[str, dict[str, float]]
    lines: tuple[str, ...]
    chances: dict[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Registration(Stored):
    """What was expected before anything was trained (`jaxpt.comparison.registration`).

    Attributes:
      text: of registration.json.
      sha256: of the text.
      outcomes: by expected outcome, whether it was found.
      lines: all of it in sentences.
    """

    text: str
    sha256: str
    outcomes: dict[str, str]
    lines: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Standing(Stored):
    """A shared metric in the report of one of several budgets.

    Attributes:
      ahead: the name that is ahead of all others, or those that are of the control.
      lead: whom the best one is ahead of, in words.
    """

    label: str
    format: str
    by_name: dict[str, Mean]
    ahead: tuple[str, ...] = ()
    lead: str = ""


@dataclasses.dataclass(frozen=True)
class BudgetLevel(Stored):
    """One of several budgets.

    Attributes:
      page: its report, relative to this one's folder.
      metrics: the shared metrics by name.
    """

    amount: float
    page: str
    metrics: dict[str, Standing]


@dataclasses.dataclass(frozen=True)
class Budgets(Stored):
    """The budgets of a comparison with `compare.amounts`, rising.

    Attributes:
      spent: by kind, the cost of all runs, in which shared steps count once.
      separate: that of the same runs without shared steps.
    """

    levels: tuple[BudgetLevel, ...]
    spent: dict[str, float]
    separate: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Report(Stored):
    """Everything that report.json holds.

    Attributes:
      config: of a comparison, or the settings that runs share and do not share.
      data: facts about the text.
      notes: how costs and values were counted, by subject.
      figures: file names, relative to the report's folder.
      reliability: by metric, how well it ranks objectives (`jaxpt.judge.reliability`).
      seeds_note: when the seeds were chosen.
      inequalities: of runs that were trained separately, a sentence each.
      gates: warnings before the verdicts (`jaxpt.comparison.gates`).
      known_truth: of text of a language with exact answers.
      registration: what was expected before anything was trained.
      budgets: of a comparison at several budgets, of which this is the largest.
    """

    title: str
    created: str
    version: str
    config: dict[str, Any]
    budget: Budget
    data: dict[str, Any]
    runs: tuple[RunEntry, ...]
    alpha: float
    metrics: tuple[Metric, ...]
    notes: dict[str, Any]
    figures: dict[str, str]
    control: str = ""
    diverged: tuple[Diverged, ...] = ()
    reliability: dict[str, float] | None = None
    conventions: Conventions | None = None
    whole_cost: WholeCost | None = None
    seeds_note: str = ""
    tuning: dict[str, Tuning] | None = None
    inequalities: tuple[str, ...] | None = None
    left_out: tuple[str, ...] | None = None
    samples: dict[str, Samples] | None = None
    gates: tuple[str, ...] = ()
    known_truth: KnownTruth | None = None
    registration: Registration | None = None
    budgets: Budgets | None = None

    @classmethod
    def from_json(cls, value: Any, place: str = "") -> Self:
        """Reads the content of report.json.

        Raises:
          ValueError: it is of another format, or a value does not have its type.
        """
        found = value.get("format", FORMAT) if isinstance(value, dict) else FORMAT
        if found != FORMAT:
            raise ValueError(f"format is {found!r}; this version reads {FORMAT}")
        return super().from_json(value, place)

    def list_shared(self) -> list[Metric]:
        """The shared metrics that were measured for any objective."""
        return [each for each in self.metrics if each.is_common and each.by_name]

    @property
    def groups(self) -> dict[str, list[RunEntry]]:
        """The runs by their name."""
        return group_by_name(self.runs)


R = TypeVar("R", RunEntry, Diverged)


def load_report(path: Path, hint: str) -> Report:
    """Reads report.json.

    Args:
      hint: the advice in the error about a missing or unreadable file.
    """
    from jaxpt.files.folder import load_json  # imports JAX

    value = load_json(path, object, hint)
    try:
        return Report.from_json(value)
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}; {hint}") from None


def read_runs(entries: Iterable[Mapping[str, Any]]) -> list[RunEntry]:
    """Runs from a report's entries; a number that is not finite is None."""
    return [RunEntry.from_json(to_plain(entry)) for entry in entries]


def group_by_name(runs: Iterable[R]) -> dict[str, list[R]]:
    """Runs by their name in the comparison, in order of first appearance."""
    groups: dict[str, list[R]] = {}
    for run in runs:
        groups.setdefault(run.name, []).append(run)
    return groups
