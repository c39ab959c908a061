"""The metrics of a report: labels, tasks, how values compare, how well they rank."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from jaxpt.judge.bounds import SUFFIX
from jaxpt.judge.examples import Examples
from jaxpt.judge.reliability import LEAST, split_half
from jaxpt.report.formats import format_count, format_flops, separate
from jaxpt.report.types import Report, RunEntry, group_by_name
from jaxpt.zero_shot.names import CURVE_PREFIX, is_curve


class MetricInfo(NamedTuple):
    """A metric's label, its number format, and how its values compare.

    Attributes:
      higher_is_better: whether a larger value is the better one.
      is_common: whether it is a shared metric: the same task for every objective.
      margin: two objectives are equivalent if their difference is within it.
      reference: a baseline without a network other than token frequencies
        (`jaxpt.evaluation.references`).
      description: the task, in a sentence.
      span: the largest difference that two values can have, such as 1 for shares; None
        if there is none. Intervals of differences are clipped to it.
    """

    label: str
    format: str
    higher_is_better: bool
    is_common: bool
    margin: float = 0.0
    reference: str = ""
    description: str = ""
    span: float | None = None


# The shared metrics, then those of each objective's own task.
METRICS = {
    "pair_accuracy": MetricInfo(
        *("bigram-matched cloze", ".3f", True, True, 0.01),
        "bigrams on both sides",
        "The model chooses which of two candidate tokens was removed from a held-out "
        "text. Bigrams find both equally likely, so their accuracy is 0.5 (chance).",
    ),
    "pair_nats": MetricInfo(
        *("bigram-matched cloze (nats)", ".3f", False, True, 0.01),
        "bigrams on both sides",
        "The same questions: -log of the probability that the model gives to the true "
        "candidate. That of bigrams is log 2 = 0.693 (chance).",
    ),
    "regret_left_to_right": MetricInfo(
        *("left-to-right regret (nats)", ".4f", False, True, 0.01),
        "the exact trigram",
        "The mean divergence KL(p, q) of the model's distribution q of a token, given "
        "those before it, from the exact one p of the language. 0 is perfect.",
    ),
    "regret_two_sided": MetricInfo(
        *("two-sided regret (nats)", ".4f", False, True, 0.01),
        "the exact table of both neighbours",
        "The same for a token given all others, of models that answer directly.",
    ),
    "answer_accuracy": MetricInfo(
        *("whole answers", ".3f", True, True, 0.01),
        description="The share of a task's answers that the model writes without an "
        "error, greedily.",
        span=1.0,
    ),
    "probe_accuracy": MetricInfo(
        *("linear probe on frozen features", ".3f", True, True, 0.01),
        "a bag of n-grams",
        "Logistic regression on frozen hidden states predicts the label of a held-out "
        "passage.",
        1.0,
    ),
    "choice_bayes_accuracy": MetricInfo(
        *("multiple-choice cloze", ".3f", True, True, 0.01),
        "bigrams on both sides",
        "The model chooses which of N candidate tokens was removed from a held-out "
        "text.",
        1.0,
    ),
    "word_accuracy": MetricInfo(
        *("masked-word probe", ".3f", True, True, 0.01),
        "naive Bayes on the neighbouring tokens",
        "Logistic regression on frozen hidden states predicts a masked word of a "
        "held-out text.",
        1.0,
    ),
    "bits_per_byte": MetricInfo(
        *("bits per byte", ".3f", False, True, 0.01),
        description="The negative log-likelihood of held-out text; measured for "
        "models that have an exact likelihood.",
    ),
    "cloze_accuracy": MetricInfo(
        *("cloze accuracy on masked tokens", ".3f", True, True, 0.01),
        description="The model predicts masked tokens of held-out text.",
        span=1.0,
    ),
    "cloze_bits": MetricInfo(
        *("cloze bits per masked token", ".3f", False, True, 0.05),
        description="The negative log-likelihood of masked tokens of held-out text.",
    ),
    "regret_two_sided_bayes": MetricInfo(
        *("two-sided regret by Bayes' rule (nats)", ".4f", False, False)
    ),
    "regret_two_sided_generator": MetricInfo(
        *("two-sided regret of the generator (nats)", ".4f", False, False)
    ),
    "regret_own_masks": MetricInfo(
        *("regret under own masks (nats)", ".4f", False, False)
    ),
    "second_token_accuracy": MetricInfo(
        *("second token of answers", ".3f", True, False), span=1.0
    ),
    "special_mass_regret_left_to_right": MetricInfo(
        *("left-to-right mass on special tokens", ".4f", False, False)
    ),
    "special_mass_regret_two_sided": MetricInfo(
        *("two-sided mass on special tokens", ".4f", False, False)
    ),
    "special_mass_regret_two_sided_generator": MetricInfo(
        *("the generator's mass on special tokens", ".4f", False, False)
    ),
    "valid_loss": MetricInfo("validation loss", ".3f", False, False),
    "valid_accuracy": MetricInfo("validation accuracy", ".3f", True, False),
    "valid_masked_accuracy": MetricInfo(
        "validation masked accuracy", ".3f", True, False
    ),
    "val_perplexity": MetricInfo("validation perplexity", ".1f", False, False),
    "masked_accuracy": MetricInfo("masked accuracy (own masks)", ".3f", True, False),
    "masked_top5_accuracy": MetricInfo(
        *("masked accuracy in the top 5 (own masks)", ".3f", True, False)
    ),
}


def find_metric(name: str) -> MetricInfo:
    """A metric of `METRICS`, or that of a task of `eval.tasks`, which only has curves.

    >>> find_metric("zero_shot_blimp_accuracy").label
    'blimp accuracy (zero-shot, a sample)'
    """
    if not is_curve(name):
        return METRICS[name]
    words = name.removeprefix(CURVE_PREFIX).replace("_", " ")
    label = f"{words} (zero-shot, a sample)"
    return MetricInfo(label, ".3f", "perplexity" not in name, True)


# The columns of the tables of costs and of results: title, and format of a number.
COSTS = {
    "params": ("params", format_count),
    "steps": ("steps", "{:,.0f}".format),
    "raw_tokens": ("raw tokens", format_count),
    "flops": ("FLOPs", format_flops),
    "operations": ("operations", format_flops),
    "train_seconds": ("seconds", "{:,.1f}".format),
}

# Metrics that are not shared and that the table of results has, too.
OTHER_RESULTS = (
    *("regret_two_sided_bayes", "regret_own_masks", "second_token_accuracy"),
    "valid_loss",
)


def list_cost_columns(runs: Iterable[RunEntry]) -> dict[str, tuple]:
    """`COSTS` without those that no run has: operations if no text was found."""
    known = {key for run in runs for key in run.facts}
    return {key: column for key, column in COSTS.items() if key in known}


def list_result_columns(runs: Sequence[RunEntry]) -> dict[str, str]:
    """The metrics of the table of results that any run has, with their labels.

    Those are the shared ones, each with its upper bound, and `OTHER_RESULTS`.
    """
    labels: dict[str, str] = {}
    for name, metric in list_metrics(runs).items():
        if metric.is_common or name in OTHER_RESULTS:
            labels |= {name: metric.label, name + SUFFIX: f"{metric.label} at most"}
    measured = {name for run in runs for name in run.metrics}
    return {name: label for name, label in labels.items() if name in measured}


def list_metrics(runs: Iterable[RunEntry]) -> dict[str, MetricInfo]:
    """All metrics by name: those of every report, then the runs' downstream tasks."""
    downstream = {
        task.metric: MetricInfo(
            task.label,
            ".3f",
            task.higher_is_better,
            True,
            task.margin,
            task.reference,
            span=task.other.get("span"),
        )
        for run in runs
        for task in run.tasks
    }
    return METRICS | downstream


