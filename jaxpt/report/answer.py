"""The first answer of a report: which objective is best, by how much, at which cost.

`list_conclusions` has the sentence, and `rank_report` the table of each shared metric
(`jaxpt.report.ranking`), for the terminal and the page. Neither claims more than the
verdicts.
"""

import statistics

from jaxpt.languages import REGRETS
from jaxpt.report.costs import KEYS, WRITE, mean_cost
from jaxpt.report.formats import format_count, format_flops, is_number
from jaxpt.report.ranking import Ranking, Verdicts
from jaxpt.report.ratio_words import conclude_ratio
from jaxpt.report.system_lines import rank_systems
from jaxpt.report.types import Budget, Groups, Metric, Report
from jaxpt.report.wording import MAX_NAMES, join, name_baselines, word_best

CHOICE = "choice_bayes_accuracy"  # has a chance level of 1 / eval.num_choices
LEARNING_RATES = ("optim.lr", "optim.muon_lr")
CHANCE = "chance"
UNIFORM, FLOOR = "uniform", "floor: the exact answers"  # of regret


def list_conclusions(report: Report) -> list[str]:
    """The sentences above the first table: who leads, and the others' cost ratios."""
    ratio = conclude_ratio(report)
    return [_conclude_lead(report), *([ratio] if ratio else [])]


def find_main(report: Report) -> Metric | None:
    """The first shared metric with a verdict, or the first that was measured."""
    shared = report.list_shared()
    return next((m for m in shared if word_best(m)), next(iter(shared), None))


def rank_report(report: Report) -> Verdicts:
    """The objectives on each shared metric; the one of the first sentence is first."""
    key = KEYS.get(report.budget.kind, "flops")
    main, shared = find_main(report), report.list_shared()
    shared = sorted(shared, key=lambda metric: metric is not main)
    costs = {
        name: statistics.fmean(known)
        for name, runs in report.groups.items()
        if (known := [x for run in runs if is_number(x := run.cost(key))])
    }
    rankings = tuple(
        Ranking(metric, rank_systems(metric, costs), names=tuple(report.groups))
        for metric in shared
    )
    tested = [
        pair
        for metric in shared
        for pair in (*metric.pairs, *metric.bounds)
        if pair.outcome != "untested"
    ]
    unit = WRITE[report.budget.kind][0] if report.budget.kind in WRITE else "FLOPs"
    return Verdicts(rankings, report.alpha, len(tested), kind="objective", cost=unit)


def write_first_note(report: Report, verdicts: Verdicts) -> str:
    """The note below the first table."""
    notes = [verdicts.write_note(ranking) for ranking in verdicts.rankings[:1]]
    return " ".join(note for note in [*notes, word_learning_rates(report)] if note)


def list_others(verdicts: Verdicts) -> list[str]:
    """A line for each shared metric but the first, with who is not above baselines."""
    return [
        ranking.sentence + f"; {ranking.weak}" * bool(ranking.weak)
        for ranking in verdicts.rankings[1:]
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
    """Which objective leads on the first metric with a verdict."""
    cost, metric = word_cost(report.budget), find_main(report)
    if metric is None or not word_best(metric):
        return f"{cost}, no shared metric was measured for two objectives."
    return f"{cost}, {word_best(metric)} on {metric.label}."


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
