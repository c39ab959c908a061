"""UL2's mixture: its seven denoisers, exact counts, budgets, and texts rebuilt."""

import collections
import dataclasses
import functools
import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpt.config.plan import make_plan
from jaxpt.errors import UserError
from jaxpt.hub.export import write_tokenizer
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.objectives import ul2
from jaxpt.ops import edits, noise
from jaxpt.ops.masks import materialise
from jaxpt.text.tokens import tokenizer as tokenizers
from jaxpt.text.tokens.tokenizer import TokenizerSpec
from jaxpt.text.tokens.vocab import Vocab
from jaxpt.text_form import TextForm

VOCAB = Vocab(
    size=80, pad=0, eos=1, nlu=2, nlg=3, s2s=4, sentinels=tuple(range(79, 59, -1))
)
SENTINELS = list(VOCAB.sentinels)
MODES = {2: "nlu", 3: "nlg", 4: "s2s"}
T5 = Vocab(
    size=200, pad=0, eos=1, nlu=2, nlg=3, s2s=4, sentinels=tuple(range(100, 200))
)
PAIR = ModelSpec(vocab_size=200, num_layers=1, num_decoder_layers=1)


def test_the_denoisers_are_the_papers():
    """R (3, .15), (8, .15); S; X (3, .5), (8, .5), (64, .15), (64, .5), equal rates."""
    result = ul2.Spec(512).denoisers
    assert [(each.mode, each.mean_span, each.density) for each in result] == [
        ("nlu", 3, 0.15),
        ("nlu", 8, 0.15),
        ("s2s", 0, 0),
        ("nlg", 3, 0.5),
        ("nlg", 8, 0.5),
        ("nlg", 64, 0.15),
        ("nlg", 64, 0.5),
    ]
    assert [each.rate for each in result] == [1] * 7
    # The public Turkish task file's .4/.4/.2.
    result = ul2.Spec(512, rates=(0.4, 0.2, 0.4)).denoisers
    assert [each.rate for each in result] == [0.2] * 3 + [0.1] * 4
    assert [each.mode for each in ul2.Spec(9, rates=(0, 1, 0)).denoisers] == ["s2s"]


@pytest.mark.parametrize(
    "rates, mode, lead, mark",
    [
        ((2, 1, 4), VOCAB.nlu, VOCAB.s2s, ()),
        ((0, 1, 1), VOCAB.s2s, VOCAB.s2s, ()),
        ((0, 0, 1), VOCAB.nlg, VOCAB.nlg, (SENTINELS[0],)),
    ],
)
def test_only_s_continues_a_text_without_a_mark(rates, mode, lead, mark):
    form = ul2.Spec(64, rates=rates).text_form(VOCAB)
    assert (form.mode, form.lead, form.mark) == ((mode,), (lead,), mark)


@pytest.mark.parametrize(
    "mean, density, raw, lengths",
    [
        (3, 0.15, 568, (512, 114)),
        (8, 0.15, 588, (512, 100)),
        (3, 0.5, 766, (512, 512)),
        (8, 0.5, 908, (512, 512)),
        (64, 0.15, 600, (512, 92)),
        (64, 0.5, 1006, (512, 512)),
    ],
)
def test_lengths_are_those_of_t5s_helper(mean, density, raw, lengths):
    """`random_spans_helper` for 512 inputs; ours has a mode token more."""
    one = {"r_densities": (density,), "r_mean_spans": (mean,), "rates": (1, 0, 0)}
    spec = ul2.Spec(raw, **one, random_roll=False, is_seq2seq=True)
    result = spec.lengths
    assert result["encoder"] == noise.corrupted_lengths(raw, density, mean)[0] + 1
    assert result["encoder"] <= lengths[0] + 1 and result["decoder"] <= lengths[1]
    assert result["decoder"] == noise.corrupted_lengths(raw, density, mean)[1]
    rolled = dataclasses.replace(spec, random_roll=True).lengths
    assert rolled == {name: length + 1 for name, length in result.items()}


