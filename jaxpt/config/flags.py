"""A config file and the flags that change it; every value is checked here.

A config file is Python and is executed: run only your own. What a run stores is JSON.
"""

import os
import re
import sys
import textwrap
from pathlib import Path

from absl import flags
from ml_collections import config_flags

from jaxpt import trust
from jaxpt.config.described import describe_finetuning, describe_settings, list_names
from jaxpt.config.settings import list_code, to_dict
from jaxpt.config.shipped import find_config
from jaxpt.errors import UserError, suggest

# Work without a --config file, and have no run's folder or name it by themselves.
TEXT_COMMANDS = ("tokenizer train", "prepare", "inspect", "import")
# Read several runs, and write elsewhere.
READERS = ("analyse", "applet", "fit-scaling", "settings")
DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.\w+)+")
# What config_flags says of a ValueError in a config file, before the whole traceback.
IN_FILE = "Error whilst parsing config file"


def parse(command: str, argv: list[str], define) -> flags.FlagValues:
    """Flags of one command, in a set of their own: nothing is registered globally.

    Args:
      define: called with the set, to add the command's own flags.

    Raises:
      UserError: a flag that the command lacks, or a value of another kind.
    """
    values = flags.FlagValues()
    for value in _find_values("trust", argv):  # before a config is read
        trust.trust(part.strip() for part in value.split(","))
    if command != "settings":
        flags.DEFINE_list(
            "trust",
            [],
            "code outside jaxpt that a stored run names and that may be executed: "
            "modules of objectives, config files of fine-tunings",
            flag_values=values,
        )
    if command not in (*TEXT_COMMANDS, *READERS):
        flags.DEFINE_string("workdir", "", "folder of the run", flag_values=values)
    define(values)
    if {"--help", "-h", "-help"} & set(argv):
        print("\n".join(_write_help(command, values)))
        raise SystemExit(0)
    before = sys.argv
    sys.argv = [f"jaxpt {command}", *argv]  # where config_flags looks for overrides
    try:
        rest = values(sys.argv)[1:]
    except flags.UnrecognizedFlagError as error:
        raise UserError(
            f"--{error.flagname}: unknown flag of jaxpt {command}"
            f"{suggest(error.flagname, values)}"
        ) from None
    except (flags.Error, ValueError) as error:
        flag, is_in_file, trace = str(error).partition(f": {IN_FILE}")
        if not is_in_file:
            raise UserError(str(error)) from None
        fault = trace.strip().splitlines()[-1]
        flag = flag.removeprefix("flag ")
        raise UserError(f"{flag}: cannot be loaded: {fault}") from None
    finally:
        sys.argv = before
    if rest:
        raise UserError(f"{rest[0]}: unexpected; settings start with --")
    return values


def _write_help(command: str, values: flags.FlagValues) -> list[str]:
    """A command's flags, then the names of the settings that are flags too."""
    lines = [f"usage: jaxpt {command} [flags]", ""]
    for name in sorted(set(values) - {"flagfile", "undefok"}):
        flag = values[name]
        kind = "" if name == "config" else f" ({flag.flag_type()})"
        lines += [f"  --{name}={flag.default!r}{kind}", *_indent(flag.help)]
    if "config" in values:
        is_tuning = command == "finetune"
        more = " --task NAME" if is_tuning else ""
        sections = describe_finetuning() if is_tuning else describe_settings()
        lines += ["", "settings, as --config.SECTION.NAME=VALUE", ""]
        lines += [f"  {line}" for line in list_names(sections, 86)]
        lines += ["", f"jaxpt settings SECTION{more} says what each is."]
    return lines


def _indent(text: str) -> list[str]:
    return textwrap.wrap(text, 88, initial_indent=" " * 6, subsequent_indent=" " * 6)


