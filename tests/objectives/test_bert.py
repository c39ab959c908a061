"""BERT: counts of the source, labels as in the rows, a separate head."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpt.errors import UserError
from jaxpt.objectives import bert, mlm
from jaxpt.text.rows.corpus import Corpus
from jaxpt.text.rows.forms import make_rows
from jaxpt.text.rows.rows_spec import RowsSpec
from jaxpt.text.tokens.vocab import Vocab

R = 20
VOCAB = Vocab(size=40, pad=0, cls=2, sep=3, mask=4, sentinels=tuple(range(39, 31, -1)))
SPECS = [bert.Spec(R, mask_rate=rate, max_predictions=4) for rate in (0.15, 0.5)]


@jax.jit
def corrupt_all(rng, rows):
    """At two rates, in one program."""
    return [bert.corrupt(rng, rows, VOCAB, spec) for spec in SPECS]


def make_pairs(seed=0, num_documents=12, **settings):
    """Rows of pairs of a text of ordinary tokens, cut by the host."""
    draw = np.random.default_rng(seed)
    sizes = [draw.integers(2, 7, draw.integers(1, 6)) for _ in range(num_documents)]
    corpus = Corpus.from_arrays(
        draw.integers(7, 32, sum(map(sum, sizes))),
        doc_starts=np.cumsum([0, *map(sum, sizes)]),
        sentence_starts=np.cumsum([0, *(n for doc in sizes for n in doc)]),
    )
    rows = make_rows(corpus, RowsSpec(R, "pairs", **settings), VOCAB)
    result = rows.read(np.arange(rows.num_rows))
    return result | {"index": np.arange(rows.num_rows)}


@given(st.integers(0, 2**31 - 1))
@settings(max_examples=25, deadline=None)
def test_counts_are_the_sources_and_specials_are_left(seed):
    rows = {key: value[:16] for key, value in make_pairs(seed).items()}
    tokens, real = rows["tokens"], rows["segment_ids"] > 0
    for spec, batch in zip(SPECS, corrupt_all(jax.random.key(seed), rows), strict=True):
        batch = jax.tree.map(np.asarray, batch)
        for i in range(len(tokens)):
            drawn = batch["weights"]["mlm_loss"][i] > 0
            places = batch["masked_positions"][i][drawn]
            # create_pretraining_data.py: of the length with [CLS] and both [SEP]s.
            num = min(4, max(1, round(real[i].sum() * spec.mask_rate)))
            assert len(set(places.tolist())) == drawn.sum() == num
            assert (tokens[i][places] > 6).all() and real[i][places].all()
            restored = batch["inputs"][i].copy()
            restored[places] = batch["targets"][i][drawn]
            np.testing.assert_array_equal(restored, tokens[i])
        for key in ("segment_ids", "type_ids"):
            np.testing.assert_array_equal(batch[key], rows[key])
        np.testing.assert_array_equal(batch["nsp_labels"], rows["is_random_next"])
        assert (batch["weights"]["nsp_loss"] == 1).all()


def test_constants_of_the_source():
    # min(20, max(1, round(len * .15))) of 128: the cap of 20 binds nowhere.
    assert (
        bert.Spec(128, max_predictions=20).num_masked == bert.Spec(128).num_masked == 19
    )
    assert bert.Spec(512, max_predictions=20).num_masked == 20
    assert (
        bert.Spec(512).num_masked == 77
        and bert.Spec(3, max_predictions=9).num_masked == 1
    )
    spec = bert.Spec.for_seq_len(128)
    assert (spec.mask_rate, spec.replace_mask, spec.replace_random) == (0.15, 0.8, 0.1)
    assert spec.sentence_task == "nsp"
    assert spec.coefficients == {"mlm_loss": 1.0, "nsp_loss": 1.0}


def test_random_words_are_a_tenth_and_not_a_fiftieth():
    """transformers' old TensorFlow collator drew them at .1 of the remaining 20 %."""
    spec = bert.Spec(R, mask_rate=0.5, sentence_task="none")
    draw = np.random.default_rng(0)
    tokens = draw.choice(VOCAB.ordinary_ids, (1500, R)).astype(np.int32)
    rows = {"tokens": jnp.asarray(tokens), "index": jnp.arange(1500)}
    batch = jax.jit(lambda r, x: bert.corrupt(r, x, VOCAB, spec))(
        jax.random.key(1), rows
    )
    inputs = np.take_along_axis(
        np.asarray(batch["inputs"]), batch["masked_positions"], axis=1
    )
    is_mask, is_kept = inputs == VOCAB.mask, inputs == np.asarray(batch["targets"])
    chance = 0.1 / len(VOCAB.ordinary_ids)  # that a random word is the token itself
    assert is_mask.mean() == pytest.approx(0.798, abs=0.01)  # the reference's .798
    assert is_kept.mean() == pytest.approx(0.0999 + chance, abs=0.01)
    assert (~is_mask & ~is_kept).mean() == pytest.approx(0.1 - chance, abs=0.01)


