"""Latent prediction: its terms by definition, its targets, and what trains them."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpt.learn.state import keep_objective_state
from jaxpt.objectives import latent_prediction
from jaxpt.objectives.latent_prediction import average, find_whole, pick_encoder
from jaxpt.ops import spread

LENGTHS = [20, 3, 0, 12, 20, 7, 1, 16]
ADAM = optax.adam(1e-2)
make = functools.partial(dict, horizon=3, covariance_weight=0.04)
check_equal = functools.partial(jax.tree.map, np.testing.assert_array_equal)


def at(rows, progress=0.5):
    return rows | {"progress": jnp.full(rows["index"].shape, progress, jnp.float32)}


def largest(tree):
    return max((float(np.abs(x).max()) for x in jax.tree.leaves(tree)), default=0.0)


def base_of(params):
    return {k: v for k, v in params.items() if k != "predictor"}


def other_encoder(case, seed=5):
    """Parameters of an encoder that differ from those of the case."""
    draw = np.random.default_rng(seed)
    change = lambda x: x + jnp.asarray(draw.normal(0, 0.1, x.shape), x.dtype)  # noqa: E731
    return jax.tree.map(change, pick_encoder(case.params))


def with_encoder(case, optimizer, encoder):
    state = case.init_state(optimizer)
    kept = state.objective_state._replace(encoder=encoder)
    return dataclasses.replace(state, objective_state=kept)


def read_states(case, params, rows):
    """The last layer's states of the inputs of rows, float64."""
    batch = case.corrupt({k: v for k, v in rows.items() if k != "progress"})
    call = {"deterministic": True, "method": "batch_states"}
    masks = case.module.masks(batch)
    return np.float64(case.model.apply({"params": params}, batch, masks, **call))


def rank_of(rows):
    """By the singular values of the centred matrix."""
    sizes = np.linalg.svd(rows - rows.mean(0), compute_uv=False)
    shares = sizes / sizes.sum()
    shares = shares[shares > 1e-12]
    return np.exp(-(shares * np.log(shares)).sum())


def one_row(x):
    x = jnp.asarray(x, jnp.float32)[None]
    return spread.centre(x, jnp.ones(x.shape[:2]))


def test_the_examples_of_the_statistics():
    stretched = [[2, 0], [-2, 0], [0, 1], [0, -1]]
    even = [[1, 0], [-1, 0], [0, 1], [0, -1]]
    line = [[1, 1], [-1, -1], [2, 2], [-2, -2]]
    (penalty,) = spread.variance_penalties(*one_row(stretched))
    assert float(penalty) == pytest.approx(0.091721, abs=1e-6)
    (penalty,) = spread.covariance_penalties(*one_row(line))
    assert float(penalty) == pytest.approx(11.111111, rel=1e-6)
    for rows, rank in ((even, 2.0), (stretched, 1.889882), (line, 1.0)):
        centred, _ = one_row(np.array(rows) + 7)
        result = spread.effective_rank(centred[0].T @ centred[0])
        assert float(result) == pytest.approx(rank, abs=1e-3)
        assert rank_of(np.float64(rows)) == pytest.approx(rank, abs=1e-6)
    assert float(spread.effective_rank(jnp.zeros((3, 3)))) == 1  # a constant


