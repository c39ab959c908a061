"""Small models of LTG-BERT and its relatives."""

import json
from pathlib import Path

import numpy as np

FIXTURES = Path(__file__).with_name("fixtures")
V = 30
CLASSES = {
    ("ltgbert", "masked"): "LtgbertForMaskedLM",
    ("elc_bert", "masked"): "LtgBertForMaskedLM",
    ("gpt_bert", "masked"): "GPTBERTForMaskedLM",
    ("gpt_bert", "causal"): "GPTBERTForCausalLM",
}
SMALL = {
    "vocab_size": V,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 20,
    "position_bucket_size": 6,
    "layer_norm_eps": 1e-5,
}
# A fixture -> the kind, the model's purpose, and its own settings.
CASES = {
    "ltgbert": ("ltgbert", "masked", {}),
    "elc_bert": ("elc_bert", "masked", {"num_hidden_layers": 3}),
    "gpt_bert": ("gpt_bert", "masked", {}),
    "gpt_bert-causal": ("gpt_bert", "causal", {"num_hidden_layers": 1}),
}
# Settings of the live comparison.
ODD = {
    "one head": {"num_attention_heads": 1, "hidden_size": 6, "num_hidden_layers": 1},
    "wide heads": {"num_attention_heads": 2, "hidden_size": 36},
    "many layers": {"num_hidden_layers": 5, "intermediate_size": 7},
    "few buckets": {"position_bucket_size": 3},
    "odd buckets": {"position_bucket_size": 7, "max_position_embeddings": 14},
    "all distances": {"position_bucket_size": 16, "max_position_embeddings": 20},
    "epsilon": {"layer_norm_eps": 1e-2},
    "published buckets": {"position_bucket_size": 32, "max_position_embeddings": 512},
}


def make_config(kind, changes, head="masked"):
    """A config.json; HPLT's and BabyLM's LTG-BERT have no `model_type`."""
    return {"architectures": [CLASSES[kind, head]], **SMALL, **changes}


def make_batch(head, width=13):
    """Rows of different lengths, with labels at some of their positions."""
    rng = np.random.default_rng(1)
    lengths = np.array([width - 4, width, 5])
    real = np.arange(width) < lengths[:, None]
    ids = np.where(real, rng.integers(4, V, real.shape), 3)
    is_scored = rng.random(real.shape) < (1 if head == "causal" else 0.5)
    labels = np.where(real & is_scored, ids, -100)
    return {"input_ids": ids, "lengths": lengths, "labels": labels}


def read_fixture(name):
    """The config, tensors, batch and their numbers of a case."""
    with np.load(FIXTURES / f"{name}.npz") as arrays:
        parts = {key: {} for key in ("tensor", "batch", "theirs", "grads")}
        for key in arrays.files:
            kind, _, rest = key.partition("/")
            if rest:
                parts[kind][rest] = arrays[key]
        config = json.loads(str(arrays["config"]))
    theirs = parts["theirs"] | {"grads": parts["grads"]}
    return config, parts["tensor"], parts["batch"], theirs
