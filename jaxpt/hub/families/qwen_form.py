"""What Qwen 2 and 3 share: Llama's form, and windows in some of the last layers."""

from typing import Any

from jaxpt.hub.families.llama_form import list_rows
from jaxpt.hub.fields import Config, FieldRow, Values, fixed, refusal
from jaxpt.hub.windows import LOCAL, decode_window, find_global_every, list_kinds
from jaxpt.nn.model_spec import ModelSpec


def _read_windows(config: Config) -> Values:
    """The window of those layers that have one; by default none has."""
    num_layers, kinds = config["num_hidden_layers"], config.get("layer_types")
    width = config["sliding_window"] if config["use_sliding_window"] else None
    if kinds is not None:
        every = find_global_every(kinds, num_layers)
    else:
        num_full = num_layers if width is None else max(0, config["max_window_layers"])
        if 1 < num_full < num_layers:
            raise refusal(
                "max_window_layers", num_full, f"0, 1 or at least {num_layers}, all"
            )
        # With one full layer, it is the first of all num_layers.
        every = 1 if num_full >= num_layers else num_full * num_layers
    if every == 1:
        return {}
    if width is None:
        raise refusal("sliding_window", width, f"at least 2 with {LOCAL} layers")
    window = decode_window("sliding_window", width)
    return {"window": window, "global_every": every}


def _write_windows(spec: ModelSpec) -> Config:
    kinds = list_kinds(spec)
    # Versions before layer_types count the full layers before all others.
    num_full = kinds.index(LOCAL) if LOCAL in kinds else len(kinds)
    return {
        "layer_types": kinds,
        "max_window_layers": num_full,
        "use_sliding_window": LOCAL in kinds,
        "sliding_window": spec.window + 1 if LOCAL in kinds else None,
    }


def list_qwen_rows(**defaults: Any) -> tuple[FieldRow, ...]:
    """The rows that both share.

    Args:
      defaults: of the class, where they differ from Qwen 2's.
    """
    return (
        fixed(is_causal=True, attention_chunk_size=None),
        *list_rows(
            vocab_size=151936,
            num_key_value_heads=32,
            intermediate_size=22016,
            max_position_embeddings=32768,
            **defaults,
        ),
        FieldRow(
            _read_windows,
            _write_windows,
            {
                "use_sliding_window": False,
                "sliding_window": 4096,
                "max_window_layers": 28,
            },
            ("sliding_window",),
        ),
    )
