"""Value embeddings, smear, token dropout and the head's width: numbers, no leaks."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpt.nn import layers
from jaxpt.nn.attention import Attention
from jaxpt.nn.networks.one_stack import CausalLM, MaskedLM
from jaxpt.nn.transformer import Transformer
from jaxpt.ops import masks

HALF = [1 / 2, 1 / 2]
BOTH = {"value_embeddings": True, "smear": True}
TOKENS = jnp.array([[7, 2, 9, 4, 0, 5]])  # all different, so that each has own rows


def perturb(params, spread=0.3):
    """No parameter at its initial value."""
    draw = np.random.default_rng(1)
    return jax.tree.map(
        lambda x: jnp.asarray(x + draw.normal(0, spread, x.shape), x.dtype), params
    )


def list_names(params):
    pairs = jax.tree_util.tree_leaves_with_path(params)
    return {jax.tree_util.keystr(p, simple=True, separator="/"): x for p, x in pairs}


def drop_new(params):
    """The parameters that a model without the options has."""
    names = list_names(params)
    return {
        n: x for n, x in names.items() if not {"value_embed", "smear"} & {*n.split("/")}
    }


def test_values_get_a_gated_vector_of_each_token(make_spec):
    """By hand, for grouped heads; the attention of one key is its value."""
    spec = make_spec(num_heads=4, num_kv_heads=2, value_embeddings=True)
    module, x = Attention(spec), jax.random.normal(jax.random.key(0), (1, 1, 16))
    ids, call = jnp.array([[3]]), {"deterministic": True}
    args = x, x, masks.causal(), None, None, None, 0
    params = perturb(module.init(jax.random.key(1), *args, ids, **call)["params"])
    result = module.apply({"params": params}, *args, ids, **call)[0]
    own, row = params["value_embed"], np.asarray(x[0, 0])
    assert own["table"].shape == (11, 2 * 4) and own["gate"].shape == (12, 2)
    gate = 3 / (1 + np.exp(-row[:12] @ np.asarray(own["gate"])))
    value = row @ params["value"]["kernel"] + params["value"]["bias"]
    value = value.reshape(2, 4) + gate[:, None] * own["table"][3].reshape(2, 4)
    out = np.repeat(value, 2, axis=0).reshape(-1)  # each for two heads of queries
    expected = out @ params["out"]["kernel"] + params["out"]["bias"]
    np.testing.assert_allclose(result[0, 0], expected, rtol=2e-5, atol=1e-5)


def test_prompts_have_no_value_embedding(make_spec):
    module = layers.ValueEmbedding(make_spec())
    x, ids = jnp.ones((1, 2, 16)), jnp.array([[-1, 10]])
    params = perturb(module.init(jax.random.key(0), x, ids)["params"])
    result = module.apply({"params": params}, x, ids)
    np.testing.assert_array_equal(result[0, 0], 0)
    assert (result[0, 1] != 0).all()


def test_gates_start_at_their_middle_and_a_smear_at_nothing(make_spec):
    spec = make_spec(**BOTH, num_layers=1, init="t5")
    params = jax.jit(CausalLM(spec).init_params)(jax.random.key(0))
    own = params["encoder"]["layer_0"]["attention"]["value_embed"]
    assert own["table"].std() == pytest.approx(16**-0.5, rel=0.2)
    new = [own["gate"], *jax.tree.leaves(params["embed"]["smear"])]
    assert not any(np.any(x) for x in new)


@pytest.mark.parametrize("num_layers, has", [(1, [0]), (3, [0, 2]), (4, [1, 3])])
def test_every_other_layer_and_the_last_have_a_table(num_layers, has, make_spec):
    sizes = {"num_layers": num_layers, "num_kv_heads": 1}
    spec, plain = make_spec(**sizes, value_embeddings=True), make_spec(**sizes)
    shapes, others = (
        jax.eval_shape(CausalLM(spec).init_params, jax.random.key(0))
        for spec in (spec, plain)
    )
    tables = [f"encoder/layer_{i}/attention/value_embed" for i in has]
    new = list_names(shapes).keys() - list_names(others).keys()
    assert new == {f"{name}/{part}" for name in tables for part in ("table", "gate")}
    count = lambda tree: sum(x.size for x in jax.tree.leaves(tree))  # noqa: E731
    assert count(shapes) - count(others) == len(has) * (11 * 8 + 12)


def test_a_decoder_has_own_tables_and_its_cross_attention_none(make_spec):
    spec = make_spec(num_layers=2, num_decoder_layers=1, **BOTH)
    model, ids = Transformer(spec), jnp.zeros((1, 2), jnp.int32)
    seen = {"self": masks.full(), "dec_self": masks.causal(), "cross": masks.full()}
    shapes = jax.eval_shape(
        lambda key: model.init(key, ids, seen, ids, deterministic=True)["params"],
        jax.random.key(0),
    )
    own = list_names(shapes).keys() - drop_new(shapes).keys()
    attentions = ("encoder/layer_1/attention", "decoder/layer_0/attention")
    assert own == {
        *(f"{a}/value_embed/{part}" for a in attentions for part in ("table", "gate")),
        *(
            f"{e}/smear/{p}"
            for e in ("embed", "decoder_embed")
            for p in ("gate", "scale")
        ),
    }


def test_other_parameters_are_drawn_as_without_the_options(make_spec):
    spec = make_spec()
    plain, both = (
        jax.jit(MaskedLM(each).init_params)(jax.random.key(3))
        for each in (spec, dataclasses.replace(spec, **BOTH))
    )
    rest = drop_new(both)
    assert rest.keys() == list_names(plain).keys()
    for name, leaf in list_names(plain).items():
        np.testing.assert_array_equal(leaf, rest[name])
    # A smear changes nothing at first.
    smeared = MaskedLM(dataclasses.replace(spec, smear=True))
    params = plain | {"embed": both["embed"]}
    np.testing.assert_array_equal(
        jax.jit(smeared.features)(params, TOKENS),
        jax.jit(MaskedLM(spec).features)(plain, TOKENS),
    )


def list_rows(model, params, segment_ids, place):
    """The tokens whose rows in any table have an effect on a state, by table."""
    mask = masks.causal(segment_ids)

    def read(params):
        states = model.apply(
            {"params": params}, TOKENS, mask, deterministic=True, method="encode"
        )
        return (states[0, place] * jnp.arange(16)).sum()

    grads = list_names(jax.jit(jax.grad(read))(params))
    tables = {n: g for n, g in grads.items() if n.endswith(("tokens", "embed/table"))}
    return {n: set(np.flatnonzero(np.any(g, axis=1))) for n, g in tables.items()}


def test_a_state_reads_no_row_of_a_later_token_or_of_another_document(
    make_spec, make_params
):
    """In all tables, by gradient."""
    model, params = make_params(make_spec(**BOTH, num_layers=3, positions="rotary"))
    params, tokens = perturb(params), TOKENS[0].tolist()
    last = "encoder/layer_2/attention/value_embed/table"
    for segment_ids, start in ((None, 0), (jnp.array([[1, 1, 2, 2, 2, 0]]), 2)):
        rows = list_rows(model, params, segment_ids, 3)
        assert len(rows) == 3 and last in rows
        assert set(map(frozenset, rows.values())) == {frozenset(tokens[start:4])}


def test_a_smear_reads_the_token_before_where_the_mask_shows_it(make_spec, make_params):
    model, params = make_params(make_spec(smear=True, num_layers=1, positions="none"))
    params = perturb(params)

    def embed(mask):
        variables = {"params": params}
        states = model.apply(
            variables,
            TOKENS,
            mask,
            deterministic=True,
            method="encode",
            capture_intermediates=lambda module, _: module.name == "embed",
        )[1]["intermediates"]["embed"]["__call__"][0]
        return np.asarray(states[0])

    table, own = np.asarray(params["embed"]["tokens"]), params["embed"]["smear"]
    x = table[np.asarray(TOKENS[0])]
    share = own["scale"] / (1 + np.exp(-x @ np.asarray(own["gate"])))
    before = np.concatenate([np.zeros((1, 16)), share[1:, None] * x[:-1]])
    np.testing.assert_allclose(embed(masks.full()), x + before, rtol=1e-4, atol=1e-5)
    before[[2, 5]] = 0
    packed = masks.segments(jnp.array([[1, 1, 2, 2, 2, 0]]))
    np.testing.assert_allclose(embed(packed), x + before, rtol=1e-4, atol=1e-5)


def test_token_dropout_scales_by_the_share_of_masks_that_a_token_sees(
    make_spec, make_params
):
    """ESM-2's, in NumPy: of each document of a packed row, and without padding."""
    spec = make_spec(token_dropout=9, num_layers=1, positions="none")
    model, params = make_params(spec)
    table, ids = np.asarray(params["embed"]["tokens"]), [9, 2, 9, 4, 9, 9, 5, 9]
    packed, alone = ([1, 1, 2, 2, 2, 3, 3, 0], [1, 2, 3, 2, 4, 4, 5, 5])
    rows = {
        "full": (masks.full(), [5 / 8] * 8),
        "packed": (
            masks.segments(jnp.array([packed])),
            [*HALF, *[2 / 3] * 3, *HALF, 0],
        ),
        "padded": (masks.key_padding(jnp.array([4])), [1 / 2] * 8),
        "masks": (masks.segments(jnp.array([alone])), [1, 0, 1, 0, 1, 1, *HALF]),
        "causal": (
            masks.causal(),
            [1, 1 / 2, 2 / 3, 1 / 2, 3 / 5, 4 / 6, 4 / 7, 5 / 8],
        ),
    }
    first = jnp.zeros((1, 1, 8, 8), bool).at[..., 0].set(True)
    rows["a token that sees only a mask"] = (first, [1] * 8)
    for name, (mask, shares) in rows.items():
        states = model.apply(
            {"params": params},
            jnp.array([ids]),
            mask,
            deterministic=True,
            method="encode",
            capture_intermediates=lambda module, _: module.name == "embed",
        )[1]["intermediates"]["embed"]["__call__"][0]
        left = 1 - np.array(shares)
        factor = 0.88 / np.where(left > 0, left, 1) * (np.array(ids) != 9)
        expected = factor[:, None] * table[ids]
        np.testing.assert_allclose(states[0], expected, rtol=1e-5, err_msg=name)


def test_a_head_is_wider_than_the_embeddings(make_spec, make_params):
    """RemBERT's, in NumPy: dense, activation, norm, and a table of its own."""
    spec = make_spec(
        embedding_size=6,
        transform_size=20,
        head_transform=True,
        head_bias=True,
        tie_embeddings=False,
        activation="relu",
    )
    model, params = make_params(spec)
    assert params["embed"]["tokens"].shape == (11, 6)
    params = perturb(params)
    head = jax.tree.map(np.asarray, params["head"])
    assert head["out"]["kernel"].shape == (20, 11)
    hidden = np.random.default_rng(0).normal(size=(1, 3, 16)).astype(np.float32)
    x = hidden @ head["transform"]["kernel"] + head["transform"]["bias"]
    x = np.maximum(x, 0)
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    x = x * head["norm"]["scale"] + head["norm"]["bias"]
    expected = x @ head["out"]["kernel"] + head["out"]["bias"]
    logits = model.apply({"params": params}, jnp.asarray(hidden), method="logits")
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)
