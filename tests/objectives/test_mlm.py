"""Masked language modelling: exact counts, only ordinary tokens, 80/10/10."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpt.objectives import mlm
from jaxpt.text.tokens.vocab import Vocab

R = 20
VOCAB = Vocab(size=40, pad=0, cls=2, sep=3, mask=4, sentinels=tuple(range(39, 31, -1)))
ORDINARY = set(VOCAB.ordinary_ids.tolist())


@jax.jit
def corrupt_all(rng, rows):
    """At three rates, in one program."""
    return [mlm.corrupt(rng, rows, VOCAB, spec) for spec in SPECS]


SPECS = [mlm.Spec(R, mask_rate=rate) for rate in (0.01, 0.15, 0.5)]


@given(
    st.lists(st.integers(0, 39), min_size=3 * R, max_size=3 * R),
    st.lists(st.integers(0, R), min_size=3, max_size=3),
    st.integers(0, 2**31 - 1),
)
@settings(max_examples=60, deadline=None)
def test_counts_are_exact_and_only_drawn_positions_change(tokens, lengths, seed):
    tokens = np.array(tokens, np.int32).reshape(3, R)
    real = np.arange(R) < np.array(lengths)[:, None]
    rows = {
        "tokens": tokens,
        "segment_ids": real.astype(np.int32),
        "index": np.arange(3),
    }
    for spec, batch in zip(SPECS, corrupt_all(jax.random.key(seed), rows), strict=True):
        batch = jax.tree.map(np.asarray, batch)
        assert batch["masked_positions"].shape == (3, spec.num_masked)
        for i in range(3):
            drawn = batch["weights"]["loss"][i] > 0
            eligible = real[i] & np.isin(tokens[i], VOCAB.ordinary_ids)
            count = max(1, round(spec.mask_rate * lengths[i])) if lengths[i] else 0
            assert drawn.sum() == min(count, eligible.sum())
            places = batch["masked_positions"][i][drawn]
            assert len(set(places.tolist())) == len(places)
            assert eligible[places].all()
            assert (batch["targets"][i][drawn] == tokens[i][places]).all()
            elsewhere = np.delete(np.arange(R), places)
            assert (batch["inputs"][i][elsewhere] == tokens[i][elsewhere]).all()
            assert set(batch["inputs"][i][places].tolist()) <= ORDINARY | {VOCAB.mask}


def test_a_full_row_fills_every_slot():
    assert mlm.Spec(128).num_masked == 19 and mlm.Spec(512).num_masked == 77
    assert mlm.Spec(3).num_masked == 1
    assert mlm.Spec.for_seq_len(48).row_length == 48


@pytest.mark.slow_cases("shares0", "shares2")
@pytest.mark.parametrize("shares", [(0.8, 0.1), (0.5, 0.5), (1.0, 0.0), (0.0, 0.0)])
def test_shares_of_what_is_shown(shares, make_rows):
    spec = mlm.Spec(R, 0.5, *shares)
    draw = np.random.default_rng(0)
    tokens = draw.choice(VOCAB.ordinary_ids, (2000, R)).astype(np.int32)
    rows = {"tokens": jnp.asarray(tokens), "index": jnp.arange(2000)}
    batch = jax.jit(lambda rng, rows: mlm.corrupt(rng, rows, VOCAB, spec))(
        jax.random.key(0), rows
    )
    inputs = np.take_along_axis(
        np.asarray(batch["inputs"]), batch["masked_positions"], axis=1
    )
    is_mask, is_kept = inputs == VOCAB.mask, inputs == batch["targets"]
    # A random word is the token itself with probability 1 / number of words.
    chance = shares[1] / len(ORDINARY)
    assert is_mask.mean() == pytest.approx(shares[0], abs=0.01)
    assert is_kept.mean() == pytest.approx(1 - sum(shares) + chance, abs=0.01)
    random = inputs[~is_mask & ~is_kept]
    assert set(random.tolist()) == (ORDINARY if shares[1] else set())
    # Positions are drawn evenly.
    counts = np.bincount(np.asarray(batch["masked_positions"]).ravel(), minlength=R)
    assert abs(counts / 2000 - 0.5).max() < 0.06


def test_rows_of_specials_alone_weigh_nothing(make_case, make_rows):
    case = make_case("mlm")
    rows = make_rows(case, 8, specials=1.0, lengths=[20] * 8)
    grads, sums = case.gradients(rows)
    assert sums["loss"] == (0, 0)
    assert all((np.asarray(leaf) == 0).all() for leaf in jax.tree.leaves(grads))


def test_only_hidden_positions_meet_the_vocabulary(make_case, make_rows):
    case = make_case("mlm")
    batch = case.corrupt(make_rows(case, 3))

    def total(params):
        return mlm.loss(params, case.model, batch, mlm.masks(batch), {})[0]["loss"][0]

    program = jax.jit(jax.grad(total)).lower(case.params).as_text()
    assert "tensor<3x3x40xf32>" in program or "tensor<9x40xf32>" in program  # P is 3
    assert "tensor<3x20x40x" not in program and "tensor<60x40x" not in program


def test_the_loss_is_read_at_the_hidden_positions(make_case, make_rows):
    case = make_case("mlm")
    batch = case.corrupt(make_rows(case, 3, specials=0.5))
    terms, metrics = case.loss(batch)
    fill_logits = jax.jit(lambda t: case.model.fill_logits(case.params, t))
    logits = fill_logits(batch["inputs"])
    log_p = np.asarray(jax.nn.log_softmax(logits))
    total = hits = 0.0
    for i in range(3):
        for slot in range(3):
            if batch["weights"]["loss"][i, slot]:
                scores = log_p[i, batch["masked_positions"][i, slot]]
                total -= scores[batch["targets"][i, slot]]
                hits += scores.argmax() == batch["targets"][i, slot]
    assert float(terms["loss"][0]) == pytest.approx(total, rel=1e-5)
    assert metrics["masked_accuracy"] == (hits, batch["weights"]["loss"].sum())
    assert metrics["masked_top5_accuracy"][0] >= hits


@pytest.mark.parametrize("name", ["mlm", "masked_diffusion"])
def test_value_embeddings_and_smear_read_the_corrupted_row(name, make_case):
    """By gradient: of no token that is hidden everywhere, in any table but the head."""
    values = ("value_embeddings", True), ("smear", True), ("tie_embeddings", False)
    masks = {"replace_mask": 1.0, "replace_random": 0.0} if name == "mlm" else {}
    case = make_case(name, values, **masks)
    tokens = jnp.arange(7, 7 + case.spec.row_length)[None]  # each once
    batch = case.corrupt({"tokens": tokens, "index": jnp.array([1])})
    total = lambda params: case.loss(batch, params)[0]["loss"][0]  # noqa: E731
    grads = jax.jit(jax.grad(total))(case.params)
    layer = grads["encoder"]["layer_0"]["attention"]
    read = set(np.unique(batch["inputs"]).tolist())
    assert 3 <= len(set(tokens[0].tolist()) - read) < 20
    for table in (grads["embed"]["tokens"], layer["value_embed"]["table"]):
        assert set(np.flatnonzero(np.any(table, axis=1))) == read
    assert all(np.any(x) for x in jax.tree.leaves(grads["embed"]["smear"]))


def test_packed_documents_do_not_see_each_other(make_case, make_rows):
    case = make_case("mlm", mask_rate=0.5)
    rows = make_rows(case, 2, lengths=[20, 16])
    is_first = rows["segment_ids"] == 1
    batch = case.corrupt(rows)
    assert (batch["segment_ids"] == rows["segment_ids"]).all()
    in_first = jnp.take_along_axis(is_first, batch["masked_positions"], axis=1)
    batch = batch | {"weights": {"loss": batch["weights"]["loss"] * in_first}}
    others = batch | {"inputs": jnp.where(is_first, batch["inputs"], 8)}

    @jax.jit
    @jax.grad
    def gradient(params, batch):
        return mlm.loss(params, case.model, batch, mlm.masks(batch), {})[0]["loss"][0]

    result, expected = gradient(case.params, others), gradient(case.params, batch)
    for a, b in zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(result)) > 0
