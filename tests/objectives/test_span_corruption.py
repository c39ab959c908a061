"""Span corruption: T5's lengths, and a row rebuilt from its input and target."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpt.errors import UserError
from jaxpt.objectives import span_corruption
from jaxpt.text.vocab import Vocab

VOCAB = Vocab(size=60, pad=0, eos=1, num_sentinels=12)
SENTINELS = list(VOCAB.sentinels)


def test_lengths_are_t5s():
    spec = span_corruption.make_spec(512)
    assert spec.row_length == 568
    lengths = span_corruption.model_lengths(spec)
    assert lengths == {"encoder": 512, "decoder": 114}
    half = span_corruption.make_spec(512, noise_density=0.5)
    assert half.row_length == 766
    assert span_corruption.model_lengths(half) == {"encoder": 512, "decoder": 512}


@functools.cache
def corrupt(spec):
    return jax.jit(lambda rng, rows: span_corruption.corrupt(rng, rows, VOCAB, spec))


SPECS = [
    span_corruption.make_spec(24),
    span_corruption.make_spec(24, noise_density=0.5, mean_span_length=2.0),
    span_corruption.make_spec(24, noise_density=0.3, mean_span_length=1.0),
]


@given(st.sampled_from(SPECS), st.integers(0, 2**31 - 1))
@settings(max_examples=30, deadline=None)
def test_rows_are_rebuilt_from_their_halves(spec, seed):
    draw = np.random.default_rng(seed)
    tokens = draw.integers(2, 48, (4, spec.row_length)).astype(np.int32)
    rows = {"tokens": tokens, "index": np.arange(4)}
    batch = corrupt(spec)(jax.random.key(seed), rows)
    batch = {key: np.asarray(value) for key, value in batch.items()}
    lengths = span_corruption.model_lengths(spec)
    assert batch["inputs"].shape == (4, lengths["encoder"])
    assert batch["targets"].shape == (4, lengths["decoder"])
    assert (batch["loss_weights"] == 1).all()
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


def test_the_loss_is_read_at_every_target(make_case, make_rows, jit):
    case = make_case("span_corruption")
    batch = case.corrupt(make_rows(case, 2))
    masks, ids = span_corruption.masks(batch), (batch["inputs"], batch["dec_inputs"])
    terms, _ = case.loss(batch)
    variables = {"params": case.params}

    @jit
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


def test_rows_with_segments_are_refused(make_case, make_rows):
    case = make_case("span_corruption")
    rows = make_rows(case, 1, lengths=[20])
    with pytest.raises(ValueError, match="segment_ids"):
        span_corruption.corrupt(jax.random.key(0), rows, VOCAB, case.spec)


def test_too_few_sentinels_are_refused(make_case):
    case = make_case("span_corruption")
    spec = span_corruption.make_spec(24, noise_density=0.3, mean_span_length=1.0)
    num_spans = span_corruption.noise.count_spans(*spec.noise)[1]
    enough = dataclasses.replace(VOCAB, num_sentinels=num_spans)
    span_corruption.make_model(case.model_spec, spec, enough)
    few = dataclasses.replace(VOCAB, num_sentinels=num_spans - 1)
    with pytest.raises(UserError, match=f"tokenizer.num_sentinels.*{num_spans - 1}"):
        span_corruption.make_model(case.model_spec, spec, few)


@pytest.mark.parametrize(
    "values, name",
    [
        ({"noise_density": 0.0}, "noise_density=0.0"),
        ({"noise_density": 1.0}, "noise_density=1.0"),
        ({"mean_span_length": 0.5}, "mean_span_length=0.5"),
        ({"noise_density": 0.9, "mean_span_length": 1.0}, "noise_density=0.9: .*fit"),
        pytest.param({"mean_span_length": float("nan")}, "mean_span_length=nan"),
    ],
)
def test_bad_values_are_named(values, name):
    with pytest.raises(UserError, match=f"^span_corruption.{name}"):
        span_corruption.make_spec(24, **values)


@pytest.mark.parametrize("seq_len", [1, 2])
def test_an_input_is_never_longer_than_asked_for(seq_len):
    try:
        spec = span_corruption.make_spec(seq_len)
    except UserError:
        return
    assert span_corruption.model_lengths(spec)["encoder"] <= seq_len


def test_a_row_of_one_token_is_refused():
    with pytest.raises(UserError, match="data.row_length=1:"):
        span_corruption.Spec(1)
