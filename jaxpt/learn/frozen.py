"""Frozen parameters, named by the paths of the subtrees that hold them.

They have no gradient, moments or weight decay. Their EMA is not updated either, as
rounding would change it.
"""

import jax


def is_frozen(path, frozen: tuple[str, ...]) -> bool:
    """Whether a path of `jax.tree_util` is one of the frozen paths or below one.

    >>> key = jax.tree_util.DictKey
    >>> [is_frozen([key("a"), key(b)], ("a/b",)) for b in ("b", "bc")]
    [True, False]
    """
    name = jax.tree_util.keystr(path, simple=True, separator="/")
    return any(f"{name}/".startswith(f"{part}/") for part in frozen)


def keep(old, new, frozen: tuple[str, ...]):
    """`new`, with the frozen leaves of `old`."""
    if not frozen:
        return new
    return jax.tree_util.tree_map_with_path(
        lambda path, a, b: a if is_frozen(path, frozen) else b, old, new
    )
