"""Fill in the middle: where a document's parts go, and that a gap is written."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import make_config, write_run

from jaxpt.nn.networks.abilities import FillsGaps, Gap
from jaxpt.nn.networks.one_stack import CausalLM
from jaxpt.objectives import clm, fill_in_the_middle
from jaxpt.objectives.fill_in_the_middle import Spec
from jaxpt.runs.predictions import fill_text
from jaxpt.runs.workdir import load_run

equal = functools.partial(jax.tree.map, np.testing.assert_array_equal)
NAME = "fill_in_the_middle"
EOS, MARKS = 6, (39, 38, 37)  # of the tests' vocabulary
PRE, SUF, MID = MARKS
LENGTHS = [12, 3, 0, 9, 12, 7, 1, 10]


def split_texts(row, ids):
    """The tokens of each text of a row."""
    return [row[ids == i].tolist() for i in np.unique(ids[ids > 0])]


def is_cut_of(text, original):
    """Whether a transformed text is a document, cut at two places.

    In SPM the prefix and the middle follow MID together, and nothing precedes SUF.
    """
    assert text[0] == PRE and text[-1] == EOS
    assert [text.count(mark) for mark in MARKS] == [1, 1, 1]
    suffix_at, middle_at = text.index(SUF), text.index(MID)
    prefix, suffix = text[1:suffix_at], text[suffix_at + 1 : middle_at]
    original = original[:-1] if original[-1] == EOS else original
    return prefix + text[middle_at + 1 : -1] + suffix == original


@pytest.mark.parametrize("first, second", [(0, 0), (0, 8), (8, 8), (3, 3), (0, 5)])
def test_parts_may_be_empty(first, second):
    tokens, ones = jnp.arange(10, 18), jnp.ones(8, int)
    outputs = []
    for is_spm in (False, True):
        args = (ones * first, ones * second), ones > 0, (ones > 0) == is_spm
        row, _ = fill_in_the_middle.transform(tokens, ones, *args, (1, 2, 3, 0), 12)
        outputs.append(row.tolist())
    prefix, middle, suffix = np.split(np.arange(10, 18), [first, second])
    assert outputs[0] == [1, *prefix, 2, *suffix, 3, *middle, 0]
    assert outputs[1] == [1, 2, *suffix, 3, *prefix, *middle, 0]
    assert (outputs[0] == outputs[1]) == (first == 0)


def test_each_text_of_a_row_moves_by_itself():
    """PSM of one that ends in EOT; one that stays; SPM of one without EOT; padding."""
    tokens = jnp.array([10, 11, 12, 0, 13, 0, 14, 15, 9])
    texts = jnp.array([1, 1, 1, 1, 2, 2, 3, 3, 0])
    cuts = jnp.array([1] * 9), jnp.array([2] * 9)
    args = cuts, texts != 2, texts == 3, (1, 2, 3, 0)
    row, ids = fill_in_the_middle.transform(tokens, texts, *args, 18)
    first = [1, 10, 2, 12, 3, 11, 0]
    third = [1, 2, 3, 14, 15, 0]
    assert row.tolist() == [*first, 13, 0, *third, 0, 0, 0]
    assert ids.tolist() == 7 * [1] + 2 * [2] + 6 * [3] + 3 * [0]


def test_documents_of_packed_rows_are_cut_one_by_one(make_packed, make_rows):
    case = make_packed(NAME)
    rows = make_rows(case, 64, lengths=[12] * 64, with_eos=True)
    batch = jax.tree.map(np.asarray, case.corrupt(rows))
    counts, forms = {True: 0, False: 0}, set()
    for i, (inputs, ids) in enumerate(zip(batch["inputs"], batch["segment_ids"])):
        is_text = rows["segment_ids"][i] > 0
        tokens = np.asarray(rows["tokens"][i])[is_text]
        old = split_texts(tokens, np.asarray(rows["segment_ids"][i])[is_text])
        for text, original in zip(split_texts(inputs, ids), old, strict=True):
            is_moved = text[0] == PRE
            assert is_cut_of(text, original) if is_moved else text == original
            counts[is_moved] += 1
            forms.add(text.index(SUF) > 1 if is_moved else None)
    assert 0.35 < counts[True] / sum(counts.values()) < 0.65
    assert forms == {None, True, False}
    # Every token but the first of a document is predicted, sentinels and EOT too.
    ids, predicted = batch["segment_ids"], batch["weights"]["loss"].sum(1)
    np.testing.assert_array_equal(predicted, (ids > 0).sum(1) - ids.max(1))
    assert (batch["targets"][batch["weights"]["loss"] > 0] == EOS).any()


def test_one_text_of_a_chunk_is_cut(make_case, make_rows):
    """The tokens between two [EOS]s stay together, and nothing is lost."""
    case = make_case(NAME, rate=1.0)
    rows = make_rows(case, 64)
    tokens = rows["tokens"].at[:, 5].set(EOS).at[:, 11].set(EOS)
    batch = jax.tree.map(np.asarray, case.corrupt(rows | {"tokens": tokens}))
    assert "segment_ids" not in batch
    starts = set()
    for row, inputs, targets, weights in zip(
        tokens.tolist(), batch["inputs"], batch["targets"], batch["weights"]["loss"]
    ):
        whole = [inputs[0], *targets[weights > 0].tolist()]
        begin = whole.index(PRE)
        stop = begin + whole[begin:].index(EOS) + 1
        starts.add(begin)
        old = {0: row[:6], 6: row[6:12], 12: row[12:]}[begin]
        assert whole[:begin] == row[:begin]
        assert is_cut_of(whole[begin:stop], old)
        assert whole[stop:] == row[begin + len(old) :]
    assert starts == {0, 6, 12}


@pytest.mark.parametrize("spm_share", [0.0, 1.0])
def test_one_form_alone(spm_share, make_case, make_rows):
    case = make_case(NAME, rate=1.0, spm_share=spm_share)
    inputs = np.asarray(case.corrupt(make_rows(case, 64))["inputs"])
    assert (inputs[:, 0] == PRE).all()
    share = (inputs[:, 1] == SUF).mean()  # of PSM, those without a prefix
    assert share == 1 if spm_share else 0 < share < 0.3
    left, right = jnp.array([[10, 11]]), jnp.array([[15]])
    prompt = case.model.gap_prompt(left, right).tolist()
    spm = [[PRE, SUF, 15, MID, 10, 11]]
    assert prompt == (spm if spm_share else [[PRE, 10, 11, SUF, 15, MID]])


@pytest.mark.parametrize("is_packed", [False, True])
def test_rate_zero_is_clm_bit_by_bit(is_packed, make_case, make_packed, make_rows):
    make = make_packed if is_packed else make_case
    case, control = make(NAME, rate=0.0), make("clm")
    assert case.spec.lengths == control.spec.lengths
    assert type(case.model) is CausalLM and not isinstance(case.model, FillsGaps)
    rows = make_rows(case, 8, lengths=LENGTHS if is_packed else None)
    equal(*(c.gradients(rows) for c in (case, control)))


def test_plain_text_has_clms_likelihood(make_case, make_rows):
    """The network is clm's: the rate changes what is trained, not what is measured."""
    case, control = make_case(NAME), make_case("clm")
    tokens = make_rows(control, 3)["tokens"]
    equal(*(c.model.token_nll(c.params, tokens) for c in (case, control)))


