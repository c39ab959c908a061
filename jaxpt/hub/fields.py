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
import re
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
}
# jaxpt's names -> transformers' names.
ACTIVATION_NAMES = {
    "relu": "relu",
    "relu2": "relu2",
    "gelu": "gelu",
    "gelu_tanh": "gelu_new",
    "silu": "silu",
}
# transformers sets everything that a config.json has as an attribute, even if it is
# not a field of the class; its code reads these attributes in every family.
_UNSUPPORTED = (
    "quantization_config",
    "per_layer_config",
    "transformers_weights",
)
# Fields that change no output in any family: where a config comes from, how the model
# is computed, what is returned, labels, and ids that the tokenizer determines.
_INERT = """
    transformers_version name_or_path _name_or_path _commit_hash architectures
    allow_global_per_layer_attribute_access serialize_explicit_per_layer_config
    dtype torch_dtype chunk_size_feed_forward use_cache
    attn_implementation _attn_implementation
    experts_implementation _experts_implementation
    output_hidden_states output_attentions return_dict
    id2label label2id num_labels problem_type
    bos_token_id eos_token_id pad_token_id
"""
# Fields that do so in families without rotary positions.
NO_ROPE = "rope_scaling rope_theta partial_rotary_factor "
_MAX_INT32 = 2**31 - 1  # JAX's sizes are int32
# By the type of a field's default, the types that it may have.
_TYPES: dict[type, tuple[Any, str]] = {
    bool: (bool, "true or false"),
    int: (int, "an integer"),
    float: ((int, float), "a number"),
    str: (str, "a text"),
    type(None): ((int, type(None)), "an integer or null"),
}


@dataclasses.dataclass(frozen=True)
class Row:
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
) -> Row:
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

    return Row(read, write, {name: default}, (name,) * is_nullable)


def size(
    name: str,
    spec_field: str,
    default: int | None,
    otherwise: Callable[[Config], int] = lambda _: 0,
    encode: Callable[[ModelSpec], Any] | str = "",
) -> Row:
    """A size of at least 1, as 0 is ModelSpec's default; null means `otherwise`."""

    def decode(value: int | None, config: Config) -> int:
        value = otherwise(config) if value is None else value
        if value < 1:
            raise refusal(name, value, "at least 1")
        return value

    return field(name, spec_field, default, decode, encode)


def activation(name: str, default: str) -> Row:
    """The field of the activation function."""
    return field(
        name,
        "activation",
        default,
        lambda value, _: read_activation(name, value),
        write_activation,
    )


def same(
    name: str,
    other: str,
    default: Any,
    encode: Callable[[ModelSpec], Any] | str,
    decode: Callable[[str, Any], Any] = lambda _, value: value,
) -> Row:
    """A field that must equal another one, as a spec has one field for both."""
    getter = attrgetter(encode) if isinstance(encode, str) else encode

    def read(config: Config) -> Values:
        value, other_value = config[name], config[other]
        if decode(name, value) != decode(other, other_value):
            raise refusal(
                name, value, f"{other}={other_value!r}; other values are not supported"
            )
        return {}

    return Row(read, lambda spec: {name: getter(spec)}, {name: default})


def fixed(*, is_written: bool = False, **values: Any) -> Row:
    """Fields with one supported value, which they have if they are missing."""

    def read(config: Config) -> Values:
        require(config, **values)
        return {}

    return Row(read, lambda spec: dict(values) if is_written else {})


# With other values a decoder is not simply causal.
CAUSAL = fixed(
    is_causal=True, sliding_window=None, attention_chunk_size=None, layer_types=None
)


