"""Adaptive masking: which tokens the weights hide, and what the weights follow."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpt.objectives import adaptive_mlm
from jaxpt.objectives.adaptive_mlm import TokenState

ADAM = optax.adam(1e-2)
DOCUMENTS = [20, 3, 0, 12, 20, 7, 1, 16]  # where each row's second one ends


def at(rows, progress):
    """The rows as they are when this fraction of the run is done."""
    return rows | {"progress": jnp.full(len(rows["index"]), progress)}


def corrupt(case, rows, weights, vocab, seed=0):
    run = jax.jit(
        lambda rng, rows, weights: adaptive_mlm.corrupt_weighted(
            rng, rows, vocab, case.spec, weights
        )
    )
    return run(jax.random.key(seed), rows, jnp.asarray(weights, jnp.float32))


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=6),
    st.floats(0.01, 0.9),
)
@settings(max_examples=40, deadline=None)
def test_two_updates_are_the_sources(counts, rate):
    """At two rates, as during a run."""
    right, wrong = np.array(counts).T
    expected = np.full(len(counts), rate)
    state = TokenState(jnp.full(len(counts), rate), None, None)
    for r in (rate, rate / 2):
        accuracy = (right + 0.5) / (wrong + right + 1)
        expected = 0.2 * expected + 0.8 * (r - accuracy * r)
        expected = np.clip(expected, 0.005, None)
        expected = r * len(counts) * expected / expected.sum()
        known = jnp.asarray(right), jnp.asarray(right + wrong)
        state = adaptive_mlm.update_weights(TokenState(state.weights, *known), r)
    np.testing.assert_allclose(state.weights, expected, rtol=1e-5)
    assert not state.num_right.any() and not state.num_hidden.any()


@pytest.mark.parametrize("hard", [2.0, 100.0])
def test_a_token_is_hidden_with_the_probability_of_its_weight(
    hard, make_case, make_rows, vocab
):
    """At weight 100 r L w / sum(w) is above 1: as many are hidden nonetheless."""
    case = make_case("adaptive_mlm", mask_rate=0.4, mask_rate_end=0.0)
    num = 8000
    ids = np.array([7, 7, 8, 9, 2, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 4, 0, 0])
    ids = np.pad(ids, (0, case.spec.row_length - len(ids)))
    rows = {"tokens": np.tile(ids, (num, 1)), "index": np.arange(num)}
    rows["segment_ids"] = np.tile(ids > 0, (num, 1)).astype(np.int32)
    weights = np.full(40, 0.3)
    weights[7], weights[8] = 0.3 * hard, 0.1
    batch = corrupt(case, rows, weights, vocab)
    assert (batch["weights"]["loss"].sum(1) == 6).all()  # .4 of 16 tokens
    hidden = np.zeros((num, case.spec.row_length))
    np.put_along_axis(
        hidden, np.asarray(batch["masked_positions"]), batch["weights"]["loss"], 1
    )
    each = np.where((ids > 0) & ~np.isin(ids, (2, 4)), weights[ids], 0)
    expected = 6 * each / each.sum()
    if hard == 100:
        assert expected[0] > 1
        others = each * (ids != 7)
        expected = np.where(ids == 7, 1, 4 * others / others.sum())
    np.testing.assert_allclose(hidden.mean(0), expected, atol=0.02)


def test_without_updates_it_is_mlm_bit_by_bit(make_packed, make_rows):
    rates = {"mask_rate": 0.4, "mask_rate_end": 0.15}
    adaptive = make_packed("adaptive_mlm", update_every=0)
    plain = make_packed("mlm", **rates)
    rows = make_rows(adaptive, 8, lengths=DOCUMENTS, specials=0.1)

    def learn(case):
        step = jax.jit(case.make_step(ADAM, num_microbatches=2))
        state = case.init_state(ADAM)
        for i in range(4):
            state, metrics = step(state, at(rows, i / 4), jax.random.key(i))
        return state, metrics

    (state, metrics), (expected, others) = learn(adaptive), learn(plain)
    check = lambda tree, other: jax.tree.map(np.testing.assert_array_equal, tree, other)  # noqa: E731
    check(state.params, expected.params)
    check(metrics, others)
    assert (state.objective_state.weights == jnp.float32(0.4)).all()
    # And it is evaluated as mlm is.
    key, params = jax.random.key(9), state.params
    check(adaptive.evaluate(params, rows, key), plain.evaluate(params, rows, key))


@pytest.mark.parametrize("num_microbatches", [1, 4])
def test_a_step_counts_by_id_what_it_predicted(
    num_microbatches, make_packed, make_rows, vocab
):
    case = make_packed("adaptive_mlm", update_every=2)
    params = jax.tree.map(lambda x: 5 * x, case.params)  # some predictions are right
    case = dataclasses.replace(case, params=params)
    rows = at(make_rows(case, 8, lengths=DOCUMENTS), 0.5)
    step = jax.jit(case.make_step(optax.set_to_zero(), num_microbatches))
    state, key = case.init_state(optax.set_to_zero()), jax.random.key(3)
    after, metrics = step(state, rows, key)
    rng = jax.random.split(key, 3)[0]

    @jax.jit
    def predict(params, rng, rows):
        batch = adaptive_mlm.corrupt_weighted(
            rng, rows, vocab, case.spec, state.objective_state.weights
        )
        masks = adaptive_mlm.masks(batch)
        call = adaptive_mlm.mlm.predict_masked
        return batch, call(params, case.model, batch, masks, {}).ranks

    batch, ranks = predict(params, rng, rows)
    right, hidden = np.zeros(40), np.zeros(40)
    weights = np.asarray(batch["weights"]["loss"])
    np.add.at(hidden, np.asarray(batch["targets"]), weights)
    np.add.at(right, np.asarray(batch["targets"]), weights * (np.asarray(ranks) == 1))
    kept = after.objective_state
    np.testing.assert_array_equal(kept.num_hidden, hidden)
    np.testing.assert_array_equal(kept.num_right, right)
    assert 0 < right.sum() < hidden.sum() == metrics["loss"][1]
    assert metrics["masked_accuracy"][0] == right.sum()
    np.testing.assert_array_equal(kept.weights, state.objective_state.weights)
    # The second step ends with an update, at the rate of its place in the run.
    updated, _ = step(after, rows, jax.random.key(4))
    weights = updated.objective_state.weights
    assert float(weights.mean()) == pytest.approx(0.275, rel=1e-5)
    assert not updated.objective_state.num_hidden.any()
    others = [i for i in range(40) if i not in set(np.asarray(rows["tokens"]).ravel())]
    assert weights.max() > weights[others[0]] and weights.min() < weights[others[0]]


def test_a_token_that_is_always_predicted_is_hidden_less(make_case, make_rows):
    """Id 7 is known after some steps, the others are random."""
    case = make_case("adaptive_mlm", update_every=40)
    rows = make_rows(case, 16)
    tokens = rows["tokens"]
    half = jnp.arange(tokens.shape[1]) % 2 == 0
    tokens = jnp.where(half, 7, tokens.at[tokens == 7].set(8))
    rows |= {"tokens": tokens, "index": jnp.arange(16)}
    step = case.make_step(ADAM)

    @jax.jit
    def learn(state):
        body = lambda state, i: step(state, at(rows, 0.0), jax.random.key(i))  # noqa: E731
        return jax.lax.scan(body, state, jnp.arange(160))[0]

    state = learn(case.init_state(ADAM))
    weights = np.asarray(state.objective_state.weights)
    assert weights[7] < 0.25 < weights[8:32].min()


def test_inputs_show_nothing_of_what_is_hidden(make_case, make_rows, vocab):
    """The draw depends on ids by their weights alone."""
    case = make_case("adaptive_mlm", replace_mask=1.0, replace_random=0.0)
    rows = make_rows(case, 6)
    weights = np.random.default_rng(0).uniform(0.1, 0.9, 20).repeat(2)
    batch = corrupt(case, rows, weights, vocab)
    positions = batch["masked_positions"]
    drawn = batch["weights"]["loss"] > 0
    assert (batch["inputs"] != rows["tokens"]).sum() == drawn.sum()
    # Each hidden token becomes the other id of its weight: 8 and 9, 10 and 11, ...
    twin = jnp.where(rows["tokens"] > 7, rows["tokens"] ^ 1, rows["tokens"])
    row = jnp.arange(6)[:, None]
    hidden = jnp.zeros(twin.shape, bool).at[row, positions].max(drawn)
    others = rows | {"tokens": jnp.where(hidden, twin, rows["tokens"])}
    other = corrupt(case, others, weights, vocab)
    np.testing.assert_array_equal(batch["inputs"], other["inputs"])
    assert (batch["targets"] != other["targets"])[drawn].mean() > 0.8
