"""Every network: its abilities, and what their results depend on."""

import dataclasses
import functools
import importlib
import itertools
import pkgutil
import re
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpt.errors import ConfigError
from jaxpt.nn import networks
from jaxpt.nn.layers import Norm
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks import abilities
from jaxpt.nn.networks.bilm import BiLm
from jaxpt.nn.networks.diffusion import DiffusionLM, ShiftedDiffusionLM
from jaxpt.nn.networks.electra import Electra, ElectraNetwork, RestoringElectra
from jaxpt.nn.networks.encoder_decoder import EncoderDecoder
from jaxpt.nn.networks.multi_token import MultiTokenLM
from jaxpt.nn.networks.network import Network, TransformerNetwork
from jaxpt.nn.networks.one_stack import (
    CausalLM,
    CausalMaskedLM,
    MaskedLM,
    PairMaskedLM,
    PrefixLM,
    SpanMaskedLM,
)
from jaxpt.nn.networks.skip_gram import SkipGram
from jaxpt.nn.networks.student_teacher import (
    CausalStudent,
    MaskedStudent,
    StudentTeacher,
)
from jaxpt.nn.stacks import Layer
from jaxpt.nn.transformer import Transformer
from jaxpt.setting_types import OneOf

V, B, T = 11, 2, 6
SPEC = ModelSpec(
    vocab_size=V, num_layers=2, d_model=16, num_heads=2, d_ff=24, max_len=16
)
# Parameters that no other size has, but for those of the table of relative positions.
MOST = {
    "embedding_size": 8,
    "num_types": 2,
    "gated_mlp": True,
    "tie_embeddings": False,
    "head_bias": True,
    "head_transform": True,
}
# Base classes, which are not networks themselves.
BASES = (Network, TransformerNetwork, StudentTeacher, ElectraNetwork)
# The methods of each ability, and the networks that have it.
CAUSAL = {CausalLM, CausalMaskedLM, CausalStudent, MultiTokenLM}
DIFFUSION = {DiffusionLM, ShiftedDiffusionLM}
FILLING = DIFFUSION | {
    *(MaskedLM, PairMaskedLM, SpanMaskedLM, CausalMaskedLM),
    *(MaskedStudent, Electra, RestoringElectra),
}
SEQ2SEQ = {EncoderDecoder}
ABILITIES = {
    abilities.FillsGaps: (),  # the objective fill_in_the_middle has its own network
    abilities.PredictsNext: CAUSAL,
    abilities.HasLikelihood: CAUSAL | {BiLm},
    abilities.BoundsLikelihood: DIFFUSION,
    abilities.FillsMasks: FILLING,
    abilities.Unmasks: DIFFUSION,
    abilities.WritesText: CAUSAL | {PrefixLM} | SEQ2SEQ,
    abilities.DecodesAnswers: SEQ2SEQ,
    abilities.ResolvesRatio: {Electra},
    abilities.DetectsReplaced: {Electra},
    abilities.ScoresTexts: CAUSAL | FILLING | {PrefixLM, BiLm} | SEQ2SEQ,
    abilities.ScoresCandidates: CAUSAL | FILLING | {PrefixLM, BiLm} | SEQ2SEQ,
    abilities.HasTransformer: CAUSAL | FILLING | {PrefixLM} | SEQ2SEQ,
}


def shrink(spec):
    """A generator for a discriminator of these sizes."""
    half = {"d_model": 8, "embedding_size": spec.embedding_dim, "num_heads": 1}
    head = {"tie_embeddings": True, "head_transform": True, "head_bias": True}
    return dataclasses.replace(spec, d_ff=12, **half, **head)


def restoring(spec):
    """A second network of these sizes with a head that restores tokens."""
    return dataclasses.replace(spec, head_transform=True, head_bias=True)


def pair(kind, spec):
    """A student, and a teacher of one layer more."""
    return kind(spec, dataclasses.replace(spec, num_layers=3), 2.0)


def spell(spec):
    """ELMo's network for ids that are written a, b, c, ..."""
    pieces = tuple(bytes([97 + i]) for i in range(V))
    return BiLm(spec, pieces, (), 6, 4, (4, 8, 4), 1, 3.0, 3.0)


