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


def split_trained(params, frozen: tuple[str, ...]):
    """What is differentiated, and a function that puts all parameters together again.

    Returns:
      the trained leaves by their path (all of `params` where nothing is frozen), and
      (those) -> params, in which the frozen leaves take no gradient.

    >>> trained, join = split_trained({"a": {"b": 1.0, "c": 2.0}}, ("a/b",))
    >>> trained, join({"a/c": 5.0})
    ({'a/c': 2.0}, {'a': {'b': 1.0, 'c': 5.0}})
    """
    if not frozen:
        return params, lambda trained: trained
    leaves, treedef = jax.tree_util.tree_flatten_with_path(params)
    names = [jax.tree_util.keystr(p, simple=True, separator="/") for p, _ in leaves]
    trained = {
        name: leaf
        for name, (path, leaf) in zip(names, leaves, strict=True)
        if not is_frozen(path, frozen)
    }

    def join(trained):
        pairs = zip(names, leaves, strict=True)
        joined = [trained.get(name, leaf) for name, (_, leaf) in pairs]
        return jax.tree_util.tree_unflatten(treedef, joined)

    return trained, join


def keep(old, new, frozen: tuple[str, ...]):
    """`new`, with the frozen leaves of `old`."""
    if not frozen:
        return new
    return jax.tree_util.tree_map_with_path(
        lambda path, a, b: a if is_frozen(path, frozen) else b, old, new
    )
