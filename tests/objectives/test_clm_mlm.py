"""Causal and masked rows on one head: the shift of GPT-BERT, counts, shares, phases."""

import dataclasses
import functools
import math
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpt.objectives import clm_mlm
from jaxpt.ops import noise
from jaxpt.ops.masks import materialise
from jaxpt.rng import split_step
from jaxpt.text.tokens.vocab import Vocab
from jaxpt.training.measure import total_loss

VOCAB = Vocab(size=60, pad=0, unk=1, cls=2, sep=3, mask=4)
SHOWN = {"replace_mask": 1.0, "replace_random": 0.0}  # a [MASK] wherever one is hidden


@functools.cache
def corrupt(spec):
    return jax.jit(lambda rng, rows: clm_mlm.corrupt(rng, rows, VOCAB, spec))


@st.composite
def packed(draw):
    """Tokens and segment ids of a row of 24; a fifth of the tokens is special."""
    ids, number = [], 0
    while len(ids) < 24 and draw(st.integers(0, 5)):
        number += 1
        ids += [number] * draw(st.integers(1, 24 - len(ids)))
    ids += [0] * (24 - len(ids))
    tokens = np.random.default_rng(draw(st.integers(0, 999))).integers(5, 60, 24)
    is_special = np.random.default_rng(len(ids) + number).random(24) < 0.2
    return np.where(is_special, 3, tokens).astype(np.int32), np.array(ids, np.int32)


@pytest.mark.slow
@given(packed(), st.sampled_from([0.15, 0.4, 0.9]), st.integers(0, 2**31 - 1))
@settings(max_examples=50, deadline=None)
def test_what_is_hidden_is_an_exact_count_and_can_be_put_back(row, rate, seed):
    tokens, ids = row
    spec = clm_mlm.Spec(24, mask_rate=rate, **SHOWN)
    num = 16
    rows = {
        "tokens": tokens[None].repeat(num, 0),
        "segment_ids": ids[None].repeat(num, 0),
        "index": np.arange(num),
    }
    batch = jax.tree.map(np.asarray, corrupt(spec)(jax.random.key(seed), rows))
    np.testing.assert_array_equal(batch["targets"], rows["tokens"][:, 1:])
    np.testing.assert_array_equal(batch["segment_ids"], rows["segment_ids"][:, :-1])
    is_next = (ids[1:] == ids[:-1]) & (ids[1:] > 0)
    eligible = is_next & (tokens[1:] >= 5)
    count = noise.count_table(23, rate)[is_next.sum()]
    for i in range(num):
        is_masked = batch["is_prefix"][i]
        assert is_masked.all() or not is_masked.any()
        inputs, weights = batch["inputs"][i], batch["weights"]["mlm_loss"][i]
        if not is_masked.any():
            np.testing.assert_array_equal(inputs, tokens[:-1])
            np.testing.assert_array_equal(batch["weights"]["clm_loss"][i], is_next)
            assert not weights.any()
            continue
        assert not batch["weights"]["clm_loss"][i].any()
        assert weights.sum() == min(count, eligible.sum())
        places = batch["masked_positions"][i][weights > 0]
        assert len(set(places.tolist())) == len(places) and eligible[places].all()
        # Each is hidden one place after it is predicted; the last was no input anyway.
        rebuilt = np.append(inputs, tokens[-1])
        assert (rebuilt[places[places < 22] + 1] == VOCAB.mask).all()
        rebuilt[places + 1] = batch["targets"][i][places]
        np.testing.assert_array_equal(rebuilt[:-1], tokens[:-1])


def kinds(spec, num=2000, **rows):
    """Which of many rows are masked."""
    tokens = np.full((num, spec.row_length), 9, np.int32)
    rows = {"tokens": tokens, "index": np.arange(num)} | rows
    return np.asarray(corrupt(spec)(jax.random.key(1), rows)["is_prefix"][:, 0])


