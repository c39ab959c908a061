"""The size and cost of a run, estimated before it is trained.

The text is prepared as by `jaxpt prepare`. Parameters and FLOPs follow from shapes.
Then the calls are compiled, which plans their memory, and one is timed: if it were too
long, a step with a part of the rows. The run's folder is not created.
"""

import time
from collections.abc import Callable, Collection
from typing import Any

import jax

from jaxpt.config.plan import make_plan
from jaxpt.errors import ConfigError, argument
from jaxpt.learn.state import TrainState
from jaxpt.runs.data import with_token_counts
from jaxpt.runs.program import Program, device_peak
from jaxpt.runs.progress_bars import make_reporter
from jaxpt.runs.task import Task, make_task
from jaxpt.text.dataset import load_text
from jaxpt.text.phases import split_steps
from jaxpt.training.check import check_run

# FLOPs of the longest call that is timed: 5 seconds of two cores, or 10 seconds at a
# tenth of the peak of accelerators.
MOST_FLOPS, MOST_SECONDS_AT_PEAK = 5e11, 1.0


def dry_run(
    config,
    explicit_names: Collection[str] = (),
    on_sizes: Callable[[dict[str, Any]], None] = lambda sizes: None,
    name_export: Callable[[Task], str] | None = None,
) -> dict[str, Any]:
    """Parameters, FLOPs, memory and time of a run.

    Args:
      config, explicit_names: as of `jaxpt.training.train_run.train_run`.
      on_sizes: receives the values that are known before a call is compiled.
      name_export: the form in which a task's model can be exported, for "export".

    Returns:
      names and values: counts, bytes and seconds are numbers, those of a step means.
      Memory is that of the largest call on each device, by XLA's plan: "state_bytes"
      and "rows_bytes" are its arguments, "temporary_bytes" is additional. "timed_rows"
      of the rows of a step were timed; "step_seconds" is proportional.
    """
    plan = make_plan(config, explicit_names, is_run=True)
    if plan.lacks_teacher:
        raise ConfigError(
            f"{argument('dry_run')}: {plan.objective_name} trains a teacher first; "
            f"name one ({plan.spec.SECTION}.teacher=RUN)"
        )
    tokenizer, corpora = load_text(plan.text, reporter=make_reporter())
    task = make_task(plan, with_token_counts(plan, tokenizer.vocab, corpora["train"]))
    program, feed = check_run(task, tokenizer, corpora)
    sizes = _list_sizes(program)
    if name_export:
        sizes["export"] = name_export(task)
    on_sizes(sizes)

    spec = plan.train
    state = program.run_form(program.init_state(spec.seed))
    compile_seconds, seconds, timed_rows, memory = 0.0, 0.0, [], []
    numbers = split_steps(spec.phases, spec.steps)
    for phase, part, num in zip(spec.phases, task.phases, numbers, strict=True):
        if not num:
            continue
        stack = feed.stack(phase.start, min(spec.steps_per_call, num))
        placed = program.place(stack)
        compile_seconds += program.train_call.compile(state, placed)
        memory.append(program.train_call.memory(placed))
        stack, share = _cut(program, part, stack)
        placed = program.place(stack)
        program.train_call.compile(state, placed)
        count = len(stack["tokens"])
        state, step_seconds = _time_step(program, state, placed, count)
        seconds += num * step_seconds / share
        timed_rows.append(round(share * phase.batch_size))
    largest = max(memory, key=lambda sizes: sum(sizes.values()))
    peak = device_peak()
    return sizes | {
        **largest,
        "compile_seconds": compile_seconds,
        "timed_rows": min(timed_rows),
        "step_seconds": seconds / spec.steps,
        "tokens_per_second": sizes["tokens_per_step"] * spec.steps / seconds,
        "mfu": task.count_network_flops(spec.steps) / seconds / peak if peak else None,
        "train_seconds": spec.seconds or seconds,
    }


