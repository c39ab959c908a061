"""Settings of optimizers, schedules and groups of layers that are refused."""

import pytest
from tiny_refusals import check_refusal, refused

from jaxpt.learn.groups import GroupSpec
from jaxpt.learn.optim_spec import OptimSpec

OPTIM = """
    lr=0; lr=nan; schedule=step; warmup_steps=-1; min_lr_ratio=1.5; name=sgd
    beta1=1.0; beta2=-0.1; epsilon=0; weight_decay=-1; clip_norm=-1
    ema_decay=1.0; ema_decay=-0.5; warmup_type=flat; warmup_type=cosine & warmup_steps=5
    beta2=1.0 & name=lion; muon_lr=0.0 & name=muon; momentum=1.0 & name=muon
    decay_fraction=0.0 & schedule=wsd; decay_fraction=1.1 & schedule=wsd
    decay_shape=step & schedule=wsd
    min_lr_ratio=0.0 & schedule=wsd & decay_shape=exponential
    slant_cut=0.2 & schedule=linear ... linear
    warmup_type=flat & warmup_steps=3 & schedule=bert_linear ... bert_linear
    min_lr_ratio=0.1 & schedule=bert_linear
"""
TRIANGLE = """
    warmup_steps=5 ... slanted_triangle
    slant_ratio=0.5 ... at least 1
    slant_cut=1.0 ... below 1
"""
GROUPS = """
    decay=0.0 ... above 0
    decay=1.1 ... at most 1
    form=beit ... plain, electra
    form=electra ... plain with groups.decay=1
    unfreeze=-1 ... at least 0
"""


@pytest.mark.parametrize(
    "make, parts",
    [
        *refused(OptimSpec, "optim", OPTIM),
        *refused(OptimSpec, "optim", TRIANGLE, schedule="slanted_triangle"),
        *refused(GroupSpec, "groups", GROUPS),
    ],
)
def test_bad_settings_are_refused(make, parts, refuses):
    check_refusal(make, parts, refuses)
