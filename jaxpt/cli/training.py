"""Commands that pretrain: one run, or a comparison of several objectives."""

from pathlib import Path

from absl.flags import FlagValues

from jaxpt.cli.flags import (
    Command,
    command,
    list_flag_names,
    parse,
    parse_config,
    repeat_flag,
)
from jaxpt.cli.running import (
    OUTPUT,
    PROCESSES,
    QUIET,
    RUNS,
    list_metrics,
    read_workdir,
    run_command,
    show,
    show_result,
    start_jax,
)
from jaxpt.config.settings import AnyConfig
from jaxpt.errors import ConfigError
from jaxpt.files import remote
from jaxpt.judge import ALPHA
from jaxpt.objectives import OBJECTIVES


@command(
    "train",
    example="""\
jaxpt train --config quickstart:mlm --workdir runs/mlm
jaxpt train --config quickstart --objective electra --data my.txt --steps 2000 \\
    --workdir runs/electra""",
    flags=PROCESSES
    | OUTPUT
    | {
        "dry_run": (
            False,
            "train nothing: report parameters, FLOPs, memory and, after one timed call "
            "of steps, the time that the run would take",
        ),
    },
    config="pretraining",
)
def train(command: Command, argv: list[str]) -> int:
    """Train a model under one objective, or resume its training.

    Repeat the command to resume a run that was stopped. Without --config, the run in
    --workdir is resumed with its own settings.
    """
    names, explicit_names = list_flag_names(command, argv), None
    if "config" in names or "workdir" not in names:
        config, values, explicit_names = parse_config(command, argv)
    else:
        values = parse(command, argv)
        from jaxpt.files.folder import load_config

        hint = "without --config, --workdir must hold a run"
        config = load_config(read_workdir(values) / "config.json", hint)
    if values.dry_run:
        return run_command(
            values, lambda: _dry_run(config, explicit_names or [], values)
        )
    workdir = read_workdir(values)
    return run_command(values, lambda: _train(config, workdir, explicit_names, values))


def _dry_run(config: AnyConfig, explicit_names: list[str], values: FlagValues) -> int:
    from jaxpt.training.dry_run import dry_run, format_costs, format_sizes

    def show_sizes(sizes: dict) -> None:
        if not values.json:
            print("\n".join(format_sizes(sizes)), flush=True)

    costs = dry_run(config, explicit_names, show_sizes)
    show_result(values, costs, format_costs(costs))
    return 0


def _train(
    config: AnyConfig,
    workdir: Path,
    explicit_names: list[str] | None,
    values: FlagValues,
) -> int:
    """Trains a run; without `explicit_names`, the config is the stored one."""
    from jaxpt.distributed import processes
    from jaxpt.hub.describe import describe_export
    from jaxpt.training.hooks import Hooks
    from jaxpt.training.train_run import train_run

    hooks, is_stored = Hooks(describe=describe_export), explicit_names is None
    result = train_run(config, workdir, explicit_names or (), is_stored, hooks)
    if processes.is_first():
        lines = list_metrics(result["metrics"])
        time = f"{result['steps']} steps in {result['train_seconds']:.1f} s"
        left_out = [
            f"{name.replace('_', ' ')}: {result[name]}"
            for name in ("skipped_updates", "skipped_batches")
            if name in result
        ]
        show_result(values, result, [*lines, *left_out, f"{time}; {workdir}"])
    return 0


RAY = {
    "ray": (
        "",
        "spread the runs over a Ray cluster: local (this machine), auto (the one this "
        "machine belongs to) or its address",
    ),
    "ray_resources": (
        "",
        "with --ray: custom resources that each run takes, such as TPU=4",
    ),
    "ray_cpus": (int, "with --ray: CPUs that each run takes; default: 1"),
    "ray_gpus": (
        int,
        "with --ray: GPUs that each run takes; default: 1 if the cluster has any, else "
        "0",
    ),
    "ray_retries": (
        int,
        "with --ray: how often a run may lose its machine; default: 3",
    ),
}
PARTS = {
    "part": (
        "",
        "do a part of the comparison: prepare (the text that all runs share), runs "
        "(all that no other process does, until all are finished), report, or list "
        "(the names of the runs)",
    ),
    "run": ("", "with --part=runs: the only run to train, such as mlm-seed0"),
    "run_index": (int, "with --part=runs: the number of the only run to train, from 0"),
}


