"""Masking strategies, the same for MLM and ELECTRA, as a config sets them."""

import dataclasses
import functools
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpt.objectives import electra, masking, mlm
from jaxpt.text.tokens.vocab import Vocab

R = 20
MODULES = {"mlm": mlm, "electra": electra}
both = pytest.mark.parametrize("name", MODULES)
# Ids 3 to 5 continue a word; 0 to 2 are special.
TINY = Vocab(
    size=9, mask=0, cls=1, sep=2, word_starts=(True,) * 3 + (False,) * 3 + (True,) * 3
)


def many(row, spec, vocab, num=3000, module=mlm, seed=0, **settings):
    """The batch of one row `num` times, drawn apart."""
    rows = {"tokens": jnp.tile(jnp.array(row), (num, 1)), "index": jnp.arange(num)}
    rows |= {
        key: jnp.tile(jnp.array(value), (num, 1)) for key, value in settings.items()
    }
    run = jax.jit(lambda key, rows: module.corrupt(key, rows, vocab, spec))
    return jax.tree.map(np.asarray, run(jax.random.key(seed), rows))


def drawn_weights(batch):
    """The weights of the masked positions: MLM's loss, or that of the generator."""
    terms = batch["weights"]
    return terms["generator_loss" if "generator_loss" in terms else "loss"]


def hidden_sets(batch):
    """The positions that each row hides."""
    pairs = zip(batch["masked_positions"], drawn_weights(batch) > 0, strict=True)
    return [tuple(sorted(places[is_drawn].tolist())) for places, is_drawn in pairs]


@pytest.mark.slow_cases("mlm")
@both
def test_whole_words_are_berts_six_sets(name):
    """For any tokenizer: HF's and BERT's know words by "##" alone."""
    module = MODULES[name]
    row = [1, 6, 3, 4, 7, 8, 5, 6, 7, 3, 2]  # [CLS] a ##b ##c d e ##f g h ##i [SEP]
    spec = module.Spec(len(row), 0.3, masking="words")
    assert spec.num_masked == 3
    result = Counter(hidden_sets(many(row, spec, TINY, module=module)))
    expected = {(1, 2, 3), (4, 5, 6), (4, 7), (4, 8, 9), (5, 6, 7), (7, 8, 9)}
    assert set(result) == expected


def test_each_piece_of_a_word_draws_its_own_replacement():
    """Fairseq draws once for a word."""
    spec = mlm.Spec(3, 0.9, 0.5, 0.0, masking="words")
    batch = many([6, 3, 4], spec, TINY)
    assert (batch["weights"]["loss"] == 1).all()
    kept = batch["inputs"] == [6, 3, 4]
    assert len({tuple(row) for row in kept.tolist()}) == 8
    assert abs(np.corrcoef(kept.T)[0, 1]) < 0.1


CASES = [
    (name, module.Spec(R, rate, masking=kind))
    for name, module in MODULES.items()
    for kind, rate in (("words", 0.15), ("words", 0.5), ("spans", 0.15), ("spans", 0.5))
]
VOCAB = Vocab(
    size=40,
    pad=0,
    cls=2,
    mask=4,
    sentinels=tuple(range(39, 31, -1)),
    word_starts=tuple(not 15 <= i < 32 for i in range(40)),
)


@functools.cache
def corrupt_all():
    def run(rng, rows):
        return [MODULES[name].corrupt(rng, rows, VOCAB, spec) for name, spec in CASES]

    return jax.jit(run)


