"""LTG-BERT (Samuel et al. 2023), a baseline of BabyLM, and HPLT's models of this form.

Their configs have no `model_type`; they are recognized by the names of their classes.
The formulas are those of ltgoslo/ltg-bert (babylm/train/model.py) and of HPLT's code.
An older code, with `model_type` "bert", has other products with distances; its class
is refused.

Departures: a text that is longer than `max_position_embeddings` keeps its buckets, and
there gets those of 512 positions; an export has no `position_indices`, integers that
the class makes of its config.
"""

from jaxpt.hub.entries import Table, map_layers
from jaxpt.hub.families.ltg_form import (
    IDLE,
    LTG_FORM,
    MLP,
    list_classes,
    list_embeddings,
    list_head,
    list_rows,
    prefix_modules,
)
from jaxpt.hub.family import Family
from jaxpt.hub.fields import Config, fixed
from jaxpt.nn.model_spec import ModelSpec

_MODULES = {
    "attention.in_proj_qk": "attention/query attention/key",
    "attention.in_proj_v": "attention/value",
    "attention.out_proj": "attention/out",
    "attention.post_layer_norm": "attention/out_norm",
    **prefix_modules("mlp", MLP),
}
ROWS = (*list_rows(), fixed(is_decoder=False))
SUMS = "prev_layer_weights"  # which only ELC-BERT has


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    yield from list_embeddings(spec, "embedding")
    layers = "transformer.layers"
    yield from map_layers(spec, spec.num_layers, layers, "encoder", _MODULES)
    yield from list_head(spec, "classifier")


def _complete(config: Config) -> Config:
    """The config, if all its fields are known."""
    return FAMILY.check_known(config, IDLE)


FAMILY = Family(
    "ltgbert",
    {"masked": "LtgbertForMaskedLM"},
    (
        list_classes(
            "HPLT/hplt_bert_base_2_0_eng-Latn--",
            "configuration_ltgbert.LtgbertConfig",
            AutoModel="modeling_ltgbert.LtgbertModel",
            AutoModelForMaskedLM="modeling_ltgbert.LtgbertForMaskedLM",
        ),
        *ROWS,
    ),
    list_tensors,
    constants=LTG_FORM | {"attention_out_norm": "after"},
    complete=_complete,
    older_classes={"LtgBertForMaskedLM": "masked"},
    by_tensors={SUMS: "elc_bert"},
    copies={
        "classifier.nonlinearity.5.weight": "embedding.word_embedding.weight",
    },
    buffers=r"transformer\.layers\.\d+\.attention\.position_indices",
)
