"""Masked diffusion: rates, weights, the bound of the likelihood, unmasking."""

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpt.evaluation.likelihood import measure_nll_bound
from jaxpt.evaluation.scores import SampleSpec
from jaxpt.evaluation.unmasking import unmask
from jaxpt.judge.examples import means
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.objectives import clm, masked_diffusion
from jaxpt.ops import masks as attention_masks
from jaxpt.text.tokens.vocab import Vocab


def corrupt_many(make_case, num_rows, **settings):
    case = make_case("masked_diffusion", **settings)
    tokens = np.random.default_rng(0).integers(7, 32, (num_rows, 20))
    rows = {"tokens": jnp.asarray(tokens, jnp.int32), "index": jnp.arange(num_rows)}
    return case, rows, case.corrupt(rows)


def test_rates_are_uniform_and_spread_evenly_over_a_batch(vocab):
    spec = masked_diffusion.Spec(row_length=2000)
    rows = {"tokens": jnp.full((64, 2000), 8), "index": jnp.arange(64)}
    batch = masked_diffusion.corrupt(jax.random.key(0), rows, vocab, spec)
    rates = 1 / np.asarray(batch["inverse_rates"]).max(1)  # every row has one masked
    # Each row's tokens are masked at its rate.
    share = (np.asarray(batch["inputs"]) == vocab.mask).mean(1)
    np.testing.assert_allclose(share, rates, atol=0.06)
    # Of 64 independent rates the largest distance is .08 in mean; of these it is less
    # than three even ones.
    assert rates.min() > 0 and rates.max() <= 1
    assert np.diff(np.sort([0, *rates, 1])).max() < 3 / 64


def test_masked_tokens_are_shown_as_masks_and_count_one_over_their_rate(
    make_case, vocab
):
    _, rows, batch = corrupt_many(make_case, 4096)
    inputs, tokens = np.asarray(batch["inputs"]), np.asarray(rows["tokens"])
    inverse = np.asarray(batch["inverse_rates"])
    is_masked = inputs == vocab.mask
    np.testing.assert_array_equal(inputs[~is_masked], tokens[~is_masked])
    np.testing.assert_array_equal(inverse > 0, is_masked)
    np.testing.assert_array_equal(batch["targets"], tokens)
    # Unbiased: each token counts 1 in mean, and half of all are masked.
    assert inverse.mean() == pytest.approx(1, abs=0.03)
    assert is_masked.mean() == pytest.approx(0.5, abs=0.01)
    assert float(batch["weights"]["loss"].min()) == 1


def test_special_tokens_and_padding_are_given(make_case, make_rows, vocab):
    case = make_case("masked_diffusion", min_rate=0.999)
    rows = make_rows(case, 4, lengths=[20, 12, 6, 0], specials=0.3)
    batch = case.corrupt(rows)
    is_text = np.asarray(rows["segment_ids"] > 0) & ~vocab.is_special[rows["tokens"]]
    np.testing.assert_array_equal(batch["weights"]["loss"], is_text)
    assert not np.asarray(batch["inverse_rates"])[~is_text].any()
    assert (np.asarray(batch["inputs"])[is_text] == vocab.mask).mean() > 0.95


TINY = Vocab(size=5, mask=4)
ROW = np.array([[0, 3, 1]], np.int32)


@pytest.fixture(scope="module")
def tiny():
    """A network on four words and [MASK], and rows of three: far from uniform."""
    spec = masked_diffusion.Spec(row_length=3, bound_samples=3)
    sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8, "max_len": 4}
    model = spec.make_network(ModelSpec(vocab_size=5, init_std=1.0, **sizes), TINY)
    return spec, model, jax.jit(model.init_params)(jax.random.key(1))


def exact_bound(model, params):
    """The NELBO of the row as a sum over all masks.

    With a rate uniform in (0, 1), m of L tokens masked have the weight 1 / t in mean
    (m - 1)! (L - m)! / L!.
    """
    total, length = 0.0, ROW.shape[1]
    for chosen in itertools.product([False, True], repeat=length):
        num = sum(chosen)
        if num:
            inputs = np.where(chosen, TINY.mask, ROW)
            logits = model.fill_logits(params, jnp.asarray(inputs))[0]
            nll = -np.asarray(jax.nn.log_softmax(logits))[np.arange(length), ROW[0]]
            count = math.factorial(num - 1) * math.factorial(length - num)
            total += count / math.factorial(length) * nll[list(chosen)].sum()
    return total


