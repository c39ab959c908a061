"""Prefixes of the next token: their table, their weights, the loss, the controls."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from objectives.conftest import PREFIXES

from jaxpt.objectives import clm, multi_token, prefix_token
from jaxpt.objectives.prefix_token import find_prefixes, find_weight, prefix_table
from jaxpt.ops import losses
from jaxpt.text.tokens.vocab import Vocab

equal = functools.partial(jax.tree.map, np.testing.assert_array_equal)
LENGTHS = [20, 3, 0, 12, 20, 7, 1, 16]
PIECES = (b"a", b"ab", b"abc", b"b", b"bc")


def at(rows, progress):
    return rows | {"progress": jnp.full(rows["index"].shape, progress, jnp.float32)}


def find(pieces):
    return find_prefixes(
        pieces, np.ones(len(pieces), bool), np.zeros(len(pieces))
    ).tolist()


def test_the_longest_proper_prefix_of_the_bytes():
    assert find(PIECES) == [-1, 0, 1, -1, 3]
    assert find((b" ", b" t", b" the", b"t", b"the", b"he")) == [-1, 0, 1, -1, 3, -1]
    # Equal bytes are no proper prefix, and the first of them is that of others.
    assert find((b"a", b"a", b"ab", b"", b"ab", b"abc")) == [-1, -1, 0, -1, 0, 2]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.binary(max_size=4).map(lambda b: bytes(x % 3 for x in b)), max_size=20)
)
def test_prefixes_by_definition(pieces):
    for i, prefix in enumerate(find(tuple(pieces))):
        shorter = [
            j
            for j, piece in enumerate(pieces)
            if piece and len(piece) < len(pieces[i]) and pieces[i].startswith(piece)
        ]
        longest = max(shorter, key=lambda j: (len(pieces[j]), -j), default=-1)
        assert prefix == longest


def test_special_tokens_and_continuing_pieces():
    """A special's name is no text, and ## is none either."""
    pieces = (b"[PAD]", b"[", b"#", b"in", b"##in", b"##ing", b"ing", b"##", b"[PADX")
    starts = tuple(i not in (4, 5) for i in range(len(pieces)))
    vocab = Vocab(size=9, pad=0, pieces=pieces, word_starts=starts)
    assert prefix_table(vocab).tolist() == [-1, -1, -1, -1, -1, 4, 3, 2, 1]
    # Of other tokenizers, whose tokens inside a word have no mark, ## is text.
    starts = tuple(i not in (3, 4, 5) for i in range(len(pieces)))
    bpe = Vocab(size=9, pad=0, pieces=pieces, word_starts=starts)
    assert prefix_table(bpe).tolist() == [-1, -1, -1, -1, 7, 4, 3, 2, 1]


@pytest.mark.parametrize(
    "progress, weight",
    [
        *((0, 0.25), (0.2, 0.25), (1 / 3, 0.25), (0.5, 0.125)),
        *((0.6, 0.05), (2 / 3, 0), (1, 0)),
    ],
)
def test_the_weight_fades(progress, weight):
    spec, place = prefix_token.Spec(4), jnp.array([progress])
    assert find_weight(spec, place)[0] == pytest.approx(weight, abs=1e-7)
    constant = prefix_token.Spec(4, prefix_fade=(1.0, 1.0))
    assert find_weight(constant, place)[0] == 0.25 * (progress < 1)


class Fixed:
    """A model whose logits are given."""

    def __init__(self, logits):
        self.logits = jnp.asarray(logits)

    def apply(self, variables, rngs, method):
        return method(self)

    def batch_states(self, batch, masks, deterministic):
        return self.logits

    def score(self, states, targets, weights):
        return losses.score(states, targets, weights)


def total_of(logits, batch):
    terms, _ = prefix_token.loss({}, Fixed(logits), batch, {}, {})
    (weight,) = {float(weight) for _, weight in terms.values()}
    return sum(total for total, _ in terms.values()) / weight, terms


def test_the_loss_and_gradient_of_an_example():
    """z = 0 1 2 0 0, next token abc, whose prefix is ab, with weight .25."""
    vocab = Vocab(size=5, pieces=PIECES)
    rows = {"tokens": jnp.array([[0, 2]]), "index": jnp.array([0])}
    batch = prefix_token.corrupt(None, at(rows, 0.0), vocab, prefix_token.Spec(2))
    z = jnp.array([[[0.0, 1, 2, 0, 0]]])
    value, gradient = jax.value_and_grad(lambda z: total_of(z, batch)[0])(z)
    assert value == pytest.approx(0.966465, abs=1e-6)
    expected = [0.095366, 0.009233, -0.295332, 0.095366, 0.095366]
    np.testing.assert_allclose(gradient[0, 0], expected, atol=1e-6)


def test_a_uniform_model():
    """Next tokens ab, abc, b: of two there is a prefix."""
    vocab = Vocab(size=5, pieces=PIECES)
    rows = {"tokens": jnp.array([[0, 1, 2, 3]]), "index": jnp.array([0])}
    batch = prefix_token.corrupt(None, at(rows, 0.0), vocab, prefix_token.Spec(4))
    mean, terms = total_of(jnp.zeros((1, 3, 5)), batch)
    assert 3 * float(mean) == pytest.approx(3.5 * math.log(5), rel=1e-6)
    assert float(terms["prefix_loss"][0]) == pytest.approx(0.5 * math.log(5))


