"""A report as text: the table in the terminal, and the lines that the page has too."""

import textwrap
from collections.abc import Mapping

from jaxpt.report.answer import format_budget, list_conclusions
from jaxpt.report.costs import list_costs
from jaxpt.report.diverged import list_diverged, word_left_out
from jaxpt.report.figures import list_samples
from jaxpt.report.formats import format_flops
from jaxpt.report.metrics import METRICS, list_reliability
from jaxpt.report.task_charts import list_probed
from jaxpt.report.text_tables import add_to_tables, tabulate, tabulate_extras
from jaxpt.report.types import Report, Trial, Tuning
from jaxpt.report.wording import join, list_baselines

WIDTH = 100


def format_table(report: Report) -> str:
    """The comparison as plain text for the terminal, at most 100 columns wide."""
    texts = [report.title, " ".join(list_conclusions(report))]
    texts += [f"budget: {format_budget(report)}"]
    lines = [line for text in texts for line in textwrap.wrap(text, WIDTH)]
    runs_table = add_to_tables(report, *tabulate(report.runs))
    tables = [*runs_table, *tabulate_extras(report.runs)]
    for header, rows in tables:
        width = _find_width([row[0] for row in rows])
        lines += ["", *_align([header, *([row[0][:width], *row[1:]] for row in rows)])]
    lines.append("")
    texts = list_verdicts(report) + list_assumptions(report)
    texts += list_other_costs(report) + list_tuning(report.tuning)
    texts += list_costs(report) + list_omissions(report) + list_samples(report)
    for text in texts:
        lines += textwrap.wrap(text, WIDTH, subsequent_indent="  ") or [""]
    return "\n".join(lines)


def _find_width(names: list[str], least: int = 20) -> int:
    """The shortest prefix of names, of at least `least` characters, that is unique."""
    longest = max(map(len, names))
    widths = range(least, max(least, longest) + 1)
    return next(n for n in widths if len({name[:n] for name in names}) == len(names))


def _align(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    line = f"{{:<{widths[0]}}}" + "".join(f"  {{:>{width}}}" for width in widths[1:])
    return [line.format(*row) for row in rows]


def list_verdicts(report: Report) -> list[str]:
    """A line for each shared metric with a verdict, then the baselines.

    Before them is a line for each objective with runs that diverged.
    """
    lines = [
        f"{metric.label}: {metric.verdict}{word_left_out(report, metric.by_name)}"
        for metric in report.metrics
        if metric.verdict
    ]
    lines = lines or ["no verdict: no shared metric was measured for two objectives"]
    return [*list_diverged(report), *lines, *list_baselines(report)]


def list_assumptions(report: Report) -> list[str]:
    """Lines on the choice of seeds, unsuitable values and the metrics' reliability."""
    warnings = [line for metric in report.metrics for line in metric.warnings]
    has_verdicts = any(metric.verdict for metric in report.metrics)
    is_noted = report.seeds_note and has_verdicts
    lines = ([f"note: {report.seeds_note}"] if is_noted else []) + warnings
    return lines + list_reliability(report)


def list_other_costs(report: Report) -> list[str]:
    """The verdicts at other equal costs, then those with teachers and tuning."""
    parts = (report.conventions, report.whole_cost)
    return [line for part in parts if part for line in part.lines]


def list_tuning(tuning: Mapping[str, Tuning] | None) -> list[str]:
    """A line for each tuned objective, and one for each best value at an edge."""
    lines = []
    for name, record in (tuning or {}).items():
        chosen = ", ".join(f"{key}={value}" for key, value in record.chosen.items())
        label = METRICS[record.by].label
        if not record.trials:
            lines.append(f"not tuned: {name}; all of its trials are the same run")
            continue
        trials = "; ".join(_word_trial(trial) for trial in record.trials)
        cost = format_flops(record.other["flops"])
        drawn = f" drawn from {record.drawn}" if record.drawn else ""
        num = _count_extensions(record)
        further = f" and {num} beyond" if num else ""
        lines.append(
            f"tuned {name}: {chosen}, by {label} of {len(record.trials) - num} "
            f"trials{drawn}{further} ({trials}), which cost {cost} FLOPs"
        )
        if all(trial.value is None for trial in record.trials):
            lines.append(
                f"WARNING: every trial of {name} diverged; its runs use the settings "
                f"of the first one: change the values of compare.tune"
            )
        else:
            lines += _list_edges(name, record)
    return lines


def _list_edges(name: str, record: Tuning) -> list[str]:
    """Where the best trial of an objective is in the values that were tried."""
    lines, num = [], _count_extensions(record)
    is_extended = record.until == "interior"
    after = f" after {num} extension{'s' * (num != 1)}" if is_extended else ""
    if at_edge := record.at_edge:
        more = "draw more or widen the range of" if record.drawn else "widen"
        remedy = "raise compare.tune_extensions, or " if is_extended else ""
        lines.append(
            f"WARNING: the best {' and '.join(at_edge)} of {name} is the smallest or "
            f"the largest value tried{after}; better values may be outside the range: "
            f"{remedy}{more} compare.tune"
        )
    elif is_extended:
        lines.append(f"the best trial of {name} is interior{after}")
    for key in record.at_limit or ():
        lines.append(
            f"the best {key} of {name}, {record.chosen[key]}, is at the limit of "
            f"the setting"
        )
    return lines


def _count_extensions(record: Tuning) -> int:
    """The trials beyond the edges of the listed or drawn values."""
    return sum("extends" in trial.other for trial in record.trials)


def _word_trial(trial: Trial) -> str:
    values = " ".join(str(value) for value in trial.settings.values())
    value = trial.value
    return f"{values}: {'diverged' if value is None else f'{value:.3f}'}"


def list_omissions(report: Report) -> list[str]:
    """Lines on unequal settings, missing values or test documents, and the probe.

    The first are of runs that were trained separately; the last report the layers that
    the probe read.
    """
    num_seeds = {name: len(group) for name, group in report.groups.items()}
    lines = [
        f"note: {metric.label} of {name} is the mean of {stats.n} of "
        f"{num_seeds[name]} seeds; the others have no finite value"
        for metric in report.metrics
        for name, stats in metric.by_name.items()
        if stats.n < num_seeds[name]
    ]
    tested = {
        metric.label: [p for p in metric.pairs if p.outcome != "untested"]
        for metric in report.metrics
    }
    alone = [m for m, pairs in tested.items() if any(not p.documents for p in pairs)]
    if alone:
        lines.append(
            f"note: intervals of {join(alone)} are of the choice of seeds alone: "
            f"no result by test example was kept, or the metric is not a mean of them"
        )
    cut = [m for m, pairs in tested.items() if any(p.blocks for p in pairs)]
    if cut:
        lines.append(
            f"note: the test text of {join(cut)} is one document: its error is "
            f"that of blocks of consecutive examples, and is not of other documents"
        )
    unequal = [f"not equal: {text}" for text in report.inequalities or ()]
    lines = [*unequal, *(report.left_out or ()), *lines]
    return lines + list_probed(report.runs)