@given(
    st.lists(st.integers(0, 39), min_size=2 * R, max_size=2 * R),
    st.lists(st.integers(0, R), min_size=2, max_size=2),
    st.integers(1, R),
    st.integers(0, 2**31 - 1),
)
@settings(max_examples=40, deadline=None)
def test_counts_borders_and_what_is_recovered(tokens, lengths, cut, seed):
    tokens = np.array(tokens, np.int32).reshape(2, R)
    places = np.arange(R)
    segments = np.where(places < cut, 1, 2) * (places < np.array(lengths)[:, None])
    rows = {
        "tokens": tokens,
        "segment_ids": segments.astype(np.int32),
        "index": np.arange(2),
    }
    result = corrupt_all()(jax.random.key(seed), rows)
    again = corrupt_all()(jax.random.key(seed), rows)
    jax.tree.map(np.testing.assert_array_equal, result, again)
    for (name, spec), batch in zip(CASES, jax.tree.map(np.asarray, result)):
        for i, hidden in enumerate(hidden_sets(batch)):
            eligible = (segments[i] > 0) & np.isin(tokens[i], VOCAB.ordinary_ids)
            hidden = np.array(hidden, int)
            assert eligible[hidden].all() and len(hidden) <= spec.num_masked
            if spec.masking == "spans":
                n = eligible.sum()
                assert len(hidden) == -(-round(100 * spec.mask_rate * n) // 100)
            else:
                n = lengths[i]
                assert len(hidden) <= (max(1, round(n * spec.mask_rate)) if n else 0)
            # Inputs and targets together are the row; nothing else has changed.
            restored = batch["inputs"][i].copy()
            drawn = drawn_weights(batch)[i] > 0
            restored[batch["masked_positions"][i][drawn]] = batch["targets"][i][drawn]
            np.testing.assert_array_equal(restored, tokens[i])
            elsewhere = np.delete(places, hidden)
            inputs = batch["inputs"][i]
            assert (inputs[elsewhere] == tokens[i][elsewhere]).all()
            if name == "electra":
                assert set(inputs[hidden]) <= set(tokens[i][hidden]) | {VOCAB.mask}


def test_a_word_of_packed_rows_ends_with_its_document():
    row, ids = [6, 3, 4, 5], [1, 1, 2, 2]  # a ##b | ##c ##d
    batch = many(row, mlm.Spec(4, 0.5, masking="words"), TINY, segment_ids=ids)
    assert set(hidden_sets(batch)) == {(0, 1), (2, 3)}
    spec = mlm.Spec(4, 0.25, masking="spans", span_p=0.01)
    batch = many(row, spec, TINY, segment_ids=ids)
    assert set(hidden_sets(batch)) == {(0,), (2,)}  # cut from the word's beginning


def test_long_spans_lie_within_documents():
    row, ids = [6, 7] * 6, [1] * 4 + [2] * 8
    spec = mlm.Spec(12, 0.25, masking="spans", span_p=0.001, max_span_length=3)
    result = Counter(hidden_sets(many(row, spec, TINY, segment_ids=ids)))
    # Two spans may be adjacent, but none crosses the border.
    across, within = ((2, 3, 4), (3, 4, 5)), ((1, 2, 3), (4, 5, 6))
    assert 0 < sum(map(result.get, across)) < 0.3 * sum(map(result.get, within))


@pytest.mark.slow_except("mlm")
@both
def test_static_masks_are_a_rows_own(name, make_case, make_rows):
    """RoBERTa's comparison: whatever the step and the place, one of n."""
    case = make_case(name, static_masks=3)
    rows = make_rows(case, 4)
    spread = {key: value.repeat(64, 0) for key, value in rows.items()}
    spread["index"] = jnp.arange(256)
    batches = [case.corrupt(spread, seed=seed) for seed in (0, 1)]
    inputs = [np.asarray(batch["inputs"]).reshape(4, 64, R) for batch in batches]
    for i in range(4):
        masks = [Counter(map(bytes, half[i])) for half in inputs]
        assert set(masks[0]) == set(masks[1]) and len(masks[0]) == 3
        assert min(masks[0].values()) > 8  # each as often
    # Rows differ in their masks, too: equal keys would hide equal places.
    assert len(set(hidden_sets(jax.tree.map(np.asarray, batches[0])))) > 8
    dynamic = make_case(name).corrupt(spread)
    assert len(np.unique(dynamic["inputs"], axis=0)) > 100


def test_static_masks_do_not_depend_on_padding(make_case, make_rows):
    case = make_case("mlm", static_masks=1)
    rows = make_rows(case, 4, lengths=[12] * 4)
    other = jnp.where(rows["segment_ids"] > 0, rows["tokens"], 9)
    one, two = case.corrupt(rows), case.corrupt(rows | {"tokens": other}, seed=7)
    drawn = one["weights"]["loss"] > 0
    np.testing.assert_array_equal(drawn, two["weights"]["loss"] > 0)
    for key in ("masked_positions", "targets"):
        np.testing.assert_array_equal(one[key][drawn], two[key][drawn])


@pytest.mark.slow_except("tokens-mlm")
@both
@pytest.mark.parametrize("kind", ["tokens", "spans"])
def test_the_rate_falls_over_the_run(name, kind, make_case, make_rows):
    case = make_case(name, mask_rate=0.5, mask_rate_end=0.1, masking=kind)
    assert case.spec.num_masked == 10  # of the larger
    rows = make_rows(case, 4)
    counts = {}
    for share in (0.0, 0.25, 0.5, 1.0):
        batch = case.corrupt(rows | {"progress": jnp.full(4, share)})
        counts[share] = drawn_weights(batch).sum(1).tolist()
    assert counts == {0.0: [10] * 4, 0.25: [8] * 4, 0.5: [6] * 4, 1.0: [2] * 4}
    # What is evaluated is not told how far the run is, and takes its end.
    evaluated = case.corrupt(rows)
    assert drawn_weights(evaluated).sum(1).tolist() == [2] * 4
    rising = dataclasses.replace(case.spec, mask_rate=0.1, mask_rate_end=0.5)
    assert rising.num_masked == 10


@given(st.integers(0, 80), st.floats(0, 1), st.sampled_from(["tokens", "spans"]))
@settings(max_examples=60, deadline=None)
def test_a_scheduled_count_is_that_of_its_rate(length, share, kind):
    spec = mlm.Spec(80, 0.3, mask_rate_end=0.15, masking=kind)
    real = np.arange(80) < length
    result = int(masking.count_hidden(jnp.asarray(real), spec, jnp.float32(share)))
    exact = length * (0.3 - 0.15 * share)
    if kind == "spans":
        assert result - 1 < exact + 1e-3 and result > exact - 1e-3
    else:
        assert abs(result - exact) <= 0.5 + 1e-3 or result == min(length, 1)


def test_without_a_schedule_progress_changes_nothing(make_case, make_rows):
    case = make_case("mlm")
    rows = make_rows(case, 4)
    output = case.corrupt(rows | {"progress": jnp.full(4, 0.5)})
    jax.tree.map(np.testing.assert_array_equal, output, case.corrupt(rows))


@both
def test_words_of_a_tokenizer_that_knows_none_are_refused(name, make_case, refuses):
    case = make_case(name)
    spec = dataclasses.replace(case.spec, masking="spans")
    with refuses(f"{name}.masking=spans: must be tokens with a tokenizer"):
        bare = Vocab(size=40, mask=4)
        spec.make_network(case.model_spec, bare)


@both
@pytest.mark.parametrize("masking", ["words", "spans"])
def test_the_share_that_is_hidden_is_measured_before_training(
    name, masking, caplog, refuses
):
    def check(sizes, rate=0.3):
        """Rows of words of these sizes, the first id of each marked."""
        row = [id_ for size in sizes for id_ in [6] + [3] * (size - 1)]
        rows = {"tokens": np.tile(np.array(row, np.int32), (4, 1))}
        spec = MODULES[name].Spec(len(row), rate, masking=masking)
        spec.check_rows(rows, TINY)

    check([1, 2, 3, 2] * 3)
    assert not caplog.text
    with refuses(f"{name}.masking={masking}", "100%", "must be tokens"):
        check([24])
    check([3, 19])
    if masking == "words":  # a span is cut to the count
        assert f"{name}.masking=words: hides 13.6%" in caplog.text
        assert f"{name}.mask_rate=0.3" in caplog.text
    MODULES[name].Spec(24, 0.3).check_rows({}, TINY)  # single tokens: nothing to check
