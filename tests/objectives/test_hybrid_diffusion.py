"""Hybrid diffusion: the noise, its weights, the exact bound, what networks read."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.abilities import Gap
from jaxpt.objectives import hybrid_diffusion
from jaxpt.ops import chunked_loss, token_noise
from jaxpt.ops.token_noise import TokenNoise, find_levels, find_losses
from jaxpt.text.tokens.vocab import Vocab

KINDS = token_noise.KINDS
close = np.testing.assert_allclose


def noise_of(kind, num_ids=4, shift=0.0, scale=1.0, specials=()):
    """Ordinary ids, then special ones, the last [MASK]."""
    mask = num_ids - 1
    special_ids = (*specials, mask)
    return TokenNoise(kind, scale, shift, mask, special_ids, num_ids)


def in_training(rows):
    return rows | {"progress": jnp.zeros(len(rows["index"]))}


def both(predicted, token, noised, levels, noise):
    """w and KL + IS of one token, at levels."""
    count = len(levels)
    logits = jnp.broadcast_to(jnp.log(jnp.asarray(predicted)), (count, len(predicted)))
    tokens, noised = (jnp.full(count, x) for x in (token, noised))
    values, _ = find_losses(logits, tokens, noised, levels, noise)
    return noise.weigh(noised, tokens, levels), values


@pytest.mark.parametrize(
    "kind, weights, values, bounds",
    [
        (
            "uniform",
            (0.25, 1, 1),
            # KL .128026 and IS
            (0.128026 + 0.129996, 0.128026 + 0.168170, 0.128026 + 0.095004),
            (0.258023, 1.184783, 0.892119),
        ),
        (
            "hybrid",
            (0.071429, 0.5, 0.5, 1.5),
            # KL .174936 and IS
            (
                *(0.174936 + 0.190384, 0.174936 + 0.386762),
                *(0.174936 + 0.243003, 0.174936),
            ),
            (0.104377, 1.123397, 0.835878, 1.049617),
        ),
        ("mask", (0,), (), (0,)),
    ],
)
def test_the_loss_of_an_example(kind, weights, values, bounds):
    """Level 0, the token 0 of three, predicted as .5 .3 .2; z is 0, 1, 2 or [MASK].

    The bound with uniform noise is that of Duo (Sahoo et al. 2025, `algo.py`).
    """
    noise, level = noise_of(kind), jnp.zeros(1)
    for z, bound in enumerate(bounds):
        w, value = both((0.5, 0.3, 0.2, 1e-9), 0, z, level, noise)
        assert float(w[0]) == pytest.approx(weights[z], abs=1e-6)
        if values:
            assert float(value[0]) == pytest.approx(values[z], abs=2e-6)
        assert float(4 * w[0] * value[0]) == pytest.approx(bound, abs=4e-6)
    if kind == "mask":
        w, value = both((0.5, 0.3, 0.2, 1e-9), 0, 3, level, noise)
        assert float(4 * w[0] * value[0]) == pytest.approx(1.386294, abs=1e-6)


def integrate(predicted, noise, limit=14.0, num=4001):
    """The bounds of all ordinary tokens by sums over levels and over all z."""
    edge, ids = 1 / (1 + math.exp(limit)), noise.ordinary_ids
    sums = read_levels(predicted, noise, limit, num)
    return np.asarray(sums) / (1 - 2 * edge), -np.log(np.asarray(predicted)[ids])


@functools.partial(jax.jit, static_argnums=(1, 2, 3))
def read_levels(predicted, noise, limit, num):
    levels = jnp.linspace(-limit, limit, num)
    ids = noise.ordinary_ids
    log_a, log_rest = noise.find_shares(levels)
    signal = jax.nn.sigmoid(levels)
    shape = len(ids), len(ids) + 1, num  # x, z, level
    tokens = jnp.broadcast_to(ids[:, None, None], shape)
    noised = jnp.append(ids, noise.mask_id)[:, None]
    noised = jnp.broadcast_to(noised, shape)
    share = jnp.exp(jnp.where(noised == noise.mask_id, log_rest, log_a))
    share /= jnp.where(noised == noise.mask_id, 1, len(ids))
    q = signal * (noised == tokens) + (1 - signal) * share
    logits = jnp.broadcast_to(jnp.log(predicted), (*shape, len(predicted)))
    levels = jnp.broadcast_to(levels, shape)
    values, _ = find_losses(logits, tokens, noised, levels, noise)
    total = (q * noise.weigh(noised, tokens, levels) * values).sum(1)
    return jnp.trapezoid(total, levels[:, 0])


HYBRIDS = [("hybrid", shift, 1.0) for shift in (0.0, -2.0, -1000.0, 1000.0)]
HYBRIDS += [("hybrid", 1.0, 0.5)]


@pytest.mark.parametrize(
    "kind, shift, scale", [*zip(KINDS, (0, 0, 0), (1, 1, 1))] + HYBRIDS
)
def test_the_bound_is_exact_if_the_prediction_does_not_depend_on_z(kind, shift, scale):
    """For every noise, to the .1 % that levels beyond 9 would add."""
    noise = noise_of(kind, shift=shift, scale=scale)
    for predicted in ((0.5, 0.3, 0.2), (0.6, 0.3, 0.1)):
        predicted = jnp.array([*predicted, 1e-9])
        result, expected = integrate(predicted, noise, limit=9.0)
        close(result, expected, rtol=1.5e-3)
        close(*integrate(predicted, noise), rtol=1e-4)


def test_it_is_exact_with_special_tokens():
    """Which are predicted, but are not noise; [MASK] is never predicted."""
    noise = noise_of("hybrid", 5, specials=(3,))
    assert noise.ordinary_ids.tolist() == [0, 1, 2]
    close(*integrate(jnp.array([0.5, 0.2, 0.1, 0.2, 0.7]), noise), rtol=1e-4)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.floats(-3, 3), min_size=3, max_size=3),
    st.sampled_from([("uniform", 0.0, 1.0), ("hybrid", -2.0, 1.0)]),
)
def test_it_is_exact_for_any_prediction(logits, kind):
    name, shift, scale = kind
    noise = noise_of(name, shift=shift, scale=scale)
    predicted = jnp.append(jax.nn.softmax(jnp.array(logits)), 1e-9)
    close(*integrate(predicted, noise), rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_extreme_levels_are_finite_and_not_negative(kind):
    """Of certain and of impossible predictions, for every z."""
    rows = jnp.array([(0, 0, 0, 0), (200, -200, 0, 9), (-99, 0, 0, 0)], jnp.float32)
    logits = jnp.broadcast_to(rows, (2, 4, 3, 4))
    levels = jnp.broadcast_to(jnp.array([-9.0, 9.0])[:, None, None], (2, 4, 3))
    noised = jnp.broadcast_to(jnp.arange(4)[:, None], levels.shape)
    tokens, noise = jnp.zeros(levels.shape, int), noise_of(kind)

    @functools.partial(jax.value_and_grad, has_aux=True)
    def total(logits):
        values, _ = find_losses(logits, tokens, noised, levels, noise)
        weighted = noise.weigh(noised, tokens, levels) * values
        return weighted.sum(), weighted

    (_, values), grads = jax.jit(total)(logits)
    assert np.isfinite(values).all() and (np.asarray(values) > -1e-6).all()
    assert np.isfinite(grads).all() and not np.asarray(grads)[..., 3].any()


def test_the_mask_limit_is_masked_diffusion_term_by_term(make_case, make_rows):
    """l / t at each mask and 0 elsewhere, with the mask rate t = 1 - s."""
    case = make_case("hybrid_diffusion", noise="mask", weight="bound")
    batch = case.corrupt(in_training(make_rows(case, 16)))
    rates = np.asarray(jax.nn.sigmoid(-batch["noise_levels"]))[:, None]
    is_masked = np.asarray(batch["inputs"] == case.model.mask_id)
    assert 0.3 < is_masked.mean() < 0.7
    attn_masks = hybrid_diffusion.masks(batch)

    def read(model):
        states = model.batch_states(batch, attn_masks, deterministic=True)
        values, _ = model.noise_losses(states, batch)
        return values * batch["inverse_rates"], model.nll(states, batch["targets"])

    values, nll = case.model.apply({"params": case.params}, method=read)
    close(values, is_masked * nll / rates, rtol=2e-4, atol=1e-5)
    terms, _ = case.loss(batch)
    expected = (is_masked * nll / rates).sum()
    close(terms["loss"], (expected, batch["targets"].size), rtol=1e-4)


def test_levels_are_those_of_evenly_spread_shares(make_case, make_rows):
    case = make_case("hybrid_diffusion")
    rows = make_rows(case, 64)
    levels = (case.corrupt(r)["noise_levels"] for r in (in_training(rows), rows))
    rates, evaluated = (np.sort(jax.nn.sigmoid(-x)) for x in levels)
    assert np.diff([0, *rates, 1]).max() < 3 / 64
    assert np.diff(np.sqrt([0, *evaluated, 1])).max() < 3 / 64
    for is_training in (True, False):
        levels, _ = find_levels(jnp.array([0.0, 1.0]), is_training)
        close(levels, (9, -9), rtol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_noise_has_its_law(kind, vocab):
    """Of 300,000 tokens at level .5: the shares of signal, masks and random tokens."""
    spec = hybrid_diffusion.Spec(8, noise=kind)
    noise, num = spec.find_noise(vocab), 300_000
    tokens = jnp.full(num, 9)
    level = jnp.float32(0.5)
    z = noise.draw(jax.random.key(0), tokens, jnp.ones(num, bool), level)
    counts = np.bincount(z, minlength=vocab.size) / num
    s = 1 / (1 + math.exp(-0.5))
    a = {"mask": 0.0, "uniform": 1.0, "hybrid": s}[kind]
    expected = np.zeros(vocab.size)
    expected[vocab.ordinary_ids] = (1 - s) * a / len(vocab.ordinary_ids)
    expected[vocab.mask] = (1 - s) * (1 - a)
    expected[9] += s
    close(counts, expected, atol=3e-3)
    assert not counts[expected == 0].any()
    fixed = noise.draw(jax.random.key(0), tokens, jnp.arange(num) % 2 == 0, level)
    np.testing.assert_array_equal(fixed[::2], z[::2])
    assert (fixed[1::2] == 9).all()


def test_special_tokens_and_padding_are_given(make_case, make_rows, vocab):
    case = make_case("hybrid_diffusion", noise="uniform")
    rows = make_rows(case, 32, lengths=8 * [20, 12, 6, 0], specials=0.3)
    batch = case.corrupt(rows)
    is_text = np.asarray(rows["segment_ids"] > 0) & ~vocab.is_special[rows["tokens"]]
    np.testing.assert_array_equal(batch["weights"]["loss"], is_text)
    changed = np.asarray(batch["inputs"] != rows["tokens"])
    assert not changed[~is_text].any() and changed[is_text].mean() > 0.3
    assert not vocab.is_special[np.asarray(batch["inputs"])[is_text]].any()


def test_the_losses_of_training(make_case, make_rows):
    """Without the factor 1 / p, each at most 1,000; evaluation is by the bound."""
    losses, weights = {}, {}
    for weight in ("reweighted", "bound"):
        case = make_case("hybrid_diffusion", weight=weight)
        rows = make_rows(case, 8)
        trained, evaluated = case.corrupt(in_training(rows)), case.corrupt(rows)
        assert (trained["loss_limits"] == {"bound": 1e6}.get(weight, 1e3)).all()
        assert (evaluated["loss_limits"] == 1e6).all()
        weights[weight] = trained["inverse_rates"]
        losses[weight] = case.loss(evaluated)[0]["loss"]
    s = jax.nn.sigmoid(trained["noise_levels"])[:, None]
    close(weights["reweighted"], weights["bound"] * s * (1 - s), rtol=1e-4)
    assert losses["reweighted"] == losses["bound"]
    limited = trained | {"loss_limits": jnp.full(8, 0.01)}
    total, count = case.loss(limited)[0]["loss"]
    assert 0 < total <= 0.01 * count * 1.001 and total < losses["bound"][0] / 10


@pytest.mark.parametrize("kind", KINDS)
def test_chunks_do_not_change_loss_or_gradient(kind):
    """The whole distribution is read in parts, of 7 of 30 rows."""
    draw = np.random.default_rng(0)
    noise = noise_of(kind, 40, specials=(0, 1, 2))
    x, w, b = (
        jnp.asarray(draw.normal(size=shape), jnp.float32)
        for shape in ((3, 10, 6), (6, 40), (40,))
    )
    tokens, other = (jnp.asarray(draw.integers(3, 39, (3, 10))) for _ in range(2))
    noised = jnp.where(jnp.arange(10) % 3 == 0, other, tokens)
    if kind == "mask":
        noised = tokens  # no other token is noise
    if kind != "uniform":
        noised = jnp.where(jnp.arange(10) % 4 == 1, 39, noised)
    levels = jnp.asarray(draw.uniform(-4, 4, (3, 10)), jnp.float32)
    find = functools.partial(find_losses, noise=noise)
    rows = tokens, noised, levels

    @functools.partial(jax.jit, static_argnums=0)
    def run(chunk, head):
        def total(head):
            values, ranks = chunked_loss.map_logits(find, head, rows, chunk)
            return (values * noise.weigh(noised, tokens, levels)).sum(), (values, ranks)

        return jax.value_and_grad(total, has_aux=True)(head)

    (whole, parts), (grads, part_grads) = zip(run(30, (x, w, b)), run(7, (x, w, b)))
    close(whole[1][0], parts[1][0], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(whole[1][1], parts[1][1])
    gap = optax.tree.norm(jax.tree.map(jnp.subtract, grads, part_grads))
    assert gap / optax.tree.norm(grads) < 1e-5

    def plain(head):  # by the definitions, in one sum over the vocabulary
        p = jax.nn.softmax(
            noise.bar(chunked_loss.find_logits(head, chunked_loss.PLAIN))
        )
        log_a, log_rest = noise.find_shares(levels)
        s = jax.nn.sigmoid(levels)[..., None]
        pi = jnp.exp(log_a)[..., None] * np.isin(np.arange(40), noise.ordinary_ids)
        pi = (pi / len(noise.ordinary_ids)).at[..., 39].set(jnp.exp(log_rest))
        q, q_hat = (s * one + (1 - s) * pi for one in (jax.nn.one_hot(tokens, 40), p))
        is_in = q > 0
        ratio = jnp.where(is_in, q, 1) / jnp.where(is_in, q_hat, 1)
        kl = (q * jnp.log(ratio)).sum(-1)
        r = jnp.take_along_axis(ratio, noised[..., None], -1)[..., 0]
        values = kl + r - jnp.log(r) - 1
        return (values * noise.weigh(noised, tokens, levels)).sum()

    value, expected = jax.value_and_grad(plain)((x, w, b))
    close(whole[0], value, rtol=1e-4)
    gap = optax.tree.norm(jax.tree.map(jnp.subtract, grads, expected))
    assert gap / optax.tree.norm(expected) < 1e-4


TINY = Vocab(size=4, mask=3)
ROW = np.array([[0, 2]], np.int32)


def make_tiny(**values):
    """A network on three words and [MASK], and rows of two: far from uniform."""
    spec = hybrid_diffusion.Spec(row_length=2, bound_samples=4, **values)
    sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8, "max_len": 4}
    model = spec.make_network(ModelSpec(vocab_size=4, init_std=1.0, **sizes), TINY)
    return spec, model, jax.jit(model.init_params)(jax.random.key(1))


def exact_bound(model, params, num=400):
    """By sums over both z and over levels at the centres of equal shares."""
    levels, _ = find_levels((jnp.arange(num) + 0.5) / num)
    noise, ids = model.noise, (0, 1, 2, 3)
    signal = jax.nn.sigmoid(levels)
    log_a, log_rest = noise.find_shares(levels)

    def q(z, x):
        share = jnp.exp(log_rest) if z == 3 else jnp.exp(log_a) / 3
        return signal * (z == x) + (1 - signal) * share

    total = 0.0
    for z in itertools.product(ids, ids):
        inputs = jnp.array([z])
        logits = model.apply({"params": params}, inputs, method=read_logits)
        for i in range(2):
            x, zi = (jnp.full(num, int(a)) for a in (ROW[0, i], z[i]))
            here = jnp.broadcast_to(logits[0, i], (num, 4))
            value, _ = find_losses(here, x, zi, levels, noise)
            w = hybrid_diffusion.weigh_by_bound(noise, zi, x, levels)
            chance = q(z[0], ROW[0, 0]) * q(z[1], ROW[0, 1])
            total += (chance * w * value).mean()
    return float(total)


def read_logits(model, inputs):
    attn_masks = hybrid_diffusion.masks({"inputs": inputs})
    return model.logits(model.encode(inputs, attn_masks["self"], deterministic=True))


@pytest.mark.slow_except("uniform")
@pytest.mark.parametrize("kind", ["hybrid", "uniform"])
def test_loss_and_bound_are_the_exact_bound_in_mean(kind):
    spec, model, params = make_tiny(noise=kind)
    num = 20_000
    rows = {"tokens": jnp.repeat(jnp.asarray(ROW), num, 0), "index": jnp.arange(num)}

    @jax.jit
    def run(rows):
        batch = hybrid_diffusion.corrupt(jax.random.key(0), rows, TINY, spec)
        masks = hybrid_diffusion.masks(batch)
        return hybrid_diffusion.loss(params, model, batch, masks, {})[0]["loss"]

    total, weight = run(rows)
    expected = exact_bound(model, params)
    assert weight == 2 * num and expected > 2
    assert total / num == pytest.approx(expected, rel=0.03)
    rngs = jax.random.split(jax.random.key(0), num)
    rows = jnp.repeat(jnp.asarray(ROW), len(rngs), 0)
    bound = jax.jit(model.nll_bound)(params, rows, jnp.ones(rows.shape, bool), rngs)
    assert bound.sum(1).mean() == pytest.approx(expected, rel=0.03)
    # Tokens that are given are not predicted, and are not noised.
    part = jax.jit(model.nll_bound)(params, rows, rows == 0, rngs)
    assert not part[:, 1].any() and part[:, 0].mean() > 0


def test_a_uniform_model_is_bounded_by_the_size_of_its_vocabulary():
    """By that of all tokens but [MASK]."""
    _, model, params = make_tiny()
    flat = jax.tree.map(jnp.zeros_like, params)
    rngs = jax.random.split(jax.random.key(0), 20_000)
    rows = jnp.repeat(jnp.asarray(ROW), len(rngs), 0)
    bound = jax.jit(model.nll_bound)(flat, rows, jnp.ones(rows.shape, bool), rngs)
    assert bound.mean() == pytest.approx(math.log(3), rel=0.03)


@pytest.mark.parametrize(
    "kind, level", [("uniform", 1.0), ("uniform", -1.0), ("hybrid", 0.5)]
)
def test_the_optimum_is_the_probability_given_all_other_tokens(kind, level):
    """Whatever z is: copying what is there is no better, and has another loss.

    Of one token with probabilities p, the loss of predictions x'(z) for z = 0 is the
    mean over x, by p(x) q(z|x). Its gradient vanishes at x' = p for every z, and not at
    the posterior p(x|z), at which a masked model's vanishes.
    """
    noise, p = noise_of(kind), jnp.array([0.5, 0.3, 0.2])
    signal, levels = jax.nn.sigmoid(level), jnp.full(3, level)
    log_a, _ = noise.find_shares(levels)
    for z in (0, 2):
        q = signal * (jnp.arange(3) == z) + (1 - signal) * jnp.exp(log_a) / 3

        def total(logits, z=z, q=q):
            full = jnp.broadcast_to(jnp.append(logits, 0.0), (3, 4))
            tokens, noised = jnp.arange(3), jnp.full(3, z)
            values, _ = find_losses(full, tokens, noised, levels, noise)
            return (p * q * noise.weigh(noised, tokens, levels) * values).sum()

        posterior = jnp.log(p * q / (p * q).sum())
        slope = jax.jit(jax.grad(total))
        here, there = (slope(logits) for logits in (jnp.log(p), posterior))
        assert np.abs(here).max() < 1e-6 < 1e-3 < np.abs(there).max()
        assert total(jnp.log(p)) < total(posterior)


def test_a_mask_is_never_predicted(make_case, make_rows, vocab):
    case = make_case("hybrid_diffusion")
    tokens = make_rows(case, 2)["tokens"].at[:, 3].set(vocab.mask)
    logits = case.model.fill_logits(case.params, tokens)
    assert np.asarray(logits[..., vocab.mask]).max() < -1e29
    assert np.isfinite(logits).all()
    batch = {"inputs": tokens, "segment_ids": jnp.ones_like(tokens)}
    batch |= {"positions": jnp.array([[3], [3]]), "targets": jnp.array([[8], [9]])}
    result, ranks = case.model.target_log_probs(case.params, batch, "full", True)
    expected = jax.nn.log_softmax(logits)[:, 3][jnp.arange(2), batch["targets"][:, 0]]
    close(result[:, 0], expected, rtol=1e-5)
    close(case.model.target_log_probs(case.params, batch, "full"), result, rtol=1e-6)
    assert ranks.shape == (2, 1)
    gap = Gap(tokens, 3, tokens, jnp.array([[8, 9], [8, 9]]))
    scores = case.model.choice_scores(case.params, gap)
    close(scores, logits[:, 3, 8:10], rtol=1e-5)


def test_uniform_noise_reads_random_tokens_in_place_of_masks(make_case, vocab):
    uniform, hybrid = (
        make_case("hybrid_diffusion", noise=kind) for kind in ("uniform", "hybrid")
    )
    tokens = jnp.arange(7, 23)[None]
    masked = tokens.at[0, jnp.array([2, 5])].set(vocab.mask)
    places = (hybrid_diffusion.STRIDE * jnp.array([3, 6])) % 25
    words = jnp.asarray(vocab.ordinary_ids)[places]
    assert words[0] != words[1]
    shown = tokens.at[0, jnp.array([2, 5])].set(words)
    params = uniform.params
    result = uniform.model.fill_logits(params, masked)
    close(result, hybrid.model.fill_logits(params, shown), rtol=1e-5)
    assert not np.allclose(result, hybrid.model.fill_logits(params, masked))
    close(*(c.model.fill_logits(params, tokens) for c in (uniform, hybrid)), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hybrid", "uniform"])
def test_a_row_that_was_learnt_is_restored(kind, make_case, make_rows):
    """Trained on one row at all levels, its changed tokens are found."""
    case = make_case("hybrid_diffusion", noise=kind)
    rows = in_training(make_rows(case, 4))
    optimizer = optax.adam(optax.cosine_decay_schedule(1e-2, 1000))
    step = case.make_step(optimizer)

    @jax.jit
    def run(state):
        keys = jax.random.split(jax.random.key(5), 1000)
        return jax.lax.scan(lambda s, k: (step(s, rows, k)[0], None), state, keys)[0]

    params = run(case.init_state(optimizer)).params
    _, metrics = case.loss(case.corrupt(rows, seed=9), params)
    hits, count = metrics["masked_accuracy"]
    assert count > 10 and hits / count > 0.8


def test_declared_controls():
    controls = hybrid_diffusion.Spec(8, noise_shift=1.0).controls()
    assert controls["masked_diffusion"] == {"objective": "masked_diffusion"}
    assert controls["mask"]["hybrid_diffusion"]["noise"] == "mask"
    assert controls["random_mlm"]["mlm"] == {"replace_mask": 0.0, "replace_random": 1.0}
    assert controls["replace_mlm"]["electra"] == {"variant": "replace_mlm"}
    assert "mask" not in hybrid_diffusion.Spec(8, noise="mask").controls()
