"""Small models of every family, computed by jaxpt, and their comparison."""

import dataclasses
import random

import jax
import jax.numpy as jnp
import numpy as np

from jaxpt.hub.configs import read_config
from jaxpt.hub.convert import flatten, from_hf, refine_spec, to_hf
from jaxpt.nn.heads import TokenScore
from jaxpt.nn.transformer import Transformer
from jaxpt.ops import masks as attention_masks

V, SPECIALS = 30, {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
BERT = {
    "vocab_size": V,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 20,
}
T5 = {
    "vocab_size": V,
    "d_model": 16,
    "d_kv": 6,
    "d_ff": 24,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}
BART = {
    "vocab_size": V,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 20,
}
# The start is not the padding, whose embedding PyTorch freezes. Without what the class
# would change in generation.
BARTS = {"activation_function": "relu", "decoder_layers": 1, "pad_token_id": 3}
BARTS |= {"forced_eos_token_id": None, "decoder_start_token_id": 0}
BLENDERBOT = BARTS | {"encoder_no_repeat_ngram_size": 0}
GPT2 = {"vocab_size": V, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 20}
NEO = {
    "vocab_size": V,
    "hidden_size": 16,
    "num_layers": 3,
    "num_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 20,
    "attention_types": [[["global", "local", "global"], 1]],
    "window_size": 3,
}
NEOX = BERT | {"hidden_size": 20, "num_attention_heads": 2}
NEOX |= {"rope_parameters": {"partial_rotary_factor": 0.4}}
NEOX_SERIAL = {"use_parallel_residual": False, "tie_word_embeddings": True}
# As the encoders of configs/quickstart.py.
NEOX_MASKED = NEOX_SERIAL | {"is_causal": False, "hidden_act": "relu"}
LLAMA = {
    "vocab_size": V,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 20,
}
# Of three frequencies, one is kept, one interpolated and one divided by the factor.
SCALED = {
    "rope_type": "llama3",
    "rope_theta": 100.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 40,
}
MODERN = BERT | {
    "global_attn_every_n_layers": 1,
    "cls_token_id": 1,
    "sep_token_id": 2,
    "reference_compile": False,
}
LOCAL = {
    "num_hidden_layers": 5,
    "global_attn_every_n_layers": 3,
    "local_attention": 4,
    "local_rope_theta": 100.0,
}
QWEN = LLAMA | SPECIALS | {"max_window_layers": 2}
# The first of three layers has no window.
QWEN_LOCAL = {
    "num_hidden_layers": 3,
    "head_dim": 6,
    "use_sliding_window": True,
    "sliding_window": 3,
    "max_window_layers": 1,
    "tie_word_embeddings": True,
}
OPT = BERT | {"ffn_dim": 24, "dropout": 0.0} | SPECIALS
del OPT["intermediate_size"]
# Of three layers, the second has no rotary positions.
SMOL = LLAMA | SPECIALS | {"num_hidden_layers": 3, "no_rope_layer_interval": 2}
STABLE = LLAMA | {"rope_parameters": {"partial_rotary_factor": 0.5}}
NEMOTRON = LLAMA | SPECIALS | {"rope_parameters": {"partial_rotary_factor": 0.5}}
PARALLEL = {"use_parallel_residual": True, "use_qkv_bias": True}
OLMO_3 = {"num_hidden_layers": 5, "sliding_window": 3, "rope_theta": 100.0}
GPTJ = GPT2 | {"n_head": 2, "n_inner": 24, "rotary_dim": 4}
CODEGEN = GPTJ | SPECIALS | {"n_embd": 32, "n_head": 8, "rotary_dim": 2}
FALCON = {name: value for name, value in BERT.items() if name != "intermediate_size"}
FALCON |= {"ffn_hidden_size": 24}
FALCON_NEW = {"new_decoder_architecture": True, "multi_query": False}
FALCON_NEW |= {"num_kv_heads": 2}
BLOOM = {"vocab_size": V, "hidden_size": 18, "n_layer": 2, "n_head": 3}
MPT = {"vocab_size": V, "d_model": 18, "n_layers": 2, "n_heads": 3, "max_seq_len": 20}
GRANITE = {"embedding_multiplier": 12.0, "residual_multiplier": 0.22}
GRANITE |= {"attention_multiplier": 0.125, "logits_scaling": 3.0}
PHI = BERT | SPECIALS | {"hidden_size": 32, "num_key_value_heads": 2}
PHI_3 = LLAMA | SPECIALS | {"sliding_window": 3}
# Rows of 13 are longer than the pretraining's.
LONG = {"original_max_position_embeddings": 9, "rope_parameters": {"rope_theta": 100.0}}
LONG["rope_parameters"] |= {"rope_type": "longrope", "long_factor": [1.5, 4.0]}
LONG["rope_parameters"]["short_factor"] = [1.0, 1.2]
GEMMA = LLAMA | SPECIALS | {"num_hidden_layers": 3, "head_dim": 6}
GEMMA |= {"sliding_window": 3, "query_pre_attn_scalar": 4}
# Of three layers, the last attends to everything.
GEMMA_3 = GEMMA | {"sliding_window_pattern": 3}
GEMMA_BOTH = {"use_bidirectional_attention": True, "sliding_window": 8}
LLAMA_3 = LLAMA | SPECIALS | {"head_dim": 6, "rope_parameters": SCALED}
BART_KINDS = ("blenderbot", "mbart", "pegasus", "marian", "m2m_100")
ROTARY_BERTS = ("nomic_bert", "gte", "jina_embeddings_v3")
# v3's form, with few buckets.
DEBERTA = BERT | {
    "relative_attention": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_buckets": 4,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_biased_input": False,
    "max_relative_positions": 12,
    "pad_token_id": 0,
}
# v2's options that v3 has not, and a bucket for each distance.
DEBERTA_2 = DEBERTA | {
    "position_buckets": -1,
    "share_att_key": False,
    "norm_rel_ebd": "none",
    "position_biased_input": True,
    "max_relative_positions": 6,
    "type_vocab_size": 2,
    "hidden_act": "relu",
}
XLM = {"vocab_size": V, "emb_dim": 16, "n_layers": 2, "n_heads": 4}
XLM |= SPECIALS | {"max_position_embeddings": 20}
REMBERT = BERT | {"input_embedding_size": 8, "output_embedding_size": 20}
REMBERT |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
ESM = BERT | {
    "position_embedding_type": "rotary",
    "token_dropout": True,
    "pad_token_id": 1,
    "mask_token_id": 4,
}
T5GEMMA = {
    name: LLAMA
    | SPECIALS
    | {
        "pad_token_id": 3,  # which its decoder masks
        "num_hidden_layers": num,
        "head_dim": 6,
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": 3,
        "query_pre_attn_scalar": 4,
        "attn_logit_softcapping": 2.0,
    }
    for name, num in (("encoder", 3), ("decoder", 2))
}
T5GEMMA |= {"vocab_size": V, "decoder_start_token_id": 0, "initializer_range": 0.02}
CASES = {
    "gpt2": ("gpt2", "causal", GPT2 | SPECIALS),
    "gpt2-inner": (
        "gpt2",
        "causal",
        GPT2 | SPECIALS | {"n_inner": 20, "activation_function": "relu"},
    ),
    "openai-gpt": ("openai-gpt", "causal", GPT2 | SPECIALS),
    "gpt_bigcode": ("gpt_bigcode", "causal", GPT2 | SPECIALS),
    "gpt_bigcode-heads": (
        "gpt_bigcode",
        "causal",
        GPT2 | SPECIALS | {"multi_query": False, "n_inner": 20},
    ),
    "bert": ("bert", "masked", BERT | {"pad_token_id": 0}),
    "bert-relu": (
        "bert",
        "masked",
        BERT | {"pad_token_id": 0, "hidden_act": "relu", "type_vocab_size": 5},
    ),
    "roberta": ("roberta", "masked", BERT | {"pad_token_id": 1, "type_vocab_size": 1}),
    "roberta-prelayernorm": (
        "roberta-prelayernorm",
        "masked",
        BERT | {"pad_token_id": 1},
    ),
    "nomic_bert": ("nomic_bert", "masked", BERT | {"pad_token_id": 0}),
    "gte": ("gte", "masked", BERT | {"pad_token_id": 1, "type_vocab_size": 0}),
    "jina_embeddings_v3": ("jina_embeddings_v3", "masked", BERT | {"pad_token_id": 1}),
    "xlm-roberta": ("xlm-roberta", "masked", BERT | {"pad_token_id": 1}),
    "camembert": ("camembert", "masked", BERT | {"pad_token_id": 3}),
    "data2vec-text": ("data2vec-text", "masked", BERT | {"pad_token_id": 1}),
    "ernie": ("ernie", "masked", BERT | {"pad_token_id": 0}),
    "megatron-bert": ("megatron-bert", "masked", BERT | {"pad_token_id": 0}),
    "deberta-v2": ("deberta-v2", "masked", DEBERTA),
    "deberta-v2-apart": ("deberta-v2", "masked", DEBERTA_2),
    "eurobert": ("eurobert", "masked", LLAMA | SPECIALS | {"mask_token_id": 3}),
    "rembert": ("rembert", "masked", REMBERT),
    "xlm": ("xlm", "masked", XLM),
    # Rotary positions and token dropout as in ESM-2; ESM-1b's table and norm.
    "esm": ("esm", "masked", ESM),
    "esm-table": (
        "esm",
        "masked",
        ESM | {"position_embedding_type": "absolute", "emb_layer_norm_before": True},
    ),
    "distilbert": (
        "distilbert",
        "masked",
        {
            "vocab_size": V,
            "dim": 16,
            "n_layers": 2,
            "n_heads": 4,
            "hidden_dim": 24,
            "max_position_embeddings": 20,
        },
    ),
    "mpnet": ("mpnet", "masked", BERT | {"pad_token_id": 1}),
    "electra-generator": ("electra", "generator", BERT | {"embedding_size": 8}),
    "electra-discriminator": (
        "electra",
        "discriminator",
        BERT | {"embedding_size": 8},
    ),
    "electra-same": ("electra", "discriminator", BERT | {"embedding_size": 16}),
    "t5": ("t5", "seq2seq", T5),
    "t5-1.1": (
        "t5",
        "seq2seq",
        T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    ),
    "mt5": ("mt5", "seq2seq", T5),
    "umt5": ("umt5", "seq2seq", T5 | {"tie_word_embeddings": False}),
    "t5gemma": ("t5gemma", "seq2seq", T5GEMMA | {"pad_token_id": 3}),
    # Blocks of 4 tokens, of which each sees the 3 before and after it.
    "longt5": ("longt5", "seq2seq", T5 | {"local_radius": 3}),
    "bart": ("bart", "seq2seq", BART),
    "blenderbot": ("blenderbot", "seq2seq", BART | BLENDERBOT),
    "mbart": ("mbart", "seq2seq", BART | BARTS),
    "pegasus": ("pegasus", "seq2seq", BART | BARTS),
    "marian": ("marian", "seq2seq", BART | BARTS | {"activation_function": "silu"}),
    "m2m_100": ("m2m_100", "seq2seq", BART | BARTS | {"dropout": 0.0}),
    "llama": ("llama", "causal", LLAMA | SPECIALS),
    "llama-tied": (
        "llama",
        "causal",
        LLAMA
        | SPECIALS
        | {"tie_word_embeddings": True, "head_dim": 6, "num_key_value_heads": 1},
    ),
    "llama-3.1": ("llama", "causal", LLAMA_3),
    # A window of 3: a token and the two before it.
    "mistral": ("mistral", "causal", LLAMA | SPECIALS | {"sliding_window": 3}),
    "gpt_neo": ("gpt_neo", "causal", NEO | SPECIALS),
    "gpt_neox": ("gpt_neox", "causal", NEOX | SPECIALS),
    "gpt_neox-serial": ("gpt_neox", "causal", NEOX | SPECIALS | NEOX_SERIAL),
    "gpt_neox-masked": ("gpt_neox", "masked", NEOX | SPECIALS | NEOX_MASKED),
    "qwen2": ("qwen2", "causal", QWEN),
    "qwen3": ("qwen3", "causal", QWEN | {"head_dim": 6}),
    "qwen3-local": ("qwen3", "causal", QWEN | QWEN_LOCAL),
    "opt": ("opt", "causal", OPT),
    "gemma": ("gemma", "causal", LLAMA | SPECIALS | {"head_dim": 6}),
    "gemma2": ("gemma2", "causal", GEMMA | {"attn_logit_softcapping": 2.0}),
    "gemma3_text": ("gemma3_text", "causal", GEMMA_3),
    # Its window is of 4 tokens on either side.
    "gemma3_text-masked": ("gemma3_text", "masked", GEMMA_3 | GEMMA_BOTH),
    "smollm3": ("smollm3", "causal", SMOL),
    "olmo": ("olmo", "causal", LLAMA | SPECIALS),
    "olmo2": ("olmo2", "causal", LLAMA | SPECIALS),
    # Of five layers, the fourth attends to everything.
    "olmo3": ("olmo3", "causal", LLAMA | SPECIALS | OLMO_3),
    "gptj": ("gptj", "causal", GPTJ | SPECIALS),
    # Two heads in each of its four parts.
    "codegen": ("codegen", "causal", CODEGEN),
    "falcon": ("falcon", "causal", FALCON | SPECIALS | {"num_kv_heads": 1}),
    "falcon-new": (
        "falcon",
        "causal",
        FALCON | SPECIALS | FALCON_NEW,
    ),
    "bloom": ("bloom", "causal", BLOOM | SPECIALS),
    "mpt": ("mpt", "causal", MPT | SPECIALS),
    "nanochat": ("nanochat", "causal", LLAMA | SPECIALS | {"attention_bias": True}),
    "granite": ("granite", "causal", LLAMA | SPECIALS | GRANITE),
    "phi": ("phi", "causal", PHI),
    "phi3": ("phi3", "causal", PHI_3),
    "phi3-long": ("phi3", "causal", PHI_3 | LONG),
    "stablelm": ("stablelm", "causal", STABLE | SPECIALS),
    "stablelm-parallel": ("stablelm", "causal", STABLE | SPECIALS | PARALLEL),
    "starcoder2": ("starcoder2", "causal", LLAMA | SPECIALS | {"sliding_window": 3}),
    "nemotron": ("nemotron", "causal", NEMOTRON),
    "ernie4_5": ("ernie4_5", "causal", LLAMA | SPECIALS | {"head_dim": 6}),
    "modernbert": ("modernbert", "masked", MODERN | SPECIALS),
    "modernbert-local": (
        "modernbert",
        "masked",
        MODERN | SPECIALS | LOCAL,
    ),
    "modernbert-decoder": (
        "modernbert-decoder",
        "causal",
        BERT | SPECIALS | {"global_attn_every_n_layers": 1},
    ),
    # In its local layers, a token sees itself and the two before it.
    "modernbert-decoder-local": (
        "modernbert-decoder",
        "causal",
        BERT | SPECIALS | LOCAL | {"local_attention": 6},
    ),
}


def draw_settings(kind: str, seed: str) -> dict:
    """Odd sizes and settings of a family, drawn at random."""
    draw = random.Random(f"{kind} {seed}")

    def pick(*values):
        return draw.choice(values)

    heads, num_layers = pick(1, 2, 3, 4, 6), pick(1, 2, 3, 5)
    settings = {
        "num_hidden_layers": num_layers,
        "num_attention_heads": heads,
        "hidden_size": heads * pick(2, 6, 10),
        "intermediate_size": pick(1, 17, 24, 40),
        "max_position_embeddings": pick(20, 33, 64),
    }
    if kind in ("mt5", "umt5", "longt5"):
        return {
            "num_layers": num_layers,
            # Generation of transformers fails with more layers than the encoder has.
            "num_decoder_layers": pick(None, 1, num_layers),
            "num_heads": heads,
            "d_model": pick(12, 17, 30),
            "d_kv": pick(1, 6, 10),
            "d_ff": settings["intermediate_size"],
            "relative_attention_num_buckets": pick(4, 8, 32),
            "relative_attention_max_distance": pick(20, 60),
            "layer_norm_epsilon": pick(1e-6, 1e-3),
            "feed_forward_proj": pick("gated-gelu", "gated-gelu", "gated-silu", "relu"),
            "initializer_factor": 0.3,
            "pad_token_id": 0,
            **({"tie_word_embeddings": heads == 3} if kind == "umt5" else {}),
            **(
                {
                    "local_radius": pick(1, 2, 4),
                    "tie_word_embeddings": pick(True, False),
                }
                if kind == "longt5"
                else {}
            ),
        }
    if kind == "gpt_bigcode":
        return {
            "n_layer": num_layers,
            "n_head": heads,
            "n_embd": settings["hidden_size"],
            "n_inner": pick(None, 1, 17),
            "n_positions": settings["max_position_embeddings"],
            "multi_query": pick(True, False),
            "layer_norm_epsilon": pick(1e-5, 1e-3),
            "activation_function": pick("gelu_pytorch_tanh", "gelu", "relu"),
            "scale_attn_weights": pick(True, True, False),
            "tie_word_embeddings": pick(True, False),
            **SPECIALS,
        }
    if kind in ("gptj", "codegen"):
        width = pick(4, 7, 16)
        heads = pick(4, 8) if kind == "codegen" else heads
        return {
            "n_layer": num_layers,
            "n_head": heads,
            "n_embd": heads * width,
            "n_inner": pick(None, 1, 17),
            "n_positions": settings["max_position_embeddings"],
            "rotary_dim": pick(2, 4, 6 if width > 4 else 4),
            "layer_norm_epsilon": pick(1e-5, 1e-3),
            "activation_function": pick("gelu_new", "gelu", "relu"),
            "tie_word_embeddings": pick(True, False),
            **SPECIALS,
        }
    if kind == "openai-gpt":
        return {
            "n_layer": num_layers,
            "n_head": heads,
            "n_embd": settings["hidden_size"],
            "n_positions": settings["max_position_embeddings"],
            "layer_norm_epsilon": pick(1e-5, 1e-3),
            "afn": pick("gelu", "gelu", "relu", "silu"),
            "tie_word_embeddings": pick(True, False),
            **SPECIALS,
        }
    if kind == "bloom":
        return {
            "n_layer": num_layers,
            "n_head": heads,
            "hidden_size": settings["hidden_size"],
            "layer_norm_epsilon": pick(1e-5, 1e-3),
            "tie_word_embeddings": pick(True, False),
            **SPECIALS,
        }
    if kind == "mpt":
        return {
            "n_layers": num_layers,
            "n_heads": heads,
            "d_model": settings["hidden_size"],
            "max_seq_len": settings["max_position_embeddings"],
            "layer_norm_epsilon": pick(1e-5, 1e-3),
            "tie_word_embeddings": pick(True, False),
            **SPECIALS,
        }
    if kind == "falcon":
        return {
            "num_hidden_layers": num_layers,
            "num_attention_heads": heads,
            "hidden_size": settings["hidden_size"],
            "ffn_hidden_size": pick(None, 17, 24),
            "max_position_embeddings": settings["max_position_embeddings"],
            "layer_norm_epsilon": pick(1e-5, 1e-3),
            "activation": pick("gelu", "gelu", "relu"),
            "bias": pick(False, True),
            "tie_word_embeddings": pick(True, False),
            "rope_parameters": pick(
                {"rope_type": "default", "rope_theta": 100.0}, _draw_scaling(draw)
            ),
            **SPECIALS,
            **pick(
                {
                    "multi_query": pick(True, False),
                    "num_kv_heads": None,  # which is that of `multi_query`
                    "parallel_attn": pick(True, False),
                },
                {
                    "new_decoder_architecture": True,
                    "num_kv_heads": pick(*(n for n in (1, 2, heads) if heads % n == 0)),
                    "num_ln_in_parallel_attn": pick(None, 1, 2),
                },
            ),
        }
    if kind == "gpt_neo":
        every = pick(1, 0, 2, 3, num_layers)
        local = [every == 0 or i % every > 0 for i in range(num_layers)]
        kinds = ["local" if each else "global" for each in local]
        return settings | {
            "attention_types": [[[each], 1] for each in kinds],
            "window_size": pick(2, 3, 8),
            "layer_norm_epsilon": pick(1e-5, 1e-3),
            "activation_function": pick("gelu_new", "relu", "silu"),
            "tie_word_embeddings": pick(True, False),
            **SPECIALS,
        }
    if kind == "gpt_neox":
        width = pick(6, 8, 13, 16)
        rope = pick({"rope_type": "default", "rope_theta": 100.0}, _draw_scaling(draw))
        parts = [i / width for i in range(2, width + 1, 2)]
        return settings | {
            "hidden_size": heads * width,
            "rope_parameters": rope | {"partial_rotary_factor": pick(*parts)},
            "use_parallel_residual": pick(True, True, False),
            "layer_norm_eps": pick(1e-5, 1e-3),
            "hidden_act": pick("gelu", "gelu_new", "relu"),
            "tie_word_embeddings": pick(True, False),
            **SPECIALS,
        }
    if kind == "t5gemma":
        both = {
            "num_attention_heads": heads,
            "num_key_value_heads": pick(*(n for n in (1, 2, heads) if heads % n == 0)),
            "hidden_size": settings["hidden_size"],
            "head_dim": pick(2, 6, 14),
            "intermediate_size": settings["intermediate_size"],
            "sliding_window": pick(2, 3, 8),
            "query_pre_attn_scalar": pick(1, 4, 50),
            "final_logit_softcapping": pick(None, 3.0, 30.0),
            "attn_logit_softcapping": pick(None, 1.5, 50.0),
            "hidden_activation": pick("gelu_pytorch_tanh", "silu", "relu"),
            "rms_norm_eps": pick(1e-6, 1e-3),
            "rope_parameters": {"rope_type": "default", "rope_theta": pick(10.0, 1e4)},
        }
        parts = {
            "encoder": settings["num_hidden_layers"],
            "decoder": pick(1, 2, 4),
        }
        parts = {
            name: T5GEMMA[name] | both | {"num_hidden_layers": num}
            for name, num in parts.items()
        }
        return parts | {"tie_word_embeddings": pick(True, False)}
    if kind in BART_KINDS:
        mlp_width = settings["intermediate_size"]
        return {
            "encoder_layers": num_layers,
            "decoder_layers": pick(1, 2, 4),
            "encoder_attention_heads": heads,
            "decoder_attention_heads": heads,
            "d_model": max(4, settings["hidden_size"]),
            "encoder_ffn_dim": mlp_width,
            "decoder_ffn_dim": mlp_width,
            "max_position_embeddings": settings["max_position_embeddings"],
            "activation_function": pick("relu", "gelu", "silu"),
            "scale_embedding": pick(True, False),
        }
    if kind == "opt":
        return {
            "num_hidden_layers": num_layers,
            "num_attention_heads": heads,
            "hidden_size": settings["hidden_size"],
            "ffn_dim": settings["intermediate_size"],
            "max_position_embeddings": settings["max_position_embeddings"],
            "enable_bias": pick(True, False),
            "activation_function": pick("relu", "gelu", "silu"),
            "tie_word_embeddings": pick(True, False),
            **SPECIALS,
        }
    if kind == "modernbert-decoder":
        every = pick(1, 2, 3, num_layers)
        kinds = [
            "sliding_attention" if i % every else "full_attention"
            for i in range(num_layers)
        ]
        act = pick("gelu", "relu", "silu")
        return settings | {
            "layer_types": pick(kinds, ["sliding_attention"] * num_layers),
            "local_attention": pick(4, 5, 6, 16),
            "rope_parameters": {
                name: {"rope_type": "default", "rope_theta": pick(10.0, 1e4, 5e5)}
                for name in ("sliding_attention", "full_attention")
            },
            "norm_eps": pick(1e-5, 1e-3),
            "hidden_activation": act,
            "classifier_activation": act,
            **SPECIALS,
        }
    if kind == "mpnet":
        return settings | {
            "layer_norm_eps": pick(1e-12, 1e-3),
            "pad_token_id": 1,
        }
    if kind in ROTARY_BERTS:
        settings |= {
            "layer_norm_eps": pick(1e-12, 1e-5, 1e-3),
            "type_vocab_size": pick(1, 2, 5),
            "pad_token_id": pick(0, 1, 3),
            "rope_parameters": pick(None, _draw_scaling(draw))
            or {"rope_type": "default", "rope_theta": pick(10.0, 1e4, 5e5)},
        }
    if kind == "nomic_bert":
        settings["hidden_act"] = pick("silu", "gelu", "relu")
        settings["head_dim"] = pick(None, 2, 8)
    if kind == "gte":
        settings["type_vocab_size"] = pick(0, 1, 2)
    if kind in ROTARY_BERTS:
        return settings
    if kind == "deberta-v2":
        side = pick(-1, 2, 4, 8, 18)
        return settings | {
            "layer_norm_eps": pick(1e-12, 1e-7, 1e-3),
            "hidden_act": pick("gelu", "relu", "gelu_new"),
            "type_vocab_size": pick(2, 5),
            "pos_att_type": pick(["c2p"], ["p2c"], ["p2c", "c2p"], "c2p|p2c"),
            "share_att_key": pick(True, False),
            "norm_rel_ebd": pick("layer_norm", "none"),
            "position_biased_input": pick(True, False),
            "position_buckets": side,
            # Also shorter than the rows.
            "max_relative_positions": pick(6, 12, 40) if side < 6 else pick(20, 300),
            "pad_token_id": 0,
        }
    if kind == "esm":
        return settings | {
            "layer_norm_eps": pick(1e-12, 1e-5, 1e-3),
            "position_embedding_type": pick("rotary", "rotary", "absolute"),
            "rope_theta": pick(10.0, 1e4),
            "emb_layer_norm_before": pick(True, False, None),
            "token_dropout": pick(True, True, False),
            "mask_token_id": pick(3, 4, 29),
            "pad_token_id": pick(0, 1, 2),
        }
    if kind == "xlm":
        num = pick(1, 17)
        return {
            "n_layers": num_layers,
            "n_heads": heads,
            "emb_dim": settings["hidden_size"],
            "max_position_embeddings": settings["max_position_embeddings"],
            "layer_norm_eps": pick(1e-12, 1e-5, 1e-3),
            "gelu_activation": pick(True, True, False),
            "tie_word_embeddings": pick(True, False),
            "n_langs": num,
            "use_lang_emb": num == 1,
            "pad_token_id": pick(0, 2),
        }
    if kind == "rembert":
        width = settings["hidden_size"]
        settings |= {
            "input_embedding_size": pick(*({1, 7, 16, 24} - {width})),
            "output_embedding_size": pick(2, 7, 16, 33, width),
        }
    if kind in ("ernie", "megatron-bert", "rembert"):
        return settings | {
            "layer_norm_eps": pick(1e-12, 1e-5, 1e-3),
            "hidden_act": pick("gelu", "relu", "gelu_new"),
            "type_vocab_size": pick(2, 5),
            "pad_token_id": 0,
        }
    if kind in ("xlm-roberta", "camembert", "data2vec-text", "roberta-prelayernorm"):
        eps, pad = pick(1e-12, 1e-5, 1e-3), pick(0, 1, 2, 3)
        types = pick(1, 2, 5)
        return settings | {
            "layer_norm_eps": eps,
            "pad_token_id": pad,
            "type_vocab_size": types,
        }
    settings |= {
        "num_key_value_heads": pick(*(n for n in (1, 2, 3, heads) if heads % n == 0)),
        "rms_norm_eps": pick(1e-6, 1e-5, 1e-3),
        "hidden_act": pick("silu", "silu", "relu", "gelu", "gelu_new"),
        "tie_word_embeddings": pick(False, True),
        "rope_parameters": pick(None, _draw_scaling(draw), _draw_scaling(draw))
        or {"rope_type": "default", "rope_theta": pick(10.0, 1e4, 5e5)},
        "head_dim": pick(settings["hidden_size"] // heads, 2, 8, 14),
        **SPECIALS,
    }
    if kind == "nanochat":
        theta = {"rope_type": "default", "rope_theta": pick(10.0, 1e4)}
        settings["rope_parameters"] = theta
        settings["hidden_act"] = pick("relu2", "relu2", "gelu", "silu")
        settings["attention_bias"] = pick(True, False)
        settings["final_logit_softcapping"] = pick(15.0, 3.0, None)
    if kind == "olmo":
        del settings["head_dim"], settings["rms_norm_eps"]
    if kind == "granite":
        del settings["head_dim"]
        settings["embedding_multiplier"] = pick(1, 2.5, 12.0)
        settings["residual_multiplier"] = pick(1.0, 0.22, 0.8)
        settings["attention_multiplier"] = pick(1, 0.5, 0.125, 40**-0.5)
        settings["logits_scaling"] = pick(1, 3.0, 8)
    if kind == "gemma":
        settings["hidden_act"] = pick("gelu", "gelu_pytorch_tanh", "relu", "silu")
    if kind in ("gemma2", "gemma3_text"):
        every = pick(1, 0, 2, 3, num_layers)
        local = [every == 0 or (i + 1) % every > 0 for i in range(num_layers)]
        kinds = ["sliding_attention" if each else "full_attention" for each in local]
        settings["hidden_activation"] = settings.pop("hidden_act")
        settings["layer_types"] = pick(None, kinds)
        settings["sliding_window"] = pick(2, 3, 8)
        settings["query_pre_attn_scalar"] = pick(1, 4, 50)
        settings["final_logit_softcapping"] = pick(None, 3.0, 30.0)
    if kind == "gemma2":
        settings["attn_logit_softcapping"] = pick(None, 1.5, 50.0)
    if kind == "gemma3_text":
        settings["sliding_window_pattern"] = pick(1, 2, 3, 6)
        settings["rope_parameters"] = _draw_layer_ropes(draw)
    if kind == "phi":
        width = pick(8, 12, 16)
        parts = [i / width for i in range(2, width + 1, 2)]
        del settings["head_dim"]
        settings["hidden_size"] = heads * width
        settings["layer_norm_eps"] = settings.pop("rms_norm_eps")
        settings["rope_parameters"]["partial_rotary_factor"] = pick(*parts)
    if kind in ("stablelm", "starcoder2"):
        del settings["head_dim"]
        width = 2 * pick(1, 2, 5, 8)
        settings["hidden_size"] = heads * width
        eps = settings.pop("rms_norm_eps")
    if kind == "stablelm":
        parts = [i / width for i in range(2, width + 1, 2)]
        settings["rope_parameters"]["partial_rotary_factor"] = pick(*parts)
        settings["layer_norm_eps"] = eps
        settings["use_parallel_residual"] = pick(True, False)
        settings["use_qkv_bias"] = pick(True, False)
    if kind == "ernie4_5":
        settings["use_bias"] = pick(True, False)
    if kind == "nemotron":
        width = settings["head_dim"]
        parts = [i / width for i in range(2, width + 1, 2)]
        settings["rope_parameters"]["partial_rotary_factor"] = pick(*parts)
        settings["norm_eps"] = settings.pop("rms_norm_eps")
        settings["hidden_act"] = pick("relu2", "relu2", "gelu", "silu")
    if kind == "starcoder2":
        settings["norm_epsilon"] = eps
        settings["use_bias"] = pick(True, True, False)
        settings["sliding_window"] = pick(None, 2, 3, 8)
    if kind == "phi3":
        width = settings["head_dim"]
        parts = [i / width for i in range(2, width + 1, 2)]
        rope = {"rope_theta": pick(10.0, 1e4), "partial_rotary_factor": pick(*parts)}
        settings["rope_parameters"] = {"rope_type": "default"} | rope
        settings["sliding_window"] = pick(None, 2, 3, 8)
        num = round(width * rope["partial_rotary_factor"]) // 2
        lists = {
            f"{name}_factor": [pick(1.0, 1.3, 4.0) for _ in range(num)]
            for name in ("short", "long")
        }
        magnitude = pick({}, {"attention_factor": 1.3})
        # Rows are of 13: those of the pretraining, or longer ones.
        if pick(True, False):
            # By which the class counts the numbers of a list.
            settings["hidden_size"] = heads * settings.pop("head_dim")
            settings["rope_parameters"] = {"rope_type": "longrope"} | rope
            settings["rope_parameters"] |= lists | magnitude
            settings["original_max_position_embeddings"] = pick(5, 12, 13, 20)
    if kind.startswith("olmo"):
        # A norm of what one number makes is a step, its sign times a constant, and
        # what two make is near one.
        settings["intermediate_size"] = max(17, settings["intermediate_size"])
    if kind == "olmo3":
        every = pick(1, 0, 2, 3, num_layers)
        local = [every == 0 or (i + 1) % every > 0 for i in range(num_layers)]
        kinds = ["sliding_attention" if each else "full_attention" for each in local]
        settings["layer_types"] = pick(None, kinds)
        settings["sliding_window"] = pick(2, 3, 8)
        settings["rope_parameters"] = _draw_layer_ropes(draw)
    if kind == "smollm3":
        settings["no_rope_layer_interval"] = pick(1, 2, 3, 9)
    if kind == "mistral":
        settings["sliding_window"] = pick(None, 2, 3, 8)
    if kind.startswith("qwen"):
        every = pick(1, 0, 2, 3, num_layers)
        local = [every == 0 or i % every > 0 for i in range(num_layers)]
        kinds = ["sliding_attention" if each else "full_attention" for each in local]
        settings |= {
            "layer_types": pick(None, kinds),
            "use_sliding_window": pick(True, any(local)),
            "sliding_window": pick(2, 3, 8),
            "max_window_layers": pick(0, 1, num_layers),
        }
    return settings


def _draw_layer_ropes(draw: random.Random) -> dict:
    """Those of Gemma 3 and OLMo 3: only global layers may be scaled."""
    local, full = (
        {"rope_type": "default", "rope_theta": draw.choice([10.0, 1e4, 5e5])}
        for _ in range(2)
    )
    full = draw.choice([full, _draw_scaling(draw)])
    return {"sliding_attention": local, "full_attention": full}


def _draw_scaling(draw: random.Random) -> dict:
    low, kind = draw.choice([0.5, 1, 2.0]), draw.choice(["linear", "llama3", "yarn"])
    scaling = {
        "rope_type": kind,
        "rope_theta": draw.choice([10, 1e4, 5e5]),
        "factor": draw.choice([1.0, 2, 8.0, 32.0]),
    }
    if kind == "linear":
        return scaling
    scaling["original_max_position_embeddings"] = draw.choice([4, 16, 60, 512])
    high = low + draw.choice([0.5, 3])
    if kind == "llama3":
        return scaling | {"low_freq_factor": low, "high_freq_factor": high}
    scales = {"mscale": draw.choice([0.7, 1.0]), "mscale_all_dim": 0.8}
    magnitude = draw.choice([{}, {"attention_factor": 1.3}, scales])
    return scaling | {"beta_slow": low, "beta_fast": high} | magnitude


class Ours:
    """Our model with their weights."""

    def __init__(self, config, tensors, head):
        self.family, spec = read_config(config)
        self.spec = refine_spec(spec, self.family, tensors)
        self.head = head
        self.model = Transformer(self.spec)
        self.score = TokenScore(self.spec)
        like = jax.eval_shape(self._init)
        self.params = from_hf(tensors, self.family, self.spec, head, like)

    def _init(self):
        ids, mask = jnp.zeros((1, 4), int), attention_masks.full()
        two = self.spec.num_decoder_layers > 0
        all_masks = dict.fromkeys(("self", "dec_self", "cross"), mask)
        key = jax.random.key(0)
        method = Transformer.encode if self.head == "discriminator" else None
        args = (ids, mask) if method else (ids, all_masks, ids if two else None)
        params = self.model.init(key, *args, method=method, deterministic=True)
        params = params["params"]
        if self.head == "discriminator":
            hidden = jnp.zeros((1, 4, self.spec.d_model))
            params |= {"score": self.score.init(key, hidden)["params"]}
        return params

    def outputs(self, params, batch):
        """The last hidden states and the logits."""
        inputs, lengths = batch["input_ids"], batch["lengths"]
        seen = attention_masks.key_padding(lengths)
        if self.head == "causal":
            seen = dataclasses.replace(attention_masks.causal(), key_lengths=lengths)
        types, rest = batch.get("types"), {"deterministic": True}
        cross = attention_masks.key_padding(lengths)
        if "position_ids" in batch:  # with padding before the tokens
            num = batch.get("decoder_input_ids", inputs).shape[1]
            cross = jnp.repeat(batch["seen"][:, None, None, :], num, 2)
            size = inputs.shape[1]
            ones = jnp.ones((size, size), bool)
            ones = jnp.tril(ones) if self.head == "causal" else ones
            seen = batch["seen"][:, None, None, :] & ones
            rest["position_ids"] = batch["position_ids"]
        params = dict(params)
        score = params.pop("score", None)

        def run(model):
            hidden = model.encode(inputs, seen, types=types, **rest)
            if "decoder_input_ids" in batch:
                hidden = model.decode(
                    batch["decoder_input_ids"],
                    attention_masks.causal(),
                    hidden,
                    cross,
                    deterministic=True,
                )
            if score is not None:
                return hidden, hidden
            return hidden, model.logits(hidden)

        hidden, logits = self.model.apply({"params": params}, method=run)
        if score is not None:
            logits = self.score.apply({"params": score}, hidden)
        return hidden, logits

    def loss(self, params, batch):
        """Mean cross-entropy of the labels that are not -100, and the outputs."""
        outputs = self.outputs(params, batch)
        return self._read_loss(outputs[1], batch), outputs

    def _read_loss(self, logits, batch):
        labels = batch["labels"]
        if self.head == "discriminator":
            return jnp.mean(
                jnp.maximum(logits, 0)
                - logits * labels
                + jnp.log1p(jnp.exp(-jnp.abs(logits))),
                where=jnp.arange(labels.shape[1]) < batch["lengths"][:, None],
            )
        if self.head == "causal":
            logits, labels = logits[:, :-1], labels[:, 1:]
        is_kept = labels >= 0
        nll = -jnp.take_along_axis(
            jax.nn.log_softmax(logits), jnp.maximum(labels, 0)[..., None], -1
        )[..., 0]
        return jnp.sum(nll * is_kept) / is_kept.sum()


def make_batch(name):
    """Rows of different lengths, with labels at some of their positions."""
    kind, head, settings = CASES[name]
    rng = np.random.default_rng(1)
    lengths = np.array([9, 13, 5])
    real = np.arange(13) < lengths[:, None]
    pad = settings.get("pad_token_id", 0)
    has_types = kind == "deberta-v2" and settings.get("type_vocab_size", 0) > 1
    ids = np.where(real, rng.integers(4, V, real.shape), pad)
    batch = {"input_ids": ids, "lengths": lengths}
    labels = np.where(real & (rng.random(real.shape) < 0.5), ids, -100)
    if head == "causal":
        labels = np.where(real, ids, -100)
    if head == "discriminator":
        labels = rng.integers(0, 2, ids.shape)
    if head == "seq2seq":
        targets = rng.integers(4, V, (3, 7))
        batch["decoder_input_ids"] = np.pad(targets[:, :-1], ((0, 0), (1, 0)))
        labels = np.where(rng.random(targets.shape) < 0.8, targets, -100)
    if settings.get("token_dropout"):
        is_masked = real & (rng.random(real.shape) < 0.3)
        batch["input_ids"] = np.where(is_masked, settings["mask_token_id"], ids)
    has_types |= kind in ("bert", "electra", "ernie", "megatron-bert", "rembert")
    if has_types:
        batch["types"] = rng.integers(0, 2, ids.shape)
    return batch | {"labels": labels}


def find_real(batch: dict) -> np.ndarray:
    """Where a batch has tokens, not padding."""
    if "seen" in batch:
        return batch["seen"]
    return np.arange(batch["input_ids"].shape[1]) < batch["lengths"][:, None]


def pad_before(batch: dict, pad: int) -> dict:
    """The batch with the padding of each row before its tokens.

    The first token has no label: padding does not predict it.
    """
    width = batch["input_ids"].shape[1]
    seen = np.arange(width) >= width - batch["lengths"][:, None]
    rows = {
        name: np.stack(
            [
                np.roll(row, -length)
                for row, length in zip(batch[name], batch["lengths"], strict=True)
            ]
        )
        for name in ("input_ids", "types", "labels")
        if name in batch
    }
    rows["input_ids"] = np.where(seen, rows["input_ids"], pad)
    places = np.maximum(np.cumsum(seen, 1) - 1, 0)
    if "decoder_input_ids" in batch:
        rows["labels"] = batch["labels"]
    else:
        rows["labels"] = np.where(places, rows["labels"], -100)
    return batch | rows | {"seen": seen, "position_ids": places}


def compare(ours: Ours, batch: dict, reference: dict) -> dict[str, float]:
    """The maximum differences of hidden states, logits, loss and gradients.

    Hidden states and logits are compared without padding; gradients as the norm of all
    differences over the norm of theirs.
    """
    real = find_real(batch)
    if "decoder_input_ids" in batch:
        real = np.ones(batch["decoder_input_ids"].shape, bool)
    read = jax.jit(jax.value_and_grad(ours.loss, has_aux=True))
    (loss, (hidden, logits)), grads = read(ours.params, batch)
    grads = to_hf(grads, ours.family, ours.spec, ours.head)
    names = set(reference["grads"])
    assert names <= set(grads)
    size = np.sqrt(sum(np.sum(np.square(reference["grads"][n])) for n in names))
    apart = sum(np.sum(np.square(reference["grads"][n] - grads[n])) for n in names)
    return {
        "hidden": np.abs(np.asarray(hidden) - reference["hidden"])[real].max(),
        "logits": np.abs(np.asarray(logits) - reference["logits"])[real].max(),
        "loss": abs(float(loss) - reference["loss"]),
        "gradients": np.sqrt(apart) / size,
    }


def check(gaps: dict[str, float], limit: float = 1e-4) -> None:
    """Checks the tolerances of float32: `limit`, and 1e-5 for the loss."""
    for name, gap in gaps.items():
        assert gap < (1e-5 if name == "loss" else limit), gaps


def check_equal(ours: Ours, back: dict, tensors: dict) -> None:
    """Checks that what is exported is what was imported, bit for bit.

    What both sides compute has the rounding of its functions.
    """
    computed = ours.family.computed(ours.spec)
    for name in set(back) & set(tensors):
        limit = 2e-7 if name in computed else 0
        np.testing.assert_allclose(back[name], tensors[name], limit, err_msg=name)


def count(params) -> int:
    """The number of parameters."""
    return sum(int(np.prod(x.shape)) for x in flatten(params).values())
