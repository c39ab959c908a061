"""The summary of a comparison: statistics over seeds, verdicts, the terminal's table.

Objectives share their data and their budget, not their losses. So verdicts are given
only on shared metrics (`jaxpt.statistics.verdicts`).
"""

import math
import statistics
import textwrap
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxpt.report.baselines import (
    FREQUENCY,
    FREQUENCY_SUFFIX,
    REFERENCE,
    UNTRAINED,
    find_parts,
    list_baselines,
    with_parts,
)
from jaxpt.report.costs import list_costs, tabulate_extras
from jaxpt.report.diverged import add_to_tables, list_diverged, word_left_out
from jaxpt.report.formats import format_count, format_flops
from jaxpt.report.grouping import MISSING, group_by_name
from jaxpt.report.probed_layers import list_probed
from jaxpt.report.samples import list_samples
from jaxpt.report.wording import describe_pair, word_verdict
from jaxpt.statistics import verdicts
from jaxpt.statistics.assumptions import check_seeds
from jaxpt.statistics.bounds import SUFFIX, open_bounds, pair_bounds, word_bounds
from jaxpt.statistics.examples import Examples
from jaxpt.statistics.verdicts import Pair, Results

WIDTH = 100


class Yardstick(NamedTuple):
    """A metric's label, its number format, and how its values compare.

    Attributes:
      higher_is_better: whether a larger value is the better one.
      is_common: whether values of different objectives may be compared.
      margin: objectives whose difference is surely smaller than that are equivalent.
      reference: a baseline without a network other than token frequencies
        (`jaxpt.evaluation.references`).
    """

    label: str
    format: str
    higher_is_better: bool
    is_common: bool
    margin: float = 0.0
    reference: str = ""


NGRAMS = "a bag of n-grams"
BIGRAMS = "bigrams on both sides"
BESIDE = "naive Bayes on the tokens beside it"
Found = tuple[dict[int, float], dict[int, Examples]]
# A common yardstick evaluates every objective on the same task; an objective's own
# validation loss does not.
YARDSTICKS = {
    "probe_accuracy": Yardstick(
        "linear probe on frozen features", ".3f", True, True, 0.01, NGRAMS
    ),
    "choice_bayes_accuracy": Yardstick(
        "choice among tokens for a gap", ".3f", True, True, 0.01, BIGRAMS
    ),
    "word_accuracy": Yardstick(
        "hidden word, read linearly", ".3f", True, True, 0.01, BESIDE
    ),
    "bits_per_byte": Yardstick("bits per byte", ".3f", False, True, 0.01),
    "cloze_accuracy": Yardstick(
        "cloze accuracy, masked tokens", ".3f", True, True, 0.01
    ),
    "cloze_bits": Yardstick("cloze, bits per masked token", ".3f", False, True, 0.05),
    "valid_loss": Yardstick("validation loss", ".3f", False, False),
    "valid_accuracy": Yardstick("validation accuracy", ".3f", True, False),
    "val_perplexity": Yardstick("validation perplexity", ".1f", False, False),
    "heldout_top1": Yardstick("held-out mask accuracy, top 1", ".3f", True, False),
    "heldout_top5": Yardstick("held-out mask accuracy, top 5", ".3f", True, False),
}

# By metric of an earlier version, the one that replaced it: another task, so its values
# are in the tables of runs and in no verdict.
RETIRED = {"choice_accuracy": "choice_bayes_accuracy"}

COSTS = {
    "params": ("params", format_count),
    "steps": ("steps", "{:,.0f}".format),
    "raw_tokens": ("raw tokens", format_count),
    "flops": ("FLOPs", format_flops),
    "train_seconds": ("seconds", "{:,.1f}".format),
}

