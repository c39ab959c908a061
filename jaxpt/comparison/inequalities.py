"""Lists the differences between separately trained runs, one sentence each.

A comparison keeps everything but the objectives equal. Separately trained runs may
differ in anything; the report lists the differences, and metrics that were measured on
different test examples get no verdict.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from jaxpt.comparison.naming import format_value, list_own_settings
from jaxpt.judge.examples import Examples
from jaxpt.report.metrics import METRICS
from jaxpt.runs.finished_runs import (
    FoundRun,
    is_same_text,
    is_same_tokenizer,
    number_alike,
)

Groups = Mapping[str, Sequence[FoundRun]]
# Settings whose effect another line of the list reports.
REPORTED_ELSEWHERE = {
    "data.row_length",
    "data.seq_len",
    "train.steps",
    "train.seconds",
    "model.vocab_size",
}
LABELS = {
    "train.batch_size": "batch size (train.batch_size)",
    "optim.lr": "learning rate (optim.lr)",
    "eval.num_rows": "validation rows (eval.num_rows, 0 is all)",
}
# Settings that select the test examples of a metric.
PROBE = ("eval.probe_length", "eval.probe_windows", "eval.probe_passages")
WORDS = ("eval.num_words", "eval.word_context", "eval.word_questions")
PAIRS = ("eval.pair_questions", "eval.word_context")
CHOICES = ("eval.num_choices", "eval.word_context", "eval.choice_questions")
ROWS = ("eval.num_rows",)


class Test(NamedTuple):
    """The conditions for two runs to have a metric on the same test examples.

    Attributes:
      settings: that must be equal.
      splits: whose text must be the same.
      reads_rows: whether rows must have the same length.
    """

    settings: tuple[str, ...]
    splits: tuple[str, ...]
    reads_rows: bool = False


TESTS = {
    "pair_accuracy": Test(PAIRS, ("train", "valid")),
    "pair_nats": Test(PAIRS, ("train", "valid")),
    "probe_accuracy": Test(PROBE, ("train", "valid")),
    "word_accuracy": Test(WORDS, ("train", "valid")),
    "choice_bayes_accuracy": Test(CHOICES, ("train", "valid")),
    "bits_per_byte": Test(ROWS, ("valid",), reads_rows=True),
    "cloze_accuracy": Test(ROWS, ("valid",), reads_rows=True),
    "cloze_bits": Test(ROWS, ("valid",), reads_rows=True),
}


class CostLabel(NamedTuple):
    """A cost of a run: its label and its number format."""

    label: str
    digits: str


COSTS = {
    "flops": CostLabel("FLOPs", ".4g"),
    "raw_tokens": CostLabel("raw tokens", ",.0f"),
    "steps": CostLabel("steps", ",.0f"),
    "train_seconds": CostLabel("seconds of training", ",.1f"),
}


def list_inequalities(groups: Groups) -> list[str]:
    """A sentence for each difference between the names.

    Args:
      groups: the runs of each name.
    """
    runs = [run for group in groups.values() for run in group]
    names = [name for name, group in groups.items() for _ in group]

    def differ(label: str, values: Iterable[str | None]) -> list[str]:
        return describe_difference(label, zip(names, values, strict=True))

    lines = [
        *_list_texts(names, runs),
        *differ("row length", (f"{run.result['row_length']} tokens" for run in runs)),
        *_list_costs(groups),
        *_list_parameters(groups),
        *_list_seeds(groups),
        *_list_settings(groups),
        *differ("device", (run.result.get("device") for run in runs)),
        *differ("version of jaxpt", (run.version for run in runs)),
    ]
    return [*lines, *_list_unjudged(groups)]


def describe_difference(
    label: str, pairs: Iterable[tuple[str, str | None]]
) -> list[str]:
    """The different values and the names that have each, unless all are equal.

    >>> describe_difference("rows", [("clm", "8"), ("mlm", "8"), ("electra", "16")])
    ['rows: 8 (clm, mlm); 16 (electra)']
    """
    by_value: dict[str, dict[str, None]] = {}
    for name, value in pairs:
        if value is not None:
            by_value.setdefault(value, {})[name] = None
    if len(by_value) < 2:
        return []
    values = "; ".join(f"{value} ({', '.join(of)})" for value, of in by_value.items())
    return [f"{label}: {values}"]


def _list_texts(names: list[str], runs: list[FoundRun]) -> list[str]:
    """The differences in the training text, the validation text and the tokenizer."""
    pairs = []
    for split, label in (("train", "training text"), ("valid", "validation text")):

        def is_alike(one: FoundRun, other: FoundRun, split: str = split) -> bool:
            return is_same_text(one, other, split)

        # Runs with the same text are listed with the path of the first of them.
        numbers = number_alike(runs, is_alike)
        firsts = [runs[numbers.index(number)] for number in numbers]
        texts = [_describe_text(run, split) for run in firsts]
        pairs += describe_difference(label, zip(names, texts, strict=True))
    tokenizers = [
        f"{run.settings['tokenizer.kind']} of {run.tokenizer.vocab.size:,} ids "
        f"(sha256 {run.tokenizer_sha256[:8]})"
        for run in runs
    ]
    return [
        *pairs,
        *describe_difference("tokenizer", zip(names, tokenizers, strict=True)),
    ]


def _describe_text(run: FoundRun, split: str) -> str:
    path = run.settings.get("data.path") or format_value(run.settings["data.mixture"])
    if split == "valid" and run.settings.get("data.valid_path"):
        path = run.settings["data.valid_path"]
    return f"{path} (sha256 {run.text.get(split, '')[:8]})"


def _list_costs(groups: Groups) -> list[str]:
    """A sentence for each cost that differs by more than one call of steps."""
    lines = []
    for key, cost in COSTS.items():
        if is_equal_cost(groups, key):
            continue
        means = mean_costs(groups, key)
        values = "; ".join(f"{mean:{cost.digits}} ({n})" for n, mean in means.items())
        ratio = max(means.values()) / max(min(means.values()), 1e-9)
        spread = f"; the most is {ratio:.2f} times the least" if ratio > 1.005 else ""
        lines.append(f"{cost.label}: {values}{spread}")
    return lines


def mean_costs(groups: Groups, key: str) -> dict[str, float]:
    """The mean cost of a run of each name, over its seeds."""
    return {
        name: sum(run.result[key] for run in group) / len(group)
        for name, group in groups.items()
    }


def is_equal_cost(groups: Groups, key: str) -> bool:
    """Whether the costs of all names differ by at most one call of steps."""
    costs = mean_costs(groups, key).values()
    a_call = max(
        run.result[key] / run.result["steps"] * run.settings["train.steps_per_call"]
        for group in groups.values()
        for run in group
    )
    return max(costs) - min(costs) <= a_call * (1 + 1e-9)


def _list_parameters(groups: Groups) -> list[str]:
    numbers = {name: group[0].result["params"] for name, group in groups.items()}
    pairs = [(name, f"{number:,}") for name, number in numbers.items()]
    ratio = max(numbers.values()) / max(min(numbers.values()), 1)
    lines = describe_difference("parameters", pairs)
    return [f"{line}; the most is {ratio:.2f} times the least" for line in lines]


def _list_seeds(groups: Groups) -> list[str]:
    pairs = [
        (name, ", ".join(str(run.seed) for run in group))
        for name, group in groups.items()
    ]
    lines = describe_difference("seeds", pairs)
    return [f"{line}; each is judged by its own seeds" for line in lines]


def _list_settings(groups: Groups) -> list[str]:
    """A sentence for each setting that differs between the names that have it."""
    by_name = {name: list_own_settings(group[0]) for name, group in groups.items()}
    known = dict.fromkeys(key for settings in by_name.values() for key in settings)
    lines = []
    for key in [*LABELS, *(key for key in known if key not in LABELS)]:
        if key in REPORTED_ELSEWHERE:
            continue
        pairs = [
            (name, format_value(settings[key]))
            for name, settings in by_name.items()
            if key in settings
        ]
        lines += describe_difference(LABELS.get(key, key), pairs)
    return lines


def find_tests(groups: Groups) -> dict[str, list[set[str]]]:
    """For each shared metric the sets of names measured on the same test examples.

    See `summary.summarise`. Names that were not measured are in no set.
    """
    tests: dict[str, list[set[str]]] = {}
    for metric in TESTS:
        names = [name for name, group in groups.items() if _has(group, metric)]
        runs = [groups[name][0] for name in names]

        def is_alike(one: FoundRun, other: FoundRun, metric: str = metric) -> bool:
            return not find_reason(metric, one, other)

        numbers = number_alike(runs, is_alike)
        sets: dict[int, set[str]] = {}
        for name, number in zip(names, numbers, strict=True):
            sets.setdefault(number, set()).add(name)
        tests[metric] = list(sets.values())
    return tests


def _has(group: Sequence[FoundRun], metric: str) -> bool:
    return any(run.result["metrics"].get(metric) is not None for run in group)


def find_reason(metric: str, one: FoundRun, other: FoundRun) -> str:
    """Why two runs were measured on different examples; "" if they were not."""
    test, reasons = TESTS[metric], []
    for key in test.settings:
        values = [run.settings[key] for run in (one, other)]
        if values[0] != values[1]:
            reasons.append(f"{key} is {values[0]} and {values[1]}")
    if not all(is_same_text(one, other, split) for split in test.splits):
        reasons.append("the text is not the same")
    lengths = [run.result["row_length"] for run in (one, other)]
    if test.reads_rows and lengths[0] != lengths[1]:
        reasons.append(f"rows have {lengths[0]} and {lengths[1]} tokens")
    if not is_same_tokenizer(one, other) and not _has_same_bytes(metric, one, other):
        note = ", and so do the predicted bytes" if metric == "bits_per_byte" else ""
        reasons.append(f"the tokenizers differ{note}")
    return ", ".join(reasons)


def _has_same_bytes(metric: str, one: FoundRun, other: FoundRun) -> bool:
    """Whether a likelihood covers the same bytes of each document.

    With another tokenizer, the test examples of all other metrics differ.
    """
    if metric != "bits_per_byte":
        return False
    counts = [_count_bytes(run.examples.get(metric)) for run in (one, other)]
    return counts[0] is not None and counts[0] == counts[1]


def _count_bytes(examples: Examples | None) -> dict[int, float] | None:
    """The weight of each document; None if no examples were stored."""
    if examples is None:
        return None
    counts: dict[int, float] = {}
    for document, weight in zip(examples.groups, examples.weights, strict=True):
        counts[int(document)] = counts.get(int(document), 0.0) + float(weight)
    return counts


def _list_unjudged(groups: Groups) -> list[str]:
    """A sentence for each metric whose test examples differ between names."""
    lines = []
    for metric, sets in find_tests(groups).items():
        if len(sets) < 2:
            continue
        first = [next(name for name in groups if name in names) for names in sets]
        reasons = dict.fromkeys(
            find_reason(metric, groups[first[0]][0], groups[name][0])
            for name in first[1:]
        )
        listed = " and ".join(
            ", ".join(name for name in groups if name in names) for names in sets
        )
        lines.append(
            f"no verdict on {METRICS[metric].label} between {listed}: "
            f"{'; '.join(reasons)}"
        )
    return lines
