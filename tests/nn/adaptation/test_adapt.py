"""The trained and the frozen parameters of each method."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nn.adaptation.networks import BERT, T5, make_batch, make_model, paths_of
from tiny import slow_but

from jaxpt.errors import UserError
from jaxpt.learn.frozen import is_frozen, keep, split_trained
from jaxpt.learn.optim_spec import OptimSpec
from jaxpt.learn.optimizer import make_optimizer
from jaxpt.nn.adaptation.adapt import (
    count_trained,
    find_frozen,
    find_read,
    is_trained,
)
from jaxpt.nn.adaptation.adapt_spec import METHODS, AdaptSpec

SIZES = {"lora": {"rank": 2}, "houlsby": {"size": 3}, "pfeiffer": {"size": 3}}
SIZES["prompt"] = {"prompt_length": 2}
D, F = 16, 24
NORMS = 2 * 2 * 2 * D + 2 * D  # of two post-norm layers and of the embeddings
BIASES = 2 * (4 * D + F + D) + 2 * 2 * D + D
# Of the tests' BERT, without its vocabulary head: the trained parameters except the
# head.
TRAINED = {
    "full": None,
    "linear_probe": (0, 0),
    "exact_probe": (0, 0),
    "lora": (0, 2 * 2 * 2 * (D + D)),
    "houlsby": (NORMS, 2 * 2 * (2 * 3 * D + 3 + D)),
    "pfeiffer": (0, 2 * (2 * 3 * D + 3 + D)),
    "bitfit": (BIASES, 0),
    "prompt": (0, 2 * D),
}


def train(kind, method, **values):
    """Two steps of AdamW with weight decay: before and after, and its moments."""
    spec = AdaptSpec(method, **SIZES.get(method, {}))
    model, state, read = make_model(kind, spec, dropout=0.1, **values)
    frozen = find_frozen(spec, state, find_read(read, state["network"]))
    optimizer = make_optimizer(OptimSpec(lr=0.1, weight_decay=0.1), 10, frozen)
    opt_state = optimizer.init(state)
    targets = jnp.array([0, 2])

    @jax.jit
    def step(state, opt_state, key):
        trained, join = split_trained(state, frozen)

        def loss(trained):
            out = model.outputs(join(trained), make_batch(), {"dropout": key})
            return -jax.nn.log_softmax(out)[jnp.arange(2), targets].mean()

        grads = jax.grad(loss)(trained)
        if frozen:
            zeros = jax.tree.map(jnp.zeros_like, state)
            grads = split_trained(zeros, frozen)[1](grads)
        updates, opt_state = optimizer.update(grads, opt_state, state)
        return keep(state, optax.apply_updates(state, updates), frozen), opt_state

    after = state
    for number in range(2):
        after, opt_state = step(after, opt_state, jax.random.key(number))
    return state, after, opt_state, frozen


CASES = [("encoder", method) for method in METHODS if method != "exact_probe"]
CASES += [("causal", "lora"), ("encoder_decoder", "houlsby"), ("electra", "prompt")]
CASES += [("bilm", "bitfit"), ("skip_gram", "linear_probe"), ("skip_gram", "full")]
CASES += [("bilm", "linear_probe"), ("encoder_decoder", "prompt"), ("causal", "bitfit")]


@pytest.mark.slow_cases("encoder-houlsby")
@pytest.mark.parametrize(
    "kind, method", slow_but([("encoder", "lora"), ("encoder", "houlsby")], CASES)
)
def test_what_is_frozen_never_moves_and_the_rest_does(kind, method):
    before, after, opt_state, frozen = train(
        kind, method, **(BERT if kind == "encoder" else {})
    )
    old, new = paths_of(before), paths_of(after)
    moved = {path for path in old if np.any(np.asarray(old[path] != new[path]))}
    free = {path for path in old if not any(inside(path, part) for part in frozen)}
    # Rows of tables that this batch does not read get no gradient, but weight decay.
    assert moved <= free
    assert {path for path in free - moved if not path.endswith("bias")} == set()
    assert all(path in moved for path in old if path.startswith(("head", "extra")))
    # Two moments of each trained number; the rest are counts of steps.
    numbers = sum(x.size for x in jax.tree.leaves(opt_state) if x.ndim)
    assert numbers == 2 * sum(old[path].size for path in free if old[path].ndim)


def inside(path, part):
    return f"{path}/".startswith(f"{part}/")


@pytest.mark.slow_cases("prompt", "pfeiffer")
@pytest.mark.parametrize("method", METHODS)
def test_the_trained_parameters_are_counted(method):
    spec = AdaptSpec(method, **SIZES.get(method, {}))
    _, state, read = make_model("encoder", spec, **BERT)
    frozen = find_frozen(spec, state, find_read(read, state["network"]))
    counts = count_trained(state, frozen)
    sizes = {path: leaf.size for path, leaf in paths_of(state).items()}
    assert counts["head"] == D * D + D + 3 * (D + 1)
    assert counts["total"] == sum(sizes.values())
    expected = TRAINED[method]
    if expected is None:  # all but the head that scores the vocabulary
        unread = {p: n for p, n in sizes.items() if p.startswith("network/head")}
        whole = [n for p, n in sizes.items() if p.startswith("network")]
        expected = sum(whole) - sum(unread.values()), 0
        assert unread and frozen == ("network/head",)
    assert (counts["network"], counts["extra"]) == expected
    assert counts["trained"] == sum(expected) + counts["head"]


def test_a_network_without_biases_has_no_bitfit(refuses):
    with refuses("adapt.method=bitfit", "no biases"):
        make_model("encoder", AdaptSpec("bitfit"), **T5)
    with refuses("adapt.method=bitfit", "no biases"):
        make_model("skip_gram", AdaptSpec("bitfit"))


def test_a_linear_probe_reads_states_without_dropout():
    batch = make_batch()
    keys = {"dropout": jax.random.key(0)}
    for method, is_same in (("linear_probe", True), ("full", False)):
        model, state, _ = make_model(
            "encoder", AdaptSpec(method), dropout=0.5, num_layers=1
        )
        states = functools.partial(model.states, state, batch)
        one, two = jax.jit(lambda f=states: (f(keys), f(None)))()
        assert np.array_equal(one, two) == is_same


NAMES = st.dictionaries(
    st.sampled_from(["bias", "kernel", "a_norm", "scale"]),
    st.recursive(
        st.just(0),
        lambda inner: st.dictionaries(
            st.sampled_from(["bias", "kernel", "mlp_norm", "scale"]), inner, min_size=1
        ),
        max_leaves=6,
    ),
    min_size=1,
)


@settings(max_examples=60)
@given(NAMES, st.sampled_from(["bitfit", "houlsby", "linear_probe", "full"]), st.data())
def test_short_paths_say_the_same_as_all_paths(network, method, data):
    spec = AdaptSpec(method)
    state = {"network": network, "head": {"out": {"kernel": 0}}, "extra": {}}
    names = [path.partition("/")[2] for path in paths_of({"network": network})]
    read = frozenset(data.draw(st.sets(st.sampled_from(names))))
    frozen = find_frozen(spec, state, read)
    for path, _ in jax.tree_util.tree_leaves_with_path(state):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        is_idle = name.startswith("network/") and name[8:] not in read
        assert is_frozen(path, frozen) == (is_idle or not is_trained(spec, name))


def test_every_setting_is_used_by_some_method():
    from jaxpt.nn.adaptation.adapt_spec import METHODS_READING

    fields = {field.name for field in dataclasses.fields(AdaptSpec)} - {"method"}
    assert set(METHODS_READING) == fields
    assert {x for who in METHODS_READING.values() for x in who} <= set(METHODS)
    with pytest.raises(UserError):
        AdaptSpec("lora", size=1)
