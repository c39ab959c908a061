"""Each field of the configs of transformers is used, refused, or changes no number.

The fields and their defaults are those of transformers' config classes. `test_peers.py`
tests with its models that a field is inert.
"""

import copy
import dataclasses
import inspect
import random
import re

import pytest
from transformers import CONFIG_MAPPING

from jaxpt.errors import UserError
from jaxpt.hub import fields
from jaxpt.hub.configs import read_config
from jaxpt.hub.families import FAMILIES
from jaxpt.hub.family import find_family, list_families
from jaxpt.hub.windows import FULL, LOCAL, list_kinds

# Fields that a config needs in addition to model_type to be supported.
NEEDED = {
    "modernbert": {"global_attn_every_n_layers": 1},
    "modernbert-decoder": {"global_attn_every_n_layers": 1},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "esm": {
        "vocab_size": 33,
        "pad_token_id": 1,
        "token_dropout": True,
        "mask_token_id": 32,
    },
}

# All but families without a class of transformers, which have tests of their own:
# `test_neobert.py`, `test_ltg.py`, `test_diffusion_families.py`, `test_dit.py`,
# `test_jina_bert.py`.
REMOTE = (
    "neobert",
    "ltgbert",
    "elc_bert",
    "gpt_bert",
    "llada",
    "Dream",
    "jina_bert",
    "mdlm",
    "bd3lm",
)
THEIRS = [kind for kind in FAMILIES if kind not in REMOTE]
LENGTH = "original_max_position_embeddings"
LLAMAS = ("is_causal", "sliding_window", "attention_chunk_size", "layer_types")
# Names that a class no longer has, but that its code or an older version reads.
OLDER = {
    "": ("quantization_config", "transformers_weights", "per_layer_config"),
    "gpt2": ("is_causal", "sliding_window", "n_ctx"),
    "openai-gpt": ("is_causal", "n_ctx", "n_special", "predict_special_tokens"),
    "gpt_bigcode": ("is_causal", "sliding_window"),
    "bert": ("position_embedding_type",),
    "roberta": ("position_embedding_type",),
    "xlm-roberta": ("position_embedding_type",),
    "camembert": ("position_embedding_type",),
    "roberta-prelayernorm": ("position_embedding_type",),
    "nomic_bert": (LENGTH,),
    "gte": (LENGTH, "head_dim"),
    "jina_embeddings_v3": (LENGTH, "head_dim"),
    "electra": ("position_embedding_type",),
    "data2vec-text": ("position_embedding_type",),
    "ernie": ("position_embedding_type",),
    "megatron-bert": ("position_embedding_type",),
    "eurobert": (LENGTH,),
    "esm": ("head_dim",),
    "rembert": ("position_embedding_type",),
    "xlm": (),
    "deberta-v2": (
        *("position_buckets", "share_att_key", "norm_rel_ebd", "conv_kernel_size"),
        *("conv_act", "conv_groups", "embedding_size", "attention_head_size"),
        "cls_dropout",
    ),
    "stablelm": (*LLAMAS, "head_dim", "partial_rotary_factor", LENGTH),
    "starcoder2": (
        *("is_causal", "attention_chunk_size", "layer_types", "head_dim", LENGTH),
    ),
    "nemotron": (*LLAMAS, "partial_rotary_factor", LENGTH),
    "ernie4_5": (*LLAMAS, LENGTH),
    "distilbert": (),
    "mpnet": (),
    "t5": (
        "is_causal",
        "tie_word_embeddings",
        "dense_act_fn",
        "is_gated_act",
        "scale_decoder_outputs",
    ),
    "mt5": ("is_causal", "dense_act_fn", "is_gated_act"),
    "umt5": ("is_causal", "dense_act_fn", "is_gated_act"),
    "t5gemma": (),
    "t5_gemma_module": (LENGTH,),
    "longt5": (
        *("is_causal", "dense_act_fn", "is_gated_act", "scale_decoder_outputs"),
        "decoder_start_token_id",
    ),
    "bart": (
        "is_causal",
        "normalize_before",
        "normalize_embedding",
        "add_final_layer_norm",
        "static_position_embeddings",
    ),
    "blenderbot": (
        *("is_causal", "normalize_before", "add_final_layer_norm"),
        *("static_position_embeddings", "extra_pos_embeddings"),
    ),
    "mbart": (
        *("is_causal", "normalize_before", "normalize_embedding"),
        *("add_final_layer_norm", "add_bias_logits", "static_position_embeddings"),
    ),
    "pegasus": (
        *("is_causal", "normalize_before", "normalize_embedding"),
        *("add_final_layer_norm", "add_bias_logits", "static_position_embeddings"),
    ),
    "marian": (
        *("is_causal", "normalize_before", "normalize_embedding"),
        *("add_final_layer_norm", "add_bias_logits", "static_position_embeddings"),
    ),
    "m2m_100": ("is_causal",),
    "llama": (*LLAMAS, LENGTH),
    "mistral": ("is_causal", "attention_chunk_size", "layer_types", LENGTH),
    "gpt_neo": ("is_causal", "sliding_window", "attention_layers"),
    "gpt_neox": (
        "is_causal",
        "sliding_window",
        "head_dim",
        "rotary_pct",
        "rotary_emb_base",
        "partial_rotary_factor",
        "rope_theta",
        LENGTH,
    ),
    "qwen2": ("is_causal", "attention_chunk_size", "head_dim", LENGTH),
    "qwen3": ("is_causal", "attention_chunk_size", LENGTH),
    "smollm3": ("is_causal", "attention_chunk_size", "head_dim", LENGTH),
    "gemma": (*LLAMAS, LENGTH),
    "gemma2": ("is_causal", "attention_chunk_size", LENGTH),
    "gemma3_text": ("is_causal", "attention_chunk_size", LENGTH),
    "olmo": (*LLAMAS, "head_dim", LENGTH),
    "olmo2": (*LLAMAS, "head_dim", LENGTH),
    "olmo3": ("is_causal", "attention_chunk_size", "head_dim", LENGTH),
    "gptj": ("is_causal", "sliding_window"),
    "codegen": ("is_causal", "sliding_window"),
    "falcon": (*LLAMAS, LENGTH),
    "bloom": (*LLAMAS, "n_embed"),
    "mpt": LLAMAS,
    "nanochat": (*LLAMAS, "head_dim"),
    "granite": (*LLAMAS, "head_dim", LENGTH),
    "phi": (*LLAMAS, "head_dim", LENGTH),
    "phi3": ("is_causal", "attention_chunk_size", "layer_types", "head_dim"),
    "opt": LLAMAS,
    "modernbert": ("reference_compile", "head_dim"),
    "modernbert-decoder": (
        "is_causal",
        "head_dim",
        "global_attn_every_n_layers",
        "sliding_window",
    ),
}
LINEAR = {"type": "linear", "factor": 2.0}
DYNAMIC = {"type": "dynamic", "factor": 2.0}
YARN = {"rope_type": "yarn", "factor": 8.0, LENGTH: 64}
SCALED = {"rope_type": "llama3", "factor": 8.0}
SCALED |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
LONG = {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [2.0] * 48}
# Values to try, for fields whose type does not give any.
OTHERS = {
    "activation_function": ["relu", "gelu_new", "tanh", None],
    "hidden_act": ["relu", "gelu_new", "tanh", None],
    "afn": ["relu", "silu", "gelu_new", None],
    "activation": ["relu", "gelu_new", "tanh", None],
    "hidden_activation": ["relu", "gelu_new", "tanh", None],
    "classifier_activation": ["relu", "gelu_new", "tanh", None],
    "dense_act_fn": ["gelu_new", "silu", "tanh", None],
    "is_gated_act": [True, None],
    "feed_forward_proj": ["gated-gelu", "gelu", "gated-silu", "tanh", "a-b-c", None],
    "scale_decoder_outputs": [False, None],
    "layer_types": [["sliding_attention"] * 22, ["full_attention"], []],
    "position_embedding_type": ["relative_key", None],
    "quantization_config": [{"load_in_8bit": True}, {"quant_method": "gptq"}],
    "transformers_weights": ["other.safetensors"],
    "per_layer_config": [{"0": {"num_attention_heads": 2}}],
    "rope_parameters": [
        LINEAR,
        {"rope_type": "yarn", "factor": 2.0},
        YARN | {"beta_fast": 16, "beta_slow": 0, "attention_factor": 1.5},
        YARN | {"mscale": 0.7, "mscale_all_dim": 0.9, "truncate": False},
        SCALED,
        SCALED | {LENGTH: 64, "rope_theta": 7e5},
        {"rope_theta": 7e5},
        {"rope_theta": None},
        {"full_attention": LINEAR},
        {"full_attention": {"rope_theta": 7e5}},
    ],
    "rope_scaling": [
        LINEAR,
        LONG,
        LONG | {"attention_factor": 1.5, "factor": 2},
        {"rope_type": "dynamic", "factor": 2.0},
        SCALED | {LENGTH: 128},
        {"rope_theta": 3e5},
    ],
    "rope_theta": [7e5, None, "x"],
    "new_decoder_architecture": [True, None],
    "num_ln_in_parallel_attn": [2, 3],
    "num_kv_heads": [1, 3],
    "embedding_multiplier": [12.0, 3, 0, "x"],
    "residual_multiplier": [0.22, 0],
    "attention_multiplier": [0.015625, 40**-0.5, 0.3, 0],
    "logits_scaling": [8.0, 0],
    "global_rope_theta": [7e5, None],
    "partial_rotary_factor": [0.75],
    "tie_word_embeddings": [False, True],
    "is_causal": [False, None],
    "sliding_window": [4],
    "attention_types": [[[["global"], 24]], [[["local"], 24]], [[["global"], 7]], 3]
    + [[[["other"], 24]]],
    "attention_layers": [["global"] * 24, ["local", "global"] * 12, 3],
    "rotary_pct": [0.5, 2, None, "x"],
    "rotary_emb_base": [500.0, None, "x"],
    "attention_chunk_size": [4],
    LENGTH: [64],
    "head_dim": [8, 0],
    "dtype": ["bfloat16"],
    "torch_dtype": ["bfloat16"],
    "num_labels": [5],
    "id2label": [{"0": "a"}],
    "label2id": [{"a": 0}],
    "problem_type": ["regression"],
    "architectures": [["Other"]],
    "output_attentions": [True],
    "attn_implementation": ["eager"],
    "_attn_implementation": ["eager"],
    "experts_implementation": ["eager"],
    "_experts_implementation": ["eager"],
    "transformers_version": ["4.0.0"],
    "name_or_path": ["x"],
    "_name_or_path": ["x"],
    "_commit_hash": ["x"],
    "classifier_pooling": ["mean"],
    "summary_activation": ["tanh"],
    "summary_type": ["mean"],
    "classifier_dropout": [0.3],
    "n_ctx": [7],
    "global_attn_every_n_layers": [3, 2, 0, None],
    "n_inner": [7, 0],
    "pos_att_type": ["c2p", "P2C", "p2p", ["p2c"], ["c2p", "p2p"], [], None],
    "position_buckets": [256, 7, 512, "x"],
    "share_att_key": [True],
    "norm_rel_ebd": ["layer_norm", "none|layer_norm", 3],
    "conv_kernel_size": [3],
    "conv_act": ["gelu"],
    "conv_groups": [2],
    "embedding_size": [128, 64],
    "attention_head_size": [32],
    "cls_dropout": [0.3],
    "pooler_hidden_act": ["tanh"],
    "max_relative_positions": [256, 7, 1024],
    "max_position_embeddings": [1024, 256],
    "final_logit_softcapping": [7.0, None, 0, "x"],
    "attn_logit_softcapping": [7.0, None, 0, "x"],
    "use_bidirectional_attention": [True],
    "rope_local_base_freq": [5e5, None],
    "no_rope_layers": [[1, 0] * 18, [1] * 36, [0, 1] * 18, [0], 3],
    "attn_config": [{"attn_pdrop": 1}, {"alibi": False}, {"clip_qkv": 6.0}, 3],
    "logit_scale": [0.5, "inv_sqrt_d_model"],
    "word_embed_proj_dim": [768, 512],
    "esmfold_config": [{"esm_type": "x"}],
    "vocab_list": [["<cls>"]],
    "emb_layer_norm_before": [True, "x"],
}


