"""Summarizes a comparison: means over seeds, verdicts, and the table in the terminal.

Objectives share their data and their budget, not their losses. So verdicts are given
only on shared metrics, which have the same task for all (`jaxpt.judge.verdicts`).
"""

import math
import statistics
import textwrap
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxpt.judge import verdicts
from jaxpt.judge.assumptions import check_seeds
from jaxpt.judge.bounds import SUFFIX, open_bounds, pair_bounds, word_bounds
from jaxpt.judge.examples import Examples
from jaxpt.judge.verdicts import Pair, Results
from jaxpt.report.answer import format_amount, list_conclusions
from jaxpt.report.costs import list_costs, tabulate_extras
from jaxpt.report.diverged import add_to_tables, list_diverged, word_left_out
from jaxpt.report.formats import (
    MISSING,
    format_flops,
    group_by_name,
    is_number,
)
from jaxpt.report.metrics import (
    METRICS,
    RESULTS,
    Metric,
    list_cost_columns,
    list_metrics,
)
from jaxpt.report.probed_layers import list_probed
from jaxpt.report.reliability import list_reliability
from jaxpt.report.samples import list_samples
from jaxpt.report.wording import (
    FREQUENCY,
    FREQUENCY_SUFFIX,
    NGRAMS,
    NGRAMS_SUFFIX,
    REFERENCE,
    UNTRAINED,
    describe_pair,
    find_parts,
    list_baselines,
    with_parts,
    word_verdict,
)

WIDTH = 100
VALUE = "{:.3f}".format
WITHOUT_SEEDS = (FREQUENCY, REFERENCE)  # baselines that no seed changes
Values = tuple[dict[int, float], dict[int, Examples]]  # by seed


def summarise(
    runs: list[dict],
    examples: Mapping[tuple[str, int], Mapping[str, Examples]] | None = None,
    references: Mapping[str, Mapping[str, Examples]] | None = None,
    tests: Mapping[str, list[set[str]]] | None = None,
    alpha: float = verdicts.ALPHA,
    control: str = "",
) -> list[dict]:
    """The mean and standard deviation over seeds of every metric, and verdicts.

    Args:
      runs: entries of a report's `runs`; a metric that is absent, None or not finite is
        left out.
      examples: by (name, seed) and metric, the test examples of which a value is the
        mean. Only with them do intervals cover the choice of test examples.
      references: by name and metric, the baselines without a network; that of token
        frequencies has the metric's name and `FREQUENCY_SUFFIX`.
      tests: by metric, sets of names that were measured on the same test examples,
        each name in one set; only names of one set are compared. A metric that is
        absent was measured on the same examples for all names.
      alpha: the family-wise error rate.
      control: the name that all others are compared with; "": all pairs are compared.

    Returns:
      One dict per metric: `metric`, `label`, `higher_is_better`, `is_common`,
      `margin`, `reference`, `description`, `by_name` {name: {mean, std, n}}, `parts`
      {name: the part of its network that is measured}, `pairs`, `baselines`,
      `warnings` (`statistics.assumptions`) and `verdict`.
      `std` is the sample standard deviation over seeds, None for one seed. `control`,
      if any, is in each of them.
      `pairs` compares every two objectives, `bounds` (if any) objectives with an upper
      bound with those that have a value (`statistics.bounds`), `baselines` each
      objective with its random initialization and with the references. All pairs and
      bounds of all metrics are one family, all baselines another. The verdict is empty
      if the metric is not shared or was measured for one objective only. A metric that
      no run measured is left out.
    """
    metrics = list_metrics(runs)
    measured = _Measured(group_by_name(runs), examples or {}, references or {}, metrics)
    tests = tests or {}
    summary: list[dict] = []
    family, controls = [], []
    for name, metric in metrics.items():
        by_name = {n: measured.read(n, name) for n in measured.groups}
        by_name = {n: values for n, values in by_name.items() if values[0]}
        if not by_name:
            continue
        if metric.is_common:
            for names in tests.get(name, [set(by_name)]):
                same = {n: by_name[n] for n in by_name if n in names}
                family.append(measured.gather(name, same))
            if name not in tests:  # else their test examples may differ
                family += measured.list_bounds(name, by_name)
            controls += measured.list_controls(name, by_name)
        stats = {n: measure_spread(of[0].values()) for n, of in by_name.items()}
        entry: dict[str, Any] = metric._asdict() | {"metric": name, "by_name": stats}
        entry["parts"] = find_parts(name, runs, stats)
        if control:
            entry["control"] = control
        summary.append(entry)
    pairs = verdicts.judge(family, alpha, control)
    baselines = verdicts.judge(controls, alpha)
    for entry in summary:
        name = entry["metric"]
        entry["baselines"] = [describe_pair(p) for p in baselines if p.metric == name]
        measured.add_verdicts(entry, pairs, tests.get(name, [set(entry["by_name"])]))
    return summary


