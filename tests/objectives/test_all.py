"""What holds for every objective, and for every kind of network that one trains.

A test is of every objective, or, where the network alone makes it true, of the first
objective of each kind, as its docstring says then. What the tests must be told of an
objective is its line of `tiny.TRAITS`; all else they ask of its spec and its network.
"""

import dataclasses
import functools
import inspect
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from products import count_products
from tiny import MODELS, TRAITS, VARIANTS, Traits, slow, slow_but

from jaxpt.dims import BATCH_KEYS, ROW_KEYS
from jaxpt.errors import UserError
from jaxpt.evaluation.likelihood import add_up
from jaxpt.learn.state import make_state
from jaxpt.learn.update import Update
from jaxpt.nn.heads import Embedder
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.bilm import BiLm
from jaxpt.nn.networks.skip_gram import SkipGram
from jaxpt.nn.recurrent import CharCnn, Lstm
from jaxpt.nn.stacks import Stack
from jaxpt.objectives import OBJECTIVES, objective
from jaxpt.ops.masks import materialise
from jaxpt.ops.metrics import add
from jaxpt.rng import split_step, stream
from jaxpt.text.tokens.vocab import SPECIALS, Vocab

norm = optax.tree.norm
CASES = (*OBJECTIVES, *VARIANTS)
every = pytest.mark.parametrize("name", CASES)
named = pytest.mark.parametrize("name", OBJECTIVES)
# What gives embeddings, and what gives hidden states.
EMBEDDERS, STACKS = (Embedder, CharCnn), (Stack, Lstm)


def module_and_settings(name):
    """The module of an objective or of a variant, and its settings."""
    objective, settings = VARIANTS.get(name, (name, {}))
    return OBJECTIVES[objective], settings


def kind_of(name):
    """The kind of network of a case."""
    module, _ = module_and_settings(name)
    return module.Spec.kind(MODELS.get(name, {}).get("num_decoder_layers", 0))


def traits_of(name):
    """What a case says of itself; the usual, where it says nothing."""
    return TRAITS.get(name, Traits())


# Without layers: nothing to see through, to drop from or to isolate. Its negatives are
# other pairs' neighbours, so that no batch can be learnt by heart (test_skip_gram.py
# has what it comes to instead), and every draw leaves the inputs as they are.
STATIC = (SkipGram,)
deep_cases = [name for name in CASES if kind_of(name) not in STATIC]
deep = pytest.mark.parametrize("name", deep_cases)
# The first case of each kind.
BY_KIND = {kind_of(name): name for name in reversed(CASES)}
per_kind = pytest.mark.parametrize("name", [n for n in CASES if n in BY_KIND.values()])


# What each objective's own text makes true, of its variants with `make test-all`; and
# what compiles steps of training, where all call one `Update`, of a few.
each = pytest.mark.parametrize("name", slow_but(OBJECTIVES, CASES))
each_deep = pytest.mark.parametrize("name", slow_but(OBJECTIVES, deep_cases))
FEW = ("clm", "electra", "masked_diffusion")
few_steps = pytest.mark.parametrize("name", slow_but(FEW, OBJECTIVES))
deep_kinds = [name for name in deep_cases if name in BY_KIND.values()]
# Their stack reads a row twice, and isolates documents in its own tests.
READ_TWICE = ("block_diffusion", "growing_blocks")
read_once = [name for name in deep_kinds if name not in READ_TWICE]
# Where XLA's own count is a measure: of a loop it counts one turn.
counted_by_xla = [name for name in deep_kinds if kind_of(name) is not BiLm]


def eight_rows(case, make_rows):
    """Rows of packed documents, whose weights differ; some end in [EOS]."""
    return make_rows(case, 8, lengths=[20, 3, 0, 12, 20, 7, 1, 16], with_eos=True)


# Rows themselves have a target: whether a pair is random, or swapped.
ROW_TERMS = ("bert",)


