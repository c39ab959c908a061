"""Positions: the sinusoidal table, and T5's buckets computed in exact integers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpt.nn import positions


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


def test_learned_positions_are_the_tables_first_rows(make_spec):
    module = positions.LearnedPositions(make_spec(max_len=9, embedding_size=6))
    params = module.init(jax.random.key(0), 4)
    assert params["params"]["table"].shape == (9, 6)
    table = params["params"]["table"]
    np.testing.assert_array_equal(module.apply(params, 4), table[:4])
    places = jnp.array([[0, 1, 0, 1, 2], [0, 1, 2, 3, 0]])
    np.testing.assert_array_equal(module.apply(params, 5, places), table[places])


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
