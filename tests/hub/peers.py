"""Models of transformers with random weights, saved and run. Needs torch."""

import json
import re

import numpy as np
import torch
import transformers
from hub.cases import CASES, ROTARY_BERTS, V, find_real
from safetensors.numpy import load_file
from transformers.core_model_loading import revert_weight_conversion

from jaxpt.hub.configs import read_config
from jaxpt.hub.convert import modernise
from jaxpt.hub.family import find_family


def make_theirs(name):
    """A model of transformers; no weight has its initial value."""
    kind, head, settings = CASES[name]
    config = transformers.AutoConfig.for_model(kind, **settings)
    for key in ("dropout", "attention_dropout", "resid_pdrop", "embd_pdrop"):
        if hasattr(config, key):
            setattr(config, key, 0.0)
    family, _ = read_config(config.to_dict() | {"model_type": kind})
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = getattr(transformers, family.heads[head])(config).eval()
    # A new model is tied; one that is loaded from a checkpoint may not be.
    if name == "t5-1.1" or (kind in ("mt5", "umt5") and config.num_heads != 3):
        table = config.initializer_factor * torch.randn(V, settings["d_model"])
        model.lm_head.weight = torch.nn.Parameter(table)
        model.config.tie_word_embeddings = False
    with torch.no_grad():
        for parameter in filter(lambda p: p.requires_grad, model.parameters()):
            parameter += 0.2 * torch.randn_like(parameter)
        if kind == "marian":  # which has a trained one
            model.final_logits_bias += torch.randn_like(model.final_logits_bias)
    return model


def correct(model, config):
    """A loaded model that computes what its config says.

    transformers 5 takes every UMT5 for a tied one, and scales what its head reads.
    """
    if config["model_type"] == "umt5":
        model.config.tie_word_embeddings = config["tie_word_embeddings"]
    return model


def save(model, folder):
    """The config and the tensors that transformers writes, by their present names."""
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    renamed = find_family(config["model_type"]).renamed
    return config, dict(modernise(tensors, renamed))


def is_unused(kind, name):
    """Whether a parameter of a class is one that its language model does not use."""
    family = find_family(kind)
    return bool(re.fullmatch(family.unused, name.removeprefix(family.body)))


def run_theirs(model, batch, name):
    """Their last hidden states, logits, loss, and gradients by name of the tensor."""
    kind, head, _ = CASES[name]
    real = find_real(batch)
    inputs = {
        "input_ids": torch.tensor(batch["input_ids"]),
        "attention_mask": torch.tensor(real.astype(np.int64)),
        "labels": torch.tensor(batch["labels"]),
        "output_hidden_states": True,
    }
    if "types" in batch:
        inputs["token_type_ids"] = torch.tensor(batch["types"])
    counts = find_family(kind).counts_from_pad  # the class counts positions itself
    if "position_ids" in batch and head != "seq2seq" and not counts:
        inputs["position_ids"] = torch.tensor(batch["position_ids"])
    if head == "seq2seq":
        inputs["decoder_input_ids"] = torch.tensor(batch["decoder_input_ids"])
    if head == "discriminator":
        inputs["labels"] = inputs["labels"].float()
    if head == "masked" and "CausalLM" in type(model).__name__:
        # The class would predict the next token.
        inputs["shift_labels"] = inputs["labels"]
    model.zero_grad()
    out = model(**inputs)
    out.loss.backward()
    states = out.decoder_hidden_states if head == "seq2seq" else out.hidden_states
    parameters = dict(model.named_parameters())
    # PyTorch lists a tied parameter once, under the name that comes first in its model.
    copies = find_family(kind).copies
    names = {n: copies[n] for n in copies.keys() & parameters.keys()}
    names = {n: of for n, of in names.items() if of not in parameters}
    if kind == "gpt_neox":  # whose files keep the head's older name
        names["lm_head.weight"] = "embed_out.weight"
    grads = {
        names.get(n, n): torch.zeros_like(p) if p.grad is None else p.grad
        for n, p in parameters.items()
        if p.requires_grad  # but for tables of sinusoidal positions
        and not is_unused(kind, n)
    }
    if kind in ROTARY_BERTS:  # whose files keep the names and the fused tensors
        grads = revert_weight_conversion(model, grads)
    return {
        "hidden": states[-1].detach().numpy(),
        "logits": out.logits.detach().numpy(),
        "loss": out.loss.item(),
        "grads": {name: grad.numpy() for name, grad in grads.items()},
    }
