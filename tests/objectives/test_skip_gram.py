"""word2vec: which pairs are read, how often words are drawn, what it learns."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpt.learn.state import make_state
from jaxpt.learn.update import Update
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.objectives import skip_gram
from jaxpt.rng import split_step
from jaxpt.text.tokens.vocab import Vocab

R = 16
COUNTS = np.array([50, 0, 400, 100, 100, 10, 300, 50, 39, 1])
VOCAB = Vocab(size=10, pad=0, counts=tuple(COUNTS.tolist()))
SPEC = skip_gram.Spec(R, window=3, num_negatives=4, subsample=0.1)


@jax.jit
def corrupt(rng, rows):
    return skip_gram.corrupt(rng, rows, VOCAB, SPEC)


def test_chances_are_word2vec_cs():
    """(sqrt(f / t) + 1) t / f, as its code has it; not the paper's 1 - sqrt(t / f)."""
    total = COUNTS[1:].sum()  # padding is not a word
    expected = []
    for count in COUNTS:
        share = SPEC.subsample * total
        chance = (np.sqrt(count / share) + 1) * share / count if count else 0
        expected.append(min(chance, 1))
    expected[0] = 0
    np.testing.assert_allclose(
        skip_gram.keep_probabilities(VOCAB, SPEC), expected, rtol=1e-5
    )
    all_kept = dataclasses.replace(SPEC, subsample=0.0)
    expected = (COUNTS > 0) & (np.arange(10) > 0)
    np.testing.assert_array_equal(
        skip_gram.keep_probabilities(VOCAB, all_kept), expected
    )


def test_words_are_kept_and_drawn_as_often_as_they_should():
    draw = np.random.default_rng(0)
    tokens = draw.integers(2, 10, (4000, R)).astype(np.int32)
    rows = {"tokens": jnp.asarray(tokens), "index": jnp.arange(4000)}
    batch = jax.device_get(corrupt(jax.random.key(0), rows))
    pairs = batch["weights"]["loss"].reshape(4000, R, 6)
    # A word in the middle of a row that is kept has a neighbour, if any other is kept.
    is_kept = pairs[:, 4:12].any(-1)
    chances = skip_gram.keep_probabilities(VOCAB, SPEC)
    for id_ in range(2, 10):
        share = is_kept[tokens[:, 4:12] == id_].mean()
        assert share == pytest.approx(chances[id_], abs=0.03), id_
    weights = np.where(np.arange(10) > 0, COUNTS, 0) ** 0.75
    counts = np.bincount(batch["negatives"].ravel(), minlength=10)
    np.testing.assert_allclose(
        counts / counts.sum(), weights / weights.sum(), atol=4e-3
    )
    assert counts[0] == counts[1] == 0  # neither padding nor what no text has
    # A window's reach is drawn evenly from 1 to 3: all see one place away, a third see
    # three.
    inner = pairs[:, 4:12][is_kept]
    reached = inner.mean(0)
    ratios = reached / reached[2]
    np.testing.assert_allclose(ratios, [1 / 3, 2 / 3, 1, 1, 2 / 3, 1 / 3], atol=0.03)


