"""Bigram-matched cloze: under bigrams both candidates are equally likely to be true."""

import itertools
import math
import tracemalloc

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpt.evaluation import bigram_pairs, choices
from jaxpt.evaluation.bigram_pairs import (
    Bigrams,
    Pairs,
    draw_distractors,
    find_pairs,
    find_weights,
    measure_pair_bigrams,
    measure_pair_frequency,
    measure_pairs,
)
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.abilities import Gap
from jaxpt.nn.networks.electra import VARIANTS, Electra
from jaxpt.text.dataset import Split
from jaxpt.text.rows.corpus import Corpus
from jaxpt.text.tokens.vocab import Vocab

V = 12
VOCAB = Vocab(size=V, eos=0)


def make_split(*texts, doc_starts=None):
    parts = tuple(Corpus.from_arrays(np.asarray(x), doc_starts) for x in texts)
    return Split(parts, tuple(1 / len(texts) for _ in texts))


def draw_chain(num, seed=0, size=V):
    """Tokens of which each depends on the one before, and on nothing else."""
    rng = np.random.default_rng(seed)
    table = np.random.default_rng(99).dirichlet(np.full(size - 1, 0.3), size - 1)
    tokens = np.zeros(num, int)
    for i in range(1, num):
        tokens[i] = rng.choice(size - 1, p=table[tokens[i - 1]])
    return tokens + 1


def ask(train=None, valid=None, num=2000, context=3, doc_starts=None):
    train = draw_chain(20_000) if train is None else train
    valid = draw_chain(6_000, seed=1) if valid is None else valid
    split = make_split(valid, doc_starts=doc_starts)
    return find_pairs(make_split(train), split, VOCAB, num, context)


def list_joint(q):
    """The weighted probability of each (true, drawn) pair, as the code draws them."""
    size = len(q)
    joint = np.zeros((size, size))
    for a in range(size):
        rest = np.where(np.arange(size) == a, 0.0, q)
        if not rest.sum():
            continue
        edges = np.concatenate([[0.0], rest.cumsum() / rest.sum()])
        for b in np.flatnonzero(np.diff(edges) > 1e-9):
            middle = (edges[b] + edges[b + 1]) / 2
            drawn, weight = draw_distractors(q[None], np.array([a]), np.array([middle]))
            assert drawn[0] == b != a
            joint[a, b] = q[a] * rest[b] / rest.sum() * weight[0]
    return joint


@st.composite
def probabilities(draw):
    """Any distribution: near 0 and 1, with ties, with tokens that are impossible."""
    num = draw(st.integers(2, 6))
    values = draw(
        st.lists(
            st.sampled_from([0.0, 1e-9, 1e-4, 0.1, 0.1, 1.0, 1.0, 3.0, 1e4, 1e7])
            | st.floats(1e-6, 1.0),
            min_size=num,
            max_size=num,
        ).filter(any)
    )
    return np.array(values) / sum(values)


@given(probabilities())
def test_truth_and_distractor_can_be_exchanged_under_bigrams(q):
    joint = list_joint(q)
    # Pairs that are drawn so rarely that no midpoint is read are small either way.
    np.testing.assert_allclose(joint, joint.T, rtol=0, atol=2e-9)
    large = (joint > 0) & (joint.T > 0)
    np.testing.assert_allclose(joint[large], joint.T[large], rtol=1e-12, atol=1e-12)
    assert (joint >= 0).all() and joint.sum() <= 1 + 1e-12


def test_the_joint_distribution_is_symmetric_to_rounding():
    for values in ([0.5, 0.3, 0.15, 0.05], [0.25] * 4, [0.9, 0.1], [0.999, 5e-4, 5e-4]):
        joint = list_joint(np.array(values))
        np.testing.assert_allclose(joint, joint.T, rtol=0, atol=1e-12)
        assert joint.sum() > 0
    # Without weights it is not: a probable token is rarely drawn.
    q = np.array([0.5, 0.3, 0.15, 0.05])
    plain = q[:, None] * q / (1 - q[:, None])
    assert abs(plain - plain.T).max() > 0.05


def test_a_certain_token_makes_no_question():
    q = np.array([[1.0, 0.0, 0.0]])
    _, weights = draw_distractors(q, np.array([0]), np.array([0.5]))
    assert weights.tolist() == [0.0]
    assert find_weights(np.zeros(2), np.array([0.0, 1.0])).tolist() == [0, 0]


