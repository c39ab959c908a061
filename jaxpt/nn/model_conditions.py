"""Which settings of a ModelSpec exclude each other."""

from typing import Any

MAX_UNROLLED = 200  # layers that are compiled one by one
# A field, whether its value fits the others, and which values would.
Condition = tuple[str, bool, str]


def list_conditions(spec: Any, table: str) -> list[Condition]:
    """The conditions of all fields that depend on others, in the order of checks.

    Args:
      spec: a ModelSpec, whose module imports this one.
      table: the field that has the width of the token table.
    """
    return [
        *_list_layers(spec),
        *_list_heads(spec),
        *_list_positions(spec, table),
        *_list_disentangled(spec),
    ]


def _list_layers(spec: Any) -> list[Condition]:
    """The conditions of layers and of the head."""
    most = f"at most {MAX_UNROLLED} with model.scan_layers=False"
    is_pre = spec.norm_position == "pre"
    return [
        *(
            (name, spec.scan_layers or getattr(spec, name) <= MAX_UNROLLED, most)
            for name in ("num_layers", "num_decoder_layers")
        ),
        (
            "parallel_residual",
            not spec.parallel_residual or (is_pre and not spec.num_decoder_layers),
            "False with model.norm_position other than pre, or "
            "model.num_decoder_layers",
        ),
        (
            "shared_norm",
            not spec.shared_norm or (spec.parallel_residual and not spec.embed_norm),
            "False with model.parallel_residual=False or model.embed_norm=True",
        ),
        (
            "embed_norm",
            not spec.embed_norm or is_pre,
            "False with model.norm_position other than pre",
        ),
        (
            "first_norm",
            not spec.first_norm or spec.embed_norm,
            "False with model.embed_norm=False",
        ),
        (
            "post_embed_norm",
            spec.post_embed_norm or spec.norm_position == "post",
            "True with model.norm_position other than post",
        ),
        (
            "decoder_tokens",
            not spec.decoder_tokens or spec.num_decoder_layers > 0,
            "False with model.num_decoder_layers=0",
        ),
        (
            "decoder_window",
            spec.decoder_window < 0 or spec.num_decoder_layers > 0,
            "-1 with model.num_decoder_layers=0",
        ),
        (
            "norm_offset",
            not spec.norm_offset or spec.norm_scale,
            "False with model.norm_scale=False",
        ),
        (
            "token_dropout",
            spec.token_dropout < 0 or not spec.num_decoder_layers,
            "-1 with model.num_decoder_layers",
        ),
        (
            "scale_logits",
            not spec.scale_logits or spec.tie_embeddings,
            "False with model.tie_embeddings=False",
        ),
        (
            "transform_size",
            spec.transform_size in (0, spec.embedding_dim)
            or (spec.head_transform and not spec.tie_embeddings),
            f"0 or {spec.embedding_dim} with model.head_transform=False or "
            "model.tie_embeddings=True",
        ),
        (
            "global_every",
            spec.window > 0 or spec.global_every == 0,
            "0 with model.window=0",
        ),
        (
            "scan_layers",
            not spec.scan_layers or not (spec.global_every or spec.unrotated_every),
            "False with model.global_every or model.unrotated_every, whose layers "
            "differ",
        ),
        (
            "scan_layers",
            not spec.scan_layers or not spec.value_embeddings,
            "False with model.value_embeddings=True, whose layers differ",
        ),
        (
            "scan_layers",
            not spec.scan_layers or not spec.depth_sums,
            "False with model.depth_sums=True, whose layers differ",
        ),
        (
            "scan_layers",
            not spec.scan_layers or not spec.layer_sums,
            "False with model.layer_sums=True, whose layers differ",
        ),
        (
            "layer_sums",
            not spec.layer_sums
            or not (
                spec.parallel_residual or spec.num_decoder_layers or spec.depth_sums
            ),
            "False with model.parallel_residual, model.num_decoder_layers or "
            "model.depth_sums",
        ),
        (
            "depth_sums",
            not spec.depth_sums
            or not (spec.parallel_residual or spec.num_decoder_layers),
            "False with model.parallel_residual or model.num_decoder_layers",
        ),
    ]


