"""Learning rates by depth, against the sources' numbers, and gradual unfreezing."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpt.learn.groups import (
    Depths,
    GroupSpec,
    count_layers,
    find_multiplier,
    make_grouped_optimizer,
)
from jaxpt.learn.optim_spec import OptimSpec
from jaxpt.learn.optimizer import make_optimizer
from jaxpt.learn.schedules import make_schedule

ELECTRA = GroupSpec(decay=0.8, form="electra")


def make_state(num_layers=2, value=1.0):
    """A task's parameters, one number each."""
    one = {"kernel": jnp.full((1, 1), value)}
    layers = {f"layer_{i}": {"mlp": {"up": dict(one)}} for i in range(num_layers)}
    encoder = layers | {"norm": {"scale": jnp.full(1, value)}}
    embed = {"tokens": jnp.full((1, 1), value)}
    return {
        "network": {"embed": embed, "encoder": encoder},
        "head": {"out": dict(one)},
        "extra": {"encoder": {"layer_0": {"query": {"a": jnp.full((1, 1), value)}}}},
    }


@pytest.mark.parametrize(
    "path, expected",
    [
        ("head/out/kernel", 1),
        ("network/encoder/layer_11/attention/query/kernel", 0.64),  # the quirk: d^2
        ("network/encoder/layer_10/mlp/up/bias", 0.8**3),
        ("network/encoder/layer_0/mlp/up/bias", 0.05498),
        ("network/embed/tokens", 0.04398),
        ("network/project/kernel", 0.04398),
        ("extra/encoder/layer_11/attention/query/a", 0.64),
    ],
)
def test_electras_multipliers(path, expected):
    multiplier = find_multiplier(ELECTRA, Depths(12), path)
    assert multiplier == pytest.approx(expected, abs=5e-6)


def test_the_plain_form_has_no_gap_below_the_head():
    """Howard & Ruder's: the rate of a group is 1 / 2.6 of the one above."""
    spec, depths = GroupSpec(decay=1 / 2.6), Depths(3)
    paths = ["head/x", *(f"network/encoder/layer_{i}/x" for i in (2, 1, 0))]
    paths.append("network/embed/tokens")
    results = [find_multiplier(spec, depths, path) for path in paths]
    assert results == pytest.approx([1 / 2.6**k for k in range(5)])


@pytest.mark.parametrize(
    "path, depth",
    [
        ("network/embed/positions/table", 0),
        ("network/decoder_embed/norm/scale", 0),
        ("network/encoder/relative/table", 1),
        ("network/encoder/disentangled/norm/scale", 1),
        ("network/encoder/layer_1/mlp/up/kernel", 2),
        ("network/encoder/norm/scale", 2),
        ("network/decoder/relative/table", 3),
        ("network/decoder/layer_0/cross/out/kernel", 3),
        ("network/decoder/layer_2/mlp/up/kernel", 5),
        ("network/decoder/norm/scale", 5),
        ("network/head/out/kernel", 6),  # of the vocabulary
        ("head/out/kernel", 6),
        ("extra/embed/prompt", 0),
    ],
)
def test_depths_of_an_encoder_and_a_decoder(path, depth):
    assert Depths(2, 3).find(path) == depth


def test_depths_of_other_networks():
    lstm = {"ahead": {"lstm_0": {"state": 0}, "lstm_1": {"state": 0}}}
    state = {"network": lstm | {"words": {"table": 0}}, "head": {}, "extra": {}}
    depths = count_layers(state)
    assert depths == Depths(2)
    names = ["words/table", "back/lstm_0/state", "ahead/lstm_1/state"]
    assert [depths.find(f"network/{name}") for name in names] == [0, 1, 2]
    two = {"encoder": {"layer_0": {"x": 0}}, "decoder": {"layer_1": {"x": 0}}}
    assert count_layers({"network": two}) == Depths(1, 2)
    assert count_layers({"network": {"words": 0}}) == Depths(0)


def step(optimizer, state, grads, opt_state):
    updates, opt_state = optimizer.update(grads, opt_state, state)
    return optax.apply_updates(state, updates), opt_state


