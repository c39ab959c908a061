"""DeBERTa-v2 and v3, and mDeBERTa: disentangled attention.

Published checkpoints of v3 are discriminators (replaced-token detection). Their head
for masked tokens is stored under other names than transformers' class has by default
(its field `legacy`); both are read, and the class's own are written.
"""

from jaxpt.hub.entries import Table, TensorEntry, map_layers, map_norm
from jaxpt.hub.families.bert_form import (
    BERT_FORM,
    LENGTH,
    MODULES,
    list_heads,
    list_rows,
    name_copies,
)
from jaxpt.hub.family import Family
from jaxpt.hub.fields import (
    NO_ROPE,
    Config,
    FieldRow,
    Values,
    activation,
    field,
    fixed,
    refusal,
    require,
)
from jaxpt.hub.task_names import (
    ANSWERS,
    CHOICES,
    QUESTIONS,
    TAGS,
    TEXTS,
    TOKENS,
    pooled,
)
from jaxpt.nn.model_spec import ModelSpec

_NORM = "layer_norm"
_PARTS = {"both": ["p2c", "c2p"], "c2p": ["c2p"], "p2c": ["p2c"]}
_MODULES = {
    f"{name}_proj" if ".self." in name else name: path for name, path in MODULES.items()
}
_POSITIONS = {
    "c2p": {"attention.self.pos_key_proj": "attention/position_key"},
    "p2c": {"attention.self.pos_query_proj": "attention/position_query"},
}


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    embeddings, encoder = "deberta.embeddings", "deberta.encoder"
    yield TensorEntry(f"{embeddings}.word_embeddings.weight", ("embed/tokens",))
    if spec.positions == "learned":
        name = f"{embeddings}.position_embeddings.weight"
        yield TensorEntry(name, ("embed/positions/table",))
    if spec.num_types:
        yield TensorEntry(
            f"{embeddings}.token_type_embeddings.weight", ("embed/types",)
        )
    yield from map_norm(spec, f"{embeddings}.LayerNorm", "embed/norm")
    table = "encoder/disentangled"
    yield TensorEntry(f"{encoder}.rel_embeddings.weight", (f"{table}/table",))
    if spec.disentangled_norm:
        yield from map_norm(spec, f"{encoder}.LayerNorm", f"{table}/norm")
    modules = dict(_MODULES)
    if spec.disentangled_projections:
        for part in _PARTS[spec.disentangled]:
            modules |= _POSITIONS[part]
    layers = f"{encoder}.layer"
    yield from map_layers(spec, spec.num_layers, layers, "encoder", modules)
    yield from list_heads(spec, head, "deberta")


def _read_parts(value: object) -> str:
    """`ModelSpec.disentangled` of `pos_att_type`, a list or a text such as p2c|c2p."""
    parts = value
    if isinstance(value, str):
        parts = [part.strip() for part in value.lower().split("|")]
    for name, each in _PARTS.items():
        if isinstance(parts, list) and sorted(map(str, parts)) == sorted(each):
            return name
    raise refusal("pos_att_type", value, "c2p, p2c or both")


def _read_buckets(config: Config) -> Values:
    """Buckets and the largest distance; without buckets, each distance has a row."""
    most = config["max_relative_positions"]
    name = "max_relative_positions"
    if most < 1:
        most, name = config["max_position_embeddings"], "max_position_embeddings"
    side = config["position_buckets"]
    if side < 1:
        if most < 2 or most % 2:
            raise refusal(name, most, "even and at least 2 without position_buckets")
        side = most
    elif side % 2 or side >= most:
        allowed = f"even and below {most}, the largest distance"
        raise refusal("position_buckets", side, allowed)
    return {"relative_buckets": 2 * side, "relative_max_distance": most}


def _read_attention(config: Config) -> Values:
    if not config["relative_attention"]:
        raise refusal("relative_attention", False, "true")
    norms = [part.strip() for part in config["norm_rel_ebd"].lower().split("|")]
    return {
        "disentangled": _read_parts(config.get("pos_att_type")),
        "disentangled_projections": not config["share_att_key"],
        "disentangled_norm": _NORM in norms,
        "positions": "learned" if config["position_biased_input"] else "none",
        **_read_buckets(config),
    }


def _write_attention(spec: ModelSpec) -> Config:
    most, side = spec.relative_max_distance, spec.relative_buckets // 2
    return {
        "relative_attention": spec.is_disentangled,
        "pos_att_type": _PARTS.get(spec.disentangled, []),
        "share_att_key": not spec.disentangled_projections,
        "norm_rel_ebd": _NORM if spec.disentangled_norm else "none",
        "position_biased_input": spec.positions == "learned",
        "position_buckets": -1 if side == most else side,
        "max_relative_positions": -1 if most == spec.max_len else most,
    }


def _read_widths(config: Config) -> Values:
    """Checks widths that older classes have and a spec has no fields for."""
    width, heads = config["hidden_size"], config["num_attention_heads"]
    require(config, embedding_size=width)
    if config.get("attention_head_size", 0) * heads not in (0, width):
        size = config["attention_head_size"]
        raise refusal("attention_head_size", size, "hidden_size / num_attention_heads")
    return {}


_DEFAULTS = {
    "relative_attention": False,
    "share_att_key": False,
    "norm_rel_ebd": "none",
    "position_biased_input": True,
    "position_buckets": -1,
    "max_relative_positions": -1,
}
_POOLED = pooled("electra_dense", "pooler.dense", "classifier")
FAMILY = Family(
    "deberta-v2",
    {"masked": "DebertaV2ForMaskedLM"},
    (
        *list_rows(128100, 1536, 24, 6144, 24, has_types=False, epsilon=1e-7),
        field("type_vocab_size", "num_types", 0),
        LENGTH,
        activation("hidden_act", "gelu"),
        FieldRow(_read_attention, _write_attention, _DEFAULTS),
        FieldRow(_read_widths, lambda spec: {}),
        fixed(conv_kernel_size=0),  # v2-xlarge and v2-xxlarge have a convolution
    ),
    list_tensors,
    body="deberta.",
    constants=BERT_FORM,
    inert=NO_ROPE + "pooler_dropout pooler_hidden_act pooler_hidden_size cls_dropout "
    "conv_act conv_groups legacy",
    copies=name_copies("deberta", "cls.predictions"),
    renamed={
        "lm_predictions.lm_head.dense.": "cls.predictions.transform.dense.",
        "lm_predictions.lm_head.LayerNorm.": "cls.predictions.transform.LayerNorm.",
        "lm_predictions.lm_head.bias": "cls.predictions.bias",
    },
    # Of older checkpoints, whose classes had positions that nothing read.
    buffers=r"deberta\.embeddings\.position_(ids|embeddings\.weight)",
    unused=r"mask_predictions\..*|pooler\..*",
    freezes_pad=True,
    task_heads={
        TEXTS: _POOLED,
        CHOICES: _POOLED,
        TOKENS: TAGS,
        QUESTIONS: ANSWERS,
    },
)
