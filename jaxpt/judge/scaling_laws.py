"""Scaling laws: the loss by parameters N and tokens D (Hoffmann et al. 2022).

    approach 2   at each budget C a parabola of the loss in log10 N; its minimum is the
                 best size, and a power law is fitted to these sizes
    approach 3   L(N, D) = E + A / N^alpha + B / D^beta, fitted to all points at once

Approach 3 minimises the sum over points of Huber_1e-3(log L - LSE(a - alpha log N,
b - beta log D, e)) with A = exp(a), B = exp(b), E = exp(e). It is the sum and not the
mean, and converged tightly: with the mean and scipy's default tolerance L-BFGS stops
early, as the published fit did (Besiroglu et al. 2024).

Departure: the source runs L-BFGS from each of 4,500 starts, which takes minutes. Here
scipy's least squares with Huber's loss starts from the best of them.
"""

import itertools
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy.optimize import least_squares

from jaxpt.judge.bootstrap import draw_groups

DELTA = 1e-3  # Huber's loss is quadratic below, linear above
# The source's starts: of a and b, of e, of alpha and beta.
STARTS_AB = (0.0, 5.0, 10.0, 15.0, 20.0, 25.0)
STARTS_E = (-1.0, -0.5, 0.0, 0.5, 1.0)
STARTS_EXPONENT = (0.0, 0.5, 1.0, 1.5, 2.0)
NUM_STARTS = 30  # of the grid, those with the lowest objective
TOLERANCE, DRAW_TOLERANCE = 1e-15, 1e-8  # relative: of a fit, of one among many
MAX_EVALUATIONS = 2000
MIN_SIZES = 3  # different N, and different D, of a fit
MIN_POINTS = 6  # more than it has constants


class Points(NamedTuple):
    """Trained models: size, data, compute and final loss.

    Attributes:
      params: N.
      tokens: D, the training tokens, including repetitions.
      flops: C, the training FLOPs.
      loss: in nats, or any unit that is above 0.
    """

    params: Float[np.ndarray, "P"]
    tokens: Float[np.ndarray, "P"]
    flops: Float[np.ndarray, "P"]
    loss: Float[np.ndarray, "P"]

    def take(self, index: Any) -> "Points":
        """Some of the points."""
        return Points(*(values[index] for values in self))

    @property
    def factor(self) -> float:
        """C / (N D), the median over the points; 6 by the usual count."""
        return float(np.median(self.flops / (self.params * self.tokens)))


class ScalingLaw(NamedTuple):
    """The constants of L(N, D) = E + A / N^alpha + B / D^beta.

    Attributes:
      objective: the sum of Huber's losses that they leave; NaN of constants that were
        not fitted here.
    """

    A: float
    B: float
    E: float
    alpha: float
    beta: float
    objective: float = float("nan")

    def loss(self, params: Any, tokens: Any) -> Any:
        """L(N, D).

        >>> chinchilla = ScalingLaw(A=406.4, B=410.7, E=1.69, alpha=0.34, beta=0.28)
        >>> round(float(chinchilla.loss(70e9, 1.4e12)), 6)
        1.936645
        """
        return self.E + self.A / params**self.alpha + self.B / tokens**self.beta

    @property
    def exponents(self) -> tuple[float, float]:
        """Of C, in the best N and in the best D."""
        total = self.alpha + self.beta
        return self.beta / total, self.alpha / total

    def best(self, flops: Any, factor: float = 6.0) -> tuple[Any, Any]:
        """The best N and D of a budget C = factor N D, in closed form.

        >>> chinchilla = ScalingLaw(A=406.4, B=410.7, E=1.69, alpha=0.34, beta=0.28)
        >>> f"{chinchilla.best(1e19)[0]:.4e}"
        '2.2796e+08'
        """
        total = self.alpha + self.beta
        ratio = (self.alpha * self.A / (self.beta * self.B)) ** (1 / total)
        of_params, of_tokens = self.exponents
        product = flops / factor
        return ratio * product**of_params, product**of_tokens / ratio

    @property
    def is_sound(self) -> bool:
        """Whether both exponents are above 0, without which no size is best."""
        return self.alpha > 0 and self.beta > 0


class Valley(NamedTuple):
    """The lowest point of the parabola through the runs of one budget.

    Attributes:
      flops: the budget, the geometric mean of its runs.
      params, tokens, loss: at the lowest point.
      coefficients: of the parabola in log10 N, the square's first.
      num_sizes: the different N among its runs.
    """

    flops: float
    params: float
    tokens: float
    loss: float
    coefficients: tuple[float, float, float]
    num_sizes: int


class PowerLaw(NamedTuple):
    """y = exp(intercept) C^exponent."""

    exponent: float
    intercept: float

    def at(self, flops: ArrayLike) -> Any:
        """y of a budget."""
        return np.exp(self.intercept) * np.asarray(flops, np.float64) ** self.exponent


