"""CodeGen: GPT-J whose queries, values and keys are one tensor, in four parts.

Each part has those of a quarter of the heads, as on the four cores that trained it.
"""

from dataclasses import replace

from jaxpt.hub.entries import (
    Table,
    TensorEntry,
    map_layers,
    map_linear,
    map_norm,
)
from jaxpt.hub.families import gptj
from jaxpt.hub.fields import Config, FieldRow, Values, refusal
from jaxpt.nn.model_spec import ModelSpec

_NUM_PARTS = 4
_MODULES = {
    "ln_1": "attention_norm",
    "attn.qkv_proj": "attention/query attention/value attention/key",
    "attn.out_proj": "attention/out",
    "mlp.fc_in": "mlp/up",
    "mlp.fc_out": "mlp/down",
}


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    yield TensorEntry("transformer.wte.weight", ("embed/tokens",))
    num, layers = spec.num_layers, "transformer.h"
    for entry in map_layers(spec, num, layers, "encoder", _MODULES):
        if len(entry.paths) > 1:
            query, _, key = entry.paths
            entry = replace(
                entry,
                num_heads=spec.num_heads,
                num_groups=_NUM_PARTS,
                paired=(query, key),
                num_paired=spec.rotary_width,
            )
        yield entry
    yield from map_norm(spec, "transformer.ln_f", "encoder/norm")
    if spec.tie_embeddings:
        yield TensorEntry("lm_head.bias", ("head/bias",))
    else:
        yield from map_linear(spec, "lm_head", "head/out", bias=True)


def _check_heads(config: Config) -> Values:
    """Nothing, if the heads can be in four parts."""
    if (num := config["n_head"]) % _NUM_PARTS:
        raise refusal("n_head", num, f"a multiple of {_NUM_PARTS}")
    return {}


FAMILY = replace(
    gptj.FAMILY,
    name="codegen",
    heads={"causal": "CodeGenForCausalLM"},
    rows=(*gptj.FAMILY.rows, FieldRow(_check_heads, lambda spec: {})),
    tensors=list_tensors,
    inert=f"{gptj.FAMILY.inert} n_ctx",
    buffers=r"transformer\.h\.\d+\.attn\.(bias|masked_bias|causal_mask|embed_positions)",
)
