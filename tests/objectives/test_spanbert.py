"""SpanBERT: spans of one kind, predicted from their edges alone, as in the source."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpt.objectives import spanbert
from jaxpt.text.tokens.vocab import Vocab

R = 24
VOCAB = Vocab(
    size=40,
    pad=0,
    cls=2,
    sep=3,
    mask=4,
    word_starts=tuple(not 25 <= i < 40 for i in range(40)),
)
SPECS = [
    spanbert.Spec(R, rate, max_targets=most, max_span_length=longest)
    for rate, most, longest in ((0.15, 15, 10), (0.5, 2, 4))
]


@functools.cache
def corrupt_all():
    def run(rng, rows):
        return [spanbert.corrupt(rng, rows, VOCAB, spec) for spec in SPECS]

    return jax.jit(run)


def runs_of(hidden, segments):
    """(first, last) of each run of hidden places within a document: a second way."""
    results = []
    for place in np.flatnonzero(hidden):
        is_next = results and results[-1][1] == place - 1
        if is_next and segments[place] == segments[place - 1]:
            results[-1][1] = place
        else:
            results.append([place, place])
    return results


@given(
    st.lists(st.sampled_from([2, 3, *range(5, 40)]), min_size=2 * R, max_size=2 * R),
    st.lists(st.integers(0, R), min_size=2, max_size=2),
    st.integers(1, R),
    st.integers(0, 2**31 - 1),
)
@settings(max_examples=60, deadline=None)
def test_spans_budgets_and_edges(tokens, lengths, cut, seed):
    tokens = np.array(tokens, np.int32).reshape(2, R)
    places = np.arange(R)
    segments = np.where(places < cut, 1, 2) * (places < np.array(lengths)[:, None])
    rows = {"tokens": tokens, "segment_ids": segments, "index": np.arange(2)}
    result = jax.tree.map(np.asarray, corrupt_all()(jax.random.key(seed), rows))
    again = corrupt_all()(jax.random.key(seed), rows)
    jax.tree.map(np.testing.assert_array_equal, result, again)
    for spec, batch in zip(SPECS, result, strict=True):
        for i in range(2):
            text = (segments[i] > 0) & np.isin(tokens[i], VOCAB.ordinary_ids)
            drawn = batch["weights"]["mlm_loss"][i] > 0
            hidden = np.zeros(R, bool)
            hidden[batch["masked_positions"][i][drawn]] = True
            assert hidden.sum() == drawn.sum() and not (hidden & ~text).any()
            n = text.sum()
            assert hidden.sum() == -(-round(100 * spec.mask_rate) * n // 100)
            row = {key: batch[key][i][drawn] for key in SLOTS}
            row["has_edges"] = batch["weights"]["boundary_loss"][i][drawn]
            restored = batch["inputs"][i].copy()
            restored[row["masked_positions"]] = row["targets"]
            np.testing.assert_array_equal(restored, tokens[i])
            assert (batch["inputs"][i][~hidden] == tokens[i][~hidden]).all()
            assert not batch["weights"]["boundary_loss"][i][~drawn].any()
            check_runs(spec, row, batch["inputs"][i], tokens[i], hidden, segments[i])


SLOTS = ("masked_positions", "targets", "span_starts", "span_ends")


def check_runs(spec, row, inputs, tokens, hidden, segments):
    """Each run is a span of one kind, with its edges if it has any."""
    text = (segments > 0) & np.isin(tokens, VOCAB.ordinary_ids)
    for first, last in runs_of(hidden, segments):
        own = (row["masked_positions"] >= first) & (row["masked_positions"] <= last)
        assert own.sum() == last - first + 1
        assert (row["span_starts"][own] == first).all()
        assert (row["span_ends"][own] == last).all()
        beside = [p for p in (first - 1, last + 1) if 0 <= p < R and text[p]]
        has_edges = len([p for p in beside if segments[p] == segments[first]]) == 2
        is_early = row["masked_positions"][own] - first < spec.max_targets
        assert (row["has_edges"][own] == (has_edges & is_early)).all()
        span = inputs[first : last + 1]
        if (span == VOCAB.mask).any():  # or nothing but the span was in its document
            assert (span == VOCAB.mask).all()
        elif (span != tokens[first : last + 1]).any():
            document = tokens[(segments == segments[first]) & text & ~hidden]
            assert set(span.tolist()) <= set(document.tolist())


def many(spec, rows, num, seed=0):
    """The batch of one row `num` times, drawn apart."""
    rows = {key: jnp.tile(jnp.array(value), (num, 1)) for key, value in rows.items()}
    rows["index"] = jnp.arange(num)
    run = jax.jit(lambda key, rows: spanbert.corrupt(key, rows, VOCAB, spec))
    return jax.tree.map(np.asarray, run(jax.random.key(seed), rows))


def test_a_span_is_shown_in_one_way_eight_one_and_one():
    """The source's default draws for each piece; its recipe, and ours, for a span."""
    spec = spanbert.Spec(R, 0.15, max_span_length=4)
    tokens = np.random.default_rng(0).permutation(np.arange(5, 25))
    tokens = np.concatenate([tokens, np.arange(26, 30)])
    batch = many(spec, {"tokens": tokens}, 4000)
    is_first = batch["span_starts"] == batch["masked_positions"]
    inputs = np.take_along_axis(batch["inputs"], batch["masked_positions"], axis=1)
    is_mask, is_kept = inputs == VOCAB.mask, inputs == batch["targets"]
    assert is_mask[is_first].mean() == pytest.approx(0.8, abs=0.02)
    assert is_kept[is_first].mean() == pytest.approx(0.1, abs=0.02)
    follows = batch["span_starts"][:, 1:] == batch["span_starts"][:, :-1]
    assert follows.mean() > 0.4
    assert (is_mask[:, 1:] == is_mask[:, :-1])[follows].all()
    assert (is_kept[:, 1:] == is_kept[:, :-1])[follows].all()