def test_bigrams_and_their_ranks_answer_at_most_half_of_the_questions():
    """On a text of which bigrams are all that there is to know."""
    pairs = ask(valid=draw_chain(30_000, seed=1), num=8000)
    bigrams = measure_pair_bigrams(pairs)
    assert bigrams["pair_accuracy"].mean == 0.5
    assert bigrams["pair_nats"].mean == pytest.approx(math.log(2), abs=1e-6)
    for sign in (1, -1):  # the likelier by q, or the less likely
        score = choose(lambda rows, sign=sign: sign * look_up(pairs, rows))
        result = measure_pairs(score, None, pairs, 512, is_ratio=True)
        assert result["pair_accuracy"].mean == pytest.approx(0.5, abs=0.02)
    # The other question of the same text, which they answer.
    counts = np.bincount(draw_chain(20_000), minlength=V)
    other = choices.find_choices(
        make_split(draw_chain(6_000, seed=1)), counts, VOCAB, 2, 2000, 3
    )
    train = make_split(draw_chain(20_000))
    by_bigrams = choices.measure_bigrams(train, other)["choice_bayes_accuracy"]
    assert by_bigrams.mean > 0.7


def choose(function):
    return lambda params, rows: function(rows)


def look_up(pairs, rows):
    """log q of the candidates of these questions."""
    known = {
        (*left, *right, *candidates): log_q
        for left, right, candidates, log_q in zip(
            *(x.tolist() for x in (pairs.left, pairs.right, pairs.candidates)),
            pairs.log_bigrams,
            strict=True,
        )
    }
    keys = np.concatenate([rows["left"], rows["right"], rows["candidates"]], axis=1)
    return np.array([known[tuple(key)] for key in keys.tolist()])


def test_questions_are_of_the_text_and_always_the_same():
    starts = np.arange(0, 6_001, 100)
    pairs = ask(doc_starts=starts)
    text = draw_chain(6_000, seed=1).tolist()
    rows = {tuple(text[i : i + 7]) for i in range(len(text) - 6)}
    for left, right, (truth, drawn) in zip(
        pairs.left, pairs.right, pairs.candidates, strict=True
    ):
        assert (*left, truth, *right) in rows and drawn != truth
    assert not VOCAB.is_special[pairs.candidates].any()
    assert 0 < pairs.weights.min() and pairs.weights.max() == 1
    assert len(set(pairs.documents)) == 60
    again = ask(doc_starts=starts)
    for one, other in zip(pairs, again, strict=True):
        np.testing.assert_array_equal(one, other)