MAKE = {
    CausalLM: CausalLM,
    MaskedLM: MaskedLM,
    DiffusionLM: DiffusionLM,
    ShiftedDiffusionLM: ShiftedDiffusionLM,
    PrefixLM: PrefixLM,
    CausalMaskedLM: CausalMaskedLM,
    PairMaskedLM: lambda spec: PairMaskedLM(dataclasses.replace(spec, num_types=2)),
    SpanMaskedLM: lambda spec: SpanMaskedLM(spec, num_places=3, place_width=5),
    MultiTokenLM: lambda spec: MultiTokenLM(spec, num_extra=2),
    EncoderDecoder: lambda spec: EncoderDecoder(
        dataclasses.replace(spec, num_decoder_layers=1)
    ),
    Electra: lambda spec: Electra(shrink(spec), spec),
    RestoringElectra: lambda spec: RestoringElectra(shrink(spec), restoring(spec)),
    MaskedStudent: functools.partial(pair, MaskedStudent),
    CausalStudent: functools.partial(pair, CausalStudent),
    BiLm: spell,
    SkipGram: SkipGram,
}
every = pytest.mark.parametrize("kind", MAKE, ids=lambda kind: kind.__name__)


def make(kind, **values):
    spec = dataclasses.replace(SPEC, **values)
    return MAKE[kind](spec.direct(kind.READS_AHEAD))


@functools.cache
def shapes_of(model):
    return jax.eval_shape(model.init_params, jax.random.key(0))


def draw(model):
    """Parameters drawn by NumPy, far enough apart that all that is read shows."""
    normal = np.random.default_rng(0).normal
    return jax.tree.map(
        lambda x: jnp.asarray(normal(0, 0.3, x.shape), x.dtype), shapes_of(model)
    )


def paths_of(tree):
    """The leaves of a tree by their paths."""
    pairs = jax.tree_util.tree_leaves_with_path(tree)
    name = functools.partial(jax.tree_util.keystr, simple=True, separator="/")
    return {name(path): leaf for path, leaf in pairs}


def test_these_are_all_the_kinds_there_are():
    result = set()
    for module in pkgutil.iter_modules(networks.__path__):
        module = importlib.import_module(f"{networks.__name__}.{module.name}")
        result |= {x for x in vars(module).values() if isinstance(x, type)}
    assert {x for x in result if issubclass(x, Network)} - set(BASES) == set(MAKE)


@pytest.mark.slow_except("MaskedLM", "PrefixLM", "SkipGram")
@every
def test_a_network_has_the_abilities_whose_methods_it_has(kind):
    for ability, kinds in ABILITIES.items():
        assert isinstance(make(kind), ability) == (kind in kinds), ability
        assert issubclass(type(make(kind)), kind)
    declared = {x for x in vars(abilities).values() if getattr(x, "_is_protocol", 0)}
    assert declared - {typing.Protocol} == set(ABILITIES)
    ways = {CausalLM: "left_to_right", EncoderDecoder: "left_to_right", MaskedLM: ""}
    if kind in ways:
        assert abilities.name_writing(make(kind)) == ways[kind]


def name_methods(model):
    """The methods that score plain text, of a network's abilities."""
    names = {
        abilities.FillsMasks: "fill_logits",
        abilities.PredictsNext: "next_logits",
        abilities.HasLikelihood: "token_nll",
    }
    return [name for ability, name in names.items() if isinstance(model, ability)]


@every
def test_scores_of_plain_text_have_their_shapes(kind):
    model, params = make(kind), shapes_of(make(kind))
    tokens = jax.ShapeDtypeStruct((B, T), jnp.int32)
    shapes = dict.fromkeys(("fill_logits", "next_logits"), (B, T, V))
    shapes["token_nll"] = (B, T - 1)
    for name in name_methods(model):
        result = jax.eval_shape(getattr(model, name), params, tokens)
        assert result.shape == shapes[name] and result.dtype == jnp.float32, name
    features = jax.eval_shape(model.features, params, tokens)
    assert features.shape == (B, T, 32 if kind is BiLm else 16)


