"""The first answer of a report: which objective is best, by how much, at which cost.

`list_conclusions` has it in a few sentences, for the terminal and the top of the page;
`list_answers` has a row for each shared metric. Neither claims more than the verdicts.
"""

import statistics
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from jaxpt.judge.verdicts import MIN_SEEDS
from jaxpt.report.diverged import word_left_out
from jaxpt.report.formats import (
    MISSING,
    format_count,
    format_flops,
    format_number,
    format_p,
    format_seconds,
    group_by_name,
    is_number,
)
from jaxpt.report.wording import (
    BAG_OF_NGRAMS,
    FREQUENCIES,
    FREQUENCY,
    NGRAMS,
    RANDOM_INIT,
    REFERENCE,
    UNTRAINED,
    name_part,
    read_baselines,
    word_at_most,
    word_untested,
)

MAX_NAMES = 4  # listed in a sentence; more are counted
CHOICE = "choice_bayes_accuracy"  # has a chance level of 1 / eval.num_choices
LEARNING_RATE = "optim.lr"


class Answer(NamedTuple):
    """One shared metric's row of the first table: sentences, or parts of them."""

    metric: str
    result: str
    difference: str
    certainty: str
    cost: str


def list_shared(report: Mapping) -> list[dict]:
    """The entries of the shared metrics that were measured for any objective."""
    return [e for e in report["metrics"] if e["is_common"] and e["by_name"]]


def list_conclusions(report: Mapping) -> list[str]:
    """The report's answer in sentences: differences, baselines, learning rates."""
    baselines = _conclude_baselines(report)
    return [
        _conclude_differences(report),
        *([baselines] if baselines else []),
        word_learning_rates(report),
    ]


def word_cost(budget: Mapping) -> str:
    """The cost at which runs are compared, as the beginning of a sentence."""
    if not budget["amount"]:
        return "At costs that are not equal"
    return f"At {format_amount(budget)} per run"


def format_amount(budget: Mapping) -> str:
    """A budget's amount with its unit."""
    write = {"flops": format_flops, "operations": format_flops}
    write["seconds"] = "{:,.6g}".format
    amount = write.get(budget["kind"], "{:,.0f}".format)(budget["amount"])
    kind = {"flops": "FLOPs"}.get(budget["kind"], budget["kind"].replace("_", " "))
    return f"{amount} {kind}"


def _conclude_differences(report: Mapping) -> str:
    """Which objectives differ significantly on which shared metrics."""
    labels: dict[str, list[str]] = {}
    for entry in list_shared(report):
        clause = _word_differences(_name_parts(entry))
        if clause:
            labels.setdefault(clause, []).append(entry["label"])
    cost = word_cost(report["budget"])
    if not labels:
        return f"{cost}, no shared metric was measured for two objectives."
    clauses = (f"{clause} on {_join(names)}" for clause, names in labels.items())
    return f"{cost}, {'; '.join(clauses)}."


def _word_differences(entry: dict) -> str:
    """Which objectives differ from the best one; "" if only one was measured."""
    ranked, pairs = rank(entry), entry["pairs"]
    if len(ranked) < 2 or not pairs:
        return ""
    if entry.get("control"):
        return _word_control(entry)
    best = ranked[0]
    outcomes = {
        pair["worse"] if pair["better"] == best else pair["better"]: pair["outcome"]
        for pair in pairs
        if best in (pair["better"], pair["worse"])
    }
    worse = [name for name in ranked if outcomes.get(name) == "ahead"]
    same = [name for name in ranked if outcomes.get(name) in ("tie", "equivalent")]
    num_others = len(ranked) - 1
    if all(pair["outcome"] == "untested" for pair in pairs):
        return _word_few(pairs)
    at_most = _word_at_most(p for p in pairs if best in (p["better"], p["worse"]))
    if worse:
        clause = f"{best} is significantly better than {_join(worse, num_others)}"
        if same:
            clause += f" and not significantly different from {_join(same)}{at_most}"
        return clause
    if all(pair["outcome"] != "ahead" for pair in pairs):
        names = "all" if len(ranked) > MAX_NAMES else _join(sorted(ranked))
        return f"{names} do not differ significantly{_word_at_most(pairs)}"
    if not same:
        return f"{best} has the best mean but no verdict"
    return (
        f"{best} has the best mean but is not significantly different from "
        f"{_join(same)}{at_most}"
    )


