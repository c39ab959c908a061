"""Runs of CompleteP: their exports, graphs and fine-tunings compute the same."""

import dataclasses
import json

import jax.numpy as jnp
import numpy as np
import pytest
from tiny import make_config, prepare, write_run

from jaxpt.config.settings import default_config
from jaxpt.errors import UserError
from jaxpt.finetuning.base import load_base
from jaxpt.hub.export import export_run
from jaxpt.hub.exportable import name_families
from jaxpt.hub.graphs import list_graphs
from jaxpt.hub.imports import import_run
from jaxpt.runs.initial_state import check_start
from jaxpt.runs.workdir import load_run

# m_N = 4, m_L = 2; parameters far from zero.
COMPLETEP = {
    "model__parametrization": "completep",
    "model__base_width": 4,
    "model__base_depth": 1,
    "model__num_layers": 2,
    "model__init_std": 0.5,
}
MODERN = {
    "model__embed_norm": True,
    "model__norm_bias": False,
    "model__gated_mlp": True,
    "model__positions": "rotary",
    "model__use_bias": False,
    "model__head_transform": True,
    "model__head_bias": True,
}
RUNS = {
    "gpt2": ("clm", {"model__activation": "gelu_tanh"}),
    "gpt2-untied": (
        "clm",
        {"model__activation": "gelu_tanh", "model__tie_embeddings": False},
    ),
    "modernbert": ("mlm", MODERN | {"model__scan_layers": True}),
}
IDS = jnp.arange(16).reshape(2, 8) % 13 + 5


@pytest.fixture(scope="session")
def runs(tmp_path_factory, speech):
    """`runs(name)`: the config and folder of a run; made once."""
    made, folder = {}, tmp_path_factory.mktemp("completep")

    def make(name):
        if name not in made:
            objective, changes = RUNS[name]
            config = make_config(speech, objective, **COMPLETEP | changes)
            made[name] = config, write_run(config, folder / name)
        return made[name]

    return make


def read_logits(folder):
    run = load_run(folder)
    network = run.program.task.model
    is_masked = hasattr(network, "fill_logits")
    read = network.fill_logits if is_masked else network.next_logits
    return run, np.asarray(read(run.params, IDS))


def close(a, b):
    np.testing.assert_allclose(a, b, 1e-4, 1e-4 * np.abs(b).max())


@pytest.mark.slow_except("gpt2", "modernbert")
@pytest.mark.parametrize("name", RUNS)
def test_exports_compute_the_same(name, runs, speech, tmp_path, refuses):
    """As standard models of their family, which a run of it can begin with."""
    config, folder = runs(name)
    run, expected = read_logits(folder)
    family = name.partition("-")[0]
    assert name_families(run.program.task) == family
    export_run(folder, tmp_path / "out")
    stored = json.loads((tmp_path / "out" / "config.json").read_text())
    assert stored["model_type"] == family
    again = default_config()
    again.data.path, again.data.seq_len = str(speech), 16
    import_run(tmp_path / "out", tmp_path / "again", again)
    imported, logits = read_logits(tmp_path / "again")
    close(logits, expected)
    task = imported.program.task
    assert task.model_spec.parametrization == "standard"
    # A run with the factors does not begin with parameters of one without.
    plan = prepare(config)[0].plan
    train = dataclasses.replace(plan.train, init_from=str(tmp_path / "again"))
    begun = dataclasses.replace(
        run.program.task, plan=dataclasses.replace(plan, train=train)
    )
    with pytest.raises(UserError):
        check_start(begun, imported.tokenizer)
    (graph,) = list_graphs(run.program.task.model, run.params)
    ids = np.asarray(IDS)
    close(np.asarray(graph.run(ids, np.ones_like(ids))[0]), expected)


def test_a_fine_tuning_begins_with_the_run(runs):
    _, folder = runs("gpt2")
    run, expected = read_logits(folder)
    base = load_base(str(folder), "auto", 16, 0.0)
    params, _ = base.draw(0)
    close(np.asarray(base.network.next_logits(params, IDS)), expected)
    states = base.network.features(params, IDS)
    close(states, run.program.task.model.features(run.params, IDS))
    standard = dataclasses.replace(base.network.spec, parametrization="standard")
    plain = base.network.clone(spec=standard)
    assert np.abs(plain.features(params, IDS) - states).max() > 0.1


def test_a_run_with_the_same_factors_begins_with_another(runs, refuses):
    config, folder = runs("gpt2")
    task, tokenizer, _ = prepare(config)
    for changes, part in (({}, ""), ({"base_depth": 2}, "model.base_depth=1")):
        model = dataclasses.replace(task.model_spec, **changes)
        train = dataclasses.replace(task.plan.train, init_from=str(folder))
        other = dataclasses.replace(
            task,
            model_spec=model,
            model=task.model.clone(spec=model),
            plan=dataclasses.replace(task.plan, train=train),
        )
        if not part:
            check_start(other, tokenizer)
            continue
        with refuses(f"train.init_from={folder}", part, "2"):
            check_start(other, tokenizer)
