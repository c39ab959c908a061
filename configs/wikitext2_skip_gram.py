"""word2vec on WikiText-2: one vector for each token, independent of its context.

    jaxpt train --config configs/wikitext2_skip_gram.py:DIR --workdir runs/skip_gram
    jaxpt neighbours --workdir runs/skip_gram --word river

DIR, text and tokenizer are those of wikitext2.py.

About 2 minutes on 2 cores. Expected: valid_loss 2.46; the nearest neighbours of River
are Missouri and Mississippi, in every sentence.
"""

from wikitext2 import get_config as get_base


def get_config(folder="."):
    """2,000 steps of 32 rows of 128 tokens: 3.6 times through the text."""
    config = get_base(folder)
    config.objective = "skip_gram"
    config.optim.lr = 2e-2
    config.optim.weight_decay = 0.0
    config.train.steps = 2000
    config.train.eval_every = 500
    config.train.checkpoint_every = 500
    return config
