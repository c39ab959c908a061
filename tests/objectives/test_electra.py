"""ELECTRA: whose gradient reaches what, and which token counts as replaced."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxpt.errors import UserError
from jaxpt.learn.optim_spec import OptimSpec
from jaxpt.learn.optimizer import make_optimizer
from jaxpt.nn import layers
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.electra import Electra
from jaxpt.objectives import electra
from jaxpt.ops import losses
from jaxpt.ops.masks import materialise
from jaxpt.rng import row_keys

SAMPLE = {"sample": jax.random.key(11)}


def sizes(grads):
    """The largest entry of each network's gradient."""
    return {
        name: max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(part))
        for name, part in grads.items()
    }


@pytest.fixture(scope="module")
def both():
    """Filled by the first test that needs it: the gradients of both terms."""
    return {}


@pytest.fixture
def term_gradients(both, make_case, make_rows):
    """{term: its gradient, by network}."""
    if not both:
        case = make_case("electra")
        batch = case.corrupt(make_rows(case, 4))

        def terms_of(params):
            masks = electra.masks(batch)
            terms, _ = electra.loss(params, case.model, batch, masks, SAMPLE)
            return {name: total for name, (total, _) in terms.items()}

        rows = jax.jit(jax.jacrev(terms_of))(case.params)
        both.update(rows)
    return both


@pytest.mark.slow
def test_the_discriminators_loss_does_not_reach_the_generator(term_gradients):
    result = sizes(term_gradients["discriminator_loss"])
    assert set(result) == {"embed", "generator", "discriminator", "score"}
    assert result["generator"] == 0
    assert result["embed"] > 0 and result["discriminator"] > 0 and result["score"] > 0


def test_the_generators_loss_reaches_the_shared_embeddings_too(term_gradients, vocab):
    result = sizes(term_gradients["generator_loss"])
    assert result["discriminator"] == result["score"] == 0
    assert result["embed"] > 0 and result["generator"] > 0
    table = term_gradients["generator_loss"]["embed"]["tokens"]
    # It is the generator's output layer too: ids that no row holds get a gradient.
    assert (np.abs(table).max(-1) > 0).all()
    table = term_gradients["discriminator_loss"]["embed"]["tokens"]
    read = np.flatnonzero(np.abs(table).max(-1))
    assert 0 < len(read) < 40 and vocab.mask not in read  # it never sees [MASK]


@pytest.mark.slow
def test_the_weights_of_the_losses_are_one_and_fifty(make_case, make_rows):
    spec = electra.Spec.for_seq_len(20)
    expected = {"generator_loss": 1.0, "discriminator_loss": 50.0}
    assert spec.coefficients == expected
    case = make_case("electra")
    rows = make_rows(case, 8)
    alike = dataclasses.replace(spec, discriminator_weight=1.0)
    by_fifty, by_one = case.gradients(rows)[0], case.gradients(rows, spec=alike)[0]
    for name, factor in (("score", 50), ("discriminator", 50), ("generator", 1)):
        for a, b in zip(jax.tree.leaves(by_fifty[name]), jax.tree.leaves(by_one[name])):
            np.testing.assert_allclose(a, factor * b, rtol=1e-4, atol=1e-6)


def one_hot(ids, size=40):
    return 1e4 * jax.nn.one_hot(ids, size)


def replace(batch, logits, temperature=1.0):
    """The discriminator's task where the generator gives these logits."""
    draw = row_keys(SAMPLE["sample"], batch["index"]), temperature
    args = logits, batch["targets"], batch["weights"]["generator_loss"], draw
    return electra.replace(batch, losses.score(*args).samples)


def test_a_right_sample_counts_as_original(make_case, make_rows):
    case = make_case("electra")
    batch = case.corrupt(make_rows(case, 4))
    ids, labels = replace(batch, one_hot(batch["targets"]))
    np.testing.assert_array_equal(ids, batch["original"])
    assert not labels.any()


