"""Multi-token prediction by the same logits: offsets, their weights, the control."""

import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxpt.learn.state import make_state
from jaxpt.nn.heads import Embedder
from jaxpt.objectives import clm, multi_token

equal = functools.partial(jax.tree.map, np.testing.assert_array_equal)
LENGTHS = [20, 3, 0, 12, 20, 7, 1, 16]


def at(rows, progress):
    """The rows at a fraction of the run."""
    return rows | {"progress": jnp.full(rows["index"].shape, progress, jnp.float32)}


def packed_row():
    """7 8 9|5 6 3"""
    rows = {"tokens": jnp.array([[7, 8, 9, 5, 6, 3]]), "index": jnp.array([0])}
    return rows | {"segment_ids": jnp.array([[1, 1, 1, 2, 2, 2]])}


def find_targets(batch, num=3):
    """Targets and weights [K, T] of the first row."""
    weights = batch["weights"]["clm_loss"]
    both = multi_token.shift_targets(batch["targets"], weights, num)
    return [np.asarray(x[0].T).tolist() for x in both]


def test_an_offset_ends_with_its_document():
    batch = multi_token.corrupt(None, packed_row(), None, multi_token.Spec(6))
    targets, weights = find_targets(batch)
    assert targets == [[8, 9, 5, 6, 3], [9, 5, 6, 3, 0], [5, 6, 3, 0, 0]]
    assert weights == [[1, 1, 0, 1, 1], [1, 0, 0, 1, 0], [0, 0, 0, 0, 0]]
    whole = {key: packed_row()[key] for key in ("tokens", "index")}
    batch = multi_token.corrupt(None, whole, None, multi_token.Spec(6))
    _, weights = find_targets(batch, num=6)
    assert [sum(of_offset) for of_offset in weights] == [5, 4, 3, 2, 1, 0]


def test_padding_is_no_target():
    rows = packed_row() | {"segment_ids": jnp.array([[1, 1, 1, 0, 0, 0]])}
    batch = multi_token.corrupt(None, rows, None, multi_token.Spec(6))
    _, weights = find_targets(batch)
    assert weights == [[1, 1, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0]]


@pytest.mark.parametrize(
    "progress, expected",
    [
        (0, [0.5, 0.25]),
        (1 / 6, [0.5, 0.125]),
        (1 / 2, [0.25, 0]),
        (2 / 3, [0, 0]),
        (1, [0, 0]),
    ],
)
def test_offsets_fade_one_after_the_other(progress, expected):
    find = functools.partial(multi_token.find_weights, progress=jnp.array([progress]))
    np.testing.assert_allclose(find(multi_token.Spec(6))[0], expected, atol=1e-7)
    constant = multi_token.Spec(6, offset_weights=(0.5, 0.25, 0.1), fade_end=0.0)
    np.testing.assert_array_equal(find(constant)[0], np.float32([0.5, 0.25, 0.1]))
    one = multi_token.Spec(6, offset_weights=(0.5,), fade_end=1.0)
    assert find(one)[0, 0] == pytest.approx(0.5 * (1 - progress))


def test_evaluation_is_the_end_of_the_run():
    batch = multi_token.corrupt(None, packed_row(), None, multi_token.Spec(6))
    assert not batch["offset_weights"].any()


def test_a_uniform_model_loses_five_times_ln_v_over_four_tokens(make_case):
    case = make_case("multi_token")
    params = jax.tree.map(jnp.zeros_like, case.params)
    rows = at(packed_row(), 0.0)
    batch = multi_token.corrupt(None, rows, None, case.spec)
    terms, _ = case.loss(batch, params)
    both = terms["clm_loss"], terms["offset_loss"]
    assert [float(weight) for _, weight in both] == [4, 4]
    ln_v = math.log(40)
    assert [float(total) for total, _ in both] == pytest.approx([4 * ln_v, ln_v])


def plain_loss(case, params, rows, weights):
    """The sum over offsets, by one log softmax each, over the predictions of one."""
    tokens, segments = rows["tokens"], rows["segment_ids"]
    batch = clm.corrupt(None, rows, None, case.spec)

    def read(model):
        states = model.batch_states(batch, clm.masks(batch), deterministic=True)
        return jax.nn.log_softmax(model.logits(states))

    log_p, total = case.model.apply({"params": params}, method=read), 0.0
    for k, weight in enumerate(weights, 1):
        is_there = (segments[:, k:] == segments[:, :-k]) & (segments[:, k:] > 0)
        of_offset = log_p[:, : is_there.shape[1]]
        nll = -jnp.take_along_axis(of_offset, tokens[:, k:, None], -1)[..., 0]
        total += weight * jnp.sum(nll * is_there)
    return total / batch["weights"]["loss"].sum()


