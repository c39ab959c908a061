"""The command line: `jaxpt COMMAND [flags]`. `jaxpt.cli` has the commands."""

import contextlib
import errno
import gc
import logging
import shlex
import sys
from collections.abc import Iterator

from jaxpt import interrupts, logs, trust, user_code
from jaxpt.cli.commands import COMMANDS, GROUPS
from jaxpt.errors import (
    ConfigError,
    Ended,
    Spelling,
    UserError,
    is_out_of_memory,
    shorten,
    spelled,
    suggest,
)
from jaxpt.version import __version__

NOTES = """\
Examples:
  jaxpt train --config quickstart:mlm --workdir runs/mlm
  jaxpt compare --config quickstart --workdir runs/quickstart
  jaxpt fill --workdir runs/mlm --text "the st[MASK]te of the union"

Settings of a config are flags: --config.optim.lr=3e-4 or --config.optim.lr 3e-4.
Short forms: --objective, --data, --steps and --lr.
--config takes a Python file, a run's config.json, or the name of a config that comes
with jaxpt (jaxpt list configs).
train, compare and evaluate run on several processes with --distributed; compare spreads
its runs over machines with --part or --ray (see launch/).
A stored run whose objective is a module outside jaxpt needs --trust MODULE; one whose
text is a URL or a data set to download needs --trust URL, or the URL in another flag.

jaxpt COMMAND --help describes a command, with an example and its flags.
Exit codes: 0 success, 2 bad input or out of memory, 3 diverged (of several runs, all),
1 a bug, 128 + N stopped by signal N; of reproduce, 1 is a mean outside its interval; of
doctor, 1 is damage; of fit, 1 is a run that does not fit; of export, 1 is an objective
of a comparison that was left out.
"""


def _format_usage() -> str:
    """The commands by group, each with its summary."""
    lines = ["usage: jaxpt COMMAND [flags]", ""]
    for group, commands in GROUPS.items():
        lines.append(f"{group}:")
        lines += [f"  {name:12} {text}" for name, (_, text) in commands.items()]
        lines.append("")
    return "\n".join([*lines, NOTES])


USAGE = _format_usage()
# Messages of the library name arguments; here they become flags. A value may be from a
# stored file and hold anything, so it is escaped and quoted.
FLAGS = Spelling("--{}".format, lambda value: shlex.quote(ascii(value)[1:-1]))
OUT_OF_MEMORY = (
    "out of memory ({}): train.num_microbatches above 1, model.remat=full or a smaller "
    "train.batch_size, eval.batch_size, data.seq_len or model needs less; jaxpt train "
    "--dry_run reports what a run needs"
)
# Errors of files that no command has turned into a `UserError`, but which are not bugs.
SYSTEM = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    *(errno.EIO, errno.ENAMETOOLONG, errno.ENOTDIR, errno.ELOOP, errno.EMFILE),
    *(errno.EPIPE, errno.ENFILE, errno.ENXIO, errno.ENODEV, errno.EBUSY, errno.ESTALE),
}


def main(argv: list[str] | None = None) -> int:
    """Runs one command; returns its exit code, as `jaxpt.errors` lists them."""
    argv = sys.argv[1:] if argv is None else argv
    # An objective's module may import others of the current folder while it runs.
    importable = user_code.importable("")
    callbacks = interrupts.late_callbacks_dropped()
    with logs.terminal(), interrupts.repeated(), callbacks, importable:
        with _reported() as outcome, spelled(FLAGS):
            name, words = _read_name(argv)
            trust.trust_places(argv)
            command = COMMANDS[name]
            outcome.code = command.run(command, words)
        if outcome.code:
            gc.collect()  # what a failed save has left, before `callbacks` ends
        error = logs.flush_output()
        if error is None:
            return outcome.code
        if not isinstance(error, BrokenPipeError):  # jaxpt list ... | head
            logging.getLogger(__name__).error(f"standard output: {error.strerror}")
        return 141 if isinstance(error, BrokenPipeError) else outcome.code or 2


def _read_name(argv: list[str]) -> tuple[str, list[str]]:
    """The command's name and its arguments.

    Raises:
      Ended: the arguments ask for the help or the version, which is printed.
      ConfigError: the command is unknown.
    """
    if argv[:1] == ["help"] and len(argv) > 1:
        argv = [argv[1], "--help"]
    if not argv or argv[0] in ("help", "-h", "--help", "-help"):
        print(USAGE, end="")
        raise Ended(0 if argv else 2)
    if argv[0] in ("version", "--version", "-version"):
        print(f"jaxpt {__version__}")
        raise Ended
    if argv[0] not in COMMANDS:
        raise ConfigError(
            f"{argv[0]}: unknown command{suggest(argv[0], COMMANDS)}; must be one of "
            f"{', '.join(COMMANDS)}"
        )
    return argv[0], argv[1:]


class _Outcome:
    """The exit code of a command."""

    code = 0


@contextlib.contextmanager
def _reported() -> Iterator[_Outcome]:
    """Within it, errors that are not bugs are printed in a line and give a code."""
    log, outcome = logging.getLogger(__name__), _Outcome()
    try:
        yield outcome
    except UserError as error:
        log.error(shorten(str(error)))
        outcome.code = error.exit_code
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        log.error(OUT_OF_MEMORY.format(" ".join(str(error).split())[:120]))
        outcome.code = 2
    except OSError as error:
        if error.errno not in SYSTEM:
            raise
        outcome.code = 2
        if error.filename is None:  # of standard output; files have names
            logs.drop_output(error)  # `main` reports it
        else:
            log.error(f"{shorten(str(error.filename))}: {error.strerror}")
    except Ended as end:
        outcome.code = end.exit_code
    except SystemExit as error:  # of a user's objective: jaxpt itself returns
        text = f"code outside jaxpt: {user_code.describe_exit(error)}"
        log.error(" ".join(text.split()))
        outcome.code = 2
    except KeyboardInterrupt:
        log.error("interrupted")
        outcome.code = 130
