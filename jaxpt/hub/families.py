"""Families of transformers: their configs as ModelSpecs, and both ways round.

A family is a few plain functions. `read` gives a spec for a `config.json` and `write` a
config for a spec; whether a spec is of a family is seen by writing and reading it.
"""

import dataclasses
from collections.abc import Callable

from jaxpt.errors import UserError
from jaxpt.hub import decoders, encoders
from jaxpt.nn.spec import ModelSpec, find_differences


@dataclasses.dataclass(frozen=True)
class Family:
    """One `model_type` of transformers.

    Attributes:
      heads: what a model is for -> its class: "causal", "masked", "pretraining" (with
        BERT's sentence head), "seq2seq", "generator", "discriminator".
      read: (config.json) -> ModelSpec.
      write: (ModelSpec) -> config.json but for the special ids.
      unsaid: fields of a spec that the config does not tell, but the tensors do.
    """

    name: str
    heads: dict[str, str]
    read: Callable[[dict], ModelSpec]
    write: Callable[[ModelSpec], dict]
    unsaid: tuple[str, ...] = ()


def read_config(config: dict) -> tuple[Family, ModelSpec]:
    """The family and the spec of a `config.json`.

    Raises:
      UserError: a family or a setting that is not supported.
    """
    kind = config.get("model_type")
    if kind not in FAMILIES:
        raise UserError(
            f"config.json: model_type={kind!r}: must be one of {', '.join(FAMILIES)}"
        )
    family = FAMILIES[kind]
    try:
        return family, family.read(config)
    except KeyError as error:
        raise UserError(f"config.json: lacks {error}, which {kind} needs") from error
    except TypeError as error:
        raise UserError(f"config.json: a value of another type: {error}") from error


def write_config(spec: ModelSpec, head: str, name: str = "") -> tuple[Family, dict]:
    """The family a spec is of, and its `config.json`.

    Args:
      head: what the model is for, a key of `Family.heads`.
      name: the family to take; "" is the first that the spec is of.

    Raises:
      UserError: the spec is of no family, or not of this one.
    """
    fitting = {n: f for n, f in FAMILIES.items() if head in f.heads and name in ("", n)}
    if not fitting:
        raise UserError(
            f"--family={name}: must be one that has a {head} model: "
            + ", ".join(n for n, f in FAMILIES.items() if head in f.heads)
        )
    reasons = []
    for family in fitting.values():
        config = family.write(spec)
        config |= {"model_type": family.name, "architectures": [family.heads[head]]}
        told = {name: getattr(spec, name) for name in family.unsaid}
        again = dataclasses.replace(family.read(config), **told)
        apart = find_differences(spec, again)
        if not apart:
            return family, config
        reasons.append((len(apart), family.name, apart))
    _, nearest, apart = min(reasons)
    told = ", ".join(f"model.{key}={getattr(spec, key)} ({v})" for key, v in apart)
    raise UserError(
        f"the model is of no family of transformers; nearest is {nearest}, where it "
        f"must be otherwise: {told}"
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
        ),
        Family(
            "roberta",
            {"masked": "RobertaForMaskedLM"},
            encoders.read_roberta,
            encoders.write_roberta,
        ),
        Family(
            "distilbert",
            {"masked": "DistilBertForMaskedLM"},
            encoders.read_distilbert,
            encoders.write_distilbert,
        ),
        Family(
            "electra",
            {
                "generator": "ElectraForMaskedLM",
                "discriminator": "ElectraForPreTraining",
            },
            encoders.read_electra,
            encoders.write_electra,
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
        ),
        Family(
            "llama",
            {"causal": "LlamaForCausalLM"},
            decoders.read_llama,
            decoders.write_llama,
        ),
        Family(
            "modernbert",
            {"masked": "ModernBertForMaskedLM"},
            encoders.read_modernbert,
            encoders.write_modernbert,
        ),
    )
}
