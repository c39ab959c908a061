"""Simulated error rates and power of verdicts (docs/explanation/statistics.md).

    .venv/bin/python tests/benchmarks/error_rate.py --draws 4000

Prints Markdown tables. "rate" is the share of comparisons of equal objectives in which
any verdict says "ahead" (alpha is 0.05). No model is trained. The verdicts are those of
`comparisons.judge_arrays`, which a test compares with `statistics.verdicts.judge`.
"""

import argparse
import functools
import itertools
import pathlib
import sys

import numpy as np
from scipy import stats
from scipy.special import stdtrit

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from comparisons import (
    SPREADS,
    Case,
    Drawn,
    draw_many,
    find_rate,
    judge_arrays,
    list_cases,
    to_results,
)

from jaxpt.comparison.studies import list_studies
from jaxpt.judge import ALPHA
from jaxpt.judge.assumptions import check_seeds
from jaxpt.judge.unpaired import Sample, half_width

NUM_SEEDS = (4, 5, 10)
RESULTS = pathlib.Path(__file__).parents[2] / "results"


def print_rates(num_draws: int) -> None:
    """The mean rate over all kinds of comparisons, and in brackets the largest."""
    print("\n| objectives | kinds | 4 seeds | 5 seeds | 10 seeds |")
    print("|---|---|---|---|---|")
    rates: dict[int, dict[int, list[float]]] = {}
    for case in list_cases():
        num = num_draws // 4 if case.num_documents else num_draws
        rate = find_rate(case, num, batch=100 if case.num_documents else 1000)
        of_names = rates.setdefault(case.num_names, {})
        of_names.setdefault(case.num_seeds, []).append(rate)
    for names, by_seeds in rates.items():
        cells = [f"{np.mean(of):.3f} ({max(of):.3f})" for of in by_seeds.values()]
        num_kinds = len(by_seeds[NUM_SEEDS[0]])
        print(f"| {names} | {num_kinds} | {' | '.join(cells)} |")


def welch(first: Sample, second: Sample, level: float) -> np.ndarray:
    """Half the width of Welch's interval."""
    a, b = first.variance, second.variance
    freedom = (first.num - 1) * (a + b) ** 2 / (a**2 + b**2)
    return -stdtrit(freedom, level / 2) * np.sqrt(a + b)


def games_howell(
    num_names: int, first: Sample, second: Sample, level: float
) -> np.ndarray:
    """Half the width of Games and Howell's interval (1976)."""
    a, b = first.variance, second.variance
    share = (a**2 + b**2) / ((first.num - 1) * (a + b) ** 2)
    log_quantile = np.interp(share, *_tabulate_ranges(num_names, level))
    return np.exp(log_quantile) * np.sqrt((a + b) / 2)


