"""All settings: a config's sections, their defaults, and changes to them.

Each section is a dataclass of the subpackage that reads it.
"""

import dataclasses
import json
from collections.abc import Collection, Mapping
from typing import Any

import ml_collections

from jaxpt.by_name import OnDemand
from jaxpt.config.sections import FINETUNE, CompareSpec, EvalSpec, LengthSpec, TrainSpec
from jaxpt.errors import ConfigError, nearest, suggest
from jaxpt.learn.optim_spec import OptimSpec
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.objectives import OBJECTIVES, find_section, is_outside
from jaxpt.setting_types import Settings, as_tuples, check_value, list_types, refuse
from jaxpt.text.rows.rows_spec import RowsSpec
from jaxpt.text.text_spec import TextSpec
from jaxpt.text.tokens.tokenizer import TokenizerSpec

AnyConfig = Any  # a ConfigDict, or plain values by section
# Sections that every config has, each a dataclass.
SHARED: dict[str, tuple[type[Settings], ...]] = {
    "data": (TextSpec, LengthSpec, RowsSpec),
    "tokenizer": (TokenizerSpec,),
    "model": (ModelSpec,),
    "optim": (OptimSpec,),
    "train": (TrainSpec,),
    "eval": (EvalSpec,),
    "compare": (CompareSpec,),
}


def _find_specs(name: str) -> tuple[type[Settings], ...]:
    return SHARED[name] if name in SHARED else (OBJECTIVES[name].Spec,)


# All sections; an objective is imported when its section is looked up.
SECTIONS = OnDemand([*SHARED, *OBJECTIVES], _find_specs)
# Fields that other sections determine; an objective declares its own (`filled_by`).
HIDDEN = {TextSpec: {"tokenizer"}, RowsSpec: {"row_length", "seed"}}
# Names of settings in other programs.
SYNONYMS = {
    "batch": "train.batch_size",
    "block_size": "data.seq_len",
    "context_length": "data.seq_len",
    "dataset": "data.path",
    "gradient_accumulation_steps": "train.num_microbatches",
    "hidden_size": "model.d_model",
    "intermediate_size": "model.d_ff",
    "learning_rate": "optim.lr",
    "max_grad_norm": "optim.clip_norm",
    "max_iters": "train.steps",
    "max_length": "data.seq_len",
    "max_steps": "train.steps",
    "mlm_probability": "mlm.mask_rate",
    "n_embd": "model.d_model",
    "n_head": "model.num_heads",
    "n_layer": "model.num_layers",
    "num_attention_heads": "model.num_heads",
    "num_hidden_layers": "model.num_layers",
    "num_steps": "train.steps",
    "warmup": "optim.warmup_steps",
}


class Config(ml_collections.ConfigDict):
    """All settings. The section of an objective is added when it is looked up.

    So a config has the sections that it sets or reads, and imports no other objective.
    """

    def __contains__(self, name: str) -> bool:
        return super().__contains__(name) or name in OBJECTIVES.names

    def __getitem__(self, name: str) -> Any:
        if name in OBJECTIVES.names and not super().__contains__(name):
            with self.unlocked():
                self[name] = default_section(*SECTIONS[name])
        return super().__getitem__(name)

    def update(self, *other: Any, **more: Any) -> None:
        """As a dict's, but sections are updated and not replaced."""
        for name in {**dict(*other), **more}:
            self.get(name)
        super().update(*other, **more)


def default_config() -> Config:
    """All settings at their defaults; config files change what they need.

    >>> config = default_config()
    >>> config.objective, config.optim.lr, config.mlm.mask_rate
    ('clm', 0.001, 0.15)
    """
    config = Config({"objective": "clm"})
    for name, specs in SHARED.items():
        config[name] = default_section(*specs)
    return config


def default_settings() -> dict[str, Any]:
    """The settings of all sections at their defaults, as plain JSON values."""
    return to_dict(add_sections(default_config()))


