"""Compact letters: shared by two names if and only if they do not differ."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from jaxpt.judge.letters import find_groups, find_letters, name_group


@st.composite
def differing(draw):
    """A number of names, and some of their pairs."""
    num = draw(st.integers(1, 8))
    pairs = list(itertools.combinations(range(num), 2))
    return num, draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []


@given(differing())
def test_two_share_a_letter_if_and_only_if_they_do_not_differ(case):
    num, different = case
    names = [f"n{i}" for i in range(num)]
    letters = find_letters(names, [(names[i], names[j]) for i, j in different])
    assert all(letters.values()) and letters["n0"][0] == "a"
    for i, j in itertools.combinations(range(num), 2):
        shares = bool(set(letters[names[i]]) & set(letters[names[j]]))
        assert shares == ((i, j) not in different)


@given(differing())
def test_groups_are_those_of_a_search_and_their_order_does_not_matter(case):
    """All largest groups without a pair that differs, found by trying every group."""
    num, different = case

    def is_same(group):
        return not any({i, j} <= {*group} for i, j in different)

    sizes = range(1, num + 1)
    every = [g for n in sizes for g in itertools.combinations(range(num), n)]
    same = [set(group) for group in every if is_same(group)]
    largest = sorted(sorted(g) for g in same if not any(g < other for other in same))
    assert find_groups(num, different) == largest
    assert find_groups(num, different[::-1]) == largest


def test_the_example_of_multcomp():
    """R: multcomp::cld of warpbreaks, Tukey on tension: L differs from M and H."""
    assert find_letters("LMH", [("L", "M"), ("L", "H")]) == {
        "L": "a",
        "M": "b",
        "H": "b",
    }


def test_many_groups_have_different_names():
    names = [name_group(i) for i in range(200)]
    assert len(set(names)) == 200
    assert find_letters([], []) == {}
