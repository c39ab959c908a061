"""What heads look at: the weights that made each layer's output, and no others."""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import slow_but

from jaxpt.nn import inspection
from jaxpt.nn.attention import WEIGHTS, Attention
from jaxpt.nn.layers import Dense
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.abilities import HasTransformer
from jaxpt.nn.networks.electra import Electra
from jaxpt.nn.networks.encoder_decoder import EncoderDecoder
from jaxpt.nn.networks.one_stack import CausalLM, CausalMaskedLM, MaskedLM, PrefixLM
from jaxpt.nn.networks.skip_gram import SkipGram
from jaxpt.nn.networks.student_teacher import MaskedStudent

T, START = 7, 3
SPEC = ModelSpec(
    vocab_size=11, num_layers=2, d_model=16, num_heads=4, d_ff=24, max_len=16
)
FORMS = {
    "learned": SPEC,
    "rotary, grouped": dataclasses.replace(SPEC, positions="rotary", num_kv_heads=2),
    "relative, unscaled": dataclasses.replace(
        SPEC, positions="relative", scale_attention=False
    ),
    "scanned": dataclasses.replace(SPEC, scan_layers=True, remat="full"),
}
MAKE = {
    "causal": CausalLM,
    "masked": MaskedLM,
    "seq2seq": lambda spec: EncoderDecoder(
        dataclasses.replace(spec, num_decoder_layers=2)
    ),
}


def make(kind, spec=SPEC):
    """A network, parameters that are far from even attention, and tokens."""
    network = MAKE.get(kind, kind)(spec)
    params = draw(network)
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, 11, (2, T)), jnp.int32)
    return network, params, tokens


ask = jax.jit(inspection.attention_weights, static_argnums=0)


def draw(network):
    """NumPy draws them: to compile the draws takes longer than the tests."""
    normal = np.random.default_rng(0).normal
    shapes = jax.eval_shape(network.init_params, jax.random.key(0))
    return jax.tree.map(lambda x: jnp.asarray(normal(0, 0.3, x.shape), x.dtype), shapes)


def record(function):
    """Every value projection and every attention's output, in the calls' order."""
    values, outputs = [], []

    def intercept(call, args, kwargs, context):
        out = call(*args, **kwargs)
        if context.method_name != "__call__":
            return out
        if isinstance(context.module, Dense) and context.module.name == "value":
            values.append(out)
        if isinstance(context.module, Attention):
            outputs.append(out[0])
        return out

    with nn.intercept_methods(intercept):
        result = function()
    return result, values, outputs


def find_stack(params, name, layer):
    stack, attention = inspection.PLACES[name]
    return params[stack][f"layer_{layer}"][attention]


QUICK = [
    ("causal", "rotary, grouped"),
    ("causal", "relative, unscaled"),
    ("seq2seq", "scanned"),
]
CASES = [(kind, form) for kind in MAKE for form in FORMS]


