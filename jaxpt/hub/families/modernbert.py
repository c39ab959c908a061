"""ModernBERT and Ettin's encoders."""

from jaxpt.hub.families.modernbert_form import (
    COPIES,
    FORM,
    INERT,
    LAYER_DEFAULTS,
    list_rows,
    list_tensors,
    read_layers,
    write_layers,
)
from jaxpt.hub.family import Family
from jaxpt.hub.fields import Config, FieldRow, Values
from jaxpt.hub.task_names import CHOICES, QUESTIONS, TEXTS, TOKENS, HeadNames
from jaxpt.nn.model_spec import ModelSpec


def _read_layers(config: Config) -> Values:
    """Which layers have a window, its width, and the rotary base of either kind."""
    return read_layers(config, config["local_attention"] // 2, 1)


def _write_layers(spec: ModelSpec) -> Config:
    width = {"local_attention": 2 * spec.window} if spec.window else {}
    every = (spec.global_every or 1) if spec.window else 1
    return {
        "global_attn_every_n_layers": every,
        **write_layers(spec),
        **width,
    }


_TASK_HEADS = tuple(
    HeadNames(
        form,
        {"head.dense": "pool", "head.norm": "norm", "classifier": "out"},
        unbiased=("pool", "norm"),
        settings=(("classifier_pooling", pooling),),
    )
    for form, pooling in (("modernbert", "cls"), ("modernbert_mean", "mean"))
)
FAMILY = Family(
    "modernbert",
    {"masked": "ModernBertForMaskedLM"},
    list_rows(FieldRow(_read_layers, _write_layers, LAYER_DEFAULTS)),
    list_tensors,
    body="model.",
    constants=FORM,
    inert=INERT + "classifier_pooling deterministic_flash_attn "
    "reference_compile sparse_prediction sparse_pred_ignore_index",
    copies=COPIES,
    freezes_pad=True,
    task_heads=dict.fromkeys((TEXTS, TOKENS, QUESTIONS, CHOICES), _TASK_HEADS),
    settings={"mlm.mask_rate": 0.3},
)
