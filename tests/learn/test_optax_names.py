"""Optimizers of optax by name: what they compute, what is refused, where they run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from learn.test_optimizer import SHAPES, apply_gradients, draw_tree, stack, to_float32
from optax import contrib
from stops import stop_after
from tiny import make_config, many_devices, prepare, slow_but, write_stored

from jaxpt.config.config_files import load_config
from jaxpt.config.finetuning import default_finetune_config, make_finetune_plan
from jaxpt.learn import optax_names
from jaxpt.learn.optax_names import count_products, list_names
from jaxpt.learn.optim_spec import OptimSpec
from jaxpt.learn.optimizer import (
    count_flops,
    decay_mask,
    make_optimizer,
    set_schedule_step,
)
from jaxpt.learn.schedules import make_schedules
from jaxpt.learn.state import make_state
from jaxpt.runs.checkpoint import Checkpointer
from jaxpt.runs.program import Program
from jaxpt.runs.signals import Stopped
from jaxpt.training import loop

NAMES = list_names()
# Optimizers of several kinds, and the rate that suits them.
EIGHT = {
    "optax.adamw": {"lr": 0.01, "weight_decay": 0.1},
    "optax.lion": {"lr": 0.003, "weight_decay": 0.1},
    "optax.adafactor": {"lr": 0.01, "args": "min_dim_size_to_factor=8"},
    "optax.adan": {"lr": 0.01, "clip_norm": 0.0},
    "optax.sgd": {"lr": 0.1, "args": "momentum=0.9, nesterov=True"},
    "optax.contrib.prodigy": {"lr": 1.0, "args": "safeguard_warmup=True"},
    "optax.contrib.muon": {"lr": 0.02, "weight_decay": 0.1},
    "optax.contrib.schedule_free_adamw": {"lr": 0.01, "schedule": "constant"},
}
# What optax makes of the same settings, with a schedule of its own.
OPTAX = {
    "optax.lion": lambda lr: optax.lion(lr, weight_decay=0.1, mask=decay_mask),
    "optax.adan": lambda lr: optax.adan(lr),
    "optax.sgd": lambda lr: optax.sgd(lr, momentum=0.9, nesterov=True),
    "optax.adafactor": lambda lr: optax.adafactor(lr, min_dim_size_to_factor=8),
    "optax.contrib.prodigy": lambda lr: contrib.prodigy(lr, safeguard_warmup=True),
    "optax.contrib.muon": lambda lr: contrib.muon(
        lr, weight_decay=0.1, weight_decay_mask=decay_mask
    ),
}
NUM_STEPS = 10


def make_spec(name, **more):
    more = EIGHT.get(name, {}) | more
    if "schedule_free" in name:
        more = {"schedule": "constant"} | more
    if name.rpartition(".")[2] in ("dog", "dowg", "dadapt_adamw", "cocob"):
        more = {"lr": 1.0} | more  # they find their own steps
    return OptimSpec(name=name, **more)


def step_all(optimizer, shapes=SHAPES, num_steps=6):
    """The state after steps with drawn gradients."""
    state = make_state(to_float32(draw_tree(0, shapes)), optimizer)
    for t in range(1, num_steps + 1):
        state = apply_gradients(state, to_float32(draw_tree(t, shapes)), optimizer)
    return state


def equal(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all((a == b).all() for a, b in pairs)


@pytest.mark.parametrize("name", NAMES)
def test_every_optimizer_of_the_list_makes_finite_steps(name):
    divides = name == "optax.contrib.dadapt_adamw"
    spec = make_spec(name, warmup_steps=0 if divides else 2)
    optimizer = make_optimizer(spec, NUM_STEPS)
    first = make_state(to_float32(draw_tree(0, SHAPES)), optimizer)
    state = step_all(optimizer)
    for key, value in state.params.items():
        assert np.isfinite(value).all(), key
        assert (value != first.params[key]).any(), key


def test_the_list_has_no_transforms_and_none_that_are_refused():
    assert len(NAMES) > 30
    assert not [name for name in NAMES if ".scale_by_" in name]
    assert not optax_names.REFUSED.keys() & set(NAMES)
    for name in EIGHT:
        assert name in NAMES
    # What is refused by name exists, so that the reason is of use.
    for name in optax_names.REFUSED:
        module = contrib if ".contrib." in name else optax
        assert callable(getattr(module, name.rpartition(".")[2])), name


@pytest.mark.parametrize(
    "ours, name", [("adamw", "optax.adamw"), ("lion", "optax.lion")]
)
@pytest.mark.parametrize("clip_norm", [0.0, 0.5])
def test_it_equals_the_built_in_optimizer_to_the_bit(ours, name, clip_norm):
    settings = {"lr": 0.1, "weight_decay": 0.3, "clip_norm": clip_norm}
    settings |= {"warmup_steps": 2, "schedule": "linear"}
    built_in = step_all(make_optimizer(OptimSpec(name=ours, **settings), NUM_STEPS))
    named = step_all(make_optimizer(OptimSpec(name=name, **settings), NUM_STEPS))
    assert equal(built_in.params, named.params)
    first = to_float32(draw_tree(0, SHAPES))
    assert not equal(first, named.params)


@pytest.mark.parametrize("name", OPTAX)
def test_it_equals_optax_with_the_same_schedule(name):
    spec = make_spec(name, warmup_steps=2, clip_norm=0.5)
    schedule = make_schedules(spec, NUM_STEPS)["lr"]
    plain = optax.chain(optax.clip_by_global_norm(0.5), OPTAX[name](schedule))
    shapes = SHAPES | {"embed": (16, 12), "kernel": (12, 8)}
    result = step_all(make_optimizer(spec, NUM_STEPS), shapes)
    expected = step_all(plain, shapes)
    for key, value in expected.params.items():
        np.testing.assert_allclose(result.params[key], value, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["optax.adam", "optax.lion", "optax.contrib.muon"])
def test_decay_is_of_kernels_and_tables_only(name):
    """With and without a decay of its own."""
    plain = step_all(make_optimizer(make_spec(name, weight_decay=0.0), NUM_STEPS))
    decayed = step_all(make_optimizer(make_spec(name, weight_decay=0.5), NUM_STEPS))
    np.testing.assert_array_equal(plain.params["bias"], decayed.params["bias"])
    assert (plain.params["kernel"] != decayed.params["kernel"]).any()


def test_decay_that_is_added_is_that_of_adamw():
    settings = {"lr": 0.1, "weight_decay": 0.3, "decay_overrides": "kernel=0.1"}
    adam = step_all(make_optimizer(OptimSpec(name="optax.adam", **settings), 10))
    adamw = step_all(make_optimizer(OptimSpec(name="adamw", **settings), 10))
    for key, value in adamw.params.items():
        np.testing.assert_allclose(adam.params[key], value, rtol=2e-6)


def test_the_rate_follows_the_runs_step():
    """Prodigy counts its own updates; the rate is that of the step that is set."""
    spec = OptimSpec(name="optax.contrib.prodigy", lr=1.0, schedule="linear")
    optimizer = make_optimizer(spec, NUM_STEPS)
    params = to_float32(draw_tree(0, SHAPES))
    grads = to_float32(draw_tree(1, SHAPES))
    state = optimizer.init(params)
    updates, state = optimizer.update(grads, state, params)
    at_end = set_schedule_step(state, NUM_STEPS)
    last, after = optimizer.update(grads, at_end, params)
    assert all((leaf != 0).any() for leaf in jax.tree.leaves(updates))
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(last))
    is_clock = lambda x: isinstance(x, optax.ScaleByScheduleState)  # noqa: E731
    (clock,) = filter(is_clock, jax.tree.leaves(after, is_leaf=is_clock))
    assert clock.count == NUM_STEPS + 1


def test_schedule_free_evaluates_the_average():
    spec = make_spec("optax.contrib.schedule_free_adamw")
    optimizer = make_optimizer(spec, NUM_STEPS)
    state = step_all(optimizer)
    average = optax_names.average_schedule_free(state.params, state.opt_state)
    plain = contrib.schedule_free_adamw(0.01)
    params = to_float32(draw_tree(0, SHAPES))
    plain_state = plain.init(params)
    clip = optax.clip_by_global_norm(1.0)
    for t in range(1, 7):
        grads, _ = clip.update(to_float32(draw_tree(t, SHAPES)), clip.init(params))
        updates, plain_state = plain.update(grads, plain_state, params)
        params = optax.apply_updates(params, updates)
    expected = contrib.schedule_free_eval_params(plain_state, params)
    for key, value in expected.items():
        np.testing.assert_allclose(average[key], value, rtol=1e-5)
        assert np.abs(average[key] - state.params[key]).max() > 1e-4


def test_parameters_that_are_frozen_are_in_the_average_as_they_are():
    spec = make_spec("optax.contrib.schedule_free_adamw")
    optimizer = make_optimizer(spec, NUM_STEPS, frozen=("kernel",))
    params = to_float32(draw_tree(0, SHAPES))
    state = optimizer.init(params)
    average = optax_names.average_schedule_free(params, state)
    assert average["kernel"] is params["kernel"]


def test_muons_products_are_counted_as_those_of_the_built_in_muon():
    matrix = jax.ShapeDtypeStruct((3, 64, 16), jnp.float32)
    params = {"layers": {"mlp": {"kernel": matrix}}}
    named = OptimSpec(name="optax.contrib.muon")
    assert count_flops(named, params) == count_flops(OptimSpec(name="muon"), params)
    assert count_flops(OptimSpec(name="optax.adamw"), params) == 0
    assert count_flops(named, params, ("layers",)) == 0


def test_a_loop_counts_once_for_each_of_its_steps():
    params = {"kernel": jax.ShapeDtypeStruct((8, 4), jnp.float32)}
    counts = [
        count_products(
            OptimSpec(name="optax.contrib.muon", args=f"ns_steps={n}"), params
        )
        for n in (1, 5)
    ]
    assert counts[1] == 5 * counts[0] == 5 * (4 * 16 * 8 + 2 * 64)


def test_muons_matrices_are_those_of_layers_scanned_or_not():
    num_layers, draw = 3, np.random.default_rng(0).normal

    def tree():
        layers = {
            f"layer_{i}": {"mlp": {"kernel": 4.0**-i * draw(size=(6, 8))}}
            for i in range(num_layers)
        }
        return {"embed": {"tokens": draw(size=(11, 6))}, "encoder": layers}

    def run(params, grads):
        optimizer = make_optimizer(make_spec("optax.contrib.muon"), NUM_STEPS)
        state = make_state(to_float32(params), optimizer)
        for grad in grads:
            state = apply_gradients(state, to_float32(grad), optimizer)
        return state.params

    params, grads = tree(), [tree() for _ in range(3)]
    expected = stack(run(params, grads), num_layers)
    result = run(stack(params, num_layers), [stack(g, num_layers) for g in grads])
    for one, other in zip(
        jax.tree.leaves(result), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


REFUSALS = {
    "unknown argument": (
        "optax.lion",
        "b3=0.9",
        "b3: unknown argument; optax.lion has",
    ),
    "a close one": ("optax.lion", "b_1=0.9", "did you mean b1"),
    "bool": ("optax.lion", "b1=True", "b1=True: must be a number"),
    "number": ("optax.adam", "nesterov=1", "nesterov=1: must be True or False"),
    "tuple": ("optax.contrib.prodigy", "betas=0.9", "must be a tuple of 2"),
    "short tuple": ("optax.contrib.prodigy", "betas=(0.9,)", "must be a tuple of 2"),
    "text": ("optax.lion", "b1='a'", "b1='a': must be a number"),
    "infinite": ("optax.lion", "b1=1e999", "b1=inf: must be a number"),
    "dtype": ("optax.lion", "mu_dtype='flaot'", "cannot be made: data type 'flaot'"),
    "a choice": ("optax.contrib.muon", "preconditioning='x'", "one of frobenius"),
    "a function": ("optax.contrib.adopt", "clip_value_fn=1", "must be left out"),
    "positional": ("optax.lion", "0.9", "must be NAME=VALUE pairs"),
    "code": ("optax.lion", "b1=__import__('os').getpid()", "must be NAME=VALUE pairs"),
    "two calls": ("optax.lion", "b1=0.9)+g(b2=1", "must be NAME=VALUE pairs"),
    "unpacked": ("optax.lion", "**{'b1': 0.9}", "must be NAME=VALUE pairs"),
    "twice": ("optax.lion", "b1=0.9, b1=0.8", "must be NAME=VALUE pairs"),
    "rate": ("optax.lion", "learning_rate=1.0", "is set by optim.lr"),
    "decay": ("optax.lion", "weight_decay=1.0", "is set by optim.weight_decay"),
    "mask": ("optax.lion", "mask=None", "is set by optim.weight_decay"),
    "built-in": ("adamw", "b1=0.9", "must be '', as adamw does not use it"),
    "transform": ("optax.scale_by_adam", "", "an optimizer of optax with a learning"),
    "wrapper": ("optax.chain", "", "an optimizer of optax with a learning rate"),
    "class": ("optax.GradientTransformation", "", "an optimizer of optax with"),
    "module": ("optax.contrib", "", "an optimizer of optax with a learning rate"),
    "deep": ("optax.contrib._muon.muon", "", "an optimizer of optax with"),
    "elsewhere": ("os.system", "", "must be one of adamw"),
    "sophia": ("optax.contrib.sophia", "", "needs the loss as a function"),
    "lbfgs": ("optax.lbfgs", "", "needs the loss as a function of the parameters"),
    "private": ("optax.contrib.dpsgd", "", "needs the gradient of each example"),
    "schedule": ("optax.contrib.schedule_free_adamw", "", "must be constant with"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_is_refused_is_one_line(case, refuses):
    name, args, text = REFUSALS[case]
    with refuses(text):
        OptimSpec(name=name, args=args)


@pytest.mark.parametrize(
    "name, changes, text",
    [
        ("optax.lion", {"beta1": 0.9}, "optim.beta1=0.9: must be -1"),
        ("optax.lion", {"decay_overrides": "embed=0"}, "optim.decay_overrides=embed=0"),
        ("optax.lion", {"cautious_decay": True}, "optim.cautious_decay=True"),
        ("optax.lion", {"muon_lr": 0.1}, "optim.muon_lr=0.1"),
        ("optax.contrib.prodigy", {"weight_decay": 0.1}, "has no mask for it"),
        (
            "optax.contrib.prodigy",
            {"warmup_steps": 2},
            "optim.warmup_steps=2: must be 0",
        ),
        ("optax.contrib.dadapt_adamw", {"warmup_steps": 2}, "and 0 gives NaN"),
        (
            "optax.contrib.schedule_free_sgd",
            {"schedule": "constant", "ema_decay": 0.9},
            "optim.ema_decay=0.9: must be 0 with",
        ),
    ],
)
def test_a_setting_that_it_cannot_take_is_refused(name, changes, text, refuses):
    with refuses(text):
        OptimSpec(name=name, **changes)


def test_a_required_argument_is_named(monkeypatch, refuses):
    """No optimizer of the list has one now."""

    def needy(learning_rate: float, rank: int) -> optax.GradientTransformation:
        return optax.sgd(learning_rate * rank)

    needy.__module__ = "optax.needy"
    monkeypatch.setattr(optax, "needy", needy, raising=False)
    with refuses("optim.args='': must have rank, which optax.needy needs"):
        OptimSpec(name="optax.needy")
    OptimSpec(name="optax.needy", args="rank=2")


@given(st.text("abcdefghi._:/ ", max_size=12) | st.sampled_from(dir(optax)))
@example("__builtins__")
@example("contrib.sys")
@example("sys.exit")
@example("jax")
def test_only_functions_of_optax_are_ever_found(text):
    """Modules that optax imports are attributes of it, too."""
    for name in (f"optax.{text}", f"optax.contrib.{text}"):
        found = optax_names._find(name)
        assert found is None or found.__module__.split(".")[0] == "optax"
        assert (found is not None) <= (name in NAMES or name in optax_names.REFUSED)


def test_a_stored_config_needs_no_trust_and_cannot_name_other_code(
    speech, tmp_path, refuses
):
    config = make_config(speech, "mlm", optim__name="optax.adan")
    path = write_stored(tmp_path / "good.json", config)
    assert load_config(str(path)).optim.name == "optax.adan"
    config.optim.name = "optax.contrib.subprocess"
    with refuses("optim.name=optax.contrib.subprocess"):
        prepare(config)


def train(config, workdir):
    task, tokenizer, corpora = prepare(config)
    return task, loop.train(task, tokenizer, corpora, workdir)


def last_state(task, workdir):
    with Checkpointer(workdir / "checkpoints") as checkpointer:
        return checkpointer.restore(Program(task).abstract_state())


QUICK = ("optax.contrib.prodigy", "optax.contrib.schedule_free_adamw")


@pytest.mark.parametrize("name", slow_but(QUICK, EIGHT))
def test_a_run_resumes_exactly(name, speech, tmp_path, monkeypatch):
    fields = {f"optim__{field}": value for field, value in EIGHT[name].items()}
    config = make_config(
        speech,
        "mlm",
        optim__name=name,
        optim__max_skips=2,
        optim__warmup_steps=3,
        model__d_model=16,
        **fields,
    )
    task, whole = train(config, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(loop, "SignalWatch", stop_after(3))
        with pytest.raises(Stopped):
            train(config, tmp_path / "parts")
    _, parts = train(config, tmp_path / "parts")
    (state, step), (other, at) = (
        last_state(task, tmp_path / folder) for folder in ("whole", "parts")
    )
    assert step == at == config.train.steps
    assert equal(state, other)
    assert whole["metrics"] == parts["metrics"]
    assert task.has_ema == ("schedule_free" in name)
    if task.has_ema:
        average = optax_names.average_schedule_free(state.params, state.opt_state)
        pairs = zip(*map(jax.tree.leaves, (state.eval_params, average)), strict=True)
        for one, other in pairs:
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
        assert not equal(state.eval_params, state.params)


# In a process with 8 devices: the losses of each case on one device and on a mesh.
ON_DEVICES = """
import json, sys
import jax
from tiny import make_config, prepare
from jaxpt.runs.data import make_feed
from jaxpt.runs.program import Program
from jaxpt.training.measure import total_loss