@pytest.mark.slow_except("SkipGram", "MaskedStudent", "EncoderDecoder")
@every
def test_what_may_see_ahead_does_and_no_prediction_of_the_next(kind):
    """Two rows that differ from place 4 on."""
    model = make(kind)
    tokens = jnp.array([[3, 1, 4, 1, 5, 9], [3, 1, 4, 1, 2, 6]])
    names = ("features", *name_methods(model))
    ask = jax.jit(lambda p, t: {name: getattr(model, name)(p, t) for name in names})
    result = jax.device_get(ask(draw(model), tokens))
    moved = {
        name: np.abs(x[0] - x[1]).reshape(len(x[0]), -1).max(-1) > 1e-4
        for name, x in result.items()
    }
    # word2vec's features depend on the token alone.
    sees_ahead = kind.READS_AHEAD and kind is not SkipGram
    assert moved["features"].tolist() == [sees_ahead] * 4 + [True] * 2
    if "fill_logits" in result:
        # Nothing predicts the first place of these.
        blind = int(kind in (CausalMaskedLM, ShiftedDiffusionLM))
        assert moved["fill_logits"].tolist() == [False] * blind + [True] * (T - blind)
    if "next_logits" in result:
        assert moved["next_logits"].tolist() == [False] * 4 + [True] * 2
        shares = jax.nn.log_softmax(result["next_logits"])[:, :-1]
        expected = -jnp.take_along_axis(shares, tokens[:, 1:, None], -1)[..., 0]
        np.testing.assert_allclose(result["token_nll"], expected, rtol=1e-5)
    if "token_nll" in result:  # of tokens 1 to 5
        assert moved["token_nll"].tolist() == [False] * 3 + [True] * 2


# Where no token sees what follows it, and which of several networks is read.
BLIND = (CausalLM, CausalStudent, MultiTokenLM)
READ = {Electra: "discriminator", RestoringElectra: "discriminator"}
READ |= {MaskedStudent: "student", CausalStudent: "student"}


def layers_by_hand(kind, model, params, tokens):
    """What the first layer reads and what each gives, called one after the other."""
    if kind is SkipGram:
        return params["words"][tokens][None]
    if kind is BiLm:
        place = np.arange(T)
        seen = {"forward": place[:, None] >= place, "backward": place[:, None] <= place}
        seen = {name: jnp.asarray(mask)[None, None] for name, mask in seen.items()}
        call = {"deterministic": True, "method": "read"}
        words, *both = model.apply({"params": params}, tokens, seen, **call)
        pairs = [(words, words), *zip(*both, strict=True)]
        return jnp.stack([jnp.concatenate(pair, axis=-1) for pair in pairs])
    if kind in READ:
        shared = ("embed",) if issubclass(kind, ElectraNetwork) else ()
        params = {name: params[name] for name in shared} | params[READ[kind]]
    spec = model.spec

    def embed(network):
        return network.embed(tokens, deterministic=True)

    mask = np.tril(np.ones((T, T), bool)) if kind in BLIND else np.ones((T, T), bool)
    states = [Transformer(spec).apply({"params": params}, method=embed)]
    for i in range(spec.num_layers):
        own = {"params": params["encoder"][f"layer_{i}"]}
        rest = jnp.asarray(mask)[None, None], None, None, None, None
        result, *_ = Layer(spec).apply(own, states[-1], *rest, deterministic=True)
        states.append(result)
    norm = {"params": params["encoder"]["norm"]}
    return jnp.stack([*states[:-1], Norm(spec).apply(norm, states[-1])])


@pytest.mark.slow_except("SkipGram")
@every
def test_every_layers_states_are_those_of_the_layers_one_by_one(kind):
    model, tokens = make(kind), jnp.array([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]])
    params = draw(model)
    read_both = jax.jit(lambda p, t: [model.layer_features(p, t), model.features(p, t)])
    result, last = read_both(params, tokens)
    assert result.shape[0] == (1 if kind is SkipGram else 3)
    expected = layers_by_hand(kind, model, params, tokens)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    # Features are the last layer's; ELMo's are the mean of all.
    top = result.mean(0) if kind is BiLm else result[-1]
    np.testing.assert_allclose(last, top, rtol=1e-5, atol=1e-6)


