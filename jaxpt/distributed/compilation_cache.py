"""JAX's persistent compilation cache, with entries that are whole or not there.

JAX writes an entry in place, so a killed process or a full disk leaves a cut one. At
each start it would then warn, and compile the program again, but keep the entry.
"""

import contextlib
import functools
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache.compilation_cache import reset_cache

SUFFIX = "-cache"  # of JAX's entries
# Limits of what JAX keeps: its defaults, and values that keep everything.
LIMITS = {
    "jax_persistent_cache_min_entry_size_bytes": (0, -1),
    "jax_persistent_cache_min_compile_time_secs": (1.0, 0),
}


def set_up() -> None:
    """Uses the cache that all runs of this user share, or the one that JAX is given.

    A folder or limit that the user has set (`jax.config` or its variable) is kept.
    """
    folder = jax.config.values["jax_compilation_cache_dir"]
    set_folder(folder or str(Path.home() / ".cache" / "jaxpt" / "xla"))


def set_folder(folder: str) -> None:
    """Uses a folder as the cache of all programs, however short their compilation."""
    if jax.config.values["jax_compilation_cache_dir"] != folder:
        jax.config.update("jax_compilation_cache_dir", folder)
        reset_cache()  # JAX reads the folder once, when it first compiles
    for name, (default, value) in LIMITS.items():
        if jax.config.values[name] == default and name.upper() not in os.environ:
            jax.config.update(name, value)
    # A JAX without these internals keeps its own way; a test notices it.
    with contextlib.suppress(ImportError, AttributeError):
        _wrap_jax()


@functools.cache
def _wrap_jax() -> None:
    """Lets JAX write entries by `_put`, and read them by `_read_or_remove`."""
    from jax._src import compilation_cache
    from jax._src.lru_cache import LRUCache

    read = functools.partial(_read_or_remove, compilation_cache.get_executable_and_time)
    compilation_cache.get_executable_and_time = read
    setattr(LRUCache, "put", functools.partialmethod(_put, LRUCache.put))  # noqa: B010


def _put(cache: Any, put: Callable, key: str, value: bytes) -> None:
    """Adds an entry, if there is none of this key.

    Args:
      cache: of JAX.
      put: its method, which also limits the size of the cache.
    """
    place, path = Path(str(cache.path)), f"{key}{SUFFIX}"
    if cache.eviction_enabled or "://" in str(cache.path):
        put(cache, key, value)
    elif not (place / path).exists():
        partial = place / f".{secrets.token_hex(8)}.partial"
        try:
            partial.write_bytes(value)
            os.replace(partial, place / path)
        finally:
            partial.unlink(missing_ok=True)


def _read_or_remove(read: Callable, key: str, *args: Any) -> tuple[Any, int | None]:
    """A compiled program and its compilation time; removes an unreadable entry.

    The program is then compiled, and the entry written again.
    """
    try:
        return read(key, *args)
    except Exception:  # a cut entry raises whatever its decompressor does
        folder = jax.config.values["jax_compilation_cache_dir"]
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, f"{key}{SUFFIX}"))
        return None, None
