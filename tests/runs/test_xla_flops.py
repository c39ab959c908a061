"""XLA's count of a training step beside that from sizes, loops and all."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from products import count_products
from tiny import ROWS, TEXTS, make_config, slow_but

from jaxpt.config.plan import make_plan
from jaxpt.learn.optim_spec import OPTIMIZER_DEFAULTS, OptimSpec
from jaxpt.learn.optimizer import count_flops, make_optimizer
from jaxpt.nn import flops
from jaxpt.rng import stream
from jaxpt.runs import xla_flops
from jaxpt.runs.data import make_feed, with_token_counts
from jaxpt.runs.task import make_task
from jaxpt.runs.train_calls import make_train_call
from jaxpt.runs.xla_flops import (
    StepFlops,
    count_by_xla,
    count_operations,
    count_step,
    shape_rows,
)
from jaxpt.text.dataset import load_text

# One of each kind of network; biLM's products are in a loop over positions.
KINDS = ("clm", "span_corruption", "electra", "distillation", "bilm", "skip_gram")
X, W = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((8, 32), (32, 32)))
ONE = 2 * 8 * 32 * 32


@pytest.fixture
def afresh(monkeypatch):
    """Nothing was counted before."""
    monkeypatch.setattr(xla_flops, "_known", {})


def make_case(speech, name, **changes):
    plan = make_plan(make_config(speech, name, **changes))
    tokenizer, corpora = load_text(plan.text)
    train = corpora["train"]
    return make_task(plan, with_token_counts(plan, tokenizer.vocab, train)), train


def test_products_are_counted_by_hand():
    assert count_by_xla(lambda x, w: x @ w, X, W) == ONE
    assert count_by_xla(lambda x, w: x @ w + 1, X, W) == ONE + 8 * 32


def scan(num, unroll=1):
    def run(x, w):
        return jax.lax.scan(lambda x, _: (x @ w, None), x, length=num, unroll=unroll)[0]

    return run


def two_loops(x, w):
    """A loop of 2 x 3 products and one that does not run; the rest is not used."""
    nested = jax.lax.fori_loop(0, 2, lambda _, x: scan(3)(x, w), x)
    unused = scan(4)(x, w) + jax.lax.map(lambda row: row @ w, x)
    del unused
    return scan(0)(nested, w) + jax.lax.scan(lambda x, _: (x, x @ w), x, length=7)[0]


def branches(x, w):
    short, long = (functools.partial(scan(n), w=w) for n in (2, 6))
    return jax.lax.cond(x[0, 0] > 0, short, long, x)


def repeat(x, w):
    return jax.lax.while_loop(
        lambda x: (x @ w)[0, 0] < 1, lambda x: scan(3)(x, w) @ w, x
    )


def keys(x, w):
    """A loop over keys, whose type is none of an array's."""
    first = jax.random.key(0)
    last, values = jax.lax.scan(
        lambda key, _: (jax.random.fold_in(key, 1), x @ w), first, length=5
    )
    return jax.random.key_data(last), values


def derive(function):
    """The derivative by x: the products ahead, and those back."""

    def run(x, w):
        return jax.grad(lambda x: function(x, w).sum())(x)

    return run


def curved(x, w):
    return jax.lax.scan(lambda x, _: (jnp.sin(x @ w), None), x, length=4)[0]


LOOPS = {
    "no turn": (scan(0), 0),
    "one turn": (scan(1), 1),
    "turns": (scan(5), 5),
    "unrolled": (scan(6, 4), 6),
    "wholly unrolled": (scan(6, 6), 6),
    "nested": (two_loops, 6),
    "branches": (branches, 6),
    "branch without a loop": (
        lambda x, w: jax.lax.cond(x[0, 0] > 0, lambda x: x, lambda x: x @ w, x),
        1,
    ),
    "switch": (lambda x, w: jax.lax.switch(2, [scan(n) for n in (1, 4, 2)], x, w), 4),
    "while by values": (repeat, 5),
    "called": (lambda x, w: jax.jit(scan(3))(jax.jit(scan(3))(x, w), w), 6),
    "rows": (lambda x, w: jax.vmap(scan(3), (0, None))(x, w), 3),
    "matrices": (
        lambda x, w: jax.vmap(scan(3))(
            jnp.stack([x] * 2), w[None] * jnp.ones((2, 1, 1))
        ),
        6,
    ),
    "derivative": (derive(curved), 8),
    "recomputed": (derive(jax.checkpoint(curved)), 8),  # the first time is not used
    "recomputed turn": (
        derive(
            lambda x, w: jax.lax.scan(
                jax.checkpoint(lambda x, _: (jnp.sin(x @ w), None)), x, length=4
            )[0]
        ),
        12,
    ),
    "keys": (keys, 5),
}


