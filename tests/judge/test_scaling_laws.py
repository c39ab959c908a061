"""Tests of scaling laws: published constants, planted constants, known traps."""

import numpy as np
import pytest
from scipy.optimize import minimize

from jaxpt.judge import scaling_laws
from jaxpt.judge.scaling_laws import Points, ScalingLaw

CHINCHILLA = ScalingLaw(A=406.4, B=410.7, E=1.69, alpha=0.34, beta=0.28)
UNROUNDED = ScalingLaw(
    *np.exp([6.0073404, 6.0179186, 0.5267228]), 0.33917084, 0.2849083
)
REFIT = ScalingLaw(A=482.01, B=2085.43, E=1.8172, alpha=0.3478, beta=0.3658)


def make_points(law=REFIT, noise=0.0, num=24, seed=0):
    """Models of the Chinchilla paper's range."""
    rng = np.random.default_rng(seed)
    params = 10 ** rng.uniform(7.5, 10, num)
    tokens = 10 ** rng.uniform(9, 11.5, num)
    loss = law.loss(params, tokens) * np.exp(rng.normal(0, noise, num))
    return Points(params, tokens, 6 * params * tokens, loss)


def test_the_reference_losses():
    assert CHINCHILLA.loss(70e9, 1.4e12) == pytest.approx(1.936645, abs=1e-6)
    assert CHINCHILLA.loss(1e8, 2e9) == pytest.approx(3.485874, abs=1e-6)
    assert REFIT.loss(70e9, 1.4e12) == pytest.approx(1.973882, abs=1e-6)
    assert UNROUNDED.A == pytest.approx(406.4, abs=0.1)
    assert UNROUNDED.B == pytest.approx(410.7, abs=0.1)
    assert UNROUNDED.E == pytest.approx(1.69, abs=0.01)


def test_the_best_size_is_the_lowest_of_all():
    params, tokens = CHINCHILLA.best(1e19)
    assert params == pytest.approx(2.2796e8, rel=1e-4)
    assert 6 * params * tokens == pytest.approx(1e19)
    sizes = params * np.linspace(0.9, 1.1, 2001)
    lowest = sizes[CHINCHILLA.loss(sizes, 1e19 / 6 / sizes).argmin()]
    assert lowest == pytest.approx(params, rel=2e-4)
    law = ScalingLaw(477.8, 2143.0, 1.81722, 0.34731, 0.36717)
    assert law.exponents[0] == pytest.approx(0.5139, abs=1e-4)
    assert sum(law.exponents) == pytest.approx(1)


def make_budget(flops, sizes, law=CHINCHILLA):
    tokens = flops / 6 / sizes
    spent = np.full_like(sizes, flops)
    return Points(sizes, tokens, spent, law.loss(sizes, tokens))


def test_the_parabola_is_biased_as_the_reference_says():
    points = make_budget(1e19, np.geomspace(5e7, 5e9, 9))
    valley = scaling_laws.find_valley(points)
    assert valley.params == pytest.approx(2.3280e8, rel=1e-4)
    assert valley.tokens == pytest.approx(1e19 / 6 / valley.params)
    assert valley.num_sizes == 9


def test_power_laws_lead_through_the_budgets():
    budgets = [1e18, 1e19, 1e20]
    points = Points(
        *map(
            np.concatenate,
            zip(
                *(
                    make_budget(c, CHINCHILLA.best(c)[0] * np.geomspace(0.5, 2, 5))
                    for c in budgets
                )
            ),
        )
    )
    valleys, lacks = scaling_laws.find_valleys(points)
    assert not lacks and [v.flops for v in valleys] == pytest.approx(budgets)
    of_params = scaling_laws.fit_power(budgets, [v.params for v in valleys])
    assert of_params.exponent == pytest.approx(0.28 / 0.62, abs=2e-3)
    assert of_params.at(1e19) == pytest.approx(2.28e8, rel=0.01)
    draws = scaling_laws.bootstrap_valleys(points, 20)
    assert len(draws) == 20 and all(len(draw) <= 3 for draw in draws)


