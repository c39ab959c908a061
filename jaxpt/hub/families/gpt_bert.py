"""GPT-BERT (Charpentier and Samuel 2024), a baseline of BabyLM.

One network predicts the next token causally, and a masked token at the position before
it. Its two classes differ in the attention mask only, so that both are read as a causal
model, and one is exported as such. `clm_mlm` trains it in both ways and fills masks; no
objective that reads a masked token at its own position (`mlm`) fits it.

The formulas are those of ltgoslo/gpt-bert (pretraining/model_extra.py). Tensors have
other names in ltg/gpt-bert-babylm-*, whose class for causal models is recognized.

Departure: as LTG-BERT (`jaxpt.hub.families.ltgbert`).
"""

from jaxpt.hub.entries import Table, TensorEntry, map_layers
from jaxpt.hub.families.ltg_form import (
    IDLE,
    LTG_FORM,
    MLP,
    list_classes,
    list_embeddings,
    list_head,
    list_rows,
)
from jaxpt.hub.family import Family
from jaxpt.hub.fields import Config, FieldRow, same
from jaxpt.nn.model_spec import ModelSpec

_ATTENTION = {
    "in_proj_qk": "attention/query attention/key",
    "in_proj_vg": "attention/value attention/out_gate",
    "out_proj": "attention/out",
}
_OTHERS = "GPTBERTForMaskedLM", "LtgbertForMaskedLM", "LtgbertForCausalLM"
_FILE = "modeling_gpt_bert.GPTBERT"


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    yield from list_embeddings(spec, "model.embedding")
    for layers, modules in (("attention", _ATTENTION), ("mlp", MLP)):
        name = f"model.{layers}_layers"
        yield from map_layers(spec, spec.num_layers, name, "encoder", modules)
    for i in range(spec.num_layers):
        for j, branch in enumerate(("attention", "mlp")):
            path = f"encoder/layer_{i}/{branch}_sum/weights"
            yield TensorEntry(f"model.dwa_modules.alphas.{2 * i + j}", (path,))
    yield from list_head(spec, "lm_head")


def _complete(config: Config) -> Config:
    """The config, if all its fields are known, with both names of `num_layers`."""
    layers = config.get("num_layers", config.get("num_hidden_layers", 12))
    names = {"num_layers": layers, "num_hidden_layers": layers}
    return names | FAMILY.check_known(config, IDLE)


FAMILY = Family(
    "gpt_bert",
    {"causal": "GPTBERTForCausalLM"},
    (
        list_classes(
            "BabyLM-community/babylm-baseline-100m-gpt-bert-mixed--",
            "configuration_gpt_bert.ModelConfig",
            AutoModel=_FILE,
            AutoModelForCausalLM=f"{_FILE}ForCausalLM",
            AutoModelForMaskedLM=f"{_FILE}ForMaskedLM",
        ),
        *list_rows(mlp_width=2560),
        same("num_layers", "num_hidden_layers", 12, "num_layers"),
        FieldRow(lambda config: {}, lambda spec: {}, {"is_decoder": False}),
    ),
    list_tensors,
    constants=LTG_FORM
    | {"attention_out_norm": "before", "attention_gate": True, "depth_sums": True},
    inert="max_sequence_length",
    complete=_complete,
    older_classes=dict.fromkeys(_OTHERS, "causal"),
    copies={"lm_head.nonlinearity.5.weight": "model.embedding.word_embedding.weight"},
    renamed={
        "embedding.": "model.embedding.",
        "transformer.": "model.",
        "classifier.": "lm_head.",
    },
    mask_advice="; GPTBERTForMaskedLM, with the same tensors, lets all tokens attend "
    "to all, or by an attention_mask of shape [batch, queries, keys] with 1 where seen",
    buffers=r"model\.attention_layers\.\d+\.position_indices",
)