@given(
    st.lists(st.integers(0, 9), min_size=2 * R, max_size=2 * R),
    st.lists(st.integers(0, R), min_size=2, max_size=2),
    st.integers(0, 2**31 - 1),
)
@settings(max_examples=60, deadline=None)
def test_pairs_are_neighbours_among_what_is_kept(tokens, ends, seed):
    """Guards against windows laid before words are left out (gensim once did)."""
    tokens = np.array(tokens, np.int32).reshape(2, R)
    places = np.arange(R)
    ends = np.array(ends)[:, None]
    segments = np.where(places < ends // 2, 1, 2) * (places < ends)
    rows = {"tokens": tokens, "segment_ids": segments, "index": np.arange(2)}
    batch = jax.device_get(corrupt(jax.random.key(seed), rows))
    np.testing.assert_array_equal(batch["inputs"], tokens)
    pairs = batch["weights"]["loss"].reshape(2, R, 6) > 0
    near = batch["targets"].reshape(2, R, 6)
    for row in range(2):
        for segment in (1, 2):
            inside = np.flatnonzero(segments[row] == segment)
            active = [p for p in inside if pairs[row, p].any()]
            kept = tokens[row, active]
            assert not np.isin(kept, [0, 1]).any()  # neither padding nor unheard of
            # Who is kept alone in his document has no pair; else these are all kept.
            for i, place in enumerate(active):
                ahead, back = pairs[row, place, 3:], pairs[row, place, 2::-1]
                reach = max(ahead.sum(), back.sum())
                assert 1 <= reach <= 3
                # On each side all to the reach, or to the document's end.
                assert ahead[: ahead.sum()].all() and back[: back.sum()].all()
                assert ahead.sum() == min(reach, len(active) - 1 - i)
                assert back.sum() == min(reach, i)
                expected = kept[i + 1 : i + 1 + ahead.sum()]
                np.testing.assert_array_equal(near[row, place, 3:][ahead], expected)
                expected = kept[i - back.sum() : i][::-1]
                np.testing.assert_array_equal(near[row, place, 2::-1][back], expected)
        assert not pairs[row][segments[row] == 0].any()


def test_the_loss_by_hand():
    spec = skip_gram.Spec(3, window=1, num_negatives=2)
    model = spec.make_network(ModelSpec(vocab_size=10, d_model=4), VOCAB)
    draw = np.random.default_rng(0).normal
    params = {name: draw(0, 1, (10, 4)) for name in ("words", "contexts")}
    batch = {
        "inputs": np.array([[2, 3, 4]]),
        "targets": np.array([[9, 3, 2, 4, 3, 9]]),
        "weights": {"loss": np.array([[0, 1, 1, 1, 1, 0.0]])},
        "negatives": np.array([[3, 5, 6, 6, 7, 8]]),
    }
    expected, sigmoid = 0.0, lambda x: 1 / (1 + np.exp(-x))
    for place, (id_, near) in enumerate([(2, [3]), (3, [2, 4]), (4, [3])]):
        for neighbour in near:
            score = params["words"][id_] @ params["contexts"][neighbour]
            expected -= np.log(sigmoid(score))
            for noise in batch["negatives"][0, 2 * place : 2 * place + 2]:
                if noise != neighbour:  # 3 is 2's own neighbour
                    score = params["words"][id_] @ params["contexts"][noise]
                    expected -= np.log(sigmoid(-score))
    params = jax.tree.map(jnp.float32, params)
    batch = jax.tree.map(jnp.asarray, batch)
    terms, _ = skip_gram.loss(params, model, batch, skip_gram.masks(batch), {})
    assert float(terms["loss"][0]) == pytest.approx(expected, rel=1e-5)
    assert terms["loss"][1] == 4 == batch["weights"]["loss"].sum()


@pytest.mark.slow
def test_it_learns_the_mutual_information_of_words():
    """v u -> log p(w, c) / (p(w) q(c)) - log K: Levy & Goldberg 2014.

    With q the law of the negatives, K of them, and room for every pair's own number.
    """
    spec = skip_gram.Spec(32, window=1, num_negatives=3, subsample=0.0)
    draw, size = np.random.default_rng(0), 6
    law = draw.dirichlet(np.full(5, 2.0), size=5)
    tokens = np.zeros((256, 32), int)
    for row in tokens:
        row[0] = draw.integers(5)
        for t in range(1, 32):
            row[t] = draw.choice(5, p=law[row[t - 1]])
    tokens += 1
    counts = np.bincount(tokens.ravel(), minlength=size)
    vocab = Vocab(size=size, pad=0, counts=tuple(counts.tolist()))
    model = spec.make_network(ModelSpec(vocab_size=size, d_model=8), vocab)
    optimizer = optax.adam(optax.cosine_decay_schedule(3e-2, 600))
    context = {"model": model, "vocab": vocab, "spec": spec}
    update = Update(optimizer)
    rows = {"tokens": jnp.asarray(tokens), "index": jnp.arange(256)}

    @jax.jit
    def go(state):
        def body(state, key):
            rngs = split_step(key)
            after = skip_gram.train_step(state, rows, rngs, update=update, **context)
            return after[0], None

        return jax.lax.scan(body, state, jax.random.split(jax.random.key(0), 600))[0]

    params = {"words": draw.normal(0, 0.1, (size, 8))}
    params["contexts"] = draw.normal(0, 0.1, (size, 8))
    params = go(make_state(jax.tree.map(jnp.float32, params), optimizer)).params
    result = np.asarray(params["words"] @ params["contexts"].T)[1:, 1:]
    joint = np.zeros((size, size))
    for a, b in ((tokens[:, 1:], tokens[:, :-1]), (tokens[:, :-1], tokens[:, 1:])):
        np.add.at(joint, (a.ravel(), b.ravel()), 1)
    joint = joint[1:, 1:] / joint.sum()
    noise = counts[1:] ** 0.75 / (counts[1:] ** 0.75).sum()
    # A negative that is the pair's own neighbour is left out: c is compared by
    # the pairs of w whose neighbour is another.
    others = joint.sum(1, keepdims=True) - joint
    expected = np.log(joint / (3 * others * noise))
    np.testing.assert_allclose(result, expected, atol=0.12)


def test_gradient_reaches_the_words_of_the_batch_alone(make_case, make_rows):
    case = make_case("skip_gram", subsample=0.0)
    rows = make_rows(case, 2)
    grads, _ = case.gradients(rows)
    # Each table's other half is still 0 at the source's start; here neither is.
    read = np.unique(np.asarray(rows["tokens"]))
    moved = np.flatnonzero(np.abs(grads["words"]).max(-1))
    np.testing.assert_array_equal(moved, read)
    batch = case.corrupt(rows, seed=0)
    assert np.abs(grads["contexts"]).max() > 0
    assert not np.abs(grads["contexts"])[:7].any()  # specials are never drawn
    assert batch["negatives"].min() >= 7 and batch["negatives"].max() < 32


def test_features_are_the_same_wherever_a_word_stands(make_case):
    case = make_case("skip_gram")
    tokens = jnp.array([[8, 9, 8, 10], [10, 10, 9, 8]])
    result = case.model.features(case.params, tokens)
    np.testing.assert_array_equal(result, case.params["words"][tokens])


@pytest.mark.parametrize("counts", [(), (5,) + (0,) * 9])
def test_without_counts_there_is_nothing_to_draw(counts, refuses):
    vocab = dataclasses.replace(VOCAB, counts=counts)
    with refuses("skip_gram", "how often each token occurs"):
        SPEC.make_network(ModelSpec(vocab_size=10), vocab)