@command(
    "compare",
    example="""\
jaxpt compare --config quickstart --workdir runs/quickstart
jaxpt compare --config quickstart --config.compare.objectives="('clm','mlm')" \\
    --data my.txt --workdir runs/two""",
    flags=PROCESSES | PARTS | RAY | QUIET,
    config="pretraining",
    sections=(
        *("data", "tokenizer", "model", "optim", "train", "eval", "compare"),
        *OBJECTIVES,
    ),
    short=("data", "lr"),
)
def compare(command: Command, argv: list[str]) -> int:
    """Train several objectives at equal cost and report which learned most.

    Repeat the command to continue a comparison that was stopped. Its runs can be spread
    over processes and machines with --part, --ray or --distributed.
    """
    names = list_flag_names(command, argv)
    explicit_names: list[str] = []
    is_stored = "part" in names and "config" not in names
    if is_stored and (values := parse(command, argv)).part != "prepare":
        from jaxpt.comparison.plan_runs import load_compared_config

        leaves_out = "runs" if values.part == "runs" else ""
        config = load_compared_config(read_workdir(values, leaves_out))
    else:
        config, values, explicit_names = parse_config(command, argv)
    leaves_out = "runs" if values.part == "runs" else ""
    workdir = read_workdir(values, leaves_out)
    return _compare(config, workdir, explicit_names, values)


def _compare(
    config: AnyConfig, workdir: Path, explicit_names: list[str], values: FlagValues
) -> int:
    from jaxpt.comparison.compare import Part, do_part
    from jaxpt.comparison.on_ray import Cluster, compare_on_ray
    from jaxpt.distributed import processes

    part = Part(values.part, values.run, values.run_index)
    options = {name: values[f"ray_{name}"].value for name in Cluster.FLAGS}
    if cluster := Cluster.read(values.ray, options):
        if part.kind or values.distributed:
            raise ConfigError("--ray: must be without --part and --distributed")
        if remote.is_remote(workdir):
            raise ConfigError(
                f"--ray={values.ray}: needs a --workdir on a disk that all machines "
                f"share; for {values.workdir} start a process with --part=runs on each"
            )
        print(compare_on_ray(cluster, config, workdir, explicit_names))
        return 0

    def work() -> int:
        table = do_part(part, config, workdir, explicit_names)
        if processes.is_first():
            show([table])
        return 0

    return run_command(values, work)


@command(
    "report",
    example="jaxpt report --runs runs/a runs/b --workdir runs/report",
    flags=RUNS
    | QUIET
    | {
        "alpha": (
            ALPHA,
            "family-wise error rate of the verdicts; if several analyses of the same "
            "objectives are planned, share 0.05 among them",
        ),
        "control": (
            "",
            "the name that all others are compared with, chosen before any result was "
            "seen; default: all pairs are compared",
        ),
    },
)
def report(command: Command, argv: list[str]) -> int:
    """Report on finished runs, as `jaxpt compare` does; train nothing."""
    values = parse(command, repeat_flag(command, "runs", argv))
    workdir = read_workdir(values)
    start_jax()
    from jaxpt.comparison.runs_report import report_runs
    from jaxpt.distributed import processes
    from jaxpt.report.terminal import format_table
    from jaxpt.report.types import Report
    from jaxpt.training.finished_runs import find_folders

    processes.check_alone()
    folders = find_folders(values.runs or [])
    report = report_runs(folders, workdir, values.alpha, values.control)
    table = format_table(Report.from_json(report))
    return show([table, f"\nreport: {workdir / 'report.html'}"])
