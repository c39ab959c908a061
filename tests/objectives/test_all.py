"""What holds for every objective."""

import dataclasses
import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from products import count_products
from tiny import MODELS, VARIANTS

from jaxpt.dims import BATCH_KEYS, ROW_KEYS
from jaxpt.errors import UserError
from jaxpt.eval.evaluation import add_up
from jaxpt.learn.state import make_state
from jaxpt.nn.heads import Embedder
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.recurrent import CharCnn, Lstm
from jaxpt.nn.stacks import Stack
from jaxpt.objectives import OBJECTIVES
from jaxpt.ops.masks import materialise
from jaxpt.ops.metrics import add
from jaxpt.rng import stream
from jaxpt.text.tokens.vocab import Vocab

norm = optax.tree.norm
CASES = (*OBJECTIVES, *VARIANTS)
every = pytest.mark.parametrize("name", CASES)
named = pytest.mark.parametrize("name", OBJECTIVES)
# What the draw shows in, where it is not the inputs.
DRAWN = {"prefix_lm": "is_prefix", "skip_gram": "negatives"}
# What it draws nothing for: its batches are always the same.
DRAWS_NOTHING = ("clm", "causal_distillation", "bilm")
# What sees the past alone.
CAUSAL = ("clm", "causal_distillation")
# Loss terms of a model that knows nothing: their values and how far off they may be.
LN_V, LN_2 = math.log(40), math.log(2)
UNIFORM, EVEN = (LN_V, 0.05 * LN_V), (LN_2, 0.05 * LN_2)
# Of 20 tokens 3 are replaced, and p is 1/2 1/V; else it is 1/2 + 1/2 1/V.
COPIED = 0.15 * math.log(80) + 0.85 * math.log(80 / 41)
FIRST_LOSSES = {
    "electra": {"generator_loss": UNIFORM, "discriminator_loss": EVEN},
    "electra_15": {"generator_loss": UNIFORM, "discriminator_loss": EVEN},
    "replace_mlm": {"generator_loss": UNIFORM, "restoring_loss": UNIFORM},
    "all_tokens_mlm": {
        "generator_loss": UNIFORM,
        "restoring_loss": (COPIED, 0.05 * COPIED),
    },
    "bert": {"mlm_loss": UNIFORM, "nsp_loss": EVEN},
    "spanbert": {"mlm_loss": UNIFORM, "boundary_loss": UNIFORM},
    "clm_mlm": {"clm_loss": UNIFORM, "mlm_loss": UNIFORM},
    # Two models that know nothing agree on that, and their states on nothing.
    "distillation": {
        "kl_loss": (0.0, 0.05),
        "mlm_loss": UNIFORM,
        "cosine_loss": (1.0, 0.4),
    },
    "causal_distillation": {"kl_loss": (0.0, 0.05), "clm_loss": UNIFORM},
    "bilm": {"forward_loss": UNIFORM, "backward_loss": UNIFORM},
    # A pair and five negatives, one in 25 of which is the neighbour and left out.
    "skip_gram": {"loss": (6 * math.log(2), 0.3)},
}
# Objectives whose loss goes through two stacks; others have one, or say so here.
TWO = ("electra", "distillation", "causal_distillation", "bilm")
NUM_STACKS = {
    name: 2
    for name in CASES
    if "num_decoder_layers" in MODELS.get(name, {})
    or VARIANTS.get(name, (name,))[0] in TWO
}
# The stack whose embeddings no gradient reaches: a teacher's; ELMo's second direction
# reads those of the first.
UNREACHED = {"distillation": 1, "causal_distillation": 1, "bilm": 1}
# What gives embeddings, and what gives hidden states.
EMBEDDERS, NETWORKS = (Embedder, CharCnn), (Stack, Lstm)
# How wide the features are, in model widths.
FEATURES = {"bilm": 2}
# Where XLA's own count is no measure: of a loop it counts one turn; and skip-gram's
# tables are added to in whole, which here is as much as is multiplied.
UNCOUNTED = ("bilm", "skip_gram")
counted_by_xla = [name for name in CASES if name not in UNCOUNTED]
# Without layers: nothing to see through, to drop from or to isolate. Its negatives are
# other pairs' neighbours, so that no batch can be learnt by heart (test_skip_gram.py
# has what it comes to instead), and every draw leaves the inputs as they are.
STATIC = ("skip_gram",)
deep = pytest.mark.parametrize("name", [n for n in CASES if n not in STATIC])


