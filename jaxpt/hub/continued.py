"""Settings for the continued pretraining of an imported model.

The defaults of jaxpt are for random initialization. An import replaces those that would
harm trained parameters, unless a flag or a config file sets them:

    optim.lr                  of continued pretraining, by family; AdamW
    optim.warmup_steps        6 % of the steps, as in RoBERTa's fine-tuning
    data.seq_len              the model's length, at most `MOST_POSITIONS`
    data.add_special_tokens   [CLS] and [SEP], or [BOS], where the family has them
    mlm.mask_rate             ModernBERT: 30 %
    span_corruption.mean_span_length    ByT5: 20 bytes
    data.path                 none: another text than the user's would do harm

Learning rates: 5e-5 is the default of transformers' examples `run_mlm.py` and
`run_clm.py`; T5 and ELECTRA are trained with larger rates, models of the Llama kind,
which are larger, with smaller ones.
"""

from jaxpt.errors import argument
from jaxpt.hub.family import Family
from jaxpt.hub.import_settings import ROW_LENGTH, ImportSettings
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.objectives import OBJECTIVES
from jaxpt.text.rows.rows_spec import PLAIN
from jaxpt.text_form import TextForm

BYTES = 20.0  # of a masked span: ByT5, Xue et al. 2022
WARMUP = 0.06  # of the steps
MOST_POSITIONS = (
    1024  # ModernBERT's length in most of its training; longer rows are rare
)


def suggest_settings(
    settings: ImportSettings,
    family: Family,
    spec: ModelSpec,
    form: TextForm,
    has_byt5s_ids: bool = False,
) -> list[str]:
    """Sets what continued pretraining needs; returns a line about it.

    Args:
      family: of the network, with its learning rate.
      spec: of the network that is used after training.
      form: the special tokens around its texts.
      has_byt5s_ids: its tokens are ByT5's bytes.
    """
    values: dict[str, object] = {"optim.lr": family.rate}
    if not settings.is_set("optim.warmup_steps"):
        steps = settings.get("train.steps")
        values["optim.warmup_steps"] = max(1, round(WARMUP * steps))
    if not settings.is_set("data.row_length"):
        values["data.seq_len"] = min(spec.max_len, MOST_POSITIONS)
    objective = OBJECTIVES[settings.get("objective")].Spec
    needs = objective.for_seq_len(ROW_LENGTH).needs
    is_plain = settings.get("data.rows") in PLAIN and not needs.rows
    is_plain = is_plain and not objective.ADDS_START  # before a second one
    if is_plain and not spec.num_decoder_layers and (form.before or form.after):
        values["data.add_special_tokens"] = True
    values |= family.settings
    if has_byt5s_ids:
        values["span_corruption.mean_span_length"] = BYTES
    if not settings.get("data.mixture"):
        values["data.path"] = ""
    changed = {n: value for n, value in values.items() if settings.suggest(n, value)}
    line = ", ".join(f"{n}={value}" for n, value in changed.items() if n != "data.path")
    lines = [f"for continued pretraining: {line}"] if line else []
    if "data.path" in changed:
        lines.append(
            f"to train the model further, import it with {argument('data')}=PATH"
        )
    return lines
