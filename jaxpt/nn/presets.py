"""Published models as ModelSpecs, equal in every size and constant.

Sizes are from the papers' tables and the released configs. `*-generator` is ELECTRA's
generator, which shares the embeddings of its discriminator.
"""

from typing import Any

from jaxpt.errors import ConfigError
from jaxpt.nn.model_spec import ModelSpec

_DROPOUT = {"dropout": 0.1, "embed_dropout": 0.1, "attention_dropout": 0.1}

# Radford et al. 2019; Brown et al. 2020, whose sparse layers are dense here.
_GPT = {
    "activation": "gelu_tanh",
    "init": "gpt2",
    "vocab_size": 50257,
    **_DROPOUT,
}
# Devlin et al. 2019, google-research/bert.
_BERT = {
    "norm_position": "post",
    "norm_epsilon": 1e-12,
    "head_transform": True,
    "head_bias": True,
    "num_types": 2,
    "max_len": 512,
    "init": "truncated",
    "vocab_size": 30522,
    **_DROPOUT,
}
# Liu et al. 2019, fairseq.
_ROBERTA = _BERT | {
    "norm_epsilon": 1e-5,
    "num_types": 1,
    "position_offset": 2,
    "vocab_size": 50265,
}
# He et al. 2023, microsoft/DeBERTa; their discriminators.
_DEBERTA = _BERT | {
    "norm_epsilon": 1e-7,
    "num_types": 0,
    "positions": "none",
    "disentangled": "both",
    "disentangled_norm": True,
    "relative_buckets": 512,
    "relative_max_distance": 512,
    "vocab_size": 128100,
}
# Raffel et al. 2020, t5/models/gin.
_T5 = {
    "norm": "rmsnorm",
    "norm_epsilon": 1e-6,
    "activation": "relu",
    "positions": "relative",
    "use_bias": False,
    "scale_attention": False,
    "scale_logits": True,
    "head_dim": 64,
    "max_len": 512,
    "init": "t5",
    "vocab_size": 32128,
    **_DROPOUT,
}
_T5_1_1 = _T5 | {
    "activation": "gelu_tanh",
    "gated_mlp": True,
    "tie_embeddings": False,
    "scale_logits": False,
}
# Lewis et al. 2020, fairseq.
_BART = {
    "norm_position": "post",
    "max_len": 1024,
    "position_offset": 2,
    "vocab_size": 50265,
    **_DROPOUT,
}
# Touvron et al. 2023.
_LLAMA = {
    "norm": "rmsnorm",
    "activation": "silu",
    "gated_mlp": True,
    "positions": "rotary",
    "use_bias": False,
    "max_len": 2048,
}
_QWEN = _LLAMA | {
    "norm_epsilon": 1e-6,
    "rotary_base": 1e6,
    "vocab_size": 151936,
}
# Black et al. 2022 (GPT-NeoX).
_NEOX = {
    "positions": "rotary",
    "rotary_fraction": 0.25,
    "parallel_residual": True,
    "tie_embeddings": False,
    "max_len": 2048,
    "vocab_size": 50304,
}
# Black et al. 2021 (GPT-Neo).
_NEO = {
    "activation": "gelu_tanh",
    "window": 255,
    "global_every": 2,
    "scale_attention": False,
    "qkv_bias": "no",
    "max_len": 2048,
    "vocab_size": 50257,
}
# Warner et al. 2024 (ModernBERT).
_MODERN = {
    "norm_bias": False,
    "embed_norm": True,
    "gated_mlp": True,
    "positions": "rotary",
    "rotary_base": 160000.0,
    "window": 64,
    "global_every": 3,
    "local_rotary_base": 10000.0,
    "use_bias": False,
    "head_transform": True,
    "head_bias": True,
    "max_len": 8192,
    "vocab_size": 50368,
}


def _sizes(
    layers: int, width: int, heads: int, mlp: int, decoder_layers: int = 0, **more: Any
) -> dict[str, Any]:
    return {
        "num_layers": layers,
        "num_decoder_layers": decoder_layers,
        "d_model": width,
        "num_heads": heads,
        "d_ff": mlp,
        **more,
    }


