"""Jina Embeddings 2 against the formulas of its published code in NumPy.

transformers has no class of it, so no test runs the original: `run_theirs` follows
modeling_bert.py of jinaai/jina-bert-implementation.
"""

import json
import math

import numpy as np
import pytest
from hub.cases import Ours, pad_before
from safetensors.numpy import save_file

from jaxpt.hub.configs import read_config, write_config
from jaxpt.hub.convert import to_hf
from jaxpt.hub.family import find_family
from jaxpt.hub.source_folder import read_networks

_CODE = "jinaai/jina-bert-implementation--"
# jinaai/jina-embeddings-v2-base-en.
PUBLISHED = {
    "_name_or_path": "jinaai/jina-bert-implementation",
    "architectures": ["JinaBertForMaskedLM"],
    "attention_probs_dropout_prob": 0.0,
    "auto_map": {
        "AutoConfig": f"{_CODE}configuration_bert.JinaBertConfig",
        "AutoModelForMaskedLM": f"{_CODE}modeling_bert.JinaBertForMaskedLM",
        "AutoModel": f"{_CODE}modeling_bert.JinaBertModel",
    },
    "classifier_dropout": None,
    "emb_pooler": "mean",
    "feed_forward_type": "geglu",
    "gradient_checkpointing": False,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 8192,
    "model_max_length": 8192,
    "model_type": "bert",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pad_token_id": 0,
    "position_embedding_type": "alibi",
    "torch_dtype": "float32",
    "type_vocab_size": 2,
    "use_cache": True,
    "vocab_size": 30528,
}
SIZES = {
    "few": (2, 16, 4, 24, "geglu"),
    "three heads": (3, 30, 3, 41, "reglu"),
    "six heads": (1, 12, 6, 7, "geglu"),
}
V = 30


def make(name):
    """A config, and tensors drawn at random."""
    num_layers, width, heads, mlp_width, gate = SIZES[name]
    config = PUBLISHED | {"hidden_size": width, "num_hidden_layers": num_layers}
    config |= {"num_attention_heads": heads, "intermediate_size": mlp_width}
    config |= {"vocab_size": V, "layer_norm_eps": 1e-3, "feed_forward_type": gate}
    shapes = {"bert.embeddings.word_embeddings.weight": (V, width)}
    shapes |= {"bert.embeddings.token_type_embeddings.weight": (2, width)}

    def add(name, *shape):
        shapes.update({f"{name}.weight": shape, f"{name}.bias": shape[:1]})

    add("bert.embeddings.LayerNorm", width)
    for i in range(num_layers):
        layer = f"bert.encoder.layer.{i}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            add(f"{layer}.attention.{part}", width, width)
        add(f"{layer}.attention.output.LayerNorm", width)
        shapes[f"{layer}.mlp.gated_layers.weight"] = (2 * mlp_width, width)
        add(f"{layer}.mlp.wo", width, mlp_width)
        add(f"{layer}.mlp.layernorm", width)
    add("cls.predictions.transform.dense", width, width)
    add("cls.predictions.transform.LayerNorm", width)
    shapes["cls.predictions.bias"] = (V,)
    rng = np.random.default_rng(len(name))
    return config, {
        key: rng.standard_normal(shape).astype(np.float32) * 0.5
        for key, shape in shapes.items()
    }


def list_slopes(heads):
    """The code's slopes, by recursion."""
    power = 2 ** math.floor(math.log2(heads))
    start = 2 ** (-(2 ** -(math.log2(power) - 3)))
    slopes = [start * start**i for i in range(power)]
    if power == heads:
        return slopes
    return slopes + list_slopes(2 * power)[0::2][: heads - power]