RESULTS = {
    "probe_accuracy": "probe accuracy",
    "probe_accuracy_random": "random init",
    "choice_bayes_accuracy": "choice",
    "choice_bayes_accuracy_random": "untrained",
    "word_accuracy": "hidden word",
    "word_accuracy_random": "random init",
    "bits_per_byte": "bits/byte",
    "bits_per_byte_bound": "bits/byte at most",
    "cloze_accuracy": "cloze",
    "valid_loss": "validation loss",
}
WRITE = "{:.3f}".format


def list_yardsticks(runs: list[dict]) -> dict[str, Yardstick]:
    """By metric, every yardstick: those that all runs have, then the runs' own tasks.

    Args:
      runs: entries of a report's `runs`; the tasks that were put to one are in `tasks`
        (`jaxpt.comparison.compared_tasks`).
    """
    own = {
        task["metric"]: Yardstick(
            task["label"],
            ".3f",
            task["higher_is_better"],
            True,
            task["margin"],
            task["reference"],
        )
        for run in runs
        for task in run.get("tasks", [])
    }
    return YARDSTICKS | own


def summarise(
    runs: list[dict],
    examples: Mapping[tuple[str, int], Mapping[str, Examples]] | None = None,
    references: Mapping[str, Mapping[str, Examples]] | None = None,
    tests: Mapping[str, list[set[str]]] | None = None,
    alpha: float = verdicts.ALPHA,
) -> list[dict]:
    """The mean and standard deviation over seeds of every yardstick, and verdicts.

    Args:
      runs: entries of a report's `runs`; a metric that is absent, None or not finite is
        left out.
      examples: of each (name, seed), by metric, what a value is the mean of. Only with
        them do the intervals say how other test examples might differ.
      references: of each name, by metric, the baselines without a network; that of
        token frequencies has the metric's name and `FREQUENCY_SUFFIX`.
      tests: by metric, the names in sets that were measured on the same test examples,
        each name in one; only those of one set are judged against each other. A metric
        that is absent was measured for all names on the same ones.
      alpha: the family-wise error rate.

    Returns:
      One dict per yardstick: `metric`, `label`, `higher_is_better`, `is_common`,
      `margin`, `reference`, `by_name` {name: {mean, std, n}}, `parts` {name: the part
      of its network that is measured}, `pairs`, `baselines`, `warnings`
      (`statistics.assumptions`) and `verdict`.
      `std` is the sample standard deviation over seeds, None for one seed.
      `pairs` compares every two objectives, `bounds` (if any) objectives with an upper
      bound with those that have a value (`statistics.bounds`), `baselines` each
      objective with its random initialization and with the references. All pairs and
      bounds of all metrics are one family, all baselines another. The verdict is empty
      if the metric is not shared or was measured for one objective only. A metric that
      no run measured is left out.
    """
    known = list_yardsticks(runs)
    measured = _Measured(group_by_name(runs), examples or {}, references or {}, known)
    tests = tests or {}
    summary: list[dict] = []
    family, controls = [], []
    for metric, yardstick in known.items():
        by_name = {name: measured.find(name, metric) for name in measured.groups}
        by_name = {name: found for name, found in by_name.items() if found[0]}
        if not by_name:
            continue
        if yardstick.is_common:
            for names in tests.get(metric, [set(by_name)]):
                alike = {name: by_name[name] for name in by_name if name in names}
                family.append(measured.gather(metric, alike))
            if metric not in tests:  # else it is not known who was asked the same
                family += measured.list_bounds(metric, by_name)
            controls += measured.list_controls(metric, by_name)
        stats = {
            name: measure_spread(found[0].values()) for name, found in by_name.items()
        }
        entry: dict[str, Any] = yardstick._asdict()
        entry |= {"metric": metric, "by_name": stats}
        entry["parts"] = find_parts(metric, runs, stats)
        summary.append(entry)
    pairs = verdicts.judge(family, alpha)
    baselines = verdicts.judge(controls, alpha)
    for entry in summary:
        metric = entry["metric"]
        others = [pair for pair in baselines if pair.metric == metric]
        entry["baselines"] = [describe_pair(pair) for pair in others]
        measured.add_verdicts(entry, pairs, tests.get(metric, [set(entry["by_name"])]))
    return summary


