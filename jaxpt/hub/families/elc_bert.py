"""ELC-BERT (Charpentier and Samuel 2023): LTG-BERT with weighted sums of layers.

Config and class are LTG-BERT's: a checkpoint is recognized by its weights of the sums,
`prev_layer_weights`. A layer reads x, a mean of the embeddings and of the outputs of
all layers before it, weighted by a softmax:

    y = attention(x);  output = y + MLP(y)

The formulas are those of ltgoslo/elc-bert (models/model_elc_bert_base.py) and of the
code of lgcharpe/ELC_BERT_small_baby_10M, as AlexisMatzopoulos/elc-bert-isiXhosa has it
(finetune/ner/modeling_ltgbert.py). Of the other models of ltgoslo/elc-bert,
"weighted_output" has one tensor more and is refused; "zero" and "normalized" compute
something else with tensors of the same names, so that a checkpoint of theirs would be
misread.

Departures: as LTG-BERT (`jaxpt.hub.families.ltgbert`).
"""

from dataclasses import replace

from jaxpt.hub.entries import Table, TensorEntry
from jaxpt.hub.families import ltgbert
from jaxpt.hub.families.ltg_form import list_classes
from jaxpt.hub.fields import Config
from jaxpt.nn.model_spec import ModelSpec

_CODE = "ltgbert.LtgBert"


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    yield from ltgbert.list_tensors(spec, head)
    for i in range(spec.num_layers):
        name = f"transformer.layers.{i}.{ltgbert.SUMS}"
        yield TensorEntry(name, (f"encoder/layer_{i}/input_sum/weights",))


def _restore(config: Config) -> Config:
    """The config of an export, whose class is LTG-BERT's."""
    return config | {"model_type": ltgbert.FAMILY.name}


FAMILY = replace(
    ltgbert.FAMILY,
    name="elc_bert",
    heads={"masked": "LtgBertForMaskedLM"},
    rows=(
        list_classes(
            "lgcharpe/ELC_BERT_baby_100M--",
            f"configuration_{_CODE}Config",
            AutoModelForMaskedLM=f"modeling_{_CODE}ForMaskedLM",
        ),
        *ltgbert.ROWS,
    ),
    tensors=list_tensors,
    constants=ltgbert.FAMILY.constants | {"layer_sums": True},
    restore=_restore,
    older_classes={},
    by_tensors={},
)