def eight_rows(case, make_rows):
    """Rows of packed documents, whose weights differ; some end in [EOS]."""
    return make_rows(case, 8, lengths=[20, 3, 0, 12, 20, 7, 1, 16], with_eos=True)


@every
@pytest.mark.parametrize("is_packed", [False, True])
def test_a_row_is_corrupted_by_itself(
    name, is_packed, make_case, make_packed, make_rows
):
    case = make_packed(name) if is_packed else make_case(name)
    lengths = [18, 15, 9, 16, 18, 12] if is_packed else None
    rows = make_rows(case, 6, lengths=lengths)
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
    if name not in DRAWS_NOTHING:
        drawn = DRAWN.get(name, "inputs")
        assert (batch[drawn] != other[drawn]).any()
        # Equal rows at different places are corrupted apart.
        same = {key: value[:1].repeat(6, 0) for key, value in rows.items()}
        same["index"] = rows["index"]
        assert len(np.unique(np.asarray(case.corrupt(same)[drawn]), axis=0)) > 1


class Recorder(dict):
    """A dict that notes the keys that are read from it, or looked for."""

    def __init__(self, values):
        super().__init__(values)
        self.read = set()

    def __getitem__(self, key):
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key, default=None):
        self.read.add(key)
        return super().get(key, default)

    def __contains__(self, key):
        self.read.add(key)
        return super().__contains__(key)


@every
def test_an_objective_reads_the_keys_it_names(name, make_packed, make_rows, vocab):
    case = make_packed(name)
    rows = eight_rows(case, make_rows)
    recorder = Recorder(rows)

    def corrupt(rng):
        return case.module.corrupt(rng, recorder, vocab, case.spec)

    batch = jax.eval_shape(corrupt, jax.random.key(0))
    assert isinstance(case.module.READS, frozenset)
    assert recorder.read == case.module.READS <= set(ROW_KEYS)
    assert set(batch) <= set(BATCH_KEYS)


@every
def test_lengths_are_those_the_spec_says(name, make_case, make_rows):
    case = make_case(name)
    batch = case.corrupt(make_rows(case, 2))
    lengths = list(case.spec.lengths.values())
    assert batch["inputs"].shape[1] == lengths[0] <= 20
    if "dec_inputs" in batch:
        assert batch["dec_inputs"].shape[1] == lengths[1]
    assert set(batch) <= set(BATCH_KEYS)  # a closed set, with its glossary
    assert batch["inputs"].dtype == batch["targets"].dtype == jnp.int32
    assert batch["loss_weights"].dtype == jnp.float32
    assert batch["loss_weights"].shape == batch["targets"].shape


@every
def test_the_first_loss_is_that_of_knowing_nothing(name, make_case, make_rows, vocab):
    case = make_case(name)
    eval_step = case.module.make_eval_step(case.model, vocab, case.spec)

    @jax.jit
    def run(rng, rows):
        params = case.module.init_params(rng, case.model, case.spec)
        return eval_step(params, rows, rng)

    metrics = run(jax.random.key(0), make_rows(case, 16))
    means = {key: float(total / weight) for key, (total, weight) in metrics.items()}
    wanted = FIRST_LOSSES.get(name, {"loss": UNIFORM})
    for term, (value, gap) in wanted.items():
        assert means[term] == pytest.approx(value, abs=gap)
    assert set(case.spec.coefficients) == set(wanted)


