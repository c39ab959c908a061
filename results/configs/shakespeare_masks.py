"""MLM's masking strategies compared, over many epochs of little text.

    jaxpt compare --config results/configs/shakespeare_masks.py \
        --config.data.path=FILE --workdir runs/masks

FILE, text and model are those of shakespeare_char.py; rows do not overlap, so that the
same rows occur in each of about 48 epochs. One static mask for each row (static_1) or
ten (static_10, RoBERTa's comparison), or dynamic masks (mlm); whole words and spans; a
mask rate that falls from 0.3 to 0.15 (GPT-BERT). The shared metric is the cloze.

About 7 minutes on 2 cores. Expected cloze accuracy: falling 0.558; mlm and static_10
0.512, equal as in RoBERTa's table; static_1 0.268, which overfits its masks; words
0.155 and spans 0.148, little more than the most frequent character, because they also
mask the context that would identify a character. Two seeds give means and no verdicts;
for those add --config.compare.seeds="(0,1,2,3,4)".
"""

from jaxpt.config.config_files import read_config_file

VARIANTS = {
    "static_1": {"static_masks": 1},
    "static_10": {"static_masks": 10},
    "words": {"masking": "words"},
    "spans": {"masking": "spans"},
    "falling": {"mask_rate": 0.3, "mask_rate_end": 0.15},
}


def get_config():
    """Two seeds each, at the FLOPs of 1,130 steps of MLM."""
    config = read_config_file("configs/shakespeare_char.py")
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
