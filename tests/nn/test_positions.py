"""Positions: the sinusoidal table, and T5's buckets computed in exact integers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpt.nn import positions
from jaxpt.ops import masks


def test_sinusoidal_is_vaswanis():
    table = positions.sinusoidal(50, 8)
    assert table.dtype == np.float32 and table.shape == (50, 8)
    for t in (0, 1, 7, 49):
        for i in range(4):
            angle = t / 10_000 ** (2 * i / 8)
            assert table[t, 2 * i] == pytest.approx(np.sin(angle), abs=1e-5)
            assert table[t, 2 * i + 1] == pytest.approx(np.cos(angle), abs=1e-5)


def bucket(distance, is_bidirectional, num_buckets, max_distance):
    """T5's bucket without a logarithm: in whole numbers, hence exactly."""
    offset = 0
    if is_bidirectional:
        num_buckets //= 2
        offset, past = num_buckets * (distance > 0), abs(distance)
    else:
        past = max(-distance, 0)
    exact = num_buckets // 2
    if past < exact:
        return offset + past
    # The most far steps k with (max / exact)^(k / steps) <= past / exact.
    steps = num_buckets - exact
    far = max(
        k
        for k in range(steps)
        if max_distance**k * exact**steps <= past**steps * exact**k
    )
    return offset + exact + far


@pytest.mark.slow_cases("sizes0-True")
@pytest.mark.parametrize("is_bidirectional", [True, False])
@pytest.mark.parametrize("sizes", [(32, 128), (16, 64), (8, 20), (64, 512)])
def test_buckets_are_t5s(is_bidirectional, sizes):
    distances = np.arange(-700, 701)
    result = positions.relative_bucket(
        jnp.array(distances)[None], is_bidirectional, *sizes
    )
    expected = [bucket(int(d), is_bidirectional, *sizes) for d in distances]
    np.testing.assert_array_equal(result[0], expected)


def test_the_bias_depends_on_distance_alone_and_reads_its_table(make_spec):
    spec = make_spec(positions="relative", num_heads=2, init_std=1.0)
    module = positions.RelativeBias(spec, is_bidirectional=True)
    params = module.init(jax.random.key(0), 5, 5)
    bias = np.asarray(module.apply(params, 5, 5))
    table = params["params"]["table"]
    assert bias.shape == (1, 2, 5, 5) and table.shape == (32, 2)
    for t in range(5):
        for s in range(5):
            expected = table[bucket(s - t, True, 32, 128)]
            np.testing.assert_array_equal(bias[0, :, t, s], expected)


def halve(num_heads):
    """The slopes of Press et al.'s code, which divides the heads by recursion."""
    power = 2 ** int(np.log2(num_heads))
    if power == num_heads:
        start = 2 ** -(2 ** -(np.log2(num_heads) - 3))
        return [start ** (i + 1) for i in range(num_heads)]
    return halve(power) + halve(2 * power)[0::2][: num_heads - power]


@pytest.mark.parametrize("num_heads", [1, 2, 3, 6, 7, 8, 12, 20, 32, 40, 71, 112])
def test_alibis_slopes_are_those_of_the_paper(num_heads):
    slopes = positions.alibi_slopes(num_heads)
    np.testing.assert_allclose(slopes, halve(num_heads), rtol=1e-6)
    bias = np.asarray(positions.alibi_bias(num_heads, 3, 5, 2))
    distance = np.abs(np.arange(5) - np.arange(2, 5)[:, None])
    expected = -slopes[:, None, None] * distance
    np.testing.assert_allclose(bias[0], expected, rtol=1e-6)


def test_learned_positions_are_the_tables_first_rows(make_spec):
    module = positions.LearnedPositions(make_spec(max_len=9, embedding_size=6))
    params = module.init(jax.random.key(0), 4)
    assert params["params"]["table"].shape == (9, 6)
    table = params["params"]["table"]
    np.testing.assert_array_equal(module.apply(params, 4), table[:4])
    places = jnp.array([[0, 1, 0, 1, 2], [0, 1, 2, 3, 0]])
    np.testing.assert_array_equal(module.apply(params, 5, places), table[places])


