"""The networks of a folder of transformers."""

import pytest

from jaxpt.hub.family import find_family
from jaxpt.hub.source_folder import _find_head

POOLER, OTHER = "pooler.dense.weight", "embeddings.LayerNorm.weight"


@pytest.mark.parametrize(
    "family, name, tensor, purpose",
    [
        ("bert", "BertForMaskedLM", OTHER, "masked"),
        ("bert", "BertModel", POOLER, "pretraining"),
        ("bert", "BertModel", OTHER, "masked"),  # made with add_pooling_layer=False
        ("bert", "BertForTokenClassification", OTHER, "masked"),
        ("roberta", "RobertaModel", POOLER, "masked"),
        ("electra", "ElectraForSequenceClassification", OTHER, "discriminator"),
        ("electra", "ElectraModel", OTHER, "discriminator"),
        ("electra", "ElectraForMaskedLM", OTHER, "masked"),  # a generator alone
    ],
)
def test_the_purpose_of_a_model_without_a_language_models_head(
    family, name, tensor, purpose
):
    head = _find_head(find_family(family), {"architectures": [name]}, {tensor: None})
    assert head == purpose
