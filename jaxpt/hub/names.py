"""Maps the tensors of transformers to jaxpt's parameters, for each family.

The same table is used in both directions (`hub.convert`).
"""

from collections.abc import Callable

from jaxpt.hub import decoder_names
from jaxpt.hub.entries import (
    QKV,
    Entry,
    Modules,
    Table,
    map_layers,
    map_linear,
    map_norm,
    name_attention,
)
from jaxpt.nn.model_spec import ModelSpec


def _bert_body(spec: ModelSpec, prefix: str) -> Table:
    """The entries of embeddings and layers of BERT, RoBERTa and ELECTRA."""
    hf_prefix = f"{prefix}.embeddings"
    yield Entry(f"{hf_prefix}.word_embeddings.weight", ("embed/tokens",))
    yield Entry(f"{hf_prefix}.position_embeddings.weight", ("embed/positions/table",))
    yield Entry(f"{hf_prefix}.token_type_embeddings.weight", ("embed/types",))
    yield from map_norm(spec, f"{hf_prefix}.LayerNorm", "embed/norm")
    if spec.embedding_dim != spec.d_model:
        yield from map_linear(spec, f"{prefix}.embeddings_project", "project")
    modules = {
        "attention.self.query": "attention/query",
        "attention.self.key": "attention/key",
        "attention.self.value": "attention/value",
        "attention.output.dense": "attention/out",
        "attention.output.LayerNorm": "attention_norm",
        "intermediate.dense": "mlp/up",
        "output.dense": "mlp/down",
        "output.LayerNorm": "mlp_norm",
    }
    layers = f"{prefix}.encoder.layer"
    yield from map_layers(spec, spec.num_layers, layers, "encoder", modules)


def _head(spec: ModelSpec, dense: str, norm: str, bias: str) -> Table:
    """The entries of a masked language model's head."""
    yield from map_linear(spec, dense, "head/transform")
    yield from map_norm(spec, norm, "head/norm")
    yield Entry(bias, ("head/bias",))


def _bert(spec: ModelSpec, head: str) -> Table:
    yield from _bert_body(spec, "bert")
    hf_prefix = "cls.predictions"
    dense, norm = f"{hf_prefix}.transform.dense", f"{hf_prefix}.transform.LayerNorm"
    yield from _head(spec, dense, norm, f"{hf_prefix}.bias")
    if head == "pretraining":
        yield from map_linear(spec, "bert.pooler.dense", "pair_score/pool")
        yield from map_linear(spec, "cls.seq_relationship", "pair_score/out")


def _roberta(spec: ModelSpec, head: str) -> Table:
    yield from _bert_body(spec, "roberta")
    yield from _head(spec, "lm_head.dense", "lm_head.layer_norm", "lm_head.bias")


def _electra(spec: ModelSpec, head: str) -> Table:
    yield from _bert_body(spec, "electra")
    if head != "discriminator":
        hf_prefix = "generator_predictions"
        dense, norm = f"{hf_prefix}.dense", f"{hf_prefix}.LayerNorm"
        yield from _head(spec, dense, norm, "generator_lm_head.bias")
    else:
        hf_prefix = "discriminator_predictions"
        yield from map_linear(spec, f"{hf_prefix}.dense", "score/Dense_0")
        yield from map_linear(spec, f"{hf_prefix}.dense_prediction", "score/out")


def _distilbert(spec: ModelSpec, head: str) -> Table:
    hf_prefix = "distilbert.embeddings"
    yield Entry(f"{hf_prefix}.word_embeddings.weight", ("embed/tokens",))
    yield Entry(f"{hf_prefix}.position_embeddings.weight", ("embed/positions/table",))
    yield from map_norm(spec, f"{hf_prefix}.LayerNorm", "embed/norm")
    modules = name_attention("attention.{}_lin", out="out") | {
        "sa_layer_norm": "attention_norm",
        "ffn.lin1": "mlp/up",
        "ffn.lin2": "mlp/down",
        "output_layer_norm": "mlp_norm",
    }
    layers = "distilbert.transformer.layer"
    yield from map_layers(spec, spec.num_layers, layers, "encoder", modules)
    yield from _head(
        spec, "vocab_transform", "vocab_layer_norm", "vocab_projector.bias"
    )