@every
def test_every_row_is_measured_once(name, make_packed, make_rows, vocab):
    case = make_packed(name)
    rows = jax.tree.map(np.asarray, eight_rows(case, make_rows))
    step = jax.jit(case.module.make_eval_step(case.model, vocab, case.spec))
    batches = []

    def remember(params, batch, rng):
        batches.append(batch)
        return step(params, batch, rng)

    whole = add_up(remember, case.params, rows, 4)
    seven = {key: value[:7] for key, value in rows.items()}
    found = add_up(remember, case.params, seven, 4)
    rng = stream(0, 0, "evaluate")
    eighth = batches[1] | {"row_weights": np.float32([0, 0, 0, 1])}
    parts = add(found, step(case.params, eighth, rng))
    # What stands in a row that only fills up its batch is as good as any other.
    filled = batches[3]
    fills = {key: value[[0, 1, 2, 0]] for key, value in filled.items() if key in rows}
    fills["index"] = filled["index"]
    first, last = batches[2], filled | fills
    again = add(*(step(case.params, batch, rng) for batch in (first, last)))
    assert filled["row_weights"].tolist() == [1, 1, 1, 0]
    assert (fills["tokens"] != filled["tokens"]).any() and found.keys() == whole.keys()
    for metric in whole:
        assert whole[metric][1] > 0
        np.testing.assert_allclose(parts[metric], whole[metric], rtol=1e-5)
        np.testing.assert_array_equal(found[metric], again[metric])


@deep
def test_one_batch_is_learnt_by_heart(name, make_case, make_rows, make_taught, vocab):
    case = make_case(name)
    rows = make_rows(case, 4)
    # First tokens differ: nothing else tells a causal model which row it reads.
    rows["tokens"] = rows["tokens"].at[:, 0].set(jnp.arange(4) + 10)
    if name == "bilm":  # nor a model that reads from the end
        rows["tokens"] = rows["tokens"].at[:, -1].set(jnp.arange(4) + 15)
    case = make_taught(name, case, rows)
    optimizer = optax.adam(1e-2)
    step = case.make_step(optimizer)

    step, state = jax.jit(step), make_state(case.params, optimizer)
    for _ in range(300):
        state, metrics = step(state, rows, jax.random.key(3))
    for term in case.spec.coefficients:
        total, weight = metrics[term]
        assert total / weight < 0.03, term
    assert int(state.step) == 300


@named
def test_microbatches_do_not_change_the_gradient(name, make_packed, make_rows):
    case = make_packed(name)
    rows = eight_rows(case, make_rows)
    wanted, sums = case.gradients(rows)
    size = norm(wanted)
    assert size > 0
    for num_microbatches in (2, 4, 8) if name == "mlm" else (4,):
        grads, metrics = case.gradients(rows, num_microbatches)
        gap = norm(jax.tree.map(jnp.subtract, grads, wanted))
        assert gap / size < 1e-6, num_microbatches
        for key, (total, weight) in sums.items():
            np.testing.assert_allclose(metrics[key][0], total, rtol=1e-5)
            np.testing.assert_allclose(metrics[key][1], weight, rtol=1e-6)


@named
def test_padding_changes_nothing(name, make_packed, make_rows):
    case = make_packed(name)
    rows = eight_rows(case, make_rows)
    is_padding = rows["segment_ids"] == 0
    others = rows | {"tokens": jnp.where(is_padding, 8, rows["tokens"])}
    (grads, sums), (other_grads, other_sums) = map(case.gradients, (rows, others))
    for metric in sums:
        np.testing.assert_allclose(sums[metric], other_sums[metric], rtol=1e-6)
    gap = norm(jax.tree.map(jnp.subtract, grads, other_grads))
    assert gap / norm(grads) < 1e-6