def list_fields(kind: str) -> set[str]:
    """All field names of a config class, including aliases."""
    reference = CONFIG_MAPPING[kind]
    result = {field.name for field in dataclasses.fields(reference)}
    result |= set(reference.attribute_map) | set(reference().to_dict())
    for each in reference.__mro__:
        if each.__module__.startswith("transformers"):
            result |= {
                name
                for name, value in vars(each).items()
                if isinstance(value, property) and value.fset is not None
            }
            for method in ("__post_init__", "convert_rope_params_to_dict"):
                if method in vars(each):
                    code = inspect.getsource(vars(each)[method])
                    result |= set(re.findall(r'kwargs\.(?:pop|get)\("(\w+)"', code))
    return (result | set(OLDER[""]) | set(OLDER[kind])) - {"model_type"}


def list_values(kind: str, name: str) -> list:
    """Values of a field other than its default."""
    reference = CONFIG_MAPPING[kind]
    name = reference.attribute_map.get(name, name)
    own = getattr(reference(**NEEDED.get(kind, {})), name, None)
    values = OTHERS.get(name)
    if values is None:
        if isinstance(own, bool):
            values = [not own]
        elif isinstance(own, int):
            values = [2 * own, own // 2, own + 1]
        elif isinstance(own, float):
            values = [own / 2 or 0.1, own * 2 or 0.2]
        else:
            values = [7]
    if own == "gelu_pytorch_tanh":  # gelu_new is the same function
        more = [] if kind == "gemma" else ["gelu"]  # there the same one, too
        values = [*more, *sorted({"relu", "tanh"} & set(values)), None]
    return [copy.deepcopy(value) for value in values if value != own]


# What a family lists as inert, of the fields that its class knows; without windows,
# the options of windows are, too, and with one head of keys, their number.
WINDOWS = {
    "modernbert": {"local_attention", "sliding_window", "local_rope_theta"},
    "modernbert-decoder": {"local_attention", "sliding_window", "local_rope_theta"},
    "falcon": {"num_kv_heads"},
    "qwen2": {"sliding_window", "max_window_layers"},
    "qwen3": {"sliding_window", "max_window_layers"},
    "xlm": {"use_lang_emb"},  # with one language
    "ernie": {"use_task_id"},  # which only the tensors depend on
}
INERT = {
    kind: family.inert_names & list_fields(kind) | WINDOWS.get(kind, set())
    for kind, family in zip(FAMILIES, list_families())
    if kind in THEIRS
}


def read(config: dict):
    """The spec; None if the config is refused."""
    try:
        return read_config(config)[1]
    except UserError as error:
        assert "\n" not in str(error)
        return None


def theirs_of(config: dict) -> dict | None:
    """A config with all fields, as transformers reads it; None if it fails."""
    kind, rest = config["model_type"], copy.deepcopy(config)
    del rest["model_type"]  # rest: from_dict changes what it is given
    try:
        return CONFIG_MAPPING[kind].from_dict(rest).to_dict()
    except Exception:  # any exception means that it does not read this config
        return None


@pytest.mark.parametrize("kind", THEIRS)
def test_every_field_is_used_inert_or_refused(kind):
    minimal = {"model_type": kind} | NEEDED.get(kind, {})
    spec, output = read(minimal), {}
    purposes = find_family(kind).list_purposes
    assert spec is not None
    for name in sorted(list_fields(kind)):
        values = list_values(kind, name)
        assert values, f"{name}: which other values has it?"
        for value in values:
            result = read(minimal | {name: value})
            outcome = "refused" if result is None else "used"
            if result == spec and purposes({name: value}) == purposes({}):
                outcome = "same"
            output.setdefault(name, set()).add(outcome)
    same = {name for name, outcomes in output.items() if "same" in outcomes}
    assert same == INERT[kind]
    assert set(find_family(kind).inert.split()) <= list_fields(kind)
    assert all(output[name] == {"same"} for name in same)


def test_the_fields_of_both_stacks_are_used_or_refused():
    """T5Gemma's encoder and decoder have a config each, equal but for their layers."""
    base = read({"model_type": "t5gemma"})

    def change(both, **more):
        parts = {name: both | more.get(name, {}) for name in ("encoder", "decoder")}
        return read({"model_type": "t5gemma"} | parts)

    same = set()
    for name in sorted(list_fields("t5_gemma_module") - {"tie_word_embeddings"}):
        for value in list_values("t5_gemma_module", name):
            both = change({name: value})
            one = change({}, decoder={name: value})
            if both == base:
                same.add(name)
                assert one == base, name
            elif name not in ("num_hidden_layers", "layer_types"):
                assert one is None, name
    assert not same & (set(find_family("t5gemma").defaults) - OF_THE_WHOLE)
    two = change({"num_hidden_layers": 3}, decoder={"num_hidden_layers": 2})
    assert (two.num_layers, two.num_decoder_layers, two.global_every) == (3, 2, 2)
    local = ["sliding_attention"] * 2
    assert change({"num_hidden_layers": 2}, decoder={"layer_types": local}) is None
    assert change({}, decoder={"cross_attention_hidden_size": 7}) is None


# Fields that T5Gemma's own config sets for its stacks.
OF_THE_WHOLE = {"dropout_rate", "attention_dropout", "initializer_range"}


@pytest.mark.parametrize("kind", THEIRS)
def test_missing_fields_have_the_defaults_of_the_class(kind):
    """Each default of a family is that of transformers' class."""
    minimal = {"model_type": kind} | NEEDED.get(kind, {})
    whole = theirs_of(minimal)
    assert read(minimal) == read(whole) is not None
    for name, value in find_family(kind).defaults.items():
        if name in whole and name not in minimal:
            # A size that the class computes from others is None before that, and the
            # window of no layer is None after that.
            is_off = whole[name] is None and name in WINDOWS.get(kind, ())
            assert value is None or is_off or whole[name] == value, name
    for name in whole:  # and no field is required
        without = {key: value for key, value in whole.items() if key != name}
        if name != "model_type":
            assert read(without) == read(theirs_of(without))


@pytest.mark.parametrize(
    "changes, window, every, base",
    [
        ({}, 64, 3, 10000.0),
        ({"local_attention": 33}, 16, 3, 10000.0),
        ({"local_rope_theta": 500.0}, 64, 3, 500.0),
        ({"rope_parameters": {LOCAL: {"rope_theta": 7.0}}}, 64, 3, 7.0),
        ({"num_hidden_layers": 3, "layer_types": [LOCAL] * 3}, 64, 0, 10000.0),
        ({"num_hidden_layers": 2, "layer_types": [FULL, LOCAL]}, 64, 2, 10000.0),
        ({"num_hidden_layers": 3, "layer_types": [LOCAL, FULL, LOCAL]}, None, 0, 0),
        ({"sliding_window": 3}, None, 0, 0),
    ],
)
def test_modernberts_windows_are_those_of_transformers(changes, window, every, base):
    result = read({"model_type": "modernbert"} | changes)
    reference = theirs_of({"model_type": "modernbert"} | changes)
    if window is None:  # not a supported pattern of layers
        assert result is None
        return
    assert (result.window, result.global_every) == (window, every)
    assert result.local_rotary_base == base and read(reference) == result
    assert list_kinds(result) == reference["layer_types"]


@pytest.mark.parametrize(
    "changes, window, every",
    [
        ({}, 63, 3),
        ({"local_attention": 33}, 15, 3),
        ({"num_hidden_layers": 3, "layer_types": [LOCAL] * 3}, 63, 0),
        ({"global_attn_every_n_layers": 1, "local_attention": None}, 0, 0),
        ({"sliding_window": 64}, 63, 3),
        ({"sliding_window": 65}, None, 0),
        ({"local_attention": 3}, None, 0),
        ({"local_attention": None}, None, 0),
    ],
)
def test_windows_of_modernberts_decoder_count_the_token(changes, window, every):
    config = {"model_type": "modernbert-decoder"} | changes
    result, reference = read(config), theirs_of(config)
    if window is None:
        assert result is None
        return
    assert (result.window, result.global_every) == (window, every)
    assert window in (0, reference["sliding_window"] - 1)
    assert list_kinds(result) == reference["layer_types"]
    assert read(reference) == result


@pytest.mark.parametrize(
    "kind, changes, every",
    [
        ("gemma3_text", {"num_hidden_layers": 4, "sliding_window_pattern": 6}, 0),
        ("gemma3_text", {"num_hidden_layers": 6, "sliding_window_pattern": 6}, 6),
        ("gemma3_text", {"num_hidden_layers": 7, "sliding_window_pattern": 6}, 6),
        ("gemma2", {"num_hidden_layers": 1}, 0),
        ("gemma2", {"num_hidden_layers": 2}, 2),
    ],
)
def test_gemmas_with_fewer_layers_than_the_pattern_are_local(kind, changes, every):
    config = {"model_type": kind} | changes
    result, reference = read(config), theirs_of(config)
    assert result.global_every == every and result.window > 0
    assert list_kinds(result) == reference["layer_types"]
    assert read(reference) == result


ON = {"use_sliding_window": True}


@pytest.mark.parametrize("kind", ["qwen2", "qwen3"])
@pytest.mark.parametrize(
    "changes, window, every",
    [
        ({"sliding_window": 7}, 0, 0),
        (ON | {"max_window_layers": 99}, 0, 0),
        (ON | {"max_window_layers": 0, "sliding_window": None}, 0, 0),
        (ON | {"max_window_layers": 0}, 4095, 0),
        (ON | {"max_window_layers": -3, "sliding_window": 7}, 6, 0),
        (ON | {"max_window_layers": 1, "sliding_window": 2}, 1, 4),
        (ON | {"layer_types": [FULL] * 4}, 0, 0),
        (ON | {"layer_types": [FULL, LOCAL] * 2}, 4095, 2),
        (ON | {"max_window_layers": 3}, None, 0),
        (ON | {"max_window_layers": 0, "sliding_window": 1}, None, 0),
        (ON | {"layer_types": [LOCAL, FULL] * 2}, None, 0),
        (ON | {"layer_types": [LOCAL] * 4, "sliding_window": None}, None, 0),
        ({"layer_types": [LOCAL] * 4}, None, 0),
    ],
)
def test_qwens_windows_are_those_of_transformers(kind, changes, window, every):
    config = {"model_type": kind, "num_hidden_layers": 4} | changes
    result, reference = read(config), theirs_of(config)
    if window is None:  # not supported
        assert result is None and read(reference) is None
        return
    assert (result.window, result.global_every) == (window, every)
    assert read(reference) == result
    assert list_kinds(result) == reference["layer_types"]
    assert not window or reference["sliding_window"] == window + 1
    written = find_family(kind).write(result) | {"model_type": kind}
    assert read(written) == read(theirs_of(written)) == result


@pytest.mark.parametrize("kind", ["llama", "gpt_neox"])
@pytest.mark.parametrize("changes", [{}, SCALED | {LENGTH: 64}])
def test_rotary_positions_are_written_for_older_versions_too(kind, changes):
    """Those before 5 read no `rope_parameters`."""
    rope = {"rope_theta": 7.0} | changes
    if kind == "gpt_neox":
        rope["partial_rotary_factor"] = 0.5
    spec = read({"model_type": kind, "rope_parameters": rope})
    assert bool(spec.rotary_scaling) == bool(changes) and spec.rotary_base == 7
    written = find_family(kind).write(spec) | {"model_type": kind}
    older = {"rope_theta", "rope_scaling", "rotary_pct", "rotary_emb_base"}
    for left_out in (older, {"rope_parameters"}):
        rest = {name: each for name, each in written.items() if name not in left_out}
        assert read(rest) == read(theirs_of(rest)) == spec


@pytest.mark.parametrize(
    "rope, expected",
    [
        ({"type": "linear", "factor": 4}, (4.0,)),
        # 1 + 0.1 ln 8, the default, also of null and of one scale alone.
        (YARN | {"beta_fast": None}, (8.0, 1.0, 32.0, 64.0, 1.2079441541679836)),
        (YARN | {"beta_fast": 16, "mscale": 2}, (8, 1, 16, 64, 1.2079441541679836)),
        (YARN | {"attention_factor": 1.5, "beta_slow": 2}, (8, 2, 32, 64, 1.5)),
        # (1 + 0.1 x 2 ln 8) / (1 + 0.1 ln 8)
        (
            YARN | {"mscale": 2.0, "mscale_all_dim": 1},
            (8, 1, 32, 64, 1.4158883083359673 / 1.2079441541679836),
        ),
        (YARN | {"factor": 1}, (1, 1, 32, 64, 1.0)),
        ({"type": "yarn", "factor": 8}, (8, 1, 32, 2048, 1.2079441541679836)),
    ],
)
def test_scaled_frequencies_are_read_with_their_defaults(rope, expected):
    spec = read({"model_type": "llama", "rope_scaling": rope})
    assert spec is not None
    assert spec.rotary_scaling == pytest.approx(expected, rel=1e-12)
    written = find_family("llama").write(spec) | {"model_type": "llama"}
    assert read(written) == spec


@pytest.mark.slow_cases("bart", "llama", "modernbert")
@pytest.mark.filterwarnings("ignore:.rope_scaling. is deprecated")
@pytest.mark.parametrize("kind", THEIRS)
def test_configs_are_read_as_transformers_reads_them(kind):
    """Old names, too, also with new ones: the normalized config has the same spec."""
    draw, num = random.Random(0), 0
    minimal = {"model_type": kind} | NEEDED.get(kind, {})
    names = sorted(list_fields(kind) - INERT[kind])
    changed = [{name: value} for name in names for value in list_values(kind, name)]
    # All pairs of the many names of rotary parameters, and some other pairs.
    ropes = [each for each in changed if any("rope_" in name for name in each)]
    pairs = [draw.choice(changed) | draw.choice(changed) for _ in range(40)]
    changed += pairs + [one | two for one in ropes for two in ropes]
    for changes in changed:
        if kind == "umt5" and not changes.get("tie_word_embeddings", True):
            continue  # which transformers 5 does not read (`families/umt5.py`)
        actual, reference = read(minimal | changes), theirs_of(minimal | changes)
        if actual is not None and reference is not None:
            assert read(reference) == actual, changes
            num += 1
    assert num > (10 if kind == "t5gemma" else 20)  # whose stacks have the others


@pytest.mark.parametrize("kind", THEIRS)
def test_aliases_are_those_of_the_class(kind):
    assert find_family(kind).aliases == CONFIG_MAPPING[kind].attribute_map


@pytest.mark.parametrize(
    "kind, changes, parts",
    [
        (
            "llama",
            {"rope_scaling": DYNAMIC},
            ["rope_type='dynamic'", "'default', 'linear', 'llama3' or 'yarn'"],
        ),
        ("llama", {"rope_scaling": SCALED | {"factor": None}}, ["factor=None"]),
        ("llama", {"rope_scaling": SCALED | {LENGTH: "8k"}}, [f"{LENGTH}='8k'"]),
        ("llama", {"rope_scaling": SCALED | {"beta_fast": 1}}, ["beta_fast"]),
        (
            "llama",
            {"rope_parameters": SCALED | {"high_freq_factor": 1}},
            ["rotary_scaling=(8.0, 1.0, 1.0, 2048.0)", "high > low"],
        ),
        ("llama", {"rope_scaling": SCALED, LENGTH: 64}, [f"{LENGTH}=64", "None"]),
        (
            "modernbert",
            {"rope_parameters": {"full_attention": SCALED}},
            ["rope_type='llama3'", "must be 'default'"],
        ),
        ("llama", {"rope_parameters": DYNAMIC}, ["rope_type='dynamic'"]),
        ("llama", {"rope_scaling": YARN | {"truncate": False}}, ["truncate=False"]),
        ("llama", {"rope_scaling": YARN | {"mscale": "x"}}, ["mscale='x'", "number"]),
        ("llama", {"rope_scaling": YARN | {"low_freq_factor": 1.0}}, ["low_freq"]),
        ("llama", {"rope_scaling": LINEAR | {"factor": 0.5}}, ["=(0.5,)", ">= 1"]),
        ("llama", {"rope_scaling": {"type": "linear"}}, ["factor=None", "number"]),
        ("llama", {"rope_theta": None}, ["rope_theta=None", "number"]),
        ("llama", {"rope_parameters": {"rope_theta": None}}, ["rope_theta=None"]),
        ("llama", {"rope_parameters": [1]}, ["rope_parameters=[1]", "object"]),
        ("qwen2", {"head_dim": 0}, ["head_dim=0", "at least 1"]),
        ("qwen3", {"head_dim": None}, ["head_dim=None", "integer"]),
        ("qwen3", {"attention_bias": True}, ["attention_bias=True", "False"]),
        (
            "qwen3",
            {"use_sliding_window": True},
            ["max_window_layers=28", "0, 1 or at least 32"],
        ),
        ("mistral", {"sliding_window": 1}, ["sliding_window=1", "null or at least 2"]),
        ("mistral", {"layer_types": [LOCAL] * 32}, ["layer_types=", "None"]),
        ("llama", {"is_causal": False}, ["is_causal=False", "True"]),
        ("llama", {"num_key_value_heads": 0}, ["num_key_value_heads=0", "at least 1"]),
        ("llama", {"quantization_config": {"bits": 4}}, ["quantization_config={'bits"]),
        (
            "llama",
            {"rope_parameters": {"full_attention": LINEAR}},
            ["rope_parameters.full_attention"],
        ),
        ("modernbert", {"rope_scaling": 3}, ["rope_scaling=3", "object"]),
        (
            "modernbert",
            {"rope_parameters": {"full_attention": LINEAR}},
            ["rope_type='linear'"],
        ),
        (
            "modernbert",
            {"rope_parameters": {"rope_theta": 5.0}},
            ["rope_parameters.rope_theta=5.0", "full_attention"],
        ),
        (
            "modernbert",
            {"num_hidden_layers": 1, "layer_types": ["chunked_attention"]},
            ["chunked_attention", "full_attention in the first of 1"],
        ),
        (
            "modernbert",
            {"layer_types": None, "global_attn_every_n_layers": 0},
            ["global_attn_every_n_layers=0", "at least 1"],
        ),
        (
            "modernbert",
            {"hidden_activation": "silu"},
            ["classifier_activation='gelu'", "hidden_activation='silu'"],
        ),
        (
            "gpt_neo",
            {"attention_types": [[["global"], 10**12]]},
            ["attention_types=['global'", "first of 24"],
        ),
        ("gpt_neo", {"attention_types": [[3, 8]]}, ["attention_types=[[3, 8]]"]),
        ("gpt_neo", {"attention_types": [["global", 24]]}, ["attention_types=['g', "]),
        ("gpt_neo", {"attention_layers": [[]] * 24}, ["attention_types=[[], []"]),
        ("gpt_neo", {"num_layers": 10**9}, ["num_layers=1000000000", "at most 1000"]),
        ("gpt_neo", {"window_size": 1}, ["window_size=1", "at least 2"]),
        ("gpt_neox", {"attention_bias": False}, ["attention_bias=False", "True"]),
        ("gpt_neox", {"rotary_pct": 0.27}, ["rotary_fraction=0.27", "even"]),
        ("gpt_neox", {"rotary_pct": "x"}, ["partial_rotary_factor='x'", "number"]),
        ("mpnet", {"relative_attention_num_buckets": 8}, ["num_buckets=8", "32"]),
        ("gemma2", {"sliding_window": None}, ["sliding_window=None", "at least 2"]),
        ("gemma2", {"attn_logit_softcapping": 0}, ["attn_logit_softcapping=0"]),
        ("gemma2", {"final_logit_softcapping": "x"}, ["='x'", "a number or null"]),
        ("gemma3_text", {"sliding_window_pattern": 0}, ["pattern=0", "at least 1"]),
        ("gemma3_text", {"layer_types": [FULL, LOCAL] * 13}, ["last of every n"]),
        ("gemma3_text", {"rope_scaling": DYNAMIC}, ["type='dynamic'", "rope_type"]),
        ("olmo3", {"rope_scaling": LINEAR}, ["rope_scaling.type='linear'"]),
        ("olmo3", {"rope_scaling": {"rope_type": "dynamic"}}, ["rope_type='dynamic'"]),
        ("gemma3_text", {"use_bidirectional_attention": "x"}, ["x", "false"]),
        ("opt", {"word_embed_proj_dim": 512}, ["proj_dim=512", "hidden_size=768"]),
        ("opt", {"do_layer_norm_before": False}, ["norm_before=False", "True"]),
        ("smollm3", {"no_rope_layers": [0, 1] * 18}, ["no_rope_layers=", "last of"]),
        ("smollm3", {"no_rope_layers": [1]}, ["no_rope_layers=[1]", "36"]),
        ("smollm3", {"no_rope_layer_interval": 0}, ["interval=0", "at least 1"]),
        ("smollm3", {"layer_types": [LOCAL] * 36}, ["layer_types=", "all 36"]),
        ("smollm3", {"use_sliding_window": True}, ["use_sliding_window=True"]),
        ("bloom", {"apply_residual_connection_post_layernorm": True}, ["norm=True"]),
        ("codegen", {"n_head": 2, "rotary_dim": 4}, ["n_head=2", "multiple of 4"]),
        ("openai-gpt", {"afn": "gelu_new"}, ["afn='gelu_new'", "one of gelu, relu"]),
        ("bloom", {"slow_but_exact": True}, ["slow_but_exact=True", "False"]),
        ("mpt", {"attn_config": {"clip_qkv": 6}}, ["attn_config.clip_qkv=6", "None"]),
        ("mpt", {"attn_config": {"alibi_bias_max": 16}}, ["alibi_bias_max=16", "8"]),
        ("mpt", {"attn_config": {"rope": True}}, ["attn_config.rope=True", "known"]),
        ("mpt", {"attn_config": [1]}, ["attn_config=[1]", "an object"]),
        ("mpt", {"expansion_ratio": 2}, ["expansion_ratio=2", "4"]),
        ("olmo", {"clip_qkv": 8.0}, ["clip_qkv=8.0", "None"]),
        ("olmo2", {"attention_bias": True}, ["attention_bias=True", "False"]),
        ("phi", {"qk_layernorm": True}, ["qk_layernorm=True", "False"]),
        ("phi3", {"rope_scaling": DYNAMIC}, ["rope_type='dynamic'", "'default'"]),
        ("phi3", {"rope_scaling": {"type": "longrope"}}, ["short_factor=None"]),
        ("phi3", {"rope_scaling": LONG | {"long_factor": [2]}}, ["long_factor=", "48"]),
        ("phi3", {"rope_scaling": LONG | {"beta": 2}}, ["rope_parameters.beta"]),
        ("phi3", {"rope_scaling": LONG, LENGTH: 0}, [f"{LENGTH}=0", "at least 1"]),
        (
            "phi3",
            {"rope_scaling": LONG, "num_attention_heads": 16},
            ["rotary_factors=", "194 numbers"],
        ),
        ("t5", {"feed_forward_proj": "x-relu"}, ["feed_forward_proj='x-relu'"]),
        ("t5", {"num_decoder_layers": 0}, ["num_decoder_layers=0", "at least 1"]),
        ("esm", {"mask_token_id": None}, ["mask_token_id=None", "token_dropout=true"]),
        ("esm", {"is_folding_model": True}, ["is_folding_model=True", "False"]),
        ("esm", {"pad_token_id": None}, ["pad_token_id=None", "'absolute'"]),
        ("esm", {"vocab_size": None}, ["vocab_size=None", "at least 1"]),
        ("esm", {"position_embedding_type": "x"}, ["'absolute' or 'rotary'"]),
        ("esm", {"emb_layer_norm_before": 1}, ["before=1", "true, false or null"]),
        ("rembert", {"input_embedding_size": 1152}, ["=1152", "not hidden_size=1152"]),
        ("rembert", {"output_embedding_size": 0}, ["size=0", "at least 1"]),
        ("rembert", {"tie_word_embeddings": True}, ["embeddings=True", "False"]),
        ("xlm", {"n_langs": 15}, ["use_lang_emb=True with n_langs=15", "languages"]),
        ("xlm", {"causal": True}, ["causal=True", "False"]),
        ("xlm", {"asm": True}, ["asm=True", "False"]),
        ("roberta", {"pad_token_id": None}, ["pad_token_id=None", "integer"]),
        ("roberta", {"pad_token_id": -1}, ["pad_token_id=-1", "at least 0"]),
        ("gpt2", {"n_embd": 16.0}, ["n_embd=16.0", "integer"]),
        ("gpt2", {"n_embd": True}, ["n_embd=True", "integer"]),
        ("gpt2", {"hidden_size": None}, ["hidden_size=None", "integer"]),
        ("gpt2", {"tie_word_embeddings": "no"}, ["tie_word_embeddings='no'", "true"]),
    ],
)
def test_refusals_name_the_field(kind, changes, parts, refuses):
    minimal = {"model_type": kind} | NEEDED.get(kind, {})
    with refuses(*parts):
        read_config(minimal | changes)


def test_activations_are_known_to_transformers():
    assert set(fields.ACTIVATION_NAMES.values()) <= set(fields.ACTIVATIONS)
