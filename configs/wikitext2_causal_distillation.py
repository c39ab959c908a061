"""A causal student of one layer, taught by the run of wikitext2_clm.py, of two.

    jaxpt train --config configs/wikitext2_clm.py:DIR --workdir runs/clm
    jaxpt train --config configs/wikitext2_causal_distillation.py:DIR \
        --config.causal_distillation.teacher=runs/clm --workdir runs/distilled

DIR, text, tokenizer and model are those of wikitext2.py.

About 1 minute on 2 cores, after as long for the teacher. Expected: 1.99 bits per byte,
where its teacher has 2.10: it has seen twice the text.
"""

from wikitext2 import get_config as get_base


def get_config(folder="."):
    """400 steps of 32 rows of 128 tokens."""
    return get_base(folder, "causal_distillation")
