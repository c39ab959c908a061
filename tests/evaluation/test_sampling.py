"""Generation: greedy, filtered, sampled and searched, on toys with known answers."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import slow, slow_but
from tiny_refusals import check_refusal, refused

from jaxpt.errors import UserError
from jaxpt.evaluation.sampling import generate, pad_left
from jaxpt.evaluation.scores import (
    SampleSpec,
    filter_logits,
    next_distribution,
    penalise,
)
from jaxpt.nn.decoding import Decoder, make_decoder
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.transformer import Transformer
from jaxpt.ops import masks

V = 8
TABLE = jax.random.normal(jax.random.key(0), (V, V)) * 2
small = st.lists(st.integers(-3, 3), min_size=V, max_size=V)  # many ties


@functools.cache
def make_transformer(is_pair):
    """A small model, and parameters far from uniform."""
    spec = ModelSpec(
        vocab_size=11,
        num_decoder_layers=2 * is_pair,
        d_model=16,
        num_heads=2,
        d_ff=24,
        max_len=16,
        positions="relative" if is_pair else "learned",
        init_std=0.5,
    )
    model, ids = Transformer(spec), jnp.zeros((1, 3), int)
    seen = {name: masks.full() for name in ("self", "dec_self", "cross")}
    init = functools.partial(model.init, deterministic=True)
    key, dec_ids = jax.random.key(0), ids if is_pair else None
    return model, jax.jit(init)(key, ids, seen, dec_ids)["params"]


@functools.cache
def make_full_pass(is_pair):
    """(source, text, length) -> log-probabilities behind the text, without a cache."""
    model, params = make_transformer(is_pair)

    @jax.jit
    def next_scores(source, text, length):
        seen = {"self": masks.causal()}
        if is_pair:
            seen = {"self": masks.full(), "dec_self": masks.causal()}
            seen["cross"] = masks.full()
        args = (source, seen, text) if is_pair else (text, seen)
        logits = model.apply({"params": params}, *args, deterministic=True)
        return jax.nn.log_softmax(logits[0, length - 1])

    return next_scores


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Toy:
    """A cache of the last two tokens and how many there are."""

    last: jax.Array
    count: jax.Array

    def pick(self, rows):
        return Toy(self.last[rows], self.count[rows])

    reorder = pick


def make_toy(score, max_len=99, start_id=None):
    """A decoder whose next scores are score(params, last two tokens [B, 2], count)."""

    def prefill(params, prompts, lengths, room):
        if start_id is not None:
            prompts = jnp.full((len(prompts), 1), start_id)
            lengths = jnp.ones_like(lengths)
        cache = Toy(jnp.pad(prompts, ((0, 0), (1, 0)))[:, -2:], lengths)
        return score(params, cache.last, cache.count), cache

    def step(params, ids, cache):
        last = jnp.stack([cache.last[:, 1], ids], axis=1)
        cache = Toy(last, cache.count + 1)
        return score(params, cache.last, cache.count), cache

    return Decoder(prefill, step, max_len, start_id)


def bigram(table, last, count):
    """Scores of the next token from the last one alone."""
    return table[last[:, 1]]


def run(spec, prompt=((3,), (5,)), num_tokens=6, seed=0, table=TABLE, **options):
    """The prompts, each with its generated tokens."""
    prompts, lengths = pad_left([np.array(row, np.int32) for row in prompt])
    names = ("max_len", "start_id")
    toy = make_toy(bigram, **{k: options.pop(k) for k in names if k in options})
    call = functools.partial(generate, toy, spec=spec, num_tokens=num_tokens, **options)
    tokens, counts = jax.jit(call)(table, prompts, lengths, rng=jax.random.key(seed))
    assert tokens.dtype == jnp.int32 and (counts <= num_tokens).all()
    return np.concatenate([prompts, np.asarray(tokens)], axis=1)


def test_temperature_zero_and_top_one_are_greedy():
    best = np.asarray(TABLE).argmax(-1)
    expected = np.array([[3], [5]])
    for _ in range(6):
        expected = np.concatenate([expected, best[expected[:, -1:]]], axis=1)
    for spec in (
        SampleSpec(temperature=0),
        SampleSpec(top_k=1),
        SampleSpec(temperature=5.0, top_k=1),
        SampleSpec(top_p=1e-6),
    ):
        result = run(spec)
        assert result.dtype == np.int32
        np.testing.assert_array_equal(result, expected)


def test_the_prompt_stays_and_each_token_reads_the_one_before():
    # Every token's only successor is the next id.
    table = jnp.where(jnp.eye(V, k=1, dtype=bool), 0.0, -jnp.inf).at[V - 1, 0].set(0.0)
    result = run(SampleSpec(), prompt=((4, 1), (0, 6)), num_tokens=4, table=table)
    assert result.tolist() == [[4, 1, 2, 3, 4, 5], [0, 6, 7, 0, 1, 2]]


def test_the_cache_goes_along():
    def count(params, last, count):
        """Says how many tokens there are so far."""
        return jax.nn.one_hot(count, V) * 9

    prompts, lengths = pad_left([np.array([0, 0]), np.array([0])])
    toy, key = make_toy(count, max_len=5), jax.random.key(0)
    result, _ = generate(toy, None, prompts, lengths, 3, key, SampleSpec(0))
    assert result.tolist() == [[2, 3, 4], [1, 2, 3]]


@pytest.mark.slow_cases("1.0")
@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_samples_follow_the_softmax(temperature):
    num = 20_000
    result = run(SampleSpec(temperature), prompt=[[2]] * num, num_tokens=2)
    shares = np.bincount(result[:, 1], minlength=V) / num
    expected = jax.nn.softmax(TABLE / temperature)
    np.testing.assert_allclose(shares, expected[2], atol=0.015)
    # The second token follows the first, with separate randomness.
    follows = result[result[:, 1] == result[0, 1], 2]
    shares = np.bincount(follows, minlength=V) / len(follows)
    np.testing.assert_allclose(shares, expected[result[0, 1]], atol=0.05)


def test_the_key_decides():
    first, again, other = (run(SampleSpec(), num_tokens=30, seed=i) for i in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize(
    "spec", [slow(SampleSpec()), SampleSpec(0), slow(SampleSpec(top_k=3))]
)
def test_banned_tokens_are_never_drawn(spec):
    banned = tuple(np.asarray(TABLE).sum(0).argsort()[-4:].tolist())
    result = run(
        spec, prompt=[[i] for i in range(V)] * 20, num_tokens=10, banned=banned
    )
    assert not np.isin(result[:, 1:], banned).any()
    assert np.isin(result[:, 0], banned).any()  # a prompt may hold them


@given(small, st.integers(1, V))
@settings(max_examples=60, deadline=None)
def test_top_k_keeps_k_and_of_ties_the_lower_ids(logits, k):
    logits = np.array(logits, np.float32)
    result = np.asarray(filter_logits(jnp.array(logits), top_k=k))
    kept = np.flatnonzero(np.isfinite(result))
    expected = sorted(range(V), key=lambda i: (-logits[i], i))[:k]
    assert kept.tolist() == sorted(expected)
    np.testing.assert_array_equal(result[kept], logits[kept])


def test_top_k_beyond_the_vocabulary_keeps_all():
    np.testing.assert_array_equal(filter_logits(TABLE, top_k=99), TABLE)
    np.testing.assert_array_equal(filter_logits(TABLE), TABLE)


@given(small, st.floats(0.01, 0.99), st.sampled_from([0, 3]))
@settings(max_examples=60, deadline=None)
def test_top_p_keeps_the_fewest_that_hold_the_mass(logits, p, top_k):
    logits = np.array(logits, np.float32)
    result = np.asarray(filter_logits(jnp.array(logits), top_k, p))
    kept = np.flatnonzero(np.isfinite(result))
    order = sorted(range(V), key=lambda i: (-logits[i], i))[: top_k or V]
    shares = np.exp(logits[order].astype(np.float64))
    shares /= shares.sum()  # of what top-k left
    assert 1 <= len(kept) and sorted(order[: len(kept)]) == kept.tolist()
    assert shares[: len(kept)].sum() >= p - 1e-5
    assert shares[: len(kept) - 1].sum() < p + 1e-5


def test_top_p_needs_no_more_than_its_mass():
    """Two tokens of a half each: the first has the requested half."""
    result = filter_logits(jnp.array([1.0, 1.0, -jnp.inf]), top_p=0.5)
    assert np.isfinite(result).tolist() == [True, False, False]


def test_the_temperature_comes_before_the_filter():
    """At 10 the likeliest of (.8, .1, .1) holds .38: a mass of .6 needs two."""
    logits = jnp.log(jnp.array([0.8, 0.1, 0.1]))
    for temperature, num in ((1.0, 1), (10.0, 2)):
        result = next_distribution(logits, SampleSpec(temperature, top_p=0.6))
        assert int((result > 0).sum()) == num
    kept = jnp.exp(logits[:2] / 10)
    np.testing.assert_allclose(result[:2], kept / kept.sum(), rtol=1e-5)


def test_rows_are_filtered_each_by_itself():
    logits = jnp.array([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])
    result = filter_logits(logits, top_k=1)
    assert np.isfinite(result).tolist() == [[False, False, True], [True, False, False]]


@given(small, st.floats(0.1, 3), st.integers(0, V), st.floats(0.05, 1))
@settings(max_examples=30, deadline=None)
def test_next_distribution_sums_to_one(logits, temperature, top_k, top_p):
    spec = SampleSpec(temperature, top_k, top_p)
    result = next_distribution(jnp.array(logits, jnp.float32), spec)
    assert float(result.sum()) == pytest.approx(1, abs=1e-5) and (result >= 0).all()


def test_the_longest_generation_is_the_models():
    assert run(SampleSpec(), num_tokens=6, max_len=7).shape == (2, 7)
    with pytest.raises(UserError, match="num_tokens=7: .* 7 positions"):
        run(SampleSpec(num_beams=2), num_tokens=7, max_len=7)
    with pytest.raises(UserError, match="num_tokens=0"):
        run(SampleSpec(), num_tokens=0)
    with pytest.raises(UserError, match="prompt=''"):
        run(SampleSpec(), prompt=[[1], []])


@pytest.mark.parametrize("sizes", [(3, 5), (16, 9), (40, 18)])
def test_beyond_the_model_the_last_tokens_are_read(sizes):
    """As nanoGPT's `generate`: the text, cut to the model's 16 positions, each time."""
    model, params = make_transformer(False)
    next_scores, rng = make_full_pass(False), np.random.default_rng(0)
    texts = [rng.integers(1, 11, size) for size in sizes]
    decoder, num = make_decoder(model), 30
    padded, lengths = pad_left(texts)
    call = functools.partial(generate, decoder, num_tokens=num, banned=(7,))
    call = jax.jit(call, static_argnames=("spec", "stop"))
    key = jax.random.key(1)
    tokens, counts = call(params, padded, lengths, rng=key, spec=SampleSpec(0))
    for i, text in enumerate(texts):
        for _ in range(num):
            window = np.zeros(16, int)
            last = text[-16:]
            window[: len(last)] = last
            scores = next_scores(None, jnp.array(window)[None], len(last))
            text = np.append(text, int(scores.at[7].set(-jnp.inf).argmax()))
        assert tokens[i].tolist() == text[sizes[i] :].tolist()
    assert counts.tolist() == [num, num]
    # A stop ends a row, wherever it comes, and the others go on as before.
    for place in (2, 25):
        stop = int(tokens[0, place])
        ends = [list(row).index(stop) + 1 if stop in row else num for row in tokens]
        short, counts = call(
            params, padded, lengths, rng=key, spec=SampleSpec(0), stop=(stop,)
        )
        assert counts.tolist() == ends
        for row, whole, end in zip(short, tokens, ends, strict=True):
            assert row.tolist() == [*whole[:end].tolist(), *[0] * (num - end)]
    # Within the model's positions samples are those of `generate`, then new ones.
    spec, few = SampleSpec(1.5, repetition_penalty=1.2), 16 - max(sizes)
    sampled, _ = call(params, padded, lengths, rng=key, spec=spec)
    if few > 0:
        same, _ = generate(decoder, params, padded, lengths, few, key, spec, (), (7,))
        np.testing.assert_array_equal(sampled[:, :few], same)
    assert len(np.unique(np.asarray(sampled)[:, 16:])) > 2


def test_a_source_may_be_as_long_as_the_model():
    spec, source = SampleSpec(0), [[1, 2, 3, 4]]
    assert run(spec, source, 4, max_len=4, start_id=0).shape == (1, 8)
    with pytest.raises(UserError, match="prompt: has 4 tokens; .* the model's 3"):
        run(spec, source, 3, max_len=3, start_id=0)
    with pytest.raises(UserError, match="num_tokens=5: .* 4 positions"):
        run(spec, source, 5, max_len=4, start_id=0)


REFUSED = """
    temperature=-1; temperature=nan; temperature=inf; top_k=-1; top_p=0; top_p=1.1
    repetition_penalty=0; num_beams=0; length_penalty=inf
