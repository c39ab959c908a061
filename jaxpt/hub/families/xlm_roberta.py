"""XLM-R: RoBERTa's form, with other defaults."""

from dataclasses import replace

from jaxpt.hub.families import roberta

FAMILY = replace(
    roberta.FAMILY,
    name="xlm-roberta",
    heads={"masked": "XLMRobertaForMaskedLM"},
    rows=roberta.list_all_rows(30522),
)
