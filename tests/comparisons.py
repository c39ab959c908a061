"""Simulated comparisons: measurements of objectives whose true difference is known."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from jaxpt.statistics.examples import Examples
from jaxpt.statistics.verdicts import ALPHA, Pair, Results, judge


class Case(NamedTuple):
    """How a comparison is drawn.

    Attributes:
      num_names, num_seeds: objectives, and seeds of each.
      num_documents: test documents with five examples each; 0 stores no examples.
      seed_std: the standard deviation over seeds, in units of the standard deviation
        between the documents of one objective.
      is_binary: examples are right or wrong.
      noise: how many times as noisy the seeds of the first objective are.
      num_metrics: that are judged together.
      law: of seeds: "normal", "t2" (heavy tails), "exponential", "lognormal", or
        "plateau" (one run of five of the first objective is 20 standard deviations
        worse, and its other runs are better, so that the means are equal).
      lead: of the first objective, in standard deviations over seeds.
    """

    num_names: int = 4
    num_seeds: int = 3
    num_documents: int = 24
    seed_std: float = 0.3
    is_binary: bool = False
    noise: float = 1.0
    num_metrics: int = 1
    law: str = "normal"
    lead: float = 0.0


def list_cases() -> list[Case]:
    """Equal objectives in all kinds of comparisons, with normal seeds."""
    return [
        Case(names, seeds, documents, std, is_binary, noise)
        for names in (2, 4, 14)
        for seeds in (2, 3, 5, 10)
        for documents in (0, 5, 24, 200)
        for std in ((0.1, 0.3, 1.0) if documents else (1.0,))
        for is_binary in ((False, True) if documents else (False,))
        for noise in (1.0, 5.0)
    ]


LAWS: dict[str, Callable] = {
    "normal": lambda draw, shape: draw.normal(0, 1, shape),
    "t2": lambda draw, shape: draw.standard_t(2, shape),
    "exponential": lambda draw, shape: draw.exponential(1, shape) - 1,
    "lognormal": lambda draw, shape: draw.lognormal(0, 1, shape) - np.exp(0.5),
    "plateau": lambda draw, shape: draw.normal(0, 1, shape),
}


def draw_comparison(draw: np.random.Generator, case: Case) -> list[Results]:
    """What was measured of each objective, a `Results` for each metric."""
    return [_draw_metric(draw, case, f"m{i}") for i in range(case.num_metrics)]


def _draw_metric(draw, case: Case, metric: str) -> Results:
    shape = case.num_names, case.num_seeds
    # What a seed does to all objectives cancels in their differences.
    seeds = LAWS[case.law](draw, shape) + draw.normal(0, 1, case.num_seeds)
    if case.law == "plateau":
        seeds[0] += 4 - 20 * (draw.random(case.num_seeds) < 0.2)
    seeds[0] *= case.noise
    seeds[0] += case.lead
    seeds *= case.seed_std
    names = [f"n{i}" for i in range(case.num_names)]
    if not case.num_documents:
        values = {n: dict(enumerate(row.tolist())) for n, row in zip(names, seeds)}
        return Results(metric, True, 0.0, values, {})
    ease = draw.normal(0, 1, case.num_documents)
    taste = draw.normal(0, 1, (case.num_names, 1, case.num_documents))
    skill = ease + taste + seeds[:, :, None]
    if case.is_binary:
        totals = draw.binomial(5, 1 / (1 + np.exp(-skill))).astype(float)
    else:
        totals = 5 * skill + draw.normal(0, 5**0.5, skill.shape)
    weights = np.full(case.num_documents, 5.0)
    documents = np.arange(case.num_documents)
    examples = {
        name: {s: Examples(row, weights, documents) for s, row in enumerate(rows)}
        for name, rows in zip(names, totals)
    }
    values = {n: {s: e.mean for s, e in of.items()} for n, of in examples.items()}
    return Results(metric, True, 0.0, values, examples)


def judge_many(
    case: Case, num_draws: int, seed: int = 0, alpha: float = ALPHA
) -> list[Sequence[Pair]]:
    """The verdicts of independent comparisons."""
    draw = np.random.default_rng(seed)
    return [judge(draw_comparison(draw, case), alpha) for _ in range(num_draws)]


def has_winner(pairs: Sequence[Pair]) -> bool:
    """Whether any verdict says "ahead"."""
    return any(pair.outcome == "ahead" for pair in pairs)
