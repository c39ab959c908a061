"""Multi-token prediction with extra heads: targets, what each head reads, controls."""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxpt.learn.optimizer import is_layer_matrix
from jaxpt.nn.heads import Embedder
from jaxpt.nn.layers import Dense, Norm
from jaxpt.nn.positions import RelativeBias
from jaxpt.nn.scan import path_name, stack_layers
from jaxpt.nn.stacks import Layer
from jaxpt.objectives import multi_token_heads as heads

equal = functools.partial(jax.tree.map, np.testing.assert_array_equal)
both = pytest.mark.parametrize("variant", heads.VARIANTS)
LENGTHS = [20, 3, 0, 12]


def at(rows, progress):
    """The rows at a fraction of the run."""
    return rows | {"progress": jnp.full(rows["index"].shape, progress, jnp.float32)}


@jax.jit
def gap(result, expected):
    """The relative distance of two trees."""
    apart = optax.tree.norm(jax.tree.map(jnp.subtract, result, expected))
    return apart / optax.tree.norm(expected)


def base(params):
    """The parameters of the causal model."""
    return {name: part for name, part in params.items() if name != "extra"}


@pytest.mark.parametrize(
    "segment_ids, expected",
    [
        ([1, 1, 1, 2, 2, 2], [[1, 1, 0, 1, 1], [1, 0, 0, 1, 0], [0, 0, 0, 0, 0]]),
        ([1, 1, 1, 0, 0, 0], [[1, 1, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0]]),
        (None, [[1, 1, 1, 1, 1], [1, 1, 1, 1, 0], [1, 1, 1, 0, 0]]),
    ],
)
def test_an_offset_ends_with_its_document(segment_ids, expected):
    """7 8 9|5 6 3"""
    rows = {"tokens": jnp.array([[7, 8, 9, 5, 6, 3]]), "index": jnp.array([0])}
    if segment_ids:
        rows["segment_ids"] = jnp.array([segment_ids])
    batch = heads.corrupt(None, rows, None, heads.Spec(6, num_extra=2))
    assert list(batch["weights"]) == ["clm_loss", "offset_2_loss", "offset_3_loss"]
    assert [w[0].tolist() for w in batch["weights"].values()] == expected
    assert batch["targets"].tolist() == [[8, 9, 5, 6, 3]]


def test_weights_are_as_published_or_as_set():
    parallel = heads.Spec(6, variant="parallel")
    names = ["clm_loss", "offset_2_loss", "offset_3_loss", "offset_4_loss"]
    for coefficients in (parallel.coefficients, parallel.coefficients_at(0.1)):
        assert coefficients == dict.fromkeys(names, 1.0)
    spec = heads.Spec(6)
    assert spec.coefficients == {"clm_loss": 1.0, "offset_2_loss": 0.1}
    for progress, weight in ((0.0, 0.3), (0.67, 0.3), (0.68, 0.1), (1.0, 0.1)):
        for value in (progress, jnp.float32(progress)):
            result = spec.coefficients_at(value)
            assert result["offset_2_loss"] == pytest.approx(weight)
            assert result["clm_loss"] == 1.0
    spec = heads.Spec(6, "parallel", 2, ((0.25, 0.0), (0.5, 4.0), (1.0, 1.0)))
    result = [spec.coefficients_at(p)["offset_3_loss"] for p in (0.2, 0.25, 0.5)]
    assert result == [0.0, 2.0, 0.5]


def states_by_hand(case, params, tokens):
    """The heads' states of one document, its layers called one after the other."""
    model, spec, extra = case.model, case.model.spec, params["extra"]
    length = tokens.shape[1]
    mask = jnp.tril(jnp.ones((length, length), bool))[None, None]
    places = jnp.arange(length)[None] if spec.positions == "rotary" else None
    embed = lambda m: m._embed(tokens, mask, None, None, True)  # noqa: E731
    x = model.apply({"params": params}, method=embed)

    def bias_of(part):
        if spec.positions != "relative":
            return None
        relative = RelativeBias(spec, spec.is_bidirectional)
        return relative.apply({"params": part["relative"]}, length, length)

    def layer(part, x, bias, i, is_normed=False, ids=None):
        rest = mask, bias, None, None, places, None, 0, ids
        own = Layer(spec, is_normed, spec.is_local(i))
        return own.apply({"params": part}, x, *rest, deterministic=True)[0]

    def norm(part, x):
        return Norm(spec).apply({"params": part}, x)

    before, h, last = None, x, spec.num_layers - 1
    for i in range(spec.num_layers):
        part = params["encoder"][f"layer_{i}"]
        is_normed = spec.embed_norm and i == 0
        ids = tokens if spec.has_values(i, spec.num_layers) else None
        before, h = h, layer(part, h, bias_of(params["encoder"]), i, is_normed, ids)
    is_pre = spec.norm_position == "pre"
    h = norm(params["encoder"]["norm"], h) if is_pre else h
    states = [h]
    for k in case.spec.offsets:
        part = extra[f"layer_{k}"]
        if case.spec.variant == "sequential":
            ahead = jnp.pad(x, ((0, 0), (0, k - 1), (0, 0)))[:, k - 1 :]
            parts = norm(part["state_norm"], h), norm(part["token_norm"], ahead)
            merge = Dense(spec.d_model, spec, use_bias=False)
            merged = jnp.concatenate(parts, -1)
            h = merge.apply({"params": part["merge"]}, merged)
        else:
            h = before
        h = layer(part["layer"], h, bias_of(extra), last)
        states.append(norm(part["norm"], h) if is_pre else h)
    return states


