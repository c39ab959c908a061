"""Checkpoints of NomicBERT and GTE as their repositories' code wrote them.

transformers reads the same tensors by the same names; the configs have other fields.
The formula of NTK scaling is that of the class NTKScalingRotaryEmbedding of GTE's code.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from hub.cases import Ours
from hub.test_families import Fixture
from safetensors.numpy import save_file

from jaxpt.hub.configs import read_config, write_config
from jaxpt.hub.convert import to_hf
from jaxpt.hub.families.nomic_bert import _FIXED
from jaxpt.hub.source_folder import read_networks
from jaxpt.nn.positions import rotary_rates

# nomic-ai/nomic-bert-2048.
NOMIC = {
    "activation_function": "swiglu",
    "architectures": ["NomicBertForPreTraining"],
    "attn_pdrop": 0.0,
    "auto_map": {"AutoConfig": "configuration_hf_nomic_bert.NomicBertConfig"},
    "bos_token_id": None,
    "causal": False,
    "dense_seq_output": True,
    "embd_pdrop": 0.0,
    "eos_token_id": None,
    "fused_bias_fc": True,
    "fused_dropout_add_ln": True,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-12,
    "max_trained_positions": 2048,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "model_type": "nomic_bert",
    "n_embd": 768,
    "n_head": 12,
    "n_inner": 3072,
    "n_layer": 12,
    "n_positions": 2048,
    "pad_vocab_size_multiple": 64,
    "parallel_block": False,
    "parallel_block_tied_norm": False,
    "prenorm": False,
    "qkv_proj_bias": False,
    "reorder_and_upcast_attn": False,
    "resid_pdrop": 0.0,
    "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "scale_attn_by_inverse_layer_idx": False,
    "scale_attn_weights": True,
    "summary_type": "cls_index",
    "torch_dtype": "float32",
    "type_vocab_size": 2,
    "use_cache": True,
    "use_flash_attn": True,
    "use_rms_norm": False,
    "use_xentropy": True,
    "vocab_size": 30528,
}
# Alibaba-NLP/gte-base-en-v1.5.
GTE = {
    "architectures": ["NewModel"],
    "attention_probs_dropout_prob": 0.0,
    "auto_map": {"AutoConfig": "configuration.NewConfig"},
    "classifier_dropout": None,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-12,
    "layer_norm_type": "layer_norm",
    "logn_attention_clip1": False,
    "logn_attention_scale": False,
    "max_position_embeddings": 8192,
    "model_type": "new",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pack_qkv": True,
    "pad_token_id": 0,
    "position_embedding_type": "rope",
    "rope_scaling": {"factor": 2.0, "type": "ntk"},
    "rope_theta": 500000,
    "type_vocab_size": 0,
    "unpad_inputs": False,
    "use_memory_efficient_attention": False,
    "vocab_size": 30528,
}


def test_nomics_fields_are_those_of_the_class():
    family, spec = read_config(NOMIC)
    assert (family.name, spec) == ("nomic_bert", read_config({**CLASS})[1])
    assert (spec.max_len, spec.rotary_base, spec.activation) == (2048, 1000, "silu")
    changes = {"n_layer": 3, "n_head": 6, "n_embd": 60, "n_inner": 512}
    changes |= {"activation_function": "geglu", "resid_pdrop": 0.1, "attn_pdrop": 0.2}
    changes |= {"layer_norm_epsilon": 1e-5, "vocab_size": 30522, "rotary_emb_base": 7}
    spec = read_config(NOMIC | changes)[1]
    assert (spec.num_layers, spec.num_heads, spec.d_model, spec.d_ff) == (3, 6, 60, 512)
    assert (spec.activation, spec.dropout, spec.embed_dropout) == ("gelu", 0.1, 0.1)
    assert (spec.attention_dropout, spec.norm_epsilon) == (0.2, 1e-5)
    assert (spec.vocab_size, spec.rotary_base) == (30528, 7)


CLASS = {"model_type": "nomic_bert"}


@pytest.mark.parametrize("name", _FIXED)
def test_a_field_of_nomics_with_another_value_is_refused(name, refuses):
    allowed, default = _FIXED[name]
    other = not allowed if isinstance(allowed, bool) else 0.5
    with refuses(f"{name}={other}", f"must be {allowed}"):
        read_config(NOMIC | {name: other})
    without = {key: value for key, value in NOMIC.items() if key != name}
    if allowed is False:  # the code asks whether it is true
        assert read_config(NOMIC | {name: None}) == read_config(NOMIC)
    if default != allowed:  # what the code would compute without the field
        with refuses(f"{name}={default}", f"must be {allowed}"):
            read_config(without)
    else:
        assert read_config(without) == read_config(NOMIC)


@pytest.mark.parametrize(
    "changes, parts",
    [
        ({"n_inner": 24}, ["n_inner=24", "multiple of 256"]),
        ({"n_inner": None}, ["n_inner=None", "multiple of 256"]),
        ({"activation_function": "gelu"}, ["activation_function='gelu'", "swiglu"]),
        ({"num_experts": 8}, ["num_experts=8", "is not known next to n_embd"]),
        ({"vocab_size": "x"}, ["vocab_size='x'", "an integer"]),
    ],
)
def test_nomics_other_refusals(changes, parts, refuses):
    with refuses(*parts):
        read_config(NOMIC | changes)


@pytest.mark.parametrize("factor, theta", [(2.0, 500000), (8, 20000.0), (1.0, 300)])
def test_gtes_ntk_scaling_is_that_of_its_code(factor, theta):
    scaling = {"factor": factor, "type": "ntk"}
    spec = read_config(GTE | {"rope_scaling": scaling, "rope_theta": theta})[1]
    width = 64
    expected = 1 / (theta * factor) ** (np.arange(0, width, 2) / width)
    expected /= factor ** (2 / width)
    rates = rotary_rates(spec.rotary_width, spec.rotary_base, spec.rotary_scaling)
    np.testing.assert_allclose(rates, expected, rtol=2e-6)
    written = write_config(spec, "masked", "gte")[1]
    assert read_config(written)[1] == spec


def test_gtes_fields_are_those_of_the_class():
    family, spec = read_config(GTE | {"rope_scaling": None})
    assert (family.name, spec.num_types, spec.rotary_base) == ("gte", 0, 500000)
    bare = read_config({"model_type": "new"})[1]
    assert (bare.rotary_base, bare.max_len, bare.vocab_size) == (10000, 2048, 30528)
    assert bare.num_types == 1


@pytest.mark.parametrize(
    "changes, parts",
    [
        ({"rope_scaling": {"type": "linear", "factor": 2}}, ["'linear'", "'ntk'"]),
        ({"rope_scaling": {"type": "ntk"}}, ["rope_scaling.factor=None", "a number"]),
        (
            {"rope_scaling": {"type": "ntk", "factor": 2.0, "mixed_b": 0.6}},
            ["rope_scaling.mixed_b", "not supported"],
        ),
        ({"rope_scaling": {"type": "ntk", "factor": 0.5}}, ["=0.5", "at least 1"]),
        ({"num_attention_heads": 0}, ["num_attention_heads=0", "at least 1"]),
        ({"hidden_size": 6}, ["hidden_size=6", "at least 12"]),
        ({"rope_scaling": [2]}, ["rope_scaling=[2]", "an object or null"]),
        ({"logn_attention_scale": True}, ["logn_attention_scale=True", "False"]),
        ({"layer_norm_type": "rms_norm"}, ["layer_norm_type='rms_norm'"]),
        ({"position_embedding_type": "absolute"}, ["position_embedding_type"]),
        ({"pack_qkv": False}, ["pack_qkv=False", "True"]),
        ({"hidden_act": "relu"}, ["hidden_act='relu'", "gelu"]),
        ({"num_experts": 8}, ["num_experts=8", "is not known with"]),
    ],
)
def test_gtes_refusals(changes, parts, refuses):
    with refuses(*parts):
        read_config(GTE | changes)


@pytest.mark.parametrize(
    "name, older, changes",
    [
        ("nomic_bert", "bert.", {"architectures": ["NomicBertForPreTraining"]}),
        ("gte", "new.", {"architectures": ["NewForMaskedLM"], "model_type": "new"}),
    ],
)
def test_tensors_have_the_older_prefix(name, older, changes, tmp_path):
    fixture = Fixture(name)
    prefix = fixture.ours.family.body
    config = fixture.config | changes | {"rope_theta": fixture.ours.spec.rotary_base}
    del config["rope_parameters"]
    tensors = {
        key.replace(prefix, older, 1): value for key, value in fixture.tensors.items()
    }
    assert any(key.startswith(older) for key in tensors)
    write(tmp_path, config, tensors)
    network = read_networks(tmp_path)["masked"]
    assert network.spec == fixture.ours.spec and not network.is_body
    for key, value in fixture.tensors.items():
        np.testing.assert_array_equal(network.tensors[key], value)


def test_a_head_without_biases_is_nomics(tmp_path):
    """The repository's code has none, and the class those biases as zeros."""
    fixture, names = Fixture("nomic_bert"), ("transform.dense.bias", "bias")
    biases = {f"cls.predictions.{name}" for name in names}
    rest = {k: v for k, v in fixture.tensors.items() if k not in biases}
    zeros = {name: np.zeros_like(fixture.tensors[name]) for name in biases}
    one, two = (
        Ours(fixture.config, tensors, "masked") for tensors in (rest, rest | zeros)
    )
    assert one.spec == two.spec and not one.spec.head_bias
    assert one.spec.transform_bias == "no"
    back = to_hf(one.params, one.family, one.spec, "masked")
    assert back.keys() == (rest | zeros).keys()
    for name, value in (rest | zeros).items():
        np.testing.assert_array_equal(back[name], value)
    logits = [each.outputs(each.params, fixture.batch)[1] for each in (one, two)]
    np.testing.assert_array_equal(*logits)


@pytest.mark.parametrize("config", [NOMIC, GTE])
def test_the_tokenizers_class_is_not_the_networks(config):
    named = config | {"tokenizer_class": "BertTokenizer"}
    assert read_config(named) == read_config(config)


def test_jinas_adapters_are_refused_by_name(refuses):
    with refuses("lora_adaptations=['a']", "None"):
        read_config({"model_type": "jina_embeddings_v3", "lora_adaptations": ["a"]})
    older = {"model_type": "xlm-roberta", "position_embedding_type": "rotary"}
    with refuses("position_embedding_type='rotary'", "'absolute'"):
        read_config(older)


def write(folder: Path, config: dict, tensors: dict) -> None:
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
