"""Chooses the head of a downstream task, and the class of transformers that has it.

`task.head=auto` chooses the head by the network, unless the imported checkpoint has
one:

    biLM                              elmo
    encoder and decoder               bart if the decoder generates whole texts, mean of
                                      the encoder's states if it fills sentinels
    causal decoder                    gpt
    encoder, rows that start with     electra for ELECTRA's discriminator, distilbert
    a special token                   for a student, bert if pretraining reads pairs or
                                      the model has segment types, else roberta
    ModernBERT                        modernbert, or modernbert_mean without this token
    all others                        mean

That is the head of the family's paper. `jaxpt finetune` replaces a head that
transformers' class for the network does not have by the class's own, if that pools the
same states: electra by electra_dense, gpt by gpt2, roberta by distilbert. It does not
in a comparison, nor for a frozen network, whose probe is one linear layer.
"""

from typing import Any

from jaxpt.errors import ConfigError, UserError
from jaxpt.hub.configs import write_config
from jaxpt.hub.task_heads import computes
from jaxpt.hub.task_names import TEXTS
from jaxpt.nn.networks.bilm import BiLm
from jaxpt.nn.networks.electra import ElectraNetwork
from jaxpt.nn.networks.network import Network
from jaxpt.nn.networks.one_stack import (
    CausalLM,
    CausalMaskedLM,
    MaskedLM,
    PairMaskedLM,
)
from jaxpt.nn.networks.student_teacher import StudentTeacher
from jaxpt.nn.parametrization import standardise
from jaxpt.nn.task_heads import FORMS
from jaxpt.runs.task import Task


def choose_form(task: Task, head: str, network: Network, class_suffix: str = "") -> str:
    """The form of the head: `head`, or for "auto" that of the network's family.

    Args:
      network: the part of the task's network that is fine-tuned.
      class_suffix: of transformers' class, if "auto" shall prefer its head.
    """
    form = _find_form(task) if head == "auto" else head
    if head == "auto" and class_suffix:
        form = _prefer_export(task, network, form, class_suffix)
    properties = FORMS[form]
    kind = type(task.model)
    if properties.reads_decoder and not kind.HAS_DECODER:
        raise ConfigError(
            f"task.head={head}: reads a decoder, and {task.plan.objective_name} runs "
            f"have none"
        )
    if kind.HAS_DECODER and properties.mixes_layers:
        raise ConfigError(
            f"task.head={head}: must be bart or mean for an encoder and a decoder"
        )
    return form


def _find_form(task: Task) -> str:
    model = task.model
    if isinstance(model, BiLm):
        return "elmo"
    if type(model).HAS_DECODER:
        return "mean" if task.spec.needs.num_sentinels else "bart"
    if isinstance(model, CausalLM) and not isinstance(model, CausalMaskedLM):
        return "gpt"
    if isinstance(model, StudentTeacher) and isinstance(model.alone, CausalLM):
        return "gpt"
    if "causal" in type(model).HEADS:
        return "mean"
    is_framed = bool(task.text_form.before)
    if isinstance(model, MaskedLM) and _keeps_lm_head(task):
        return "modernbert" if is_framed else "modernbert_mean"
    if not is_framed:
        return "mean"
    if isinstance(model, ElectraNetwork):
        return "electra"
    if isinstance(model, StudentTeacher):
        return "distilbert"
    has_types = task.model_spec.num_types > 1
    return "bert" if has_types or isinstance(model, PairMaskedLM) else "roberta"


def _keeps_lm_head(task: Task) -> bool:
    """Whether the class for texts has what is before the vocabulary (ModernBERT)."""
    try:
        family, _ = write_config(standardise(task.model_spec), "masked")
    except UserError:
        return False
    heads = family.task_heads.get(TEXTS, ())
    return any(FORMS[each.form].has_lm_head for each in heads)


def find_purpose(task: Task, network: Network, family: str = "") -> str:
    """The purpose of a network, which selects the table of parameter names.

    ELECTRA's discriminator is exported as a masked language model to other families.

    Args:
      task: of pretraining.
      network: the part that is fine-tuned.
      family: a model_type of transformers; "" is the first that fits.
    """
    model, is_own = task.model, family in ("", "electra")
    if isinstance(model, ElectraNetwork) and model.answers == ("score",) and is_own:
        return "discriminator"
    heads = type(network).HEADS
    if not heads:
        raise ConfigError(
            f"transformers has no model for a {task.plan.objective_name} run"
        )
    return heads[0]


def _prefer_export(task: Task, network: Any, form: str, class_suffix: str) -> str:
    """The form, or the one of transformers' class that pools the same states."""
    try:
        purpose = find_purpose(task, network)
        spec = standardise(network.spec)
        family, _ = write_config(spec, purpose, vocab=task.vocab)
    except UserError:
        return form
    known = family.task_heads.get(class_suffix, ())
    if any(computes(names.form, form) for names in known):
        return form
    own = FORMS[form]
    for names in known:
        other = FORMS[names.form] if names.form else own
        if (other.pooling, other.reads_decoder) == (own.pooling, own.reads_decoder):
            return names.form or form
    return form
