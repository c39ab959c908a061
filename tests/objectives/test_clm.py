"""Causal language modelling: the shift, and who sees whom."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpt.learn.optim_spec import OPTIMIZER_DEFAULTS, OptimSpec
from jaxpt.learn.optimizer import make_optimizer
from jaxpt.learn.state import make_state
from jaxpt.objectives import clm


def test_a_row_holds_one_token_more_than_the_model_reads():
    spec = clm.Spec.for_seq_len(48)
    assert spec.row_length == 49 and spec.lengths == {"decoder": 48}


def test_targets_are_the_next_tokens_of_the_same_document():
    rows = {
        "tokens": jnp.array([[7, 8, 9, 10, 11, 0, 0]]),
        "segment_ids": jnp.array([[1, 1, 2, 2, 2, 0, 0]]),
        "index": jnp.array([0]),
    }
    batch = clm.corrupt(None, rows, None, clm.Spec(7))
    assert batch["inputs"].tolist() == [[7, 8, 9, 10, 11, 0]]
    assert batch["targets"].tolist() == [[8, 9, 10, 11, 0, 0]]
    # Not 9 after 8, which opens another document, nor padding after 11.
    assert batch["weights"]["loss"].tolist() == [[1, 0, 1, 1, 0, 0]]
    assert batch["segment_ids"].tolist() == [[1, 1, 2, 2, 2, 0]]


def test_rows_of_one_document_count_in_full(make_case, make_rows):
    case = make_case("clm")
    batch = case.corrupt(make_rows(case, 3))
    assert batch["weights"]["loss"].shape == (3, 20) and batch["weights"]["loss"].all()


def test_a_token_is_scored_by_what_came_before_it_alone(make_case, make_rows):
    case = make_case("clm")
    tokens = make_rows(case, 3)["tokens"]
    nats_of = jax.jit(lambda t: case.model.token_nll(case.params, t))
    nll = nats_of(tokens)
    assert nll.shape == (3, 20)
    changed = nats_of(tokens.at[:, 12:].set(8))
    np.testing.assert_array_equal(nll[:, :11], changed[:, :11])
    assert (nll[:, 11:] != changed[:, 11:]).any(0).all()


def test_likelihood_loss_and_next_logits_agree(make_case, make_rows):
    case = make_case("clm")
    rows = make_rows(case, 3)
    tokens = rows["tokens"]
    next_logits = jax.jit(lambda t: case.model.next_logits(case.params, t))
    logits = next_logits(tokens[:, :-1])
    log_p = np.asarray(jax.nn.log_softmax(logits))
    expected = -np.take_along_axis(log_p, np.asarray(tokens)[:, 1:, None], -1)[..., 0]
    nll = jax.jit(lambda t: case.model.token_nll(case.params, t))(tokens)
    np.testing.assert_allclose(nll, expected, rtol=1e-5)
    batch = case.corrupt(rows)
    terms, _ = case.loss(batch)
    np.testing.assert_allclose(terms["loss"][0], expected.sum(), rtol=1e-5)
    assert terms["loss"][1] == 60


def test_packed_documents_do_not_see_each_other(make_case, make_rows):
    case = make_case("clm")
    rows = make_rows(case, 2, lengths=[20, 16])
    is_second = rows["segment_ids"] == 2
    others = rows | {"tokens": jnp.where(is_second, rows["tokens"], 8)}

    @jax.jit
    @jax.grad
    def gradient(params, rows):
        batch = clm.corrupt(None, rows, None, case.spec)
        of_second = batch["weights"]["loss"] * is_second[:, :-1]
        batch = batch | {"weights": {"loss": of_second}}
        return clm.loss(params, case.model, batch, clm.masks(batch), {})[0]["loss"][0]

    result, expected = gradient(case.params, others), gradient(case.params, rows)
    for a, b in zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(result)) > 0


LRS = {
    **dict.fromkeys(("adamw", "muon", "normuon"), 1e-2),
    "adafactor": 0.1,
    "lamb": 0.04,
    "lion": 4e-3,
}


@pytest.mark.slow_except("lion")
@pytest.mark.parametrize("name", OPTIMIZER_DEFAULTS)
def test_every_optimizer_learns_one_batch_by_heart(name, make_case, make_rows, vocab):
    case = make_case("clm")
    rows = make_rows(case, 4)
    rows["tokens"] = rows["tokens"].at[:, 0].set(jnp.arange(4) + 10)
    optimizer = make_optimizer(OptimSpec(name=name, lr=LRS[name]), 150)
    step = case.make_step(optimizer)

    def run(state):
        body = lambda state, _: step(state, rows, jax.random.key(3))  # noqa: E731
        return jax.lax.scan(body, state, length=150)

    _, metrics = jax.jit(run)(make_state(case.params, optimizer))
    losses = metrics["loss"][0] / metrics["loss"][1]
    assert losses[0] > 3.5 and losses[-1] < 0.1
    norms = metrics["grad_norm"][0]
    assert (norms > 0).all() and norms[-1] < norms[0]
