"""ELECTRA's ablations (Clark et al. 2020, table 5): the second network's task."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import VARIANTS

from jaxpt.objectives import electra, mlm
from jaxpt.ops import losses
from jaxpt.rng import row_keys

ABLATIONS = [
    name for name, (objective, _) in VARIANTS.items() if objective == "electra"
]
SAMPLE = {"sample": jax.random.key(11)}
TERMS = {
    "disentangled": "discriminator_loss",
    "electra_15": "discriminator_loss",
    "replace_mlm": "restoring_loss",
    "all_tokens_mlm": "restoring_loss",
}


def read(case, batch, params):
    """The sampled ids, and the second network's states and scores of all kinds."""
    seen = electra.masks(batch)

    def answer(model):
        states = model.generate(batch, seen, deterministic=True)
        draw = row_keys(SAMPLE["sample"], batch["index"]), 1.0
        args = states, batch["targets"], batch["weights"]["generator_loss"], draw
        ids, _ = electra.replace(batch, model.generator.score(*args).samples)
        written = batch | {"inputs": ids}
        states = model.discriminate(written, seen, deterministic=True)
        result = {"ids": ids}
        if "score" in case.model.answers:
            result["score"] = model.score(states)
        if "logits" in case.model.answers:
            result["logits"] = model.discriminator.logits(states)
        return result

    return case.model.apply({"params": params}, method=answer)


@pytest.fixture(scope="module")
def done():
    """Filled by the first test of each variant."""
    return {}


@pytest.fixture
def run(done, make_case, make_rows):
    """run(name): the case, a batch, its answers, losses, and each term's gradient."""

    def run(name):
        if name not in done:
            case = make_case(name)
            draw = np.random.default_rng(1)
            # Weights large enough that samples, scores and copies are of every kind.
            params = jax.tree.map(
                lambda x: x + draw.normal(0, 0.2, x.shape).astype("f4"), case.params
            )
            batch = case.corrupt(make_rows(case, 6, lengths=[20, 20, 18, 16, 9, 20]))

            @jax.jit
            def compute(params):
                def terms_of(params):
                    masks = electra.masks(batch)
                    result = electra.loss(params, case.model, batch, masks, SAMPLE)
                    terms, metrics = result
                    totals = {k: total for k, (total, _) in terms.items()}
                    return totals, terms | metrics

                grads, metrics = jax.jacrev(terms_of, has_aux=True)(params)
                return read(case, batch, params), metrics, grads

            answers, metrics, grads = compute(params)
            done[name] = case, params, batch, answers, metrics, grads
        return done[name]

    return run


def size(tree):
    return max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(tree))


@pytest.mark.slow_except("replace_mlm")
@pytest.mark.parametrize("name", ABLATIONS)
def test_the_second_networks_loss_does_not_reach_the_generator(name, run):
    _, _, _, _, _, grads = run(name)
    second, first = grads[TERMS[name]], grads["generator_loss"]
    assert size(second["generator"]) == 0 < size(second["discriminator"])
    assert size(first["discriminator"]) == 0 < size(first["generator"])
    # Or, if it reads their sum with a table of its own, only that table.
    of_embeddings = second["discriminator"].get("embed", second["embed"])
    assert size(of_embeddings) > 0
    if "score" in second:
        assert size(first["score"]) == 0 < size(second["score"])


@pytest.mark.slow
def test_embeddings_are_shared_or_apart(run):
    case, params, _, _, _, grads = run("electra_15")  # apart
    assert params["generator"]["embed"]["tokens"].shape == (40, 8)  # as wide as itself
    assert params["embed"]["tokens"].shape == (40, 32)
    assert size(grads["generator_loss"]["embed"]) == 0
    assert size(grads["generator_loss"]["generator"]["embed"]) > 0
    parts = case.model.export_parts(params)
    spec, kept = parts["generator"]
    assert spec.embedding_dim == spec.d_model == 8
    assert kept["embed"]["tokens"].shape == (40, 8)
    _, shared, _, _, _, grads = run("replace_mlm")
    assert "embed" not in shared["generator"]
    assert size(grads["generator_loss"]["embed"]) > 0


def test_electra_15_is_judged_on_the_hidden_tokens_alone(run):
    _, _, batch, answers, metrics, _ = run("electra_15")
    expected = right = replaced = result = 0.0
    weights = batch["weights"]["discriminator_loss"]
    for i in range(6):
        drawn = np.asarray(batch["weights"]["generator_loss"][i]) > 0
        places = np.asarray(batch["masked_positions"][i])[drawn]
        assert np.flatnonzero(weights[i]).tolist() == sorted(places.tolist())
        scores = np.asarray(answers["score"][i])[places]
        labels = np.asarray(answers["ids"][i] != batch["original"][i])[places]
        expected += np.sum(np.log1p(np.exp(-np.where(labels, scores, -scores))))
        right += np.sum((scores > 0) == labels)
        replaced += labels.sum()
        result += np.sum((scores > 0) & labels)
    num = batch["weights"]["generator_loss"].sum()
    total, weight = metrics["discriminator_loss"]
    assert float(total) == pytest.approx(expected, rel=1e-4) and weight == num == 15
    assert metrics["accuracy"] == (right, num)
    assert metrics["replaced"] == (replaced, num) and replaced > 0
    assert metrics["recall"] == (result, replaced)
    assert weights.sum() == num