class _Measured(NamedTuple):
    """The arguments of `summarise`, by name."""

    groups: dict[str, list[dict]]
    examples: Mapping[tuple[str, int], Mapping[str, Examples]]
    references: Mapping[str, Mapping[str, Examples]]
    metrics: Mapping[str, Metric]

    def gather(self, metric: str, by_name: Mapping[str, Values]) -> Results:
        """The values of one metric, as `verdicts.judge` takes them."""
        return Results(
            metric,
            self.metrics[metric].higher_is_better,
            self.metrics[metric].margin,
            {name: values for name, (values, _) in by_name.items()},
            {name: examples for name, (_, examples) in by_name.items() if examples},
            self.metrics[metric].span or math.inf,
            WITHOUT_SEEDS,
        )

    def read(self, name: str, metric: str) -> Values:
        """The finite values by seed, and their examples if all of them were kept."""
        values = {
            run["seed"]: float(run["metrics"][metric])
            for run in sorted(self.groups[name], key=lambda run: run["seed"])
            if is_number(run["metrics"].get(metric))
        }
        examples = {
            seed: self.examples[name, seed][metric]
            for seed in values
            if metric in self.examples.get((name, seed), {})
        }
        return values, examples if len(examples) == len(values) else {}

    def add_verdicts(
        self, entry: dict, pairs: list[Pair], tests: list[set[str]]
    ) -> None:
        """Adds the pairs, the warnings and the verdict to a metric's entry.

        Args:
          pairs: of all metrics.
          tests: sets of names that were measured on the same test examples.
        """
        metric_pairs = [pair for pair in pairs if pair.metric == entry["metric"]]
        entry["pairs"] = [describe_pair(pair) for pair in metric_pairs]
        values = {n: self.read(n, entry["metric"])[0] for n in entry["by_name"]}
        entry["warnings"] = check_seeds(entry["label"], values) if metric_pairs else []
        by_test = [
            [pair for pair in metric_pairs if pair.better in names] for names in tests
        ]
        sentences = [word_verdict(*with_parts(same, entry)) for same in by_test]
        sentences += self.judge_bounds(pairs, entry)
        entry["verdict"] = "; ".join(filter(None, sentences))

    def list_bounds(self, metric: str, exact: Mapping[str, Values]) -> list[Results]:
        """Each name of which only a bound is known against each with a value."""
        name = metric + SUFFIX
        bounds = {n: self.read(n, name) for n in self.groups if n not in exact}
        bounds = {n: values for n, values in bounds.items() if values[0]}
        gathered = self.gather(metric, bounds)._replace(metric=name)
        return pair_bounds(gathered, self.gather(metric, exact))

    def judge_bounds(self, pairs: list[Pair], entry: dict) -> list[str]:
        """Adds the pairs with a bound to a metric's entry; returns their verdicts."""
        name = entry["metric"] + SUFFIX
        bound_pairs = [pair for pair in pairs if pair.metric == name]
        if not bound_pairs:
            return []
        names = {n for pair in bound_pairs for n in (pair.better, pair.worse)}
        bounded = {
            n: statistics.fmean(self.read(n, name)[0].values())
            for n in self.groups
            if n in names - entry["by_name"].keys()
        }
        bound_pairs = open_bounds(bound_pairs, bounded)
        entry["bounds"] = [describe_pair(pair) for pair in bound_pairs]
        return word_bounds(bound_pairs, bounded)

    def list_controls(
        self, metric: str, by_name: Mapping[str, Values]
    ) -> list[Results]:
        """Each name against its random initialization and against the references."""
        controls = []
        for name, values in by_name.items():
            baselines = {
                UNTRAINED: self.read(name, f"{metric}_random"),
                NGRAMS: self.read(name, metric + NGRAMS_SUFFIX),
            }
            references = self.references.get(name, {})
            for control, key in (
                (FREQUENCY, metric + FREQUENCY_SUFFIX),
                (REFERENCE, metric),
            ):
                if key in references:
                    baselines[control] = {0: references[key].mean}, {0: references[key]}
            controls += [
                self.gather(metric, {name: values, control: other})
                for control, other in baselines.items()
                if other[0]
            ]
        return controls