def test_one_input_token_is_reserved_for_the_mode():
    spec = ul2.Spec.for_seq_len(512, is_seq2seq=True)
    # Of S the prefix may be all but one token; [S2S] and [EOS] surround it.
    assert spec.row_length == 511
    assert spec.lengths == {"encoder": 512, "decoder": 511}
    for seq_len in (8, 24, 77):
        for settings_ in ({}, {"is_seq2seq": True}, {"max_documents": 3}):
            spec = ul2.Spec.for_seq_len(seq_len, **settings_)
            assert next(iter(spec.lengths.values())) <= seq_len
            more = dataclasses.replace(spec, row_length=spec.row_length + 1)
            assert next(iter(more.lengths.values())) > seq_len


def test_more_sentinels_than_t5_has_are_refused():
    """(3, .5) fills 512 inputs with 128 sentinels: T5's 100 ran into real ids."""
    spec = ul2.Spec(766, random_roll=False, is_seq2seq=True)
    assert spec.max_spans == 128
    with pytest.raises(
        UserError, match="^tokenizer.num_sentinels=100: .* least 128 for"
    ):
        spec.make_network(PAIR, T5)
    # What is never drawn needs none, and so do shorter spans of fewer tokens.
    dataclasses.replace(spec, rates=(2, 1, 0)).make_network(PAIR, T5)
    longer = dataclasses.replace(spec, x_mean_spans=(4.0, 8.0, 64.0, 64.0))
    assert longer.max_spans == 96
    longer.make_network(PAIR, T5)


@functools.cache
def corrupt(spec):
    return jax.jit(lambda rng, rows: ul2.corrupt(rng, rows, VOCAB, spec))


@functools.cache
def hide(spec):
    """(rngs [B], texts [R], kind) -> hidden [B, R], every document of that kind."""

    def run(rngs, texts, kind):
        kinds = jnp.full(texts.shape, kind)
        return jax.vmap(lambda rng: ul2.noise_documents(rng, texts, kinds, spec))(rngs)

    return jax.jit(run)


@pytest.mark.slow
def test_one_long_span_is_the_suffix_unless_rolled():
    """(64, .15) of 512 tokens: 77 hidden, in T5's order always the last 77."""
    texts, rngs = jnp.ones(512, int), jax.random.split(jax.random.key(0), 200)
    one = {"x_densities": (0.15,), "x_mean_spans": (64.0,), "rates": (0, 0, 1)}
    hidden = np.asarray(hide(ul2.Spec(512, **one, random_roll=False))(rngs, texts, 0))
    assert (hidden.sum(1) == 77).all()
    assert hidden[:, -77:].all() and not hidden[:, :-77].any()
    rolled = np.asarray(hide(ul2.Spec(512, **one))(rngs, texts, 0))
    assert (rolled.sum(1) == 77).all()
    # Every place is hidden in 15 % of 200 draws, 30: within 4.5 standard deviations.
    assert (abs(rolled.sum(0) - 30) < 23).all()
    starts = rolled & ~np.roll(rolled, 1, axis=1)
    assert (starts.sum(1) == 1).all()  # one span, if the row is closed to a ring


@pytest.mark.slow_except("True")
@pytest.mark.parametrize("is_rolled", [False, True])
def test_counts_are_t5s_for_every_denoiser(is_rolled):
    spec = ul2.Spec(60, random_roll=is_rolled)
    texts = jnp.array([1] * 37 + [2] * 20 + [0] * 3)
    rngs = jax.random.split(jax.random.key(1), 20)
    for kind, each in enumerate(spec.denoisers):
        hidden = np.asarray(hide(spec)(rngs, texts, kind))
        assert not hidden[:, 57:].any()
        for part, size in ((hidden[:, :37], 37), (hidden[:, 37:57], 20)):
            if each.mode == "s2s":
                assert (np.diff(part.astype(int), axis=1) >= 0).all()
                assert not part[:, 0].any() and part[:, -1].all()
                continue
            num_noise, num_spans = noise.count_spans(size, each.density, each.mean_span)
            assert (part.sum(1) == num_noise).all()
            starts = (part & ~np.roll(part, 1, axis=1)).sum(1)
            assert (starts == num_spans).all()