def _word_control(entry: dict) -> str:
    """Which objectives differ from the control."""
    control, pairs = entry["control"], entry["pairs"]
    if all(pair["outcome"] == "untested" for pair in pairs):
        return _word_few(pairs)
    ahead = [pair for pair in pairs if pair["outcome"] == "ahead"]
    better = [pair["better"] for pair in ahead if pair["worse"] == control]
    worse = [pair["worse"] for pair in ahead if pair["better"] == control]
    if not ahead:
        return f"none is significantly different from {control}{_word_at_most(pairs)}"
    clauses = []
    if better:
        verb = "is" if len(better) == 1 else "are"
        clauses.append(f"{_join(better)} {verb} significantly better than {control}")
    if worse:
        num = len(entry["by_name"]) - 1
        clauses.append(f"{control} is significantly better than {_join(worse, num)}")
    return " and ".join(clauses)


def _word_few(pairs: Iterable[Mapping]) -> str:
    """Why none of these pairs has a verdict."""
    num = max(pair["seeds"] for pair in pairs)
    seeds = f"{num} seed{'s' * (num != 1)}"
    return f"no verdict is possible from {seeds} ({MIN_SEEDS} are needed)"


def _word_at_most(pairs: Iterable[Mapping]) -> str:
    """ " (at most 0.047)": the largest difference of pairs that do not differ."""
    ends = [p["at_most"] for p in pairs if p["outcome"] in ("tie", "equivalent")]
    if not ends or not all(map(is_number, ends)):
        return ""
    return f" (at most {format_number(max(ends))})"


def _join(names: Collection[str], num_all: int = 0) -> str:
    """Names as text: "a, b and c", or how many there are of more than `MAX_NAMES`."""
    *first, last = names
    if len(names) > MAX_NAMES:
        if len(names) == num_all:
            return f"all {num_all} others"
        listed = first[: MAX_NAMES - 1]
        return f"{', '.join(listed)} and {len(names) - len(listed)} more"
    return f"{', '.join(first)} and {last}" if first else last


def _conclude_baselines(report: Mapping) -> str:
    """Which objectives are not significantly above a baseline, on which metric."""
    weak, tested = [], []
    for entry in list_shared(report):
        names: dict[str, list[str]] = {}
        words = name_baselines(entry)
        results = read_baselines(entry, words)
        for name, outcomes in results.items():
            controls = [words[c] for c, how in outcomes.items() if how != "above"]
            if controls:
                part = name_part(entry, name)
                names.setdefault(_join(controls), []).append(part)
        parts = [
            f"{_join(members)} ({controls})" for controls, members in names.items()
        ]
        if parts:
            weak.append(f"{', '.join(parts)} on {entry['label']}")
        if results:
            tested.append(entry["label"])
    if weak:
        return f"Not significantly better than a baseline: {'; '.join(weak)}."
    if not tested:
        return ""
    return f"All are significantly better than the baselines on {_join(tested)}."


def name_baselines(entry: Mapping) -> dict[str, str]:
    """By baseline of a metric, its name in text."""
    return {
        UNTRAINED: RANDOM_INIT,
        FREQUENCY: FREQUENCIES,
        REFERENCE: entry["reference"],
        NGRAMS: BAG_OF_NGRAMS,
    }


