"""Next-latent prediction: distances of states, what gets a gradient, the controls."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpt.objectives import next_latent
from jaxpt.objectives.next_latent import find_pairs, smooth_l1
from jaxpt.ops.losses import divergences

LENGTHS = [20, 3, 0, 12, 20, 7, 1, 16]


def at(rows, progress=0.5):
    return rows | {"progress": jnp.full(rows["index"].shape, progress, jnp.float32)}


def largest(tree):
    return max((float(np.abs(x).max()) for x in jax.tree.leaves(tree)), default=0.0)


def base_of(case):
    return {k: v for k, v in case.params.items() if k != "latent"}


def test_the_distances_of_an_example():
    """States (1, 0), (0, 1), (1, 1); predicted (.5, 1), (3, 1); the head is I."""
    states = jnp.array([[0.0, 1.0], [1.0, 1.0]])
    predicted = jnp.array([[0.5, 1.0], [3.0, 1.0]])
    assert float(smooth_l1(predicted, states).mean()) == pytest.approx(0.40625)
    result = divergences(predicted, states)
    np.testing.assert_allclose(result, [0.026345, 0.433781], atol=1e-6)
    assert float(result.mean()) == pytest.approx(0.230063, abs=1e-6)
    same = jnp.array([[1.0, 0.0], [0.0, 1.0]])  # f is 0
    assert float(smooth_l1(same, states).mean()) == pytest.approx(0.375)


def test_a_pair_is_within_its_document():
    states, predictions = find_pairs(jnp.array([[1, 1, 1, 0, 1, 1.0]]), 2)
    assert states[0].T.tolist() == [[1, 1, 1, 0, 1, 0], [1, 1, 0, 0, 0, 0]]
    assert predictions[0].T.tolist() == [[1, 1, 0, 0, 1, 0], [1, 0, 0, 0, 0, 0]]


@pytest.mark.parametrize("horizon", [1, 3])
def test_the_terms_by_definition(horizon, make_case, make_rows):
    """The step that rolls out on its own states, one position after the other."""
    case = make_case("next_latent", horizon=horizon)
    rows = make_rows(case, 3, lengths=[21, 12, 5])
    batch = case.corrupt(rows)
    terms, _ = case.loss(batch)
    tokens, segments = np.asarray(rows["tokens"]), np.asarray(rows["segment_ids"])

    def read(model):
        masks = case.module.masks(batch)
        states = model.batch_states(batch, masks, deterministic=True)
        embedded = model.embed.look_up(rows["tokens"])
        found = {}
        for i, t in np.ndindex(3, 20):
            x = states[i, t]
            for k in range(1, horizon + 1):
                if t + k >= 20 or not segments[i, t + k] == segments[i, t] > 0:
                    break
                x = model.latent(x[None, None], embedded[i, t + k][None, None])[0, 0]
                has_next = segments[i, t + k + 1] == segments[i, t]
                logits = [
                    model.logits(s[None, None])[0, 0] for s in (x, states[i, t + k])
                ]
                found[i, t, k] = x, states[i, t + k], *logits, has_next
        return found

    with jax.disable_jit(False):
        pairs = case.model.apply({"params": case.params}, method=read).values()
    distances = [float(smooth_l1(x, y)) for x, y, *_ in pairs]
    divergent = [float(divergences(p, q)) for _, _, p, q, has_next in pairs if has_next]
    for term, values in (("latent_loss", distances), ("divergence_loss", divergent)):
        total, weight = terms[term]
        assert float(weight) == pytest.approx(len(values) / horizon, rel=1e-6)
        assert float(total / weight) == pytest.approx(np.mean(values), rel=2e-4)
    assert len(tokens) == 3 and distances and divergent


def gradient(case, batch, term, params=None):
    """Of one term, by the parameters."""

    @jax.jit
    @jax.grad
    def run(params):
        masks = case.module.masks(batch)
        return case.module.loss(params, case.model, batch, masks, {})[0][term][0]

    return run(case.params if params is None else params)


@pytest.mark.parametrize("tied", [False, True])
def test_the_head_is_fixed_in_the_divergence(tied, make_case, make_rows):
    values = ("tie_embeddings", tied), ("head_transform", True), ("head_bias", True)
    case = make_case("next_latent", values)
    batch = case.corrupt(make_rows(case, 2, lengths=[20, 18]))
    grads = gradient(case, batch, "divergence_loss")
    assert largest(grads["head"]) == 0
    # The step is trained, and by it the layers below.
    assert largest(grads["latent"]) > 0 and largest(grads["encoder"]) > 0
    # A tied table gets the gradient of tokens that are read, and none of others.
    table = np.abs(grads["embed"]["tokens"]).max(1)
    read = {*np.asarray(batch["inputs"]).ravel(), *np.asarray(batch["targets"]).ravel()}
    assert set(np.flatnonzero(table).tolist()) <= {int(token) for token in read}
    for term in ("latent_loss",):
        assert largest(gradient(case, batch, term)["head"]) == 0
    assert largest(gradient(case, batch, "loss")["latent"]) == 0


@pytest.mark.parametrize("stop", [True, False])
def test_a_state_that_is_predicted_gets_no_gradient(stop, make_case, make_rows):
    """With a step that does not read h, nothing but the target could pass one on."""
    case = make_case("next_latent", (("positions", "learned"),), stop_gradient=stop)
    batch = case.corrupt(make_rows(case, 2))
    # Only the last position's pair, by weights, is left: its target is the last state.
    place = 18
    weights = jax.tree.map(lambda w: w * (jnp.arange(20) == place), batch["weights"])
    for term in ("latent_loss", "divergence_loss"):
        table = gradient(case, batch | {"weights": weights}, term)
        by_position = np.abs(table["embed"]["positions"]["table"]).max(1)
        assert (by_position[: place + 1] > 0).all()  # those of h_t
        is_reached = by_position[place + 1] > 0
        assert is_reached == (not stop and term == "latent_loss")


def test_it_is_evaluated_as_clm(make_case, make_rows):
    case, control = make_case("next_latent", horizon=2), make_case("clm")
    rows, key = make_rows(case, 8, lengths=LENGTHS), jax.random.key(0)
    result = case.evaluate(case.params, rows, key)
    expected = control.evaluate(base_of(case), rows, key)
    np.testing.assert_array_equal(result["loss"], expected["loss"])
    means = {name: result[name][0] / result[name][1] for name in case.spec.coefficients}
    total = sum(case.spec.coefficients[name] * x for name, x in means.items())
    assert total == expected["loss"][0] / expected["loss"][1]
    assert case.spec.coefficients_at(0.0) == dict.fromkeys(case.spec.terms, 1.0)


def test_terms_can_be_left_out_and_cost_nothing(make_case, make_rows):
    both = make_case("next_latent")
    costs = {}
    for name in ("latent", "divergence"):
        case = make_case("next_latent", **{f"{name}_weight": 0.0})
        assert f"{name}_loss" not in case.spec.terms and len(case.spec.terms) == 2
        rows = at(make_rows(case, 2))
        assert largest(case.gradients(rows)[0]["latent"]) > 0
        costs[name] = case.model.count_flops(case.spec.lengths, 20)
    whole = both.model.count_flops(both.spec.lengths, 20)
    # 6 D V a token for the head of the divergence.
    assert whole - costs["divergence"] == 6 * 32 * 40 * 20
    assert costs["latent"] == whole


def test_microbatches_do_not_change_the_gradient(make_case, make_rows):
    case = make_case("next_latent", horizon=2)
    rows = at(make_rows(case, 8, lengths=LENGTHS, with_eos=True))
    expected, sums = case.gradients(rows)
    result, found = case.gradients(rows, num_microbatches=4)
    for term in case.spec.terms:
        np.testing.assert_allclose(found[term], sums[term], rtol=1e-5)
    assert largest(jax.tree.map(jnp.subtract, result, expected)) < 1e-5


def test_another_document_is_not_predicted(make_case, make_rows):
    case = make_case("next_latent", horizon=3)
    rows = make_rows(case, 4, lengths=[20, 18, 16, 14])
    is_second = rows["segment_ids"] == 2
    others = rows | {"tokens": jnp.where(is_second, 8, rows["tokens"])}

    def first_losses(rows):
        batch = case.corrupt(rows)
        first = jax.tree.map(lambda w: w * ~is_second[:, :-1], batch["weights"])
        return case.loss(batch | {"weights": first})[0]

    result, other = first_losses(rows), first_losses(others)
    for term in case.spec.terms:
        np.testing.assert_allclose(result[term], other[term], rtol=1e-6)
        assert result[term][0] > 0


def test_the_step_is_the_identity_at_first_and_is_not_exported(make_case):
    case = make_case("next_latent")
    params = jax.jit(case.model.init_params)(jax.random.key(0))
    states = jnp.asarray(np.random.default_rng(0).normal(size=(1, 4, 32)), jnp.float32)
    tokens = jnp.array([[7, 8, 9, 10]])
    rolled = case.model.apply({"params": params}, states, tokens, method="roll_out")
    np.testing.assert_array_equal(rolled[:, :, 0], states)
    ((_, exported),) = case.model.export_parts(case.params).values()
    assert set(exported) == set(case.params) - {"latent"}
    assert next_latent.Spec(21).controls()["clm"] == {"objective": "clm"}