def case_and_pairs(make_case, **settings):
    case = make_case("bert", **settings)
    rows = {key: jnp.asarray(value[:8]) for key, value in make_pairs(3).items()}
    return case, rows


def test_losses_are_divided_by_tokens_and_by_pairs(make_case):
    case, rows = case_and_pairs(make_case)
    batch = case.corrupt(rows)
    totals = {name: x.sum() for name, x in batch["weights"].items()}
    assert totals["mlm_loss"] == batch["weights"]["mlm_loss"].sum() > 8
    assert totals["nsp_loss"] == 8  # the source: a mean over all rows
    terms, metrics = case.loss(batch)
    for name, (_, weight) in terms.items():
        assert weight == totals[name]
    assert set(metrics) == {
        *("mlm_loss", "nsp_loss", "nsp_accuracy"),
        *("masked_accuracy", "masked_top5_accuracy"),
    }
    # An empty row has no pair.
    rows["segment_ids"] = rows["segment_ids"].at[2].set(0)
    assert case.loss(case.corrupt(rows))[0]["nsp_loss"][1] == 7


def test_the_pair_is_read_at_the_first_place(make_case):
    """Pooled by a dense layer and tanh, scored by two logits; by hand."""
    case, rows = case_and_pairs(make_case)
    batch = case.corrupt(rows)
    # Weights that say something, for fresh biases are zero.
    draw = np.random.default_rng(0)
    params = jax.tree.map(
        lambda x: jnp.asarray(draw.normal(0, 0.3, x.shape)), case.params
    )
    params = jax.tree.map(lambda x: x.astype(jnp.float32), params)
    mask = bert.masks(batch)["self"]

    @jax.jit
    def encode(params):
        return case.model.apply(
            {"params": params},
            batch["inputs"],
            mask,
            None,
            batch["type_ids"],
            deterministic=True,
            method="encode",
        )

    first, head = np.asarray(encode(params))[:, 0], params["pair_score"]
    pooled = np.tanh(first @ head["pool"]["kernel"] + head["pool"]["bias"])
    logits = pooled @ head["out"]["kernel"] + head["out"]["bias"]
    logits = np.asarray(logits)
    nll = np.log(np.exp(logits).sum(-1)) - logits[np.arange(8), rows["is_random_next"]]
    terms, metrics = case.loss(batch, params)
    assert float(terms["nsp_loss"][0]) == pytest.approx(float(nll.sum()), rel=1e-4)
    hits = (logits.argmax(-1) == np.asarray(rows["is_random_next"])).sum()
    assert metrics["nsp_accuracy"] == (hits, 8)


@pytest.fixture
def gradients(make_case):
    """The gradient of each term alone."""
    case, rows = case_and_pairs(make_case)
    batch = case.corrupt(rows)

    def total(params, term):
        return case.module.loss(params, case.model, batch, bert.masks(batch), {})[0][
            term
        ][0]

    run = jax.jit(
        lambda p: [jax.grad(total)(p, term) for term in ("mlm_loss", "nsp_loss")]
    )
    return run(case.params)


def largest(tree):
    return max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(tree))


def test_each_loss_reaches_what_it_reads_and_nothing_else(gradients):
    of_tokens, of_pairs = gradients
    for name in ("embed", "encoder"):
        assert largest(of_tokens[name]) > 0 and largest(of_pairs[name]) > 0
    assert largest(of_tokens["pair_score"]) == 0 < largest(of_pairs["pair_score"])
    # The head of tokens has no parameters here but the table; types get both.
    assert largest(of_tokens["embed"]["types"]) > 0
    assert largest(of_pairs["embed"]["types"][1]) > 0
    # Tokens that do not occur in the rows get a gradient from the scores alone.
    assert (np.asarray(of_pairs["embed"]["tokens"])[32:] == 0).all()
    assert (np.asarray(of_tokens["embed"]["tokens"])[32:] != 0).all()


def test_types_tell_the_sentences_apart(make_case):
    case, rows = case_and_pairs(make_case)
    batch = case.corrupt(rows)
    moved = batch | {"type_ids": jnp.zeros_like(batch["type_ids"])}
    result, expected = case.loss(moved)[0], case.loss(batch)[0]
    assert all(abs(result[name][0] - expected[name][0]) > 1e-5 for name in expected)