@pytest.mark.slow
def test_the_loss_is_the_exact_bound_in_mean(tiny):
    spec, model, params = tiny
    num = 20_000
    rows = {"tokens": jnp.repeat(jnp.asarray(ROW), num, 0), "index": jnp.arange(num)}

    @jax.jit
    def run(rows):
        batch = masked_diffusion.corrupt(jax.random.key(0), rows, TINY, spec)
        masks = masked_diffusion.masks(batch)
        terms, _ = masked_diffusion.loss(params, model, batch, masks, {})
        return terms["loss"]

    total, weight = run(rows)
    assert weight == 3 * num
    assert total / num == pytest.approx(exact_bound(model, params), rel=0.02)


def test_the_bound_is_the_exact_one_in_mean(tiny):
    _, model, params = tiny
    rngs = jax.random.split(jax.random.key(0), 4000)
    rows = jnp.repeat(jnp.asarray(ROW), len(rngs), 0)
    bound = jax.jit(model.nll_bound)(params, rows, jnp.ones(rows.shape, bool), rngs)
    expected = exact_bound(model, params)
    assert bound.sum(1).mean() == pytest.approx(expected, rel=0.01)
    # Tokens that are given are not predicted, and are not masked.
    is_text = jnp.array([[True, False, True]]).repeat(len(rngs), 0)
    part = jax.jit(model.nll_bound)(params, rows, is_text, rngs)
    assert not part[:, 1].any() and 0 < part.sum(1).mean() < expected


def test_a_uniform_model_is_bounded_by_the_size_of_its_vocabulary(tiny):
    _, model, params = tiny
    flat = jax.tree.map(jnp.zeros_like, params)
    rows = np.repeat(ROW, 5, 0)
    sizes = np.tile([1, 2, 3], (5, 1))

    def bound(params, rows, rng):
        rngs = jax.random.split(rng, len(rows["tokens"]))
        return model.nll_bound(params, rows["tokens"], rows["is_text"], rngs)

    result = means(measure_nll_bound(bound, flat, rows, sizes, 2, TINY))
    expected = math.log2(5) * 3 / 6
    assert result == {"bits_per_byte_bound": pytest.approx(expected, rel=1e-5)}


@pytest.mark.slow
def test_a_row_that_was_learnt_is_unmasked(make_case, make_rows, learn_rows, vocab):
    case = make_case("masked_diffusion")
    rows = make_rows(case, 4)
    rows["tokens"] = rows["tokens"].at[:, 0].set(jnp.arange(4) + 10)
    params = learn_rows(case, rows, 2000)
    for num_steps in (0, 5):
        written = unmask(
            case.model.fill_logits,
            params,
            rows["tokens"][:, :4],
            16,
            jax.random.key(1),
            SampleSpec(temperature=0.0),
            vocab.mask,
            tuple(vocab.special_ids.tolist()),
            num_steps,
        )
        right = np.asarray(written == rows["tokens"][:, 4:]).mean()
        assert right > 0.95, num_steps


# Weights, rates and hiding by frequency, in training alone.


def in_training(rows, progress=0.0):
    return rows | {"progress": jnp.full(len(rows["index"]), progress, jnp.float32)}


def total_loss(batch, losses):
    """What `loss` makes of given losses of tokens."""
    weights = np.asarray(batch["weights"]["loss"])
    counted = weights * np.asarray(batch["inverse_rates"])
    return (counted * losses).sum() / weights.sum()


@pytest.mark.parametrize(
    "average, expected", [("inverse_rate", 1.15), ("mean", 3.8 / 3), ("row_mean", 1.15)]
)
def test_the_averages_of_a_small_example(average, expected, vocab, monkeypatch):
    """Rates .5 and .25; of 4 tokens two and one are masked, with losses 1, 2 and .8."""
    spec = masked_diffusion.Spec(4, average=average)
    rates = jnp.array([0.5, 0.25])
    hidden = np.array([[1, 1, 0, 0], [0, 1, 0, 0]])
    monkeypatch.setattr(masked_diffusion, "find_rates", lambda *_: (rates, rates))
    rows = {"tokens": jnp.array([[7, 8, 9, 10], [7, 8, 9, 10]])}
    rows |= {"index": jnp.arange(2)}
    corrupt = jax.jit(
        lambda key: masked_diffusion.corrupt(key, in_training(rows), vocab, spec)
    )
    batches = map(corrupt, map(jax.random.key, range(2000)))
    batch = next(b for b in batches if ((b["inputs"] == vocab.mask) == hidden).all())
    losses = np.array([[1, 2, 9, 9], [9, 0.8, 9, 9]])
    assert total_loss(batch, losses) == pytest.approx(expected, rel=1e-6)