def test_updates_are_multiplied_weight_decay_and_all():
    optim = OptimSpec(lr=0.5, schedule="constant", weight_decay=0.1, clip_norm=0.0)
    state = make_state()
    grads = jax.tree.map(jnp.ones_like, state)
    plain = make_optimizer(optim, 10)
    grouped = make_grouped_optimizer(optim, ELECTRA, state, 10, 5)
    one, _ = plain.update(grads, plain.init(state), state)
    two, _ = grouped.update(grads, grouped.init(state), state)
    ratios = jax.tree.map(lambda a, b: float((b / a).ravel()[0]), one, two)
    assert ratios["head"]["out"]["kernel"] == pytest.approx(1)
    layers = ratios["network"]["encoder"]
    assert layers["layer_1"]["mlp"]["up"]["kernel"] == pytest.approx(0.64)
    assert layers["layer_0"]["mlp"]["up"]["kernel"] == pytest.approx(0.512)
    assert layers["norm"]["scale"] == pytest.approx(0.64)
    assert ratios["network"]["embed"]["tokens"] == pytest.approx(0.4096)
    assert ratios["extra"]["encoder"]["layer_0"]["query"]["a"] == pytest.approx(0.512)


def test_groups_that_are_alike_have_the_plain_optimizer():
    optim, state = OptimSpec(), make_state()
    one, two = (
        f.init(state)
        for f in (
            make_optimizer(optim, 10, ("network",)),
            make_grouped_optimizer(optim, GroupSpec(), state, 10, 5, ("network",)),
        )
    )
    assert jax.tree.structure(one) == jax.tree.structure(two)


GRADUAL = GroupSpec(unfreeze=2)
SCHEDULE = OptimSpec(lr=0.1, schedule="linear", epsilon=1e-12)


def run(optim, groups, num, frozen=(), epoch_steps=2, num_steps=10):
    """The states of several steps under random gradients."""
    state = make_state(3)
    made = make_grouped_optimizer(optim, groups, state, num_steps, epoch_steps, frozen)
    opt_state, draw = made.init(state), np.random.default_rng(0)
    update, states = jax.jit(made.update), [state]
    for _ in range(num):
        grads = jax.tree.map(lambda x: jnp.asarray(draw.normal(size=x.shape)), state)
        updates, opt_state = update(grads, opt_state, state)
        state = optax.apply_updates(state, updates)
        states.append(state)
    return states


def changes(states, *path):
    """Each step's change of a number."""

    def get(state):
        for name in path:
            state = state[name]
        return float(state.ravel()[0])

    values = [get(state) for state in states]
    return [b - a for a, b in zip(values, values[1:])]


TOP = ("network", "encoder", "layer_2", "mlp", "up", "kernel")
LOW = ("network", "encoder", "layer_0", "mlp", "up", "kernel")
HEAD = ("head", "out", "kernel")
EMBED = ("network", "embed", "tokens")


def test_one_group_more_is_trained_every_epoch_from_the_top():
    states = run(dataclasses.replace(SCHEDULE, weight_decay=0.1), GRADUAL, 6)
    for path, start in ((HEAD, 0), (TOP, 2), (LOW, 4), (EMBED, 4)):
        result = changes(states, *path)
        assert [x != 0 for x in result] == [i >= start for i in range(6)], path


def test_moments_begin_with_the_group_and_the_schedule_with_the_run():
    """Adam's first step is lr, whatever the gradient; of step 2 of 10 it is 0.8 lr."""
    optim = dataclasses.replace(SCHEDULE, clip_norm=0.0)
    states = run(optim, GRADUAL, 5)
    assert abs(changes(states, *HEAD)[0]) == pytest.approx(0.1, rel=1e-4)
    assert abs(changes(states, *TOP)[2]) == pytest.approx(0.08, rel=1e-4)
    assert abs(changes(states, *LOW)[4]) == pytest.approx(0.06, rel=1e-4)


def test_the_norm_of_gradients_is_of_what_is_trained():
    """The head alone, of one number, is clipped to the norm itself."""
    optim = OptimSpec(name="lion", schedule="constant", clip_norm=1e-3)
    made = make_grouped_optimizer(optim, GRADUAL, make_state(), 10, 2)
    grads = jax.tree.map(lambda x: jnp.full_like(x, 5.0), make_state())
    _, opt_state = made.update(grads, made.init(make_state()), make_state())
    moments = [x for x in jax.tree.leaves(opt_state) if x.ndim]
    largest = max(float(jnp.abs(x).max()) for x in moments)
    assert largest == pytest.approx((1 - 0.99) * 1e-3, rel=1e-4)


