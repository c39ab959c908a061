"""A masked student of one layer, taught by the run of wikitext2_mlm.py, of two.

    jaxpt train --config configs/wikitext2_mlm.py:DIR --workdir runs/mlm
    jaxpt train --config configs/wikitext2_distillation.py:DIR \
        --config.distillation.teacher=runs/mlm --workdir runs/distilled

DIR, text, tokenizer and model are those of wikitext2.py. DistilBERT's losses and
weights; the student begins as the teacher's first layer.

About 1 minute on 2 cores, after as long for the teacher. Expected: valid_loss 13.29;
7.0% of the cloze filled in, where its teacher fills in 5.5%.
"""

from wikitext2 import get_config as get_base


def get_config(folder="."):
    """400 steps of 32 rows of 128 tokens."""
    return get_base(folder, "distillation")