def test_packed_rows_need_room(make_case, make_rows):
    case = make_case(NAME)
    rows = make_rows(case, 2, lengths=[9, 12])
    with pytest.raises(ValueError, match="max_documents"):
        case.corrupt(rows)
    assert Spec(16).lengths == {"decoder": 19}
    assert Spec(16, max_documents=3).lengths == {"decoder": 27}
    assert Spec.for_seq_len(20).row_length == 17


def test_rows_of_documents_that_fill_them_have_room(make_packed, make_rows):
    """At rate 1 the last EOT of a full row of two documents is still there."""
    case = make_packed(NAME, rate=1.0)
    length = case.spec.row_length
    rows = make_rows(case, 8, lengths=[length] * 8)
    batch = case.corrupt(rows)
    ids, weights = batch["segment_ids"], batch["weights"]["loss"]
    assert batch["inputs"].shape[1] == length + 7
    assert (ids[:, -1] == 2).all() and (batch["targets"][:, -1] == EOS).all()
    assert (weights.sum(1) == length + 8 - 2).all()


def test_later_tokens_do_not_change_an_earlier_loss(make_packed, make_rows):
    """Prompt and middle are read causally, each document by itself."""
    case = make_packed(NAME, rate=1.0)
    batch = case.corrupt(make_rows(case, 4, lengths=[12] * 4))

    @jax.jit
    def losses(inputs):
        def read(model):
            masks = clm.masks(batch)
            moved = batch | {"inputs": inputs}
            states = model.batch_states(moved, masks, deterministic=True)
            return model.nll(states, batch["targets"])

        return case.model.apply({"params": case.params}, method=read)

    place = 5  # in the first document, of six tokens and four marks
    inputs = batch["inputs"]
    result, changed = losses(inputs), losses(inputs.at[:, place].set(8))
    equal(result[:, :place], changed[:, :place])
    is_first = batch["segment_ids"] == 1
    after = is_first & (jnp.arange(inputs.shape[1]) >= place)
    assert (result != changed)[after].any()
    equal(jnp.where(is_first, 0, result), jnp.where(is_first, 0, changed))