# Keys of a batch that hold a document's tokens, and those that say whose they are.
TOKENS = {"inputs": "segment_ids", "original": "segment_ids"}
DEC_TOKENS = {"dec_inputs": "dec_segment_ids"}
TYPES = {"type_ids": "segment_ids"}
# Stacks that are run one after the other, where they are not one.


def weights_of(batch, document):
    """The batch with the loss of one document only."""
    ids = batch.get("dec_segment_ids", batch["segment_ids"])
    if "positions" in batch:
        ids = jnp.take_along_axis(ids, batch["masked_positions"], axis=1)
    slots = [key for key in ("loss_weights", "boundary_weights") if key in batch]
    batch = batch | {key: batch[key] * (ids == document) for key in slots}
    for key in {"real", "restored", "soft_weights", "back_weights"} & set(batch):
        batch[key] *= batch["segment_ids"] == document
    if "is_pair" in batch:  # is read at the row's first place
        batch["is_pair"] *= batch["segment_ids"][:, 0] == document
    if "fill_positions" in batch:
        ids = jnp.take_along_axis(batch["segment_ids"], batch["fill_positions"], axis=1)
        batch["fill_weights"] *= ids == document
    return batch


def read(case, batch, is_array=False, shifts=2 * [np.zeros(32)], params=None):
    """The loss, and the hidden states of each stack as they come.

    `shifts` are added to the embeddings, first those of the first stack, as far as
    these are wide.
    """
    hidden, embedded = [], []

    def intercept(call, args, kwargs, context):
        out = call(*args, **kwargs)
        if context.method_name == "__call__":
            if isinstance(context.module, EMBEDDERS):
                embedded.append(out)
                out = out + shifts[len(embedded) - 1][..., : out.shape[-1]]
            if isinstance(context.module, NETWORKS):
                hidden.append(out[0] if isinstance(out, tuple) else out)
        return out

    masks = case.module.masks(batch)
    if is_array:
        inputs = batch["inputs"].shape[1]
        targets = batch.get("dec_inputs", batch["inputs"]).shape[1]
        sizes = {"self": (inputs, inputs), "dec_self": (targets, targets)}
        sizes["cross"] = targets, inputs
        sizes |= dict.fromkeys(("forward", "backward"), (inputs, inputs))
        masks = {key: materialise(mask, *sizes[key]) for key, mask in masks.items()}
    rngs = {"sample": jax.random.key(1)}
    params = case.params if params is None else params
    with nn.intercept_methods(intercept):
        terms, _ = case.module.loss(params, case.model, batch, masks, rngs)
    return sum(total for total, _ in terms.values()), hidden


def whose(batch):
    """The segment ids of each stack's places."""
    ids = batch["segment_ids"]
    return ids, batch.get("dec_segment_ids", ids)


