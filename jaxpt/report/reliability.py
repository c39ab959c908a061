"""How reliably each shared metric ranks the objectives of a report, and the words."""

from collections.abc import Mapping

from jaxpt.judge.examples import Examples
from jaxpt.judge.reliability import LEAST, split_half
from jaxpt.report.formats import group_by_name
from jaxpt.report.metrics import list_metrics


def measure_reliability(
    runs: list[dict], examples: Mapping[tuple[str, int], Mapping[str, Examples]]
) -> dict[str, float]:
    """By shared metric, the correlation of halves of the test text (`split_half`).

    Args:
      runs: entries of a report's `runs`.
      examples: by (name, seed) and metric.
    """
    reliability: dict[str, float] = {}

    def known(run: dict) -> Mapping[str, Examples]:
        return examples.get((run["name"], run["seed"]), {})

    groups = group_by_name(runs)
    for name, metric in list_metrics(runs).items():
        if not metric.is_common:
            continue
        by_name = {
            n: [x[name] for run in of if name in (x := known(run))]
            for n, of in groups.items()
        }
        value = split_half({n: found for n, found in by_name.items() if found})
        if value is not None:
            reliability[name] = value
    return reliability


def list_reliability(report: Mapping) -> list[str]:
    """A line on all metrics, and one for each that cannot rank the objectives.

    >>> metrics = [{"metric": "a", "label": "A"}, {"metric": "b", "label": "B"}]
    >>> report = {"metrics": metrics, "reliability": {"a": 0.998, "b": 0.12}}
    >>> list_reliability(report)[1]
    'B cannot rank: reliability 0.120, below 0.5'
    """
    values = report.get("reliability", {})
    labels = {e["metric"]: e["label"] for e in report["metrics"]}
    shown = [(labels[m], value) for m, value in values.items() if m in labels]
    if not shown:
        return []
    listed = ", ".join(f"{label} {value:.3f}" for label, value in shown)
    return [
        f"reliability (correlation of the objectives' means on two halves of the test "
        f"text): {listed}",
        *(
            f"{label} cannot rank: reliability {value:.3f}, below {LEAST}"
            for label, value in shown
            if value < LEAST
        ),
    ]
