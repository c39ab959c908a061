"""Future summaries: the bag, its binary cross-entropy, what leaves the head out."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpt.objectives import clm, future_summary
from jaxpt.objectives.future_summary import find_bags
from jaxpt.ops.chunked_loss import bag_losses

LENGTHS = [20, 3, 0, 12, 20, 7, 1, 16]


def at(rows, progress=0.5):
    return rows | {"progress": jnp.full(rows["index"].shape, progress, jnp.float32)}


def sets_of(tokens, is_counted):
    """The bag of each position of the first row."""
    pairs = zip(np.asarray(tokens[0]), np.asarray(is_counted[0]), strict=True)
    return [sorted(ids[counted > 0].tolist()) for ids, counted in pairs]


def test_the_bag_of_a_row():
    """7 8 9 8 5 with horizon 3: the next token is in no bag, 8 8 is {8}."""
    tokens, is_counted, is_whole = find_bags(
        jnp.array([[8, 9, 8, 5]]), jnp.ones((1, 4)), 2, 3
    )
    assert sets_of(tokens, is_counted)[:2] == [[8, 9], [5, 8]]
    assert is_whole.tolist() == [[1, 1, 0, 0]]
    tokens, is_counted, _ = find_bags(jnp.array([[9, 8, 8, 8]]), jnp.ones((1, 4)), 2, 4)
    assert sets_of(tokens, is_counted)[0] == [8]


@pytest.mark.parametrize("first, last", [(2, 3), (2, 12), (1, 1), (3, 19)])
def test_bags_by_definition(first, last, make_case, make_rows, vocab):
    case = make_case("future_summary", first_offset=first, horizon=last)
    rows = make_rows(case, 8, lengths=[21, *LENGTHS[1:]], with_eos=True)
    batch = case.corrupt(rows)
    tokens = np.asarray(rows["tokens"])
    segments = np.asarray(rows["segment_ids"])
    for i in range(8):
        bags = sets_of(batch["bag_tokens"][i : i + 1], batch["bag_weights"][i : i + 1])
        for t in range(20):
            place = range(t + first, t + last + 1)
            is_whole = t + last < 21 and segments[i, t] == segments[i, t + last] > 0
            assert batch["weights"]["summary_loss"][i, t] == is_whole
            if is_whole:
                bag = {int(tokens[i, k]) for k in place}
                ordinary = {v for v in bag if not vocab.is_special[v]}
                assert bags[t] == sorted(ordinary)


def test_the_loss_of_an_example():
    tokens, ones = jnp.array([[[9, 8]]]), jnp.ones((1, 1, 2))
    for z, expected in (({}, 6.931472), ({9: 2.0, 8: -1.0}, 6.985367)):
        kernel = jnp.zeros((1, 10))
        for token, value in z.items():
            kernel = kernel.at[0, token].set(value)
        x, weights = jnp.ones((1, 1, 1)), jnp.ones((1, 1))
        loss = bag_losses(x, kernel, tokens, ones, weights)
        assert float(loss[0, 0]) == pytest.approx(expected, abs=2e-6)
        mean = bag_losses(x, kernel, tokens, ones, weights / 10)
        assert float(mean[0, 0]) == pytest.approx(expected / 10, abs=1e-6)


@pytest.mark.parametrize("average", ["vocabulary", "none"])
def test_the_loss_is_the_binary_cross_entropy(average, make_case, make_rows):
    case = make_case("future_summary", average=average, horizon=4)
    rows = make_rows(case, 4, lengths=[21, 12, 17, 5])
    batch = case.corrupt(rows)
    terms, _ = case.loss(batch)

    def predict(model):
        states = model.batch_states(batch, clm.masks(batch), deterministic=True)
        return model.summary(states)

    logits = np.asarray(case.model.apply({"params": case.params}, method=predict))
    labels = np.zeros(logits.shape)
    for i, t in np.ndindex(labels.shape[:2]):
        counted = np.asarray(batch["bag_weights"][i, t]) > 0
        labels[i, t, np.asarray(batch["bag_tokens"][i, t])[counted]] = 1
    p = 1 / (1 + np.exp(-logits))
    entropies = -(labels * np.log(p) + (1 - labels) * np.log(1 - p))
    over = entropies.mean(-1) if average == "vocabulary" else entropies.sum(-1)
    expected = (over * np.asarray(batch["weights"]["summary_loss"])).sum()
    assert terms["summary_loss"][0] == pytest.approx(expected, rel=1e-5)
    start = math.log(2) * (1 if average == "vocabulary" else 40)
    assert terms["summary_loss"][0] / terms["summary_loss"][1] == pytest.approx(
        start, rel=0.02
    )


def test_it_is_evaluated_as_clm(make_case, make_rows):
    case = make_case("future_summary")
    base = {k: v for k, v in case.params.items() if k != "summary"}
    control = make_case("clm")
    rows, key = make_rows(case, 8, lengths=LENGTHS), jax.random.key(0)
    result = case.evaluate(case.params, rows, key)
    expected = control.evaluate(base, rows, key)
    np.testing.assert_array_equal(result["loss"], expected["loss"])
    # What a run reports as valid_loss, by the coefficients of evaluation.
    means = {name: result[name][0] / result[name][1] for name in case.spec.coefficients}
    total = sum(case.spec.coefficients[name] * x for name, x in means.items())
    assert total == expected["loss"][0] / expected["loss"][1]
    assert case.spec.coefficients_at(0.3) == {"loss": 1.0, "summary_loss": 1.0}


def test_the_second_head_trains_the_network_in_training_alone(make_case, make_rows):
    case, control = make_case("future_summary"), make_case("clm")
    rows = make_rows(case, 4, lengths=[20, 18, 16, 14])
    base = {k: v for k, v in case.params.items() if k != "summary"}
    expected, _ = jax.jit(
        jax.grad(
            lambda p: _mean(clm, control.model, p, clm.corrupt(None, rows, None, None)),
            has_aux=True,
        )
    )(base)
    plain, _ = case.gradients(rows)
    assert not np.asarray(plain.pop("summary")["kernel"]).any()
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-7), plain, expected
    )
    both, _ = case.gradients(at(rows))
    assert np.abs(both.pop("summary")["kernel"]).max() > 0
    layer = both["encoder"]["layer_0"]["mlp"]["up"]["kernel"]
    other = expected["encoder"]["layer_0"]["mlp"]["up"]["kernel"]
    assert np.abs(layer - other).max() > 1e-6


def _mean(module, model, params, batch):
    terms, metrics = module.loss(params, model, batch, module.masks(batch), {})
    total, weight = terms["loss"]
    return total / weight, metrics


def test_a_position_reads_its_documents_past_alone(make_case, make_rows):
    """By the gradient of the table of inputs, which has one row for each token."""
    case = make_case("future_summary", (("tie_embeddings", False),), horizon=4)
    rows = make_rows(case, 1, lengths=[20])
    tokens = np.random.default_rng(0).permutation(25)[:21] + 7
    rows["tokens"] = jnp.asarray(tokens[None], jnp.int32)
    batch, place = case.corrupt(rows), 14  # in the second document, from 10 on
    weights = jax.tree.map(lambda w: w * (jnp.arange(20) == place), batch["weights"])
    assert weights["summary_loss"].sum() == 1

    @jax.jit
    @jax.grad
    def gradient(params):
        masks = case.module.masks(batch)
        one = batch | {"weights": weights}
        return case.module.loss(params, case.model, one, masks, {})[0]["summary_loss"][
            0
        ]

    table = np.abs(gradient(case.params)["embed"]["tokens"]).max(1)
    assert set(np.flatnonzero(table).tolist()) == set(tokens[10 : place + 1].tolist())


def test_microbatches_do_not_change_the_gradient(make_case, make_rows):
    case = make_case("future_summary", horizon=4)
    rows = at(make_rows(case, 8, lengths=LENGTHS, with_eos=True))
    expected, sums = case.gradients(rows)
    result, found = case.gradients(rows, num_microbatches=4)
    np.testing.assert_allclose(found["summary_loss"], sums["summary_loss"], rtol=1e-5)
    gaps = jax.tree.map(lambda a, b: np.abs(a - b).max(), result, expected)
    assert max(jax.tree.leaves(gaps)) < 1e-6


def test_the_bag_of_another_row(make_case, make_rows):
    """The same bags as a whole, none at its own position, and windows of both rows."""
    case, control = (
        make_case("future_summary", horizon=4, bag=bag)
        for bag in ("future", "other_row")
    )
    rows = make_rows(case, 6)
    plain, other = case.corrupt(rows), control.corrupt(rows)
    for i in range(6):
        for key in ("bag_tokens", "bag_weights"):
            np.testing.assert_array_equal(other[key][i], plain[key][(i + 1) % 6])
    np.testing.assert_array_equal(other["targets"], plain["targets"])
    rows = make_rows(case, 2, lengths=[20, 8])
    plain, other = case.corrupt(rows), control.corrupt(rows)
    both = plain["weights"]["summary_loss"].prod(0)
    for weights in other["weights"]["summary_loss"]:
        np.testing.assert_array_equal(weights, both)


def test_scores_and_exports_leave_the_second_head_out(make_case):
    case = make_case("future_summary")
    other = case.params | {
        "summary": jax.tree.map(jnp.zeros_like, case.params["summary"])
    }
    tokens = jnp.arange(7, 19)[None]
    for method in (case.model.next_logits, case.model.token_nll):
        np.testing.assert_array_equal(
            method(case.params, tokens), method(other, tokens)
        )
    ((_, exported),) = case.model.export_parts(case.params).values()
    assert set(exported) == set(case.params) - {"summary"}
    assert future_summary.Spec(21).controls()["clm"] == {"objective": "clm"}
