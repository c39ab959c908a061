"""Speedrun: one objective, the least cost to a target on the embedded corpus.

    jaxpt compare --config results/speedruns/config.py:mlm --workdir runs/speedrun

About a minute on 2 cores. docs/speedruns.md has the rules. The text, the tokenizer and
the evaluation are those of targets.json; everything else may be changed, also the
number of FLOPs (compare.amount) and of seeds.
"""

from jaxpt.config.settings import default_config


def get_config(objective="clm"):
    """A Transformer of 2 x 64 on characters, with AdamW; three seeds of 4e11 FLOPs."""
    config = default_config()
    config.objective = objective
    config.data.row_length = 64
    config.tokenizer.specials = ("pad", "unk", "mask", "eos")
    config.tokenizer.num_sentinels = 8
    config.eval.num_rows = 512
    config.eval.probe_passages = 0
    config.eval.num_choices = 4
    config.eval.choice_questions = 2000

    model = config.model
    model.num_layers, model.d_model, model.num_heads, model.d_ff = 2, 64, 4, 192
    model.max_len = 64
    model.activation = "relu"
    model.positions = "relative"
    model.init_std = 0.06

    config.optim.lr = 6e-3
    config.optim.warmup_steps = 50
    config.optim.weight_decay = 0.01
    config.train.batch_size = 32
    config.train.checkpoint_every = 0

    compare = config.compare
    compare.objectives = (objective,)
    compare.seeds = (0, 1, 2)
    compare.budget = "flops"
    compare.amount = 4e11
    compare.overrides = {
        "span_corruption": {"model": {"num_layers": 1, "num_decoder_layers": 1}}
    }
    return config