def add_sections(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
    """The config with the sections of all objectives, if it is a `Config`."""
    for name in OBJECTIVES if isinstance(config, Config) else ():
        config.get(name)
    return config


def list_setting_names(config: Mapping) -> list[str]:
    """Full names of a config's settings, and of those that any config may have.

    >>> names = list_setting_names({"train": {"mine": 1}})
    >>> "train.mine" in names, "optim.lr" in names
    (True, True)
    """
    sections = {k: list(v) for k, v in config.items() if isinstance(v, Mapping)}
    names = [f"{name}.{field}" for name in sections for field in sections[name]]
    for name, specs in SECTIONS.items():
        names += [f"{name}.{each.name}" for spec in specs for each in list_fields(spec)]
    return list(dict.fromkeys(names))


def default_section(*specs: type) -> dict:
    """The settings that dataclasses declare, at their defaults."""
    return {
        field.name: default_of(field) for spec in specs for field in list_fields(spec)
    }


def default_of(field: dataclasses.Field) -> Any:
    """The default of a dataclass's field."""
    make = field.default_factory
    return field.default if make is dataclasses.MISSING else make()


def list_derived(spec: type) -> set[str]:
    """Settings that `make_plan` writes (`jaxpt.objectives.spec.model_of`)."""
    fields = dataclasses.fields(spec)
    return {field.name for field in fields if "model_of" in field.metadata}


def list_parts(config: dict, name: str) -> list[str]:
    """The objectives whose sections an objective of a plain config reads, too.

    Those that its settings name (`jaxpt.objectives.spec.sections_of`) and jaxpt has.
    """
    section = config.get(find_section(name), {})
    fields = dataclasses.fields(OBJECTIVES[name].Spec)
    settings = [
        f.metadata["sections_of"] for f in fields if "sections_of" in f.metadata
    ]
    names: list[Any] = []
    for setting in settings:
        value = section.get(setting, ())
        names += value if isinstance(value, list | tuple) else ()
    known = [each for each in names if isinstance(each, str) and each != name]
    return [each for each in known if each in OBJECTIVES.names]


def suggest_setting(name: str, known: Collection[str]) -> str:
    """ " (did you mean X?)" if a setting is misspelt or has this name elsewhere.

    Args:
      name: with or without its section.
      known: full names.

    >>> known = ["optim.lr", "train.steps", "train.seed"]
    >>> [suggest_setting(n, known) for n in ("optim.learning_rate", "train.lr")]
    [' (did you mean optim.lr?)', ' (did you mean optim.lr?)']
    >>> suggest_setting("train.step", known)
    ' (did you mean train.steps?)'
    """
    fields: dict[str, list[str]] = {}
    for other in known:
        fields.setdefault(other.rpartition(".")[2], []).append(other)
    field = name.rpartition(".")[2]
    synonym = SYNONYMS.get(field, field)
    same = fields.get(synonym.rpartition(".")[2], [])
    if synonym in known:
        suggestion = synonym
    elif len(same) == 1:
        suggestion = same[0]
    elif "." in name:
        suggestion = nearest(name, known)
    else:
        suggestion = "".join(fields.get(nearest(field, fields), [])[:1])
    return f" (did you mean {suggestion}?)" if suggestion else ""


def list_outside(config: dict) -> list[str]:
    """The objectives outside jaxpt that a plain config names.

    Raises:
      ConfigError: the config has other values than sections of settings.
    """
    check_sections(config)
    compare = config.get("compare", {})
    names = [config.get("objective"), *compare.get("objectives", ())]
    overrides = compare.get("overrides", {}).values()
    names += [each.get("objective") for each in overrides]
    return list(dict.fromkeys(name for name in names if is_outside(name)))


def list_code(config: dict) -> list[str]:
    """The code outside jaxpt that a plain config names: modules and config files.

    >>> list_code({"objective": "own.half", "compare": {"tasks": ["finetune:my.py:x"]}})
    ['own.half', 'my.py']
    """
    outside = list_outside(config)  # which checks the section
    tasks = [name.split(":") for name in config.get("compare", {}).get("tasks", ())]
    files = [parts[1] for parts in tasks if parts[0] == FINETUNE and len(parts) > 1]
    return [*outside, *files]


def find_sections(config: dict) -> Mapping[str, tuple[type[Settings], ...]]:
    """The sections that a plain config may have, each with its dataclasses."""
    outside = {find_section(n): (OBJECTIVES[n].Spec,) for n in list_outside(config)}
    names = [*SECTIONS, *outside]
    return OnDemand(names, lambda name: outside.get(name) or SECTIONS[name])


def find_types(config: dict) -> Mapping[str, dict[str, Any]]:
    """The declared types of a plain config's settings, by section."""
    sections = find_sections(config)

    def list_section(name: str) -> dict[str, Any]:
        return {
            field.name: list_types(spec)[field.name]
            for spec in sections[name]
            for field in list_fields(spec)
        }

    return OnDemand(sections, list_section)


def list_fields(spec: type) -> list[dataclasses.Field]:
    """The fields of a dataclass that are settings of its section."""
    fields, hidden = dataclasses.fields(spec), HIDDEN.get(spec, ())
    return [f for f in fields if f.name not in hidden and "source" not in f.metadata]


def read_sections(config: dict) -> dict[str, dict]:
    """The settings that a plain config has, by section, lists as tuples.

    Raises:
      ConfigError: an unknown section or setting, or a value that is not of its
        setting's type.
    """
    parts, types = {}, find_types(config)
    for name in config:
        if name not in types and name != "objective":
            listed = ", ".join(["objective", *types])
            suggestion = suggest(name, types)
            raise ConfigError(
                f"{name}: unknown section{suggestion}; must be one of {listed}"
            )
    for name in dict.fromkeys([*SHARED, *config]):
        if name == "objective":
            continue
        known, settings = types[name], config.get(name, {})
        for key, value in settings.items():
            if key not in known:
                suggestion = suggest_setting(
                    f"{name}.{key}", [f"{name}.{k}" for k in known]
                )
                raise ConfigError(
                    f"{name}.{key}: unknown setting{suggestion}; {name} has "
                    f"{', '.join(sorted(known)) or 'none'}"
                )
            check_value(f"{name}.{key}", value, known[key])
        parts[name] = {k: as_tuples(v) for k, v in settings.items()}
    return parts


def check_sections(config: dict) -> None:
    """Raises ConfigError unless sections are dicts, and `compare` names objectives."""
    check_value("objective", config.get("objective", ""), str)
    for name, section in config.items():
        if name != "objective" and not isinstance(section, dict):
            raise refuse(name, section, "a section of settings")
    CompareSpec.check_types(config.get("compare", {}))


def pick_fields(spec: type, section: dict) -> dict:
    """Those of a section's settings that are fields of a dataclass."""
    return {f.name: section[f.name] for f in list_fields(spec) if f.name in section}


def to_dict(config: AnyConfig) -> dict:
    """A config as plain JSON values, tuples as lists.

    Raises:
      ConfigError: a value that JSON does not have.
    """
    if isinstance(config, ml_collections.ConfigDict):
        config = config.to_dict()
    if not isinstance(config, dict):
        raise refuse("config", config, "sections of settings")
    try:
        return json.loads(json.dumps(config))
    except (TypeError, ValueError, RecursionError):
        raise _find_other_value(config) from None


def _find_other_value(config: dict) -> ConfigError:
    """The error of the first setting that JSON cannot have."""
    sections = {k: v if isinstance(v, dict) else {"": v} for k, v in config.items()}
    for section, fields in sections.items():
        for field, value in fields.items():
            name = f"{section}.{field}".rstrip(".")
            try:
                json.dumps({name: value})
            except (TypeError, ValueError, RecursionError):
                return refuse(name, value, "a number, a text, a list or a section")
    return refuse("config", list(config), "sections with names of settings")


def override(
    config: dict,
    changes: dict,
    place: str = "compare.overrides",
    types: Mapping[str, dict[str, Any]] | None = None,
) -> dict:
    """A copy of a plain config with `changes` put in.

    Args:
      changes: {"objective": name, "section": {"field": value}}.
      place: where they come from, for errors.
      types: the declared types of the settings, if they are not `find_types`'s.

    Raises:
      ConfigError: an unknown setting, or a value of another type.
    """
    config = json.loads(json.dumps(config))
    is_pretraining = types is None
    types = find_types(config) if types is None else types
    for section, fields in changes.items():
        if section == "objective":
            config[section] = fields
            continue
        if not isinstance(fields, dict):
            raise ConfigError(
                f"{place}: {section}={fields!r}: must be a section's settings"
            )
        if is_pretraining and section in OBJECTIVES.names and section not in config:
            config[section] = to_dict(default_section(*SECTIONS[section]))
        for field, value in fields.items():
            name = f"{section}.{field}"
            if field not in config.get(section, {}):
                known = (
                    list_setting_names(config)
                    if is_pretraining
                    else [f"{k}.{each}" for k, known in types.items() for each in known]
                )
                suggestion = suggest_setting(name, known)
                raise ConfigError(f"{place}: {name}: unknown setting{suggestion}")
            if kind := types.get(section, {}).get(field):
                check_value(f"{place}: {name}", value, kind)
            config[section][field] = value
    return config