def _list_heads(spec: Any) -> list[Condition]:
    """The conditions of attention's heads."""
    return [
        (
            "num_heads",
            spec.head_dim > 0 or spec.d_model % spec.num_heads == 0,
            f"a divisor of model.d_model={spec.d_model}",
        ),
        (
            "num_kv_heads",
            spec.num_heads % spec.kv_heads == 0,
            f"a divisor of model.num_heads={spec.num_heads}",
        ),
        (
            "attention_scalar",
            not spec.attention_scalar or spec.scale_attention,
            "0 with model.scale_attention=False",
        ),
    ]


def _list_positions(spec: Any, table: str) -> list[Condition]:
    """The conditions of positions.

    Args:
      table: the field that has the width of the token table.
    """
    is_rotary = spec.positions == "rotary"
    return [
        (
            "head_dim",
            not is_rotary or spec.head_width % 2 == 0 or spec.rotary_fraction < 1,
            "even with rotary positions",
        ),
        (
            "rotary_fraction",
            not is_rotary or (spec.rotary_width > 0 and spec.rotary_width % 2 == 0),
            "above 0 and at most 1, and with rotary positions that times "
            f"{spec.head_width}, a head's width, rounded down, even and at least 2",
        ),
        (
            "rotary_factors",
            not spec.rotary_factors
            or (
                is_rotary
                and len(spec.rotary_factors) == 2 + spec.rotary_width
                and not spec.rotary_scaling
            ),
            f"() or {2 + spec.rotary_width} numbers, and () with positions that "
            "are not rotary or with model.rotary_scaling",
        ),
        (
            table,
            spec.positions != "sinusoidal" or spec.embedding_dim % 2 == 0,
            "even with sinusoidal positions",
        ),
        (
            "relative_bias",
            not spec.relative_bias or spec.positions != "relative",
            "False with model.positions=relative, which are that bias",
        ),
        (
            "relative_bias",
            not spec.relative_bias or spec.positions != "alibi",
            "False with model.positions=alibi, which are another bias",
        ),
        (
            "relative_every_layer",
            not spec.relative_every_layer or spec.has_relative_bias,
            "False with model.positions other than relative and "
            "model.relative_bias=False",
        ),
        (
            table,
            spec.sinusoids != "fairseq" or spec.embedding_dim >= 4,
            "at least 4 with model.sinusoids=fairseq",
        ),
        *_list_buckets(spec),
    ]


def _list_buckets(spec: Any) -> list[Condition]:
    """The conditions of buckets of distances."""
    num, most = spec.relative_buckets, spec.relative_max_distance
    if spec.is_disentangled and num % 2:
        side = num // 2 + 1
        words = f"at least {side // 2 + 2} with model.relative_buckets={num}"
        return [("relative_max_distance", most >= side // 2 + 2, words)]
    is_open, odd = spec.is_disentangled, ", or odd with model.disentangled"
    allowed = "more than half of model.relative_buckets"
    return [
        ("relative_buckets", num % 4 == 0, f"a multiple of 4{odd}"),
        (
            "relative_max_distance",
            most >= num // 2 + (not is_open),
            allowed + ", or equal to it" * is_open,
        ),
    ]


def _list_disentangled(spec: Any) -> list[Condition]:
    """The conditions of disentangled attention."""
    if not spec.is_disentangled:
        parts = "disentangled_projections", "disentangled_norm"
        allowed = "False with model.disentangled=none"
        return [(name, not getattr(spec, name), allowed) for name in parts]
    has_others = spec.positions in ("relative", "rotary", "alibi")
    has_others |= spec.relative_bias
    what = f"with model.disentangled={spec.disentangled}"
    return [
        (
            "disentangled",
            not has_others,
            "none with model.positions=relative, rotary or alibi, or "
            "model.relative_bias",
        ),
        ("qk_norm", spec.qk_norm == "none", f"none {what}"),
        ("attention_softcap", not spec.attention_softcap, f"0 {what}"),
    ]
