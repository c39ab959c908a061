"""nanochat: norms without parameters, QK-norm, relu^2 and a soft cap of logits.

The class norms queries and keys after their rotation, which keeps their RMS: the same
as before it. It rotates the other way, which is Llama's rotation of heads whose halves
change places.
"""

from dataclasses import replace

from jaxpt.hub.entries import ATTENTION, Table
from jaxpt.hub.families.gemma_form import cap
from jaxpt.hub.families.llama_form import COPIES, LLAMA_FORM, RATE, list_rows, map_form
from jaxpt.hub.family import Family
from jaxpt.hub.fields import CAUSAL, Config, FieldRow, Values
from jaxpt.hub.rotary import rope
from jaxpt.nn.model_spec import ModelSpec

_MODULES = {**ATTENTION, "mlp.fc1": "mlp/up", "mlp.fc2": "mlp/down"}
_BIAS = "attention_bias"


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    for entry in map_form(spec, _MODULES):
        name = entry.paths[0].split("/")[-2]
        if name in ("query", "key"):
            num = spec.num_heads if name == "query" else spec.kv_heads
            entry = replace(entry, num_heads=num, is_swapped=True)
        yield entry


def _read_biases(config: Config) -> Values:
    """Biases of all layers of attention, or of none."""
    return dict.fromkeys(("qkv_bias", "out_bias"), "yes" if config[_BIAS] else "no")


FAMILY = Family(
    "nanochat",
    {"causal": "NanoChatForCausalLM"},
    (
        CAUSAL,
        *list_rows(
            rope(is_scaled=False),
            vocab_size=50304,
            num_hidden_layers=12,
            hidden_size=768,
            num_attention_heads=6,
            intermediate_size=8192,
            hidden_act="relu2",
        ),
        FieldRow(_read_biases, lambda spec: {_BIAS: spec.has_qkv_bias}, {_BIAS: False}),
        cap("final_logit_softcapping", "logit_softcap", 15.0),
    ),
    list_tensors,
    body="model.",
    constants=LLAMA_FORM
    | {
        "gated_mlp": False,
        "norm_scale": False,
        "embed_norm": True,
        "first_norm": True,
        "qk_norm": "unscaled",
    },
    copies=COPIES,
    freezes_pad=True,
    ids={"bos_token_id": 0, "eos_token_id": 1},
    rate=RATE,
)
