"""XLA's count of a training step beside that from sizes, loops and all."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from tiny import make_config, slow_but

from jaxpt.config.plan import make_plan
from jaxpt.nn import flops
from jaxpt.text.dataset import load_text
from jaxpt.training import xla_flops
from jaxpt.training.data import with_token_counts
from jaxpt.training.task import make_task
from jaxpt.training.xla_flops import StepFlops, count_by_xla, count_step

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


def test_a_loop_counts_each_time_it_runs():
    def run(x, w):
        def inner(x, _):
            return x @ w, None

        def outer(x, _):
            return jax.lax.scan(inner, x, None, length=3)[0] @ w, None

        return jax.lax.scan(outer, x, None, length=5)[0]

    # The rest are the counters of the loops, a few operations each turn.
    assert count_by_xla(run, X, W) == pytest.approx(5 * (3 + 1) * ONE, abs=200)


def test_of_branches_the_dearest_counts():
    def run(x, w):
        short, long = (
            lambda x, n=n: jax.lax.scan(lambda y, _: (y @ w, None), x, length=n)[0]
            for n in (2, 6)
        )
        return jax.lax.cond(x[0, 0] > 0, short, long, x)

    assert count_by_xla(run, X, W) == pytest.approx(6 * ONE, abs=200)


@pytest.mark.slow_cases("bilm")
@pytest.mark.parametrize("name", slow_but(("clm", "bilm"), KINDS))
def test_what_is_left_out_of_each_kind_of_network(name, speech):
    """A wide model's rest is small; nothing that sizes count is unknown to XLA."""
    sizes = {"model__d_model": 128, "model__d_ff": 512, "data__row_length": 32}
    step = count_step(*make_case(speech, name, **sizes))
    low, high = (0.1, 0.5) if name == "skip_gram" else (0.01, 0.1)
    assert low < step.left_out < high


@pytest.mark.slow
def test_a_form_that_computes_otherwise_leaves_out_the_same(speech, afresh):
    """Loops over layers, microbatches and logits, and what is computed twice."""
    plain = count_step(*make_case(speech, "clm", model__num_layers=2))
    xla_flops._known.clear()
    changes = {
        "model__num_layers": 2,
        "model__scan_layers": True,
        "model__remat": "full",
        "model__loss_chunk": 8,
        "train__num_microbatches": 2,
    }
    other = count_step(*make_case(speech, "clm", **changes))
    assert other.counted == plain.counted
    assert other.by_xla == pytest.approx(plain.by_xla, rel=0.03)


def test_a_wrong_count_from_sizes_is_noticed(speech, afresh, monkeypatch):
    case = make_case(speech, "clm", data__row_length=32)
    right = count_step(*case)
    assert 0 < right.left_out < 0.3
    whole = flops.stack_flops
    monkeypatch.setattr(flops, "stack_flops", lambda *args: 2 * whole(*args))
    xla_flops._known.clear()
    assert count_step(*case).left_out < 0


def test_a_count_is_kept_whatever_the_seed(speech, afresh):
    task, train = make_case(speech, "clm")
    first = count_step(task, train)
    other = dataclasses.replace(task, plan=task.plan.change({"train": {"seed": 7}}))
    assert count_step(other, train) is first
    wider, _ = make_case(speech, "clm", model__d_ff=64)
    assert count_step(wider, train).by_xla > first.by_xla
    assert len(xla_flops._known) == 2


def test_the_share():
    assert StepFlops(75.0, 100.0).left_out == 0.25
