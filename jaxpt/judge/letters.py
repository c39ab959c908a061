"""Compact letter display: names that share a letter do not differ significantly.

Insert and absorb (Piepho 2004): start with one group of all names. For each significant
pair, every group that has both is replaced by two, each without one of them. A group
within another one is absorbed.

    a .92   differs from c and d   a
    b .90   differs from d         ab
    c .85   differs from a         bc
    d .80   differs from a and b   c
"""

import re
import string
from collections.abc import Collection, Mapping, Sequence

LETTERS = string.ascii_lowercase + string.ascii_uppercase


def find_groups(num: int, different: Collection[tuple[int, int]]) -> list[list[int]]:
    """The largest groups of places 0 to num - 1 without a significant pair.

    Groups are sorted by their places; every pair that does not differ is in one.

    >>> find_groups(4, [(0, 2), (0, 3), (1, 3)])
    [[0, 1], [1, 2], [2, 3]]
    """
    groups = [(1 << num) - 1] if num else []
    for first, second in different:
        both = 1 << first | 1 << second
        kept = [group for group in groups if group & both != both]
        for group in groups:
            if group & both == both:
                kept += [group & ~(1 << first), group & ~(1 << second)]
        kept = list(dict.fromkeys(kept))
        groups = [
            group
            for group in kept
            if not any(group != other and group & other == group for other in kept)
        ]
    return sorted([i for i in range(num) if group >> i & 1] for group in groups)


def find_letters(
    names: Sequence[str], different: Collection[tuple[str, str]]
) -> dict[str, str]:
    """The letters of each name.

    Args:
      names: the best first, which has the first letter.
      different: the pairs that differ significantly.

    >>> find_letters("abcd", [("a", "c"), ("a", "d"), ("b", "d")])
    {'a': 'a', 'b': 'ab', 'c': 'bc', 'd': 'c'}
    """
    places = {name: place for place, name in enumerate(names)}
    pairs = [(places[first], places[second]) for first, second in different]
    letters = dict.fromkeys(names, "")
    for index, group in enumerate(find_groups(len(names), pairs)):
        for place in group:
            letters[names[place]] += name_group(index)
    return letters


def name_group(index: int) -> str:
    """The name of a group: a to z, A to Z, then a1 to Z1, a2 and so on.

    >>> [name_group(index) for index in (0, 25, 26, 51, 52, 104)]
    ['a', 'z', 'A', 'Z', 'a1', 'a2']
    """
    turn, place = divmod(index, len(LETTERS))
    return LETTERS[place] + (str(turn) if turn else "")


def list_members(letters: Mapping[str, str]) -> dict[str, list[str]]:
    """The names of each group, from the letters of `find_letters`.

    >>> list_members({"x": "a", "y": "ab", "z": "b"})
    {'a': ['x', 'y'], 'b': ['y', 'z']}
    >>> list_members({"x": "aa1", "y": "a1"})
    {'a': ['x'], 'a1': ['x', 'y']}
    """
    groups: dict[str, list[str]] = {}
    for name, own in letters.items():
        for group in re.findall(r"[a-zA-Z]\d*", own):
            groups.setdefault(group, []).append(name)
    return groups
