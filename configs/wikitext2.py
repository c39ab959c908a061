"""Four objectives on WikiText-2 at equal FLOPs, with an 8k byte-level BPE.

    jaxpt compare --config configs/wikitext2.py:DIR --workdir runs/wikitext2

DIR holds wiki.train.raw and wiki.valid.raw, plain or compressed. About 7 minutes on 2
cores. Expected, at 1e13 FLOPs each: clm 270 steps, 2.20 bits per byte; mlm 660 steps,
14.2% of held-out [MASK]s filled right; span_corruption 510 steps, loss 5.36; electra
600 steps, 18.1% by its generator. Without labels there is no probe and no verdict.
"""

from jaxpt.config.settings import default_config

SPECIALS = ("pad", "unk", "mask", "eos")
# What an objective needs and others do without, by section.
PAIR = {"model": {"num_decoder_layers": 2}}
STUDENT = {"model": {"num_layers": 1}}  # of a teacher with two layers
NEEDS = {
    "span_corruption": PAIR,
    "ul2": PAIR,
    "bart": PAIR | {"data": {"sentence_ids": True}},
    "bert": {"data": {"rows": "pairs"}, "model": {"num_types": 2}},
    "distillation": STUDENT | {"distillation": {"student_layers": (0,)}},
    "causal_distillation": STUDENT | {"causal_distillation": {"student_layers": (0,)}},
}
# What it needs of the text and the tokenizer.
TEXT_NEEDS = {
    "bart": {"data": {"sentences": "punctuation"}},
    "bert": {
        "data": {"sentences": "punctuation"},
        "tokenizer": {"specials": (*SPECIALS, "cls", "sep")},
    },
    # Its modes; half of 128 tokens in spans of 3, one of them cut in two.
    "ul2": {
        "tokenizer": {"specials": (*SPECIALS, "nlu", "nlg", "s2s"), "num_sentinels": 22}
    },
}


def get_config(folder=".", objective="clm"):
    """Articles as documents, rows of 128 tokens, the same for every objective."""
    config = default_config()
    config.objective = objective
    data = config.data
    data.path = f"{folder}/wiki.train.raw*"
    data.valid_path = f"{folder}/wiki.valid.raw*"
    data.documents = "heading:^ = [^=]+ = $"
    data.row_length = 128
    tokenizer = config.tokenizer
    tokenizer.kind = "bpe"
    tokenizer.vocab_size = 8192
    tokenizer.specials = SPECIALS
    tokenizer.num_sentinels = 16

    model = config.model
    model.num_layers = 2
    model.d_model = 128
    model.num_heads = 4
    model.d_ff = 512
    model.max_len = 128
    model.positions = "relative"
    model.init_std = 0.05

    config.bilm.num_chars = 20
    config.bilm.filters = (16, 32, 64, 64)

    config.optim.lr = 2e-3
    config.optim.warmup_steps = 50
    config.optim.weight_decay = 0.01

    train = config.train
    train.batch_size = 32
    train.steps = 400
    train.log_every = 50
    train.eval_every = 100
    train.checkpoint_every = 100
    config.eval.num_rows = 512
    config.eval.batch_size = 32

    for needs in (NEEDS, TEXT_NEEDS):
        for section, settings in needs.get(objective, {}).items():
            config[section].update(settings)

    compare = config.compare
    compare.seeds = (0,)
    compare.budget = "flops"
    compare.amount = 1e13
    compare.overrides = {"span_corruption": PAIR}
    if "data" in NEEDS.get(objective, {}):  # rows that the others do not read
        compare.objectives, compare.overrides = (objective,), {}
    return config
