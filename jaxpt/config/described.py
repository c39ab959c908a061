"""Every setting with its type, its default and what it is, from where it is declared.

What a setting is stands in the docstring of the dataclass that reads it, under
"Attributes:", once.
"""

import dataclasses
import inspect
import re
import textwrap
from typing import NamedTuple

from jaxpt.config import finetuning
from jaxpt.config.settings import SECTIONS, list_fields

ENTRY = re.compile(r"  (\w+(?:, \w+)*): (.*)")


class Setting(NamedTuple):
    """A setting.

    Attributes:
      name: in full, such as "train.steps".
      kind: its type, as Python writes it.
      default: as Python writes it.
      text: what it is.
      reader: the module that has the dataclass.
    """

    name: str
    kind: str
    default: str
    text: str
    reader: str


def describe_section(section: str, specs: tuple[type, ...]) -> list[Setting]:
    """The settings of a section, as their dataclasses declare them."""
    found = []
    for spec in specs:
        texts = read_attributes(spec)
        for field in list_fields(spec):
            make = field.default_factory
            default = field.default if make is dataclasses.MISSING else make()
            kind = inspect.formatannotation(field.type)
            found.append(
                Setting(
                    f"{section}.{field.name}",
                    kind,
                    repr(default),
                    texts.get(field.name, ""),
                    spec.__module__,
                )
            )
    return found


def describe_settings() -> dict[str, list[Setting]]:
    """Every setting of a run or a comparison, by section."""
    return {name: describe_section(name, specs) for name, specs in SECTIONS.items()}


def list_names(sections: dict[str, list[Setting]], width: int) -> list[str]:
    """The names of each section's settings, in lines of at most so many characters."""
    lines = []
    for section, settings in sections.items():
        names = ", ".join(each.name.partition(".")[2] for each in settings) or "none"
        text = f"{section}: {names}"
        lines += textwrap.wrap(text, width, subsequent_indent="    ")
    return lines


def describe_finetuning(task: str = "") -> dict[str, list[Setting]]:
    """Every setting of a task's fine-tuning, by section.

    Args:
      task: "" leaves out the section that differs from task to task.

    Raises:
      UserError: there is no such task.
    """
    if not task:
        found = describe_finetuning("classification")
        return {name: own for name, own in found.items() if name != "task"}
    config = finetuning.default_finetune_config(task)
    found = {}
    for name, spec in finetuning.list_sections(task).items():
        settings = describe_section(name, (spec,))
        shown = [s for s in settings if s.name.partition(".")[2] in config[name]]
        found[name] = [
            each._replace(default=repr(config[name][each.name.partition(".")[2]]))
            for each in shown
        ]
    return found


def read_attributes(spec: type) -> dict[str, str]:
    """What a dataclass's docstring says of each of its attributes, and its bases'.

    >>> class Spec:
    ...     \"\"\"A spec.
    ...
    ...     Attributes:
    ...       low, high: the ends; the
    ...         lower one first.
    ...     \"\"\"
    >>> read_attributes(Spec)["high"]
    'the ends; the lower one first.'
    """
    found: dict[str, str] = {}
    for each in reversed(spec.__mro__):
        _, _, block = (inspect.cleandoc(each.__doc__ or "")).partition("Attributes:\n")
        names: list[str] = []
        for line in block.splitlines():
            if entry := ENTRY.fullmatch(line):
                names = entry[1].split(", ")
                found |= dict.fromkeys(names, entry[2])
            elif line.startswith("    ") and names:
                found |= {name: f"{found[name]} {line.strip()}" for name in names}
            elif line.strip():
                break
    return found