@deep
@pytest.mark.parametrize("is_array", [False, True])
def test_packed_documents_are_isolated(name, is_array, make_packed, make_rows, vocab):
    case = make_packed(name)
    rows = make_rows(case, 4, lengths=[18, 12, 15, 9], with_eos=True)
    tokens = rows["tokens"]
    changed = (rows["segment_ids"] == 1) & (tokens != vocab.eos)
    others = jnp.where(changed, (tokens - 7 + 5) % 25 + 7, tokens)  # all ordinary
    batch, other = case.corrupt(rows), case.corrupt(rows | {"tokens": others})
    for key, ids in (TOKENS | DEC_TOKENS).items():
        if key in batch:
            np.testing.assert_array_equal(batch[ids], other[ids])
            is_second = np.asarray(batch[ids] == 2)
            gap = np.asarray(batch[key] != other[key])
            assert gap[batch[ids] == 1].any() and not gap[is_second].any()

    @jax.jit
    def run(params, batch):
        batch = weights_of(batch, 2)
        shifts = [jnp.zeros((*ids.shape, 32)) for ids in whose(batch)]
        grad = jax.value_and_grad(
            lambda params, shifts: read(case, batch, is_array, shifts, params),
            argnums=(0, 1),
            has_aux=True,
        )
        return grad(params, shifts)

    (loss, hidden), (grads, reach) = run(case.params, batch)
    (other_loss, other_hidden), (other_grads, _) = run(case.params, other)
    assert loss > 0
    np.testing.assert_allclose(loss, other_loss, rtol=1e-6)
    gap = norm(jax.tree.map(jnp.subtract, grads, other_grads))
    assert gap / norm(grads) < 1e-5
    assert len(hidden) == NUM_STACKS.get(name, 1)
    stacks = zip(whose(batch), hidden, other_hidden, reach)
    for i, (ids, found, wanted, grad) in enumerate(stacks):
        first, second = np.asarray(ids == 1), np.asarray(ids == 2)
        np.testing.assert_allclose(found[second], wanted[second], rtol=1e-5, atol=1e-6)
        assert (np.abs(found - wanted)[first].max(-1) > 1e-3).any()
        # The second document's loss does not reach the first's embeddings.
        np.testing.assert_array_equal(grad[first], 0)
        if UNREACHED.get(name) == i:
            np.testing.assert_array_equal(grad, 0)
            continue
        assert (np.abs(grad[second]).max(-1) > 0).sum() > second.sum() / 2


@pytest.mark.parametrize(
    "name, positions",
    [(name, "learned") for name in CASES if name not in STATIC]
    + [("span_corruption", "relative"), ("electra", "sinusoidal")],
)
def test_a_packed_document_is_read_as_if_alone(name, positions, make_packed, make_rows):
    case = make_packed(name, (("positions", positions),))
    rows = make_rows(case, 1, lengths=[min(16, case.spec.row_length)])
    batch = case.corrupt(rows)
    # No sample of ELECTRA's generator, which is drawn by its slot, is written.
    silent = {"loss_weights": 0 * batch["loss_weights"]}
    run = jax.jit(lambda batch: read(case, batch)[1])
    packed = run(batch | silent)
    for document in (1, 2):
        alone = {"index": batch["index"], "loss_weights": jnp.zeros((1, 1))}
        for key, ids in (TOKENS | DEC_TOKENS | TYPES).items():
            if key in batch:
                alone[key] = batch[key][batch[ids] == document][None]
        if "is_prefix" in batch:
            own = batch["segment_ids"] == document
            alone["is_prefix"] = batch["is_prefix"][own][None]
        if "fill_positions" in batch:
            alone |= {"fill_positions": jnp.zeros((1, 1), int)}
            alone |= {"fill_weights": jnp.zeros((1, 1))}
        targets = alone.get("dec_inputs", alone["inputs"])
        alone |= {"targets": targets, "loss_weights": jnp.zeros(targets.shape)}
        if "positions" in batch:
            ones = jnp.ones(targets.shape)
            alone |= {"positions": 0 * targets, "real": ones, "restored": ones}
            alone |= {"span_starts": 0 * targets, "span_ends": 0 * targets}
            alone |= {"boundary_weights": 0 * ones, "soft_weights": ones}
        if "back_targets" in batch:
            alone |= {"back_targets": targets, "back_weights": alone["loss_weights"]}
        for ids, found, wanted in zip(whose(batch), packed, run(alone)):
            own = np.asarray(ids == document)
            assert wanted.shape[1] == own.sum() >= 2
            np.testing.assert_allclose(found[own], wanted[0], rtol=1e-3, atol=2e-5)


