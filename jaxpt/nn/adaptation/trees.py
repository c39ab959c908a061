"""Small things that nested parameters by path need."""

import zlib
from typing import Any

import jax

Path = tuple[str, ...]


def get(tree: dict, path: Path) -> Any:
    """What lies at a path; an empty dict where nothing does.

    >>> get({"a": {"b": 1}}, ("a", "b")), get({"a": {}}, ("a", "b", "c"))
    (1, {})
    """
    for name in path:
        tree = tree.get(name, {})
    return tree


def put(tree: dict, path: Path, value) -> None:
    """Puts a value at a path, with what is missing above it."""
    *above, name = path
    for part in above:
        tree = tree.setdefault(part, {})
    tree[name] = value


def draw_key(rng: jax.Array, path: Path) -> jax.Array:
    """A key of each path's own, whatever other paths there are."""
    return jax.random.fold_in(rng, zlib.crc32("/".join(path).encode()))