@dataclasses.dataclass(frozen=True)
class Family:
    """One `model_type` of transformers.

    Attributes:
      heads: a model's purpose -> its class: "causal", "masked", "pretraining" (with
        BERT's sentence head), "seq2seq", "generator", "discriminator".
      rows: the fields of its config.json.
      constants: fields of a spec that have the same value in the whole family.
      aliases: alias -> the field that it sets, even if that is present (transformers'
        `attribute_map`).
      inert: further fields that change no output, separated by spaces: those of other
        heads, of training and of initialization.
      prepare: changes a config before defaults and aliases are applied.
      like: the family that has the same names of tensors; "" for none.
      unwritten: fields of a spec that only the tensors determine, not the config ->
        (tensors) -> the value, None for that of the config.
      counts_from_pad: whether its code counts positions from `pad_token_id` on, over
        all tokens with another id. Positions are then right only if that is the real
        padding id; with another id, some token of a text would have no position.
      freezes_pad: whether PyTorch gives the embedding of `pad_token_id` no gradient
        (`nn.Embedding(padding_idx=...)`).
    """

    name: str
    heads: dict[str, str]
    rows: tuple[Row, ...]
    constants: Values = dataclasses.field(default_factory=dict)
    aliases: dict[str, str] = dataclasses.field(default_factory=dict)
    inert: str = ""
    prepare: Callable[[Config], Config] = lambda config: config
    like: str = ""
    unwritten: Mapping[str, Callable[[Mapping[str, Any]], Any]] = dataclasses.field(
        default_factory=dict
    )
    counts_from_pad: bool = False
    freezes_pad: bool = False

    @property
    def form(self) -> str:
        """The key of the family in the tables of `hub.names` and `hub.task_heads`."""
        return self.like or self.name

    @property
    def class_prefix(self) -> str:
        """What the names of its classes begin with, such as "DistilBert"."""
        return re.split("LMHead|For", next(iter(self.heads.values())))[0]

    @property
    def defaults(self) -> Config:
        """The fields that are used, with the defaults of transformers' class."""
        return {
            name: value for row in self.rows for name, value in row.defaults.items()
        }

    def read(self, config: Config) -> ModelSpec:
        """The spec of a config.json.

        Raises:
          UserError: a field has a wrong type or an unsupported value.
        """
        config = self._with_defaults(self.prepare(config))
        values = dict(self.constants)
        for row in self.rows:
            values |= row.read(config)
        return ModelSpec(**values)

    def write(self, spec: ModelSpec) -> Config:
        """The config.json of a spec, without the special ids."""
        return {
            name: value for row in self.rows for name, value in row.write(spec).items()
        }

    @property
    def inert_names(self) -> frozenset[str]:
        """The fields that change no output."""
        return frozenset((_INERT + self.inert).split()) - self.defaults.keys()

    def _with_defaults(self, config: Config) -> Config:
        """A config with all fields that are used, their types checked."""
        for key in _UNSUPPORTED:
            if config.get(key):
                text = repr(config[key])
                text = text if len(text) <= 60 else f"{text[:57]}..."
                raise DataError(f"config.json: {key}={text}: is not supported")
        defaults = self.defaults
        filled, names = defaults | config, dict.fromkeys(defaults, "")
        for alias, name in self.aliases.items():
            if alias in config:
                filled[name], names[name] = config[alias], alias
        nullable = {name for row in self.rows for name in row.nullable}
        for name, default in defaults.items():
            kind = type(None) if name in nullable else type(default)
            check_type(names[name] or name, filled[name], *_TYPES[kind])
        return filled

    def lay_out(self, spec: ModelSpec, pad: int | None) -> ModelSpec:
        """The spec with its positions at those rows of the table that the code reads.

        Args:
          pad: the padding id of the tokenizer; None if it has none, which `check_pad`
            refuses.
        """
        if not self.counts_from_pad or pad is None:
            return spec
        return dataclasses.replace(spec, position_offset=pad + 1)

    def check_pad(self, spec: ModelSpec, pad: int | None) -> None:
        """Raises UserError unless the spec's positions fit the tokenizer's padding."""
        if self.counts_from_pad and pad is None:
            raise DataError(
                f"the tokenizer has no [PAD], and a {self.name} counts positions from "
                "its id: tokenizer.specials must list 'pad' before a run is trained"
            )
        if self.counts_from_pad and pad != spec.position_offset - 1:
            raise DataError(
                f"config.json: pad_token_id={spec.position_offset - 1}: must be {pad}, "
                f"the tokenizer's [PAD]: a {self.name} counts positions from it"
            )


def refusal(name: str, value: Any, allowed: str) -> UserError:
    """The error for a value of a field of config.json."""
    return DataError(f"config.json: {name}={value!r}: must be {allowed}")


def require(config: Config, **expected: Any) -> None:
    """Raises UserError for a field that is present with another value."""
    for name, value in expected.items():
        if config.get(name, value) != value:
            raise refusal(name, config[name], repr(value))


def read_activation(name: str, value: Any) -> str:
    """jaxpt's name of the activation in a field."""
    if not isinstance(value, str) or value not in ACTIVATIONS:
        raise refusal(name, value, f"one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[value]


def write_activation(spec: ModelSpec) -> str:
    """transformers' name of a spec's activation."""
    return ACTIVATION_NAMES[spec.activation]


def check_type(name: str, value: Any, kinds: Any, allowed: str) -> None:
    """Raises UserError for a value of a wrong type; a bool is not a number."""
    is_bool = isinstance(value, bool) and kinds is not bool
    if is_bool or not isinstance(value, kinds):
        raise refusal(name, value, allowed)
    if isinstance(value, int) and value > _MAX_INT32:
        raise refusal(name, value, f"at most {_MAX_INT32}")
