"""Maps the tensors of transformers to jaxpt's parameters, for each family.

The same table is used in both directions (`hub.convert`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from jaxpt.nn.model_spec import ModelSpec


@dataclass(frozen=True)
class Entry:
    """One tensor of transformers.

    Attributes:
      hf_name: its name.
      paths: paths in jaxpt's parameters; several are concatenated along the last axis.
      is_transposed: whether the tensor is [out, in], as in PyTorch's Linear.
      is_row: whether the tensor is [1, n] and the parameter [n].
      num_heads: the parameters are concatenated for each of this number of heads; 0 is
        as a whole.
    """

    hf_name: str
    paths: tuple[str, ...]
    is_transposed: bool = False
    is_row: bool = False
    num_heads: int = 0


Table = Iterator[Entry]
# A module's name in transformers -> the path in jaxpt, or several, separated by spaces.
Modules = dict[str, str]


def _linear(
    spec: ModelSpec,
    hf_name: str,
    *paths: str,
    bias: bool | None = None,
    is_transposed: bool = True,
) -> Table:
    """The entries of a Linear, whose output is that of one or more parameters."""
    kernels = tuple(f"{path}/kernel" for path in paths)
    yield Entry(f"{hf_name}.weight", kernels, is_transposed)
    if spec.use_bias if bias is None else bias:
        yield Entry(f"{hf_name}.bias", tuple(f"{path}/bias" for path in paths))


def _norm(spec: ModelSpec, hf_name: str, path: str) -> Table:
    yield Entry(f"{hf_name}.weight", (f"{path}/scale",))
    if spec.norm == "layernorm" and spec.norm_bias:
        yield Entry(f"{hf_name}.bias", (f"{path}/bias",))


def _layers(
    spec: ModelSpec,
    num: int,
    hf_prefix: str,
    stack: str,
    modules: Modules,
    is_transposed: bool = True,
) -> Table:
    """The entries of all layers of a stack; paths that end with "norm" are norms."""
    for i in range(num):
        for name, paths in modules.items():
            name = f"{hf_prefix}.{i}.{name}"
            full_paths = [f"{stack}/layer_{i}/{path}" for path in paths.split()]
            if paths.endswith("norm"):
                yield from _norm(spec, name, *full_paths)
            else:
                is_qkv = paths.endswith(("/query", "/key", "/value"))
                bias = spec.has_qkv_bias if is_qkv else spec.use_bias
                yield from _linear(
                    spec, name, *full_paths, bias=bias, is_transposed=is_transposed
                )


def _attention(pattern: str, module: str = "attention", out: str = "o") -> Modules:
    """Modules of attention, by the letters q, k, v and `out`."""
    letters = {"q": "query", "k": "key", "v": "value", out: "out"}
    return {pattern.format(key): f"{module}/{name}" for key, name in letters.items()}


_QKV = "attention/query attention/key attention/value"
_HEAD_NORMS = {
    f"self_attn.{letter}_norm": f"attention/{name}_norm"
    for letter, name in (("q", "query"), ("k", "key"))
}


def _gpt2(spec: ModelSpec, head: str) -> Table:
    yield Entry("transformer.wte.weight", ("embed/tokens",))
    yield Entry("transformer.wpe.weight", ("embed/positions/table",))
    modules = {
        "ln_1": "attention_norm",
        "ln_2": "mlp_norm",
        # Convolutions of width 1, whose kernels are [in, out], as in jaxpt.
        "attn.c_attn": _QKV,
        "attn.c_proj": "attention/out",
        "mlp.c_fc": "mlp/up",
        "mlp.c_proj": "mlp/down",
    }
    yield from _layers(
        spec, spec.num_layers, "transformer.h", "encoder", modules, is_transposed=False
    )
    yield from _norm(spec, "transformer.ln_f", "encoder/norm")
    if not spec.tie_embeddings:
        yield from _linear(spec, "lm_head", "head/out", bias=False)


def _bert_body(spec: ModelSpec, prefix: str) -> Table:
    """The entries of embeddings and layers of BERT, RoBERTa and ELECTRA."""
    hf_prefix = f"{prefix}.embeddings"
    yield Entry(f"{hf_prefix}.word_embeddings.weight", ("embed/tokens",))
    yield Entry(f"{hf_prefix}.position_embeddings.weight", ("embed/positions/table",))
    yield Entry(f"{hf_prefix}.token_type_embeddings.weight", ("embed/types",))
    yield from _norm(spec, f"{hf_prefix}.LayerNorm", "embed/norm")
    if spec.embedding_dim != spec.d_model:
        yield from _linear(spec, f"{prefix}.embeddings_project", "project")
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
    yield from _layers(spec, spec.num_layers, layers, "encoder", modules)


def _head(spec: ModelSpec, dense: str, norm: str, bias: str) -> Table:
    """The entries of a masked language model's head."""
    yield from _linear(spec, dense, "head/transform")
    yield from _norm(spec, norm, "head/norm")
    yield Entry(bias, ("head/bias",))


