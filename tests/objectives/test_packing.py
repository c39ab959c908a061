"""Objectives whose predictions are packed: the same numbers, for fewer operations."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from products import count_products

from jaxpt.ops.packing import count_slots

norm = optax.tree.norm
PACKED = ("prefix_lm", "ul2", "clm_mlm", "masked_diffusion")
packed = pytest.mark.parametrize("name", PACKED)
NUM_ROWS = 48


def without_packing(case):
    """The case whose every position meets the vocabulary."""
    return type(case)(
        case.module,
        case.spec,
        case.model_spec,
        case.model.clone(packed=()),
        case.params,
    )


@packed
@pytest.mark.parametrize("num_microbatches", [1, 3])
def test_packing_changes_no_number(name, num_microbatches, make_case, make_rows):
    case = make_case(name)
    assert case.model.packed
    rows = make_rows(case, NUM_ROWS)
    wanted, sums = without_packing(case).gradients(rows, num_microbatches)
    found, found_sums = case.gradients(rows, num_microbatches)
    left_out, total = found_sums.pop("overflow")
    assert left_out == 0 < total
    assert found_sums.keys() == sums.keys()
    for metric in sums:
        np.testing.assert_allclose(found_sums[metric], sums[metric], rtol=1e-5)
    gap = norm(jax.tree.map(jnp.subtract, found, wanted))
    assert gap / norm(wanted) < 1e-5


@packed
def test_only_the_slots_meet_the_vocabulary(name, make_case, make_rows):
    case = make_case(name)
    rows = make_rows(case, NUM_ROWS)
    expected = case.spec.expected_predictions.values()
    slots = sum(count_slots(NUM_ROWS, each) for each in expected)
    mean = case.spec.mean_predictions(NUM_ROWS)
    assert mean == slots / NUM_ROWS < 0.9 * case.spec.num_predictions
    counted = case.model.count_flops(case.spec.lengths, mean)
    key = jax.random.key(0)
    found = count_products(case.evaluate, case.params, rows, key) / NUM_ROWS
    assert found == pytest.approx(counted / 3, rel=1e-9)
    whole = without_packing(case)
    most = case.model.count_flops(case.spec.lengths, case.spec.num_predictions)
    found = count_products(whole.evaluate, case.params, rows, key) / NUM_ROWS
    assert found == pytest.approx(most / 3, rel=1e-9)


@packed
def test_what_is_drawn_is_what_is_expected(name, make_case, make_rows):
    case = make_case(name)
    rows = make_rows(case, 512)
    batch = case.corrupt(rows)
    for term, expected in case.spec.expected_predictions.items():
        weights = batch["weights"][term] * batch.get("inverse_rates", 1)
        counts = np.asarray((weights > 0).sum(1))
        assert counts.max() <= expected.most
        error = 5 * expected.std / np.sqrt(len(counts))
        # Some are a little fewer than what has room: an end is none of a text's.
        assert expected.mean - error - 1 < counts.mean() < expected.mean + error
        assert counts.std() == pytest.approx(expected.std, rel=0.15)


def test_rows_of_several_texts_are_packed_where_it_is_known_how_much(
    make_packed, make_case
):
    """A prefix language model's are; UL2's texts each add what marks their ends."""
    assert make_packed("prefix_lm").model.packed
    assert not make_packed("ul2").model.packed
    assert not make_packed("prefix_lm/seq2seq").model.packed
    assert not make_case("clm_mlm", clm_first=0.5).model.packed
