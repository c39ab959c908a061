"""What JAX has compiled is kept whole, and what is cut is compiled again."""

import os
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache.compilation_cache import reset_cache

from jaxpt.distributed import compilation_cache


@pytest.fixture
def folder(tmp_path):
    """An empty cache; afterwards that of all tests is used again."""
    names = (
        "jax_compilation_cache_dir",
        "jax_persistent_cache_min_entry_size_bytes",
        "jax_persistent_cache_min_compile_time_secs",
    )
    before = {name: jax.config.values[name] for name in names}
    reset_cache()
    compilation_cache.set_folder(str(tmp_path))
    yield tmp_path
    reset_cache()
    for name, value in before.items():
        jax.config.update(name, value)


def compile_anew():
    """Compiles a program as another process would; the warnings that it gives."""
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        program = jax.jit(lambda x: jnp.sin(x) * 3.25)
        assert not np.asarray(program(np.zeros(7))).any()
    return [str(each.message) for each in messages]


@pytest.mark.parametrize("num_bytes", [0, 10, 200])
def test_a_cut_entry_is_replaced_at_once(folder, num_bytes):
    assert compile_anew() == []
    whole = {path: path.stat().st_size for path in folder.glob("*-cache")}
    assert whole and min(whole.values()) > 200
    for path in whole:
        os.truncate(path, num_bytes)
    assert compile_anew() == []
    assert all(path.stat().st_size > 200 for path in whole)


def test_an_entry_is_written_whole_or_not_at_all(folder, monkeypatch):
    class Killed(BaseException):
        pass

    def kill(*args):
        raise Killed

    monkeypatch.setattr(compilation_cache.os, "replace", kill)
    with pytest.raises(Killed):
        compile_anew()
    assert list(folder.iterdir()) == []


def test_a_folder_that_is_named_later_is_used_from_then_on(folder, tmp_path_factory):
    """JAX reads it once, when it first compiles."""
    assert compile_anew() == [] and list(folder.glob("*-cache"))
    later = tmp_path_factory.mktemp("later")
    compilation_cache.set_folder(str(later))
    assert compile_anew() == [] and list(later.glob("*-cache"))


LIMIT = "jax_persistent_cache_min_compile_time_secs"


@pytest.mark.parametrize(
    "before, is_in_variable, after", [(1.0, False, 0), (1.0, True, 1.0), (5, False, 5)]
)
def test_a_limit_of_the_user_is_kept(
    before, is_in_variable, after, folder, monkeypatch
):
    """Also JAX's default, if a variable names it."""
    monkeypatch.delenv(LIMIT.upper(), raising=False)
    if is_in_variable:
        monkeypatch.setenv(LIMIT.upper(), str(before))
    jax.config.update(LIMIT, before)
    compilation_cache.set_folder(str(folder))
    assert jax.config.values[LIMIT] == after
