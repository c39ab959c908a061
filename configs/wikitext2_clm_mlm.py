"""Causal and masked rows in one run on WikiText-2.

    jaxpt train --config configs/wikitext2_clm_mlm.py:DIR --workdir runs/clm_mlm

DIR, text, tokenizer and model are those of wikitext2.py.

About 2 minutes on 2 cores. Expected: valid_clm_loss 6.24, valid_mlm_loss 6.35; 11.7% of
the cloze filled in.
"""

from wikitext2 import get_config as get_base


def get_config(folder="."):
    """400 steps of 32 rows of 128 tokens."""
    return get_base(folder, "clm_mlm")
