"""The families of transformers' models, each in one module that is loaded when used.

A family is `model_type` -> the module with its `FAMILY`. A model is exported as the
first family of its kind that it fits.
"""

_HERE = "jaxpt.hub.families"
DECODERS = {
    "gpt2": f"{_HERE}.gpt2",
    "openai-gpt": f"{_HERE}.openai_gpt",
    "gpt_bigcode": f"{_HERE}.gpt_bigcode",
    "gpt_neo": f"{_HERE}.gpt_neo",
    "gpt_neox": f"{_HERE}.gpt_neox",
    "gptj": f"{_HERE}.gptj",
    "codegen": f"{_HERE}.codegen",
    "falcon": f"{_HERE}.falcon",
    "opt": f"{_HERE}.opt",
    "bloom": f"{_HERE}.bloom",
    "mpt": f"{_HERE}.mpt",
    "nanochat": f"{_HERE}.nanochat",
    "llama": f"{_HERE}.llama",
    "mistral": f"{_HERE}.mistral",
    "qwen2": f"{_HERE}.qwen2",
    "qwen3": f"{_HERE}.qwen3",
    "gemma": f"{_HERE}.gemma",
    "gemma2": f"{_HERE}.gemma2",
    "gemma3_text": f"{_HERE}.gemma3_text",
    "smollm3": f"{_HERE}.smollm3",
    "olmo": f"{_HERE}.olmo",
    "olmo2": f"{_HERE}.olmo2",
    "olmo3": f"{_HERE}.olmo3",
    "phi": f"{_HERE}.phi",
    "phi3": f"{_HERE}.phi3",
    "granite": f"{_HERE}.granite",
    "stablelm": f"{_HERE}.stablelm",
    "starcoder2": f"{_HERE}.starcoder2",
    "nemotron": f"{_HERE}.nemotron",
    "ernie4_5": f"{_HERE}.ernie4_5",
    "modernbert-decoder": f"{_HERE}.modernbert_decoder",
    "gpt_bert": f"{_HERE}.gpt_bert",
    "Dream": f"{_HERE}.dream",
}
ENCODERS = {
    "bert": f"{_HERE}.bert",
    "ernie": f"{_HERE}.ernie",
    "megatron-bert": f"{_HERE}.megatron_bert",
    "roberta": f"{_HERE}.roberta",
    "roberta-prelayernorm": f"{_HERE}.roberta_prelayernorm",
    "xlm-roberta": f"{_HERE}.xlm_roberta",
    "data2vec-text": f"{_HERE}.data2vec_text",
    "camembert": f"{_HERE}.camembert",
    "distilbert": f"{_HERE}.distilbert",
    "mpnet": f"{_HERE}.mpnet",
    "electra": f"{_HERE}.electra",
    "modernbert": f"{_HERE}.modernbert",
    "eurobert": f"{_HERE}.eurobert",
    "nomic_bert": f"{_HERE}.nomic_bert",
    "gte": f"{_HERE}.gte",
    "jina_embeddings_v3": f"{_HERE}.jina_embeddings_v3",
    "neobert": f"{_HERE}.neobert",
    "deberta-v2": f"{_HERE}.deberta_v2",
    "ltgbert": f"{_HERE}.ltgbert",
    "elc_bert": f"{_HERE}.elc_bert",
    "llada": f"{_HERE}.llada",
    "jina_bert": f"{_HERE}.jina_bert",
    "bd3lm": f"{_HERE}.bd3lm",
    "mdlm": f"{_HERE}.mdlm",
    "esm": f"{_HERE}.esm",
    "rembert": f"{_HERE}.rembert",
    "xlm": f"{_HERE}.xlm",
}
ENCODER_DECODERS = {
    "t5": f"{_HERE}.t5",
    "mt5": f"{_HERE}.mt5",
    "umt5": f"{_HERE}.umt5",
    "longt5": f"{_HERE}.longt5",
    "t5gemma": f"{_HERE}.t5gemma",
    "bart": f"{_HERE}.bart",
    "blenderbot": f"{_HERE}.blenderbot",
    "mbart": f"{_HERE}.mbart",
    "pegasus": f"{_HERE}.pegasus",
    "marian": f"{_HERE}.marian",
    "m2m_100": f"{_HERE}.m2m_100",
}
FAMILIES = DECODERS | ENCODERS | ENCODER_DECODERS
# The `model_type` of checkpoints from before transformers had the family -> that of it.
OLDER_TYPES = {"new": "gte"}
# (`model_type`, a field, its value) of the family's other networks -> their family.
VARIANTS = {
    ("bert", "position_embedding_type", "alibi"): "jina_bert",
    ("bd3lm", "cross_attn", False): "mdlm",
}
# Classes of code in repositories whose configs have no `model_type` -> the family.
REMOTE_CLASSES = {
    **dict.fromkeys(("LtgBertForMaskedLM", "LtgbertForMaskedLM"), "ltgbert"),
    **dict.fromkeys(("GPTBERTForCausalLM", "GPTBERTForMaskedLM"), "gpt_bert"),
    "LtgbertForCausalLM": "gpt_bert",
}
# Decoders whose class can also read a text in both directions.
BIDIRECTIONAL = {name: DECODERS[name] for name in ("gpt_neox", "gemma3_text")}
# The families that may have a model of a purpose, a key of `Family.heads`.
PURPOSES = {
    "causal": DECODERS,
    "masked": ENCODERS | BIDIRECTIONAL,
    **dict.fromkeys(("pretraining", "generator", "discriminator"), ENCODERS),
    "seq2seq": ENCODER_DECODERS,
}
# Families that the one Transformer cannot express, with the reason, behind "its".
REFUSED = {
    "deberta": "attention has one layer for queries, keys and values, with biases of "
    "two of them; DeBERTa-v2 and v3 are a deberta-v2",
    "blenderbot-small": "decoder norms embeddings before it adds positions to them",
    "t5gemma2": "decoder attends to its tokens and the encoder's in one softmax",
    "pegasus_x": "layers have global tokens and staggered blocks",
    "nllb-moe": "MLPs are mixtures of experts",
    "switch_transformers": "MLPs are mixtures of experts",
    "prophetnet": "decoder predicts several tokens in parallel streams",
    "led": "encoder has global tokens next to its windows",
    "bigbird_pegasus": "encoder attends to random blocks",
    "albert": "layers share one set of parameters",
    "mobilebert": "layers are bottlenecks with several MLPs each",
    "big_bird": "attention is of random blocks and of tokens that see all others",
    "convbert": "layers have convolutions with kernels that depend on the tokens",
    "longformer": "global tokens have separate projections of attention",
    "roformer": "tokenizer (words of jieba, then WordPiece) is not supported",
    "xlnet": "attention has two streams and multiplies with embeddings of positions",
    **dict.fromkeys(("mamba", "rwkv"), "layers are recurrent, without attention"),
    "qwen3_5_text": "layers are recurrent, but for every fourth",
    **dict.fromkeys(
        ("mixtral", "olmoe", "qwen3_moe", "ernie4_5_moe"),
        "MLPs are mixtures of experts",
    ),
    **dict.fromkeys(
        ("lfm2", "falcon_h1"), "layers are in part convolutions or recurrent"
    ),
    "canine": "tokens are characters, which are hashed and shortened by convolutions",
    "fnet": "layers mix tokens by Fourier transforms, without attention",
    "squeezebert": "layers are grouped convolutions",
    "gemma3": "config is that of a model of images and text; its text model alone is a "
    "gemma3_text",
}
