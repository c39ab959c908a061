"""Runs whose batches and rows grow: what they read, cost and log; resuming."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stops import check_stopped_run, run
from tiny import make_config, prepare, slow, slow_but

from jaxpt import prepare as prepare_loop
from jaxpt.comparison import budget, compare
from jaxpt.comparison.budget import count_steps, steps_for_budget
from jaxpt.config.plan import make_compare_spec, make_plan
from jaxpt.config.sections import TrainSpec
from jaxpt.hub.export import list_facts
from jaxpt.learn.schedules import make_schedule
from jaxpt.objectives import OBJECTIVES
from jaxpt.report.inspection import passage
from jaxpt.report.inspection.rows import inspect_rows
from jaxpt.runs import xla_flops
from jaxpt.runs.data import make_feed
from jaxpt.runs.metrics_file import read_metrics
from jaxpt.runs.program import Program
from jaxpt.runs.task import make_task
from jaxpt.text.phases import split_steps
from jaxpt.training import check
from jaxpt.training.dry_run import dry_run
from jaxpt.training.metrics_log import Progress
from jaxpt.training.run_log import RunLog

# Of 12 steps, in calls of 2: to step 4 half of 8 rows, to step 8 all, each cut in two.
PHASES = {
    "train__batch_schedule": ((1 / 3, 0.5),),
    "train__length_schedule": ((2 / 3, 2),),
}
SHAPES = {0: (8, 12), 4: (16, 12), 8: (8, 24)}  # by first step
HORIZONS = ("future_summary", "latent_prediction")  # longer than these rows by default
SETTINGS = PHASES | {"model__dropout": 0.1, "optim__lr_tokens": 8 * 24}


@pytest.fixture(scope="module")
def whole(tmp_path_factory, speech):
    """The folder of the run, its task and its result."""
    folder = tmp_path_factory.mktemp("phases")
    return folder, *run(make_config(speech, "mlm", **SETTINGS), folder)


@pytest.mark.parametrize("num_calls", slow_but((4,), range(5)))
def test_a_run_that_stops_in_any_phase_ends_the_same(
    num_calls, whole, tmp_path, speech, monkeypatch
):
    """Within a phase, and where one begins."""
    config = make_config(speech, "mlm", **SETTINGS)
    check_stopped_run(config, num_calls, whole, tmp_path, monkeypatch)


def test_costs_are_those_of_all_batches(whole, speech):
    folder, task, result = whole
    # As a run with nothing but such batches counts it.
    flops = {
        shape: prepare(
            make_config(
                speech, "mlm", train__batch_size=shape[0], data__row_length=shape[1]
            )
        )[0].count_costs(1)["flops"]
        for shape in SHAPES.values()
    }
    assert len(set(flops.values())) == 3
    feed = make_feed(task, prepare(make_config(speech, "mlm", **SETTINGS))[2]["train"])
    shapes = [feed[step]["tokens"].shape for step in range(12)]
    assert shapes == [shape for shape in SHAPES.values() for _ in range(4)]
    lines = [row for row in read_metrics(folder) if row["step"]]
    for row in [*lines, result | {"step": 12}]:
        read = shapes[: row["step"]]
        assert row["raw_tokens"] == sum(num * length for num, length in read)
        assert row["model_tokens"] == row["raw_tokens"]
        assert row["flops"] == sum(flops[shape] for shape in read)
    assert [row["step"] for row in lines if "grad_norm" in row] == [2, 4, 6, 8, 10, 12]
    assert result["row_length"] == 24


def test_a_run_prints_its_phases(whole):
    text = (whole[0] / "run.log").read_text()
    for line in (
        "12 steps of 8 rows of 24 tokens",
        "from step 0: 4 steps of 8 rows of 12 tokens",
        "from step 4: 4 steps of 16 rows of 12 tokens",
        "from step 8: 4 steps of 8 rows of 24 tokens",
    ):
        assert text.count(line) == 1
    assert text.count("compiling a call of 2 steps") == 3


def test_rates_that_are_set_for_tokens_follow_the_batch(whole):
    """Half the tokens, 1 / sqrt(2) of the rate."""
    folder, task, _ = whole
    schedule = make_schedule(task.plan.optim, 12)
    rates = {row["step"]: row["lr"] for row in read_metrics(folder) if "lr" in row}
    for step, rate in rates.items():
        factor = 0.5**0.5 if step <= 4 else 1.0
        assert rate == pytest.approx(factor * float(schedule(step - 1)), rel=1e-5)
    assert len(rates) == 6
    config = make_config(whole[0], "mlm", **PHASES)
    unscaled = make_plan(config)
    plans = [unscaled.in_phase(phase) for phase in unscaled.train.phases]
    assert {plan.optim for plan in plans} == {unscaled.optim}


def one_call(task, rows):
    """The state and the metrics after a call of one step, with the seed 3."""
    program = Program(task)
    stack = program.place({key: value[None] for key, value in rows.items()})
    return jax.device_get(program.train_call(program.init_state(3), stack, 3))


def list_cases():
    """Two forms of rows, of which padding alone may be a piece; pairs are not cut."""
    for name in OBJECTIVES:
        for form in ("chunks", "packed"):
            is_quick = (name, form) == ("span_corruption", "packed")
            yield (name, form) if is_quick else slow(name, form)


@pytest.fixture(scope="module")
def paragraphs(speech, tmp_path_factory):
    """A text of short paragraphs, so that rows of one document are mostly padding."""
    words = iter(speech.read_text().split())
    sizes = itertools.cycle((1, 2, 3, 1, 5, 2))
    parts = iter(lambda: " ".join(itertools.islice(words, next(sizes))), "")
    path = tmp_path_factory.mktemp("paragraphs") / "text.txt"
    path.write_text("\n\n".join(parts), encoding="utf-8")
    return path


@pytest.mark.parametrize("name, form", list(list_cases()))
def test_a_step_of_a_phase_is_that_of_a_run_of_such_batches(name, form, paragraphs):
    """Bit for bit; and the last phase's of the run without schedules."""
    changes = {"data__documents": "paragraph", "data__rows": form}
    changes["optim__lr_tokens"] = 8 * 24
    if form == "packed":
        changes["data__max_documents"] = 1
    if name in HORIZONS:
        changes[f"{name}__horizon"] = 4
    schedules = PHASES if name != "bert" else {**PHASES, "train__length_schedule": ()}
    task, _, corpora = prepare(make_config(paragraphs, name, **changes, **schedules))
    feed = make_feed(task, corpora["train"])
    for step in (0, 11):
        rows = feed[step]
        num_rows, length = rows["tokens"].shape
        if name != "bert":
            assert (num_rows, length) == SHAPES[0 if step == 0 else 8]
            segments = rows.get("segment_ids", np.ones((1, 1)))
            has_padding = not segments.any(axis=1).all()
            assert has_padding == (form == "packed" and step == 0)
        such = changes | {"train__batch_size": num_rows, "data__row_length": length}
        plan = make_plan(make_config(paragraphs, name, **such))
        alone = make_task(plan, task.vocab)  # long rows may need more sentinels
        (state, metrics), (expected, same) = (
            one_call(each, rows) for each in (task, alone)
        )
        jax.tree.map(np.testing.assert_array_equal, state, expected)
        jax.tree.map(np.testing.assert_array_equal, metrics, same)
        for leaf in jax.tree.leaves((state.params, metrics)):
            assert np.isfinite(leaf).all()


