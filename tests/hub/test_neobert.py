"""NeoBERT against the formulas of its published code in NumPy.

transformers has no class of it, so no test runs the original: `run_theirs` follows
chandar-lab/NeoBERT's model.py and rotary.py, with complex numbers for the rotation.
"""

import json

import numpy as np
import pytest
from hub.cases import Ours, pad_before
from safetensors.numpy import save_file
from transformers import CONFIG_MAPPING

from jaxpt.hub.configs import read_config, write_config
from jaxpt.hub.convert import to_hf
from jaxpt.hub.family import find_family
from jaxpt.hub.source_folder import read_networks

# chandar-lab/NeoBERT.
PUBLISHED = {
    "architectures": ["NeoBERTLMHead"],
    "auto_map": {"AutoConfig": "model.NeoBERTConfig"},
    "decoder_init_range": 0.02,
    "dim_head": 64,
    "embedding_init_range": 0.02,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "kwargs": {"trust_remote_code": True},
    "max_length": 4096,
    "model_type": "neobert",
    "norm_eps": 1e-05,
    "num_attention_heads": 12,
    "num_hidden_layers": 28,
    "pad_token_id": 0,
    "torch_dtype": "float32",
    "tokenizer_class": "PreTrainedTokenizerFast",
    "vocab_size": 30522,
}
SIZES = {
    "few": (2, 16, 4, 24),
    "one head": (1, 6, 1, 7),
    "odd": (3, 30, 3, 41),
    "pairs": (2, 10, 5, 2),
}
V = 30


