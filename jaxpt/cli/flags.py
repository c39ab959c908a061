"""Command-line parsing: a command's flags, the settings of its config, and its help.

A config file is Python and is executed: run only your own. What a run stores is JSON.
"""

import ast
import dataclasses
import inspect
import itertools
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from absl import flags
from ml_collections import ConfigDict
from ml_collections.config_flags import tuple_parser

from jaxpt import logs, trust
from jaxpt.by_name import OnDemand, load_place
from jaxpt.errors import ConfigError, Ended, suggest

if TYPE_CHECKING:
    from jaxpt.config.described import Setting

WIDTH = 88
DESCRIBED = "jaxpt.config.described"  # of help and of settings without "="
SETTINGS = "jaxpt.config.settings"  # imports JAX; some commands have no config
DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.\w+)+")
HELP = {"--help", "-h", "-help"}
# Short forms of the settings that are used most, by the kind of config.
SHORT = {
    "pretraining": {
        "objective": "objective",
        "data": "data.path",
        "steps": "train.steps",
        "lr": "optim.lr",
    },
    "finetuning": {"data": "data.train", "lr": "train.lr"},
}
CONFIG = "settings: a Python file, which is executed; a run's config.json; or a name"
COMMON: dict[str, tuple] = {
    "trust": (
        [],
        "what a stored run names and this command may use: code outside jaxpt that is "
        "executed (modules of objectives, config files of fine-tunings), and remote "
        "places that are read (URLs, tfds:NAME, hf:NAME)",
    ),
    "workdir": ("", "folder of the run, comparison or report"),
}


@dataclasses.dataclass(frozen=True)
class Command:
    """One command of `jaxpt`; made by `command`.

    Attributes:
      name: "train".
      run: the function behind it, called with the command and its arguments.
      example: command lines, as `--help` shows them.
      flags: {name: (default, help)}. The default's type is the flag's: a list has
        commas between its values, a tuple is a flag that may be repeated, the type
        `int` is a number without a default. A third item lists the allowed values.
      config: "pretraining" or "finetuning" if it reads a config, else "".
      sections: of the config, that it reads; () is all of a run.
      short: which of `SHORT` it has; None is all.
      needs_config: whether it works only with --config.
      words: what follows its name, "SECTION".
      common: which of the flags `COMMON` it has.
    """

    name: str
    run: Callable[["Command", list[str]], int]
    example: str
    flags: Mapping[str, tuple] = dataclasses.field(default_factory=dict)
    config: str = ""
    sections: tuple[str, ...] = ()
    short: tuple[str, ...] | None = None
    needs_config: bool = True
    words: str = ""
    common: tuple[str, ...] = ("trust", "workdir")

    @property
    def summary(self) -> str:
        """What it does, in one sentence."""
        return (self.run.__doc__ or "").partition("\n")[0]

    @property
    def short_forms(self) -> dict[str, str]:
        """{short form: full name of the setting}."""
        known = SHORT.get(self.config, {})
        return {k: v for k, v in known.items() if self.short is None or k in self.short}

    @property
    def all_flags(self) -> dict[str, tuple]:
        """Its own flags and those that it shares with other commands."""
        config = {"config": ("", CONFIG)} if self.config else {}
        return {name: COMMON[name] for name in self.common} | config | dict(self.flags)

    def describe_settings(self) -> "Mapping[str, list[Setting]]":
        """The settings of the config that it reads, by section."""
        if self.config == "finetuning":
            return load_place("jaxpt.config.finetuning:describe_finetuning")()
        if not self.config:
            return {}
        sections = load_place(f"{SETTINGS}:SECTIONS")
        describe_section = load_place(f"{DESCRIBED}:describe_section")
        if self.sections == ("data", "tokenizer"):  # of the text, not of its rows
            parts: dict[str, tuple[type, ...]] = {
                "data": (load_place("jaxpt.text.text_spec:TextSpec"),),
                "tokenizer": sections["tokenizer"],
            }
            return {name: describe_section(name, spec) for name, spec in parts.items()}
        names = self.sections or tuple(name for name in sections if name != "compare")
        names = tuple(name for name in sections if name in names)
        return OnDemand(names, lambda name: describe_section(name, sections[name]))


def command(name: str, example: str, **options: Any) -> Callable[[Callable], Command]:
    """Makes a `Command` of the function below; its docstring is the help."""
    return lambda function: Command(name, function, example, **options)


