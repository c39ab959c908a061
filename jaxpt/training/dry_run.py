"""The size and cost of a run, estimated before it is trained (`--dry_run`).

The text is prepared as by `jaxpt prepare`, the step is compiled, and one call is timed.
The run's folder is not created.
"""

import time
from collections.abc import Collection
from typing import Any

import jax

from jaxpt.config.plan import make_plan
from jaxpt.errors import ConfigError
from jaxpt.learn.state import TrainState
from jaxpt.text.dataset import load_text
from jaxpt.text.phases import split_steps
from jaxpt.training.check import check_run
from jaxpt.training.data import with_token_counts
from jaxpt.training.program import Program, device_peak
from jaxpt.training.task import make_task
from jaxpt.training.teacher import lacks_teacher
from jaxpt.training.text_progress import make_reporter


def dry_run(config, explicit_names: Collection[str] = ()) -> dict[str, Any]:
    """Parameters, FLOPs, memory and time of a run.

    Args:
      config, explicit_names: as of `jaxpt.training.train_run.train_run`.

    Returns:
      names and values: counts, bytes and seconds are numbers, those of a step means.
      Memory is that of the largest call on each device, by XLA's plan: "state_bytes"
      and "rows_bytes" are its arguments, "temporary_bytes" is additional.

    Raises:
      UserError: `jaxpt train` would refuse the config, or it trains a teacher first.
    """
    plan = make_plan(config, explicit_names, is_run=True)
    if lacks_teacher(plan):
        raise ConfigError(
            f"--dry_run: {plan.objective_name} trains a teacher first; name one "
            f"({plan.spec.SECTION}.teacher=RUN)"
        )
    tokenizer, corpora = load_text(plan.text, reporter=make_reporter())
    task = make_task(plan, with_token_counts(plan, tokenizer.vocab, corpora["train"]))
    program, feed = check_run(task, tokenizer, corpora)
    spec = plan.train
    shapes = jax.tree.leaves(program.abstract_state().params)
    state = program.run_form(program.init_state(spec.seed))
    compile_seconds, seconds, num_rows, memory = 0.0, 0.0, 0, []
    numbers = split_steps(spec.phases, spec.steps)
    for phase, num in zip(spec.phases, numbers, strict=True):
        if not num:
            continue
        count = min(spec.steps_per_call, num)
        stack = program.place(feed.stack(phase.start, count))
        compile_seconds += program.train_call.compile(state, stack)
        memory.append(program.train_call.memory(stack))
        state, step_seconds = _time_step(program, state, stack, count)
        seconds += num * step_seconds
        num_rows += num * phase.batch_size
    largest = max(memory, key=lambda sizes: sum(sizes.values()))
    cost, peak = task.count_costs(spec.steps), device_peak()
    return {
        "objective": plan.objective_name,
        "filled_in": plan.filled,
        "parameters": sum(x.size for x in shapes),
        "devices": f"{len(program.devices)} x {jax.devices()[0].device_kind}",
        "dtype": task.model_spec.dtype,
        "attention": task.list_kernels(),
        "steps": spec.steps,
        "rows_per_step": num_rows / spec.steps,
        "tokens_per_step": cost["raw_tokens"] / spec.steps,
        "flops_per_step": cost["flops"] / spec.steps,
        "flops": cost["flops"],
        **largest,
        "compile_seconds": compile_seconds,
        "step_seconds": seconds / spec.steps,
        "tokens_per_second": cost["raw_tokens"] / seconds,
        "mfu": cost["flops"] / seconds / peak if peak else None,
        "train_seconds": spec.seconds or seconds,
    }


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


def format_dry_run(costs: dict[str, Any]) -> list[str]:
    """The lines that a terminal shows."""
    sizes = {name: costs[name] / 1e6 for name in costs if name.endswith("_bytes")}
    minutes, seconds = divmod(round(costs["train_seconds"]), 60)
    hours, minutes = divmod(minutes, 60)
    mfu = f", MFU {costs['mfu']:.1%}" if costs["mfu"] else ""
    lines = [
        f"{costs['objective']}: {costs['parameters']:,} parameters on "
        f"{costs['devices']}, {costs['dtype']}",
        f"attention: {'; '.join(costs['attention'])}",
        f"{costs['steps']:,} steps of {costs['rows_per_step']:,.6g} rows, "
        f"{costs['tokens_per_step']:,.0f} tokens and {costs['flops_per_step']:.3g} "
        f"FLOPs each; {costs['flops']:.3g} FLOPs in all",
        f"memory of a device: state {sizes['state_bytes']:,.1f} MB, rows "
        f"{sizes['rows_bytes']:,.1f} MB, temporary {sizes['temporary_bytes']:,.1f} MB",
        f"compiled in {costs['compile_seconds']:.1f} s; "
        f"{costs['step_seconds'] * 1e3:,.1f} ms a step, "
        f"{costs['tokens_per_second']:,.0f} tokens/s{mfu}",
        f"training: {hours}:{minutes:02}:{seconds:02}, without evaluation and "
        f"checkpoints",
    ]
    if costs["filled_in"]:
        lines.insert(1, f"filled in for {costs['objective']}: {costs['filled_in']}")
    return lines
