"""muP and CompleteP: initial values, factors, activations over widths and depths."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiny_refusals import check_refusal, refused

from jaxpt.learn.optim_spec import OptimSpec
from jaxpt.learn.optimizer import make_optimizer
from jaxpt.learn.scales import make_scales
from jaxpt.nn import scan
from jaxpt.nn.model_differences import find_differences
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.electra import Electra
from jaxpt.nn.networks.encoder_decoder import EncoderDecoder
from jaxpt.nn.networks.one_stack import CausalLM, MaskedLM, PairMaskedLM, SpanMaskedLM
from jaxpt.nn.parametrization import LeafScale, find_scale, fold, standardise
from jaxpt.nn.stacks import INTERMEDIATES
from jaxpt.ops import masks

SIZES = {
    "vocab_size": 23,
    "num_layers": 8,
    "d_model": 32,
    "num_heads": 4,
    "d_ff": 64,
    "max_len": 16,
}
# m_N = 4 and m_L = 8.
BASE = {"base_width": 8, "base_depth": 1}
DEEP = SIZES | BASE
IDS = jnp.arange(24).reshape(2, 12) * 7 % 23


def make_spec(parametrization="completep", **changes):
    return ModelSpec(**DEEP | {"parametrization": parametrization} | changes)


def draw_params(model, seed=0, std=0.3):
    """Parameters of a network, none of which is 0 or the same as another."""
    shapes = jax.eval_shape(model.init_params, jax.random.key(0))
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda x: (
            jnp.asarray(1 + rng.normal(0, std, x.shape), jnp.float32)
            if x.ndim == 1
            else jnp.asarray(rng.normal(0, std, x.shape), jnp.float32)
        ),
        shapes,
    )


def names(params):
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {scan.path_name(path): leaf for path, leaf in leaves}


KERNEL, BIAS = "encoder/layer_3/mlp/down/kernel", "encoder/layer_3/mlp/down/bias"
TABLE, NORM = "embed/tokens", "encoder/layer_3/attention_norm/scale"


@pytest.mark.parametrize(
    "parametrization, depth, branch",
    [("completep", 1.0, 0.125), ("depth_mup", 0.353553, 0.353553), ("mup", 1.0, 1.0)],
)
def test_the_factors_of_the_reference(parametrization, depth, branch):
    """m_N = 4, m_L = 8: lr / 4 (.088388), decay x 4, residual .125, epsilon / 32."""
    spec = make_spec(parametrization)
    expected = {
        KERNEL: (0.25, depth),
        BIAS: (1, depth),
        NORM: (1, depth),
        TABLE: (1, 1),
        "embed/positions/table": (1, 1),
        "encoder/relative/table": (1, 1),
        "encoder/disentangled/table": (1, 1),
        "encoder/norm/scale": (1, 1),
        "head/out/kernel": (1, 1),
        "head/bias": (1, 1),
        "head/transform/kernel": (0.25, 1),
        "head/transform/bias": (1, 1),
        "score/Dense_0/kernel": (0.25, 1),
        "score/out/kernel": (1, 1),
        "pair_score/pool/kernel": (0.25, 1),
        "extra/layer_2/merge/kernel": (0.25, 1),
        "extra/layer_2/layer/mlp/up/kernel": (0.25, depth),
        "extra/layer_2/norm/scale": (1, 1),
    }
    for path, (width, by_depth) in expected.items():
        scale = find_scale(spec, path)
        np.testing.assert_allclose(scale, (width, by_depth, branch / 4), 1e-5, 0, path)
        scanned = path.replace("layer_3", "layers")
        assert find_scale(spec, scanned) == scale
    assert spec.residual_scale(8) == pytest.approx(branch, rel=1e-5)
    assert spec.width_ratio == 4


def test_a_standard_model_has_no_factors():
    spec = make_spec("standard")
    assert spec.residual_scale(8) == spec.width_ratio == 1
    for path in (KERNEL, BIAS, NORM, TABLE):
        assert find_scale(spec, path) == LeafScale()


NETWORKS = {
    "causal": (CausalLM, {"tie_embeddings": False, "head_bias": True}),
    "masked": (SpanMaskedLM, {"head_transform": True, "head_bias": True}),
    "pairs": (PairMaskedLM, {"num_types": 2}),
    "seq2seq": (EncoderDecoder, {"num_decoder_layers": 2, "positions": "relative"}),
    "gated": (CausalLM, {"gated_mlp": True, "qk_norm": "scaled", "smear": True}),
}


@pytest.mark.parametrize("init", ["normal", "truncated"])
@pytest.mark.parametrize("name", NETWORKS)
def test_initial_values(name, init):
    """Those of a standard model, of which kernels of layers are halved at m_N = 4."""
    kind, changes = NETWORKS[name]
    spec = make_spec(init=init, **changes)
    key = jax.random.key(3)
    ours = names(kind(spec).init_params(key))
    standard = names(kind(standardise(spec)).init_params(key))
    assert ours.keys() == standard.keys()
    num = 0
    for path, leaf in ours.items():
        is_head = path.startswith(("head/out", "score/out", "pair_score/out"))
        is_halved = path.endswith("/kernel") and not is_head
        num += is_halved
        factor = 0.5 if is_halved else 1.0
        np.testing.assert_allclose(leaf, factor * standard[path], 1e-6, err_msg=path)
        assert find_scale(spec, path).width == (0.25 if is_halved else 1.0), path
    assert num >= 2
    tables = [x for path, x in ours.items() if path == "embed/tokens"]
    assert abs(np.std(tables[0]) / 0.02 - 1) < (0.2 if init == "normal" else 0.25)


def test_a_model_of_the_base_sizes_is_a_standard_one():
    same = {"base_width": 32, "base_depth": 8}
    for name, (kind, changes) in NETWORKS.items():
        changes |= {"num_decoder_layers": 8} if name == "seq2seq" else {}
        spec = make_spec(**changes | same)
        ours = names(kind(spec).init_params(jax.random.key(0)))
        expected = names(kind(standardise(spec)).init_params(jax.random.key(0)))
        for path, leaf in ours.items():
            np.testing.assert_array_equal(leaf, expected[path])
            assert find_scale(spec, path) == LeafScale(), path
        assert spec.residual_scale(8) == 1


def scale_by_hand(flat, branch, decoder_branch=1.0):
    """A network's parameters with the factors of its branches in their last layer."""
    ends = ("attention/out/kernel", "attention/out/bias", "cross/out/kernel")
    ends += ("cross/out/bias", "mlp/down/kernel", "mlp/down/bias")
    return {
        path: leaf * (decoder_branch if "decoder/" in path else branch)
        if path.endswith(ends)
        else leaf
        for path, leaf in flat.items()
    }