@pytest.mark.slow
@pytest.mark.parametrize("spm_share", [0.0, 1.0])
def test_a_gap_is_written_until_its_end(spm_share, make_case, make_rows, learn_rows):
    """After training on documents that count, by prompts of both sides."""
    values = (("num_layers", 2),)
    case = make_case(NAME, values, rate=0.9, spm_share=spm_share)
    rows = make_rows(case, 25)
    starts, length = np.arange(25)[:, None], case.spec.row_length
    tokens = (7 + (starts + np.arange(length)) % 25).astype(np.int32)
    params = learn_rows(case, rows | {"tokens": jnp.asarray(tokens)}, 800)
    left, right = tokens[:, :6], tokens[:, 8:]
    text = case.model.gap_prompt(jnp.asarray(left), jnp.asarray(right))
    written = []
    for _ in range(3):
        logits = case.model.next_logits(params, text)[:, -1]
        text = jnp.append(text, logits.argmax(-1)[:, None], axis=1)
        written.append(np.asarray(text[:, -1]))
    expected = np.stack([tokens[:, 6], tokens[:, 7], np.full(25, EOS)])
    assert (np.stack(written) == expected).all(0).mean() > 0.8
    # A gap of one token, among the row's own and three others.
    whole = jnp.asarray(tokens)
    others = jnp.stack([(whole[:, 7] - 7 + i) % 25 + 7 for i in range(4)], axis=1)
    gap = Gap(whole, 7, whole, others)
    assert (case.model.choice_scores(params, gap).argmax(1) == 0).mean() > 0.8


def test_choices_are_scored_by_the_token_and_its_end(make_case, make_rows):
    case = make_case(NAME)
    tokens = make_rows(case, 2)["tokens"][:, :9]
    candidates = jnp.array([[8, 9], [10, 11]])
    read = jax.jit(
        lambda params: case.model.choice_scores(
            params, Gap(tokens, 4, tokens, candidates)
        )
    )
    rows = [
        [PRE, SUF, *tokens[i, 5:].tolist(), MID, *tokens[i, :4].tolist(), each, EOS]
        for i in range(2)
        for each in candidates[i].tolist()
    ]
    nll = jax.jit(case.model.token_nll)(case.params, np.array(rows))
    expected = -np.array(nll)[:, -2:].sum(1).reshape(2, 2)
    np.testing.assert_allclose(read(case.params), expected, rtol=1e-5)


def test_fill_writes_texts_of_any_length(speech, tmp_path, refuses):
    config = make_config(speech, NAME, model__init_std=0.3)
    run = load_run(write_run(config, tmp_path / "run"))
    (fills,) = fill_text(run, "the st[MASK]te", 4)
    assert len(fills) == 4
    probabilities = [p for _, p in fills]
    assert sorted(probabilities)[::-1] == probabilities and 0 < probabilities[0] < 1
    vocab, tokenizer = run.tokenizer.vocab, run.tokenizer
    sides = tokenizer.encode("the st"), tokenizer.encode("te")
    marks = vocab.sentinels[:3]
    prompt = [*marks[:2], *sides[1], marks[2], *sides[0]]
    text, probability = fills[0]
    row = np.array([[*prompt, *tokenizer.encode("the st" + text)[len(sides[0]) :]]])
    ended = np.append(row, [[vocab.eos]], axis=1)
    for whole in (row, ended):  # it ends, or there is no room
        nll = run.program.readers["token_nll"](run.params, whole.astype(np.int32))
        result = float(np.exp(-np.asarray(nll)[0, len(prompt) - 1 :].sum()))
        if result == pytest.approx(probability, rel=1e-4):
            break
    else:
        raise AssertionError((text, probability, result))
    for text, message in (("no gap", "one [MASK]"), ("[MASK]a[MASK]", "one [MASK]")):
        with refuses(f"text: must have {message}"):
            fill_text(run, text, 4)
    with refuses("text: has "):
        fill_text(run, "[MASK]" + "a" * 99, 4)
