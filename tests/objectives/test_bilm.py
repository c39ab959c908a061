"""ELMo: neither direction sees what it predicts; the source's constants and mix."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpt.nn.model_spec import ModelSpec
from jaxpt.objectives import bilm
from jaxpt.ops.masks import materialise
from jaxpt.text.tokens.vocab import Vocab


def strong(make_case):
    """Two layers."""
    return make_case("bilm", (("num_layers", 2),))


def test_neither_direction_sees_what_it_predicts(make_case, make_rows):
    """The logits at each place, by the tokens that change them."""
    case = strong(make_case)
    tokens = make_rows(case, 1)["tokens"][:, :8]

    @jax.jit
    def run(tokens):
        def read(model):
            masks = bilm.masks({"inputs": tokens})
            _, ahead, back = model.read(tokens, masks, deterministic=True)
            return model.head(ahead[-1], None), model.head(back[-1], None)

        return case.model.apply({"params": case.params}, method=read)

    plain = run(tokens)
    for place in range(8):
        changed = tokens.at[0, place].set((tokens[0, place] - 7 + 3) % 25 + 7)
        for other, logits, way in zip(run(changed), plain, (1, -1), strict=True):
            moved = np.abs(other - logits)[0].max(-1) > 1e-6
            # At t, ahead, t + 1 is predicted: it moves what is read at t + 1 and later.
            expected = np.arange(8) * way >= place * way
            np.testing.assert_array_equal(moved, expected)


def test_masks_say_what_the_states_carry(make_case, make_rows):
    """The gradient of each place's states is where the mask is, packed rows too."""
    case = strong(make_case)
    rows = make_rows(case, 1, lengths=[13])
    batch = case.corrupt(rows)
    masks = bilm.masks(batch)

    def reach(shift):
        def read(model):
            words = model.words

            def moved(chars):
                return words(chars) + shift

            object.__setattr__(model, "words", moved)
            return model.read(batch["inputs"], masks, deterministic=True)[1:]

        ahead, back = case.model.apply({"params": case.params}, method=read)
        return ahead[-1][0].sum(-1), back[-1][0].sum(-1)

    pulls = jax.jit(jax.jacobian(reach))(jnp.zeros((20, 32)))
    ids = np.asarray(rows["segment_ids"][0])
    own = (ids[:, None] == ids) & (ids > 0)
    ways = np.tri(20, dtype=bool), np.tri(20, dtype=bool).T
    for pull, name, way in zip(pulls, ("forward", "backward"), ways, strict=True):
        seen = np.abs(pull).max(-1) > 0
        allowed = np.asarray(materialise(masks[name], 20, 20))[0, 0]
        np.testing.assert_array_equal(allowed, own & way)
        np.testing.assert_array_equal(seen[ids > 0], allowed[ids > 0])


@pytest.mark.slow
@given(st.integers(2, 12), st.integers(0, 2**31 - 1), st.booleans())
@settings(max_examples=40, deadline=None)
def test_targets_are_the_neighbours_of_the_same_document(length, seed, is_packed):
    draw = np.random.default_rng(seed)
    tokens = draw.integers(0, 40, (3, length)).astype(np.int32)
    rows = {"tokens": tokens, "index": np.arange(3)}
    segments = np.ones((3, length), int)
    if is_packed:
        steps = np.cumsum(draw.random((3, length)) < 0.3, axis=1) + 1
        ends = draw.integers(0, length + 1, (3, 1))
        segments = rows["segment_ids"] = np.where(np.arange(length) < ends, steps, 0)
    rows = jax.tree.map(jnp.asarray, rows)
    batch = jax.device_get(bilm.corrupt(None, rows, None, bilm.Spec(length)))
    np.testing.assert_array_equal(batch["inputs"], tokens)
    for b in range(3):
        for t in range(length):
            for side, keys in (
                (1, ("targets", "forward_loss")),
                (-1, ("back_targets", "backward_loss")),
            ):
                other = t + side
                is_in = 0 <= other < length and segments[b, t] > 0
                is_in = is_in and segments[b, t] == segments[b, other]
                assert batch["weights"][keys[1]][b, t] == is_in
                if is_in:
                    assert batch[keys[0]][b, t] == tokens[b, other]


