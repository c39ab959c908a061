"""Maps the tensors of decoders to jaxpt's parameters: GPT-2, Llama, OPT and others."""

from dataclasses import replace

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

_ATTENTION = name_attention("self_attn.{}_proj")
_GATED = {f"mlp.{name}_proj": f"mlp/{name}" for name in ("gate", "up", "down")}
_HEAD_NORMS = {
    f"self_attn.{letter}_norm": f"attention/{name}_norm"
    for letter, name in (("q", "query"), ("k", "key"))
}


def gpt2(spec: ModelSpec, head: str) -> Table:
    yield Entry("transformer.wte.weight", ("embed/tokens",))
    yield Entry("transformer.wpe.weight", ("embed/positions/table",))
    modules = {
        "ln_1": "attention_norm",
        "ln_2": "mlp_norm",
        # Convolutions of width 1, whose kernels are [in, out], as in jaxpt.
        "attn.c_attn": QKV,
        "attn.c_proj": "attention/out",
        "mlp.c_fc": "mlp/up",
        "mlp.c_proj": "mlp/down",
    }
    yield from map_layers(
        spec, spec.num_layers, "transformer.h", "encoder", modules, is_transposed=False
    )
    yield from map_norm(spec, "transformer.ln_f", "encoder/norm")
    if not spec.tie_embeddings:
        yield from map_linear(spec, "lm_head", "head/out", bias=False)


def gpt_neo(spec: ModelSpec, head: str) -> Table:
    yield Entry("transformer.wte.weight", ("embed/tokens",))
    yield Entry("transformer.wpe.weight", ("embed/positions/table",))
    modules = {
        "ln_1": "attention_norm",
        **name_attention("attn.attention.{}_proj", out="out"),
        "ln_2": "mlp_norm",
        "mlp.c_fc": "mlp/up",
        "mlp.c_proj": "mlp/down",
    }
    yield from map_layers(spec, spec.num_layers, "transformer.h", "encoder", modules)
    yield from map_norm(spec, "transformer.ln_f", "encoder/norm")
    if not spec.tie_embeddings:
        yield from map_linear(spec, "lm_head", "head/out", bias=False)


def gpt_neox(spec: ModelSpec, head: str) -> Table:
    yield Entry("gpt_neox.embed_in.weight", ("embed/tokens",))
    modules = {
        "input_layernorm": "attention_norm",
        "attention.query_key_value": QKV,
        "attention.dense": "attention/out",
        "post_attention_layernorm": "mlp_norm",
        "mlp.dense_h_to_4h": "mlp/up",
        "mlp.dense_4h_to_h": "mlp/down",
    }
    layers = "gpt_neox.layers"
    for entry in map_layers(spec, spec.num_layers, layers, "encoder", modules):
        is_qkv = len(entry.paths) > 1
        yield replace(entry, num_heads=spec.num_heads) if is_qkv else entry
    yield from map_norm(spec, "gpt_neox.final_layer_norm", "encoder/norm")
    if not spec.tie_embeddings:
        yield from map_linear(spec, "embed_out", "head/out", bias=False)


def _llama_form(spec: ModelSpec, modules: Modules) -> Table:
    """The entries of a model with these modules in its layers."""
    yield Entry("model.embed_tokens.weight", ("embed/tokens",))
    yield from map_layers(spec, spec.num_layers, "model.layers", "encoder", modules)
    yield from map_norm(spec, "model.norm", "encoder/norm")
    if not spec.tie_embeddings:
        yield from map_linear(spec, "lm_head", "head/out", bias=False)


def llama(spec: ModelSpec, head: str) -> Table:
    modules = {
        "input_layernorm": "attention_norm",
        **_ATTENTION,
        **(_HEAD_NORMS if spec.qk_norm == "scaled" else {}),
        "post_attention_layernorm": "mlp_norm",
        **_GATED,
    }
    yield from _llama_form(spec, modules)


def olmo2(spec: ModelSpec, head: str) -> Table:
    modules = {
        **_ATTENTION,
        **_HEAD_NORMS,
        "post_attention_layernorm": "attention_norm",
        "post_feedforward_layernorm": "mlp_norm",
        **_GATED,
    }
    yield from _llama_form(spec, modules)


def gemma2(spec: ModelSpec, head: str) -> Table:
    modules = {
        "input_layernorm": "attention_norm",
        **_ATTENTION,
        **(_HEAD_NORMS if spec.qk_norm == "scaled" else {}),
        "post_attention_layernorm": "attention_out_norm",
        "pre_feedforward_layernorm": "mlp_norm",
        **_GATED,
        "post_feedforward_layernorm": "mlp_out_norm",
    }
    yield from _llama_form(spec, modules)


def phi3(spec: ModelSpec, head: str) -> Table:
    modules = {
        "input_layernorm": "attention_norm",
        "self_attn.qkv_proj": QKV,
        "self_attn.o_proj": "attention/out",
        "post_attention_layernorm": "mlp_norm",
        "mlp.gate_up_proj": "mlp/gate mlp/up",
        "mlp.down_proj": "mlp/down",
    }
    yield from _llama_form(spec, modules)


def opt(spec: ModelSpec, head: str) -> Table:
    prefix = "model.decoder"
    yield Entry(f"{prefix}.embed_tokens.weight", ("embed/tokens",))
    yield Entry(f"{prefix}.embed_positions.weight", ("embed/positions/table",))
    modules = {
        **name_attention("self_attn.{}_proj", out="out"),
        "self_attn_layer_norm": "attention_norm",
        "fc1": "mlp/up",
        "fc2": "mlp/down",
        "final_layer_norm": "mlp_norm",
    }
    yield from map_layers(spec, spec.num_layers, f"{prefix}.layers", "encoder", modules)
    yield from map_norm(spec, f"{prefix}.final_layer_norm", "encoder/norm")
    if not spec.tie_embeddings:
        yield from map_linear(spec, "lm_head", "head/out", bias=False)


def phi(spec: ModelSpec, head: str) -> Table:
    yield Entry("model.embed_tokens.weight", ("embed/tokens",))
    modules = {
        "input_layernorm": "attention_norm",
        **{
            f"self_attn.{letter}_proj": f"attention/{name}"
            for letter, name in (("q", "query"), ("k", "key"), ("v", "value"))
        },
        "self_attn.dense": "attention/out",
        "mlp.fc1": "mlp/up",
        "mlp.fc2": "mlp/down",
    }
    yield from map_layers(spec, spec.num_layers, "model.layers", "encoder", modules)
    yield from map_norm(spec, "model.final_layernorm", "encoder/norm")
    if spec.tie_embeddings:
        yield Entry("lm_head.bias", ("head/bias",))
    else:
        yield from map_linear(spec, "lm_head", "head/out", bias=True)
