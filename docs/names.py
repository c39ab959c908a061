"""Writes docs/names.md: models of the Hub by name, and whether their config is read.

    .venv/bin/python docs/names.py

Needs no network and no weights. Each name has the fields of its config.json that
describe its network and are not the defaults of its class, entered by hand. A test
checks that the page is up to date.
"""

import io
import re
from pathlib import Path
from typing import Any

from jaxpt.errors import UserError
from jaxpt.hub.configs import read_config

DATE = "2026-11-29"  # of the list
PAGE = Path(__file__).with_name("names.md")

Config = dict[str, Any]


def of(kind: str, architecture: str = "", **fields: Any) -> Config:
    """A config.json of a `model_type`."""
    classes = {"architectures": [architecture]} if architecture else {}
    return {"model_type": kind, **classes, **fields}


def sized(
    kind: str,
    architecture: str,
    width: int,
    depth: int,
    heads: int,
    inner: int,
    **fields: Any,
) -> Config:
    """A config.json with the four sizes by their usual names."""
    sizes = {"hidden_size": width, "num_hidden_layers": depth}
    sizes |= {"num_attention_heads": heads, "intermediate_size": inner}
    return of(kind, architecture, **sizes, **fields)


def remote(architecture: str, kind: str = "", **fields: Any) -> Config:
    """A config.json whose classes are code in the repository, which is never run."""
    code = {"auto_map": {"AutoModel": f"modeling.{architecture}"}}
    return {**of(kind, architecture), **code, **fields}


LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}
LARGE |= {"intermediate_size": 4096}
DEBERTA = {
    "relative_attention": True,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "layer_norm_eps": 1e-7,
    "max_relative_positions": -1,
    "position_biased_input": False,
    "type_vocab_size": 0,
    "vocab_size": 128100,
}
YARN = {
    "rope_type": "yarn",
    "factor": 8.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "attention_factor": 1.2079441541679836,
    "original_max_position_embeddings": 8192,
}
MPT = {"d_model": 4096, "n_heads": 32, "n_layers": 32, "vocab_size": 50432}
MPT |= {"expansion_ratio": 4, "no_bias": True, "learned_pos_emb": True}
MPT_ATTENTION = {
    "alibi": True,
    "alibi_bias_max": 8,
    "attn_impl": "torch",
    "attn_pdrop": 0,
    "attn_type": "multihead_attention",
    "attn_uses_sequence_id": False,
    "clip_qkv": None,
    "prefix_lm": False,
    "qk_ln": False,
    "softmax_scale": None,
}
LLAMA_3 = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
LONGROPE = {  # whose numbers are left out here
    "type": "longrope",
    "long_factor": [1.0] * 48,
    "short_factor": [1.0] * 48,
}
LLADA = {
    "activation_type": "silu",
    "block_type": "llama",
    "bias_for_layer_norm": False,
    "d_model": 4096,
    "embedding_size": 126464,
    "layer_norm_type": "rms",
    "max_sequence_length": 4096,
    "mlp_hidden_size": 12288,
    "n_heads": 32,
    "n_kv_heads": 32,
    "n_layers": 32,
    "rope": True,
    "rope_theta": 500000.0,
    "vocab_size": 126464,
    "weight_tying": False,
}
DIT = {"cond_dim": 128, "return_dict": False, "time_conditioning": False}
BLOCKS = {
    "attn_backend": "sdpa",
    "cross_attn": True,
    "sampling_eps_max": 0.999,
    "sampling_eps_min": 0.001,
    "var_min": True,
}
ROBERTA = {
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
}
POOLER = {
    "directionality": "bidi",
    "pooler_fc_size": 768,
    "pooler_num_attention_heads": 12,
    "pooler_num_fc_layers": 3,
    "pooler_size_per_head": 128,
    "pooler_type": "first_token_transform",
}
T5GEMMA_SMALL = {
    "head_dim": 64,
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_attention_heads": 8,
    "num_hidden_layers": 8,
    "num_key_value_heads": 8,
    "query_pre_attn_scalar": 64,
}
GEMMA_9B = {
    "hidden_size": 3584,
    "intermediate_size": 14336,
    "num_attention_heads": 16,
    "num_hidden_layers": 42,
    "num_key_value_heads": 8,
}
LONG_T5 = {
    "d_model": 768,
    "encoder_attention_type": "local",
    "feed_forward_proj": "gated-gelu",
    "local_radius": 127,
    "num_heads": 12,
    "num_layers": 12,
    "num_decoder_layers": 12,
    "tie_word_embeddings": False,
}
MBART = {
    "add_bias_logits": False,
    "add_final_layer_norm": True,
    "normalize_before": True,
    "normalize_embedding": True,
    "scale_embedding": True,
    "static_position_embeddings": False,
}
PEGASUS = {
    "activation_function": "relu",
    "add_bias_logits": False,
    "add_final_layer_norm": True,
    "decoder_layers": 16,
    "encoder_layers": 16,
    "normalize_before": True,
    "normalize_embedding": False,
    "scale_embedding": True,
    "static_position_embeddings": True,
    "vocab_size": 96103,
}
OPUS = {
    "activation_function": "swish",
    "add_bias_logits": False,
    "add_final_layer_norm": False,
    "d_model": 512,
    "decoder_attention_heads": 8,
    "decoder_ffn_dim": 2048,
    "decoder_layers": 6,
    "encoder_attention_heads": 8,
    "encoder_ffn_dim": 2048,
    "encoder_layers": 6,
    "max_position_embeddings": 512,
    "normalize_before": False,
    "normalize_embedding": False,
    "scale_embedding": True,
    "static_position_embeddings": True,
}
PARTS: dict[str, dict[str, Config]] = {
    "Encoders": {
        "google-bert/bert-base-uncased": of("bert", "BertForMaskedLM"),
        "google-bert/bert-base-cased": of("bert", "BertForMaskedLM", vocab_size=28996),
        "google-bert/bert-large-uncased": of("bert", "BertForMaskedLM", **LARGE),
        "google-bert/bert-base-multilingual-cased": of(
            "bert", "BertForMaskedLM", vocab_size=119547, directionality="bidi"
        ),
        "google/bert_uncased_L-2_H-128_A-2": of(
            "bert",
            hidden_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=512,
        ),
        "allenai/scibert_scivocab_uncased": of("bert", vocab_size=31090),
        "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract": of(
            "bert", "BertForMaskedLM"
        ),
        "sentence-transformers/all-MiniLM-L6-v2": of(
            "bert",
            "BertModel",
            hidden_size=384,
            num_hidden_layers=6,
            intermediate_size=1536,
        ),
        "BAAI/bge-base-en-v1.5": of("bert", "BertModel"),
        "intfloat/e5-base-v2": of("bert", "BertModel"),
        "thenlper/gte-base": of("bert", "BertModel"),
        "FacebookAI/roberta-base": of(
            "roberta",
            "RobertaForMaskedLM",
            max_position_embeddings=514,
            type_vocab_size=1,
            layer_norm_eps=1e-5,
            vocab_size=50265,
        ),
        "FacebookAI/xlm-roberta-base": of(
            "xlm-roberta",
            "XLMRobertaForMaskedLM",
            max_position_embeddings=514,
            type_vocab_size=1,
            layer_norm_eps=1e-5,
            vocab_size=250002,
        ),
        "BAAI/bge-m3": of(
            "xlm-roberta",
            "XLMRobertaModel",
            max_position_embeddings=8194,
            type_vocab_size=1,
            layer_norm_eps=1e-5,
            vocab_size=250002,
            **LARGE,
        ),
        "almanach/camembert-base": of(
            "camembert",
            "CamembertForMaskedLM",
            max_position_embeddings=514,
            type_vocab_size=1,
            layer_norm_eps=1e-5,
            vocab_size=32005,
        ),
        "princeton-nlp/efficient_mlm_m0.40": of(
            "roberta-prelayernorm",
            "RobertaPreLayerNormForMaskedLM",
            max_position_embeddings=514,
            type_vocab_size=1,
            layer_norm_eps=1e-5,
            vocab_size=50265,
            **LARGE,
        ),
        "distilbert/distilbert-base-uncased": of("distilbert", "DistilBertForMaskedLM"),
        "distilbert/distilroberta-base": of(
            "roberta",
            "RobertaForMaskedLM",
            max_position_embeddings=514,
            type_vocab_size=1,
            layer_norm_eps=1e-5,
            num_hidden_layers=6,
            vocab_size=50265,
        ),
        "google/electra-small-discriminator": of(
            "electra",
            "ElectraForPreTraining",
            embedding_size=128,
            hidden_size=256,
            num_attention_heads=4,
            intermediate_size=1024,
            num_hidden_layers=12,
        ),
        "google/electra-base-discriminator": of(
            "electra",
            "ElectraForPreTraining",
            embedding_size=768,
            hidden_size=768,
            num_attention_heads=12,
            intermediate_size=3072,
        ),
        "microsoft/mpnet-base": of(
            "mpnet",
            "MPNetForMaskedLM",
            max_position_embeddings=514,
            layer_norm_eps=1e-5,
        ),
        "sentence-transformers/all-mpnet-base-v2": of(
            "mpnet",
            "MPNetForMaskedLM",
            max_position_embeddings=514,
            layer_norm_eps=1e-5,
        ),
        "microsoft/deberta-base": of("deberta", **{**DEBERTA, "vocab_size": 50265}),
        "microsoft/deberta-v3-xsmall": of(
            "deberta-v2",
            **DEBERTA,
            hidden_size=384,
            num_hidden_layers=12,
            num_attention_heads=6,
            intermediate_size=1536,
        ),
        "microsoft/deberta-v3-base": of("deberta-v2", **DEBERTA),
        "microsoft/deberta-v3-large": of("deberta-v2", **DEBERTA, **LARGE),
        "microsoft/mdeberta-v3-base": of(
            "deberta-v2", **{**DEBERTA, "vocab_size": 251000}
        ),
        "microsoft/deberta-v2-xlarge": of(
            "deberta-v2",
            "DebertaV2ForMaskedLM",
            **DEBERTA,
            hidden_size=1536,
            num_hidden_layers=24,
            num_attention_heads=24,
            intermediate_size=6144,
            conv_kernel_size=3,
            conv_act="gelu",
            attention_head_size=64,
        ),
        "answerdotai/ModernBERT-base": of(
            "modernbert", "ModernBertForMaskedLM", local_attention=128
        ),
        "answerdotai/ModernBERT-large": of(
            "modernbert",
            "ModernBertForMaskedLM",
            hidden_size=1024,
            num_hidden_layers=28,
            num_attention_heads=16,
            intermediate_size=2624,
        ),
        "jhu-clsp/ettin-encoder-150m": of("modernbert", "ModernBertForMaskedLM"),
        "jhu-clsp/mmBERT-base": of(
            "modernbert",
            "ModernBertForMaskedLM",
            vocab_size=256000,
            intermediate_size=1152,
            local_rope_theta=160000.0,
        ),
        "Alibaba-NLP/gte-modernbert-base": of("modernbert", "ModernBertModel"),
        "lightonai/modernbert-embed-large": of(
            "modernbert",
            "ModernBertModel",
            hidden_size=1024,
            num_hidden_layers=28,
            num_attention_heads=16,
            intermediate_size=2624,
        ),
        "EuroBERT/EuroBERT-210m": of(
            "eurobert",
            "EuroBertForMaskedLM",
            hidden_act="silu",
            num_key_value_heads=12,
            rope_theta=250000,
        ),
        "EuroBERT/EuroBERT-610m": of(
            "eurobert",
            "EuroBertForMaskedLM",
            hidden_size=1152,
            num_hidden_layers=26,
            num_attention_heads=18,
            num_key_value_heads=6,
            intermediate_size=4096,
            rope_theta=250000,
        ),
        "chandar-lab/NeoBERT": remote(
            "NeoBERTLMHead",
            "neobert",
            hidden_size=768,
            intermediate_size=3072,
            num_hidden_layers=28,
            num_attention_heads=12,
            max_length=4096,
            norm_eps=1e-5,
            vocab_size=30522,
            embedding_init_range=0.02,
            decoder_init_range=0.02,
            pad_token_id=0,
        ),
        "nomic-ai/nomic-bert-2048": remote(
            "NomicBertForPreTraining",
            "nomic_bert",
            activation_function="swiglu",
            attn_pdrop=0.0,
            embd_pdrop=0.0,
            causal=False,
            dense_seq_output=True,
            layer_norm_epsilon=1e-12,
            mlp_fc1_bias=False,
            mlp_fc2_bias=False,
            n_embd=768,
            n_head=12,
            n_inner=3072,
            n_layer=12,
            n_positions=2048,
            pad_vocab_size_multiple=64,
            parallel_block=False,
            prenorm=False,
            qkv_proj_bias=False,
            rotary_emb_base=1000,
            rotary_emb_fraction=1.0,
            rotary_emb_interleaved=False,
            rotary_emb_scale_base=None,
            rotary_scaling_factor=None,
            scale_attn_weights=True,
            type_vocab_size=2,
            use_rms_norm=None,
            vocab_size=30528,
        ),
        "Alibaba-NLP/gte-base-en-v1.5": remote(
            "NewModel",
            "new",
            hidden_size=768,
            num_hidden_layers=12,
            num_attention_heads=12,
            intermediate_size=3072,
            layer_norm_type="layer_norm",
            max_position_embeddings=8192,
            pack_qkv=True,
            position_embedding_type="rope",
            rope_scaling={"factor": 2.0, "type": "ntk"},
            rope_theta=500000,
            type_vocab_size=0,
            vocab_size=30528,
        ),
        "jinaai/jina-embeddings-v2-base-en": remote(
            "JinaBertForMaskedLM",
            "bert",
            position_embedding_type="alibi",
            feed_forward_type="geglu",
            emb_pooler="mean",
            max_position_embeddings=8192,
            vocab_size=30528,
        ),
        "jinaai/jina-embeddings-v2-base-code": {
            **of(
                "bert",
                "JinaBertForMaskedLM",
                position_embedding_type="alibi",
                feed_forward_type="geglu",
                emb_pooler="mean",
                max_position_embeddings=8192,
                vocab_size=61056,
            ),
            "auto_map": {
                "AutoModel": "jinaai/jina-bert-v2-qk-post-norm--"
                "modeling_bert.JinaBertModel"
            },
        },
        "jinaai/jina-embeddings-v3": remote(
            "XLMRobertaModel",
            "xlm-roberta",
            position_embedding_type="rotary",
            lora_adaptations=["retrieval.query"],
            rotary_emb_base=20000.0,
            use_flash_attn=True,
            vocab_size=250002,
            **LARGE,
        ),
        "facebook/esm2_t12_35M_UR50D": of(
            "esm",
            "EsmForMaskedLM",
            emb_layer_norm_before=False,
            hidden_size=480,
            num_hidden_layers=12,
            num_attention_heads=20,
            intermediate_size=1920,
            is_folding_model=False,
            layer_norm_eps=1e-5,
            mask_token_id=32,
            max_position_embeddings=1026,
            pad_token_id=1,
            position_embedding_type="rotary",
            token_dropout=True,
            vocab_size=33,
        ),
        "facebook/data2vec-text-base": of(
            "data2vec-text",
            "Data2VecTextForMaskedLM",
            max_position_embeddings=514,
            type_vocab_size=1,
            layer_norm_eps=1e-5,
            vocab_size=50265,
        ),
        "nghuyong/ernie-3.0-base-zh": of(
            "ernie",
            "ErnieForMaskedLM",
            max_position_embeddings=2048,
            type_vocab_size=4,
            vocab_size=40000,
            layer_norm_eps=1e-5,
            use_task_id=True,
            task_type_vocab_size=3,
        ),
        "google/mobilebert-uncased": of("mobilebert", "MobileBertForPreTraining"),
        "google/rembert": of("rembert", "RemBertForMaskedLM"),
        "FacebookAI/xlm-mlm-en-2048": of("xlm", "XLMWithLMHeadModel"),
        "albert/albert-base-v2": of("albert", "AlbertForMaskedLM"),
        "YituTech/conv-bert-base": of("convbert"),
        "google/bigbird-roberta-base": of("big_bird", "BigBirdForPreTraining"),
        "allenai/longformer-base-4096": of("longformer", attention_window=[512] * 12),
        "junnyu/roformer_chinese_base": of("roformer", "RoFormerForMaskedLM"),
        "google-bert/bert-base-chinese": of(
            "bert", "BertForMaskedLM", vocab_size=21128, **POOLER
        ),
        "google-bert/bert-large-uncased-whole-word-masking": of(
            "bert", "BertForMaskedLM", **LARGE
        ),
        "emilyalsentzer/Bio_ClinicalBERT": of("bert", vocab_size=28996),
        "dmis-lab/biobert-base-cased-v1.2": of("bert", vocab_size=28996),
        "deepset/gbert-base": of("bert", "BertForMaskedLM", vocab_size=31102),
        "hfl/chinese-roberta-wwm-ext": of(
            "bert", "BertForMaskedLM", vocab_size=21128, output_past=True, **POOLER
        ),
        "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2": sized(
            "bert", "BertModel", 384, 12, 12, 1536, vocab_size=250037
        ),
        "BAAI/bge-small-en-v1.5": sized("bert", "BertModel", 384, 12, 12, 1536),
        "mixedbread-ai/mxbai-embed-large-v1": of("bert", "BertModel", **LARGE),
        "FacebookAI/roberta-large": of(
            "roberta", "RobertaForMaskedLM", vocab_size=50265, **LARGE, **ROBERTA
        ),
        "FacebookAI/xlm-roberta-large": of(
            "xlm-roberta",
            "XLMRobertaForMaskedLM",
            vocab_size=250002,
            output_past=True,
            **LARGE,
            **ROBERTA,
        ),
        "intfloat/multilingual-e5-base": of(
            "xlm-roberta",
            "XLMRobertaModel",
            vocab_size=250002,
            output_past=True,
            **ROBERTA,
        ),
        "facebook/xlm-v-base": of(
            "xlm-roberta", "XLMRobertaForMaskedLM", vocab_size=901629, **ROBERTA
        ),
        "microsoft/codebert-base": of(
            "roberta", "RobertaModel", vocab_size=50265, output_past=True, **ROBERTA
        ),
        "google/electra-small-generator": sized(
            "electra",
            "ElectraForMaskedLM",
            256,
            12,
            4,
            1024,
            embedding_size=128,
            generator_size="0.25",
        ),
        "microsoft/deberta-v3-small": sized(
            "deberta-v2", "", 768, 6, 12, 3072, **DEBERTA
        ),
        "jhu-clsp/ettin-encoder-17m": sized(
            "modernbert", "ModernBertForMaskedLM", 256, 7, 4, 384
        ),
        "jhu-clsp/ettin-encoder-400m": sized(
            "modernbert", "ModernBertForMaskedLM", 1024, 28, 16, 2624
        ),
        "jhu-clsp/mmBERT-small": sized(
            "modernbert",
            "ModernBertForMaskedLM",
            384,
            22,
            6,
            1152,
            vocab_size=256000,
            local_rope_theta=160000.0,
        ),
        "EuroBERT/EuroBERT-2.1B": sized(
            "eurobert",
            "EuroBertForMaskedLM",
            2304,
            32,
            18,
            6144,
            hidden_act="silu",
            num_key_value_heads=6,
            rope_theta=250000,
        ),
        "squeezebert/squeezebert-uncased": of("squeezebert"),
        "google/canine-s": of("canine", "CanineModel"),
        "google/fnet-base": of("fnet", "FNetForPreTraining"),
    },
    "BabyLM": {
        "babylm/babyllama-10m-2024": of(
            "llama",
            "LlamaForCausalLM",
            hidden_size=512,
            num_hidden_layers=16,
            num_attention_heads=8,
            intermediate_size=1024,
            max_position_embeddings=256,
            vocab_size=16000,
        ),
        "babylm/ltgbert-10m-2024": remote(
            "LtgBertForMaskedLM",
            "",
            attention_probs_dropout_prob=0.1,
            hidden_dropout_prob=0.1,
            hidden_size=384,
            intermediate_size=1024,
            layer_norm_eps=1e-7,
            max_position_embeddings=512,
            num_attention_heads=6,
            num_hidden_layers=12,
            output_all_encoded_layers=True,
            position_bucket_size=32,
            vocab_size=16384,
        ),
        # Its tensors make it an `elc_bert`.
        "lgcharpe/ELC_BERT_small_baby_10M": remote(
            "LtgBertForMaskedLM",
            "ltgbert",
            classifier_dropout=0.2,
            hidden_size=384,
            intermediate_size=1024,
            layer_norm_eps=1e-7,
            num_attention_heads=6,
            output_all_encoded_layers=True,
            vocab_size=6144,
        ),
        "lgcharpe/ELC_BERT_baby_100M": remote(
            "LtgBertForMaskedLM",
            "ltgbert",
            classifier_dropout=0.2,
            output_all_encoded_layers=True,
            vocab_size=16384,
        ),
        "BabyLM-community/babylm-baseline-10m-gpt-bert-mixed": remote(
            "GPTBERTForCausalLM",
            "gpt_bert",
            hidden_size=384,
            intermediate_size=1280,
            num_attention_heads=6,
            num_hidden_layers=12,
            position_bucket_size=32,
            layer_norm_eps=1e-7,
            vocab_size=8192,
        ),
        "BabyLM-community/babylm-baseline-10m-gpt2": of(
            "gpt2", "GPT2LMHeadModel", vocab_size=16384
        ),
        "phueb/BabyBERTa-1": of(
            "roberta",
            "RobertaForMaskedLM",
            hidden_size=256,
            num_hidden_layers=8,
            num_attention_heads=8,
            intermediate_size=1024,
            max_position_embeddings=130,
            type_vocab_size=2,
            layer_norm_eps=1e-5,
            vocab_size=8192,
        ),
        "timinar/baby-llama-58m": sized(
            "llama",
            "LlamaForCausalLM",
            512,
            16,
            8,
            1024,
            max_position_embeddings=256,
            vocab_size=16000,
        ),
        "BabyLM-community/babylm-baseline-100m-gpt2": of(
            "gpt2", "GPT2LMHeadModel", vocab_size=16384
        ),
    },
    "Decoders": {
        "openai-community/gpt2": of("gpt2", "GPT2LMHeadModel"),
        "openai-community/gpt2-xl": of(
            "gpt2", "GPT2LMHeadModel", n_embd=1600, n_head=25, n_layer=48
        ),
        "distilbert/distilgpt2": of("gpt2", "GPT2LMHeadModel", n_layer=6),
        "EleutherAI/gpt-neo-125m": of(
            "gpt_neo",
            "GPTNeoForCausalLM",
            hidden_size=768,
            num_layers=12,
            num_heads=12,
            attention_types=[[["global", "local"], 6]],
        ),
        "roneneldan/TinyStories-33M": of(
            "gpt_neo",
            "GPTNeoForCausalLM",
            hidden_size=768,
            num_layers=4,
            num_heads=16,
            attention_types=[[["global", "local"], 2]],
        ),
        "EleutherAI/pythia-160m": of(
            "gpt_neox",
            "GPTNeoXForCausalLM",
            hidden_size=768,
            num_hidden_layers=12,
            num_attention_heads=12,
            intermediate_size=3072,
            vocab_size=50304,
        ),
        "EleutherAI/gpt-j-6b": of("gptj", "GPTJForCausalLM"),
        "facebook/opt-125m": of("opt", "OPTForCausalLM"),
        "facebook/opt-350m": of(
            "opt",
            "OPTForCausalLM",
            hidden_size=1024,
            num_hidden_layers=24,
            num_attention_heads=16,
            ffn_dim=4096,
            do_layer_norm_before=False,
            word_embed_proj_dim=512,
        ),
        "cerebras/Cerebras-GPT-111M": of(
            "gpt2", n_inner=3072, n_layer=10, n_positions=2048
        ),
        "bigscience/bloom-560m": of(
            "bloom",
            "BloomForCausalLM",
            n_embed=1024,
            n_layer=24,
            num_attention_heads=16,
        ),
        "bigcode/starcoderbase-1b": of(
            "gpt_bigcode", "GPTBigCodeForCausalLM", multi_query=True
        ),
        "bigcode/starcoder2-3b": of(
            "starcoder2",
            "Starcoder2ForCausalLM",
            hidden_act="gelu_pytorch_tanh",
            hidden_size=3072,
            num_attention_heads=24,
            num_key_value_heads=2,
            num_hidden_layers=30,
            rope_theta=999999.4420358813,
            sliding_window=4096,
            tie_word_embeddings=True,
            use_bias=True,
        ),
        "deepseek-ai/deepseek-coder-1.3b-base": of(
            "llama",
            "LlamaForCausalLM",
            hidden_size=2048,
            num_hidden_layers=24,
            num_attention_heads=16,
            intermediate_size=5504,
            max_position_embeddings=16384,
            rope_scaling={"factor": 4.0, "type": "linear"},
            rope_theta=100000,
            vocab_size=32256,
        ),
        "TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T": of(
            "llama", "LlamaForCausalLM", hidden_size=2048, num_key_value_heads=4
        ),
        "JackFram/llama-68m": of(
            "llama",
            "LlamaForCausalLM",
            hidden_size=768,
            num_attention_heads=12,
            num_hidden_layers=2,
            intermediate_size=3072,
        ),
        "HuggingFaceTB/SmolLM2-135M": of(
            "llama",
            "LlamaForCausalLM",
            hidden_size=576,
            num_attention_heads=9,
            num_key_value_heads=3,
            num_hidden_layers=30,
            intermediate_size=1536,
            rope_interleaved=False,
            rope_theta=100000,
            tie_word_embeddings=True,
            is_llama_config=True,
        ),
        "HuggingFaceTB/SmolLM3-3B": of("smollm3", "SmolLM3ForCausalLM"),
        "meta-llama/Llama-3.2-1B": of(
            "llama",
            "LlamaForCausalLM",
            head_dim=64,
            hidden_size=2048,
            num_attention_heads=32,
            num_key_value_heads=8,
            num_hidden_layers=16,
            intermediate_size=8192,
            max_position_embeddings=131072,
            rope_scaling=LLAMA_3,
            rope_theta=500000.0,
            tie_word_embeddings=True,
        ),
        "mistralai/Mistral-7B-v0.1": of(
            "mistral", "MistralForCausalLM", num_key_value_heads=8, sliding_window=4096
        ),
        "Qwen/Qwen2.5-0.5B": of(
            "qwen2",
            "Qwen2ForCausalLM",
            hidden_size=896,
            num_attention_heads=14,
            num_key_value_heads=2,
            num_hidden_layers=24,
            intermediate_size=4864,
            max_window_layers=24,
            use_sliding_window=False,
            use_mrope=False,
        ),
        "Qwen/Qwen3-0.6B-Base": of(
            "qwen3",
            "Qwen3ForCausalLM",
            hidden_size=1024,
            num_attention_heads=16,
            num_key_value_heads=8,
            num_hidden_layers=28,
            intermediate_size=3072,
            head_dim=128,
            attention_bias=False,
            max_window_layers=28,
        ),
        "Qwen/Qwen3-Embedding-0.6B": of(
            "qwen3",
            "Qwen3ForCausalLM",
            hidden_size=1024,
            num_attention_heads=16,
            num_key_value_heads=8,
            num_hidden_layers=28,
            intermediate_size=3072,
            head_dim=128,
        ),
        "Qwen/Qwen3.5-0.8B-Base": of("qwen3_5_text"),
        "google/gemma-2b": of("gemma", "GemmaForCausalLM", head_dim=256),
        "google/gemma-2-2b": of("gemma2", "Gemma2ForCausalLM", head_dim=256),
        "google/gemma-3-270m": of(
            "gemma3_text",
            "Gemma3ForCausalLM",
            hidden_size=640,
            num_attention_heads=4,
            num_key_value_heads=1,
            num_hidden_layers=18,
            intermediate_size=2048,
            head_dim=256,
            sliding_window=512,
            vocab_size=262144,
            _sliding_window_pattern=6,
            use_bidirectional_attention=False,
        ),
        "google/gemma-3-4b-pt": of("gemma3", "Gemma3ForConditionalGeneration"),
        "google/embeddinggemma-300m": of(
            "gemma3_text", "Gemma3TextModel", use_bidirectional_attention=True
        ),
        "allenai/OLMo-1B-hf": of("olmo", "OlmoForCausalLM"),
        "allenai/OLMo-2-0425-1B": of(
            "olmo2", "Olmo2ForCausalLM", hidden_size=2048, num_hidden_layers=16
        ),
        "allenai/Olmo-3-1025-7B": of(
            "olmo3",
            "Olmo3ForCausalLM",
            hidden_size=4096,
            max_position_embeddings=65536,
            rope_scaling=YARN,
            rope_theta=500000,
            sliding_window=4096,
            layer_types=([*["sliding_attention"] * 3, "full_attention"] * 8),
            vocab_size=100278,
        ),
        "microsoft/phi-1_5": of(
            "phi", "PhiForCausalLM", qk_layernorm=False, partial_rotary_factor=0.5
        ),
        "microsoft/Phi-3-mini-4k-instruct": of(
            "phi3", "Phi3ForCausalLM", rope_scaling=None, sliding_window=2047
        ),
        "microsoft/Phi-3-mini-128k-instruct": of(
            "phi3",
            "Phi3ForCausalLM",
            max_position_embeddings=131072,
            original_max_position_embeddings=4096,
            rope_scaling=LONGROPE,
            sliding_window=262144,
        ),
        "microsoft/Phi-4-mini-instruct": of(
            "phi3",
            "Phi3ForCausalLM",
            max_position_embeddings=131072,
            original_max_position_embeddings=4096,
            num_attention_heads=24,
            num_key_value_heads=8,
            partial_rotary_factor=0.75,
            rope_scaling=LONGROPE,
            sliding_window=262144,
            tie_word_embeddings=True,
            vocab_size=200064,
        ),
        "stabilityai/stablelm-2-1_6b": of(
            "stablelm",
            "StableLmForCausalLM",
            hidden_size=2048,
            num_hidden_layers=24,
            num_key_value_heads=32,
            use_qkv_bias=True,
        ),
        "ibm-granite/granite-3.1-2b-base": of(
            "granite",
            "GraniteForCausalLM",
            attention_multiplier=0.015625,
            embedding_multiplier=12.0,
            hidden_size=2048,
            intermediate_size=8192,
            logits_scaling=8.0,
            max_position_embeddings=131072,
            num_attention_heads=32,
            num_hidden_layers=40,
            num_key_value_heads=8,
            residual_multiplier=0.22,
            rope_theta=5000000.0,
            tie_word_embeddings=True,
            vocab_size=49155,
        ),
        "jhu-clsp/ettin-decoder-150m": of("modernbert-decoder"),
        "karpathy/nanochat-d32": of("nanochat", "NanoChatForCausalLM"),
        "tiiuae/falcon-7b": of("falcon", "FalconForCausalLM", multi_query=True),
        "tiiuae/falcon-40b": of(
            "falcon",
            "FalconForCausalLM",
            hidden_size=8192,
            new_decoder_architecture=True,
            num_attention_heads=128,
            num_hidden_layers=60,
            num_kv_heads=8,
        ),
        "tiiuae/falcon-rw-1b": of("falcon", alibi=True),
        "mosaicml/mpt-7b": remote(
            "MPTForCausalLM", "mpt", **MPT, attn_config=MPT_ATTENTION, max_seq_len=2048
        ),
        "mosaicml/mpt-7b-storywriter": remote(
            "MPTForCausalLM",
            "mpt",
            **MPT,
            attn_config=MPT_ATTENTION | {"alibi_bias_max": 16, "clip_qkv": 6},
            max_seq_len=65536,
        ),
        "openai-community/gpt2-medium": of(
            "gpt2", "GPT2LMHeadModel", n_embd=1024, n_layer=24, n_head=16
        ),
        "openai-community/gpt2-large": of(
            "gpt2", "GPT2LMHeadModel", n_embd=1280, n_layer=36, n_head=20
        ),
        "EleutherAI/pythia-14m": sized(
            "gpt_neox", "GPTNeoXForCausalLM", 128, 6, 4, 512, vocab_size=50304
        ),
        "EleutherAI/pythia-70m": sized(
            "gpt_neox", "GPTNeoXForCausalLM", 512, 6, 8, 2048, vocab_size=50304
        ),
        "EleutherAI/pythia-410m": sized(
            "gpt_neox", "GPTNeoXForCausalLM", 1024, 24, 16, 4096, vocab_size=50304
        ),
        "EleutherAI/pythia-1b": sized(
            "gpt_neox", "GPTNeoXForCausalLM", 2048, 16, 8, 8192, vocab_size=50304
        ),
        "roneneldan/TinyStories-1M": of(
            "gpt_neo",
            "GPTNeoForCausalLM",
            hidden_size=64,
            num_layers=8,
            num_heads=16,
            attention_types=[[["global", "local"], 4]],
        ),
        "facebook/opt-1.3b": of(
            "opt",
            "OPTForCausalLM",
            hidden_size=2048,
            num_hidden_layers=24,
            num_attention_heads=32,
            ffn_dim=8192,
            word_embed_proj_dim=2048,
        ),
        "bigscience/bloom-1b1": of(
            "bloom",
            "BloomForCausalLM",
            n_embed=1536,
            n_layer=24,
            num_attention_heads=16,
        ),
        "HuggingFaceTB/SmolLM2-360M": sized(
            "llama",
            "LlamaForCausalLM",
            960,
            32,
            15,
            2560,
            num_key_value_heads=5,
            rope_interleaved=False,
            rope_theta=100000,
            tie_word_embeddings=True,
            is_llama_config=True,
        ),
        "HuggingFaceTB/SmolLM2-1.7B": sized(
            "llama",
            "LlamaForCausalLM",
            2048,
            24,
            32,
            8192,
            num_key_value_heads=32,
            rope_theta=130000,
            tie_word_embeddings=True,
        ),
        "meta-llama/Llama-2-7b-hf": sized(
            "llama",
            "LlamaForCausalLM",
            4096,
            32,
            32,
            11008,
        ),
        "meta-llama/Llama-3.1-8B": sized(
            "llama",
            "LlamaForCausalLM",
            4096,
            32,
            32,
            14336,
            num_key_value_heads=8,
            rope_scaling=LLAMA_3 | {"factor": 8.0},
            rope_theta=500000.0,
            vocab_size=128256,
        ),
        "openlm-research/open_llama_3b_v2": sized(
            "llama",
            "LlamaForCausalLM",
            3200,
            26,
            32,
            8640,
        ),
        "princeton-nlp/Sheared-LLaMA-1.3B": sized(
            "llama",
            "LlamaForCausalLM",
            2048,
            24,
            16,
            5504,
            max_position_embeddings=4096,
        ),
        "deepseek-ai/deepseek-llm-7b-base": sized(
            "llama",
            "LlamaForCausalLM",
            4096,
            30,
            32,
            11008,
            vocab_size=102400,
            max_position_embeddings=4096,
        ),
        "utter-project/EuroLLM-1.7B": sized(
            "llama",
            "LlamaForCausalLM",
            2048,
            24,
            16,
            5632,
            num_key_value_heads=8,
            vocab_size=128000,
        ),
        "01-ai/Yi-6B": sized(
            "llama",
            "LlamaForCausalLM",
            4096,
            32,
            32,
            11008,
            num_key_value_heads=4,
            vocab_size=64000,
            rope_theta=5000000.0,
        ),
        "Qwen/Qwen2.5-1.5B": sized(
            "qwen2",
            "Qwen2ForCausalLM",
            1536,
            28,
            12,
            8960,
            num_key_value_heads=2,
            max_window_layers=28,
            rope_theta=1000000.0,
            tie_word_embeddings=True,
            use_sliding_window=False,
            vocab_size=151936,
        ),
        "Qwen/Qwen3-1.7B-Base": sized(
            "qwen3",
            "Qwen3ForCausalLM",
            2048,
            28,
            16,
            6144,
            num_key_value_heads=8,
            head_dim=128,
            attention_bias=False,
            max_window_layers=28,
        ),
        "google/gemma-3-1b-pt": sized(
            "gemma3_text",
            "Gemma3ForCausalLM",
            1152,
            26,
            4,
            6912,
            num_key_value_heads=1,
            head_dim=256,
            query_pre_attn_scalar=256,
            rope_local_base_freq=10000,
            rope_theta=1000000,
            sliding_window=512,
            sliding_window_pattern=6,
            vocab_size=262144,
        ),
        "mistralai/Mistral-Nemo-Base-2407": sized(
            "mistral",
            "MistralForCausalLM",
            5120,
            40,
            32,
            14336,
            num_key_value_heads=8,
            head_dim=128,
            rope_theta=1000000.0,
            sliding_window=None,
            vocab_size=131072,
        ),
        "allenai/OLMo-2-1124-7B": sized(
            "olmo2", "Olmo2ForCausalLM", 4096, 32, 32, 11008
        ),
        "allenai/OLMo-7B-0424-hf": of("olmo", "OlmoForCausalLM", clip_qkv=8.0),
        "microsoft/phi-2": sized(
            "phi", "PhiForCausalLM", 2560, 32, 32, 10240, partial_rotary_factor=0.4
        ),
        "stabilityai/stablelm-3b-4e1t": sized(
            "stablelm", "StableLmForCausalLM", 2560, 32, 32, 6912, vocab_size=50304
        ),
        "Salesforce/codegen-350M-mono": of(
            "codegen",
            "CodeGenForCausalLM",
            n_embd=1024,
            n_layer=20,
            n_head=16,
            rotary_dim=32,
            vocab_size=51200,
        ),
        "openai-community/openai-gpt": of(
            "openai-gpt", "OpenAIGPTLMHeadModel", afn="gelu", n_ctx=512, n_special=0
        ),
        "baidu/ERNIE-4.5-0.3B-PT": of(
            "ernie4_5", "Ernie4_5ForCausalLM", head_dim=128, num_key_value_heads=2
        ),
        "swiss-ai/Apertus-8B-2509": of("apertus", "ApertusForCausalLM"),
        "nvidia/Minitron-4B-Base": sized(
            "nemotron",
            "NemotronForCausalLM",
            3072,
            32,
            24,
            9216,
            num_key_value_heads=8,
            head_dim=128,
            hidden_act="relu2",
            partial_rotary_factor=0.5,
        ),
    },
    "Encoders with a decoder": {
        "google-t5/t5-small": of("t5", "T5ForConditionalGeneration", d_kv=64),
        "google/t5-v1_1-base": of(
            "t5",
            "T5ForConditionalGeneration",
            d_model=768,
            d_ff=2048,
            num_layers=12,
            num_heads=12,
            feed_forward_proj="gated-gelu",
            tie_word_embeddings=False,
        ),
        "google/flan-t5-base": of(
            "t5",
            "T5ForConditionalGeneration",
            d_model=768,
            d_ff=2048,
            num_layers=12,
            num_heads=12,
            feed_forward_proj="gated-gelu",
            tie_word_embeddings=False,
        ),
        "google/mt5-small": of("mt5", "MT5ForConditionalGeneration"),
        "google/byt5-small": of(
            "t5",
            "T5ForConditionalGeneration",
            d_model=1472,
            d_ff=3584,
            num_layers=12,
            num_decoder_layers=4,
            num_heads=6,
            feed_forward_proj="gated-gelu",
            tie_word_embeddings=False,
            vocab_size=384,
        ),
        "google/umt5-small": of(
            "umt5",
            "UMT5ForConditionalGeneration",
            tie_word_embeddings=False,
            vocab_size=256384,
        ),
        "google/t5gemma-s-s-ul2": of(
            "t5gemma",
            "T5GemmaForConditionalGeneration",
            **dict.fromkeys(("encoder", "decoder"), T5GEMMA_SMALL),
        ),
        "google/t5gemma-2b-2b-ul2": of("t5gemma", "T5GemmaForConditionalGeneration"),
        "google/t5gemma-9b-2b-ul2": of(
            "t5gemma", encoder=GEMMA_9B, decoder={"cross_attention_hidden_size": 3584}
        ),
        "google/t5gemma-2-270m-270m": of("t5gemma2"),
        "google/long-t5-local-base": of("longt5", **LONG_T5),
        "google/long-t5-tglobal-base": of(
            "longt5", **LONG_T5 | {"encoder_attention_type": "transient-global"}
        ),
        "facebook/bart-base": of(
            "bart", "BartModel", d_model=768, encoder_layers=6, decoder_layers=6
        ),
        "facebook/bart-large": of("bart", "BartModel"),
        "facebook/mbart-large-cc25": of(
            "mbart", "MBartForConditionalGeneration", **MBART, vocab_size=250027
        ),
        "facebook/mbart-large-50": of(
            "mbart", "MBartForConditionalGeneration", **MBART, vocab_size=250054
        ),
        "facebook/mbart-large-50-many-to-many-mmt": of(
            "mbart", "MBartForConditionalGeneration", **MBART, vocab_size=250054
        ),
        "google/pegasus-large": of("pegasus", **PEGASUS),
        "google/pegasus-xsum": of(
            "pegasus", **PEGASUS | {"max_position_embeddings": 512}
        ),
        "Helsinki-NLP/opus-mt-en-de": of("marian", "MarianMTModel", **OPUS),
        "Helsinki-NLP/opus-mt-mul-en": of(
            "marian", "MarianMTModel", **OPUS | {"vocab_size": 64172}
        ),
        "facebook/m2m100_418M": of("m2m_100", "M2M100ForConditionalGeneration"),
        "facebook/nllb-200-distilled-600M": of(
            "m2m_100", "M2M100ForConditionalGeneration", vocab_size=256206
        ),
        "facebook/blenderbot_small-90M": of("blenderbot-small"),
        "microsoft/prophetnet-large-uncased": of("prophetnet"),
        "allenai/led-base-16384": of("led"),
        "facebook/blenderbot-400M-distill": of(
            "blenderbot",
            "BlenderbotForConditionalGeneration",
            d_model=1280,
            encoder_layers=2,
            decoder_layers=12,
        ),
        "google-t5/t5-base": of(
            "t5",
            "T5ForConditionalGeneration",
            d_model=768,
            d_ff=3072,
            num_layers=12,
            num_heads=12,
            n_positions=512,
        ),
        "google/t5-v1_1-small": of(
            "t5",
            "T5ForConditionalGeneration",
            d_ff=1024,
            num_layers=8,
            num_decoder_layers=8,
            num_heads=6,
            feed_forward_proj="gated-gelu",
            tie_word_embeddings=False,
        ),
        "Salesforce/codet5-base": of(
            "t5",
            "T5ForConditionalGeneration",
            d_model=768,
            d_ff=3072,
            num_layers=12,
            num_heads=12,
            vocab_size=32100,
        ),
    },
    "Diffusion": {
        "GSAI-ML/LLaDA-8B-Base": remote(
            "LLaDAModelLM",
            "llada",
            **LLADA,
            mask_token_id=126336,
        ),
        "Dream-org/Dream-v0-Base-7B": remote(
            "DreamModel",
            "Dream",
            hidden_size=3584,
            intermediate_size=18944,
            mask_token_id=151666,
            num_attention_heads=28,
            num_hidden_layers=28,
            num_key_value_heads=4,
            rope_theta=1000000.0,
            vocab_size=152064,
        ),
        "kuleshov-group/mdlm-owt": remote("MDLM", "mdlm", **DIT),
        "kuleshov-group/mdlm-no_flashattn-fp32-owt": remote("MDLM", "mdlm", **DIT),
        "kuleshov-group/bd3lm-owt-block_size4": remote(
            "BD3LM", "bd3lm", **DIT, **BLOCKS, block_size=4
        ),
        "kuleshov-group/bd3lm-owt-block_size16": remote(
            "BD3LM", "bd3lm", **DIT, **BLOCKS, block_size=16
        ),
        "GSAI-ML/LLaDA-8B-Instruct": remote(
            "LLaDAModelLM", "llada", **LLADA, mask_token_id=126336
        ),
    },
    "Other networks (out of scope)": {
        "mistralai/Mixtral-8x7B-v0.1": of("mixtral"),
        "allenai/OLMoE-1B-7B-0924": of("olmoe"),
        "state-spaces/mamba-130m-hf": of("mamba"),
        "xlnet/xlnet-base-cased": of("xlnet"),
        "RWKV/rwkv-4-169m-pile": of("rwkv"),
        "Qwen/Qwen3-30B-A3B-Base": of("qwen3_moe"),
        "LiquidAI/LFM2-350M": of("lfm2"),
        "tiiuae/Falcon-H1-0.5B-Base": of("falcon_h1"),
    },
}


