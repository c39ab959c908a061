"""Writes the model card of an export: README.md with metadata in YAML at its top.

    ---
    base_model: google-bert/bert-base-uncased    if the run was imported from the Hub
    language: en                                 if the user names one, as the licence
    library_name: transformers                   or jax
    license: apache-2.0
    tags: [jaxpt, mlm]
    model-index: ...                             the metrics, as the Hub reads them
    ---

The fields are those of https://huggingface.co/docs/hub/model-cards.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from jaxpt.hub.origin import BaseModel

# The Hub's names of tasks, by the purpose of a network (a key of `Family.heads`).
TASKS = {
    "causal": "text-generation",
    "seq2seq": "text2text-generation",
    "masked": "fill-mask",
    "pretraining": "fill-mask",
    "generator": "fill-mask",
    "discriminator": "token-classification",  # original or replaced
}


@dataclasses.dataclass(frozen=True)
class Card:
    """The content of a model card.

    Attributes:
      title: the heading.
      name: of the model, for the Hub's list of results.
      task: one of the Hub's names of tasks.
      data: the name of the text or the examples.
      facts: lines about how the model was made.
      metrics: by name; {} if nothing was measured.
      split: what they were measured on, "dev".
      base: the model that the run was imported from.
      tags: in addition to "jaxpt".
      license: as the Hub names it, "apache-2.0"; "" states none.
      language: ISO 639 codes, ("en",).
      comparison: lines about the comparison that the model is from; () if it is alone.
      library: that loads it.
      usage: how it is loaded, in Markdown.
    """

    title: str
    name: str
    task: str
    data: str
    facts: Sequence[str]
    metrics: Mapping[str, float]
    split: str
    base: BaseModel | None = None
    tags: Sequence[str] = ()
    license: str = ""
    language: Sequence[str] = ()
    comparison: Sequence[str] = ()
    library: str = "transformers"
    usage: str = ""


def format_card(card: Card) -> str:
    """The text of README.md."""
    facts = list(card.facts)
    if card.base:
        revision = f"@{card.base.revision}" if card.base.revision else ""
        where = f"{card.base.repository}{revision}, commit {card.base.commit}"
        facts.insert(0, f"Base model: {where}")
    lines = ["---", _format_metadata(card), "---", "", f"# {card.title}", ""]
    lines += [f"- {fact}" for fact in facts]
    if card.metrics:
        lines += ["", f"| metric ({card.split}) | value |", "|---|---|"]
        lines += [f"| {name} | {value:.4f} |" for name, value in card.metrics.items()]
    if card.usage:
        lines += ["", "## Usage", "", card.usage]
    if card.comparison:
        lines += ["", "## Comparison", "", *(f"- {line}" for line in card.comparison)]
    return "\n".join(lines) + "\n"


def _format_metadata(card: Card) -> str:
    from huggingface_hub import EvalResult, ModelCardData

    results = [
        EvalResult(
            task_type=card.task,
            dataset_type=card.data,
            dataset_name=f"{card.data} ({card.split})",
            metric_type=name,
            metric_value=round(float(value), 6),
        )
        for name, value in card.metrics.items()
        if math.isfinite(value)  # YAML's .nan is not JSON, which the Hub converts to
    ]
    data = ModelCardData(
        base_model=card.base.repository if card.base else None,
        language=list(card.language) or None,
        library_name=card.library,
        license=card.license or None,
        tags=["jaxpt", *card.tags],
        model_name=card.name if results else None,
        eval_results=results or None,
    )
    return data.to_yaml().strip()
