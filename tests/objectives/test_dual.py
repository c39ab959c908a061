"""Causal rows and rows of masked diffusion: the shift, the shares, the bound."""

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxpt.evaluation.likelihood import measure_nll_bound
from jaxpt.evaluation.sampling import generate
from jaxpt.evaluation.scores import SampleSpec
from jaxpt.evaluation.unmasking import unmask
from jaxpt.judge.examples import means
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks import abilities
from jaxpt.objectives import clm_mlm, dual
from jaxpt.ops.packing import count_slots
from jaxpt.rng import split_step
from jaxpt.text.tokens.vocab import Vocab

norm = optax.tree.norm


def gap(one, two):
    """How far two trees are apart, relative to the second."""
    return norm(jax.tree.map(jnp.subtract, one, two)) / norm(two)


def corrupt_many(spec, vocab, num_rows, seeds=1):
    """The batches of equal rows under several keys, [seeds, B, ...]."""
    tokens = jnp.full((num_rows, spec.row_length), 9)
    rows = {"tokens": tokens, "index": jnp.arange(num_rows)}
    keys = jax.random.split(jax.random.key(0), seeds)
    return jax.jit(jax.vmap(lambda k: dual.corrupt(k, rows, vocab, spec)))(keys)


def test_a_uniform_models_losses_are_those_of_the_vector():
    """A quarter of four tokens at the rate 1/4, and all of a causal row: ln V each."""
    vocab = Vocab(size=15, mask=4)
    spec = dual.Spec(5)
    sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8, "max_len": 4}
    model = spec.make_network(ModelSpec(vocab_size=15, **sizes), vocab)
    shapes = jax.eval_shape(model.init_params, jax.random.key(0))
    params = jax.tree.map(lambda x: jnp.zeros(x.shape), shapes)
    is_masked = jnp.array([True, False])[:, None]
    batch = {
        "inputs": jnp.array([[10, 11, 4, 13], [10, 11, 12, 13]]),
        "targets": jnp.array([[11, 12, 13, 14]] * 2),
        "is_prefix": jnp.broadcast_to(is_masked, (2, 4)),
        "inverse_rates": jnp.array([[0.0, 4.0, 0.0, 0.0], [0.0] * 4]),
        "weights": {
            "clm_loss": jnp.ones((2, 4)) * ~is_masked,
            "diffusion_loss": jnp.ones((2, 4)) * is_masked,
        },
    }
    terms = jax.jit(lambda: dual.loss(params, model, batch, dual.masks(batch), {})[0])()
    for total, weight in terms.values():
        assert weight == 4 and total / weight == pytest.approx(math.log(15))


@pytest.mark.parametrize("share", [0.125, 0.5, 1.0])
def test_kinds_have_their_share_and_rates_are_spread_evenly(share, vocab):
    """In every batch, not only in mean."""
    num = 64
    spec = dual.Spec(row_length=1000, diffusion_share=share)
    batch = jax.tree.map(np.asarray, corrupt_many(spec, vocab, num, seeds=4))
    for i in range(4):
        is_masked = batch["is_prefix"][i, :, 0]
        assert abs(is_masked.sum() - share * num) <= 2
        rates = 1 / batch["inverse_rates"][i].max(1)[is_masked]
        hidden = (batch["inputs"][i] == vocab.mask).mean(1)
        np.testing.assert_allclose(hidden[is_masked], rates, atol=0.07)
        assert not hidden[~is_masked].any()
        assert np.diff(np.sort([0, *rates, 1])).max() < 3 / (share * num)


def test_each_text_token_of_diffusion_rows_counts_one_in_mean(vocab):
    spec = dual.Spec(row_length=21, min_rate=0.05)
    batch = jax.tree.map(np.asarray, corrupt_many(spec, vocab, 16384))
    batch = jax.tree.map(lambda x: x[0], batch)
    is_masked = batch["is_prefix"][:, 0]
    weights = batch["weights"]
    assert weights["diffusion_loss"][is_masked].all()
    assert weights["clm_loss"][~is_masked].all()
    assert not (weights["diffusion_loss"] * weights["clm_loss"]).any()
    counted = batch["inverse_rates"][is_masked].mean(0)  # by position, the last too
    np.testing.assert_allclose(counted, 1, atol=0.1)
    assert counted.mean() == pytest.approx(1, abs=0.02)


