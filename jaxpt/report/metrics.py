"""The metrics of a report: labels, tasks, and how their values compare."""

from typing import NamedTuple

from jaxpt.report.formats import format_count, format_flops


class Metric(NamedTuple):
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
    "pair_accuracy": Metric(
        *("bigram-matched cloze", ".3f", True, True, 0.01),
        "bigrams on both sides",
        "The model chooses which of two candidate tokens was removed from a held-out "
        "text. Bigrams find both equally likely, so their accuracy is 0.5 (chance).",
    ),
    "pair_nats": Metric(
        *("bigram-matched cloze, log score in nats", ".3f", False, True, 0.01),
        "bigrams on both sides",
        "The same questions: -log of the probability that the model gives to the true "
        "candidate. That of bigrams is log 2 = 0.693 (chance).",
    ),
    "probe_accuracy": Metric(
        *("linear probe on frozen features", ".3f", True, True, 0.01),
        "a bag of n-grams",
        "Logistic regression on frozen hidden states predicts the label of a held-out "
        "passage.",
        1.0,
    ),
    "choice_bayes_accuracy": Metric(
        *("multiple-choice cloze", ".3f", True, True, 0.01),
        "bigrams on both sides",
        "The model chooses which of N candidate tokens was removed from a held-out "
        "text.",
        1.0,
    ),
    "word_accuracy": Metric(
        *("masked-word probe", ".3f", True, True, 0.01),
        "naive Bayes on the neighbouring tokens",
        "Logistic regression on frozen hidden states predicts a masked word of a "
        "held-out text.",
        1.0,
    ),
    "bits_per_byte": Metric(
        *("bits per byte", ".3f", False, True, 0.01),
        description="The negative log-likelihood of held-out text; measured for "
        "models that have an exact likelihood.",
    ),
    "cloze_accuracy": Metric(
        *("cloze accuracy, masked tokens", ".3f", True, True, 0.01),
        description="The model predicts masked tokens of held-out text.",
        span=1.0,
    ),
    "cloze_bits": Metric(
        *("cloze, bits per masked token", ".3f", False, True, 0.05),
        description="The negative log-likelihood of masked tokens of held-out text.",
    ),
    "valid_loss": Metric("validation loss", ".3f", False, False),
    "valid_accuracy": Metric("validation accuracy", ".3f", True, False),
    "valid_masked_accuracy": Metric("validation masked accuracy", ".3f", True, False),
    "val_perplexity": Metric("validation perplexity", ".1f", False, False),
    "masked_accuracy": Metric("masked accuracy, own masks", ".3f", True, False),
    "masked_top5_accuracy": Metric(
        *("masked accuracy in the top 5, own masks", ".3f", True, False)
    ),
}

# The columns of the tables of costs and of results: title, and format of a number.
COSTS = {
    "params": ("params", format_count),
    "steps": ("steps", "{:,.0f}".format),
    "raw_tokens": ("raw tokens", format_count),
    "flops": ("FLOPs", format_flops),
    "operations": ("operations", format_flops),
    "train_seconds": ("seconds", "{:,.1f}".format),
}

RESULTS = {
    "pair_accuracy": "matched cloze",
    "pair_nats": "its nats",
    "probe_accuracy": "probe accuracy",
    "probe_accuracy_random": "random init",
    "choice_bayes_accuracy": "cloze choice",
    "choice_bayes_accuracy_random": "random init",
    "word_accuracy": "masked word",
    "word_accuracy_random": "random init",
    "bits_per_byte": "bits/byte",
    "bits_per_byte_bound": "bits/byte at most",
    "cloze_accuracy": "cloze",
    "valid_loss": "validation loss",
}


def list_cost_columns(runs: list[dict]) -> dict:
    """`COSTS` without those that no run has: operations if no text was found."""
    return {key: of for key, of in COSTS.items() if any(key in run for run in runs)}


def list_metrics(runs: list[dict]) -> dict[str, Metric]:
    """All metrics by name: those of every report, then the runs' downstream tasks.

    Args:
      runs: entries of a report's `runs`; a run's downstream tasks are in its `tasks`
        (`jaxpt.comparison.compared_tasks`).
    """
    downstream = {
        task["metric"]: Metric(
            task["label"],
            ".3f",
            task["higher_is_better"],
            True,
            task["margin"],
            task["reference"],
            span=task.get("span"),
        )
        for run in runs
        for task in run.get("tasks", [])
    }
    return METRICS | downstream