@deep
def test_training_drops_and_evaluating_does_not(name, make_packed, make_rows, vocab):
    case, plain = make_packed(name, (("dropout", 0.5),)), make_packed(name)
    rows, key = eight_rows(case, make_rows), jax.random.key(0)
    steps = [c.module.make_eval_step(c.model, vocab, c.spec) for c in (case, plain)]
    found, wanted = jax.jit(lambda p: [s(p, rows, key) for s in steps])(plain.params)
    for metric in wanted:
        np.testing.assert_allclose(found[metric], wanted[metric], rtol=1e-6)
    _, sums = case.gradients(rows)
    _, plain_sums = plain.gradients(rows)
    terms = case.spec.coefficients
    assert all(sums[term][0] != plain_sums[term][0] for term in terms)


GATED = {"gated_mlp": True, "activation": "silu", "num_kv_heads": 2}


def costed(name, values, settings):
    """What a row's training costs; the module's steps, and what they are given."""
    objective, given = VARIANTS.get(name, (name, {}))
    module = OBJECTIVES[objective]
    ids = {"pad": 0, "eos": 1, "mask": 2, "nlu": 3, "nlg": 4, "s2s": 5}
    ids |= {"sentinels": tuple(range(599, 579, -1)), "word_starts": (True,) * 600}
    vocab = Vocab(size=600, **ids, pieces=(b"piece",) * 600, counts=(1,) * 600)
    spec = module.Spec.for_seq_len(96, **given | settings)
    sizes = {"vocab_size": 600, "d_model": 256, "num_heads": 4, "d_ff": 1024}
    sizes |= {"num_layers": 1} | MODELS.get(name, {})
    model_spec = ModelSpec(**(sizes | values))
    model = spec.make_network(model_spec, vocab)
    params = jax.eval_shape(
        lambda key: module.init_params(key, model, spec), jax.random.key(0)
    )
    rows = {
        "tokens": jax.ShapeDtypeStruct((2, spec.row_length), jnp.int32),
        "index": jax.ShapeDtypeStruct((2,), jnp.int32),
    }
    for key in getattr(module, "needs", lambda spec: {})(spec):
        rows[key] = rows["tokens" if key.endswith("_ids") else "index"]
    if "max_documents" in settings:
        rows["segment_ids"] = rows["tokens"]
    train_step = module.make_train_step(model, vocab, spec, optax.identity())
    eval_step = module.make_eval_step(model, vocab, spec)
    return (
        spec.make_network(model_spec, VOCAB).count_flops(
            spec.lengths, spec.num_predictions
        ),
        train_step,
        eval_step,
        params,
        rows,
    )


@pytest.mark.parametrize(
    "name, values, settings",
    [
        ("clm", {}, {}),
        ("clm", GATED | {"positions": "rotary"}, {}),
        ("mlm", {"embedding_size": 128}, {}),
        ("mlm", {"head_transform": True, "norm_position": "post"}, {"mask_rate": 0.3}),
        ("span_corruption", {"embedding_size": 128}, {}),
        ("span_corruption", GATED | {"tie_embeddings": False}, {"max_documents": 4}),
        ("ul2", {}, {}),
        ("ul2/seq2seq", {"embedding_size": 128}, {"max_documents": 4}),
        ("clm_mlm", GATED, {"mask_rate": 0.3}),
        ("prefix_lm", {"embedding_size": 128}, {}),
        ("prefix_lm/seq2seq", GATED, {}),
        ("electra", {}, {"generator_size": 0.5}),
        ("electra", GATED | {"embedding_size": 128, "num_kv_heads": 1}, {}),
        ("bert", {"embedding_size": 128}, {}),
        ("bert", {"head_transform": True}, {"sentence_task": "none"}),
        ("bart", {"embedding_size": 128}, {}),
        ("bart", {"tie_embeddings": False}, {"insert_rate": 0.1}),
        ("bert", GATED, {"sentence_task": "sop", "max_predictions": 5}),
        ("electra_15", {"embedding_size": 128}, {"generator_size": 0.5}),
        ("spanbert", {"embedding_size": 128, "head_transform": True}, {}),
        ("replace_mlm", {"embedding_size": 128}, {"masking": "spans"}),
        ("replace_mlm", {}, {"share_embeddings": False}),
        ("all_tokens_mlm", {"embedding_size": 128}, {"mask_rate_end": 0.3}),
    ],
)
def test_flops_are_those_of_the_products(name, values, settings):
    counted, _, step, params, rows = costed(name, values, settings)
    key = jax.random.key(0)
    assert count_products(step, params, rows, key) / 2 == counted / 3


