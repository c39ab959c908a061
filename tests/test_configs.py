"""Every config loads, says how it is run, and names only settings that exist."""

import importlib.util
from pathlib import Path

import pytest
from tiny import SEQ2SEQ

from jaxpt.config.plan import make_compare_spec, make_plan, plan_as
from jaxpt.objectives import OBJECTIVES

CONFIGS = sorted((Path(__file__).resolve().parents[1] / "configs").glob("*.py"))


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_config(path, monkeypatch):
    monkeypatch.syspath_prepend(path.parent)  # as the command line does
    module = load(path)
    assert f"--config configs/{path.name}" in module.__doc__
    assert "minute" in module.__doc__  # how long it takes
    config = module.get_config()
    plan, spec = make_plan(config), make_compare_spec(config)
    for name in spec.objectives:
        objective = spec.overrides.get(name, {}).get("objective", name)
        assert plan_as(plan.config, name).objective == objective


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("name", ["quickstart", "shakespeare_char", "wikitext2"])
def test_each_text_trains_every_objective_by_itself(name, objective):
    path = next(path for path in CONFIGS if path.stem == name)
    plan = make_plan(load(path).get_config(objective=objective))
    assert plan.objective == objective
    assert bool(plan.model.num_decoder_layers) == (objective in SEQ2SEQ)
    if objective.endswith("distillation"):
        num_layers = load(path).get_config().model["num_layers"]
        layers = plan.objective_spec.student_layers
        assert len(layers) == plan.model.num_layers < num_layers


def test_students_are_compared_where_they_have_teachers(monkeypatch):
    monkeypatch.syspath_prepend(CONFIGS[0].parent)
    path = next(path for path in CONFIGS if path.stem == "wikitext2_all")
    compared = set(make_compare_spec(load(path).get_config()).objectives)
    students = set(OBJECTIVES) - compared
    assert students == {"distillation", "causal_distillation"}
    spec = make_compare_spec(load(path).get_config("texts,runs/teachers"))
    assert set(spec.objectives) == set(OBJECTIVES)
    for name, teacher in (("distillation", "mlm"), ("causal_distillation", "clm")):
        assert spec.overrides[name][name]["teacher"] == f"runs/teachers/{teacher}"


@pytest.mark.parametrize("name", ["quickstart", "shakespeare_char"])
def test_configs_of_every_corpus_train_spanbert(name):
    path = next(path for path in CONFIGS if path.stem == name)
    plan = make_plan(load(path).get_config("spanbert"))
    assert plan.objective == "spanbert" and plan.objective_spec.masking == "spans"


def test_the_founding_experiment_is_as_published():
    path = next(path for path in CONFIGS if path.stem == "shakespeare_char")
    config = load(path).get_config()
    plan = make_plan(config)
    model = plan.model
    sizes = (model.num_layers, model.d_model, model.num_heads, model.d_ff)
    assert sizes == (2, 96, 4, 256) and model.dropout == 0.1
    assert (model.positions, model.activation) == ("sinusoidal", "relu")
    assert (plan.optim.lr, plan.optim.schedule) == (3e-3, "cosine")
    assert (plan.optim.clip_norm, plan.optim.weight_decay) == (1.0, 0.0)
    assert plan.train.batch_size == 64 and plan.objective_spec.row_length == 49
    overrides = config.compare.overrides
    assert overrides.clm.train.steps == 600 and overrides.mlm.train.steps == 1500