def parse_config(command: str, argv: list[str], define_more=lambda values: None):
    """The config with its overrides, and the other flags.

    Commands that only read text do without a --config file: all settings are at their
    defaults then.

    Raises:
      UserError: no config, one that cannot be loaded, or a setting that it lacks.
    """
    if told := _config_value(argv):
        found = find_config(told)
        argv = argv if found == told else _replace_config(argv, f"--config={found}")
    if outside := _list_outside(argv):
        trust.trust(outside)
        told = f"{','.join(outside)}|{_config_value(argv)}"
        file = Path(__file__).parent / "outside.py"
        argv = _replace_config(argv, f"--config={file}:{told}")
    path, is_executed = _config_path(argv), not outside
    defaults = str(Path(__file__).parent / "stored.py")
    if path.endswith(".json"):  # of a run: data, not executed
        argv = _replace_config(argv, f"--config={defaults}:{path}")
        path, is_executed = defaults, False
    elif not path and command in TEXT_COMMANDS:
        path = defaults
        argv = [f"--config={path}", *argv]
    if path and not os.path.isfile(path):
        raise UserError(
            f"--config={path}: not found; must be a file, or the name of a config that "
            f"comes with jaxpt (jaxpt list configs)"
        )
    # A config may import one that lies beside it.
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    try:
        config, values = _parse_config_at(path, command, argv, define_more)
    finally:
        del sys.path[0]
    trust.trust(list_code(to_dict(config) if is_executed else _list_overrides(values)))
    return config, values


def define_parts(values: flags.FlagValues) -> None:
    """The flags by which several processes or machines share a comparison."""
    texts = {
        "part": "do a part of the comparison: prepare (what all runs share), runs (all "
        "that no other process does, until all are finished), report, or list (the "
        "runs' names)",
        "run": "with --part=runs: the only run to train, such as mlm-seed0",
        "ray": "spread the runs over a Ray cluster: local (this machine), auto (the "
        "one this machine belongs to) or its address",
        "ray_resources": "with --ray: custom resources that each run takes, such as "
        "TPU=4",
    }
    for name, text in texts.items():
        flags.DEFINE_string(name, "", text, flag_values=values)
    numbers = {
        "run_index": "with --part=runs: the number of the only run to train, from 0",
        "ray_cpus": "with --ray: CPUs that each run takes; default: 1",
        "ray_gpus": "with --ray: GPUs that each run takes; default: 1 where the "
        "cluster has any, else 0",
        "ray_retries": "with --ray: how often a run may lose its machine; default: 3",
    }
    for name, text in numbers.items():
        flags.DEFINE_integer(name, None, text, flag_values=values)


# Flags that some zero-shot tasks read: their defaults and what they are.
TASK_OPTIONS: dict[str, tuple[int | str, str]] = {
    "window": (0, "of text: tokens that are read at once; 0: the model's limit"),
    "stride": (0, "of text: from a window to the next; 0: half a window"),
    "shots": ("", "of questions: a file of training data for few-shot prompts"),
    "num_shots": (0, "of questions: solved questions of --shots before each"),
    "num_draws": (1, "of questions: how often other shots are drawn"),
    "num_orders": (1, "of questions: in how many orders each draw is shown"),
    "shot_seed": (0, "of questions: the seed of the draws"),
}


def define_tasks(values: flags.FlagValues) -> None:
    """The flags of zero-shot tasks."""
    flags.DEFINE_list(
        "tasks",
        [],
        "zero-shot tasks, NAME:PATH with commas between, such as "
        "blimp:blimp.tar.xz,pairs:pairs.tsv",
        flag_values=values,
    )
    flags.DEFINE_string(
        "rule",
        "all",
        "of tasks: the rule that texts are scored by; all: every one that the run has, "
        "auto: the first of them",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "num_items",
        0,
        "of tasks: the most items of each, spread evenly; 0: all",
        flag_values=values,
    )
    for name, (default, text) in TASK_OPTIONS.items():
        if isinstance(default, str):
            flags.DEFINE_string(name, default, text, flag_values=values)
        else:
            flags.DEFINE_integer(name, default, text, flag_values=values)


