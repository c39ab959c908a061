"""What tasks read of every kind of network: padding changes nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpt.nn.networks.encoder_decoder import EncoderDecoder
from jaxpt.nn.networks.one_stack import CausalLM, CausalMaskedLM, PrefixLM
from jaxpt.nn.task_heads import FORMS, TextHead, TokenHead
from tests.nn.test_networks import SPEC, draw, every, make

IDS = np.array([[3, 4, 5, 6], [7, 8, 9, 1]], np.int32)


def pad(rows, length, pad_id=0):
    """A batch of these rows, each padded to the length."""
    ids = np.full((len(rows), length), pad_id, np.int32)
    segment_ids = np.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
        segment_ids[i, : len(row)] = 1
    return {"inputs": jnp.asarray(ids), "segment_ids": jnp.asarray(segment_ids)}


@pytest.mark.slow_except("SkipGram")
@every
def test_padding_changes_no_state(kind):
    model = make(kind)
    params = draw(model)
    alone = model.task_states(params, pad(IDS[:1], 4))
    for pad_id in (0, 2):
        batch = pad([IDS[0], [5, 5]], 7, pad_id)
        beside = model.task_states(params, batch)
        np.testing.assert_allclose(beside[0, :4], alone[0], rtol=2e-5, atol=2e-6)
        layers = model.task_layers(params, batch)
        single = model.task_layers(params, pad(IDS[:1], 4))
        np.testing.assert_allclose(layers[:, 0, :4], single[:, 0], rtol=2e-5, atol=2e-6)
    assert alone.shape == (1, 4, model.task_width)


@pytest.mark.slow_cases("BiLm", "CausalLM")
@every
def test_states_without_padding_are_the_features(kind):
    model = make(kind)
    params = draw(model)
    states = model.task_states(params, pad(IDS, 4))
    features = model.features(params, jnp.asarray(IDS))
    np.testing.assert_allclose(states, features, rtol=2e-5, atol=2e-6)


@pytest.mark.slow_cases("BiLm", "CausalLM")
@every
def test_the_part_of_a_task_gives_the_same(kind):
    model = make(kind)
    params = draw(model)
    network, own = model.task_part(params)
    batch = pad(IDS, 6)
    results = (jax.jit(each.task_states) for each in (network, model))
    result, expected = (f(p, batch) for f, p in zip(results, (own, params)))
    np.testing.assert_array_equal(result, expected)
    assert len(jax.tree.leaves(own)) <= len(jax.tree.leaves(params))


def test_a_decoder_reads_the_text_once_more():
    model = make(EncoderDecoder)
    params = draw(model)

    @jax.jit
    def states(batch):
        dec = jnp.pad(batch["inputs"][:, :-1], ((0, 0), (1, 0)), constant_values=1)
        more = {"dec_inputs": dec, "dec_segment_ids": batch["segment_ids"]}
        return model.task_states(params, batch | more)

    alone, beside = states(pad(IDS[:1], 4)), states(pad([IDS[0], [5]], 7))
    np.testing.assert_allclose(beside[0, :4], alone[0], rtol=2e-5, atol=2e-6)
    encoded = jax.jit(model.task_states)(params, pad(IDS[:1], 4))
    assert not np.allclose(alone, encoded)


@pytest.mark.slow_except("PrefixLM")
@pytest.mark.parametrize("kind", [CausalMaskedLM, PrefixLM])
def test_a_batch_says_what_is_seen_ahead(kind):
    model = make(kind)
    params, batch = draw(model), pad(IDS, 4)
    none = batch | {"is_prefix": jnp.zeros((2, 4), bool)}
    changed = none | {"inputs": batch["inputs"].at[:, 3].set(2)}
    one, two = (model.task_states(params, each) for each in (none, changed))
    np.testing.assert_array_equal(one[:, :3], two[:, :3])
    whole = model.task_states(params, batch | {"is_prefix": jnp.ones((2, 4), bool)})
    np.testing.assert_array_equal(whole, model.task_states(params, batch))
    assert not np.allclose(whole[:, 0], one[:, 0])


def test_dropout_needs_a_key():
    model = make(CausalLM, dropout=0.5)
    params, batch = draw(model), pad(IDS, 4)
    key = {"dropout": jax.random.key(0)}
    dropped = model.task_states(params, batch, rngs=key)
    assert not np.allclose(dropped, model.task_states(params, batch))
    np.testing.assert_array_equal(dropped, model.task_states(params, batch, rngs=key))


@pytest.mark.slow_cases("TextHead-bert", "TextHead-elmo", "TextHead-ulmfit")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("head", [TextHead, TokenHead])
def test_no_head_looks_at_padding(form, head):
    states = np.random.default_rng(0).normal(size=(3, 2, 5, 16)).astype(np.float32)
    if not FORMS[form].mixes_layers:
        states = states[0]
    segment_ids = jnp.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    made = head(SPEC, form, 3)
    params = made.init(jax.random.key(0), states, segment_ids, deterministic=True)[
        "params"
    ]
    params = jax.tree.map(lambda x: x + 0.1, params)

    def run(states):
        return made.apply({"params": params}, states, segment_ids, deterministic=True)

    changed = states.copy()
    changed[..., 0, 3:, :] = 99.0
    one, two = run(states), run(changed)
    if head is TokenHead:
        one, two = one[0, :3], two[0, :3]
    np.testing.assert_array_equal(one, two)
    assert one.dtype == jnp.float32 and one.shape[-1] == 3
