"""Frozen dataclasses as JSON: read with a check of every value, written the same again.

A record's fields are its names in JSON. A field with a default may be missing, and is
not written if it has that value. One field made by `rest` holds all other names, so
that nothing of a file is lost; without it, other names are ignored.
"""

import dataclasses
import functools
import math
import os
import types
import typing
from collections.abc import Mapping
from typing import Any, Self, cast

import numpy as np

from jaxpt.files import schema

ABSENT = object()


def rest() -> Any:
    """The field of all names that a record has no other field for."""
    return dataclasses.field(default_factory=dict, metadata={"rest": True})


@dataclasses.dataclass(frozen=True)
class Stored:
    """A value of JSON with named parts."""

    @classmethod
    def from_json(cls, value: Any, place: str = "") -> Self:
        """Reads a value of JSON.

        Args:
          place: of the value in its file, for the message.

        Raises:
          ValueError: it does not have the fields' types; the message begins with the
            place.
        """
        schema.check(value, make_schema(cast(Any, cls)), place)
        return _read(cls, value)

    def to_json(self) -> dict[str, Any]:
        """The same in JSON's types; null for a number that is not finite."""
        value: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            item = getattr(self, field.name)
            if field.metadata.get("rest"):
                value |= to_plain(item)
            elif item != _get_default(field):
                value[field.name] = _write(item)
        return value


def _get_default(field: dataclasses.Field) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    factory = field.default_factory
    return ABSENT if factory is dataclasses.MISSING else factory()


@functools.cache
def make_schema(kind: Any) -> schema.Schema:
    """The schema of a type, as `jaxpt.files.schema` describes it.

    >>> make_schema(dict[str, float | None])
    {<class 'str'>: (<class 'float'>, None)}
    """
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return object
    if origin in (types.UnionType, typing.Union):
        return tuple(map(make_schema, inner))
    if origin is tuple:
        return [make_schema(inner[0])]
    if origin is dict:
        return {str: make_schema(inner[1])}
    if not dataclasses.is_dataclass(kind):
        return None if kind is type(None) else kind
    fields: dict[Any, Any] = {}
    for field, hint in _list_fields(cast(Any, kind)):
        if field.metadata.get("rest"):
            fields |= make_schema(hint)
        else:
            is_needed = _get_default(field) is ABSENT
            fields[field.name if is_needed else f"{field.name}?"] = make_schema(hint)
    return fields


@functools.cache
def _list_fields(kind: Any) -> list[tuple[dataclasses.Field, Any]]:
    hints = typing.get_type_hints(kind)
    return [(field, hints[field.name]) for field in dataclasses.fields(kind)]


def _read(kind: Any, value: Any) -> Any:
    """A value that has the schema of a type, as that type."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if value is None or kind is Any:
        return value
    if origin in (types.UnionType, typing.Union):
        return _read(inner[0], value)
    if origin is tuple:
        return tuple(_read(inner[0], item) for item in value)
    if origin is dict:
        return {name: _read(inner[1], item) for name, item in value.items()}
    return _read_record(kind, value) if dataclasses.is_dataclass(kind) else value


def _read_record(kind: Any, value: Mapping[str, Any]) -> Any:
    values, other = {}, dict(value)
    rest_name = ""
    for field, hint in _list_fields(kind):
        if field.metadata.get("rest"):
            rest_name = field.name
        elif field.name in other:
            values[field.name] = _read(hint, other.pop(field.name))
    return kind(**values, **({rest_name: other} if rest_name else {}))


def _write(value: Any) -> Any:
    if isinstance(value, Stored):
        return value.to_json()
    if isinstance(value, dict):
        return {str(name): _write(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_write(item) for item in value]
    return to_plain(value)


def to_plain(value: Any) -> Any:
    """The same value in JSON's types; None for a number that is not finite."""
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return to_plain(value.tolist())
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
