"""The Transformer: shapes, counts, who sees whom, dropout, dtypes."""

import dataclasses
import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpt.errors import UserError
from jaxpt.nn import layers
from jaxpt.nn.attention import Attention
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.stacks import Layer
from jaxpt.nn.transformer import Transformer
from jaxpt.ops import masks

IDS = jax.random.randint(jax.random.key(7), (2, 8), 0, 11)
FULL = {"self": masks.full()}
CAUSAL = {"self": masks.causal()}


def apply(model, params, ids=IDS, seen=FULL, dec_ids=None, **options):
    options = {"deterministic": True} | options
    rngs, method = options.pop("rngs", {}), options.pop("method", None)

    def run(params, ids, seen, dec_ids, rngs):
        args = (ids, seen, dec_ids) if method is None else (ids, seen["self"])
        variables, how = {"params": params}, options | {"rngs": rngs, "method": method}
        return model.apply(variables, *args, **how)

    return jax.jit(run)(params, ids, seen, dec_ids, rngs)


def num_parameters(params) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(params))


FAMILIES = {
    "gpt2": {"activation": "gelu_tanh", "is_causal": True},
    "bert": {"norm_position": "post", "head_transform": True, "head_bias": True},
    "electra": {"norm_position": "post", "embedding_size": 8},
    "t5": {
        "norm": "rmsnorm",
        "positions": "relative",
        "activation": "relu",
        "use_bias": False,
        "num_decoder_layers": 1,
    },
    "untied": {"tie_embeddings": False, "embedding_size": 8, "positions": "sinusoidal"},
}


@pytest.mark.slow_except("gpt2")
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_gives_float32_logits_and_trains_every_parameter(
    family, make_spec, make_params
):
    values = dict(FAMILIES[family])
    is_causal = values.pop("is_causal", False)
    spec = make_spec(**values)
    model, params = make_params(spec, not is_causal)
    seen = {"self": masks.full(), "dec_self": masks.causal(), "cross": masks.full()}
    if is_causal:
        seen = CAUSAL
    dec_ids = IDS[:, :5] if spec.num_decoder_layers else None

    def loss(params):
        logits = apply(model, params, IDS, seen, dec_ids)
        return (jnp.sin(logits) * jnp.arange(spec.vocab_size)).sum(), logits

    grads, logits = jax.jit(jax.grad(loss, has_aux=True))(params)
    assert logits.shape == (2, 5 if spec.num_decoder_layers else 8, 11)
    assert logits.dtype == jnp.float32 and np.isfinite(logits).all()
    for path, grad in jax.tree_util.tree_leaves_with_path(grads):
        name = jax.tree_util.keystr(path)
        assert np.isfinite(grad).all(), name
        # Softmax does not change when all keys move equally: a key's bias has no
        # effect.
        if not name.endswith("['key']['bias']"):
            assert np.abs(grad).max() > 0, name


FOUNDING = {
    "vocab_size": 62,
    "num_layers": 2,
    "d_model": 96,
    "num_heads": 4,
    "d_ff": 256,
    "max_len": 64,
    "positions": "sinusoidal",
    "activation": "relu",
    "tie_embeddings": False,
    "dropout": 0.1,
    "init": "torch",
}


@pytest.mark.parametrize("head_bias, count", [(False, 186_368), (True, 186_430)])
def test_parameters_of_the_founding_experiment(head_bias, count):
    model = Transformer(ModelSpec(**FOUNDING, head_bias=head_bias))
    ids = jnp.zeros((1, 48), jnp.int32)
    shapes = jax.eval_shape(
        lambda key: model.init(key, ids, FULL, deterministic=True), jax.random.key(0)
    )
    assert num_parameters(shapes) == count


def test_the_founding_config_has_those_settings():
    path = Path(__file__).resolve().parents[2] / "configs/shakespeare_char.py"
    loader = importlib.util.spec_from_file_location("shakespeare_char", path)
    module = importlib.util.module_from_spec(loader)
    loader.loader.exec_module(module)
    model = module.get_config().model
    for name in set(FOUNDING) - {"vocab_size"}:
        assert model[name] == FOUNDING[name], name


def test_parameters_of_a_factorised_tied_model(make_spec, make_params):
    spec = make_spec(embedding_size=8, num_layers=1, positions="none")
    _, params = make_params(spec)
    table, project = 11 * 8, 8 * 16 + 16
    attention, mlp = 4 * (16 * 16 + 16), 16 * 24 + 24 + 24 * 16 + 16
    norms, transform = 3 * 2 * 16, 16 * 8 + 8
    total = table + project + attention + mlp + norms + transform
    assert num_parameters(params) == total