"""


@pytest.mark.parametrize("make, parts", refused(SampleSpec, "", REFUSED))
def test_bad_settings_are_refused(make, parts, refuses):
    check_refusal(make, parts, refuses)


def test_the_smallest_temperatures_are_greedy():
    result = next_distribution(TABLE, SampleSpec(temperature=1e-39))
    assert np.isfinite(result).all()


def test_a_search_draws_nothing():
    for values in ({"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.5}):
        with pytest.raises(UserError, match="num_beams=2: must be 1 with"):
            SampleSpec(num_beams=2, **values)
    assert SampleSpec(0, num_beams=2).num_beams == 2


def test_prompts_are_padded_on_the_left():
    padded, lengths = pad_left([np.array([4]), np.array([1, 2, 3])])
    assert padded.tolist() == [[0, 0, 4], [1, 2, 3]] and lengths.tolist() == [1, 3]


def test_a_row_draws_the_same_whatever_stands_beside_it():
    prompts = [[3], [5, 1, 2], [0, 6], [7]]
    spec = SampleSpec(temperature=2.0, top_k=6)
    alone = {}
    for num in (1, 2, 4):
        result = run(spec, prompt=prompts[:num], num_tokens=25)[:, -25:]
        for i, row in enumerate(result.tolist()):
            assert alone.setdefault(i, row) == row
    twice = run(spec, prompt=[[3], [3]], num_tokens=25)
    assert (twice[0] != twice[1]).any()  # a row's place is part of its key


def test_a_text_continued_is_the_text_written_at_once():
    """A token's key is of its place in the whole text, however much was given."""
    spec = SampleSpec(temperature=2.0)
    whole = run(spec, [[3], [5]], num_tokens=12)
    for length in (2, 7):
        rest = run(spec, whole[:, :length], num_tokens=13 - length)
        np.testing.assert_array_equal(rest, whole)