def test_pieces_of_questions_do_not_change_them(monkeypatch):
    expected = ask(num=100)
    monkeypatch.setattr(bigram_pairs, "MAX_FLOATS", 7 * V)
    for one, other in zip(expected, ask(num=100), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_bigrams_are_smoothed_towards_frequencies():
    """By hand: 1 2 1 3 1 2, with Witten-Bell smoothing."""
    train = make_split(np.array([1, 2, 1, 3, 1, 2]))
    bigrams = Bigrams.read(train, 4)
    f = (np.array([0, 3, 2, 1]) + 0.1) / 6.4
    np.testing.assert_allclose(bigrams.frequencies, f)
    # After 1 come 2, 3 and 2: three times, of two kinds. After 2 and 3 comes 1, once.
    after = {1: (np.array([0, 0, 2, 1]) + 2 * f) / 5}
    after |= {2: (np.array([0, 1, 0, 0]) + f) / 2, 3: (np.array([0, 1, 0, 0]) + f) / 2}
    after[0] = f  # never seen
    expected = [after[1][c] * after[c][1] for c in range(4)]
    result = bigrams.fill(np.array([1]), np.array([1]))[0]
    np.testing.assert_allclose(result / result.sum(), expected / np.sum(expected))
    # Of a mixture, the counts of its parts are added.
    both = Bigrams.read(make_split([1, 2, 1], [3, 1, 2]), 4)
    assert both.after[1, 2] == 2 and both.after[1, 3] == 0 and both.after[3, 1] == 1


@pytest.fixture
def all_questions():
    """Each question of a text of two contexts, and log p by context."""
    p = np.array([[0.4, 0.4, 0.1, 0.06, 0.04], [0.3, 0.1, 0.1, 0.1, 0.4]])
    q = np.array([[0.5, 0.2, 0.1, 0.1, 0.1], [0.1, 0.2, 0.1, 0.3, 0.3]])
    rows, chances = [], []
    for context, (a, b) in itertools.product(
        range(2), itertools.permutations(range(5), 2)
    ):
        rows.append([context, a, b])
        chances.append(p[context, a] * q[context, b] / (1 - q[context, a]) / 2)
    context, *candidates = np.array(rows).T
    candidates = np.stack(candidates, 1)
    own = np.take_along_axis(q[context], candidates, 1)
    weights = find_weights(1 - own[:, 0], 1 - own[:, 1])
    side = context[:, None]
    pairs = Pairs(
        *(side, side, candidates, context, np.log(own), np.log(own)),
        weights=weights * np.array(chances),  # each as often as it is asked
    )
    return pairs, np.log(p)


def test_no_answer_is_better_than_the_gain_over_bigrams(all_questions):
    pairs, log_p = all_questions
    joint = {}
    for context, (a, b), w in zip(
        pairs.documents, pairs.candidates.tolist(), pairs.weights, strict=True
    ):
        joint.setdefault((context, *sorted((a, b))), {})[a] = w
    assert all(len(of) == 2 for of in joint.values())
    total = sum(pairs.weights)
    best = sum(max(of.values()) for of in joint.values()) / total
    least = -sum(
        x * math.log(x / sum(of.values())) for of in joint.values() for x in of.values()
    )

    def measure(factor, is_ratio=False):
        score = choose(lambda rows: factor * log_p[rows["left"], rows["candidates"]])
        return measure_pairs(score, None, pairs, 7, is_ratio)

    result = measure(1.0)
    assert result["pair_accuracy"].mean == pytest.approx(best)
    assert result["pair_nats"].mean == pytest.approx(least / total)
    for other in (measure(1.0, is_ratio=True), measure(0.5), measure(2.0)):
        assert other["pair_nats"].mean > result["pair_nats"].mean + 1e-3
        assert other["pair_accuracy"].mean <= best + 1e-7


def test_who_knows_is_right_and_equal_gains_share():
    pairs = ask()
    know = choose(lambda rows: np.array([[50.0, 0.0]] * len(rows["left"])))
    result = measure_pairs(know, None, pairs, 64, is_ratio=True)
    assert result["pair_accuracy"].mean == 1 and result["pair_nats"].mean < 1e-6
    np.testing.assert_array_equal(result["pair_nats"].groups, pairs.documents)
    np.testing.assert_array_equal(result["pair_nats"].weights, pairs.weights)
    nothing = choose(lambda rows: np.zeros((len(rows["left"]), 2)))
    result = measure_pairs(nothing, None, pairs, 64, is_ratio=True)
    assert result["pair_accuracy"].mean == 0.5
    assert result["pair_nats"].mean == pytest.approx(math.log(2), abs=1e-6)
    # The log score of each question is kept, in four bytes.
    assert result["pair_nats"].totals.dtype == np.float32
    # Frequencies have less to say than bigrams, which have nothing.
    frequency = measure_pair_frequency(pairs)
    assert frequency["pair_nats"].mean > math.log(2)


@pytest.mark.parametrize(
    ("train", "valid"),
    [
        (None, np.arange(1, 6)),  # 7 tokens are read
        (None, np.zeros(100, int)),  # all of it special
        (np.full(100, 3), np.full(100, 3)),  # one kind of tokens
    ],
)
def test_too_little_text_is_no_question(train, valid):
    assert ask(train, valid) is None


def test_a_text_without_surprises_still_has_finite_scores():
    text = np.tile([1, 2, 3], 200)
    pairs = ask(text, text)
    assert np.isfinite(pairs.log_bigrams).all() and (pairs.weights < 0.1).all()
    result = measure_pair_frequency(pairs)
    assert np.isfinite(result["pair_nats"].mean)


def test_a_large_vocabulary_stays_within_memory():
    size, rng = 20_000, np.random.default_rng(0)
    tokens = (rng.zipf(1.2, 100_000) % (size - 1)) + 1
    train, valid = make_split(tokens[:90_000]), make_split(tokens[90_000:])
    tracemalloc.start()
    pairs = find_pairs(train, valid, Vocab(size=size, eos=0), 400, 3)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(pairs.weights) > 350
    assert peak < 12 * 8 * bigram_pairs.MAX_FLOATS  # a square table has 3.2 GB


@pytest.mark.parametrize("variant", [n for n in VARIANTS if "score" in VARIANTS[n]])
def test_electra_resolves_its_ratio_to_p(variant):
    """From exact odds of "original" and the generator's distribution."""
    p, g = np.array([0.6, 0.1, 0.25, 0.05]), np.array([0.7, 0.25, 0.04, 0.01])
    share, temperature = 0.3, 2.0
    odds = p * (1 - share + share * g) / (share * g * (1 - p))
    if variant == "electra_15":
        odds = p / (1 - p)

    class Known(Electra):
        def choice_scores(self, params, gap):
            scores = np.log(odds)
            if variant == "all_tokens_mlm":
                scores = np.log(odds / (1 + odds))
            return jnp.array(scores)[gap.candidates]

        def fill_logits(self, params, tokens):
            assert tokens[0].tolist() == [3, 9, 2]  # hidden by the mask
            return jnp.broadcast_to(temperature * np.log(g), (1, 3, 4))

    spec = ModelSpec(vocab_size=10, num_layers=1, d_model=8, num_heads=2, d_ff=8)
    fields = {"temperature": temperature, "mask_id": 9, "sampled_share": share}
    network = Known(spec, spec, variant, **fields)
    gap = Gap(jnp.array([[3, 1, 2]]), 1, jnp.array([[3, 2]]), jnp.array([[2, 0, 1, 3]]))
    result = network.gap_log_probs(None, gap)
    np.testing.assert_allclose(result[0], np.log(p[[2, 0, 1, 3]]), rtol=1e-4)