def test_schedules_that_change_nothing_change_nothing(speech):
    changes = {"model__dropout": 0.1, "train__steps": 6}
    results = []
    for schedule in ((), ((0.5, 1),)):
        both = dict.fromkeys(PHASES, schedule)
        task, _, corpora = prepare(make_config(speech, "mlm", **changes, **both))
        program, feed = Program(task), make_feed(task, corpora["train"])
        assert len(task.phases) == len(schedule) + 1
        state, losses = program.init_state(3), []
        for step in (0, 2, 4):
            stack = program.place(feed.stack(step, 2))
            state, metrics = program.train_call(state, stack, 3)
            losses += np.asarray(metrics["loss"][0]).tolist()
        results.append((losses, jax.device_get(state)))
    assert results[0][0] == results[1][0] and len(set(results[0][0])) == 6
    jax.tree.map(np.testing.assert_array_equal, results[0][1], results[1][1])


def test_microbatches_become_fewer_and_not_larger(speech):
    schedule = ((0.25, 0.125), (0.5, 0.25), (0.75, 0.5))
    config = make_config(
        speech,
        train__num_microbatches=4,
        train__batch_schedule=schedule,
        train__length_schedule=((0.75, 2),),
    )
    task = prepare(config)[0]
    trains = [phase.plan.train for phase in task.phases]
    assert [train.batch_size for train in trains] == [2, 4, 8, 8]
    assert [train.num_microbatches for train in trains] == [1, 1, 2, 4]


def test_slots_are_those_of_the_rows_of_a_phase(speech):
    task = prepare(make_config(speech, "masked_diffusion", **PHASES))[0]
    alone = prepare(make_config(speech, "masked_diffusion", data__row_length=12))[0]
    first, second, last = (phase.model.packed for phase in task.phases)
    assert first == second == alone.model.packed != last == task.model.packed


def test_phases_begin_with_the_nearest_call():
    schedule = ((0.3, 0.5), (0.99, 1))
    spec = TrainSpec(steps=23, steps_per_call=5, batch_schedule=schedule)
    assert [phase.start for phase in spec.phases] == [0, 5, 25]
    # Too few calls for a phase.
    assert split_steps(dataclasses.replace(spec, steps=5).phases, 5) == [0, 5, 0]