def define_generation(values: flags.FlagValues) -> None:
    """The flags of what is generated, and how."""
    flags.DEFINE_multi_string(
        "prompt", None, "text to continue; may be repeated", flag_values=values
    )
    flags.DEFINE_string(
        "prompt_file", "", "a file of prompts, one per line", flag_values=values
    )
    flags.DEFINE_integer(
        "num_tokens",
        0,
        "the most new tokens; 0: up to the model's maximum length",
        flag_values=values,
    )
    flags.DEFINE_integer("num_samples", 1, "texts per prompt", flag_values=values)
    flags.DEFINE_float(
        "temperature", 1.0, "divides the logits; 0: greedy", flag_values=values
    )
    flags.DEFINE_integer(
        "top_k", 0, "sample from the k likeliest; 0: all", flag_values=values
    )
    flags.DEFINE_float(
        "top_p", 1.0, "nucleus sampling; 1: all tokens", flag_values=values
    )
    flags.DEFINE_float(
        "repetition_penalty", 1.0, "above 1: repeats less", flag_values=values
    )
    flags.DEFINE_integer("num_beams", 1, "above 1: beam search", flag_values=values)
    flags.DEFINE_float(
        "length_penalty",
        1.0,
        "of beam search; above 0: favours long texts",
        flag_values=values,
    )
    flags.DEFINE_string("stop", "", "text that ends a text", flag_values=values)
    flags.DEFINE_integer(
        "num_steps", 0, "of unmasking; 0: one for each token", flag_values=values
    )
    flags.DEFINE_integer("seed", 0, "of the draws", flag_values=values)


def list_given(values: flags.FlagValues) -> list[str]:
    """Full names of the settings that flags have set, such as "model.dropout"."""
    return list(config_flags.get_override_values(values["config"]))


def _list_overrides(values: flags.FlagValues) -> dict:
    """The settings that flags have set, by section."""
    nested: dict = {}
    for name, value in config_flags.get_override_values(values["config"]).items():
        *sections, field = name.split(".")
        place = nested
        for section in sections:
            place = place.setdefault(section, {})
        place[field] = value
    return nested


def define_analysis(values: flags.FlagValues) -> None:
    """The flags of `jaxpt analyse`."""
    _define_runs(values)
    texts = {
        "file": "a text to read; default: the first run's held-out text",
        "text": "a sentence whose attention is drawn",
    }
    numbers = {
        "num_tokens": (4096, "tokens of the text that are read"),
        "length": (0, "tokens of a row; 0: 64, or less if a model reads less"),
        "layer": (0, "with --text: the layer that is drawn, from 1; 0: the last"),
        "head": (0, "with --text: the head that is drawn, from 1; 0: their mean"),
    }
    for name, text in texts.items():
        flags.DEFINE_string(name, "", text, flag_values=values)
    for name, (default, text) in numbers.items():
        flags.DEFINE_integer(name, default, text, flag_values=values)


def define_scaling(values: flags.FlagValues) -> None:
    """The flags of `jaxpt fit-scaling`."""
    _define_runs(values)
    texts = {
        "csv": (
            "",
            "instead of --runs: a file with the columns params, tokens, loss and, if "
            "it has them, flops and name",
        ),
        "metric": ("valid_loss", "of the runs: what is fitted"),
    }
    for name, (default, text) in texts.items():
        flags.DEFINE_string(name, default, text, flag_values=values)
    flags.DEFINE_enum(
        "count",
        "all",
        ["all", "no_embeddings"],
        "which of the runs' trained parameters are N",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "num_draws", 200, "resampled fits, for the intervals", flag_values=values
    )


def _define_runs(values: flags.FlagValues) -> None:
    flags.DEFINE_multi_string(
        "runs",
        None,
        "folders of runs, or globs of them: one or several, with spaces or commas "
        "between; may be repeated",
        flag_values=values,
    )
    flags.DEFINE_string("to", "", "the folder to write", flag_values=values)


def repeat_flag(name: str, argv: list[str]) -> list[str]:
    """The arguments with a flag before each of the words that follow it.

    So a shell's glob, which is many words, is of one flag.

    >>> repeat_flag("runs", ["--runs", "a", "b", "--workdir", "c"])
    ['--runs=a', '--runs=b', '--workdir', 'c']
    """
    rest, is_open = [], False
    for arg in argv:
        flag, has_value, _ = arg.partition("=")
        if flag in (f"--{name}", f"-{name}"):
            is_open = True
            rest += [arg] if has_value else []
        elif is_open and not arg.startswith("-"):
            rest.append(f"--{name}={arg}")
        else:
            is_open = False
            rest.append(arg)
    return rest


