"""Span corruption: T5's lengths, and a row rebuilt from its input and target."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpt.errors import UserError
from jaxpt.objectives import span_corruption
from jaxpt.ops import noise
from jaxpt.ops.masks import materialise
from jaxpt.text.tokens.vocab import Vocab

VOCAB = Vocab(size=60, pad=0, eos=1, sentinels=tuple(range(59, 47, -1)))
SENTINELS = list(VOCAB.sentinels)


def test_lengths_are_t5s():
    spec = span_corruption.Spec.for_seq_len(512)
    assert spec.row_length == 568
    lengths = spec.lengths
    assert lengths == {"encoder": 512, "decoder": 114}
    half = span_corruption.Spec.for_seq_len(512, noise_density=0.5)
    assert half.row_length == 766
    assert half.lengths == {"encoder": 512, "decoder": 512}


def test_a_gap_is_one_sentinel_and_its_answer_ends_before_the_next():
    spec = span_corruption.Spec.for_seq_len(24, noise_density=0.5, mean_span_length=2)
    form = spec.text_form(VOCAB)
    assert spec.needs.num_sentinels > 2
    assert form.gap == form.mark == (SENTINELS[0],)
    assert form.gap_ends == (VOCAB.eos, SENTINELS[1])


@functools.cache
def corrupt(spec):
    return jax.jit(lambda rng, rows: span_corruption.corrupt(rng, rows, VOCAB, spec))


SPECS = [
    span_corruption.Spec.for_seq_len(24),
    span_corruption.Spec.for_seq_len(24, noise_density=0.5, mean_span_length=2.0),
    span_corruption.Spec.for_seq_len(24, noise_density=0.3, mean_span_length=1.0),
]


@given(st.sampled_from(SPECS), st.integers(0, 2**31 - 1))
@settings(max_examples=30, deadline=None)
def test_rows_are_rebuilt_from_their_halves(spec, seed):
    draw = np.random.default_rng(seed)
    tokens = draw.integers(2, 48, (4, spec.row_length)).astype(np.int32)
    rows = {"tokens": tokens, "index": np.arange(4)}
    batch = corrupt(spec)(jax.random.key(seed), rows)
    batch = jax.tree.map(np.asarray, batch)
    lengths = spec.lengths
    assert batch["inputs"].shape == (4, lengths["encoder"])
    assert batch["targets"].shape == (4, lengths["decoder"])
    assert (batch["weights"]["loss"] == 1).all()
    assert (batch["dec_inputs"][:, 0] == VOCAB.pad).all()
    np.testing.assert_array_equal(batch["dec_inputs"][:, 1:], batch["targets"][:, :-1])
    for inputs, targets, row in zip(batch["inputs"], batch["targets"], tokens):
        assert inputs[-1] == targets[-1] == VOCAB.eos
        inputs, targets = inputs[:-1].tolist(), targets[:-1].tolist()
        used = [token for token in inputs if token in SENTINELS]
        assert used == [token for token in targets if token in SENTINELS]
        assert used == SENTINELS[: len(used)]  # descending, none twice, none left out
        assert inputs[0] not in SENTINELS and inputs[-1] in SENTINELS
        assert targets[0] == SENTINELS[0] and targets[-1] not in SENTINELS
        spans, span = {}, None
        for token in targets:
            if token in SENTINELS:
                span = spans.setdefault(token, [])
            else:
                span.append(token)
        assert all(spans.values())  # no empty span
        rebuilt = [t for token in inputs for t in spans.get(token, [token])]
        assert rebuilt == row.tolist()


def test_the_loss_is_read_at_every_target(make_case, make_rows):
    case = make_case("span_corruption")
    batch = case.corrupt(make_rows(case, 2))
    masks, ids = span_corruption.masks(batch), (batch["inputs"], batch["dec_inputs"])
    terms, _ = case.loss(batch)
    variables = {"params": case.params}

    @jax.jit
    def logits_of(inputs, dec_inputs):
        args = inputs, masks, dec_inputs
        return case.model.apply(variables, *args, deterministic=True)

    logits = logits_of(*ids)
    log_p = jax.nn.log_softmax(logits)
    picked = jnp.take_along_axis(log_p, batch["targets"][..., None], -1)
    np.testing.assert_allclose(terms["loss"][0], -picked.sum(), rtol=1e-5)
    assert terms["loss"][1] == batch["targets"].size


def test_the_decoder_sees_its_past_and_all_of_the_encoder(make_case, make_rows):
    case = make_case("span_corruption")
    batch = case.corrupt(make_rows(case, 2))

    @jax.jit
    def logits_of(inputs, dec_inputs):
        masks = span_corruption.masks(batch)
        variables = {"params": case.params}
        return case.model.apply(
            variables, inputs, masks, dec_inputs, deterministic=True
        )

    inputs, dec_inputs = batch["inputs"], batch["dec_inputs"]
    before = logits_of(inputs, dec_inputs)
    later = logits_of(inputs, dec_inputs.at[:, 4:].set(8))
    np.testing.assert_array_equal(before[:, :4], later[:, :4])
    assert (before[:, 4:] != later[:, 4:]).any()
    for place in (0, -1):
        changed = logits_of(inputs.at[:, place].set(9), dec_inputs)
        assert (before[:, 0] != changed[:, 0]).any()


PACKED = [
    span_corruption.Spec(24, max_documents=4),
    span_corruption.Spec(24, 0.5, 2.0, max_documents=4),
    span_corruption.Spec(24, 0.4, 1.0, max_documents=4),
]


def pack(documents, length=24):
    """A row of tokens and of segment ids."""
    ids = [number for number, tokens in enumerate(documents, 1) for _ in tokens]
    tokens = [token for tokens in documents for token in tokens]
    pad = [VOCAB.pad] * (length - len(tokens))
    return np.array(tokens + pad, np.int32), np.array(ids + pad, np.int32)


def corrupt_documents(spec, rows, seed=0):
    """Each document's (inputs, decoder inputs, targets), row by row, as lists."""
    tokens, ids = map(np.stack, zip(*(pack(row, spec.row_length) for row in rows)))
    rows_of = {"tokens": tokens, "segment_ids": ids, "index": np.arange(len(rows))}
    batch = corrupt(spec)(jax.random.key(seed), rows_of)
    batch = jax.tree.map(np.asarray, batch)
    lengths = spec.lengths
    assert batch["inputs"].shape[1] == lengths["encoder"]
    assert batch["targets"].shape[1] == lengths["decoder"]
    inside = batch["dec_segment_ids"] > 0
    np.testing.assert_array_equal(batch["weights"]["loss"], inside.astype(np.float32))
    for key, kind in (("inputs", "segment_ids"), ("targets", "dec_segment_ids")):
        is_padding = batch[kind] == 0
        assert (batch[key][is_padding] == VOCAB.pad).all()
        assert (np.diff(is_padding.astype(int)) >= 0).all()  # all behind the documents
        assert (np.diff(batch[kind]) * ~is_padding[:, 1:] >= 0).all()
    results = []
    for i, row in enumerate(rows):
        ids, dec_ids = batch["segment_ids"][i], batch["dec_segment_ids"][i]
        results += [
            [
                batch["inputs"][i][ids == number].tolist(),
                batch["dec_inputs"][i][dec_ids == number].tolist(),
                batch["targets"][i][dec_ids == number].tolist(),
            ]
            for number in range(1, len(row) + 1)
        ]
    return results


