"""MDLM (Sahoo et al. 2024): a DiT without time conditioning, for masked diffusion.

transformers loads it with the repository's code only, which is not run here: its config
is read as data. `jaxpt.hub.families.dit_form` describes the network and departures. The
class of BD3-LM computes the same if `cross_attn` is false.
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
from jaxpt.hub.fields import Config, fixed


def _complete(config: Config) -> Config:
    """The config, if all its fields are known."""
    return FAMILY.check_known(config, _IDLE)


FAMILY = Family(
    "mdlm",
    {"masked": "MDLM"},
    (
        *list_rows(list_classes("mdlm-owt", "MDLM")),
        fixed(cross_attn=False, adaln=True, causal=False),
    ),
    list_tensors,
    constants=DIT_FORM,
    inert="attn_backend block_size mask_token_id sampling_eps_max sampling_eps_min "
    "var_min",
    complete=_complete,
    older_classes={"BD3LM": "masked"},
    fold=fold,
    unfold=unfold,
    buffers=rf"{BUFFERS}|sampling_eps_(min|max)",
    hides_mask=True,
    objective="masked_diffusion",
)
# Those whose rows check them.
_IDLE = ("adaln", "causal", "cross_attn", "tokenizer_class")
