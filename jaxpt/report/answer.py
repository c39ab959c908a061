"""The first answer of a report: which objective is best, by how much, at which cost.

`list_conclusions` has it in a few short sentences, for the terminal and the top of the
page; below them is a row for each shared metric (`tabulate_leads` for the terminal,
`list_answers` for the page). None claims more than the verdicts.
"""

import statistics
from collections.abc import Iterable
from typing import NamedTuple

from jaxpt.languages import REGRETS
from jaxpt.report.costs import is_held, is_known, mean_cost
from jaxpt.report.diverged import word_left_out
from jaxpt.report.formats import (
    MISSING,
    format_count,
    format_flops,
    format_number,
    format_p,
    format_seconds,
    is_number,
)
from jaxpt.report.ratio_words import conclude_ratio
from jaxpt.report.types import Budget, Groups, Metric, Report, RunEntry, Verdict
from jaxpt.report.wording import (
    MAX_COUNTED,
    MAX_NAMES,
    join,
    name_baselines,
    name_part,
    read_baselines,
    word_best,
    word_difference,
    word_outcome,
)

CHOICE = "choice_bayes_accuracy"  # has a chance level of 1 / eval.num_choices
LEARNING_RATES = ("optim.lr", "optim.muon_lr")
CHANCE = "chance"
UNIFORM, FLOOR = "uniform", "floor: the exact answers"  # of regret


class Answer(NamedTuple):
    """One shared metric's row of the first table: sentences, or parts of them."""

    metric: str
    result: str
    difference: str
    certainty: str
    cost: str


def list_conclusions(report: Report) -> list[str]:
    """The report's answer in short sentences: leader, cost ratios, baselines, rates."""
    baselines, ratio = _conclude_baselines(report), conclude_ratio(report)
    return [
        _conclude_lead(report),
        *([ratio] if ratio else []),
        *([baselines] if baselines else []),
        word_learning_rates(report),
    ]


def word_cost(budget: Budget) -> str:
    """The cost at which runs are compared, as the beginning of a sentence."""
    if not budget.amount:
        return "At costs that are not equal"
    return f"At {format_amount(budget)} per run"


def format_amount(budget: Budget) -> str:
    """A budget's amount with its unit."""
    write = {"flops": format_flops, "operations": format_flops}
    write["seconds"] = "{:,.6g}".format
    amount = write.get(budget.kind, "{:,.0f}".format)(budget.amount)
    kind = {"flops": "FLOPs"}.get(budget.kind, budget.kind.replace("_", " "))
    return f"{amount} {kind}"


def format_budget(report: Report) -> str:
    """The budget with its unit and note."""
    budget = report.budget
    if not budget.amount:  # "steps": each run trains its own number of them
        return budget.note
    note = f" ({budget.note})" if budget.note else ""
    return format_amount(budget) + note


def _conclude_lead(report: Report) -> str:
    """Which objective leads on the first metric, and on those with the same result."""
    labels: dict[str, list[str]] = {}
    for metric in report.list_shared():
        if clause := word_best(metric):
            labels.setdefault(clause, []).append(metric.label)
    cost = word_cost(report.budget)
    if not labels:
        return f"{cost}, no shared metric was measured for two objectives."
    clause, names = next(iter(labels.items()))
    return f"{cost}, {clause} on {join(names)}."


def find_weak(metric: Metric) -> dict[str, list[str]]:
    """By name, the baselines that it is not ahead of; {} if it is ahead of all."""
    words = name_baselines(metric)
    weak = {
        name_part(metric, name): [words[c] for c, how in of.items() if how != "ahead"]
        for name, of in read_baselines(metric, words).items()
    }
    return {name: controls for name, controls in weak.items() if controls}


def _conclude_baselines(report: Report) -> str:
    """Which objectives are not ahead of a baseline; of a single metric, of which."""
    shared = [m for m in report.list_shared() if read_baselines(m, name_baselines(m))]
    weak = {metric.label: of for metric in shared if (of := find_weak(metric))}
    if not weak:
        labels = [metric.label for metric in shared]
        return f"All are ahead of the baselines on {join(labels)}." if labels else ""
    names = list(dict.fromkeys(name for of in weak.values() for name in of))
    if len(weak) > 1:
        place = f"on at least one of {len(shared)} metrics"
        return f"Not ahead of a baseline {place}: {join(names)}."
    ((label, of),) = weak.items()
    groups: dict[str, list[str]] = {}
    for name, controls in of.items():
        groups.setdefault(join(controls), []).append(name)
    parts = [f"{join(members)} ({controls})" for controls, members in groups.items()]
    return f"Not ahead of a baseline: {', '.join(parts)} on {label}."


