"""Five small models in forms that transformers has, at equal cost (`make models`).

    jaxpt compare --config configs/models.py --workdir runs/models
    jaxpt export --workdir runs/models --to models

The first seed of each objective ships with jaxpt, as `demo:mlm`.
"""

from quickstart import get_config as get_base

# ModernBERT's form, of which transformers has an encoder and a decoder.
MODERN = {
    "norm_bias": False,
    "embed_norm": True,
    "gated_mlp": True,
    "activation": "gelu",
    "use_bias": False,
    "head_transform": True,
    "head_bias": True,
    "d_ff": 128,
}
ELECTRA = {
    "norm_position": "post",
    "positions": "learned",
    "activation": "gelu",
    "num_types": 1,
    "head_bias": True,
    "head_transform": True,
}
T5 = {
    "num_layers": 1,
    "num_decoder_layers": 1,
    "norm": "rmsnorm",
    "positions": "relative",
    "use_bias": False,
    "scale_attention": False,
    "scale_logits": True,
}


FORMS = {
    "clm": MODERN,
    "mlm": MODERN,
    "masked_diffusion": MODERN,
    "electra": ELECTRA,
    "span_corruption": T5,
}


def get_config(objective="clm"):
    """The quickstart's recipe with subwords."""
    config = get_base("clm")
    config.objective = objective
    config.tokenizer.kind = "bpe"
    config.tokenizer.vocab_size = 1024
    compare = config.compare
    compare.objectives = tuple(FORMS)
    compare.amount = 2e12
    compare.overrides = {name: {"model": form} for name, form in FORMS.items()}
    return config
