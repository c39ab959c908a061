"""Commands that compare: train several objectives, or report on finished runs."""

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
    FORMS,
    PROCESSES,
    QUIET,
    RUNS,
    read_workdir,
    refuse,
    run_command,
    show,
    start_jax,
)
from jaxpt.config.settings import AnyConfig
from jaxpt.errors import ConfigError
from jaxpt.files import remote
from jaxpt.judge import ALPHA
from jaxpt.objectives import OBJECTIVES

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
CONTROLS = {
    "controls": (
        False,
        "also compare the controls of each objective, which its settings declare",
    ),
}
REGISTER = {
    "register": (
        False,
        "write what is expected (compare.expected) and print its SHA-256 to publish; "
        "train nothing",
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
jaxpt compare --config quickstart --config.compare.objectives=clm,mlm \\
    --data my.txt --workdir runs/two""",
    flags=PROCESSES | CONTROLS | REGISTER | PARTS | RAY | QUIET,
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
    if is_stored and "controls" in names:
        raise ConfigError("--controls: needs --config; a stored comparison has them")
    if is_stored and (values := parse(command, argv)).part != "prepare":
        from jaxpt.comparison.plan_runs import load_compared_config

        leaves_out = "runs" if values.part == "runs" else ""
        config = load_compared_config(read_workdir(values, leaves_out))
    else:
        config, values, explicit_names = parse_config(command, argv)
        if values.controls:
            from jaxpt.comparison.controls import add_controls

            config = add_controls(config, explicit_names)
    leaves_out = "runs" if values.part == "runs" else ""
    workdir = read_workdir(values, leaves_out)
    return _compare(config, workdir, explicit_names, values)


def _compare(
    config: AnyConfig, workdir: Path, explicit_names: list[str], values: FlagValues
) -> int:
    from jaxpt.comparison.compare import Part, do_part
    from jaxpt.comparison.on_ray import Cluster, compare_on_ray
    from jaxpt.distributed import processes

    if values.register:
        return _register(config, workdir, explicit_names, values)
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
        return show([compare_on_ray(cluster, config, workdir, explicit_names)])

    def work() -> int:
        table = do_part(part, config, workdir, explicit_names)
        if processes.is_first():
            show([table])
        return 0

    return run_command(values, work)


def _register(
    config: AnyConfig, workdir: Path, explicit_names: list[str], values: FlagValues
) -> int:
    from jaxpt.comparison.compare import register
    from jaxpt.distributed import processes

    refuse(values, ("part", "ray"), "must be without --register, which trains nothing")

    def work() -> int:
        line = register(config, workdir, explicit_names)
        if processes.is_first():
            show([line])
        return 0

    return run_command(values, work)


@command(
    "report",
    example="""\
jaxpt report --runs runs/a runs/b --workdir runs/report
jaxpt report --study results/quickstart --workdir runs/report""",
    flags=RUNS
    | QUIET
    | {
        "study": ("", "the folder of a study of jaxpt archive, instead of --runs"),
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
        "pairs": (False, "also print every two objectives on each metric"),
        "format": ("text", "how the tables are printed", FORMS),
    },
)
def report(command: Command, argv: list[str]) -> int:
    """Report on finished runs or a study, as `jaxpt compare` does; train nothing."""
    values = parse(command, repeat_flag(command, "runs", argv))
    workdir = read_workdir(values)
    start_jax()
    from jaxpt.comparison.runs_report import report_runs, report_study
    from jaxpt.distributed import processes
    from jaxpt.report.answer import rank_report
    from jaxpt.report.terminal import format_table
    from jaxpt.report.types import Report
    from jaxpt.runs.finished_runs import find_folders

    processes.check_alone()
    if values.study:
        others = [n for n in ("runs", "alpha", "control") if values[n].present]
        if others:
            raise ConfigError(f"--study={values.study}: leave out --{others[0]}")
        result = report_study(remote.fetch(values.study), workdir)
    else:
        folders = find_folders(values.runs or [])
        result = report_runs(folders, workdir, values.alpha, values.control)
    read, form = Report.from_json(result), values.format
    if form != "text":
        return show([rank_report(read).format(form, values.pairs)])
    table = format_table(read, values.pairs)
    return show([table, f"\nreport: {workdir / 'report.html'}"])
