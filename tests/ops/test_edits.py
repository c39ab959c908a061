"""Edits: T5's vectors, a row rebuilt from its halves, and the shares of replacement."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpt.ops import edits

TOKENS = jnp.arange(10, 16)
NOISE_MASK = jnp.array([True, True, False, False, True, False])


def test_t5s_mask_vectors():
    unique, same = jnp.array([999, 998]), jnp.array([999, 999])
    span, keep = edits.spans_to_sentinels, edits.compact
    assert span(TOKENS, NOISE_MASK, same, 5).tolist() == [999, 12, 13, 999, 15]
    assert span(TOKENS, NOISE_MASK, unique, 5).tolist() == [999, 12, 13, 998, 15]
    assert span(TOKENS, ~NOISE_MASK, same, 5).tolist() == [10, 11, 999, 14, 999]
    assert keep(TOKENS, ~NOISE_MASK, 3).tolist() == [12, 13, 15]
    assert keep(TOKENS, NOISE_MASK, 3).tolist() == [10, 11, 14]


def test_t5s_denoise_vector():
    ids = [3, 2, 20, 4, 3, 2, 8, 13, 2, 3, 2, 23, 7, 19, 22, 3, 2, 7, 2]
    hidden = jnp.isin(jnp.arange(19), jnp.array([8, 14, 15, 16, 17, 18]))
    inputs = edits.spans_to_sentinels(jnp.array(ids), hidden, jnp.array([25, 24]), 15)
    targets = edits.spans_to_sentinels(jnp.array(ids), ~hidden, jnp.array([25, 24]), 8)
    assert inputs.tolist() == ids[:8] + [25, 3, 2, 23, 7, 19, 24]
    assert targets.tolist() == [25, 2, 24, 22, 3, 2, 7, 2]


def test_nothing_hidden_leaves_the_text_and_a_target_of_one_sentinel():
    ids, hidden = jnp.array([3, 2, 20, 4]), jnp.zeros(4, bool)
    sentinels = jnp.array([25, 24])
    assert edits.spans_to_sentinels(ids, hidden, sentinels, 4).tolist() == ids.tolist()
    assert edits.spans_to_sentinels(ids, ~hidden, sentinels, 1).tolist() == [25]


def test_rows_end_in_the_fill_and_are_cut_at_their_length():
    assert edits.compact(TOKENS, NOISE_MASK, 5, fill=7).tolist() == [10, 11, 14, 7, 7]
    assert edits.compact(TOKENS, NOISE_MASK, 2).tolist() == [10, 11]
    ends = edits.spans_to_sentinels(
        TOKENS, NOISE_MASK, jnp.array([999, 998]), 7, fill=1
    )
    assert ends.tolist() == [999, 12, 13, 998, 15, 1, 1]


def test_too_few_sentinels_never_give_a_real_token():
    result = edits.spans_to_sentinels(TOKENS, NOISE_MASK, jnp.array([999]), 5)
    assert result.tolist() == [999, 12, 13, 999, 15]


LENGTH, SENTINELS = 20, np.arange(999, 987, -1)
halves = jax.jit(
    lambda tokens, hidden: tuple(
        edits.spans_to_sentinels(tokens, h, jnp.array(SENTINELS), LENGTH, fill=-1)
        for h in (hidden, ~hidden)
    )
)


def runs(half):
    """The runs of ordinary tokens of a half, and whether it opens with a sentinel."""
    results = [[]]
    for token in half:
        if token in SENTINELS:
            results.append([])
        elif token >= 0:
            results[-1].append(token)
    return [run for run in results if run], half[0] in SENTINELS


@given(
    st.lists(st.integers(0, 99), min_size=LENGTH, max_size=LENGTH),
    st.lists(st.booleans(), min_size=LENGTH, max_size=LENGTH),
)
@settings(max_examples=100, deadline=None)
def test_a_row_is_rebuilt_from_its_halves(tokens, hidden):
    inputs, targets = map(np.asarray, halves(jnp.array(tokens), jnp.array(hidden)))
    (clean, is_hidden_first), (noise, _) = runs(inputs), runs(targets)
    assert is_hidden_first == hidden[0]
    rebuilt = []
    while clean or noise:
        source = noise if is_hidden_first else clean
        rebuilt += source.pop(0)
        is_hidden_first = not is_hidden_first
    assert rebuilt == tokens
    for half, num in ((inputs, hidden), (targets, [not h for h in hidden])):
        num_runs = sum(h and not before for h, before in zip(num, [False] + num))
        assert half[np.isin(half, SENTINELS)].tolist() == SENTINELS[:num_runs].tolist()


def test_shares_of_replacement():
    num = 200_000
    words = jnp.array([1, 3, 5, 9])
    replaced = edits.replace_tokens(
        jax.random.key(0),
        jnp.full(num, 50),
        7,
        words,
        mask_probability=0.8,
        random_probability=0.1,
    )
    shares = np.bincount(np.asarray(replaced), minlength=51) / num
    assert abs(shares[7] - 0.8) < 0.005 and abs(shares[50] - 0.1) < 0.005
    # Random words: uniform over `random_ids`, and independent of the kind of
    # replacement.
    assert (abs(shares[np.asarray(words)] - 0.025) < 0.003).all()
    assert set(np.flatnonzero(shares)) == {7, 50, 1, 3, 5, 9}


def test_shares_of_all_and_nothing():
    tokens, words = jnp.arange(40), jnp.array([90])
    replace = edits.replace_tokens
    key = jax.random.key(1)
    assert (replace(key, tokens, 7, words, 1.0, 0.0) == 7).all()
    assert (replace(key, tokens, 7, words, 0.0, 1.0) == 90).all()
    assert (replace(key, tokens, 7, words, 0.0, 0.0) == tokens).all()


def test_put_writes_only_slots_with_weight():
    row, positions = jnp.array([10, 11, 12, 13]), jnp.array([3, 0, 1])
    result = edits.put(row, positions, jnp.array([7, 8, 9]), jnp.array([1.0, 1.0, 0.0]))
    assert result.tolist() == [8, 11, 12, 7]
    assert edits.put(row, positions, jnp.array([7, 8, 9]), jnp.zeros(3)).tolist() == (
        row.tolist()
    )


def test_gather_reads_each_rows_own_positions():
    hidden = jnp.arange(24.0).reshape(2, 4, 3)
    result = edits.gather(hidden, jnp.array([[3, 0], [1, 1]]))
    assert result.tolist() == [
        [[9, 10, 11], [0, 1, 2]],
        [[15, 16, 17], [15, 16, 17]],
    ]


def test_shift_right_drops_the_last_token():
    result = edits.shift_right(jnp.array([[5, 6, 7], [8, 9, 1]]), 3)
    assert result.tolist() == [[3, 5, 6], [3, 8, 9]]


def test_gumbel_samples_follow_the_softmax():
    logits = jnp.array([2.0, 0.0, 1.0, -1.0])
    for temperature in (1.0, 2.0):
        drawn = edits.sample_gumbel(
            jax.random.key(3), jnp.tile(logits, (100_000, 1)), temperature
        )
        assert drawn.dtype == jnp.int32
        shares = np.bincount(np.asarray(drawn), minlength=4) / 100_000
        expected = jax.nn.softmax(logits / temperature)
        np.testing.assert_allclose(shares, expected, atol=0.006)


@given(
    st.lists(st.integers(1, 8), max_size=4),
    st.integers(0, 3),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_packed_documents_become_what_each_becomes_alone(sizes, num_gap, seed):
    draw = np.random.default_rng(seed)
    # A gap of id 0 before the last document, such as a raw [EOS] or padding.
    ids = [n for n, size in enumerate(sizes, 1) for _ in range(size)]
    ids = ids[: len(ids) - sizes[-1]] + [0] * num_gap + ids[-sizes[-1] :] if ids else []
    ids = np.array(ids + [0] * (36 - len(ids)), np.int32)
    tokens = draw.integers(10, 900, 36).astype(np.int32)
    hidden = draw.random(36) < draw.random()
    expected, wanted_ids = [], []
    for number in range(1, len(sizes) + 1):
        own, used, in_span = [], 0, False
        for token, is_hidden in zip(tokens[ids == number], hidden[ids == number]):
            if not is_hidden:
                own.append(token)
            elif not in_span:
                own.append(SENTINELS[used])
                used += 1
            in_span = is_hidden
        expected += [*own, 5]
        wanted_ids += [number] * (len(own) + 1)
    result, found_ids = packed(tokens, hidden, ids)
    assert result.tolist() == expected + [-2] * (40 - len(expected))
    assert found_ids.tolist() == wanted_ids + [0] * (40 - len(expected))


packed = jax.jit(
    lambda tokens, hidden, ids: edits.spans_to_sentinels_packed(
        tokens, hidden, ids, jnp.array(SENTINELS), 40, close=5, fill=-2
    )
)


def test_packed_documents_are_cut_at_the_length_and_never_wrap():
    tokens, ids = jnp.arange(10, 16), jnp.array([1, 1, 1, 2, 2, 2])
    hidden, sentinels = jnp.zeros(6, bool), jnp.array([99])
    result = edits.spans_to_sentinels_packed(tokens, hidden, ids, sentinels, 5, 7)
    assert [x.tolist() for x in result] == [[10, 11, 12, 7, 13], [1, 1, 1, 1, 2]]


def test_too_few_sentinels_never_give_a_real_token_to_packed_documents():
    ids = jnp.array([1, 1, 1, 1, 1, 1])
    result, _ = edits.spans_to_sentinels_packed(
        TOKENS, NOISE_MASK, ids, jnp.array([99]), 6, 7
    )
    assert result.tolist() == [99, 12, 13, 99, 15, 7]


def test_decoder_inputs_start_anew_in_every_document():
    targets, ids = jnp.array([[5, 6, 7, 8, 0, 0]]), jnp.array([[1, 1, 2, 3, 0, 0]])
    assert edits.shift_right(targets, 9, ids).tolist() == [[9, 5, 9, 9, 9, 0]]
    assert edits.shift_right(targets, 9).tolist() == [[9, 5, 6, 7, 8, 0]]