@pytest.mark.parametrize("chunk, num_microbatches", [(0, 1), (7, 2)])
def test_the_gradient_is_of_all_offsets(chunk, num_microbatches, make_case, make_rows):
    case = make_case("multi_token", (("loss_chunk", chunk),))
    rows = make_rows(case, 8, lengths=LENGTHS, with_eos=True)
    for progress, weights in ((0.0, (1, 0.5, 0.25)), (0.5, (1, 0.25, 0))):
        grads, metrics = case.gradients(at(rows, progress), num_microbatches)
        value, expected_grads = jax.jit(
            jax.value_and_grad(lambda p, w=weights: plain_loss(case, p, rows, w))
        )(case.params)
        terms = [total / num for total, num in map(metrics.get, case.spec.terms)]
        assert sum(map(float, terms)) == pytest.approx(float(value), rel=1e-5)
        gap = optax.tree.norm(jax.tree.map(jnp.subtract, grads, expected_grads))
        assert gap / optax.tree.norm(expected_grads) < 1e-5


@pytest.mark.slow_cases("0")
@pytest.mark.parametrize("chunk", [0, 7])
def test_weights_of_zero_are_clm_bit_by_bit(chunk, make_case, make_rows):
    values = (("loss_chunk", chunk),)
    case = make_case("multi_token", values, offset_weights=(0.0, 0.0))
    control = make_case("clm", values)
    rows = make_rows(case, 8, lengths=LENGTHS, with_eos=True)
    optimizer = optax.adam(1e-2)
    params, sums = [], []
    for each in (case, control):
        step = jax.jit(each.make_step(optimizer))
        state = make_state(each.params, optimizer)
        for i in range(5):
            state, metrics = step(state, at(rows, i / 5), jax.random.key(i))
        params.append(state.params)
        sums.append(metrics)
    equal(*params)
    equal(sums[0].pop("clm_loss"), sums[1].pop("loss"))
    assert sums[0].pop("offset_loss")[0] == 0
    equal(*sums)


def test_it_is_evaluated_as_clm(make_case, make_rows):
    case, control = make_case("multi_token"), make_case("clm")
    rows = make_rows(case, 8, lengths=LENGTHS)
    key = jax.random.key(0)
    result, expected = (c.evaluate(c.params, rows, key) for c in (case, control))
    equal(result["clm_loss"], expected["loss"])
    equal(result["accuracy"], expected["accuracy"])
    assert result["offset_loss"][0] == 0 < result["offset_loss"][1]
    tokens = rows["tokens"]
    equal(*(jax.jit(c.model.token_nll)(c.params, tokens) for c in (case, control)))


def test_no_offset_predicts_another_document(make_case, make_rows):
    case = make_case("multi_token")
    rows = at(make_rows(case, 4, lengths=[20, 18, 16, 14]), 0.0)
    is_second = rows["segment_ids"] == 2
    others = rows | {"tokens": jnp.where(is_second, 8, rows["tokens"])}

    def first_losses(rows):
        batch = case.corrupt(rows)
        first = jax.tree.map(lambda w: w * ~is_second[:, :-1], batch["weights"])
        return case.loss(batch | {"weights": first})[0]

    result = first_losses(rows)
    equal(result, first_losses(others))
    assert result["offset_loss"][0] > 0


def test_a_position_reads_its_documents_past_alone(make_case, make_rows):
    """The gradient of one position's losses by the embeddings of the row."""
    case, place = make_case("multi_token"), 14  # in the second document, from 10 on
    batch = case.corrupt(at(make_rows(case, 1, lengths=[20]), 0.0))
    is_place = jnp.arange(20) == place
    batch |= {"weights": jax.tree.map(lambda w: w * is_place, batch["weights"])}
    # The loss of the other offsets is read where the weights of all between are.
    batch["weights"]["clm_loss"] += 1e-9 * ~is_place

    def read(shifts):
        def intercept(call, args, kwargs, context):
            out = call(*args, **kwargs)
            is_call = context.method_name == "__call__"
            return out + shifts if is_call and type(context.module) is Embedder else out

        with nn.intercept_methods(intercept):
            masks = multi_token.masks(batch)
            terms, _ = multi_token.loss(case.params, case.model, batch, masks, {})
        return terms["clm_loss"][0]

    reach = np.abs(jax.jit(jax.grad(read))(jnp.zeros((1, 20, 32)))[0]).max(-1)
    assert (reach[10 : place + 1] > 1e-4).all()
    assert (reach[:10] < 1e-7).all() and (reach[place + 1 :] < 1e-7).all()


def test_it_learns_a_batch_while_the_weights_fade(make_case, make_rows):
    case = make_case("multi_token")
    rows = make_rows(case, 4)
    rows["tokens"] = rows["tokens"].at[:, 0].set(jnp.arange(4) + 10)
    optimizer = optax.adam(optax.cosine_decay_schedule(1e-2, 300))
    step = case.make_step(optimizer)

    @jax.jit
    def learn(state):
        def body(state, i):
            return step(state, at(rows, i / 300), jax.random.key(3))

        return jax.lax.scan(body, state, jnp.arange(300))[1]

    metrics = learn(make_state(case.params, optimizer))
    clm_loss, offset_loss = (
        metrics[term][0] / metrics[term][1] for term in ("clm_loss", "offset_loss")
    )
    assert clm_loss[-1] < 0.1 * clm_loss[0]
    # At first all tokens are as likely: of 20 positions 19 and 18 have other offsets.
    expected = (0.5 * 19 + 0.25 * 18) / 20 * float(clm_loss[0])
    assert float(offset_loss[0]) == pytest.approx(expected, rel=0.02)
    assert offset_loss[150] > 0 and not offset_loss[200:].any()