def test_a_penalty_counts_prompt_and_text_and_padding_not():
    # 0 is the likeliest everywhere; a penalty of 3 puts it below what is second.
    table = jnp.tile(jnp.array([3.0, 2.0, 1.5, -9, -9, -9, -9, -9]), (V, 1))
    plain, punished = SampleSpec(0), SampleSpec(0, repetition_penalty=3.0)
    assert run(plain, [[5]], 3, table=table).tolist() == [[5, 0, 0, 0]]
    result = run(punished, [[5, 5], [1]], 4, table=table)
    # Row 1 is padded with 0s, which were not said; once all are, 3 / 3 leads again.
    assert result[:, 2:].tolist() == [[0, 1, 2, 0], [0, 2, 0, 0]]
    both = penalise(jnp.array([1.0, -1.0]), jnp.array([True, True]), 2.0)
    assert both.tolist() == [0.5, -2.0]


def test_a_penalty_of_a_decoder_counts_its_start_and_not_the_source():
    table = jnp.tile(jnp.array([3.0, 2.0, 1.5, -9, -9, -9, -9, -9]), (V, 1))
    spec = SampleSpec(0, repetition_penalty=3.0)
    result = run(spec, [[1, 2]], 2, table=table, start_id=0)
    assert result[:, 2:].tolist() == [[1, 2]]


