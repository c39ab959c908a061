"""The founding experiment: a small GPT and a small BERT on Tiny Shakespeare.

    jaxpt compare --config configs/shakespeare_char.py \
        --config.data.path=FILE --workdir DIR

FILE is the 1,115,394 characters of Tiny Shakespeare; without it the TFDS name is used.
About 1 minute on 2 cores. Expected: CLM val_perplexity 5.6; MLM heldout_top1 0.57,
heldout_top5 0.86.
"""

from jaxpt.config.settings import default_config

# What another objective needs, by section; lines are its sentences.
PAIR = {"model": {"num_decoder_layers": 2}}
STUDENT = {"model": {"num_layers": 1}}  # of a teacher with two layers
NEEDS = {
    "span_corruption": PAIR
    | {"tokenizer": {"specials": ("mask", "pad", "eos"), "num_sentinels": 8}},
    "ul2": PAIR
    | {
        "tokenizer": {
            "specials": ("mask", "pad", "eos", "nlu", "nlg", "s2s"),
            "num_sentinels": 12,
        }
    },
    "bart": PAIR
    | {
        "data": {"sentences": "lines", "sentence_ids": True},
        "tokenizer": {"specials": ("mask", "pad")},
    },
    "bert": {  # a speech is a document
        "data": {"documents": "paragraph", "sentences": "lines", "rows": "pairs"},
        "tokenizer": {"specials": ("pad", "mask", "cls", "sep")},
        "model": {"num_types": 2},
    },
    "prefix_lm": {"tokenizer": {"specials": ("mask", "pad")}},
    "distillation": STUDENT | {"distillation": {"student_layers": (0,)}},
    "causal_distillation": STUDENT | {"causal_distillation": {"student_layers": (0,)}},
}


def get_config(objective="clm"):
    """CLM for 600 steps and MLM for 1,500, exactly as the course chapter has them.

    Another objective by itself: the same text and model, with what it needs beside.
    """
    config = default_config()
    config.objective = objective
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
    train.steps = 600 if objective == "clm" else 1500
    train.log_every = 50
    train.eval_every = 100
    config.eval.num_rows = 1280

    for section, settings in NEEDS.get(objective, {}).items():
        config[section].update(settings)

    compare = config.compare
    compare.objectives = ("clm", "mlm")
    compare.seeds = (0,)
    compare.budget = "steps"
    compare.overrides = {
        "clm": {"train": {"steps": 600}},
        "mlm": {"train": {"steps": 1500}, "model": {"head_bias": True}},
    }
    if "data" in NEEDS.get(objective, {}):  # rows that the others do not read
        compare.objectives, compare.overrides = (objective,), {}
    return config
