"""Phi 3, 3.5 and 4 mini: Llama's form, merged projections, a window in every layer."""

from jaxpt.hub.entries import QKV, Table
from jaxpt.hub.families.llama_form import (
    BUFFERS,
    COPIES,
    LLAMA_FORM,
    RATE,
    list_rows,
    map_form,
)
from jaxpt.hub.family import Family
from jaxpt.hub.fields import field, fixed
from jaxpt.hub.long_rope import long_rope
from jaxpt.hub.windows import decode_window
from jaxpt.nn.model_spec import ModelSpec


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    modules = {
        "input_layernorm": "attention_norm",
        "self_attn.qkv_proj": QKV,
        "self_attn.o_proj": "attention/out",
        "post_attention_layernorm": "mlp_norm",
        "mlp.gate_up_proj": "mlp/gate mlp/up",
        "mlp.down_proj": "mlp/down",
    }
    yield from map_form(spec, modules)


FAMILY = Family(
    "phi3",
    {"causal": "Phi3ForCausalLM"},
    (
        fixed(is_causal=True, attention_chunk_size=None, layer_types=None),
        *list_rows(
            long_rope(4096, fraction_name="partial_rotary_factor", fraction=1.0),
            vocab_size=32064,
            hidden_size=3072,
            intermediate_size=8192,
            max_position_embeddings=4096,
            rms_norm_eps=1e-5,
        ),
        field(
            "sliding_window",
            "window",
            None,
            lambda width, _: decode_window("sliding_window", width),
            lambda spec: spec.window + 1 if spec.window else None,
        ),
        field("resid_pdrop", "dropout", 0.0),
    ),
    list_tensors,
    body="model.",
    constants=LLAMA_FORM,
    # Without LongRoPE, the original length has no effect.
    inert="embd_pdrop original_max_position_embeddings",
    freezes_pad=True,
    copies=COPIES,
    buffers=BUFFERS,
    ids={"bos_token_id": 1, "eos_token_id": 32000},
    rate=RATE,
)