@pytest.mark.parametrize("name", LOOPS)
def test_every_form_of_a_loop_counts_by_hand(name):
    """The rest are element-wise, and the counters of loops: less than a product."""
    function, times = LOOPS[name]
    counted = count_by_xla(function, X, W) / ONE
    assert times <= counted < times + 0.5


@pytest.mark.parametrize("name", ["muon", "normuon"])
def test_an_update_counts_at_least_its_products(name):
    params = {"layer_0": {n: {"kernel": jnp.ones((64, 64))} for n in "ab"}}
    optimizer = make_optimizer(OptimSpec(name=name), 10)
    args = params, optimizer.init(params), params
    products = 2 * 5 * 6 * 64**3
    assert count_flops(OptimSpec(name=name), params) == products
    assert count_products(optimizer.update, *args) == products
    assert 1 < count_by_xla(optimizer.update, *args) / products < 1.1


# Kernels of single and of scanned layers, wide, tall and square; what Muon does not
# orthogonalise; and the paths that are frozen.
LAYER = {"a": {"kernel": (32, 64), "bias": (64,)}, "b": {"kernel": (48, 24)}}
SCANNED = {"a": {"kernel": (3, 32, 32), "bias": (3, 32)}, "b": {"kernel": (3, 8, 40)}}
SHAPES = {
    "encoder": {"layer_0": LAYER, "layer_1": LAYER, "norm": {"scale": (32,)}},
    "decoder": {"layers": SCANNED},
    "embed": {"tokens": (40, 32)},
    "head": {"out": {"kernel": (32, 40)}},
}
FROZEN = ((), ("encoder/layer_0",), ("encoder", "decoder/layers/a"), ("decoder",))


@pytest.mark.parametrize("frozen", FROZEN)
@pytest.mark.parametrize("name", OPTIMIZER_DEFAULTS)
def test_the_products_of_every_optimizer(name, frozen):
    params = jax.tree.map(
        lambda shape: jax.ShapeDtypeStruct(shape, jnp.float32),
        SHAPES,
        is_leaf=lambda x: isinstance(x, tuple),
    )
    spec = OptimSpec(name=name, weight_decay=0.1)
    optimizer = make_optimizer(spec, 10, frozen)
    state = jax.eval_shape(optimizer.init, params)
    counted = count_flops(spec, params, frozen)
    assert count_products(optimizer.update, params, state, params) == counted
    assert (counted > 0) == (name in ("muon", "normuon"))


MUON = {"optim__name": "muon", "optim__muon_lr": 0.02, "optim__ema_decay": 0.9}
UNTIED = {"model__tie_embeddings": False, "model__num_layers": 2}
STEPS = {
    "clm": ("clm", {}),
    "two layers": ("clm", {"model__num_layers": 2}),
    "untied": ("mlm", UNTIED),
    "scanned": ("mlm", UNTIED | {"model__scan_layers": True}),
    "heads of other widths": ("clm", {"model__num_kv_heads": 1, "model__d_ff": 24}),
    "encoder-decoder": ("span_corruption", {}),
    "electra": ("electra", {}),
    "two microbatches": ("clm", {"train__num_microbatches": 2}),
    "a teacher": ("distillation", {}),
    "normuon": ("clm", {"optim__name": "normuon"}),
    "adamw": ("clm", {"optim__name": "adamw"}),
}


@pytest.mark.slow_except("clm", "scanned", "encoder-decoder", "two microbatches")
@pytest.mark.parametrize("case", STEPS)
def test_flops_are_the_products_of_a_whole_step(case, speech):
    """Of the network for every row, and of the optimizer once."""
    name, changes = STEPS[case]
    changes = MUON | changes
    if changes["optim__name"] == "adamw":
        del changes["optim__muon_lr"]
    task, train = make_case(speech, name, **changes)
    products = []
    for num_rows in (4, 8):
        plan = task.plan.change({"train": {"batch_size": num_rows}})
        sized = make_task(plan, task.vocab)
        products.append(measure_products(sized, train))
        assert sized.count_costs(3)["flops"] == 3 * products[-1]
        network = sized.count_network_flops(3)
        assert network == 3 * (products[-1] - sized.update_flops)
    # Twice the rows cost twice the network's products and the same update.
    assert products[1] - 2 * products[0] == -task.update_flops
    assert (task.update_flops > 0) == (changes["optim__name"] != "adamw")