def parse(command: Command, argv: list[str]) -> flags.FlagValues:
    """Parses the arguments of a command."""
    argv = expand(command, argv)
    for value in _find_values("trust", argv):  # before a config is read
        trust.trust(part.strip() for part in value.split(","))
    values = flags.FlagValues()
    for name, flag in command.all_flags.items():
        _define(values, name, *flag)
    if HELP & set(argv):
        print("\n".join(format_help(command, values)))
        raise Ended
    try:
        rest = values([f"jaxpt {command.name}", *argv])[1:]
    except flags.UnrecognizedFlagError as error:
        suggestion = suggest_flag(command, error.flagname)
        raise ConfigError(
            f"--{error.flagname}: unknown flag of jaxpt {command.name}{suggestion}"
        ) from None
    except (flags.Error, ValueError) as error:
        raise ConfigError(str(error)) from None
    if rest:
        raise ConfigError(f"{rest[0]}: unexpected; flags start with --")
    if {"quiet", "json"} & set(values):
        logs.set_quiet(any(values[k].value for k in ("quiet", "json") if k in values))
    return values


def _define(
    values: flags.FlagValues, name: str, default: Any, text: str, *allowed: Any
) -> None:
    if allowed:
        flags.DEFINE_enum(name, default, allowed[0], text, flag_values=values)
    elif default is int:
        flags.DEFINE_integer(name, None, text, flag_values=values)
    elif default == ():
        flags.DEFINE_multi_string(name, None, text, flag_values=values)
    else:
        define: dict[type, Callable] = {
            str: flags.DEFINE_string,
            bool: flags.DEFINE_boolean,
            int: flags.DEFINE_integer,
            float: flags.DEFINE_float,
            list: flags.DEFINE_list,
        }
        define[type(default)](name, default, text, flag_values=values)


def suggest_flag(command: Command, name: str) -> str:
    """ " (did you mean --X?)", of a command's flags and settings; else ""."""
    names = [*command.all_flags, *command.short_forms]
    known_elsewhere = dict(load_place("jaxpt.config.suggestions:FLAGS"))
    if not command.config:
        known_elsewhere |= load_place("jaxpt.config.suggestions:READERS_FLAGS")
    if (other := known_elsewhere.get(name)) in names:
        return f" (did you mean --{other}?)"
    if suggestion := suggest(name, names):
        return suggestion.replace("mean ", "mean --")
    if not command.config:
        return ""
    known = [s.name for each in command.describe_settings().values() for s in each]
    known += SHORT["pretraining"].values() if command.config == "pretraining" else []
    short = SHORT.get(command.config, {}).get(name, name)
    suggest_setting = load_place(f"{SETTINGS}:suggest_setting")
    return suggest_setting(short, known).replace("mean ", "mean --config.")


def format_help(command: Command, values: flags.FlagValues) -> list[str]:
    """What `--help` prints: description, example, flags, and names of settings."""
    text = inspect.cleandoc(command.run.__doc__ or "")
    words = f" {command.words}" if command.words else ""
    lines = [f"usage: jaxpt {command.name}{words} [flags]", "", text, "", "Example:"]
    lines += [f"    {line}" for line in command.example.splitlines()]
    lines += ["", "Flags:"] if command.all_flags else []
    for name in sorted(command.all_flags):
        flag = values[name]
        lines += [f"  --{name}={flag.default!r} ({flag.flag_type()})"]
        text = flag.help.partition(";\n")[0]  # absl adds how to repeat a flag
        lines += [f"      {line}" for line in textwrap.wrap(text, WIDTH - 6)]
    for name, setting in command.short_forms.items():
        lines += [f"  --{name}=VALUE", f"      short for --config.{setting}=VALUE"]
    if command.config:
        more = " --task NAME" if command.config == "finetuning" else ""
        lines += ["", "Settings, as --config.SECTION.NAME=VALUE:", ""]
        list_names = load_place(f"{DESCRIBED}:list_names")
        names = list_names(command.describe_settings(), WIDTH - 2)
        lines += [f"  {line}" for line in names]
        lines += ["", f"jaxpt settings SECTION{more} describes each of them."]
    return lines


def parse_config(
    command: Command, argv: list[str]
) -> tuple[ConfigDict, flags.FlagValues, list[str]]:
    """The config with the settings that flags change, and the other flags.

    Returns:
      The config; the values of the flags; and the full names of the settings that flags
      set, such as "model.dropout".
    """
    argv = expand(command, argv)
    overrides = [arg for arg in argv if SETTING.match(arg)]
    values = parse(command, [arg for arg in argv if not SETTING.match(arg)])
    outside = _list_outside(overrides)
    trust.trust(outside)
    if not values.config and command.needs_config:
        raise ConfigError(f"--config: must name {EXAMPLES[command.config]}")
    config = load_place("jaxpt.config.config_files:load_config")(values.config, outside)
    changed = dict(_override(config, arg) for arg in overrides)
    trust.trust(load_place(f"{SETTINGS}:list_code")(_nest(changed)))
    return config, values, list(changed)


