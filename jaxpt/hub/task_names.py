"""Names of the tensors of downstream tasks' heads, in the classes of transformers."""

from typing import Any, NamedTuple

from jaxpt.hub.entries import TensorEntry

# The ends of the names of the classes.
TEXTS, TOKENS = "SequenceClassification", "TokenClassification"
QUESTIONS, CHOICES = "QuestionAnswering", "MultipleChoice"


class HeadNames(NamedTuple):
    """The tensor names of a head of one family.

    Attributes:
      form: of the head; "" for any.
      layers: names in transformers -> jaxpt's names; "norm" is a norm.
      unbiased: jaxpt's names of those without a bias.
      settings: the fields of config.json with which the class computes this head.
      finds_last: the id of config.json by which the class finds a text's last token,
        without regard to the attention mask: "pad", the last token with another id;
        "eos", the last token with this id; "" for a class that reads no last token.
    """

    form: str
    layers: dict[str, str]
    unbiased: tuple[str, ...] = ()
    settings: tuple[tuple[str, Any], ...] = ()
    finds_last: str = ""

    def list_entries(self) -> list[TensorEntry]:
        """The tensors, whose paths are task/LAYER/NAME."""
        entries = []
        for hf_name, layer in self.layers.items():
            is_norm = layer == "norm"
            path = f"task/{layer}/{'scale' if is_norm else 'kernel'}"
            entries.append(TensorEntry(f"{hf_name}.weight", (path,), not is_norm))
            if layer not in self.unbiased:
                entries.append(TensorEntry(f"{hf_name}.bias", (f"task/{layer}/bias",)))
        return entries


def pooled(form: str, pool: str, out: str, finds_last: str = "") -> tuple[HeadNames]:
    """The heads of a class with one: a dense layer and the outputs."""
    return (HeadNames(form, {pool: "pool", out: "out"}, finds_last=finds_last),)


# One linear layer for tokens, as most families have it.
TAGS = (HeadNames("", {"classifier": "out"}),)
ANSWERS = (HeadNames("", {"qa_outputs": "out"}),)