def _bert(spec: ModelSpec, head: str) -> Table:
    yield from _bert_body(spec, "bert")
    hf_prefix = "cls.predictions"
    dense, norm = f"{hf_prefix}.transform.dense", f"{hf_prefix}.transform.LayerNorm"
    yield from _head(spec, dense, norm, f"{hf_prefix}.bias")
    if head == "pretraining":
        yield from _linear(spec, "bert.pooler.dense", "pair_score/pool")
        yield from _linear(spec, "cls.seq_relationship", "pair_score/out")


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
        yield from _linear(spec, f"{hf_prefix}.dense", "score/Dense_0")
        yield from _linear(spec, f"{hf_prefix}.dense_prediction", "score/out")


def _distilbert(spec: ModelSpec, head: str) -> Table:
    hf_prefix = "distilbert.embeddings"
    yield Entry(f"{hf_prefix}.word_embeddings.weight", ("embed/tokens",))
    yield Entry(f"{hf_prefix}.position_embeddings.weight", ("embed/positions/table",))
    yield from _norm(spec, f"{hf_prefix}.LayerNorm", "embed/norm")
    modules = _attention("attention.{}_lin", out="out") | {
        "sa_layer_norm": "attention_norm",
        "ffn.lin1": "mlp/up",
        "ffn.lin2": "mlp/down",
        "output_layer_norm": "mlp_norm",
    }
    layers = "distilbert.transformer.layer"
    yield from _layers(spec, spec.num_layers, layers, "encoder", modules)
    yield from _head(
        spec, "vocab_transform", "vocab_layer_norm", "vocab_projector.bias"
    )


def _t5(spec: ModelSpec, head: str) -> Table:
    yield Entry("shared.weight", ("embed/tokens",))
    mlp = {"wi": "up", "wo": "down"}
    if spec.gated_mlp:
        mlp = {"wi_0": "gate", "wi_1": "up", "wo": "down"}
    for stack, num in (
        ("encoder", spec.num_layers),
        ("decoder", spec.num_decoder_layers),
    ):
        parts = {"attention": _attention("SelfAttention.{}")}
        if stack == "decoder":
            parts["cross"] = _attention("EncDecAttention.{}", "cross")
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
        yield from _layers(spec, num, hf_prefix, stack, modules)
        yield from _norm(spec, f"{stack}.final_layer_norm", f"{stack}/norm")
    if not spec.tie_embeddings:
        yield from _linear(spec, "lm_head", "head/out", bias=False)


def _bart(spec: ModelSpec, head: str) -> Table:
    yield Entry("model.shared.weight", ("embed/tokens",))
    cross = _attention("encoder_attn.{}_proj", "cross", out="out")
    cross["encoder_attn_layer_norm"] = "cross_norm"
    for stack, num, embed in (
        ("encoder", spec.num_layers, "embed"),
        ("decoder", spec.num_decoder_layers, "decoder_embed"),
    ):
        hf_prefix = f"model.{stack}"
        yield Entry(
            f"{hf_prefix}.embed_positions.weight", (f"{embed}/positions/table",)
        )
        yield from _norm(spec, f"{hf_prefix}.layernorm_embedding", f"{embed}/norm")
        modules = _attention("self_attn.{}_proj", out="out")
        modules["self_attn_layer_norm"] = "attention_norm"
        modules |= cross if stack == "decoder" else {}
        modules |= {"fc1": "mlp/up", "fc2": "mlp/down", "final_layer_norm": "mlp_norm"}
        yield from _layers(spec, num, f"{hf_prefix}.layers", stack, modules)
    if spec.head_bias:
        yield Entry("final_logits_bias", ("head/bias",), is_row=True)


def _llama(spec: ModelSpec, head: str) -> Table:
    yield Entry("model.embed_tokens.weight", ("embed/tokens",))
    modules = {
        "input_layernorm": "attention_norm",
        **_attention("self_attn.{}_proj"),
        **(_HEAD_NORMS if spec.qk_norm == "scaled" else {}),
        "post_attention_layernorm": "mlp_norm",
        **{f"mlp.{name}_proj": f"mlp/{name}" for name in ("gate", "up", "down")},
    }
    yield from _layers(spec, spec.num_layers, "model.layers", "encoder", modules)
    yield from _norm(spec, "model.norm", "encoder/norm")
    if not spec.tie_embeddings:
        yield from _linear(spec, "lm_head", "head/out", bias=False)