def find_lacks(points: Points) -> str:
    """Why approach 3 cannot be fitted to these points; "" if it can.

    >>> one = np.ones(7)
    >>> find_lacks(Points(one, np.arange(1.0, 8.0), one, one))
    '7 runs of 1 size and 7 numbers of tokens; at least 6 runs of 3 and 3 are needed'
    """
    counts = len(points.loss), *(len(np.unique(x)) for x in points[:2])
    if counts[0] >= MIN_POINTS and min(counts[1:]) >= MIN_SIZES:
        return ""
    runs, sizes, tokens = (
        f"{n} {word}{'s' * (n != 1)}" if word != "tokens" else _count_tokens(n)
        for n, word in zip(counts, ("run", "size", "tokens"), strict=True)
    )
    return (
        f"{runs} of {sizes} and {tokens}; at least {MIN_POINTS} runs of "
        f"{MIN_SIZES} and {MIN_SIZES} are needed"
    )


def _count_tokens(n: int) -> str:
    return f"{n} number{'s' * (n != 1)} of tokens"


def predict_log(
    theta: Float[np.ndarray, "K 5"], logs: Float[np.ndarray, "2 P"]
) -> tuple[Float[np.ndarray, "K P"], Float[np.ndarray, "K P 3"]]:
    """log L of K sets of (a, b, e, alpha, beta), and each term's share of L."""
    a, b, e, alpha, beta = (theta[:, i, None] for i in range(5))
    terms = np.stack(
        [a - alpha * logs[0], b - beta * logs[1], e + 0 * logs[0]], axis=-1
    )
    highest = terms.max(axis=-1, keepdims=True)
    exps = np.exp(terms - highest)
    total = exps.sum(axis=-1, keepdims=True)
    return (highest + np.log(total))[..., 0], exps / total


def huber(residuals: np.ndarray) -> np.ndarray:
    """r^2 / 2 up to `DELTA`, from there DELTA (|r| - DELTA / 2).

    >>> huber(np.array([0.0005, 0.002])).tolist()
    [1.25e-07, 1.5e-06]
    """
    size = np.abs(residuals)
    return np.where(size <= DELTA, size**2 / 2, DELTA * (size - DELTA / 2))


def objective(law: ScalingLaw, points: Points) -> float:
    """The sum that approach 3 minimises, of these constants."""
    theta = np.array([[np.log(law.A), np.log(law.B), np.log(law.E), *law[3:5]]])
    predicted, _ = predict_log(theta, _logs(points))
    return float(huber(np.log(points.loss) - predicted[0]).sum())


def _logs(points: Points) -> Float[np.ndarray, "2 P"]:
    return np.log(np.stack([points.params, points.tokens]))


def _make_starts() -> Float[np.ndarray, "K 5"]:
    grid = itertools.product(
        STARTS_AB, STARTS_AB, STARTS_E, STARTS_EXPONENT, STARTS_EXPONENT
    )
    return np.array(list(grid))


def fit_law(points: Points) -> ScalingLaw:
    """Approach 3, from the best starts of the source's grid.

    The points must pass `find_lacks`.
    """
    starts, losses = _rate_starts(points)
    best = starts[_find_lowest(losses, NUM_STARTS)]
    return _fit_best(best, points, TOLERANCE)


def _rate_starts(
    points: Points,
) -> tuple[Float[np.ndarray, "K 5"], Float[np.ndarray, "K P"]]:
    """The starts of the grid, and Huber's loss of each at each point."""
    starts = _make_starts()
    predicted, _ = predict_log(starts, _logs(points))
    return starts, huber(np.log(points.loss) - predicted)


def _find_lowest(losses: Float[np.ndarray, "K P"], num: int) -> Int[np.ndarray, "N"]:
    """The starts with the lowest sums."""
    return np.argsort(losses.sum(axis=1), kind="stable")[:num]


def _fit_best(
    starts: Float[np.ndarray, "K 5"], points: Points, tolerance: float
) -> ScalingLaw:
    """The lowest of the optima from these starts."""
    logs, logs_of_loss = _logs(points), np.log(points.loss)

    def find_residuals(theta: Float[np.ndarray, "5"]) -> Float[np.ndarray, "P"]:
        return predict_log(theta[None], logs)[0][0] - logs_of_loss

    def find_slopes(theta: Float[np.ndarray, "5"]) -> Float[np.ndarray, "P 5"]:
        shares = predict_log(theta[None], logs)[1][0]
        return np.concatenate([shares, -shares[:, :2] * logs.T], axis=1)

    fits = [
        least_squares(
            *(find_residuals, start, find_slopes),
            loss="huber",
            f_scale=DELTA,
            x_scale="jac",
            **dict.fromkeys(("ftol", "xtol", "gtol"), tolerance),
            max_nfev=MAX_EVALUATIONS,
        )
        for start in starts
    ]
    best = min(fits, key=lambda fit: fit.cost)
    return _make_law(best.x, best.cost)


