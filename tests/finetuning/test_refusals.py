"""Settings of fine-tuning that are refused."""

import pytest
from tiny_refusals import check_refusal, refused

from jaxpt.config.finetuning import default_finetune_config, make_finetune_plan

TRAIN = """
    lr=(); seeds=(0, 0); epochs=(-1,); keep=first; warmup_share=1.0; lm_weight=inf
    lr=(1e+39,) ... finite in float32; lr=(0.001, inf) ... finite in float32; lr=(nan,)
"""
OPTIM = "name=muon; weight_decay=inf; epsilon=inf; clip_norm=inf"


def plan(section, **settings):
    config = default_finetune_config("classification")
    for name in ("train", "dev", "test"):
        config.data[name] = f"{name}.tsv"
    config[section].update(settings)
    make_finetune_plan(config)


@pytest.mark.parametrize(
    "make, parts",
    [
        *refused(plan, "train", TRAIN, "train"),
        *refused(plan, "optim", OPTIM, "optim"),
        *refused(plan, "task", "head=tail", "task"),
        *refused(plan, "data", "train=''", "data"),
    ],
)
def test_bad_settings_are_refused(make, parts, refuses):
    check_refusal(make, parts, refuses)