losses = {}
for name, fields in json.loads(sys.argv[2]).items():
    for num, mesh in ((1, {}), (8, {"train__fsdp": 4, "train__tensor": 2})):
        config = make_config(
            sys.argv[1], "mlm", optim__name=name, model__num_heads=4,
            train__batch_size=16, train__steps_per_call=1, **mesh,
            **{f"optim__{k}": v for k, v in fields.items()},
        )
        task, _, corpora = prepare(config)
        feed = make_feed(task, corpora["train"])
        program = Program(task, jax.devices()[:num])
        if num == 1:
            start = jax.device_get(program.init_state(3))
        places = jax.tree.map(lambda x: x.sharding, program.abstract_state())
        state = program.run_form(jax.device_put(start, places))
        for step in range(6):
            rows = program.place(feed.stack(step, 1))
            state, sums = program.train_call(state, rows, 3)
            first = {k: (a[0], b[0]) for k, (a, b) in sums.items()}
            loss = float(total_loss(program, first))
            losses.setdefault(f"{name} {num}", []).append(loss)
        shards = [
            x.addressable_shards[0].data.size < x.size
            for x in jax.tree.leaves(state.opt_state)
        ]
        if num == 8:
            losses[f"{name} split"] = sum(shards)
print(json.dumps(losses))
"""


@pytest.mark.parametrize("names", [QUICK, pytest.param(EIGHT, marks=pytest.mark.slow)])
def test_a_mesh_of_8_devices_gives_the_same_losses(names, speech):
    root = Path(__file__).resolve().parents[2]
    path = os.pathsep.join([str(root), str(root / "tests")])
    cases = json.dumps({name: EIGHT[name] for name in names})
    result = subprocess.run(
        [sys.executable, "-c", ON_DEVICES, str(speech), cases],
        env=os.environ | many_devices(8) | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    losses = json.loads(result.stdout.splitlines()[-1])
    for name in names:
        one, eight = losses[f"{name} 1"], losses[f"{name} 8"]
        np.testing.assert_allclose(eight, one, rtol=2e-4, err_msg=name)
        assert one[-1] < one[0]
        if name not in ("optax.sgd", "optax.adafactor"):
            assert losses[f"{name} split"] > 3, name


def test_schedule_free_is_refused_in_fine_tuning(refuses):
    config = default_finetune_config("classification")
    config.optim.name = "optax.contrib.schedule_free_adamw"
    config.optim.schedule = "constant"
    config.optim.weight_decay = 0.0
    config.data.train = config.data.dev = "table.tsv"
    with refuses("in fine-tuning, which evaluates the trained ones"):
        make_finetune_plan(config)
