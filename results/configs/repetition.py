"""What does an objective still learn from a text that it has read before?

    for epochs in 1 4 16 64; do
        jaxpt compare --config results/configs/repetition.py:$epochs \
            --workdir runs/repetition-$epochs
    done

clm, clm with masked-input regularization, masked diffusion, both (dual) and mlm for 1
to 64 epochs of 131,072 characters, with five seeds. The weight decay is tuned for each
objective and number of epochs. The four comparisons share the error rate of 0.05. An
epoch costs `masked_input_clm` and `dual` more FLOPs than the others, which the report
lists. The shared metrics are the bigram-matched and the multiple-choice cloze on
held-out text (the studies in results/ have the second one); those with a likelihood are
also compared on bits per byte. About 60 minutes on 2 cores.
"""

from jaxpt.config.config_files import read_config_file

EPOCHS = (1, 4, 16, 64)
CHARS = 131_072


def get_config(epochs="4"):
    """One of the four comparisons."""
    config = read_config_file("configs/quickstart.py:clm")
    config.data.limit_chars = CHARS
    config.data.rows = "chunks"  # the same rows in every epoch
    config.train.batch_size = 16
    config.optim.weight_decay = 0.1
    config.eval.num_choices = 4
    config.eval.choice_questions = 2000
    compare = config.compare
    compare.objectives = ("clm", "masked_input_clm", "masked_diffusion", "dual", "mlm")
    compare.overrides = {}
    compare.seeds = (0, 1, 2, 3, 4)
    compare.budget = "raw_tokens"
    compare.amount = float(CHARS * int(epochs))
    compare.alpha = 0.05 / len(EPOCHS)
    compare.tune = "optim.weight_decay=0.01,0.1,0.3,1.0"
    compare.tune_share = 0.5
    return config