@pytest.mark.slow
def test_a_stop_ends_its_row_and_all_of_them_the_loop():
    # Every token's only successor is the next id.
    table = jnp.where(jnp.eye(V, k=1, dtype=bool), 0.0, -1e4).at[V - 1, 0].set(0.0)
    prompts, lengths = pad_left([np.array([2]), np.array([5]), np.array([6, 0])])
    steps = []

    def score(table, last, count):
        jax.debug.callback(lambda: steps.append(0))
        return bigram(table, last, count)

    for spec in (SampleSpec(0), SampleSpec(), SampleSpec(num_beams=2)):
        steps.clear()
        result, counts = generate(
            make_toy(score), table, prompts, lengths, 30, jax.random.key(0), spec,
            stop=(4, 7), pad=6,
        )  # fmt: skip
        jax.effects_barrier()
        assert result[:, :5].tolist() == [
            [3, 4, 6, 6, 6],
            [6, 7, 6, 6, 6],
            [1, 2, 3, 4, 6],
        ]
        assert (result[:, 5:] == 6).all() and counts.tolist() == [2, 2, 4]
        assert len(steps) == 4 if spec.num_beams == 1 else len(steps) < 12


def score_text(table, prompt, text):
    """Log probability of a text after a prompt, by the table of bigrams."""
    shares = np.asarray(jax.nn.log_softmax(table), np.float64)
    return sum(shares[a, b] for a, b in itertools.pairwise([prompt, *text]))