@pytest.mark.slow_cases("CausalLM", "PrefixLM", "CausalStudent", "CausalMaskedLM")
@every
def test_a_decoder_goes_on_as_the_network_predicts(kind):
    model = make(kind)
    if not isinstance(model, abilities.WritesText):
        return
    decoder = model.make_decoder(7)
    # Only a decoder with an encoder has a start token.
    assert decoder.start_id == (7 if kind.HAS_DECODER else None)
    assert decoder.max_len == SPEC.max_len

    def write(params, prompts):
        params = decoder.convert_params(params)
        logits, cache = decoder.prefill(params, prompts, jnp.array([T, T]), 2)
        return logits, decoder.step(params, prompts[:, 0], cache)[0]

    prompts = jnp.array([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]])
    if not isinstance(model, abilities.PredictsNext):
        result = jax.eval_shape(write, shapes_of(model), prompts)
        assert [x.shape for x in result] == [(B, V)] * 2
        return
    params = draw(model)
    longer = jnp.concatenate([prompts, prompts[:, :1]], axis=1)
    expected = jax.jit(model.next_logits)(params, longer)
    result = jax.jit(write)(params, prompts)
    np.testing.assert_allclose(
        jnp.stack(result, 1), expected[:, -2:], rtol=1e-4, atol=1e-4
    )


# The network with the parameters of a part, and the part's additional ones.
PARTS = {
    "causal": (CausalLM, ()),
    "masked": (MaskedLM, ()),
    "seq2seq": (EncoderDecoder, ()),
    "pretraining": (PairMaskedLM, ()),
    "generator": (MaskedLM, ()),
    "discriminator": (MaskedLM, ("score",)),
}
# Parameters that are not exported, hence not read back.
LOST = {SpanMaskedLM: ("boundary",), MaskedStudent: ("teacher",)}
LOST[MultiTokenLM] = ("extra",)
LOST[CausalStudent] = LOST[MaskedStudent]


@every
def test_what_is_exported_is_read_back(kind):
    model = make(kind)
    params = shapes_of(model)
    parts = model.export_parts(params)
    assert tuple(parts) == kind.HEADS
    joined = model.join_parts({name: part for name, (_, part) in parts.items()})
    if not parts:
        assert joined == {}
        return
    lost = LOST.get(kind, ())
    expected = {name: x for name, x in params.items() if name not in lost}
    expected, result = paths_of(expected), paths_of(joined)
    assert set(result) == set(expected)
    assert all(result[path] is expected[path] for path in expected)
    # Each is a network of the exported sizes.
    for head, (spec, part) in parts.items():
        alone, more = PARTS[head]
        rest = {name: x for name, x in part.items() if name not in more}
        if head == "discriminator":  # its head of the vocabulary is never trained
            assert set(rest) == {"embed", "encoder"}
            continue
        expected = shapes_of(alone(spec))
        assert jax.tree.map(jnp.shape, rest) == jax.tree.map(jnp.shape, expected)


@pytest.mark.parametrize("variant", ["replace_mlm", "all_tokens_mlm"])
def test_a_second_network_that_restores_tokens_is_a_masked_model(variant):
    spec = dataclasses.replace(SPEC, head_transform=True, head_bias=True)
    model = Electra(shrink(spec), spec, variant, sharing="separate")
    params = shapes_of(model)
    assert ("score" in params) == (variant == "all_tokens_mlm")
    parts = model.export_parts(params)
    assert set(parts) == {"generator", "masked"}
    for own, part in parts.values():
        expected = jax.tree.map(jnp.shape, shapes_of(MaskedLM(own)))
        assert jax.tree.map(jnp.shape, part) == expected


def test_pairs_are_read_where_there_are_any():
    alone = PairMaskedLM(SPEC, has_pairs=False)
    assert "pair_score" not in shapes_of(alone)
    assert set(alone.export_parts(shapes_of(alone))) == {"masked"}