@pytest.mark.slow_cases("seq2seq-scanned", "causal-rotary, grouped")
@pytest.mark.parametrize("kind, form", slow_but(QUICK, CASES))
def test_the_weights_make_each_layers_output(kind, form):
    """The mask, the scale, the bias and the grouping of heads are the model's own."""
    spec = FORMS[form]
    network, params, tokens = make(kind, spec)
    result, values, outputs = jax.jit(
        lambda p: record(
            lambda: inspection.attention_weights(network, p, tokens, START)
        )
    )(params)
    names = ["self", "dec_self", "cross"][: 3 if kind == "seq2seq" else 1]
    assert set(result) == set(names)
    order = [("self", i) for i in (0, 1)]
    if kind == "seq2seq":
        order += [(name, i) for i in (0, 1) for name in ("dec_self", "cross")]
    assert len(values) == len(outputs) == len(order)
    plain = inspection.scan.unstack_layers(params)
    for (name, layer), value, output in zip(order, values, outputs):
        weights = result[name][layer]
        assert weights.shape == (2, 4, T, T)
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
        v_BSKH = value.reshape(2, T, -1, 4)
        v_BSNH = jnp.repeat(v_BSKH, 4 // v_BSKH.shape[2], axis=2)
        mixed = jnp.einsum("BNTS,BSNH->BTNH", weights, v_BSNH).reshape(2, T, -1)
        out = find_stack(plain, name, layer)["out"]
        made = mixed @ out["kernel"] + out.get("bias", 0)
        np.testing.assert_allclose(made, output, atol=2e-5)


KINDS = [CausalLM, MaskedLM, PrefixLM, CausalMaskedLM, "seq2seq"]


@pytest.mark.slow_cases("seq2seq")
@pytest.mark.parametrize("kind", slow_but([CausalLM, "seq2seq"], KINDS))
def test_nothing_is_weighed_that_may_not_be_seen(kind):
    network, params, tokens = make(kind)
    result = ask(network, params, tokens, START)
    seen = inspection.attention_masks(network, params, T)
    assert seen.keys() == result.keys()
    for name, weights in result.items():
        visible = np.broadcast_to(seen[name], weights.shape)
        assert (np.asarray(weights)[~visible] == 0).all()
        assert (np.asarray(weights)[visible] > 0).all()
    assert bool(seen["self"].all()) == network.READS_AHEAD
    if kind == "seq2seq":
        assert seen["cross"].all() and not seen["dec_self"].all()


def test_a_decoder_reads_the_text_one_place_later():
    network, params, tokens = make("seq2seq")
    result = ask(network, params, tokens, START)
    changed = tokens.at[:, -1].set((tokens[:, -1] + 1) % 11)
    other = ask(network, params, changed, START)
    np.testing.assert_array_equal(result["dec_self"][0], other["dec_self"][0])
    begun = ask(network, params, tokens, START + 1)
    assert not np.allclose(result["dec_self"], begun["dec_self"])
    np.testing.assert_array_equal(result["self"], begun["self"])


def test_a_pair_is_asked_for_what_its_features_are_read_from():
    one = dataclasses.replace(SPEC, num_layers=1)
    electra = Electra(one, SPEC)
    params = draw(electra)
    tokens = jnp.arange(T)[None]
    result = ask(electra, params, tokens)
    own = params["discriminator"] | {"embed": params["embed"]}
    alone = ask(MaskedLM(electra.discriminator_spec), own, tokens)
    np.testing.assert_array_equal(result["self"], alone["self"])
    assert len(result["self"]) == 2
    both = MaskedStudent(one, SPEC, 2.0)
    look = functools.partial(inspection.attention_weights, both)
    own = jax.eval_shape(look, draw(both), tokens)
    assert len(own["self"]) == 1


def test_a_network_without_attention_is_refused():
    network = SkipGram(SPEC)
    params = draw(network)
    assert not isinstance(network, HasTransformer)
    with pytest.raises(AttributeError, match="find_transformer"):
        inspection.attention_weights(network, params, jnp.zeros((1, 2), jnp.int32))
    with pytest.raises(AttributeError, match="find_transformer"):
        inspection.attention_masks(network, params, 2)
    seq2seq, params, tokens = make("seq2seq")
    with pytest.raises(ValueError, match="a decoder needs a start_id"):
        inspection.attention_weights(seq2seq, params, tokens)


def test_training_and_features_neither_keep_nor_compute_weights():
    """The program of a loss is the same text with and without the inspection's code."""
    network, params, tokens = make("causal")
    call = {"deterministic": True, "method": "encode"}
    mask = network.feature_mask

    def run(params):
        return network.apply({"params": params}, tokens, mask, **call)

    def run_kept(params):
        return network.apply(
            {"params": params}, tokens, mask, **call, mutable=[WEIGHTS]
        )[0]

    plain, kept = (str(jax.make_jaxpr(f)(params)) for f in (run, run_kept))
    assert plain.count("exp ") < kept.count("exp ")  # softmax: once, and twice
    np.testing.assert_array_equal(*jax.jit(lambda p: (run(p), run_kept(p)))(params))
    seen = {"self": mask}
    variables = jax.eval_shape(
        lambda key: network.init(key, tokens, seen, deterministic=True),
        jax.random.key(0),
    )
    assert set(variables) == {"params"}