LEAD_HEADS = (
    *("shared metric", "best", "ahead of", "not significant", "at most"),
    *("same at other costs", "not above baselines"),
)


def tabulate_leads(report: Report) -> list[list[str]]:
    """A header, and a row for each shared metric: the verdicts of the best, counted.

    "same at other costs" counts the pairs whose verdict holds under all four
    conventions of cost, "not above baselines" the objectives that are not ahead of
    every baseline; a column without values is left out. [] if the first sentence has
    it all.
    """
    rows = []
    for metric in report.list_shared():
        best = metric.control or metric.rank()[0]
        pairs = [p for p in metric.pairs if best in p.names and p.outcome != "untested"]
        if not pairs:
            continue
        ahead = [pair.better for pair in pairs if pair.outcome == "ahead"]
        same = [pair for pair in pairs if pair.is_same]
        ends = [end for pair in same if is_number(end := pair.at_most)]
        held = [is_held(pair) for pair in pairs if is_known(pair)]
        tested = read_baselines(metric, name_baselines(metric))
        behind = len(ahead) - ahead.count(best)
        rows.append(
            [
                metric.label,
                name_part(metric, best) + " (control)" * bool(metric.control),
                f"{ahead.count(best)} of {len(pairs)}"
                + f", behind {behind}" * (behind > 0),
                str(len(same)),
                format_number(max(ends)) if ends else MISSING,
                f"{sum(held)} of {len(held)}" if held else MISSING,
                f"{len(find_weak(metric))} of {len(tested)}" if tested else MISSING,
            ]
        )
    if len(rows) < 2 and len(report.groups) <= MAX_COUNTED + 1:
        return []
    used = [i for i in range(len(LEAD_HEADS)) if any(row[i] != MISSING for row in rows)]
    return [[row[i] for i in used] for row in [LEAD_HEADS, *rows] if rows]


def find_levels(report: Report, metric: Metric) -> dict[str, float]:
    """The chance level and the baselines of a metric, each the mean over objectives.

    Of regret, the exact answers that read fewer tokens, and the floor.
    """
    if exact := _find_anchors(report, metric.metric):
        return exact
    levels: dict[str, list[float]] = {}
    if (chance := find_chance(report, metric.metric)) is not None:
        levels[CHANCE] = [chance]
    num_choices = report.config.get("eval", {}).get("num_choices")
    if metric.metric == CHOICE and num_choices:
        levels[CHANCE] = [1 / num_choices]
    words, sign = name_baselines(metric), 1 if metric.higher_is_better else -1
    for pair in metric.baselines:
        is_better = pair.worse in words
        control = pair.worse if is_better else pair.better
        mean = metric.by_name[pair.other(control)].mean
        if control in words and is_number(pair.difference) and is_number(mean):
            gap = sign * pair.difference * (1 if is_better else -1)
            levels.setdefault(words[control], []).append(mean - gap)
    return {name: statistics.fmean(values) for name, values in levels.items()}


def find_chance(report: Report, metric: str) -> float | None:
    """The chance level of a metric of a task's answers; None of any other."""
    truth = report.known_truth
    return truth.chances.get(metric) if truth is not None else None


def _find_anchors(report: Report, metric: str) -> dict[str, float]:
    """The exact baselines of a metric of regret; {} of any other.

    The uniform distribution is left out: it is far above all others.
    """
    question = next((q for q, name in REGRETS.items() if name == metric), "")
    truth = report.known_truth
    if truth is None or question not in truth.anchors:
        return {}
    anchors = truth.anchors[question].items()
    return {n: x for n, x in anchors if n != UNIFORM} | {FLOOR: 0.0}


def word_sizes(groups: Groups) -> str:
    """The number of parameters, of all objectives or of each if they differ."""
    means = {name: mean_cost(runs, "params") for name, runs in groups.items()}
    sizes = {name: format_count(mean) for name, mean in means.items()}
    if len(set(sizes.values())) == 1:
        return f"{next(iter(sizes.values()))} parameters"
    if len(sizes) > MAX_NAMES:
        low, high = (format_count(find(means.values())) for find in (min, max))
        return f"{low} to {high} parameters, by objective"
    return f"parameters: {', '.join(f'{n} {size}' for n, size in sizes.items())}"


