"""ESM-2 (Lin et al. 2023) and ESM-1b (Rives et al. 2021): encoders of proteins.

ESM-2 has rotary positions; ESM-1b a table, counted from padding, and normed embeddings.
The part that predicts contacts is not imported, and an export has none.

Departure: frequencies of rotary positions are computed; a checkpoint with others, such
as those rounded to float16, is refused.
"""

import re
from collections.abc import Mapping

import numpy as np

from jaxpt.errors import DataError
from jaxpt.hub.entries import (
    Computed,
    Table,
    TensorEntry,
    map_head,
    map_layers,
    map_norm,
)
from jaxpt.hub.families.bert_form import BERT_FORM, MODULES, name_copies
from jaxpt.hub.family import Family
from jaxpt.hub.fields import Config, FieldRow, Values, check_type, field, fixed, refusal
from jaxpt.hub.files import LazyTensors
from jaxpt.hub.task_names import TAGS, TEXTS, TOKENS, pooled
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.positions import rotary_rates

_MODULES = {
    name: path for name, path in MODULES.items() if not path.endswith("norm")
} | {"attention.LayerNorm": "attention_norm", "LayerNorm": "mlp_norm"}
_RATES = "rotary_embeddings.inv_freq"
_KIND, _LENGTH = "position_embedding_type", "max_position_embeddings"
_PAD, _MASK = "pad_token_id", "mask_token_id"
_KINDS = {"absolute": "learned", "rotary": "rotary"}


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    embeddings, encoder = "esm.embeddings", "esm.encoder"
    yield TensorEntry(f"{embeddings}.word_embeddings.weight", ("embed/tokens",))
    if spec.positions == "learned":
        table = f"{embeddings}.position_embeddings.weight"
        yield TensorEntry(table, ("embed/positions/table",))
    if spec.embed_norm:
        yield from map_norm(spec, f"{embeddings}.layer_norm", "embed/norm")
    layers, num = f"{encoder}.layer", spec.num_layers
    yield from map_layers(spec, num, layers, "encoder", _MODULES)
    yield from map_norm(spec, f"{encoder}.emb_layer_norm_after", "encoder/norm")
    yield from map_head(spec, "lm_head.dense", "lm_head.layer_norm", "lm_head.bias")


def _read_positions(config: Config) -> Values:
    kind, length, pad = config[_KIND], config[_LENGTH], config.get(_PAD)
    if kind not in _KINDS:
        raise refusal(_KIND, kind, " or ".join(map(repr, _KINDS)))
    values = {"positions": _KINDS[kind], "rotary_base": float(config["rope_theta"])}
    if kind == "rotary":
        return values | {"max_len": length}
    if pad is None or pad < 0:
        raise refusal(_PAD, pad, "at least 0 with position_embedding_type='absolute'")
    return values | {"position_offset": pad + 1, "max_len": length - pad - 1}


def _write_positions(spec: ModelSpec) -> Config:
    kinds = {ours: name for name, ours in _KINDS.items()}
    kind, is_table = kinds.get(spec.positions, "rotary"), spec.positions == "learned"
    first = spec.position_offset if is_table else 0
    own = {_KIND: kind, _LENGTH: spec.max_len + first, "rope_theta": spec.rotary_base}
    return own | ({_PAD: first - 1} if is_table else {})


def _read_norm(config: Config) -> Values:
    """Whether the embeddings are normed, too; null is false."""
    value = config.get("emb_layer_norm_before") or False
    check_type("emb_layer_norm_before", value, bool, "true, false or null")
    return {"embed_norm": value, "first_norm": value}


def _read_dropout(config: Config) -> Values:
    if not config["token_dropout"]:
        return {}
    mask = config[_MASK]
    if mask is None or mask < 0:
        raise refusal(_MASK, mask, "an id with token_dropout=true")
    return {"token_dropout": mask}


