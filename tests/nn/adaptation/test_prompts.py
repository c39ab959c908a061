"""Prompts: vectors in the places of tokens."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from nn.adaptation.networks import (
    BERT,
    SPEC,
    T5,
    make,
    make_batch,
    make_model,
    paths_of,
)
from tiny import slow_but

from jaxpt.evaluation.scores import SampleSpec
from jaxpt.nn.adaptation.adapt_spec import AdaptSpec
from jaxpt.nn.adaptation.prompts import check_length
from jaxpt.tasks.model import TaskModel, write_answers
from jaxpt.tasks.writing import Writing
from jaxpt.text_form import TextForm

PROMPT = AdaptSpec("prompt", prompt_length=3)


@pytest.mark.slow_cases("encoder_decoder-values6")
@pytest.mark.parametrize(
    "kind, values",
    slow_but(
        [("encoder", BERT), ("encoder_decoder", T5)],
        [
            ("encoder", {}),
            ("encoder", BERT),
            ("encoder", {"embedding_size": 8}),
            ("encoder", {"positions": "rotary", "embed_norm": True}),
            ("causal", {}),
            ("prefix", {}),
            ("encoder_decoder", T5),
            ("electra", {}),
            ("student", {}),
            ("encoder", {"smear": True}),
        ],
    ),
)
def test_a_prompt_of_tokens_vectors_is_those_tokens(kind, values):
    """At any padding; the states of its places are not given to the head."""
    model, state, _ = make_model(kind, PROMPT, **values, num_layers=1)
    (path,) = paths_of(state["extra"])
    assert path == "embed/prompt"
    written = jnp.array([9, 2, 10])
    tokens = state["network"]["embed"]["tokens"]
    state["extra"] = {"embed": {"prompt": tokens[written]}}
    batch = make_batch()
    if kind == "encoder_decoder":  # which reads the text once more, without the prompt
        batch = dataclasses.replace(model, adaptation=AdaptSpec()).inputs(batch)
    result = jax.jit(lambda: model.states(state, batch, None))()

    more = jnp.broadcast_to(written, (2, 3))
    whole = batch | {
        "inputs": jnp.concatenate([more, batch["inputs"]], 1),
        "segment_ids": jnp.pad(batch["segment_ids"], ((0, 0), (3, 0)), "edge"),
    }
    expected = jax.jit(model.network.task_states)(state["network"], whole)
    expected = expected if kind == "encoder_decoder" else expected[:, 3:]
    np.testing.assert_allclose(result, expected, atol=1e-6)
    outputs = jax.eval_shape(lambda: model.outputs(state, make_batch(), None))
    assert outputs.shape == (2, 3)


@pytest.mark.slow
def test_prompts_begin_as_tokens_and_as_labels():
    spec = dataclasses.replace(PROMPT, prompt_length=10)
    _, state, _ = make_model("encoder", spec)
    tokens = state["network"]["embed"]["tokens"]
    rows = {tuple(row) for row in np.asarray(tokens).tolist()}
    drawn = np.asarray(state["extra"]["embed"]["prompt"]).tolist()
    assert len({tuple(row) for row in drawn} & rows) == 10  # without repeats
    spec = dataclasses.replace(PROMPT, prompt_length=4, prompt_init="labels")
    _, state, _ = make_model("encoder", spec)
    prompt = np.asarray(state["extra"]["embed"]["prompt"])
    np.testing.assert_array_equal(prompt[0], tokens[1])
    np.testing.assert_allclose(prompt[1], (tokens[2] + tokens[3]) / 2, rtol=1e-6)
    np.testing.assert_array_equal(prompt[2], tokens[4])
    assert tuple(prompt[3].tolist()) in rows


def test_more_vectors_than_tokens_are_drawn_with_repeats():
    spec = dataclasses.replace(PROMPT, prompt_length=12)
    _, state, _ = make_model("encoder", spec, max_len=32)
    assert state["extra"]["embed"]["prompt"].shape == (12, 16)


def test_gradients_reach_every_vector():
    model, state, _ = make_model("causal", PROMPT)
    grads = jax.jit(
        jax.grad(
            lambda extra: jnp.square(
                model.outputs(state | {"extra": extra}, make_batch(), None)
            ).sum()
        )
    )(state["extra"])
    assert np.all(np.abs(np.asarray(grads["embed"]["prompt"])).max(1) > 0)


def test_they_take_places(refuses):
    check_length(PROMPT, SPEC, 13)
    with refuses("adapt.prompt_length=3", "leave 14", "model.max_len=16"):
        check_length(PROMPT, SPEC, 14)
    check_length(AdaptSpec(), SPEC, 16)
    check_length(PROMPT, dataclasses.replace(SPEC, positions="rotary"), 14)


@pytest.mark.parametrize("kind", ["bilm", "skip_gram"])
def test_networks_without_a_table_are_refused(kind, refuses):
    with refuses("adapt.method=prompt", "no table"):
        make_model(kind, PROMPT)


def test_labels_without_names_are_refused(refuses):
    from jaxpt.nn.adaptation.prompts import init
    from jaxpt.nn.adaptation.watch import Places

    spec = dataclasses.replace(PROMPT, prompt_init="labels")
    params = {"embed": {"tokens": jnp.ones((4, 2))}}
    with refuses("adapt.prompt_init=labels", "vocab"):
        init(spec, Places((), (), (("embed",),)), params, jax.random.key(0), None)


@pytest.mark.parametrize("kind", slow_but(("causal",), ("causal", "prefix")))
def test_answers_that_are_written_behind_a_prompt(kind):
    """The prompt directly precedes each text, after any padding."""
    network, params = make(kind, num_layers=1, tie_embeddings=False)
    # What is written then depends on all that is read.
    params["encoder"]["layer_0"]["attention"]["out"]["kernel"] *= 30
    writing = Writing(False, kind == "prefix", TextForm(), 2, max_len=16)
    model = TaskModel(network, None, "mean", adaptation=PROMPT, writing=writing)
    written = jnp.array([9, 2, 10])
    extra = {"embed": {"prompt": params["embed"]["tokens"][written]}}
    batch, more = make_batch(), jnp.broadcast_to(written, (2, 3))
    whole = {
        "inputs": jnp.concatenate([more, batch["inputs"]], 1),
        "segment_ids": jnp.pad(batch["segment_ids"], ((0, 0), (3, 0)), "edge"),
    }
    plain = dataclasses.replace(model, adaptation=AdaptSpec())
    sampling = SampleSpec(temperature=0.0)
    rest = writing, 5, whole["inputs"].shape[1], sampling

    @jax.jit
    def write(extra):
        state = {"network": params, "extra": extra}
        other = {"network": params, "extra": {}}
        return [
            write_answers(model, state, batch, *rest)["tokens"],
            write_answers(plain, other, whole, *rest)["tokens"],
            write_answers(plain, other, batch, *rest)["tokens"],
        ]

    with_prompt, with_tokens, without = np.asarray(write(extra))
    np.testing.assert_array_equal(with_prompt, with_tokens)
    assert np.any(with_prompt != without)
