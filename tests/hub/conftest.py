"""Fixtures of the tests of imports: checkpoint folders and flags."""

import json

import jax
import numpy as np
import pytest


def flags(config, **changes):
    """A config with `section__field=value`, and the names of these as flags."""
    names = []
    for name, value in changes.items():
        *section, field = name.split("__")
        (config[section[0]] if section else config)[field] = value
        names.append(name.replace("__", "."))
    return config, names


def same(one, two):
    jax.tree.map(np.testing.assert_array_equal, one, two)


def stored(run):
    return json.loads((run / "config.json").read_text())


@pytest.fixture
def make_checkpoint(tmp_path):
    """Makes a checkpoint folder; returns it with a workdir and settings."""

    # Imported here, as every test of this folder would wait for it.
    from hub.test_families import Fixture
    from hub.test_runs import settings, write_folder

    def make(name, num_ids=30):
        write_folder(tmp_path / "theirs", Fixture(name), num_ids=num_ids)
        return tmp_path / "theirs", tmp_path / "run", settings(tmp_path)

    return make