def _gpt_neo(spec: ModelSpec, head: str) -> Table:
    yield Entry("transformer.wte.weight", ("embed/tokens",))
    yield Entry("transformer.wpe.weight", ("embed/positions/table",))
    modules = {
        "ln_1": "attention_norm",
        **_attention("attn.attention.{}_proj", out="out"),
        "ln_2": "mlp_norm",
        "mlp.c_fc": "mlp/up",
        "mlp.c_proj": "mlp/down",
    }
    yield from _layers(spec, spec.num_layers, "transformer.h", "encoder", modules)
    yield from _norm(spec, "transformer.ln_f", "encoder/norm")
    if not spec.tie_embeddings:
        yield from _linear(spec, "lm_head", "head/out", bias=False)


def _gpt_neox(spec: ModelSpec, head: str) -> Table:
    yield Entry("gpt_neox.embed_in.weight", ("embed/tokens",))
    modules = {
        "input_layernorm": "attention_norm",
        "attention.query_key_value": _QKV,
        "attention.dense": "attention/out",
        "post_attention_layernorm": "mlp_norm",
        "mlp.dense_h_to_4h": "mlp/up",
        "mlp.dense_4h_to_h": "mlp/down",
    }
    layers = "gpt_neox.layers"
    for entry in _layers(spec, spec.num_layers, layers, "encoder", modules):
        is_qkv = len(entry.paths) > 1
        yield replace(entry, num_heads=spec.num_heads) if is_qkv else entry
    yield from _norm(spec, "gpt_neox.final_layer_norm", "encoder/norm")
    if not spec.tie_embeddings:
        yield from _linear(spec, "embed_out", "head/out", bias=False)


def _modernbert(spec: ModelSpec, head: str) -> Table:
    yield Entry("model.embeddings.tok_embeddings.weight", ("embed/tokens",))
    yield from _norm(spec, "model.embeddings.norm", "embed/norm")
    modules = {
        "attn_norm": "attention_norm",
        "attn.Wqkv": _QKV,
        "attn.Wo": "attention/out",
        "mlp_norm": "mlp_norm",
        "mlp.Wi": "mlp/gate mlp/up",
        "mlp.Wo": "mlp/down",
    }
    for entry in _layers(spec, spec.num_layers, "model.layers", "encoder", modules):
        # Before the first layer there is only the norm of the embeddings.
        if not entry.hf_name.startswith("model.layers.0.attn_norm"):
            yield entry
    yield from _norm(spec, "model.final_norm", "encoder/norm")
    yield from _head(spec, "head.dense", "head.norm", "decoder.bias")


TABLES: dict[str, Callable[[ModelSpec, str], Table]] = {
    "gpt2": _gpt2,
    "bert": _bert,
    "roberta": _roberta,
    "electra": _electra,
    "distilbert": _distilbert,
    "t5": _t5,
    "bart": _bart,
    "llama": _llama,
    "gpt_neo": _gpt_neo,
    "gpt_neox": _gpt_neox,
    "modernbert": _modernbert,
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
    "gpt_neo": {"lm_head.weight": "transformer.wte.weight"},
    "gpt_neox": {"embed_out.weight": "gpt_neox.embed_in.weight"},
    "modernbert": {"decoder.weight": "model.embeddings.tok_embeddings.weight"},
}
# and tensors that no language model uses: masks and counters in buffers, and heads of
# other tasks.
UNREAD = {
    "gpt2": r"transformer\.h\.\d+\.attn\.(bias|masked_bias)",
    "bert": r"bert\.(embeddings\.position_ids|pooler\..*)|cls\.seq_relationship\..*",
    "roberta": r"roberta\.embeddings\.position_ids|roberta\.pooler\..*",
    "electra": r"electra\.embeddings\.position_ids",
    "t5": r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\..*",
    "llama": r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq",
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
    "electra": "electra.",
    "bart": "model.",
    "llama": "model.",
    "gpt_neo": "transformer.",
    "gpt_neox": "gpt_neox.",
    "modernbert": "model.",
}
# Those of a downstream task's head, and of a pooler that a head may read.
TASK_HEADS = r"(\w+\.)?pooler\..*|(pre_)?classifier\..*|score\..*|qa_outputs\..*"
TASK_HEADS += r"|classification_head\..*|head\..*|sequence_summary\..*"
