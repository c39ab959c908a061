"""Documentation of all settings: name, type, default and meaning.

The meaning is read from the docstring of the dataclass that declares the setting, under
"Attributes:".
"""

import inspect
import re
import textwrap
from collections.abc import Mapping
from typing import NamedTuple

from jaxpt.config.settings import SECTIONS, default_of, list_fields
from jaxpt.setting_types import list_types, strip

ENTRY = re.compile(r"  (\w+(?:, \w+)*): (.*)")


class Setting(NamedTuple):
    """A setting and its documentation.

    Attributes:
      name: full name, such as "train.steps".
      kind: its type, in Python's syntax.
      default: in Python's syntax.
      text: its meaning.
      reader: the module of the dataclass.
    """

    name: str
    kind: str
    default: str
    text: str
    reader: str


def describe_section(section: str, specs: tuple[type, ...]) -> list[Setting]:
    """The settings of a section, as their dataclasses declare them."""
    settings = []
    for spec in specs:
        texts, types = read_attributes(spec), list_types(spec)
        for field in list_fields(spec):
            name, kind = (
                f"{section}.{field.name}",
                inspect.formatannotation(strip(types[field.name])),
            )
            text = texts.get(field.name, "")
            default = repr(default_of(field))
            settings.append(Setting(name, kind, default, text, spec.__module__))
    return settings


def describe_settings() -> dict[str, list[Setting]]:
    """All settings of a run or a comparison, by section."""
    return {name: describe_section(name, specs) for name, specs in SECTIONS.items()}


def list_names(sections: Mapping[str, list[Setting]], width: int) -> list[str]:
    """The names of each section's settings, in lines of at most `width` characters."""
    lines = []
    for section, settings in sections.items():
        names = ", ".join(each.name.partition(".")[2] for each in settings) or "none"
        text = f"{section}: {names}"
        lines += textwrap.wrap(text, width, subsequent_indent="    ")
    return lines


def read_attributes(spec: type) -> dict[str, str]:
    """The documentation of a dataclass's attributes, from its docstring and bases.

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
    texts: dict[str, str] = {}
    for each in reversed(spec.__mro__):
        _, _, block = (inspect.cleandoc(each.__doc__ or "")).partition("Attributes:\n")
        names: list[str] = []
        for line in block.splitlines():
            if entry := ENTRY.fullmatch(line):
                names = entry[1].split(", ")
                texts |= dict.fromkeys(names, entry[2])
            elif line.startswith("    ") and names:
                texts |= {name: f"{texts[name]} {line.strip()}" for name in names}
            elif line.strip():
                break
    return texts
