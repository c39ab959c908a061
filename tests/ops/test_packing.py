"""Predictions side by side: all of them are there, or counted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tiny import run_on_devices

from jaxpt.ops import packing
from jaxpt.ops.packing import PredictionCounts, exactly, mix, uniform, uniform_rate

TWO_OF_FOUR = PredictionCounts(
    (0.0, 0.0, 1.0, 0.0, 0.0)
)  # two of a row, which has room for four


def make(weights):
    """States and targets that say where they were."""
    weights = jnp.asarray(weights, jnp.float32)
    places = jnp.arange(weights.size).reshape(weights.shape)
    return jnp.stack([places, -places], axis=-1), places, weights


def test_the_predicted_are_side_by_side_in_their_order():
    states, targets, weights = make([[0, 0, 1, 0.5], [0, 0, 0, 2], [0, 0, 0, 0]])
    result = packing.pack(states, targets, weights, TWO_OF_FOUR)
    # 3 rows of 2 predictions: 6 slots, rounded to 8.
    assert result.targets.shape == (1, 8) and result.states.shape == (1, 8, 2)
    assert result.targets[0, :3].tolist() == [2, 3, 7]
    assert result.states[0, :3].tolist() == [[2, -2], [3, -3], [7, -7]]
    assert result.weights[0].tolist() == [1, 0.5, 2, 0, 0, 0, 0, 0]
    assert [float(x) for x in result.overflow] == [0, 3]


def test_what_has_no_slot_is_counted():
    states, targets, weights = make(np.ones((4, 4)))
    result = packing.pack(states, targets, weights, TWO_OF_FOUR)
    assert result.targets.tolist() == [list(range(8))]
    assert result.weights.tolist() == [8 * [1]]
    assert [float(x) for x in result.overflow] == [8, 16]


LAWS = [
    PredictionCounts(tuple(float(k == num) for k in range(7))) for num in (0, 2, 3, 6)
]
pack = jax.jit(packing.pack, static_argnums=3)


@given(
    st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=48, max_size=48),
    st.sampled_from(LAWS),
)
def test_no_weight_is_lost_and_none_is_new(weights, law):
    states, targets, weights = make(np.reshape(weights, (8, 6)))
    weights = np.asarray(weights)
    # In NumPy, because every number of kept slots would be compiled.
    result = jax.tree.map(np.asarray, pack(states, targets, weights, law))
    kept = result.weights > 0
    assert int(kept.sum()) + float(result.overflow[0]) == float(result.overflow[1])
    assert float(result.overflow[1]) == int((weights > 0).sum())
    np.testing.assert_array_equal(
        result.weights[kept], weights.reshape(-1)[result.targets[kept]]
    )
    assert len(set(result.targets[kept].tolist())) == int(kept.sum())
    np.testing.assert_array_equal(result.states[..., 0], result.targets)


def test_laws_are_those_of_what_is_drawn():
    draw, num = np.random.default_rng(0), 200_000
    rates = draw.uniform(0.3, 1, num)
    for law, drawn in (
        (exactly(4), np.full(num, 4)),
        (uniform(3, 9), draw.integers(3, 10, num)),
        (uniform_rate(9, 0.3), draw.binomial(9, rates)),
        (
            mix([(1.0, exactly(2)), (3.0, uniform(3, 9))]),
            np.where(draw.random(num) < 0.25, 2, draw.integers(3, 10, num)),
        ),
    ):
        result = np.bincount(drawn, minlength=law.most + 1) / num
        np.testing.assert_allclose(law.probabilities, result, atol=0.005)
        assert sum(law.probabilities) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("low", [1e-12, 0.5, 1 - 1e-12])
def test_rates_at_both_ends(low):
    """From 0 on any number has the same probability; at 1 all are predicted."""
    result = np.array(uniform_rate(3, low).probabilities)
    expected = {1e-12: [1 / 4] * 4, 1 - 1e-12: [0, 0, 0, 1]}
    # Of 3 at a rate uniform in (1/2, 1): P(at most k of 4 fair coins) / 4 / (1/2).
    half = stats.binom.cdf(range(4), 4, 0.5) / 2
    np.testing.assert_allclose(result, expected.get(low, half), atol=1e-9)


def tail(law, num_rows, slots):
    """P(the sum over the rows exceeds the slots), without Fourier transforms."""
    total, power = np.ones(1), np.array(law.probabilities)
    for bit in bin(num_rows)[:1:-1]:
        if bit == "1":
            total = np.convolve(total, power)
        power = np.convolve(power, power)
    return total[slots + 1 :].sum()


SHARES = (0.001, 0.01, 0.05, 0.5, 0.95, 0.999)
SKEWED = {s: mix([(s, exactly(3)), (1 - s, exactly(0))]) for s in SHARES}
ALL_LAWS = [*SKEWED.values(), uniform(1, 19), uniform_rate(9, 0.5), exactly(7)]


@pytest.mark.parametrize("num_rows", [1, 2, 3, 8, 64, 512])
def test_slots_are_the_fewest_that_hold_all_but_one_batch_in_30_000(num_rows):
    for law in ALL_LAWS:
        slots, most = packing.count_slots(num_rows, law), num_rows * law.most
        assert tail(law, num_rows, slots) <= 1 / 30_000
        assert slots % 8 == 0 or slots == most
        assert slots <= 8 or tail(law, num_rows, slots - 8) > 1 / 30_000


@pytest.mark.parametrize("share", SHARES)
def test_slots_of_rows_of_one_kind_are_a_binomial_quantile(share):
    for num_rows in (1, 16, 128, 512):
        slots = packing.count_slots(num_rows, SKEWED[share])
        assert stats.binom.sf(slots // 3, num_rows, share) <= 1 / 30_000


def test_counts_of_many_places_are_rounded_up(monkeypatch):
    laws = [uniform(1, 99), SKEWED[0.05]]
    exact = [packing.count_slots(64, law) for law in laws]
    monkeypatch.setattr(packing, "MAX_SUMS", 64 * 20)
    rough = [packing.count_slots.__wrapped__(64, law) for law in laws]
    for law, one, other in zip(laws, exact, rough, strict=True):
        unit = -(-law.most // 20)
        assert one <= other <= one + 64 * unit
    assert rough[0] > exact[0]


def test_slots_are_never_more_than_there_are_places():
    assert packing.count_slots(1, uniform(1, 9)) == 9
    assert packing.count_slots(3, exactly(4)) == 12
    assert packing.count_slots(3, exactly(0)) == 0


def test_gradients_reach_the_states_that_are_predicted():
    states, targets, weights = make([[0, 1, 0], [0, 0, 1]])

    def loss(states):
        result = packing.pack(states, targets, weights, uniform(0, 3))
        return (result.states.sum(-1) * result.weights).sum()

    grad = jax.grad(loss)(states.astype(jnp.float32))
    np.testing.assert_array_equal(grad, weights[..., None].repeat(2, -1))


MESH = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxpt.ops import packing
from jaxpt.runs.sharding import make_mesh
rng = np.random.default_rng(0)
weights = (rng.random((32, 16)) < 0.4).astype("f4")
states = rng.normal(size=(32, 16, 8)).astype("f4")
targets = np.arange(512, dtype="i4").reshape(32, 16)
mesh = make_mesh((4, 2, 1, 1), jax.devices())
rows = NamedSharding(mesh, PartitionSpec(("data", "fsdp")))
law = packing.uniform(0, 13)
call = jax.jit(lambda *x: packing.pack(*x, law))
with jax.set_mesh(mesh):
    given = [jax.device_put(x, rows) for x in (states, targets, weights)]
    compiled = call.lower(*given).compile()
    found = compiled(*given)
assert found.targets.shape == (8, packing.count_slots(4, law)), found.targets.shape
kept = np.asarray(found.weights) > 0
names = sorted(np.asarray(found.targets)[kept].tolist())
assert names == sorted(targets[weights > 0].tolist())
assert float(found.overflow[0]) == 0
text = compiled.as_text()
assert "all-gather" not in text and "all-to-all" not in text, text
print("good")
"""


def test_each_device_packs_its_own_rows():
    """No state leaves its device: 8 of them, with 4 rows each."""
    assert run_on_devices(8, MESH).strip() == "good"
