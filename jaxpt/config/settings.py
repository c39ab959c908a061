"""Every setting there is: a config's sections, their defaults, and changes to them.

Each section is a dataclass of the room that reads it.
"""

import dataclasses
import json

import ml_collections

from jaxpt.config.sections import CompareSpec, EvalSpec, LengthSpec, TrainSpec
from jaxpt.errors import UserError, suggest
from jaxpt.learn.optim_spec import OptimSpec
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.objectives import OBJECTIVES
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
# Fields of an objective's Spec that other sections say.
MADE = {"row_length", "max_documents", "is_seq2seq"}
# Fields that `make_plan` writes itself, of what others name.
WRITTEN = {"teacher_model"}
HIDDEN = {
    TextSpec: {"tokenizer"},
    RowsSpec: {"row_length", "seed"},
} | {module.Spec: MADE for module in OBJECTIVES.values()}


def default_config() -> ml_collections.ConfigDict:
    """Every setting there is, at its default; config files change what they need."""
    config = ml_collections.ConfigDict({"objective": "clm"})
    for name, specs in SECTIONS.items():
        section = {}
        for spec in specs:
            for field in list_fields(spec):
                make = field.default_factory
                section[field.name] = (
                    field.default if make is dataclasses.MISSING else make()
                )
        config[name] = section
    return config


def list_fields(spec) -> list[dataclasses.Field]:
    hidden = HIDDEN.get(spec, set())
    return [f for f in dataclasses.fields(spec) if f.name not in hidden]


def read_sections(config: dict) -> dict[str, dict]:
    """The settings that a plain config has, by section, lists as tuples.

    Raises:
      UserError: a section or a setting that there is not.
    """
    parts = {}
    for name in config:
        if name not in SECTIONS and name != "objective":
            listed = ", ".join(["objective", *SECTIONS])
            raise UserError(f"{name}: unknown section; there are {listed}")
    for name, specs in SECTIONS.items():
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
