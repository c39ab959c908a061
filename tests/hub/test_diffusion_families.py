"""LLaDA and Dream against the formulas of their published code in NumPy.

transformers has no class of them, so no test runs the originals: `run_theirs` follows
LLaDA's modeling_llada.py and Dream's modeling_dream.py. Both attend in both directions
and rotate halves of heads.
"""

import json

import numpy as np
import pytest
from hub.cases import Ours, pad_before
from hub.test_runs import make_tokenizer, settings
from safetensors.numpy import load_file, save_file
from tokenizers.pre_tokenizers import ByteLevel
from transformers import CONFIG_MAPPING

from jaxpt.hub.configs import read_config, write_config
from jaxpt.hub.convert import to_hf
from jaxpt.hub.export import export_run
from jaxpt.hub.family import find_family
from jaxpt.hub.imports import import_run
from jaxpt.hub.source_folder import read_networks
from jaxpt.runs.workdir import load_run
from jaxpt.text.tokens import tokenizer as tokenizers
from jaxpt.text.tokens.exported import export_tokenizer

V, MASK = 30, 4
# GSAI-ML/LLaDA-8B-Base and Dream-org/Dream-v0-Base-7B.
LLADA = {
    "activation_type": "silu",
    "alibi": False,
    "alibi_bias_max": 8.0,
    "architectures": ["LLaDAModelLM"],
    "attention_dropout": 0.0,
    "attention_layer_norm": False,
    "attention_layer_norm_with_affine": True,
    "auto_map": {"AutoConfig": "configuration_llada.LLaDAConfig"},
    "bias_for_layer_norm": False,
    "block_group_size": 1,
    "block_type": "llama",
    "d_model": 4096,
    "embedding_dropout": 0.0,
    "embedding_size": 126464,
    "eos_token_id": 126081,
    "flash_attention": False,
    "include_bias": False,
    "include_qkv_bias": False,
    "init_cutoff_factor": None,
    "init_device": "meta",
    "init_fn": "mitchell",
    "init_std": 0.02,
    "input_emb_norm": False,
    "layer_norm_type": "rms",
    "layer_norm_with_affine": True,
    "mask_token_id": 126336,
    "max_sequence_length": 4096,
    "mlp_hidden_size": 12288,
    "mlp_ratio": 4,
    "model_type": "llada",
    "multi_query_attention": None,
    "n_heads": 32,
    "n_kv_heads": 32,
    "n_layers": 32,
    "pad_token_id": 126081,
    "precision": "amp_bf16",
    "residual_dropout": 0.0,
    "rms_norm_eps": 1e-05,
    "rope": True,
    "rope_full_precision": True,
    "rope_theta": 500000.0,
    "scale_logits": False,
    "transformers_version": "4.46.3",
    "use_cache": False,
    "vocab_size": 126464,
    "weight_tying": False,
}
DREAM = {
    "architectures": ["DreamModel"],
    "attention_dropout": 0.0,
    "auto_map": {"AutoModel": "modeling_dream.DreamModel"},
    "bos_token_id": 151643,
    "eos_token_id": 151643,
    "hidden_act": "silu",
    "hidden_size": 3584,
    "initializer_range": 0.02,
    "intermediate_size": 18944,
    "mask_token_id": 151666,
    "max_position_embeddings": 131072,
    "max_window_layers": 28,
    "model_type": "Dream",
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "pad_token_id": 151643,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000.0,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.46.2",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 152064,
}
PUBLISHED = {"llada": LLADA, "Dream": DREAM}
HEADS = {"llada": "masked", "Dream": "causal"}
IDS = {"mask_token_id": MASK, "pad_token_id": 0, "eos_token_id": 6, "bos_token_id": 5}
# Layers, width, heads, heads of keys, width of the MLP; and what differs otherwise.
CASES = {
    "llada few": ("llada", (2, 16, 4, 2, 24), {}),
    "llada tied": (
        "llada",
        (1, 6, 1, 1, 7),
        {"weight_tying": True, "scale_logits": True, "input_emb_norm": True},
    ),
    "llada biases": (
        "llada",
        (3, 30, 3, 3, 41),
        {"include_qkv_bias": True, "activation_type": "relu"},
    ),
    "Dream few": ("Dream", (2, 16, 4, 2, 24), {}),
    "Dream odd": ("Dream", (3, 30, 3, 1, 41), {"rope_theta": 50.0}),
}
NAMES = {
    "llada": {
        "layers": "model.transformer.blocks",
        "embed": "model.transformer.wte",
        "last": "model.transformer.ln_f",
        "head": "model.transformer.ff_out",
        "norms": ("attn_norm", "ff_norm"),
        "heads": ("q_proj", "k_proj", "v_proj", "attn_out"),
        "mlp": ("ff_proj", "up_proj", "ff_out"),
    },
    "Dream": {
        "layers": "model.layers",
        "embed": "model.embed_tokens",
        "last": "model.norm",
        "head": "lm_head",
        "norms": ("input_layernorm", "post_attention_layernorm"),
        "heads": tuple(f"self_attn.{letter}_proj" for letter in "qkvo"),
        "mlp": tuple(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
    },
}


def make(name):
    """A config, and tensors drawn at random."""
    kind, (num_layers, width, heads, kv_heads, mlp_width), more = CASES[name]
    config = PUBLISHED[kind] | IDS | {"vocab_size": V, "rms_norm_eps": 1e-3} | more
    if kind == "llada":
        config |= {"embedding_size": V, "d_model": width, "n_layers": num_layers}
        config |= {"n_heads": heads, "n_kv_heads": kv_heads, "max_sequence_length": 20}
        config["mlp_hidden_size"] = mlp_width
    else:
        config |= {"hidden_size": width, "num_hidden_layers": num_layers}
        config |= {"num_attention_heads": heads, "num_key_value_heads": kv_heads}
        config |= {"intermediate_size": mlp_width, "max_position_embeddings": 20}
    names, kv = NAMES[kind], kv_heads * (width // heads)
    shapes = {names["embed"]: (V, width), names["last"]: (width,)}
    if not config.get("weight_tying"):
        shapes[names["head"]] = (V, width)
    has_bias = kind == "Dream" or config["include_qkv_bias"]
    biases = {}
    for i in range(num_layers):
        layer = f"{names['layers']}.{i}"
        shapes |= {f"{layer}.{norm}": (width,) for norm in names["norms"]}
        for each, size in zip(names["heads"], (width, kv, kv, width), strict=True):
            shapes[f"{layer}.{each}"] = (size, width)
            if has_bias and each != names["heads"][3]:
                biases[f"{layer}.{each}.bias"] = (size,)
        gate, up, down = names["mlp"]
        shapes |= {f"{layer}.{each}": (mlp_width, width) for each in (gate, up)}
        shapes[f"{layer}.{down}"] = (width, mlp_width)
    shapes = {f"{key}.weight": shape for key, shape in shapes.items()} | biases
    rng = np.random.default_rng(len(name))
    return config, {
        key: rng.standard_normal(shape).astype(np.float32) * 0.5
        for key, shape in shapes.items()
    }


def run_theirs(name, config, tensors, ids, seen, positions):
    """The last hidden states and the logits, in float64."""
    kind, (num_layers, width, heads, kv_heads, _), _ = CASES[name]
    w = {key: value.astype(np.float64) for key, value in tensors.items()}
    names, head_width = NAMES[kind], width // heads

    def norm(x, key):
        scale = 1 / np.sqrt(np.mean(x**2, -1, keepdims=True) + config["rms_norm_eps"])
        return x * scale * w[f"{key}.weight"]

    def dense(x, key):
        return x @ w[f"{key}.weight"].T + w.get(f"{key}.bias", 0)

    freqs = config["rope_theta"] ** -(np.arange(0, head_width, 2) / head_width)
    angles = positions[:, :, None, None] * np.tile(freqs, 2)

    def rotate(x):
        one, two = np.split(x, 2, -1)
        return x * np.cos(angles) + np.concatenate([-two, one], -1) * np.sin(angles)

    def act(x):
        is_relu = config.get("activation_type") == "relu"
        return np.maximum(x, 0) if is_relu else x / (1 + np.exp(-x))

    x = w[f"{names['embed']}.weight"][ids]
    x = x * width**0.5 if config.get("input_emb_norm") else x
    for i in range(num_layers):
        layer = f"{names['layers']}.{i}."
        q, k, v, out = (layer + each for each in names["heads"])
        y = norm(x, layer + names["norms"][0])
        q, k, v = (dense(y, each) for each in (q, k, v))
        q, k, v = (each.reshape(*ids.shape, -1, head_width) for each in (q, k, v))
        k, v = (np.repeat(each, heads // kv_heads, 2) for each in (k, v))
        scores = np.einsum("bthd,bshd->bhts", rotate(q), rotate(k)) / head_width**0.5
        scores = np.where(seen[:, None, None], scores, -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        x = x + dense(np.einsum("bhts,bshd->bthd", scores, v).reshape(x.shape), out)
        gate, up, down = (layer + each for each in names["mlp"])
        y = norm(x, layer + names["norms"][1])
        x = x + dense(act(dense(y, gate)) * dense(y, up), down)
    x = norm(x, names["last"])
    is_tied = config.get("weight_tying")
    logits = dense(x, names["embed"] if is_tied else names["head"])
    return x, logits / width**0.5 if config.get("scale_logits") else logits


def read_ours(name):
    config, tensors = make(name)
    ours = Ours(config, tensors, HEADS[CASES[name][0]])
    return config, tensors, ours


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_those_of_their_code(name):
    config, tensors, ours = read_ours(name)
    ours.head = "masked"  # also Dream attends to later tokens
    rng, lengths = np.random.default_rng(0), np.array([9, 13, 5])
    places = np.broadcast_to(np.arange(13), (3, 13))
    real = places < lengths[:, None]
    ids = rng.integers(1, V, (3, 13)) * real
    batch = {"input_ids": ids, "lengths": lengths, "labels": ids}
    before = pad_before(batch, 0)
    for rows, seen, positions in (
        (batch, real, places),
        (before, before["seen"], before["position_ids"]),
    ):
        theirs = run_theirs(name, config, tensors, rows["input_ids"], seen, positions)
        for one, two in zip(ours.outputs(ours.params, rows), theirs, strict=True):
            np.testing.assert_allclose(np.asarray(one)[seen], two[seen], atol=2e-4)


@pytest.mark.parametrize("name", CASES)
def test_what_is_read_is_written(name):
    config, tensors, ours = read_ours(name)
    back = to_hf(ours.params, ours.family, ours.spec, ours.head)
    assert back.keys() == tensors.keys()
    for key, value in tensors.items():
        np.testing.assert_array_equal(back[key], value)
    family, written = write_config(ours.spec, ours.head, CASES[name][0])
    assert read_config(written) == (family, ours.spec)
    for key in written.keys() & config.keys() - {"auto_map", "transformers_version"}:
        assert written[key] == config[key], key


def test_the_published_configs():
    family, spec = read_config(LLADA)
    assert (family.name, spec.vocab_size, spec.d_ff) == ("llada", 126464, 12288)
    assert (spec.rotary_base, spec.tie_embeddings) == (500000.0, False)
    family, spec = read_config(DREAM)
    assert (family.name, spec.vocab_size, spec.kv_heads) == ("Dream", 152064, 4)
    assert spec.has_qkv_bias and not spec.use_bias
    assert not PUBLISHED.keys() & CONFIG_MAPPING.keys()


@pytest.mark.parametrize(
    "kind, changes, parts",
    [
        ("llada", {"block_type": "sequential"}, ["block_type='sequential'", "'llama'"]),
        ("llada", {"block_group_size": 2}, ["block_group_size=2", "1"]),
        ("llada", {"alibi": True}, ["alibi=True", "False"]),
        ("llada", {"rope": False}, ["rope=False", "True"]),
        ("llada", {"attention_layer_norm": True}, ["attention_layer_norm=True"]),
        ("llada", {"layer_norm_type": "gemma_rms"}, ["'gemma_rms'", "'rms'"]),
        ("llada", {"layer_norm_with_affine": False}, ["layer_norm_with_affine=False"]),
        ("llada", {"include_bias": True}, ["include_bias=True", "False"]),
        ("llada", {"bias_for_layer_norm": True}, ["bias_for_layer_norm=True"]),
        ("llada", {"multi_query_attention": True}, ["multi_query_attention=True"]),
        ("llada", {"activation_type": "swiglu"}, ["'swiglu'", "silu, gelu, relu"]),
        ("llada", {"num_experts": 64}, ["num_experts=64", "not known in a llada"]),
        ("llada", {"scale_logits": True}, ["scale_logits=True", "tie_embeddings"]),
        ("llada", {"n_heads": 5}, ["num_heads=5"]),
        ("Dream", {"use_sliding_window": True}, ["use_sliding_window=True", "False"]),
        ("Dream", {"head_dim": 3}, ["head_dim=3", "null or 128"]),
        ("Dream", {"rope_scaling": {"type": "dynamic"}}, ["rope_type='dynamic'"]),
        ("Dream", {"is_causal": True, "layers": 2}, ["layers=2", "known in a Dream"]),
    ],
)
def test_refusals_name_the_field(kind, changes, parts, refuses):
    with refuses(*parts):
        read_config(PUBLISHED[kind] | changes)


# Fields with one supported value (`test_refusals_name_the_field`), and one that is read
# only without another.
ONE_VALUE = {"alibi", "attention_layer_norm", "block_group_size", "block_type"}
ONE_VALUE |= {"head_dim", "include_bias", "layer_norm_type", "layer_norm_with_affine"}
ONE_VALUE |= {"mlp_ratio", "rope", "scale_logits", "vocab_size"}
OTHERS = {"activation_type": "gelu", "hidden_act": "gelu"}
OTHERS |= {"n_kv_heads": 1, "num_key_value_heads": 1}


@pytest.mark.parametrize("kind", PUBLISHED)
def test_fields_change_what_they_say_or_nothing(kind):
    family, (_, spec) = find_family(kind), read_config(PUBLISHED[kind])
    for name in family.defaults.keys() - ONE_VALUE:
        value = PUBLISHED[kind][name]
        is_flag = isinstance(value, bool)
        other = OTHERS.get(name, not value if is_flag else (value or 0.1) * 2)
        assert read_config(PUBLISHED[kind] | {name: other})[1] != spec, name
    for name in family.inert.split():
        assert name not in family.write(spec)
        assert read_config(PUBLISHED[kind] | {name: 3})[1] == spec
    bare = read_config({"model_type": "Dream"})[1]
    assert (bare.d_model, bare.d_ff, bare.kv_heads) == (4096, 22016, 32)


def write_folder(folder, name):
    """A checkpoint whose mask only config.json names."""
    config, tensors = make(name)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    export_tokenizer(make_tokenizer(), folder / "tokenizer.json")
    options = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]"}
    options |= {"trust_remote_code": True, "fast_tokenizer": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(options))


@pytest.mark.parametrize("name", ["llada few", "Dream few"])
def test_an_import_trains_by_masked_diffusion(name, tmp_path):
    """Objective, shift and mask are the folder's; a gap is filled as by their code."""
    kind, run = CASES[name][0], tmp_path / "run"
    write_folder(tmp_path / "theirs", name)
    # The name of Dream's class is like those of models without a head.
    assert not read_networks(tmp_path / "theirs")[HEADS[kind]].is_body
    lines = import_run(tmp_path / "theirs", run, settings(tmp_path))
    assert any(f"masked_diffusion from {kind}" in line for line in lines)
    loaded = load_run(run)
    task = loaded.program.task
    is_shifted = kind == "Dream"
    assert task.plan.objective_name == "masked_diffusion"
    assert task.spec.shift == is_shifted and task.vocab.mask == MASK
    ids = np.random.default_rng(0).integers(7, V, (1, 9))
    ids[0, 5] = MASK
    config, tensors = make(name)
    places = np.arange(9)[None]
    logits = run_theirs(name, config, tensors, ids, places >= 0, places)[1]
    filled = np.asarray(task.model.fill_logits(loaded.params, ids))[0, 5]
    np.testing.assert_allclose(filled, logits[0, 5 - is_shifted], atol=2e-4)
    export_run(run, tmp_path / "back", kind)
    file = load_file(tmp_path / "back" / "model.safetensors")
    assert file.keys() == tensors.keys()
    for key, value in tensors.items():
        np.testing.assert_array_equal(file[key], value)
    written = json.loads((tmp_path / "back" / "config.json").read_text())
    assert written["mask_token_id"] == MASK and "--" in str(written["auto_map"])
    card = (tmp_path / "back" / "README.md").read_text()
    assert "reads every text causally" not in card
    lines = import_run(tmp_path / "back", tmp_path / "again", settings(tmp_path))
    assert any(f"masked_diffusion from {kind}" in line for line in lines)
    assert load_run(tmp_path / "again").program.task.spec == task.spec


def test_a_causal_run_is_not_exported_as_dream(tmp_path, refuses):
    """Its class would read in both directions."""
    write_folder(tmp_path / "theirs", "Dream few")
    config, run = settings(tmp_path), tmp_path / "run"
    config.objective = "clm"
    import_run(tmp_path / "theirs", run, config, ["objective"])
    with refuses("family=Dream", "attention mask of masked_diffusion", "clm"):
        export_run(run, tmp_path / "back", "Dream")
    export_run(run, tmp_path / "back")
    written = json.loads((tmp_path / "back" / "config.json").read_text())
    assert written["model_type"] == "qwen2"


def test_an_unshifted_dream_is_refused(tmp_path, refuses):
    write_folder(tmp_path / "theirs", "Dream few")
    config = settings(tmp_path)
    config.masked_diffusion = {"shift": False}
    with refuses("causal", "masked_diffusion"):
        import_run(
            tmp_path / "theirs", tmp_path / "run", config, ["masked_diffusion.shift"]
        )


def test_dreams_tokenizer_is_qwens(tmp_path, refuses):
    """Its class is the repository's code, which is not run."""
    letters = ["a", "b", "Ġ", "ab", *sorted({*ByteLevel.alphabet()} - {*"abĠ"})]
    vocab = {letter: i for i, letter in enumerate(letters)}
    (tmp_path / "vocab.json").write_text(json.dumps(vocab))
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n")
    added = {"<|endoftext|>": 257, "<|mask|>": 258}
    (tmp_path / "added_tokens.json").write_text(json.dumps(added))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "Dream"}))
    options = {"tokenizer_class": "DreamTokenizer", "mask_token": "<|mask|>"}
    code = {"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]}
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(options | {"auto_map": code}))
    read = tokenizers.load(tmp_path)
    assert (read.vocab.mask, read.vocab.eos, read.vocab.pad) == (258, 257, 257)
    assert read.encode("ab a").tolist() == [3, 2, 0]
    code = {"AutoTokenizer": ["tokenization_other.OtherTokenizer", None]}
    path.write_text(json.dumps(options | {"auto_map": code}))
    with refuses("auto_map", "does not run"):
        tokenizers.load(tmp_path)
