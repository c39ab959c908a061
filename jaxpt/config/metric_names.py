"""Metrics by the names of earlier versions, in finished runs and in settings.

Files keep the names that they were written with; metrics are renamed when they are
read.
"""

import functools
import logging
from collections.abc import Mapping
from typing import Any

# By earlier name, the name since 0.2.0. Values of `heldout_` are of the held-out split
# or, without one, of the validation split; those of `fill_` are of a training batch.
RENAMED = {
    "fill_top1": "masked_accuracy",
    "fill_top5": "masked_top5_accuracy",
    "valid_fill_top1": "valid_masked_accuracy",
    "valid_fill_top5": "valid_masked_top5_accuracy",
    "heldout_top1": "masked_accuracy",
    "heldout_top5": "masked_top5_accuracy",
    "heldout_top1_random": "masked_accuracy_random",
    "heldout_top5_random": "masked_top5_accuracy_random",
}
# Pairs of earlier names, of which the first often had the same value as the second
# next to it: the accuracy of an objective that only predicts masked tokens, and the
# validation split without a held-out split. Such a value now has one name.
REPEATED = {
    "accuracy": "fill_top1",
    "valid_accuracy": "valid_fill_top1",
    "valid_fill_top1": "heldout_top1",
    "valid_fill_top5": "heldout_top5",
}
REMOVED_IN = "0.3.0"  # the version in which settings no longer accept earlier names


def rename_metric(name: str) -> str:
    """The present name of a metric.

    >>> rename_metric("heldout_top1"), rename_metric("valid_loss")
    ('masked_accuracy', 'valid_loss')
    """
    return RENAMED.get(name, name)


def rename_metrics(values: Mapping[str, Any]) -> dict[str, Any]:
    """Recorded metrics by their present names, without repeated values.

    >>> rename_metrics({"loss": 2.0, "accuracy": 0.5, "fill_top1": 0.5})
    {'loss': 2.0, 'masked_accuracy': 0.5}
    >>> rename_metrics({"accuracy": 0.9, "fill_top1": 0.5})
    {'accuracy': 0.9, 'masked_accuracy': 0.5}
    """
    return {
        rename_metric(name): value
        for name, value in values.items()
        if REPEATED.get(name) not in values or values[REPEATED[name]] != value
    }


def rename_result(result: Any) -> Any:
    """A run's entry in a report with present names; anything else is not changed."""
    metrics = result.get("metrics") if isinstance(result, dict) else None
    if not isinstance(metrics, dict):
        return result
    renamed = rename_metrics(metrics)
    points = [rename_metrics(point) for point in result.get("curve", ())]
    old, new = "valid_accuracy", "valid_masked_accuracy"
    if old in metrics and old not in renamed:  # curves had no other accuracy
        points = [
            {new if name == old else name: value for name, value in point.items()}
            for point in points
        ]
    curve = {"curve": points} if "curve" in result else {}
    return result | {"metrics": renamed} | curve


def rename_tuning(tuning: Mapping[str, dict]) -> dict[str, dict]:
    """Records of tuning by name, each with the present name of its metric."""
    return {
        name: record | {"by": rename_metric(record["by"])}
        for name, record in tuning.items()
    }


def rename_report(report: dict) -> dict:
    """A report (report.json) with present names.

    A mean whose values are repeated under another name is left out.
    """
    runs = [rename_result(run) for run in report["runs"]]
    measured = {(run["name"], metric) for run in runs for metric in run["metrics"]}
    entries = []
    for entry in report["metrics"]:
        metric = rename_metric(entry["metric"])
        by_name = {
            name: stats
            for name, stats in entry["by_name"].items()
            if (name, metric) in measured
        }
        if by_name:
            entries.append(entry | {"metric": metric, "by_name": by_name})
    renamed = report | {"runs": runs, "metrics": entries}
    if "tuning" in report:
        renamed["tuning"] = rename_tuning(report["tuning"])
    return renamed


def accept_metric(name: str, setting: str) -> str:
    """The present name of a metric that a user has named; warns if it is another.

    Args:
      setting: that has the name as its value.
    """
    if name in RENAMED:
        _warn_once(f"{setting}={name}", RENAMED[name])
    return rename_metric(name)


@functools.cache
def _warn_once(place: str, name: str) -> None:
    logging.getLogger(__name__).warning(
        f"{place}: the metric is now {name}; jaxpt {REMOVED_IN} will not accept the "
        f"earlier name"
    )
