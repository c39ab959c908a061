"""Halves of documents that are joined again."""

import jax.numpy as jnp
import numpy as np

from jaxpt.ops.prefixes import join_halves


def test_padding_belongs_to_no_half():
    """Also if it comes from the second rows, and if one of the two has nothing."""
    first = jnp.array([[5, 6, 8, 0], [5, 0, 0, 0], [0, 0, 0, 0]])
    first_ids = jnp.array([[1, 1, 2, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
    second = jnp.array([[0, 0, 0, 0], [7, 9, 0, 0], [4, 3, 0, 0]])
    second_ids = jnp.array([[0, 0, 0, 0], [1, 2, 0, 0], [1, 2, 0, 0]])
    rows, ids, is_second = map(
        np.asarray, join_halves((first, first_ids), (second, second_ids))
    )
    assert rows.tolist() == [[5, 6, 8, 0], [5, 7, 9, 0], [4, 3, 0, 0]]
    assert ids.tolist() == [[1, 1, 2, 0], [1, 1, 2, 0], [1, 2, 0, 0]]
    assert is_second.astype(int).tolist() == [[0] * 4, [0, 1, 1, 0], [1, 1, 0, 0]]


def test_a_row_of_padding_stays_one():
    empty = jnp.zeros((1, 3), int), jnp.zeros((1, 3), int)
    assert not any(np.asarray(part).any() for part in join_halves(empty, empty))