class _Measured(NamedTuple):
    """What `summarise` is given, by name."""

    groups: dict[str, list[dict]]
    examples: Mapping[tuple[str, int], Mapping[str, Examples]]
    references: Mapping[str, Mapping[str, Examples]]
    yardsticks: Mapping[str, Yardstick]

    def gather(self, metric: str, by_name: Mapping[str, Found]) -> Results:
        """What verdicts are drawn from."""
        yardstick = self.yardsticks[metric]
        return Results(
            metric,
            yardstick.higher_is_better,
            yardstick.margin,
            {name: values for name, (values, _) in by_name.items()},
            {name: found for name, (_, found) in by_name.items() if found},
        )

    def find(self, name: str, metric: str) -> Found:
        """The finite values by seed, and their examples if all of them were kept."""
        values = {
            run["seed"]: float(run["metrics"][metric])
            for run in sorted(self.groups[name], key=lambda run: run["seed"])
            if _is_number(run["metrics"].get(metric))
        }
        found = {
            seed: self.examples[name, seed][metric]
            for seed in values
            if metric in self.examples.get((name, seed), {})
        }
        return values, found if len(found) == len(values) else {}

    def add_verdicts(
        self, entry: dict, pairs: list[Pair], tests: list[set[str]]
    ) -> None:
        """Adds the pairs, the warnings and the verdict to a metric's entry.

        Args:
          pairs: of all metrics.
          tests: the names in sets that were measured on the same test examples.
        """
        own = [pair for pair in pairs if pair.metric == entry["metric"]]
        entry["pairs"] = [describe_pair(pair) for pair in own]
        values = {n: self.find(n, entry["metric"])[0] for n in entry["by_name"]}
        entry["warnings"] = check_seeds(entry["label"], values, own) if own else []
        by_test = [[pair for pair in own if pair.better in names] for names in tests]
        sentences = [word_verdict(*with_parts(alike, entry)) for alike in by_test]
        sentences += self.judge_bounds(pairs, entry)
        entry["verdict"] = "; ".join(filter(None, sentences))

    def list_bounds(self, metric: str, exact: Mapping[str, Found]) -> list[Results]:
        """Each name of which only a bound is known beside each whose value is."""
        name = metric + SUFFIX
        bounds = {n: self.find(n, name) for n in self.groups if n not in exact}
        bounds = {n: found for n, found in bounds.items() if found[0]}
        gathered = self.gather(metric, bounds)._replace(metric=name)
        return pair_bounds(gathered, self.gather(metric, exact))

    def judge_bounds(self, pairs: list[Pair], entry: dict) -> list[str]:
        """Puts the pairs with a bound into a yardstick's entry; tells what follows."""
        name = entry["metric"] + SUFFIX
        own = [pair for pair in pairs if pair.metric == name]
        if not own:
            return []
        names = {n for pair in own for n in (pair.better, pair.worse)}
        bounded = {
            n: statistics.fmean(self.find(n, name)[0].values())
            for n in self.groups
            if n in names - entry["by_name"].keys()
        }
        own = open_bounds(own, bounded)
        entry["bounds"] = [describe_pair(pair) for pair in own]
        return word_bounds(own, bounded)

    def list_controls(self, metric: str, by_name: Mapping[str, Found]) -> list[Results]:
        """Each name beside its untrained parameters and beside the references."""
        controls = []
        for name, found in by_name.items():
            others = {UNTRAINED: self.find(name, f"{metric}_random")}
            references = self.references.get(name, {})
            for control, key in (
                (FREQUENCY, metric + FREQUENCY_SUFFIX),
                (REFERENCE, metric),
            ):
                if key in references:  # the same for every seed
                    values = dict.fromkeys(found[0], references[key].mean)
                    others[control] = values, dict.fromkeys(found[0], references[key])
            controls += [
                self.gather(metric, {name: found, control: other})
                for control, other in others.items()
                if other[0]
            ]
        return controls