PRESETS: dict[str, dict[str, Any]] = {
    "gpt2": _GPT | _sizes(12, 768, 12, 3072, max_len=1024),
    "gpt2-medium": _GPT | _sizes(24, 1024, 16, 4096, max_len=1024),
    "gpt2-large": _GPT | _sizes(36, 1280, 20, 5120, max_len=1024),
    "gpt2-xl": _GPT | _sizes(48, 1600, 25, 6400, max_len=1024),
    "gpt3-small": _GPT | _sizes(12, 768, 12, 3072, max_len=2048),
    "bert-base": _BERT | _sizes(12, 768, 12, 3072),
    "bert-large": _BERT | _sizes(24, 1024, 16, 4096),
    "roberta-base": _ROBERTA | _sizes(12, 768, 12, 3072),
    "roberta-large": _ROBERTA | _sizes(24, 1024, 16, 4096),
    "distilbert": _BERT | _sizes(6, 768, 12, 3072, num_types=0),
    "electra-small": _BERT | _sizes(12, 256, 4, 1024, embedding_size=128),
    "electra-small-generator": _BERT | _sizes(12, 64, 1, 256, embedding_size=128),
    "electra-base": _BERT | _sizes(12, 768, 12, 3072),
    "electra-base-generator": _BERT | _sizes(12, 256, 4, 1024, embedding_size=768),
    "electra-large": _BERT | _sizes(24, 1024, 16, 4096),
    "electra-large-generator": _BERT | _sizes(24, 256, 4, 1024, embedding_size=1024),
    "deberta-v3-xsmall": _DEBERTA | _sizes(12, 384, 6, 1536),
    "deberta-v3-small": _DEBERTA | _sizes(6, 768, 12, 3072),
    "deberta-v3-base": _DEBERTA | _sizes(12, 768, 12, 3072),
    "deberta-v3-large": _DEBERTA | _sizes(24, 1024, 16, 4096),
    "t5-small": _T5 | _sizes(6, 512, 8, 2048, 6),
    "t5-base": _T5 | _sizes(12, 768, 12, 3072, 12),
    "t5-v1.1-small": _T5_1_1 | _sizes(8, 512, 6, 1024, 8),
    "t5-v1.1-base": _T5_1_1 | _sizes(12, 768, 12, 2048, 12),
    "bart-base": _BART | _sizes(6, 768, 12, 3072, 6),
    "bart-large": _BART | _sizes(12, 1024, 16, 4096, 12),
    # SmolLM-135M and TinyLlama-1.1B.
    "llama-135m": _LLAMA | _sizes(30, 576, 9, 1536, num_kv_heads=3, vocab_size=49152),
    "llama-1.1b": _LLAMA
    | _sizes(22, 2048, 32, 5632, num_kv_heads=4, vocab_size=32000)
    | {"tie_embeddings": False},
    # Dubey et al. 2024, as meta-llama/Llama-3.2-1B.
    "llama-3.2-1b": _LLAMA
    | _sizes(16, 2048, 32, 8192, num_kv_heads=8, vocab_size=128256)
    | {"max_len": 131072, "rotary_base": 5e5, "rotary_scaling": (32.0, 1.0, 4.0, 8192)},
    # Qwen team 2024 and 2025.
    "qwen2.5-0.5b": _QWEN
    | _sizes(24, 896, 14, 4864, num_kv_heads=2, max_len=32768, qkv_bias="yes"),
    "qwen3-0.6b": _QWEN
    | _sizes(28, 1024, 16, 3072, num_kv_heads=8, max_len=40960, head_dim=128)
    | {"qk_norm": "scaled"},
    # Biderman et al. 2023.
    "pythia-160m": _NEOX | _sizes(12, 768, 12, 3072),
    # Eldan & Li 2023, a GPT-Neo.
    "tinystories-33m": _NEO | _sizes(4, 768, 16, 3072),
    # Jiang et al. 2023, as mistralai/Mistral-7B-v0.1: its window counts the token too.
    "mistral-7b": _LLAMA
    | _sizes(32, 4096, 32, 14336, num_kv_heads=8, vocab_size=32000)
    | {"max_len": 32768, "window": 4095, "tie_embeddings": False},
    "modern-base": _MODERN | _sizes(22, 768, 12, 1152),
    "modern-large": _MODERN | _sizes(28, 1024, 16, 2624),
}


def get_preset(name: str, **changes: Any) -> ModelSpec:
    """The spec of a published model, with some values changed."""
    if name not in PRESETS:
        raise ConfigError(f"preset {name!r}: must be one of {', '.join(PRESETS)}")
    return ModelSpec(**(PRESETS[name] | changes))