SETTING = re.compile(r"--?(no)?config\.")
# What `--config` takes, by the kind of config.
EXAMPLES = {
    "pretraining": "a file or a config such as quickstart (jaxpt list configs)",
    "finetuning": "a file or a task such as tasks/sst2; for your own table "
    "tasks/classification:FILE (jaxpt list tasks)",
}


def _nest(values: dict[str, Any]) -> dict:
    """The values of settings by section, from their full names."""
    nested: dict = {}
    for name, value in values.items():
        *sections, field = name.split(".")
        place = nested
        for section in sections:
            place = place.setdefault(section, {})
        place[field] = value
    return nested


def expand(command: Command, argv: list[str]) -> list[str]:
    """The arguments with each flag and its value in one word, short forms as settings.

    So no value is taken for a flag, whatever it is. A flag takes the next word, unless
    it is a switch. A setting does, unless that is a flag of the command. To expand the
    result again changes nothing.

    >>> train = Command("train", lambda *_: 0, "", config="pretraining")
    >>> expand(train, ["--lr", "1e-3", "--config.train.steps", "5", "--workdir", "a"])
    ['--config.optim.lr=1e-3', '--config.train.steps=5', '--workdir=a']
    """
    expanded: list[str] = []
    words = list(argv)
    while words:
        flag, has_value, value = (word := words.pop(0)).partition("=")
        name = _name_flag(flag)
        if setting := command.short_forms.get(name):
            name = f"config.{setting}"
        if name in command.all_flags:
            takes_next = not isinstance(command.all_flags[name][0], bool)
        elif SETTING.match(f"--{name}"):
            takes_next = _takes_value(command, name, words[:1])
        else:  # a word, --help, or a flag that is unknown
            expanded.append(word)
            continue
        if words and takes_next and not has_value:
            has_value, value = "=", words.pop(0)
        expanded.append(f"--{name}{has_value}{value}")
    return expanded


def _name_flag(word: str) -> str:
    """The name of a flag without its value; "" if the word is not a flag.

    >>> _name_flag("--workdir=a"), _name_flag("-h"), _name_flag("-"), _name_flag("a")
    ('workdir', 'h', '', '')
    """
    flag = word.partition("=")[0]
    return re.sub("^--?", "", flag) if flag.startswith("-") else ""


def _takes_value(command: Command, name: str, following: list[str]) -> bool:
    """Whether the word that follows a setting without "=" is its value.

    Args:
      name: of the setting, with "config." before it.
      following: the word; [] if there is none.
    """
    if name.startswith("no") or not following:
        return False
    (word,) = following
    section = name.split(".")[1]
    for setting in command.describe_settings().get(section, []):
        if f"config.{setting.name}" == name and setting.kind != "bool":
            return not (_is_known(command, word) or SETTING.match(word))
    return not re.match(r"-[^\d.]", word)  # a negative number is a value


def _is_known(command: Command, word: str) -> bool:
    """Whether a word is one of the command's flags, with or without a value."""
    name = _name_flag(word)
    names = {*command.all_flags, *command.short_forms, "help"}
    return bool(name) and (name in names or name.removeprefix("no") in names)


def _override(config: ConfigDict, arg: str) -> tuple[str, Any]:
    """Changes a setting as `--config.section.field=value` says.

    Returns:
      Its full name and its value.
    """
    flag, has_value, text = arg.partition("=")
    name = flag.lstrip("-").partition(".")[2]
    path, here = name.split("."), config
    settings = load_place(SETTINGS)
    for depth, part in enumerate(path):
        if not isinstance(here, ConfigDict) or part not in here:
            is_section = isinstance(here, ConfigDict)
            where = ".".join(path[:depth]) or "config"
            known = (
                ", ".join(settings.add_sections(here)) if is_section else "no settings"
            )
            whole = _list_names(settings.add_sections(config))
            suggestion = settings.suggest_setting(name, whole)
            raise ConfigError(
                f"{flag}: unknown setting{suggestion}; {where} has {known}"
            )
        section, here = here, here[part]
    if isinstance(here, ConfigDict):
        raise ConfigError(f"{flag}: is a section; it has {', '.join(here)}")
    is_negated = flag.lstrip("-").startswith("no")
    if is_negated and (has_value or not isinstance(here, bool)):
        raise ConfigError(f"{arg}: must be --config.{name}=...")
    if isinstance(here, bool) and not has_value:
        text, has_value = str(not is_negated), "="
    if not has_value:
        raise ConfigError(f"{flag}: must have a value, {flag}=...")
    read, allowed = READERS[type(here)]
    try:
        section[part] = read(text)
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        reason = f" ({error})" if type(here) is tuple else ""
        raise ConfigError(f"{flag}={text}: must be {allowed}{reason}") from None
    return name, section[part]


