"""What the settings of generation rule out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpt.errors import UserError
from jaxpt.evaluation.scores import SampleSpec, adjust_scores, ban_repeats

V = 4
token = st.integers(0, V - 1)
ban_compiled = jax.jit(ban_repeats, static_argnames="size")


@given(
    st.lists(st.lists(token, max_size=9), min_size=3, max_size=3),
    st.integers(1, 4),
    st.sampled_from((2, 11)),
)
@settings(max_examples=80, deadline=None)
def test_no_sequence_comes_twice(texts, size, room):
    """Against a search through each text; what is around it does not count."""
    texts = [text[:room] for text in texts]
    width = max(map(len, texts))
    rows = np.ones((len(texts), room), int)
    for row, text in zip(rows, texts, strict=True):
        row[width - len(text) : width] = text
    starts = np.array([width - len(text) for text in texts])
    scores = np.zeros((len(texts), V), np.float32)
    result = np.array(ban_compiled(scores, rows, starts, width, size=size))
    for row, text in zip(result, texts, strict=True):
        known = {tuple(text[i : i + size]) for i in range(len(text) - size + 1)}
        tail = text[len(text) - size + 1 :] if size > 1 else []
        is_long = len(text) >= size - 1
        banned = [t for t in range(V) if is_long and (*tail, t) in known]
        assert np.flatnonzero(np.isinf(row)).tolist() == banned


def test_all_options_by_hand():
    text, start = jnp.array([[0, 2, 1, 2, 9]]), jnp.array([1])
    scores = jnp.array([[4.0, 3.0, 2.0, 1.0]])

    def adjust(num_new=0, stop=(), banned=(), **options):
        spec = SampleSpec(**options)
        args = scores, text, start, 4, num_new, spec, stop, banned
        return jax.jit(lambda: adjust_scores(*args))()[0].tolist()

    out = -np.inf
    assert adjust() == [4, 3, 2, 1]
    assert adjust(repetition_penalty=2.0) == [4, 1.5, 1, 1]
    assert adjust(no_repeat_ngram_size=2) == [4, out, 2, 1]  # 2 1 is there
    assert adjust(no_repeat_ngram_size=1) == [4, out, out, 1]
    assert adjust(suppress_tokens=(0, 3), banned=(1,)) == [out, out, 2, out]
    assert adjust(min_new_tokens=2, stop=(3,), num_new=1) == [4, 3, 2, out]
    assert adjust(min_new_tokens=2, stop=(3,), num_new=2) == [4, 3, 2, 1]
    assert adjust(min_new_tokens=2) == [4, 3, 2, 1]  # nothing ends a text


@pytest.mark.parametrize("name", ["no_repeat_ngram_size", "min_new_tokens"])
def test_numbers_below_0_are_refused(name):
    with pytest.raises(UserError, match=f"{name}=-1: must be at least 0"):
        SampleSpec(**{name: -1})