@pytest.mark.slow_cases("0-0.0")
@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_enough_beams_find_the_best_of_all_texts(seed, length_penalty):
    vocab, length, stop = 4, 4, 3
    table = jax.random.normal(jax.random.key(seed), (vocab, vocab)) * 2
    texts = [
        text[: text.index(stop) + 1] if stop in text else text
        for text in itertools.product(range(vocab), repeat=length)
    ]
    # With one beam per possible text the search ends only at the last position.
    spec = SampleSpec(num_beams=3**3 * 4, length_penalty=length_penalty)
    prompts = [0, 1, 2]
    result = run(
        spec, [[p] for p in prompts], length, table=table, stop=(stop,), pad=stop
    )
    for prompt, row in zip(prompts, result[:, 1:].tolist()):
        best = max(
            set(texts),
            key=lambda t: score_text(table, prompt, t) / len(t) ** length_penalty,
        )
        assert tuple(row[: len(best)]) == best
        assert row[len(best) :] == [stop] * (length - len(best))


def search_plainly(shares, prompt, num_tokens, num_beams, penalty, stops):
    """Beam search by its definition, on lists: the best text after a prompt."""
    texts, done = [(0.0, [])], []
    for _ in range(num_tokens):
        more = [
            (score + shares[text[-1] if text else prompt, i], [*text, i])
            for score, text in texts
            for i in range(len(shares))
        ]
        more = sorted(more, key=lambda pair: -pair[0])
        more = more[: max(2, 1 + len(stops)) * num_beams]
        has_ended = [t[-1] in stops or len(t) == num_tokens for _, t in more]
        # Only what is among the first K ends there; the others make room for open ones.
        done += [
            (score / len(text) ** penalty, text)
            for (score, text), is_end in list(zip(more, has_ended))[:num_beams]
            if is_end
        ]
        done = sorted(done, key=lambda pair: -pair[0])[:num_beams]
        texts = [pair for pair, is_end in zip(more, has_ended) if not is_end]
        texts = texts[:num_beams]
        if not texts or len(done) == num_beams:
            best = max((s / len(t) ** penalty for s, t in texts), default=-np.inf)
            if best <= done[-1][0]:
                break
    return done[0][1]


@pytest.mark.slow_cases("*--1.0", "stops0-2.0")
@pytest.mark.parametrize("length_penalty", slow_but((-1.0, 2.0), (-1.0, 0.0, 1.0, 2.0)))
@pytest.mark.parametrize("stops", [(3,), (2, 4)])
def test_few_beams_find_what_their_rules_say(stops, length_penalty):
    vocab, length, num_beams, pad = 6, 6, 2, 5
    spec = SampleSpec(num_beams=num_beams, length_penalty=length_penalty)
    search = jax.jit(
        functools.partial(
            generate, make_toy(bigram), spec=spec, num_tokens=length, stop=stops,
            rng=jax.random.key(0), pad=pad,
        )
    )  # fmt: skip
    prompts, lengths = pad_left([np.array([p]) for p in range(vocab)])
    for seed in range(40):
        table = np.random.default_rng(seed).normal(0, 1.5, (vocab, vocab))
        result, counts = search(jnp.asarray(table, jnp.float32), prompts, lengths)
        shares = np.asarray(jax.nn.log_softmax(table), np.float64)
        for prompt, row, count in zip(range(vocab), result.tolist(), counts.tolist()):
            args = shares, prompt, length, num_beams, length_penalty, stops
            assert row[:count] == search_plainly(*args), (seed, prompt)
            assert row[count:] == [pad] * (length - count)


