"""Commands for stored results: archive, reproduce and doctor."""

import itertools

from jaxpt.cli.flags import Command, command, parse
from jaxpt.cli.running import (
    OUTPUT,
    QUIET,
    read_to,
    read_workdir,
    run_command,
    show,
    show_result,
)
from jaxpt.errors import ConfigError
from jaxpt.files.remote import fetch


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
        "record": (
            False,
            "the comparison is a record of a speedrun: one objective, seeds 0, 1, ...; "
            "adds hashes of text, tokenizer and code, and the devices",
        ),
        "rerun_of": ("", "of a record: the name of the record that it repeats"),
    },
    common=("trust", "workdir"),
)
def archive(command: Command, argv: list[str]) -> int:
    """Store a finished comparison as a study of three small files.

    The files have the settings, and each run's results, learning curve, costs and
    values by test example. `jaxpt report --study` computes the report from them.
    Checkpoints, logs and pictures are left out.
    """
    values = parse(command, argv)
    workdir, folder = read_workdir(values), read_to(values)
    for name in ("title", "question"):
        if not values[name].value:
            raise ConfigError(f"--{name}: must be given")
    if values.rerun_of and not values.record:
        raise ConfigError("--rerun_of: must be given with --record")

    def work() -> int:
        from jaxpt.comparison.archive import archive as write_study

        words = values.title, values.question, values.command, values.note
        is_record = bool(values["record"].value)
        study = write_study(workdir, folder, *words, is_record, values.rerun_of)
        num = len(study.stored["report"]["runs"])
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

        repeated = train_again(fetch(words[0]), workdir, values.data)
        show(format_repeated(repeated))
        return 0 if all(each.is_within for each in repeated) else 1

    return run_command(values, work)


MOST_NAMED = 5  # files without a checksum in a line


@command(
    "doctor",
    example="""\
jaxpt doctor runs/mlm
jaxpt doctor exported --json""",
    flags=OUTPUT,
    words="PATH",
    common=("trust",),
)
def doctor(command: Command, argv: list[str]) -> int:
    """Verify the files of a run, comparison, store, export or study.

    Compares every file with its recorded checksum: runs with their checkpoints,
    comparisons, reports, fine-tunings, prepared stores, exports and archived studies.
    Names each damaged file, what still works and what to do. Changes nothing. Exit
    code 0 if everything is whole, 1 if a file is damaged, missing or cannot be
    verified.
    """
    words = list(itertools.takewhile(lambda arg: not arg.startswith("-"), argv))
    values = parse(command, argv[len(words) :])
    if len(words) != 1:
        raise ConfigError("doctor: must be followed by one folder")
    from jaxpt.doctor import examine

    root = fetch(words[0])
    result = examine(root)
    faults = [fault._asdict() for fault in result.faults]
    state = f"{len(faults)} damaged" if faults else "whole"
    files = f"{result.num_files:,} file{'s' * (result.num_files != 1)}"
    size = f"{files}, {result.num_bytes / 1e6:,.1f} MB verified"
    lines = [f"{root}: {result.kind}, {state}; {size}"]
    for fault in result.faults:
        lines += [f"  {fault.path}: {fault.problem}", f"    -> {fault.remedy}"]
    lines += [f"  note: {note}" for note in result.notes]
    if rest := result.unverified:
        more = f" and {len(rest) - MOST_NAMED} more" * (len(rest) > MOST_NAMED)
        named = ", ".join(rest[:MOST_NAMED])
        lines.append(f"  without a checksum: {named}{more}")
    show_result(values, result._asdict() | {"faults": faults}, lines)
    return 1 if faults else 0
