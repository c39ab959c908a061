"""Adds the controls that objectives declare to the objectives of a comparison.

`Spec.controls` names the settings next to which an objective's result can be read: the
same without one of its parts, or another objective at the same cost. Runs that start
from another one have a control from random parameters, "scratch".
"""

from collections.abc import Collection, Mapping
from typing import Any

from jaxpt.config.plan import make_compare_spec, plan_as
from jaxpt.config.settings import AnyConfig, to_dict
from jaxpt.objectives import OBJECTIVES, find_section


def add_controls(config: AnyConfig, explicit_names: Collection[str] = ()) -> dict:
    """The config whose `compare` section also has the controls of its objectives.

    A control that is the objective with other settings is called after both,
    "multi_token-off", and has the overrides of its objective too. One that is another
    objective has the name it is declared with, once for all that declare it; if its
    objective has overrides of other sections, such as a model of two stacks, the
    control has them too and is called after both, "bart-span_corruption". A name that
    the user has listed is left as it is.

    Args:
      explicit_names: full names of the settings that the user has set
        (`config.plan.make_plan`).
    """
    config = to_dict(config)
    spec = make_compare_spec(config)
    names, overrides = list(spec.objectives), dict(spec.overrides)
    controls = {name: list(each) for name, each in spec.controls.items()}
    added = {each for group in controls.values() for each in group}
    for name in spec.objectives:
        if name in added:  # no controls of controls
            continue
        plan = plan_as(config, name, explicit_names)
        declared = plan.spec.controls()
        if plan.train.init_from:
            declared = declared | {"scratch": {"train": {"init_from": ""}}}
        for short, sections in declared.items():
            other = sections.get("objective", plan.objective_name)
            base = {"objective": other} | overrides.get(name, {})
            if other != plan.objective_name:
                of_objective = {"objective", find_section(plan.objective_name)}
                base = {k: v for k, v in base.items() if k not in of_objective}
            own = f"{name}-{short}" if base else short
            sections = _merge(base, sections)
            if own not in controls.setdefault(name, []):
                controls[name].append(own)
            if own not in names:
                names.append(own)
                if own not in OBJECTIVES or len(sections) > 1:
                    overrides[own] = dict(sections)
    config["compare"] |= {
        "objectives": names,
        "overrides": overrides,
        "controls": controls,
    }
    return config


def _merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Sections of settings, with those of `changes` put in."""
    merged = dict(base)
    for section, fields in changes.items():
        is_section = isinstance(fields, Mapping)
        merged[section] = base.get(section, {}) | fields if is_section else fields
    return merged