def test_two_beams_see_what_greedy_does_not():
    # 1 is a little likelier than 2 at first, but what follows 2 is certain.
    chances = np.full((V, V), 1e-6)
    chances[0, 1:3] = 0.55, 0.45
    chances[1, 3:7] = 0.25
    chances[2, 3] = 1.0
    table = jnp.log(jnp.asarray(chances, jnp.float32))
    assert run(SampleSpec(0), [[0]], 2, table=table).tolist()[0][:2] == [0, 1]
    result = run(SampleSpec(num_beams=2), [[0]], 2, table=table)
    assert result.tolist() == [[0, 2, 3]]
    # What is banned is banned in a search as well.
    result = run(SampleSpec(num_beams=2), [[0]], 2, table=table, banned=(2, 3))
    assert result[0, 1] == 1 and result[0, 2] in (4, 5, 6)


def test_a_penalty_holds_in_a_search_by_beam():
    table = jnp.tile(jnp.array([3.0, 2.5, 2.0, -9, -9, -9, -9, -9]), (V, 1))
    plain = run(SampleSpec(num_beams=3), [[5]], 3, table=table)
    assert plain.tolist() == [[5, 0, 0, 0]]
    spec = SampleSpec(num_beams=3, repetition_penalty=9.0)
    assert sorted(run(spec, [[5]], 3, table=table)[0, 1:].tolist()) == [0, 1, 2]


@pytest.mark.slow_except("one stack-3")
@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("kind", ["one stack", "encoder-decoder"])
def test_texts_of_a_transformer_are_those_of_full_passes(kind, num_beams):
    """Against a loop in Python that reads each text from its start, without a cache."""
    is_pair = kind == "encoder-decoder"
    model, params = make_transformer(is_pair)
    next_scores = make_full_pass(is_pair)
    draw = np.random.default_rng(5)
    prompts = [draw.integers(0, 11, n) for n in (5, 2, 5)]
    padded, lengths = pad_left(prompts)
    spec = SampleSpec(0, num_beams=num_beams)
    decoder = make_decoder(model, 0 if is_pair else None)
    call = functools.partial(
        generate, decoder, num_tokens=7, spec=spec, rng=jax.random.key(0)
    )
    result, _ = jax.jit(call)(params, padded, lengths)
    for row, prompt in zip(result.tolist(), prompts):
        first = [0] if is_pair else prompt.tolist()
        texts = [(0.0, first)]
        for _ in range(7):  # without stops a search is this
            more = []
            for score, text in texts:
                padded = np.pad(text, (0, 14 - len(text)))[None]
                scores = next_scores(prompt[None], padded, len(text))
                more += [(score + float(s), [*text, i]) for i, s in enumerate(scores)]
            texts = sorted(more, reverse=True)[:num_beams]
        assert row == texts[0][1][len(first) :]


@pytest.mark.slow_cases("3")
@pytest.mark.parametrize("num_beams", [1, 3])
def test_what_is_forced_is_written_first_and_last(num_beams):
    """As transformers' forced_bos_token_id and forced_eos_token_id; banned or not."""
    spec = SampleSpec(temperature=0, num_beams=num_beams)
    forced = run(spec, [[3], [5]], 5, first=6, last=7, banned=(6, 7))
    assert forced[:, 1].tolist() == [6, 6] and forced[:, 5].tolist() == [7, 7]
    # The tokens between follow the forced ones.
    free = run(spec, [[6]], 4, banned=(6, 7), last=7)[0].tolist()
    assert forced[0, 1:].tolist() == free
    # A text that has ended is not written on.
    ended = run(spec, [[3]], 5, stop=(6,), first=6, last=7, pad=0)
    assert ended[0, 1:].tolist() == [6, 0, 0, 0, 0]
