"""Packed documents: places, lengths and ends, against counting them one by one."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpt.ops import segments

LENGTH = 34
both = jax.jit(
    lambda ids: (
        segments.segment_positions(ids),
        segments.segment_lengths(ids),
        segments.is_last(ids),
    )
)


def one_by_one(ids):
    """The three of a row, by walking along it."""
    places, lengths, last = [], [], []
    for t, id_ in enumerate(ids):
        is_start = t == 0 or ids[t - 1] != id_
        places.append(0 if is_start else places[-1] + 1)
        lengths.append(ids.count(id_) if id_ else 0)
        last.append(bool(id_) and (t + 1 == len(ids) or ids[t + 1] != id_))
    return places, lengths, last


@given(st.lists(st.integers(1, 6), max_size=5), st.booleans())
@settings(max_examples=60, deadline=None)
def test_every_token_knows_its_document(sizes, is_full):
    ids = [number for number, size in enumerate(sizes, 1) for _ in range(size)]
    ids += [6 * is_full] * (LENGTH - len(ids))
    rows = np.array([ids, ids[::-1]], np.int32)  # padding may also come first
    expected = [one_by_one(row.tolist()) for row in rows]
    result = both(rows)
    assert result[0].dtype == result[1].dtype == jnp.int32
    for i, array in enumerate(result):
        np.testing.assert_array_equal(array, [row[i] for row in expected])
    for array, one in zip(result, both(rows[0])):  # a single row is as in a batch
        np.testing.assert_array_equal(array[0], one)


def test_rows_of_one_text_have_no_places_of_their_own():
    assert segments.segment_positions(None) is None