@pytest.mark.parametrize("sample, num_replaced", [(10, 0), (11, 12)])
def test_the_loss_counts_a_right_sample_as_original(
    sample, num_replaced, make_case, make_rows
):
    """3 tokens of each of 4 rows are masked; all are 10, and the generator is sure."""
    case = make_case("electra")
    rows = make_rows(case, 4)
    batch = case.corrupt(rows | {"tokens": jnp.full_like(rows["tokens"], 10)})
    head = case.params["generator"]["head"]
    head = head | {"bias": head["bias"].at[sample].set(1e4)}
    generator = case.params["generator"] | {"head": head}
    # Whatever the token, "replaced" has the logit 2.
    score = jax.tree.map(jnp.zeros_like, case.params["score"])
    score["out"]["bias"] += 2.0
    params = case.params | {"generator": generator, "score": score}
    terms, metrics = case.loss(batch, params, **SAMPLE)
    assert metrics["replaced"] == (num_replaced, 80)
    assert metrics["recall"] == (num_replaced, num_replaced)
    assert metrics["accuracy"] == (num_replaced, 80)
    expected = 80 * np.logaddexp(0, 2) - 2 * num_replaced
    assert float(terms["discriminator_loss"][0]) == pytest.approx(expected, rel=1e-5)


def test_a_wrong_sample_counts_as_replaced_where_it_was_drawn(make_case, make_rows):
    case = make_case("electra")
    rows = make_rows(case, 4, specials=0.9)  # some slots are left over
    batch = case.corrupt(rows)
    assert 0 < batch["weights"]["generator_loss"].mean() < 1
    wrong = one_hot(jnp.full_like(batch["targets"], 6))
    ids, labels = replace(batch, wrong)
    for i in range(4):
        drawn = batch["weights"]["generator_loss"][i] > 0
        places = np.asarray(batch["masked_positions"][i])[drawn]
        assert np.flatnonzero(labels[i]).tolist() == sorted(places.tolist())
        assert (ids[i][places] == 6).all()
        elsewhere = np.delete(np.arange(20), places)
        np.testing.assert_array_equal(ids[i][elsewhere], rows["tokens"][i][elsewhere])


def test_samples_follow_the_temperature_and_each_rows_own_key(make_case, make_rows):
    case = make_case("electra")
    rows = make_rows(case, 64)
    batch = case.corrupt(rows)
    logits = 2.0 * jax.nn.one_hot(batch["targets"], 40)

    replace_all = jax.jit(lambda b: replace(b, 0 * logits)[0])

    @jax.jit
    def share_replaced(temperature):
        _, labels = replace(batch, logits, temperature)
        return labels.sum() / batch["weights"]["generator_loss"].sum()

    for temperature in (0.3, 1.0, 4.0):
        right = np.exp(2 / temperature)
        expected = 39 / (39 + right)
        assert share_replaced(temperature) == pytest.approx(expected, abs=0.12)
    half = jax.tree.map(lambda x: x[32:], batch)
    replace_half = jax.jit(lambda b: replace(b, 0 * logits[:32])[0])
    np.testing.assert_array_equal(replace_all(batch)[32:], replace_half(half))


def test_the_specs_temperature_is_the_one_that_samples(make_case, make_rows):
    case = make_case("electra", temperature=100.0)
    rows = make_rows(case, 8) | {"tokens": jnp.full((8, 20), 10)}
    head = case.params["generator"]["head"]
    likely = head | {"bias": head["bias"].at[10].set(6.0)}  # p = 0.91 at temperature 1
    generator = case.params["generator"] | {"head": likely}
    case = dataclasses.replace(case, params=case.params | {"generator": generator})
    sums = case.evaluate(case.params, rows, jax.random.key(0))
    for replaced, num_tokens in (
        sums["replaced"],
        case.gradients(rows)[1]["replaced"],
    ):
        assert 0.1 < replaced / num_tokens <= 0.15