def test_masked_tokens_are_predicted_one_position_before(make_case, make_rows, vocab):
    case = make_case("dual", diffusion_share=1.0, min_rate=0.5)
    rows = make_rows(case, 6, lengths=[21, 12, 6, 0, 17, 2], specials=0.3)
    batch = jax.tree.map(np.asarray, case.corrupt(rows))
    tokens, segments = np.asarray(rows["tokens"]), np.asarray(rows["segment_ids"])
    is_hidden = batch["inverse_rates"] > 0
    np.testing.assert_array_equal(batch["targets"], tokens[:, 1:])
    is_mask = np.pad(is_hidden[:, :-1], ((0, 0), (1, 0)))
    expected = np.where(is_mask, vocab.mask, tokens[:, :-1])
    np.testing.assert_array_equal(batch["inputs"], expected)
    # The first token of a document is given, and so are special tokens.
    is_next = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
    is_text = is_next & ~vocab.is_special[tokens[:, 1:]]
    np.testing.assert_array_equal(batch["weights"]["diffusion_loss"], is_text)
    assert not is_hidden[~is_text].any() and is_hidden[is_text].mean() > 0.5
    assert is_hidden[:, -1].any()  # the last token takes part, though it is no input


def test_nothing_reaches_a_prediction_that_it_must_not(make_case, make_rows):
    """By the gradient of the table of inputs, which has one row for each token."""
    case = make_case("dual", (("tie_embeddings", False),), min_rate=0.3)
    rows = make_rows(case, 4)
    order = [np.random.default_rng(i).permutation(25)[:21] + 7 for i in range(4)]
    rows["tokens"] = jnp.asarray(np.stack(order), jnp.int32)  # no token twice
    batch = case.corrupt(rows)
    assert 0 < batch["is_prefix"][:, 0].sum() < 4

    @jax.jit
    @jax.grad
    def gradient(params, batch, row, position):
        weights = {
            key: jnp.zeros_like(w).at[row, position].set(w[row, position])
            for key, w in batch["weights"].items()
        }
        batch = batch | {"weights": weights}
        terms, _ = dual.loss(params, case.model, batch, dual.masks(batch), {})
        return sum(total for total, _ in terms.values())

    kinds = set()
    for row, position in itertools.product(range(4), (3, 11)):
        is_masked = bool(batch["is_prefix"][row, 0])
        hidden = np.flatnonzero(batch["inverse_rates"][row])
        place = hidden[len(hidden) // 2] if is_masked else position
        grads = gradient(case.params, batch, row, int(place))
        table = np.asarray(grads["embed"]["tokens"])
        reached = set(np.flatnonzero(np.abs(table).max(1)).tolist())
        inputs = np.asarray(batch["inputs"][row])
        visible = inputs if is_masked else inputs[: position + 1]
        assert reached == set(visible.tolist())
        if is_masked:  # the tokens behind the masks are not among them
            targets = np.asarray(batch["targets"][row])[hidden]
            assert not reached & set(targets.tolist())
        kinds.add(is_masked)
    assert kinds == {True, False}


def test_causal_rows_are_clms(make_case, make_rows):
    """Losses and gradients: the first control."""
    case, other = make_case("dual", diffusion_share=1e-9), make_case("clm")
    assert jax.tree.structure(case.params) == jax.tree.structure(other.params)
    rows = make_rows(case, 3, lengths=[21, 17, 8])
    assert not case.corrupt(rows)["is_prefix"].any()
    result, sums = case.gradients(rows)
    expected, other_sums = other.gradients(rows)
    assert gap(result, expected) < 1e-6
    np.testing.assert_allclose(sums["clm_loss"], other_sums["loss"], rtol=1e-6)
    np.testing.assert_allclose(sums["accuracy"], other_sums["accuracy"])
    for name in ("token_nll", "next_logits"):
        scores = [
            jax.jit(getattr(c.model, name))(c.params, rows["tokens"])
            for c in (case, other)
        ]
        np.testing.assert_array_equal(*scores)


def test_diffusion_rows_are_clm_mlms_over_the_rate(make_case, make_rows, vocab):
    """With the same hidden positions only weight and divisor differ: the second."""
    case = make_case("dual", min_rate=0.3)
    other = make_case("clm_mlm", mask_rate=0.95)
    batch = case.corrupt(make_rows(case, 6))
    hidden = batch["inverse_rates"] > 0
    num = other.spec.num_masked
    assert hidden.sum(1).max() <= num
    positions = jnp.argsort(~hidden, axis=1, stable=True)[:, :num]
    of_hidden = jnp.arange(num) < hidden.sum(1, keepdims=True)

    def total(rate_of_row):
        """clm_mlm's sum over masked tokens, each row with a factor."""
        weights = {
            "clm_loss": batch["weights"]["clm_loss"],
            "mlm_loss": of_hidden * rate_of_row[:, None],
        }
        same = batch | {"masked_positions": positions, "weights": weights}
        terms, _ = other.loss(same, case.params)
        return terms

    terms, metrics = case.loss(batch)
    is_masked = batch["is_prefix"][:, 0]
    inverse = jnp.where(is_masked, batch["inverse_rates"].max(1), 0.0)
    expected = total(inverse)
    np.testing.assert_allclose(
        terms["diffusion_loss"][0], expected["mlm_loss"][0], rtol=1e-5
    )
    np.testing.assert_allclose(terms["clm_loss"], expected["clm_loss"], rtol=1e-5)
    assert terms["diffusion_loss"][1] == 20 * is_masked.sum()
    assert metrics["masked_accuracy"][1] == hidden.sum()
    # At equal share the coefficients are the same, too.
    for share in (0.25, 1.0):
        specs = (
            dataclasses.replace(case.spec, diffusion_share=share),
            dataclasses.replace(other.spec, mlm_share=share),
        )
        one, two = (list(spec.coefficients.values()) for spec in specs)
        assert one == two == [1 - share, share]


def test_without_causal_rows_it_is_masked_diffusion_shifted(make_case, make_rows):
    """The third control: the same inputs and rates, read one position before."""
    case, other = make_case("dual", diffusion_share=1.0), make_case("masked_diffusion")
    assert jax.tree.structure(case.params) == jax.tree.structure(other.params)
    rows = make_rows(case, 5)
    batch = case.corrupt(rows)
    # Rates are the same function of key and index; the draws are of other lengths.
    rates = [
        np.asarray(b["inverse_rates"].max(1))
        for b in (
            batch,
            other.corrupt({k: v[:, :-1] if v.ndim > 1 else v for k, v in rows.items()}),
        )
    ]
    np.testing.assert_allclose(*rates, rtol=3e-7)  # compiled in other programs
    tokens = batch["inputs"]
    full = {"self": jnp.ones((1, 1, 20, 20), bool)}
    logits = jax.jit(
        lambda p, t: other.model.apply({"params": p}, t, full, deterministic=True)
    )(case.params, tokens)
    log_p = jax.nn.log_softmax(logits)
    nll = -jnp.take_along_axis(log_p, batch["targets"][..., None], 2)[..., 0]
    expected = (nll * batch["inverse_rates"]).sum(), 5 * 20
    np.testing.assert_allclose(
        case.loss(batch)[0]["diffusion_loss"], expected, rtol=1e-5
    )
    # Filling reads the position before, where masked diffusion reads the mask itself.
    fills = jax.jit(case.model.fill_logits)(case.params, tokens)
    np.testing.assert_allclose(fills[:, 1:], logits[:, :-1], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_the_gradient_is_of_the_shares(make_case, make_rows, vocab):
    """The share is a row share and a coefficient, and counts once."""
    case = make_case("dual", diffusion_share=0.25)
    rows = make_rows(case, 8)
    grads, metrics = case.gradients(rows)
    rng = split_step(jax.random.key(0))["corrupt"]
    batch = dual.corrupt(rng, rows, vocab, case.spec)
    num_masked = int(batch["is_prefix"][:, 0].sum())
    assert metrics["diffusion_loss"][1] == 20 * num_masked > 0
    assert metrics["clm_loss"][1] == 20 * (8 - num_masked) > 0

    @jax.jit
    @jax.grad
    def expected(params):
        terms, _ = dual.loss(params, case.model, batch, dual.masks(batch), {})
        (causal, of_causal), (masked, of_masked) = terms.values()
        return 0.75 * causal / of_causal + 0.25 * masked / of_masked

    assert gap(grads, expected(case.params)) < 1e-5


TINY = Vocab(size=5, mask=4)
ROW = np.array([[2, 0, 3, 1]], np.int32)


@pytest.fixture(scope="module")
def tiny():
    """A network on four words and [MASK], and rows of four: far from uniform."""
    spec = dual.Spec(row_length=4, bound_samples=3)
    sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8, "max_len": 4}
    model = spec.make_network(ModelSpec(vocab_size=5, init_std=1.0, **sizes), TINY)
    return spec, model, jax.jit(model.init_params)(jax.random.key(1))


def exact_bound(model, params):
    """The NELBO of the row given its first token, as a sum over all masks.

    With a rate uniform in (0, 1), m of L tokens masked have the weight 1 / t in mean
    (m - 1)! (L - m)! / L!.
    """
    total, length = 0.0, ROW.shape[1] - 1
    for chosen in itertools.product([False, True], repeat=length):
        num = sum(chosen)
        if num:
            inputs = np.where([False, *chosen], TINY.mask, ROW)[:, :-1]
            # Read at the position before, without the last token as an input.
            full = {"self": jnp.ones((1, 1, length, length), bool)}
            logits = model.apply({"params": params}, inputs, full, deterministic=True)
            log_p = np.asarray(jax.nn.log_softmax(logits[0]))
            nll = -log_p[np.arange(length), ROW[0, 1:]]
            count = math.factorial(num - 1) * math.factorial(length - num)
            total += count / math.factorial(length) * nll[list(chosen)].sum()
    return total


@pytest.mark.slow
def test_the_loss_is_the_exact_bound_in_mean(tiny):
    spec, model, params = tiny
    num, keys = 20_000, jax.random.split(jax.random.key(0), 20)
    rows = {"tokens": jnp.repeat(jnp.asarray(ROW), num, 0), "index": jnp.arange(num)}

    @jax.jit
    def run(key):
        batch = dual.corrupt(key, rows, TINY, spec)
        terms, _ = dual.loss(params, model, batch, dual.masks(batch), {})
        return terms["diffusion_loss"]

    total, weight = (np.sum(x) for x in zip(*map(run, keys), strict=True))
    assert weight == pytest.approx(20 * 3 * num / 2, rel=0.002)
    assert 3 * total / weight == pytest.approx(exact_bound(model, params), rel=0.01)


def test_the_bound_is_the_exact_one_in_mean_and_has_no_first_token(tiny):
    _, model, params = tiny
    rngs = jax.random.split(jax.random.key(0), 4000)
    rows = jnp.repeat(jnp.asarray(ROW), len(rngs), 0)
    bound = jax.jit(model.nll_bound)(params, rows, jnp.ones(rows.shape, bool), rngs)
    assert bound.shape == (4000, 3)
    expected = exact_bound(model, params)
    assert bound.sum(1).mean() == pytest.approx(expected, rel=0.01)
    # Tokens that are given are not predicted, and are not masked.
    is_text = jnp.array([[True, True, False, True]]).repeat(len(rngs), 0)
    part = jax.jit(model.nll_bound)(params, rows, is_text, rngs)
    assert not part[:, 1].any() and 0 < part.sum(1).mean() < expected


def test_the_bytes_of_the_first_token_do_not_count(tiny):
    """With a uniform model: three tokens of log2 5 bits in 2 + 3 + 4 bytes."""
    _, model, params = tiny
    flat = jax.tree.map(jnp.zeros_like, params)
    rows, sizes = np.repeat(ROW, 5, 0), np.tile([1, 2, 3, 4], (5, 1))

    def bound(params, rows, rng):
        rngs = jax.random.split(rng, len(rows["tokens"]))
        return model.nll_bound(params, rows["tokens"], rows["is_text"], rngs)

    result = means(measure_nll_bound(bound, flat, rows, sizes, 2, TINY))
    expected = math.log2(5) * 3 / 9
    assert result == {"bits_per_byte_bound": pytest.approx(expected, rel=1e-5)}


@pytest.mark.parametrize("num_microbatches", [1, 2, 4, 8])
def test_no_prediction_is_left_out(num_microbatches, make_case, make_rows, vocab):
    """In 200 batches of 64 rows, of which a microbatch is every n-th row."""
    for share in (0.125, 0.5):
        case = make_case("dual", diffusion_share=share)
        batch = corrupt_many(case.spec, vocab, 64, seeds=200)
        counts = np.asarray(batch["inverse_rates"] > 0).sum(-1)
        counts = counts + np.asarray(batch["weights"]["clm_loss"]).sum(-1)
        (law,) = case.spec.predictions.laws.values()
        sums = counts.reshape(200, -1, num_microbatches).sum(1)
        slots = count_slots(64 // num_microbatches, law)
        assert sums.max() <= slots <= 64 // num_microbatches * 20


def test_its_network_writes_both_ways(make_case):
    model = make_case("dual").model
    assert isinstance(model, abilities.WritesText)
    assert isinstance(model, abilities.Unmasks) and model.mask_id == 4
    assert isinstance(model, abilities.HasLikelihood)
    assert isinstance(model, abilities.BoundsLikelihood) and model.bound_samples == 8
    assert abilities.name_writing(model) == "left_to_right"
    assert not isinstance(make_case("clm_mlm").model, abilities.Unmasks)
    assert issubclass(type(model), *clm_mlm.Spec.networks())


@pytest.mark.slow
def test_a_row_that_was_learnt_is_written_both_ways(
    make_case, make_rows, learn_rows, vocab
):
    case = make_case("dual")
    rows = make_rows(case, 4)
    rows["tokens"] = rows["tokens"].at[:, 0].set(jnp.arange(4) + 10)
    params = learn_rows(case, rows, 2000)
    greedy, prompts = SampleSpec(temperature=0.0), rows["tokens"][:, :4]
    expected = rows["tokens"][:, 4:20]
    rng = jax.random.key(1)
    for num_steps in (0, 5):
        fill = case.model.fill_logits
        written = unmask(
            fill, params, prompts, 16, rng, greedy, vocab.mask, num_steps=num_steps
        )
        assert (written == expected).mean() > 0.9
    decoder = case.model.make_decoder(None)
    written, _ = generate(
        decoder, params, prompts, jnp.full(4, 4), num_tokens=16, rng=rng, spec=greedy
    )
    assert (written == expected).mean() > 0.9