def test_every_document_draws_its_own_denoiser_by_the_rates():
    spec = ul2.Spec(12, rates=(0.4, 0.2, 0.4), max_documents=3)
    texts = jnp.array([1] * 4 + [2] * 4 + [3] * 4)
    num = 3000
    draw = jax.jit(jax.vmap(lambda rng: ul2.sample_kinds(rng, texts, spec)))
    drawn = np.asarray(draw(jax.random.split(jax.random.key(0), num)))
    assert (drawn.reshape(num, 3, 4) == drawn[:, ::4, None]).all()
    rates = [each.rate for each in spec.denoisers]
    for document in (0, 4, 8):
        shares = np.bincount(drawn[:, document], minlength=7) / num
        for share, rate in zip(shares, rates, strict=True):
            assert abs(share - rate) < 4.5 * (rate * (1 - rate) / num) ** 0.5
    assert abs(np.corrcoef(drawn[:, 0], drawn[:, 4])[0, 1]) < 0.08


def test_targets_of_spans_that_begin_a_text():
    """T5's `random_roll` puts the first run before any sentinel, then one too late."""
    tokens, ids = jnp.arange(10, 16), jnp.array([1, 1, 1, 1, 1, 1])
    sentinels = jnp.array([99, 98, 97])
    for hidden, expected in (
        ([0, 1, 0, 0, 1, 1], [99, 11, 98, 14, 15, 1, 0, 0]),
        ([1, 1, 0, 0, 1, 0], [99, 10, 11, 98, 14, 1, 0, 0]),
        ([1, 0, 1, 0, 1, 1], [99, 10, 98, 12, 97, 14, 15, 1]),
        ([0, 0, 1, 1, 0, 0], [99, 12, 13, 1, 0, 0, 0, 0]),
    ):
        hidden = jnp.array(hidden) > 0
        marked, keep, opening = edits.mark_targets(tokens, hidden, ids, sentinels)
        result, _ = edits.lay_out(marked, keep, ids, 8, 1, 0, opening)
        assert result.tolist() == expected