def _write_dropout(spec: ModelSpec) -> Config:
    mask = spec.token_dropout
    return {"token_dropout": mask >= 0} | ({_MASK: mask} if mask >= 0 else {})


def _read_size(size: int | None, config: Config) -> int:
    if size is None or size < 1:
        raise refusal("vocab_size", size, "at least 1")
    return size


def _drop_rates(
    config: Config, tensors: Mapping[str, np.ndarray]
) -> Mapping[str, np.ndarray]:
    """The tensors without the frequencies of rotary positions, which must be ours."""
    spec = FAMILY.read(config)
    rates, names = _find_rates(spec), [n for n in tensors if n.endswith(_RATES)]
    for name in names if spec.positions == "rotary" else ():
        value = np.asarray(tensors[name], np.float32)
        if value.shape != rates.shape or not np.allclose(value, rates, 1e-5, 0):
            raise DataError(
                f"tensor {name}: must be the {len(rates)} frequencies of rope_theta="
                f"{config.get('rope_theta', 10000.0)} in float32; rounded or other "
                "ones are not supported"
            )
    rest = {name: name for name in tensors if name not in names}
    return LazyTensors(rest, tensors.__getitem__)


def _find_rates(spec: ModelSpec) -> np.ndarray:
    return rotary_rates(spec.head_width, spec.rotary_base)


def _list_computed(spec: ModelSpec) -> dict[str, Computed]:
    if spec.positions != "rotary":
        return {}
    shape = (spec.head_width // 2,)
    return {f"esm.{_RATES}": Computed(shape, lambda: _find_rates(spec))}


FAMILY = Family(
    "esm",
    {"masked": "EsmForMaskedLM"},
    (
        fixed(
            is_decoder=False,
            is_encoder_decoder=False,
            add_cross_attention=False,
            is_folding_model=False,  # ESMFold
            head_dim=None,
        ),
        fixed(tie_word_embeddings=True, is_written=True),
        field("vocab_size", "vocab_size", None, _read_size),
        field("num_hidden_layers", "num_layers", 12),
        field("hidden_size", "d_model", 768),
        field("num_attention_heads", "num_heads", 12),
        field("intermediate_size", "d_ff", 3072),
        FieldRow(
            _read_positions,
            _write_positions,
            {_KIND: "absolute", _LENGTH: 1026, "rope_theta": 10000.0, _PAD: None},
        ),
        FieldRow(
            _read_norm, lambda spec: {"emb_layer_norm_before": spec.norms_embeddings}
        ),
        FieldRow(_read_dropout, _write_dropout, {"token_dropout": False, _MASK: None}),
        field("layer_norm_eps", "norm_epsilon", 1e-12),
        field("hidden_dropout_prob", "dropout", 0.1),  # not of the embeddings
        field("attention_probs_dropout_prob", "attention_dropout", 0.1),
        field("initializer_range", "init_std", 0.02),
    ),
    list_tensors,
    body="esm.",
    constants=BERT_FORM | {"norm_position": "pre", "activation": "gelu"},
    inert="rope_scaling partial_rotary_factor esmfold_config vocab_list",
    copies=name_copies("esm", "lm_head"),
    # As transformers 5.23 writes it.
    renamed={f"esm.encoder.layer.*.attention.self.{_RATES}": f"esm.{_RATES}"},
    fold=_drop_rates,
    # Of checkpoints with rotary positions, also a table that nothing read.
    buffers=r"esm\.embeddings\.position_(ids|embeddings\.weight)|"
    rf"esm\.encoder\.layer\.\d+\.attention\.self\.{re.escape(_RATES)}",
    unused=r"pooler\..*|contact_head\..*",
    computed=_list_computed,
    counts_from_pad=True,
    freezes_pad=True,
    task_heads={
        TEXTS: pooled("roberta", "classifier.dense", "classifier.out_proj"),
        TOKENS: TAGS,
    },
)