def test_yarns_frequencies_are_those_of_transformers():
    """OLMo 3's: computed by transformers 5.23."""
    rates = positions.rotary_rates(128, 5e5, (8.0, 1.0, 32.0, 8192.0, 1.2079))
    expected = {0: 1.0, 17: 0.0306345206, 18: 0.0249554086, 25: 0.00380032021}
    expected |= {34: 0.000165613033, 35: 9.55621217e-05, 63: 3.06892588e-07}
    for pair, rate in expected.items():
        assert rates[pair] == pytest.approx(rate, rel=1e-6)


def test_yarns_range_ends_at_the_last_number_of_a_head():
    """Of a text so long that all pairs turn in it; as transformers 5.23 computes."""
    rates = positions.rotary_rates(8, 10.0, (4.0, 1.0, 1e6, 1e6, 1.0))
    divided = np.arange(4) / 7  # of a rate: all from number 2 * 4 - 1 on
    expected = 10.0 ** (-np.arange(4) / 4) * (1 - divided + divided / 4)
    np.testing.assert_allclose(rates, expected, rtol=1e-6)
    np.testing.assert_allclose(rates, [1.0, 0.5021, 0.2485, 0.1207], atol=5e-5)


@pytest.mark.parametrize("length", [4.0, 64.0, 8192.0])
@pytest.mark.parametrize("kind", [(), (1.0, 32.0), (1.0, 4.0)])
def test_scaled_frequencies_are_between_theirs_and_the_divided_ones(kind, length):
    plain = positions.rotary_rates(32, 1e4)
    scaling = (8.0, *kind, length, 1.0) if kind else (8.0,)
    rates = positions.rotary_rates(32, 1e4, scaling)
    ratio = plain / rates
    np.testing.assert_allclose(ratio[-1], 8, rtol=1e-6)
    assert (np.diff(ratio) >= -1e-5).all() and ratio.min() >= 1 - 1e-6
    if not kind:
        np.testing.assert_allclose(ratio, 8, rtol=1e-6)


def test_a_magnitude_multiplies_what_is_rotated_alone():
    x, ids = jax.random.normal(jax.random.key(0), (1, 3, 1, 6)), jnp.arange(3)[None]
    rates = positions.rotary_rates(4, 1e2)
    one, two = positions.rotate(x, ids, rates), positions.rotate(x, ids, rates, 1.5)
    np.testing.assert_allclose(two[..., :4], 1.5 * one[..., :4], rtol=1e-6)
    np.testing.assert_array_equal(two[..., 4:], x[..., 4:])


@pytest.mark.parametrize("has_base", [True, False])
def test_a_local_layer_with_a_base_of_its_own_is_not_scaled(
    make_spec, make_params, has_base
):
    shared = {"positions": "rotary", "window": 8, "rotary_base": 50.0, "init_std": 0.5}
    shared |= {"local_rotary_base": 50.0} if has_base else {}
    ids, seen = jnp.arange(8)[None], {"self": masks.full()}

    def run(scaling):
        model, params = make_params(make_spec(**shared, rotary_scaling=scaling))
        return model.apply({"params": params}, ids, seen, deterministic=True)

    plain = run(())
    for scaling in [(4.0,), (1.0, 1.0, 2.0, 16.0, 1.3)]:
        assert bool((run(scaling) == plain).all()) == has_base


def test_scaled_rotary_rates_are_slower_only_where_few_turns_fit():
    """Llama 3.1: as before from 4 turns on, and 8 times slower up to 1 turn."""
    plain = positions.rotary_rates(16, 10_000.0)
    scaled = positions.rotary_rates(16, 10_000.0, (8.0, 1.0, 4.0, 64.0))
    turns = 64 * plain / (2 * np.pi)
    is_fast, is_slow = turns >= 4, turns <= 1
    np.testing.assert_allclose(scaled[is_fast], plain[is_fast], rtol=1e-6)
    np.testing.assert_allclose(scaled[is_slow], plain[is_slow] / 8, rtol=1e-6)
    between = ~is_fast & ~is_slow
    share = (turns[between] - 1) / 3
    expected = plain[between] * (share + (1 - share) / 8)
    np.testing.assert_allclose(scaled[between], expected, rtol=1e-6)
    assert is_fast.any() and is_slow.any() and between.any()