def measure_spread(values):
    """The mean and the sample standard deviation of the values that are finite."""
    values = [float(v) for v in values if is_number(v)]
    return {
        "mean": statistics.fmean(values) if values else None,
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "n": len(values),
    }


def format_table(report: dict) -> str:
    """The comparison as plain text for the terminal, at most 100 columns wide."""
    texts = [report["title"], " ".join(list_conclusions(report))]
    texts += [f"budget: {format_budget(report)}"]
    lines = [line for text in texts for line in textwrap.wrap(text, WIDTH)]
    runs_table = add_to_tables(report, *tabulate(report["runs"]))
    tables = [*runs_table, *tabulate_extras(report["runs"])]
    for header, rows in tables:
        width = _find_width([row[0] for row in rows])
        lines += ["", *_align([header, *([row[0][:width], *row[1:]] for row in rows)])]
    lines.append("")
    texts = list_verdicts(report) + list_assumptions(report)
    texts += list_conventions(report) + list_whole_cost(report) + list_tuning(report)
    texts += list_costs(report) + list_omissions(report)
    texts += list_samples(report)
    for text in texts:
        lines += textwrap.wrap(text, WIDTH, subsequent_indent="  ") or [""]
    return "\n".join(lines)


def _find_width(names: list[str], least: int = 20) -> int:
    """The shortest prefix of names, of at least `least` characters, that is unique."""
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
    known_costs = list_cost_columns(runs)
    costs = [
        [name, str(len(group))]
        + [
            format_stats(measure_spread([run.get(key) for run in group]), write)
            for key, (_, write) in known_costs.items()
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
                measure_spread([run["metrics"].get(key) for run in group]), VALUE
            )
            for key in measured
        ]
        for name, group in groups.items()
    ]
    labels = [label for label, _ in known_costs.values()]
    return (
        (["objective", "seeds", *labels], costs),
        (["objective", *(titles[key] for key in measured)], results),
    )


def format_stats(stats, write):
    """Mean ± standard deviation as text; a dash if nothing was measured."""
    if not stats["n"]:
        return MISSING
    std = f" ± {write(stats['std'])}" if stats["std"] else ""
    return write(stats["mean"]) + std


def format_budget(report: Mapping) -> str:
    """The budget with its unit and note."""
    budget = report["budget"]
    if not budget["amount"]:  # "steps": each run trains its own number of them
        return budget["note"]
    note = f" ({budget['note']})" if budget.get("note") else ""
    return format_amount(budget) + note


def list_verdicts(report: Mapping) -> list[str]:
    """A line for each shared metric with a verdict, then the baselines.

    Before them is a line for each objective with runs that diverged.
    """
    lines = [
        f"{entry['label']}: {entry['verdict']}{word_left_out(report, entry['by_name'])}"
        for entry in report["metrics"]
        if entry["verdict"]
    ]
    lines = lines or ["no verdict: no shared metric was measured for two objectives"]
    return [*list_diverged(report), *lines, *list_baselines(report)]


def list_assumptions(report: Mapping) -> list[str]:
    """Lines on the choice of seeds, unsuitable values and the metrics' reliability."""
    entries = report["metrics"]
    warnings = [line for entry in entries for line in entry.get("warnings", [])]
    has_verdicts = any(entry["verdict"] for entry in entries)
    note = report.get("seeds_note")
    lines = ([f"note: {note}"] if note and has_verdicts else []) + warnings
    return lines + list_reliability(report)