def word_learning_rates(report: Report) -> str:
    """Which learning rates were tuned, and to which values."""
    parts = []
    for setting in LEARNING_RATES:
        rates = {
            name: record.chosen[setting]
            for name, record in (report.tuning or {}).items()
            if record.trials and setting in record.chosen
        }
        if not rates:
            continue
        words = ", ".join(f"{name} {rate}" for name, rate in rates.items())
        if len(rates) > MAX_NAMES:
            words = f"{min(rates.values())} to {max(rates.values())}"
        rest = [n for n in report.groups if n not in rates]
        also = f"; not tuned for {join(rest)}" if rest else ""
        of = "" if setting == LEARNING_RATES[0] else f"{setting}: "
        parts.append(f"{of}{words}{also}")
    if parts:
        return f"Learning rates were tuned per objective ({'; '.join(parts)})."
    return "Learning rates were not tuned."


def list_answers(report: Report) -> list[Answer]:
    """The answer on each shared metric that was measured for any objective."""
    answers = []
    for metric in report.list_shared():
        answer = _answer(metric, report.groups)
        left_out = word_left_out(report, metric.by_name)
        answers.append(answer._replace(result=answer.result + left_out))
    return answers


def _answer(metric: Metric, groups: Groups) -> Answer:
    ranked, shown = metric.rank(), _find_shown(metric)
    cost = "\n".join(_word_run_cost(name, groups[name]) for name in shown)
    better = "higher" if metric.higher_is_better else "lower"
    label = f"{metric.label} ({better} is better)"
    best, value = name_part(metric, ranked[0]), metric.by_name[ranked[0]].mean or 0.0
    alone = f"{best} reaches {value:.3f}"
    if len(ranked) == 1:
        return Answer(label, f"only {best} supports this metric", alone, MISSING, cost)
    pair = next((p for p in metric.pairs if {*p.names} == {*shown}), None)
    if pair is None and metric.control not in ("", *ranked):
        result = f"no verdict: {metric.control} was not measured"
        return Answer(label, result, alone, MISSING, cost)
    if pair is None:  # runs that were trained apart may have different test examples
        first, second = (name_part(metric, name) for name in shown)
        result = f"no verdict between {first} and {second}: their tests differ"
        return Answer(label, result, alone, MISSING, cost)
    names = " over ".join(name_part(metric, name) for name in pair.names)
    means = (metric.by_name[name].mean or 0.0 for name in pair.names)
    text = f"{names}: {word_difference(pair)}"
    text += f"\nmeans {' and '.join(map('{:.3f}'.format, means))}"
    certainty = _word_certainty(pair, metric.margin)
    return Answer(label, word_best(metric), text, certainty, cost)


def _find_shown(metric: Metric) -> list[str]:
    """The two best names, or the control and the best other; fewer if fewer exist."""
    ranked, control = metric.rank(), metric.control
    if control not in ranked:
        return ranked[:2]
    others = [name for name in ranked if name != control]
    return sorted({control, *others[:1]}, key=ranked.index)


def _word_certainty(pair: Verdict, margin: float) -> str:
    """The significance of a pair's difference, with the number of samples."""
    outcome = word_outcome(pair, margin)
    if pair.outcome == "untested":
        return outcome
    unit = "blocks of the test text" if pair.blocks else "test documents"
    documents = f" and {pair.documents} {unit}" if pair.documents else ""
    p = format_p(pair.p)
    p = p if p.startswith("<") else f"= {p}"
    return f"{outcome}; p {p}, {pair.seeds} seeds{documents}"


def _word_run_cost(name: str, runs: Iterable[RunEntry]) -> str:
    """The cost of one run of a name, as the mean over its seeds."""
    parts = []
    for key, unit, write in (
        ("flops", "FLOPs", format_flops),
        ("train_seconds", "s", format_seconds),
    ):
        values = [run.cost(key) for run in runs if is_number(run.cost(key))]
        if values:
            parts.append(f"{write(statistics.fmean(values))} {unit}")
    return f"{name}: {', '.join(parts)}"
