"""BART: what each kind of noise does to a row, alone and together."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpt.objectives import bart
from jaxpt.ops.masks import materialise
from jaxpt.text.tokens.vocab import Vocab

R, MASK, EOS, BOS = 24, 4, 6, 5
VOCAB = Vocab(size=200, pad=0, unk=1, cls=2, sep=3, mask=MASK, bos=BOS, eos=EOS)
NONE = dict.fromkeys(("permute_sentences", "infill_rate"), 0.0)
ALONE = {
    "mask": {"mask_rate": 0.2},
    "delete": {"delete_rate": 0.3},
    "infill": {"infill_rate": 0.3},
    "insert": {"insert_rate": 0.2},
    "infill and insert": {"infill_rate": 0.3, "insert_rate": 0.1},
    "permute": {"permute_sentences": 1.0},
    "rotate": {"rotate": 1.0},
}
SPECS = {name: bart.Spec(R, **NONE | values) for name, values in ALONE.items()}
ALL = bart.Spec(R, 1.0, 0.2, 3.0, 0.1, 0.1, 0.1, 0.5)
SPECS["all"], SPECS["paper"] = ALL, bart.Spec(R)


@jax.jit
def corrupt_all(rng, rows):
    """By every spec, in one program."""
    return {name: bart.corrupt(rng, rows, VOCAB, spec) for name, spec in SPECS.items()}


def make_rows(seed, is_packed=False):
    """64 rows of distinct tokens behind [BOS], sentences of 1 to 5, [EOS] at the end.

    The same number, so that the corruptions are compiled once for each form of rows.
    """
    draw, num_rows = np.random.default_rng(seed), 64
    tokens = np.array([draw.permutation(np.arange(7, 7 + R)) for _ in range(num_rows)])
    rows = {"tokens": tokens.astype(np.int32), "index": np.arange(num_rows)}
    rows["sentence_ids"] = 1 + np.cumsum(draw.random((num_rows, R)) < 0.4, 1)
    rows["sentence_ids"] = rows["sentence_ids"].astype(np.int32)
    places, ends = np.arange(R), draw.integers(2, R + 1, num_rows)
    if is_packed:
        middles = draw.integers(1, ends)
        real = places < ends[:, None]
        second = places >= middles[:, None]
        rows["segment_ids"] = (real * (1 + second)).astype(np.int32)
        rows["tokens"][np.arange(num_rows), middles - 1] = EOS
        rows["tokens"][np.arange(num_rows), ends - 1] = EOS
        rows["tokens"] *= real
    else:
        rows["tokens"][:, 0], rows["tokens"][:, -1] = BOS, EOS
    return rows


def texts_of(tokens, segments):
    """The places of each text: between special tokens, in one document."""
    result, before = [], None
    for place, (token, segment) in enumerate(zip(tokens, segments, strict=True)):
        if segment == 0 or token < 7:
            before = None
            continue
        if before != segment:
            result.append([])
        result[-1].append(place)
        before = segment
    return result


def read_texts(batch, i):
    """The inputs' texts, [MASK]s among them, and all other tokens in order."""
    row, ids = np.asarray(batch["inputs"][i]), np.asarray(batch["segment_ids"][i])
    is_text = ((row > 6) | (row == MASK)) & (ids > 0)
    fixed = row[~is_text & (ids > 0)].tolist()
    results = []
    for place in np.flatnonzero(is_text):
        fresh = not place or not is_text[place - 1] or ids[place] != ids[place - 1]
        results += [[]] if fresh else []
        results[-1].append(int(row[place]))
    return results, fixed


def budget(rate, num):
    return math.ceil(round(rate * num, 9))


@pytest.mark.slow
@given(st.integers(0, 2**31 - 1), st.booleans())
@settings(max_examples=12, deadline=None)
def test_each_kind_of_noise_is_exact_in_each_text(seed, is_packed):
    rows = make_rows(seed, is_packed=is_packed)
    tokens = rows["tokens"]
    segments = rows.get("segment_ids", np.ones_like(tokens))
    for name, batch in corrupt_all(jax.random.key(seed), rows).items():
        np.testing.assert_array_equal(batch["targets"], tokens)
        np.testing.assert_array_equal(batch["weights"]["loss"], segments > 0)
        for i in range(4):
            texts = [
                tokens[i][own].tolist() for own in texts_of(tokens[i], segments[i])
            ]
            result, fixed = read_texts(batch, i)
            # Special tokens are all there, in order; padding is behind them.
            assert fixed == tokens[i][(tokens[i] < 7) & (segments[i] > 0)].tolist()
            ids = np.asarray(batch["segment_ids"][i])
            assert (np.asarray(batch["inputs"][i])[ids == 0] == VOCAB.pad).all()
            assert (ids[np.flatnonzero(ids)] >= 1).all() and len(result) <= len(texts)
            if name in ("paper", "all", "delete", "insert"):
                kept = {x for text in result for x in text} - {MASK}
                assert kept <= {x for text in texts for x in text}
            if len(result) < len(texts) or name == "paper":
                continue  # a text of one token may be gone
            for text, noised in zip(texts, result, strict=True):
                check(name, text, noised, rows, i)