@given(st.lists(st.booleans(), min_size=24, max_size=24), st.integers(1, 23))
@settings(max_examples=30, deadline=None)
def test_targets_are_t5s_where_a_text_begins_clean(hidden, cut):
    """As `nonnoise_span_to_unique_sentinel` of texts that end hidden."""
    hidden = np.array(hidden)
    hidden[[0, cut]], hidden[[cut - 1, 23]] = False, True
    if cut in (1, 23):
        return
    tokens, ids = jnp.arange(24), jnp.array([1] * cut + [2] * (24 - cut))
    sentinels, hidden = jnp.arange(100, 120), jnp.array(hidden)
    marked, keep, opening = edits.mark_targets(tokens, hidden, ids, sentinels)
    result = edits.lay_out(marked, keep, ids, 28, 99, 0, opening)
    expected = edits.spans_to_sentinels_packed(tokens, ~hidden, ids, sentinels, 28, 99)
    for a, b in zip(result, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    assert (opening == -1).all()


@st.composite
def packed_rows(draw):
    """Rows of up to 4 documents in 40 tokens; each may end in [EOS], or be that."""
    rows = []
    for _ in range(4):
        row, room = [], 40
        for _ in range(draw(st.integers(0, 4))):
            size = draw(st.integers(1, max(room, 1)))
            if size > room:
                break
            room -= size
            tokens = [5 + (7 * room + i) % 55 for i in range(size)]
            row.append(tokens[:-1] + [VOCAB.eos] if draw(st.booleans()) else tokens)
        rows.append(row)
    return rows


def read(spec, rows, seed):
    """Each document's (input, target) as lists, and the batch."""
    tokens = np.zeros((len(rows), spec.row_length), np.int32)
    ids = np.zeros_like(tokens)
    for i, row in enumerate(rows):
        flat = [(t, n) for n, document in enumerate(row, 1) for t in document]
        tokens[i, : len(flat)] = [t for t, _ in flat]
        ids[i, : len(flat)] = [n for _, n in flat]
    rows_of = {"tokens": tokens, "segment_ids": ids, "index": np.arange(len(rows))}
    batch = jax.tree.map(np.asarray, corrupt(spec)(jax.random.key(seed), rows_of))
    results = []
    for i, row in enumerate(rows):
        for number in range(1, len(row) + 1):
            own = batch["segment_ids"][i] == number
            if spec.is_seq2seq:
                reference = batch["dec_segment_ids"][i] == number
                halves = batch["inputs"][i][own], batch["targets"][i][reference]
                dec_inputs = batch["dec_inputs"][i][reference].tolist()
                assert dec_inputs == ([0, *halves[1][:-1]] if reference.any() else [])
            else:
                stream, is_target = (
                    batch["targets"][i][own],
                    batch["weights"]["loss"][i],
                )
                is_target = is_target[own] > 0
                assert (np.diff(is_target.astype(int)) >= 0).all()
                halves = stream[~is_target], stream[is_target]
                inputs = batch["inputs"][i][own].tolist()
                assert inputs == ([0, *stream[:-1]] if own.any() else [])
                free = len(halves[0]) + bool(own.any())
                is_prefix = batch["is_prefix"][i][own].astype(int).tolist()
                assert is_prefix == [1] * free + [0] * (len(is_prefix) - free)
            results.append([half.tolist() for half in halves])
    return results, batch


def check(spec, document, source, target):
    """Mode, counts, order of sentinels, and the text rebuilt from both halves."""
    text = document[:-1] if document[-1] == VOCAB.eos else document
    if len(text) < 2:
        assert source == target == []
        return None
    mode = MODES[source.pop(0)]
    assert target.pop() == VOCAB.eos
    if spec.is_seq2seq:
        assert source.pop() == VOCAB.eos
    if mode == "s2s":
        assert source and target and source + target == text
        return mode
    runs = [token for token in source if token in SENTINELS]
    assert runs == [token for token in target if token in SENTINELS]
    assert runs == SENTINELS[: len(runs)] and target[0] == SENTINELS[0]
    cuts = [target.index(token) for token in runs] + [len(target)]
    spans = {target[a]: target[a + 1 : b] for a, b in itertools.pairwise(cuts)}
    assert all(spans.values())
    assert [t for token in source for t in spans.get(token, [token])] == text
    num_hidden = len(target) - len(runs)
    allowed = set()
    for each in spec.denoisers:
        num_noise, num_spans = (int(table[-1]) for table in each.count(len(text)))
        if each.mode == mode:
            allowed |= {(num_noise, num_spans), (num_noise, num_spans + 1)}
    assert (num_hidden, len(runs)) in allowed
    return mode


SPECS = [
    ul2.Spec(40, max_documents=4, is_seq2seq=True),
    ul2.Spec(40, max_documents=4),
    ul2.Spec(40, rates=(1, 0, 3), random_roll=False, max_documents=4, is_seq2seq=True),
]


@pytest.mark.slow
@given(st.sampled_from(SPECS), packed_rows(), st.integers(0, 2**31 - 1))
@settings(max_examples=60, deadline=None)
def test_texts_are_rebuilt_from_both_halves(spec, rows, seed):
    result, batch = read(spec, rows, seed)
    documents = [document for row in rows for document in row]
    for document, halves in zip(documents, result, strict=True):
        check(spec, document, *halves)
    ids = batch.get("dec_segment_ids", batch["segment_ids"])
    assert not batch["weights"]["loss"][ids == 0].any()
    assert not batch["targets"][ids == 0].any()  # [PAD]
    if spec.is_seq2seq:
        np.testing.assert_array_equal(batch["weights"]["loss"], ids > 0)


@pytest.mark.slow_except("True")
@pytest.mark.parametrize("is_seq2seq", [False, True])
def test_the_static_lengths_hold_every_row_and_some_fill_them(is_seq2seq):
    spec = ul2.Spec(20, max_documents=2, is_seq2seq=is_seq2seq)
    lengths = list(spec.lengths.values())
    rows = [[list(range(5, 5 + n)), list(range(30, 50 - n))] for n in range(2, 19)]
    # The decoder's most is of S with a prefix of 1 in 17 tokens, and X of 2 in 3.
    rows = rows * 30 + rows[15:16] * 3000
    result, batch = read(spec, rows, 0)
    modes = collections.Counter()
    for document, halves in zip([d for row in rows for d in row], result, strict=True):
        modes[check(spec, document, *map(list, halves))] += 1
    assert set(modes) == {"nlu", "nlg", "s2s"}
    assert batch["inputs"].shape[1] == lengths[0]
    assert (batch["segment_ids"] > 0).sum(1).max() == lengths[0]
    if is_seq2seq:
        assert batch["targets"].shape[1] == lengths[1]
        assert (batch["dec_segment_ids"] > 0).sum(1).max() == lengths[1]


def test_one_stack_sees_the_input_freely_and_its_target_causally():
    _, batch = read(SPECS[1], [[list(range(5, 20)), list(range(30, 40))]], 3)
    mask = ul2.masks(jax.tree.map(jnp.asarray, batch))["self"]
    length = batch["inputs"].shape[1]
    seen = np.asarray(materialise(mask, length, length))[0, 0]
    ids, is_prefix = batch["segment_ids"][0], batch["is_prefix"][0]
    own = (ids[:, None] == ids) & (ids > 0)[:, None]
    np.testing.assert_array_equal(seen, own & (np.tri(length) > 0) | own & is_prefix)
    # Inputs are one later than targets: a prediction depends on no later input.
    for place in np.flatnonzero(batch["weights"]["loss"][0]):
        assert not seen[place, place + 1 :].any()


def test_the_model_says_which_kind_it_is():
    config = {
        "objective": "ul2",
        "data": {"row_length": 16, "rows": "packed", "max_documents": 3},
        "model": {"num_decoder_layers": 1},
        "ul2": {"rates": [1, 1, 1]},
    }
    spec = make_plan(config).spec
    assert spec == ul2.Spec(16, rates=(1, 1, 1), max_documents=3, is_seq2seq=True)


def test_packed_rows_need_a_spec_for_them(make_case, make_rows, vocab):
    case = make_case("ul2")
    rows = make_rows(case, 1, lengths=[16])
    with pytest.raises(ValueError, match="segment_ids.*max_documents"):
        ul2.corrupt(jax.random.key(0), rows, vocab, case.spec)


@pytest.mark.parametrize("kind", ["char", "byte", "bpe"])
def test_modes_are_specials_of_every_tokenizer(kind, tmp_path):
    """By name, so that a prompt can say `[S2S]`, and no text ever does."""
    specials = ("pad", "unk", "eos", "nlu", "nlg", "s2s")
    spec = TokenizerSpec(kind, vocab_size=300, specials=specials, num_sentinels=4)
    tokenizer = tokenizers.make_tokenizer(spec, ["a text [S2S] of words " * 20])
    vocab = tokenizer.vocab
    assert len({vocab.nlu, vocab.nlg, vocab.s2s, *vocab.sentinels}) == 7
    assert tokenizer.encode_prompt("[S2S]a")[0] == vocab.s2s
    assert vocab.s2s not in tokenizer.encode("[S2S]a")
    assert not set(vocab.ordinary_ids.tolist()) & {vocab.nlu, vocab.nlg, vocab.s2s}
    tokenizers.save(tokenizer, tmp_path / "tokenizer.json")
    assert tokenizers.load(tmp_path / "tokenizer.json").vocab == vocab
    write_tokenizer(tokenizer, tmp_path, ModelSpec(max_len=64), TextForm())
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    added = {token["content"] for token in config["additional_special_tokens"]}
    assert {"[NLU]", "[NLG]", "[S2S]"} < added
    assert not {"nlu_token", "s2s_token"} & set(config)