def test_padding_is_not_seen(make_case):
    case, rows = case_and_pairs(make_case)
    batch = case.corrupt(rows)
    inputs = jnp.where(batch["segment_ids"] > 0, batch["inputs"], 9)
    assert (inputs != batch["inputs"]).any()
    result, expected = case.loss(batch | {"inputs": inputs})[0], case.loss(batch)[0]
    for name in expected:
        np.testing.assert_allclose(result[name][0], expected[name][0], rtol=1e-6)


def test_without_a_task_it_is_mlm_with_types(make_case, make_rows):
    case, plain = make_case("bert", sentence_task="none"), make_case("mlm")
    assert "pair_score" not in case.params
    assert case.spec.coefficients == {"mlm_loss": 1.0}
    assert not case.spec.needs.rows and not case.spec.needs.sentence_ids
    rows = make_rows(plain, 4)  # any rows will do
    batch, expected = case.corrupt(rows), plain.corrupt(rows)
    assert set(batch["weights"]) == {"mlm_loss"}  # and by another name
    batch["weights"] = {"loss": batch["weights"]["mlm_loss"]}
    assert set(batch) == set(expected)
    jax.tree.map(np.testing.assert_array_equal, batch, expected)
    batch["weights"] = {"mlm_loss": batch["weights"]["loss"]}
    params = dict(case.params)
    params["embed"] = dict(params["embed"])
    params["embed"]["types"] = 0 * params["embed"]["types"]
    same = {key: params[key] for key in plain.params}
    same["embed"] = {key: params["embed"][key] for key in plain.params["embed"]}
    result = case.loss(batch, params)[1]
    expected = plain.loss(plain.corrupt(rows), same)[1]
    for ours, reference in (
        ("mlm_loss", "loss"),
        ("masked_top5_accuracy", "masked_top5_accuracy"),
    ):
        np.testing.assert_allclose(result[ours], expected[reference], rtol=1e-6)


@pytest.mark.slow
def test_order_reads_labels_of_its_own(make_case, make_rows):
    case = make_case("bert", sentence_task="sop")
    rows = make_rows(case, 8)
    batch = case.corrupt(rows)
    np.testing.assert_array_equal(batch["sop_labels"], rows["is_swapped"])
    assert "nsp_labels" not in batch
    _, metrics = case.loss(batch)
    assert metrics["sop_loss"][1] == metrics["sop_accuracy"][1] == 8
    assert case.spec.coefficients == {"mlm_loss": 1.0, "sop_loss": 1.0}
    del rows["is_swapped"]
    with pytest.raises(ValueError, match="rows lack is_swapped"):
        bert.corrupt(jax.random.key(0), rows, VOCAB, case.spec)


def test_pairs_cost_one_state(make_case):
    case = make_case("bert")
    plain = dataclasses.replace(case.spec, sentence_task="none")

    def count(spec):
        model = spec.make_network(case.model_spec, VOCAB)
        return model.count_flops(spec.lengths, spec.predictions.most)

    assert count(case.spec) - count(plain) == 3 * 2 * 32 * (32 + 2)
    assert count(plain) == count(mlm.Spec(R))


@pytest.mark.parametrize("num_types", [0, 1])
def test_a_model_without_two_types_is_refused(num_types, make_case, vocab):
    case = make_case("bert")
    poor = dataclasses.replace(case.model_spec, num_types=num_types)
    with pytest.raises(UserError, match=f"model.num_types={num_types}: .*at least 2"):
        case.spec.make_network(poor, vocab)


def test_fresh_pairs_are_a_coins_throw(make_case):
    case, rows = case_and_pairs(make_case)
    total, weight = case.loss(case.corrupt(rows))[0]["nsp_loss"]
    assert total / weight == pytest.approx(math.log(2), rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("masking", ["words", "spans"])
def test_the_cap_holds_for_words_and_spans(masking, vocab):
    # Words of three tokens each, of which at 40 % two would fit, and four tokens more.
    starts = tuple(i % 3 == 1 for i in range(vocab.size))
    vocab = dataclasses.replace(vocab, word_starts=starts)
    settings = {"sentence_task": "none", "mask_rate": 0.4, "masking": masking}
    spec = bert.Spec(24, max_predictions=4, **settings)
    tokens = jnp.tile(jnp.arange(7, 31), (50, 1))
    batch = bert.corrupt(
        jax.random.key(0), {"tokens": tokens, "index": jnp.arange(50)}, vocab, spec
    )
    hidden = batch["weights"]["mlm_loss"].sum(1)
    assert batch["masked_positions"].shape[1] == 4
    assert (hidden == (3 if masking == "words" else 4)).all()
    changed = (batch["inputs"] != tokens).sum(1)
    assert (changed <= hidden).all() and changed.max() > 0
