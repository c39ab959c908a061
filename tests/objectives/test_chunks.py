"""Every objective takes its loss in chunks: the same numbers, and no large logits."""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiny import CORE, slow_but

from jaxpt.learn.state import make_state
from jaxpt.objectives import OBJECTIVES

norm = optax.tree.norm
EVERY = (*OBJECTIVES, "all_tokens_mlm")
# Whose mask rate is raised, so that logits are the largest arrays there are.
MASKED = ("mlm", "electra", "bert", "all_tokens_mlm", "spanbert", "distillation")
# Heads of every kind: whichever an objective's model has, it is the same loss.
HEADS = {
    "clm": {"tie_embeddings": False, "head_bias": True},
    "mlm": {"head_transform": True, "head_bias": True, "embedding_size": 16},
    "span_corruption": {"scale_logits": True, "positions": "relative"},
    "electra": {"embedding_size": 16},
    "bert": {"head_transform": True, "head_bias": True},
    "bart": {"head_bias": True},
    "all_tokens_mlm": {"embedding_size": 16},
    "spanbert": {"embedding_size": 16},
    "ul2": {"scale_logits": True},
    "clm_mlm": {"tie_embeddings": False, "positions": "relative"},
    "dual": {"tie_embeddings": False, "head_bias": True},
    "prefix_lm": {"embedding_size": 16, "head_bias": True},
    "distillation": {"head_transform": True, "head_bias": True, "embedding_size": 16},
    "causal_distillation": {"tie_embeddings": False, "head_bias": True},
    "selective_clm": {"tie_embeddings": False, "head_bias": True},
    "bilm": {"num_layers": 2},
    "multi_token": {"head_bias": True},
    "multi_token_heads": {"tie_embeddings": False},
    "token_order": {"embedding_size": 16},
    "prefix_token": {"head_bias": True},
    "future_summary": {"embedding_size": 16},
    "hybrid_diffusion": {"tie_embeddings": False, "head_bias": True},
    "next_latent": {"embedding_size": 16},
    "latent_prediction": {"embedding_size": 16},
    "mixture": {"tie_embeddings": False, "positions": "relative"},
}


# The number of parts of each batch.
PARTS = {
    "clm": 1,
    "mlm": 2,
    "span_corruption": 1,
    "electra": 2,
    "bert": 2,
    "all_tokens_mlm": 2,
    "spanbert": 1,
    "clm_mlm": 2,
    "dual": 2,
    "distillation": 2,
    "causal_distillation": 1,
    "selective_clm": 2,
    "bilm": 2,
    "multi_token": 2,
    "multi_token_heads": 2,
    "token_order": 2,
    "prefix_token": 2,
    "future_summary": 2,
    "hybrid_diffusion": 2,
    "next_latent": 2,
    "latent_prediction": 2,
    "mixture": 2,
}


@pytest.mark.slow_cases("mlm", "bilm")
@pytest.mark.parametrize("name", slow_but(("clm", "mlm", "bilm"), PARTS))
def test_chunks_do_not_change_the_gradient(name, make_packed, make_rows):
    num_microbatches = PARTS[name]
    values = HEADS[name]
    whole = make_packed(name, tuple(values.items()))
    chunked = make_packed(name, (*values.items(), ("loss_chunk", 7)))
    rows = make_rows(whole, 8, lengths=[20, 3, 0, 12, 20, 7, 1, 16], with_eos=True)
    expected, sums = whole.gradients(rows, num_microbatches)
    result, found_sums = chunked.gradients(rows, num_microbatches)
    gap = norm(jax.tree.map(jnp.subtract, result, expected))
    assert gap / norm(expected) < 1e-5
    for key, value in sums.items():
        # A divergence below 1 is the difference of cross-entropies of hundreds of nats.
        np.testing.assert_allclose(found_sums[key], value, rtol=1e-5, atol=2e-5)


@pytest.mark.slow_cases("mlm", "bilm", "electra", "span_corruption")
@pytest.mark.parametrize("name", slow_but((*CORE, "bilm"), EVERY))
def test_chunks_do_not_change_what_is_evaluated(name, make_case, make_rows):
    cases = make_case(name), make_case(name, (("loss_chunk", 7),))
    rows = make_rows(cases[0], 5)
    params, key = cases[0].params, jax.random.key(0)
    expected, result = (c.evaluate(params, rows, key) for c in cases)
    assert result.keys() == expected.keys() > cases[0].spec.coefficients.keys()
    for metric in expected:
        np.testing.assert_allclose(result[metric], expected[metric], rtol=1e-5)


def test_chunks_do_not_change_a_likelihood(make_case, make_rows):
    cases = make_case("clm"), make_case("clm", (("loss_chunk", 7),))
    tokens = make_rows(cases[0], 5)["tokens"]
    result, expected = jax.jit(lambda p, t: [c.model.token_nll(p, t) for c in cases])(
        cases[0].params, tokens
    )
    assert result.shape == (5, tokens.shape[1] - 1)
    np.testing.assert_allclose(result, expected, rtol=1e-5)


# The others meet the vocabulary as these do, or (skip_gram) never meet all of it.
LOSSES = (
    *CORE,
    "all_tokens_mlm",
    "spanbert",
    "clm_mlm",
    "distillation",
    "selective_clm",
    "bilm",
    "multi_token",
    "multi_token_heads",
    "token_order",
    "prefix_token",
    "future_summary",
    "hybrid_diffusion",
    "next_latent",
    "latent_prediction",
    "dual",
    "mixture",
)


@pytest.mark.slow_cases("clm")
@pytest.mark.parametrize("name", slow_but(("clm",), LOSSES))
def test_no_array_of_a_compiled_step_is_as_large_as_the_logits(
    name, make_case, make_rows, vocab
):
    size, num_rows = 500, 8
    settings = {"mask_rate": 0.5} if name in MASKED else {}

    def largest(chunk):
        values = {"vocab_size": size, "d_model": 16, "d_ff": 16, "loss_chunk": chunk}
        case = make_case(name, tuple(values.items()), **settings)
        rows, optimizer = make_rows(case, num_rows), optax.adam(1e-3)
        num_predictions = case.corrupt(rows)["targets"].size
        step = case.make_step(optimizer)
        state = make_state(case.params, optimizer)
        program = (
            jax.jit(step).lower(state, rows, jax.random.key(0)).compile().as_text()
        )
        shapes = re.findall(r"\b[a-z]+[0-9]*\[([0-9,]+)\]", program)
        sizes = [math.prod(map(int, shape.split(","))) for shape in shapes]
        return max(sizes) / (num_predictions * size)

    assert largest(chunk=0) >= 1
    assert largest(chunk=20) < 0.6