# Values that no quotes need: names, paths and URLs.
WORDS = re.compile(r"[\w.:/@+*-]+(\s*,\s*[\w.:/@+*-]+)+")
# One entry of `compare.expected`.
SENTENCE = re.compile(r"\w+: *[\w.-]+ *[>=] *[\w.-]+")


def _read_list(text: str) -> tuple:
    """A list of words, or a literal of Python.

    >>> _read_list("clm,mlm"), _read_list("clm"), _read_list("1e-3,3e-4")
    (('clm', 'mlm'), ('clm',), (0.001, 0.0003))
    >>> _read_list("('clm', 'mlm')"), _read_list("pair_nats: clm > mlm")
    (('clm', 'mlm'), ('pair_nats: clm > mlm',))
    """
    words = text.strip(" ,")
    if SENTENCE.fullmatch(words):
        return (words,)
    if not WORDS.fullmatch(words):
        return tuple_parser.TupleParser().parse(text)
    try:
        return tuple(ast.literal_eval(words))
    except (ValueError, SyntaxError):
        return tuple(part.strip() for part in words.split(","))


# For each type of setting: the parser of its text, and the allowed values.
READERS: dict[type, tuple[Callable[[str], Any], str]] = {
    bool: (flags.BooleanParser().parse, "true or false"),
    int: (flags.IntegerParser().parse, "a whole number"),
    float: (flags.FloatParser().parse, "a number"),
    str: (str, "a text"),
    tuple: (
        _read_list,
        "a list such as a,b; values with other signs than letters, digits and "
        "_ . : / @ + * - in quotes, as \"('a=1', 'b c')\"",
    ),
}


def _list_names(config: ConfigDict) -> list[str]:
    """Full names of a config's settings."""
    sections = {k: v for k, v in config.items() if isinstance(v, ConfigDict)}
    names = [f"{name}.{field}" for name, fields in sections.items() for field in fields]
    return [*names, *config]


def list_flag_names(command: Command, argv: list[str]) -> set[str]:
    """The names of the flags among the arguments; of settings only "config".

    >>> train = Command("train", lambda *_: 0, "", config="pretraining")
    >>> sorted(list_flag_names(train, ["--config.train.steps=5", "--workdir", "a"]))
    ['config', 'workdir']
    """
    names = filter(None, map(_name_flag, expand(command, argv)))
    return {"config" if SETTING.match(f"--{name}") else name for name in names}


def repeat_flag(command: Command, name: str, argv: list[str]) -> list[str]:
    """The arguments with a flag before each of the words that follow it.

    So a flag takes all the words of a shell's glob. If a flag follows, it has none.

    >>> report = Command("report", lambda *_: 0, "", flags={"runs": ((), "folders")})
    >>> repeat_flag(report, "runs", ["--runs", "a", "b", "--workdir", "c"])
    ['--runs=a', '--runs=b', '--workdir=c']
    """
    filled = [
        word
        for word, following in itertools.zip_longest(argv, argv[1:], fillvalue="")
        if word not in (f"-{name}", f"--{name}") or not _is_known(command, following)
    ]
    rest, is_open = [], False
    for arg in expand(command, filled):
        if arg.startswith("-"):
            is_open = _name_flag(arg) == name
            rest.append(arg)
        else:
            rest.append(f"--{name}={arg}" if is_open else arg)
    return rest


def _list_outside(overrides: list[str]) -> list[str]:
    """The objectives outside jaxpt that flags name.

    >>> _list_outside(["--config.objective=mine.shuffled", "--config.train.steps=5"])
    ['mine.shuffled']
    """
    naming = ("--config.objective=", "--config.compare.objectives=")
    values = [arg.partition("=")[2] for arg in overrides if arg.startswith(naming)]
    names = [name for value in values for name in DOTTED.findall(value)]
    return list(dict.fromkeys(names))


def _find_values(flag: str, argv: list[str]) -> list[str]:
    """The values of each occurrence of a flag, in expanded arguments.

    >>> _find_values("trust", ["--trust=own.half", "--workdir=a", "--trust=b.c,d.e"])
    ['own.half', 'b.c,d.e']
    """
    return [arg.partition("=")[2] for arg in argv if _name_flag(arg) == flag]
