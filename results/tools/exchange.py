"""How much of a metric is worth how many FLOPs, from the baseline's learning curve.

    python results/tools/exchange.py                      the rates of all objectives
    python results/tools/exchange.py FOLDER OTHER         compares two records
    python results/tools/exchange.py --add DIR [DIR ...]  adds finished comparisons

`curve.json` has runs of each objective's baseline at several budgets, each trained to
its end. The rate b is the slope at the target of

    metric = a + b x + c x^2 + noise,     x = ln FLOPs - ln FLOPs at the target

by least squares over all runs, so twice the cost is worth b ln 2. Its standard error is
that of least squares, with the x of the target held fixed. A run with cost C and value
m is equivalent to one that reaches the target exactly at the cost C' with

    ln C' = ln C + (target - m) / b

The rate is local: a value that is further from the target than a factor `MOST` of the
cost counts as that factor. A record is better than another if the mean of ln C' over
its seeds is lower, by a one-sided t-test with the variances of both means and that of b
(Welch-Satterthwaite degrees of freedom).
"""

import json
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

from jaxpt.errors import DataError, UserError
from jaxpt.files.folder import load_json
from jaxpt.report.formats import format_flops

ROOT = Path(__file__).parents[1] / "speedruns"
CURVE, TARGETS = "curve.json", "targets.json"
SCALE = "cpu"  # of the baselines
MOST = 2.0
# Of curve.json: by objective the config, the metric and (FLOPs, seed, value) of runs.
CURVES = {str: {"config": str, "metric": str, "points": [[object]]}}


class Rate(NamedTuple):
    """The slope of a metric by the logarithm of FLOPs, at the target.

    Attributes:
      slope: of the metric for each unit of ln FLOPs; error: its standard error.
      dof: degrees of freedom of `error`.
      sigma: the standard deviation over seeds at one budget, pooled over budgets.
      flops: at which the baseline reaches the target.
    """

    metric: str
    slope: float
    error: float
    dof: int
    sigma: float
    flops: float

    def describe(self) -> str:
        """The rate in one line."""
        two = math.log(2)
        return (
            f"{self.metric} {two * self.slope:+.4f} for twice the FLOPs (standard "
            f"error {two * self.error:.4f}, {self.dof} degrees of freedom); standard "
            f"deviation over seeds {self.sigma:.4f}; the baseline reaches the target "
            f"at {format_flops(self.flops)} FLOPs"
        )


class Exchange(NamedTuple):
    """Two records at one target.

    Attributes:
      ratio: the equivalent cost of the first divided by that of the second.
      low, high: its 95 % interval.
      p: of the one-sided test that the first is cheaper.
    """

    ratio: float
    low: float
    high: float
    p: float


def fit_rate(metric: str, points: Sequence[Sequence[float]], target: float) -> Rate:
    """The rate of runs, as (FLOPs, seed, value).

    >>> points = [(c, s, 3 - 0.5 * math.log(c) + s) for c in (1, 2, 4) for s in (0, 1)]
    >>> rate = fit_rate("bits_per_byte", points, 3.5 - 0.5 * math.log(3))
    >>> round(rate.slope, 6), round(rate.flops, 6), round(rate.sigma, 6), rate.dof
    (-0.5, 3.0, 0.707107, 3)
    """
    flops, _, values = np.array(points, float).reshape(-1, 3).T
    groups = [values[flops == each] for each in np.unique(flops)]
    if len(groups) < 3 or min(map(len, groups)) < 2:
        raise DataError(f"{CURVE}: {metric}: needs 3 budgets with 2 seeds each")
    x = np.log(flops)
    place = _find_crossing(x, values, target)
    design = np.stack([np.ones_like(x), x - place, (x - place) ** 2], axis=1)
    found, rest, _, _ = np.linalg.lstsq(design, values)
    dof = len(values) - 3
    variance = rest[0] / dof * np.linalg.inv(design.T @ design)[1, 1]
    within = sum(((each - each.mean()) ** 2).sum() for each in groups)
    return Rate(
        metric,
        float(found[1]),
        float(math.sqrt(variance)),
        dof,
        float(math.sqrt(within / (len(values) - len(groups)))),
        float(math.exp(place)),
    )


