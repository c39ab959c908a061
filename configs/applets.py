"""Small models to play with in a browser: five objectives on the embedded speeches.

    jaxpt compare --config configs/applets.py --workdir runs/applets
    jaxpt applet --workdir runs/applets --to site

About 25 minutes on 2 cores for all five, each in a process of its own faster on more.
Tokens are pieces of words, so that whole words can be hidden, rewritten and written; at
this size a model knows phrases of the speeches, and little of the world.
"""

from jaxpt.config.settings import default_config

OBJECTIVES = ("clm", "mlm", "electra", "span_corruption", "masked_diffusion")


def get_config(objective="clm"):
    """One seed each, the same FLOPs; four layers of 128."""
    config = default_config()
    config.objective = objective
    config.data.path = "sotu"
    config.data.row_length = 64
    config.tokenizer.kind = "bpe"
    config.tokenizer.vocab_size = 2048
    config.tokenizer.specials = ("pad", "unk", "mask", "eos")
    config.tokenizer.num_sentinels = 8

    model = config.model
    model.num_layers = 4
    model.d_model = 128
    model.num_heads = 4
    model.d_ff = 512
    model.max_len = 64
    model.positions = "relative"
    model.init_std = 0.05

    config.optim.lr = 2e-3
    config.optim.warmup_steps = 200
    config.optim.weight_decay = 0.01

    train = config.train
    train.batch_size = 32
    train.steps = 3000
    train.log_every = 200
    train.eval_every = 1000
    config.eval.num_rows = 512
    config.eval.probe_passages = 0

    compare = config.compare
    compare.objectives = OBJECTIVES
    compare.seeds = (0,)
    compare.budget, compare.amount = "flops", 4e13
    compare.num_evals = 4
    compare.overrides = {
        "span_corruption": {"model": {"num_layers": 2, "num_decoder_layers": 2}}
    }
    return config
