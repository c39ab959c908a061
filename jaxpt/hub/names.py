"""For each family, a table from tensors of transformers to jaxpt's parameters.

The same table is used in both directions (`hub.convert`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from jaxpt.nn.model_spec import ModelSpec


@dataclass(frozen=True)
class Entry:
    """One tensor of transformers.

    Attributes:
      ours: paths in jaxpt's parameters; several are concatenated along the last axis.
      is_transposed: whether the tensor is [out, in], as in PyTorch's Linear.
      is_row: whether the tensor is [1, n] and the parameter [n].
    """

    theirs: str
    ours: tuple[str, ...]
    is_transposed: bool = False
    is_row: bool = False


Table = Iterator[Entry]


def _linear(
    spec: ModelSpec, theirs: str, *ours: str, bias: bool | None = None
) -> Table:
    """The entries of a Linear, whose output is that of one or more parameters."""
    kernels = tuple(f"{path}/kernel" for path in ours)
    yield Entry(f"{theirs}.weight", kernels, is_transposed=True)
    if spec.use_bias if bias is None else bias:
        yield Entry(f"{theirs}.bias", tuple(f"{path}/bias" for path in ours))


def _norm(spec: ModelSpec, theirs: str, ours: str) -> Table:
    yield Entry(f"{theirs}.weight", (f"{ours}/scale",))
    if spec.norm == "layernorm" and spec.norm_bias:
        yield Entry(f"{theirs}.bias", (f"{ours}/bias",))


def _layers(num: int, theirs: str, stack: str) -> Iterator[tuple[int, str, str]]:
    for i in range(num):
        yield i, f"{theirs}.{i}", f"{stack}/layer_{i}"


def _gpt2(spec: ModelSpec, head: str) -> Table:
    yield Entry("transformer.wte.weight", ("embed/tokens",))
    yield Entry("transformer.wpe.weight", ("embed/positions/table",))
    for _, them, us in _layers(spec.num_layers, "transformer.h", "encoder"):
        heads = [f"{us}/attention/{name}" for name in ("query", "key", "value")]
        yield from _norm(spec, f"{them}.ln_1", f"{us}/attention_norm")
        yield from _norm(spec, f"{them}.ln_2", f"{us}/mlp_norm")
        for name, ours in (
            ("attn.c_attn", heads),
            ("attn.c_proj", [f"{us}/attention/out"]),
            ("mlp.c_fc", [f"{us}/mlp/up"]),
            ("mlp.c_proj", [f"{us}/mlp/down"]),
        ):
            # A convolution of width 1, whose kernel is [in, out], as in jaxpt.
            for part, field in (("weight", "kernel"), ("bias", "bias")):
                paths = tuple(f"{path}/{field}" for path in ours)
                yield Entry(f"{them}.{name}.{part}", paths)
    yield from _norm(spec, "transformer.ln_f", "encoder/norm")
    if not spec.tie_embeddings:
        yield from _linear(spec, "lm_head", "head/out", bias=False)


def _bert_body(spec: ModelSpec, prefix: str) -> Table:
    """The entries of embeddings and layers of BERT, RoBERTa and ELECTRA."""
    them = f"{prefix}.embeddings"
    yield Entry(f"{them}.word_embeddings.weight", ("embed/tokens",))
    yield Entry(f"{them}.position_embeddings.weight", ("embed/positions/table",))
    yield Entry(f"{them}.token_type_embeddings.weight", ("embed/types",))
    yield from _norm(spec, f"{them}.LayerNorm", "embed/norm")
    if spec.embedding_dim != spec.d_model:
        yield from _linear(spec, f"{prefix}.embeddings_project", "project")
    for _, them, us in _layers(spec.num_layers, f"{prefix}.encoder.layer", "encoder"):
        for name in ("query", "key", "value"):
            ours = f"{us}/attention/{name}"
            yield from _linear(spec, f"{them}.attention.self.{name}", ours)
        ours = f"{us}/attention/out"
        yield from _linear(spec, f"{them}.attention.output.dense", ours)
        ours = f"{us}/attention_norm"
        yield from _norm(spec, f"{them}.attention.output.LayerNorm", ours)
        yield from _linear(spec, f"{them}.intermediate.dense", f"{us}/mlp/up")
        yield from _linear(spec, f"{them}.output.dense", f"{us}/mlp/down")
        yield from _norm(spec, f"{them}.output.LayerNorm", f"{us}/mlp_norm")


def _bert(spec: ModelSpec, head: str) -> Table:
    yield from _bert_body(spec, "bert")
    them = "cls.predictions"
    yield from _linear(spec, f"{them}.transform.dense", "head/transform")
    yield from _norm(spec, f"{them}.transform.LayerNorm", "head/norm")
    yield Entry(f"{them}.bias", ("head/bias",))
    if head == "pretraining":
        yield from _linear(spec, "bert.pooler.dense", "pair_score/pool")
        yield from _linear(spec, "cls.seq_relationship", "pair_score/out")


def _roberta(spec: ModelSpec, head: str) -> Table:
    yield from _bert_body(spec, "roberta")
    yield from _linear(spec, "lm_head.dense", "head/transform")
    yield from _norm(spec, "lm_head.layer_norm", "head/norm")
    yield Entry("lm_head.bias", ("head/bias",))


def _electra(spec: ModelSpec, head: str) -> Table:
    yield from _bert_body(spec, "electra")
    if head == "generator":
        yield from _linear(spec, "generator_predictions.dense", "head/transform")
        yield from _norm(spec, "generator_predictions.LayerNorm", "head/norm")
        yield Entry("generator_lm_head.bias", ("head/bias",))
    else:
        them = "discriminator_predictions"
        yield from _linear(spec, f"{them}.dense", "score/Dense_0")
        yield from _linear(spec, f"{them}.dense_prediction", "score/out")


def _distilbert(spec: ModelSpec, head: str) -> Table:
    them = "distilbert.embeddings"
    yield Entry(f"{them}.word_embeddings.weight", ("embed/tokens",))
    yield Entry(f"{them}.position_embeddings.weight", ("embed/positions/table",))
    yield from _norm(spec, f"{them}.LayerNorm", "embed/norm")
    for _, them, us in _layers(
        spec.num_layers, "distilbert.transformer.layer", "encoder"
    ):
        for letter, name in zip("qkv", ("query", "key", "value"), strict=True):
            ours = f"{us}/attention/{name}"
            yield from _linear(spec, f"{them}.attention.{letter}_lin", ours)
        yield from _linear(spec, f"{them}.attention.out_lin", f"{us}/attention/out")
        yield from _norm(spec, f"{them}.sa_layer_norm", f"{us}/attention_norm")
        yield from _linear(spec, f"{them}.ffn.lin1", f"{us}/mlp/up")
        yield from _linear(spec, f"{them}.ffn.lin2", f"{us}/mlp/down")
        yield from _norm(spec, f"{them}.output_layer_norm", f"{us}/mlp_norm")
    yield from _linear(spec, "vocab_transform", "head/transform")
    yield from _norm(spec, "vocab_layer_norm", "head/norm")
    yield Entry("vocab_projector.bias", ("head/bias",))


def _t5_attention(spec: ModelSpec, theirs: str, ours: str) -> Table:
    for letter, name in zip("qkvo", ("query", "key", "value", "out"), strict=True):
        yield from _linear(spec, f"{theirs}.{letter}", f"{ours}/{name}")


def _t5(spec: ModelSpec, head: str) -> Table:
    yield Entry("shared.weight", ("embed/tokens",))
    for stack, num in (
        ("encoder", spec.num_layers),
        ("decoder", spec.num_decoder_layers),
    ):
        for i, them, us in _layers(num, f"{stack}.block", stack):
            attention = f"{them}.layer.0.SelfAttention"
            yield from _t5_attention(spec, attention, f"{us}/attention")
            if i == 0:
                name = f"{attention}.relative_attention_bias.weight"
                yield Entry(name, (f"{stack}/relative/table",))
            norms = ["attention_norm", "mlp_norm"]
            if stack == "decoder":
                cross = f"{them}.layer.1.EncDecAttention"
                yield from _t5_attention(spec, cross, f"{us}/cross")
                norms.insert(1, "cross_norm")
            for place, norm in enumerate(norms):
                ours = f"{us}/{norm}"
                yield from _norm(spec, f"{them}.layer.{place}.layer_norm", ours)
            mlp = f"{them}.layer.{len(norms) - 1}.DenseReluDense"
            if spec.gated_mlp:
                yield from _linear(spec, f"{mlp}.wi_0", f"{us}/mlp/gate")
                yield from _linear(spec, f"{mlp}.wi_1", f"{us}/mlp/up")
            else:
                yield from _linear(spec, f"{mlp}.wi", f"{us}/mlp/up")
            yield from _linear(spec, f"{mlp}.wo", f"{us}/mlp/down")
        yield from _norm(spec, f"{stack}.final_layer_norm", f"{stack}/norm")
    if not spec.tie_embeddings:
        yield from _linear(spec, "lm_head", "head/out", bias=False)


def _bart_attention(spec: ModelSpec, theirs: str, ours: str) -> Table:
    for letter, name in zip("qkv", ("query", "key", "value"), strict=True):
        yield from _linear(spec, f"{theirs}.{letter}_proj", f"{ours}/{name}")
    yield from _linear(spec, f"{theirs}.out_proj", f"{ours}/out")


def _bart(spec: ModelSpec, head: str) -> Table:
    yield Entry("model.shared.weight", ("embed/tokens",))
    for stack, num, embed in (
        ("encoder", spec.num_layers, "embed"),
        ("decoder", spec.num_decoder_layers, "decoder_embed"),
    ):
        them = f"model.{stack}"
        yield Entry(f"{them}.embed_positions.weight", (f"{embed}/positions/table",))
        yield from _norm(spec, f"{them}.layernorm_embedding", f"{embed}/norm")
        for _, them, us in _layers(num, f"model.{stack}.layers", stack):
            yield from _bart_attention(spec, f"{them}.self_attn", f"{us}/attention")
            ours = f"{us}/attention_norm"
            yield from _norm(spec, f"{them}.self_attn_layer_norm", ours)
            if stack == "decoder":
                yield from _bart_attention(spec, f"{them}.encoder_attn", f"{us}/cross")
                ours = f"{us}/cross_norm"
                yield from _norm(spec, f"{them}.encoder_attn_layer_norm", ours)
            yield from _linear(spec, f"{them}.fc1", f"{us}/mlp/up")
            yield from _linear(spec, f"{them}.fc2", f"{us}/mlp/down")
            yield from _norm(spec, f"{them}.final_layer_norm", f"{us}/mlp_norm")
    if spec.head_bias:
        yield Entry("final_logits_bias", ("head/bias",), is_row=True)


def _llama(spec: ModelSpec, head: str) -> Table:
    yield Entry("model.embed_tokens.weight", ("embed/tokens",))
    for _, them, us in _layers(spec.num_layers, "model.layers", "encoder"):
        yield from _norm(spec, f"{them}.input_layernorm", f"{us}/attention_norm")
        for letter, name in zip("qkvo", ("query", "key", "value", "out"), strict=True):
            ours = f"{us}/attention/{name}"
            yield from _linear(spec, f"{them}.self_attn.{letter}_proj", ours)
        yield from _norm(spec, f"{them}.post_attention_layernorm", f"{us}/mlp_norm")
        for name in ("gate", "up", "down"):
            yield from _linear(spec, f"{them}.mlp.{name}_proj", f"{us}/mlp/{name}")
    yield from _norm(spec, "model.norm", "encoder/norm")
    if not spec.tie_embeddings:
        yield from _linear(spec, "lm_head", "head/out", bias=False)


def _modernbert(spec: ModelSpec, head: str) -> Table:
    yield Entry("model.embeddings.tok_embeddings.weight", ("embed/tokens",))
    yield from _norm(spec, "model.embeddings.norm", "embed/norm")
    for i, them, us in _layers(spec.num_layers, "model.layers", "encoder"):
        if i:  # the embeddings' norm stands before the first
            yield from _norm(spec, f"{them}.attn_norm", f"{us}/attention_norm")
        heads = [f"{us}/attention/{name}" for name in ("query", "key", "value")]
        yield from _linear(spec, f"{them}.attn.Wqkv", *heads)
        yield from _linear(spec, f"{them}.attn.Wo", f"{us}/attention/out")
        yield from _norm(spec, f"{them}.mlp_norm", f"{us}/mlp_norm")
        yield from _linear(spec, f"{them}.mlp.Wi", f"{us}/mlp/gate", f"{us}/mlp/up")
        yield from _linear(spec, f"{them}.mlp.Wo", f"{us}/mlp/down")
    yield from _norm(spec, "model.final_norm", "encoder/norm")
    yield from _linear(spec, "head.dense", "head/transform")
    yield from _norm(spec, "head.norm", "head/norm")
    yield Entry("decoder.bias", ("head/bias",))


TABLES: dict[str, Callable[[ModelSpec, str], Table]] = {
    "gpt2": _gpt2,
    "bert": _bert,
    "roberta": _roberta,
    "electra": _electra,
    "distilbert": _distilbert,
    "t5": _t5,
    "bart": _bart,
    "llama": _llama,
    "mistral": _llama,
    "modernbert": _modernbert,
}

# Tensors that a checkpoint may hold beside the table's: copies of the table's tensors,
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
    "mistral": {"lm_head.weight": "model.embed_tokens.weight"},
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
    "mistral": r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq",
}
# Of those, the weights that another class of the family reads.
UNREAD_WEIGHTS = r"\w+\.pooler\..*|cls\.seq_relationship\..*"
# Names that checkpoints converted from TensorFlow have, and what transformers reads
# them as (its `conversion_mapping`, "legacy"), anywhere in a tensor's name.
LEGACY_NAMES = {
    "LayerNorm.gamma": "LayerNorm.weight",
    "LayerNorm.beta": "LayerNorm.bias",
}
# What the names of a model's tensors begin with where it has a head; without one they
# lack it.
BODIES = {
    "gpt2": "transformer.",
    "bert": "bert.",
    "roberta": "roberta.",
    "distilbert": "distilbert.",
    "electra": "electra.",
    "bart": "model.",
    "llama": "model.",
    "mistral": "model.",
    "modernbert": "model.",
}
# Those of a downstream task's head, and of a pooler that a head may read.
TASK_HEADS = r"(\w+\.)?pooler\..*|(pre_)?classifier\..*|score\..*|qa_outputs\..*"
TASK_HEADS += r"|classification_head\..*|head\..*|sequence_summary\..*"
# Prefixes that are missing from the names of a model saved without its head.
PREFIXES = {"gpt2": "transformer."}
