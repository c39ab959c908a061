"""Six objectives on a part of WikiText-2, each tuned, at three budgets.

    for amount in 1e12 3e12 9e12; do
        jaxpt compare --config results/configs/orderings.py:DIR \
            --config.compare.amount=$amount --workdir runs/orderings-$amount
    done

DIR is that of wikitext2.py. Does the order of the objectives change with the budget? At
each budget every objective tries the same eight combinations of two learning rates, the
weight decay and the dropout for half of the budget, and up to eight more while the best
one is at an edge. It then trains with six seeds. Without these extensions the three
comparisons are 7.8e14 FLOPs: 160 minutes of 2 cores at 80 GFLOP/s. The extensions add
at most 3.1e14.
An interrupted command resumes when it is repeated: finished runs and trials are kept,
the current one starts again.

One seed at 6e12 FLOPs, without tuning: the multiple-choice cloze after each third (0.24
with random initialization):

span_corruption     0.349, 0.724, 0.775
electra             0.274, 0.491, 0.571
masked_diffusion    0.345, 0.758, 0.783
mlm                 0.793, 0.863, 0.875

The sizes for isoFLOP curves of clm and mlm, on the whole text (54 minutes):

    for amount in 1e12 3e12 9e12; do
        jaxpt compare --config results/configs/orderings.py:DIR,sizes \
            --config.compare.amount=$amount --workdir runs/sizes-$amount
    done
    jaxpt fit-scaling --runs runs/sizes-*/runs/*-seed* --to runs/scaling
"""

from jaxpt.config.config_files import read_config_file

OBJECTIVES = (
    "clm",
    "mlm",
    "span_corruption",
    "electra",
    "masked_diffusion",
    "clm_mlm",
)
BUDGETS = (1e12, 3e12, 9e12)  # FLOPs
# All objectives read the text more than once at the largest budget.
CHARS = 1_000_000
WIDTHS = (48, 64, 96, 128, 192)
TUNE = (
    "optim.muon_lr=0.007..0.05; optim.lr=2e-3..1.2e-2; "
    "optim.weight_decay=0.01..1.0; model.dropout=0.0,0.1"
)


def get_config(arguments="."):
    """DIR for the comparison, DIR,sizes for the sizes of two objectives.

    The networks have two layers (an encoder and a decoder of one layer each for
    span_corruption), rotary positions with a base for short rows, and Muon for the
    matrices, which configs/quickstart.py found necessary to leave the plateau of token
    frequencies. The three comparisons share the error rate of 0.05.
    """
    folder, _, part = arguments.partition(",")
    config = read_config_file(f"configs/wikitext2.py:{folder}")
    config.data.row_length = 64
    config.data.limit_chars = CHARS
    config.tokenizer.vocab_size = 2048
    _set_model(config.model, 128)
    config.span_corruption.noise_density = 0.2
    config.electra.mask_rate = 0.25
    config.electra.temperature = 2.0
    config.electra.discriminator_weight = 20.0
    config.optim.name = "muon"
    config.optim.muon_lr = 0.02
    config.optim.lr = 6e-3
    config.optim.weight_decay = 0.1
    config.train.checkpoint_every = 0
    config.eval.probe_passages = 0
    config.eval.pair_questions = 2000
    config.eval.num_choices = 4  # beside the bigram-matched cloze
    config.eval.choice_questions = 2000

    compare = config.compare
    compare.amount = BUDGETS[1]
    compare.num_evals = 8
    compare.alpha = 0.05 / len(BUDGETS)
    compare.overrides = {
        "span_corruption": {"model": {"num_layers": 1, "num_decoder_layers": 1}}
    }
    if part == "sizes":
        return _set_sizes(config)
    compare.objectives = OBJECTIVES
    compare.seeds = (0, 1, 2, 3, 4, 5)
    compare.tune = TUNE
    compare.tune_trials = 8
    compare.tune_until = "interior"
    compare.tune_share = 0.5
    return config


def _set_model(model, width):
    model.d_model, model.d_ff = width, 4 * width
    model.max_len = 64
    model.activation = "relu"
    model.positions = "rotary"
    model.rotary_base = 100.0


def _set_sizes(config):
    """Five widths of clm and mlm, with common settings; two seeds: no verdicts."""
    config.data.limit_chars = 0
    compare = config.compare
    compare.seeds = (0, 1)
    compare.overrides = {
        f"{objective}-{width}": {
            "objective": objective,
            "model": {"d_model": width, "d_ff": 4 * width},
        }
        for objective in ("clm", "mlm")
        for width in WIDTHS
    }
    compare.objectives = tuple(compare.overrides)
    return config