def check_document(spec, document, inputs, dec_inputs, targets):
    """T5's corruption of one text, closed by one [EOS] on each side."""
    text = document[:-1] if document[-1] == VOCAB.eos else document
    num_noise, num_spans = (
        int(table[len(text)]) for table in noise.span_tables(*spec.noise)
    )
    if len(text) < 2:
        assert inputs == [*text, VOCAB.eos] * bool(text)
        assert dec_inputs == targets == []
        return
    assert dec_inputs == [VOCAB.pad, *targets[:-1]]
    assert inputs.count(VOCAB.eos) == targets.count(VOCAB.eos) == 1
    assert inputs.pop() == targets.pop() == VOCAB.eos
    used = SENTINELS[:num_spans]
    assert [token for token in inputs if token in SENTINELS] == used
    assert [token for token in targets if token in SENTINELS] == used
    assert inputs[0] == text[0] and targets[0] == SENTINELS[0]
    assert len(targets) == num_noise + num_spans
    cuts = [targets.index(token) for token in used] + [len(targets)]
    spans = {targets[a]: targets[a + 1 : b] for a, b in zip(cuts, cuts[1:])}
    assert all(spans.values())
    rebuilt = [t for token in inputs for t in spans.get(token, [token])]
    assert rebuilt == text


@st.composite
def packed_rows(draw):
    """Rows of up to 4 documents in 24 tokens; each may end in [EOS], or be that."""
    rows = []
    for _ in range(4):
        row, room = [], 24
        for _ in range(draw(st.integers(0, 4))):
            size = draw(st.integers(1, max(room, 1)))
            if size > room:
                break
            room -= size
            tokens = [2 + (7 * room + i) % 46 for i in range(size)]
            row.append(tokens[:-1] + [VOCAB.eos] if draw(st.booleans()) else tokens)
        rows.append(row)
    return rows


