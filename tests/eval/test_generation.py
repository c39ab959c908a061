"""Generation: greedy, filtered and sampled, on toys whose answer is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpt.errors import UserError
from jaxpt.eval.generation import (
    SampleSpec,
    filter_logits,
    generate,
    next_distribution,
)

V = 8
TABLE = jax.random.normal(jax.random.key(0), (V, V)) * 2
small = st.lists(st.integers(-3, 3), min_size=V, max_size=V)  # many ties


def bigram(table, tokens):
    """Scores of the next token from the last one alone."""
    return table[tokens]


def run(spec, prompt=((3,), (5,)), num_tokens=6, seed=0, table=TABLE, **options):
    prompt = jnp.array(prompt, jnp.int32)
    key = jax.random.key(seed)
    options = {"max_len": 99} | options
    return np.asarray(
        generate(bigram, table, prompt, num_tokens, rng=key, spec=spec, **options)
    )


def test_temperature_zero_and_top_one_are_greedy():
    best = np.asarray(TABLE).argmax(-1)
    wanted = np.array([[3], [5]])
    for _ in range(6):
        wanted = np.concatenate([wanted, best[wanted[:, -1:]]], axis=1)
    for spec in (
        SampleSpec(temperature=0),
        SampleSpec(top_k=1),
        SampleSpec(temperature=5.0, top_k=1),
        SampleSpec(top_p=1e-6),
    ):
        found = run(spec)
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, wanted)


def test_the_prompt_stays_and_each_token_reads_the_one_before():
    # Every token's only successor is the next id.
    table = jnp.where(jnp.eye(V, k=1, dtype=bool), 0.0, -jnp.inf).at[V - 1, 0].set(0.0)
    found = run(SampleSpec(), prompt=((4, 1), (0, 6)), num_tokens=4, table=table)
    assert found.tolist() == [[4, 1, 2, 3, 4, 5], [0, 6, 7, 0, 1, 2]]


def test_a_causal_model_sees_all_that_came_before():
    def count(params, tokens):
        """Says how many tokens there are so far."""
        places = jnp.arange(tokens.shape[1]) + 1
        return jnp.broadcast_to(jax.nn.one_hot(places, V), (*tokens.shape, V)) * 9

    prompt, key = jnp.zeros((1, 2), jnp.int32), jax.random.key(0)
    found = generate(count, None, prompt, 3, 5, key, SampleSpec(0))
    assert found.tolist() == [[0, 0, 2, 3, 4]]


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_samples_follow_the_softmax(temperature):
    num = 20_000
    found = run(SampleSpec(temperature), prompt=[[2]] * num, num_tokens=2)
    shares = np.bincount(found[:, 1], minlength=V) / num
    wanted = jax.nn.softmax(TABLE / temperature)
    np.testing.assert_allclose(shares, wanted[2], atol=0.015)
    # The second token follows the first, on randomness of its own.
    follows = found[found[:, 1] == found[0, 1], 2]
    shares = np.bincount(follows, minlength=V) / len(follows)
    np.testing.assert_allclose(shares, wanted[found[0, 1]], atol=0.05)


def test_the_key_decides():
    first, again, other = (run(SampleSpec(), num_tokens=30, seed=i) for i in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize("spec", [SampleSpec(), SampleSpec(0), SampleSpec(top_k=3)])
def test_banned_tokens_are_never_drawn(spec):
    banned = tuple(np.asarray(TABLE).sum(0).argsort()[-4:].tolist())
    found = run(spec, prompt=[[i] for i in range(V)] * 20, num_tokens=10, banned=banned)
    assert not np.isin(found[:, 1:], banned).any()
    assert np.isin(found[:, 0], banned).any()  # a prompt may hold them


@given(small, st.integers(1, V))
@settings(max_examples=60, deadline=None)
def test_top_k_keeps_k_and_of_ties_the_lower_ids(logits, k):
    logits = np.array(logits, np.float32)
    found = np.asarray(filter_logits(jnp.array(logits), top_k=k))
    kept = np.flatnonzero(np.isfinite(found))
    wanted = sorted(range(V), key=lambda i: (-logits[i], i))[:k]
    assert kept.tolist() == sorted(wanted)
    np.testing.assert_array_equal(found[kept], logits[kept])


def test_top_k_beyond_the_vocabulary_keeps_all():
    np.testing.assert_array_equal(filter_logits(TABLE, top_k=99), TABLE)
    np.testing.assert_array_equal(filter_logits(TABLE), TABLE)


@given(small, st.floats(0.01, 0.99), st.sampled_from([0, 3]))
@settings(max_examples=60, deadline=None)
def test_top_p_keeps_the_fewest_that_hold_the_mass(logits, p, top_k):
    logits = np.array(logits, np.float32)
    found = np.asarray(filter_logits(jnp.array(logits), top_k, p))
    kept = np.flatnonzero(np.isfinite(found))
    order = sorted(range(V), key=lambda i: (-logits[i], i))[: top_k or V]
    shares = np.exp(logits[order].astype(np.float64))
    shares /= shares.sum()  # of what top-k left
    assert 1 <= len(kept) and sorted(order[: len(kept)]) == kept.tolist()
    assert shares[: len(kept)].sum() >= p - 1e-5
    assert shares[: len(kept) - 1].sum() < p + 1e-5


def test_rows_are_filtered_each_by_itself():
    logits = jnp.array([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])
    found = filter_logits(logits, top_k=1)
    assert np.isfinite(found).tolist() == [[False, False, True], [True, False, False]]


@given(small, st.floats(0.1, 3), st.integers(0, V), st.floats(0.05, 1))
@settings(max_examples=30, deadline=None)
def test_next_distribution_sums_to_one(logits, temperature, top_k, top_p):
    spec = SampleSpec(temperature, top_k, top_p)
    found = next_distribution(jnp.array(logits, jnp.float32), spec)
    assert float(found.sum()) == pytest.approx(1, abs=1e-5) and (found >= 0).all()


def test_the_longest_generation_is_the_models():
    assert run(SampleSpec(), num_tokens=6, max_len=7).shape == (2, 7)
    with pytest.raises(UserError, match="--num_tokens=7: .* 7 positions"):
        run(SampleSpec(), num_tokens=7, max_len=7)
    with pytest.raises(UserError, match="--num_tokens=0"):
        run(SampleSpec(), num_tokens=0)
    with pytest.raises(UserError, match="--prompt=''"):
        run(SampleSpec(), prompt=np.zeros((1, 0)))


@pytest.mark.parametrize(
    "values, message",
    [
        ({"temperature": -1}, "--temperature=-1"),
        ({"temperature": float("nan")}, "--temperature=nan"),
        ({"top_k": -1}, "--top_k=-1"),
        ({"top_p": 0}, "--top_p=0"),
        ({"top_p": 1.1}, "--top_p=1.1"),
    ],
)
def test_bad_values_are_named(values, message):
    with pytest.raises(UserError, match=f"^{message}: must be "):
        SampleSpec(**values)


def test_the_smallest_temperatures_are_greedy():
    found = next_distribution(TABLE, SampleSpec(temperature=1e-39))
    assert np.isfinite(found).all()


def test_an_infinite_temperature_is_refused():
    with pytest.raises(UserError, match="--temperature=inf"):
        SampleSpec(temperature=float("inf"))