def take(batch, places):
    """Some rows of a batch."""
    return jax.tree.map(lambda x: x[places], batch)


@pytest.mark.slow_except(
    "*-electra_15",
    "*-replace_mlm",
    "*-ul2/seq2seq",
    "*-all_tokens_mlm",
    "*-prefix_lm/seq2seq",
    "*-causal_distillation",
    "True-clm",
    "True-bilm",
)
@each
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
    check = functools.partial(jax.tree.map, np.testing.assert_array_equal)
    check(batch, again)
    check(take(batch, order), permuted)
    check(take(batch, slice(2, 5)), half)
    check(take(batch, slice(3)), take(in_company, slice(3)))
    drawn = traits_of(name).drawn
    if not drawn:
        check(batch, other)
        return
    assert (batch[drawn] != other[drawn]).any()
    # Equal rows at different places are corrupted apart.
    same = {key: value[:1].repeat(6, 0) for key, value in rows.items()}
    same["index"] = rows["index"]
    assert len(np.unique(np.asarray(case.corrupt(same)[drawn]), axis=0)) > 1


@named
def test_a_module_is_all_that_the_protocol_says(name):
    module, expected = OBJECTIVES[name], objective.Objective
    assert issubclass(module.Spec, objective.ObjectiveSpec)
    assert module.Spec.SECTION == name
    functions = [
        key for key in vars(expected) if inspect.isfunction(vars(expected)[key])
    ]
    functions = {key for key in functions if not key.startswith("_")}
    assert functions == {"corrupt", "masks", "loss", "train_step"}
    for key in functions:
        _, *parameters = inspect.signature(getattr(expected, key)).parameters.values()
        result = inspect.signature(getattr(module, key)).parameters.values()
        output = [(p.name, p.kind, p.default) for p in result]
        assert output == [(p.name, p.kind, p.default) for p in parameters], key


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


@pytest.mark.slow_cases("ul2", "bart", "spanbert", "ul2/seq2seq")
@every
def test_an_objective_reads_the_keys_it_names(name, make_packed, make_rows, vocab):
    case = make_packed(name)
    rows = eight_rows(case, make_rows)
    recorder = Recorder(rows)

    def corrupt(rng):
        return case.module.corrupt(rng, recorder, vocab, case.spec)

    batch = jax.eval_shape(corrupt, jax.random.key(0))
    assert isinstance(case.spec.READS, frozenset)
    result = recorder.read
    if type(case.spec).coefficients_at is not objective.ObjectiveSpec.coefficients_at:
        result = result | {"progress"}  # which a step then reads
    assert result == case.spec.READS <= set(ROW_KEYS)
    assert set(batch) <= set(BATCH_KEYS)
    # XLA's compiler crashes on an array without elements under pmap.
    assert all(x.size for x in jax.tree.leaves(batch))
    assert set(batch["weights"]) == set(case.spec.coefficients)


@pytest.mark.slow_except("clm", "bilm", "causal_distillation")
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
    weights = batch["weights"].values()
    assert all(x.dtype == jnp.float32 for x in weights)
    assert batch["targets"].shape in [x.shape for x in weights]
    # Of each place, of each of P predictions, or of the row.
    keys = {"inputs", "targets", "masked_positions"} & set(batch)
    assert {x.shape for x in weights} <= {batch[key].shape for key in keys} | {(2,)}


@pytest.mark.slow_except(
    "skip_gram",
    "electra_15",
    "replace_mlm",
    "ul2/seq2seq",
    "all_tokens_mlm",
    "prefix_lm/seq2seq",
)
@each
def test_the_first_loss_is_that_of_knowing_nothing(name, make_packed, make_rows):
    """With the parameters of the first step of one of each kind of network."""
    case = make_packed(name)
    params = case.params
    if name in BY_KIND.values():
        params = jax.jit(case.model.init_params)(jax.random.key(0))
    rows = jax.tree.map(np.asarray, make_rows(case, 32, lengths=32 * [20]))
    metrics = add_up(case.evaluate, params, rows, 4)
    means = {key: float(total / weight) for key, (total, weight) in metrics.items()}
    expected = traits_of(name).first_losses
    for term, (value, gap) in expected.items():
        assert means[term] == pytest.approx(value, abs=gap)
    assert set(case.spec.coefficients) == set(expected)