def measure_products(task, train):
    def init():
        return task.make_state(task.model.init_params(stream(0, 0, "init")))

    rows, seed = make_feed(task, train).stack(0, 1), np.int32(0)
    return count_products(make_train_call(task), jax.eval_shape(init), rows, seed)


def test_phases_count_the_update_in_every_step(speech):
    phases = {"train__batch_schedule": ((0.5, 0.5),), "train__steps": 8}
    task, _ = make_case(speech, "clm", train__steps_per_call=1, **MUON, **phases)
    short, whole = task.phases
    assert short.update_flops == whole.update_flops == task.update_flops > 0
    rows = (short.count_network_flops(1), whole.count_network_flops(1))
    assert rows[1] == 2 * rows[0]
    assert task.count_costs(8)["flops"] == 4 * sum(rows) + 8 * task.update_flops


FORMS = {
    "clm": {},
    "mlm": {"data__rows": "packed", "data__documents": "line"},
    "span_corruption": {"data__rows": "packed", "data__documents": "line"},
    "bert": TEXTS["bert"] | ROWS["bert"],
    "bart": ROWS["bart"],
    "masked_diffusion": {
        "data__path": "star:degree=2,arm=2,names=30",
        "data__answers_only": True,
        "data__rows": "packed",
        "data__split": "documents",
        "data__row_length": 11,
        "tokenizer__kind": "char",
    },
}


@pytest.mark.parametrize("name", FORMS)
def test_rows_have_the_shapes_that_are_counted(name, speech):
    """No text is needed to count: a feed's rows have these keys, shapes and dtypes."""
    phases = {"train__batch_schedule": ((0.5, 0.5),), "train__steps": 8}
    settings = FORMS[name] | phases | {"train__steps_per_call": 1}
    task, train = make_case(speech, name, **settings)
    for phase, step in zip(task.phases, (0, 7), strict=True):
        stack = make_feed(task, train).stack(step, 1)
        shapes = {k: jax.ShapeDtypeStruct(x.shape, x.dtype) for k, x in stack.items()}
        assert shape_rows(phase) == shapes


def test_operations_of_a_run_are_those_of_its_phases(speech, afresh):
    phases = {"train__batch_schedule": ((0.5, 0.5),), "train__steps": 8}
    task, _ = make_case(speech, "clm", train__steps_per_call=1, **phases)
    second, first = count_step(task).by_xla, count_operations(task, 1)
    assert first < second < 2 * first
    assert count_operations(task, 3) == 3 * first
    assert count_operations(task, 8) == 4 * first + 4 * second


@pytest.mark.slow_cases("bilm")
@pytest.mark.parametrize("name", slow_but(("clm", "bilm"), KINDS))
def test_what_is_left_out_of_each_kind_of_network(name, speech):
    """A wide model's rest is small; nothing that sizes count is unknown to XLA."""
    sizes = {"model__d_model": 128, "model__d_ff": 512, "data__row_length": 32}
    step = count_step(make_case(speech, name, **sizes)[0])
    low, high = (0.1, 0.5) if name == "skip_gram" else (0.01, 0.1)
    assert low < step.left_out < high


@pytest.mark.slow
def test_a_form_that_computes_otherwise_leaves_out_the_same(speech, afresh):
    """Loops over layers, microbatches and logits, and what is computed twice."""
    plain = count_step(make_case(speech, "clm", model__num_layers=2)[0])
    xla_flops._known.clear()
    changes = {
        "model__num_layers": 2,
        "model__scan_layers": True,
        "model__remat": "full",
        "model__loss_chunk": 8,
        "train__num_microbatches": 2,
    }
    other = count_step(make_case(speech, "clm", **changes)[0])
    assert other.counted == plain.counted
    assert other.by_xla == pytest.approx(plain.by_xla, rel=0.03)


def test_a_wrong_count_from_sizes_is_noticed(speech, afresh, monkeypatch):
    case = make_case(speech, "clm", data__row_length=32)
    right = count_step(case[0])
    assert 0 < right.left_out < 0.3
    whole = flops.stack_flops
    monkeypatch.setattr(flops, "stack_flops", lambda *args: 2 * whole(*args))
    xla_flops._known.clear()
    assert count_step(case[0]).left_out < 0


def test_a_count_is_kept_whatever_the_seed(speech, afresh):
    task, _ = make_case(speech, "clm")
    first = count_step(task)
    other = dataclasses.replace(task, plan=task.plan.change({"train": {"seed": 7}}))
    assert count_step(other) is first
    wider, _ = make_case(speech, "clm", model__d_ff=64)
    assert count_step(wider).by_xla > first.by_xla
    assert len(xla_flops._known) == 2


def test_the_share():
    assert StepFlops(75.0, 100.0).left_out == 0.25