def measure_reliability(
    runs: Sequence[RunEntry], examples: Mapping[tuple[str, int], Mapping[str, Examples]]
) -> dict[str, float]:
    """By shared metric, the correlation of halves of the test text (`split_half`).

    Args:
      examples: by (name, seed) and metric.
    """
    reliability: dict[str, float] = {}

    def known(run: RunEntry) -> Mapping[str, Examples]:
        return examples.get((run.name, run.seed), {})

    groups = group_by_name(runs)
    for name, metric in list_metrics(runs).items():
        if not metric.is_common:
            continue
        by_name = {
            n: [x[name] for run in of if name in (x := known(run))]
            for n, of in groups.items()
        }
        value = split_half({n: found for n, found in by_name.items() if found})
        if value is not None:
            reliability[name] = value
    return reliability


def _list_labelled(report: Report) -> list[tuple[str, float]]:
    """The label and the reliability of each metric that has one."""
    values = report.reliability or {}
    labels = {metric.metric: metric.label for metric in report.metrics}
    return [(labels[m], value) for m, value in values.items() if m in labels]


def list_reliability(report: Report) -> list[str]:
    """A line on all metrics."""
    items = [f"{label} {value:.3f}" for label, value in _list_labelled(report)]
    if not items:
        return []
    return [
        f"reliability (correlation of the objectives' means on two halves of the test "
        f"text): {separate(items).join(items)}"
    ]


def list_unreliable(report: Report) -> list[str]:
    """A line for each metric that cannot rank the objectives."""
    return [
        f"WARNING: {label} cannot rank: reliability {value:.3f}, below {LEAST}"
        for label, value in _list_labelled(report)
        if value < LEAST
    ]
