"""Config fields of local layers, which several families share."""

from typing import Any

from jaxpt.errors import DataError
from jaxpt.hub.fields import Config, Values, refusal
from jaxpt.nn.model_spec import ModelSpec

FULL, LOCAL = "full_attention", "sliding_attention"


def find_global_every(
    kinds: Any,
    num_layers: int,
    name: str = "layer_types",
    names: tuple[str, str] = (FULL, LOCAL),
    *,
    is_last: bool = False,
) -> int:
    """`ModelSpec.global_every` of the layers' kinds; 1 if all have full attention.

    Args:
      kinds: of all layers, as the field `name` has them.
      names: those of layers with full attention and of local ones.
      is_last: whether the last of every n layers has full attention, not the first.
    """
    full, local = names
    is_complete = isinstance(kinds, list) and len(kinds) == num_layers
    for every in (1, *range(2, num_layers + 1), 0) if is_complete else ():
        place = every - 1 if is_last else 0
        expected = [
            local if every == 0 or i % every != place else full
            for i in range(num_layers)
        ]
        if kinds == expected:
            return every
    raise DataError(
        f"config.json: {name}={kinds}: must be {full} in the last of every n layers, "
        f"of {num_layers}, or in none, and else {local}"
        if is_last
        else f"config.json: {name}={kinds}: must be {full} in the first of "
        f"{num_layers} layers and then in one of every n, or in none, and else {local}"
    )


def list_kinds(spec: ModelSpec) -> list[str]:
    """The `layer_types` of a spec."""
    return [LOCAL if spec.is_local(i) else FULL for i in range(spec.num_layers)]


def decode_window(name: str, width: int | None) -> int:
    """`ModelSpec.window` of a field that counts the token itself; null is no window."""
    if width is not None and width < 2:
        raise refusal(name, width, "null or at least 2")
    return 0 if width is None else width - 1


def read_last_global(config: Config, name: str, every: int) -> Values:
    """The window of local layers, between which the last of every n is global.

    Args:
      config: with `sliding_window` and, if any, `layer_types`.
      name: the field of n for a config without `layer_types`.
      every: its value.
    """
    num_layers, kinds = config["num_hidden_layers"], config.get("layer_types")
    if kinds is not None:
        every = find_global_every(kinds, num_layers, is_last=True)
    elif every < 1:
        raise refusal(name, every, "at least 1")
    if every == 1:
        return {}
    width = config["sliding_window"]
    if width is None:
        raise refusal("sliding_window", width, f"at least 2 with {LOCAL} layers")
    return {
        "window": decode_window("sliding_window", width),
        "global_every": every if every <= num_layers else 0,
        "global_last": True,
    }


def write_last_global(spec: ModelSpec) -> Config:
    """The reverse of `read_last_global`."""
    return {
        "layer_types": list_kinds(spec),
        "sliding_window": spec.window + 1 if spec.window else 4096,
    }
