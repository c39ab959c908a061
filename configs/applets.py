"""Small models of the embedded speeches for the browser demos (`make applets`).

    jaxpt train --config configs/applets.py:mlm --workdir runs/applets/mlm
    jaxpt train --config configs/applets.py:masked_diffusion \
        --config.train.init_from=runs/applets/mlm --workdir runs/applets/diffusion
    jaxpt applet --workdir runs/applets/* --to site

The same for clm, electra and span_corruption: each takes 3 to 4 minutes on 2 cores.
Tokens are subwords, so that whole words can be masked, rewritten and generated. At this
size a model learns phrases of the speeches and little about the world. The models are
not a comparison: each has settings with which it learns within minutes.
"""

from jaxpt.config.settings import default_config

STEPS = {"mlm": 3600, "span_corruption": 5000}


def get_config(objective="clm"):
    """Four layers of width 128 (two and two for a decoder); 2,048 tokens a step."""
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
    if objective == "span_corruption":
        model.num_layers = model.num_decoder_layers = 2

    config.optim.lr = 2e-3
    config.optim.warmup_steps = 200
    config.optim.weight_decay = 0.01
    if objective == "electra":
        # More and easier replacements: with the default ones the discriminator
        # detects none after 3,300 steps.
        model.positions = "rotary"
        config.optim.lr = 1e-3
        config.electra.mask_rate = 0.25
        config.electra.temperature = 2.0
        config.electra.discriminator_weight = 10.0

    train = config.train
    train.batch_size = 32
    train.steps = STEPS.get(objective, 3000)
    train.log_every = 200
    train.eval_every = 1000
    config.eval.num_rows = 512
    config.eval.probe_passages = 0
    config.compare.budget, config.compare.amount = "flops", 4e13
    return config