LARGE = dataclasses.asdict(
    ModelSpec(vocab_size=600, num_layers=2, d_model=256, num_heads=8, d_ff=512)
)


@pytest.mark.parametrize(
    "name, settings",
    [
        ("mlm", {}),
        ("distillation", {"teacher_model": LARGE}),
        ("distillation", {"teacher_model": LARGE, "restrict_kl": True}),
        ("causal_distillation", {"teacher_model": LARGE}),
        ("bilm", {}),
        ("bilm", {"filters": (5, 7), "num_highway": 1, "num_chars": 20}),
    ],
)
def test_flops_are_those_of_a_training_steps_products(name, settings):
    """Where not everything is trained, the passes back are not twice those ahead."""
    counted, step, _, params, rows = costed(name, {}, settings)
    state = jax.eval_shape(lambda p: make_state(p, optax.identity()), params)
    assert count_products(step, state, rows, jax.random.key(0)) / 2 == counted


@pytest.mark.parametrize("name", counted_by_xla)
def test_flops_are_what_xla_counts_of_a_step(name):
    counted, step, _, params, rows = costed(name, {}, {})
    state = jax.eval_shape(lambda p: make_state(p, optax.identity()), params)
    compiled = jax.jit(step).lower(state, rows, jax.random.key(0)).compile()
    cost = compiled.cost_analysis()["flops"] / 2
    # It counts what is no product, too.
    assert counted == pytest.approx(cost, rel=0.05) and counted < cost


@every
def test_features_are_hidden_states_of_plain_text(name, make_case, make_rows):
    case = make_case(name)
    tokens = make_rows(case, 3)["tokens"][:, :9]
    features = jax.jit(lambda p, t: case.model.features(p, t))
    found = features(case.params, tokens)
    width = 32 * FEATURES.get(name, 1)
    assert found.shape == (3, 9, width) and found.dtype == jnp.float32
    later = features(case.params, tokens.at[:, 5:].set(8))
    assert np.allclose(found[:, :5], later[:, :5], atol=1e-6) == (
        name in (*CAUSAL, *STATIC)
    )


@every
def test_the_wrong_number_of_stacks_is_refused(name, make_case, vocab):
    case = make_case(name)
    wrong = dataclasses.replace(
        case.model_spec, num_decoder_layers=1 - case.model_spec.num_decoder_layers
    )
    with pytest.raises(UserError, match="^model.num_decoder_layers="):
        case.spec.make_network(wrong, vocab)


@pytest.mark.parametrize(
    "name, lacking",
    [
        ("mlm", "mask"),
        ("electra", "mask"),
        ("bert", "mask"),
        ("bart", "mask"),
        ("bart", "pad"),
        ("distillation", "mask"),
        ("span_corruption", "pad"),
        ("span_corruption", "eos"),
        ("clm_mlm", "mask"),
        ("ul2", "pad"),
        ("ul2", "eos"),
        ("ul2", "nlu"),
        ("ul2", "nlg"),
        ("ul2/seq2seq", "s2s"),
        ("prefix_lm", "pad"),
        ("prefix_lm/seq2seq", "eos"),
    ],
)
def test_a_vocabulary_that_lacks_a_special_is_refused(name, lacking, make_case, vocab):
    case = make_case(name)
    poor = dataclasses.replace(vocab, **{lacking: None})
    with pytest.raises(UserError, match=f"tokenizer.specials must list '{lacking}'"):
        case.spec.make_network(case.model_spec, poor)
