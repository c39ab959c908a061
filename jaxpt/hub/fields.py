"""Converts fields of transformers' configs to those of ModelSpec and back, by tables.

A family of transformers is a table of rows, from which reading its configs and writing
them both follow. A row is made by one of

    field, size, activation    a field that sets one or more fields of a ModelSpec
    same                       a field that must equal another one
    fixed                      fields with one supported value; any other is an error

or, where several fields depend on each other, directly. Every other field of a config
does not change the outputs of a model with given weights (`Family.inert`): labels,
options of returned values, of computation and initialization, and training
options. Dropout that a spec has no field for (BART's `activation_dropout` and
`encoder_layerdrop`, and that of classifiers) is not applied in further training.
"""

import dataclasses
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from jaxpt.errors import DataError, UserError
from jaxpt.nn.model_spec import ModelSpec

Config = dict[str, Any]  # fields of a config.json
Values = dict[str, Any]  # fields of a ModelSpec

ACTIVATIONS = {
    "relu": "relu",
    "relu2": "relu2",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}
# jaxpt's names -> transformers' names.
ACTIVATION_NAMES = {
    "relu": "relu",
    "relu2": "relu2",
    "gelu": "gelu",
    "gelu_tanh": "gelu_new",
    "silu": "silu",
}
# Fields that change no output in families without rotary positions.
NO_ROPE = "rope_scaling rope_theta partial_rotary_factor "
_MAX_INT32 = 2**31 - 1  # JAX's sizes are int32


@dataclasses.dataclass(frozen=True)
class FieldRow:
    """Converts one field of a config.json, or a few that depend on each other.

    Attributes:
      read: (config with all defaults) -> the fields of a ModelSpec that they set.
      write: the reverse; the fields that an export has.
      defaults: those of the class of transformers, for fields whose type is checked.
      nullable: fields that may also be null.
    """

    read: Callable[[Config], Values]
    write: Callable[[ModelSpec], Config]
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    nullable: tuple[str, ...] = ()


def field(
    name: str,
    spec_fields: str | tuple[str, ...],
    default: Any,
    decode: Callable[[Any, Config], Any] = lambda value, _: value,
    encode: Callable[[ModelSpec], Any] | str = "",
    is_nullable: bool = False,
) -> FieldRow:
    """A field that sets one or more fields of a spec.

    Args:
      spec_fields: the fields of the spec, all of which get the same value.
      default: of the class of transformers; None for one that may be an integer.
      decode: (value, config with all defaults) -> the spec's value.
      encode: (spec) -> the config's value, or the name of the spec's property that has
        it; by default the first of `spec_fields`.
    """
    targets = (spec_fields,) if isinstance(spec_fields, str) else spec_fields
    getter = attrgetter(encode or targets[0]) if isinstance(encode, str) else encode

    def read(config: Config) -> Values:
        return dict.fromkeys(targets, decode(config[name], config))

    def write(spec: ModelSpec) -> Config:
        return {name: getter(spec)}

    return FieldRow(read, write, {name: default}, (name,) * is_nullable)


def size(
    name: str,
    spec_field: str,
    default: int | None,
    otherwise: Callable[[Config], int] = lambda _: 0,
    encode: Callable[[ModelSpec], Any] | str = "",
) -> FieldRow:
    """A size of at least 1, as 0 is ModelSpec's default; null means `otherwise`."""

    def decode(value: int | None, config: Config) -> int:
        value = otherwise(config) if value is None else value
        if value < 1:
            raise refusal(name, value, "at least 1")
        return value

    return field(name, spec_field, default, decode, encode)


def activation(
    name: str, default: str, decode: Callable[[str, Any], str] | None = None
) -> FieldRow:
    """The field of the activation function.

    Args:
      default: of the class; an export has this name of several of one function.
      decode: (name, value) -> jaxpt's name; None for `read_activation`.
    """
    read = decode or read_activation

    def write(spec: ModelSpec) -> str:
        is_default = spec.activation == ACTIVATIONS[default]
        return default if is_default else write_activation(spec)

    return field(name, "activation", default, lambda value, _: read(name, value), write)


def same(
    name: str,
    other: str,
    default: Any,
    encode: Callable[[ModelSpec], Any] | str,
    decode: Callable[[str, Any], Any] = lambda _, value: value,
) -> FieldRow:
    """A field that must equal another one, as a spec has one field for both."""
    getter = attrgetter(encode) if isinstance(encode, str) else encode

    def read(config: Config) -> Values:
        value, other_value = config[name], config[other]
        if decode(name, value) != decode(other, other_value):
            raise refusal(
                name, value, f"{other}={other_value!r}; other values are not supported"
            )
        return {}

    return FieldRow(read, lambda spec: {name: getter(spec)}, {name: default})


def fixed(*, is_written: bool = False, **values: Any) -> FieldRow:
    """Fields with one supported value, which they have if they are missing."""

    def read(config: Config) -> Values:
        require(config, **values)
        return {}

    return FieldRow(read, lambda spec: dict(values) if is_written else {})


# With other values a decoder is not simply causal.
CAUSAL = fixed(
    is_causal=True, sliding_window=None, attention_chunk_size=None, layer_types=None
)


# Causal or not, which is a model's purpose (`Family.purpose_fields`). With null, the
# masks and kernels of transformers would differ.
EITHER_WAY = FieldRow(lambda config: {}, lambda spec: {}, {"is_causal": True})


def refusal(name: str, value: Any, allowed: str) -> UserError:
    """The error for a value of a field of config.json."""
    return DataError(f"config.json: {name}={value!r}: must be {allowed}")


def agrees(value: Any, expected: Any) -> bool:
    """Whether a field has a value; null is False, as code tests its truth."""
    return bool(value == expected) or (value is None and expected is False)


def require(config: Config, **expected: Any) -> None:
    """Raises UserError for a field that is present with another value."""
    for name, value in expected.items():
        if not agrees(config.get(name, value), value):
            raise refusal(name, config[name], repr(value))


def read_activation(name: str, value: Any) -> str:
    """jaxpt's name of the activation in a field."""
    if not isinstance(value, str) or value not in ACTIVATIONS:
        raise refusal(name, value, f"one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[value]


def write_activation(spec: ModelSpec) -> str:
    """transformers' name of a spec's activation."""
    return ACTIVATION_NAMES[spec.activation]


def name_width(config: Config) -> Config:
    """The config with the class's name for the width, which older ones call n_embed."""
    older = config.get("n_embed")
    return config if older is None else config | {"hidden_size": older}


def check_type(name: str, value: Any, kinds: Any, allowed: str) -> None:
    """Raises UserError for a value of a wrong type; a bool is not a number."""
    is_bool = isinstance(value, bool) and kinds is not bool
    if is_bool or not isinstance(value, kinds):
        raise refusal(name, value, allowed)
    if isinstance(value, int) and value > _MAX_INT32:
        raise refusal(name, value, f"at most {_MAX_INT32}")
