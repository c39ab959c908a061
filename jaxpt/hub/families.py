"""Families of transformers: converts their configs to ModelSpecs and back.

A family is a few plain functions: `read` converts a `config.json` to a spec, `write` a
spec to a config. A spec fits a family if writing and reading it gives it back.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from jaxpt.errors import UserError
from jaxpt.hub import decoders, encoders
from jaxpt.nn.model_spec import ModelSpec, find_differences
from jaxpt.text.tokens.vocab import Vocab


@dataclasses.dataclass(frozen=True)
class Family:
    """One `model_type` of transformers.

    Attributes:
      heads: a model's purpose -> its class: "causal", "masked", "pretraining" (with
        BERT's sentence head), "seq2seq", "generator", "discriminator".
      read: (config.json) -> ModelSpec.
      write: (ModelSpec) -> config.json without the special ids.
      unsaid: fields of a spec that only the tensors determine, not the config.
      counts_from_pad: whether its code counts positions from `pad_token_id` on, over
        all tokens with another id. Positions are then right only if that is the real
        padding id; with another id, some token of a text would have no position.
      freezes_pad: whether PyTorch gives the embedding of `pad_token_id` no gradient
        (`nn.Embedding(padding_idx=...)`).
    """

    name: str
    heads: dict[str, str]
    read: Callable[[dict], ModelSpec]
    write: Callable[[ModelSpec], dict]
    unsaid: tuple[str, ...] = ()
    counts_from_pad: bool = False
    freezes_pad: bool = False

    def lay_out(self, spec: ModelSpec, pad: int | None) -> ModelSpec:
        """The spec with its positions at those rows of the table that the code reads.

        Args:
          pad: the padding id of the tokenizer; None if it has none, which `check_pad`
            refuses.
        """
        if not self.counts_from_pad or pad is None:
            return spec
        return dataclasses.replace(spec, position_offset=pad + 1)

    def check_pad(self, spec: ModelSpec, pad: int | None) -> None:
        """Raises UserError unless the spec's positions fit the tokenizer's padding."""
        if self.counts_from_pad and pad is None:
            raise UserError(
                f"the tokenizer has no [PAD], and a {self.name} counts places from its "
                "id: tokenizer.specials must list 'pad' before a run is trained"
            )
        if self.counts_from_pad and pad != spec.position_offset - 1:
            raise UserError(
                f"config.json: pad_token_id={spec.position_offset - 1}: must be {pad}, "
                f"the tokenizer's [PAD]: a {self.name} counts places from it"
            )


def read_config(config: dict) -> tuple[Family, ModelSpec]:
    """The family and the spec of a `config.json`.

    Raises:
      UserError: the family or a setting is not supported.
    """
    kind = config.get("model_type")
    if kind not in FAMILIES:
        raise UserError(
            f"config.json: model_type={kind!r}: must be one of {', '.join(FAMILIES)}"
        )
    family = FAMILIES[kind]
    return family, family.read(config)


def write_config(
    spec: ModelSpec, head: str, name: str = "", vocab: Vocab | None = None
) -> tuple[Family, dict]:
    """The family of a spec, and its `config.json`.

    Args:
      head: the model's purpose, a key of `Family.heads`.
      name: the family; "" is the first that the spec fits.
      vocab: the vocabulary for whose padding id the spec is first adapted
        (`Family.lay_out`); None for a spec that is adapted already.

    Raises:
      UserError: the spec fits no family, or not this one, or the tokenizer lacks
        something that the family needs.
    """
    fitting = {n: f for n, f in FAMILIES.items() if head in f.heads and name in ("", n)}
    if not fitting:
        raise UserError(
            f"--family={name}: must be one that has a {head} model: "
            + ", ".join(n for n, f in FAMILIES.items() if head in f.heads)
        )
    reasons: list[tuple[int, str, list]] = []
    refused: Any = None  # what the last one says
    for family in fitting.values():
        laid = spec if vocab is None else family.lay_out(spec, vocab.pad)
        config = family.write(laid)
        config |= {"model_type": family.name, "architectures": [family.heads[head]]}
        told = {name: getattr(laid, name) for name in family.unsaid}
        try:
            again = dataclasses.replace(family.read(config), **told)
        except UserError as error:
            refused = error
            continue
        apart = find_differences(laid, again)
        if not apart:
            if vocab is not None:
                family.check_pad(laid, vocab.pad)
            return family, config
        reasons.append((len(apart), family.name, apart))
    if not reasons:
        raise UserError(f"the model is of no family of transformers: {refused}")
    _, nearest, apart = min(reasons)
    named = ", ".join(f"model.{key}={getattr(spec, key)} ({v})" for key, v in apart)
    raise UserError(
        f"the model is of no family of transformers; nearest is {nearest}, where it "
        f"must be otherwise: {named}"
    )


FAMILIES = {
    family.name: family
    for family in (
        Family(
            "gpt2",
            {"causal": "GPT2LMHeadModel"},
            decoders.read_gpt2,
            decoders.write_gpt2,
        ),
        Family(
            "bert",
            {"masked": "BertForMaskedLM", "pretraining": "BertForPreTraining"},
            encoders.read_bert,
            encoders.write_bert,
            freezes_pad=True,
        ),
        Family(
            "roberta",
            {"masked": "RobertaForMaskedLM"},
            encoders.read_roberta,
            encoders.write_roberta,
            counts_from_pad=True,
            freezes_pad=True,
        ),
        Family(
            "distilbert",
            {"masked": "DistilBertForMaskedLM"},
            encoders.read_distilbert,
            encoders.write_distilbert,
            freezes_pad=True,
        ),
        Family(
            "electra",
            {
                "generator": "ElectraForMaskedLM",
                "discriminator": "ElectraForPreTraining",
            },
            encoders.read_electra,
            encoders.write_electra,
            freezes_pad=True,
        ),
        Family(
            "t5",
            {"seq2seq": "T5ForConditionalGeneration"},
            decoders.read_t5,
            decoders.write_t5,
        ),
        Family(
            "bart",
            {"seq2seq": "BartForConditionalGeneration"},
            decoders.read_bart,
            decoders.write_bart,
            unsaid=("head_bias",),
            freezes_pad=True,
        ),
        Family(
            "llama",
            {"causal": "LlamaForCausalLM"},
            decoders.read_llama,
            decoders.write_llama,
            freezes_pad=True,
        ),
        Family(
            "mistral",
            {"causal": "MistralForCausalLM"},
            decoders.read_mistral,
            decoders.write_mistral,
            freezes_pad=True,
        ),
        Family(
            "modernbert",
            {"masked": "ModernBertForMaskedLM"},
            encoders.read_modernbert,
            encoders.write_modernbert,
            freezes_pad=True,
        ),
    )
}