def check(name, text, noised, rows, i):
    """One text and what became of it."""
    num, masks = len(text), noised.count(MASK)
    kept = [x for x in noised if x != MASK]
    if name == "mask":  # fairseq's test: what is not masked is equal
        assert len(noised) == num and masks == budget(0.2, num)
        assert all(a in (b, MASK) for a, b in zip(noised, text, strict=True))
    if name == "delete":
        assert masks == 0 and len(kept) == num - budget(0.3, num)
        assert kept == [x for x in text if x in kept]
    if name == "infill":
        assert len(kept) == num - budget(0.3, num)
        assert kept == [x for x in text if x in kept]
    if name == "insert":
        assert kept == text
    if name == "all":  # nothing is hidden twice
        gone = budget(0.2, num) + 2 * budget(0.1, num)
        assert len(kept) == max(num - gone, 0)
    if name in ("permute", "rotate"):
        assert sorted(noised) == sorted(text)
    if name == "rotate":
        offset = noised.index(text[0])
        assert (offset > 0) == (num > 1) and noised == text[-offset:] + text[:-offset]
    if name == "permute":
        ids = dict(zip(rows["tokens"][i], rows["sentence_ids"][i], strict=True))
        order = [int(ids[x]) for x in noised]
        runs = [a for a, b in zip(order, [None, *order], strict=False) if a != b]
        assert len(runs) == len(set(runs))  # no sentence is torn
        for sentence in runs:
            own = [x for x in text if ids[x] == sentence]
            assert own == [x for x in noised if ids[x] == sentence]


@pytest.mark.slow
def test_a_whole_row_has_its_budget_of_insertions():
    rows = make_rows(0)
    batch = corrupt_all(jax.random.key(0), rows)["insert"]
    assert batch["inputs"].shape == (64, R + 5)
    # 22 tokens between [BOS] and [EOS], .2 of them rounded up.
    assert ((batch["inputs"] == MASK).sum(1) == 5).all()
    assert SPECS["insert"].lengths == {"encoder": R + 5, "decoder": R}
    assert bart.Spec.for_seq_len(29, **NONE | {"insert_rate": 0.2}).row_length == 24


@pytest.mark.slow
def test_insertions_come_on_top_of_lengths_of_zero():
    batches = corrupt_all(jax.random.key(2), make_rows(6))
    masks = {name: (b["inputs"] == MASK).sum(1) for name, b in batches.items()}
    # .1 of 22 tokens, rounded up; the spans are the same.
    assert (masks["infill and insert"] - masks["infill"] == 3).all()
    assert len(np.unique(masks["infill"])) > 2


def test_the_recipe_of_the_paper():
    """30 % of the tokens in spans of Poisson's 3, all sentences permuted, no more."""
    spec = bart.Spec.for_seq_len(512)
    assert (spec.infill_rate, spec.poisson_mean, spec.permute_sentences) == (0.3, 3, 1)
    others = spec.mask_rate, spec.delete_rate, spec.insert_rate, spec.rotate
    assert others == (0, 0, 0, 0) and spec.row_length == 512
    assert spec.lengths == {"encoder": 512, "decoder": 512}


def test_no_insertion_is_lost_at_the_papers_rates():
    """Rows of 64 tokens: what lengths of 0 insert always fits, see `lengths`."""
    spec = bart.Spec(64, **NONE | {"infill_rate": 0.3})
    rows = {"tokens": np.full((3000, 64), 9, np.int32), "index": np.arange(3000)}
    batch = jax.jit(lambda r, x: bart.corrupt(r, x, VOCAB, spec))(
        jax.random.key(0), rows
    )
    lengths = np.asarray((batch["segment_ids"] > 0).sum(1))
    assert ((batch["inputs"] == 9).sum(1) == 44).all()  # 20 of 64 are hidden
    assert lengths.max() < 64


def test_sentences_do_change_places():
    """The trap of fairseq's: with most vocabularies nothing moves at all."""
    batch = corrupt_all(jax.random.key(0), rows := make_rows(1))["permute"]
    moved = (np.asarray(batch["inputs"])[:, :R] != rows["tokens"]).any(1)
    assert moved.mean() > 0.95
    inputs = np.asarray(batch["inputs"])
    assert (inputs[:, 0] == BOS).all() and (inputs[:, -1] == EOS).all()


