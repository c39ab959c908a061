"""Decoding with a cache gives the numbers of the full forward pass."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import slow_but

from jaxpt.nn.decoding import make_decoder, make_prefix_decoder
from jaxpt.nn.scan import stack_layers
from jaxpt.ops import masks

T, MORE = 5, 6
IDS = np.random.default_rng(3).integers(0, 11, (3, T + MORE)).astype(np.int32)
LENGTHS = np.array([5, 2, 4])

STACKS = {
    "learned": {},
    "offset": {"position_offset": 2},
    "sinusoidal": {"positions": "sinusoidal"},
    "relative": {"positions": "relative", "relative_max_distance": 20},
    "alibi": {"positions": "alibi", "num_heads": 3, "head_dim": 4},
    "none": {"positions": "none"},
    "rotary": {"positions": "rotary"},
    "long rope": {
        "positions": "rotary",
        "rotary_factors": (11.0, 1.3, *[1.5] * 4, *[4.0] * 4),
        "num_heads": 2,
    },
    "grouped": {"positions": "rotary", "num_heads": 4, "num_kv_heads": 2},
    "one key head": {"num_heads": 4, "num_kv_heads": 1, "head_dim": 6},
    "post-norm": {"norm_position": "post", "embedding_size": 8},
    "embed norm": {"embed_norm": True, "norm_bias": False},
    "first norm": {"embed_norm": True, "first_norm": True},
    "gated": {"gated_mlp": True, "norm": "rmsnorm", "activation": "silu"},
    "qk norm": {"positions": "rotary", "qk_norm": "scaled", "num_kv_heads": 1},
    "values": {"value_embeddings": True, "num_heads": 4, "num_kv_heads": 2},
    "smear": {"smear": True, "positions": "rotary"},
    "local": {"window": 2},
    "some local": {
        "window": 1,
        "global_every": 2,
        "positions": "rotary",
        "local_rotary_base": 50.0,
    },
    "parallel": {
        "parallel_residual": True,
        "positions": "rotary",
        "rotary_fraction": 0.5,
        "rotary_scaling": (8.0, 1.0, 4.0, 30.0),
        "qkv_bias": "no",
    },
    "shared norm": {"parallel_residual": True, "shared_norm": True, "head_bias": True},
    "some rotary": {"positions": "rotary", "unrotated_every": 2, "num_kv_heads": 1},
    "output norm": {"norm_position": "output", "qk_norm": "width", "num_heads": 4},
    "gemma": {
        "norm": "rmsnorm",
        "norm_position": "both",
        "norm_offset": True,
        "qk_norm": "scaled",
        "scale_embeddings": True,
        "attention_scalar": 3,
        "attention_softcap": 1.5,
        "window": 2,
        "global_every": 2,
        "global_last": True,
    },
    "learned and relative": {"relative_bias": True, "relative_buckets": 8},
    "unscaled": {"scale_attention": False, "tie_embeddings": False},
    "disentangled": {
        "positions": "none",
        "disentangled": "both",
        "disentangled_norm": True,
        "relative_buckets": 8,
        "relative_max_distance": 7,
        "num_heads": 4,
        "num_kv_heads": 2,
    },
    "ltg-bert": {
        "norm_scale": False,
        "inner_norm": True,
        "attention_out_norm": "after",
        "disentangled": "both",
        "positions": "none",
        "relative_buckets": 7,
        "relative_max_distance": 5,
    },
    "gpt-bert": {
        "attention_gate": True,
        "attention_out_norm": "before",
        "depth_sums": True,
        "num_layers": 3,
    },
    "elc-bert": {"layer_sums": True, "num_layers": 3},
    "c2p and learned": {
        "disentangled": "c2p",
        "disentangled_projections": True,
        "relative_buckets": 8,
        "relative_max_distance": 4,
    },
}
PAIRS = {
    "t5": {
        "norm": "rmsnorm",
        "positions": "relative",
        "relative_buckets": 8,
        "relative_max_distance": 9,
        "scale_attention": False,
        "scale_logits": True,
        "use_bias": False,
    },
    "umt5": {
        "positions": "relative",
        "relative_every_layer": True,
        "relative_buckets": 8,
        "relative_max_distance": 9,
        "decoder_window": 2,
    },
    "bart": {"norm_position": "post", "position_offset": 2},
    "m2m-100": {
        "norm_position": "post",
        "post_embed_norm": False,
        "positions": "sinusoidal",
        "sinusoids": "fairseq",
        "position_offset": 2,
        "decoder_tokens": True,
    },
    "grouped pair": {"num_heads": 4, "num_kv_heads": 2, "positions": "sinusoidal"},
    "alibi pair": {"positions": "alibi", "num_heads": 4, "num_kv_heads": 2},
    "rotary pair": {"positions": "rotary", "qk_norm": "unscaled"},
    "gated pair": {"attention_gate": True, "attention_out_norm": "before"},
    "both options": {"value_embeddings": True, "smear": True, "embedding_size": 8},
}


@pytest.fixture
def make_case(make_spec, make_params):
    """The model and parameters of no symmetry: no bias at 0, no scale at 1."""

    def make(is_bidirectional=False, **values):
        spec = make_spec(init_std=0.4, **values)
        model, params = make_params(spec, is_bidirectional)
        draw = np.random.default_rng(1)
        params = jax.tree.map(lambda x: x + draw.normal(0, 0.1, x.shape), params)
        return model, jax.tree.map(lambda x: x.astype(jnp.float32), params)

    return make


def pad_left(rows, lengths):
    padded = np.full((len(rows), max(lengths)), 7)  # what padding is has no effect
    for line, row, length in zip(padded, rows, lengths):
        line[len(line) - length :] = row[:length]
    return jnp.asarray(padded, jnp.int32)


def decode(decoder, params, prompts, lengths, following):
    """Logits [B, 1 + L, V] after the prompt and after each of `following` [B, L]."""

    @jax.jit
    def run(params, prompts, lengths, following):
        room = following.shape[1]
        logits, cache = decoder.prefill(params, prompts, lengths, room)

        def body(cache, ids):
            logits, cache = decoder.step(params, ids, cache)
            return cache, logits

        _, more = jax.lax.scan(body, cache, following.T)
        return jnp.concatenate([logits[:, None], more.swapaxes(0, 1)], axis=1)

    return run(params, prompts, jnp.asarray(lengths), jnp.asarray(following))


def gather(rows, starts, num):
    return np.stack([row[i : i + num] for row, i in zip(rows, starts)])


QUICK = ("learned", "rotary", "relative", "grouped", "post-norm", "some local")
QUICK += ("values", "smear")


@pytest.mark.slow_cases("rotary", "learned", "relative", "post-norm")
@pytest.mark.parametrize("name", slow_but(QUICK, STACKS))
def test_one_stack(name, make_case):
    model, params = make_case(**STACKS[name])
    full = jax.jit(
        lambda ids: model.apply(
            {"params": params}, ids, {"self": masks.causal()}, deterministic=True
        )
    )
    expected = gather(np.asarray(full(IDS)), LENGTHS - 1, MORE + 1)
    result = decode(
        make_decoder(model),
        params,
        pad_left(IDS, LENGTHS),
        LENGTHS,
        gather(IDS, LENGTHS, MORE),
    )
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow_cases("bart")
@pytest.mark.parametrize("name", slow_but(("t5", "bart", "both options"), PAIRS))
def test_encoder_decoder(name, make_case):
    model, params = make_case(True, num_decoder_layers=2, **PAIRS[name])
    following = np.random.default_rng(4).integers(0, 11, (3, MORE)).astype(np.int32)
    start = 3
    dec_ids = np.concatenate([np.full((3, 1), start), following], axis=1)

    @jax.jit
    def full(ids, lengths, dec_ids):
        seen = masks.key_padding(lengths)
        seen = {"self": seen, "dec_self": masks.causal(), "cross": seen}
        return model.apply({"params": params}, ids, seen, dec_ids, deterministic=True)

    expected = full(IDS[:, :T], LENGTHS, dec_ids)
    result = decode(
        make_decoder(model, start), params, pad_left(IDS, LENGTHS), LENGTHS, following
    )
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_a_prompt_that_sees_all_of_itself(make_case):
    model, params = make_case(value_embeddings=True, smear=True)
    full = jax.jit(
        lambda ids, lengths: model.apply(
            {"params": params}, ids, {"self": masks.prefix(lengths)}, deterministic=True
        )
    )
    expected = gather(np.asarray(full(IDS, LENGTHS)), LENGTHS - 1, MORE + 1)
    args = pad_left(IDS, LENGTHS), LENGTHS, gather(IDS, LENGTHS, MORE)
    result = decode(make_prefix_decoder(model), params, *args)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_bfloat16_keys_are_kept_as_computed(make_case):
    model, params = make_case(dtype="bfloat16")
    decoder = make_decoder(model)
    logits, cache = jax.eval_shape(
        lambda p: decoder.prefill(p, jnp.zeros((2, 4), int), jnp.array([4, 2]), 3),
        params,
    )
    assert logits.dtype == jnp.float32
    assert cache.kv_cache[0].self_attn.keys.dtype == jnp.bfloat16
    assert cache.kv_cache[0].self_attn.keys.shape == (2, 2, 7, 8)


@pytest.mark.parametrize("name", ["t5", "smear"])
def test_rows_of_the_cache_can_be_picked(name, make_case):
    is_pair = name in PAIRS
    two = {"num_decoder_layers": 1} if is_pair else {}
    model, params = make_case(is_pair, **two, **(STACKS | PAIRS)[name])
    decoder = make_decoder(model, 0 if is_pair else None)
    prompts, rows = pad_left(IDS, LENGTHS), np.array([2, 0, 0])

    @jax.jit
    def run(prompts, lengths, ids, rows):
        _, cache = decoder.prefill(params, prompts, lengths, 3)
        _, cache = decoder.step(params, ids, cache)
        if rows is not None:
            cache, ids = cache.pick(rows), ids[rows]
        return decoder.step(params, ids, cache)[0]

    ids = jnp.array([1, 2, 3])
    picked = run(prompts, jnp.asarray(LENGTHS), ids, rows)
    whole = run(prompts, jnp.asarray(LENGTHS), ids, None)
    np.testing.assert_allclose(picked, whole[rows], rtol=1e-5, atol=1e-6)


def test_beams_of_a_prompt_can_be_reordered(make_case):
    """What is written follows each beam's own last token."""
    model, params = make_case(**STACKS["smear"])
    decoder, rows = make_decoder(model), jnp.array([2, 0, 0])
    prompts, ids = jnp.repeat(IDS[:1, :T], 3, axis=0), jnp.array([1, 2, 3])

    def run(reorders):
        _, cache = decoder.prefill(params, prompts, jnp.full(3, T), 2)
        _, cache = decoder.step(params, ids, cache)
        if reorders:
            return decoder.step(params, jnp.full(3, 4), cache.reorder(rows))[0]
        return decoder.step(params, jnp.full(3, 4), cache)[0]

    run = jax.jit(run, static_argnums=0)
    result, plain = run(True), run(False)
    assert (np.abs(plain[0] - plain[2]) > 1e-3).any()
    np.testing.assert_allclose(result, plain[rows], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", slow_but(("t5",), ("rotary", "embed norm", "t5")))
def test_a_scanned_model_decodes_unrolled(name, make_case):
    two = {"num_decoder_layers": 2} if name in PAIRS else {}
    model, params = make_case(bool(two), **two, **(STACKS | PAIRS)[name])
    twin = model.clone(spec=dataclasses.replace(model.spec, scan_layers=True))
    plain, scanned = (make_decoder(m, 3 if two else None) for m in (model, twin))
    prepared = scanned.convert_params(stack_layers(params))
    jax.tree.map(np.testing.assert_array_equal, prepared, plain.convert_params(params))
    args = (prepared, pad_left(IDS, LENGTHS), LENGTHS, IDS[:, :2])
    np.testing.assert_array_equal(decode(scanned, *args), decode(plain, *args))
