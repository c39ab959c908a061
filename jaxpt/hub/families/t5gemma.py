"""T5Gemma: Gemma 2's layers as an encoder and a decoder, each with its token table.

The two stacks have their own configs, which may differ in layers only. transformers 5
reads a window of w tokens as w before and after a token in the encoder, and as w - 1
before it in the decoder.
"""

from collections.abc import Iterator

from jaxpt.errors import DataError
from jaxpt.hub.entries import (
    GATED,
    Modules,
    Table,
    TensorEntry,
    map_layers,
    map_linear,
    map_norm,
    name_attention,
)
from jaxpt.hub.families.gemma_form import GEMMA_FORM, IDS, SCALAR, cap
from jaxpt.hub.families.llama_form import RATE, list_heads
from jaxpt.hub.family import UNSUPPORTED, Family
from jaxpt.hub.fields import (
    NO_ROPE,
    Config,
    FieldRow,
    Values,
    activation,
    check_type,
    field,
    fixed,
    refusal,
    size,
)
from jaxpt.hub.rotary import rope
from jaxpt.hub.windows import FULL, LOCAL, find_global_every
from jaxpt.nn.model_differences import find_differences
from jaxpt.nn.model_spec import ModelSpec

_STACKS = {"encoder": "num_layers", "decoder": "num_decoder_layers"}
# What the stacks may differ in.
_LAYERS = {"num_hidden_layers": 26, "layer_types": None}
# Fields of the whole config, which override those of the stacks.
_WHOLE = (
    *("is_encoder_decoder", "dropout_rate", "attention_dropout"),
    *("tie_word_embeddings", "initializer_range", "model_type", "architectures"),
)


def _flatten(config: Config) -> Config:
    """The config of both stacks as one, with the layers of each."""
    if "encoder.num_hidden_layers" in config:  # is flat
        return config
    parts: dict[str, Config] = {name: config.get(name) or {} for name in _STACKS}
    for name, part in parts.items():
        check_type(name, part, dict, "an object")
    layers = {
        f"{name}.{key}": part.get(key, default)
        for name, part in parts.items()
        for key, default in _LAYERS.items()
    }
    whole = {key: config[key] for key in (*_WHOLE, *UNSUPPORTED) if key in config}
    one, two = (
        {key: x for key, x in part.items() if key not in (*_LAYERS, *_WHOLE)} | layers
        for part in parts.values()
    )
    width, own = (two.get("cross_attention_hidden_size"), one.get("hidden_size", 2304))
    if width not in (None, own):
        raise refusal("decoder.cross_attention_hidden_size", width, str(own))
    spec, other = FAMILY.read(whole | one), FAMILY.read(whole | two)
    for name, value in find_differences(spec, other):
        raise DataError(
            f"config.json: decoder: {name}={value!r}: must be "
            f"{getattr(spec, name)!r}, as in the encoder"
        )
    if config.get("vocab_size", spec.vocab_size) != spec.vocab_size:
        allowed = f"encoder.vocab_size={spec.vocab_size}"
        raise refusal("vocab_size", config["vocab_size"], allowed)
    return whole | one


def _nest(config: Config) -> Config:
    """The reverse: the config of an export."""
    flat = dict(config)
    whole = {key: flat.pop(key) for key in _WHOLE if key in flat}
    layers = {
        name: {key: flat.pop(f"{name}.{key}") for key in _LAYERS} for name in _STACKS
    }
    for name, own in layers.items():
        rest = {"is_decoder": name == "decoder", "model_type": "t5_gemma_module"}
        whole[name] = flat | own | rest
    return whole | {"vocab_size": flat["vocab_size"]}


def _list_kinds(num: int, every: int) -> list[str]:
    is_local = (every == 0 or (i + 1) % every > 0 for i in range(num))
    return [LOCAL if each else FULL for each in is_local]