SHAPES = [
    ("parallel", (("num_layers", 2),)),
    ("sequential", (("positions", "rotary"), ("norm", "rmsnorm"))),
    ("sequential", (("positions", "relative"), ("embedding_size", 16))),
    ("parallel", (("norm_position", "post"), ("window", 2), ("num_layers", 2))),
    ("parallel", (("positions", "relative"), ("embed_norm", True))),
    ("sequential", (("value_embeddings", True), ("smear", True), ("num_layers", 3))),
    ("parallel", (("value_embeddings", True), ("smear", True))),
]


@pytest.mark.slow_except("sequential-values5", "parallel-values6")
@pytest.mark.parametrize("variant, values", SHAPES)
def test_each_document_of_a_row_is_read_as_if_alone(
    variant, values, make_case, make_rows
):
    """The losses of packed rows, by heads that are called by hand on each document."""
    case = make_case("multi_token_heads", values, variant=variant, num_extra=2)
    draw = np.random.default_rng(1).normal
    params = jax.tree.map(
        lambda x: jnp.asarray(x + draw(0, 0.2, x.shape), jnp.float32), case.params
    )
    rows = make_rows(case, 3, lengths=[21, 7, 7])
    terms, _ = case.loss(case.corrupt(rows), params)

    @jax.jit
    def read_alone(params, tokens):
        """The loss of each term on one document."""
        states, totals = states_by_hand(case, params, tokens[:, :-1]), []
        for k, h in enumerate(states, 1):
            log_p = jax.nn.log_softmax(
                case.model.apply({"params": params}, h, method="logits")
            )
            targets = tokens[0, k:]
            totals.append(-log_p[0, jnp.arange(len(targets)), targets].sum())
        return totals

    expected = {name: [0.0, 0] for name in terms}
    for row, ids in zip(np.array(rows["tokens"]), rows["segment_ids"], strict=True):
        for document in (1, 2):
            tokens = row[np.array(ids) == document][None]
            totals = read_alone(params, tokens)
            for k, (name, total) in enumerate(zip(terms, totals, strict=True), 1):
                expected[name][0] += float(total)
                expected[name][1] += max(tokens.shape[1] - k, 0)
    for name, (total, num) in expected.items():
        assert terms[name][1] == num > 0
        assert float(terms[name][0]) == pytest.approx(total, rel=2e-5), name


@both
def test_with_weight_0_the_models_gradient_is_clms(variant, make_case, make_rows):
    weights = {"weight_schedule": ((1.0, 0.0),)}
    case = make_case("multi_token_heads", variant=variant, **weights)
    control = make_case("clm")
    control = dataclasses.replace(control, params=base(case.params))
    rows = make_rows(case, 4, lengths=LENGTHS, with_eos=True)
    grads, metrics = case.gradients(at(rows, 0.5))
    expected, sums = control.gradients(rows)
    assert gap(base(grads), expected) < 1e-6
    assert not any(x.any() for x in jax.tree.leaves(grads["extra"]))
    assert metrics["accuracy"] == sums["accuracy"]
    assert float(metrics["clm_loss"][0]) == pytest.approx(float(sums["loss"][0]))
    assert metrics["offset_2_loss"][0] > 0


def test_the_weight_is_a_factor_of_the_gradient(make_case, make_rows):
    """In the sum, where a mean's weights would cancel it; and the heads' losses add."""
    case = make_case("multi_token_heads", num_extra=2)
    rows = make_rows(case, 4, lengths=LENGTHS)
    early, late = (case.gradients(at(rows, p))[0] for p in (0.0, 0.9))
    subtract = functools.partial(jax.tree.map, jnp.subtract)
    difference = subtract(early, late)
    batch = case.corrupt(rows)
    masks = jax.jit(case.module.masks)(batch)

    def extra(params):
        terms, _ = case.module.loss(params, case.model, batch, masks, {})
        terms.pop("clm_loss")
        return sum(total / num for total, num in terms.values()) / len(terms)

    expected = jax.tree.map(lambda x: 0.2 * x, jax.jit(jax.grad(extra))(case.params))
    assert gap(difference, expected) < 1e-4
    assert optax.tree.norm(expected["extra"]) > 0 < optax.tree.norm(expected["embed"])