@given(
    st.lists(st.floats(0.01, 1), min_size=1, max_size=4, unique=True),
    st.lists(st.floats(1, 9), min_size=5, max_size=5),
    st.integers(1, 7),
    st.floats(1, 1000),
)
def test_a_budget_buys_all_the_calls_that_it_pays_for(ends, prices, size, amount):
    schedule = tuple((end, 1.0) for end in sorted(ends))
    sizes = {"steps_per_call": size, "checkpoint_every": 0}
    spec = TrainSpec(batch_schedule=schedule, **sizes)
    prices = sorted(prices)[: len(spec.phases)]

    def cost(num_steps):
        phases = dataclasses.replace(spec, steps=num_steps).phases
        numbers = split_steps(phases, num_steps)
        assert sum(numbers) == num_steps
        return sum(n * price for n, price in zip(numbers, prices, strict=True))

    steps = count_steps(spec, prices, amount)
    assert steps % size == 0
    assert steps == 0 or cost(steps) <= amount * (1 + 1e-9)
    assert cost(steps + size) > amount * (1 - 1e-9)


def time_step(task, corpora):
    """For `_seconds_per_step`: a millisecond for each token."""
    return task.count_costs(1)["raw_tokens"] / 1000


@pytest.mark.parametrize("kind", ["flops", "raw_tokens", "seconds"])
def test_a_budget_of_a_comparison_is_the_cost_of_the_run(
    kind, speech, tmp_path, monkeypatch
):
    monkeypatch.setattr(budget, "_seconds_per_step", time_step)
    changes = {"train__steps_per_call": 1, "train__checkpoint_every": 0, **PHASES}
    config = make_config(speech, "mlm", **changes)
    amount = {"flops": 1e8, "raw_tokens": 5000.0, "seconds": 5.0}[kind]
    config.compare.update(budget=kind, amount=amount)
    task, _, corpora = prepare(config)
    spec = make_compare_spec(config)
    args = spec, task.vocab, corpora, tmp_path
    plan = steps_for_budget("mlm", task.plan, *args)
    costs = []
    for steps in (plan.train.steps, plan.train.steps + 1):
        longer = prepare(make_config(speech, "mlm", **changes, train__steps=steps))[0]
        cost = longer.count_costs(steps)
        costs.append((cost | {"seconds": cost["raw_tokens"] / 1000})[kind])
    assert costs[0] <= amount < costs[1] and plan.train.steps > 20


@pytest.mark.slow
def test_a_comparison_of_scheduled_runs(labelled, tmp_path):
    config = make_config(labelled, **PHASES, data__split="auto")
    config.compare.update(objectives=("clm", "mlm"), seeds=(0, 1), amount=3e7)
    report = compare.compare(config.to_dict(), tmp_path)
    assert len(report["runs"]) == 4
    for entry in report["runs"]:
        steps = entry["steps"]
        plan = make_plan(config)
        assert steps % 2 == 0 and steps >= 6
        assert entry["flops"] <= 3e7 < entry["flops"] * (steps + 4) / steps
        assert entry["curve"][-1]["raw_tokens"] == entry["raw_tokens"]
        assert entry["raw_tokens"] < steps * plan.train.batch_size * 24


def test_the_time_left_is_in_proportion_to_the_flops_left(whole, monkeypatch):
    folder, task, _ = whole
    log = RunLog(Program(task), None, {}, folder)
    lines = []
    monkeypatch.setattr(log, "info", lines.append)
    log.log_end_time(2, seconds=60.0, call_seconds=60.0, count=2)
    done, total = (task.count_costs(steps)["flops"] for steps in (2, 12))
    minutes, seconds = divmod(round(60 * (total / done - 1)), 60)
    assert total / done > 9  # not 6
    assert lines[0].startswith(f"training takes {minutes}:{seconds:02} minutes more")
    values = []
    for step, seconds in ((4, 2.0), (6, 4.0), (10, 5.0)):
        log.watch.pause(seconds)
        metrics = {"grad_norm": (np.ones(2), np.ones(2))}
        values.append(log.log_call(step, step - 1, metrics, 1.0, {}))
    # 4 steps of 96 tokens in 2 seconds; 2 of 192 in 2; 2 of 192 and 2 of 192 in 1.
    assert [v["tokens_per_second"] for v in values] == [192, 192, 768]


def test_the_bar_estimates_the_rest_from_the_work_left(capsys):
    now = iter((0.0, 10.0, 20.0))
    work = (0, 1, 2, 6, 12).__getitem__
    with Progress(4, 1, clock=lambda: next(now), work=work) as progress:
        for step in (2, 3):
            progress.update(step, {}, tokens_per_second=1.0)
    lines = capsys.readouterr().out.splitlines()
    # 10 seconds for 1 of the 11 that are left, then 20 for 5.
    assert [line.split()[-1] for line in lines] == ["01:40", "00:24"]