@pytest.mark.slow
def test_random_words_are_as_frequent_as_in_the_text():
    """Not uniform over the vocabulary, as BERT's are."""
    spec = spanbert.Spec(R, 0.05, 0.0, 1.0)
    tokens = np.array([7] * 18 + [8] * 6)
    segments = np.array([1] * 18 + [2] * 6)
    batch = many(spec, {"tokens": tokens}, 2000)
    inputs = np.take_along_axis(batch["inputs"], batch["masked_positions"], axis=1)
    assert set(inputs.ravel().tolist()) == {7, 8}
    assert (inputs == 8).mean() == pytest.approx(0.25, abs=0.03)
    batch = many(spec, {"tokens": tokens, "segment_ids": segments}, 200)
    np.testing.assert_array_equal(batch["inputs"], np.tile(tokens, (200, 1)))


def test_edges_are_read_beside_the_span_and_nowhere_else(make_case):
    case = make_case("spanbert", max_targets=3)
    model = case.model
    hidden = jnp.asarray(np.random.default_rng(0).normal(size=(1, 20, 32)), jnp.float32)
    slots = {
        "masked_positions": jnp.array([[4, 5, 6, 7, 0]]),
        "targets": jnp.array([[9, 9, 9, 9, 9]]),
        "span_starts": jnp.array([[4, 4, 4, 4, 0]]),
        "span_ends": jnp.array([[7, 7, 7, 7, 0]]),
    }
    weights = jnp.array([[1.0, 1.0, 1.0, 0.0, 0.0]])

    def total(params, hidden, weights=weights):
        result = model.apply(
            {"params": params}, hidden, slots, weights, method="score_spans"
        )
        return result.loss[0]

    grads = jax.jit(jax.grad(total, argnums=(0, 1)))(case.params, hidden)
    reached = np.flatnonzero(np.abs(grads[1][0]).max(-1))
    assert reached.tolist() == [3, 8]  # external endpoints: the span itself is not read
    table = np.abs(grads[0]["boundary"]["positions"]).max(-1)
    assert table.shape == (3,) and (table > 0).all()
    # Each place in the span has its own embedding.
    apart = jax.jit(
        lambda p: [total(p, hidden, jnp.eye(5)[i][None]) for i in range(3)]
    )(case.params)
    assert len({round(float(x), 7) for x in apart}) == 3


