"""Fixtures of the tests of imports: checkpoint folders, flags, a Hub on loopback."""

import json
import os

import jax
import numpy as np
import pytest
from forked import run_forked
from hub.fake_hub import serve
from tiny import MODELS, ROWS, VARIANTS, make_config, write_run

# Several commands in one process.
RUN = """
import contextlib, io, json, sys
from huggingface_hub import constants
from jaxpt.cli.main import main
constants.DOWNLOAD_CHUNK_SIZE = 500  # what is written at once; 10 MB otherwise
results = []
for argv in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(argv)
    results.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(results))
"""


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


@pytest.fixture(scope="session")
def runs(tmp_path_factory, speech):
    """`runs(name)`: the folder of a run whose parameters are drawn; made once."""
    made, folder = {}, tmp_path_factory.mktemp("drawn")

    def make(name):
        if name not in made:
            objective, settings = VARIANTS.get(name, (name, {}))
            fields = {f"{objective}__{key}": own for key, own in settings.items()}
            fields |= {
                f"model__{key}": own for key, own in MODELS.get(name, {}).items()
            }
            fields |= ROWS.get(name, {})
            if name == "distillation":
                fields["distillation__teacher"] = str(make("mlm"))
            config = make_config(speech, objective, model__init_std=0.3, **fields)
            made[name] = write_run(config, folder / name)
        return made[name]

    return make


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


@pytest.fixture
def hub():
    with serve() as server:
        yield server


@pytest.fixture
def run_python(tmp_path):
    """Runs code in a process whose Hub is at an address."""

    def run(address, code, given="", **variables):
        env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        env |= {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "cache")}
        env |= {"HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        env |= variables
        for name in {"HF_TOKEN", "HF_HUB_CACHE"} - variables.keys():
            env.pop(name, None)
        return run_forked(code, given, env, tmp_path)

    return run


@pytest.fixture
def jaxpt(run_python):
    """Runs commands; the exit code, output and errors of each."""

    def run(address, *commands, **variables):
        output = run_python(address, RUN, json.dumps(commands), **variables)
        return [tuple(result) for result in json.loads(output.stdout)]

    return run