@given(st.sampled_from(PACKED), packed_rows(), st.integers(0, 2**31 - 1))
@settings(max_examples=60, deadline=None)
def test_packed_documents_are_corrupted_each_by_itself(spec, rows, seed):
    result = corrupt_documents(spec, rows, seed)
    documents = [document for row in rows for document in row]
    for document, halves in zip(documents, result, strict=True):
        check_document(spec, document, *halves)


def test_a_packed_row_by_hand():
    # A noise span of one token in each document: clean first, noise last.
    spec = span_corruption.Spec(12, 0.15, 3.0, max_documents=5)
    eos, first = VOCAB.eos, SENTINELS[0]
    row = [[11, 12, 13, eos], [21, 22], [31, eos], [eos], [41]]
    assert corrupt_documents(spec, [row]) == [
        [[11, 12, first, eos], [VOCAB.pad, first, 13], [first, 13, eos]],
        [[21, first, eos], [VOCAB.pad, first, 22], [first, 22, eos]],
        [[31, eos], [], []],
        [[], [], []],
        [[41, eos], [], []],
    ]
    # Only an [EOS] at the end is the close: others separate joined texts.
    row = [[11, eos, eos, 13, eos], [21, eos, eos]]
    assert corrupt_documents(spec, [row]) == [
        [[11, eos, eos, first, eos], [VOCAB.pad, first, 13], [first, 13, eos]],
        [[21, first, eos], [VOCAB.pad, first, eos], [first, eos, eos]],
    ]


def compositions(total, num_parts):
    """All ways to cut at most `total` into at most `num_parts` lengths, in order."""
    yield ()
    if num_parts:
        for first in range(1, total + 1):
            for rest in compositions(total - first, num_parts - 1):
                yield (first, *rest)


@pytest.mark.slow_except("0.5-1.5")
@pytest.mark.parametrize("noise_density, mean_span", [(0.15, 3.0), (0.5, 1.5)])
def test_the_static_lengths_are_the_most_that_any_row_needs(noise_density, mean_span):
    spec = span_corruption.Spec(10, noise_density, mean_span, max_documents=3)
    rows, longest = [], np.zeros(2, int)
    for sizes in compositions(10, 3):
        for ends in itertools.product((False, True), repeat=len(sizes)):
            rows.append([[9] * (n - e) + [VOCAB.eos] * e for n, e in zip(sizes, ends)])
    result = iter(corrupt_documents(spec, rows))
    for row in rows:
        halves = [next(result) for _ in row]
        for document, half in zip(row, halves):
            # Nothing was cut off: each document can be rebuilt.
            check_document(spec, document, *map(list, half))
        lengths = [sum(len(half[i]) for half in halves) for i in (0, 2)]
        longest = np.maximum(longest, lengths)
    assert longest.tolist() == list(spec.lengths.values())