@pytest.mark.slow_except("1.0")
@pytest.mark.parametrize("share", [0.0625, 0.5, 1.0])
def test_rows_are_masked_by_their_share(share):
    result = kinds(clm_mlm.Spec(4, mlm_share=share)).mean()
    assert abs(result - share) <= 4 * math.sqrt(share * (1 - share) / 2000)


ANTLM = {"mlm_schedule": ((1 / 6, 0.0), (5 / 6, 1.0), (1.0, 0.0))}
SCHEDULES = {
    "clm, then mlm": ({"mlm_schedule": ((0.25, 0.0),), "mlm_share": 1.0}, [0.25]),
    "mlm, then clm": ({"mlm_schedule": ((0.75, 1.0),), "mlm_share": 0.0}, [0, 0.75]),
    "antlm": (ANTLM, [1 / 6, 5 / 6]),
}


@pytest.mark.parametrize("settings, switches", SCHEDULES.values(), ids=[*SCHEDULES])
def test_rows_are_of_the_phases_kind(settings, switches):
    """Each switch, from 0 on, turns causal rows into masked ones or back."""
    spec = clm_mlm.Spec(4, **settings)
    progress = np.linspace(0, 1, 2000, dtype=np.float32)
    expected = sum((progress >= at).astype(int) for at in switches) % 2
    np.testing.assert_array_equal(kinds(spec, progress=progress), expected)
    # In evaluation `mlm_share` applies, at any time of the run.
    assert abs(kinds(spec).mean() - spec.mlm_share) <= 0.05


def test_the_phases_of_antlm():
    """4 epochs of CLM, 16 of MLM, 4 of CLM: the vector of its paper."""
    spec = clm_mlm.Spec(4, **ANTLM)
    shares = [spec.shares_at(p) for p in (0, 0.1, 1 / 6, 0.5, 5 / 6, 0.99, 1)]
    assert [masked for _, masked in shares] == [0, 0, 1, 1, 0, 0, 0]
    assert [causal for causal, _ in shares] == [1, 1, 0, 0, 1, 1, 1]
    assert spec.mean_share == pytest.approx(16 / 24)


@pytest.mark.parametrize("steps", [6, 7, 24, 246, 330, 1000, 600_000])
def test_a_phase_begins_at_its_exact_step(steps):
    """Although progress is a float32, and a compiled division is a product."""
    spec = clm_mlm.Spec(4, **ANTLM)
    at = np.arange(steps)
    expected = (6 * at >= steps) & (6 * at < 5 * steps)

    @jax.jit
    def run():  # as in a training call
        step = lambda at, _: (at + 1, spec.shares_at(at / steps)[1])  # noqa: E731
        return jax.lax.scan(step, jnp.int32(0), length=steps)[1]

    np.testing.assert_array_equal(run(), expected)
    one_by_one = [spec.shares_at(float(t) / steps)[1] for t in at[:2000]]
    np.testing.assert_array_equal(one_by_one, expected[:2000])


def at_progress(rows, value):
    return rows | {"progress": jnp.full(len(rows["index"]), value, jnp.float32)}


def check_equal(left, right):
    jax.tree.map(np.testing.assert_array_equal, left, right)


@pytest.mark.parametrize("progress, share", [(0.2, 0.25), (0.7, 1.0), (0.9, 0.0)])
def test_each_phase_is_the_mixture_of_its_share(
    progress, share, make_case, make_rows, vocab
):
    """Rows, loss and gradient: a constant mixture is a schedule of equal shares."""
    schedule = ((0.5, 0.25), (0.8, 1.0), (1.0, 0.0))
    case = make_case("clm_mlm", mlm_schedule=schedule)
    rows = make_rows(case, 8)
    constant = dataclasses.replace(case.spec, mlm_schedule=(), mlm_share=share)
    grads, metrics = case.gradients(at_progress(rows, progress))
    expected, of_constant = case.gradients(rows, spec=constant)
    check_equal(metrics, of_constant)
    check_equal(grads, expected)
    assert (metrics["clm_loss"][1] > 0) == (share < 1)
    assert (metrics["mlm_loss"][1] > 0) == (share > 0)
    # The loss that is logged is the one that is trained on.
    program = types.SimpleNamespace(task=types.SimpleNamespace(spec=case.spec))
    means = [metrics[k][0] / max(metrics[k][1], 1) for k in ("clm_loss", "mlm_loss")]
    result = total_loss(program, metrics, progress)
    assert result == pytest.approx(float((1 - share) * means[0] + share * means[1]))


