"""Four objectives on WikiText-2, each with a tuned learning rate.

    jaxpt compare --config results/configs/wikitext2_tuned.py:DIR \
        --workdir runs/wikitext2_tuned

DIR is that of wikitext2.py. Each objective tries five learning rates for half of the
budget before its six runs. The same runs with wikitext2.py's learning rate for all took
29 minutes on 2 cores that also did other work:

    jaxpt compare --config results/configs/wikitext2_tuned.py:DIR \
        --config.compare.tune= --workdir runs/untuned

docs/compare.md describes the effect of tuning.
"""

from jaxpt.config.config_files import read_config_file

OBJECTIVES = ("clm", "mlm", "span_corruption", "electra")


def get_config(folder="."):
    """A small model and vocabulary; six seeds; five learning rates for each objective.

    The shared metrics are the bigram-matched cloze and a multiple-choice cloze with
    four tokens. An encoder and a decoder of one layer each have about the same number
    of parameters as one stack of two.
    """
    config = read_config_file(f"configs/wikitext2.py:{folder}")
    config.data.row_length = 64
    config.tokenizer.vocab_size = 2048

    model = config.model
    model.d_model = 64
    model.d_ff = 256
    model.max_len = 64

    config.train.checkpoint_every = 0
    config.eval.num_choices = 4  # as in docs/compare.md
    config.eval.choice_questions = 2000

    compare = config.compare
    compare.objectives = OBJECTIVES
    compare.seeds = (0, 1, 2, 3, 4, 5)
    compare.amount = 1e12
    compare.num_evals = 8
    compare.tune = "optim.lr=1e-3,2e-3,4e-3,8e-3,1.6e-2"
    compare.tune_share = 0.5
    compare.overrides = {
        "span_corruption": {"model": {"num_layers": 1, "num_decoder_layers": 1}}
    }
    return config
