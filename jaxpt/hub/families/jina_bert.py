"""Jina Embeddings 2 (Günther et al. 2023): BERT's form with ALiBi and gated MLPs.

transformers loads it with the code of jinaai/jina-bert-implementation, which is not run
here. Its configs have BERT's `model_type`; `position_embedding_type` determines the
family.
"""

from jaxpt.errors import DataError
from jaxpt.hub.entries import Table, TensorEntry, map_layers, map_norm
from jaxpt.hub.families.bert_form import (
    BERT_FORM,
    LENGTH,
    MODULES,
    list_heads,
    list_rows,
    name_copies,
)
from jaxpt.hub.families.ltg_form import list_classes
from jaxpt.hub.family import Family
from jaxpt.hub.fields import (
    ACTIVATION_NAMES,
    Config,
    field,
    read_activation,
    refusal,
)
from jaxpt.nn.model_spec import ModelSpec

_OTHERS = ("intermediate.dense", "output.dense", "output.LayerNorm")
_MODULES = {name: path for name, path in MODULES.items() if name not in _OTHERS}
_MODULES |= {
    "mlp.gated_layers": "mlp/gate mlp/up",
    "mlp.wo": "mlp/down",
    "mlp.layernorm": "mlp_norm",
}
_ACTIVATIONS = {"geglu": "gelu", "reglu": "relu"}  # by `feed_forward_type`
_IDLE = set(
    """
    add_cross_attention auto_map classifier_dropout emb_pooler gradient_checkpointing
    is_decoder is_encoder_decoder model_max_length position_embedding_type
    tie_word_embeddings tokenizer_class
    """.split()
)
_FILE = "modeling_bert.JinaBert"


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    embeddings = "bert.embeddings"
    yield TensorEntry(f"{embeddings}.word_embeddings.weight", ("embed/tokens",))
    if spec.num_types:
        yield TensorEntry(
            f"{embeddings}.token_type_embeddings.weight", ("embed/types",)
        )
    yield from map_norm(spec, f"{embeddings}.LayerNorm", "embed/norm")
    layers, num = "bert.encoder.layer", spec.num_layers
    yield from map_layers(spec, num, layers, "encoder", _MODULES)
    yield from list_heads(spec, head, "bert")


def _complete(config: Config) -> Config:
    """The config, if all its fields are known and its code is that one."""
    code = config.get("auto_map")
    names = map(str, code.values()) if isinstance(code, dict) else ()
    if any("qk-post-norm" in name for name in names):
        raise DataError(
            "config.json: auto_map: names jina-bert-v2-qk-post-norm, whose queries and "
            "keys have LayerNorms: is not supported"
        )
    return FAMILY.check_known(config, _IDLE)


def _read_gate(name: str, config: Config) -> str:
    if name not in _ACTIVATIONS:
        raise refusal("feed_forward_type", name, " or ".join(_ACTIVATIONS))
    return _ACTIVATIONS[name]


def _write_gate(spec: ModelSpec) -> str:
    names = [name for name, act in _ACTIVATIONS.items() if act == spec.activation]
    return names[0] if names else spec.activation


FAMILY = Family(
    "jina_bert",
    {"masked": "JinaBertForMaskedLM"},
    (
        list_classes(
            "jinaai/jina-bert-implementation--",
            "configuration_bert.JinaBertConfig",
            AutoModel=f"{_FILE}Model",
            AutoModelForMaskedLM=f"{_FILE}ForMaskedLM",
        ),
        *list_rows(30522, positions="alibi"),
        LENGTH,
        field(
            "hidden_act",
            "head_activation",
            "gelu",
            lambda value, _: read_activation("hidden_act", value),
            lambda spec: ACTIVATION_NAMES[spec.transform_activation],
        ),
        field("feed_forward_type", "activation", "original", _read_gate, _write_gate),
    ),
    list_tensors,
    body="bert.",
    constants=BERT_FORM | {"positions": "alibi", "gated_mlp": True, "up_bias": "no"},
    complete=_complete,
    restore=lambda config: config | {"model_type": "bert"},
    copies=name_copies("bert", "cls.predictions"),
    buffers=r"bert\.embeddings\.(position_ids|token_type_ids)",
    unused=r"pooler\..*|cls\.seq_relationship\..*",
    freezes_pad=True,
)
