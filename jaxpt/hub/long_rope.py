"""LongRoPE in config fields: rotary positions with divisors for short and long texts.

transformers reads a batch by its longest position; here the length of a row chooses
(`ModelSpec.rotary_factors`), which is the same for whole texts.
"""

import math
from typing import Any

from jaxpt.errors import DataError
from jaxpt.hub.fields import Config, FieldRow, Values, check_type, refusal
from jaxpt.hub.rotary import MAX_LENGTH, rope
from jaxpt.nn.model_spec import ModelSpec

LENGTH = "original_max_position_embeddings"
_LISTS = ("short_factor", "long_factor")
_PLAIN = ("rope_theta", "partial_rotary_factor")
# "su" and "yarn" are older names of Phi-3's.
_KINDS = ("longrope", "su", "yarn")
_KNOWN = {*_LISTS, *_PLAIN, "rope_type", "type", LENGTH, "factor", "attention_factor"}


def _read_list(params: Config, name: str) -> list[float]:
    numbers = params.get(name)
    check_type(f"rope_parameters.{name}", numbers, list, "a list of numbers")
    assert isinstance(numbers, list)
    for number in numbers:
        check_type(f"rope_parameters.{name}", number, (int, float), "a list of numbers")
    return [float(number) for number in numbers]


def _find_magnitude(ratio: float, length: float) -> float:
    """What transformers multiplies rotated numbers by, if the config has no factor."""
    if ratio <= 1 or length <= 1:
        return 1.0
    return math.sqrt(1 + math.log(ratio) / math.log(length))


def _read_factors(params: Config, config: Config, default: int) -> tuple[float, ...]:
    """`ModelSpec.rotary_factors` of rotary parameters."""
    for key in sorted(params.keys() - _KNOWN):
        raise DataError(f"config.json: rope_parameters.{key}: is not supported")
    length = config.get(LENGTH, default)
    check_type(LENGTH, length, int, "an integer")
    lists = [_read_list(params, name) for name in _LISTS]
    if len(lists[0]) != len(lists[1]):
        raise refusal(
            "rope_parameters.long_factor",
            f"{len(lists[1])} numbers",
            f"{len(lists[0])}, as those of short_factor",
        )
    ratio, magnitude = params.get("factor"), params.get("attention_factor")
    for name, number in {"factor": ratio, "attention_factor": magnitude}.items():
        kinds = (int, float, type(None))
        check_type(f"rope_parameters.{name}", number, kinds, "a number or null")
    if length < 1:
        raise refusal(LENGTH, length, "at least 1")
    if magnitude is None:
        ratio = config[MAX_LENGTH] / length if ratio is None else ratio
        magnitude = _find_magnitude(ratio, length)
    return float(length), float(magnitude), *lists[0], *lists[1]


def _write_factors(spec: ModelSpec, plain: Config) -> Config:
    """The fields of an export, with the three that versions before 5 accept."""
    length, magnitude, *both = spec.rotary_factors
    half = len(both) // 2
    lists = dict(zip(_LISTS, (both[:half], both[half:]), strict=True))
    is_usual = magnitude == _find_magnitude(spec.max_len / length, length)
    named = {} if is_usual else {"attention_factor": magnitude}
    params = {"rope_type": "longrope", **lists, LENGTH: int(length), **named}
    params |= {name: plain["rope_parameters"][name] for name in _PLAIN}
    older = {"rope_scaling": {"type": "longrope", **lists, **named}}
    return plain | {"rope_parameters": params, LENGTH: int(length)} | older


def long_rope(length: int, **defaults: Any) -> FieldRow:
    """The rotary positions of a family, plain or LongRoPE's.

    Args:
      length: that of the pretraining in a config without it.
      defaults: of `rope`.
    """
    row = rope(**defaults, is_scaled=False)

    def read(config: Config) -> Values:
        params = config.get("rope_scaling") or config.get("rope_parameters") or {}
        check_type("rope_parameters", params, dict, "an object")
        if params.get("rope_type", params.get("type")) not in _KINDS:
            return row.read(config)
        plain = {name: params[name] for name in _PLAIN if name in params}
        values = row.read(config | {"rope_scaling": None, "rope_parameters": plain})
        return values | {"rotary_factors": _read_factors(params, config, length)}

    def write(spec: ModelSpec) -> Config:
        plain = row.write(spec)
        return _write_factors(spec, plain) if spec.rotary_factors else plain

    return FieldRow(read, write)
