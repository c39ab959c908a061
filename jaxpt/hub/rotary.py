"""Config fields of rotary positions, which several families share."""

import math
from typing import Any

from jaxpt.errors import DataError
from jaxpt.hub.fields import Config, FieldRow, Values, check_type, refusal, require
from jaxpt.hub.windows import FULL, LOCAL
from jaxpt.nn.model_spec import ModelSpec

# Fields with any kind of rotary positions, and those of each kind of scaled frequencies
# (`ModelSpec.rotary_scaling`) with transformers' default, also for 0 and null; those
# without one must be there.
MAX_LENGTH = "max_position_embeddings"
_COMMON = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
_LENGTH = "original_max_position_embeddings"
_SCALING: dict[str, dict[str, float | None]] = {
    "linear": {"factor": None},
    "llama3": {"factor": None, "low_freq_factor": None, "high_freq_factor": None},
    "yarn": {"factor": None, "beta_slow": 1.0, "beta_fast": 32.0},
}
# By these YaRN's magnitude is found, if it is not `attention_factor`.
_MAGNITUDE = ("attention_factor", "mscale", "mscale_all_dim")
# Frequencies that depend on the length of the text have no counterpart here.
KINDS = "'default', 'linear', 'llama3' or 'yarn'"


def read_rope(
    rope: Any, theta: Any, length: int | None = None, fraction: Any = None
) -> Values:
    """The fields of a spec for rotary positions.

    Args:
      rope: the rotary parameters, as transformers merges `rope_parameters` and
        `rope_scaling`.
      theta: the base if those have none.
      length: the original length if those have none; None for a family without scaled
        frequencies.
      fraction: `rotary_fraction` if those have none; None for a family that rotates all
        of a head.
    """
    check_type("rope_parameters", rope, dict, "an object")
    kind = rope.get("rope_type", rope.get("type", "default"))
    kinds = ["default"] if length is None else ["default", *_SCALING]
    if kind not in kinds:
        raise refusal("rope_type", kind, "'default'" if length is None else KINDS)
    values: Values = {}
    if fraction is None:
        require(rope, partial_rotary_factor=1.0)
    else:
        fraction = rope.get("partial_rotary_factor", fraction)
        check_type("partial_rotary_factor", fraction, (int, float), "a number")
        values["rotary_fraction"] = float(fraction)
    names = {*_COMMON, *_SCALING.get(kind, ())}
    names |= {_LENGTH} if kind in ("llama3", "yarn") else set()
    names |= {*_MAGNITUDE, "truncate"} if kind == "yarn" else set()
    for key in sorted(set(rope) - names):
        raise DataError(f"config.json: rope_parameters.{key}: is not supported")
    theta = rope.get("rope_theta", theta)
    check_type("rope_theta", theta, (int, float), "a number")
    values["rotary_base"] = float(theta)
    if kind == "default":
        return values
    return values | {"rotary_scaling": _read_scaling(rope, kind, length)}


def _read_scaling(rope: Config, kind: str, length: int | None) -> tuple[float, ...]:
    """`ModelSpec.rotary_scaling` of rotary parameters of a kind that scales."""
    numbers = {key: rope.get(key) or value for key, value in _SCALING[kind].items()}
    if kind != "linear":
        numbers[_LENGTH] = rope.get(_LENGTH, length)
    for name, number in numbers.items():
        check_type(name, number, (int, float), "a number")
    found = tuple(float(number) for number in numbers.values() if number is not None)
    if kind != "yarn":
        return found
    require(rope, truncate=True)
    return *found, _read_magnitude(rope, found[0])


def _read_magnitude(rope: Config, factor: float) -> float:
    """YaRN's factor of rotated numbers, as transformers finds it."""
    for name in _MAGNITUDE:
        check_type(name, rope.get(name), (int, float, type(None)), "a number or null")
    given, scale, scale_all = (rope.get(name) for name in _MAGNITUDE)
    if given is not None:
        return float(given)

    def grow(slope: float) -> float:
        return 0.1 * slope * math.log(factor) + 1 if factor > 1 else 1.0

    return grow(scale) / grow(scale_all) if scale and scale_all else grow(1)


