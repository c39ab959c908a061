"""The tuning of a comparison in words and as tables: trials, chosen settings, edges."""

from collections.abc import Mapping

from jaxpt.report.formats import format_flops
from jaxpt.report.metrics import METRICS
from jaxpt.report.pages import PageTable
from jaxpt.report.types import Trial, Tuning


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


def tabulate_trials(tuning: Mapping[str, Tuning]) -> dict[str, PageTable]:
    """By objective, its trials with their settings; the chosen one is marked."""
    tables = {}
    for name, record in tuning.items():
        if not record.trials:
            continue
        keys = list(record.trials[0].settings)
        rows = [
            ["chosen" if trial.settings == record.chosen else ""]
            + [str(trial.settings[key]) for key in keys]
            + ["diverged" if trial.value is None else f"{trial.value:.3f}"]
            for trial in record.trials
        ]
        tables[name] = PageTable(["", *keys, METRICS[record.by].label], rows)
    return tables