@given(
    st.integers(4, 100), st.floats(0.05, 0.45), st.floats(2.0, 8.0), st.integers(1, 40)
)
@settings(max_examples=40, deadline=None)
def test_packed_rows_fill_the_encoder_asked_for(seq_len, density, mean, num_documents):
    settings = {"noise_density": density, "mean_span_length": mean}
    packed = {"max_documents": num_documents}
    try:
        spec = span_corruption.Spec.for_seq_len(seq_len, **settings, **packed)
    except UserError as error:  # many documents in few places leave short rows
        assert "mean_span_length" in str(error) and (num_documents > 1 or seq_len < 9)
        return
    assert spec.max_documents == num_documents
    assert spec.lengths["encoder"] <= seq_len
    more = dataclasses.replace(spec, row_length=spec.row_length + 1)
    assert more.lengths["encoder"] > seq_len
    one_text = span_corruption.Spec.for_seq_len(seq_len, **settings)
    assert spec.row_length <= one_text.row_length
    if num_documents == 1:
        assert spec.row_length == one_text.row_length
        assert spec.lengths == one_text.lengths


def test_rows_of_one_text_are_corrupted_alike_whatever_others_hold():
    draw = np.random.default_rng(0)
    tokens = draw.integers(2, 48, (4, 24)).astype(np.int32)
    rows, key = {"tokens": tokens, "index": np.arange(4)}, jax.random.key(0)
    plain, packed = span_corruption.Spec(24), PACKED[0]
    expected, result = corrupt(plain)(key, rows), corrupt(packed)(key, rows)
    assert set(expected) == set(result) and "segment_ids" not in result
    jax.tree.map(np.testing.assert_array_equal, result, expected)


def test_the_decoder_of_a_packed_row_sees_its_past_and_its_own_encoder():
    rows = [[[9, 9, 9, VOCAB.eos], [9, 9, VOCAB.eos]]]
    tokens, ids = (array[None] for array in pack(rows[0], 24))
    rows = {"tokens": tokens, "segment_ids": ids, "index": np.arange(1)}
    batch = corrupt(PACKED[0])(jax.random.key(0), rows)
    inputs, targets = batch["segment_ids"][0], batch["dec_segment_ids"][0]
    assert inputs[:8].tolist() == [1, 1, 1, 1, 2, 2, 2, 0]
    assert targets[:7].tolist() == [1, 1, 1, 2, 2, 2, 0]
    for name, query, key in (
        ("self", inputs, inputs),
        ("dec_self", targets, targets),
        ("cross", targets, inputs),
    ):
        expected = (query[:, None] == key) & (query[:, None] > 0)
        if name == "dec_self":
            expected &= np.tri(len(query), dtype=bool)
        result = materialise(span_corruption.masks(batch)[name], len(query), len(key))
        np.testing.assert_array_equal(result[0, 0], expected)


def test_packed_rows_need_a_spec_for_them(make_case, make_rows):
    case = make_case("span_corruption")
    rows = make_rows(case, 1, lengths=[20])
    with pytest.raises(ValueError, match="segment_ids.*max_documents"):
        span_corruption.corrupt(jax.random.key(0), rows, VOCAB, case.spec)


def test_too_few_sentinels_are_refused(make_case):
    case = make_case("span_corruption")
    spec = span_corruption.Spec.for_seq_len(24, noise_density=0.3, mean_span_length=1.0)
    num_spans = span_corruption.noise.count_spans(*spec.noise)[1]
    enough = dataclasses.replace(VOCAB, sentinels=VOCAB.sentinels[:num_spans])
    spec.make_network(case.model_spec, enough)
    few = dataclasses.replace(VOCAB, sentinels=VOCAB.sentinels[: num_spans - 1])
    with pytest.raises(UserError, match=f"tokenizer.num_sentinels.*{num_spans - 1}"):
        spec.make_network(case.model_spec, few)


@pytest.mark.parametrize("seq_len", [1, 2])
def test_an_input_is_never_longer_than_asked_for(seq_len):
    try:
        spec = span_corruption.Spec.for_seq_len(seq_len)
    except UserError:
        return
    assert spec.lengths["encoder"] <= seq_len