def test_it_is_evaluated_as_clm(make_case, make_rows):
    control = make_case("clm")
    for weights in ((), (0.5, 0.25)):
        case = make_case("prefix_token", offset_weights=weights)
        rows = make_rows(case, 8, lengths=LENGTHS)
        key = jax.random.key(0)
        result, expected = (c.evaluate(c.params, rows, key) for c in (case, control))
        equal(result["clm_loss"], expected["loss"])
        equal(result["accuracy"], expected["accuracy"])
        assert result["prefix_loss"][0] == 0 < result["prefix_loss"][1]
        assert (len(weights) > 0) == ("offset_loss" in result)


def plain_loss(case, params, rows, vocab, progress):
    """With one log softmax, the sums over the number of next tokens."""
    batch = clm.corrupt(None, rows, None, case.spec)
    table = np.array(prefix_table(vocab))
    prefixes = jnp.asarray(table)[batch["targets"]]

    def read(model):
        states = model.batch_states(batch, clm.masks(batch), deterministic=True)
        return jax.nn.log_softmax(model.logits(states))

    log_p = case.model.apply({"params": params}, method=read)

    def nll(targets):
        return -jnp.take_along_axis(log_p, targets[..., None], -1)[..., 0]

    weight = find_weight(case.spec, jnp.array([progress]))[0]
    total = nll(batch["targets"]) + weight * nll(prefixes) * (prefixes >= 0)
    counted = batch["weights"]["loss"]
    return (total * counted).sum() / counted.sum()


@pytest.mark.parametrize("chunk, num_microbatches", [(0, 1), (7, 2)])
def test_the_gradient_is_of_both(chunk, num_microbatches, make_case, make_rows):
    case = make_case("prefix_token", (("loss_chunk", chunk),))
    rows = make_rows(case, 8, lengths=LENGTHS, with_eos=True)
    for progress in (0.0, 0.5):
        grads, metrics = case.gradients(at(rows, progress), num_microbatches)
        value, expected = jax.jit(
            jax.value_and_grad(
                lambda p, t=progress: plain_loss(case, p, rows, PREFIXES, t)
            )
        )(case.params)
        terms = [total / num for total, num in map(metrics.get, case.spec.terms)]
        assert sum(map(float, terms)) == pytest.approx(float(value), rel=1e-5)
        assert terms[1] > 0
        gap = optax.tree.norm(jax.tree.map(jnp.subtract, grads, expected))
        assert gap / optax.tree.norm(expected) < 1e-5


def test_without_a_weight_it_is_clm_or_multi_token_bit_by_bit(make_case, make_rows):
    for weights, control in (((), "clm"), ((0.5, 0.25), "multi_token")):
        case = make_case("prefix_token", prefix_weight=0.0, offset_weights=weights)
        other = make_case(control)
        rows = at(make_rows(case, 8, lengths=LENGTHS, with_eos=True), 0.1)
        equal(case.gradients(rows)[0], other.gradients(rows)[0])


def test_controls_keep_the_weight_and_lose_the_spelling(make_case, make_rows):
    rows = at(make_rows(make_case("prefix_token"), 32, lengths=32 * [20]), 0.0)
    batches = {
        target: make_case("prefix_token", target=target).corrupt(rows)
        for target in ("prefix", "ranked", "uniform")
    }
    plain = batches.pop("prefix")
    has_prefix = np.asarray(plain["prefix_weights"]) > 0
    assert 0.5 < has_prefix.mean() < 1
    for batch in batches.values():
        equal(batch["prefix_weights"], plain["prefix_weights"])
        differs = batch["prefix_targets"] != plain["prefix_targets"]
        assert np.asarray(differs)[has_prefix].mean() > 0.9
        assert np.isin(batch["prefix_targets"][has_prefix], np.arange(7, 32)).all()
    ranked = np.asarray(batches["ranked"]["prefix_targets"])[has_prefix]
    # Counts of the tests' vocabulary rise with the id.
    prefixes = np.asarray(plain["prefix_targets"])[has_prefix]
    assert (np.abs(ranked - prefixes) <= 1).all()
    assert len(np.unique(np.asarray(batches["uniform"]["prefix_targets"]))) > 20


def test_no_prefix_of_another_document(make_case, make_rows):
    case = make_case("prefix_token")
    rows = at(make_rows(case, 4, lengths=[20, 18, 16, 14]), 0.0)
    batch = case.corrupt(rows)
    segments = np.asarray(rows["segment_ids"])
    is_next = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
    assert not np.asarray(batch["prefix_weights"])[~is_next].any()


def test_declared_controls(make_case):
    controls = prefix_token.Spec(4).controls()
    assert set(controls) == {"clm", "ranked", "uniform"}
    stacked = prefix_token.Spec(4, offset_weights=(0.5,)).controls()
    other = stacked["multi_token-same"]
    assert other["objective"] == multi_token.Spec.SECTION
    assert other["multi_token"]["offset_weights"] == (0.5,)
