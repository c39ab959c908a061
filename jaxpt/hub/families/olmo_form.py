"""What OLMo 2 and 3 share: norms of outputs, and of all heads' queries and keys."""

from jaxpt.hub.entries import ATTENTION, GATED, HEAD_NORMS, Table
from jaxpt.hub.families.llama_form import LLAMA_FORM, map_form
from jaxpt.nn.model_spec import ModelSpec

OLMO_FORM = LLAMA_FORM | {"norm_position": "output", "qk_norm": "width"}


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    modules = {
        **ATTENTION,
        **HEAD_NORMS,
        "post_attention_layernorm": "attention_norm",
        "post_feedforward_layernorm": "mlp_norm",
        **GATED,
    }
    yield from map_form(spec, modules)
