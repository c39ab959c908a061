"""Parses JSON and compares it with a schema, before any of it is used.

A schema is a plain value:

    object                 anything
    None, bool, str        null, a boolean, a string
    int                    a whole number, at least 0 and below 2^63
    range(low, high)       a whole number of this range
    float                  a finite number
    numbers.Real           a number, also NaN and infinity (Python's extension of JSON)
    {"a", "b"}             one of these strings
    [schema]               a list of such values
    {"name": schema}       an object that has this name; "name?" if it may be missing
    {str: schema}          the names of an object that are not given otherwise
    (schema, schema)       any of these

Names that a schema does not give are allowed, so that older and newer files are
readable.

Settings have another check, `jaxpt.setting_types`: there a spec's fields declare types
with the limits of one setting, unknown names are errors, and a message names the
setting. A schema is of the whole content of a file, which may be damaged or hostile: it
bounds size and depth, and a message names the place in the file. A stored config passes
both, first as a file and then as settings.
"""

import json
import math
import numbers
import reprlib
from collections.abc import Iterable
from typing import Any

Schema = Any
MAX_BYTES = 1 << 28  # of a text; tokenizers of today have a tenth of it
MAX_DEPTH = 64  # functions that walk through a file are recursive
_TOO_DEEP = f"not JSON of at most {MAX_DEPTH} levels"
_COUNT = range(1 << 63)
_NAMES = {
    bool: "true or false",
    str: "a string",
    int: "a whole number, at least 0",
    float: "a finite number",
    numbers.Real: "a number",
}


def parse(text: bytes | str, schema: Schema = object, is_strict: bool = False) -> Any:
    """The value of a JSON text that has this schema.

    Args:
      is_strict: an object has no name twice, and no number is NaN or infinite.

    Raises:
      ValueError: it is larger than `MAX_BYTES`, is not JSON, is nested deeper than
        `MAX_DEPTH`, or does not have the schema; the message begins with the place in
        the text, if it has one.

    >>> parse('{"runs": [{"seed": 0}]}', {"runs": [{"seed": int}]})
    {'runs': [{'seed': 0}]}
    >>> parse('{"runs": [{"seed": null}]}', {"runs": [{"seed": int}]})
    Traceback (most recent call last):
    ValueError: runs[0].seed is None; must be a whole number, at least 0
    """
    if len(text) > MAX_BYTES:
        raise ValueError(f"is larger than {MAX_BYTES >> 20} MiB")
    hooks: dict[str, Any] = {}
    if is_strict:
        hooks = {"object_pairs_hook": _make_object, "parse_constant": _refuse_constant}
    try:
        value = json.loads(text, **hooks)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    _check_depth(value)
    check(value, schema)
    return value


def check(value: Any, schema: Schema, place: str = "") -> None:
    """Raises ValueError if a value of JSON does not have a schema.

    Args:
      place: of the value in its file, for the message.
    """
    options = schema if isinstance(schema, tuple) else (schema,)
    matches = [each for each in options if _is_kind(value, each)]
    if not matches:
        allowed = " or ".join(map(_describe, options))
        shown = reprlib.repr(value)
        if not place and len(options) == 1 and isinstance(schema, dict):
            raise ValueError(f"not a JSON object: {shown}")
        raise ValueError(f"{place or 'it'} is {shown}; must be {allowed}")
    kind = matches[0]
    if isinstance(kind, list):
        for number, item in enumerate(value):
            check(item, kind[0], f"{place}[{number}]")
    elif isinstance(kind, dict):
        _check_object(value, kind, place)


def _check_object(value: dict, schema: dict, place: str) -> None:
    prefix = f"{place}." if place else ""
    named = {name.removesuffix("?"): name for name in schema if name is not str}
    for name, full in named.items():
        if name in value:
            check(value[name], schema[full], prefix + name)
        elif name == full:
            raise ValueError(f"{place}{' ' * bool(place)}has no {name}")
    if str in schema:
        for name in value.keys() - named.keys():
            check(value[name], schema[str], prefix + reprlib.repr(name)[1:-1])


def _is_kind(value: Any, schema: Schema) -> bool:
    """Whether a value is of the kind of a schema; of a list or object, that it is."""
    if isinstance(schema, (list, dict)):
        return isinstance(value, type(schema))
    if isinstance(schema, set):
        return isinstance(value, str) and value in schema
    if schema is None or schema is object:
        return schema is object or value is None
    if isinstance(schema, range):
        return type(value) is int and value in schema
    if schema is int:
        return type(value) is int and value in _COUNT
    if schema in (float, numbers.Real):
        return _is_number(value, schema is float)
    return isinstance(value, schema)


def _is_number(value: Any, is_finite: bool) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value) or not is_finite
    except OverflowError:  # of a whole number that no float can represent
        return False


def _describe(schema: Schema) -> str:
    if isinstance(schema, (list, dict)):
        return "a list" if isinstance(schema, list) else "an object"
    if isinstance(schema, set):
        return f"one of {', '.join(sorted(schema))}"
    if isinstance(schema, range):
        return f"a whole number from {schema.start} to {schema.stop - 1}"
    return "null" if schema is None else _NAMES[schema]


def _check_depth(value: Any) -> None:
    level: Iterable[Any] = [value]
    for _ in range(MAX_DEPTH):
        inner = [each for each in level if isinstance(each, (list, dict))]
        if not inner:
            return
        level = [
            item
            for each in inner
            for item in (each.values() if isinstance(each, dict) else each)
        ]
    raise ValueError(_TOO_DEEP)


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for key, item in pairs:
        if key in value:
            raise ValueError(f"the key {key!r} appears twice")
        value[key] = item
    return value


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not a JSON number")
