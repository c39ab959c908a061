"""The published code of LTG-BERT and its relatives, run, and fixtures of its numbers.

    JAXPT_LTGBERT=model.py .venv-peers/bin/python tests/hub/ltg_peers.py

writes the fixtures of the kinds whose file a variable names: `JAXPT_LTGBERT` is
babylm/train/model.py of github.com/ltgoslo/ltg-bert, `JAXPT_GPT_BERT` is
pretraining/model_extra.py of github.com/ltgoslo/gpt-bert, `JAXPT_ELC_BERT` is
models/model_elc_bert_base.py of github.com/ltgoslo/elc-bert. Needs torch.
"""

import importlib.util
import json
import os
import sys
import types
from pathlib import Path

import numpy as np
import torch

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]

from hub.cases import find_real  # noqa: E402
from hub.ltg_cases import CASES, V, make_batch, make_config  # noqa: E402


def load_code(kind):
    """The module of a kind's published code; None if no variable names its file."""
    path = os.environ.get(f"JAXPT_{kind.upper()}")
    if not path:
        return None
    spec = importlib.util.spec_from_file_location(f"their_{kind}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_theirs(module, config):
    """A model of their code without dropout; no weight has its initial value."""
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    torch.manual_seed(0)
    model = module.Bert(types.SimpleNamespace(**config | off)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return model


# The names of the published gpt_bert, by those of its training code.
RENAMED = {"embedding.": "model.embedding.", "transformer.": "model."}
RENAMED |= {"classifier.": "lm_head."}


def rename(tensors, kind):
    """Tensors under the names of a published checkpoint."""
    if kind != "gpt_bert":
        return tensors
    return {
        next(name.replace(a, b, 1) for a, b in RENAMED.items() if name.startswith(a)): x
        for name, x in tensors.items()
    }


def list_tensors(model, kind):
    """The tensors that a checkpoint has, without the buffers of integers."""
    state = {
        name: tensor.numpy().copy()
        for name, tensor in model.state_dict().items()
        if tensor.is_floating_point()
    }
    return rename(state, kind)


def run_theirs(model, batch, kind, head):
    """Their last states after the head's first norm, logits, loss and gradients."""
    ids, real = torch.tensor(batch["input_ids"]), find_real(batch)
    hidden_keys = torch.tensor(~real)
    if kind == "gpt_bert":  # its mask is of pairs
        width = ids.shape[1]
        hidden_keys = hidden_keys[:, None].repeat(1, width, 1)
        if head == "causal":
            hidden_keys |= torch.ones(width, width, dtype=torch.bool).triu(1)
    model.zero_grad()
    states = model.get_contextualized(ids.T.contiguous(), hidden_keys)
    states = states[-1] if isinstance(states, list) else states  # of all layers
    states = states.transpose(0, 1)
    layers = model.classifier.nonlinearity
    logits, labels = layers(states), torch.tensor(batch["labels"])
    scored, targets = logits, labels
    if head == "causal":
        scored, targets = logits[:, :-1], labels[:, 1:]
    # Rows that only attend to padding are NaN, and have no label.
    is_kept = targets >= 0
    loss = torch.nn.functional.cross_entropy(scored[is_kept], targets[is_kept])
    loss.backward()
    return {
        "hidden": layers[0](states).detach().numpy(),
        "logits": logits.detach().numpy(),
        "loss": loss.item(),
        "grads": rename({n: p.grad.numpy() for n, p in model.named_parameters()}, kind),
    }


def main() -> None:
    """One .npz a case, as those of `make_fixtures.py`."""
    for name, (kind, head, changes) in CASES.items():
        if (module := load_code(kind)) is None:
            continue
        config, batch = make_config(kind, changes, head), make_batch(head)
        model = make_theirs(module, config)
        result = run_theirs(model, batch, kind, head)
        grads = result.pop("grads")
        arrays = {
            f"tensor/{key}": value for key, value in list_tensors(model, kind).items()
        }
        arrays |= {f"batch/{key}": value for key, value in batch.items()}
        arrays |= {f"theirs/{key}": value for key, value in result.items()}
        arrays |= {f"grads/{key}": value for key, value in grads.items()}
        path = HERE / "fixtures" / f"{name}.npz"
        np.savez_compressed(path, config=json.dumps(config), **arrays)
        assert max(batch["input_ids"].flat) < V
        print(path.name, path.stat().st_size)


if __name__ == "__main__":
    main()