@pytest.mark.slow
def test_the_head_is_two_layers_and_the_token_table(make_case, make_rows):
    case = make_case("spanbert")
    batch = case.corrupt(make_rows(case, 4))
    shapes = {k: v.shape for k, v in flat(case.params["boundary"]).items()}
    assert shapes == {
        "positions": (15, 8),
        "transform_0/kernel": (2 * 32 + 8, 32),
        "transform_0/bias": (32,),
        "out_0_norm/scale": (32,),
        "out_0_norm/bias": (32,),
        "transform_1/kernel": (32, 32),
        "transform_1/bias": (32,),
        "out_1_norm/scale": (32,),
        "out_1_norm/bias": (32,),
        "bias": (40,),
    }
    assert spanbert.Spec(R).place_width == 200 and spanbert.Spec(R).max_targets == 15

    # By hand.
    hidden = jax.jit(
        lambda p: case.model.apply(
            {"params": p},
            batch["inputs"],
            spanbert.masks(batch)["self"],
            deterministic=True,
            method="encode",
        )
    )(case.params)
    p = jax.tree.map(np.asarray, flat(case.params["boundary"]))
    expected = 0.0
    for i in range(4):
        for j in np.flatnonzero(batch["weights"]["boundary_loss"][i]):
            start, end = batch["span_starts"][i, j], batch["span_ends"][i, j]
            place = p["positions"][batch["masked_positions"][i, j] - start]
            x = np.concatenate([hidden[i, start - 1], hidden[i, end + 1], place])
            for layer in (0, 1):
                x = x @ p[f"transform_{layer}/kernel"] + p[f"transform_{layer}/bias"]
                x = np.asarray(jax.nn.gelu(x, approximate=False))
                x = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
                x = x * p[f"out_{layer}_norm/scale"] + p[f"out_{layer}_norm/bias"]
            logits = x @ np.asarray(case.params["embed"]["tokens"]).T + p["bias"]
            expected -= jax.nn.log_softmax(logits)[batch["targets"][i, j]]
    terms, metrics = case.loss(batch)
    assert float(terms["boundary_loss"][0]) == pytest.approx(float(expected), rel=1e-4)
    assert terms["boundary_loss"][1] == batch["weights"]["boundary_loss"].sum() > 0
    assert terms["mlm_loss"][1] == batch["weights"]["mlm_loss"].sum()
    assert set(metrics) > {"boundary_accuracy", "masked_accuracy"}


def flat(tree):
    pairs = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(p, simple=True, separator="/"): x for p, x in pairs}


def test_each_term_has_its_own_denominator_and_weight(make_case, make_rows):
    """The source divides the edges' loss by their count and 1, on each device."""
    case = make_case("spanbert")
    batch = case.corrupt(make_rows(case, 4))
    counts = {k: float(v.sum()) for k, v in batch["weights"].items()}
    assert counts["mlm_loss"] == 24 > counts["boundary_loss"] > 0
    spec = spanbert.Spec.for_seq_len(20, boundary_weight=0.5)
    assert spec.coefficients == {"mlm_loss": 1.0, "boundary_loss": 0.5}


@pytest.mark.slow
def test_the_edges_gradient_reaches_both_heads_tables(make_case, make_rows):
    case = make_case("spanbert", (("head_transform", True),))
    batch = case.corrupt(make_rows(case, 4))

    def terms_of(params):
        terms, _ = spanbert.loss(params, case.model, batch, spanbert.masks(batch), {})
        return {name: total for name, (total, _) in terms.items()}

    grads = jax.jit(jax.jacrev(terms_of))(case.params)

    def size(tree):
        return max(float(np.abs(x).max()) for x in jax.tree.leaves(tree))

    assert size(grads["mlm_loss"]["boundary"]) == 0 < size(grads["mlm_loss"]["head"])
    assert size(grads["boundary_loss"]["head"]) == 0
    assert size(grads["boundary_loss"]["boundary"]) > 0
    assert size(grads["boundary_loss"]["encoder"]) > 0
    # The decoder is the token table: ids that no row holds get a gradient.
    table = np.abs(grads["boundary_loss"]["embed"]["tokens"]).max(-1)
    assert (table > 0).all()


def test_what_is_hidden_cannot_be_seen(make_case, make_rows):
    """Other words behind the [MASK]s: the same inputs, and so the same states."""
    case = make_case("spanbert", replace_mask=0.9, replace_random=0.1)
    rows = make_rows(case, 16)
    batch = jax.tree.map(np.asarray, case.corrupt(rows))
    tokens = np.asarray(rows["tokens"]).copy()
    for i in range(16):
        places = batch["masked_positions"][i][batch["weights"]["mlm_loss"][i] > 0]
        tokens[i, places] = (tokens[i, places] - 7 + 5) % 25 + 7
    other = case.corrupt(rows | {"tokens": jnp.asarray(tokens)})
    assert (other["targets"] != batch["targets"]).all()
    np.testing.assert_array_equal(other["inputs"], batch["inputs"])


def test_what_is_exported_is_the_transformer(make_case):
    case = make_case("spanbert")
    ((spec, params),) = case.model.export_parts(case.params).values()
    assert spec == case.model_spec
    assert set(case.params) - set(params) == {"boundary"}
    assert case.model.join_parts({"masked": params}) is params
