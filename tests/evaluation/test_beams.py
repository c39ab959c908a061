"""Beams over fixed probabilities: which ended texts count."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpt.evaluation.beams import search_beams


class NoCache(NamedTuple):
    """The cache of a model that reads nothing."""

    num_read: jax.Array

    def pick(self, rows):
        return self

    def reorder(self, rows):
        return self


def search(probabilities, num_tokens, num_beams, length_penalty=0.0):
    """The texts of B rows; `probabilities` are of [i-th token, B, V], 0 is the stop."""
    logits = jnp.log(jnp.array(probabilities, jnp.float32))

    def step(ids, cache):
        at = cache.num_read + 1
        return jnp.repeat(logits[at], num_beams, axis=0), NoCache(at)

    texts, lengths = search_beams(
        step,
        lambda scores, tokens, i: scores,
        logits[0],
        NoCache(jnp.int32(0)),
        num_tokens,
        num_beams,
        length_penalty,
        (0,),
        9,
    )
    return [t[:n].tolist() for t, n in zip(np.asarray(texts), lengths, strict=True)]


@pytest.mark.parametrize("num_beams, expected", [(1, [1, 1, 1]), (2, [0])])
def test_an_end_counts_among_the_best_of_all_beams_alone(num_beams, expected):
    """A single beam is greedy, however probable the end is as the second best."""
    always = [[[0.3, 0.6, 0.1]]] * 3
    assert search(always, 3, num_beams) == [expected]