@both
@pytest.mark.parametrize("offset", [1, 2, 3])
def test_a_head_reads_no_token_that_it_or_a_later_one_predicts(
    variant, offset, make_case, make_rows
):
    """The gradient of one position's loss by the embeddings of the row."""
    case, place = make_case("multi_token_heads", variant=variant, num_extra=2), 14
    batch = case.corrupt(make_rows(case, 1, lengths=[21]))  # the second from 10 on
    name = list(case.spec.terms)[offset - 1]
    only = jnp.arange(20) == place
    batch["weights"] = {
        key: weights * only * (key == name) for key, weights in batch["weights"].items()
    }
    masks = heads.masks(batch)

    def read(shifts):
        def intercept(call, args, kwargs, context):
            out = call(*args, **kwargs)
            is_call = context.method_name == "__call__"
            return out + shifts if is_call and type(context.module) is Embedder else out

        with nn.intercept_methods(intercept):
            terms, _ = heads.loss(case.params, case.model, batch, masks, {})
        return terms[name][0]

    reach = np.abs(jax.jit(jax.grad(read))(jnp.zeros((1, 20, 32)))[0]).max(-1)
    last = place + (offset - 1) * (variant == "sequential")
    expected = (np.arange(20) >= 10) & (np.arange(20) <= last)
    np.testing.assert_array_equal(reach > 0, expected)


@both
def test_evaluation_and_generation_use_the_first_head(variant, make_case, make_rows):
    case = make_case("multi_token_heads", variant=variant)
    control = make_case("clm")
    control = dataclasses.replace(control, params=base(case.params))
    rows, key = make_rows(case, 4, lengths=LENGTHS), jax.random.key(0)
    result, expected = (c.evaluate(c.params, rows, key) for c in (case, control))
    equal(result["clm_loss"], expected["loss"])
    equal(result["accuracy"], expected["accuracy"])
    tokens = rows["tokens"]
    for name in ("token_nll", "next_logits", "features"):
        results = (jax.jit(getattr(c.model, name)) for c in (case, control))
        equal(*(f(c.params, tokens) for f, c in zip(results, (case, control))))
    ((head, (_, params)),) = case.model.export_parts(case.params).items()
    assert head == "causal"
    equal(params, control.params)


@pytest.mark.slow_except("none-sequential", "full-parallel")
@both
@pytest.mark.parametrize("remat", ["none", "full"])
def test_it_trains_the_same_scanned_and_rematerialised(
    variant, remat, make_case, make_rows, vocab
):
    values = (("num_layers", 3), ("positions", "relative"))
    case = make_case("multi_token_heads", values, variant=variant, num_extra=2)
    spec = dataclasses.replace(case.model_spec, scan_layers=True, remat=remat)
    model, params = case.spec.make_network(spec, vocab), stack_layers(case.params)
    assert "layers" in params["encoder"]
    equal(params["extra"], case.params["extra"])
    scanned = dataclasses.replace(case, model=model, params=params)
    rows = make_rows(case, 4, lengths=LENGTHS)
    expected, sums = case.gradients(rows)
    result, metrics = scanned.gradients(rows)
    assert gap(result, stack_layers(expected)) < 1e-5
    for name, (total, _) in sums.items():
        assert float(metrics[name][0]) == pytest.approx(float(total), rel=1e-5)


def test_the_first_parameters_are_clms_and_the_same_scanned(make_case, vocab):
    case, control = make_case("multi_token_heads"), make_case("clm")
    spec = dataclasses.replace(case.model_spec, num_layers=2)
    models = [
        case.spec.make_network(spec, vocab),
        control.spec.make_network(spec, vocab),
        case.spec.make_network(dataclasses.replace(spec, scan_layers=True), vocab),
    ]
    params, expected, scanned = (
        jax.jit(m.init_params)(jax.random.key(0)) for m in models
    )
    equal(base(params), expected)
    equal(scanned, stack_layers(params))


def test_matrices_of_extra_layers_are_a_layers(make_case):
    """For Muon: also those that merge a state with a token."""
    case = make_case("multi_token_heads")
    leaves = jax.tree_util.tree_leaves_with_path(case.params["extra"])
    names = {path_name(path) for path, leaf in leaves if is_layer_matrix(path, leaf)}
    inner = [f"attention/{name}" for name in ("query", "key", "value", "out")]
    paths = [f"layer/{name}" for name in (*inner, "mlp/up", "mlp/down")]
    assert names == {f"layer_2/{name}/kernel" for name in (*paths, "merge")}
