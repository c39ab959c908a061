"""Writing by unmasking: how many stay at each step, which, and what never does."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import slow

from jaxpt.errors import UserError
from jaxpt.evaluation.scores import SampleSpec
from jaxpt.evaluation.unmasking import count_steps, cut_rows, fill_masks, unmask

V, MASK = 12, 0
GREEDY = SampleSpec(temperature=0.0)
PROMPTS = np.array([[9, 8], [3, 4]])
SURENESS = [1.0, 5.0, 2.0, 4.0, 3.0]


def count_masks(params, tokens):
    """Every place wants the number of [MASK]s there are, `params` [L] says how surely.

    So what is written shows at which step it was.
    """
    expected = jax.nn.one_hot((tokens == MASK).sum(axis=1), V)
    surely = jnp.concatenate([jnp.zeros(tokens.shape[1] - len(params)), params])
    return expected[:, None] * surely[:, None]


def read_table(params, tokens):
    """Scores [L, V] that no token changes; a prompt's are 0."""
    before = jnp.zeros((tokens.shape[1] - len(params), V))
    scores = jnp.concatenate([before, params])
    return jnp.broadcast_to(scores, (len(tokens), *scores.shape))


def write(
    fill_logits, params, num_tokens, spec=GREEDY, seed=0, prompts=PROMPTS, **more
):
    function = functools.partial(
        unmask, fill_logits, num_tokens=num_tokens, spec=spec, mask_id=MASK, **more
    )
    result = jax.jit(function)(jnp.array(params), prompts, rng=jax.random.key(seed))
    assert result.dtype == jnp.int32 and result.shape == (len(prompts), num_tokens)
    return np.asarray(result).tolist()


@pytest.mark.parametrize(
    "num_steps, expected",
    [
        (1, [5, 5, 5, 5, 5]),
        (2, [2, 5, 2, 5, 5]),  # three of five [MASK]s, then the last two
        (3, [1, 5, 3, 5, 3]),
        (5, [1, 5, 2, 4, 3]),
        (0, [1, 5, 2, 4, 3]),  # one for each token
    ],
)
def test_the_surest_stay_and_as_many_as_is_said(num_steps, expected):
    assert write(count_masks, SURENESS, 5, num_steps=num_steps) == [expected] * 2


@pytest.mark.slow_cases("2")
@pytest.mark.parametrize("num_steps", [1, 2, 3, 4, 7])
def test_of_equals_the_first_stay(num_steps):
    """The number is exact, and kept tokens do not change."""
    numbers = count_steps(7, num_steps)
    left = [7 - sum(numbers[:i]) for i in range(num_steps)]
    expected = [n for n, count in zip(left, numbers) for _ in range(count)]
    assert write(count_masks, [1.0] * 7, 7, num_steps=num_steps) == [expected] * 2


def test_rows_are_written_each_in_its_own_order():
    """A row's surest place is not another's."""

    def fill(params, tokens):
        flipped = jnp.where(tokens[:, :1] == 9, params, params[::-1])
        masks = jax.nn.one_hot((tokens == MASK).sum(axis=1), V)
        surely = jnp.concatenate([jnp.zeros((len(tokens), 2)), flipped], axis=1)
        return masks[:, None] * surely[:, :, None]

    rows = write(fill, SURENESS, 5)
    assert rows == [[1, 5, 2, 4, 3], [3, 4, 2, 5, 1]]


def test_what_was_written_and_the_prompt_are_read():
    def fill(params, tokens):
        """Each place wants one more than the token before it."""
        before = jnp.pad(tokens[:, :-1], ((0, 0), (1, 0)))
        expected = jax.nn.one_hot(jnp.where(before == MASK, 1, before + 1), V)
        return expected * jnp.where(before == MASK, 1.0, 9.0)[..., None] * params

    assert write(fill, 1.0, 3, prompts=PROMPTS[1:]) == [[5, 6, 7]]


@pytest.mark.parametrize(
    "spec", [GREEDY, slow(SampleSpec()), slow(SampleSpec(top_k=2))]
)
def test_what_is_banned_is_never_chosen(spec):
    scores = np.zeros((6, V), np.float32)
    scores[:, [MASK, 3, 7]] = 50.0
    rows = write(read_table, scores, 6, spec, banned=(3, 7), num_steps=2)
    assert not {MASK, 3, 7} & {token for row in rows for token in row}