@pytest.mark.slow_except("skip_gram")
@every
def test_every_row_is_measured_once(name, make_packed, make_rows):
    case = make_packed(name)
    rows = jax.tree.map(np.asarray, eight_rows(case, make_rows))
    step, batches = case.evaluate, []

    def remember(params, batch, rng):
        batches.append(batch)
        return step(params, batch, rng)

    whole = add_up(remember, case.params, rows, 4)
    seven = {key: value[:7] for key, value in rows.items()}
    result = add_up(remember, case.params, seven, 4)
    rng = stream(0, 0, "evaluate")
    eighth = batches[1] | {"row_weights": np.float32([0, 0, 0, 1])}
    parts = add(result, step(case.params, eighth, rng))
    # The content of a row that only fills up its batch does not matter.
    filled = batches[3]
    fills = {key: value[[0, 1, 2, 0]] for key, value in filled.items() if key in rows}
    fills["index"] = filled["index"]
    first, last = batches[2], filled | fills
    again = add(*(step(case.params, batch, rng) for batch in (first, last)))
    assert filled["row_weights"].tolist() == [1, 1, 1, 0]
    assert (fills["tokens"] != filled["tokens"]).any() and result.keys() == whole.keys()
    for metric in whole:
        assert whole[metric][1] > 0
        np.testing.assert_allclose(parts[metric], whole[metric], rtol=1e-5)
        np.testing.assert_array_equal(result[metric], again[metric])
    # A batch of such rows alone is nothing.
    nothing = step(case.params, filled | {"row_weights": np.zeros(4, "f4")}, rng)
    assert not any(weight for _, weight in nothing.values())
    assert not any(total for total, _ in nothing.values())


@pytest.mark.slow_except("bilm", "masked_diffusion", "causal_distillation")
@every
def test_a_terms_weight_is_the_batchs(name, make_packed, make_rows, vocab):
    """And the terms are those with a coefficient; metrics are not terms."""
    case = make_packed(name)
    batch = eight_rows(case, make_rows) | {"row_weights": jnp.arange(8) % 3 / 2}
    rows = {key: value[:4] for key, value in batch.items()}
    key = jax.random.key(0)

    @jax.jit
    def weigh(rows):
        rng, factors = split_step(key)["corrupt"], rows["row_weights"]
        sums = [
            jax.tree.map(
                lambda x: (x.T * factors).sum(),
                case.module.corrupt(rng, rows, vocab, spec)["weights"],
            )
            for spec in case.spec.evaluated
        ]
        return jax.tree.map(lambda *each: sum(each), *sums)

    def read(params, rows, spec):
        batch = case.module.corrupt(key, rows, vocab, spec)
        masks = case.module.masks(batch)
        return case.module.loss(params, case.model, batch, masks, {"sample": key})

    result, expected = case.evaluate(case.params, rows, key), weigh(rows)
    names = set()
    for spec in case.spec.evaluated:
        run = functools.partial(read, spec=spec)
        terms, metrics = jax.eval_shape(run, case.params, rows)
        assert set(terms) == set(case.spec.coefficients) == set(expected)
        names |= set(metrics)
    assert names == set(result) - set(terms)
    for term in terms:
        np.testing.assert_allclose(result[term][1], expected[term], rtol=1e-6)