def read_layer_rope(
    config: Config,
    kind: str,
    theta_key: str,
    theta: float,
    scaling: Any,
    length: int | None = None,
) -> Values:
    """The fields of a spec for the rotary positions of one kind of layers.

    Args:
      theta_key: the config's key of the base; "" for a family without one.
      scaling: the older parameters for this kind of layers.
      length: as for `read_rope`.
    """
    rope = config.get("rope_parameters") or {}
    for key, value in {"rope_parameters": rope, "rope_scaling": scaling}.items():
        if not isinstance(value, dict):
            raise refusal(key, value, "an object")
    # The classes do not read this name here.
    if (name := scaling.get("type", "default")) not in (
        "default",
        scaling.get("rope_type"),
    ):
        raise refusal("rope_scaling.type", name, "called rope_type")
    for key, value in rope.items():
        if not isinstance(value, dict):
            raise refusal(
                f"rope_parameters.{key}",
                value,
                "an object; they are those of 'full_attention' and 'sliding_attention'",
            )
    base = config.get(theta_key)
    base = theta if base is None else base
    return read_rope(rope.get(kind, {}) | scaling, base, length)


def write_layer_ropes(spec: ModelSpec) -> Config:
    """The rotary parameters of global and of local layers."""
    local = spec.local_rotary_base or spec.rotary_base
    return {
        FULL: write_rope(spec.rotary_base, spec.rotary_scaling),
        LOCAL: write_rope(local, spec.layer_scaling(is_local=True)),
    }


def write_rope(base: float, numbers: tuple[float, ...]) -> Config:
    """The rotary parameters of layers with this base and `ModelSpec.rotary_scaling`."""
    rope: Config = {"rope_type": "default", "rope_theta": base}
    if not numbers:
        return rope
    kind = {1: "linear", 4: "llama3", 5: "yarn"}[len(numbers)]
    names = *_SCALING[kind], _LENGTH, "attention_factor"
    rope |= dict(zip(names[: len(numbers)], numbers, strict=True))
    if kind != "linear":
        rope[_LENGTH] = int(rope[_LENGTH])
    return rope | {"rope_type": kind}


def rope(
    theta_name: str = "rope_theta",
    fraction_name: str = "",
    *,
    theta: float = 10000.0,
    fraction: float = 0.25,
    is_scaled: bool = True,
) -> FieldRow:
    """The rotary positions of a family whose layers all have the same.

    Args:
      theta_name: the field of the base; versions before 5 read no other.
      fraction_name: that of the part of a head that is rotated; "" for all of it.
      theta: the base of a config without that field.
      fraction: the part that is rotated in a config without that field.
      is_scaled: whether the family has scaled frequencies.
    """

    def read(config: Config) -> Values:
        # The older name takes precedence.
        rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
        base, part = config.get(theta_name, theta), None
        if fraction_name:
            part = config.get(fraction_name, fraction)
        else:
            require(config, partial_rotary_factor=1.0)
        if is_scaled:  # its value would overrule that of the rotary parameters
            require(config, **{_LENGTH: None})
        length = config[MAX_LENGTH] if is_scaled else None
        return read_rope(rope, base, length, part)

    def write(spec: ModelSpec) -> Config:
        rope = write_rope(spec.rotary_base, spec.rotary_scaling)
        older: Config = {theta_name: spec.rotary_base}
        if fraction_name:
            older[fraction_name] = spec.rotary_fraction
            rope["partial_rotary_factor"] = spec.rotary_fraction
        if spec.rotary_scaling:
            older["rope_scaling"] = rope
        return {"rope_parameters": rope, **older}

    return FieldRow(read, write)