def nest(flat):
    out = {}
    for path, leaf in flat.items():
        *above, last = path.split("/")
        place = out
        for part in above:
            place = place.setdefault(part, {})
        place[last] = leaf
    return out


def close(a, b, tolerance=2e-5):
    a, b = np.asarray(a), np.asarray(b)
    np.testing.assert_allclose(a, b, tolerance, tolerance * np.abs(b).max())


@pytest.mark.parametrize("is_scanned", [False, True])
@pytest.mark.parametrize("is_parallel", [False, True])
def test_branches_and_logits_have_their_factors(is_scanned, is_parallel):
    """The head's bias has none."""
    changes = {"tie_embeddings": False, "head_bias": True}
    spec = make_spec(**changes, parallel_residual=is_parallel)
    params = draw_params(CausalLM(spec))
    flat = scale_by_hand(names(params), 0.125)
    flat["head/out/kernel"] = flat["head/out/kernel"] / 4
    expected = CausalLM(standardise(spec)).next_logits(nest(flat), IDS)
    if is_scanned:
        spec = dataclasses.replace(spec, scan_layers=True)
        params = scan.stack_layers(params)
    close(CausalLM(spec).next_logits(params, IDS), expected)
    wrong = CausalLM(standardise(spec)).next_logits(params, IDS)
    assert np.abs(wrong - expected).max() > 0.1