def test_cosine_rates_are_the_sources():
    spec = masked_diffusion.Spec(4, rates="cosine")
    rates, divisors = masked_diffusion.find_rates(
        spec, jnp.array([0.25, 0.5, 0.75]), 0.0
    )
    np.testing.assert_allclose(rates, [0.617317, 0.292893, 0.076120], atol=5e-7)
    weights = 1 / np.asarray(divisors)
    np.testing.assert_allclose(weights, [2.350863, 3.792238, 7.896926], rtol=1e-6)
    spread = (jnp.arange(10_000) + 0.5) / 10_000
    rates, divisors = masked_diffusion.find_rates(spec, spread, 0.0)
    assert rates.mean() == pytest.approx(0.363380, abs=1e-6)
    # A bound: the weight of a token is 1 over all rates.
    assert (rates / divisors).mean() == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("progress, mean", [(0.0, 0.4), (1.0, 0.4 + 0.45 * 0.632121)])
def test_bimodal_rates_are_two_normals(progress, mean):
    spec = masked_diffusion.Spec(4, rates="bimodal")
    spread = (jnp.arange(20_000) + 0.5) / 20_000
    rates, divisors = masked_diffusion.find_rates(spec, spread, progress)
    low, high = np.asarray(rates[:12_000]), np.asarray(rates[12_000:])
    for part, center, std in ((low, 0.12, 0.02), (high, mean, 0.08)):
        assert part.mean() == pytest.approx(center, abs=1e-4)
        assert part.std() == pytest.approx(std, rel=0.01)
    middle = [6000, 16_000]  # where z is 0
    slopes = np.array([0.02, 0.08]) * math.sqrt(2 * math.pi)
    expected = slopes**0.1 / np.array([0.12, mean])
    np.testing.assert_allclose(1 / divisors[jnp.array(middle)], expected, rtol=1e-3)


RANKS = jnp.array([0.1, 0.4, 0.7, 1.0])


@pytest.mark.parametrize(
    "rate, expected",
    [
        (0.4, [0, 0.526979, 0.534335, 0.538686]),
        (0.9, [0.611579, 0.991559, 0.996863, 1]),
    ],
)
def test_hiding_by_frequency_is_the_sources(rate, expected):
    p, _ = masked_diffusion.hide_by_rank(RANKS, jnp.ones(4, bool), rate, 0.02)
    np.testing.assert_allclose(p, expected, atol=1e-6)
    assert p.mean() == pytest.approx(rate, abs=1e-6)
    # Others, which are no text, do not change them.
    ranks, is_text = jnp.append(RANKS, 0.0), jnp.arange(5) < 4
    more, _ = masked_diffusion.hide_by_rank(ranks, is_text, rate, 0.02)
    np.testing.assert_array_equal(more[:4], p)


@pytest.mark.parametrize(
    "weight, expected", [("row", [0.141, 1.273, 1.288, 1.298]), ("token", 4 * [1])]
)
def test_the_total_weight_of_a_token(weight, expected):
    """Over all rates: exactly 1 for each token only with its own weight."""
    num = 400_000
    rates = (jnp.arange(num) + 0.5) / num

    def count(rate):
        p, own = masked_diffusion.hide_by_rank(RANKS, jnp.ones(4, bool), rate, 0.02)
        return p / jnp.maximum(own if weight == "token" else rate, 1e-9)

    totals = jax.jit(lambda: jax.lax.map(count, rates, batch_size=1000).mean(0))()
    np.testing.assert_allclose(totals, expected, atol=2e-3)