def list_conventions(report):
    """The lines of the verdicts at other equal costs (`report.conventions`), if any."""
    return report.get("conventions", {}).get("lines", [])


def list_whole_cost(report):
    """The lines of the second verdict (`report.whole_cost`), if there is one."""
    return report.get("whole_cost", {}).get("lines", [])


def list_tuning(report):
    """A line for each tuned objective, and one for each best value at an edge."""
    lines = []
    for name, record in report.get("tuning", {}).items():
        chosen = ", ".join(f"{key}={value}" for key, value in record["chosen"].items())
        label = METRICS[record["by"]].label
        if not record["trials"]:
            lines.append(f"not tuned: {name}; all of its trials are the same run")
            continue
        trials = "; ".join(_word_trial(trial) for trial in record["trials"])
        cost = format_flops(record["flops"])
        drawn = f" drawn from {record['drawn']}" if record.get("drawn") else ""
        num = _count_extensions(record)
        further = f" and {num} beyond" if num else ""
        lines.append(
            f"tuned {name}: {chosen}, by {label} of {len(record['trials']) - num} "
            f"trials{drawn}{further} ({trials}), which cost {cost} FLOPs"
        )
        if all(trial["value"] is None for trial in record["trials"]):
            lines.append(
                f"WARNING: every trial of {name} diverged; its runs use the settings "
                f"of the first one: change the values of compare.tune"
            )
        else:
            lines += _list_edges(name, record)
    return lines


def _list_edges(name, record):
    """Where the best trial of an objective is in the values that were tried."""
    lines, num = [], _count_extensions(record)
    is_extended = record.get("until") == "interior"
    after = f" after {num} extension{'s' * (num != 1)}" if is_extended else ""
    if at_edge := record["at_edge"]:
        more = "draw more or widen the range of" if record.get("drawn") else "widen"
        remedy = "raise compare.tune_extensions, or " if is_extended else ""
        lines.append(
            f"WARNING: the best {' and '.join(at_edge)} of {name} is the smallest or "
            f"the largest value tried{after}; better values may be outside the range: "
            f"{remedy}{more} compare.tune"
        )
    elif is_extended:
        lines.append(f"the best trial of {name} is interior{after}")
    for key in record.get("at_limit", ()):
        lines.append(
            f"the best {key} of {name}, {record['chosen'][key]}, is at the limit of "
            f"the setting"
        )
    return lines


def _count_extensions(record):
    """The trials beyond the edges of the listed or drawn values."""
    return sum("extends" in trial for trial in record["trials"])


def _word_trial(trial):
    values = " ".join(str(value) for value in trial["settings"].values())
    value = trial["value"]
    return f"{values}: {'diverged' if value is None else f'{value:.3f}'}"


def list_omissions(report):
    """Lines on unequal settings, missing values or test documents, and the probe.

    The first are of runs that were trained separately; the last report the layers that
    the probe read.
    """
    num_seeds = {
        name: len(group) for name, group in group_by_name(report["runs"]).items()
    }
    lines = [
        f"note: {entry['metric']} of {name} is the mean of {stats['n']} of "
        f"{num_seeds[name]} seeds; the others have no finite value"
        for entry in report["metrics"]
        for name, stats in entry["by_name"].items()
        if stats["n"] < num_seeds[name]
    ]
    tested = {
        entry["metric"]: [p for p in entry["pairs"] if p["outcome"] != "untested"]
        for entry in report["metrics"]
    }
    alone = [m for m, pairs in tested.items() if any(not p["documents"] for p in pairs)]
    if alone:
        lines.append(
            f"note: intervals of {', '.join(alone)} are of the choice of seeds alone: "
            f"no result by test example was kept, or the metric is not a mean of them"
        )
    cut = [m for m, pairs in tested.items() if any(p["blocks"] for p in pairs)]
    if cut:
        lines.append(
            f"note: the test text of {', '.join(cut)} is one document: its error is "
            f"that of blocks of consecutive examples, and is not of other documents"
        )
    unequal = [f"not equal: {text}" for text in report.get("inequalities", [])]
    lines = [*unequal, *report.get("left_out", []), *lines]
    return lines + list_probed(report["runs"])
