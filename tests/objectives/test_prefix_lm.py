"""Prefix LM: SeqIO's vectors, T5's law of lengths, and generation from a prefix."""

import collections
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import slow

from jaxpt.config.plan import make_plan
from jaxpt.errors import UserError
from jaxpt.objectives import prefix_lm
from jaxpt.ops.masks import materialise
from jaxpt.ops.prefixes import prefix_lengths
from jaxpt.ops.segments import segment_lengths, segment_positions
from jaxpt.text.tokens.vocab import Vocab

# SeqIO's tests have 0 for padding and start, 1 for [EOS].
SEQIO = Vocab(size=12, pad=0, eos=1)


def split(tokens, lengths, ids=None):
    """The causal batch of one row, as lists."""
    ids = None if ids is None else jnp.array([ids])
    batch = prefix_lm.split_causal(
        jnp.array([tokens]), jnp.array([lengths]), ids, SEQIO
    )
    return batch, jax.tree.map(lambda x: x[0].astype(int).tolist(), batch)


def test_seqio_unpacked():
    """seqio feature_converters_test.py, test_prefix_lm_unpacked."""
    _, row = split([9, 4, 6, 1, 3, 9, 1, 0, 0], [4] * 9)
    assert row["targets"] == [9, 4, 6, 1, 3, 9, 1, 0, 0]
    assert row["inputs"] == [0, 9, 4, 6, 1, 3, 9, 1, 0]
    # One more than the prefix, for the inputs are one later than the targets.
    assert row["is_prefix"] == [1, 1, 1, 1, 1, 0, 0, 0, 0]
    # Ours has no padding without segment ids, which take its weight away.
    assert row["weights"]["loss"][:7] == [0, 0, 0, 0, 1, 1, 1]
    _, row = split([9, 4, 6, 1, 3, 9, 1, 0, 0], [4] * 7 + [0] * 2, [1] * 7 + [0] * 2)
    assert row["weights"]["loss"] == [0, 0, 0, 0, 1, 1, 1, 0, 0]
    assert row["is_prefix"] == [1, 1, 1, 1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize(
    "targets, sizes, inputs, weights, is_prefix",
    [
        slow(  # test_prefix_lm_packed
            [7, 8, 5, 1, 3, 9, 1, 8, 4, 9, 3, 1, 4, 1, 0],
            [(7, 4), (7, 5), (1, 0)],
            [0, 7, 8, 5, 1, 3, 9, 0, 8, 4, 9, 3, 1, 4, 0],
            [0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 0],
            [1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0],
        ),
        (  # test_prefix_lm_pack_long_sequences, its second row
            [8, 4, 1, 5, 1, 0, 0],
            [(5, 3), (2, 0)],
            [0, 8, 4, 1, 5, 0, 0],
            [0, 0, 0, 1, 1, 0, 0],
            [1, 1, 1, 1, 0, 0, 0],
        ),
    ],
)
def test_seqio_packed(targets, sizes, inputs, weights, is_prefix):
    numbers = [0 if not p else i for i, (_, p) in enumerate(sizes, 1)]
    ids = [i for i, (n, _) in zip(numbers, sizes) for _ in range(n)]
    lengths = [p for n, p in sizes for _ in range(n)]
    batch, row = split(targets, lengths, ids)
    assert row["inputs"] == inputs and row["targets"] == targets
    assert row["weights"]["loss"] == weights and row["is_prefix"] == is_prefix
    assert row["segment_ids"] == ids
    # decoder_positions restart with each document; those of padding do not matter.
    places = segment_positions(jnp.array(ids)).tolist()
    expected = [i for n, p in sizes if p for i in range(n)]
    assert places[: len(expected)] == expected
    seen = materialise(prefix_lm.masks(batch)["self"], len(ids), len(ids))[0, 0]
    for t in range(len(ids)):
        for s in range(len(ids)):
            is_own = ids[t] == ids[s] > 0
            assert seen[t, s] == (is_own and (s <= t or is_prefix[s] == 1))


def test_without_a_prefix_it_is_seqios_lm():
    """seqio feature_converters_test.py, test_lm_only_packed."""
    _, row = split([3, 9, 1, 4, 1, 0], [0] * 6, [1, 1, 1, 2, 2, 0])
    assert row["inputs"] == [0, 3, 9, 0, 4, 0]
    assert row["weights"]["loss"] == [1, 1, 1, 1, 1, 0]


def test_seqio_encoder_decoder_packed():
    """seqio feature_converters_test.py, test_encoder_decoder_packed; no padding inside.

    Its examples are [7, 8, 5, 1] -> [3, 9, 1] and [8, 4, 9, 3, 1] -> [4, 1].
    """
    # As texts: each half gets its own 1, which closes a document only at its end.
    tokens = jnp.array([[7, 8, 5, 3, 9, 1, 8, 4, 9, 3, 4, 1]])
    texts = prefix_lm.find_texts(tokens, jnp.array([[1] * 6 + [2] * 6]), SEQIO)
    assert texts.tolist() == [[1] * 5 + [0] + [2] * 5 + [0]]
    lengths = jnp.array([[3] * 5 + [0] + [4] * 5 + [0]])
    batch = prefix_lm.split_seq2seq(tokens, lengths, texts, SEQIO)
    row = jax.tree.map(lambda x: x[0].astype(int).tolist(), batch)
    assert row["inputs"] == [7, 8, 5, 1, 8, 4, 9, 3, 1, 0, 0, 0]
    assert row["segment_ids"] == [1, 1, 1, 1, 2, 2, 2, 2, 2, 0, 0, 0]
    assert row["targets"] == [3, 9, 1, 4, 1] + [0] * 7
    assert row["dec_inputs"] == [0, 3, 9, 0, 4] + [0] * 7
    assert row["dec_segment_ids"] == [1, 1, 1, 2, 2] + [0] * 7
    assert row["weights"]["loss"] == [1, 1, 1, 1, 1] + [0] * 7


def test_prefixes_are_uniform_from_one_to_all_but_one():
    ids = jnp.array([1] * 6 + [2] * 3 + [3] + [0] * 2)
    sizes = segment_lengths(ids)
    draw = jax.jit(
        jax.vmap(lambda i: prefix_lengths(jax.random.fold_in(key, i), ids, sizes))
    )
    key, num = jax.random.key(0), 6000
    drawn = np.asarray(draw(jnp.arange(num)))
    for part, most in ((slice(0, 6), 5), (slice(6, 9), 2), (slice(9, 10), 1)):
        result = drawn[:, part]
        assert (result == result[:, :1]).all()  # one length a document
        counts = collections.Counter(result[:, 0].tolist())
        assert set(counts) == set(range(1, most + 1))
        sigma = (num / most) ** 0.5
        assert all(abs(n - num / most) < 4 * sigma for n in counts.values())
    assert (drawn[:, 10:] == 0).all()
    # Rows and documents draw apart, not one length for all (a batch of Megatron's).
    assert abs(np.corrcoef(drawn[:, 0], drawn[:, 6])[0, 1]) < 0.05


@functools.cache
def corrupt(spec):
    return jax.jit(lambda rng, rows: prefix_lm.corrupt(rng, rows, VOCAB, spec))


VOCAB = Vocab(size=40, pad=0, eos=1)


@st.composite
def packed(draw):
    """A row of up to 5 documents in 24 tokens, some of which end in [EOS]."""
    row, room = [], 24
    for _ in range(draw(st.integers(0, 5))):
        size = draw(st.integers(1, max(room, 1)))
        if size > room:
            break
        room -= size
        tokens = [2 + (7 * room + i) % 38 for i in range(size)]
        row.append(tokens[:-1] + [VOCAB.eos] if draw(st.booleans()) else tokens)
    return row


def read(row, seed, is_seq2seq):
    """The batch of one packed row, as arrays."""
    ids = [number for number, tokens in enumerate(row, 1) for _ in tokens]
    tokens = [token for tokens in row for token in tokens]
    fill = [0] * (24 - len(ids))
    rows = {
        "tokens": np.array([tokens + fill], np.int32),
        "segment_ids": np.array([ids + fill], np.int32),
        "index": np.arange(1),
    }
    spec = prefix_lm.Spec(24, is_seq2seq=is_seq2seq)
    batch = corrupt(spec)(jax.random.key(seed), rows)
    return jax.tree.map(lambda x: np.asarray(x)[0], batch)


@given(packed(), st.integers(0, 2**31 - 1))
@settings(max_examples=40, deadline=None)
def test_one_stack_loses_nothing_and_predicts_what_follows(row, seed):
    batch = read(row, seed, is_seq2seq=False)
    for number, document in enumerate(row, 1):
        own = batch["segment_ids"] == number
        assert batch["targets"][own].tolist() == document
        assert batch["inputs"][own].tolist() == [VOCAB.pad, *document[:-1]]
        weights = batch["weights"]["loss"][own].astype(int).tolist()
        size = weights.count(0)
        assert weights == [0] * size + [1] * (len(document) - size)
        assert 1 <= size <= max(1, len(document) - 1)
        is_prefix = batch["is_prefix"][own].astype(int).tolist()
        free = min(size + 1, len(document))
        assert is_prefix == [1] * free + [0] * (len(document) - free)
        # Nothing that is predicted is among the keys that all may see.
        assert not (batch["is_prefix"][own][1:] & (weights[:-1] == np.ones(1))).any()
    assert not batch["weights"]["loss"][batch["segment_ids"] == 0].any()
    assert not batch["is_prefix"][batch["segment_ids"] == 0].any()


@given(packed(), st.integers(0, 2**31 - 1))
@settings(max_examples=40, deadline=None)
def test_two_stacks_hold_a_document_between_them(row, seed):
    batch = read(row, seed, is_seq2seq=True)
    for number, document in enumerate(row, 1):
        text = document[:-1] if document[-1] == VOCAB.eos else document
        source = batch["inputs"][batch["segment_ids"] == number].tolist()
        own = batch["dec_segment_ids"] == number
        targets = batch["targets"][own].tolist()
        if len(text) < 2:  # nothing can be cut in two
            assert source == targets == []
            continue
        assert source[-1] == targets[-1] == VOCAB.eos
        assert source[:-1] + targets[:-1] == text
        assert len(source) > 1 and len(targets) > 1
        assert batch["dec_inputs"][own].tolist() == [VOCAB.pad, *targets[:-1]]
    weights = batch["dec_segment_ids"] > 0
    np.testing.assert_array_equal(batch["weights"]["loss"], weights)


@pytest.mark.slow
def test_rows_of_one_text_fill_both_halves_at_most():
    spec = prefix_lm.Spec.for_seq_len(24, is_seq2seq=True)
    assert spec.lengths == {"encoder": 24, "decoder": 24}
    assert prefix_lm.Spec.for_seq_len(24).lengths == {"decoder": 24}
    tokens = np.arange(2, 26)[None].repeat(400, 0).astype(np.int32)
    batch = corrupt(spec)(
        jax.random.key(0), {"tokens": tokens, "index": np.arange(400)}
    )
    sizes = np.asarray(batch["segment_ids"]).sum(1)
    assert set(sizes.tolist()) == set(range(2, 25))  # 1 to 23, and [EOS]
    others = np.asarray(batch["dec_segment_ids"]).sum(1)
    assert (sizes + others == 26).all()


def test_what_follows_cannot_be_seen_and_the_prefix_can(make_case, make_rows):
    """A mask one place too wide would show the first token that is to be predicted."""
    case = make_case("prefix_lm")
    tokens = make_rows(case, 1)["tokens"]

    @jax.jit
    def nll(tokens):
        batch = prefix_lm.split_causal(tokens, jnp.full(tokens.shape, 6), None, VOCAB)
        logits = case.model.apply(
            {"params": case.params},
            batch["inputs"],
            prefix_lm.masks(batch),
            deterministic=True,
        )
        return logits[0]

    before = nll(tokens)
    first = nll(tokens.at[0, 6].set(tokens[0, 6] % 20 + 8))  # the first predicted
    np.testing.assert_array_equal(before[:7], first[:7])
    assert (before[7:] != first[7:]).any(-1).all()
    within = nll(tokens.at[0, 5].set(tokens[0, 5] % 20 + 8))  # the last of the prefix
    assert (before != within).any(-1).all()


@pytest.mark.slow_except("relative")
@pytest.mark.parametrize("positions", ["learned", "relative", "rotary"])
def test_a_prompt_is_read_as_a_prefix_was_in_training(
    positions, make_case, make_rows, vocab
):
    """Prompts of 6 and 4 tokens, then four steps: logits as of the full pass."""
    values = ("positions", positions), ("init_std", 0.3), ("num_layers", 2)
    case = make_case("prefix_lm", values)
    tokens, sizes = make_rows(case, 2)["tokens"], (6, 4)
    params = jax.tree.map(lambda x: x * (10 if x.ndim > 1 else 1), case.params)
    decoder = case.model.make_decoder(vocab.start)
    assert decoder.start_id is None and decoder.max_len == case.model_spec.max_len
    form = case.spec.text_form(vocab)
    (start,), after = form.before, form.after
    assert (start, after) == (vocab.pad, ())
    lengths = jnp.array(sizes)
    places = jnp.arange(7) - (7 - lengths[:, None])
    prompts = jnp.where(
        places < 0, 9, jnp.take_along_axis(tokens, jnp.maximum(places, 0), 1)
    )
    # Behind the start that its run puts there.
    prompts = jnp.where(places == -1, start, prompts)
    following = jnp.stack([tokens[i, n : n + 4] for i, n in enumerate(sizes)])

    @jax.jit
    def write(params):
        logits, cache = decoder.prefill(params, prompts, lengths + 1, 4)
        results = [logits]
        for i in range(4):
            logits, cache = decoder.step(params, following[:, i], cache)
            results.append(logits)
        return jnp.stack(results, 1)

    @jax.jit
    def whole(params):
        each = jnp.broadcast_to(lengths[:, None], tokens.shape)
        batch = prefix_lm.split_causal(tokens, each, None, vocab)
        masks = prefix_lm.masks(batch)
        return case.model.apply(
            {"params": params}, batch["inputs"], masks, deterministic=True
        )

    results, expected = write(params), whole(params)
    for i, size in enumerate(sizes):
        np.testing.assert_allclose(
            results[i], expected[i, size : size + 5], rtol=1e-3, atol=1e-4
        )


def test_two_stacks_answer_a_prompt(make_case, vocab):
    case = make_case("prefix_lm/seq2seq")
    decoder = case.model.make_decoder(vocab.start)
    assert decoder.start_id == vocab.pad
    form = case.spec.text_form(vocab)
    assert (form.before, form.after) == ((), (vocab.eos,))


def test_a_gradient_comes_from_what_follows_alone(make_case, make_rows):
    case = make_case("prefix_lm")
    batch = case.corrupt(make_rows(case, 4))
    changed = jnp.where(batch["weights"]["loss"] > 0, batch["targets"], 8)
    expected, _ = case.loss(batch)
    result, _ = case.loss(batch | {"targets": changed})
    assert result["loss"] == expected["loss"]
    assert expected["loss"][1] == batch["weights"]["loss"].sum() < batch["targets"].size


@pytest.mark.parametrize("num_layers", [0, 2])
def test_the_model_says_which_kind_it_is(num_layers):
    config = {
        "objective": "prefix_lm",
        "data": {"seq_len": 16},
        "model": {"num_decoder_layers": num_layers},
    }
    plan = make_plan(config)
    assert plan.spec == prefix_lm.Spec(16, is_seq2seq=num_layers > 0)


def test_bad_settings_are_named():
    with pytest.raises(UserError, match="^prefix_lm.is_seq2seq: unknown setting"):
        make_plan({"objective": "prefix_lm", "prefix_lm": {"is_seq2seq": True}})