@every
def test_only_a_teacher_is_frozen(kind):
    model, is_student = make(kind), issubclass(kind, StudentTeacher)
    assert model.frozen == (("teacher",) if is_student else ())
    if is_student:
        held = model.clone(freezes_positions=True)
        assert held.frozen == ("teacher", "student/embed/positions")


def sharding_rule(kind, path, leaf):
    """The rule of a parameter, whose axes are the parameter's."""
    for rule, axes in kind.RULES:
        if re.search(rf"(^|/)({rule})$", path):
            is_stacked = "layers" in path.split("/")  # a first axis of layers
            assert len(axes) + is_stacked == leaf.ndim, path
            return rule
    raise AssertionError(f"no rule for {path}")


def list_forms():
    """Each setting of the model that is a switch or a choice, at each other value."""
    hints = typing.get_type_hints(ModelSpec, include_extras=True)
    for field in dataclasses.fields(ModelSpec):
        marks = getattr(hints[field.name], "__metadata__", ())
        choices = [x for mark in marks if isinstance(mark, OneOf) for x in mark.choices]
        if isinstance(field.default, bool):
            choices = [True, False]
        yield from ({field.name: x} for x in choices if x != field.default)


# Settings that others need.
BOTH = {"positions": "none", "disentangled": "both"}
NEEDED = {
    "decoder_tokens": {"num_decoder_layers": 1},
    "disentangled": {"positions": "none"},
    "disentangled_norm": BOTH,
    "disentangled_projections": BOTH,
    "first_norm": {"embed_norm": True},
    "parametrization": {"embedding_size": 0},
    "post_embed_norm": {"norm_position": "post"},
    "relative_every_layer": {"positions": "relative"},
    "scale_logits": {"tie_embeddings": True},
    "shared_norm": {"parallel_residual": True},
}
# The networks that are made with every form; others with the layers' alone.
IN_ALL_FORMS = (CausalLM, MaskedLM, EncoderDecoder)


@pytest.fixture(scope="module")
def used_rules():
    """By kind, the rules that parameters have met."""
    used, made, forms = {kind: set() for kind in MAKE}, set(), list(list_forms())
    for kind, form in itertools.product(MAKE, forms):
        (name,) = form
        if kind not in IN_ALL_FORMS and name not in ("scan_layers", "positions"):
            continue
        try:
            model = make(kind, **MOST | NEEDED.get(name, {}) | form)
        except ConfigError:  # not with the settings of MOST, or of this network
            continue
        made.add(name)
        shapes = paths_of(shapes_of(model))
        if name == "scan_layers" and kind not in (BiLm, SkipGram):
            assert any("/layers/" in path for path in shapes)
        used[kind] |= {sharding_rule(kind, *pair) for pair in shapes.items()}
    assert made == {name for form in forms for name in form}
    return used


@pytest.mark.slow
def test_every_parameter_has_a_sharding_rule_and_every_rule_one(used_rules):
    for kind in MAKE:
        for rule, axes in kind.RULES:
            assert set(axes) <= {None, "fsdp", "tensor"}
            own = (used_rules[each] for each in MAKE if (rule, axes) in each.RULES)
            assert rule in set().union(*own), (kind, rule)