def test_the_discriminator_is_judged_on_every_real_token(make_case, make_rows):
    case = make_case("electra")
    rows = make_rows(case, 3, lengths=[20, 12, 1])
    batch = case.corrupt(rows)
    terms, metrics = case.loss(batch, **SAMPLE)
    assert terms["discriminator_loss"][1] == 33 == metrics["accuracy"][1]
    assert (
        terms["generator_loss"][1]
        == 3 + 2 + 1
        == batch["weights"]["generator_loss"].sum()
    )
    weights = batch["weights"]["discriminator_loss"]
    np.testing.assert_array_equal(weights, rows["segment_ids"] > 0)
    np.testing.assert_array_equal(batch["original"], rows["tokens"])


def test_metrics_count_what_they_say(make_case, make_rows):
    case = make_case("electra")
    batch = case.corrupt(make_rows(case, 4))
    masks = electra.masks(batch)

    def read(model):
        states = model.generate(batch, masks, deterministic=True)
        ids, labels = replace(batch, model.generator.logits(states))
        written = batch | {"inputs": ids}
        states = model.discriminate(written, masks, deterministic=True)
        return model.score(states), labels

    # A score head that says "replaced" for some tokens, not for others.
    score = jax.tree.map(lambda x: 40 * x, case.params["score"])
    params = case.params | {"score": score}
    scores, labels = jax.jit(lambda p: case.model.apply({"params": p}, method=read))(
        params
    )
    _, metrics = case.loss(batch, params, **SAMPLE)
    says, labels = np.asarray(scores) > 0, np.asarray(labels) > 0
    assert 0 < says.mean() < 1
    assert metrics["replaced"] == (labels.sum(), 80)
    assert metrics["accuracy"] == ((says == labels).sum(), 80)
    assert metrics["recall"] == ((says & labels).sum(), labels.sum())


def test_the_generator_sees_masks_and_originals_but_no_random_words(vocab):
    spec = electra.Spec.for_seq_len(20, mask_rate=0.5)
    draw = np.random.default_rng(0)
    tokens = draw.integers(7, 32, (1000, 20)).astype(np.int32)
    rows = {"tokens": jnp.asarray(tokens), "index": jnp.arange(1000)}
    batch = jax.jit(lambda rng, rows: electra.corrupt(rng, rows, vocab, spec))(
        jax.random.key(0), rows
    )
    assert (batch["weights"]["generator_loss"] == 1).all() and spec.num_masked == 10
    inputs = np.take_along_axis(
        np.asarray(batch["inputs"]), batch["masked_positions"], axis=1
    )
    is_mask, is_kept = inputs == vocab.mask, inputs == batch["targets"]
    assert (is_mask ^ is_kept).all()
    assert is_mask.mean() == pytest.approx(0.85, abs=0.012)
    changed = np.asarray(batch["inputs"]) != tokens
    assert changed.sum() == is_mask.sum()


def test_only_hidden_positions_meet_the_vocabulary(make_case, make_rows):
    case = make_case("electra")
    batch = case.corrupt(make_rows(case, 3))

    def total(params):
        masks = electra.masks(batch)
        terms, _ = electra.loss(params, case.model, batch, masks, SAMPLE)
        return sum(total for total, _ in terms.values())

    program = jax.jit(jax.grad(total)).lower(case.params).as_text()
    assert "tensor<3x3x40xf32>" in program or "tensor<9x40xf32>" in program
    assert "tensor<3x20x40x" not in program and "tensor<60x40x" not in program


