"""Frozen parameters, given by the paths of their subtrees.

They have no gradient, moments or weight decay. Their EMA is not updated, because
rounding would change it.
"""

from collections.abc import Callable

import jax
from jax.tree_util import KeyPath
from jaxtyping import PyTree

from jaxpt.nn.scan import path_name


def is_frozen(path: KeyPath, frozen: tuple[str, ...]) -> bool:
    """Whether a path of `jax.tree_util` is one of the frozen paths or below one.

    >>> key = jax.tree_util.DictKey
    >>> [is_frozen((key("a"), key(b)), ("a/b",)) for b in ("b", "bc")]
    [True, False]
    """
    name = path_name(path)
    return any(f"{name}/".startswith(f"{part}/") for part in frozen)


def split_trained(
    params: PyTree, frozen: tuple[str, ...]
) -> tuple[PyTree, Callable[[PyTree], PyTree]]:
    """Splits off the trained parameters, and returns a function that joins them again.

    Returns:
      the trained leaves by path (`params` itself if nothing is frozen), and a function
      of them that returns all parameters; the frozen ones have no gradient.

    >>> trained, join = split_trained({"a": {"b": 1.0, "c": 2.0}}, ("a/b",))
    >>> trained, join({"a/c": 5.0})
    ({'a/c': 2.0}, {'a': {'b': 1.0, 'c': 5.0}})
    """
    if not frozen:
        return params, lambda trained: trained
    leaves, treedef = jax.tree_util.tree_flatten_with_path(params)
    names = [path_name(path) for path, _ in leaves]
    trained = {
        name: leaf
        for name, (path, leaf) in zip(names, leaves, strict=True)
        if not is_frozen(path, frozen)
    }

    def join(trained: PyTree) -> PyTree:
        pairs = zip(names, leaves, strict=True)
        joined = [trained.get(name, leaf) for name, (_, leaf) in pairs]
        return jax.tree_util.tree_unflatten(treedef, joined)

    return trained, join


def keep(old: PyTree, new: PyTree, frozen: tuple[str, ...]) -> PyTree:
    """`new`, with the frozen leaves of `old`."""
    if not frozen:
        return new
    return jax.tree_util.tree_map_with_path(
        lambda path, a, b: a if is_frozen(path, frozen) else b, old, new
    )