def _is_number(value) -> bool:
    return value is not None and math.isfinite(value)


def measure_spread(values):
    """The mean and the sample standard deviation of the values that are finite."""
    values = [float(v) for v in values if v is not None and math.isfinite(v)]
    return {
        "mean": statistics.fmean(values) if values else None,
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "n": len(values),
    }


def format_table(report: dict) -> str:
    """The comparison as plain text for the terminal, at most 100 columns wide."""
    texts = [report["title"], f"budget: {format_budget(report)}"]
    lines = [line for text in texts for line in textwrap.wrap(text, WIDTH)]
    own = add_to_tables(report, *tabulate(report["runs"]))
    tables = [*own, *tabulate_extras(report["runs"])]
    for header, rows in tables:
        width = _find_width([row[0] for row in rows])
        lines += ["", *_align([header, *([row[0][:width], *row[1:]] for row in rows)])]
    lines.append("")
    told = list_verdicts(report) + list_assumptions(report)
    told += list_whole_cost(report) + list_tuning(report)
    told += list_costs(report) + list_omissions(report)
    told += list_samples(report)
    for text in told:
        lines += textwrap.wrap(text, WIDTH, subsequent_indent="  ") or [""]
    return "\n".join(lines)


def _find_width(names: list[str], least: int = 20) -> int:
    """How many characters of each name tell all of them apart."""
    longest = max(map(len, names))
    widths = range(least, max(least, longest) + 1)
    return next(n for n in widths if len({name[:n] for name in names}) == len(names))


def _align(rows):
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    line = f"{{:<{widths[0]}}}" + "".join(f"  {{:>{width}}}" for width in widths[1:])
    return [line.format(*row) for row in rows]


def tabulate(runs):
    """The table of costs and the table of results, each a header and rows of text.

    Each cell is the mean ± standard deviation over the seeds of one name; a metric that
    no run measured has no column.
    """
    groups = group_by_name(runs)
    costs = [
        [name, str(len(group))]
        + [
            format_stats(measure_spread([run[key] for run in group]), write)
            for key, (_, write) in COSTS.items()
        ]
        for name, group in groups.items()
    ]
    titles = RESULTS | {
        task["metric"]: task["title"] for run in runs for task in run.get("tasks", [])
    }
    measured = [key for key in titles if any(key in run["metrics"] for run in runs)]
    results = [
        [name]
        + [
            format_stats(
                measure_spread([run["metrics"].get(key) for run in group]), WRITE
            )
            for key in measured
        ]
        for name, group in groups.items()
    ]
    labels = [label for label, _ in COSTS.values()]
    return (
        (["objective", "seeds", *labels], costs),
        (["objective", *(titles[key] for key in measured)], results),
    )


def format_stats(stats, write):
    """Mean ± standard deviation as text; a dash where nothing was measured."""
    if not stats["n"]:
        return MISSING
    std = f" ± {write(stats['std'])}" if stats["std"] else ""
    return write(stats["mean"]) + std


def format_budget(report):
    """The budget with its unit and note."""
    budget = report["budget"]
    if not budget["amount"]:  # "steps": each run trains its own number of them
        return budget["note"]
    write = {"flops": format_flops, "seconds": "{:,.6g}".format}
    amount = write.get(budget["kind"], "{:,.0f}".format)(budget["amount"])
    kind = {"flops": "FLOPs"}.get(budget["kind"], budget["kind"].replace("_", " "))
    return f"{amount} {kind}" + (f" ({budget['note']})" if budget.get("note") else "")


def list_verdicts(report):
    """A line for each common yardstick that has a verdict, and who learnt anything.

    Before them a line for each objective with runs that diverged.
    """
    lines = [
        f"{yardstick['label']}: {yardstick['verdict']}"
        f"{word_left_out(report, yardstick['by_name'])}"
        for yardstick in report["yardsticks"]
        if yardstick["verdict"]
    ]
    lines = lines or ["no verdict: no common yardstick was measured for two objectives"]
    return [*list_diverged(report), *lines, *list_baselines(report)]