def test_what_has_no_lowest_point_is_told():
    few = make_budget(1e19, np.array([1e8, 1e8, 2e8]))
    assert "2 sizes" in scaling_laws.find_valley(few)
    far = make_budget(1e19, np.geomspace(1e9, 5e9, 5))
    assert "outside the sizes, 1e+09 to 5e+09" in scaling_laws.find_valley(far)
    upside = far._replace(loss=-((np.log(far.params) - 21.5) ** 2) + 9)
    assert "no lowest point" in scaling_laws.find_valley(upside)


def test_the_sum_is_hubers_by_hand():
    points = make_points(num=8)
    off = np.zeros(8)
    off[:2] = 0.0005, -0.003  # one on either side of delta
    moved = points._replace(loss=points.loss * np.exp(off))
    expected = 0.0005**2 / 2 + 1e-3 * (0.003 - 0.0005)
    assert scaling_laws.objective(REFIT, moved) == pytest.approx(expected, rel=1e-6)


def test_planted_constants_are_found():
    law = scaling_laws.fit_law(make_points(num=12))
    assert law[:5] == pytest.approx(REFIT[:5], rel=1e-6)
    assert law.objective < 1e-20
    other = scaling_laws.fit_law(make_points(CHINCHILLA, num=12, seed=1))
    assert other[:5] == pytest.approx(CHINCHILLA[:5], rel=1e-6)


def test_the_fit_is_converged_where_a_mean_and_loose_tolerances_stop_early():
    """The trap of the published fit (Besiroglu et al. 2024)."""
    points = make_points(noise=0.005, num=40)
    law = scaling_laws.fit_law(points)
    assert law.objective == pytest.approx(scaling_laws.objective(law, points), rel=1e-9)
    assert law.objective <= scaling_laws.objective(REFIT, points)
    logs = np.log(np.stack(points[:2]))

    def mean(theta):
        predicted, _ = scaling_laws.predict_log(theta[None], logs)
        return scaling_laws.huber(np.log(points.loss) - predicted[0]).mean()

    results = [
        minimize(mean, start, method="L-BFGS-B").x
        for start in ([5, 5, 0.5, 0.5, 0.5], [10, 10, 0.5, 0.5, 0.5])
    ]
    loose = [ScalingLaw(*np.exp(x[:3]), *x[3:]) for x in results]
    assert all(scaling_laws.objective(x, points) > 1.001 * law.objective for x in loose)
    # No small move from what was found is better.
    theta = np.array([*np.log(law[:3]), *law[3:5]])
    rng = np.random.default_rng(0)
    for size in (1e-2, 1e-4):
        for move in rng.normal(0, size, (50, 5)):
            moved = theta + move
            near = ScalingLaw(*np.exp(moved[:3]), *moved[3:])
            assert scaling_laws.objective(near, points) >= law.objective


def test_intervals_hold_what_was_planted():
    points = make_points(noise=0.003, num=24)
    law = scaling_laws.fit_law(points)
    draws = scaling_laws.bootstrap_law(points, law, 25)
    for name in ("E", "alpha", "beta"):
        values = [getattr(draw, name) for draw in draws]
        low, high = np.quantile(values, [0.025, 0.975])
        assert low < getattr(law, name) < high
        assert low < getattr(REFIT, name) < high and high - low > 1e-3
    again = scaling_laws.bootstrap_law(points, law, 25)
    assert again == draws


def test_too_few_points_are_counted():
    points = make_points(num=8)
    assert scaling_laws.find_lacks(points) == ""
    assert "5 runs of 5 sizes" in scaling_laws.find_lacks(points.take(slice(5)))
    alike = points._replace(params=np.full(8, 1e8))
    assert "8 runs of 1 size and 8" in scaling_laws.find_lacks(alike)
