"""What holds for every objective."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxpt.dims import BATCH_KEYS, ROW_KEYS
from jaxpt.errors import UserError
from jaxpt.learn.state import make_state
from jaxpt.nn.spec import ModelSpec
from jaxpt.objectives import OBJECTIVES
from jaxpt.text.vocab import Vocab

PACKED = ["clm", "mlm", "electra"]
norm = optax.tree.norm
every = pytest.mark.parametrize("name", OBJECTIVES)


def eight_rows(case, make_rows, name):
    """Rows whose weights differ, where the objective can read packed documents."""
    lengths = [20, 3, 0, 12, 20, 7, 1, 16] if name in PACKED else None
    return make_rows(case, 8, lengths=lengths)


@every
def test_a_row_is_corrupted_by_itself(name, make_case, make_rows):
    case = make_case(name)
    rows = make_rows(case, 6)
    batch = case.corrupt(rows)
    again = case.corrupt(rows)
    other = case.corrupt(rows, seed=1)
    order = jnp.array([4, 2, 0, 5, 1, 3])
    permuted = case.corrupt({key: value[order] for key, value in rows.items()})
    half = case.corrupt({key: value[2:5] for key, value in rows.items()})
    company = rows | {"tokens": rows["tokens"].at[3:].set(9)}
    in_company = case.corrupt(company)
    for key, value in batch.items():
        assert key in BATCH_KEYS or key in ROW_KEYS, key
        np.testing.assert_array_equal(value, again[key])
        np.testing.assert_array_equal(value[order], permuted[key])
        np.testing.assert_array_equal(value[2:5], half[key])
        np.testing.assert_array_equal(value[:3], in_company[key][:3])
    if name != "clm":  # draws nothing
        assert (batch["inputs"] != other["inputs"]).any()
        # Equal rows at different places are corrupted apart.
        same = rows | {"tokens": jnp.tile(rows["tokens"][:1], (6, 1))}
        assert len(np.unique(np.asarray(case.corrupt(same)["inputs"]), axis=0)) > 1


@every
def test_lengths_are_those_the_spec_says(name, make_case, make_rows):
    case = make_case(name)
    batch = case.corrupt(make_rows(case, 2))
    lengths = list(case.module.model_lengths(case.spec).values())
    assert batch["inputs"].shape[1] == lengths[0] <= 20
    if "dec_inputs" in batch:
        assert batch["dec_inputs"].shape[1] == lengths[1]
    assert set(batch) <= set(BATCH_KEYS)  # a closed set, with its glossary
    assert batch["inputs"].dtype == batch["targets"].dtype == jnp.int32
    assert batch["loss_weights"].dtype == jnp.float32
    assert batch["loss_weights"].shape == batch["targets"].shape


@every
def test_the_first_loss_is_that_of_knowing_nothing(
    name, make_case, make_rows, vocab, jit
):
    case = make_case(name)
    eval_step = case.module.make_eval_step(case.model, vocab, case.spec)

    @jit
    def run(rng, rows):
        params = case.module.init_params(rng, case.model, case.spec)
        return eval_step(params, rows, rng)

    metrics = run(jax.random.key(0), make_rows(case, 16))
    means = {key: float(total / weight) for key, (total, weight) in metrics.items()}
    wanted = {"loss": math.log(40)}
    if name == "electra":
        wanted = {"generator_loss": math.log(40), "discriminator_loss": math.log(2)}
    for term, value in wanted.items():
        assert means[term] == pytest.approx(value, rel=0.05)
    assert set(case.module.coefficients(case.spec)) == set(wanted)


@every
def test_one_batch_is_learnt_by_heart(name, make_case, make_rows, vocab, jit):
    case = make_case(name)
    rows = make_rows(case, 4)
    # First tokens differ: nothing else tells a causal model which row it reads.
    rows["tokens"] = rows["tokens"].at[:, 0].set(jnp.arange(4) + 10)
    optimizer = optax.adam(1e-2)
    step = case.module.make_train_step(case.model, vocab, case.spec, optimizer)

    step, state = jit(step), make_state(case.params, optimizer)
    for _ in range(300):
        state, metrics = step(state, rows, jax.random.key(3))
    for term in case.module.coefficients(case.spec):
        total, weight = metrics[term]
        assert total / weight < 0.03, term
    assert int(state.step) == 300


@every
def test_microbatches_do_not_change_the_gradient(name, make_case, make_rows):
    case = make_case(name)
    rows = eight_rows(case, make_rows, name)
    wanted, sums = case.gradients(rows)
    size = norm(wanted)
    assert size > 0
    for num_microbatches in (2, 4, 8) if name == "mlm" else (2, 8):
        grads, metrics = case.gradients(rows, num_microbatches)
        gap = norm(jax.tree.map(jnp.subtract, grads, wanted))
        assert gap / size < 1e-6, num_microbatches
        for key, (total, weight) in sums.items():
            np.testing.assert_allclose(metrics[key][0], total, rtol=1e-5)
            np.testing.assert_allclose(metrics[key][1], weight, rtol=1e-6)


@pytest.mark.parametrize("name", PACKED)
def test_padding_changes_nothing(name, make_case, make_rows):
    case = make_case(name)
    rows = eight_rows(case, make_rows, name)
    is_padding = rows["segment_ids"] == 0
    others = rows | {"tokens": jnp.where(is_padding, 8, rows["tokens"])}
    (grads, sums), (other_grads, other_sums) = map(case.gradients, (rows, others))
    for metric in sums:
        np.testing.assert_allclose(sums[metric], other_sums[metric], rtol=1e-6)
    gap = norm(jax.tree.map(jnp.subtract, grads, other_grads))
    assert gap / norm(grads) < 1e-6


@every
def test_training_drops_and_evaluating_does_not(name, make_case, make_rows, vocab, jit):
    case, plain = make_case(name, (("dropout", 0.5),)), make_case(name)
    rows, key = eight_rows(case, make_rows, name), jax.random.key(0)
    steps = [c.module.make_eval_step(c.model, vocab, c.spec) for c in (case, plain)]
    found, wanted = jit(lambda p: [s(p, rows, key) for s in steps])(plain.params)
    for metric in wanted:
        np.testing.assert_allclose(found[metric], wanted[metric], rtol=1e-6)
    _, sums = case.gradients(rows)
    _, plain_sums = plain.gradients(rows)
    terms = case.module.coefficients(case.spec)
    assert all(sums[term][0] != plain_sums[term][0] for term in terms)


@every
def test_flops_are_xlas(name):
    module = OBJECTIVES[name]
    vocab = Vocab(size=600, pad=0, eos=1, mask=2, num_sentinels=20)
    spec = module.make_spec(96)
    model_spec = ModelSpec(
        vocab_size=600,
        width=256,
        num_heads=4,
        mlp_width=1024,
        max_len=128,
        embed_width=128,
        num_decoder_layers=2 * (name == "span_corruption"),
    )
    model = module.make_model(model_spec, spec, vocab)
    params = jax.eval_shape(
        lambda key: module.init_params(key, model, spec), jax.random.key(0)
    )
    rows = {
        "tokens": jax.ShapeDtypeStruct((2, spec.row_length), jnp.int32),
        "index": jax.ShapeDtypeStruct((2,), jnp.int32),
    }
    step = jax.jit(module.make_eval_step(model, vocab, spec))
    compiled = step.lower(params, rows, jax.random.key(0)).compile()
    counted = module.count_flops(model_spec, spec) / 3
    assert counted == pytest.approx(compiled.cost_analysis()["flops"] / 2, rel=0.1)


@every
def test_features_are_hidden_states_of_plain_text(name, make_case, make_rows, jit):
    case = make_case(name)
    tokens = make_rows(case, 3)["tokens"][:, :9]
    features = jit(lambda p, t: case.module.features(p, case.model, t))
    found = features(case.params, tokens)
    assert found.shape == (3, 9, 32) and found.dtype == jnp.float32
    later = features(case.params, tokens.at[:, 5:].set(8))
    assert np.allclose(found[:, :5], later[:, :5], atol=1e-6) == (name == "clm")


@every
def test_the_wrong_number_of_stacks_is_refused(name, make_case, vocab):
    case = make_case(name)
    wrong = dataclasses.replace(
        case.model_spec, num_decoder_layers=1 - case.model_spec.num_decoder_layers
    )
    with pytest.raises(UserError, match="^model.num_decoder_layers="):
        case.module.make_model(wrong, case.spec, vocab)


@pytest.mark.parametrize(
    "name, lacking",
    [
        ("mlm", "mask"),
        ("electra", "mask"),
        ("span_corruption", "pad"),
        ("span_corruption", "eos"),
    ],
)
def test_a_vocabulary_that_lacks_a_special_is_refused(name, lacking, make_case, vocab):
    case = make_case(name)
    poor = dataclasses.replace(vocab, **{lacking: None})
    with pytest.raises(UserError, match=f"tokenizer.specials must list '{lacking}'"):
        case.module.make_model(case.model_spec, case.spec, poor)