def test_the_kernel_is_checked_for_the_rows_of_every_phase(speech, monkeypatch):
    lengths = []
    monkeypatch.setattr(
        check, "check_kernel", lambda spec, each, **kwargs: lengths.extend(each)
    )
    check.check_run(*prepare(make_config(speech, "mlm", **PHASES)))
    assert set(lengths) == {12, 24}


def test_a_step_of_the_last_phase_is_counted(speech, monkeypatch):
    counts = []
    for schedules in (PHASES, {}):
        monkeypatch.setattr(xla_flops, "_known", {})
        task, _, _ = prepare(make_config(speech, "mlm", **schedules))
        counts.append(xla_flops.count_step(task))
    assert counts[0] == counts[1]


def test_a_passage_and_a_card_of_a_scheduled_run(speech):
    task, tokenizer, corpora = prepare(make_config(speech, "mlm", **PHASES))
    view = passage.view("mlm", task.plan, tokenizer, corpora["train"], length=9)
    assert [len(strip.tokens) for strip in view.strips][:2] == [9, 9]
    assert view.flops == task.phases[-1].count_flops() / 24
    facts = list_facts(task, None, "masked", 12, (), (), "speech.txt")
    assert "Schedule: train.length_schedule=((0.6666666666666666, 2),)" in facts


def test_a_step_is_replayed_from_its_number(whole, speech):
    config = make_config(speech, "mlm", **SETTINGS)
    task, tokenizer, corpora = prepare(config)
    lines = inspect_rows(task, tokenizer, corpora, step=5, num_rows=16)
    assert lines[0] == "mlm, step 5: 16 rows of 12 tokens (chunks)"
    loop_parts = prepare_loop(config)
    rows = loop_parts.feed[1]
    state, _ = one_call(task, rows)
    other, _ = jax.jit(loop_parts.train_step, static_argnames="seed")(
        loop_parts.init_state(3), rows, seed=3
    )
    for pair in zip(*map(jax.tree.leaves, (state.params, other.params)), strict=True):
        np.testing.assert_allclose(*pair, atol=1e-5)


def test_a_dry_run_counts_each_phase(speech, monkeypatch):
    def time_step(program, state, stack, count):
        return state, stack["tokens"].size / count / 1000

    monkeypatch.setattr("jaxpt.training.dry_run._time_step", time_step)
    output = dry_run(make_config(speech, "mlm", **PHASES))
    task = prepare(make_config(speech, "mlm", **PHASES))[0]
    assert output["flops"] == task.count_costs(12)["flops"]
    assert output["rows_per_step"] == (8 + 16 + 8) / 3
    assert output["tokens_per_step"] == (96 + 192 + 192) / 3
    seconds = 4 * (96 + 192 + 192) / 1000
    assert output["train_seconds"] == pytest.approx(seconds)
    assert output["step_seconds"] == pytest.approx(seconds / 12)


REFUSED = {
    "pairs": (
        "bert",
        {},
        "train.length_schedule=((0.7, 2),): must be () with data.rows=",
    ),
    "length": ("clm", {"data__row_length": 25}, "2 must divide the 25 tokens of a row"),
    "short": (
        "span_corruption",
        {"train__length_schedule": ((0.7, 24),)},
        "data.row_length=1: span_corruption needs at least",
    ),
    "microbatches": (
        "clm",
        {"train__batch_schedule": ((0.5, 0.6),), "train__num_microbatches": 4},
        "train.num_microbatches=3: must be a divisor of train.batch_size=10 (with",
    ),
    "share": ("clm", {"train__batch_schedule": ((0.5, 0),)}, "train.batch_schedule="),
    "order": (
        "clm",
        {"train__batch_schedule": ((0.5, 0.5), (0.4, 1))},
        "until above 0",
    ),
    "pieces": (
        "clm",
        {"train__length_schedule": ((0.5, 1.5),)},
        "pieces a whole number",
    ),
    "single": ("clm", {"train__length_schedule": (0.5, 2)}, "pairs (until, pieces)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_combined_is_refused(case, speech, refuses):
    name, changes, message = REFUSED[case]
    config = make_config(
        speech, name, **{"train__length_schedule": ((0.7, 2),)} | changes
    )
    with refuses(message):
        make_plan(config)


def test_devices_share_the_batch_of_every_phase(speech, refuses):
    task = prepare(make_config(speech, train__batch_schedule=((0.5, 0.5),)))[0]
    Program(task, jax.devices() * 4)
    with refuses("train.batch_size=8: the 4 rows of a phase must be a multiple of 8"):
        Program(task, jax.devices() * 8)