def find_levels(report: Mapping, entry: dict) -> dict[str, float]:
    """The chance level and the baselines of a metric, each the mean over objectives."""
    levels: dict[str, list[float]] = {}
    num_choices = report["config"].get("eval", {}).get("num_choices")
    if entry["metric"] == CHOICE and num_choices:
        levels["chance"] = [1 / num_choices]
    words, sign = name_baselines(entry), 1 if entry["higher_is_better"] else -1
    for pair in entry["baselines"]:
        is_better = pair["worse"] in words
        control = pair["worse" if is_better else "better"]
        mean = entry["by_name"][pair["better" if is_better else "worse"]]["mean"]
        if control in words and is_number(pair["difference"]):
            gap = sign * pair["difference"] * (1 if is_better else -1)
            levels.setdefault(words[control], []).append(mean - gap)
    return {name: statistics.fmean(values) for name, values in levels.items()}


def word_sizes(groups: Mapping[str, list[dict]]) -> str:
    """The number of parameters, of all objectives or of each if they differ."""
    sizes = {
        name: format_count(statistics.fmean(run["params"] for run in runs))
        for name, runs in groups.items()
    }
    if len(set(sizes.values())) == 1:
        return f"{next(iter(sizes.values()))} parameters"
    return f"parameters: {', '.join(f'{n} {size}' for n, size in sizes.items())}"


def word_learning_rates(report: Mapping) -> str:
    """Whether learning rates were tuned, and to which values."""
    tuned = {
        name: record
        for name, record in report.get("tuning", {}).items()
        if record["trials"] and LEARNING_RATE in record["chosen"]
    }
    if tuned:
        values = (f"{n} {r['chosen'][LEARNING_RATE]}" for n, r in tuned.items())
        rest = [n for n in group_by_name(report["runs"]) if n not in tuned]
        also = f"; not tuned for {_join(rest)}" if rest else ""
        return f"Learning rates were tuned per objective ({', '.join(values)}){also}."
    return "Learning rates were not tuned."


def list_answers(report: dict, groups: Mapping[str, list[dict]]) -> list[Answer]:
    """The answer on each shared metric that was measured for any objective.

    Args:
      groups: the runs of each name, in the report's order.
    """
    answers = []
    for entry in list_shared(report):
        answer = _answer(entry, groups)
        left_out = word_left_out(report, entry["by_name"])
        answers.append(answer._replace(result=answer.result + left_out))
    return answers


def _answer(entry: dict, groups: Mapping[str, list[dict]]) -> Answer:
    shown = _find_shown(entry)
    cost = "\n".join(_word_run_cost(name, groups[name]) for name in shown)
    entry = _name_parts(entry)
    ranked, shown = rank(entry), _find_shown(entry)
    better = "higher" if entry["higher_is_better"] else "lower"
    label = f"{entry['label']} ({better} is better)"
    value = entry["by_name"][ranked[0]]["mean"]
    alone = f"{ranked[0]} reaches {value:.3f}"
    if len(ranked) == 1:
        result = f"Only {ranked[0]} supports this metric."
        return Answer(label, result, alone, MISSING, cost)
    first, second = shown
    pair = next(
        (p for p in entry["pairs"] if {p["better"], p["worse"]} == {first, second}),
        None,
    )
    if pair is None and entry.get("control") not in (None, *ranked):
        result = f"No verdict: {entry['control']} was not measured."
        return Answer(label, result, alone, MISSING, cost)
    if pair is None:  # runs that were trained apart may have different test examples
        result = f"No verdict between {first} and {second}: their tests differ."
        return Answer(label, result, alone, MISSING, cost)
    difference = pair["difference"]
    text = f"{pair['better']} over {pair['worse']}: {format_number(difference)}"
    if is_number(pair["low"]) and is_number(pair["high"]):
        ends = f"{format_number(pair['low'])}, {format_number(pair['high'])}"
        text += f" [{ends}]"
    stats = entry["by_name"]
    means = (f"{stats[pair[key]]['mean']:.3f}" for key in ("better", "worse"))
    text += f"\nmeans {' and '.join(means)}"
    result = _word_result(entry, ranked)
    return Answer(label, result, text, _word_certainty(pair), cost)