@each_deep
def test_one_batch_is_learnt_by_heart(name, make_case, make_rows, make_taught):
    case = make_case(name)
    rows = make_rows(case, 4)
    # First tokens differ: only they identify the row for a causal model; and,
    # of the last ones, a model that reads from the end.
    rows["tokens"] = rows["tokens"].at[:, 0].set(jnp.arange(4) + 10)
    rows["tokens"] = rows["tokens"].at[:, -1].set(jnp.arange(4) + 15)
    case = make_taught(name, case, rows)
    if traits_of(name).is_trained_by_progress:
        rows["progress"] = jnp.zeros(4)
    optimizer = optax.adam(optax.cosine_decay_schedule(1e-2, 300))
    step = case.make_step(optimizer)

    @jax.jit
    def learn(state, rows):
        body = lambda state, _: step(state, rows, jax.random.key(3))  # noqa: E731
        return jax.lax.scan(body, state, length=300)

    state, metrics = learn(case.init_state(optimizer), rows)
    for term in case.spec.coefficients:
        totals, weights = metrics[term]
        losses = totals / weights
        # Of targets that are distributions, their entropy is left.
        share = 0.3 if term in traits_of(name).soft else 0.1
        assert losses[-1] < share * losses[0] or not losses.any(), term
    assert int(state.step) == 300


@pytest.mark.slow_cases("clm", "electra", "masked_diffusion")
@few_steps
def test_microbatches_do_not_change_the_gradient(name, make_packed, make_rows):
    """In four parts; in others, which no objective sees: tests/learn/test_update.py."""
    if traits_of(name).selects:
        pytest.skip("tokens are selected in each: test_selective_clm.py")
    case = make_packed(name)
    rows = eight_rows(case, make_rows)
    expected, sums = case.gradients(rows)
    size = norm(expected)
    assert size > 0
    grads, metrics = case.gradients(rows, num_microbatches=4)
    gap = norm(jax.tree.map(jnp.subtract, grads, expected))
    assert gap / size < 1e-6
    for key, (total, weight) in sums.items():
        np.testing.assert_allclose(metrics[key][0], total, rtol=1e-5)
        np.testing.assert_allclose(metrics[key][1], weight, rtol=1e-6)


@pytest.mark.slow_except("mlm", "electra", "bert", "spanbert", "bart", "ul2", "clm")
@each
def test_a_batch_without_targets_adds_nothing(name, make_packed, make_rows, vocab):
    """Rows of padding alone, and of special tokens alone: sums, gradients are finite.

    A term without targets has the sum 0.
    """
    case = make_packed(name)
    rows = eight_rows(case, make_rows)
    empty = rows | {"segment_ids": jnp.zeros_like(rows["segment_ids"])}
    special = rows | {"tokens": jnp.full_like(rows["tokens"], vocab.sep)}
    for each_rows, is_empty in ((empty, True), (special, False)):
        grads, metrics = case.gradients(each_rows)
        assert all(np.isfinite(x).all() for x in jax.tree.leaves((grads, metrics)))
        for term in case.spec.coefficients:
            total, weight = metrics[term]
            assert weight or not total, term
            assert not (is_empty and weight) or name in ROW_TERMS, term


@pytest.mark.slow_cases("clm", "electra")
@few_steps
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


def segment_ids_of(batch):
    """The segment ids of each stack's places."""
    ids = batch["segment_ids"]
    return ids, batch.get("dec_segment_ids", ids)


def weights_of(batch, document):
    """The batch with the loss of one document only."""
    _, ids = segment_ids_of(batch)
    positions = batch.get("masked_positions")

    def keep(weights):
        places = ids
        if weights.ndim == 1:  # is read at the row's first place
            places = ids[:, 0]
        elif positions is not None and weights.shape == positions.shape:
            places = jnp.take_along_axis(ids, positions, axis=1)
        return weights * (places == document)

    return batch | {"weights": jax.tree.map(keep, batch["weights"])}