def test_replace_mlm_restores_the_hidden_tokens_from_samples(run, vocab):
    case, _, batch, answers, metrics, _ = run("replace_mlm")
    # It never sees a [MASK] that the generator has not written.
    is_mask = np.asarray(answers["ids"]) == vocab.mask
    assert is_mask.sum() < np.sum(np.asarray(batch["inputs"]) == vocab.mask)
    log_p = np.asarray(jax.nn.log_softmax(answers["logits"]))
    expected = hits = 0.0
    for i in range(6):
        for j in np.flatnonzero(batch["weights"]["generator_loss"][i]):
            own = log_p[i, batch["masked_positions"][i, j]]
            expected -= own[batch["targets"][i, j]]
            hits += own.argmax() == batch["targets"][i, j]
    total, weight = metrics["restoring_loss"]
    assert float(total) == pytest.approx(expected, rel=1e-4) and weight == 15
    assert metrics["accuracy"] == (hits, 15)
    assert "recall" not in metrics and "discriminator_loss" not in metrics
    assert batch["weights"]["restoring_loss"].sum() == 15
    expected = {"generator_loss": 1.0, "restoring_loss": 1.0}
    assert case.spec.coefficients == expected


def test_all_tokens_mlm_copies_or_writes_every_token(run):
    _, _, batch, answers, metrics, _ = run("all_tokens_mlm")
    p = np.asarray(jax.nn.softmax(answers["logits"]), np.float64)
    copy = 1 / (1 + np.exp(-np.asarray(answers["score"], np.float64)))
    ids, original = np.asarray(answers["ids"]), np.asarray(batch["original"])
    mixed = (1 - copy)[..., None] * p + copy[..., None] * np.eye(40)[ids]
    np.testing.assert_allclose(mixed.sum(-1), 1, rtol=1e-5)
    of_original = np.take_along_axis(mixed, original[..., None], -1)[..., 0]
    real = np.asarray(batch["segment_ids"]) > 0
    total, weight = metrics["restoring_loss"]
    assert float(total) == pytest.approx(-np.log(of_original)[real].sum(), rel=1e-4)
    assert weight == real.sum() == 103
    assert metrics["accuracy"] == ((of_original > 0.5)[real].sum(), 103)
    is_replaced = (ids != original) & real
    assert metrics["replaced"] == (is_replaced.sum(), 103)
    result = (copy < 0.5)[is_replaced].sum()
    assert metrics["recall"] == (result, is_replaced.sum())
    assert 0 < result < is_replaced.sum()


@given(
    st.lists(st.floats(-8, 8, width=32), min_size=5, max_size=5),
    st.floats(-80, 80, width=32),
    st.integers(0, 4),
)
@settings(max_examples=50, deadline=None)
def test_copying_and_writing_are_one_distribution(logits, copy, token):
    nll = -jax.nn.log_softmax(jnp.array(logits))
    is_input = jnp.arange(5) == token

    def total(copy):
        return losses.copy_losses(nll, jnp.full(5, copy), is_input)

    result = total(jnp.float32(copy))
    assert float(jnp.exp(-result).sum()) == pytest.approx(1, rel=1e-4)
    slopes = jax.jacrev(total)(jnp.float32(copy))
    assert np.isfinite(result).all() and np.isfinite(slopes).all()


@pytest.mark.slow_cases("replace_mlm")
@pytest.mark.parametrize("name", ["replace_mlm", "all_tokens_mlm"])
def test_what_restores_tokens_is_kept_as_a_masked_model(name, run, vocab):
    case, params, _, answers, _, _ = run(name)
    parts = case.model.export_parts(params)
    assert set(parts) == {"generator", "masked"}
    spec, kept = parts["masked"]
    assert spec.head_transform and spec.head_bias and spec.tie_embeddings
    plain = mlm.Spec.for_seq_len(20).make_network(spec, vocab)
    shapes = jax.eval_shape(plain.init_params, jax.random.key(0))
    assert jax.tree.map(jnp.shape, shapes) == jax.tree.map(jnp.shape, kept)
    row = answers["ids"][:1]  # of one document and a half: segments are left out here
    logits = plain.fill_logits(kept, row)
    assert logits.shape == (1, 20, 40)
