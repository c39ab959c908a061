"""Token order prediction: the targets of the second head, and what leaves it out."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpt.objectives import clm, token_order
from jaxpt.objectives.token_order import NUM_OFFSETS, order_targets


def plain_targets(row, documents, vocab_size):
    """By definition: the softmax of -distance over the tokens that occur again."""
    targets = np.zeros((len(row) - 1, vocab_size))
    for t in range(len(row) - 1):
        scores = np.full(vocab_size, -np.inf)
        for s in range(len(row) - 1, t, -1):
            if documents[s] == documents[t] > 0:
                scores[row[s]] = t - s
        if np.isfinite(scores).any():
            targets[t] = np.exp(scores - scores.max())
            targets[t] /= targets[t].sum()
    return targets


def dense(tokens, shares, vocab_size):
    """[T, V] from the tokens and shares of each position."""
    result = np.zeros((tokens.shape[0], vocab_size))
    for t in range(len(tokens)):
        np.add.at(result[t], tokens[t], shares[t])
    return result


@settings(max_examples=50, deadline=None)
@given(
    # Few lengths, for each is compiled: the least, below NUM_OFFSETS, and above it.
    st.sampled_from([2, 3, 17, 40]).flatmap(
        lambda size: st.lists(st.integers(0, 5), min_size=size, max_size=size)
    ),
    st.lists(st.integers(1, 30), max_size=3),
)
def test_targets_are_the_softmax_of_distances(row, ends):
    documents = 1 + np.searchsorted(sorted(ends), np.arange(len(row)), side="right")
    is_next = documents[1:] == documents[:-1]
    row = np.array(row)
    tokens, shares = jax.jit(order_targets)(row[None, 1:], is_next[None])
    result = dense(np.asarray(tokens[0]), np.asarray(shares[0]), 6)
    np.testing.assert_allclose(result, plain_targets(row, documents, 6), atol=2e-7)


def test_what_is_left_out_is_below_the_rounding_of_float32():
    """The farthest counted tokens of a row without repetitions."""
    row = np.arange(3 * NUM_OFFSETS)
    expected = plain_targets(row, np.ones_like(row), len(row))
    kept = expected[0, 1 : NUM_OFFSETS + 1].sum()
    assert 0 < 1 - kept < np.finfo(np.float32).eps


def test_the_loss_is_the_cross_entropy_of_the_targets(make_case, make_rows):
    case = make_case("token_order", order_weight=0.5)
    rows = make_rows(case, 3, lengths=[20, 14, 9])
    batch = case.corrupt(rows)
    model, params = case.model, case.params

    def predict(model):
        states = model.batch_states(batch, case.module.masks(batch), deterministic=True)
        kernel, bias = model.order.read(states.shape[-1])
        assert bias is None
        return model.logits(states), states @ kernel

    @jax.jit
    def read(params):
        return model.apply({"params": params}, method=predict)

    logits, orders = read(params)
    terms, _ = case.loss(batch)
    is_next = np.asarray(batch["weights"]["loss"]) > 0
    total, log_p = 0.0, np.asarray(jax.nn.log_softmax(orders))
    for i, row in enumerate(np.asarray(rows["tokens"])):
        documents = np.asarray(rows["segment_ids"])[i]
        targets = plain_targets(row, documents, log_p.shape[-1])
        total -= (targets * log_p[i])[is_next[i]].sum()
    assert terms["order_loss"][0] == pytest.approx(total, rel=1e-5)
    assert terms["order_loss"][1] == terms["loss"][1] == is_next.sum()
    nll = optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"])
    assert terms["loss"][0] == pytest.approx(float(nll[is_next].sum()), rel=1e-5)
    assert case.spec.coefficients == {"loss": 1.0, "order_loss": 0.5}


def test_without_the_second_loss_it_is_clm(make_case, make_rows):
    case = make_case("token_order")
    rows = make_rows(case, 2, lengths=[20, 14])
    batch = case.corrupt(rows)
    base = {k: v for k, v in case.params.items() if k != "order"}
    plain = clm.Spec(row_length=20).kind(0)(case.model.spec)

    def total(module, model):
        def run(params):
            masks = module.masks(batch)
            return module.loss(params, model, batch, masks, {})[0]["loss"][0]

        return jax.jit(jax.value_and_grad(run))

    value, grads = total(token_order, case.model)(case.params)
    expected_value, expected = total(clm, plain)(base)
    assert value == expected_value
    assert not np.asarray(grads.pop("order")["kernel"]).any()
    jax.tree.map(np.testing.assert_array_equal, grads, expected)
    # The second loss trains its head and the states below.
    second = jax.jit(
        jax.grad(
            lambda params: token_order.loss(
                params, case.model, batch, token_order.masks(batch), {}
            )[0]["order_loss"][0]
        )
    )(case.params)
    assert np.abs(second["order"]["kernel"]).max() > 0
    assert np.abs(second["encoder"]["layer_0"]["mlp"]["up"]["kernel"]).max() > 0


def test_scores_and_exports_leave_the_second_head_out(make_case):
    case = make_case("token_order")
    other = case.params | {"order": jax.tree.map(jnp.zeros_like, case.params["order"])}
    tokens = jnp.arange(7, 19)[None]
    for method in (case.model.next_logits, case.model.token_nll):
        read = jax.jit(method)
        np.testing.assert_array_equal(read(case.params, tokens), read(other, tokens))
    ((_, exported),) = case.model.export_parts(case.params).values()
    assert set(exported) == set(case.params) - {"order"}