def test_the_generator_is_narrower_and_as_deep():
    model_spec = ModelSpec(
        vocab_size=9, num_layers=3, d_model=256, num_heads=4, d_ff=1024
    )
    result = electra.shrink(model_spec, electra.Spec.for_seq_len(20))
    assert (result.d_model, result.num_heads, result.d_ff) == (64, 1, 256)
    assert result.num_layers == 3 and result.embedding_dim == 256
    half = electra.shrink(model_spec, electra.Spec.for_seq_len(20, generator_size=0.5))
    assert (half.d_model, half.num_heads, half.d_ff) == (128, 2, 512)
    narrow = dataclasses.replace(model_spec, embedding_size=128)
    assert electra.shrink(narrow, electra.Spec.for_seq_len(20)).embedding_dim == 128


def test_a_size_that_heads_do_not_divide_is_refused():
    model_spec = ModelSpec(vocab_size=9, d_model=36, num_heads=6)
    spec = electra.Spec.for_seq_len(20, generator_size=0.6)
    with pytest.raises(UserError, match="electra.generator_size=0.6: .* 22 and 4 h"):
        electra.shrink(model_spec, spec)
    with pytest.raises(UserError, match="electra.generator_size=0.01: gives width 0"):
        electra.shrink(model_spec, electra.Spec.for_seq_len(20, generator_size=0.01))


@pytest.mark.slow
def test_the_founding_experiments_init_starts_near_ln_v_too(make_case):
    case = make_case("electra", (("init", "torch"), ("tie_embeddings", False)))
    rows = {"tokens": jnp.arange(80).reshape(4, 20) % 25 + 7, "index": jnp.arange(4)}
    batch = case.corrupt(rows)
    params = jax.jit(case.model.init_params)(jax.random.key(0))
    total, weight = case.loss(batch, params, **SAMPLE)[0]["generator_loss"]
    assert total / weight < 2 * np.log(40)


def test_one_step_of_each_kind_of_embeddings(monkeypatch):
    """A table of 1, both gradients 1, weights 1 and 50, SGD at 0.1."""

    def step(sharing):
        """The tables after a step, and what the discriminator then reads."""
        sizes = {"num_layers": 1, "d_model": 2, "num_heads": 1, "d_ff": 1}
        spec = ModelSpec(vocab_size=1, positions="rotary", **sizes)
        monkeypatch.setattr(
            layers, "table_init", lambda spec: lambda rng, shape: jnp.ones(shape)
        )
        model = Electra(spec, spec, sharing=sharing)
        ids = jnp.zeros((1, 1), jnp.int32)

        def look_up(model):
            both = model.generator.embed, model.discriminator.embed
            return [embed.look_up(ids)[0, 0, 0] for embed in both]

        params = model.init(jax.random.key(0), method=look_up)["params"]

        def total(params):
            written, read = model.apply({"params": params}, method=look_up)
            return written + 50 * read

        grads = jax.grad(total)(params)
        params = jax.tree.map(lambda x, grad: x - 0.1 * grad, params, grads)
        tables = {
            jax.tree_util.keystr(path, simple=True, separator="/"): float(x[0, 0])
            for path, x in jax.tree_util.tree_leaves_with_path(params)
        }
        return tables, float(model.apply({"params": params}, method=look_up)[1])

    tables, read = step("shared")
    assert tables == pytest.approx({"embed/tokens": -4.1})
    assert read == tables["embed/tokens"]
    tables, read = step("separate")
    expected = {"embed/tokens": -4.0, "generator/embed/tokens": 0.9}
    assert tables == pytest.approx(expected) and read == tables["embed/tokens"]
    tables, read = step("disentangled")
    expected = {"embed/tokens": 0.9, "discriminator/embed/tokens": -5.0}
    assert tables == pytest.approx(expected) and read == pytest.approx(-4.1)


TABLES = ("tokens", "positions", "types")


