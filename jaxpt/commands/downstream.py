"""Commands that ask what a run is good for: metrics, tasks, fine-tuning, analysis."""

import sys
from pathlib import Path
from typing import Any

from absl import flags

from jaxpt.commands.running import (
    define_output,
    define_processes,
    hush,
    print_metrics,
    read_workdir,
    run_alone,
    run_command,
    say,
    show_result,
    start_jax,
)
from jaxpt.config.flags import (
    TASK_OPTIONS,
    define_analysis,
    define_scaling,
    define_tasks,
    parse,
    parse_config,
    repeat_flag,
)
from jaxpt.errors import UserError


def evaluate(argv: list[str]) -> int:
    """jaxpt evaluate: a run's metrics on held-out text, from its last checkpoint."""

    def define(values):
        define_processes(values)
        define_output(values)
        define_tasks(values)

    values = parse("evaluate", argv, define)
    workdir = read_workdir(values)
    if values.tasks:
        options = {name: values[name].value for name in TASK_OPTIONS}
        asked = values.tasks, values.rule, values.num_items, options
        return run_command(values, lambda: _evaluate_tasks(workdir, *asked, values))
    for name in ("rule", "num_items", *TASK_OPTIONS):
        if values[name].present:
            raise UserError(f"--{name}={values[name].value}: is for --tasks")
    return run_command(values, lambda: _evaluate(workdir, values))


def _evaluate_tasks(
    workdir: Path, told: list[str], rule: str, num_items: int, options: dict, values
) -> int:
    from jaxpt.distributed import processes
    from jaxpt.inference.zero_shot_results import evaluate_tasks, format_result
    from jaxpt.zero_shot.outcomes import Options

    found = evaluate_tasks(workdir, told, rule, num_items, Options(**options))

    def show():
        for result in found:
            print("\n".join(format_result(result, workdir)))

    if processes.is_first():
        show_result(values, found, show)
    return 0


def _evaluate(workdir: Path, values) -> int:
    from jaxpt.distributed import processes
    from jaxpt.training.measure import measure
    from jaxpt.training.random_parts import describe_random_parts
    from jaxpt.training.workdir import load_corpora, load_run

    program, tokenizer, params, step = load_run(workdir)
    if (told := describe_random_parts(program.task)) and processes.is_first():
        print(f"jaxpt: warning: {told}", file=sys.stderr)
    corpora = processes.first_then_rest(
        lambda: load_corpora(workdir, program.task, tokenizer)
    )
    metrics = measure(program, params, corpora, program.task.plan.train.seed).metrics

    def show():
        whose = " (EMA of the parameters)" if program.task.has_ema else ""
        print(f"step {step}{whose}")
        print_metrics(metrics)

    if processes.is_first():
        show_result(values, {"step": step, "metrics": metrics}, show)
    return 0


def finetune(argv: list[str]) -> int:
    """jaxpt finetune: trains a run for a downstream task, a grid of settings and seeds.

    Started again, it goes on.
    """

    def define(values):
        flags.DEFINE_string(
            "from",
            "",
            "the run to fine-tune, its folder (--workdir says the same); "
            "scratch:FOLDER is its network with fresh parameters; or a folder of "
            "transformers",
            flag_values=values,
        )
        flags.DEFINE_string("to", "", "the fine-tuning's folder", flag_values=values)
        define_output(values)

    config, values = parse_config("finetune", argv, define)
    source = values["from"].value or values.workdir
    if not source or (values["from"].value and values.workdir):
        raise UserError("--from: must name a run's folder, or --workdir, not both")
    if not values.to:
        raise UserError("--to: must name the folder to write")
    from jaxpt.config.finetuning import make_finetune_plan

    plan = make_finetune_plan(config)

    def do():
        from jaxpt.finetuning.grid import finetune as run_grid
        from jaxpt.finetuning.summary import format_summary

        with hush(values):
            result = run_grid(plan, source, Path(values.to), say)

        def show() -> None:
            print(f"{format_summary(result)}\n{values.to}")

        show_result(values, result, show)
        return 0

    return run_alone(do)


def analyse(argv: list[str]) -> int:
    """jaxpt analyse: what is in the layers of runs, on one text."""
    values = parse("analyse", repeat_flag("runs", argv), define_analysis)
    if not values.to:
        raise UserError("--to: must name the folder to write")
    start_jax()
    from jaxpt.distributed import processes
    from jaxpt.report.analysis import AnalysisSpec
    from jaxpt.report.analysis import analyse as analyse_runs
    from jaxpt.report.analysis_page import format_states
    from jaxpt.training.finished_runs import find_folders

    processes.check_alone()
    given: dict[str, Any] = {n: values[n].value for n in AnalysisSpec._fields}
    spec = AnalysisSpec(**given)
    result = analyse_runs(find_folders(values.runs or []), spec, Path(values.to))
    for line in format_states(result):
        print(line)
    print(f"\nanalysis: {Path(values.to) / 'analysis.html'}")
    return 0


def fit_scaling(argv: list[str]) -> int:
    """jaxpt fit-scaling: scaling laws of finished runs, or of a table of them."""

    values = parse("fit-scaling", repeat_flag("runs", argv), define_scaling)
    if bool(values.runs) == bool(values.csv):
        raise UserError("--runs, --csv: exactly one of them must be given")
    for name in ("metric", "count"):
        if values.csv and values[name].present:
            raise UserError(f"--{name}={values[name].value}: is for --runs")
    from jaxpt.report import scaling

    if values.csv:
        groups = scaling.read_csv(Path(values.csv))
    else:
        start_jax()
        from jaxpt.training.finished_runs import find_folders, load_runs

        runs = load_runs(find_folders(values.runs))
        groups = scaling.read_runs(runs, values.metric, str(values["count"].value))
    to = Path(values.to) if values.to else None
    for line in scaling.fit_scaling(groups, to, values.num_draws):
        print(line)
    return 0