def test_how_sure_a_place_is_counts_what_may_be_chosen_alone():
    """A position whose likeliest token is banned has the confidence of the others."""
    scores = np.full((2, V), -9.0, np.float32)
    scores[0, [3, 5]] = 9.0, 6.0  # confident of 5, if it is not banned
    scores[1, [6, 8]] = 6.0, 5.0

    def fill(params, tokens):
        is_first = (tokens == MASK).sum(axis=1)[:, None, None] == 2
        table = read_table(params, tokens)
        return jnp.where(is_first, table, table[..., ::-1])

    # The first position is kept first; the second is sampled again, from mirrored
    # scores.
    assert write(fill, scores, 2, banned=(3,)) == [[5, V - 1 - 6]] * 2


def test_greedy_is_the_same_whatever_is_drawn():
    scores = np.random.default_rng(0).normal(0, 1, (6, V)).astype(np.float32)
    rows = [write(read_table, scores, 6, seed=seed, num_steps=3) for seed in (1, 2)]
    assert rows[0] == rows[1]
    assert rows[0][0] == (1 + scores[:, 1:].argmax(axis=1)).tolist()
    one = SampleSpec(top_k=1)  # one candidate is the likeliest
    assert write(read_table, scores, 6, one, seed=3, num_steps=3) == rows[0]


def test_draws_are_those_of_a_seed():
    scores = np.zeros((6, V), np.float32)
    drawn = [write(read_table, scores, 6, SampleSpec(), seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[0][0] != drawn[0][1]  # rows of one seed, too
    # A row's draws are its own: another text does not change it.
    alone = write(read_table, scores, 6, SampleSpec(), 1, prompts=PROMPTS[:1])
    assert alone == drawn[0][:1]


def test_a_text_ends_at_the_first_that_ends_one():
    rows = np.array([[4, 5, 2, 6, 2], [4, 5, 6, 7, 8], [3, 4, 4, 2, 4]])
    results = [row.tolist() for row in cut_rows(rows, (2, 3))]
    assert results == [[4, 5], [4, 5, 6, 7, 8], []]
    assert [row.tolist() for row in cut_rows(rows, ())] == rows.tolist()


@given(st.integers(1, 60), st.data())
def test_steps_are_as_even_as_can_be(num_tokens, data):
    num_steps = data.draw(st.integers(1, num_tokens))
    numbers = count_steps(num_tokens, num_steps)
    assert len(numbers) == num_steps and sum(numbers) == num_tokens
    assert sorted(numbers, reverse=True) == numbers
    assert numbers[-1] >= 1 and numbers[0] - numbers[-1] <= 1


@pytest.mark.parametrize("num_steps", [-1, 6, 10**6])
def test_more_steps_than_tokens_are_one_line(num_steps, refuses):
    with refuses(f"num_steps={num_steps}: must be from 1 to the 5 tokens"):
        write(count_masks, SURENESS, 5, num_steps=num_steps)


def score_places(params, tokens):
    """The same scores everywhere but for the place, which is added to id 0."""
    scores = jnp.array([0.0, 1.0, 3.0, 2.0, 3.0])
    places = jnp.arange(tokens.shape[1])[:, None] * jnp.eye(5)[0]
    return jnp.broadcast_to(scores + places, (*tokens.shape, 5))


def test_masks_are_filled_in_order_with_the_likeliest():
    ids = np.array([9, 2, 0, 9], np.int32)
    result = fill_masks(score_places, None, ids, 9, banned=(2,), k=2)
    for (place, best), answer in zip(((0, [4, 3]), (3, [0, 4])), result, strict=True):
        scores = np.exp([0.0 + place, 1.0, 2.0, 3.0])
        expected = dict(zip((0, 1, 3, 4), scores / scores.sum()))
        assert [id_ for id_, _ in answer] == best
        assert [p for _, p in answer] == pytest.approx([expected[i] for i in best])


def test_banned_answers_are_left_out_even_when_few_remain():
    ids = np.array([9], np.int32)
    (answer,) = fill_masks(score_places, None, ids, 9, banned=(0, 2, 4), k=5)
    assert [id_ for id_, _ in answer] == [3, 1]
    assert sum(p for _, p in answer) == pytest.approx(1)


def test_a_text_without_a_mask_is_refused():
    with pytest.raises(UserError, match="text: must hold at least one"):
        fill_masks(score_places, None, np.array([1, 2]), 9, (), 1)