def cut_out(batch, document):
    """The batch of one row with one of its documents only, none of it with a loss."""
    inputs, targets = (np.asarray(ids[0] == document) for ids in segment_ids_of(batch))

    def cut(path, x):
        is_decoders = path[0].key.startswith("dec_") or path[0].key == "targets"
        if "dec_inputs" in batch and (is_decoders or path[0].key == "weights"):
            return x[:, targets]
        # Here the P positions are others, and have no loss.
        is_of_inputs = x.shape[:2] == batch["inputs"].shape
        return x[:, inputs] if is_of_inputs else 0 * x

    alone = jax.tree_util.tree_map_with_path(cut, batch)
    for key in ("segment_ids", "dec_segment_ids"):
        alone.pop(key, None)
    return silence(alone) | {"index": batch["index"]}


def silence(batch):
    """The batch without any loss: no sample of a generator is written, either."""
    return batch | {"weights": jax.tree.map(jnp.zeros_like, batch["weights"])}


def read(case, batch, is_array=False, shifts=2 * [np.zeros(32)], params=None):
    """The loss; the hidden states of each stack, and the embeddings, as they come.

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
            if isinstance(context.module, STACKS):
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
    return sum(total for total, _ in terms.values()), (hidden, embedded)


@pytest.mark.slow_except(
    "clm-True",
    "electra_15-False",
    "replace_mlm-False",
    "ul2/seq2seq-False",
    "all_tokens_mlm-False",
    "prefix_lm/seq2seq-False",
)
@pytest.mark.parametrize(
    "name, is_array",
    [
        pytest.param(name, False, marks=[] if name in OBJECTIVES else pytest.mark.slow)
        for name in deep_cases
        if name not in READ_TWICE
    ]
    + [(name, True) for name in read_once],
)
def test_packed_documents_are_isolated(name, is_array, make_packed, make_rows, vocab):
    """By masks stated by structure; as arrays they are each kind of network's."""
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
        shifts = [jnp.zeros((*ids.shape, 32)) for ids in segment_ids_of(batch)]
        grad = jax.value_and_grad(
            lambda params, shifts: read(case, batch, is_array, shifts, params),
            argnums=(0, 1),
            has_aux=True,
        )
        return grad(params, shifts)

    (loss, (hidden, embedded)), (grads, reach) = run(case.params, batch)
    (other_loss, (other_hidden, _)), (other_grads, _) = run(case.params, other)
    assert loss > 0
    np.testing.assert_allclose(loss, other_loss, rtol=1e-6)
    gap = norm(jax.tree.map(jnp.subtract, grads, other_grads))
    assert gap / norm(grads) < 1e-5
    names, frozen = list(case.spec.lengths), case.model.frozen
    if traits_of(name).selects:
        names = [stack for stack in names if stack not in frozen]
    assert len(hidden) == len(names) and len(embedded) in (1, len(names))
    stacks = zip(names, segment_ids_of(batch), hidden, other_hidden, reach)
    for i, (stack, ids, result, expected, grad) in enumerate(stacks):
        first, second = np.asarray(ids == 1), np.asarray(ids == 2)
        np.testing.assert_allclose(
            result[second], expected[second], rtol=1e-5, atol=1e-6
        )
        assert (np.abs(result - expected)[first].max(-1) > 1e-3).any()
        # The second document's loss does not reach the first's embeddings.
        np.testing.assert_array_equal(grad[first], 0)
        # A teacher is not trained; ELMo's second direction reads what the first does.
        if stack in frozen or i >= len(embedded):
            np.testing.assert_array_equal(grad, 0)
            continue
        assert (np.abs(grad[second]).max(-1) > 0).sum() > second.sum() / 2


@pytest.mark.slow_except("clm", "electra", "span_corruption")
@pytest.mark.parametrize("name", read_once)
def test_packed_documents_are_isolated_with_value_embeddings_and_smear(
    name, make_packed, make_rows, vocab
):
    values = ("value_embeddings", True), ("smear", True)
    make = functools.partial(make_packed, model_values=values)
    test_packed_documents_are_isolated(name, False, make, make_rows, vocab)