def list_assumptions(report):
    """A line on how the seeds were chosen, and warnings if they look unsuitable."""
    warnings = [line for y in report["yardsticks"] for line in y.get("warnings", [])]
    has_verdicts = any(y["verdict"] for y in report["yardsticks"])
    note = report.get("seeds_note")
    return ([f"note: {note}"] if note and has_verdicts else []) + warnings


def list_whole_cost(report):
    """The lines of the second verdict (`report.whole_cost`), if there is one."""
    return report.get("whole_cost", {}).get("lines", [])


def list_tuning(report):
    """A line for each objective that was tuned, and for each best value at an edge."""
    lines = []
    for name, record in report.get("tuning", {}).items():
        chosen = ", ".join(f"{key}={value}" for key, value in record["chosen"].items())
        label = YARDSTICKS[record["by"]].label
        if not record["trials"]:
            lines.append(f"not tuned: {name}, for which all trials are the same run")
            continue
        told = "; ".join(_word_trial(trial) for trial in record["trials"])
        cost = format_flops(record["flops"])
        drawn = f" drawn from {record['drawn']}" if record.get("drawn") else ""
        lines.append(
            f"tuned {name}: {chosen}, by {label} of {len(record['trials'])} trials"
            f"{drawn} ({told}), which cost {cost} FLOPs"
        )
        if all(trial["value"] is None for trial in record["trials"]):
            lines.append(
                f"WARNING: every trial of {name} diverged; its runs have the settings "
                f"of the first one: give compare.tune other values"
            )
        if record["at_edge"]:
            more = "draw more or widen the range of" if drawn else "widen"
            lines.append(
                f"WARNING: the best {' and '.join(record['at_edge'])} of {name} is the "
                f"least or the greatest that was tried; a better one may lie beyond: "
                f"{more} compare.tune"
            )
    return lines


def _word_trial(trial):
    values = " ".join(str(value) for value in trial["settings"].values())
    value = trial["value"]
    return f"{values}: {'diverged' if value is None else f'{value:.3f}'}"


def list_omissions(report):
    """A line for each metric that lacks a value for some seeds, or test documents.

    Before them, of runs that were trained apart, one for each thing that is not equal;
    behind them what the probe has read.
    """
    num_seeds = {
        name: len(group) for name, group in group_by_name(report["runs"]).items()
    }
    lines = [
        f"note: {yardstick['metric']} of {name} is the mean of {stats['n']} of "
        f"{num_seeds[name]} seeds; the others have no finite value"
        for yardstick in report["yardsticks"]
        for name, stats in yardstick["by_name"].items()
        if stats["n"] < num_seeds[name]
    ]
    few = [
        yardstick["metric"]
        for yardstick in report["yardsticks"]
        for pair in yardstick["pairs"][:1]
        if pair["outcome"] != "untested" and pair["documents"] < 2
    ]
    if few:
        lines.append(
            f"note: intervals of {', '.join(few)} are of the choice of seeds alone: "
            f"the test text is one document, or its examples were not kept"
        )
    lines += _list_retired(report["runs"])
    unequal = [f"not equal: {text}" for text in report.get("inequalities", [])]
    told = [*unequal, *report.get("left_out", []), *lines]
    return told + list_probed(report["runs"])


def _list_retired(runs: list[dict]) -> list[str]:
    """A line for each metric that only an earlier version measured for some runs."""
    lines = []
    for old, new in RETIRED.items():
        kept = [run["metrics"].keys() & {old, new} == {old} for run in runs]
        names = dict.fromkeys(
            run["name"] for run, is_old in zip(runs, kept, strict=True) if is_old
        )
        if names:
            lines.append(
                f"note: {', '.join(names)}: an earlier version measured {old}, which "
                f"is not comparable with {new}; to measure that, delete result.json in "
                f"the run's folder and repeat the command that trained it"
            )
    return lines