def test_each_stack_has_its_own_depth():
    """m_L = 8 of the encoder and 2 of the decoder; cross-attention is a branch too."""
    spec = make_spec(num_decoder_layers=2, tie_embeddings=False)
    params = draw_params(EncoderDecoder(spec))
    flat = scale_by_hand(names(params), 0.125, 0.5)
    flat["head/out/kernel"] = flat["head/out/kernel"] / 4
    attn_masks = {"self": masks.full(), "dec_self": masks.causal()}
    attn_masks["cross"] = masks.full()

    def run(spec, params):
        args = IDS, attn_masks, IDS[:, :5]
        return EncoderDecoder(spec).apply({"params": params}, *args, deterministic=True)

    close(run(spec, params), run(standardise(spec), nest(flat)))
    half = make_spec("depth_mup", num_decoder_layers=2)
    path = "decoder/layer_1/cross/query/bias"
    assert find_scale(half, path).depth == pytest.approx(2**-0.5)
    assert find_scale(half, path).epsilon == pytest.approx(2**-0.5 / 4)


@pytest.mark.parametrize("tied", [True, False])
def test_all_readers_of_logits_read_the_same(tied):
    spec = make_spec(
        tie_embeddings=tied, head_bias=True, logit_softcap=3.0, loss_chunk=4
    )
    model = CausalLM(spec)
    params = draw_params(model)
    logits = model.next_logits(params, IDS)
    log_probs = jax.nn.log_softmax(logits[:, :-1])
    nll = -jnp.take_along_axis(log_probs, IDS[:, 1:, None], -1)[..., 0]
    close(model.token_nll(params, IDS), nll)
    states = model.features(params, IDS)

    def call(method, *args):
        return model.apply({"params": params}, *args, method=method)

    ones = jnp.ones(IDS[:, 1:].shape)
    close(call("score", states[:, :-1], IDS[:, 1:], ones).loss[0], nll.sum())
    close(call("token_scores", states[:, :-1], IDS[:, 1:])[0], nll)
    decoder = model.make_decoder()
    converted, lengths = decoder.convert_params(params), jnp.full(2, 11)
    last, cache = decoder.prefill(converted, IDS[:, :11], lengths, 1)
    close(last, logits[:, 10])
    close(decoder.step(converted, IDS[:, 11], cache)[0], logits[:, 11])
    x, kernel, bias = call("read", states)
    capped = 3 * jnp.tanh((x @ kernel + bias) / 3)
    close(capped, logits)


FOLDED = {
    "tied": ("causal", CausalLM, {}),
    "offset": ("causal", CausalLM, {"norm": "rmsnorm", "norm_offset": True}),
    "offset_bias": ("causal", CausalLM, {"norm_offset": True, "norm_bias": True}),
    "offset_untied": (
        "causal",
        CausalLM,
        {"norm": "rmsnorm", "norm_offset": True, "tie_embeddings": False},
    ),
    "offset_pairs": (
        "pretraining",
        PairMaskedLM,
        {"num_types": 2, "norm": "rmsnorm", "norm_offset": True},
    ),
    "untied": ("causal", CausalLM, {"tie_embeddings": False, "head_bias": True}),
    "masked": ("masked", MaskedLM, {"head_transform": True, "head_bias": True}),
    "embed_norm": ("masked", MaskedLM, {"embed_norm": True, "norm_bias": False}),
    "bias": ("masked", MaskedLM, {"head_bias": True, "scan_layers": True}),
    "pairs": ("pretraining", PairMaskedLM, {"num_types": 2}),
    "pairs_bert": ("pretraining", PairMaskedLM, {"head_transform": True}),
}