def _list_sizes(program: Program) -> dict[str, Any]:
    task, steps = program.task, program.task.plan.train.steps
    shapes = jax.tree.leaves(program.abstract_state().params)
    numbers = split_steps(task.plan.train.phases, steps)
    phases = zip(task.plan.train.phases, numbers, strict=True)
    cost = task.count_costs(steps)
    return {
        "objective": task.plan.objective_name,
        "filled_in": task.plan.filled,
        "parameters": sum(x.size for x in shapes),
        "devices": f"{len(program.devices)} x {jax.devices()[0].device_kind}",
        "dtype": task.model_spec.dtype,
        "attention": task.list_kernels(),
        "steps": steps,
        "rows_per_step": sum(num * phase.batch_size for phase, num in phases) / steps,
        "tokens_per_step": cost["raw_tokens"] / steps,
        "flops_per_step": cost["flops"] / steps,
        "flops": cost["flops"],
    }


def _cut(program: Program, task: Task, stack: dict) -> tuple[dict, float]:
    """A call that can be timed, and the share of a step's rows that its steps read."""
    peak, row_flops = device_peak(), task.count_flops()
    most = (peak * MOST_SECONDS_AT_PEAK if peak else MOST_FLOPS) / row_flops  # rows
    count, num_rows = stack["tokens"].shape[:2]
    num_processes = jax.process_count()
    if count * num_rows * num_processes <= most:
        return stack, 1.0
    # Each microbatch has equally many rows on each device.
    unit = task.plan.train.num_microbatches * len(program.devices)
    num = max(1, int(most) // unit) * unit // num_processes
    num = min(num, num_rows)
    return jax.tree.map(lambda x: x[:1, :num], stack), num / num_rows


def _time_step(
    program: Program, state: TrainState, stack: dict, count: int
) -> tuple[TrainState, float]:
    """The state after two calls of some steps, and the seconds of a step."""
    spec = program.task.plan.train
    numbers = (spec.seed, 0, count) if spec.seconds else (spec.seed,)
    for _ in range(2):  # the first is slower
        start = time.perf_counter()
        state, metrics = program.train_call(state, stack, *numbers)
        jax.block_until_ready((state, metrics))
    return state, (time.perf_counter() - start) / count


def format_sizes(sizes: dict[str, Any]) -> list[str]:
    """The lines that a terminal shows before anything is compiled."""
    lines = [
        f"{sizes['objective']}: {sizes['parameters']:,} parameters on "
        f"{sizes['devices']}, {sizes['dtype']}",
        f"attention: {'; '.join(sizes['attention'])}",
        f"{sizes['steps']:,} steps of {sizes['rows_per_step']:,.6g} rows, "
        f"{sizes['tokens_per_step']:,.0f} tokens and {sizes['flops_per_step']:.3g} "
        f"FLOPs each; {sizes['flops']:.3g} FLOPs in all",
    ]
    if sizes["filled_in"]:
        lines.insert(1, f"filled in for {sizes['objective']}: {sizes['filled_in']}")
    if "export" in sizes:
        lines.append(f"export to transformers: {sizes['export']}")
    return lines


def format_costs(costs: dict[str, Any]) -> list[str]:
    """The lines that a terminal shows at the end."""
    sizes = {name: costs[name] / 1e6 for name in costs if name.endswith("_bytes")}
    minutes, seconds = divmod(round(costs["train_seconds"]), 60)
    hours, minutes = divmod(minutes, 60)
    mfu = f", MFU {costs['mfu']:.1%}" if costs["mfu"] else ""
    rows = costs["timed_rows"]
    part = f", by a step of {rows} rows" if rows < costs["rows_per_step"] else ""
    return [
        f"memory of a device: state {sizes['state_bytes']:,.1f} MB, rows "
        f"{sizes['rows_bytes']:,.1f} MB, temporary {sizes['temporary_bytes']:,.1f} MB",
        f"compiled in {costs['compile_seconds']:.1f} s; "
        f"{costs['step_seconds'] * 1e3:,.1f} ms a step{part}, "
        f"{costs['tokens_per_second']:,.0f} tokens/s{mfu}",
        f"training: {hours}:{minutes:02}:{seconds:02}, without evaluation and "
        f"checkpoints",
    ]