def test_rare_tokens_are_masked_more_often(make_case, vocab):
    """From the first tenth of the run on, and never in evaluation."""
    power = {"frequency_power": 2.0}
    case = make_case("masked_diffusion", **power)
    tokens = np.random.default_rng(0).integers(7, 32, (4096, 20))
    rows = {"tokens": jnp.asarray(tokens, jnp.int32), "index": jnp.arange(4096)}
    shares = []
    for progress in (None, 0.05, 1.0):
        used = rows if progress is None else in_training(rows, progress)
        hidden = np.asarray(case.corrupt(used)["inputs"]) == vocab.mask
        assert hidden.mean() == pytest.approx(0.5, abs=0.01)
        shares.append([hidden[tokens == token].mean() for token in (8, 30)])
    for even in shares[:2]:  # counts rise with the id: 8 is rarer than 30
        assert even[0] == pytest.approx(even[1], abs=0.03)
    assert shares[2][0] > shares[2][1] + 0.3


@pytest.mark.parametrize(
    "settings",
    [
        {"average": "mean"},
        {"average": "row_mean", "rates": "cosine"},
        {"rates": "bimodal", "frequency_power": 0.02, "weight": "token"},
    ],
)
def test_evaluation_is_always_by_the_bound(settings, make_case, make_rows):
    plain = make_case("masked_diffusion")
    case = make_case("masked_diffusion", **settings)
    rows = make_rows(plain, 48, lengths=48 * [20])
    key = jax.random.key(0)
    expected = plain.evaluate(plain.params, rows, key)
    result = case.evaluate(plain.params, rows, key)
    for name in case.spec.coefficients:
        np.testing.assert_allclose(result[name], expected[name], rtol=1e-6)
    _, trained = case.gradients(in_training(rows, 0.5))
    loss, bound = (a["loss"][0] / a["loss"][1] for a in (trained, expected))
    assert loss != pytest.approx(float(bound), rel=1e-3)
    left_out, total = trained["overflow"]
    assert left_out == 0 < total


@pytest.mark.parametrize("rates", ["cosine", "bimodal"])
def test_slots_are_those_of_the_rates(rates, make_case, make_rows):
    case, plain = (make_case("masked_diffusion", **k) for k in ({"rates": rates}, {}))
    rows = in_training(make_rows(case, 512), 1.0)
    counts = np.asarray(case.corrupt(rows)["inverse_rates"] > 0).sum(1)
    (law,) = case.spec.predictions.laws.values()
    mean = np.dot(np.arange(law.most + 1), law.probabilities)
    assert counts.mean() == pytest.approx(mean, rel=0.05)
    assert law.most == 20 and mean < 0.75 * 10
    assert case.spec.predictions.mean(64) < 0.85 * plain.spec.predictions.mean(64)


@pytest.mark.parametrize("average", ["mean", "row_mean", "inverse_rate"])
def test_microbatches_do_not_change_any_average(average, make_case, make_rows):
    settings = {"frequency_power": 0.5, "rates": "cosine", "average": average}
    case = make_case("masked_diffusion", **settings)
    rows = in_training(make_rows(case, 8, lengths=[20, 3, 0, 12, 20, 7, 1, 16]), 0.7)
    expected, sums = case.gradients(rows)
    result, found = case.gradients(rows, num_microbatches=4)
    np.testing.assert_allclose(found["loss"], sums["loss"], rtol=1e-5)
    gaps = jax.tree.map(lambda a, b: np.abs(a - b).max(), result, expected)
    assert max(jax.tree.leaves(gaps)) < 1e-5


def test_only_masked_tokens_have_a_gradient(make_case, make_rows, vocab):
    """And a masked token's input reaches nothing: the table has only what is seen."""
    settings = {"average": "mean", "rates": "bimodal", "frequency_power": 0.5}
    case = make_case("masked_diffusion", (("tie_embeddings", False),), **settings)
    rows = in_training(make_rows(case, 2), 1.0)
    batch = case.corrupt(rows)

    @jax.jit
    def gradient(params):
        masks = case.module.masks(batch)
        return jax.grad(
            lambda p: case.module.loss(p, case.model, batch, masks, {})[0]["loss"][0]
        )(params)

    table = np.abs(gradient(case.params)["embed"]["tokens"]).max(1)
    seen = set(np.asarray(batch["inputs"]).ravel().tolist())
    assert set(np.flatnonzero(table).tolist()) == seen and vocab.mask in seen
    head = np.abs(gradient(case.params)["head"]["out"]["kernel"])
    assert (head > 0).any()


