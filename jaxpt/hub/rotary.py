"""Config fields of rotary positions, which several families share."""

from typing import Any

from jaxpt.errors import DataError
from jaxpt.hub.fields import Config, FieldRow, Values, check_type, refusal, require
from jaxpt.nn.model_spec import ModelSpec

# Fields with any kind of rotary positions, and those of Llama 3.1's scaled frequencies,
# in the order of `ModelSpec.rotary_scaling`.
_COMMON = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
_SCALING = ("factor", "low_freq_factor", "high_freq_factor")
_LENGTH = "original_max_position_embeddings"


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
    if kind != "default" and (kind != "llama3" or length is None):
        allowed = "'default'" if length is None else "'default' or 'llama3'"
        raise refusal("rope_type", kind, allowed)
    values: Values = {}
    if fraction is None:
        require(rope, partial_rotary_factor=1.0)
    else:
        fraction = rope.get("partial_rotary_factor", fraction)
        check_type("partial_rotary_factor", fraction, (int, float), "a number")
        values["rotary_fraction"] = float(fraction)
    names = _COMMON if kind == "default" else {*_COMMON, *_SCALING, _LENGTH}
    for key in sorted(set(rope) - names):
        raise DataError(f"config.json: rope_parameters.{key}: is not supported")
    theta = rope.get("rope_theta", theta)
    check_type("rope_theta", theta, (int, float), "a number")
    values["rotary_base"] = float(theta)
    if kind == "default":
        return values
    numbers = [rope.get(name) for name in _SCALING] + [rope.get(_LENGTH, length)]
    for name, number in zip((*_SCALING, _LENGTH), numbers, strict=True):
        check_type(name, number, (int, float), "a number")
    return values | {"rotary_scaling": tuple(map(float, numbers))}


def read_layer_base(
    config: Config, kind: str, theta_key: str, theta: float, scaling: Any
) -> float:
    """The rotary base of one kind of layers, which may be under the key `theta_key`.

    Args:
      theta_key: "" for a family without such a key.
      scaling: the older parameters for this kind of layers.
    """
    rope = config.get("rope_parameters") or {}
    for key, value in {"rope_parameters": rope, "rope_scaling": scaling}.items():
        if not isinstance(value, dict):
            raise refusal(key, value, "an object")
    for key, value in rope.items():
        if not isinstance(value, dict):
            raise refusal(
                f"rope_parameters.{key}",
                value,
                "an object; they are those of 'full_attention' and 'sliding_attention'",
            )
    base = config.get(theta_key)
    values = read_rope(rope.get(kind, {}) | scaling, theta if base is None else base)
    return values["rotary_base"]


def write_rope(spec: ModelSpec, base: float) -> Config:
    """The rotary parameters of a spec, for layers with this base."""
    rope: Config = {"rope_type": "default", "rope_theta": base}
    if not spec.rotary_scaling:
        return rope
    *numbers, length = spec.rotary_scaling
    rope |= dict(zip(_SCALING, numbers, strict=True)) | {_LENGTH: int(length)}
    return rope | {"rope_type": "llama3"}


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
        length = config["max_position_embeddings"] if is_scaled else None
        return read_rope(rope, base, length, part)

    def write(spec: ModelSpec) -> Config:
        rope = write_rope(spec, spec.rotary_base)
        older: Config = {theta_name: spec.rotary_base}
        if fraction_name:
            older[fraction_name] = spec.rotary_fraction
            rope["partial_rotary_factor"] = spec.rotary_fraction
        if spec.rotary_scaling:
            older["rope_scaling"] = rope
        return {"rope_parameters": rope, **older}

    return FieldRow(read, write)