@pytest.mark.parametrize("length, width", [(9, 4), (4, 9)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_covariance_by_numpy(length, width, dtype):
    """By either product, whichever is smaller; at counted positions alone."""
    draw = np.random.default_rng(0)
    x = draw.normal(3, 2, (2, length, width)).astype(np.float32)
    weights = np.ones((2, length), np.float32)
    weights[1, 2:4] = 0
    result = spread.covariance_penalties(*spread.centre(x, weights), dtype)
    variance = spread.variances(*spread.centre(x, weights))
    for i in range(2):
        counted = x[i][weights[i] > 0]
        squares = np.cov(counted.T) ** 2
        expected = (squares.sum() - np.trace(squares)) / width
        near = 1e-5 if dtype == "float32" else 2e-2
        assert float(result[i]) == pytest.approx(expected, rel=near)
        np.testing.assert_allclose(variance[i], counted.var(0, ddof=1), rtol=1e-5)


def test_the_moving_average_of_an_example():
    values, x = [], {"w": jnp.zeros(2)}
    for _ in range(3):
        x = average(x, {"w": jnp.ones(2)}, 0.9)
        values.append(float(x["w"][1]))
    np.testing.assert_allclose(values, [0.1, 0.19, 0.271], rtol=1e-6)


@given(
    st.lists(st.integers(0, 3), min_size=4, max_size=16).map(sorted),
    st.integers(1, 5),
)
def test_a_window_is_whole_within_its_document_and_its_row(ids, horizon):
    """The last token of a row is a target alone; 0 is padding."""
    ids = np.array([i for i in ids if i] + [0] * ids.count(0))
    is_next = (ids[1:] == ids[:-1]) & (ids[1:] > 0)
    (result,) = find_whole(jnp.asarray(is_next[None], jnp.float32), horizon)
    inputs = ids[:-1]
    for t, whole in enumerate(np.asarray(result)):
        window = inputs[t : t + horizon + 1]
        expected = len(window) == horizon + 1 and (window == window[0]).all()
        assert bool(whole) == (expected and window[0] > 0)


@pytest.mark.parametrize("target", ["ema", "frozen", "shuffle"])
def test_the_terms_by_definition(target, make_case, make_rows):
    """With packed rows, and an encoder that is not the network."""
    case = make_case("latent_prediction", **make(target=target))
    rows = at(make_rows(case, 3, lengths=[21, 18, 12]))
    encoder = other_encoder(case)
    state = with_encoder(case, optax.set_to_zero(), encoder)
    after, metrics = jax.jit(case.make_step(optax.set_to_zero()))(
        state, rows, jax.random.key(0)
    )
    own = read_states(case, case.params, rows)
    ahead = read_states(case, encoder, rows)
    predict = lambda model: model.predictor(jnp.float32(own))  # noqa: E731
    predicted = np.float64(case.model.apply({"params": case.params}, method=predict))
    ids = np.asarray(rows["segment_ids"])[:, :20]
    whole = np.array(
        [
            [t + 3 < 20 and len({*row[t : t + 4]}) == 1 and row[t] > 0]
            for row in ids
            for t in range(20)
        ]
    ).reshape(3, 20)
    source = (np.arange(3) + (target == "shuffle")) % 3
    if target == "shuffle":
        whole &= whole[source]
    assert whole.any(1).all() and not whole.all(1).any()
    cosines, penalties, covariances, deviations, centred = [], [], [], [], []
    for i, places in enumerate(map(np.flatnonzero, whole)):
        targets = np.stack([ahead[source[i], t + 1 : t + 4].mean(0) for t in places])
        p = predicted[i, places]
        norms = np.linalg.norm(p, axis=1) * np.linalg.norm(targets, axis=1)
        cosines += list(1 - (p * targets).sum(1) / norms)
        hinge = np.maximum(1 - np.sqrt(p.var(0, ddof=1) + 1e-4), 0)
        penalties += [hinge.mean()] * len(places)
        squares = np.cov(p.T) ** 2
        covariances += [(squares.sum() - np.trace(squares)) / 32] * len(places)
        deviations += [targets.std(0, ddof=1).mean()] * len(places)
        centred.append(targets - targets.mean(0))
    expected = {
        "latent_loss": cosines,
        "variance_loss": penalties,
        "covariance_loss": covariances,
        "target_std": deviations,
    }
    for name, values in expected.items():
        total, weight = metrics[name]
        assert float(weight) == len(values)
        assert float(total / weight) == pytest.approx(np.mean(values), rel=1e-3), name
    rank, _ = metrics["target_rank"]
    centred = np.concatenate(centred)
    shares = np.linalg.svd(centred, compute_uv=False)
    shares = shares[shares > 1e-3] / shares.sum()
    expected_rank = np.exp(-(shares * np.log(shares)).sum()) / 32
    assert float(rank) == pytest.approx(expected_rank, rel=2e-2)
    assert float(after.objective_state.rank) == float(rank)


def test_the_coefficients(make_case, make_rows):
    spec = latent_prediction.Spec(30, latent_weight=0.2, variance_weight=2.0)
    result = spec.coefficients_at(0.5)
    expected = {"loss": 1, "latent_loss": 0.2, "variance_loss": 0.4}
    assert result == pytest.approx(expected | {"covariance_loss": 0.008})
    assert sum(spec.coefficients.values()) == 1
    # Terms with weight 0 are not computed.
    bare = dataclasses.replace(spec, variance_weight=0.0, covariance_weight=0.0)
    assert list(bare.terms) == ["loss", "latent_loss"]


def test_the_variance_is_that_of_predictions_before_they_are_normed(
    make_case, make_rows
):
    """Of unit vectors it could not reach 0; the direction does not change with size."""
    case = make_case("latent_prediction", **make())
    rows = make_rows(case, 3)
    batch = case.corrupt(rows)
    kernel = case.params["predictor"]["last"]["kernel"]
    last = {"kernel": kernel * 1000}
    last |= {k: v for k, v in case.params["predictor"]["last"].items() if k == "bias"}
    predictor = case.params["predictor"] | {"last": last}
    small, _ = case.loss(batch)
    large, _ = case.loss(batch, case.params | {"predictor": predictor})
    means = [
        {k: float(a / b) for k, (a, b) in terms.items()} for terms in (small, large)
    ]
    assert means[0]["variance_loss"] > 0.9 and means[1]["variance_loss"] == 0
    assert means[1]["latent_loss"] == pytest.approx(means[0]["latent_loss"], rel=1e-4)
    # Unit vectors in D dimensions have variances whose sum is at most T / (T - 1).
    draw = np.random.default_rng(0).normal(size=(1, 20, 32))
    unit = draw / np.linalg.norm(draw, axis=-1, keepdims=True)
    assert float(spread.variance_penalties(*one_row(unit[0]))[0]) > 0.7


def test_targets_get_no_gradient(make_case, make_rows):
    case = make_case("latent_prediction", (("positions", "learned"),), **make())
    batch = case.corrupt(make_rows(case, 2))
    masks = case.module.masks(batch)

    def total(params, encoder, term):
        terms, _, _ = latent_prediction.compute_terms(
            params, encoder, case.model, batch, masks, {}
        )
        return terms[term][0]

    run = jax.jit(jax.grad(total, argnums=(0, 1)), static_argnums=2)
    for term in ("latent_loss", "variance_loss", "covariance_loss"):
        grads, of_targets = run(case.params, other_encoder(case), term)
        assert largest(of_targets) == 0
        assert largest(grads["predictor"]) > 0 and largest(grads["encoder"]) > 0
    # In evaluation the targets are the network's own states: of a position's term,
    # only that position and those before it get a gradient.
    place = 9
    weights = jax.tree.map(lambda w: w * (jnp.arange(20) == place), batch["weights"])

    @jax.jit
    @jax.grad
    def run_own(params):
        chosen = batch | {"weights": weights}
        return case.module.loss(params, case.model, chosen, masks, {})[0][
            "latent_loss"
        ][0]

    table = run_own(case.params)["embed"]["positions"]["table"]
    by_position = np.abs(table).max(1)
    assert (by_position[: place + 1] > 0).all() and not by_position[place + 1 :].any()


def train(case, rows, num_steps, optimizer=ADAM, state=None):
    step = jax.jit(case.make_step(optimizer))
    states = [case.init_state(optimizer) if state is None else state]
    metrics = []
    for number in range(num_steps):
        rows = at(rows, number / num_steps)
        state, sums = step(states[-1], rows, jax.random.key(number))
        states.append(state)
        metrics.append(sums)
    return states, metrics


def test_a_weight_of_0_is_clm_bit_by_bit(make_case, make_rows):
    """With dropout, a clipped gradient and decay."""
    dropout = (("dropout", 0.1),)
    case = make_case("latent_prediction", dropout, **make(latent_weight=0.0))
    control, trained = (
        make_case("clm", dropout),
        make_case("latent_prediction", dropout, **make()),
    )
    rows = make_rows(case, 4, lengths=[20, 18, 16, 14])
    optimizer = optax.chain(optax.clip_by_global_norm(0.1), optax.adamw(1e-2))
    step = jax.jit(control.make_step(optimizer))
    expected = control.init_state(optimizer, base_of(case.params))
    states, metrics = train(case, rows, 5, optimizer)
    for number in range(5):
        expected, sums = step(expected, rows, jax.random.key(number))
        assert metrics[number].keys() == sums.keys()
        check_equal(metrics[number], sums)
    check_equal(base_of(states[-1].params), expected.params)
    assert states[-1].objective_state is None
    lengths = case.spec.lengths
    assert case.model.count_flops(lengths, 20) == control.model.count_flops(lengths, 20)
    others, _ = train(trained, rows, 5, optimizer)
    gap = jax.tree.map(jnp.subtract, base_of(others[-1].params), expected.params)
    assert largest(gap) > 1e-3


@pytest.mark.parametrize("target", ["ema", "shuffle", "frozen"])
def test_the_encoder_follows_the_parameters(target, make_case, make_rows):
    case = make_case("latent_prediction", **make(target=target, decay=0.9))
    rows = make_rows(case, 4)
    states, _ = train(case, rows, 3)
    encoder = pick_encoder(case.params)
    check_equal(states[0].objective_state.encoder, encoder)
    assert set(encoder) == set(case.params) - {"head", "predictor"}
    for state in states[1:]:
        if target != "frozen":
            new = pick_encoder(state.params)
            encoder = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, encoder, new)
        result = state.objective_state.encoder
        gap = jax.tree.map(jnp.subtract, result, encoder)
        assert largest(gap) < (1e-6 if target != "frozen" else 1e-30)
    moved = jax.tree.map(jnp.subtract, encoder, pick_encoder(case.params))
    assert (largest(moved) > 1e-3) == (target != "frozen")
    # Frozen is a moving average that does not move.
    if target == "frozen":
        still = make_case("latent_prediction", **make(decay=1.0))
        others, _ = train(still, rows, 3)
        check_equal(others[-1].params, states[-1].params)


def test_a_skipped_update_leaves_the_encoder(make_case, make_rows):
    case = make_case("latent_prediction", **make(decay=0.5))
    states, _ = train(case, make_rows(case, 4), 1)
    skips = type("Skips", (), {"is_last": jnp.array(True)})()
    after = dataclasses.replace(states[1], skips=skips)
    kept = keep_objective_state(states[0], after).objective_state
    check_equal(kept, states[0].objective_state)


def test_the_rank_is_that_of_every_hundredth_step(make_case, make_rows):
    case = make_case("latent_prediction", **make(decay=0.5))
    rows = make_rows(case, 4)
    states, metrics = train(case, rows, 3)
    ranks = [float(sums["target_rank"][0]) for sums in metrics]
    assert 0.2 < ranks[0] < 1 and ranks == [ranks[0]] * 3
    later = dataclasses.replace(states[-1], step=jnp.int32(100))
    _, (other,) = train(case, rows, 1, state=later)
    assert float(other["target_rank"][0]) != ranks[0]
    # A batch without targets has no rank.
    none = rows | {"segment_ids": jnp.zeros_like(rows["tokens"])}
    _, (empty,) = train(case, none, 1, state=later)
    assert float(empty["target_rank"][0]) == ranks[0]


def test_a_collapsed_encoder_has_the_lowest_rank(make_case, make_rows):
    """All states are the same; only the positions' bias is left."""
    case = make_case("latent_prediction", **make())
    still = jax.tree.map(jnp.zeros_like, pick_encoder(case.params))
    state = with_encoder(case, ADAM, still)
    _, (metrics,) = train(case, make_rows(case, 4), 1, state=state)
    assert float(metrics["target_rank"][0]) == 1 / 32 < case.spec.min_rank
    assert float(metrics["target_std"][0]) == 0
    assert case.spec.floors == {"target_rank": "min_rank"}


def test_shuffled_targets_are_those_of_the_next_row(make_case, make_rows):
    """In training alone; evaluation reads a row by itself."""
    case = make_case("latent_prediction", **make(target="shuffle"))
    rows = make_rows(case, 3, lengths=[21, 18, 12])
    batch = case.corrupt(at(rows))
    for key in ("inputs", "segment_ids"):
        expected = np.roll(batch[key], -1, axis=0)
        np.testing.assert_array_equal(batch["other_rows"][key], expected)
    plain = make_case("latent_prediction", **make())
    check_equal(case.corrupt(rows), plain.corrupt(rows))
    assert "other_rows" not in case.corrupt(rows)


@pytest.mark.parametrize("target", ["ema", "frozen", "shuffle"])
def test_it_is_evaluated_as_clm(target, make_case, make_rows):
    case = make_case("latent_prediction", **make(target=target))
    control = make_case("clm")
    rows, key = make_rows(case, 8, lengths=LENGTHS), jax.random.key(0)
    result = case.evaluate(case.params, rows, key)
    expected = control.evaluate(base_of(case.params), rows, key)
    np.testing.assert_array_equal(result["loss"], expected["loss"])
    means = {name: result[name][0] / result[name][1] for name in case.spec.coefficients}
    total = sum(case.spec.coefficients[name] * x for name, x in means.items())
    assert total == expected["loss"][0] / expected["loss"][1]
    assert result["target_std"][1] > 0


@pytest.mark.parametrize("target", ["ema", "shuffle"])
def test_microbatches_do_not_change_the_gradient(target, make_case, make_rows):
    case = make_case("latent_prediction", **make(target=target))
    rows = at(make_rows(case, 8, lengths=LENGTHS, with_eos=True))
    results = []
    for num in (1, 4):
        optimizer = optax.trace(decay=0.0)
        state = with_encoder(case, optimizer, other_encoder(case))
        step = jax.jit(case.make_step(optimizer, num))
        results.append(step(state, rows, jax.random.key(0)))
    (one, expected), (four, found) = results
    assert largest(one.opt_state.trace["encoder"]) > 1e-4
    gap = jax.tree.map(jnp.subtract, one.opt_state.trace, four.opt_state.trace)
    assert largest(gap) < 1e-5
    for name in expected:
        near = 2e-3 if name == "target_rank" else 1e-4
        np.testing.assert_allclose(found[name], expected[name], rtol=near, atol=1e-5)


def test_another_document_is_neither_read_nor_predicted(make_case, make_rows):
    case = make_case("latent_prediction", **make())
    rows = at(make_rows(case, 4, lengths=[20, 18, 16, 14]))
    is_second = rows["segment_ids"] == 2
    others = rows | {"tokens": jnp.where(is_second, 8, rows["tokens"])}

    def first_losses(rows):
        batch = case.corrupt(rows)
        first = jax.tree.map(lambda w: w * ~is_second[:, :-1], batch["weights"])
        terms, _, _ = latent_prediction.compute_terms(
            case.params,
            other_encoder(case),
            case.model,
            batch | {"weights": first},
            case.module.masks(batch),
            {},
        )
        return terms

    result, other = first_losses(rows), first_losses(others)
    for term in case.spec.terms:
        np.testing.assert_allclose(result[term], other[term], rtol=1e-5)
        assert result[term][0] > 0


def test_the_cost_is_a_second_pass_and_the_predictor(make_case):
    case, control = make_case("latent_prediction", **make()), make_case("clm")
    model, base = case.model, control.model
    added = model.count_flops({"decoder": 20}, 20) - base.count_flops(
        {"decoder": 20}, 20
    )
    encoder = base.count_flops({"decoder": 20}, 0) / 3
    trained = 20 * (8 * 32**2 + 2 * 32 * 20)
    assert added == encoder + 3 * trained + 2 * 20 * 32**2
    bare = make_case("latent_prediction", **make(covariance_weight=0.0)).model
    gap = model.count_flops({"decoder": 20}, 20) - bare.count_flops({"decoder": 20}, 20)
    assert gap == 3 * 20 * 2 * 32 * 20


def test_one_batch_is_learnt_with_the_covariance(make_case, make_rows):
    """Which is 0 at first, when predictions are, and grows with their variance."""
    case = make_case("latent_prediction", **make(covariance_weight=0.1))
    rows = make_rows(case, 4)
    rows["tokens"] = rows["tokens"].at[:, 0].set(jnp.arange(4) + 10)
    _, metrics = train(case, rows, 300, optax.adam(3e-3))
    first, last = (
        {k: float(m[k][0] / m[k][1]) for k in case.spec.terms}
        for m in (metrics[0], metrics[-1])
    )
    assert last["loss"] < 0.1 * first["loss"]
    assert last["latent_loss"] < 0.3 * first["latent_loss"]
    assert last["variance_loss"] < 0.2 * first["variance_loss"]


def test_the_predictor_is_not_exported_and_the_controls_are_declared(make_case):
    case = make_case("latent_prediction", **make())
    ((_, exported),) = case.model.export_parts(case.params).values()
    assert set(exported) == set(case.params) - {"predictor"}
    section = "latent_prediction"
    assert case.spec.controls() == {
        "clm": {"objective": "clm"},
        "frozen": {section: {"target": "frozen"}},
        "shuffle": {section: {"target": "shuffle"}},
    }