def _list_outside(argv: list[str]) -> list[str]:
    """The objectives of the user's own that flags name.

    >>> _list_outside(["--config.objective=mine.shuffled", "--config.train.steps=5"])
    ['mine.shuffled']
    """
    flags_of = ("--config.objective=", "--config.compare.objectives=")
    values = [arg.partition("=")[2] for arg in argv if arg.startswith(flags_of)]
    found = [name for value in values for name in DOTTED.findall(value)]
    return list(dict.fromkeys(found))


def _config_path(argv: list[str]) -> str:
    """The config file's path among the flags, without `:ARGUMENT`; "" for none."""
    return _config_value(argv).partition(":")[0]


def _config_value(argv: list[str]) -> str:
    """The value of --config; "" if it is not given."""
    return next(iter(_find_values("config", argv)), "")


def _find_values(flag: str, argv: list[str]) -> list[str]:
    """The values of each occurrence of a flag.

    >>> _find_values("trust", ["--trust=own.half", "--workdir=a", "--trust", "b.c,d.e"])
    ['own.half', 'b.c,d.e']
    """
    found = []
    for arg, following in zip(argv, [*argv[1:], ""], strict=False):
        name, has_value, value = arg.partition("=")
        if name in (f"--{flag}", f"-{flag}"):
            found.append(value if has_value else following)
    return found


def _replace_config(argv: list[str], flag: str) -> list[str]:
    """The flags with this one for the config's file."""
    rest, is_value = [], False
    for arg in argv:
        if is_value:
            is_value = False
        elif arg.partition("=")[0] in ("--config", "-config"):
            is_value = "=" not in arg
        else:
            rest.append(arg)
    return [flag, *rest]


def _parse_config_at(path: str, command: str, argv: list[str], define_more):
    def define(values):
        define_more(values)
        config_flags.DEFINE_config_file(
            "config", None, "settings; a Python file, executed", flag_values=values
        )

    plain = [arg for arg in argv if not arg.startswith(("--config.", "-config."))]
    try:
        values = parse(command, plain, define)
    except (UserError, SystemExit):
        raise
    except Exception as error:  # whatever the file's code raises becomes one line
        kind = type(error).__name__
        raise UserError(f"--config={path}: cannot be loaded: {kind}: {error}") from None
    if values["config"].value is None:
        raise UserError("--config: must name a file, such as configs/quickstart.py")
    config = _read_config(values)
    for arg in argv:
        if arg not in plain:
            _check_override(config, arg)
    try:
        values = parse(command, argv, define)
    except (AttributeError, KeyError, TypeError) as error:
        raise UserError(f"--config: {error}") from None
    return values.config, values


def _read_config(values):
    """The file's config; whatever its code raises becomes one line."""
    path = getattr(values["config"], "config_filename", "")
    try:
        config = values.config
        config.items()  # a file that could not be loaded raises only when it is used
        return config
    except UserError:
        raise
    except Exception as error:
        kind = type(error).__name__
        raise UserError(f"--config={path}: cannot be loaded: {kind}: {error}") from None


def _check_override(config, arg: str) -> None:
    """Raises UserError unless `--config.section.field=value` fits a setting."""
    flag, has_value, text = arg.partition("=")
    path, here = flag.lstrip("-").split(".")[1:], config
    for depth, name in enumerate(path):
        if not hasattr(here, "keys") or name not in here:
            where = ".".join(path[:depth]) or "config"
            known = ", ".join(here.keys()) if hasattr(here, "keys") else "no settings"
            near = suggest(name, here.keys() if hasattr(here, "keys") else ())
            raise UserError(f"{flag}: unknown setting{near}; {where} has {known}")
        here = here[name]
    if hasattr(here, "keys"):
        raise UserError(f"{flag}: is a section; it has {', '.join(here.keys())}")
    if not has_value and not isinstance(here, bool):
        raise UserError(f"{flag}: must have a value, {flag}=...")
    if type(here) in (int, float):
        try:
            type(here)(text)
        except ValueError:
            kind = "a whole number" if isinstance(here, int) else "a number"
            raise UserError(f"{flag}={text}: must be {kind}") from None
