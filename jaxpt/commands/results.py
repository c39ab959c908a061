"""Commands for archived studies: archive and reproduce."""

import itertools
from pathlib import Path

from jaxpt.commands.flags import Command, command, parse
from jaxpt.commands.running import (
    QUIET,
    read_to,
    read_workdir,
    run_command,
    show,
)
from jaxpt.errors import ConfigError


@command(
    "archive",
    example="""\
jaxpt archive --workdir runs/quickstart --to results/quickstart \\
    --title "Four objectives at 4e11 FLOPs" \\
    --question "Which objective learns most from the same cost?" \\
    --command "jaxpt compare --config quickstart --workdir runs/quickstart\"""",
    flags={
        "to": ("", "the folder to write: new, empty, or an earlier study"),
        "title": ("", "title of the study"),
        "question": ("", "what the study asks, in one sentence"),
        "command": ("", "the command that made the comparison; its config is copied"),
        "note": ("", "what readers should know, such as other load on the machine"),
        "pictures": (True, "copy the first pictures of the report"),
    },
    common=("trust", "workdir"),
)
def archive(command: Command, argv: list[str]) -> int:
    """Store a finished comparison as a study of a few small files.

    The folder has the report, the settings and each run's values by test example, from
    which the verdicts are computed again; it has no checkpoints.
    """
    values = parse(command, argv)
    workdir, folder = read_workdir(values), read_to(values)
    for name in ("title", "question"):
        if not values[name].value:
            raise ConfigError(f"--{name}: must be given")

    def work() -> int:
        from jaxpt.comparison.archive import archive as write_study

        words = values.title, values.question, values.command, values.note
        study = write_study(workdir, folder, *words, values.pictures)
        num = len(study.report["runs"])
        return show([f"{folder}: {num} runs; its verdicts follow from their values"])

    return run_command(values, work)


@command(
    "reproduce",
    example="jaxpt reproduce results/quickstart --workdir runs/again",
    flags=QUIET | {"data": ("", "the text, if it is elsewhere on this machine")},
    words="STUDY",
    common=("trust", "workdir"),
)
def reproduce(command: Command, argv: list[str]) -> int:
    """Train the runs of an archived study again and compare the means.

    Prints each mean next to the interval that the study states. Exit code 0 if all
    means are within their intervals, 1 if not. Repeat the command to continue a
    reproduction that was stopped.
    """
    words = list(itertools.takewhile(lambda arg: not arg.startswith("-"), argv))
    values = parse(command, argv[len(words) :])
    if len(words) != 1:
        raise ConfigError("reproduce: must be followed by one folder of a study")
    workdir = read_workdir(values)

    def work() -> int:
        from jaxpt.comparison.reproduce import format_repeated
        from jaxpt.comparison.reproduce import reproduce as train_again

        repeated = train_again(Path(words[0]), workdir, values.data)
        show(format_repeated(repeated))
        return 0 if all(each.is_within for each in repeated) else 1

    return run_command(values, work)