def test_a_causal_phase_has_the_gradients_of_clm(make_case, make_rows):
    """To rounding, as its loss is summed in another order."""
    case, other = make_case("clm_mlm", mlm_schedule=((1.0, 0.0),)), make_case("clm")
    rows = make_rows(case, 8)
    grads, metrics = case.gradients(at_progress(rows, 0.5))
    expected, of_clm = other.gradients(rows)
    assert metrics["clm_loss"][1] == of_clm["loss"][1] and not metrics["mlm_loss"][1]
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-7)
    jax.tree.map(close, grads, expected)


def test_causal_rows_see_their_past_and_masked_rows_all(make_packed, make_rows):
    case = make_packed("clm_mlm")
    rows = make_rows(case, 12, lengths=[20, 15] * 6)
    batch = case.corrupt(rows)
    seen = np.asarray(materialise(clm_mlm.masks(batch)["self"], 20, 20))[:, 0]
    ids = np.asarray(batch["segment_ids"])
    own = (ids[:, :, None] == ids[:, None]) & (ids[:, :, None] > 0)
    is_masked = np.asarray(batch["is_prefix"][:, :1, None])
    assert 0 < is_masked.sum() < 12
    np.testing.assert_array_equal(seen, own & (is_masked | np.tri(20, dtype=bool)))


def test_losses_by_hand_each_by_its_own_denominator(make_case, make_rows):
    """A hidden token is predicted at the place before; its own predicts the next."""
    case = make_case("clm_mlm", mask_rate=0.3, **SHOWN)
    batch = case.corrupt(make_rows(case, 8))
    params = jax.tree.map(lambda x: x * (10 if x.ndim > 1 else 1), case.params)

    @jax.jit
    def logits_of(params, batch):
        masks, variables = clm_mlm.masks(batch), {"params": params}
        return case.model.apply(variables, batch["inputs"], masks, deterministic=True)

    log_p = np.asarray(jax.nn.log_softmax(logits_of(params, batch)))
    terms, metrics = case.loss(batch, params)
    batch = jax.tree.map(np.asarray, batch)
    expected, counts, hits = [0.0, 0.0], [0, 0], [0, 0]
    for i, targets in enumerate(batch["targets"]):
        is_masked = int(batch["is_prefix"][i, 0])
        places = range(20)
        if is_masked:
            places = batch["masked_positions"][i]
            assert len(places) == 6
            behind = places[places < 19] + 1
            assert (batch["inputs"][i][behind] == 4).all()
        for t in places:
            expected[is_masked] -= log_p[i, t, targets[t]]
            counts[is_masked] += 1
            hits[is_masked] += log_p[i, t].argmax() == targets[t]
    for k, (name, hit) in enumerate(
        [("clm_loss", "accuracy"), ("mlm_loss", "masked_accuracy")]
    ):
        np.testing.assert_allclose(terms[name][0], expected[k], rtol=1e-4)
        assert terms[name][1] == counts[k] > 0
        assert metrics[hit][0] == hits[k] and metrics[hit][1] == counts[k]
    assert [batch["weights"][name].sum() for name in terms] == counts


