"""What the configs of families have in common: defaults, refusals, rotary bases.

A field of a config.json is used, has one value that is supported (any other is
refused), or changes no number of a model with its weights read: labels, what is
returned, how it is computed, how it began, and what is done in training alone. Of the
last, dropout that a spec has no place for (BART's `activation_dropout` and
`encoder_layerdrop`, of classifiers) is left out of further training.
"""

from jaxpt.errors import UserError

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
}
# Ours -> theirs.
ACTIVATION_NAMES = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_tanh": "gelu_new",
    "silu": "silu",
}
# transformers sets whatever a config.json holds, in a class's fields or not; of the
# latter its code reads these, in every family.
_UNSUPPORTED = (
    "quantization_config",
    "per_layer_config",
    "transformers_weights",
)
# What rotary positions that are not scaled may say of themselves.
_ROPE = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
# A field's type by that of its default, and what may stand there.
_TYPES = {
    bool: (bool, "true or false"),
    int: (int, "an integer"),
    float: ((int, float), "a number"),
    str: (str, "a text"),
    type(None): ((int, type(None)), "an integer or null"),
}


def settle(config: dict, defaults: dict, aliases: dict | None = None) -> dict:
    """A config with every field that is used: its own, or as the class has it.

    Args:
      defaults: field -> its default in the class of transformers; None for one that
        may be an integer.
      aliases: other name -> the field it sets, also where that is there.

    Raises:
      UserError: a field is of another type, or says what no family can be.
    """
    for key in _UNSUPPORTED:
        if config.get(key):
            told = repr(config[key])
            told = told if len(told) <= 60 else f"{told[:57]}..."
            raise UserError(f"config.json: {key}={told}: is not supported")
    settled, names = defaults | config, dict.fromkeys(defaults, "")
    for alias, field in (aliases or {}).items():
        if alias in config:
            settled[field], names[field] = config[alias], alias
    for field, default in defaults.items():
        kinds, allowed = _TYPES[type(default)]
        _check_type(names[field] or field, settled[field], kinds, allowed)
    return settled


def read_activation(config: dict, key: str) -> str:
    """Our name of the activation under a key."""
    name = config[key]
    if name not in ACTIVATIONS:
        allowed = ", ".join(ACTIVATIONS)
        raise UserError(f"config.json: {key}={name!r}: must be one of {allowed}")
    return ACTIVATIONS[name]


def require(config: dict, **wanted) -> None:
    """Refuses settings of which only one value is supported, where they are set."""
    for key, value in wanted.items():
        if config.get(key, value) != value:
            raise UserError(f"config.json: {key}={config[key]!r}: must be {value!r}")


def require_causal(config: dict) -> None:
    """Refuses what makes a decoder of transformers see more or less than its past."""
    require(
        config,
        is_causal=True,
        sliding_window=None,
        attention_chunk_size=None,
        layer_types=None,
    )


def read_size(config: dict, key: str, default: int) -> int:
    """A size that may be null, which is the default; ModelSpec's 0 is no size here."""
    value = default if config[key] is None else config[key]
    if value < 1:
        raise UserError(f"config.json: {key}={value}: must be at least 1")
    return value


def read_rope(rope: dict, theta: float) -> float:
    """The base of rotary positions; scaled ones are not supported.

    Args:
      rope: what transformers makes of `rope_parameters` and `rope_scaling`.
      theta: the base where that has none.
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
    """Raises UserError for a value of no such type; true and false are no numbers."""
    is_bool = isinstance(value, bool) and kinds is not bool
    if is_bool or not isinstance(value, kinds):
        raise UserError(f"config.json: {key}={value!r}: must be {allowed}")