# A layer at 8 places: four of [16, 16], scores and their sum, two of [16, 24].
LAYER = 4 * 2 * 8 * 16 * 16 + 2 * 2 * 8 * 8 * 16 + 2 * 2 * 8 * 16 * 24
# Of one place that meets the vocabulary; a stack of two layers and P = 2 such places.
WORD = 2 * 16 * V
MASKED = 2 * LAYER + 2 * WORD
# Attention of a decoder's 8 places to an encoder's 8, which has its own four products.
CROSS = 4 * 2 * 8 * 16 * 16 + 2 * 2 * 8 * 8 * 16
# A generator of half the width: read from [V, 16] and written to it again.
SMALL = 4 * 2 * 8 * 8 * 8 + 2 * 2 * 8 * 8 * 8 + 2 * 2 * 8 * 8 * 12
GENERATOR = 2 * 8 * 16 * 8 + 2 * SMALL + 2 * (2 * 8 * 16 + WORD)
# Six characters of width 4: filters of 1, 2 and 3; a highway layer, the projection.
SPELT = 2 * 4 * (6 * 1 * 4 + 5 * 2 * 8 + 4 * 3 * 4) + 2 * 2 * 16 * 16 + 2 * 16 * 16
LSTM = 2 * (16 * 4 * 24 + 16 * 4 * 24 + 24 * 16)
FLOPS = {
    CausalLM: (8, 3 * (2 * LAYER + 8 * WORD)),
    # Two more layers, each after a product of [32, 16]; 8 places of three heads.
    MultiTokenLM: (24, 3 * (4 * LAYER + 2 * 2 * 8 * 32 * 16 + 24 * WORD)),
    PrefixLM: (8, 3 * (2 * LAYER + 8 * WORD)),
    **dict.fromkeys((MaskedLM, *DIFFUSION), (2, 3 * MASKED)),
    CausalMaskedLM: (10, 3 * (2 * LAYER + 10 * WORD)),
    # One state, [16, 16] and two logits.
    PairMaskedLM: (2, 3 * (MASKED + 2 * 16 * 16 + 2 * 16 * 2)),
    # Two states and 5 for the place, another [16, 16], the vocabulary once more.
    SpanMaskedLM: (
        2,
        3 * (MASKED + 2 * (2 * (2 * 16 + 5) * 16 + 2 * 16 * 16 + WORD)),
    ),
    EncoderDecoder: (8, 3 * (2 * LAYER + LAYER + CROSS + 8 * WORD)),
    # The discriminator's every place, [16, 16] and one logit.
    Electra: (2, 3 * (GENERATOR + 2 * LAYER + 8 * (2 * 16 * 16 + 2 * 16))),
    # The teacher's three layers once; both at every place.
    # The discriminator's masked places meet the vocabulary.
    RestoringElectra: (
        2,
        3 * (GENERATOR + 2 * LAYER + 2 * (2 * 16 * 16 + WORD)),
    ),
    MaskedStudent: (8, 3 * (2 * LAYER + 8 * WORD) + 3 * LAYER + 8 * WORD),
    CausalStudent: (8, 3 * (2 * LAYER + 8 * WORD) + 3 * LAYER + 8 * WORD),
    BiLm: (8, 3 * 8 * (SPELT + 2 * (2 * LSTM + WORD))),
    # 56 products of two vectors.
    SkipGram: (56, 3 * 56 * 2 * 16),
}
STACKS = {
    EncoderDecoder: ("encoder", "decoder"),
    Electra: ("generator", "discriminator"),
    RestoringElectra: ("generator", "discriminator"),
    MaskedStudent: ("student", "teacher"),
    CausalStudent: ("student", "teacher"),
    BiLm: ("forward", "backward"),
    SkipGram: ("words",),
}


@every
def test_operations_by_hand(kind):
    num_predictions, expected = FLOPS[kind]
    lengths = dict.fromkeys(STACKS.get(kind, ("encoder",)), 8)
    assert make(kind).count_flops(lengths, num_predictions) == expected > 0


@pytest.mark.parametrize(
    "variant, total",
    [
        ("electra_15", GENERATOR + 2 * LAYER + 8 * (2 * 16 * 16 + 2 * 16)),
        ("replace_mlm", GENERATOR + 2 * LAYER + 2 * (2 * 16 * 16 + WORD)),
        (
            "all_tokens_mlm",
            GENERATOR
            + 2 * LAYER
            + 8 * (2 * 16 * 16 + WORD)
            + 8 * (2 * 16 * 16 + 2 * 16),
        ),
    ],
)
def test_operations_of_electras_variants(variant, total):
    spec = dataclasses.replace(SPEC, head_transform=True, head_bias=True)
    model = Electra(shrink(spec), spec, variant)
    lengths = {"generator": 8, "discriminator": 8}
    assert model.count_flops(lengths, 2) == 3 * total