@pytest.mark.parametrize("parametrization", ["completep", "depth_mup", "mup"])
@pytest.mark.parametrize("name", FOLDED)
def test_folded_models_compute_the_same(name, parametrization):
    head, kind, changes = FOLDED[name]
    spec = make_spec(parametrization, **changes)
    model = kind(spec)
    params = draw_params(model)
    plain, folded = fold(spec, params, head)
    assert plain.parametrization == "standard" and not find_differences(
        plain, standardise(spec)
    )
    args = IDS, {"self": masks.causal()}
    expected = model.apply({"params": params}, *args, deterministic=True)
    result = kind(plain).apply({"params": folded}, *args, deterministic=True)
    for ours, theirs in zip(
        jax.tree.leaves(result), jax.tree.leaves(expected), strict=True
    ):
        close(ours, theirs)
    unfolded = kind(plain).apply({"params": params}, *args, deterministic=True)
    first = jax.tree.leaves(unfolded)[0]
    assert np.abs(first - jax.tree.leaves(expected)[0]).max() > 0.1
    # Without a head the states are those of the run.
    _, body = fold(spec, params)
    close(kind(plain).features(body, IDS), model.features(params, IDS))


def test_folded_parts_of_electra():
    spec = make_spec(head_bias=True, head_transform=True)
    small = dataclasses.replace(spec, d_model=16, num_heads=2, d_ff=32)
    model = Electra(small, spec, sharing="separate")
    params = draw_params(model)
    scales = make_scales(model)
    key = jax.tree_util.DictKey
    by_part = {
        part: scales.find(
            (key(part), *map(key, "encoder/layer_0/mlp/up/kernel".split("/")))
        )
        for part in ("generator", "discriminator")
    }
    assert by_part["generator"] == (0.5, 1, 1 / 16)
    assert by_part["discriminator"] == (0.25, 1, 1 / 32)
    parts = model.export_parts(params)
    read = {"discriminator": model.replaced_logits, "generator": model.fill_logits}
    for head, (part_spec, part) in parts.items():
        plain, folded = fold(part_spec, part, head)
        if head == "generator":
            ours = MaskedLM(plain).fill_logits(folded, IDS)
        else:
            alone = Electra(plain, plain, sharing="separate")
            rest = {k: v for k, v in folded.items() if k not in ("embed", "score")}
            joined = {"embed": folded["embed"], "score": folded["score"]}
            ours = alone.replaced_logits(
                joined | {"discriminator": rest, "generator": params["generator"]}, IDS
            )
        close(ours, read[head](params, IDS))


def test_factors_decide_whether_models_are_the_same():
    spec = make_spec()
    assert not find_differences(spec, spec)
    other = dataclasses.replace(spec, base_width=16)
    assert find_differences(spec, other) == [("base_width", 16)]
    standard = standardise(spec)
    assert ("parametrization", "standard") in find_differences(spec, standard)
    moved = dataclasses.replace(standard, base_width=99, base_depth=9)
    assert not find_differences(standard, moved)
    mup = make_spec("mup")
    assert not find_differences(mup, dataclasses.replace(mup, base_depth=5))


REFUSED = """
    norm_position=post: must be pre with model.parametrization=completep
    norm_position=output; norm_position=both
    init=gpt2: must be normal or truncated with
    init=t5; init=torch
    embedding_size=8: must be 0 or model.d_model with
    transform_size=8 & head_transform=True & tie_embeddings=False: must be 0 or
    scale_attention=False: must be True with
    scale_embeddings=True; scale_logits=True; value_embeddings=True
    norm_scale=False; attention_out_norm=after; depth_sums=True; layer_sums=True
    base_width=0; base_depth=0
"""


@pytest.mark.parametrize(
    "make, parts", refused(ModelSpec, "model", REFUSED, parametrization="completep")
)
def test_models_without_rules_are_refused(make, parts, refuses):
    check_refusal(make, parts, refuses)


def test_multipliers_have_no_rules(refuses):
    with refuses("model.multipliers=(12.0, 0.22, 8.0)", "must be ()", "completep"):
        ModelSpec(parametrization="completep", multipliers=(12.0, 0.22, 8.0))
    with refuses("model.multipliers", "three numbers above 0"):
        ModelSpec(multipliers=(12.0, 0.0, 8.0))