def judge(config: Config) -> tuple[bool, str]:
    """Whether a config is read, and the family or the reason."""
    try:
        return True, read_config(config)[0].name
    except UserError as error:
        text = str(error).removeprefix("config.json: ")
        return False, re.split("[:;] must be one of ", text)[0]


def write() -> str:
    """The page."""
    page, results = io.StringIO(), {}
    for part, names in PARTS.items():
        results[part] = {name: judge(config) for name, config in names.items()}
    inside = [x for part, of_part in results.items() for x in of_part.values()]
    num = sum(is_read for is_read, _ in inside)
    page.write(
        "# Models of the Hub by name\n\n"
        f"Of {len(inside)} models of the Hugging Face Hub, the configs of {num} are "
        f"read ({DATE}). `docs/names.py`\nwrites this page from the fields of each "
        "config, which were entered by hand; it reads no weights.\n"
        "[Hugging Face import and export](transformers.md) has what each family "
        "supports.\n"
    )
    for part, of_part in results.items():
        num = sum(is_read for is_read, _ in of_part.values())
        page.write(f"\n## {part}: {num} of {len(of_part)}\n\n")
        page.write("| name | family | refused because of |\n|---|---|---|\n")
        for name, (is_read, text) in of_part.items():
            cells = (f"`{text}`", "") if is_read else ("", text.replace("|", "\\|"))
            page.write(f"| {name} | {cells[0]} | {cells[1]} |\n")
    return page.getvalue()


if __name__ == "__main__":
    PAGE.write_text(write(), encoding="utf-8")