@pytest.mark.slow_except("masked_diffusion-learned")
@pytest.mark.parametrize(
    "name, positions",
    [(name, "learned") for name in read_once]
    + [("span_corruption", "relative"), ("electra", "sinusoidal")],
)
def test_a_packed_document_is_read_as_if_alone(name, positions, make_packed, make_rows):
    """Places are each kind of network's to count; who is seen: the test above."""
    case = make_packed(name, (("positions", positions),))
    rows = make_rows(case, 1, lengths=[min(16, case.spec.row_length)])
    batch = case.corrupt(rows)
    run = jax.jit(lambda batch: read(case, batch)[1][0])
    packed = run(silence(batch))
    for document in (1, 2):
        alone = run(cut_out(batch, document))
        for ids, result, expected in zip(segment_ids_of(batch), packed, alone):
            own = np.asarray(ids == document)
            assert expected.shape[1] == own.sum() >= 2
            np.testing.assert_allclose(result[own], expected[0], rtol=1e-3, atol=2e-5)


@pytest.mark.slow_except("masked_diffusion")
@deep
def test_training_drops_and_evaluating_does_not(name, make_packed, make_rows, vocab):
    """By the programs that are traced; by numbers: the test below."""
    case, plain = make_packed(name, (("dropout", 0.5),)), make_packed(name)
    rows, key = eight_rows(case, make_rows), jax.random.key(0)
    state = plain.init_state(optax.identity())
    evaluations, numbers = [], []
    for each in (case, plain):
        context = {"model": each.model, "vocab": vocab, "spec": each.spec}
        step = functools.partial(objective.eval_step, each.module, **context)
        program = str(jax.make_jaxpr(step)(plain.params, rows, key))
        evaluations.append(re.sub("0x[0-9a-f]+", "", program))
        step = each.make_step(optax.identity())
        program = str(jax.make_jaxpr(step)(state, rows, key))
        numbers.append(program.count("random_fold_in"))
    assert evaluations[0] == evaluations[1] and "dot_general" in evaluations[0]
    assert numbers[0] > numbers[1]  # flax folds each layer's name into the key


@pytest.mark.slow_cases("electra", "masked_diffusion")
@pytest.mark.parametrize("name", slow_but(FEW, deep_cases))
def test_each_term_is_another_with_dropout(name, make_packed, make_rows):
    case, plain = make_packed(name, (("dropout", 0.5),)), make_packed(name)
    rows, key = eight_rows(case, make_rows), jax.random.key(0)
    # A term may have weight 0 at the end of a run, or at its beginning.
    rows["progress"] = jnp.full(8, 0.9 if name == "clm_then_mlm" else 0.0)

    @jax.jit
    def train(params):
        """The terms alone: no gradient is compiled for them."""
        steps = [c.make_step(optax.identity()) for c in (case, plain)]
        state = plain.init_state(optax.identity(), params)
        metrics = [step(state, rows, key)[1] for step in steps]
        return [[results[k] for k in case.spec.coefficients] for results in metrics]

    for (result, _), (expected, _) in zip(*train(plain.params), strict=True):
        assert result != expected > 0


GATED = {"gated_mlp": True, "activation": "silu", "num_kv_heads": 2}


APART = {"disentangled": "both", "disentangled_projections": True, "num_kv_heads": 2}