def test_a_parametrization_has_a_known_name(refuses):
    with refuses("model.parametrization=ntk", "standard, mup, depth_mup, completep"):
        ModelSpec(parametrization="ntk")


def test_parameters_without_a_rule_are_refused(refuses):
    with refuses("model.parametrization=completep", "latent/first/kernel"):
        find_scale(make_spec(), "latent/first/kernel")
    for name, (kind, changes) in NETWORKS.items():  # and all others have one
        params = names(
            jax.eval_shape(kind(make_spec(**changes)).init_params, jax.random.key(0))
        )
        for path in params:
            find_scale(make_spec(**changes), path)


COORDINATES = {"widths": (32, 96, 256), "depths": (2, 6, 16)}
NUM_SEEDS, NUM_STEPS, RATE = 3, 10, 4e-3


def train_briefly(parametrization, width, depth):
    """The mean |last residual| after 10 steps of AdamW, tuned at width 32, depth 2.

    NumPy draws the parameters; that the network draws the same ones is tested above.
    """
    spec = ModelSpec(
        vocab_size=64,
        d_model=width,
        num_layers=depth,
        num_heads=width // 16,
        d_ff=2 * width,
        positions="none",
        parametrization=parametrization,
        base_width=32,
        base_depth=2,
        scan_layers=True,
    )
    model, rng = CausalLM(spec), np.random.default_rng(0)
    optim = OptimSpec(lr=RATE, schedule="constant", weight_decay=0.1, beta2=0.95)
    scales = None if parametrization == "standard" else make_scales(model)
    optimizer = make_optimizer(optim, NUM_STEPS + 1, (), scales)
    ids = jnp.asarray(rng.integers(0, 64, (4, 8)))

    def draw(path, leaf):
        name, shape = scan.path_name(path), (NUM_SEEDS, *leaf.shape)
        if not name.endswith(("kernel", "tokens")):
            return jnp.full(shape, float(name.endswith("scale")))
        std = 0.02 / (spec.width_ratio**0.5 if "kernel" in name else 1)
        return jnp.asarray(rng.normal(0, std, shape), jnp.float32)

    def loss(params):
        logits, captured = model.apply(
            {"params": params},
            ids,
            {"self": masks.causal()},
            deterministic=True,
            mutable=[INTERMEDIATES],
        )
        states = captured[INTERMEDIATES]["encoder"]["layers"]["states"][0]
        nll = optax.softmax_cross_entropy_with_integer_labels(
            logits[:, :-1], ids[:, 1:]
        )
        return nll.mean(), jnp.abs(states[-1]).mean()

    def step(carry, _):
        params, opt_state = carry
        grads, size = jax.grad(loss, has_aux=True)(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), size

    @jax.jit
    @jax.vmap
    def train(params):
        start = params, optimizer.init(params)
        return jax.lax.scan(step, start, None, NUM_STEPS + 1)[1][-1]

    shapes = jax.eval_shape(model.init_params, jax.random.key(0))
    return float(train(jax.tree_util.tree_map_with_path(draw, shapes)).mean())


def test_activations_do_not_grow_with_the_size():
    """Slopes of log2 mean |last residual| at step 10: below .1; standard: above .5."""
    base = train_briefly("standard", 32, 2)  # of all, as m_N = m_L = 1
    slopes = {}
    for name in ("standard", "completep"):
        for axis, sizes in COORDINATES.items():
            points = [(n, 2) if axis == "widths" else (32, n) for n in sizes[1:]]
            values = [base, *(train_briefly(name, *point) for point in points)]
            slopes[name, axis] = np.polyfit(np.log2(sizes), np.log2(values), 1)[0]
    print(slopes)
    for (name, axis), slope in slopes.items():
        is_good = slope > 0.5 if name == "standard" else abs(slope) < 0.1
        assert is_good, (name, axis, slope)
