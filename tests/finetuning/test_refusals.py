"""Settings of fine-tuning that are refused."""

import pytest
from tiny_refusals import check_refusal, refused

from jaxpt.config.finetuning import default_finetune_config, make_finetune_plan
from jaxpt.files.folder import write_json
from jaxpt.finetuning.export import IDENTITY, load_finetuned
from jaxpt.finetuning.grid import _load_base

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


@pytest.mark.parametrize("head", ["gpt5", "", None, 3, ["gpt2"], "../gpt2"])
def test_a_forged_head_is_refused(head, make_tune, tmp_path, refuses):
    """With a valid checksum, before any network is loaded."""
    identity = {"source": "nowhere", "network": "0", "step": 4, "labels": ["a", "b"]}
    path = tmp_path / IDENTITY
    write_json(path, identity | {"data": {"train": "0"}, "head": head})
    kept = {each: each.read_bytes() for each in tmp_path.iterdir()}
    with refuses(str(path), "head", "gpt2"):
        load_finetuned(tmp_path)
    with refuses(str(path), "head", "gpt2"):
        _load_base(make_tune(), "nowhere", tmp_path, for_export=False)
    assert {each: each.read_bytes() for each in tmp_path.iterdir()} == kept