def test_a_hidden_token_is_nowhere_to_be_seen(make_case, make_rows):
    case = make_case("clm_mlm", mask_rate=0.3, mlm_share=1.0, **SHOWN)
    rows = make_rows(case, 4)
    batch = case.corrupt(rows)
    hidden = jnp.zeros(rows["tokens"].shape, bool)
    each = jnp.arange(4)[:, None]
    hidden = hidden.at[each, batch["masked_positions"] + 1].set(True)
    others = jnp.where(hidden, rows["tokens"] % 20 + 8, rows["tokens"])
    other = case.corrupt(rows | {"tokens": others})
    np.testing.assert_array_equal(batch["inputs"], other["inputs"])
    assert (batch["targets"] != other["targets"]).any()


def test_causal_rows_are_clms(make_case, make_rows):
    """Same parameters, same numbers: each continues the training of the other."""
    case, other = make_case("clm_mlm", mlm_share=1e-9), make_case("clm")
    assert jax.tree.structure(case.params) == jax.tree.structure(other.params)
    rows = make_rows(case, 3)
    batch = case.corrupt(rows)
    assert not batch["is_prefix"].any()
    terms, _ = case.loss(batch)
    expected, _ = other.loss(other.corrupt(rows))
    np.testing.assert_allclose(terms["clm_loss"], expected["loss"], rtol=1e-6)
    tokens = rows["tokens"]
    for name in ("token_nll", "next_logits"):
        result, expected = (
            jax.jit(getattr(c.model, name))(c.params, tokens) for c in (case, other)
        )
        np.testing.assert_array_equal(result, expected)


def test_fills_are_read_one_place_before(make_case, make_rows):
    case = make_case("clm_mlm")
    tokens = make_rows(case, 2)["tokens"].at[:, 7].set(VOCAB.mask)
    logits = jax.jit(lambda p, t: case.model.fill_logits(p, t))
    result = logits(case.params, tokens)
    assert result.shape == (*tokens.shape, 40) and not result[:, 0].any()
    masks = {"self": jnp.ones((1, 1, *2 * tokens.shape[1:]), bool)}
    expected = jax.jit(
        lambda p, t: case.model.apply({"params": p}, t, masks, deterministic=True)
    )(case.params, tokens)
    np.testing.assert_allclose(result[:, 7], expected[:, 6], rtol=1e-4, atol=1e-6)
    later = logits(case.params, tokens.at[:, 12].set(8))
    assert (later[:, 7] != result[:, 7]).any()  # it sees what follows


@pytest.mark.slow
def test_the_gradient_is_of_the_shares(make_case, make_rows, vocab):
    """0.25 of the mean over masked rows and 0.75 of that over causal ones."""
    mixed = make_case("clm_mlm", mlm_share=0.25)
    rows = make_rows(mixed, 8)
    grads, metrics = mixed.gradients(rows)
    assert metrics["clm_loss"][1] > 0 and metrics["mlm_loss"][1] > 0
    rng = split_step(jax.random.key(0))["corrupt"]
    batch = clm_mlm.corrupt(rng, rows, vocab, mixed.spec)

    def mean(term):
        def run(params):
            masks = clm_mlm.masks(batch)
            terms, _ = clm_mlm.loss(params, mixed.model, batch, masks, {})
            return terms[term][0] / terms[term][1]

        return jax.jit(jax.grad(run))(mixed.params)

    expected = jax.tree.map(
        lambda a, b: 0.75 * a + 0.25 * b, mean("clm_loss"), mean("mlm_loss")
    )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-7),
        grads,
        expected,
    )


def test_a_batch_of_one_kind_has_a_loss():
    """A mean over nothing is NaN, and would stop the run as diverged."""
    spec = clm_mlm.Spec(4, mlm_share=0.25)
    program = types.SimpleNamespace(task=types.SimpleNamespace(spec=spec))
    result = {"clm_loss": (6.0, 2.0), "mlm_loss": (0.0, 0.0)}
    assert total_loss(program, result) == 0.75 * 3
    assert total_loss(program, result | {"mlm_loss": (4.0, 1.0)}) == 0.75 * 3 + 1
    assert math.isnan(total_loss(program, result | {"clm_loss": (math.nan, 2.0)}))
    assert math.isnan(total_loss(program, result | {"clm_loss": (0.0, 0.0)}))