def _mpnet(spec: ModelSpec, head: str) -> Table:
    hf_prefix = "mpnet.embeddings"
    yield Entry(f"{hf_prefix}.word_embeddings.weight", ("embed/tokens",))
    yield Entry(f"{hf_prefix}.position_embeddings.weight", ("embed/positions/table",))
    yield from map_norm(spec, f"{hf_prefix}.LayerNorm", "embed/norm")
    bias = "mpnet.encoder.relative_attention_bias.weight"
    yield Entry(bias, ("encoder/relative/table",))
    modules = name_attention("attention.attn.{}") | {
        "attention.LayerNorm": "attention_norm",
        "intermediate.dense": "mlp/up",
        "output.dense": "mlp/down",
        "output.LayerNorm": "mlp_norm",
    }
    layers = "mpnet.encoder.layer"
    yield from map_layers(spec, spec.num_layers, layers, "encoder", modules)
    yield from _head(spec, "lm_head.dense", "lm_head.layer_norm", "lm_head.bias")


def _t5(spec: ModelSpec, head: str) -> Table:
    yield Entry("shared.weight", ("embed/tokens",))
    mlp = {"wi": "up", "wo": "down"}
    if spec.gated_mlp:
        mlp = {"wi_0": "gate", "wi_1": "up", "wo": "down"}
    for stack, num in (
        ("encoder", spec.num_layers),
        ("decoder", spec.num_decoder_layers),
    ):
        parts = {"attention": name_attention("SelfAttention.{}")}
        if stack == "decoder":
            parts["cross"] = name_attention("EncDecAttention.{}", "cross")
        parts["mlp"] = {
            f"DenseReluDense.{hf_name}": f"mlp/{path}" for hf_name, path in mlp.items()
        }
        modules: Modules = {}
        for place, (part, names) in enumerate(parts.items()):
            modules |= {f"layer.{place}.{name}": path for name, path in names.items()}
            modules[f"layer.{place}.layer_norm"] = f"{part}_norm"
        hf_prefix = f"{stack}.block"
        bias = f"{hf_prefix}.0.layer.0.SelfAttention.relative_attention_bias.weight"
        yield Entry(bias, (f"{stack}/relative/table",))
        yield from map_layers(spec, num, hf_prefix, stack, modules)
        yield from map_norm(spec, f"{stack}.final_layer_norm", f"{stack}/norm")
    if not spec.tie_embeddings:
        yield from map_linear(spec, "lm_head", "head/out", bias=False)


def _bart(spec: ModelSpec, head: str) -> Table:
    yield Entry("model.shared.weight", ("embed/tokens",))
    cross = name_attention("encoder_attn.{}_proj", "cross", out="out")
    cross["encoder_attn_layer_norm"] = "cross_norm"
    for stack, num, embed in (
        ("encoder", spec.num_layers, "embed"),
        ("decoder", spec.num_decoder_layers, "decoder_embed"),
    ):
        hf_prefix = f"model.{stack}"
        yield Entry(
            f"{hf_prefix}.embed_positions.weight", (f"{embed}/positions/table",)
        )
        yield from map_norm(spec, f"{hf_prefix}.layernorm_embedding", f"{embed}/norm")
        modules = name_attention("self_attn.{}_proj", out="out")
        modules["self_attn_layer_norm"] = "attention_norm"
        modules |= cross if stack == "decoder" else {}
        modules |= {"fc1": "mlp/up", "fc2": "mlp/down", "final_layer_norm": "mlp_norm"}
        yield from map_layers(spec, num, f"{hf_prefix}.layers", stack, modules)
    if spec.head_bias:
        yield Entry("final_logits_bias", ("head/bias",), is_row=True)


def _modernbert(spec: ModelSpec, head: str) -> Table:
    is_causal = head == "causal"
    yield Entry("model.embeddings.tok_embeddings.weight", ("embed/tokens",))
    yield from map_norm(spec, "model.embeddings.norm", "embed/norm")
    inputs: Modules = {"attn.Wqkv": QKV}
    if is_causal:
        inputs = {
            f"attn.{name[0]}_proj": f"attention/{name}"
            for name in ("query", "key", "value")
        }
    modules = {
        "attn_norm": "attention_norm",
        **inputs,
        "attn.Wo": "attention/out",
        "mlp_norm": "mlp_norm",
        "mlp.Wi": "mlp/gate mlp/up",
        "mlp.Wo": "mlp/down",
    }
    for entry in map_layers(spec, spec.num_layers, "model.layers", "encoder", modules):
        # Before the first layer there is only the norm of the embeddings.
        if not entry.hf_name.startswith("model.layers.0.attn_norm"):
            yield entry
    yield from map_norm(spec, "model.final_norm", "encoder/norm")
    prefix = "lm_head" if is_causal else "head"
    yield from _head(spec, f"{prefix}.dense", f"{prefix}.norm", "decoder.bias")