def _make_law(theta: Float[np.ndarray, "5"], value: float) -> ScalingLaw:
    """The law of (a, b, e, alpha, beta)."""
    a, b, e, alpha, beta = map(float, theta)
    scales = np.exp([a, b, e]).tolist()
    return ScalingLaw(scales[0], scales[1], scales[2], alpha, beta, float(value))


def bootstrap_law(
    points: Points, law: ScalingLaw, num_draws: int, seed: int = 0, num_starts: int = 2
) -> list[ScalingLaw]:
    """The fits of resampled points, of which quantiles are intervals.

    Each draw is fitted from the whole fit and from the best other starts of the grid.
    Draws that lack what a fit needs are drawn again.
    """
    rng, everything = np.random.default_rng(seed), [np.arange(len(points.loss))]
    estimate = np.array([*np.log(law[:3]), *law[3:5]])
    starts, losses = _rate_starts(points)

    def is_enough(index: Int[np.ndarray, "P"]) -> bool:
        return not find_lacks(points.take(index))

    laws = []
    for _ in range(num_draws):
        index = draw_groups(everything, is_enough, rng)
        others = starts[_find_lowest(losses[:, index], num_starts - 1)]
        chosen = np.vstack([estimate, others])
        laws.append(_fit_best(chosen, points.take(index), DRAW_TOLERANCE))
    return laws


def group_budgets(
    flops: Float[np.ndarray, "P"], tolerance: float = 0.05
) -> list[Int[np.ndarray, "G"]]:
    """The points of each budget, by number, the smallest budget first.

    Args:
      tolerance: neighbours in order that differ by no more than this share are of one.

    >>> [group.tolist() for group in group_budgets(np.array([1e9, 3e9, 1.02e9]))]
    [[0, 2], [1]]
    """
    order = np.argsort(flops, kind="stable")
    steps = np.diff(np.log(flops[order])) > np.log1p(tolerance)
    return np.split(order, np.flatnonzero(steps) + 1)


def find_valley(points: Points) -> Valley | str:
    """Approach 2 at one budget, or a sentence if the parabola has no minimum.

    The tokens at the minimum are those of the line through log D over log N.
    """
    sizes, flops = np.log10(points.params), float(np.exp(np.log(points.flops).mean()))
    num = len(np.unique(points.params))
    if num < MIN_SIZES:
        words = f"{num} size{'s' * (num != 1)}"
        return f"{flops:.3g} FLOPs: {words}; a parabola needs {MIN_SIZES}"
    square, slope, height = np.polyfit(sizes, points.loss, 2)
    if square <= 0:
        return f"{flops:.3g} FLOPs: the parabola has no lowest point"
    place = -slope / (2 * square)
    if not sizes.min() <= place <= sizes.max():
        return (
            f"{flops:.3g} FLOPs: the lowest point, N={10**place:.3g}, is outside the "
            f"sizes, {points.params.min():.3g} to {points.params.max():.3g}"
        )
    line = np.polyfit(sizes, np.log10(points.tokens), 1)
    return Valley(
        flops=flops,
        params=float(10**place),
        tokens=float(10 ** np.polyval(line, place)),
        loss=float(np.polyval((square, slope, height), place)),
        coefficients=(float(square), float(slope), float(height)),
        num_sizes=num,
    )


def fit_power(flops: ArrayLike, values: ArrayLike) -> PowerLaw:
    """The line through log y over log C; two budgets at least."""
    exponent, intercept = np.polyfit(np.log(flops), np.log(values), 1)
    return PowerLaw(float(exponent), float(intercept))


def find_valleys(points: Points) -> tuple[list[Valley], list[str]]:
    """Approach 2 at every budget, and a sentence for each without a minimum."""
    results = [find_valley(points.take(g)) for g in group_budgets(points.flops)]
    valleys = [each for each in results if isinstance(each, Valley)]
    return valleys, [each for each in results if isinstance(each, str)]


def bootstrap_valleys(
    points: Points, num_draws: int, seed: int = 0
) -> list[list[Valley]]:
    """The valleys of each draw, which resamples the runs within each budget.

    Runs of too few sizes for a parabola are drawn again. A budget is left out of a draw
    in which it has no lowest point.
    """
    rng = np.random.default_rng(seed)
    groups = [
        g for g in group_budgets(points.flops) if _count_sizes(points, g) >= MIN_SIZES
    ]

    def is_enough(index: Int[np.ndarray, "G"]) -> bool:
        return _count_sizes(points, index) >= MIN_SIZES

    draws = (draw_groups(groups, is_enough, rng) for _ in range(num_draws))
    return [find_valleys(points.take(index))[0] for index in draws]


def _count_sizes(points: Points, index: np.ndarray) -> int:
    return len(np.unique(points.params[index]))
