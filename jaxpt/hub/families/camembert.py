"""CamemBERT: RoBERTa's form, with other defaults."""

from dataclasses import replace

from jaxpt.hub.families import roberta

FAMILY = replace(
    roberta.FAMILY,
    name="camembert",
    heads={"masked": "CamembertForMaskedLM"},
    rows=roberta.list_all_rows(30522),
)