def _read_layers(config: Config) -> Values:
    """The window, whose layers both stacks have in the same places."""
    kinds, every = {}, {}
    for name in _STACKS:
        num = config[f"{name}.num_hidden_layers"]
        own = config.get(f"{name}.layer_types")
        kinds[name] = _list_kinds(num, 2) if own is None else own
        every[name] = find_global_every(kinds[name], num, is_last=True)
    longer = max(_STACKS, key=lambda name: len(kinds[name]))
    for name, own in kinds.items():
        if own != _list_kinds(len(own), every[longer]):
            allowed = f"as of the {longer}: {FULL} in the last of every n layers"
            raise refusal(f"{name}.layer_types", own, allowed)
    if every[longer] == 1:
        return {}
    width = config["sliding_window"]
    if width is None or width < 2:
        raise refusal("sliding_window", width, f"at least 2 with {LOCAL} layers")
    windows = {"window": width, "decoder_window": width - 1}
    return windows | {"global_every": every[longer], "global_last": True}


def _write_layers(spec: ModelSpec) -> Config:
    every = spec.global_every if spec.window else 1
    kinds = {
        f"{name}.layer_types": _list_kinds(getattr(spec, own), every)
        for name, own in _STACKS.items()
    }
    return kinds | {"sliding_window": spec.window or 4096}


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    for stack, own in _STACKS.items():
        prefix = f"model.{stack}"
        embed = "embed" if stack == "encoder" else "decoder_embed"
        yield TensorEntry(f"{prefix}.embed_tokens.weight", (f"{embed}/tokens",))
        modules: Modules = dict(_list_attention("self_attn", "attention"))
        if stack == "decoder":
            modules |= _list_attention("cross_attn", "cross")
        modules |= {
            "pre_feedforward_layernorm": "mlp_norm",
            **GATED,
            "post_feedforward_layernorm": "mlp_out_norm",
        }
        layers = f"{prefix}.layers"
        yield from map_layers(spec, getattr(spec, own), layers, stack, modules)
        yield from map_norm(spec, f"{prefix}.norm", f"{stack}/norm")
    if not spec.tie_embeddings:
        yield from map_linear(spec, "lm_head.out_proj", "head/out", bias=False)


def _list_attention(name: str, path: str) -> Iterator[tuple[str, str]]:
    yield f"pre_{name}_layernorm", f"{path}_norm"
    yield from name_attention(f"{name}.{{}}_proj", path).items()
    yield f"post_{name}_layernorm", f"{path}_out_norm"


FAMILY = Family(
    "t5gemma",
    {"seq2seq": "T5GemmaForConditionalGeneration"},
    (
        fixed(is_encoder_decoder=True, is_written=True),
        fixed(is_causal=True, attention_chunk_size=None),
        fixed(attention_bias=False, is_written=True),
        field("vocab_size", "vocab_size", 256000),
        field("encoder.num_hidden_layers", "num_layers", 26),
        size("decoder.num_hidden_layers", "num_decoder_layers", 26),
        field("hidden_size", "d_model", 2304),
        *list_heads(
            {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256}
        ),
        field("intermediate_size", "d_ff", 9216),
        field("max_position_embeddings", "max_len", 8192),
        field("rms_norm_eps", "norm_epsilon", 1e-6),
        activation("hidden_activation", "gelu_pytorch_tanh"),
        rope(),
        SCALAR,
        cap("final_logit_softcapping", "logit_softcap", 30.0),
        cap("attn_logit_softcapping", "attention_softcap", 50.0),
        FieldRow(
            _read_layers, _write_layers, {"sliding_window": 4096}, ("sliding_window",)
        ),
        field("tie_word_embeddings", "tie_embeddings", True),
        field("dropout_rate", ("dropout", "embed_dropout"), 0.0),
        field("attention_dropout", "attention_dropout", 0.0),
        field("initializer_range", "init_std", 0.02),
    ),
    list_tensors,
    body="model.",
    constants=GEMMA_FORM | {"norm_position": "both", "decoder_tokens": True},
    inert=NO_ROPE + "classifier_dropout_rate",
    complete=_flatten,
    restore=_nest,
    copies={"lm_head.out_proj.weight": "model.decoder.embed_tokens.weight"},
    freezes_pad=True,
    stacks=tuple(_STACKS),
    ids=IDS | {"decoder_start_token_id": 2},
    rate=RATE,
)
