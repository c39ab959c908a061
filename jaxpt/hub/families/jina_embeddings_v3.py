"""Jina Embeddings 3, without its adapters: XLM-R's form with rotary positions."""

from jaxpt.hub.entries import QKV, Table, map_head
from jaxpt.hub.families.bert_form import GELU, name_copies
from jaxpt.hub.families.rotary_bert_form import ROTARY_BERT_FORM, list_body, list_rows
from jaxpt.hub.family import Family
from jaxpt.hub.fields import field, fixed
from jaxpt.nn.model_spec import ModelSpec

_MODULES = {
    "mixer.Wqkv": QKV,
    "mixer.out_proj": "attention/out",
    "norm1": "attention_norm",
    "mlp.fc1": "mlp/up",
    "mlp.fc2": "mlp/down",
    "norm2": "mlp_norm",
}


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    yield from list_body(spec, "roberta", "emb_ln", "encoder.layers", _MODULES)
    yield from map_head(spec, "lm_head.dense", "lm_head.layer_norm", "lm_head.bias")


FAMILY = Family(
    "jina_embeddings_v3",
    {"masked": "JinaEmbeddingsV3ForMaskedLM"},
    (
        fixed(lora_adaptations=None),
        GELU,
        *list_rows(
            250002,
            field(
                "type_vocab_size",
                "num_types",
                1,
                encode=lambda spec: max(1, spec.num_types),
            ),
            epsilon=1e-5,
            theta=20000.0,
            width=1024,
            heads=16,
            mlp_width=4096,
            layers=24,
            length=8194,
        ),
    ),
    list_tensors,
    body="roberta.",
    constants=ROTARY_BERT_FORM | {"activation": "gelu"},
    inert="classifier_dropout",
    copies=name_copies("roberta", "lm_head"),
    unused=r"pooler\..*",
    freezes_pad=True,
    ids={"bos_token_id": 0, "eos_token_id": 2},
)
