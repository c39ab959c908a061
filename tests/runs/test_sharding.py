"""The table from parameter to sharding: nothing without a rule, by hand and by type."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import AbstractMesh, AxisType, PartitionSpec
from tiny import VARIANTS, make_config, prepare, slow

from jaxpt.config.sections import TrainSpec
from jaxpt.errors import UserError
from jaxpt.learn.state import make_state
from jaxpt.nn.networks.network import TRANSFORMER_RULES
from jaxpt.nn.presets import PRESETS, get_preset
from jaxpt.objectives import OBJECTIVES
from jaxpt.runs import sharding
from jaxpt.runs.sharding import partition, shape_mesh, shard_params, shard_state
from jaxpt.text.tokens.vocab import Vocab

SIZES = {"data": 2, "fsdp": 2, "tensor": 2}
MESH = AbstractMesh(
    tuple(SIZES.values()), tuple(SIZES), axis_types=(AxisType.Auto,) * len(SIZES)
)
FORMS = [*OBJECTIVES, *VARIANTS]
IDS = {"pad": 0, "mask": 1, "eos": 2, "cls": 3, "sep": 4, "nlu": 5, "nlg": 6, "s2s": 7}
TABLES = {"word_starts": (True,) * 64, "pieces": (b"piece",) * 64, "counts": (1,) * 64}
VOCAB = Vocab(size=64, **IDS, sentinels=tuple(range(8, 16)), **TABLES)


# Families whose parameters have the names and forms of another's.
ALIKE = {"gpt3": "gpt2", "roberta": "bert", "distilbert": "bert", "mistral": "llama"}
ALL_FORMS = ("gpt2", "bert", "t5")  # families: a decoder, an encoder, both


def make_shapes():
    """Networks and parameters of every preset (one layer), of what it serves.

    The first of a family under each kind of network, of `ALL_FORMS` under every
    objective; the others, of its parts, and those `ALIKE`, under one.
    """
    families, known = set(), {}  # several objectives train the same network
    for preset in PRESETS:
        family, num_served, kinds = preset.split("-")[0], 0, set()
        family = ALIKE.get(family, family)
        spec = get_preset(preset, vocab_size=VOCAB.size, num_layers=1)
        if spec.num_decoder_layers:
            spec = dataclasses.replace(spec, num_decoder_layers=1)
        for name in FORMS:
            if family in families and num_served:
                break
            objective, changes = VARIANTS.get(name, (name, {}))
            module = OBJECTIVES[objective]
            try:
                settings = module.Spec.for_seq_len(32, **changes)
                model = settings.make_network(spec, VOCAB)
            except UserError:
                continue
            if type(model) in kinds and family not in ALL_FORMS:
                continue
            kinds.add(type(model))
            if model not in known:
                known[model] = jax.eval_shape(model.init_params, jax.random.key(0))
            yield f"{preset} {name}", (model, known[model])
            num_served += 1
        families.add(family)
    spec = get_preset("gpt2", vocab_size=VOCAB.size, num_layers=1)
    changes = {"disentangled": "both", "disentangled_projections": True}
    changes |= {"value_embeddings": True, "smear": True, "depth_sums": True}
    spec = dataclasses.replace(spec, **changes)
    model = OBJECTIVES["clm"].Spec.for_seq_len(32).make_network(spec, VOCAB)
    options = jax.eval_shape(model.init_params, jax.random.key(0))
    yield "gpt2 clm options", (model, options)
    spec = dataclasses.replace(spec, depth_sums=False, layer_sums=True)
    model = OBJECTIVES["clm"].Spec.for_seq_len(32).make_network(spec, VOCAB)
    options = jax.eval_shape(model.init_params, jax.random.key(0))
    yield "gpt2 clm layer sums", (model, options)


@pytest.fixture(scope="module")
def shapes():
    return dict(make_shapes())


def make_bert():
    """The parameters of the first BERT under `mlm`, one layer."""
    spec = get_preset("bert-base", vocab_size=VOCAB.size, num_layers=1)
    model = OBJECTIVES["mlm"].Spec.for_seq_len(32).make_network(spec, VOCAB)
    return jax.eval_shape(model.init_params, jax.random.key(0))


def names_of(tree):
    pairs = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(p, simple=True, separator="/"): x for p, x in pairs}


@pytest.mark.slow
def test_every_parameter_of_every_family_has_a_rule(shapes):
    assert {name.split()[0] for name in shapes} == set(PRESETS)
    assert {name.split()[1] for name in shapes} == set(FORMS)
    result = {}  # parameters, by the rules of the networks that have them
    for model, params in shapes.values():
        for name, leaf in names_of(params).items():
            partition(name, leaf.shape, SIZES, model.RULES)
            result.setdefault(model.RULES, set()).add(name)
    names = set().union(*result.values())
    for rules, own in result.items():
        for rule, _ in rules:
            # Of those that all Transformers share, each is some network's.
            held = names if (rule, _) in TRANSFORMER_RULES else own
            assert any(re.search(f"(^|/)({rule})$", n) for n in held), f"unused: {rule}"


@pytest.mark.slow
def test_every_matrix_is_split_over_fsdp_and_tensor(shapes):
    """But small ones; what is whole on each device is no matrix."""
    small = r"words/table|types|positions|relative|disentangled|project|transform"
    small += r"|score|gate$"
    for model, params in shapes.values():
        for name, leaf in names_of(params).items():
            spec = partition(name, leaf.shape, SIZES, model.RULES)
            axes = [axis for axis in spec if axis]
            if leaf.ndim == 2 and not re.search(small, name):
                assert sorted(axes) == ["fsdp", "tensor"], name
            assert leaf.ndim < 2 or axes, name


def place(path, shape):
    return partition(path, shape, SIZES, TRANSFORMER_RULES)


def test_stacked_layers_have_the_rules_of_one():
    for path, shape, axes in [
        ("encoder/layer_3/mlp/up/kernel", (8, 16), ("fsdp", "tensor")),
        ("encoder/layers/mlp/up/kernel", (5, 8, 16), (None, "fsdp", "tensor")),
        ("decoder/layers/cross/out/kernel", (5, 8, 6), (None, "tensor", "fsdp")),
        ("encoder/layers/mlp_norm/scale", (4, 8), (None, None)),
    ]:
        assert place(path, shape) == PartitionSpec(*axes)


def test_the_tables_of_a_decoder_and_of_its_layers_have_the_rules_of_one():
    for path, shape, axes in (
        ("decoder_embed/tokens", (64, 8), ("tensor", "fsdp")),
        ("decoder/layers/relative/table", (6, 8, 4), (None, None, "tensor")),
    ):
        assert place(path, shape) == PartitionSpec(*axes)


def test_an_axis_that_does_not_divide_is_whole():
    for shape, axes in [((50257, 768), (None, "fsdp")), ((58, 767), ("tensor", None))]:
        assert place("embed/tokens", shape) == PartitionSpec(*axes)


@pytest.mark.parametrize(
    "path, shape",
    [
        ("encoder/layer_0/attention/novel/kernel", (8, 8)),
        ("embed/tokenss", (8, 8)),
        ("encoder/layer_0/mlp/up/kernel", (2, 8, 8)),
        ("encoder/layers/mlp/up/kernel", (8, 8)),
    ],
)
def test_no_rule_is_an_error_and_not_a_copy(path, shape):
    with pytest.raises(ValueError, match=path):
        place(path, shape)


def specs_of(state):
    return {
        name: placed.spec
        for name, placed in names_of(
            shard_state(state, MESH, TRANSFORMER_RULES)
        ).items()
    }


@pytest.mark.parametrize(
    "optimizer",
    [
        slow(optax.adamw(1e-3)),
        slow(optax.lamb(1e-3)),
        slow(optax.lion(1e-3)),
        slow(optax.contrib.muon(1e-3)),
        optax.chain(optax.clip_by_global_norm(1.0), optax.ema(0.9), optax.adam(1e-3)),
        optax.adafactor(1e-3, min_dim_size_to_factor=8),
    ],
)
def test_what_an_optimizer_keeps_lies_as_its_parameter(optimizer):
    params = make_bert()
    state = jax.eval_shape(lambda p: make_state(p, optimizer), params)
    result = specs_of(state)
    known = {
        name: (leaf.shape, spec)
        for (name, leaf), spec in zip(
            names_of(params).items(),
            (
                s.spec
                for s in jax.tree.leaves(shard_params(params, MESH, TRANSFORMER_RULES))
            ),
            strict=True,
        )
    }
    num_split = 0
    for name, leaf in names_of(state).items():
        own = [known[path] for path in known if name.endswith("/" + path)]
        if own and own[0][0] == leaf.shape:
            assert result[name] == own[0][1], name
            num_split += "opt_state" in name and any(own[0][1])
        else:
            assert result[name] == PartitionSpec(), name
            assert leaf.ndim < 2, name
    is_factored = any("v_row" in name for name in result)
    assert num_split > 10 or is_factored
    assert result["step"] == PartitionSpec()


@given(
    st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16]),
    st.integers(0, 8),
    st.integers(1, 8),
    st.integers(1, 4),
)
def test_a_mesh_is_all_devices_or_an_error(num_devices, fsdp, tensor, context):
    spec = TrainSpec(fsdp=fsdp, tensor=tensor, context=context)
    try:
        shape = shape_mesh(spec, num_devices)
    except UserError as error:
        assert "train.tensor=" in str(error)
        assert num_devices % (tensor * context * max(fsdp, 1))
        return
    assert shape[0] * shape[1] * shape[2] * shape[3] == num_devices
    assert shape[2:] == (context, tensor) and (shape[1] == fsdp or fsdp == 0)
    assert fsdp or shape[0] == 1


@pytest.mark.parametrize(
    "sizes, expected",
    [
        ({"tensor": 3}, "tensor=3: must divide the number of devices, 8"),
        (
            {"context": 3, "tensor": 2},
            "context=3: must, times train.tensor=2, divide the number of devices, 8",
        ),
        (
            {"fsdp": 3, "tensor": 2},
            "fsdp=3: must, times train.tensor=2, divide the 8 devices there are",
        ),
        (
            {"fsdp": 3, "tensor": 2, "context": 2},
            "fsdp=3: must, times train.tensor=2 and train.context=2, divide the 8 "
            "devices there are",
        ),
    ],
)
def test_the_setting_that_a_mesh_does_not_divide_is_named(sizes, expected):
    with pytest.raises(UserError) as caught:
        shape_mesh(TrainSpec(**sizes), 8)
    assert str(caught.value) == f"train.{expected}"


def make_mlm(speech, objective="mlm", **changes):
    return prepare(make_config(speech, objective, **changes))[0]


def check(task, shape):
    params = jax.eval_shape(task.model.init_params, jax.random.key(0))
    sharding.check_task(task, params, shape)


@pytest.mark.parametrize(
    "shape, changes, words",
    [
        ((2, 2, 1, 1), {"train__batch_size": 6}, "train.batch_size=6: .* 4 devices"),
        ((1, 2, 1, 4), {"train__batch_size": 9}, "multiple of 2 groups of 4 devices"),
        ((4, 1, 1, 1), {"train__num_microbatches": 4}, "train.num_microbatches=4"),
        ((1, 4, 1, 1), {"train__batch_size": 6}, "=6: must be a multiple of 4 devices"),
        (
            (4, 1, 1, 1),
            {"train__batch_size": 8, "train__batch_schedule": ((0.5, 0.25),)},
            "=8: the 2 rows of a phase must be a multiple of 4 devices",
        ),
        ((1, 1, 1, 4), {}, "train.tensor=4: must divide model.num_heads=2"),
        ((1, 1, 1, 2), {"model__d_ff": 33}, "must divide model.d_ff=33"),
        (
            (1, 1, 1, 4),
            {"model__num_heads": 8, "model__num_kv_heads": 2},
            "train.tensor=4: must divide model.num_kv_heads=2",
        ),
    ],
)
def test_what_a_mesh_does_not_divide_is_refused(shape, changes, words, speech):
    with pytest.raises(UserError, match=words):
        check(make_mlm(speech, **changes), shape)


@pytest.mark.parametrize(
    "objective, changes, words",
    [
        ("mlm", {}, "context=5: must divide the length of the encoder, 24 tokens"),
        ("clm", {"data__row_length": 25}, "length of the decoder, 24 tokens"),
        (
            "mlm",
            {"data__row_length": 23},
            r"23 tokens \(.*\); it does with data.row_length=25$",
        ),
        ("span_corruption", {"data__row_length": 30}, "length of the encoder, 28 "),
        (
            "ul2",
            {"data__row_length": 32, "train__context": 4},
            "encoder, .*; no data.row_length from 8 to 56 gives such lengths$",
        ),
        ("mlm", {"train__batch_size": 7}, "batch_size=7: .* multiple of 2 groups of 5"),
        (
            "mlm",
            {"data__row_length": 40, "train__length_schedule": ((0.5, 2),)}
            | {"model__max_len": 64, "train__context": 8},
            "train.context=8: must divide the length of the encoder of a phase, 20",
        ),
    ],
)
def test_lengths_that_a_mesh_does_not_divide_are_refused(
    objective, changes, words, speech
):
    if "batch_size" in words:
        changes = changes | {"data__row_length": 25}
    context = changes.get("train__context", 5)
    with pytest.raises(UserError, match=words):
        check(make_mlm(speech, objective, **changes), (2, 1, context, 1))


@pytest.mark.parametrize("objective, length", [("clm", 25), ("span_corruption", 30)])
def test_the_length_that_a_refusal_names_is_taken(objective, length, speech):
    def try_length(length):
        task = make_mlm(speech, objective, data__row_length=length)
        check(task, (2, 1, 5, 1))

    with pytest.raises(UserError) as caught:
        try_length(length)
    try_length(int(str(caught.value).rpartition("data.row_length=")[2]))


def test_each_network_must_divide(speech):
    task = make_mlm(speech, "electra", model__num_heads=4)
    check(task, (1, 1, 1, 2))
    with pytest.raises(UserError, match="the generator's num_heads=2"):
        check(task, (1, 1, 1, 4))


@pytest.mark.parametrize("field", ["fsdp", "context", "tensor"])
def test_pmap_only_shares_out_rows(field, refuses):
    TrainSpec(backend="pmap")
    with refuses(f"train.{field}=2", "train.backend=pmap"):
        TrainSpec(backend="pmap", **{field: 2})


def test_bytes_of_a_device_by_hand():
    def place(*axes):
        return jax.sharding.NamedSharding(MESH, PartitionSpec(*axes))

    shapes = {
        "a": jax.ShapeDtypeStruct((4, 8), jnp.float32, sharding=place("fsdp")),
        "b": jax.ShapeDtypeStruct((6,), jnp.bfloat16, sharding=place()),
    }
    assert sharding.count_bytes(shapes) == (64 + 12, 128 + 12)
