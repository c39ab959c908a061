"""Simulated error rates and power of verdicts (docs/explanation/statistics.md).

    .venv/bin/python tests/benchmarks/error_rate.py --draws 400

Prints Markdown tables. "rate" is the share of comparisons of equal objectives in which
any verdict says "ahead" (alpha is 0.05). No model is trained.
"""

import argparse
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from comparisons import Case, draw_comparison, has_winner, judge_many, list_cases

from jaxpt.statistics.assumptions import check_seeds
from jaxpt.statistics.verdicts import judge


def print_rates(num_draws: int) -> None:
    """The mean rate over all kinds of comparisons, and in brackets the largest."""
    print("\n| objectives | 2 seeds | 3 seeds | 5 seeds | 10 seeds |")
    print("|---|---|---|---|---|")
    rates: dict[int, dict[int, list[float]]] = {}
    for case in list_cases():
        num = num_draws if case.num_names < 14 else num_draws // 4
        rate = sum(map(has_winner, judge_many(case, num))) / num
        of_names = rates.setdefault(case.num_names, {})
        of_names.setdefault(case.num_seeds, []).append(rate)
    for names, by_seeds in rates.items():
        cells = [f"{np.mean(of):.3f} ({max(of):.3f})" for of in by_seeds.values()]
        print(f"| {names} | {' | '.join(cells)} |")


def print_laws(num_draws: int) -> None:
    """Rates of two objectives if seeds are not normal; those without a warning."""
    print("\n| seeds are | 3 seeds | 5 seeds | 10 seeds |")
    print("|---|---|---|---|")
    laws = [("t2", 1.0), ("exponential", 1.0), ("exponential", 5.0)]
    laws += [("lognormal", 1.0), ("lognormal", 5.0), ("plateau", 1.0)]
    for law, noise in laws:
        cells = []
        for num_seeds in (3, 5, 10):
            case = Case(2, num_seeds, 0, 1.0, False, noise, law=law)
            draw, wrong, silent = np.random.default_rng(0), 0, 0
            for _ in range(num_draws):
                (results,) = draw_comparison(draw, case)
                pairs = judge([results])
                wrong += has_winner(pairs)
                has_warning = check_seeds("m", results.values, pairs)
                silent += has_winner(pairs) and not has_warning
            cells.append(f"{wrong / num_draws:.3f} ({silent / num_draws:.3f})")
        label = law if noise == 1 else f"{law}, one objective {noise:g} times wider"
        print(f"| {label} | {' | '.join(cells)} |")


def print_added_seeds(num_draws: int) -> None:
    """Rates if seeds are added after a tie and all of them are judged again."""
    print("\n| seeds | first | any of them |")
    print("|---|---|---|")
    for looks in ((3, 6), (3, 6, 12), (2, 3, 4, 5)):
        draw, first, wrong = np.random.default_rng(0), 0, 0
        case = Case(4, looks[-1], 0, 1.0)
        for _ in range(num_draws):
            (results,) = draw_comparison(draw, case)
            result = []
            for num in looks:
                values = {
                    name: {seed: of[seed] for seed in range(num)}
                    for name, of in results.values.items()
                }
                result.append(has_winner(judge([results._replace(values=values)])))
            first += result[0]
            wrong += any(result)
        written = ", then ".join(map(str, looks))
        print(f"| {written} | {first / num_draws:.3f} | {wrong / num_draws:.3f} |")


def print_power(num_draws: int) -> None:
    """How often a lead of 2 and 4 standard deviations over seeds is found."""
    print("\n| seeds | lead of 2 | lead of 4 |")
    print("|---|---|---|")
    for num_seeds in (3, 5, 10):
        shares = []
        for lead in (2.0, 4.0):
            case = Case(4, num_seeds, 0, 1.0, lead=lead)
            ahead = sum(
                pair.outcome == "ahead" and pair.better == "n0"
                for pairs in judge_many(case, num_draws)
                for pair in pairs
            )
            shares.append(f"{ahead / num_draws / 3:.2f}")
        print(f"| {num_seeds} | {' | '.join(shares)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=400, help="comparisons per case")
    num_draws = parser.parse_args().draws
    for show in (print_power, print_laws, print_added_seeds, print_rates):
        show(num_draws)


if __name__ == "__main__":
    main()
