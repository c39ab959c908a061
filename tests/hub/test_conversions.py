"""Imported causal models become diffusion models, encoders and decoders."""

import flax.traverse_util
import jax
import numpy as np
import pytest
from hub.test_families import Fixture
from hub.test_runs import settings, write_folder

from jaxpt.api.preparing import read_config
from jaxpt.config.plan import make_plan
from jaxpt.hub.imports import import_run
from jaxpt.ops import masks as attention_masks
from jaxpt.runs.earlier_costs import find_source_costs
from jaxpt.runs.initial_state import check_start, make_start
from jaxpt.runs.program import Program
from jaxpt.runs.task import make_task
from jaxpt.runs.workdir import load_run

SHIFT = {"masked_diffusion.shift": True, "masked_diffusion.mask_anneal": 0.5}


def flat(params):
    return flax.traverse_util.flatten_dict(jax.device_get(params), sep="/")


@pytest.fixture
def imported(tmp_path):
    """`imported("gpt2", **flags)`: the folder of a run with a fixture's parameters."""

    def make(name, into="run", **flags):
        if not (tmp_path / "theirs").exists():
            write_folder(tmp_path / "theirs", Fixture(name))
        config = settings(tmp_path)
        for key, value in flags.items():
            section, _, field = key.partition("__")
            if field:
                config[section][field] = value
            else:
                config[section] = value
        names = [key.replace("__", ".") for key in flags]
        import_run(tmp_path / "theirs", tmp_path / into, config, names)
        return tmp_path / into

    return make


def start_from(folder, objective, **changes):
    """The program of a run with a config like an imported run's, and its parameters."""
    changes |= {
        "objective": objective,
        "train.init_from": str(folder),
        "tokenizer.path": str(folder / "tokenizer.json"),
    }
    plan = make_plan(read_config(str(folder / "config.json"), changes), [*changes])
    _, tokenizer, *_ = load_run(folder)
    task = make_task(plan, tokenizer.vocab)
    check_start(task, tokenizer)
    program = Program(task)
    return program, make_start(program, plan.train).params


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_diffusion_run_from_an_imported_model(name, imported):
    """By way of a causal run, and at once."""
    folder = imported(name)
    program, start = start_from(folder, "masked_diffusion", **SHIFT)
    expected = load_run(folder).params
    jax.tree.map(np.testing.assert_array_equal, start, expected)
    flags = {name.replace(".", "__"): value for name, value in SHIFT.items()}
    direct = imported(name, "direct", objective="masked_diffusion", **flags)
    loaded = load_run(direct)
    jax.tree.map(np.testing.assert_array_equal, loaded.params, expected)
    assert loaded.program.task.spec == program.task.spec
    assert type(loaded.program.task.model) is type(program.task.model)
    assert set(find_source_costs(program.task.plan).values()) == {None}


def test_without_the_shift_a_causal_model_is_refused(imported, refuses):
    with refuses("holds a causal model: must be masked"):
        imported("gpt2", objective="masked_diffusion")


def test_an_encoder_and_decoder_from_an_imported_model(imported):
    folder = imported("llama")
    program, start = start_from(folder, "prefix_lm", **{"model.num_decoder_layers": 2})
    reader, _, params, _ = load_run(folder)
    held, result = flat(params), flat(start)
    for path, value in result.items():
        name = path.replace("decoder/", "encoder/").replace("/cross", "/attention")
        np.testing.assert_array_equal(value, held[name], err_msg=path)
    cut = {k: 0 * x if "/cross/out/" in k else x for k, x in result.items()}
    tokens = Fixture("llama").batch["input_ids"].astype(np.int32)
    full = attention_masks.full()
    masks = {"self": full, "cross": full, "dec_self": attention_masks.causal()}
    states = program.task.model.apply(
        {"params": flax.traverse_util.unflatten_dict(cut, sep="/")},
        tokens,
        masks,
        tokens,
        deterministic=True,
    )
    expected = reader.readers["next_logits"](params, tokens)
    np.testing.assert_allclose(states, expected, rtol=1e-5, atol=1e-5)


def test_learned_positions_are_refused_for_two_stacks(imported, refuses):
    folder = imported("gpt2")
    with refuses(f"train.init_from={folder}: ", "model.positions=learned must be"):
        start_from(folder, "prefix_lm", **{"model.num_decoder_layers": 2})
