"""Selective training: which tokens are selected, what they add, the reference."""

import dataclasses
import fractions
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import make_config, run_on_devices, write_stored

from jaxpt.cli.main import main
from jaxpt.nn.networks.one_stack import CausalLM
from jaxpt.nn.networks.student_teacher import CausalStudent
from jaxpt.objectives import clm, selective_clm
from jaxpt.objectives.selective_clm import (
    count_selected,
    score_tokens,
    select_loss,
    select_tokens,
)
from jaxpt.runs.earlier_costs import find_teacher_costs
from jaxpt.runs.workdir import load_run, load_task

LENGTHS = [20, 3, 0, 12, 20, 7, 1, 16]
SELECT = ("excess", "reference", "loss", "random")
L, REF = jnp.array([[2, 0.5, 3, 1, 0.2], [1.5, 0.6, 2.9, 0.2, 0.15]])


def check_close(one, other, atol=1e-6):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol), one, other)


def check_equal(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


def choose_by_definition(scores, is_counted, share):
    """The first K of all counted tokens, sorted by their score and their position."""
    places = [i for i in np.ndindex(scores.shape) if is_counted[i]]
    places.sort(key=lambda i: (-scores[i], i))
    num = math.ceil(fractions.Fraction(str(share)) * len(places))
    selected = np.zeros(scores.shape, bool)
    for place in places[:num]:
        selected[place] = True
    return selected, len(places) / num if num else 0.0


def test_the_example_of_the_source():
    """e .5 -.1 .1 .8 .05: tokens 0, 2 and 3; gradients of these alone, none of r."""

    def mean(nll, reference):
        scores = jax.lax.stop_gradient(nll) - reference
        total, weight = select_loss(nll[None], scores[None], jnp.ones((1, 5)), 0.6)
        return total / weight

    (loss, grads) = jax.value_and_grad(mean, (0, 1))(L, REF)
    assert float(loss) == pytest.approx(2.0) and float(L.mean()) == pytest.approx(1.34)
    np.testing.assert_allclose(grads[0], np.array([1, 0, 1, 1, 0]) / 3, rtol=1e-6)
    assert grads[0][1] == grads[0][4] == 0 and not grads[1].any()


@given(
    st.lists(st.integers(-2, 2), min_size=1, max_size=24),
    st.integers(0, 2**24),
    st.sampled_from([0.05, 0.1, 0.3, 0.55, 0.6, 0.7, 0.9999, 1.0]),
)
@settings(max_examples=60, deadline=None)
def test_tokens_are_ranked_by_score_and_position(values, mask, share):
    scores = np.array(values, np.float32)[None]
    is_counted = np.array([mask >> i & 1 for i in range(len(values))], bool)[None]
    expected, factor = choose_by_definition(scores, is_counted, share)
    result, result_factor = select_tokens(scores, is_counted, share)
    np.testing.assert_array_equal(result, expected)
    assert float(result_factor) == pytest.approx(factor, rel=1e-6)


@given(st.integers(0, 10**8), st.integers(1, 1000))
@settings(max_examples=200, deadline=None)
def test_the_number_of_selected_tokens_is_exact(num, thousandths):
    """Where float32 could not tell: 0.55 of 100 are 55, and not 56."""
    exact = math.ceil(fractions.Fraction(thousandths, 1000) * num)
    assert int(count_selected(jnp.int32(num), thousandths / 1000)) == exact


def test_a_loss_that_is_not_a_number_is_seen():
    nll = jnp.array([[1.0, jnp.nan, 2.0, 0.5]])
    total, _ = select_loss(nll, nll, jnp.ones((1, 4)), 0.25)
    assert jnp.isnan(total)
    total, _ = select_loss(nll, nll, jnp.array([[1.0, 0, 1, 1]]), 0.25)
    assert total == 2.0 * 3  # of three, one


def read_losses(case, rows):
    """The losses of the student and of the reference, of each token."""
    batch = clm.corrupt(None, rows, None, None)
    masks = clm.masks(batch)
    results = []
    for params in (case.model.task_part(case.params)[1], case.params.get("teacher")):
        if params is None:
            continue
        model = CausalLM(case.model_spec)

        def read(model):
            states = model.batch_states(batch, masks, deterministic=True)
            return model.nll(states, batch["targets"])

        results.append(np.asarray(model.apply({"params": params}, method=read)))
    return results, batch


@pytest.mark.parametrize("select", SELECT[:3])
def test_a_step_by_definition(select, make_case, make_rows):
    """The gradient of clm's loss with the weights of the selected tokens."""
    case, control = make_case("selective_clm", select=select), make_case("clm")
    rows = make_rows(case, 8, lengths=LENGTHS, with_eos=True)
    (nll, *reference), batch = read_losses(case, rows)
    scores = {
        "excess": lambda: nll - reference[0],
        "reference": lambda: -reference[0],
        "loss": lambda: nll,
    }[select]()
    weights = np.asarray(batch["weights"]["loss"])
    selected, factor = choose_by_definition(scores, weights > 0, 0.6)
    assert not selected.all() and selected.sum() == math.ceil(0.6 * weights.sum())
    shares = selected.sum(1)[weights.sum(1) > 0] / weights.sum(1)[weights.sum(1) > 0]
    assert shares.max() > 0.7 > 0.5 > shares.min()  # not ranked in each row

    def mean(params):
        one = batch | {"weights": {"loss": jnp.float32(selected * factor)}}
        terms, _ = clm.loss(params, control.model, one, clm.masks(one), {})
        return terms["loss"][0] / weights.sum()

    own = case.model.task_part(case.params)[1]
    expected, grads = jax.jit(jax.value_and_grad(mean))(own)
    result, metrics = case.gradients(rows)
    total, weight = metrics["loss"]
    assert weight == weights.sum()
    assert float(total / weight) == pytest.approx(float(expected), rel=1e-5)
    total, weight = metrics["all_loss"]
    assert float(total) == pytest.approx((nll * weights).sum(), rel=1e-5)
    check_close(result.get("student", result), grads)
    if "teacher" in result:
        assert not any(np.asarray(x).any() for x in jax.tree.leaves(result["teacher"]))


def make_equal(make_case, name="selective_clm", **changes):
    """Cases of the objective and of clm with the same parameters."""
    case, control = make_case(name, **changes), make_case("clm")
    params = case.model.task_part(case.params)[1]
    return case, dataclasses.replace(control, params=params)


@pytest.mark.parametrize("select", SELECT)
@pytest.mark.parametrize("share", [0.6, 1.0])
def test_it_is_evaluated_as_clm(select, share, make_case, make_rows):
    case, control = make_equal(make_case, share=share, select=select)
    rows, key = make_rows(case, 8, lengths=LENGTHS), jax.random.key(0)
    result = case.evaluate(case.params, rows, key)
    check_equal(result, control.evaluate(control.params, rows, key))


def train(case, rows):
    """The parameters of the network after three steps with dropout."""
    optimizer = optax.adam(1e-2)
    step, state = jax.jit(case.make_step(optimizer, 2)), case.init_state(optimizer)
    for number in range(3):
        state, _ = step(state, rows, jax.random.key(number))
    return case.model.task_part(state.params)[1]


@pytest.mark.parametrize("select", ["excess", "random"])
def test_a_share_of_1_is_clm(select, make_case, make_rows):
    """Bit for bit; and without that branch if all tokens are selected."""
    dropout = (("dropout", 0.1),)
    case = make_case("selective_clm", dropout, share=1.0, select=select)
    control, rows = make_case("clm", dropout), make_rows(case, 8, lengths=LENGTHS)
    expected = train(control, rows)
    check_equal(train(case, rows), expected)
    assert type(case.model) is CausalLM
    almost = make_case("selective_clm", dropout, share=0.9999, select=select)
    own = almost.model.task_part(almost.params)[1]
    result, _ = almost.gradients(rows)
    grads, _ = dataclasses.replace(control, params=own).gradients(rows)
    check_close(almost.model.task_part(result)[1], grads)
    less, _ = make_case("selective_clm", dropout, share=0.9, select=select).gradients(
        rows
    )
    gaps = jax.tree.map(
        lambda a, b: np.abs(a - b).max(), less.get("student", less), grads
    )
    assert max(jax.tree.leaves(gaps)) > 1e-3


@pytest.mark.parametrize("name", ["selective_clm", "random_selection"])
def test_tokens_are_selected_in_each_microbatch(name, make_case, make_rows):
    """The sums of two steps with every other row; the choice is another than of all."""
    case = make_case(name)
    rows = make_rows(case, 8, lengths=LENGTHS)
    parts = [jax.tree.map(lambda x, i=i: x[i::2], rows) for i in range(2)]
    found = [case.gradients(part) for part in parts]
    nums = [metrics["loss"][1] for _, metrics in found]
    assert nums[0] != nums[1]
    expected = jax.tree.map(
        lambda a, b: (a * nums[0] + b * nums[1]) / sum(nums), *(g for g, _ in found)
    )
    result, metrics = case.gradients(rows, num_microbatches=2)
    check_close(result, expected)
    total = float(sum(metrics["loss"][0] for _, metrics in found))
    assert metrics["loss"][0] == pytest.approx(total, rel=1e-5)
    whole, _ = case.gradients(rows)
    gaps = jax.tree.map(lambda a, b: np.abs(a - b).max(), result, whole)
    assert max(jax.tree.leaves(gaps)) > 1e-4


def test_padding_is_never_selected(make_case, make_rows):
    """Whatever is in it."""
    case = make_case("selective_clm")
    rows = make_rows(case, 8, lengths=LENGTHS)
    is_padding = rows["segment_ids"] == 0
    others = rows | {"tokens": jnp.where(is_padding, 8, rows["tokens"])}
    results = [case.gradients(each) for each in (rows, others)]
    check_equal(*(metrics["loss"] for _, metrics in results))
    check_close(*(grads for grads, _ in results), atol=1e-7)


def test_random_tokens_do_not_depend_on_the_order_of_rows(make_case, make_rows):
    case = make_case("random_selection")
    rows = make_rows(case, 6)
    batch, ones = clm.corrupt(None, rows, None, None), jnp.ones((6, 20))
    order = jnp.array([4, 2, 0, 5, 1, 3])

    def select(batch, seed=0):
        key = jax.random.key(seed)
        scores = score_tokens(ones, None, None, batch, None, key, "random")
        return np.asarray(select_tokens(scores, ones > 0, 0.6)[0])

    result = select(batch)
    assert result.sum() == 72 and set(result.sum(1)) != {12}
    permuted = {k: x[order] for k, x in batch.items() if k != "weights"}
    np.testing.assert_array_equal(select(permuted), result[order])
    assert (select(batch, seed=1) != result).any()


def test_what_the_reference_knows_is_selected(make_case, make_rows, make_taught):
    """Of rows that it has overfitted and rows of noise, by the excess alone."""
    case = make_case("selective_clm", share=0.5)
    known, noise = (make_rows(case, 4, seed=seed) for seed in (0, 1))
    case = make_taught("selective_clm", case, known)
    rows = jax.tree.map(lambda *each: jnp.concatenate(each), known, noise)
    (nll, reference), batch = read_losses(case, rows)
    assert reference[:4].mean() < 0.5 * reference[4:].mean()
    shares = {}
    for select in SELECT:
        key, masks = jax.random.key(0), clm.masks(batch)
        scores = score_tokens(
            jnp.asarray(nll), case.params, case.model, batch, masks, key, select
        )
        is_selected, _ = select_tokens(scores, batch["weights"]["loss"] > 0, 0.5)
        shares[select] = float(is_selected[:4].mean())
    assert min(shares["excess"], shares["reference"]) > 0.9
    assert max(shares["loss"], shares["random"]) < 0.7


def test_the_reference_is_needed_where_it_is_read(make_case):
    """And only there it costs its forward pass."""
    flops = {}
    for select in SELECT:
        case = make_case("selective_clm", select=select)
        is_read = select in ("excess", "reference")
        assert (case.spec.needs.teacher is not None) == is_read
        assert type(case.model) is (CausalStudent if is_read else CausalLM)
        flops[select] = case.model.count_flops(case.spec.lengths, 20)
    control = make_case("clm")
    expected = control.model.count_flops(control.spec.lengths, 20)
    assert flops["loss"] == flops["random"] == expected
    assert flops["excess"] == flops["reference"] == expected * 4 / 3


CODE = """
import numpy as np, jax, jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jaxpt.objectives.selective_clm import select_loss
draw = np.random.default_rng(0)
nll = jnp.float32(draw.integers(0, 5, (16, 6)))  # with ties
weights = jnp.float32(draw.random((16, 6)) < 0.8)
run = lambda *args: jax.grad(lambda *a: select_loss(*a)[0])(*args[:3], 0.6, *args[3:])
expected = jax.jit(run)(nll, nll, weights)
mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
place = NamedSharding(mesh, PartitionSpec("data"))
result = jax.jit(run)(*(jax.device_put(x, place) for x in (nll, nll, weights)))
np.testing.assert_array_equal(result, expected)
split = lambda x: x.reshape(8, 2, 6)
by_device = lambda *args: run(*args, "devices")
result = jax.pmap(by_device, "devices")(*map(split, (nll, nll, weights)))
np.testing.assert_array_equal(result.reshape(16, 6), expected)
counts = (np.asarray(result) > 0).sum((1, 2))
print(int(weights.sum()), counts.sum(), len(set(counts.tolist())) > 1)
"""


def test_eight_devices_select_what_one_does():
    """Sharded under jit, and under pmap, where devices have different numbers."""
    num, num_selected, is_uneven = run_on_devices(8, CODE).split()
    assert int(num_selected) == math.ceil(0.6 * int(num)) and is_uneven == "True"


@pytest.mark.slow
def test_a_run_trains_its_reference_first_and_counts_it(tmp_path, speech):
    config = make_config(speech, "selective_clm", train__steps=4)
    path = write_stored(tmp_path / "config.json", config)
    assert main(["train", f"--config={path}", f"--workdir={tmp_path / 'run'}"]) == 0
    task, _ = load_task(tmp_path / "run")
    teacher, _ = load_task(tmp_path / "run" / "teacher")
    assert teacher.plan.objective_name == "clm"
    _, _, params, _ = load_run(tmp_path / "run")
    _, _, teacher_params, _ = load_run(tmp_path / "run" / "teacher")
    check_equal(params["teacher"], teacher_params)
    costs = find_teacher_costs(task.plan)
    assert costs["flops"] == teacher.count_costs(4)["flops"] > 0
    assert costs["raw_tokens"] == task.count_costs(4)["raw_tokens"]  # all are read


def test_settings_are_those_of_the_module():
    spec = selective_clm.Spec(24, share=1)
    assert spec.needs.teacher is None and not spec.lone_setting
    assert spec.lengths == {"decoder": 23} and set(spec.controls()) == {"clm"}
    spec = selective_clm.Spec(24)
    assert spec.lengths == {"student": 23, "teacher": 23}
    assert set(spec.controls()) == {"clm", "random", "reference", "loss"}
