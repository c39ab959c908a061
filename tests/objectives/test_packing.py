"""Objectives whose predictions are packed: the same numbers, for fewer operations."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from products import count_products
from scipy import stats

from jaxpt.objectives import clm_mlm, prefix_lm
from jaxpt.ops import packing
from jaxpt.ops.packing import count_slots
from jaxpt.report.inspection.passage import prediction_weights

norm = optax.tree.norm
PACKED = ("prefix_lm", "ul2", "clm_mlm", "dual", "masked_diffusion")
PACKED += ("block_diffusion",)
packed = pytest.mark.parametrize("name", PACKED)
NUM_ROWS = 48


def count_predicted(case, batch, term="loss"):
    """How many positions of each row a loss term predicts, or several terms."""
    weights = prediction_weights(batch, case.spec.terms)
    return np.asarray(sum((weights[name] > 0).sum(-1) for name in term.split("+")))


def moments(law):
    """The mean and the standard deviation of a law."""
    counts = np.arange(law.most + 1)
    mean = np.average(counts, weights=law.probabilities)
    return mean, np.average((counts - mean) ** 2, weights=law.probabilities) ** 0.5


def without_packing(case):
    """The case whose every position meets the vocabulary."""
    return type(case)(
        case.module,
        case.spec,
        case.model_spec,
        case.model.clone(packed=()),
        case.params,
    )


@pytest.mark.slow_except("1-masked_diffusion")
@packed
@pytest.mark.parametrize("num_microbatches", [1, 3])
def test_packing_changes_no_number(name, num_microbatches, make_case, make_rows):
    case = make_case(name)
    assert case.model.packed
    rows = make_rows(case, NUM_ROWS)
    expected, sums = without_packing(case).gradients(rows, num_microbatches)
    result, found_sums = case.gradients(rows, num_microbatches)
    left_out, total = found_sums.pop("overflow")
    assert left_out == 0 < total
    assert found_sums.keys() == sums.keys()
    for metric in sums:
        np.testing.assert_allclose(found_sums[metric], sums[metric], rtol=1e-5)
    gap = norm(jax.tree.map(jnp.subtract, result, expected))
    assert gap / norm(expected) < 1e-5


@pytest.mark.slow_cases("ul2", "clm_mlm")
@packed
def test_only_the_slots_meet_the_vocabulary(name, make_case, make_rows):
    case = make_case(name)
    rows = make_rows(case, NUM_ROWS)
    laws = case.spec.predictions.laws.values()
    slots = sum(count_slots(NUM_ROWS, law) for law in laws)
    mean = case.spec.predictions.mean(NUM_ROWS)
    assert mean == slots / NUM_ROWS < 0.95 * case.spec.predictions.most
    counted = case.model.count_flops(case.spec.lengths, mean)
    key = jax.random.key(0)
    result = count_products(case.evaluate, case.params, rows, key) / NUM_ROWS
    assert result == pytest.approx(counted / 3, rel=1e-9)
    whole = without_packing(case)
    most = case.model.count_flops(case.spec.lengths, case.spec.predictions.most)
    result = count_products(whole.evaluate, case.params, rows, key) / NUM_ROWS
    assert result == pytest.approx(most / 3, rel=1e-9)


@pytest.mark.slow_except("masked_diffusion")
@packed
def test_what_is_drawn_is_what_is_expected(name, make_case, make_rows):
    case = make_case(name)
    rows = make_rows(case, 512)
    batch = case.corrupt(rows)
    for term, law in case.spec.predictions.laws.items():
        counts = count_predicted(case, batch, term)
        assert counts.max() <= law.most
        mean, std = moments(law)
        error = 5 * std / np.sqrt(len(counts))
        # Some are slightly fewer than the room: an end is not part of a text.
        assert mean - error - 1 < counts.mean() < mean + error
        if name == "block_diffusion":  # the rates of a row's blocks are evenly spread
            assert counts.std() < 1.15 * std
        else:
            assert counts.std() == pytest.approx(std, rel=0.15)


MIN_RATES = (0.3, 0.5, 0.8, 0.99)


@pytest.mark.parametrize("min_rate", MIN_RATES)
def test_no_masked_token_is_left_out_at_any_min_rate(
    min_rate, make_case, make_rows, vocab
):
    """In 400 batches cut into microbatches, of which each is every n-th row."""
    case = make_case("masked_diffusion", min_rate=min_rate)
    rows, num_rows = make_rows(case, 64), 64
    (law,) = case.spec.predictions.laws.values()
    keys = jax.random.split(jax.random.key(0), 400)

    @jax.jit
    @jax.vmap
    def corrupt(key):
        return case.module.corrupt(key, rows, vocab, case.spec)

    batches = corrupt(keys)
    counts = count_predicted(case, batches)
    mean, _ = moments(law)
    assert counts.mean() == pytest.approx(mean, rel=0.01)
    for num_microbatches in (1, 2, 4, 8, 16, 32):
        sums = counts.reshape(len(keys), -1, num_microbatches).sum(1)
        slots = count_slots(num_rows // num_microbatches, law)
        assert sums.max() <= slots, (num_microbatches, sums.max(), slots)


@pytest.mark.parametrize("min_rate", [0.5, 0.99])
def test_microbatches_do_not_change_the_loss(min_rate, make_case, make_rows):
    case = make_case("masked_diffusion", min_rate=min_rate)
    batch = case.corrupt(make_rows(case, 32))
    expected, _ = without_packing(case).loss(batch)[0]["loss"]
    for num in (1, 4):
        result = 0.0
        for i in range(num):
            piece = jax.tree.map(lambda x, i=i: x[i::num], batch)
            result += float(case.loss(piece)[0]["loss"][0])
        assert result == pytest.approx(float(expected), rel=1e-5), num


def test_packed_rows_of_several_texts_need_no_more_slots():
    """Prefixes of two texts of 10 tokens against one of 20, of which the slots are."""
    both = np.convolve(*2 * [packing.uniform(1, 9).probabilities])
    spec = prefix_lm.Spec(row_length=20)
    (law,) = spec.predictions.laws.values()
    total = np.ones(1)
    for num_rows in range(1, 65):
        total = np.convolve(total, both)
        assert total[count_slots(num_rows, law) + 1 :].sum() <= packing.MAX_TAIL


@pytest.mark.parametrize("mlm_share", [0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 1.0])
def test_a_share_of_rows_has_its_slots(mlm_share):
    """The number of rows of a kind is binomial; one batch in 30,000 may have more."""
    spec = clm_mlm.Spec(row_length=129, mlm_share=mlm_share)
    of_kind = {"clm_loss": (128, 1 - mlm_share), "mlm_loss": (19, mlm_share)}
    for term, law in spec.predictions.laws.items():
        per_row, share = of_kind[term]
        for num_rows in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512):
            num_held = count_slots(num_rows, law) // per_row
            left_out = stats.binom.sf(num_held, num_rows, share)
            assert left_out <= packing.MAX_TAIL, (term, num_rows)


def test_rows_of_several_texts_are_packed_where_it_is_known_how_much(
    make_packed, make_case
):
    """A prefix language model's are; UL2's texts each add what marks their ends."""
    assert make_packed("prefix_lm").model.packed
    assert not make_packed("ul2").model.packed
    assert not make_packed("prefix_lm/seq2seq").model.packed
    assert not make_case("clm_mlm", mlm_schedule=((0.5, 0.0),)).model.packed


def test_a_share_that_changes_has_the_slots_of_its_maximum():
    """Of causal rows where few are masked, and of masked ones where many are."""
    schedule = {"mlm_schedule": ((0.5, 0.25), (1.0, 0.75)), "mlm_share": 0.5}
    laws = clm_mlm.Spec(20, **schedule).predictions.laws
    low, high = (clm_mlm.Spec(20, mlm_share=s).predictions.laws for s in (0.25, 0.75))
    assert laws == {"clm_loss": low["clm_loss"], "mlm_loss": high["mlm_loss"]}