# From a causal model: predictions at the position before, and a mask that opens.


def test_masked_tokens_are_predicted_at_the_position_before(
    make_case, make_rows, vocab
):
    case = make_case("masked_diffusion", shift=True, min_rate=0.5)
    rows = make_rows(case, 6, lengths=[20, 12, 6, 0, 17, 2], specials=0.3)
    batch = jax.tree.map(np.asarray, case.corrupt(rows))
    tokens, segments = np.asarray(rows["tokens"]), np.asarray(rows["segment_ids"])
    is_next = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
    is_text = np.pad(is_next & ~vocab.is_special[tokens[:, 1:]], ((0, 0), (0, 1)))
    np.testing.assert_array_equal(batch["weights"]["loss"], is_text)
    np.testing.assert_array_equal(batch["targets"][:, :-1], tokens[:, 1:])
    is_hidden = batch["inverse_rates"] > 0
    assert not is_hidden[~is_text].any() and is_hidden[is_text].mean() > 0.5
    hidden = np.pad(is_hidden[:, :-1], ((0, 0), (1, 0)))
    np.testing.assert_array_equal(batch["inputs"], np.where(hidden, vocab.mask, tokens))


def annealed(make_case, anneal=0.5, **more):
    settings = {"shift": True, "mask_anneal": anneal} | more
    return make_case("masked_diffusion", (("tie_embeddings", False),), **settings)


def test_before_the_first_step_it_predicts_what_the_causal_model_does(
    make_case, make_rows
):
    """Nothing is masked: the next-token distributions of the same parameters."""
    case = annealed(make_case)
    rows = make_rows(case, 4, lengths=[20, 12, 6, 17])
    batch = case.corrupt(in_training(rows, 0.0)) | {"inputs": rows["tokens"]}
    of_clm = clm.Spec(row_length=20).kind(0)(case.model.spec.direct(False))

    def predict(model, masks):
        def read(model):
            return model.logits(model.batch_states(batch, masks, deterministic=True))

        return model.apply({"params": case.params}, method=read)

    read = jax.jit(predict, static_argnums=0)
    result = read(case.model, masked_diffusion.masks(batch))
    expected = read(of_clm, clm.masks(batch))
    is_text = np.asarray(rows["segment_ids"] > 0)
    np.testing.assert_allclose(result[is_text], expected[is_text], rtol=0, atol=1e-6)
    end = case.corrupt(in_training(rows, 0.5)) | {"inputs": rows["tokens"]}
    opened = read(case.model, masked_diffusion.masks(end))
    assert np.abs(opened[is_text] - expected[is_text]).max() > 1e-3
    full = read(
        case.model,
        masked_diffusion.masks(
            {"segment_ids": rows["segment_ids"], "inputs": rows["tokens"]}
        ),
    )
    np.testing.assert_allclose(opened[is_text], full[is_text], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "progress, expected", [(0.0, 0.503906), (0.25, 0.751953), (0.5, 1), (1.0, 1)]
)
def test_the_visible_share_is_the_sources(progress, expected, vocab):
    """Of 128 x 128 pairs, in the mean over steps; one draw for all rows of a step."""
    spec = masked_diffusion.Spec(128, shift=True, mask_anneal=0.5)
    rows = {"tokens": jnp.full((3, 128), 9), "index": jnp.arange(3)}

    @jax.jit
    @jax.vmap
    def draw(key):
        batch = masked_diffusion.corrupt(key, in_training(rows, progress), vocab, spec)
        one = jax.tree.map(lambda x: x[2:], batch)  # as a microbatch sees it
        return [masked_diffusion.masks(b)["self"] for b in (batch, one)]

    whole, one = map(np.asarray, draw(jax.random.split(jax.random.key(0), 20)))
    np.testing.assert_array_equal(whole, one)
    assert whole.shape == (20, 1, 1, 128, 128)
    assert whole.mean() == pytest.approx(expected, abs=2e-3)
    past = np.tri(128, dtype=bool)
    assert whole[..., past].all()
    later = whole[:, 0, 0][:, ~past]
    assert (later[0] != later[1]).any() == (progress == 0.25)


