"""Which tokens to hide, and when: MLM's masks compared on many epochs of little text.

    jaxpt compare --config configs/shakespeare_masks.py \
        --config.data.path=FILE --workdir runs/masks

FILE is that of shakespeare_char.py, as are text and model; rows do not overlap, so that
the same ones come back each of some 48 epochs. One mask for each row (static_1) or ten
(static_10, RoBERTa's comparison) against new ones at each visit (mlm); whole words and
spans; a rate that falls from 0.3 to 0.15 (GPT-BERT). The question to all is the cloze.

About 7 minutes on 2 cores. Expected, cloze accuracy: falling 0.558; mlm and static_10
0.512, as alike as in RoBERTa's table; static_1 0.268, which overfits its masks; words
0.155 and spans 0.148, little more than the most frequent character: what would tell a
character is hidden with it. Two seeds are too few for most of the verdicts.
"""

from shakespeare_char import get_config as get_base

VARIANTS = {
    "static_1": {"static_masks": 1},
    "static_10": {"static_masks": 10},
    "words": {"masking": "words"},
    "spans": {"masking": "spans"},
    "falling": {"mask_rate": 0.3, "mask_rate_end": 0.15},
}


def get_config():
    """Two seeds each, at the FLOPs of 1,130 steps of MLM."""
    config = get_base()
    config.objective = "mlm"
    config.train.steps = 1500
    config.data.rows = "chunks"
    config.model.head_bias = True
    compare = config.compare
    compare.objectives = ("mlm", *VARIANTS)
    compare.overrides = {
        name: {"objective": "mlm", "mlm": settings}
        for name, settings in VARIANTS.items()
    }
    compare.seeds = (0, 1)
    compare.num_evals = 5
    compare.budget, compare.amount = "flops", 4e12
    return config