def test_constants_are_the_sources():
    spec = bilm.Spec(20)
    assert (spec.num_chars, spec.char_width, spec.num_highway) == (50, 16, 2)
    assert spec.filters == (32, 32, 64, 128, 256, 512, 1024)
    assert (spec.cell_clip, spec.proj_clip) == (3.0, 3.0)
    expected = {"forward_loss": 0.5, "backward_loss": 0.5}  # the mean of both
    assert spec.coefficients == expected
    # 93.6 M in the published model, with its softmax of 793,471 words left out.
    model_spec = ModelSpec(vocab_size=10, num_layers=2, d_model=512, d_ff=4096)
    model = spec.make_network(model_spec, Vocab(size=10, pieces=(b"a",) * 10))
    shapes = jax.eval_shape(model.init_params, jax.random.key(0))
    del shapes["head"]
    count = sum(x.size for x in jax.tree.leaves(shapes))
    assert count == pytest.approx(93.6e6, rel=0.01)


def test_the_first_layers_are_words_and_the_mix_is_even(make_case, make_rows):
    case = strong(make_case)
    tokens = make_rows(case, 2)["tokens"]

    @jax.jit
    def run(params, tokens):
        layers = case.model.apply({"params": params}, tokens, method="layers")
        return layers, case.model.features(params, tokens)

    layers, result = run(case.params, tokens)
    assert layers.shape == (3, 2, 20, 64)
    np.testing.assert_array_equal(layers[0, ..., :32], layers[0, ..., 32:])
    np.testing.assert_allclose(result, layers.mean(0), rtol=1e-5, atol=1e-6)
    # Word vectors do not depend on the position; the layers above do.
    turned = run(case.params, tokens[:, ::-1])[0][:, :, ::-1]
    np.testing.assert_allclose(turned[0], layers[0], atol=1e-6)
    assert np.abs(turned[1] - layers[1]).max() > 1e-2


@pytest.mark.slow
def test_both_directions_share_words_and_softmax(make_case, make_rows):
    case = make_case("bilm")
    batch = case.corrupt(make_rows(case, 2))

    def pull(term):
        def total(params):
            terms, _ = bilm.loss(params, case.model, batch, bilm.masks(batch), {})
            return terms[term][0]

        return jax.jit(jax.grad(total))(case.params)

    size = lambda tree: sum(float(jnp.abs(x).sum()) for x in jax.tree.leaves(tree))  # noqa: E731
    for term, own, other in (
        ("forward_loss", "ahead", "back"),
        ("backward_loss", "back", "ahead"),
    ):
        grads = pull(term)
        assert min(size(grads[name]) for name in ("words", "head", own)) > 0
        assert size(grads[other]) == 0
        assert all(jnp.abs(leaf).max() > 0 for leaf in jax.tree.leaves(grads["words"]))


def test_a_likelihood_is_that_of_the_direction_ahead(make_case, make_rows):
    case = strong(make_case)
    rows = make_rows(case, 3)
    batch = case.corrupt(rows)
    terms, _ = case.loss(batch)
    nll = jax.jit(lambda p, t: case.model.token_nll(p, t))
    result = nll(case.params, rows["tokens"])
    assert result.shape == (3, 19)
    assert float(result.sum()) == pytest.approx(
        float(terms["forward_loss"][0]), rel=1e-5
    )


def test_words_are_read_by_their_spelling(make_case, vocab):
    """Two ids with the same text are one word; [BOS] differs from a word so spelt."""
    pieces = list(vocab.pieces)
    pieces[9], pieces[vocab.bos] = pieces[8], pieces[8]
    alike = dataclasses.replace(vocab, pieces=tuple(pieces))
    case = make_case("bilm")
    model = case.spec.make_network(case.model_spec, alike)
    layers = jax.jit(lambda t: model.apply({"params": case.params}, t, method="layers"))
    words = layers(jnp.array([[8, 9, 10, vocab.bos, vocab.eos]]))[0, 0]
    np.testing.assert_array_equal(words[0], words[1])
    for other in (2, 3, 4):
        assert np.abs(words[0] - words[other]).max() > 0


def test_what_cannot_be_spelt_is_refused(vocab, refuses):
    with refuses("tokenizer", "the text of its tokens"):
        bare = dataclasses.replace(vocab, pieces=())
        bilm.Spec(20).make_network(ModelSpec(vocab_size=40), bare)