def make(name):
    """A config, and tensors drawn at random."""
    num_layers, width, heads, mlp_width = SIZES[name]
    config = PUBLISHED | {"hidden_size": width, "num_hidden_layers": num_layers}
    config |= {"num_attention_heads": heads, "intermediate_size": mlp_width}
    config |= {"vocab_size": V, "max_length": 20, "norm_eps": 1e-3}
    inner = 8 * ((int(2 * mlp_width / 3) + 7) // 8)
    shapes = {"model.encoder.weight": (V, width), "model.layer_norm.weight": (width,)}
    shapes |= {"decoder.weight": (V, width), "decoder.bias": (V,)}
    for i in range(num_layers):
        layer = f"model.transformer_encoder.{i}"
        shapes |= {
            f"{layer}.qkv.weight": (3 * width, width),
            f"{layer}.wo.weight": (width, width),
            f"{layer}.ffn.w12.weight": (2 * inner, width),
            f"{layer}.ffn.w3.weight": (width, inner),
            f"{layer}.attention_norm.weight": (width,),
            f"{layer}.ffn_norm.weight": (width,),
        }
    rng = np.random.default_rng(len(name))
    return config, {
        key: rng.standard_normal(shape).astype(np.float32) * 0.5
        for key, shape in shapes.items()
    }


def run_theirs(config, tensors, ids, seen, positions):
    """The last hidden states and the logits, in float64."""
    w = {name: value.astype(np.float64) for name, value in tensors.items()}
    heads, width = config["num_attention_heads"], config["hidden_size"]
    head_width = width // heads

    def norm(x, name):
        scale = 1 / np.sqrt(np.mean(x**2, -1, keepdims=True) + config["norm_eps"])
        return x * scale * w[f"{name}.weight"]

    freqs = 1 / 10000 ** (np.arange(0, head_width, 2) / head_width)
    turns = np.exp(1j * positions[:, :, None, None] * freqs)

    def rotate(x):
        pairs = x.reshape(*x.shape[:-1], -1, 2)
        turned = (pairs[..., 0] + 1j * pairs[..., 1]) * turns
        return np.stack([turned.real, turned.imag], -1).reshape(x.shape)

    x = w["model.encoder.weight"][ids]
    for i in range(config["num_hidden_layers"]):
        layer = f"model.transformer_encoder.{i}"
        y = norm(x, f"{layer}.attention_norm") @ w[f"{layer}.qkv.weight"].T
        q, k, v = np.split(y.reshape(*ids.shape, heads, 3 * head_width), 3, -1)
        scores = np.einsum("bthd,bshd->bhts", rotate(q), rotate(k)) / head_width**0.5
        scores = np.where(seen[:, None, None], scores, -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        out = np.einsum("bhts,bshd->bthd", scores, v).reshape(x.shape)
        x = x + out @ w[f"{layer}.wo.weight"].T
        y = norm(x, f"{layer}.ffn_norm") @ w[f"{layer}.ffn.w12.weight"].T
        gate, up = np.split(y, 2, -1)
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[f"{layer}.ffn.w3.weight"].T
    x = norm(x, "model.layer_norm")
    return x, x @ w["decoder.weight"].T + w["decoder.bias"]


def make_batch():
    rng = np.random.default_rng(0)
    lengths = np.array([9, 13, 5])
    ids = rng.integers(1, V, (3, 13)) * (np.arange(13) < lengths[:, None])
    return {"input_ids": ids, "lengths": lengths, "labels": ids}


@pytest.mark.parametrize("name", SIZES)
def test_numbers_are_those_of_its_code(name):
    config, tensors = make(name)
    ours, batch = Ours(config, tensors, "masked"), make_batch()
    places = np.broadcast_to(np.arange(13), (3, 13))
    before = pad_before(batch, 0)
    after = (batch, places < batch["lengths"][:, None], places)
    for rows, seen, positions in (
        after,
        (before, before["seen"], before["position_ids"]),
    ):
        theirs = run_theirs(config, tensors, rows["input_ids"], seen, positions)
        for one, two in zip(ours.outputs(ours.params, rows), theirs, strict=True):
            np.testing.assert_allclose(np.asarray(one)[seen], two[seen], atol=2e-4)


@pytest.mark.parametrize("name", SIZES)
def test_what_is_read_is_written(name, tmp_path):
    config, tensors = make(name)
    ours = Ours(config, tensors, "masked")
    back = to_hf(ours.params, ours.family, ours.spec, "masked")
    assert back.keys() == tensors.keys()
    for key, value in tensors.items():
        np.testing.assert_array_equal(back[key], value)
    family, written = write_config(ours.spec, "masked", "neobert")
    assert read_config(written) == (family, ours.spec)
    assert read_config(written | {"cls_token_id": 3})[1] == ours.spec  # of an export
    (tmp_path / "config.json").write_text(json.dumps(written))
    save_file(back, tmp_path / "model.safetensors", {"format": "pt"})
    assert read_networks(tmp_path)["masked"].spec == ours.spec


def test_the_published_config():
    family, spec = read_config(PUBLISHED)
    assert family.name == "neobert" and "neobert" not in CONFIG_MAPPING
    assert (spec.d_ff, spec.max_len, spec.norm_epsilon) == (2048, 4096, 1e-5)
    bare = read_config({"model_type": "neobert"})[1]
    assert (bare.max_len, bare.norm_epsilon) == (1024, 1e-6)
    assert family.write(spec)["intermediate_size"] == 3072


@pytest.mark.parametrize(
    "changes, parts",
    [
        ({"rope": False}, ["rope=False", "is not known in a neobert"]),
        ({"hidden_act": "gelu"}, ["hidden_act='gelu'", "is not known"]),
        ({"ngpt": True}, ["ngpt=True", "is not known"]),
        ({"norm_eps": None}, ["norm_eps=None", "a number"]),
        ({"num_attention_heads": 5}, ["num_heads=5"]),
        ({"num_attention_heads": 0}, ["num_attention_heads=0", "at least 1"]),
    ],
)
def test_refusals_name_the_field(changes, parts, refuses):
    with refuses(*parts):
        read_config(PUBLISHED | changes)


def test_fields_change_what_they_say():
    spec = read_config(PUBLISHED)[1]
    for name in find_family("neobert").defaults:
        value = PUBLISHED[name]
        other = value * 2
        assert read_config(PUBLISHED | {name: other})[1] != spec, name
    for name in ("dim_head", "decoder_init_range", "tie_word_embeddings", "kwargs"):
        assert name not in find_family("neobert").write(spec)
        assert read_config(PUBLISHED | {name: 3})[1] == spec