def costed(name, values, settings):
    """The cost of a row in training; the objective's steps, a state and rows."""
    module, changes = module_and_settings(name)
    ids = {"pad": 0, "eos": 1, "mask": 2, "nlu": 3, "nlg": 4, "s2s": 5}
    ids |= {"cls": 6, "sep": 7}
    ids |= {"sentinels": tuple(range(599, 579, -1)), "word_starts": (True,) * 600}
    vocab = Vocab(size=600, **ids, pieces=(b"piece",) * 600, counts=(1,) * 600)
    spec = module.Spec.for_seq_len(96, **changes | settings)
    sizes = {"vocab_size": 600, "d_model": 256, "num_heads": 4, "d_ff": 1024}
    sizes |= {"num_layers": 1} | MODELS.get(name, {})
    model = spec.make_network(ModelSpec(**(sizes | values)), vocab)
    params = jax.eval_shape(model.init_params, jax.random.key(0))
    rows = {
        "tokens": jax.ShapeDtypeStruct((2, spec.row_length), jnp.int32),
        "index": jax.ShapeDtypeStruct((2,), jnp.int32),
    }
    for key in spec.READS - {"progress", "segment_ids", "answers"} - set(rows):
        rows[key] = rows["tokens" if key.endswith("_ids") else "index"]
    if "max_documents" in settings:
        rows["segment_ids"] = rows["tokens"]
    changes = {"model": model, "vocab": vocab, "spec": spec}
    update = Update(optax.identity(), frozen=model.frozen)

    def train_step(state, rows, rng):
        return module.train_step(state, rows, split_step(rng), update=update, **changes)

    eval_step = functools.partial(objective.eval_step, module, **changes)
    counted = model.count_flops(spec.lengths, spec.predictions.mean(2))
    counted += model.count_batch_flops() / 2
    state = jax.eval_shape(
        lambda params: make_state(
            params, update.optimizer, objective_state=spec.init_state(vocab, params)
        ),
        params,
    )
    return counted, train_step, eval_step, state, rows


@pytest.mark.parametrize(
    "name, values, settings",
    [
        ("clm", {}, {}),
        ("clm", GATED | {"positions": "rotary"}, {}),
        ("mlm", {"embedding_size": 128}, {}),
        ("mlm", APART, {}),
        slow("block_diffusion", {"disentangled": "both"}, {"block_size": 4}),
        slow("electra", APART, {"generator_size": 0.5}),
        ("mlm", {"head_transform": True, "norm_position": "post"}, {"mask_rate": 0.3}),
        slow("span_corruption", {"embedding_size": 128}, {}),
        slow(
            "span_corruption", GATED | {"tie_embeddings": False}, {"max_documents": 4}
        ),
        slow("ul2", {}, {}),
        slow("ul2/seq2seq", {"embedding_size": 128}, {"max_documents": 4}),
        slow("clm_mlm", GATED, {"mask_rate": 0.3}),
        ("multi_token_heads", {"value_embeddings": True}, {"num_extra": 2}),
        slow("parallel_heads", GATED | {"num_layers": 2}, {"num_extra": 1}),
        ("prefix_lm", {"embedding_size": 128}, {}),
        slow("prefix_lm/seq2seq", GATED, {}),
        slow("electra", {}, {"generator_size": 0.5}),
        slow("electra", GATED | {"embedding_size": 128, "num_kv_heads": 1}, {}),
        ("bert", {"embedding_size": 128}, {}),
        ("bert", {"head_transform": True}, {"sentence_task": "none"}),
        slow("bart", {"embedding_size": 128}, {}),
        slow("bart", {"tie_embeddings": False}, {"insert_rate": 0.1}),
        ("bert", GATED, {"sentence_task": "sop", "max_predictions": 5}),
        slow("electra_15", {"embedding_size": 128}, {"generator_size": 0.5}),
        slow("spanbert", {"embedding_size": 128, "head_transform": True}, {}),
        slow("replace_mlm", {"embedding_size": 128}, {"masking": "spans"}),
        slow("replace_mlm", {}, {"share_embeddings": "separate"}),
        slow("disentangled", {"embedding_size": 128}, {}),
        slow("all_tokens_mlm", {"embedding_size": 128}, {"mask_rate_end": 0.3}),
    ],
)
def test_flops_are_those_of_the_products(name, values, settings):
    counted, _, step, state, rows = costed(name, values, settings)
    key = jax.random.key(0)
    assert count_products(step, state.params, rows, key) / 2 == counted / 3


