"""Helpers for configs of all families: defaults, unsupported values, rotary bases.

A field of a config.json is used, or has only one supported value (any other is an
error), or does not change the outputs of a model with given weights: labels, options of
what is returned, how it is computed or was initialised, and options of training. Of the
last, dropout that a spec has no field for (BART's `activation_dropout` and
`encoder_layerdrop`, and that of classifiers) is not applied in further training.
"""

from jaxpt.errors import UserError

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
}
# jaxpt's names -> transformers' names.
ACTIVATION_NAMES = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_tanh": "gelu_new",
    "silu": "silu",
}
# transformers sets everything that a config.json holds as an attribute, even if it is
# not a field of the class; its code reads these attributes in every family.
_UNSUPPORTED = (
    "quantization_config",
    "per_layer_config",
    "transformers_weights",
)
# The values with which rotary positions are not scaled.
_ROPE = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
# By the type of a field's default, the types that it may have.
_TYPES = {
    bool: (bool, "true or false"),
    int: (int, "an integer"),
    float: ((int, float), "a number"),
    str: (str, "a text"),
    type(None): ((int, type(None)), "an integer or null"),
}


def with_defaults(config: dict, defaults: dict, aliases: dict | None = None) -> dict:
    """A config with all fields that are used, from itself or the class's defaults.

    Args:
      defaults: field -> its default in the class of transformers; None for one that
        may be an integer.
      aliases: alias -> the field that it sets, even if that is present.

    Raises:
      UserError: a field has a wrong type, or a value that no family supports.
    """
    for key in _UNSUPPORTED:
        if config.get(key):
            told = repr(config[key])
            told = told if len(told) <= 60 else f"{told[:57]}..."
            raise UserError(f"config.json: {key}={told}: is not supported")
    filled, names = defaults | config, dict.fromkeys(defaults, "")
    for alias, field in (aliases or {}).items():
        if alias in config:
            filled[field], names[field] = config[alias], alias
    for field, default in defaults.items():
        kinds, allowed = _TYPES[type(default)]
        _check_type(names[field] or field, filled[field], kinds, allowed)
    return filled


def read_activation(config: dict, key: str) -> str:
    """jaxpt's name of the activation under a key."""
    name = config[key]
    if name not in ACTIVATIONS:
        allowed = ", ".join(ACTIVATIONS)
        raise UserError(f"config.json: {key}={name!r}: must be one of {allowed}")
    return ACTIVATIONS[name]


def require(config: dict, **wanted) -> None:
    """Raises UserError for a setting that is set and has not its supported value."""
    for key, value in wanted.items():
        if config.get(key, value) != value:
            raise UserError(f"config.json: {key}={config[key]!r}: must be {value!r}")


def require_causal(config: dict) -> None:
    """Raises UserError for settings with which a decoder is not simply causal."""
    require(
        config,
        is_causal=True,
        sliding_window=None,
        attention_chunk_size=None,
        layer_types=None,
    )


def read_size(config: dict, key: str, default: int) -> int:
    """A size that may be null, the default; 0, ModelSpec's default, is not allowed."""
    value = default if config[key] is None else config[key]
    if value < 1:
        raise UserError(f"config.json: {key}={value}: must be at least 1")
    return value


def read_rope(rope: dict, theta: float) -> float:
    """The base of rotary positions; scaled ones are not supported.

    Args:
      rope: the rotary parameters, as transformers merges `rope_parameters` and
        `rope_scaling`.
      theta: the base if those have none.
    """
    _check_type("rope_parameters", rope, dict, "an object")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise UserError(f"config.json: rope_type={kind!r}: must be 'default'")
    require(rope, partial_rotary_factor=1.0)
    for key in sorted(set(rope) - _ROPE):
        raise UserError(f"config.json: rope_parameters.{key}: is not supported")
    theta = rope.get("rope_theta", theta)
    _check_type("rope_theta", theta, (int, float), "a number")
    return float(theta)


def _check_type(key: str, value, kinds, allowed: str) -> None:
    """Raises UserError for a value of a wrong type; a bool is not a number."""
    is_bool = isinstance(value, bool) and kinds is not bool
    if is_bool or not isinstance(value, kinds):
        raise UserError(f"config.json: {key}={value!r}: must be {allowed}")
