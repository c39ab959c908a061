"""The command `train`: one run."""

from pathlib import Path

from absl.flags import FlagValues

from jaxpt.cli.flags import (
    SETTING,
    Command,
    command,
    expand,
    list_flag_names,
    parse,
    parse_config,
)
from jaxpt.cli.running import (
    OUTPUT,
    PROCESSES,
    joined,
    list_metrics,
    read_workdir,
    show_result,
)
from jaxpt.config.settings import AnyConfig
from jaxpt.distributed import processes
from jaxpt.errors import ConfigError
from jaxpt.files.folder import load_config
from jaxpt.training.train_run import train_run

# The last line of a dry run.
ELSEWHERE = (
    "on a GPU or TPU that you do not have: jaxpt fit --target h200, with this --config"
)


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
            "train nothing: report parameters, FLOPs, the family of the export to "
            "transformers, memory and, after one timed call of steps, the time that "
            "the run would take",
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
        _refuse_settings_alone(command, argv)
        config, values, explicit_names = parse_config(command, argv)
    else:
        values = parse(command, argv)
        hint = "without --config, --workdir must hold a run"
        config = load_config(read_workdir(values) / "config.json", hint)
    if values.dry_run:
        with joined(values):
            return _dry_run(config, explicit_names or [], values)
    workdir = read_workdir(values)
    with joined(values):
        is_stored = explicit_names is None
        result = train_run(config, workdir, explicit_names or (), is_stored)
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


def _refuse_settings_alone(command: Command, argv: list[str]) -> None:
    """Refuses settings without --config for a run that is there.

    It would be resumed with its own settings.
    """
    argv = expand(command, argv)
    settings = [arg.partition("=")[0] for arg in argv if SETTING.match(arg)]
    values = parse(command, [arg for arg in argv if not SETTING.match(arg)])
    run = values.workdir
    if settings and not values.config and run and Path(run, "config.json").is_file():
        raise ConfigError(
            f"{settings[0]}: must not be given without --config, as {run} is a run and "
            "is resumed with its own settings; a new run with other settings from its "
            f"parameters: --config {run}/config.json --config.train.init_from={run} "
            "and another --workdir"
        )


def _dry_run(config: AnyConfig, explicit_names: list[str], values: FlagValues) -> int:
    from jaxpt.hub.exportable import name_families
    from jaxpt.training.dry_run import dry_run, format_costs, format_sizes

    def show_sizes(sizes: dict) -> None:
        if not values.json:
            print("\n".join(format_sizes(sizes)), flush=True)

    costs = dry_run(config, explicit_names, show_sizes, name_families)
    show_result(values, costs, [*format_costs(costs), ELSEWHERE])
    return 0
