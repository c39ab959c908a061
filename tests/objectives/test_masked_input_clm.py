"""Causal rows with masked inputs, with or without a clean pass; clm as a control."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxpt.objectives import masked_input_clm
from jaxpt.objectives.masked_input_clm import hide_exactly
from jaxpt.ops.masks import materialise

norm = optax.tree.norm


def gap(one, two):
    """How far two trees are apart, relative to the second."""
    return norm(jax.tree.map(jnp.subtract, one, two)) / norm(two)


@pytest.mark.parametrize("max_rate", [0.5, 1.0])
def test_rates_are_uniform_and_every_position_takes_part(max_rate, make_case, vocab):
    case = make_case("masked_input_clm", max_rate=max_rate)
    tokens = np.random.default_rng(0).integers(7, 32, (4096, 21)).astype(np.int32)
    rows = {"tokens": jnp.asarray(tokens), "index": jnp.arange(4096)}
    batch = jax.tree.map(np.asarray, case.corrupt(rows))
    hidden = batch["inputs"] == vocab.mask
    np.testing.assert_array_equal(batch["original"], tokens[:, :-1])
    np.testing.assert_array_equal(batch["targets"], tokens[:, 1:])
    np.testing.assert_array_equal(batch["inputs"][~hidden], tokens[:, :-1][~hidden])
    # The first token too, and no target is left out.
    np.testing.assert_allclose(hidden.mean(0), max_rate / 2, atol=0.03)
    assert all(weights.all() for weights in batch["weights"].values())
    # The number in a row: a binomial of a uniform rate has a variance above that of 20
    # draws at one rate, 20 r (1 - r).
    counts = hidden.sum(1)
    variance = 20 * (max_rate / 2 - max_rate**2 / 3) + 400 * max_rate**2 / 12
    assert counts.var() == pytest.approx(variance, rel=0.08)


@pytest.mark.parametrize("number", [0, 1, 8])
def test_the_first_inputs_of_each_text_are_masked_only_if_asked(
    number, make_case, vocab
):
    """Of a row, and of each document of a packed one; the others as without it."""
    case = make_case("masked_input_clm", max_rate=1.0, clean_inputs=number)
    every = make_case("masked_input_clm", max_rate=1.0)
    tokens = np.random.default_rng(0).integers(7, 32, (512, 21)).astype(np.int32)
    rows = {"tokens": jnp.asarray(tokens), "index": jnp.arange(512)}
    segments = jnp.asarray([[1] * 10 + [2] * 9 + [0] * 2] * 512)
    for more, starts in (({}, (0,)), ({"segment_ids": segments}, (0, 10))):
        hidden, others = (
            np.asarray(each.corrupt(rows | more)["inputs"]) == vocab.mask
            for each in (case, every)
        )
        is_clean = np.zeros(20, bool)
        for start in starts:
            is_clean[start : start + number] = True
        assert not hidden[:, is_clean].any() and others[:, : 19 - 2].any(0).all()
        is_text = np.arange(20) < (19 if more else 20)
        np.testing.assert_array_equal(
            hidden[:, ~is_clean & is_text], others[:, ~is_clean & is_text]
        )


def test_special_tokens_stay_and_only_next_tokens_of_a_document_count(
    make_case, make_rows, vocab
):
    case = make_case("masked_input_clm", max_rate=1.0)
    rows = make_rows(case, 64, lengths=[21, 12, 6, 0] * 16, specials=0.3)
    batch = jax.tree.map(np.asarray, case.corrupt(rows))
    hidden = batch["inputs"] != batch["original"]
    assert hidden.any() and not vocab.is_special[batch["original"][hidden]].any()
    segments = np.asarray(rows["segment_ids"])
    is_next = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
    for weights in batch["weights"].values():
        np.testing.assert_array_equal(weights, is_next)
    seen = np.asarray(materialise(case.module.masks(batch)["self"], 20, 20))
    assert not np.triu(seen, 1).any()


def test_each_loss_is_clms_of_its_inputs(make_case, make_rows):
    case, other = make_case("masked_input_clm"), make_case("clm")
    assert jax.tree.structure(case.params) == jax.tree.structure(other.params)
    batch = case.corrupt(make_rows(case, 4, lengths=[21, 12, 17, 5]))
    assert (batch["inputs"] != batch["original"]).any()
    terms, metrics = case.loss(batch)
    for term, key in (("loss", "original"), ("masked_loss", "inputs")):
        weights = {"loss": batch["weights"]["loss"]}
        expected, hits = other.loss(batch | {"inputs": batch[key], "weights": weights})
        np.testing.assert_allclose(terms[term], expected["loss"], rtol=1e-6)
        if term == "loss":
            np.testing.assert_allclose(metrics["accuracy"], hits["accuracy"])
    assert terms["loss"][0] != terms["masked_loss"][0]


@pytest.mark.slow_cases("0.4")
@pytest.mark.parametrize("weight", [0.4, 1.5])
def test_with_nothing_masked_the_gradient_is_a_multiple_of_clms(
    weight, make_case, make_rows
):
    case = make_case("masked_input_clm", max_rate=1e-9, masked_weight=weight)
    other = make_case("clm")
    rows = make_rows(case, 4, lengths=[21, 12, 17, 5])
    grads, sums = case.gradients(rows)
    expected, other_sums = other.gradients(rows)
    expected = jax.tree.map(lambda x: (1 + weight) * x, expected)
    assert gap(grads, expected) < 1e-6
    for term in ("loss", "masked_loss"):
        np.testing.assert_allclose(sums[term], other_sums["loss"], rtol=1e-6)


def test_nothing_reaches_a_prediction_that_it_must_not(make_case, make_rows, vocab):
    """By the gradient of the table of inputs, which has one row for each token."""
    case = make_case("masked_input_clm", (("tie_embeddings", False),), max_rate=1.0)
    rows = make_rows(case, 3)
    order = [np.random.default_rng(i).permutation(25)[:21] + 7 for i in range(3)]
    rows["tokens"] = jnp.asarray(np.stack(order), jnp.int32)  # no token twice
    batch = case.corrupt(rows)

    @jax.jit
    def gradient(params, batch, row, position):
        def read(params, term):
            terms, _ = masked_input_clm.loss(
                params, case.model, batch | {"weights": weights}, masks, {}
            )
            return terms[term][0]

        masks = case.module.masks(batch)
        weights = {
            key: jnp.zeros_like(w).at[row, position].set(w[row, position])
            for key, w in batch["weights"].items()
        }
        return [jax.grad(read)(params, term) for term in ("loss", "masked_loss")]

    num_hidden = 0
    for row in range(3):
        both = gradient(case.params, batch, row, 15)
        for key, grads in zip(("original", "inputs"), both, strict=True):
            table = np.asarray(grads["embed"]["tokens"])
            reached = set(np.flatnonzero(np.abs(table).max(1)).tolist())
            assert reached == set(np.asarray(batch[key][row, :16]).tolist())
        num_hidden += vocab.mask in reached
    assert num_hidden >= 2


def test_a_step_costs_two_of_clms(make_case):
    case, other = make_case("masked_input_clm"), make_case("clm")
    costs = [
        c.model.count_flops(c.spec.lengths, c.spec.predictions.mean(4))
        for c in (case, other)
    ]
    assert costs[0] == 2 * costs[1] > 0


MEAP = {"passes": "masked", "hide_rate": 0.15}


def in_training(rows):
    return rows | {"progress": jnp.zeros(len(rows["index"]))}


@pytest.mark.parametrize(
    "length, count", [(8, 1), (128, 19), (512, 76), (1024, 153), (4096, 614)]
)
def test_the_number_of_hidden_inputs_is_meaps(length, count):
    ones = jnp.ones(length)
    hidden = np.stack(
        [hide_exactly(jax.random.key(i), ones > 0, ones, 0.15) for i in range(3)]
    )
    assert hidden.sum(1).tolist() == 3 * [count] and not hidden[:, -1].any()
    assert count == 1 or (hidden[0] != hidden[1]).any()


def test_meap_hides_inputs_and_no_target(make_case, vocab):
    """MEAP's example: 7 8 9 5 6 with input 1 hidden is read as 7 M 9 5."""
    spec = masked_input_clm.Spec(5, **MEAP)
    rows = {"tokens": jnp.array(64 * [[7, 8, 9, 10, 11]]), "index": jnp.arange(64)}
    corrupt = jax.jit(lambda rows: masked_input_clm.corrupt(rng, rows, vocab, spec))
    rng = jax.random.key(0)
    batch = jax.tree.map(np.asarray, corrupt(in_training(rows)))
    seen = {tuple(row) for row in batch["inputs"].tolist()}
    m = vocab.mask
    assert seen == {(m, 8, 9, 10), (7, m, 9, 10), (7, 8, m, 10)}
    assert (batch["targets"] == [8, 9, 10, 11]).all() and "original" not in batch
    assert batch["weights"].keys() == {"loss"} and batch["weights"]["loss"].all()
    # Evaluation reads clean text.
    assert (corrupt(rows)["inputs"] == jnp.array([7, 8, 9, 10])).all()