@pytest.mark.slow_cases("pre")
@pytest.mark.parametrize("norm_position", ["pre", "post"])
def test_disentangled_embeddings_get_one_gradient_each(
    norm_position, make_case, make_rows
):
    """Of tokens, positions and types; the norm of each network is its own."""
    values = (("norm_position", norm_position), ("num_types", 2))
    case = make_case("electra", values, share_embeddings="disentangled")
    assert case.params["discriminator"]["embed"].keys() == case.params["embed"].keys()
    batch = case.corrupt(make_rows(case, 4))

    def terms_of(params):
        terms, _ = electra.loss(params, case.model, batch, electra.masks(batch), SAMPLE)
        return {name: total for name, (total, _) in terms.items()}

    grads = jax.jit(jax.jacrev(terms_of))(case.params)
    written, read = grads["generator_loss"], grads["discriminator_loss"]
    assert not any(np.any(x) for x in jax.tree.leaves(read["embed"]))
    assert not any(np.any(x) for x in jax.tree.leaves(written["discriminator"]))
    for grad in (written["embed"], read["discriminator"]["embed"]):
        assert all(np.any(x) for x in jax.tree.leaves(grad))
    # At first the discriminator's own tables are 0, so that both read the same.
    params = jax.jit(case.model.init_params)(jax.random.key(0))
    own = params["discriminator"]["embed"]
    assert all(not np.any(x) for k in TABLES for x in jax.tree.leaves(own[k]))
    part = case.model.export_parts(params)["discriminator"][1]["embed"]
    assert all(
        np.array_equal(*pair)
        for k in TABLES
        for pair in zip(*map(jax.tree.leaves, (part[k], params["embed"][k])))
    )


def test_weight_decay_pulls_the_discriminators_embeddings_to_the_generators():
    """Without gradients, its own tables shrink by lr * decay a step."""
    spec = OptimSpec(lr=0.1, weight_decay=0.5, warmup_steps=0, schedule="constant")
    params = {"embed": {"tokens": jnp.full((2, 2), 3.0)}}
    params |= {"discriminator": {"embed": {"tokens": jnp.full((2, 2), 1.0)}}}
    optimizer = make_optimizer(spec, 10)
    zeros = jax.tree.map(jnp.zeros_like, params)
    updates, _ = optimizer.update(zeros, optimizer.init(params), params)
    moved = optax.apply_updates(params, updates)
    own = moved["discriminator"]["embed"]["tokens"]
    np.testing.assert_allclose(own, 0.95, rtol=1e-6)


def test_disentangled_embeddings_are_exported_as_their_sum(make_case, make_rows):
    """And what is exported reads as the network does, and is read back."""
    values = ("value_embeddings", True), ("smear", True)
    case = make_case("electra", values, share_embeddings="disentangled")
    draw = np.random.default_rng(0)
    own = jax.tree.map(
        lambda x: jnp.float32(draw.normal(size=x.shape)),
        case.params["discriminator"]["embed"],
    )
    discriminator = case.params["discriminator"] | {"embed": own}
    params = case.params | {"discriminator": discriminator}
    parts = {k: part for k, (_, part) in case.model.export_parts(params).items()}
    table = params["embed"]["tokens"]
    np.testing.assert_array_equal(parts["generator"]["embed"]["tokens"], table)
    result = parts["discriminator"]["embed"]["tokens"]
    np.testing.assert_array_equal(result, table + own["tokens"])
    tokens = make_rows(case, 2)["tokens"]
    states = case.model.features(params, tokens)
    masks = {"self": materialise(electra.masks({})["self"], 20, 20)}
    expected = case.model.apply(
        {"params": params},
        {"inputs": tokens},
        masks,
        deterministic=True,
        method="discriminate",
    )
    np.testing.assert_allclose(states, expected, rtol=1e-5, atol=1e-6)
    joined = case.model.join_parts(parts)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), joined, params
    )
    # A discriminator alone, as of a fine-tuning, is the start of both.
    alone = case.model.join_parts({"discriminator": parts["discriminator"]})
    assert not np.any(alone["discriminator"]["embed"]["tokens"])
    np.testing.assert_array_equal(alone["embed"]["tokens"], result)