@pytest.mark.parametrize("tie_embeddings", [True, False])
def test_logits_are_capped_for_every_reader(tie_embeddings, make_spec, make_params):
    spec = make_spec(logit_softcap=1.5, tie_embeddings=tie_embeddings, init_std=0.5)
    model, params = make_params(spec)
    free = Transformer(dataclasses.replace(spec, logit_softcap=0.0))
    logits = apply(model, params)
    unlimited = apply(free, params)
    assert jnp.abs(unlimited).max() > 2
    np.testing.assert_allclose(logits, 1.5 * jnp.tanh(unlimited / 1.5), rtol=1e-4)
    states = apply(model, params, method="encode")
    expected = -jax.nn.log_softmax(logits)
    expected = jnp.take_along_axis(expected, IDS[..., None], -1)[..., 0]
    for method in ("nll", "token_scores", "score"):
        more = (jnp.ones(IDS.shape),) if method == "score" else ()
        result = model.apply({"params": params}, states, IDS, *more, method=method)
        if method == "score":
            np.testing.assert_allclose(result.loss[0], expected.sum(), rtol=1e-5)
        else:
            nll = result[0] if method == "token_scores" else result
            np.testing.assert_allclose(nll, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_parallel", [False, True])
def test_an_mlp_reads_the_attention_or_the_layers_input(is_parallel, make_spec):
    spec = make_spec(parallel_residual=is_parallel, init_std=0.5)
    layer, x = Layer(spec), jax.random.normal(jax.random.key(0), (1, 3, 16))
    args, rest = (CAUSAL["self"], None, None, None, None), {"deterministic": True}
    params = layer.init(jax.random.key(1), x, *args, **rest)["params"]

    def run(zero):
        changed = dict(params)
        for name, last in zero.items():
            silent = jax.tree.map(jnp.zeros_like, params[name][last])
            changed[name] = {**params[name], last: silent}
        return layer.apply({"params": changed}, x, *args, **rest)[0] - x

    both, mlp = run({}), run({"attention": "out"})  # whose other part adds nothing
    attention = run({"mlp": "down"})
    is_sum = np.allclose(both, mlp + attention, atol=1e-6)
    assert is_sum == is_parallel and np.abs(attention).max() > 1e-3


@pytest.mark.parametrize("qkv_bias, has_bias", [("auto", 1), ("yes", 1), ("no", 0)])
def test_which_layers_have_biases(qkv_bias, has_bias, make_spec):
    spec = make_spec(qkv_bias=qkv_bias)
    x = jnp.zeros((1, 3, 16))
    args = jax.random.key(1), x, x, CAUSAL["self"]
    params = Attention(spec).init(*args, deterministic=True)["params"]
    biases = {name for name, part in params.items() if "bias" in part}
    assert biases == {"out"} | ({"query", "key", "value"} if has_bias else set())
    bare = dataclasses.replace(spec, use_bias=False)
    params = Attention(bare).init(*args, deterministic=True)["params"]
    assert any("bias" in part for part in params.values()) == (qkv_bias == "yes")


@pytest.mark.parametrize("qk_norm", ["unscaled", "scaled"])
def test_queries_and_keys_are_normed(qk_norm, make_spec):
    spec = make_spec(qk_norm=qk_norm, num_kv_heads=1, norm_epsilon=1e-6)
    module, x = Attention(spec), jax.random.normal(jax.random.key(0), (1, 3, 16))
    call = {"deterministic": True}
    variables = module.init(jax.random.key(1), x, x, CAUSAL["self"], **call)
    params = jax.tree.map(np.asarray, variables["params"])
    # No bias or scale at its initial value.
    draw = np.random.default_rng(0).normal
    params = jax.tree.map(lambda p: p + 0.3 * draw(size=p.shape), params)
    result = module.apply({"params": params}, x, x, CAUSAL["self"], **call)[0]

    def heads(name, num):
        flat = np.asarray(x[0]) @ params[name]["kernel"] + params[name]["bias"]
        each = flat.reshape(3, num, -1)
        if name == "value":
            return each
        each = each / np.sqrt((each**2).mean(-1, keepdims=True) + 1e-6)
        return each * params.get(f"{name}_norm", {"scale": 1.0})["scale"]

    assert ("query_norm" in params) == ("key_norm" in params) == (qk_norm == "scaled")
    q, k, v = heads("query", spec.num_heads), heads("key", 1), heads("value", 1)
    logits = np.einsum("tnh,sh->nts", q, k[:, 0]) / np.sqrt(spec.head_width)
    logits = np.where(np.tri(3, dtype=bool), logits, -np.inf)
    weights = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    out = np.einsum("nts,sh->tnh", weights, v[:, 0]).reshape(3, -1)
    expected = out @ params["out"]["kernel"] + params["out"]["bias"]
    np.testing.assert_allclose(result[0], expected, rtol=2e-5, atol=1e-5)


@pytest.mark.slow_except("sinusoidal")
@pytest.mark.parametrize(
    "positions", ["learned", "sinusoidal", "relative", "alibi", "none"]
)
def test_a_causal_model_does_not_see_what_comes_after(
    positions, make_spec, make_params
):
    model, params = make_params(make_spec(positions=positions), False)
    run = jax.jit(lambda params, ids: apply(model, params, ids, CAUSAL))
    before = np.asarray(run(params, IDS))
    after = np.asarray(run(params, IDS.at[:, 5:].set((IDS[:, 5:] + 3) % 11)))
    np.testing.assert_array_equal(before[:, :5], after[:, :5])
    assert (np.abs(before - after)[:, 5:].max((0, 2)) > 1e-6).all()


def test_the_decoder_does_not_see_what_comes_after(make_spec, make_params):
    spec = make_spec(num_decoder_layers=2, positions="relative")
    model, params = make_params(spec)
    lengths = jnp.array([8, 6])
    seen = {
        "self": masks.key_padding(lengths),
        "dec_self": masks.causal(),
        "cross": masks.key_padding(lengths),
    }
    run = jax.jit(lambda ids, dec_ids: apply(model, params, ids, seen, dec_ids))
    dec_ids, other = IDS[:, :6], (IDS + 1) % 11
    before = run(IDS, dec_ids)
    later = run(IDS, dec_ids.at[:, 4:].set(other[:, 4:6]))
    np.testing.assert_array_equal(before[:, :4], later[:, :4])
    assert (before[:, 4:] != later[:, 4:]).any()


def test_the_decoder_reads_the_source_through_the_cross_mask(make_spec, make_params):
    model, params = make_params(make_spec(num_decoder_layers=1, init_std=0.3))
    source = jax.random.normal(jax.random.key(0), (2, 8, 16))
    cross_mask = masks.key_padding(jnp.array([8, 6]))

    @jax.jit
    def decode(source):
        variables, args = {"params": params}, (IDS, masks.causal(), source, cross_mask)
        return model.apply(variables, *args, deterministic=True, method="decode")

    before = decode(source)
    np.testing.assert_array_equal(before[1], decode(source.at[1, 6:].add(1))[1])
    # The first place already sees the last of the source, which is not its own past.
    assert (before[0, 0] != decode(source.at[0, 7].add(1))[0, 0]).any()
    assert (before[1, 0] != decode(source.at[1, 5].add(1))[1, 0]).any()


def test_packed_documents_are_isolated(make_spec, make_params):
    model, params = make_params(make_spec())
    segments = jnp.array([[1, 1, 1, 2, 2, 2, 0, 0]] * 2)
    seen = {"self": masks.segments(segments)}
    first = segments[0] == 1

    def total(params, ids):
        logits = apply(model, params, ids, seen)
        return jnp.where(first[:, None], logits, 0).sum(), logits

    run = jax.jit(jax.value_and_grad(total, has_aux=True))
    (_, logits), grads = run(params, IDS)
    (_, others), other_grads = run(params, jnp.where(first, IDS, (IDS + 1) % 11))
    np.testing.assert_array_equal(logits[:, :3], others[:, :3])
    assert (logits[:, 3:6] != others[:, 3:6]).any()
    for grad, other in zip(jax.tree.leaves(grads), jax.tree.leaves(other_grads)):
        np.testing.assert_allclose(grad, other, rtol=1e-5, atol=1e-6)


@pytest.mark.slow_except("none-False")
@pytest.mark.parametrize(
    "positions, is_causal",
    [("learned", True), ("sinusoidal", False), ("relative", True), ("none", False)]
    + [("alibi", True), ("alibi", False)],
)
def test_a_packed_document_is_read_as_if_alone(
    positions, is_causal, make_spec, make_params
):
    spec = make_spec(positions=positions, init_std=0.3)
    model, params = make_params(spec, not is_causal)
    seen = masks.causal if is_causal else masks.segments
    segments = jnp.array([[1, 1, 1, 1, 2, 2, 2, 2], [1, 2, 2, 2, 2, 0, 0, 0]])
    places = jnp.array([[0, 1, 2, 3, 0, 1, 2, 3], [0, 0, 1, 2, 3, 0, 1, 2]])
    masked = {"self": seen(segments)}
    run = jax.jit(lambda places: apply(model, params, IDS, masked, position_ids=places))
    packed = run(places)
    alone = jnp.stack([IDS[0, :4], IDS[0, 4:], IDS[1, 1:5]])
    alone = apply(model, params, alone, CAUSAL if is_causal else FULL)
    for result, expected in zip((packed[0, :4], packed[0, 4:], packed[1, 1:5]), alone):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    # Only a table of positions depends on the position of a document in the row.
    unplaced = run(jnp.arange(8)[None].repeat(2, 0))[0, 4:]
    is_told = np.abs(unplaced - alone[1]).max() > 1e-2
    assert is_told == (positions in ("learned", "sinusoidal"))


def test_both_stacks_take_places(make_spec, make_params):
    model, params = make_params(make_spec(num_decoder_layers=1, init_std=0.3))
    seen = {"self": masks.full(), "dec_self": masks.causal(), "cross": masks.full()}
    usual = jnp.arange(8)[None].repeat(2, 0)

    run = jax.jit(
        lambda *places: model.apply(
            {"params": params}, IDS, seen, IDS, *places, deterministic=True
        )
    )
    expected = run()
    np.testing.assert_allclose(run(usual, usual), expected, rtol=1e-5, atol=1e-6)
    restarted = usual.at[1, 4:].set(usual[1, :4])
    for name, places in (
        ("places", (restarted, usual)),
        ("dec_places", (usual, restarted)),
    ):
        changed = np.abs(run(*places) - run(usual, usual))
        assert (changed[0] == 0).all()
        assert (changed[1, 4:].max(-1) > 1e-3).all()
        # The decoder's first places do not see its later ones, but all of the source.
        assert (changed[1, :4].max() > 1e-3) == (name == "places")


def test_no_position_means_a_bag_of_words(make_spec, make_params):
    order = jnp.array([3, 1, 0, 2, 7, 6, 5, 4])
    for positions, is_bag in (
        ("none", True),
        ("learned", False),
        ("relative", False),
        ("alibi", False),
    ):
        spec = make_spec(positions=positions, init_std=0.5)
        model, params = make_params(spec)
        both = apply(model, params, jnp.concatenate([IDS, IDS[:, order]]))
        gap = np.abs(both[2:] - both[:2, order]).max()
        assert (gap < 1e-4) == is_bag, positions


def test_pre_norm_normalises_the_output_and_post_norm_the_embeddings(
    make_spec, make_params
):
    for norm_position in ("pre", "post"):
        model, params = make_params(make_spec(norm_position=norm_position))
        hidden = apply(model, params, method="encode")
        np.testing.assert_allclose(hidden.mean(-1), 0, atol=1e-5)
        np.testing.assert_allclose(hidden.std(-1), 1, atol=2e-2)
        assert ("norm" in params["embed"]) == (norm_position == "post")
        assert ("norm" in params["encoder"]) == (norm_position == "pre")


def zero_scales(params, names):
    """Sets to zero the norms of that name in every layer."""

    def change(path, leaf):
        keys = [key.key for key in path]
        return jnp.zeros_like(leaf) if set(keys) & set(names) else leaf

    return jax.tree_util.tree_map_with_path(change, params)


def test_pre_norm_keeps_the_residual_and_post_norm_does_not(make_spec, make_params):
    def encode(norm_position):
        spec = make_spec(norm_position=norm_position, use_bias=False, num_layers=1)
        model, params = make_params(spec)
        params = zero_scales(params, ["attention_norm", "mlp_norm"])
        return params, apply(model, params, method="encode")

    # With norms that give zero, a pre-norm layer adds nothing to the embeddings ...
    params, hidden = encode("pre")
    x = params["embed"]["tokens"][IDS] + params["embed"]["positions"]["table"][:8]
    expected = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(
        x.var(-1, keepdims=True) + 1e-5
    )
    np.testing.assert_allclose(hidden, expected, rtol=1e-4, atol=1e-4)
    # ... and a post-norm layer ends in zero.
    np.testing.assert_array_equal(encode("post")[1], 0)


def naive_forward(params, ids, num_heads, norm_position):
    """A decoder-only Transformer in plain NumPy, one row at a time."""

    def norm(x, p):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)
        return x * p["scale"] + p["bias"]

    def dense(x, p):
        return x @ p["kernel"] + p["bias"]

    def mlp(x, p):
        return dense(np.maximum(dense(x, p["up"]), 0), p["down"])

    def attention(x, p):
        length, width = x.shape
        split = [
            dense(x, p[name]).reshape(length, num_heads, -1)
            for name in ("query", "key", "value")
        ]
        q, k, v = split
        out = np.zeros_like(q)
        for head in range(num_heads):
            for t in range(length):
                scores = k[: t + 1, head] @ q[t, head] / np.sqrt(width // num_heads)
                weights = np.exp(scores - scores.max())
                out[t, head] = weights / weights.sum() @ v[: t + 1, head]
        return dense(out.reshape(length, width), p["out"])

    params = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    rows = []
    for row in np.asarray(ids):
        x = params["embed"]["tokens"][row]
        x = x + params["embed"]["positions"]["table"][: len(row)]
        stack = params["encoder"]
        if norm_position == "post":
            x = norm(x, params["embed"]["norm"])
        for i in range(2):
            layer = stack[f"layer_{i}"]
            if norm_position == "pre":
                x = x + attention(norm(x, layer["attention_norm"]), layer["attention"])
                x = x + mlp(norm(x, layer["mlp_norm"]), layer["mlp"])
            else:
                x = norm(x + attention(x, layer["attention"]), layer["attention_norm"])
                x = norm(x + mlp(x, layer["mlp"]), layer["mlp_norm"])
        if norm_position == "pre":
            x = norm(x, stack["norm"])
        rows.append(x @ params["embed"]["tokens"].T)
    return np.stack(rows)


@pytest.mark.slow_cases("pre")
@pytest.mark.parametrize("norm_position", ["pre", "post"])
def test_a_decoder_only_model_is_the_one_written_in_numpy(
    norm_position, make_spec, make_params
):
    spec = make_spec(activation="relu", init_std=0.3, norm_position=norm_position)
    model, params = make_params(spec, False)
    # No vector is left at its 0 or 1, so that each has an effect.
    params = jax.tree.map(
        lambda x: x + jnp.linspace(-0.2, 0.2, x.size).reshape(x.shape), params
    )
    result = apply(model, params, IDS, CAUSAL)
    expected = naive_forward(params, IDS, 2, norm_position)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_a_tied_head_trains_the_token_table(make_spec, make_params):
    for is_tied in (True, False):
        model, params = make_params(make_spec(tie_embeddings=is_tied))

        def total(params):
            hidden = jnp.ones((1, 1, 16))
            logits = model.apply({"params": params}, hidden, method="logits")
            return logits[0, 0, 4]

        grad = jax.jit(jax.grad(total))(params)["embed"]["tokens"]
        # No token was read: what reaches the table comes through the head, to one row.
        assert np.flatnonzero(np.abs(grad).sum(-1)).tolist() == ([4] if is_tied else [])
        assert ("head" in params) == (not is_tied)


def test_a_tied_table_gets_the_gradient_of_both_its_uses(make_spec, make_params):
    model, params = make_params(make_spec())

    def total(table, head_table):
        both = params | {"embed": params["embed"] | {"tokens": table}}
        hidden = apply(model, both, method="encode")
        return (jnp.sin(hidden @ head_table.T)).sum()

    def tied(table):
        both = params | {"embed": params["embed"] | {"tokens": table}}
        return jnp.sin(apply(model, both)).sum()

    table = params["embed"]["tokens"]
    parts = jax.grad(total, (0, 1))(table, table)
    assert all(np.abs(part).max() > 0 for part in parts)
    np.testing.assert_allclose(jax.grad(tied)(table), sum(parts), rtol=1e-4, atol=1e-5)


@pytest.mark.slow_except("learned")
@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_more_tokens_than_places_are_refused(positions, make_spec, make_params):
    model, params = make_params(make_spec(positions=positions, max_len=8))
    assert apply(model, params).shape == (2, 8, 11)
    with pytest.raises(UserError, match="9 tokens: model.max_len=8"):
        apply(model, params, jnp.zeros((1, 9), jnp.int32))


def test_relative_positions_know_no_longest(make_spec, make_params):
    model, params = make_params(make_spec(positions="relative", max_len=8))
    ids = jnp.zeros((1, 9), jnp.int32)
    result = jax.eval_shape(lambda p: apply(model, p, ids), params)
    assert result.shape == (1, 9, 11)


@pytest.mark.slow_except("attention_dropout")
@pytest.mark.parametrize("name", ["dropout", "embed_dropout", "attention_dropout"])
def test_dropout_is_off_when_deterministic_and_needs_a_key(
    name, make_spec, make_params
):
    model, params = make_params(make_spec(**{name: 0.4}))
    plain = make_params(make_spec())[0]

    @jax.jit
    def drop(seed):
        rngs = {"dropout": jax.random.key(seed)}
        return apply(model, params, deterministic=False, rngs=rngs)

    still = apply(model, params)
    np.testing.assert_array_equal(still, apply(plain, params))
    np.testing.assert_array_equal(drop(0), drop(0))
    assert (drop(0) != drop(1)).any() and (drop(0) != still).any()
    with pytest.raises(Exception, match="dropout"):
        apply(model, params, deterministic=False)


def test_dropout_layers_draw_apart_and_keep_their_share(make_spec, make_params):
    layer = layers.Dropout(0.25)
    ones = jnp.ones((100, 200))
    drop = lambda key: layer.apply(  # noqa: E731
        {}, ones, deterministic=False, rngs={"dropout": key}
    )
    result = np.asarray(drop(jax.random.key(0)))
    assert abs((result == 0).mean() - 0.25) < 0.02
    np.testing.assert_allclose(result[result > 0], 4 / 3, rtol=1e-6)
    # The same key reaches every layer of a model; each folds it with its own name.
    spec = make_spec(dropout=0.5, use_bias=False, positions="none")
    model, params = make_params(spec)
    _, state = model.apply(
        {"params": params},
        IDS,
        FULL,
        deterministic=False,
        rngs={"dropout": jax.random.key(0)},
        capture_intermediates=lambda module, _: isinstance(module, layers.Dropout),
    )
    outputs = [np.asarray(x) for x in jax.tree.leaves(state) if x.shape == (2, 8, 16)]
    assert len(outputs) >= 5  # two a layer and the embeddings', which drop nothing
    dropped = [out == 0 for out in outputs if (out == 0).any()]
    assert len(dropped) == 4
    for i, one in enumerate(dropped):
        assert 0.4 < one.mean() < 0.6
        assert all((one != other).any() for other in dropped[:i])


def test_bfloat16_computes_near_float32_on_float32_parameters(make_spec, make_params):
    wide, params = make_params(make_spec(init_std=0.1))
    low, low_params = make_params(make_spec(init_std=0.1, dtype="bfloat16"))
    for a, b in zip(jax.tree.leaves(params), jax.tree.leaves(low_params)):
        assert b.dtype == jnp.float32
        np.testing.assert_array_equal(a, b)
    result, expected = apply(low, params), apply(wide, params)
    assert result.dtype == jnp.float32
    np.testing.assert_allclose(result, expected, atol=0.05)
    assert (result != expected).any()
    assert apply(low, params, method="encode").dtype == jnp.bfloat16
    grads = jax.eval_shape(jax.grad(lambda p: jnp.sin(apply(low, p)).sum()), params)
    assert all(grad.dtype == jnp.float32 for grad in jax.tree.leaves(grads))


@pytest.mark.slow
def test_initial_parameters_have_their_spread():
    spec = ModelSpec(vocab_size=500, d_model=128, num_layers=1, positions="none")
    ids = jnp.zeros((1, 2), jnp.int32)
    torch = (1 / 3 / 128) ** 0.5
    for init, is_tied, table, kernel, bias in (
        ("normal", True, 0.02, 0.02, 0.0),
        ("torch", False, 1.0, torch, torch),
        ("torch", True, 0.02, torch, torch),
    ):
        changes = {"init": init, "tie_embeddings": is_tied}
        model = Transformer(ModelSpec(**(vars(spec) | changes)))
        params = model.init(jax.random.key(0), ids, FULL, deterministic=True)["params"]
        up = params["encoder"]["layer_0"]["mlp"]["up"]
        assert params["embed"]["tokens"].std() == pytest.approx(table, rel=0.02)
        assert up["kernel"].std() == pytest.approx(kernel, rel=0.02)
        assert up["bias"].std() == pytest.approx(bias, rel=0.1)
        if init == "torch":
            assert np.abs(up["kernel"]).max() <= 128**-0.5
            assert np.abs(up["bias"]).max() <= 128**-0.5