def _find_crossing(x: np.ndarray, values: np.ndarray, target: float) -> float:
    """Where the parabola through the values has the target, between the budgets.

    Raises:
      DataError: nowhere there.
    """
    middle = x.mean()
    c, b, a = np.polyfit(x - middle, values, 2)
    roots = np.roots([c, b, a - target]) + middle
    inside = [
        float(root.real)
        for root in roots
        if abs(root.imag) < 1e-9 and x.min() <= root.real <= x.max()
    ]
    if len(inside) != 1:
        raise DataError(f"{CURVE}: must reach the target {target:g} within its budgets")
    return inside[0]


def list_costs(
    values: Sequence[float], flops: Sequence[float], target: float, rate: Rate
) -> np.ndarray:
    """ln C' of each run: the cost at which it would be at the target.

    >>> rate = Rate("accuracy", 0.1, 0.01, 7, 0.01, 8.0)
    >>> list_costs([0.6, 0.6 + 0.1 * math.log(2)], [8.0, 8.0], 0.6, rate).round(6)
    array([2.079442, 1.386294])
    """
    shift = (target - np.array(values)) / rate.slope
    most = math.log(MOST)
    return np.log(np.array(flops)) + np.clip(shift, -most, most)


def compare(
    one: Sequence[float],
    other: Sequence[float],
    lead: float,
    rate: Rate,
) -> Exchange:
    """Compares the ln C' of two records.

    Args:
      lead: the mean of the metric of the first minus that of the second, which
        multiplies the error of 1 / b.
    """
    first, second = np.array(one), np.array(other)
    difference = first.mean() - second.mean()
    parts = [
        (first.var(ddof=1) / len(first), len(first) - 1),
        (second.var(ddof=1) / len(second), len(second) - 1),
        ((lead * rate.error / rate.slope**2) ** 2, rate.dof),
    ]
    variance = sum(part for part, _ in parts)
    if variance == 0:
        p = 0.0 if difference < 0 else 1.0
        return Exchange(*[math.exp(difference)] * 3, p)
    dof = variance**2 / sum(part**2 / n for part, n in parts)
    error = math.sqrt(variance)
    half = float(stats.t.ppf(0.975, dof)) * error
    ends = math.exp(difference - half), math.exp(difference + half)
    return Exchange(
        math.exp(difference), *ends, float(stats.t.cdf(difference / error, dof))
    )


def load_curves(root: Path = ROOT) -> dict:
    """The runs of baselines, by objective; {} if there are none."""
    path = root / CURVE
    if not path.exists():
        return {}
    return load_json(path, CURVES, "must have the runs of baselines")


def load_rates(root: Path = ROOT) -> dict[str, Rate]:
    """The rate of each objective that has runs."""
    scales = load_json(root / TARGETS, {"scales": {str: {str: object}}}, "")["scales"]
    rates = {}
    for name, curve in load_curves(root).items():
        rule = scales[SCALE]["objectives"][name]
        if curve["points"]:
            target = rule.get("below", rule.get("above"))
            rates[name] = fit_rate(curve["metric"], curve["points"], target)
    return rates


def add(root: Path, folders: Iterable[Path]) -> dict:
    """Adds the runs of finished comparisons to the curves of their objectives.

    A run with the FLOPs and the seed of an earlier one takes its place.
    """
    curves = load_curves(root)
    for folder in folders:
        report = load_json(folder / "report.json", {"runs": [{str: object}]}, "")
        for run in report["runs"]:
            if run["objective"] not in curves:
                raise DataError(
                    f"{folder}: {run['objective']}: must be an objective of {CURVE}"
                )
            curve = curves[run["objective"]]
            own = {(x[0], x[1]): x for x in curve["points"]}
            value = run["metrics"][curve["metric"]]
            own[run["flops"], run["seed"]] = [run["flops"], run["seed"], value]
            curve["points"] = [own[key] for key in sorted(own)]
    text = json.dumps(curves, indent=1)
    (root / CURVE).write_text(text + "\n", encoding="utf-8")
    return curves


def main(words: list[str]) -> int:
    """Prints rates, or a comparison of two records; returns the exit code."""
    if words[:1] == ["--add"] and len(words) > 1:
        add(ROOT, map(Path, words[1:]))
        words = []
    if words and len(words) != 2:
        print((__doc__ or "").strip())
        return 0 if words in (["-h"], ["--help"]) else 2
    try:
        if words:
            from speedruns import check_record, exchange_records

            one, other = (check_record(Path(word)) for word in words)
            print(exchange_records(one, other))
            return 0
        for name, rate in load_rates().items():
            print(f"{name}: {rate.describe()}")
    except UserError as error:
        print(f"error: {error}")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
