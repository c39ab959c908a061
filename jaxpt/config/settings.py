"""Every setting there is: a config's sections, their defaults, and changes to them.

Each section is a dataclass of the room that reads it.
"""

import dataclasses
import json

import ml_collections

from jaxpt.config.sections import FINETUNE, CompareSpec, EvalSpec, LengthSpec, TrainSpec
from jaxpt.errors import UserError, suggest
from jaxpt.learn.optim_spec import OptimSpec
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.objectives import OBJECTIVES, find_section, is_outside
from jaxpt.text.rows.forms import RowsSpec
from jaxpt.text.text_spec import TextSpec
from jaxpt.text.tokens.tokenizer import TokenizerSpec

# Sections of the config, each a dataclass; fields set elsewhere are left out.
SECTIONS = {
    "data": (TextSpec, LengthSpec, RowsSpec),
    "tokenizer": (TokenizerSpec,),
    "model": (ModelSpec,),
    "optim": (OptimSpec,),
    "train": (TrainSpec,),
    "eval": (EvalSpec,),
    "compare": (CompareSpec,),
} | {name: (module.Spec,) for name, module in OBJECTIVES.items()}
# Fields that other sections determine; an objective declares its own (`filled_by`).
HIDDEN = {TextSpec: {"tokenizer"}, RowsSpec: {"row_length", "seed"}}
# Settings of an objective that `make_plan` writes (`jaxpt.objectives.spec.model_of`).
WRITTEN = {
    field.name
    for module in OBJECTIVES.values()
    for field in dataclasses.fields(module.Spec)
    if "model_of" in field.metadata
}


def default_config() -> ml_collections.ConfigDict:
    """Every setting there is, at its default; config files change what they need.

    >>> config = default_config()
    >>> config.objective, config.optim.lr
    ('clm', 0.001)
    """
    config = ml_collections.ConfigDict({"objective": "clm"})
    for name, specs in SECTIONS.items():
        config[name] = default_section(*specs)
    return config


def default_section(*specs) -> dict:
    """The settings that dataclasses declare, at their defaults."""
    section = {}
    for spec in specs:
        for field in list_fields(spec):
            make = field.default_factory
            section[field.name] = (
                field.default if make is dataclasses.MISSING else make()
            )
    return section


def list_outside(config: dict) -> list[str]:
    """The objectives of the user's own that a plain config names."""
    compare = config.get("compare", {})
    names = [config.get("objective"), *compare.get("objectives", ())]
    overrides = compare.get("overrides", {}).values()
    names += [each.get("objective") for each in overrides if isinstance(each, dict)]
    return list(dict.fromkeys(name for name in names if is_outside(name)))


def list_code(config: dict) -> list[str]:
    """The code outside jaxpt that a plain config names: modules and config files.

    >>> list_code({"objective": "own.half", "compare": {"tasks": ["finetune:my.py:x"]}})
    ['own.half', 'my.py']
    """
    tasks = [told.split(":") for told in config.get("compare", {}).get("tasks", ())]
    files = [parts[1] for parts in tasks if parts[0] == FINETUNE and len(parts) > 1]
    return [*list_outside(config), *files]


def find_sections(config: dict) -> dict[str, tuple]:
    """The sections that a plain config may have, each with its dataclasses."""
    outside = {find_section(n): (OBJECTIVES[n].Spec,) for n in list_outside(config)}
    return SECTIONS | outside


def list_fields(spec) -> list[dataclasses.Field]:
    """The fields of a dataclass that are settings of its section."""
    fields, hidden = dataclasses.fields(spec), HIDDEN.get(spec, ())
    return [f for f in fields if f.name not in hidden and "source" not in f.metadata]


def read_sections(config: dict) -> dict[str, dict]:
    """The settings that a plain config has, by section, lists as tuples.

    Raises:
      UserError: a section or a setting that there is not.
    """
    parts, sections = {}, find_sections(config)
    for name in config:
        if name not in sections and name != "objective":
            listed = ", ".join(["objective", *sections])
            raise UserError(f"{name}: unknown section; there are {listed}")
    for name, specs in sections.items():
        known = {field.name for spec in specs for field in list_fields(spec)}
        given = config.get(name, {})
        for key in given:
            if key not in known:
                raise UserError(
                    f"{name}.{key}: unknown setting; {name} has "
                    f"{', '.join(sorted(known)) or 'none'}"
                )
        parts[name] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in given.items()
        }
    return parts


def pick_fields(spec, section: dict) -> dict:
    """Those of a section's settings that are fields of a dataclass."""
    return {f.name: section[f.name] for f in list_fields(spec) if f.name in section}


def to_dict(config) -> dict:
    """A config as plain JSON values, tuples as lists."""
    if isinstance(config, ml_collections.ConfigDict):
        config = config.to_dict()
    return json.loads(json.dumps(config))


def override(config: dict, changes: dict, place: str = "compare.overrides") -> dict:
    """A copy of a plain config with `changes` put in.

    Args:
      changes: {"objective": name, "section": {"field": value}}.
      place: where they come from, as errors name it.

    Raises:
      UserError: a name that is no setting, or a value of another type.
    """
    config = json.loads(json.dumps(config))
    for section, fields in changes.items():
        if section == "objective":
            config[section] = fields
            continue
        if not isinstance(fields, dict):
            raise UserError(
                f"{place}: {section}={fields!r}: must be a section's settings"
            )
        for field, value in fields.items():
            name = f"{place}: {section}.{field}"
            if field not in config.get(section, {}):
                near = suggest(field, config.get(section, {}))
                raise UserError(f"{name}: unknown setting{near}")
            old = config[section][field]
            is_number = isinstance(old, float) and type(value) is int
            if type(old) is not type(value) and not is_number:
                raise UserError(f"{name}={value!r}: must be a {type(old).__name__}")
            config[section][field] = value
    return config