@pytest.mark.parametrize("progress, is_open", [(0.0, False), (0.5, True)])
def test_the_future_reaches_a_prediction_once_the_mask_is_open(
    progress, is_open, make_case, make_rows
):
    """By the gradient of the table of inputs; no token is in the row twice."""
    case = annealed(make_case, min_rate=0.3)
    rows = make_rows(case, 1)
    order = np.random.default_rng(0).permutation(25)[:20] + 7
    rows["tokens"] = jnp.asarray(order[None], jnp.int32)
    batch = case.corrupt(in_training(rows, progress))
    hidden = np.flatnonzero(batch["inverse_rates"][0])
    place = int(hidden[len(hidden) // 2])

    @jax.jit
    @jax.grad
    def gradient(params):
        weights = {"loss": jnp.zeros((1, 20)).at[0, place].set(1.0)}
        chosen = batch | {"weights": weights}
        masks = masked_diffusion.masks(chosen)
        terms, _ = masked_diffusion.loss(params, case.model, chosen, masks, {})
        return terms["loss"][0]

    table = np.abs(gradient(case.params)["embed"]["tokens"]).max(1)
    reached = set(np.flatnonzero(table).tolist())
    inputs = np.asarray(batch["inputs"][0])
    visible = inputs if is_open else inputs[: place + 1]
    assert 2 < place < 17 and reached == set(visible.tolist())


def test_evaluation_attends_to_the_whole_text(make_case, make_rows):
    case, plain = (annealed(make_case, anneal) for anneal in (1.0, 0.0))
    rows, key = make_rows(case, 8), jax.random.key(0)
    result = case.evaluate(case.params, rows, key)
    expected = plain.evaluate(case.params, rows, key)
    np.testing.assert_array_equal(result["loss"], expected["loss"])
    assert "later_shares" not in case.corrupt(rows)


def exact_shifted_bound(model, params):
    """As `exact_bound`, of all tokens but the first, at the positions before them."""
    total, length = 0.0, ROW.shape[1] - 1
    for chosen in itertools.product([False, True], repeat=length):
        num = sum(chosen)
        if num:
            inputs = np.where([False, *chosen], TINY.mask, ROW)
            full = {"self": attention_masks.full()}
            logits = model.apply(
                {"params": params}, jnp.asarray(inputs), full, deterministic=True
            )[0, :-1]
            nll = -np.asarray(jax.nn.log_softmax(logits))[np.arange(length), ROW[0, 1:]]
            count = math.factorial(num - 1) * math.factorial(length - num)
            total += count / math.factorial(length) * nll[list(chosen)].sum()
    return total


def test_the_shifted_bound_is_the_exact_one_in_mean(tiny):
    spec, plain, params = tiny
    spec = dataclasses.replace(spec, shift=True)
    model = spec.make_network(plain.spec, TINY)
    expected = exact_shifted_bound(model, params)
    assert expected != pytest.approx(exact_bound(plain, params), rel=0.05)
    rngs = jax.random.split(jax.random.key(0), 4000)
    rows = jnp.repeat(jnp.asarray(ROW), len(rngs), 0)
    bound = jax.jit(model.nll_bound)(params, rows, jnp.ones(rows.shape, bool), rngs)
    assert bound.shape == (4000, 2)
    assert bound.sum(1).mean() == pytest.approx(expected, rel=0.01)
    many = {"tokens": jnp.repeat(rows, 4, 0), "index": jnp.arange(16_000)}

    @jax.jit
    def train(rows):
        batch = masked_diffusion.corrupt(jax.random.key(1), rows, TINY, spec)
        masks = masked_diffusion.masks(batch)
        return masked_diffusion.loss(params, model, batch, masks, {})[0]["loss"]

    total, weight = train(in_training(many))
    assert weight == 32_000
    assert total / 16_000 == pytest.approx(expected, rel=0.03)


def test_masks_are_filled_from_the_position_before(tiny):
    spec, plain, params = tiny
    model = dataclasses.replace(spec, shift=True).make_network(plain.spec, TINY)
    tokens = jnp.array([[0, 4, 1]])
    logits = model.fill_logits(params, tokens)
    assert not logits[:, 0].any()
    expected = plain.fill_logits(params, tokens)
    np.testing.assert_allclose(logits[:, 1:], expected[:, :-1], rtol=1e-5, atol=1e-6)