LARGE = dataclasses.asdict(
    ModelSpec(vocab_size=600, num_layers=2, d_model=256, num_heads=8, d_ff=512)
)


@pytest.mark.slow_except(
    "mlm-settings1", "prefix_lm-settings7", "causal_distillation-settings11"
)
@pytest.mark.parametrize(
    "name, settings",
    [(name, {}) for name in deep_cases]
    + [
        ("distillation", {"teacher_model": LARGE}),
        ("distillation", {"teacher_model": LARGE, "restrict_kl": True}),
        ("causal_distillation", {"teacher_model": LARGE}),
        ("bilm", {"filters": (5, 7), "num_highway": 1, "num_chars": 20}),
    ],
)
def test_flops_are_those_of_a_training_steps_products(name, settings):
    """Where not everything is trained, the passes back are not twice those ahead."""
    counted, step, _, state, rows = costed(name, {}, settings)
    assert count_products(step, state, rows, jax.random.key(0)) / 2 == counted


@pytest.mark.slow_cases("electra")
@pytest.mark.parametrize("name", slow_but(("clm", "electra"), counted_by_xla))
def test_flops_are_what_xla_counts_of_a_step(name):
    """Of each kind of network; the products above are of every objective."""
    counted, step, _, state, rows = costed(name, {}, {})
    compiled = jax.jit(step).lower(state, rows, jax.random.key(0)).compile()
    cost = compiled.cost_analysis()["flops"] / 2
    # It also counts operations that are not products.
    assert counted == pytest.approx(cost, rel=0.05) and counted < cost


@pytest.mark.slow_cases("clm", "mlm", "bert", "bilm", "electra", "span_corruption")
@per_kind
def test_features_are_hidden_states_of_plain_text(name, make_case, make_rows):
    """Which each kind of network has its own of."""
    case = make_case(name)
    tokens = make_rows(case, 3)["tokens"][:, :9]
    features = jax.jit(case.model.features)
    result = features(case.params, tokens)
    width = 32 * traits_of(name).feature_widths
    assert result.shape == (3, 9, width) and result.dtype == jnp.float32
    later = features(case.params, tokens.at[:, 5:].set(8))
    is_ahead = case.model.READS_AHEAD and name in deep_cases
    assert np.allclose(result[:, :5], later[:, :5], atol=1e-6) != is_ahead


@every
def test_the_wrong_number_of_stacks_is_refused(name, make_case, vocab):
    case = make_case(name)
    wrong = dataclasses.replace(
        case.model_spec, num_decoder_layers=1 - case.model_spec.num_decoder_layers
    )
    with pytest.raises(UserError, match="^model.num_decoder_layers="):
        case.spec.make_network(wrong, vocab)


@pytest.mark.slow_cases("ul2", "ul2/seq2seq")
@every
def test_a_vocabulary_needs_what_the_spec_says_and_no_more(
    name, make_case, make_rows, vocab
):
    case = make_case(name)
    specials, needs = case.spec.needs.specials, traits_of(name).specials
    assert needs is None or set(specials) == set(needs)
    for role in specials:
        poor = dataclasses.replace(vocab, **{role: None})
        with pytest.raises(UserError, match=f"tokenizer.specials must list '{role}'"):
            case.spec.make_network(case.model_spec, poor)
    bare = dataclasses.replace(vocab, **dict.fromkeys(set(SPECIALS) - set(specials)))
    case.spec.make_network(case.model_spec, bare)
    run = functools.partial(case.module.corrupt, vocab=bare, spec=case.spec)
    batch = jax.eval_shape(run, jax.random.key(0), make_rows(case, 2))
    assert set(batch["weights"]) == set(case.spec.coefficients)
