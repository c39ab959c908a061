"""The founding experiment: a small GPT and a small BERT on Tiny Shakespeare.

    jaxpt compare --config configs/shakespeare_char.py \
        --config.data.path=FILE --workdir DIR

FILE has the 1,115,394 characters of Tiny Shakespeare; without it the TFDS name is used.
About 1 minute on 2 cores. Expected: CLM val_perplexity 5.6; MLM masked_accuracy 0.57,
masked_top5_accuracy 0.86.
"""

from jaxpt.config.settings import default_config


def get_config():
    """CLM for 600 steps and MLM for 1,500, exactly as in the course chapter.

    With --config.objective=NAME another objective trains on the same text and model.
    """
    config = default_config()
    data = config.data
    data.path = "tfds:tiny_shakespeare"
    data.limit_chars = 80_000
    data.heldout_chars = 20_000
    data.split = "position"
    data.valid_fraction = 0.1
    data.seq_len = 48
    data.rows = "windows"
    config.tokenizer.kind = "char"
    config.tokenizer.specials = ("mask",)

    model = config.model
    model.num_layers = 2
    model.d_model = 96
    model.num_heads = 4
    model.d_ff = 256
    model.max_len = 64
    model.positions = "sinusoidal"
    model.activation = "relu"
    model.tie_embeddings = False
    model.dropout = 0.1
    model.init = "torch"

    config.bilm.num_chars = 6
    config.bilm.filters = (16, 32, 32)

    optim = config.optim
    optim.lr = 3e-3
    optim.schedule = "cosine"
    optim.clip_norm = 1.0

    train = config.train
    train.batch_size = 64
    train.steps = 600
    train.log_every = 50
    train.eval_every = 100
    config.eval.num_rows = 1280

    compare = config.compare
    compare.objectives = ("clm", "mlm")
    compare.seeds = (0,)
    compare.budget = "steps"
    compare.overrides = {
        "clm": {"train": {"steps": 600}},
        "mlm": {"train": {"steps": 1500}, "model": {"head_bias": True}},
    }
    return config