def gelu(x):
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def run_theirs(config, tensors, ids, seen):
    """The last hidden states and the logits, in float64."""
    w = {name: value.astype(np.float64) for name, value in tensors.items()}
    heads = config["num_attention_heads"]
    act = gelu if config["feed_forward_type"] == "geglu" else lambda x: np.maximum(x, 0)

    def dense(x, name):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt(x.var(-1, keepdims=True) + config["layer_norm_eps"])
        return x * w[f"{name}.weight"] + w[f"{name}.bias"]

    places = np.arange(ids.shape[1])
    distance = np.abs(places - places[:, None])
    bias = -np.array(list_slopes(heads))[:, None, None] * distance
    x = w["bert.embeddings.word_embeddings.weight"][ids]
    x = x + w["bert.embeddings.token_type_embeddings.weight"][0]
    x = norm(x, "bert.embeddings.LayerNorm")
    for i in range(config["num_hidden_layers"]):
        layer = f"bert.encoder.layer.{i}"
        part = f"{layer}.attention.self"
        q, k, v = (
            dense(x, f"{part}.{name}").reshape(*ids.shape, heads, -1)
            for name in ("query", "key", "value")
        )
        scores = np.einsum("bthd,bshd->bhts", q, k) / math.sqrt(q.shape[-1])
        scores = np.where(seen[:, None, None], scores + bias, -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        out = np.einsum("bhts,bshd->bthd", scores, v).reshape(x.shape)
        out = dense(out, f"{layer}.attention.output.dense")
        x = norm(out + x, f"{layer}.attention.output.LayerNorm")
        both = x @ w[f"{layer}.mlp.gated_layers.weight"].T
        gate, up = np.split(both, 2, -1)
        x = norm(dense(act(gate) * up, f"{layer}.mlp.wo") + x, f"{layer}.mlp.layernorm")
    y = gelu(dense(x, "cls.predictions.transform.dense"))
    y = norm(y, "cls.predictions.transform.LayerNorm")
    table = w["bert.embeddings.word_embeddings.weight"]
    return x, y @ table.T + w["cls.predictions.bias"]


@pytest.mark.slow_except("three heads")
@pytest.mark.parametrize("name", SIZES)
def test_numbers_are_those_of_its_code(name):
    config, tensors = make(name)
    ours = Ours(config, tensors, "masked")
    rng, lengths = np.random.default_rng(0), np.array([9, 13, 5])
    real = np.arange(13) < lengths[:, None]
    ids = rng.integers(1, V, real.shape) * real
    batch = {"input_ids": ids, "lengths": lengths, "labels": ids}
    before = pad_before(batch, 0)
    for rows, seen in ((batch, real), (before, before["seen"])):
        theirs = run_theirs(config, tensors, rows["input_ids"], seen)
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
    family, written = write_config(ours.spec, "masked")
    assert family.name == "jina_bert" and written["model_type"] == "bert"
    assert written["auto_map"] == PUBLISHED["auto_map"]
    assert read_config(written) == (family, ours.spec)
    assert read_config(written | {"cls_token_id": 3})[1] == ours.spec  # of an export
    (tmp_path / "config.json").write_text(json.dumps(written))
    save_file(back, tmp_path / "model.safetensors", {"format": "pt"})
    assert read_networks(tmp_path)["masked"].spec == ours.spec


def test_published_fields_are_used_or_known():
    spec = read_config(PUBLISHED)[1]
    assert (spec.positions, spec.max_len, spec.activation) == ("alibi", 8192, "gelu")
    for name in find_family("jina_bert").defaults:
        value, others = PUBLISHED[name], {"gelu": "relu", "geglu": "reglu"}
        other = others[value] if isinstance(value, str) else value * 2 or 0.5
        assert read_config(PUBLISHED | {name: other})[1] != spec, name
    for name in ("emb_pooler", "classifier_dropout", "model_max_length"):
        assert read_config(PUBLISHED | {name: 3})[1] == spec


@pytest.mark.parametrize(
    "changes, parts",
    [
        ({"feed_forward_type": "original"}, ["type='original'", "geglu or reglu"]),
        ({"hidden_act": "tanh"}, ["hidden_act='tanh'"]),
        ({"logn": True}, ["logn=True", "is not known in a jina_bert"]),
        ({"is_decoder": True}, ["is_decoder=True", "False"]),
        (
            {"auto_map": {"AutoModel": "jinaai/jina-bert-v2-qk-post-norm--m.B"}},
            ["auto_map", "queries and keys have LayerNorms"],
        ),
        ({"num_attention_heads": 5}, ["num_heads=5"]),
    ],
)
def test_refusals_name_the_field(changes, parts, refuses):
    with refuses(*parts):
        read_config(PUBLISHED | changes)
