"""LLaDA (Nie et al. 2025): Llama's form with OLMo's names, for masked diffusion.

transformers loads it with the repository's code only, which is not run here: its config
is read as data. Departure: that code reads padding as it reads a text, as it ignores
its attention mask; here no token attends to padding.
"""

from jaxpt.hub.entries import Table, TensorEntry, map_layers, map_norm, map_untied
from jaxpt.hub.families.llama_form import LLAMA_FORM, RATE
from jaxpt.hub.family import Family
from jaxpt.hub.fields import Config, FieldRow, Values, field, refusal, require, size
from jaxpt.nn.model_spec import ModelSpec

_MODULES = {
    "attn_norm": "attention_norm",
    "q_proj": "attention/query",
    "k_proj": "attention/key",
    "v_proj": "attention/value",
    "attn_out": "attention/out",
    "ff_norm": "mlp_norm",
    "ff_proj": "mlp/gate",
    "up_proj": "mlp/up",
    "ff_out": "mlp/down",
}
_ACTIVATIONS = ("silu", "gelu", "relu")
# The defaults of that code, and the values with which its network is Llama's.
_FORM: dict[str, tuple[object, object]] = {
    "block_type": ("sequential", "llama"),
    "block_group_size": (1, 1),
    "alibi": (False, False),
    "rope": (False, True),
    "attention_layer_norm": (False, False),
    "layer_norm_type": ("default", "rms"),
    "layer_norm_with_affine": (True, True),
    "include_bias": (False, False),
}
_CODE = "GSAI-ML/LLaDA-8B-Base--"
_AUTO_MAP = {
    "AutoConfig": f"{_CODE}configuration_llada.LLaDAConfig",
    "AutoModel": f"{_CODE}modeling_llada.LLaDAModelLM",
    "AutoModelForCausalLM": f"{_CODE}modeling_llada.LLaDAModelLM",
}


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    body, num = "model.transformer", spec.num_layers
    yield TensorEntry(f"{body}.wte.weight", ("embed/tokens",))
    yield from map_layers(spec, num, f"{body}.blocks", "encoder", _MODULES)
    yield from map_norm(spec, f"{body}.ln_f", "encoder/norm")
    yield from map_untied(spec, f"{body}.ff_out")


def _read_form(config: Config) -> Values:
    """Nothing, if the network is Llama's."""
    for name, (_, value) in _FORM.items():
        if config[name] != value:
            raise refusal(name, config[name], repr(value))
    if config.get("bias_for_layer_norm"):  # null means `include_bias`
        raise refusal("bias_for_layer_norm", True, "false or null")
    require(config, multi_query_attention=None)
    return {}


def _read_activation(name: str, config: Config) -> str:
    if name not in _ACTIVATIONS:
        raise refusal("activation_type", name, f"one of {', '.join(_ACTIVATIONS)}")
    return name


def _complete(config: Config) -> Config:
    """The config, if all its fields are known."""
    return FAMILY.check_known(config, _IDLE)


FAMILY = Family(
    "llada",
    {"masked": "LLaDAModelLM"},
    (
        FieldRow(
            _read_form,
            lambda spec: {
                "auto_map": _AUTO_MAP,
                "bias_for_layer_norm": False,
                "multi_query_attention": None,
                **{name: value for name, (_, value) in _FORM.items()},
            },
            {name: default for name, (default, _) in _FORM.items()},
        ),
        field("vocab_size", "vocab_size", 50257),
        size(
            "embedding_size",
            "vocab_size",
            50304,
            lambda config: config["vocab_size"],
        ),
        field("n_layers", "num_layers", 12),
        field("d_model", "d_model", 768),
        size("n_heads", "num_heads", 12),
        size(
            "n_kv_heads",
            "num_kv_heads",
            None,
            lambda config: config["n_heads"],
            "kv_heads",
        ),
        FieldRow(lambda config: {}, lambda spec: {}, {"mlp_ratio": 4}),
        size(
            "mlp_hidden_size",
            "d_ff",
            None,
            lambda config: config["mlp_ratio"] * config["d_model"],
        ),
        field("activation_type", "activation", "swiglu", _read_activation),
        field("max_sequence_length", "max_len", 1024),
        field("rms_norm_eps", "norm_epsilon", 1e-5),
        field("rope_theta", "rotary_base", 10000.0),
        field(
            "include_qkv_bias",
            "qkv_bias",
            False,
            lambda value, _: "yes" if value else "no",
            "has_qkv_bias",
        ),
        field("weight_tying", "tie_embeddings", True),
        field("input_emb_norm", "scale_embeddings", False),
        field("scale_logits", "scale_logits", False),
        field("residual_dropout", "dropout", 0.1),
        field("embedding_dropout", "embed_dropout", 0.1),
        field("attention_dropout", "attention_dropout", 0.1),
        field("init_std", "init_std", 0.02),
    ),
    list_tensors,
    constants=LLAMA_FORM,
    inert="alibi_bias_max attention_layer_norm_with_affine flash_attention "
    "init_cutoff_factor init_device init_fn mask_token_id precision "
    "rope_full_precision",
    complete=_complete,
    copies={"model.transformer.ff_out.weight": "model.transformer.wte.weight"},
    ids={"eos_token_id": 50256},
    rate=RATE,
    objective="masked_diffusion",
)
_IDLE = ("bias_for_layer_norm", "multi_query_attention", "tokenizer_class")