@pytest.mark.parametrize("hide_by", ["mask", "random"])
def test_meap_in_packed_rows(hide_by, make_case, make_rows, vocab):
    case = make_case("masked_input_clm", **MEAP | {"hide_rate": 0.5}, hide_by=hide_by)
    lengths = [21, 12, 6, 2, 1, 0] * 16
    rows = make_rows(case, 96, lengths=lengths, specials=0.2)
    batch = jax.tree.map(np.asarray, case.corrupt(in_training(rows)))
    plain = np.asarray(rows["tokens"])[:, :-1]
    hidden, segments = batch["inputs"] != plain, np.asarray(rows["segment_ids"])
    is_first = np.diff(segments, prepend=0)[:, :-1] != 0
    assert not hidden[is_first | (batch["weights"]["loss"] == 0)].any()
    assert not vocab.is_special[plain[hidden]].any() and hidden.any()
    last = np.pad(batch["weights"]["loss"], ((0, 0), (0, 1)))[:, 1:] == 0
    assert not hidden[last].any()
    counts, totals = hidden.sum(1), (batch["weights"]["loss"] > 0).sum(1)
    assert (counts <= np.maximum(1, totals // 2)).all()
    if hide_by == "random":
        new = batch["inputs"][hidden]
        assert not vocab.is_special[new].any() and len(set(new.tolist())) > 15
    else:
        assert (batch["inputs"][hidden] == vocab.mask).all()


def test_meap_costs_what_clm_does_and_is_evaluated_as_clm(make_case, make_rows):
    case, other = make_case("masked_input_clm", **MEAP), make_case("clm")
    assert case.model.count_flops(
        case.spec.lengths, case.spec.predictions.mean(4)
    ) == other.model.count_flops(other.spec.lengths, other.spec.predictions.mean(4))
    rows, key = make_rows(case, 4, lengths=[21, 12, 17, 5]), jax.random.key(0)
    result = case.evaluate(case.params, rows, key)
    expected = other.evaluate(case.params, rows, key)
    assert result.keys() == expected.keys()
    jax.tree.map(np.testing.assert_array_equal, result, expected)
    trained = case.gradients(in_training(rows))[1]
    assert trained["loss"][0] != expected["loss"][0]
    assert trained["loss"][1] == expected["loss"][1]


def test_a_hidden_input_is_read_by_no_prediction_of_meap(make_case, make_rows, vocab):
    """By the gradient of the table of inputs: hidden tokens are not in it."""
    case = make_case("masked_input_clm", (("tie_embeddings", False),), **MEAP)
    rows = make_rows(case, 3)
    order = [np.random.default_rng(i).permutation(25)[:21] + 7 for i in range(3)]
    rows["tokens"] = jnp.asarray(np.stack(order), jnp.int32)
    batch = case.corrupt(in_training(rows))
    masks = case.module.masks(batch)

    @jax.jit
    def gradient(params, row, position):
        weights = jnp.zeros((3, 20)).at[row, position].set(1)

        def read(params):
            one = batch | {"weights": {"loss": weights}}
            return case.module.loss(params, case.model, one, masks, {})[0]["loss"][0]

        return jax.grad(read)(params)["embed"]["tokens"]

    for row in range(3):
        for position in (4, 19):
            table = np.abs(gradient(case.params, row, position)).max(1)
            read = set(np.asarray(batch["inputs"])[row, : position + 1].tolist())
            assert set(np.flatnonzero(table).tolist()) == read
        assert vocab.mask in read