@functools.cache
def _tabulate_ranges(num_names: int, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Logs of the studentized range's quantile, by 1 / degrees of freedom."""
    shares = np.linspace(0.002, 0.5, 40)
    quantiles = stats.studentized_range.ppf(1 - level, num_names, 1 / shares)
    return shares, np.log(quantiles)


def print_procedures(num_draws: int) -> None:
    """Procedures of unpaired seeds: worst rates; half widths in seed deviations."""
    cells = [f"half width, {num} seeds" for num in NUM_SEEDS]
    print(f"\n| interval | 4 | 14 | 2, ten metrics | {' | '.join(cells)} |")
    print("|---|---|---|---|---|---|---|")
    for label in ("Welch", "Games-Howell", "Games-Howell at 0.04", "stricter Welch"):
        worst = []
        for names, metrics in ((4, 1), (14, 1), (2, 10)):
            options = _make_options(label, names, metrics)
            worst.append(
                max(
                    find_rate(case, num_draws, batch=1000, **options)
                    for num in NUM_SEEDS
                    for spreads in SPREADS
                    for case in [Case(names, num, 0, 1.0, False, spreads, metrics)]
                )
            )
        widths = []
        for num in NUM_SEEDS:
            drawn = draw_many(np.random.default_rng(0), Case(4, num, 0, 1.0), num_draws)
            half = judge_arrays(drawn, **_make_options(label, 4, 1)).half
            widths.append(f"{np.median(half):.2f}")
        rates = " | ".join(f"{rate:.3f}" for rate in worst)
        print(f"| {label} | {rates} | {' | '.join(widths)} |")


def _make_options(label: str, num_names: int, num_metrics: int) -> dict:
    if label == "Welch":
        return {"seeds_width": welch}
    if label == "stricter Welch":
        return {"seeds_width": half_width}
    level = (0.04 if "0.04" in label else ALPHA) / num_metrics
    return {"seeds_width": functools.partial(games_howell, num_names), "level": level}


def print_laws(num_draws: int) -> None:
    """Rates of two objectives if seeds are not normal; those without a warning."""
    print("\n| seeds are | 4 seeds | 5 seeds | 10 seeds |")
    print("|---|---|---|---|")
    one_wider = (5.0, 1.0)
    laws = [("t2", (1.0,), 0.0), ("exponential", (1.0,), 0.0)]
    laws += [("exponential", one_wider, 0.0), ("exponential", one_wider, 1.0)]
    laws += [("lognormal", (1.0,), 0.0)]
    laws += [("lognormal", one_wider, 0.0), ("lognormal", one_wider, 1.0)]
    laws += [("plateau", (1.0,), 0.0)]
    for law, spreads, shared in laws:
        cells = []
        for num_seeds in NUM_SEEDS:
            case = Case(2, num_seeds, 0, 1.0, False, spreads, law=law, shared=shared)
            cells.append(_word_rate(case, num_draws))
        label = law if spreads == (1.0,) else f"{law}, one objective 5 times wider"
        label += ", a common normal part" if shared else ""
        print(f"| {label} | {' | '.join(cells)} |")

    cases = [Case(2, num, 24, 1.0, True, (30.0, 1.0)) for num in NUM_SEEDS]
    rates = " | ".join(_word_rate(case, num_draws) for case in cases)
    print(f"| nearly all right or nearly all wrong, for one objective | {rates} |")


def _word_rate(case: Case, num_draws: int) -> str:
    """The rate of a case, and that of comparisons without a warning."""
    drawn = draw_many(np.random.default_rng(0), case, num_draws)
    wrong = np.flatnonzero(judge_arrays(drawn).ahead.any((1, 2)))
    silent = sum(not has_warning(drawn, place) for place in wrong)
    return f"{len(wrong) / num_draws:.3f} ({silent / num_draws:.3f})"


def has_warning(drawn: Drawn, place: int) -> bool:
    """Whether the report of this comparison would have a warning."""
    (results,) = to_results(drawn, place)
    return bool(check_seeds("m", results.values))


def print_added_seeds(num_draws: int) -> None:
    """Rates if seeds are added after no difference was found, and all judged again."""
    print("\n| seeds | first | any of them |")
    print("|---|---|---|")
    for looks in ((4, 8), (4, 8, 16), (4, 5, 6, 7)):
        case = Case(4, looks[-1], 0, 1.0)
        drawn = draw_many(np.random.default_rng(0), case, num_draws)
        found = np.array(
            [
                judge_arrays(Drawn(drawn.values[..., :num], None)).ahead.any((1, 2))
                for num in looks
            ]
        )
        written = ", then ".join(map(str, looks))
        print(f"| {written} | {found[0].mean():.3f} | {found.any(0).mean():.3f} |")


def print_power(num_draws: int) -> None:
    """How often a lead of 2 and 4 standard deviations over seeds is found."""
    print("\n| seeds | lead of 2 | lead of 4 | half width |")
    print("|---|---|---|---|")
    for num_seeds in NUM_SEEDS:
        cells = []
        for lead in (2.0, 4.0):
            case = Case(4, num_seeds, 0, 1.0, lead=lead)
            output = judge_arrays(draw_many(np.random.default_rng(0), case, num_draws))
            with_first = np.array([0 in pair for pair in output.pairs])
            is_found = output.ahead & (output.difference > 0)
            cells.append(f"{is_found[..., with_first].mean():.2f}")
        cells.append(f"{np.median(output.half):.2f}")
        print(f"| {num_seeds} | {' | '.join(cells)} |")


def print_coverage(num_draws: int) -> None:
    """How often all intervals contain the true difference, if one objective leads."""
    print("\n| objectives | 4 seeds | 5 seeds | 10 seeds |")
    print("|---|---|---|---|")
    for names in (2, 4, 14):
        cells = []
        for num_seeds in NUM_SEEDS:
            worst = 1.0
            for spreads in SPREADS:
                case = Case(names, num_seeds, 0, 1.0, False, spreads, lead=60.0)
                drawn = draw_many(np.random.default_rng(0), case, num_draws)
                output = judge_arrays(drawn)
                truth = np.array(
                    [60.0 if pair[0] == 0 else 0.0 for pair in output.pairs]
                )
                is_inside = np.abs(output.difference - truth) <= output.half
                worst = min(worst, is_inside.all((1, 2)).mean())
            cells.append(f"{worst:.3f}")
        print(f"| {names} | {' | '.join(cells)} |")


def print_pairing(root: pathlib.Path = RESULTS) -> None:
    """By metric of the archived studies, what pairs of the same seed would gain.

    The variance of the differences by seed, divided by the sum of both variances: the
    median over all pairs of objectives with four or more common seeds.
    """
    ratios: dict[str, list[float]] = {}
    for study in list_studies(root):
        report = study.report
        labels = {e["metric"]: e["label"] for e in report["metrics"] if e["is_common"]}
        for metric, label in labels.items():
            by_name: dict[str, dict[int, float]] = {}
            for run in report["runs"]:
                if (value := run["metrics"].get(metric)) is not None:
                    by_name.setdefault(run["name"], {})[run["seed"]] = value
            for one, other in itertools.combinations(by_name.values(), 2):
                seeds = sorted(one.keys() & other.keys())
                pair = np.array(
                    [[side[seed] for seed in seeds] for side in (one, other)]
                )
                total = pair.var(-1, ddof=1).sum() if len(seeds) >= 4 else 0.0
                if total > 0 and not metric.startswith("task_"):
                    ratio = (pair[0] - pair[1]).var(ddof=1) / total
                    ratios.setdefault(label, []).append(ratio)
    print("\n| metric | pairs | variance ratio |")
    print("|---|---|---|")
    for label, values in ratios.items():
        print(f"| {label} | {len(values)} | {np.median(values):.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=4000, help="comparisons per case")
    num_draws = parser.parse_args().draws
    tables = (print_procedures, print_power, print_coverage, print_laws)
    for show in (*tables, print_added_seeds, print_rates):
        show(num_draws)
    print_pairing()


if __name__ == "__main__":
    main()
