"""BD3-LM (Arriola et al. 2025): MDLM's network, for block diffusion.

transformers loads it with the repository's code only, which is not run here: its config
is read as data. `jaxpt.hub.families.dit_form` describes the network and departures.
Without adaLN (`adaln=False`), norms have no biases. The range of noise rates of its
training (`var_min`) is not that of further training.
"""

from jaxpt.hub.families.dit_form import (
    BUFFERS,
    DIT_FORM,
    fold,
    list_classes,
    list_rows,
    list_tensors,
    unfold,
)
from jaxpt.hub.family import Family
from jaxpt.hub.fields import Config, FieldRow, Values, field, fixed, refusal
from jaxpt.text_form import TextForm

_BLOCK_SIZE = "block_size"


def _complete(config: Config) -> Config:
    """The config, if all its fields are known."""
    return FAMILY.check_known(config, _IDLE)


def _check_blocks(config: Config) -> Values:
    """Nothing: the size of blocks is a setting of the objective."""
    if config[_BLOCK_SIZE] < 1:
        raise refusal(_BLOCK_SIZE, config[_BLOCK_SIZE], "at least 1")
    return {}


def _read_blocks(config: Config) -> dict[str, int]:
    return {f"block_diffusion.{_BLOCK_SIZE}": config.get(_BLOCK_SIZE, 1)}


def _write_blocks(form: TextForm) -> Config:
    return {_BLOCK_SIZE: form.block_size}


FAMILY = Family(
    "bd3lm",
    {"masked": "BD3LM"},
    (
        *list_rows(list_classes("bd3lm-owt-block_size16", "BD3LM")),
        field("adaln", "norm_bias", True),
        FieldRow(_check_blocks, lambda spec: {}, {_BLOCK_SIZE: 1}),
        fixed(cross_attn=True, causal=False),
        FieldRow(
            lambda config: {},  # the kernel, and how rates of training are drawn
            lambda spec: {"attn_backend": "sdpa", "var_min": False},
            {"attn_backend": "flex", "var_min": True},
        ),
    ),
    list_tensors,
    constants=DIT_FORM,
    inert="mask_token_id sampling_eps_max sampling_eps_min",
    complete=_complete,
    fold=fold,
    unfold=unfold,
    buffers=rf"{BUFFERS}|sampling_eps_(min|max)",
    hides_mask=True,
    objective="block_diffusion",
    own_mask=True,
    list_settings=_read_blocks,
    form_fields=_write_blocks,
)
# Those whose rows check them.
_IDLE = ("causal", "cross_attn", "tokenizer_class")
