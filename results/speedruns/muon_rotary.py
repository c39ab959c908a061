"""Speedrun: one objective, with Muon and rotary positions, to its target.

    jaxpt compare --config results/speedruns/muon_rotary.py:mlm --workdir runs/speedrun

Less than a minute on 2 cores. The text, the tokenizer and the evaluation are those of
targets.json, the other settings those of configs/quickstart.py but for the batch, which
is half as large. `AMOUNTS` follows trials with the seeds 20, 21 and 22, which no record
has.
"""

from jaxpt.config.settings import default_config

AMOUNTS = {"clm": 1.1e11, "mlm": 8e10, "span_corruption": 5e11, "electra": 2.8e11}


def get_config(objective="clm"):
    """A Transformer of 2 x 64 on characters; six seeds."""
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
    model.positions = "rotary"
    model.rotary_base = 100.0
    model.init_std = 0.06

    config.span_corruption.noise_density = 0.2
    config.electra.mask_rate = 0.25
    config.electra.temperature = 2.0
    config.electra.discriminator_weight = 20.0

    config.optim.name = "muon"
    config.optim.muon_lr = 0.02
    config.optim.lr = 6e-3
    config.optim.warmup_steps = 50
    config.optim.weight_decay = 0.01
    config.train.batch_size = 16
    config.train.checkpoint_every = 0

    compare = config.compare
    compare.objectives = (objective,)
    compare.seeds = (0, 1, 2, 3, 4, 5)
    compare.budget = "flops"
    compare.amount = AMOUNTS[objective]
    compare.overrides = {
        "span_corruption": {"model": {"num_layers": 1, "num_decoder_layers": 1}}
    }
    return config
