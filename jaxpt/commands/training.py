"""Commands that train runs and report on them."""

from pathlib import Path

from absl import flags

from jaxpt.commands.running import (
    define_output,
    define_processes,
    define_quiet,
    hush,
    list_flag_names,
    print_metrics,
    read_workdir,
    run_alone,
    run_command,
    show_result,
    start_jax,
)
from jaxpt.config.flags import (
    define_parts,
    list_given,
    parse,
    parse_config,
    repeat_flag,
)
from jaxpt.errors import UserError
from jaxpt.quiet import hushed
from jaxpt.statistics import ALPHA


def parse_or_stored(argv: list[str]):
    """The config of --config; without it, that of the run in --workdir."""

    def define(values):
        define_processes(values)
        define_output(values)
        flags.DEFINE_boolean(
            "dry_run",
            False,
            "say what the run would be and cost, after one timed call; train nothing",
            flag_values=values,
        )

    names = list_flag_names(argv)
    if "config" in names or "workdir" not in names:
        return parse_config("train", argv, define)
    values = parse("train", argv, define)
    from jaxpt.files.folder import load_config

    what = "without --config, --workdir must hold a run"
    return load_config(read_workdir(values) / "config.json", what), values


def train(argv: list[str]) -> int:
    """jaxpt train: one run; started again, it resumes."""
    config, values = parse_or_stored(argv)
    given = list_given(values) if "config" in values else None
    if values.dry_run:
        return run_alone(lambda: _tell_costs(config, given or [], values))
    workdir = read_workdir(values)
    return run_command(values, lambda: _train(config, workdir, given, values))


def _tell_costs(config, given: list[str], values) -> int:
    from jaxpt.training.dry_run import dry_run, format_dry_run

    with hush(values):
        told = dry_run(config, given)
    show_result(values, told, lambda: print("\n".join(format_dry_run(told))))
    return 0


def _train(config, workdir: Path, given: list[str] | None, values) -> int:
    """Trains; without the names that the user has given, the config is a run's own."""
    from jaxpt.distributed import processes
    from jaxpt.training.train_run import train_run

    with hush(values):
        result = train_run(config, workdir, given or (), given is None)

    def show():
        print_metrics(result["metrics"])
        print(f"{result['steps']} steps in {result['train_seconds']:.1f} s; {workdir}")

    if processes.is_first():
        show_result(values, result, show)
    return 0


def compare(argv: list[str]) -> int:
    """jaxpt compare: trains several objectives at one budget and writes a report."""

    def define(values):
        define_processes(values)
        define_parts(values)
        define_quiet(values)

    names, given = list_flag_names(argv), []
    is_kept = "part" in names and "config" not in names
    if is_kept and (values := parse("compare", argv, define)).part != "prepare":
        from jaxpt.comparison.plan_runs import load_compared_config

        config = load_compared_config(read_workdir(values))
    else:
        config, values = parse_config("compare", argv, define)
        given = list_given(values)
    return _compare(config, read_workdir(values), given, values)


def _compare(config, workdir: Path, given: list[str], values) -> int:
    from jaxpt.comparison.compare import Part, do_part
    from jaxpt.comparison.on_ray import Cluster, compare_on_ray
    from jaxpt.distributed import processes

    part = Part(values.part, values.run, values.run_index)
    asked = {name: values[f"ray_{name}"].value for name in Cluster.FLAGS}
    if cluster := Cluster.read(values.ray, asked):
        if part.what or values.distributed:
            raise UserError("--ray: must be without --part and --distributed")
        with hushed(values.quiet):
            told = compare_on_ray(cluster, config, workdir, given)
        print(told)
        return 0

    def do():
        with hushed(values.quiet):
            told = do_part(part, config, workdir, given)
        if processes.is_first():
            print(told)
        return 0

    return run_command(values, do)


def report(argv: list[str]) -> int:
    """jaxpt report: compares finished runs, whoever trained them; trains nothing."""

    def define(values):
        flags.DEFINE_multi_string(
            "runs",
            None,
            "folders of finished runs, or globs of them: one or several, with spaces "
            "or commas between; may be repeated",
            flag_values=values,
        )
        flags.DEFINE_float(
            "alpha",
            ALPHA,
            "family-wise error rate of the verdicts; if several analyses of the same "
            "objectives are planned, share 0.05 among them",
            flag_values=values,
        )

    values = parse("report", repeat_flag("runs", argv), define)
    workdir = read_workdir(values)
    start_jax()
    from jaxpt.comparison.runs_report import report_runs
    from jaxpt.distributed import processes
    from jaxpt.report.summary import format_table
    from jaxpt.training.finished_runs import find_folders

    processes.check_alone()
    folders = find_folders(values.runs or [])
    print(format_table(report_runs(folders, workdir, values.alpha)))
    print(f"\nreport: {workdir / 'report.html'}")
    return 0
