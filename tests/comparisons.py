"""Simulated comparisons: measurements of objectives whose true difference is known.

`judge_many` gives their verdicts by the code under test. `judge_arrays` gives the same
ones for thousands of comparisons at once; `tests/judge/test_verdicts.py` compares
them.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from jaxpt.judge.examples import Examples
from jaxpt.judge.unpaired import Sample, half_width
from jaxpt.judge.verdicts import ALPHA, Pair, Results, judge

PER_DOCUMENT = 5  # examples


class Case(NamedTuple):
    """How a comparison is drawn.

    Attributes:
      num_names, num_seeds: objectives, and seeds of each.
      num_documents: test documents with five examples each; 0 stores no examples.
      seed_std: the standard deviation over seeds, in units of the standard deviation
        between the documents of one objective.
      is_binary: examples are right or wrong.
      spreads: of the seeds of each objective, relative to `seed_std`; the last one is
        that of all further objectives.
      num_metrics: that are judged together.
      law: of seeds: "normal", "t2" (heavy tails), "exponential", "lognormal", or
        "plateau" (one run of five of the first objective is 20 standard deviations
        worse, and its other runs are better, so that the means are equal).
      lead: of the first objective, in standard deviations over seeds.
      shared: the standard deviation of what a seed does to all objectives alike,
        relative to `seed_std`.
    """

    num_names: int = 4
    num_seeds: int = 4
    num_documents: int = 24
    seed_std: float = 0.3
    is_binary: bool = False
    spreads: tuple[float, ...] = (1.0,)
    num_metrics: int = 1
    law: str = "normal"
    lead: float = 0.0
    shared: float = 0.0


# The standard deviations of objectives: equal, one 5 or 30 times larger, one without
# any, and those of the quickstart.
SPREADS = ((1.0,), (5.0, 1.0), (30.0, 1.0), (0.0, 1.0), (1.0, 2.0, 6.0, 1.0))


def list_cases() -> list[Case]:
    """Equal objectives in all kinds of comparisons, with normal seeds."""
    return [
        Case(names, seeds, documents, std, is_binary, spreads, metrics)
        for names in (2, 4, 14)
        for seeds in (4, 5, 10)
        for documents in (0, 5, 24, 200)
        for std in ((0.1, 0.3, 1.0) if documents else (1.0,))
        for is_binary in ((False, True) if documents else (False,))
        for spreads in SPREADS
        for metrics in (1, 3)
        # The rest would take hours and adds no other kind of arithmetic.
        if metrics == 1 or documents in (0, 24)
        if documents < 200 or (std == 0.3 and names < 14)
        # Larger ones are nearly always right or always wrong, which is not normal.
        if not is_binary or std * max(spreads) <= 2
    ]


LAWS: dict[str, Callable] = {
    "normal": lambda draw, shape: draw.normal(0, 1, shape),
    "t2": lambda draw, shape: draw.standard_t(2, shape),
    "exponential": lambda draw, shape: draw.exponential(1, shape) - 1,
    "lognormal": lambda draw, shape: draw.lognormal(0, 1, shape) - np.exp(0.5),
    "plateau": lambda draw, shape: draw.normal(0, 1, shape),
}


class Drawn(NamedTuple):
    """Measurements of many comparisons.

    Attributes:
      values: [comparisons, metrics, objectives, seeds].
      totals: the same and documents: the sum over a document's examples; None if no
        examples are stored.
    """

    values: np.ndarray
    totals: np.ndarray | None


def draw_many(draw: np.random.Generator, case: Case, num_draws: int) -> Drawn:
    """What was measured in independent comparisons."""
    shape = num_draws, case.num_metrics, case.num_names, case.num_seeds
    seeds = LAWS[case.law](draw, shape)
    if case.law == "plateau":
        seeds[:, :, 0] += 4 - 20 * (draw.random(seeds[:, :, 0].shape) < 0.2)
    rest = (case.spreads[-1],) * (case.num_names - len(case.spreads))
    seeds *= np.array((case.spreads + rest)[: case.num_names])[:, None]
    # After scaling: it is the same for all objectives.
    seeds += case.shared * draw.normal(0, 1, (*shape[:2], 1, case.num_seeds))
    seeds[:, :, 0] += case.lead
    seeds *= case.seed_std
    if not case.num_documents:
        return Drawn(seeds, None)
    ease = draw.normal(0, 1, (*shape[:2], 1, 1, case.num_documents))
    taste = draw.normal(0, 1, (*shape[:3], 1, case.num_documents))
    skill = ease + taste + seeds[..., None]
    if case.is_binary:
        totals = draw.binomial(PER_DOCUMENT, 1 / (1 + np.exp(-skill))).astype(float)
    else:
        noise = draw.normal(0, PER_DOCUMENT**0.5, skill.shape)
        totals = PER_DOCUMENT * skill + noise
    return Drawn(totals.mean(-1) / PER_DOCUMENT, totals)


def to_results(drawn: Drawn, place: int = 0) -> list[Results]:
    """One of the comparisons, a `Results` for each metric."""
    family = []
    for m, values in enumerate(drawn.values[place]):
        names = [f"n{i}" for i in range(len(values))]
        examples = {}
        if drawn.totals is not None:
            documents = np.arange(drawn.totals.shape[-1])
            weights = np.full(len(documents), float(PER_DOCUMENT))
            examples = {
                name: {s: Examples(r, weights, documents) for s, r in enumerate(rows)}
                for name, rows in zip(names, drawn.totals[place, m], strict=True)
            }
        by_seed = {
            name: dict(enumerate(row.tolist()))
            for name, row in zip(names, values, strict=True)
        }
        family.append(Results(f"m{m}", True, 0.0, by_seed, examples))
    return family


def draw_comparison(draw: np.random.Generator, case: Case) -> list[Results]:
    """What was measured of each objective, a `Results` for each metric."""
    return to_results(draw_many(draw, case, 1))


def judge_many(
    case: Case, num_draws: int, seed: int = 0, alpha: float = ALPHA
) -> list[Sequence[Pair]]:
    """The verdicts of independent comparisons."""
    draw = np.random.default_rng(seed)
    return [judge(draw_comparison(draw, case), alpha) for _ in range(num_draws)]


def has_winner(pairs: Sequence[Pair]) -> bool:
    """Whether any verdict says "ahead"."""
    return any(pair.outcome == "ahead" for pair in pairs)


class Intervals(NamedTuple):
    """The differences and half widths of [comparisons, metrics, pairs].

    Attributes:
      pairs: the numbers of the two objectives of each pair.
    """

    difference: np.ndarray
    half: np.ndarray
    pairs: list[tuple[int, int]]

    @property
    def ahead(self) -> np.ndarray:
        """Whether the interval excludes 0."""
        return np.abs(self.difference) > self.half


def judge_arrays(
    drawn: Drawn,
    alpha: float = ALPHA,
    control: int | None = None,
    seeds_width: Callable = half_width,
    level: float = 0.0,
) -> Intervals:
    """The simultaneous intervals of many comparisons, as `judge` gives them.

    Args:
      control: the number of the objective that all others are compared with.
      seeds_width: half the width of the seeds' part, as `unpaired.half_width`; another
        procedure for comparison.
      level: that it gets; 0 is that of Bonferroni.
    """
    values, totals = drawn
    num_metrics, num_names, num_seeds = values.shape[1:]
    pairs = [
        pair
        for pair in itertools.combinations(range(num_names), 2)
        if control is None or control in pair
    ]
    first, second = (np.array(side) for side in zip(*pairs, strict=True))
    per_pair = alpha / (num_metrics * len(pairs))
    means, std = values.mean(-1), values.std(-1, ddof=1)
    sides = [Sample(std[..., side], num_seeds) for side in (first, second)]
    half = seeds_width(*sides, level or per_pair)
    if 2 / math.comb(2 * num_seeds, num_seeds) > per_pair:
        half = np.where(sides[0].std + sides[1].std > 0, half, np.inf)
    if totals is not None and (num := totals.shape[-1]) > 1:
        by_document = totals.mean(-2) / PER_DOCUMENT
        apart = by_document[..., first, :] - by_document[..., second, :]
        error = apart.std(-1, ddof=1) / num**0.5
        half = np.hypot(half, error * stdtrit(num - 1, per_pair / 2))
    return Intervals(means[..., first] - means[..., second], half, pairs)


def find_rate(
    case: Case, num_draws: int, seed: int = 0, batch: int = 500, **options
) -> float:
    """The share of comparisons of equal objectives with any verdict "ahead".

    Args:
      options: of `judge_arrays`.
    """
    draw, wrong = np.random.default_rng(seed), 0
    for start in range(0, num_draws, batch):
        drawn = draw_many(draw, case, min(batch, num_draws - start))
        wrong += judge_arrays(drawn, **options).ahead.any((1, 2)).sum()
    return float(wrong / num_draws)