@pytest.mark.slow
def test_one_key_one_batch():
    """fairseq draws again for one index: torch's generator is not the seeded one."""
    rows = make_rows(3)
    first, again = (corrupt_all(jax.random.key(5), rows) for _ in range(2))
    other = corrupt_all(jax.random.key(6), rows)
    same = {key: value[:1].repeat(64, 0) for key, value in rows.items()}
    apart = corrupt_all(jax.random.key(5), same | {"index": rows["index"]})
    for name in ("paper", "all"):
        for key in first[name]:
            jax.tree.map(
                np.testing.assert_array_equal, first[name][key], again[name][key]
            )
        assert (first[name]["inputs"] != other[name]["inputs"]).any()
        assert len(np.unique(np.asarray(apart[name]["inputs"]), axis=0)) > 1


def test_a_budget_is_a_rows_own():
    """transformers' Flax script spends one budget over the whole batch."""
    rows = make_rows(4)
    inputs = np.asarray(corrupt_all(jax.random.key(1), rows)["infill"]["inputs"])
    assert ((inputs > 6).sum(1) == 22 - 7).all()  # of 22 tokens .3, rounded up


def test_rows_of_one_text_see_no_padding():
    batch = corrupt_all(jax.random.key(0), make_rows(2))["paper"]
    masks, real = bart.masks(batch), np.asarray(batch["segment_ids"] > 0)
    assert not real.all() and "dec_segment_ids" not in batch
    seen = np.asarray(materialise(masks["self"], R, R))[:, 0]
    assert (seen == real[:, None]).all()
    seen = np.asarray(materialise(masks["cross"], R, R))[:, 0]
    assert (seen == real[:, None]).all()
    assert (materialise(masks["dec_self"], R, R)[0, 0] == np.tri(R, dtype=bool)).all()


def test_the_decoder_reads_the_clean_text_one_later():
    rows = make_rows(5, is_packed=True)
    spec = bart.Spec(R, permute_sentences=0.0, infill_rate=0.0)
    batch = bart.corrupt(jax.random.key(0), rows, VOCAB, spec)
    for i, (tokens, ids) in enumerate(zip(rows["tokens"], rows["segment_ids"])):
        for document in (1, 2):
            own = tokens[ids == document].tolist()
            result = np.asarray(batch["dec_inputs"][i])[ids == document].tolist()
            assert result == [VOCAB.pad, *own][: len(own)]


def test_the_decoder_does_not_see_what_it_writes(make_case, make_rows):
    """What comes later changes nothing before it."""
    case = make_case("bart")
    batch = case.corrupt(make_rows(case, 2))

    @jax.jit
    def scores(dec_inputs):
        def run(model):
            masks = bart.masks(batch)
            source = model.encode(batch["inputs"], masks["self"], deterministic=True)
            return model.decode(
                dec_inputs,
                masks["dec_self"],
                source,
                masks["cross"],
                deterministic=True,
            )

        return case.model.apply({"params": case.params}, method=run)

    result = scores(batch["dec_inputs"])
    later = scores(batch["dec_inputs"].at[:, 9:].set(8))
    np.testing.assert_allclose(result[:, :9], later[:, :9], atol=1e-6)
    assert (jnp.abs(result - later)[:, 9:].max(-1) > 1e-4).all()


@pytest.mark.slow
def test_the_gradient_reaches_both_stacks(make_case, make_rows):
    case = make_case("bart")
    grads, _ = case.gradients(make_rows(case, 4))
    for name in ("embed", "encoder", "decoder"):
        sizes = [float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(grads[name])]
        assert min(sizes) >= 0 and max(sizes) > 0
    places = grads["decoder_embed"]["positions"]["table"][:20]
    assert float(jnp.abs(places).min()) > 0


def test_unknown_words_are_text_and_other_specials_are_not():
    tokens = np.array([[2, 9, 1, 9, 3, 1, 9, 9, 6]], np.int32)
    spec = bart.Spec(9, **NONE | {"mask_rate": 0.9})
    rows = {"tokens": tokens, "index": np.arange(1)}
    batch = jax.jit(lambda r, x: bart.corrupt(r, x, VOCAB, spec))(
        jax.random.key(0), rows
    )
    assert batch["inputs"].tolist() == [[2, 4, 4, 4, 3, 4, 4, 4, 6]]


def test_sentences_are_asked_for_by_name():
    needs = bart.Spec(9).needs
    assert needs.sentence_ids and needs.asked_by == "bart.permute_sentences=1.0"
    assert not SPECS["mask"].needs.sentence_ids
    rows = {"tokens": np.zeros((1, 9), np.int32), "index": np.arange(1)}
    with pytest.raises(ValueError, match="rows lack sentence_ids"):
        bart.corrupt(jax.random.key(0), rows, VOCAB, bart.Spec(9))