TABLES: dict[str, Callable[[ModelSpec, str], Table]] = {
    "gpt2": decoder_names.gpt2,
    "bert": _bert,
    "roberta": _roberta,
    "electra": _electra,
    "distilbert": _distilbert,
    "mpnet": _mpnet,
    "t5": _t5,
    "bart": _bart,
    "llama": decoder_names.llama,
    "gemma2": decoder_names.gemma2,
    "olmo2": decoder_names.olmo2,
    "phi": decoder_names.phi,
    "phi3": decoder_names.phi3,
    "opt": decoder_names.opt,
    "gpt_neo": decoder_names.gpt_neo,
    "gpt_neox": decoder_names.gpt_neox,
    "modernbert": _modernbert,
    "modernbert-decoder": _modernbert,
}

# Further tensors that a checkpoint may have: copies of the table's tensors,
COPIES = {
    "gpt2": {"lm_head.weight": "transformer.wte.weight"},
    "bert": {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    "roberta": {
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    "electra": {
        "generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"
    },
    "distilbert": {
        "vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"
    },
    "mpnet": {
        "lm_head.decoder.weight": "mpnet.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    "t5": {
        "encoder.embed_tokens.weight": "shared.weight",
        "decoder.embed_tokens.weight": "shared.weight",
        "lm_head.weight": "shared.weight",
    },
    "bart": {
        "model.encoder.embed_tokens.weight": "model.shared.weight",
        "model.decoder.embed_tokens.weight": "model.shared.weight",
        "lm_head.weight": "model.shared.weight",
    },
    "llama": {"lm_head.weight": "model.embed_tokens.weight"},
    "gemma2": {"lm_head.weight": "model.embed_tokens.weight"},
    "olmo2": {"lm_head.weight": "model.embed_tokens.weight"},
    "phi": {"lm_head.weight": "model.embed_tokens.weight"},
    "phi3": {"lm_head.weight": "model.embed_tokens.weight"},
    "opt": {"lm_head.weight": "model.decoder.embed_tokens.weight"},
    "gpt_neo": {"lm_head.weight": "transformer.wte.weight"},
    "gpt_neox": {"embed_out.weight": "gpt_neox.embed_in.weight"},
    "modernbert": {"decoder.weight": "model.embeddings.tok_embeddings.weight"},
    "modernbert-decoder": {"decoder.weight": "model.embeddings.tok_embeddings.weight"},
}
# and tensors that no language model uses: masks and counters in buffers, and heads of
# other tasks.
UNREAD = {
    "gpt2": r"transformer\.h\.\d+\.attn\.(bias|masked_bias)",
    "bert": r"bert\.(embeddings\.position_ids|pooler\..*)|cls\.seq_relationship\..*",
    "roberta": r"roberta\.embeddings\.position_ids|roberta\.pooler\..*",
    "mpnet": r"mpnet\.embeddings\.position_ids|mpnet\.pooler\..*",
    "electra": r"electra\.embeddings\.position_ids",
    "t5": r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\..*",
    "llama": r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq",
    "phi": r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq",
    "phi3": r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq",
    "gpt_neo": r"transformer\.h\.\d+\.attn\.attention\.(bias|masked_bias)",
    "gpt_neox": r"gpt_neox\.layers\.\d+\.attention\."
    r"(bias|masked_bias|rotary_emb\.inv_freq)",
}
# Of those, the weights that another class of the family reads.
UNREAD_WEIGHTS = r"(\w+\.)?pooler\..*|cls\.seq_relationship\..*"
# Names that checkpoints converted from TensorFlow have, and what transformers reads
# them as (its `conversion_mapping`, "legacy"), anywhere in a tensor's name.
LEGACY_NAMES = {
    "LayerNorm.gamma": "LayerNorm.weight",
    "LayerNorm.beta": "LayerNorm.bias",
}
# The prefix of the body's names in a model with a head; a model without a head lacks
# it, as do some published checkpoints with one (GPT-2's).
BODIES = {
    "gpt2": "transformer.",
    "bert": "bert.",
    "roberta": "roberta.",
    "distilbert": "distilbert.",
    "mpnet": "mpnet.",
    "electra": "electra.",
    "bart": "model.",
    "llama": "model.",
    "gemma2": "model.",
    "olmo2": "model.",
    "phi": "model.",
    "phi3": "model.",
    "opt": "model.",
    "gpt_neo": "transformer.",
    "gpt_neox": "gpt_neox.",
    "modernbert": "model.",
    "modernbert-decoder": "model.",
}
# Those of a downstream task's head, and of a pooler that a head may read.
TASK_HEADS = r"(\w+\.)?pooler\..*|(pre_)?classifier\..*|score\..*|qa_outputs\..*"
TASK_HEADS += r"|classification_head\..*|head\..*|sequence_summary\..*"