def test_what_is_frozen_stays_so_and_has_no_moments():
    frozen = ("network/embed", "network/encoder/layer_2")
    states = run(SCHEDULE, dataclasses.replace(GRADUAL, decay=0.5), 6, frozen)
    assert not any(changes(states, *TOP)) and not any(changes(states, *EMBED))
    assert all(changes(states, *LOW)[4:])
    made = make_grouped_optimizer(SCHEDULE, GRADUAL, make_state(), 10, 2, frozen)
    moments = [x for x in jax.tree.leaves(made.init(make_state())) if x.ndim]
    assert len(moments) == 2 * 5  # the two of head, norm, A and two layers


@pytest.mark.slow_except("lion")
@pytest.mark.parametrize("name", ["adafactor", "lamb", "lion", "muon"])
def test_other_optimizers_can_be_unfrozen_too(name):
    states = run(OptimSpec(name, lr=0.1, schedule="linear"), GRADUAL, 5)
    assert [x != 0 for x in changes(states, *LOW)] == [False] * 4 + [True]


def test_groups_that_would_never_be_trained_are_refused(refuses):
    GroupSpec(unfreeze=2).check_epochs(3)
    GroupSpec().check_epochs(1)
    with refuses("groups.unfreeze=3", "below the run's 3 epochs"):
        GroupSpec(unfreeze=3).check_epochs(3)


# Rates at steps 5, 9, 10, 50 and 99 of 100, of which 10 warm up.
@pytest.mark.parametrize(
    "schedule, expected",
    [
        ("bert_linear", [0.5, 0.9, 0.9, 0.5, 0.01]),
        ("linear", [0.5, 0.9, 1, 0.5556, 0.0111]),  # transformers'
        ("electra_linear", [0.475, 0.819, 0.9, 0.5, 0.01]),
    ],
)
def test_three_lines_that_are_not_one(schedule, expected):
    made = make_schedule(OptimSpec(lr=1.0, schedule=schedule, warmup_steps=10), 100)
    results = [float(made(jnp.int32(step))) for step in (5, 9, 10, 50, 99)]
    assert results == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize("schedule", ["bert_linear", "electra_linear"])
def test_lines_without_a_warm_up(schedule):
    made = make_schedule(OptimSpec(lr=2.0, schedule=schedule), 100)
    assert [float(made(jnp.int32(s))) for s in (0, 50, 100)] == [2.0, 1.0, 0.0]


SLANTED = OptimSpec(lr=0.01, schedule="slanted_triangle")


def test_the_slanted_triangle():
    made = make_schedule(SLANTED, 100)
    results = [float(made(jnp.int32(step))) for step in (0, 5, 10, 55, 99)]
    assert results == pytest.approx(
        [0.0003125, 0.0051563, 0.01, 0.0051563, 0.0004201], abs=6e-8
    )
    # fastai's classifier: rises to 8 times in a third of the steps.
    classifier = dataclasses.replace(SLANTED, slant_ratio=8.0, slant_cut=1 / 3)
    made = make_schedule(classifier, 90)
    results = [float(made(jnp.int32(step))) for step in (0, 15, 30, 60, 90)]
    assert results == pytest.approx([0.00125, 0.005625, 0.01, 0.005625, 0.00125])


@given(st.integers(1, 300), st.floats(0, 0.99))
def test_the_slanted_triangle_never_leaves_its_bounds(num_steps, cut):
    """By the source's form 105 steps end below 0, and fewer than 10 divide by 0."""
    made = make_schedule(dataclasses.replace(SLANTED, slant_cut=cut), num_steps)
    rates = np.asarray(made(jnp.arange(301)))[: num_steps + 1]
    assert np.all(np.isfinite(rates))
    assert rates.min() >= 0.01 / 32 - 1e-9 and rates.max() <= 0.01 + 1e-9
    assert rates[-1] == pytest.approx(0.01 / 32, rel=1e-4)
    assert rates[int(num_steps * cut)] == pytest.approx(0.01, rel=1e-5)