def _find_shown(entry: Mapping) -> list[str]:
    """The two best names, or the control and the best other; fewer if fewer exist."""
    ranked, control = rank(entry), entry.get("control")
    if control not in ranked:
        return ranked[:2]
    others = [name for name in ranked if name != control]
    return sorted({control, *others[:1]}, key=ranked.index)


def _name_parts(entry: dict) -> dict:
    """The entry of a metric with `name_part` instead of names."""
    keys = ("better", "worse")
    pairs = [
        pair | {key: name_part(entry, pair[key]) for key in keys}
        for pair in entry["pairs"]
    ]
    stats = entry["by_name"].items()
    by_name = {name_part(entry, name): values for name, values in stats}
    changed: dict = {"pairs": pairs, "by_name": by_name}
    if control := entry.get("control"):
        changed["control"] = name_part(entry, control)
    return entry | changed


def rank(entry: Mapping) -> list[str]:
    """The names that a metric was measured for, the best mean first."""
    sign = -1 if entry["higher_is_better"] else 1
    means = {name: stats["mean"] for name, stats in entry["by_name"].items()}
    return sorted(means, key=lambda name: (sign * means[name], name))


def _word_result(entry: dict, ranked: list[str]) -> str:
    """Which objective is significantly better, in one sentence."""
    pairs, best = entry["pairs"], ranked[0]
    if all(pair["outcome"] == "untested" for pair in pairs):
        return f"No verdict. {best} has the best mean."
    num_others = len(ranked) - 1
    if control := entry.get("control"):
        ahead = [pair for pair in pairs if pair["outcome"] == "ahead"]
        num_better = sum(pair["worse"] == control for pair in ahead)
        if not ahead:
            return f"No significant difference from {control}{_word_at_most(pairs)}."
        return (
            f"Of {num_others} others, {num_better} are significantly better than "
            f"{control} and {len(ahead) - num_better} are worse."
        )
    num_worse = sum(p["outcome"] == "ahead" and p["better"] == best for p in pairs)
    if num_worse == num_others:
        worse = ranked[1] if num_others == 1 else f"all {num_others} others"
        return f"{best} is ahead of {worse}."
    if num_worse:
        worse = f"{num_worse} of {num_others} others"
        return f"{best} has the best mean and is ahead of {worse}."
    outcomes = {pair["outcome"] for pair in pairs}
    if "ahead" in outcomes:
        return f"{best} has the best mean, but is ahead of none."
    if outcomes == {"equivalent"}:
        return "All are equivalent."
    at_most = _word_at_most(pairs)
    return f"No significant difference{at_most}. {best} has the best mean."


def _word_certainty(pair: Mapping) -> str:
    """The significance of a pair's difference, with the number of samples."""
    if pair["outcome"] == "untested":
        return f"{word_untested(pair['seeds'])}".capitalize()
    outcome = {
        "ahead": "significantly different",
        "equivalent": "equivalent: the interval is within the margin",
        "tie": f"no significant difference{word_at_most(pair['at_most'])}",
    }[pair["outcome"]]
    unit = "blocks of the test text" if pair["blocks"] else "test documents"
    documents = f" and {pair['documents']} {unit}" if pair["documents"] else ""
    p = format_p(pair["p"])
    p = p if p.startswith("<") else f"= {p}"
    return f"{outcome}; p {p}, {pair['seeds']} seeds{documents}"


def _word_run_cost(name: str, runs: Iterable[Mapping]) -> str:
    """The cost of one run of a name, as the mean over its seeds."""
    parts = []
    for key, unit, write in (
        ("flops", "FLOPs", format_flops),
        ("train_seconds", "s", format_seconds),
    ):
        values = [run[key] for run in runs if is_number(run.get(key))]
        if values:
            parts.append(f"{write(statistics.fmean(values))} {unit}")
    return f"{name}: {', '.join(parts)}"
