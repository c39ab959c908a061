"""In which fields two ModelSpecs are different models."""

import dataclasses

from jaxpt.nn.model_spec import DEPTH_EXPONENTS, LIMITED, ModelSpec

# Fields for how a model is computed, not which model it is; no checkpoint has them.
COMPUTING = ("dtype", "attention", "loss_chunk", "scan_layers", "remat")
# Fields that determine the parameters and their shapes.
LAYOUT = (
    "vocab_size",
    "num_layers",
    "num_decoder_layers",
    "d_model",
    "d_ff",
    "max_len",
    "embedding_size",
    "num_types",
    "norm_scale",
    "norm_bias",
    "shared_norm",
    "embed_norm",
    "first_norm",
    "post_embed_norm",
    "gated_mlp",
    "inner_norm",
    "attention_out_norm",
    "attention_gate",
    "depth_sums",
    "layer_sums",
    "qk_norm",
    "value_embeddings",
    "smear",
    "relative_bias",
    "relative_every_layer",
    "relative_buckets",
    "disentangled",
    "disentangled_projections",
    "disentangled_norm",
    "use_bias",
    "qkv_bias",
    "out_bias",
    "up_bias",
    "down_bias",
    "tie_embeddings",
    "decoder_tokens",
    "head_bias",
    "head_transform",
    "transform_bias",
    "transform_size",
)
# Fields for initialization and training; configs of transformers lack most of them.
TRAINING = (
    *("dropout", "embed_dropout", "attention_dropout"),
    *("init", "init_std", "z_loss"),
)


def find_differences(
    spec: ModelSpec, other: ModelSpec, free: tuple[str, ...] = ()
) -> list[tuple[str, object]]:
    """The fields in which another spec is another model, with its values.

    Two specs without differences give the same numbers on the same parameters, except
    for dropout.

    Args:
      free: fields not to compare, in addition to those of computing and training.

    >>> one, two = ModelSpec(), ModelSpec(norm_epsilon=1e-12, dropout=0.1)
    >>> find_differences(one, two)
    [('norm_epsilon', 1e-12)]
    """
    one, two = _normal(spec), _normal(other)
    # A field of only one of them depends on a choice in which they differ.
    return [
        (key, two[key])
        for key in one
        if key in two and one[key] != two[key] and key not in free
    ]


def _normal(spec: ModelSpec) -> dict:
    """A spec's values, in a form that is equal for equivalent specs."""
    values = dataclasses.asdict(spec)
    for key in (*TRAINING, *COMPUTING):
        del values[key]
    # A model whose layers all attend to everything has no window.
    layers = range(max(spec.num_layers, spec.num_decoder_layers))
    if not any(map(spec.is_local, layers)):
        values["window"] = 0
    if all(map(spec.is_local, layers)):
        values["global_every"] = 0
    values["global_every"] = min(values["global_every"], len(layers))
    if all(map(spec.is_rotated, layers)):
        values["unrotated_every"] = 0
    if not spec.rotary_scaling:  # which a local base leaves out
        values["local_rotary_base"] = spec.local_rotary_base or spec.rotary_base
    if spec.decoder_window < 0:
        values["decoder_window"] = values["window"]
    values["attention_scalar"] = spec.attention_divisor
    values["multipliers"] = spec.multipliers or (1.0, 1.0, 1.0)
    values["head_dim"], values["num_kv_heads"] = spec.head_width, spec.kv_heads
    values["embedding_size"] = spec.embedding_dim
    values["transform_size"] = spec.transform_width
    values["qkv_bias"] = "yes" if spec.has_qkv_bias else "no"
    values["out_bias"] = "yes" if spec.has_out_bias else "no"
    values["up_bias"] = "yes" if spec.has_up_bias else "no"
    values["down_bias"] = "yes" if spec.has_down_bias else "no"
    if spec.head_activation == spec.activation:
        values["head_activation"] = "auto"
    values["transform_bias"] = "yes" if spec.has_transform_bias else "no"
    values["relative_directions"] = "both" if spec.is_bidirectional else "past"
    has_buckets = spec.has_relative_bias or spec.is_disentangled
    is_idle = {
        "relative_buckets": not has_buckets,
        "relative_max_distance": not has_buckets,
        "relative_directions": not spec.has_relative_bias,
        "relative_every_layer": not spec.has_relative_bias,
        "rotary_base": spec.positions != "rotary",
        "rotary_scaling": spec.positions != "rotary",
        "rotary_factors": spec.positions != "rotary",
        "rotary_fraction": spec.positions != "rotary",
        "unrotated_every": spec.positions != "rotary",
        "global_every": not values["window"],
        "local_rotary_base": spec.positions != "rotary" or not values["window"],
        "sinusoids": spec.positions != "sinusoidal",
        "decoder_window": not spec.num_decoder_layers,
        "position_offset": spec.positions not in LIMITED,
        "max_len": spec.positions in ("relative", "alibi", "none"),
        "global_last": not values["window"] or values["global_every"] in (0, 1),
        "attention_scalar": not spec.scale_attention,
        "norm_bias": spec.norm == "rmsnorm",
        "transform_bias": not spec.head_transform,
        "transform_size": not spec.head_transform,
        "base_width": spec.parametrization == "standard",
        "base_depth": not DEPTH_EXPONENTS[spec.parametrization],
    }
    return {key: value for key, value in values.items() if not is_idle.get(key)}
