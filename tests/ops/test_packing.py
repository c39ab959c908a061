"""Predictions side by side: all of them are there, or counted."""

import math
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import many_devices

from jaxpt.ops import packing
from jaxpt.ops.packing import Expected

ROOT = Path(__file__).resolve().parents[2]


def make(weights):
    """States and targets that say where they were."""
    weights = jnp.asarray(weights, jnp.float32)
    places = jnp.arange(weights.size).reshape(weights.shape)
    return jnp.stack([places, -places], axis=-1), places, weights


def test_the_predicted_are_side_by_side_in_their_order():
    states, targets, weights = make([[0, 0, 1, 0.5], [0, 0, 0, 2], [0, 0, 0, 0]])
    found = packing.pack(states, targets, weights, Expected(2.0, 0.0, 4))
    # 3 rows of 2 predictions in mean: 6 slots, rounded to 8.
    assert found.targets.shape == (1, 8) and found.states.shape == (1, 8, 2)
    assert found.targets[0, :3].tolist() == [2, 3, 7]
    assert found.states[0, :3].tolist() == [[2, -2], [3, -3], [7, -7]]
    assert found.weights[0].tolist() == [1, 0.5, 2, 0, 0, 0, 0, 0]
    assert [float(x) for x in found.overflow] == [0, 3]


def test_what_has_no_slot_is_counted():
    states, targets, weights = make(np.ones((4, 4)))
    found = packing.pack(states, targets, weights, Expected(2.0, 0.0, 4))
    assert found.targets.tolist() == [list(range(8))]
    assert found.weights.tolist() == [8 * [1]]
    assert [float(x) for x in found.overflow] == [8, 16]


EXPECTED = {mean: Expected(mean, 1.0, 6) for mean in (0.0, 1.5, 3.0, 6.0)}
pack = jax.jit(packing.pack, static_argnums=3)


@given(
    st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=48, max_size=48),
    st.sampled_from(list(EXPECTED)),
)
def test_no_weight_is_lost_and_none_is_new(weights, mean):
    states, targets, weights = make(np.reshape(weights, (8, 6)))
    weights = np.asarray(weights)
    # As numpy has them: every number of kept slots would compile anew.
    found = jax.tree.map(np.asarray, pack(states, targets, weights, EXPECTED[mean]))
    kept = found.weights > 0
    assert int(kept.sum()) + float(found.overflow[0]) == float(found.overflow[1])
    assert float(found.overflow[1]) == int((weights > 0).sum())
    np.testing.assert_array_equal(
        found.weights[kept], weights.reshape(-1)[found.targets[kept]]
    )
    assert len(set(found.targets[kept].tolist())) == int(kept.sum())
    np.testing.assert_array_equal(found.states[..., 0], found.targets)


def test_moments_are_those_of_what_is_drawn():
    rng = np.random.default_rng(0)
    found, drawn = packing.uniform(3, 9), rng.integers(3, 10, 100_000)
    assert found.mean == pytest.approx(drawn.mean(), abs=0.05)
    assert found.std == pytest.approx(drawn.std(), abs=0.02)
    mixed = packing.mix([(1.0, packing.exactly(2)), (3.0, packing.uniform(3, 9))])
    drawn = np.where(rng.random(100_000) < 0.25, 2, drawn)
    assert mixed.mean == pytest.approx(drawn.mean(), abs=0.05)
    assert mixed.std == pytest.approx(drawn.std(), abs=0.02)
    assert mixed.most == 9


def test_slots_hold_all_but_one_batch_in_many():
    rng = np.random.default_rng(0)
    for num_rows in (4, 16, 64):
        slots = packing.count_slots(num_rows, packing.uniform(1, 99))
        sums = rng.integers(1, 100, (20_000, num_rows)).sum(1)
        assert (sums > slots).mean() < 1e-3
        assert num_rows < 64 or slots < 0.66 * num_rows * 99


def test_slots_are_never_more_than_there_are_places():
    assert packing.count_slots(1, packing.uniform(1, 9)) == 9
    assert packing.count_slots(3, packing.exactly(4)) == 12
    assert packing.count_slots(3, packing.exactly(0)) == 0


def test_gradients_reach_the_states_that_are_predicted():
    states, targets, weights = make([[0, 1, 0], [0, 0, 1]])

    def loss(states):
        found = packing.pack(states, targets, weights, Expected(2.0, 0.0, 3))
        return (found.states.sum(-1) * found.weights).sum()

    grad = jax.grad(loss)(states.astype(jnp.float32))
    np.testing.assert_array_equal(grad, weights[..., None].repeat(2, -1))


MESH = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxpt.ops import packing
from jaxpt.run.sharding import make_mesh
rng = np.random.default_rng(0)
weights = (rng.random((32, 16)) < 0.4).astype("f4")
states = rng.normal(size=(32, 16, 8)).astype("f4")
targets = np.arange(512, dtype="i4").reshape(32, 16)
mesh = make_mesh((4, 2, 1), jax.devices())
rows = NamedSharding(mesh, PartitionSpec(("data", "fsdp")))
expected = packing.Expected(6.4, 2.0, 16)
call = jax.jit(lambda *x: packing.pack(*x, expected))
with jax.set_mesh(mesh):
    given = [jax.device_put(x, rows) for x in (states, targets, weights)]
    compiled = call.lower(*given).compile()
    found = compiled(*given)
assert found.targets.shape == (8, packing.count_slots(4, expected)), found.targets.shape
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
    found = subprocess.run(
        [sys.executable, "-c", MESH],
        env=os.environ | many_devices(8) | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert found.stdout.strip() == "good", found.stderr[-2000:]


def test_four_deviations():
    assert packing.count_slots(100, Expected(10.0, 5.0, 40)) == 8 * math.ceil(1200 / 8)
